//! What the processes of the server share about one pool of application processes: how many
//! requests are in progress there, which every serving child counts, and the figures that the
//! parent publishes. As on the scoreboard, everything is an atomic word that nobody trusts.

use evenkeel_sys::memory::Shared;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The words before those of the children.
const HEAD: usize = 64;

/// Serving children whose requests are counted apart. Those with larger numbers share words.
const ROWS: usize = 4096;

/// Workers that the list of a pool holds; a larger pool shows so many of its workers.
const MOST_LISTED: usize = 512;

/// The words of a worker in the list: numbers, and the name of its script.
const NUMBERS: usize = 8;
const SCRIPT_WORDS: usize = 56;
const WORKER_WORDS: usize = NUMBERS + SCRIPT_WORDS;
const SCRIPT_BYTES: usize = SCRIPT_WORDS * size_of::<u64>();

/// How often a reader tries again that meets the parent writing the list.
const TRIES: usize = 20;

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
    /// Workers in the list, and a number that is odd while the parent writes it.
    Listed,
    /// See `Listed`.
    ListSequence,
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

/// A worker of a pool, as the parent last saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolWorker {
    /// Its process.
    pub pid: u64,
    /// What it does, in Apache's letters: `S`tarting, `_` idle, `W`orking, `G` finishing.
    pub state: u8,
    /// Requests that it has ended.
    pub requests: u64,
    /// Their CPU time in microseconds.
    pub cpu_us: u64,
    /// Bytes of memory of its own.
    pub memory: u64,
    /// When its request began, in microseconds of the monotonic clock; 0 without one.
    pub began_us: u64,
    /// The script of its request.
    pub script: Vec<u8>,
}

/// The line of a pool.
pub struct ApplicationLine {
    region: Shared,
}

/// Whether a pool has a worker for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The pool has more workers than requests.
    Free,
    /// The pool has no free worker, and the parent knows that.
    Full,
    /// The pool has no free worker since this request: the parent must be woken.
    NewlyFull,
}

/// A request in progress. It ends when this is dropped.
pub struct InFlight {
    line: Arc<ApplicationLine>,
    child: usize,
}

