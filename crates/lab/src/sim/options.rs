//! The command line of `evenkeel sim`: a setup for each law that is compared, and the forms of
//! output.

use super::load::Load;
use super::parent::Which;
use super::setup::{Application, Directives, Mishap, Model, Setup, Wake};
use crate::load::{Think, parse_time};
use crate::words::{self, Stop, number, think};
use clap::ArgAction::{Append, Set};
use clap::{Args, Parser};
use std::path::{Path, PathBuf};

/// The bound of all counts.
const MOST: usize = 10_000_000;

/// Simulates what a pool of workers does under a load, hours in a second
#[derive(Debug, Parser)]
#[command(
    name = "sim",
    bin_name = "evenkeel sim",
    after_help = "Evenkeel's own law is the very function that runs in the server; beside it stand \
                  those of Apache as of 2002, 2.2 and 2.4.\n\n\
                  LOAD is a number of clients, or such a number over time: step:[FROM..]TO[@TIME], \
                  ramp:FROM..TO/TIME, square:LOW,HIGH,TIME_HIGH,TIME_LOW or \
                  burst:LOW,HIGH,TIME,EVERY. With open: before it, it is requests a second; with \
                  partly:N: clients a second that make N requests each, on the average.\n\n\
                  DIST is a time (400ms), 1s..3s, exp:1s, lognormal:MU,SIGMA, pareto:1s,1.5 or \
                  weibull:1s,0.4. TIMES are 20s or 20s,25s."
)]
struct Words {
    #[command(flatten, next_help_heading = "The pool")]
    pool: Pool,
    #[command(flatten, next_help_heading = "The load")]
    load: Clients,
    #[command(flatten, next_help_heading = "The machine")]
    machine: Machine,
    /// Writes the figures as JSON
    #[arg(long, help_heading = "What is shown")]
    json: bool,
    /// Writes a page with plots
    #[arg(long, value_name = "FILE", help_heading = "What is shown")]
    html: Option<PathBuf>,
}

#[derive(Debug, Default, Args)]
struct Pool {
    /// Takes the directives of an Apache configuration; without it, those of a report of 2002 hold
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The process model: prefork, worker (as of 2002) or event
    #[arg(long, value_name = "MODEL", value_parser = model)]
    mpm: Option<Model>,
    /// StartServers (1)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, MOST))]
    start: Option<usize>,
    /// ThreadsPerChild (64; 1 in prefork)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, MOST))]
    threads: Option<usize>,
    /// MinSpareThreads or MinSpareServers (64)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, MOST))]
    min_spare: Option<usize>,
    /// MaxSpareThreads or MaxSpareServers (192)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, MOST))]
    max_spare: Option<usize>,
    /// MaxRequestWorkers (1024)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, MOST))]
    workers: Option<usize>,
    /// ServerLimit (as many as MaxRequestWorkers needs)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, MOST))]
    server_limit: Option<usize>,
    /// MaxConnectionsPerChild (0: no bound)
    #[arg(long, value_name = "N", value_parser = number::<u64>(0, MOST as u64))]
    max_connections: Option<u64>,
    /// ListenBacklog (4096)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, MOST))]
    backlog: Option<usize>,
    /// Accept queues that share the port (1)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, MOST))]
    buckets: Option<usize>,
    /// The laws to compare: evenkeel,2002,2.2,2.4 (these four), fixed
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = law, action = Set)]
    law: Vec<Which>,
}

