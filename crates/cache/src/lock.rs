//! The lock of CacheLock: a file by which one request at a time fetches a URL, in all processes. A
//! process that dies leaves its lock behind, which counts for CacheLockMaxAge.

use crate::place::name_of;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
}

impl Lock {
    /// Locks a key; none if another request holds the lock. A lock that is older than `most_age`,
    /// or that is from the future, is taken over.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn take(folder: &Path, key: &[u8], most_age: Duration) -> io::Result<Option<Lock>> {
        let name = name_of(key);
        let path = folder.join(name.get(..1).unwrap_or("_")).join(&name);
        match create(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return created.map(|()| Some(Lock { path })),
        }
        let age = fs::metadata(&path)
            .and_then(|it| it.modified())
            .map(|modified| SystemTime::now().duration_since(modified).unwrap_or(Duration::MAX));
        match age {
            Ok(age) if age <= most_age => return Ok(None),
            Ok(_) => drop(fs::remove_file(&path)),
            Err(_) => {}
        }
        match create(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            created => created.map(|()| Some(Lock { path })),
        }
    }
}

fn create(path: &Path) -> io::Result<()> {
    let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            open().map(drop)
        }
        opened => opened.map(drop),
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // What was taken over as too old is gone or another's; both expire.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_and_an_old_lock_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let take = |age| Lock::take(folder.path(), b"key", Duration::from_secs(age)).unwrap();
        let first = take(60);
        assert!(first.is_some());
        assert!(take(60).is_none());
        assert!(Lock::take(folder.path(), b"other", Duration::from_secs(60)).unwrap().is_some());
        drop(first);
        let second = take(60).unwrap();
        let file = OpenOptions::new().write(true).open(&second.path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(61)).unwrap();
        assert!(take(60).is_some());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let path = folder.path().join("file");
        assert!(Lock::take(&path, b"key", Duration::from_secs(1)).is_err());
    }
}
