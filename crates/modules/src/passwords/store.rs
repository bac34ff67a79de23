//! The password cache of a process. It holds parsed files of users and groups, each valid while the
//! file's inode, size and times stay the same, and the results of verifications, under a keyed
//! hash. All threads of a process share one store. The size of every table is bounded.

use super::{GroupFile, PasswordFile, verify};
use evenkeel_sys::blocking_pool::{BlockingPool, BlockingTask};
use evenkeel_sys::open::{self, Stat};
use evenkeel_sys::random;
use foldhash::fast::RandomState;
use sha1::{Digest as _, Sha1};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The most files of one kind (users, groups) in the cache.
const FILES: usize = 64;

/// The most bytes of files of one kind in the cache.
const BYTES: u64 = 64 << 20;

/// The largest file that is read, in bytes.
const LARGEST: u64 = 16 << 20;

/// The most right passwords, and the most wrong ones, in the cache.
const PASSWORDS: usize = 4096;

/// The time for which a right password is cached, if AuthnCacheTimeout does not set it.
pub const REMEMBERED: Duration = Duration::from_secs(300);

/// The time for which a wrong password is cached.
const REMEMBERED_WRONG: Duration = Duration::from_secs(10);

/// The cached copy of a file is used only if the file's last change was older than this when the
/// file was read, in nanoseconds. The kernel's clock of file times is coarse: a second change soon
/// after the first may leave the times as they are.
const COARSE_NS: i64 = 50_000_000;

/// The most requests of a process that hash a password or wait for it.
const WAITING: usize = 256;

/// What is added to the nice value of the thread that hashes, so that a flood of wrong passwords
/// leaves the cores to other requests.
const NICE: i32 = 10;

/// The attributes that identify a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i64,
    changed_ns: i64,
}

impl Version {
    fn of(stat: &Stat) -> Self {
        let Stat { device, inode, size, modified_ns, changed_ns, .. } = *stat;
        Self { device, inode, size, modified_ns, changed_ns }
    }
}

/// A file in the cache.
struct Kept<T> {
    version: Version,
    /// Whether the file's last change was old enough when the file was read ([`COARSE_NS`]).
    is_settled: bool,
    parsed: Arc<T>,
}

/// The current contents of a file.
pub struct Loaded<T> {
    /// The parsed contents.
    pub parsed: Arc<T>,
    /// Whether this call has read a new version, whose complaints the caller must log.
    pub is_new: bool,
}

type Files<T> = Mutex<HashMap<Box<Path>, Kept<T>, RandomState>>;

/// The results of verifications. The keys are hashes already, under a key that nobody knows.
type Verifications = HashMap<Verified, Moment, RandomState>;

/// The time of a verification, and for how long its result is valid.
#[derive(Clone, Copy)]
struct Moment {
    at: SystemTime,
    lifetime: Duration,
}

impl Moment {
    /// Whether the result is still valid and not older than `most`. If the clock was set back, it
    /// is not valid.
    fn is_within(&self, most: Duration, now: SystemTime) -> bool {
        now.duration_since(self.at).is_ok_and(|age| age < self.lifetime.min(most))
    }
}

/// The cache key of a verification.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verified([u8; 20]);

/// A place among the requests that hash a password or wait for it. Dropping it frees the place.
pub struct HashPlace<'a> {
    store: &'a Store,
}

impl Drop for HashPlace<'_> {
    fn drop(&mut self) {
        self.store.waiting.fetch_sub(1, Relaxed);
    }
}

