//! The compressed forms of bodies that are served again and again: the contents of a file that the
//! cache of files holds are compressed once for each coding and its settings. A form belongs to the
//! very bytes in memory, or to the very open file, that it was made from. The cache of files lets
//! go of both when the file changes, so that a form is never served for a newer version.

use super::codec::Encoder;
use bytes::Bytes;
use evenkeel_message::{Body, Piece};
use evenkeel_sys::open;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The largest form that is kept, in bytes.
pub(crate) const LARGEST: usize = 1 << 20;

/// The bytes that a form counts for in addition to its own.
const FORM_BYTES: usize = 256;

/// How many bodies are examined, whenever a form is added, for those that are gone.
const EXAMINED: usize = 4;

/// The forms of one serving thread, bounded in bytes.
pub struct CompressedForms {
    limit_bytes: usize,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    bodies: HashMap<Key, Kept, foldhash::fast::RandomState>,
    /// The keys of `bodies` in the order in which they are examined.
    order: VecDeque<Key>,
    bytes: usize,
    /// The counter to which `bytes` is added, if there is one.
    total: Option<&'static AtomicU64>,
}

/// The address of a body in memory or of an open file, and its length.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    address: usize,
    length: u64,
}

/// The forms of a body. They hold it once: a second handle would keep [`Origin::is_gone`] from
/// seeing that nobody else does.
struct Kept {
    origin: Origin,
    forms: Vec<(Encoder, Made)>,
    was_used: bool,
}

/// A compressed body.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) bytes: Bytes,
    /// The bytes that went in and that came out, without those that the format adds.
    pub(crate) counts: (u64, u64),
}

/// What a form was made from. It keeps the address from being used for another body.
pub(crate) enum Origin {
    Bytes(Bytes),
    /// An open file, which stays open no longer than its other owners need it.
    File(Weak<OwnedFd>, u64),
}

impl Origin {
    /// The origin of a body that somebody else holds too, and is therefore likely to be served
    /// again: the cache of files.
    pub(crate) fn of(body: &Body) -> Option<Self> {
        match body {
            Body::Bytes(bytes) | Body::File(Piece::Bytes(bytes)) => {
                (!bytes.is_unique()).then(|| Origin::Bytes(bytes.clone()))
            }
            Body::File(Piece::File { file, offset: 0, length }) => {
                (Arc::strong_count(file) > 1).then(|| Origin::File(Arc::downgrade(file), *length))
            }
            _ => None,
        }
    }

    fn key(&self) -> Key {
        let (address, length) = match self {
            Origin::Bytes(bytes) => (bytes.as_ptr().addr(), bytes.len() as u64),
            Origin::File(file, length) => (file.as_ptr().addr(), *length),
        };
        Key { address, length }
    }

    /// Whether nobody else holds the body any more.
    fn is_gone(&self) -> bool {
        match self {
            Origin::Bytes(bytes) => bytes.is_unique(),
            Origin::File(file, _) => file.strong_count() == 0,
        }
    }

    /// Whether a process may be writing to the file through a memory map, of which the kernel does
    /// not tell.
    fn may_change_silently(&self) -> bool {
        match self {
            Origin::Bytes(_) => false,
            Origin::File(file, _) => {
                file.upgrade().is_none_or(|file| open::has_no_writer(file.as_fd()) == Some(false))
            }
        }
    }
}

