//! The worker model: a child has a listener, which accepts, and worker threads, which each serve
//! one connection at a time. A connection is accepted only when a worker is idle; the rest stays in
//! the kernel's queue. It knows no protocol.

mod driver;
mod listener;
mod staff;

use crate::Child;
use crate::dedicated::hold::Holder;
use crate::dedicated::listen_set::{ListenSet, ListenSockets};
use crate::dedicated::lookout::Lookout;
use crate::service::{Held, Seat, Service};
use crate::setup::{Setup, Stance};
use crate::start_barrier::{AbortOnPanic, StartBarrier};
use driver::Driver;
use evenkeel_scoreboard::{ChildLine, Gate, Slots};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::waker::Waker;
use listener::Listener;
use staff::{Orderly, Staff};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
use tokio::runtime::Handle;

/// What a worker needs at the least: its waker, and its connection.
pub(crate) const DESCRIPTORS_PER_THREAD: u64 = 2;

/// What the threads of a child share.
struct Shared {
    stance: Stance,
    staff: Staff,
    sockets: Arc<ListenSockets>,
    accepted: AtomicU64,
    most_connections: u64,
    parting: Duration,
    /// Whether the child has left its ports for good.
    has_closed: AtomicBool,
    /// Whether the last connection that the child may have was accepted.
    is_worn_out: AtomicBool,
    line: ChildLine,
    slots: Option<Slots>,
    blocking_pool: Arc<BlockingPool>,
    /// Where requests wait.
    runtime: Handle,
    /// Rings for the listener.
    waker: Waker,
    /// Whether the system denied the last connection: clients that keep workers waiting make room
    /// then too, be there idle workers.
    denied: AtomicBool,
    lookout: Lookout,
}

impl Shared {
    /// How many connections wait that no worker is idle for.
    fn unserved(&self) -> usize {
        match self.staff.idle() > 0 && !self.denied.load(Relaxed) {
            true => 0,
            false => self.sockets.queue(),
        }
    }
}

/// Serves a child of the parent until it is told to go and nothing is left to do. `make` makes
/// the service of each worker, on its thread.
///
/// # Errors
/// The system's, where it denies descriptors or a thread; then nothing has been served.
pub fn serve<S, M>(child: Child, make: M) -> io::Result<()>
where
    S: Service,
    M: Fn(Seat) -> S + Send + Sync,
{
    let threads = child.limits.threads_per_child;
    serve_with(Setup::of(child, threads), make)
}

/// As [`serve`], of parts.
///
/// # Errors
/// The system's, where it denies descriptors or a thread; then nothing has been served.
pub fn serve_with<S, M>(setup: Setup, make: M) -> io::Result<()>
where
    S: Service,
    M: Fn(Seat) -> S + Send + Sync,
{
    setup.bound_unsent();
    let threads = setup.threads.max(1);
    let blocking_pool = setup.blocking_pool();
    let sockets = Arc::new(ListenSockets::new(setup.listeners));
    let listen_set = ListenSet::new(Arc::clone(&sockets))?;
    // Ends when all workers have.
    let driver = Driver::start()?;
    let shared = Shared {
        stance: Stance::new(),
        staff: Staff::new(threads)?,
        sockets,
        accepted: AtomicU64::new(0),
        most_connections: setup.most_connections,
        parting: setup.parting,
        has_closed: AtomicBool::new(false),
        is_worn_out: AtomicBool::new(false),
        line: setup.line,
        slots: setup.slots,
        blocking_pool,
        runtime: driver.handle(),
        waker: Waker::new()?,
        denied: AtomicBool::new(false),
        lookout: Lookout::default(),
    };
    let listener = Listener::new(&shared, listen_set, setup.control, setup.most_children)?;
    let barrier = StartBarrier::new(threads + 1);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let (shared, make, barrier) = (&shared, &make, &barrier);
            let spawned = std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn_scoped(scope, move || work(shared, number, make, barrier));
            if let Err(error) = spawned {
                barrier.fail(number, &error);
            }
        }
        let _abort = AbortOnPanic;
        if barrier.wait() {
            listener.live();
        }
        shared.staff.dismiss();
    });
    barrier.result()
}

/// One worker from its beginning to its end.
fn work<S: Service>(
    shared: &Shared,
    number: usize,
    make: &impl Fn(Seat) -> S,
    barrier: &StartBarrier,
) {
    let _abort = AbortOnPanic;
    let Some(post) = shared.staff.post(number) else { return };
    let slot = shared.slots.map(|slots| slots.of_worker(number));
    let held = Held { client_wait: Arc::clone(&post.client_wait), slot };
    let seat = Seat {
        thread: number,
        gate: Gate::open(),
        blocking_pool: Arc::clone(&shared.blocking_pool),
        held: Some(held.clone()),
    };
    let orderly = Orderly { shared, post };
    let holder = Holder::new(make(seat), orderly, shared.line, held, shared.parting);
    if barrier.wait() {
        staff::attend(shared, number, post, holder);
    }
}
