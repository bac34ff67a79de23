//! Parses the head of a request as its bytes arrive. If a turn has parsed only a part of a head, a
//! task continues with the same parser and the same buffer.

use crate::serving::Serving;
use crate::site::ConnectionSite;
use crate::transport::parked::Connection;
use evenkeel_message::Request;
use evenkeel_proto::{HeadParser, Parsed, Refusal};
use evenkeel_sys::clock;

/// A head that has not been read to its end.
pub(crate) struct Reading {
    pub(crate) request: Box<Request>,
    pub(crate) parser: HeadParser,
    /// When its first byte came, on the monotonic clock in microseconds.
    pub(crate) started_us: u64,
    /// What the bytes that are there have led to, until that is acted on.
    parsed: Option<Result<Parsed, Refusal>>,
}

impl Reading {
    /// Begins a head.
    pub(crate) fn begin<S: ConnectionSite>(serving: &Serving<S>, connection: &Connection) -> Self {
        let mut request = serving.request(connection);
        let started_us = clock::monotonic_us();
        request.time_us = serving.thread.day_us(started_us);
        Self { request, parser: HeadParser::new(), started_us, parsed: None }
    }

    /// Parses what has arrived, from the first byte of the head on, unless that was done and is to
    /// be acted on.
    ///
    /// # Errors
    /// The request is refused.
    pub(crate) fn parse<S: ConnectionSite>(
        &mut self,
        serving: &Serving<S>,
        connection: &Connection,
        bytes: &[u8],
    ) -> Result<Parsed, Refusal> {
        if let Some(parsed) = self.parsed.take() {
            return parsed;
        }
        let settings = serving.site.settings(connection.server as usize);
        let head = self.request.head.receive();
        self.parser.parse(head, bytes, &settings.limits, &settings.options)
    }

    /// Has the next [`Reading::parse`] return what the last one did.
    pub(crate) fn keep(&mut self, parsed: Result<Parsed, Refusal>) {
        self.parsed = Some(parsed);
    }
}
