//! The client of the scenarios with continuous load: runs wrk, or h2load for HTTP/2, on a core of
//! its own, and returns the number of answers and their cost for the server and the client.

use crate::Result;
use crate::contender::CLIENT_CORE;
use crate::passwords;
use crate::spread::Spread;
use evenkeel_lab::family::cpu_of_ended_us;
use evenkeel_lab::peers::{Http2, Server, size_of};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::NamedTempFile;

/// What a server does for a request beyond sending a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Nothing,
    /// The client sends the name and the password of a user.
    Login,
    /// The filter INCLUDES parses the file, which has no directives.
    Includes,
    /// A FastCGI application answers.
    Application,
}

/// A request that is sent over and over.
#[derive(Clone, Copy)]
pub struct Asked {
    /// The path.
    pub path: &'static str,
    /// The number of connections.
    pub connections: usize,
    /// Whether each connection is for one request.
    pub close: bool,
    /// Whether the client already has the file.
    pub conditional: bool,
    /// How long each response waits, in milliseconds.
    pub wait_ms: u64,
    /// Whether Evenkeel and Apache have Debian's stock configuration instead of a short one.
    pub stock: bool,
    /// Whether the client sends a browser's header fields instead of next to none.
    pub browser: bool,
    /// What the server does for the path beyond sending a file.
    pub work: Work,
    /// Many things that are requested in turn, instead of the path alone.
    pub spread: Option<Spread>,
    /// HTTP/2, and the number of streams that each connection has open at a time.
    pub http2: Option<(Http2, usize)>,
}

/// How often each thing is requested before a server is measured. Each request reaches one of the
/// processes or threads of a server, each of which may have its own cache or be started meanwhile.
/// After this many rounds, each of two that share the requests has seen all but one thing in two
/// hundred.
const WARMING_ROUNDS: u64 = 8;

/// Things that are not requested within a turn of this many seconds stay cold.
const LONGEST_WARMING_S: u64 = 64;

/// A browser's header fields besides Host and Connection.
const BROWSER: [&str; 11] = [
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    "Accept-Language: en-US,en;q=0.5",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "Cookie: session=4f0c0e6d8a1b4c7f9d2e; theme=dark; consent=necessary",
    "Upgrade-Insecure-Requests: 1",
    "Sec-Fetch-Dest: document",
    "Sec-Fetch-Mode: navigate",
    "Sec-Fetch-Site: none",
    "Sec-Fetch-User: ?1",
    "Priority: u=0, i",
];

/// The result of one turn.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// The answered requests.
    pub requests: u64,
    /// The requests a second.
    pub rate: f64,
    /// The CPU time of the server's processes for each request, in microseconds.
    pub cpu_us: f64,
    /// The share of its core that the client used.
    pub client: f64,
    /// The responses that were errors, and the failed connections.
    pub errors: u64,
}

impl Asked {
    /// The size of the response's body in bytes.
    pub fn bytes(&self) -> usize {
        match self.wait_ms {
            0 => size_of(self.path),
            wait_ms => format!("waited {wait_ms} ms\n").len(),
        }
    }

    /// The same with a short configuration and next to no header fields: the bare server.
    pub const fn bare(self) -> Self {
        Self { stock: false, browser: false, ..self }
    }

    /// The same for many things in turn.
    pub const fn spread(self, spread: Spread) -> Self {
        Self { spread: Some(spread), ..self }
    }

    /// Loads the server before it is measured: for a second, and until everything that is requested
    /// in turn was requested in enough complete rounds. Returns the first turn, if nothing was
    /// requested twice in it.
    pub fn warm(&self, server: &Server) -> Result<Option<Turn>> {
        let Some(all) = self.spread.map(|spread| spread.count() as u64) else {
            return self.ask(server, 1).map(|_| None);
        };
        let first = self.ask(server, 1)?;
        // A script begins anew each time, so that incomplete rounds do not count.
        let (mut rounds, mut seconds) = (first.requests / all, 1);
        while rounds < WARMING_ROUNDS && seconds < LONGEST_WARMING_S {
            seconds *= 2;
            rounds += self.ask(server, seconds)?.requests / all;
        }
        Ok(Some(first).filter(|first| first.requests <= all))
    }

