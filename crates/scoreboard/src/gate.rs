//! The gate of a child: a semaphore with the credits of its budget. A request in progress holds a
//! credit. A caller that finds none waits in order, and is granted the next one that is returned.
//! While credits are free, taking and returning one are two atomic operations without a lock.

use crate::child::{ChildLine, Counter};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

#[cfg(all(test, loom))]
use loom::sync::{Mutex, MutexGuard, atomic::AtomicU32, atomic::AtomicUsize};
#[cfg(not(all(test, loom)))]
use std::sync::{Mutex, MutexGuard, atomic::AtomicU32, atomic::AtomicUsize};

/// The credits of a child, shared by its serving threads.
pub struct Gate {
    free: AtomicU32,
    /// Credits by which the budget has shrunk while they were in use: they are withdrawn when they
    /// are returned.
    debt: AtomicU32,
    /// The budget. Its lock allows one change at a time.
    budget: Mutex<u32>,
    /// How many waiters are queued, so that returning a credit need not lock the queue.
    waiting: AtomicUsize,
    queue: Mutex<WaitQueue>,
    /// Where the credits in use are published; none for an open gate.
    published: Option<ChildLine>,
}

/// The waiters by number. A waiter that is dropped leaves the queue.
#[derive(Default)]
struct WaitQueue {
    waiters: BTreeMap<u64, Arc<Waiter>>,
    next: u64,
}

/// A credit: the right to work on one request. Dropping it returns it.
pub struct Credit(Arc<Gate>);

/// A queued waiter.
struct Waiter(Mutex<WaiterState>);

struct WaiterState {
    waker: Waker,
    /// Credits that were granted and not fetched yet.
    granted: u32,
    /// How many more are wanted; a waiter that wants none is not queued.
    wanted: u32,
    /// Its number in the queue, while it is queued.
    number: u64,
}

impl Gate {
    /// A gate with `credits` credits, at least one. The credits in use are published in the child's
    /// line.
    #[must_use]
    pub fn new(credits: u32, published: ChildLine) -> Arc<Self> {
        Self::with(credits.max(1), Some(published))
    }

    /// A gate without a bound, for models where a connection holds a worker from accept to close:
    /// requests wait for no credit there, and workers are counted instead.
    #[must_use]
    pub fn open() -> Arc<Self> {
        Self::with(0, None)
    }

    fn with(credits: u32, published: Option<ChildLine>) -> Arc<Self> {
        Arc::new(Self {
            free: AtomicU32::new(credits),
            debt: AtomicU32::new(0),
            budget: Mutex::new(credits),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(WaitQueue::default()),
            published,
        })
    }

