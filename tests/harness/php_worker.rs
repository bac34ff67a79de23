//! Checks the program in which PHP runs, without the server: the test starts a zygote as the server
//! does, has workers forked, and speaks FastCGI to them.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::wait_for;
use evenkeel_tests::php::{Ask, Claims, FREE, Reply, Worker, Zygote, build, record};
use rustix::process::{Pid, getpriority_process};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// A pool with one worker, and a folder for its scripts.
struct Pool {
    folder: tempfile::TempDir,
    zygote: Zygote,
    worker: Worker,
}

impl Pool {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let zygote = Zygote::start(&build().unwrap(), folder.path(), arguments).unwrap();
        assert_eq!(zygote.hear(), Some(('R', 0, vec![])), "{}", log(folder.path()));
        let worker = zygote.fork(0).unwrap();
        Self { folder, zygote, worker }
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        // opcache caches no file that is younger than two seconds.
        let hour = Duration::from_secs(3600);
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - hour).unwrap();
        path
    }

    fn run(&self, text: &str) -> Reply {
        self.ask(text).exchange(&self.zygote.socket).unwrap()
    }

    /// Asks for a script in a file of its own.
    fn ask(&self, text: &str) -> Ask {
        let count = fs::read_dir(self.folder.path()).unwrap().count();
        Ask::of(&self.script(&format!("{count}.php"), text))
    }

    /// The worker's death: its status as of wait(2). Another worker takes the seat.
    fn bury(&mut self) -> u64 {
        let (kind, seat, numbers) = self.zygote.hear().unwrap();
        assert_eq!((kind, seat), ('X', 0));
        self.worker = self.zygote.fork(0).unwrap();
        *numbers.get(1).unwrap()
    }
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// Reads the records of a response until the output contains `text`.
fn read_until(stream: &mut UnixStream, text: &str) -> String {
    let (mut output, mut header) = (Vec::new(), [0; 8]);
    while !String::from_utf8_lossy(&output).contains(text) {
        stream.read_exact(&mut header).unwrap();
        let mut content = vec![0; usize::from(u16::from_be_bytes([header[4], header[5]]))];
        stream.read_exact(&mut content).unwrap();
        output.extend(content);
    }
    String::from_utf8_lossy(&output).into_owned()
}

#[test]
fn scripts_see_the_interface_of_mod_php_and_their_request() {
    let pool = Pool::start(&["--name", "site", "--modules", "core mod_so"]);
    let ask = pool
        .ask(
            "<?php header('X-One: 1'); header('X-Two: 2'); setcookie('c', 'd');
            echo php_sapi_name(), '|', $_SERVER['PHP_SELF'], '|', $_SERVER['QUERY_STRING'], '|',
                $_GET['q'], '|', $_COOKIE['k'], '|', $_SERVER['PHP_AUTH_USER'], '|',
                getallheaders()['x-Odd'], '|', apache_getenv('PLAIN'), '|',
                json_encode(preg_grep('/^EVEN/', array_keys($_SERVER))),
                '|', json_encode(getenv('EVENKEEL_SECRET')),
                '|', extension_loaded('apache2handler'),
                '|', json_encode(apache_get_modules()), '|', basename(getcwd());
            apache_setenv('TOLD', 'server'); apache_note('note', 'text');",
        )
        .with("QUERY_STRING", b"q=r%20s")
        .with("PLAIN", b"value")
        .with("EVENKEEL_REPORT", b"1")
        .with("EVENKEEL_HEADERS", b"Cookie:k=v\nx-Odd:case\nAuthorization:Basic dTpw\n");
    let reply = ask.exchange(&pool.zygote.socket).unwrap();
    assert!(reply.ended && reply.messages.is_empty(), "{reply:?}");
    let folder = pool.folder.path().file_name().unwrap().to_str().unwrap();
    let want = format!(
        "Status: 200\r\nX-One: 1\r\nX-Two: 2\r\nSet-Cookie: c=d\r\n\
         Content-type: text/html; charset=UTF-8\r\n\r\n\
         apache2handler|/script.php|q=r%20s|r s|v|u|case|value|[]|false|1|\
         [\"core\",\"mod_so\"]|{folder}"
    );
    assert_eq!(reply.text(), want);
    let report = String::from_utf8_lossy(&reply.report).into_owned();
    assert!(report.contains("n\0\u{4}\0\u{4}notetext") && report.contains("TOLDserver"));
    let cpu_us = u64::from_le_bytes(reply.report[..8].try_into().unwrap());
    assert!((1..10_000_000).contains(&cpu_us), "{cpu_us}");
    // The page: requests at 16, CPU time at 24.
    wait_for("the page to count the request", || pool.worker.number(16) == 1).unwrap();
    assert!(pool.worker.number(24) >= cpu_us && pool.worker.script().ends_with(".php"));
}

