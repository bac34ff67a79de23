//! A bounded set of entries from which the one that was not used for longest goes first, nearly:
//! a hand goes round and gives each entry that was used since its last visit a second chance.

use crate::found::Found;
use std::rc::Rc;

/// How many entries the hand passes for one new entry before it takes the next in any case.
const LONGEST_SEARCH: usize = 64;

/// Entries in a circle.
#[derive(Debug)]
pub(crate) struct Ring {
    slots: Vec<Option<Rc<Found>>>,
    free: Vec<usize>,
    hand: usize,
    limit: usize,
}

impl Ring {
    /// An empty ring of at most `limit` entries, at least one.
    pub(crate) fn new(limit: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), hand: 0, limit: limit.max(1) }
    }

    /// Puts an entry in; gives back the one that had to go for it.
    pub(crate) fn put(&mut self, found: Rc<Found>) -> Option<Rc<Found>> {
        if self.free.is_empty() && self.slots.len() < self.limit {
            self.free.push(self.slots.len());
            self.slots.push(None);
        }
        let slot = self.free.pop().unwrap_or_else(|| self.victim());
        found.slot.set(Some(slot));
        self.slots.get_mut(slot).and_then(|place| place.replace(found))
    }

    /// Takes an entry out, if it is in.
    pub(crate) fn take(&mut self, found: &Found) {
        let Some(slot) = found.slot.take() else { return };
        if let Some(place) = self.slots.get_mut(slot) {
            *place = None;
            self.free.push(slot);
        }
    }

    /// The next entry at the hand, which moves on.
    pub(crate) fn turn(&mut self) -> Option<&Rc<Found>> {
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
                Some(found) if found.valid.get() && found.folder.valid.get() => {
                    if !found.used.replace(false) {
                        break;
                    }
                }
                _ => break,
            }
        }
        self.hand
    }
}
