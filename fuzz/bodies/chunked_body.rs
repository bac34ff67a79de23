//! Decodes a chunked body as a whole and in pieces, which must give the same result. The first byte
//! of the input chooses the size of the pieces.

use evenkeel_message::Fields;
use evenkeel_proto::{ChunkedDecoder, HttpProtocolOptions, Limits, Step};

/// Small limits, so that the fuzzer reaches them.
const LIMITS: Limits = Limits { line: 60, field_size: 60, fields: 4 };

/// The result for a body: its data, its trailer fields and where it ended, or the status.
type Outcome = Result<(Vec<u8>, String, Option<usize>), u16>;

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let whole = decode(bytes, bytes.len().max(1));
    let pieces = decode(bytes, usize::from(*choice % 16) + 1);
    assert_eq!(whole, pieces);
    if let Ok((decoded, _, Some(end))) = whole {
        assert!(end <= bytes.len() && decoded.len() <= end);
    }
}

fn decode(bytes: &[u8], piece: usize) -> Outcome {
    let options = HttpProtocolOptions::default();
    let (mut decoder, mut data, mut trailers) = (ChunkedDecoder::new(), Vec::new(), Fields::new());
    let mut at = 0;
    for part in bytes.chunks(piece) {
        let mut rest = part;
        loop {
            let step = decoder
                .decode(rest, &mut trailers, &LIMITS, &options)
                .map_err(|refusal| refusal.status.code())?;
            match step {
                Step::Data { skip, length } => {
                    assert!(length > 0);
                    data.extend_from_slice(&rest[skip..skip + length]);
                    rest = &rest[skip + length..];
                    at += skip + length;
                }
                Step::Partial => {
                    at += rest.len();
                    break;
                }
                Step::End(skip) => return Ok((data, format!("{trailers:?}"), Some(at + skip))),
            }
        }
    }
    Ok((data, String::new(), None))
}
