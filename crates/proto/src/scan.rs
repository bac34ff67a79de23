//! Searches over bytes that decide how fast a head is read: sixteen bytes at a time where nothing
//! is found, which is nearly always. Bytes come in, places and answers go out.

const ONES: u128 = u128::MAX / 0xff;
const HIGH: u128 = ONES * 0x80;

/// The high bits of those of sixteen bytes that are below `bound` (at most 128). Bits above the
/// lowest one may be set without reason; a byte above ASCII has none.
const fn below(word: u128, bound: u8) -> u128 {
    word.wrapping_sub(ONES * bound as u128) & !word & HIGH
}

/// The same of those that are `byte`.
const fn equal(word: u128, byte: u8) -> u128 {
    below(word ^ (ONES * byte as u128), 1)
}

/// Where the first byte stands that is looked for: `marks` gives the high bits of such bytes. The
/// bytes of a chunk are asked without a branch between them, so that they are compared all at once.
fn first(
    bytes: &[u8],
    marks: impl Fn(u128) -> u128,
    is_wanted: impl Fn(u8) -> bool,
) -> Option<usize> {
    let (chunks, rest) = bytes.as_chunks::<16>();
    for (at, chunk) in chunks.iter().enumerate() {
        if chunk.iter().fold(false, |found, byte| found | is_wanted(*byte)) {
            let marks = marks(u128::from_le_bytes(*chunk));
            return Some(at * 16 + marks.trailing_zeros() as usize / 8);
        }
    }
    let found = rest.iter().position(|byte| is_wanted(*byte))?;
    Some(bytes.len() - rest.len() + found)
}

/// Where the first colon, control byte or DEL stands.
pub(crate) fn first_colon_or_control(bytes: &[u8]) -> Option<usize> {
    let marks = |word| below(word, b' ') | equal(word, 0x7f) | equal(word, b':');
    first(bytes, marks, |byte| (byte < b' ') | (byte == 0x7f) | (byte == b':'))
}

/// Where the first control byte or DEL stands.
pub(crate) fn first_control(bytes: &[u8]) -> Option<usize> {
    let is_wanted = |byte| (byte < b' ') | (byte == 0x7f);
    first(bytes, |word| below(word, b' ') | equal(word, 0x7f), is_wanted)
}

/// Where the first space, control byte or DEL stands.
pub(crate) fn first_space_or_control(bytes: &[u8]) -> Option<usize> {
    let is_wanted = |byte| (byte <= b' ') | (byte == 0x7f);
    first(bytes, |word| below(word, b' ' + 1) | equal(word, 0x7f), is_wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_words_see_what_the_bytes_show(
            mut bytes in prop::collection::vec(0x20_u8.., 0..40),
            marks in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        ) {
            for (index, mark) in marks {
                if !bytes.is_empty() {
                    let at = index.index(bytes.len());
                    bytes[at] = mark;
                }
            }
            let space = bytes.iter().position(|byte| *byte <= b' ' || *byte == 0x7f);
            prop_assert_eq!(first_space_or_control(&bytes), space);
            let control = bytes.iter().position(|byte| *byte < b' ' || *byte == 0x7f);
            prop_assert_eq!(first_control(&bytes), control);
            let is_wanted = |byte: &u8| *byte < b' ' || matches!(byte, 0x7f | b':');
            prop_assert_eq!(first_colon_or_control(&bytes), bytes.iter().position(is_wanted));
        }
    }
}
