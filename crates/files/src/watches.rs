//! Maps the watches of the kernel to the folders and files of the cache that depend on them.
//! Folders are watched before they are read. Nothing here reads a file.
//!
//! The watch of a folder reports the names in it, so an entry needs no watch of its own: its folder
//! and its name lead to it. Two cases need more: the steps of a symbolic link, and files with
//! several hard links, whose inode is watched.

use crate::folder::Folder;
use crate::found::Found;
use crate::resolve::Passed;
use evenkeel_sys::inotify::{Inotify, WatchScope};
use std::collections::HashMap;
use std::io;
use std::rc::{Rc, Weak};

/// The user has no watches left (errno(3)).
const ENOSPC: i32 = 28;

/// An entry that was found through a symbolic link.
#[derive(Clone, Debug)]
pub(crate) enum Dependent {
    Folder(Weak<Folder>),
    Found(Weak<Found>),
}

impl Dependent {
    fn is(&self, address: *const ()) -> bool {
        match self {
            Dependent::Folder(folder) => folder.as_ptr().cast() == address,
            Dependent::Found(found) => found.as_ptr().cast() == address,
        }
    }
}

/// One watch and what depends on it.
#[derive(Debug, Default)]
struct Watch {
    folders: Vec<Weak<Folder>>,
    files: Vec<Weak<Found>>,
    /// The entries whose link passes through this name in the folder.
    through: HashMap<Box<[u8]>, Vec<Dependent>>,
    contents: bool,
}

/// All watches of a thread; none if the kernel cannot report changes.
#[derive(Debug)]
pub(crate) struct Watches {
    pub(crate) inotify: Option<Inotify>,
    /// Whether the user's limit of watches was reached.
    pub(crate) exhausted: bool,
    table: HashMap<i32, Watch, foldhash::fast::RandomState>,
}

impl Watches {
    pub(crate) fn new(inotify: Option<Inotify>) -> Self {
        Self { inotify, exhausted: false, table: HashMap::default() }
    }

    /// Watches a folder before it is read.
    ///
    /// # Errors
    ///
    /// See [`Inotify::watch_folder`]; Unsupported without inotify.
    pub(crate) fn watch_folder(&mut self, real: &[u8], scope: WatchScope) -> io::Result<i32> {
        let inotify = self.inotify.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let number = inotify
            .watch_folder(real, scope)
            .inspect_err(|error| self.exhausted |= error.raw_os_error() == Some(ENOSPC))?;
        self.table.entry(number).or_default().contents |= scope == WatchScope::Contents;
        Ok(number)
    }

    /// Extends a watch to changes of contents. Returns whether that is new. Errors are those of
    /// [`Watches::watch_folder`].
    pub(crate) fn widen(&mut self, number: i32, real: &[u8]) -> io::Result<bool> {
        if self.table.get(&number).is_some_and(|watch| watch.contents) {
            return Ok(false);
        }
        // Another number means that another folder is at the path by now.
        match self.watch_folder(real, WatchScope::Contents)? {
            same if same == number => Ok(true),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Attaches a folder to its watch, or to that of the inode of an access file in it.
    pub(crate) fn attach_folder(&mut self, number: i32, folder: &Rc<Folder>) {
        self.table.entry(number).or_default().folders.push(Rc::downgrade(folder));
    }

    /// Watches the inode of a file that has several names. Errors are those of
    /// [`Watches::watch_folder`].
    pub(crate) fn watch_file(&mut self, real: &[u8]) -> io::Result<i32> {
        let inotify = self.inotify.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let number = inotify.watch_file(real)?;
        self.table.entry(number).or_default();
        Ok(number)
    }

    /// Attaches an entry to its watches.
    pub(crate) fn attach_found(&mut self, found: &Rc<Found>) {
        self.depend(&found.passed, &Dependent::Found(Rc::downgrade(found)));
        if let Some(number) = found.file_watch.get() {
            self.table.entry(number).or_default().files.push(Rc::downgrade(found));
        }
    }

    /// Makes `dependent` depend on the steps of a link.
    pub(crate) fn depend(&mut self, passed: &[Passed], dependent: &Dependent) {
        for step in passed {
            let Some(number) = step.watch else { continue };
            let watch = self.table.entry(number).or_default();
            watch.through.entry(step.name().into()).or_default().push(dependent.clone());
        }
    }

    /// Detaches a folder from its watches.
    pub(crate) fn detach_folder(&mut self, folder: &Folder) {
        let address = std::ptr::from_ref(folder);
        self.release(&folder.passed, address.cast());
        let accesses = folder.access.take();
        accesses.iter().for_each(|access| self.release(&access.passed, address.cast()));
        let inodes = accesses.iter().filter_map(|access| access.file_watch);
        for number in folder.watch.take().into_iter().chain(inodes) {
            if let Some(watch) = self.table.get_mut(&number) {
                watch.folders.retain(|one| one.as_ptr() != address);
            }
            self.end_if_idle(number);
        }
    }

    /// Detaches an entry from its watches.
    pub(crate) fn detach_found(&mut self, found: &Found) {
        let address = std::ptr::from_ref(found);
        self.release(&found.passed, address.cast());
        let Some(number) = found.file_watch.take() else { return };
        if let Some(watch) = self.table.get_mut(&number) {
            watch.files.retain(|one| one.as_ptr() != address);
        }
        self.end_if_idle(number);
    }

    fn release(&mut self, passed: &[Passed], address: *const ()) {
        for step in passed {
            let Some(number) = step.watch else { continue };
            if let Some(watch) = self.table.get_mut(&number)
                && let Some(list) = watch.through.get_mut(step.name())
            {
                list.retain(|one| !one.is(address));
                if list.is_empty() {
                    watch.through.remove(step.name());
                }
            }
            self.end_if_idle(number);
        }
    }

    fn end_if_idle(&mut self, number: i32) {
        let idle = |watch: &Watch| {
            watch.folders.is_empty() && watch.files.is_empty() && watch.through.is_empty()
        };
        if self.table.get(&number).is_some_and(idle) {
            self.table.remove(&number);
            if let Some(inotify) = &self.inotify {
                inotify.unwatch(number);
            }
        }
    }

    /// The folders that depend on a watch.
    pub(crate) fn folders(&self, number: i32) -> Vec<Rc<Folder>> {
        let list = self.table.get(&number).map(|watch| watch.folders.as_slice());
        list.unwrap_or_default().iter().filter_map(Weak::upgrade).collect()
    }

    /// The entries that depend on the watch of an inode.
    pub(crate) fn files(&self, number: i32) -> Vec<Rc<Found>> {
        let list = self.table.get(&number).map(|watch| watch.files.as_slice());
        list.unwrap_or_default().iter().filter_map(Weak::upgrade).collect()
    }

    /// What depends on that name through links, or on any name if none is given.
    pub(crate) fn dependents(&self, number: i32, name: Option<&[u8]>) -> Vec<Dependent> {
        let Some(watch) = self.table.get(&number) else { return Vec::new() };
        match name {
            Some(name) => watch.through.get(name).cloned().unwrap_or_default(),
            None => watch.through.values().flatten().cloned().collect(),
        }
    }

    /// Removes a watch that the kernel has ended.
    pub(crate) fn ended(&mut self, number: i32) {
        self.table.remove(&number);
    }

    /// How many watches there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}
