//! An application for servers that cannot wait or burn CPU time by themselves. `/wait?ms=N` is
//! answered after N milliseconds. `/burn?ms=N` is answered after N milliseconds of CPU time, which
//! as many threads as cores spend in turn. Waiting needs no thread, however many requests wait, so
//! the application never limits the load before the server does. It stops when it is dropped.

use evenkeel_sys::epoll::{Epoll, Events};
use evenkeel_sys::{clock, listen, process};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The tokens of the listening socket and of the pipe that wakes the loop.
const LISTENER: u64 = 0;
const WAKE: u64 = 1;
/// A longer head does not come from a server that forwards this lab's requests.
const MOST_HEAD: usize = 16 << 10;
/// The bound of the accept queue.
const BACKLOG: u32 = 4096;
/// The rounds of arithmetic between two readings of the clock.
const ROUNDS: u64 = 2_000;

/// A running application.
#[derive(Debug)]
pub struct Backend {
    /// The address where it listens.
    pub address: SocketAddr,
    // Dropping it ends the loop.
    wake: Option<UnixStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Backend {
    /// Starts the application on these cores, or on all cores if the list is empty.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn start(cores: &[usize]) -> io::Result<Self> {
        let listener = listen::bind((Ipv4Addr::LOCALHOST, 0).into(), listen::Options::default())?;
        listen::listen(&listener, BACKLOG)?;
        let listener = TcpListener::from(listener);
        let address = listener.local_addr()?;
        let (wake, woken) = UnixStream::pair()?;
        let (jobs, taken) = channel();
        let (done, results) = channel();
        let serving = Serving::new(listener, woken, jobs, results)?;
        let taken = Arc::new(Mutex::new(taken));
        let burners = if cores.is_empty() { process::usable_cores() } else { cores.len() };
        let mut threads = Vec::new();
        for _ in 0..burners.max(1) {
            let (taken, done, tell) = (Arc::clone(&taken), done.clone(), wake.try_clone()?);
            let run = move || burn_all(&taken, &done, &tell);
            threads.push(on(cores, "lab-burner", run)?);
        }
        threads.push(on(cores, "lab-backend", move || serving.run())?);
        Ok(Self { address, wake: Some(wake), threads })
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(wake) = self.wake.take() {
            // The threads that burn hold clones, so that dropping it would not end the loop.
            let _heard = wake.shutdown(std::net::Shutdown::Both);
        }
        for thread in self.threads.drain(..).rev() {
            let _ended = thread.join();
        }
    }
}

fn on(
    cores: &[usize],
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let cores = cores.to_vec();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if !cores.is_empty() {
            // It also works on other cores, and the report says how the cores are divided.
            let _granted = process::run_on(&cores);
        }
        run();
    })
}

/// A request that burns: its token and its time.
type Job = (u64, Duration);

fn burn_all(jobs: &Mutex<Receiver<Job>>, done: &Sender<u64>, tell: &UnixStream) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((token, time)) = next else { return };
        let until_us = clock::thread_cpu_us() + u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut number = until_us;
        while clock::thread_cpu_us() < until_us {
            for _ in 0..ROUNDS {
                number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) + 1);
            }
        }
        let mut tell = tell;
        if done.send(token).is_err() || tell.write_all(&[0]).is_err() {
            return;
        }
    }
}

/// The state of the loop.
struct Serving {
    listener: TcpListener,
    epoll: Epoll,
    woken: UnixStream,
    jobs: Sender<Job>,
    results: Receiver<u64>,
    connections: HashMap<u64, Connection>,
    next: u64,
    timers: BinaryHeap<Reverse<(u64, u64)>>,
}

struct Connection {
    stream: TcpStream,
    head: Vec<u8>,
    /// Whether its request is being processed. Further bytes wait until then.
    busy: bool,
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Wait(Duration),
    Burn(Duration),
    Unknown,
}

impl Serving {
    fn new(
        listener: TcpListener,
        woken: UnixStream,
        jobs: Sender<Job>,
        results: Receiver<u64>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        woken.set_nonblocking(true)?;
        epoll.add(&listener, LISTENER)?;
        epoll.add(&woken, WAKE)?;
        let (connections, timers) = (HashMap::new(), BinaryHeap::new());
        Ok(Self { listener, epoll, woken, jobs, results, connections, next: WAKE + 1, timers })
    }

