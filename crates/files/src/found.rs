//! What stands at a path: the answer of a look-up. It holds facts alone; whether they still hold
//! is asked of [`crate::Files`], and what they permit is the caller's affair.

use crate::folder::Folder;
use crate::resolve::Passed;
use evenkeel_message::{Fields, Piece};
use evenkeel_sys::open::{self, Stat};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What kind of thing stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A pipe, a socket or a device, which is never served.
    Other,
    /// Nothing.
    Absent,
    /// The kernel refused to say, with this errno: EACCES where a folder on the way may not be
    /// searched, ENAMETOOLONG, ELOOP and the like.
    Denied(i32),
}

/// What is known of a symbolic link (Apache: resolve_symlink in request.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether the link and what it finally leads to have the same owner.
    pub owner_matches: bool,
    /// Whether it leads nowhere, or where we may not look.
    pub broken: bool,
}

/// What `Options` says of symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SymlinkRule {
    /// No link is followed.
    #[default]
    Refuse,
    /// SymLinksIfOwnerMatch.
    IfOwnerMatch,
    /// FollowSymLinks.
    Follow,
}

impl SymlinkRule {
    /// Whether a component may be passed; one that is no link always may.
    #[must_use]
    pub fn admits(self, link: Option<Link>) -> bool {
        match link {
            None => true,
            Some(link) if link.broken => false,
            Some(link) => match self {
                SymlinkRule::Refuse => false,
                SymlinkRule::IfOwnerMatch => link.owner_matches,
                SymlinkRule::Follow => true,
            },
        }
    }
}

/// A look-up's answer: what was found, and where in the path it ends.
#[derive(Clone, Debug)]
pub struct Looked {
    /// What stands at the longest part of the path that exists, or at the first that does not.
    pub found: Rc<Found>,
    /// Index in the path behind the part that was found. What follows is `/` for a folder that
    /// was named with its slash, and PATH_INFO behind anything else.
    pub rest: usize,
}

/// What stands at a path. What every request for it reads stands first and together in memory: a
/// site of many files waits for each cache line.
#[derive(Debug)]
#[repr(C)]
pub struct Found {
    pub(crate) kind: Kind,
    pub(crate) trusted: bool,
    pub(crate) valid: Cell<bool>,
    pub(crate) used: Cell<bool>,
    pub(crate) checked_ms: Cell<u64>,
    /// How many folders had become void when its own was last seen to hold.
    pub(crate) voided: Cell<u64>,
    pub(crate) folder: Rc<Folder>,
    pub(crate) held: RefCell<Option<Rc<Contents>>>,
    // What a check reads comes next.
    pub(crate) path: Box<[u8]>,
    pub(crate) passed: Box<[Passed]>,
    pub(crate) link: Option<Link>,
    /// What lstat said of the last component itself; its errno where it failed.
    pub(crate) own: Result<Stat, i32>,
    /// What it leads to; as `own` where it is no link, zeros where nothing is there.
    pub(crate) stat: Stat,
    /// Where the file really is, where that differs from `path`.
    pub(crate) real: Option<Box<[u8]>>,
    pub(crate) file_watch: Cell<Option<i32>>,
    pub(crate) slot: Cell<Option<usize>>,
}

/// The value of [`Found::voided`] where the folder was not asked yet.
pub(crate) const NEVER: u64 = u64::MAX;

impl Found {
    /// The path that was found, without PATH_INFO, doubled slashes and a slash at its end.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Type, owner, size and times of the file or folder, links followed; `None` where nothing
    /// is there. A folder is asked each time: what changes in it changes its time and size, and
    /// voids nothing that is known of it.
    #[must_use]
    pub fn stat(&self) -> Option<Stat> {
        match self.kind {
            Kind::File | Kind::Other => Some(self.stat),
            Kind::Directory => Some(open::lstat(&self.folder.real).unwrap_or(self.stat)),
            Kind::Absent | Kind::Denied(_) => None,
        }
    }

