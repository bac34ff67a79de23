//! Counts user instructions and allocations of a request with callgrind, as a whole and by
//! function. The result is the difference between a run of some requests and one of twice as many,
//! so that the server's start is not included. The counts do not depend on how busy the machine is,
//! and do not include the kernel.

use crate::Result;
use crate::application::{self, Application};
use crate::contender::{self, PARSED};
use crate::load::{Asked, Work, parse_h2load, validator};
use crate::passwords::CLOSED;
use crate::scenario::{H2, PLAIN, WAIT};
use evenkeel_lab::peers::{Http2, Site};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// The requests of the shorter run. The longer one has twice as many.
const REQUESTS: u64 = 20_000;
/// The same for requests that wait, or have an application answer: each takes milliseconds.
const WAITING_REQUESTS: u64 = 4_000;

/// The functions in a table, most expensive first. Most of the others have a few instructions each.
const FUNCTIONS: usize = 100;

/// By what factor a count may exceed the stored one.
const TOLERANCE: f64 = 1.03;

/// The scenarios that are counted, over one connection (P6 over eight). The page of P1-text is not
/// compressed, because the client does not ask for that, but it passes through the filter. That of
/// P16 is compressed for the first request and kept. The password of P1-login is hashed for the
/// first request and remembered. The page of P1-includes is parsed for the first request and found
/// to have no directives. The page of A4 comes from a FastCGI application in this process, and is
/// not compressed.
const COUNTED: [(&str, Asked); 16] = [
    ("P1", ONE),
    ("P2", Asked { conditional: true, ..ONE }),
    ("P3", Asked { close: true, ..ONE }),
    ("P6", H2),
    ("P7", Asked { connections: 1, wait_ms: 1, ..WAIT }),
    ("P1-text", Asked { path: "/1k.html", browser: false, ..ONE }),
    ("P1-login", Asked { path: CLOSED, work: Work::Login, ..ONE }),
    ("P1-includes", Asked { path: PARSED, work: Work::Includes, ..ONE }),
    ("A4", Asked { path: application::PAGE, work: Work::Application, ..ONE }),
    ("P16", Asked { path: "/8k.html", ..ONE }),
    ("P16-plain", Asked { path: "/8k.png", ..ONE }),
    ("P1-bare", ONE.bare()),
    ("P2-bare", Asked { conditional: true, ..ONE }.bare()),
    ("P3-bare", Asked { close: true, ..ONE }.bare()),
    ("P6-bare", H2.bare()),
    ("P7-bare", Asked { connections: 1, wait_ms: 1, ..WAIT }.bare()),
];

const ONE: Asked = Asked { connections: 1, ..PLAIN };

/// The functions that allocate memory.
const ALLOCATE: [&str; 5] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"];

/// Instructions by function.
type Costs = HashMap<String, u64>;

/// The counts of callgrind.
#[derive(Default)]
struct Counted {
    costs: Costs,
    /// The number of allocations.
    allocations: u64,
}

/// The options of the command line.
#[derive(Default)]
struct Order<'a> {
    names: Vec<&'a str>,
    functions: bool,
    kept: Option<&'a Path>,
    write: bool,
    /// The requests of the shorter run, where they are not those of the scenario.
    requests: Option<u64>,
}

/// Counts the scenarios in the arguments: `[P1 ...] [--requests N] [--functions] [--check FILE |
/// --write FILE]`. The counts are compared with those in the file, or written to it.
///
/// # Errors
///
/// What could not be run, and each count that is more than 3 % above the stored one.
pub fn run(arguments: &[String]) -> Result<()> {
    let order = Order::parse(arguments)?;
    let mut lines = String::new();
    for (name, asked) in COUNTED.iter().filter(|(name, _)| order.wants(name)) {
        let waits = asked.wait_ms > 0 || asked.work == Work::Application;
        let usual = if waits { WAITING_REQUESTS } else { REQUESTS };
        let requests = order.requests.unwrap_or(usual);
        let Counted { costs, allocations } =
            difference(measure(asked, requests * 2)?, &measure(asked, requests)?);
        let each = costs.values().sum::<u64>() / requests;
        let allocations = allocations as f64 / requests as f64;
        let _ = writeln!(lines, "{name} {each}");
        let mut out = std::io::stdout();
        let _ = writeln!(
            out,
            "{name}: {each} user instructions and {allocations:.1} allocations a request"
        );
        if order.functions {
            let _ = writeln!(out, "{}", table(&costs, requests));
        }
    }
    let Some(file) = order.kept else { return Ok(()) };
    let told = |error: std::io::Error| format!("{}: {error}", file.display());
    if order.write {
        return fs::write(file, lines).map_err(told);
    }
    compare(&lines, &fs::read_to_string(file).map_err(told)?)
}

