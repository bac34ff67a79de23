//! Byte ranges (RFC 9110, section 14; byterange_filter.c: ap_set_byterange): computes the parts to
//! send from a Range field and the length of the content.
//!
//! A field that is wrong in any part, asks for more than the whole or exceeds a limit is ignored,
//! as Apache does and the RFC allows.

/// Bounds on what one request may ask for. None means no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeLimits {
    /// MaxRanges: parts after merging; 0 refuses all ranges.
    pub ranges: Option<u32>,
    /// MaxRangeOverlaps: how many ranges may be merged into their predecessor.
    pub overlaps: Option<u32>,
    /// MaxRangeReversals: how many merged ranges may begin before their predecessor.
    pub reversals: Option<u32>,
}

impl Default for RangeLimits {
    fn default() -> Self {
        Self { ranges: Some(200), overlaps: Some(20), reversals: Some(20) }
    }
}

/// The parts of the content to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// All of the content: the field is ignored.
    Whole,
    /// 416: none of the requested bytes exist.
    Unsatisfiable,
    /// These parts, in the requested order.
    Parts(Vec<Part>),
}

/// One part of the content. It lies within the content and is at least one byte long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The offset of its first byte.
    pub start: u64,
    /// The offset of its last byte.
    pub end: u64,
}

impl Part {
    /// Its length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.end.saturating_sub(self.start).saturating_add(1)
    }
}

/// How a range of the field relates to the content.
enum Spec {
    Wrong,
    Beyond,
    Within(Part),
}

/// Parses a Range field for content of `length` bytes.
#[must_use]
pub fn parse_ranges(field: &[u8], length: u64, limits: &RangeLimits) -> Ranges {
    let Some((unit, set)) = field.split_at_checked(6) else { return Ranges::Whole };
    if !unit.eq_ignore_ascii_case(b"bytes=") || length == 0 {
        return Ranges::Whole;
    }
    let mut collected = Collected::default();
    let mut beyond = false;
    // As in Apache, an empty element is skipped unless it is the first.
    let elements = set.split(|byte| *byte == b',').enumerate();
    for (_, text) in elements.filter(|(index, text)| *index == 0 || !text.is_empty()) {
        match parse_spec(text, length) {
            Spec::Wrong => return Ranges::Whole,
            Spec::Beyond => beyond = true,
            Spec::Within(part) => collected.add(part),
        }
        if collected.exceeds(limits) {
            return Ranges::Whole;
        }
    }
    let parts = collected.parts;
    match parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.length())) {
        Some(0) if beyond => Ranges::Unsatisfiable,
        Some(sum) if sum > 0 && sum <= length => Ranges::Parts(parts),
        _ => Ranges::Whole,
    }
}

/// The parts found so far, and how many ranges were merged.
#[derive(Default)]
struct Collected {
    parts: Vec<Part>,
    overlaps: u32,
    reversals: u32,
}

impl Collected {
    /// Adds a part, and merges it with the last part if the two touch.
    fn add(&mut self, part: Part) {
        if let Some(last) = self.parts.last_mut() {
            let touches = part.start <= last.end.saturating_add(1)
                && last.start <= part.end.saturating_add(1);
            if touches {
                self.overlaps = self.overlaps.saturating_add(1);
                if part.start < last.start {
                    self.reversals = self.reversals.saturating_add(1);
                }
                last.start = last.start.min(part.start);
                last.end = last.end.max(part.end);
                return;
            }
        }
        self.parts.push(part);
    }

    fn exceeds(&self, limits: &RangeLimits) -> bool {
        let over = |count: u32, limit: Option<u32>| limit.is_some_and(|limit| count > limit);
        let parts = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        over(parts, limits.ranges)
            || over(self.overlaps, limits.overlaps)
            || over(self.reversals, limits.reversals)
    }
}

/// One range: `5-9`, `5-` or `-5`.
fn parse_spec(text: &[u8], length: u64) -> Spec {
    let last = length.saturating_sub(1);
    let Some(dash) = text.iter().position(|byte| *byte == b'-') else { return Spec::Wrong };
    let (first, rest) = text.split_at(dash);
    let behind = rest.get(1..).unwrap_or_default();
    let (start, end) = match (number(first), number(behind)) {
        (None, Some(count)) if first.is_empty() && count > 0 => {
            (length.saturating_sub(count), last)
        }
        (Some(start), Some(end)) if start <= end => (start, end.min(last)),
        (Some(start), None) if behind.is_empty() => (start, last),
        _ => return Spec::Wrong,
    };
    if start > last { Spec::Beyond } else { Spec::Within(Part { start, end }) }
}

