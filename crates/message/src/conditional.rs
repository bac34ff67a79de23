//! Conditional requests (RFC 9110, section 13): compares the fields of a request with the
//! validators of the resource, and says what to do. It reads no clock and no file.
//!
//! Where Apache's order differs from RFC 9110's, the RFC is followed: Apache lets a date overrule
//! an entity tag, and compares tags strongly if a range is requested.

use crate::date::parse_http_date;
use crate::{Fields, Method, Name, trim};

/// The validators that tell one state of a resource from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// The entity tag as it is sent, with quotes and `W/`.
    pub etag: Option<&'a [u8]>,
    /// Last-Modified in seconds since 1970, as it is sent.
    pub modified: Option<i64>,
}

/// What to do with a conditional request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is carried out.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates If-Match, If-Unmodified-Since, If-None-Match and If-Modified-Since in the order of
/// RFC 9110, section 13.2.2, for a resource that exists. `now` is in seconds since 1970.
#[must_use]
pub fn evaluate(method: Method, fields: &Fields, validators: &Validators<'_>, now: i64) -> Verdict {
    let names = [Name::IfMatch, Name::IfNoneMatch, Name::IfModifiedSince, Name::IfUnmodifiedSince];
    if !names.iter().any(|name| fields.contains(*name)) {
        return Verdict::Proceed;
    }
    let reads = matches!(method, Method::Get | Method::Head);
    let date = |name: Name| fields.first(name).and_then(|text| parse_http_date(text, now));
    if fields.contains(Name::IfMatch) {
        if !matches_any(fields, Name::IfMatch, validators.etag, strongly_equal) {
            return Verdict::Failed;
        }
    } else if let (Some(date), Some(modified)) =
        (date(Name::IfUnmodifiedSince), validators.modified)
        && modified > date
    {
        return Verdict::Failed;
    }
    if fields.contains(Name::IfNoneMatch) {
        return match matches_any(fields, Name::IfNoneMatch, validators.etag, weakly_equal) {
            false => Verdict::Proceed,
            true if reads => Verdict::NotModified,
            true => Verdict::Failed,
        };
    }
    if reads
        && let (Some(date), Some(modified)) = (date(Name::IfModifiedSince), validators.modified)
        // A client cannot have seen anything at a date in the future.
        && date <= now
        && modified <= date
    {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// Whether the Range field applies, according to If-Range (RFC 9110, section 13.1.5).
#[must_use]
pub fn range_holds(fields: &Fields, validators: &Validators<'_>, now: i64) -> bool {
    let Some(condition) = fields.first(Name::IfRange).map(trim) else { return true };
    if condition.ends_with(b"\"") {
        return validators.etag.is_some_and(|etag| strongly_equal(etag, condition));
    }
    let (Some(date), Some(modified)) = (parse_http_date(condition, now), validators.modified)
    else {
        return false;
    };
    // A date tells two states apart only if it is at least a minute old (as in Apache:
    // http_protocol.c, ap_condition_if_range).
    date == modified && now >= modified.saturating_add(60)
}

/// Whether a list of entity tags begins with `*` or holds a tag that compares equal. A `*` after
/// other tags is not a tag (RFC 9110, section 13.1.1; http_protocol.c: ap_condition_if_match).
fn matches_any(
    fields: &Fields,
    name: Name,
    etag: Option<&[u8]>,
    equal: fn(&[u8], &[u8]) -> bool,
) -> bool {
    let Some(list) = fields.whole(name) else { return false };
    let names_it = |etag: &[u8]| match *list == *etag {
        // Nearly all lists hold the one tag that the server sent.
        true => equal(&list, etag),
        false => Tags { rest: &list }.any(|tag| equal(tag, etag)),
    };
    trim(&list).starts_with(b"*") || etag.is_some_and(names_it)
}

/// The strong comparison of RFC 9110, section 8.8.3.2.
fn strongly_equal(a: &[u8], b: &[u8]) -> bool {
    a == b && !a.starts_with(b"W/")
}

/// The weak comparison.
fn weakly_equal(a: &[u8], b: &[u8]) -> bool {
    let opaque = |tag: &[u8]| -> usize { if tag.starts_with(b"W/") { 2 } else { 0 } };
    a.get(opaque(a)..) == b.get(opaque(b)..)
}

/// Iterates over the well-formed entity tags of a list. Anything else is skipped up to the next
/// comma.
struct Tags<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Tags<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            while let [b' ' | b'\t' | b',', rest @ ..] = self.rest {
                self.rest = rest;
            }
            if self.rest.is_empty() {
                return None;
            }
            let (tag, rest) = split_tag(self.rest);
            self.rest = rest;
            if tag.is_some() {
                return tag;
            }
        }
    }
}

