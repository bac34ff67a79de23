//! The servers that are measured. [`Peer::start`] runs one on a loopback port with a realistic
//! configuration: files on disk, the access log on, sections or locations for folders, a status
//! page. A server is stopped by its process id when it is dropped.

mod configuration;
mod php;
mod server;
mod site;
mod stock;

pub use configuration::GATE;
pub use php::php;
pub use server::Server;
pub use site::{FILES, Site, host_name, size_of};

use crate::sim::Model;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server program with one of its configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// This project's server, with its event model.
    Evenkeel,
    /// The same with its worker model.
    EvenkeelWorker,
    /// The same with its prefork model.
    EvenkeelPrefork,
    /// Apache with its event model.
    Apache,
    /// Apache with its worker model.
    ApacheWorker,
    /// Apache with its prefork model.
    ApachePrefork,
    /// nginx with Debian's configuration.
    Nginx,
    /// nginx with open_file_cache, deferred accept and a buffered log.
    NginxTuned,
    /// h2o, which keeps files open by itself.
    H2o,
    /// lighttpd.
    Lighttpd,
    /// HAProxy, which answers small files from its memory.
    Haproxy,
    /// Caddy.
    Caddy,
}

/// The resources and settings of a server.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// The cores that it runs on; empty for all.
    pub cores: Vec<usize>,
    /// The directives of the process model of Evenkeel and Apache, in place of the defaults.
    pub pool: Option<Pool>,
    /// The application behind `/wait` and `/burn`, for servers that cannot do this themselves.
    pub backend: Option<SocketAddr>,
    /// Whether Evenkeel has `/wait`, `/burn` and `/gate` even if there is no application for
    /// others.
    pub lab: bool,
    /// Whether the number of workers adjusts itself (MaxRequestWorkers auto); only Evenkeel.
    pub auto: bool,
    /// ListenBacklog, if it is not the default.
    pub backlog: Option<u32>,
    /// Whether Evenkeel and Apache have Debian's stock configuration instead of a short one.
    pub stock: bool,
    /// A line of shell that the process runs before it becomes the server, to put itself under
    /// limits.
    pub through: Option<String>,
    /// php-fpm, which takes the place of the application.
    pub php: Option<SocketAddr>,
    /// More lines of configuration; only Evenkeel and Apache.
    pub more: String,
    /// The number of name-based virtual hosts besides the usual one, each with a folder of its own
    /// ([`Site::add_hosts`]); only Evenkeel, Apache and nginx.
    pub hosts: usize,
    /// Whether the server speaks HTTP/2; only Evenkeel, Apache, nginx and h2o.
    pub http2: Option<Http2>,
}

/// How a server speaks HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http2 {
    /// In clear text.
    ClearText,
    /// Over TLS, with the certificate of the site ([`Site::add_certificate`]).
    Tls,
}

/// The directives of a process model, in threads. In prefork each process has one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// StartServers.
    pub start_servers: usize,
    /// ThreadsPerChild.
    pub threads: usize,
    /// MinSpareThreads.
    pub min_spare: usize,
    /// MaxSpareThreads.
    pub max_spare: usize,
    /// MaxRequestWorkers.
    pub workers: usize,
    /// ListenCoresBucketsRatio, if it is configured.
    pub buckets_ratio: Option<usize>,
    /// LabChildStartDelay in milliseconds; only Evenkeel.
    pub start_delay_ms: u64,
}

impl Pool {
    /// The directives in the report of 2002 on a load spike.
    pub const OF_2002: Self = Self {
        start_servers: 1,
        threads: 64,
        min_spare: 64,
        max_spare: 192,
        workers: 1024,
        buckets_ratio: None,
        start_delay_ms: 0,
    };
}

impl Setup {
    /// Whether Evenkeel implements the paths that other servers forward to an application.
    fn has_lab(&self) -> bool {
        self.lab || self.backend.is_some()
    }

    /// The number of workers, threads or processes for a server that is sized by cores.
    fn workers(&self) -> usize {
        if self.cores.is_empty() { evenkeel_sys::process::usable_cores() } else { self.cores.len() }
    }
}

