//! The interface of the cache: look up a path, ask whether an answer still holds, read a file. It
//! belongs to one serving thread. The functions that look something up first apply the changes that
//! the kernel has reported.

use crate::folder::{AccessFile, Folder};
use crate::found::{Contents, Found, Kind, Looked};
use crate::listed::ListedFile;
use crate::state::State;
use evenkeel_message::{Level, Notice};
use evenkeel_sys::inotify::Inotify;
use evenkeel_sys::open::{self, Stat};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long an answer holds without lstat, in milliseconds. It bounds what the kernel does not
/// report (a file system mounted over a folder, writes through a memory map).
pub(crate) const FRESH_MS: u64 = 1000;

/// How the cache learns of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// By inotify and a signal; like `PerRequest`, and with a notice, if these are not available.
    Told,
    /// Like `Told`, but without a notice. For one of many caches, which the others can replace.
    ToldIfPossible,
    /// By lstat for each request. For the caches beyond those to which the kernel grants an inotify
    /// instance.
    PerRequest,
}

/// The bounds of a cache. Each serving thread has one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of cached files and folders.
    pub entries: usize,
    /// The number of cached paths where nothing is. They are separate, so that requests for absent
    /// files evict no file. As many walks to such paths are cached.
    pub absent: usize,
    /// The number of folders in the tree of folders.
    pub folders: usize,
    /// The bytes of all cached texts of access files, each with an overhead. What is made of the
    /// texts is many times as large.
    pub access_bytes: u64,
    /// The largest file that is cached in memory, in bytes. Of larger files the open descriptor is
    /// cached.
    pub file_bytes: u64,
    /// The bytes of all contents in memory.
    pub total_bytes: u64,
    /// The number of cached descriptors.
    pub descriptors: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 131_072,
            absent: 4096,
            folders: 65_536,
            access_bytes: 8 << 20,
            file_bytes: 128 << 10,
            total_bytes: 128 << 20,
            descriptors: 256,
        }
    }
}

/// The least that a cache of access files holds, in bytes, however many caches share.
pub(crate) const LEAST_ACCESS_BYTES: u64 = 1 << 20;

impl Limits {
    /// The bounds of each of `caches` caches that share these.
    #[must_use]
    pub fn shared_by(self, caches: usize) -> Self {
        let caches = caches.max(1);
        Self {
            entries: (self.entries / caches).max(1),
            absent: (self.absent / caches).max(1),
            folders: (self.folders / caches).max(1),
            access_bytes: (self.access_bytes / caches as u64).max(LEAST_ACCESS_BYTES),
            total_bytes: self.total_bytes / caches as u64,
            descriptors: (self.descriptors / caches).max(1),
            ..self
        }
    }
}

/// The cache of one serving thread. Only one may live on a thread at a time.
#[derive(Debug)]
pub struct Files {
    state: RefCell<State>,
    clock: fn() -> u64,
    /// Whether [`Files::take_notice`] returns nothing.
    is_quiet: bool,
}

impl Files {
    /// An empty cache for the calling thread. If inotify is not available, the result includes a
    /// notice to the administrator, once for the process.
    #[must_use]
    pub fn new(limits: Limits, policy: Policy) -> (Self, Option<Notice>) {
        Self::with_clock(limits, policy, || evenkeel_sys::clock::monotonic_coarse_us() / 1000)
    }

    /// Like [`Files::new`], with a monotonic clock in milliseconds.
    #[must_use]
    pub fn with_clock(
        limits: Limits,
        policy: Policy,
        clock: fn() -> u64,
    ) -> (Self, Option<Notice>) {
        let (inotify, notice) = match policy {
            Policy::PerRequest => (None, None),
            Policy::Told => match Inotify::new() {
                Ok(inotify) => (Some(inotify), None),
                Err(error) => (None, no_inotify(&error)),
            },
            Policy::ToldIfPossible => (Inotify::new().ok(), None),
        };
        let mut state = State::new(limits, inotify);
        state.keeps_large = policy == Policy::Told && state.watches.inotify.is_some();
        let state = RefCell::new(state);
        (Self { state, clock, is_quiet: policy != Policy::Told }, notice)
    }

    /// What is at an absolute path, and how much of the path that is. Call it after the recv that
    /// completed the request. Nothing that it finds is an error: see [`crate::Kind`].
    #[must_use]
    pub fn look_up(&self, path: &[u8]) -> Looked {
        let now_ms = (self.clock)();
        let mut state = self.state.borrow_mut();
        if Inotify::raised() {
            state.heed_changes();
        }
        if let Some(found) = state.file_of_round(path) {
            return Looked { found, rest: path.len() };
        }
        if let Some(found) = state.fresh(path, now_ms) {
            return Looked { found, rest: path.len() };
        }
        state.walk(path, now_ms)
    }

    /// What a listing shows of the regular file at a path in that folder. None for whatever else is
    /// there, a link to a file included: [`Files::look_up`] tells what it is.
    #[must_use]
    pub fn file_in(&self, folder: &Rc<Folder>, path: &[u8]) -> Option<ListedFile> {
        let Looked { found, rest } = match self.listed_in_round(folder, path) {
            Some(file) => return Some(file),
            None => self.look_up(path),
        };
        let is_plain = found.kind() == Kind::File && found.link().is_none() && rest == path.len();
        let stat = found.stat().filter(|_| is_plain && Rc::ptr_eq(found.folder(), folder));
        stat.map(ListedFile::from)
    }

