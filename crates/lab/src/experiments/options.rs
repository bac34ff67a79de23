//! The words of `evenkeel lab`: an experiment with its options, or what is wrong with them.

use super::reload::Part;
use crate::load::{Think, parse_time};
use crate::sim::Model;
use crate::sweep::Grid;
use lexopt::prelude::{Long, Short, Value};
use std::path::PathBuf;
use std::time::Duration;

/// What `--help` shows.
pub const HELP: &str = "\
Usage: evenkeel lab EXPERIMENT [options]

Experiments on this machine, with whichever of the servers are installed:
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

  --against NAMES  beside Evenkeel: apache2, apache2-worker, apache2-prefork, nginx, nginx-ofc, h2o,
                   lighttpd, haproxy, caddy (those that are installed; default: all that make
                   sense), and evenkeel-worker, evenkeel-prefork
  --mpm LIST       process models: worker, prefork, event (all; ramp: worker; buckets:
                   event,worker; cpu-wait: event)
  --rounds N       how often each has its turn (static, syscalls 5; greedy 3); figures are medians
  --seconds TIME   how long a turn lasts (3s; ramp 600s, its step 15s, starvation 30s,
                   reload --slow 35s, explain 12s, auto 3s,
                   others 5s)
  --clients LIST   numbers of clients, 1,4,16 or 1..256 (greedy 1,4,16,64,256; starvation 512,4096;
                   cpu-wait 1,2,8 .. 10000), or one number (ramp 390, step 512, reload 32,
                   slow 1000, auto 600)
  --think LIST     greedy: pauses (0,1us,3us,1ms)
  --long TIME      greedy: how long the two long runs last (300s)
  --start-delay TIME  ramp: how long a child of Evenkeel takes to start (LabChildStartDelay; 0)
  --levels LIST    overload: loads in what saturates (0.5,1,2,4,8,16,32,64,100)
  --workers N      MaxRequestWorkers (overload 128; starvation, cpu-wait's peers 256)
  --wait TIME      how long a request waits (200ms)
  --burn TIME      how much CPU time a request burns (20ms)
  --reloads N      reload: how often (1000, peers at most 50; buckets 18, kills 10,
                   upgrades 20)
  --sweep LIST     auto: the numbers of workers that are tried (1,2,4 .. 512)
  --only LIST      explain, auto (burn, wait, mixed, gate): these cases alone
  -o, --out DIR    a new folder for the report and its results (lab-EXPERIMENT)
  -h, --help       this text

The servers run on one half of the cores, the clients on the other. ^C stops the servers and ends
without a report.
";

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which experiment.
    pub experiment: Experiment,
    /// The names of the peers, where they were named.
    pub against: Option<String>,
    /// The process models, where they were named.
    pub models: Option<Vec<Model>>,
    /// How often each has its turn.
    pub rounds: Option<usize>,
    /// How long a turn lasts.
    pub turn: Duration,
    /// Clients and pauses.
    pub grid: Grid,
    /// Whether the numbers of clients are those that were typed.
    pub has_clients: bool,
    /// How long the long runs last.
    pub long: Duration,
    /// How long a child takes to start.
    pub start_delay: Duration,
    /// How far servers are loaded, in what saturates them.
    pub levels: Option<Vec<f64>>,
    /// MaxRequestWorkers.
    pub workers: Option<usize>,
    /// How long a request waits.
    pub wait: Duration,
    /// How much CPU time a request burns.
    pub burn: Duration,
    /// Whether `overload` is a step.
    pub step: bool,
    /// What `reload` does.
    pub part: Part,
    /// How often it does that.
    pub reloads: Option<usize>,
    /// The numbers of workers that `auto` tries, where they were named.
    pub sweep: Option<Vec<usize>>,
    /// The cases of `explain`, where they were named.
    pub only: Option<Vec<String>>,
    /// The folder for the report.
    pub out: Option<PathBuf>,
    /// The words themselves.
    pub words: Vec<String>,
}

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// All, with their names.
    pub const ALL: [(&'static str, Self); 11] = [
        ("static", Self::Static),
        ("greedy", Self::Greedy),
        ("syscalls", Self::Syscalls),
        ("ramp", Self::Ramp),
        ("overload", Self::Overload),
        ("starvation", Self::Starvation),
        ("reload", Self::Reload),
        ("buckets", Self::Buckets),
        ("cpu-wait", Self::CpuWait),
        ("explain", Self::Explain),
        ("auto", Self::Auto),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, other)| *other == self).map_or("", |(name, _)| *name)
    }

    /// How long a turn of it lasts if nothing was said.
    fn turn(self, step: bool) -> Duration {
        Duration::from_secs(match self {
            Self::Static | Self::Greedy | Self::Syscalls | Self::Auto => 3,
            Self::Ramp => 600,
            Self::Overload if step => 15,
            Self::Overload | Self::Buckets | Self::CpuWait => 5,
            // Limits are told from ten seconds.
            Self::Explain => 12,
            Self::Starvation => 30,
            Self::Reload => 35,
        })
    }
}