    /// A credit, if one is free and no caller waits.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<Credit> {
        if self.waiting.load(SeqCst) > 0 {
            return None;
        }
        self.take_free()
    }

    /// Waits for a credit, in order.
    #[must_use]
    pub fn wait(self: &Arc<Self>) -> Waiting {
        self.wait_for(1)
    }

    /// Waits for a credit, and for up to `most` until the first is fetched. Credits that are
    /// returned together go to all waiters in turn, and not to the one that is polled first.
    #[must_use]
    pub fn wait_for(self: &Arc<Self>, most: u32) -> Waiting {
        Waiting { gate: Arc::clone(self), waiter: None, most: most.max(1), extra: 0 }
    }

    /// How many callers wait for a credit.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Changes the number of credits, at least one. Surplus credits that are in use are withdrawn
    /// when they are returned.
    pub fn resize(&self, credits: u32) {
        let mut budget = lock(&self.budget);
        let credits = credits.max(1);
        if let Some(fewer) = budget.checked_sub(credits) {
            self.debt.fetch_add(fewer, SeqCst);
            in_total_order();
            self.settle_debt();
        } else {
            self.free.fetch_add(credits - *budget, SeqCst);
            in_total_order();
            // What was still owed is settled with the new credits.
            self.settle_debt();
            if self.waiting.load(SeqCst) > 0 {
                self.grant();
            }
        }
        *budget = credits;
    }

    /// Withdraws free credits until the debt is settled. A thread that adds to the debt checks for
    /// free credits afterwards, and a thread that frees a credit checks the debt afterwards, so
    /// that at least one of them sees both.
    fn settle_debt(&self) {
        while decrement(&self.debt) {
            if decrement(&self.free) {
                continue;
            }
            self.debt.fetch_add(1, SeqCst);
            in_total_order();
            // A credit that was returned meanwhile may have seen no debt.
            if self.free.load(SeqCst) == 0 {
                return;
            }
        }
    }

    fn take_free(self: &Arc<Self>) -> Option<Credit> {
        if let Some(line) = self.published {
            self.free.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1)).ok()?;
            line.add(Counter::Busy, 1);
        }
        Some(Credit(Arc::clone(self)))
    }

    /// Returns a credit: it is free first, and the waiters are checked afterwards. A waiter is
    /// counted first and checks for a free credit afterwards, so that at least one of the two sees
    /// the other.
    fn release(self: &Arc<Self>) {
        let Some(line) = self.published else { return };
        line.subtract(Counter::Busy, 1);
        self.free.fetch_add(1, SeqCst);
        in_total_order();
        if self.debt.load(SeqCst) > 0 {
            self.settle_debt();
        }
        if self.waiting.load(SeqCst) > 0 {
            self.grant();
        }
    }

    /// Grants free credits to the waiters, one each in turn.
    fn grant(&self) {
        let mut queue = lock(&self.queue);
        while let Some(first) = queue.waiters.first_entry() {
            if self.free.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1)).is_err() {
                return;
            }
            if let Some(line) = self.published {
                line.add(Counter::Busy, 1);
            }
            let waiter = first.remove();
            let mut state = lock(&waiter.0);
            state.granted += 1;
            state.wanted = state.wanted.saturating_sub(1);
            state.waker.wake_by_ref();
            if state.wanted > 0 {
                state.number = queue.next;
                drop(state);
                queue.push(waiter);
            } else {
                self.waiting.fetch_sub(1, SeqCst);
            }
        }
    }

    /// Queues a waiter.
    fn enqueue(&self, state: WaiterState) -> Arc<Waiter> {
        self.waiting.fetch_add(1, SeqCst);
        in_total_order();
        let mut queue = lock(&self.queue);
        let waiter = Arc::new(Waiter(Mutex::new(WaiterState { number: queue.next, ..state })));
        queue.push(Arc::clone(&waiter));
        waiter
    }

    /// Removes a waiter from the queue, if it is queued, and takes the credits that were granted to
    /// it.
    fn dequeue(&self, waiter: &Waiter) -> u32 {
        let mut queue = lock(&self.queue);
        let mut state = lock(&waiter.0);
        if std::mem::take(&mut state.wanted) > 0 {
            queue.waiters.remove(&state.number);
            self.waiting.fetch_sub(1, SeqCst);
        }
        std::mem::take(&mut state.granted)
    }
}

