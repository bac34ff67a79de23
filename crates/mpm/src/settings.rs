//! What the parent needs of a configuration, and the interface of the server that it runs. The
//! binary provides both.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_message::Notice;
use evenkeel_scoreboard::LineStore;
use evenkeel_sys::identity::Identity;
use evenkeel_sys::process::{End, Pid};

use crate::child::Child;
use crate::limits::Configured;
use crate::listen::Listen;
use crate::oom_score::OomScore;

/// A configuration that was read completely.
pub struct Loaded<Site> {
    /// What the serving function serves; opaque to the parent.
    pub site: Site,
    /// What the parent needs.
    pub settings: Settings,
}

/// The parent's part of a configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen, in the order of the configuration.
    pub listen: Vec<Listen>,
    /// ListenBacklog; net.core.somaxconn where it is not configured.
    pub backlog: Option<u32>,
    /// SendBufferSize in bytes.
    pub send_buffer: Option<usize>,
    /// ReceiveBufferSize in bytes.
    pub receive_buffer: Option<usize>,
    /// PidFile, as an absolute path; none without one.
    pub pid_file: Option<PathBuf>,
    /// User and Group, with all groups. `None`: the children keep the parent's identity.
    pub identity: Option<Identity>,
    /// ChrootDir: the root folder of the children, set before they drop their privileges.
    pub chroot: Option<PathBuf>,
    /// CoreDumpDirectory, which also allows core files of children.
    pub core_dumps: Option<PathBuf>,
    /// The process model and its directives as written.
    pub configured: Configured,
    /// The position of the line of ThreadsPerChild, in words.
    pub threads_per_child: Option<String>,
    /// GracefulShutdownTimeout; zero and unset mean no bound.
    pub graceful_shutdown_timeout: Option<Duration>,
    /// How many log buffers each child has.
    pub log_buffers: usize,
    /// Bytes of each log buffer.
    pub log_buffer_bytes: usize,
    /// The server's name in `... configured -- resuming normal operations`.
    pub server_text: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            backlog: None,
            send_buffer: None,
            receive_buffer: None,
            pid_file: None,
            identity: None,
            chroot: None,
            core_dumps: None,
            configured: Configured::default(),
            threads_per_child: None,
            graceful_shutdown_timeout: None,
            log_buffers: 0,
            log_buffer_bytes: 64 * 1024,
            server_text: String::from("Evenkeel"),
        }
    }
}

/// The server that the parent runs.
pub trait Server {
    /// A configuration in the form that the serving function needs.
    type Site;

    /// Descriptors beside the listening sockets for a program that takes over, with their names.
    fn bequest(&self) -> Vec<(BorrowedFd<'_>, &'static str)> {
        Vec::new()
    }

    /// Called before the first [`Server::load`] with the [`Server::bequest`] of a predecessor,
    /// which may be another version of this program.
    fn inherit(&mut self, _bequest: Vec<(OwnedFd, String)>) {}

    /// Reads the whole configuration, changing nothing. On a reload it is called in a forked copy
    /// of the parent first, where neither a crash nor an endless loop does harm. It must not log;
    /// its error, one or more lines for the administrator, is the result.
    fn load(&mut self) -> Result<Loaded<Self::Site>, String>;

    /// Opens what the site needs in the parent, beginning with its logs, and sends later notices
    /// there. It is called before its children start, and again with the old site if children of a
    /// new one could not start. After an error the earlier site is still active.
    fn activate(&mut self, site: &Rc<Self::Site>) -> Result<(), String>;

    /// Serves until told to end, in the child, after privileges are dropped. Returns the exit
    /// status of the process. It must call `child.control.ready()` once it accepts, and act on each
    /// [`crate::Command`].
    fn serve(&self, site: &Self::Site, child: Child) -> i32;

    /// Called in a child for each site that it may hold and does not serve, before it drops them.
    /// To free the memory of a site would take more memory than it gives back, if the child shares
    /// it with the parent.
    fn disown(&self, _site: &Self::Site) {}

    /// Writes a notice to the error log of the active site; to standard error before there is one.
    fn log(&self, notice: &Notice);

    /// Writes the lines that an ended child of this site has left in a log buffer. Returns how many
    /// bytes were lost.
    fn salvage(&self, site: &Self::Site, buffer: usize, lines: &[u8]) -> usize;

    /// Called at the end of a process that the server started itself, such as a piped logger.
    fn reaped(&mut self, pid: Pid, end: End);

    /// Called in each pass of the parent's loop, at least once a second: the place to restart a
    /// piped logger.
    fn turn(&mut self) {}

    /// A descriptor that is readable when [`Server::turn`] has something to do.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// When [`Server::turn`] has something to do in any case, in microseconds of the monotonic
    /// clock.
    fn next_us(&self) -> Option<u64> {
        None
    }

    /// Called at the end of the child that has had this line of the scoreboard.
    fn child_ended(&mut self, _index: usize) {}
}

/// How the server is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The relation to the calling process.
    pub mode: Mode,
    /// The command line, as the error log shows it (AH00094).
    pub command_line: String,
    /// The program's name in messages.
    pub program: String,
    /// The arguments with which a new program takes over: those of the command line, except those
    /// that address a running server.
    pub again: Vec<String>,
}

/// The relation of the server to the process that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The calling process is the parent (-DFOREGROUND).
    Foreground,
    /// A new process without the terminal is the parent. The caller ends with status 0 once the
    /// server serves, and with 1 if it cannot.
    Detached,
    /// The calling process serves by itself and starts no other (-X).
    OneProcess,
}

/// An active configuration, shared by the children that serve it.
pub(crate) struct Generation<Site> {
    pub(crate) number: u32,
    pub(crate) site: Rc<Site>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) limits: crate::limits::Limits,
    /// The log buffers of its children.
    pub(crate) lines: Rc<LineStore>,
    pub(crate) oom_score: OomScore,
}

impl Settings {
    /// The log buffers of this configuration's children. The error is the text for the
    /// administrator.
    pub(crate) fn line_store(&self) -> Result<Rc<LineStore>, String> {
        let store = LineStore::new(self.log_buffers, self.log_buffer_bytes);
        store.map(Rc::new).map_err(|error| format!("log buffers cannot be made: {error}"))
    }
}
