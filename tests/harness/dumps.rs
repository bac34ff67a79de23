//! Compares the output of `-D DUMP_...` with that of Debian's apache2, byte for byte, because tools
//! such as certbot parse it. Two things are left out: `Mutex` lines, because this server has none,
//! and that apache2 needs mod_info to print the tree.
#![expect(clippy::unwrap_used, reason = "functions beside the tests end a test as the tests do")]

use evenkeel_tests::server::{Kind, command, program};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const DUMPS: [&str; 5] =
    ["DUMP_CONFIG", "DUMP_MODULES", "DUMP_VHOSTS", "DUMP_RUN_CFG", "DUMP_INCLUDES"];

/// What every configuration needs, except Debian's.
const BASE: &str = "\
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
ServerRoot \"@ROOT@\"
ServerName localhost
PidFile logs/httpd.pid
Listen 127.0.0.1:8099
";

/// The modules of Debian's configuration that both servers have. The others are disabled, as with
/// a2dismod.
const OWN: [&str; 11] = [
    "access_compat",
    "alias",
    "authz_core",
    "authz_host",
    "dir",
    "env",
    "mime",
    "mpm_event",
    "reqtimeout",
    "setenvif",
    "status",
];

/// Writes a configuration below `root` and compares the output of both servers for it.
fn compare(root: &Path, text: &str) {
    fs::create_dir_all(root.join("logs")).unwrap();
    let place = root.to_string_lossy();
    fs::write(root.join("httpd.conf"), format!("{BASE}{text}").replace("@ROOT@", &place)).unwrap();
    compare_file(root, &root.join("httpd.conf"), &[]);
}

fn compare_file(root: &Path, file: &Path, variables: &[(&str, &str)]) {
    for dump in DUMPS {
        for tested in [true, false] {
            let oracle = shown(Kind::Apache, root, file, variables, dump, tested);
            let own = shown(Kind::Evenkeel, root, file, variables, dump, tested);
            assert!(oracle.lines().count() > 2, "{dump}: {oracle}");
            assert_eq!(own, oracle, "{dump}, -t {tested}");
        }
    }
}

/// The standard output, whether the syntax was reported as correct, and the exit status.
fn shown(
    kind: Kind,
    root: &Path,
    file: &Path,
    variables: &[(&str, &str)],
    dump: &str,
    tested: bool,
) -> String {
    let named = program(kind, root).unwrap();
    let file = file.to_string_lossy();
    let mut words = vec!["-f", &file, "-D", dump];
    // For this dump, apache2 would start to serve without -t.
    if tested || dump == "DUMP_CONFIG" {
        words.push("-t");
    }
    if kind == Kind::Apache && dump == "DUMP_CONFIG" {
        words.extend(["-C", "LoadModule info_module /usr/lib/apache2/modules/mod_info.so"]);
    }
    let mut command = command(&named, &words);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).contains("Syntax OK");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter(|line| !line.starts_with("Mutex "));
    let lines: String = lines.flat_map(|line| [line, "\n"]).collect();
    format!("{lines}syntax told: {said}\nstatus {:?}\n", output.status.code())
}

#[test]
fn a_site_without_virtual_hosts() {
    let root = tempfile::tempdir().unwrap();
    let text = "User www-data\nGroup www-data\nErrorLog \"|/bin/cat\"\nTimeout 30\n\
                DocumentRoot /usr\nDefine X\nDefine Y \"two words\"\nServerTokens Prod\n";
    compare(root.path(), text);
}

#[test]
fn sections_within_sections() {
    let root = tempfile::tempdir().unwrap();
    let text = "\
<IfModule !mod_nothing.c>
  <Directory \"@ROOT@\">
     Require all granted
     <Files \"a b.txt\">
        <If \"%{HTTP_HOST} == 'a'\">
        Redirect 301 / http://other/
        </If>
        Require   all   denied
     </Files>
  </Directory>
</IfModule>
<Location \"/l m\">
  <Limit GET POST>
    Require all granted
  </Limit>
</Location>
ErrorDocument 404 \"Not \\\"here\\\"\"
Alias \"/x y\" \\
  \"/usr\"
";
    compare(root.path(), text);
}

