//! ab, the benchmark that comes with Apache: its options, its report and its exit statuses, on top
//! of this lab's clients. Scripts that parse the output of ab can parse this one.

mod options;
mod report;
mod request;

use crate::load::{
    Bounds, Exchange, Failure, Figures, Interrupt, Keep, Pace, Plan, Request, Run, Scheme, Source,
    Step, Timeouts, Trust, Wishes,
};
use evenkeel_sys::clock;
use evenkeel_sys::connect::{Local, Remote};
use options::{Complaint, Options, Wish};
use report::Facts;
use std::io::{Write, stderr, stdout};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const BANNER: &str = "\
This is ApacheBench, Version 2.3 <$Revision$>
Copyright 1996 Adam Twiss, Zeus Technology Ltd, http://www.zeustech.net/
Licensed to The Apache Software Foundation, http://www.apache.org/

";

/// The number of refused connections that `-r` tolerates.
const MOST_REFUSED: u64 = 10;

/// Runs ab and returns its exit status.
#[must_use]
pub fn run(words: &[String]) -> i32 {
    let options = match options::parse(words) {
        Ok(Wish::Run(options)) => options,
        Ok(Wish::Version) => {
            say(BANNER);
            return 0;
        }
        Ok(Wish::Usage) => {
            say(USAGE);
            return 0;
        }
        Err(complaint) => return refuse(&complaint),
    };
    match measure(&options) {
        Ok(outcome) => conclude(&options, &outcome),
        Err((text, status)) => {
            complain(&text);
            status
        }
    }
}

