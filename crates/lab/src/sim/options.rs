//! The command line of `evenkeel sim`: words come in, one setup for each law that is compared and
//! what is to be shown go out.

use super::load::Load;
use super::parent::Which;
use super::setup::{Directives, Mishap, Model, Setup, Wake};
use crate::load::{Think, parse_time};
use lexopt::prelude::*;
use std::path::PathBuf;

/// What `--help` shows.
pub const HELP: &str = "\
Usage: evenkeel sim [OPTIONS]

What a pool of workers does under a load, hours in a second: Evenkeel's own law, the very function
that runs in the server, beside those of Apache as of 2002, 2.2 and 2.4.

The pool
  --config FILE        the directives of an Apache configuration; else, one by one (those of a
                       report of 2002 where they are left out):
  --mpm MODEL          prefork, worker (as of then) or event
  --start N            StartServers (1)
  --threads N          ThreadsPerChild (64; 1 in prefork)
  --min-spare N        MinSpareThreads or MinSpareServers (64)
  --max-spare N        MaxSpareThreads or MaxSpareServers (192)
  --workers N          MaxRequestWorkers (1024)
  --server-limit N     ServerLimit (as many as MaxRequestWorkers needs)
  --max-connections N  MaxConnectionsPerChild (0: no bound)
  --backlog N          ListenBacklog (4096)
  --buckets N          accept queues that share the port (1)
  --law LIST           whose: evenkeel,2002,2.2,2.4 (all of these), fixed

The load
  --load LOAD          390 clients, or over time: step:[FROM..]TO[@TIME], ramp:FROM..TO/TIME,
                       square:LOW,HIGH,TIME_HIGH,TIME_LOW, burst:LOW,HIGH,TIME,EVERY; the same
                       with open: before it are requests a second, with partly:N: clients a second
                       that make N requests each, on the average (step:390)
  --service DIST       how long a request waits for others, holding its worker (400ms)
  --cpu DIST           its CPU time (500us)
  --think DIST         pauses of clients (0)
  --keep-alive         clients keep their connections
  --slow SHARE,DIST    this share of the answers is read so slowly (0)
  --for TIME           how long (60s)
  --seed N             of all that is drawn (1)

The machine
  --cores N            cores, or a part of them (2)
  --child-start TIME   until a child that was forked is ready (500ms)
  --child-cpu TIME     CPU time of a start (10ms)
  --reload, --kill, --hang TIMES  when the server is reloaded, a child killed, a child stands still;
                       20s or 20s,25s
  --wake WHO           who takes a connection: any child, or the one that worked last (warm)
  --accept-lock TIME   how long an accept holds its queue (0); with
  --accept-line TIME   more for each further core that shares the queue, and
  --accept-mutex TIME  more for a mutex around it
  --accept-line-cpu TIME  CPU time of an accepted request for each further core that shares it
  --herd N,TIME        N idle children wake for each connection beside its own, TIME of CPU each

What is shown
  --json               figures as JSON
  --html FILE          a page with plots

DIST is a time (400ms), 1s..3s, exp:1s, lognormal:MU,SIGMA, pareto:1s,1.5 or weibull:1s,0.4.
";

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// All but the law.
    pub setup: Setup,
    /// The laws to compare.
    pub laws: Vec<Which>,
    /// Whether JSON is wanted.
    pub json: bool,
    /// The page to write.
    pub html: Option<PathBuf>,
    /// Whether help is wanted.
    pub help: bool,
}

/// The words on the pool's size, as far as they were said.
#[derive(Clone, Debug, Default)]
struct Sizes {
    config: Option<PathBuf>,
    model: Option<Model>,
    start: Option<usize>,
    threads: Option<usize>,
    min_spare: Option<usize>,
    max_spare: Option<usize>,
    workers: Option<usize>,
    server_limit: Option<usize>,
    most_connections: Option<u64>,
    backlog: Option<usize>,
}

/// Parses the words. `configured` reads the directives of a configuration file.
///
/// # Errors
/// What is wrong with them, or with the file.
pub fn parse(
    words: &[String],
    configured: &dyn Fn(&std::path::Path) -> Result<Directives, String>,
) -> Result<Options, String> {
    let mut options = Options {
        setup: Setup::default(),
        laws: vec![Which::Evenkeel, Which::Apache2002, Which::Apache22, Which::Apache24],
        json: false,
        html: None,
        help: false,
    };
    let mut sizes = Sizes::default();
    let mut parser = lexopt::Parser::from_args(words);
    let told = |error: lexopt::Error| error.to_string();
    while let Some(word) = parser.next().map_err(told)? {
        let Long(name) = word else {
            if matches!(word, Short('h')) {
                options.help = true;
                continue;
            }
            return Err(word.unexpected().to_string());
        };
        let name = name.to_owned();
        match name.as_str() {
            "help" => options.help = true,
            "json" => options.json = true,
            "keep-alive" => options.setup.keep_alive = true,
            _ => {
                let value = parser.value().map_err(told)?.to_string_lossy().into_owned();
                take(&name, &value, &mut options, &mut sizes)?;
            }
        }
    }
    options.setup.directives = sizes.directives(configured)?;
    Ok(options)
}

