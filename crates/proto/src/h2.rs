//! The server's side of HTTP/2 (RFC 9113) without sockets and clocks. An [`Engine`] receives the
//! bytes of a connection and the time, returns [`Event`]s, and appends the frames that answer the
//! client to its caller's buffer. HPACK (RFC 7541) is in `hpack`.

mod budget;
mod engine;
mod flow;
mod frame;
mod hpack;
mod incoming;
mod outgoing;
mod priority;
mod request;
mod response;
mod settings;
mod stream;

pub use engine::{Engine, Event, Fault};
pub use frame::{ErrorCode, FRAME_HEAD, PREFACE};
pub use hpack::{Decoder, Encoder, FieldMemo, MalformedBlock};
pub use response::{Frames, encode_fields, encode_response};
pub use settings::{DATA_FRAME, EngineSettings, settings_of_field};

#[cfg(test)]
mod tests;
