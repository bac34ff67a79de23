//! What stands in the cells of a listing: names and descriptions cut to the width of their
//! column, sizes, dates. Values go in, text comes out.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::borrow::Cow;

/// The names of months, as strftime(3) abbreviates them in the locale "C".
const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// A name in `width` bytes: `..>` tells that it was cut. A column of no width cuts nothing.
pub(super) fn cut_name(name: &[u8], width: usize) -> Cow<'_, [u8]> {
    match name.get(..width.saturating_sub(3)) {
        Some(start) if name.len() > width && width > 3 => [start, b"..>"].concat().into(),
        _ => name.into(),
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

/// Appends a time in microseconds since 1970 as `%Y-%m-%d %H:%M`, or in Apache 2.2's form
/// (`%d-%b-%Y %H:%M`) where `old` is wanted. Nanoseconds since 1970, in which files have their
/// times, reach from 1677 to 2262, so that a year has four digits. A listing has a date for each of
/// thousands of entries, and interpreting the format each time would take longer than all else of
/// a row.
pub(super) fn put_date(out: &mut Vec<u8>, time_us: i64, zone: &TimeZone, old: bool) {
    let time = zone.to_datetime(Timestamp::from_microsecond(time_us).unwrap_or_default());
    let year = time.year().unsigned_abs();
    let put_year = |out: &mut Vec<u8>| {
        out.extend_from_slice(&[year / 1000, year / 100, year / 10, year].map(digit));
    };
    let put_two = |out: &mut Vec<u8>, number: i8| {
        let number = u16::from(number.unsigned_abs());
        out.extend_from_slice(&[digit(number / 10), digit(number)]);
    };
    if old {
        put_two(out, time.day());
        out.push(b'-');
        let month = usize::from(time.month().unsigned_abs()).saturating_sub(1);
        out.extend_from_slice(MONTHS.get(month).copied().unwrap_or_default());
        out.push(b'-');
        put_year(out);
    } else {
        put_year(out);
        out.push(b'-');
        put_two(out, time.month());
        out.push(b'-');
        put_two(out, time.day());
    }
    out.push(b' ');
    put_two(out, time.hour());
    out.push(b':');
    put_two(out, time.minute());
}

/// The last decimal digit of a number.
fn digit(number: u16) -> u8 {
    let [_, last] = (number % 10).to_be_bytes();
    b'0' + last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut() {
        let cut =
            |name: &str, width| String::from_utf8(cut_name(name.as_bytes(), width).into()).unwrap();
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
        let date = |time_us, zone: &TimeZone, old| {
            let mut out = Vec::new();
            put_date(&mut out, time_us, zone, old);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(date(86_400_000_000, &TimeZone::UTC, false), "1970-01-02 00:00");
        assert_eq!(date(-1, &TimeZone::UTC, true), "31-Dec-1969 23:59");
        // In every month of many years, and in a zone of half hours with summer time.
        let zone = TimeZone::posix("ACST-9:30ACDT,M10.1.0,M4.1.0/3").unwrap();
        for days in (-100_000_i64..100_000).step_by(17) {
            let time_us = days * 86_400_000_000 + 59_999_999 * (days % 1440).abs();
            let time = Timestamp::from_microsecond(time_us).unwrap().to_zoned(zone.clone());
            for (form, old) in [("%Y-%m-%d %H:%M", false), ("%d-%b-%Y %H:%M", true)] {
                assert_eq!(date(time_us, &zone, old), time.strftime(form).to_string());
            }
        }
    }
}
