//! The loop of a worker over one connection, from accept to close: it passes events to the service,
//! runs its tasks, and waits for the client. While others wait for a worker, it evicts an idle or
//! stalled client.

use super::contention::Eviction;
use super::listen_set::Connection;
use super::shelf::{self, Lingering, Shelf, Shelved};
use super::think_time::ThinkTime;
use super::{FAIR_SHARE_US, PAUSE};
use crate::service::{DedicatedWorker, Service};
use crate::setup::Mode;
use evenkeel_message::{Level, Notice};
use evenkeel_scoreboard::{ChildLine, ClientWait, Counter, Gate, SlotState, Slots, WaitReason};
use evenkeel_sys::channel::wait_readable;
use evenkeel_sys::clock;
use evenkeel_sys::dispatch::{ConnectionTask, Outcome, ParkReason, ParkRequest, ReadyEvent};
use evenkeel_sys::socket::{READ_AHEAD_WAIT, Socket};
use evenkeel_sys::watch::Watch;
use std::future::poll_fn;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, LocalOptions, LocalRuntime};
use tokio::time::Instant;

/// How often a service's tick comes while there is something to do.
const TICK_US: u64 = 1_000_000;

/// How many pipelined requests a client may have answered at a time. No other connection waits for
/// this worker's thread.
const MAX_PIPELINED: u32 = 256;

/// The time, in microseconds, after which a worker polls its wake descriptor before it reads ahead
/// again.
const READ_AHEAD_US: u64 = 50_000;

/// The fair share of a connection in events, besides [`FAIR_SHARE_US`]: where workers share few
/// cores, much of a connection's time may pass before its worker gets a core.
const MIN_EVENTS: u32 = 8;

/// The descriptors of a runtime: an epoll set, its duplicate, and the descriptor that wakes it.
pub(crate) const RUNTIME_DESCRIPTORS: usize = 3;

/// What a worker is told by the listener or the parent while it has a connection.
pub(crate) trait WorkerControl {
    /// The descriptor that is readable when there is something to receive; none once nothing will
    /// come.
    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Has the current runtime watch that descriptor.
    fn watch(&self) -> io::Result<Option<Watch>>;

    /// A shared runtime for requests that wait; none if each worker has one of its own.
    fn runtime(&self) -> Option<Handle>;

    /// Receives what there is.
    fn receive(&mut self);

    /// Whether [`WorkerControl::mode`] and [`WorkerControl::take_eviction`] are up to date without
    /// a call of [`WorkerControl::receive`]. The threads of a child of worker share them in memory;
    /// a process of prefork receives them.
    fn knows_at_once(&self) -> bool {
        false
    }

    /// The time until [`WorkerControl::tick`] has something to do.
    fn due(&self) -> Option<Duration> {
        None
    }

    /// Does what is due. It is also called more often.
    fn tick(&mut self) {}

    /// The mode of the child.
    fn mode(&self) -> Mode;

    /// The eviction that was requested since the last call.
    fn take_eviction(&mut self) -> Option<Eviction>;

    /// Whether connections wait without an idle worker, as far as the worker can see.
    fn is_contended(&mut self) -> bool;
}

/// A worker.
pub(crate) struct Worker<S, O> {
    pub(crate) service: S,
    pub(crate) control: O,
    line: ChildLine,
    slot: Option<Slots>,
    client_wait: Arc<ClientWait>,
    gate: Arc<Gate>,
    /// The runtime for requests that wait, created with the first of them: many workers never need
    /// it.
    runtime: Option<TaskRuntime>,
    /// Descriptors reserved for a runtime of the worker's own, so that it can be created when the
    /// process has no other descriptors left.
    spare_descriptors: Vec<OwnedFd>,
    /// The last value that was passed to the service.
    retiring: bool,
    think_time: ThinkTime,
    shelf: Shelf,
    /// When the connection was accepted, in microseconds of the monotonic clock.
    since_us: u64,
    /// How many events the connection has had.
    events: u32,
    /// When the wake descriptor was last polled, in microseconds of the monotonic clock.
    polled_us: u64,
    /// Whether an eviction of this connection was requested.
    evict_requested: bool,
    /// How long an idle connection is kept once the child exits, in microseconds.
    drain_grace_us: u64,
    last_tick_us: u64,
    /// Whether something was served since the last tick, or is left for the next one.
    needs_tick: bool,
}

