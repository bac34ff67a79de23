//! The prefork model: a child is a process with one thread, which serves one connection at a time.
//! Idle children wait for connections; the kernel wakes one of them for each, and the same one as
//! long as it is idle. Nothing here knows the protocol.

use crate::dedicated::contention::Eviction;
use crate::dedicated::listen_set::{Accepted, ListenSet, ListenSockets};
use crate::dedicated::queue_monitor::QueueMonitor;
use crate::dedicated::worker::{Worker, WorkerControl};
use crate::dedicated::{CHECK_US, PAUSE};
use crate::service::{DedicatedWorker, Service, ServiceContext};
use crate::setup::{Control, HANDSHAKE_US, Mode, Setup};
use crate::{Child, Command, DemandSignal};
use evenkeel_message::{Level, Notice};
use evenkeel_scoreboard::{ChildLine, ClientWait, Counter, Gate};
use evenkeel_sys::clock;
use evenkeel_sys::watch::Watch;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Serves as a child of the parent until the parent tells it to end and its connection is closed.
/// `make` creates its service.
///
/// # Errors
/// The system's, if it denies an epoll set; nothing has been served then.
pub fn serve<S: Service>(child: Child, make: impl FnOnce(ServiceContext) -> S) -> io::Result<()> {
    serve_with(Setup::of(child, 1), make)
}

/// As [`serve`], with the parts of a child.
///
/// # Errors
/// The system's, if it denies an epoll set; nothing has been served then.
pub fn serve_with<S: Service>(
    setup: Setup,
    make: impl FnOnce(ServiceContext) -> S,
) -> io::Result<()> {
    setup.bound_unsent();
    let (blocking_pool, permits) = (setup.blocking_pool(), setup.worker_permits());
    let listen_set = ListenSet::new(Arc::new(ListenSockets::new(setup.listeners)))?;
    listen_set.add_control(&*setup.control)?;
    let dedicated = DedicatedWorker {
        client_wait: Arc::new(ClientWait::new(Some(setup.line))),
        slot: setup.slots.map(|slots| slots.of_worker(0)),
        permits,
    };
    let context = ServiceContext {
        thread: 0,
        gate: Gate::open(),
        blocking_pool,
        worker: Some(dedicated.clone()),
    };
    let demand = setup.control.demand_signal();
    setup.control.ready();
    let control = PreforkControl {
        control: Some(setup.control),
        sockets: Arc::clone(&listen_set.sockets),
        mode: Mode::Run,
        drain_us: None,
        drain_grace_us: u64::try_from(setup.drain_grace.as_micros()).unwrap_or(u64::MAX),
        stop_grace_us: u64::try_from(setup.stop_grace.as_micros()).unwrap_or(u64::MAX),
        is_last: false,
        check_us: 0,
        has_closed: false,
        room_requested: false,
        eviction: None,
        queue_monitor: QueueMonitor::default(),
    };
    let worker = Worker::new(make(context), control, setup.line, dedicated, setup.drain_grace);
    let (line, most_connections) = (setup.line, setup.most_connections);
    Prefork { worker, listen_set, demand, line, most_connections, accepted: 0 }.run()
}

/// Receives the parent's commands, in every place where the one thread waits.
struct PreforkControl {
    /// None once the parent has died.
    control: Option<Box<dyn Control + Send>>,
    /// Closed when the child stops accepting for good, even during a connection.
    sockets: Arc<ListenSockets>,
    mode: Mode,
    /// When the child was told to end, in microseconds of the monotonic clock.
    drain_us: Option<u64>,
    /// How long it accepts waiting connections after that.
    drain_grace_us: u64,
    /// The same when the whole server stops.
    stop_grace_us: u64,
    /// Whether the whole server stops, so that no other child will accept the connections in the
    /// accept queue.
    is_last: bool,
    /// When the accept queue is checked next while the server stops.
    check_us: u64,
    /// Whether it has closed the listening sockets since.
    has_closed: bool,
    /// Whether it was told to make room and has not yet tried to accept.
    room_requested: bool,
    /// The eviction that was requested for the current connection.
    eviction: Option<Eviction>,
    queue_monitor: QueueMonitor,
}

