//! The client of the scenarios with continuous load: runs wrk on a core of its own, and returns the
//! number of answers and their cost for the server and the client.

use crate::Result;
use crate::contender::CLIENT_CORE;
use crate::passwords;
use crate::spread::Spread;
use evenkeel_lab::family::cpu_of_ended_us;
use evenkeel_lab::peers::{Server, size_of};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

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
        let script = match self.spread {
            Some(spread) => Some(spread.script(server.address, &self.fields())?),
            None => None,
        };
        if let Some(script) = &script {
            command.arg("-s").arg(script.path());
        }
        command.arg(format!("http://{}{}", server.address, self.target()));
        let (busy, own) = (server.family.cpu_us(), cpu_of_ended_us());
        let output = command.output().map_err(|error| format!("wrk: {error}"))?;
        let busy = server.family.cpu_us().saturating_sub(busy);
        let own = cpu_of_ended_us().saturating_sub(own);
        let text = String::from_utf8_lossy(&output.stdout);
        let (requests, elapsed_s) = parse_total(&text).ok_or_else(|| {
            let faults = String::from_utf8_lossy(&output.stderr);
            format!("{}: wrk said: {text}{faults}{}", server.name, output.status)
        })?;
        let cpu_us = busy as f64 / requests.max(1) as f64;
        let client = own as f64 / 1e6 / elapsed_s;
        let rate = requests as f64 / elapsed_s;
        Ok(Turn { requests, rate, cpu_us, client, errors: parse_errors(&text) })
    }
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

/// The requests and seconds in wrk's line `N requests in 3.00s, ...`.
fn parse_total(text: &str) -> Option<(u64, f64)> {
    let line = text.lines().find(|line| line.contains(" requests in "))?;
    let mut words = line.split_whitespace();
    let requests = words.next()?.parse().ok()?;
    let time = words.nth(2)?.trim_end_matches(',');
    let seconds = match (time.strip_suffix("ms"), time.strip_suffix('s'), time.strip_suffix('m')) {
        (Some(ms), _, _) => ms.parse::<f64>().ok()? / 1e3,
        (_, Some(s), _) => s.parse().ok()?,
        (_, _, Some(minutes)) => minutes.parse::<f64>().ok()? * 60.0,
        _ => return None,
    };
    Some((requests, seconds))
}

/// The sum of the numbers in wrk's lines about errors.
fn parse_errors(text: &str) -> u64 {
    let lines =
        text.lines().filter(|line| line.contains("Non-2xx") || line.contains("Socket errors"));
    let numbers = lines.flat_map(|line| line.split(|c: char| !c.is_ascii_digit()));
    // `Non-2xx or 3xx responses` contains digits itself.
    numbers.filter_map(|digits| digits.parse::<u64>().ok()).filter(|n| !matches!(n, 2 | 3)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_wrk_is_read() {
        let text = "  Latency 1ms\n  301234 requests in 3.10s, 362.83MB read\n\
                    Requests/sec:  97172.26\n";
        assert_eq!(parse_total(text), Some((301_234, 3.1)));
        assert_eq!(parse_errors(text), 0);
        let text = "  Socket errors: connect 0, read 17, write 0, timeout 8\n\
                    Non-2xx or 3xx responses: 20\n";
        assert_eq!(parse_errors(text), 45);
        assert_eq!(parse_total("unable to connect"), None);
    }
}
