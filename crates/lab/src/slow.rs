//! Clients that are slow on purpose: heads and bodies that never end, responses that are read a few
//! bytes at a time. One thread keeps the connections slow until they are dropped, and counts what
//! becomes of them.

use evenkeel_sys::connect::{self, Local, Remote};
use evenkeel_sys::socket::Socket;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which connections are handled, and the shorter one for those that read more than
/// a window in that time.
const TICK: Duration = Duration::from_millis(100);
const SHORT_TICK: Duration = Duration::from_millis(10);
/// The time between two additions to a head or a body.
const DROP_EVERY: Duration = Duration::from_secs(10);
/// The smallest receive window in bytes, so that responses do not fill the client's memory.
const WINDOW: usize = 4096;
/// A window holds what is read in this many ticks. With less, a client would wait for the server,
/// and read more slowly the more clients there are.
const TICKS: f64 = 3.0;

/// The way in which a client is slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Manner {
    /// Its head never ends: a field is sent every ten seconds (slowloris).
    Head,
    /// Its body never ends: ten bytes are sent every ten seconds.
    Body,
    /// It reads its response at this many bytes a second.
    Read(f64),
}

impl Manner {
    /// The interval at which a client is handled.
    fn tick(self) -> Duration {
        match self {
            Self::Read(rate) if rate * TICK.as_secs_f64() > WINDOW as f64 => SHORT_TICK,
            _ => TICK,
        }
    }

    /// Its window in bytes.
    fn window(self) -> usize {
        match self {
            Self::Read(rate) if self.tick() == SHORT_TICK => {
                WINDOW.max((rate * SHORT_TICK.as_secs_f64() * TICKS) as usize)
            }
            _ => WINDOW,
        }
    }

    /// How many bytes a client may read, if it had `left` bytes `passed_s` seconds ago. It does not
    /// catch up on what it could not read: while it waits for its turn at the server, it is as slow
    /// as always when that comes.
    fn may_read(self, left: f64, passed_s: f64) -> f64 {
        let rate = if let Self::Read(rate) = self { rate } else { WINDOW as f64 };
        let most = rate * passed_s.max(self.tick().as_secs_f64()) * 2.0;
        (left + rate * passed_s).min(most.max(1.0))
    }
}

/// What became of slow clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// The connections that were made, including later ones of the same client.
    pub made: u64,
    /// The connections that the server closed, or whose response was read to its end.
    pub ended: u64,
    /// The clients that received any byte of a response.
    pub heard: u64,
    /// The bytes of responses.
    pub bytes: u64,
}

/// Slow clients, until [`Slow::end`].
pub struct Slow {
    stop: Sender<()>,
    bytes: Arc<AtomicU64>,
    thread: JoinHandle<Fate>,
}

impl Slow {
    /// Starts `count` clients that request `path` in this way. A client whose connection has ended
    /// sends its request again if `again` says so.
    ///
    /// # Errors
    ///
    /// The system denies the thread.
    pub fn begin(
        address: SocketAddr,
        manner: Manner,
        path: &str,
        count: usize,
        again: bool,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let bytes = Arc::new(AtomicU64::new(0));
        let clients = Clients {
            bytes: Arc::clone(&bytes),
            remote: Remote::Internet(address),
            manner,
            head: head(manner, path),
            again,
            all: (0..count).map(|_| Client::default()).collect(),
            fate: Fate::default(),
        };
        let named = std::thread::Builder::new().name("slow-clients".into());
        Ok(Self { stop, bytes, thread: named.spawn(move || clients.run(&stopped))? })
    }

