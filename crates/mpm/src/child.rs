//! What a child is given when it starts to serve: its listening sockets, its lines of the
//! scoreboard, its log buffers and the channel on which the parent commands it. The parent makes
//! it, the serving function owns it; it is the whole of what the two share.

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
    /// The number of the configuration that it serves, 0 for the first.
    pub generation: u32,
    /// How many requests it may work on at once.
    pub credits: usize,
    /// The sockets to accept from. Dropping them leaves the sockets listening as long as the
    /// parent or a sibling holds them.
    pub listeners: Vec<Listener>,
    /// Commands from the parent, and its end.
    pub control: Control,
    /// The scoreboard as a whole, for whoever shows it.
    pub board: Scoreboard,
    /// The counters that this child writes.
    pub line: ChildLine,
    /// A line for each request in progress.
    pub slots: Slots,
    /// The log buffers, as many as the settings ask for.
    pub buffers: LineBuffers,
    /// What was configured.
    pub settings: Arc<Settings>,
    /// What the limits come to.
    pub limits: Limits,
}

/// One listening socket.
pub struct Listener {
    /// The socket: non-blocking, listening.
    pub socket: OwnedFd,
    /// The address that it is bound to.
    pub address: SocketAddr,
    /// The protocol of the Listen line, in lower case: `http` or `https` where none was given.
    pub protocol: Arc<str>,
    /// Whether connections wait in the kernel until they have sent something.
    pub deferred: bool,
}

/// What the parent tells a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Accept (again).
    Run,
    /// Accept nothing until told otherwise, and close connections as they are answered.
    Park,
    /// Close the listening sockets, for an address may be no longer configured; answer what is in
    /// progress and the next request of each open connection with `Connection: close`; then return
    /// from the serving function.
    Drain,
    /// Close the listening sockets, finish the requests in progress, close idle connections, then
    /// return. What is not done in time is ended by the parent.
    Exit,
    /// Connections wait to be accepted: take one, or make room by ending a connection that its
    /// client leaves idle or does not move (prefork, worker; to event it says nothing).
    MakeRoom,
    /// As `Hurry`, and clients that the workers wait for as this one does hold most of them: it is
    /// waited for no longer than a moment (prefork).
    MakeRoomUrgently,
    /// The parent is dead. As `Drain`; no further command will come, and the descriptor stays
    /// readable for ever: stop watching it.
    Orphaned,
}

/// What a child tells the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// It serves.
    Ready,
    /// Someone sent it SIGTERM, or it has accepted all that it may: it wants to be told to drain.
    EndAsked,
    /// It has just run out of credits. A hint: what is done about it is decided from other facts.
    Poke,
}

/// The child's end of the channel to its parent.
pub struct Control {
    channel: Arc<Channel>,
    poker: Option<Poker>,
    line: ChildLine,
    /// What the parent writes about this child; none where nobody does.
    about: Option<ParentLine>,
    orphaned: AtomicBool,
    // In one-process mode there is no parent; the handler of signals writes commands here.
    _other_end: Option<Channel>,
}

/// How the threads of a child tell the parent that they have run out of credits. Copies are one
/// and the same.
#[derive(Clone)]
pub struct Poker(Arc<Poking>);

struct Poking {
    channel: Arc<Channel>,
    /// When a thread last found no credit, in microseconds of the monotonic clock.
    denied_us: AtomicU64,
    /// Since when a child that serves one connection at a time has had none, by the same clock.
    idle_us: AtomicU64,
    clock_us: fn() -> u64,
}

/// A child that has had no credit for longer than this has told of it already.
const POKE_US: u64 = 10_000;

/// Who had nothing to do for longer than this tells of it when it is called: the parent looks no
/// more often where nothing changes.
const REST_US: u64 = 1_000_000;

impl Poker {
    fn new(channel: Arc<Channel>, clock_us: fn() -> u64) -> Self {
        let (denied_us, idle_us) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(Arc::new(Poking { channel, denied_us, idle_us, clock_us }))
    }

    /// To be called by a child that serves one connection at a time, when it has none any more.
    pub(crate) fn rest(&self) {
        self.0.idle_us.store((self.0.clock_us)(), Ordering::Relaxed);
    }

    /// To be called by the same when it has one. Idle children are called in the order in which
    /// they came to the doors, so that one which has rested for long is called because more are
    /// busy at once than were for as long: the parent hears of that, and of nothing while the load
    /// is steady.
    pub(crate) fn wake(&self) {
        let now_us = (self.0.clock_us)();
        let idle_us = self.0.idle_us.swap(now_us, Ordering::Relaxed);
        if now_us.saturating_sub(idle_us) >= REST_US {
            self.poke();
        }
    }

    /// To be called each time a thread finds no credit. The parent hears of it where the child
    /// has just run out of them, at most once in 10 ms, and not again before it has listened:
    /// what matters more must always find room in the channel.
    pub fn poke(&self) {
        let now_us = (self.0.clock_us)();
        let before_us = self.0.denied_us.swap(now_us, Ordering::Relaxed);
        if now_us.saturating_sub(before_us) >= POKE_US && self.0.channel.is_drained() {
            // A parent that is gone is noticed as the end of the channel.
            let _ = self.0.channel.send(Report::Poke.byte());
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
            Self::MakeRoom => b'h',
            Self::MakeRoomUrgently => b'c',
            Self::Orphaned => b'o',
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Run, Self::Park, Self::Drain, Self::Exit, Self::MakeRoom, Self::MakeRoomUrgently]
            .into_iter()
            .find(|command| command.byte() == byte)
    }
}