impl CompressedForms {
    /// Keeps forms of at most `limit_bytes` altogether.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, state: RefCell::default() }
    }

    /// Adds the bytes of the kept forms to a counter, which the caches of other threads may share.
    pub fn count_in(&self, total: &'static AtomicU64) {
        let mut state = self.state.borrow_mut();
        let bytes = state.bytes;
        state.subtract(bytes);
        state.total = Some(total);
        state.add(bytes);
    }

    /// The compressed form of a body, if it is kept.
    pub(crate) fn get(&self, origin: &Origin, encoder: Encoder) -> Option<Made> {
        let mut state = self.state.borrow_mut();
        let kept = state.bodies.get_mut(&origin.key())?;
        let (_, made) = kept.forms.iter().find(|(other, _)| *other == encoder)?;
        kept.was_used = true;
        Some(made.clone())
    }

    /// Keeps a compressed form. Forms that were not used lately make room for it.
    pub(crate) fn keep(&self, origin: Origin, encoder: Encoder, made: Made) {
        let weight = made.weight();
        let is_too_large = made.bytes.len() > LARGEST || weight > self.limit_bytes;
        if is_too_large || origin.is_gone() || origin.may_change_silently() {
            return;
        }
        let mut state = self.state.borrow_mut();
        state.drop_gone(EXAMINED);
        while state.bytes + weight > self.limit_bytes && state.drop_one() {}
        let key = origin.key();
        let State { bodies, order, .. } = &mut *state;
        let kept = bodies.entry(key).or_insert_with(|| {
            order.push_back(key);
            Kept { origin, forms: Vec::new(), was_used: false }
        });
        let old = kept.forms.iter().position(|(other, _)| *other == encoder);
        let old = old.map(|at| kept.forms.swap_remove(at));
        kept.forms.push((encoder, made));
        state.subtract(old.map_or(0, |(_, made)| made.weight()));
        state.add(weight);
    }

    /// Lets go of bodies that nobody else holds any more. Called about once a second.
    pub fn tick(&self) {
        let mut state = self.state.borrow_mut();
        let count = state.order.len();
        state.drop_gone(count);
    }

    /// The number of forms and their bytes.
    #[cfg(test)]
    pub(crate) fn held(&self) -> (usize, usize) {
        let state = self.state.borrow();
        (state.bodies.values().map(|kept| kept.forms.len()).sum(), state.bytes)
    }
}

impl State {
    /// Examines the next `count` bodies and drops the forms of those that are gone.
    fn drop_gone(&mut self, count: usize) {
        for _ in 0..count.min(self.order.len()) {
            let Some(key) = self.order.pop_front() else { return };
            match self.bodies.get(&key).is_none_or(|kept| kept.origin.is_gone()) {
                true => self.drop_body(&key),
                false => self.order.push_back(key),
            }
        }
    }

    /// Drops the forms of the next body that was not used since it was last examined. False if
    /// there is none.
    fn drop_one(&mut self) -> bool {
        while let Some(key) = self.order.pop_front() {
            match self.bodies.get_mut(&key) {
                Some(kept) if kept.was_used && !kept.origin.is_gone() => {
                    kept.was_used = false;
                    self.order.push_back(key);
                }
                _ => {
                    self.drop_body(&key);
                    return true;
                }
            }
        }
        false
    }

    fn drop_body(&mut self, key: &Key) {
        if let Some(kept) = self.bodies.remove(key) {
            self.subtract(kept.forms.iter().map(|(_, made)| made.weight()).sum());
        }
    }

    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        if let Some(total) = self.total {
            total.fetch_add(bytes as u64, Relaxed);
        }
    }

    fn subtract(&mut self, bytes: usize) {
        self.bytes -= bytes;
        if let Some(total) = self.total {
            total.fetch_sub(bytes as u64, Relaxed);
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.subtract(self.bytes);
    }
}

impl Made {
    fn weight(&self) -> usize {
        self.bytes.len() + FORM_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GZIP: Encoder = Encoder::Gzip { level: 6, window: 15 };

    fn made(length: usize) -> Made {
        Made { bytes: Bytes::from(vec![b'c'; length]), counts: (1, 2) }
    }

    /// A body that the cache of files holds, and the cache's own handle.
    fn cached(byte: u8) -> (Bytes, Body) {
        let held = Bytes::from(vec![byte; 1000]);
        (held.clone(), Body::Bytes(held))
    }

    /// A file that nobody writes to, and its body. The cache of files holds the handle.
    fn open_file(text: &[u8]) -> (Arc<OwnedFd>, Body) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let file: Arc<OwnedFd> = Arc::new(std::fs::File::open(file.path()).unwrap().into());
        let length = text.len() as u64;
        (Arc::clone(&file), Body::File(Piece::File { file, offset: 0, length }))
    }

    #[test]
    fn a_form_is_found_for_the_same_body_and_encoder_alone() {
        let forms = CompressedForms::new(10_000);
        let (_held, body) = cached(b'a');
        let (_other, same_text) = cached(b'a');
        let origin = || Origin::of(&body).unwrap();
        assert!(forms.get(&origin(), GZIP).is_none());
        forms.keep(origin(), GZIP, made(100));
        assert_eq!(forms.get(&origin(), GZIP).unwrap().bytes.len(), 100);
        let other = Encoder::Gzip { level: 9, window: 15 };
        assert!(forms.get(&origin(), other).is_none());
        assert!(forms.get(&Origin::of(&same_text).unwrap(), GZIP).is_none());
    }

