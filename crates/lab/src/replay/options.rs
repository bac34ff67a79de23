//! The command line of replay: words come in, what they ask for goes out, or a complaint. Names
//! that bench has too mean the same; nothing is looked up or opened here.

use super::log::Format;
use super::{Complaint, usage};
use crate::load::{Target, parse_time};
use crate::request::parse_field;
use lexopt::{Arg, Parser, ValueExt as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// As many as each of the streams of old had.
const USUAL_CLIENTS: u32 = 15;
/// Enough that requests seldom wait for a client where the log's times count.
const USUAL_TIMED_CLIENTS: u32 = 100;
const MOST_CLIENTS: u32 = 1_000_000;
/// Each part has a thread that reads it.
const MOST_PARTS: u64 = 1024;
const USUAL_TIMEOUT: Duration = Duration::from_secs(20);

/// What replay is asked to do.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) url: Target,
    pub(super) logs: Vec<PathBuf>,
    /// The format; found out where it is none.
    pub(super) format: Option<Format>,
    /// Clients of each stream.
    pub(super) clients: u32,
    pub(super) parts: u64,
    /// Lines of each stream.
    pub(super) lines: Option<u64>,
    /// How many times as fast the log's times are kept, where they are.
    pub(super) speed: Option<f64>,
    pub(super) time: Option<Duration>,
    pub(super) timeout: Duration,
    pub(super) threads: Option<usize>,
    pub(super) methods: Vec<String>,
    pub(super) host: Option<String>,
    pub(super) fields: Vec<(String, String)>,
    pub(super) keep_alive: bool,
    pub(super) unix_socket: Option<PathBuf>,
    pub(super) insecure: bool,
    pub(super) is_my_server: bool,
    pub(super) json: bool,
    /// The folder that the run is saved in.
    pub(super) save: Option<PathBuf>,
}

/// What the command line asks for.
#[derive(Debug)]
pub(super) enum Wish {
    Run(Box<Options>),
    Help,
}

/// The options as they are read, before they are held against each other.
#[derive(Default)]
struct Reader {
    words: Vec<String>,
    format: Option<Format>,
    clients: Option<u32>,
    parts: Option<u64>,
    lines: Option<u64>,
    timed: bool,
    speed: Option<f64>,
    time: Option<Duration>,
    timeout: Option<Duration>,
    threads: Option<usize>,
    methods: Vec<String>,
    host: Option<String>,
    fields: Vec<(String, String)>,
    once: bool,
    unix_socket: Option<PathBuf>,
    insecure: bool,
    is_my_server: bool,
    json: bool,
    save: Option<PathBuf>,
}

/// Parses the words behind `evenkeel replay`.
pub(super) fn parse(words: &[String]) -> Result<Wish, Complaint> {
    let mut reader = Reader::default();
    let mut parser = Parser::from_args(words);
    while let Some(arg) = parser.next().map_err(|error| usage(error.to_string()))? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Wish::Help),
            Arg::Value(word) => reader.words.push(text(word)?),
            Arg::Short(letter) => reader.take(&letter.to_string(), &mut parser)?,
            Arg::Long(name) => {
                let name = name.to_owned();
                reader.take(&name, &mut parser)?;
            }
        }
    }
    reader.finish().map(|options| Wish::Run(Box::new(options)))
}

