//! Cleans up after the attack, however it ends: a process that outlives the attack removes the
//! scratch folder, and the kernel ends the servers (`OVER`). Neither requires an action of the
//! attack itself, which may be killed.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The command around a server that makes the kernel end it together with the thread that started
/// it.
pub const OVER: [&str; 4] = ["/usr/bin/setpriv", "--pdeathsig", "TERM", "--"];

/// Waits for the end of its input, which is the end of the attack, and removes the folder. The
/// servers may still write to it while they end, so it tries several times.
const SCRIPT: &str = "\
trap '' INT TERM HUP
cat >/dev/null
for look in 1 2 3 4 5 6 7 8 9; do
    rm -rf \"$0\" 2>/dev/null && exit
    sleep 1
done";

/// Removes a folder after this process has ended.
#[derive(Debug)]
pub struct Guard {
    child: Child,
}

impl Guard {
    /// Begins to guard this folder.
    pub fn over(folder: &Path) -> Result<Guard, String> {
        // A process group of its own, because signals from the terminal that end the attack must
        // not end the guard.
        let child = Command::new("/bin/sh")
            .args(["-c", SCRIPT])
            .arg(folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("/bin/sh: {error}"))?;
        Ok(Guard { child })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
