//! A bulkhead (as in the resilience pattern): it bounds how many requests that need expensive work
//! are in progress at a time. The others wait in order, without holding a credit, so that any
//! number of them leaves room for requests that are answered at once.

use crate::clock;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The permits for expensive work in a blocking pool, shared by the threads of a child.
pub struct Bulkhead {
    permits: Arc<Semaphore>,
    waiting: AtomicU32,
    /// The counter to which the waiting time of requests is added, in microseconds.
    queue_us: Option<&'static AtomicU64>,
}

/// A permit for one request; dropping it returns it.
pub struct Permit(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

/// The future of a permit. Dropping it leaves the queue.
pub struct Acquire {
    bulkhead: Arc<Bulkhead>,
    since_us: u64,
    acquiring: Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>,
}

impl Bulkhead {
    /// A bulkhead of this many permits, and of one at least.
    #[must_use]
    pub fn new(permits: usize, queue_us: Option<&'static AtomicU64>) -> Arc<Self> {
        let permits = permits.clamp(1, Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(permits));
        Arc::new(Self { permits, waiting: AtomicU32::new(0), queue_us })
    }

    /// The number of permits of a child with this many credits and threads of its blocking pool:
    /// two for each thread, so that no thread idles between the jobs of a request, but at most half
    /// of the credits.
    #[must_use]
    pub fn permits(credits: u32, threads: usize) -> usize {
        let half = usize::try_from(credits / 2).unwrap_or(usize::MAX);
        threads.saturating_mul(2).min(half).max(1)
    }

    /// Waits for a permit. Requests get permits in the order of their first polls.
    #[must_use]
    pub fn acquire(self: &Arc<Self>) -> Acquire {
        self.waiting.fetch_add(1, Relaxed);
        Acquire {
            bulkhead: Arc::clone(self),
            since_us: clock::monotonic_us(),
            acquiring: Box::pin(Arc::clone(&self.permits).acquire_owned()),
        }
    }

    /// How many requests wait for a permit.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }
}

impl Future for Acquire {
    /// None only if the semaphore was closed, which does not happen.
    type Output = Option<Permit>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Permit>> {
        let acquired = ready!(self.acquiring.as_mut().poll(context));
        Poll::Ready(acquired.ok().map(Permit))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        self.bulkhead.waiting.fetch_sub(1, Relaxed);
        if let Some(queue_us) = self.bulkhead.queue_us {
            queue_us.fetch_add(clock::monotonic_us().saturating_sub(self.since_us), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn poll(waiting: &mut Acquire) -> Poll<Option<Permit>> {
        Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn permits_are_granted_in_order_and_dropping_an_acquire_takes_none() {
        let bulkhead = Bulkhead::new(1, None);
        let Poll::Ready(Some(held)) = poll(&mut bulkhead.acquire()) else { panic!("one is free") };
        let mut others: Vec<_> = (0..3).map(|_| bulkhead.acquire()).collect();
        assert!(others.iter_mut().all(|other| poll(other).is_pending()));
        assert_eq!(bulkhead.waiting(), 3);
        drop(others.remove(0));
        drop(held);
        assert!(poll(&mut others[1]).is_pending());
        assert!(poll(&mut others[0]).is_ready());
        assert!(poll(&mut others[1]).is_ready(), "what was taken was given back at once");
        drop(others);
        assert_eq!(bulkhead.waiting(), 0);
    }

    #[test]
    fn the_pool_has_work_and_half_of_the_credits_are_left() {
        let table = [(400, 2, 4), (25, 16, 12), (4, 16, 2), (2, 8, 1), (1, 8, 1), (0, 0, 1)];
        for (credits, threads, permits) in table {
            assert_eq!(Bulkhead::permits(credits, threads), permits, "{credits} {threads}");
        }
    }
}
