//! Reads FastCGI records as a whole and in pieces, which must give the same result, and the
//! name-value pairs of the content. The first byte of the input chooses the size of the pieces.

use evenkeel_message::Variables;
use evenkeel_proto::fastcgi::{Fault, Record, RecordReader, Stream, encode_params, pairs};

/// The content of PARAMS, of the other streams, and the types of all records in order.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    params: Vec<u8>,
    streams: Vec<u8>,
    order: Vec<u8>,
}

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(whole, read(bytes, usize::from(*choice % 16) + 1));
    let Ok(outcome) = whole else { return };
    let found: Vec<_> = pairs(&outcome.params).collect();
    let (mut variables, mut written) = (Variables::new(), Vec::new());
    for (name, value) in found {
        variables.set(name, value);
    }
    let left_out = encode_params(&mut written, &variables);
    if left_out.is_empty() {
        let again = read(&written, written.len()).unwrap();
        assert!(variables.iter().eq(pairs(&again.params)));
    }
}

fn read(bytes: &[u8], piece: usize) -> Result<Outcome, Fault> {
    let (mut reader, mut outcome) = (RecordReader::new(), Outcome::default());
    for part in bytes.chunks(piece) {
        let mut rest = part;
        loop {
            let used = match reader.read(rest)? {
                Record::Partial => break,
                Record::Content { stream, skip, length } => {
                    assert!(length > 0);
                    let content = &rest[skip..skip + length];
                    match stream {
                        Stream::Params => outcome.params.extend_from_slice(content),
                        _ => outcome.streams.extend_from_slice(content),
                    }
                    skip + length
                }
                Record::Closed { skip, .. } => {
                    outcome.order.push(b'c');
                    skip
                }
                Record::Begin { keep, skip } => {
                    outcome.order.push(if keep { b'k' } else { b'b' });
                    skip
                }
                Record::End { protocol_status, skip, .. } => {
                    outcome.order.extend([b'e', protocol_status]);
                    skip
                }
                Record::Other { kind, skip } => {
                    outcome.order.extend([b'o', kind]);
                    skip
                }
            };
            rest = &rest[used..];
        }
    }
    Ok(outcome)
}
