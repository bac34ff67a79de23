//! Checks the pool of PHP behind the server: what becomes of requests when a script, a worker or
//! the zygote dies, when scripts hang, and at reloads and stops.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, children_of, read, send, wait_for};
use evenkeel_tests::php::build;
use evenkeel_tests::php_house::{MODULES, ask, ask_for, get, zygote};
use evenkeel_tests::server::{Kind, Server};
use rustix::process::{Signal, geteuid};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SCRIPTS: &[(&str, &str)] = &[
    ("hello", "<?php echo 'hello';"),
    ("pid", "<?php echo getmypid(), ' ', posix_getppid();"),
    ("segv", "<?php posix_kill(getmypid(), 11); sleep(9);"),
    ("half", "<?php echo 'half'; ob_flush(); flush(); posix_kill(getmypid(), 9); sleep(9);"),
    ("hangs", "<?php sleep(600);"),
    ("floods", "<?php for ($i = 0; $i < 3000; $i++) header(\"X-$i: 0123456789012345678901234\");"),
    ("logs", "<?php for ($i = 0; $i < 5000; $i++) error_log(\"line $i\"); echo 'logged';"),
    ("pours", "<?php for ($i = 0; $i < 20000; $i++) error_log(\"drop $i\"); echo 'poured';"),
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
    (
        "counts",
        "<?php file_put_contents(__DIR__ . '/../marks/count', $_SERVER['QUERY_STRING'] . ' ',
            FILE_APPEND | LOCK_EX); usleep(2000); echo 'counted';",
    ),
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
    // A flood of messages is bounded, and the log says how many are missing.
    assert_eq!(get(&house, "pours"), (200, "poured".into()));
    let told = || {
        let log = house.error_log();
        let (before, _) = log.split_once(" more messages of this request are left out")?;
        let left_out: usize = before.rsplit_once(' ')?.1.parse().ok()?;
        Some((log.matches("drop ").count(), left_out))
    };
    wait_for("the number to be logged", || told().is_some()).unwrap();
    let (kept, left_out) = told().unwrap();
    assert!(kept >= 2000 && kept + left_out == 20_000, "{kept} and {left_out}");
}

