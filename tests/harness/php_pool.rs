//! Checks the pool of PHP behind the server: what becomes of requests when a script, a worker or
//! the zygote dies, when scripts hang, and at reloads and stops.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, children_of, send, wait_for};
use evenkeel_tests::php::build;
use evenkeel_tests::server::{Kind, Server};
use rustix::process::Signal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const MODULES: &str = "\
LoadModule php_module /usr/lib/apache2/modules/libphp8.2.so
DefaultRuntimeDir \"@ROOT@/run\"
<FilesMatch \"\\.php$\">
SetHandler application/x-httpd-php
</FilesMatch>
";

const SCRIPTS: &[(&str, &str)] = &[
    ("hello", "<?php echo 'hello';"),
    ("pid", "<?php echo getmypid(), ' ', posix_getppid();"),
    ("segv", "<?php posix_kill(getmypid(), 11); sleep(9);"),
    ("half", "<?php echo 'half'; ob_flush(); flush(); posix_kill(getmypid(), 9); sleep(9);"),
    ("hangs", "<?php sleep(600);"),
    ("floods", "<?php for ($i = 0; $i < 3000; $i++) header(\"X-$i: 0123456789012345678901234\");"),
    ("logs", "<?php for ($i = 0; $i < 5000; $i++) error_log(\"line $i\"); echo 'logged';"),
    ("ini", "<?php echo ini_get('precision');"),
    (
        "slow",
        "<?php while (!file_exists(__DIR__ . '/../go')) { usleep(2000); clearstatcache(); }
        echo 'slow';",
    ),
    ("wait", "<?php usleep(200000); echo getmypid();"),
    ("marks", "<?php echo touch(__DIR__ . '/../marks/it') ? 'marked' : 'failed';"),
];

fn open(more: &str) -> House {
    build().unwrap();
    let mut house = House::lay_out(&[MODULES, more].concat()).unwrap();
    fs::create_dir_all(house.path("run")).unwrap();
    for (name, text) in SCRIPTS {
        fs::write(house.path(&format!("htdocs/{name}.php")), text).unwrap();
    }
    house.start(&[]).unwrap();
    house
}

/// The status and the body of a response.
fn get(house: &House, script: &str) -> (u16, String) {
    read(ask(house, script))
}

