//! Permits for expensive work where a connection holds a worker: all children share them, because
//! many workers are processes. A request that waits for one gives its worker back, so that other
//! requests are answered meanwhile.

use crate::board::Scoreboard;
use crate::child::{ChildLine, Counter};
use crate::state::Phase;
use evenkeel_sys::clock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How many permits there are for each core: enough that no core idles while a job waits for the
/// file system.
const PER_CORE: u64 = 4;

/// A request may overtake another that has waited up to this much longer, in microseconds.
/// Otherwise a free permit would stay unused until the worker of the longest wait checks again.
const SLACK_US: u64 = 500_000;

/// A waiting request whose worker has not tried to take a permit for this long, in microseconds, is
/// ignored, because the worker hangs.
const TRIED_US: u64 = 200_000;

/// The largest count that a child may report. A larger one is a corrupt value.
const MOST_CLAIMED: u64 = 1 << 20;

/// The permits, as one child sees them. How many are in use is the sum of what the children
/// report, so that a child that dies returns its permits. Two children that look at the same time
/// may both take the last one.
#[derive(Clone, Copy)]
pub struct SharedPermits {
    board: Scoreboard,
    line: ChildLine,
    cores: u64,
}

/// The permits as one worker sees them.
pub struct WorkerPermits {
    shared: SharedPermits,
    /// When the request that was polled last began to wait for a permit, in microseconds of the
    /// monotonic clock. 0 if it does not wait for one.
    since_us: AtomicU64,
}

/// A permit; dropping it returns it.
pub struct SharedPermit(ChildLine);

/// The place of a request that waits for a permit.
pub struct PermitWait {
    line: ChildLine,
    since_us: u64,
}

/// What the children report.
#[derive(Default)]
struct Census {
    working: u64,
    waiting: u64,
    workers: u64,
    /// When the longest of the waits began whose workers still try.
    oldest_us: Option<u64>,
}

impl SharedPermits {
    /// The permits of the server for the child with this line, on so many cores.
    #[must_use]
    pub fn new(board: Scoreboard, line: ChildLine, cores: usize) -> Self {
        Self { board, line, cores: cores as u64 }
    }

    fn census(&self, now_us: u64) -> Census {
        let mut census = Census::default();
        for child in 0..self.board.lines_used() {
            let lines = self.board.child_line(child).zip(self.board.parent_line(child));
            let Some((own, parent)) = lines else { break };
            let phase = parent.phase();
            if phase == Phase::Empty {
                continue;
            }
            census.working += own.read(Counter::Expensive).min(MOST_CLAIMED);
            census.waiting += own.read(Counter::PermitWaits).min(MOST_CLAIMED);
            if now_us.saturating_sub(own.read(Counter::OldestTriedUs)) < TRIED_US {
                let since_us = own.read(Counter::OldestWaitUs);
                census.oldest_us = Some(census.oldest_us.unwrap_or(u64::MAX).min(since_us));
            }
            if phase == Phase::Running {
                census.workers = census.workers.saturating_add(parent.credits() as u64);
            }
        }
        census
    }

    /// Whether a request may take a permit that began to wait at this time. `None` stands for a new
    /// request, which has not waited.
    fn may_take(&self, since_us: Option<u64>) -> bool {
        let now_us = clock::monotonic_us();
        if let Some(since_us) = since_us {
            self.note_try(since_us, now_us);
        }
        let census = self.census(now_us);
        let is_next = match since_us {
            None => census.waiting == 0,
            Some(since_us) => {
                census.oldest_us.is_none_or(|oldest| since_us <= oldest.saturating_add(SLACK_US))
            }
        };
        is_next && census.has_free(self.cores)
    }

    /// Publishes that a request tries to take a permit, if no request of the child has waited
    /// longer. Two threads may overwrite each other's value, which the next try corrects.
    fn note_try(&self, since_us: u64, now_us: u64) {
        let is_recent = now_us.saturating_sub(self.line.read(Counter::OldestTriedUs)) < TRIED_US;
        if !is_recent || since_us <= self.line.read(Counter::OldestWaitUs) {
            self.line.set(Counter::OldestWaitUs, since_us);
            self.line.set(Counter::OldestTriedUs, now_us);
        }
    }
}

impl Census {
    /// Whether a permit is free. Half of the workers are left to requests that need none.
    fn has_free(&self, cores: u64) -> bool {
        self.working < (self.workers / 2).min(cores.saturating_mul(PER_CORE)).max(1)
    }
}

impl WorkerPermits {
    /// The permits for one worker.
    #[must_use]
    pub fn new(shared: SharedPermits) -> Self {
        Self { shared, since_us: AtomicU64::new(0) }
    }

