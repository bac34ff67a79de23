//! What a serving thread and its tasks share: the run queue of sockets that are ready, the queue of
//! new tasks, and the way to apply an `Outcome`: park the socket, continue it as a task, or count
//! it as closed.

use super::Shared;
use super::tasks::TaskQueue;
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

/// How a socket was counted before it was served.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountedAs {
    pub(super) reason: Option<ParkReason>,
    pub(super) owner: Option<u8>,
}

/// A socket in the run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuedSocket {
    pub(super) token: u64,
    /// Since when it is queued, in milliseconds of [`now_ms`].
    pub(super) since_ms: u32,
}

/// The context of a serving thread.
pub(super) struct ThreadContext {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u8,
    /// The sockets that are ready, first come, first served. They stay here while there is no
    /// credit. The idle table makes sure that a socket is queued once.
    run_queue: RefCell<VecDeque<QueuedSocket>>,
    /// Tasks that were spawned since the last poll.
    pub(super) new_tasks: TaskQueue,
    /// When the next sweep is due, in milliseconds of [`now_ms`].
    pub(super) next_sweep_ms: Cell<u32>,
}

/// The longest time between two sweeps. It bounds how late a socket expires that another thread has
/// parked in this thread's set.
pub(super) const SWEEP_MS: u32 = 1000;

/// The clock of deadlines: wrapping milliseconds from an arbitrary start, with a resolution of
/// about 4 ms.
pub(super) fn now_ms() -> u32 {
    (clock::monotonic_coarse_us() / 1000) as u32
}

/// By how many milliseconds `one` precedes `other` on the wrapping clock.
pub(super) fn ahead_ms(one: u32, other: u32) -> i32 {
    other.wrapping_sub(one).cast_signed()
}

impl ThreadContext {
    pub(super) fn new(shared: Arc<Shared>, number: usize) -> Rc<Self> {
        Rc::new(Self {
            shared,
            number: u8::try_from(number).unwrap_or(u8::MAX),
            run_queue: RefCell::new(VecDeque::new()),
            new_tasks: TaskQueue::default(),
            next_sweep_ms: Cell::new(now_ms().wrapping_add(SWEEP_MS)),
        })
    }

    /// Applies the outcome of serving a socket.
    pub(super) fn apply(self: &Rc<Self>, outcome: Outcome, counted: CountedAs) {
        match outcome {
            Outcome::Park(socket, request) => self.park(socket, request, counted),
            Outcome::Closed => self.count_closed(counted),
            Outcome::Task(task) => {
                self.count_reason(counted.reason, None);
                self.new_tasks.spawn(self, task, counted.owner, None);
            }
            Outcome::HeadTask(task) => {
                self.count_reason(counted.reason, None);
                self.new_tasks.spawn(self, task, counted.owner, Some(now_ms()));
            }
        }
    }

    /// Parks a socket. A socket without a registration is registered with the thread that has the
    /// fewest.
    fn park(self: &Rc<Self>, mut socket: Socket, request: ParkRequest, mut counted: CountedAs) {
        if socket.registration().is_none() {
            match self.register(socket) {
                Some((registered, owner)) => {
                    socket = registered;
                    counted.owner = Some(owner);
                }
                None => return self.count_closed(counted),
            }
        }
        self.count_reason(counted.reason, Some(request.reason));
        let deadline_ms = now_ms().wrapping_add(request.timeout_ms);
        let entry = Entry { reason: request.reason as u8, deadline_ms, state: request.state };
        match self.shared.idle_table.park(socket, entry) {
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
                let counted = CountedAs { reason: Some(request.reason), owner: counted.owner };
                self.count_closed(counted);
            }
        }
    }

    /// Registers a socket with a thread's set: one call, without waking that thread.
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

    /// Queues a socket, unless it is queued already or taken out.
    pub(super) fn enqueue(&self, token: u64, hangup: bool) {
        if self.shared.idle_table.enqueue(token, hangup) {
            self.push(token);
        }
    }

    fn push(&self, token: u64) {
        self.run_queue.borrow_mut().push_back(QueuedSocket { token, since_ms: now_ms() });
        self.shared.line.add(Counter::Runnable, 1);
    }

    /// Returns a socket that was popped to the end from which it came: the oldest are at the front.
    pub(super) fn requeue(&self, queued: QueuedSocket) {
        let mut queue = self.run_queue.borrow_mut();
        match queue.front() {
            Some(front) if ahead_ms(front.since_ms, queued.since_ms) > 0 => queue.push_back(queued),
            _ => queue.push_front(queued),
        }
        self.shared.line.add(Counter::Runnable, 1);
    }

    /// The socket that has waited the longest.
    pub(super) fn pop(&self) -> Option<QueuedSocket> {
        let next = self.run_queue.borrow_mut().pop_front();
        next.inspect(|_| self.shared.line.subtract(Counter::Runnable, 1))
    }

    /// The socket that was queued last.
    pub(super) fn pop_newest(&self) -> Option<QueuedSocket> {
        let next = self.run_queue.borrow_mut().pop_back();
        next.inspect(|_| self.shared.line.subtract(Counter::Runnable, 1))
    }

    /// Since when the socket at the front has waited, in milliseconds of [`now_ms`].
    pub(super) fn oldest_since_ms(&self) -> Option<u32> {
        self.run_queue.borrow().front().map(|queued| queued.since_ms)
    }

    /// How long it has waited, in milliseconds; zero if the queue is empty.
    pub(super) fn longest_wait_ms(&self) -> u64 {
        let wait_ms = |since_ms| u64::try_from(ahead_ms(since_ms, now_ms())).unwrap_or(0).max(1);
        self.oldest_since_ms().map_or(0, wait_ms)
    }

    /// The length of the run queue.
    pub(super) fn queue_length(&self) -> usize {
        self.run_queue.borrow().len()
    }

    /// Takes a parked socket and checks whether a request has arrived. A socket without one is
    /// returned to be closed, with whether its peer is still connected; a socket with one is
    /// queued, once.
    pub(super) fn inspect(&self, token: u64) -> Option<(Unparked, bool)> {
        let unparked = self.shared.idle_table.take_idle(token)?;
        // What arrives after our end of the stream is no request.
        let closing = ParkReason::from_number(unparked.reason) == ParkReason::LingeringClose;
        match unparked.socket.peek() {
            Ok(true) if !closing => {}
            come => return Some((unparked, come.is_err())),
        }
        let now = now_ms();
        let entry = Entry { reason: unparked.reason, deadline_ms: now, state: unparked.state };
        match self.shared.idle_table.park(unparked.socket, entry) {
            Ok(Parked::Idle(token)) => self.enqueue(token, false),
            Ok(Parked::Queued(token)) => self.push(token),
            // This cannot happen, because the socket is registered. A socket that is nowhere is
            // closed.
            Err(ParkError(socket)) => return Some((Unparked { socket, ..unparked }, true)),
        }
        None
    }

    /// Wakes the thread's loop.
    fn wake(&self) {
        let set = self.shared.sets.get(usize::from(self.number));
        let waker = set.map(|set| set.waker.lock().map(|waker| waker.clone()));
        if let Some(Ok(Some(waker))) = waker {
            waker.wake();
        }
    }

    /// Moves a connection from one counter of parked connections to another, or to none.
    fn count_reason(&self, from: Option<ParkReason>, to: Option<ParkReason>) {
        if from != to {
            if let Some(reason) = from {
                self.shared.line.subtract(counter(reason), 1);
            }
            if let Some(reason) = to {
                self.shared.line.add(counter(reason), 1);
            }
            if to == Some(ParkReason::LingeringClose) {
                self.shared.signal_room();
            }
        }
    }

    pub(super) fn count_closed(&self, counted: CountedAs) {
        self.count_reason(counted.reason, None);
        let owner = counted.owner.and_then(|owner| self.shared.sets.get(usize::from(owner)));
        if let Some(set) = owner {
            set.registered.fetch_sub(1, Relaxed);
        }
        self.shared.count_closed();
    }
}