    #[test]
    fn a_body_of_this_response_alone_has_no_origin() {
        assert!(Origin::of(&Body::Bytes(Bytes::from(vec![1; 100]))).is_none());
        let (held, body) = open_file(b"text");
        assert!(Origin::of(&body).is_some());
        drop(held);
        assert!(Origin::of(&body).is_none());
    }

    #[test]
    fn forms_of_bodies_that_the_cache_dropped_are_dropped() {
        let forms = CompressedForms::new(1 << 20);
        let (held, body) = cached(b'a');
        let (file, of_file) = open_file(b"some text");
        forms.keep(Origin::of(&body).unwrap(), GZIP, made(100));
        forms.keep(Origin::of(&of_file).unwrap(), GZIP, made(50));
        forms.tick();
        assert_eq!(forms.held(), (2, 150 + 2 * FORM_BYTES));
        drop((held, body));
        forms.tick();
        assert_eq!(forms.held(), (1, 50 + FORM_BYTES));
        drop((file, of_file));
        // Adding a form examines others too.
        let (_next, body) = cached(b'b');
        forms.keep(Origin::of(&body).unwrap(), GZIP, made(10));
        assert_eq!(forms.held(), (1, 10 + FORM_BYTES));
    }

    #[test]
    fn caches_add_their_bytes_to_one_counter_until_they_drop_them() {
        static TOTAL: AtomicU64 = AtomicU64::new(0);
        let caches = [CompressedForms::new(1 << 20), CompressedForms::new(1 << 20)];
        let bodies = [cached(b'a'), cached(b'b')];
        let keep = |at: usize, length| {
            caches[at].keep(Origin::of(&bodies[at].1).unwrap(), GZIP, made(length));
            TOTAL.load(Relaxed)
        };
        let weight = |length: usize| (length + FORM_BYTES) as u64;
        assert_eq!(keep(0, 100), 0);
        caches.iter().for_each(|cache| cache.count_in(&TOTAL));
        assert_eq!(TOTAL.load(Relaxed), weight(100));
        assert_eq!(keep(1, 30), weight(100) + weight(30));
        assert_eq!(keep(1, 50), weight(100) + weight(50));
        let [first, second] = caches;
        drop(first);
        assert_eq!(TOTAL.load(Relaxed), weight(50));
        drop(bodies);
        second.tick();
        assert_eq!(TOTAL.load(Relaxed), 0);
    }

    #[test]
    fn the_bytes_are_bounded_and_used_forms_stay() {
        let forms = CompressedForms::new(3 * (100 + FORM_BYTES));
        let bodies: Vec<_> = (0..10).map(cached).collect();
        let origin = |at: usize| Origin::of(&bodies[at].1).unwrap();
        for at in 0..10 {
            forms.keep(origin(at), GZIP, made(100));
            assert!(forms.get(&origin(0), GZIP).is_some(), "{at}");
            assert!(forms.held().0 <= 3);
        }
        assert!(forms.get(&origin(1), GZIP).is_none());
        forms.keep(origin(1), GZIP, made(LARGEST + 1));
        assert!(forms.get(&origin(1), GZIP).is_none());
    }

    #[test]
    fn no_form_is_kept_of_a_file_that_somebody_writes_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        std::fs::write(&path, "text").unwrap();
        let file: Arc<OwnedFd> = Arc::new(std::fs::File::open(&path).unwrap().into());
        let body = Body::File(Piece::File { file: Arc::clone(&file), offset: 0, length: 4 });
        let forms = CompressedForms::new(10_000);
        let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        forms.keep(Origin::of(&body).unwrap(), GZIP, made(10));
        assert_eq!(forms.held().0, 0);
        drop(writer);
        forms.keep(Origin::of(&body).unwrap(), GZIP, made(10));
        assert_eq!(forms.held().0, 1);
    }

    #[test]
    fn all_forms_of_a_body_are_dropped_with_it() {
        let forms = CompressedForms::new(1 << 20);
        let (held, body) = cached(b'a');
        for level in [6, 9] {
            let encoder = Encoder::Gzip { level, window: 15 };
            forms.keep(Origin::of(&body).unwrap(), encoder, made(100));
        }
        forms.tick();
        assert_eq!(forms.held(), (2, 2 * (100 + FORM_BYTES)));
        drop((held, body));
        forms.tick();
        assert_eq!(forms.held(), (0, 0));
    }
}
