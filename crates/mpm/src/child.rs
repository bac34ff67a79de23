//! What a child gets from the parent when it starts to serve: listening sockets, scoreboard lines,
//! log buffers, and the channel of the parent's commands. The parent creates it, and the serving
//! function owns it; they share nothing else.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use evenkeel_scoreboard::{ChildLine, Counter, LineBuffers, ParentLine, Scoreboard, Slots};
use evenkeel_sys::channel::{Channel, Received};
use evenkeel_sys::clock;

use crate::limits::Limits;
use crate::settings::Settings;

/// A serving process, from its own point of view.
pub struct Child {
    /// The index of its lines in the scoreboard.
    pub index: usize,
    /// The lowest number from 0 on that no other serving child of its configuration had at its
    /// start.
    pub rank: usize,
    /// The number of the configuration that it serves, 0 for the first.
    pub generation: u32,
    /// How many requests it may work on at once.
    pub credits: usize,
    /// The sockets to accept from. Dropping them does not stop the sockets from listening while the
    /// parent or another child has them.
    pub listeners: Vec<Listener>,
    /// Commands from the parent, and its death.
    pub control: Control,
    /// The scoreboard as a whole, for the status page.
    pub board: Scoreboard,
    /// The counters that this child writes.
    pub line: ChildLine,
    /// A slot for each request in progress.
    pub slots: Slots,
    /// The log buffers, as many as the settings ask for.
    pub buffers: LineBuffers,
    /// The settings of the configuration.
    pub settings: Arc<Settings>,
    /// The limits that follow from them.
    pub limits: Limits,
}

/// A listening socket.
pub struct Listener {
    /// The socket: non-blocking, listening.
    pub socket: OwnedFd,
    /// The address that it is bound to.
    pub address: SocketAddr,
    /// The protocol of the Listen line, in lower case: `http` or `https` if it gives none.
    pub protocol: Arc<str>,
    /// Whether connections wait in the kernel until they have sent data.
    pub deferred: bool,
}

/// A command from the parent to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Accept (again).
    Run,
    /// Accept nothing until told otherwise, and close each connection with its next response.
    Park,
    /// Close the listening sockets, since an address may no longer be configured; answer the
    /// requests in progress, and the next request of each open connection with `Connection: close`;
    /// then return from the serving function.
    Drain,
    /// Close the listening sockets, finish the requests in progress, close idle connections, then
    /// return. The parent kills a child that does not do so in time.
    Exit,
    /// The same as `Drain`, when the whole server stops. No other child will accept the connections
    /// in the accept queue, so this child still accepts them for up to 3 seconds.
    DrainLast,
    /// The same as `Exit`, when the whole server stops.
    ExitLast,
    /// Connections wait to be accepted: accept one, or evict a client that is idle or stalled
    /// (prefork and worker; event ignores it).
    MakeRoom,
    /// As `MakeRoom`, and clients that are waited for as this one is hold most of the workers: it
    /// gets the shortest grace period (prefork).
    MakeRoomUrgently,
    /// The parent has died. As `Drain`; no further command will come, and the descriptor stays
    /// readable, so that it must not be watched any longer.
    Orphaned,
}

/// A report from a child to the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// It serves.
    Ready,
    /// It was sent SIGTERM, or has accepted all connections that it may: it asks for `Drain`.
    EndRequested,
    /// It has just run out of credits. This is a hint; the parent decides from other facts.
    Demand,
}

/// The child's end of the channel to its parent.
pub struct Control {
    channel: Arc<Channel>,
    demand: Option<DemandSignal>,
    line: ChildLine,
    /// What the parent writes about this child; none if nothing is written.
    about: Option<ParentLine>,
    orphaned: AtomicBool,
    // In one-process mode there is no parent; the signal handler writes commands here.
    _other_end: Option<Channel>,
}

/// Tells the parent that the child has run out of credits. Clones share their state.
#[derive(Clone)]
pub struct DemandSignal(Arc<DemandState>);

struct DemandState {
    channel: Arc<Channel>,
    /// When a thread last found no credit, in microseconds of the monotonic clock.
    denied_us: AtomicU64,
    /// Since when a child that serves one connection at a time has been idle, by the same clock.
    idle_us: AtomicU64,
    clock_us: fn() -> u64,
}

