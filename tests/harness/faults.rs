//! Tests faults: what must keep working while something is killed, full, exhausted, slow or wrong.
//! Requests and responses are counted; nothing is timed, except that a response arrives at all.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, client_ports, cpu_ticks, halt, send, wait_for};
use evenkeel_tests::load::{Load, REQUEST, answer, ask, connect, exchange, probe};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Few workers, which a thousand slow clients would fill many times over.
const FEW: &str = "\
ServerLimit 2
StartServers 2
ThreadsPerChild 8
MinSpareThreads 16
MaxSpareThreads 16
MaxRequestWorkers 16
";

/// The number of slow clients.
const SLOW: usize = 1_000;

/// Waits until the load has `more` further answers.
fn wait_for_answers(load: &Load, more: u64) {
    let before = load.answered();
    wait_for("an answer under load", || load.answered() >= before + more).unwrap();
}

/// Raises this process's limit for the connections of the slow clients.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

#[test]
fn children_that_all_stand_still_are_replaced_while_clients_wait() {
    let of = |model: &str, pool: &str| {
        let file = format!("/usr/lib/apache2/modules/mod_mpm_{model}.so");
        format!("LoadModule mpm_{model}_module {file}\n{pool}")
    };
    // As many children as are allowed, so that none can be started in addition.
    let two = "StartServers 2\nMinSpareServers 1\nMaxRequestWorkers 2\n";
    for more in [of("event", FEW), of("worker", FEW), of("prefork", two)] {
        let house = House::open(&more, &[]).unwrap();
        // A child that has not served yet counts as starting.
        let serves = || house.error_log().contains("resuming normal operations");
        wait_for("two children", serves).unwrap();
        probe(house.address).unwrap();
        let stopped = house.children();
        halt(&stopped).unwrap();
        probe(house.address).unwrap();
        let told = "does not come round while connections wait";
        assert!(house.error_log().contains(told), "{}", house.error_log());
        stopped.iter().for_each(|child| send(*child, Signal::CONT));
    }
}

#[test]
fn a_killed_child_costs_its_own_requests_only() {
    let house = House::open(FEW, &[]).unwrap();
    let load = Load::start(house.address, 16, true);
    let (mut its_own, mut count) = (HashSet::new(), 0);
    for _ in 0..5 {
        wait_for_answers(&load, 500);
        wait_for("two children", || house.children().len() == 2).unwrap();
        let child = house.children()[0];
        // A stopped child accepts no further connection that this test would miss.
        halt(&[child]).unwrap();
        let ports = client_ports(child, house.address.port());
        count += ports.len();
        // The kernel may give a port to a second client.
        its_own.extend(ports);
        send(child, Signal::KILL);
        wait_for("its end", || !house.children().contains(&child)).unwrap();
    }
    wait_for_answers(&load, 500);
    wait_for("two children", || house.children().len() == 2).unwrap();
    let tally = load.stop();
    let others: Vec<_> = tally.lost.iter().filter(|(port, _)| !its_own.contains(port)).collect();
    assert!(others.is_empty(), "lost by others: {others:?}");
    assert_eq!(tally.refused, 0);
    assert!(tally.lost.len() <= count, "{} lost", tally.lost.len());
}

#[test]
fn a_killed_parent_leaves_the_port_to_the_next_server() {
    let mut house = House::open(FEW, &[]).unwrap();
    wait_for("two children", || house.children().len() == 2).unwrap();
    let children = house.children();
    house.signal(Signal::KILL);
    house.server = None;
    let alive = |pid: &u32| fs::exists(format!("/proc/{pid}")).unwrap_or(true);
    wait_for("the children's end", || !children.iter().any(alive)).unwrap();
    house.start(&[]).unwrap();
    probe(house.address).unwrap();
}

#[test]
fn a_reload_loses_nothing() {
    let house = House::open(FEW, &[]).unwrap();
    let kept = Load::start(house.address, 16, true);
    let short = Load::start(house.address, 4, false);
    for _ in 0..10 {
        wait_for_answers(&kept, 100);
        wait_for_answers(&short, 20);
        house.reload().unwrap();
    }
    wait_for_answers(&kept, 100);
    wait_for_answers(&short, 20);
    for tally in [kept.stop(), short.stop()] {
        assert!(tally.lost.is_empty(), "lost: {:?}", tally.lost);
        assert_eq!(tally.refused, 0);
    }
}