fn take(name: &str, value: &str, options: &mut Options, sizes: &mut Sizes) -> Result<(), String> {
    let setup = &mut options.setup;
    let count = || {
        let number = value.parse::<usize>().ok().filter(|number| *number <= 10_000_000);
        number.ok_or_else(|| format!("--{name} {value}: a number is expected"))
    };
    let some = || match count()? {
        0 => Err(format!("--{name} {value}: at least 1 is expected")),
        number => Ok(number),
    };
    let time = || {
        let time = parse_time(value).filter(|time| time.is_finite());
        time.ok_or_else(|| format!("--{name} {value}: a time such as 500ms is expected"))
    };
    let spread = || Think::parse(value).map_err(|error| format!("--{name} {error}"));
    match name {
        "config" => sizes.config = Some(value.into()),
        "mpm" => {
            let model = Model::parse(value);
            sizes.model =
                Some(model.ok_or_else(|| {
                    format!("--mpm {value}: prefork, worker or event is expected")
                })?);
        }
        "start" => sizes.start = Some(some()?),
        "threads" => sizes.threads = Some(some()?),
        "min-spare" => sizes.min_spare = Some(some()?),
        "max-spare" => sizes.max_spare = Some(some()?),
        "workers" => sizes.workers = Some(some()?),
        "server-limit" => sizes.server_limit = Some(some()?),
        "max-connections" => sizes.most_connections = Some(count()? as u64),
        "backlog" => sizes.backlog = Some(some()?),
        "html" => options.html = Some(value.into()),
        "buckets" => setup.buckets = some()?.min(4096),
        "law" => {
            let law = |name: &str| {
                Which::parse(name)
                    .ok_or_else(|| format!("--law {name}: evenkeel, 2002, 2.2, 2.4 or fixed"))
            };
            options.laws = value.split(',').map(law).collect::<Result<_, _>>()?;
        }
        "load" => setup.load = Load::parse(value).map_err(|error| format!("--load {error}"))?,
        "service" => setup.wait = spread()?,
        "cpu" => setup.cpu = spread()?,
        "think" => setup.think = spread()?,
        "for" => setup.seconds = time()?.max(0.1),
        "seed" => setup.seed = count()? as u64,
        "cores" => {
            let cores = value.parse::<f64>().ok().filter(|cores| (0.01..=4096.0).contains(cores));
            setup.cores = cores.ok_or_else(|| format!("--cores {value}: 0.01 to 4096"))?;
        }
        "child-start" => setup.start_s = time()?,
        "child-cpu" => setup.start_cpu_s = time()?,
        "accept-lock" => setup.accept.lock_s = time()?,
        "accept-line" => setup.accept.line_s = time()?,
        "accept-line-cpu" => setup.accept.line_cpu_s = time()?,
        "accept-mutex" => setup.accept.mutex_s = time()?,
        _ => take_incident(name, value, setup)?,
    }
    Ok(())
}

/// What befalls the server and its clients.
fn take_incident(name: &str, value: &str, setup: &mut Setup) -> Result<(), String> {
    let bad = |what: &str| format!("--{name} {value}: {what} is expected");
    let mishap = match name {
        "reload" => Mishap::Reload,
        "kill" => Mishap::Kill,
        "hang" => Mishap::Hang,
        "wake" => {
            setup.wake = match value {
                "any" => Wake::Any,
                "warm" => Wake::Warm,
                _ => return Err(bad("any or warm")),
            };
            return Ok(());
        }
        "slow" => {
            let pair = value.split_once(',').ok_or_else(|| bad("a share and a time"))?;
            let share = pair.0.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
            let time = Think::parse(pair.1).map_err(|error| format!("--{name} {error}"))?;
            setup.slow = Some((share.ok_or_else(|| bad("a share from 0 to 1"))?, time));
            return Ok(());
        }
        "herd" => {
            let pair = value
                .split_once(',')
                .and_then(|(count, time)| Some((count.parse().ok()?, parse_time(time)?)));
            (setup.accept.herd, setup.accept.wake_s) = pair.ok_or_else(|| bad("N,TIME"))?;
            return Ok(());
        }
        _ => return Err(format!("invalid option '--{name}'")),
    };
    for time in value.split(',') {
        setup.mishaps.push((parse_time(time).ok_or_else(|| bad("times such as 20s,25s"))?, mishap));
    }
    Ok(())
}

impl Sizes {
    /// The directives: those of the file or of 2002, and over them what was said.
    fn directives(
        &self,
        configured: &dyn Fn(&std::path::Path) -> Result<Directives, String>,
    ) -> Result<Directives, String> {
        let mut held = match &self.config {
            Some(file) => configured(file)?,
            None => Directives::default(),
        };
        held.model = self.model.unwrap_or(held.model);
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
        if let Some(most) = self.most_connections {
            held.most_connections = Some(most).filter(|most| *most > 0);
        }
        Ok(held)
    }
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
        let file = |path: &std::path::Path| match path.to_str() {
            Some("good") => Ok(Directives { start_servers: 3, ..Directives::default() }),
            _ => Err("bad.conf:3: no".to_owned()),
        };
        parse(&words, &file)
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
        let more = parsed("--config good --law evenkeel,fixed --cores 0.5 --for 1m").unwrap();
        assert_eq!(more.setup.directives.start_servers, 3);
        assert_eq!((more.laws.len(), more.setup.cores, more.setup.seconds), (2, 0.5, 60.0));
    }

    #[test]
    fn each_bad_word_is_named() {
        for (line, part) in [
            ("--mpm threads", "--mpm threads: prefork"),
            ("--workers many", "--workers many: a number"),
            ("--threads 0", "at least 1"),
            ("--load wave", "--load wave: a load is"),
            ("--law ours", "--law ours"),
            ("--service fast", "--service fast: a pause is"),
            ("--cores 0", "--cores 0"),
            ("--for ever", "a time such as"),
            ("--config bad", "bad.conf:3: no"),
            ("--what 3", "invalid option '--what'"),
            ("--kill never", "times such as 20s,25s"),
            ("--slow 2,1s", "a share from 0 to 1"),
            ("--wake all", "any or warm"),
            ("--herd 3", "N,TIME"),
            ("stray", "stray"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
