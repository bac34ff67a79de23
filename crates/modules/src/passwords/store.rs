//! What a process remembers of passwords: files of users and groups, each trusted while its
//! identity, size and times stay the same, and passwords that were verified, under a keyed hash.
//! All threads of a process share one store. Everything in it is bounded.

use super::{GroupFile, PasswordFile};
use evenkeel_sys::{open, random};
use sha1::{Digest as _, Sha1};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The most files that are kept of a kind.
const FILES: usize = 64;

/// The most bytes of files that are kept of a kind.
const BYTES: u64 = 64 << 20;

/// The largest file that is read.
const LARGEST: u64 = 16 << 20;

/// The most passwords that are remembered.
const PASSWORDS: usize = 4096;

/// How long a password is remembered.
const REMEMBERED: Duration = Duration::from_secs(300);

/// How long it is remembered that a password was wrong.
const REMEMBERED_WRONG: Duration = Duration::from_secs(10);

/// A file that was changed less than this before it was read may be changed again without a trace:
/// the times of a file are as coarse as the kernel's clock.
const COARSE_NS: i128 = 50_000_000;

/// How many requests of a process may wait to have a password hashed.
const WAITING: usize = 256;

/// What tells a version of a file from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Version {
    fn of(stat: &std::fs::Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Self {
            device: stat.dev(),
            inode: stat.ino(),
            size: stat.size(),
            modified_ns: ns(stat.mtime(), stat.mtime_nsec()),
            changed_ns: ns(stat.ctime(), stat.ctime_nsec()),
        }
    }
}

/// A file that was read.
struct Kept<T> {
    version: Version,
    /// Whether the file had been left alone for long enough when it was read.
    is_settled: bool,
    parsed: Arc<T>,
}

/// A file as it is now.
pub struct Loaded<T> {
    /// What it says.
    pub parsed: Arc<T>,
    /// Whether this call has read it, so that its complaints are to be told.
    pub is_new: bool,
}

type Files<T> = Mutex<HashMap<Box<Path>, Kept<T>>>;

/// A verified password, as it is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verified([u8; 20]);

/// The right to hash a password. One request of a process has it at a time, so that passwords take
/// no more than one core.
pub struct OneHasher<'a> {
    store: &'a Store,
    permit: Option<SemaphorePermit<'a>>,
}

impl Drop for OneHasher<'_> {
    fn drop(&mut self) {
        self.store.waiting.fetch_sub(1, Relaxed);
    }
}

/// What a process remembers of passwords.
pub struct Store {
    users: Files<PasswordFile>,
    groups: Files<GroupFile>,
    /// Passwords that were right, and those that were wrong, each until when that counts. A page
    /// that asks about a thousand files hashes a wrong password once, and a flood of wrong ones
    /// forgets no right one.
    right: Mutex<HashMap<Verified, SystemTime>>,
    wrong: Mutex<HashMap<Verified, SystemTime>>,
    /// None where the kernel gives no random bytes: nothing is remembered then.
    key: Option<[u8; 32]>,
    hashers: Semaphore,
    waiting: AtomicUsize,
    /// The second of the last line about requests that were turned away.
    told_s: AtomicU64,
}

impl Store {
    /// The store of the process.
    #[must_use]
    pub fn of_process() -> &'static Self {
        static STORE: LazyLock<Store> = LazyLock::new(Store::new);
        &STORE
    }

    fn new() -> Self {
        Self {
            users: Mutex::default(),
            groups: Mutex::default(),
            right: Mutex::default(),
            wrong: Mutex::default(),
            key: random::bytes().ok(),
            hashers: Semaphore::new(1),
            waiting: AtomicUsize::new(0),
            told_s: AtomicU64::new(0),
        }
    }

    /// The users of a file, if it has been read and has not changed since.
    #[must_use]
    pub fn known_users(&self, path: &Path) -> Option<Arc<PasswordFile>> {
        known(&self.users, path)
    }

    /// The users of a file. It is read unless it is known.
    ///
    /// # Errors
    /// The file cannot be read, is no regular file, or is too large.
    pub fn users(&self, path: &Path) -> io::Result<Loaded<PasswordFile>> {
        load(&self.users, path, PasswordFile::parse)
    }

    /// The groups of a file, if it has been read and has not changed since.
    #[must_use]
    pub fn known_groups(&self, path: &Path) -> Option<Arc<GroupFile>> {
        known(&self.groups, path)
    }

    /// The groups of a file, as [`Store::users`].
    ///
    /// # Errors
    /// The same.
    pub fn groups(&self, path: &Path) -> io::Result<Loaded<GroupFile>> {
        load(&self.groups, path, GroupFile::parse)
    }

    /// The key of a password: a hash of all that it was verified with, under a random key of the
    /// process. The stored hash is part of it, so that a change of the entry forgets the password.
    #[must_use]
    pub fn key(&self, provider: &[u8], user: &[u8], password: &[u8], stored: &[u8]) -> Verified {
        let mut hasher = Sha1::new();
        hasher.update(self.key.unwrap_or_default());
        for part in [provider, user, stored, password] {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        Verified(hasher.finalize().into())
    }

    /// Whether a password was right a short time ago; none where that is not known.
    #[must_use]
    pub fn recall(&self, key: &Verified) -> Option<bool> {
        self.key?;
        let is_valid = |kept: &Mutex<HashMap<Verified, SystemTime>>, most: Duration| {
            let until = lock(kept).get(key).copied();
            // A clock that is set back forgets.
            let left = until.map(|until| until.duration_since(SystemTime::now()));
            left.is_some_and(|left| left.is_ok_and(|left| !left.is_zero() && left <= most))
        };
        if is_valid(&self.right, REMEMBERED) {
            return Some(true);
        }
        is_valid(&self.wrong, REMEMBERED_WRONG).then_some(false)
    }

    /// Remembers whether a password was right.
    pub fn remember(&self, key: Verified, is_right: bool) {
        let (kept, time) = match is_right {
            true => (&self.right, REMEMBERED),
            false => (&self.wrong, REMEMBERED_WRONG),
        };
        let now = SystemTime::now();
        let mut kept = lock(kept);
        if kept.len() >= PASSWORDS {
            kept.retain(|_, until| *until > now);
        }
        if kept.len() >= PASSWORDS {
            kept.clear();
        }
        kept.insert(key, now + time);
    }

    /// A place among those that wait for the right to hash; none where too many wait.
    pub fn queue(&self) -> Option<OneHasher<'_>> {
        let place = OneHasher { store: self, permit: None };
        (self.waiting.fetch_add(1, Relaxed) < WAITING).then_some(place)
    }

    /// Whether a line about requests that are turned away is due: one a second.
    pub fn may_tell(&self) -> bool {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.told_s.swap(now_s, Relaxed) != now_s
    }
}