/// A runtime in which a request waits, and its watch of the wake descriptor.
struct TaskRuntime {
    watch: Option<Watch>,
    runtime: RuntimeKind,
}

enum RuntimeKind {
    /// It runs while the request waits.
    Own(LocalRuntime),
    /// It runs on a thread of its own.
    Shared(Handle),
}

/// What follows a wait.
enum AfterWait {
    Event(ReadyEvent),
    /// The connection is closed, because it has timed out (`late`) or is evicted.
    Close {
        late: bool,
    },
}

impl<S: Service, O: WorkerControl> Worker<S, O> {
    pub(crate) fn new(
        service: S,
        control: O,
        line: ChildLine,
        dedicated: DedicatedWorker,
        drain_grace: Duration,
    ) -> Self {
        // The watch needs one more descriptor. These duplicates reserve the descriptors: they are
        // closed when the runtime is created. If the kernel denies one, that may fail.
        let count = if control.runtime().is_some() { 0 } else { RUNTIME_DESCRIPTORS + 1 };
        let spare_descriptors = (0..count)
            .filter_map(|_| control.wake_descriptor()?.try_clone_to_owned().ok())
            .collect();
        Self {
            spare_descriptors,
            service,
            control,
            line,
            slot: dedicated.slot,
            client_wait: dedicated.client_wait,
            gate: Gate::open(),
            runtime: None,
            retiring: false,
            think_time: ThinkTime::default(),
            shelf: Shelf::new(dedicated.permits),
            since_us: 0,
            events: 0,
            polled_us: 0,
            evict_requested: false,
            drain_grace_us: u64::try_from(drain_grace.as_micros()).unwrap_or(u64::MAX),
            last_tick_us: clock::monotonic_coarse_us(),
            needs_tick: false,
        }
    }

    /// Serves a connection until it is closed, or until its request has to wait for a permit and is
    /// shelved.
    pub(crate) fn serve_connection(&mut self, connection: Connection) {
        let Connection { socket, client, listener } = connection;
        self.line.add(Counter::Connections, 1);
        self.client_wait.reset();
        // An eviction that was requested for the last connection does not hold for this one.
        self.control.take_eviction();
        self.evict_requested = false;
        (self.since_us, self.events) = (clock::monotonic_us(), 0);
        self.wait_while_paused();
        let outcome = self.serve_event(socket, ReadyEvent::Accepted { client, listener });
        self.go_on(outcome, false);
    }

    /// Whether connections are on the shelf.
    pub(crate) fn has_shelved(&self) -> bool {
        !self.shelf.is_empty()
    }

    /// Whether a shelved request can be resumed.
    pub(crate) fn may_resume(&self) -> bool {
        self.shelf.may_resume()
    }

    /// Resumes a shelved request and serves its connection until that is closed or shelved again.
    pub(crate) fn resume(&mut self) {
        let Some(Shelved { task, since_us, events, .. }) = self.shelf.take() else { return };
        self.client_wait.reset();
        self.control.take_eviction();
        self.evict_requested = false;
        (self.since_us, self.events) = (since_us, events);
        self.go_on(Outcome::Task(task), true);
    }

    /// Serves a connection from an outcome on. `again` tells that its request was shelved before.
    fn go_on(&mut self, mut outcome: Outcome, again: bool) {
        loop {
            outcome = match outcome {
                Outcome::Closed => break,
                Outcome::Task(task) | Outcome::HeadTask(task) => match self.run_task(task) {
                    Ok(outcome) => outcome,
                    Err((task, waits_since_us)) => {
                        let (since_us, events) = (self.since_us, self.events);
                        let shelved = Shelved { task, waits_since_us, since_us, events };
                        self.shelf.put(shelved, again);
                        self.client_wait.reset();
                        return self.show(SlotState::Ready);
                    }
                },
                Outcome::Park(socket, request)
                    if request.reason == ParkReason::LingeringClose
                        && !self.shelf.has_no_request() =>
                {
                    self.linger(socket, request);
                    self.client_wait.reset();
                    return self.show(SlotState::Ready);
                }
                Outcome::Park(mut socket, request) => match self.park(&mut socket, &request) {
                    AfterWait::Event(event) => self.serve_event(socket, event),
                    AfterWait::Close { late } => {
                        self.service.expire(socket, request.reason, request.state, late);
                        break;
                    }
                },
            };
        }
        self.client_wait.reset();
        self.show(SlotState::Ready);
        self.line.subtract(Counter::Connections, 1);
    }

