//! The words of `evenkeel lab`: an experiment with its options, or what is wrong with them.

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

  --against NAMES  beside Evenkeel: apache2, apache2-worker, apache2-prefork, nginx, nginx-ofc, h2o,
                   lighttpd, haproxy, caddy (those that are installed; default: all that make
                   sense), and evenkeel-worker, evenkeel-prefork
  --mpm LIST       process models: worker, prefork, event (ramp: worker)
  --rounds N       how often each has its turn (static, syscalls 5; greedy 3); figures are medians
  --seconds TIME   how long a turn lasts (3s; ramp 600s)
  --clients LIST   greedy: numbers of clients, 1,4,16 or 1..256 (1,4,16,64,256); ramp: one (390)
  --think LIST     greedy: pauses (0,1us,3us,1ms)
  --long TIME      greedy: how long the two long runs last (300s)
  --start-delay TIME  ramp: how long a child of Evenkeel takes to start (LabChildStartDelay; 0)
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
}

impl Experiment {
    /// All, with their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("static", Self::Static),
        ("greedy", Self::Greedy),
        ("syscalls", Self::Syscalls),
        ("ramp", Self::Ramp),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, other)| *other == self).map_or("", |(name, _)| *name)
    }

    /// How long a turn of it lasts if nothing was said.
    fn turn(self) -> Duration {
        Duration::from_secs(match self {
            Self::Static | Self::Greedy | Self::Syscalls => 3,
            Self::Ramp => 600,
        })
    }
}

impl Options {
    /// The process models that were asked for, or these.
    pub fn models_or(&self, usual: &[Model]) -> Vec<Model> {
        self.models.clone().unwrap_or_else(|| usual.to_vec())
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
    options.turn = turn.unwrap_or_else(|| options.experiment.turn());
    Ok(Some(options))
}

impl Options {
    /// Takes the option of this name, and its value where it has one.
    fn take(&mut self, name: &str, parser: &mut lexopt::Parser) -> Result<(), String> {
        let mut value = || text_of(parser);
        match name {
            "against" => self.against = Some(value()?),
            "mpm" => self.models = Some(parse_models(&value()?)?),
            "rounds" => self.rounds = Some(parse_rounds(&value()?)?),
            "long" => self.long = parse_turn(&value()?)?,
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
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
