//! HPACK (RFC 7541): header blocks to fields and back. The encoder keeps no table, so a block means
//! the same on every connection. The decoder has the dynamic table that a client fills.

mod decode;
mod encode;
mod fixed;
mod huffman;
mod table;

pub use decode::{Decoder, MalformedBlock};
pub use encode::{Encoder, FieldMemo};
