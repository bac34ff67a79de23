//! Checks FastCGI programs that the server keeps (mod_fcgid): plays the scripts of tests/fcgid to
//! Debian's apache2 with mod_fcgid too, which is unpacked and not installed, and disturbs the
//! processes.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, children_of, read, send, wait_for};
use evenkeel_tests::php::oracle;
use evenkeel_tests::play::Differences;
use evenkeel_tests::script::parse;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

const PROGRAM: &str = include_str!("../fcgid/app.pl");

const MODULES: &str = "\
LoadModule fcgid_module /usr/lib/apache2/modules/mod_fcgid.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
TypesConfig /etc/mime.types
FcgidMinProcessesPerClass 0
ScriptAlias /app @ROOT@/app
<Files app>
SetHandler fcgid-script
Require all granted
</Files>
";

#[test]
fn programs_answer_as_under_mod_fcgid() {
    let module = oracle().unwrap().with_file_name("mod_fcgid.so");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fcgid");
    let text = fs::read_to_string(folder.join("programs.wire")).unwrap();
    let (modules, rest) = text.split_once("\nconfig\n").unwrap();
    let load = format!("LoadModule fcgid_module {}", module.display());
    let script = parse("programs", &format!("{modules}\nconfig\n    {load}\n{rest}")).unwrap();
    let mut differences = Differences::default();
    differences.play(&script).unwrap();
    let report = differences.report(39);
    assert!(report.is_empty(), "{report}");
}

