//! Sizes of files as listings and pages show them.

/// A size in bytes in four characters (apr_strfsize); `-` for none.
pub(crate) fn abbreviated(bytes: i64) -> [u8; 4] {
    /// From here on a number takes a unit: so that three digits do, rounded.
    const LIMIT: i64 = 973;
    if bytes < 0 {
        return *b"  - ";
    }
    if bytes < LIMIT {
        return in_three(bytes, b' ');
    }
    let mut whole = bytes;
    for unit in *b"KMGTPE" {
        let rest = whole & 1023;
        whole >>= 10;
        if whole >= LIMIT {
            continue;
        }
        if whole < 9 || (whole == 9 && rest < LIMIT) {
            let tenths = (rest * 5 + 256) / 512;
            let (whole, tenths) = if tenths >= 10 { (whole + 1, 0) } else { (whole, tenths) };
            return [digit(whole), b'.', digit(tenths), unit];
        }
        return in_three(if rest >= 512 { whole + 1 } else { whole }, unit);
    }
    // The largest number has 8 E.
    *b"****"
}

/// A number below 1,000, with spaces before it, and a unit.
fn in_three(number: i64, unit: u8) -> [u8; 4] {
    let [hundreds, tens, ones] = [number / 100, number / 10, number].map(digit);
    match number {
        ..10 => [b' ', b' ', ones, unit],
        10..100 => [b' ', tens, ones, unit],
        _ => [hundreds, tens, ones, unit],
    }
}

/// The last decimal digit of a number, which is not negative.
fn digit(number: i64) -> u8 {
    let [last, ..] = (number % 10).to_le_bytes();
    b'0' + last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_four_characters() {
        let sizes = [-1, 0, 972, 973, 1024, 10_000, 10_188, 10_240, 996_146, 1_023_000, 5 << 30];
        let texts = sizes.map(abbreviated);
        let wanted = [
            b"  - ", b"  0 ", b"972 ", b"1.0K", b"1.0K", b"9.8K", b"9.9K", b" 10K", b"973K",
            b"1.0M", b"5.0G",
        ];
        assert_eq!(texts.each_ref(), wanted);
        assert_eq!([7, 42, 43_008].map(abbreviated), [*b"  7 ", *b" 42 ", *b" 42K"]);
        assert_eq!(&abbreviated(i64::MAX), b"8.0E");
    }
}
