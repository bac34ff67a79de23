//! The listening sockets of FastCGI programs, in a folder that only this process's user can enter.

use crate::application::listen_at;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The kernel's queue of a process, which has one connection at a time.
const BACKLOG: i32 = 8;

/// A folder, which is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder for temporary sockets. Errors are mkdtemp(3)'s.
    pub fn new() -> io::Result<Self> {
        let pattern = std::env::temp_dir().join("evenkeel-fcgid-XXXXXX");
        let mut pattern = pattern.into_os_string().into_encoded_bytes();
        pattern.push(0);
        // SAFETY: the pattern is a C string in memory that the call may change.
        let made = unsafe { libc::mkdtemp(pattern.as_mut_ptr().cast()) };
        if made.is_null() {
            return Err(io::Error::last_os_error());
        }
        pattern.pop();
        let path = <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(pattern);
        Ok(Self(path.into()))
    }

    /// Makes the listening socket with this number. It blocks, as programs expect. Errors are
    /// bind(2)'s.
    pub fn listen(&self, number: u64) -> io::Result<(PathBuf, OwnedFd)> {
        let path = self.0.join(number.to_string());
        let listener = listen_at(&path, BACKLOG, None)?;
        rustix::io::ioctl_fionbio(&listener, false)?;
        Ok((path, listener))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_the_owner_reaches_the_sockets_and_they_go_with_the_folder() {
        let folder = Folder::new().unwrap();
        let mode = std::fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let (path, _listener) = folder.listen(3).unwrap();
        UnixStream::connect(&path).unwrap();
        let place = folder.path().to_owned();
        drop(folder);
        assert!(!place.exists());
    }
}
