//! The event model: a child has a fixed number of serving threads, which share its listening
//! sockets, its table of idle connections and its gate. Each thread runs an `EventLoop` and its
//! tasks. The child ends once the parent has told it to and its last connection is closed.

mod contention;
mod context;
mod event_loop;
mod listen_set;
mod overload;
mod tasks;

use crate::Limits;
use crate::service::{Service, ServiceContext};
use crate::setup::{Control, Mode, Setup, SharedMode};
use crate::start_barrier::{AbortOnPanic, StartBarrier};
use crate::{Child, DemandSignal};
use context::ThreadContext;
use evenkeel_scoreboard::{ChildLine, Counter, Gate};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::clock;
use evenkeel_sys::epoll::Epoll;
use evenkeel_sys::idle_table::IdleTable;
use evenkeel_sys::process;
use event_loop::EventLoop;
use listen_set::ListenSet;
pub(crate) use listen_set::reserve;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;
use tasks::Tasks;
use tokio::runtime::{Builder, LocalOptions};

/// What the threads of a child share.
struct Shared {
    mode: SharedMode,
    /// All open connections, idle ones included.
    connections: AtomicU32,
    accepted: AtomicU64,
    most_connections: u64,
    credits: u32,
    async_factor: Option<f64>,
    /// Whether a thread accepts nothing because the child is full.
    waits_for_room: AtomicBool,
    line: ChildLine,
    gate: Arc<Gate>,
    idle_table: IdleTable,
    sets: Vec<ParkSet>,
    /// For threads that start; empty once the child stops accepting for good.
    listeners: Mutex<Vec<Arc<OwnedFd>>>,
    descriptors: usize,
    blocking_pool: Arc<BlockingPool>,
    /// None if the number of children does not change.
    demand: Option<DemandSignal>,
    /// OverloadShedding, if it is configured.
    shedding: Option<Duration>,
    /// How long idle connections are kept once the child exits, in milliseconds.
    drain_grace_ms: u32,
    /// Whether the whole server stops, so that no other child will accept the connections in the
    /// accept queue.
    is_last: AtomicBool,
    /// How long this child still accepts then, in milliseconds.
    stop_grace_ms: u32,
    /// The number of threads that still have the listening sockets open.
    accepting: AtomicUsize,
}

/// What other threads see of a thread: its epoll set of parked connections, its waker and its
/// heartbeat.
struct ParkSet {
    epoll: Epoll,
    /// Connections that are registered here; a closed one may not have been subtracted yet.
    registered: AtomicU32,
    waker: Mutex<Option<Waker>>,
    /// When its thread's loop last ran, in microseconds of the monotonic clock.
    heartbeat_us: AtomicU64,
}

impl Shared {
    /// Records that a thread's loop has run. The first thread publishes the oldest time, so that
    /// the parent sees a stall of any thread, the first included.
    fn heartbeat(&self, number: u8, now_us: u64) {
        if let Some(set) = self.sets.get(usize::from(number)) {
            set.heartbeat_us.store(now_us, Relaxed);
        }
        if number == 0 {
            let oldest = self.sets.iter().map(|set| set.heartbeat_us.load(Relaxed)).min();
            self.line.set(Counter::HeartbeatUs, oldest.unwrap_or(now_us));
        }
    }

    fn mode(&self) -> Mode {
        self.mode.get()
    }

