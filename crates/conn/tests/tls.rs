//! Connections over TLS end to end: the event model, a worker and a site of fixed answers, with
//! rustls's client over blocking sockets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]
#![allow(clippy::print_stderr, reason = "a test")]

mod stub;
#[path = "../../mpm/tests/support/mod.rs"]
mod support;

use evenkeel_conn::{Connections, ReadTime, Settings, SlowBytes, Workplace};
use evenkeel_mpm::event::serve_with;
use evenkeel_scoreboard::{ChildLine, Counter, Slots};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::channel::Channel;
use evenkeel_sys::listen;
use evenkeel_tls::{Door, Hello, Host, Identity, PrivateKeyDer, trusting_client};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use support::Parent;

/// Two hosts, each with a certificate of its own.
#[derive(Debug)]
struct Hosts(Vec<Arc<Host>>);

impl Door for Hosts {
    fn host(&self, hello: &Hello<'_>) -> Option<Arc<Host>> {
        self.0.iter().find(|host| hello.name == Some(&host.name)).or(self.0.first()).cloned()
    }
}

fn hosts() -> Arc<dyn Door> {
    let host = |(index, name): (usize, &str)| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let identity = Identity::new(vec![made.cert.der().clone()], &key).unwrap();
        let settings = evenkeel_tls::Settings::new(index, name.to_owned(), vec![identity]);
        Arc::new(Host::new(settings).unwrap())
    };
    Arc::new(Hosts([(0, "a.example"), (1, "b.example")].map(host).to_vec()))
}

/// A host with an RSA key whose signatures take long.
fn slow_host() -> Arc<dyn Door> {
    let size = rcgen::RsaKeySize::_3072;
    let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size).unwrap();
    let params = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let identity = Identity::new(vec![certificate], &key).unwrap();
    let settings = evenkeel_tls::Settings::new(0, "a.example".to_owned(), vec![identity]);
    Arc::new(Hosts(vec![Arc::new(Host::new(settings).unwrap())]))
}

struct Running {
    address: SocketAddr,
    wire: Channel,
    line: ChildLine,
    log: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<io::Result<()>>,
}

impl Running {
    /// A child whose handshakes may take so many bytes of memory.
    fn start(settings: Settings, handshakes: u64) -> Self {
        Self::start_at(hosts(), settings, handshakes, None)
    }