    /// The same in a large round whose files are not cached.
    fn listed_in_round(&self, folder: &Rc<Folder>, path: &[u8]) -> Option<ListedFile> {
        let now_ms = (self.clock)();
        let mut state = self.state.borrow_mut();
        if Inotify::raised() {
            state.heed_changes();
        }
        state.listed_in_round(folder, path, now_ms)
    }

    /// Whether [`Files::drop_old`] has something to drop, now or later.
    #[must_use]
    pub fn grows_old(&self) -> bool {
        self.state.borrow().listed.is_some()
    }

    /// Drops what is known of the files of a listed folder if they would have to be examined again.
    pub fn drop_old(&self) {
        let now_ms = (self.clock)();
        let mut state = self.state.borrow_mut();
        if state.listed.as_ref().is_some_and(|listed| listed.is_old(now_ms)) {
            state.listed = None;
        }
    }

    /// Whether the next file of this round is examined anew and not cached, so that nothing that
    /// was derived from an earlier answer is worth a search.
    #[must_use]
    pub fn examines_each(&self) -> bool {
        let state = self.state.borrow();
        state.round_folder.as_ref().is_some_and(|noted| noted.is_examined)
    }

    /// The attributes of what an absolute path leads to, with links followed, or `None` if nothing
    /// can be found there. Where the kernel reports changes, a cached path costs no system call.
    #[must_use]
    pub fn stat(&self, path: &[u8]) -> Option<Stat> {
        if self.state.borrow().watches.inotify.is_none() {
            return open::stat(path).ok();
        }
        let Looked { found, rest } = self.look_up(path);
        found.stat().filter(|_| rest == path.len())
    }

    /// Begins a round of look-ups without waits between them. In a round, each folder on the way is
    /// checked once, and not for each of many files in the same folder. The files of a large round
    /// are cached under [`Policy::Told`] alone. Otherwise lstat is called for each of them the next
    /// time anyway, or each of many small caches would keep them all. They would evict the files
    /// that clients request.
    pub fn begin_round(&self, is_large: bool) {
        let mut state = self.state.borrow_mut();
        state.round += 1;
        (state.is_round, state.is_large) = (true, is_large);
        state.round_folder = None;
    }

    /// Ends a round.
    pub fn end_round(&self) {
        let mut state = self.state.borrow_mut();
        (state.is_round, state.is_large) = (false, false);
        state.round_folder = None;
    }

    /// Whether an earlier answer still holds, and so does what was derived from it. Where the
    /// kernel reports changes, this costs a few loads from memory and a reading of the clock. Call
    /// it when you would call [`Files::look_up`].
    #[must_use]
    pub fn holds(&self, found: &Found) -> bool {
        let now_ms = (self.clock)();
        let mut state = self.state.borrow_mut();
        if Inotify::raised() {
            state.heed_changes();
        }
        found.used.set(true);
        state.is_current(found, now_ms)
    }

    /// The bytes of a file.
    ///
    /// # Errors
    ///
    /// Those of open(2) and read(2). PermissionDenied also if a file of another owner took the
    /// place of one that a link had led to.
    pub fn contents(&self, found: &Found) -> io::Result<Rc<Contents>> {
        if let Some(held) = &*found.held.borrow() {
            return Ok(Rc::clone(held));
        }
        self.state.borrow_mut().read_contents(found)
    }

    /// The access file with that name in a folder, if there is one.
    ///
    /// # Errors
    ///
    /// Those of open(2) and read(2), except that the file does not exist; FileTooLarge above
    /// 16 MiB.
    pub fn access_file(
        &self,
        folder: &Rc<Folder>,
        name: &[u8],
    ) -> io::Result<Option<Rc<AccessFile>>> {
        self.state.borrow_mut().access_file(folder, name)
    }

    /// The bounds of the cache.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.state.borrow().limits
    }

    /// A notice to the administrator, returned once: folders cannot be watched because the user's
    /// watches are used up.
    #[must_use]
    pub fn take_notice(&self) -> Option<Notice> {
        static TOLD: AtomicBool = AtomicBool::new(false);
        let exhausted = !self.is_quiet && self.state.borrow().watches.exhausted;
        (exhausted && !TOLD.swap(true, Ordering::Relaxed)).then(|| {
            let text = "No more folders can be watched for changes: files in others are asked \
                        for their times at every request; raising fs.inotify.max_user_watches \
                        helps";
            Notice::own("core", Level::Warn, text)
        })
    }

    /// Removes everything.
    pub fn clear(&self) {
        self.state.borrow_mut().drop_all();
    }

    /// The bytes of contents in memory and the number of cached descriptors at the moment.
    #[must_use]
    pub fn held(&self) -> (u64, usize) {
        self.state.borrow().held()
    }

    /// The bytes that the texts of access files count for.
    #[cfg(test)]
    pub(crate) fn access_bytes(&self) -> u64 {
        self.state.borrow().access_bytes
    }

    /// The numbers of entries, folders and watches.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        self.state.borrow().counts()
    }
}

fn no_inotify(error: &io::Error) -> Option<Notice> {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let text = format!(
        "No word of changed files can be had from the kernel ({error}): every request asks for \
         the file's times instead; raising fs.inotify.max_user_instances may help"
    );
    (!TOLD.swap(true, Ordering::Relaxed)).then(|| Notice::own("core", Level::Warn, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_comes_once_and_only_from_a_cache_that_must_be_told() {
        for (policy, notices) in [(Policy::ToldIfPossible, [0, 0]), (Policy::Told, [1, 0])] {
            let (files, _) = Files::new(Limits::default(), policy);
            files.state.borrow_mut().watches.exhausted = true;
            let found = [(); 2].map(|()| files.take_notice().iter().count());
            assert_eq!(found, notices, "{policy:?}");
        }
    }
}
