//! Searches that determine how fast a head is parsed. They examine sixteen bytes at a time while
//! nothing is found, which is nearly always the case.

/// The index of the first matching byte. The bytes of a chunk are tested without branches between
/// them, so that the compiler can compare them all at once.
fn first(bytes: &[u8], is_wanted: impl Fn(u8) -> bool) -> Option<usize> {
    let (chunks, rest) = bytes.as_chunks::<16>();
    for (at, chunk) in chunks.iter().enumerate() {
        if chunk.iter().fold(false, |found, byte| found | is_wanted(*byte)) {
            let marks = chunk.map(|byte| if is_wanted(byte) { 0xff } else { 0 });
            let first = u128::from_le_bytes(marks).trailing_zeros() / 8;
            return Some(at * 16 + first as usize);
        }
    }
    let found = rest.iter().position(|byte| is_wanted(*byte))?;
    Some(bytes.len() - rest.len() + found)
}

/// The index of the first colon, control byte or DEL.
pub(crate) fn first_colon_or_control(bytes: &[u8]) -> Option<usize> {
    first(bytes, |byte| (byte < b' ') | (byte == 0x7f) | (byte == b':'))
}

/// The index of the first control byte or DEL.
pub(crate) fn first_control(bytes: &[u8]) -> Option<usize> {
    first(bytes, |byte| (byte < b' ') | (byte == 0x7f))
}

/// The index of the first space, control byte or DEL.
pub(crate) fn first_space_or_control(bytes: &[u8]) -> Option<usize> {
    first(bytes, |byte| (byte <= b' ') | (byte == 0x7f))
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
