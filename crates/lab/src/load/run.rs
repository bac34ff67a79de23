//! A run: threads that drive the clients of a plan. It can be started, observed, stopped and waited
//! for. Its figures are the sum of those of its threads.

use super::client::{Client, Ground};
use super::figures::{Figures, Handshakes, Second};
use super::plan::Plan;
use super::source::Source;
use super::thread::Thread;
use evenkeel_sys::epoll::Epoll;
use evenkeel_sys::signal::{Signal, Signals};
use evenkeel_sys::{clock, process};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The size of a read. Larger reads only use more cache.
const BUFFER: usize = 64 << 10;
/// How long it may take until ^C is noticed.
const GLANCE: Duration = Duration::from_millis(20);

/// A run in progress.
pub struct Run {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<Figures>>>,
}

/// A handle for observing and stopping a run.
#[derive(Clone)]
pub struct Live(Arc<Shared>);

/// What the threads of a run share.
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    pub(super) threads: usize,
    /// The number of requests that may still begin.
    left: Option<AtomicU64>,
    /// The seconds that were not yet collected, each thread's part separately.
    news: Mutex<Vec<Second>>,
    running: AtomicU64,
}

impl Shared {
    /// Whether another request may begin.
    pub(super) fn may_begin(&self) -> bool {
        self.left.as_ref().is_none_or(|left| {
            left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
        })
    }

    pub(super) fn tell(&self, second: &Second) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push(second.clone());
    }
}

impl Live {
    /// Ends the run. What is in progress is cut off.
    pub fn stop(&self) {
        self.0.stop.store(true, Relaxed);
    }

