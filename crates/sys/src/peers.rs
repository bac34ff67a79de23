//! The processes that listen at the Unix sockets of applications, as the serving processes meet
//! them: a table in shared memory, so that whichever process shows the status knows what all of
//! them have seen. The kernel tells the process that called listen(2) to whoever connects.

use crate::clock;
use crate::memory::Shared;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most sockets in the table. Further sockets are not noted.
const ROWS: usize = 64;

/// The words of a row: its state, the process, when that was noted, the length of the path, and the
/// path (unix(7): at most 108 bytes).
const STATE: usize = 0;
const PROCESS: usize = 1;
const NOTED_US: usize = 2;
const LENGTH: usize = 3;
const PATH: usize = 4;
const ROW_WORDS: usize = PATH + 14;
const MOST_PATH: usize = (ROW_WORDS - PATH) * size_of::<u64>();

/// States of a row.
const FREE: u64 = 0;
const TAKEN: u64 = 1;
const READY: u64 = 2;

/// The least time between two questions to the kernel about a socket, in microseconds.
const AGAIN_US: u64 = 1_000_000;

static TABLE: OnceLock<Option<Peers>> = OnceLock::new();

/// A process that listens at a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The path of the socket.
    pub path: PathBuf,
    /// The process; 0 if it is in another namespace of processes.
    pub pid: u32,
}

/// Makes the table of this process and of those that it will fork. Without it nothing is noted.
pub fn open() {
    let _table = TABLE.get_or_init(|| Peers::new().ok());
}

/// Notes who listens at `path`, which `socket` is connected to.
pub fn note(path: &Path, socket: impl AsFd) {
    if let Some(Some(table)) = TABLE.get() {
        table.note(path, clock::monotonic_us(), || listening_process(socket));
    }
}

/// The processes that were noted, by socket.
#[must_use]
pub fn list() -> Vec<Listener> {
    TABLE.get().and_then(Option::as_ref).map(Peers::list).unwrap_or_default()
}

struct Peers {
    region: Shared,
}

impl Peers {
    fn new() -> io::Result<Self> {
        Ok(Self { region: Shared::new(ROWS * ROW_WORDS)? })
    }

    fn rows(&self) -> impl Iterator<Item = &[AtomicU64; ROW_WORDS]> {
        self.region.words().as_chunks::<ROW_WORDS>().0.iter()
    }

    fn note(&self, path: &Path, now_us: u64, find: impl FnOnce() -> Option<u32>) {
        let path = path.as_os_str().as_bytes();
        let Some(row) = self.rows().find(|row| is_of(row, path)) else { return };
        let noted_us = row[NOTED_US].load(Ordering::Relaxed);
        if noted_us != 0 && now_us.saturating_sub(noted_us) < AGAIN_US {
            return;
        }
        row[NOTED_US].store(now_us.max(1), Ordering::Relaxed);
        if let Some(pid) = find() {
            row[PROCESS].store(pid.into(), Ordering::Relaxed);
        }
    }

    fn list(&self) -> Vec<Listener> {
        let mut found: Vec<Listener> = Vec::new();
        for row in self.rows().filter(|row| row[STATE].load(Ordering::Acquire) == READY) {
            let length = usize::try_from(row[LENGTH].load(Ordering::Relaxed)).unwrap_or(MOST_PATH);
            let words = row[PATH..].iter().map(|word| word.load(Ordering::Relaxed).to_le_bytes());
            let bytes: Vec<u8> = words.flatten().take(length).collect();
            let path = PathBuf::from(std::ffi::OsStr::from_bytes(&bytes));
            let pid = u32::try_from(row[PROCESS].load(Ordering::Relaxed)).unwrap_or(0);
            // Two processes that meet a socket at the same time may both have taken a row.
            if found.iter().all(|known| known.path != path) {
                found.push(Listener { path, pid });
            }
        }
        found
    }
}

/// Whether a row is that of a path. A free row becomes it.
fn is_of(row: &[AtomicU64; ROW_WORDS], path: &[u8]) -> bool {
    if path.len() > MOST_PATH {
        return false;
    }
    let words = || {
        path.chunks(size_of::<u64>()).map(|part| {
            let mut whole = [0; size_of::<u64>()];
            whole.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(whole)
        })
    };
    let taken = row[STATE].compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Acquire);
    match taken {
        Ok(_) => {
            row[LENGTH].store(path.len() as u64, Ordering::Relaxed);
            row[PATH..].iter().zip(words()).for_each(|(to, it)| to.store(it, Ordering::Relaxed));
            row[STATE].store(READY, Ordering::Release);
            true
        }
        Err(READY) => {
            row[LENGTH].load(Ordering::Relaxed) == path.len() as u64
                && row[PATH..].iter().zip(words()).all(|(it, is)| it.load(Ordering::Relaxed) == is)
        }
        Err(_) => false,
    }
}

/// The process that has called listen(2) on what a socket is connected to (unix(7): SO_PEERCRED).
fn listening_process(socket: impl AsFd) -> Option<u32> {
    let mut found = MaybeUninit::<libc::ucred>::zeroed();
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, which the value has.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            found.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    // SAFETY: a value of integers, which was zeroed.
    let found = unsafe { found.assume_init() };
    if result == 0 { u32::try_from(found.pid).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn sockets_are_noted_with_the_process_behind_them_once_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let socket = UnixStream::connect(&path).unwrap();
        assert_eq!(listening_process(&socket), Some(std::process::id()));
        let table = Peers::new().unwrap();
        let (one, two) = (Path::new("/run/one"), Path::new("/run/one.more"));
        table.note(one, 5, || Some(7));
        table.note(two, 5, || Some(8));
        table.note(one, 6, || panic!("asked again"));
        table.note(one, 2_000_000, || Some(9));
        let row = |path: &Path, pid| Listener { path: path.into(), pid };
        assert_eq!(table.list(), [row(one, 9), row(two, 8)]);
        // A path that is too long and a table that is full note nothing.
        table.note(Path::new(&"x".repeat(200)), 5, || Some(1));
        (0..100).for_each(|number| table.note(Path::new(&format!("/{number}")), 5, || Some(1)));
        assert_eq!(table.list().len(), ROWS);
        assert_eq!(table.list()[0], row(one, 9));
    }
}
