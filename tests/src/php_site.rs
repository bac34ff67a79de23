//! A site of PHP for tests: an application of Debian, unpacked and not installed, with MariaDB and
//! php-fpm on Unix sockets in a temporary folder, and a copy of /etc/apache2 that serves the site.
//! In place of php-fpm, php_module may run the scripts: mod_php in apache2, and a pool in Evenkeel.
//! All programs run as an unprivileged user.

use crate::house::PATIENCE;
use crate::php;
use crate::server::{Kind, Server, command, evenkeel, free_port};
use crate::tls::make_certificates;
use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};
use std::fs;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The interval between two checks of a program that is starting or ending.
const GLANCE: Duration = Duration::from_millis(4);

/// An application. In its texts, `@ROOT@` is the temporary folder, and `@PORT@` is the port of the
/// server, and `@HTTPS@` the one of its TLS host.
#[derive(Debug)]
pub struct Application {
    /// The name of its database and of the database's user.
    pub name: &'static str,
    /// The packages that are unpacked.
    pub packages: &'static [&'static str],
    /// The document root, in the temporary folder.
    pub web: &'static str,
    /// The configuration for apache2 that a package has, as a path in it. An installed package has
    /// it in conf-enabled.
    pub glue: Option<&'static str>,
    /// The files that an installation has and no package: their paths in the temporary folder, and
    /// their texts.
    pub files: &'static [(&'static str, &'static str)],
    /// Further settings of php-fpm.
    pub php: &'static str,
    /// Whether a second host serves it over TLS.
    pub https: bool,
}

/// What runs the scripts of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// php-fpm, by Debian's configuration of it.
    Fpm,
    /// php_module, under prefork.
    Module,
}

/// The unprivileged user, if root runs the tests.
const USER: &str = "www-data";

/// The options of the database server. A test needs little disk space and no durability.
const DATABASE: [&str; 6] = [
    "--skip-networking",
    "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-size=64M",
    "--skip-name-resolve",
];

const FPM: &str = "\
[global]
error_log = @ROOT@/logs/fpm.log
daemonize = no
[www]
listen = @ROOT@/php.sock
pm = static
pm.max_children = 4
catch_workers_output = yes
";

/// Settings of PHP for every application, in php-fpm's form.
const PHP: &str = "php_admin_value[sendmail_path] = /bin/true\n";

/// The folders of php.ini and of the files beside it, under both runners.
const INI: &str = "/etc/php/8.2/fpm";
const MORE_INI: &str = "PHP_INI_SCAN_DIR=/etc/php/8.2/fpm/conf.d";

/// The main configuration file: it defines the variables of Debian's envvars and includes
/// apache2.conf.
const HTTPD: &str = "\
Define APACHE_RUN_DIR @ROOT@/run
Define APACHE_PID_FILE @ROOT@/run/apache2.pid
Define APACHE_LOCK_DIR @ROOT@/run
Define APACHE_LOG_DIR @ROOT@/logs
Define APACHE_RUN_USER www-data
Define APACHE_RUN_GROUP www-data
ServerRoot \"@ROOT@/etc\"
ServerName 127.0.0.1
Include \"@ROOT@/etc/apache2.conf\"
";

const SITE: &str = "\
<VirtualHost *:@PORT@>
DocumentRoot \"@WEB@\"
ErrorLog \"@ROOT@/logs/error.log\"
CustomLog \"@ROOT@/logs/access.log\" combined
<Directory \"@WEB@\">
Options FollowSymLinks
AllowOverride All
Require all granted
</Directory>
</VirtualHost>
";

/// The same over TLS, in the form of Debian's default-ssl.conf.
const SECURE_SITE: &str = "\
<VirtualHost *:@HTTPS@>
DocumentRoot \"@WEB@\"
ErrorLog \"@ROOT@/logs/error.log\"
CustomLog \"@ROOT@/logs/access.log\" combined
SSLEngine on
SSLCertificateFile \"@ROOT@/tls/localhost.pem\"
SSLCertificateKeyFile \"@ROOT@/tls/localhost.key\"
<FilesMatch \"\\.(?:cgi|shtml|phtml|php)$\">
SSLOptions +StdEnvVars
</FilesMatch>
<Directory \"@WEB@\">
Options FollowSymLinks
AllowOverride All
Require all granted
</Directory>
</VirtualHost>
";

/// What apache2.conf says of /usr/share.
const SHARED: &str = "\
<Directory @ROOT@/usr/share>
AllowOverride None
Require all granted
</Directory>
";

