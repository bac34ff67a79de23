//! Connections end to end: the event model, a worker and a site of fixed answers, with clients
//! that are blocking sockets. Named after what is asked of a connection.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]
#![allow(clippy::print_stderr, reason = "a test")]

mod stub;
#[path = "../../mpm/tests/support/mod.rs"]
mod support;

use evenkeel_conn::{Connections, ReadTime, Settings, SlowBytes, Workplace};
use evenkeel_mpm::event::serve_with;
use evenkeel_scoreboard::{ChildLine, Counter, Scoreboard, Slots};
use evenkeel_sys::channel::Channel;
use evenkeel_sys::connect::{self, Local, Remote};
use evenkeel_sys::listen;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use support::Parent;

struct Running {
    address: SocketAddr,
    wire: Channel,
    line: ChildLine,
    board: Scoreboard,
    log: Arc<Mutex<Vec<String>>>,
    /// What `/file` serves.
    file: std::fs::File,
    /// Where `/flood` waits.
    barrier: Arc<Barrier>,
    thread: JoinHandle<io::Result<()>>,
}

impl Running {
    fn start(settings: Settings) -> Self {
        Self::with_credits(settings, 8)
    }

    fn with_credits(settings: Settings, credits: usize) -> Self {
        Self::with_options(settings, credits, listen::Options::default())
    }

    fn with_options(settings: Settings, credits: usize, options: listen::Options) -> Self {
        let (setup, parent) = support::child_at(options, 1, credits);
        let Parent { address, wire, board, .. } = parent;
        let (line, slots) = (setup.line, Slots::new(board, 0, credits));
        let log = Arc::<Mutex<Vec<String>>>::default();
        let shared = Arc::clone(&log);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'f'; 16 << 20]).unwrap();
        // Room for two of the stub's pages.
        let slow_bytes = SlowBytes::new(40 << 20);
        let shared_file = file.try_clone().unwrap();
        let file = Arc::new(file.into());
        let barrier = Arc::new(Barrier::new(2));
        let shared_barrier = Arc::clone(&barrier);
        let thread = std::thread::spawn(move || {
            serve_with(setup, |context| {
                let mut site = stub::Stub::new(settings.clone(), Arc::clone(&shared));
                site.file = Some(Arc::clone(&file));
                site.line = Some(line);
                site.barrier = Some(Arc::clone(&shared_barrier));
                let place = Workplace {
                    gate: context.gate,
                    bulkhead: Arc::clone(context.blocking_pool.bulkhead()),
                    slots: Some(slots),
                    client_wait: None,
                    permits: None,
                    line,
                    ports: Arc::from([address]),
                    addresses: Arc::default(),
                    slow_bytes: Arc::clone(&slow_bytes),
                    handshakes: SlowBytes::new(SlowBytes::USUAL),
                    long_steps: None,
                };
                stub::Adapter(Connections::new(site, place))
            })
        });
        Self { address, wire, line, board, log, file: shared_file, barrier, thread }
    }

    fn connect(&self) -> TcpStream {
        self.connect_with(None)
    }

    /// A client whose system takes no more than `window` ahead of it.
    fn connect_with(&self, window: Option<usize>) -> TcpStream {
        let local = Local { window, ..Local::default() };
        let socket = connect::begin(&Remote::Internet(self.address), &local).unwrap();
        let stream = TcpStream::from(socket.into_descriptor());
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Ends the child and gives its log.
    fn end(self) -> Vec<String> {
        // It may have ended already.
        let _ = self.wire.send(b'd');
        self.thread.join().unwrap().unwrap();
        for counter in [Counter::Connections, Counter::KeepAlive, Counter::Closing, Counter::Busy] {
            assert_eq!(self.line.read(counter), 0, "{counter:?}");
        }
        Arc::try_unwrap(self.log).unwrap().into_inner().unwrap()
    }
}

/// Sends all and reads to the end.
fn exchange(running: &Running, text: &str) -> String {
    let mut client = running.connect();
    client.write_all(text.as_bytes()).unwrap();
    read_all(client)
}

