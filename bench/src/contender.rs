//! Who is measured. A kind of server and the folder come in; a running server on a loopback port
//! goes out, with the configuration that an administrator would give it: files on disk, the access
//! log on, sections for folders, status. It is stopped by its process id when it is let go.

use crate::Result;
use crate::family::Family;
use crate::site::{Place, size_of};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The core that servers run on; the clients have another.
pub const SERVER_CORE: &str = "0";
/// The core that clients run on.
pub const CLIENT_CORE: &str = "1";

/// How long a server may take to begin and to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long to wait between two looks at it.
const GLANCE: Duration = Duration::from_millis(10);

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// This project's server.
    Evenkeel,
    /// A bare loop with a fixed answer in memory.
    Ceiling,
    /// nginx as Debian's configuration has it.
    Nginx,
    /// nginx with open_file_cache, deferred accept and a buffered log.
    NginxOfc,
    /// h2o, which keeps files open by itself.
    H2o,
    /// Apache with its event model.
    Apache,
}

/// A running server.
pub struct Server {
    /// What it is.
    pub kind: Kind,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its processes.
    pub family: Family,
    child: Child,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::Evenkeel, "evenkeel"),
    (Kind::Ceiling, "ceiling"),
    (Kind::Nginx, "nginx"),
    (Kind::NginxOfc, "nginx-ofc"),
    (Kind::H2o, "h2o"),
    (Kind::Apache, "apache2"),
];

impl Kind {
    /// The kind by its name on the command line.
    pub fn named(name: &str) -> Result<Self> {
        let found = KINDS.iter().find(|(_, other)| *other == name);
        found.map(|(kind, _)| *kind).ok_or_else(|| {
            let names = KINDS.map(|(_, name)| name).join(", ");
            format!("{name}: no such contender; there are: {names}")
        })
    }

    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(other, _)| *other == self).map_or("", |(_, name)| *name)
    }

    /// Writes its configuration and tells where.
    fn write(self, root: &Path, text: String) -> Result<PathBuf> {
        let own = root.join(format!("{}.conf", self.name()));
        fs::write(&own, text).map_err(|error| format!("{}: {error}", own.display()))?;
        Ok(own)
    }

    /// The command that serves `path` of the site on `port` in the foreground.
    fn command(self, root: &Path, port: u16, path: &str) -> Result<Command> {
        let exe = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new("taskset");
        command.args(["-c", SERVER_CORE]);
        match self {
            Self::Evenkeel => {
                let own = self.write(root, httpd(root, port, self))?;
                command.arg(evenkeel(&exe)).arg("-DFOREGROUND").arg("-f").arg(own);
            }
            Self::Apache => {
                let own = self.write(root, httpd(root, port, self))?;
                command.arg("/usr/sbin/apache2").arg("-DFOREGROUND").arg("-f").arg(own);
            }
            Self::Nginx | Self::NginxOfc => {
                let own = self.write(root, nginx(root, port, self))?;
                command.arg("nginx").arg("-c").arg(own);
            }
            Self::H2o => {
                let own = self.write(root, h2o(root, port))?;
                command.arg("h2o").arg("-c").arg(own);
            }
            Self::Ceiling => {
                command.arg(exe).arg("ceiling").arg(port.to_string());
                command.arg(size_of(path).to_string());
            }
        }
        Ok(command)
    }
}

fn evenkeel(bench: &Path) -> PathBuf {
    match std::env::var_os("EVENKEEL") {
        Some(named) => PathBuf::from(named),
        None => bench.with_file_name("evenkeel"),
    }
}

impl Server {
    /// Starts a server that is going to be asked for `path`.
    pub fn start(kind: Kind, place: &Place, path: &str) -> Result<Self> {
        Self::spawn(kind, place, |port| kind.command(place.path(), port, path))
    }

    /// Starts Evenkeel as one process under callgrind, which writes its counts to a file when the
    /// server ends.
    pub fn start_counted(place: &Place, counts: &Path) -> Result<Self> {
        let kind = Kind::Evenkeel;
        let server = Self::spawn(kind, place, |port| {
            let exe = std::env::current_exe().map_err(|error| error.to_string())?;
            let own = kind.write(place.path(), httpd(place.path(), port, kind))?;
            let mut command = Command::new("taskset");
            command.args(["-c", SERVER_CORE, "valgrind", "--quiet", "--tool=callgrind"]);
            command.arg(format!("--callgrind-out-file={}", counts.display()));
            command.arg(evenkeel(&exe)).arg("-X").arg("-f").arg(own);
            Ok(command)
        })?;
        // Valgrind makes the file for itself alone and writes it as the user that the server has
        // become by then.
        fs::set_permissions(counts, fs::Permissions::from_mode(0o666))
            .map_err(|error| format!("{}: {error}", counts.display()))?;
        Ok(server)
    }

