//! A response on its way through the filters to the connection.

use crate::{Body, Fields, Status, Switched};
use std::ops::{Deref, DerefMut};

/// A response that will be sent. `conn` adds Date, Server, framing and Connection when it writes
/// the head. Phases pass it by value; the box keeps its parts from being moved.
#[derive(Debug)]
pub struct Response(Box<ResponseParts>);

/// How fast a body is sent, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The bytes of 200 ms.
    pub slice: u64,
    /// The bytes that are sent at once before that.
    pub burst: u64,
}

/// The parts of a response.
#[derive(Debug)]
pub struct ResponseParts {
    /// The status.
    pub status: Status,
    /// The status line of an application, in place of the standard phrase.
    pub status_line: Option<Box<str>>,
    /// Fields that are sent with a successful response (Apache: headers_out).
    pub fields: Fields,
    /// Fields that are always sent, also with errors and after internal redirects
    /// (err_headers_out).
    pub always: Fields,
    /// The body.
    pub body: Body,
    /// Whether the body was made for this response, so that its bytes in memory belong to it alone,
    /// even if its parts share them.
    pub is_own_body: bool,
    /// Whether range requests are ignored: the body is generated, and the next one may differ.
    pub is_whole: bool,
    /// The pace at which the body is sent; none if nothing bounds it.
    pub pace: Option<Pace>,
    /// Trailer fields, sent after a chunked body.
    pub trailers: Fields,
    /// Whether the connection must be closed after the response.
    pub close: bool,
    /// What the connection is used for after the response. The status is 101.
    pub tunnel: Option<Switched>,
}

impl Response {
    /// A response without fields or body.
    #[must_use]
    pub fn new(status: Status) -> Self {
        Self(Box::new(ResponseParts {
            status,
            status_line: None,
            fields: Fields::new(),
            always: Fields::new(),
            body: Body::Empty,
            is_own_body: false,
            is_whole: false,
            pace: None,
            trailers: Fields::new(),
            close: false,
            tunnel: None,
        }))
    }

    /// Resets the response and keeps its memory.
    pub fn renew(&mut self, status: Status) {
        // Every part is named, so that nothing of one client's response remains in another's.
        let ResponseParts {
            status: old_status,
            status_line,
            fields,
            always,
            body,
            is_own_body,
            is_whole,
            pace,
            trailers,
            close,
            tunnel,
        } = &mut **self;
        for fields in [fields, always, trailers] {
            fields.clear();
        }
        (*old_status, *status_line, *body) = (status, None, Body::Empty);
        (*is_own_body, *is_whole, *pace, *close) = (false, false, None, false);
        *tunnel = None;
    }

    /// The memory of the fields in bytes, used or not.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.fields.memory() + self.always.memory() + self.trailers.memory()
    }
}

impl Deref for Response {
    type Target = ResponseParts;

    fn deref(&self) -> &ResponseParts {
        &self.0
    }
}

impl DerefMut for Response {
    fn deref_mut(&mut self) -> &mut ResponseParts {
        &mut self.0
    }
}
