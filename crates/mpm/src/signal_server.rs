//! What `-k` does: sends a signal to the running server, which it finds by its pid file. Texts and
//! statuses are Apache's (server/mpm_unix.c, ap_signal_server), which says `httpd` whatever the
//! program is called.

use std::path::Path;

use evenkeel_sys::process::{self, Pid};
use evenkeel_sys::signal::Signal;

use crate::listeners::as_apr;
use crate::pidfile::{Running, running};
use crate::reload_record::PendingReload;

/// The arguments of `-k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalCommand {
    /// Start, unless a server runs.
    Start,
    /// Stop now, finishing requests in progress.
    Stop,
    /// Stop once open connections have closed.
    GracefulStop,
    /// Read the configuration again.
    Restart,
    /// Read the configuration again, keeping open connections.
    Graceful,
    /// Start the program anew, which may be another version, keeping open connections. Apache has
    /// no such command.
    Upgrade,
}

/// What the caller does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignalOutcome {
    /// Print this line, if any, on standard output and end with status 0.
    Done(Option<String>),
    /// Print this line, if any, on standard output and start the server here.
    StartHere(Option<String>),
    /// The signal was sent: wait for the result of the reload.
    Reloads(PendingReload),
    /// Print these lines on standard error and end with status 1.
    Failed(String),
}

impl SignalCommand {
    /// Parses the argument of `-k`; `None` if there is no such command.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "start" => Self::Start,
            "stop" => Self::Stop,
            "graceful-stop" => Self::GracefulStop,
            "restart" => Self::Restart,
            "graceful" => Self::Graceful,
            "upgrade" => Self::Upgrade,
            _ => return None,
        })
    }

    fn signal(self) -> Option<Signal> {
        match self {
            Self::Start => None,
            Self::Stop => Some(Signal::Terminate),
            Self::GracefulStop => Some(Signal::WindowChange),
            Self::Restart => Some(Signal::Hangup),
            Self::Graceful => Some(Signal::User1),
            Self::Upgrade => Some(Signal::User2),
        }
    }
}

/// Sends a command to the server of this pid file.
#[must_use]
pub fn signal_server(pid_file: &Path, command: SignalCommand) -> SignalOutcome {
    let found = match running(pid_file) {
        Ok(found) => found,
        Err(error) => {
            return SignalOutcome::Failed(format!(
                "{}: AH00058: Error retrieving pid file {}\nAH00059: Remove it before \
                 continuing if it is corrupted.",
                as_apr(&error),
                pid_file.display()
            ));
        }
    };
    match (found, command.signal()) {
        (Running::Yes(pid), None) => SignalOutcome::Done(Some(format!(
            "httpd (pid {}) already running",
            pid.as_raw_nonzero()
        ))),
        (Running::Yes(pid), Some(signal)) => send(pid_file, pid, signal),
        (_, None) => SignalOutcome::StartHere(None),
        (_, Some(Signal::Hangup | Signal::User1 | Signal::User2)) => {
            SignalOutcome::StartHere(Some("httpd not running, trying to start".into()))
        }
        (Running::Stale(pid), Some(_)) => {
            SignalOutcome::Done(Some(format!("httpd (pid {}?) not running", pid.as_raw_nonzero())))
        }
        (Running::No, Some(_)) => {
            SignalOutcome::Done(Some("httpd (no pid file) not running".into()))
        }
    }
}

/// Sends a signal to the server of a pid file. The sender of a reload waits for its result, unless
/// the server writes no record, as Apache's does not.
fn send(pid_file: &Path, pid: Pid, signal: Signal) -> SignalOutcome {
    let reloads = matches!(signal, Signal::Hangup | Signal::User1 | Signal::User2);
    let pending = PendingReload::prepare(pid_file, pid).filter(|_| reloads);
    match process::kill(pid, signal) {
        Ok(()) => pending.map_or(SignalOutcome::Done(None), SignalOutcome::Reloads),
        Err(error) => {
            SignalOutcome::Failed(format!("{}: AH00057: sending signal to server", as_apr(&error)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are what `apache2 -k` prints.
    #[test]
    fn who_asks_a_server_that_does_not_run_is_told_so() {
        let folder = std::env::temp_dir().join(format!("evenkeel-ask-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("pid");
        let done = |text: &str| SignalOutcome::Done(Some(text.into()));
        let starting = SignalOutcome::StartHere(Some("httpd not running, trying to start".into()));
        assert_eq!(
            signal_server(&file, SignalCommand::Stop),
            done("httpd (no pid file) not running")
        );
        assert_eq!(signal_server(&file, SignalCommand::Restart), starting);
        assert_eq!(signal_server(&file, SignalCommand::Upgrade), starting);
        assert_eq!(signal_server(&file, SignalCommand::Start), SignalOutcome::StartHere(None));
        std::fs::write(&file, "2147483\n").unwrap();
        assert_eq!(
            signal_server(&file, SignalCommand::GracefulStop),
            done("httpd (pid 2147483?) not running")
        );
        assert_eq!(signal_server(&file, SignalCommand::Graceful), starting);
        std::fs::write(&file, "junk").unwrap();
        let outcome = signal_server(&file, SignalCommand::Stop);
        assert!(matches!(outcome, SignalOutcome::Failed(text) if text.contains("AH00058")));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn every_wish_of_apaches_is_known() {
        for word in ["start", "stop", "graceful-stop", "restart", "graceful", "upgrade"] {
            assert!(SignalCommand::parse(word).is_some());
        }
        assert_eq!(SignalCommand::parse("reload"), None);
    }
}
