//! The connections of a serving thread that wait for something else than their next request. Work
//! goes in; when it has come to its end, the bench carries its outcome out. All of them together
//! are one task of the runtime: a task for each would be aligned to cache lines, which costs an
//! allocator more than the work itself.

use super::park::{Bench, Counted, ahead_ms, now_ms};
use crate::start_barrier::AbortOnPanic;
use evenkeel_sys::dispatch::{ConnectionTask, Outcome};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::{Future, pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::task::coop::has_budget_remaining;

/// How many are polled before sockets and timers get their turn, beside what has begun in the turn
/// before: as many as a turn of sockets may begin.
const TURN: usize = 64;

/// Work that has begun since its thread last looked.
#[derive(Default)]
pub(super) struct Begun {
    running: RefCell<Vec<Running>>,
    /// The task's own, which never changes.
    waker: OnceCell<Waker>,
    /// How many may still be polled in this turn.
    allowance: Cell<usize>,
    /// How many that wait for a head are to be closed.
    relief: Cell<usize>,
}

impl Begun {
    /// Has the work of a connection go on, which is registered in a set where it has an owner. It
    /// may be dropped while it waits for a head, from when in milliseconds of [`now_ms`].
    pub(super) fn begin(
        &self,
        bench: &Rc<Bench>,
        work: ConnectionTask,
        owner: Option<u8>,
        head_since_ms: Option<u32>,
    ) {
        let open = Open { bench: Rc::clone(bench), owner, settled: false };
        self.running.borrow_mut().push(Running { work, open, head_since_ms, waker: None });
        self.wake();
    }

    /// Closes so many of the connections that have waited longest for the head of a request, where
    /// descriptors are short.
    pub(super) fn relieve(&self, count: usize) {
        self.relief.set(count);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
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
        // A set whose members were all polled once has itself polled again. One that never wakes
        // spares it that.
        let open = Open { bench: Rc::clone(&bench), owner: None, settled: true };
        let work: ConnectionTask = Box::pin(pending());
        let never = Running { work, open, head_since_ms: None, waker: None };
        Self { bench, all: FuturesUnordered::from_iter([never]) }
    }
}

impl Future for Tasks {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Without its tasks a thread serves nobody to the end.
        let _abort = AbortOnPanic;
        let this = self.get_mut();
        let begun = &this.bench.begun;
        begun.waker.get_or_init(|| context.waker().clone());
        {
            let mut running = begun.running.borrow_mut();
            begun.allowance.set(TURN + running.len());
            this.all.extend(running.drain(..));
        }
        let relief = begun.relief.take();
        if relief > 0 {
            close_heads(&mut this.all, relief);
        }
        while this.all.poll_next_unpin(context) == Poll::Ready(Some(())) {}
        // Requests that wait for expensive work leave room for other connections.
        let shared = &this.bench.shared;
        if shared.blocking_pool.bulkhead().waiting() > 0 {
            shared.note_room();
        }
        Poll::Pending
    }
}

/// Has so many of those that wait for a head end, the longest first.
fn close_heads(all: &mut FuturesUnordered<Running>, count: usize) {
    let now = now_ms();
    let age_ms = |running: &&mut Running| running.head_since_ms.map(|since| ahead_ms(since, now));
    let mut heads: Vec<&mut Running> =
        all.iter_mut().filter(|running| running.head_since_ms.is_some()).collect();
    heads.sort_unstable_by_key(|running| std::cmp::Reverse(age_ms(running)));
    for running in heads.into_iter().take(count) {
        running.head_since_ms = None;
        running.work = Box::pin(ready(Outcome::Closed));
        if let Some(waker) = running.waker.take() {
            waker.wake();
        }
    }
}

/// Work on its way to its end.
struct Running {
    work: ConnectionTask,
    open: Open,
    /// Since when it waits for a head, before which it may be dropped.
    head_since_ms: Option<u32>,
    /// What has it polled again, while it waits for a head.
    waker: Option<Waker>,
}

