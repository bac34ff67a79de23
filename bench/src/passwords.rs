//! What passwords cost a server: requests of users that have logged in beside requests for an open
//! page, a flood of wrong passwords beside clients of open files, and how long it takes to refuse
//! users that exist and users that do not. The users' hashes are bcrypt's with a cost of 10.

use crate::Result;
use crate::contender::{CLIENT_CORE, Kind, SERVER_CORE};
use crate::plan::Plan;
use crate::table::median;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_lab::peers::{Server, Setup, Site};
use evenkeel_sys::{crypt, process};
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The number of users, each with a connection of its own.
const USERS: usize = 10;
/// The requests per second of all users together.
const RATE: u32 = 1_000;
/// The wrong passwords a second of the flood.
const FLOOD: u64 = 2_000;
/// The connections of the flood: more than Evenkeel lets wait for a hash.
const FLOOD_CONNECTIONS: usize = 320;
/// The connections of the clients of open files.
const OPEN_CONNECTIONS: usize = 16;
/// The time that a server has to respond.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which each user has had a connection to each process of a server.
const WARMING: Duration = Duration::from_secs(10);
/// The open page, and the same page behind a login.
const OPEN: &str = "/1k.png";
pub const CLOSED: &str = "/closed/1k.png";

/// The figures of one turn of a server.
#[derive(Debug, Default)]
struct Figures {
    /// The CPU time of a request for the open page and for the closed one, in microseconds.
    open_us: f64,
    login_us: f64,
    /// The clients of open files without and with the flood.
    quiet: Load,
    flooded: Load,
    /// The requests of the flood that were answered in a second: with 401, and with another status.
    refused: f64,
    shed: f64,
    /// The cores that the server used under the flood.
    cores: f64,
}

/// The rate and the latency of the clients of open files.
#[derive(Debug, Default, Clone, Copy)]
struct Load {
    rate: f64,
    p99_ms: f64,
}

/// Measures the servers one after the other, and returns the section.
pub fn run(heading: &str, beside: &[Kind], plan: &Plan, site: &Site) -> Result<String> {
    let _ = process::raise_descriptor_limit();
    let users = lay_out(site)?;
    let mut text = format!(
        "## {heading}\n\n\
         {USERS} users ask for the closed page {RATE} times a second, and as many clients for the \
         open one. The flood is {FLOOD} wrong passwords a second on {FLOOD_CONNECTIONS} \
         connections, beside {OPEN_CONNECTIONS} connections that ask for the open page all the \
         time. `known` and `unknown` are the medians of {} refusals each.\n\n\
         | server | CPU, open | CPU, login | requests/s, quiet | p99 | requests/s, flooded | p99 \
         | 401/s | others/s | cores | known | unknown |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        plan.tries,
    );
    for kind in plan.contenders(beside) {
        let Kind::Peer(peer) = kind else {
            return Err(format!("{}: has no passwords", kind.name()));
        };
        let more = protection(&users);
        let cores = vec![SERVER_CORE];
        let setup = Setup { cores, stock: true, more, ..Setup::default() };
        let server = peer.start(site, &setup)?;
        let mut rounds = Vec::new();
        for _ in 0..plan.rounds {
            rounds.push(turn(&server, plan.seconds)?);
        }
        let (known_ms, unknown_ms) = refusals(server.address, plan.tries)?;
        write_row(&mut text, kind.name(), &rounds, known_ms, unknown_ms);
    }
    Ok(text)
}

fn write_row(text: &mut String, name: &str, rounds: &[Figures], known_ms: f64, unknown_ms: f64) {
    let of = |figure: fn(&Figures) -> f64| median(rounds.iter().map(figure));
    let _ = writeln!(
        text,
        "| {name} | {:.1} us | {:.1} us | {:.0} | {:.1} ms | {:.0} | {:.1} ms | {:.0} | {:.0} | \
         {:.2} | {known_ms:.2} ms | {unknown_ms:.2} ms |",
        of(|it| it.open_us),
        of(|it| it.login_us),
        of(|it| it.quiet.rate),
        of(|it| it.quiet.p99_ms),
        of(|it| it.flooded.rate),
        of(|it| it.flooded.p99_ms),
        of(|it| it.refused),
        of(|it| it.shed),
        of(|it| it.cores),
    );
}

/// The section that protects the closed page.
pub fn protection(users: &Path) -> String {
    format!(
        "<Location /closed>\nAuthType Basic\nAuthName closed\nAuthUserFile {}\n\
         Require valid-user\n</Location>\n",
        users.display()
    )
}

/// The Authorization field of the first user.
pub fn first_login() -> String {
    login("user0", &password(0))
}

