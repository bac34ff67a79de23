//! HTTP/2. A [`session::Session`] is a connection: it makes requests of its engine's events, and
//! frames of their responses. A stream that must wait is a future of the session (`stream.rs`) with
//! the exchange of HTTP/1. `body.rs` and `writer.rs` implement the two traits of the exchange.

pub(crate) mod body;
pub(crate) mod reply;
pub(crate) mod session;
pub(crate) mod session_state;
pub(crate) mod start;
pub(crate) mod stream;
pub(crate) mod task;
pub(crate) mod writer;
