//! Tests exhaustion of descriptors under each process model: a request that needs one is answered
//! with 503, connections that can be closed are closed, the error log names the limit, and the
//! server recovers when descriptors are available again.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, await_rest, cpu_ticks, wait_for};
use evenkeel_tests::load::{REQUEST, answer, ask, connect, exchange};
use evenkeel_tests::server::{Kind, command, program};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

const PREFORK: &str = "\
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
StartServers 1
MinSpareServers 1
MaxSpareServers 1
MaxRequestWorkers 1
";
const WORKER: &str = "\
LoadModule mpm_worker_module /usr/lib/apache2/modules/mod_mpm_worker.so
ServerLimit 1
StartServers 1
ThreadsPerChild 32
MaxRequestWorkers 32
";
const EVENT: &str = "ServerLimit 1\nStartServers 1\nThreadsPerChild 32\nMaxRequestWorkers 32\n";

/// A request that needs no descriptor except that of its connection.
const OPTIONS: &[u8] = b"OPTIONS /small.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A server with one child, and that child.
fn one_child(more: &str) -> (House, u32) {
    let house = House::open(more, &[]).unwrap();
    // Wait until then, because a starting child opens what it needs.
    let started = || house.error_log().contains("resuming normal operations");
    assert!(wait_for("a start", started).is_ok(), "no start:\n{}", house.error_log());
    let child = *house.children().first().unwrap();
    // The parent reports this when it has forked. What the child opens temporarily would count.
    await_rest(child).unwrap();
    (house, child)
}

/// Leaves a process `more` descriptors in addition to those that it has. Returns the limit.
fn leave(pid: u32, more: usize) -> u64 {
    let numbers = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let used: BTreeSet<u64> =
        numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // Its open descriptors stay open whatever their numbers, and new ones get the lowest numbers.
    limit(pid, (0..).filter(|number| !used.contains(number)).nth(more).unwrap())
}

/// Sets the limit of a running process, as its owner, because being root may not be sufficient.
fn limit(pid: u32, most: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let id = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().split_whitespace().next().unwrap().parse::<u32>().unwrap()
    };
    let mut prlimit = Command::new("prlimit");
    prlimit.args([format!("--pid={pid}"), format!("--nofile={most}:")]);
    assert!(prlimit.uid(id("Uid:")).gid(id("Gid:")).status().unwrap().success());
    most
}

#[test]
fn a_request_that_needs_one_more_descriptor_is_answered_503_and_the_log_names_the_limit() {
    for model in [PREFORK, WORKER, EVENT] {
        let (house, child) = one_child(model);
        let most = leave(child, 1);
        let refused = answer(ask(house.address, "/large.bin").unwrap()).unwrap();
        assert_eq!(refused.status(), 503, "{model}");
        let line = format!("Too many open files (os error 24); this process may have {most} ");
        let told = |line: &str| house.error_log().contains(line);
        wait_for("a line", || told(&format!("{line}(ulimit -n {most})"))).unwrap();
        limit(child, 1 << 10);
        let served = answer(ask(house.address, "/large.bin").unwrap()).unwrap();
        assert_eq!((served.status(), served.body.len()), (200, 8 << 20), "{model}");
        assert_eq!(house.children(), [child], "the child has died of it");
    }
}

#[test]
fn where_no_connection_can_be_accepted_nobody_spins_and_it_is_when_there_are_descriptors_again() {
    for model in [PREFORK, WORKER, EVENT] {
        let (house, child) = one_child(model);
        let most = leave(child, 0);
        let mut waiting: Vec<TcpStream> = (0..8).map(|_| connect(house.address).unwrap()).collect();
        waiting.iter_mut().for_each(|stream| stream.write_all(REQUEST).unwrap());
        let told = |line: &str| house.error_log().lines().filter(|it| it.contains(line)).count();
        let line = format!(
            "AH02176: apr_socket_accept: (client socket); this process may have \
                            {most} (ulimit -n {most})"
        );
        wait_for("a line", || told(&line) > 0).unwrap();
        let (before, busy) = (told("AH02176"), cpu_ticks(child));
        // The message comes once a second. Wait for two more, and check that the child used no CPU
        // time.
        wait_for("two more lines", || told("AH02176") >= before + 2).unwrap();
        let busy = cpu_ticks(child) - busy;
        let second = rustix::param::clock_ticks_per_second();
        assert!(busy * 4 < second, "{busy} ticks of processor time while exhausted: {model}");
        limit(child, 1 << 10);
        for stream in &mut waiting {
            exchange(stream, b"").unwrap();
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        }
        assert_eq!(house.children(), [child], "the child has died of it");
    }
}

