//! Where connections go when their turn is over: to rest in a park set, on as a task, or out.
//! A serving thread and its tasks share one bench. Sockets come in with the service's verdict;
//! nothing here reads them.

use super::Shared;
use crate::service::{Class, Pause, Verdict, Work};
use evenkeel_scoreboard::Counter;
use evenkeel_sys::clock;
use evenkeel_sys::shelf::{Put, Rest};
use evenkeel_sys::socket::Socket;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A resting socket whose turn has come, by its token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runnable {
    pub(super) token: u64,
    pub(super) why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Something can be read, up to the end of the stream if `hangup`.
    Readable { hangup: bool },
    /// Its time is over, unless it has been used since.
    Expired,
    /// The child closes what is idle.
    Exiting,
}

/// What was counted for a socket before its turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) class: Option<Class>,
    pub(super) owner: Option<u8>,
}

/// What a serving thread and its tasks share.
pub(super) struct Bench {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u8,
    /// First come, first served; those without a credit stay.
    pub(super) runnable: RefCell<VecDeque<Runnable>>,
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
            next_sweep_ms: Cell::new(now_ms().wrapping_add(SWEEP_MS)),
        })
    }

    /// Carries a verdict out.
    pub(super) fn settle(self: &Rc<Self>, verdict: Verdict, counted: Counted) {
        match verdict {
            Verdict::Rest(socket, pause) => self.rest(socket, pause, counted),
            Verdict::Closed => self.count_closed(counted),
            Verdict::Work(work) => {
                self.count_class(counted.class, None);
                let open = Open { bench: Rc::clone(self), owner: counted.owner, settled: false };
                tokio::task::spawn_local(finish(work, open));
            }
        }
    }

    /// Puts a socket to rest; one that has no seat yet gets one in the set of the thread that
    /// has the fewest.
    fn rest(self: &Rc<Self>, mut socket: Socket, pause: Pause, mut counted: Counted) {
        if socket.seat().is_none() {
            match self.seat(socket) {
                Some((seated, owner)) => {
                    socket = seated;
                    counted.owner = Some(owner);
                }
                None => return self.count_closed(counted),
            }
        }
        self.count_class(counted.class, Some(pause.class));
        let deadline_ms = now_ms().wrapping_add(pause.timeout_ms);
        let rest = Rest { class: pause.class as u8, deadline_ms, memo: pause.memo };
        match self.shared.shelf.put(socket, rest) {
            Ok(Put::Lying(_)) => {
                if ahead_ms(self.next_sweep_ms.get(), deadline_ms) < 0 {
                    self.next_sweep_ms.set(deadline_ms);
                    self.wake();
                }
            }
            Ok(Put::Readable { token, hangup }) => {
                self.push(Runnable { token, why: Why::Readable { hangup } });
                self.wake();
            }
            Err(_) => {
                let counted = Counted { class: Some(pause.class), owner: counted.owner };
                self.count_closed(counted);
            }
        }
    }

    /// Registers a socket in a set: one call, no queue and no wake-up for the other thread.
    fn seat(&self, socket: Socket) -> Option<(Socket, u8)> {
        let sets = &self.shared.sets;
        let (owner, set) =
            sets.iter().enumerate().min_by_key(|(_, set)| set.registered.load(Relaxed))?;
        let owner = u8::try_from(owner).ok()?;
        let (socket, token) = self.shared.shelf.register(socket, owner).ok()?;
        set.epoll.add(&socket, token).ok()?;
        set.registered.fetch_add(1, Relaxed);
        Some((socket, owner))
    }

    pub(super) fn push(&self, runnable: Runnable) {
        self.runnable.borrow_mut().push_back(runnable);
        self.shared.line.add(Counter::Runnable, 1);
    }

    pub(super) fn pop(&self) -> Option<Runnable> {
        let next = self.runnable.borrow_mut().pop_front()?;
        self.shared.line.subtract(Counter::Runnable, 1);
        Some(next)
    }

    /// Has the thread's loop come round.
    fn wake(&self) {
        let set = self.shared.sets.get(usize::from(self.number));
        let waker = set.map(|set| set.waker.lock().map(|waker| waker.clone()));
        if let Some(Ok(Some(waker))) = waker {
            waker.wake();
        }
    }

    /// Moves a connection from one class of rest to another, or to none.
    fn count_class(&self, from: Option<Class>, to: Option<Class>) {
        if from != to {
            if let Some(class) = from {
                self.shared.line.subtract(class.counter(), 1);
            }
            if let Some(class) = to {
                self.shared.line.add(class.counter(), 1);
            }
        }
    }

    fn count_closed(&self, counted: Counted) {
        self.count_class(counted.class, None);
        let owner = counted.owner.and_then(|owner| self.shared.sets.get(usize::from(owner)));
        if let Some(set) = owner {
            set.registered.fetch_sub(1, Relaxed);
        }
        self.shared.count_closed();
    }
}

/// Runs a task to its end and carries its verdict out.
async fn finish(work: Work, mut open: Open) {
    let mut verdict = Verdict::Work(work);
    while let Verdict::Work(work) = verdict {
        verdict = work.await;
    }
    open.settled = true;
    open.bench.settle(verdict, Counted { class: None, owner: open.owner });
}

/// A connection in a task, which is counted as closed should the task come to grief.
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