fn read_all(mut client: TcpStream) -> String {
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

/// Reads one response with a Content-Length.
fn read_one(client: &mut TcpStream) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(client.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    client.read_exact(&mut body).unwrap();
    (head, body)
}

fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n")
}

#[test]
fn keep_alive_and_close() {
    let running = Running::start(Settings::default());
    let mut client = running.connect();
    for _ in 0..3 {
        client.write_all(get("/", "").as_bytes()).unwrap();
        let (head, body) = read_one(&mut client);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nDate: ") && !head.contains("Connection"));
        assert_eq!(body.len(), 1024);
    }
    client.write_all(get("/", "Connection: close\r\n").as_bytes()).unwrap();
    let rest = read_all(client);
    assert!(rest.contains("\r\nConnection: close\r\n"), "{rest}");
    let old = exchange(&running, "GET / HTTP/1.0\r\n\r\n");
    assert!(old.contains("\r\nConnection: close\r\n"));
    let log = running.end();
    let kept = log.iter().filter(|line| *line == "200 \"GET / HTTP/1.1\" 1024 kept").count();
    assert_eq!((log.len(), kept), (5, 3), "{log:?}");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let running = Running::start(Settings::default());
    let ahead = [
        get("/", ""),
        get("/later", ""),
        get("/stream", ""),
        get("/", ""),
        String::from("\r\n"),
        get("/later", "Connection: close\r\n"),
    ];
    let all = exchange(&running, &ahead.concat());
    let place = |text: &str| all.find(text).unwrap_or_else(|| panic!("{text} in {all}"));
    assert!(place("xxx") < place("later") && place("later") < place("4\r\none "));
    assert_eq!(all.matches("HTTP/1.1 200 OK").count(), 5);
    assert!(all.ends_with("\r\n\r\nlater"));
    running.end();
}

#[test]
fn a_client_that_sends_ahead_lets_the_others_in() {
    let mut settings = Settings::default();
    settings.keep_alive.max = 0;
    let running = Running::start(settings);
    let mut first = running.connect();
    let (mut greedy, mut other);
    {
        // The one serving thread stands still when it records the first request.
        let _log = running.log.lock().unwrap();
        first.write_all(get("/first", "").as_bytes()).unwrap();
        read_one(&mut first);
        greedy = running.connect();
        greedy.write_all("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000).as_bytes()).unwrap();
        other = running.connect();
        other.write_all(get("/other", "").as_bytes()).unwrap();
    }
    read_one(&mut other);
    greedy.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(greedy).matches("HTTP/1.1 200 OK").count(), 1000);
    drop((first, other));
    let log = running.end();
    let place = log.iter().position(|line| line.contains("/other")).unwrap();
    assert!(place < 100, "{place} of {}", log.len());
}

/// How many clients send requests ahead, and how many each.
const CLIENTS: usize = 64;
const AHEAD: usize = 50;

/// The most requests for a path that are answered before a task has its turn, where so many clients
/// send so many of them ahead.
fn most_in_a_turn(path: &str, clients: usize, ahead: usize) -> usize {
    let mut settings = Settings::default();
    settings.keep_alive.max = 0;
    let running = Running::start(settings);
    let mut greedy: Vec<_> = (0..clients).map(|_| running.connect()).collect();
    for client in &mut greedy {
        client.write_all(get("/", "").as_bytes()).unwrap();
        read_one(client);
    }
    // The last of them is recorded after its client has its answer.
    while running.log.lock().unwrap().len() < clients {
        std::thread::yield_now();
    }
    let (mut watch, mut first) = (running.connect(), running.connect());
    let all = clients + 1 + clients * ahead;
    watch.write_all(get(&format!("/watch?{all}"), "").as_bytes()).unwrap();
    {
        // The one serving thread stands still when it records this request, until all have come.
        let _log = running.log.lock().unwrap();
        first.write_all(get("/first", "").as_bytes()).unwrap();
        read_one(&mut first);
        for client in &mut greedy {
            let text = format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n").repeat(ahead);
            client.write_all(text.as_bytes()).unwrap();
        }
    }
    let most: usize = String::from_utf8(read_one(&mut watch).1).unwrap().parse().unwrap();
    for client in greedy {
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(client).matches("HTTP/1.1 200 OK").count(), ahead);
    }
    drop((watch, first));
    running.end();
    most
}

