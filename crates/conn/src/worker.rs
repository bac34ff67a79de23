//! The serving function of one thread. A socket comes in with the reason why it is its turn;
//! what can be answered at once is read, served and sent here without a task, request after
//! request, and what must wait goes on as a task.

use crate::connection::{Connection, Introduction};
use crate::introduction::{self, Introduced};
use crate::link::Inbox;
use crate::output::Progress;
use crate::reply::{Begun, Reply};
use crate::shown;
use crate::site::{Done, Served, Site};
use crate::task::{self, Begin};
use crate::thread::{Thread, Workplace};
use evenkeel_message::{
    BodyLength, Level, Notice, Peer, Request, RequestHead, Response, Status, Transfer,
};
use evenkeel_proto::{Exchange, HeadParser, Next, Parsed, Refusal};
use evenkeel_scoreboard::{Credit, SlotGuard};
use evenkeel_sys::clock;
use evenkeel_sys::dispatch::{Outcome, ParkReason, ParkRequest, ReadyEvent};
use evenkeel_sys::idle_table::ParkedState;
use evenkeel_sys::socket::Socket;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// How long a lingering connection waits for the client's end after it last sent something, and
/// in all (Apache: SECONDS_TO_LINGER 2, MAX_SECS_TO_LINGER 30).
const LINGER_MS: u32 = 2_000;
const LINGER_MOST_MS: u16 = 30_000;

/// How many requests that one client sent ahead are answered before the others get their turn.
const MOST_AT_ONCE: usize = 64;

/// How often a lingering client's bytes are read before the others get their turn.
const LINGER_READS: usize = 16;

/// How many requests a thread keeps for their memory: where thousands wait, they begin and end in
/// bursts of hundreds. One that takes more bytes is not kept.
const SPARES: usize = 1024;
const SPARE_BYTES: usize = 8 << 10;

/// Serves the connections of one thread.
pub struct Worker<S>(pub(crate) Rc<Inner<S>>);

/// What a worker and its tasks share.
pub(crate) struct Inner<S> {
    pub(crate) thread: Rc<Thread>,
    pub(crate) site: S,
    /// Requests that are over, for their memory.
    #[expect(clippy::vec_box, reason = "they come and go as boxes")]
    spare: RefCell<Vec<Box<Request>>>,
    /// What the request at hand has taken of the thread's turn beyond its own place in it.
    work: Cell<u32>,
    /// Whether the requests of the connection at hand are turned away.
    shedding: Cell<bool>,
}

/// What one request has led to.
enum Step {
    /// It was answered; it took so many bytes.
    Answered(usize),
    /// It was answered and the connection is at its end; `linger` where the client may still be
    /// sending.
    Ends { linger: bool },
    /// It goes on in a task, which has the bytes behind so many.
    Task(Begin, usize),
}

impl<S: Site> Worker<S> {
    /// A worker for a site at its place in a child.
    #[must_use]
    pub fn new(site: S, place: Workplace) -> Self {
        let thread = Rc::new(Thread::new(place));
        let (spare, work, shedding) = (RefCell::default(), Cell::new(0), Cell::new(false));
        Self(Rc::new(Inner { thread, site, spare, work, shedding }))
    }

    /// The site that is served.
    #[must_use]
    pub fn site(&self) -> &S {
        &self.0.site
    }

    /// Says whether connections are closed with their next response.
    pub fn retire(&mut self, retiring: bool) {
        self.0.thread.retiring.set(retiring);
    }

    /// Says whether connections that have had their turn are closed with their next response.
    pub fn set_contended(&mut self, contended: bool) {
        self.0.thread.contended.set(contended);
    }

    /// Comes about once a second.
    pub fn tick(&mut self) {
        self.0.thread.set_clock();
        self.0.site.tick();
    }

    /// Whether the next tick has something to do, though nothing is served until then.
    #[must_use]
    pub fn awaits_tick(&self) -> bool {
        self.0.site.awaits_tick()
    }

