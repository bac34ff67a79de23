//! Checks what becomes of a request whose FastCGI application fails: the status and the numbers of
//! the messages are apache2's, and the children of the server live on. The application is a thread
//! of the test, which answers as the path of the request says.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, PATIENCE, wait_for};
use evenkeel_tests::server::{Kind, Server};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// The types of FastCGI records (FastCGI specification, section 8).
const END_REQUEST: u8 = 3;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

const HEAD: &[u8] = b"Content-Type: text/plain\r\n\r\n";

const MODULES: &str = "\
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_fcgi_module /usr/lib/apache2/modules/mod_proxy_fcgi.so
";

const PASSES: &str = "\
ProxyTimeout 1
ProxyPass /missing \"unix:@ROOT@/missing.sock|fcgi://localhost/missing\"
ProxyPass /refused \"unix:@ROOT@/refused.sock|fcgi://localhost/refused\"
ProxyPass /app \"unix:@ROOT@/app.sock|fcgi://localhost/app\"
";

/// What the application tells the test.
#[derive(Debug, PartialEq, Eq)]
enum Report {
    /// A request has come whole.
    Asked,
    /// The server has closed the connection of a request.
    Closed,
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat()
}

fn end() -> Vec<u8> {
    [record(STDOUT, b""), record(END_REQUEST, &[0; 8])].concat()
}

/// The content of the records of a request, until the end of its body.
fn read_request(stream: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head)?;
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let mut content = vec![0; length + usize::from(head[6])];
        stream.read_exact(&mut content)?;
        if head[1] == STDIN && length == 0 {
            return Ok(all);
        }
        all.extend(content);
    }
}

/// Answers one request. An error is a server that has gone. A page in two parts waits for `go_on`
/// between them.
fn answer(
    stream: &mut UnixStream,
    reports: &Sender<Report>,
    go_on: &Mutex<Receiver<()>>,
) -> std::io::Result<()> {
    let request = read_request(stream)?;
    let asks = |what: &str| request.windows(what.len()).any(|part| part == what.as_bytes());
    let _ = reports.send(Report::Asked);
    if asks("/app/hang") {
        let _ = stream.read(&mut [0; 1]);
        let _ = reports.send(Report::Closed);
    } else if asks("/app/stream") {
        stream.write_all(&record(STDOUT, HEAD))?;
        while stream.write_all(&record(STDOUT, &[b'x'; 1000])).is_ok() {}
        let _ = reports.send(Report::Closed);
    } else if asks("/app/parts") {
        stream.write_all(&[record(STDOUT, HEAD), record(STDOUT, b"first")].concat())?;
        let _ = go_on.lock().unwrap().recv();
        stream.write_all(&[record(STDOUT, &[b'x'; 60_000]), end()].concat())?;
        // The server closes the connection when it has read the end.
        let _ = stream.read(&mut [0; 1]);
        let _ = reports.send(Report::Closed);
    } else if asks("/app/garbage") {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    } else if asks("/app/half") {
        stream.write_all(&[record(STDOUT, b"Content-Type: te"), end()].concat())?;
    } else if asks("/app/fields") {
        let fields = (0..500).map(|number| format!("X-{number}: 1\r\n"));
        let head = [b"X-Nul: a\0b\r\n", fields.collect::<String>().as_bytes(), HEAD].concat();
        stream.write_all(&[record(STDOUT, &head), record(STDOUT, b"well"), end()].concat())?;
    } else if asks("/app/nul") {
        stream.write_all(&[record(STDOUT, b"X\0-A: b\r\n\r\nbody"), end()].concat())?;
    } else if asks("/app/malformed") {
        stream.write_all(&[record(STDOUT, b"no colon\r\n\r\nbody"), end()].concat())?;
    } else if asks("/app/dies") {
        stream.write_all(&[record(STDOUT, HEAD), record(STDOUT, b"some")].concat())?;
    } else if asks("/app/flood") {
        for _ in 0..1000 {
            stream.write_all(&record(STDERR, &[b'e'; 1000]))?;
        }
        stream.write_all(&[record(STDOUT, HEAD), record(STDOUT, b"well"), end()].concat())?;
    }
    Ok(())
}

/// Starts the application, which lives as long as the test. A connection is closed when its answer
/// was given.
fn start_application(house: &House) -> (Receiver<Report>, Sender<()>) {
    let path = house.path("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let (sender, receiver) = channel();
    let (continues, go_on) = channel();
    let go_on = Arc::new(Mutex::new(go_on));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, sender) = (stream.unwrap(), sender.clone());
            let go_on = Arc::clone(&go_on);
            thread::spawn(move || {
                let _ = answer(&mut stream, &sender, &go_on);
            });
        }
    });
    (receiver, continues)
}

fn lay_out(more: &str) -> House {
    let house = House::lay_out(&[MODULES, PASSES, more].concat()).unwrap();
    // A socket on which nobody listens any more.
    let path = house.path("refused.sock");
    drop(UnixListener::bind(&path).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    house
}

/// A client whose kernel accepts a few KiB that the client does not read.
fn connect_with_small_window(house: &House) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_recv_buffer_size(&socket, 4096).unwrap();
    connect(&socket, &house.address).unwrap();
    socket.into()
}

