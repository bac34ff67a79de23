//! Plays the scripts of tests/fastcgi to Debian's apache2 and to Evenkeel, with php-fpm behind
//! both. php-fpm runs as an ordinary user in a temporary folder, with one pool on a Unix socket and
//! one on a TCP port. The scripts are in the language of the wire scripts, with `@SOCKET@` and
//! `@FPMPORT@` for the two pools.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::compare::shown;
use evenkeel_tests::house::wait_for;
use evenkeel_tests::php_site::{Program, as_user};
use evenkeel_tests::play::{Cast, play};
use evenkeel_tests::script::parse;
use evenkeel_tests::server::{Kind, free_port};
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
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
    _program: Program,
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
        Fpm { _program: program, folder, port }
    }

    fn fill(&self, text: &str) -> String {
        let socket = self.folder.path().join("php.sock");
        text.replace("@SOCKET@", socket.to_str().unwrap())
            .replace("@FPMPORT@", &self.port.to_string())
    }
}

/// The scripts, in the order of their names.
fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fastcgi");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.collect();
    paths.sort();
    paths
}

#[test]
fn scripts_of_php_answer_as_behind_apache2() {
    let fpm = Fpm::start();
    let (mut played, mut failures) = (0, Vec::new());
    for path in scripts() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let text = fpm.fill(&fs::read_to_string(&path).unwrap());
        let script = parse(name, &text).unwrap();
        for verdict in play(&script, Cast::Both(Kind::Evenkeel, "")).unwrap() {
            played += 1;
            if !verdict.differences.is_empty() {
                let body = verdict.oracle.responses.last().map(|last| shown(&last.body));
                let differences = verdict.differences.join("\n  ");
                failures.push(format!("{}\n  {differences}\n  oracle: {body:?}", verdict.title));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {played}:\n{}", failures.len(), failures.join("\n"));
    assert!(played >= 60, "{played} exchanges alone were played");
}
