//! The parts that every process model gets for a child: its sockets, the channel from the parent,
//! its bounds, and the mode in which it serves.

use crate::{Child, Command, DemandSignal};
use evenkeel_scoreboard::{ChildLine, Counter, SharedPermits, Slots, WorkerPermits};
use evenkeel_sys::blocking_pool::{BlockingPool, PoolTimes};
use evenkeel_sys::{process, socket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::time::Duration;

/// How a child treats its listening sockets and connections. Later modes are closer to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub(crate) enum Mode {
    /// It accepts.
    Run,
    /// It accepts nothing and closes each connection with its next response.
    Park,
    /// The same, and it ends once the last connection is closed.
    Drain,
    /// The same, and idle connections are closed now.
    Exit,
}

impl Mode {
    /// The mode that a command asks for; none if it changes no mode.
    pub(crate) fn of(command: Command) -> Option<Self> {
        match command {
            Command::Run => Some(Mode::Run),
            Command::Park => Some(Mode::Park),
            Command::Drain | Command::DrainLast | Command::Orphaned => Some(Mode::Drain),
            Command::Exit | Command::ExitLast => Some(Mode::Exit),
            Command::MakeRoom | Command::MakeRoomUrgently => None,
        }
    }

    /// The new mode, unless the child is closer to its end already.
    pub(crate) fn advance(self, other: Mode) -> Option<Mode> {
        (self < Mode::Drain || other > self).then_some(other)
    }
}

/// The mode of a child, shared by its threads.
pub(crate) struct SharedMode(AtomicU8);

impl SharedMode {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(Mode::Run as u8))
    }

    pub(crate) fn get(&self) -> Mode {
        from_number(self.0.load(Acquire))
    }

    /// Changes the mode; false if the child is closer to its end already.
    pub(crate) fn advance(&self, other: Mode) -> bool {
        let change = |now: u8| from_number(now).advance(other).map(|mode| mode as u8);
        self.0.fetch_update(SeqCst, SeqCst, change).is_ok()
    }
}

fn from_number(number: u8) -> Mode {
    match number {
        0 => Mode::Run,
        1 => Mode::Park,
        2 => Mode::Drain,
        _ => Mode::Exit,
    }
}

/// The child's end of the channel from its parent.
pub trait Control: AsFd {
    /// The next command, if there is one; the end of the channel is reported once.
    fn next(&mut self) -> Option<Command>;

    /// Tells the parent that the child accepts.
    fn ready(&self);

    /// How many requests may be in progress at once, if the parent changes that.
    fn budget(&self) -> Option<usize> {
        None
    }

    /// Tells the parent that the child ends by itself, so that another takes its place while it
    /// finishes.
    fn leaving(&self) {}

