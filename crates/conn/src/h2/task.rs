//! A session that waits, as a task. It receives, serves and sends, polls the futures of its
//! streams, and parks the connection when there is nothing left to do.

use super::session::{Session, Spawned, engine_ms};
use super::session_state::MOST_UNSENT;
use super::stream::StreamTask;
use crate::exchange::credit::Lease;
use crate::exchange::slow_bytes::Share;
use crate::h1::task::poll_caught;
use crate::site::ConnectionSite;
use crate::transport::link::Link;
use crate::transport::parked::Connection;
use evenkeel_message::{Level, Notice};
use evenkeel_proto::h2::ErrorCode;
use evenkeel_scoreboard::Credit;
use evenkeel_sys::dispatch::Outcome;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// How many requests a session begins before it sends, receives and polls its streams.
const MOST_AT_ONCE: usize = 32;

/// How many rounds of receiving, serving and sending a session runs before it yields to other
/// connections.
const MOST_ROUNDS: usize = 8;

/// The future of a stream. Its output is the number of the stream and the changed state of the
/// connection; no state after a panic.
type StreamFuture = Pin<Box<dyn Future<Output = (u32, Option<Connection>)>>>;

/// A session that runs as a task.
pub(crate) struct SessionTask<S> {
    session: Session<S>,
    link: Rc<Link>,
    streams: FuturesUnordered<StreamFuture>,
    /// The leases of the streams.
    leases: Vec<(u32, Rc<Lease>)>,
    /// The lease with which the session waits for a credit for its next request.
    lease: Lease,
    credit: Option<Credit>,
    /// Whether the connection is broken: nothing can be sent or received.
    is_broken: bool,
    /// The time since which nothing could be sent, and the number of bytes sent until then.
    blocked: Option<(u64, u64)>,
    /// The slow bytes that are reserved for frames that the client does not read.
    share: Option<Share>,
    /// The time since which a frame is incomplete.
    partial_ms: Option<u64>,
    alarm: Option<(u64, Pin<Box<Sleep>>)>,
    /// Whether no stream has begun yet, so that the task may be dropped.
    is_first: bool,
}

impl<S: ConnectionSite> SessionTask<S> {
    /// Continues a session as a task.
    pub(crate) fn go_on(session: Session<S>, link: Rc<Link>) -> Outcome {
        let lease = Lease::new(&session.serving.thread.place, None);
        let is_first = session.is_quiet() && !session.state.borrow().engine.has_begun();
        let task = Self {
            session,
            link,
            streams: FuturesUnordered::new(),
            leases: Vec::new(),
            lease,
            credit: None,
            is_broken: false,
            blocked: None,
            share: None,
            partial_ms: None,
            alarm: None,
            is_first,
        };
        task.into_outcome()
    }

    fn into_outcome(self) -> Outcome {
        let is_first = self.is_first;
        let serving = Rc::clone(&self.session.serving);
        let (link, peer) = (Rc::clone(&self.link), self.session.connection.peer);
        let mut task = Some(self);
        let run = Box::pin(poll_fn(move |context| {
            let polled = catch_unwind(AssertUnwindSafe(|| match &mut task {
                Some(this) => this.poll(context),
                None => Poll::Ready(Finished::Closed),
            }));
            let outcome = match polled {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(finished)) => finished.outcome(&mut task),
                Err(panic) => serving.close_after_panic(&*panic, &peer),
            };
            if let Some(notice) = link.notice.take() {
                serving.site.tell(&notice, &peer);
            }
            Poll::Ready(outcome)
        }));
        if is_first { Outcome::HeadTask(run) } else { Outcome::Task(run) }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Finished> {
        self.session.heed_end();
        for _ in 0..MOST_ROUNDS {
            let mut is_busy = self.send(context);
            is_busy |= self.receive(context);
            is_busy |= self.start(context);
            is_busy |= self.poll_streams(context);
            self.session.state.borrow_mut().wake_writer();
            if is_busy {
                continue;
            }
            self.credit = None;
            if self.is_first && self.session.state.borrow().engine.has_begun() {
                return Poll::Ready(Finished::Begun);
            }
            if let Some(finished) = self.finished() {
                return Poll::Ready(finished);
            }
            if !self.poll_alarm(context) {
                return Poll::Pending;
            }
        }
        self.credit = None;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends the unsent frames. Returns whether something was sent.
    fn send(&mut self, context: &mut Context<'_>) -> bool {
        let state = &self.session.state;
        let before = state.borrow().total_sent;
        let has_unsent = state.borrow().unsent() > 0 || self.link.has_unsent();
        if self.is_broken || !has_unsent {
            (self.blocked, self.share) = (None, None);
            return false;
        }
        let sent = self.link.poll_send(context, |channel| state.borrow_mut().send(channel));
        let total = state.borrow().total_sent;
        match sent {
            Poll::Ready(Ok(())) => {
                (self.blocked, self.share) = (None, None);
                return true;
            }
            Poll::Ready(Err(_)) => self.fail(),
            Poll::Pending => {
                let held = state.borrow().out.capacity() as u64;
                if self.blocked.is_none_or(|(_, then)| then != total) {
                    self.blocked = Some((engine_ms(), total));
                }
                if self.share.is_none() {
                    let room = &self.session.serving.thread.place.slow_bytes;
                    self.share = room.take(held);
                    if self.share.is_none() {
                        self.tell("slow clients keep as much as they may, a connection ends");
                        self.fail();
                    }
                }
            }
        }
        total != before
    }

    /// Receives bytes and passes them to the engine. Returns whether there were any.
    fn receive(&mut self, context: &mut Context<'_>) -> bool {
        let is_over = {
            let state = self.session.state.borrow();
            state.is_gone || state.unsent() >= MOST_UNSENT
        };
        if self.is_broken || is_over {
            return false;
        }
        if self.link.inbox.borrow().is_empty() {
            // While a stream is being served, the connection does not count as one that waits for
            // its client.
            let is_tracked = self.streams.is_empty() && self.session.is_quiet();
            match self.link.poll_receive(context, is_tracked) {
                Poll::Pending => return false,
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) => {
                    self.fail();
                    return true;
                }
            }
        }
        let bytes = std::mem::take(&mut *self.link.inbox.borrow_mut());
        self.session.take(bytes.rest());
        true
    }

