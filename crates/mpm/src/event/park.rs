//! Where connections go when their turn is over: to rest in a park set, on as a task, or out.
//! A serving thread and its tasks share one bench. Sockets come in with the service's outcome;
//! nothing here reads them.

use super::Shared;
use super::tasks::Begun;
use evenkeel_scoreboard::Counter;
use evenkeel_sys::clock;
use evenkeel_sys::dispatch::{Outcome, ParkReason, ParkRequest};
use evenkeel_sys::idle_table::{Entry, ParkError, Parked, Unparked};
use evenkeel_sys::socket::Socket;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What was counted for a socket before its turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) reason: Option<ParkReason>,
    pub(super) owner: Option<u8>,
}

/// A socket in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) token: u64,
    /// Since when it stands there, in milliseconds of [`now_ms`].
    pub(super) since_ms: u32,
}

/// What a serving thread and its tasks share.
pub(super) struct Bench {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u8,
    /// The tokens of the sockets whose turn has come: first come, first served; those without a
    /// credit stay. The idle_table sees to it that a socket stands here once.
    runnable: RefCell<VecDeque<Waiter>>,
    /// Work that the thread has begun.
    pub(super) begun: Begun,
    /// When the next sweep is due, in milliseconds of [`now_ms`].
    pub(super) next_sweep_ms: Cell<u32>,
}

/// How long a sweep may stay away: the bound on how late a socket expires that another thread
/// has put here.
pub(super) const SWEEP_MS: u32 = 1000;

/// The clock of deadlines: milliseconds since some time, wrapping, some 4 ms coarse.
pub(super) fn now_ms() -> u32 {
    (clock::monotonic_coarse_us() / 1000) as u32
}

/// How many milliseconds `one` comes before `other` on the wrapping clock.
pub(super) fn ahead_ms(one: u32, other: u32) -> i32 {
    other.wrapping_sub(one).cast_signed()
}

impl Bench {
    pub(super) fn new(shared: Arc<Shared>, number: usize) -> Rc<Self> {
        Rc::new(Self {
            shared,
            number: u8::try_from(number).unwrap_or(u8::MAX),
            runnable: RefCell::new(VecDeque::new()),
            begun: Begun::default(),
            next_sweep_ms: Cell::new(now_ms().wrapping_add(SWEEP_MS)),
        })
    }

    /// Carries an outcome out.
    pub(super) fn settle(self: &Rc<Self>, outcome: Outcome, counted: Counted) {
        match outcome {
            Outcome::Park(socket, pause) => self.rest(socket, pause, counted),
            Outcome::Closed => self.count_closed(counted),
            Outcome::Task(work) => {
                self.count_class(counted.reason, None);
                self.begun.begin(self, work, counted.owner, None);
            }
            Outcome::HeadTask(work) => {
                self.count_class(counted.reason, None);
                self.begun.begin(self, work, counted.owner, Some(now_ms()));
            }
        }
    }

    /// Puts a socket to rest; one that has no rank yet gets one in the set of the thread that
    /// has the fewest.
    fn rest(self: &Rc<Self>, mut socket: Socket, pause: ParkRequest, mut counted: Counted) {
        if socket.registration().is_none() {
            match self.register(socket) {
                Some((registered, owner)) => {
                    socket = registered;
                    counted.owner = Some(owner);
                }
                None => return self.count_closed(counted),
            }
        }
        self.count_class(counted.reason, Some(pause.reason));
        let deadline_ms = now_ms().wrapping_add(pause.timeout_ms);
        let rest = Entry { reason: pause.reason as u8, deadline_ms, state: pause.state };
        match self.shared.idle_table.park(socket, rest) {
            Ok(Parked::Idle(_)) => {
                if ahead_ms(self.next_sweep_ms.get(), deadline_ms) < 0 {
                    self.next_sweep_ms.set(deadline_ms);
                    self.wake();
                }
            }
            Ok(Parked::Queued(token)) => {
                self.push(token);
                self.wake();
            }
            Err(_) => {
                let counted = Counted { reason: Some(pause.reason), owner: counted.owner };
                self.count_closed(counted);
            }
        }
    }