#[derive(Debug, Args)]
struct Clients {
    /// Clients or requests over time (step:390)
    #[arg(long, value_name = "LOAD", value_parser = Load::parse)]
    load: Option<Load>,
    /// How long a request waits for others, holding its worker (400ms)
    #[arg(long, value_name = "DIST", value_parser = think)]
    service: Option<Think>,
    /// CPU time of a request (500us)
    #[arg(long, value_name = "DIST", value_parser = think)]
    cpu: Option<Think>,
    /// Workers of a pool of applications behind the server, which run a script for each request
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, MOST))]
    app_workers: Option<usize>,
    /// CPU time of a script (10ms)
    #[arg(long, value_name = "DIST", value_parser = think, requires = "app_workers")]
    app_cpu: Option<Think>,
    /// How long a script waits for others, holding its worker (0)
    #[arg(long, value_name = "DIST", value_parser = think, requires = "app_workers")]
    app_wait: Option<Think>,
    /// Pauses of clients (0)
    #[arg(long, value_name = "DIST", value_parser = think)]
    think: Option<Think>,
    /// Lets clients keep their connections
    #[arg(long)]
    keep_alive: bool,
    /// This share of the answers is read so slowly (0)
    #[arg(long, value_name = "SHARE,DIST", value_parser = slow)]
    slow: Option<(f64, Think)>,
    /// How long it goes on (60s)
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    seconds: Option<f64>,
    /// The seed of all that is drawn (1)
    #[arg(long, value_name = "N", value_parser = number::<u64>(0, MOST as u64))]
    seed: Option<u64>,
}

#[derive(Debug, Args)]
struct Machine {
    /// Cores, or a part of them (2)
    #[arg(long, value_name = "N", value_parser = number::<f64>(0.01, 4096.0))]
    cores: Option<f64>,
    /// How long until a child that was forked is ready (500ms)
    #[arg(long, value_name = "TIME", value_parser = time)]
    child_start: Option<f64>,
    /// CPU time of a start (10ms)
    #[arg(long, value_name = "TIME", value_parser = time)]
    child_cpu: Option<f64>,
    /// Reloads the server at these times
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = time, action = Append)]
    reload: Vec<f64>,
    /// Kills a child at these times
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = time, action = Append)]
    kill: Vec<f64>,
    /// Has a child stand still from these times on
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = time, action = Append)]
    hang: Vec<f64>,
    /// Which child takes a connection: any, or the one that worked last (warm)
    #[arg(long, value_name = "CHILD", value_parser = wake)]
    wake: Option<Wake>,
    /// How long an accept holds its queue (0)
    #[arg(long, value_name = "TIME", value_parser = time)]
    accept_lock: Option<f64>,
    /// How much longer that is for each further core that shares the queue
    #[arg(long, value_name = "TIME", value_parser = time)]
    accept_line: Option<f64>,
    /// How much longer that is with a mutex around it
    #[arg(long, value_name = "TIME", value_parser = time)]
    accept_mutex: Option<f64>,
    /// CPU time of an accepted request for each further core that shares the queue
    #[arg(long, value_name = "TIME", value_parser = time)]
    accept_line_cpu: Option<f64>,
    /// Wakes N idle children for each connection beside its own, TIME of CPU each
    #[arg(long, value_name = "N,TIME", value_parser = herd)]
    herd: Option<(usize, f64)>,
}

/// The declaration of the command line.
#[must_use]
pub fn command() -> clap::Command {
    words::command::<Words>()
}

/// The options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Everything except the law.
    pub setup: Setup,
    /// The laws to compare.
    pub laws: Vec<Which>,
    /// Whether to print JSON.
    pub json: bool,
    /// The page to write.
    pub html: Option<PathBuf>,
}

/// Why there is nothing to simulate.
#[derive(Debug)]
pub enum Refusal {
    /// A problem with the words.
    Words(Stop),
    /// A problem with the configuration.
    Configuration(String),
}

/// Parses the words. `configured` reads the directives of a configuration file.
///
/// # Errors
///
/// What is wrong with the words or with the file.
pub fn parse(
    given: &[String],
    configured: &dyn Fn(&Path) -> Result<Directives, String>,
) -> Result<Options, Refusal> {
    let words: Words = words::parse(given).map_err(Refusal::Words)?;
    let mut setup = Setup::default();
    setup.buckets = words.pool.buckets.unwrap_or(setup.buckets).min(4096);
    setup.directives = words.pool.directives(configured).map_err(Refusal::Configuration)?;
    words.load.fill(&mut setup);
    words.machine.fill(&mut setup);
    let mut laws = words.pool.law;
    if laws.is_empty() {
        laws = vec![Which::Evenkeel, Which::Apache2002, Which::Apache22, Which::Apache24];
    }
    Ok(Options { setup, laws, json: words.json, html: words.html })
}

