//! An epoll set, of edge-triggered sockets for the most part. Who has it nested in a set or a poll
//! of its own only asks it; others wait on it. Tokens come in with the sockets and go out with
//! their events; the set never owns a socket, which leaves it by being closed.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// An epoll set.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// What happened on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that the socket was added with.
    pub token: u64,
    /// Whether the peer has ended its side, or the connection is broken: reading goes on to the
    /// end.
    pub hangup: bool,
    /// Whether something may be read.
    pub readable: bool,
    /// Whether it takes bytes again, or its connection stands: told of sockets added by
    /// [`Epoll::add_both`] alone.
    pub writable: bool,
}

/// Room for the events of one question.
pub struct Events(Vec<epoll::Event>);

impl Events {
    /// Room for `count` events.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// Whether the last question filled the room, so that more may be ready.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    /// How many events the last question gave.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the last question gave none.
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
    /// An empty set, closed at exec.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds a socket, edge-triggered, for data and for the end of the peer's side. What is
    /// already there makes an event at once.
    pub fn add(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.0, socket, EventData::new_u64(token), flags).map_err(io::Error::from)
    }

    /// As [`Epoll::add`], and for its taking bytes: a connection that is under way stands, or
    /// the other side has read what it had not taken before.
    pub fn add_both(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.0, socket, EventData::new_u64(token), flags).map_err(io::Error::from)
    }

    /// Adds a listening socket that is in the sets of others too: of those who wait, the first to
    /// have added it is woken, and nobody else. It is told as long as connections wait there
    /// (level-triggered), since each of them may go to another.
    pub fn add_shared(&self, listener: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&self.0, listener, EventData::new_u64(token), flags).map_err(io::Error::from)
    }

    /// Adds a descriptor whose event stands as long as there is something to read or its other side
    /// is closed (level-triggered). What is told of in one question comes last in the next.
    pub fn add_standing(&self, descriptor: impl AsFd, token: u64) -> io::Result<()> {
        epoll::add(&self.0, descriptor, EventData::new_u64(token), EventFlags::IN)
            .map_err(io::Error::from)
    }

    /// Takes a socket out that stays open.
    pub fn remove(&self, socket: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.0, socket).map_err(io::Error::from)
    }

    /// Takes the events that are there now, at most as many as there is room for.
    pub fn poll(&self, events: &mut Events) -> io::Result<()> {
        self.wait(events, Some(Duration::ZERO))
    }

    /// Waits until there are events, for `most` at most (to the nanosecond where the kernel
    /// can, Linux 5.11), and takes them. A signal ends the wait without any.
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
    fn an_edge_comes_once_and_the_end_is_told() {
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
    fn who_says_more_than_is_heard_waits_for_the_others() {
        let (set, mut events) = (Epoll::new().unwrap(), Events::with_capacity(1));
        let pairs: Vec<_> = (0..2).map(|_| UnixStream::pair().unwrap()).collect();
        for (token, (client, server)) in (0..).zip(&pairs) {
            set.add_standing(server, token).unwrap();
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
    fn a_wait_ends_with_its_time() {
        let (set, mut events) = (Epoll::new().unwrap(), Events::with_capacity(1));
        let begun = crate::clock::monotonic_ns();
        set.wait(&mut events, Some(Duration::from_micros(300))).unwrap();
        assert!(events.is_empty() && crate::clock::monotonic_ns() - begun >= 300_000);
    }
}
