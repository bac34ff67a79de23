//! Tests `evenkeel surge` with the server: the files that it makes are those that its users
//! request, missing ones are reported at once, and a run is saved for a report.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::House;
use evenkeel_tests::server::{command, evenkeel};
use std::net::TcpListener;

/// Runs these words, and returns the output, the complaints and the exit status.
fn run(words: &str) -> (String, String, Option<i32>) {
    let words: Vec<&str> = words.split_whitespace().collect();
    let output = command(&evenkeel(), &words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn the_files_that_are_made_are_those_that_are_asked_for() {
    let house = House::open("", &[]).unwrap();
    let files = house.path("htdocs/surge").display().to_string();
    let (out, err, status) = run(&format!("surge make {files} --files 40 --seed 3"));
    assert_eq!((err.as_str(), status), ("", Some(0)));
    assert!(out.contains("40 files, ") && out.contains("seed 3"), "{out}");
    let url = format!("http://{}/surge/", house.address);
    let saved = house.path("saved").display().to_string();
    let words = format!("surge run {url} -u 5 -n 300 --think 0 --files 40");
    let (out, err, status) = run(&format!("{words} --seed 3 --save {saved}"));
    assert_eq!((err.as_str(), status), ("", Some(0)), "{out}");
    assert!(out.contains("Status 200") && out.contains("Fairness: "), "{out}");
    assert!(!out.contains("Status 404") && !out.contains("not the file"), "{out}");
    let (text, _, status) = run(&format!("report --text {saved}"));
    assert!(text.contains("surge") && text.contains("Clients never served"), "{text}");
    assert_eq!(status, Some(0));
    // Another seed means other files.
    let (out, _, _) = run(&format!("{words} --seed 4"));
    assert!(out.contains("not the file that was made"), "{out}");
}

#[test]
fn users_come_over_tls_and_resume_their_sessions() {
    let house = House::open_tls("KeepAlive off").unwrap();
    let files = house.path("htdocs/surge").display().to_string();
    run(&format!("surge make {files} --files 20 --seed 3"));
    let url = format!("https://{}/surge/", house.address);
    let saved = house.path("saved").display().to_string();
    let words = format!("surge run {url} -u 2 -n 60 --think 0 --files 20 --seed 3 --insecure");
    let (out, err, status) = run(&format!("{words} --save {saved}"));
    assert_eq!((err.as_str(), status), ("", Some(0)), "{out}");
    let row = out.lines().find(|line| line.trim_start().starts_with("Handshakes")).unwrap();
    // Each of the two users begins with a full handshake.
    assert!(row.contains(" 60 ") && row.contains("96.7 % of them resumed"), "{row}");
    let (text, _, _) = run(&format!("report --text {saved}"));
    assert!(text.contains("TLS handshakes that resumed, %"), "{text}");
    let (out, _, _) = run(&format!("{words} --full-handshakes"));
    assert!(out.contains(" 0.0 % of them resumed"), "{out}");
    let log = house.path("replayed.log");
    let line = "127.0.0.1 - - [01/Jan/2026:00:00:00 +0000] \"GET /small.txt HTTP/1.1\" 200 1024\n";
    std::fs::write(&log, line.repeat(30)).unwrap();
    let words = format!("replay -c 1 --insecure https://{}/ {}", house.address, log.display());
    let (out, err, status) = run(&words);
    assert_eq!((err.as_str(), status), ("", Some(0)), "{out}");
    assert!(out.contains("Status 200") && out.contains("96.7 % of them resumed"), "{out}");
}

#[test]
fn a_server_that_is_not_there_is_told_at_once() {
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (out, err, status) = run(&format!("surge run http://{refused}/ --files 10"));
    let wanted = format!("evenkeel surge: {refused}: Connection refused (os error 111)\n");
    assert_eq!((out.as_str(), err, status), ("", wanted, Some(1)));
    let (_, err, status) = run("surge run http://192.0.2.1/ --files 10");
    assert!(err.contains("--yes-this-is-my-server") && status == Some(2), "{err}");
}