impl WaitQueue {
    /// Adds a waiter, which has the next number, at the end.
    fn push(&mut self, waiter: Arc<Waiter>) {
        self.waiters.insert(self.next, waiter);
        self.next += 1;
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The future of a credit. Dropping it leaves the queue and returns the credits that were not
/// fetched.
pub struct Waiting {
    gate: Arc<Gate>,
    waiter: Option<Arc<Waiter>>,
    most: u32,
    extra: u32,
}

impl Waiting {
    /// Another of the credits that were granted together.
    #[must_use]
    pub fn more(&mut self) -> Option<Credit> {
        self.extra = self.extra.checked_sub(1)?;
        Some(Credit(Arc::clone(&self.gate)))
    }

    /// Whether it was queued when it was last polled.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.waiter.is_some()
    }
}

impl Future for Waiting {
    type Output = Credit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Credit> {
        if let Some(credit) = self.more() {
            return Poll::Ready(credit);
        }
        if self.waiter.is_none() {
            if let Some(credit) = self.gate.take() {
                return Poll::Ready(credit);
            }
            let waker = context.waker().clone();
            let state = WaiterState { waker, granted: 0, wanted: self.most, number: 0 };
            self.waiter = Some(self.gate.enqueue(state));
            self.gate.grant();
        }
        let Some(waiter) = self.waiter.take() else { return Poll::Pending };
        let mut state = lock(&waiter.0);
        if state.granted == 0 {
            state.waker.clone_from(context.waker());
            drop(state);
            self.waiter = Some(waiter);
            return Poll::Pending;
        }
        drop(state);
        self.extra = self.gate.dequeue(&waiter).saturating_sub(1);
        Poll::Ready(Credit(Arc::clone(&self.gate)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        while let Some(credit) = self.more() {
            drop(credit);
        }
        let Some(waiter) = self.waiter.take() else { return };
        for _ in 0..self.gate.dequeue(&waiter) {
            drop(Credit(Arc::clone(&self.gate)));
        }
    }
}

/// Subtracts one, unless the number is zero.
fn decrement(number: &AtomicU32) -> bool {
    number.fetch_update(SeqCst, SeqCst, |number| number.checked_sub(1)).is_ok()
}

/// Stands between two steps whose order all threads must see alike. `SeqCst` alone guarantees that,
/// but loom models it for fences only and treats other operations as `AcqRel`.
#[cfg(all(test, loom))]
fn in_total_order() {
    loom::sync::atomic::fence(SeqCst);
}

#[cfg(not(all(test, loom)))]
const fn in_total_order() {}

/// A poisoned lock is used all the same: a panic leaves no state half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{Layout, Scoreboard};
    use std::sync::atomic::{AtomicU32 as Count, Ordering};
    use std::task::Wake;

    struct Woken(Count);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn gate(credits: u32) -> Arc<Gate> {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 4 }).unwrap();
        Gate::new(credits, board.child_line(0).unwrap())
    }