    /// Whether the site lets a request begin now.
    #[must_use]
    pub fn may_begin(&self) -> bool {
        self.0.site.may_begin()
    }

    /// Serves a socket as far as that goes without waiting. A request that must wait takes
    /// `hand` along; each takes one off `allowance`, which is how many may still be answered
    /// before others get their turn, and more where it was much work. A panic, wherever it comes
    /// from, closes this socket and is logged.
    pub fn serve(
        &mut self,
        socket: Socket,
        event: ReadyEvent,
        hand: &mut Option<Credit>,
        allowance: &mut u32,
    ) -> Outcome {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut peer = Peer { client: unknown, local: unknown };
        let share = Share { hand, allowance };
        let turned =
            catch_unwind(AssertUnwindSafe(|| self.0.take_turn(socket, event, share, &mut peer)));
        turned.unwrap_or_else(|panic| self.0.close_after_panic(&*panic, &peer))
    }

    /// Serves a socket as [`Worker::serve`] does, without a credit: its requests are turned away,
    /// but for those that tell how the server is.
    pub fn shed(&mut self, socket: Socket, event: ReadyEvent, allowance: &mut u32) -> Outcome {
        self.0.shedding.set(true);
        let outcome = self.serve(socket, event, &mut None, allowance);
        self.0.shedding.set(false);
        outcome
    }

    /// Closes a connection that has rested, on which no request has come; `late` where its time
    /// is over.
    pub fn expire(&mut self, socket: Socket, reason: ParkReason, state: ParkedState, late: bool) {
        drop(socket);
        let inner = &self.0;
        let Some(connection) = Connection::from_parked_state(state, &inner.thread.addresses) else {
            return;
        };
        if late && reason == ParkReason::FirstRequest && !inner.thread.retiring.get() {
            let noted = catch_unwind(AssertUnwindSafe(|| inner.note_expired(&connection)));
            if let Err(panic) = noted {
                inner.close_after_panic(&*panic, &connection.peer);
            }
        }
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

/// What a connection's turn may use of its thread's.
struct Share<'a> {
    hand: &'a mut Option<Credit>,
    allowance: &'a mut u32,
}

/// What a request took of the bytes that came.
#[derive(Clone, Copy)]
struct Taken {
    used: usize,
    /// How many came behind it.
    left: usize,
    /// It has a body that nobody reads.
    unread: bool,
}

impl<S: Site> Inner<S> {
    /// One turn of a connection; `peer` learns who it is.
    fn take_turn(
        self: &Rc<Self>,
        socket: Socket,
        event: ReadyEvent,
        share: Share<'_>,
        peer: &mut Peer,
    ) -> Outcome {
        let thread = &self.thread;
        let (connection, reason, hangup) = match event {
            ReadyEvent::Accepted { client, listener } => {
                peer.client = client;
                (self.accept(&socket, client, listener), ParkReason::FirstRequest, false)
            }
            ReadyEvent::Readable { reason, state, hangup } => {
                (Connection::from_parked_state(state, &thread.addresses), reason, hangup)
            }
        };
        let Some(mut connection) = connection else { return Outcome::Closed };
        *peer = connection.peer;
        if let Introduction::Made(proxy) = &mut connection.introduction {
            *proxy = socket.peer_address().ok();
        }
        if reason == ParkReason::LingeringClose {
            return linger_on(socket, connection);
        }
        let mut buffer = thread.take_buffer();
        let outcome = self.read(socket, connection, &mut buffer, hangup, share);
        thread.give_buffer(buffer);
        outcome
    }

