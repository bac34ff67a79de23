//! The runtime that the workers of a child share. A request that waits is polled by its own worker,
//! and the driver thread handles sockets and timers. So a worker that is blocked by a file system
//! blocks no other, and a worker needs no descriptors for a runtime.

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
    /// Starts the runtime and its thread.
    ///
    /// # Errors
    /// The system's, if it denies descriptors or a thread.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("driver".into()).spawn(move || {
            let _abort = AbortOnPanic;
            // Both a message and a dropped sender mean the end.
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
            // A panic of the thread has ended the process already.
            let _ = thread.join();
        }
    }
}
