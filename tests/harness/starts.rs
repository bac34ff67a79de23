//! Tests how a server starts: which user serves, in how many processes, and what is refused, for
//! given configurations and command lines. The tests need root, whose server serves as another
//! user.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, PATIENCE, halt, send, wait_for};
use evenkeel_tests::load::{probe, text};
use evenkeel_tests::server::{Kind, command, program};
use rustix::process::Signal;
use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The message if root's server has no User.
const NO_USER: &str = "started by root, and no User says who is to serve instead";

/// The standard output, standard error and exit status of a program that ends by itself, for the
/// test server's configuration.
fn said(kind: Kind, house: &House, words: &[&str]) -> (String, String, Option<i32>) {
    let program = program(kind, &house.path("")).unwrap();
    let file = house.path("httpd.conf").to_string_lossy().into_owned();
    let words = [&["-f", file.as_str()][..], words].concat();
    let output = command(&program, &words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Removes the user from the configuration.
fn name_no_user(house: &House) {
    let file = house.path("httpd.conf");
    let text = fs::read_to_string(&file).unwrap();
    let is_kept = |line: &&str| !line.starts_with("User ") && !line.starts_with("Group ");
    let kept: String = text.lines().filter(is_kept).flat_map(|line| [line, "\n"]).collect();
    assert_ne!(kept, text, "this test needs root");
    fs::write(&file, kept).unwrap();
}

/// The number of a user, as text.
fn number_of(user: &str) -> String {
    let text = fs::read_to_string("/etc/passwd").unwrap();
    let entry = text.lines().find_map(|line| line.strip_prefix(user)?.strip_prefix(':')).unwrap();
    entry.split(':').nth(1).unwrap().to_owned()
}

/// Whether the real, effective, saved and file system ids of a process are this user's, and it has
/// no capabilities.
fn is_of(pid: u32, user: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("");
    let number = number_of(user);
    let is_his = value("Uid:").split_whitespace().all(|own| own == number);
    is_his && value("CapEff:").trim().trim_start_matches('0').is_empty() && !status.is_empty()
}

#[test]
fn nothing_is_served_as_root() {
    let house = House::lay_out("").unwrap();
    name_no_user(&house);
    let text = format!("AH02155: apache2: {NO_USER}: set User and Group, as in `User www-data`\n");
    for words in [&["-DFOREGROUND"][..], &[], &["-k", "start"], &["-k", "graceful"]] {
        let (out, err, status) = said(Kind::Evenkeel, &house, words);
        assert!(err.ends_with(&text), "{words:?}: {err}");
        assert_eq!((out.contains("AH02155"), status), (false, Some(1)), "{words:?}");
    }
    assert!(!house.path("logs/httpd.pid").exists());
    // The text is valid, and that is all that is checked here.
    let checked = said(Kind::Evenkeel, &house, &["-t"]);
    assert_eq!(checked, (String::new(), "Syntax OK\n".to_owned(), Some(0)));
}

/// A script that reads the output of `httpd -k start` would otherwise wait for the end of the
/// launcher of CGI programs.
#[test]
fn no_process_of_the_server_holds_the_callers_output() {
    let house =
        House::lay_out("LoadModule cgi_module /usr/lib/apache2/modules/mod_cgi.so\n").unwrap();
    let program = program(Kind::Evenkeel, &house.path("")).unwrap();
    let file = house.path("httpd.conf").to_string_lossy().into_owned();
    let (mut output, caller) = UnixStream::pair().unwrap();
    output.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut start = command(&program, &["-f", &file, "-k", "start"]);
    start.stdout(OwnedFd::from(caller.try_clone().unwrap())).stderr(OwnedFd::from(caller));
    assert!(start.status().unwrap().success());
    // The command holds the two ends of the socket.
    drop(start);
    let mut text = String::new();
    let read = output.read_to_string(&mut text);
    let stopped = said(Kind::Evenkeel, &house, &["-k", "stop"]);
    assert_eq!((read.ok(), &*text), (Some(0), ""), "{stopped:?}");
    let is_gone = || !house.path("logs/httpd.pid").exists();
    wait_for("the end of the server", is_gone).unwrap();
}

#[test]
fn one_process_of_root_serves_as_nobody() {
    let mut house = House::lay_out("").unwrap();
    name_no_user(&house);
    house.start_as(&[], "-X").unwrap();
    wait_for("an answer", || probe(house.address).is_ok()).unwrap();
    assert!(is_of(house.parent(), "nobody"));
    let told = fs::read_to_string(house.path("logs/said.txt")).unwrap();
    assert!(told.ends_with(&format!("{NO_USER}: nobody does\n")), "{told}");
    house.stop().unwrap();
}

#[test]
fn a_reload_that_would_serve_as_root_is_refused() {
    let house = House::open("", &[]).unwrap();
    probe(house.address).unwrap();
    name_no_user(&house);
    house.signal(Signal::USR1);
    wait_for("the refusal", || house.error_log().contains(NO_USER)).unwrap();
    probe(house.address).unwrap();
    let children = house.children();
    assert!(!children.is_empty() && children.iter().all(|pid| is_of(*pid, "www-data")));
}

#[test]
fn a_reload_without_the_folder_of_a_log_is_refused_before_it_is_sent() {
    let house = House::open("", &[]).unwrap();
    house.configure("CustomLog @ROOT@/gone/access.log %h\n").unwrap();
    for word in ["graceful", "restart"] {
        let words = ["-k", word];
        let [theirs, ours] = [Kind::Apache, Kind::Evenkeel].map(|kind| said(kind, &house, &words));
        assert_eq!(ours, theirs, "{word}");
        assert!(ours.1.contains("AH02297") && ours.2 == Some(1), "{ours:?}");
    }
    probe(house.address).unwrap();
}

/// A server that has written its pid file and its record of reloads. Its port opens before that.
fn started(more: &str, over: &[&str]) -> Result<House, String> {
    let house = House::open(more, over)?;
    let record = house.path("logs/httpd.pid.reload");
    wait_for("the record of reloads", || record.exists())?;
    Ok(house)
}

/// Reloads that only the running server can refuse: the additional lines, and the reason that the
/// sender prints.
const REFUSED_BY_THE_SERVER: [(&str, &str); 3] = [
    ("Listen 127.0.0.1:@TAKEN@\n", "AH00072: make_sock: could not bind to address 127.0.0.1:"),
    ("CustomLog \"||/no/such/program\" %h\n", "/no/such/program"),
    ("CustomLog @ROOT@/htdocs %h\n", "Is a directory: AH00649: could not open transfer log file"),
];

#[test]
fn the_sender_of_a_refused_reload_receives_the_reason() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for model in ["event", "worker", "prefork"] {
        let module =
            format!("LoadModule mpm_{model}_module /usr/lib/apache2/modules/mod_mpm_{model}.so\n");
        let house = started(&module, &[]).unwrap();
        for (lines, reason) in REFUSED_BY_THE_SERVER {
            house.configure(&lines.replace("@TAKEN@", &port)).unwrap();
            let word = if lines.contains("Listen") { "restart" } else { "graceful" };
            let (out, err, status) = said(Kind::Evenkeel, &house, &["-k", word]);
            assert!(err.contains(reason), "{model}, {lines}: {err}");
            let end = "the server goes on with the old one\n";
            assert!(err.ends_with(end), "{model}, {lines}: {err}");
            assert_eq!((out.as_str(), status), ("", Some(1)), "{model}, {lines}");
            probe(house.address).unwrap();
        }
        // After refusals, a good configuration is accepted.
        house.configure("").unwrap();
        let resumed = || house.error_log().matches("resuming normal operations").count();
        let before = resumed();
        for (round, word) in ["graceful", "restart", "graceful"].into_iter().enumerate() {
            let told = said(Kind::Evenkeel, &house, &["-k", word]);
            assert_eq!(told, (String::new(), String::new(), Some(0)), "{model}, {word}");
            assert_eq!(resumed(), before + round + 1, "{model}, {word}");
        }
    }
}

#[test]
fn a_reload_to_another_model_is_refused() {
    let house = started("", &[]).unwrap();
    let file = house.path("httpd.conf");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("mpm_event", "mpm_prefork")).unwrap();
    let (_, err, status) = said(Kind::Evenkeel, &house, &["-k", "graceful"]);
    assert!(err.starts_with("AH00534: apache2: Configuration error: The MPM cannot be"), "{err}");
    assert_eq!(status, Some(1));
    probe(house.address).unwrap();
}

