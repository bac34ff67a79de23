//! The worker model: a child has a listener thread, which accepts connections, and worker threads,
//! which serve one connection at a time. The listener accepts only while a worker is idle; other
//! connections stay in the kernel's queue. Nothing here knows the protocol.

mod driver;
mod listener;
mod threads;

use crate::Child;
use crate::dedicated::listen_set::{ListenSet, ListenSockets};
use crate::dedicated::queue_monitor::QueueMonitor;
use crate::dedicated::worker::Worker;
use crate::service::{DedicatedWorker, Service, ServiceContext};
use crate::setup::{Setup, SharedMode};
use crate::start_barrier::{AbortOnPanic, StartBarrier};
use driver::Driver;
use evenkeel_scoreboard::{ChildLine, Counter, Gate, SharedPermits, Slots, WorkerPermits};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::waker::Waker;
use listener::Listener;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
use threads::{ThreadControl, WorkerThreads};
use tokio::runtime::Handle;

/// The least descriptors of a worker: its waker and its connection.
pub(crate) const DESCRIPTORS_PER_THREAD: u64 = 2;

/// What the threads of a child share.
struct Shared {
    mode: SharedMode,
    threads: WorkerThreads,
    sockets: Arc<ListenSockets>,
    accepted: AtomicU64,
    most_connections: u64,
    drain_grace: Duration,
    stop_grace: Duration,
    /// Whether the whole server stops, so that no other child will accept the connections in the
    /// accept queue.
    is_last: AtomicBool,
    /// Whether the child has closed its listening sockets.
    has_closed: AtomicBool,
    /// Whether the last connection that the child may have was accepted.
    is_exhausted: AtomicBool,
    line: ChildLine,
    slots: Option<Slots>,
    permits: Option<SharedPermits>,
    blocking_pool: Arc<BlockingPool>,
    /// The runtime of requests that wait.
    runtime: Handle,
    /// Wakes the listener.
    waker: Waker,
    /// Whether the system denied the last connection. Then clients are evicted although workers are
    /// idle.
    denied: AtomicBool,
    queue_monitor: QueueMonitor,
}

impl Shared {
    /// Whether no connection is left. Idle workers do not suffice: a connection may be on the shelf
    /// of one.
    fn is_over(&self) -> bool {
        self.threads.all_idle() && self.line.read(Counter::Connections) == 0
    }

    /// How many connections wait without an idle worker.
    fn unserved(&self) -> usize {
        match self.threads.idle() > 0 && !self.denied.load(Relaxed) {
            true => 0,
            false => self.sockets.queue(),
        }
    }
}

/// Serves as a child of the parent until the parent tells it to end and nothing is left to do.
/// `make` creates the service of each worker, on its thread.
///
/// # Errors
/// The system's, if it denies descriptors or a thread; nothing has been served then.
pub fn serve<S, M>(child: Child, make: M) -> io::Result<()>
where
    S: Service,
    M: Fn(ServiceContext) -> S + Send + Sync,
{
    let threads = child.limits.threads_per_child;
    serve_with(Setup::of(child, threads), make)
}

/// As [`serve`], with the parts of a child.
///
/// # Errors
/// The system's, if it denies descriptors or a thread; nothing has been served then.
pub fn serve_with<S, M>(setup: Setup, make: M) -> io::Result<()>
where
    S: Service,
    M: Fn(ServiceContext) -> S + Send + Sync,
{
    setup.bound_unsent();
    let threads = setup.threads.max(1);
    let blocking_pool = setup.blocking_pool();
    let sockets = Arc::new(ListenSockets::new(setup.listeners));
    let listen_set = ListenSet::new(Arc::clone(&sockets))?;
    // It is dropped after all workers have ended.
    let driver = Driver::start()?;
    let shared = Shared {
        mode: SharedMode::new(),
        threads: WorkerThreads::new(threads)?,
        sockets,
        accepted: AtomicU64::new(0),
        most_connections: setup.most_connections,
        drain_grace: setup.drain_grace,
        stop_grace: setup.stop_grace,
        is_last: AtomicBool::new(false),
        has_closed: AtomicBool::new(false),
        is_exhausted: AtomicBool::new(false),
        line: setup.line,
        slots: setup.slots,
        permits: setup.permits,
        blocking_pool,
        runtime: driver.handle(),
        waker: Waker::new()?,
        denied: AtomicBool::new(false),
        queue_monitor: QueueMonitor::default(),
    };
    let listener = Listener::new(&shared, listen_set, setup.control, setup.most_children)?;
    let barrier = StartBarrier::new(threads + 1);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let (shared, make, barrier) = (&shared, &make, &barrier);
            let spawned = std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn_scoped(scope, move || run_worker(shared, number, make, barrier));
            if let Err(error) = spawned {
                barrier.fail(number, &error);
            }
        }
        let _abort = AbortOnPanic;
        if barrier.wait() {
            listener.run();
        }
        shared.threads.shut_down();
    });
    barrier.result()
}

/// One worker thread, from start to end.
fn run_worker<S: Service>(
    shared: &Shared,
    number: usize,
    make: &impl Fn(ServiceContext) -> S,
    barrier: &StartBarrier,
) {
    let _abort = AbortOnPanic;
    let Some(thread) = shared.threads.thread(number) else { return };
    let slot = shared.slots.map(|slots| slots.of_worker(number));
    let dedicated = DedicatedWorker {
        client_wait: Arc::clone(&thread.client_wait),
        slot,
        permits: shared.permits.map(|permits| Arc::new(WorkerPermits::new(permits))),
    };
    let context = ServiceContext {
        thread: number,
        gate: Gate::open(),
        blocking_pool: Arc::clone(&shared.blocking_pool),
        worker: Some(dedicated.clone()),
    };
    let control = ThreadControl { shared, thread };
    let worker = Worker::new(make(context), control, shared.line, dedicated, shared.drain_grace);
    if barrier.wait() {
        threads::run(shared, number, thread, worker);
    }
}
