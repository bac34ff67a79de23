//! The tables of the cache, their bounds, and what a change invalidates. Events of the kernel mark
//! entries that no longer hold, and these are dropped. Nothing here reads a file.

use crate::files::Limits;
use crate::folder::{AccessFile, Folder, join};
use crate::found::{Contents, Found, Kind};
use crate::listed::ListedFolder;
use crate::ring::Ring;
use crate::watches::{Dependent, Watches};
use evenkeel_message::Piece;
use evenkeel_sys::inotify::{Event, Inotify};
use evenkeel_sys::open;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Longer paths are looked up each time, so that entries stay small.
pub(crate) const LONGEST_KEY: usize = 1024;

/// The names of changed files that are applied one by one. After more, everything is dropped, which
/// costs less memory: writers may add events while they are read.
const MOST_NAMES: usize = 16_384;

/// How many entries are examined to evict contents for those of one more file.
const LONGEST_SEARCH: usize = 256;

/// A table by path. Clients choose paths, so the hash is seeded and of the stronger kind.
type ByPath<T> = HashMap<Box<[u8]>, T, foldhash::quality::RandomState>;

/// A folder that the current round has checked, and whose parents it has checked too.
#[derive(Debug)]
pub(crate) struct RoundFolder {
    pub(crate) folder: Rc<Folder>,
    /// Whether its entries are not cached, so that each of them is examined.
    pub(crate) is_examined: bool,
    /// A descriptor of the folder, if it could be opened.
    opened: OnceCell<Option<OwnedFd>>,
}

impl RoundFolder {
    pub(crate) fn new(folder: Rc<Folder>, is_examined: bool) -> Self {
        Self { folder, is_examined, opened: OnceCell::new() }
    }

    /// The descriptor of a folder whose entries are examined: fstatat(2) with it costs less than
    /// lstat(2) with a path.
    pub(crate) fn descriptor(&self) -> Option<&OwnedFd> {
        let open = || open::open_folder(&self.folder.real, &self.folder.stat);
        self.is_examined.then(|| self.opened.get_or_init(open).as_ref()).flatten()
    }
}

/// The cache.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) watches: Watches,
    pub(crate) limits: Limits,
    pub(crate) folders: ByPath<Rc<Folder>>,
    pub(crate) founds: ByPath<Rc<Found>>,
    /// Whether a device holds a local file system.
    pub(crate) local: HashMap<u64, bool>,
    /// Access files by path, so that a file with the same text keeps its serial number.
    pub(crate) access_files: ByPath<Rc<AccessFile>>,
    /// The bytes that they count for.
    pub(crate) access_bytes: u64,
    pub(crate) serial: u64,
    /// The number of rounds so far.
    pub(crate) round: u64,
    /// Whether a round is in progress, in which each folder is checked once.
    pub(crate) is_round: bool,
    /// Whether the round has so many files that those which need a check the next time anyway are
    /// not cached.
    pub(crate) is_large: bool,
    /// Whether the files of a large round are cached.
    pub(crate) keeps_large: bool,
    /// The folder of the first entry that was found in this round.
    pub(crate) round_folder: Option<RoundFolder>,
    /// The files of the large folder that was listed last, if they are not cached otherwise.
    pub(crate) listed: Option<ListedFolder>,
    /// The number of folders that have become invalid.
    pub(crate) voided: u64,
    ring: Ring<Folder>,
    kept: Ring<Found>,
    absent: Ring<Found>,
    bytes: u64,
    descriptors: usize,
}

impl State {
    pub(crate) fn new(limits: Limits, inotify: Option<Inotify>) -> Self {
        Self {
            watches: Watches::new(inotify),
            limits,
            folders: ByPath::default(),
            founds: ByPath::default(),
            local: HashMap::new(),
            access_files: ByPath::default(),
            access_bytes: 0,
            serial: 0,
            round: 0,
            is_round: false,
            is_large: false,
            keeps_large: false,
            round_folder: None,
            listed: None,
            voided: 0,
            ring: Ring::new(limits.folders),
            kept: Ring::new(limits.entries),
            absent: Ring::new(limits.absent),
            bytes: 0,
            descriptors: 0,
        }
    }

