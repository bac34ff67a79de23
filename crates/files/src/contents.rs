//! Opens and reads files: the bytes of a file that was looked up, and the text of an access file,
//! together with the metadata of the very descriptor that they were read from. Paths are opened
//! without following links, because their links were followed and checked before.

use crate::folder::{Access, AccessFile, Folder, join};
use crate::found::{Contents, Found, Kind};
use crate::resolve::{Passed, Resolved, errno, resolve};
use crate::state::State;
use crate::watches::Dependent;
use bytes::Bytes;
use evenkeel_message::Piece;
use evenkeel_sys::clock;
use evenkeel_sys::open::{self, Stat};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

// Error numbers of errno(3).
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const EFBIG: i32 = 27;
const ELOOP: i32 = 40;

/// The largest access file that is read, in bytes. One that is larger than a cache is cached alone,
/// so that this bounds the memory of a cache too.
pub(crate) const LARGEST_ACCESS_FILE: u64 = 16 << 20;

/// The bytes that an access file counts for in addition to its text.
const ACCESS_FILE_BYTES: u64 = 256;

/// A change this close before the reading may be followed by another one that leaves the same
/// times.
const RACY_NS: i64 = 1_000_000_000;

impl State {
    /// Opens a file, reads it if it is small, and caches it if that is safe.
    pub(crate) fn read_contents(&mut self, found: &Found) -> io::Result<Rc<Contents>> {
        match found.kind {
            Kind::File => {}
            Kind::Directory => return Err(io::ErrorKind::IsADirectory.into()),
            Kind::Other => return Err(io::ErrorKind::PermissionDenied.into()),
            Kind::Absent => return Err(io::ErrorKind::NotFound.into()),
            Kind::Denied(error) => return Err(io::Error::from_raw_os_error(error)),
        }
        let file = self.open(found)?;
        let stat = open::fstat(&file)?;
        if stat != found.stat {
            // The file was replaced or changed since the look-up: serve the current one and cache
            // nothing.
            found.valid.set(false);
            let other_owner = stat.uid != found.stat.uid && found.through_link();
            if other_owner || !stat.is_file() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
        let (piece, whole) = if stat.size <= self.limits.file_bytes {
            // A process that has the file open for writing may write through a memory map, which
            // the kernel does not report.
            let quiet = open::has_no_writer(file.as_fd()) != Some(false);
            let (piece, whole) = read_whole(&file, stat.size)?;
            (piece, whole && quiet)
        } else {
            (Piece::File { file: Arc::new(file), offset: 0, length: stat.size }, true)
        };
        let stat = Stat { size: piece.len(), ..stat };
        let modified_ns = stat.modified_ns;
        let contents = Rc::new(Contents { modified_ns, head: RefCell::default(), piece, stat });
        if whole && found.slot.get().is_some() && !is_racy(found, &contents) {
            self.hold(found, &contents);
        }
        Ok(contents)
    }

    /// Opens a file that was looked up. If the process has no free descriptor, cached ones are
    /// closed.
    fn open(&mut self, found: &Found) -> io::Result<OwnedFd> {
        let path = found.real_path();
        let opened = match open::open_without_links(&path).map_err(errno) {
            Err(EMFILE | ENFILE) => {
                self.let_go_descriptors();
                open::open_without_links(&path).map_err(errno)
            }
            other => other,
        };
        if let Err(ENOENT | ENOTDIR | ELOOP) = opened {
            // Something else is there by now.
            found.valid.set(false);
        }
        opened.map_err(io::Error::from_raw_os_error)
    }

    /// The access file with that name in a folder. It is read once and cached with the folder.
    pub(crate) fn access_file(
        &mut self,
        folder: &Rc<Folder>,
        name: &[u8],
    ) -> io::Result<Option<Rc<AccessFile>>> {
        let known = folder.access.borrow().iter().position(|one| *one.name == *name);
        if let Some(at) = known.filter(|_| folder.valid.get()) {
            let let_go = match folder.access.borrow().get(at) {
                Some(Access { outcome: Some(outcome), .. }) => {
                    return outcome.clone().map_err(io::Error::from_raw_os_error);
                }
                Some(let_go) => let_go.passed.is_empty() && let_go.file_watch.is_none(),
                None => false,
            };
            match let_go {
                true => drop(folder.access.borrow_mut().swap_remove(at)),
                // Otherwise the inode, and the steps of a link to it, would be watched twice.
                false => self.drop_folder(folder),
            }
        }
        if let Some(watch) = folder.watch.get()
            && self.watches.widen(watch, &folder.real).is_err()
        {
            self.drop_folder(folder);
        }
        let path = folder.member(name);
        let own = open::lstat(&path).map_err(errno);
        let (real, target, passed, watched) = match own {
            Ok(stat) if stat.is_link() => {
                let text = open::read_link(&path).unwrap_or_default();
                let Resolved { real, target, passed, watched } =
                    resolve(&mut self.watches, &folder.real, &text);
                (real, target, passed, watched)
            }
            _ => (path, own, Vec::new(), true),
        };
        let passed: Box<[Passed]> = passed.into();
        let is_told = folder.watch.get().is_some();
        let has_names = is_told && target.is_ok_and(|stat| stat.links > 1);
        let file_watch = match has_names {
            true => self.watches.watch_file(&real).ok(),
            false => None,
        };
        if is_told && (!watched || (has_names && file_watch.is_none())) {
            // Not all changes would be reported, so it is read again for the next request.
            self.drop_folder(folder);
        }
        let outcome = match own {
            Err(error) => Err(error),
            Ok(_) => read_text(&real).map_err(errno),
        };
        let outcome = match outcome {
            Err(ENOENT | ENOTDIR) => Ok(None),
            Err(error) => Err(error),
            Ok(text) => Ok(Some(self.identify(join(&folder.path, name).into(), text))),
        };
        let answer = outcome.clone().map_err(io::Error::from_raw_os_error);
        let changed = own.map_or(i64::MIN, |stat| stat.changed_ns);
        let racy = !folder.trusted && is_recent(changed);
        self.watches.depend(&passed, &Dependent::Folder(Rc::downgrade(folder)));
        if let Some(number) = file_watch {
            self.watches.attach_folder(number, folder);
        }
        let outcome = Some(outcome);
        let access = Access { name: name.into(), own, passed, file_watch, outcome, racy };
        folder.access.borrow_mut().push(access);
        if !folder.valid.get() {
            self.watches.detach_folder(folder);
        }
        answer
    }

    /// The access file with that text: the same one as before if the text is the same.
    fn identify(&mut self, path: Box<[u8]>, text: Bytes) -> Rc<AccessFile> {
        if let Some(known) = self.access_files.get(&path) {
            if known.text == text {
                return Rc::clone(known);
            }
            let old = Rc::clone(known);
            self.let_go_access_file(&old);
        }
        self.serial += 1;
        let file = Rc::new(AccessFile { path: path.clone(), text, serial: self.serial });
        let bytes = access_weight(&file);
        // Drop access files that no folder uses first, then the longest, so that few have to go.
        while self.access_bytes + bytes > self.limits.access_bytes {
            let order = |file: &&Rc<AccessFile>| (Rc::strong_count(file) == 1, file.text.len());
            let Some(other) = self.access_files.values().max_by_key(order).cloned() else { break };
            self.let_go_access_file(&other);
        }
        self.access_bytes += bytes;
        self.access_files.insert(path, Rc::clone(&file));
        file
    }

    /// Drops the text of an access file. Its folder still learns of changes to the file.
    fn let_go_access_file(&mut self, file: &AccessFile) {
        if self.access_files.remove(&file.path).is_some() {
            self.access_bytes = self.access_bytes.saturating_sub(access_weight(file));
        }
        let Some(end) = file.path.iter().rposition(|byte| *byte == b'/') else { return };
        let folder = file.path.get(..end.max(1)).and_then(|path| self.folders.get(path));
        let name = file.path.get(end + 1..).unwrap_or_default();
        let Some(folder) = folder else { return };
        for access in folder.access.borrow_mut().iter_mut() {
            if *access.name == *name {
                access.outcome = None;
            }
        }
    }
}

/// The bytes that an access file counts for.
fn access_weight(file: &AccessFile) -> u64 {
    file.text.len() as u64 + ACCESS_FILE_BYTES
}

/// The bytes of a small file, and whether these are all that it had when it was opened.
fn read_whole(file: &OwnedFd, size: u64) -> io::Result<(Piece, bool)> {
    let size = usize::try_from(size).unwrap_or(0);
    // One byte more shows whether the file has grown.
    let mut buffer = vec![0; size + 1];
    let length = open::read_sized(file, &mut buffer, size)?;
    buffer.truncate(length.min(size));
    Ok((Piece::Bytes(Bytes::from(buffer)), length == size))
}

/// Whether contents may change without a sign: what they were found by is no longer valid, or the
/// kernel reports nothing and they were changed just now.
fn is_racy(found: &Found, contents: &Contents) -> bool {
    if !found.valid.get() || !found.folder.valid.get() {
        return true;
    }
    !found.trusted && is_recent(contents.stat.changed_ns.max(contents.stat.modified_ns))
}

/// Whether a time is within the last second.
fn is_recent(time_ns: i64) -> bool {
    let now_us = i64::try_from(clock::realtime_us()).unwrap_or(i64::MAX);
    now_us.saturating_mul(1000).saturating_sub(time_ns) < RACY_NS
}

/// The text of an access file whose links are resolved.
fn read_text(real: &[u8]) -> io::Result<Bytes> {
    let file = open::open_without_links(real)?;
    let stat = open::fstat(&file)?;
    if !stat.is_file() {
        return Err(io::Error::from_raw_os_error(EACCES));
    }
    if stat.size > LARGEST_ACCESS_FILE {
        return Err(io::Error::from_raw_os_error(EFBIG));
    }
    let size = usize::try_from(stat.size).unwrap_or(0);
    let mut text = vec![0; size];
    let length = open::read_at(&file, &mut text, 0)?;
    text.truncate(length);
    Ok(Bytes::from(text))
}