/// The password cache of a process.
pub struct Store {
    users: Files<PasswordFile>,
    groups: Files<GroupFile>,
    /// The right and the wrong passwords, each with the time of its verification. The tables are
    /// separate so that a flood of wrong passwords evicts no right one. Wrong passwords are cached
    /// because a listing of 1000 files checks the same password 1000 times.
    right: Mutex<Verifications>,
    wrong: Mutex<Verifications>,
    /// `None` if the kernel returned no random bytes. In that case no cached verification is used.
    key: Option<[u8; 32]>,
    /// Hashes passwords one at a time. Its thread is none of the blocking pool, whose permits a
    /// request that waits here may hold.
    hasher: BlockingPool,
    waiting: AtomicUsize,
    /// The time of the last log line about rejected requests, in seconds since 1970.
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
            hasher: BlockingPool::with_nice(1, NICE),
            waiting: AtomicUsize::new(0),
            told_s: AtomicU64::new(0),
        }
    }

    /// The users of a file that has the attributes `stat` now. Returns `None` if the file is not
    /// cached or had other attributes when it was read.
    #[must_use]
    pub fn known_users(&self, path: &Path, stat: &Stat) -> Option<Arc<PasswordFile>> {
        known(&self.users, path, stat)
    }

    /// The users of a file. Reads the file unless it is cached.
    ///
    /// # Errors
    /// The file cannot be read, is no regular file, or is too large.
    pub fn users(&self, path: &Path) -> io::Result<Loaded<PasswordFile>> {
        load(&self.users, path, PasswordFile::parse)
    }

    /// The groups of a file. Returns `None` if the file is not cached or has changed since.
    #[must_use]
    pub fn known_groups(&self, path: &Path) -> Option<Arc<GroupFile>> {
        known(&self.groups, path, &stat(path)?)
    }

    /// The groups of a file. Reads the file unless it is cached.
    ///
    /// # Errors
    /// The file cannot be read, is no regular file, or is too large.
    pub fn groups(&self, path: &Path) -> io::Result<Loaded<GroupFile>> {
        load(&self.groups, path, GroupFile::parse)
    }

    /// The cache key of a verification: a hash of its inputs and of a random key of the process. A
    /// change of the entry invalidates the result, because the stored hash is one of the inputs.
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

    /// The cached result of a verification: whether the password was right. Returns `None` if there
    /// is no result or it has expired. A right password must not be older than `lifetime`.
    #[must_use]
    pub fn recall(&self, key: &Verified, lifetime: Duration) -> Option<bool> {
        self.key?;
        let now = SystemTime::now();
        let is_valid = |kept: &Mutex<Verifications>, most: Duration| {
            lock(kept).get(key).is_some_and(|moment| moment.is_within(most, now))
        };
        if is_valid(&self.right, lifetime) {
            return Some(true);
        }
        is_valid(&self.wrong, REMEMBERED_WRONG).then_some(false)
    }

    /// Caches whether a password was right: a right password for `lifetime`, a wrong one for 10 s.
    pub fn remember(&self, key: Verified, is_right: bool, lifetime: Duration) {
        let (kept, lifetime) = match is_right {
            true => (&self.right, lifetime),
            false => (&self.wrong, REMEMBERED_WRONG),
        };
        if lifetime.is_zero() {
            return;
        }
        let now = SystemTime::now();
        let mut kept = lock(kept);
        if kept.len() >= PASSWORDS {
            kept.retain(|_, moment| moment.is_within(moment.lifetime, now));
        }
        if kept.len() >= PASSWORDS {
            kept.clear();
        }
        kept.insert(key, Moment { at: now, lifetime });
    }

    /// A place for a request that hashes a password. Returns `None` if all places are taken.
    pub fn place(&self) -> Option<HashPlace<'_>> {
        let place = HashPlace { store: self };
        (self.waiting.fetch_add(1, Relaxed) < WAITING).then_some(place)
    }

    /// Gives up verifications that have run for longer than `timeout`, as a hash of an extreme cost
    /// does. Returns messages for the error log.
    pub fn abandon_stalled(&self, timeout: Duration) -> Vec<String> {
        self.hasher.abandon_stalled(timeout)
    }

    /// Whether a rejected request is to be logged: true at most once a second.
    pub fn may_tell(&self) -> bool {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.told_s.swap(now_s, Relaxed) != now_s
    }
}

