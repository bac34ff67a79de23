//! Writes times in logs from microseconds since 1970, in the machine's time zone. Each thread
//! caches the texts of the current second, so that a line only copies them. Nothing here reads a
//! clock.

use crate::escape::padded;
use jiff::fmt::strtime::{BrokenDownTime, Config};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::cell::RefCell;

/// A parsed strftime format, from `%{FORMAT}t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimeFormat(Box<str>);

/// The texts of one second.
struct Second {
    second: i64,
    /// `[10/Oct/2000:13:55:36 -0700]`
    access: Vec<u8>,
    /// `Tue Oct 10 13:55:36` and `2000`: the parts of the error log's time before and after the
    /// microseconds.
    error: (Vec<u8>, Vec<u8>),
}

thread_local! {
    static ZONE: TimeZone = TimeZone::system();
    static SECOND: RefCell<Second> = const {
        RefCell::new(Second {
            second: i64::MIN,
            access: Vec::new(),
            error: (Vec::new(), Vec::new()),
        })
    };
}

/// Appends `[10/Oct/2000:13:55:36 -0700]`, the time of the common log format.
pub(crate) fn write_access_time(time_us: u64, out: &mut Vec<u8>) {
    with_second(time_us, |second| out.extend_from_slice(&second.access));
}

/// Appends `Tue Oct 10 13:55:36.012345 2000`, the fraction with 6, 3 or 0 digits.
pub(crate) fn write_error_time(time_us: u64, fraction: usize, out: &mut Vec<u8>) {
    with_second(time_us, |second| {
        out.extend_from_slice(&second.error.0);
        write_fraction(time_us, fraction, out);
        out.push(b' ');
        out.extend_from_slice(&second.error.1);
    });
}

/// Appends `2000-10-10 13:55:36.012345` (Apache: AP_CTIME_OPTION_COMPACT).
pub(crate) fn write_compact_time(time_us: u64, fraction: usize, out: &mut Vec<u8>) {
    format_into("%Y-%m-%d %H:%M:%S", &local(time_us), out);
    write_fraction(time_us, fraction, out);
}

/// Appends ` -0700`, the offset from UTC at that time.
pub(crate) fn write_zone(time_us: u64, out: &mut Vec<u8>) {
    format_into(" %z", &local(time_us), out);
}

/// Appends `Oct 10 13:55:36`, the time of RFC 3164.
pub(crate) fn write_syslog_time(time_us: u64, out: &mut Vec<u8>) {
    format_into("%b %e %H:%M:%S", &local(time_us), out);
}

fn write_fraction(time_us: u64, digits: usize, out: &mut Vec<u8>) {
    let micros = time_us % 1_000_000;
    match digits {
        0 => {}
        3 => {
            out.push(b'.');
            padded(micros / 1_000, 3, out);
        }
        _ => {
            out.push(b'.');
            padded(micros, 6, out);
        }
    }
}

fn with_second(time_us: u64, write: impl FnOnce(&Second)) {
    SECOND.with_borrow_mut(|kept| {
        let second = (time_us / 1_000_000) as i64;
        if kept.second != second {
            let zoned = local(time_us);
            kept.access.clear();
            format_into("[%d/%b/%Y:%H:%M:%S %z]", &zoned, &mut kept.access);
            kept.error.0.clear();
            format_into("%a %b %d %H:%M:%S", &zoned, &mut kept.error.0);
            kept.error.1.clear();
            format_into("%Y", &zoned, &mut kept.error.1);
            kept.second = second;
        }
        write(kept);
    });
}

/// The time in the machine's zone. A time outside the calendar is shown as 1970.
fn local(time_us: u64) -> Zoned {
    let timestamp = i64::try_from(time_us)
        .ok()
        .and_then(|micros| Timestamp::from_microsecond(micros).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH);
    ZONE.with(|zone| timestamp.to_zoned(zone.clone()))
}

fn format_into(format: &str, zoned: &Zoned, out: &mut Vec<u8>) {
    let before = out.len();
    let mut text = String::new();
    let written = BrokenDownTime::from(zoned).format_with_config(
        &Config::new().lenient(true),
        format,
        &mut text,
    );
    match written {
        Ok(()) => out.extend_from_slice(text.as_bytes()),
        Err(_) => out.truncate(before),
    }
}

impl TimeFormat {
    /// Parses a strftime format. What depends on a locale is that of the C locale, in which Apache
    /// runs. An unknown conversion stands for itself.
    pub(crate) fn parse(format: &str) -> TimeFormat {
        let mut text = String::with_capacity(format.len() + 8);
        let mut rest = format.chars().peekable();
        while let Some(c) = rest.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            let mut conversion = rest.next();
            if matches!(conversion, Some('E' | 'O')) && rest.peek().is_some_and(|c| known(*c)) {
                // Alternative forms depend on the locale, and the C locale has none.
                conversion = rest.next();
            }
            match conversion {
                Some('c') => text.push_str("%a %b %e %H:%M:%S %Y"),
                Some('x') => text.push_str("%m/%d/%y"),
                Some('X') => text.push_str("%H:%M:%S"),
                Some('r') => text.push_str("%I:%M:%S %p"),
                Some(letter) if known(letter) => {
                    text.push('%');
                    text.push(letter);
                }
                Some(unknown) => {
                    text.push_str("%%");
                    text.push(unknown);
                }
                None => text.push_str("%%"),
            }
        }
        TimeFormat(text.into())
    }

    /// Appends the time.
    pub(crate) fn write(&self, time_us: u64, out: &mut Vec<u8>) {
        format_into(&self.0, &local(time_us), out);
    }
}

/// Whether a letter is a conversion of strftime(3).
fn known(letter: char) -> bool {
    "%AaBbCcDdeFGgHhIjklMmnPpRrSsTtUuVWwXxYyZz".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2000-10-10 20:55:36.012345 UTC. The tests run in the machine's time zone, so they compare
    /// only the parts that are the same in all zones of whole hours.
    const TIME: u64 = 971_211_336_012_345;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn access_time_has_the_common_log_format() {
        let time = text(|out| write_access_time(TIME, out));
        assert_eq!(time.len(), "[10/Oct/2000:13:55:36 -0700]".len());
        assert!(time.contains("/Oct/2000:") && time.ends_with(']'), "{time}");
        // Another second of the same thread does not use the cached text.
        assert_ne!(time, text(|out| write_access_time(TIME + 1_000_000, out)));
        assert_eq!(time, text(|out| write_access_time(TIME, out)));
    }

    #[test]
    fn error_time_has_microseconds_before_the_year() {
        let time = text(|out| write_error_time(TIME, 6, out));
        assert!(time.ends_with(".012345 2000") && time.contains(" Oct "), "{time}");
        let compact = text(|out| write_compact_time(TIME, 3, out));
        assert!(compact.starts_with("2000-10-1") && compact.ends_with(".012"), "{compact}");
    }

    #[test]
    fn formats_are_those_of_the_c_locale() {
        let c = text(|out| TimeFormat::parse("%c|%x|%s|%E%|%q|%E |%Ex|%").write(TIME, out));
        assert!(c.starts_with("Tue Oct 10 ") || c.starts_with("Wed Oct 11 "), "{c}");
        assert!(c.contains("/00|971211336|%|%q|%E |10/1") && c.ends_with("/00|%"), "{c}");
    }
}