    /// Registers a socket in a set: one call, no queue and no wake-up for the other thread.
    fn register(&self, socket: Socket) -> Option<(Socket, u8)> {
        let sets = &self.shared.sets;
        let (owner, set) =
            sets.iter().enumerate().min_by_key(|(_, set)| set.registered.load(Relaxed))?;
        let owner = u8::try_from(owner).ok()?;
        let (socket, token) = self.shared.idle_table.register(socket, owner).ok()?;
        set.epoll.add(&socket, token).ok()?;
        set.registered.fetch_add(1, Relaxed);
        Some((socket, owner))
    }

    /// Gives a socket a place in line, unless it has one or is out.
    pub(super) fn enqueue(&self, token: u64, hangup: bool) {
        if self.shared.idle_table.enqueue(token, hangup) {
            self.push(token);
        }
    }

    fn push(&self, token: u64) {
        self.runnable.borrow_mut().push_back(Waiter { token, since_ms: now_ms() });
        self.shared.line.add(Counter::Runnable, 1);
    }

    /// Puts one that was popped back to the end from which it came: the oldest stand in front.
    pub(super) fn put_back(&self, waiter: Waiter) {
        let mut line = self.runnable.borrow_mut();
        match line.front() {
            Some(front) if ahead_ms(front.since_ms, waiter.since_ms) > 0 => line.push_back(waiter),
            _ => line.push_front(waiter),
        }
        self.shared.line.add(Counter::Runnable, 1);
    }

    /// The one who has waited longest.
    pub(super) fn pop(&self) -> Option<Waiter> {
        let next = self.runnable.borrow_mut().pop_front();
        next.inspect(|_| self.shared.line.subtract(Counter::Runnable, 1))
    }

    /// The one who came last.
    pub(super) fn pop_newest(&self) -> Option<Waiter> {
        let next = self.runnable.borrow_mut().pop_back();
        next.inspect(|_| self.shared.line.subtract(Counter::Runnable, 1))
    }

    /// Since when the one has waited who has waited longest, in milliseconds of [`now_ms`].
    pub(super) fn oldest_since_ms(&self) -> Option<u32> {
        self.runnable.borrow().front().map(|waiter| waiter.since_ms)
    }

    /// How long that is, in milliseconds; zero where nobody stands in line.
    pub(super) fn longest_wait_ms(&self) -> u64 {
        let wait_ms = |since_ms| u64::try_from(ahead_ms(since_ms, now_ms())).unwrap_or(0).max(1);
        self.oldest_since_ms().map_or(0, wait_ms)
    }

    /// How many stand in line.
    pub(super) fn in_line(&self) -> usize {
        self.runnable.borrow().len()
    }

    /// Takes a socket that rests and looks whether a request has come by now. One on which none
    /// has is given out to be closed, with whether its peer is still there; the other goes into
    /// line, once.
    pub(super) fn look(&self, token: u64) -> Option<(Unparked, bool)> {
        let taken = self.shared.idle_table.take_idle(token)?;
        // What still comes after our end is no request.
        let closing = ParkReason::from_number(taken.reason) == ParkReason::LingeringClose;
        match taken.socket.peek() {
            Ok(true) if !closing => {}
            come => return Some((taken, come.is_err())),
        }
        let now = now_ms();
        let rest = Entry { reason: taken.reason, deadline_ms: now, state: taken.state };
        match self.shared.idle_table.park(taken.socket, rest) {
            Ok(Parked::Idle(token)) => self.enqueue(token, false),
            Ok(Parked::Queued(token)) => self.push(token),
            // It has a rank, so that this cannot be; a socket that is nowhere is closed.
            Err(ParkError(socket)) => return Some((Unparked { socket, ..taken }, true)),
        }
        None
    }