fn open(more: &str) -> House {
    let mut house = House::lay_out(&[MODULES, more].concat()).unwrap();
    write_program(&house.path("app"), PROGRAM);
    house.start(&[]).unwrap();
    house
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn ask(house: &House, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let text = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

fn get(house: &House, path: &str) -> (u16, String) {
    read(ask(house, path))
}

/// The process that answers, and how many requests it has answered.
fn process(house: &House) -> (u32, u32) {
    let (status, body) = get(house, "/app?do=pid");
    assert_eq!(status, 200, "{body} {}", house.error_log());
    let (pid, served) = body.trim().split_once(' ').unwrap();
    (pid.parse().unwrap(), served.parse().unwrap())
}

#[test]
fn a_process_serves_many_requests_up_to_its_bound() {
    let house = open("FcgidMaxRequestsPerProcess 3\n");
    let served: Vec<_> = (0..7).map(|_| process(&house)).collect();
    let counts: Vec<u32> = served.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [1, 2, 3, 1, 2, 3, 1], "{served:?}");
    let pids: BTreeSet<u32> = served.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(pids.len(), 3);
}

#[test]
fn requests_wait_for_a_process_and_a_class_keeps_to_its_bound() {
    let house = open("FcgidMaxProcessesPerClass 2\n");
    let started = Instant::now();
    let asked: Vec<_> = (0..8).map(|_| ask(&house, "/app?do=wait")).collect();
    let answers: Vec<_> = asked.into_iter().map(read).collect();
    assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
    assert!(started.elapsed() >= Duration::from_millis(1200), "{:?}", started.elapsed());
    let pids: BTreeSet<u32> = (0..6).map(|_| process(&house).0).collect();
    assert!(pids.len() <= 2, "{pids:?}");
}

#[test]
fn a_request_that_gets_no_process_is_answered_with_503() {
    let house = open("FcgidMaxProcessesPerClass 1\nTimeout 1\nFcgidIOTimeout 60\n");
    assert_eq!(get(&house, "/app").0, 200);
    let hanging = ask(&house, "/app?do=hang");
    wait_for("the process to be lent", || get(&house, "/app").0 == 503).unwrap();
    assert!(house.error_log().contains("mod_fcgid: can't apply process slot for "));
    // The process of a client that leaves is ended.
    drop(hanging);
    wait_for("the next process", || get(&house, "/app").0 == 200).unwrap();
}

#[test]
fn processes_that_die_hang_or_rest_too_long_are_replaced() {
    let house = open("FcgidBusyTimeout 1\nFcgidIdleTimeout 2\n");
    let (first, _) = process(&house);
    assert_eq!(get(&house, "/app?do=die").0, 500);
    assert_eq!(get(&house, "/app?do=kill").0, 500);
    let begun = Instant::now();
    assert_eq!(get(&house, "/app?do=hang").0, 500);
    assert!(begun.elapsed() < Duration::from_secs(20));
    let (second, _) = process(&house);
    assert_ne!(first, second);
    send(second, Signal::KILL);
    // A request may have been lent the process that dies.
    wait_for("another process", || get(&house, "/app").0 == 200).unwrap();
    assert_ne!(process(&house).0, second);
    let (third, _) = process(&house);
    let lives = || fs::exists(format!("/proc/{third}")).unwrap();
    wait_for("the process to end for want of requests", || !lives()).unwrap();
    assert_eq!(get(&house, "/app").0, 200);
}

#[test]
fn a_program_that_dies_in_the_body_is_logged_as_one_of_mod_fcgid() {
    let house = open("");
    let (status, body) = get(&house, "/app?do=cut");
    assert!(status == 200 && body.len() <= 200_000, "{status}, {} bytes", body.len());
    let line = "mod_fcgid: error reading data, FastCGI server closed connection";
    wait_for("the line of the failure", || house.error_log().contains(line)).unwrap();
    assert!(!house.error_log().contains("proxy_fcgi"), "{}", house.error_log());
    assert_eq!(get(&house, "/app").0, 200);
}

#[test]
fn a_program_that_always_dies_costs_its_own_requests_only() {
    let house = open(
        "ScriptAlias /bad @ROOT@/bad\n<Files bad>\nSetHandler fcgid-script\n\
        Require all granted\n</Files>\n",
    );
    write_program(&house.path("bad"), "#!/bin/sh\nexit 1\n");
    for _ in 0..12 {
        let (status, body) = get(&house, "/bad");
        assert!([500, 503].contains(&status), "{status} {body}");
    }
    assert_eq!(get(&house, "/app").0, 200);
    write_program(&house.path("bad"), "#!/no/such/interpreter\n");
    wait_for("the refusal to end", || get(&house, "/bad").0 == 503).unwrap();
    assert_eq!(get(&house, "/app").0, 200);
}

#[test]
fn reloads_and_stops_leave_no_process_and_lose_no_request() {
    let mut house = open("");
    let (old, _) = process(&house);
    let waiting: Vec<_> = (0..4).map(|_| ask(&house, "/app?do=wait")).collect();
    house.reload().unwrap();
    for stream in waiting {
        assert_eq!(read(stream).0, 200);
    }
    let lives = |pid: u32| fs::exists(format!("/proc/{pid}")).unwrap();
    wait_for("the new process", || process(&house).0 != old).unwrap();
    wait_for("the old process to end", || !lives(old)).unwrap();
    let (new, _) = process(&house);
    let launchers = children_of(house.parent());
    house.stop().unwrap();
    wait_for("all to end", || !lives(new) && !launchers.iter().any(|pid| lives(*pid))).unwrap();
}

#[test]
fn php_cgi_and_perls_fcgi_serve_through_wrappers() {
    let house = open(
        "<Directory @ROOT@/htdocs>\nOptions +ExecCGI\nAddHandler fcgid-script .php .pl\n\
        FcgidWrapper /usr/bin/php-cgi8.2 .php\nFcgidWrapper \"/usr/bin/perl @ROOT@/loop.pl\" .pl\n\
        </Directory>\nFcgidInitialEnv PHP_FCGI_MAX_REQUESTS 100\n",
    );
    fs::write(house.path("htdocs/x.php"), "<?php echo PHP_SAPI, $_SERVER['REQUEST_METHOD'];")
        .unwrap();
    fs::write(house.path("htdocs/x.pl"), "").unwrap();
    let text = "use FCGI; my $r = FCGI::Request(); my $n = 0; while ($r->Accept() >= 0) { $n++; \
        print \"Content-Type: text/plain\\r\\n\\r\\n$n $ENV{QUERY_STRING}\"; }";
    fs::write(house.path("loop.pl"), text).unwrap();
    assert_eq!(get(&house, "/x.php"), (200, "cgi-fcgiGET".into()), "{}", house.error_log());
    assert_eq!(get(&house, "/x.pl?q"), (200, "1 q".into()), "{}", house.error_log());
    assert_eq!(get(&house, "/x.pl?q"), (200, "2 q".into()));
}