    fn run(mut self) {
        let mut events = Events::with_capacity(256);
        let _granted = process::least_timer_slack();
        loop {
            let now_ns = clock::monotonic_ns();
            while let Some(Reverse((due, token))) = self.timers.peek().copied() {
                if due > now_ns {
                    break;
                }
                self.timers.pop();
                self.answer(token, "200 OK", "waited\n");
            }
            let next = self.timers.peek().map(|Reverse((due, _))| due.saturating_sub(now_ns));
            if self.epoll.wait(&mut events, next.map(Duration::from_nanos)).is_err() {
                return;
            }
            let mut at = 0;
            while let Some(ready) = events.at(at) {
                at += 1;
                match ready.token {
                    LISTENER => self.accept(),
                    WAKE if !self.take_results() => return,
                    WAKE => {}
                    token => self.read(token),
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let token = self.next;
            let set = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
            if set.and_then(|()| self.epoll.add(&stream, token)).is_ok() {
                self.next += 1;
                let connection = Connection { stream, head: Vec::new(), busy: false };
                let _new = self.connections.insert(token, connection);
            }
        }
    }

    /// Answers the requests whose burning is complete. Returns whether the loop continues.
    fn take_results(&mut self) -> bool {
        let mut bytes = [0; 256];
        let ended = loop {
            match self.woken.read(&mut bytes) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                Err(_) => break true,
            }
        };
        while let Ok(token) = self.results.try_recv() {
            self.answer(token, "200 OK", "burned\n");
        }
        !ended
    }

    fn read(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let mut bytes = [0; 4096];
        loop {
            match connection.stream.read(&mut bytes) {
                Ok(count) if count > 0 && connection.head.len() <= MOST_HEAD => {
                    connection.head.extend_from_slice(bytes.get(..count).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => {
                    let _gone = self.connections.remove(&token);
                    return;
                }
            }
        }
        self.begin(token);
    }

    /// Begins the next request, if it is complete and none is in progress.
    fn begin(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let end = connection.head.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end.filter(|_| !connection.busy) else { return };
        let head: Vec<u8> = connection.head.drain(..end + 4).collect();
        connection.busy = true;
        match asked(&head) {
            Asked::Wait(time) => {
                let wait_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                let due = clock::monotonic_ns().saturating_add(wait_ns);
                self.timers.push(Reverse((due, token)));
            }
            Asked::Burn(time) => {
                // The threads live as long as the loop.
                let _taken = self.jobs.send((token, time));
            }
            Asked::Unknown => self.answer(token, "404 Not Found", ""),
        }
    }

    fn answer(&mut self, token: u64, status: &str, body: &str) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        connection.busy = false;
        let length = body.len();
        let kind = "Content-Type: text/plain\r\nContent-Length:";
        let text = format!("HTTP/1.1 {status}\r\n{kind} {length}\r\n\r\n{body}");
        // A client that does not take two hundred bytes at once does not read at all.
        if connection.stream.write_all(text.as_bytes()).is_err() {
            let _gone = self.connections.remove(&token);
            return;
        }
        self.begin(token);
    }
}

/// What the first line of a head asks for.
fn asked(head: &[u8]) -> Asked {
    let head = String::from_utf8_lossy(head);
    let target = head.split(' ').nth(1).unwrap_or_default();
    let parsed = target.split_once("?ms=").and_then(|(path, ms)| {
        let digits: String = ms.chars().take_while(char::is_ascii_digit).collect();
        Some((path, Duration::from_millis(digits.parse().ok()?)))
    });
    match parsed {
        Some(("/wait", time)) => Asked::Wait(time),
        Some(("/burn", time)) => Asked::Burn(time),
        _ => Asked::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};

    fn ask(stream: &TcpStream, target: &str) -> String {
        let mut writer = stream;
        writer.write_all(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut text = String::new();
        loop {
            let before = text.len();
            reader.read_line(&mut text).unwrap();
            if text[before..] == *"\r\n" {
                break;
            }
        }
        let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        text + &String::from_utf8(body).unwrap()
    }

    #[test]
    fn a_kept_connection_waits_and_burns() {
        let backend = Backend::start(&[]).unwrap();
        let stream = TcpStream::connect(backend.address).unwrap();
        assert!(ask(&stream, "/wait?ms=1").ends_with("\r\n\r\nwaited\n"));
        assert!(ask(&stream, "/burn?ms=1&n=7").ends_with("\r\n\r\nburned\n"));
        assert!(ask(&stream, "/").starts_with("HTTP/1.1 404 "));
        let waits: Vec<TcpStream> =
            (0..50).map(|_| TcpStream::connect(backend.address).unwrap()).collect();
        for mut wait in &waits {
            wait.write_all(b"GET /wait?ms=3600000 HTTP/1.1\r\n\r\n").unwrap();
        }
        // A client that waits for an hour does not delay others.
        assert!(ask(&stream, "/wait?ms=0").ends_with("waited\n"));
    }

    #[test]
    fn what_is_asked_is_read_from_the_first_line() {
        let wait = Asked::Wait(Duration::from_millis(20));
        assert_eq!(asked(b"GET /wait?ms=20 HTTP/1.1\r\n\r\n"), wait);
        assert_eq!(asked(b"GET /wait?ms=x HTTP/1.1\r\n\r\n"), Asked::Unknown);
        assert_eq!(asked(b"GET /burn HTTP/1.1\r\n\r\n"), Asked::Unknown);
    }
}
