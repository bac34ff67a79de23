//! The change of the program itself: the parent starts it anew beside itself, with the listening
//! sockets passed as a supervisor would pass them, and goes only when the new one says that it
//! serves. One that fails leaves everything as it was.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command as Program;

use evenkeel_sys::activation;
use evenkeel_sys::channel::{Channel, Received};
use evenkeel_sys::clock;
use evenkeel_sys::process::{self, Pid, Side};
use evenkeel_sys::signal::Signal;

use crate::announce::Event;
use crate::change::{Restart, State};
use crate::child::Command;
use crate::listeners::Listeners;
use crate::parent::Parent;
use crate::settings::Server;

/// The name under which the channel to the old parent is passed.
pub(crate) const NAME: &str = "evenkeel-upgrade";

/// How long the new program may take until it serves.
const PATIENCE_US: u64 = 120_000_000;

/// What the new parent says when it serves.
const SERVES: u8 = b'S';

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
    since_us: u64,
    /// A reload asked for meanwhile.
    pub(crate) next: Option<Restart>,
}

impl Upgrade {
    /// Readable when it has something to say or is dead.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// When it is given up.
    pub(crate) fn late_us(&self) -> u64 {
        self.since_us.saturating_add(PATIENCE_US)
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

    /// Tells it to go.
    pub(crate) fn relieve(self) {
        // One that is dead by now needs no telling.
        let _ = self.0.send(SERVES);
    }
}

impl<S: Server> Parent<'_, S> {
    /// Starts the program anew.
    pub(crate) fn begin_upgrade(&mut self) {
        self.tell(&Event::Upgrading);
        let begun = Channel::pair().and_then(|pair| Ok((pair, process::fork()?)));
        match begun {
            Ok(((channel, _theirs), Side::Parent(pid))) => {
                let since_us = clock::monotonic_us();
                self.state = State::Upgrading(Upgrade { pid, channel, since_us, next: None });
            }
            Ok(((_ours, theirs), Side::Child)) => {
                self.become_new_program(&theirs);
                process::exit_now(127)
            }
            Err(error) => {
                self.tell(&Event::ForkFailed(&error));
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
        let (notifier, watchdog) = self.supervisor.handed_on();
        let error = activation::become_program(&mut command, &passed, notifier, watchdog);
        let program = self.invocation.program.display();
        // The standard error is the error log's file or the terminal's: the log's own descriptors
        // may be gone.
        eprintln_once(&format!("{program} cannot be started: {error}\n"));
    }

    /// Looks how the new program fares.
    pub(crate) fn watch_upgrade(&mut self, now_us: u64) {
        let State::Upgrading(upgrade) = &mut self.state else { return };
        match upgrade.channel.receive() {
            Received::Byte(SERVES) => self.hand_over(),
            Received::Empty if now_us < upgrade.late_us() => {}
            end @ (Received::Byte(_) | Received::Empty | Received::Closed) => {
                if end != Received::Closed {
                    upgrade.end(Signal::Kill);
                }
                // One that closed its end is about to end, and says why.
                let next = upgrade.next;
                self.state = State::Serving;
                self.tell(&Event::NotUpgraded);
                self.supervisor.ready(self.current.number);
                if let Some(next) = next {
                    self.check(next);
                }
            }
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
        self.tell(&Event::Upgraded(upgrade.pid));
        self.supervisor.succeeded_by(upgrade.pid);
        match upgrade.next {
            Some(Restart::Graceful) => upgrade.end(Signal::User1),
            Some(Restart::Hard) => upgrade.end(Signal::Hangup),
            Some(Restart::Upgrade) | None => {}
        }
        self.listeners = Listeners::none();
        let end_by_us = self.bound_us(clock::monotonic_us());
        self.children.retire(Command::Drain, end_by_us, |entry| !entry.phase.is_stopping());
    }
}

fn eprintln_once(text: &str) {
    use std::io::Write as _;
    // There is nobody else to tell.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
