//! Idle connections of a serving thread to HTTP servers. The connection that was used last is
//! taken first, so that few of them stay in use. A connection stays registered with the runtime
//! that it was made in.

use crate::origin_stream::{OriginStream, Wanted};
use std::cell::RefCell;
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, Id};

/// The most idle connections of a thread.
const MOST_IDLE: usize = 64;

thread_local! {
    static IDLE: RefCell<Vec<Idle>> = const { RefCell::new(Vec::new()) };
}

/// An idle connection.
struct Idle {
    wanted: Wanted,
    stream: OriginStream,
    /// The runtime that watches the socket.
    runtime: Id,
    since: Instant,
    /// The time at which the connection is closed.
    end: Instant,
}

/// Takes an idle connection of this kind that has rested for less than `rest`. Connections that
/// have ended are closed on the way.
///
/// # Panics
/// Panics outside a runtime.
pub(crate) fn take(wanted: &Wanted, rest: Duration) -> Option<OriginStream> {
    IDLE.with_borrow_mut(|idle| {
        let runtime = if idle.is_empty() { return None } else { Handle::current().id() };
        let now = Instant::now();
        idle.retain(|one| one.runtime == runtime && now < one.end);
        while let Some(at) = idle.iter().rposition(|one| one.wanted == *wanted) {
            let mut one = idle.remove(at);
            if !one.stream.is_sound() {
                continue;
            }
            if now.duration_since(one.since) < rest {
                return Some(one.stream);
            }
            // All others have rested longer.
            idle.insert(at, one);
            return None;
        }
        None
    })
}

/// Keeps a connection on which no request is in progress for `rest` at most. Of too many, the
/// connection that has rested longest is closed.
///
/// # Panics
/// Panics outside a runtime.
pub(crate) fn keep(wanted: Wanted, stream: OriginStream, rest: Duration) {
    let (runtime, since) = (Handle::current().id(), Instant::now());
    let new = Idle { wanted, stream, runtime, since, end: since + rest };
    IDLE.with_borrow_mut(|idle| {
        idle.retain(|one| since < one.end);
        if idle.len() >= MOST_IDLE {
            idle.remove(0);
        }
        idle.push(new);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::Address;
    use evenkeel_sys::socket::Socket;
    use evenkeel_sys::watch::WatchedSocket;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    const HOUR: Duration = Duration::from_secs(3600);

    fn wanted(name: &str) -> Wanted {
        Wanted { address: Address::Unix(name.into()), tls: None }
    }

    fn keep(wanted: &Wanted, stream: OriginStream, rest: Duration) {
        super::keep(wanted.clone(), stream, rest);
    }

    fn pair() -> (UnixStream, OriginStream) {
        let (server, socket) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = WatchedSocket::for_reading(Socket::new(socket.into()));
        (server, OriginStream::Plain(socket.map_err(|(_, error)| error).unwrap()))
    }

    fn count() -> usize {
        IDLE.with_borrow(Vec::len)
    }

    #[test]
    fn a_connection_is_taken_by_its_address_while_it_is_sound_and_fresh() {
        let build = || tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let runtime = build();
        let inside = runtime.enter();
        let (one, other) = (wanted("/one"), wanted("/other"));
        let (_server, socket) = pair();
        keep(&one, socket, HOUR);
        assert!(take(&other, HOUR).is_none());
        assert!(take(&one, Duration::ZERO).is_none(), "it has rested too long");
        assert!(take(&one, HOUR).is_some());
        assert_eq!(count(), 0);
        let (closed, socket) = pair();
        keep(&one, socket, HOUR);
        drop(closed);
        let (mut talks, socket) = pair();
        keep(&one, socket, HOUR);
        talks.write_all(b"HTTP/1.1 408 Late\r\n").unwrap();
        let (_server, socket) = pair();
        keep(&other, socket, HOUR);
        assert!(take(&one, HOUR).is_none());
        assert_eq!(count(), 1, "those that are not sound were closed");
        let (_server, socket) = pair();
        keep(&one, socket, Duration::ZERO);
        assert!(take(&one, HOUR).is_none(), "its time is over");
        // Another runtime does not watch what this one has kept.
        drop(inside);
        let later = build();
        let _inside = later.enter();
        assert!(take(&other, HOUR).is_none());
        let servers: Vec<UnixStream> = (0..=MOST_IDLE)
            .map(|_| {
                let (server, socket) = pair();
                keep(&one, socket, HOUR);
                server
            })
            .collect();
        assert_eq!(count(), MOST_IDLE);
        drop(servers);
        assert!(take(&one, HOUR).is_none());
        assert_eq!(count(), 0);
    }
}