#[test]
fn pipes_in_the_tree_are_not_waited_for() {
    let module =
        |name: &str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    let modules: String = ["autoindex", "dir", "mime", "negotiation"].map(module).concat();
    let folder = "<Directory \"@ROOT@/htdocs\">\nAllowOverride All\nOptions Indexes MultiViews\n\
                  AddHandler type-map .var\nReadmeName README.txt\n\
                  IndexOptions ScanHTMLTitles\n</Directory>\n";
    let house = House::open(&format!("{FEW}{modules}{folder}"), &[]).unwrap();
    let pipes = ["d/.htaccess", "d/page.html", "l/README.txt", "l/a.html", "map.var", "v.en.txt"];
    for name in ["d", "l"] {
        fs::create_dir(house.path("htdocs").join(name)).unwrap();
    }
    for name in pipes {
        let path = house.path("htdocs").join(name);
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }
    // More requests than there are workers.
    for _ in 0..20 {
        // An .htaccess file that cannot be read might have forbidden the files beside it.
        for (target, wanted) in [
            ("/d/page.html", 403),
            ("/l/", 200),
            ("/l/a.html", 403),
            ("/map.var", 403),
            ("/v", 404),
        ] {
            let answer = answer(ask(house.address, target).unwrap()).unwrap();
            assert_eq!(answer.status(), wanted, "{target}");
        }
    }
    probe(house.address).unwrap();
}

#[test]
fn a_broken_configuration_leaves_the_running_one_in_force() {
    let house = House::open(FEW, &[]).unwrap();
    let load = Load::start(house.address, 4, true);
    let parent = house.parent();
    for broken in ["NoSuchDirective on\n", "<Directory /x>\n", "Listen nowhere:http:80\n"] {
        house.configure(broken).unwrap();
        let before = house.error_log().len();
        house.signal(Signal::USR1);
        wait_for("a line about it", || house.error_log().len() > before).unwrap();
        wait_for_answers(&load, 100);
        probe(house.address).unwrap();
    }
    house.configure("").unwrap();
    house.reload().unwrap();
    wait_for_answers(&load, 100);
    let tally = load.stop();
    assert!(tally.lost.is_empty(), "lost: {:?}", tally.lost);
    assert_eq!((tally.refused, house.parent()), (0, parent));
}

#[test]
fn exhausted_descriptors_are_borne_and_recovered_from() {
    raise_descriptor_limit();
    let one = "ServerLimit 1\nStartServers 1\nThreadsPerChild 64\nMaxRequestWorkers 64\n";
    let house = House::open(one, &["prlimit", "--nofile=80:80"]).unwrap();
    // A body that does not arrive keeps each connection open; with only a head missing, connections
    // would be closed for others.
    let head = b"POST /small.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut stream = connect(house.address).unwrap();
        stream.write_all(head).unwrap();
        held.push(stream);
    }
    // The port is open before the first child exists.
    wait_for("a child", || house.children().len() == 1).unwrap();
    let child = house.children()[0];
    let open = || fs::read_dir(format!("/proc/{child}/fd")).map_or(0, Iterator::count);
    wait_for("the limit", || open() >= 70).unwrap();
    // Each thread reports it once a second for as long as it lasts.
    let tellers = || {
        let log = house.error_log();
        let told = log.lines().filter(|line| line.contains("AH02176"));
        let parts = told.flat_map(|line| line.split([':', ']']));
        parts.filter_map(|part| Some(part.strip_prefix("tid ")?.to_owned())).collect::<Vec<_>>()
    };
    wait_for("a line", || !tellers().is_empty()).unwrap();
    let (begun, busy) = (Instant::now(), cpu_ticks(child));
    let first = tellers().swap_remove(0);
    let count = || tellers().iter().filter(|teller| **teller == first).count();
    wait_for("three more lines of a thread", || count() >= 4).unwrap();
    let (took, busy) = (begun.elapsed(), cpu_ticks(child) - busy);
    // The test saw the first of them a moment after it was written.
    assert!(took.as_secs() >= 2, "three more lines in {took:?}");
    // A busy machine gives this thread a core late.
    let ticks = rustix::param::clock_ticks_per_second() * (took.as_secs() + 1);
    assert!(busy * 4 < ticks, "{busy} of {ticks} ticks of processor time while exhausted");
    drop(held);
    probe(house.address).unwrap();
    assert_eq!(house.children(), [child], "the child has died of it");
}