    /// Changes the mode, unless the child is closer to its end already.
    fn advance(&self, mode: Mode) {
        if self.mode.advance(mode) {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        for set in &self.sets {
            let waker = set.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn count_accepted(&self) {
        self.connections.fetch_add(1, Relaxed);
        self.line.add(Counter::Connections, 1);
        if self.most_connections == 0 {
            return;
        }
        if self.accepted.fetch_add(1, Relaxed) + 1 >= self.most_connections {
            self.advance(Mode::Drain);
        }
    }

    /// Drops the listening sockets, which are closed once the last thread has dropped them too: an
    /// address that is no longer configured must not be listened on.
    fn close_listeners(&self) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether the child has accepted as many connections as it may.
    fn is_exhausted(&self) -> bool {
        self.most_connections > 0 && self.accepted.load(Relaxed) >= self.most_connections
    }

    /// Whether the child has as many connections as it may have at once, except those in lingering
    /// close: the credits, and the factor times as many, as Apache's manual says. In Apache's code
    /// (event.c, `connections_above_limit`) the factor counts idle workers only; here nothing is
    /// accepted without a credit, and clients that keep all workers busy must not keep others out.
    /// A fraction of the factor counts, which Apache cuts off. Connections whose requests wait for
    /// expensive work do not count, up to the same number: they must not keep others out either.
    fn is_full(&self) -> bool {
        let Some(factor) = self.async_factor else { return false };
        let closing = self.line.read(Counter::Closing);
        let open = u64::from(self.connections.load(SeqCst)).saturating_sub(closing);
        let most = f64::from(self.credits) * (1.0 + factor);
        let waiting = f64::from(self.blocking_pool.bulkhead().waiting()).min(most);
        open as f64 - waiting >= most
    }

    fn count_closed(&self) {
        self.line.subtract(Counter::Connections, 1);
        let last = self.connections.fetch_sub(1, SeqCst) == 1;
        if last && self.mode() >= Mode::Drain {
            self.wake_all();
        }
        self.signal_room();
    }

    /// Wakes the threads that accept nothing because the child was full.
    fn signal_room(&self) {
        if self.async_factor.is_some() && self.waits_for_room.swap(false, SeqCst) {
            self.wake_all();
        }
    }

    /// Whether the child has nothing more to do.
    fn is_over(&self) -> bool {
        self.accepting.load(SeqCst) == 0 && self.connections.load(SeqCst) == 0
    }

    /// Counts a thread that has closed the listening sockets.
    fn count_closed_sockets(&self) {
        if self.accepting.fetch_sub(1, SeqCst) == 1 {
            self.wake_all();
        }
    }
}

/// Serves as a child of the parent until the parent tells it to end and nothing is left to do.
/// `make` creates the service of each thread, on that thread.
///
/// # Errors
/// The system's, if it denies an epoll set, a runtime or a thread; nothing has been served then.
pub fn serve<S, M>(child: Child, make: M) -> io::Result<()>
where
    S: Service + Unpin,
    M: Fn(ServiceContext) -> S + Send + Sync,
{
    let threads = threads_of(&child.limits);
    let setup = Setup::of(child, threads);
    serve_with(setup, make)
}

/// The number of serving threads of a child.
#[must_use]
pub fn threads_of(limits: &Limits) -> usize {
    let most_children = limits.max_request_workers.div_ceil(limits.threads_per_child.max(1));
    serving_threads(process::usable_cores(), limits.start_servers, most_children)
}

/// The number of serving threads of a child. The first children keep the connections that they
/// accept while the pool is small, so they must be able to use every core. Requests that are
/// answered at once let no pool grow.
fn serving_threads(cores: usize, start_servers: usize, most_children: usize) -> usize {
    let most_children = most_children.max(1);
    let of_first = cores / start_servers.clamp(1, most_children);
    of_first.min(MOST_THREADS / most_children).max(cores / most_children).max(1)
}

/// A bound on the threads of all children of a full-grown pool whose first children have one for
/// each core: each thread takes an inotify instance, of which a user may have 128, and is woken by
/// connections that others accept.
const MOST_THREADS: usize = 64;

/// As [`serve`], with the parts of a child.
///
/// # Errors
/// The system's, if it denies an epoll set, a runtime or a thread; nothing has been served then.
pub fn serve_with<S, M>(setup: Setup, make: M) -> io::Result<()>
where
    S: Service + Unpin,
    M: Fn(ServiceContext) -> S + Send + Sync,
{
    setup.bound_unsent();
    let threads = setup.threads.clamp(1, usize::from(u8::MAX));
    let sets = (0..threads).map(|_| ParkSet::new()).collect::<io::Result<Vec<_>>>()?;
    let blocking_pool = setup.blocking_pool();
    let shared = Arc::new(Shared {
        mode: SharedMode::new(),
        connections: AtomicU32::new(0),
        accepted: AtomicU64::new(0),
        most_connections: setup.most_connections,
        credits: setup.credits,
        async_factor: setup.async_factor,
        waits_for_room: AtomicBool::new(false),
        line: setup.line,
        gate: Gate::new(setup.credits, setup.line),
        idle_table: IdleTable::new(setup.descriptors),
        sets,
        listeners: Mutex::new(setup.listeners),
        descriptors: setup.descriptors,
        blocking_pool,
        demand: setup.control.demand_signal(),
        shedding: setup.shedding,
        drain_grace_ms: u32::try_from(setup.drain_grace.as_millis()).unwrap_or(u32::MAX / 4),
        is_last: AtomicBool::new(false),
        stop_grace_ms: u32::try_from(setup.stop_grace.as_millis()).unwrap_or(u32::MAX / 4),
        accepting: AtomicUsize::new(threads),
    });
    let (control, barrier) = (setup.control, StartBarrier::new(threads));
    std::thread::scope(|scope| {
        for number in 1..threads {
            let (shared, make, barrier) = (Arc::clone(&shared), &make, &barrier);
            let spawned = std::thread::Builder::new()
                .name(format!("serve-{number}"))
                .spawn_scoped(scope, move || run(&shared, number, None, make, barrier));
            if let Err(error) = spawned {
                barrier.fail(number, &error);
            }
        }
        run(&shared, 0, Some(control), &make, &barrier);
    });
    barrier.result()
}

/// One serving thread, from start to end.
fn run<S, M>(
    shared: &Arc<Shared>,
    number: usize,
    control: Option<Box<dyn Control + Send>>,
    make: &M,
    barrier: &StartBarrier,
) where
    S: Service + Unpin,
    M: Fn(ServiceContext) -> S,
{
    let _abort = AbortOnPanic;
    let mut builder = Builder::new_current_thread();
    // All tasks of the thread are one: timers and sockets are checked after two polls of it at
    // most. With one, the runtime would ask for events after the poll, and then again to wait.
    builder.event_interval(2);
    let runtime = match builder.enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => return barrier.fail(number, &error),
    };
    let (gate, blocking_pool) = (Arc::clone(&shared.gate), Arc::clone(&shared.blocking_pool));
    let service = make(ServiceContext { thread: number, gate, blocking_pool, worker: None });
    runtime.block_on(async {
        let listeners = shared.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let listen_set = ListenSet::new(listeners, shared.descriptors);
        let context = ThreadContext::new(Arc::clone(shared), number);
        tokio::task::spawn_local(Tasks::new(Rc::clone(&context)));
        match EventLoop::new(context, listen_set, control, service) {
            Ok(event_loop) if barrier.wait() => event_loop.ready().await,
            Ok(_) => {}
            Err(error) => barrier.fail(number, &error),
        }
    });
}

impl ParkSet {
    fn new() -> io::Result<Self> {
        let epoll = Epoll::new()?;
        Ok(Self {
            epoll,
            registered: AtomicU32::new(0),
            waker: Mutex::new(None),
            heartbeat_us: AtomicU64::new(clock::monotonic_coarse_us()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_children_that_a_pool_begins_with_use_every_core_and_a_large_pool_has_few_threads_each() {
        assert_eq!(serving_threads(2, 1, 16), 2);
        assert_eq!(serving_threads(2, 3, 16), 1);
        assert_eq!(serving_threads(16, 3, 16), 4);
        assert_eq!(serving_threads(16, 16, 256), 1);
        assert_eq!(serving_threads(128, 1, 1), 128);
        assert_eq!((serving_threads(1, 5, 0), serving_threads(4, 0, 1)), (1, 4));
    }
}
