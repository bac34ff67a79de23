//! A bounded set that evicts approximately the least recently used entry, by the CLOCK algorithm: a
//! hand moves round and gives each entry that was used since its last visit a second chance.

use crate::folder::Folder;
use crate::found::Found;
use std::cell::Cell;
use std::rc::Rc;

/// The number of entries that the hand passes for one new entry before it evicts the next one in
/// any case.
const LONGEST_SEARCH: usize = 64;

/// An entry of a ring.
pub(crate) trait Entry {
    /// The place in the ring.
    fn slot(&self) -> &Cell<Option<usize>>;

    /// Whether it is no longer valid.
    fn is_void(&self) -> bool;

    /// Whether it was used since the last call, or others depend on it.
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

    /// The folders below would be evicted with it.
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

    /// Adds an entry. Returns the entry that was evicted for it, which no longer has a place.
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

    /// Removes an entry, if it is in the ring.
    pub(crate) fn take(&mut self, entry: &T) {
        let Some(slot) = entry.slot().take() else { return };
        if let Some(place) = self.slots.get_mut(slot) {
            *place = None;
            self.free.push(slot);
        }
    }

    /// The next entry at the hand. The hand moves on.
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
