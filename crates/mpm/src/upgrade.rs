//! The change of the program itself: the parent starts it anew beside itself, with the listening
//! sockets passed as a supervisor would pass them, and goes only when the new one says that it
//! serves. Before the new one listens on further sockets, the old one has them too: one that fails
//! leaves what the kernel has queued there to be served by the old one.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::Duration;

use evenkeel_sys::activation;
use evenkeel_sys::channel::{Channel, MOST_DESCRIPTORS, Received, wait_readable};
use evenkeel_sys::clock;
use evenkeel_sys::process::{self, Pid, Side};
use evenkeel_sys::signal::Signal;

use crate::change::{Restart, State};
use crate::child::Command;
use crate::listeners::Listeners;
use crate::notices::ParentEvent;
use crate::parent::Parent;
use crate::settings::Server;

/// The name under which the channel to the old parent is passed.
pub(crate) const NAME: &str = "evenkeel-upgrade";

/// How long the new program may take until it serves.
const TIMEOUT_US: u64 = 120_000_000;

/// What the new parent says when it serves.
const SERVES: u8 = b'S';

/// What it says with sockets that are about to listen, and what the old one answers.
const LISTENS: u8 = b'L';
const HELD: u8 = b'H';

/// How long the new parent waits for that answer.
const ANSWERED: Duration = Duration::from_secs(10);

/// How this program was called.
pub(crate) struct Invocation {
    program: PathBuf,
    name: OsString,
    folder: Option<PathBuf>,
}

impl Invocation {
    /// To be called before the process changes its folder or its program's file is replaced.
    pub(crate) fn take() -> Self {
        let name = std::env::args_os().next().unwrap_or_default();
        let folder = std::env::current_dir().ok();
        // A name without a folder was looked up in PATH.
        let by_name = Path::new(&name).components().count() > 1;
        let program = match &folder {
            Some(folder) if by_name => folder.join(&name),
            _ => std::env::current_exe().unwrap_or_else(|_| PathBuf::from(&name)),
        };
        Self { program, name, folder }
    }

    fn command(&self, words: &[String]) -> Program {
        use std::os::unix::process::CommandExt;
        let mut command = Program::new(&self.program);
        command.arg0(&self.name).args(words);
        if let Some(folder) = self.folder.as_deref().filter(|folder| folder.is_dir()) {
            command.current_dir(folder);
        }
        command
    }
}

/// A new program that starts.
pub(crate) struct Upgrade {
    pid: Pid,
    channel: Channel,
    /// When it is given up; never once it is.
    pub(crate) late_us: u64,
    /// What it has opened.
    sockets: Vec<OwnedFd>,
    /// A reload asked for meanwhile.
    pub(crate) next: Option<Restart>,
}

impl Upgrade {
    /// Readable when it has something to say or is dead.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// What has become of it: whether it serves, or has failed; none where that is not known yet.
    fn outcome(&mut self, now_us: u64) -> Option<bool> {
        loop {
            match self.channel.receive_with() {
                (Received::Byte(SERVES), _) if self.late_us != u64::MAX => return Some(true),
                (Received::Byte(LISTENS), sockets) if !sockets.is_empty() => {
                    self.sockets.extend(sockets);
                    // Who is gone does not listen.
                    let _ = self.channel.send(HELD);
                }
                // Only now it can open no more.
                (Received::Closed, _) => return Some(false),
                (Received::Empty, _) if now_us < self.late_us => return None,
                (received, _) => {
                    self.end(Signal::Kill);
                    self.late_us = u64::MAX;
                    if received == Received::Empty {
                        return None;
                    }
                }
            }
        }
    }

    /// Ends it: this program goes on, or ends too.
    pub(crate) fn end(&self, signal: Signal) {
        // Its end is reaped elsewhere; it may have come already.
        let _ = process::kill(self.pid, signal);
    }
}

/// The parent that this one takes over from.
pub(crate) struct Predecessor(Channel);

