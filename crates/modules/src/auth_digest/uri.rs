//! Compares the parameter `uri` of an Authorization field with the request target. The two may
//! differ in form: a proxy may have replaced an absolute URI by a path, or may have escaped other
//! characters.

use std::borrow::Cow;

/// The host and the port that a URI without a host has.
pub(super) struct Host<'a> {
    pub(super) name: &'a [u8],
    pub(super) port: u16,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// They stand for the same resource.
    Same,
    /// They do, but `uri` has no query and the target has one.
    WithoutQuery,
    /// They do not.
    Other,
    /// `uri` is malformed.
    Malformed,
}

/// Compares `uri` with the request target (mod_auth_digest.c: authenticate_digest_user). A URI with
/// an escape that cannot be decoded matches only itself.
pub(super) fn compare(uri: &[u8], target: &[u8], host: &Host<'_>) -> Match {
    if uri == target {
        return Match::Same;
    }
    let Some(uri) = Parts::parse(uri) else { return Match::Malformed };
    let Some(target) = Parts::parse(target) else { return Match::Other };
    let (name, port) = match target.host {
        Some(name) => (name, target.port.unwrap_or(host.port)),
        None => (host.name, host.port),
    };
    let is_host_same = match uri.host {
        None => true,
        Some(own) => {
            is_same(Some(own), Some(name), <[u8]>::eq_ignore_ascii_case)
                && uri.port.unwrap_or(DEFAULT_PORT) == port
        }
    };
    if !is_host_same || !is_same(Some(uri.path), Some(target.path), <[u8]>::eq) {
        return Match::Other;
    }
    match (uri.query, target.query) {
        (None, Some(_)) => Match::WithoutQuery,
        (own, of_target) if is_same(own, of_target, <[u8]>::eq) => Match::Same,
        _ => Match::Other,
    }
}

/// The port of http.
const DEFAULT_PORT: u16 = 80;

/// Whether two parts are the same when they are decoded.
fn is_same(one: Option<&[u8]>, other: Option<&[u8]>, equal: fn(&[u8], &[u8]) -> bool) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            decode(one).zip(decode(other)).is_some_and(|(one, other)| equal(&one, &other))
        }
        _ => false,
    }
}

/// The parts of a URI.
struct Parts<'a> {
    host: Option<&'a [u8]>,
    port: Option<u16>,
    path: &'a [u8],
    query: Option<&'a [u8]>,
}

impl<'a> Parts<'a> {
    /// Splits a URI (apr_uri_parse). Returns `None` if the port is malformed.
    fn parse(uri: &'a [u8]) -> Option<Self> {
        let uri = uri.split(|byte| *byte == b'#').next().unwrap_or_default();
        let (authority, rest) = split_authority(uri);
        let (mut host, mut port) = (None, None);
        if let Some(authority) = authority {
            let start = authority.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
            let address = authority.get(start..).unwrap_or_default();
            // The colons of an IPv6 address are in brackets.
            let after = address.iter().rposition(|byte| *byte == b']').unwrap_or(0);
            let colon = address.iter().rposition(|byte| *byte == b':').filter(|at| *at >= after);
            let (name, digits) = address.split_at(colon.unwrap_or(address.len()));
            if let Some(digits) = digits.strip_prefix(b":").filter(|digits| !digits.is_empty()) {
                let is_number = digits.iter().all(u8::is_ascii_digit);
                port = Some(std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?);
            }
            host = Some(name).filter(|name| !name.is_empty());
        }
        let question = rest.iter().position(|byte| *byte == b'?');
        let (path, query) = rest.split_at(question.unwrap_or(rest.len()));
        Some(Self { host, port, path, query: query.strip_prefix(b"?") })
    }
}

/// Splits off the scheme and the authority of an absolute URI.
fn split_authority(uri: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let none = (None, uri);
    if uri.first() == Some(&b'/') {
        return none;
    }
    let Some(colon) = uri.iter().position(|byte| matches!(byte, b':' | b'/' | b'?')) else {
        return none;
    };
    let Some(rest) = uri.get(colon..).and_then(|rest| rest.strip_prefix(b"://")) else {
        return none;
    };
    if colon == 0 {
        return none;
    }
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    (Some(authority), rest)
}

/// Decodes the escapes of a part. Returns `None` if an escape is malformed, or stands for a slash
/// or a NUL, which would make another path of it.
fn decode(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !text.contains(&b'%') {
        return Some(Cow::Borrowed(text));
    }
    let digit = |byte: Option<u8>| (byte? as char).to_digit(16);
    let mut bytes = text.iter().copied();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let value = digit(bytes.next())? * 16 + digit(bytes.next())?;
        let value = u8::try_from(value).ok().filter(|value| !matches!(value, 0 | b'/'))?;
        decoded.push(value);
    }
    Some(Cow::Owned(decoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_matches_the_target_in_other_forms() {
        let host = Host { name: b"www.example.org", port: 80 };
        for (uri, target, want) in [
            ("/a?b", "/a?b", Match::Same),
            ("/%zz", "/%zz", Match::Same),
            ("/%41", "/A", Match::Same),
            ("/a%20b?c=%44", "/a%20b?c=D", Match::Same),
            ("http://www.example.org/a", "/a", Match::Same),
            ("HTTP://WWW.example.org:80/a", "/a", Match::Same),
            ("http://me@www.example.org:/a", "/a", Match::Same),
            ("/a", "http://www.example.org/a", Match::Same),
            ("http://other/a", "http://OTHER:80/a", Match::Same),
            ("/a", "/a?b", Match::WithoutQuery),
            ("/a?b", "/a", Match::Other),
            ("/a?b", "/a?c", Match::Other),
            ("/a", "/b", Match::Other),
            ("/A", "/a", Match::Other),
            ("/a%2fb", "/a/b", Match::Other),
            ("/a%00", "/a", Match::Other),
            ("/%4", "/A", Match::Other),
            ("http://other/a", "/a", Match::Other),
            ("http://www.example.org:81/a", "/a", Match::Other),
            ("http://www.example.org:x/a", "/a", Match::Malformed),
            ("http://www.example.org:99999/a", "/a", Match::Malformed),
            ("//www.example.org/a", "/a", Match::Other),
            ("", "/", Match::Other),
            ("*", "/", Match::Other),
            ("http:/a", "/a", Match::Other),
        ] {
            assert_eq!(compare(uri.as_bytes(), target.as_bytes(), &host), want, "{uri} {target}");
        }
        let other = Host { name: b"::1", port: 8080 };
        assert_eq!(
            compare(b"http://[::1]:8080/", b"http://[::1]:8080/x/../", &other),
            Match::Other
        );
        assert_eq!(compare(b"http://[::1]/", b"http://[::1]:8080/", &other), Match::Other);
        assert_eq!(compare(b"http://[::1]:8080/", b"HTTP://[::1]:8080/", &other), Match::Same);
    }
}
