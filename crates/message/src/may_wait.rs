//! The right of a request to wait. Whatever waits for a client, a resolver, a thread or an
//! application asks for it, so that no phase can wait without having been prepared for that.

/// Proof that a request may wait: its notices are in the error log, and a task polls what follows.
/// Before that a serving thread of prefork or worker may have no runtime, in which a timer or a
/// socket panics. `Pipeline::before_wait` makes one.
#[derive(Debug)]
pub struct MayWait(());

impl MayWait {
    /// The right to wait, for code that runs in a task of a runtime: the pipeline after it has
    /// written the notices of the request, and tests.
    #[must_use]
    pub fn in_task() -> Self {
        Self(())
    }
}
