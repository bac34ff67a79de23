//! The record of reloads: a file beside the pid file, in which the parent writes how its last
//! reload ended. `-k graceful` and `-k restart` read it before they send the signal, and wait until
//! it tells of a reload that has begun since. Servers without such a file are not waited for.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_sys::open;
use evenkeel_sys::process::{self, Pid};

use crate::pidfile::{Running, is_server, running, start_ticks};

/// The longest text about a refusal, and the longest file that is read.
const MOST_TEXT: usize = 60_000;
const MOST_BYTES: usize = MOST_TEXT + 200;

/// How long a sender waits for the end of a reload. More than a few seconds are needed only for
/// thousands of hosts or a name server that does not answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The interval between two looks of a sender.
const GLANCE: Duration = Duration::from_millis(10);

/// The parent's record. Reloads are counted from 1, the first start.
pub(crate) struct ReloadRecord {
    /// None before the pid file is this server's, and after it is another's.
    file: Option<PathBuf>,
    /// The time when this process started, which tells it from another one with the same pid.
    start_ticks: Option<u64>,
    begun: u64,
    ended: u64,
    /// The text of a refusal; empty if the server has taken the configuration.
    text: String,
}

impl ReloadRecord {
    /// The record of a server that starts.
    pub(crate) fn new(pid_file: Option<&Path>) -> Self {
        let start_ticks = start_ticks(process::own_pid());
        let record = Self { file: None, start_ticks, begun: 1, ended: 0, text: String::new() };
        let record = Self { file: pid_file.map(beside), ..record };
        record.write();
        record
    }

    /// A reload begins. The one before, if it is in progress, becomes a part of it.
    pub(crate) fn begin(&mut self) {
        self.begun += 1;
        self.write();
    }

    /// The reload in progress, if there is one, has ended. The error is the reason of a refusal.
    pub(crate) fn end(&mut self, verdict: Result<(), &str>) {
        if self.ended == self.begun {
            return;
        }
        self.ended = self.begun;
        let text = verdict.err().unwrap_or_default();
        let end = text.floor_char_boundary(MOST_TEXT);
        self.text = text.get(..end).unwrap_or_default().to_owned();
        self.write();
    }

    /// Whoever waits, or asks from now on, learns that this server reloads nothing more.
    pub(crate) fn close(&mut self) {
        self.begun += 1;
        self.end(Err("the server is stopping"));
    }

    /// The pid file has another path, or belongs to another server (`None`).
    pub(crate) fn follow(&mut self, pid_file: Option<&Path>) {
        let file = pid_file.map(beside);
        if file != self.file {
            self.remove();
            self.file = file;
            self.write();
        }
    }

    /// Gives the file up to another server, which has written its own.
    pub(crate) fn give_up(&mut self) {
        self.file = None;
    }

    /// Removes the file.
    pub(crate) fn remove(&mut self) {
        if let Some(file) = self.file.take() {
            // A folder that has become read-only does not keep the server from ending.
            let _ = fs::remove_file(file);
        }
    }

    /// Writes the file completely or not at all. Nothing depends on it but a sender that waits, so
    /// an error is not reported.
    fn write(&self) {
        let (Some(file), Some(start_ticks)) = (&self.file, self.start_ticks) else { return };
        let pid = process::own_pid().as_raw_nonzero();
        let Self { begun, ended, text, .. } = self;
        let text = format!("{pid} {start_ticks} {begun} {ended}\n{text}");
        let fresh = with_suffix(file, &format!(".{pid}"));
        // What an earlier server with this pid has left there.
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

/// The record's path, beside the pid file.
fn beside(pid_file: &Path) -> PathBuf {
    with_suffix(pid_file, ".reload")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// What a sender reads of a record.
struct Reading {
    begun: u64,
    ended: u64,
    text: String,
}

impl Reading {
    /// The record of a living server. An error if there is none, or if somebody else could have
    /// written it.
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

/// A text that changes nothing of a terminal but the place where it writes.
fn printable(text: &str) -> String {
    text.chars().map(|it| if it.is_control() && it != '\n' { '?' } else { it }).collect()
}

/// A reload that a running server is about to be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingReload {
    pid_file: PathBuf,
    pid: Pid,
    /// The reloads that had begun before the signal was sent.
    begun: u64,
}

impl PendingReload {
    /// Called before the signal is sent. None if the server keeps no record.
    pub(crate) fn prepare(pid_file: &Path, pid: Pid) -> Option<Self> {
        let Reading { begun, .. } = Reading::of(pid_file, pid).ok()?;
        Some(Self { pid_file: pid_file.to_owned(), pid, begun })
    }

    /// Waits until the server has taken or refused the configuration, for half a minute at most.
    ///
    /// # Errors
    ///
    /// Why the server has not taken it, as lines for standard error.
    pub fn wait(&self) -> Result<(), String> {
        self.wait_for(PATIENCE)
    }

    fn wait_for(&self, patience: Duration) -> Result<(), String> {
        let since = Instant::now();
        loop {
            if let Some(verdict) = self.verdict() {
                return verdict;
            }
            if since.elapsed() >= patience {
                return Err(format!(
                    "httpd (pid {}) has not reported within {} s whether it takes the new \
                     configuration: its error log will say so",
                    self.pid.as_raw_nonzero(),
                    patience.as_secs()
                ));
            }
            std::thread::sleep(GLANCE);
        }
    }

    fn verdict(&self) -> Option<Result<(), String>> {
        match running(&self.pid_file) {
            // Another program has taken over, with the new configuration.
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
        // What has ended does so once.
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
    fn who_hears_nothing_says_so() {
        let (pid_file, pid) = (PathBuf::from("/no/such/folder/pid"), process::own_pid());
        let pending = PendingReload { pid_file, pid, begun: 1 };
        let told = pending.wait_for(Duration::ZERO).unwrap_err();
        assert!(told.contains("has not reported within 0 s"), "{told}");
    }
}
