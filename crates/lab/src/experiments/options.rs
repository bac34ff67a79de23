//! The command line of `evenkeel lab`: an experiment with its options.

use super::reload::Part;
use crate::load::{Think, parse_time};
use crate::sim::Model;
use crate::sweep::Grid;
use crate::words::{self, Stop, number};
use clap::{ArgAction::Set, Parser, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// The experiments and what they do.
const EXPERIMENTS: &str = "\
Experiments:
  static     files of 1 KiB to 10 MiB, 304, a connection for each request: peers side by side
  greedy     clients without a pause and with one, over the number of clients, and over minutes
  syscalls   system calls a request by name, kept connections and one request a connection (strace)
  ramp       the load of 2002: 390 clients at once on a pool of one child, beside Apache and beside
             three laws in the simulator
  overload   requests that wait and that burn CPU time, from half to a hundred times saturation;
             --step: 512 clients at once on a pool of one child
  starvation greedy clients on kept connections, more than there are workers
  reload     reloads under 32 busy connections, and what they lose; --buckets: while the number of
             listen queues changes; --kill: children are killed; --upgrade: the program is
             changed; --slow: 1,000 slow clients
  buckets    one accept queue against several: on this machine, and simulated to 128 cores
  cpu-wait   pages that burn CPU time and pages that wait, from 1 to 10,000 clients, beside php-fpm
             behind Apache and nginx
  explain    a dozen things that hold a server back, one after the other, and whether `evenkeel
             explain` names them and predicts how much they leave
  auto       MaxRequestWorkers auto beside the best number that a sweep finds, and on an application
             that is saturated

The servers run on one half of the cores, the clients on the other. ^C stops the servers and ends
without a report.";

/// Measures installed servers beside each other on this machine
#[derive(Debug, Parser)]
#[command(name = "lab", bin_name = "evenkeel lab", after_help = EXPERIMENTS)]
struct Words {
    /// What is done; the list is below
    #[arg(value_enum, hide_possible_values = true)]
    experiment: Experiment,
    /// Servers beside Evenkeel: apache2, apache2-worker, apache2-prefork, nginx, nginx-ofc, h2o,
    /// lighttpd, haproxy, caddy (those that are installed; all that make sense where nothing is
    /// said), and evenkeel-worker, evenkeel-prefork
    #[arg(long, value_name = "NAMES")]
    against: Option<String>,
    /// Process models: worker, prefork, event (all; ramp: worker; buckets: event,worker; cpu-wait:
    /// event)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = model, action = Set)]
    mpm: Option<Vec<Model>>,
    /// How often each has its turn (static, syscalls 5; greedy 3; overload --step 1); figures are
    /// medians
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, usize::MAX))]
    rounds: Option<usize>,
    /// How long a turn lasts (3s; ramp 600s, its step 15s, starvation 30s, reload --slow 35s,
    /// explain 12s, auto 3s, others 5s)
    #[arg(long, value_name = "TIME", value_parser = turn)]
    seconds: Option<Duration>,
    /// Numbers of clients, 1,4,16 or 1..256 (greedy 1,4,16,64,256; starvation 512,4096; cpu-wait
    /// 1,2,8 .. 10000), or one number (ramp 390, step 512, reload 32, slow 1000, auto 600)
    #[arg(long, value_name = "LIST", value_parser = clients)]
    clients: Option<Grid>,
    /// greedy: pauses (0,1us,3us,1ms)
    #[arg(long, value_name = "LIST", value_parser = thinks)]
    think: Option<Grid>,
    /// greedy: how long the two long runs last (300s)
    #[arg(long, value_name = "TIME", value_parser = turn)]
    long: Option<Duration>,
    /// ramp: how long a child of Evenkeel takes to start (LabChildStartDelay; 0)
    #[arg(long, value_name = "TIME", value_parser = delay)]
    start_delay: Option<Duration>,
    /// overload: loads in what saturates (0.5,1,2,4,8,16,32,64,100)
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = number::<f64>(0.01, 1000.0),
        action = Set
    )]
    levels: Option<Vec<f64>>,
    /// MaxRequestWorkers (overload 128; starvation, cpu-wait's peers 256)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, MOST))]
    workers: Option<usize>,
    /// How long a request waits (200ms)
    #[arg(long, value_name = "TIME", value_parser = turn)]
    wait: Option<Duration>,
    /// How much CPU time a request burns (20ms)
    #[arg(long, value_name = "TIME", value_parser = turn)]
    burn: Option<Duration>,
    /// overload: many clients at once on a pool of one child
    #[arg(long)]
    step: bool,
    /// reload: the number of listen queues changes
    #[arg(long, overrides_with_all = ["kill", "upgrade", "slow"])]
    buckets: bool,
    /// reload: children are killed
    #[arg(long, overrides_with_all = ["buckets", "upgrade", "slow"])]
    kill: bool,
    /// reload: the program is changed
    #[arg(long, overrides_with_all = ["buckets", "kill", "slow"])]
    upgrade: bool,
    /// reload: slow clients, and no reload
    #[arg(long, overrides_with_all = ["buckets", "kill", "upgrade"])]
    slow: bool,
    /// reload: how often (1000, peers at most 50; buckets 18, kills 10, upgrades 20)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, MOST))]
    reloads: Option<usize>,
    /// auto: the numbers of workers that are tried (1,2,4 .. 512)
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = number::<usize>(1, MOST),
        action = Set
    )]
    sweep: Option<Vec<usize>>,
    /// explain, auto (burn, wait, mixed, gate): these cases alone
    #[arg(long, value_name = "LIST", value_delimiter = ',', action = Set)]
    only: Option<Vec<String>>,
    /// A new folder for the report and its results (lab-EXPERIMENT)
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The bound of all counts.
const MOST: usize = 100_000;

