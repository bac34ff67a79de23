//! Coordinates writing to the logs among all threads of all children. The kernel lets one thread at
//! a time write to a file, and a thread that waits there makes its clients wait: if hundreds of
//! threads share few cores, each waiting thread gets the file only a whole round of them later. A
//! thread that does not get its turn keeps its lines for a while instead.

use evenkeel_sys::memory::Shared;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A turn is over after this time, whatever has become of its process.
const LONGEST_US: u64 = 1_000_000;

/// The turns of all logs.
pub(crate) struct Turns {
    /// Since when each log is being written to, in microseconds of the monotonic clock; 0 if it is
    /// not.
    since_us: Shared,
    pub(crate) longest_us: u64,
}

/// The right to write to one log, until it is dropped.
pub(crate) struct Turn<'a> {
    since_us: &'a AtomicU64,
    taken_us: u64,
}

impl Turns {
    /// The turns of `logs` logs, shared with children that are forked later.
    ///
    /// # Errors
    ///
    /// Those of mmap(2).
    pub(crate) fn new(logs: usize) -> io::Result<Self> {
        Ok(Self { since_us: Shared::new(logs.max(1))?, longest_us: LONGEST_US })
    }

    /// The right to write to a log; none while another thread has it.
    pub(crate) fn take(&self, log: usize, now_us: u64) -> Option<Turn<'_>> {
        let since_us = self.since_us.words().get(log)?;
        let before_us = since_us.load(Relaxed);
        // A time in the future is invalid and ignored.
        if before_us > 0 && before_us.abs_diff(now_us) < self.longest_us {
            return None;
        }
        let taken_us = now_us.max(1);
        since_us.compare_exchange(before_us, taken_us, Acquire, Relaxed).ok()?;
        Some(Turn { since_us, taken_us })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // If this turn has lasted too long, another thread may have it by now.
        let _over = self.since_us.compare_exchange(self.taken_us, 0, Release, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_the_turn_of_a_log() {
        let turns = Turns::new(2).unwrap();
        let first = turns.take(0, 7).unwrap();
        assert!(turns.take(0, 7).is_none() && turns.take(1, 7).is_some());
        drop(first);
        assert!(turns.take(0, 8).is_some() && turns.take(2, 8).is_none());
    }

    #[test]
    fn a_turn_that_lasts_too_long_is_over_and_ends_no_other() {
        let turns = Turns::new(1).unwrap();
        let dead = turns.take(0, 5).unwrap();
        assert!(turns.take(0, 5 + LONGEST_US - 1).is_none());
        let next = turns.take(0, 5 + LONGEST_US).unwrap();
        drop(dead);
        assert!(turns.take(0, 6 + LONGEST_US).is_none());
        drop(next);
        turns.since_us.words()[0].store(u64::MAX, Relaxed);
        assert!(turns.take(0, 9).is_some(), "nobody has it from the future on");
    }
}
