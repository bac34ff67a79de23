//! Tests the lab's handlers and the status page of a running server: requested work is shown while
//! it lasts. Nothing is timed, except that what must be late is not early.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::answer::{Parsed, Response, parse};
use evenkeel_tests::house::{House, send, wait_for};
use evenkeel_tests::load::{answer, ask, connect, text};
use rustix::process::Signal;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const SITE: &str = "\
LoadModule status_module modules/mod_status.so
LoadModule lab_module modules/mod_lab.so
LabMaxWait 600000
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

/// The number for a key on the page for machines.
fn number(page: &str, key: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    line.unwrap().parse().unwrap()
}

#[test]
fn work_in_progress_is_shown() {
    let house = House::open(SITE, &[]).unwrap();
    let long = "a".repeat(200);
    let wait = |n| ask(house.address, &format!("/wait?{long}&ms=600000&n={n}")).unwrap();
    let waits: Vec<_> = (0..5).map(wait).collect();
    let busy = || number(&text(house.address, "/server-status?auto").unwrap(), "BusyWorkers");
    // Five requests that wait, and the request for the page itself.
    wait_for("five requests that wait", || busy() == 6).unwrap();
    let page = text(house.address, "/server-status").unwrap();
    for n in 0..5 {
        assert!(
            page.contains(&format!("aaa&amp;ms=600000&amp;n={n} HTTP/1.1</td></tr>")),
            "{page}"
        );
    }
    assert!(page.contains("<td nowrap>localhost:"), "{page}");
    drop(waits);
}

#[test]
fn work_is_done_and_bounded() {
    let house = House::open(SITE, &[]).unwrap();
    assert!(text(house.address, "/wait?ms=1").unwrap().starts_with("waited "));
    assert!(text(house.address, "/burn?ms=5").unwrap().ends_with(" ms of CPU time\n"));
    assert_eq!(answer(ask(house.address, "/burn?ms=51").unwrap()).unwrap().status(), 400);
    assert!(house.error_log().contains("lab-burn takes ms=0 to ms=50"));
    let page = text(house.address, "/server-status?auto").unwrap();
    assert!(number(&page, "Total Accesses") >= 3, "{page}");
}

/// Whether the status page says that a child accepts; none if it does not list the child.
fn accepts(house: &House, pid: u32) -> Option<bool> {
    let page = text(house.address, "/server-status").unwrap();
    let row = page.lines().find(|line| line.contains(&format!("</td><td>{pid}</td>")))?;
    // Slot, process, whether it stops, connections, whether it accepts.
    Some(row.split("</td><td>").nth(4)? == "yes")
}

#[test]
fn a_child_serves_when_its_delay_is_over_and_not_before() {
    const DELAY_MS: u64 = 1_000;
    let delay = Duration::from_millis(DELAY_MS);
    let site = SITE.replace(
        "StartDelay 10",
        &format!("StartDelay {DELAY_MS}\nStartServers 2\nMaxRequestWorkers 50"),
    );
    let begun = Instant::now();
    let house = House::open(&site, &[]).unwrap();
    // The port is already open, but nothing accepts connections from its queue.
    let first = text(house.address, "/wait?ms=0").unwrap();
    assert!(begun.elapsed() >= delay, "{first} {:?}", begun.elapsed());
    let all_accept = || house.children().iter().all(|pid| accepts(&house, *pid) == Some(true));
    wait_for("both children", || house.children().len() == 2 && all_accept()).unwrap();
    let (killed, begun) = (house.children()[0], Instant::now());
    send(killed, Signal::KILL);
    let is_new = || house.children().len() == 2 && !house.children().contains(&killed);
    wait_for("a successor", is_new).unwrap();
    wait_for("its readiness", all_accept).unwrap();
    assert!(begun.elapsed() >= delay, "{:?}", begun.elapsed());
}

/// The parent sees the queue before its workers: it starts what is missing, and no more, and the
/// waiting requests are served.
#[test]
fn a_pool_grows_to_what_is_asked_of_it() {
    let sized = "\
StartServers 1
ThreadsPerChild 4
MinSpareThreads 4
MaxSpareThreads 8
MaxRequestWorkers 64
";
    let house = House::open(&format!("{SITE}{sized}"), &[]).unwrap();
    let wait = |n| ask(house.address, &format!("/wait?ms=600000&n={n}")).unwrap();
    let waits: Vec<_> = (0..26).map(wait).collect();
    // 26 requests, the one for the page, and four spare workers: eight children of four.
    let busy = || number(&text(house.address, "/server-status?auto").unwrap(), "BusyWorkers");
    wait_for("all of them to be served", || busy() == 27).unwrap();
    wait_for("eight children", || house.children().len() == 8).unwrap();
    drop(waits);
}

/// MaxConnectionsPerChild: the only child completes a long request while its successor serves.
#[test]
fn a_child_that_has_taken_its_share_is_replaced_while_it_finishes() {
    let one = "\
StartServers 1
ThreadsPerChild 4
MaxRequestWorkers 4
MaxConnectionsPerChild 3
";
    let house = House::open(&format!("{SITE}{one}"), &[]).unwrap();
    let long = ask(house.address, "/wait?ms=600000").unwrap();
    let is_beside = || {
        text(house.address, "/wait?ms=0").unwrap();
        house.children().len() >= 2
    };
    wait_for("a successor beside it", is_beside).unwrap();
    assert!(text(house.address, "/wait?ms=0").unwrap().starts_with("waited "));
    drop(long);
}

