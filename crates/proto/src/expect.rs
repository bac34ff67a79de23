//! The field Expect: whether the client waits for `100 Continue` (RFC 9110, section 10.1.1).

use crate::refusal::{Refusal, excerpt};
use evenkeel_message::{Level, Name, RequestHead, Status, Version, eq_ignore_case};

/// Whether the client waits for `100 Continue` before it sends the body. `strict` is the directive
/// HttpExpectStrict.
///
/// # Errors
///
/// 417 for any other expectation if `strict` is set (Apache: protocol.c, `ap_read_request`).
pub fn expectation(head: &RequestHead, strict: bool) -> Result<bool, Refusal> {
    let Some(value) = head.fields.first(Name::Expect).filter(|value| !value.is_empty()) else {
        return Ok(false);
    };
    let single = head.fields.all(b"Expect").count() == 1;
    if single && eq_ignore_case(value, b"100-continue") {
        // An HTTP/1.0 client does not know interim responses.
        return Ok(head.version >= Version::Http11);
    }
    if !strict {
        return Ok(false);
    }
    let value = head.fields.joined(b"Expect").unwrap_or_default();
    let text =
        format!("client sent an unrecognized expectation value of Expect: {}", excerpt(&value));
    Err(Refusal::new(Status::EXPECTATION_FAILED, Level::Info, 570, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(values: &[&str], version: Version, strict: bool) -> Result<bool, Option<u16>> {
        let mut head = RequestHead { version, ..RequestHead::default() };
        for value in values {
            head.fields.add("Expect", value);
        }
        expectation(&head, strict).map_err(|refusal| refusal.notice.number)
    }

    #[test]
    fn only_the_continue_is_expected() {
        let new = Version::Http11;
        assert_eq!(outcome(&[], new, true), Ok(false));
        assert_eq!(outcome(&[""], new, true), Ok(false));
        assert_eq!(outcome(&["100-Continue"], new, true), Ok(true));
        assert_eq!(outcome(&["100-continue"], Version::Http10, true), Ok(false));
        assert_eq!(outcome(&["100-continue, x"], new, true), Err(Some(570)));
        assert_eq!(outcome(&["100-continue", "x"], new, true), Err(Some(570)));
        assert_eq!(outcome(&["x"], new, false), Ok(false));
    }
}
