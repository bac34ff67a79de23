//! Tests prefork and worker, where connections hold workers: which processes are woken, what the
//! status page shows, and that neither greedy nor slow clients keep others out. Faults that event
//! survives are tested with both. Nothing is timed, except that a response arrives at all.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::answer::{Parsed, parse};
use evenkeel_tests::house::{House, client_ports, send, wait_for};
use evenkeel_tests::load::{Load, REQUEST, ask, connect, exchange, probe, text};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const PREFORK: &str = "LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so\n";
const WORKER: &str = "LoadModule mpm_worker_module /usr/lib/apache2/modules/mod_mpm_worker.so\n";

/// Four workers in each model.
const FOUR: [(&str, &str); 2] = [
    (PREFORK, "StartServers 4\nMinSpareServers 1\nMaxSpareServers 8\nMaxRequestWorkers 4\n"),
    (
        WORKER,
        "StartServers 1\nThreadsPerChild 4\nMinSpareThreads 1\nMaxSpareThreads 8\n\
         MaxRequestWorkers 4\n",
    ),
];

/// The status page, and a header that names the process of a response.
const STATUS: &str = "\
LoadModule status_module /usr/lib/apache2/modules/mod_status.so
LoadModule headers_module /usr/lib/apache2/modules/mod_headers.so
<Location /server-status>
SetHandler server-status
Require all granted
</Location>
LogFormat \"%P %U\" pid
CustomLog \"@ROOT@/logs/pids.log\" pid
";

fn open(model: &str, more: &str) -> House {
    House::open(&format!("{model}{more}"), &[]).unwrap()
}

/// The number of voluntary context switches of a process.
fn sleeps(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn scoreboard(house: &House) -> String {
    let page = text(house.address, "/server-status?auto").unwrap();
    page.lines().find_map(|line| line.strip_prefix("Scoreboard: ")).unwrap_or("").to_owned()
}

#[test]
fn a_connection_wakes_one_idle_process_and_always_the_same() {
    let house = open(
        PREFORK,
        &format!(
            "StartServers 24\nMinSpareServers 1\nMaxSpareServers 40\nMaxRequestWorkers 32\n{STATUS}"
        ),
    );
    wait_for("the children", || house.children().len() == 24).unwrap();
    // Children that do not yet wait for connections would count as woken.
    wait_for("rest", || scoreboard(&house).matches('_').count() == 23).unwrap();
    for _ in 0..30 {
        probe(house.address).unwrap();
    }
    let before: Vec<(u32, u64)> =
        house.children().into_iter().map(|pid| (pid, sleeps(pid))).collect();
    for _ in 0..100 {
        probe(house.address).unwrap();
    }
    let woken = before.iter().filter(|(pid, count)| sleeps(*pid) > count + 8).count();
    // A client may come back before the first child has closed its connection, and some more on a
    // busy machine, so that the next children are awake too. Without an order all 24 would be
    // woken, or each in turn.
    assert!((1..=12).contains(&woken), "{woken} of 24 processes were woken");
}

#[test]
fn letters_tell_of_idle_and_kept_alive_workers() {
    for (model, four) in FOUR {
        let house = open(model, &format!("{four}{STATUS}"));
        wait_for("four workers", || scoreboard(&house).matches(['_', 'W']).count() == 4).unwrap();
        let mut kept = connect(house.address).unwrap();
        exchange(&mut kept, REQUEST).unwrap();
        let shows = |letters: &str| {
            let count = |letter| letters.matches(letter).count();
            let shown = scoreboard(&house);
            ['K', 'R', 'W', '_']
                .iter()
                .all(|letter| shown.matches(*letter).count() == count(*letter))
        };
        wait_for("a kept connection", || shows("KW__")).unwrap();
        let mut slow = connect(house.address).unwrap();
        slow.write_all(b"GET /small.txt HTTP/1.1\r\n").unwrap();
        wait_for("a reader", || shows("KRW_")).unwrap();
        drop((kept, slow));
        wait_for("rest", || shows("W___")).unwrap();
    }
}

/// How many inotify instances a process has.
fn inotify_instances(pid: u32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link.as_os_str() == "anon_inode:inotify").count()
}

