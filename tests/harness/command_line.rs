//! Tests what the person at the terminal sees: the output and the exit status of command lines.
//! Where apache2 has the same command, the texts are compared with its own.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::broken::without_moment;
use evenkeel_tests::house::{House, PATIENCE, send, wait_for};
use evenkeel_tests::load::text;
use evenkeel_tests::php;
use evenkeel_tests::server::{Kind, Server, command, evenkeel, free_port, program};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// `evenkeel serve` for a folder, on a port of the loopback address.
fn serve(folder: &Path, port: u16) -> Command {
    let binary = program(Kind::Evenkeel, folder).unwrap().canonicalize().unwrap();
    let listen = format!("127.0.0.1:{port}");
    command(&binary, &["serve", &folder.to_string_lossy(), "--listen", &listen])
}

fn said(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn serve_says_where_once_it_listens() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port().unwrap();
    // A socket, which a service manager may pass, cannot be opened by the name /dev/stderr.
    let (log, stderr) = UnixStream::pair().unwrap();
    log.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut serve = serve(folder.path(), port);
    let serve = serve.stdout(Stdio::piped()).stderr(OwnedFd::from(stderr));
    let mut server = serve.spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    assert_eq!(line(), format!("Serving  {}", folder.path().canonicalize().unwrap().display()));
    assert_eq!(line(), format!("At       http://127.0.0.1:{port}/"));
    assert_eq!(line(), format!("Status   http://127.0.0.1:{port}/server-status"));
    assert_eq!(line(), format!("Stop     Ctrl-C, or kill {}", server.id()));
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    client.write_all(b"GET /server-status?auto HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    // The parent may report that it is ready after the first response.
    let mut log = BufReader::new(log).lines().map(Result::unwrap);
    assert!(log.next().unwrap().contains("AH00489: "));
    let command_line = format!(" serve {} --listen 127.0.0.1:{port}'", folder.path().display());
    assert!(log.next().unwrap().ends_with(&command_line));
    send(server.id(), Signal::INT);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(log.next().unwrap().ends_with("AH00491: caught SIGTERM, shutting down"));
}

/// curl trusts the certificate by the file that the server names, under every name of this machine.
#[test]
fn serve_over_tls_is_trusted_by_the_file_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("page"), "over TLS").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (state, port) = (folder.path().join("state"), free_port().unwrap());
    let mut first = None;
    // The second run keeps the certificate that is trusted already.
    for _ in 0..2 {
        let mut serve = serve(&site, port);
        serve.arg("--tls").env("XDG_STATE_HOME", &state);
        let mut server = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(server.stdout.as_mut().unwrap()).lines();
        let said: Vec<String> = lines.map(Result::unwrap).take(5).collect();
        assert_eq!(said[1], format!("At       https://127.0.0.1:{port}/"));
        let words: Vec<&str> = said[4].split_whitespace().collect();
        assert_eq!(&words[..3], ["Trust", "curl", "--cacert"], "{said:?}");
        let certificate = words[3];
        for host in ["127.0.0.1", "localhost"] {
            let url = format!("https://{host}:{port}/page");
            let arguments = ["-4", "-sS", "--cacert", certificate, &url];
            let (body, fault, _) =
                self::said(&command(Path::new("curl"), &arguments).output().unwrap());
            assert_eq!((&*body, &*fault), ("over TLS", ""), "{url}");
        }
        let key = fs::metadata(Path::new(certificate).with_extension("key")).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(certificate).unwrap();
        assert_eq!(first.get_or_insert_with(|| text.clone()), &text);
        send(server.id(), Signal::INT);
        assert_eq!(server.wait().unwrap().code(), Some(0));
    }
}

/// `evenkeel serve` needs no configuration for PHP.
#[test]
fn serve_runs_php_where_its_program_is_beside_the_server() {
    php::build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("index.php"), "<?php echo PHP_SAPI, ' ', 6 * 7;").unwrap();
    fs::write(folder.path().join("source.phps"), "<?php echo 1;").unwrap();
    let port = free_port().unwrap();
    let mut serve = serve(folder.path(), port);
    let mut server = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.as_mut().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().ends_with(&*folder.path().to_string_lossy()));
    let get = |path: &str| {
        let url = format!("http://127.0.0.1:{port}{path}");
        let arguments = ["-sS", "-w", " %{http_code}", &url];
        said(&command(Path::new("curl"), &arguments).output().unwrap()).0
    };
    assert_eq!(get("/"), "apache2handler 42 200");
    assert_eq!(get("/index.php/more?a=b"), "apache2handler 42 200");
    let source = get("/source.phps");
    assert!(source.ends_with(" 403") && !source.contains("echo"), "{source}");
    send(server.id(), Signal::INT);
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

