//! Parses the times of logs, in the forms of %t and of JSON, to times since 1970. A time without a
//! zone counts as UTC, because a replay only needs differences.

use jiff::Timestamp;
use jiff::fmt::strtime::BrokenDownTime;

/// A time since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Stamp {
    /// The seconds.
    pub(in super::super) second: i64,
    /// The nanoseconds of the second; none if the log has whole seconds.
    pub(in super::super) nanos: Option<u32>,
}

/// The forms of %t.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `[10/Oct/2000:13:55:36 -0700]`
    Common,
    Seconds,
    Millis,
    Micros,
    MillisOfSecond,
    MicrosOfSecond,
    /// A format of strftime.
    Custom(String),
}

/// What the items of a line say about its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// The days since 1970.
    day: Option<i64>,
    second_of_day: Option<i64>,
    /// East of Greenwich, in seconds.
    offset: Option<i64>,
    since_1970: Option<i64>,
    nanos: Option<u32>,
}

impl Shape {
    /// From the argument of `%{ARGUMENT}t`, and whether it is about the end of the exchange.
    pub(super) fn new(argument: &str) -> (Self, bool) {
        let whole = |rest: &str| rest.is_empty() || rest.starts_with(':');
        let (rest, end) = match (argument.strip_prefix("begin"), argument.strip_prefix("end")) {
            (Some(rest), _) if whole(rest) => (rest, false),
            (_, Some(rest)) if whole(rest) => (rest, true),
            _ => (argument, false),
        };
        let shape = match rest.strip_prefix(':').unwrap_or(rest) {
            "" => Shape::Common,
            "sec" => Shape::Seconds,
            "msec" => Shape::Millis,
            "usec" => Shape::Micros,
            "msec_frac" => Shape::MillisOfSecond,
            "usec_frac" => Shape::MicrosOfSecond,
            custom => Shape::Custom(custom.to_owned()),
        };
        (shape, end)
    }

    /// Parses a time at the beginning of `text` into `parts`. Returns its length.
    pub(super) fn take(&self, text: &[u8], parts: &mut Parts) -> Option<usize> {
        match self {
            Shape::Common => take_common(text, parts),
            Shape::Custom(format) => take_custom(format, text, parts),
            Shape::Seconds => {
                let (value, used) = digits(text)?;
                parts.since_1970 = Some(value);
                Some(used)
            }
            Shape::Millis => take_since_1970(text, parts, 1_000),
            Shape::Micros => take_since_1970(text, parts, 1_000_000),
            Shape::MillisOfSecond => take_fraction(text, parts, 3),
            Shape::MicrosOfSecond => take_fraction(text, parts, 6),
        }
    }
}

impl Parts {
    /// The time, if the parts are sufficient.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let second = match (self.since_1970, self.day, self.second_of_day) {
            (Some(second), ..) => second,
            (None, Some(day), second) => {
                day * 86_400 + second.unwrap_or(0) - self.offset.unwrap_or(0)
            }
            _ => return None,
        };
        Some(Stamp { second, nanos: self.nanos })
    }
}

impl Stamp {
    /// From a number in JSON: seconds, or, depending on its size, milliseconds, microseconds or
    /// nanoseconds.
    pub(super) fn of_number(number: f64) -> Option<Self> {
        if !number.is_finite() || number < 0.0 {
            return None;
        }
        // The largest number that counts as seconds is the beginning of the year 5138.
        let unit = [1.0, 1e3, 1e6, 1e9].into_iter().find(|unit| number / unit < 1e11)?;
        let seconds = number / unit;
        let nanos = (seconds.fract() * 1e9) as u32;
        // Whole seconds are spread, like those of a text.
        let nanos = (unit > 1.0 || nanos > 0).then_some(nanos);
        Some(Self { second: seconds as i64, nanos })
    }