    fn start_at(
        door: Arc<dyn Door>,
        settings: Settings,
        handshakes: u64,
        long_steps: Option<Arc<BlockingPool>>,
    ) -> Self {
        let (setup, parent) = support::child_at(listen::Options::default(), 1, 8);
        let Parent { address, wire, board, .. } = parent;
        let (line, slots) = (setup.line, Slots::new(board, 0, 8));
        let log = Arc::<Mutex<Vec<String>>>::default();
        let shared = Arc::clone(&log);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'f'; 16 << 20]).unwrap();
        let file = Arc::new(file.into());
        let handshakes = SlowBytes::new(handshakes);
        let slow_bytes = SlowBytes::new(SlowBytes::USUAL);
        let thread = std::thread::spawn(move || {
            serve_with(setup, |context| {
                let mut site = stub::Stub::new(settings.clone(), Arc::clone(&shared));
                site.file = Some(Arc::clone(&file));
                site.door = Some(Arc::clone(&door));
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
                    handshakes: Arc::clone(&handshakes),
                    long_steps: long_steps.clone(),
                };
                stub::Adapter(Connections::new(site, place))
            })
        });
        Self { address, wire, line, log, thread }
    }

    fn usual() -> Self {
        Self::start(Settings::default(), SlowBytes::USUAL)
    }

    fn plain(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn connect(&self) -> StreamOwned<ClientConnection, TcpStream> {
        StreamOwned::new(client("a.example"), self.plain())
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

fn client(name: &'static str) -> ClientConnection {
    let config = trusting_client(rustls::ALL_VERSIONS, None).unwrap();
    let name = ServerName::try_from(name).unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n")
}

/// Reads one response with a Content-Length.
fn read_one(client: &mut impl Read) -> (String, Vec<u8>) {
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

#[test]
fn kept_connections_are_answered_and_end_with_close_notify() {
    let running = Running::usual();
    let mut client = running.connect();
    for _ in 0..3 {
        client.write_all(get("/", "").as_bytes()).unwrap();
        let (head, body) = read_one(&mut client);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert_eq!(body, [b'x'; 1024]);
    }
    client.write_all(get("/", "Connection: close\r\n").as_bytes()).unwrap();
    let mut rest = String::new();
    // rustls reports an end without close_notify as an error.
    client.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\r\nConnection: close\r\n"), "{rest}");
    assert_eq!(client.conn.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    let log = running.end();
    let kept = log.iter().filter(|line| *line == "200 \"GET / HTTP/1.1\" 1024 kept").count();
    assert_eq!((log.len(), kept), (4, 3), "{log:?}");
}

#[test]
fn a_parked_connection_is_told_of_its_end() {
    let mut settings = Settings::default();
    settings.keep_alive.timeout_ms = 300;
    let running = Running::start(settings, SlowBytes::USUAL);
    let mut client = running.connect();
    client.write_all(get("/", "").as_bytes()).unwrap();
    read_one(&mut client);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    running.end();
}

#[test]
fn requests_ahead_bodies_and_streams_pass_through() {
    let running = Running::usual();
    let mut client = running.connect();
    let ahead = [get("/", ""), get("/later", ""), get("/stream", ""), get("/", "")];
    client.write_all(ahead.concat().as_bytes()).unwrap();
    let body = vec![b'b'; 100_000];
    let length = body.len();
    let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n");
    client.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
    client.write_all(&body).unwrap();
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    let text = String::from_utf8_lossy(&all);
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 5, "{text}");
    assert!(text.contains("later") && text.contains("4\r\none "));
    drop(client);
    running.end();
}

#[test]
fn a_large_file_arrives_whole_however_slowly_it_is_read() {
    let running = Running::usual();
    let mut client = running.connect();
    client.write_all(get("/file", "Connection: close\r\n").as_bytes()).unwrap();
    let mut all = Vec::new();
    let mut piece = vec![0; 50_000];
    for _ in 0..20 {
        let count = client.read(&mut piece).unwrap();
        all.extend_from_slice(&piece[..count]);
        std::thread::yield_now();
    }
    client.read_to_end(&mut all).unwrap();
    let body = all.split(|byte| *byte == b'f').count() - 1;
    assert!(all.ends_with(b"ffff") && body >= 16 << 20, "{} bytes", all.len());
    running.end();
}

/// A socket that sends one byte at a time.
struct Dribble(TcpStream);

impl Read for Dribble {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Dribble {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn records_may_arrive_byte_by_byte_and_the_name_of_the_client_chooses_the_host() {
    let running = Running::usual();
    let stream = running.plain();
    stream.set_nodelay(true).unwrap();
    let mut client = StreamOwned::new(client("b.example"), Dribble(stream));
    for _ in 0..2 {
        client.write_all(get("/secure", "").as_bytes()).unwrap();
        assert_eq!(read_one(&mut client).1, b"1 b.example");
    }
    drop(client);
    running.end();
}

#[test]
fn a_client_that_speaks_http_is_told_so() {
    let running = Running::usual();
    let mut client = running.plain();
    client.write_all(get("/secret", "").as_bytes()).unwrap();
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{all}");
    drop(client);
    let log = running.end();
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(log[0].contains("HTTP spoken on HTTPS port"), "{log:?}");
    assert!(log[1].starts_with("400 \"GET / HTTP/1.0\""), "{log:?}");
}

#[test]
fn damaged_records_end_the_connection_with_an_alert() {
    let running = Running::usual();
    let mut tls = running.connect();
    tls.write_all(get("/", "").as_bytes()).unwrap();
    read_one(&mut tls);
    let junk = [23, 3, 3, 0, 32].into_iter().chain([7; 32]).collect::<Vec<u8>>();
    tls.sock.write_all(&junk).unwrap();
    let error = tls.read(&mut [0]).unwrap_err();
    assert!(error.to_string().contains("BadRecordMac"), "{error}");
    drop(tls);
    let log = running.end();
    assert!(log.iter().any(|line| line.starts_with("notice ")), "{log:?}");
}

#[test]
fn a_handshake_that_stands_still_ends_and_is_no_request() {
    let settings = Settings { handshake_ms: 300, ..Settings::default() };
    let running = Running::start(settings, SlowBytes::USUAL);
    let mut silent = running.plain();
    let mut halting = running.plain();
    let mut hello = Vec::new();
    client("a.example").write_tls(&mut hello).unwrap();
    halting.write_all(&hello[..hello.len() / 2]).unwrap();
    for one in [&mut silent, &mut halting] {
        assert_eq!(one.read(&mut [0]).unwrap(), 0);
    }
    let log = running.end();
    assert_eq!(log, ["notice Request handshake read timeout"; 2]);
}

#[test]
fn handshakes_that_stand_still_keep_out_nobody() {
    let running = Running::start(Settings::default(), 40 * (12 << 10));
    let mut hello = Vec::new();
    client("a.example").write_tls(&mut hello).unwrap();
    let half = || {
        let mut stream = running.plain();
        stream.write_all(&hello[..hello.len() / 2]).unwrap();
        stream
    };
    let mut halves = Vec::new();
    for _ in 0..5 {
        halves.extend(std::iter::repeat_with(half).take(40));
        let mut tls = running.connect();
        tls.write_all(get("/", "Connection: close\r\n").as_bytes()).unwrap();
        let (head, _) = read_one(&mut tls);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    }
    drop(halves);
    running.end();
}

#[test]
fn a_record_that_stands_still_takes_of_the_time_of_a_head() {
    let mut settings = Settings::default();
    settings.keep_alive.timeout_ms = 60_000;
    settings.header_time = Some(ReadTime { initial_ms: 300, most_ms: Some(300), rate: 0 });
    let running = Running::start(settings, SlowBytes::USUAL);
    let mut tls = running.connect();
    tls.write_all(get("/", "").as_bytes()).unwrap();
    read_one(&mut tls);
    tls.conn.writer().write_all(get("/", "").as_bytes()).unwrap();
    let mut record = Vec::new();
    tls.conn.write_tls(&mut record).unwrap();
    tls.sock.write_all(&record[..record.len() - 1]).unwrap();
    assert_eq!(tls.sock.read(&mut [0]).unwrap_or(0), 0);
    drop(tls);
    running.end();
}

#[test]
fn large_bodies_pass_in_pieces_of_any_size() {
    let running = Running::usual();
    let body = vec![b'b'; 300_000];
    let length = body.len();
    let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n");
    for size in [7_919, 16_384, 100_000] {
        let mut tls = running.connect();
        tls.write_all(get("/", "").as_bytes()).unwrap();
        read_one(&mut tls);
        let mut sealed = Vec::new();
        for piece in
            [head.as_bytes(), b"Connection: close\r\n\r\n"].into_iter().chain(body.chunks(10_000))
        {
            tls.conn.writer().write_all(piece).unwrap();
            while tls.conn.wants_write() {
                tls.conn.write_tls(&mut sealed).unwrap();
            }
        }
        let mut sock = tls.sock.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            sealed.chunks(size).for_each(|piece| sock.write_all(piece).unwrap());
        });
        let mut all = String::new();
        tls.read_to_string(&mut all).unwrap();
        sender.join().unwrap();
        assert!(all.starts_with("HTTP/1.1 200 OK"), "{size}");
    }
    running.end();
}

#[test]
fn handshakes_are_bounded_in_memory() {
    let running = Running::start(Settings::default(), 12 << 10);
    let mut first = running.plain();
    let mut hello = Vec::new();
    client("a.example").write_tls(&mut hello).unwrap();
    first.write_all(&hello).unwrap();
    let mut flight = [0; 5];
    first.read_exact(&mut flight).unwrap();
    // There is room for one handshake, so that of the first one ends for the second.
    let mut second = running.connect();
    second.write_all(get("/", "").as_bytes()).unwrap();
    assert_eq!(read_one(&mut second).1.len(), 1024);
    // The server has closed or reset the first one: a read that times out would be another error.
    let ended = first.read_to_end(&mut Vec::new());
    assert!(ended.map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true));
    running.end();
}

/// Keeps the only thread of a pool busy until the sender is dropped.
fn keep_busy(pool: &BlockingPool) -> mpsc::Sender<()> {
    let (begun, is_begun) = mpsc::channel();
    let (free, freed) = mpsc::channel();
    let job = pool.spawn(move || {
        begun.send(()).unwrap();
        let _ = freed.recv();
    });
    job.detach();
    is_begun.recv().unwrap();
    free
}

/// Waits until so many jobs of a pool have not started.
fn wait_for_queue(pool: &BlockingPool, count: usize) {
    while pool.queued() != count {
        std::thread::yield_now();
    }
}

#[test]
fn kept_connections_are_answered_while_signatures_take_long() {
    let pool = Arc::new(BlockingPool::new(1));
    let long_steps = Some(Arc::clone(&pool));
    let running = Running::start_at(slow_host(), Settings::default(), SlowBytes::USUAL, long_steps);
    let mut kept = running.connect();
    let mut ask = || {
        kept.write_all(get("/", "").as_bytes()).unwrap();
        assert_eq!(read_one(&mut kept).1.len(), 1024);
    };
    ask();
    let busy = keep_busy(&pool);
    let mut others: Vec<_> = (0..50).map(|_| running.connect()).collect();
    for other in &mut others {
        other.conn.write_tls(&mut other.sock).unwrap();
    }
    wait_for_queue(&pool, 50);
    // The child has one serving thread.
    ask();
    // The steps of clients that leave are not done.
    drop(others.split_off(40));
    wait_for_queue(&pool, 40);
    ask();
    drop(busy);
    for other in &mut others {
        other.write_all(get("/", "").as_bytes()).unwrap();
        assert_eq!(read_one(other).1.len(), 1024);
    }
    ask();
    drop((kept, others));
    let log = running.end();
    assert_eq!(log.iter().filter(|line| line.starts_with("200 \"GET /")).count(), 44, "{log:?}");
}

#[test]
fn a_step_that_takes_longer_than_a_handshake_may_is_given_up() {
    let pool = Arc::new(BlockingPool::new(1));
    let settings = Settings { handshake_ms: 100, ..Settings::default() };
    let long_steps = Some(Arc::clone(&pool));
    let running = Running::start_at(slow_host(), settings, SlowBytes::USUAL, long_steps);
    let busy = keep_busy(&pool);
    let mut late = running.connect();
    late.conn.write_tls(&mut late.sock).unwrap();
    assert_eq!(late.sock.read(&mut [0]).unwrap(), 0);
    wait_for_queue(&pool, 0);
    drop(busy);
    assert_eq!(running.end(), ["notice Request handshake read timeout"]);
}

#[test]
fn without_a_pool_a_long_step_is_done_at_once() {
    let running = Running::start_at(slow_host(), Settings::default(), SlowBytes::USUAL, None);
    let mut client = running.connect();
    client.write_all(get("/", "").as_bytes()).unwrap();
    assert_eq!(read_one(&mut client).1.len(), 1024);
    drop(client);
    running.end();
}
