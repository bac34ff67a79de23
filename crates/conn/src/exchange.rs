//! One request from its head to its record: credit, slot, timeouts, bodies. It knows neither the
//! framing of a protocol nor the socket. A protocol meets it in two traits: a
//! [`request_body::BodyReader`] brings the body of a request, and a [`send::ResponseWriter`] sends
//! the pieces of a response.

pub(crate) mod credit;
pub(crate) mod pieces;
pub(crate) mod request_body;
pub(crate) mod respond;
pub(crate) mod send;
pub(crate) mod slot;
pub(crate) mod slow_bytes;

use crate::site::{ConnectionSite, Done, Settings};
use crate::thread::ThreadState;
use crate::transport::parked::Connection;
use evenkeel_message::{Body, Departure, Fields, Request, Response, Transfer};
use evenkeel_proto::Persistence;
use evenkeel_scoreboard::SlotGuard;
use evenkeel_sys::clock;
use pieces::Pieces;
use std::rc::Rc;
use std::task::Context;

/// An exchange whose response is not known yet.
pub(crate) struct Begun {
    /// When the first byte of the request came, on the monotonic clock in microseconds.
    pub(crate) started_us: u64,
    pub(crate) slot: Option<SlotGuard>,
    /// Where the handler asks whether the client is still there.
    pub(crate) departure: Rc<Departure>,
}

/// An exchange whose response is known, until its record is written.
pub(crate) struct Exchange {
    pub(crate) request: Box<Request>,
    pub(crate) response: Response,
    /// What is still to be sent of the response's body.
    pub(crate) pieces: Pieces,
    pub(crate) begun: Begun,
    first_byte_us: Option<u64>,
    flush_threshold: u64,
    merges_trailers: bool,
    /// How many bytes of the request's body were received.
    pub(crate) received: u64,
}

/// How an exchange has ended, for its record.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    /// Bytes that were sent, framing included.
    pub(crate) sent: u64,
    /// Whether the response is incomplete.
    pub(crate) aborted: bool,
    /// How the end of the body was told.
    pub(crate) framing: evenkeel_proto::BodyFraming,
    /// What the client was told of the connection.
    pub(crate) persistence: Persistence,
    /// Whether the connection stays open for another request.
    pub(crate) keep_alive: bool,
}

impl Exchange {
    /// The exchange with that response. Its body is sent unless the response has none; `length` is
    /// how long the body of a stream is, if the client was told.
    pub(crate) fn new(
        settings: &Settings,
        request: Box<Request>,
        mut response: Response,
        begun: Begun,
        length: Option<u64>,
    ) -> Self {
        let mut body = std::mem::take(&mut response.body);
        if request.head.is_head() || response.status.is_bodiless() {
            body = Body::Empty;
        }
        let pieces = Pieces::new(body, length, response.is_own_body);
        let Settings { flush_threshold, merges_trailers, .. } = *settings;
        let (first_byte_us, received) = (None, 0);
        Self {
            request,
            response,
            pieces,
            begun,
            first_byte_us,
            flush_threshold,
            merges_trailers,
            received,
        }
    }

    /// Stores the trailers of the request's body. Under MergeTrailers, they are added to the fields
    /// of the request too, where the access log finds them. A field of the head hides trailers of
    /// the same name (http_filters.c: read_chunked_trailers).
    pub(crate) fn store_trailers(&mut self, trailers: Fields) {
        if self.merges_trailers && !trailers.is_empty() {
            let fields = self.request.fields();
            let new: Vec<_> = trailers.iter().filter(|(name, _)| !fields.contains(*name)).collect();
            let fields = self.request.fields_mut();
            new.into_iter().for_each(|(name, value)| fields.add(name, value));
        }
        self.request.trailers = trailers;
    }

    /// Whether the response holds so much memory that there must be room for it among what slow
    /// clients keep, once its client turns out to be one (Apache: core_filters.c, where a worker
    /// waits with what is beyond FlushMaxThreshold).
    pub(crate) fn is_heavy(&self) -> bool {
        self.pieces.held() > self.flush_threshold
    }

    /// Has a stream read ahead while the client does not take what was fetched, no further than a
    /// response may hold that needs no room among what slow clients keep.
    pub(crate) fn read_ahead(&mut self, context: &mut Context<'_>) {
        self.pieces.poll_ahead(context, self.flush_threshold);
    }

    /// Notes that so many bytes have been sent.
    pub(crate) fn note_sent(&mut self, sent: u64) {
        if self.first_byte_us.is_none() && sent > 0 {
            self.first_byte_us = Some(clock::monotonic_us().saturating_sub(self.begun.started_us));
        }
    }

    /// Ends the exchange: records it and counts it on the connection. Returns the request for its
    /// memory, with the response for the next to be made of.
    pub(crate) fn finish<S: ConnectionSite>(
        mut self,
        site: &S,
        thread: &ThreadState,
        connection: &mut Connection,
        ended: Ended,
    ) -> Box<Request> {
        let duration_us = clock::monotonic_us().saturating_sub(self.begun.started_us);
        self.request.take_late();
        let transfer = Transfer {
            received: self.request.head.wire_bytes as u64 + self.received,
            sent: ended.sent,
            body_sent: self.pieces.sent,
            duration_us,
            first_byte_us: self.first_byte_us.or((ended.sent > 0).then_some(duration_us)),
            aborted: ended.aborted,
        };
        site.tell_all(&mut self.request);
        site.record(&Done {
            request: &self.request,
            response: &self.response,
            transfer: &transfer,
            framing: ended.framing,
            persistence: ended.persistence,
            keep_alive: ended.keep_alive,
        });
        slot::count(thread, self.begun.slot.take(), &transfer);
        connection.is_told = self.request.told.connection;
        connection.keepalives = connection.keepalives.saturating_add(1);
        let kibibytes = u16::try_from(ended.sent.div_ceil(1024)).unwrap_or(u16::MAX);
        connection.kibibytes = connection.kibibytes.saturating_add(kibibytes);
        let Self { mut request, response, .. } = self;
        request.spare = Some(response);
        request
    }
}