#[test]
fn what_many_clients_send_ahead_lets_tasks_in_between() {
    let most = most_in_a_turn("/", CLIENTS, AHEAD);
    // A turn's allowance and, meanwhile, a request or two of each client that is in a task.
    assert!(most <= 256 + 2 * CLIENTS, "{most} of {}", CLIENTS * AHEAD);
}

#[test]
fn what_a_client_has_sent_ahead_lets_tasks_in_after_each_request_of_a_task() {
    // All of it is read at once; what is not answered in the turn of its socket goes on as a task.
    let (clients, ahead) = (2, 500);
    let most = most_in_a_turn("/", clients, ahead);
    assert!(most <= 256 + 2 * clients, "{most} of {}", clients * ahead);
}

#[test]
fn requests_that_are_much_work_let_tasks_in_the_sooner() {
    let most = most_in_a_turn("/work", CLIENTS, AHEAD);
    assert!(most <= 256 / 8 + 2 * CLIENTS, "{most} of {}", CLIENTS * AHEAD);
}

#[test]
fn a_handler_that_waits_for_its_turn_learns_that_its_client_has_gone() {
    let running = Running::start(Settings::default());
    let mut half = running.connect();
    half.write_all(get("/turn", "").as_bytes()).unwrap();
    let mut reset = running.connect();
    reset.write_all(get("/turn", "").as_bytes()).unwrap();
    let mut there = running.connect();
    there.write_all(get("/later", "").as_bytes()).unwrap();
    assert_eq!(read_one(&mut there).1, b"later");
    // Who has ended its side only is answered all the same.
    half.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_one(&mut half).1, b"gone");
    // One that has sent a further request before its end is found out too.
    let mut ahead = running.connect();
    ahead.write_all((get("/turn", "") + &get("/", "")).as_bytes()).unwrap();
    ahead.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_one(&mut ahead).1, b"gone");
    assert_eq!(read_one(&mut ahead).1.len(), 1024);
    drop(reset);
    drop((half, there, ahead));
    let log = running.end();
    assert_eq!(log.iter().filter(|line| line.contains("/turn")).count(), 3, "{log:?}");
}

#[test]
fn a_crowd_of_expensive_requests_leaves_room_for_others() {
    // Half of the credits are for such requests.
    let running = Running::with_credits(Settings::default(), 2);
    let expensive = || {
        let mut client = running.connect();
        client.write_all(get("/expensive", "").as_bytes()).unwrap();
        client
    };
    let mut crowd: Vec<_> = (0..4).map(|_| expensive()).collect();
    let mut other = running.connect();
    other.write_all(get("/", "").as_bytes()).unwrap();
    assert!(read_one(&mut other).0.starts_with("HTTP/1.1 200 OK"));
    // The first has its permit until its client ends its side; then it is the next one's turn. Of
    // those behind them, one that has ended its side needs no turn to be told so.
    let mut last = crowd.pop().unwrap();
    last.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_one(&mut last).1, b"done");
    for mut client in crowd {
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_one(&mut client).1, b"done");
    }
    drop((other, last));
    let log = running.end();
    assert_eq!(log.iter().filter(|line| line.contains("/expensive")).count(), 4, "{log:?}");
}

#[test]
fn requests_that_wait_without_a_credit_leave_it_to_others() {
    let running = Running::with_credits(Settings::default(), 1);
    let ask = |path: &str| {
        let mut client = running.connect();
        client.write_all(get(path, "").as_bytes()).unwrap();
        client
    };
    let mut waiting: Vec<_> = (0..3).map(|_| ask("/place")).collect();
    // The only credit is free.
    assert_eq!(read_one(&mut ask("/later")).1, b"later");
    for client in &mut waiting {
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_one(client).1, b"placed");
    }
    drop(waiting);
    running.end();
}