    /// The entry of exactly that path, if it needs no check.
    pub(crate) fn fresh(&self, path: &[u8], now_ms: u64) -> Option<Rc<Found>> {
        let found = self.founds.get(path)?;
        found.used.set(true);
        found.is_fresh(now_ms, self.voided).then(|| Rc::clone(found))
    }

    /// Applies every change that the kernel has reported.
    pub(crate) fn heed_changes(&mut self) {
        let Some(inotify) = &self.watches.inotify else { return };
        let mut names: Vec<(i32, Box<[u8]>)> = Vec::new();
        let mut bare = Vec::new();
        let mut lost = false;
        let drained = inotify.drain(|event| match event {
            Event::Name(watch, name) => {
                // A write and the close after it come as a pair.
                if names.last().is_none_or(|(w, n)| (*w, &**n) != (watch, name)) {
                    match names.len() < MOST_NAMES {
                        true => names.push((watch, name.into())),
                        false => lost = true,
                    }
                }
            }
            Event::Itself(watch) => bare.push((watch, false)),
            Event::Ended(watch) => bare.push((watch, true)),
            Event::Lost => lost = true,
        });
        if lost || drained.is_err() {
            return self.drop_all();
        }
        for (watch, name) in names {
            self.name_changed(watch, &name);
        }
        for (watch, ended) in bare {
            self.itself_changed(watch, ended);
        }
    }

    /// Handles a change of a name in a watched folder.
    fn name_changed(&mut self, watch: i32, name: &[u8]) {
        for folder in self.watches.folders(watch) {
            if let Some(listed) = &mut self.listed {
                listed.remove(&folder, name);
            }
            if folder.access.borrow().iter().any(|access| *access.name == *name) {
                self.drop_folder(&folder);
                continue;
            }
            let path = join(&folder.path, name);
            if let Some(found) = self.founds.get(&*path).cloned() {
                self.forget(&found);
            }
            if let Some(inner) = self.folders.get(&*path).cloned() {
                self.drop_folder(&inner);
            }
        }
        let dependents = self.watches.dependents(watch, Some(name));
        self.drop_dependents(dependents);
    }

    /// Handles a change of a watched folder or file itself, or the end of its watch.
    fn itself_changed(&mut self, watch: i32, ended: bool) {
        for folder in self.watches.folders(watch) {
            self.drop_folder(&folder);
        }
        for found in self.watches.files(watch) {
            self.forget(&found);
        }
        if ended {
            let dependents = self.watches.dependents(watch, None);
            self.watches.ended(watch);
            self.drop_dependents(dependents);
        }
    }

    fn drop_dependents(&mut self, dependents: Vec<Dependent>) {
        for dependent in dependents {
            match dependent {
                Dependent::Folder(folder) => {
                    if let Some(folder) = folder.upgrade() {
                        self.drop_folder(&folder);
                    }
                }
                Dependent::Found(found) => {
                    if let Some(found) = found.upgrade() {
                        self.forget(&found);
                    }
                }
            }
        }
    }

    /// Invalidates a folder with everything that was found below it. The entries are removed when
    /// their turn comes.
    pub(crate) fn drop_folder(&mut self, folder: &Rc<Folder>) {
        if !folder.valid.replace(false) {
            return;
        }
        self.voided += 1;
        if self.folders.get(&folder.path).is_some_and(|one| Rc::ptr_eq(one, folder)) {
            self.folders.remove(&folder.path);
        }
        self.ring.take(folder);
        self.watches.detach_folder(folder);
        for child in folder.children.take() {
            if let Some(child) = child.upgrade() {
                self.drop_folder(&child);
            }
        }
    }

    /// Removes everything, because too much has changed or too much is cached.
    pub(crate) fn drop_all(&mut self) {
        for folder in self.folders.values().cloned().collect::<Vec<_>>() {
            self.drop_folder(&folder);
        }
        for found in self.founds.values().cloned().collect::<Vec<_>>() {
            self.forget(&found);
        }
        self.listed = None;
        self.local.clear();
        self.access_files.clear();
        self.access_bytes = 0;
    }