    /// Whether it is remembered: what was derived from one that is not holds for this request.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.slot.get().is_some()
    }

    /// The link that its last component is. That of a folder is found in [`Folder::link`].
    #[must_use]
    pub fn link(&self) -> Option<Link> {
        self.link
    }

    /// The innermost folder: a directory's own, else that in which the last component stands.
    #[must_use]
    pub fn folder(&self) -> &Rc<Folder> {
        &self.folder
    }

    /// The folders on the way from the root, outermost first: where `<Directory>` sections and
    /// .htaccess files apply.
    #[must_use]
    pub fn folders(&self) -> Vec<Rc<Folder>> {
        let mut way = vec![Rc::clone(&self.folder)];
        let mut parent = self.folder.parent.as_ref();
        while let Some(folder) = parent {
            way.push(Rc::clone(folder));
            parent = folder.parent.as_ref();
        }
        way.reverse();
        way
    }

    /// Whether it needs no check at this time: nothing was told of a change, and the last check
    /// is at most [`crate::files::FRESH_MS`] old. `voided` folders have become void so far.
    pub(crate) fn is_fresh(&self, now_ms: u64, voided: u64) -> bool {
        self.trusted
            && self.valid.get()
            && now_ms.saturating_sub(self.checked_ms.get()) <= crate::files::FRESH_MS
            && self.has_its_folder(voided)
    }

    /// Whether its folder holds. The folder is asked only where one has become void since.
    fn has_its_folder(&self, voided: u64) -> bool {
        if self.voided.get() == voided {
            return true;
        }
        let holds = self.folder.valid.get();
        if holds {
            self.voided.set(voided);
        }
        holds
    }

    /// Where the file really is: its path without a link in it.
    #[must_use]
    pub fn real_path(&self) -> Vec<u8> {
        match (&self.real, self.kind) {
            (Some(real), _) => real.to_vec(),
            (None, Kind::Directory) => self.folder.real.to_vec(),
            (None, _) => self.folder.member(self.name()),
        }
    }

    /// Its last component.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Whether a symbolic link led here, at any component.
    #[must_use]
    pub fn through_link(&self) -> bool {
        let links = |folder: &Folder| folder.link.is_some();
        let way = || std::iter::successors(Some(&*self.folder), |folder| folder.parent.as_deref());
        self.link.is_some() || way().any(links)
    }
}

/// The bytes of a file, with what the kernel said of the descriptor they were read from. As in
/// [`Found`], what every request reads stands first.
#[derive(Debug)]
#[repr(C)]
pub struct Contents {
    /// When they were changed last, in nanoseconds since 1970: that of `stat`.
    pub modified_ns: i64,
    /// The header fields of the last response that sent them, under the caller's mark.
    pub(crate) head: RefCell<Option<(u64, Fields)>>,
    /// The bytes, in memory or as an open file.
    pub piece: Piece,
    /// Size and times to make validators from: those of these very bytes.
    pub stat: Stat,
}

impl Contents {
    /// Puts the fields that were kept under that mark in the place of others; says whether there
    /// are any.
    #[must_use]
    pub fn copy_head(&self, mark: u64, fields: &mut Fields) -> bool {
        match &*self.head.borrow() {
            Some((kept, known)) if *kept == mark => {
                fields.clone_from(known);
                true
            }
            _ => false,
        }
    }

    /// Keeps header fields for the next response. The mark stands for all that they depend on
    /// besides the contents.
    pub fn keep_head(&self, mark: u64, fields: &Fields) {
        // With no more room than they need.
        let mut own = Fields::new();
        own.clone_from(fields);
        *self.head.borrow_mut() = Some((mark, own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_admitted_as_the_options_say() {
        let link = |owner_matches, broken| Some(Link { owner_matches, broken });
        for rule in [SymlinkRule::Refuse, SymlinkRule::IfOwnerMatch, SymlinkRule::Follow] {
            assert!(rule.admits(None));
            assert!(!rule.admits(link(true, true)));
            assert_eq!(rule.admits(link(false, false)), rule == SymlinkRule::Follow);
            assert_eq!(rule.admits(link(true, false)), rule != SymlinkRule::Refuse);
        }
    }
}