    fn accept(&self, socket: &Socket, client: SocketAddr, port: usize) -> Option<Connection> {
        let thread = &self.thread;
        let bound = thread.place.ports.get(port).copied();
        let local = match bound.filter(|address| !address.ip().is_unspecified()) {
            Some(address) => address,
            None => socket.local_address().ok()?,
        };
        let index = thread.addresses.index(local)?;
        let ip = client.ip().to_canonical();
        let introduction = match self.site.awaits_proxy_header(local, ip) {
            true => Introduction::Awaited,
            false => Introduction::None,
        };
        Some(Connection {
            peer: Peer { client, local },
            local: index,
            server: u32::try_from(self.site.server_of(local)).unwrap_or(0),
            keepalives: 0,
            kibibytes: 0,
            since_ms: now_ms(),
            is_told: false,
            introduction,
        })
    }

    /// Reads and answers until nothing more has come. What a client sends ahead of so many answers
    /// goes on as a task, which lets the others in between.
    fn read(
        self: &Rc<Self>,
        socket: Socket,
        mut connection: Connection,
        buffer: &mut [u8],
        hangup: bool,
        share: Share<'_>,
    ) -> Outcome {
        let mut answered = 0;
        loop {
            let count = match socket.receive(buffer) {
                Ok(0) => return Outcome::Closed,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.rest(socket, &connection);
                }
                Err(_) => return Outcome::Closed,
            };
            let more = count == buffer.len() || hangup;
            let mut at = 0;
            if connection.introduction == Introduction::Awaited {
                let bytes = buffer.get(..count).unwrap_or_default();
                match introduction::make(self, &mut connection, bytes) {
                    Introduced::Known(used) => at = used,
                    Introduced::Not => return Outcome::Closed,
                    Introduced::Partly => {
                        let request = self.request(&connection);
                        let (parser, started_us) = (HeadParser::new(), clock::monotonic_us());
                        let begin = Begin::Head(task::Reading { request, parser, started_us });
                        let inbox = Inbox::new(bytes);
                        return task::go_on(self, socket, connection, inbox, more, begin, None);
                    }
                }
            }
            while at < count {
                let bytes = buffer.get(at..count).unwrap_or_default();
                let step = self.answer(&socket, &mut connection, bytes, answered > 0);
                let taken = self.work.take().saturating_add(1);
                *share.allowance = share.allowance.saturating_sub(taken);
                match step {
                    Step::Answered(used) => {
                        at += used;
                        answered += 1;
                    }
                    Step::Ends { linger: false } => return Outcome::Closed,
                    Step::Ends { linger: true } => return linger(socket, connection),
                    Step::Task(begin, used) => {
                        let inbox = Inbox::new(bytes.get(used..).unwrap_or_default());
                        let credit = if begin.needs_credit() { share.hand.take() } else { None };
                        return task::go_on(self, socket, connection, inbox, more, begin, credit);
                    }
                }
                let enough = answered >= MOST_AT_ONCE || *share.allowance == 0;
                if enough && (more || at < count) {
                    let inbox = Inbox::new(buffer.get(at..count).unwrap_or_default());
                    let begin = Begin::Next;
                    return task::go_on(self, socket, connection, inbox, more, begin, None);
                }
            }
            // A read that filled the buffer may have left something, and one before the end of
            // the stream has not seen that.
            if !more {
                return self.rest(socket, &connection);
            }
        }
    }

    /// Lets the connection rest until its next request.
    pub(crate) fn rest(&self, socket: Socket, connection: &Connection) -> Outcome {
        let settings = self.site.settings(connection.server as usize);
        let (reason, timeout_ms) = if connection.keepalives == 0 {
            let time = settings.header_time;
            (ParkReason::FirstRequest, time.map_or(settings.timeout_ms, |time| time.initial_ms))
        } else {
            (ParkReason::KeepAlive, settings.keep_alive.timeout_ms)
        };
        let timeout_ms = u32::try_from(timeout_ms)
            .map_or(i32::MAX.cast_unsigned(), |ms| ms.min(i32::MAX.cast_unsigned()));
        Outcome::Park(
            socket,
            ParkRequest { reason, timeout_ms, state: connection.to_parked_state() },
        )
    }