/// The declaration of the command line.
#[must_use]
pub fn command() -> clap::Command {
    words::command::<Words>()
}

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The experiment.
    pub experiment: Experiment,
    /// The names of the peers, if given.
    pub against: Option<String>,
    /// The process models, if given.
    pub models: Option<Vec<Model>>,
    /// The number of turns of each server.
    pub rounds: Option<usize>,
    /// The length of a turn.
    pub turn: Duration,
    /// Clients and pauses.
    pub grid: Grid,
    /// Whether the numbers of clients were given.
    pub has_clients: bool,
    /// The length of the long runs.
    pub long: Duration,
    /// The time that a child takes to start.
    pub start_delay: Duration,
    /// The loads on servers, relative to saturation.
    pub levels: Option<Vec<f64>>,
    /// MaxRequestWorkers.
    pub workers: Option<usize>,
    /// The time that a request waits.
    pub wait: Duration,
    /// The CPU time that a request burns.
    pub burn: Duration,
    /// Whether `overload` is a step.
    pub step: bool,
    /// What `reload` does.
    pub part: Part,
    /// How often it does that.
    pub reloads: Option<usize>,
    /// The numbers of workers that `auto` tries, if given.
    pub sweep: Option<Vec<usize>>,
    /// The cases of `explain`, if given.
    pub only: Option<Vec<String>>,
    /// The folder for the report.
    pub out: Option<PathBuf>,
    /// The words of the command line.
    pub words: Vec<String>,
}

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    /// Files beside the peers.
    Static,
    /// Greedy clients and paused ones.
    Greedy,
    /// System calls by name.
    Syscalls,
    /// The load of 2002.
    Ramp,
    /// From half to a hundred times saturation.
    Overload,
    /// Greedy clients that could keep others out.
    Starvation,
    /// Reloads and deaths under load.
    Reload,
    /// One accept queue against several.
    Buckets,
    /// Pages that burn and pages that wait.
    CpuWait,
    /// What holds a server back, and what explain says of it.
    Explain,
    /// MaxRequestWorkers auto beside the best number.
    Auto,
}

impl Experiment {
    /// The name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The length of its turns by default.
    fn turn(self, step: bool) -> Duration {
        Duration::from_secs(match self {
            Self::Static | Self::Greedy | Self::Syscalls | Self::Auto => 3,
            Self::Ramp => 600,
            Self::Overload if step => 15,
            Self::Overload | Self::Buckets | Self::CpuWait => 5,
            // Limits are computed from ten seconds.
            Self::Explain => 12,
            Self::Starvation => 30,
            Self::Reload => 35,
        })
    }
}

impl Options {
    /// The process models that were given, or these.
    pub fn models_or(&self, usual: &[Model]) -> Vec<Model> {
        self.models.clone().unwrap_or_else(|| usual.to_vec())
    }

    /// The number of clients if one number was given, or this one.
    pub fn one_number_of_clients(&self, usual: u32) -> u32 {
        let typed = self.grid.clients.first().filter(|_| self.has_clients);
        typed.copied().unwrap_or(usual)
    }
}