    fn poll(waiting: &mut Waiting, woken: &Arc<Woken>) -> Poll<Credit> {
        let waker = Waker::from(Arc::clone(woken));
        Pin::new(waiting).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn credits_end_and_come_back_in_order() {
        let gate = gate(2);
        let (one, two) = (gate.take().unwrap(), gate.take().unwrap());
        assert!(gate.take().is_none());
        let woken = Arc::new(Woken(Count::new(0)));
        let (mut first, mut second) = (gate.wait(), gate.wait());
        assert!(poll(&mut first, &woken).is_pending());
        assert!(poll(&mut second, &woken).is_pending());
        drop(one);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(gate.take().is_none(), "nothing overtakes the queue");
        assert!(poll(&mut second, &woken).is_pending());
        assert!(poll(&mut first, &woken).is_ready());
        assert!(poll(&mut second, &woken).is_ready());
        drop(two);
        assert_eq!(gate.published.unwrap().read(Counter::Busy), 0);
        assert_eq!(gate.waiting(), 0);
    }

    #[test]
    fn an_open_gate_never_waits() {
        let gate = Gate::open();
        let woken = Arc::new(Woken(Count::new(0)));
        let held: Vec<_> = (0..1000).map(|_| gate.take().unwrap()).collect();
        let mut waiting = gate.wait_for(3);
        assert!(poll(&mut waiting, &woken).is_ready() && waiting.more().is_none());
        drop(held);
        assert!(gate.take().is_some() && gate.waiting() == 0);
    }

    #[test]
    fn a_dropped_waiter_keeps_no_credit() {
        let gate = gate(1);
        let held = gate.take().unwrap();
        let woken = Arc::new(Woken(Count::new(0)));
        let (mut gone, mut granted, mut last) = (gate.wait(), gate.wait(), gate.wait());
        assert!(poll(&mut gone, &woken).is_pending());
        assert!(poll(&mut granted, &woken).is_pending());
        assert!(poll(&mut last, &woken).is_pending());
        drop(gone);
        drop(held);
        drop(granted);
        assert!(poll(&mut last, &woken).is_ready());
        assert!(gate.take().is_some());
    }

    #[test]
    fn the_queue_holds_no_dropped_waiters() {
        let gate = gate(1);
        let held = gate.take().unwrap();
        let woken = Arc::new(Woken(Count::new(0)));
        let mut first = gate.wait();
        assert!(poll(&mut first, &woken).is_pending());
        for most in [1, 3] {
            for _ in 0..100 {
                assert!(poll(&mut gate.wait_for(most), &woken).is_pending());
            }
        }
        assert_eq!((gate.waiting(), lock(&gate.queue).waiters.len()), (1, 1));
        drop(held);
        // A waiter that wants more leaves the queue with what it has.
        let mut greedy = gate.wait_for(9);
        assert!(poll(&mut first, &woken).is_ready());
        assert!(poll(&mut greedy, &woken).is_ready());
        assert_eq!((gate.waiting(), lock(&gate.queue).waiters.len()), (0, 0));
    }

    #[test]
    fn credits_that_return_together_are_shared_among_all_waiters() {
        let gate = gate(6);
        let held: Vec<_> = (0..6).map(|_| gate.take().unwrap()).collect();
        let woken = Arc::new(Woken(Count::new(0)));
        let (mut first, mut second) = (gate.wait_for(100), gate.wait_for(2));
        assert!(poll(&mut first, &woken).is_pending());
        assert!(poll(&mut second, &woken).is_pending());
        drop(held);
        let Poll::Ready(one) = poll(&mut first, &woken) else { panic!("its turn has come") };
        let mut all: Vec<_> = std::iter::from_fn(|| first.more()).collect();
        all.push(one);
        assert_eq!(all.len(), 4);
        assert!(poll(&mut second, &woken).is_ready());
        assert!(second.more().is_some() && second.more().is_none());
        drop((all, first, second));
        assert_eq!((gate.waiting(), gate.published.unwrap().read(Counter::Busy)), (0, 0));
        assert_eq!(std::iter::from_fn(|| gate.take()).take(9).map(std::mem::forget).count(), 6);
    }

    #[test]
    fn the_budget_grows_for_waiters_and_shrinks_as_credits_return() {
        let gate = gate(2);
        let mut held: Vec<_> = (0..2).map(|_| gate.take().unwrap()).collect();
        let woken = Arc::new(Woken(Count::new(0)));
        let mut first = gate.wait();
        assert!(poll(&mut first, &woken).is_pending());
        gate.resize(3);
        let Poll::Ready(one) = poll(&mut first, &woken) else { panic!("there is one more") };
        held.push(one);
        gate.resize(1);
        drop(held.pop());
        drop(held.pop());
        assert!(gate.take().is_none(), "what came back was beyond the budget");
        drop(held);
        assert_eq!(std::iter::from_fn(|| gate.take()).take(9).map(std::mem::forget).count(), 1);
        // A debt is forgiven if the budget grows before it is settled.
        gate.resize(4);
        gate.resize(1);
        gate.resize(2);
        assert_eq!(std::iter::from_fn(|| gate.take()).take(9).map(std::mem::forget).count(), 1);
    }

    #[test]
    fn threads_never_lose_a_credit() {
        let gate = gate(3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let mut waiting = gate.wait();
                        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                        let mut context = Context::from_waker(&waker);
                        while Pin::new(&mut waiting).poll(&mut context).is_pending() {
                            std::thread::park();
                        }
                    }
                });
            }
        });
        let all: Vec<_> = std::iter::from_fn(|| gate.take()).collect();
        assert_eq!(all.len(), 3);
    }

    struct Unpark(std::thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
}

