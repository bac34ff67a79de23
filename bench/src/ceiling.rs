//! The ceiling: what this machine's kernel leaves of a request. A port and a size come in; one
//! answer in memory goes out, again and again, over a bare epoll loop with httparse and a Date
//! header. No files, no log, no configuration, no limits: it is no server.

use crate::Result;
use evenkeel_sys::{listen, socket};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use socket::Socket;
use std::collections::HashMap;
use std::io::{ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, SystemTime};

/// The token of the listening socket.
const LISTENER: u64 = u64::MAX;

/// What becomes of a connection after its bytes were looked at.
#[derive(PartialEq, Eq)]
enum After {
    Stay,
    Close,
}

/// Serves `PORT BYTES` until it is ended by a signal.
pub fn serve(arguments: &[String]) -> Result<()> {
    let [port, size] = arguments else { return Err("ceiling PORT BYTES".to_owned()) };
    let port: u16 = port.parse().map_err(|_| format!("{port}: a port is expected"))?;
    let size: usize = size.parse().map_err(|_| format!("{size}: a size is expected"))?;
    run(port, size).map_err(|error| format!("ceiling: {error}"))
}

fn run(port: u16, size: usize) -> std::io::Result<()> {
    let _ = evenkeel_sys::process::raise_descriptor_limit();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = listen::bind(address, listen::Options::default())?;
    listen::defer_accept(&listener, Duration::from_secs(30))?;
    listen::listen(&listener, 4096)?;
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&set, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut answers = Answers::new(size);
    let mut open: HashMap<RawFd, Socket> = HashMap::new();
    let mut events = Vec::with_capacity(256);
    loop {
        events.clear();
        match epoll::wait(&set, spare_capacity(&mut events), None) {
            // A tracer that attaches interrupts the wait.
            Err(rustix::io::Errno::INTR) => continue,
            result => result?,
        };
        answers.renew();
        for event in &events {
            let token = event.data.u64();
            if token == LISTENER {
                accept(&listener, set.as_fd(), &mut open, &mut answers)?;
                continue;
            }
            let number = RawFd::try_from(token).unwrap_or(-1);
            let after = open.get(&number).map(|socket| answers.answer(socket));
            if after == Some(After::Close) {
                open.remove(&number);
            }
        }
    }
}

/// Takes what waits; a first request is answered before the connection is watched.
fn accept(
    listener: &OwnedFd,
    set: BorrowedFd<'_>,
    open: &mut HashMap<RawFd, Socket>,
    answers: &mut Answers,
) -> std::io::Result<()> {
    for _ in 0..16 {
        let Ok((socket, _)) = socket::accept(listener) else { break };
        if answers.answer(&socket) == After::Stay {
            let number = socket.as_fd().as_raw_fd();
            let token = EventData::new_u64(u64::try_from(number).unwrap_or(0));
            epoll::add(set, &socket, token, EventFlags::IN)?;
            open.insert(number, socket);
        }
    }
    Ok(())
}

/// The answers, made once a second.
struct Answers {
    size: usize,
    second: u64,
    whole: Vec<u8>,
    last: Vec<u8>,
    unchanged: Vec<u8>,
    buffer: Vec<u8>,
}

impl Answers {
    fn new(size: usize) -> Self {
        let mut answers = Self {
            size,
            second: 0,
            whole: Vec::new(),
            last: Vec::new(),
            unchanged: Vec::new(),
            buffer: vec![0; 16 << 10],
        };
        answers.renew();
        answers
    }

    fn renew(&mut self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if now.as_secs() == self.second {
            return;
        }
        self.second = now.as_secs();
        let second = self.second % 60;
        // The same length as a true Date, and one that changes.
        let date = format!("Date: Thu, 01 Jan 2026 00:00:{second:02} GMT");
        let size = self.size;
        let both = format!("{date}\r\nServer: ceiling\r\nETag: \"1-2\"\r\n");
        let rest = format!(
            "{both}Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nAccept-Ranges: bytes\r\n\
             Content-Length: {size}\r\nContent-Type: text/html\r\n\r\n"
        );
        self.whole = format!("HTTP/1.1 200 OK\r\n{rest}").into_bytes();
        self.whole.resize(self.whole.len() + size, b'x');
        self.last = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{rest}").into_bytes();
        self.last.resize(self.last.len() + size, b'x');
        self.unchanged = format!("HTTP/1.1 304 Not Modified\r\n{both}\r\n").into_bytes();
    }

    /// Answers what came on a socket, if it is a whole request.
    fn answer(&mut self, socket: &Socket) -> After {
        let count = match socket.receive(&mut self.buffer) {
            Ok(0) => return After::Close,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return After::Stay,
            Err(_) => return After::Close,
        };
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        let bytes = self.buffer.get(..count).unwrap_or_default();
        if !matches!(request.parse(bytes), Ok(httparse::Status::Complete(_))) {
            return After::Close;
        }
        let mut after = After::Stay;
        let mut answer = &self.whole;
        for header in request.headers.iter() {
            if header.name.eq_ignore_ascii_case("connection") && header.value == b"close" {
                after = After::Close;
                answer = &self.last;
            } else if header.name.eq_ignore_ascii_case("if-none-match") {
                answer = &self.unchanged;
            }
        }
        if send_all(socket, answer).is_err() { After::Close } else { after }
    }
}

/// Sends all; where the kernel's buffer is full it waits for the client, as only a loop that
/// serves nobody else may.
fn send_all(socket: &Socket, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match socket.send(&[IoSlice::new(bytes)], false) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let poll = rustix::event::PollFd::new(socket, rustix::event::PollFlags::OUT);
                rustix::event::poll(&mut [poll], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
