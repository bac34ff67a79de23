//! The listener thread of a worker child: it receives the parent's commands, accepts connections
//! while a worker is idle, and evicts clients that hold workers while others wait.

use super::Shared;
use crate::dedicated::contention::Contention;
use crate::dedicated::listen_set::{Accepted, ListenSet};
use crate::dedicated::{CHECK_US, PAUSE, PAUSE_US};
use crate::setup::{Control, HANDSHAKE_US, Mode};
use crate::{Command, DemandSignal};
use evenkeel_message::{Level, Notice};
use evenkeel_scoreboard::Counter;
use evenkeel_sys::clock;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// How often the listener updates its heartbeat at least.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// How often the accept queue is checked while no worker is idle.
const CHECK: Duration = Duration::from_micros(CHECK_US);

/// After how long one idle worker is enough to accept again.
const RESUME_US: u64 = 10_000;

pub(super) struct Listener<'a> {
    shared: &'a Shared,
    listen_set: ListenSet,
    /// None once the parent has died.
    control: Option<Box<dyn Control + Send>>,
    demand: Option<DemandSignal>,
    most_children: usize,
    /// How many workers must be idle before it accepts again.
    min_idle: usize,
    mode: Mode,
    /// When the child began to drain, in microseconds of the monotonic clock.
    drain_us: u64,
    /// Since when it accepts nothing because no worker was idle.
    stopped_us: Option<u64>,
    /// Until when it accepts nothing because the system has denied a connection.
    paused_until_us: u64,
    /// When it last checked the queue for evictions.
    checked_us: u64,
}