#[test]
fn settings_hold_for_one_request_and_admin_settings_cannot_be_changed() {
    let pool = Pool::start(&[]);
    let script = "<?php echo ini_get('memory_limit'), ' ', ini_get('open_basedir'), ' ',
        var_export(ini_set('memory_limit', '99M'), true);";
    let ask = pool.ask(script);
    let plain = ask.exchange(&pool.zygote.socket).unwrap().body();
    assert!(plain.ends_with("  '128M'"), "{plain}");
    let root = pool.folder.path().to_str().unwrap();
    let ini = format!("a\0memory_limit\x0077M\0a\0open_basedir\0{root}\0h\0precision\x005\0");
    let set = ask.clone().with("EVENKEEL_INI", ini.as_bytes());
    assert_eq!(set.exchange(&pool.zygote.socket).unwrap().body(), format!("77M {root} false"));
    assert_eq!(ask.exchange(&pool.zygote.socket).unwrap().body(), plain);
    // php_value cannot change what only php.ini and php_admin_value may.
    let ini = format!("\0open_basedir\0{root}\0\0extension_dir\0/tmp\0");
    let set = ask.clone().with("EVENKEEL_INI", ini.as_bytes());
    let body = set.exchange(&pool.zygote.socket).unwrap().body();
    assert!(body.starts_with("128M "), "{body}");
    let off = ask.with("EVENKEEL_INI", b"\0engine\x000\0");
    assert_eq!(off.exchange(&pool.zygote.socket).unwrap().text(), "Status: 403\r\n\r\n");
}

#[test]
fn only_those_who_know_the_secret_run_scripts() {
    let pool = Pool::start(&[]);
    let ask = pool.ask("<?php touch(__DIR__ . '/ran'); echo 'ran';");
    for secret in [b"".as_slice(), b"0123456789abcdeF", b"0123456789abcdef0"] {
        let reply = ask.clone().with("EVENKEEL_SECRET", secret).exchange(&pool.zygote.socket);
        assert!(reply.unwrap().output.is_empty());
    }
    assert!(!pool.folder.path().join("ran").exists());
    assert!(log(pool.folder.path()).contains("without this pool's secret"));
    assert_eq!(ask.exchange(&pool.zygote.socket).unwrap().body(), "ran");
}

#[test]
fn bodies_and_uploads_arrive_whole() {
    let pool = Pool::start(&[]);
    let size = 3_000_000;
    let input = pool.ask(
        "<?php echo strlen(file_get_contents('php://input')), ' ',
        md5(file_get_contents('php://input'));",
    );
    let body: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
    let reply = input.post("application/octet-stream", &body).exchange(&pool.zygote.socket);
    let reply = reply.unwrap();
    assert!(reply.body().starts_with(&format!("{size} ")), "{reply:?}");
    let upload = pool.ask(
        "<?php $f = $_FILES['file']; move_uploaded_file($f['tmp_name'],
        __DIR__ . '/up'); echo $_POST['field'], ' ', $f['name'], ' ', $f['size'];",
    );
    let file = vec![b'x'; 500_000];
    let form = [
        b"--b\r\nContent-Disposition: form-data; name=field\r\n\r\nvalue\r\n--b\r\n\
          Content-Disposition: form-data; name=file; filename=a.txt\r\n\r\n"
            .as_slice(),
        &file,
        b"\r\n--b--\r\n",
    ]
    .concat();
    let reply = upload.post("multipart/form-data; boundary=b", &form);
    assert_eq!(reply.exchange(&pool.zygote.socket).unwrap().body(), "value a.txt 500000");
    assert_eq!(fs::read(pool.folder.path().join("up")).unwrap(), file);
}

