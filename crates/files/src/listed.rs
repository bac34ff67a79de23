//! What is known of the files of one folder that is listed again and again, where entries of a
//! large round are not cached: size and time by name. It is small, so that each of many processes
//! can have one. It holds while the kernel reports changes of the folder, and for as long as any
//! other answer of the cache holds without lstat(2).

use crate::files::FRESH_MS;
use crate::folder::Folder;
use evenkeel_sys::open::Stat;
use std::collections::HashMap;
use std::rc::Rc;

/// The number of files. The others of a larger folder are examined each time.
const MOST_FILES: usize = 4096;

/// What a listing shows of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// The size in bytes.
    pub size: u64,
    /// The time of the last change of the contents, in nanoseconds since 1970.
    pub modified_ns: i64,
}

impl From<Stat> for ListedFile {
    fn from(Stat { size, modified_ns, .. }: Stat) -> Self {
        Self { size, modified_ns }
    }
}

/// The files of one folder.
#[derive(Debug)]
pub(crate) struct ListedFolder {
    folder: Rc<Folder>,
    /// When the first of the files was examined, by the clock of the cache, in milliseconds.
    since_ms: u64,
    files: HashMap<Box<[u8]>, ListedFile, foldhash::quality::RandomState>,
}

impl ListedFolder {
    /// None of the files yet. The changes of the folder and of its files must be reported from now
    /// on.
    pub(crate) fn new(folder: Rc<Folder>, now_ms: u64) -> Self {
        Self { folder, since_ms: now_ms, files: HashMap::default() }
    }

    /// Whether it is for that folder and still holds.
    pub(crate) fn is_for(&self, folder: &Rc<Folder>, now_ms: u64) -> bool {
        Rc::ptr_eq(&self.folder, folder) && folder.valid.get() && !self.is_old(now_ms)
    }

    /// Whether the files have to be examined again.
    pub(crate) fn is_old(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.since_ms) > FRESH_MS
    }

    /// The file with that name.
    pub(crate) fn file(&self, name: &[u8]) -> Option<ListedFile> {
        self.files.get(name).copied()
    }

    /// Adds a regular file that was examined after the folder was watched. The watch of the folder
    /// does not report what happens to a file under another of its names.
    pub(crate) fn add(&mut self, name: &[u8], stat: &Stat) {
        if stat.links == 1 && self.files.len() < MOST_FILES {
            self.files.insert(name.into(), (*stat).into());
        }
    }

    /// Removes a file that has changed.
    pub(crate) fn remove(&mut self, folder: &Rc<Folder>, name: &[u8]) {
        if Rc::ptr_eq(&self.folder, folder) {
            self.files.remove(name);
        }
    }
}
