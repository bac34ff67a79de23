//! Determines the length of a request's body from its fields (RFC 9112, section 6.3). The decision
//! is made once, here, and every reader of a body follows it.

use crate::refusal::{Refusal, excerpt};
use evenkeel_message::{BodyLength, Level, RequestHead, Status, eq_ignore_case};

/// Determines the length.
///
/// Apache lets Transfer-Encoding override Content-Length and accepts any list that ends in
/// `chunked`. Here a head with both fields and a list with another coding are refused: a proxy in
/// front that decides otherwise would see other requests on the connection (RFC 9112, section
/// 11.2).
///
/// # Errors
///
/// 400 if the length is in doubt, 501 for an unknown coding (RFC 9112, section 6.1).
pub fn body_length(head: &RequestHead) -> Result<BodyLength, Refusal> {
    let fields = &head.fields;
    let mut lengths = fields.all(b"Content-Length");
    let length = match (lengths.next(), lengths.next()) {
        (None, _) => None,
        (Some(text), None) => Some(content_length(text).ok_or_else(|| bad_length(head))?),
        (Some(_), Some(_)) => return Err(bad_length(head)),
    };
    if !fields.contains("Transfer-Encoding") {
        return Ok(length.map_or(BodyLength::None, BodyLength::Exact));
    }
    check_codings(head)?;
    if length.is_some() {
        return Err(Refusal {
            notice: evenkeel_message::Notice::own(
                "core",
                Level::Debug,
                format!(
                    "client sent both Content-Length and Transfer-Encoding: {}",
                    excerpt(head.target())
                ),
            ),
            ..bad_coding(head, Status::BAD_REQUEST)
        });
    }
    Ok(BodyLength::Chunked)
}

/// Checks that `chunked` is the last coding and the only one.
fn check_codings(head: &RequestHead) -> Result<(), Refusal> {
    let mut values = head.fields.all(b"Transfer-Encoding").peekable();
    let (mut chunked, mut known) = (0, true);
    while let Some(value) = values.next() {
        let mut codings = value.split(|byte| *byte == b',').peekable();
        while let Some(coding) = codings.next() {
            let coding = evenkeel_message::trim(coding);
            let last = codings.peek().is_none() && values.peek().is_none();
            if eq_ignore_case(coding, b"chunked") {
                chunked += 1;
            } else if !coding.is_empty() {
                known = false;
            }
            if last && !eq_ignore_case(coding, b"chunked") {
                return Err(bad_coding(head, Status::BAD_REQUEST));
            }
        }
    }
    match (chunked, known) {
        (1, true) => Ok(()),
        (1, false) => Err(bad_coding(head, Status::NOT_IMPLEMENTED)),
        _ => Err(bad_coding(head, Status::BAD_REQUEST)),
    }
}

/// Parses digits only, up to 2^63 - 1 as in Apache (`ap_parse_strict_length`).
fn content_length(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut length = 0_u64;
    for byte in text {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        length = length.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (length <= i64::MAX as u64).then_some(length)
}

fn bad_length(head: &RequestHead) -> Refusal {
    let value = head.fields.joined(b"Content-Length").unwrap_or_default();
    Refusal::bad(
        10242,
        format!(
            "client sent invalid Content-Length ({}): {}",
            excerpt(&value),
            excerpt(head.target())
        ),
    )
}

fn bad_coding(head: &RequestHead, status: Status) -> Refusal {
    let value = head.fields.joined(b"Transfer-Encoding").unwrap_or_default();
    let text = format!(
        "client sent unknown Transfer-Encoding ({}): {}",
        excerpt(&value),
        excerpt(head.target())
    );
    Refusal::new(status, Level::Debug, 2539, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(fields: &[(&str, &str)]) -> Result<BodyLength, (u16, Option<u16>)> {
        let mut head = RequestHead::default();
        for (name, value) in fields {
            head.fields.add(name, value);
        }
        body_length(&head).map_err(|refusal| (refusal.status.code(), refusal.notice.number))
    }

    #[test]
    fn content_length_is_digits_once() {
        let one = |value| decide(&[("Content-Length", value)]);
        assert_eq!(one("5"), Ok(BodyLength::Exact(5)));
        assert_eq!(one("05"), Ok(BodyLength::Exact(5)));
        assert_eq!(one("9223372036854775807"), Ok(BodyLength::Exact(i64::MAX as u64)));
        for bad in ["", "+5", "-1", "5,5", "5 5", "0x5", "\"5\"", "9223372036854775808"] {
            assert_eq!(one(bad), Err((400, Some(10242))), "{bad}");
        }
        let twice = decide(&[("Content-Length", "5"), ("content-length", "5")]);
        assert_eq!(twice, Err((400, Some(10242))));
        assert_eq!(decide(&[]), Ok(BodyLength::None));
    }

    #[test]
    fn chunked_is_the_only_coding() {
        let one = |value| decide(&[("Transfer-Encoding", value)]);
        assert_eq!(one("Chunked"), Ok(BodyLength::Chunked));
        assert_eq!(one(",chunked"), Ok(BodyLength::Chunked));
        for bad in ["", "gzip", "chunked, gzip", "chunked,", "chunked;a=b", "chunked, chunked"] {
            assert_eq!(one(bad), Err((400, Some(2539))), "{bad}");
        }
        assert_eq!(one("gzip, chunked"), Err((501, Some(2539))));
        let twice = [("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")];
        assert_eq!(decide(&twice), Err((400, Some(2539))));
        let both = [("Content-Length", "5"), ("Transfer-Encoding", "chunked")];
        assert_eq!(decide(&both), Err((400, None)));
        let bad = [("Content-Length", "x"), ("Transfer-Encoding", "chunked")];
        assert_eq!(decide(&bad), Err((400, Some(10242))));
    }
}
