//! Searches over bytes that decide how fast a head is read: eight bytes at a time where nothing
//! is found, which is nearly always. Bytes come in, places and answers go out.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Whether one of eight bytes may be below `bound` (at most 128) or be DEL. It may say yes for
/// some others, never no for one of these; a byte above ASCII counts as neither.
const fn may_hold(word: u64, bound: u8) -> bool {
    let below = word.wrapping_sub(ONES * bound as u64) & !word;
    let delete = word ^ (ONES * 0x7f);
    let delete = delete.wrapping_sub(ONES) & !delete;
    (below | delete) & HIGH != 0
}

/// Where the first space, control byte or DEL stands.
pub(crate) fn first_space_or_control(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    for chunk in bytes.chunks(8) {
        let whole = <[u8; 8]>::try_from(chunk).map(u64::from_ne_bytes);
        if whole.map_or(true, |word| may_hold(word, 0x21)) {
            let found = chunk.iter().position(|byte| *byte <= b' ' || *byte == 0x7f);
            if let Some(found) = found {
                return Some(at + found);
            }
        }
        at += chunk.len();
    }
    None
}

/// Whether a control byte other than the tab, or DEL, is there.
pub(crate) fn has_control(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<8>();
    // The last eight bytes are looked at whole, though some of them are for the second time.
    let tail = bytes.last_chunk::<8>().map(|tail| u64::from_ne_bytes(*tail));
    let suspect = chunks.iter().any(|chunk| may_hold(u64::from_ne_bytes(*chunk), b' '))
        || (!rest.is_empty() && tail.is_none_or(|tail| may_hold(tail, b' ')));
    suspect && bytes.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f)
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
            let control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
            prop_assert_eq!(has_control(&bytes), bytes.iter().any(control));
        }
    }
}
