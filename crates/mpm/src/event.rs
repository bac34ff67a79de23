//! The event model: a child of a fixed number of serving threads that share its listening
//! sockets, its shelf of idle connections and its gate. What comes in are the child's sockets
//! and a maker of services; the threads end when the child has been told to go and its last
//! connection has been closed. It knows no protocol.

mod park;
mod ports;
mod thread;

use crate::service::{Seat, Service};
use crate::{Child, Command, Poker};
use evenkeel_scoreboard::{ChildLine, Counter, Gate};
use evenkeel_sys::clock;
use evenkeel_sys::crew::{Crew, Tally};
use evenkeel_sys::epoll::Epoll;
use evenkeel_sys::process;
use evenkeel_sys::shelf::Shelf;
use evenkeel_sys::socket;
use park::Bench;
use ports::Ports;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use thread::Thread;
use tokio::runtime::{Builder, LocalOptions};

/// How a child stands to its listening sockets and connections, each state further out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
enum Mode {
    /// It accepts.
    Run,
    /// It accepts none and closes each connection with its next response.
    Park,
    /// The same, and it ends when the last connection is closed.
    Drain,
    /// The same, and idle connections are closed now.
    Exit,
}

impl From<Command> for Mode {
    fn from(command: Command) -> Self {
        match command {
            Command::Run => Mode::Run,
            Command::Park => Mode::Park,
            Command::Drain | Command::Orphaned => Mode::Drain,
            Command::Exit => Mode::Exit,
        }
    }
}

/// The child's end of the channel from its parent.
pub trait Control: AsFd {
    /// The next command, if one is there; the end of the channel is told once.
    fn next(&mut self) -> Option<Command>;

    /// Tells the parent that the child accepts.
    fn ready(&self);

    /// Tells the parent that the child ends by itself, so that another takes its place while it
    /// finishes what it has.
    fn leaving(&self) {}

    /// What tells the parent that a thread has found no credit; none where nobody would listen.
    fn poker(&self) -> Option<Poker> {
        None
    }
}

impl Control for crate::Control {
    fn next(&mut self) -> Option<Command> {
        crate::Control::next(self)
    }

    fn ready(&self) {
        crate::Control::ready(self);
    }

    fn leaving(&self) {
        crate::Control::leaving(self);
    }

    fn poker(&self) -> Option<Poker> {
        crate::Control::poker(self)
    }
}

/// What a child of the event model is made of.
pub struct Setup {
    /// Its listening sockets, non-blocking.
    pub ports: Vec<Arc<OwnedFd>>,
    /// The channel from the parent.
    pub control: Box<dyn Control + Send>,
    /// How many requests may be in progress at once.
    pub credits: u32,
    /// How many serving threads there are.
    pub threads: usize,
    /// How many connections are accepted before the child ends by itself; 0 for no bound
    /// (MaxConnectionsPerChild).
    pub most_connections: u64,
    /// How many descriptors the process may have.
    pub descriptors: usize,
    /// How many threads there may be for work that blocks or burns, besides the serving ones.
    pub blocking_threads: usize,
    /// The child's line in the scoreboard.
    pub line: ChildLine,
}

/// The most bytes that the kernel keeps unsent for a connection: enough that a fast client never
/// waits for us, so little that a thousand slow ones do not matter.
const UNSENT_BYTES: u32 = 256 << 10;

/// The most descriptors that a shelf has room for, whatever the limit of the process says.
const MOST: usize = 1 << 22;