#[test]
fn output_is_streamed_when_the_script_flushes_it() {
    let pool = Pool::start(&[]);
    let ask = pool.ask(
        "<?php echo 'first'; ob_flush(); flush();
        while (!file_exists(__DIR__ . '/go')) { usleep(1000); clearstatcache(); } echo 'last';",
    );
    let mut stream = ask.send(&pool.zygote.socket).unwrap();
    read_until(&mut stream, "first");
    assert_eq!(pool.worker.number(0) & 0xffff_ffff, 2, "the worker is busy");
    pool.script("go", "");
    assert_eq!(Reply::read(&mut stream).unwrap().text(), "last");
    let finish = pool.ask(
        "<?php echo 'sent'; fastcgi_finish_request(); echo 'unsent';
        while (!file_exists(__DIR__ . '/on')) { usleep(1000); clearstatcache(); }
        touch(__DIR__ . '/done');",
    );
    let reply = finish.exchange(&pool.zygote.socket).unwrap();
    assert!(reply.ended && reply.body() == "sent", "{reply:?}");
    pool.script("on", "");
    wait_for("the script to go on", || pool.folder.path().join("done").exists()).unwrap();
    let large = pool.run("<?php for ($i = 0; $i < 300; $i++) echo str_repeat('x', 10007);");
    assert_eq!(large.body().len(), 300 * 10007);
}

#[test]
fn a_script_that_dies_costs_its_own_request_only() {
    let mut pool = Pool::start(&[]);
    let reply = pool.run("<?php echo 'x'; exit(3);");
    assert!(reply.ended && reply.body() == "x");
    let reply = pool.run("<?php throw new Exception('reason');");
    assert!(reply.text().starts_with("Status: 500 Internal Server Error\r\n"), "{reply:?}");
    assert!(reply.messages[0].starts_with("<3>PHP Fatal error:  Uncaught Exception: reason"));
    let reply = pool.run("<?php $a = ''; while (true) $a .= str_repeat('y', 1 << 20);");
    assert!(reply.messages[0].contains("Allowed memory size"), "{reply:?}");
    // Until here, the worker is the same.
    assert_eq!(pool.run("<?php echo getmypid();").body(), pool.worker.pid.to_string());
    let reply = pool.run("<?php posix_kill(getmypid(), 11); sleep(9);");
    assert!(!reply.ended && reply.output.is_empty());
    assert_eq!(pool.bury() & 0x7f, 11);
    let recursion = pool.run("<?php function f($x) { return array_map('f', [$x]); } f(1);");
    if !recursion.ended {
        pool.bury();
    }
    assert_eq!(pool.run("<?php echo getmypid();").body(), pool.worker.pid.to_string());
}

#[test]
fn a_script_that_hangs_is_ended_with_504_and_with_what_it_has_started() {
    let mut pool = Pool::start(&[]);
    let ask = pool.ask("<?php touch(__DIR__ . '/runs'); shell_exec('sleep 1000');");
    let mut stream = ask.send(&pool.zygote.socket).unwrap();
    wait_for("the script to run", || pool.folder.path().join("runs").exists()).unwrap();
    pool.zygote.kill(0, 15);
    let reply = Reply::read(&mut stream).unwrap();
    assert!(reply.ended && reply.text() == "Status: 504\r\n\r\n", "{reply:?}");
    assert_eq!(pool.bury(), 124 << 8);
    let ask = pool.ask("<?php echo 'begun'; ob_flush(); flush(); while (true);");
    let mut stream = ask.send(&pool.zygote.socket).unwrap();
    read_until(&mut stream, "begun");
    pool.zygote.kill(0, 15);
    assert!(!Reply::read(&mut stream).unwrap().ended);
    pool.bury();
}

