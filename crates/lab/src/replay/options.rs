//! The command line of `evenkeel replay`. Options that bench also has mean the same. Nothing is
//! looked up or opened here.

use super::log::Format;
use super::{Complaint, usage};
use crate::bench::field;
use crate::load::Target;
use crate::words::{self, Stop, duration, number, target};
use clap::{ArgAction::Set, Args, Parser, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// The number of clients of each stream in the original replays.
const USUAL_CLIENTS: u32 = 15;
/// Enough clients that requests seldom wait for one if the log's times are used.
const USUAL_TIMED_CLIENTS: u32 = 100;
const MOST_CLIENTS: u32 = 1_000_000;
/// The most parts. Each part has a thread that reads it.
const MOST_PARTS: u64 = 1024;
const USUAL_TIMEOUT: Duration = Duration::from_secs(20);

/// The options of replay.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) url: Target,
    pub(super) logs: Vec<PathBuf>,
    /// The format; none if it is to be guessed.
    pub(super) format: Option<Format>,
    /// The number of clients of each stream.
    pub(super) clients: u32,
    pub(super) parts: u64,
    /// The number of lines of each stream.
    pub(super) lines: Option<u64>,
    /// The factor by which the log's times are sped up, if they are used.
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
    pub(super) full_handshakes: bool,
    pub(super) is_my_server: bool,
    pub(super) json: bool,
    /// The folder in which the run is saved.
    pub(super) save: Option<PathBuf>,
}

/// What the command line requests.
#[derive(Debug)]
pub(super) enum Wish {
    Run(Box<Options>),
    /// The help text.
    Help(String),
}

/// Asks a server for what access logs say was asked
#[derive(Debug, Parser)]
#[command(
    name = "replay",
    bin_name = "evenkeel replay",
    after_help = "Logs are plain, gzip or zstd files, which are read one after the other, or \
                  standard input (-). What the server answers is held against the log."
)]
struct Words {
    /// The server
    #[arg(value_name = "URL", value_parser = target)]
    url: Target,
    /// The logs
    #[arg(value_name = "LOG", default_value = "-")]
    logs: Vec<PathBuf>,
    #[command(flatten, next_help_heading = "What is read")]
    read: Read,
    #[command(flatten, next_help_heading = "How fast")]
    speed: Speed,
    #[command(flatten, next_help_heading = "How it is sent")]
    sent: Sent,
    #[command(flatten, next_help_heading = "What is shown")]
    shown: Shown,
}

#[derive(Debug, Args)]
struct Read {
    /// common, combined, vhost_combined, json, urls, or a string as LogFormat has it; found out
    /// from the first lines otherwise (auto)
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// N parts of the logs are replayed at once, each by its own clients
    #[arg(long, value_name = "N", value_parser = number::<u64>(1, MOST_PARTS))]
    split: Option<u64>,
    /// So many lines of each part (of the logs, where they are not split)
    #[arg(long, value_name = "N", value_parser = number::<u64>(1, u64::MAX))]
    lines: Option<u64>,
    /// These methods alone: GET,HEAD
    #[arg(long, value_name = "LIST", value_delimiter = ',', action = Set)]
    methods: Option<Vec<String>>,
}

#[derive(Debug, Args)]
struct Speed {
    /// As fast as answers come (none), or when the log says, the first request at once (log);
    /// requests of a whole second are spread within it
    #[arg(long, value_name = "TIMING", value_enum, hide_possible_values = true)]
    timing: Option<Timing>,
    /// X times as fast as the log
    #[arg(long, value_name = "X", value_parser = speed)]
    speed: Option<f64>,
}

#[derive(Debug, Args)]
struct Sent {
    /// Clients of each part (15; 100 with --timing log)
    #[arg(short, long, value_name = "N", value_parser = number::<u32>(1, MOST_CLIENTS))]
    clients: Option<u32>,
    /// For so long at the most (10s, 5m)
    #[arg(short = 'z', long = "duration", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Host in place of the log's, or the URL's
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// A header field of each request; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field)]
    fields: Vec<(String, String)>,
    /// Makes a connection for each request
    #[arg(long)]
    disable_keepalive: bool,
    /// How long to wait for a connection and for more of an answer (20s)
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// Asks over a Unix socket
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// Takes any certificate
    #[arg(short = 'k', long)]
    insecure: bool,
    /// Makes every TLS handshake in full, as a client does that has never been there
    #[arg(long)]
    full_handshakes: bool,
    /// Threads of clients (one for each core)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, 1024))]
    threads: Option<usize>,
    /// Needed for an address that is not loopback
    #[arg(long = "yes-this-is-my-server")]
    is_my_server: bool,
}

#[derive(Debug, Args)]
struct Shown {
    /// Writes the figures as JSON
    #[arg(long)]
    json: bool,
    /// Keeps the run in a new folder, for `evenkeel report`
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
}

/// What determines the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Timing {
    /// The answers.
    None,
    /// The times of the log.
    Log,
}

/// The declaration of the command line.
#[must_use]
pub fn command() -> clap::Command {
    words::command::<Words>()
}

/// Parses the words after `evenkeel replay`.
pub(super) fn parse(given: &[String]) -> Result<Wish, Complaint> {
    match words::parse::<Words>(given) {
        Ok(words) => words.options().map(|options| Wish::Run(Box::new(options))),
        Err(Stop::Help(text)) => Ok(Wish::Help(text)),
        Err(Stop::Wrong(text)) => Err(usage(text)),
    }
}

impl Words {
    /// Checks the options against each other.
    fn options(self) -> Result<Options, Complaint> {
        let format = match self.read.format.as_deref() {
            None | Some("auto") => None,
            Some(named) => Some(Format::new(named).map_err(usage)?),
        };
        let timed = self.speed.timing == Some(Timing::Log);
        let piped = self.logs.iter().filter(|path| path.as_os_str() == "-").count();
        let parts = self.read.split.unwrap_or(1);
        if piped > 0 && (parts > 1 || self.logs.len() > 1) {
            return Err(usage("standard input is one log, which cannot be split: name files"));
        }
        if self.speed.speed.is_some() && !timed {
            return Err(usage("--speed goes with --timing log"));
        }
        let timeless = format.as_ref().filter(|format| timed && !format.has_times());
        if let Some(format) = timeless {
            return Err(usage(format!("--timing log: {} has no times", format.name())));
        }
        let usual = if timed { USUAL_TIMED_CLIENTS } else { USUAL_CLIENTS };
        let clients = self.sent.clients.unwrap_or(usual);
        if u64::from(clients) * parts > MOST_CLIENTS.into() {
            return Err(usage(format!("{parts} streams of {clients} clients are too many")));
        }
        Ok(Options {
            url: self.url,
            logs: self.logs,
            format,
            clients,
            parts,
            lines: self.read.lines,
            speed: timed.then(|| self.speed.speed.unwrap_or(1.0)),
            time: self.sent.time,
            timeout: self.sent.timeout.unwrap_or(USUAL_TIMEOUT),
            threads: self.sent.threads,
            methods: self.read.methods.unwrap_or_default(),
            host: self.sent.host,
            fields: self.sent.fields,
            keep_alive: !self.sent.disable_keepalive,
            unix_socket: self.sent.unix_socket,
            insecure: self.sent.insecure,
            full_handshakes: self.sent.full_handshakes,
            is_my_server: self.sent.is_my_server,
            json: self.shown.json,
            save: self.shown.save,
        })
    }
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| speed.is_finite() && *speed > 0.0);
    speed.ok_or_else(|| "it takes a factor, such as 10 or 0.5".to_owned())
}