impl<'a> Listener<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        listen_set: ListenSet,
        control: Box<dyn Control + Send>,
        most_children: usize,
    ) -> io::Result<Self> {
        listen_set.add_control(&*control)?;
        listen_set.add_control(&shared.waker)?;
        Ok(Self {
            shared,
            listen_set,
            demand: control.demand_signal(),
            control: Some(control),
            most_children,
            min_idle: (shared.threads.threads().len() / 16).max(1),
            mode: Mode::Run,
            drain_us: 0,
            stopped_us: None,
            paused_until_us: 0,
            checked_us: 0,
        })
    }

    /// Runs until the child has nothing more to do.
    pub(super) fn run(mut self) {
        if let Some(control) = &self.control {
            control.ready();
        }
        while let Err(error) = self.run_until_error() {
            let text = "the listener is in trouble";
            if let Some(number) = self.shared.threads.take_idle() {
                let notice = Notice::own("mpm_worker", Level::Error, text).because(&error);
                self.shared.threads.assign_log(number, notice);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Runs until the end. An error is the system's, when it denies a change of the epoll set.
    fn run_until_error(&mut self) -> io::Result<()> {
        loop {
            self.shared.line.set(Counter::HeartbeatUs, clock::monotonic_coarse_us());
            self.update_mode();
            if self.mode >= Mode::Drain {
                self.close_when_drained();
                if self.has_closed() && self.shared.is_over() {
                    return Ok(());
                }
            }
            let (watched, timeout) = self.plan_wait();
            self.listen_set.set_watched(watched)?;
            let ready = self.listen_set.wait(Some(timeout))?;
            if ready.control {
                self.shared.waker.reset();
                self.receive();
            }
            // A connection that has woken this child has woken no other.
            if ready.connection {
                self.accept();
            }
            self.check_queue();
        }
    }

    /// Receives the parent's commands, until it dies.
    fn receive(&mut self) {
        while let Some(command) = self.control.as_mut().and_then(|control| control.next()) {
            self.shared.is_last.fetch_or(command.is_last(), SeqCst);
            if let Some(mode) = Mode::of(command) {
                self.shared.mode.advance(mode);
            }
            if matches!(command, Command::MakeRoom | Command::MakeRoomUrgently)
                && self.shared.mode.get() == Mode::Run
            {
                self.accept();
            }
            if command == Command::Orphaned
                && let Some(control) = self.control.take()
            {
                self.listen_set.remove_control(&*control);
            }
        }
    }

    /// Follows a change of the child's mode.
    fn update_mode(&mut self) {
        let mode = self.shared.mode.get();
        if mode == self.mode {
            return;
        }
        self.mode = mode;
        if let Some(control) =
            self.control.as_ref().filter(|_| self.shared.is_exhausted.load(SeqCst))
        {
            control.leaving();
        }
        if mode >= Mode::Drain && self.drain_us == 0 {
            self.drain_us = clock::monotonic_us();
        }
        if mode == Mode::Exit {
            self.shared.threads.threads().iter().for_each(|thread| thread.wake());
        }
    }

    /// Closes the listening sockets once no connection waits or the grace period is over: this may
    /// be the last child that can accept what waits.
    fn close_when_drained(&mut self) {
        if self.has_closed() {
            return;
        }
        self.accept();
        let (least_us, grace) = match self.shared.is_last.load(SeqCst) {
            true => (HANDSHAKE_US, self.shared.stop_grace),
            false => (0, self.shared.drain_grace),
        };
        let grace_us = u64::try_from(grace.as_micros()).unwrap_or(u64::MAX);
        let since_us = clock::monotonic_us().saturating_sub(self.drain_us);
        let is_over = since_us >= grace_us;
        // The epoll set must drop the sockets before their descriptors refer to others.
        if (is_over || since_us >= least_us && self.listen_set.sockets.queue() == 0)
            && self.listen_set.set_watched(false).is_ok()
        {
            self.shared.has_closed.store(true, SeqCst);
            self.listen_set.sockets.close();
        }
    }

    fn has_closed(&self) -> bool {
        self.shared.has_closed.load(SeqCst)
    }

    /// Whether to watch the listening sockets, and how long to wait at most.
    fn plan_wait(&mut self) -> (bool, Duration) {
        let threads = &self.shared.threads;
        if self.mode != Mode::Run {
            threads.listener_waits.store(false, SeqCst);
            let leaves = self.mode >= Mode::Drain && !self.has_closed();
            return (false, if leaves { CHECK } else { HEARTBEAT });
        }
        let now_us = clock::monotonic_us();
        let paused_us = self.paused_until_us.saturating_sub(now_us);
        if paused_us > 0 {
            return (false, Duration::from_micros(paused_us));
        }
        // Set before reading who is idle, so that a worker which becomes idle afterwards wakes the
        // listener.
        threads.listener_waits.store(true, SeqCst);
        let idle = threads.idle();
        let Some(stopped_us) = self.stopped_us else {
            if idle > 0 {
                threads.listener_waits.store(false, SeqCst);
                return (true, HEARTBEAT);
            }
            self.stopped_us = Some(now_us);
            self.signal_demand();
            return (false, CHECK);
        };
        if idle == 0 {
            return (false, CHECK);
        }
        let wait_us = stopped_us.saturating_add(RESUME_US).saturating_sub(now_us);
        if idle < self.min_idle && wait_us > 0 {
            return (false, Duration::from_micros(wait_us));
        }
        self.stopped_us = None;
        threads.listener_waits.store(false, SeqCst);
        (true, HEARTBEAT)
    }

    fn signal_demand(&self) {
        if let Some(demand) = &self.demand {
            demand.signal();
        }
    }

    /// Accepts connections while a worker is idle.
    fn accept(&mut self) {
        let (threads, line) = (&self.shared.threads, &self.shared.line);
        while let Some(number) = threads.take_idle() {
            line.add(Counter::Reserved, 1);
            let accepted = self.shared.accept();
            if matches!(accepted, Accepted::Connection(_)) {
                line.add(Counter::Busy, 1);
            }
            line.subtract(Counter::Reserved, 1);
            match accepted {
                Accepted::Connection(connection) => {
                    self.shared.denied.store(false, Relaxed);
                    threads.assign(number, connection);
                    if !self.shared.may_accept() {
                        return;
                    }
                }
                Accepted::Nothing => {
                    self.shared.denied.store(false, Relaxed);
                    return threads.set_idle(number);
                }
                Accepted::Denied(error) => {
                    self.shared.denied.store(true, Relaxed);
                    self.paused_until_us = clock::monotonic_us().saturating_add(PAUSE_US);
                    match self.listen_set.denial(&error) {
                        Some(notice) => threads.assign_log(number, notice),
                        None => threads.set_idle(number),
                    }
                    return;
                }
            }
        }
    }

    /// Checks whether connections wait that no worker here can take, and evicts clients for them.
    fn check_queue(&mut self) {
        let denied = self.shared.denied.load(Relaxed);
        if !self.evicts() || self.shared.threads.idle() > 0 && !denied {
            return self.shared.queue_monitor.clear();
        }
        let now_us = clock::monotonic_us();
        if now_us.saturating_sub(self.checked_us) < CHECK_US {
            return;
        }
        self.checked_us = now_us;
        if self.shared.queue_monitor.is_contended(|| self.shared.unserved()) {
            let queue = self.listen_set.sockets.queue();
            self.make_room(queue.div_ceil(self.most_children.max(1)));
        }
    }

    /// Whether clients are evicted to make room for connections in the accept queue. They are while
    /// the child runs, and when the whole server stops, because no other child will accept then.
    fn evicts(&self) -> bool {
        match self.mode {
            Mode::Run => true,
            Mode::Park => false,
            Mode::Drain | Mode::Exit => self.shared.is_last.load(SeqCst) && !self.has_closed(),
        }
    }

    /// Requests the eviction of `count` clients: idle connections first, and the longest waits
    /// first.
    fn make_room(&self, count: usize) {
        let now_us = clock::monotonic_us();
        let threads = self.shared.threads.threads();
        let waits = threads.iter().filter_map(|thread| thread.client_wait.current());
        let contention = Contention::of(waits, threads.len(), count, self.most_children, now_us);
        let evicted = threads.iter().filter_map(|thread| {
            let (wait, since_us) = thread.client_wait.current()?;
            Some((wait, since_us, contention.eviction(wait, since_us, now_us)?, thread))
        });
        let mut evicted: Vec<_> = evicted.collect();
        evicted.sort_unstable_by_key(|(wait, since_us, ..)| (*wait, *since_us));
        evicted.into_iter().take(count).for_each(|(_, _, eviction, thread)| thread.evict(eviction));
    }
}
