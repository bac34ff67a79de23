//! One request from its head to its record: credit, slot, timeouts, bodies. It knows neither the
//! framing of a protocol nor the socket.

pub(crate) mod credit;
pub(crate) mod pieces;
pub(crate) mod reply;
pub(crate) mod request_body;
pub(crate) mod slot;
pub(crate) mod slow_bytes;
