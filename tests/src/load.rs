//! Clients for tests of faults, which count the requests that are sent, answered and lost. A
//! request is lost if it was sent on an open connection and not answered completely, for whatever
//! reason.

use crate::answer::{Parsed, Response, parse};
use crate::house::PATIENCE;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// The request of all clients, for the small file.
pub const REQUEST: &[u8] = b"GET /small.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Clients that send requests all the time.
pub struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Tally>>,
}

/// What became of the requests of some clients.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of complete responses with status 200.
    pub answered: u64,
    /// The lost requests, with the client's port and what happened.
    pub lost: Vec<(u16, String)>,
    /// How often no connection could be made.
    pub refused: u64,
}

impl Load {
    /// Starts `count` clients. Each keeps its connection, or makes a new one for every request.
    pub fn start(address: SocketAddr, count: usize, keep: bool) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicU64::new(0));
        let client = |_| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            std::thread::spawn(move || ask_on(address, keep, &stop, &answered))
        };
        let clients = (0..count).map(client).collect();
        Load { stop, answered, clients }
    }

    /// The number of answered requests so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Ends the clients when their last requests are answered.
    pub fn stop(self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        for client in self.clients {
            match client.join() {
                Ok(tally) => {
                    all.answered += tally.answered;
                    all.refused += tally.refused;
                    all.lost.extend(tally.lost);
                }
                Err(_) => all.lost.push((0, "a client ended badly".to_owned())),
            }
        }
        all
    }
}

/// One client: sends requests until it is stopped, and reconnects when a connection ends.
fn ask_on(address: SocketAddr, keep: bool, stop: &AtomicBool, answered: &AtomicU64) -> Tally {
    let mut tally = Tally::default();
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = connect(address) else {
            tally.refused += 1;
            continue;
        };
        let port = stream.local_addr().map_or(0, |address| address.port());
        while !stop.load(Ordering::Relaxed) {
            match exchange(&mut stream, REQUEST) {
                Ok(ends) => {
                    tally.answered += 1;
                    answered.fetch_add(1, Ordering::Relaxed);
                    if ends || !keep {
                        break;
                    }
                }
                Err(reason) => {
                    tally.lost.push((port, reason));
                    break;
                }
            }
        }
    }
    tally
}

/// A connection whose reads and writes have time-outs.
pub fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let told = |error: std::io::Error| error.to_string();
    let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(told)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(told)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(told)?;
    stream.set_nodelay(true).map_err(told)?;
    Ok(stream)
}

/// Sends a request and reads its response, which must be a complete 200. Returns whether the server
/// closes the connection after it.
pub fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<bool, String> {
    stream.write_all(request).map_err(|error| format!("sending: {error}"))?;
    let mut bytes = Vec::new();
    let mut part = [0_u8; 4096];
    loop {
        let count = match stream.read(&mut part) {
            // In a process that was stopped and continues, a read with a time-out fails with this
            // error.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.map_err(|error| format!("reading: {error}"))?,
        };
        bytes.extend_from_slice(part.get(..count).unwrap_or_default());
        match parse(&bytes, false, count == 0) {
            Parsed::Whole(response, _) if response.status() == 200 => {
                let ends = |value: &str| value.eq_ignore_ascii_case("close");
                return Ok(response.header("Connection").is_some_and(ends));
            }
            Parsed::Whole(response, _) => return Err(response.status_line),
            Parsed::Part if count == 0 => {
                return Err(format!("the connection ended after {} bytes", bytes.len()));
            }
            Parsed::Part => {}
        }
    }
}

/// Checks that a new client is answered.
pub fn probe(address: SocketAddr) -> Result<(), String> {
    let mut stream = connect(address)?;
    exchange(&mut stream, REQUEST).map(|_| ())
}

/// Sends a request for a path on a connection of its own, which ends with the response.
pub fn ask(address: SocketAddr, target: &str) -> Result<TcpStream, String> {
    let mut stream = connect(address)?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|error| format!("sending: {error}"))?;
    Ok(stream)
}

/// The response to it, even if it is an error.
pub fn answer(mut stream: TcpStream) -> Result<Response, String> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_err(|error| format!("reading: {error}"))?;
    match parse(&bytes, false, true) {
        Parsed::Whole(response, _) => Ok(response),
        Parsed::Part => Err(format!("no response: {}", String::from_utf8_lossy(&bytes))),
    }
}

/// The body of the response for a path.
pub fn text(address: SocketAddr, target: &str) -> Result<String, String> {
    let response = answer(ask(address, target)?)?;
    String::from_utf8(response.body).map_err(|error| error.to_string())
}
