//! Checks the pool of PHP under scripts that fail in every way, while steady clients ask for a
//! script and for a file: each request has one response or one line in the error log that names
//! the script and the process, and the steady clients notice nothing.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, send, wait_for};
use evenkeel_tests::php::build;
use rustix::process::Signal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CONFIGURATION: &str = "\
LoadModule php_module /usr/lib/apache2/modules/libphp8.2.so
DefaultRuntimeDir \"@ROOT@/run\"
AppRequestTimeout 8
AppMaxWorkers 12
php_admin_value memory_limit 32M
<FilesMatch \"\\.php$\">
SetHandler application/x-httpd-php
</FilesMatch>
";

/// How many times each failure is asked for, each by a script with a name of its own.
const TIMES: usize = 3;

/// What the client sees of a failure.
enum Seen {
    /// This status.
    Status(u16),
    /// A body that begins so, and that is cut off.
    Cut(&'static str),
    /// A whole body of this many bytes.
    Whole(usize),
}

/// A way to fail: its name, its script, what the client sees, and what the line of the error log
/// says beside the script.
struct Failure(&'static str, &'static str, Seen, Option<&'static str>);

const FAILURES: &[Failure] = &[
    Failure(
        "segv",
        "<?php posix_kill(getmypid(), 11); sleep(9);",
        Seen::Status(503),
        Some("was killed by signal 11 in "),
    ),
    Failure(
        "killed",
        "<?php posix_kill(getmypid(), 9); sleep(9);",
        Seen::Status(503),
        Some("was killed by signal 9 in "),
    ),
    Failure(
        "half",
        "<?php echo 'half'; ob_flush(); flush(); posix_kill(getmypid(), 6); sleep(9);",
        Seen::Cut("half"),
        Some("was killed by signal 6 in "),
    ),
    Failure(
        "memory",
        "<?php $all = []; while (true) $all[] = str_repeat('x', 1 << 20);",
        Seen::Status(500),
        Some("Allowed memory size of 33554432 bytes exhausted"),
    ),
    Failure(
        "limit",
        "<?php ini_set('max_execution_time', '1'); while (true) { $i = 7; }",
        Seen::Status(500),
        Some("Maximum execution time of 1 second exceeded"),
    ),
    Failure(
        "hangs",
        "<?php sleep(600);",
        Seen::Status(504),
        Some("was ended after AppRequestTimeout in "),
    ),
    Failure(
        "head",
        "<?php for ($i = 0; $i < 3000; $i++) header(\"X-$i: 0123456789012345678901234\");",
        Seen::Status(500),
        Some("the head of the response is too large"),
    ),
    Failure(
        "floods",
        "<?php for ($i = 0; $i < 2048; $i++) echo str_repeat('x', 1 << 14);",
        Seen::Whole(32 << 20),
        None,
    ),
    Failure(
        "forks",
        // The processes outlive the request.
        "<?php $no = [];
        for ($i = 0; $i < 8; $i++) proc_close(proc_open('sleep 5 &', $no, $no)); echo 'forked';",
        Seen::Whole("forked".len()),
        None,
    ),
    Failure(
        "endless",
        "<?php for ($i = 0; ; $i++) header(\"X-$i: 0123456789012345678901234\", false);",
        Seen::Status(500),
        Some("Allowed memory size of 33554432 bytes exhausted"),
    ),
    Failure(
        "bomb",
        // All of it is in the process group of the worker, which ends as one.
        "<?php $no = [];
        for ($i = 0; $i < 40; $i++) $all[] = proc_open('sleep 4321', $no, $no); sleep(600);",
        Seen::Status(504),
        Some("was ended after AppRequestTimeout in "),
    ),
];

fn ask(address: SocketAddr, path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Ok(mut stream) = TcpStream::connect(address) else { return bytes };
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    let head = format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close");
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
    let _reset = stream.read_to_end(&mut bytes);
    bytes
}

/// The status, the body, and whether the body is whole. A connection with two responses has none.
fn parse(bytes: &[u8]) -> (u16, Vec<u8>, bool) {
    let at = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(bytes.len());
    let (head, body) = bytes.split_at(at);
    let body = body.get(4..).unwrap_or_default();
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    if let Some(length) = length.map(|length| length.parse::<usize>().unwrap()) {
        return (status, body.to_vec(), body.len() == length);
    }
    assert!(head.contains("transfer-encoding: chunked") || head.is_empty(), "{head}");
    let (mut whole, mut rest) = (Vec::new(), body);
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let (size, after) = rest.split_at(end);
        let size = usize::from_str_radix(&String::from_utf8_lossy(size), 16).unwrap();
        let after = after.get(2..).unwrap_or_default();
        if size == 0 {
            return (status, whole, after == b"\r\n");
        }
        let have = size.min(after.len());
        whole.extend_from_slice(after.get(..have).unwrap_or_default());
        rest = after.get(have + 2..).unwrap_or_default();
    }
    (status, whole, false)
}

/// Asks until told to end. Returns the number of requests and the longest time of one.
fn ask_steadily(
    address: SocketAddr,
    path: &str,
    want: &[u8],
    ends: &AtomicBool,
) -> (usize, Duration) {
    let (mut count, mut longest) = (0, Duration::ZERO);
    while !ends.load(Ordering::Relaxed) {
        let began = Instant::now();
        let (status, body, is_whole) = parse(&ask(address, path));
        let text = String::from_utf8_lossy(&body);
        assert!((status, &*body, is_whole) == (200, want, true), "{path}: {status} {text}");
        longest = longest.max(began.elapsed());
        count += 1;
        thread::sleep(Duration::from_millis(10));
    }
    (count, longest)
}

#[test]
fn each_failure_is_answered_or_named_once_and_disturbs_nobody() {
    build().unwrap();
    let mut house = House::lay_out(CONFIGURATION).unwrap();
    fs::create_dir_all(house.path("run")).unwrap();
    let write = |name: &str, text: &str| {
        fs::write(house.path(&format!("htdocs/{name}")), text).unwrap();
    };
    write("steady.php", "<?php echo 'steady';");
    write("steady.txt", "file");
    for Failure(name, script, ..) in FAILURES {
        (0..TIMES).for_each(|number| write(&format!("{name}-{number}.php"), script));
    }
    house.start(&[]).unwrap();
    assert_eq!(parse(&ask(house.address, "steady.php")).1, b"steady");
    let (address, ends) = (house.address, AtomicBool::new(false));
    let (steady, seen) = thread::scope(|scope| {
        let steady = [("steady.php", "steady"), ("steady.php", "steady"), ("steady.txt", "file")]
            .map(|(path, want)| {
                let ends = &ends;
                scope.spawn(move || ask_steadily(address, path, want.as_bytes(), ends))
            });
        let failing: Vec<_> = FAILURES
            .iter()
            .map(|Failure(name, ..)| {
                let ask = move |number| parse(&ask(address, &format!("{name}-{number}.php")));
                scope.spawn(move || (0..TIMES).map(ask).collect::<Vec<_>>())
            })
            .collect();
        // The configuration is read anew among all this, so that another zygote takes over.
        thread::sleep(Duration::from_millis(1500));
        house.reload().unwrap();
        let seen: Vec<_> = failing.into_iter().map(|one| one.join()).collect();
        ends.store(true, Ordering::Relaxed);
        (steady.map(|one| one.join()), seen)
    });
    for one in steady {
        let (count, longest) = one.unwrap();
        assert!(count > 100, "{count} requests");
        assert!(longest < Duration::from_secs(6), "{longest:?}");
    }
    for (Failure(name, _, want, _), seen) in FAILURES.iter().zip(seen) {
        for (number, (status, body, is_whole)) in seen.unwrap().into_iter().enumerate() {
            let text = String::from_utf8_lossy(body.get(..200).unwrap_or(&body)).into_owned();
            let is_wanted = match want {
                Seen::Status(want) => status == *want && is_whole,
                Seen::Cut(want) => status == 200 && text == *want && !is_whole,
                Seen::Whole(want) => status == 200 && body.len() == *want && is_whole,
            };
            assert!(is_wanted, "{name}-{number}: {status} {} {is_whole} {text}", body.len());
        }
    }
    // Each failure has one line of its kind, with the script and the process. Where a worker dies,
    // the line names its pool too.
    let lines_of = |name: &str, number: usize, says: &str| {
        let script = format!("/{name}-{number}.php");
        let log = house.error_log();
        let is_meant = |line: &&str| line.contains(&script) && line.contains(says);
        log.lines().filter(is_meant).map(str::to_owned).collect::<Vec<_>>()
    };
    for Failure(name, _, _, says) in FAILURES {
        for number in 0..TIMES {
            let Some(says) = says else {
                let lines = lines_of(name, number, "");
                assert!(lines.is_empty(), "{lines:?}");
                continue;
            };
            let is_named = || lines_of(name, number, says).len() == 1;
            wait_for(&format!("{name}-{number} to be in the log"), is_named)
                .unwrap_or_else(|error| panic!("{error}: {}", house.error_log()));
            let lines = lines_of(name, number, says);
            let line = lines.first().unwrap();
            let is_death = says.ends_with(" in ");
            assert!(line.contains("pid ") && (!is_death || line.contains("pool php")), "{line}");
        }
    }
    assert_eq!(parse(&ask(house.address, "steady.php")).1, b"steady");
    wait_for("the end of what scripts have started", || sleepers() == 0).unwrap();
}

/// The processes that the script `bomb` starts.
fn sleepers() -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let words = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    words.filter(|words| words == b"sleep\x004321\0").count()
}