impl ApplicationLine {
    /// A line of zeros. Errors are mmap(2)'s.
    pub fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { region: Shared::new(HEAD + ROWS + MOST_LISTED * WORKER_WORDS)? }))
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

    /// Begins a request of a child, and says whether there is a worker for it.
    #[must_use]
    pub fn begin(self: &Arc<Self>, child: usize) -> (InFlight, Room) {
        self.row(child).fetch_add(1, Ordering::Relaxed);
        self.add(Figure::Asked, 1);
        let before = self.word(Figure::InFlight).fetch_add(1, Ordering::Relaxed);
        let lacks = before >= self.read(Figure::Supply);
        let room = match lacks {
            false => Room::Free,
            true if self.word(Figure::IsPoked).swap(1, Ordering::Relaxed) == 0 => Room::NewlyFull,
            true => Room::Full,
        };
        (InFlight { line: Arc::clone(self), child }, room)
    }

    /// Ends the requests that a dead child has left.
    pub fn forget_child(&self, child: usize) {
        self.end(self.row(child).swap(0, Ordering::Relaxed));
    }

    /// The words of the list's workers, in order.
    fn list(&self) -> impl Iterator<Item = (&[AtomicU64], &[AtomicU64])> {
        let list = self.region.words().get(HEAD + ROWS..).unwrap_or_default();
        list.chunks_exact(WORKER_WORDS).filter_map(|worker| worker.split_at_checked(NUMBERS))
    }

    /// Publishes the workers of the pool in place of those published before. The parent alone does.
    pub fn publish_workers(&self, workers: impl Iterator<Item = PoolWorker>) {
        self.add(Figure::ListSequence, 1);
        fence(Ordering::Release);
        let mut count = 0;
        for ((numbers, script), worker) in self.list().zip(workers) {
            let bytes = worker.script.get(..SCRIPT_BYTES).unwrap_or(&worker.script);
            let values = [
                worker.pid,
                worker.state.into(),
                worker.requests,
                worker.cpu_us,
                worker.memory,
                worker.began_us,
                bytes.len() as u64,
            ];
            for (word, value) in numbers.iter().zip(values) {
                word.store(value, Ordering::Relaxed);
            }
            for (word, part) in script.iter().zip(bytes.chunks(size_of::<u64>())) {
                let mut whole = [0; size_of::<u64>()];
                whole.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
                word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
            }
            count += 1;
        }
        self.set(Figure::Listed, count);
        self.word(Figure::ListSequence).fetch_add(1, Ordering::Release);
    }

    /// The workers that were published last, at most 512. A parent that dies while it writes leaves
    /// a list that may mix old and new.
    #[must_use]
    pub fn workers(&self) -> Vec<PoolWorker> {
        let retry = |_| {
            std::thread::yield_now();
            self.steady_workers()
        };
        let first = self.steady_workers();
        first.or_else(|| (0..TRIES).find_map(retry)).unwrap_or_else(|| self.read_workers())
    }

    /// The list, unless the parent writes it meanwhile.
    fn steady_workers(&self) -> Option<Vec<PoolWorker>> {
        let before = self.word(Figure::ListSequence).load(Ordering::Acquire);
        let workers = self.read_workers();
        fence(Ordering::Acquire);
        let is_steady = before.is_multiple_of(2) && before == self.read(Figure::ListSequence);
        is_steady.then_some(workers)
    }

    fn read_workers(&self) -> Vec<PoolWorker> {
        let count = usize::try_from(self.read(Figure::Listed)).unwrap_or(MOST_LISTED);
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let read = |(numbers, script): (&[AtomicU64], &[AtomicU64])| {
            let mut values = numbers.iter().map(load);
            let mut next = || values.next().unwrap_or_default();
            let mut worker = PoolWorker {
                pid: next(),
                state: u8::try_from(next()).unwrap_or(b'.'),
                requests: next(),
                cpu_us: next(),
                memory: next(),
                began_us: next(),
                script: Vec::new(),
            };
            let length = usize::try_from(next()).unwrap_or(0).min(SCRIPT_BYTES);
            let used = script.iter().take(length.div_ceil(size_of::<u64>()));
            worker.script.extend(used.flat_map(|word| load(word).to_le_bytes()));
            worker.script.truncate(length);
            worker
        };
        self.list().take(count).map(read).collect()
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
        let (first, room) = line.begin(1);
        assert_eq!(room, Room::Free);
        let (_second, room) = line.begin(2);
        assert_eq!(room, Room::Free);
        let (third, room) = line.begin(2);
        assert_eq!(room, Room::NewlyFull, "the third request has no worker");
        assert_eq!(line.begin(3).1, Room::Full, "once is enough until the parent has looked");
        assert_eq!(line.read(Figure::InFlight), 3);
        drop(first);
        line.forget_child(2);
        assert_eq!(line.read(Figure::InFlight), 0);
        drop(third);
        assert_eq!((line.read(Figure::InFlight), line.read(Figure::Asked)), (0, 4));
    }

    #[test]
    fn workers_are_listed_as_they_were_published_last() {
        let line = ApplicationLine::new().unwrap();
        assert_eq!(line.workers(), []);
        let worker = |pid: usize| PoolWorker {
            pid: pid as u64,
            state: b'W',
            requests: 3,
            cpu_us: 4,
            memory: 5,
            began_us: 6,
            script: vec![b'x'; pid],
        };
        // A list may hold fewer workers than there are, and less than the name of a script.
        line.publish_workers((1..MOST_LISTED + 2).map(worker));
        let workers = line.workers();
        assert_eq!(workers.len(), MOST_LISTED);
        assert_eq!(workers.get(9), Some(&worker(10)));
        assert_eq!(workers.last().unwrap().script.len(), SCRIPT_BYTES);
        line.publish_workers([worker(2)].into_iter());
        assert_eq!(line.workers(), [worker(2)]);
    }

    #[test]
    fn a_reader_never_sees_a_list_that_is_half_written() {
        let line = ApplicationLine::new().unwrap();
        let worker = |number: u64| PoolWorker {
            pid: number,
            requests: number,
            script: number.to_le_bytes().to_vec(),
            ..PoolWorker::default()
        };
        std::thread::scope(|scope| {
            let (writer, reader) = (Arc::clone(&line), Arc::clone(&line));
            scope.spawn(move || {
                for number in 1..=20_000 {
                    writer.publish_workers((0..2).map(|_| worker(number)));
                }
            });
            let mut last = 0;
            while last < 20_000 {
                let Some(workers) = reader.steady_workers() else { continue };
                last = workers.first().map_or(0, |worker| worker.pid);
                let is_whole = |one: &PoolWorker| *one == worker(last);
                assert!(workers.iter().all(is_whole), "{workers:?}");
            }
        });
    }
}
