//! The counters that a child writes about itself. Its threads add and subtract; the parent and the
//! status page read. The parent treats each value as a claim, never as an index.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub(crate) const OWN_WORDS: usize = 24;

/// The counters of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Counter {
    /// Requests in progress: credits in use.
    Busy,
    /// Connections that are accepted or being accepted, without a credit in use yet.
    Reserved,
    /// Requests that wait for a credit.
    Runnable,
    /// Open connections.
    Connections,
    /// Open connections that are idle and wait for their next request.
    KeepAlive,
    /// Open connections whose response waits to be sent.
    Writing,
    /// Open connections in lingering close.
    Closing,
    /// Open connections whose request is incomplete.
    Waiting,
    /// Requests answered.
    Completions,
    /// Bytes sent as bodies.
    Bytes,
    /// The total duration of the requests, in microseconds.
    DurationUs,
    /// How long jobs were queued in the blocking pool, in microseconds.
    QueueUs,
    /// How long jobs of the blocking pool held a thread without using a core, in microseconds.
    BlockedUs,
    /// When the serving thread whose loop has been away the longest last ran, in microseconds of
    /// the monotonic clock. One thread of the child writes it for all. A child of prefork updates
    /// it between connections only.
    HeartbeatUs,
    /// 1 once the child serves.
    Ready,
    /// What the worker of the child waits for, and since when, as [`crate::ClientWait`] encodes it
    /// (prefork).
    ClientWait,
    /// Requests with a permit for expensive work (prefork and worker).
    Expensive,
    /// Requests that wait for such a permit (prefork and worker).
    PermitWaits,
    /// When the longest wait for such a permit began, among the requests whose workers try to take
    /// one, in microseconds of the monotonic clock (prefork and worker).
    OldestWaitUs,
    /// When the worker of that request last tried, by the same clock.
    OldestTriedUs,
    /// Bytes of compressed forms in the caches of the child's threads.
    CompressedFormBytes,
    /// Connections that have switched to another protocol and pass through to a server.
    Tunnels,
}

impl Counter {
    /// Every counter, in the order of the line.
    pub const ALL: [Self; 22] = [
        Self::Busy,
        Self::Reserved,
        Self::Runnable,
        Self::Connections,
        Self::KeepAlive,
        Self::Writing,
        Self::Closing,
        Self::Waiting,
        Self::Completions,
        Self::Bytes,
        Self::DurationUs,
        Self::QueueUs,
        Self::BlockedUs,
        Self::HeartbeatUs,
        Self::Ready,
        Self::ClientWait,
        Self::Expensive,
        Self::PermitWaits,
        Self::OldestWaitUs,
        Self::OldestTriedUs,
        Self::CompressedFormBytes,
        Self::Tunnels,
    ];
}

/// The line of a child. Copies can be kept wherever it is needed.
#[derive(Clone, Copy)]
pub struct ChildLine {
    words: &'static [AtomicU64; OWN_WORDS],
}

impl ChildLine {
    pub(crate) fn over(words: &'static [AtomicU64]) -> Option<Self> {
        Some(Self { words: words.try_into().ok()? })
    }

    /// Adds to a counter. Any thread of the child.
    pub fn add(&self, counter: Counter, amount: u64) {
        self.word(counter).fetch_add(amount, Relaxed);
    }

    /// Subtracts from a counter what was added before. Any thread of the child.
    pub fn subtract(&self, counter: Counter, amount: u64) {
        self.word(counter).fetch_sub(amount, Relaxed);
    }

    /// Adds or subtracts.
    pub fn change(&self, counter: Counter, amount: i64) {
        self.word(counter).fetch_add(amount.cast_unsigned(), Relaxed);
    }

    /// Sets a counter that only one thread writes.
    pub fn set(&self, counter: Counter, value: u64) {
        self.word(counter).store(value, Release);
    }

    /// Reads a counter. It is a claim of the child: never an index or a length.
    #[must_use]
    pub fn read(&self, counter: Counter) -> u64 {
        self.word(counter).load(Acquire)
    }

    /// The counter itself, for code that adds to it without knowing the scoreboard.
    #[must_use]
    pub fn cell(&self, counter: Counter) -> &'static AtomicU64 {
        self.word(counter)
    }

    pub(crate) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Relaxed));
    }

    #[cfg(test)]
    pub(crate) fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    fn word(self, counter: Counter) -> &'static AtomicU64 {
        #[expect(clippy::indexing_slicing, reason = "the enum has fewer variants than the line")]
        &self.words[counter as usize]
    }
}

const _: () = assert!(Counter::ALL.len() <= OWN_WORDS);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, Scoreboard};

    #[test]
    fn every_counter_is_its_own_word() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0).unwrap();
        for (at, counter) in Counter::ALL.into_iter().enumerate() {
            line.add(counter, at as u64 + 10);
            line.subtract(counter, 10);
            line.change(counter, -1);
            line.change(counter, 1);
        }
        for (at, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(line.read(counter), at as u64);
        }
    }
}