/// Sends a request on a kept connection, and reads its response.
fn talk(stream: &mut TcpStream, head: &str, body: &str) -> Response {
    let request = format!("{head} HTTP/1.1\r\nHost: localhost\r\n");
    let length = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(format!("{request}{length}").as_bytes()).unwrap();
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut part).unwrap();
        bytes.extend_from_slice(part.get(..count).unwrap_or_default());
        if let Parsed::Whole(response, _) = parse(&bytes, false, count == 0) {
            return response;
        }
        assert!(count > 0, "the connection ended after {} bytes", bytes.len());
    }
}

/// OverloadShedding: while the only worker is busy, queued requests are rejected, except one for
/// the status page.
#[test]
fn requests_that_wait_too_long_are_turned_away_but_for_the_status_page() {
    let one = "\
StartServers 1
ThreadsPerChild 1
MaxRequestWorkers 1
OverloadShedding 1
";
    let house = House::open(&format!("{SITE}{one}"), &[]).unwrap();
    let open = || {
        let mut stream = connect(house.address).unwrap();
        assert_eq!(talk(&mut stream, "GET /wait?ms=0", "").status(), 200);
        stream
    };
    let (mut long, mut first, mut second, mut third) = (open(), open(), open(), open());
    long.write_all(b"GET /wait?ms=600000 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut shed = talk(&mut first, "GET /wait?ms=0", "");
    while shed.status() == 200 {
        // The long request had not begun yet.
        shed = talk(&mut first, "GET /wait?ms=0", "");
    }
    assert_eq!((shed.status(), shed.header("Retry-After")), (503, Some("1")));
    assert_eq!(talk(&mut second, "POST /wait?ms=0", "some text").status(), 503);
    let page = talk(&mut third, "GET /server-status?auto", "");
    assert_eq!(page.status(), 200);
    assert!(house.error_log().contains("(OverloadShedding)"));
    drop(long);
}

/// A body is sent back while it comes, in both framings. The client reads what it gets only when
/// all is sent, so that the server must not wait for that before it reads on.
#[test]
fn a_body_is_sent_back_as_it_comes() {
    for model in ["event", "worker", "prefork"] {
        let module = format!("LoadModule mpm_{model}_module modules/mod_mpm_{model}.so\n");
        let echo = "LabEcho On\n<Location /echo>\nSetHandler lab-echo\n</Location>\n";
        let house = House::open(&[&module, SITE, echo].concat(), &[]).unwrap();
        let mut client = connect(house.address).unwrap();
        // One piece comes back before the next is sent.
        client
            .write_all(
                b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: text/x\r\n\
                  Transfer-Encoding: chunked\r\n\r\n",
            )
            .unwrap();
        let mut came = Vec::new();
        for word in ["first", "second"] {
            client.write_all(format!("{:x}\r\n{word}\r\n", word.len()).as_bytes()).unwrap();
            while !String::from_utf8_lossy(&came).ends_with(&format!("{word}\r\n")) {
                let mut piece = [0; 4096];
                let count = client.read(&mut piece).unwrap();
                assert!(count > 0, "{model}: {}", String::from_utf8_lossy(&came));
                came.extend_from_slice(&piece[..count]);
            }
        }
        client.write_all(b"0\r\n\r\n").unwrap();
        let large = vec![b'x'; 60_000];
        let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n", large.len());
        client.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
        client.write_all(&large).unwrap();
        client.read_to_end(&mut came).unwrap();
        let text = String::from_utf8_lossy(&came);
        assert!(text.contains("Content-Type: text/x\r\n"), "{model}: {text}");
        let (_, rest) = text.split_once("second\r\n0\r\n\r\n").unwrap();
        assert!(rest.contains(&format!("Content-Length: {}\r\n", large.len())), "{model}: {rest}");
        assert!(rest.ends_with(&"x".repeat(large.len())), "{model}: {}", rest.len());
        // No more is taken than LimitRequestBody lets.
        let limit = "LimitRequestBody 5\n";
        let house = House::open(&[&module, SITE, echo, limit].concat(), &[]).unwrap();
        let mut client = connect(house.address).unwrap();
        let long = "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
                    Content-Length: 6\r\n\r\n123456";
        client.write_all(long.as_bytes()).unwrap();
        assert_eq!(answer(client).unwrap().status(), 413, "{model}");
        let mut client = connect(house.address).unwrap();
        let long = "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
                    Transfer-Encoding: chunked\r\n\r\n3\r\n123\r\n3\r\n456\r\n0\r\n\r\n";
        client.write_all(long.as_bytes()).unwrap();
        let mut came = Vec::new();
        // The connection may be reset, so that the client can tell that this was not all.
        let _ended = client.read_to_end(&mut came);
        let text = String::from_utf8_lossy(&came);
        assert!(!text.contains("456") && !text.ends_with("0\r\n\r\n"), "{model}: {text}");
    }
}
