//! The listening sockets of a child in which a connection holds a worker. A child watches them only
//! while it can serve a connection, so that each new connection wakes exactly one child that can.

use evenkeel_message::{Level, Notice};
use evenkeel_sys::clock;
use evenkeel_sys::epoll::{Epoll, Events};
use evenkeel_sys::socket::{self, Socket};
use evenkeel_sys::{listen, process};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The listening sockets, shared by the workers of a child.
pub(crate) struct ListenSockets {
    sockets: Vec<Arc<OwnedFd>>,
    /// The socket to check first next time.
    next: AtomicUsize,
}

/// The result of accepting.
pub(crate) enum Accepted {
    Connection(Connection),
    /// Another process or thread was faster, or the client has gone.
    Nothing,
    /// The system is out of descriptors or memory.
    Denied(io::Error),
}

/// An accepted connection.
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) client: SocketAddr,
    /// The index of its listening socket.
    pub(crate) listener: usize,
}

impl ListenSockets {
    pub(crate) fn new(sockets: Vec<Arc<OwnedFd>>) -> Self {
        Self { sockets, next: AtomicUsize::new(0) }
    }

    /// How many connections wait to be accepted.
    pub(crate) fn queue(&self) -> usize {
        self.sockets.iter().map(length).fold(0, |sum, one| sum.saturating_add(one as usize))
    }

    /// Closes the sockets in all threads of a child that stops accepting for good: an address that
    /// is no longer configured must not be listened on for as long as a connection lasts.
    pub(crate) fn close(&self) {
        for socket in &self.sockets {
            // A socket that stays open closes with the process.
            let _ = listen::close_in_place(socket);
        }
    }

    /// Accepts the next connection that waits, from the sockets in turn.
    pub(crate) fn accept(&self) -> Accepted {
        let count = self.sockets.len();
        let first = self.next.load(Relaxed);
        for step in 0..count {
            let listener = (first + step) % count;
            let Some(socket) = self.sockets.get(listener).filter(|socket| length(socket) > 0)
            else {
                continue;
            };
            match socket::accept(socket) {
                Ok((socket, client)) => {
                    self.next.store(listener + 1, Relaxed);
                    return Accepted::Connection(Connection { socket, client, listener });
                }
                Err(error) if socket::is_shortage(&error) => return Accepted::Denied(error),
                // Another process accepted it, or it broke while it waited (accept(2), "Error
                // handling").
                Err(_) => {}
            }
        }
        Accepted::Nothing
    }
}

/// The length of an accept queue: a failing accept costs ten times as much. If the system does not
/// tell it, accepting is tried.
fn length(socket: &Arc<OwnedFd>) -> u32 {
    socket::accept_queue(socket.as_fd()).map_or(1, |queue| queue.length)
}

/// An epoll set with the listening sockets, for the one thread of a child that waits for
/// connections.
pub(crate) struct ListenSet {
    pub(crate) sockets: Arc<ListenSockets>,
    set: Epoll,
    events: Events,
    /// Whether the listening sockets are in the set.
    is_watched: bool,
    denied_us: Option<u64>,
}

/// What ended [`ListenSet::wait`]; neither if the time has passed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readiness {
    /// A connection waits.
    pub(crate) connection: bool,
    /// The control descriptor is readable.
    pub(crate) control: bool,
}

/// The token of the control descriptors. Listening sockets have tokens from 0 on.
const CONTROL: u64 = u64::MAX;

impl ListenSet {
    /// A set that does not watch the sockets yet.
    pub(crate) fn new(sockets: Arc<ListenSockets>) -> io::Result<Self> {
        let events = Events::with_capacity(sockets.sockets.len() + 2);
        Ok(Self { sockets, set: Epoll::new()?, events, is_watched: false, denied_us: None })
    }

    /// Watches a control descriptor too, edge-triggered.
    pub(crate) fn add_control(&self, descriptor: impl AsFd) -> io::Result<()> {
        self.set.add(descriptor, CONTROL)
    }

    /// Stops watching a control descriptor.
    pub(crate) fn remove_control(&self, descriptor: impl AsFd) {
        // It may be out of the set already.
        let _ = self.set.remove(descriptor);
    }

    /// Watches the listening sockets or stops it. A connection wakes only one of the sets that
    /// watch them. If the system denies it, the next call tries again.
    pub(crate) fn set_watched(&mut self, watched: bool) -> io::Result<()> {
        if watched == self.is_watched {
            return Ok(());
        }
        for (token, socket) in (0..).zip(&self.sockets.sockets) {
            let (done, known) = match watched {
                true => (self.set.add_exclusive(socket, token), ErrorKind::AlreadyExists),
                false => (self.set.remove(socket), ErrorKind::NotFound),
            };
            // If an earlier call failed halfway, the first sockets are as they should be.
            if let Err(error) = done
                && error.kind() != known
            {
                return Err(error);
            }
        }
        self.is_watched = watched;
        Ok(())
    }

    /// Waits for at most `timeout`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Readiness> {
        self.set.wait(&mut self.events, timeout)?;
        let mut ready = Readiness::default();
        for at in 0..self.events.len() {
            let token = self.events.at(at).map(|event| event.token);
            ready.control |= token == Some(CONTROL);
            ready.connection |= token.is_some_and(|token| token != CONTROL);
        }
        Ok(ready)
    }

    /// The message for the error log when accepting fails, at most once a second (Apache:
    /// os/unix/unixd.c, ap_unixd_accept).
    pub(crate) fn denial(&mut self, error: &io::Error) -> Option<Notice> {
        let now_us = clock::monotonic_coarse_us();
        if self.denied_us.is_some_and(|last| now_us.saturating_sub(last) < 1_000_000) {
            return None;
        }
        self.denied_us = Some(now_us);
        let limit = process::descriptor_limit(error);
        let text = format!("apr_socket_accept: (client socket){limit}");
        Some(Notice::new("core", Level::Error, 2176, text).because(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn watching_that_failed_halfway_succeeds_at_the_second_try() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        listeners.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let sockets = listeners.map(|listener| Arc::new(OwnedFd::from(listener)));
        let mut listen_set =
            ListenSet::new(Arc::new(ListenSockets::new(sockets.to_vec()))).unwrap();
        listen_set.set.add_exclusive(&sockets[0], 0).unwrap();
        listen_set.set_watched(true).unwrap();
        let _clients = addresses.map(|address| TcpStream::connect(address).unwrap());
        for _ in 0..2 {
            assert!(listen_set.wait(None).unwrap().connection);
            assert!(matches!(listen_set.sockets.accept(), Accepted::Connection(_)));
        }
        listen_set.set.remove(&sockets[0]).unwrap();
        listen_set.set_watched(false).unwrap();
        assert!(!listen_set.is_watched);
    }

    #[test]
    fn a_queue_of_unknown_length_is_tried() {
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let sockets = ListenSockets::new(vec![Arc::new(OwnedFd::from(socket))]);
        assert_eq!(sockets.queue(), 1);
        assert!(matches!(sockets.accept(), Accepted::Nothing));
    }
}