    /// From a text in JSON: in the form of RFC 3339, or of %t with or without its brackets.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        let mut parts = Parts::default();
        let spaced = text.replacen(' ', "T", 1);
        if let Ok(time) = text.parse::<Timestamp>().or_else(|_| spaced.parse::<Timestamp>()) {
            let nanos =
                text.contains(['.', ',']).then_some(time.subsec_nanosecond().unsigned_abs());
            return Some(Self { second: time.as_second(), nanos });
        }
        if let Ok(number) = text.parse::<f64>() {
            return Self::of_number(number);
        }
        let bracketed = if text.starts_with('[') { text.to_owned() } else { format!("[{text}]") };
        let civil = "%Y-%m-%dT%H:%M:%S";
        let used = take_common(bracketed.as_bytes(), &mut parts)
            .or_else(|| take_custom(civil, spaced.as_bytes(), &mut parts));
        used.and_then(|_| parts.stamp())
    }
}

/// `[10/Oct/2000:13:55:36 -0700]`
fn take_common(text: &[u8], parts: &mut Parts) -> Option<usize> {
    const LENGTH: usize = 28;
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let text = text.get(..LENGTH)?;
    let part = |from: usize, count: usize| text.get(from..from + count);
    let number = |from, count| {
        let (value, used) = digits(part(from, count)?)?;
        (used == count).then_some(value)
    };
    let signs = [(0, b'['), (3, b'/'), (7, b'/'), (12, b':'), (15, b':'), (18, b':'), (21, b' ')];
    let in_place = |(at, sign): (usize, u8)| text.get(at) == Some(&sign);
    if !signs.into_iter().chain([(27, b']')]).all(in_place) {
        return None;
    }
    let month = MONTHS.chunks(3).position(|name| Some(name) == part(4, 3))? as i64 + 1;
    let (day, year) = (number(1, 2)?, number(8, 4)?);
    let (hour, minute, second) = (number(13, 2)?, number(16, 2)?, number(19, 2)?);
    let sign = match text.get(22)? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    if !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    parts.day = Some(days_since_1970(year, month, day));
    parts.second_of_day = Some(hour * 3600 + minute * 60 + second);
    parts.offset = Some(sign * (number(23, 2)? * 3600 + number(25, 2)? * 60));
    Some(LENGTH)
}

/// The days from 1970-01-01 to a day of the Gregorian calendar. Years begin in March, so that the
/// leap day is last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    // The number of days from 1 March of the year 0 to 1970.
    era * 146_097 + days - 719_468
}

fn take_custom(format: &str, text: &[u8], parts: &mut Parts) -> Option<usize> {
    // A time is short. Without a bound, parsing would be slow for long lines.
    const MOST: usize = 128;
    let text = text.get(..MOST).unwrap_or(text);
    let (time, used) = BrokenDownTime::parse_prefix(format, text).ok()?;
    if let Ok(date) = time.to_date() {
        let (year, month) = (i64::from(date.year()), i64::from(date.month()));
        parts.day = Some(days_since_1970(year, month, i64::from(date.day())));
    }
    if let Some(timestamp) = time.timestamp() {
        parts.since_1970 = Some(timestamp.as_second());
    }
    if let Ok(time) = time.to_time()
        && format.contains(['H', 'T', 'R', 'I', 'k', 'l', 'r'])
    {
        let (hour, minute) = (i64::from(time.hour()), i64::from(time.minute()));
        parts.second_of_day = Some(hour * 3600 + minute * 60 + i64::from(time.second()));
    }
    if let Some(offset) = time.offset() {
        parts.offset = Some(i64::from(offset.seconds()));
    }
    if let Some(nanos) = time.subsec_nanosecond() {
        parts.nanos = u32::try_from(nanos).ok();
    }
    Some(used)
}

fn take_since_1970(text: &[u8], parts: &mut Parts, unit: i64) -> Option<usize> {
    let (value, used) = digits(text)?;
    parts.since_1970 = Some(value / unit);
    parts.nanos = u32::try_from(value % unit * (1_000_000_000 / unit)).ok();
    Some(used)
}