/// The counter of connections that are parked for this reason.
const fn counter(reason: ParkReason) -> Counter {
    match reason {
        ParkReason::FirstRequest => Counter::Waiting,
        ParkReason::KeepAlive => Counter::KeepAlive,
        ParkReason::LingeringClose => Counter::Closing,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::ParkSet;
    use super::*;
    use crate::setup::SharedMode;
    use evenkeel_scoreboard::{Gate, Layout, Scoreboard};
    use evenkeel_sys::blocking_pool::BlockingPool;
    use evenkeel_sys::idle_table::IdleTable;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    pub(in super::super) fn context() -> Rc<ThreadContext> {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0).unwrap();
        let shared = Shared {
            mode: SharedMode::new(),
            connections: 0.into(),
            accepted: 0.into(),
            most_connections: 0,
            credits: 1,
            async_factor: None,
            waits_for_room: false.into(),
            line,
            gate: Gate::new(1, line),
            idle_table: IdleTable::new(1024),
            sets: vec![ParkSet::new().unwrap()],
            listeners: Vec::new().into(),
            descriptors: 1024,
            blocking_pool: Arc::new(BlockingPool::new(1)),
            demand: None,
            shedding: None,
            drain_grace_ms: 0,
            is_last: false.into(),
            stop_grace_ms: 0,
            accepting: 1.into(),
        };
        ThreadContext::new(Arc::new(shared), 0)
    }

    #[test]
    fn an_inspection_queues_a_socket_with_a_request_once_and_returns_others() {
        let context = context();
        let park = |reason: ParkReason| {
            let (client, server) = UnixStream::pair().unwrap();
            server.set_nonblocking(true).unwrap();
            let (socket, _) = context.register(Socket::new(server.into())).unwrap();
            let entry = Entry { reason: reason as u8, deadline_ms: 0, state: [7; 4] };
            let Ok(Parked::Idle(token)) = context.shared.idle_table.park(socket, entry) else {
                panic!("nothing has arrived")
            };
            (client, token)
        };
        let (mut asking, token) = park(ParkReason::KeepAlive);
        asking.write_all(b"x").unwrap();
        for _ in 0..3 {
            assert!(context.inspect(token).is_none());
        }
        context.enqueue(token, true);
        assert_eq!((context.queue_length(), context.shared.line.read(Counter::Runnable)), (1, 1));
        assert_eq!(context.pop().map(|queued| queued.token), Some(token));
        let unparked = context.shared.idle_table.take_queued(token).unwrap();
        assert!(unparked.hangup && unparked.state == [7; 4]);
        let (_idle, token) = park(ParkReason::FirstRequest);
        assert!(matches!(context.inspect(token), Some((_, true))));
        let (gone, token) = park(ParkReason::FirstRequest);
        drop(gone);
        assert!(matches!(context.inspect(token), Some((_, false))));
        let (mut closing, token) = park(ParkReason::LingeringClose);
        closing.write_all(b"x").unwrap();
        assert!(context.inspect(token).is_some(), "what comes after our end is no request");
        assert_eq!(context.queue_length(), 0);
    }
}
