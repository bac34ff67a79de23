//! A timer for the silence of an application. Nearly every request needs one for a moment, and few
//! see it fire.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep, sleep_until};

/// The most unused timers that a thread keeps.
const MOST_KEPT: usize = 32;

thread_local! {
    static UNUSED: RefCell<Vec<Registered>> = const { RefCell::new(Vec::new()) };
}

/// A timer that is registered with a runtime.
struct Registered {
    runtime: Id,
    sleep: Pin<Box<Sleep>>,
}

/// A timer. A dropped one stays registered with the runtime, and the next timer of the thread only
/// moves its deadline. A new registration that becomes the first of a runtime costs a write to the
/// descriptor that wakes its thread, because tokio assumes that the thread may be asleep.
pub(crate) struct Timer(Option<Registered>);

impl Timer {
    /// A timer that fires after this time.
    ///
    /// # Panics
    /// Panics outside a runtime, as [`sleep_until`] does.
    pub(crate) fn after(time: Duration) -> Self {
        let (runtime, deadline) = (Handle::current().id(), Instant::now() + time);
        let unused = UNUSED.with_borrow_mut(Vec::pop);
        // A thread may have had another runtime before, which has ended.
        let registered = match unused.filter(|it| it.runtime == runtime) {
            Some(mut registered) => {
                registered.sleep.as_mut().reset(deadline);
                registered
            }
            None => Registered { runtime, sleep: Box::pin(sleep_until(deadline)) },
        };
        Self(Some(registered))
    }

    /// Ready once the timer has fired. Returns its deadline.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Instant> {
        let Some(registered) = &mut self.0 else { return Poll::Pending };
        registered.sleep.as_mut().poll(context).map(|()| registered.sleep.deadline())
    }

    /// Moves the deadline.
    pub(crate) fn reset(&mut self, deadline: Instant) {
        if let Some(registered) = &mut self.0 {
            registered.sleep.as_mut().reset(deadline);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let Some(registered) = self.0.take() else { return };
        // While a thread ends, its list may be gone. The timer is then dropped.
        let _ = UNUSED.try_with(|unused| {
            let mut unused = unused.borrow_mut();
            if unused.len() < MOST_KEPT {
                unused.push(registered);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn in_runtime<T>(of: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(of)
    }

    async fn fires(timer: &mut Timer, after: Duration) {
        let begin = Instant::now();
        poll_fn(|context| timer.poll(context)).await;
        assert!(begin.elapsed() >= after, "{:?}", begin.elapsed());
    }

    #[test]
    fn a_reused_timer_fires_at_its_new_deadline_whether_the_old_one_has_passed_or_not() {
        const SHORT: Duration = Duration::from_millis(20);
        in_runtime(async {
            let mut timer = Timer::after(SHORT);
            fires(&mut timer, SHORT).await;
            drop(timer);
            fires(&mut Timer::after(SHORT), SHORT).await;
            let mut unfired = Timer::after(SHORT / 2);
            assert!(poll_fn(|context| Poll::Ready(unfired.poll(context))).await.is_pending());
            drop(unfired);
            let mut timer = Timer::after(SHORT);
            fires(&mut timer, SHORT).await;
            timer.reset(Instant::now() + SHORT);
            fires(&mut timer, SHORT).await;
            assert!(UNUSED.with_borrow(Vec::is_empty), "all of them were one registration");
        });
    }

    #[test]
    fn a_timer_of_a_runtime_that_has_ended_is_not_reused() {
        in_runtime(async { drop(Timer::after(Duration::from_secs(1))) });
        const SHORT: Duration = Duration::from_millis(2);
        in_runtime(async { fires(&mut Timer::after(SHORT), SHORT).await });
    }

    #[test]
    fn a_thread_keeps_few_timers() {
        in_runtime(async {
            drop([(); MOST_KEPT + 1].map(|()| Timer::after(Duration::from_secs(1))));
            assert_eq!(UNUSED.with_borrow(Vec::len), MOST_KEPT);
        });
    }
}
