//! The event model: a child of a fixed number of serving threads that share its listening
//! sockets, its idle_table of idle connections and its gate. What comes in are the child's sockets
//! and a maker of services; the threads end when the child has been told to go and its last
//! connection has been closed. It knows no protocol.

mod contention;
mod listen_set;
mod overload;
mod park;
mod tasks;
mod thread;

use crate::service::{Service, ServiceContext};
use crate::setup::{Control, Mode, Setup, SharedMode};
use crate::start_barrier::{AbortOnPanic, StartBarrier};
use crate::{Child, DemandSignal};
use evenkeel_scoreboard::{ChildLine, Counter, Gate};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::clock;
use evenkeel_sys::epoll::Epoll;
use evenkeel_sys::idle_table::IdleTable;
use evenkeel_sys::process;
use listen_set::ListenSet;
pub(crate) use listen_set::reserve;
use park::Bench;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;
use tasks::Tasks;
use thread::Thread;
use tokio::runtime::{Builder, LocalOptions};

/// What the threads of a child share.
struct Shared {
    mode: SharedMode,
    /// Open connections, resting or not.
    connections: AtomicU32,
    accepted: AtomicU64,
    most_connections: u64,
    credits: u32,
    async_factor: Option<f64>,
    /// Whether somebody accepts nothing because of that.
    awaits_room: AtomicBool,
    line: ChildLine,
    gate: Arc<Gate>,
    idle_table: IdleTable,
    sets: Vec<Set>,
    /// For threads that begin; empty once the child leaves them for good.
    listeners: Mutex<Vec<Arc<OwnedFd>>>,
    descriptors: usize,
    blocking_pool: Arc<BlockingPool>,
    /// None where the number of children does not change.
    demand: Option<DemandSignal>,
    /// OverloadShedding, where it is configured.
    shedding: Option<Duration>,
    /// For how long connections that rest are kept once the child ends, in milliseconds.
    drain_grace_ms: u32,
}

/// What the other threads see of one.
struct Set {
    epoll: Epoll,
    /// Connections that are registered here, give or take a closed one that was not counted yet.
    registered: AtomicU32,
    waker: Mutex<Option<Waker>>,
    /// When its thread last came round, in microseconds of the monotonic clock.
    beat_us: AtomicU64,
}

impl Shared {
    /// Notes that a thread has come round. The first publishes for all, so that what the parent
    /// sees stands still when any of them does, the first included.
    fn beat(&self, number: u8, now_us: u64) {
        if let Some(set) = self.sets.get(usize::from(number)) {
            set.beat_us.store(now_us, Relaxed);
        }
        if number == 0 {
            let oldest = self.sets.iter().map(|set| set.beat_us.load(Relaxed)).min();
            self.line.set(Counter::HeartbeatUs, oldest.unwrap_or(now_us));
        }
    }

    fn mode(&self) -> Mode {
        self.mode.get()
    }

    /// Takes up a command, unless the child is further on its way out already.
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

    /// Lets go of the listening sockets: they close with the last thread's, for an address that is
    /// no longer configured must not be listened on.
    fn close_listeners(&self) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether the child has accepted as many connections as it may.
    fn is_worn_out(&self) -> bool {
        self.most_connections > 0 && self.accepted.load(Relaxed) >= self.most_connections
    }

    /// Whether the child has as many connections as it may have at once, those not counted that
    /// wait for their client's end: the credits and the factor times as many again, as Apache's
    /// manual has it. In its code (event.c, `connections_above_limit`) the factor counts idle
    /// workers alone; here nothing is accepted without a credit, and clients that keep all of them
    /// busy must not keep the others out. A fraction of the factor counts, which Apache cuts off.
    /// Of those whose requests wait for expensive work as many again may be open, for such a crowd
    /// must not keep the others out either.
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
        self.note_room();
    }

    /// Wakes the threads that accept nothing because the child was full.
    fn note_room(&self) {
        if self.async_factor.is_some() && self.awaits_room.swap(false, SeqCst) {
            self.wake_all();
        }
    }

    /// Whether the child has nothing more to do.
    fn is_over(&self) -> bool {
        self.mode() >= Mode::Drain && self.connections.load(SeqCst) == 0
    }
}

/// Serves a child of the parent until it is told to go and nothing is left to do. `make` makes
/// the service of each thread, on that thread.
///
/// # Errors
/// The system's, where it denies a set, a runtime or a thread; then nothing has been served.
pub fn serve<S, M>(child: Child, make: M) -> io::Result<()>
where
    S: Service + Unpin,
    M: Fn(ServiceContext) -> S + Send + Sync,
{
    let limits = &child.limits;
    let most_children = limits.max_request_workers.div_ceil(limits.threads_per_child.max(1));
    let threads = serving_threads(process::usable_cores(), limits.start_servers, most_children);
    let setup = Setup::of(child, threads);
    serve_with(setup, make)
}

/// How many threads serve in a child. Who comes while a pool is small stays with its first
/// children, so that those must be able to use every core; and requests that are answered at once
/// let no pool grow.
fn serving_threads(cores: usize, start_servers: usize, most_children: usize) -> usize {
    let most_children = most_children.max(1);
    let of_first = cores / start_servers.clamp(1, most_children);
    of_first.min(MOST_THREADS / most_children).max(cores / most_children).max(1)
}

/// All threads of a pool that has grown at most, where its first children have one for each core:
/// each wants an inotify instance, of which a user is granted 128, and is woken by connections that
/// others accept.
const MOST_THREADS: usize = 64;

/// As [`serve`], of parts.
///
/// # Errors
/// The system's, where it denies a set, a runtime or a thread; then nothing has been served.
pub fn serve_with<S, M>(setup: Setup, make: M) -> io::Result<()>
where
    S: Service + Unpin,
    M: Fn(ServiceContext) -> S + Send + Sync,
{
    setup.bound_unsent();
    let threads = setup.threads.clamp(1, usize::from(u8::MAX));
    let sets = (0..threads).map(|_| Set::new()).collect::<io::Result<Vec<_>>>()?;
    let blocking_pool = setup.blocking_pool();
    let shared = Arc::new(Shared {
        mode: SharedMode::new(),
        connections: AtomicU32::new(0),
        accepted: AtomicU64::new(0),
        most_connections: setup.most_connections,
        credits: setup.credits,
        async_factor: setup.async_factor,
        awaits_room: AtomicBool::new(false),
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

/// One serving thread from its runtime's beginning to its end.
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
    // All tasks of the thread are one: time and sockets are looked at after each turn of it.
    builder.event_interval(1);
    let runtime = match builder.enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => return barrier.fail(number, &error),
    };
    let (gate, blocking_pool) = (Arc::clone(&shared.gate), Arc::clone(&shared.blocking_pool));
    let service = make(ServiceContext { thread: number, gate, blocking_pool, worker: None });
    runtime.block_on(async {
        let listeners = shared.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let listen_set = ListenSet::new(listeners, shared.descriptors);
        let bench = Bench::new(Arc::clone(shared), number);
        tokio::task::spawn_local(Tasks::new(Rc::clone(&bench)));
        match Thread::new(bench, listen_set, control, service) {
            Ok(thread) if barrier.wait() => thread.begin().await,
            Ok(_) => {}
            Err(error) => barrier.fail(number, &error),
        }
    });
}

impl Set {
    fn new() -> io::Result<Self> {
        let epoll = Epoll::new()?;
        Ok(Self {
            epoll,
            registered: AtomicU32::new(0),
            waker: Mutex::new(None),
            beat_us: AtomicU64::new(clock::monotonic_coarse_us()),
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