impl<'a> Order<'a> {
    fn parse(arguments: &'a [String]) -> Result<Self> {
        let mut order = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--functions" => order.functions = true,
                "--check" | "--write" => {
                    let file = rest.next().ok_or_else(|| format!("{argument} needs a file"))?;
                    order.kept = Some(Path::new(file));
                    order.write = argument == "--write";
                }
                "--requests" => {
                    let number = rest.next().and_then(|text| text.parse().ok());
                    let number = number.filter(|number| *number > 0);
                    order.requests =
                        Some(number.ok_or("--requests needs a number greater than 0")?);
                }
                name if COUNTED.iter().any(|(known, _)| *known == name) => order.names.push(name),
                other => {
                    let names = COUNTED.map(|(name, _)| name).join(", ");
                    return Err(format!("{other}: {names} can be counted"));
                }
            }
        }
        Ok(order)
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.contains(&name)
    }
}

/// The instructions of a server that answers `requests` requests, including its start and its end.
fn measure(asked: &Asked, requests: u64) -> Result<Counted> {
    let site = Site::new()?;
    let counts = site.path().join("logs/callgrind");
    let application = match asked.work {
        Work::Application => Some(Application::start(&site).map_err(|it| it.to_string())?),
        _ => None,
    };
    let server = contender::start_counted(&site, &counts, asked, application.as_ref())?;
    let tag = if asked.conditional { Some(validator(server.address, asked.path)?) } else { None };
    match asked.http2 {
        Some(how) => ask_h2(server.address, asked, how, requests)?,
        None => ask(server.address, asked, tag.as_deref(), requests)?,
    }
    drop(server);
    let text = fs::read_to_string(&counts).map_err(|error| format!("callgrind: {error}"))?;
    Ok(parse(&text))
}