/// Splits off the text up to the next comma: the entity tag, if that text is one, and the rest.
fn split_tag(text: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let quote = if text.starts_with(b"W/") { 2 } else { 0 };
    let closing = match text.get(quote) {
        Some(b'"') => text
            .iter()
            .skip(quote + 1)
            .position(|byte| *byte == b'"')
            .map(|length| quote + 1 + length),
        _ => None,
    };
    let searched = closing.map_or(0, |at| at + 1);
    let behind = text.get(searched..).unwrap_or_default();
    let comma = behind.iter().position(|byte| *byte == b',').unwrap_or(behind.len());
    let clean = closing.is_some() && behind.iter().take(comma).all(|b| matches!(b, b' ' | b'\t'));
    let tag = if clean { text.get(..searched) } else { None };
    (tag, behind.get(comma..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_date;

    const NOW: i64 = 1_800_000_000;
    const MODIFIED: i64 = 1_704_164_645;

    fn verdict(method: Method, pairs: &[(&str, &str)]) -> Verdict {
        let mut fields = Fields::new();
        for (name, value) in pairs {
            fields.add(name, value);
        }
        let validators = Validators { etag: Some(b"\"64-60d\""), modified: Some(MODIFIED) };
        evaluate(method, &fields, &validators, NOW)
    }

    fn date(seconds: i64) -> String {
        String::from_utf8(http_date(seconds).to_vec()).unwrap()
    }

    #[test]
    fn tags_match_weakly_for_reading_and_strongly_for_changing() {
        use Verdict::{Failed, NotModified, Proceed};
        for (list, verdict_none, verdict_match) in [
            ("\"64-60d\"", NotModified, Proceed),
            ("W/\"64-60d\"", NotModified, Failed),
            ("\"x\", \"64-60d\"", NotModified, Proceed),
            ("\"64-60d\" , \"unfinished", NotModified, Proceed),
            ("\"a,b\",\"64-60d\"", NotModified, Proceed),
            ("*", NotModified, Proceed),
            ("\"x\"", Proceed, Failed),
            ("64-60d", Proceed, Failed),
            ("\"64-60d\" more", Proceed, Failed),
            ("w/\"64-60d\"", Proceed, Failed),
            ("", Proceed, Failed),
        ] {
            assert_eq!(verdict(Method::Get, &[("If-None-Match", list)]), verdict_none, "{list}");
            assert_eq!(verdict(Method::Get, &[("If-Match", list)]), verdict_match, "{list}");
        }
        let star_behind = [("If-Match", "\"x\""), ("If-Match", "*")];
        assert_eq!(verdict(Method::Get, &star_behind), Failed);
        let star_behind = [("If-None-Match", "\"x\""), ("If-None-Match", "*")];
        assert_eq!(verdict(Method::Get, &star_behind), Proceed);
        assert_eq!(verdict(Method::Get, &[("If-None-Match", "*, \"x\"")]), NotModified);
        assert_eq!(verdict(Method::Post, &[("If-None-Match", "*")]), Failed);
        assert_eq!(verdict(Method::Head, &[("If-None-Match", "*")]), NotModified);
        assert_eq!(
            verdict(Method::Get, &[("If-None-Match", "\"x\""), ("If-None-Match", "\"64-60d\"")]),
            NotModified
        );
    }

    #[test]
    fn dates_decide_where_no_tag_does() {
        use Verdict::{Failed, NotModified, Proceed};
        let (same, before) = (date(MODIFIED), date(MODIFIED - 1));
        let since = |date: &str| verdict(Method::Get, &[("If-Modified-Since", date)]);
        assert_eq!((since(&same), since(&before)), (NotModified, Proceed));
        assert_eq!((since(&date(NOW)), since(&date(NOW + 1))), (NotModified, Proceed));
        assert_eq!(since("yesterday"), Proceed);
        assert_eq!(verdict(Method::Post, &[("If-Modified-Since", &same)]), Proceed);
        let unless = |date: &str| verdict(Method::Get, &[("If-Unmodified-Since", date)]);
        assert_eq!((unless(&same), unless(&before), unless("x")), (Proceed, Failed, Proceed));
        // RFC 9110, 13.1.3 and 13.1.4: the field with a tag makes the field with a date irrelevant.
        let both = [("If-None-Match", "\"64-60d\""), ("If-Modified-Since", &*before)];
        assert_eq!(verdict(Method::Get, &both), NotModified);
        let both = [("If-None-Match", "\"x\""), ("If-Modified-Since", &*same)];
        assert_eq!(verdict(Method::Get, &both), Proceed);
        let both = [("If-Match", "\"64-60d\""), ("If-Unmodified-Since", &*before)];
        assert_eq!(verdict(Method::Get, &both), Proceed);
    }

    #[test]
    fn without_validators_only_the_star_matches() {
        let mut fields = Fields::new();
        fields.add("If-None-Match", "\"x\"");
        fields.add("If-Modified-Since", date(NOW));
        let nothing = Validators::default();
        assert_eq!(evaluate(Method::Get, &fields, &nothing, NOW), Verdict::Proceed);
        fields.set("If-None-Match", "*");
        assert_eq!(evaluate(Method::Get, &fields, &nothing, NOW), Verdict::NotModified);
        fields.set("If-Match", "\"x\"");
        assert_eq!(evaluate(Method::Get, &fields, &nothing, NOW), Verdict::Failed);
    }

    #[test]
    fn a_range_is_heeded_only_for_the_very_same_bytes() {
        let holds = |condition: &str, etag: &'static [u8], now: i64| {
            let mut fields = Fields::new();
            fields.add("If-Range", condition);
            range_holds(&fields, &Validators { etag: Some(etag), modified: Some(MODIFIED) }, now)
        };
        assert!(holds("\"a\"", b"\"a\"", NOW) && !holds("\"b\"", b"\"a\"", NOW));
        assert!(!holds("W/\"a\"", b"W/\"a\"", NOW));
        assert!(holds(&date(MODIFIED), b"", MODIFIED + 60));
        assert!(!holds(&date(MODIFIED), b"", MODIFIED + 59));
        assert!(!holds(&date(MODIFIED + 1), b"", NOW) && !holds("garbage", b"", NOW));
        assert!(range_holds(&Fields::new(), &Validators::default(), NOW));
    }
}
