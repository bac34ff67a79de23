//! Parses PROXY headers as they come, byte by byte: what is known of a header does not change when
//! more comes.

use evenkeel_proto::ProxyHeader;

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let mut known = None;
    for end in 0..=data.len().min(400) {
        let parsed = ProxyHeader::parse(&data[..end]);
        if let Ok(ProxyHeader::Complete { length, .. }) = parsed {
            assert!(length <= end);
        }
        match &known {
            None if parsed == Ok(ProxyHeader::Partial) => {}
            None => known = Some(parsed),
            Some(Ok(known)) => assert_eq!(parsed, Ok(*known)),
            Some(Err(_)) => assert!(parsed.is_err()),
        }
    }
    // No header is longer than that.
    assert!(known.is_some() || data.len() < 232);
}
