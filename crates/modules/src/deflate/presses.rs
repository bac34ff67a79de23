//! How many bodies a process may compress or unpack piece by piece at a time: each keeps a
//! window, tables and a piece while its client takes what there is, and a client that is slow
//! holds no credit meanwhile. Who finds no press free goes without; nobody waits for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The presses of a process, shared by its threads.
pub struct Presses {
    free: AtomicUsize,
    /// How many are left to those that cannot do without.
    kept: usize,
}

/// One of them; dropping it gives it back.
pub(super) struct Press(Arc<Presses>);

impl Presses {
    /// So many; a process has as many as it has credits, so that what it holds for slow clients
    /// is no more than it would hold for quick ones.
    #[must_use]
    pub fn new(count: usize) -> Arc<Self> {
        // Where there is one alone, one client is served at a time.
        let kept = (count / 4).max(usize::from(count > 1));
        Arc::new(Self { free: AtomicUsize::new(count), kept })
    }

    /// One that is free, for a body that cannot be sent otherwise.
    pub(super) fn take(self: &Arc<Self>) -> Option<Press> {
        self.take_beyond(0)
    }

    /// One that is free, for a body that can be sent as it is: a quarter is left to those that
    /// cannot, so that slow clients of the one kind do not keep out the other.
    pub(super) fn take_spare(self: &Arc<Self>) -> Option<Press> {
        self.take_beyond(self.kept)
    }

    fn take_beyond(self: &Arc<Self>, kept: usize) -> Option<Press> {
        let take = |free: usize| if free > kept { free.checked_sub(1) } else { None };
        self.free.fetch_update(Relaxed, Relaxed, take).ok()?;
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

    #[test]
    fn a_quarter_is_left_to_those_that_cannot_do_without() {
        for (count, spare) in [(0, 0), (1, 1), (2, 1), (4, 3), (16, 12)] {
            let presses = Presses::new(count);
            let taken: Vec<_> = std::iter::from_fn(|| presses.take_spare()).collect();
            assert_eq!(taken.len(), spare, "{count}");
            let rest: Vec<_> = std::iter::from_fn(|| presses.take()).collect();
            assert_eq!(rest.len(), count - spare, "{count}");
        }
    }
}