const NAMES: [(Peer, &str, &str); 12] = [
    (Peer::Evenkeel, "evenkeel", "evenkeel"),
    (Peer::EvenkeelWorker, "evenkeel-worker", "evenkeel"),
    (Peer::EvenkeelPrefork, "evenkeel-prefork", "evenkeel"),
    (Peer::Apache, "apache2", "apache2"),
    (Peer::ApacheWorker, "apache2-worker", "apache2"),
    (Peer::ApachePrefork, "apache2-prefork", "apache2"),
    (Peer::Nginx, "nginx", "nginx"),
    (Peer::NginxTuned, "nginx-ofc", "nginx"),
    (Peer::H2o, "h2o", "h2o"),
    (Peer::Lighttpd, "lighttpd", "lighttpd"),
    (Peer::Haproxy, "haproxy", "haproxy"),
    (Peer::Caddy, "caddy", "caddy"),
];

impl Peer {
    /// The peer with that name on the command line.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, other, _)| *other == name).map(|(peer, ..)| *peer)
    }

    /// All names, for messages.
    #[must_use]
    pub fn names() -> String {
        NAMES.map(|(_, name, _)| name).join(", ")
    }

    /// The names of all servers except Evenkeel, as a list.
    #[must_use]
    pub fn others() -> String {
        let others = NAMES.iter().filter(|(peer, ..)| !peer.is_own()).map(|(_, name, _)| *name);
        others.collect::<Vec<_>>().join(",")
    }

    /// Whether it is Evenkeel, with any process model.
    #[must_use]
    pub fn is_own(self) -> bool {
        matches!(self, Self::Evenkeel | Self::EvenkeelWorker | Self::EvenkeelPrefork)
    }

    /// Its process model, if it has one of Apache's.
    #[must_use]
    pub fn model(self) -> Option<Model> {
        match self {
            Self::Evenkeel | Self::Apache => Some(Model::Event),
            Self::EvenkeelWorker | Self::ApacheWorker => Some(Model::Worker),
            Self::EvenkeelPrefork | Self::ApachePrefork => Some(Model::Prefork),
            _ => None,
        }
    }

    /// Evenkeel with that process model.
    #[must_use]
    pub fn ours(model: Model) -> Self {
        match model {
            Model::Event => Self::Evenkeel,
            Model::Worker => Self::EvenkeelWorker,
            Model::Prefork => Self::EvenkeelPrefork,
        }
    }

    /// Apache with that process model.
    #[must_use]
    pub fn apache(model: Model) -> Self {
        match model {
            Model::Event => Self::Apache,
            Model::Worker => Self::ApacheWorker,
            Model::Prefork => Self::ApachePrefork,
        }
    }

    /// The name on the command line and in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(other, ..)| *other == self).map_or("", |(_, name, _)| *name)
    }

    /// Its program, if installed. For Evenkeel it is the one that the variable EVENKEEL names, the
    /// one beside this executable, or one in the same places as the others.
    #[must_use]
    pub fn program(self) -> Option<PathBuf> {
        let (_, _, program) = NAMES.iter().find(|(other, ..)| *other == self)?;
        let mut beside = None;
        if self.is_own() {
            if let Some(named) = std::env::var_os("EVENKEEL") {
                return Some(PathBuf::from(named));
            }
            let own = std::env::current_exe().ok()?;
            beside = own.parent().map(Path::to_path_buf);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        // The PATH of a user often lacks the folders of servers.
        let system = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
        let folders = beside.into_iter().chain(std::env::split_paths(&path)).chain(system);
        folders.map(|folder| folder.join(program)).find(|path| path.is_file())
    }

    /// The version that it reports, in one line.
    #[must_use]
    pub fn version(self) -> String {
        let Some(program) = self.program() else { return String::new() };
        let option = match self {
            Self::Caddy => "version",
            _ => "-v",
        };
        let Ok(output) = Command::new(program).arg(option).output() else { return String::new() };
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let first = text.lines().next().unwrap_or_default();
        first
            .trim_start_matches("Server version: ")
            .trim_start_matches("nginx version: ")
            .to_owned()
    }

    /// Whether it can serve a file of this size, and answer 304 for it.
    #[must_use]
    pub fn serves(self, bytes: usize, conditional: bool) -> bool {
        // What HAProxy answers itself must fit into one of its buffers, and has no entity tag.
        self != Self::Haproxy || (bytes <= 16 << 10 && !conditional)
    }

    /// Whether it can be configured with many name-based hosts ([`Setup::hosts`]).
    #[must_use]
    pub fn has_hosts(self) -> bool {
        self.model().is_some() || matches!(self, Self::Nginx | Self::NginxTuned)
    }

    /// Whether it can be configured for HTTP/2 ([`Setup::http2`]).
    #[must_use]
    pub fn has_http2(self) -> bool {
        self.has_hosts() || self == Self::H2o
    }

    /// Starts it.
    ///
    /// # Errors
    ///
    /// It is not installed, or what it printed when it did not serve.
    pub fn start(self, site: &Site, setup: &Setup) -> Result<Server, String> {
        let program = self.program().ok_or_else(|| format!("{}: not installed", self.name()))?;
        Server::start(self.name(), site, &setup.cores, |port| {
            self.command(&program, site.path(), port, setup)
        })
    }

    /// Writes its configuration for the site at `root` and returns the path.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn configure(self, root: &Path, port: u16, setup: &Setup) -> Result<PathBuf, String> {
        if setup.hosts > 0 && !self.has_hosts() {
            return Err(format!("{}: is not set up for many hosts here", self.name()));
        }
        if setup.http2.is_some() && !self.has_http2() {
            return Err(format!("{}: is not set up for HTTP/2 here", self.name()));
        }
        let own = root.join(format!("{}.conf", self.name()));
        let text = configuration::text(self, root, port, setup);
        std::fs::write(&own, text).map_err(|error| format!("{}: {error}", own.display()))?;
        Ok(own)
    }

    /// The command by which `program` serves the site at `root` on `port` in the foreground.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn command(
        self,
        program: &Path,
        root: &Path,
        port: u16,
        setup: &Setup,
    ) -> Result<Command, String> {
        let own = self.configure(root, port, setup)?;
        let mut command = match &setup.through {
            Some(line) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("{line}; exec \"$0\" \"$@\"")]).arg(program);
                shell
            }
            None => Command::new(program),
        };
        match self {
            _ if self.model().is_some() => {
                command.arg("-DFOREGROUND").arg("-f").arg(&own);
            }
            Self::Nginx | Self::NginxTuned | Self::H2o => {
                command.arg("-c").arg(&own);
            }
            Self::Lighttpd => {
                command.arg("-D").arg("-f").arg(&own);
            }
            Self::Haproxy => {
                command.arg("-db").arg("-f").arg(&own);
            }
            _ => {
                command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&own);
                command.env("GOMAXPROCS", setup.workers().to_string());
                command.env("HOME", root).env("XDG_DATA_HOME", root).env("XDG_CONFIG_HOME", root);
            }
        }
        Ok(command)
    }
}

