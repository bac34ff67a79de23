//! What the processes of the server share about one pool of application processes: how many
//! requests are in progress there, which every serving child counts, and the figures that the
//! parent publishes. As on the scoreboard, everything is an atomic word that nobody trusts.

use evenkeel_sys::memory::Shared;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The words before those of the children.
const HEAD: usize = 64;

/// Serving children whose requests are counted apart. Those with larger numbers share words.
const ROWS: usize = 4096;

/// A figure of a pool. The parent writes those above `InFlight`, serving children the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Figure {
    /// Workers that exist or start.
    Supply,
    /// Workers that work on a request.
    Busy,
    /// The most workers that there may be.
    Most,
    /// Requests that wait for a worker.
    Queue,
    /// Requests that workers have ended.
    Requests,
    /// CPU time of these requests in microseconds.
    CpuUs,
    /// Their time ready to run without a core.
    ReadyUs,
    /// Their time waiting for anything else.
    WaitUs,
    /// Workers that have died in a request.
    Deaths,
    /// Bytes of memory of all workers.
    Memory,
    /// The process of the zygote; 0 without one.
    Zygote,
    /// Until when requests are refused at once, in microseconds of the monotonic clock.
    DownUntilUs,
    /// CPU time of a request in microseconds, on average over the last seconds.
    EachCpuUs,
    /// Its time ready to run without a core, likewise.
    EachReadyUs,
    /// Its time waiting for anything else, likewise.
    EachWaitUs,
    /// Whether the limit of workers is the memory.
    IsMemoryBound,
    /// Requests in progress, in the queue or at a worker.
    InFlight,
    /// Whether the parent was woken since it last looked.
    IsPoked,
    /// Requests that were asked.
    Asked,
    /// Requests that have failed.
    Failed,
    /// Time in the queue of all answered requests in microseconds.
    LineUs,
}

/// The line of a pool.
pub struct ApplicationLine {
    region: Shared,
}

/// A request in progress. It ends when this is dropped.
pub struct InFlight {
    line: Arc<ApplicationLine>,
    child: usize,
}

impl ApplicationLine {
    /// A line of zeros. Errors are mmap(2)'s.
    pub fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { region: Shared::new(HEAD + ROWS)? }))
    }

    #[expect(clippy::indexing_slicing, reason = "the region has more words than there are figures")]
    fn word(&self, figure: Figure) -> &AtomicU64 {
        &self.region.words()[figure as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "the remainder is below the number of rows")]
    fn row(&self, child: usize) -> &AtomicU64 {
        &self.region.words()[HEAD + child % ROWS]
    }

    /// Reads a figure.
    #[must_use]
    pub fn read(&self, figure: Figure) -> u64 {
        self.word(figure).load(Ordering::Relaxed)
    }

    /// Sets a figure.
    pub fn set(&self, figure: Figure, value: u64) {
        self.word(figure).store(value, Ordering::Relaxed);
    }

    /// Adds to a figure.
    pub fn add(&self, figure: Figure, value: u64) {
        self.word(figure).fetch_add(value, Ordering::Relaxed);
    }

    /// Begins a request of a child. The second value is whether the parent is to be woken because
    /// there are fewer workers than requests.
    #[must_use]
    pub fn begin(self: &Arc<Self>, child: usize) -> (InFlight, bool) {
        self.row(child).fetch_add(1, Ordering::Relaxed);
        self.add(Figure::Asked, 1);
        let before = self.word(Figure::InFlight).fetch_add(1, Ordering::Relaxed);
        let lacks = before >= self.read(Figure::Supply);
        let pokes = lacks && self.word(Figure::IsPoked).swap(1, Ordering::Relaxed) == 0;
        (InFlight { line: Arc::clone(self), child }, pokes)
    }

    /// Ends the requests that a dead child has left.
    pub fn forget_child(&self, child: usize) {
        self.end(self.row(child).swap(0, Ordering::Relaxed));
    }

    fn end(&self, count: u64) {
        let less = |value: u64| Some(value.saturating_sub(count));
        let word = self.word(Figure::InFlight);
        let _changed = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let less = |value: u64| value.checked_sub(1);
        let row = self.line.row(self.child);
        // Nothing is left to end if the parent has taken this child for dead.
        if row.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            self.line.end(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_progress_are_counted_and_those_of_a_dead_child_forgotten() {
        let line = ApplicationLine::new().unwrap();
        line.set(Figure::Supply, 2);
        let (first, pokes) = line.begin(1);
        assert!(!pokes);
        let (_second, pokes) = line.begin(2);
        assert!(!pokes);
        let (third, pokes) = line.begin(2);
        assert!(pokes, "the third request has no worker");
        assert!(!line.begin(3).1, "once is enough until the parent has looked");
        assert_eq!(line.read(Figure::InFlight), 3);
        drop(first);
        line.forget_child(2);
        assert_eq!(line.read(Figure::InFlight), 0);
        drop(third);
        assert_eq!((line.read(Figure::InFlight), line.read(Figure::Asked)), (0, 4));
    }
}
