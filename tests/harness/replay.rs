//! Tests `evenkeel replay` as a process: it handles a log with the oddities of real logs in little
//! memory, lines that do not match the format are counted and do not end it, and different
//! responses are reported.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::send;
use evenkeel_tests::odd_log;
use evenkeel_tests::server::{Kind, command, program};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A server that reports each request line that it answers, with five bytes or, for `/none`, with
/// 404.
fn server() -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, answered) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let tell = tell.clone();
            std::thread::spawn(move || talk(&stream, &tell));
        }
    });
    (address, answered)
}

fn talk(mut stream: &TcpStream, tell: &Sender<String>) -> Option<()> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(first) = lines.next() {
        lines.by_ref().find(|line| line.is_empty())?;
        let status = if first.starts_with("GET /none ") { "404 Not Found" } else { "200 OK" };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\nhello");
        stream.write_all(answer.as_bytes()).ok()?;
        tell.send(first).ok()?;
    }
    None
}

fn binary(folder: &tempfile::TempDir) -> PathBuf {
    program(Kind::Evenkeel, folder.path()).unwrap().canonicalize().unwrap()
}

fn said(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// The peak memory of a process, in KiB.
fn most_memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn an_odd_log_goes_through_in_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (address, answered) = server();
    let url = format!("http://{address}/");
    let mut replay = command(&binary(&folder), &["replay", "-c", "8", &url, "-"]);
    replay.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut replay = replay.spawn().unwrap();
    let mut log = BufWriter::new(replay.stdin.take().unwrap());
    let writing = std::thread::spawn(move || {
        let written = odd_log::write(&mut log, 200_000, 100, 7).unwrap();
        log.flush().unwrap();
        (written, log)
    });
    let (written, log) = writing.join().unwrap();
    for _ in 0..written.requests {
        answered.recv().unwrap();
    }
    // The log has not ended, so the process still exists.
    let memory_kib = most_memory_kib(replay.id());
    drop(log);
    let (out, err, status) = said(&replay.wait_with_output().unwrap());
    assert_eq!(status, Some(0), "{err}");
    assert!(memory_kib < 50_000, "{memory_kib} KiB");
    let shown = |name: &str| {
        let line = out.lines().find_map(|line| line.trim_start().strip_prefix(name)).unwrap();
        line.trim().replace(',', "").parse::<u64>().unwrap()
    };
    assert_eq!(shown("Lines of the log"), written.lines);
    assert_eq!(shown("requests"), written.requests);
    assert_eq!(shown("malformed"), written.malformed);
    assert_eq!(shown("no HTTP") + shown("no request (-)"), written.no_requests);
    assert!(out.contains("Statuses other than the log's: 0 of"), "{out}");
}

#[test]
fn parts_of_a_log_are_replayed_and_differences_told() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let line = |path: &str, size| {
        format!("::1 - - [10/Oct/2000:13:55:36 -0700] \"GET {path} HTTP/1.1\" 200 {size}\n")
    };
    let mut text = "cut off\n".to_owned();
    text.extend((1..10).map(|number| line(&format!("/{number}"), 5)));
    text += &line("/none", 5);
    text += &line("/other", 6);
    text.extend((12..20).map(|number| line(&format!("/{number}"), 5)));
    fs::write(&log, text).unwrap();
    let (address, answered) = server();
    let url = format!("http://{address}/");
    let log = log.to_str().unwrap();
    let words = ["replay", "--split", "3", "--lines", "6", "-c", "2", &url, log];
    let (out, err, status) = said(&command(&binary(&folder), &words).output().unwrap());
    assert_eq!((err.as_str(), status), ("", Some(0)), "{out}");
    let mut asked: Vec<String> = answered.try_iter().collect();
    asked.sort();
    // Three parts of six lines are eighteen, the first of which is not a request.
    assert_eq!(asked.len(), 17, "{asked:?}");
    assert!(asked.contains(&"GET /17 HTTP/1.1".to_owned()), "{asked:?}");
    for wanted in [
        format!("{log}:1: column "),
        format!("{log}:11: status 404, the log has 200: GET /none"),
        format!("{log}:12: bytes 5, the log has 6: GET /other"),
        "200 in the log, 404 now".to_owned(),
    ] {
        assert!(out.contains(&wanted), "{wanted} is not in {out}");
    }
    let json = [&words[..], &["--json", "--timing", "log", "--speed", "100"]].concat();
    let (out, err, status) = said(&command(&binary(&folder), &json).output().unwrap());
    assert_eq!((err.as_str(), status), ("", Some(0)), "{out}");
    assert!(out.contains("\"malformed\": 1,") && out.contains("\"different\": 1,"), "{out}");
}

#[test]
fn an_interrupted_replay_reports_though_its_log_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (address, answered) = server();
    let url = format!("http://{address}/");
    let mut replay = command(&binary(&folder), &["replay", "-c", "2", &url, "-"]);
    replay.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut replay = replay.spawn().unwrap();
    // As many lines as are examined before the first request.
    let mut log = replay.stdin.take().unwrap();
    log.write_all("/page\n".repeat(1000).as_bytes()).unwrap();
    answered.iter().take(1000).for_each(drop);
    send(replay.id(), Signal::INT);
    let (out, err, status) = said(&replay.wait_with_output().unwrap());
    assert_eq!((err.as_str(), status), ("", Some(0)), "{out}");
    assert!(out.contains("Interrupted: these are the figures until then."), "{out}");
    assert!(out.contains("Lines of the log               1,000"), "{out}");
    drop(log);
}

#[test]
fn what_cannot_be_replayed_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, "one\ntwo\n").unwrap();
    let log = log.to_str().unwrap();
    let run = |words: &[&str]| said(&command(&binary(&folder), words).output().unwrap());
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{refused}/");
    let (out, err, status) = run(&["replay", "--format", "common", &url, log]);
    let wanted = format!("evenkeel replay: {log}:1: column 1: a text is expected");
    assert!(out.is_empty() && err.starts_with(&wanted), "{err}");
    assert_eq!((err.lines().count(), status), (1, Some(1)));
    let (_, err, status) = run(&["replay", &url, "/nowhere/log"]);
    assert!(err.starts_with("evenkeel replay: /nowhere/log: No such file"), "{err}");
    assert_eq!(status, Some(1));
    fs::write(log, "/a\n").unwrap();
    let (_, err, status) = run(&["replay", &url, log]);
    let wanted = format!("evenkeel replay: {refused}: Connection refused (os error 111)\n");
    assert_eq!((err, status), (wanted, Some(1)));
    let (_, err, status) = run(&["replay", "--speed", "2", &url, log]);
    assert!(err.contains("--speed goes with --timing log") && status == Some(2), "{err}");
    let (_, err, status) = run(&["replay", "--timing", "log", &url, log]);
    assert!(err.contains("has no times (urls)") && status == Some(1), "{err}");
}
