//! A worker's vigil over its client, where a connection holds a worker: since when the worker waits
//! for it, and whether that is to end because others wait for the worker. The worker alone writes
//! it; who has to choose among workers reads it. It reads no clock.

use crate::child::{ChildLine, Counter};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What a worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Wait {
    /// The next request on a connection that is kept alive: nothing is lost by its end.
    Idle,
    /// More of a request.
    Slow,
    /// Room for more of a response, from a client that has not shown yet that it reads: its system
    /// takes little at a time.
    Shut,
    /// The same, and its system may keep much for it.
    Full,
    /// The same, from a client that reads: it is waited for from when it falls behind.
    Behind,
}

/// The vigil of one worker.
pub struct Vigil {
    /// Eight times the time when it began, and the number of its [`Wait`]; 0 while there is none.
    word: AtomicU64,
    /// Who was waited for at this time already is to be waited for no longer; 0 is nobody.
    over_us: AtomicU64,
    off: AtomicBool,
    published: Option<ChildLine>,
}

impl Vigil {
    /// A vigil that has not begun; it is published in the child's line where one is given.
    #[must_use]
    pub fn new(published: Option<ChildLine>) -> Self {
        Self {
            word: AtomicU64::new(0),
            over_us: AtomicU64::new(0),
            off: AtomicBool::new(false),
            published,
        }
    }

    /// The worker waits from now on (microseconds of the monotonic clock), unless it did already.
    pub fn begin(&self, wait: Wait, now_us: u64) {
        if self.word.load(Relaxed) == 0 {
            self.store(Self::word(wait, now_us));
        }
    }

    /// The client has moved, and keeps the worker waiting for this only since then, which may be a
    /// time to come (microseconds of the monotonic clock). Nothing while the worker does not wait.
    pub fn put_off(&self, wait: Wait, since_us: u64) {
        if let Some((before, before_us)) = self.waiting()
            && (since_us > before_us || wait != before)
        {
            self.store(Self::word(wait, since_us.max(before_us)));
        }
    }

    const fn word(wait: Wait, since_us: u64) -> u64 {
        let since_us = if since_us == 0 { 1 } else { since_us };
        since_us << 3 | wait as u64
    }

    /// The client has stirred.
    pub fn end(&self) {
        if self.word.load(Relaxed) != 0 {
            self.store(0);
        }
    }

    /// What the worker waits for and since when, in microseconds of the monotonic clock.
    #[must_use]
    pub fn waiting(&self) -> Option<(Wait, u64)> {
        Self::parse(self.word.load(Relaxed))
    }

    /// The same of a word that was read in a child's line.
    #[must_use]
    pub fn parse(word: u64) -> Option<(Wait, u64)> {
        let wait = match word & 7 {
            0 => Wait::Idle,
            1 => Wait::Slow,
            2 => Wait::Shut,
            3 => Wait::Full,
            _ => Wait::Behind,
        };
        (word != 0).then_some((wait, word >> 3))
    }

    /// Who waits for this client is to wait no longer, if it did by that time already (microseconds
    /// of the monotonic clock): one that moves before that is noticed is waited for.
    pub fn call_off(&self, since_us: u64) {
        self.over_us.store(since_us, Relaxed);
    }

    /// Whether it was called off. Once this was said, it stays so for this client.
    #[must_use]
    pub fn is_off(&self) -> bool {
        let over_us = self.over_us.load(Relaxed);
        let is_over =
            over_us > 0 && self.waiting().is_some_and(|(_, since_us)| since_us <= over_us);
        if is_over {
            self.off.store(true, Relaxed);
        }
        is_over || self.off.load(Relaxed)
    }

    /// Forgets the client.
    pub fn reset(&self) {
        self.end();
        self.over_us.store(0, Relaxed);
        self.off.store(false, Relaxed);
    }

    fn store(&self, word: u64) {
        self.word.store(word, Relaxed);
        if let Some(line) = self.published {
            line.set(Counter::Vigil, word);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{Layout, Scoreboard};

    #[test]
    fn a_vigil_lasts_until_its_client_stirs_and_is_published() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0).unwrap();
        let vigil = Vigil::new(Some(line));
        let published = || Vigil::parse(line.read(Counter::Vigil));
        assert_eq!(published(), None);
        vigil.begin(Wait::Slow, 5);
        vigil.begin(Wait::Idle, 7);
        assert_eq!(vigil.waiting(), Some((Wait::Slow, 5)));
        vigil.end();
        assert_eq!(published(), None);
        vigil.begin(Wait::Idle, 9);
        vigil.call_off(9);
        assert_eq!((published(), vigil.is_off()), (Some((Wait::Idle, 9)), true));
        vigil.reset();
        assert!(vigil.waiting().is_none() && !vigil.is_off());
    }

    #[test]
    fn a_client_that_has_moved_is_waited_for_and_one_that_was_given_up_is_not() {
        let vigil = Vigil::new(None);
        vigil.put_off(Wait::Slow, 3);
        assert_eq!(vigil.waiting(), None);
        vigil.begin(Wait::Slow, 5);
        vigil.call_off(7);
        vigil.put_off(Wait::Slow, 8);
        vigil.put_off(Wait::Slow, 6);
        assert_eq!((vigil.waiting(), vigil.is_off()), (Some((Wait::Slow, 8)), false));
        vigil.call_off(7);
        vigil.end();
        vigil.begin(Wait::Slow, 9);
        assert!(!vigil.is_off(), "what was said of an earlier wait holds no more");
        vigil.call_off(9);
        assert!(vigil.is_off());
        vigil.end();
        assert!(vigil.is_off(), "it was told so");
    }

    #[test]
    fn a_client_that_shows_that_it_reads_is_waited_for_as_one() {
        let vigil = Vigil::new(None);
        for wait in [Wait::Idle, Wait::Slow, Wait::Shut, Wait::Full] {
            vigil.begin(wait, 5);
            assert_eq!(vigil.waiting(), Some((wait, 5)));
            vigil.put_off(Wait::Behind, 4);
            assert_eq!(vigil.waiting(), Some((Wait::Behind, 5)));
            vigil.end();
        }
    }
}
