//! How a worker holds a connection: it serves it, waits for its client, and goes on until it is
//! closed. A connection comes in, nothing goes out. While others wait for a worker, it closes what
//! is idle and ends what does not move.

use super::contention::Eviction;
use super::habit::Habit;
use super::listen_set::Connection;
use super::{FAIR_SHARE_US, PAUSE};
use crate::service::{Held, Service};
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

/// How many requests a client that sends ahead may have answered in one turn: nobody else waits
/// for this worker's turn.
const REQUESTS: u32 = 256;

/// After so many turns a connection makes room as one does that is as old as a turn is long: where
/// the workers share few cores, a time says little of what a client has had.
const TURNS: u32 = 8;

/// Of a runtime: a set, a copy of it, and what wakes it.
pub(crate) const RUNTIME_DESCRIPTORS: usize = 3;

/// What a worker is told while it holds a connection.
pub(crate) trait Orders {
    /// The descriptor that is readable when there is something to hear; none once nothing comes.
    fn bell(&self) -> Option<BorrowedFd<'_>>;

    /// Has the runtime within which this is called watch that descriptor.
    fn watch(&self) -> io::Result<Option<Watch>>;

    /// The runtime of requests that wait, where others have it running; else each worker has one
    /// of its own.
    fn runtime(&self) -> Option<Handle>;

    /// Takes up what there is to hear.
    fn hear(&mut self);

    /// In how long [`Orders::tick`] has something to do.
    fn due(&self) -> Option<Duration> {
        None
    }

    /// Does what is due; comes more often.
    fn tick(&mut self) {}

    /// How the child stands.
    fn mode(&self) -> Mode;

    /// How the worker has been asked to make room since this was last asked.
    fn take_eviction(&mut self) -> Option<Eviction>;

    /// Whether connections wait that nobody is idle for, as far as the worker can see.
    fn is_contended(&mut self) -> bool;
}

/// A worker.
pub(crate) struct Holder<S, O> {
    pub(crate) service: S,
    pub(crate) orders: O,
    line: ChildLine,
    slot: Option<Slots>,
    client_wait: Arc<ClientWait>,
    gate: Arc<Gate>,
    /// The runtime of requests that wait, from the first of them on: many a worker never needs it.
    engine: Option<Engine>,
    /// What a runtime of its own needs of descriptors, held for it: where others have run out, a
    /// connection that was accepted is answered all the same.
    spare: Vec<OwnedFd>,
    /// What the service was told last.
    retiring: bool,
    habit: Habit,
    /// Since when there is a connection, in microseconds of the monotonic clock.
    since_us: u64,
    /// How often something has come on it.
    turns: u32,
    /// Whether it was asked for an end of this connection.
    evict_requested: bool,
    /// For how long a connection that rests is kept once the child ends, in microseconds.
    parting_us: u64,
    last_tick_us: u64,
    /// Whether something was served since the last tick, or was left by it.
    stirred: bool,
}

/// A runtime in which a request waits, and the bell as that watches it.
struct Engine {
    bell: Option<Watch>,
    runtime: Drive,
}

enum Drive {
    /// It runs while the request waits.
    Own(LocalRuntime),
    /// It runs elsewhere.
    Shared(Handle),
}

/// What follows a rest.
enum After {
    Turn(ReadyEvent),
    /// It is closed, since its time is over (`late`) or to make room.
    Close {
        late: bool,
    },
}

impl<S: Service, O: Orders> Holder<S, O> {
    pub(crate) fn new(
        service: S,
        orders: O,
        line: ChildLine,
        held: Held,
        parting: Duration,
    ) -> Self {
        // One more watches the bell. Any will do, and one that is denied is missed later.
        let count = if orders.runtime().is_some() { 0 } else { RUNTIME_DESCRIPTORS + 1 };
        let spare = (0..count).filter_map(|_| orders.bell()?.try_clone_to_owned().ok()).collect();
        Self {
            spare,
            service,
            orders,
            line,
            slot: held.slot,
            client_wait: held.client_wait,
            gate: Gate::open(),
            engine: None,
            retiring: false,
            habit: Habit::default(),
            since_us: 0,
            turns: 0,
            evict_requested: false,
            parting_us: u64::try_from(parting.as_micros()).unwrap_or(u64::MAX),
            last_tick_us: clock::monotonic_coarse_us(),
            stirred: false,
        }
    }