#[test]
fn a_stream_that_is_waited_for_ends_when_its_client_leaves() {
    let running = Running::with_credits(Settings::default(), 1);
    let mut client = running.connect();
    client.write_all(get("/events", "").as_bytes()).unwrap();
    let mut came = Vec::new();
    while !came.ends_with(b"event\r\n") {
        let mut bytes = [0; 512];
        let count = client.read(&mut bytes).unwrap();
        assert!(count > 0);
        came.extend_from_slice(&bytes[..count]);
    }
    drop(client);
    // The stream held the only credit.
    let mut other = running.connect();
    other.write_all(get("/later", "").as_bytes()).unwrap();
    assert_eq!(read_one(&mut other).1, b"later");
    drop(other);
    running.end();
}

#[test]
fn bodies_come_by_length_and_in_chunks_with_whatever_follows() {
    let running = Running::start(Settings::default());
    let mut client = running.connect();
    let post = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    let chunked = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n4;x\r\ndefg\r\n0\r\nT: 1\r\n\r\n";
    let text = [post, chunked, &get("/", "Connection: close\r\n")].concat();
    for byte in text.as_bytes().chunks(7) {
        client.write_all(byte).unwrap();
    }
    assert_eq!(read_one(&mut client).1, b"hello");
    assert_eq!(read_one(&mut client).1, b"abcdefg");
    assert_eq!(read_one(&mut client).1.len(), 1024);
    running.end();
}

#[test]
fn without_extended_status_nothing_of_a_request_is_kept() {
    for (shows_requests, kept) in [(true, "GET / HTTP/1.1"), (false, "")] {
        let running = Running::start(Settings { shows_requests, ..Settings::default() });
        running.board.assign(0, 1, 0, 1, 0);
        exchange(&running, &get("/", "Connection: close\r\n"));
        let board = running.board;
        running.end();
        let records = board.snapshot();
        let worker = &records.children[0].workers[0];
        assert_eq!((worker.line.as_slice(), worker.accesses), (kept.as_bytes(), 1));
        assert_eq!(worker.client.is_empty(), !shows_requests);
    }
}

#[test]
fn trailers_are_sent_and_recorded() {
    let running = Running::start(Settings::default());
    let text = exchange(&running, &get("/trailers", "Connection: close\r\n"));
    assert!(text.ends_with("\r\n\r\n3\r\none\r\n0\r\nSum: abc\r\n\r\n"), "{text}");
    assert_eq!(running.end(), ["200 \"GET /trailers HTTP/1.1\" 3 trailers"]);
}

#[test]
fn an_unread_body_is_drained() {
    let running = Running::start(Settings::default());
    let mut client = running.connect();
    let body = "z".repeat(300_000);
    let post = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n{body}");
    client.write_all(post.as_bytes()).unwrap();
    client.write_all(get("/later", "").as_bytes()).unwrap();
    assert_eq!(read_one(&mut client).1.len(), 1024);
    assert_eq!(read_one(&mut client).1, b"later");
    drop(client);
    running.end();
}

#[test]
fn continue_is_sent_only_when_the_body_is_read() {
    let running = Running::start(Settings::default());
    let mut client = running.connect();
    let head = |path| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        )
    };
    client.write_all(head("/echo").as_bytes()).unwrap();
    assert_eq!(read_one(&mut client).0, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hello").unwrap();
    assert_eq!(read_one(&mut client).1, b"hello");
    client.write_all(head("/").as_bytes()).unwrap();
    let (refused, _) = read_one(&mut client);
    assert!(refused.contains("\r\nConnection: close\r\n"), "{refused}");
    drop(client);
    running.end();
}

