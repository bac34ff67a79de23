//! The runtime that the workers of a child share: requests that wait do so in it, each polled by
//! its own worker. A thread of its own looks at sockets and timers, so that a worker which a file
//! system holds up holds no other, and a worker needs no descriptors for a runtime.

use crate::start_barrier::AbortOnPanic;
use std::io;
use std::thread::JoinHandle;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot::{self, Sender};

/// The runtime and its thread, which ends when this is dropped.
pub(super) struct Driver {
    handle: Handle,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts it.
    ///
    /// # Errors
    /// The system's, where it denies descriptors or a thread.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("driver".into()).spawn(move || {
            let _abort = AbortOnPanic;
            // Whether it is told or its teller is gone, it is the end.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Self { handle, end: Some(end), thread: Some(thread) })
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has ended the process.
            let _ = thread.join();
        }
    }
}
