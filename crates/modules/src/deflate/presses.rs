//! How many bodies a process may compress or unpack piece by piece at a time: each keeps a
//! window, tables and a piece while its client takes what there is, and a client that is slow
//! holds no credit meanwhile. Who finds no press free goes without; nobody waits for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The presses of a process, shared by its threads.
pub struct Presses {
    free: AtomicUsize,
}

/// One of them; dropping it gives it back.
pub(super) struct Press(Arc<Presses>);

impl Presses {
    /// So many; a process has as many as it has credits, so that what it holds for slow clients
    /// is no more than it would hold for quick ones.
    #[must_use]
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(count) })
    }

    /// One that is free.
    pub(super) fn take(self: &Arc<Self>) -> Option<Press> {
        self.free.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(1)).ok()?;
        Some(Press(Arc::clone(self)))
    }

    /// How many are free.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.load(Relaxed)
    }
}

impl Drop for Press {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_taken_than_there_are() {
        let presses = Presses::new(2);
        let (one, two) = (presses.take(), presses.take());
        assert!(one.is_some() && two.is_some() && presses.take().is_none());
        drop(one);
        assert_eq!(presses.free(), 1);
        assert!(presses.take().is_some());
        assert!(Presses::new(0).take().is_none());
    }
}
