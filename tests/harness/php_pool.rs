//! Checks the pool of PHP behind the server: what becomes of requests when a script, a worker or
//! the zygote dies, when scripts hang, and at reloads and stops.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, children_of, send, wait_for};
use evenkeel_tests::php::build;
use evenkeel_tests::server::{Kind, Server};
use rustix::process::{Signal, geteuid};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

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
    ("stays", "<?php touch(__DIR__ . '/../marks/' . getmypid()); sleep(600);"),
    ("floods", "<?php for ($i = 0; $i < 3000; $i++) header(\"X-$i: 0123456789012345678901234\");"),
    ("logs", "<?php for ($i = 0; $i < 5000; $i++) error_log(\"line $i\"); echo 'logged';"),
    ("ini", "<?php echo ini_get('precision');"),
    (
        "slow",
        "<?php while (!file_exists(__DIR__ . '/../go')) { usleep(2000); clearstatcache(); }
        echo 'slow';",
    ),
    ("wait", "<?php usleep(200000); echo getmypid();"),
    ("sleeps", "<?php echo sleep(2), ' left';"),
    (
        "burns",
        "<?php function burn(float $end) { while (hrtime(true) < $end) { $i = 7; } }
        burn(hrtime(true) + 3e9); echo 'burnt';",
    ),
    (
        "loops",
        "<?php function turn(int $left) { for ($i = 0; $i < $left; $i++) { $x = $i % 7; } }
        $end = time() + 3; while (time() < $end) turn(20000000); echo 'turned';",
    ),
    ("user", "<?php echo posix_geteuid(), ' ', posix_getegid(), ' ', getmypid();"),
    ("forks", "<?php echo @exec('echo forked') ?: 'refused';"),
    ("attack", ATTACK),
    ("marks", "<?php echo touch(__DIR__ . '/../marks/it') ? 'marked' : 'failed';"),
];