    /// Calls the service's tick about once a second if something has been served since.
    pub(crate) fn tick_if_due(&mut self) {
        if self.tick_left().is_some_and(|left| left.is_zero()) {
            self.tick();
        }
    }

    /// The time until the next tick; none while nothing has been served and nothing is left to do.
    pub(crate) fn tick_left(&self) -> Option<Duration> {
        let due_us = self.last_tick_us.saturating_add(TICK_US);
        let left = due_us.saturating_sub(clock::monotonic_coarse_us());
        let own = self.needs_tick.then_some(Duration::from_micros(left));
        [own, self.control.due()].into_iter().flatten().min()
    }

    /// The time until there is something to do for a worker without a connection.
    pub(crate) fn wait_left(&self) -> Option<Duration> {
        let shelved = match self.shelf.is_empty() {
            true => None,
            false if self.shelf.may_resume() => Some(Duration::ZERO),
            false => Some(shelf::CHECK),
        };
        [self.tick_left(), shelved].into_iter().flatten().min()
    }

    pub(crate) fn tick(&mut self) {
        self.last_tick_us = clock::monotonic_coarse_us();
        self.control.tick();
        self.service.tick();
        self.needs_tick = self.service.awaits_tick();
    }

    /// Whether the service lets no request begin. A child that exits no longer asks.
    pub(crate) fn is_paused(&self) -> bool {
        self.control.mode() != Mode::Exit && !self.service.may_begin()
    }

    fn wait_while_paused(&mut self) {
        while self.is_paused() {
            self.pause();
        }
    }

    /// Waits a moment for the service to let requests begin.
    pub(crate) fn pause(&mut self) {
        match self.control.wake_descriptor() {
            // Only a signal can end this with an error, and then the wait is shorter.
            Some(descriptor) => drop(wait_readable(&[descriptor], Some(PAUSE))),
            None => std::thread::sleep(PAUSE),
        }
        self.receive();
        self.tick();
    }

    fn serve_event(&mut self, socket: Socket, event: ReadyEvent) -> Outcome {
        self.client_wait.stop();
        if !matches!(event, ReadyEvent::Readable { reason: ParkReason::LingeringClose, .. }) {
            self.show(SlotState::Reading);
        }
        if clock::monotonic_coarse_us().saturating_sub(self.last_tick_us) >= TICK_US {
            // After a long wait the service's clocks are out of date.
            self.tick();
        }
        self.needs_tick = true;
        self.events = self.events.saturating_add(1);
        self.update_retiring();
        let (mut credit, mut requests_left) = (self.gate.take(), MAX_PIPELINED);
        self.service.serve(socket, event, &mut credit, &mut requests_left)
    }

    /// Tells the service whether the next response closes the connection. While others wait, even
    /// the first response may do so, if the request has taken longer than the fair share.
    fn update_retiring(&mut self) {
        let had_fair_share = || {
            let now_us = clock::monotonic_us();
            self.events >= MIN_EVENTS
                || now_us.saturating_sub(self.since_us) >= FAIR_SHARE_US
                || !self.think_time.is_short(now_us)
        };
        let contended = (self.control.is_contended() || self.evict_requested) && had_fair_share();
        let retiring = contended || self.has_shelved() || self.control.mode() != Mode::Run;
        if retiring != self.retiring {
            self.retiring = retiring;
            self.service.retire(retiring);
        }
    }

    /// Receives what there is. Returns the eviction that has just been requested.
    fn receive(&mut self) -> Option<Eviction> {
        self.control.receive();
        let eviction = self.control.take_eviction();
        self.evict_requested |= eviction.is_some();
        eviction
    }

