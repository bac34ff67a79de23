//! Parses the request target into host, port, path and query, all borrowed from it (RFC 9112,
//! section 3.2). Nothing is decoded here; `UrlPath` of `message` does that.

use crate::refusal::{Refusal, excerpt};
use evenkeel_message::{Method, RequestHead, without_doubled_slash};
use memchr::{memchr, memchr2};

/// The four forms of a request target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`.
    Origin,
    /// `http://host:port/path?query`.
    Absolute,
    /// `host:port`, for CONNECT.
    Authority,
    /// `*`, for OPTIONS.
    Asterisk,
}

/// A parsed request target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Its form.
    pub form: Form,
    /// The scheme of the absolute form.
    pub scheme: &'a [u8],
    /// Host and port as received, for the absolute and the authority form.
    pub authority: &'a [u8],
    /// The path as received, not decoded; `/` if there is none.
    pub path: &'a [u8],
    /// The query without its question mark.
    pub query: Option<&'a [u8]>,
}

impl<'a> Target<'a> {
    /// Parses a target; none if it has none of the four forms.
    #[must_use]
    pub fn parse(method: Method, text: &'a [u8]) -> Option<Self> {
        let empty =
            Target { form: Form::Origin, scheme: b"", authority: b"", path: b"", query: None };
        if method == Method::Connect {
            let authority = authority_form(text)?;
            return Some(Target { form: Form::Authority, authority, path: b"/", ..empty });
        }
        match text {
            [b'/' | b'?', ..] => {
                let (path, query) = split(without_doubled_slash(text));
                Some(Target { path, query, ..empty })
            }
            b"*" if method == Method::Options => {
                Some(Target { form: Form::Asterisk, path: text, ..empty })
            }
            _ => absolute_form(text),
        }
    }
}

/// The path of a request's target as received, not decoded; empty if there is none.
#[must_use]
pub fn raw_path(head: &RequestHead) -> &[u8] {
    Target::parse(head.method, head.target()).map_or(b"", |target| target.path)
}

/// Path and query, without a fragment (which only Unsafe lets pass).
fn split(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (path, query) = match memchr2(b'?', b'#', text) {
        Some(mark) => {
            let query = text.get(mark..).and_then(|rest| rest.strip_prefix(b"?"));
            let query = query.and_then(|query| query.split(|byte| *byte == b'#').next());
            (text.get(..mark).unwrap_or_default(), query)
        }
        None => (text, None),
    };
    (if path.is_empty() { b"/" } else { path }, query)
}

fn absolute_form(text: &[u8]) -> Option<Target<'_>> {
    let colon = memchr(b':', text)?;
    let (scheme, rest) = text.split_at_checked(colon)?;
    let valid = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let rest = rest.strip_prefix(b"://").filter(|_| valid)?;
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at_checked(end)?;
    let host_and_port = authority.rsplit(|byte| *byte == b'@').next().unwrap_or_default();
    if !has_valid_port(host_and_port) {
        return None;
    }
    let (path, query) = split(rest);
    Some(Target { form: Form::Absolute, scheme, authority, path, query })
}

/// `host:port`, where the port is required (RFC 9110, section 9.3.6).
fn authority_form(text: &[u8]) -> Option<&[u8]> {
    let colon = text.iter().rposition(|byte| *byte == b':')?;
    let port = text.get(colon + 1..)?;
    let digits = !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    (digits && memchr2(b'/', b'@', text).is_none()).then_some(text)
}

/// Whether the text after the host's colon is a number or empty.
fn has_valid_port(text: &[u8]) -> bool {
    let after_host = match text {
        [b'[', rest @ ..] => match memchr(b']', rest) {
            Some(end) => rest.get(end + 1..).unwrap_or_default(),
            None => return false,
        },
        _ => match memchr(b':', text) {
            Some(colon) => text.get(colon..).unwrap_or_default(),
            None => return true,
        },
    };
    match after_host {
        [] => true,
        [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Refuses a target that cannot be parsed as soon as the request line is complete (Apache: the
/// checks in protocol.c after `ap_parse_uri`).
pub(crate) fn check(method: Method, text: &[u8], strict: bool) -> Result<(), Refusal> {
    let fragment = strict && memchr(b'#', text).is_some();
    if text.starts_with(b"/") && !fragment && method != Method::Connect {
        return Ok(());
    }
    let Some(target) = Target::parse(method, text) else {
        return Err(Refusal::bad(
            3450,
            format!("HTTP Request Line; Unable to parse URI: '{}'", excerpt(text)),
        ));
    };
    if fragment {
        return Err(Refusal::bad(2421, "HTTP Request Line; URI must not contain a fragment"));
    }
    if strict && memchr(b'@', target.authority).is_some() {
        return Err(Refusal::bad(
            2422,
            "HTTP Request Line; URI must not contain a username/password",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<(&str, &str, Option<&str>)> {
        let text_of = |bytes| std::str::from_utf8(bytes).unwrap();
        let target = Target::parse(Method::Get, text.as_bytes())?;
        Some((text_of(target.authority), text_of(target.path), target.query.map(text_of)))
    }

    #[test]
    fn forms_are_taken_apart() {
        assert_eq!(parts("/a?b?c"), Some(("", "/a", Some("b?c"))));
        assert_eq!(parts("?x"), Some(("", "/", Some("x"))));
        assert_eq!(parts("http://a"), Some(("a", "/", None)));
        assert_eq!(parts("http://u@a:1?x"), Some(("u@a:1", "/", Some("x"))));
        assert_eq!(parts("http://[::1]:80/"), Some(("[::1]:80", "/", None)));
        assert_eq!(parts("http://a:/"), Some(("a:", "/", None)));
        for bad in ["foo", "*", "a:80", "http:a", "http://a:x/", "http://[::1/", "1a://b/", ""] {
            assert_eq!(parts(bad), None, "{bad}");
        }
        assert_eq!(Target::parse(Method::Options, b"*").unwrap().form, Form::Asterisk);
    }

    #[test]
    fn connect_takes_an_authority_only() {
        for (text, good) in
            [("a:80", true), ("[::1]:80", true), ("a", false), ("/", false), ("a:80/x", false)]
        {
            assert_eq!(Target::parse(Method::Connect, text.as_bytes()).is_some(), good, "{text}");
        }
    }

    #[test]
    fn strict_refuses_fragment_and_user() {
        let number = |text: &[u8], strict| {
            check(Method::Get, text, strict).err().and_then(|refusal| refusal.notice.number)
        };
        assert_eq!(number(b"/a#b", true), Some(2421));
        assert_eq!(number(b"http://u@a/", true), Some(2422));
        assert_eq!(number(b"/a#b", false), None);
        assert_eq!(number(b"/a@b", true), None);
    }
}
