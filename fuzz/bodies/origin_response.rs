//! Reads a response of a server behind the proxy as a whole and in pieces, which must give the same
//! result: the head, the data of the body, and the bytes that follow it. The first byte of the
//! input chooses the size of the pieces and the method.

use evenkeel_proto::{OriginBody, OriginFault, OriginLimits, Step, parse_origin_head};

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let (no_body, piece) = (choice & 16 != 0, usize::from(*choice % 16) + 1);
    let limits = OriginLimits { head: 4096, field: 1024, skips_bad: choice & 32 != 0 };
    let whole = parse_origin_head(bytes, no_body, &limits);
    let mut end = 0;
    let parted = loop {
        end = (end + piece).min(bytes.len());
        match parse_origin_head(&bytes[..end], no_body, &limits) {
            Ok(None) if end < bytes.len() => {}
            parted => break parted,
        }
    };
    let (Ok(Some(whole)), Ok(Some(parted))) = (&whole, &parted) else {
        // An error in one line may be found before or after that in another.
        assert_eq!(matches!(whole, Ok(Some(_))), matches!(parted, Ok(Some(_))));
        return;
    };
    assert_eq!(format!("{whole:?}"), format!("{parted:?}"));
    assert!(whole.size <= limits.head && (100..1000).contains(&whole.status));
    for (name, value) in whole.fields.iter() {
        assert!(!name.is_empty() && name.len() + value.len() <= limits.field);
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    }
    let rest = &bytes[whole.size..];
    let make = || OriginBody::new(whole.length);
    assert_eq!(read(make(), rest, rest.len().max(1)), read(make(), rest, piece));
}

/// The data of a body that comes in pieces of this size, and the length of the bytes behind it; no
/// length if its end has not come.
fn read(
    mut body: OriginBody,
    bytes: &[u8],
    piece: usize,
) -> Result<(Vec<u8>, Option<usize>), OriginFault> {
    let (mut data, mut at, mut end) = (Vec::new(), 0, 0);
    loop {
        match body.read(&bytes[at..end])? {
            Step::Data { skip, length } => {
                assert!(length > 0);
                at += skip;
                data.extend_from_slice(&bytes[at..at + length]);
                at += length;
            }
            Step::Partial => {
                at = end;
                if end == bytes.len() {
                    return Ok((data, None));
                }
                end = (end + piece).min(bytes.len());
            }
            Step::End(used) => return Ok((data, Some(bytes.len() - at - used))),
        }
    }
}
