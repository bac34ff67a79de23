//! Starts the serving threads of a child together, and ends them together: a thread that cannot
//! start or that panics ends the child.

use evenkeel_sys::process;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A barrier that the serving threads of a child pass once all of them are ready to serve. If one
/// fails, none serves: a child without it would leave the connections parked in its poll set
/// unserved.
pub(crate) struct StartBarrier {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// How many threads have not arrived yet.
    missing: usize,
    failure: Option<io::Error>,
}

impl StartBarrier {
    pub(crate) fn new(threads: usize) -> Self {
        let state = Mutex::new(State { missing: threads, failure: None });
        Self { state, changed: Condvar::new() }
    }

    /// Waits for the other threads. True if all of them can serve.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.arrive();
        while state.missing > 0 && state.failure.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.is_none()
    }

    /// Reports that a thread cannot serve.
    pub(crate) fn fail(&self, number: usize, error: &io::Error) {
        let limit = process::descriptor_limit(error);
        let text = format!("serving thread {number} cannot begin: {error}{limit}");
        self.arrive().failure.get_or_insert(io::Error::new(error.kind(), text));
    }

    fn arrive(&self) -> MutexGuard<'_, State> {
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

/// A guard that ends the process if its thread panics. The other threads would go on without it:
/// the connections parked with it would not be served, and if it is the first, the parent would not
/// be heard. The parent replaces a child that has died.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
