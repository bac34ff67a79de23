//! The command line of bench: words come in, what they ask for goes out, or a complaint. Names
//! that hey and oha share are theirs; nothing is looked up or opened here but files of bodies.

use super::stretches::{Shape, parse_ramp, parse_steps};
use super::{Complaint, usage};
use crate::load::{Pace, Target, Think, parse_time};
use crate::request::parse_field;
use crate::sweep::Grid;
use bytes::Bytes;
use lexopt::{Arg, Parser, ValueExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// As many as hey and oha make where nothing is said.
const USUAL_REQUESTS: u64 = 200;
const USUAL_CLIENTS: u32 = 50;
/// More sockets than this no address pair has.
const MOST_CLIENTS: u32 = 1_000_000;
/// How long each run of a sweep is.
const USUAL_PAIR: Duration = Duration::from_secs(5);
/// As hey waits.
const USUAL_TIMEOUT: Duration = Duration::from_secs(20);

/// What bench is asked to do.
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
    pub(super) is_my_server: bool,
    pub(super) output: Output,
    pub(super) screen: bool,
    /// The folder that the run is saved in.
    pub(super) save: Option<PathBuf>,
    /// A process id or the URL of a status page, where the server's side is looked at.
    pub(super) server: Option<String>,
    /// Whether its system calls are counted after the run.
    pub(super) strace: bool,
    /// What is gone through in place of one run.
    pub(super) sweep: Option<Grid>,
    /// Where a sweep's page goes.
    pub(super) html: Option<PathBuf>,
}

/// What is sent.
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

/// Which addresses of a name are used.
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

/// What the command line asks for.
#[derive(Debug)]
pub(super) enum Wish {
    Run(Box<Options>),
    Help,
}

/// The options as they are read, before they are held against each other.
#[derive(Default)]
struct Reader {
    url: Option<String>,
    requests: Option<u64>,
    time: Option<Duration>,
    clients: Option<u32>,
    shape: Option<Shape>,
    rate: Option<f64>,
    even: bool,
    think: Option<Think>,
    partly: Option<(f64, f64)>,
    threads: Option<usize>,
    seed: Option<u64>,
    timeout: Option<Duration>,
    once: bool,
    message: Message,
    proxy: Option<String>,
    unix_socket: Option<PathBuf>,
    family: Family,
    insecure: bool,
    is_my_server: bool,
    output: Output,
    no_screen: bool,
    save: Option<PathBuf>,
    server: Option<String>,
    no_strace: bool,
    sweep: Option<Grid>,
    html: Option<PathBuf>,
}

