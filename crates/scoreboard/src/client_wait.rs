//! What a worker waits for, and since when, in the models where a connection holds a worker. The
//! worker writes it; the listener or the parent reads it to choose the connections that it evicts
//! while others wait for a worker. The functions take times as arguments and read no clock.

use crate::child::{ChildLine, Counter};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What a worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum WaitReason {
    /// The next request on a kept connection: closing it loses nothing.
    Idle,
    /// The rest of a request.
    SlowRequest,
    /// Space in the client's receive window, from a client that has not been seen reading yet. The
    /// client's system buffers little.
    SmallWindow,
    /// The same, and the client's system may buffer much.
    LargeWindow,
    /// The same, from a client that reads, and that falls behind its least rate from the given time
    /// on.
    SlowReader,
}

/// The state of one worker that waits for its client.
pub struct ClientWait {
    /// The time of the start, times eight, plus the number of its [`WaitReason`]; 0 while the
    /// worker does not wait.
    word: AtomicU64,
    /// A wait that began at or before this time is cancelled; 0 cancels none.
    cancelled_us: AtomicU64,
    cancelled: AtomicBool,
    published: Option<ChildLine>,
}

impl ClientWait {
    /// A worker that does not wait. Its state is published in the child's line, if one is given.
    #[must_use]
    pub fn new(published: Option<ChildLine>) -> Self {
        Self {
            word: AtomicU64::new(0),
            cancelled_us: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            published,
        }
    }

    /// The worker waits from now on (microseconds of the monotonic clock), unless it does already.
    pub fn start(&self, wait: WaitReason, now_us: u64) {
        if self.word.load(Relaxed) == 0 {
            self.store(Self::word(wait, now_us));
        }
    }

    /// The client has made progress: the wait counts from `since_us`, which may be in the future
    /// (microseconds of the monotonic clock). No effect while the worker does not wait.
    pub fn postpone(&self, wait: WaitReason, since_us: u64) {
        if let Some((before, before_us)) = self.current()
            && (since_us > before_us || wait != before)
        {
            self.store(Self::word(wait, since_us.max(before_us)));
        }
    }

    const fn word(wait: WaitReason, since_us: u64) -> u64 {
        let since_us = if since_us == 0 { 1 } else { since_us };
        since_us << 3 | wait as u64
    }

    /// The client has sent or read something: the wait is over.
    pub fn stop(&self) {
        if self.word.load(Relaxed) != 0 {
            self.store(0);
        }
    }

    /// What the worker waits for and since when, in microseconds of the monotonic clock.
    #[must_use]
    pub fn current(&self) -> Option<(WaitReason, u64)> {
        Self::parse(self.word.load(Relaxed))
    }

    /// Decodes a word that was read from a child's line.
    #[must_use]
    pub fn parse(word: u64) -> Option<(WaitReason, u64)> {
        let wait = match word & 7 {
            0 => WaitReason::Idle,
            1 => WaitReason::SlowRequest,
            2 => WaitReason::SmallWindow,
            3 => WaitReason::LargeWindow,
            _ => WaitReason::SlowReader,
        };
        (word != 0).then_some((wait, word >> 3))
    }

    /// Cancels the current wait if it began at or before `since_us` (microseconds of the monotonic
    /// clock). A client that makes progress before the worker notices is waited for.
    pub fn cancel(&self, since_us: u64) {
        self.cancelled_us.store(since_us, Relaxed);
    }

    /// Whether the wait was cancelled. Once this has returned true, it does so until the reset.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let cancelled_us = self.cancelled_us.load(Relaxed);
        let is_cancelled = cancelled_us > 0
            && self.current().is_some_and(|(_, since_us)| since_us <= cancelled_us);
        if is_cancelled {
            self.cancelled.store(true, Relaxed);
        }
        is_cancelled || self.cancelled.load(Relaxed)
    }

    /// Resets the state for the next client.
    pub fn reset(&self) {
        self.stop();
        self.cancelled_us.store(0, Relaxed);
        self.cancelled.store(false, Relaxed);
    }

    fn store(&self, word: u64) {
        self.word.store(word, Relaxed);
        if let Some(line) = self.published {
            line.set(Counter::ClientWait, word);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{Layout, Scoreboard};

    #[test]
    fn a_wait_lasts_until_its_client_makes_progress_and_is_published() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0).unwrap();
        let client_wait = ClientWait::new(Some(line));
        let published = || ClientWait::parse(line.read(Counter::ClientWait));
        assert_eq!(published(), None);
        client_wait.start(WaitReason::SlowRequest, 5);
        client_wait.start(WaitReason::Idle, 7);
        assert_eq!(client_wait.current(), Some((WaitReason::SlowRequest, 5)));
        client_wait.stop();
        assert_eq!(published(), None);
        client_wait.start(WaitReason::Idle, 9);
        client_wait.cancel(9);
        assert_eq!((published(), client_wait.is_cancelled()), (Some((WaitReason::Idle, 9)), true));
        client_wait.reset();
        assert!(client_wait.current().is_none() && !client_wait.is_cancelled());
    }

    #[test]
    fn a_client_with_progress_is_waited_for_and_one_whose_wait_is_cancelled_is_not() {
        let client_wait = ClientWait::new(None);
        client_wait.postpone(WaitReason::SlowRequest, 3);
        assert_eq!(client_wait.current(), None);
        client_wait.start(WaitReason::SlowRequest, 5);
        client_wait.cancel(7);
        client_wait.postpone(WaitReason::SlowRequest, 8);
        client_wait.postpone(WaitReason::SlowRequest, 6);
        assert_eq!(
            (client_wait.current(), client_wait.is_cancelled()),
            (Some((WaitReason::SlowRequest, 8)), false)
        );
        client_wait.cancel(7);
        client_wait.stop();
        client_wait.start(WaitReason::SlowRequest, 9);
        assert!(!client_wait.is_cancelled(), "a cancellation of an earlier wait no longer holds");
        client_wait.cancel(9);
        assert!(client_wait.is_cancelled());
        client_wait.stop();
        assert!(client_wait.is_cancelled(), "it stays cancelled");
    }

    #[test]
    fn a_client_that_reads_becomes_a_slow_reader() {
        let client_wait = ClientWait::new(None);
        for wait in [
            WaitReason::Idle,
            WaitReason::SlowRequest,
            WaitReason::SmallWindow,
            WaitReason::LargeWindow,
        ] {
            client_wait.start(wait, 5);
            assert_eq!(client_wait.current(), Some((wait, 5)));
            client_wait.postpone(WaitReason::SlowReader, 4);
            assert_eq!(client_wait.current(), Some((WaitReason::SlowReader, 5)));
            client_wait.stop();
        }
    }
}
