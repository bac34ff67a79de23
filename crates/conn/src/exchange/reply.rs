//! From a response to the end of its exchange: head and framing are decided, the output is made,
//! and when it is sent (or was not) the exchange is recorded. Nothing here sends.

use crate::exchange::pieces::Output;
use crate::exchange::slot;
use crate::site::{Done, Settings, Site};
use crate::thread::Thread;
use crate::transport::parked::Connection;
use evenkeel_message::{
    BodyLength, Departure, Name, Request, Response, Transfer, Version, eq_ignore_case,
};
use evenkeel_proto::{Ask, Exchange, Head, Next, Persistence, encode_head, persistence, transfer};
use evenkeel_scoreboard::SlotGuard;
use evenkeel_sys::clock;
use std::rc::Rc;
use std::task::Context;

/// An exchange in progress, before its response is known.
pub(crate) struct Begun {
    /// When the first byte of the request came, on the monotonic clock in microseconds.
    pub(crate) started_us: u64,
    pub(crate) slot: Option<SlotGuard>,
    pub(crate) life: Exchange,
    /// Where its handler asks whether the client is still there.
    pub(crate) departure: Rc<Departure>,
}

/// A response on its way out.
pub(crate) struct Reply {
    pub(crate) request: Box<Request>,
    response: Response,
    pub(crate) output: Output,
    pub(crate) begun: Begun,
    framing: evenkeel_proto::Transfer,
    persistence: Persistence,
    first_byte_us: Option<u64>,
    flush_threshold: u64,
    /// Bytes of the request's body that came.
    pub(crate) received: u64,
}

impl Reply {
    /// Decides on framing and connection, and writes the head. `ends` tells that the connection is
    /// to end with it, `expecting` that the client
    /// waits for `100 Continue` and has not been told.
    pub(crate) fn new(
        thread: &Thread,
        settings: &Settings,
        ends: bool,
        request: Box<Request>,
        mut response: Response,
        mut begun: Begun,
        expecting: bool,
    ) -> Self {
        let head = &request.head;
        let is_head = head.is_head();
        // Clients that lie about their version (BrowserMatch; http_filters.c:
        // basic_http_header_check).
        let downgraded =
            head.version > Version::Http10 && request.resource.env.contains("downgrade-1.0");
        let version = if downgraded { Version::Http10 } else { head.version };
        let http10 =
            version == Version::Http10 && request.resource.env.contains("force-response-1.0");
        let transfer = transfer(&response, version, is_head);
        let persistence = persistence(&Ask {
            fields: request.fields(),
            length: head.length,
            version,
            status: response.status,
            transfer,
            close: response.close || ends || http10,
            expecting,
            nokeepalive: request.resource.env.contains("nokeepalive"),
            keepalives: request.keepalives,
            settings: settings.keep_alive,
        });
        let mut out = thread.take_out();
        if head.version != Version::Http09 {
            let date = thread.date(thread.day_us(begun.started_us));
            encode_head(
                &mut out,
                &response,
                &Head {
                    date: &date,
                    server: &settings.server_field,
                    transfer,
                    persistence,
                    http10,
                    proxied: request.resource.notes.contains("proxied"),
                },
            );
        }
        begun.life.head_written(persistence);
        let mut body = std::mem::take(&mut response.body);
        if is_head || response.status.is_bodiless() {
            body = evenkeel_message::Body::Empty;
        }
        let mut output = Output::new(out, body, transfer, &response.trailers);
        output.is_own = response.is_own_body;
        Self {
            request,
            response,
            output,
            begun,
            framing: transfer,
            persistence,
            first_byte_us: None,
            flush_threshold: settings.flush_threshold,
            received: 0,
        }
    }

    /// Whether the client was told that the connection is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.persistence != Persistence::Close
    }

    /// Whether it holds so much memory that there must be room for it among what slow clients keep,
    /// once its client turns out to be one (Apache: core_filters.c, where a worker waits with what
    /// is beyond FlushMaxThreshold).
    pub(crate) fn is_heavy(&self) -> bool {
        self.output.held() > self.flush_threshold
    }

    /// Has a stream read ahead while the client does not take what was fetched, no further than a
    /// response may hold that needs no room among what slow clients keep.
    pub(crate) fn read_ahead(&mut self, context: &mut Context<'_>) {
        self.output.poll_ahead(context, self.flush_threshold);
    }

    /// Notes that something has been sent.
    pub(crate) fn note_sent(&mut self) {
        if self.first_byte_us.is_none() && self.output.sent > 0 {
            self.first_byte_us = Some(clock::monotonic_us().saturating_sub(self.begun.started_us));
        }
    }

    /// Ends the exchange: records it, counts it on the connection, says what happens to that.
    /// `aborted` tells that the response is not whole.
    pub(crate) fn finish<S: Site>(
        &mut self,
        site: &S,
        thread: &Thread,
        connection: &mut Connection,
        aborted: bool,
    ) -> Next {
        let duration_us = clock::monotonic_us().saturating_sub(self.begun.started_us);
        let Output { sent, body_sent, .. } = &self.output;
        let (sent, body_sent) = (*sent, *body_sent);
        self.request.take_late();
        if aborted {
            self.begun.life.write_failed();
        } else {
            self.begun.life.body_written();
        }
        let next = self.begun.life.next();
        let transfer = Transfer {
            received: self.request.head.wire_bytes as u64 + self.received,
            sent,
            body_sent,
            duration_us,
            first_byte_us: self.first_byte_us.or((sent > 0).then_some(duration_us)),
            aborted,
        };
        let keep_alive = matches!(next, Next::Reuse | Next::Drain);
        site.tell_all(&mut self.request);
        site.record(&Done {
            request: &self.request,
            response: &self.response,
            transfer: &transfer,
            framing: self.framing,
            persistence: self.persistence,
            keep_alive,
        });
        slot::count(thread, self.begun.slot.take(), &transfer);
        connection.is_told = self.request.told.connection;
        connection.keepalives = connection.keepalives.saturating_add(1);
        let kibibytes = u16::try_from(sent.div_ceil(1024)).unwrap_or(u16::MAX);
        connection.kibibytes = connection.kibibytes.saturating_add(kibibytes);
        thread.give_out(self.output.take_buffer());
        next
    }

    /// The request of an exchange that is over, with the response for the next to be made of.
    pub(crate) fn into_request(self) -> Box<Request> {
        let Self { mut request, response, .. } = self;
        request.spare = Some(response);
        request
    }

    /// Whether the client asked for the connection's end, or knows of no other way: it will send
    /// nothing more that would have to be read before closing.
    pub(crate) fn client_ends(request: &Request) -> bool {
        let head = &request.head;
        let mut tokens = head.fields.tokens(Name::Connection);
        let ends = match head.version {
            Version::Http11 => tokens.any(|token| eq_ignore_case(token, b"close")),
            _ => !tokens.any(|token| eq_ignore_case(token, b"keep-alive")),
        };
        ends && head.length == BodyLength::None
    }
}
