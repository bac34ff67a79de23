//! The pid file: written when the server starts, read by who wants to signal it, replaced when
//! it is stale. A path comes in, a pid that is alive goes out.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use evenkeel_sys::process::{self, Pid};

/// What a pid file says of the server that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Running {
    /// A server of this pid lives.
    Yes(Pid),
    /// The file names a process that is gone, is no server, or is the caller: a container starts
    /// its server under the same pid each time.
    Stale(Pid),
    /// There is no pid file.
    No,
}

/// Reads a pid file and looks whether its server lives. `InvalidData`: it holds no pid. Other
/// errors are those of reading it.
pub fn running(path: &Path) -> io::Result<Running> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Running::No),
        Err(error) => return Err(error),
    };
    let pid = text.trim().parse().ok().filter(|&pid| pid > 0).and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidData)?;
    let lives = pid != process::own_pid() && process::exists(pid) && is_server(pid);
    Ok(if lives { Running::Yes(pid) } else { Running::Stale(pid) })
}

/// Whether the process runs a server's program: a pid is soon given to something else. A program
/// that this process may not look at is taken for one.
fn is_server(pid: Pid) -> bool {
    let name_of = |process: &str| fs::read_to_string(format!("/proc/{process}/comm"));
    let Ok(name) = name_of(&pid.as_raw_nonzero().to_string()) else { return true };
    let name = name.trim_end();
    matches!(name, "apache2" | "httpd" | "evenkeel")
        || name_of("self").is_ok_and(|own| own.trim_end() == name)
}

/// A pid file that this process wrote, and removes when it ends in good order.
pub(crate) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes the file whole or not at all. The error is the line to print.
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
                // What was begun must not stay behind.
                let _ = fs::remove_file(&fresh);
                let reason = crate::listeners::as_apr(&error);
                Err(format!("{reason}: AH00099: could not create {}", path.display()))
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, if it is still this process's.
    pub(crate) fn remove(self) {
        let own = process::own_pid().as_raw_nonzero().to_string();
        if fs::read_to_string(&self.path).is_ok_and(|text| text.trim() == own) {
            // A folder that cannot be written any more is no reason not to end.
            let _ = fs::remove_file(&self.path);
        }
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
        // Process 1 lives but is no server.
        fs::write(&path, "1\n").unwrap();
        assert_eq!(running(&path).unwrap(), Running::Stale(Pid::from_raw(1).unwrap()));
        let file = PidFile::write(&path).unwrap();
        assert_eq!(running(&path).unwrap(), Running::Stale(process::own_pid()));
        file.remove();
        assert_eq!(running(&path).unwrap(), Running::No);
        fs::remove_dir(&folder).unwrap();
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
