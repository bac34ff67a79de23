//! HTTP/2. A [`session::Session`] is a connection: what its engine says becomes requests, and their
//! responses become frames. A stream that must wait is a future of the session (`stream.rs`), with
//! the exchange of HTTP/1: `body.rs` and `writer.rs` are the two seams.

pub(crate) mod body;
pub(crate) mod desk;
pub(crate) mod reply;
pub(crate) mod session;
pub(crate) mod start;
pub(crate) mod stream;
pub(crate) mod task;
pub(crate) mod writer;
