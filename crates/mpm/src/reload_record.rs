//! The record of reloads: a file beside the pid file in which the parent writes the result of its
//! last reload. `-k graceful` and `-k restart` read the file before they send the signal, and wait
//! for the result of a reload that began after it. They do not wait for a server without the file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_sys::open;
use evenkeel_sys::process::{self, Pid};

use crate::pidfile::{Running, is_server, running, start_ticks};

/// The maximum length of the text of a refusal, in bytes.
const MOST_TEXT: usize = 60_000;

/// The maximum length of a record that is read: the text and the line of numbers, in bytes.
const MOST_BYTES: usize = MOST_TEXT + 200;

/// The time that a sender waits for the end of a reload. A reload takes longer than a few seconds
/// only if the configuration has thousands of hosts or a name server does not respond.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The interval at which a sender reads the record.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The record that the parent writes. The start of the server counts as reload 1.
pub(crate) struct ReloadRecord {
    /// The path of the record. `None` while the pid file does not belong to this server.
    file: Option<PathBuf>,
    /// The start time of this process, which distinguishes it from another with the same pid.
    start_ticks: Option<u64>,
    begun: u64,
    ended: u64,
    /// The reason why the server refused the configuration. Empty if it accepted it.
    text: String,
}

impl ReloadRecord {
    /// Creates the record of a server that starts.
    pub(crate) fn new(pid_file: Option<&Path>) -> Self {
        let start_ticks = start_ticks(process::own_pid());
        let record = Self { file: None, start_ticks, begun: 1, ended: 0, text: String::new() };
        let record = Self { file: pid_file.map(beside), ..record };
        record.write();
        record
    }

    /// Records that a reload begins. A reload that is in progress becomes a part of it.
    pub(crate) fn begin(&mut self) {
        self.begun += 1;
        self.write();
    }

    /// Records the end of the reload in progress, if there is one. The error is the reason why the
    /// server refused the configuration.
    pub(crate) fn end(&mut self, result: Result<(), &str>) {
        if self.ended == self.begun {
            return;
        }
        self.ended = self.begun;
        let text = result.err().unwrap_or_default();
        let end = text.floor_char_boundary(MOST_TEXT);
        self.text = text.get(..end).unwrap_or_default().to_owned();
        self.write();
    }

    /// Records that the server stops, as the result of every reload that is in progress or
    /// requested later.
    pub(crate) fn close(&mut self) {
        self.begun += 1;
        self.end(Err("the server is stopping"));
    }

    /// Moves the record to a new path of the pid file. `None` removes it.
    pub(crate) fn follow(&mut self, pid_file: Option<&Path>) {
        let file = pid_file.map(beside);
        if file != self.file {
            self.remove();
            self.file = file;
            self.write();
        }
    }

    /// Leaves the file to another server, which has replaced it.
    pub(crate) fn give_up(&mut self) {
        self.file = None;
    }

    /// Removes the file.
    pub(crate) fn remove(&mut self) {
        if let Some(file) = self.file.take() {
            // The server also ends if the file cannot be removed.
            let _ = fs::remove_file(file);
        }
    }

    /// Replaces the file by a rename. Errors are not reported, because only a sender that waits
    /// needs the file, and that sender reports a timeout.
    fn write(&self) {
        let (Some(file), Some(start_ticks)) = (&self.file, self.start_ticks) else { return };
        let pid = process::own_pid().as_raw_nonzero();
        let Self { begun, ended, text, .. } = self;
        let text = format!("{pid} {start_ticks} {begun} {ended}\n{text}");
        let fresh = with_suffix(file, &format!(".{pid}"));
        // An earlier server with the same pid may have left this file.
        let _ = fs::remove_file(&fresh);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)
            .and_then(|mut new| new.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&fresh, file));
        if written.is_err() {
            let _ = fs::remove_file(&fresh);
        }
    }
}