/// What a stranger's page, or a curious client, must not get from a folder that is served.
#[test]
fn serve_keeps_to_what_is_meant_to_be_served() {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    for name in [".git", ".well-known", "a", "far"] {
        fs::create_dir_all(site.join(name)).unwrap();
        fs::write(site.join(name).join("page"), name).unwrap();
    }
    fs::write(site.join(".env"), "secret").unwrap();
    fs::create_dir(site.join("pipes")).unwrap();
    for name in ["pipe", "pipes/index.html", "pipes/pipe.txt"] {
        assert!(Command::new("mkfifo").arg(site.join(name)).status().unwrap().success());
    }
    fs::write(folder.path().join("outside"), "secret").unwrap();
    for (link, target) in
        [("out", "../outside"), ("in", "a/page"), ("up", ".."), ("a/far", "../far")]
    {
        std::os::unix::fs::symlink(target, site.join(link)).unwrap();
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let cases = [
        ("/a/page", "localhost", 200, 200),
        ("/.well-known/page", "localhost", 200, 200),
        ("/in", "localhost", 200, 200),
        ("/a/far/page", "localhost", 200, 200),
        // A pipe is not a file, and no request for one waits for its writer.
        ("/pipe", "localhost", 403, 403),
        ("/pipes/pipe.txt", "localhost", 403, 403),
        ("/pipes/", "localhost", 403, 403),
        ("/.git/page", "localhost", 404, 200),
        ("/a/../.env", "localhost", 404, 200),
        ("/%2eenv", "localhost", 404, 200),
        ("/.well-known2/page", "localhost", 404, 404),
        ("/out", "localhost", 403, 200),
        ("/up/outside", "localhost", 403, 200),
        ("/up/site/a/page", "localhost", 200, 200),
        ("/server-status?auto", "localhost:1", 200, 200),
        ("/server-status?auto", "127.0.0.1", 200, 200),
        ("/server-status?auto", "[::1]:80", 200, 200),
        ("/server-status?auto", "stranger.example", 403, 200),
        ("/server-status?auto", "localhost.stranger.example", 403, 200),
        ("/server-status?auto", "127.0.0.1.stranger.example", 403, 200),
    ];
    let lenient = ["--dot-files", "--links-out", "--status-any-host"];
    for words in [&[][..], &lenient[..]] {
        let port = free_port().unwrap();
        let mut server = serve(&site, port)
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        for (path, host, strict, lenient) in cases {
            let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            let expected = if words.is_empty() { strict } else { lenient };
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {expected} ")),
                "{path} {host}: {answer}"
            );
        }
        // No file is left where everybody may write.
        assert!(!Path::new(&format!("/tmp/evenkeel-{}.pid", server.id())).exists());
        send(server.id(), Signal::INT);
        assert_eq!(server.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn serve_on_an_address_that_is_taken_says_only_that() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let (out, err, status) = said(&serve(folder.path(), port).output().unwrap());
    assert_eq!((&*out, status), ("", Some(1)));
    assert!(err.contains(&format!("could not bind to address 127.0.0.1:{port}\n")), "{err}");
    let hint = "evenkeel serve: nothing is served; --listen ADDRESS:PORT names another address\n";
    assert!(err.ends_with(hint), "{err}");
}

#[test]
fn a_second_start_is_told_of_the_first() {
    let house = House::open("", &[]).unwrap();
    // As with apache2, the port accepts connections before the pid file exists.
    wait_for("the pid file", || house.path("logs/httpd.pid").exists()).unwrap();
    let program = program(Kind::Evenkeel, &house.path("")).unwrap();
    let file = house.path("httpd.conf");
    let words = ["-f", &file.to_string_lossy(), "-k", "start"];
    let output = command(&program, &words).output().unwrap();
    let expected = format!("httpd (pid {}) already running\n", house.parent());
    assert_eq!(said(&output), (expected, String::new(), Some(0)));
}

/// Runs the command of `make run` with the existing binary, because building it in release mode
/// would take minutes.
#[test]
fn make_run_serves_the_bundled_site() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let port = free_port().unwrap();
    let listen = format!("LISTEN=127.0.0.1:{port}");
    let mut make = Command::new("make");
    make.args(["--dry-run", "--no-print-directory", "run", &listen]).current_dir(top);
    // This test may itself run below a make, whose options must not be inherited.
    let made = make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").output().unwrap();
    let (line, _, _) = said(&made);
    let (cargo, words) = line.trim_end().split_once(" -- ").unwrap();
    assert_eq!(cargo, "cargo run --release --locked --package evenkeel");
    // The server's user need not have access to the folder of the sources.
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(scratch.path().join("site")).unwrap();
    for entry in fs::read_dir(top.join("site")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, scratch.path().join("site").join(path.file_name().unwrap())).unwrap();
    }
    let words: Vec<&str> = words.split(' ').collect();
    let mut run = command(&evenkeel().canonicalize().unwrap(), &words);
    let run = run.current_dir(scratch.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = run.spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().ends_with("/site"));
    assert_eq!(lines.next().unwrap().unwrap(), format!("At       http://127.0.0.1:{port}/"));
    let page = text((Ipv4Addr::LOCALHOST, port).into(), "/");
    send(server.id(), Signal::INT);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert_eq!(page, Ok(fs::read_to_string(top.join("site/index.html")).unwrap()));
}

