//! The session of a connection: it passes received bytes to the engine, and serves the requests
//! that the engine reports. A request that can be answered at once is answered here; one that must
//! wait becomes a future (`task.rs`).

use super::reply::StreamReply;
use super::session_state::{MOST_UNSENT, Shared, State};
use super::stream::Begin;
use crate::exchange::slow_bytes::Share;
use crate::serving::Serving;
use crate::site::ConnectionSite;
use crate::transport::parked::Connection;
use bytes::Bytes;
use evenkeel_message::{BodyLength, Level, Notice, Request, Served};
use evenkeel_proto::Refusal;
use evenkeel_proto::h2::{Engine, ErrorCode, Event, Fault};
use evenkeel_scoreboard::Credit;
use evenkeel_sys::clock;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::rc::Rc;

/// How many streams of a new connection may hold a credit at a time. Each waiting stream that ends
/// doubles this number (Apache begins with 6, h2_mplx.c), so that a client that begins requests and
/// never lets them end does not take all credits.
const FIRST_ACTIVE: usize = 8;

/// Unread request bodies of a connection count as slow bytes only beyond this many bytes.
const UNREAD: u64 = 64 << 10;

/// A request that waits for a credit.
struct Waiting {
    /// From 0, the most urgent, to 7.
    urgency: u8,
    request: Box<Request>,
    refusal: Option<Box<Refusal>>,
    started_us: u64,
}

/// A stream that the session's task will make a future of.
pub(crate) struct Spawned {
    pub(crate) stream: u32,
    pub(crate) begin: Begin,
    pub(crate) credit: Option<Credit>,
}

/// A connection of HTTP/2.
pub(crate) struct Session<S> {
    pub(crate) serving: Rc<Serving<S>>,
    pub(crate) state: State,
    pub(crate) connection: Connection,
    /// The most urgent in front.
    waiting: VecDeque<Waiting>,
    pub(crate) spawned: Vec<Spawned>,
    /// The maximum number of streams that hold a credit at a time.
    active: usize,
    /// An empty request, into which the next head is parsed.
    next: Option<Box<Request>>,
    /// The slow bytes that are reserved for unread request bodies.
    share: Option<Share>,
}

/// The time of an engine, in milliseconds.
pub(crate) fn engine_ms() -> u64 {
    clock::monotonic_us() / 1000
}

impl<S: ConnectionSite> Session<S> {
    pub(crate) fn new(
        serving: &Rc<Serving<S>>,
        connection: Connection,
        engine: Box<Engine>,
        out: Vec<u8>,
    ) -> Self {
        Self {
            serving: Rc::clone(serving),
            state: Shared::new(engine, out),
            connection,
            waiting: VecDeque::new(),
            spawned: Vec::new(),
            active: FIRST_ACTIVE,
            next: None,
            share: None,
        }
    }

