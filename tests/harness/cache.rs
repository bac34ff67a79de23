//! What the cache never does: send what access rules protect, send what is damaged or half, or let
//! a request fail because it cannot write. The answers of mod_cache are in tests/proxy/cache.wire.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, PATIENCE, children_of, read, send, wait_for};
use evenkeel_tests::origin::Origin;
use evenkeel_tests::server::evenkeel;
use rustix::process::Signal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const MODULES: [&str; 5] = ["authz_host", "cache", "cache_disk", "proxy", "proxy_http"];

/// A server with a cache in `cache` and another server behind `/app/`.
fn house(model: &str, origin: &Origin, more: &str) -> House {
    let modules: String = [&format!("mpm_{model}")[..]]
        .iter()
        .chain(&MODULES)
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    let port = origin.port;
    let lines = format!(
        "{modules}CacheEnable disk /\nCacheHeader on\nCacheRoot @ROOT@/cache\n\
         ProxyPass /app/ http://127.0.0.1:{port}/\nMaxRequestWorkers 40\n{more}\n"
    );
    let mut house = House::lay_out(&lines).unwrap();
    let cache = house.path("cache");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    house.start(&[]).unwrap();
    house
}

fn ask(house: &House, target: &str, fields: &str) -> TcpStream {
    let mut stream = TcpStream::connect(house.address).unwrap();
    let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    stream.write_all(format!("{head}{fields}\r\n").as_bytes()).unwrap();
    stream
}

/// The status, and what the cache has done: the word of X-Cache.
fn get(house: &House, target: &str, fields: &str) -> (u16, String) {
    let mut text = Vec::new();
    ask(house, target, fields).read_to_end(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    let head = text.split("\r\n\r\n").next().unwrap();
    let status = head.get(9..12).unwrap().parse().unwrap();
    let word = head.split_once("X-Cache: ").map_or("", |(_, rest)| rest);
    (status, word.split(' ').next().unwrap().to_owned())
}

/// The stored files.
fn stored(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { stored(&path) } else { vec![path] }).collect()
}

/// The stored files with their inodes: a file that is stored anew has another one.
fn state(house: &House) -> Vec<(PathBuf, u64)> {
    let inode = |path: PathBuf| {
        let inode = fs::metadata(&path).map_or(0, |metadata| metadata.ino());
        (path, inode)
    };
    let mut files: Vec<_> = stored(&house.path("cache")).into_iter().map(inode).collect();
    files.sort();
    files
}