#[test]
fn a_changed_file_is_seen_at_once_by_workers_that_the_kernel_tells_of_changes() {
    for (model, four) in FOUR {
        let house = open(model, four);
        let instances = || house.children().into_iter().map(inotify_instances).sum::<usize>();
        wait_for("an instance for each worker", || instances() == 4).unwrap();
        let mut kept: Vec<_> = (0..4).map(|_| connect(house.address).unwrap()).collect();
        for number in 0..200 {
            let text = format!("{number:04}").repeat(64);
            if number % 2 == 0 {
                fs::write(house.path("htdocs/new.txt"), &text).unwrap();
                fs::rename(house.path("htdocs/new.txt"), house.path("htdocs/page.txt")).unwrap();
            } else {
                fs::write(house.path("htdocs/page.txt"), &text).unwrap();
            }
            for stream in &mut kept {
                assert_eq!(body(stream, "/page.txt"), text, "{model}");
            }
        }
    }
}

/// Sends a request on a kept connection and returns the body of its response.
fn body(stream: &mut TcpStream, target: &str) -> String {
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    loop {
        let mut part = [0_u8; 4096];
        let count = stream.read(&mut part).unwrap();
        bytes.extend_from_slice(part.get(..count).unwrap_or_default());
        if let Parsed::Whole(response, _) = parse(&bytes, false, count == 0) {
            return String::from_utf8(response.body).unwrap();
        }
        assert_ne!(count, 0, "the connection ended");
    }
}

/// A client that keeps its connection as long as possible and sends requests without a pause. If
/// the connection is closed before a response begins, it repeats the request on a new one, as
/// browsers do.
fn ask_greedily(address: SocketAddr, stop: &AtomicBool, answered: &AtomicUsize) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = connect(address) else { continue };
        while !stop.load(Ordering::Relaxed) {
            match exchange(&mut stream, REQUEST) {
                Ok(ends) => {
                    answered.fetch_add(1, Ordering::Relaxed);
                    if ends {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
    }
}

#[test]
fn greedy_clients_share_the_workers_with_all_others() {
    for (model, four) in FOUR {
        let house = open(model, four);
        let (stop, address) = (AtomicBool::new(false), house.address);
        let answered: Vec<AtomicUsize> = (0..12).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for own in &answered {
                let stop = &stop;
                scope.spawn(move || ask_greedily(address, stop, own));
            }
            let all = || answered.iter().all(|own| own.load(Ordering::Relaxed) >= 50);
            let served = wait_for("an answer for each", all);
            stop.store(true, Ordering::Relaxed);
            served.unwrap();
        });
    }
}

#[test]
fn a_long_request_is_not_followed_by_another_while_others_wait() {
    let lab = "LoadModule lab_module modules/mod_lab.so\nLabMaxWait 600000\n\
               <Location /wait>\nSetHandler lab-wait\n</Location>\n";
    for (model, four) in FOUR {
        let house = open(model, &format!("{four}{lab}"));
        let ends = |wait_ms: u32| {
            let request = format!("GET /wait?ms={wait_ms} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let ask = |_| {
                let mut stream = connect(house.address).unwrap();
                stream.write_all(request.as_bytes()).unwrap();
                stream
            };
            // The fifth client waits until one of the four connections ends. None of these has had
            // a response.
            let mut five: Vec<TcpStream> = (0..5).map(ask).collect();
            five.iter_mut().any(|stream| exchange(stream, b"").unwrap_or(false))
        };
        // A request is long if it outlasts two looks at the queue. How long those take depends on
        // the machine.
        let mut waits_ms = (0..7).map(|doublings| 250 << doublings);
        assert!(waits_ms.any(ends), "{model}");
    }
}

#[test]
fn idle_connections_make_room_for_others() {
    for (model, four) in FOUR {
        let house = open(model, four);
        let mut kept: Vec<TcpStream> = Vec::new();
        for _ in 0..4 {
            let mut stream = connect(house.address).unwrap();
            exchange(&mut stream, REQUEST).unwrap();
            kept.push(stream);
        }
        // KeepAliveTimeout is 600 s here, and PATIENCE 120 s.
        for _ in 0..4 {
            probe(house.address).unwrap();
        }
    }
}

