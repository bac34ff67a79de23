//! Whether connections wait for which the child has no idle worker. Any worker checks, between two
//! events of its connection, so that the answer does not depend on one thread or on the parent,
//! which may get no core for long among hundreds of busy processes.

use super::CHECK_US;
use evenkeel_sys::clock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The last checks of the accept queue, shared by the workers of a child.
#[derive(Default)]
pub(crate) struct QueueMonitor {
    checked_us: AtomicU64,
    had_queue: AtomicBool,
    is_contended: AtomicBool,
}

impl QueueMonitor {
    /// Whether connections waited at the last two checks. Calls `queue` for its length if the last
    /// check is long enough ago.
    pub(crate) fn is_contended(&self, queue: impl FnOnce() -> usize) -> bool {
        self.check_at(clock::monotonic_coarse_us(), queue)
    }

    fn check_at(&self, now_us: u64, queue: impl FnOnce() -> usize) -> bool {
        let last_us = self.checked_us.load(Relaxed);
        let is_due = now_us.saturating_sub(last_us) >= CHECK_US;
        if is_due && self.checked_us.compare_exchange(last_us, now_us, Relaxed, Relaxed).is_ok() {
            let had_queue = queue() > 0;
            let before = self.had_queue.swap(had_queue, Relaxed);
            self.is_contended.store(before && had_queue, Relaxed);
        }
        self.is_contended.load(Relaxed)
    }

    /// Forgets the checks, because a worker is idle.
    pub(crate) fn clear(&self) {
        self.had_queue.store(false, Relaxed);
        self.is_contended.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_stands_that_two_looks_have_seen_on_end() {
        let queue_monitor = QueueMonitor::default();
        let mut now_us = 9_000_000;
        let mut check = |length| {
            now_us += CHECK_US;
            queue_monitor.check_at(now_us, || length)
        };
        assert_eq!([1, 2, 0, 3, 3, 1].map(&mut check), [false, true, false, false, true, true]);
        queue_monitor.clear();
        assert!(!check(5) && check(5));
        // Between two checks the system is not asked.
        assert!(queue_monitor.check_at(now_us + CHECK_US - 1, || 0));
    }
}