/// A child that has had no credit for longer than this has signalled it already.
const SIGNAL_INTERVAL_US: u64 = 10_000;

/// A child that was idle for longer than this signals demand when it gets a connection, since the
/// parent decides rarely while nothing changes.
const IDLE_US: u64 = 1_000_000;

impl DemandSignal {
    fn new(channel: Arc<Channel>, clock_us: fn() -> u64) -> Self {
        let (denied_us, idle_us) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(Arc::new(DemandState { channel, denied_us, idle_us, clock_us }))
    }

    /// Called by a child that serves one connection at a time, when it has become idle.
    pub(crate) fn note_idle(&self) {
        self.0.idle_us.store((self.0.clock_us)(), Ordering::Relaxed);
    }

    /// Called by the same child when it has a connection. The kernel wakes idle children in the
    /// order in which they began to wait. So if it wakes one that was idle for long, more children
    /// are busy than at any time since: the parent is told of that, and of nothing under steady
    /// load.
    pub(crate) fn note_busy(&self) {
        let now_us = (self.0.clock_us)();
        let idle_us = self.0.idle_us.swap(now_us, Ordering::Relaxed);
        if now_us.saturating_sub(idle_us) >= IDLE_US {
            self.signal();
        }
    }

    /// Called each time a thread finds no credit. The parent is told when the child has just run
    /// out, at most once in 10 ms, and not again before it has read the last report: reports that
    /// matter more must find room in the channel.
    pub fn signal(&self) {
        let now_us = (self.0.clock_us)();
        let before_us = self.0.denied_us.swap(now_us, Ordering::Relaxed);
        if now_us.saturating_sub(before_us) >= SIGNAL_INTERVAL_US && self.0.channel.is_drained() {
            // The death of the parent is noticed as the end of the channel.
            let _ = self.0.channel.send(Report::Demand.byte());
        }
    }
}

impl Command {
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Run => b'r',
            Self::Park => b'p',
            Self::Drain => b'd',
            Self::Exit => b'x',
            Self::DrainLast => b'l',
            Self::ExitLast => b'e',
            Self::MakeRoom => b'h',
            Self::MakeRoomUrgently => b'c',
            Self::Orphaned => b'o',
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        let sent = [
            Self::Run,
            Self::Park,
            Self::Drain,
            Self::Exit,
            Self::DrainLast,
            Self::ExitLast,
            Self::MakeRoom,
            Self::MakeRoomUrgently,
        ];
        sent.into_iter().find(|command| command.byte() == byte)
    }

    /// Whether the whole server stops.
    pub(crate) fn is_last(self) -> bool {
        matches!(self, Self::DrainLast | Self::ExitLast)
    }
}

impl Report {
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Ready => b'R',
            Self::EndRequested => b'E',
            Self::Demand => b'P',
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        let all = [Self::Ready, Self::EndRequested, Self::Demand];
        all.into_iter().find(|report| report.byte() == byte)
    }
}

impl Control {
    pub(crate) fn new(channel: Channel, line: ChildLine, other_end: Option<Channel>) -> Self {
        let channel = Arc::new(channel);
        let demand = Some(DemandSignal::new(Arc::clone(&channel), clock::monotonic_coarse_us));
        let orphaned = AtomicBool::new(false);
        Self { channel, demand, line, about: None, orphaned, _other_end: other_end }
    }

    /// The same for a child in a pool of fixed size, where demand changes nothing.
    pub(crate) fn without_demand_signal(self) -> Self {
        Self { demand: None, ..self }
    }

    /// The next command, without waiting; the descriptor is readable when there is one. The death
    /// of the parent is reported once.
    #[must_use]
    pub fn next(&self) -> Option<Command> {
        loop {
            match self.channel.receive() {
                Received::Byte(byte) => {
                    if let Some(command) = Command::from_byte(byte) {
                        return Some(command);
                    }
                }
                Received::Empty => return None,
                Received::Closed => {
                    let told = self.orphaned.swap(true, Ordering::Relaxed);
                    return (!told).then_some(Command::Orphaned);
                }
            }
        }
    }

    /// The same, with the parent's line, in which it writes the child's credits.
    pub(crate) fn with_budget(self, about: Option<ParentLine>) -> Self {
        Self { about, ..self }
    }

