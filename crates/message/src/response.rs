//! A response on its way through the filters to the connection.

use crate::{Body, Fields, Status};

/// What will be sent. `conn` adds Date, Server, framing and Connection when it writes the head.
#[derive(Debug)]
pub struct Response {
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
    pub const fn new(status: Status) -> Self {
        Self {
            status,
            status_line: None,
            fields: Fields::new(),
            always: Fields::new(),
            body: Body::Empty,
            is_own_body: false,
            trailers: Fields::new(),
            close: false,
        }
    }
}
