//! The serving function of one thread. A socket comes in with the reason why it is its turn;
//! what can be answered at once is read, served and sent here without a task, request after
//! request, and what must wait goes on as a task.

use crate::exchange::Begun;
use crate::exchange::pieces::Progress;
use crate::h1::handshake;
use crate::h1::head::Reading;
use crate::h1::reply::{After, Reply};
use crate::h1::task::{self, Begin};
use crate::h2::start::{Arrived, Upgrade};
use crate::serving::Serving;
use crate::site::ConnectionSite;
use crate::transport::linger::{linger, linger_on};
use crate::transport::link::Inbox;
use crate::transport::parked::{Connection, Introduction, now_ms};
use crate::transport::proxy_header::{self, Introduced};
use crate::transport::tls::Tls;
use crate::transport::{Received, Transport};
use evenkeel_message::Served;
use evenkeel_message::{BodyLength, Level, Notice, Peer, ReceivedHead, Status};
use evenkeel_proto::{Lifecycle, Parsed, Refusal};
use evenkeel_scoreboard::Credit;
use evenkeel_sys::dispatch::{Outcome, ParkReason, ReadyEvent};
use evenkeel_sys::socket::Socket;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;

/// How many requests that one client sent ahead are answered before the others get their turn.
const MOST_AT_ONCE: usize = 64;

/// The most that a handshake of TLS may take: the clock of a connection wraps after a minute.
const MOST_HANDSHAKE_MS: u64 = 60_000;

/// The request that stands for the bytes of a client that speaks HTTP to a port of TLS
/// (ssl_engine_io.c: HTTP_ON_HTTPS_PORT).
const HTTP_ON_TLS: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

/// What such a client is told (ssl_engine_kernel.c: ssl_hook_ReadReq).
const PLAIN_HTTP: &str = "Reason: You're speaking plain HTTP to an SSL-enabled server port.\
    <br />\n Instead use the HTTPS scheme to access this URL, please.<br />\n";

/// What one request has led to.
enum Step {
    /// It was answered and took so many bytes; the next one follows.
    Next(usize),
    /// It was answered, and the connection ends; with lingering if the client may still send.
    End { linger: bool },
    /// It was answered in part, and the connection is reset.
    Reset,
    /// It goes on in HTTP/2, with the bytes behind so many.
    Upgrade(Box<Upgrade>, usize),
    /// It goes on in a task, which gets the bytes behind so many.
    Task(Begin, usize),
}

/// Notes how far the TLS session of a connection is: the host that its handshake chose, and the
/// time that it took of the turn.
fn note_session(transport: &mut Transport, connection: &mut Connection, budget: &mut Budget<'_>) {
    let Some(tls) = transport.tls() else { return };
    let effort = tls.session().take_effort();
    *budget.requests_left = budget.requests_left.saturating_sub(effort);
    if connection.secure.is_some() {
        return;
    }
    tls.give_room();
    if let Some(facts) = tls.session().facts().cloned() {
        connection.server = u32::try_from(facts.host.index).unwrap_or(0);
        connection.secure = Some(facts);
    }
}

/// What a connection may use of its thread until others get their turn.
pub(crate) struct Budget<'a> {
    /// The credit of the thread, which a request that must wait takes.
    pub(crate) credit: &'a mut Option<Credit>,
    /// How many requests may still be answered before others get their turn.
    pub(crate) requests_left: &'a mut u32,
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

