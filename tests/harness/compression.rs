//! Tests clients that do not read the compressed body that they requested: other clients are
//! served, the memory for slow clients is bounded, and a client that disconnects leaves nothing
//! behind.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, wait_for};
use evenkeel_tests::load::{connect, probe};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Six workers in two children, and a filter for everything that is sent.
const PACKED: &str = "\
LoadModule filter_module /usr/lib/apache2/modules/mod_filter.so
LoadModule deflate_module /usr/lib/apache2/modules/mod_deflate.so
ServerLimit 2
StartServers 2
ThreadsPerChild 3
MinSpareThreads 1
MaxSpareThreads 6
MaxRequestWorkers 6
SetOutputFilter DEFLATE
";

/// Filters that a response may have, and chains of eight and nine that cancel each other out.
const CHAINS: &str = "\
LoadModule filter_module /usr/lib/apache2/modules/mod_filter.so
LoadModule deflate_module /usr/lib/apache2/modules/mod_deflate.so
FilterDeclare d CONTENT_SET
FilterProvider d DEFLATE true
FilterDeclare i CONTENT_SET
FilterProvider i INFLATE true
<Location /small.txt>
FilterChain d i d i d i d i
</Location>
<Location /other.txt>
FilterChain d i d i d i d i d
</Location>
";

/// The number of workers.
const WORKERS: usize = 6;
/// The number of bodies that are compressed at a time: each of the two children reserves one of its
/// three permits for bodies that must be decompressed.
const MOST_COMPRESSED: usize = WORKERS - 2;

/// A server with a file that does not shrink under compression and is too large for a socket's
/// buffer.
fn open() -> House {
    let house = House::open(PACKED, &[]).unwrap();
    let mut state = 1_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    fs::write(house.path("htdocs/noise.bin"), noise.take(8 << 20).collect::<Vec<_>>()).unwrap();
    house
}

/// A client that reads only the head of its response, and that head.
fn slow_client(house: &House, path: &str) -> (TcpStream, String) {
    let mut stream = connect(house.address).unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0_u8]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    (stream, String::from_utf8(head).unwrap())
}

/// Opens many slow clients, and counts those that were promised a compressed body.
fn slow_clients(house: &House) -> (Vec<TcpStream>, usize) {
    let clients = (0..10 * WORKERS).map(|_| slow_client(house, "/noise.bin"));
    let (streams, heads): (Vec<_>, Vec<_>) = clients.unzip();
    assert!(heads.iter().all(|head| head.starts_with("HTTP/1.1 200 ")), "{heads:?}");
    let packed = heads.iter().filter(|head| head.contains("Content-Encoding: gzip"));
    (streams, packed.count())
}

#[test]
fn slow_readers_keep_nobody_waiting_and_no_more_memory_than_workers_would() {
    let house = open();
    let (slow, packed) = slow_clients(&house);
    assert!((1..=MOST_COMPRESSED).contains(&packed), "{packed} bodies are being compressed");
    probe(house.address).unwrap();
    drop(slow);
    // All permits of these clients are returned.
    wait_for("room for as many", || slow_clients(&house).1 == MOST_COMPRESSED).unwrap();
    probe(house.address).unwrap();
}

#[test]
fn a_body_is_not_changed_without_end() {
    let house = House::open(CHAINS, &[]).unwrap();
    fs::copy(house.path("htdocs/small.txt"), house.path("htdocs/other.txt")).unwrap();
    let status = |path| slow_client(&house, path).1.get(9..12).map(str::to_owned).unwrap();
    assert_eq!(status("/small.txt"), "200");
    assert_eq!(status("/other.txt"), "500");
    wait_for("a line about it", || house.error_log().contains("more than 8 filters")).unwrap();
}
