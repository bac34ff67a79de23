//! The loop of a serving thread, as one future: it receives commands, serves readable sockets and
//! accepts new ones in turns, and closes parked sockets that have expired. It serves only with a
//! credit; without one, readable sockets wait in the run queue.

use super::contention::Contention;
use super::context::{CountedAs, QueuedSocket, SWEEP_MS, ThreadContext, ahead_ms, now_ms};
use super::listen_set::{Accepted, ListenSet};
use super::overload::Overload;
use crate::Command;
use crate::service::Service;
use crate::setup::{Control, HANDSHAKE_US, Mode};
use evenkeel_message::{Level, Notice};
use evenkeel_scoreboard::{Credit, Waiting};
use evenkeel_sys::clock;
use evenkeel_sys::dispatch::{ParkReason, ReadyEvent};
use evenkeel_sys::epoll::Events;
use evenkeel_sys::idle_table::Unparked;
use evenkeel_sys::process;
use evenkeel_sys::socket::{self, Socket};
use evenkeel_sys::watch::Watch;
use std::collections::BinaryHeap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// How many sockets are served before tasks and timers run.
const BATCH: usize = 64;
/// How many requests are answered before tasks and timers run, if clients pipeline: enough that
/// four at a time on each socket of a batch are answered together.
const MAX_REQUESTS: u32 = 256;
/// How many readable sockets are served for each one that is accepted, while both wait.
const READS_PER_ACCEPT: usize = 4;
/// After how long a service that lets no request begin is asked again.
const PAUSE_MS: u32 = 50;
/// How often the accept queue is checked while the server stops.
const QUEUE_CHECK_MS: u32 = 50;
/// How many idle connections are closed at a time when descriptors run out.
const MAX_CLOSED: usize = 16;
/// How many events are read from the epoll set at a time.
const EVENTS: usize = 256;

/// The next socket to serve, by its token.
#[derive(Clone, Copy)]
enum Next {
    /// A socket from the run queue.
    Queued(QueuedSocket),
    /// A socket that has just become readable, up to the end of the stream if `hangup`.
    Event { token: u64, hangup: bool },
}

/// The last accepts of a thread while the whole server stops: when it checks the accept queue next,
/// and when it stops accepting.
struct LastAccepts {
    check_ms: u32,
    until_ms: u32,
}

pub(super) struct EventLoop<S> {
    thread: Rc<ThreadContext>,
    listen_set: ListenSet,
    control: Option<(Watch, Box<dyn Control + Send>)>,
    service: S,
    mode: Mode,
    is_waker_registered: bool,
    set: Watch,
    events: Events,
    /// The index of the next event to handle.
    event: usize,
    /// The tokens of sockets that had expired at the last sweep, to be inspected and closed.
    overdue: Vec<u64>,
    /// The credit for the next request.
    credit: Option<Credit>,
    /// How many requests may still be answered in this batch.
    requests_left: u32,
    waiting: Option<Waiting>,
    /// Whether accepting comes before reading. If credits come one at a time, the two alternate.
    accept_next: bool,
    /// Since when the last accepted connection had waited, if sockets were queued then, in
    /// milliseconds of [`now_ms`].
    last_accepted_since_ms: Option<u32>,
    timer: Pin<Box<Sleep>>,
    timer_ms: u32,
    last_tick_ms: u32,
    last_denial_ms: Option<u32>,
    last_shortage_ms: Option<u32>,
    /// When an exiting child begins to close its idle connections.
    close_idle_from_ms: Option<u32>,
    /// Set while the whole server stops and the thread still accepts connections.
    last_accepts: Option<LastAccepts>,
    /// Until when no request begins because the service does not allow it.
    paused_until_ms: Option<u32>,
    /// Sheds requests that wait too long, if that is configured.
    overload: Option<Overload>,
    /// Closes idle connections while the child is full.
    contention: Contention,
}

