//! The tasks of a serving thread: connections that wait for something other than their next
//! request. All of them are polled within one task of the runtime. A runtime task for each would be
//! aligned to cache lines, which costs an allocator more than the work itself.

use super::context::{CountedAs, ThreadContext, ahead_ms, now_ms};
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

/// How many tasks are polled before sockets and timers run, besides those that were spawned since:
/// as many as a batch of sockets may spawn.
const BATCH: usize = 64;

/// Tasks that were spawned since the last poll.
#[derive(Default)]
pub(super) struct TaskQueue {
    spawned: RefCell<Vec<RunningTask>>,
    /// The waker of the runtime task, which never changes.
    waker: OnceCell<Waker>,
    /// How many tasks may still be polled this time.
    polls_left: Cell<usize>,
    /// How many tasks that wait for a request head are to be closed.
    to_close: Cell<usize>,
}

impl TaskQueue {
    /// Spawns the task of a connection, which is registered with the set of `owner` if it has one.
    /// If the task waits for a request head, `head_since_ms` is since when, in milliseconds of
    /// [`now_ms`], and the task may be dropped.
    pub(super) fn spawn(
        &self,
        thread: &Rc<ThreadContext>,
        task: ConnectionTask,
        owner: Option<u8>,
        head_since_ms: Option<u32>,
    ) {
        let open = OpenConnection { thread: Rc::clone(thread), owner, applied: false };
        self.spawned.borrow_mut().push(RunningTask { task, open, head_since_ms, waker: None });
        self.wake();
    }

    /// Closes `count` of the connections that have waited the longest for a request head, because
    /// descriptors are short.
    pub(super) fn close_heads(&self, count: usize) {
        self.to_close.set(count);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

/// All tasks, as one future that never ends.
pub(super) struct Tasks {
    thread: Rc<ThreadContext>,
    all: FuturesUnordered<RunningTask>,
}

impl Tasks {
    pub(super) fn new(thread: Rc<ThreadContext>) -> Self {
        // A FuturesUnordered whose futures were all polled once wakes itself. A future that is
        // never ready avoids that.
        let open = OpenConnection { thread: Rc::clone(&thread), owner: None, applied: true };
        let task: ConnectionTask = Box::pin(pending());
        let never = RunningTask { task, open, head_since_ms: None, waker: None };
        Self { thread, all: FuturesUnordered::from_iter([never]) }
    }
}

impl Future for Tasks {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // A thread without its tasks would leave requests unfinished.
        let _abort = AbortOnPanic;
        let this = self.get_mut();
        let new_tasks = &this.thread.new_tasks;
        new_tasks.waker.get_or_init(|| context.waker().clone());
        {
            let mut spawned = new_tasks.spawned.borrow_mut();
            new_tasks.polls_left.set(BATCH + spawned.len());
            this.all.extend(spawned.drain(..));
        }
        let to_close = new_tasks.to_close.take();
        if to_close > 0 {
            close_heads(&mut this.all, to_close);
        }
        while this.all.poll_next_unpin(context) == Poll::Ready(Some(())) {}
        // Requests that wait for expensive work leave room for other connections.
        let shared = &this.thread.shared;
        if shared.blocking_pool.bulkhead().waiting() > 0 {
            shared.signal_room();
        }
        Poll::Pending
    }
}

/// Ends `count` tasks that wait for a request head, the longest waits first.
fn close_heads(all: &mut FuturesUnordered<RunningTask>, count: usize) {
    let now = now_ms();
    let age_ms =
        |running: &&mut RunningTask| running.head_since_ms.map(|since| ahead_ms(since, now));
    let mut heads: Vec<&mut RunningTask> =
        all.iter_mut().filter(|running| running.head_since_ms.is_some()).collect();
    heads.sort_unstable_by_key(|running| std::cmp::Reverse(age_ms(running)));
    for running in heads.into_iter().take(count) {
        running.head_since_ms = None;
        running.task = Box::pin(ready(Outcome::Closed));
        if let Some(waker) = running.waker.take() {
            waker.wake();
        }
    }
}

/// A task, with what is to be done when it ends.
struct RunningTask {
    task: ConnectionTask,
    open: OpenConnection,
    /// Since when it waits for a request head, until which it may be dropped.
    head_since_ms: Option<u32>,
    /// Wakes it while it waits for a request head.
    waker: Option<Waker>,
}

impl Future for RunningTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let polls_left = &this.open.thread.new_tasks.polls_left;
        // The runtime counts the reads and writes of all of them together, because it knows one
        // task. Once that budget is used up, the others are polled first next time: polled now,
        // they would find nothing ready and queue behind the same connection again.
        let left = polls_left.get().checked_sub(1).filter(|_| has_budget_remaining());
        let Some(left) = left else {
            // After two of these the FuturesUnordered returns and wakes itself.
            context.waker().wake_by_ref();
            return Poll::Pending;
        };
        polls_left.set(left);
        loop {
            // A panic ends this connection only.
            let polled = catch_unwind(AssertUnwindSafe(|| this.task.as_mut().poll(context)));
            match polled {
                Ok(Poll::Pending) => {
                    if this.head_since_ms.is_some() {
                        this.waker.get_or_insert_with(|| context.waker().clone());
                    }
                    return Poll::Pending;
                }
                Ok(Poll::Ready(Outcome::Task(task))) => {
                    (this.task, this.head_since_ms, this.waker) = (task, None, None);
                }
                Ok(Poll::Ready(outcome)) => {
                    this.open.applied = true;
                    let counted = CountedAs { reason: None, owner: this.open.owner };
                    this.open.thread.apply(outcome, counted);
                    return Poll::Ready(());
                }
                Err(_) => return Poll::Ready(()),
            }
        }
    }
}

