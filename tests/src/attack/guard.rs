//! What ends with the attack however it ends: a process of its own that outlives it removes the
//! scratch folder, and the kernel ends the servers (`OVER`). Neither needs a last word of the
//! attack, which a kill would not leave it.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The command over a server that has the kernel end it with the thread that started it.
pub const OVER: [&str; 4] = ["/usr/bin/setpriv", "--pdeathsig", "TERM", "--"];

/// Waits for the end of its input, which is the end of the attack, and removes the folder. The
/// servers may still write to it as they end, so one look is not enough.
const SCRIPT: &str = "\
trap '' INT TERM HUP
cat >/dev/null
for look in 1 2 3 4 5 6 7 8 9; do
    rm -rf \"$0\" 2>/dev/null && exit
    sleep 1
done";

/// Removes a folder once this process has ended.
#[derive(Debug)]
pub struct Guard {
    child: Child,
}

impl Guard {
    /// Begins to watch over this folder.
    pub fn over(folder: &Path) -> Result<Guard, String> {
        // A group of its own: what is typed to end the attack is not meant for its guard.
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
