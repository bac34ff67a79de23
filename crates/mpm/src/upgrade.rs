//! A change of the program: the parent starts the new program beside itself and ends only once the
//! new one reports that it serves. The listening sockets are passed as a service manager would, and
//! with them what the server bequeaths. Before the new program listens on additional sockets, the
//! old one gets them too, so that connections queued there are served if the new one fails.

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

/// The name under which listening sockets are passed.
pub(crate) const SOCKET: &str = "evenkeel";

/// How long the new program may take until it serves.
const TIMEOUT_US: u64 = 120_000_000;

/// The new parent's report that it serves.
const SERVES: u8 = b'S';

/// Its report with sockets that are about to listen, and the old parent's reply.
const LISTENS: u8 = b'L';
const HELD: u8 = b'H';

/// How long the new parent waits for that reply.
const ANSWERED: Duration = Duration::from_secs(10);

/// How this program was called.
pub(crate) struct Invocation {
    program: PathBuf,
    name: OsString,
    folder: Option<PathBuf>,
}

impl Invocation {
    /// Called before the process changes its folder or its program's file is replaced.
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
    /// When it times out; never, once it was killed.
    pub(crate) late_us: u64,
    /// The sockets that it has opened.
    sockets: Vec<OwnedFd>,
    /// A reload that was requested meanwhile.
    pub(crate) next: Option<Restart>,
}

impl Upgrade {
    /// Readable when it has reported something or is dead.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Whether it serves or has failed; none if that is not known yet.
    fn outcome(&mut self, now_us: u64) -> Option<bool> {
        loop {
            match self.channel.receive_with() {
                (Received::Byte(SERVES), _) if self.late_us != u64::MAX => return Some(true),
                (Received::Byte(LISTENS), sockets) if !sockets.is_empty() => {
                    self.sockets.extend(sockets);
                    // A program that is gone does not listen.
                    let _ = self.channel.send(HELD);
                }
                // From now on it can open no more sockets.
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

    /// Ends the new program: this one continues, or ends too.
    pub(crate) fn end(&self, signal: Signal) {
        // It is reaped elsewhere, and may have ended already.
        let _ = process::kill(self.pid, signal);
    }
}

/// The parent that this one takes over from.
pub(crate) struct Predecessor(Channel);

impl Predecessor {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(Channel::from(socket))
    }

    /// Passes sockets that are about to listen, and waits until the predecessor has them. The error
    /// is the text for the administrator.
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

    /// Tells it to end.
    pub(crate) fn end(self) {
        // A predecessor that is dead needs no message.
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
                self.give_up_reload(&ParentEvent::NotUpgraded, "");
                self.supervisor.ready(self.current.number);
                self.state = State::Serving;
            }
        }
    }

    /// In the copy: returns only if the new program cannot be started.
    fn become_new_program(&self, channel: &Channel) {
        let mut passed: Vec<(BorrowedFd<'_>, &str)> =
            self.listeners.sockets().map(|socket| (socket, SOCKET)).collect();
        passed.extend(self.server.bequest());
        passed.push((channel.as_fd(), NAME));
        let mut command = self.invocation.command(&self.start.again);
        let (notifier, watchdog) = self.supervisor.for_successor();
        let error = activation::become_program(&mut command, &passed, notifier, watchdog);
        let program = self.invocation.program.display();
        // Standard error is the error log's file or the terminal; the log's own descriptors may be
        // closed.
        eprintln_once(&format!("{program} cannot be started: {error}\n"));
    }

    /// Checks the state of the new program.
    pub(crate) fn watch_upgrade(&mut self, now_us: u64) {
        let State::Upgrading(upgrade) = &mut self.state else { return };
        match upgrade.outcome(now_us) {
            Some(true) => self.hand_over(),
            Some(false) => self.abandon_upgrade(),
            None => {}
        }
    }

    /// Continues after the new program has failed, which reports the reason itself. Connections on
    /// its sockets are left to new children of this one.
    fn abandon_upgrade(&mut self) {
        let before = std::mem::replace(&mut self.state, State::Serving);
        let State::Upgrading(Upgrade { sockets, next, .. }) = before else { return };
        self.give_up_reload(&ParentEvent::NotUpgraded, "");
        self.supervisor.ready(self.current.number);
        if self.listeners.adopt_sockets(sockets, &self.current.settings.listen) {
            self.restart_children(next);
        } else if let Some(next) = next {
            self.check(next);
        }
    }

    /// Ends this program once its children have finished, because the new program serves. The pid
    /// file belongs to the new one by now.
    fn hand_over(&mut self) {
        let State::Upgrading(upgrade) =
            std::mem::replace(&mut self.state, State::Stopping { status: 0 })
        else {
            return;
        };
        self.log_event(&ParentEvent::Upgraded(upgrade.pid));
        self.reload_record.give_up();
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
    // There is no other place for this message.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
