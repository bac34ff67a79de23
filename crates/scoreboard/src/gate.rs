//! The gate of a child: its budget of credits. A request in progress holds one; whoever finds
//! none waits in line and is handed the next that comes back, first come, first served. While
//! credits are left, taking and giving back are two atomic steps and no lock.

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

/// The credits of one child, shared by its serving threads.
pub struct Gate {
    free: AtomicU32,
    /// Credits by which the budget has shrunk while they were in use: the next that come back go.
    debt: AtomicU32,
    /// The budget; its lock lets one change it at a time.
    budget: Mutex<u32>,
    /// How many stand in line, so that giving back need not look into the line.
    waiting: AtomicUsize,
    line: Mutex<Line>,
    /// Where it is told what is in use; none for a gate that is open to all.
    published: Option<ChildLine>,
}

/// Those who wait, by their number: only the living, who leave it themselves.
#[derive(Default)]
struct Line {
    places: BTreeMap<u64, Arc<Place>>,
    next: u64,
}

/// The right to work on one request; dropping it gives it back.
pub struct Credit(Arc<Gate>);

/// A place in the line.
struct Place(Mutex<State>);

struct State {
    waker: Waker,
    /// Credits that were given and not fetched yet.
    granted: u32,
    /// How many more are wanted; a place that wants none has left the line.
    wanted: u32,
    /// Its number in the line, while it stands there.
    number: u64,
}

impl Gate {
    /// A gate with `credits` credits, at least one; what is in use is published in the child's
    /// line.
    #[must_use]
    pub fn new(credits: u32, published: ChildLine) -> Arc<Self> {
        Self::made(credits.max(1), Some(published))
    }

    /// A gate that lets everybody through and counts nobody: where a connection holds a worker
    /// from its beginning to its end, its requests wait for no credit, and what is in use is
    /// counted in workers.
    #[must_use]
    pub fn open() -> Arc<Self> {
        Self::made(0, None)
    }

    fn made(credits: u32, published: Option<ChildLine>) -> Arc<Self> {
        Arc::new(Self {
            free: AtomicU32::new(credits),
            debt: AtomicU32::new(0),
            budget: Mutex::new(credits),
            waiting: AtomicUsize::new(0),
            line: Mutex::new(Line::default()),
            published,
        })
    }