#[test]
fn idle_connections_make_room_where_descriptors_have_run_out_and_workers_have_not() {
    for model in [WORKER, EVENT] {
        let (house, child) = one_child(model);
        leave(child, 6);
        let mut idle = Vec::new();
        // A client for which there is no descriptor is answered when another connection was closed,
        // long before KeepAliveTimeout.
        for _ in 0..16 {
            let mut stream = connect(house.address).unwrap();
            exchange(&mut stream, OPTIONS).unwrap();
            idle.push(stream);
        }
        assert_eq!(house.children(), [child], "the child has died of it");
    }
}

/// The configuration of worker with one child of `count` threads.
fn threads(count: usize) -> String {
    format!(
        "LoadModule mpm_worker_module /usr/lib/apache2/modules/mod_mpm_worker.so\nThreadLimit 250\n\
         ServerLimit 1\nStartServers 1\nThreadsPerChild {count}\nMaxRequestWorkers {count}\n"
    )
}

#[test]
fn a_thread_of_worker_needs_two_descriptors_whatever_it_waits_for() {
    let house = House::open(&threads(250), &["prlimit", "--nofile=600:600"]).unwrap();
    let mut kept: Vec<TcpStream> = (0..250).map(|_| connect(house.address).unwrap()).collect();
    kept.iter_mut().for_each(|stream| assert!(!exchange(stream, OPTIONS).unwrap()));
    // All of them wait for the rest of a head at the same time, and none was closed.
    let (first, rest) = OPTIONS.split_at(20);
    kept.iter_mut().for_each(|stream| stream.write_all(first).unwrap());
    kept.iter_mut().for_each(|stream| _ = exchange(stream, rest).unwrap());
    assert!(!house.error_log().contains("AH02176"), "{}", house.error_log());
}

#[test]
fn threads_for_which_there_are_no_descriptors_are_refused_at_a_start_and_at_a_reload() {
    let few = ["prlimit", "--nofile=300:300"];
    let house = House::open(&threads(25), &few).unwrap();
    house.configure(&threads(250)).unwrap();
    house.signal(Signal::USR1);
    let told = |line: &str| {
        line.contains("ThreadsPerChild 250 (line ")
            && line.contains("and a process may have 300 (ulimit -n 300): lower ThreadsPerChild")
    };
    let refused = || house.error_log().lines().any(told);
    wait_for("a refusal", refused).unwrap();
    let served = answer(ask(house.address, "/small.txt").unwrap()).unwrap();
    assert_eq!(served.status(), 200);
    // The caller of a start that fails can read the reason.
    let house = House::lay_out(&threads(250)).unwrap();
    let program = program(Kind::Evenkeel, &house.path("")).unwrap();
    let (program, file) = (program.to_string_lossy(), house.path("httpd.conf"));
    let words = [few[1], &*program, "-f", &*file.to_string_lossy(), "-k", "start"];
    let output = command(Path::new(few[0]), &words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.lines().any(told), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn clients_that_send_half_a_head_make_room_where_descriptors_have_run_out() {
    for model in [WORKER, EVENT] {
        let (house, child) = one_child(model);
        leave(child, 20);
        let half = |_| {
            let mut stream = connect(house.address).unwrap();
            stream.write_all(OPTIONS.split_at(20).0).unwrap();
            stream
        };
        let slow: Vec<TcpStream> = (0..400).map(half).collect();
        // Long before their time is over.
        let mut stream = connect(house.address).unwrap();
        exchange(&mut stream, OPTIONS).unwrap();
        assert_eq!(house.children(), [child], "the child has died of it");
        drop(slow);
    }
}