/// The installed peers from a list of names, and separately those that are missing.
///
/// # Errors
///
/// A name that does not exist.
pub fn installed(names: &str) -> Result<(Vec<Peer>, Vec<&'static str>), String> {
    let (mut here, mut missing) = (Vec::new(), Vec::new());
    for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let peer = Peer::named(name)
            .ok_or_else(|| format!("{name}: no such server; there are: {}", Peer::names()))?;
        if peer.program().is_none() {
            missing.push(peer.name());
        } else if !here.contains(&peer) {
            here.push(peer);
        }
    }
    Ok((here, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_peers() {
        for (peer, name, _) in NAMES {
            assert_eq!((Peer::named(name), peer.name()), (Some(peer), name));
        }
        assert!(Peer::others().starts_with("apache2,") && Peer::EvenkeelPrefork.is_own());
        assert!(installed("iis").unwrap_err().contains("apache2-prefork"));
        assert_eq!(installed("").unwrap(), (Vec::new(), Vec::new()));
    }

    #[test]
    fn what_a_small_buffer_cannot_hold_is_not_asked_of_haproxy() {
        assert!(Peer::Haproxy.serves(1 << 10, false) && !Peer::Haproxy.serves(1 << 20, false));
        assert!(Peer::Nginx.serves(1 << 30, true) && !Peer::Haproxy.serves(1, true));
    }
}