/// Starts a server with these scripts beside `steady.php`, under a command if one is given.
fn open(more: &str, scripts: &[(&str, &str)], over: &[&str]) -> House {
    build().unwrap();
    let mut house = House::lay_out(&[CONFIGURATION, STATUS, more].concat()).unwrap();
    fs::create_dir_all(house.path("run")).unwrap();
    for (name, script) in scripts.iter().chain(&[("steady", "<?php echo 'steady';")]) {
        fs::write(house.path(&format!("htdocs/{name}.php")), script).unwrap();
    }
    let root = house.path("");
    let words: Vec<_> =
        over.iter().map(|it| it.replace("@ROOT@", root.to_str().unwrap())).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    house.start(&words).unwrap();
    assert_eq!(parse(&ask(house.address, "steady.php")).1, b"steady");
    house
}

const STATUS: &str = "\
LoadModule status_module /usr/lib/apache2/modules/mod_status.so
<Location /status>
SetHandler server-status
</Location>
";

/// The bytes of memory that the serving children have of their own.
fn own_memory(house: &House) -> u64 {
    let of = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    };
    house.children().into_iter().map(of).sum()
}

#[test]
fn a_gibibyte_for_a_slow_client_stays_with_the_script() {
    let floods = "<?php for ($i = 0; $i < 1024; $i++) { echo str_repeat('x', 1 << 20); flush(); }";
    let house = open("", &[("floods", floods)], &[]);
    let before = own_memory(&house);
    let slow: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(house.address).unwrap();
            let head = "GET /floods.php HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            stream.read_exact(&mut [0; 1 << 10]).unwrap();
            stream
        })
        .collect();
    for _ in 0..20 {
        for mut stream in &slow {
            stream.read_exact(&mut [0; 1 << 10]).unwrap();
        }
        assert_eq!(parse(&ask(house.address, "steady.php")).1, b"steady");
        let grown = own_memory(&house).saturating_sub(before);
        assert!(grown < 16 << 20, "{grown} bytes for four slow clients");
    }
    drop(slow);
    // The scripts end with their clients.
    let is_idle = || {
        let status = ask(house.address, "status?auto");
        String::from_utf8_lossy(&status).contains("\nApp-php-Busy: 0\n")
    };
    wait_for("the scripts to end", is_idle).unwrap();
}