/// Writes the file of users and the closed page, and returns the path of the file.
pub fn lay_out(site: &Site) -> Result<PathBuf> {
    let told = |error: std::io::Error| format!("{}: {error}", site.path().display());
    let mut text = String::new();
    for user in 0..USERS {
        // The salt has 22 digits of crypt(3).
        let setting = format!("$2y$10$abcdefghijklmnopqrst{user}.");
        let hash = crypt::hash(password(user).as_bytes(), setting.as_bytes())
            .ok_or("crypt(3) does not know bcrypt")?;
        let _ = writeln!(text, "user{user}:{}", String::from_utf8_lossy(&hash));
    }
    let users = site.path().join("users");
    fs::write(&users, text).map_err(told)?;
    let htdocs = site.path().join("htdocs");
    fs::create_dir_all(htdocs.join("closed")).map_err(told)?;
    fs::copy(htdocs.join("1k.png"), htdocs.join("closed/1k.png")).map_err(told)?;
    Ok(users)
}

fn password(user: usize) -> String {
    format!("password{user}")
}

/// The Authorization field of a user.
fn login(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
}

/// A connection that is kept, and opened again if the server closes it.
struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
    received: Vec<u8>,
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        Self { address, stream: None, received: Vec::new() }
    }

    /// Sends a request and returns the status of the response.
    fn ask(&mut self, path: &str, login: &str) -> std::io::Result<u16> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => TcpStream::connect(self.address)?,
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{login}\r\n");
        stream.write_all(request.as_bytes())?;
        self.received.clear();
        let mut part = [0; 4096];
        loop {
            let count = stream.read(&mut part)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.received.extend_from_slice(part.get(..count).unwrap_or_default());
            if let Some((status, keeps)) = whole(&self.received) {
                self.stream = keeps.then_some(stream);
                return Ok(status);
            }
        }
    }
}

/// The status of a response, and whether its connection is kept. `None` until its end has arrived.
fn whole(received: &[u8]) -> Option<(u16, bool)> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head) = response.parse(received).ok()? else { return None };
    let field = |name: &str| {
        let field = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        field.and_then(|field| std::str::from_utf8(field.value).ok())
    };
    let length = field("Content-Length").and_then(|text| text.parse().ok()).unwrap_or(0_usize);
    let keeps = field("Connection").is_none_or(|text| !text.eq_ignore_ascii_case("close"));
    (received.len() >= head + length).then_some((response.code?, keeps))
}

/// Keeps the calling thread, and the threads that it starts, on the core of the clients.
fn stay_on_client_core() {
    let _ = process::run_on(&[CLIENT_CORE]);
}

/// One turn: the cost of logins, then the flood.
fn turn(server: &Server, seconds: u64) -> Result<Figures> {
    let open_us = paced(server, OPEN, seconds)?;
    let login_us = paced(server, CLOSED, seconds)?;
    let quiet = load(server, seconds)?;
    let mut figures = Figures { open_us, login_us, quiet, ..Figures::default() };
    let (refused, shed, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (sent, begun) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for _ in 0..FLOOD_CONNECTIONS {
            scope.spawn(|| flood(server.address, begun, &sent, &is_over, [&refused, &shed]));
        }
        // The queue of the server fills.
        thread::sleep(Duration::from_secs(1));
        let before = (refused.load(Relaxed), shed.load(Relaxed), server.family.cpu_us());
        let measured = Instant::now();
        figures.flooded = match load(server, seconds) {
            Ok(load) => load,
            Err(text) => {
                is_over.store(true, Relaxed);
                return Err(text);
            }
        };
        let took_s = measured.elapsed().as_secs_f64();
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64 / took_s;
        figures.refused = since(refused.load(Relaxed), before.0);
        figures.shed = since(shed.load(Relaxed), before.1);
        figures.cores = since(server.family.cpu_us(), before.2) / 1e6;
        is_over.store(true, Relaxed);
        Ok(())
    })?;
    Ok(figures)
}

/// The CPU time of the server for each of the paced requests of all users, after their first ones.
/// A server that is slower than the pace serves fewer requests.
fn paced(server: &Server, path: &'static str, seconds: u64) -> Result<f64> {
    // Each process of a server has to hash each password once, and a connection ends after 100
    // requests.
    serve_users(server, path, WARMING)?;
    let before_us = server.family.cpu_us();
    let served = serve_users(server, path, Duration::from_secs(seconds))?;
    let spent_us = server.family.cpu_us().saturating_sub(before_us);
    Ok(spent_us as f64 / served.max(1) as f64)
}