    /// Whether threads are still running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0.running.load(Relaxed) > 0
    }

    /// The parts of seconds that have ended since the last call, in no order. The caller adds parts
    /// of the same second.
    #[must_use]
    pub fn news(&self) -> Vec<Second> {
        std::mem::take(&mut *self.0.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Run {
    /// Starts the clients of a plan. `source` makes the requests of the client with a given number.
    ///
    /// # Errors
    ///
    /// The system denies a thread or an epoll set.
    pub fn start(plan: Plan, mut source: impl FnMut(u32) -> Box<dyn Source>) -> io::Result<Self> {
        let count = plan.threads.clamp(1, (plan.clients as usize).max(1));
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            threads: count,
            left: plan.bounds.requests.map(AtomicU64::new),
            news: Mutex::new(Vec::new()),
            running: AtomicU64::new(count as u64),
        });
        let plan = Arc::new(plan);
        let mut parts: Vec<Vec<Client>> = (0..count).map(|_| Vec::new()).collect();
        for number in 0..plan.clients {
            let client = Client::new(number, source(number), number == 0);
            if let Some(part) = parts.get_mut(number as usize % count) {
                part.push(client);
            }
        }
        let origin_ns = clock::monotonic_ns();
        let mut run = Self { shared: Arc::clone(&shared), threads: Vec::with_capacity(count) };
        for (number, clients) in parts.into_iter().enumerate() {
            let ground = Ground {
                plan: Arc::clone(&plan),
                epoll: Epoll::new()?,
                buffer: vec![0; BUFFER],
                origin_ns,
                connections: 0,
                sent_bytes: 0,
                read_bytes: 0,
                agreed: None,
                handshakes: Handshakes::default(),
            };
            let shared = Arc::clone(&shared);
            let drive = move || {
                // Pauses are a little longer if the kernel does not grant it.
                let _granted = process::least_timer_slack();
                let _ended = Ended(Arc::clone(&shared));
                Thread::new(ground, shared, clients, number as u64).run()
            };
            let named = std::thread::Builder::new().name(format!("load-{number}"));
            match named.spawn(drive) {
                Ok(thread) => run.threads.push(thread),
                Err(error) => {
                    run.shared.stop.store(true, Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(run)
    }

    /// A handle for observing the run.
    #[must_use]
    pub fn live(&self) -> Live {
        Live(Arc::clone(&self.shared))
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// A system error in one of the threads.
    pub fn wait(self) -> io::Result<Figures> {
        let mut parts = Vec::with_capacity(self.threads.len());
        for thread in self.threads {
            let ended = thread.join();
            parts.push(ended.map_err(|_| io::Error::other("a thread of the load has panicked"))??);
        }
        Ok(Figures::merge(parts))
    }
}

/// ^C, caught so that an interrupted run still reports.
pub struct Interrupt(Signals);

impl Interrupt {
    /// Catches it from now on. Call this before threads are created, which inherit the mask.
    ///
    /// # Errors
    ///
    /// The system denies the descriptor.
    pub fn catch() -> io::Result<Self> {
        Signals::catch(&[Signal::Interrupt, Signal::Terminate]).map(Self)
    }

    /// Makes it end a run.
    ///
    /// # Errors
    ///
    /// The system denies the thread that waits for it.
    pub fn stops(self, live: Live) -> io::Result<()> {
        let watch = move || {
            while live.is_running() {
                if self.0.next().is_some() {
                    live.stop();
                }
                std::thread::sleep(GLANCE);
            }
        };
        std::thread::Builder::new().name("interrupt".into()).spawn(watch).map(drop)
    }
}

/// Records that a thread has ended, for whatever reason.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Bounds, Exchange, Failure, Keep, Pace, Plan, Request, Same, Step, Stretch, Think, Timeouts,
    };
    use super::*;
    use bytes::Bytes;
    use evenkeel_sys::connect::{Local, Remote};
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};

    /// A server that answers each request of a connection with the bytes that `answer` returns for
    /// its path, and closes the connection if it returns none.
    fn serve(answer: impl Fn(&str) -> Option<String> + Clone + Send + 'static) -> Remote {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = Remote::Internet(listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let answer = answer.clone();
                std::thread::spawn(move || talk(&stream.unwrap(), answer));
            }
        });
        remote
    }

    fn talk(mut stream: &TcpStream, answer: impl Fn(&str) -> Option<String>) {
        let mut lines = BufReader::new(stream).lines();
        while let Some(Ok(line)) = lines.next() {
            let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let Some(text) = answer(&path) else { return };
            let sent = stream.write_all(text.as_bytes());
            if sent.is_err() || text.contains("Connection: close") {
                return;
            }
        }
    }

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

    fn request(path: &str) -> Arc<Request> {
        let bytes = Bytes::from(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        Arc::new(Request { bytes, ..Request::default() })
    }

    fn plan(remote: Remote, clients: u32, requests: u64) -> Plan {
        Plan {
            remotes: vec![remote],
            local: Local::default(),
            trust: None,
            threads: 2,
            clients,
            stretches: Vec::new(),
            pace: Pace::Greedy,
            keep: Keep::Kept,
            bounds: Bounds { requests: Some(requests), ..Bounds::default() },
            timeouts: Timeouts::default(),
            seed: 1,
            keep_exchanges: true,
            hear: false,
        }
    }

    fn run(plan: Plan, path: &str) -> Figures {
        let request = request(path);
        let run = Run::start(plan, |_| Box::new(Same(Arc::clone(&request)))).unwrap();
        run.wait().unwrap()
    }

    #[test]
    fn as_many_requests_are_made_as_were_asked_for() {
        let remote = serve(|_| Some(OK.to_owned()));
        let figures = run(plan(remote, 7, 1000), "/");
        assert_eq!((figures.answered(), figures.failed(), figures.body_bytes), (1000, 0, 5000));
        // If one thread gets a core late, the clients of the other may have made all requests.
        assert!((1..=7).contains(&figures.connections), "{}", figures.connections);
        assert_eq!(figures.connections + figures.reused, 1000);
        assert_eq!(figures.by_client.iter().sum::<u64>(), 1000);
        assert_eq!(figures.exchanges.len(), 1000);
        assert_eq!(figures.sample.unwrap().head, OK.as_bytes()[..38]);
        assert_eq!(figures.seconds.iter().map(|second| second.answered).sum::<u64>(), 1000);
        let seconds = figures.seconds.iter().map(|second| second.response.most_ns()).max().unwrap();
        let (whole, off) = (figures.times.response.max(), figures.times.response.max() / 50);
        assert!(seconds.abs_diff(whole) <= off, "{seconds} {whole}");
    }

    #[test]
    fn a_connection_may_be_for_one_request() {
        let close = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab";
        let remote = serve(move |_| Some(close.to_owned()));
        let figures = run(Plan { keep: Keep::Once, ..plan(remote, 3, 50) }, "/");
        assert_eq!((figures.answered(), figures.failed(), figures.connections), (50, 0, 50));
        let until_close = "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nabc";
        let remote = serve(move |_| Some(until_close.to_owned()));
        let figures = run(plan(remote, 3, 50), "/");
        assert_eq!((figures.answered(), figures.body_bytes, figures.reused), (50, 150, 0));
    }

    #[test]
    fn failures_are_told_by_kind_and_kept_out_of_the_times() {
        let bad = |text: &'static str, wanted: Failure| {
            let remote = serve(move |_| Some(text.to_owned()));
            let figures = run(plan(remote, 2, 4), "/");
            assert_eq!(figures.failures, [(wanted, 4)].into(), "{text}");
            assert_eq!((figures.answered(), figures.times.response.len()), (0, 0));
        };
        bad(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nab",
            Failure::Truncated,
        );
        bad("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", Failure::Malformed);
        bad("220 smtp\r\nConnection: close\r\n", Failure::Malformed);
        let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let figures = run(plan(Remote::Internet(refused), 1, 3), "/");
        assert_eq!(figures.failures, [(Failure::Refused, 3)].into());
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = Remote::Internet(silent.local_addr().unwrap());
        let timeouts = Timeouts { answer: Duration::from_millis(30), ..Timeouts::default() };
        let figures = run(Plan { timeouts, ..plan(remote, 1, 1) }, "/");
        assert_eq!(figures.failures, [(Failure::Timeout, 1)].into());
    }

    #[test]
    fn a_run_ends_with_the_first_failure_of_a_socket_where_that_is_wanted() {
        let bounds = Bounds { at_failure: true, ..Bounds::default() };
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let figures = run(Plan { bounds, ..plan(Remote::Internet(gone), 1, 0) }, "/");
        assert_eq!(figures.failures, [(Failure::Refused, 1)].into());
        let bounds = Bounds { requests: Some(3), ..bounds };
        let figures = run(Plan { bounds, ..plan(serve(|_| None), 1, 0) }, "/");
        assert_eq!(figures.failures, [(Failure::Truncated, 3)].into());
    }

    #[test]
    fn an_open_loop_counts_from_when_requests_were_to_begin() {
        let remote = serve(|_| Some(OK.to_owned()));
        let pace = Pace::Open { rate: 2000.0, even: true };
        // The arrivals of two threads form one even stream. Which thread makes the last requests is
        // not known, so only the first ones are compared.
        let figures = run(Plan { pace, ..plan(remote, 2, 200) }, "/");
        assert_eq!(figures.answered(), 200);
        let mut intended: Vec<u64> = figures.exchanges.iter().map(|it| it.intended_ns).collect();
        intended.sort_unstable();
        intended.truncate(50);
        for (number, intended_ns) in intended.iter().enumerate() {
            assert_eq!(*intended_ns, (number as u64 + 1) * 500_000);
        }
        assert!(figures.exchanges.iter().all(|it| it.start_ns >= it.intended_ns));
    }

    #[test]
    fn clients_think_and_visit() {
        let remote = serve(|_| Some(OK.to_owned()));
        let pace = Pace::Think(Think::Fixed(0.002));
        let figures = run(Plan { pace, ..plan(remote.clone(), 2, 20) }, "/");
        assert_eq!((figures.answered(), figures.times.pause.len()), (20, 18));
        assert!(figures.times.pause.min() >= 1_990_000);
        let pace = Pace::PartlyOpen { rate: 1000.0, requests: 3.0, think: Think::None };
        let figures = run(Plan { pace, ..plan(remote, 4, 300) }, "/");
        let visits = figures.connections;
        assert!(figures.answered() == 300 && (50..200).contains(&visits), "{visits}");
    }

    #[test]
    fn stretches_bring_clients_in_and_send_them_away() {
        let remote = serve(|_| Some(OK.to_owned()));
        let stretch = |from_s, clients| Stretch { from_s, clients, ramp: false };
        let stretches = vec![stretch(0.0, 1), stretch(0.1, 3), stretch(0.2, 0)];
        let bounds = Bounds { time: Some(Duration::from_millis(300)), ..Bounds::default() };
        let figures = run(Plan { stretches, bounds, ..plan(remote, 3, 0) }, "/");
        assert!(figures.by_client.iter().all(|count| *count > 0));
        let late = |it: &&Exchange| it.client > 0 && it.start_ns < 100_000_000;
        assert_eq!(figures.exchanges.iter().filter(late).count(), 0);
        assert!(figures.exchanges.iter().all(|it| it.start_ns < 200_000_000));
        // A step that begins with a second does not affect the second before.
        let stretches = vec![stretch(0.0, 3), stretch(1.0, 0)];
        let bounds = Bounds { time: Some(Duration::from_millis(1100)), ..Bounds::default() };
        let figures = run(Plan { stretches, bounds, ..plan(serve(|_| None), 3, 0) }, "/");
        let clients: Vec<u32> = figures.seconds.iter().map(|second| second.clients).collect();
        assert_eq!(clients, [3, 0]);
    }

    #[test]
    fn a_client_that_comes_back_pauses_as_long_as_it_is_to() {
        let remote = serve(|_| Some(OK.to_owned()));
        let stretch = |from_s, clients| Stretch { from_s, clients, ramp: false };
        // It leaves during its pause, and is back before the pause would have been over.
        let stretches = vec![stretch(0.0, 1), stretch(0.06, 0), stretch(0.12, 1)];
        let pace = Pace::Think(Think::Fixed(0.25));
        let figures = run(Plan { stretches, pace, ..plan(remote, 1, 4) }, "/");
        assert_eq!(figures.answered(), 4);
        // It comes back like a new client, so this was not a pause.
        let pauses = &figures.times.pause;
        assert!(pauses.min() >= 249_000_000 && pauses.len() <= 3, "{}", pauses.min());
        let begins: Vec<u64> = figures.exchanges.iter().map(|it| it.start_ns).collect();
        let early = |pair: &[u64]| pair[1] - pair[0] < 249_000_000;
        assert!(!begins[1..].windows(2).any(early), "{begins:?}");
    }

    /// Sends two requests at given times.
    struct Two(u64);

    impl Source for Two {
        fn next(&mut self, _: u64) -> Step {
            self.0 += 1;
            match self.0 {
                1 => Step::Wait(5_000_000),
                2 => Step::SendAt(9_000_000, request("/two")),
                _ => Step::Over,
            }
        }
    }

    #[test]
    fn a_source_has_its_own_times() {
        let remote = serve(|_| Some(OK.to_owned()));
        let bounds = Bounds::default();
        let plan = Plan { bounds, ..plan(remote, 1, 0) };
        let figures = Run::start(plan, |_| Box::new(Two(0))).unwrap().wait().unwrap();
        let only = figures.exchanges[0];
        assert!(figures.exchanges.len() == 1 && only.intended_ns == 9_000_000);
        assert!(only.start_ns >= 9_000_000);
    }
}
