//! The form of times on the status page: `Saturday, 21-Nov-2026 02:10:40 UTC` in the machine's
//! zone, from microseconds since 1970 (mod_status.c: DEFAULT_TIME_FORMAT).

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The text of a time.
pub(crate) fn text(time_us: u64) -> String {
    let timestamp = i64::try_from(time_us)
        .ok()
        .and_then(|micros| Timestamp::from_microsecond(micros).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH);
    let zoned = timestamp.to_zoned(TimeZone::system());
    zoned.strftime("%A, %d-%b-%Y %H:%M:%S %Z").to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn days_and_months_have_their_names() {
        let text = super::text(971_211_336_000_000);
        assert!(text.contains("day, 1") && text.contains("-Oct-2000 "), "{text}");
    }
}