fn ask(house: &House, path: &str) -> TcpStream {
    ask_by(TcpStream::connect(house.address).unwrap(), path)
}

fn ask_by(mut client: TcpStream, path: &str) -> TcpStream {
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    client
}

/// The status of the response, and whether the response is whole.
fn get(house: &House, path: &str) -> (u16, bool) {
    let mut bytes = Vec::new();
    // A response that the server cuts off may end with a reset.
    let _ = ask(house, path).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let is_whole = !text.contains("chunked") || text.ends_with("\r\n0\r\n\r\n");
    (text.get(9..12).unwrap_or("0").parse().unwrap_or(0), is_whole)
}

/// What the server makes of one request: its status, whether it is whole, and the numbers of the
/// messages of the proxy.
fn fail(kind: Kind, path: &str) -> (u16, bool, BTreeSet<String>) {
    let mut house = lay_out("");
    let _reports = start_application(&house);
    let root = house.path("");
    house.server = Some(Server::start(kind, &root, house.address.port()).unwrap());
    let children = house.children();
    let (status, is_whole) = get(&house, path);
    assert_eq!(get(&house, "/small.txt").0, 200, "{kind:?} after {path}");
    assert!(children.iter().all(|child| house.children().contains(child)), "{kind:?} {path}");
    house.stop().unwrap();
    let log = house.error_log();
    let lines = log.lines().filter(|line| line.contains("[proxy"));
    let number = |line: &str| Some(format!("AH{}", line.split_once(" AH")?.1.get(..5)?));
    (status, is_whole, lines.filter_map(number).collect())
}

#[test]
fn an_application_that_fails_is_answered_for_as_by_apache2() {
    let mut differences = Vec::new();
    for path in [
        "/missing/a",
        "/refused/a",
        "/app/hang",
        "/app/garbage",
        "/app/closes",
        "/app/dies",
        "/app/flood",
        "/app/malformed",
        "/app/fields",
        "/app/nul",
    ] {
        let (apache, ours) = (fail(Kind::Apache, path), fail(Kind::Evenkeel, path));
        if apache != ours {
            differences.push(format!("{path}: {apache:?} expected, {ours:?} came"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Apache sends 200 with the part of the head as text.
#[test]
fn half_a_head_is_an_error() {
    assert_eq!(fail(Kind::Evenkeel, "/app/half").0, 500);
}

#[test]
fn the_application_is_released_when_the_client_leaves() {
    let mut house = lay_out("");
    let (reports, _go_on) = start_application(&house);
    house.start(&[]).unwrap();
    let mut client = ask(&house, "/app/stream");
    client.read_exact(&mut [0; 4096]).unwrap();
    drop(client);
    assert_eq!(reports.recv_timeout(PATIENCE), Ok(Report::Asked));
    assert_eq!(reports.recv_timeout(PATIENCE), Ok(Report::Closed));
    house.stop().unwrap();
}

/// Twice as many requests as the server has workers wait for an application that hangs.
#[test]
fn files_are_served_while_an_application_hangs() {
    const WORKERS: usize = 16;
    let more = "ProxyTimeout 600\nStartServers 1\nServerLimit 2\nThreadsPerChild 8\n\
        MinSpareThreads 8\nMaxSpareThreads 16\nMaxRequestWorkers 16\n";
    let mut house = lay_out(more);
    let (reports, _go_on) = start_application(&house);
    house.start(&[]).unwrap();
    let clients: Vec<TcpStream> = (0..2 * WORKERS).map(|_| ask(&house, "/app/hang")).collect();
    assert_eq!(reports.recv_timeout(PATIENCE), Ok(Report::Asked));
    for _ in 0..WORKERS {
        assert_eq!(get(&house, "/small.txt"), (200, true));
    }
    drop(clients);
    wait_for("the end of a request", || reports.try_iter().any(|it| it == Report::Closed)).unwrap();
    house.stop().unwrap();
}

/// A client that does not read its response leaves the place at the application to others as soon
/// as the application has ended the response.
#[test]
fn a_client_that_does_not_read_holds_no_place() {
    // More clients than the server has places at the application.
    const CLIENTS: usize = 24;
    let more = "ProxyTimeout 600\nStartServers 1\nServerLimit 1\nThreadsPerChild 8\n\
        MinSpareThreads 8\nMaxSpareThreads 8\nMaxRequestWorkers 8\nSendBufferSize 4096\n";
    let mut house = lay_out(more);
    let (reports, go_on) = start_application(&house);
    house.start(&[]).unwrap();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = ask_by(connect_with_small_window(&house), "/app/parts");
        // The response has begun, and is a stream: the application has not ended it.
        client.read_exact(&mut [0; 1]).unwrap();
        assert_eq!(reports.recv_timeout(PATIENCE), Ok(Report::Asked), "client {number}");
        go_on.send(()).unwrap();
        assert_eq!(reports.recv_timeout(PATIENCE), Ok(Report::Closed), "client {number}");
        clients.push(client);
    }
    drop(clients);
    house.stop().unwrap();
}