impl Future for Running {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let allowance = &this.open.bench.begun.allowance;
        // The runtime counts what all of them read and write in a turn, for it takes them for one
        // task. Those behind a connection that has used that up come first in the next turn: polled
        // now, they would find nothing ready, and would stand behind it again.
        let left = allowance.get().checked_sub(1).filter(|_| has_budget_remaining());
        let Some(left) = left else {
            // Two that say so end the turn of the set, which has itself polled again.
            context.waker().wake_by_ref();
            return Poll::Pending;
        };
        allowance.set(left);
        loop {
            // A panic ends this connection, and no other.
            let polled = catch_unwind(AssertUnwindSafe(|| this.work.as_mut().poll(context)));
            match polled {
                Ok(Poll::Pending) => {
                    if this.head_since_ms.is_some() {
                        this.waker.get_or_insert_with(|| context.waker().clone());
                    }
                    return Poll::Pending;
                }
                Ok(Poll::Ready(Outcome::Task(work))) => {
                    (this.work, this.head_since_ms, this.waker) = (work, None, None);
                }
                Ok(Poll::Ready(outcome)) => {
                    this.open.settled = true;
                    let counted = Counted { reason: None, owner: this.open.owner };
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
            self.bench.count_closed(Counted { reason: None, owner: self.owner });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::park::tests::bench;
    use super::*;
    use evenkeel_scoreboard::Counter;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;
    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::coop::consume_budget;

    /// Counts how often the task was woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// The tasks of a bench, and what polls them: it tells whether they were woken since.
    fn tasks() -> (Rc<Bench>, impl FnMut() -> bool, Arc<Woken>) {
        let bench = bench();
        let (mut tasks, woken) = (Tasks::new(Rc::clone(&bench)), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let before = Arc::clone(&woken);
        let poll = move || {
            let was_woken = before.0.swap(0, SeqCst) > 0;
            let polled = Pin::new(&mut tasks).poll(&mut Context::from_waker(&waker));
            assert_eq!(polled, Poll::Pending);
            was_woken
        };
        (bench, poll, woken)
    }

    fn begin(bench: &Rc<Bench>, work: impl Future<Output = Outcome> + 'static) {
        bench.shared.count_accepted();
        bench.begun.begin(bench, Box::pin(work), None, None);
    }

    fn open(bench: &Bench) -> u64 {
        bench.shared.line.read(Counter::Connections)
    }

    #[test]
    fn those_that_wait_longest_for_a_head_make_room_and_work_is_seen_through() {
        let (bench, mut poll, _) = tasks();
        let dropped = Rc::new(RefCell::new(Vec::new()));
        struct Told(Rc<RefCell<Vec<u32>>>, u32);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.borrow_mut().push(self.1);
            }
        }
        let now = now_ms();
        for (number, age_ms) in [(1, Some(10)), (2, None), (3, Some(900)), (4, Some(500))] {
            bench.shared.count_accepted();
            let told = Told(Rc::clone(&dropped), number);
            let work = Box::pin(poll_fn(move |_| {
                let _held = &told;
                Poll::Pending
            }));
            let since_ms = age_ms.map(|age| now.wrapping_sub(age));
            bench.begun.begin(&bench, work, None, since_ms);
        }
        poll();
        bench.begun.relieve(2);
        assert!(poll());
        assert_eq!((dropped.borrow().clone(), open(&bench)), (vec![3, 4], 2));
        bench.begun.relieve(9);
        poll();
        assert_eq!((dropped.borrow().clone(), open(&bench)), (vec![3, 4, 1], 1));
    }

    #[test]
    fn a_turn_ends_with_what_it_may_poll_and_goes_on_with_the_rest() {
        let (bench, mut poll, woken) = tasks();
        poll();
        let wakers: Rc<RefCell<Vec<Waker>>> = Rc::default();
        for _ in 0..TURN + 10 {
            let (wakers, told) = (Rc::clone(&wakers), Cell::new(false));
            begin(
                &bench,
                poll_fn(move |context| {
                    if told.replace(true) {
                        return Poll::Ready(Outcome::Closed);
                    }
                    wakers.borrow_mut().push(context.waker().clone());
                    Poll::Pending
                }),
            );
        }
        assert!(poll(), "what has begun wakes the task");
        assert_eq!((wakers.borrow().len(), open(&bench)), (TURN + 10, TURN as u64 + 10));
        wakers.take().into_iter().for_each(Waker::wake);
        assert!(poll());
        assert_eq!(open(&bench), 10);
        assert!(poll());
        assert_eq!(open(&bench), 0);
        assert_eq!(woken.0.load(SeqCst), 0);
    }

    #[test]
    fn work_that_wakes_itself_ends_its_turn() {
        let (bench, mut poll, _) = tasks();
        poll();
        let polled = Rc::new(Cell::new(0));
        for _ in 0..2 * TURN {
            let polled = Rc::clone(&polled);
            begin(
                &bench,
                poll_fn(move |context| {
                    polled.set(polled.get() + 1);
                    context.waker().wake_by_ref();
                    Poll::Pending
                }),
            );
        }
        for _ in 0..3 {
            assert!(poll());
        }
        assert!(polled.get() <= 5 * TURN, "{}", polled.get());
        assert!(poll(), "and it goes on");
    }

    #[test]
    fn those_that_use_up_what_the_runtime_lets_a_turn_read_do_not_keep_one_between_them_waiting() {
        let (bench, mut poll, _) = tasks();
        poll();
        let spends = |context: &mut Context<'_>| {
            while pin!(consume_budget()).poll(context).is_ready() {}
            Poll::Pending
        };
        // The runtime wakes those that wait for a turn in the opposite order.
        begin(&bench, poll_fn(spends));
        begin(&bench, async {
            consume_budget().await;
            Outcome::Closed
        });
        begin(&bench, poll_fn(spends));
        let runtime = Builder::new_current_thread().build_local(LocalOptions::default()).unwrap();
        let mut turns = 0;
        runtime.block_on(poll_fn(|context| {
            poll();
            turns += 1;
            context.waker().wake_by_ref();
            if turns < 20 { Poll::Pending } else { Poll::Ready(()) }
        }));
        assert_eq!(open(&bench), 2);
    }

    #[test]
    fn a_panic_closes_its_own_connection_and_a_wake_of_another_thread_is_heard() {
        let (bench, mut poll, _) = tasks();
        poll();
        begin(&bench, async { panic!("a panic of this test") });
        let (sender, receiver) = std::sync::mpsc::channel();
        let told = Cell::new(false);
        begin(
            &bench,
            poll_fn(move |context| {
                if told.replace(true) {
                    return Poll::Ready(Outcome::Closed);
                }
                sender.send(context.waker().clone()).unwrap();
                Poll::Pending
            }),
        );
        assert!(poll());
        assert_eq!(open(&bench), 1);
        assert!(!poll(), "nothing is to be done");
        std::thread::spawn(move || receiver.recv().unwrap().wake()).join().unwrap();
        assert!(poll());
        assert_eq!(open(&bench), 0);
    }

    #[test]
    fn what_is_left_when_the_thread_ends_is_counted_as_closed() {
        let (bench, mut poll, _) = tasks();
        begin(&bench, pending());
        poll();
        assert_eq!(open(&bench), 1);
        drop(poll);
        assert_eq!(open(&bench), 0);
    }
}