    /// The signal to the parent that a thread has found no credit; none if it changes nothing.
    fn demand_signal(&self) -> Option<DemandSignal> {
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

    fn budget(&self) -> Option<usize> {
        crate::Control::budget(self)
    }

    fn leaving(&self) {
        crate::Control::leaving(self);
    }

    fn demand_signal(&self) -> Option<DemandSignal> {
        crate::Control::demand_signal(self)
    }
}

/// The parts of a child.
pub struct Setup {
    /// Its listening sockets, non-blocking.
    pub listeners: Vec<Arc<OwnedFd>>,
    /// The channel from the parent.
    pub control: Box<dyn Control + Send>,
    /// How many requests may be in progress at once (event).
    pub credits: u32,
    /// The factor that bounds a child's connections by its credits (AsyncRequestWorkerFactor,
    /// event); none leaves the bound to descriptors and memory.
    pub async_factor: Option<f64>,
    /// How many serving threads there are: each has one connection in worker, any number in event.
    pub threads: usize,
    /// How many connections are accepted before the child ends by itself; 0 for no bound
    /// (MaxConnectionsPerChild).
    pub most_connections: u64,
    /// The largest number of children, which share the accept queues.
    pub most_children: usize,
    /// How many descriptors the process may have.
    pub descriptors: usize,
    /// The largest number of threads for blocking work, besides the serving threads.
    pub blocking_threads: usize,
    /// The child's line in the scoreboard.
    pub line: ChildLine,
    /// The child's slots in the scoreboard, one for each worker; none shows nothing (requests of
    /// event take slots themselves).
    pub slots: Option<Slots>,
    /// The permits for expensive work that all children share (prefork, worker).
    pub permits: Option<SharedPermits>,
    /// How long requests may wait before they are turned away (OverloadShedding, event); none turns
    /// none away.
    pub shedding: Option<Duration>,
    /// How long a child that was told to end accepts waiting connections (prefork, worker), and
    /// keeps a connection whose next request may be on its way.
    pub drain_grace: Duration,
    /// How long a child accepts waiting connections when the server stops.
    pub stop_grace: Duration,
}

/// The [`Setup::drain_grace`] of a server: a client that sends its next request at once does so
/// within this time, also over a long line and beside a busy machine.
const DRAIN_GRACE: Duration = Duration::from_millis(300);

/// How long a child accepts at least when the whole server stops, in microseconds. Connections
/// whose handshakes have begun get into the accept queue within this time.
pub(crate) const HANDSHAKE_US: u64 = 100_000;

/// The [`Setup::stop_grace`] of a server: every client that keeps a worker waiting is evicted
/// within this time.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// The largest amount of unsent output that the kernel keeps for a connection: a fast client never
/// waits for the server, and a thousand slow ones take little memory.
const UNSENT_BYTES: u32 = 256 << 10;

/// The largest number of descriptors that an idle table has room for, whatever the process's limit
/// is.
const MOST_DESCRIPTORS: usize = 1 << 22;

impl Setup {
    /// The parts of a child of the parent, with this many serving threads.
    pub(crate) fn of(child: Child, threads: usize) -> Self {
        let raised = process::raise_descriptor_limit();
        Self {
            listeners: child
                .listeners
                .into_iter()
                .map(|listener| Arc::new(listener.socket))
                .collect(),
            control: Box::new(child.control),
            credits: u32::try_from(child.credits).unwrap_or(u32::MAX),
            async_factor: child.limits.async_request_worker_factor,
            threads,
            most_connections: child.limits.max_connections_per_child.unwrap_or(0),
            most_children: child.limits.most_children(),
            descriptors: usize::try_from(raised)
                .map_or(MOST_DESCRIPTORS, |n| n.min(MOST_DESCRIPTORS)),
            blocking_threads: process::usable_cores(),
            line: child.line,
            slots: Some(child.slots),
            permits: Some(SharedPermits::new(child.board, child.line, process::usable_cores())),
            shedding: child.limits.overload_shedding,
            drain_grace: DRAIN_GRACE,
            stop_grace: STOP_GRACE,
        }
    }

    /// The blocking pool of the child, which adds up its times in the child's line.
    pub(crate) fn blocking_pool(&self) -> Arc<BlockingPool> {
        let times = PoolTimes {
            queue_us: self.line.cell(Counter::QueueUs),
            blocked_us: self.line.cell(Counter::BlockedUs),
        };
        Arc::new(BlockingPool::with_times(self.blocking_threads, self.credits, Some(times)))
    }

    /// The handle of one worker to the shared permits for expensive work. `None` if there are none.
    pub(crate) fn worker_permits(&self) -> Option<Arc<WorkerPermits>> {
        self.permits.map(|permits| Arc::new(WorkerPermits::new(permits)))
    }

    /// Bounds the unsent output of each connection. A socket that cannot be bounded (not TCP)
    /// serves all the same.
    pub(crate) fn bound_unsent(&self) {
        for listener in &self.listeners {
            let _ = socket::limit_unsent(listener, UNSENT_BYTES);
        }
    }
}
