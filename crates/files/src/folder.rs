//! A folder on the way to a file: whether a link led to it, and which .htaccess files are in it.
//! Folders form a tree, so that a change of one invalidates everything below it.

use crate::found::Link;
use crate::resolve::Passed;
use bytes::Bytes;
use evenkeel_sys::open::Stat;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// A folder, under the path of its look-up. The fields that every look-up of a file in it reads
/// come first.
#[derive(Debug)]
#[repr(C)]
pub struct Folder {
    pub(crate) parent: Option<Rc<Folder>>,
    pub(crate) trusted: bool,
    pub(crate) valid: Cell<bool>,
    /// Whether it was used since the hand of its ring last passed.
    pub(crate) used: Cell<bool>,
    pub(crate) link: Option<Link>,
    pub(crate) checked_ms: Cell<u64>,
    /// The number of the round in which it was last checked.
    pub(crate) checked_in: Cell<u64>,
    pub(crate) access: RefCell<Vec<Access>>,
    pub(crate) path: Box<[u8]>,
    /// The path without symbolic links.
    pub(crate) real: Box<[u8]>,
    pub(crate) children: RefCell<Vec<Weak<Folder>>>,
    /// The lstat of the component itself, a folder or a link.
    pub(crate) own: Stat,
    /// The stat of the folder.
    pub(crate) stat: Stat,
    pub(crate) passed: Box<[Passed]>,
    pub(crate) watch: Cell<Option<i32>>,
    pub(crate) slot: Cell<Option<usize>>,
}

/// What was found under the name of an access file.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) name: Box<[u8]>,
    pub(crate) own: Result<Stat, i32>,
    pub(crate) passed: Box<[Passed]>,
    /// The watch of its inode, if the inode has several names.
    pub(crate) file_watch: Option<i32>,
    /// The result of reading it; none if that was dropped. It is then read again when it is needed.
    pub(crate) outcome: Option<Result<Option<Rc<AccessFile>>, i32>>,
    /// Whether it was read so soon after its last change that another change may leave the same
    /// times.
    pub(crate) racy: bool,
}

/// An .htaccess file.
#[derive(Debug, PartialEq, Eq)]
pub struct AccessFile {
    /// The path, under which its folder was looked up.
    pub path: Box<[u8]>,
    /// The text.
    pub text: Bytes,
    /// A number that changes whenever the text changes, so that what was made from the text can be
    /// cached under it.
    pub serial: u64,
}

impl Folder {
    /// The path of its look-up: `/` for the root, otherwise without a slash at the end.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The link, if its last component is one. Links further out belong to their own folders.
    #[must_use]
    pub fn link(&self) -> Option<Link> {
        self.link
    }

    /// Type, owner and times, with links followed.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// The folder that contains it; none for the root.
    #[must_use]
    pub fn parent(&self) -> Option<&Rc<Folder>> {
        self.parent.as_ref()
    }

    /// The last component of its path.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Whether it may be replaced, or get other rules, and still lead to the same files: if a link
    /// leads to it, or if access files were looked for in it.
    pub(crate) fn is_exchangeable(&self) -> bool {
        self.link.is_some() || !self.access.borrow().is_empty()
    }

    /// The real path of something in it.
    pub(crate) fn member(&self, name: &[u8]) -> Vec<u8> {
        join(&self.real, name)
    }
}

/// The path of `name` in the folder `path`.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    joined.extend_from_slice(path);
    if path.last() != Some(&b'/') {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}