/// Parses the words behind `evenkeel bench`.
pub(super) fn parse(words: &[String]) -> Result<Wish, Complaint> {
    let mut reader = Reader::default();
    // hey spells this one with one dash, which would be a body otherwise.
    let known = |word: &String| match word.as_str() {
        "-disable-keepalive" => "--disable-keepalive".to_owned(),
        _ => word.clone(),
    };
    let mut parser = Parser::from_args(words.iter().map(known));
    while let Some(arg) = parser.next().map_err(|error| usage(error.to_string()))? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Wish::Help),
            Arg::Value(word) => reader.take_url(text(word)?)?,
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
    fn take_url(&mut self, word: String) -> Result<(), Complaint> {
        match self.url.replace(word) {
            None => Ok(()),
            Some(first) => Err(usage(format!("one URL is asked, not {first} and another"))),
        }
    }

    /// Takes an option by its name, and its value from the parser where it has one.
    fn take(&mut self, name: &str, parser: &mut Parser) -> Result<(), Complaint> {
        let mut value = || text(parser.value().map_err(|error| usage(error.to_string()))?);
        match name {
            "n" | "requests" => self.requests = Some(number(name, &value()?, 1, u64::MAX)?),
            "c" | "clients" => self.clients = Some(number(name, &value()?, 1, MOST_CLIENTS)?),
            "z" | "duration" => self.time = Some(duration(name, &value()?)?),
            "q" | "rate" | "open" => self.rate = Some(rate(name, &value()?)?),
            "even" => self.even = true,
            "think" => self.think = Some(Think::parse(&value()?).map_err(usage)?),
            "partly" => self.partly = Some(partly(&value()?)?),
            "ramp" => self.shape = Some(parse_ramp(&value()?).map_err(usage)?),
            "steps" => self.shape = Some(parse_steps(&value()?).map_err(usage)?),
            "threads" => self.threads = Some(number(name, &value()?, 1, 1024)?),
            "seed" => self.seed = Some(number(name, &value()?, 0, u64::MAX)?),
            "t" | "timeout" => self.timeout = Some(duration(name, &value()?)?),
            "disable-keepalive" => self.once = true,
            "x" | "proxy" => self.proxy = Some(value()?),
            "unix-socket" => self.unix_socket = Some(value()?.into()),
            "4" | "ipv4" => self.family = Family::V4,
            "6" | "ipv6" => self.family = Family::V6,
            "insecure" | "k" => self.insecure = true,
            "yes-this-is-my-server" => self.is_my_server = true,
            "json" => self.output = Output::Json,
            "csv" => self.output = Output::Csv,
            "save" => self.save = Some(value()?.into()),
            "server" => self.server = Some(value()?),
            "no-strace" => self.no_strace = true,
            "sweep" => {
                let typed = value()?;
                self.sweep.get_or_insert_default().set(&typed).map_err(usage)?;
            }
            "html" => self.html = Some(value()?.into()),
            "no-tui" => self.no_screen = true,
            "http2" | "h2" => {
                let text = "HTTP/2 is not there; the requests of bench are HTTP/1.1";
                return Err(Complaint { text: text.to_owned(), status: 2, hint: false });
            }
            _ => return self.message.take(name, value),
        }
        Ok(())
    }

    fn finish(self) -> Result<Options, Complaint> {
        let url = self.url.as_deref().ok_or_else(|| usage("a URL is missing"))?;
        let url = Target::parse(url).map_err(usage)?;
        let pace = self.pace()?;
        if self.shape.is_some() {
            if self.clients.is_some() {
                return Err(usage("-c and --ramp or --steps both say how many clients there are"));
            }
            if matches!(pace, Pace::Open { .. } | Pace::PartlyOpen { .. }) {
                return Err(usage("--ramp and --steps are for closed loops"));
            }
        }
        if self.proxy.is_some() && self.unix_socket.is_some() {
            return Err(usage("-x and --unix-socket both say where to connect to"));
        }
        self.check_sweep(&pace)?;
        let proxy = self.proxy.as_deref().map(Target::parse).transpose().map_err(usage)?;
        let bounded = self.requests.is_some() || self.time.is_some();
        // A shape ends a run by itself, as a time does.
        let requests =
            if bounded || self.shape.is_some() { self.requests } else { Some(USUAL_REQUESTS) };
        let each = (self.sweep.is_some() && !bounded).then_some(USUAL_PAIR);
        let shaped = self.shape.as_ref().and_then(|shape| shape.ends(bounded));
        let swept = self.sweep.as_ref().and_then(|grid| grid.clients.iter().max().copied());
        let most = self.shape.as_ref().map(Shape::most).or(swept);
        let closed = matches!(pace, Pace::Greedy | Pace::Think(_));
        let mut clients = most.or(self.clients).unwrap_or(USUAL_CLIENTS);
        if let Some(requests) = requests.filter(|_| closed && most.is_none()) {
            // More clients than requests would only be clients that were never served.
            clients = clients.min(u32::try_from(requests).unwrap_or(u32::MAX));
        }
        Ok(Options {
            url,
            requests,
            time: self.time.into_iter().chain(shaped).chain(each).min(),
            clients,
            shape: self.shape,
            pace,
            threads: self.threads,
            seed: self.seed.unwrap_or(1),
            timeout: self.timeout.unwrap_or(USUAL_TIMEOUT),
            keep_alive: !self.once,
            message: self.message,
            proxy,
            unix_socket: self.unix_socket,
            family: self.family,
            insecure: self.insecure,
            is_my_server: self.is_my_server,
            output: self.output,
            screen: !self.no_screen && self.output == Output::Text,
            save: self.save,
            server: self.server,
            strace: !self.no_strace,
            sweep: self.sweep,
            html: self.html,
        })
    }

    /// A sweep says itself how many clients there are and how they pause, and shows a table.
    fn check_sweep(&self, pace: &Pace) -> Result<(), Complaint> {
        if self.sweep.is_none() {
            return match self.html {
                Some(_) => Err(usage("--html is for the page of --sweep; report draws one run")),
                None => Ok(()),
            };
        }
        let own = self.clients.is_some() || self.shape.is_some() || *pace != Pace::Greedy;
        if own || self.server.is_some() || self.output != Output::Text {
            let text = "--sweep goes through clients and pauses by itself: no -c, --ramp, --steps, \
                        --think, -q, --partly, --server, --json or --csv beside it";
            return Err(usage(text));
        }
        Ok(())
    }

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

