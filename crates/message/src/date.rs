//! HTTP dates (RFC 9110, section 5.6.7): writes seconds since 1970 in the preferred form, and
//! parses all three forms. It reads no clock; the caller caches the Date line for a second.
//!
//! As in Apache, the text behind the time of the first two forms is not read and the time is UTC:
//! programs send `+0000`, and old clients append `; length=`.

const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// The form `Sun, 06 Nov 1994 08:49:37 GMT` for seconds since 1970. Years outside 0 to 9999 are
/// clamped.
#[must_use]
pub fn http_date(seconds: i64) -> [u8; 29] {
    // The first second of the year 0 and the last of the year 9999.
    let seconds = seconds.clamp(-62_167_219_200, 253_402_300_799);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let mut text = *b"Thu, 00 Jan 0000 00:00:00 GMT";
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(slot) = text.get_mut(at..at + bytes.len()) {
            slot.copy_from_slice(bytes);
        }
    };
    put(0, DAYS.get(days.rem_euclid(7) as usize).copied().unwrap_or(b"Thu"));
    put(5, &two_digits(day));
    put(8, MONTHS.get(month as usize - 1).copied().unwrap_or(b"Jan"));
    put(12, &two_digits(year / 100));
    put(14, &two_digits(year % 100));
    put(17, &two_digits(second / 3600));
    put(20, &two_digits(second / 60 % 60));
    put(23, &two_digits(second % 60));
    text
}

/// The seconds since 1970 of a date in any of the three forms, or none if the text is not a date. A
/// two-digit year that lies more than 50 years after `now` belongs to the century before.
#[must_use]
pub fn parse_http_date(text: &[u8], now: i64) -> Option<i64> {
    let text = text.trim_ascii();
    let Some(comma) = text.iter().position(|byte| *byte == b',') else {
        return if text.len() == 24 { asctime(text) } else { None };
    };
    let text = text.get(comma + 1..)?.trim_ascii_start();
    preferred(text).or_else(|| rfc850(text, now))
}

/// Parses `06 Nov 1994 08:49:37 GMT`, which follows the name of the day.
fn preferred(text: &[u8]) -> Option<i64> {
    let (date, time) = text.split_at_checked(11)?;
    let separated = [(date, 2), (date, 6), (time, 0), (time, 9)];
    separated.iter().all(|(text, at)| text.get(*at) == Some(&b' ')).then_some(())?;
    let year = number(date.get(7..11)?)?;
    seconds(year, month(date.get(3..6)?)?, number(date.get(..2)?)?, time.get(1..9)?)
}

/// Parses `06-Nov-94 08:49:37 GMT`, which follows the name of the day.
fn rfc850(text: &[u8], now: i64) -> Option<i64> {
    let (date, time) = text.split_at_checked(9)?;
    let separated = [(date, 2, b'-'), (date, 6, b'-'), (time, 0, b' '), (time, 9, b' ')];
    separated.iter().all(|(text, at, byte)| text.get(*at) == Some(byte)).then_some(())?;
    let this_year = civil(now.div_euclid(86_400)).0;
    let mut year = this_year - this_year % 100 + number(date.get(7..9)?)?;
    if year > this_year + 50 {
        year -= 100;
    }
    seconds(year, month(date.get(3..6)?)?, number(date.get(..2)?)?, time.get(1..9)?)
}

/// `Sun Nov  6 08:49:37 1994`.
fn asctime(text: &[u8]) -> Option<i64> {
    let day = text.get(8..10)?.trim_ascii_start();
    let spaced = [3, 7, 10, 19].iter().all(|at| text.get(*at) == Some(&b' '));
    spaced.then_some(())?;
    let year = number(text.get(20..24)?)?;
    seconds(year, month(text.get(4..7)?)?, number(day)?, text.get(11..19)?)
}

fn month(name: &[u8]) -> Option<i64> {
    let index = MONTHS.iter().position(|month| name.eq_ignore_ascii_case(*month))?;
    Some(index as i64 + 1)
}

fn number(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_i64, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'))
    })
}

/// The seconds since 1970 of a day and a time `08:49:37`. A leap second counts as the second after
/// it.
fn seconds(year: i64, month: i64, day: i64, time: &[u8]) -> Option<i64> {
    let (hour, minute) = (number(time.get(..2)?)?, number(time.get(3..5)?)?);
    let second = number(time.get(6..8)?)?;
    let colons = time.get(2) == Some(&b':') && time.get(5) == Some(&b':');
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let valid = colons && hour < 24 && minute < 60 && second <= 60 && (1..=last).contains(&day);
    valid.then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// The days from 1970-01-01 to a day of the Gregorian calendar. Years are counted from March, so
/// that the leap day is the last day of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The year, month and day of a number of days since 1970-01-01: the inverse of `days`.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

fn two_digits(value: i64) -> [u8; 2] {
    [b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn the_three_forms_are_one_second() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 08:49:37 GMT; length=12",
            "Sunday, 06-Nov-94 08:49:37 GMT; length=12",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse_http_date(text.as_bytes(), NOW), Some(784_111_777), "{text}");
        }
        assert_eq!(&http_date(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&http_date(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "0",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:3x GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun Nov  6 08:49:37 94",
        ] {
            assert_eq!(parse_http_date(text.as_bytes(), NOW), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_date_is_read_as_it_was_written(seconds in -62_167_219_200_i64..253_402_300_799) {
            prop_assert_eq!(parse_http_date(&http_date(seconds), NOW), Some(seconds));
        }

        #[test]
        fn no_text_breaks_the_reader(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse_http_date(&text, NOW);
        }
    }
}
