//! A bell that threads ring for one of them that waits on descriptors: an eventfd. Rings come in,
//! a readable descriptor goes out until it is hushed; how often it rang is not told.

use crate::watch::Watch;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A bell.
#[derive(Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// A bell that has not rung. Errors are eventfd(2)'s.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Rings: the descriptor is readable until the bell is hushed.
    pub fn ring(&self) {
        // The one error is a counter that is full: it rings already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Has the runtime within which this is called watch the bell, with no descriptor of its own.
    pub fn watch(&self) -> io::Result<Watch> {
        Watch::shared(Arc::clone(&self.0))
    }

    /// Hushes it. What it rang for must be looked at afterwards, not before.
    pub fn hush(&self) {
        // It need not have rung.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
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
    fn it_rings_until_it_is_hushed() {
        let bell = Bell::new().unwrap();
        let rings = || wait_readable(&[bell.as_fd()], Some(Duration::ZERO)).unwrap()[0];
        assert!(!rings());
        bell.ring();
        bell.ring();
        assert!(rings());
        bell.hush();
        bell.hush();
        assert!(!rings());
    }
}
