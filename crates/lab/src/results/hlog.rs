//! HdrHistogram's log format (V2): a line for each interval, with its histogram deflated and in
//! base64. Histograms are of nanoseconds. Other tools can read and write these files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use std::fmt::Write as _;

/// One line of a log.
pub struct Interval {
    /// The beginning, in seconds since the beginning of the log.
    pub from_s: f64,
    /// The histogram.
    pub histogram: Histogram<u64>,
}

/// The lines before the first interval. `what` says which times they are.
#[must_use]
pub fn heading(what: &str, started_us: u64) -> String {
    let start_s = started_us as f64 / 1e6;
    format!(
        "#[Evenkeel {}: {what} in nanoseconds, interval maxima in milliseconds]\n\
         #[Histogram log format version 1.3]\n\
         #[StartTime: {start_s:.3} (seconds since epoch)]\n\
         #[BaseTime: {start_s:.3} (seconds since epoch)]\n\
         \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\
         \"Interval_Compressed_Histogram\"\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// The line of an interval.
///
/// # Errors
///
/// The histogram could not be encoded.
pub fn line(from_s: f64, long_s: f64, histogram: &Histogram<u64>) -> Result<String, String> {
    let mut bytes = Vec::new();
    let encoded = V2DeflateSerializer::new().serialize(histogram, &mut bytes);
    encoded.map_err(|error| format!("a histogram could not be encoded: {error}"))?;
    let longest_ms = histogram.max() as f64 / 1e6;
    let mut text = format!("{from_s:.3},{long_s:.3},{longest_ms:.3},");
    STANDARD.encode_string(&bytes, &mut text);
    // Writing to a text cannot fail.
    let _written = writeln!(text);
    Ok(text)
}

/// Passes the intervals of a log to `take` one by one, because all of them may be large. A last
/// line that was cut off during the run is left out.
///
/// # Errors
///
/// Which line cannot be parsed, or the error of `take`.
pub fn parse(
    text: &str,
    mut take: impl FnMut(Interval) -> Result<(), String>,
) -> Result<(), String> {
    let whole = text.get(..text.rfind('\n').map_or(0, |end| end + 1)).unwrap_or_default();
    let mut number = 0;
    let mut deserializer = Deserializer::new();
    for entry in IntervalLogIterator::new(whole.as_bytes()) {
        let entry = entry.map_err(|error| format!("no log of HdrHistogram: {error:?}"))?;
        let LogEntry::Interval(interval) = entry else { continue };
        number += 1;
        let bad = |error: String| format!("interval {number}: {error}");
        let bytes =
            STANDARD.decode(interval.encoded_histogram()).map_err(|e| bad(e.to_string()))?;
        let histogram: Histogram<u64> =
            deserializer.deserialize(&mut bytes.as_slice()).map_err(|e| bad(e.to_string()))?;
        take(Interval { from_s: interval.start_timestamp().as_secs_f64(), histogram })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_back_up_to_where_it_was_cut() {
        let mut histogram = Histogram::new(3).unwrap();
        for value in [1_000, 2_000_000, 3_000_000_000_u64] {
            histogram.record(value).unwrap();
        }
        let mut text = heading("response times", 1_700_000_000_000_000);
        text += &line(0.0, 1.0, &histogram).unwrap();
        text += &line(1.0, 1.0, &histogram).unwrap();
        let read = |text: &str| {
            let mut intervals = Vec::new();
            parse(text, |interval| {
                intervals.push(interval);
                Ok(())
            })
            .map(|()| intervals)
        };
        let intervals = read(&text).unwrap();
        assert_eq!(intervals.len(), 2);
        assert!(intervals[1].from_s == 1.0 && intervals[1].histogram == histogram);
        assert_eq!(read(&text[..text.len() - 9]).unwrap().len(), 1);
        assert!(read("0.0,1.0,3.0,!!!!\n").is_err());
        assert_eq!(parse(&text, |_| Err("enough".to_owned())), Err("enough".to_owned()));
    }
}
