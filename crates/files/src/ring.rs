//! A bounded set of entries from which the one that was not used for longest goes first, nearly:
//! a hand goes round and gives each entry that was used since its last visit a second chance.

use crate::folder::Folder;
use crate::found::Found;
use std::cell::Cell;
use std::rc::Rc;

/// How many entries the hand passes for one new entry before it takes the next in any case.
const LONGEST_SEARCH: usize = 64;

/// What a ring holds.
pub(crate) trait Entry {
    /// Its place in the ring.
    fn slot(&self) -> &Cell<Option<usize>>;

    /// Whether it holds no more.
    fn is_void(&self) -> bool;

    /// Whether it was used since this was asked last, or others depend on it.
    fn was_used(&self) -> bool;
}

impl Entry for Found {
    fn slot(&self) -> &Cell<Option<usize>> {
        &self.slot
    }

    fn is_void(&self) -> bool {
        !self.valid.get() || !self.folder.valid.get()
    }

    fn was_used(&self) -> bool {
        self.used.replace(false)
    }
}

impl Entry for Folder {
    fn slot(&self) -> &Cell<Option<usize>> {
        &self.slot
    }

    fn is_void(&self) -> bool {
        !self.valid.get()
    }

    /// Those below a folder go with it.
    fn was_used(&self) -> bool {
        let has_inner = || self.children.borrow().iter().any(|inner| inner.strong_count() > 0);
        self.used.replace(false) || has_inner()
    }
}

/// Entries in a circle.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    slots: Vec<Option<Rc<T>>>,
    free: Vec<usize>,
    hand: usize,
    limit: usize,
}

impl<T: Entry> Ring<T> {
    /// An empty ring of at most `limit` entries, at least one.
    pub(crate) fn new(limit: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), hand: 0, limit: limit.max(1) }
    }

    /// Puts an entry in; gives back the one that had to go for it, which has no place any more.
    pub(crate) fn put(&mut self, entry: Rc<T>) -> Option<Rc<T>> {
        if self.free.is_empty() && self.slots.len() < self.limit {
            self.free.push(self.slots.len());
            self.slots.push(None);
        }
        let slot = self.free.pop().unwrap_or_else(|| self.victim());
        entry.slot().set(Some(slot));
        let gone = self.slots.get_mut(slot).and_then(|place| place.replace(entry));
        gone.inspect(|gone| gone.slot().set(None))
    }

    /// Takes an entry out, if it is in.
    pub(crate) fn take(&mut self, entry: &T) {
        let Some(slot) = entry.slot().take() else { return };
        if let Some(place) = self.slots.get_mut(slot) {
            *place = None;
            self.free.push(slot);
        }
    }

    /// The next entry at the hand, which moves on.
    pub(crate) fn turn(&mut self) -> Option<&Rc<T>> {
        self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
        self.slots.get(self.hand).and_then(Option::as_ref)
    }

    /// How many entries there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn victim(&mut self) -> usize {
        for _ in 0..LONGEST_SEARCH {
            match self.turn() {
                Some(entry) if !entry.is_void() && entry.was_used() => {}
                _ => break,
            }
        }
        self.hand
    }
}