    /// Waits until the connection is readable or is to be closed.
    fn park(&mut self, socket: &mut Socket, request: &ParkRequest) -> AfterWait {
        let reason = request.reason;
        let (counter, state, wait) = match reason {
            ParkReason::FirstRequest => {
                (Counter::Waiting, SlotState::Reading, WaitReason::SlowRequest)
            }
            ParkReason::KeepAlive => (Counter::KeepAlive, SlotState::KeepAlive, WaitReason::Idle),
            ParkReason::LingeringClose => {
                (Counter::Closing, SlotState::Closing, WaitReason::SlowRequest)
            }
        };
        self.show(state);
        self.line.add(counter, 1);
        self.client_wait.stop();
        let since_us = clock::monotonic_us();
        self.client_wait.start(wait, since_us);
        let next = self.wait_for_event(socket, request, since_us);
        self.line.subtract(counter, 1);
        if reason == ParkReason::KeepAlive {
            let now_us = clock::monotonic_us();
            self.think_time.note(now_us.saturating_sub(since_us), now_us);
        }
        next.unwrap_or_else(|error| {
            let text = format!("cannot wait for a client: {error}");
            self.service.notify(Notice::own("core", Level::Error, text));
            AfterWait::Close { late: false }
        })
    }

    fn wait_for_event(
        &mut self,
        socket: &mut Socket,
        request: &ParkRequest,
        since_us: u64,
    ) -> io::Result<AfterWait> {
        let (reason, state) = (request.reason, request.state);
        let mut now_us = since_us;
        if self.expects_request(request, since_us) {
            let wakeup = socket.read_ahead()?;
            if wakeup.readable && !self.is_paused() {
                self.evict_requested |= self.control.take_eviction().is_some();
                let hangup = wakeup.hangup;
                return Ok(AfterWait::Event(ReadyEvent::Readable { reason, state, hangup }));
            }
            now_us = clock::monotonic_us();
        }
        let mut end_us = since_us.saturating_add(u64::from(request.timeout_ms) * 1000);
        let is_closing = reason == ParkReason::LingeringClose;
        let mut is_exiting = false;
        loop {
            // Requests that a client has sent by the time it learns of the exit are answered.
            if self.control.mode() == Mode::Exit && !std::mem::replace(&mut is_exiting, true) {
                end_us = end_us.min(since_us.saturating_add(self.drain_grace_us));
            }
            // The wait was cancelled because the client has exceeded its grace period.
            if is_closing && self.client_wait.is_cancelled() {
                return Ok(AfterWait::Close { late: false });
            }
            let paused = !is_closing && self.is_paused();
            let left = Duration::from_micros(end_us.saturating_sub(now_us));
            let timeout = match self.tick_left() {
                _ if paused => Duration::ZERO,
                Some(tick) => left.min(tick),
                None => left,
            };
            let timeout = if self.has_shelved() { timeout.min(shelf::CHECK) } else { timeout };
            self.polled_us = now_us;
            let wakeup = socket.wait(self.control.wake_descriptor(), Some(timeout))?;
            // An eviction that was requested before the next request arrives holds for that request
            // too.
            let eviction = if wakeup.waker { self.receive() } else { self.control.take_eviction() };
            // An idle client is closed if shelved requests wait for the worker.
            let eviction = eviction.max(self.has_shelved().then_some(Eviction::Normal));
            self.evict_requested |= eviction.is_some();
            let paused = paused || !is_closing && self.is_paused();
            if wakeup.readable && !paused {
                let hangup = wakeup.hangup;
                return Ok(AfterWait::Event(ReadyEvent::Readable { reason, state, hangup }));
            }
            now_us = clock::monotonic_us();
            let is_over = now_us >= end_us;
            if !wakeup.readable && (is_over || self.exceeded_grace_us(eviction).is_some()) {
                // The next request may have arrived meanwhile, and closing now would lose it.
                if socket.wait(None, Some(Duration::ZERO))?.readable {
                    continue;
                }
                return Ok(AfterWait::Close { late: is_over && !is_exiting });
            }
            if paused {
                self.pause();
                now_us = clock::monotonic_us();
            } else {
                self.tick_if_due();
            }
        }
    }

    /// Whether the worker waits for the next request by [`Socket::read_ahead`] and not by a poll.
    /// The client must be one that usually sends it within [`READ_AHEAD_WAIT`]. The listener and
    /// the parent cannot interrupt that call. So the worker must have nothing else to do, and a
    /// worker that receives commands polls its wake descriptor at least every [`READ_AHEAD_US`].
    fn expects_request(&self, request: &ParkRequest, now_us: u64) -> bool {
        request.reason == ParkReason::KeepAlive
            && self.events > 1
            && self.think_time.is_short(now_us)
            && (self.control.knows_at_once()
                || now_us.saturating_sub(self.polled_us) < READ_AHEAD_US)
            && u128::from(request.timeout_ms) > READ_AHEAD_WAIT.as_millis()
            && self.control.mode() == Mode::Run
            && self.control.due().is_none()
            && !self.evict_requested
            && !self.has_shelved()
            && !self.is_paused()
    }

