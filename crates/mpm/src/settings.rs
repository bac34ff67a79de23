//! What the parent has to know of a configuration, and what it asks of the server that it runs.
//! The binary fills in and implements these; nothing here knows HTTP or a directive's text.

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

/// A configuration that was read whole.
pub struct Loaded<Site> {
    /// What the serving function serves; opaque to the parent.
    pub site: Site,
    /// What the parent acts on.
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
    /// PidFile, as an absolute path; none where nothing would look for it.
    pub pid_file: Option<PathBuf>,
    /// User and Group with all their groups. `None`: the children stay who the parent is.
    pub identity: Option<Identity>,
    /// ChrootDir: where the children are locked in before they give up their rights.
    pub chroot: Option<PathBuf>,
    /// CoreDumpDirectory, with which core files of children stay possible.
    pub core_dumps: Option<PathBuf>,
    /// The process model and its directives as they were written.
    pub configured: Configured,
    /// Where the line of ThreadsPerChild stands, in words.
    pub threads_per_child: Option<String>,
    /// GracefulShutdownTimeout; zero and unset mean no bound of the administrator's.
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

    /// Reads the whole configuration anew, changing nothing. On a reload it is called in a forked
    /// copy of the parent first, where neither a crash nor an endless loop does harm; it must not
    /// log, its error (one or more lines, as the administrator is to see them) is the answer.
    fn load(&mut self) -> Result<Loaded<Self::Site>, String>;

    /// Opens what the site needs in the parent, its logs first of all, and sends later notices
    /// there. Called before its children start; again with the old site where children of a new
    /// one could not start. After an error the site that was active before is still active.
    fn activate(&mut self, site: &Rc<Self::Site>) -> Result<(), String>;

    /// Serves until told to end, in the child, after privileges are dropped. Returns the
    /// process's exit status. It must call `child.control.ready()` when it accepts, and act on
    /// each [`crate::Command`].
    fn serve(&self, site: &Self::Site, child: Child) -> i32;

    /// Writes a notice to the error log of the active site; to standard error before there is
    /// one.
    fn log(&self, notice: &Notice);

    /// Writes out the lines that a child of this site, which has ended, left in a log buffer.
    /// How many bytes of them found no room.
    fn salvage(&self, site: &Self::Site, buffer: usize, lines: &[u8]) -> usize;

    /// Hears of the end of a process that the server started itself, such as a piped logger.
    fn reaped(&mut self, pid: Pid, end: End);

    /// Called on each turn of the parent's loop, at least once a second: the place to start a
    /// piped logger again.
    fn turn(&mut self) {}
}

/// How the server is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// In which relation to the caller.
    pub mode: Mode,
    /// The command line, as the error log shows it (AH00094).
    pub command_line: String,
    /// The program's name in messages.
    pub program: String,
    /// The words behind the program's name with which a new program takes over: those of the
    /// command line, without what would ask a running server.
    pub again: Vec<String>,
}

/// In which relation the server stands to the process that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The calling process is the parent (-DFOREGROUND).
    Foreground,
    /// A new process, away from the terminal, is the parent; the caller ends with status 0 once
    /// the server serves, with 1 if it cannot.
    Detached,
    /// The calling process serves itself, no other is started (-X).
    OneProcess,
}

/// A configuration in force, shared by the children that serve it.
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
    /// Where children of this configuration have their log buffers. The error is what to tell the
    /// administrator.
    pub(crate) fn line_store(&self) -> Result<Rc<LineStore>, String> {
        let store = LineStore::new(self.log_buffers, self.log_buffer_bytes);
        store.map(Rc::new).map_err(|error| format!("log buffers cannot be made: {error}"))
    }
}