/// Four workers of event, and a handler that holds them.
const EVENT: (&str, &str) = (
    "LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n",
    "StartServers 1\nThreadsPerChild 4\nMinSpareThreads 1\nMaxSpareThreads 8\n\
     MaxRequestWorkers 4\nLoadModule lab_module modules/mod_lab.so\nLabMaxWait 10000\n\
     <Location /wait>\nSetHandler lab-wait\n</Location>\n",
);

#[test]
fn a_stop_answers_everybody_who_has_connected_before_it() {
    let wait: &[u8] = b"GET /wait?ms=900 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (model, four) in FOUR.into_iter().chain([EVENT]) {
        for signal in [Signal::WINCH, Signal::TERM] {
            let house = open(model, four);
            let port = house.address.port();
            let is_event = model == EVENT.0;
            // Connections that hold the workers: idle ones, or requests in progress.
            let mut busy: Vec<TcpStream> =
                (0..4).map(|_| connect(house.address).unwrap()).collect();
            for stream in &mut busy {
                match is_event {
                    true => stream.write_all(wait).unwrap(),
                    false => _ = exchange(stream, REQUEST).unwrap(),
                }
            }
            if is_event {
                let held = || {
                    house.children().iter().map(|pid| client_ports(*pid, port).len()).sum::<usize>()
                };
                wait_for("their connections", || held() == 4).unwrap();
            }
            let mut late: Vec<TcpStream> =
                (0..16).map(|_| connect(house.address).unwrap()).collect();
            late.iter_mut().for_each(|stream| stream.write_all(REQUEST).unwrap());
            house.signal(signal);
            for mut stream in late {
                // A client that leaves its connection open after the response keeps its worker.
                let answered = exchange(&mut stream, b"");
                assert!(answered.is_ok(), "{answered:?}: {model} {signal:?}");
            }
            drop(busy);
            wait_for("the end", || house.children().is_empty()).unwrap();
        }
    }
}

/// Asks over new connections until one cannot be made. Returns the first failure of a connection
/// that was made.
fn come_until_refused(address: SocketAddr, answered: &AtomicUsize) -> Option<io::Error> {
    let request = b"GET /f.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    while let Ok(mut stream) = TcpStream::connect(address) {
        let mut response = Vec::new();
        let exchanged =
            stream.write_all(request).and_then(|()| stream.read_to_end(&mut response).map(drop));
        match exchanged {
            Ok(()) if !response.is_empty() => _ = answered.fetch_add(1, Ordering::Relaxed),
            Ok(()) => return Some(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => return Some(error),
        }
    }
    None
}

#[test]
fn a_stop_resets_nobody_who_comes_meanwhile() {
    for (model, four) in FOUR.into_iter().chain([EVENT]) {
        for signal in [Signal::WINCH, Signal::TERM] {
            let house = open(model, four);
            let answered = AtomicUsize::new(0);
            let failures: Vec<io::Error> = std::thread::scope(|scope| {
                let come = || come_until_refused(house.address, &answered);
                let clients: Vec<_> = (0..32).map(|_| scope.spawn(come)).collect();
                wait_for("answers", || answered.load(Ordering::Relaxed) > 200).unwrap();
                house.signal(signal);
                clients.into_iter().filter_map(|client| client.join().unwrap()).collect()
            });
            assert!(failures.is_empty(), "{failures:?}: {model} {signal:?}");
            wait_for("the end", || house.children().is_empty()).unwrap();
        }
    }
}

#[test]
fn a_file_is_answered_beside_requests_that_wait_for_expensive_work_and_a_stop_answers_these_too() {
    let listings = "LoadModule autoindex_module /usr/lib/apache2/modules/mod_autoindex.so\n\
                    <Directory @ROOT@/htdocs>\nOptions Indexes\nIndexOptions FancyIndexing\n\
                    </Directory>\n";
    let listing: &[u8] = b"GET /many/ HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (model, four) in FOUR {
        let house = open(model, &format!("{four}{listings}"));
        let many = house.path("htdocs/many");
        fs::create_dir(&many).unwrap();
        (0..2_000).for_each(|number| fs::write(many.join(number.to_string()), "").unwrap());
        let ask = |_| {
            let mut stream = connect(house.address).unwrap();
            stream.write_all(listing).unwrap();
            stream
        };
        // There are more listings than workers: the file is answered only if listings that wait
        // for a permit are shelved.
        let mut all: Vec<TcpStream> = (0..60).map(ask).collect();
        probe(house.address).unwrap();
        let is_unanswered = |stream: &&TcpStream| {
            stream.set_nonblocking(true).unwrap();
            let unanswered = stream.peek(&mut [0]).is_err();
            stream.set_nonblocking(false).unwrap();
            unanswered
        };
        let unanswered = all.iter().filter(is_unanswered).count();
        assert!(unanswered >= 20, "{unanswered} of 60 were not answered before the file: {model}");
        house.signal(Signal::WINCH);
        for stream in &mut all {
            exchange(stream, b"").unwrap();
        }
        drop(all);
        wait_for("the end", || house.children().is_empty()).unwrap();
    }
}

