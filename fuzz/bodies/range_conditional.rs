//! Evaluates a Range field and the fields of a conditional request. The input is two bytes for the
//! length of the content, and then lines: the value of Range first, then other fields. The parts of
//! a range must lie within the content and not be longer in total, and the verdict must be possible
//! for the fields that are present.

use evenkeel_message::{
    Fields, Method, Part, RangeLimits, Ranges, Validators, Verdict, evaluate, http_date,
    parse_http_date, parse_ranges, range_holds,
};

const NOW: i64 = 1_800_000_000;
const MODIFIED: i64 = 1_700_000_000;
const NAMES: [&str; 5] =
    ["If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"];

/// One run of the fuzzer, or one file of the corpus.
pub fn run(data: &[u8]) {
    let [high, low, text @ ..] = data else { return };
    let length = u64::from(u16::from_be_bytes([*high, *low]));
    let mut lines = text.split(|byte| *byte == b'\n');
    ranges(lines.next().unwrap_or_default(), length);
    let mut fields = Fields::new();
    for line in lines.take(8) {
        let Some((choice, value)) = line.split_first() else { continue };
        fields.add(NAMES[usize::from(*choice) % NAMES.len()], value);
        if let Some(seconds) = parse_http_date(value, NOW) {
            assert_eq!(parse_http_date(&http_date(seconds), NOW), Some(seconds));
        }
    }
    conditions(&fields);
}

fn ranges(set: &[u8], length: u64) {
    let field = [b"bytes=", set].concat();
    let limits = RangeLimits { ranges: Some(5), overlaps: Some(3), reversals: Some(2) };
    if let Ranges::Parts(parts) = parse_ranges(&field, length, &limits) {
        assert!(!parts.is_empty() && parts.len() <= 5);
        assert!(parts.iter().all(|part| part.start <= part.end && part.end < length));
        assert!(parts.iter().map(Part::length).sum::<u64>() <= length);
    }
}

fn conditions(fields: &Fields) {
    let validators = Validators { etag: Some(b"\"a\""), modified: Some(MODIFIED) };
    for method in [Method::Get, Method::Post] {
        match evaluate(method, fields, &validators, NOW) {
            Verdict::Proceed => {}
            Verdict::NotModified => assert!(
                method == Method::Get
                    && (fields.contains("If-None-Match") || fields.contains("If-Modified-Since"))
            ),
            Verdict::Failed => assert!(fields.iter().any(|(name, _)| name != b"If-Range")),
        }
    }
    if !range_holds(fields, &validators, NOW) {
        assert!(fields.contains("If-Range"));
    }
}