    /// The header fields of its requests besides Host.
    pub fn fields(&self) -> Vec<String> {
        let mut fields = Vec::new();
        if self.browser {
            fields.extend(BROWSER.map(str::to_owned));
        }
        if self.work == Work::Login {
            fields.push(passwords::first_login().trim_end().to_owned());
        }
        if self.http2.is_some() {
            return fields;
        }
        if self.close {
            fields.push("Connection: close".to_owned());
        } else if self.browser {
            fields.push("Connection: keep-alive".to_owned());
        }
        fields
    }

    /// The target of the request line.
    pub fn target(&self) -> String {
        match self.wait_ms {
            0 => self.path.to_owned(),
            wait_ms => format!("{}?ms={wait_ms}", self.path),
        }
    }

    /// Loads the server for `seconds` seconds.
    pub fn ask(&self, server: &Server, seconds: u64) -> Result<Turn> {
        let script = match self.spread {
            Some(spread) => Some(spread.script(server.address, &self.fields())?),
            None => None,
        };
        let mut command = match self.http2 {
            Some(how) => {
                let mut command = self.h2load(server.address, how);
                command.arg("-D").arg(seconds.to_string());
                command
            }
            None => self.wrk(server, seconds, script.as_ref().map(NamedTempFile::path))?,
        };
        let parse = if self.http2.is_some() { parse_h2load } else { parse_wrk };
        let (busy, own) = (server.family.cpu_us(), cpu_of_ended_us());
        let output = command.output().map_err(|error| format!("taskset: {error}"))?;
        let busy = server.family.cpu_us().saturating_sub(busy);
        let own = cpu_of_ended_us().saturating_sub(own);
        let text = String::from_utf8_lossy(&output.stdout);
        let Told { requests, elapsed_s, errors } = parse(&text).ok_or_else(|| {
            let faults = String::from_utf8_lossy(&output.stderr);
            format!("{}: the client said: {text}{faults}{}", server.name, output.status)
        })?;
        let cpu_us = busy as f64 / requests.max(1) as f64;
        let client = own as f64 / 1e6 / elapsed_s;
        let rate = requests as f64 / elapsed_s;
        Ok(Turn { requests, rate, cpu_us, client, errors })
    }

    fn wrk(&self, server: &Server, seconds: u64, script: Option<&Path>) -> Result<Command> {
        let mut command = Command::new("taskset");
        command.args(["-c", &CLIENT_CORE.to_string(), "wrk", "-t", "1"]);
        command.arg("-c").arg(self.connections.to_string());
        command.arg("-d").arg(format!("{seconds}s"));
        for field in self.fields() {
            command.args(["-H", &field]);
        }
        if self.conditional {
            let tag = validator(server.address, self.path)?;
            command.arg("-H").arg(format!("If-None-Match: {tag}"));
        }
        if let Some(script) = script {
            command.arg("-s").arg(script);
        }
        command.arg(format!("http://{}{}", server.address, self.target()));
        Ok(command)
    }

    /// The command line of h2load for this request, without the option for its duration or its
    /// number of requests, which the caller adds.
    pub fn h2load(&self, address: SocketAddr, (how, streams): (Http2, usize)) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &CLIENT_CORE.to_string(), "h2load", "-t", "1"]);
        command.arg("-c").arg(self.connections.to_string());
        command.arg("-m").arg(streams.to_string());
        for field in self.fields() {
            command.args(["-H", &field]);
        }
        let scheme = if how == Http2::Tls { "https" } else { "http" };
        command.arg(format!("{scheme}://{address}{}", self.target()));
        command
    }
}

/// What a client reports.
#[derive(Debug, PartialEq)]
pub struct Told {
    /// The answered requests.
    pub requests: u64,
    elapsed_s: f64,
    /// The responses that were errors, and the failed requests or connections.
    pub errors: u64,
}

