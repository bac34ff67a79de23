//! The servers that are measured: those that the lab knows, an earlier build of Evenkeel, and the
//! ceiling. Starts a server on a core of its own.

use crate::Result;
use crate::application::Application;
use crate::load::{Asked, Work};
use crate::passwords;
use crate::spread::Spread;
use evenkeel_lab::peers::{Peer, Server, Setup, Site};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The core of the servers. The clients have another one.
pub const SERVER_CORE: usize = 0;
/// The core of the clients.
pub const CLIENT_CORE: usize = 1;

/// The names of an earlier build with its process models.
const BEFORE: [(Peer, &str); 3] = [
    (Peer::Evenkeel, "before"),
    (Peer::EvenkeelWorker, "before-worker"),
    (Peer::EvenkeelPrefork, "before-prefork"),
];

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A server that the lab knows.
    Peer(Peer),
    /// An earlier build of Evenkeel, which the variable `EVENKEEL_BEFORE` names, with one of its
    /// process models.
    Before(Peer),
    /// A bare loop with a fixed response in memory.
    Ceiling,
}

impl Kind {
    /// This project's server.
    pub const EVENKEEL: Self = Self::Peer(Peer::Evenkeel);

    /// The kind with that name on the command line.
    pub fn named(name: &str) -> Result<Self> {
        if name == Self::Ceiling.name() {
            return Ok(Self::Ceiling);
        }
        if let Some((peer, _)) = BEFORE.iter().find(|(_, other)| *other == name) {
            return Ok(Self::Before(*peer));
        }
        Peer::named(name).map(Self::Peer).ok_or_else(|| {
            let before = BEFORE.map(|(_, name)| name).join(", ");
            let there = format!("ceiling, {before}, {}", Peer::names());
            format!("{name}: no such contender; there are: {there}")
        })
    }

    /// The name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Peer(peer) => peer.name(),
            Self::Before(peer) => {
                BEFORE.iter().find(|(other, _)| *other == peer).map_or("", |(_, name)| *name)
            }
            Self::Ceiling => "ceiling",
        }
    }

    /// Whether the server cannot share the folder of a site with the others, because the files of
    /// its configuration and its logs have the names of another one's.
    pub fn needs_own_site(self) -> bool {
        matches!(self, Self::Before(_))
    }

    /// Whether the server can answer these requests only by an application behind it: responses
    /// that wait.
    pub fn needs_backend(self, asked: &Asked) -> bool {
        asked.wait_ms > 0 && matches!(self, Self::Peer(peer) if !peer.is_own())
    }

    /// Starts a server for these requests. `backend` is the application for servers that need one.
    pub fn start(self, site: &Site, asked: &Asked, backend: Option<SocketAddr>) -> Result<Server> {
        let backend = backend.filter(|_| self.needs_backend(asked));
        let setup = Setup { backend, ..setup(asked) };
        match self {
            Self::Peer(peer) => peer.start(site, &setup),
            Self::Before(peer) => {
                let program = std::env::var_os("EVENKEEL_BEFORE").map(PathBuf::from);
                let program = program.ok_or("EVENKEEL_BEFORE does not name an earlier build")?;
                Server::start(self.name(), site, &setup.cores, |port| {
                    peer.command(&program, site.path(), port, &setup)
                })
            }
            Self::Ceiling => Server::start(self.name(), site, &setup.cores, |port| {
                let exe = std::env::current_exe().map_err(|error| error.to_string())?;
                let mut command = Command::new(exe);
                let numbers = [u64::from(port), asked.bytes() as u64, asked.wait_ms];
                command.arg("ceiling").args(numbers.map(|number| number.to_string()));
                Ok(command)
            }),
        }
    }
}

/// The setup of a server for these requests.
fn setup(asked: &Asked) -> Setup {
    let waits = asked.wait_ms > 0;
    let cores = vec![SERVER_CORE];
    let hosts = asked.spread.map_or(0, Spread::hosts);
    let (stock, http2) = (asked.stock, asked.http2.map(|(how, _)| how));
    Setup { cores, auto: waits, lab: waits, stock, hosts, http2, ..Setup::default() }
}

/// The page that the filter INCLUDES parses: the file of P1 once more.
pub const PARSED: &str = "/parsed/1k.png";

/// Writes the page that is parsed, and returns the lines of configuration for it.
fn includes(site: &Site) -> Result<String> {
    let told = |error: std::io::Error| format!("{}: {error}", site.path().display());
    let htdocs = site.path().join("htdocs");
    fs::create_dir_all(htdocs.join("parsed")).map_err(told)?;
    fs::copy(htdocs.join("1k.png"), htdocs.join("parsed/1k.png")).map_err(told)?;
    Ok("LoadModule include_module modules/mod_include.so\n\
        <Location /parsed>\nOptions +Includes\nSetOutputFilter INCLUDES\n</Location>\n"
        .to_owned())
}

/// Starts Evenkeel as one process under callgrind, which writes its counts to a file when the
/// server ends.
pub fn start_counted(
    site: &Site,
    counts: &Path,
    asked: &Asked,
    application: Option<&Application>,
) -> Result<Server> {
    let peer = Peer::Evenkeel;
    let mut setup = setup(asked);
    setup.more = match asked.work {
        Work::Nothing => String::new(),
        Work::Login => passwords::protection(&passwords::lay_out(site)?),
        Work::Includes => includes(site)?,
        Work::Application => application.map(Application::configuration).unwrap_or_default(),
    };
    let server = Server::start(peer.name(), site, &setup.cores, |port| {
        let program = peer.program().ok_or("evenkeel is not built")?;
        let own = peer.configure(site.path(), port, &setup)?;
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--tool=callgrind"]);
        command.arg(format!("--callgrind-out-file={}", counts.display()));
        command.arg(program).arg("-X").arg("-f").arg(own);
        Ok(command)
    })?;
    // Valgrind creates the file without permissions for others, and writes it as the user that the
    // server has become by then.
    fs::set_permissions(counts, fs::Permissions::from_mode(0o666))
        .map_err(|error| format!("{}: {error}", counts.display()))?;
    Ok(server)
}