#[test]
fn garbage_ends_its_connection_only() {
    let pool = Pool::start(&[]);
    let params = |content: &[u8]| {
        [record(1, &[0, 1, 0, 0, 0, 0, 0, 0]), record(4, content), record(4, b"")].concat()
    };
    let mut all = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 100_000],
        record(1, b"short"),
        record(9, b""),
        params(b"\x05\x05ab"),
        params(&[0xff; 60_000]),
        params(&[0; 20_000]),
        [record(1, &[0, 2, 0, 0, 0, 0, 0, 0]), record(4, b"")].concat(),
    ];
    // More parameters than are allowed.
    all.push(
        [record(1, &[0, 1, 0, 0, 0, 0, 0, 0]), record(4, &[b'x'; 65_000]).repeat(20)].concat(),
    );
    for bytes in all {
        let mut stream = UnixStream::connect(&pool.zygote.socket).unwrap();
        let _closed = stream.write_all(&bytes);
        let _closed = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer);
        assert!(answer.is_empty());
    }
    assert_eq!(pool.run("<?php echo getmypid();").body(), pool.worker.pid.to_string());
}

#[test]
fn workers_end_after_their_number_of_requests_and_when_they_are_told() {
    let mut pool = Pool::start(&["--requests", "3"]);
    let ask = pool.ask("<?php echo getmypid();");
    let answers = |pool: &Pool| ask.exchange(&pool.zygote.socket).unwrap().body();
    let first = pool.worker.pid.to_string();
    assert!((0..3).all(|_| answers(&pool) == first));
    assert_eq!(pool.bury(), 0);
    // A worker that drains answers the request in progress, and takes no other.
    let slow = pool.ask(
        "<?php while (!file_exists(__DIR__ . '/go')) { usleep(1000);
        clearstatcache(); } echo 'slow';",
    );
    let mut stream = slow.send(&pool.zygote.socket).unwrap();
    wait_for("the worker to be busy", || pool.worker.number(0) & 0xffff_ffff == 2).unwrap();
    pool.zygote.drain(0);
    let second = pool.zygote.fork(1).unwrap();
    assert_eq!(answers(&pool), second.pid.to_string());
    pool.script("go", "");
    assert_eq!(Reply::read(&mut stream).unwrap().body(), "slow");
    assert!(matches!(pool.zygote.hear(), Some(('X', 0, _))));
    // The end of the server ends the pool, after the requests in progress.
    fs::remove_file(pool.folder.path().join("go")).unwrap();
    // The state is that of the request before until the worker waits again.
    wait_for("the worker to be idle", || second.number(0) & 0xffff_ffff == 1).unwrap();
    let mut stream = slow.send(&pool.zygote.socket).unwrap();
    wait_for("the worker to be busy", || second.number(0) & 0xffff_ffff == 2).unwrap();
    let Pool { folder, zygote, .. } = pool;
    let ended = std::thread::spawn(move || zygote.end());
    fs::write(folder.path().join("go"), "").unwrap();
    assert_eq!(Reply::read(&mut stream).unwrap().body(), "slow");
    ended.join().unwrap().unwrap();
}

#[test]
fn workers_share_opcache_and_have_no_descriptor_of_the_pool_to_pass_on() {
    let pool = Pool::start(&[]);
    let second = pool.zygote.fork(1).unwrap();
    let ask = pool.ask(
        "<?php $s = opcache_get_status(); usleep(20000);
        echo getmypid(), ' ', $s['opcache_statistics']['num_cached_scripts'];",
    );
    // Requests of which several are in progress reach both workers.
    let mut seen = std::collections::BTreeMap::new();
    while seen.len() < 2 {
        let mut streams: Vec<_> = (0..4).map(|_| ask.send(&pool.zygote.socket).unwrap()).collect();
        for stream in &mut streams {
            let body = Reply::read(stream).unwrap().body();
            let (pid, scripts) = body.split_once(' ').unwrap();
            seen.insert(pid.to_owned(), scripts.to_owned());
        }
    }
    assert!(seen.contains_key(&second.pid.to_string()));
    assert!(seen.values().all(|scripts| scripts == "1"), "{seen:?}");
    let open = pool.run("<?php echo shell_exec('ls -l /proc/self/fd');").body();
    assert!(!open.contains("socket:"), "{open}");
}

