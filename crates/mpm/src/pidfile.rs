//! The pid file: written when the server starts, read to find the running server, and replaced when
//! it is stale.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use evenkeel_sys::process::{self, Pid};

/// The longest pid file that is read.
const LONGEST_BYTES: usize = 64;

/// What a pid file tells about its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Running {
    /// A server with this pid is alive.
    Yes(Pid),
    /// The process is gone, is no server, or is the caller: a container starts its server with the
    /// same pid each time.
    Stale(Pid),
    /// There is no pid file.
    No,
}

/// Reads a pid file and checks whether its server is alive. `InvalidData`: it has no pid;
/// `InvalidInput`: it is no regular file. Other errors are those of reading it.
pub fn running(path: &Path) -> io::Result<Running> {
    let text = match read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Running::No),
        Err(error) => return Err(error),
    };
    let pid = text.trim().parse().ok().filter(|&pid| pid > 0).and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidData)?;
    let lives = pid != process::own_pid() && process::exists(pid) && is_server(pid);
    Ok(if lives { Running::Yes(pid) } else { Running::Stale(pid) })
}

/// The text of a pid file, up to a bound, without waiting for a pipe.
fn read(path: &Path) -> io::Result<String> {
    let bytes = evenkeel_sys::open::read_beginning(path.as_os_str().as_bytes(), LONGEST_BYTES)?;
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether the process runs a server program, since pids are reused. A program that this process
/// may not inspect counts as one. A process that has ended does not, even if it was not reaped,
/// which in a container without an init process it never is.
pub(crate) fn is_server(pid: Pid) -> bool {
    let stat_of = |process: &str| fs::read_to_string(format!("/proc/{process}/stat"));
    let Ok(stat) = stat_of(&pid.as_raw_nonzero().to_string()) else { return true };
    let Some((name, state)) = name_and_state(&stat) else { return true };
    let is_own =
        || stat_of("self").is_ok_and(|own| name_and_state(&own).is_some_and(|own| own.0 == name));
    !matches!(state, 'Z' | 'X' | 'x')
        && (matches!(name, "apache2" | "httpd" | "evenkeel") || is_own())
}

/// The program's name and the state in /proc/PID/stat: `7 (httpd) S 1 ...` (proc(5)).
fn name_and_state(stat: &str) -> Option<(&str, char)> {
    let (before, behind) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    Some((name, behind.trim_start().chars().next()?))
}

/// The start time of a process, in clock ticks since the start of the system (proc(5)). Together
/// with the pid, it identifies one process.
pub(crate) fn start_ticks(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, behind) = stat.rsplit_once(") ")?;
    // The state, after the name, is the third field, and the start time is the twenty-second.
    behind.split(' ').nth(19)?.parse().ok()
}

/// A pid file that this process has written, and removes when it ends.
pub(crate) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes the file completely or not at all. The error is the line to print.
    pub(crate) fn write(path: &Path) -> Result<Self, String> {
        let pid = process::own_pid().as_raw_nonzero();
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{pid}"));
        let fresh = PathBuf::from(name);
        let written = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&fresh)
            .and_then(|mut file| writeln!(file, "{pid}"))
            .and_then(|()| fs::rename(&fresh, path));
        match written {
            Ok(()) => Ok(Self { path: path.to_owned() }),
            Err(error) => {
                // No partial file must stay behind.
                let _ = fs::remove_file(&fresh);
                let reason = crate::listeners::as_apr(&error);
                Err(format!("{reason}: AH00099: could not create {}", path.display()))
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file if it is still this process's. True if it did. A folder that has become
    /// read-only does not keep the server from ending.
    pub(crate) fn remove(&self) -> bool {
        let own = process::own_pid().as_raw_nonzero().to_string();
        let is_own = read(&self.path).is_ok_and(|text| text.trim() == own);
        is_own && fs::remove_file(&self.path).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_tells_a_living_server_from_a_stale_one() {
        let folder = std::env::temp_dir().join(format!("evenkeel-pid-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("pid");
        assert_eq!(running(&path).unwrap(), Running::No);
        fs::write(&path, "nonsense\n").unwrap();
        assert_eq!(running(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        // Process 1 is alive but no server.
        fs::write(&path, "1\n").unwrap();
        assert_eq!(running(&path).unwrap(), Running::Stale(Pid::from_raw(1).unwrap()));
        let file = PidFile::write(&path).unwrap();
        assert_eq!(running(&path).unwrap(), Running::Stale(process::own_pid()));
        assert!(file.remove() && !file.remove());
        assert_eq!(running(&path).unwrap(), Running::No);
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_server_that_has_ended_does_not_run() {
        assert_eq!(name_and_state("7 (a) b) Z 1 7"), Some(("a) b", 'Z')));
        let folder = std::env::temp_dir().join(format!("evenkeel-ended-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("httpd");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let path = folder.join("pid");
        fs::write(&path, format!("{}\n", child.id())).unwrap();
        assert_eq!(running(&path).unwrap(), Running::Yes(pid));
        child.kill().unwrap();
        // It stays a zombie until it is reaped.
        while !fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().contains(") Z ") {
            std::thread::yield_now();
        }
        assert_eq!(running(&path).unwrap(), Running::Stale(pid));
        child.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_no_pid_file_is_not_waited_for() {
        let endless = running(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::InvalidInput);
        let folder = std::env::temp_dir().join(format!("evenkeel-fifo-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let fifo = folder.join("pid");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert_eq!(running(&fifo).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        fs::remove_file(&fifo).unwrap();
        fs::write(&fifo, "1".repeat(100_000)).unwrap();
        assert_eq!(running(&fifo).unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_that_is_missing_is_one_line() {
        let error = PidFile::write(Path::new("/no/such/folder/pid")).err().unwrap();
        assert_eq!(
            error,
            "(2)No such file or directory: AH00099: could not create /no/such/folder/pid"
        );
    }
}
