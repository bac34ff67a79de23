//! Finds the end of a script's head as a whole and in pieces, which must give the same result, and
//! parses the head. The first byte of the input chooses the size of the pieces.

use evenkeel_proto::script::{HeadEnd, parse_script_head};

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let whole = find(bytes, bytes.len().max(1));
    assert_eq!(whole, find(bytes, usize::from(*choice % 16) + 1));
    let parsed = parse_script_head(&bytes[..whole.unwrap_or(bytes.len())]);
    if let Ok(head) = parsed {
        // No value holds a line end: a script cannot write a field that its head does not name.
        let lists = [&head.fields, &head.always];
        let values = lists.iter().flat_map(|fields| fields.iter().map(|(_, value)| value));
        for value in values.chain(head.cookies.iter().map(Vec::as_slice)) {
            assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n')));
        }
    }
}

fn find(bytes: &[u8], piece: usize) -> Option<usize> {
    let (mut end, mut at) = (HeadEnd::default(), 0);
    for part in bytes.chunks(piece) {
        match end.find(part) {
            Some(found) => return Some(at + found),
            None => at += part.len(),
        }
    }
    None
}
