//! The prefork model: a child is one process with one thread, which serves one connection at a
//! time. Idle children sleep in front of the listening sockets; a connection wakes one of them,
//! the same as last time if that is idle. It knows no protocol.

use crate::dedicated::PAUSE;
use crate::dedicated::contention::Eviction;
use crate::dedicated::hold::{Holder, Orders};
use crate::dedicated::listen_set::{Accepted, ListenSet, ListenSockets};
use crate::dedicated::lookout::Lookout;
use crate::service::{Held, Seat, Service};
use crate::setup::{Control, Mode, Setup};
use crate::{Child, Command, Poker};
use evenkeel_message::{Level, Notice};
use evenkeel_scoreboard::{ChildLine, ClientWait, Counter, Gate};
use evenkeel_sys::clock;
use evenkeel_sys::watch::Watch;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Serves a child of the parent until it is told to go and its connection is closed. `make` makes
/// its service.
///
/// # Errors
/// The system's, where it denies a set; then nothing has been served.
pub fn serve<S: Service>(child: Child, make: impl FnOnce(Seat) -> S) -> io::Result<()> {
    serve_with(Setup::of(child, 1), make)
}

/// As [`serve`], of parts.
///
/// # Errors
/// The system's, where it denies a set; then nothing has been served.
pub fn serve_with<S: Service>(setup: Setup, make: impl FnOnce(Seat) -> S) -> io::Result<()> {
    setup.bound_unsent();
    let blocking_pool = setup.blocking_pool();
    let listen_set = ListenSet::new(Arc::new(ListenSockets::new(setup.listeners)))?;
    listen_set.add_control(&*setup.control)?;
    let held = Held {
        client_wait: Arc::new(ClientWait::new(Some(setup.line))),
        slot: setup.slots.map(|slots| slots.of_worker(0)),
    };
    let seat = Seat { thread: 0, gate: Gate::open(), blocking_pool, held: Some(held.clone()) };
    let poker = setup.control.poker();
    setup.control.ready();
    let hearing = Hearing {
        control: Some(setup.control),
        sockets: Arc::clone(&listen_set.sockets),
        mode: Mode::Run,
        leave_us: None,
        parting_us: u64::try_from(setup.parting.as_micros()).unwrap_or(u64::MAX),
        has_closed: false,
        room_requested: false,
        eviction: None,
        lookout: Lookout::default(),
    };
    let holder = Holder::new(make(seat), hearing, setup.line, held, setup.parting);
    let (line, most_connections) = (setup.line, setup.most_connections);
    Prefork { holder, listen_set, poker, line, most_connections, accepted: 0 }.live()
}

/// What the parent says, heard by the one thread wherever it waits.
struct Hearing {
    /// None once the parent is dead.
    control: Option<Box<dyn Control + Send>>,
    /// Closed once the child leaves them for good, be it in the middle of a connection.
    sockets: Arc<ListenSockets>,
    mode: Mode,
    /// When it was told to go, in microseconds of the monotonic clock.
    leave_us: Option<u64>,
    /// For how long after that it takes what waits.
    parting_us: u64,
    /// Whether it has let go of the ports since.
    has_closed: bool,
    /// Whether it was told to hurry, and nothing was done about it at the doors.
    room_requested: bool,
    /// The same, of the connection at hand.
    eviction: Option<Eviction>,
    lookout: Lookout,
}

impl Orders for Hearing {
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(|control| control.as_fd())
    }

    fn watch(&self) -> io::Result<Option<Watch>> {
        self.bell().map(Watch::new).transpose()
    }

    fn runtime(&self) -> Option<Handle> {
        None
    }

    fn hear(&mut self) {
        while let Some(command) = self.control.as_mut().and_then(|control| control.next()) {
            let eviction = match command {
                Command::MakeRoom => Some(Eviction::Normal),
                Command::MakeRoomUrgently => Some(Eviction::Urgent),
                _ => None,
            };
            self.room_requested |= eviction.is_some();
            self.eviction = self.eviction.max(eviction);
            let mode = Mode::of(command).and_then(|mode| self.mode.heed(mode));
            self.mode = mode.unwrap_or(self.mode);
            if mode.is_some_and(|mode| mode >= Mode::Drain) {
                self.leave_us.get_or_insert_with(clock::monotonic_us);
                self.tick();
            }
            if command == Command::Orphaned {
                self.control = None;
            }
        }
    }

    /// In how long it lets go of the ports.
    fn due(&self) -> Option<Duration> {
        let end_us = self.leave_us?.saturating_add(self.parting_us);
        (!self.has_closed)
            .then(|| Duration::from_micros(end_us.saturating_sub(clock::monotonic_us())))
    }

    fn tick(&mut self) {
        if self.due().is_some_and(|left| left.is_zero()) {
            self.has_closed = true;
            self.sockets.close();
        }
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn take_eviction(&mut self) -> Option<Eviction> {
        self.eviction.take()
    }

    fn is_contended(&mut self) -> bool {
        self.lookout.stands(|| self.sockets.queue())
    }
}

