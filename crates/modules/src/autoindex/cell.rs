//! What stands in the cells of a listing: names and descriptions cut to the width of their
//! column, sizes, dates. Values go in, text comes out.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A name in `width` bytes: `..>` tells that it was cut. A column of no width cuts nothing.
pub(super) fn cut_name(name: &[u8], width: usize) -> Vec<u8> {
    match name.get(..width.saturating_sub(3)) {
        Some(start) if name.len() > width && width > 3 => [start, b"..>"].concat(),
        _ => name.to_vec(),
    }
}

/// A description in `width` characters, of which tags are none and an entity is one; `>` takes
/// the place of the last, so that a cut tag ends (mod_autoindex.c: terminate_description).
pub(super) fn cut_description(text: &[u8], width: usize) -> Vec<u8> {
    let mut left = width;
    let mut at = 0;
    while let Some(byte) = text.get(at).filter(|byte| left > 0 || **byte == b'<') {
        let end = match byte {
            b'<' => b'>',
            b'&' => b';',
            _ => *byte,
        };
        left = if *byte == b'<' { left } else { left - 1 };
        let rest = text.get(at..).unwrap_or_default();
        // What never ends is left as it is.
        let Some(length) = rest.iter().position(|byte| *byte == end) else {
            return text.to_vec();
        };
        at += length + 1;
    }
    match at.checked_sub(1) {
        _ if at >= text.len() => text.to_vec(),
        // A column of no width.
        None => Vec::new(),
        Some(last) => [text.get(..last).unwrap_or_default(), b">"].concat(),
    }
}

/// A time in microseconds since 1970; in Apache 2.2's form where `old` is wanted.
pub(super) fn date(time_us: i64, zone: &TimeZone, old: bool) -> String {
    let form = if old { "%d-%b-%Y %H:%M" } else { "%Y-%m-%d %H:%M" };
    let time = Timestamp::from_microsecond(time_us).unwrap_or_default();
    time.to_zoned(zone.clone()).strftime(form).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut() {
        let cut = |name: &str, width| String::from_utf8(cut_name(name.as_bytes(), width)).unwrap();
        assert_eq!(cut("abcdefgh", 6), "abc..>");
        assert_eq!((cut("abcdef", 6), cut("abcdef", 0)), ("abcdef".into(), "abcdef".into()));
    }

    #[test]
    fn descriptions_are_cut_by_what_is_seen_of_them() {
        let cut =
            |text: &str, width| String::from_utf8(cut_description(text.as_bytes(), width)).unwrap();
        assert_eq!(cut("abcdef", 3), "ab>");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("a&auml;<b>bc</b>d", 3), "a&auml;<b>>");
        assert_eq!((cut("ab<b>", 2), cut("abc", 0)), ("ab<b>".into(), String::new()));
        assert_eq!(cut("a<bcdef", 1), "a<bcdef");
        assert_eq!(cut("a&bcdef", 2), "a&bcdef");
    }

    #[test]
    fn dates_in_both_forms() {
        assert_eq!(date(86_400_000_000, &TimeZone::UTC, false), "1970-01-02 00:00");
        assert_eq!(date(-1, &TimeZone::UTC, true), "31-Dec-1969 23:59");
    }
}