/// The output of a server for these words and the test server's configuration.
fn ask(kind: Kind, house: &House, words: &[&str]) -> (String, String, Option<i32>) {
    let file = house.path("httpd.conf").to_string_lossy().into_owned();
    let words = [&["-f", file.as_str()][..], words].concat();
    let program = program(kind, &house.path("")).unwrap();
    said(&command(&program, &words).output().unwrap())
}

/// The output of apache2 and of Evenkeel for the same words and configuration.
fn both(house: &House, words: &[&str]) -> [(String, String, Option<i32>); 2] {
    [Kind::Apache, Kind::Evenkeel].map(|kind| ask(kind, house, words))
}

#[test]
fn the_letters_that_show_are_apaches() {
    let house = House::lay_out("").unwrap();
    let [theirs, ours] = both(&house, &["-l"]);
    assert_eq!(ours, theirs);
    let label = |line: &str| line.split([':', '=']).next().unwrap_or_default().to_owned();
    let [theirs, ours] = both(&house, &["-v"]);
    assert_eq!((&ours.1, ours.2), (&theirs.1, theirs.2));
    let labels = |text: &str| text.lines().map(label).collect::<Vec<_>>();
    assert_eq!(labels(&ours.0), labels(&theirs.0));
    let version = |text: &str| text.split([' ', '\n']).nth(2).unwrap().to_owned();
    assert_eq!(version(&ours.0), version(&theirs.0));
    let [theirs, ours] = both(&house, &["-V"]);
    assert_eq!((&ours.1, ours.2), (&theirs.1, theirs.2));
    // Each line of Evenkeel's is one of apache2's, in the same order.
    let same = ["Architecture", "Server MPM", "  threaded", "    forked", " -D HTTPD_ROOT"];
    let mut known = theirs.0.lines();
    for line in ours.0.lines() {
        let found = known.find(|other| label(other) == label(line));
        assert!(found.is_some(), "{line} is none of {}", theirs.0);
        if same.contains(&label(line).as_str()) {
            assert_eq!(found, Some(line));
        }
    }
}

/// Programs use it before there is a configuration, and while it is broken.
#[test]
fn settings_are_shown_as_far_as_the_configuration_can_be_read() {
    let house = House::lay_out("").unwrap();
    fs::create_dir(house.path("empty")).unwrap();
    let prefork = "LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so\n";
    fs::write(house.path("broken.conf"), format!("{prefork}<Files x>\n")).unwrap();
    let (empty, broken) = (house.path("empty"), house.path("broken.conf"));
    for words in [["-d", empty.to_str().unwrap()], ["-f", broken.to_str().unwrap()]] {
        let shown = |kind| {
            let program = program(kind, &house.path("")).unwrap();
            said(&command(&program, &[&words[..], &["-V"]].concat()).output().unwrap())
        };
        let [theirs, ours] = [Kind::Apache, Kind::Evenkeel].map(shown);
        assert_eq!((&ours.1, ours.2), (&theirs.1, Some(1)));
        for (text, _, _) in [&theirs, &ours] {
            assert!(text.contains("\n -D SERVER_CONFIG_FILE=\"apache2.conf\"\n"), "{text}");
            assert_eq!(text.contains("Server MPM:     prefork\n"), words[0] == "-f", "{text}");
        }
        assert_eq!(ours.0.lines().count() > 10, theirs.0.lines().count() > 10);
    }
}

/// What is active because no line loads a module is shown as shared, so that `-l` and `-M` agree
/// about what is static.
#[test]
fn modules_that_no_line_loads_are_shown_as_shared() {
    let house = House::lay_out("").unwrap();
    let file = house.path("bare.conf");
    let text = "ServerName localhost\nListen 127.0.0.1:8099\nUser www-data\nGroup www-data\n";
    let shown = |text: &str, word: &str| {
        fs::write(&file, text).unwrap();
        let program = program(Kind::Evenkeel, &house.path("")).unwrap();
        let output = command(&program, &["-f", file.to_str().unwrap(), word]).output().unwrap();
        said(&output).0
    };
    let listed = |text: &str| shown(text, "-l").lines().skip(1).count();
    let loaded = shown(text, "-M");
    assert!(loaded.contains(" alias_module (shared)\n"), "{loaded}");
    assert_eq!(listed(text), loaded.matches("(static)").count());
    let worker = format!("LoadModule mpm_worker_module modules/mod_mpm_worker.so\n{text}");
    assert!(shown(&worker, "-M").contains(" mpm_worker_module (shared)\n"));
    assert_eq!(listed("<Files x>\n"), 8);
}