/// Sends the paced requests of all users, and returns how many were served.
fn serve_users(server: &Server, path: &'static str, time: Duration) -> Result<u64> {
    let between = Duration::from_secs(USERS as u64) / RATE;
    let ask = |user: usize| {
        stay_on_client_core();
        let login = login(&format!("user{user}"), &password(user));
        let mut client = Client::new(server.address);
        let begun = Instant::now();
        let mut served = 0;
        while begun.elapsed() < time {
            let due = between * served;
            thread::sleep(due.saturating_sub(begun.elapsed()));
            let told = |error: std::io::Error| format!("{}: {path}: {error}", server.name);
            let status = client.ask(path, &login).map_err(told)?;
            if status != 200 {
                return Err(format!("{}: {path}: status {status}", server.name));
            }
            served += 1;
        }
        Ok(u64::from(served))
    };
    thread::scope(|scope| {
        let users: Vec<_> = (0..USERS).map(|user| scope.spawn(move || ask(user))).collect();
        let served = users.into_iter().map(|user| user.join().map_err(|_| "a client died")?);
        served.sum()
    })
}

/// Sends wrong passwords until the flood is over. All threads share the times at which one is due.
fn flood(
    address: SocketAddr,
    begun: Instant,
    sent: &AtomicU64,
    is_over: &AtomicBool,
    [refused, shed]: [&AtomicU64; 2],
) {
    stay_on_client_core();
    let mut client = Client::new(address);
    while !is_over.load(Relaxed) {
        let number = sent.fetch_add(1, Relaxed);
        let due = Duration::from_micros(number * 1_000_000 / FLOOD);
        thread::sleep(due.saturating_sub(begun.elapsed()));
        let user = format!("user{}", number % USERS as u64);
        match client.ask(CLOSED, &login(&user, &format!("wrong{number}"))) {
            Ok(401) => refused.fetch_add(1, Relaxed),
            Ok(_) => shed.fetch_add(1, Relaxed),
            Err(_) => 0,
        };
    }
}

/// Asks for the open page all the time, with wrk.
fn load(server: &Server, seconds: u64) -> Result<Load> {
    let mut command = Command::new("taskset");
    command.args(["-c", &CLIENT_CORE.to_string(), "wrk", "-t", "1", "--latency"]);
    command.arg("-c").arg(OPEN_CONNECTIONS.to_string());
    command.arg("-d").arg(format!("{seconds}s"));
    command.arg(format!("http://{}{OPEN}", server.address));
    let output = command.output().map_err(|error| format!("wrk: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| format!("{}: wrk said: {text}", server.name))
}

/// The rate and the 99th percentile in the report of wrk.
fn parse(text: &str) -> Option<Load> {
    let value = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name))?;
        line.split_whitespace().last()
    };
    let time = value("99%")?;
    let units = [("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 6e4)];
    let p99_ms = units.iter().find_map(|(unit, ms)| {
        time.strip_suffix(unit)?.parse::<f64>().ok().map(|number| number * ms)
    })?;
    Some(Load { rate: value("Requests/sec:")?.parse().ok()?, p99_ms })
}

/// The medians of the times until a wrong password of a user that exists, and of one that does not,
/// is refused. The tries alternate.
fn refusals(address: SocketAddr, tries: usize) -> Result<(f64, f64)> {
    let mut client = Client::new(address);
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for number in 0..tries {
        let names = [("user", &mut known), ("nobody", &mut unknown)];
        for (name, times) in names {
            let login = login(&format!("{name}{}", number % USERS), &format!("guess{number}"));
            let begun = Instant::now();
            match client.ask(CLOSED, &login).map_err(|error| format!("{address}: {error}"))? {
                401 => times.push(begun.elapsed().as_secs_f64() * 1e3),
                status => return Err(format!("{address}: a wrong password: status {status}")),
            }
        }
    }
    Ok((median(known.into_iter()), median(unknown.into_iter())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_base64() {
        assert_eq!(login("ann", "x?>"), "Authorization: Basic YW5uOng/Pg==\r\n");
    }

    #[test]
    fn a_response_ends_with_its_body() {
        let text = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab";
        assert_eq!(whole(text), Some((401, false)));
        assert_eq!(whole(&text[..text.len() - 1]), None);
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\n\r\n"), Some((200, true)));
    }

    #[test]
    fn the_latency_of_wrk_is_read() {
        let text = "  Latency Distribution\n     50%  361.00us\n     99%    1.25ms\n  \
                    9000 requests in 1.00s, 1MB read\nRequests/sec:  9000.50\n";
        let load = parse(text).unwrap();
        assert_eq!((load.rate, load.p99_ms), (9000.5, 1.25));
        let load = parse(&text.replace("1.25ms", "812.00us")).unwrap();
        assert!((load.p99_ms - 0.812).abs() < 1e-9);
        assert!(parse("unable to connect").is_none());
    }
}
