//! `lab reload --upgrade`: replaces the program itself under load. After each signal (USR2),
//! another process id must appear in the server's pid file, and the previous process must end. The
//! last process is stopped at the end.

use super::Fault;
use crate::peers::Server;
use evenkeel_monitor::process::ProcessStat;
use evenkeel_sys::process::{self, Pid};
use evenkeel_sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The interval at which the file is read, in seconds.
const LOOK_EVERY_S: f64 = 0.05;
/// The time between two changes, in seconds.
const PAUSE_S: f64 = 0.1;
/// How long a change may take, in seconds. The old program ends when its connections have ended and
/// the kernel has let it reap its children.
const PATIENCE_S: f64 = 60.0;
/// How long the last program may take to end.
const FAREWELL: Duration = Duration::from_secs(20);

/// Replaces a program several times, one change after the other.
pub struct Upgrades {
    pid_file: PathBuf,
    first: Option<Pid>,
    changes: usize,
    /// The duration of each change, in seconds.
    pub took_s: Vec<f64>,
    /// The program before the current change.
    under_way: Option<Pid>,
    /// When the current change began, or the previous one was complete, in seconds.
    since_s: f64,
    next_s: f64,
}

impl Upgrades {
    /// Replaces the program of a server, whose pid file is in this folder, `changes` times.
    pub fn new(root: &Path, server: &Server, changes: usize) -> Self {
        let pid_file = root.join(format!("logs/{}.pid", server.name));
        let (first, took_s) = (server.pid(), Vec::new());
        Self { pid_file, first, changes, took_s, under_way: None, since_s: 0.0, next_s: PAUSE_S }
    }

    /// Does what is due. Returns whether there is more to do.
    ///
    /// # Errors
    ///
    /// A change was not complete in time, or a program could not be signalled.
    pub fn look(&mut self, at_s: f64) -> Result<bool, Fault> {
        if at_s < self.next_s {
            return Ok(true);
        }
        self.next_s = at_s + LOOK_EVERY_S;
        match (self.under_way, self.pid()) {
            (None, _) if self.took_s.len() == self.changes => return Ok(false),
            (None, Some(now)) => {
                let told = |error: std::io::Error| Fault::Told(format!("USR2: {error}"));
                process::kill(now, Signal::User2).map_err(told)?;
                (self.under_way, self.since_s) = (Some(now), at_s);
            }
            (Some(before), Some(now)) if now != before && !lives(before) => {
                self.took_s.push(at_s - self.since_s);
                (self.under_way, self.since_s, self.next_s) = (None, at_s, at_s + PAUSE_S);
            }
            // While the file is rewritten it may be empty.
            _ if at_s - self.since_s <= PATIENCE_S => {}
            _ => {
                let done = self.took_s.len();
                return Err(format!("change {} of the program is not over", done + 1).into());
            }
        }
        Ok(true)
    }

    fn pid(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(&self.pid_file).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }
}

impl Upgrades {
    /// Stops the last program. The first one belongs to the server's own process.
    pub fn stop(&mut self) {
        let Some(last) = self.pid().filter(|last| Some(*last) != self.first) else { return };
        let _ended = process::kill(last, Signal::Terminate);
        let begun = Instant::now();
        while lives(last) {
            if begun.elapsed() > FAREWELL {
                let _ended = process::kill(last, Signal::Kill);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Upgrades {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether a process is running. One that has ended but was not waited for is not.
fn lives(pid: Pid) -> bool {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    ProcessStat::parse(&text).is_some_and(|stat| stat.state != 'Z')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_program_that_is_in_no_file_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut upgrades = Upgrades {
            pid_file: folder.path().join("pid"),
            first: Some(process::own_pid()),
            changes: 1,
            took_s: Vec::new(),
            under_way: None,
            since_s: 0.0,
            next_s: PAUSE_S,
        };
        assert!(upgrades.look(1.0).unwrap() && upgrades.look(PATIENCE_S).unwrap());
        assert!(upgrades.look(PATIENCE_S + 1.0).is_err());
        // Nor while a change is in progress; but a complete change counts, however late that is
        // seen.
        upgrades.under_way = Pid::from_raw(i32::MAX);
        assert!(upgrades.look(PATIENCE_S + 2.0).is_err());
        std::fs::write(&upgrades.pid_file, std::process::id().to_string()).unwrap();
        assert!(upgrades.look(PATIENCE_S + 3.0).unwrap());
        assert_eq!((upgrades.took_s.len(), upgrades.look(PATIENCE_S + 4.0).unwrap()), (1, false));
    }

    #[test]
    fn who_was_not_waited_for_does_not_run() {
        assert!(lives(process::own_pid()));
        let mut child = Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        while lives(pid) {
            std::thread::yield_now();
        }
        assert!(child.wait().unwrap().success());
    }
}
