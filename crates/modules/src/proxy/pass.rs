//! A rule of ProxyPass or ProxyPassMatch, which maps paths of requests to a target.

use crate::prefix::match_prefix;
use evenkeel_expr::{Captures, Pattern};
use evenkeel_message::{Answer, Level, Notice, Proxied, Request, Status, Target};
use std::sync::Arc;

/// The bytes of a path that are not percent-encoded, beside letters and digits (proxy_util.c:
/// `ap_proxy_canonenc_ex`, enc_path).
const PLAIN: &[u8] = b"~$-_.+!*'(),;:@&=/";

/// A rule of ProxyPass or ProxyPassMatch.
#[derive(Debug)]
pub struct Pass {
    /// The paths that the rule matches.
    pub(super) from: From,
    /// The target, or `None` for a rule with `!`, which excludes its paths from proxying.
    pub(super) target: Option<Arc<Target>>,
    /// Whether the path is sent as the client has encoded it (`nocanon`).
    pub(super) is_raw: bool,
    /// Whether the query is not sent (`noquery`).
    pub(super) without_query: bool,
}

/// The paths that a rule matches.
#[derive(Debug)]
pub(super) enum From {
    /// Paths whose first segments are these.
    Prefix(Box<[u8]>),
    /// Paths that match the pattern. The path of the target may refer to its groups.
    Pattern(Pattern),
}

/// The result of a rule.
#[derive(Debug)]
pub enum Passed {
    /// The rule does not match the path.
    Elsewhere,
    /// The rule excludes the path from proxying; no later rule is tried.
    Never,
    /// The rule matches, and the request is passed on.
    To(Proxied),
}

impl Pass {
    /// Applies the rule to the path of a request.
    ///
    /// # Errors
    /// 500 if the pattern exceeds the limits of a match on this path.
    pub fn apply(&self, request: &mut Request) -> Result<Passed, Answer> {
        let path = &*request.resource.path;
        let raw = || {
            let mut raw = evenkeel_proto::raw_path(&request.head).to_vec();
            if let Some(query) = &request.resource.query {
                raw.extend_from_slice(&[b"?", query.as_slice()].concat());
            }
            raw
        };
        let subject = if self.is_raw { raw() } else { path.to_vec() };
        let own_path = self.target.as_ref().map_or("", |target| &target.path).as_bytes();
        let mapped = match &self.from {
            From::Prefix(prefix) => {
                let Some(length) = match_prefix(&subject, prefix) else {
                    return Ok(Passed::Elsewhere);
                };
                [own_path, subject.get(length..).unwrap_or_default()].concat()
            }
            From::Pattern(pattern) => {
                let mut captures = Captures::default();
                match pattern.capture_within(&request.allowance, &subject, &mut captures) {
                    Ok(false) => return Ok(Passed::Elsewhere),
                    Ok(true) => {}
                    Err(error) => {
                        let text = format!("ProxyPassMatch was not matched: {error}");
                        request.notify(Notice::own("proxy", Level::Error, text));
                        return Err(Status::INTERNAL_SERVER_ERROR.into());
                    }
                }
                let mut mapped = Vec::new();
                captures.substitute(own_path, &mut mapped);
                mapped
            }
        };
        let Some(target) = &self.target else { return Ok(Passed::Never) };
        let path = if self.is_raw { mapped } else { escape_path(&mapped) };
        let path = if path.starts_with(b"/") { path } else { [b"/", &*path].concat() };
        let target = Arc::clone(target);
        Ok(Passed::To(Proxied {
            target,
            path,
            is_raw: self.is_raw,
            without_query: self.without_query,
        }))
    }
}

/// Percent-encodes the bytes that may not stand in the path of a URL (mod_proxy_fcgi.c:
/// `proxy_fcgi_canon`).
#[must_use]
pub fn escape_path(path: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut escaped = Vec::with_capacity(path.len());
    for byte in path {
        if byte.is_ascii_alphanumeric() || PLAIN.contains(byte) {
            escaped.push(*byte);
            continue;
        }
        let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
        escaped.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_as_apache_does() {
        assert_eq!(escape_path(b"/a b?c%/~x;y"), b"/a%20b%3Fc%25/~x;y");
        assert_eq!(escape_path("/\u{e4}".as_bytes()), b"/%C3%A4");
    }
}