/// Parses the words.
///
/// # Errors
///
/// Help is requested, or what is wrong with the words.
pub fn parse(given: &[String]) -> Result<Options, Stop> {
    let words: Words = words::parse(given)?;
    let part = match (words.buckets, words.kill, words.upgrade, words.slow) {
        (true, ..) => Part::Buckets,
        (_, true, ..) => Part::Kill,
        (_, _, true, _) => Part::Upgrade,
        (.., true) => Part::Slow,
        _ => Part::Reload,
    };
    let usual = || ["0", "1us", "3us", "1ms"].into_iter().flat_map(Think::parse).collect();
    let has_clients = words.clients.is_some();
    Ok(Options {
        experiment: words.experiment,
        against: words.against,
        models: words.mpm,
        rounds: words.rounds,
        turn: words.seconds.unwrap_or_else(|| words.experiment.turn(words.step)),
        grid: Grid {
            clients: words.clients.unwrap_or_default().clients,
            thinks: words.think.map_or_else(usual, |grid| grid.thinks),
        },
        has_clients,
        long: words.long.unwrap_or(Duration::from_secs(300)),
        start_delay: words.start_delay.unwrap_or_default(),
        levels: words.levels,
        workers: words.workers,
        wait: words.wait.unwrap_or(Duration::from_millis(200)),
        burn: words.burn.unwrap_or(Duration::from_millis(20)),
        step: words.step,
        part,
        reloads: words.reloads,
        sweep: words.sweep,
        only: words.only,
        out: words.out,
        words: given.to_vec(),
    })
}

impl Options {
    /// Refuses names of cases that an experiment does not have.
    pub fn check_only(&self, known: &[&str]) -> Result<(), String> {
        let mut named = self.only.iter().flatten();
        let unknown = named.find(|name| !known.contains(&name.as_str()));
        unknown.map_or(Ok(()), |name| {
            Err(format!("--only {name}: no such case; there are: {}", known.join(", ")))
        })
    }
}

fn turn(text: &str) -> Result<Duration, String> {
    let seconds = parse_time(text).filter(|seconds| (0.001..=86_400.0).contains(seconds));
    let turn = seconds.map(Duration::from_secs_f64);
    turn.ok_or_else(|| "it takes a time from 1ms to 24h".to_owned())
}

fn delay(text: &str) -> Result<Duration, String> {
    let seconds = parse_time(text).filter(|seconds| *seconds <= 3600.0);
    let delay = seconds.map(Duration::from_secs_f64);
    delay.ok_or_else(|| "it takes a time from 0 to 1h".to_owned())
}

fn model(text: &str) -> Result<Model, String> {
    Model::parse(text).ok_or_else(|| "prefork, worker or event is expected".to_owned())
}

fn clients(text: &str) -> Result<Grid, String> {
    grid(&format!("c={text}"))
}

fn thinks(text: &str) -> Result<Grid, String> {
    grid(&format!("think={text}"))
}

fn grid(text: &str) -> Result<Grid, String> {
    let mut grid = Grid::default();
    grid.set(text)?;
    Ok(grid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, Stop> {
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_become_an_experiment() {
        let line = "greedy --against nginx --rounds 2 --seconds 200ms --clients 1,2 --think 0,1ms";
        let options = parsed(line).unwrap();
        assert_eq!((options.experiment, options.rounds), (Experiment::Greedy, Some(2)));
        assert_eq!((options.turn, options.grid.clients), (Duration::from_millis(200), vec![1, 2]));
        assert_eq!(options.grid.thinks, [Think::None, Think::Fixed(0.001)]);
        assert!(matches!(parsed("--help"), Err(Stop::Help(_))));
        assert_eq!(parsed("reload --slow --kill").unwrap().part, Part::Kill);
        assert_eq!(parsed("cpu-wait").unwrap().experiment.name(), "cpu-wait");
        let ramp = parsed("ramp --mpm worker,prefork --start-delay 3s").unwrap();
        assert_eq!(ramp.models_or(&[]), [Model::Worker, Model::Prefork]);
        assert_eq!((ramp.turn.as_secs(), ramp.start_delay.as_secs()), (600, 3));
        let step = parsed("overload --step --wait 50ms --clients 7").unwrap();
        assert_eq!((step.turn.as_secs(), step.wait.as_millis()), (15, 50));
        assert_eq!((step.one_number_of_clients(512), ramp.one_number_of_clients(390)), (7, 390));
        let kill = parsed("reload --kill --reloads 3").unwrap();
        assert_eq!((kill.part, kill.reloads), (Part::Kill, Some(3)));
    }

    #[test]
    fn a_case_that_is_none_is_refused_with_the_names_of_those_that_are() {
        let some = parsed("auto --only burn,mixd").unwrap();
        let told = some.check_only(&["burn", "mixed"]).unwrap_err();
        assert_eq!(told, "--only mixd: no such case; there are: burn, mixed");
        assert!(some.check_only(&["burn", "mixd"]).is_ok());
        assert!(parsed("auto").unwrap().check_only(&[]).is_ok());
    }

    #[test]
    fn words_that_make_no_sense_are_told() {
        for line in [
            "ramp-up",
            "static --rounds 0",
            "static --seconds 0",
            "static more",
            "--rounds 1",
            "ramp --mpm threads",
            "ramp --start-delay 2h",
            "static --what 1",
            "overload --levels 0",
            "overload --workers many",
            "reload --reloads 0",
        ] {
            assert!(matches!(parsed(line), Err(Stop::Wrong(_))), "{line}");
        }
    }
}
