//! `evenkeel bench` as a process: tests what only the built binary shows, that it exists under its
//! name and that ^C ends the load and not the report.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, send};
use evenkeel_tests::server::{Kind, command, evenkeel, program};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A server that reports each request that follows an answer on its connection.
fn server() -> (SocketAddr, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, followed) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let tell = tell.clone();
            std::thread::spawn(move || talk(&stream, || tell.send(()).is_ok()));
        }
    });
    (address, followed)
}

fn talk(mut stream: &TcpStream, tell: impl Fn() -> bool) {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    for (number, _) in lines.filter(String::is_empty).enumerate() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        if number > 0 && !tell() || stream.write_all(answer).is_err() {
            return;
        }
    }
}

fn said(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn an_interrupted_run_still_reports() {
    let folder = tempfile::tempdir().unwrap();
    let binary = program(Kind::Evenkeel, folder.path()).unwrap().canonicalize().unwrap();
    let (address, followed) = server();
    let url = format!("http://{address}/");
    let mut bench = command(&binary, &["bench", "-z", "1h", "-c", "2", &url]);
    let bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The client has read a response before it sends the next request.
    followed.recv().unwrap();
    send(bench.id(), Signal::INT);
    let (out, err, status) = said(&bench.wait_with_output().unwrap());
    assert_eq!(status, Some(0), "{out}{err}");
    // If the machine takes more than ten seconds for this, lines show the progress.
    assert!(err.lines().all(|line| line.ends_with(" answered")), "{err}");
    assert!(out.contains("Interrupted: these are the figures until then."), "{out}");
    assert!(out.contains("Status 200"), "{out}");
}

#[test]
fn the_servers_side_has_its_system_calls() {
    let house = House::open("", &[]).unwrap();
    let url = format!("http://{}/small.txt", house.address);
    let (binary, pid) = (evenkeel(), house.parent().to_string());
    let run = |more: &[&str]| {
        let words = [&["bench", "-n", "50", "-c", "2", "--server", &pid, &url][..], more].concat();
        said(&command(&binary, &words).output().unwrap())
    };
    let (out, err, status) = run(&[]);
    assert_eq!((err.as_str(), status), ("", Some(0)), "{out}");
    let calls = out.lines().find_map(|line| line.strip_prefix("System calls an answer: "));
    let each: f64 = calls.unwrap_or(&out).split(' ').next().unwrap().parse().unwrap();
    assert!(each >= 1.0 && out.contains("sendmsg") && !out.contains("Not seen"), "{out}");
    let (out, _, status) = run(&["--no-strace"]);
    assert!(out.contains("CPU of the server: ") && !out.contains("System calls"), "{out}");
    assert_eq!(status, Some(0));
}

#[test]
fn words_and_targets_that_will_not_do_have_their_status() {
    let folder = tempfile::tempdir().unwrap();
    let binary = program(Kind::Evenkeel, folder.path()).unwrap().canonicalize().unwrap();
    let run = |words: &[&str]| said(&command(&binary, words).output().unwrap());
    let (out, err, status) = run(&["bench", "--http2", "http://127.0.0.1/"]);
    assert_eq!((out.as_str(), status), ("", Some(2)));
    assert_eq!(err.lines().count(), 1, "{err}");
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (out, err, status) = run(&["bench", &format!("http://{refused}/")]);
    assert_eq!((out.as_str(), status), ("", Some(1)));
    assert_eq!(err, format!("evenkeel bench: {refused}: Connection refused (os error 111)\n"));
    let (out, err, status) = run(&["bench", "--help"]);
    assert!(out.contains("Usage: evenkeel bench ") && err.is_empty() && status == Some(0));
}