    /// How many requests the child may work on at once, by the parent's last decision.
    #[must_use]
    pub fn budget(&self) -> Option<usize> {
        self.about.map(|about| about.credits())
    }

    /// Tells the parent that this child serves. It is called once, when all threads accept; a
    /// reload waits for it.
    pub fn ready(&self) {
        self.line.set(Counter::Ready, 1);
        // The death of the parent is noticed as the end of the channel.
        let _ = self.channel.send(Report::Ready.byte());
    }

    /// Tells the parent that this child has accepted all connections that it may and ends by
    /// itself, so that another takes its place meanwhile.
    pub fn leaving(&self) {
        let _ = self.channel.send(Report::EndRequested.byte());
    }

    /// Tells the parent that a thread of this child has found no credit, so that it decides at once
    /// whether to start more children. It costs as much as reading a clock, and is called each
    /// time.
    pub fn signal_demand(&self) {
        if let Some(demand) = &self.demand {
            demand.signal();
        }
    }

    /// The same for threads that do not have the control; none if the pool has a fixed size.
    #[must_use]
    pub fn demand_signal(&self) -> Option<DemandSignal> {
        self.demand.clone()
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl AsRawFd for Control {
    fn as_raw_fd(&self) -> RawFd {
        self.channel.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_scoreboard::Layout;

    #[test]
    fn commands_arrive_in_order_and_the_parents_death_once() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0).unwrap();
        let (parent, child) = Channel::pair().unwrap();
        let control = Control::new(child, line, None);
        let sent = [Command::Park, Command::Run, Command::DrainLast, Command::ExitLast];
        for command in sent {
            parent.send(command.byte()).unwrap();
        }
        parent.send(b'?').unwrap();
        let got: Vec<Command> = std::iter::from_fn(|| control.next()).collect();
        assert_eq!(got, sent);
        control.ready();
        assert_eq!(parent.receive(), Received::Byte(Report::Ready.byte()));
        assert_eq!(line.read(Counter::Ready), 1);
        drop(parent);
        assert_eq!(control.next(), Some(Command::Orphaned));
        assert_eq!(control.next(), None);
    }

    #[test]
    fn demand_is_signalled_when_credits_run_out_and_once_per_reading() {
        static NOW_US: AtomicU64 = AtomicU64::new(1_000_000);
        let (parent, child) = Channel::pair().unwrap();
        let demand = DemandSignal::new(Arc::new(child), || NOW_US.load(Ordering::Relaxed));
        let signal_after = |us| {
            NOW_US.fetch_add(us, Ordering::Relaxed);
            demand.clone().signal();
        };
        signal_after(0);
        assert_eq!(parent.receive(), Received::Byte(Report::Demand.byte()));
        // It still has none, and the parent knows.
        (0..100).for_each(|_| signal_after(SIGNAL_INTERVAL_US - 1));
        assert_eq!(parent.receive(), Received::Empty);
        (0..100).for_each(|_| signal_after(SIGNAL_INTERVAL_US));
        assert_eq!(parent.receive(), Received::Byte(Report::Demand.byte()));
        assert_eq!(parent.receive(), Received::Empty);
    }

    #[test]
    fn a_child_that_was_idle_signals_demand_and_a_busy_one_does_not() {
        static NOW_US: AtomicU64 = AtomicU64::new(5_000_000);
        let (parent, child) = Channel::pair().unwrap();
        let demand = DemandSignal::new(Arc::new(child), || NOW_US.load(Ordering::Relaxed));
        let serve_after = |idle_us| {
            NOW_US.fetch_add(idle_us, Ordering::Relaxed);
            demand.note_busy();
            // A child is not idle during a connection, however long that lasts.
            NOW_US.fetch_add(2 * IDLE_US, Ordering::Relaxed);
            demand.note_idle();
            parent.receive()
        };
        assert_eq!(serve_after(0), Received::Byte(Report::Demand.byte()), "its first");
        for _ in 0..9 {
            assert_eq!(serve_after(IDLE_US - 1), Received::Empty);
        }
        assert_eq!(serve_after(IDLE_US), Received::Byte(Report::Demand.byte()));
        assert_eq!(parent.receive(), Received::Empty);
    }
}
