//! The queue between a reader of logs and the clients that replay them. Its bytes are bounded: the
//! reader waits for room, and the clients never wait.

use crate::load::Request;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The interval at which a thread that waits for the first entry checks whether to continue
/// waiting.
const GLANCE: Duration = Duration::from_millis(50);

/// A request to send, and what the log says about it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) request: Arc<Request>,
    pub(super) place: Place,
    /// The status in the log.
    pub(super) status: Option<u16>,
    /// The size in the log.
    pub(super) size: Option<u64>,
    /// When it is due, in nanoseconds from the beginning of the run, if the log's times are used.
    pub(super) due_ns: Option<u64>,
}

/// A line of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The number of the file.
    pub(super) file: usize,
    /// The number of the line, from 1.
    pub(super) line: u64,
}

impl Entry {
    /// The approximate memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        const BESIDE: usize = 256;
        self.request.bytes.len() + BESIDE
    }
}

/// What a client finds in the queue.
#[derive(Debug)]
pub(super) enum Found {
    Entry(Box<Entry>),
    /// The reader has nothing yet.
    Nothing,
    /// There are no more entries.
    End,
}

/// The queue.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    most_bytes: usize,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Box<Entry>>,
    bytes: usize,
    /// Whether the reader is done.
    ended: bool,
    /// Whether no client takes entries any more.
    left: bool,
    reader_waits: bool,
}

impl Queue {
    /// A queue of at most about `most_bytes` bytes.
    pub(super) fn new(most_bytes: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), most_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry when there is room. Returns whether clients still take entries.
    pub(super) fn put(&self, entry: Entry) -> bool {
        let mut state = self.lock();
        while state.bytes >= self.most_bytes && !state.left {
            state.reader_waits = true;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.reader_waits = false;
        state.bytes += entry.bytes();
        state.entries.push_back(Box::new(entry));
        if state.entries.len() == 1 {
            self.changed.notify_all();
        }
        !state.left
    }

    /// Takes the next entry.
    pub(super) fn take(&self) -> Found {
        let mut state = self.lock();
        let Some(entry) = state.entries.pop_front() else {
            return if state.ended { Found::End } else { Found::Nothing };
        };
        state.bytes = state.bytes.saturating_sub(entry.bytes());
        // Waking the reader for each entry would cost more than reading it.
        if state.reader_waits && state.bytes <= self.most_bytes / 2 {
            self.changed.notify_all();
        }
        Found::Entry(entry)
    }

    /// Records that there are no more entries.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Records that no client takes entries any more.
    pub(super) fn leave(&self) {
        self.lock().left = true;
        self.changed.notify_all();
    }

    /// Waits until there is an entry, or never will be. `is_over` is called now and then; if it
    /// returns true, the waiting ends and this returns false.
    pub(super) fn wait_for_first(&self, is_over: &dyn Fn() -> bool) -> bool {
        let mut state = self.lock();
        while state.entries.is_empty() && !state.ended {
            if is_over() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, GLANCE);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: u64) -> Entry {
        let (request, place) = (Arc::default(), Place { file: 0, line });
        Entry { request, place, status: None, size: None, due_ns: None }
    }

    #[test]
    fn a_reader_waits_for_room_and_clients_for_nothing() {
        let queue = Arc::new(Queue::new(4 * entry(0).bytes()));
        assert!(matches!(queue.take(), Found::Nothing));
        assert!(!queue.wait_for_first(&|| true));
        let reader = Arc::clone(&queue);
        let reading = std::thread::spawn(move || {
            let put = (0..100).take_while(|line| reader.put(entry(*line))).count();
            reader.end();
            put
        });
        let mut lines = Vec::new();
        loop {
            match queue.take() {
                Found::Entry(entry) => lines.push(entry.place.line),
                Found::Nothing => assert!(queue.wait_for_first(&|| false)),
                Found::End => break,
            }
            assert!(queue.lock().entries.len() <= 4);
        }
        assert_eq!((reading.join().unwrap(), lines), (100, (0..100).collect()));
    }

    #[test]
    fn a_reader_goes_when_its_clients_have_gone() {
        let queue = Arc::new(Queue::new(1));
        assert!(queue.put(entry(0)));
        let reader = Arc::clone(&queue);
        let reading = std::thread::spawn(move || reader.put(entry(1)));
        queue.leave();
        assert!(!reading.join().unwrap());
    }
}
