//! The loop of a serving thread, as one future: it hears commands, serves what can be read and
//! what waits to be accepted in turns, and expires what has rested too long. It serves only
//! with a credit in hand; without one, what can be read waits in line.

use super::contention::Contention;
use super::listen_set::{Accepted, ListenSet};
use super::overload::Overload;
use super::park::{Bench, Counted, SWEEP_MS, Waiter, ahead_ms, now_ms};
use crate::Command;
use crate::service::Service;
use crate::setup::{Control, Mode};
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

/// How many sockets are served before tasks and timers get their turn.
const TURN: usize = 64;
/// How many requests are answered before tasks and timers get their turn, where clients send
/// ahead: enough that four at a time on each socket of a turn stay together.
const REQUESTS: u32 = 256;
/// How many readable sockets are served for one that is accepted, while both wait.
const READS_PER_ACCEPT: usize = 4;
/// After how long a service that let nothing begin is asked again.
const HOLD_MS: u32 = 50;
/// How many idle connections are closed at a time where descriptors run out.
const RELIEF: usize = 16;
/// How many events are taken from the set at once.
const EVENTS: usize = 256;

/// A resting socket whose turn has come, by its token.
#[derive(Clone, Copy)]
enum Next {
    /// One that stood in line.
    First(Waiter),
    /// One that has just become readable, up to the end of the stream if `hangup`.
    Event { token: u64, hangup: bool },
}

pub(super) struct Thread<S> {
    bench: Rc<Bench>,
    listen_set: ListenSet,
    control: Option<(Watch, Box<dyn Control + Send>)>,
    service: S,
    mode: Mode,
    enlisted: bool,
    set: Watch,
    events: Events,
    /// The next event that was not looked at yet.
    event: usize,
    /// Tokens of sockets whose time was over at the last sweep, to be looked at.
    overdue: Vec<u64>,
    /// The credit with which the next request is served.
    hand: Option<Credit>,
    /// How many requests may still be answered in this turn.
    allowance: u32,
    waiting: Option<Waiting>,
    /// Whether a connection that waits to be accepted comes before one that can be read. Where
    /// credits come one at a time, the two take turns.
    accept_next: bool,
    /// Since when the connection had waited that was accepted last while others stood in line, in
    /// milliseconds of [`now_ms`].
    newcomer_since_ms: Option<u32>,
    alarm: Pin<Box<Sleep>>,
    alarm_ms: u32,
    last_tick_ms: u32,
    last_denial_ms: Option<u32>,
    last_few_ms: Option<u32>,
    /// From when on the child closes what rests, once it ends.
    closing_from_ms: Option<u32>,
    /// Until when nothing is begun because the service does not want it.
    held_until_ms: Option<u32>,
    /// What turns requests away that wait too long, where that is configured.
    overload: Option<Overload>,
    /// What makes room where the child is full.
    contention: Contention,
}

