//! Where the serving threads of a child begin together and end together: one that cannot begin, or
//! that comes to grief, takes the others with it. Nothing here serves.

use evenkeel_sys::process;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Where the serving threads of a child meet before they begin: all serve, or none does. A
/// child that lacked one would leave unserved what rests in its set.
pub(crate) struct Muster {
    state: Mutex<Mustered>,
    changed: Condvar,
}

struct Mustered {
    /// How many have not come yet.
    missing: usize,
    failure: Option<io::Error>,
}

impl Muster {
    pub(crate) fn new(threads: usize) -> Self {
        let state = Mutex::new(Mustered { missing: threads, failure: None });
        Self { state, changed: Condvar::new() }
    }

    /// Waits for the others; whether all can serve.
    pub(crate) fn meet(&self) -> bool {
        let mut state = self.come();
        while state.missing > 0 && state.failure.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.is_none()
    }

    /// Tells that a thread cannot serve.
    pub(crate) fn fail(&self, number: usize, error: &io::Error) {
        let limit = process::descriptor_limit(error);
        let text = format!("serving thread {number} cannot begin: {error}{limit}");
        self.come().failure.get_or_insert(io::Error::new(error.kind(), text));
    }

    fn come(&self) -> MutexGuard<'_, Mustered> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.missing = state.missing.saturating_sub(1);
        self.changed.notify_all();
        state
    }

    pub(crate) fn result(self) -> io::Result<()> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.failure.map_or(Ok(()), Err)
    }
}

/// Ends the process where its thread unwinds. The others would go on without it, and nobody
/// would serve what rests with it nor, for the first, hear the parent: the parent replaces a
/// child that is dead.
pub(crate) struct Whole;

impl Drop for Whole {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