/// What a script of one pool tries to do to another: reads the memory of its zygote, and has it run
/// a script without the secret.
const ATTACK: &str = r#"<?php
$said = [];
foreach (glob('/proc/[0-9]*/comm') as $comm) {
    $pid = basename(dirname($comm));
    if (!str_starts_with((string)@file_get_contents($comm), 'php ') || $pid == getmypid()) continue;
    // The permission to open these is that to read the memory. A process that is ending has none
    // left, and reading yields nothing.
    foreach (['environ', 'maps'] as $name) {
        if ((string)@file_get_contents("/proc/$pid/$name", false, null, 0, 16) !== '') {
            $said[] = "read $name of $pid";
        }
    }
    // The owner of the folder is root, whatever user the process runs as: its memory is private.
    preg_match('/^Uid:\s+(\d+)/m', (string)@file_get_contents("/proc/$pid/status"), $uid);
    if (posix_kill((int)$pid, 0) && posix_geteuid() != ($uid[1] ?? posix_geteuid())) {
        $said[] = "may signal $pid";
    }
}
foreach (glob(__DIR__ . '/../run/evenkeel-apps/*') as $socket) $said[] = "listed $socket";
foreach (range(0, 3) as $number) {
    $path = __DIR__ . '/../run/evenkeel-apps/' . posix_getppid() . "-$number.sock";
    if (@stream_socket_client("unix://$path")) $said[] = "connected to $path";
}
foreach (explode(' ', (string)@$_GET['pids']) as $parent) foreach (range(0, 3) as $number) {
    $path = __DIR__ . "/../run/evenkeel-apps/$parent-$number.sock";
    $pipe = @stream_socket_client("unix://$path");
    if (!$pipe) continue;
    $pair = fn($name, $value) => pack('NN', strlen($name) | 1 << 31, strlen($value) | 1 << 31)
        . $name . $value;
    $record = fn($kind, $text) => pack('CCnnCC', 1, $kind, 1, strlen($text), 0, 0) . $text;
    $params = $pair('SCRIPT_FILENAME', __DIR__ . '/user.php') . $pair('REQUEST_METHOD', 'GET')
        . $pair('EVENKEEL_SECRET', str_repeat("\0", 16));
    fwrite($pipe, $record(1, pack('nCx5', 1, 0)) . $record(4, $params) . $record(4, '')
        . $record(5, ''));
    $answer = (string)stream_get_contents($pipe);
    if ($answer !== '') $said[] = "had an answer of $path: $answer";
}
foreach (array_merge(getenv(), $_SERVER) as $name => $value) {
    if (str_starts_with($name, 'EVENKEEL')) $said[] = "sees $name";
}
echo json_encode($said);
"#;

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
    // One that hangs is ended, while another takes its place.
    let hanging = ask(&house, "stays");
    let pid = orphan();
    // A zygote that dies within its first second is not replaced at once.
    wait_for("a new worker", || get(&house, "hello") == (200, "hello".into())).unwrap();
    assert_eq!(read(hanging).0, 504);
    says(&format!("the worker (pid {pid}) was ended after AppRequestTimeout in "));
    // One that is killed is named.
    let killed = ask(&house, "stays");
    let pid = orphan();
    send(pid, Signal::KILL);
    assert_eq!(read(killed).0, 503);
    says(&format!("the worker (pid {pid}) has died after its zygote in "));
    wait_for("a new worker", || get(&house, "hello") == (200, "hello".into())).unwrap();
    // The end of the server is theirs.
    let _unanswered = ask(&house, "stays");
    let pid = orphan();
    house.signal(Signal::TERM);
    let path = format!("/proc/{pid}");
    wait_for("the worker to end", || !Path::new(&path).exists()).unwrap();
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
fn the_status_page_lists_the_workers_of_a_pool_that_is_full() {
    let house = open(
        "AppMaxWorkers 2\nLoadModule status_module modules/mod_status.so\n\
         <Location /status>\nSetHandler server-status\n</Location>\n",
    );
    let page = |query: &str| response_of(&house, "localhost", &format!("status{query}")).1;
    let slow: Vec<TcpStream> = (0..6).map(|_| ask(&house, "slow")).collect();
    let script = house.path("htdocs/slow.php");
    let script = script.to_str().unwrap();
    let is_at_work = |line: &&str| {
        let is_worker = line.starts_with("App-php-Worker-");
        is_worker && line.contains(" W ") && line.ends_with(script)
    };
    let workers = || page("?auto").lines().filter(is_at_work).count();
    wait_for("two workers at work", || workers() == 2).unwrap();
    wait_for("the queue", || page("?auto").contains("\nApp-php-Queue: 4\n")).unwrap();
    let zygote = zygote(&house);
    let json: serde_json::Value = serde_json::from_str(&page("?json")).unwrap();
    let listed = json["applications"][0]["processes"].as_array().unwrap();
    let mut pids: Vec<u64> = listed.iter().map(|one| one["pid"].as_u64().unwrap()).collect();
    let mut forked: Vec<u64> = children_of(zygote).into_iter().map(u64::from).collect();
    pids.sort_unstable();
    forked.sort_unstable();
    assert_eq!(pids, forked);
    for one in listed {
        assert_eq!((&one["state"], &one["script"]), (&"W".into(), &script.into()), "{one}");
        assert!(one["runs_us"].as_u64().unwrap() > 0, "{one}");
    }
    assert_eq!(page("").matches(script).count(), 2);
    fs::write(house.path("go"), "").unwrap();
    assert!(slow.into_iter().all(|one| read(one) == (200, "slow".into())));
    let is_over = || workers() == 0 && page("?auto").contains("\nApp-php-Busy: 0\n");
    wait_for("the workers to be idle", is_over).unwrap();
    let json: serde_json::Value = serde_json::from_str(&page("?json")).unwrap();
    let listed = json["applications"][0]["processes"].as_array().unwrap();
    let sum = |name: &str| listed.iter().map(|one| one[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("requests"), 6, "{listed:?}");
    assert!(sum("cpu_us") > 0 && sum("memory") > 0, "{listed:?}");
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

#[test]
fn a_request_that_waits_too_long_for_a_worker_is_answered_with_503() {
    let house = open("AppMaxWorkers 1\nAppQueueTimeout 1\n");
    assert_eq!(get(&house, "hello").0, 200);
    let slow = ask(&house, "slow");
    wait_for("the script to run", || {
        let started = Instant::now();
        let mut waiting = ask(&house, "hello");
        let mut bytes = Vec::new();
        waiting.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let is_late = text.starts_with("HTTP/1.1 503 ");
        if is_late {
            assert!(text.contains("\r\nRetry-After: 1\r\n"), "{text}");
            assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
        }
        is_late
    })
    .unwrap();
    assert!(house.error_log().contains("hello.php: no worker of the pool php was free in time"));
    fs::write(house.path("go"), "").unwrap();
    // The script itself has run for longer, which is no wait.
    assert_eq!(read(slow), (200, "slow".into()));
    assert_eq!(get(&house, "sleeps"), (200, "0 left".into()));
    assert_eq!(get(&house, "hello"), (200, "hello".into()));
}

#[test]
fn slow_scripts_are_in_the_slow_log_and_run_on_as_before() {
    let house = open("AppSlowLog logs/slow.log\nAppSlowTimeout 1\n");
    let asked: Vec<_> =
        ["sleeps", "burns", "loops", "hello"].iter().map(|name| ask(&house, name)).collect();
    let answers: Vec<_> = asked.into_iter().map(|stream| read(stream).1).collect();
    assert_eq!(answers, ["0 left", "burnt", "turned", "hello"]);
    let log = fs::read_to_string(house.path("logs/slow.log")).unwrap();
    let traces: Vec<&str> = log.split("\n\n").collect();
    assert_eq!(traces.len(), 3, "{log}");
    let of = |script: &str| {
        let named = |trace: &&&str| trace.contains(&format!("/{script}.php\n"));
        traces.iter().find(named).unwrap_or_else(|| panic!("{script}: {log}"))
    };
    assert!(of("sleeps").contains("] sleep() ") && of("sleeps").contains("sleeps.php:1"), "{log}");
    for (script, function) in [("burns", "burn"), ("loops", "turn")] {
        assert!(of(script).contains("  [pool php] pid "), "{log}");
        assert!(of(script).contains("] {main}() "), "{log}");
        let has = script == "loops" || of(script).contains(&format!("] {function}() "));
        assert!(has, "{log}");
    }
}

#[test]
fn one_process_has_a_pool_too() {
    build().unwrap();
    let mut house = House::lay_out(MODULES).unwrap();
    fs::create_dir_all(house.path("run")).unwrap();
    for (name, text) in SCRIPTS {
        fs::write(house.path(&format!("htdocs/{name}.php")), text).unwrap();
    }
    house.start_as(&[], "-X").unwrap();
    assert_eq!(get(&house, "hello"), (200, "hello".into()));
    assert_eq!(get(&house, "segv").0, 503);
    let (status, body) = get(&house, "pid");
    let (worker, zygote) = body.split_once(' ').unwrap();
    assert_eq!(status, 200);
    let keeper = children_of(house.parent());
    assert_eq!(keeper.len(), 1, "{keeper:?}");
    assert!(children_of(keeper[0]).contains(&zygote.parse().unwrap()));
    let all = [keeper[0], worker.parse().unwrap(), zygote.parse().unwrap()];
    house.stop().unwrap();
    let lives = |pid: &u32| fs::exists(format!("/proc/{pid}")).unwrap();
    wait_for("the pool to end", || !all.iter().any(lives)).unwrap();
    assert_eq!(fs::read_dir(house.path("run/evenkeel-apps")).unwrap().count(), 0);
}

/// Three virtual hosts: the scripts of a and b run as users of their own, those of c as User.
const USERS: &str = "\
<VirtualHost *>
ServerName a
AppUser nobody
</VirtualHost>
<VirtualHost *>
ServerName b
AppUser games games
RLimitNPROC 1
RLimitMEM 1000000000
PHPINIDir ini
</VirtualHost>
<VirtualHost *>
ServerName c
</VirtualHost>
";

fn response_of(house: &House, host: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let text = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    read(stream)
}

#[test]
fn scripts_of_a_host_run_as_its_user_and_pools_are_kept_apart() {
    assert!(geteuid().is_root(), "only root can run scripts as other users");
    let house = open("");
    house.configure(USERS).unwrap();
    house.reload().unwrap();
    let ids = |host: &str| {
        let (status, body) = response_of(&house, host, "user.php");
        assert_eq!(status, 200, "{body} {}", house.error_log());
        let numbers: Vec<u32> = body.split(' ').map(|word| word.parse().unwrap()).collect();
        numbers
    };
    wait_for("the users", || ids("a")[..2] != ids("c")[..2])
        .unwrap_or_else(|error| panic!("{error}: {}", house.error_log()));
    let (a, b, c) = (ids("a"), ids("b"), ids("c"));
    let named = |name: &str, option: &str| -> u32 {
        let output = std::process::Command::new("id").args([option, name]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
    };
    assert_eq!(&a[..2], [named("nobody", "-u"), named("nobody", "-g")]);
    assert_eq!(&b[..2], [named("games", "-u"), named("games", "-g")]);
    assert_eq!(&c[..2], [named("www-data", "-u"), named("www-data", "-g")]);
    // What a script of one pool tries to do to the others.
    for host in ["a", "b", "c"] {
        let path = format!("attack.php?pids={}", house.parent());
        assert_eq!(response_of(&house, host, &path), (200, "[]".into()), "{host}");
    }
    // A death in one pool disturbs no other.
    assert_eq!(response_of(&house, "a", "segv.php").0, 503);
    assert_eq!(ids("b"), b);
    let is_told = || house.error_log().contains("pool php-nobody: the worker (pid ");
    wait_for("the death to be logged", is_told).unwrap();
    // RLimitNPROC acts on the scripts of the host that sets it, and on no others.
    for (host, what) in [("a", "forked"), ("b", "refused"), ("c", "forked")] {
        assert_eq!(response_of(&house, host, "forks.php"), (200, what.into()), "{host}");
    }
    for said in [
        "RLimitMEM: not for the PHP scripts of AppUser games;",
        "PHPINIDir in a virtual host holds for all hosts",
    ] {
        assert!(house.error_log().contains(said), "{}", house.error_log());
    }
    // A reload takes the user away.
    house.configure(&USERS.replace("AppUser nobody\n", "")).unwrap();
    house.reload().unwrap();
    wait_for("the other user", || ids("a")[..2] == c[..2]).unwrap();
}

#[test]
fn a_broken_php_ini_is_named_and_the_old_pool_serves_on() {
    let mut house = House::lay_out(&[MODULES, "PHPINIDir ini\n"].concat()).unwrap();
    fs::create_dir_all(house.path("run")).unwrap();
    fs::create_dir_all(house.path("ini")).unwrap();
    build().unwrap();
    for (name, text) in SCRIPTS {
        fs::write(house.path(&format!("htdocs/{name}.php")), text).unwrap();
    }
    fs::write(house.path("ini/php.ini"), "precision = 5\n").unwrap();
    house.start(&[]).unwrap();
    assert_eq!(get(&house, "ini"), (200, "5".into()));
    let old = zygote(&house);
    // PHP exits where it cannot preload.
    fs::write(
        house.path("ini/php.ini"),
        "precision = 6\nopcache.preload = /nowhere/at/all.php\n\
        zend_extension = opcache\nopcache.enable = 1\n",
    )
    .unwrap();
    house.reload().unwrap();
    wait_for("the failure", || house.error_log().contains("pool php: the zygote (pid ")).unwrap();
    assert_eq!(get(&house, "ini"), (200, "5".into()));
    assert_eq!(zygote(&house), old);
    fs::write(house.path("ini/php.ini"), "precision = 7\n").unwrap();
    house.reload().unwrap();
    wait_for("the new php.ini", || get(&house, "ini") == (200, "7".into())).unwrap();
}

#[test]
fn pools_that_cannot_be_are_refused_with_file_and_line() {
    build().unwrap();
    for (line, why) in [
        ("AppUser no-such-user", "AppUser: there is no user no-such-user"),
        ("AppUser nobody no-such-group", "AppUser: there is no group no-such-group"),
        ("AppUser root", "AppUser root: scripts do not run as root"),
        ("AppQueueTimeout 0", "AppQueueTimeout 0: a number from 1 to 86400 is meant"),
        ("AppSlowTimeout never", "AppSlowTimeout never: a number from 1 to 86400 is meant"),
        ("AppSlowLog nowhere/slow.log", "nowhere/slow.log: there is no such folder"),
    ] {
        let house = House::lay_out(&[MODULES, line, "\n"].concat()).unwrap();
        fs::create_dir_all(house.path("run")).unwrap();
        let error = Server::start(Kind::Evenkeel, &house.path(""), house.address.port());
        let error = error.err().unwrap();
        assert!(error.contains(why) && error.contains("AH00526: Syntax error on line"), "{error}");
    }
}