impl Message {
    fn take(
        &mut self,
        name: &str,
        mut value: impl FnMut() -> Result<String, Complaint>,
    ) -> Result<(), Complaint> {
        match name {
            "m" | "method" => self.method = Some(value()?),
            "H" | "header" => {
                let typed = value()?;
                let (name, value) = parse_field(&typed).map_err(usage)?;
                self.fields.push((name.to_owned(), value.to_owned()));
            }
            "cookie" => self.cookies.push(value()?),
            "A" | "accept" => self.accept = Some(value()?),
            "T" | "content-type" => self.content_type = Some(value()?),
            "host" => self.host = Some(value()?),
            "a" | "auth" => self.auth = Some(credentials(value()?)?),
            "proxy-auth" => self.proxy_auth = Some(credentials(value()?)?),
            "d" | "data" => {
                let typed = value()?;
                self.body = Some(match typed.strip_prefix('@') {
                    Some(path) => contents(path)?,
                    None => Bytes::from(typed),
                });
            }
            "D" | "data-file" => self.body = Some(contents(&value()?)?),
            name => {
                let dashes = if name.chars().count() == 1 { "-" } else { "--" };
                return Err(usage(format!("{dashes}{name}: no such option")));
            }
        }
        Ok(())
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
    found.ok_or_else(|| usage(format!("-{name} takes a number from {least} to {most}, not {text}")))
}

fn duration(name: &str, text: &str) -> Result<Duration, Complaint> {
    let found = parse_time(text).filter(|seconds| *seconds > 0.0);
    // A year is longer than any run, and what a float holds may be too long for the type.
    let found = found.map(|seconds| Duration::from_secs_f64(seconds.min(31_536_000.0)));
    found.ok_or_else(|| usage(format!("-{name} takes a time (500ms, 10s, 5m), not {text}")))
}

fn rate(name: &str, text: &str) -> Result<f64, Complaint> {
    let found = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    found.ok_or_else(|| usage(format!("-{name} takes requests a second, not {text}")))
}

fn partly(text: &str) -> Result<(f64, f64), Complaint> {
    let bad =
        || usage(format!("--partly takes clients a second and requests of each, 10,5; not {text}"));
    let (clients, requests) = text.split_once(',').ok_or_else(bad)?;
    let requests: f64 = requests.trim().parse().map_err(|_| bad())?;
    let clients = rate("-partly", clients.trim()).map_err(|_| bad())?;
    if requests.is_finite() && requests >= 1.0 { Ok((clients, requests)) } else { Err(bad()) }
}

fn credentials(text: String) -> Result<String, Complaint> {
    if text.contains(':') { Ok(text) } else { Err(usage("-a takes USER:PASSWORD")) }
}

fn contents(path: &str) -> Result<Bytes, Complaint> {
    std::fs::read(path)
        .map(Bytes::from)
        .map_err(|error| Complaint::plain(format!("{path}: {error}")))
}

/// What `--help` shows.
pub(super) const HELP: &str = "\
Usage: evenkeel bench [OPTIONS] URL

How much
  -n N                 requests (200 where neither -n nor -z is given)
  -z TIME              for so long (10s, 5m); with -n, whichever is over first
  -c N                 clients (50)
  --ramp A..B/TIME     from A clients to B within that time
  --steps N:TIME,...   so many clients for so long, one step after another

How fast: as fast as answers come, or
  --think DIST         pauses: 500ms, 1s..3s, exp:1s, lognormal:MU,SIGMA,
                       pareto:1s,1.5, weibull:1s,0.4
  -q RATE              open loop: so many requests a second, whether or not they are
                       answered; Poisson arrivals, latency from the intended start
                       (also --open RATE)
  --even               evenly spaced instead
  --partly RATE,N      partly open: so many clients a second, N requests of each on
                       the average, with the pauses of --think

What is sent
  -m METHOD            GET; POST where there is a body
  -H 'NAME: VALUE'     a header field; may be repeated
  --cookie NAME=VALUE  a cookie; may be repeated
  -A TYPE              Accept
  -T TYPE              Content-Type (application/x-www-form-urlencoded)
  -d TEXT, -d @FILE    body
  -D FILE              body, from a file
  -a USER:PASSWORD     Basic authentication; --proxy-auth for the proxy's
  --host NAME          Host in place of the URL's

How it is sent
  --disable-keepalive  a connection for each request
  -t TIME              how long to wait for a connection and for more of an answer (20s)
  -x HOST:PORT         through a proxy
  --unix-socket PATH   to a Unix socket
  -4, -6               over IPv4 or IPv6 only
  --insecure           any certificate will do
  --threads N          threads of clients (one for each core)
  --seed N             of pauses and arrivals (1): the same seed draws the same

What is shown
  --json               figures as JSON
  --csv                a line for each answer, kept in memory until the end (88 bytes each)
  --no-tui             no live screen
  --server PID|URL     look at the server's side as well: its CPU for an answer, processes,
                       accept queue, scoreboard; by process id or status page. After the
                       run its system calls are counted under a second of the same load,
                       where strace is installed and may attach
  --no-strace          not that
  --sweep c=1,4,16     a run for each number of clients (c=1..512 doubles) ...
  --sweep think=0,1ms  ... and each pause; every run is as long as -n or -z says
  --html FILE          a page with the sweep's plots
  --save DIR           keep the run in a new folder, as a stream while it goes

  --yes-this-is-my-server   needed for an address that is not loopback
";
