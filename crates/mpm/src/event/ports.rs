//! The listening sockets as one serving thread sees them: which of them has connections
//! waiting, and the next of these. A thread that leaves them is woken no more. Where the system
//! is out of descriptors, accepting pauses for a moment instead of trying for ever.

use super::park::{ahead_ms, now_ms};
use evenkeel_sys::socket::{self, Socket};
use evenkeel_sys::watch::Watch;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};

/// How long accepting pauses where there are no descriptors.
const PAUSE_MS: u32 = 100;

/// The listening sockets of a child.
pub(super) struct Ports {
    ports: Vec<Port>,
    /// Which is asked first next time.
    turn: usize,
    paused_until_ms: Option<u32>,
    /// How many descriptors the process may have.
    descriptors: usize,
    /// Descriptors from this number on are kept for files, logs and the status page.
    reserved_from: usize,
}

struct Port {
    socket: Arc<OwnedFd>,
    watch: Option<Watch>,
    /// How many connections were waiting when we last looked, less those taken since.
    expected: u32,
}

/// How many descriptors are kept from connections.
const RESERVE: u64 = 32;

/// How many of a process's descriptors connections do not get.
pub(crate) fn reserve(descriptors: u64) -> u64 {
    RESERVE.min(descriptors / 4)
}

/// What accepting gave.
pub(super) enum Accepted {
    Connection(Socket, SocketAddr),
    /// The same, and hardly a descriptor is left: accepting pauses.
    Last(Socket, SocketAddr),
    /// Somebody else was faster, or the client has gone.
    Nothing,
    /// The system denies it: out of descriptors or memory.
    Denied(io::Error),
}

impl Ports {
    pub(super) fn new(sockets: Vec<Arc<OwnedFd>>, descriptors: usize) -> Self {
        let port = |socket| Port { socket, watch: None, expected: 0 };
        Self {
            ports: sockets.into_iter().map(port).collect(),
            turn: 0,
            paused_until_ms: None,
            descriptors,
            reserved_from: descriptors.saturating_sub(reserve(descriptors as u64) as usize),
        }
    }

    /// Begins to watch. What waits already makes itself known at once.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        for port in &mut self.ports {
            if port.watch.is_none() {
                port.watch = Some(Watch::new(&port.socket)?);
                port.expected = 0;
            }
        }
        Ok(())
    }

    /// Stops watching; what waits is left to others.
    pub(super) fn leave(&mut self) {
        for port in &mut self.ports {
            port.watch = None;
        }
    }

    /// As `leave`, for good: the sockets are closed here.
    pub(super) fn abandon(&mut self) {
        self.ports.clear();
    }

    /// How many descriptors the process may have.
    pub(super) fn descriptors(&self) -> usize {
        self.descriptors
    }

    /// When accepting goes on, while it pauses.
    pub(super) fn paused_until_ms(&self) -> Option<u32> {
        self.paused_until_ms
    }

    /// The next port at which a connection waits; where there is none, the thread is woken as
    /// soon as there is.
    pub(super) fn ready(&mut self, context: &mut Context<'_>) -> Option<usize> {
        if let Some(until) = self.paused_until_ms {
            if ahead_ms(now_ms(), until) > 0 {
                return None;
            }
            self.paused_until_ms = None;
        }
        let count = self.ports.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            if self.ports.get_mut(index)?.is_ready(context) {
                return Some(index);
            }
        }
        None
    }

    /// How many connections wait to be accepted.
    pub(super) fn queue(&self) -> usize {
        let length =
            |port: &Port| socket::accept_queue(port.socket.as_fd()).map_or(0, |it| it.length);
        self.ports.iter().map(length).fold(0, |sum, one| sum.saturating_add(one as usize))
    }

    /// Takes a connection from a port that is ready.
    pub(super) fn accept(&mut self, index: usize) -> Accepted {
        self.turn = index + 1;
        let Some(port) = self.ports.get_mut(index) else { return Accepted::Nothing };
        match socket::accept(&port.socket) {
            Ok((socket, client)) => {
                port.expected = port.expected.saturating_sub(1);
                // The kernel gives the lowest free number, so the number tells how many are used.
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
            // WouldBlock: others have taken all. The rest are errors of a connection that broke
            // while it waited (accept(2), "Error handling"): look anew.
            Err(_) => {
                port.expected = 0;
                Accepted::Nothing
            }
        }
    }
}

impl Ports {
    /// Accepts nothing for a moment, in which descriptors may come free.
    pub(super) fn pause(&mut self) {
        self.paused_until_ms = Some(now_ms().wrapping_add(PAUSE_MS));
    }
}

impl Port {
    /// Whether a connection waits. The queue's length costs a tenth of an accept that fails.
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