#[test]
fn a_full_disk_of_the_logs_costs_lines_and_no_request() {
    // A file system of the server alone, which goes with it.
    let over = [
        "unshare",
        if rustix::process::geteuid().is_root() { "-m" } else { "-rm" },
        "sh",
        "-c",
        "mount -t tmpfs -o size=16k none @ROOT@/logs/full && chmod 777 @ROOT@/logs/full && \
         exec \"$@\"",
        "sh",
    ];
    let more = "CustomLog \"@ROOT@/logs/full/access.log\" \"%r %{User-Agent}i %{app-cpu-us}n\"\n\
                ErrorLog \"@ROOT@/logs/full/error.log\"\n\
                AppSlowLog \"@ROOT@/logs/full/slow.log\"\nAppSlowTimeout 1\n";
    build().unwrap();
    let mut house = House::lay_out(&[CONFIGURATION, more].concat()).unwrap();
    for folder in ["run", "logs/full"] {
        fs::create_dir_all(house.path(folder)).unwrap();
    }
    let write = |name: &str, text: &str| {
        fs::write(house.path(&format!("htdocs/{name}.php")), text).unwrap();
    };
    write("steady", "<?php echo 'steady';");
    let says = "for ($i = 0; $i < 40; $i++) trigger_error(str_repeat('x', 200), E_USER_WARNING);";
    write("says", &format!("<?php ini_set('display_errors', '0'); {says} echo 'said';"));
    write("killed", "<?php posix_kill(getmypid(), 9); sleep(9);");
    let root = house.path("").to_str().unwrap().to_owned();
    let over = over.map(|word| word.replace("@ROOT@/", &root));
    house.start(&over.each_ref().map(String::as_str)).unwrap();
    let full = format!("/proc/{}/root{root}logs/full", house.parent());
    for round in 0..100 {
        let (status, body, is_whole) = parse(&ask(house.address, "says.php"));
        assert!((status, &*body, is_whole) == (200, b"said", true), "{round}: {status}");
        assert_eq!(parse(&ask(house.address, "steady.php")).1, b"steady");
    }
    let bytes = |name: &str| fs::metadata(format!("{full}/{name}")).map_or(0, |file| file.len());
    let kept = bytes("error.log") + bytes("access.log");
    assert!((8_000..=16 << 10).contains(&kept), "{kept} bytes are in the logs");
    assert_eq!(parse(&ask(house.address, "killed.php")).0, 503);
    house.signal(Signal::USR1);
    assert_eq!(parse(&ask(house.address, "steady.php")).1, b"steady");
    house.stop().unwrap();
}

