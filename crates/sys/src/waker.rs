//! Wakes a thread that waits on descriptors: an eventfd, as in mio's `Waker`. Any thread may call
//! `wake`; the descriptor is readable until the waiting thread calls `reset`.

use crate::watch::Watch;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// An eventfd that wakes the thread which waits on it.
#[derive(Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker that has not been used. Errors are eventfd(2)'s.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes the descriptor readable until [`Waker::reset`]. Calls before that count once.
    pub fn wake(&self) {
        // The only error is a full counter, and then the descriptor is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Has the current runtime watch this descriptor itself, without a duplicate.
    pub fn watch(&self) -> io::Result<Watch> {
        Watch::shared(Arc::clone(&self.0))
    }

    /// Makes the descriptor unreadable again. The caller looks for work after this call: looking
    /// before it would miss a wake-up in between.
    pub fn reset(&self) {
        // An error means that the waker was not used.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::wait_readable;
    use std::time::Duration;

    #[test]
    fn it_is_readable_until_it_is_reset() {
        let waker = Waker::new().unwrap();
        let is_awake = || wait_readable(&[waker.as_fd()], Some(Duration::ZERO)).unwrap()[0];
        assert!(!is_awake());
        waker.wake();
        waker.wake();
        assert!(is_awake());
        waker.reset();
        waker.reset();
        assert!(!is_awake());
    }
}