impl Pool {
    /// The directives: those of the file or of the report of 2002, changed by the options.
    fn directives(
        &self,
        configured: &dyn Fn(&Path) -> Result<Directives, String>,
    ) -> Result<Directives, String> {
        let mut held = match &self.config {
            Some(file) => configured(file)?,
            None => Directives::default(),
        };
        held.model = self.mpm.unwrap_or(held.model);
        let before = held.limits.threads.saturating_mul(held.limits.children);
        let limits = &mut held.limits;
        limits.threads = match held.model {
            Model::Prefork => 1,
            _ => self.threads.unwrap_or(limits.threads),
        };
        limits.min_spare = self.min_spare.unwrap_or(limits.min_spare);
        limits.max_spare = self.max_spare.unwrap_or(limits.max_spare);
        limits.children = (self.workers.unwrap_or(before) / limits.threads).max(1);
        limits.slots = match self.server_limit {
            Some(most) => most,
            None if self.config.is_some() => limits.slots,
            None => limits.children,
        };
        limits.children = limits.children.min(limits.slots);
        held.start_servers = self.start.unwrap_or(held.start_servers).min(limits.children);
        held.backlog = self.backlog.unwrap_or(held.backlog);
        if let Some(most) = self.max_connections {
            held.most_connections = Some(most).filter(|most| *most > 0);
        }
        Ok(held)
    }
}

impl Clients {
    fn fill(self, setup: &mut Setup) {
        setup.keep_alive = self.keep_alive;
        setup.slow = self.slow;
        setup.load = self.load.unwrap_or_else(|| setup.load.clone());
        setup.wait = self.service.unwrap_or(setup.wait);
        setup.cpu = self.cpu.unwrap_or(setup.cpu);
        setup.application = self.app_workers.map(|workers| Application {
            workers,
            cpu: self.app_cpu.unwrap_or(Think::Fixed(0.01)),
            wait: self.app_wait.unwrap_or(Think::None),
        });
        setup.think = self.think.unwrap_or(setup.think);
        setup.seconds = self.seconds.unwrap_or(setup.seconds).max(0.1);
        setup.seed = self.seed.unwrap_or(setup.seed);
    }
}

impl Machine {
    fn fill(self, setup: &mut Setup) {
        setup.cores = self.cores.unwrap_or(setup.cores);
        setup.start_s = self.child_start.unwrap_or(setup.start_s);
        setup.start_cpu_s = self.child_cpu.unwrap_or(setup.start_cpu_s);
        setup.wake = self.wake.unwrap_or(setup.wake);
        let accept = &mut setup.accept;
        accept.lock_s = self.accept_lock.unwrap_or(accept.lock_s);
        accept.line_s = self.accept_line.unwrap_or(accept.line_s);
        accept.line_cpu_s = self.accept_line_cpu.unwrap_or(accept.line_cpu_s);
        accept.mutex_s = self.accept_mutex.unwrap_or(accept.mutex_s);
        (accept.herd, accept.wake_s) = self.herd.unwrap_or((accept.herd, accept.wake_s));
        for (times, mishap) in
            [(self.reload, Mishap::Reload), (self.kill, Mishap::Kill), (self.hang, Mishap::Hang)]
        {
            setup.mishaps.extend(times.into_iter().map(|time| (time, mishap)));
        }
    }
}

fn model(text: &str) -> Result<Model, String> {
    Model::parse(text).ok_or_else(|| "prefork, worker or event is expected".to_owned())
}

fn law(text: &str) -> Result<Which, String> {
    Which::parse(text).ok_or_else(|| "evenkeel, 2002, 2.2, 2.4 or fixed is expected".to_owned())
}

