//! The loop of a serving thread, as one future: it hears commands, serves what can be read and
//! what waits to be accepted in turns, and expires what has rested too long. It serves only
//! with a credit in hand; without one, what can be read waits in line.

use super::park::{Bench, Counted, Runnable, SWEEP_MS, Why, ahead_ms, now_ms};
use super::ports::{Accepted, Ports};
use super::{Control, Mode};
use crate::Command;
use crate::service::{Class, Service, Turn};
use evenkeel_message::{Level, Notice};
use evenkeel_scoreboard::{Counter, Credit, Waiting};
use evenkeel_sys::clock;
use evenkeel_sys::epoll::Events;
use evenkeel_sys::shelf::Taken;
use evenkeel_sys::socket::Socket;
use evenkeel_sys::watch::Watch;
use std::collections::BinaryHeap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// How many sockets are served before tasks and timers get their turn.
const TURN: usize = 64;
/// How many readable sockets are served for one that is accepted, while both wait.
const READS_PER_ACCEPT: usize = 4;
/// After how long a service that let nothing begin is asked again.
const HOLD_MS: u32 = 50;
/// How many idle connections are closed at a time where descriptors run out.
const RELIEF: usize = 16;
/// How many events are taken from the set at once.
const EVENTS: usize = 256;

pub(super) struct Thread<S> {
    bench: Rc<Bench>,
    ports: Ports,
    control: Option<(Watch, Box<dyn Control + Send>)>,
    service: S,
    mode: Mode,
    enlisted: bool,
    set: Watch,
    events: Events,
    /// The next event that was not looked at yet.
    event: usize,
    /// The credit with which the next request is served.
    hand: Option<Credit>,
    waiting: Option<Waiting>,
    /// Whether a connection that waits to be accepted comes before one that can be read. Where
    /// credits come one at a time, the two take turns.
    ports_turn: bool,
    alarm: Pin<Box<Sleep>>,
    alarm_ms: u32,
    last_tick_ms: u32,
    last_denial_ms: Option<u32>,
    /// Until when nothing is begun because the service does not want it.
    held_until_ms: Option<u32>,
}

impl<S: Service> Thread<S> {
    /// The loop of the thread of `bench`, in a runtime's context.
    pub(super) fn new(
        bench: Rc<Bench>,
        mut ports: Ports,
        control: Option<Box<dyn Control + Send>>,
        service: S,
    ) -> io::Result<Self> {
        let number = usize::from(bench.number);
        let none = || io::Error::from(io::ErrorKind::NotFound);
        let set = Watch::new(&bench.shared.sets.get(number).ok_or_else(none)?.epoll)?;
        let control = match control {
            Some(control) => {
                let watch = Watch::new(&control)?;
                control.ready();
                Some((watch, control))
            }
            None => None,
        };
        ports.enter()?;
        let now = now_ms();
        Ok(Self {
            ports,
            control,
            service,
            mode: Mode::Run,
            enlisted: false,
            set,
            events: Events::with_capacity(EVENTS),
            event: 0,
            hand: None,
            waiting: None,
            ports_turn: true,
            alarm: Box::pin(tokio::time::sleep(Duration::from_millis(u64::from(SWEEP_MS)))),
            alarm_ms: now.wrapping_add(SWEEP_MS),
            last_tick_ms: now,
            last_denial_ms: None,
            held_until_ms: None,
            bench,
        })
    }