#[test]
fn long_settings_and_fields_leave_admin_settings_and_other_fields_as_they_are() {
    let house = open(
        "LoadModule setenvif_module modules/mod_setenvif.so\n\
         SetEnvIf X-User (.*) REMOTE_USER=$1\n\
         <Directory \"@ROOT@/htdocs/deep\">\nAllowOverride Options\n\
         php_admin_value precision 9\n</Directory>\n",
    );
    fs::create_dir_all(house.path("htdocs/deep")).unwrap();
    let values: String =
        (0..3).map(|n| format!("php_value a.{n} \"{}\"\n", "y".repeat(8000))).collect();
    fs::write(house.path("htdocs/deep/.htaccess"), values).unwrap();
    fs::write(
        house.path("htdocs/deep/told.php"),
        "<?php echo ini_get('precision'), ' ', count(getallheaders()), ' ', $_COOKIE['k'], ' ',
        json_encode($_SERVER['PHP_AUTH_USER'] ?? null);",
    )
    .unwrap();
    let long: String = (0..3).map(|n| format!("X-{n}: {}\r\n", "z".repeat(8000))).collect();
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let text = format!(
        "GET /deep/told.php HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{long}\
         Cookie: k=v\r\nX-User: root\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).unwrap();
    assert_eq!(read(stream), (200, "9 7 v null".to_owned()));
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
fn a_child_asks_the_pool_for_more_responses_than_it_has_threads() {
    let house = open(
        "LoadModule mpm_event_module modules/mod_mpm_event.so\n\
         StartServers 1\nMinSpareThreads 1\nThreadsPerChild 4\nMaxRequestWorkers 64\n\
         AppMaxWorkers 24\nLoadModule status_module modules/mod_status.so\n\
         <Location /status>\nSetHandler server-status\n</Location>\n",
    );
    let says = |line: &str| {
        response_of(&house, "localhost", "status?auto").1.lines().any(|one| one == line)
    };
    let slow: Vec<TcpStream> = (0..12).map(|_| ask(&house, "slow")).collect();
    wait_for("all scripts to run at once", || says("App-php-Busy: 12")).unwrap();
    fs::write(house.path("go"), "").unwrap();
    slow.into_iter().for_each(|one| assert_eq!(read(one), (200, "slow".into())));
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
        response_of(&house, "localhost", "status?auto").1.lines().any(|one| one == line)
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
fn without_extended_status_no_page_says_which_script_runs() {
    let house = open(
        "LoadModule status_module modules/mod_status.so\nExtendedStatus Off\n\
         <Location /status>\nSetHandler server-status\n</Location>\n",
    );
    let page = |query: &str| response_of(&house, "localhost", &format!("status{query}")).1;
    let slow = ask(&house, "slow");
    let is_at_work =
        |line: &str| line.starts_with("App-php-Worker-") && line.split(' ').nth(2) == Some("W");
    wait_for("a worker at work", || page("?auto").lines().any(is_at_work)).unwrap();
    for query in ["", "?auto", "?json", "?json&pool", "?pool", "?explain"] {
        let page = page(query);
        assert!(!page.is_empty() && !page.contains("slow.php"), "{query}: {page}");
    }
    fs::write(house.path("go"), "").unwrap();
    assert_eq!(read(slow), (200, "slow".into()));
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

/// Has the output of a script parsed for parts.
const PARTS: &str = "LoadModule include_module /usr/lib/apache2/modules/mod_include.so\n\
                     Options +Includes\n<Files page.php>\nSetOutputFilter INCLUDES\n</Files>\n";

#[test]
fn scripts_run_under_every_process_model() {
    for model in ["prefork", "worker", "event"] {
        build().unwrap();
        let module =
            format!("LoadModule mpm_{model}_module /usr/lib/apache2/modules/mod_mpm_{model}.so\n");
        let mut house = House::lay_out(&[&*module, MODULES, PARTS].concat()).unwrap();
        fs::create_dir_all(house.path("run")).unwrap();
        fs::write(house.path("htdocs/hello.php"), "<?php echo PHP_SAPI;").unwrap();
        // More than is read ahead: the script still sends the page when its part is asked for.
        let page = "<?php $x = str_repeat('x', 300000);
            echo $x, '<!--#include virtual=\"hello.php\" -->', $x, '.';";
        fs::write(house.path("htdocs/page.php"), page).unwrap();
        house.start(&[]).unwrap();
        assert_eq!(get(&house, "hello"), (200, "apache2handler".into()), "{model}");
        let (status, text) = get(&house, "page");
        assert_eq!((status, text.matches('x').count()), (200, 600_000), "{model}");
        assert!(text.contains("\napache2handler\r") && text.contains(".\r\n0\r\n"), "{model}");
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
    assert_eq!(ids("b")[..2], b[..2]);
    assert!(Path::new(&format!("/proc/{}", b[2])).exists());
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
        ("AppNice 20", "AppNice 20: a number from 0 to 19 is meant"),
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

/// Makes the folder into which the scripts of a pool may write.
fn make_marks(house: &House) {
    let marks = house.path("marks");
    fs::create_dir(&marks).unwrap();
    fs::set_permissions(&marks, fs::Permissions::from_mode(0o777)).unwrap();
}

fn counted(house: &House) -> Vec<String> {
    let text = fs::read_to_string(house.path("marks/count")).unwrap_or_default();
    text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The connections of a worker to the serving children, as inodes.
fn connections_of(house: &House, worker: u32) -> BTreeSet<String> {
    let pool = house.path("run/evenkeel-apps").display().to_string();
    let known = fs::read_to_string("/proc/net/unix").unwrap();
    // An accepted socket has the path of the listening socket; the state 03 is a connection.
    let connected = known.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[_, _, _, _, _, state, inode, path] = &*words else { return None };
        (state == "03" && path.starts_with(&pool)).then(|| format!("socket:[{inode}]"))
    });
    let connected: BTreeSet<String> = connected.collect();
    let open = fs::read_dir(format!("/proc/{worker}/fd")).unwrap().flatten();
    let links = open.filter_map(|it| fs::read_link(it.path()).ok()?.to_str().map(str::to_owned));
    links.filter(|link| connected.contains(link)).collect()
}

fn worker_of(house: &House) -> u32 {
    let (status, body) = get(house, "pid");
    assert_eq!(status, 200, "{body}");
    body.split_once(' ').unwrap().0.parse().unwrap()
}

#[test]
fn later_requests_come_by_kept_connections() {
    for model in ["prefork", "worker", "event"] {
        let module =
            format!("LoadModule mpm_{model}_module /usr/lib/apache2/modules/mod_mpm_{model}.so\n");
        let house = open(&format!("{module}AppMaxWorkers 1\nStartServers 1\n"));
        let worker = worker_of(&house);
        (0..100).for_each(|_| assert_eq!(get(&house, "hello"), (200, "hello".into())));
        let kept = connections_of(&house, worker);
        assert!((1..=32).contains(&kept.len()), "{model}: {kept:?}");
        (0..50).for_each(|_| assert_eq!(get(&house, "hello"), (200, "hello".into())));
        assert_eq!(worker_of(&house), worker);
        // A thread that had no request before makes a connection of its own.
        let now = connections_of(&house, worker);
        assert!(now.difference(&kept).count() < 20, "{model}: {kept:?} {now:?}");
        // A reload takes the serving children away, and the connections with them.
        house.reload().unwrap();
        wait_for("another worker", || get(&house, "hello").0 == 200 && worker_of(&house) != worker)
            .unwrap();
        wait_for("the worker to end", || !Path::new(&format!("/proc/{worker}")).exists()).unwrap();
    }
}

#[test]
fn a_request_whose_worker_dies_before_it_takes_the_claim_runs_once_at_another() {
    let house = open("AppMaxWorkers 1\n");
    make_marks(&house);
    for round in 1..=3 {
        let worker = worker_of(&house);
        (0..20).for_each(|_| assert_eq!(get(&house, "hello").0, 200));
        let stat = || fs::read_to_string(format!("/proc/{worker}/stat")).unwrap_or_default();
        send(worker, Signal::STOP);
        wait_for("the worker to stop", || stat().contains(") T ")).unwrap();
        let asked = ask(&house, "counts");
        std::thread::sleep(Duration::from_millis(50));
        send(worker, Signal::KILL);
        assert_eq!(read(asked), (200, "counted".into()), "{}", house.error_log());
        // The script has run once.
        assert_eq!(fs::read_to_string(house.path("marks/count")).unwrap(), " ".repeat(round));
    }
    // A worker that dies while it is idle and unclaimed loses nobody's request either.
    for _ in 0..100 {
        let worker = worker_of(&house);
        send(worker, Signal::KILL);
        assert_eq!(get(&house, "hello"), (200, "hello".into()), "{}", house.error_log());
    }
    // One that has begun with the script is not asked again.
    let before = fs::read_to_string(house.path("marks/count")).unwrap();
    assert_eq!(get(&house, "segv").0, 503);
    assert_eq!(fs::read_to_string(house.path("marks/count")).unwrap(), before);
}

#[test]
fn requests_beyond_the_workers_are_served_in_the_order_in_which_they_came() {
    let house = open(
        "AppMaxWorkers 1\nLoadModule status_module modules/mod_status.so\n\
         <Location /status>\nSetHandler server-status\n</Location>\n",
    );
    make_marks(&house);
    let says = |line: &str| {
        response_of(&house, "localhost", "status?auto").1.lines().any(|one| one == line)
    };
    let count = |number: usize| ask_for(&house, &format!("counts.php?{number}"));
    (0..20).for_each(|_| assert_eq!(get(&house, "hello").0, 200));
    let slow = ask(&house, "slow");
    wait_for("the script to run", || says("App-php-Busy: 1")).unwrap();
    let queued: Vec<TcpStream> = (0..12)
        .map(|number| {
            let stream = count(number);
            let line = format!("App-php-Queue: {}", number + 1);
            wait_for("the request to be in the queue", || says(&line)).unwrap();
            stream
        })
        .collect();
    fs::write(house.path("go"), "").unwrap();
    assert_eq!(read(slow), (200, "slow".into()));
    // They find the worker between two requests, and wait until those before them are served.
    let late: Vec<(u16, String)> = (12..20).map(|number| read(count(number))).collect();
    let answers = queued.into_iter().map(read).chain(late);
    answers.for_each(|answer| assert_eq!(answer, (200, "counted".into())));
    let want: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(counted(&house), want);
}

#[test]
fn nothing_is_lost_while_workers_end_and_the_server_reloads() {
    let house = open("AppMaxWorkers 3\nAppMinSpare 3\nAppMaxRequests 20\n");
    assert_eq!(get(&house, "hello").0, 200);
    let is_over = AtomicBool::new(false);
    let answered = std::thread::scope(|scope| {
        let client = || {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(get(&house, "hello"), (200, "hello".into()), "{}", house.error_log());
                count += 1;
            }
            count
        };
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(client)).collect();
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(300));
            house.reload().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum::<u32>()
    });
    assert!(answered > 200, "{answered}");
}
