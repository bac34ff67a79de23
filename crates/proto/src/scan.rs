//! Searches over bytes that decide how fast a head is read: eight bytes at a time where nothing
//! is found, which is nearly always. Bytes come in, places and answers go out.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The high bits of those of eight bytes that are below `bound` (at most 128). Bits above the
/// lowest one may be set without reason; a byte above ASCII has none.
const fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(ONES * bound as u64) & !word & HIGH
}

/// The same of those that are `byte`.
const fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ (ONES * byte as u64), 1)
}

/// The same of those that are below `bound` or DEL.
const fn below_or_delete(word: u64, bound: u8) -> u64 {
    below(word, bound) | equal(word, 0x7f)
}

/// Where the first byte stands that is looked for: in whole words by the high bits that `marks`
/// gives, behind them by `is_wanted`.
fn first(
    bytes: &[u8],
    marks: impl Fn(u64) -> u64,
    is_wanted: impl Fn(u8) -> bool,
) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let marks = marks(u64::from_le_bytes(*word));
        if marks != 0 {
            return Some(at * 8 + marks.trailing_zeros() as usize / 8);
        }
    }
    let found = rest.iter().position(|byte| is_wanted(*byte))?;
    Some(bytes.len() - rest.len() + found)
}

/// Where the first colon stands.
pub(crate) fn first_colon(bytes: &[u8]) -> Option<usize> {
    first(bytes, |word| equal(word, b':'), |byte| byte == b':')
}

/// Where the first control byte or DEL stands.
pub(crate) fn first_control(bytes: &[u8]) -> Option<usize> {
    first(bytes, |word| below_or_delete(word, b' '), |byte| byte < b' ' || byte == 0x7f)
}

/// Where the first space, control byte or DEL stands.
pub(crate) fn first_space_or_control(bytes: &[u8]) -> Option<usize> {
    first(bytes, |word| below_or_delete(word, b' ' + 1), |byte| byte <= b' ' || byte == 0x7f)
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
            prop_assert_eq!(first_colon(&bytes), bytes.iter().position(|byte| *byte == b':'));
        }
    }
}