/// Sends the requests over HTTP/2, in many streams at a time.
fn ask_h2(address: SocketAddr, asked: &Asked, how: (Http2, usize), requests: u64) -> Result<()> {
    let mut command = asked.h2load(address, how);
    let output = command.arg("-n").arg(requests.to_string()).output();
    let output = output.map_err(|error| format!("taskset: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match parse_h2load(&text) {
        Some(told) if told.requests == requests && told.errors == 0 => Ok(()),
        _ => Err(format!("h2load: {text}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Sends the requests, one after the other.
fn ask(address: SocketAddr, asked: &Asked, tag: Option<&str>, requests: u64) -> Result<()> {
    let told = |error: std::io::Error| format!("{address}: {error}");
    let mut request = format!("GET {} HTTP/1.1\r\nHost: {address}\r\n", asked.target());
    if !asked.browser {
        // More than wrk sends.
        request.push_str("User-Agent: bench/1.0 (count)\r\nAccept: */*\r\n");
    }
    for field in asked.fields() {
        request.push_str(&field);
        request.push_str("\r\n");
    }
    if let Some(tag) = tag {
        let _ = write!(request, "If-None-Match: {tag}\r\n");
    }
    request.push_str("\r\n");
    let connect = || -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let mut kept = None;
    let mut answer = Vec::new();
    for _ in 0..requests {
        let stream = match &mut kept {
            Some(stream) if !asked.close => stream,
            kept => kept.insert(connect().map_err(told)?),
        };
        stream.write_all(request.as_bytes()).map_err(told)?;
        read_answer(stream, &mut answer, asked.close).map_err(told)?;
        let wanted: &[u8] = if tag.is_some() { b"HTTP/1.1 304" } else { b"HTTP/1.1 200" };
        if !answer.starts_with(wanted) {
            return Err(format!("{address}: {}", String::from_utf8_lossy(&answer)));
        }
    }
    Ok(())
}

/// Reads one response to its stated length, or to the end of a connection that closes.
fn read_answer(stream: &mut TcpStream, answer: &mut Vec<u8>, close: bool) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    answer.clear();
    loop {
        let count = stream.read(&mut buffer)?;
        answer.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if count == 0 && !close {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if count == 0 || !close && is_whole(answer) {
            return Ok(());
        }
    }
}

fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    body.len() >= length.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Parses callgrind's format to the cost of each function itself, without the functions that it
/// calls. `fn=(ID) NAME` begins a function, and a line of numbers ends with a cost. The line after
/// `calls=` has the cost of the called function, which `cfn=` names before that.
fn parse(text: &str) -> Counted {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut costs, mut allocations) = (Costs::new(), 0);
    let (mut current, mut callee, mut called) = ("", "", false);
    for line in text.lines() {
        if let Some((key, rest)) = line.split_once("fn=") {
            let (id, name) = rest.split_once(' ').unwrap_or((rest, ""));
            if !name.is_empty() {
                names.insert(id, name);
            }
            let name = names.get(id).copied().unwrap_or_default();
            *(if key.is_empty() { &mut current } else { &mut callee }) = name;
        } else if let Some(calls) = line.strip_prefix("calls=") {
            called = true;
            // One of them may call another.
            if ALLOCATE.contains(&callee) && !ALLOCATE.contains(&current) {
                let count = calls.split(' ').next().and_then(|count| count.parse::<u64>().ok());
                allocations += count.unwrap_or(0);
            }
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            let cost = line.rsplit(' ').next().and_then(|cost| cost.parse::<u64>().ok());
            if !std::mem::take(&mut called) {
                *costs.entry(current.to_owned()).or_default() += cost.unwrap_or(0);
            }
        }
    }
    Counted { costs, allocations }
}

/// The counts of the longer run minus those of the shorter one.
fn difference(mut longer: Counted, shorter: &Counted) -> Counted {
    for (name, cost) in &mut longer.costs {
        *cost = cost.saturating_sub(shorter.costs.get(name).copied().unwrap_or(0));
    }
    longer.allocations = longer.allocations.saturating_sub(shorter.allocations);
    longer
}

fn table(costs: &Costs, requests: u64) -> String {
    let mut rows: Vec<(&String, &u64)> = costs.iter().collect();
    rows.sort_by_key(|(name, cost)| (std::cmp::Reverse(**cost), *name));
    let mut text = String::from("| instructions | function |\n|---|---|\n");
    for (name, cost) in rows.into_iter().take(FUNCTIONS) {
        let each = *cost as f64 / requests as f64;
        let _ = writeln!(text, "| {each:.1} | `{name}` |");
    }
    text
}

/// Compares lines of `NAME COUNT` with the stored ones.
fn compare(counted: &str, kept: &str) -> Result<()> {
    let rows = |text: &str| -> Vec<(String, f64)> {
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.filter_map(|(name, count)| Some((name.into(), count.parse().ok()?))).collect()
    };
    let known: HashMap<String, f64> = rows(kept).into_iter().collect();
    let mut more = Vec::new();
    for (name, count) in rows(counted) {
        let Some(before) = known.get(&name) else {
            return Err(format!("{name} is not among the kept counts"));
        };
        if count > before * TOLERANCE {
            let percent = (count / before - 1.0) * 100.0;
            more.push(format!(
                "{name} takes {count} instructions, {percent:.1} % more than before"
            ));
        }
    }
    if more.is_empty() { Ok(()) } else { Err(more.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_summed_by_function_without_what_is_called() {
        let text = "\
events: Ir
fl=(1) a.rs
fn=(1) first
16 400
+3 20
cfn=(2) second
calls=2 50
+1 9000
cfn=(3) malloc
calls=7 60
+1 90
fi=(2) inlined.rs
* 5
fn=(2)
7 80
totals: 505
";
        let counted = parse(text);
        let costs = &counted.costs;
        assert_eq!((costs["first"], costs["second"], counted.allocations), (425, 80, 7));
        let less = Counted { costs: Costs::from([("first".to_owned(), 400)]), allocations: 5 };
        let rest = difference(counted, &less);
        assert_eq!((rest.costs["first"], rest.costs["second"], rest.allocations), (25, 80, 2));
    }

    #[test]
    fn three_in_a_hundred_more_pass() {
        assert_eq!(compare("P1 1030\n", "P1 1000\nP3 1\n"), Ok(()));
        assert!(compare("P1 1031\n", "P1 1000\n").unwrap_err().contains("3.1 % more"));
        assert!(compare("P2 1\n", "P1 1000\n").is_err());
    }

    #[test]
    fn an_answer_is_whole_with_the_last_byte_of_its_body() {
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na"));
        assert!(is_whole(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"));
        assert!(is_whole(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"));
    }
}
