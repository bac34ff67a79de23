//! The command line of top: words come in, what they ask for goes out, or a complaint. Nothing is
//! opened or asked here.

use super::Complaint;
use lexopt::{Arg, Parser, ValueExt};
use std::path::PathBuf;
use std::time::Duration;

/// What top is asked to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    pub(super) form: Form,
    pub(super) interval: Duration,
    /// After so many intervals it ends.
    pub(super) count: Option<u64>,
    pub(super) pid: Option<i32>,
    /// The URL of a status page.
    pub(super) status: Option<String>,
    pub(super) insecure: bool,
    pub(super) record: Option<PathBuf>,
    pub(super) screen: bool,
}

/// How intervals are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// For people.
    #[default]
    Text,
    /// An object on a line each.
    Json,
    /// A heading and a line each.
    Csv,
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wish {
    Run(Options),
    Help,
}

const USUAL_INTERVAL: Duration = Duration::from_secs(1);
/// Below this the ticks of CPU time, 10 ms, are all that one sees; above it is no top.
const LEAST_S: f64 = 0.1;
const MOST_S: f64 = 86_400.0;

/// Parses the words behind `evenkeel top`.
pub(super) fn parse(words: &[String]) -> Result<Wish, Complaint> {
    let mut options = Options {
        form: Form::Text,
        interval: USUAL_INTERVAL,
        count: None,
        pid: None,
        status: None,
        insecure: false,
        record: None,
        screen: true,
    };
    let (mut forms, mut once) = (0, false);
    let usage = |error: lexopt::Error| Complaint::usage(error.to_string());
    let mut parser = Parser::from_args(words);
    while let Some(arg) = parser.next().map_err(usage)? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Wish::Help),
            Arg::Long("json") => (forms, options.form) = (forms + 1, Form::Json),
            Arg::Long("csv") => (forms, options.form) = (forms + 1, Form::Csv),
            Arg::Long("once") => once = true,
            Arg::Long("no-tui") => options.screen = false,
            Arg::Short('k') | Arg::Long("insecure") => options.insecure = true,
            Arg::Short('i') | Arg::Long("interval") => {
                options.interval = interval(&value(&mut parser)?)?;
            }
            Arg::Short('n') | Arg::Long("count") => {
                options.count = Some(number("--count", &value(&mut parser)?)?);
            }
            Arg::Short('p') | Arg::Long("pid") => {
                options.pid = Some(number("--pid", &value(&mut parser)?)?);
            }
            Arg::Short('s') | Arg::Long("status") => options.status = Some(value(&mut parser)?),
            Arg::Long("record") => options.record = Some(value(&mut parser)?.into()),
            _ => return Err(usage(arg.unexpected())),
        }
    }
    if forms > 1 {
        return Err(Complaint::usage("--json and --csv are two forms, and one can be had"));
    }
    if once && options.count.replace(1).is_some_and(|count| count != 1) {
        return Err(Complaint::usage("--once is --count 1, and --count says otherwise"));
    }
    options.screen &= forms == 0 && !once;
    Ok(Wish::Run(options))
}

fn value(parser: &mut Parser) -> Result<String, Complaint> {
    let value = parser.value().and_then(|value| value.string());
    value.map_err(|error| Complaint::usage(error.to_string()))
}

fn number<T: std::str::FromStr + PartialOrd + From<u8>>(
    option: &str,
    text: &str,
) -> Result<T, Complaint> {
    let number = text.parse().ok().filter(|number| *number >= T::from(1));
    number.ok_or_else(|| Complaint::usage(format!("{option}: {text} is no number from 1 up")))
}

fn interval(text: &str) -> Result<Duration, Complaint> {
    let seconds = match text.strip_suffix("ms") {
        Some(milliseconds) => milliseconds.parse::<f64>().map(|ms| ms / 1000.0),
        None => text.strip_suffix('s').unwrap_or(text).parse(),
    };
    let seconds = seconds.ok().filter(|seconds| (LEAST_S..=MOST_S).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        Complaint::usage(format!("--interval: {text} is no time from 100ms to {MOST_S} s"))
    })
}

pub(super) const HELP: &str = "\
Usage: evenkeel top [OPTIONS]

What this machine does, and a web server on it or elsewhere.

  -s, --status URL     a server's status page, Evenkeel's or Apache's (mod_status); a URL
                       without a path is asked for /server-status
  -p, --pid PID        the server's first process; without it, it is found by the status page
                       where that is on this machine
  -k, --insecure       https without a check of the server's certificate
  -i, --interval TIME  the length of an interval: 2, 0.5, 500ms (1 s)
  -n, --count N        end after N intervals
      --once           one interval, as text
      --json           a JSON object on a line for each interval
      --csv            a heading, and a line for each interval
      --record DIR     save what is seen, for evenkeel report
      --no-tui         no live screen

On the live screen: q ends it, left and right choose a panel, up and down move within it.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match parse(&words) {
            Ok(Wish::Run(options)) => Ok(options),
            Ok(Wish::Help) => Err("help".into()),
            Err(complaint) => {
                assert_eq!(complaint.status, 2);
                Err(complaint.text)
            }
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
            ("--json --csv", "two forms"),
            ("--once --count 3", "--count says otherwise"),
            ("--interval 0", "100ms to 86400 s"),
            ("--interval NaN", "no time"),
            ("--interval 500m", "no time"),
            ("--pid 0", "no number from 1"),
            ("--pid", "missing argument"),
            ("--wrong", "invalid option '--wrong'"),
            ("http://a/", "unexpected argument"),
        ] {
            let told = options(line).unwrap_err();
            assert!(told.contains(part), "{line}: {told}");
        }
    }
}
