//! A turn of an HTTP/2 connection, the counterpart of `h1/turn.rs`: it reads, serves and sends
//! without a task, and parks the connection afterwards. Work that must wait continues as a task.

use super::session::{Session, engine_ms};
use super::task::SessionTask;
use crate::h1::turn::Budget;
use crate::serving::Serving;
use crate::site::ConnectionSite;
use crate::transport::linger::linger;
use crate::transport::link::{Inbox, Link};
use crate::transport::parked::Connection;
use crate::transport::{Received, Transport};
use evenkeel_message::{BodyLength, Name, Request, Version};
use evenkeel_proto::h2::{Engine, EngineSettings, PREFACE, settings_of_field};
use evenkeel_sys::dispatch::{Outcome, ParkReason};
use std::io::ErrorKind;
use std::rc::Rc;

/// How many bytes identify a preface: `PRI` is not a method of HTTP/1 (RFC 9113, section 3.4).
const KNOWN_PREFACE: usize = 4;

/// The response to a request for an upgrade to HTTP/2.
const SWITCHING: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n";

/// A request of HTTP/1.1 that asks for an upgrade to HTTP/2.
pub(crate) struct Upgrade {
    pub(crate) request: Box<Request>,
    /// When its first byte came, on the monotonic clock in microseconds.
    pub(crate) started_us: u64,
    /// The payload of the client's SETTINGS.
    pub(crate) settings: Vec<u8>,
}

/// Converts a request of HTTP/1.1 to one of HTTP/2: removes its connection-specific fields
/// (h2_request.c: h2_request_rcreate).
fn translate(request: &mut Request) {
    let head = request.head.receive();
    head.version = Version::Http2;
    head.line.truncate(head.target.1);
    head.line.extend_from_slice(b" HTTP/2.0");
    for name in [Name::Upgrade, Name::Connection, Name::KeepAlive, Name::ProxyConnection] {
        head.fields.remove(name);
    }
    head.fields.remove("HTTP2-Settings");
}

/// The input at the beginning of a turn.
pub(crate) struct Arrived {
    /// Where the bytes that were read begin in the buffer.
    pub(crate) at: usize,
    /// Where they end.
    pub(crate) count: usize,
    /// Whether the socket may have more bytes to read.
    pub(crate) more: bool,
    /// The peer has closed its side.
    pub(crate) hangup: bool,
}

impl<S: ConnectionSite> Serving<S> {
    /// Whether the connection speaks HTTP/2 from its first byte on: the TLS handshake has
    /// negotiated it, or the first bytes are the preface and H2Direct allows that.
    pub(crate) fn speaks_h2(&self, connection: &Connection, first: &[u8]) -> bool {
        let facts = connection.secure.as_ref();
        if facts.is_some_and(|facts| facts.protocol.as_deref() == Some(b"h2")) {
            return true;
        }
        let http2 = &self.site.settings(connection.server as usize).http2;
        let is_direct = if facts.is_some() { http2.is_direct_secure } else { http2.is_direct };
        let known = first.len().min(PREFACE.len());
        is_direct && known >= KNOWN_PREFACE && first.get(..known) == PREFACE.get(..known)
    }

    /// The engine of a new connection, and a buffer with the server's preface.
    fn engine(&self, connection: &Connection) -> (Box<Engine>, Vec<u8>) {
        let mut out = self.thread.take_frames();
        let settings = self.site.settings(connection.server as usize);
        let settings =
            EngineSettings { is_secure: connection.secure.is_some(), ..settings.http2.engine };
        (Box::new(Engine::new(settings, engine_ms(), &mut out)), out)
    }

    /// Begins a connection of HTTP/2 with a turn.
    pub(crate) fn begin_h2(
        self: &Rc<Self>,
        transport: Transport,
        connection: Connection,
        buffer: &mut [u8],
        arrived: Arrived,
        budget: Budget<'_>,
    ) -> Outcome {
        let (engine, out) = self.engine(&connection);
        let session = Session::new(self, connection, engine, out);
        self.turn_h2(transport, session, buffer, arrived, budget)
    }

