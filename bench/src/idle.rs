//! Idle keep-alive connections: opens connections to a running server, sends one request on each,
//! leaves them open, and measures the memory that each takes.

use crate::Result;
use evenkeel_lab::peers::Server;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The connections that are opened before memory is first measured, so that what a server allocates
/// once is not counted.
const WARM: usize = 2_000;

/// The cost of idle connections.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// The connections that were still open at the end.
    pub open: usize,
    /// The user memory of the server, in bytes for each connection.
    pub user_bytes: f64,
    /// The slab memory of the kernel for both ends, in bytes for each connection.
    pub kernel_bytes: f64,
}

/// Opens `count` connections, and measures the memory of the server before and after.
pub fn hold(server: &Server, path: &str, count: usize) -> Result<Held> {
    let _ = evenkeel_sys::process::raise_descriptor_limit();
    let mut connections = Vec::with_capacity(count + WARM);
    for _ in 0..WARM {
        connections.push(open(server.address, path)?);
    }
    let before = (server.family.memory_bytes(), slab_bytes());
    for _ in 0..count {
        // Stop if the server accepts no more.
        match open(server.address, path) {
            Ok(connection) => connections.push(connection),
            Err(_) => break,
        }
    }
    let after = (server.family.memory_bytes(), slab_bytes());
    let open = connections.iter().skip(WARM).filter(|connection| is_open(connection)).count();
    let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / open.max(1) as f64;
    Ok(Held { open, user_bytes: each(before.0, after.0), kernel_bytes: each(before.1, after.1) })
}

fn open(address: SocketAddr, path: &str) -> Result<TcpStream> {
    let told = |error: std::io::Error| format!("{address}: {error}");
    let mut stream = TcpStream::connect(address).map_err(told)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(told)?;
    // Sent with one call, because the ceiling does not wait for the rest of a request.
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(told)?;
    let mut answer = Vec::with_capacity(2048);
    let mut part = [0_u8; 2048];
    loop {
        match stream.read(&mut part).map_err(told)? {
            0 => return Err(format!("{address}: closed early")),
            count => answer.extend_from_slice(part.get(..count).unwrap_or_default()),
        }
        if is_whole(&answer) {
            return Ok(stream);
        }
    }
}

/// Whether the head and the announced body have arrived.
fn is_whole(answer: &[u8]) -> bool {
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let text = String::from_utf8_lossy(answer.get(..head).unwrap_or_default()).to_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    answer.len() >= head + 4 + length.unwrap_or(0)
}

/// Whether the peer has neither closed nor reset the connection.
fn is_open(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    matches!(stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn slab_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Slab:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_body() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert!(is_whole(answer));
        assert!(!is_whole(&answer[..answer.len() - 1]));
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\n"));
    }
}