    /// Answers the request at the front of `bytes`, if it is whole and can be answered now.
    /// `follows` tells that the bytes came behind a request that has just been answered: empty
    /// lines are its clumsy end there (Apache: `check_pipeline`), elsewhere they begin a request,
    /// so that its time and the bound on empty lines hold for them all.
    fn answer(
        self: &Rc<Self>,
        socket: &Socket,
        connection: &mut Connection,
        bytes: &[u8],
        follows: bool,
    ) -> Step {
        let mut request = self.request(connection);
        let started_us = clock::monotonic_us();
        request.time_us = self.thread.day_us(started_us);
        let settings = self.site.settings(connection.server as usize);
        let mut parser = HeadParser::new();
        let parsed =
            parser.parse(request.head.receive(), bytes, &settings.limits, &settings.options);
        let used = match parsed {
            Ok(Parsed::Complete(used)) => used,
            Ok(Parsed::Partial) if follows && !parser.is_started() => {
                self.give(request);
                return Step::Answered(bytes.len());
            }
            Ok(Parsed::Partial) => {
                // The task reads from the beginning, of a copy of these bytes.
                request.head.receive().clear();
                let parser = HeadParser::new();
                let begin = Begin::Head(task::Reading { request, parser, started_us });
                return Step::Task(begin, 0);
            }
            Err(refusal) => {
                let begun = self.begin(connection, &request, started_us);
                let served = self.refuse(request, &refusal);
                let taken = Taken { used: bytes.len(), left: 1, unread: false };
                return self.conclude(socket, connection, served, begun, taken, bytes);
            }
        };
        let addressed = self.site.address(&mut request);
        let mut begun = self.begin(connection, &request, started_us);
        begun.life.head_read(request.head.length);
        let head = bytes.get(..used).unwrap_or_default();
        let unread = request.head.length != BodyLength::None;
        request.shed = self.shedding.get();
        let served = match addressed {
            Err(refusal) => self.refuse(request, &refusal),
            Ok(()) if unread && !request.shed => {
                return Step::Task(Begin::Request(request, begun, head.into()), used);
            }
            Ok(()) => self.serve(request, || head, connection),
        };
        let taken = Taken { used, left: bytes.len() - used, unread };
        self.conclude(socket, connection, served, begun, taken, head)
    }

