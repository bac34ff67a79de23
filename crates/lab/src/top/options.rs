//! The command line of `evenkeel top`. Nothing is opened or requested here.

use crate::words::{self, Stop, number};
use clap::Parser;
use std::path::PathBuf;
use std::time::Duration;

/// The options of top.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    pub(super) form: Form,
    pub(super) interval: Duration,
    /// The number of intervals after which it ends.
    pub(super) count: Option<u64>,
    pub(super) pid: Option<i32>,
    /// The URL of a status page.
    pub(super) status: Option<String>,
    pub(super) insecure: bool,
    pub(super) record: Option<PathBuf>,
    pub(super) screen: bool,
}

/// The form in which intervals are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// Text for people.
    #[default]
    Text,
    /// An object on a line for each interval.
    Json,
    /// A heading, and a line for each interval.
    Csv,
}

/// Shows what this machine does, and a web server on it or elsewhere
#[derive(Debug, Parser)]
#[command(
    name = "top",
    bin_name = "evenkeel top",
    after_help = "On the live screen: q ends it, left and right choose a panel, up and down move \
                  within it."
)]
struct Words {
    /// A server's status page, Evenkeel's or Apache's (mod_status); a URL without a path is asked
    /// for /server-status
    #[arg(short, long, value_name = "URL")]
    status: Option<String>,
    /// The server's first process; without it, it is found by the status page where that is on this
    /// machine
    #[arg(short, long, value_name = "PID", value_parser = number::<i32>(1, i32::MAX))]
    pid: Option<i32>,
    /// Asks https without a check of the server's certificate
    #[arg(short = 'k', long)]
    insecure: bool,
    /// The length of an interval: 2, 0.5, 500ms (1 s)
    #[arg(short, long, value_name = "TIME", value_parser = interval)]
    interval: Option<Duration>,
    /// Ends after N intervals
    #[arg(short = 'n', long, value_name = "N", value_parser = number::<u64>(1, u64::MAX))]
    count: Option<u64>,
    /// Shows one interval, as text
    #[arg(long)]
    once: bool,
    /// Writes a JSON object on a line for each interval
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Writes a heading, and a line for each interval
    #[arg(long)]
    csv: bool,
    /// Saves what is seen, for evenkeel report
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Shows no live screen
    #[arg(long)]
    no_tui: bool,
}

/// The declaration of the command line.
#[must_use]
pub fn command() -> clap::Command {
    words::command::<Words>()
}

const USUAL_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest interval. Below it, the ticks of CPU time, 10 ms, would dominate.
const LEAST_S: f64 = 0.1;
const MOST_S: f64 = 86_400.0;

/// Parses the words after `evenkeel top`.
pub(super) fn parse(given: &[String]) -> Result<Options, Stop> {
    let words: Words = words::parse(given)?;
    let form = match (words.json, words.csv) {
        (true, _) => Form::Json,
        (_, true) => Form::Csv,
        _ => Form::Text,
    };
    if words.once && words.count.is_some_and(|count| count != 1) {
        let text = "--once is --count 1, and --count says otherwise";
        return Err(Stop::Wrong(text.to_owned()));
    }
    Ok(Options {
        form,
        interval: words.interval.unwrap_or(USUAL_INTERVAL),
        count: if words.once { Some(1) } else { words.count },
        pid: words.pid,
        status: words.status,
        insecure: words.insecure,
        record: words.record,
        screen: form == Form::Text && !words.once && !words.no_tui,
    })
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = match text.strip_suffix("ms") {
        Some(milliseconds) => milliseconds.parse::<f64>().map(|ms| ms / 1000.0),
        None => text.strip_suffix('s').unwrap_or(text).parse(),
    };
    let seconds = seconds.ok().filter(|seconds| (LEAST_S..=MOST_S).contains(seconds));
    let seconds = seconds.map(Duration::from_secs_f64);
    seconds.ok_or_else(|| format!("it takes a time from 100ms to {MOST_S} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match parse(&words) {
            Ok(options) => Ok(options),
            Err(Stop::Help(_)) => Err("help".into()),
            Err(Stop::Wrong(text)) => Err(text),
        }
    }

    #[test]
    fn options_are_read() {
        let all = options("-s http://a/ --pid=7 -i 500ms -n3 --csv --record d").unwrap();
        assert_eq!((all.pid, all.count, all.form), (Some(7), Some(3), Form::Csv));
        assert_eq!((all.interval, all.screen), (Duration::from_millis(500), false));
        assert_eq!(all.status.as_deref(), Some("http://a/"));
        let usual = options("").unwrap();
        assert!(usual.screen && usual.count.is_none() && usual.interval == USUAL_INTERVAL);
        assert_eq!(options("--once").unwrap().count, Some(1));
        assert_eq!(options("-i 2s").unwrap().interval, Duration::from_secs(2));
        assert_eq!(options("-h").unwrap_err(), "help");
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (line, part) in [
            ("--json --csv", "'--json' cannot be used with '--csv'"),
            ("--once --count 3", "--count says otherwise"),
            ("--interval 0", "100ms to 86400 s"),
            ("--interval NaN", "invalid value 'NaN'"),
            ("--interval 500m", "invalid value '500m'"),
            ("--pid 0", "a number from 1"),
            ("--pid", "a value is required for '--pid <PID>'"),
            ("--wrong", "unexpected argument '--wrong'"),
            ("http://a/", "unexpected argument 'http://a/'"),
        ] {
            let told = options(line).unwrap_err();
            assert!(told.contains(part), "{line}: {told}");
        }
    }
}
