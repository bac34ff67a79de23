//! HPACK (RFC 7541): decodes and encodes header blocks. The encoder uses no dynamic table, so a
//! block has the same meaning on every connection. The decoder has the dynamic table that a client
//! fills.

mod decode;
mod encode;
mod fixed;
mod huffman;
mod table;

pub use decode::{Decoder, MalformedBlock};
pub use encode::{Encoder, FieldMemo};
