//! A rule of ProxyPass or ProxyPassMatch, which maps paths of requests to a target.

use super::note_reason;
use crate::gateway::escape_path;
use crate::prefix::match_prefix;
use evenkeel_expr::{Captures, Pattern};
use evenkeel_message::{Address, Answer, Level, Notice, Proxied, Request, Scheme, Status, Target};
use std::path::Path;
use std::sync::Arc;

/// A rule of ProxyPass or ProxyPassMatch.
#[derive(Debug)]
pub struct Pass {
    /// The paths that the rule matches.
    pub(super) from: From,
    /// The URL as the rule has it, without the socket before it.
    pub(super) url: Box<str>,
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
        let decoded = request.resource.path.to_vec();
        let Some(mut mapped) = self.map(request, &decoded)? else { return Ok(Passed::Elsewhere) };
        let Some(target) = &self.target else { return Ok(Passed::Never) };
        let mut is_raw = self.is_raw;
        if is_raw {
            let raw = raw_target(request);
            match self.map(request, &raw)? {
                Some(other) if self.is_pattern() || other.matched == mapped.matched => {
                    mapped = other;
                }
                _ => {
                    is_raw = false;
                    let text = "Unescaped URL path matched ProxyPass; ignoring unsafe nocanon";
                    request.notify(Notice::new("proxy", Level::Warn, 1136, text));
                }
            }
        }
        let Mapped { name, .. } = mapped;
        let path = name.get(self.url.len() - target.path.len()..).unwrap_or_default();
        let path = if is_raw { path.to_vec() } else { escape_path(path) };
        let path = if path.starts_with(b"/") { path } else { [b"/", &*path].concat() };
        let (target, without_query) = (Arc::clone(target), self.without_query);
        Ok(Passed::To(Proxied { target, path, is_raw, without_query, name }))
    }

    fn is_pattern(&self) -> bool {
        matches!(self.from, From::Pattern(_))
    }

    /// Returns the URL for a path, or `None` if the rule does not match it.
    fn map(&self, request: &mut Request, path: &[u8]) -> Result<Option<Mapped>, Answer> {
        let url = self.url.as_bytes();
        let pattern = match &self.from {
            From::Prefix(prefix) => {
                let Some(matched) = match_prefix(path, prefix) else { return Ok(None) };
                let name = [url, path.get(matched..).unwrap_or_default()].concat();
                return Ok(Some(Mapped { name, matched }));
            }
            From::Pattern(pattern) => pattern,
        };
        let mut captures = Captures::default();
        match pattern.capture_within(&request.allowance, path, &mut captures) {
            Ok(false) => Ok(None),
            Ok(true) => {
                let mut name = Vec::new();
                captures.substitute(url, &mut name);
                // A URL without references has the whole path behind it.
                if name == url {
                    name.extend_from_slice(path);
                }
                Ok(Some(Mapped { name, matched: 0 }))
            }
            Err(error) => {
                let text = format!("ProxyPassMatch was not matched: {error}");
                request.notify(Notice::own("proxy", Level::Error, text));
                Err(Status::INTERNAL_SERVER_ERROR.into())
            }
        }
    }
}

/// Checks that the path of a request is no part of the host: behind a URL without a path, it may
/// begin with anything. Apache looks for a host or a balancer with the longer name.
///
/// # Errors
/// 500 if it is.
pub fn check_host(request: &mut Request, proxied: &Proxied) -> Result<(), Answer> {
    let target = &proxied.target;
    if target.path.starts_with('/') || matches!(target.address, Address::Unix(_)) {
        return Ok(());
    }
    let url = String::from_utf8_lossy(&proxied.name);
    // A handler has no name, and a path of its own.
    let Some((_, rest)) = url.split_once("://") else { return Ok(()) };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    if is_host_of(target, host) {
        return Ok(());
    }
    let status = Status::INTERNAL_SERVER_ERROR;
    let text = format!(
        "the request is passed on to no host: {host:?} is not that of the rule; end the URL of the \
         rule with a slash"
    );
    request.notify(Notice::own("proxy", Level::Error, text));
    if target.scheme != Scheme::Balancer {
        let host = host.to_ascii_lowercase();
        note_reason(request, status, &format!("DNS lookup failure for: {host}"));
    }
    Err(status.into())
}

fn is_host_of(target: &Target, host: &str) -> bool {
    let url = format!("{}://{host}", target.scheme.name());
    let named = Target::parse(&url, Path::new("/"));
    named.is_ok_and(|it| it.host == target.host && it.port == target.port && it.path.is_empty())
}

/// A path that a rule maps.
struct Mapped {
    /// The URL.
    name: Vec<u8>,
    /// The length of the prefix that matches.
    matched: usize,
}

/// The path and the query of a request as the client has sent them.
fn raw_target(request: &Request) -> Vec<u8> {
    let mut raw = evenkeel_proto::raw_path(&request.head).to_vec();
    if let Some(query) = &request.resource.query {
        raw.push(b'?');
        raw.extend_from_slice(query);
    }
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_that_of_the_target_with_its_port() {
        let is_host =
            |url: &str, host: &str| is_host_of(&Target::parse(url, Path::new("/")).unwrap(), host);
        for (url, host) in [("http://h:80", "H:80"), ("http://h", "h"), ("balancer://b", "b")] {
            assert!(is_host(url, host), "{url}");
            for longer in ["x", "1", ".x", ":1", "@x", "x:80"] {
                assert!(!is_host(url, &format!("{host}{longer}")), "{url} {longer}");
            }
        }
    }
}