    /// Begins a connection of HTTP/2 as a task, before any byte was received.
    pub(crate) fn wait_for_h2(
        self: &Rc<Self>,
        transport: Transport,
        connection: Connection,
    ) -> Outcome {
        let (engine, out) = self.engine(&connection);
        let session = Session::new(self, connection, engine, out);
        SessionTask::go_on(session, Link::new(&self.thread, transport, Inbox::default(), false))
    }

    /// The client's settings if a request of HTTP/1.1 in clear text asks for an upgrade to HTTP/2
    /// (RFC 7540, section 3.2). A request with a body is answered in HTTP/1.1.
    pub(crate) fn asks_for_h2(
        &self,
        connection: &Connection,
        request: &Request,
    ) -> Option<Vec<u8>> {
        let head = &request.head;
        if !head.fields.contains(Name::Upgrade) || connection.secure.is_some() {
            return None;
        }
        let has = |name: Name, token: &[u8]| {
            head.fields.tokens(name).any(|one| one.eq_ignore_ascii_case(token))
        };
        let is_upgradable = self.site.settings(connection.server as usize).http2.is_upgradable;
        let asks = is_upgradable
            && head.version == Version::Http11
            && head.length == BodyLength::None
            && has(Name::Upgrade, b"h2c")
            && has(Name::Connection, b"upgrade")
            && has(Name::Connection, b"http2-settings");
        let mut fields = head.fields.all("HTTP2-Settings");
        match (fields.next(), fields.next()) {
            (Some(field), None) if asks => settings_of_field(field),
            _ => None,
        }
    }

    /// Switches to HTTP/2 after a request of HTTP/1.1 that has asked for it.
    pub(crate) fn upgrade_to_h2(
        self: &Rc<Self>,
        mut transport: Transport,
        connection: Connection,
        inbox: Inbox,
        more: bool,
        upgrade: Upgrade,
    ) -> Outcome {
        let Upgrade { mut request, started_us, settings } = upgrade;
        let (mut engine, mut out) = self.engine(&connection);
        // The server's preface follows the answer in HTTP/1.1.
        out.splice(0..0, SWITCHING.iter().copied());
        if engine.upgrade(&request.head, &settings).is_err() {
            self.give(request);
            return Outcome::Closed;
        }
        translate(&mut request);
        let mut session = Session::new(self, connection, engine, out);
        session.begin_with(request, started_us);
        let sent = transport.channel().and_then(|mut channel| {
            let mut state = session.state.borrow_mut();
            state.send(&mut channel)
        });
        match sent {
            Err(error) if error.kind() != ErrorKind::WouldBlock => self.give_up(session),
            _ => SessionTask::go_on(session, Link::new(&self.thread, transport, inbox, more)),
        }
    }

    /// Runs a turn of a connection that was parked.
    pub(crate) fn resume_h2(
        self: &Rc<Self>,
        transport: Transport,
        connection: Connection,
        engine: Box<Engine>,
        buffer: &mut [u8],
        hangup: bool,
        budget: Budget<'_>,
    ) -> Outcome {
        let session = Session::new(self, connection, engine, self.thread.take_frames());
        let arrived = Arrived { at: 0, count: 0, more: true, hangup };
        self.turn_h2(transport, session, buffer, arrived, budget)
    }