impl Reader {
    /// Takes an option by its name, and its value from the parser where it has one.
    fn take(&mut self, name: &str, parser: &mut Parser) -> Result<(), Complaint> {
        let mut value = || text(parser.value().map_err(|error| usage(error.to_string()))?);
        match name {
            "format" => {
                let named = value()?;
                self.format = match named.as_str() {
                    "auto" => None,
                    named => Some(Format::new(named).map_err(usage)?),
                };
            }
            "c" | "clients" => self.clients = Some(number(name, &value()?, 1, MOST_CLIENTS)?),
            "split" => self.parts = Some(number(name, &value()?, 1, MOST_PARTS)?),
            "lines" => self.lines = Some(number(name, &value()?, 1, u64::MAX)?),
            "timing" => match value()?.as_str() {
                "log" => self.timed = true,
                "none" => self.timed = false,
                other => return Err(usage(format!("--timing is log or none, not {other}"))),
            },
            "speed" => {
                let typed = value()?;
                let speed = typed.parse::<f64>().ok();
                let speed = speed.filter(|speed| speed.is_finite() && *speed > 0.0);
                let bad = || usage(format!("--speed takes a factor (10, 0.5), not {typed}"));
                self.speed = Some(speed.ok_or_else(bad)?);
            }
            "z" | "duration" => self.time = Some(duration(name, &value()?)?),
            "t" | "timeout" => self.timeout = Some(duration(name, &value()?)?),
            "threads" => self.threads = Some(number(name, &value()?, 1, 1024)?),
            "methods" => self.methods = value()?.split(',').map(str::to_owned).collect(),
            "host" => self.host = Some(value()?),
            "H" | "header" => {
                let typed = value()?;
                let (name, value) = parse_field(&typed).map_err(usage)?;
                self.fields.push((name.to_owned(), value.to_owned()));
            }
            "disable-keepalive" => self.once = true,
            "unix-socket" => self.unix_socket = Some(value()?.into()),
            "insecure" | "k" => self.insecure = true,
            "yes-this-is-my-server" => self.is_my_server = true,
            "json" => self.json = true,
            "save" => self.save = Some(value()?.into()),
            name => {
                let dashes = if name.chars().count() == 1 { "-" } else { "--" };
                return Err(usage(format!("{dashes}{name}: no such option")));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Options, Complaint> {
        let (url, logs) =
            self.words.split_first().ok_or_else(|| usage("a URL and logs are missing"))?;
        let url = Target::parse(url).map_err(usage)?;
        let mut logs: Vec<PathBuf> = logs.iter().map(PathBuf::from).collect();
        if logs.is_empty() {
            logs.push("-".into());
        }
        let piped = logs.iter().filter(|path| path.as_os_str() == "-").count();
        let parts = self.parts.unwrap_or(1);
        if piped > 0 && (parts > 1 || logs.len() > 1) {
            return Err(usage("standard input is one log, which cannot be split: name files"));
        }
        if self.speed.is_some() && !self.timed {
            return Err(usage("--speed goes with --timing log"));
        }
        let timeless = self.format.as_ref().filter(|format| self.timed && !format.has_times());
        if let Some(format) = timeless {
            return Err(usage(format!("--timing log: {} has no times", format.name())));
        }
        let usual = if self.timed { USUAL_TIMED_CLIENTS } else { USUAL_CLIENTS };
        let clients = self.clients.unwrap_or(usual);
        if u64::from(clients) * parts > MOST_CLIENTS.into() {
            return Err(usage(format!("{parts} streams of {clients} clients are too many")));
        }
        Ok(Options {
            url,
            logs,
            format: self.format,
            clients,
            parts,
            lines: self.lines,
            speed: self.timed.then(|| self.speed.unwrap_or(1.0)),
            time: self.time,
            timeout: self.timeout.unwrap_or(USUAL_TIMEOUT),
            threads: self.threads,
            methods: self.methods,
            host: self.host,
            fields: self.fields,
            keep_alive: !self.once,
            unix_socket: self.unix_socket,
            insecure: self.insecure,
            is_my_server: self.is_my_server,
            json: self.json,
            save: self.save,
        })
    }
}

fn text(word: std::ffi::OsString) -> Result<String, Complaint> {
    word.string().map_err(|error| usage(error.to_string()))
}

fn number<N>(name: &str, text: &str, least: N, most: N) -> Result<N, Complaint>
where
    N: FromStr + PartialOrd + Copy + std::fmt::Display,
{
    let found = text.parse::<N>().ok().filter(|found| *found >= least && *found <= most);
    found.ok_or_else(|| usage(format!("{name}: a number from {least} to {most}, not {text}")))
}

fn duration(name: &str, text: &str) -> Result<Duration, Complaint> {
    let found = parse_time(text).filter(|seconds| *seconds > 0.0);
    // A year is longer than any run, and what a float holds may be too long for the type.
    let found = found.map(|seconds| Duration::from_secs_f64(seconds.min(31_536_000.0)));
    found.ok_or_else(|| usage(format!("{name}: a time (500ms, 10s, 5m), not {text}")))
}

/// What `--help` shows.
pub(super) const HELP: &str = "\
Usage: evenkeel replay [OPTIONS] URL [LOG...]

Asks a server for what access logs say was asked: plain, gzip or zstd files, one after
the other, or standard input (-). What the server answers is held against the log.

What is read
  --format FORMAT      common, combined, vhost_combined, json, urls, or a string as
                       LogFormat has it; found out from the first lines otherwise
  --split N            N parts of the logs are replayed at once, each by its own clients
  --lines N            so many lines of each part (of the logs, where they are not split)
  --methods GET,HEAD   only these

How fast: as fast as answers come, or
  --timing log         when the log says, the first request at once; requests of a whole
                       second are spread within it
  --speed X            X times as fast

How it is sent
  -c N                 clients of each part (15; 100 with --timing log)
  -z TIME              for so long at the most (10s, 5m)
  --host NAME          Host in place of the log's, or the URL's
  -H 'NAME: VALUE'     a header field of each request; may be repeated
  --disable-keepalive  a connection for each request
  -t TIME              how long to wait for a connection and for more of an answer (20s)
  --unix-socket PATH   to a Unix socket
  --insecure           any certificate will do
  --threads N          threads of clients (one for each core)

What is shown
  --json               figures as JSON
  --save DIR           keep the run in a new folder, for `evenkeel report`

  --yes-this-is-my-server   needed for an address that is not loopback
";