#[test]
fn large_files_go_to_slow_readers_without_a_credit() {
    let running = Running::with_credits(Settings::default(), 1);
    let mut slow: Vec<_> = (0..4).map(|_| running.connect()).collect();
    for client in &mut slow {
        client.write_all(get("/file", "").as_bytes()).unwrap();
        client.read_exact(&mut [0; 1]).unwrap();
    }
    let mut quick = running.connect();
    quick.write_all(get("/later", "").as_bytes()).unwrap();
    assert_eq!(read_one(&mut quick).1, b"later");
    assert_eq!(running.line.read(Counter::Writing), 4);
    for client in &mut slow {
        let (_, body) = read_one(client);
        assert!(body.len() == 16 << 20 && body.iter().all(|byte| *byte == b'f'));
    }
    drop((slow, quick));
    let (line, board) = (running.line, running.board);
    running.end();
    assert_eq!(line.read(Counter::Writing), 0);
    let completions = line.read(Counter::Completions);
    board.release(0);
    assert_eq!((completions, board.totals().accesses), (5, 5));
}

#[test]
fn a_task_whose_turn_is_over_while_its_client_reads_keeps_its_credit() {
    let running = Running::with_credits(Settings::default(), 1);
    let mut fast = running.connect();
    let head = "POST /flood HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\n";
    fast.write_all(format!("{head}a").as_bytes()).unwrap();
    // Once the body's task waits, its credit is free for this one.
    let mut other = running.connect();
    other.write_all(get("/", "").as_bytes()).unwrap();
    assert!(read_one(&mut other).0.starts_with("HTTP/1.1 200 OK"));
    fast.write_all(b"b").unwrap();
    running.barrier.wait();
    other.write_all(get("/", "Connection: close\r\n").as_bytes()).unwrap();
    running.barrier.wait();
    assert!(read_all(fast).matches("word ").count() > 0);
    drop(read_all(other));
    let log = running.end();
    let order: Vec<_> = log.iter().map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert_eq!(order, ["/", "/flood", "/"], "{log:?}");
}

#[test]
fn large_pages_wait_for_slow_readers_without_a_credit_as_far_as_there_is_room() {
    // The kernel keeps little of a page on either side, and not what its clock and the load make of
    // it: it may grow its buffers to so many megabytes that there is room for the rest of a third.
    let window = Some(64 << 10);
    let options = listen::Options { send_buffer: window, ..Default::default() };
    let running = Running::with_options(Settings::default(), 1, options);
    let mut quick = running.connect();
    let ask = |page: &mut TcpStream| {
        page.write_all(get("/page", "").as_bytes()).unwrap();
        page.read_exact(&mut [0; 1]).unwrap();
    };
    let mut slow: Vec<_> = (0..2).map(|_| running.connect_with(window)).collect();
    for client in &mut slow {
        ask(client);
        quick.write_all(get("/later", "").as_bytes()).unwrap();
        assert_eq!(read_one(&mut quick).1, b"later");
    }
    // There is no room for a third, whose client takes nothing either.
    let mut third = running.connect_with(window);
    ask(&mut third);
    quick.write_all(get("/later", "").as_bytes()).unwrap();
    assert_eq!(read_one(&mut quick).1, b"later");
    let _some = read_until_reset(third);
    for client in &mut slow {
        assert_eq!(read_one(client).1.len(), 16 << 20);
    }
    drop(slow);
    // What they kept is free again.
    let mut later = running.connect_with(window);
    ask(&mut later);
    quick.write_all(get("/later", "").as_bytes()).unwrap();
    assert_eq!(read_one(&mut quick).1, b"later");
    assert_eq!(read_one(&mut later).1.len(), 16 << 20);
    drop((later, quick));
    let _log = running.end();
}

/// A response reaches its client however fast that goes on sending what nobody wants: the bytes
/// behind it are read away, and the connection is not reset.
#[test]
fn a_client_that_sends_fast_is_not_cut_off_by_the_end_of_the_connection() {
    let running = Running::start(Settings::default());
    let mut client = running.connect();
    let mut text = b"NONSENSE\r\n\r\n".to_vec();
    text.resize(16 << 20, b'x');
    client.write_all(&text).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    running.end();
}