    /// The bytes of responses received so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Ends them.
    #[must_use]
    pub fn end(self) -> Fate {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

fn head(manner: Manner, path: &str) -> Vec<u8> {
    let rest = match manner {
        Manner::Head => "",
        Manner::Body => "Content-Length: 1000000\r\n\r\n",
        Manner::Read(_) => "Connection: close\r\n\r\n",
    };
    let method = if manner == Manner::Body { "POST" } else { "GET" };
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{rest}").into_bytes()
}

struct Clients {
    remote: Remote,
    manner: Manner,
    head: Vec<u8>,
    again: bool,
    bytes: Arc<AtomicU64>,
    all: Vec<Client>,
    fate: Fate,
}

#[derive(Default)]
struct Client {
    socket: Option<Socket>,
    begun: bool,
    sent: usize,
    next_drop: Option<Instant>,
    /// The bytes that it may read now.
    may_read: f64,
    heard: bool,
}

impl Clients {
    fn run(mut self, stopped: &Receiver<()>) -> Fate {
        let mut last = Instant::now();
        loop {
            let now = Instant::now();
            for index in 0..self.all.len() {
                self.tend(index, now, (now - last).as_secs_f64());
            }
            last = now;
            if stopped.recv_timeout(self.manner.tick()) != Err(RecvTimeoutError::Timeout) {
                return self.fate;
            }
        }
    }

    fn tend(&mut self, index: usize, now: Instant, passed_s: f64) {
        let Some(client) = self.all.get_mut(index) else { return };
        if client.socket.is_none() && (!client.begun || self.again) {
            client.begun = true;
            let local = Local { window: Some(self.manner.window()), ..Local::default() };
            let Ok(socket) = connect::begin(&self.remote, &local) else { return };
            let heard = client.heard;
            *client = Client { socket: Some(socket), begun: true, heard, ..Client::default() };
            self.fate.made += 1;
        }
        let Some(socket) = &client.socket else { return };
        let mut over = false;
        if let Some(rest) = self.head.get(client.sent..).filter(|rest| !rest.is_empty()) {
            match socket.send(&[IoSlice::new(rest)], false) {
                Ok(count) => client.sent += count,
                Err(error) => over = is_over(&error),
            }
        } else if now >= *client.next_drop.get_or_insert(now + DROP_EVERY) {
            client.next_drop = Some(now + DROP_EVERY);
            let drop: &[u8] = match self.manner {
                Manner::Head => b"X-More: 1\r\n",
                Manner::Body => b"0123456789",
                Manner::Read(_) => b"",
            };
            if !drop.is_empty() {
                over = socket.send(&[IoSlice::new(drop)], false).is_err_and(|it| is_over(&it));
            }
        }
        client.may_read = self.manner.may_read(client.may_read, passed_s);
        let mut buffer = [0; WINDOW];
        while !over && client.may_read >= 1.0 {
            let most = (client.may_read as usize).min(WINDOW);
            match socket.receive(buffer.get_mut(..most).unwrap_or_default()) {
                Ok(0) => over = true,
                Ok(count) => {
                    client.may_read -= count as f64;
                    self.fate.bytes += count as u64;
                    self.bytes.store(self.fate.bytes, Relaxed);
                    self.fate.heard += u64::from(!std::mem::replace(&mut client.heard, true));
                }
                Err(error) => {
                    over = is_over(&error);
                    break;
                }
            }
        }
        if over {
            client.socket = None;
            self.fate.ended += 1;
        }
    }
}

/// Whether a connection is closed. One that is still being established is not.
fn is_over(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    #[test]
    fn a_client_reads_at_its_rate_and_makes_up_for_no_wait() {
        let fast = Manner::Read(2e6);
        // Three seconds without data: it continues at its rate.
        let waited = (0..300).fold(0.0, |left, _| fast.may_read(left, 0.01));
        assert!((20_000.0..=40_000.0).contains(&waited), "{waited}");
        // A late look loses nothing, and fractions of bytes add up.
        assert!(fast.may_read(0.0, 0.3) >= 600_000.0);
        assert!((0..50).fold(0.0, |left, _| Manner::Read(0.5).may_read(left, 0.1)) >= 1.0);
    }

    #[test]
    fn what_is_read_between_two_looks_is_less_than_a_window() {
        for rate in [50.0, 30_000.0, 1e6, 8e6] {
            let manner = Manner::Read(rate);
            assert!(rate * manner.tick().as_secs_f64() <= manner.window() as f64, "{rate}");
        }
        assert_eq!(Manner::Read(30_000.0).window(), WINDOW);
        assert_eq!((Manner::Head.tick(), Manner::Head.window()), (TICK, WINDOW));
    }

    #[test]
    fn a_slow_head_is_no_request_and_a_slow_reader_is_one() {
        for (manner, whole) in [(Manner::Head, false), (Manner::Read(1e6), true)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let slow = Slow::begin(listener.local_addr().unwrap(), manner, "/a", 1, false).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 200];
            let count = stream.read(&mut bytes).unwrap();
            assert!(bytes.starts_with(b"GET /a HTTP/1.1\r\nHost: localhost\r\n"));
            assert_eq!(bytes[..count].ends_with(b"\r\n\r\n"), whole, "{manner:?}");
            stream.write_all(b"answer").unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // The client receives the response and closes, which ends this read.
            while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
            let bytes = slow.bytes();
            let fate = slow.end();
            assert!(bytes <= fate.bytes);
            assert_eq!(fate, Fate { made: 1, ended: 1, heard: 1, bytes: 6 });
        }
    }
}
