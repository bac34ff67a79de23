//! Work that a request has done off its serving thread: a job of the process's blocking pool, whose
//! result comes back unless the client has gone.

use bytes::Bytes;
use evenkeel_message::{Body, Departure, MayWait, Piece};
use evenkeel_sys::blocking_pool::{BlockingPool, BlockingTask, Progress};
use evenkeel_sys::memory;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;

/// A listing of fewer entries is completed even after the client has closed its side. The server
/// cannot tell a half-closed connection, whose client still reads, from a closed one.
pub const SMALL: usize = 1000;

/// Returns freed memory to the system after large requests. Otherwise the allocator keeps it.
#[derive(Debug, Default)]
pub struct Thrift {
    /// Whether a large request has ended since the last tick. Each large request in progress holds
    /// a clone of this flag.
    has_ended: Arc<AtomicBool>,
}

/// A guard for a request that uses much memory. It is dropped with the last bytes of the page.
#[derive(Debug)]
pub struct Large {
    has_ended: Arc<AtomicBool>,
}

/// The last bytes of a page with the guard of its request. The fields are dropped in this order.
struct Page {
    bytes: Bytes,
    _large: Large,
}

impl Thrift {
    /// Notes a request that takes much memory.
    #[must_use]
    pub fn note(&self) -> Large {
        Large { has_ended: Arc::clone(&self.has_ended) }
    }

    /// Whether a tick is wanted, though nothing is served until then.
    #[must_use]
    pub fn awaits_tick(&self) -> bool {
        self.has_ended.load(Relaxed) || Arc::strong_count(&self.has_ended) > 1
    }

    /// Runs about once a second. The blocking pool releases the memory; `tick` does not wait for
    /// it.
    pub fn tick(&self, blocking_pool: &BlockingPool) {
        if self.has_ended.swap(false, Relaxed) {
            blocking_pool.spawn(memory::give_back_freed).detach();
        }
    }
}

impl Large {
    /// Has the request last as long as its page, however slowly a client reads that.
    #[must_use]
    pub fn until_gone(self, page: Body) -> Body {
        match page {
            Body::Bytes(bytes) => Body::Bytes(self.with(bytes)),
            Body::Pieces(mut pieces) => {
                // Each piece is dropped once it is sent.
                let last = pieces.iter_mut().rev().find_map(|piece| match piece {
                    Piece::Bytes(bytes) => Some(bytes),
                    Piece::File { .. } => None,
                });
                if let Some(bytes) = last {
                    *bytes = self.with(std::mem::take(bytes));
                }
                Body::Pieces(pieces)
            }
            other => other,
        }
    }

    fn with(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Page { bytes, _large: self })
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Runs work of a request in the blocking pool.
pub struct Beside {
    blocking_pool: Arc<BlockingPool>,
    departure: Rc<Departure>,
}

impl Beside {
    /// A handle for a request that may wait. `blocking_pool` runs the work. `departure` is that of
    /// the request.
    #[must_use]
    pub fn new(_: &MayWait, blocking_pool: Arc<BlockingPool>, departure: Rc<Departure>) -> Self {
        Self { blocking_pool, departure }
    }

    /// Whether the client has disconnected. The request is polled again when it does.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.departure.is_told()
    }

    /// Runs work that `what` names in the blocking pool, once the request has a permit: only so
    /// many requests have such work at a time as keep the pool's threads busy, and the others hold
    /// no credit meanwhile. The result is none if the work ends because it was cancelled, if no
    /// thread can be had, if the work makes no progress, and if the client has gone before the work
    /// starts while other jobs are queued. If no other job is queued, the request waits for its
    /// job, because the client may only have closed its side.
    pub async fn perform<T: Send + 'static>(
        &self,
        what: String,
        work: impl FnOnce(&Progress) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        poll_fn(|_| self.departure.poll_permit()).await;
        let mut task = self.blocking_pool.spawn_long(what, work);
        let is_left = |task: &mut BlockingTask<Option<T>>| {
            if !self.departure.is_told() {
                return false;
            }
            task.cancel();
            self.blocking_pool.queued() > 1 && task.dequeue()
        };
        let done = poll_fn(|context| match Pin::new(&mut task).poll(context) {
            Poll::Pending if is_left(&mut task) => Poll::Ready(None),
            done => done,
        });
        done.await.flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    #[test]
    fn memory_of_large_requests_is_given_back_when_their_pages_have_gone_however_late_that_is() {
        let (thrift, blocking_pool) = (Thrift::default(), BlockingPool::new(1));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let tick = || {
            thrift.tick(&blocking_pool);
            // One thread does one thing after another.
            runtime.block_on(blocking_pool.spawn(|| ()));
            evenkeel_sys::resources::own_resident_bytes().unwrap()
        };
        assert!(!thrift.awaits_tick());
        let piece = || Piece::Bytes(Bytes::from_static(b"page"));
        let bodies =
            || [Body::Bytes(b"page".as_slice().into()), Body::Pieces(vec![piece(), piece()])];
        for body in bodies() {
            let page = thrift.note().until_gone(body);
            let mut pieces: Vec<_> = (0..4_096).map(|_| vec![1_u8; 16 << 10]).collect();
            for _ in 0..5 {
                tick();
                assert!(thrift.awaits_tick(), "the client still reads");
            }
            // Behind what is freed something stays, as in a server.
            let last = pieces.pop();
            drop((pieces, page));
            let before = evenkeel_sys::resources::own_resident_bytes().unwrap();
            assert!(thrift.awaits_tick());
            let now = tick();
            if cfg!(target_env = "gnu") {
                assert!(now + (16 << 20) < before, "{now} of {before}");
            }
            assert!(!thrift.awaits_tick());
            drop(last);
        }
    }

    #[test]
    fn what_was_begun_learns_that_its_client_has_gone() {
        let beside =
            Beside::new(&MayWait::in_task(), Arc::new(BlockingPool::new(1)), Rc::default());
        let (begun, is_begun) = mpsc::channel();
        let endless = move |progress: &Progress| {
            begun.send(()).unwrap();
            while progress.report() {
                std::thread::yield_now();
            }
            None::<()>
        };
        let mut performed = Box::pin(beside.perform("it".into(), endless));
        let mut context = Context::from_waker(Waker::noop());
        assert!(performed.as_mut().poll(&mut context).is_pending());
        is_begun.recv().unwrap();
        assert!(beside.departure.is_awaited());
        beside.departure.tell();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(performed), None);
        assert_eq!(runtime.block_on(beside.blocking_pool.spawn(|| 1)), Some(1));
    }

    #[test]
    fn a_large_request_lasts_until_its_last_piece_is_sent() {
        let thrift = Thrift::default();
        let piece = || Piece::Bytes(Bytes::from_static(b"page"));
        let body = thrift.note().until_gone(Body::Pieces(vec![piece(), piece()]));
        let Body::Pieces(mut pieces) = body else { panic!("no pieces") };
        drop(pieces.remove(0));
        assert!(!thrift.has_ended.load(Relaxed));
        drop(pieces);
        assert!(thrift.has_ended.load(Relaxed));
    }
}
