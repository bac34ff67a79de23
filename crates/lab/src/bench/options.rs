//! The command line of `evenkeel bench`. Options that hey and oha share have their names. Nothing
//! is looked up here, and only files with bodies are opened.

use super::stretches::{Shape, parse_ramp, parse_steps};
use super::{Complaint, usage};
use crate::load::{Pace, Target, Think};
use crate::request::parse_field;
use crate::sweep::Grid;
use crate::words::{self, Stop, duration, number, target, think};
use bytes::Bytes;
use clap::{Args, Parser};
use std::path::PathBuf;
use std::time::Duration;

/// The number of requests without options, as in hey and oha.
const USUAL_REQUESTS: u64 = 200;
const USUAL_CLIENTS: u32 = 50;
/// No pair of addresses can have more sockets than this.
const MOST_CLIENTS: u32 = 1_000_000;
/// The length of each run of a sweep.
const USUAL_PAIR: Duration = Duration::from_secs(5);
/// The time-out of hey.
const USUAL_TIMEOUT: Duration = Duration::from_secs(20);

/// The options of bench.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) url: Target,
    pub(super) requests: Option<u64>,
    pub(super) time: Option<Duration>,
    pub(super) clients: u32,
    pub(super) shape: Option<Shape>,
    pub(super) pace: Pace,
    pub(super) threads: Option<usize>,
    pub(super) seed: u64,
    pub(super) timeout: Duration,
    pub(super) keep_alive: bool,
    pub(super) message: Message,
    pub(super) proxy: Option<Target>,
    pub(super) unix_socket: Option<PathBuf>,
    pub(super) family: Family,
    pub(super) insecure: bool,
    pub(super) full_handshakes: bool,
    pub(super) is_my_server: bool,
    pub(super) output: Output,
    pub(super) screen: bool,
    /// The folder in which the run is saved.
    pub(super) save: Option<PathBuf>,
    /// A process id or the URL of a status page, if the server's side is to be observed.
    pub(super) server: Option<String>,
    /// Whether to count its system calls after the run.
    pub(super) strace: bool,
    /// The sweep, if there is one instead of a single run.
    pub(super) sweep: Option<Grid>,
    /// The file for the sweep's page.
    pub(super) html: Option<PathBuf>,
}

/// The request to send.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) method: Option<String>,
    pub(super) fields: Vec<(String, String)>,
    pub(super) cookies: Vec<String>,
    pub(super) accept: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) host: Option<String>,
    pub(super) auth: Option<String>,
    pub(super) proxy_auth: Option<String>,
    pub(super) body: Option<Bytes>,
}

/// The kinds of addresses to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Family {
    #[default]
    Any,
    V4,
    V6,
}

/// The form of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Output {
    #[default]
    Text,
    Json,
    Csv,
}

/// What the command line requests.
#[derive(Debug)]
pub(super) enum Wish {
    Run(Box<Options>),
    /// The help text.
    Help(String),
}

/// Puts a load on a server and reports what came of it
#[derive(Debug, Parser)]
#[command(name = "bench", bin_name = "evenkeel bench")]
struct Words {
    /// What is asked for
    #[arg(value_name = "URL", value_parser = target)]
    url: Target,
    #[command(flatten, next_help_heading = "How much")]
    amount: Amount,
    #[command(flatten, next_help_heading = "How fast (as answers come where nothing is said)")]
    speed: Speed,
    #[command(flatten, next_help_heading = "What is sent")]
    sent: Sent,
    #[command(flatten, next_help_heading = "How it is sent")]
    way: Way,
    #[command(flatten, next_help_heading = "What is shown")]
    shown: Shown,
}

#[derive(Debug, Args)]
struct Amount {
    /// Requests (200 where neither -n nor -z is given)
    #[arg(short = 'n', long, value_name = "N", value_parser = number::<u64>(1, u64::MAX))]
    requests: Option<u64>,
    /// For so long (10s, 5m); with -n, whichever is over first
    #[arg(short = 'z', long = "duration", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Clients (50)
    #[arg(short, long, value_name = "N", value_parser = number::<u32>(1, MOST_CLIENTS))]
    clients: Option<u32>,
    /// From A clients to B within that time
    #[arg(long, value_name = "A..B/TIME", value_parser = parse_ramp, overrides_with = "steps")]
    ramp: Option<Shape>,
    /// So many clients for so long, one step after another
    #[arg(long, value_name = "N:TIME,...", value_parser = parse_steps, overrides_with = "ramp")]
    steps: Option<Shape>,
}

