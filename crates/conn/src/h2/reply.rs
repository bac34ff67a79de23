//! A response on its stream: writes its head, and records the exchange when the response was sent
//! or aborted.

use super::session_state::State;
use super::writer::StreamWriter;
use crate::exchange::{Begun, Ended, Exchange};
use crate::serving::Serving;
use crate::site::{ConnectionSite, Settings};
use crate::thread::ThreadState;
use crate::transport::parked::Connection;
use evenkeel_message::{Request, Response, Version};
use evenkeel_proto::h2::Frames;
use evenkeel_proto::{BodyFraming, Persistence, body_framing};

/// A response that is being sent.
pub(crate) struct StreamReply {
    pub(crate) exchange: Exchange,
    pub(crate) writer: StreamWriter,
    framing: BodyFraming,
}

impl StreamReply {
    /// Writes the head of a response.
    pub(crate) fn new(
        thread: &ThreadState,
        settings: &Settings,
        state: &State,
        request: Box<Request>,
        response: Response,
        begun: Begun,
    ) -> Self {
        let stream = request.stream;
        let framing = body_framing(&response, Version::Http2, request.head.is_head());
        let length = match framing {
            BodyFraming::Exact(length) => Some(length),
            _ => None,
        };
        let date = thread.date(thread.day_us(begun.started_us));
        let proxied = request.resource.notes.contains("proxied");
        let mut exchange = Exchange::new(settings, request, response, begun, length);
        let mut shared = state.borrow_mut();
        let shared = &mut *shared;
        shared.inform(stream, &exchange.begun.departure.take_interim());
        let before = shared.out.len();
        let (server, memo) = (&settings.server_field, Some(&thread.field_memo));
        let frames = Frames { date: &date, server, length, proxied, memo };
        let is_told = exchange.pieces.is_empty();
        let response = &exchange.response;
        shared.engine.respond(stream, response, &frames, is_told, &mut shared.out);
        let sent = (shared.out.len() - before) as u64;
        let writer = StreamWriter::new(state, stream, sent, &exchange.pieces, is_told);
        Self { exchange, writer, framing }
    }

    /// Whether a request with this response holds a credit.
    pub(crate) fn needs_credit(&self) -> bool {
        self.exchange.pieces.is_stream() || self.exchange.is_heavy()
    }

    /// Ends the exchange. `aborted` means that the response is incomplete.
    pub(crate) fn finish<S: ConnectionSite>(
        self,
        serving: &Serving<S>,
        connection: &mut Connection,
        aborted: bool,
    ) {
        let Self { exchange, writer, framing } = self;
        let ended = Ended {
            sent: writer.sent,
            aborted,
            framing,
            persistence: Persistence::Keep,
            // No response of HTTP/2 announces the end of the connection (%X: h2_c2.c).
            keep_alive: false,
        };
        let request = exchange.finish(&serving.site, &serving.thread, connection, ended);
        serving.give(request);
    }
}