#[test]
fn parameters_of_any_length_and_number_arrive() {
    let pool = Pool::start(&[]);
    let mut ask = pool
        .ask(
            "<?php echo strlen($_SERVER['LONG']), ' ', count(preg_grep('/^N\\d+$/',
            array_keys($_SERVER))), ' ', ini_get('open_basedir'), ' ', ini_get('precision');",
        )
        .with("LONG", &vec![b'x'; 200_000]);
    let settings = format!("h\0html_errors\0{}\0a\0precision\x009\0", " ".repeat(40_000));
    ask = ask.with("EVENKEEL_INI", settings.as_bytes());
    for number in 0..5000 {
        ask = ask.with(&format!("N{number}"), b"");
    }
    let reply = ask.exchange(&pool.zygote.socket).unwrap();
    assert_eq!(reply.body(), "200000 5000  9");
    // The memory that it took is free for the next request.
    assert_eq!(pool.run("<?php echo count(preg_grep('/^N/', array_keys($_SERVER)));").body(), "0");
}

#[test]
fn what_a_script_does_to_its_worker_ends_with_the_worker() {
    let mut pool = Pool::start(&[]);
    // Scripts have no functions of pcntl, as under mod_php, though the library has them.
    let forks =
        "<?php echo json_encode([extension_loaded('pcntl'), function_exists('pcntl_fork')]);";
    assert_eq!(pool.run(forks).body(), "[false,false]");
    let limit = "<?php echo json_encode(posix_setrlimit(POSIX_RLIMIT_NOFILE, 3, 3));";
    assert_eq!(pool.run(limit).body(), "true");
    assert_eq!(pool.bury(), 0);
    assert_eq!(pool.run("<?php echo fopen(__FILE__, 'r') ? 'opens' : 'fails';").body(), "opens");
}

#[test]
fn a_message_after_the_response_is_one_line_of_the_log() {
    let pool = Pool::start(&[]);
    let script =
        "<?php echo 'sent'; fastcgi_finish_request(); error_log(\"one\\ntwo \\x1b[31m\\\\\");
        touch(__DIR__ . '/done');";
    assert_eq!(pool.run(script).body(), "sent");
    let done = pool.folder.path().join("done");
    wait_for("the script to end", || done.exists()).unwrap();
    let log = log(pool.folder.path());
    assert!(log.contains("one\\ntwo \\x1b[31m\\\\\n") && !log.contains('\x1b'), "{log}");
}

#[test]
fn it_says_who_starts_it_and_what_it_is() {
    let program = build().unwrap();
    let run = Command::new(&program).arg("--version").output().unwrap();
    assert!(String::from_utf8_lossy(&run.stdout).starts_with("evenkeel-php 8.2."));
    let run = Command::new(&program).stdin(Stdio::null()).output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&run.stderr).contains("is started by evenkeel"));
}

/// Two workers that can be claimed, and a connection that each of them has kept.
fn claimable() -> (Pool, Claims, [(UnixStream, [u32; 3]); 2]) {
    let mut pool = Pool::start(&[]);
    pool.zygote.drain(0);
    assert_eq!(pool.zygote.hear().unwrap().0, 'X');
    let claims = pool.zygote.share_claims().unwrap();
    pool.worker = pool.zygote.fork(0).unwrap();
    pool.zygote.fork(1).unwrap();
    let ask = pool.ask("<?php echo getmypid();").kept();
    let begin = || {
        let mut stream = ask.send(&pool.zygote.socket).unwrap();
        let reply = Reply::read_kept(&mut stream).unwrap();
        let link = reply.link().unwrap();
        assert_eq!(link[1].to_string(), reply.body());
        (stream, link)
    };
    let (mut first, link) = begin();
    wait_until_free(&claims, link);
    claims.claim(link).unwrap();
    // One that is claimed is not asked, so that this is the other.
    let second = begin();
    first.write_all(&ask.encode()).unwrap();
    assert_eq!(Reply::read_kept(&mut first).unwrap().link(), Some(link));
    (pool, claims, [(first, link), second])
}