#[test]
fn each_sender_of_concurrent_reloads_receives_a_result() {
    let house = started("", &[]).unwrap();
    house.configure("CustomLog @ROOT@/htdocs %h\n").unwrap();
    let told = |_| said(Kind::Evenkeel, &house, &["-k", "graceful"]).2;
    let all = |wanted: Option<i32>| {
        let many: Vec<Option<i32>> = std::thread::scope(|scope| {
            let one = |number| scope.spawn(move || told(number));
            let threads: Vec<_> = (0..8).map(one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(many, [wanted; 8]);
    };
    all(Some(1));
    house.configure("").unwrap();
    all(Some(0));
}

#[test]
fn the_sender_of_a_reload_does_not_wait_for_a_server_that_keeps_no_record() {
    let mut house = started("", &[]).unwrap();
    let record = house.path("logs/httpd.pid.reload");
    let text = fs::read_to_string(&record).unwrap();
    // The sender waits neither for apache2 nor because of a link that another user has made.
    let other = house.path("logs/other");
    fs::write(&other, &text).unwrap();
    fs::remove_file(&record).unwrap();
    house.configure("CustomLog @ROOT@/htdocs %h\n").unwrap();
    let refusals = || house.error_log().matches("the server goes on with the old one").count();
    let told = || said(Kind::Evenkeel, &house, &["-k", "graceful"]);
    halt(&[house.parent()]).unwrap();
    assert_eq!(told(), (String::new(), String::new(), Some(0)));
    std::os::unix::fs::symlink(&other, &record).unwrap();
    assert_eq!(told(), (String::new(), String::new(), Some(0)));
    house.signal(Signal::CONT);
    wait_for("the refusal", || refusals() == 1).unwrap();
    // The server has replaced the link by its own file.
    assert_eq!(fs::read_to_string(&other).unwrap(), text);
    assert_eq!(told().2, Some(1));
    house.stop().unwrap();
    assert!(!record.exists());
}

/// Blocks for two process models, each from a public report, in one configuration.
const BLOCKS: &str = "\
LoadModule status_module /usr/lib/apache2/modules/mod_status.so
<IfModule worker.c>
StartServers         1
ThreadsPerChild     64
MaxClients        1024
MinSpareThreads     64
MaxSpareThreads    192
MaxRequestsPerChild 500000
</IfModule>
<IfModule prefork.c>
ListenBacklog 105384
ServerLimit 105000
MaxClients 1024
MaxRequestsPerChild 0
StartServers 64
MinSpareServers 8
MaxSpareServers 16
</IfModule>
<Location /server-status>
SetHandler server-status
</Location>
";

#[test]
fn the_blocks_of_the_reports_serve_under_their_models() {
    for (model, children) in [("worker", Some(1)), ("prefork", Some(64)), ("event", None)] {
        let module =
            format!("LoadModule mpm_{model}_module /usr/lib/apache2/modules/mod_mpm_{model}.so\n");
        let mut house = House::lay_out(&(module + BLOCKS)).unwrap();
        for kind in [Kind::Apache, Kind::Evenkeel] {
            let (out, err, status) = said(kind, &house, &["-t"]);
            assert!(err.ends_with("Syntax OK\n"), "{model}: {err}");
            assert_eq!((out.as_str(), status), ("", Some(0)), "{model}");
        }
        house.start(&[]).unwrap();
        let page = text(house.address, "/server-status?auto").unwrap();
        assert!(page.contains(&format!("\nServerMPM: {model}\n")), "{page}");
        // A request in progress may have caused another child to be started.
        let there = || children.is_none_or(|count| house.children().len() >= count);
        wait_for("as many children as StartServers says", there).unwrap();
        probe(house.address).unwrap();
        house.stop().unwrap();
    }
}

/// Impossible numbers for a pool, by model.
const NONSENSE: [(&str, &[&str]); 3] = [
    (
        "prefork",
        &[
            "ServerLimit 300000",
            "ServerLimit 0",
            "MaxRequestWorkers 500",
            "MaxRequestWorkers -5",
            "StartServers 0",
            "MinSpareServers -2",
            "ServerLimit 0\nMaxRequestWorkers 0\nStartServers 0\nMinSpareServers 0",
            "ThreadsPerChild 5",
        ],
    ),
    ("worker", &["ThreadLimit 30000", "AsyncRequestWorkerFactor 2"]),
    ("event", &["ThreadLimit 200000", "ListenCoresBucketsRatio 0", "AsyncRequestWorkerFactor -1"]),
];

/// The same for both models with threads.
const NONSENSE_OF_THREADS: [&str; 12] = [
    "ServerLimit 30000",
    "ServerLimit -3",
    "ThreadLimit 0",
    "ThreadsPerChild 100",
    "ThreadsPerChild -1",
    "MaxRequestWorkers 10",
    "MaxRequestWorkers 0",
    "MaxRequestWorkers 401",
    "MaxRequestWorkers 1000",
    "StartServers -1",
    "ThreadsPerChild 64\nMaxRequestWorkers 63\nServerLimit 1",
    "ServerLimit 1\nThreadLimit 1\nThreadsPerChild 50\nMaxRequestWorkers 500\nMinSpareThreads 0",
];

#[test]
fn numbers_of_a_pool_that_cannot_be_are_told_as_apache_tells_them() {
    for (model, own) in NONSENSE {
        let module =
            format!("LoadModule mpm_{model}_module /usr/lib/apache2/modules/mod_mpm_{model}.so\n");
        let house = House::lay_out(&module).unwrap();
        let threaded = if model == "prefork" { &[][..] } else { &NONSENSE_OF_THREADS };
        for lines in own.iter().chain(threaded) {
            house.configure(&format!("{lines}\n")).unwrap();
            let [theirs, ours] =
                [Kind::Apache, Kind::Evenkeel].map(|kind| said(kind, &house, &["-t"]));
            assert_eq!(ours, theirs, "{model}: {lines}");
            assert_ne!(theirs.1, "Syntax OK\n", "{model}: nothing is said of {lines}");
        }
    }
}

#[test]
fn notices_of_the_start_are_in_the_error_log_once() {
    let lua = "LoadModule lua_module /usr/lib/apache2/modules/mod_lua.so\n";
    let more = format!("{lua}ServerAdmin ${{NOBODY_HERE}}@example.org\n");
    let mut house = House::open(&more, &[]).unwrap();
    house.stop().unwrap();
    let terminal = fs::read_to_string(house.path("logs/said.txt")).unwrap();
    let log = house.error_log();
    for text in ["AH00111: Config variable ${NOBODY_HERE} is not defined", "needs them: mod_lua.c"]
    {
        assert_eq!(terminal.matches(text).count(), 1, "{text}: {terminal}");
        assert_eq!(log.matches(text).count(), 1, "{text}: {log}");
    }
    house.start(&[]).unwrap();
    let resumes = || house.error_log().ends_with("FOREGROUND'\n");
    wait_for("the second start", resumes).unwrap();
    house.reload().unwrap();
    house.stop().unwrap();
    let log = house.error_log();
    assert_eq!(log.matches("AH00111: ").count(), 3, "{log}");
}

/// The words of a shell that starts the server of a configuration in the background and prints what
/// `$(...)` takes of it.
fn captured(house: &House) -> (String, Option<i32>) {
    let program = program(Kind::Evenkeel, &house.path("")).unwrap();
    let (program, file) = (program.display(), house.path("httpd.conf"));
    let script = format!(
        "said=$('{program}' -f '{}' -k start 2>&1); status=$?; echo \"$said\"; exit $status",
        file.display()
    );
    let output = command(Path::new("/bin/sh"), &["-c", &script]).output().unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn a_start_with_a_piped_log_leaves_the_output_of_its_caller() {
    let house = House::lay_out("CustomLog \"|/bin/cat\" %r\n").unwrap();
    // The programs would hold the pipe of the shell for as long as the server runs.
    assert_eq!(captured(&house), ("\n".to_owned(), Some(0)));
    probe(house.address).unwrap();
    send(house.named_parent(), Signal::TERM);
    wait_for("the end", || !house.path("logs/httpd.pid").exists()).unwrap();
}

#[test]
fn a_start_that_fails_says_so_before_the_command_returns() {
    let house = House::lay_out("").unwrap();
    let _taken = std::net::TcpListener::bind(house.address).unwrap();
    for _ in 0..20 {
        let (said, status) = captured(&house);
        assert!(said.contains("could not bind to address") && status == Some(1), "{said}");
    }
}