/// The folder with the application, and the running database server and php-fpm, if that runs the
/// scripts.
#[derive(Debug)]
pub struct PhpSite {
    // Fields are dropped in order: the programs end before the folder is removed.
    _programs: Vec<Program>,
    /// The port of the web server.
    pub port: u16,
    /// The port of its host over TLS, if the application has one.
    pub https_port: u16,
    application: &'static Application,
    root: TempDir,
}

impl PhpSite {
    /// Unpacks the packages and starts MariaDB and php-fpm. `scripts` is the folder of the
    /// repository's scripts, and `cache` is the folder that keeps downloaded packages.
    pub fn open(
        application: &'static Application,
        runner: Runner,
        scripts: &Path,
        cache: &Path,
    ) -> Result<PhpSite, String> {
        let prefix = format!("{}-", application.name);
        let root = tempfile::Builder::new().prefix(&prefix).tempdir();
        let root = root.map_err(|error| format!("the scratch folder: {error}"))?;
        let folder = root.path();
        let mut unpack = Command::new(scripts.join("unpack"));
        unpack.arg(cache).arg(folder.join("package")).args(application.packages);
        run(&mut unpack, "")?;
        for name in ["run", "logs", "tmp", "db", "htdocs"] {
            fs::create_dir(folder.join(name)).map_err(|error| format!("{name}: {error}"))?;
        }
        relocate(&folder.join("package"), folder).map_err(|error| format!("a link: {error}"))?;
        let ports = (free_port()?, free_port()?);
        configure(application, runner, folder, ports)?;
        run(Command::new("chmod").arg("755").arg(folder), "")?;
        if geteuid().is_root() {
            run(Command::new("chown").arg("-hR").arg(format!("{USER}:{USER}")).arg(folder), "")?;
        }
        let mut programs = vec![start_database(folder)?];
        if runner == Runner::Fpm {
            programs.push(start_php(folder)?);
        }
        let (port, https_port) = ports;
        Ok(PhpSite { _programs: programs, port, https_port, application, root })
    }

    /// The path of a file in the temporary folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The document root.
    pub fn web(&self) -> PathBuf {
        self.path(self.application.web)
    }

    /// The text with the temporary folder and the port in it.
    pub fn fill(&self, text: &str) -> String {
        fill(text, self.root.path(), (self.port, self.https_port))
    }

    /// Restores the files of the packages and of the installation, and empties the database.
    pub fn reset(&self) -> Result<(), String> {
        let (root, name) = (self.root.path(), self.application.name);
        for part in ["usr", "var"] {
            run(as_user("rm").arg("-rf").arg(root.join(part)), "")?;
            let package = root.join("package").join(part);
            if package.exists() {
                // Links: the applications make files, but write into none of the package.
                run(as_user("cp").arg("-al").arg(package).arg(root), "")?;
            }
        }
        for (path, text) in self.application.files {
            let path = root.join(path);
            run(as_user("rm").arg("-f").arg(&path), "")?;
            run(as_user("mkdir").arg("-p").args(path.parent()), "")?;
            run(as_user("tee").arg(&path), &self.fill(text))?;
        }
        let statements = format!(
            "DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name}; \
            GRANT ALL ON {name}.* TO {name}@localhost IDENTIFIED BY 'sea';"
        );
        let socket = format!("--socket={}", root.join("db.sock").display());
        let mut client = as_user("mariadb");
        run(client.args(["--no-defaults", "--user=root", &socket]), &statements)
    }

    /// Runs a program of PHP as the unprivileged user, with these arguments.
    pub fn run_php(&self, arguments: &[&str]) -> Result<(), String> {
        run(as_user("php8.2").current_dir(self.root.path()).args(arguments), "")
    }

    /// Starts a server of this kind as the unprivileged user.
    pub fn serve(&self, kind: Kind) -> Result<Server, String> {
        if kind == Kind::Evenkeel {
            copy(&evenkeel(), &self.path("apache2"))?;
        }
        let over = [over(), &["env", MORE_INI]].concat();
        Server::start_as(kind, self.root.path(), self.port, &over, "-DFOREGROUND")
    }