    /// Invalidates an entry and removes it.
    pub(crate) fn forget(&mut self, found: &Found) {
        found.valid.set(false);
        if self.founds.get(&found.path).is_some_and(|one| std::ptr::eq(&**one, found)) {
            self.founds.remove(&found.path);
        }
        self.ring_of(found.kind).take(found);
        self.let_go(found);
    }

    /// Adds an entry to the tables, which may evict others.
    pub(crate) fn keep(&mut self, found: &Rc<Found>) {
        if let Some(old) = self.founds.get(&found.path).cloned() {
            self.forget(&old);
        }
        self.founds.insert(found.path.clone(), Rc::clone(found));
        if let Some(evicted) = self.ring_of(found.kind).put(Rc::clone(found)) {
            self.forget(&evicted);
        }
    }

    /// Adds a folder to the tables, which may evict another one with what was found in it.
    pub(crate) fn keep_folder(&mut self, folder: &Rc<Folder>) {
        self.folders.insert(folder.path.clone(), Rc::clone(folder));
        if let Some(parent) = &folder.parent {
            let mut children = parent.children.borrow_mut();
            if children.len() == children.capacity() {
                children.retain(|child| child.strong_count() > 0);
            }
            children.push(Rc::downgrade(folder));
        }
        if let Some(evicted) = self.ring.put(Rc::clone(folder)) {
            self.drop_folder(&evicted);
        }
    }

    /// Caches contents with their entry, if there is room or others can be evicted for it.
    pub(crate) fn hold(&mut self, found: &Found, contents: &Rc<Contents>) {
        let (bytes, descriptors) = weight(contents);
        for _ in 0..LONGEST_SEARCH {
            if self.has_room(bytes, descriptors) {
                break;
            }
            let Some(other) = self.kept.turn().cloned() else { continue };
            // Evicting memory gives no descriptors, and the other way round.
            let alike = |held: &Rc<Contents>| (weight(held).1 > 0) == (descriptors > 0);
            if other.held.borrow().as_ref().is_some_and(alike)
                && (!other.used.replace(false) || !other.folder.valid.get())
            {
                self.let_go_contents(&other);
            }
        }
        if self.has_room(bytes, descriptors) && found.held.borrow().is_none() {
            *found.held.borrow_mut() = Some(Rc::clone(contents));
            self.bytes += bytes;
            self.descriptors += descriptors;
        }
    }

    /// Closes the cached descriptors that no response is using.
    pub(crate) fn let_go_descriptors(&mut self) {
        for found in self.founds.values().cloned().collect::<Vec<_>>() {
            let open = |contents: &Rc<Contents>| weight(contents).1 > 0;
            if found.held.borrow().as_ref().is_some_and(open) {
                self.let_go_contents(&found);
            }
        }
    }

    /// The bytes in memory and the number of cached descriptors.
    pub(crate) fn held(&self) -> (u64, usize) {
        (self.bytes, self.descriptors)
    }

    fn has_room(&self, bytes: u64, descriptors: usize) -> bool {
        self.bytes + bytes <= self.limits.total_bytes
            && self.descriptors + descriptors <= self.limits.descriptors
    }

    fn let_go(&mut self, found: &Found) {
        self.watches.detach_found(found);
        self.let_go_contents(found);
    }

    fn let_go_contents(&mut self, found: &Found) {
        if let Some(contents) = found.held.take() {
            let (bytes, descriptors) = weight(&contents);
            self.bytes = self.bytes.saturating_sub(bytes);
            self.descriptors = self.descriptors.saturating_sub(descriptors);
        }
    }

    fn ring_of(&mut self, kind: Kind) -> &mut Ring<Found> {
        match kind {
            Kind::File | Kind::Directory | Kind::Other => &mut self.kept,
            Kind::Absent | Kind::Denied(_) => &mut self.absent,
        }
    }

    /// The numbers of entries, folders and watches.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        (self.kept.len() + self.absent.len(), self.folders.len(), self.watches.len())
    }
}

/// The bytes and descriptors that contents count for.
fn weight(contents: &Contents) -> (u64, usize) {
    match &contents.piece {
        Piece::Bytes(bytes) => (bytes.len() as u64, 0),
        Piece::File { .. } => (0, 1),
    }
}
