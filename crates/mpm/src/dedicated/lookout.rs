//! Whether connections wait that no worker of the child is idle for. Whichever worker comes round
//! looks, so that the answer does not depend on one thread or on the parent, which hundreds of busy
//! ones may keep from the cores.

use super::CHECK_US;
use evenkeel_sys::clock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The last looks at the queue, as all workers of a child share them.
#[derive(Default)]
pub(crate) struct Lookout {
    looked_us: AtomicU64,
    waits: AtomicBool,
    stands: AtomicBool,
}

impl Lookout {
    /// Whether connections waited at the last two looks. A look is had with `queue` where the last
    /// is long enough ago.
    pub(crate) fn stands(&self, queue: impl FnOnce() -> usize) -> bool {
        self.stands_at(clock::monotonic_coarse_us(), queue)
    }

    fn stands_at(&self, now_us: u64, queue: impl FnOnce() -> usize) -> bool {
        let last_us = self.looked_us.load(Relaxed);
        let is_due = now_us.saturating_sub(last_us) >= CHECK_US;
        if is_due && self.looked_us.compare_exchange(last_us, now_us, Relaxed, Relaxed).is_ok() {
            let waits = queue() > 0;
            let waited = self.waits.swap(waits, Relaxed);
            self.stands.store(waited && waits, Relaxed);
        }
        self.stands.load(Relaxed)
    }

    /// Forgets the looks: a worker is idle.
    pub(crate) fn clear(&self) {
        self.waits.store(false, Relaxed);
        self.stands.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_stands_that_two_looks_have_seen_on_end() {
        let lookout = Lookout::default();
        let mut now_us = 9_000_000;
        let mut look = |length| {
            now_us += CHECK_US;
            lookout.stands_at(now_us, || length)
        };
        assert_eq!([1, 2, 0, 3, 3, 1].map(&mut look), [false, true, false, false, true, true]);
        lookout.clear();
        assert!(!look(5) && look(5));
        // Between looks nobody asks the system.
        assert!(lookout.stands_at(now_us + CHECK_US - 1, || 0));
    }
}