impl HashPlace<'_> {
    /// Compares a password with a stored hash once the comparisons before it have ended.
    pub fn verify(&self, password: Vec<u8>, stored: Vec<u8>) -> BlockingTask<bool> {
        let work = move |_: &_| verify(&password, &stored);
        self.store.hasher.spawn_long("verifying a password", work)
    }

    /// Whether other comparisons wait.
    pub fn is_queued(&self) -> bool {
        self.store.hasher.queued() > 1
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stat(path: &Path) -> Option<Stat> {
    open::stat(path.as_os_str().as_bytes()).ok()
}

fn known<T>(files: &Files<T>, path: &Path, stat: &Stat) -> Option<Arc<T>> {
    let version = Version::of(stat);
    let files = lock(files);
    let kept = files.get(path).filter(|kept| kept.is_settled && kept.version == version)?;
    Some(Arc::clone(&kept.parsed))
}

fn load<T>(files: &Files<T>, path: &Path, parse: fn(&[u8]) -> T) -> io::Result<Loaded<T>> {
    if let Some(parsed) = stat(path).and_then(|stat| known(files, path, &stat)) {
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

/// Reads a whole file. Returns its version, whether it may be cached (it did not change during the
/// read, and its last change is old enough), and its contents.
fn read(path: &Path) -> io::Result<(Version, bool, Vec<u8>)> {
    // `open_to_read` does not block on a pipe without a writer.
    let mut file = File::from(open::open_to_read(path)?);
    let stat = open::fstat(&file)?;
    // /dev/null stands for an empty file, as in ap_pcfg_openfile (util.c).
    if !stat.is_file() && path != Path::new("/dev/null") {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    if stat.size > LARGEST {
        let text = format!("it has more than {LARGEST} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let mut text = Vec::new();
    (&mut file).take(LARGEST).read_to_end(&mut text)?;
    let (before, after) = (Version::of(&stat), Version::of(&open::fstat(&file)?));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let age_ns = i64::try_from(now).unwrap_or_default() - after.changed_ns.max(after.modified_ns);
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
        // Another file replaces it, with the same size and modification time.
        let other = folder.path().join("other");
        fs::write(&other, "bob:{SHA}a\nbad\n").unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(stat(&path).is_some_and(|now| store.known_users(&path, &now).is_none()));
        let second = store.users(&path).unwrap();
        assert!(second.is_new && second.parsed.user(b"ann").is_none());
        fs::remove_file(&path).unwrap();
        assert!(store.users(&path).is_err());
        assert!(store.users(folder.path()).is_err());
    }

    #[test]
    fn passwords_are_remembered_with_all_that_they_were_verified_with() {
        let store = Store::new();
        let key = store.key(b"p", b"ann", b"secret", b"hash");
        assert_eq!(store.recall(&key, REMEMBERED), None);
        store.remember(key, true, REMEMBERED);
        assert_eq!(
            store.recall(&store.key(b"p", b"ann", b"secret", b"hash"), REMEMBERED),
            Some(true)
        );
        for other in [
            store.key(b"q", b"ann", b"secret", b"hash"),
            store.key(b"p", b"bob", b"secret", b"hash"),
            store.key(b"p", b"ann", b"Secret", b"hash"),
            store.key(b"p", b"ann", b"secret", b"hash2"),
            store.key(b"p", b"an", b"nsecret", b"hash"),
        ] {
            assert_eq!(store.recall(&other, REMEMBERED), None);
            store.remember(other, false, REMEMBERED);
            assert_eq!(store.recall(&other, REMEMBERED), Some(false));
        }
        assert!(
            Store::new().recall(&key, REMEMBERED).is_none()
                && Store::new().key(b"", b"", b"", b"") != key
        );
        let key = store.key(b"p", b"x", b"", b"");
        let moment = Moment { at: SystemTime::now() - REMEMBERED, lifetime: REMEMBERED };
        lock(&store.right).insert(key, moment);
        assert_eq!(store.recall(&key, REMEMBERED), None, "for a time alone");
        let moment = Moment { at: SystemTime::now() - Duration::from_secs(60), ..moment };
        lock(&store.right).insert(key, moment);
        assert_eq!(store.recall(&key, REMEMBERED), Some(true));
        assert_eq!(store.recall(&key, Duration::from_secs(59)), None);
        store.remember(store.key(b"p", b"y", b"", b""), true, Duration::ZERO);
        assert_eq!(store.recall(&store.key(b"p", b"y", b"", b""), REMEMBERED), None);
        for number in 0..2 * PASSWORDS {
            store.remember(store.key(b"p", &number.to_le_bytes(), b"", b""), true, REMEMBERED);
        }
        assert!(lock(&store.right).len() <= PASSWORDS);
    }

    #[test]
    fn only_so_many_wait() {
        let store = Store::new();
        let places: Vec<_> = (0..WAITING).map(|_| store.place().unwrap()).collect();
        assert!(store.place().is_none());
        drop(places);
        assert!(store.place().is_some());
        assert!(store.may_tell());
    }
}