fn say(text: &str) {
    let mut out = stdout().lock();
    let _reader_is_gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn complain(text: &str) {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let _reader_is_gone = write!(stderr().lock(), "{text}{end}");
}

fn refuse(complaint: &Complaint) -> i32 {
    complain(&format!("{}\n", complaint.text));
    if complaint.usage {
        complain(USAGE);
    }
    complaint.status
}

/// The result of a run.
struct Outcome {
    figures: Figures,
    begun_us: u64,
    tally: Arc<Tally>,
    /// Why it ended early, with ab's exit status.
    fault: Option<(String, i32)>,
}

/// The counters that all clients share.
#[derive(Default)]
struct Tally {
    /// The length of the first response's body, plus one; 0 until there is one.
    length: AtomicU64,
    other_lengths: AtomicU64,
    done: AtomicU64,
    first_failure: Mutex<Option<Failure>>,
}

/// A client of ab.
struct Client {
    request: Arc<Request>,
    tally: Arc<Tally>,
    variable_length: bool,
    verbosity: u32,
    /// The number of requests after which progress is printed; 0 for never.
    beat: u64,
    received: Vec<u8>,
}

impl Source for Client {
    fn next(&mut self, _now_ns: u64) -> Step {
        Step::Send(Arc::clone(&self.request))
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    fn heed(&mut self, outcome: Result<&Exchange, Failure>) {
        let tally = &self.tally;
        match outcome {
            Ok(exchange) => {
                let own = exchange.body_bytes + 1;
                let first = tally.length.compare_exchange(0, own, Relaxed, Relaxed);
                if first.is_err_and(|first| first != own) && !self.variable_length {
                    tally.other_lengths.fetch_add(1, Relaxed);
                }
                self.show(exchange);
            }
            // A response that breaks off or is not HTTP is counted, and the run continues.
            Err(Failure::Truncated | Failure::Malformed) => {}
            Err(failure) => {
                let mut first = tally.first_failure.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(failure);
            }
        }
        self.received.clear();
        let done = self.tally.done.fetch_add(1, Relaxed) + 1;
        if self.beat > 0 && done.is_multiple_of(self.beat) {
            complain(&format!("Completed {done} requests"));
        }
    }
}

impl Client {
    fn show(&self, exchange: &Exchange) {
        if self.verbosity >= 2 {
            let text = String::from_utf8_lossy(&self.received);
            say(&format!("LOG: header received:\n{text}\n"));
        }
        if !(200..300).contains(&exchange.status) {
            if self.verbosity >= 2 {
                say(&format!("WARNING: Response code not 2xx ({})\n", exchange.status));
            }
        } else if self.verbosity >= 3 {
            say(&format!("LOG: Response code = {}\n", exchange.status));
        }
    }
}

fn measure(options: &Options) -> Result<Outcome, (String, i32)> {
    begin_text(options);
    let beats = options.progress && options.requests > 150;
    let request = request::encode(options).map_err(|text| (format!("ab: {text}"), 1))?;
    if options.verbosity >= 2 {
        let body = options.body.as_ref().map_or(0, Vec::len);
        let head = request.bytes.len().saturating_sub(body);
        let head = String::from_utf8_lossy(request.bytes.get(..head).unwrap_or_default());
        let method = head.split(' ').next().unwrap_or_default();
        say(&format!("INFO: {method} header == \n---\n{head}\n---\n"));
    }
    let plan = plan(options)?;
    let request = Arc::new(request);
    let tally = Arc::new(Tally::default());
    let begun_us = clock::realtime_us();
    let client = |_| -> Box<dyn Source> {
        Box::new(Client {
            request: Arc::clone(&request),
            tally: Arc::clone(&tally),
            variable_length: options.variable_length,
            verbosity: options.verbosity,
            beat: if beats { (options.requests / 10).max(100) } else { 0 },
            received: Vec::new(),
        })
    };
    let told = |error: std::io::Error| (format!("ab: {error}"), 1);
    let interrupt = Interrupt::catch().map_err(told)?;
    let run = Run::start(plan, client).map_err(told)?;
    interrupt.stops(run.live()).map_err(told)?;
    let figures = run.wait().map_err(told)?;
    let first = *tally.first_failure.lock().unwrap_or_else(PoisonError::into_inner);
    let fault = first.and_then(|first| fault(options, first, &figures));
    if fault.is_none() {
        if beats {
            complain(&format!("Finished {} requests", tally.done.load(Relaxed)));
        } else {
            say("..done\n");
        }
    }
    Ok(Outcome { figures, begun_us, tally, fault })
}

fn begin_text(options: &Options) {
    let through = options.proxy.as_ref().map(|(host, port)| format!("[through {host}:{port}] "));
    let through = through.unwrap_or_default();
    let wait = if options.progress && options.requests > 150 { "\n" } else { "..." };
    if options.html.is_some() {
        let banner = "<p>\n \
            This is ApacheBench, Version 2.3 <i>&lt;$Revision$&gt;</i><br>\n \
            Copyright 1996 Adam Twiss, Zeus Technology Ltd, http://www.zeustech.net/<br>\n \
            Licensed to The Apache Software Foundation, http://www.apache.org/<br>\n</p>\n<p>\n";
        say(banner);
        return;
    }
    let host = &options.target.host;
    say(&format!("{BANNER}Benchmarking {host} {through}(be patient){wait}"));
}

fn plan(options: &Options) -> Result<Plan, (String, i32)> {
    let asked = match &options.proxy {
        None => options.target.clone(),
        Some((host, port)) => {
            let (host, port) = (host.clone(), *port);
            crate::load::Target { host, port, ..options.target.clone() }
        }
    };
    let remotes = asked.resolve(None).map_err(|_| {
        let host = &asked.host;
        // The exit status is the low eight bits of the number.
        (format!("apr_sockaddr_info_get() for {host}: Name or service not known (670002)"), 50)
    })?;
    let trust = match options.target.scheme {
        Scheme::Http => None,
        Scheme::Https => Some(trust(options)?),
    };
    Ok(Plan {
        remotes: usable(remotes),
        local: Local { address: options.bind, window: options.window, ..Local::default() },
        trust,
        threads: 1,
        clients: options.concurrency,
        stretches: Vec::new(),
        pace: Pace::Greedy,
        keep: if options.keep_alive { Keep::Kept } else { Keep::Once },
        bounds: Bounds {
            requests: Some(options.requests),
            time: options.limit_s.map(Duration::from_secs),
            at_failure: !options.go_on,
        },
        timeouts: Timeouts {
            connect: Duration::from_secs(options.timeout_s),
            answer: Duration::from_secs(options.timeout_s),
        },
        seed: 0,
        keep_exchanges: true,
        hear: options.verbosity >= 2,
    })
}

/// The addresses, with the first one that accepts a connection in front. The order stays if none
/// does.
fn usable(mut remotes: Vec<Remote>) -> Vec<Remote> {
    let patience = Duration::from_secs(2);
    let found = remotes.iter().position(|remote| match remote {
        Remote::Internet(address) => {
            std::net::TcpStream::connect_timeout(address, patience).is_ok()
        }
        Remote::Unix(_) => true,
    });
    // A single address needs no trial connection, which the server would see.
    if let Some(found) = found.filter(|_| remotes.len() > 1) {
        remotes.swap(0, found);
    }
    remotes
}

fn trust(options: &Options) -> Result<Trust, (String, i32)> {
    let versions: &[_] = match options.protocol.as_deref().map(str::to_ascii_uppercase).as_deref() {
        None | Some("ALL") => &[],
        Some("TLS1.2") => &[&rustls::version::TLS12],
        Some("TLS1.3") => &[&rustls::version::TLS13],
        Some(other) => {
            return Err((format!("ab: {other}: only TLS1.2 and TLS1.3 can be spoken"), 1));
        }
    };
    let name = options.server_name();
    let wishes = Wishes {
        verify: false,
        versions,
        suites: options.suites.as_deref(),
        identity: options.identity.as_deref(),
        no_sni: name.is_none(),
        // ab makes a session for each connection.
        full: true,
    };
    Trust::new(name.as_deref().unwrap_or(&options.target.host), &wishes)
        .map_err(|text| (format!("ab: {text}"), 1))
}

/// A time in seconds since 1970 in the form of C's ctime.
fn local_time(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or_default();
    let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
    time.to_zoned(jiff::tz::TimeZone::system()).strftime("%a %b %e %H:%M:%S %Y").to_string()
}

/// ab's message and exit status, if a failure ends it.
fn fault(options: &Options, first: Failure, figures: &Figures) -> Option<(String, i32)> {
    let refused = figures.failures.get(&Failure::Refused).copied().unwrap_or_default();
    let (text, status) = match first {
        Failure::Refused => ("apr_socket_recv: Connection refused (111)", 111),
        Failure::ConnectTimeout | Failure::Timeout => {
            ("apr_pollset_poll: The timeout specified has expired (70007)", 119)
        }
        Failure::Reset => ("apr_socket_recv: Connection reset by peer (104)", 104),
        Failure::Tls => ("SSL handshake failed (1).", 1),
        Failure::Connect => ("apr_socket_connect(): No route to host (113)", 113),
        Failure::Client => ("socket: Too many open files (24)", 24),
        Failure::Truncated | Failure::Malformed => return None,
    };
    if options.go_on && refused > MOST_REFUSED {
        let text = format!("\nTest aborted after {MOST_REFUSED} failures\n\n{text}");
        return Some((text, status));
    }
    if options.go_on {
        return None;
    }
    Some((text.to_owned(), status))
}

fn conclude(options: &Options, outcome: &Outcome) -> i32 {
    if let Some((text, status)) = &outcome.fault {
        complain(text);
        let done = outcome.figures.answered();
        if done > 0 {
            say(&format!("Total of {done} requests completed\n"));
        }
        return *status;
    }
    let facts = Facts {
        options,
        figures: &outcome.figures,
        begun_us: outcome.begun_us,
        other_lengths: outcome.tally.other_lengths.load(Relaxed),
        sent_bytes: outcome.figures.sent_bytes,
    };
    match &options.html {
        None => say(&facts.text()),
        Some(html) => say(&facts.html(html)),
    }
    let mut status = 0;
    let mut save = |path: &Option<std::path::PathBuf>, what: &str, text: &dyn Fn() -> String| {
        let Some(path) = path else { return };
        if let Err(text) = write_file(path, what, &text()) {
            complain(&text);
            status = 1;
        }
    };
    save(&options.csv, "CSV", &|| facts.csv());
    save(&options.gnuplot, "gnuplot", &|| facts.gnuplot(local_time));
    status
}

fn write_file(path: &Path, what: &str, text: &str) -> Result<(), String> {
    std::fs::write(path, text)
        .map_err(|error| format!("Cannot open {what} output file: {}: {error}", path.display()))
}

const USAGE: &str = "\
Usage: ab [options] [http[s]://]hostname[:port]/path
Options are:
    -n requests     how many requests to make
    -c concurrency  how many of them at a time
    -t timelimit    seconds after which to end; implies -n 50000
    -s timeout      seconds to wait for an answer (30)
    -b windowsize   size of the sockets' buffers in bytes
    -B address      address of this machine to connect from
    -p postfile     file to POST; set -T too
    -u putfile      file to PUT; set -T too
    -T content-type media type of what is sent, such as
                    'application/x-www-form-urlencoded' (text/plain)
    -v verbosity    how much to tell: 2 shows heads, 3 status codes
    -w              report as an HTML table
    -i              HEAD in place of GET
    -x attributes   attributes of the table element
    -y attributes   attributes of tr elements
    -z attributes   attributes of td and th elements
    -C attribute    cookie, such as 'Apache=1234' (repeatable)
    -H attribute    header line, such as 'Accept-Encoding: gzip' (repeatable)
    -A attribute    user:password for the server (Basic)
    -P attribute    user:password for the proxy (Basic)
    -X proxy:port   proxy to ask
    -V              show the version
    -k              keep connections
    -d              no table of percentages
    -S              no deviations, medians and warnings
    -q              no progress where more than 150 requests are made
    -l              answers may differ in length
    -g filename     write every request for gnuplot
    -e filename     write percentages as CSV
    -r              go on after failures of sockets
    -m method       method by its name
    -h              show this
    -I              no server name in the TLS handshake (SNI)
    -Z ciphersuite  TLS cipher suites, by their names in OpenSSL or in the standard
    -f protocol     TLS version (TLS1.2, TLS1.3 or ALL)
    -E certfile     client certificate chain and key
";