/// Asks until the cache has the response. The next request waits until that of the one before is
/// stored, so that no process stores it any more when this returns.
fn fill(house: &House, target: &str, fields: &str) {
    let end = Instant::now() + PATIENCE;
    loop {
        let before = state(house);
        if get(house, target, fields) == (200, "HIT".into()) {
            return;
        }
        let patience = Instant::now() + Duration::from_secs(1);
        while state(house) == before && Instant::now() < patience {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(Instant::now() < end, "{target} is not stored: {}", house.error_log());
    }
}

const SAID: &str = "X-Say: HTTP/1.1 200 OK~Cache-Control: max-age=600~Content-Length: 5~~hello\r\n";

#[test]
fn files_and_other_servers_are_cached_in_every_model() {
    for model in ["event", "worker", "prefork"] {
        let origin = Origin::start(None).unwrap();
        let house = house(model, &origin, "");
        fill(&house, "/small.txt", "");
        fill(&house, "/app/x", SAID);
        let asked = origin.requests();
        assert_eq!(get(&house, "/app/x", ""), (200, "HIT".into()), "{model}");
        assert_eq!(origin.requests(), asked, "{model}");
        // A change is seen by all processes.
        let mut stream = TcpStream::connect(house.address).unwrap();
        let post = "POST /app/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                    Content-Length: 0\r\n\r\n";
        stream.write_all(post.as_bytes()).unwrap();
        assert_eq!(read(stream).0, 200, "{model}");
        for _ in 0..8 {
            let (status, word) = get(&house, "/app/x", "");
            assert_eq!((status, &*word), (200, "MISS"), "{model}");
        }
    }
}

#[test]
fn what_rules_protect_is_not_sent_without_their_check() {
    let origin = Origin::start(None).unwrap();
    let rules = "\
<Location /app/key/>
Require expr %{HTTP:X-Key} == 'yes'
</Location>
<Location /app/ip/>
Require ip 127
</Location>
<Location /app/open/>
Require all granted
</Location>
<Files small.txt>
Require expr %{HTTP:X-Key} == 'yes'
</Files>
";
    let mut house = house("event", &origin, rules);
    let with_key = format!("X-Key: yes\r\n{SAID}");
    for target in ["/app/key/x", "/small.txt"] {
        for _ in 0..3 {
            assert_eq!(get(&house, target, &with_key), (200, "MISS".into()), "{target}");
        }
        assert_eq!(get(&house, target, SAID).0, 403, "{target}");
    }
    for _ in 0..3 {
        assert_eq!(get(&house, "/app/ip/x", SAID), (200, "MISS".into()));
    }
    fill(&house, "/app/open/x", SAID);
    // Behind the rules, the same is stored and used.
    house.stop().unwrap();
    house.configure("CacheQuickHandler off\n").unwrap();
    house.start(&[]).unwrap();
    fill(&house, "/app/key/x", &with_key);
    assert_eq!(get(&house, "/app/key/x", SAID).0, 403);
    // What was stored behind the rules is not used before them.
    house.stop().unwrap();
    house.configure("CacheQuickHandler on\n").unwrap();
    house.start(&[]).unwrap();
    assert_eq!(get(&house, "/app/key/x", SAID).0, 403);
    assert_eq!(get(&house, "/app/key/x", &with_key), (200, "MISS".into()));
}

#[test]
fn a_root_that_cannot_be_written_to_is_named_and_requests_go_on() {
    let origin = Origin::start(None).unwrap();
    let house = house("event", &origin, "");
    fs::set_permissions(house.path("cache"), fs::Permissions::from_mode(0o555)).unwrap();
    for _ in 0..3 {
        assert_eq!(get(&house, "/app/x", SAID), (200, "MISS".into()));
    }
    wait_for("the message", || house.error_log().contains("responses cannot be stored")).unwrap();
    assert!(house.error_log().contains("/cache: "), "{}", house.error_log());
    assert_eq!(get(&house, "/app/x", SAID), (200, "MISS".into()));
}

#[test]
fn a_child_that_is_killed_while_it_stores_leaves_nothing_behind() {
    let origin = Origin::start(None).unwrap();
    let house = house("event", &origin, "StartServers 1\nServerLimit 1\nThreadsPerChild 40\n");
    let said = "X-Do: half\r\nX-Say: HTTP/1.1 200 OK~Cache-Control: max-age=600~\
                Content-Length: 400000~~{40000*0123456789}\r\n";
    let mut stream = ask(&house, "/app/x", said);
    stream.read_exact(&mut vec![0; 150_000]).unwrap();
    for child in children_of(house.parent()) {
        send(child, Signal::KILL);
    }
    drop(stream);
    origin.release(true);
    fill(&house, "/app/y", SAID);
    assert_eq!(stored(&house.path("cache")).len(), 1);
    assert_eq!(get(&house, "/app/x", SAID), (200, "MISS".into()));
}

#[test]
fn a_response_that_ends_early_is_not_stored() {
    let origin = Origin::start(None).unwrap();
    let house = house("event", &origin, "");
    let cut = "X-Do: close\r\nX-Say: HTTP/1.1 200 OK~Cache-Control: max-age=600~\
               Content-Length: 10~~hello\r\n";
    drop(ask(&house, "/app/x", cut));
    wait_for("the request", || origin.requests() == 1).unwrap();
    assert_eq!(get(&house, "/app/x", SAID).1, "MISS");
    fill(&house, "/app/y", SAID);
}

#[test]
fn a_damaged_file_is_a_miss() {
    let origin = Origin::start(None).unwrap();
    let house = house("event", &origin, "");
    fill(&house, "/app/x", SAID);
    let path = stored(&house.path("cache")).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[50] ^= 1;
    fs::remove_file(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    assert_eq!(get(&house, "/app/x", SAID), (200, "MISS".into()));
    fill(&house, "/app/x", SAID);
}

#[test]
fn htcacheclean_lists_and_removes_what_the_server_stores() {
    let origin = Origin::start(None).unwrap();
    let house = house("event", &origin, "");
    fill(&house, "/app/x?a=b", SAID);
    let cache = house.path("cache");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(evenkeel());
        command.arg("htcacheclean").arg("-p").arg(&cache).args(arguments);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let url = format!("http://localhost:{}/app/x?a=b", 80);
    assert_eq!(run(&["-a"]), (Some(0), format!("{url}\n")));
    assert_eq!(run(&["-l1G", "-v"]).0, Some(0));
    assert_eq!(get(&house, "/app/x?a=b", SAID).1, "HIT");
    assert_eq!(run(&[&url]).0, Some(0));
    assert_eq!(run(&[&url]).0, Some(2));
    assert_eq!(get(&house, "/app/x?a=b", SAID).1, "MISS");
}