    /// A credit, if one is free and nobody waits for it.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<Credit> {
        if self.waiting.load(SeqCst) > 0 {
            return None;
        }
        self.grab()
    }

    /// A credit as soon as it is this caller's turn.
    #[must_use]
    pub fn wait(self: &Arc<Self>) -> Waiting {
        self.wait_for(1)
    }

    /// A credit as soon as it is this caller's turn, and up to `most` in all until it looks:
    /// credits that come back in a bunch go to all who stand in line, one after another, and
    /// not to whoever looks first.
    #[must_use]
    pub fn wait_for(self: &Arc<Self>, most: u32) -> Waiting {
        Waiting { gate: Arc::clone(self), place: None, most: most.max(1), spare: 0 }
    }

    /// How many stand in line for a credit.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Changes the number of credits, at least one. Those beyond it that are in use go when they
    /// come back; nobody who has one loses it.
    pub fn resize(&self, credits: u32) {
        let mut budget = lock(&self.budget);
        let credits = credits.max(1);
        if let Some(fewer) = budget.checked_sub(credits) {
            self.debt.fetch_add(fewer, SeqCst);
            in_total_order();
            self.pay();
        } else {
            self.free.fetch_add(credits - *budget, SeqCst);
            in_total_order();
            // What was still owed is paid with what has just come.
            self.pay();
            if self.waiting.load(SeqCst) > 0 {
                self.hand_out();
            }
        }
        *budget = credits;
    }

    /// Pays what is owed with free credits. Who takes on a debt looks for free credits afterwards,
    /// and who frees one looks for debts afterwards, so that at least one of the two sees both.
    fn pay(&self) {
        while take_one(&self.debt) {
            if take_one(&self.free) {
                continue;
            }
            self.debt.fetch_add(1, SeqCst);
            in_total_order();
            // One that came back meanwhile may have seen no debt.
            if self.free.load(SeqCst) == 0 {
                return;
            }
        }
    }

    fn grab(self: &Arc<Self>) -> Option<Credit> {
        if let Some(line) = self.published {
            self.free.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1)).ok()?;
            line.add(Counter::Busy, 1);
        }
        Some(Credit(Arc::clone(self)))
    }

    /// A credit came back: it is free first and looked for in the line afterwards. One who
    /// gets into line counts himself first and looks for a free credit afterwards, so that at
    /// least one of the two sees the other.
    fn give_back(self: &Arc<Self>) {
        let Some(line) = self.published else { return };
        line.subtract(Counter::Busy, 1);
        self.free.fetch_add(1, SeqCst);
        in_total_order();
        if self.debt.load(SeqCst) > 0 {
            self.pay();
        }
        if self.waiting.load(SeqCst) > 0 {
            self.hand_out();
        }
    }

    /// Gives free credits to those who stand in line, one each in turn.
    fn hand_out(&self) {
        let mut line = lock(&self.line);
        while let Some(first) = line.places.first_entry() {
            if self.free.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1)).is_err() {
                return;
            }
            if let Some(line) = self.published {
                line.add(Counter::Busy, 1);
            }
            let place = first.remove();
            let mut state = lock(&place.0);
            state.granted += 1;
            state.wanted = state.wanted.saturating_sub(1);
            state.waker.wake_by_ref();
            if state.wanted > 0 {
                state.number = line.next;
                drop(state);
                line.stand(place);
            } else {
                self.waiting.fetch_sub(1, SeqCst);
            }
        }
    }

    /// Gets into line.
    fn line_up(&self, state: State) -> Arc<Place> {
        self.waiting.fetch_add(1, SeqCst);
        in_total_order();
        let mut line = lock(&self.line);
        let place = Arc::new(Place(Mutex::new(State { number: line.next, ..state })));
        line.stand(Arc::clone(&place));
        place
    }

    /// Takes a place out of the line, if it still stands there, and what was given to it.
    fn leave(&self, place: &Place) -> u32 {
        let mut line = lock(&self.line);
        let mut state = lock(&place.0);
        if std::mem::take(&mut state.wanted) > 0 {
            line.places.remove(&state.number);
            self.waiting.fetch_sub(1, SeqCst);
        }
        std::mem::take(&mut state.granted)
    }
}