fn wake(text: &str) -> Result<Wake, String> {
    match text {
        "any" => Ok(Wake::Any),
        "warm" => Ok(Wake::Warm),
        _ => Err("any or warm is expected".to_owned()),
    }
}

/// Parses seconds; zero is allowed.
fn time(text: &str) -> Result<f64, String> {
    let time = parse_time(text).filter(|time| time.is_finite());
    time.ok_or_else(|| "a time such as 500ms is expected".to_owned())
}

fn slow(text: &str) -> Result<(f64, Think), String> {
    let (share, pause) = text.split_once(',').ok_or("a share and a time are expected")?;
    let share = share.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    Ok((share.ok_or("a share from 0 to 1 is expected")?, think(pause)?))
}

fn herd(text: &str) -> Result<(usize, f64), String> {
    let pair = text.split_once(',');
    let pair = pair.and_then(|(count, time)| Some((count.parse().ok()?, parse_time(time)?)));
    pair.ok_or_else(|| "N,TIME is expected".to_owned())
}

/// The setup of each law.
pub fn setups(options: &Options) -> Vec<Setup> {
    options.laws.iter().map(|law| Setup { law: *law, ..options.setup.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let file = |path: &Path| match path.to_str() {
            Some("good") => Ok(Directives { start_servers: 3, ..Directives::default() }),
            _ => Err("bad.conf:3: no".to_owned()),
        };
        parse(&words, &file).map_err(|refusal| match refusal {
            Refusal::Configuration(text) | Refusal::Words(Stop::Wrong(text)) => text,
            Refusal::Words(Stop::Help(_)) => "help".to_owned(),
        })
    }

    #[test]
    fn words_make_a_pool() {
        let prefork = parsed("--mpm prefork --workers 100 --min-spare 8 --max-spare 16").unwrap();
        let held = prefork.setup.directives;
        assert_eq!((held.limits.threads, held.limits.children, held.limits.slots), (1, 100, 100));
        assert!(parsed("--html page.html").unwrap().html.is_some());
        let told =
            parsed("--kill 2s,3s --hang 5s --slow 0.1,60s --wake warm --herd 8,5us").unwrap();
        let mishaps = [(2.0, Mishap::Kill), (3.0, Mishap::Kill), (5.0, Mishap::Hang)];
        assert_eq!(told.setup.mishaps, mishaps);
        assert_eq!(told.setup.slow, Some((0.1, Think::Fixed(60.0))));
        assert_eq!((told.setup.wake, told.setup.accept.herd), (Wake::Warm, 8));
        let station = parsed("--app-workers 8 --app-wait 200ms").unwrap().setup.application;
        let (cpu, wait) = (Think::Fixed(0.01), Think::Fixed(0.2));
        assert_eq!(station, Some(Application { workers: 8, cpu, wait }));
        let more = parsed("--config good --law evenkeel,fixed --cores 0.5 --for 1m").unwrap();
        assert_eq!(more.setup.directives.start_servers, 3);
        assert_eq!((more.laws.len(), more.setup.cores, more.setup.seconds), (2, 0.5, 60.0));
    }

    #[test]
    fn each_bad_word_is_named() {
        for (line, part) in [
            ("--mpm threads", "'threads' for '--mpm <MODEL>': prefork"),
            ("--workers many", "'many' for '--workers <N>': it takes a number"),
            ("--threads 0", "a number from 1 to"),
            ("--load wave", "--load <LOAD>': wave: a load is"),
            ("--law ours", "'ours' for '--law <LIST>'"),
            ("--service fast", "fast: a pause is"),
            ("--cores 0", "'0' for '--cores <N>'"),
            ("--for ever", "a time such as"),
            ("--config bad", "bad.conf:3: no"),
            ("--what 3", "'--what'"),
            ("--kill 1s,never", "'never' for '--kill <TIMES>': a time"),
            ("--slow 2,1s", "a share from 0 to 1"),
            ("--wake all", "any or warm"),
            ("--herd 3", "N,TIME"),
            ("--app-cpu 1ms", "--app-workers <N>"),
            ("stray", "stray"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