impl WorkerControl for PreforkControl {
    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(|control| control.as_fd())
    }

    fn watch(&self) -> io::Result<Option<Watch>> {
        self.wake_descriptor().map(Watch::new).transpose()
    }

    fn runtime(&self) -> Option<Handle> {
        None
    }

    fn receive(&mut self) {
        while let Some(command) = self.control.as_mut().and_then(|control| control.next()) {
            let eviction = match command {
                Command::MakeRoom => Some(Eviction::Normal),
                Command::MakeRoomUrgently => Some(Eviction::Urgent),
                _ => None,
            };
            self.room_requested |= eviction.is_some();
            self.eviction = self.eviction.max(eviction);
            self.is_last |= command.is_last();
            let mode = Mode::of(command).and_then(|mode| self.mode.advance(mode));
            self.mode = mode.unwrap_or(self.mode);
            if mode.is_some_and(|mode| mode >= Mode::Drain) {
                self.drain_us.get_or_insert_with(clock::monotonic_us);
                self.check_us = 0;
                self.tick();
            }
            if command == Command::Orphaned {
                self.control = None;
            }
        }
    }

    /// The time until the listening sockets are closed, or their queue is checked.
    fn due(&self) -> Option<Duration> {
        let end_us = self.accept_until_us()?;
        let due_us = if self.is_last { end_us.min(self.check_us) } else { end_us };
        Some(Duration::from_micros(due_us.saturating_sub(clock::monotonic_us())))
    }

    /// Closes the listening sockets of an ending child when its grace period is over. When the
    /// whole server stops, they stay open while connections wait in the accept queue. This function
    /// then evicts an idle client to make room for those, because the parent requests no more
    /// evictions.
    fn tick(&mut self) {
        let now_us = clock::monotonic_us();
        let Some(end_us) = self.accept_until_us() else { return };
        let is_due = self.is_last && now_us >= self.check_us;
        let is_drained = self.handshakes_end_in().is_none() && self.sockets.queue() == 0;
        if now_us >= end_us || is_due && is_drained {
            self.has_closed = true;
            self.sockets.close();
        } else if is_due {
            self.check_us = now_us.saturating_add(CHECK_US);
            self.eviction = self.eviction.max(Some(Eviction::Normal));
        }
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn take_eviction(&mut self) -> Option<Eviction> {
        self.eviction.take()
    }

    fn is_contended(&mut self) -> bool {
        self.queue_monitor.is_contended(|| self.sockets.queue())
    }
}

impl PreforkControl {
    /// Until when a child that was told to end accepts connections that wait; none if it does not.
    fn accept_until_us(&self) -> Option<u64> {
        let grace_us = if self.is_last { self.stop_grace_us } else { self.drain_grace_us };
        let drain_us = self.drain_us.filter(|_| !self.has_closed)?;
        Some(drain_us.saturating_add(grace_us))
    }

    /// The time for which connections may come whose handshakes had begun when the server was told
    /// to stop. None if that is over.
    fn handshakes_end_in(&self) -> Option<Duration> {
        let end_us = self.drain_us?.saturating_add(HANDSHAKE_US);
        let left_us = end_us.saturating_sub(clock::monotonic_us());
        (self.is_last && self.may_accept() && left_us > 0).then(|| Duration::from_micros(left_us))
    }

    /// Whether the child accepts connections that wait.
    fn may_accept(&self) -> bool {
        match self.mode {
            Mode::Run => true,
            Mode::Park => false,
            Mode::Drain | Mode::Exit => self.drain_us.is_some() && !self.has_closed,
        }
    }
}

struct Prefork<S> {
    worker: Worker<S, PreforkControl>,
    listen_set: ListenSet,
    demand: Option<DemandSignal>,
    line: ChildLine,
    most_connections: u64,
    accepted: u64,
}

