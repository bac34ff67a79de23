//! A worker's vigil over its client, where a connection holds a worker: since when the worker waits
//! for it, and whether that is to end because others wait for the worker. The worker alone writes
//! it; who has to choose among workers reads it. It reads no clock.

use crate::child::{ChildLine, Counter};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What a worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// The next request on a connection that is kept alive: nothing is lost by its end.
    Idle,
    /// More of a request, or room for more of a response.
    Slow,
}

/// The vigil of one worker.
pub struct Vigil {
    /// Twice the time when it began, and one more for [`Wait::Slow`]; 0 while there is none.
    word: AtomicU64,
    over: AtomicBool,
    published: Option<ChildLine>,
}

impl Vigil {
    /// A vigil that has not begun; it is published in the child's line where one is given.
    #[must_use]
    pub fn new(published: Option<ChildLine>) -> Self {
        Self { word: AtomicU64::new(0), over: AtomicBool::new(false), published }
    }

    /// The worker waits from now on (microseconds of the monotonic clock), unless it did already.
    pub fn begin(&self, wait: Wait, now_us: u64) {
        if self.word.load(Relaxed) == 0 {
            self.store(now_us.max(1) << 1 | u64::from(wait == Wait::Slow));
        }
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
        let wait = if word & 1 == 0 { Wait::Idle } else { Wait::Slow };
        (word != 0).then_some((wait, word >> 1))
    }

    /// Who waits for this client is to wait no longer.
    pub fn call_off(&self) {
        self.over.store(true, Relaxed);
    }

    /// Whether it was called off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Forgets the client.
    pub fn reset(&self) {
        self.end();
        self.over.store(false, Relaxed);
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
        vigil.call_off();
        assert_eq!((published(), vigil.is_off()), (Some((Wait::Idle, 9)), true));
        vigil.reset();
        assert!(vigil.waiting().is_none() && !vigil.is_off());
    }
}
