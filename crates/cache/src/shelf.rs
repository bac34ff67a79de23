//! Finds stored responses. Each serving thread keeps a table, the shelf, of the responses that it
//! has opened. A response in it is valid while its open file still has a link: any process that
//! replaces or removes the file takes its last link away, and one fstat(2) reports the number of
//! links.

use crate::entry::{Content, Entry, Index, MOST_HEAD, decode, head_length};
use crate::key::Key;
use crate::place::Place;
use crate::vary::selecting_values;
use bytes::Bytes;
use evenkeel_message::{Fields, Piece};
use evenkeel_sys::open::{fstat, open_to_read, read_at};
use foldhash::fast::RandomState;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// The most responses on a shelf. Each has an open file.
const MOST_OPEN: usize = 256;

/// Bodies up to this length in bytes stay in memory.
const MOST_IN_MEMORY: u64 = 64 << 10;

/// The most bytes of bodies in memory.
const MOST_BYTES: u64 = 8 << 20;

/// A response that nobody has asked for during so many ticks is closed, so that the space of a
/// removed file is free again.
const IDLE_TICKS: u32 = 10;

/// The bytes that are read of a file at first.
const FIRST_READ: usize = 4 << 10;

/// A stored response that is open.
#[derive(Debug)]
pub struct Opened {
    /// All but the body.
    pub entry: Entry,
    /// The body.
    pub body: Piece,
    file: Arc<OwnedFd>,
}

/// What is open for a key.
#[derive(Clone)]
enum Slot {
    Entry(Rc<Opened>),
    Index(Rc<(Index, OwnedFd)>),
}

struct Kept {
    slot: Slot,
    /// The bytes of the body in memory.
    bytes: u64,
    /// The tick of its last use.
    used: u32,
}

/// The stored responses that a thread has opened.
#[derive(Default)]
pub struct Shelf {
    kept: RefCell<HashMap<Box<[u8]>, Kept, RandomState>>,
    bytes: Cell<u64>,
    tick: Cell<u32>,
}

impl Shelf {
    /// The stored response for a request with these fields.
    #[must_use]
    pub fn find(&self, place: &Place, key: &Key, request: &Fields) -> Option<Rc<Opened>> {
        match self.slot(place, key.text())? {
            Slot::Entry(opened) => is_of(&opened, key).then_some(opened),
            Slot::Index(index) => {
                let (index, _) = &*index;
                let selecting = selecting_values(&index.names, request);
                let text = index.variant_text(&selecting);
                match self.slot(place, &text)? {
                    Slot::Entry(opened) if opened.entry.selecting == selecting => {
                        is_of(&opened, key).then_some(opened)
                    }
                    _ => None,
                }
            }
        }
    }

    /// Is called about once a second. Closes what has not been used for a while.
    pub fn tick(&self) {
        let now = self.tick.get().wrapping_add(1);
        self.tick.set(now);
        let mut kept = self.kept.borrow_mut();
        kept.retain(|_, kept| now.wrapping_sub(kept.used) < IDLE_TICKS);
        self.bytes.set(kept.values().map(|kept| kept.bytes).sum());
    }

    /// Whether anything is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.borrow().is_empty()
    }

    fn slot(&self, place: &Place, text: &[u8]) -> Option<Slot> {
        let mut all = self.kept.borrow_mut();
        if let Some(kept) = all.get_mut(text) {
            if kept.slot.is_current() {
                kept.used = self.tick.get();
                return Some(kept.slot.clone());
            }
            self.bytes.set(self.bytes.get().saturating_sub(kept.bytes));
            all.remove(text);
        }
        let slot = open(place, text)?;
        let bytes = slot.bytes();
        if all.len() >= MOST_OPEN || self.bytes.get().saturating_add(bytes) > MOST_BYTES {
            self.make_room(&mut all);
        }
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        all.insert(text.into(), Kept { slot: slot.clone(), bytes, used: self.tick.get() });
        Some(slot)
    }

    /// Closes the half that was not used for the longest time.
    fn make_room(&self, all: &mut HashMap<Box<[u8]>, Kept, RandomState>) {
        let now = self.tick.get();
        let mut ages: Vec<u32> = all.values().map(|kept| now.wrapping_sub(kept.used)).collect();
        ages.sort_unstable();
        let median = ages.get(ages.len() / 2).copied().unwrap_or(0);
        let (mut left, half) = (all.len(), all.len() / 2);
        all.retain(|_, kept| {
            let stays = left <= half || now.wrapping_sub(kept.used) < median.max(1) && median > 0;
            left -= usize::from(!stays);
            stays
        });
        self.bytes.set(all.values().map(|kept| kept.bytes).sum());
    }
}

impl Slot {
    fn is_current(&self) -> bool {
        let stat = match self {
            Slot::Entry(opened) => fstat(&*opened.file),
            Slot::Index(index) => fstat(&index.1),
        };
        stat.is_ok_and(|stat| stat.links > 0)
    }

    fn bytes(&self) -> u64 {
        match self {
            Slot::Entry(opened) => match &opened.body {
                Piece::Bytes(bytes) => bytes.len() as u64,
                Piece::File { .. } => 0,
            },
            Slot::Index(_) => 0,
        }
    }
}

/// Whether a file is that of the key, and not of another with the same hash.
fn is_of(opened: &Opened, key: &Key) -> bool {
    opened.entry.key == *key
}

/// Opens a file. None if there is none, or if it is damaged.
fn open(place: &Place, text: &[u8]) -> Option<Slot> {
    // What is no regular file cannot be read at an offset.
    let file = open_to_read(&place.path_of(text)).ok()?;
    match read_head(&file)? {
        Content::Index(index) => {
            (index.key.text() == text).then(|| Slot::Index(Rc::new((index, file))))
        }
        Content::Entry(entry, offset) => {
            let length = entry.body_length;
            if fstat(&file).ok()?.size != offset.checked_add(length)? {
                return None;
            }
            let file = Arc::new(file);
            let body = match length <= MOST_IN_MEMORY {
                true => Piece::Bytes(read_body(&file, offset, length).ok()?),
                false => Piece::File { file: Arc::clone(&file), offset, length },
            };
            Some(Slot::Entry(Rc::new(Opened { entry, body, file })))
        }
    }
}

/// Reads the head of an open file.
pub(crate) fn read_head(file: &OwnedFd) -> Option<Content> {
    let mut head = vec![0; FIRST_READ];
    let read = read_at(file, &mut head, 0).ok()?;
    head.truncate(read);
    let length = head_length(&head)?;
    if length > MOST_HEAD {
        return None;
    }
    while head.len() < length {
        let at = head.len();
        head.resize(length, 0);
        let read = read_at(file, head.get_mut(at..)?, at as u64).ok().filter(|read| *read > 0)?;
        head.truncate(at + read);
    }
    decode(&head)
}

fn read_body(file: &OwnedFd, offset: u64, length: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        match read_at(file, rest, offset + at as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => at += read,
        }
    }
    Ok(bytes.into())
}
