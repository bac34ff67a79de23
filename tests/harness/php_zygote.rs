//! Checks what becomes of requests and workers of a pool of PHP when its zygote dies, and when
//! scripts kill it or stop it.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, children_of, read, send, wait_for};
use evenkeel_tests::php::build;
use evenkeel_tests::php_house::{MODULES, ask, ask_for, get, zygote};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const SCRIPTS: &[(&str, &str)] = &[
    ("hello", "<?php echo 'hello';"),
    ("pid", "<?php echo getmypid(), ' ', posix_getppid();"),
    ("hangs", "<?php sleep(600);"),
    ("stays", "<?php touch(__DIR__ . '/../marks/' . getmypid()); sleep(600);"),
    (
        "slow",
        "<?php while (!file_exists(__DIR__ . '/../go')) { usleep(2000); clearstatcache(); }
        echo 'slow';",
    ),
    // The parent of an orphaned worker is no zygote, and must not be killed.
    (
        "kills",
        "<?php $zygote = posix_getppid();
        if (file_get_contents(\"/proc/$zygote/comm\") === \"php zygote\\n\") {
            posix_kill($zygote, (int)$_SERVER['QUERY_STRING']);
        }
        usleep(20000); echo 'sent';",
    ),
];

fn open(more: &str) -> House {
    build().unwrap();
    let mut house = House::lay_out(&[MODULES, more].concat()).unwrap();
    for (name, text) in SCRIPTS {
        fs::write(house.path(&format!("htdocs/{name}.php")), text).unwrap();
    }
    house.start(&[]).unwrap();
    house
}

#[test]
fn workers_and_zygotes_that_are_killed_are_replaced() {
    let house = open("");
    let (_, body) = get(&house, "pid");
    let (worker, parent) = body.split_once(' ').unwrap();
    let first = zygote(&house);
    assert_eq!(parent, first.to_string());
    send(worker.parse().unwrap(), Signal::KILL);
    assert_eq!(get(&house, "hello"), (200, "hello".into()));
    // A request in progress is answered although the zygote dies.
    let slow = ask(&house, "slow");
    wait_for("the script to run", || get(&house, "hello").0 == 200).unwrap();
    send(first, Signal::KILL);
    wait_for("the death to be logged", || {
        house.error_log().contains("the zygote (pid ") && get(&house, "hello").0 == 200
    })
    .unwrap();
    assert_ne!(zygote(&house), first);
    // The line about the death names the worker that is left, and its script.
    let log = house.error_log();
    let line = log.lines().find(|line| line.contains("the zygote (pid ")).unwrap();
    let (_, left) = line.split_once("its workers finish their requests: pid ").unwrap();
    let (orphan, script) = left.split_once(" in ").unwrap();
    assert!(line.contains("was killed by signal 9") && script.ends_with("slow.php"), "{line}");
    let name = fs::read_to_string(format!("/proc/{orphan}/comm")).unwrap();
    assert!(name.starts_with("php "), "{name}");
    fs::write(house.path("go"), "").unwrap();
    assert_eq!(read(slow), (200, "slow".into()));
    wait_for("the worker to end", || !Path::new(&format!("/proc/{orphan}")).exists()).unwrap();
    assert!(!house.error_log().contains("after its zygote"));
}

#[test]
fn scripts_that_kill_the_zygote_cost_no_other_request() {
    let house = open("AppQueueTimeout 60\n");
    assert_eq!(get(&house, "hello").0, 200);
    let is_over = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        let steady = scope.spawn(|| {
            let mut answers = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                answers.push(get(&house, "hello"));
            }
            answers
        });
        // Each zygote is killed within its first second.
        let killed: Vec<_> = (0..8).map(|_| read(ask_for(&house, "kills.php?9"))).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(killed.iter().all(|it| *it == (200, "sent".into())), "{killed:?}");
        steady.join().unwrap()
    });
    assert!(answers.iter().all(|it| *it == (200, "hello".into())), "{answers:?}");
    let deaths = || house.error_log().matches("was killed by signal 9").count();
    wait_for("the deaths to be logged", || deaths() >= 4).unwrap();
}