impl Line {
    /// Puts a place, whose number is the next one, at the end.
    fn stand(&mut self, place: Arc<Place>) {
        self.places.insert(self.next, place);
        self.next += 1;
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Waits in line for credits. Dropping it leaves the line and gives back what was not fetched.
pub struct Waiting {
    gate: Arc<Gate>,
    place: Option<Arc<Place>>,
    most: u32,
    spare: u32,
}

impl Waiting {
    /// One more of the credits that came together with the first.
    #[must_use]
    pub fn more(&mut self) -> Option<Credit> {
        self.spare = self.spare.checked_sub(1)?;
        Some(Credit(Arc::clone(&self.gate)))
    }

    /// Whether it has stood in line since it was last polled.
    #[must_use]
    pub fn is_in_line(&self) -> bool {
        self.place.is_some()
    }
}

impl Future for Waiting {
    type Output = Credit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Credit> {
        if let Some(credit) = self.more() {
            return Poll::Ready(credit);
        }
        if self.place.is_none() {
            if let Some(credit) = self.gate.take() {
                return Poll::Ready(credit);
            }
            let waker = context.waker().clone();
            let state = State { waker, granted: 0, wanted: self.most, number: 0 };
            self.place = Some(self.gate.line_up(state));
            self.gate.hand_out();
        }
        let Some(place) = self.place.take() else { return Poll::Pending };
        let mut state = lock(&place.0);
        if state.granted == 0 {
            state.waker.clone_from(context.waker());
            drop(state);
            self.place = Some(place);
            return Poll::Pending;
        }
        drop(state);
        self.spare = self.gate.leave(&place).saturating_sub(1);
        Poll::Ready(Credit(Arc::clone(&self.gate)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        while let Some(credit) = self.more() {
            drop(credit);
        }
        let Some(place) = self.place.take() else { return };
        for _ in 0..self.gate.leave(&place) {
            drop(Credit(Arc::clone(&self.gate)));
        }
    }
}

/// Takes one off a number, unless it is zero.
fn take_one(number: &AtomicU32) -> bool {
    number.fetch_update(SeqCst, SeqCst, |number| number.checked_sub(1)).is_ok()
}

/// Stands between two steps whose order all threads must see alike. `SeqCst` alone says so;
/// loom knows that of fences only and takes other steps for `AcqRel`.
#[cfg(all(test, loom))]
fn in_total_order() {
    loom::sync::atomic::fence(SeqCst);
}

#[cfg(not(all(test, loom)))]
const fn in_total_order() {}

/// A poisoned lock is as good as another here: no state is left half changed by a panic.
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
        assert!(gate.take().is_none(), "nobody overtakes the line");
        assert!(poll(&mut second, &woken).is_pending());
        assert!(poll(&mut first, &woken).is_ready());
        assert!(poll(&mut second, &woken).is_ready());
        drop(two);
        assert_eq!(gate.published.unwrap().read(Counter::Busy), 0);
        assert_eq!(gate.waiting(), 0);
    }

    #[test]
    fn an_open_gate_keeps_nobody_waiting() {
        let gate = Gate::open();
        let woken = Arc::new(Woken(Count::new(0)));
        let held: Vec<_> = (0..1000).map(|_| gate.take().unwrap()).collect();
        let mut waiting = gate.wait_for(3);
        assert!(poll(&mut waiting, &woken).is_ready() && waiting.more().is_none());
        drop(held);
        assert!(gate.take().is_some() && gate.waiting() == 0);
    }

    #[test]
    fn one_who_leaves_the_line_keeps_nothing() {
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
    fn the_line_holds_only_the_living() {
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
        assert_eq!((gate.waiting(), lock(&gate.line).places.len()), (1, 1));
        drop(held);
        // One that still wants more leaves the line with what it has.
        let mut greedy = gate.wait_for(9);
        assert!(poll(&mut first, &woken).is_ready());
        assert!(poll(&mut greedy, &woken).is_ready());
        assert_eq!((gate.waiting(), lock(&gate.line).places.len()), (0, 0));
    }

    #[test]
    fn a_bunch_of_credits_is_shared_among_all_in_line() {
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
    fn the_budget_grows_for_those_in_line_and_shrinks_as_credits_come_back() {
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
        // What is owed is forgiven where the budget grows again before it is paid.
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

/// Every order of the steps of a few threads; see CONTRIBUTING.md.
#[cfg(all(test, loom))]
mod orders {
    use super::*;
    use crate::{Layout, Scoreboard};
    use loom::sync::Notify;
    use loom::thread;
    use std::task::Wake;

    /// A notifier that rings for the thread that waits at it, be it that it comes later.
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

    /// Tries what `act` does with a gate in all orders, with up to three switches where none was
    /// needed; in the end the credits are all there and nobody stands in line.
    fn try_all(credits: u32, act: impl Fn(&Arc<Gate>) + Send + Sync + 'static) {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0).unwrap();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let gate = Gate::new(credits, line);
            act(&gate);
            assert_eq!((gate.waiting(), line.read(Counter::Busy)), (0, 0));
            assert!(lock(&gate.line).places.is_empty());
            assert_eq!(gate.debt.load(SeqCst), 0);
            let budget = *lock(&gate.budget);
            let all: Vec<_> = std::iter::from_fn(|| gate.take()).collect();
            assert_eq!(all.len(), budget as usize);
        });
    }

    #[test]
    fn loom_nobody_misses_a_credit_that_comes_back() {
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
    fn loom_one_who_leaves_the_line_takes_nothing_along() {
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
    fn loom_a_budget_that_shrinks_while_credits_come_back_is_kept() {
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
    fn loom_a_budget_that_grows_is_seen_in_line() {
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
    fn loom_a_bunch_of_credits_is_fetched_whole() {
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