impl Predecessor {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(Channel::from(socket))
    }

    /// Has it hold sockets that are about to listen. The error is what to tell the administrator.
    pub(crate) fn hold(&self, sockets: &[BorrowedFd<'_>]) -> Result<(), String> {
        let held = sockets.chunks(MOST_DESCRIPTORS).try_for_each(|some| {
            if !self.0.send_with(LISTENS, some)? {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            wait_readable(&[self.0.as_fd()], Some(ANSWERED))?;
            match self.0.receive() {
                Received::Byte(HELD) => Ok(()),
                _ => Err(std::io::ErrorKind::TimedOut.into()),
            }
        });
        held.map_err(|error: std::io::Error| {
            format!("the server before this one did not take sockets: {error}")
        })
    }

    /// Tells it to go.
    pub(crate) fn end(self) {
        // One that is dead by now needs no telling.
        let _ = self.0.send(SERVES);
    }
}

impl<S: Server> Parent<'_, S> {
    /// Starts the program anew.
    pub(crate) fn begin_upgrade(&mut self) {
        self.log_event(&ParentEvent::Upgrading);
        let begun = Channel::pair().and_then(|pair| Ok((pair, process::fork()?)));
        match begun {
            Ok(((channel, _theirs), Side::Parent(pid))) => {
                let late_us = clock::monotonic_us().saturating_add(TIMEOUT_US);
                let (sockets, next) = (Vec::new(), None);
                self.state = State::Upgrading(Upgrade { pid, channel, late_us, sockets, next });
            }
            Ok(((_ours, theirs), Side::Child)) => {
                self.become_new_program(&theirs);
                process::exit_now(127)
            }
            Err(error) => {
                self.log_event(&ParentEvent::ForkFailed(&error));
                self.supervisor.ready(self.current.number);
                self.state = State::Serving;
            }
        }
    }

    /// In the copy: returns only if there is no new program.
    fn become_new_program(&self, channel: &Channel) {
        let mut passed: Vec<(BorrowedFd<'_>, &str)> =
            self.listeners.sockets().map(|socket| (socket, "evenkeel")).collect();
        passed.push((channel.as_fd(), NAME));
        let mut command = self.invocation.command(&self.start.again);
        let (notifier, watchdog) = self.supervisor.for_successor();
        let error = activation::become_program(&mut command, &passed, notifier, watchdog);
        let program = self.invocation.program.display();
        // The standard error is the error log's file or the terminal's: the log's own descriptors
        // may be gone.
        eprintln_once(&format!("{program} cannot be started: {error}\n"));
    }

    /// Looks how the new program fares.
    pub(crate) fn watch_upgrade(&mut self, now_us: u64) {
        let State::Upgrading(upgrade) = &mut self.state else { return };
        match upgrade.outcome(now_us) {
            Some(true) => self.hand_over(),
            Some(false) => self.abandon_upgrade(),
            None => {}
        }
    }

    /// The new program has failed, and says why. What waits where it has listened is for new
    /// children of this one.
    fn abandon_upgrade(&mut self) {
        let before = std::mem::replace(&mut self.state, State::Serving);
        let State::Upgrading(Upgrade { sockets, next, .. }) = before else { return };
        self.log_event(&ParentEvent::NotUpgraded);
        self.supervisor.ready(self.current.number);
        if self.listeners.adopt_sockets(sockets, &self.current.settings.listen) {
            self.restart_children(next);
        } else if let Some(next) = next {
            self.check(next);
        }
    }

    /// The new program serves: the children of this one finish what they have, and it ends with
    /// the last of them. The pid file is the new one's by now.
    fn hand_over(&mut self) {
        let State::Upgrading(upgrade) =
            std::mem::replace(&mut self.state, State::Stopping { status: 0 })
        else {
            return;
        };
        self.log_event(&ParentEvent::Upgraded(upgrade.pid));
        self.supervisor.succeeded_by(upgrade.pid);
        match upgrade.next {
            Some(Restart::Graceful) => upgrade.end(Signal::User1),
            Some(Restart::Hard) => upgrade.end(Signal::Hangup),
            Some(Restart::Upgrade) | None => {}
        }
        self.listeners = Listeners::none();
        let end_by_us = self.kill_deadline_us(clock::monotonic_us());
        self.children.retire(Command::Drain, end_by_us, |entry| !entry.phase.is_stopping());
    }
}

fn eprintln_once(text: &str) {
    use std::io::Write as _;
    // There is nobody else to tell.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