fn take_fraction(text: &[u8], parts: &mut Parts, count: usize) -> Option<usize> {
    let (value, used) = digits(text.get(..count)?)?;
    let unit = 10_i64.checked_pow(9 - count as u32)?;
    parts.nanos = u32::try_from(value * unit).ok();
    (used == count).then_some(count)
}

/// The number at the beginning of a text, and its length in digits.
fn digits(text: &[u8]) -> Option<(i64, usize)> {
    let used = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let digits = text.get(..used).filter(|digits| !digits.is_empty())?;
    std::str::from_utf8(digits).ok()?.parse().ok().map(|value| (value, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(argument: &str, text: &str) -> Option<Stamp> {
        let mut parts = Parts::default();
        let used = Shape::new(argument).0.take(text.as_bytes(), &mut parts)?;
        assert_eq!(used, text.len(), "{text}");
        parts.stamp()
    }

    #[test]
    fn times_are_read_in_all_their_forms() {
        // `date -d '2000-10-10 13:55:36 -0700' +%s`
        let second = 971_211_336;
        let whole = Some(Stamp { second, nanos: None });
        assert_eq!(read("", "[10/Oct/2000:13:55:36 -0700]"), whole);
        assert_eq!(read("begin", "[10/Oct/2000:20:55:36 +0000]"), whole);
        assert_eq!(read("sec", "971211336"), whole);
        let nanos = Some(250_000_000);
        assert_eq!(read("msec", "971211336250"), Some(Stamp { second, nanos }));
        assert_eq!(read("end:usec", "971211336250000"), Some(Stamp { second, nanos }));
        assert_eq!(read("%Y-%m-%dT%H:%M:%S%z", "2000-10-10T13:55:36-0700"), whole);
        assert_eq!(read("%d/%b/%Y:%T %z", "10/Oct/2000:13:55:36 -0700"), whole);
        for text in ["[10/Oct/2000:13:55:36 -0700", "[10/Foo/2000:13:55:36 -0700]", "[x", "-"] {
            assert_eq!(read("", text), None);
        }
    }

    #[test]
    fn every_day_has_its_number() {
        // Over four centuries, each day is one more than the day before.
        let mut last = days_since_1970(1799, 12, 31);
        for year in 1800..2200 {
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let february = if leap { 29 } else { 28 };
            let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            for (month, length) in (1..).zip(lengths) {
                for day in 1..=length {
                    let number = days_since_1970(year, month, day);
                    assert_eq!(number, last + 1);
                    last = number;
                }
            }
        }
        assert_eq!(days_since_1970(1970, 1, 1), 0);
    }

    #[test]
    fn times_of_json_are_texts_or_numbers() {
        let second = 971_211_336;
        let whole = Some(Stamp { second, nanos: None });
        for text in [
            "2000-10-10T13:55:36-07:00",
            "2000-10-10 20:55:36Z",
            "2000-10-10T20:55:36",
            "2000-10-10 20:55:36",
            "10/Oct/2000:13:55:36 -0700",
            "[10/Oct/2000:13:55:36 -0700]",
            "971211336",
        ] {
            assert_eq!(Stamp::of_text(text), whole, "{text}");
        }
        let nanos = Some(500_000_000);
        assert_eq!(Stamp::of_text("2000-10-10T20:55:36.5Z"), Some(Stamp { second, nanos }));
        assert_eq!(Stamp::of_number(971_211_336.5), Some(Stamp { second, nanos }));
        assert_eq!(Stamp::of_number(971_211_336_500.0), Some(Stamp { second, nanos }));
        assert_eq!(Stamp::of_number(971_211_336_500_000.0), Some(Stamp { second, nanos }));
        assert_eq!((Stamp::of_text("noon"), Stamp::of_number(-1.0)), (None, None));
    }
}