    /// The grace period, in microseconds, if the client has exceeded it under this eviction.
    fn exceeded_grace_us(&self, eviction: Option<Eviction>) -> Option<u64> {
        let (wait, since_us) = self.client_wait.current()?;
        let grace_us = eviction?.grace_us(wait);
        has_passed(since_us, grace_us).then_some(grace_us)
    }

    /// Runs a task to its end. If the task has to wait for a permit and the shelf has room, returns
    /// the task and the time since which it waits.
    fn run_task(&mut self, task: ConnectionTask) -> Result<Outcome, (ConnectionTask, u64)> {
        self.spare_descriptors.clear();
        let runtime = self.runtime.take().map_or_else(|| TaskRuntime::new(&self.control), Ok);
        match runtime {
            Ok(TaskRuntime { mut watch, runtime }) => {
                let completed = self.run_to_completion(task, &mut watch);
                let outcome = match &runtime {
                    RuntimeKind::Own(runtime) => runtime.block_on(completed),
                    RuntimeKind::Shared(runtime) => runtime.block_on(completed),
                };
                self.runtime = Some(TaskRuntime { watch, runtime });
                outcome
            }
            Err(error) => {
                let text = "a request that must wait finds no room";
                self.service.notify(Notice::own("core", Level::Error, text).because(&error));
                Ok(Outcome::Closed)
            }
        }
    }

    async fn run_to_completion(
        &mut self,
        mut task: ConnectionTask,
        watch: &mut Option<Watch>,
    ) -> Result<Outcome, (ConnectionTask, u64)> {
        let tick = Duration::from_micros(TICK_US);
        let mut timer = std::pin::pin!(tokio::time::sleep(tick));
        let outcome = poll_fn(|context| {
            loop {
                let eviction = self.receive_pending(watch, context);
                let before = self.client_wait.current();
                self.update_retiring();
                if let Poll::Ready(outcome) = task.as_mut().poll(context) {
                    return Poll::Ready(Ok(outcome));
                }
                let waits_since_us = self.shelf.waits_since_us();
                if let Some(since_us) = waits_since_us.filter(|_| self.shelf.has_room()) {
                    return Poll::Ready(Err(since_us));
                }
                // The task was polled first, because it may have seen progress of its client that
                // the eviction did not know of.
                if self.cancel_wait(eviction, before.map(|(wait, _)| wait))
                    && let Poll::Ready(outcome) = task.as_mut().poll(context)
                {
                    return Poll::Ready(Ok(outcome));
                }
                self.run_beside(context);
                if waits_since_us.is_some() || self.has_shelved() {
                    let check = Instant::now() + shelf::CHECK;
                    if timer.deadline() > check {
                        timer.as_mut().reset(check);
                    }
                }
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                timer.as_mut().reset(Instant::now() + tick);
                // The coarse clock may be late.
                let ago_us = clock::monotonic_coarse_us().saturating_sub(self.last_tick_us);
                if ago_us >= TICK_US - 10_000 {
                    self.tick();
                }
            }
        })
        .await;
        outcome.map_err(|since_us| (task, since_us))
    }

    /// Polls a shelved request while the worker's own request waits for its client or an
    /// application, which may take long.
    fn run_beside(&mut self, context: &mut Context<'_>) {
        self.check_lingering();
        if !self.shelf.may_resume() {
            return;
        }
        let Some(mut shelved) = self.shelf.take() else { return };
        loop {
            match shelved.task.as_mut().poll(context) {
                Poll::Pending => {
                    return match self.shelf.waits_since_us() {
                        Some(_) => self.shelf.put(shelved, true),
                        None => self.shelf.keep(shelved),
                    };
                }
                Poll::Ready(Outcome::Task(task) | Outcome::HeadTask(task)) => shelved.task = task,
                Poll::Ready(Outcome::Park(socket, request)) => {
                    return self.linger(socket, request);
                }
                Poll::Ready(Outcome::Closed) => {
                    return self.line.subtract(Counter::Connections, 1);
                }
            }
        }
    }