impl<'a> OneHasher<'a> {
    /// Waits for the right.
    pub async fn turn(&mut self) {
        self.permit = self.store.hashers.acquire().await.ok();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn known<T>(files: &Files<T>, path: &Path) -> Option<Arc<T>> {
    let version = Version::of(&std::fs::metadata(path).ok()?);
    let files = lock(files);
    let kept = files.get(path).filter(|kept| kept.is_settled && kept.version == version)?;
    Some(Arc::clone(&kept.parsed))
}

fn load<T>(files: &Files<T>, path: &Path, parse: fn(&[u8]) -> T) -> io::Result<Loaded<T>> {
    if let Some(parsed) = known(files, path) {
        return Ok(Loaded { parsed, is_new: false });
    }
    let (version, is_settled, text) = read(path)?;
    let parsed = Arc::new(parse(&text));
    let mut files = lock(files);
    let is_new = files.get(path).is_none_or(|kept| kept.version != version);
    let bytes: u64 = files.values().map(|kept| kept.version.size).sum();
    if files.len() >= FILES || bytes + version.size > BYTES {
        files.clear();
    }
    files.insert(path.into(), Kept { version, is_settled, parsed: Arc::clone(&parsed) });
    Ok(Loaded { parsed, is_new })
}

/// Reads a file whole, as one version of it.
fn read(path: &Path) -> io::Result<(Version, bool, Vec<u8>)> {
    // A pipe that nobody writes to would hold the thread.
    let mut file = File::from(open::open_to_read(path)?);
    let stat = file.metadata()?;
    if !stat.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    if stat.size() > LARGEST {
        let text = format!("it has more than {LARGEST} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let mut text = Vec::new();
    (&mut file).take(LARGEST).read_to_end(&mut text)?;
    let (before, after) = (Version::of(&stat), Version::of(&file.metadata()?));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let age_ns = i128::try_from(now).unwrap_or_default() - after.changed_ns.max(after.modified_ns);
    Ok((after, before == after && age_ns > COARSE_NS, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_read_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        fs::write(&path, "ann:{SHA}a\nbad\n").unwrap();
        let store = Store::new();
        let first = store.users(&path).unwrap();
        assert!(first.is_new && first.parsed.user(b"ann").is_some());
        assert!(!store.users(&path).unwrap().is_new, "its complaint is told once");
        // Another file under the same name, of the same size and time.
        let other = folder.path().join("other");
        fs::write(&other, "bob:{SHA}a\nbad\n").unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(store.known_users(&path).is_none());
        let second = store.users(&path).unwrap();
        assert!(second.is_new && second.parsed.user(b"ann").is_none());
        fs::remove_file(&path).unwrap();
        assert!(store.users(&path).is_err() && store.known_users(&path).is_none());
        assert!(store.users(folder.path()).is_err());
    }

    #[test]
    fn passwords_are_remembered_with_all_that_they_were_verified_with() {
        let store = Store::new();
        let key = store.key(b"p", b"ann", b"secret", b"hash");
        assert_eq!(store.recall(&key), None);
        store.remember(key, true);
        assert_eq!(store.recall(&store.key(b"p", b"ann", b"secret", b"hash")), Some(true));
        for other in [
            store.key(b"q", b"ann", b"secret", b"hash"),
            store.key(b"p", b"bob", b"secret", b"hash"),
            store.key(b"p", b"ann", b"Secret", b"hash"),
            store.key(b"p", b"ann", b"secret", b"hash2"),
            store.key(b"p", b"an", b"nsecret", b"hash"),
        ] {
            assert_eq!(store.recall(&other), None);
            store.remember(other, false);
            assert_eq!(store.recall(&other), Some(false));
        }
        assert!(Store::new().recall(&key).is_none() && Store::new().key(b"", b"", b"", b"") != key);
        let key = store.key(b"p", b"x", b"", b"");
        lock(&store.right).insert(key, SystemTime::now());
        assert_eq!(store.recall(&key), None, "for a time alone");
        for number in 0..2 * PASSWORDS {
            store.remember(store.key(b"p", &number.to_le_bytes(), b"", b""), true);
        }
        assert!(lock(&store.right).len() <= PASSWORDS);
    }

    #[test]
    fn only_so_many_wait() {
        let store = Store::new();
        let places: Vec<_> = (0..WAITING).map(|_| store.queue().unwrap()).collect();
        assert!(store.queue().is_none());
        drop(places);
        assert!(store.queue().is_some());
        assert!(store.may_tell());
    }
}
