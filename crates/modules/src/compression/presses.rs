//! The bound on the bodies that a process compresses or unpacks piece by piece at a time. Each
//! keeps a window, tables and a piece for as long as its client takes to receive it, and a slow
//! client holds no credit meanwhile. No body waits for a press: without one, a plain body is sent
//! uncompressed, and a body to unpack is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The presses of a process, shared by its threads.
pub struct Presses {
    free: AtomicUsize,
    count: usize,
    /// How many are left to bodies that cannot be sent otherwise.
    kept: usize,
}

/// Presses in use. Dropping them gives them back.
pub(crate) struct Press {
    presses: Arc<Presses>,
    count: usize,
}

impl Presses {
    /// Makes `count` presses. A process has as many as it has credits, up to a bound, so that it
    /// holds no more memory for slow clients than it would hold for fast ones.
    #[must_use]
    pub fn new(count: usize) -> Arc<Self> {
        // A process with one press serves one client at a time, so it reserves none.
        let kept = (count / 4).max(usize::from(count > 1));
        Arc::new(Self { free: AtomicUsize::new(count), count, kept })
    }

    /// Takes a press for a body that cannot be sent otherwise.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Press> {
        self.take_beyond(0, 1)
    }

    /// Takes presses for a body that can also be sent as it is. A quarter of all is left to those
    /// that cannot, so that slow clients of one kind do not keep out those of the other. A body
    /// that needs more than all of the rest takes the rest.
    pub(crate) fn take_spare(self: &Arc<Self>, count: usize) -> Option<Press> {
        self.take_beyond(self.kept, count.clamp(1, (self.count - self.kept).max(1)))
    }

    fn take_beyond(self: &Arc<Self>, kept: usize, count: usize) -> Option<Press> {
        let take = |free: usize| free.checked_sub(count).filter(|left| *left >= kept);
        self.free.fetch_update(Relaxed, Relaxed, take).ok()?;
        Some(Press { presses: Arc::clone(self), count })
    }

    /// The number of free presses.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.load(Relaxed)
    }
}

impl Drop for Press {
    fn drop(&mut self) {
        self.presses.free.fetch_add(self.count, Relaxed);
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
            let taken: Vec<_> = std::iter::from_fn(|| presses.take_spare(1)).collect();
            assert_eq!(taken.len(), spare, "{count}");
            let rest: Vec<_> = std::iter::from_fn(|| presses.take()).collect();
            assert_eq!(rest.len(), count - spare, "{count}");
        }
    }

    #[test]
    fn a_large_body_takes_several_and_gives_them_back() {
        let presses = Presses::new(16);
        let large = presses.take_spare(5);
        assert_eq!(presses.free(), 11);
        assert!(presses.take_spare(8).is_none() && presses.take_spare(7).is_some());
        drop(large);
        assert_eq!(presses.free(), 16);
        assert!(presses.take_spare(1000).is_some());
    }
}