    /// Sends what was served, as far as that goes now.
    fn conclude(
        self: &Rc<Self>,
        socket: &Socket,
        connection: &mut Connection,
        served: Served,
        begun: Begun,
        taken: Taken,
        head: &[u8],
    ) -> Step {
        let Taken { used, left, unread } = taken;
        let (mut request, response) = match served {
            Served::Later(pending) => {
                return Step::Task(Begin::Pending(pending, begun, head.into()), used);
            }
            Served::Now(request, response) => (request, response),
        };
        self.work.set(request.work);
        self.site.tell_all(&mut request);
        let settings = self.site.settings(request.server);
        let ends = self.thread.ends(connection);
        let mut reply = Reply::new(&self.thread, settings, ends, request, response, begun, unread);
        if reply.output.is_stream() {
            return Step::Task(Begin::Reply(Box::new(reply)), used);
        }
        match reply.output.send(socket) {
            Ok(Progress::Sent) => {}
            Ok(Progress::More) => return Step::Task(Begin::Reply(Box::new(reply)), used),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Step::Task(Begin::Reply(Box::new(reply)), used);
            }
            Err(_) => {
                // The client must be able to tell that this was not all.
                socket.reset_on_close();
                reply.finish(&self.site, &self.thread, connection, true);
                self.give(reply.into_request());
                return Step::Ends { linger: false };
            }
        }
        let next = reply.finish(&self.site, &self.thread, connection, false);
        let request = reply.into_request();
        let step = match next {
            Next::Reuse => Step::Answered(used),
            Next::Linger | Next::Drain | Next::Wait => {
                Step::Ends { linger: left > 0 || !Reply::client_ends(&request) }
            }
            Next::Abort => Step::Ends { linger: false },
        };
        self.give(request);
        step
    }

    /// A request for the next head, made of the memory of one that is over.
    pub(crate) fn request(&self, connection: &Connection) -> Box<Request> {
        let spare = self.spare.borrow_mut().pop();
        let mut request = spare
            .unwrap_or_else(|| Box::new(Request::new(RequestHead::default(), connection.peer, 0)));
        request.peer = connection.peer;
        introduction::note(&mut request, connection);
        request.keepalives = connection.keepalives;
        request.told.connection = connection.is_told;
        request.server = connection.server as usize;
        request
    }

    /// Takes a request back for its memory.
    pub(crate) fn give(&self, mut request: Box<Request>) {
        // What it refers to must not outlive the exchange.
        request.renew(request.peer, 0);
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARES && request.memory() <= SPARE_BYTES {
            spare.push(request);
        }
    }

    /// Begins an exchange and shows its request on the status page.
    pub(crate) fn begin(
        &self,
        connection: &Connection,
        request: &Request,
        started_us: u64,
    ) -> Begun {
        let slot = self.show(connection, request);
        let departure = Rc::clone(&request.departure);
        departure.require_permit();
        Begun { started_us, slot, life: Exchange::new(), departure }
    }

    /// Shows a request on the status page.
    pub(crate) fn show(&self, connection: &Connection, request: &Request) -> Option<SlotGuard> {
        let of = (self.site.settings(request.server), self.site.name(request.server));
        shown::show(&self.thread, of, connection, request)
    }

    /// Runs the phases. A panic in them costs this request a 500; `head` gives its bytes, from
    /// which it is read once more for that.
    pub(crate) fn serve<'a>(
        &self,
        request: Box<Request>,
        head: impl FnOnce() -> &'a [u8],
        connection: &Connection,
    ) -> Served {
        match catch_unwind(AssertUnwindSafe(|| self.site.serve(request))) {
            Ok(served) => served,
            Err(panic) => self.after_panic(&*panic, head(), connection),
        }
    }

    /// Tells of a panic that a connection cannot go on after.
    pub(crate) fn close_after_panic(&self, panic: &(dyn Any + Send), peer: &Peer) -> Outcome {
        let text = format!("serving a connection panicked: {}", said(panic));
        let notice = Notice::own("core", Level::Crit, text);
        // Should the log itself be what panics, the connection is closed all the same.
        let _ = catch_unwind(AssertUnwindSafe(|| self.site.tell(&notice, peer)));
        Outcome::Closed
    }

    /// The answer after a panic.
    pub(crate) fn after_panic(
        &self,
        panic: &(dyn Any + Send),
        head: &[u8],
        connection: &Connection,
    ) -> Served {
        let text = format!("serving a request panicked: {}", said(panic));
        let mut request = self.request(connection);
        request.time_us = self.thread.day_us(clock::monotonic_us());
        let settings = self.site.settings(connection.server as usize);
        let parsed = HeadParser::new().parse(
            request.head.receive(),
            head,
            &settings.limits,
            &settings.options,
        );
        if parsed.is_ok() {
            let _ = self.site.address(&mut request);
        }
        request.notify(Notice::own("core", Level::Crit, text));
        let copy = || Box::new(Request::new(RequestHead::default(), connection.peer, 0));
        let refused = catch_unwind(AssertUnwindSafe(|| {
            self.site.refuse(request, Status::INTERNAL_SERVER_ERROR)
        }));
        refused.unwrap_or_else(|_| {
            // The error page panicked too: the bare status has to do.
            Served::Now(copy(), Response::new(Status::INTERNAL_SERVER_ERROR))
        })
    }

    /// The answer to a request that is refused for its form.
    pub(crate) fn refuse(&self, mut request: Box<Request>, refusal: &Refusal) -> Served {
        request.notify(refusal.notice.clone());
        if !refusal.detail.is_empty() {
            request.resource.notes.set("error-notes", refusal.detail);
        }
        let peer = request.peer;
        let refused = catch_unwind(AssertUnwindSafe(|| self.site.refuse(request, refusal.status)));
        refused.unwrap_or_else(|_| {
            let request = Box::new(Request::new(RequestHead::default(), peer, 0));
            Served::Now(request, Response::new(refusal.status))
        })
    }

    /// A first request that never came is logged and not answered (Apache: ap_read_request); a
    /// kept connection that is not used any more is nothing to speak of.
    fn note_expired(&self, connection: &Connection) {
        let mut request = self.request(connection);
        request.time_us = self.thread.day_us(clock::monotonic_us());
        self.note_timeout(connection, request, 0);
    }

    /// Logs a request whose line did not come in time.
    pub(crate) fn note_timeout(
        &self,
        connection: &Connection,
        mut request: Box<Request>,
        duration_us: u64,
    ) {
        let notice = Notice::new("reqtimeout", Level::Info, 1382, "Request header read timeout");
        request.told.connection = self.site.tell(&notice, &connection.peer);
        let response = Response::new(Status::REQUEST_TIMEOUT);
        let transfer = Transfer { duration_us, aborted: true, ..Transfer::default() };
        self.site.record(&Done {
            request: &request,
            response: &response,
            transfer: &transfer,
            framing: evenkeel_proto::Transfer::Nothing,
            persistence: evenkeel_proto::Persistence::Close,
            keep_alive: false,
        });
        self.give(request);
    }
}