    /// Serves a connection to its end.
    pub(crate) fn hold(&mut self, connection: Connection) {
        let Connection { socket, client, listener } = connection;
        self.line.add(Counter::Connections, 1);
        self.client_wait.reset();
        // What was said of the connection before is not said of this one.
        self.orders.take_eviction();
        self.evict_requested = false;
        (self.since_us, self.turns) = (clock::monotonic_us(), 0);
        self.wait_until_it_may_begin();
        let mut outcome = self.turn(socket, ReadyEvent::Accepted { client, listener });
        loop {
            outcome = match outcome {
                Outcome::Closed => break,
                Outcome::Task(work) | Outcome::HeadTask(work) => self.work(work),
                Outcome::Park(socket, pause) => match self.rest(&socket, &pause) {
                    After::Turn(turn) => self.turn(socket, turn),
                    After::Close { late } => {
                        self.service.expire(socket, pause.reason, pause.state, late);
                        break;
                    }
                },
            };
        }
        self.client_wait.reset();
        self.show(SlotState::Ready);
        self.line.subtract(Counter::Connections, 1);
    }

    /// Has the service do what is due about once a second, if something has happened since.
    pub(crate) fn tick_if_due(&mut self) {
        if self.tick_left().is_some_and(|left| left.is_zero()) {
            self.tick();
        }
    }

    /// In how long the next tick is due; none while nothing has happened and nothing is to.
    pub(crate) fn tick_left(&self) -> Option<Duration> {
        let due_us = self.last_tick_us.saturating_add(TICK_US);
        let left = due_us.saturating_sub(clock::monotonic_coarse_us());
        let own = self.stirred.then_some(Duration::from_micros(left));
        [own, self.orders.due()].into_iter().flatten().min()
    }

    pub(crate) fn tick(&mut self) {
        self.last_tick_us = clock::monotonic_coarse_us();
        self.orders.tick();
        self.service.tick();
        self.stirred = self.service.awaits_tick();
    }

    /// Whether the service lets nothing begin. A child that ends asks no more.
    pub(crate) fn is_held(&self) -> bool {
        self.orders.mode() != Mode::Exit && !self.service.may_begin()
    }

    fn wait_until_it_may_begin(&mut self) {
        while self.is_held() {
            self.pause();
        }
    }

    /// Waits a moment for what the service waits for.
    pub(crate) fn pause(&mut self) {
        match self.orders.bell() {
            // Nothing but a signal can go wrong, and then the wait is shorter.
            Some(bell) => drop(wait_readable(&[bell], Some(PAUSE))),
            None => std::thread::sleep(PAUSE),
        }
        self.hear();
        self.tick();
    }

    fn turn(&mut self, socket: Socket, event: ReadyEvent) -> Outcome {
        self.client_wait.stop();
        if !matches!(event, ReadyEvent::Readable { reason: ParkReason::LingeringClose, .. }) {
            self.show(SlotState::Reading);
        }
        if clock::monotonic_coarse_us().saturating_sub(self.last_tick_us) >= TICK_US {
            // After a long sleep the service's clocks are old.
            self.tick();
        }
        self.stirred = true;
        self.turns = self.turns.saturating_add(1);
        self.follow();
        let (mut hand, mut allowance) = (self.gate.take(), REQUESTS);
        self.service.serve(socket, event, &mut hand, &mut allowance)
    }

    /// Tells the service whether the next response closes the connection: to make room, also the
    /// first, for a request that takes longer than a turn must not be followed by another.
    fn follow(&mut self) {
        let had_its_turn = || {
            let now_us = clock::monotonic_us();
            self.turns >= TURNS
                || now_us.saturating_sub(self.since_us) >= FAIR_SHARE_US
                || !self.habit.is_quick(now_us)
        };
        let contended = (self.orders.is_contended() || self.evict_requested) && had_its_turn();
        let retiring = contended || self.orders.mode() != Mode::Run;
        if retiring != self.retiring {
            self.retiring = retiring;
            self.service.retire(retiring);
        }
    }

    /// Hears what there is; how the worker has been asked to make room just now.
    fn hear(&mut self) -> Option<Eviction> {
        self.orders.hear();
        let eviction = self.orders.take_eviction();
        self.evict_requested |= eviction.is_some();
        eviction
    }

    /// Waits until something can be read or the connection is to be closed.
    fn rest(&mut self, socket: &Socket, pause: &ParkRequest) -> After {
        let reason = pause.reason;
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
        let after = self.await_turn(socket, pause);
        self.line.subtract(counter, 1);
        if reason == ParkReason::KeepAlive {
            let now_us = clock::monotonic_us();
            self.habit.note(now_us.saturating_sub(since_us), now_us);
        }
        after.unwrap_or_else(|error| {
            let text = format!("cannot wait for a client: {error}");
            self.service.notify(Notice::own("core", Level::Error, text));
            After::Close { late: false }
        })
    }