    fn turn_h2(
        self: &Rc<Self>,
        mut transport: Transport,
        mut session: Session<S>,
        buffer: &mut [u8],
        arrived: Arrived,
        mut budget: Budget<'_>,
    ) -> Outcome {
        let Arrived { mut at, mut count, mut more, hangup } = arrived;
        loop {
            session.take(buffer.get(at..count).unwrap_or_default());
            if !self.serve_h2(&mut transport, &mut session, &mut budget) {
                return self.give_up(session);
            }
            let enough = *budget.requests_left == 0 || session.state.borrow().is_gone;
            if !more || enough || !session.is_quiet() || session.has_much() {
                break;
            }
            match transport.receive(buffer) {
                Ok(Received { count: 0, .. }) => return self.give_up(session),
                Ok(received) => {
                    (at, count) = (0, received.count);
                    more = received.more || hangup;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    more = false;
                    break;
                }
                Err(_) => return self.give_up(session),
            }
        }
        session.heed_end();
        let sent = transport.channel().and_then(|mut channel| {
            let mut state = session.state.borrow_mut();
            state.send(&mut channel)
        });
        match sent {
            Ok(()) if !more && session.is_quiet() => {
                let state = session.state.borrow();
                let is_over = state.engine.is_over();
                let has_partial = state.engine.has_partial() || transport.has_partial();
                let rests = state.engine.has_no_streams() && !has_partial;
                let is_ending = session.connection.is_over(&self.thread);
                drop(state);
                if is_over {
                    return self.end_h2(transport, session);
                }
                if rests && !is_ending && !transport.has_unsent() {
                    return self.rest_h2(transport, session);
                }
            }
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return self.give_up(session),
        }
        SessionTask::go_on(session, Link::new(&self.thread, transport, Inbox::default(), more))
    }

    /// Serves waiting requests as far as the credits and the turn's budget allow. False if the
    /// connection is broken.
    fn serve_h2(
        &self,
        transport: &mut Transport,
        session: &mut Session<S>,
        budget: &mut Budget<'_>,
    ) -> bool {
        while *budget.requests_left > 0 && session.may_start(0) {
            if budget.credit.is_none() && !self.shedding.get() {
                *budget.credit = self.thread.place.gate.take();
                if budget.credit.is_none() {
                    return true;
                }
            }
            let work = session.start_next(budget.credit);
            *budget.requests_left = budget.requests_left.saturating_sub(work.saturating_add(1));
            if session.has_much() {
                let sent = transport
                    .channel()
                    .and_then(|mut channel| session.state.borrow_mut().send(&mut channel));
                match sent {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                    Err(_) => return false,
                }
            }
        }
        true
    }

    /// Drops the session of a broken connection. None of its streams is a future yet.
    fn give_up(&self, mut session: Session<S>) -> Outcome {
        session.state.borrow_mut().leave();
        session.drop_waiting();
        if !session.is_quiet() {
            // The futures of requests that have begun record them.
            return SessionTask::go_on(session, Link::gone(&self.thread));
        }
        if let Some((_, _, out)) = session.into_parts() {
            self.thread.give_frames(out);
        }
        Outcome::Closed
    }

    /// Parks a connection.
    pub(crate) fn rest_h2(&self, mut transport: Transport, session: Session<S>) -> Outcome {
        let Some((connection, mut engine, out)) = session.into_parts() else {
            return Outcome::Closed;
        };
        self.thread.give_frames(out);
        engine.pack();
        let settings = self.site.settings(connection.server as usize);
        let (reason, timeout_ms) = match engine.has_begun() {
            true => (ParkReason::KeepAlive, settings.keep_alive.timeout_ms),
            false => {
                let time = settings.header_time;
                let first_ms = time.map_or(settings.timeout_ms, |time| time.initial_ms);
                (ParkReason::FirstRequest, first_ms)
            }
        };
        transport.keep(engine);
        let most = i32::MAX.cast_unsigned();
        let timeout_ms = u32::try_from(timeout_ms).map_or(most, |ms| ms.min(most));
        transport.park(reason, timeout_ms, &connection)
    }

    /// Ends a connection whose last frame was sent.
    pub(crate) fn end_h2(&self, transport: Transport, session: Session<S>) -> Outcome {
        let Some((connection, _, out)) = session.into_parts() else { return Outcome::Closed };
        self.thread.give_frames(out);
        linger(transport, connection)
    }
}
