//! An epoll set, mostly of edge-triggered sockets. A caller either waits on it, or watches its
//! descriptor elsewhere and polls it. Each socket is added with a token, which its events carry.
//! The set does not own sockets; a socket leaves it when it is closed.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// An epoll set.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// An event of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that the socket was added with.
    pub token: u64,
    /// Whether the peer has closed its side, or the connection is broken: reading leads to the end
    /// of the stream.
    pub hangup: bool,
    /// Whether it is readable.
    pub readable: bool,
    /// Whether it is writable, or its connection is established: reported only for sockets added
    /// with [`Epoll::add_read_write`].
    pub writable: bool,
}

/// A buffer for the events of one call.
pub struct Events(Vec<epoll::Event>);

impl Events {
    /// A buffer for `count` events.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// Whether the last call has filled the buffer, so that more events may be pending.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    /// How many events the last call returned.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the last call returned none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The event at an index.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<Ready> {
        let event = self.0.get(index)?;
        let ended = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        let flags = event.flags;
        Some(Ready {
            token: event.data.u64(),
            hangup: flags.intersects(ended),
            readable: flags.contains(EventFlags::IN),
            writable: flags.contains(EventFlags::OUT),
        })
    }
}

impl Epoll {
    /// An empty set, close-on-exec.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds a socket, edge-triggered, for data and for the end of the peer's side. Data that has
    /// arrived already causes an event at once.
    pub fn add(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.0, socket, EventData::new_u64(token), flags).map_err(io::Error::from)
    }

    /// As [`Epoll::add`], and for writability: a connection is established, or the other side has
    /// made room for more data.
    pub fn add_read_write(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.0, socket, EventData::new_u64(token), flags).map_err(io::Error::from)
    }

    /// Adds a listening socket that is in other sets too (EPOLLEXCLUSIVE): of the processes that
    /// wait, only the first that added it is woken. It is level-triggered, because another process
    /// may accept any of the connections.
    pub fn add_exclusive(&self, listener: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&self.0, listener, EventData::new_u64(token), flags).map_err(io::Error::from)
    }

    /// Adds a descriptor, level-triggered: its event persists while it is readable or its other
    /// side is closed. Descriptors reported by one call come last in the next.
    pub fn add_level_triggered(&self, descriptor: impl AsFd, token: u64) -> io::Result<()> {
        epoll::add(&self.0, descriptor, EventData::new_u64(token), EventFlags::IN)
            .map_err(io::Error::from)
    }

    /// Removes a socket that stays open.
    pub fn remove(&self, socket: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.0, socket).map_err(io::Error::from)
    }

    /// Returns the pending events, as many as fit into the buffer, without waiting.
    pub fn poll(&self, events: &mut Events) -> io::Result<()> {
        self.wait(events, Some(Duration::ZERO))
    }

    /// Waits for events, for at most `most` (to the nanosecond from Linux 5.11 on), and returns
    /// them. A signal ends the wait without events.
    pub fn wait(&self, events: &mut Events, most: Option<Duration>) -> io::Result<()> {
        events.0.clear();
        let most = most.map(|most| Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: most.subsec_nanos().into(),
        });
        let room = rustix::buffer::spare_capacity(&mut events.0);
        match epoll::wait(&self.0, room, most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_edge_is_reported_once_and_so_is_the_end() {
        let set = Epoll::new().unwrap();
        let mut events = Events::with_capacity(4);
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"x").unwrap();
        set.add(&server, 7).unwrap();
        set.poll(&mut events).unwrap();
        let ready = events.at(0).unwrap();
        assert_eq!((ready.token, ready.readable, ready.hangup), (7, true, false));
        assert_eq!((events.len(), events.is_full()), (1, false));
        set.poll(&mut events).unwrap();
        assert!(events.is_empty(), "an edge is told once");
        drop(client);
        set.poll(&mut events).unwrap();
        assert!(events.at(0).unwrap().hangup);
        set.remove(&server).unwrap();
    }

    #[test]
    fn a_descriptor_with_more_data_is_reported_after_the_others() {
        let (set, mut events) = (Epoll::new().unwrap(), Events::with_capacity(1));
        let pairs: Vec<_> = (0..2).map(|_| UnixStream::pair().unwrap()).collect();
        for (token, (client, server)) in (0..).zip(&pairs) {
            set.add_level_triggered(server, token).unwrap();
            (&*client).write_all(b"x").unwrap();
        }
        let heard: Vec<_> = (0..4)
            .map(|_| {
                set.poll(&mut events).unwrap();
                events.at(0).unwrap().token
            })
            .collect();
        assert_eq!(heard, [0, 1, 0, 1]);
    }

    #[test]
    fn a_wait_ends_with_its_timeout() {
        let (set, mut events) = (Epoll::new().unwrap(), Events::with_capacity(1));
        let begun = crate::clock::monotonic_ns();
        set.wait(&mut events, Some(Duration::from_micros(300))).unwrap();
        assert!(events.is_empty() && crate::clock::monotonic_ns() - begun >= 300_000);
    }
}