    fn await_turn(&mut self, socket: &Socket, pause: &ParkRequest) -> io::Result<After> {
        let since_us = clock::monotonic_us();
        let mut end_us = since_us.saturating_add(u64::from(pause.timeout_ms) * 1000);
        let is_closing = pause.reason == ParkReason::LingeringClose;
        let mut ends = false;
        loop {
            // What a client has sent by the time that it hears of the end is answered.
            if self.orders.mode() == Mode::Exit && !std::mem::replace(&mut ends, true) {
                end_us = end_us.min(since_us.saturating_add(self.parting_us));
            }
            // What was called off has had its time.
            if is_closing && self.client_wait.is_cancelled() {
                return Ok(After::Close { late: false });
            }
            let held = !is_closing && self.is_held();
            let left = Duration::from_micros(end_us.saturating_sub(clock::monotonic_us()));
            let most = match self.tick_left() {
                _ if held => Duration::ZERO,
                Some(tick) => left.min(tick),
                None => left,
            };
            let woken = socket.wait(self.orders.bell(), Some(most))?;
            // What was said before a request came holds for it.
            let eviction = if woken.waker { self.hear() } else { self.orders.take_eviction() };
            self.evict_requested |= eviction.is_some();
            let held = held || !is_closing && self.is_held();
            if woken.readable && !held {
                let (reason, state) = (pause.reason, pause.state);
                return Ok(After::Turn(ReadyEvent::Readable {
                    reason,
                    state,
                    hangup: woken.hangup,
                }));
            }
            let is_over = clock::monotonic_us() >= end_us;
            if !woken.readable && (is_over || self.outlasts(eviction).is_some()) {
                // The next request may have come since: closed now, it would be lost.
                if socket.wait(None, Some(Duration::ZERO))?.readable {
                    continue;
                }
                return Ok(After::Close { late: is_over && !ends });
            }
            match held {
                true => self.pause(),
                false => self.tick_if_due(),
            }
        }
    }

    /// What patience who is pressed so has had with its client, in microseconds, if no more is due.
    fn outlasts(&self, eviction: Option<Eviction>) -> Option<u64> {
        let (wait, since_us) = self.client_wait.current()?;
        let grace_us = eviction?.grace_us(wait);
        has_passed(since_us, grace_us).then_some(grace_us)
    }

    /// Runs what waits to its end.
    fn work(&mut self, work: ConnectionTask) -> Outcome {
        self.spare.clear();
        let engine = self.engine.take().map_or_else(|| Engine::new(&self.orders), Ok);
        match engine {
            Ok(Engine { mut bell, runtime }) => {
                let whole = self.see_through(work, &mut bell);
                let outcome = match &runtime {
                    Drive::Own(runtime) => runtime.block_on(whole),
                    Drive::Shared(runtime) => runtime.block_on(whole),
                };
                self.engine = Some(Engine { bell, runtime });
                outcome
            }
            Err(error) => {
                let text = "a request that must wait finds no room";
                self.service.notify(Notice::own("core", Level::Error, text).because(&error));
                Outcome::Closed
            }
        }
    }

    async fn see_through(&mut self, mut work: ConnectionTask, bell: &mut Option<Watch>) -> Outcome {
        let tick = Duration::from_micros(TICK_US);
        let mut alarm = std::pin::pin!(tokio::time::sleep(tick));
        poll_fn(|context| {
            loop {
                let eviction = self.hear_bell(bell, context);
                let before = self.client_wait.current();
                self.follow();
                if let Poll::Ready(outcome) = work.as_mut().poll(context) {
                    return Poll::Ready(outcome);
                }
                // What the work has just seen of its client counts.
                if self.call_off(eviction, before.map(|(wait, _)| wait))
                    && let Poll::Ready(outcome) = work.as_mut().poll(context)
                {
                    return Poll::Ready(outcome);
                }
                if alarm.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                alarm.as_mut().reset(Instant::now() + tick);
                self.tick();
            }
        })
        .await
    }

    /// Hears the bell while a request waits; how the worker is asked to make room.
    fn hear_bell(
        &mut self,
        bell: &mut Option<Watch>,
        context: &mut Context<'_>,
    ) -> Option<Eviction> {
        let mut eviction = self.orders.take_eviction();
        while let Some(watch) = bell {
            let Poll::Ready(Ok(mut guard)) = watch.poll_readable(context) else { break };
            eviction = eviction.max(self.hear());
            guard.clear_ready();
            drop(guard);
            if self.orders.bell().is_none() {
                *bell = None;
            }
        }
        self.evict_requested |= eviction.is_some();
        eviction
    }