impl<S: Service> EventLoop<S> {
    /// The loop of the thread with this context. It must be called within the thread's runtime.
    pub(super) fn new(
        thread: Rc<ThreadContext>,
        mut listen_set: ListenSet,
        control: Option<Box<dyn Control + Send>>,
        service: S,
    ) -> io::Result<Self> {
        let number = usize::from(thread.number);
        let none = || io::Error::from(io::ErrorKind::NotFound);
        let set = Watch::new(&thread.shared.sets.get(number).ok_or_else(none)?.epoll)?;
        let control = match control {
            Some(control) => Some((Watch::new(&control)?, control)),
            None => None,
        };
        listen_set.watch()?;
        let now = now_ms();
        Ok(Self {
            listen_set,
            control,
            service,
            mode: Mode::Run,
            is_waker_registered: false,
            set,
            events: Events::with_capacity(EVENTS),
            event: 0,
            overdue: Vec::new(),
            credit: None,
            requests_left: MAX_REQUESTS,
            waiting: None,
            accept_next: true,
            last_accepted_since_ms: None,
            timer: Box::pin(tokio::time::sleep(Duration::from_millis(u64::from(SWEEP_MS)))),
            timer_ms: now.wrapping_add(SWEEP_MS),
            last_tick_ms: now,
            last_denial_ms: None,
            last_shortage_ms: None,
            close_idle_from_ms: None,
            last_accepts: None,
            paused_until_ms: None,
            overload: thread.shared.shedding.map(Overload::new),
            contention: Contention::default(),
            thread,
        })
    }

    /// Tells the parent that the child serves, if this thread has the channel to the parent.
    pub(super) fn ready(self) -> Self {
        // A thread that hangs from now on has had a heartbeat.
        self.thread.shared.heartbeat(self.thread.number, clock::monotonic_coarse_us());
        if let Some((_, control)) = &self.control {
            control.ready();
        }
        self
    }

    /// Receives the parent's commands, until it dies.
    fn receive_commands(&mut self, context: &mut Context<'_>) {
        let Some((watch, control)) = &mut self.control else { return };
        while let Poll::Ready(Ok(mut guard)) = watch.poll_readable(context) {
            while let Some(command) = control.next() {
                self.thread.shared.is_last.fetch_or(command.is_last(), SeqCst);
                if let Some(mode) = Mode::of(command) {
                    self.thread.shared.advance(mode);
                }
                if command == Command::Orphaned {
                    drop(guard);
                    self.control = None;
                    return;
                }
            }
            guard.clear_ready();
        }
    }

    /// Follows a change of the child's mode.
    fn update_mode(&mut self) {
        let mode = self.thread.shared.mode();
        if mode == self.mode {
            return;
        }
        let before = std::mem::replace(&mut self.mode, mode);
        if let Some((_, control)) = &self.control
            && self.thread.shared.is_exhausted()
        {
            control.leaving();
        }
        self.service.retire(mode != Mode::Run);
        if mode == Mode::Run {
            self.watch_again();
        } else if mode == Mode::Park {
            self.listen_set.unwatch();
        } else if before < Mode::Drain {
            self.thread.shared.close_listeners();
            if self.thread.shared.is_last.load(SeqCst) {
                self.watch_again();
                let now = now_ms();
                let until_ms = now.wrapping_add(self.thread.shared.stop_grace_ms);
                let check_ms = now.wrapping_add((HANDSHAKE_US / 1000) as u32);
                self.last_accepts = Some(LastAccepts { check_ms, until_ms });
            } else {
                self.close_sockets();
            }
        }
        if mode == Mode::Exit {
            self.close_idle_from_ms =
                Some(now_ms().wrapping_add(self.thread.shared.drain_grace_ms));
            self.overdue.clear();
            self.find_overdue();
        }
    }

    /// Resumes watching the listening sockets.
    fn watch_again(&mut self) {
        if let Err(error) = self.listen_set.watch() {
            let text = format!("cannot watch the listening sockets again: {error}");
            self.service.notify(Notice::own("mpm_event", Level::Alert, text));
        }
    }

    fn close_sockets(&mut self) {
        self.listen_set.close();
        self.last_accepts = None;
        self.thread.shared.count_closed_sockets();
    }

    /// Closes the listening sockets while the whole server stops, once the accept queue is empty or
    /// the time for last accepts is over.
    fn close_when_drained(&mut self) {
        let Some(last) = &mut self.last_accepts else { return };
        let now = now_ms();
        if ahead_ms(now, last.until_ms) <= 0 {
            return self.close_sockets();
        }
        if ahead_ms(now, last.check_ms) <= 0 {
            last.check_ms = now.wrapping_add(QUEUE_CHECK_MS);
            if self.listen_set.queue() == 0 {
                self.close_sockets();
            }
        }
    }