#[test]
fn serving_children_that_are_killed_cost_the_requests_that_they_had() {
    let wait = "<?php usleep(20000); echo 'waited';";
    let house = open("ThreadsPerChild 4\nStartServers 2\n", &[("wait", wait)], &[]);
    let (address, ends) = (house.address, AtomicBool::new(false));
    let (mut killed, mut sent, mut lost) = (Vec::new(), 0, 0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let (mut sent, mut lost) = (0, 0);
                    while !ends.load(Ordering::Relaxed) {
                        sent += 1;
                        let bytes = ask(address, "wait.php");
                        if bytes.is_empty() {
                            lost += 1;
                            continue;
                        }
                        let (status, body, is_whole) = parse(&bytes);
                        assert!((status, &*body, is_whole) == (200, b"waited", true), "{status}");
                    }
                    (sent, lost)
                })
            })
            .collect();
        let serves = |pid: &u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            !name.starts_with("php ")
        };
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(300));
            let Some(pid) = house.children().into_iter().find(serves) else { continue };
            send(pid, Signal::KILL);
            killed.push(pid);
        }
        thread::sleep(Duration::from_millis(300));
        ends.store(true, Ordering::Relaxed);
        for client in clients {
            let (has_sent, has_lost) = client.join().unwrap();
            (sent, lost) = (sent + has_sent, lost + has_lost);
        }
    });
    assert!(killed.len() == 4 && sent > 100, "{killed:?} {sent}");
    // Each client has one request at a time, so that a death costs each of them one at most.
    assert!(lost <= killed.len() * 8, "{lost} of {sent}");
    for pid in killed {
        let text = format!("child pid {pid} exit signal Kill");
        wait_for(&text, || house.error_log().contains(&text))
            .unwrap_or_else(|error| panic!("{error}: {}", house.error_log()));
    }
    // The pool no longer counts the requests of the processes that were killed.
    let is_idle = || {
        let status = String::from_utf8_lossy(&ask(house.address, "status?auto")).into_owned();
        ["Busy", "Queue"].iter().all(|it| status.contains(&format!("\nApp-php-{it}: 0\n")))
    };
    wait_for("the pool to be idle", is_idle).unwrap();
}
