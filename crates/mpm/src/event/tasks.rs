//! The connections of a serving thread that wait for something else than their next request. Work
//! goes in; when it has come to its end, the bench carries its outcome out. All of them together
//! are one task of the runtime: a task for each would be aligned to cache lines, which costs an
//! allocator more than the work itself.

use super::park::{Bench, Counted};
use evenkeel_sys::turn::{Outcome, Work};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// How many come to their end before sockets get their turn.
const TURN: usize = 64;

/// Work that has begun since its thread last looked.
#[derive(Default)]
pub(super) struct Begun {
    running: RefCell<Vec<Running>>,
    waker: Cell<Option<Waker>>,
}

impl Begun {
    /// Has the work of a connection go on, which is registered in a set where it has an owner.
    pub(super) fn begin(&self, bench: &Rc<Bench>, work: Work, owner: Option<u8>) {
        let open = Open { bench: Rc::clone(bench), owner, settled: false };
        self.running.borrow_mut().push(Running { work, open });
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// All that runs, as one future that has no end.
pub(super) struct Tasks {
    bench: Rc<Bench>,
    all: FuturesUnordered<Running>,
}

impl Tasks {
    pub(super) fn new(bench: Rc<Bench>) -> Self {
        Self { bench, all: FuturesUnordered::new() }
    }
}

impl Future for Tasks {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let begun = &this.bench.begun;
        this.all.extend(begun.running.borrow_mut().drain(..));
        begun.waker.set(Some(context.waker().clone()));
        for _ in 0..TURN {
            let Poll::Ready(Some(())) = this.all.poll_next_unpin(context) else {
                return Poll::Pending;
            };
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Work on its way to its end.
struct Running {
    work: Work,
    open: Open,
}

impl Future for Running {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            // A panic ends this connection, and no other.
            let polled = catch_unwind(AssertUnwindSafe(|| this.work.as_mut().poll(context)));
            match polled {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(Outcome::Work(work))) => this.work = work,
                Ok(Poll::Ready(outcome)) => {
                    this.open.settled = true;
                    let counted = Counted { class: None, owner: this.open.owner };
                    this.open.bench.settle(outcome, counted);
                    return Poll::Ready(());
                }
                Err(_) => return Poll::Ready(()),
            }
        }
    }
}

/// A connection at work, which is counted as closed should the work come to grief.
struct Open {
    bench: Rc<Bench>,
    owner: Option<u8>,
    settled: bool,
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.settled {
            self.bench.count_closed(Counted { class: None, owner: self.owner });
        }
    }
}
