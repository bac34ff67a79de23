//! Permission to wait. Every function that waits for a client, a resolver, a thread or an
//! application takes a [`MayWait`], so that a phase cannot wait before its request is prepared for
//! that.

/// Proof that a request may wait: its notices are in the error log, and a task polls what follows.
/// Without that, a serving thread of prefork or worker may have no runtime, and a timer or a socket
/// panics. `Pipeline::before_wait` returns one.
#[must_use = "a function that waits takes it"]
#[derive(Debug)]
pub struct MayWait(());

impl MayWait {
    /// For code that runs in a task of a runtime: the pipeline, after it has written the notices of
    /// the request, and tests.
    pub fn in_task() -> Self {
        Self(())
    }
}