impl<S: ConnectionSite> Serving<S> {
    /// One turn of a connection; `peer` learns who it is.
    pub(crate) fn serve_event(
        self: &Rc<Self>,
        socket: Socket,
        event: ReadyEvent,
        budget: Budget<'_>,
        peer: &mut Peer,
    ) -> Outcome {
        let thread = &self.thread;
        let (connection, reason, hangup, door) = match event {
            ReadyEvent::Accepted { client, listener } => {
                peer.client = client;
                let connection = self.accept(&socket, client, listener);
                let door = connection.as_ref().and_then(|one| self.site.door(one.peer.local));
                (connection, ParkReason::FirstRequest, false, door)
            }
            ReadyEvent::Readable { reason, state, hangup } => {
                (Connection::from_parked_state(state, &thread.addresses), reason, hangup, None)
            }
        };
        let Some(mut connection) = connection else { return Outcome::Closed };
        *peer = connection.peer;
        let mut transport = match door {
            Some(door) => Transport::secure(socket, door, &thread.scratch),
            None => Transport::of(socket, &thread.scratch),
        };
        connection.secure = transport.facts();
        if let Introduction::Made(proxy) = &mut connection.introduction {
            *proxy = transport.peer_address();
        }
        if reason == ParkReason::LingeringClose {
            return linger_on(transport, connection);
        }
        let mut buffer = thread.take_buffer();
        let outcome = match transport.take_engine() {
            Some(engine) => {
                self.resume_h2(transport, connection, engine, &mut buffer, hangup, budget)
            }
            None => self.read(transport, connection, &mut buffer, hangup, budget),
        };
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
            secure: None,
        })
    }

    /// Reads and answers until nothing more has come. What a client sends ahead of so many answers
    /// goes on as a task, which lets the others in between.
    pub(crate) fn read(
        self: &Rc<Self>,
        mut transport: Transport,
        mut connection: Connection,
        buffer: &mut [u8],
        hangup: bool,
        mut budget: Budget<'_>,
    ) -> Outcome {
        let (mut answered, thread) = (0, &self.thread);
        loop {
            if !self.may_receive(&mut transport, &connection) {
                return Outcome::Closed;
            }
            let received = transport.receive(buffer);
            note_session(&mut transport, &mut connection, &mut budget);
            let received = match received {
                Ok(Received { count: 0, .. }) => {
                    transport.announce_end();
                    return Outcome::Closed;
                }
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if let Some(step) = transport.tls().and_then(Tls::take_step) {
                        let Some(pool) = &thread.place.long_steps else {
                            match transport.finish_step(step.run()) {
                                Ok(()) => continue,
                                Err(_) => return self.failed(transport, connection),
                            }
                        };
                        return match hangup {
                            true => Outcome::Closed,
                            false => handshake::go_on(self, pool, transport, connection, step),
                        };
                    }
                    let is_secure = connection.secure.is_some();
                    let is_h2 = connection.keepalives == 0 && self.speaks_h2(&connection, &[]);
                    if is_h2 && transport.has_partial() {
                        return self.wait_for_h2(transport, connection);
                    }
                    if is_secure && transport.tls().is_some_and(|tls| tls.session().has_partial()) {
                        // A record has begun to come, so that its time runs as that of a head.
                        let begin = Begin::Head(Reading::begin(self, &connection));
                        let inbox = Inbox::default();
                        return task::go_on(self, transport, connection, inbox, false, begin, None);
                    }
                    return self.rest(transport, connection);
                }
                Err(_) => return self.failed(transport, connection),
            };
            let count = received.count;
            let more = received.more || hangup;
            let mut at = 0;
            if connection.introduction == Introduction::Awaited {
                let bytes = buffer.get(..count).unwrap_or_default();
                match proxy_header::make(self, &mut connection, bytes) {
                    Introduced::Known(used) => at = used,
                    Introduced::Not => return Outcome::Closed,
                    Introduced::Partly => {
                        let begin = Begin::Head(Reading::begin(self, &connection));
                        let inbox = Inbox::new(bytes);
                        return task::go_on(self, transport, connection, inbox, more, begin, None);
                    }
                }
            }
            if connection.keepalives == 0
                && self.speaks_h2(&connection, buffer.get(at..count).unwrap_or_default())
            {
                let arrived = Arrived { at, count, more, hangup };
                return self.begin_h2(transport, connection, buffer, arrived, budget);
            }
            while at < count {
                let bytes = buffer.get(at..count).unwrap_or_default();
                let step = self.answer(&mut transport, &mut connection, bytes, answered > 0);
                let taken = self.work.take().saturating_add(1);
                *budget.requests_left = budget.requests_left.saturating_sub(taken);
                match step {
                    Step::Next(used) => {
                        at += used;
                        answered += 1;
                    }
                    Step::End { linger: false } => {
                        transport.announce_end();
                        return Outcome::Closed;
                    }
                    Step::Reset => return Outcome::Closed,
                    Step::End { linger: true } => return linger(transport, connection),
                    Step::Upgrade(upgrade, used) => {
                        let inbox = Inbox::new(bytes.get(used..).unwrap_or_default());
                        return self.upgrade_to_h2(transport, connection, inbox, more, *upgrade);
                    }
                    Step::Task(begin, used) => {
                        let inbox = Inbox::new(bytes.get(used..).unwrap_or_default());
                        let credit = if begin.needs_credit() { budget.credit.take() } else { None };
                        return task::go_on(
                            self, transport, connection, inbox, more, begin, credit,
                        );
                    }
                }
                let enough = answered >= MOST_AT_ONCE || *budget.requests_left == 0;
                if enough && (more || at < count) {
                    let inbox = Inbox::new(buffer.get(at..count).unwrap_or_default());
                    let begin = Begin::Next;
                    return task::go_on(self, transport, connection, inbox, more, begin, None);
                }
            }
            // A read that filled the buffer may have left something, and one before the end of
            // the stream has not seen that.
            if !more {
                return self.rest(transport, connection);
            }
        }
    }

    /// Whether a connection may be read. A handshake of TLS needs room, and does not begin while
    /// requests are turned away.
    fn may_receive(&self, transport: &mut Transport, connection: &Connection) -> bool {
        let Some(tls) = transport.tls() else { return true };
        if connection.secure.is_some() {
            return true;
        }
        if self.shedding.get() && tls.session().is_handshaking() {
            return false;
        }
        let may_receive = tls.take_room(&self.thread.place.handshakes);
        if !may_receive {
            let text = "TLS handshakes that have not ended keep as much as they may, this one ends";
            let notice = Notice::own("ssl", Level::Info, text.to_owned());
            self.site.tell(&notice, &connection.peer);
        }
        may_receive
    }

    /// Ends a connection that cannot be read any more. A client that speaks HTTP to a port of TLS
    /// is told so in clear text (ssl_engine_io.c: ssl_io_filter_error).
    pub(crate) fn failed(
        self: &Rc<Self>,
        mut transport: Transport,
        mut connection: Connection,
    ) -> Outcome {
        let Some(tls) = transport.tls() else { return Outcome::Closed };
        let is_plain_http = tls.is_plain_http();
        let Some(notice) = tls.take_notice() else { return Outcome::Closed };
        transport.drop_layer();
        if !is_plain_http {
            connection.is_told |= self.site.tell(&notice, &connection.peer);
            // The client has to read the alert.
            return linger(transport, connection);
        }
        let mut reading = Reading::begin(self, &connection);
        let parsed = reading.parse(self, &connection, HTTP_ON_TLS);
        let Reading { request, started_us, .. } = reading;
        let begun = self.begin(&connection, &request, started_us);
        let refusal = Refusal { status: Status::BAD_REQUEST, notice, detail: PLAIN_HTTP };
        let served = self.refuse(request, parsed.as_ref().err().unwrap_or(&refusal));
        let taken = Taken { used: 0, left: 1, unread: false };
        let begun = (begun, Lifecycle::new());
        match self.conclude(&mut transport, &mut connection, served, begun, taken) {
            Step::Task(begin, _) => {
                task::go_on(self, transport, connection, Inbox::default(), false, begin, None)
            }
            Step::Reset => Outcome::Closed,
            Step::Next(_) | Step::End { .. } | Step::Upgrade(..) => linger(transport, connection),
        }
    }

    /// How long the handshake of a connection may still take, in milliseconds.
    pub(crate) fn handshake_left_ms(&self, connection: &Connection) -> u64 {
        let settings = self.site.settings(connection.server as usize);
        let gone_ms = u64::from(now_ms().wrapping_sub(connection.since_ms));
        settings.handshake_ms.min(MOST_HANDSHAKE_MS).saturating_sub(gone_ms).max(1)
    }

    /// Lets the connection rest until its next request.
    pub(crate) fn rest(
        self: &Rc<Self>,
        mut transport: Transport,
        connection: Connection,
    ) -> Outcome {
        if transport.has_unsent() {
            if connection.keepalives == 0 && self.speaks_h2(&connection, &[]) {
                return self.wait_for_h2(transport, connection);
            }
            let inbox = Inbox::default();
            return task::go_on(self, transport, connection, inbox, false, Begin::Next, None);
        }
        let settings = self.site.settings(connection.server as usize);
        let is_handshaking = transport.tls().is_some_and(|tls| tls.session().is_handshaking());
        let (reason, timeout_ms) = if is_handshaking {
            (ParkReason::FirstRequest, self.handshake_left_ms(&connection))
        } else if connection.keepalives == 0 {
            let time = settings.header_time;
            (ParkReason::FirstRequest, time.map_or(settings.timeout_ms, |time| time.initial_ms))
        } else {
            (ParkReason::KeepAlive, settings.keep_alive.timeout_ms)
        };
        let timeout_ms = u32::try_from(timeout_ms)
            .map_or(i32::MAX.cast_unsigned(), |ms| ms.min(i32::MAX.cast_unsigned()));
        transport.park(reason, timeout_ms, &connection)
    }

    /// Answers the request at the front of `bytes`, if it is whole and can be answered now.
    /// `follows` tells that the bytes came behind a request that has just been answered: empty
    /// lines are its clumsy end there (Apache: `check_pipeline`), elsewhere they begin a request,
    /// so that its time and the bound on empty lines hold for them all.
    fn answer(
        self: &Rc<Self>,
        transport: &mut Transport,
        connection: &mut Connection,
        bytes: &[u8],
        follows: bool,
    ) -> Step {
        let mut reading = Reading::begin(self, connection);
        let used = match reading.parse(self, connection, bytes) {
            Ok(Parsed::Complete(used)) => used,
            Ok(Parsed::Partial) if follows && !reading.parser.is_started() => {
                self.give(reading.request);
                return Step::Next(bytes.len());
            }
            Ok(Parsed::Partial) => return Step::Task(Begin::Head(reading), 0),
            Err(refusal) => {
                let Reading { request, started_us, .. } = reading;
                let begun = self.begin(connection, &request, started_us);
                let served = self.refuse(request, &refusal);
                let taken = Taken { used: bytes.len(), left: 1, unread: false };
                return self.conclude(
                    transport,
                    connection,
                    served,
                    (begun, Lifecycle::new()),
                    taken,
                );
            }
        };
        let Reading { mut request, started_us, .. } = reading;
        if let Some(settings) = self.asks_for_h2(connection, &request) {
            return Step::Upgrade(Box::new(Upgrade { request, started_us, settings }), used);
        }
        let addressed = self.site.address(&mut request);
        let begun = self.begin(connection, &request, started_us);
        let mut lifecycle = Lifecycle::new();
        lifecycle.head_read(request.head.length);
        let unread = request.head.length != BodyLength::None;
        request.shed = self.shedding.get();
        let served = match addressed {
            Err(refusal) => self.refuse(request, &refusal),
            Ok(()) if unread && !request.shed => {
                return Step::Task(Begin::Request(request, begun, lifecycle), used);
            }
            Ok(()) => self.serve(request, connection),
        };
        let taken = Taken { used, left: bytes.len() - used, unread };
        self.conclude(transport, connection, served, (begun, lifecycle), taken)
    }

    /// Sends what was served, as far as that goes now.
    fn conclude(
        self: &Rc<Self>,
        transport: &mut Transport,
        connection: &mut Connection,
        (served, head): (Served, ReceivedHead),
        begun: (Begun, Lifecycle),
        taken: Taken,
    ) -> Step {
        let Taken { used, left, unread } = taken;
        let (mut request, response) = match served {
            Served::Later(pending) => {
                return Step::Task(Begin::Pending(pending, begun, head), used);
            }
            Served::Now(request, response) => (request, response),
        };
        drop(head);
        self.work.set(request.work);
        self.site.tell_all(&mut request);
        let settings = self.site.settings(request.server);
        let ends = connection.is_over(&self.thread);
        let mut reply = Reply::new(&self.thread, settings, ends, request, response, begun, unread);
        if reply.needs_task() {
            return Step::Task(Begin::Reply(Box::new(reply)), used);
        }
        let sent = transport.channel().and_then(|mut channel| reply.send(&mut channel));
        let aborted = match sent {
            Ok(Progress::Sent) => false,
            Ok(Progress::More) => return Step::Task(Begin::Reply(Box::new(reply)), used),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Step::Task(Begin::Reply(Box::new(reply)), used);
            }
            Err(_) => true,
        };
        match reply.finish(self, connection, aborted) {
            After::Next => Step::Next(used),
            After::End { client_ends } => Step::End { linger: left > 0 || !client_ends },
            After::Reset => {
                transport.reset_on_close();
                Step::Reset
            }
        }
    }
}
