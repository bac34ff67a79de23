//! Tests logs while the server works: lines are written when there is something to report, and
//! files are renamed and reopened under load without losing a line. Lines are compared with the
//! number of responses.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, wait_for};
use evenkeel_tests::load::{Load, Tally, connect};
use rustix::process::Signal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// A log with the same line for each request of the load.
const LOG: &str = "\
LogFormat \"%r %>s\" line
CustomLog \"@ROOT@/logs/access.log\" line
";

/// Sends the head of a request without its body.
fn begin_post(house: &House, framing: &str) -> TcpStream {
    let mut stream = connect(house.address).unwrap();
    let head = format!(
        "POST /small.txt HTTP/1.1\r\nHost: localhost\r\n{framing}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Sends a body that is not chunked, and reads the response.
fn end_post(mut stream: TcpStream) -> String {
    stream.write_all(b"hello").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_request_that_waits_is_told_of_before_its_end() {
    let house = House::open("LogLevel authz_core:debug\n", &[]).unwrap();
    let stream = begin_post(&house, "Content-Length: 5");
    let told = || house.error_log().matches("AH01626").count();
    // One line for the rule, and one for the enclosing block.
    wait_for("the decision", || told() == 2).unwrap();
    assert!(end_post(stream).starts_with("HTTP/1.1 200 "));
    assert_eq!(told(), 2, "{}", house.error_log());
}

/// The lines of a log and of all files that it was renamed to.
fn lines(house: &House, log: &str) -> Vec<String> {
    let folder = fs::read_dir(house.path("logs")).unwrap().map(|entry| entry.unwrap().path());
    let logs = folder.filter(|path| path.to_string_lossy().contains(&format!("/{log}")));
    let text: String = logs.map(|path| fs::read_to_string(path).unwrap()).collect();
    assert!(text.is_empty() || text.ends_with('\n'), "a line is torn");
    text.lines().map(str::to_owned).collect()
}

/// Renames the logs under load and makes the server open new ones, eight times.
fn rotate(house: &mut House, signal: Signal) -> Tally {
    let kept = Load::start(house.address, 8, true);
    let short = Load::start(house.address, 4, false);
    let answered = || kept.answered() + short.answered();
    for number in 1..=8 {
        let before = answered();
        wait_for("answers under load", || answered() >= before + 200).unwrap();
        for log in ["access.log", "error.log"] {
            let renamed = house.path(&format!("logs/{log}.{number}"));
            fs::rename(house.path(&format!("logs/{log}")), renamed).unwrap();
        }
        house.signal(signal);
        let resumed = || house.error_log().contains("resuming normal operations");
        wait_for("the new generation", resumed).unwrap();
    }
    let before = answered();
    wait_for("answers under load", || answered() >= before + 200).unwrap();
    let (mut all, short) = (kept.stop(), short.stop());
    all.answered += short.answered;
    all.lost.extend(short.lost);
    house.server.take().unwrap().stop().unwrap();
    all
}

#[test]
fn rotation_under_load_loses_no_line() {
    let mut house = House::open(LOG, &[]).unwrap();
    let tally = rotate(&mut house, Signal::USR1);
    assert!(tally.lost.is_empty(), "lost: {:?}", tally.lost);
    let lines = lines(&house, "access.log");
    let odd: Vec<_> = lines.iter().filter(|line| *line != "GET /small.txt HTTP/1.1 200").collect();
    assert!(odd.is_empty(), "{odd:?}");
    assert_eq!(lines.len() as u64, tally.answered);
}

#[test]
fn a_restart_loses_no_line_of_an_answered_request() {
    let mut house = House::open(LOG, &[]).unwrap();
    let tally = rotate(&mut house, Signal::HUP);
    let lines = lines(&house, "access.log");
    let odd: Vec<_> = lines.iter().filter(|line| *line != "GET /small.txt HTTP/1.1 200").collect();
    assert!(odd.is_empty(), "{odd:?}");
    // The server may have answered requests whose connections a restart cut off.
    let most = tally.answered + tally.lost.len() as u64;
    assert!((tally.answered..=most).contains(&(lines.len() as u64)), "{} of {most}", lines.len());
}

#[test]
fn what_an_old_child_ends_after_the_rotation_is_in_one_of_the_files() {
    let mut house = House::open(&format!("{LOG}LogLevel debug\n"), &[]).unwrap();
    let whole = begin_post(&house, "Content-Length: 5");
    let broken = begin_post(&house, "Transfer-Encoding: chunked");
    wait_for("the requests", || house.error_log().matches("AH01626").count() == 4).unwrap();
    for log in ["access.log", "error.log"] {
        let renamed = house.path(&format!("logs/{log}.1"));
        fs::rename(house.path(&format!("logs/{log}")), renamed).unwrap();
    }
    house.signal(Signal::USR1);
    let resumed = || house.error_log().contains("resuming normal operations");
    wait_for("the new generation", resumed).unwrap();
    assert!(end_post(whole).starts_with("HTTP/1.1 200 "));
    assert!(end_post(broken).starts_with("HTTP/1.1 400 "));
    house.server.take().unwrap().stop().unwrap();
    let mut lines = lines(&house, "access.log");
    lines.sort();
    assert_eq!(lines, ["POST /small.txt HTTP/1.1 200", "POST /small.txt HTTP/1.1 400"]);
    let errors = self::lines(&house, "error.log");
    let told = errors.iter().filter(|line| line.contains("AH01590: ")).count();
    assert_eq!(told, 1, "{errors:#?}");
}