/// Parses a number of digits only, up to the largest possible file length.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    (value <= i64::MAX as u64).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(set: &str, limits: &RangeLimits) -> String {
        match parse_ranges(format!("bytes={set}").as_bytes(), 100, limits) {
            Ranges::Whole => "whole".into(),
            Ranges::Unsatisfiable => "416".into(),
            Ranges::Parts(parts) => {
                let parts: Vec<_> =
                    parts.iter().map(|part| format!("{}-{}", part.start, part.end)).collect();
                parts.join(",")
            }
        }
    }

    #[test]
    fn ranges_are_read_as_apache_reads_them() {
        for (set, expected) in [
            ("0-", "0-99"),
            ("0-1000", "0-99"),
            ("-5", "95-99"),
            ("-0", "whole"),
            ("-1000", "0-99"),
            ("99-", "99-99"),
            ("100-", "416"),
            ("5-2", "whole"),
            ("a-b", "whole"),
            ("", "whole"),
            (",", "whole"),
            ("1-2,", "1-2"),
            ("1-2,,4-5", "1-2,4-5"),
            (",1-2", "whole"),
            (" 1-2", "whole"),
            ("1-2, 4-5", "whole"),
            ("1-2,200-300", "1-2"),
            ("200-300,1-2", "1-2"),
            ("200-300,-0", "whole"),
            ("1-2,3-4", "1-4"),
            ("3-8,1-5", "1-8"),
            ("3-8,1-20", "1-20"),
            ("1-5,10-20,3-12", "1-5,3-20"),
            ("10-20,0-5", "10-20,0-5"),
            ("0-90,20-99", "0-99"),
            ("0-60,70-99,10-65", "whole"),
            ("1-2,x", "whole"),
            ("9223372036854775807-", "416"),
            ("9223372036854775808-", "whole"),
            ("0-18446744073709551616", "whole"),
            ("+1-2", "whole"),
            ("--5", "whole"),
            ("1--5", "whole"),
        ] {
            assert_eq!(ranges(set, &RangeLimits::default()), expected, "{set}");
        }
        let limits = RangeLimits::default();
        assert_eq!(parse_ranges(b"lines=1-2", 100, &limits), Ranges::Whole);
        assert_eq!(parse_ranges(b"bytes=0-", 0, &limits), Ranges::Whole);
    }

    #[test]
    fn limits_make_a_field_be_ignored() {
        let none = RangeLimits { ranges: None, overlaps: None, reversals: None };
        let two = RangeLimits { ranges: Some(2), ..none };
        assert_eq!(ranges("1-2,3-4,5-6", &two), "1-6");
        assert_eq!(ranges("1-2,4-5,7-8", &two), "whole");
        assert_eq!(ranges("1-2", &RangeLimits { ranges: Some(0), ..none }), "whole");
        let overlaps = RangeLimits { overlaps: Some(0), ..none };
        assert_eq!(ranges("1-2,3-4", &overlaps), "whole");
        assert_eq!(ranges("1-2,5-6", &overlaps), "1-2,5-6");
        let reversals = RangeLimits { reversals: Some(0), ..none };
        assert_eq!(ranges("10-20,0-5", &reversals), "10-20,0-5");
        assert_eq!(ranges("10-20,5-12", &reversals), "whole");
        assert_eq!(ranges("3-8,1-20", &reversals), "whole");
    }

    proptest! {
        #[test]
        fn parts_lie_within_the_content_and_are_no_more_than_it(
            text in "[0-9,-]{0,40}", length in 0..200_u64,
        ) {
            let field = format!("bytes={text}");
            if let Ranges::Parts(parts) =
                parse_ranges(field.as_bytes(), length, &RangeLimits::default())
            {
                prop_assert!(!parts.is_empty());
                prop_assert!(parts.iter().all(|p| p.start <= p.end && p.end < length));
                prop_assert!(parts.iter().map(Part::length).sum::<u64>() <= length);
            }
        }

        #[test]
        fn no_text_breaks_the_reader(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse_ranges(&text, 100, &RangeLimits::default());
        }
    }
}
