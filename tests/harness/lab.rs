//! The lab's handlers and the status page of a running server: work that is asked for over the
//! wire is shown while it lasts. Nothing is timed.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::answer::{Parsed, Response, parse};
use evenkeel_tests::house::{House, wait_for};
use evenkeel_tests::load::connect;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

const SITE: &str = "\
LoadModule status_module modules/mod_status.so
LoadModule lab_module modules/mod_lab.so
LabMaxWait 60000
LabMaxBurn 50
LabChildStartDelay 10
SeeRequestTail On
<Location /wait>
SetHandler lab-wait
</Location>
<Location /burn>
SetHandler lab-burn
</Location>
<Location /server-status>
SetHandler server-status
</Location>
";

fn ask(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> Response {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let response = match parse(&bytes, false, true) {
        Parsed::Whole(response, _) => Some(response),
        Parsed::Part => None,
    };
    response.unwrap()
}

fn text(address: SocketAddr, path: &str) -> String {
    String::from_utf8(answer(ask(address, path)).body).unwrap()
}

/// The number behind a key of the page for machines.
fn number(page: &str, key: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    line.unwrap().parse().unwrap()
}

#[test]
fn work_in_progress_is_shown() {
    let house = House::open(SITE, &[]).unwrap();
    let long = "a".repeat(200);
    let waits: Vec<_> =
        (0..5).map(|n| ask(house.address, &format!("/wait?{long}&ms=60000&n={n}"))).collect();
    let busy = || number(&text(house.address, "/server-status?auto"), "BusyWorkers");
    // The fifth and the request for the page itself.
    wait_for("five requests that wait", || busy() == 6).unwrap();
    let page = text(house.address, "/server-status");
    for n in 0..5 {
        assert!(page.contains(&format!("aaa&amp;ms=60000&amp;n={n} HTTP/1.1</td></tr>")), "{page}");
    }
    assert!(page.contains("<td nowrap>localhost:"), "{page}");
    drop(waits);
}

#[test]
fn work_is_done_and_bounded() {
    let house = House::open(SITE, &[]).unwrap();
    assert!(text(house.address, "/wait?ms=1").starts_with("waited "));
    assert!(text(house.address, "/burn?ms=5").ends_with(" ms of CPU time\n"));
    assert_eq!(answer(ask(house.address, "/burn?ms=51")).status(), 400);
    assert!(house.error_log().contains("lab-burn takes ms=0 to ms=50"));
    let page = text(house.address, "/server-status?auto");
    assert!(number(&page, "Total Accesses") >= 3, "{page}");
}