    /// Begins waiting requests, each with a credit. Returns whether one has begun.
    fn start(&mut self, context: &mut Context<'_>) -> bool {
        let mut started = 0;
        loop {
            let active = self.leases.iter().filter(|(_, lease)| lease.is_held()).count();
            if !self.session.may_start(active) {
                self.lease.release();
                break;
            }
            if started == MOST_AT_ONCE {
                break;
            }
            if self.credit.is_none() {
                if self.lease.poll_hold(context).is_pending() {
                    break;
                }
                self.credit = self.lease.take();
            }
            self.session.start_next(&mut self.credit);
            started += 1;
            if self.session.has_much() {
                break;
            }
        }
        started > 0
    }

    /// Polls the futures of the streams. Returns whether one has begun or ended.
    fn poll_streams(&mut self, context: &mut Context<'_>) -> bool {
        let mut is_busy = !self.session.spawned.is_empty();
        for spawned in std::mem::take(&mut self.session.spawned) {
            let future = self.future(spawned);
            self.streams.push(future);
        }
        while let Poll::Ready(Some((stream, connection))) = self.streams.poll_next_unpin(context) {
            is_busy = true;
            self.leases.retain(|(other, _)| *other != stream);
            let own = &mut self.session.connection;
            if let Some(learned) = connection {
                own.is_told |= learned.is_told;
                own.keepalives = own.keepalives.saturating_add(1);
                own.kibibytes = own.kibibytes.saturating_add(learned.kibibytes);
            }
            self.session.note_end();
            self.session.state.borrow_mut().close(stream);
        }
        is_busy
    }

    /// The future of a stream. A panic outside the phases and handlers resets the stream.
    fn future(&mut self, spawned: Spawned) -> StreamFuture {
        let Spawned { stream, begin, credit } = spawned;
        let serving = Rc::clone(&self.session.serving);
        let lease = Rc::new(Lease::new(&serving.thread.place, credit));
        self.leases.push((stream, Rc::clone(&lease)));
        let connection = Connection { kibibytes: 0, ..self.session.connection.clone() };
        let peer = connection.peer;
        let task = StreamTask {
            serving: Rc::clone(&serving),
            state: self.session.state.clone(),
            link: Rc::clone(&self.link),
            lease,
            connection,
            stream,
        };
        Box::pin(async move {
            let mut run = pin!(task.run(begin));
            match poll_fn(|context| poll_caught(run.as_mut(), context)).await {
                Ok(connection) => (stream, Some(connection)),
                Err(panic) => {
                    serving.close_after_panic(&*panic, &peer);
                    (stream, None)
                }
            }
        })
    }

    /// Marks the connection as broken.
    fn fail(&mut self) {
        self.is_broken = true;
        self.session.state.borrow_mut().leave();
        self.session.drop_waiting();
    }