/// Reads to the end, which must be a reset.
fn read_until_reset(mut client: TcpStream) -> String {
    let mut all = Vec::new();
    let error = client.read_to_end(&mut all).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn a_file_that_shrinks_on_its_way_ends_with_a_reset() {
    for version in ["1.0", "1.1"] {
        let running = Running::start(Settings::default());
        let mut client = running.connect();
        let head = format!("GET /file HTTP/{version}\r\nHost: a\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        client.read_exact(&mut [0; 100]).unwrap();
        running.file.set_len(1 << 20).unwrap();
        let rest = read_until_reset(client);
        assert!(rest.len() < 16 << 20);
        let log = running.end();
        assert!(log[0].ends_with(" aborted"), "{log:?}");
    }
}

#[test]
fn a_body_that_breaks_off_never_looks_whole() {
    let running = Running::start(Settings::default());
    let mut client = running.connect();
    client.write_all(b"GET /broken HTTP/1.0\r\n\r\n").unwrap();
    read_until_reset(client);
    let mut client = running.connect();
    client.write_all(get("/broken", "").as_bytes()).unwrap();
    let text = read_until_reset(client);
    assert!(!text.contains("\r\n0\r\n"), "{text}");
    let log = running.end();
    assert!(log.iter().all(|line| line.ends_with("4 aborted")) && log.len() == 2, "{log:?}");
}

#[test]
fn a_client_that_breaks_off_is_logged_as_aborted() {
    let running = Running::start(Settings::default());
    let mut client = running.connect();
    client.write_all(get("/file", "").as_bytes()).unwrap();
    client.read_exact(&mut [0; 100]).unwrap();
    drop(client);
    let log = running.end();
    assert!(log[0].starts_with("200 \"GET /file HTTP/1.1\" ") && log[0].ends_with(" aborted"));
}

#[test]
fn a_panic_costs_its_request_only() {
    let running = Running::start(Settings::default());
    let mut sibling = running.connect();
    sibling.write_all(get("/later", "").as_bytes()).unwrap();
    for path in ["/panic", "/late-panic"] {
        let answer = exchange(&running, &get(path, ""));
        assert!(answer.starts_with("HTTP/1.1 500 Internal Server Error"), "{answer}");
    }
    assert_eq!(read_one(&mut sibling).1, b"later");
    drop(sibling);
    let log = running.end();
    assert!(log.contains(&String::from("500 \"GET /late-panic HTTP/1.1\" 26")), "{log:?}");
    assert!(log.iter().any(|line| line.starts_with("notice serving a request panicked: as asked")));
}

#[test]
fn a_panic_beside_the_phases_closes_its_connection_only() {
    let running = Running::start(Settings::default());
    let mut sibling = running.connect();
    assert_eq!(exchange(&running, &get("/address-panic", "")), "");
    let answer = exchange(&running, &get("/record-panic", ""));
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    sibling.write_all(get("/", "").as_bytes()).unwrap();
    assert_eq!(read_one(&mut sibling).1.len(), 1024);
    drop(sibling);
    let log = running.end();
    for asked in ["address", "record"] {
        let line = format!("notice serving a connection panicked: {asked} as asked");
        assert!(log.contains(&line), "{log:?}");
    }
}

#[test]
fn a_panic_in_a_task_beside_the_handler_closes_its_connection_and_is_logged() {
    let running = Running::start(Settings::default());
    let mut sibling = running.connect();
    sibling.write_all(b"GET / HT").unwrap();
    // What comes behind a handler that waits is read in its task, and so is a body.
    let next = exchange(&running, &[get("/later", ""), get("/address-panic", "")].concat());
    assert!(next.ends_with("\r\n\r\nlater"), "{next}");
    let body = "POST /record-panic HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx";
    assert!(exchange(&running, body).starts_with("HTTP/1.1 200 OK"));
    sibling.write_all(b"TP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(read_one(&mut sibling).1.len(), 1024);
    drop(sibling);
    let log = running.end();
    for asked in ["address", "record"] {
        let line = format!("notice serving a connection panicked: {asked} as asked");
        assert_eq!(log.iter().filter(|told| **told == line).count(), 1, "{log:?}");
    }
}

#[test]
fn refused_heads_are_answered_and_closed() {
    let running = Running::start(Settings::default());
    for (text, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\nHost: a\n\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", "400"),
        (&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(20_000)), "414"),
    ] {
        let answer = exchange(&running, text);
        assert_eq!(&answer[9..12], status, "{answer}");
        assert!(answer.contains("\r\nConnection: close\r\n"));
    }
    running.end();
}

#[test]
fn empty_lines_add_up_however_they_come() {
    let running = Running::start(Settings::default());
    let (mut client, mut sibling) = (running.connect(), running.connect());
    for _ in 0..11 {
        client.write_all(b"\r\n").unwrap();
        // Once this is answered, the empty line has been read.
        sibling.write_all(get("/", "").as_bytes()).unwrap();
        read_one(&mut sibling);
    }
    let answer = read_all(client);
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request"), "{answer}");
    drop(sibling);
    running.end();
}

#[test]
fn empty_lines_take_of_the_time_of_the_head() {
    let soon = Some(ReadTime { initial_ms: 50, most_ms: Some(80), rate: 500 });
    let mut settings = Settings { header_time: soon, ..Settings::default() };
    settings.keep_alive.timeout_ms = 60_000;
    let running = Running::start(settings);
    let mut client = running.connect();
    client.write_all(get("/", "").as_bytes()).unwrap();
    read_one(&mut client);
    client.write_all(b"\r\n").unwrap();
    assert_eq!(read_all(client), "");
    running.end();
}

#[test]
fn the_page_of_a_refused_head_is_made_with_a_credit() {
    let running = Running::start(Settings::default());
    let (mut client, mut sibling) = (running.connect(), running.connect());
    client.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n").unwrap();
    // Once this is answered, the head is read in a task, which needs no credit.
    sibling.write_all(get("/", "").as_bytes()).unwrap();
    read_one(&mut sibling);
    client.write_all(b"Content-Length: x\r\n\r\n").unwrap();
    let answer = read_all(client);
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("\r\n1 held"), "{answer}");
    drop(sibling);
    running.end();
}

#[test]
fn slow_heads_and_bodies_end_with_a_408() {
    let soon = Some(ReadTime { initial_ms: 50, most_ms: Some(80), rate: 500 });
    let settings = Settings { header_time: soon, body_time: soon, ..Settings::default() };
    let running = Running::start(settings);
    assert_eq!(exchange(&running, ""), "");
    assert_eq!(exchange(&running, "GET /"), "");
    let answer = exchange(&running, "GET / HTTP/1.1\r\nHos");
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout"), "{answer}");
    let post = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel";
    let answer = exchange(&running, post);
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout"), "{answer}");
    let log = running.end();
    let lines: Vec<_> = log.iter().filter(|line| line.starts_with("408")).collect();
    assert_eq!(lines.len(), 4, "{log:?}");
    assert_eq!(lines[0], "408 \"\" 0 aborted");
    assert!(log.contains(&String::from("notice Request header read timeout")));
    assert!(log.contains(&String::from("notice Request body read timeout")));
}

#[test]
fn the_clients_end_is_seen_behind_its_request() {
    let running = Running::start(Settings::default());
    for path in ["/", "/later", "/file"] {
        let mut client = running.connect();
        client.write_all(get(path, "").as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(read_all(client).starts_with("HTTP/1.1 200 OK"));
    }
    running.end();
}

#[test]
fn a_retiring_child_closes_with_its_response() {
    let running = Running::start(Settings::default());
    let mut client = running.connect();
    client.write_all(get("/", "").as_bytes()).unwrap();
    read_one(&mut client);
    let mut idle = running.connect();
    idle.write_all(get("/", "").as_bytes()).unwrap();
    read_one(&mut idle);
    assert!(running.wire.send(b'd').unwrap());
    loop {
        client.write_all(get("/", "").as_bytes()).unwrap();
        let (head, _) = read_one(&mut client);
        if head.contains("Connection: close") {
            break;
        }
    }
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    assert!(running.wire.send(b'x').unwrap());
    assert_eq!(idle.read(&mut [0; 1]).unwrap(), 0, "an idle one is closed");
    drop((client, idle));
    running.end();
}