    /// The last 20 lines of a log file.
    pub fn log(&self, name: &str) -> String {
        let bytes = fs::read(self.path("logs").join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
    }
}

/// Copies a built program, because the unprivileged user may have no access to its folder.
fn copy(built: &Path, to: &Path) -> Result<(), String> {
    if !to.exists() {
        fs::copy(built, to).map_err(|error| format!("{}: {error}", built.display()))?;
    }
    Ok(())
}

fn fill(text: &str, root: &Path, (port, https_port): (u16, u16)) -> String {
    let text = text.replace("@HTTPS@", &https_port.to_string());
    text.replace("@ROOT@", &root.to_string_lossy()).replace("@PORT@", &port.to_string())
}

/// Points the symbolic links of a package that name installed files to the unpacked ones.
fn relocate(folder: &Path, root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        match entry.file_type()? {
            kind if kind.is_dir() => relocate(&path, root)?,
            kind if kind.is_symlink() => {
                let target = fs::read_link(&path)?;
                let Ok(inner) = target.strip_prefix("/") else { continue };
                if inner.starts_with("usr") || inner.starts_with("var") {
                    fs::remove_file(&path)?;
                    symlink(root.join(inner), &path)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Copies /etc/apache2 and makes an administrator's changes: the address, the modules that
/// the application needs, Debian's configuration of the runner, the package's configuration of the
/// application, and the site.
fn configure(
    application: &Application,
    runner: Runner,
    root: &Path,
    ports: (u16, u16),
) -> Result<(), String> {
    let web = format!("@ROOT@/{}", application.web);
    run(Command::new("cp").args(["-a", "/etc/apache2"]).arg(root.join("etc")), "")?;
    let write = |name: &str, text: &str| {
        fs::write(root.join(name), fill(text, root, ports))
            .map_err(|error| format!("{name}: {error}"))
    };
    let settings = [PHP, application.php].concat();
    enable(root, "rewrite")?;
    if application.https {
        ["socache_shmcb", "ssl"].iter().try_for_each(|module| enable(root, module))?;
        make_certificates(&root.join("tls"))?;
        write("etc/conf-enabled/https.conf", "Listen 127.0.0.1:@HTTPS@\n")?;
        write("etc/sites-enabled/default-ssl.conf", &SECURE_SITE.replace("@WEB@", &web))?;
    }
    match runner {
        Runner::Fpm => {
            ["proxy", "proxy_fcgi"].iter().try_for_each(|module| enable(root, module))?;
            let glue = "/etc/apache2/conf-available/php8.2-fpm.conf";
            let glue = fs::read_to_string(glue)
                .map_err(|error| format!("{glue}: {error}; install the package php8.2-fpm"))?;
            let glue = glue.replace("/run/php/php8.2-fpm", "@ROOT@/php");
            write("etc/conf-enabled/php8.2-fpm.conf", &glue)?;
            write("fpm.conf", &[FPM, &settings].concat())?;
        }
        Runner::Module => {
            use_module(root)?;
            let lines = settings.lines().filter_map(directive).collect::<String>();
            write("etc/conf-enabled/php.conf", &format!("PHPINIDir {INI}\n{lines}"))?;
        }
    }
    if let Some(glue) = application.glue {
        let path = root.join("package").join(glue);
        let text = fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let mut text = text.replace(" /usr/share/", " @ROOT@/usr/share/");
        // The last three are in a list of folders.
        for (old, new) in [
            (" /var/lib/", " @ROOT@/var/lib/"),
            (":/usr/share/", ":@ROOT@/usr/share/"),
            (":/etc/phpmyadmin/", ":@ROOT@/etc/config.inc.php:@ROOT@/tmp/"),
            (":/var/lib/", ":@ROOT@/var/lib/"),
        ] {
            text = text.replace(old, new);
        }
        write("etc/conf-enabled/application.conf", &[SHARED, &text].concat())?;
    }
    write("etc/ports.conf", "Listen 127.0.0.1:@PORT@\n")?;
    write("etc/sites-enabled/000-default.conf", &SITE.replace("@WEB@", &web))
        .and_then(|()| write("httpd.conf", HTTPD))
}

/// Enables a module in the copy of /etc/apache2, as a2enmod does.
fn enable(root: &Path, module: &str) -> Result<(), String> {
    for ending in ["load", "conf"] {
        let name = format!("{module}.{ending}");
        if root.join("etc/mods-available").join(&name).exists() {
            let link = root.join("etc/mods-enabled").join(&name);
            symlink(format!("../mods-available/{name}"), &link)
                .map_err(|error| format!("{}: {error}", link.display()))?;
        }
    }
    Ok(())
}

/// Enables php_module in the copy of /etc/apache2 as its package does: with prefork, and with the
/// files of the package, which is unpacked and not installed.
fn use_module(root: &Path) -> Result<(), String> {
    let module = php::oracle()?;
    copy(&module, &root.join("libphp8.2.so"))?;
    copy(&php::build()?, &root.join("evenkeel-php8.2"))?;
    let package = module.ancestors().nth(5).unwrap_or(root).join("etc/apache2/mods-available");
    for ending in ["load", "conf"] {
        let _other = fs::remove_file(root.join(format!("etc/mods-enabled/mpm_event.{ending}")));
        let path = package.join(format!("php8.2.{ending}"));
        let text = fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let text = text.replace("/usr/lib/apache2/modules", &root.to_string_lossy());
        let own = root.join(format!("etc/mods-available/php8.2.{ending}"));
        fs::write(&own, text).map_err(|error| format!("{}: {error}", own.display()))?;
    }
    enable(root, "mpm_prefork")?;
    enable(root, "php8.2")
}

/// The directive of php_module for a setting of php-fpm.
fn directive(setting: &str) -> Option<String> {
    let (name, value) = setting.strip_prefix("php_admin_value[")?.split_once("] = ")?;
    Some(format!("php_admin_value {name} \"{value}\"\n"))
}

fn start_database(root: &Path) -> Result<Program, String> {
    let data = format!("--datadir={}", root.join("db").display());
    let temporary = format!("--tmpdir={}", root.join("tmp").display());
    let mut install = as_user("mariadb-install-db");
    install.args(["--no-defaults", &data, &temporary, "--skip-test-db"]);
    run(install.arg("--auth-root-authentication-method=normal"), "")?;
    let socket = root.join("db.sock");
    let mut server = as_user("mariadbd");
    server.args(["--no-defaults", &data, &temporary]).args(DATABASE);
    server.arg(format!("--socket={}", socket.display()));
    server.arg(format!("--pid-file={}", root.join("run/db.pid").display()));
    Program::start(server, &root.join("logs/db.log"), &socket)
}

fn start_php(root: &Path) -> Result<Program, String> {
    let mut server = as_user("php-fpm8.2");
    server.arg("-F").arg("-y").arg(root.join("fpm.conf"));
    Program::start(server, &root.join("logs/fpm-said.log"), &root.join("php.sock"))
}

/// The command prefix that runs a command as the unprivileged user.
fn over() -> &'static [&'static str] {
    match geteuid().is_root() {
        true => &["setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups"],
        false => &[],
    }
}

/// The command that runs a program as the unprivileged user.
pub fn as_user(program: &str) -> Command {
    match over().split_first() {
        Some((first, rest)) => {
            let mut command = command(Path::new(first), rest);
            command.arg(program);
            command
        }
        None => command(Path::new(program), &[]),
    }
}

/// Runs a command with this standard input. Returns an error if the command fails.
fn run(command: &mut Command, input: &str) -> Result<(), String> {
    let told = |error: io::Error| format!("a program of this test: {error}");
    let mut stdin = tempfile::tempfile().map_err(told)?;
    stdin.write_all(input.as_bytes()).map_err(told)?;
    stdin.rewind().map_err(told)?;
    let name = format!("{command:?}");
    let output = command.stdin(stdin).output().map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = [output.stdout, output.stderr].concat();
            Err(format!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&text)))
        }
    }
}