impl Report {
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Ready => b'R',
            Self::EndAsked => b'E',
            Self::Poke => b'P',
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        let all = [Self::Ready, Self::EndAsked, Self::Poke];
        all.into_iter().find(|report| report.byte() == byte)
    }
}

impl Control {
    pub(crate) fn new(channel: Channel, line: ChildLine, other_end: Option<Channel>) -> Self {
        let channel = Arc::new(channel);
        let poker = Some(Poker::new(Arc::clone(&channel), clock::monotonic_coarse_us));
        let orphaned = AtomicBool::new(false);
        Self { channel, poker, line, about: None, orphaned, _other_end: other_end }
    }

    /// The same for a child whose siblings have a fixed number: nobody waits for its pokes.
    pub(crate) fn without_poker(self) -> Self {
        Self { poker: None, ..self }
    }

    /// The next command, without waiting; the descriptor is readable when there is one. The death
    /// of the parent is told once.
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

    /// The same, which also tells of the budget that the parent gives this child.
    pub(crate) fn with_budget(self, about: Option<ParentLine>) -> Self {
        Self { about, ..self }
    }

    /// How many requests the child may work on at once, by the parent's last word.
    #[must_use]
    pub fn budget(&self) -> Option<usize> {
        self.about.map(|about| about.credits())
    }

    /// Tells the parent that this child serves. To be called once, when its threads accept: a
    /// reload waits for it.
    pub fn ready(&self) {
        self.line.set(Counter::Ready, 1);
        // A parent that is gone is noticed as the end of the channel.
        let _ = self.channel.send(Report::Ready.byte());
    }

    /// Tells the parent that this child has accepted all that it may and ends by itself: another
    /// is to take its place meanwhile.
    pub fn leaving(&self) {
        let _ = self.channel.send(Report::EndAsked.byte());
    }

    /// Tells the parent that a thread of this child has found no credit, so that it decides at
    /// once whether more children are wanted. As cheap as a look at a clock, and to be called
    /// each time.
    pub fn poke(&self) {
        if let Some(poker) = &self.poker {
            poker.poke();
        }
    }

    /// What does the same for threads that do not have the control; none where the number of
    /// children does not change.
    #[must_use]
    pub fn poker(&self) -> Option<Poker> {
        self.poker.clone()
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
        for command in [Command::Park, Command::Run, Command::Drain, Command::Exit] {
            parent.send(command.byte()).unwrap();
        }
        parent.send(b'?').unwrap();
        let got: Vec<Command> = std::iter::from_fn(|| control.next()).collect();
        assert_eq!(got, [Command::Park, Command::Run, Command::Drain, Command::Exit]);
        control.ready();
        assert_eq!(parent.receive(), Received::Byte(Report::Ready.byte()));
        assert_eq!(line.read(Counter::Ready), 1);
        drop(parent);
        assert_eq!(control.next(), Some(Command::Orphaned));
        assert_eq!(control.next(), None);
    }

    #[test]
    fn only_who_has_just_run_out_of_credits_pokes_and_not_before_he_was_heard() {
        static NOW_US: AtomicU64 = AtomicU64::new(1_000_000);
        let (parent, child) = Channel::pair().unwrap();
        let poker = Poker::new(Arc::new(child), || NOW_US.load(Ordering::Relaxed));
        let poke_after = |us| {
            NOW_US.fetch_add(us, Ordering::Relaxed);
            poker.clone().poke();
        };
        poke_after(0);
        assert_eq!(parent.receive(), Received::Byte(Report::Poke.byte()));
        // It still has none: the parent knows.
        (0..100).for_each(|_| poke_after(POKE_US - 1));
        assert_eq!(parent.receive(), Received::Empty);
        (0..100).for_each(|_| poke_after(POKE_US));
        assert_eq!(parent.receive(), Received::Byte(Report::Poke.byte()));
        assert_eq!(parent.receive(), Received::Empty);
    }

    #[test]
    fn a_child_that_had_rested_tells_that_it_was_called_and_a_busy_one_does_not() {
        static NOW_US: AtomicU64 = AtomicU64::new(5_000_000);
        let (parent, child) = Channel::pair().unwrap();
        let poker = Poker::new(Arc::new(child), || NOW_US.load(Ordering::Relaxed));
        let serve_after = |rest_us| {
            NOW_US.fetch_add(rest_us, Ordering::Relaxed);
            poker.wake();
            // However long a connection lasts, that is no rest.
            NOW_US.fetch_add(2 * REST_US, Ordering::Relaxed);
            poker.rest();
            parent.receive()
        };
        assert_eq!(serve_after(0), Received::Byte(Report::Poke.byte()), "its first");
        for _ in 0..9 {
            assert_eq!(serve_after(REST_US - 1), Received::Empty);
        }
        assert_eq!(serve_after(REST_US), Received::Byte(Report::Poke.byte()));
        assert_eq!(parent.receive(), Received::Empty);
    }
}
