//! The frames of an asynchronous function: the memory that its local variables live in while it
//! waits. A frame is used for one call after another, so that a call which never waits allocates
//! nothing, and calls within calls of the same function have a frame each.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Frames that are kept for the next calls. Where thousands wait, the others are freed.
const KEPT: usize = 64;

/// The frames of one function, which takes an `A` and returns a `T`.
pub(crate) struct Frames<A, T> {
    make: Box<dyn Fn() -> Frame<A, T>>,
    kept: RefCell<Vec<Frame<A, T>>>,
}

/// The memory of one call at a time.
struct Frame<A, T> {
    /// Takes an argument, runs the function, returns its result, and waits for the next argument.
    future: Pin<Box<dyn Future<Output = Infallible>>>,
    exchange: Rc<Exchange<A, T>>,
}

/// Where a frame finds the argument and leaves the result.
struct Exchange<A, T> {
    argument: Cell<Option<A>>,
    result: Cell<Option<T>>,
}

impl<A: 'static, T: 'static> Frames<A, T> {
    /// Frames of this function. The parameter has the function's own type and not that of a
    /// pointer, so that its future is written into the frame and not copied there.
    pub(crate) fn new<F>(function: impl Fn(A) -> F + Copy + 'static) -> Rc<Self>
    where
        F: Future<Output = T> + 'static,
    {
        let make = move || {
            let exchange = Rc::new(Exchange { argument: Cell::new(None), result: Cell::new(None) });
            let own = Rc::clone(&exchange);
            let future = Box::pin(async move {
                loop {
                    let next = poll_fn(|_| match own.argument.take() {
                        Some(argument) => Poll::Ready(argument),
                        None => Poll::Pending,
                    });
                    let result = function(next.await).await;
                    own.result.set(Some(result));
                }
            });
            Frame { future, exchange }
        };
        Rc::new(Self { make: Box::new(make), kept: RefCell::default() })
    }

    /// Calls the function; nothing of it runs before the call is polled.
    pub(crate) fn call(self: &Rc<Self>, argument: A) -> Call<A, T> {
        let kept = self.kept.borrow_mut().pop();
        let frame = kept.unwrap_or_else(|| (self.make)());
        frame.exchange.argument.set(Some(argument));
        Call { frames: Rc::clone(self), frame: Some(frame) }
    }
}

/// A call that runs. Dropping it ends the function where it waits.
pub(crate) struct Call<A, T> {
    frames: Rc<Frames<A, T>>,
    /// None when the function has returned.
    frame: Option<Frame<A, T>>,
}

impl<A, T> Call<A, T> {
    /// Runs the function until it returns or has to wait.
    pub(crate) fn run_now(&mut self) -> Option<T> {
        now_or_never(Pin::new(self))
    }

    fn step(&mut self, context: &mut Context<'_>) -> Poll<T> {
        // A function that panics takes its frame with it.
        let Some(mut frame) = self.frame.take() else { return Poll::Pending };
        let Poll::Pending = frame.future.as_mut().poll(context);
        let Some(result) = frame.exchange.result.take() else {
            self.frame = Some(frame);
            return Poll::Pending;
        };
        let mut kept = self.frames.kept.borrow_mut();
        if kept.len() < KEPT {
            kept.push(frame);
        }
        Poll::Ready(result)
    }
}

impl<A, T> Future for Call<A, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.get_mut().step(context)
    }
}

/// A result that is usually there at once, and otherwise has to be waited for. The future of the
/// rare case is boxed, so that the frames of other requests need no room for it.
pub(crate) enum MaybeReady<'a, T> {
    /// It is there; none once it was taken.
    Now(Option<T>),
    /// It is waited for.
    Later(Pin<Box<dyn Future<Output = T> + 'a>>),
}

impl<'a, T> MaybeReady<'a, T> {
    /// What is there.
    pub(crate) fn now(value: T) -> Self {
        MaybeReady::Now(Some(value))
    }

    /// What this future gives.
    pub(crate) fn later(future: impl Future<Output = T> + 'a) -> Self {
        MaybeReady::Later(Box::pin(future))
    }
}

impl<T: Unpin> Future for MaybeReady<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            MaybeReady::Now(value) => value.take().map_or(Poll::Pending, Poll::Ready),
            MaybeReady::Later(future) => future.as_mut().poll(context),
        }
    }
}

/// What a future gives that need not wait.
pub(crate) fn now_or_never<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits once for each unit of its argument.
    async fn doubled(number: u32) -> u32 {
        for _ in 0..number {
            let mut has_waited = false;
            let wait = poll_fn(|_| match std::mem::replace(&mut has_waited, true) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            wait.await;
        }
        number * 2
    }

    #[test]
    fn a_call_that_does_not_wait_returns_at_once_and_its_frame_is_used_again() {
        let frames = Frames::new(doubled);
        assert_eq!(frames.call(0).run_now(), Some(0));
        assert_eq!(frames.kept.borrow().len(), 1);
        let mut call = frames.call(2);
        assert!(frames.kept.borrow().is_empty());
        assert_eq!(call.run_now(), None);
        // Another begins while the first one waits.
        assert_eq!(frames.call(0).run_now(), Some(0));
        assert_eq!(call.run_now(), None);
        assert_eq!(call.run_now(), Some(4));
        assert_eq!(frames.kept.borrow().len(), 2);
    }

    #[test]
    fn a_call_that_is_dropped_while_it_waits_takes_its_frame_with_it() {
        let frames = Frames::new(doubled);
        let mut call = frames.call(1);
        assert_eq!(call.run_now(), None);
        drop(call);
        assert!(frames.kept.borrow().is_empty());
        assert_eq!(frames.call(0).run_now(), Some(0));
    }

    #[test]
    fn a_panic_frees_the_frame() {
        async fn fails(fail: bool) {
            assert!(!fail, "told to");
        }
        let frames = Frames::new(fails);
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            frames.call(true).run_now();
        }));
        assert!(failed.is_err() && frames.kept.borrow().is_empty());
        assert_eq!(frames.call(false).run_now(), Some(()));
    }

    fn size<A, F>(_: fn(A) -> F) -> usize {
        size_of::<F>()
    }

    /// Thousands of requests may wait at a time, and each keeps its frame. A phase that is rare and
    /// large is boxed.
    #[test]
    fn the_frame_of_a_response_is_small() {
        assert!(size(crate::serve::respond) <= 1024);
        assert!(size(crate::look::look) <= 1024);
    }
}