/// Ends our side and waits for the client's end, so that it reads the response before it learns
/// that nothing more is read (RFC 9112, section 9.6).
pub(crate) fn linger(socket: Socket, mut connection: Connection) -> Outcome {
    if socket.shutdown_write().is_err() {
        return Outcome::Closed;
    }
    connection.since_ms = now_ms();
    linger_on(socket, connection)
}

/// Reads away what a lingering client sends. One that sends faster than this reads goes on as a
/// task, which lets the others in between: to close the socket with bytes unread would reset the
/// connection, and the client might lose the response.
fn linger_on(socket: Socket, connection: Connection) -> Outcome {
    match waste(&socket, connection) {
        Waste::End => Outcome::Closed,
        Waste::Nothing(left_ms) => {
            let (timeout_ms, state) = (LINGER_MS.min(left_ms), connection.to_parked_state());
            Outcome::Park(
                socket,
                ParkRequest { reason: ParkReason::LingeringClose, timeout_ms, state },
            )
        }
        Waste::More => Outcome::Task(Box::pin(async move {
            tokio::task::yield_now().await;
            linger_on(socket, connection)
        })),
    }
}

/// What a lingering client has sent.
enum Waste {
    /// Its end, or its time is over.
    End,
    /// Nothing more by now; it has so many milliseconds left.
    Nothing(u32),
    /// More than is read at once.
    More,
}

fn waste(socket: &Socket, connection: Connection) -> Waste {
    let gone_ms = now_ms().wrapping_sub(connection.since_ms);
    let left_ms = u32::from(LINGER_MOST_MS.saturating_sub(gone_ms));
    if left_ms == 0 {
        return Waste::End;
    }
    let mut bytes = [0_u8; 4096];
    for _ in 0..LINGER_READS {
        match socket.receive(&mut bytes) {
            Ok(0) => return Waste::End,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Waste::Nothing(left_ms),
            Err(_) => return Waste::End,
        }
    }
    Waste::More
}

/// A clock for connections: milliseconds, wrapping after a minute.
pub(crate) fn now_ms() -> u16 {
    (clock::monotonic_coarse_us() / 1000) as u16
}
