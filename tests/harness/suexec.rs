//! Runs CGI programs as another user by Debian's wrapper (mod_suexec), beside apache2. The wrapper
//! runs programs below /var/www alone, and only if root starts it for www-data: the tests need
//! root's rights and the package apache2-suexec-pristine.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::house::{House, PATIENCE};
use evenkeel_tests::server::{Kind, Server};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// nobody and nogroup: users below 100 may run nothing.
const NOBODY: u32 = 65534;

const PROGRAM: &str = "#!/bin/sh\n\
printf 'Content-Type: text/plain\\n\\n'\n\
id -u; id -g; id -G; echo \"$#\" \"$1\"; pwd | sed 's|.*/||'\n\
env | cut -d= -f1 | grep -v -e ^_ -e SHLVL -e OLDPWD | sort\n";

/// A folder below /var/www with programs of nobody.
fn programs() -> TempDir {
    let folder = tempfile::Builder::new().prefix("evenkeel-").tempdir_in("/var/www").unwrap();
    own(folder.path(), 0o755);
    let cgi = folder.path().join("cgi");
    fs::create_dir(&cgi).unwrap();
    own(&cgi, 0o755);
    for (name, mode) in [("run", 0o755), ("writable", 0o777)] {
        fs::write(cgi.join(name), PROGRAM).unwrap();
        own(&cgi.join(name), mode);
    }
    let page = "<!--#exec cmd=\"run\" --><!--#exec cgi=\"/cgi/run\" -->\n";
    fs::write(cgi.join("page.shtml"), page).unwrap();
    folder
}