/// The path of the record: that of the pid file with a suffix.
fn beside(pid_file: &Path) -> PathBuf {
    with_suffix(pid_file, ".reload")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The contents of a record.
struct Reading {
    begun: u64,
    ended: u64,
    text: String,
}

impl Reading {
    /// Reads the record of a running server.
    ///
    /// # Errors
    /// The file is missing, is a link, or was not written by root, the user of the process, and
    /// the process itself.
    fn of(pid_file: &Path, pid: Pid) -> io::Result<Self> {
        let file = beside(pid_file);
        let (bytes, owner) = open::read_unlinked(file.as_os_str().as_bytes(), MOST_BYTES)?;
        let of_process = fs::metadata(format!("/proc/{}", pid.as_raw_nonzero()))?.uid();
        if owner != 0 && owner != of_process {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let text = String::from_utf8_lossy(&bytes);
        let (numbers, text) = text.split_once('\n').ok_or(io::ErrorKind::InvalidData)?;
        let numbers: Vec<u64> =
            numbers.split(' ').filter_map(|number| number.parse().ok()).collect();
        let own = u64::try_from(pid.as_raw_nonzero().get()).ok();
        match numbers[..] {
            [pid, ticks, begun, ended] if Some(pid) == own && Some(ticks) == own_ticks(pid) => {
                Ok(Self { begun, ended, text: printable(text) })
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn own_ticks(pid: u64) -> Option<u64> {
    start_ticks(i32::try_from(pid).ok().and_then(Pid::from_raw)?)
}

/// Replaces control characters except newlines, because the text is printed to a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|it| if it.is_control() && it != '\n' { '?' } else { it }).collect()
}

/// A reload that a sender requests from a running server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingReload {
    pid_file: PathBuf,
    pid: Pid,
    /// The number of reloads that had begun before the signal was sent.
    begun: u64,
}

impl PendingReload {
    /// Reads the record before the signal is sent. Returns `None` if the server has no record.
    pub(crate) fn prepare(pid_file: &Path, pid: Pid) -> Option<Self> {
        let Reading { begun, .. } = Reading::of(pid_file, pid).ok()?;
        Some(Self { pid_file: pid_file.to_owned(), pid, begun })
    }

    /// Waits until the server has accepted or refused the configuration, for at most 30 s.
    ///
    /// # Errors
    /// The reason why the server has not accepted the configuration, as lines for standard error.
    pub fn wait(&self) -> Result<(), String> {
        self.wait_for(TIMEOUT)
    }

    fn wait_for(&self, timeout: Duration) -> Result<(), String> {
        let since = Instant::now();
        loop {
            if let Some(result) = self.result() {
                return result;
            }
            if since.elapsed() >= timeout {
                return Err(format!(
                    "httpd (pid {}) has not reported within {} s whether it accepts the new \
                     configuration: see its error log",
                    self.pid.as_raw_nonzero(),
                    timeout.as_secs()
                ));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn result(&self) -> Option<Result<(), String>> {
        match running(&self.pid_file) {
            // An upgrade has replaced the program, which has read the new configuration.
            Ok(Running::Yes(pid)) if pid != self.pid => return Some(Ok(())),
            Ok(Running::Yes(_)) | Err(_) => {}
            Ok(Running::No | Running::Stale(_)) => {
                let text = || format!("httpd (pid {}) has ended", self.pid.as_raw_nonzero());
                return (!is_alive(self.pid)).then(|| Err(text()));
            }
        }
        let Reading { ended, text, .. } = Reading::of(&self.pid_file, self.pid).ok()?;
        match text.trim_end() {
            _ if ended <= self.begun => None,
            "" => Some(Ok(())),
            reason => Some(Err(reason.to_owned())),
        }
    }
}

fn is_alive(pid: Pid) -> bool {
    process::exists(pid) && is_server(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_believed_if_it_is_that_of_the_process() {
        let folder = std::env::temp_dir().join(format!("evenkeel-record-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let pid_file = folder.join("pid");
        let own = process::own_pid();
        let read = || Reading::of(&pid_file, own).map(|it| (it.begun, it.ended, it.text));
        assert!(read().is_err());
        let mut record = ReloadRecord::new(Some(&pid_file));
        assert_eq!(read().unwrap(), (1, 0, String::new()));
        record.end(Err("a\x1b[2Jb\nc"));
        assert_eq!(read().unwrap(), (1, 1, "a?[2Jb\nc".to_owned()));
        // A reload that has ended has one result.
        record.end(Ok(()));
        assert_eq!(read().unwrap().2, "a?[2Jb\nc");
        record.begin();
        record.begin();
        assert_eq!((read().unwrap().0, read().unwrap().1), (3, 1));
        record.end(Err(&"ä".repeat(MOST_TEXT)));
        let (_, ended, text) = read().unwrap();
        assert_eq!((ended, text.len()), (3, MOST_TEXT));
        let file = beside(&pid_file);
        let text = fs::read_to_string(&file).unwrap();
        let (numbers, _) = text.split_once('\n').unwrap();
        // Another process had this pid, or has it now.
        for other in [numbers.replacen(' ', " 1", 1), format!("1{numbers}"), "1 2".to_owned()] {
            fs::write(&file, format!("{other}\n")).unwrap();
            assert!(read().is_err(), "{other}");
        }
        let elsewhere = folder.join("elsewhere");
        fs::write(&elsewhere, format!("{numbers}\n")).unwrap();
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
        assert!(read().is_err());
        record.follow(Some(&folder.join("other")));
        assert!(!file.exists() && beside(&folder.join("other")).exists());
        record.remove();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_sender_without_a_result_reports_a_timeout() {
        let (pid_file, pid) = (PathBuf::from("/no/such/folder/pid"), process::own_pid());
        let pending = PendingReload { pid_file, pid, begun: 1 };
        let told = pending.wait_for(Duration::ZERO).unwrap_err();
        assert!(told.contains("has not reported within 0 s"), "{told}");
    }
}