    /// Passes received bytes to the engine.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) {
        let now_us = clock::monotonic_us();
        loop {
            let mut request = match self.next.take() {
                Some(request) => request,
                None => self.serving.request(&self.connection),
            };
            let mut state = self.state.borrow_mut();
            let shared = &mut *state;
            let head = request.head.receive();
            let event = shared.engine.next(&mut bytes, now_us / 1000, head, &mut shared.out);
            let Some(event) = event else {
                drop(state);
                self.serving.give(request);
                break;
            };
            match event {
                Event::Head { stream, refusal } => {
                    if request.head.length != BodyLength::None {
                        shared.open(stream);
                    }
                    let urgency = shared.engine.urgency(stream);
                    request.stream = stream;
                    request.keepalives = 0;
                    request.time_us = self.serving.thread.day_us(now_us);
                    drop(state);
                    self.enqueue(Waiting { urgency, request, refusal, started_us: now_us });
                    continue;
                }
                Event::Data { stream, bytes, end } => {
                    let has_inbox = shared.inbox(stream).is_some();
                    if !has_inbox {
                        shared.engine.used(stream, bytes.len(), &mut shared.out);
                    }
                    shared.deliver(stream, |inbox| {
                        inbox.data.push_back(Bytes::copy_from_slice(bytes));
                        inbox.has_ended = end;
                    });
                }
                Event::Trailers { stream, fields } => shared.deliver(stream, |inbox| {
                    (inbox.trailers, inbox.has_ended) = (fields, true);
                }),
                Event::Reset { stream, code, fault } => {
                    shared.deliver(stream, |inbox| (inbox.is_reset, inbox.fault) = (true, fault));
                    drop(state);
                    self.forget(stream);
                    self.tell_fault(stream, code, fault);
                }
                Event::Malformed { stream, fault } => {
                    drop(state);
                    self.tell_fault(stream, ErrorCode::ProtocolError, Some(fault));
                }
                Event::Failed(fault) => {
                    shared.leave();
                    drop(state);
                    self.tell_failure(fault);
                }
            }
            self.next = Some(request);
        }
        if self.state.borrow_mut().engine.take_reprioritised() {
            self.sort_waiting();
        }
        self.bound_unread();
    }

    /// Adds a request behind those that are as urgent.
    fn enqueue(&mut self, waiting: Waiting) {
        let is_later = |other: &&Waiting| other.urgency > waiting.urgency;
        let later = self.waiting.iter().rev().take_while(is_later).count();
        self.waiting.insert(self.waiting.len() - later, waiting);
    }

    fn sort_waiting(&mut self) {
        let state = self.state.borrow();
        for waiting in &mut self.waiting {
            waiting.urgency = state.engine.urgency(waiting.request.stream);
        }
        let order = |waiting: &Waiting| (waiting.urgency, waiting.request.stream);
        self.waiting.make_contiguous().sort_by_key(order);
    }

    /// Begins with the request that asked for HTTP/2 in HTTP/1.1.
    pub(crate) fn begin_with(&mut self, mut request: Box<Request>, started_us: u64) {
        (request.stream, request.keepalives) = (1, 0);
        let urgency = self.state.borrow().engine.urgency(1);
        self.enqueue(Waiting { urgency, request, refusal: None, started_us });
    }

    /// Reserves slow bytes for unread request bodies. Ends the connection if none are left.
    fn bound_unread(&mut self) {
        let unread = self.state.borrow().unread();
        if unread <= UNREAD {
            self.share = None;
        } else if self.share.is_none() {
            let most = u64::from(self.settings().engine.connection_window);
            self.share = self.serving.thread.place.slow_bytes.take(most);
            if self.share.is_none() {
                let mut state = self.state.borrow_mut();
                let shared = &mut *state;
                shared.engine.close(ErrorCode::EnhanceYourCalm, &mut shared.out);
                shared.leave();
                drop(state);
                let text = "slow clients keep as much as they may, a connection of HTTP/2 ends";
                let notice = Notice::own("http2", Level::Info, text);
                self.serving.site.tell(&notice, &self.connection.peer);
            }
        }
    }

    fn settings(&self) -> &crate::site::Http2 {
        &self.serving.site.settings(self.connection.server as usize).http2
    }

    /// Drops a waiting request whose stream was reset.
    fn forget(&mut self, stream: u32) {
        let place = self.waiting.iter().position(|waiting| waiting.request.stream == stream);
        if let Some(waiting) = place.and_then(|place| self.waiting.remove(place)) {
            self.serving.give(waiting.request);
            self.state.borrow_mut().close(stream);
        }
    }

    fn tell_fault(&mut self, stream: u32, code: ErrorCode, fault: Option<&'static str>) {
        let Some(fault) = fault else { return };
        let text = format!("stream {stream} is reset with {}: {fault}", code.name());
        self.tell(Level::Debug, text);
    }

    fn tell_failure(&mut self, fault: Fault) {
        let text = format!("a connection ends with {}: {}", fault.code.name(), fault.text);
        self.tell(Level::Info, text);
    }

    fn tell(&mut self, level: Level, text: String) {
        let notice = Notice::own("http2", level, text);
        self.connection.is_told |= self.serving.site.tell(&notice, &self.connection.peer);
    }

    /// Asks the client to begin no more streams if the connection is to end.
    pub(crate) fn heed_end(&mut self) {
        if self.connection.is_over(&self.serving.thread) {
            let mut state = self.state.borrow_mut();
            let shared = &mut *state;
            shared.engine.shut_down(engine_ms(), &mut shared.out);
        }
    }

    /// Whether a waiting request may begin while `active` streams hold a credit.
    pub(crate) fn may_start(&self, active: usize) -> bool {
        let is_gone = self.state.borrow().is_gone;
        !self.waiting.is_empty() && !is_gone && active + self.spawned.len() < self.active
    }

    /// Raises the number of streams that may hold a credit, because a waiting stream has ended.
    pub(crate) fn note_end(&mut self) {
        let most = self.settings().engine.max_streams as usize;
        self.active = (self.active * 2).min(most.max(FIRST_ACTIVE));
    }

    /// Whether no request waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.spawned.is_empty()
    }

    /// Drops the waiting requests of a connection that is broken.
    pub(crate) fn drop_waiting(&mut self) {
        while let Some(waiting) = self.waiting.pop_front() {
            let stream = waiting.request.stream;
            self.serving.give(waiting.request);
            self.state.borrow_mut().close(stream);
        }
    }

    /// Whether the unsent frames are large enough to be sent now.
    pub(crate) fn has_much(&self) -> bool {
        self.state.borrow().unsent() >= MOST_UNSENT / 2
    }

    /// Serves the most urgent waiting request. A request that becomes a future takes the credit.
    /// Returns the work of the request in units of a plain request, beyond the first one.
    pub(crate) fn start_next(&mut self, credit: &mut Option<Credit>) -> u32 {
        let Some(waiting) = self.waiting.pop_front() else { return 0 };
        let Waiting { mut request, refusal, started_us, .. } = waiting;
        let (serving, stream) = (Rc::clone(&self.serving), request.stream);
        let addressed = match refusal {
            Some(refusal) => Err(*refusal),
            None => serving.site.address(&mut request),
        };
        let begun = serving.begin(&self.connection, &request, started_us);
        request.shed = serving.shedding.get();
        let has_body = request.head.length != BodyLength::None;
        let (served, head) = match addressed {
            Err(refusal) => serving.refuse(request, &refusal),
            Ok(()) if has_body && !request.shed => {
                self.spawn(stream, Begin::Request(request, begun), credit.take());
                return 0;
            }
            Ok(()) => serving.serve(request, &self.connection),
        };
        match served {
            Served::Later(pending) => {
                self.spawn(stream, Begin::Pending(pending, begun, head), credit.take());
                0
            }
            Served::Now(mut request, response) => {
                drop(head);
                let work = request.work;
                serving.site.tell_all(&mut request);
                let settings = serving.site.settings(request.server);
                let thread = &serving.thread;
                let state = &self.state;
                let reply = StreamReply::new(thread, settings, state, request, response, begun);
                self.answer(stream, reply, credit);
                work
            }
        }
    }

    fn spawn(&mut self, stream: u32, begin: Begin, credit: Option<Credit>) {
        self.state.borrow_mut().open(stream);
        self.spawned.push(Spawned { stream, begin, credit });
    }

    /// Sends as much of a response as is possible without waiting.
    fn answer(&mut self, stream: u32, mut reply: StreamReply, credit: &mut Option<Credit>) {
        let written = match reply.exchange.pieces.is_stream() {
            true => Err(ErrorKind::WouldBlock.into()),
            false => reply.writer.write(&mut reply.exchange.pieces),
        };
        let is_aborted = match written {
            Ok(()) => false,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let credit = if reply.needs_credit() { credit.take() } else { None };
                return self.spawn(stream, Begin::Reply(Box::new(reply)), credit);
            }
            Err(_) => {
                self.state.borrow_mut().reset(stream, ErrorCode::InternalError);
                true
            }
        };
        // The frames are sent at the end of the turn, so `finish` takes the end of the exchange as
        // the time of the first byte.
        reply.finish(&self.serving, &mut self.connection, is_aborted);
        self.state.borrow_mut().close(stream);
    }

    /// The engine and the buffer of a connection that is to be parked.
    pub(crate) fn into_parts(mut self) -> Option<(Connection, Box<Engine>, Vec<u8>)> {
        if let Some(request) = self.next.take() {
            self.serving.give(request);
        }
        let Self { state, connection, .. } = self;
        let shared = Rc::try_unwrap(state).ok()?.into_inner();
        Some((connection, shared.engine, shared.out))
    }
}
