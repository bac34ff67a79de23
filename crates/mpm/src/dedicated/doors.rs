//! The listening sockets of a child in which a connection holds a worker. Whoever can take a
//! connection is in front of the doors, whoever cannot has left them, so that a connection that
//! comes wakes one child which can serve it, and nobody else.

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

/// The listening sockets, as all workers of a child see them.
pub(crate) struct Ports {
    sockets: Vec<Arc<OwnedFd>>,
    /// Which is asked first next time.
    turn: AtomicUsize,
}

/// What accepting gave.
pub(crate) enum Accepted {
    Connection(Connection),
    /// Somebody else was faster, or the client has gone.
    Nothing,
    /// The system denies it: out of descriptors or memory.
    Denied(io::Error),
}

/// A connection that was just accepted.
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) client: SocketAddr,
    /// The index of its listening socket.
    pub(crate) port: usize,
}

impl Ports {
    pub(crate) fn new(sockets: Vec<Arc<OwnedFd>>) -> Self {
        Self { sockets, turn: AtomicUsize::new(0) }
    }

    /// How many connections wait to be accepted.
    pub(crate) fn queue(&self) -> usize {
        self.sockets.iter().map(length).fold(0, |sum, one| sum.saturating_add(one as usize))
    }

    /// Closes them, for a child that leaves them for good: an address that is no longer configured
    /// must not be listened on for as long as a connection lasts.
    pub(crate) fn let_go(&self) {
        for socket in &self.sockets {
            // One that stays open closes with the process.
            let _ = listen::let_go(socket);
        }
    }

    /// Takes the next connection that waits, at each of the ports in turn.
    pub(crate) fn accept(&self) -> Accepted {
        let count = self.sockets.len();
        let first = self.turn.load(Relaxed);
        for step in 0..count {
            let port = (first + step) % count;
            let Some(socket) = self.sockets.get(port).filter(|socket| length(socket) > 0) else {
                continue;
            };
            match socket::accept(socket) {
                Ok((socket, client)) => {
                    self.turn.store(port + 1, Relaxed);
                    return Accepted::Connection(Connection { socket, client, port });
                }
                Err(error) if socket::is_shortage(&error) => return Accepted::Denied(error),
                // Others have taken it, or it broke while it waited (accept(2), "Error handling").
                Err(_) => {}
            }
        }
        Accepted::Nothing
    }
}

/// The length of a port's queue: an accept that fails costs ten times as much. Where the system
/// does not say, it is tried.
fn length(socket: &Arc<OwnedFd>) -> u32 {
    socket::accept_queue(socket.as_fd()).map_or(1, |queue| queue.length)
}

/// The one who waits at the ports, in one process or thread.
pub(crate) struct Doors {
    pub(crate) ports: Arc<Ports>,
    set: Epoll,
    events: Events,
    /// Whether a connection that comes wakes us.
    is_inside: bool,
    denied_us: Option<u64>,
}

/// What [`Doors::wait`] was ended by; neither where the time is over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Knock {
    /// A connection waits.
    pub(crate) at_port: bool,
    /// There is something to hear.
    pub(crate) to_hear: bool,
}

/// The token of what is heard besides; the ports have those from 0 on.
const HEARD: u64 = u64::MAX;

impl Doors {
    /// The ports, from which it stays away for now.
    pub(crate) fn new(ports: Arc<Ports>) -> io::Result<Self> {
        let events = Events::with_capacity(ports.sockets.len() + 2);
        Ok(Self { ports, set: Epoll::new()?, events, is_inside: false, denied_us: None })
    }

    /// Hears a descriptor besides, edge-triggered.
    pub(crate) fn listen_to(&self, descriptor: impl AsFd) -> io::Result<()> {
        self.set.add(descriptor, HEARD)
    }

    /// Hears it no more.
    pub(crate) fn stop_listening_to(&self, descriptor: impl AsFd) {
        // It may have left already.
        let _ = self.set.remove(descriptor);
    }

    /// Has connections wake us, or leave us alone: one that wakes us wakes nobody else. Where
    /// the system denies it, it is tried again the next time.
    pub(crate) fn stand(&mut self, inside: bool) -> io::Result<()> {
        if inside == self.is_inside {
            return Ok(());
        }
        for (token, socket) in (0..).zip(&self.ports.sockets) {
            let (done, known) = match inside {
                true => (self.set.add_shared(socket, token), ErrorKind::AlreadyExists),
                false => (self.set.remove(socket), ErrorKind::NotFound),
            };
            // Where it broke off before, the first of them are where they should be.
            if let Err(error) = done
                && error.kind() != known
            {
                return Err(error);
            }
        }
        self.is_inside = inside;
        Ok(())
    }

    /// Waits, for so long at most.
    pub(crate) fn wait(&mut self, most: Option<Duration>) -> io::Result<Knock> {
        self.set.wait(&mut self.events, most)?;
        let mut knock = Knock::default();
        for at in 0..self.events.len() {
            let token = self.events.at(at).map(|event| event.token);
            knock.to_hear |= token == Some(HEARD);
            knock.at_port |= token.is_some_and(|token| token != HEARD);
        }
        Ok(knock)
    }

    /// What is to be told of a denial, once a second at most (Apache: os/unix/unixd.c,
    /// ap_unixd_accept).
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
    fn who_broke_off_on_the_way_to_the_doors_arrives_at_the_second_try() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        listeners.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let sockets = listeners.map(|listener| Arc::new(OwnedFd::from(listener)));
        let mut doors = Doors::new(Arc::new(Ports::new(sockets.to_vec()))).unwrap();
        doors.set.add_shared(&sockets[0], 0).unwrap();
        doors.stand(true).unwrap();
        let _clients = addresses.map(|address| TcpStream::connect(address).unwrap());
        for _ in 0..2 {
            assert!(doors.wait(None).unwrap().at_port);
            assert!(matches!(doors.ports.accept(), Accepted::Connection(_)));
        }
        doors.set.remove(&sockets[0]).unwrap();
        doors.stand(false).unwrap();
        assert!(!doors.is_inside);
    }

    #[test]
    fn a_queue_of_unknown_length_is_tried() {
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let ports = Ports::new(vec![Arc::new(OwnedFd::from(socket))]);
        assert_eq!(ports.queue(), 1);
        assert!(matches!(ports.accept(), Accepted::Nothing));
    }
}