#[test]
fn a_zygote_that_a_script_stops_is_continued_and_then_replaced() {
    let mut house = open("AppMaxWorkers 3\nAppRequestTimeout 3\n");
    assert_eq!(get(&house, "hello").0, 200);
    let first = zygote(&house);
    let says = |what: &str| {
        let text = format!("pool php: the zygote (pid {first}) {what}");
        wait_for(&text, || house.error_log().contains(&text)).unwrap();
    };
    assert_eq!(read(ask_for(&house, "kills.php?19")), (200, "sent".into()));
    says("was stopped and is continued");
    assert_eq!(read(ask(&house, "hangs")).0, 504);
    assert_eq!(get(&house, "hello"), (200, "hello".into()));
    assert_eq!(zygote(&house), first);
    assert_eq!(read(ask_for(&house, "kills.php?19")), (200, "sent".into()));
    says("was stopped again and is ended");
    wait_for("the successor", || {
        let forked = children_of(house.parent());
        get(&house, "hello") == (200, "hello".into()) && !forked.contains(&first)
    })
    .unwrap();
    // When the server stops, it also ends a pool whose zygote is suspended by SIGSTOP.
    let _hanging = ask(&house, "hangs");
    let last = zygote(&house);
    let is_at_work = || children_of(last).len() >= 2;
    wait_for("the script to run", || get(&house, "hello").0 == 200 && is_at_work()).unwrap();
    let all = [children_of(last), vec![last]].concat();
    send(last, Signal::STOP);
    house.stop().unwrap();
    let lives = |pid: &u32| fs::exists(format!("/proc/{pid}")).unwrap();
    wait_for("the pool to end", || !all.iter().any(lives)).unwrap();
}

#[test]
fn workers_without_a_zygote_keep_to_their_bounds_and_leave_their_places_to_others() {
    let house = open("AppMaxWorkers 1\nAppRequestTimeout 2\n");
    let marks = house.path("marks");
    fs::create_dir(&marks).unwrap();
    fs::set_permissions(&marks, fs::Permissions::from_mode(0o777)).unwrap();
    let says = |text: &str| wait_for(text, || house.error_log().contains(text)).unwrap();
    // Kills the zygote of the worker that runs a script, and returns the worker.
    let orphan = || {
        let mark = || fs::read_dir(&marks).unwrap().next().map(|mark| mark.unwrap().path());
        wait_for("the script to run", || mark().is_some()).unwrap();
        let mark = mark().unwrap();
        let pid: u32 = mark.file_name().unwrap().to_str().unwrap().parse().unwrap();
        fs::remove_file(&mark).unwrap();
        send(zygote(&house), Signal::KILL);
        says(&format!("; its workers finish their requests: pid {pid} in "));
        pid
    };
    // A script that hangs in an orphaned worker is ended. Meanwhile a new worker serves others.
    let hanging = ask(&house, "stays");
    let pid = orphan();
    wait_for("a new worker", || get(&house, "hello") == (200, "hello".into())).unwrap();
    assert_eq!(read(hanging).0, 504);
    says(&format!("the worker (pid {pid}) was ended after AppRequestTimeout in "));
    // The error log names an orphaned worker that is killed.
    let killed = ask(&house, "stays");
    let pid = orphan();
    send(pid, Signal::KILL);
    assert_eq!(read(killed).0, 503);
    says(&format!("the worker (pid {pid}) has died after its zygote in "));
    wait_for("a new worker", || get(&house, "hello") == (200, "hello".into())).unwrap();
    // Orphaned workers end with the server.
    let _unanswered = ask(&house, "stays");
    let pid = orphan();
    house.signal(Signal::TERM);
    let path = format!("/proc/{pid}");
    wait_for("the worker to end", || !Path::new(&path).exists()).unwrap();
}