fn ask(house: &House, script: &str) -> TcpStream {
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let text =
        format!("GET /{script}.php HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

fn read(mut stream: TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let _reset = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// The zygote, of which there is one.
fn zygote(house: &House) -> u32 {
    let is_zygote = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "php zygote\n")
    };
    let all: Vec<u32> = children_of(house.parent()).into_iter().filter(is_zygote).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    *all.first().unwrap()
}

#[test]
fn what_a_script_does_costs_its_own_request_only() {
    let house = open("");
    assert_eq!(get(&house, "hello"), (200, "hello".into()));
    assert_eq!(get(&house, "segv").0, 503);
    let (status, body) = get(&house, "half");
    assert!(status == 200 && body.contains("half"), "{body}");
    assert_eq!(get(&house, "floods").0, 500);
    assert_eq!(get(&house, "logs"), (200, "logged".into()));
    assert_eq!(get(&house, "hello"), (200, "hello".into()));
    let has = |text: &str| house.error_log().contains(text);
    wait_for("the deaths to be logged", || {
        has("was killed by signal 11 in ") && has("was killed by signal 9 in ")
    })
    .unwrap();
    let log = house.error_log();
    for text in
        ["segv.php: the worker of the pool php has ended", "the head of the response is too large"]
    {
        assert!(log.contains(text), "{text}: {log}");
    }
    assert!(log.matches("line ").count() <= 64, "a flood of messages is bounded");
}

#[test]
fn a_script_that_hangs_is_ended_after_app_request_timeout() {
    let house = open("AppRequestTimeout 1\n");
    let hanging = ask(&house, "hangs");
    assert_eq!(get(&house, "hello").0, 200);
    let (status, body) = read(hanging);
    assert_eq!(status, 504, "{body}");
    wait_for("the end to be logged", || {
        house.error_log().contains("was ended after AppRequestTimeout in ")
    })
    .unwrap();
    assert_eq!(get(&house, "hello"), (200, "hello".into()));
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
    fs::write(house.path("go"), "").unwrap();
    assert_eq!(read(slow), (200, "slow".into()));
}

#[test]
fn a_reload_brings_the_new_settings_and_loses_nothing() {
    let house = open("php_value precision 5\n");
    assert_eq!(get(&house, "ini"), (200, "5".into()));
    let (old, slow) = (zygote(&house), ask(&house, "slow"));
    wait_for("the script to run", || get(&house, "hello").0 == 200).unwrap();
    house.configure(&[MODULES, "php_value precision 6\n"].concat()).unwrap();
    house.reload().unwrap();
    wait_for("the new value", || get(&house, "ini") == (200, "6".into())).unwrap();
    fs::write(house.path("go"), "").unwrap();
    assert_eq!(read(slow), (200, "slow".into()));
    let is_old = |pid: &u32| *pid == old;
    wait_for("the old zygote to end", || !children_of(house.parent()).iter().any(is_old)).unwrap();
    // A configuration that cannot be read changes nothing.
    house.configure(&[MODULES, "AppMaxWorkers none\n"].concat()).unwrap();
    house.signal(Signal::USR1);
    wait_for("the refusal", || house.error_log().contains("AppMaxWorkers")).unwrap();
    assert_eq!(get(&house, "hello"), (200, "hello".into()));
}

#[test]
fn a_pool_grows_while_requests_wait_and_keeps_to_its_bound() {
    let house = open("AppMaxWorkers 6\n");
    let at_once = || {
        let streams: Vec<_> = (0..24).map(|_| ask(&house, "wait")).collect();
        let answers: Vec<_> = streams.into_iter().map(read).collect();
        assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
        answers.into_iter().map(|(_, body)| body).collect::<std::collections::BTreeSet<_>>().len()
    };
    let most = (0..3).map(|_| at_once()).max().unwrap();
    assert!((4..=6).contains(&most), "{most} workers");
}

#[test]
fn requests_whose_clients_have_left_the_queue_are_not_run() {
    let house = open(
        "AppMaxWorkers 1\nLoadModule status_module modules/mod_status.so\n\
         <Location /status>\nSetHandler server-status\n</Location>\n",
    );
    let marks = house.path("marks");
    fs::create_dir(&marks).unwrap();
    fs::set_permissions(&marks, fs::Permissions::from_mode(0o777)).unwrap();
    let says = |line: &str| {
        let mut stream = TcpStream::connect(house.address).unwrap();
        let head = "GET /status?auto HTTP/1.1\r\nHost: localhost\r\nConnection: close";
        stream.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
        read(stream).1.lines().any(|one| one == line)
    };
    let slow = ask(&house, "slow");
    wait_for("the script to run", || says("App-php-Busy: 1")).unwrap();
    let waiting: Vec<TcpStream> = (0..5).map(|_| ask(&house, "marks")).collect();
    wait_for("the requests to be in the queue", || says("App-php-Queue: 5")).unwrap();
    drop(waiting);
    wait_for("the clients to be missed", || says("App-php-Queue: 0")).unwrap();
    fs::write(house.path("go"), "").unwrap();
    assert_eq!(read(slow), (200, "slow".into()));
    // It is behind them in the queue.
    assert_eq!(get(&house, "hello"), (200, "hello".into()));
    assert_eq!(fs::read_dir(&marks).unwrap().count(), 0);
    assert_eq!(get(&house, "marks"), (200, "marked".into()));
    assert_eq!(fs::read_dir(&marks).unwrap().count(), 1);
}

#[test]
fn nothing_is_left_after_a_stop_and_others_cannot_ask() {
    let mut house = open("");
    assert_eq!(get(&house, "hello").0, 200);
    let zygote = zygote(&house);
    let workers = children_of(zygote);
    let folder = house.path("run/evenkeel-apps");
    let socket = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    // A request without the secret is closed unanswered.
    let mut stream = UnixStream::connect(&socket).unwrap();
    let begin = [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 4, 0, 1, 0, 0, 0, 0];
    stream.write_all(&begin).unwrap();
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer);
    assert!(answer.is_empty());
    assert!(!workers.is_empty());
    house.stop().unwrap();
    let lives = |pid: &u32| fs::exists(format!("/proc/{pid}")).unwrap();
    wait_for("the pool to end", || !workers.iter().chain([&zygote]).any(lives)).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn scripts_run_under_every_process_model() {
    for model in ["prefork", "worker", "event"] {
        build().unwrap();
        let module =
            format!("LoadModule mpm_{model}_module /usr/lib/apache2/modules/mod_mpm_{model}.so\n");
        let mut house = House::lay_out(&[&*module, MODULES].concat()).unwrap();
        fs::create_dir_all(house.path("run")).unwrap();
        fs::write(house.path("htdocs/hello.php"), "<?php echo PHP_SAPI;").unwrap();
        house.start(&[]).unwrap();
        assert_eq!(get(&house, "hello"), (200, "apache2handler".into()), "{model}");
    }
}

#[test]
fn a_library_whose_program_is_missing_is_refused_with_the_way_to_get_it() {
    build().unwrap();
    let house = House::lay_out(&MODULES.replace("libphp8.2.so", "libphp7.9.so")).unwrap();
    fs::create_dir_all(house.path("run")).unwrap();
    let error = Server::start(Kind::Evenkeel, house.path("").as_path(), house.address.port());
    let error = error.err().unwrap();
    assert!(error.contains("evenkeel-php7.9, which runs PHP, is not in "), "{error}");
}