#[test]
fn the_end_of_the_pid_file_is_told() {
    for (kind, model) in [
        (Kind::Apache, "mpm_event"),
        (Kind::Evenkeel, "mpm_event"),
        (Kind::Evenkeel, "mpm_worker"),
        (Kind::Evenkeel, "mpm_prefork"),
    ] {
        let module = format!("/usr/lib/apache2/modules/mod_{model}.so");
        let more = format!("LoadModule {model}_module {module}\nLogLevel info\n");
        let house = House::lay_out(&more).unwrap();
        let server = Server::start(kind, &house.path(""), house.address.port()).unwrap();
        let (pid, path) = (server.pid(), house.path("logs/httpd.pid"));
        let resumed = || house.error_log().contains("AH00094: ");
        wait_for("the first lines of the error log", resumed).unwrap();
        server.stop().unwrap();
        let text = format!("removed PID file {} (pid={pid})", path.display());
        let log = house.error_log();
        assert_eq!(log.matches(&format!("] AH00096: {text}\n")).count(), 1, "{log}");
        assert!(log.contains("[core:info] "), "{log}");
    }
}

/// The directives of `-L` by name: their descriptions, and where they may stand. The two servers
/// differ in which source file of the core has a directive.
fn directives(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut name = String::new();
    // Whether an Apache module lacks a function does not concern its directives.
    for line in text.replace(" [no per-dir config]", "").lines() {
        match line.strip_prefix('\t') {
            Some(about) => all.entry(name.clone()).or_default().push(about.to_owned()),
            None => name = line.split(" (").next().unwrap_or_default().to_owned(),
        }
    }
    all
}

#[test]
fn directives_are_listed_as_apache_lists_them() {
    let house = House::lay_out("").unwrap();
    let [theirs, ours] = both(&house, &["-L"]);
    assert_eq!((ours.1, ours.2), (theirs.1, theirs.2));
    let (theirs, ours) = (directives(&theirs.0), directives(&ours.0));
    // Debian's build lacks the first two; the others exist only in Evenkeel.
    let own =
        ["EnableExceptionHook", "GprofDir", "ListenBuckets", "OverloadShedding", "SymLinksWithin"];
    for (name, about) in &ours {
        let known = theirs.get(name).map(|about| &about[1..]);
        let expected = (!own.contains(&name.as_str())).then_some(&about[1..]);
        assert_eq!(known, expected, "{name}");
    }
    let missing: Vec<&String> = theirs.keys().filter(|name| !ours.contains_key(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn start_up_messages_are_chosen_and_kept_as_apaches() {
    let house = House::lay_out("ServerAdmin ${NOBODY_HERE}@example.org\n").unwrap();
    let log = house.path("logs/start.log");
    let log = log.to_str().unwrap();
    let rootless = "DocumentRoot /nonexistent";
    let table: [(&[&str], bool, i32); 8] = [
        (&["-t"], true, 0),
        (&["-t", "-e", "warn"], true, 0),
        (&["-t", "-e", "error"], false, 0),
        (&["-t", "-E", log], true, 0),
        (&["-t", "-E", log, "-e", "error"], false, 0),
        (&["-t", "-E", log, "-c", "NoSuchDirective"], true, 1),
        (&["-t", "-c", rootless], true, 1),
        (&["-t", "-c", rootless, "-T"], true, 0),
    ];
    for (words, warns, status) in table {
        let [theirs, ours] = [Kind::Apache, Kind::Evenkeel].map(|kind| {
            let (out, err, status) = ask(kind, &house, words);
            let kept = fs::read_to_string(log).unwrap_or_default();
            let _ = fs::remove_file(log);
            let lines = |text: &str| text.lines().map(without_moment).collect::<String>();
            (out, lines(&err), lines(&kept), status)
        });
        assert_eq!(ours, theirs, "{words:?}");
        let (told, kept) = (ours.1.clone() + &ours.2, !ours.2.is_empty());
        assert_eq!((kept, ours.3), (words.contains(&"-E"), Some(status)), "{words:?}: {told}");
        assert_eq!(told.contains("AH00111: "), warns, "{words:?}: {told}");
    }
    let [theirs, ours] = both(&house, &["-t", "-e", "loud"]);
    assert_eq!((ours.0, ours.2), (theirs.0, theirs.2));
}
