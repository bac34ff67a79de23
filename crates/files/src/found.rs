//! The answer of a look-up: what is at a path. It holds facts only. [`crate::Files`] says whether
//! they still hold, and the caller decides what they permit.

use crate::folder::Folder;
use crate::resolve::Passed;
use evenkeel_message::{Fields, Piece};
use evenkeel_sys::open::{self, Stat};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The kind of what is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A pipe, a socket or a device, none of which is ever served.
    Other,
    /// Nothing.
    Absent,
    /// The kernel refused to say, with this errno: EACCES if a folder on the way may not be
    /// searched, ENAMETOOLONG, ELOOP and so on.
    Denied(i32),
}

/// The properties of a symbolic link (Apache: resolve_symlink in request.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether the link and its final target have the same owner.
    pub owner_matches: bool,
    /// Whether it leads nowhere, or to a place that the server may not look at.
    pub broken: bool,
}

/// The rule of `Options` about symbolic links.
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
    /// Whether a component may be passed. A component that is not a link always may.
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

/// The answer of a look-up: what was found, and where in the path it ends.
#[derive(Clone, Debug)]
pub struct Looked {
    /// What is at the longest part of the path that exists, or at the first part that does not.
    pub found: Rc<Found>,
    /// The index in the path after the part that was found. What follows is `/` for a folder that
    /// was requested with its slash, and PATH_INFO after anything else.
    pub rest: usize,
}

/// What is at a path. The fields that every request for it reads come first and lie together in
/// memory, because a site of many files waits for each cache line.
#[derive(Debug)]
#[repr(C)]
pub struct Found {
    pub(crate) kind: Kind,
    pub(crate) trusted: bool,
    pub(crate) valid: Cell<bool>,
    pub(crate) used: Cell<bool>,
    pub(crate) checked_ms: Cell<u64>,
    /// The value of `State::voided` when the folder was last seen valid. If it is unchanged, the
    /// folder is still valid.
    pub(crate) voided: Cell<u64>,
    pub(crate) folder: Rc<Folder>,
    pub(crate) held: RefCell<Option<Rc<Contents>>>,
    // The fields that a check reads.
    pub(crate) path: Box<[u8]>,
    pub(crate) passed: Box<[Passed]>,
    pub(crate) link: Option<Link>,
    /// The lstat of the last component itself, or the errno if it failed.
    pub(crate) own: Result<Stat, i32>,
    /// The stat of what it leads to: equal to `own` if it is not a link, zeros if nothing is there.
    pub(crate) stat: Stat,
    /// The real path of the file, if it differs from `path`.
    pub(crate) real: Option<Box<[u8]>>,
    pub(crate) file_watch: Cell<Option<i32>>,
    pub(crate) slot: Cell<Option<usize>>,
}

/// The value of [`Found::voided`] until the folder is first checked.
pub(crate) const NEVER: u64 = u64::MAX;

impl Found {
    /// The path that was found, without PATH_INFO, doubled slashes and a slash at the end.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Type, owner, size and times of the file or folder, with links followed; `None` if nothing is
    /// there. A folder is read each time: a change in it changes its time and size, but invalidates
    /// nothing that is known of it.
    #[must_use]
    pub fn stat(&self) -> Option<Stat> {
        match self.kind {
            Kind::File | Kind::Other => Some(self.stat),
            Kind::Directory => Some(open::lstat(&self.folder.real).unwrap_or(self.stat)),
            Kind::Absent | Kind::Denied(_) => None,
        }
    }

    /// Whether it is cached. What was derived from an uncached one holds for this request.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.slot.get().is_some()
    }

    /// The link, if its last component is one. [`Folder::link`] has that of a folder.
    #[must_use]
    pub fn link(&self) -> Option<Link> {
        self.link
    }

    /// The innermost folder: the directory itself, or the one that contains the last component.
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

    /// Whether it needs no check now: no change was reported, and the last check is at most
    /// [`crate::files::FRESH_MS`] old. `voided` is the number of folders that have become invalid
    /// so far.
    pub(crate) fn is_fresh(&self, now_ms: u64, voided: u64) -> bool {
        self.trusted
            && self.valid.get()
            && now_ms.saturating_sub(self.checked_ms.get()) <= crate::files::FRESH_MS
            && self.has_its_folder(voided)
    }

    /// Whether its folder is valid. The folder is only checked if one has become invalid since the
    /// last time.
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

    /// The real path of the file, which contains no links.
    #[must_use]
    pub fn real_path(&self) -> Vec<u8> {
        match (&self.real, self.kind) {
            (Some(real), _) => real.to_vec(),
            (None, Kind::Directory) => self.folder.real.to_vec(),
            (None, _) => self.folder.member(self.name()),
        }
    }

    /// The last component of the path.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Whether any component is a symbolic link.
    #[must_use]
    pub fn through_link(&self) -> bool {
        let links = |folder: &Folder| folder.link.is_some();
        let way = || std::iter::successors(Some(&*self.folder), |folder| folder.parent.as_deref());
        self.link.is_some() || way().any(links)
    }
}

/// The bytes of a file, with the metadata of the descriptor that they were read from. As in
/// [`Found`], the fields that every request reads come first.
#[derive(Debug)]
#[repr(C)]
pub struct Contents {
    /// The time of the last change, in nanoseconds since 1970; that of `stat`.
    pub modified_ns: i64,
    /// The header fields of the last response with these contents, under the caller's mark.
    pub(crate) head: RefCell<Option<(u64, Fields)>>,
    /// The bytes, in memory or as an open file.
    pub piece: Piece,
    /// The size and times of these very bytes, for validators.
    pub stat: Stat,
}

impl Contents {
    /// Copies the fields that were stored under that mark to `fields`, in place of its own. Returns
    /// whether there are any.
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

    /// Whether fields are stored under that mark.
    #[must_use]
    pub fn has_head(&self, mark: u64) -> bool {
        self.head.borrow().as_ref().is_some_and(|(kept, _)| *kept == mark)
    }

    /// Stores header fields for the next response. The mark identifies everything that they depend
    /// on besides the contents.
    pub fn keep_head(&self, mark: u64, fields: &Fields) {
        // Copy them, so that they take no more memory than they need.
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
