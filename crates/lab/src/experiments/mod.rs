//! `evenkeel lab NAME`: whole experiments. Servers that are installed are started on this machine
//! from a temporary folder, on loopback addresses, are loaded in turns, and are stopped; a report
//! in HTML and in Markdown with SVG plots goes out, and the results that it was made from.

mod greedy;
mod ground;
mod paper;
mod peers_beside;
mod syscalls;

use crate::load::{Think, parse_time};
use crate::peers;
use crate::sweep::Grid;
use ground::Ground;
use lexopt::prelude::{Long, Short, Value};
use paper::Paper;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

const HELP: &str = "\
Usage: evenkeel lab EXPERIMENT [options]

Experiments on this machine, with whichever of the servers are installed:
  static     files of 1 KiB to 10 MiB, 304, a connection for each request: peers side by side
  greedy     clients without a pause and with one, over the number of clients, and over minutes
  syscalls   system calls a request by name, kept connections and one request a connection (strace)

  --against NAMES  beside Evenkeel: apache2, apache2-worker, apache2-prefork, nginx, nginx-ofc, h2o,
                   lighttpd, haproxy, caddy (those that are installed; default: all of them), and
                   evenkeel-worker, evenkeel-prefork
  --rounds N       how often each has its turn (5; greedy 3); figures are medians
  --seconds TIME   how long a turn lasts (3s)
  --clients LIST   greedy: numbers of clients, 1,4,16 or 1..256 (1,4,16,64,256)
  --think LIST     greedy: pauses (0,1us,3us,1ms)
  --long TIME      greedy: how long the two long runs last (300s)
  -o, --out DIR    a new folder for the report and its results (lab-EXPERIMENT)
  -h, --help       this text

The servers run on one half of the cores, the clients on the other. ^C stops the servers and ends
without a report.
";

/// What is asked for.
#[derive(Debug)]
struct Options {
    experiment: Experiment,
    against: Option<String>,
    rounds: Option<usize>,
    turn: Duration,
    grid: Grid,
    long: Duration,
    out: Option<PathBuf>,
    words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Experiment {
    Static,
    Greedy,
    Syscalls,
}

impl Experiment {
    const ALL: [(&'static str, Self); 3] =
        [("static", Self::Static), ("greedy", Self::Greedy), ("syscalls", Self::Syscalls)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, other)| *other == self).map_or("", |(name, _)| *name)
    }
}

/// Runs an experiment and gives its exit status: 0, 1 where it could not be done, 2 for words that
/// make no sense, 130 where it was interrupted.
#[must_use]
pub fn run(words: &[String]) -> i32 {
    let options = match parse(words) {
        Ok(Some(options)) => options,
        Ok(None) => {
            let _gone = io::stdout().lock().write_all(HELP.as_bytes());
            return 0;
        }
        Err(text) => {
            complain(&format!("{text}\nevenkeel lab --help shows its options"));
            return 2;
        }
    };
    match perform(&options) {
        Ok(out) => {
            let _gone = writeln!(io::stdout().lock(), "{}", out.join("report.html").display());
            0
        }
        Err(Fault::Interrupted) => {
            complain("interrupted: the servers are stopped, nothing is reported");
            130
        }
        Err(Fault::Told(text)) => {
            complain(&text);
            1
        }
    }
}

fn complain(text: &str) {
    let _gone = writeln!(io::stderr().lock(), "evenkeel lab: {text}");
}

/// Why an experiment has no report.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    Interrupted,
    Told(String),
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::Told(text)
    }
}

fn parse(words: &[String]) -> Result<Option<Options>, String> {
    let mut parser = lexopt::Parser::from_args(words);
    let told = |error: lexopt::Error| error.to_string();
    let mut experiment = None;
    let mut options = Options {
        experiment: Experiment::Static,
        against: None,
        rounds: None,
        turn: Duration::from_secs(3),
        grid: Grid::default(),
        long: Duration::from_secs(300),
        out: None,
        words: words.to_vec(),
    };
    options.grid.thinks = ["0", "1us", "3us", "1ms"].into_iter().flat_map(Think::parse).collect();
    while let Some(word) = parser.next().map_err(told)? {
        match word {
            Short('h') | Long("help") => return Ok(None),
            Long("against") => options.against = Some(text_of(&mut parser)?),
            Long("rounds") => options.rounds = Some(parse_rounds(&text_of(&mut parser)?)?),
            Long("seconds") => options.turn = parse_turn(&text_of(&mut parser)?)?,
            Long("long") => options.long = parse_turn(&text_of(&mut parser)?)?,
            Long("clients") => options.grid.set(&format!("c={}", text_of(&mut parser)?))?,
            Long("think") => options.grid.set(&format!("think={}", text_of(&mut parser)?))?,
            Short('o') | Long("out") => options.out = Some(text_of(&mut parser)?.into()),
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
    Ok(Some(options))
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

fn perform(options: &Options) -> Result<PathBuf, Fault> {
    let name = options.experiment.name();
    let out = options.out.clone().unwrap_or_else(|| PathBuf::from(format!("lab-{name}")));
    let told = |error: io::Error| format!("{}: {error}", out.display());
    if out.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!("{}: is not empty; name a new folder", out.display()).into());
    }
    let names = options.against.clone().unwrap_or_else(peers::Peer::others);
    let (mut here, mut missing) = peers::installed(&format!("evenkeel,{names}"))?;
    if missing.contains(&peers::Peer::Evenkeel.name()) {
        return Err("evenkeel: the program is not beside this one".to_owned().into());
    }
    here.dedup();
    missing.sort_unstable();
    std::fs::create_dir_all(&out).map_err(told)?;
    let mut ground = Ground::prepare(here, missing, &out, options)?;
    let paper: Paper = match options.experiment {
        Experiment::Static => peers_beside::run(&mut ground, options)?,
        Experiment::Greedy => greedy::run(&mut ground, options)?,
        Experiment::Syscalls => syscalls::run(&mut ground, options)?,
    };
    paper.write(&out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn words_become_an_experiment() {
        let line = "greedy --against nginx --rounds 2 --seconds 200ms --clients 1,2 --think 0,1ms";
        let options = parse(&words(line)).unwrap().unwrap();
        assert_eq!((options.experiment, options.rounds), (Experiment::Greedy, Some(2)));
        assert_eq!((options.turn, options.grid.clients), (Duration::from_millis(200), vec![1, 2]));
        assert_eq!(options.grid.thinks, [Think::None, Think::Fixed(0.001)]);
        assert!(parse(&words("--help")).unwrap().is_none());
    }

    #[test]
    fn words_that_make_no_sense_are_told() {
        for line in
            ["ramp-up", "static --rounds 0", "static --seconds 0", "static more", "--rounds 1"]
        {
            assert!(parse(&words(line)).is_err(), "{line}");
        }
        assert_eq!(run(&words("nothing")), 2);
        assert_eq!(run(&words("static --against iis")), 1);
    }

    #[test]
    fn a_folder_with_something_in_it_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        let line = format!("static -o {}", folder.path().display());
        let fault = perform(&parse(&words(&line)).unwrap().unwrap()).unwrap_err();
        assert!(matches!(fault, Fault::Told(text) if text.contains("is not empty")));
    }
}