    /// Has the thread's loop come round.
    fn wake(&self) {
        let set = self.shared.sets.get(usize::from(self.number));
        let waker = set.map(|set| set.waker.lock().map(|waker| waker.clone()));
        if let Some(Ok(Some(waker))) = waker {
            waker.wake();
        }
    }

    /// Moves a connection from one reason of rest to another, or to none.
    fn count_class(&self, from: Option<ParkReason>, to: Option<ParkReason>) {
        if from != to {
            if let Some(reason) = from {
                self.shared.line.subtract(counter(reason), 1);
            }
            if let Some(reason) = to {
                self.shared.line.add(counter(reason), 1);
            }
            if to == Some(ParkReason::LingeringClose) {
                self.shared.note_room();
            }
        }
    }

    pub(super) fn count_closed(&self, counted: Counted) {
        self.count_class(counted.reason, None);
        let owner = counted.owner.and_then(|owner| self.shared.sets.get(usize::from(owner)));
        if let Some(set) = owner {
            set.registered.fetch_sub(1, Relaxed);
        }
        self.shared.count_closed();
    }
}

/// The counter of the connections that rest so.
const fn counter(reason: ParkReason) -> Counter {
    match reason {
        ParkReason::FirstRequest => Counter::Waiting,
        ParkReason::KeepAlive => Counter::KeepAlive,
        ParkReason::LingeringClose => Counter::Closing,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Set;
    use super::*;
    use crate::setup::SharedMode;
    use evenkeel_scoreboard::{Gate, Layout, Scoreboard};
    use evenkeel_sys::blocking_pool::BlockingPool;
    use evenkeel_sys::idle_table::IdleTable;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    pub(in super::super) fn bench() -> Rc<Bench> {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0).unwrap();
        let shared = Shared {
            mode: SharedMode::new(),
            connections: 0.into(),
            accepted: 0.into(),
            most_connections: 0,
            credits: 1,
            async_factor: None,
            awaits_room: false.into(),
            line,
            gate: Gate::new(1, line),
            idle_table: IdleTable::new(1024),
            sets: vec![Set::new().unwrap()],
            listeners: Vec::new().into(),
            descriptors: 1024,
            blocking_pool: Arc::new(BlockingPool::new(1)),
            demand: None,
            shedding: None,
            drain_grace_ms: 0,
        };
        Bench::new(Arc::new(shared), 0)
    }

    #[test]
    fn a_look_lines_up_what_has_a_request_once_and_gives_the_rest_out() {
        let bench = bench();
        let lie = |reason: ParkReason| {
            let (client, server) = UnixStream::pair().unwrap();
            server.set_nonblocking(true).unwrap();
            let (socket, _) = bench.register(Socket::new(server.into())).unwrap();
            let rest = Entry { reason: reason as u8, deadline_ms: 0, state: [7; 4] };
            let Ok(Parked::Idle(token)) = bench.shared.idle_table.park(socket, rest) else {
                panic!("nothing has come")
            };
            (client, token)
        };
        let (mut asking, token) = lie(ParkReason::KeepAlive);
        asking.write_all(b"x").unwrap();
        for _ in 0..3 {
            assert!(bench.look(token).is_none());
        }
        bench.enqueue(token, true);
        assert_eq!((bench.in_line(), bench.shared.line.read(Counter::Runnable)), (1, 1));
        assert_eq!(bench.pop().map(|waiter| waiter.token), Some(token));
        let taken = bench.shared.idle_table.take_queued(token).unwrap();
        assert!(taken.hangup && taken.state == [7; 4]);
        let (_idle, token) = lie(ParkReason::FirstRequest);
        assert!(matches!(bench.look(token), Some((_, true))));
        let (gone, token) = lie(ParkReason::FirstRequest);
        drop(gone);
        assert!(matches!(bench.look(token), Some((_, false))));
        let (mut closing, token) = lie(ParkReason::LingeringClose);
        closing.write_all(b"x").unwrap();
        assert!(bench.look(token).is_some(), "what comes after our end is no request");
        assert_eq!(bench.in_line(), 0);
    }
}
