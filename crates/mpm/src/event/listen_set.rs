//! The listening sockets as one serving thread of the event model sees them: it watches them, asks
//! for the next one on which a connection waits, and accepts. When the process runs out of
//! descriptors, accepting pauses for a moment.

use super::context::{ahead_ms, now_ms};
use evenkeel_sys::socket::{self, Socket};
use evenkeel_sys::watch::Watch;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};

/// How long accepting pauses when descriptors run out.
const PAUSE_MS: u32 = 100;

/// The listening sockets of a child.
pub(super) struct ListenSet {
    sockets: Vec<ListenSocket>,
    /// The socket to check first next time.
    next: usize,
    paused_until_ms: Option<u32>,
    /// How many descriptors the process may have.
    descriptors: usize,
    /// Descriptors from this number on are kept for files, logs and the status page.
    reserved_from: usize,
}

struct ListenSocket {
    socket: Arc<OwnedFd>,
    watch: Option<Watch>,
    /// How many connections were waiting at the last check, less those accepted since.
    expected: u32,
}

/// How many descriptors are reserved for other uses than connections.
const RESERVE: u64 = 32;

/// How many of the process's descriptors are reserved for other uses than connections.
pub(crate) fn reserve(descriptors: u64) -> u64 {
    RESERVE.min(descriptors / 4)
}

/// The result of accepting.
pub(super) enum Accepted {
    Connection(Socket, SocketAddr),
    /// The same, and few descriptors are left: accepting pauses.
    Last(Socket, SocketAddr),
    /// Another thread was faster, or the client has gone.
    Nothing,
    /// The system is out of descriptors or memory.
    Denied(io::Error),
}

impl ListenSet {
    pub(super) fn new(sockets: Vec<Arc<OwnedFd>>, descriptors: usize) -> Self {
        let listener = |socket| ListenSocket { socket, watch: None, expected: 0 };
        Self {
            sockets: sockets.into_iter().map(listener).collect(),
            next: 0,
            paused_until_ms: None,
            descriptors,
            reserved_from: descriptors.saturating_sub(reserve(descriptors as u64) as usize),
        }
    }

    /// Starts watching. Connections that wait already are reported at once.
    pub(super) fn watch(&mut self) -> io::Result<()> {
        for listener in &mut self.sockets {
            if listener.watch.is_none() {
                listener.watch = Some(Watch::new(&listener.socket)?);
                listener.expected = 0;
            }
        }
        Ok(())
    }

    /// Stops watching, and leaves the connections to other children.
    pub(super) fn unwatch(&mut self) {
        for listener in &mut self.sockets {
            listener.watch = None;
        }
    }

    /// Closes the sockets in this thread.
    pub(super) fn close(&mut self) {
        self.sockets.clear();
    }

    /// How many descriptors the process may have.
    pub(super) fn descriptors(&self) -> usize {
        self.descriptors
    }

    /// When accepting resumes, while it is paused.
    pub(super) fn paused_until_ms(&self) -> Option<u32> {
        self.paused_until_ms
    }

    /// The next socket on which a connection waits. If there is none, the task is woken once there
    /// is.
    pub(super) fn ready(&mut self, context: &mut Context<'_>) -> Option<usize> {
        if let Some(until) = self.paused_until_ms {
            if ahead_ms(now_ms(), until) > 0 {
                return None;
            }
            self.paused_until_ms = None;
        }
        let count = self.sockets.len();
        for step in 0..count {
            let index = (self.next + step) % count;
            if self.sockets.get_mut(index)?.is_ready(context) {
                return Some(index);
            }
        }
        None
    }

    /// How many connections wait to be accepted.
    pub(super) fn queue(&self) -> usize {
        let length = |listener: &ListenSocket| {
            socket::accept_queue(listener.socket.as_fd()).map_or(0, |it| it.length)
        };
        self.sockets.iter().map(length).fold(0, |sum, one| sum.saturating_add(one as usize))
    }

    /// Accepts a connection from a socket that is ready.
    pub(super) fn accept(&mut self, index: usize) -> Accepted {
        self.next = index + 1;
        let Some(listener) = self.sockets.get_mut(index) else { return Accepted::Nothing };
        match socket::accept(&listener.socket) {
            Ok((socket, client)) => {
                listener.expected = listener.expected.saturating_sub(1);
                // The kernel assigns the lowest free number, so the number shows how many are in
                // use.
                let number = usize::try_from(socket.as_raw_fd()).unwrap_or(0);
                if number < self.reserved_from {
                    return Accepted::Connection(socket, client);
                }
                self.pause();
                Accepted::Last(socket, client)
            }
            Err(error) if socket::is_shortage(&error) => {
                self.pause();
                Accepted::Denied(error)
            }
            // WouldBlock: other threads have accepted all. Other errors belong to a connection that
            // broke while it waited (accept(2), "Error handling").
            Err(_) => {
                listener.expected = 0;
                Accepted::Nothing
            }
        }
    }

    /// Stops accepting for a moment, in which descriptors may become free.
    pub(super) fn pause(&mut self) {
        self.paused_until_ms = Some(now_ms().wrapping_add(PAUSE_MS));
    }
}

impl ListenSocket {
    /// Whether a connection waits. Reading the queue's length costs a tenth of a failing accept.
    fn is_ready(&mut self, context: &mut Context<'_>) -> bool {
        if self.expected > 0 {
            return self.watch.is_some();
        }
        let Some(watch) = &self.watch else { return false };
        while let Poll::Ready(Ok(mut guard)) = watch.poll_readable(context) {
            self.expected =
                socket::accept_queue(self.socket.as_fd()).map_or(1, |queue| queue.length);
            if self.expected > 0 {
                return true;
            }
            guard.clear_ready();
        }
        false
    }
}