/// A running program in its own process group. The group is killed when the value is dropped.
#[derive(Debug)]
pub struct Program(Child);

impl Program {
    /// Starts a program and waits until its socket accepts connections.
    pub fn start(mut command: Command, log: &Path, socket: &Path) -> Result<Program, String> {
        let name = format!("{command:?}");
        let told = |error: io::Error| format!("{name}: {error}");
        let out = fs::File::create(log).map_err(told)?;
        let err = out.try_clone().map_err(told)?;
        command.process_group(0).stdin(Stdio::null()).stdout(out).stderr(err);
        let mut program = Program(command.spawn().map_err(told)?);
        let begun = Instant::now();
        while UnixStream::connect(socket).is_err() {
            let status = program.0.try_wait().map_err(told)?;
            if status.is_some() || begun.elapsed() > PATIENCE {
                let said = fs::read_to_string(log).unwrap_or_default();
                return Err(format!("{name} does not serve ({status:?}):\n{said}"));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(program)
    }
}

impl Program {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let Some(process) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) else { return };
        let _ = kill_process(process, Signal::TERM);
        let begun = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && begun.elapsed() < PATIENCE {
            std::thread::sleep(GLANCE);
        }
        // Kills the remaining processes of the group, and the program if it did not end.
        let _ = kill_process_group(process, Signal::KILL);
        let _ = self.0.wait();
    }
}
