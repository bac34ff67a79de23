//! What a child is made of, whichever process model it serves by: its sockets, the channel from the
//! parent and the numbers that bound it; and how it stands to its connections. Nothing here
//! serves.

use crate::{Child, Command, Poker};
use evenkeel_scoreboard::{ChildLine, Counter, Slots};
use evenkeel_sys::blocking_pool::{BlockingPool, PoolTimes};
use evenkeel_sys::{process, socket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::time::Duration;

/// How a child stands to its listening sockets and connections, each state further out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub(crate) enum Mode {
    /// It accepts.
    Run,
    /// It accepts none and closes each connection with its next response.
    Park,
    /// The same, and it ends when the last connection is closed.
    Drain,
    /// The same, and idle connections are closed now.
    Exit,
}

impl Mode {
    /// What a command asks for; none for one that changes nothing.
    pub(crate) fn of(command: Command) -> Option<Self> {
        match command {
            Command::Run => Some(Mode::Run),
            Command::Park => Some(Mode::Park),
            Command::Drain | Command::Orphaned => Some(Mode::Drain),
            Command::Exit => Some(Mode::Exit),
            Command::MakeRoom | Command::MakeRoomUrgently => None,
        }
    }

    /// Takes up another, unless the child is further on its way out already.
    pub(crate) fn heed(self, other: Mode) -> Option<Mode> {
        (self < Mode::Drain || other > self).then_some(other)
    }
}

/// The mode of a child, as its threads share it.
pub(crate) struct Stance(AtomicU8);

impl Stance {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(Mode::Run as u8))
    }

    pub(crate) fn mode(&self) -> Mode {
        from_number(self.0.load(Acquire))
    }

    /// Takes up another mode; false where the child is further on its way out already.
    pub(crate) fn heed(&self, other: Mode) -> bool {
        let change = |now: u8| from_number(now).heed(other).map(|mode| mode as u8);
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
    /// The next command, if one is there; the end of the channel is told once.
    fn next(&mut self) -> Option<Command>;

    /// Tells the parent that the child accepts.
    fn ready(&self);

    /// How many requests may be in progress at once, where the parent changes that.
    fn budget(&self) -> Option<usize> {
        None
    }

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

    fn budget(&self) -> Option<usize> {
        crate::Control::budget(self)
    }

    fn leaving(&self) {
        crate::Control::leaving(self);
    }

    fn poker(&self) -> Option<Poker> {
        crate::Control::poker(self)
    }
}

/// What a child is made of.
pub struct Setup {
    /// Its listening sockets, non-blocking.
    pub listeners: Vec<Arc<OwnedFd>>,
    /// The channel from the parent.
    pub control: Box<dyn Control + Send>,
    /// How many requests may be in progress at once (event).
    pub credits: u32,
    /// How many connections there may be beyond one for each credit, for each free credit; none
    /// bounds them by descriptors and memory alone (event's AsyncRequestWorkerFactor).
    pub async_factor: Option<f64>,
    /// How many serving threads there are: worker's each have one connection, event's any number.
    pub threads: usize,
    /// How many connections are accepted before the child ends by itself; 0 for no bound
    /// (MaxConnectionsPerChild).
    pub most_connections: u64,
    /// How many children there are at most, which share the queues of the sockets.
    pub most_children: usize,
    /// How many descriptors the process may have.
    pub descriptors: usize,
    /// How many threads there may be for work that blocks or burns, besides the serving ones.
    pub blocking_threads: usize,
    /// The child's line in the scoreboard.
    pub line: ChildLine,
    /// The child's slots in the scoreboard, one for each worker; none shows nothing (event's
    /// requests take theirs themselves).
    pub slots: Option<Slots>,
    /// Where requests that wait too long are turned away: how long they may (event,
    /// OverloadShedding).
    pub shedding: Option<Duration>,
    /// For how long a child that was told to go takes what waits to be accepted (prefork, worker),
    /// and keeps a connection on which another request may be on its way.
    pub parting: Duration,
}

/// The [`Setup::parting`] of a server: a client that asks again at once does so within this, also
/// over a long line and beside a busy machine.
const PARTING: Duration = Duration::from_millis(300);

/// The most bytes that the kernel keeps unsent for a connection: enough that a fast client never
/// waits for us, so little that a thousand slow ones do not matter.
const UNSENT_BYTES: u32 = 256 << 10;

/// The most descriptors that an idle table has room for, whatever the limit of the process says.
const MOST_DESCRIPTORS: usize = 1 << 22;

impl Setup {
    /// What a child of the parent serves with, on so many threads.
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
            shedding: child.limits.overload_shedding,
            parting: PARTING,
        }
    }

    /// The threads of the child for work that blocks or burns; they add up their times in its line.
    pub(crate) fn blocking_pool(&self) -> Arc<BlockingPool> {
        let times = PoolTimes {
            queue_us: self.line.cell(Counter::LineUs),
            blocked_us: self.line.cell(Counter::HeldUs),
        };
        Arc::new(BlockingPool::with_times(self.blocking_threads, self.credits, Some(times)))
    }

    /// Bounds what the kernel keeps for each connection. A socket that cannot be bounded (not TCP)
    /// serves all the same.
    pub(crate) fn bound_unsent(&self) {
        for listener in &self.listeners {
            let _ = socket::limit_unsent(listener, UNSENT_BYTES);
        }
    }
}
