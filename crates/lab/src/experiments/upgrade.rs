//! `lab reload --upgrade`: the program itself is changed under load. A server with a file of its
//! process id comes in; each time that it is asked to (USR2), another process is to stand in the
//! file and the one before to be gone. What the last one leaves is stopped in the end.

use super::Fault;
use crate::peers::Server;
use evenkeel_monitor::process::ProcessStat;
use evenkeel_sys::process::{self, Pid};
use evenkeel_sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the file is looked at, in seconds.
const LOOK_EVERY_S: f64 = 0.05;
/// What passes between two changes, in seconds.
const PAUSE_S: f64 = 0.1;
/// How long a change may take, in seconds: the old program goes when its connections have, and
/// when the kernel has let it reap its children.
pub const PATIENCE_S: f64 = 60.0;
/// How long the last program may take to end.
const FAREWELL: Duration = Duration::from_secs(20);

/// Changes of a program one after the other.
pub struct Upgrades {
    pid_file: PathBuf,
    first: Option<Pid>,
    changes: usize,
    /// How long each took, in seconds.
    pub took_s: Vec<f64>,
    under_way: Option<(f64, Pid)>,
    next_s: f64,
}

impl Upgrades {
    /// So many changes of a server whose file is in this folder.
    pub fn new(root: &Path, server: &Server, changes: usize) -> Self {
        let pid_file = root.join(format!("logs/{}.pid", server.name));
        let (first, took_s) = (server.pid(), Vec::new());
        Self { pid_file, first, changes, took_s, under_way: None, next_s: PAUSE_S }
    }

    /// Does what is due; whether there is more to come.
    pub fn look(&mut self, at_s: f64) -> Result<bool, Fault> {
        if at_s < self.next_s {
            return Ok(true);
        }
        self.next_s = at_s + LOOK_EVERY_S;
        // While the file is written anew it may be empty.
        let Some(now) = self.pid() else { return Ok(true) };
        match self.under_way {
            None if self.took_s.len() == self.changes => return Ok(false),
            None => {
                let told = |error: std::io::Error| Fault::Told(format!("USR2: {error}"));
                process::kill(now, Signal::User2).map_err(told)?;
                self.under_way = Some((at_s, now));
            }
            Some((began_s, before)) if now != before && !lives(before) => {
                self.took_s.push(at_s - began_s);
                (self.under_way, self.next_s) = (None, at_s + PAUSE_S);
            }
            Some((began_s, _)) if at_s - began_s > PATIENCE_S => {
                let done = self.took_s.len();
                return Err(format!("change {} of the program is not over", done + 1).into());
            }
            Some(_) => {}
        }
        Ok(true)
    }

    fn pid(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(&self.pid_file).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }
}

impl Upgrades {
    /// Stops what the last change left. The first program is the server's own to stop.
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

/// Whether a process runs: one that nobody has waited for does not.
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