    /// Runs a command that serves on a free port, and waits until it does.
    fn spawn(
        kind: Kind,
        place: &Place,
        command: impl FnOnce(u16) -> Result<Command>,
    ) -> Result<Self> {
        let told = |error: std::io::Error| format!("{}: {error}", kind.name());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(told)?;
        let address = listener.local_addr().map_err(told)?;
        drop(listener);
        let said = place.path().join(format!("logs/{}.said", kind.name()));
        let output = File::create(&said).map_err(told)?;
        let child = command(address.port())?
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(told)?)
            .stderr(output)
            .spawn()
            .map_err(told)?;
        let family = Family::new(child.id());
        let mut server = Self { kind, address, family, child };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = server.child.try_wait().map_err(told)?.is_some();
            if ended || begun.elapsed() > PATIENCE {
                let text = fs::read_to_string(&said).unwrap_or_default();
                return Err(format!("{} does not serve: {text}", kind.name()));
            }
            sleep(GLANCE);
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return };
        let _ = kill_process(pid, Signal::TERM);
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE {
                let _ = self.child.kill();
            }
            sleep(GLANCE);
        }
    }
}

/// The configuration that Evenkeel and Apache share. Apache's event model is given room for the
/// idle connections of P11; Evenkeel needs none.
fn httpd(root: &Path, port: u16, kind: Kind) -> String {
    let root = root.display();
    let name = kind.name();
    let modules = [
        "mpm_event",
        "authz_core",
        "authz_host",
        "dir",
        "mime",
        "headers",
        "setenvif",
        "reqtimeout",
        "status",
    ];
    let load: String = modules
        .iter()
        .map(|it| format!("LoadModule {it}_module /usr/lib/apache2/modules/mod_{it}.so\n"))
        .collect();
    format!(
        "\
{load}ServerName localhost
ServerRoot {root}
DefaultRuntimeDir {root}/logs
PidFile {root}/logs/{name}.pid
Listen 127.0.0.1:{port}
User www-data
Group www-data
ServerLimit 16
StartServers 1
ThreadsPerChild 64
MinSpareThreads 64
MaxSpareThreads 256
MaxRequestWorkers 1024
AsyncRequestWorkerFactor 20
ListenBacklog 4096
Timeout 300
KeepAlive On
KeepAliveTimeout 300
MaxKeepAliveRequests 0
<IfModule reqtimeout_module>
    RequestReadTimeout header=20-40,minrate=500 body=20,minrate=500
</IfModule>
ExtendedStatus On
TypesConfig /etc/mime.types
DocumentRoot {root}/htdocs
<IfModule dir_module>
    DirectoryIndex index.html
</IfModule>
ErrorLog {root}/logs/{name}-error.log
LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" combined
CustomLog {root}/logs/{name}-access.log combined
<Directory />
    Options FollowSymLinks
    AllowOverride None
    Require all denied
</Directory>
<Directory {root}/htdocs>
    Options Indexes FollowSymLinks
    AllowOverride None
    Require all granted
</Directory>
<FilesMatch \"^\\.ht\">
    Require all denied
</FilesMatch>
<Location /server-status>
    SetHandler server-status
    Require local
</Location>
"
    )
}

fn nginx(root: &Path, port: u16, kind: Kind) -> String {
    let root = root.display();
    let name = kind.name();
    let tuned = kind == Kind::NginxOfc;
    let cache = if tuned {
        "open_file_cache max=10000 inactive=60s;\n    open_file_cache_valid 1s;\n    \
         open_file_cache_errors on;"
    } else {
        ""
    };
    let (deferred, buffer) = if tuned { (" deferred", " buffer=64k flush=1s") } else { ("", "") };
    format!(
        "\
daemon off;
user www-data;
worker_processes 1;
worker_rlimit_nofile 40000;
pid {root}/logs/{name}.pid;
error_log {root}/logs/{name}-error.log;
events {{ worker_connections 20000; }}
http {{
    include /etc/nginx/mime.types;
    sendfile on;
    tcp_nopush on;
    types_hash_max_size 2048;
    keepalive_timeout 300s;
    keepalive_requests 1000000000;
    access_log {root}/logs/{name}-access.log combined{buffer};
    {cache}
    server {{
        listen 127.0.0.1:{port} backlog=4096{deferred};
        server_name localhost;
        root {root}/htdocs;
        index index.html;
        location / {{ try_files $uri $uri/ =404; }}
        location ~ /\\.ht {{ deny all; }}
        location = /server-status {{ stub_status; allow 127.0.0.1; deny all; }}
    }}
}}
"
    )
}

fn h2o(root: &Path, port: u16) -> String {
    let root = root.display();
    format!(
        "\
user: www-data
num-threads: 1
max-connections: 20000
http1-request-timeout: 300
pid-file: {root}/logs/h2o.pid
error-log: {root}/logs/h2o-error.log
access-log: {root}/logs/h2o-access.log
listen:
  host: 127.0.0.1
  port: {port}
hosts:
  default:
    paths:
      /:
        file.dir: {root}/htdocs
"
    )
}
