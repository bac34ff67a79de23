//! A bulkhead between kinds of requests: so many that have expensive work done are in progress at a
//! time, first come, first served, and the others wait without the credit that lets a request run.
//! So a crowd of them leaves room for what is answered at once.

use crate::clock;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The permits of one kind of work, shared by the threads of a child. Another kind, such as the
/// requests for one application, has a bulkhead of its own.
pub struct Bulkhead {
    permits: Arc<Semaphore>,
    waiting: AtomicU32,
    /// Where the time is added up that requests wait, in microseconds.
    line_us: Option<&'static AtomicU64>,
}

/// The right to have such work done for one request; dropping it gives it back.
pub struct Permit(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

/// Waits in line for a permit. Dropping it leaves the line.
pub struct Waiting {
    bulkhead: Arc<Bulkhead>,
    since_us: u64,
    acquiring: Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>,
}

impl Bulkhead {
    /// So many permits, at least one.
    #[must_use]
    pub fn new(permits: usize, line_us: Option<&'static AtomicU64>) -> Arc<Self> {
        let permits = permits.clamp(1, Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(permits));
        Arc::new(Self { permits, waiting: AtomicU32::new(0), line_us })
    }

    /// How many permits a child has whose budget is `credits` and whose crew has `threads`: enough
    /// that no thread of the crew is idle while a request hands its work from one part to the next,
    /// and no more than half of the credits.
    #[must_use]
    pub fn permits(credits: u32, threads: usize) -> usize {
        let half = usize::try_from(credits / 2).unwrap_or(usize::MAX);
        threads.saturating_mul(2).min(half).max(1)
    }

    /// A permit as soon as it is this caller's turn.
    #[must_use]
    pub fn wait(self: &Arc<Self>) -> Waiting {
        self.waiting.fetch_add(1, Relaxed);
        Waiting {
            bulkhead: Arc::clone(self),
            since_us: clock::monotonic_us(),
            acquiring: Box::pin(Arc::clone(&self.permits).acquire_owned()),
        }
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }
}

impl Future for Waiting {
    /// None would be of a bulkhead that was closed, which nobody does.
    type Output = Option<Permit>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Permit>> {
        let acquired = ready!(self.acquiring.as_mut().poll(context));
        Poll::Ready(acquired.ok().map(Permit))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.bulkhead.waiting.fetch_sub(1, Relaxed);
        if let Some(line_us) = self.bulkhead.line_us {
            line_us.fetch_add(clock::monotonic_us().saturating_sub(self.since_us), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn poll(waiting: &mut Waiting) -> Poll<Option<Permit>> {
        Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn permits_go_to_those_who_came_first_and_one_who_leaves_takes_none_along() {
        let bulkhead = Bulkhead::new(1, None);
        let Poll::Ready(Some(held)) = poll(&mut bulkhead.wait()) else { panic!("one is free") };
        let mut others: Vec<_> = (0..3).map(|_| bulkhead.wait()).collect();
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
    fn the_crew_has_work_and_half_of_the_credits_are_left() {
        let table = [(400, 2, 4), (25, 16, 12), (4, 16, 2), (2, 8, 1), (1, 8, 1), (0, 0, 1)];
        for (credits, threads, permits) in table {
            assert_eq!(Bulkhead::permits(credits, threads), permits, "{credits} {threads}");
        }
    }
}