impl<S: Service> Thread<S> {
    /// The loop of the thread of `bench`, in a runtime's context.
    pub(super) fn new(
        bench: Rc<Bench>,
        mut listen_set: ListenSet,
        control: Option<Box<dyn Control + Send>>,
        service: S,
    ) -> io::Result<Self> {
        let number = usize::from(bench.number);
        let none = || io::Error::from(io::ErrorKind::NotFound);
        let set = Watch::new(&bench.shared.sets.get(number).ok_or_else(none)?.epoll)?;
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
            enlisted: false,
            set,
            events: Events::with_capacity(EVENTS),
            event: 0,
            overdue: Vec::new(),
            hand: None,
            allowance: REQUESTS,
            waiting: None,
            accept_next: true,
            newcomer_since_ms: None,
            alarm: Box::pin(tokio::time::sleep(Duration::from_millis(u64::from(SWEEP_MS)))),
            alarm_ms: now.wrapping_add(SWEEP_MS),
            last_tick_ms: now,
            last_denial_ms: None,
            last_few_ms: None,
            closing_from_ms: None,
            held_until_ms: None,
            overload: bench.shared.shedding.map(Overload::new),
            contention: Contention::default(),
            bench,
        })
    }

    /// Tells the parent that the child serves, where this thread is the one that speaks to it.
    pub(super) fn begin(self) -> Self {
        // One that stands still from now on has had a heart.
        self.bench.shared.beat(self.bench.number, clock::monotonic_coarse_us());
        if let Some((_, control)) = &self.control {
            control.ready();
        }
        self
    }

    /// Hears what the parent says, until it is dead.
    fn hear(&mut self, context: &mut Context<'_>) {
        let Some((watch, control)) = &mut self.control else { return };
        while let Poll::Ready(Ok(mut guard)) = watch.poll_readable(context) {
            while let Some(command) = control.next() {
                if let Some(mode) = Mode::of(command) {
                    self.bench.shared.advance(mode);
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

    /// Takes up what the child has been told.
    fn follow(&mut self) {
        let mode = self.bench.shared.mode();
        if mode == self.mode {
            return;
        }
        self.mode = mode;
        if let Some((_, control)) = &self.control
            && self.bench.shared.is_worn_out()
        {
            control.leaving();
        }
        self.service.retire(mode != Mode::Run);
        if mode == Mode::Run {
            if let Err(error) = self.listen_set.watch() {
                let text = format!("cannot watch the listening sockets again: {error}");
                self.service.notify(Notice::own("mpm_event", Level::Alert, text));
            }
        } else if mode == Mode::Park {
            self.listen_set.unwatch();
        } else {
            self.bench.shared.close_listeners();
            self.listen_set.close();
        }
        if mode == Mode::Exit {
            self.closing_from_ms = Some(now_ms().wrapping_add(self.bench.shared.drain_grace_ms));
            self.overdue.clear();
            self.find_overdue();
        }
    }

    /// Does what the time asks for, and sets the alarm for the next time. Says whether accepting
    /// goes on after a pause.
    fn watch_the_time(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            let mut due = self.bench.next_sweep_ms.get();
            match self.listen_set.paused_until_ms() {
                Some(until) if ahead_ms(now_ms(), until) <= 0 => return true,
                Some(until) if ahead_ms(until, due) > 0 => due = until,
                _ => {}
            }
            match self.held_until_ms {
                Some(until) if ahead_ms(now_ms(), until) <= 0 => {
                    self.held_until_ms = None;
                    self.service.tick();
                    return true;
                }
                Some(until) if ahead_ms(until, due) > 0 => due = until,
                _ => {}
            }
            let shedding = self.overload.as_ref().and_then(Overload::next_look_ms);
            for look in [shedding, self.contention.next_look_ms()].into_iter().flatten() {
                if ahead_ms(now_ms(), look) <= 0 {
                    return true;
                }
                due = if ahead_ms(look, due) > 0 { look } else { due };
            }
            if due != self.alarm_ms {
                self.alarm_ms = due;
                let wait = u64::try_from(ahead_ms(now_ms(), due)).unwrap_or(0);
                self.alarm.as_mut().reset(Instant::now() + Duration::from_millis(wait));
            }
            if self.alarm.as_mut().poll(context).is_pending() {
                return false;
            }
            let now = now_ms();
            if ahead_ms(self.last_tick_ms, now) >= SWEEP_MS.cast_signed() - 10 {
                self.last_tick_ms = now;
                self.bench.shared.beat(self.bench.number, clock::monotonic_coarse_us());
                self.take_budget();
                self.service.tick();
            }
            self.find_overdue();
        }
    }

    /// Takes up the number of credits that the parent gives the child.
    fn take_budget(&self) {
        let budget = self.control.as_ref().and_then(|(_, control)| control.budget());
        if let Some(budget) = budget {
            self.bench.shared.gate.resize(u32::try_from(budget).unwrap_or(u32::MAX));
        }
    }

    /// Whether all that rests is closed: what clients have sent by the time that they hear of the
    /// end is answered.
    fn closes_all(&self) -> bool {
        self.closing_from_ms.is_some_and(|from| ahead_ms(now_ms(), from) <= 0)
    }

    /// Finds those whose time is over, or all where the child closes what is idle, and says when
    /// the next will be. Those found by the last sweep are looked at first.
    fn find_overdue(&mut self) {
        let now = now_ms();
        let all = self.closes_all();
        let (bench, overdue) = (&self.bench, &mut self.overdue);
        let mut soonest = SWEEP_MS.cast_signed();
        if let Some(from) = self.closing_from_ms.filter(|_| !all) {
            soonest = soonest.min(ahead_ms(now, from));
        }
        if overdue.is_empty() {
            bench.shared.idle_table.sweep(Some(bench.number), now, |token, _, left| {
                if left <= 0 || all {
                    overdue.push(token);
                } else {
                    soonest = soonest.min(left);
                }
            });
        }
        bench.next_sweep_ms.set(now.wrapping_add(soonest.max(10).cast_unsigned()));
    }

    /// Closes what is overdue, as many as are served in a turn: it takes no credit. Nothing is
    /// closed that would be logged while the logs are not read. Says whether some are left.
    fn expire(&mut self) -> bool {
        if self.overdue.is_empty() || self.is_held() {
            return false;
        }
        let all = self.closes_all();
        for _ in 0..TURN {
            let Some(token) = self.overdue.pop() else { break };
            if all || self.bench.shared.idle_table.is_expired(token, now_ms()) {
                self.close_idle(token, !all);
            }
        }
        !self.overdue.is_empty()
    }

    /// Closes a socket that rests, unless a request has come on it by now.
    fn close_idle(&mut self, token: u64, late: bool) {
        let Some((taken, waits)) = self.bench.look(token) else { return };
        let Unparked { socket, reason, state, .. } = taken;
        let reason = ParkReason::from_number(reason);
        let owner = socket.registration().map(|registration| registration.owner);
        self.service.expire(socket, reason, state, late && waits);
        self.bench.count_closed(Counted { reason: Some(reason), owner });
    }

    /// Serves until nothing is left, no credit is left, or the turn is over; says whether the
    /// loop must come round again.
    fn turn(&mut self, context: &mut Context<'_>) -> bool {
        let mut served = 0;
        let mut stuck = false;
        self.allowance = REQUESTS;
        while served < TURN && self.allowance > 0 && !stuck {
            if self.is_held() {
                stuck = true;
                break;
            }
            let before = served;
            let listener = self.next_listener(context);
            if let Some(listener) = listener.filter(|_| self.is_newcomers_turn()) {
                if !self.take_hand(context) {
                    stuck = true;
                    break;
                }
                self.accept(listener);
                self.accept_next = false;
                served += 1;
            }
            for _ in 0..READS_PER_ACCEPT {
                // Who came first is next, however many credits have come at once.
                if self.allowance == 0
                    || listener.is_some() && self.is_newcomer_first() == Some(true)
                {
                    break;
                }
                let Some(next) = self.next_runnable(context) else {
                    self.accept_next = true;
                    break;
                };
                if !self.take_hand(context) {
                    match next {
                        Next::First(waiter) => self.bench.put_back(waiter),
                        Next::Event { token, hangup } => self.bench.enqueue(token, hangup),
                    }
                    stuck = true;
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
        if stuck {
            // While nothing may begin, what can be read gets in line and its edge is not lost.
            while let Some((token, hangup)) = self.next_event(context) {
                self.bench.enqueue(token, hangup);
            }
            return false;
        }
        let more = served >= TURN || self.allowance == 0;
        if !more {
            // Nothing is left to do that needs the credits we stood in line for.
            self.waiting = None;
        }
        more
    }

    /// The next port at which a connection waits, unless the child is full: then other children are
    /// asked, until it has room.
    fn next_listener(&mut self, context: &mut Context<'_>) -> Option<usize> {
        let listener = self.listen_set.ready(context)?;
        let shared = &self.bench.shared;
        if !shared.is_full() {
            return Some(listener);
        }
        // Asked for before the look, so that no room comes unheard.
        shared.awaits_room.store(true, SeqCst);
        if !shared.is_full() {
            return Some(listener);
        }
        self.contention.note(&shared.idle_table, self.listen_set.queue());
        None
    }

    /// Makes room in a full child for those who have waited for a turn, as long as they do.
    fn make_room(&mut self) {
        if !self.contention.is_due() {
            return;
        }
        let shared = &self.bench.shared;
        let full = self.mode == Mode::Run && shared.is_full();
        // Each thread looks, and each closes its share.
        let queue = if full { self.listen_set.queue().div_ceil(shared.sets.len()) } else { 0 };
        let idle = match queue {
            0 => {
                self.contention = Contention::default();
                Vec::new()
            }
            _ => self.contention.look(&shared.idle_table, queue),
        };
        self.service.set_contended(self.contention.stands);
        for token in idle {
            self.close_idle(token, false);
        }
    }

    /// Whether a connection that waits to be accepted comes before one that can be read. Where both
    /// have to wait, who came first; else they take turns.
    fn is_newcomers_turn(&self) -> bool {
        self.is_newcomer_first().unwrap_or(self.accept_next)
    }

    /// Whether the next connection to be accepted came before all who stand in line; none where
    /// that is not known. The kernel's queue is in order too, and the next in it came soon after
    /// the last.
    fn is_newcomer_first(&self) -> Option<bool> {
        let (newcomer, oldest) = (self.newcomer_since_ms?, self.bench.oldest_since_ms()?);
        Some(ahead_ms(newcomer, oldest) >= 0)
    }

    /// Gives back the credits that there is nothing to do with at once, and after a turn also
    /// those that others stand in line for: they come next, and the thread gets into line behind
    /// them.
    fn give_way(&mut self, more: bool) {
        if more && self.bench.shared.gate.waiting() == 0 {
            return;
        }
        self.hand = None;
        // Its own place in line it keeps, unless what it stands there for may not begin.
        let held = self.held_until_ms.is_some();
        self.waiting = self.waiting.take().filter(|waiting| waiting.is_in_line() && !held);
    }

    /// Whether the service lets nothing begin. A child that ends asks no more.
    fn is_held(&mut self) -> bool {
        let held = self.mode != Mode::Exit && !self.service.may_begin();
        if held {
            self.held_until_ms.get_or_insert_with(|| now_ms().wrapping_add(HOLD_MS));
        } else {
            self.held_until_ms = None;
        }
        held
    }

    fn take_hand(&mut self, context: &mut Context<'_>) -> bool {
        if self.hand.is_some() {
            return true;
        }
        let bench = &self.bench;
        let gate = &bench.shared.gate;
        if self.waiting.is_none() {
            self.hand = gate.take();
            if self.hand.is_some() {
                return true;
            }
            if let Some(demand) = &bench.shared.demand {
                demand.signal();
            }
        }
        // As many as there is work for; the others of the child get theirs in turn.
        let waiting = self.waiting.get_or_insert_with(|| {
            let most = bench.in_line() + self.events.len() + 1;
            gate.wait_for(u32::try_from(most).unwrap_or(u32::MAX))
        });
        if let Poll::Ready(credit) = Pin::new(waiting).poll(context) {
            self.hand = Some(credit);
        }
        self.hand.is_some()
    }

    /// The next socket whose turn it is: those in line before those that have just become
    /// readable.
    fn next_runnable(&mut self, context: &mut Context<'_>) -> Option<Next> {
        let newest = self.overload.as_ref().is_some_and(Overload::prefers_newest);
        let waiter = if newest { self.bench.pop_newest() } else { self.bench.pop() };
        if let Some(waiter) = waiter {
            return Some(Next::First(waiter));
        }
        self.next_event(context).map(|(token, hangup)| Next::Event { token, hangup })
    }

    /// The next event: whose it is, and whether it tells of the end of the stream.
    fn next_event(&mut self, context: &mut Context<'_>) -> Option<(u64, bool)> {
        loop {
            if let Some(ready) = self.events.at(self.event) {
                self.event += 1;
                return Some((ready.token, ready.hangup));
            }
            let Poll::Ready(Ok(mut guard)) = self.set.poll_readable(context) else { return None };
            self.event = 0;
            let set = self.bench.shared.sets.get(usize::from(self.bench.number));
            let polled = set.map(|set| set.epoll.poll(&mut self.events));
            // Fewer than there is room for is all there was: the next edge is told anew.
            if !matches!(polled, Some(Ok(()))) || !self.events.is_full() {
                guard.clear_ready();
            }
        }
    }

    /// Turns away who has waited too long in line, where that is configured. Says whether some are
    /// left.
    fn shed(&mut self) -> bool {
        let Some(overload) = &mut self.overload else { return false };
        let mut allowance = REQUESTS;
        for _ in 0..TURN {
            let began = overload.note(self.bench.longest_wait_ms());
            if let Some(text) = began {
                self.service.notify(Notice::own("mpm_event", Level::Warn, text));
            }
            if !overload.sheds() || allowance == 0 || self.held_until_ms.is_some() {
                return false;
            }
            let Some(waiter) = self.bench.pop() else { return false };
            let taken = self.bench.shared.idle_table.take_queued(waiter.token);
            let Some(Unparked { socket, reason, state, hangup }) = taken else { continue };
            let reason = ParkReason::from_number(reason);
            let owner = socket.registration().map(|registration| registration.owner);
            let event = ReadyEvent::Readable { reason, state, hangup };
            let outcome = self.service.shed(socket, event, &mut allowance);
            self.bench.settle(outcome, Counted { reason: Some(reason), owner });
        }
        true
    }

    fn serve(&mut self, next: Next) {
        let idle_table = &self.bench.shared.idle_table;
        let taken = match next {
            Next::First(waiter) => idle_table.take_queued(waiter.token),
            Next::Event { token, hangup } => idle_table.take(token, hangup),
        };
        let Some(Unparked { socket, reason, state, hangup }) = taken else { return };
        let reason = ParkReason::from_number(reason);
        let owner = socket.registration().map(|registration| registration.owner);
        let event = ReadyEvent::Readable { reason, state, hangup };
        let outcome = self.service.serve(socket, event, &mut self.hand, &mut self.allowance);
        self.bench.settle(outcome, Counted { reason: Some(reason), owner });
    }

    fn accept(&mut self, listener: usize) {
        match self.listen_set.accept(listener) {
            Accepted::Nothing => {}
            Accepted::Denied(error) => {
                self.tell_denial(&error);
                self.relieve();
            }
            Accepted::Last(socket, client) => {
                self.tell_that_few_are_left();
                self.relieve();
                self.serve_new(socket, client, listener);
            }
            Accepted::Connection(socket, client) => self.serve_new(socket, client, listener),
        }
    }

    fn serve_new(&mut self, socket: Socket, client: SocketAddr, listener: usize) {
        self.bench.shared.count_accepted();
        if self.bench.in_line() > 0 {
            let age_ms = socket::data_age_ms(&socket).unwrap_or(0);
            self.newcomer_since_ms = Some(now_ms().wrapping_sub(age_ms));
        }
        let event = ReadyEvent::Accepted { client, listener };
        let outcome = self.service.serve(socket, event, &mut self.hand, &mut self.allowance);
        self.bench.settle(outcome, Counted::default());
    }

    /// Closes the connections of the child that have been idle longest, where descriptors are
    /// short: kept-alive ones first, then ones that have never asked, then those of the thread that
    /// have not sent a whole head. One on which a request has come by now is served.
    fn relieve(&mut self) {
        let (mut kept, mut fresh) = (BinaryHeap::new(), BinaryHeap::new());
        self.bench.shared.idle_table.sweep(None, now_ms(), |token, reason, left| {
            let oldest = match ParkReason::from_number(reason) {
                ParkReason::KeepAlive => &mut kept,
                ParkReason::FirstRequest => &mut fresh,
                ParkReason::LingeringClose => return,
            };
            oldest.push((left, token));
            if oldest.len() > RELIEF {
                oldest.pop();
            }
        });
        let (kept, fresh) = (kept.into_sorted_vec(), fresh.into_sorted_vec());
        let missing = RELIEF.saturating_sub(kept.len() + fresh.len());
        for (_, token) in kept.into_iter().chain(fresh).take(RELIEF) {
            self.close_idle(token, false);
        }
        if missing > 0 {
            self.bench.begun.relieve(missing);
        }
    }

    /// Tells once a second at most that accepting is denied.
    fn tell_denial(&mut self, error: &io::Error) {
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

    /// Tells every ten seconds at most that connections have all the descriptors that they may.
    fn tell_that_few_are_left(&mut self) {
        let now = now_ms();
        if self.last_few_ms.is_some_and(|last| ahead_ms(last, now) < 10_000) {
            return;
        }
        self.last_few_ms = Some(now);
        let most = self.listen_set.descriptors();
        let text = format!(
            "connections have all but a few of the {most} descriptors that this process may have \
             (ulimit -n {most}): those that idle are closed for those that come"
        );
        self.service.notify(Notice::own("mpm_event", Level::Warn, text));
    }

    /// Lets other threads and the tasks of this one wake the loop; its waker never changes.
    fn enlist(&mut self, context: &Context<'_>) {
        if std::mem::replace(&mut self.enlisted, true) {
            return;
        }
        let set = self.bench.shared.sets.get(usize::from(self.bench.number));
        if let Some(Ok(mut waker)) = set.map(|set| set.waker.lock()) {
            *waker = Some(context.waker().clone());
        }
    }
}

impl<S: Service + Unpin> Future for Thread<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.enlist(context);
        this.hear(context);
        this.follow();
        this.make_room();
        let more = this.turn(context) | this.shed() | this.watch_the_time(context) | this.expire();
        if this.bench.shared.is_over() {
            this.service.tick();
            return Poll::Ready(());
        }
        let stuck = this.waiting.is_some() || this.held_until_ms.is_some();
        let more = more || !stuck && this.bench.in_line() > 0;
        if more {
            context.waker().wake_by_ref();
        }
        this.give_way(more);
        Poll::Pending
    }
}