#[derive(Debug, Args)]
struct Speed {
    /// Pauses: 500ms, 1s..3s, exp:1s, lognormal:MU,SIGMA, pareto:1s,1.5, weibull:1s,0.4
    #[arg(long, value_name = "DIST", value_parser = think)]
    think: Option<Think>,
    /// Open loop: so many requests a second, whether or not they are answered; Poisson arrivals,
    /// latency from the intended start
    #[arg(short = 'q', long, visible_alias = "open", value_name = "RATE", value_parser = rate)]
    rate: Option<f64>,
    /// Evenly spaced requests instead
    #[arg(long)]
    even: bool,
    /// Partly open: so many clients a second, N requests of each on the average, with the pauses of
    /// --think
    #[arg(long, value_name = "RATE,N", value_parser = partly)]
    partly: Option<(f64, f64)>,
}

#[derive(Debug, Args)]
struct Sent {
    /// The method (GET; POST where there is a body)
    #[arg(short, long, value_name = "METHOD")]
    method: Option<String>,
    /// A header field; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field)]
    fields: Vec<(String, String)>,
    /// A cookie; may be repeated
    #[arg(long = "cookie", value_name = "NAME=VALUE")]
    cookies: Vec<String>,
    /// Accept
    #[arg(short = 'A', long, value_name = "TYPE")]
    accept: Option<String>,
    /// Content-Type (application/x-www-form-urlencoded)
    #[arg(short = 'T', long, value_name = "TYPE")]
    content_type: Option<String>,
    /// A body, or @FILE for that of a file
    #[arg(short, long, value_name = "TEXT", overrides_with = "data_file")]
    data: Option<String>,
    /// The body, from a file
    #[arg(short = 'D', long, value_name = "FILE", overrides_with = "data")]
    data_file: Option<String>,
    /// Basic authentication
    #[arg(short, long, value_name = "USER:PASSWORD", value_parser = credentials)]
    auth: Option<String>,
    /// Basic authentication for the proxy
    #[arg(long, value_name = "USER:PASSWORD", value_parser = credentials)]
    proxy_auth: Option<String>,
    /// Host in place of the URL's
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

#[derive(Debug, Args)]
struct Way {
    /// Makes a connection for each request
    #[arg(long)]
    disable_keepalive: bool,
    /// How long to wait for a connection and for more of an answer (20s)
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// Asks through a proxy
    #[arg(short = 'x', long, value_name = "HOST:PORT", value_parser = target)]
    proxy: Option<Target>,
    /// Asks over a Unix socket
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// Asks over IPv4 only
    #[arg(short = '4', long, overrides_with = "ipv6")]
    ipv4: bool,
    /// Asks over IPv6 only
    #[arg(short = '6', long, overrides_with = "ipv4")]
    ipv6: bool,
    /// Takes any certificate
    #[arg(short = 'k', long)]
    insecure: bool,
    /// Makes every TLS handshake in full, as a client does that has never been there
    #[arg(long)]
    full_handshakes: bool,
    /// Threads of clients (one for each core)
    #[arg(long, value_name = "N", value_parser = number::<usize>(1, 1024))]
    threads: Option<usize>,
    /// The seed of pauses and arrivals: the same seed draws the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Needed for an address that is not loopback
    #[arg(long = "yes-this-is-my-server")]
    is_my_server: bool,
    /// Asks by HTTP/2, which is not there yet
    #[arg(long, alias = "h2", hide = true)]
    http2: bool,
}

#[derive(Debug, Args)]
struct Shown {
    /// Writes the figures as JSON
    #[arg(long, overrides_with = "csv")]
    json: bool,
    /// Writes a line for each answer, kept in memory until the end (96 bytes each)
    #[arg(long, overrides_with = "json")]
    csv: bool,
    /// Shows no live screen
    #[arg(long)]
    no_tui: bool,
    /// Looks at the server's side as well: its CPU for an answer, processes, accept queue,
    /// scoreboard; by process id or status page. After the run its system calls are counted under a
    /// second of the same load, where strace is installed and may attach
    #[arg(long, value_name = "PID|URL")]
    server: Option<String>,
    /// Counts no system calls
    #[arg(long)]
    no_strace: bool,
    /// A run for each number of clients (c=1,4,16; c=1..512 doubles) and for each pause
    /// (think=0,1ms); may be repeated; every run is as long as -n or -z says
    #[arg(long, value_name = "c=LIST|think=LIST")]
    sweep: Vec<String>,
    /// Writes a page with the sweep's plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Keeps the run in a new folder, as a stream while it goes
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
}

/// The declaration of the command line.
#[must_use]
pub fn command() -> clap::Command {
    words::command::<Words>()
}

/// Parses the words after `evenkeel bench`.
pub(super) fn parse(given: &[String]) -> Result<Wish, Complaint> {
    // hey spells this option with one dash, which would otherwise mean a body.
    let known = |word: &String| match word.as_str() {
        "-disable-keepalive" => "--disable-keepalive".to_owned(),
        _ => word.clone(),
    };
    let given: Vec<String> = given.iter().map(known).collect();
    match words::parse::<Words>(&given) {
        Ok(words) => words.options().map(|options| Wish::Run(Box::new(options))),
        Err(Stop::Help(text)) => Ok(Wish::Help(text)),
        Err(Stop::Wrong(text)) => Err(usage(text)),
    }
}

impl Words {
    /// Checks the options against each other.
    fn options(self) -> Result<Options, Complaint> {
        let Self { url, amount, speed, sent, way, shown } = self;
        if way.http2 {
            let text = "HTTP/2 is not there; the requests of bench are HTTP/1.1".to_owned();
            return Err(Complaint { text, status: 2, hint: false });
        }
        let output = match (shown.json, shown.csv) {
            (true, _) => Output::Json,
            (_, true) => Output::Csv,
            _ => Output::Text,
        };
        let pace = speed.pace()?;
        let typed_clients = amount.clients;
        let shape = amount.ramp.or(amount.steps);
        if shape.is_some() {
            if typed_clients.is_some() {
                return Err(usage("-c and --ramp or --steps both say how many clients there are"));
            }
            if matches!(pace, Pace::Open { .. } | Pace::PartlyOpen { .. }) {
                return Err(usage("--ramp and --steps are for closed loops"));
            }
        }
        if way.proxy.is_some() && way.unix_socket.is_some() {
            return Err(usage("-x and --unix-socket both say where to connect to"));
        }
        let own = typed_clients.is_some() || shape.is_some() || pace != Pace::Greedy;
        let sweep = shown.grid(own || output != Output::Text)?;
        let bounded = amount.requests.is_some() || amount.time.is_some();
        // A shape ends a run by itself, like a time.
        let requests =
            if bounded || shape.is_some() { amount.requests } else { Some(USUAL_REQUESTS) };
        let each = (sweep.is_some() && !bounded).then_some(USUAL_PAIR);
        let shaped = shape.as_ref().and_then(|shape| shape.ends(bounded));
        let swept = sweep.as_ref().and_then(|grid| grid.clients.iter().max().copied());
        let most = shape.as_ref().map(Shape::most).or(swept);
        let closed = matches!(pace, Pace::Greedy | Pace::Think(_));
        let mut clients = most.or(typed_clients).unwrap_or(USUAL_CLIENTS);
        if let Some(requests) = requests.filter(|_| closed && most.is_none()) {
            // More clients than requests would only add clients that are never served.
            clients = clients.min(u32::try_from(requests).unwrap_or(u32::MAX));
        }
        Ok(Options {
            url,
            requests,
            time: amount.time.into_iter().chain(shaped).chain(each).min(),
            clients,
            shape,
            pace,
            threads: way.threads,
            seed: way.seed,
            timeout: way.timeout.unwrap_or(USUAL_TIMEOUT),
            keep_alive: !way.disable_keepalive,
            message: sent.message()?,
            family: way.family(),
            proxy: way.proxy,
            unix_socket: way.unix_socket,
            insecure: way.insecure,
            full_handshakes: way.full_handshakes,
            is_my_server: way.is_my_server,
            output,
            screen: !shown.no_tui && output == Output::Text,
            save: shown.save,
            server: shown.server,
            strace: !shown.no_strace,
            sweep,
            html: shown.html,
        })
    }
}

impl Speed {
    fn pace(&self) -> Result<Pace, Complaint> {
        match (self.rate, self.partly, self.think) {
            (Some(_), Some(_), _) => Err(usage("-q and --partly are two kinds of loop")),
            (Some(_), None, Some(_)) => {
                Err(usage("-q asks at a rate of its own: there is nobody who thinks"))
            }
            (Some(rate), None, None) => Ok(Pace::Open { rate, even: self.even }),
            (None, ..) if self.even => Err(usage("--even is for the open loop of -q")),
            (None, Some((rate, requests)), think) => {
                let think = think.unwrap_or(Think::None);
                Ok(Pace::PartlyOpen { rate, requests, think })
            }
            (None, None, Some(think)) if !think.is_none() => Ok(Pace::Think(think)),
            (None, None, _) => Ok(Pace::Greedy),
        }
    }
}

impl Sent {
    fn message(self) -> Result<Message, Complaint> {
        let body = match (self.data, self.data_file) {
            (Some(text), _) => Some(match text.strip_prefix('@') {
                Some(path) => contents(path)?,
                None => Bytes::from(text),
            }),
            (None, Some(path)) => Some(contents(&path)?),
            (None, None) => None,
        };
        Ok(Message {
            method: self.method,
            fields: self.fields,
            cookies: self.cookies,
            accept: self.accept,
            content_type: self.content_type,
            host: self.host,
            auth: self.auth,
            proxy_auth: self.proxy_auth,
            body,
        })
    }
}

impl Way {
    fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }
}

