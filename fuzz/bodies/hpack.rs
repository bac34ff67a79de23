//! Decodes header blocks. What is decoded is encoded again and must be decoded to the same fields.
//! The first byte of the input is the length of the first of two blocks, which share the table.

use evenkeel_message::Name;
use evenkeel_proto::h2::{Decoder, Encoder};

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let Some((length, rest)) = data.split_first() else { return };
    let (first, second) = rest.split_at(usize::from(*length).min(rest.len()));
    let mut decoder = Decoder::new();
    for block in [first, second] {
        let (mut fields, mut size) = (Vec::new(), 0);
        let decoded = decoder.decode(block, |name, value| {
            size += name.len() + value.len() + 32;
            fields.push((name.to_ascii_lowercase(), value.to_vec()));
            size <= 1 << 20
        });
        decoder.pack();
        // The text of 4,096 bytes, some slack, and at most 128 entries.
        assert!(decoder.memory() < 16 << 10);
        if decoded.is_err() {
            return;
        }
        let mut out = Vec::new();
        let mut encoder = Encoder::new(&mut out);
        for (name, value) in &fields {
            encoder.field(Name::of(name), name, value);
        }
        let mut left = fields.iter();
        let again = Decoder::new().decode(&out, |name, value| {
            left.next().is_some_and(|(n, v)| (n.as_slice(), v.as_slice()) == (name, value))
        });
        assert!(again.is_ok() && left.next().is_none());
    }
}
