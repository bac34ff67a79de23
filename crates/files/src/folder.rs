//! A folder on the way to a file: whether a link led to it, and which .htaccess files stand in
//! it. Folders form a tree, so that a change of one voids all that was found below it.

use crate::found::Link;
use crate::resolve::Passed;
use bytes::Bytes;
use evenkeel_sys::open::Stat;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// A folder, by the path under which it was asked for. What each look at a file in it reads stands
/// first.
#[derive(Debug)]
#[repr(C)]
pub struct Folder {
    pub(crate) parent: Option<Rc<Folder>>,
    pub(crate) trusted: bool,
    pub(crate) valid: Cell<bool>,
    /// Whether it was passed since the hand of its ring came by.
    pub(crate) used: Cell<bool>,
    pub(crate) link: Option<Link>,
    pub(crate) checked_ms: Cell<u64>,
    /// The number of the round in which it was last found to be what it was.
    pub(crate) checked_in: Cell<u64>,
    pub(crate) access: RefCell<Vec<Access>>,
    pub(crate) path: Box<[u8]>,
    /// Its path without symbolic links.
    pub(crate) real: Box<[u8]>,
    pub(crate) children: RefCell<Vec<Weak<Folder>>>,
    /// What lstat said of the component itself, folder or link.
    pub(crate) own: Stat,
    /// The folder's.
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
    /// The watch of its inode, where that has several names.
    pub(crate) file_watch: Option<i32>,
    /// What reading it gave; none where that was let go, and is read again when it is asked for.
    pub(crate) outcome: Option<Result<Option<Rc<AccessFile>>, i32>>,
    /// Whether it was read so soon after its last change that another may show the same times.
    pub(crate) racy: bool,
}

/// An .htaccess file.
#[derive(Debug, PartialEq, Eq)]
pub struct AccessFile {
    /// Its path, as the folder was asked for.
    pub path: Box<[u8]>,
    /// Its text.
    pub text: Bytes,
    /// A number that is another whenever the text is another: what was made from the text may be
    /// kept under it.
    pub serial: u64,
}

impl Folder {
    /// Its path as it was asked for, `/` for the root, else without a slash at its end.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The link that its last component is; links further out belong to their own folders.
    #[must_use]
    pub fn link(&self) -> Option<Link> {
        self.link
    }

    /// Type, owner and times, links followed.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// The folder in which it stands; none for the root.
    #[must_use]
    pub fn parent(&self) -> Option<&Rc<Folder>> {
        self.parent.as_ref()
    }

    /// Its last component.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Whether it may be another, or have other rules, and yet lead to the same files: where a link
    /// leads to it, and where access files were looked for.
    pub(crate) fn is_exchangeable(&self) -> bool {
        self.link.is_some() || !self.access.borrow().is_empty()
    }

    /// The real path of something in it.
    pub(crate) fn member(&self, name: &[u8]) -> Vec<u8> {
        join(&self.real, name)
    }
}

/// The path of `name` in the folder at `path`.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    joined.extend_from_slice(path);
    if path.last() != Some(&b'/') {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}