/// A file system of 64 KiB, unmounted when it is dropped.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: std::path::PathBuf) -> SmallDisk {
        fs::create_dir_all(&at).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=64k,mode=777", "none"];
        let done = Command::new("mount").args(options).arg(&at).status().unwrap();
        assert!(done.success(), "a file system cannot be mounted: this test needs root");
        SmallDisk(at)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_log_disk_stops_nobody_and_logging_resumes() {
    let more = "LogFormat \"%r %{User-Agent}i\" long\n";
    let mut house = House::open(&format!("{FEW}{more}"), &[]).unwrap();
    let disk = SmallDisk::mount(house.path("small"));
    let root = house.path("");
    house.server.take().unwrap().stop().unwrap();
    let log = disk.0.join("access.log");
    house.configure(&format!("CustomLog \"{}small/access.log\" long\n", root.display())).unwrap();
    house.start(&[]).unwrap();
    let agent = "a".repeat(400);
    let request =
        format!("GET /small.txt HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {agent}\r\n\r\n");
    let mut stream = connect(house.address).unwrap();
    for _ in 0..3_000 {
        exchange(&mut stream, request.as_bytes()).unwrap();
    }
    let size = || fs::metadata(&log).map_or(0, |data| data.len());
    wait_for("a full disk", || size() >= 60 << 10).unwrap();
    // There is room again, and further lines are written.
    fs::File::options().write(true).open(&log).unwrap().set_len(0).unwrap();
    wait_for("lines after the disk has room", || {
        let mut stream = connect(house.address).unwrap();
        exchange(&mut stream, REQUEST).unwrap();
        size() > 0
    })
    .unwrap();
    house.server.take().unwrap().stop().unwrap();
}

/// Opens the slow clients. Each has sent `first`.
fn slow_clients(house: &House, first: &[u8]) -> Vec<TcpStream> {
    raise_descriptor_limit();
    let client = |_| {
        let mut stream = connect(house.address).unwrap();
        stream.write_all(first).unwrap();
        stream
    };
    (0..SLOW).map(client).collect()
}

/// Has every slow client send a little more, round after round. Another client is answered in each
/// round.
fn probe_among(house: &House, slow: &mut [TcpStream], more: &[u8]) {
    let cut = AtomicU64::new(0);
    for _ in 0..5 {
        probe(house.address).unwrap();
        for stream in &mut *slow {
            if stream.write_all(more).is_err() {
                cut.fetch_add(1, Ordering::Relaxed);
            }
        }
        probe(house.address).unwrap();
    }
    assert_eq!(cut.into_inner(), 0, "slow clients were cut off before their time");
}

#[test]
fn slow_headers_of_a_thousand_clients_keep_nobody_waiting() {
    let house = House::open(FEW, &[]).unwrap();
    let mut slow = slow_clients(&house, b"GET /small.txt HTTP/1.1\r\nHost: localhost\r\n");
    probe_among(&house, &mut slow, b"X-A: b\r\n");
}

#[test]
fn slow_bodies_of_a_thousand_clients_keep_nobody_waiting() {
    let house = House::open(FEW, &[]).unwrap();
    let head = b"POST /small.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n";
    let mut slow = slow_clients(&house, head);
    probe_among(&house, &mut slow, b"some");
}

#[test]
fn slow_readers_of_a_large_file_keep_nobody_waiting() {
    let house = House::open(FEW, &[]).unwrap();
    let request = b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let slow = slow_clients(&house, request);
    // None of them reads, and all connections stay open.
    for _ in 0..5 {
        probe(house.address).unwrap();
    }
    drop(slow);
    probe(house.address).unwrap();
}

#[test]
fn where_memory_runs_out_a_child_is_ended_before_the_parent() {
    let adjustment = |pid: u32| -> i32 {
        let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        text.trim().parse().unwrap()
    };
    let house = House::open("StartServers 3\n", &[]).unwrap();
    wait_for("three children", || house.children().len() >= 3).unwrap();
    let parent = adjustment(house.parent());
    let own = adjustment(std::process::id());
    assert_eq!(parent, own, "the parent is what whoever starts it has made it");
    let is_first = || house.children().into_iter().all(|child| adjustment(child) > parent);
    wait_for("children that come first", is_first).unwrap();
}
