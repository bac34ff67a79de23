//! A response on its way through the filters to the connection.

use crate::{Body, Fields, Status};
use std::ops::{Deref, DerefMut};

/// What will be sent. `conn` adds Date, Server, framing and Connection when it writes the head. It
/// goes from phase to phase by value, so that its parts stand in one place and do not move.
#[derive(Debug)]
pub struct Response(Box<ResponseParts>);

/// The parts of a response.
#[derive(Debug)]
pub struct ResponseParts {
    /// The status.
    pub status: Status,
    /// A status line of an application's own, in place of the standard phrase.
    pub status_line: Option<Box<str>>,
    /// Fields that are sent with a success (Apache: headers_out).
    pub fields: Fields,
    /// Fields that are sent always, errors and internal redirects included (err_headers_out).
    pub always: Fields,
    /// The body.
    pub body: Body,
    /// Whether the body was made for this response, so that its bytes in memory are nobody else's,
    /// though parts of it may share them.
    pub is_own_body: bool,
    /// Trailer fields, sent after a chunked body.
    pub trailers: Fields,
    /// Whether the connection must be closed after it.
    pub close: bool,
}

impl Response {
    /// A response without fields and body.
    #[must_use]
    pub fn new(status: Status) -> Self {
        Self(Box::new(ResponseParts {
            status,
            status_line: None,
            fields: Fields::new(),
            always: Fields::new(),
            body: Body::Empty,
            is_own_body: false,
            trailers: Fields::new(),
            close: false,
        }))
    }

    /// Makes it new, its memory kept.
    pub fn renew(&mut self, status: Status) {
        // Every part is named, so that none of one client's response is left in another's.
        let ResponseParts {
            status: old_status,
            status_line,
            fields,
            always,
            body,
            is_own_body,
            trailers,
            close,
        } = &mut **self;
        for fields in [fields, always, trailers] {
            fields.clear();
        }
        (*old_status, *status_line, *body) = (status, None, Body::Empty);
        (*is_own_body, *close) = (false, false);
    }

    /// How much memory its fields have, used or not, in bytes.
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
