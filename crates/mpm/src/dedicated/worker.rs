//! The loop of a worker over one connection, from accept to close: it passes events to the service,
//! runs its tasks, and waits for the client. While others wait for a worker, it evicts an idle or
//! stalled client.

use super::contention::Eviction;
use super::listen_set::Connection;
use super::think_time::ThinkTime;
use super::{FAIR_SHARE_US, PAUSE};
use crate::service::{DedicatedWorker, Service};
use crate::setup::Mode;
use evenkeel_message::{Level, Notice};
use evenkeel_scoreboard::{ChildLine, ClientWait, Counter, Gate, SlotState, Slots, WaitReason};
use evenkeel_sys::channel::wait_readable;
use evenkeel_sys::clock;
use evenkeel_sys::dispatch::{ConnectionTask, Outcome, ParkReason, ParkRequest, ReadyEvent};
use evenkeel_sys::socket::Socket;
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

/// The fair share of a connection in events, besides [`FAIR_SHARE_US`]: where workers share few
/// cores, time alone says little of what a client has had.
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
    /// process has no other descriptors left: an accepted connection is always answered.
    spare_descriptors: Vec<OwnedFd>,
    /// The last value that was passed to the service.
    retiring: bool,
    think_time: ThinkTime,
    /// When the connection was accepted, in microseconds of the monotonic clock.
    since_us: u64,
    /// How many events the connection has had.
    events: u32,
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
        // One more descriptor is for the watch. Any kind will do; if one is denied, it is missing
        // later.
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
            since_us: 0,
            events: 0,
            evict_requested: false,
            drain_grace_us: u64::try_from(drain_grace.as_micros()).unwrap_or(u64::MAX),
            last_tick_us: clock::monotonic_coarse_us(),
            needs_tick: false,
        }
    }

    /// Serves a connection until it is closed.
    pub(crate) fn serve_connection(&mut self, connection: Connection) {
        let Connection { socket, client, listener } = connection;
        self.line.add(Counter::Connections, 1);
        self.client_wait.reset();
        // An eviction that was requested for the last connection does not hold for this one.
        self.control.take_eviction();
        self.evict_requested = false;
        (self.since_us, self.events) = (clock::monotonic_us(), 0);
        self.wait_while_paused();
        let mut outcome = self.serve_event(socket, ReadyEvent::Accepted { client, listener });
        loop {
            outcome = match outcome {
                Outcome::Closed => break,
                Outcome::Task(task) | Outcome::HeadTask(task) => self.run_task(task),
                Outcome::Park(socket, request) => match self.park(&socket, &request) {
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

    /// Tells the service whether the next response closes the connection. To make room this may be
    /// the first response: a request that takes longer than the fair share must not be followed by
    /// another.
    fn update_retiring(&mut self) {
        let had_fair_share = || {
            let now_us = clock::monotonic_us();
            self.events >= MIN_EVENTS
                || now_us.saturating_sub(self.since_us) >= FAIR_SHARE_US
                || !self.think_time.is_short(now_us)
        };
        let contended = (self.control.is_contended() || self.evict_requested) && had_fair_share();
        let retiring = contended || self.control.mode() != Mode::Run;
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
    fn park(&mut self, socket: &Socket, request: &ParkRequest) -> AfterWait {
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
        let next = self.wait_for_event(socket, request);
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

    fn wait_for_event(&mut self, socket: &Socket, request: &ParkRequest) -> io::Result<AfterWait> {
        let since_us = clock::monotonic_us();
        let mut end_us = since_us.saturating_add(u64::from(request.timeout_ms) * 1000);
        let is_closing = request.reason == ParkReason::LingeringClose;
        let mut is_exiting = false;
        loop {
            // Requests that a client has sent by the time it learns of the exit are answered.
            if self.control.mode() == Mode::Exit && !std::mem::replace(&mut is_exiting, true) {
                end_us = end_us.min(since_us.saturating_add(self.drain_grace_us));
            }
            // A cancelled wait has had its time.
            if is_closing && self.client_wait.is_cancelled() {
                return Ok(AfterWait::Close { late: false });
            }
            let paused = !is_closing && self.is_paused();
            let left = Duration::from_micros(end_us.saturating_sub(clock::monotonic_us()));
            let timeout = match self.tick_left() {
                _ if paused => Duration::ZERO,
                Some(tick) => left.min(tick),
                None => left,
            };
            let wakeup = socket.wait(self.control.wake_descriptor(), Some(timeout))?;
            // An eviction that was requested before the next request arrives holds for that request
            // too.
            let eviction = if wakeup.waker { self.receive() } else { self.control.take_eviction() };
            self.evict_requested |= eviction.is_some();
            let paused = paused || !is_closing && self.is_paused();
            if wakeup.readable && !paused {
                let (reason, state) = (request.reason, request.state);
                return Ok(AfterWait::Event(ReadyEvent::Readable {
                    reason,
                    state,
                    hangup: wakeup.hangup,
                }));
            }
            let is_over = clock::monotonic_us() >= end_us;
            if !wakeup.readable && (is_over || self.exceeded_grace_us(eviction).is_some()) {
                // The next request may have arrived meanwhile, and closing now would lose it.
                if socket.wait(None, Some(Duration::ZERO))?.readable {
                    continue;
                }
                return Ok(AfterWait::Close { late: is_over && !is_exiting });
            }
            match paused {
                true => self.pause(),
                false => self.tick_if_due(),
            }
        }
    }

    /// The grace period, in microseconds, if the client has exceeded it under this eviction.
    fn exceeded_grace_us(&self, eviction: Option<Eviction>) -> Option<u64> {
        let (wait, since_us) = self.client_wait.current()?;
        let grace_us = eviction?.grace_us(wait);
        has_passed(since_us, grace_us).then_some(grace_us)
    }

    /// Runs a task to its end.
    fn run_task(&mut self, task: ConnectionTask) -> Outcome {
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
                Outcome::Closed
            }
        }
    }

    async fn run_to_completion(
        &mut self,
        mut task: ConnectionTask,
        watch: &mut Option<Watch>,
    ) -> Outcome {
        let tick = Duration::from_micros(TICK_US);
        let mut timer = std::pin::pin!(tokio::time::sleep(tick));
        poll_fn(|context| {
            loop {
                let eviction = self.receive_pending(watch, context);
                let before = self.client_wait.current();
                self.update_retiring();
                if let Poll::Ready(outcome) = task.as_mut().poll(context) {
                    return Poll::Ready(outcome);
                }
                // The task's own view of its client, from this poll, comes first.
                if self.cancel_wait(eviction, before.map(|(wait, _)| wait))
                    && let Poll::Ready(outcome) = task.as_mut().poll(context)
                {
                    return Poll::Ready(outcome);
                }
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                timer.as_mut().reset(Instant::now() + tick);
                self.tick();
            }
        })
        .await
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
mod tests {
    use super::*;
    use evenkeel_scoreboard::{Layout, Scoreboard};
    use evenkeel_sys::idle_table::ParkedState;
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    /// A worker whose eviction may have been requested.
    struct Asked(Option<Eviction>);

    impl WorkerControl for Asked {
        fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn watch(&self) -> io::Result<Option<Watch>> {
            Ok(None)
        }

        fn runtime(&self) -> Option<Handle> {
            None
        }

        fn receive(&mut self) {}

        fn mode(&self) -> Mode {
            Mode::Run
        }

        fn take_eviction(&mut self) -> Option<Eviction> {
            self.0.take()
        }

        fn is_contended(&mut self) -> bool {
            false
        }
    }

    /// Closes each connection at once.
    struct Closing;

    impl Service for Closing {
        fn serve(
            &mut self,
            _: Socket,
            _: ReadyEvent,
            _: &mut Option<evenkeel_scoreboard::Credit>,
            _: &mut u32,
        ) -> Outcome {
            Outcome::Closed
        }

        fn shed(&mut self, _: Socket, _: ReadyEvent, _: &mut u32) -> Outcome {
            Outcome::Closed
        }

        fn expire(&mut self, _: Socket, _: ParkReason, _: ParkedState, _: bool) {
            panic!("no connection is parked")
        }

        fn retire(&mut self, _: bool) {
            panic!("no connection is asked to end")
        }

        fn tick(&mut self) {}

        fn notify(&mut self, notice: Notice) {
            panic!("{notice:?}")
        }
    }

    /// A worker that receives something just as its client's next request arrives.
    struct RequestMeanwhile {
        wake: UnixStream,
        client: UnixStream,
        eviction: Option<Eviction>,
    }

    impl WorkerControl for RequestMeanwhile {
        fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.wake.as_fd())
        }

        fn watch(&self) -> io::Result<Option<Watch>> {
            Ok(None)
        }

        fn runtime(&self) -> Option<Handle> {
            None
        }

        fn receive(&mut self) {
            (&self.client).write_all(b"GET").unwrap();
        }

        fn mode(&self) -> Mode {
            Mode::Run
        }

        fn take_eviction(&mut self) -> Option<Eviction> {
            self.eviction.take()
        }

        fn is_contended(&mut self) -> bool {
            false
        }
    }

    #[test]
    fn a_request_that_arrives_just_before_the_connection_is_closed_is_answered() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0).unwrap();
        // It has timed out, or it is evicted.
        for (timeout_ms, eviction) in [(0, None), (60_000, Some(Eviction::Normal))] {
            let dedicated =
                DedicatedWorker { client_wait: Arc::new(ClientWait::new(None)), slot: None };
            dedicated.client_wait.start(WaitReason::Idle, 1);
            let (client, server) = UnixStream::pair().unwrap();
            let (mut waker, wake) = UnixStream::pair().unwrap();
            waker.write_all(b"1").unwrap();
            let control = RequestMeanwhile { wake, client, eviction };
            let mut worker = Worker::new(Closing, control, line, dedicated, Duration::ZERO);
            let request = ParkRequest { reason: ParkReason::KeepAlive, timeout_ms, state: [0; 4] };
            let next = worker.wait_for_event(&Socket::new(server.into()), &request).unwrap();
            assert!(matches!(next, AfterWait::Event(ReadyEvent::Readable { hangup: false, .. })));
        }
    }

    #[test]
    fn an_eviction_meant_for_the_last_connection_does_not_end_the_next() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let dedicated =
            DedicatedWorker { client_wait: Arc::new(ClientWait::new(None)), slot: None };
        let line = board.child_line(0).unwrap();
        let mut worker = Worker::new(Closing, Asked(None), line, dedicated, Duration::ZERO);
        for eviction in [Eviction::Normal, Eviction::Urgent] {
            // The request came when the last connection had just been closed.
            (worker.control, worker.evict_requested) = (Asked(Some(eviction)), true);
            let (_client, server) = UnixStream::pair().unwrap();
            let client = "127.0.0.1:1".parse().unwrap();
            let socket = Socket::new(server.into());
            worker.serve_connection(Connection { socket, client, listener: 0 });
            assert!(worker.control.0.is_none() && !worker.evict_requested);
        }
    }
}