    fn tell(&self, text: &'static str) {
        let notice = Notice::own("http2", Level::Info, text);
        self.session.serving.site.tell(&notice, &self.session.connection.peer);
    }

    /// How the task ends, if there is nothing left to do.
    fn finished(&mut self) -> Option<Finished> {
        if self.session.state.borrow().is_gone {
            self.session.drop_waiting();
        }
        if !self.session.is_quiet() || !self.streams.is_empty() {
            return None;
        }
        if self.is_broken {
            return Some(Finished::Closed);
        }
        {
            let state = self.session.state.borrow();
            if state.unsent() > 0 || self.link.has_unsent() {
                return None;
            }
            if state.engine.is_over() {
                return Some(Finished::Ended);
            }
            let is_ending = self.session.connection.is_over(&self.session.serving.thread);
            let has_partial = state.engine.has_partial() || self.link.has_partial();
            let rests = state.engine.has_no_streams() && !has_partial;
            if !rests || is_ending {
                return None;
            }
        }
        if self.link.more.get() {
            match self.link.fill_now() {
                Ok(count) if count > 0 => return None,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.link.more.set(false),
                _ => return Some(Finished::Closed),
            }
        }
        Some(Finished::Rests)
    }

    /// Acts on timeouts of the connection that have expired. Returns whether there is work now.
    fn poll_alarm(&mut self, context: &mut Context<'_>) -> bool {
        let now_ms = engine_ms();
        if !self.link.inbox.borrow().is_empty() {
            return true;
        }
        let settings = self.session.serving.site.settings(self.session.connection.server as usize);
        let (has_partial, told_in) = {
            let mut state = self.session.state.borrow_mut();
            let shared = &mut *state;
            let before = shared.out.len();
            let left_ms = shared.engine.tick(now_ms, &mut shared.out);
            if shared.out.len() > before {
                return true;
            }
            let has_partial = shared.engine.has_partial() || self.link.has_partial();
            (has_partial && shared.engine.has_no_streams(), left_ms)
        };
        self.partial_ms = has_partial.then(|| self.partial_ms.unwrap_or(now_ms));
        let blocked = self.blocked.map(|(since_ms, _)| since_ms + settings.timeout_ms);
        let header_ms = settings.header_time.map_or(settings.timeout_ms, |time| time.initial_ms);
        let partial = self.partial_ms.map(|since_ms| since_ms + header_ms);
        if blocked.is_some_and(|at_ms| at_ms <= now_ms) {
            self.fail();
            return true;
        }
        if partial.is_some_and(|at_ms| at_ms <= now_ms) {
            let notice =
                Notice::new("reqtimeout", Level::Info, 1382, "Request header read timeout");
            self.session.serving.site.tell(&notice, &self.session.connection.peer);
            let mut state = self.session.state.borrow_mut();
            let shared = &mut *state;
            shared.engine.close(ErrorCode::NoError, &mut shared.out);
            shared.leave();
            return true;
        }
        let told = told_in.map(|left_ms| now_ms + left_ms);
        let Some(next_ms) = [blocked, partial, told].into_iter().flatten().min() else {
            self.alarm = None;
            return false;
        };
        if self.alarm.as_ref().is_none_or(|(at_ms, _)| *at_ms != next_ms) {
            let at = Instant::now() + Duration::from_millis(next_ms - now_ms);
            self.alarm = Some((next_ms, Box::pin(tokio::time::sleep_until(at))));
        }
        match &mut self.alarm {
            Some((_, sleep)) => sleep.as_mut().poll(context).is_ready(),
            None => false,
        }
    }
}

/// How a task has finished.
enum Finished {
    Closed,
    /// The last frame was sent.
    Ended,
    Rests,
    /// The first stream has begun. The session continues as a task that must not be dropped.
    Begun,
}

impl Finished {
    fn outcome<S: ConnectionSite>(self, task: &mut Option<SessionTask<S>>) -> Outcome {
        let Some(mut task) = task.take() else { return Outcome::Closed };
        if let Finished::Begun = self {
            task.is_first = false;
            return task.into_outcome();
        }
        let SessionTask { session, link, .. } = task;
        let serving = Rc::clone(&session.serving);
        match (self, link.take()) {
            (Finished::Rests, Some(transport)) => serving.rest_h2(transport, session),
            (Finished::Ended, Some(transport)) => serving.end_h2(transport, session),
            _ => {
                if let Some((_, _, out)) = session.into_parts() {
                    serving.thread.give_frames(out);
                }
                Outcome::Closed
            }
        }
    }
}
