//! Parses Authorization fields of Digest. The values never have more bytes than the field, and a
//! field that is written from the parsed values is parsed to the same values.

use evenkeel_proto::{DigestField, DigestParameters};

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let DigestField::Parameters(parsed) = DigestField::parse(data) else { return };
    let values = values(&parsed);
    let length: usize = values.iter().filter_map(|(_, value)| value.as_ref()).map(Vec::len).sum();
    assert!(length < data.len().max(1));
    let mut again = b"Digest ".to_vec();
    for (name, value) in values {
        let Some(value) = value else { continue };
        again.extend_from_slice(format!("{name}=\"").as_bytes());
        for byte in value {
            if matches!(byte, b'"' | b'\\') {
                again.push(b'\\');
            }
            again.push(*byte);
        }
        again.extend_from_slice(b"\", ");
    }
    assert_eq!(DigestField::parse(&again), DigestField::Parameters(parsed.clone()));
}

fn values(parsed: &DigestParameters) -> [(&'static str, &Option<Vec<u8>>); 10] {
    [
        ("username", &parsed.username),
        ("realm", &parsed.realm),
        ("nonce", &parsed.nonce),
        ("uri", &parsed.uri),
        ("response", &parsed.response),
        ("algorithm", &parsed.algorithm),
        ("cnonce", &parsed.cnonce),
        ("opaque", &parsed.opaque),
        ("qop", &parsed.qop),
        ("nc", &parsed.count),
    ]
}