#[test]
fn a_large_listing_hides_in_each_model_what_the_client_may_not_see() {
    let listings = "\
LoadModule autoindex_module /usr/lib/apache2/modules/mod_autoindex.so
<Directory @ROOT@/htdocs>
Options Indexes
AllowOverride All
IndexOptions FancyIndexing
</Directory>
<Directory @ROOT@/htdocs/many/closed>
Require all denied
</Directory>
<Files secret*>
Require all denied
</Files>
<Files .ht*>
Require all denied
</Files>
<Location /many/located.txt>
Require all denied
</Location>
";
    for (model, _) in [FOUR[0], FOUR[1], ("", "")] {
        let house = open(model, listings);
        let many = house.path("htdocs/many");
        ["closed", "open"].iter().for_each(|name| fs::create_dir_all(many.join(name)).unwrap());
        let mut names: Vec<String> = (0..1_200).map(|number| format!("{number:04}.txt")).collect();
        for name in names.iter().chain(&["secret", "located.txt", "private"].map(str::to_owned)) {
            fs::write(many.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("0000.txt", many.join("link.txt")).unwrap();
        let deny = |what: &str| {
            let text = format!("<Files {what}>\nRequire all denied\n</Files>\n");
            fs::write(many.join(".htaccess"), text).unwrap();
        };
        let listed = || -> Vec<(String, String)> {
            let page = text(house.address, "/many/").unwrap();
            let row = |line: &str| {
                let (_, rest) = line.split_once("<a href=\"")?;
                let (name, rest) = rest.split_once('"')?;
                let size = rest.split_whitespace().last()?;
                (!name.starts_with(['?', '/'])).then(|| (name.to_owned(), size.to_owned()))
            };
            page.lines().filter_map(row).collect()
        };
        let rows = |names: &[String]| -> Vec<(String, String)> {
            let size = |name: &String| if name.ends_with('/') { "-" } else { "0" };
            names.iter().map(|name| (name.clone(), size(name).to_owned())).collect()
        };
        deny("private");
        names.push("open/".to_owned());
        assert_eq!(listed(), rows(&names), "{model}");
        // Whatever the first listing has left behind, the next one shows the changes.
        deny("0001.txt");
        fs::remove_file(many.join("0002.txt")).unwrap();
        fs::write(many.join("0003.txt"), "three").unwrap();
        fs::write(many.join("2000.txt"), "").unwrap();
        names.retain(|name| !["0001.txt", "0002.txt"].contains(&name.as_str()));
        names.extend(["2000.txt", "private"].map(str::to_owned));
        names.sort();
        let mut expected = rows(&names);
        expected[1].1 = "5".to_owned();
        assert_eq!(listed(), expected, "{model}");
    }
}

/// Slow clients that have sent `first`, more of them than there are workers.
fn slow_clients(house: &House, first: &[u8]) -> Vec<TcpStream> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let client = |_| {
        let mut stream = connect(house.address).unwrap();
        stream.write_all(first).unwrap();
        stream
    };
    (0..1_000).map(client).collect()
}

#[test]
fn a_thousand_slow_clients_keep_nobody_out_with_the_directives_defaults() {
    let head: &[u8] = b"GET /small.txt HTTP/1.1\r\nHost: localhost\r\n";
    let body: &[u8] =
        b"POST /small.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nsome";
    let reader: &[u8] = b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for model in [PREFORK, WORKER] {
        for first in [head, body, reader] {
            let house = open(model, "");
            let slow = slow_clients(&house, first);
            for _ in 0..3 {
                probe(house.address).unwrap();
            }
            drop(slow);
        }
    }
}

#[test]
fn children_end_after_their_share_of_connections_and_are_replaced() {
    for (model, four) in FOUR {
        let house = open(model, &format!("{four}MaxConnectionsPerChild 5\n{STATUS}"));
        for _ in 0..60 {
            probe(house.address).unwrap();
        }
        let log = || fs::read_to_string(house.path("logs/pids.log")).unwrap_or_default();
        wait_for("the log", || log().lines().count() >= 60).unwrap();
        let text = log();
        let pids: HashSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
        for pid in &pids {
            let own = text.lines().filter(|line| line.split(' ').next() == Some(pid)).count();
            assert!(own <= 5, "{pid} has served {own} connections");
        }
        assert!(pids.len() >= 12, "{pids:?}");
    }
}

#[test]
fn who_waits_while_the_first_child_starts_has_others_start_beside_it() {
    let slow = "LoadModule lab_module modules/mod_lab.so\nLabChildStartDelay 600000\n";
    let pool = "StartServers 1\nMinSpareServers 1\nMaxSpareServers 9\nMaxRequestWorkers 16\n";
    let mut house = open(PREFORK, &format!("{pool}{slow}"));
    let waiting: Vec<TcpStream> =
        (0..8).map(|_| ask(house.address, "/small.txt").unwrap()).collect();
    wait_for("children", || house.children().len() >= 8).unwrap();
    drop(waiting);
    // None of them has served, so none has anything to complete.
    house.stop().unwrap();
}

#[test]
fn a_reload_and_a_killed_child_are_borne_as_in_event() {
    for (model, four) in FOUR {
        let house = open(model, four);
        let short = Load::start(house.address, 4, false);
        for _ in 0..5 {
            let before = short.answered();
            wait_for("answers", || short.answered() > before + 50).unwrap();
            house.reload().unwrap();
        }
        let tally = short.stop();
        assert!(tally.lost.is_empty(), "lost: {:?}", tally.lost);
        assert_eq!(tally.refused, 0);
        wait_for("children", || !house.children().is_empty()).unwrap();
        for child in house.children() {
            send(child, Signal::KILL);
        }
        for _ in 0..8 {
            probe(house.address).unwrap();
        }
    }
}

#[test]
fn a_killed_parent_leaves_the_port_to_the_next_server() {
    for (model, four) in FOUR {
        let mut house = open(model, four);
        probe(house.address).unwrap();
        let children = house.children();
        house.signal(Signal::KILL);
        house.server = None;
        let alive = |pid: &u32| fs::exists(format!("/proc/{pid}")).unwrap_or(true);
        wait_for("the children's end", || !children.iter().any(alive)).unwrap();
        house.start(&[]).unwrap();
        probe(house.address).unwrap();
    }
}

#[test]
fn one_process_serves_alone_under_each_model() {
    for model in [PREFORK, WORKER, ""] {
        let mut house = House::lay_out(&format!("{model}{STATUS}")).unwrap();
        house.start_as(&[], "-X").unwrap();
        for _ in 0..3 {
            probe(house.address).unwrap();
        }
        house.stop().unwrap();
    }
}

#[test]
fn what_a_process_had_done_before_it_became_the_server_is_not_the_servers() {
    // A second of CPU time, used by a child of the shell that becomes the server.
    let burn = "(ulimit -t 1; while :; do :; done); exec \"$@\"";
    let over = ["sh", "-c", burn, "sh"];
    let house = House::open(&format!("{WORKER}{STATUS}StartServers 1\n"), &over).unwrap();
    wait_for("a child", || !house.children().is_empty()).unwrap();
    let first = *house.children().first().unwrap();
    send(first, Signal::KILL);
    wait_for("its end", || house.error_log().contains("exit signal Killed")).unwrap();
    let page = text(house.address, "/server-status?auto").unwrap();
    let told = |key: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().parse().unwrap()
    };
    let used = told("CPUChildrenUser:") + told("CPUChildrenSystem:");
    assert!(used < 0.9, "{used} s of a child that has just begun");
}