    /// Does what is due, and sets the timer. True if accepting resumes after a pause.
    fn run_timers(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            let mut due = self.thread.next_sweep_ms.get();
            match self.listen_set.paused_until_ms() {
                Some(until) if ahead_ms(now_ms(), until) <= 0 => return true,
                Some(until) if ahead_ms(until, due) > 0 => due = until,
                _ => {}
            }
            match self.paused_until_ms {
                Some(until) if ahead_ms(now_ms(), until) <= 0 => {
                    self.paused_until_ms = None;
                    self.service.tick();
                    return true;
                }
                Some(until) if ahead_ms(until, due) > 0 => due = until,
                _ => {}
            }
            let shedding = self.overload.as_ref().and_then(Overload::next_check_ms);
            let queue = self.last_accepts.as_ref().map(|last| last.check_ms);
            for check in [shedding, self.contention.next_check_ms(), queue].into_iter().flatten() {
                if ahead_ms(now_ms(), check) <= 0 {
                    return true;
                }
                due = if ahead_ms(check, due) > 0 { check } else { due };
            }
            if due != self.timer_ms {
                self.timer_ms = due;
                let wait = u64::try_from(ahead_ms(now_ms(), due)).unwrap_or(0);
                self.timer.as_mut().reset(Instant::now() + Duration::from_millis(wait));
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return false;
            }
            let now = now_ms();
            if ahead_ms(self.last_tick_ms, now) >= SWEEP_MS.cast_signed() - 10 {
                self.last_tick_ms = now;
                self.thread.shared.heartbeat(self.thread.number, clock::monotonic_coarse_us());
                self.take_budget();
                self.service.tick();
            }
            self.find_overdue();
        }
    }

    /// Applies the number of credits that the parent gives the child.
    fn take_budget(&self) {
        let budget = self.control.as_ref().and_then(|(_, control)| control.budget());
        if let Some(budget) = budget {
            self.thread.shared.gate.resize(u32::try_from(budget).unwrap_or(u32::MAX));
        }
    }

    /// Whether all idle connections are closed. Requests that clients have sent by the time they
    /// learn of the exit are answered.
    fn closes_idle(&self) -> bool {
        self.close_idle_from_ms.is_some_and(|from| ahead_ms(now_ms(), from) <= 0)
    }

    /// Collects the sockets that have expired, or all if the child closes idle connections, and
    /// schedules the next sweep. Sockets of the last sweep are handled first.
    fn find_overdue(&mut self) {
        let now = now_ms();
        let all = self.closes_idle();
        let (thread, overdue) = (&self.thread, &mut self.overdue);
        let mut soonest = SWEEP_MS.cast_signed();
        if let Some(from) = self.close_idle_from_ms.filter(|_| !all) {
            soonest = soonest.min(ahead_ms(now, from));
        }
        if overdue.is_empty() {
            thread.shared.idle_table.sweep(Some(thread.number), now, |token, _, left| {
                if left <= 0 || all {
                    overdue.push(token);
                } else {
                    soonest = soonest.min(left);
                }
            });
        }
        thread.next_sweep_ms.set(now.wrapping_add(soonest.max(10).cast_unsigned()));
    }

    /// Closes expired sockets, up to a batch: this takes no credit. While logs are not read, no
    /// socket is closed whose end would be logged. True if some are left.
    fn expire(&mut self) -> bool {
        if self.overdue.is_empty() || self.is_paused() {
            return false;
        }
        let all = self.closes_idle();
        for _ in 0..BATCH {
            let Some(token) = self.overdue.pop() else { break };
            if all || self.thread.shared.idle_table.is_expired(token, now_ms()) {
                self.close_idle(token, !all);
            }
        }
        !self.overdue.is_empty()
    }

    /// Closes a parked socket, unless a request has arrived on it.
    fn close_idle(&mut self, token: u64, late: bool) {
        let Some((taken, waits)) = self.thread.inspect(token) else { return };
        let Unparked { socket, reason, state, .. } = taken;
        let reason = ParkReason::from_number(reason);
        let owner = socket.registration().map(|registration| registration.owner);
        self.service.expire(socket, reason, state, late && waits);
        self.thread.count_closed(CountedAs { reason: Some(reason), owner });
    }

    /// Serves until nothing is ready, no credit is left, or the batch is complete. True if the loop
    /// must run again.
    fn serve_batch(&mut self, context: &mut Context<'_>) -> bool {
        let mut served = 0;
        let mut blocked = false;
        self.requests_left = MAX_REQUESTS;
        while served < BATCH && self.requests_left > 0 && !blocked {
            if self.is_paused() {
                blocked = true;
                break;
            }
            let before = served;
            let listener = self.next_listener(context);
            if let Some(listener) = listener.filter(|_| self.accepts_next()) {
                if !self.acquire_credit(context) {
                    blocked = true;
                    break;
                }
                self.accept(listener);
                self.accept_next = false;
                served += 1;
            }
            for _ in 0..READS_PER_ACCEPT {
                // The oldest socket is served first, however many credits have come at once.
                if self.requests_left == 0
                    || listener.is_some() && self.accept_is_older() == Some(true)
                {
                    break;
                }
                let Some(next) = self.next_runnable(context) else {
                    self.accept_next = true;
                    break;
                };
                if !self.acquire_credit(context) {
                    match next {
                        Next::Queued(queued) => self.thread.requeue(queued),
                        Next::Event { token, hangup } => self.thread.enqueue(token, hangup),
                    }
                    blocked = true;
                    break;
                }
                self.serve(next);
                self.accept_next = true;
                served += 1;
            }
            if served == before && listener.is_none() {
                break;
            }
        }
        if blocked {
            // While no request may begin, readable sockets are queued, so that their edges are not
            // lost.
            while let Some((token, hangup)) = self.next_event(context) {
                self.thread.enqueue(token, hangup);
            }
            return false;
        }
        let more = served >= BATCH || self.requests_left == 0;
        if !more {
            // The credits that the thread has waited for are not needed any more.
            self.waiting = None;
        }
        more
    }

    /// The next listening socket on which a connection waits. If the child is full, there is none
    /// and other children accept, until it has room.
    fn next_listener(&mut self, context: &mut Context<'_>) -> Option<usize> {
        let listener = self.listen_set.ready(context)?;
        let shared = &self.thread.shared;
        if !shared.is_full() {
            return Some(listener);
        }
        // Set before the check, so that room which appears meanwhile is not missed.
        shared.waits_for_room.store(true, SeqCst);
        if !shared.is_full() {
            return Some(listener);
        }
        self.contention.start(&shared.idle_table, self.listen_set.queue());
        None
    }

    /// Closes idle connections of a full child while others wait.
    fn make_room(&mut self) {
        if !self.contention.is_due() {
            return;
        }
        let shared = &self.thread.shared;
        let accepts = self.mode == Mode::Run || self.last_accepts.is_some();
        let full = accepts && shared.is_full();
        // Each thread checks, and each closes its share.
        let queue = if full { self.listen_set.queue().div_ceil(shared.sets.len()) } else { 0 };
        let idle = match queue {
            0 => {
                self.contention = Contention::default();
                Vec::new()
            }
            _ => self.contention.check(&shared.idle_table, queue),
        };
        self.service.set_contended(self.contention.is_contended);
        for token in idle {
            self.close_idle(token, false);
        }
    }

    /// Whether accepting comes before reading: the older socket comes first, and if that is unknown
    /// the two alternate.
    fn accepts_next(&self) -> bool {
        self.accept_is_older().unwrap_or(self.accept_next)
    }

    /// Whether the next connection to accept is older than all queued sockets; none if that is
    /// unknown. The kernel's queue is in order too, and its next connection came soon after the
    /// last one.
    fn accept_is_older(&self) -> Option<bool> {
        let (accepted_ms, oldest) = (self.last_accepted_since_ms?, self.thread.oldest_since_ms()?);
        Some(ahead_ms(accepted_ms, oldest) >= 0)
    }

    /// Returns the credits that are not needed at once. After a batch, also returns those that
    /// other threads wait for: they come next, and this thread queues behind them.
    fn yield_credits(&mut self, more: bool) {
        if more && self.thread.shared.gate.waiting() == 0 {
            return;
        }
        self.credit = None;
        // The thread keeps its place in the queue for credits, unless its requests may not begin.
        let paused = self.paused_until_ms.is_some();
        self.waiting = self.waiting.take().filter(|waiting| waiting.is_queued() && !paused);
    }

    /// Whether the service lets no request begin. A child that exits no longer asks.
    fn is_paused(&mut self) -> bool {
        let paused = self.mode != Mode::Exit && !self.service.may_begin();
        if paused {
            self.paused_until_ms.get_or_insert_with(|| now_ms().wrapping_add(PAUSE_MS));
        } else {
            self.paused_until_ms = None;
        }
        paused
    }

    fn acquire_credit(&mut self, context: &mut Context<'_>) -> bool {
        if self.credit.is_some() {
            return true;
        }
        let thread = &self.thread;
        let gate = &thread.shared.gate;
        if self.waiting.is_none() {
            self.credit = gate.take();
            if self.credit.is_some() {
                return true;
            }
            if let Some(demand) = &thread.shared.demand {
                demand.signal();
            }
        }
        // As many credits as there is work for; the other threads of the child get theirs in turn.
        let waiting = self.waiting.get_or_insert_with(|| {
            let most = thread.queue_length() + self.events.len() + 1;
            gate.wait_for(u32::try_from(most).unwrap_or(u32::MAX))
        });
        if let Poll::Ready(credit) = Pin::new(waiting).poll(context) {
            self.credit = Some(credit);
        }
        self.credit.is_some()
    }

    /// The next socket to serve: queued sockets come before those that have just become readable.
    fn next_runnable(&mut self, context: &mut Context<'_>) -> Option<Next> {
        let newest = self.overload.as_ref().is_some_and(Overload::prefers_newest);
        let queued = if newest { self.thread.pop_newest() } else { self.thread.pop() };
        if let Some(queued) = queued {
            return Some(Next::Queued(queued));
        }
        self.next_event(context).map(|(token, hangup)| Next::Event { token, hangup })
    }

    /// The next event: its token, and whether it reports the end of the stream.
    fn next_event(&mut self, context: &mut Context<'_>) -> Option<(u64, bool)> {
        loop {
            if let Some(ready) = self.events.at(self.event) {
                self.event += 1;
                return Some((ready.token, ready.hangup));
            }
            let Poll::Ready(Ok(mut guard)) = self.set.poll_readable(context) else { return None };
            self.event = 0;
            let set = self.thread.shared.sets.get(usize::from(self.thread.number));
            let polled = set.map(|set| set.epoll.poll(&mut self.events));
            // A buffer that is not full has all events: the next edge is reported again.
            if !matches!(polled, Some(Ok(()))) || !self.events.is_full() {
                guard.clear_ready();
            }
        }
    }

    /// Sheds requests that have waited too long, if that is configured. True if some are left.
    fn shed(&mut self) -> bool {
        let Some(overload) = &mut self.overload else { return false };
        let mut requests_left = MAX_REQUESTS;
        for _ in 0..BATCH {
            let began = overload.note(self.thread.longest_wait_ms());
            if let Some(text) = began {
                self.service.notify(Notice::own("mpm_event", Level::Warn, text));
            }
            if !overload.sheds() || requests_left == 0 || self.paused_until_ms.is_some() {
                return false;
            }
            let Some(queued) = self.thread.pop() else { return false };
            let taken = self.thread.shared.idle_table.take_queued(queued.token);
            let Some(Unparked { socket, reason, state, hangup }) = taken else { continue };
            let reason = ParkReason::from_number(reason);
            let owner = socket.registration().map(|registration| registration.owner);
            let event = ReadyEvent::Readable { reason, state, hangup };
            let outcome = self.service.shed(socket, event, &mut requests_left);
            self.thread.apply(outcome, CountedAs { reason: Some(reason), owner });
        }
        true
    }

    fn serve(&mut self, next: Next) {
        let idle_table = &self.thread.shared.idle_table;
        let taken = match next {
            Next::Queued(queued) => idle_table.take_queued(queued.token),
            Next::Event { token, hangup } => idle_table.take(token, hangup),
        };
        let Some(Unparked { socket, reason, state, hangup }) = taken else { return };
        let reason = ParkReason::from_number(reason);
        let owner = socket.registration().map(|registration| registration.owner);
        let event = ReadyEvent::Readable { reason, state, hangup };
        let outcome = self.service.serve(socket, event, &mut self.credit, &mut self.requests_left);
        self.thread.apply(outcome, CountedAs { reason: Some(reason), owner });
    }

    fn accept(&mut self, listener: usize) {
        match self.listen_set.accept(listener) {
            Accepted::Nothing => {}
            Accepted::Denied(error) => {
                self.log_denial(&error);
                self.close_idlest();
            }
            Accepted::Last(socket, client) => {
                self.log_shortage();
                self.close_idlest();
                self.serve_new(socket, client, listener);
            }
            Accepted::Connection(socket, client) => {
                if self.service.is_short_of_room() {
                    self.close_oldest_new();
                }
                self.serve_new(socket, client, listener);
            }
        }
    }

    fn serve_new(&mut self, socket: Socket, client: SocketAddr, listener: usize) {
        self.thread.shared.count_accepted();
        if self.thread.queue_length() > 0 {
            let age_ms = socket::data_age_ms(&socket).unwrap_or(0);
            self.last_accepted_since_ms = Some(now_ms().wrapping_sub(age_ms));
        }
        let event = ReadyEvent::Accepted { client, listener };
        let outcome = self.service.serve(socket, event, &mut self.credit, &mut self.requests_left);
        self.thread.apply(outcome, CountedAs::default());
    }

    /// Closes the connections of the child that have been idle the longest, because descriptors are
    /// short: kept connections first, then connections without a request, then those of this thread
    /// whose head is incomplete. A connection on which a request has arrived is served.
    fn close_idlest(&mut self) {
        let (kept, new) = self.idlest();
        let missing = MAX_CLOSED.saturating_sub(kept.len() + new.len());
        for token in kept.into_iter().chain(new).take(MAX_CLOSED) {
            self.close_idle(token, false);
        }
        if missing > 0 {
            self.thread.new_tasks.close_heads(missing);
        }
    }

    /// Closes the connections of the child that have waited the longest for their first request.
    fn close_oldest_new(&mut self) {
        let (_, new) = self.idlest();
        for token in new {
            self.close_idle(token, false);
        }
    }

    /// The kept connections of the child that have been idle the longest, and the connections
    /// without a request that have, at most [`MAX_CLOSED`] of each, the longest wait first.
    fn idlest(&self) -> (Vec<u64>, Vec<u64>) {
        let (mut kept, mut new) = (BinaryHeap::new(), BinaryHeap::new());
        self.thread.shared.idle_table.sweep(None, now_ms(), |token, reason, left| {
            let oldest = match ParkReason::from_number(reason) {
                ParkReason::KeepAlive => &mut kept,
                ParkReason::FirstRequest => &mut new,
                ParkReason::LingeringClose => return,
            };
            oldest.push((left, token));
            if oldest.len() > MAX_CLOSED {
                oldest.pop();
            }
        });
        let tokens = |heap: BinaryHeap<(i32, u64)>| {
            heap.into_sorted_vec().into_iter().map(|(_, token)| token).collect()
        };
        (tokens(kept), tokens(new))
    }

    /// Logs a failed accept, at most once a second.
    fn log_denial(&mut self, error: &io::Error) {
        let now = now_ms();
        if self.last_denial_ms.is_some_and(|last| ahead_ms(last, now) < 1000) {
            return;
        }
        self.last_denial_ms = Some(now);
        // Apache: os/unix/unixd.c, ap_unixd_accept.
        let limit = process::descriptor_limit(error);
        let text = format!("apr_socket_accept: (client socket){limit}");
        self.service.notify(Notice::new("core", Level::Error, 2176, text).because(error));
    }

    /// Logs that connections use almost all descriptors, at most every ten seconds.
    fn log_shortage(&mut self) {
        let now = now_ms();
        if self.last_shortage_ms.is_some_and(|last| ahead_ms(last, now) < 10_000) {
            return;
        }
        self.last_shortage_ms = Some(now);
        let most = self.listen_set.descriptors();
        let text = format!(
            "connections have all but a few of the {most} descriptors that this process may have \
             (ulimit -n {most}): those that idle are closed for those that come"
        );
        self.service.notify(Notice::own("mpm_event", Level::Warn, text));
    }

    /// Registers the loop's waker, with which other threads and this thread's tasks wake it. It
    /// never changes.
    fn register_waker(&mut self, context: &Context<'_>) {
        if std::mem::replace(&mut self.is_waker_registered, true) {
            return;
        }
        let set = self.thread.shared.sets.get(usize::from(self.thread.number));
        if let Some(Ok(mut waker)) = set.map(|set| set.waker.lock()) {
            *waker = Some(context.waker().clone());
        }
    }
}

impl<S: Service + Unpin> Future for EventLoop<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.register_waker(context);
        this.receive_commands(context);
        this.update_mode();
        this.close_when_drained();
        this.make_room();
        let more =
            this.serve_batch(context) | this.shed() | this.run_timers(context) | this.expire();
        if this.thread.shared.is_over() {
            this.service.tick();
            return Poll::Ready(());
        }
        let blocked = this.waiting.is_some() || this.paused_until_ms.is_some();
        let more = more || !blocked && this.thread.queue_length() > 0;
        if more {
            context.waker().wake_by_ref();
        }
        this.yield_credits(more);
        Poll::Pending
    }
}