/// What the threads of a child share.
struct Shared {
    mode: AtomicU8,
    /// Open connections, resting or not.
    connections: AtomicU32,
    accepted: AtomicU64,
    most_connections: u64,
    line: ChildLine,
    gate: Arc<Gate>,
    shelf: Shelf,
    sets: Vec<Set>,
    /// For threads that begin; empty once the child leaves them for good.
    ports: Mutex<Vec<Arc<OwnedFd>>>,
    descriptors: usize,
    crew: Arc<Crew>,
    /// None where the number of children does not change.
    poker: Option<Poker>,
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
        match self.mode.load(Acquire) {
            0 => Mode::Run,
            1 => Mode::Park,
            2 => Mode::Drain,
            _ => Mode::Exit,
        }
    }

    /// Takes up a command, unless the child is further on its way out already.
    fn heed(&self, mode: Mode) {
        let change = |now: u8| {
            let leaving = now >= Mode::Drain as u8;
            (!leaving || mode as u8 > now).then_some(mode as u8)
        };
        if self.mode.fetch_update(SeqCst, SeqCst, change).is_ok() {
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
            self.heed(Mode::Drain);
        }
    }

    /// Lets go of the listening sockets: they close with the last thread's, for an address that is
    /// no longer configured must not be listened on.
    fn leave_ports(&self) {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether the child has accepted as many connections as it may.
    fn is_worn_out(&self) -> bool {
        self.most_connections > 0 && self.accepted.load(Relaxed) >= self.most_connections
    }

    fn count_closed(&self) {
        self.line.subtract(Counter::Connections, 1);
        let last = self.connections.fetch_sub(1, SeqCst) == 1;
        if last && self.mode() >= Mode::Drain {
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
    M: Fn(Seat) -> S + Send + Sync,
{
    let limits = &child.limits;
    let cores = process::usable_cores();
    let most_children = limits.max_request_workers.div_ceil(limits.threads_per_child.max(1));
    let setup = Setup {
        ports: child.listeners.into_iter().map(|listener| Arc::new(listener.socket)).collect(),
        control: Box::new(child.control),
        credits: u32::try_from(child.credits).unwrap_or(u32::MAX),
        threads: cores / most_children.max(1),
        most_connections: limits.max_connections_per_child.unwrap_or(0),
        descriptors: usize::try_from(process::raise_descriptor_limit())
            .map_or(MOST, |n| n.min(MOST)),
        blocking_threads: cores,
        line: child.line,
    };
    serve_with(setup, make)
}

/// As [`serve`], of parts.
///
/// # Errors
/// The system's, where it denies a set, a runtime or a thread; then nothing has been served.
pub fn serve_with<S, M>(setup: Setup, make: M) -> io::Result<()>
where
    S: Service + Unpin,
    M: Fn(Seat) -> S + Send + Sync,
{
    for port in &setup.ports {
        // A socket that cannot be bounded (not TCP) serves all the same.
        let _ = socket::limit_unsent(port, UNSENT_BYTES);
    }
    let threads = setup.threads.clamp(1, usize::from(u8::MAX));
    let sets = (0..threads).map(|_| Set::new()).collect::<io::Result<Vec<_>>>()?;
    let shared = Arc::new(Shared {
        mode: AtomicU8::new(Mode::Run as u8),
        connections: AtomicU32::new(0),
        accepted: AtomicU64::new(0),
        most_connections: setup.most_connections,
        line: setup.line,
        gate: Gate::new(setup.credits, setup.line),
        shelf: Shelf::new(setup.descriptors),
        sets,
        ports: Mutex::new(setup.ports),
        descriptors: setup.descriptors,
        crew: Arc::new(Crew::tallied(setup.blocking_threads, Some(tally(setup.line)))),
        poker: setup.control.poker(),
    });
    let (control, muster) = (setup.control, Muster::new(threads));
    std::thread::scope(|scope| {
        for number in 1..threads {
            let (shared, make, muster) = (Arc::clone(&shared), &make, &muster);
            let spawned = std::thread::Builder::new()
                .name(format!("serve-{number}"))
                .spawn_scoped(scope, move || run(&shared, number, None, make, muster));
            if let Err(error) = spawned {
                muster.fail(number, &error);
            }
        }
        run(&shared, 0, Some(control), &make, &muster);
    });
    muster.result()
}

/// Where a child's crew adds up its times.
fn tally(line: ChildLine) -> Tally {
    Tally { line_us: line.cell(Counter::LineUs), held_us: line.cell(Counter::HeldUs) }
}

/// Where the serving threads of a child meet before they begin: all serve, or none does. A
/// child that lacked one would leave unserved what rests in its set.
struct Muster {
    state: Mutex<Mustered>,
    changed: Condvar,
}

struct Mustered {
    /// How many have not come yet.
    missing: usize,
    failure: Option<io::Error>,
}

impl Muster {
    fn new(threads: usize) -> Self {
        let state = Mutex::new(Mustered { missing: threads, failure: None });
        Self { state, changed: Condvar::new() }
    }

    /// Waits for the others; whether all can serve.
    fn meet(&self) -> bool {
        let mut state = self.come();
        while state.missing > 0 && state.failure.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.is_none()
    }

    /// Tells that a thread cannot serve.
    fn fail(&self, number: usize, error: &io::Error) {
        let text = format!("serving thread {number} cannot begin: {error}");
        self.come().failure.get_or_insert(io::Error::new(error.kind(), text));
    }

    fn come(&self) -> MutexGuard<'_, Mustered> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.missing = state.missing.saturating_sub(1);
        self.changed.notify_all();
        state
    }

    fn result(self) -> io::Result<()> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.failure.map_or(Ok(()), Err)
    }
}

/// Ends the process where its thread unwinds. The others would go on without it, and nobody
/// would serve what rests with it nor, for the first, hear the parent: the parent replaces a
/// child that is dead.
struct Whole;

impl Drop for Whole {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// One serving thread from its runtime's beginning to its end.
fn run<S, M>(
    shared: &Arc<Shared>,
    number: usize,
    control: Option<Box<dyn Control + Send>>,
    make: &M,
    muster: &Muster,
) where
    S: Service + Unpin,
    M: Fn(Seat) -> S,
{
    let _whole = Whole;
    let mut builder = Builder::new_current_thread();
    let runtime = match builder.enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => return muster.fail(number, &error),
    };
    let (gate, crew) = (Arc::clone(&shared.gate), Arc::clone(&shared.crew));
    let service = make(Seat { thread: number, gate, crew });
    runtime.block_on(async {
        let ports = shared.ports.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ports = Ports::new(ports, shared.descriptors);
        let bench = Bench::new(Arc::clone(shared), number);
        match Thread::new(bench, ports, control, service) {
            Ok(thread) if muster.meet() => thread.begin().await,
            Ok(_) => {}
            Err(error) => muster.fail(number, &error),
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