    /// Takes a permit. A request without one waits in `queue`, and comes before new ones.
    pub fn take(&self, queue: &mut Option<PermitWait>) -> Option<SharedPermit> {
        let since_us = queue.as_ref().map(|wait| wait.since_us);
        if self.shared.may_take(since_us) {
            self.since_us.store(0, Relaxed);
            *queue = None;
            self.shared.line.add(Counter::Expensive, 1);
            return Some(SharedPermit(self.shared.line));
        }
        let wait = queue.get_or_insert_with(|| PermitWait::new(self.shared.line));
        self.since_us.store(wait.since_us, Relaxed);
        None
    }

    /// Whether a request that began to wait at this time may take a permit now.
    #[must_use]
    pub fn may_take(&self, since_us: u64) -> bool {
        self.shared.may_take(Some(since_us))
    }

    /// When the request that was polled since the last call began to wait for a permit, in
    /// microseconds of the monotonic clock. `None` if it does not wait for one.
    pub fn waits_since_us(&self) -> Option<u64> {
        Some(self.since_us.swap(0, Relaxed)).filter(|since_us| *since_us > 0)
    }
}

impl PermitWait {
    fn new(line: ChildLine) -> Self {
        line.add(Counter::PermitWaits, 1);
        Self { line, since_us: clock::monotonic_us() }
    }
}

impl Drop for SharedPermit {
    fn drop(&mut self) {
        self.0.subtract(Counter::Expensive, 1);
    }
}

impl Drop for PermitWait {
    fn drop(&mut self) {
        self.line.subtract(Counter::PermitWaits, 1);
        let waited_us = clock::monotonic_us().saturating_sub(self.since_us);
        self.line.add(Counter::QueueUs, waited_us);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::Layout;

    fn board(children: usize, credits: usize) -> (Scoreboard, Vec<WorkerPermits>) {
        let board = Scoreboard::new(Layout { children, slots_per_child: 1 }).unwrap();
        let permits = (0..children).map(|child| {
            board.assign(child, 0, 0, credits, 0);
            board.parent_line(child).unwrap().set_phase(Phase::Running);
            let line = board.child_line(child).unwrap();
            WorkerPermits::new(SharedPermits::new(board, line, 1))
        });
        (board, permits.collect())
    }

    #[test]
    fn all_children_share_the_permits_and_half_of_the_workers_are_left() {
        for (children, credits, most) in [(1, 1, 1), (3, 1, 1), (4, 1, 2), (9, 1, 4), (2, 25, 4)] {
            let (_, permits) = board(children, credits);
            let mut held: Vec<_> =
                (0..99).filter_map(|turn| permits[turn % children].take(&mut None)).collect();
            assert_eq!(held.len(), most, "{children} {credits}");
            held.pop();
            assert!(permits[0].take(&mut None).is_some());
        }
    }

    #[test]
    fn a_request_that_waits_is_not_overtaken_and_a_dead_child_returns_its_permits() {
        let (board, permits) = board(2, 1);
        let held = permits[0].take(&mut None).unwrap();
        assert!(permits[0].waits_since_us().is_none());
        let mut wait = None;
        assert!(permits[1].take(&mut wait).is_none());
        let since_us = permits[1].waits_since_us().unwrap();
        assert!(!permits[1].may_take(since_us) && permits[1].waits_since_us().is_none());
        drop(held);
        assert!(permits[0].take(&mut None).is_none());
        assert!(permits[1].may_take(since_us));
        let taken = permits[1].take(&mut wait).unwrap();
        assert!(wait.is_none() && permits[0].take(&mut None).is_none());
        std::mem::forget(taken);
        board.release(1);
        assert!(permits[0].take(&mut None).is_some());
    }

    #[test]
    fn the_longest_wait_comes_first_unless_its_worker_hangs() {
        let (_, permits) = board(2, 1);
        let shared = permits[0].shared;
        let (old_us, new_us) = (1_000_000, 1_000_001 + SLACK_US);
        let is_next = |since_us, now_us| {
            let oldest_us = shared.census(now_us).oldest_us;
            oldest_us.is_none_or(|oldest_us| since_us <= oldest_us + SLACK_US)
        };
        permits[1].shared.note_try(old_us, 9_000_000);
        shared.note_try(new_us, 9_000_000);
        assert!(is_next(old_us, 9_000_000) && !is_next(new_us, 9_000_000));
        shared.note_try(new_us, 9_000_000 + TRIED_US);
        assert!(is_next(new_us, 9_000_000 + TRIED_US));
    }
}