/// The entity tag that the server gives the file.
pub fn validator(address: SocketAddr, path: &str) -> Result<String> {
    let told = |error: std::io::Error| format!("{address}: {error}");
    let mut stream = TcpStream::connect(address).map_err(told)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(told)?;
    // Sent in one piece, because the ceiling treats what one call returns as a whole request.
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(told)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(told)?;
    let answer = String::from_utf8_lossy(&answer);
    let tag = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("etag").then(|| value.trim().to_owned())
    });
    tag.ok_or_else(|| format!("{address}: {path} comes without an entity tag"))
}

/// The report of wrk: `N requests in 3.00s, ...`, and lines about errors.
fn parse_wrk(text: &str) -> Option<Told> {
    let line = text.lines().find(|line| line.contains(" requests in "))?;
    let mut words = line.split_whitespace();
    let requests = words.next()?.parse().ok()?;
    let elapsed_s = seconds(words.nth(2)?)?;
    let lines =
        text.lines().filter(|line| line.contains("Non-2xx") || line.contains("Socket errors"));
    let numbers = lines.flat_map(|line| line.split(|c: char| !c.is_ascii_digit()));
    // `Non-2xx or 3xx responses` contains digits itself.
    let numbers = numbers.filter_map(|digits| digits.parse::<u64>().ok());
    let errors = numbers.filter(|n| !matches!(n, 2 | 3)).sum();
    Some(Told { requests, elapsed_s, errors })
}

/// The report of h2load: `finished in 3.00s, ...`, the requests, and the status codes by class.
pub fn parse_h2load(text: &str) -> Option<Told> {
    let after = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let elapsed_s = seconds(after("finished in ")?.split_whitespace().next()?)?;
    let number = |list: &str, unit: &str| -> Option<u64> {
        list.split(", ").find_map(|part| part.strip_suffix(unit)?.trim().parse().ok())
    };
    let (requests, codes) = (after("requests: ")?, after("status codes: ")?);
    let good = number(codes, " 2xx")?;
    let (done, failed) = (number(requests, " done")?, number(requests, " failed")?);
    // Requests that failed are among those that are done.
    let errors = (done - failed).saturating_sub(good) + failed;
    Some(Told { requests: done, elapsed_s, errors })
}

/// A time as wrk and h2load write it.
fn seconds(text: &str) -> Option<f64> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0)];
    let time = text.trim_end_matches(',');
    let (number, unit) =
        units.iter().find_map(|(it, unit)| Some((time.strip_suffix(it)?, unit)))?;
    Some(number.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_wrk_is_read() {
        let text = "  Latency 1ms\n  301234 requests in 3.10s, 362.83MB read\n\
                    Requests/sec:  97172.26\n";
        let told = |requests, elapsed_s, errors| Some(Told { requests, elapsed_s, errors });
        assert_eq!(parse_wrk(text), told(301_234, 3.1, 0));
        let text = "  2 requests in 500.00ms, 1.00KB read\n\
                      Socket errors: connect 0, read 17, write 0, timeout 8\n\
                    Non-2xx or 3xx responses: 20\n";
        assert_eq!(parse_wrk(text), told(2, 0.5, 45));
        assert_eq!(parse_wrk("unable to connect"), None);
    }

    #[test]
    fn the_report_of_h2load_is_read() {
        let report = |codes: &str| {
            format!(
                "finished in 1.02s, 12115.00 req/s, 13.29MB/s\n\
                 requests: 120 total, 371 started, 115 done, 112 succeeded, 3 failed, 1 errored, \
                 0 timeout\nstatus codes: {codes}\n"
            )
        };
        let told = |errors| Some(Told { requests: 115, elapsed_s: 1.02, errors });
        assert_eq!(parse_h2load(&report("112 2xx, 0 3xx, 0 4xx, 0 5xx")), told(3));
        assert_eq!(parse_h2load(&report("100 2xx, 2 3xx, 10 4xx, 0 5xx")), told(15));
        assert_eq!(parse_h2load("connect failed"), None);
    }
}
