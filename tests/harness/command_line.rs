//! What the person at the terminal sees: command lines go in, what is printed and the exit status
//! come out. Where apache2 has the same command, the texts are its own.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, PATIENCE, send, wait_for};
use evenkeel_tests::server::{Kind, command, free_port, program};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// `evenkeel serve` of a folder, on a port of the loopback address.
fn serve(folder: &Path, port: u16) -> Command {
    let binary = program(Kind::Evenkeel, folder).unwrap().canonicalize().unwrap();
    let listen = format!("127.0.0.1:{port}");
    command(&binary, &["serve", &folder.to_string_lossy(), "--listen", &listen])
}

fn said(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn serve_says_where_once_it_listens() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port().unwrap();
    // A socket, as a service manager may give, cannot be opened by the name /dev/stderr.
    let (log, stderr) = UnixStream::pair().unwrap();
    log.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut serve = serve(folder.path(), port);
    let serve = serve.stdout(Stdio::piped()).stderr(OwnedFd::from(stderr));
    let mut server = serve.spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    assert_eq!(line(), format!("Serving  {}", folder.path().canonicalize().unwrap().display()));
    assert_eq!(line(), format!("At       http://127.0.0.1:{port}/"));
    assert_eq!(line(), format!("Status   http://127.0.0.1:{port}/server-status"));
    assert_eq!(line(), format!("Stop     Ctrl-C, or kill {}", server.id()));
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    client.write_all(b"GET /server-status?auto HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    // The parent may say that it is ready after the first answer.
    let mut log = BufReader::new(log).lines().map(Result::unwrap);
    assert!(log.next().unwrap().contains("AH00489: "));
    let command_line = format!(" serve {} --listen 127.0.0.1:{port}'", folder.path().display());
    assert!(log.next().unwrap().ends_with(&command_line));
    send(server.id(), Signal::INT);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(log.next().unwrap().ends_with("AH00491: caught SIGTERM, shutting down"));
}

#[test]
fn serve_on_an_address_that_is_taken_says_only_that() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let (out, err, status) = said(&serve(folder.path(), port).output().unwrap());
    assert_eq!((&*out, status), ("", Some(1)));
    assert!(err.contains(&format!("could not bind to address 127.0.0.1:{port}\n")), "{err}");
    let hint = "evenkeel serve: nothing is served; --listen ADDRESS:PORT names another address\n";
    assert!(err.ends_with(hint), "{err}");
}

#[test]
fn a_second_start_is_told_of_the_first() {
    let house = House::open("", &[]).unwrap();
    // As of apache2, the port takes connections before the pid file is there.
    wait_for("the pid file", || house.path("logs/httpd.pid").exists()).unwrap();
    let program = program(Kind::Evenkeel, &house.path("")).unwrap();
    let file = house.path("httpd.conf");
    let words = ["-f", &file.to_string_lossy(), "-k", "start"];
    let output = command(&program, &words).output().unwrap();
    let expected = format!("httpd (pid {}) already running\n", house.parent());
    assert_eq!(said(&output), (expected, String::new(), Some(0)));
}