    /// Hears what the parent says, until it is dead.
    fn hear(&mut self, context: &mut Context<'_>) {
        let Some((watch, control)) = &mut self.control else { return };
        while let Poll::Ready(Ok(mut guard)) = watch.poll_readable(context) {
            while let Some(command) = control.next() {
                self.bench.shared.heed(Mode::from(command));
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
        self.service.retire(mode != Mode::Run);
        if mode == Mode::Run {
            if let Err(error) = self.ports.enter() {
                let text = format!("cannot watch the listening sockets again: {error}");
                self.service.notify(Notice::own("mpm_event", Level::Alert, text));
            }
        } else {
            self.ports.leave();
        }
        if mode == Mode::Exit {
            self.expire(true);
        }
    }

    /// Does what the time asks for, and sets the alarm for the next time. Says whether accepting
    /// goes on after a pause.
    fn watch_the_time(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            let mut due = self.bench.next_sweep_ms.get();
            match self.ports.paused_until_ms() {
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
                self.bench.shared.line.set(Counter::HeartbeatUs, clock::monotonic_coarse_us());
                self.service.tick();
            }
            self.expire(self.mode == Mode::Exit);
        }
    }

    /// Puts those in line whose time is over, or all, and says when the next will be.
    fn expire(&mut self, all: bool) {
        let now = now_ms();
        let mut soonest = SWEEP_MS.cast_signed();
        let why = if all { Why::Exiting } else { Why::Expired };
        let bench = &self.bench;
        bench.shared.shelf.sweep(bench.number, now, |token, _, left| {
            if left <= 0 || all {
                bench.push(Runnable { token, why });
            } else {
                soonest = soonest.min(left);
            }
        });
        bench.next_sweep_ms.set(now.wrapping_add(soonest.max(10).cast_unsigned()));
    }

    /// Serves until nothing is left, no credit is left, or the turn is over; says whether the
    /// loop must come round again.
    fn turn(&mut self, context: &mut Context<'_>) -> bool {
        let mut served = 0;
        let mut stuck = false;
        while served < TURN && !stuck {
            if self.is_held() {
                stuck = true;
                break;
            }
            let before = served;
            let port = self.ports.ready(context);
            if let Some(port) = port.filter(|_| self.ports_turn) {
                if !self.take_hand(context) {
                    stuck = true;
                    break;
                }
                self.accept(port);
                self.ports_turn = false;
                served += 1;
            }
            for _ in 0..READS_PER_ACCEPT {
                let Some(next) = self.next_runnable(context) else {
                    self.ports_turn = true;
                    break;
                };
                if !self.take_hand(context) {
                    // It keeps its place at the head of the line.
                    self.bench.runnable.borrow_mut().push_front(next);
                    self.bench.shared.line.add(Counter::Runnable, 1);
                    stuck = true;
                    break;
                }
                self.serve(next);
                self.ports_turn = true;
                served += 1;
            }
            if served == before && port.is_none() {
                break;
            }
        }
        if stuck {
            // While nothing may begin, what can be read gets in line and its edge is not lost.
            while let Some(next) = self.next_event(context) {
                self.bench.push(next);
            }
            return false;
        }
        let more = served >= TURN;
        if !more {
            // Nothing is left to do that needs the credits we stood in line for.
            self.waiting = None;
        }
        more
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
        }
        // As many as there is work for; the others of the child get theirs in turn.
        let waiting = self.waiting.get_or_insert_with(|| {
            let most = bench.runnable.borrow().len() + self.events.len() + 1;
            gate.wait_for(u32::try_from(most).unwrap_or(u32::MAX))
        });
        if let Poll::Ready(credit) = Pin::new(waiting).poll(context) {
            self.hand = Some(credit);
        }
        self.hand.is_some()
    }

    /// The next socket whose turn it is: those in line before those that have just become
    /// readable.
    fn next_runnable(&mut self, context: &mut Context<'_>) -> Option<Runnable> {
        self.bench.pop().or_else(|| self.next_event(context))
    }

    fn next_event(&mut self, context: &mut Context<'_>) -> Option<Runnable> {
        loop {
            if let Some(ready) = self.events.at(self.event) {
                self.event += 1;
                let why = Why::Readable { hangup: ready.hangup };
                return Some(Runnable { token: ready.token, why });
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

    fn serve(&mut self, next: Runnable) {
        let shelf = &self.bench.shared.shelf;
        let hangup = matches!(next.why, Why::Readable { hangup: true });
        if next.why == Why::Expired && !shelf.is_over(next.token, now_ms()) {
            return;
        }
        let Some(taken) = shelf.take(next.token, hangup) else { return };
        let Taken { socket, class, memo } = taken;
        let class = Class::from_number(class);
        let turn = match next.why {
            Why::Readable { hangup } => Turn::Readable { class, memo, hangup },
            Why::Expired | Why::Exiting => Turn::Expired { class, memo },
        };
        let owner = socket.seat().map(|seat| seat.owner);
        let verdict = self.service.serve(socket, turn, &mut self.hand);
        self.bench.settle(verdict, Counted { class: Some(class), owner });
    }

    fn accept(&mut self, port: usize) {
        match self.ports.accept(port) {
            Accepted::Nothing => {}
            Accepted::Denied(error) => {
                self.tell_denial(&error);
                self.relieve();
            }
            Accepted::Last(socket, client) => {
                self.relieve();
                self.serve_new(socket, client, port);
            }
            Accepted::Connection(socket, client) => self.serve_new(socket, client, port),
        }
    }

    fn serve_new(&mut self, socket: Socket, client: SocketAddr, port: usize) {
        self.bench.shared.count_accepted();
        let turn = Turn::Accepted { client, port };
        let verdict = self.service.serve(socket, turn, &mut self.hand);
        self.bench.settle(verdict, Counted::default());
    }

    /// Closes the kept-alive connections that have been idle longest, where descriptors are
    /// short. One on which a request has come by now is served.
    fn relieve(&mut self) {
        let mut oldest = BinaryHeap::with_capacity(RELIEF + 1);
        let bench = &self.bench;
        bench.shared.shelf.sweep(bench.number, now_ms(), |token, class, left| {
            if Class::from_number(class) == Class::KeepAlive {
                oldest.push((left, token));
                if oldest.len() > RELIEF {
                    oldest.pop();
                }
            }
        });
        for (_, token) in oldest {
            bench.push(Runnable { token, why: Why::Exiting });
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
        let text = "apr_socket_accept: (client socket)";
        self.service.notify(Notice::new("core", Level::Error, 2176, text).because(error));
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
        let more = this.turn(context) | this.watch_the_time(context);
        if this.bench.shared.is_over() {
            this.service.tick();
            return Poll::Ready(());
        }
        let stuck = this.waiting.is_some() || this.held_until_ms.is_some();
        let more = more || !stuck && !this.bench.runnable.borrow().is_empty();
        if more {
            context.waker().wake_by_ref();
        } else {
            // Idle: the credit is for whoever needs it.
            this.hand = None;
        }
        Poll::Pending
    }
}
