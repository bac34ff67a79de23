//! HTTP/1 over a transport: framing and persistence.

pub(crate) mod task;
pub(crate) mod turn;