fn own(path: &Path, mode: u32) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn lay_out(programs: &Path, more: &str) -> House {
    let load = ["alias", "suexec", "include", "cgi", "userdir"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"));
    let programs = programs.display();
    let lines = format!(
        "ScriptAlias /cgi/ {programs}/cgi/\nAlias /pages/ {programs}/cgi/\n\
         UserDir {programs}\n<Directory {programs}>\nRequire all granted\nOptions +Includes \
         +ExecCGI\n<Files *.shtml>\nSetOutputFilter INCLUDES\n</Files>\n</Directory>\n\
         <LocationMatch ^/~>\nSetHandler cgi-script\n</LocationMatch>\n{more}"
    );
    House::lay_out(&[load.concat(), lines].concat()).unwrap()
}

fn get(house: &House, path: &str) -> String {
    let mut client = TcpStream::connect(house.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nX-Some: 1\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The status and the body of the response to `path`, and the lines of the error log by mod_cgi.
fn answer(
    kind: Kind,
    programs: &Path,
    more: &str,
    path: &str,
) -> (String, String, BTreeSet<String>) {
    let mut house = lay_out(programs, more);
    let root = house.path("");
    house.server = Some(Server::start(kind, &root, house.address.port()).unwrap());
    let text = get(&house, path);
    house.stop().unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let log = house.error_log();
    let lines = log.lines().filter(|line| line.contains("[cgi:"));
    let lines = lines.filter_map(|line| Some(line.split_once("[client ")?.1.split_once("] ")?.1));
    let status = head.get(9..12).unwrap_or_default().to_owned();
    (status, body.to_owned(), lines.map(str::to_owned).collect())
}

#[test]
fn programs_run_as_the_user_that_the_configuration_names() {
    let programs = programs();
    let folder = programs.path();
    let as_nobody = "SuexecUserGroup nobody nogroup\n";
    let cases = [
        (as_nobody, "/cgi/run?word", "200"),
        (as_nobody, "/pages/page.shtml", "200"),
        // The wrapper refuses what anyone may change.
        (as_nobody, "/cgi/writable", "500"),
        (as_nobody, "/cgi/absent", "404"),
        ("SuexecUserGroup #65534 #65534\n", "/cgi/run", "200"),
        ("SuexecUserGroup _apt nogroup\n", "/cgi/run", "500"),
        ("SuexecUserGroup nobody root\n", "/cgi/run", "500"),
        // The user of a path counts for more than that of the host. nobody has no home.
        (as_nobody, "/~nobody/run", "404"),
        ("", "/cgi/run", "200"),
    ];
    for (more, path, status) in cases {
        let apache = answer(Kind::Apache, folder, more, path);
        let ours = answer(Kind::Evenkeel, folder, more, path);
        assert_eq!(ours, apache, "{path} with {more}");
        assert_eq!(ours.0, status, "{path} with {more}");
        let is_nobody = ours.1.contains("65534\n65534\n65534\n");
        assert_eq!(is_nobody, status == "200" && !more.is_empty(), "{path}: {}", ours.1);
    }
}

/// Below `/~user` the wrapper looks for the home of the user, without any SuexecUserGroup.
#[test]
fn programs_of_users_run_as_those_users() {
    let programs = programs();
    let home = programs.path().join("nobody");
    fs::create_dir(&home).unwrap();
    own(&home, 0o755);
    fs::copy(programs.path().join("cgi/run"), home.join("run")).unwrap();
    own(&home.join("run"), 0o755);
    let apache = answer(Kind::Apache, programs.path(), "", "/~nobody/run");
    let ours = answer(Kind::Evenkeel, programs.path(), "", "/~nobody/run");
    assert_eq!(ours, apache);
    let of_wrapper = ours.2.iter().any(|line| line.contains("suexec policy violation"));
    assert!(ours.0 == "500" && of_wrapper, "{ours:?}");
    let off = answer(Kind::Evenkeel, programs.path(), "Suexec Off\n", "/~nobody/run");
    assert!(off.0 == "200" && off.1.starts_with("33\n33\n"), "{off:?}");
}

/// A user of this machine, who is removed when the value is dropped.
struct User {
    name: &'static str,
    id: u32,
    group: u32,
}

impl User {
    fn add(name: &'static str, home: &Path) -> User {
        // What an interrupted run has left.
        let _absent = Command::new("userdel").arg(name).output().unwrap();
        let mut add = Command::new("useradd");
        add.args(["--no-log-init", "--no-create-home", "--user-group", "--home-dir"]);
        let added = add.arg(home).arg(name).output().unwrap();
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let line = users.lines().find(|line| line.split(':').next() == Some(name)).unwrap();
        let number = |index: usize| line.split(':').nth(index).unwrap().parse().unwrap();
        User { name, id: number(2), group: number(3) }
    }

    fn own(&self, path: &Path, mode: u32) {
        chown(path, Some(self.id), Some(self.group)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _gone = Command::new("userdel").arg(self.name).output();
    }
}

/// Programs in the folder that the wrapper was built for, `public_html` of the user's home, run as
/// the user, whatever SuexecUserGroup says.
#[test]
fn programs_of_users_with_a_home_run_as_those_users() {
    let programs = programs();
    let home = programs.path().join("home");
    let user = User::add("evenkeel-suexec", &home);
    let folder = home.join("public_html");
    fs::create_dir_all(&folder).unwrap();
    user.own(&home, 0o755);
    user.own(&folder, 0o755);
    for (name, mode) in [("run", 0o755), ("writable", 0o775)] {
        fs::write(folder.join(name), PROGRAM).unwrap();
        user.own(&folder.join(name), mode);
    }
    let by_home = "UserDir public_html\n";
    let as_nobody = "UserDir public_html\nSuexecUserGroup nobody nogroup\n";
    let ids = format!("{}\n{}\n", user.id, user.group);
    for (more, file, status) in
        [(by_home, "run?word", "200"), (as_nobody, "run", "200"), (by_home, "writable", "500")]
    {
        let path = format!("/~{}/{file}", user.name);
        let apache = answer(Kind::Apache, programs.path(), more, &path);
        let ours = answer(Kind::Evenkeel, programs.path(), more, &path);
        assert_eq!(ours, apache, "{path} with {more}");
        assert!(ours.0 == status && ours.1.starts_with(&ids) == (status == "200"), "{ours:?}");
    }
}