#[test]
fn virtual_hosts_by_address_and_by_name() {
    let root = tempfile::tempdir().unwrap();
    let host = |address: &str, name: &str, more: &str| {
        format!("<VirtualHost {address}>\nServerName {name}\n{more}</VirtualHost>\n")
    };
    let text = [
        "Define NAME value\n".to_owned(),
        host("*:8099", "${NAME}.example", "ServerAlias a.example *.b.example\nDocumentRoot /usr\n"),
        host("127.0.0.1:8099", "second", ""),
        host("127.0.0.1:8099", "again", "ServerAlias x.example *.y.example z.example\n"),
        host("_default_:8098", "third", "ServerAlias alone.example\n"),
        host("[::1]:8099", "v6", ""),
        host("192.0.2.7:80 192.0.2.200", "two", ""),
        host("10.1.2.3", "any-port", ""),
        host("*", "last", ""),
    ];
    compare(root.path(), &text.concat());
}

#[test]
fn files_that_are_included() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("parts")).unwrap();
    fs::write(root.path().join("parts/b.conf"), "Timeout 3\nInclude parts/c.inc\n").unwrap();
    fs::write(root.path().join("parts/a.conf"), "\nKeepAlive Off\n").unwrap();
    fs::write(root.path().join("parts/c.inc"), "Options None\nRequire all granted\n").unwrap();
    fs::write(root.path().join("parts/host.conf"), "ServerName in.example\n").unwrap();
    let text = "\
Include parts/a.conf
<Directory />
AllowOverride None
Include parts/c.inc
Options All
</Directory>
IncludeOptional parts/none*.conf
<VirtualHost *:8099>
Include parts/host.conf
</VirtualHost>
IncludeOptional parts/[a]*.conf
";
    compare(root.path(), text);
}

/// What was read before the fault is printed, and nothing else.
#[test]
fn files_that_are_included_before_a_fault() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().to_string_lossy().into_owned();
    fs::write(root.path().join("good.conf"), "Timeout 3\n").unwrap();
    fs::write(root.path().join("bad.conf"), "Include good.conf\n</Location>\n").unwrap();
    let table = [
        "Include good.conf\n</Location>\nInclude good.conf\n",
        "Include good.conf\nInclude bad.conf\nInclude good.conf\n",
        "Include good.conf\nInclude missing.conf\nInclude good.conf\n",
        "Include good.conf\nKeepAlive maybe\nInclude good.conf\n",
        "Include good.conf\n<VirtualHost *:8099>\n",
    ];
    let file = root.path().join("httpd.conf");
    for text in table {
        fs::write(&file, format!("{BASE}{text}").replace("@ROOT@", &place)).unwrap();
        for dump in DUMPS {
            let oracle = shown(Kind::Apache, root.path(), &file, &[], dump, true);
            let own = shown(Kind::Evenkeel, root.path(), &file, &[], dump, true);
            assert_eq!(own, oracle, "{dump}, {text}");
            assert!(oracle.ends_with("status Some(1)\n"), "{oracle}");
            assert_eq!(oracle.contains("(*)"), dump == "DUMP_INCLUDES", "{oracle}");
        }
    }
}

/// Debian's stock configuration as its package installs it, with the modules that both servers
/// have.
#[test]
fn the_stock_configuration_of_debian() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    let stock = Path::new("/etc/apache2");
    for name in ["apache2.conf", "ports.conf", "conf-enabled", "sites-enabled"] {
        symlink(stock.join(name), root.join(name)).unwrap();
    }
    fs::create_dir(root.join("mods-enabled")).unwrap();
    for entry in fs::read_dir(stock.join("mods-enabled")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if OWN.contains(&name.as_str()) {
            symlink(&path, root.join("mods-enabled").join(path.file_name().unwrap())).unwrap();
        }
    }
    fs::create_dir(root.join("logs")).unwrap();
    let (logs, pid) = (root.join("logs"), root.join("logs/apache2.pid"));
    let (logs, pid) = (logs.to_string_lossy(), pid.to_string_lossy());
    let variables = [
        ("APACHE_RUN_USER", "www-data"),
        ("APACHE_RUN_GROUP", "www-data"),
        ("APACHE_PID_FILE", &pid),
        ("APACHE_RUN_DIR", &logs),
        ("APACHE_LOCK_DIR", &logs),
        ("APACHE_LOG_DIR", &logs),
    ];
    let file = root.join("own.conf");
    // The stock file is not changed; what it lacks is in a file that includes it.
    let around =
        format!("ServerRoot {0}\nServerName stock\nInclude apache2.conf\n", root.display());
    fs::write(&file, around).unwrap();
    compare_file(root, &file, &variables);
}
