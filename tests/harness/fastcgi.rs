//! Plays the scripts of tests/fastcgi to Debian's apache2 and to Evenkeel, with php-fpm behind
//! both. php-fpm runs as an ordinary user in a temporary folder, with one pool on a Unix socket and
//! one on a TCP port. The scripts are in the language of the wire scripts, with `@SOCKET@` and
//! `@FPMPORT@` for the two pools.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, children_of, wait_for};
use evenkeel_tests::php_site::{Program, as_user};
use evenkeel_tests::play::{Differences, scripts_in};
use evenkeel_tests::script::parse;
use evenkeel_tests::server::free_port;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use tempfile::TempDir;

const FPM: &str = "\
[global]
error_log = @FPM@/fpm.log
daemonize = no
[unix]
listen = @FPM@/php.sock
pm = static
pm.max_children = 2
pm.status_path = /fpm-status
ping.path = /fpm-ping
php_admin_value[post_max_size] = 200M
php_admin_value[memory_limit] = 512M
[tcp]
listen = 127.0.0.1:@FPMPORT@
pm = static
pm.max_children = 2
php_admin_value[post_max_size] = 200M
";

/// A running php-fpm, and the folder with its socket.
struct Fpm {
    // The program ends before the folder is removed.
    program: Program,
    folder: TempDir,
    port: u16,
}

impl Fpm {
    fn start() -> Fpm {
        let folder = tempfile::Builder::new().prefix("fastcgi-").tempdir().unwrap();
        let path = folder.path();
        // The ordinary user makes the socket and the log here.
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        let port = free_port().unwrap();
        let text = FPM.replace("@FPM@", path.to_str().unwrap());
        fs::write(path.join("fpm.conf"), text.replace("@FPMPORT@", &port.to_string())).unwrap();
        let mut server = as_user("php-fpm8.2");
        server.arg("-F").arg("-y").arg(path.join("fpm.conf"));
        let program =
            Program::start(server, &path.join("said.txt"), &path.join("php.sock")).unwrap();
        wait_for("php-fpm's port", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
            .unwrap();
        Fpm { program, folder, port }
    }

    fn fill(&self, text: &str) -> String {
        let socket = self.folder.path().join("php.sock");
        text.replace("@SOCKET@", socket.to_str().unwrap())
            .replace("@FPMPORT@", &self.port.to_string())
    }
}

#[test]
fn scripts_of_php_answer_as_behind_apache2() {
    let fpm = Fpm::start();
    let mut differences = Differences::default();
    for (name, text) in scripts_in("fastcgi").unwrap() {
        differences.play(&parse(&name, &fpm.fill(&text)).unwrap()).unwrap();
    }
    let report = differences.report(60);
    assert!(report.is_empty(), "{report}");
}

/// Under prefork, so that other children show the status than those that have met php-fpm.
const STATUS: &str = "\
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_fcgi_module /usr/lib/apache2/modules/mod_proxy_fcgi.so
LoadModule status_module /usr/lib/apache2/modules/mod_status.so
<Location /status>
SetHandler server-status
</Location>
<FilesMatch \"\\.php$\">
SetHandler \"proxy:unix:@SOCKET@|fcgi://localhost\"
</FilesMatch>
";

#[test]
fn the_status_shows_the_processes_of_php_fpm() {
    let fpm = Fpm::start();
    let house = House::open(&fpm.fill(STATUS), &[]).unwrap();
    let script = "<?php touch($_GET['mark']); while (!file_exists($_GET['go'])) clearstatcache();";
    fs::write(house.path("htdocs/burns.php"), script).unwrap();
    let (mark, go) = (fpm.folder.path().join("mark"), fpm.folder.path().join("go"));
    let ask = |target: &str| {
        let mut stream = TcpStream::connect(house.address).unwrap();
        let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close");
        stream.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
        stream
    };
    let text = |mut stream: TcpStream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert!(!text(ask("/status?auto")).contains("Listener-"));
    let busy = ask(&format!("/burns.php?mark={}&go={}", mark.display(), go.display()));
    wait_for("the script", || mark.exists()).unwrap();
    let master = fpm.program.id();
    let children = children_of(master).len();
    let socket = fpm.folder.path().join("php.sock");
    let expected = [
        format!("Listener-0-Socket: {}\n", socket.display()),
        format!("Listener-0-Pid: {master}\nListener-0-Children: {children}\n"),
        format!("Listener-0-Running: 1\nListener-0-Waiting: {}\n", children - 1),
    ];
    // Each child of prefork reads /proc at most once a second and keeps its own result, so two
    // responses in succession can come from children of which one has not seen the script yet.
    let shown = || {
        let auto = text(ask("/status?auto"));
        expected.iter().all(|lines| auto.contains(lines))
    };
    wait_for("the script in ?auto", shown).unwrap();
    let words = format!("(pid {master}) has {children} children");
    let shown = || {
        let page = text(ask("/status?json"));
        let (_, body) = page.split_once("\r\n\r\n").unwrap();
        let page: serde_json::Value = serde_json::from_str(body.trim()).unwrap();
        page["listeners"][0]["pid"] == master && page["pool_words"].to_string().contains(&words)
    };
    wait_for("the script in ?json", shown).unwrap();
    fs::write(go, "").unwrap();
    assert!(text(busy).starts_with("HTTP/1.1 200 "));
}