/// A connection in a task. Dropping it counts the connection as closed, unless its outcome was
/// applied.
struct OpenConnection {
    thread: Rc<ThreadContext>,
    owner: Option<u8>,
    applied: bool,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        if !self.applied {
            self.thread.count_closed(CountedAs { reason: None, owner: self.owner });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::tests::context as thread_context;
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

    /// The tasks of a context, and a function that polls them and returns whether they were woken
    /// since.
    fn tasks() -> (Rc<ThreadContext>, impl FnMut() -> bool, Arc<Woken>) {
        let thread = thread_context();
        let (mut tasks, woken) = (Tasks::new(Rc::clone(&thread)), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let before = Arc::clone(&woken);
        let poll = move || {
            let was_woken = before.0.swap(0, SeqCst) > 0;
            let polled = Pin::new(&mut tasks).poll(&mut Context::from_waker(&waker));
            assert_eq!(polled, Poll::Pending);
            was_woken
        };
        (thread, poll, woken)
    }

    fn spawn(thread: &Rc<ThreadContext>, task: impl Future<Output = Outcome> + 'static) {
        thread.shared.count_accepted();
        thread.new_tasks.spawn(thread, Box::pin(task), None, None);
    }

    fn open(thread: &ThreadContext) -> u64 {
        thread.shared.line.read(Counter::Connections)
    }

    #[test]
    fn those_that_wait_longest_for_a_head_make_room_and_work_is_seen_through() {
        let (thread, mut poll, _) = tasks();
        let dropped = Rc::new(RefCell::new(Vec::new()));
        struct DropProbe(Rc<RefCell<Vec<u32>>>, u32);
        impl Drop for DropProbe {
            fn drop(&mut self) {
                self.0.borrow_mut().push(self.1);
            }
        }
        let now = now_ms();
        for (number, age_ms) in [(1, Some(10)), (2, None), (3, Some(900)), (4, Some(500))] {
            thread.shared.count_accepted();
            let told = DropProbe(Rc::clone(&dropped), number);
            let task = Box::pin(poll_fn(move |_| {
                let _held = &told;
                Poll::Pending
            }));
            let since_ms = age_ms.map(|age| now.wrapping_sub(age));
            thread.new_tasks.spawn(&thread, task, None, since_ms);
        }
        poll();
        thread.new_tasks.close_heads(2);
        assert!(poll());
        assert_eq!((dropped.borrow().clone(), open(&thread)), (vec![3, 4], 2));
        thread.new_tasks.close_heads(9);
        poll();
        assert_eq!((dropped.borrow().clone(), open(&thread)), (vec![3, 4, 1], 1));
    }

    #[test]
    fn a_turn_ends_with_what_it_may_poll_and_goes_on_with_the_rest() {
        let (thread, mut poll, woken) = tasks();
        poll();
        let wakers: Rc<RefCell<Vec<Waker>>> = Rc::default();
        for _ in 0..BATCH + 10 {
            let (wakers, told) = (Rc::clone(&wakers), Cell::new(false));
            spawn(
                &thread,
                poll_fn(move |context| {
                    if told.replace(true) {
                        return Poll::Ready(Outcome::Closed);
                    }
                    wakers.borrow_mut().push(context.waker().clone());
                    Poll::Pending
                }),
            );
        }
        assert!(poll(), "what has new_tasks wakes the task");
        assert_eq!((wakers.borrow().len(), open(&thread)), (BATCH + 10, BATCH as u64 + 10));
        wakers.take().into_iter().for_each(Waker::wake);
        assert!(poll());
        assert_eq!(open(&thread), 10);
        assert!(poll());
        assert_eq!(open(&thread), 0);
        assert_eq!(woken.0.load(SeqCst), 0);
    }

    #[test]
    fn work_that_wakes_itself_ends_its_turn() {
        let (thread, mut poll, _) = tasks();
        poll();
        let polled = Rc::new(Cell::new(0));
        for _ in 0..2 * BATCH {
            let polled = Rc::clone(&polled);
            spawn(
                &thread,
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
        assert!(polled.get() <= 5 * BATCH, "{}", polled.get());
        assert!(poll(), "and it goes on");
    }

    #[test]
    fn those_that_use_up_what_the_runtime_lets_a_turn_read_do_not_keep_one_between_them_waiting() {
        let (thread, mut poll, _) = tasks();
        poll();
        let spends = |context: &mut Context<'_>| {
            while pin!(consume_budget()).poll(context).is_ready() {}
            Poll::Pending
        };
        // The runtime wakes tasks that wait for their budget in the opposite order.
        spawn(&thread, poll_fn(spends));
        spawn(&thread, async {
            consume_budget().await;
            Outcome::Closed
        });
        spawn(&thread, poll_fn(spends));
        let runtime = Builder::new_current_thread().build_local(LocalOptions::default()).unwrap();
        let mut turns = 0;
        runtime.block_on(poll_fn(|context| {
            poll();
            turns += 1;
            context.waker().wake_by_ref();
            if turns < 20 { Poll::Pending } else { Poll::Ready(()) }
        }));
        assert_eq!(open(&thread), 2);
    }

    #[test]
    fn a_panic_closes_its_own_connection_and_a_wake_of_another_thread_is_heard() {
        let (thread, mut poll, _) = tasks();
        poll();
        spawn(&thread, async { panic!("a panic of this test") });
        let (sender, receiver) = std::sync::mpsc::channel();
        let told = Cell::new(false);
        spawn(
            &thread,
            poll_fn(move |context| {
                if told.replace(true) {
                    return Poll::Ready(Outcome::Closed);
                }
                sender.send(context.waker().clone()).unwrap();
                Poll::Pending
            }),
        );
        assert!(poll());
        assert_eq!(open(&thread), 1);
        assert!(!poll(), "nothing is to be done");
        std::thread::spawn(move || receiver.recv().unwrap().wake()).join().unwrap();
        assert!(poll());
        assert_eq!(open(&thread), 0);
    }

    #[test]
    fn what_is_left_when_the_thread_ends_is_counted_as_closed() {
        let (thread, mut poll, _) = tasks();
        spawn(&thread, pending());
        poll();
        assert_eq!(open(&thread), 1);
        drop(poll);
        assert_eq!(open(&thread), 0);
    }
}
