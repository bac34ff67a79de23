//! Reads a new configuration in a forked copy of the parent, where neither a crash nor an endless
//! loop does harm. The verdict is known once the copy has ended.

use std::io::{self, PipeReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use evenkeel_sys::process::{self, End, Pid, Side};
use evenkeel_sys::signal::{self, Signal};

use crate::settings::Server;

/// How long a test may take until it is killed: reading may wait for DNS.
pub(crate) const TIMEOUT_US: u64 = 60_000_000;

/// The longest error text that is passed on. It fits in a pipe, so that the copy never waits.
const MOST_TEXT: usize = 60_000;

/// A test in progress.
pub(crate) struct ConfigTest {
    pid: Pid,
    text: PipeReader,
    pub(crate) since_us: u64,
    end: Option<End>,
    killed: bool,
}

impl ConfigTest {
    /// Starts a test. The copy calls `prepare` first, to close what belongs to the parent.
    pub(crate) fn start<S: Server>(
        server: &mut S,
        now_us: u64,
        prepare: impl FnOnce(),
    ) -> io::Result<Self> {
        let (text, mut pipe) = io::pipe()?;
        match process::fork()? {
            Side::Parent(pid) => Ok(Self { pid, text, since_us: now_us, end: None, killed: false }),
            Side::Child => {
                prepare();
                let verdict = signal::unblock_all().map_err(|error| error.to_string());
                let verdict = verdict.and_then(|()| read_config(server));
                let status = match verdict {
                    Ok(()) => 0,
                    Err(text) => {
                        let bytes = text.as_bytes();
                        // If this fails, the parent has a text of its own.
                        let _ = pipe.write_all(bytes.get(..MOST_TEXT).unwrap_or(bytes));
                        1
                    }
                };
                process::exit_now(status)
            }
        }
    }

    /// Records the end of a process; true if it was the test's.
    pub(crate) fn note_end(&mut self, pid: Pid, end: End) -> bool {
        let is_own = pid == self.pid;
        if is_own {
            self.end = Some(end);
        }
        is_own
    }

    /// Kills a test that takes too long or is not needed any more.
    pub(crate) fn kill(&mut self) {
        if self.end.is_none() && !self.killed {
            self.killed = true;
            // The process is not reaped yet, so the pid is still the test's.
            let _ = process::kill(self.pid, Signal::Kill);
        }
    }

    /// The verdict, once there is one. The error is the text for the administrator.
    pub(crate) fn verdict(&mut self) -> Option<Result<(), String>> {
        Some(match self.end? {
            End::Exited(0) => Ok(()),
            End::Exited(1) => {
                let mut text = Vec::new();
                let limit = u64::try_from(MOST_TEXT).unwrap_or(u64::MAX);
                match Read::by_ref(&mut self.text).take(limit).read_to_end(&mut text) {
                    Ok(_) => Err(String::from_utf8_lossy(&text).into_owned()),
                    Err(error) => Err(format!("reading the configuration failed: {error}")),
                }
            }
            End::Exited(status) => {
                Err(format!("reading the configuration ended with status {status}"))
            }
            End::Killed { .. } if self.killed => {
                Err("reading the configuration took more than a minute".into())
            }
            End::Killed { signal, .. } => Err(format!(
                "reading the configuration ended with signal {} ({signal})",
                signal::describe(signal)
            )),
        })
    }
}

fn read_config<S: Server>(server: &mut S) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(|| server.load())) {
        Ok(loaded) => loaded.map(|_| ()),
        Err(_) => Err("reading the configuration panicked".into()),
    }
}