fn wait_until_free(claims: &Claims, [place, process, _]: [u32; 3]) {
    let is_free = || claims.word(place) == [u64::from(process), 0, FREE];
    wait_for("the worker to be free", is_free).unwrap();
}

#[test]
fn a_worker_that_is_claimed_serves_that_connection_and_leaves_those_that_wait_to_others() {
    let (pool, claims, mut kept) = claimable();
    let ask = pool.ask("<?php echo getmypid();");
    for at in [0, 1, 0, 1] {
        let others = kept[1 - at].1;
        let (stream, link) = &mut kept[at];
        wait_until_free(&claims, others);
        wait_until_free(&claims, *link);
        claims.claim(*link).unwrap();
        // The listening socket may wake the one that is claimed. It would wait for ten seconds.
        let asked = Instant::now();
        assert_eq!(ask.exchange(&pool.zygote.socket).unwrap().body(), others[1].to_string());
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        stream.write_all(&ask.clone().kept().encode()).unwrap();
        let reply = Reply::read_kept(stream).unwrap();
        assert_eq!((reply.body(), reply.link()), (link[1].to_string(), Some(*link)));
    }
}

#[test]
fn a_claim_without_a_request_ends_soon_where_others_wait() {
    let (pool, claims, mut kept) = claimable();
    let ask = pool.ask("<?php echo getmypid();");
    // Whoever has claimed both workers is stopped.
    for (_, link) in &kept {
        wait_until_free(&claims, *link);
        claims.claim(*link).unwrap();
    }
    let asked = Instant::now();
    let body = ask.exchange(&pool.zygote.socket).unwrap().body();
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
    let at = usize::from(kept[1].1[1].to_string() == body);
    // The worker has shut the connection for reading: a later send fails, and the server sends the
    // request by another connection.
    let (stream, link) = &mut kept[at];
    assert_eq!(body, link[1].to_string());
    let sent = stream.write_all(&ask.clone().kept().encode());
    assert_eq!(sent.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    wait_until_free(&claims, *link);
}

#[test]
fn a_claim_ends_with_its_connection_and_one_that_nobody_sees_is_void() {
    let (pool, claims, [first, second]) = claimable();
    let link = first.1;
    wait_until_free(&claims, link);
    // Whoever has claimed the worker dies before it sends the request.
    claims.claim(link).unwrap();
    drop(first);
    wait_until_free(&claims, link);
    // A claim by a connection that the worker does not have: it accepts as if there were none.
    wait_until_free(&claims, second.1);
    claims.claim(link).unwrap();
    pool.zygote.drain(second.1[0]);
    assert_eq!(pool.zygote.hear().unwrap().0, 'X');
    assert_eq!(pool.run("<?php echo getmypid();").body(), link[1].to_string());
    wait_until_free(&claims, link);
    // Bytes without a claim end their connection, and nothing is run.
    let ask = pool.ask("<?php touch(__DIR__ . '/ran');").kept();
    let mut stream = pool.ask("<?php").kept().send(&pool.zygote.socket).unwrap();
    assert!(Reply::read_kept(&mut stream).unwrap().link().is_some());
    wait_until_free(&claims, link);
    stream.write_all(&ask.encode()).unwrap();
    assert!(!Reply::read(&mut stream).map(|reply| reply.ended).unwrap_or_default());
    assert!(!pool.folder.path().join("ran").exists());
    wait_until_free(&claims, link);
}

/// The nice value of a process.
fn nice_of(pid: u32) -> i32 {
    let pid = Pid::from_raw(pid.try_into().unwrap());
    getpriority_process(pid).unwrap()
}

#[test]
fn app_nice_is_the_nice_value_of_the_workers_alone() {
    let pool = Pool::start(&["--nice", "19"]);
    assert_eq!(pool.run("<?php echo 'runs';").body(), "runs");
    assert_eq!(nice_of(pool.worker.pid), 19);
    let usual = nice_of(std::process::id());
    assert_eq!(nice_of(pool.zygote.pid()), usual);
    let pool = Pool::start(&[]);
    assert_eq!(pool.run("<?php echo 'runs';").body(), "runs");
    assert_eq!(nice_of(pool.worker.pid), usual);
}
