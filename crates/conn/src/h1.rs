//! HTTP/1 over a transport: framing and persistence.

mod body;
mod framing;
mod handshake;
mod head;
mod reply;
pub(crate) mod task;
pub(crate) mod tunnel;
pub(crate) mod turn;