impl<S: Service> Prefork<S> {
    fn run(mut self) -> io::Result<()> {
        loop {
            self.heartbeat();
            let mode = self.worker.control.mode;
            if mode >= Mode::Drain {
                // This may be the last process that can accept what waits.
                if self.worker.control.may_accept() {
                    self.serve_queue()?;
                }
                let accepts_for = self.worker.control.handshakes_end_in();
                if !self.worker.has_shelved() && accepts_for.is_none() {
                    self.worker.tick();
                    return Ok(());
                }
                if let Some(time) = accepts_for {
                    self.listen_set.set_watched(true)?;
                    if self.listen_set.wait(Some(time))?.control {
                        self.receive();
                    }
                    continue;
                }
            }
            let paused = self.worker.is_paused();
            self.listen_set.set_watched(mode == Mode::Run && !paused)?;
            let timeout = if paused { Some(PAUSE) } else { self.worker.wait_left() };
            let ready = self.listen_set.wait(timeout)?;
            if ready.control {
                self.receive();
            }
            // A connection that has woken this child has woken no other, so it is served whatever
            // command came with it.
            let room_requested = std::mem::take(&mut self.worker.control.room_requested);
            if ready.connection || room_requested && mode == Mode::Run && !paused {
                self.serve_queue()?;
            }
            self.resume_shelved();
            match paused {
                true => self.worker.tick(),
                false => self.worker.tick_if_due(),
            }
        }
    }

    /// Shows the parent that this child is not stalled.
    fn heartbeat(&self) {
        self.line.set(Counter::HeartbeatUs, clock::monotonic_coarse_us());
    }

    /// Receives the parent's commands; none come once it has died.
    fn receive(&mut self) {
        let control = &mut self.worker.control;
        control.receive();
        // Between connections there is nothing to evict.
        control.eviction = None;
    }

    /// Accepts and serves the connections that wait, one after another.
    fn serve_queue(&mut self) -> io::Result<()> {
        loop {
            self.heartbeat();
            self.line.add(Counter::Reserved, 1);
            let accepted = self.listen_set.sockets.accept();
            if matches!(accepted, Accepted::Connection(_)) {
                self.line.add(Counter::Busy, 1);
            }
            self.line.subtract(Counter::Reserved, 1);
            match accepted {
                Accepted::Connection(connection) => {
                    self.count_accepted();
                    self.worker.control.eviction = None;
                    self.worker.serve_connection(connection);
                    self.demand.iter().for_each(DemandSignal::note_idle);
                    self.line.subtract(Counter::Busy, 1);
                    self.worker.tick_if_due();
                    self.resume_shelved();
                }
                Accepted::Nothing => {
                    self.worker.control.queue_monitor.clear();
                    return Ok(());
                }
                Accepted::Denied(error) => return self.pause_accepting(&error),
            }
            self.worker.control.tick();
            if !self.worker.control.may_accept() || self.worker.is_paused() {
                return Ok(());
            }
        }
    }

    /// Goes on with one of the requests that gave the worker back, if one may go on.
    fn resume_shelved(&mut self) {
        self.worker.check_lingering();
        if self.worker.may_resume() {
            self.line.add(Counter::Busy, 1);
            self.worker.resume();
            self.line.subtract(Counter::Busy, 1);
        }
    }

    /// Counts a connection. After the last that the child may have, it drains. Also signals demand
    /// to the parent.
    fn count_accepted(&mut self) {
        self.accepted += 1;
        let control = &mut self.worker.control;
        if self.accepted == self.most_connections {
            control.mode = control.mode.advance(Mode::Drain).unwrap_or(control.mode);
            if let Some(control) = &control.control {
                control.leaving();
            }
        }
        let Some(demand) = &self.demand else { return };
        demand.note_busy();
        // Others wait, and this worker is busy now.
        if self.listen_set.sockets.queue() > 0 {
            demand.signal();
        }
    }

    /// Stops accepting for a moment, because the system has denied a connection.
    fn pause_accepting(&mut self, error: &io::Error) -> io::Result<()> {
        if let Some(notice) = self.listen_set.denial(error) {
            self.worker.service.notify(notice);
        }
        if let Err(error) = self.listen_set.set_watched(false) {
            let text = "cannot leave the listening sockets";
            self.worker
                .service
                .notify(Notice::own("mpm_prefork", Level::Error, text).because(&error));
        }
        self.worker.pause();
        Ok(())
    }
}