    /// Cancels a wait that has lasted too long. What is said of a crowd holds for what the
    /// worker waited for `before`.
    fn call_off(&self, eviction: Option<Eviction>, before: Option<WaitReason>) -> bool {
        let Some((wait, _)) =
            self.client_wait.current().filter(|(wait, _)| *wait != WaitReason::Idle)
        else {
            return false;
        };
        let is_same = before == Some(wait);
        let eviction = eviction.map(|eviction| if is_same { eviction } else { Eviction::Normal });
        let Some(grace_us) = self.outlasts(eviction) else { return false };
        self.client_wait.cancel(clock::monotonic_us().saturating_sub(grace_us));
        true
    }

    fn show(&self, state: SlotState) {
        if let Some(slot) = &self.slot {
            slot.show(state);
        }
    }
}

impl Engine {
    fn new(orders: &impl Orders) -> io::Result<Self> {
        let runtime = match orders.runtime() {
            Some(handle) => Drive::Shared(handle),
            None => {
                let mut builder = Builder::new_current_thread();
                Drive::Own(builder.enable_all().build_local(LocalOptions::default())?)
            }
        };
        let inside = match &runtime {
            Drive::Own(runtime) => runtime.enter(),
            Drive::Shared(runtime) => runtime.enter(),
        };
        let bell = orders.watch()?;
        drop(inside);
        Ok(Self { bell, runtime })
    }
}

/// Whether so much time has passed since then.
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

    /// A worker that may have been asked to make room.
    struct Asked(Option<Eviction>);

    impl Orders for Asked {
        fn bell(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn watch(&self) -> io::Result<Option<Watch>> {
            Ok(None)
        }

        fn runtime(&self) -> Option<Handle> {
            None
        }

        fn hear(&mut self) {}

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
            panic!("nothing rests")
        }

        fn retire(&mut self, _: bool) {
            panic!("no connection is asked to end")
        }

        fn tick(&mut self) {}

        fn notify(&mut self, notice: Notice) {
            panic!("{notice:?}")
        }
    }

    /// What a worker hears while its client's next request comes.
    struct Meanwhile {
        bell: UnixStream,
        client: UnixStream,
        eviction: Option<Eviction>,
    }

    impl Orders for Meanwhile {
        fn bell(&self) -> Option<BorrowedFd<'_>> {
            Some(self.bell.as_fd())
        }

        fn watch(&self) -> io::Result<Option<Watch>> {
            Ok(None)
        }

        fn runtime(&self) -> Option<Handle> {
            None
        }

        fn hear(&mut self) {
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
    fn a_request_that_comes_in_the_last_moment_of_a_rest_is_answered() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0).unwrap();
        // Its time is over, or it is to make room.
        for (timeout_ms, eviction) in [(0, None), (60_000, Some(Eviction::Normal))] {
            let held = Held { client_wait: Arc::new(ClientWait::new(None)), slot: None };
            held.client_wait.start(WaitReason::Idle, 1);
            let (client, server) = UnixStream::pair().unwrap();
            let (mut ringer, bell) = UnixStream::pair().unwrap();
            ringer.write_all(b"1").unwrap();
            let orders = Meanwhile { bell, client, eviction };
            let mut holder = Holder::new(Closing, orders, line, held, Duration::ZERO);
            let pause = ParkRequest { reason: ParkReason::KeepAlive, timeout_ms, state: [0; 4] };
            let after = holder.await_turn(&Socket::new(server.into()), &pause).unwrap();
            assert!(matches!(after, After::Turn(ReadyEvent::Readable { hangup: false, .. })));
        }
    }

    #[test]
    fn a_press_that_was_meant_for_the_last_connection_does_not_end_the_next() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let held = Held { client_wait: Arc::new(ClientWait::new(None)), slot: None };
        let line = board.child_line(0).unwrap();
        let mut holder = Holder::new(Closing, Asked(None), line, held, Duration::ZERO);
        for eviction in [Eviction::Normal, Eviction::Urgent] {
            // It came when the connection before had just ended.
            (holder.orders, holder.evict_requested) = (Asked(Some(eviction)), true);
            let (_client, server) = UnixStream::pair().unwrap();
            let client = "127.0.0.1:1".parse().unwrap();
            let socket = Socket::new(server.into());
            holder.hold(Connection { socket, client, listener: 0 });
            assert!(holder.orders.0.is_none() && !holder.evict_requested);
        }
    }
}