impl Hearing {
    /// Whether it takes connections that wait.
    fn may_take(&self) -> bool {
        match self.mode {
            Mode::Run => true,
            Mode::Park => false,
            Mode::Drain | Mode::Exit => self.leave_us.is_some() && !self.has_closed,
        }
    }
}

struct Prefork<S> {
    holder: Holder<S, Hearing>,
    listen_set: ListenSet,
    poker: Option<Poker>,
    line: ChildLine,
    most_connections: u64,
    accepted: u64,
}

impl<S: Service> Prefork<S> {
    fn live(mut self) -> io::Result<()> {
        loop {
            self.beat();
            let mode = self.holder.orders.mode;
            if mode >= Mode::Drain {
                // This may be the last process that can take what waits.
                if self.holder.orders.may_take() {
                    self.serve_queue()?;
                }
                self.holder.tick();
                return Ok(());
            }
            let held = self.holder.is_held();
            self.listen_set.set_watched(mode == Mode::Run && !held)?;
            let most = if held { Some(PAUSE) } else { self.holder.tick_left() };
            let ready = self.listen_set.wait(most)?;
            if ready.control {
                self.hear();
            }
            // A connection that has woken us has woken nobody else: it is served, whatever we
            // were told with it.
            let room_requested = std::mem::take(&mut self.holder.orders.room_requested);
            if ready.connection || room_requested && mode == Mode::Run && !held {
                self.serve_queue()?;
            }
            match held {
                true => self.holder.tick(),
                false => self.holder.tick_if_due(),
            }
        }
    }

    /// Shows the parent that this child comes round.
    fn beat(&self) {
        self.line.set(Counter::HeartbeatUs, clock::monotonic_coarse_us());
    }

    /// Hears the parent; once it is dead, nothing comes any more.
    fn hear(&mut self) {
        let orders = &mut self.holder.orders;
        orders.hear();
        // Between connections there is nothing to make room for.
        orders.eviction = None;
    }

    /// Serves what waits to be accepted, one connection after another.
    fn serve_queue(&mut self) -> io::Result<()> {
        loop {
            self.beat();
            self.line.add(Counter::Reserved, 1);
            let accepted = self.listen_set.sockets.accept();
            if matches!(accepted, Accepted::Connection(_)) {
                self.line.add(Counter::Busy, 1);
            }
            self.line.subtract(Counter::Reserved, 1);
            match accepted {
                Accepted::Connection(connection) => {
                    self.count();
                    self.holder.orders.eviction = None;
                    self.holder.hold(connection);
                    self.poker.iter().for_each(Poker::rest);
                    self.line.subtract(Counter::Busy, 1);
                    self.holder.tick_if_due();
                }
                Accepted::Nothing => {
                    self.holder.orders.lookout.clear();
                    return Ok(());
                }
                Accepted::Denied(error) => return self.bear(&error),
            }
            self.holder.orders.tick();
            if !self.holder.orders.may_take() || self.holder.is_held() {
                return Ok(());
            }
        }
    }

    /// Counts a connection, and takes no more after the last that it may have. The parent hears of
    /// it where it tells of more demand.
    fn count(&mut self) {
        self.accepted += 1;
        let orders = &mut self.holder.orders;
        if self.accepted == self.most_connections {
            orders.mode = orders.mode.heed(Mode::Drain).unwrap_or(orders.mode);
            if let Some(control) = &orders.control {
                control.leaving();
            }
        }
        let Some(poker) = &self.poker else { return };
        poker.wake();
        // Others wait, and this worker is taken now.
        if self.listen_set.sockets.queue() > 0 {
            poker.poke();
        }
    }

    /// Stays away from the doors for a moment where the system has nothing to accept with.
    fn bear(&mut self, error: &io::Error) -> io::Result<()> {
        if let Some(notice) = self.listen_set.denial(error) {
            self.holder.service.notify(notice);
        }
        if let Err(error) = self.listen_set.set_watched(false) {
            let text = "cannot leave the listening sockets";
            self.holder
                .service
                .notify(Notice::own("mpm_prefork", Level::Error, text).because(&error));
        }
        self.holder.pause();
        Ok(())
    }
}