/// All interleavings of a few threads; see CONTRIBUTING.md.
#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use crate::{Layout, Scoreboard};
    use loom::sync::Notify;
    use loom::thread;
    use std::task::Wake;

    /// Wakes the thread that waits on it, now or later.
    struct Notifier(Notify);

    impl Wake for Notifier {
        fn wake(self: Arc<Self>) {
            self.0.notify();
        }
    }

    fn await_credit(waiting: &mut Waiting) -> Credit {
        let notifier = Arc::new(Notifier(Notify::new()));
        let waker = Waker::from(Arc::clone(&notifier));
        loop {
            match Pin::new(&mut *waiting).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(credit) => return credit,
                Poll::Pending => notifier.0.wait(),
            }
        }
    }

    /// Runs `act` with a gate in all interleavings, with up to three preemptions. In the end all
    /// credits are there and no waiter is queued.
    fn try_all(credits: u32, act: impl Fn(&Arc<Gate>) + Send + Sync + 'static) {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0).unwrap();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let gate = Gate::new(credits, line);
            act(&gate);
            assert_eq!((gate.waiting(), line.read(Counter::Busy)), (0, 0));
            assert!(lock(&gate.queue).waiters.is_empty());
            assert_eq!(gate.debt.load(SeqCst), 0);
            let budget = *lock(&gate.budget);
            let all: Vec<_> = std::iter::from_fn(|| gate.take()).collect();
            assert_eq!(all.len(), budget as usize);
        });
    }

    #[test]
    fn loom_no_waiter_misses_a_returned_credit() {
        try_all(1, |gate| {
            let others = [1, 2].map(|most| {
                let gate = Arc::clone(gate);
                thread::spawn(move || drop(await_credit(&mut gate.wait_for(most))))
            });
            drop(await_credit(&mut gate.wait()));
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }

    #[test]
    fn loom_a_dropped_waiter_takes_no_credit() {
        try_all(1, |gate| {
            let held = gate.take().unwrap();
            let (leaver, stayer) = (Arc::clone(gate), Arc::clone(gate));
            let leaver = thread::spawn(move || {
                let mut waiting = leaver.wait_for(2);
                let mut context = Context::from_waker(Waker::noop());
                let polled = Pin::new(&mut waiting).poll(&mut context);
                drop((waiting, polled));
            });
            let stayer = thread::spawn(move || drop(await_credit(&mut stayer.wait())));
            drop(held);
            leaver.join().unwrap();
            stayer.join().unwrap();
        });
    }

    #[test]
    fn loom_a_budget_that_shrinks_while_credits_return_is_kept() {
        try_all(2, |gate| {
            let held = [gate.take().unwrap(), gate.take().unwrap()];
            let (smaller, waits) = (Arc::clone(gate), Arc::clone(gate));
            let smaller = thread::spawn(move || smaller.resize(1));
            let waits = thread::spawn(move || drop(await_credit(&mut waits.wait())));
            drop(held);
            smaller.join().unwrap();
            waits.join().unwrap();
        });
    }

    #[test]
    fn loom_a_budget_that_grows_reaches_waiters() {
        try_all(1, |gate| {
            let held = gate.take().unwrap();
            let (larger, waits) = (Arc::clone(gate), Arc::clone(gate));
            let larger = thread::spawn(move || larger.resize(2));
            let waits = thread::spawn(move || drop(await_credit(&mut waits.wait())));
            waits.join().unwrap();
            larger.join().unwrap();
            drop(held);
        });
    }

    #[test]
    fn loom_credits_granted_together_are_all_fetched() {
        try_all(2, |gate| {
            let held = [gate.take().unwrap(), gate.take().unwrap()];
            let other = Arc::clone(gate);
            let other = thread::spawn(move || {
                let mut waiting = other.wait_for(2);
                let first = await_credit(&mut waiting);
                drop((first, waiting.more()));
            });
            drop(held);
            drop(await_credit(&mut gate.wait()));
            other.join().unwrap();
        });
    }
}