impl Shown {
    /// The sweep. It determines the number of clients and their pauses by itself, and prints a
    /// table. `taken` says that other options determine these already.
    fn grid(&self, taken: bool) -> Result<Option<Grid>, Complaint> {
        if self.sweep.is_empty() {
            return match self.html {
                Some(_) => Err(usage("--html is for the page of --sweep; report draws one run")),
                None => Ok(None),
            };
        }
        let mut grid = Grid::default();
        for text in &self.sweep {
            grid.set(text).map_err(|error| usage(format!("--sweep {error}")))?;
        }
        if taken || self.server.is_some() {
            let text = "--sweep goes through clients and pauses by itself: no -c, --ramp, --steps, \
                        --think, -q, --partly, --server, --json or --csv beside it";
            return Err(usage(text));
        }
        Ok(Some(grid))
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let found = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    found.ok_or_else(|| "it takes requests a second".to_owned())
}

fn partly(text: &str) -> Result<(f64, f64), String> {
    let bad = || "it takes clients a second and requests of each, such as 10,5".to_owned();
    let (clients, requests) = text.split_once(',').ok_or_else(bad)?;
    let requests: f64 = requests.trim().parse().map_err(|_| bad())?;
    let clients = rate(clients.trim()).map_err(|_| bad())?;
    if requests.is_finite() && requests >= 1.0 { Ok((clients, requests)) } else { Err(bad()) }
}

/// Parses a header field.
pub(crate) fn field(text: &str) -> Result<(String, String), String> {
    parse_field(text).map(|(name, value)| (name.to_owned(), value.to_owned()))
}

fn credentials(text: &str) -> Result<String, String> {
    if text.contains(':') { Ok(text.to_owned()) } else { Err("it takes USER:PASSWORD".to_owned()) }
}

fn contents(path: &str) -> Result<Bytes, Complaint> {
    std::fs::read(path)
        .map(Bytes::from)
        .map_err(|error| Complaint::plain(format!("{path}: {error}")))
}
