//! Tests a resolver that does not answer, in the server's own mount namespace: requests that need a
//! name wait for it, and all others are served. The test needs root, and the port of DNS on a
//! loopback address.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, PATIENCE, wait_for};
use evenkeel_tests::load::probe;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use tempfile::TempDir;

/// One child with few threads, each of which has a request that waits for a name.
const MORE: &str = "\
LoadModule authz_host_module /usr/lib/apache2/modules/mod_authz_host.so
ServerLimit 1
StartServers 1
ThreadsPerChild 16
MinSpareThreads 1
MaxSpareThreads 16
MaxRequestWorkers 16
<Location /named>
Require host example.org
</Location>
<Location /logged>
HostnameLookups On
</Location>
LogFormat \"%U %>s %h\" names
CustomLog \"@ROOT@/logs/names.log\" names
";

/// The number of requests that wait for a name.
const WAITING: usize = 12;

/// The resolver, and the files that configure it.
struct Resolver {
    socket: UdpSocket,
    folder: TempDir,
}

impl Resolver {
    /// Listens on a loopback address whose port is free.
    fn open() -> Resolver {
        let addresses = (1..=254).map(|last| Ipv4Addr::new(127, 53, 53, last));
        let socket = addresses.map(|it| UdpSocket::bind((it, 53))).find_map(Result::ok).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let address = socket.local_addr().unwrap().ip();
        // The time-out is much longer than the test.
        let text = format!("nameserver {address}\noptions timeout:30 attempts:5\n");
        fs::write(folder.path().join("resolv.conf"), text).unwrap();
        fs::write(folder.path().join("nsswitch.conf"), "hosts: files dns\n").unwrap();
        Resolver { socket, folder }
    }

    /// A server that has these files in place of the system's.
    fn house(&self) -> House {
        let folder = self.folder.path().display();
        let script = format!(
            "mount --bind {folder}/resolv.conf /etc/resolv.conf && \
             mount --bind {folder}/nsswitch.conf /etc/nsswitch.conf && exec \"$@\""
        );
        House::open(MORE, &["unshare", "--mount", "sh", "-c", &script, "sh"]).unwrap()
    }

    /// The next query, with its sender.
    fn question(&self) -> (Vec<u8>, SocketAddr) {
        let mut bytes = vec![0; 512];
        let (length, asker) = self.socket.recv_from(&mut bytes).unwrap();
        bytes.truncate(length);
        (bytes, asker)
    }

    /// Answers that the name does not exist (RFC 1035, section 4.1.1).
    fn deny(&self, (mut question, asker): (Vec<u8>, SocketAddr)) {
        question.splice(2..4, [0x81, 0x83]);
        self.socket.send_to(&question, asker).unwrap();
    }
}

/// A client at an address that is in no file of names.
fn ask(house: &House, target: &str) -> TcpStream {
    let stream = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    rustix::net::bind(&stream, &SocketAddr::from(([127, 99, 9, 9], 0))).unwrap();
    rustix::net::connect(&stream, &house.address).unwrap();
    let mut stream = TcpStream::from(stream);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn read(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_resolver_that_hangs_keeps_only_those_waiting_who_ask_it() {
    let resolver = Resolver::open();
    let house = resolver.house();
    let target = |number| if number % 2 == 0 { "/named" } else { "/logged" };
    let streams: Vec<_> = (0..WAITING).map(|number| ask(&house, target(number))).collect();
    // Queries for all of them have arrived, so all of them wait.
    let questions: Vec<_> = streams.iter().map(|_| resolver.question()).collect();
    // More requests than threads: one of them would be behind a request that waits.
    for _ in 0..50 {
        probe(house.address).unwrap();
    }
    for mut stream in &streams {
        stream.set_nonblocking(true).unwrap();
        let error = stream.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        stream.set_nonblocking(false).unwrap();
    }
    questions.into_iter().for_each(|question| resolver.deny(question));
    for (number, stream) in streams.into_iter().enumerate() {
        let status = if number % 2 == 0 { "403" } else { "404" };
        let answer = read(stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    let log = || fs::read_to_string(house.path("logs/names.log")).unwrap_or_default();
    let nameless = || log().lines().filter(|line| line.ends_with(" 127.99.9.9")).count();
    wait_for("the lines", || nameless() == WAITING).unwrap();
}

#[test]
fn a_resolver_that_hangs_does_not_keep_the_server_from_ending() {
    let resolver = Resolver::open();
    let mut house = resolver.house();
    let stream = ask(&house, "/named");
    let _unanswered = resolver.question();
    // The generation ends while one of its requests waits.
    house.reload().unwrap();
    probe(house.address).unwrap();
    house.server.take().unwrap().stop().unwrap();
    drop(stream);
}