    /// Puts a connection that waits for its client on the shelf: one in lingering close, or an idle
    /// one whose request was answered beside the worker's own.
    fn linger(&mut self, socket: Socket, request: ParkRequest) {
        if request.reason == ParkReason::LingeringClose {
            self.line.add(Counter::Closing, 1);
        }
        let end_us = clock::monotonic_us().saturating_add(u64::from(request.timeout_ms) * 1000);
        self.shelf.linger(Lingering { socket, request, end_us });
    }

    /// Ends the connections whose clients have closed them or have not done so in time. A request
    /// that has come on an idle one joins those that wait for a permit.
    pub(crate) fn check_lingering(&mut self) {
        for lingering in self.shelf.take_lingering() {
            let Lingering { socket, request, end_us } = lingering;
            // A socket that cannot be polled is closed.
            let wakeup = socket.wait(None, Some(Duration::ZERO)).ok();
            let now_us = clock::monotonic_us();
            let is_over = now_us >= end_us;
            if wakeup.as_ref().is_some_and(|wakeup| !wakeup.readable) && !is_over {
                self.shelf.linger(Lingering { socket, request, end_us });
                continue;
            }
            let (reason, state) = (request.reason, request.state);
            if reason == ParkReason::LingeringClose {
                self.line.subtract(Counter::Closing, 1);
            }
            match wakeup.filter(|wakeup| wakeup.readable) {
                Some(wakeup) => {
                    let hangup = wakeup.hangup;
                    let event = ReadyEvent::Readable { reason, state, hangup };
                    match self.serve_event(socket, event) {
                        Outcome::Park(socket, request) => {
                            self.linger(socket, request);
                            continue;
                        }
                        Outcome::Task(task) | Outcome::HeadTask(task) => {
                            let (waits_since_us, since_us) = (now_us, now_us);
                            let shelved = Shelved { task, waits_since_us, since_us, events: 1 };
                            self.shelf.put(shelved, false);
                            continue;
                        }
                        Outcome::Closed => {}
                    }
                }
                None => self.service.expire(socket, reason, state, is_over),
            }
            self.line.subtract(Counter::Connections, 1);
        }
    }

    /// Receives what there is while a request waits. Returns the eviction that was requested.
    fn receive_pending(
        &mut self,
        watch: &mut Option<Watch>,
        context: &mut Context<'_>,
    ) -> Option<Eviction> {
        let mut eviction = self.control.take_eviction();
        while let Some(wake) = watch {
            let Poll::Ready(Ok(mut guard)) = wake.poll_readable(context) else { break };
            eviction = eviction.max(self.receive());
            guard.clear_ready();
            drop(guard);
            if self.control.wake_descriptor().is_none() {
                *watch = None;
            }
        }
        self.evict_requested |= eviction.is_some();
        eviction
    }

    /// Cancels a wait that has exceeded its grace period. An urgent eviction holds only if the
    /// worker still waits for the same reason as `before`.
    fn cancel_wait(&self, eviction: Option<Eviction>, before: Option<WaitReason>) -> bool {
        let Some((wait, _)) =
            self.client_wait.current().filter(|(wait, _)| *wait != WaitReason::Idle)
        else {
            return false;
        };
        let is_same = before == Some(wait);
        let eviction = eviction.map(|eviction| if is_same { eviction } else { Eviction::Normal });
        let Some(grace_us) = self.exceeded_grace_us(eviction) else { return false };
        self.client_wait.cancel(clock::monotonic_us().saturating_sub(grace_us));
        true
    }

    fn show(&self, state: SlotState) {
        if let Some(slot) = &self.slot {
            slot.show(state);
        }
    }
}

impl TaskRuntime {
    fn new(control: &impl WorkerControl) -> io::Result<Self> {
        let runtime = match control.runtime() {
            Some(handle) => RuntimeKind::Shared(handle),
            None => {
                let mut builder = Builder::new_current_thread();
                RuntimeKind::Own(builder.enable_all().build_local(LocalOptions::default())?)
            }
        };
        let entered = match &runtime {
            RuntimeKind::Own(runtime) => runtime.enter(),
            RuntimeKind::Shared(runtime) => runtime.enter(),
        };
        let watch = control.watch()?;
        drop(entered);
        Ok(Self { watch, runtime })
    }
}

/// Whether `time_us` has passed since then.
fn has_passed(since_us: u64, time_us: u64) -> bool {
    clock::monotonic_us().saturating_sub(since_us) >= time_us
}

#[cfg(test)]
mod tests;