impl Options {
    /// The process models that were asked for, or these.
    pub fn models_or(&self, usual: &[Model]) -> Vec<Model> {
        self.models.clone().unwrap_or_else(|| usual.to_vec())
    }

    /// The number of clients where there is one number, or this one.
    pub fn one_number_of_clients(&self, usual: u32) -> u32 {
        let typed = self.grid.clients.first().filter(|_| self.has_clients);
        typed.copied().unwrap_or(usual)
    }
}

/// Parses the words; none where help is wanted.
///
/// # Errors
/// What is wrong with them.
pub fn parse(words: &[String]) -> Result<Option<Options>, String> {
    let mut parser = lexopt::Parser::from_args(words);
    let told = |error: lexopt::Error| error.to_string();
    let mut experiment = None;
    let mut turn = None;
    let mut options = Options {
        experiment: Experiment::Static,
        against: None,
        models: None,
        rounds: None,
        turn: Duration::ZERO,
        grid: Grid::default(),
        has_clients: false,
        long: Duration::from_secs(300),
        start_delay: Duration::ZERO,
        levels: None,
        workers: None,
        wait: Duration::from_millis(200),
        burn: Duration::from_millis(20),
        step: false,
        part: Part::Reload,
        reloads: None,
        sweep: None,
        only: None,
        out: None,
        words: words.to_vec(),
    };
    options.grid.thinks = ["0", "1us", "3us", "1ms"].into_iter().flat_map(Think::parse).collect();
    while let Some(word) = parser.next().map_err(told)? {
        match word {
            Short('h') | Long("help") => return Ok(None),
            Long("seconds") => turn = Some(parse_turn(&text_of(&mut parser)?)?),
            Short('o') | Long("out") => options.out = Some(text_of(&mut parser)?.into()),
            Long(name) => {
                let name = name.to_owned();
                options.take(&name, &mut parser)?;
            }
            Value(name) if experiment.is_none() => {
                let name = name.to_string_lossy();
                let found = Experiment::ALL.iter().find(|(own, _)| *own == name);
                let found = found.ok_or_else(|| {
                    let names = Experiment::ALL.map(|(name, _)| name).join(", ");
                    format!("{name}: no such experiment; there are: {names}")
                })?;
                experiment = Some(found.1);
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    options.experiment = experiment.ok_or("which experiment?")?;
    options.turn = turn.unwrap_or_else(|| options.experiment.turn(options.step));
    Ok(Some(options))
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

    /// Takes the option of this name, and its value where it has one.
    fn take(&mut self, name: &str, parser: &mut lexopt::Parser) -> Result<(), String> {
        let mut value = || text_of(parser);
        match name {
            "sweep" => {
                self.sweep = Some(value()?.split(',').map(parse_count).collect::<Result<_, _>>()?);
            }
            "only" => self.only = Some(value()?.split(',').map(str::to_owned).collect()),
            "against" => self.against = Some(value()?),
            "mpm" => self.models = Some(parse_models(&value()?)?),
            "rounds" => self.rounds = Some(parse_rounds(&value()?)?),
            "long" => self.long = parse_turn(&value()?)?,
            "levels" => self.levels = Some(parse_levels(&value()?)?),
            "workers" => self.workers = Some(parse_count(&value()?)?),
            "reloads" => self.reloads = Some(parse_count(&value()?)?),
            "wait" => self.wait = parse_turn(&value()?)?,
            "burn" => self.burn = parse_turn(&value()?)?,
            "step" => self.step = true,
            "buckets" => self.part = Part::Buckets,
            "kill" => self.part = Part::Kill,
            "upgrade" => self.part = Part::Upgrade,
            "slow" => self.part = Part::Slow,
            "start-delay" => self.start_delay = parse_delay(&value()?)?,
            "clients" => {
                self.grid.set(&format!("c={}", value()?))?;
                self.has_clients = true;
            }
            "think" => self.grid.set(&format!("think={}", value()?))?,
            _ => return Err(format!("invalid option '--{name}'")),
        }
        Ok(())
    }
}

fn text_of(parser: &mut lexopt::Parser) -> Result<String, String> {
    let value = parser.value().map_err(|error| error.to_string())?;
    Ok(value.to_string_lossy().into_owned())
}

fn parse_rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds) if rounds > 0 => Ok(rounds),
        _ => Err(format!("{text}: no number of rounds (1 or more)")),
    }
}

fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=100_000).contains(count));
    count.ok_or_else(|| format!("{text}: no number from 1 to 100000"))
}

fn parse_levels(text: &str) -> Result<Vec<f64>, String> {
    let level = |text: &str| {
        let level = text.parse::<f64>().ok().filter(|level| (0.01..=1000.0).contains(level));
        level.ok_or_else(|| format!("--levels {text}: no number from 0.01 to 1000"))
    };
    text.split(',').map(level).collect()
}

fn parse_turn(text: &str) -> Result<Duration, String> {
    let seconds = parse_time(text).filter(|seconds| (0.001..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("{text}: no time (1ms to 24h)"))
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    let seconds = parse_time(text).filter(|seconds| *seconds <= 3600.0);
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("{text}: no time (0 to 1h)"))
}

fn parse_models(text: &str) -> Result<Vec<Model>, String> {
    let model = |name: &str| {
        Model::parse(name).ok_or_else(|| format!("--mpm {name}: prefork, worker or event"))
    };
    text.split(',').map(model).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Options>, String> {
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_become_an_experiment() {
        let line = "greedy --against nginx --rounds 2 --seconds 200ms --clients 1,2 --think 0,1ms";
        let options = parsed(line).unwrap().unwrap();
        assert_eq!((options.experiment, options.rounds), (Experiment::Greedy, Some(2)));
        assert_eq!((options.turn, options.grid.clients), (Duration::from_millis(200), vec![1, 2]));
        assert_eq!(options.grid.thinks, [Think::None, Think::Fixed(0.001)]);
        assert!(parsed("--help").unwrap().is_none());
        let ramp = parsed("ramp --mpm worker,prefork --start-delay 3s").unwrap().unwrap();
        assert_eq!(ramp.models_or(&[]), [Model::Worker, Model::Prefork]);
        assert_eq!((ramp.turn.as_secs(), ramp.start_delay.as_secs()), (600, 3));
        let step = parsed("overload --step --wait 50ms --clients 7").unwrap().unwrap();
        assert_eq!((step.turn.as_secs(), step.wait.as_millis()), (15, 50));
        assert_eq!((step.one_number_of_clients(512), ramp.one_number_of_clients(390)), (7, 390));
        let kill = parsed("reload --kill --reloads 3").unwrap().unwrap();
        assert_eq!((kill.part, kill.reloads), (Part::Kill, Some(3)));
    }

    #[test]
    fn a_case_that_is_none_is_refused_with_the_names_of_those_that_are() {
        let some = parsed("auto --only burn,mixd").unwrap().unwrap();
        let told = some.check_only(&["burn", "mixed"]).unwrap_err();
        assert_eq!(told, "--only mixd: no such case; there are: burn, mixed");
        assert!(some.check_only(&["burn", "mixd"]).is_ok());
        assert!(parsed("auto").unwrap().unwrap().check_only(&[]).is_ok());
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
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
