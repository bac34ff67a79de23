//! Opening and reading: the bytes of a file and the text of an access file. What was looked up
//! comes in; bytes go out with what the kernel says of the very descriptor they were read from.
//! A path is opened without following links, since its links were followed and checked before.

use crate::folder::{Access, AccessFile, Folder, join};
use crate::found::{Contents, Found, Kind};
use crate::resolve::{Passed, errno, resolve};
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

// Of errno(3).
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const EFBIG: i32 = 27;
const ELOOP: i32 = 40;

/// The largest access file that is read, in bytes.
const LARGEST_ACCESS_FILE: u64 = 1 << 20;

/// A change this close to the reading may be followed by one that shows the same times.
const RACY_NS: i64 = 1_000_000_000;

impl State {
    /// Opens a file, reads it where it is small, and keeps it where that is safe.
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
            // Exchanged or changed since the look-up: serve what is there now, keep nothing.
            found.valid.set(false);
            let other_owner = stat.uid != found.stat.uid && found.through_link();
            if other_owner || !stat.is_file() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
        let (piece, whole) = if stat.size <= self.limits.file_bytes {
            // A process that has the file open for writing may write through a memory map, of
            // which nothing is told.
            let quiet = open::has_no_writer(file.as_fd()) != Some(false);
            let (piece, whole) = read_whole(&file, stat.size)?;
            (piece, whole && quiet)
        } else {
            (Piece::File { file: Arc::new(file), offset: 0, length: stat.size }, true)
        };
        let stat = Stat { size: piece.len(), ..stat };
        let contents = Rc::new(Contents { stat, piece, head: RefCell::default() });
        if whole && found.slot.get().is_some() && !is_racy(found, &contents) {
            self.hold(found, &contents);
        }
        Ok(contents)
    }

    /// Opens a file that was looked up. Where the process has no descriptor left, those that are
    /// held for later give way.
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
            // Something else stands there by now.
            found.valid.set(false);
        }
        opened.map_err(io::Error::from_raw_os_error)
    }

    /// The access file of that name in a folder, read once and kept with the folder.
    pub(crate) fn access_file(
        &mut self,
        folder: &Rc<Folder>,
        name: &[u8],
    ) -> io::Result<Option<Rc<AccessFile>>> {
        if let Some(known) = folder.access.borrow().iter().find(|one| *one.name == *name)
            && folder.valid.get()
        {
            return known.outcome.clone().map_err(io::Error::from_raw_os_error);
        }
        if let Some(watch) = folder.watch.get()
            && self.watches.widen(watch, &folder.real).is_err()
        {
            self.drop_folder(folder);
        }
        let path = folder.member(name);
        let own = open::lstat(&path).map_err(errno);
        let (real, passed) = match own {
            Ok(stat) if stat.is_link() => {
                let text = open::read_link(&path).unwrap_or_default();
                let resolved = resolve(&mut self.watches, &folder.real, &text);
                (resolved.real, resolved.passed)
            }
            _ => (path, Vec::new()),
        };
        let passed: Box<[Passed]> = passed.into();
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
        let access = Access { name: name.into(), own, passed, outcome, racy };
        folder.access.borrow_mut().push(access);
        if !folder.valid.get() {
            self.watches.detach_folder(folder);
        }
        answer
    }

    /// The access file of that text: the same as before where the text is the same.
    fn identify(&mut self, path: Box<[u8]>, text: Bytes) -> Rc<AccessFile> {
        if let Some(known) = self.access_files.get(&path)
            && known.text == text
        {
            return Rc::clone(known);
        }
        if self.access_files.len() >= self.limits.access_files {
            self.access_files.retain(|_, file| Rc::strong_count(file) > 1);
        }
        self.serial += 1;
        let file = Rc::new(AccessFile { path: path.clone(), text, serial: self.serial });
        if self.access_files.len() < self.limits.access_files {
            self.access_files.insert(path, Rc::clone(&file));
        }
        file
    }
}

/// The bytes of a small file, and whether they are all that it had when it was opened.
fn read_whole(file: &OwnedFd, size: u64) -> io::Result<(Piece, bool)> {
    let size = usize::try_from(size).unwrap_or(0);
    // One byte more shows whether the file has grown.
    let mut buffer = vec![0; size + 1];
    let length = open::read_at(file, &mut buffer, 0)?;
    buffer.truncate(length.min(size));
    Ok((Piece::Bytes(Bytes::from(buffer)), length == size))
}

/// Whether contents may change without any sign: what they were found by is void, or, without
/// word from the kernel, they were changed just now.
fn is_racy(found: &Found, contents: &Contents) -> bool {
    if !found.valid.get() || !found.folder.valid.get() {
        return true;
    }
    !found.trusted && is_recent(contents.stat.changed_ns.max(contents.stat.modified_ns))
}

/// Whether a time lies within the last second.
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
