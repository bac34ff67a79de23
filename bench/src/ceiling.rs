//! The ceiling: a bare epoll loop with httparse and a Date header that sends one response from
//! memory, which shows what the kernel alone costs for a request. It can answer each request after
//! a given time. It has no files, no log, no configuration and no limits, and is not a usable
//! server.

use crate::Result;
use evenkeel_sys::{listen, socket};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use socket::Socket;
use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant, SystemTime};

/// The token of the listening socket.
const LISTENER: u64 = u64::MAX;

/// What to do with a connection after its bytes were examined.
#[derive(PartialEq, Eq)]
enum After {
    Stay,
    Close,
}

/// The response to a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Whole,
    Last,
    Unchanged,
}

/// Serves `PORT BYTES WAIT_MS` until a signal ends it.
pub fn serve(arguments: &[String]) -> Result<()> {
    let [port, size, wait_ms] = arguments else {
        return Err("ceiling PORT BYTES WAIT_MS".to_owned());
    };
    let port: u16 = port.parse().map_err(|_| format!("{port}: a port is expected"))?;
    let size: usize = size.parse().map_err(|_| format!("{size}: a size is expected"))?;
    let wait = wait_ms.parse().map(Duration::from_millis);
    let wait = wait.map_err(|_| format!("{wait_ms}: milliseconds are expected"))?;
    run(port, size, wait).map_err(|error| format!("ceiling: {error}"))
}

fn run(port: u16, size: usize, wait: Duration) -> std::io::Result<()> {
    let _ = evenkeel_sys::process::raise_descriptor_limit();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = listen::bind(address, listen::Options::default())?;
    listen::defer_accept(&listener, Duration::from_secs(30))?;
    listen::listen(&listener, 4096)?;
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&set, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut open = Open { wait, answers: Answers::new(size), ..Open::default() };
    let mut events = Vec::with_capacity(256);
    loop {
        events.clear();
        let patience = open.patience();
        match epoll::wait(&set, spare_capacity(&mut events), patience.as_ref()) {
            // A tracer that attaches interrupts the wait.
            Err(rustix::io::Errno::INTR) => continue,
            result => result?,
        };
        open.answers.renew();
        for event in &events {
            let token = event.data.u64();
            if token == LISTENER {
                open.accept(&listener, set.as_fd())?;
            } else {
                open.read(RawFd::try_from(token).unwrap_or(-1));
            }
        }
        open.answer_due();
    }
}

/// The connections, and the waiting requests in order.
#[derive(Default)]
struct Open {
    wait: Duration,
    answers: Answers,
    /// By descriptor, with a number that is unique to the connection.
    sockets: HashMap<RawFd, (Socket, u64)>,
    accepted: u64,
    line: VecDeque<(Instant, RawFd, u64, Which)>,
}

impl Open {
    /// The time until the next response is due; none if no request waits.
    fn patience(&self) -> Option<Timespec> {
        let (due, ..) = self.line.front()?;
        Timespec::try_from(due.saturating_duration_since(Instant::now())).ok()
    }

    /// Accepts the waiting connections. The first request is read before the connection is watched.
    fn accept(&mut self, listener: &OwnedFd, set: BorrowedFd<'_>) -> std::io::Result<()> {
        for _ in 0..16 {
            let Ok((socket, _)) = socket::accept(listener) else { break };
            let number = socket.as_fd().as_raw_fd();
            let token = EventData::new_u64(u64::try_from(number).unwrap_or(0));
            self.accepted += 1;
            self.sockets.insert(number, (socket, self.accepted));
            self.read(number);
            if let Some((socket, _)) = self.sockets.get(&number) {
                epoll::add(set, socket, token, EventFlags::IN)?;
            }
        }
        Ok(())
    }

    /// Reads a request, and answers it or makes it wait.
    fn read(&mut self, number: RawFd) {
        let Some((socket, id)) = self.sockets.get(&number) else { return };
        match self.answers.read(socket) {
            Ok(Some(which)) if self.wait.is_zero() => self.answer(number, which),
            Ok(Some(which)) => {
                self.line.push_back((Instant::now() + self.wait, number, *id, which));
            }
            Ok(None) => {}
            Err(Gone) => {
                self.sockets.remove(&number);
            }
        }
    }

    fn answer(&mut self, number: RawFd, which: Which) {
        let Some((socket, _)) = self.sockets.get(&number) else { return };
        if self.answers.send(socket, which) == After::Close {
            self.sockets.remove(&number);
        }
    }

    /// Answers the requests that have waited long enough.
    fn answer_due(&mut self) {
        if self.line.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((due, number, id, which)) = self.line.front().copied()
            && due <= now
        {
            self.line.pop_front();
            // By now the descriptor may belong to another connection.
            if self.sockets.get(&number).is_some_and(|(_, own)| *own == id) {
                self.answer(number, which);
            }
        }
    }
}

/// The client has closed the connection, or sent something that is not a request.
struct Gone;

/// The responses, which are made once a second.
#[derive(Default)]
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
        // Has the length of a real Date, and changes.
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

    /// Reads from a socket. Returns the response to send if there is a complete request.
    fn read(&mut self, socket: &Socket) -> std::result::Result<Option<Which>, Gone> {
        let count = match socket.receive(&mut self.buffer) {
            Ok(0) => return Err(Gone),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(_) => return Err(Gone),
        };
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        let bytes = self.buffer.get(..count).unwrap_or_default();
        if !matches!(request.parse(bytes), Ok(httparse::Status::Complete(_))) {
            return Err(Gone);
        }
        let mut which = Which::Whole;
        for header in request.headers.iter() {
            if header.name.eq_ignore_ascii_case("connection") && header.value == b"close" {
                which = Which::Last;
            } else if header.name.eq_ignore_ascii_case("if-none-match") {
                which = Which::Unchanged;
            }
        }
        Ok(Some(which))
    }

    fn send(&self, socket: &Socket, which: Which) -> After {
        let answer = match which {
            Which::Whole => &self.whole,
            Which::Last => &self.last,
            Which::Unchanged => &self.unchanged,
        };
        let sent = send_all(socket, answer);
        if sent.is_err() || which == Which::Last { After::Close } else { After::Stay }
    }
}

/// Sends everything. If the kernel's buffer is full it waits for the client, which a real server
/// must not do.
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
