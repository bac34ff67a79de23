//! Kept connections of a serving thread to the workers of this server's own pools. A thread uses
//! one only after it has claimed the worker (`sys/src/claims.rs`), so that a kept connection does
//! not reserve its worker.

use evenkeel_sys::claims::{Attempt, Claims, Link};
use evenkeel_sys::watch::WatchedSocket;
use std::cell::RefCell;
use std::sync::Arc;
use tokio::runtime::{Handle, Id};

/// The most connections that a thread keeps.
const MOST_KEPT: usize = 64;

thread_local! {
    /// The connection that was used last is the last one: its worker's memory is most likely in the
    /// caches.
    static KEPT: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// A connection that is kept.
struct Kept {
    claims: Arc<Claims>,
    link: Link,
    /// `None` while a request uses it.
    socket: Option<WatchedSocket>,
    /// The runtime that watches the socket.
    runtime: Id,
}

impl Kept {
    fn is_of(&self, claims: &Arc<Claims>) -> bool {
        Arc::ptr_eq(&self.claims, claims)
    }
}

/// A claim on a worker. When it is dropped, the connection is forgotten unless it was kept again.
pub(crate) struct Claim {
    claims: Arc<Claims>,
    link: Link,
}

impl Claim {
    /// Takes the claim back. Says whether the worker had not taken it: then it has read nothing.
    pub(crate) fn withdraw(&self) -> bool {
        self.claims.withdraw(self.link)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let is_this = |one: &Kept| one.is_of(&self.claims) && one.link == self.link;
        // While a thread ends, its list may be gone.
        let _ = KEPT.try_with(|kept| {
            kept.borrow_mut().retain(|one| one.socket.is_some() || !is_this(one));
        });
    }
}

/// Claims an idle worker of a pool to which this thread has kept its connection.
///
/// # Panics
/// Panics outside a runtime.
pub(crate) fn claim(claims: &Arc<Claims>) -> Option<(WatchedSocket, Claim)> {
    KEPT.with_borrow_mut(|kept| {
        let runtime = if kept.is_empty() { return None } else { Handle::current().id() };
        for at in (0..kept.len()).rev() {
            let Some(one) = kept.get_mut(at).filter(|one| one.is_of(claims)) else { continue };
            if one.socket.is_none() {
                continue;
            }
            let attempt = match one.runtime == runtime {
                true => claims.claim(one.link),
                // A thread may have had another runtime before, which has ended.
                false => Attempt::Gone,
            };
            match attempt {
                Attempt::Busy => {}
                Attempt::Gone => drop(kept.remove(at)),
                Attempt::Claimed => {
                    let claim = Claim { claims: Arc::clone(claims), link: one.link };
                    return one.socket.take().map(|socket| (socket, claim));
                }
            }
        }
        None
    })
}

/// Whether this thread may keep one more connection to a pool that has this many workers. It keeps
/// at most one for each worker.
pub(crate) fn has_room(claims: &Arc<Claims>, workers: usize) -> bool {
    KEPT.with_borrow(|kept| {
        let of_pool = kept.iter().filter(|one| one.is_of(claims)).count();
        kept.len() < MOST_KEPT && of_pool < workers
    })
}

/// Keeps a connection on which no request is in progress, by the name that its worker gives it. A
/// thread has one connection to a worker at most.
///
/// # Panics
/// Panics outside a runtime.
pub(crate) fn keep(claims: &Arc<Claims>, link: Link, socket: WatchedSocket) {
    let runtime = Handle::current().id();
    let new = Kept { claims: Arc::clone(claims), link, socket: Some(socket), runtime };
    let _others = KEPT.with_borrow_mut(|kept| {
        let is_its = |one: &mut Kept| one.is_of(claims) && one.link.is_to_worker_of(link);
        let others: Vec<Kept> = kept.extract_if(.., is_its).collect();
        if kept.len() < MOST_KEPT {
            kept.push(new);
        }
        others
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_sys::socket::Socket;
    use std::os::unix::net::UnixStream;

    fn link(place: u32, process: u32, number: u32) -> Link {
        let bytes = [place, process, number].map(u32::to_le_bytes);
        Link::read(bytes.as_flattened()).unwrap()
    }

    fn socket() -> WatchedSocket {
        let (socket, _) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        WatchedSocket::for_reading(Socket::new(socket.into())).map_err(|(_, error)| error).unwrap()
    }

    fn count() -> usize {
        KEPT.with_borrow(Vec::len)
    }

    #[test]
    fn a_thread_keeps_one_connection_to_a_worker_and_forgets_those_that_are_not_given_back() {
        let build = || tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let runtime = build();
        let inside = runtime.enter();
        let (pool, other) = (Claims::new().unwrap(), Claims::new().unwrap());
        keep(&pool, link(1, 100, 1), socket());
        keep(&pool, link(1, 100, 2), socket());
        keep(&other, link(1, 100, 1), socket());
        assert_eq!(count(), 2);
        assert!(has_room(&pool, 2) && !has_room(&pool, 1));
        // A worker that has not offered itself cannot be claimed.
        assert!(claim(&pool).is_none());
        assert_eq!(count(), 1);
        keep(&pool, link(1, 100, 2), socket());
        pool.offer(link(1, 100, 2));
        let (kept, claimed) = claim(&pool).unwrap();
        assert!(claim(&pool).is_none() && !has_room(&pool, 1));
        keep(&pool, link(1, 100, 2), kept);
        drop(claimed);
        assert_eq!(count(), 2);
        pool.offer(link(1, 100, 2));
        drop(claim(&pool).unwrap());
        assert_eq!(count(), 1);
        // Another runtime does not watch what this one has kept.
        keep(&pool, link(1, 100, 2), socket());
        pool.offer(link(1, 100, 2));
        drop(inside);
        let later = build();
        let _inside = later.enter();
        assert!(claim(&pool).is_none());
        for place in 0..100 {
            keep(&pool, link(place, 100, 1), socket());
        }
        assert_eq!(count(), MOST_KEPT);
        assert!(!has_room(&pool, 1000));
    }
}
