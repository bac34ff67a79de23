//! Addresses in responses: a redirect of a server behind this one names that server, and a client
//! must be led to this one instead (ProxyPassReverse and its kin; proxy_util.c:
//! `ap_proxy_location_reverse_map`, `ap_proxy_cookie_reverse_map`).

use super::{Balancer, Directory};
use evenkeel_message::{eq_ignore_case, trim};
use memchr::memmem;
use std::sync::Arc;

/// One rule: what a server behind this one says, and what clients are told instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The URL, path or domain of the server.
    pub real: Box<[u8]>,
    /// That of this server.
    pub public: Box<[u8]>,
}

/// The URL that a client is told in place of `url`. `None` if no rule applies. `absolute` makes a
/// URL of a path on this server.
#[must_use]
pub fn public_location(
    settings: &Directory,
    balancers: &[Arc<Balancer>],
    url: &[u8],
    absolute: impl Fn(&[u8]) -> Vec<u8>,
) -> Option<Vec<u8>> {
    for Mapping { real, public } in settings.reverses.iter().map(|rule| &**rule) {
        if let Some(real) = real.strip_prefix(b"balancer://") {
            match behind_member(balancers, real, url) {
                None => continue,
                Some(rest) => {
                    let rest = match &**public {
                        b"/" => rest.strip_prefix(b"/").unwrap_or(rest),
                        _ => rest,
                    };
                    let mapped = [&**public, rest].concat();
                    return Some(if is_url(&mapped) { mapped } else { absolute(&mapped) });
                }
            }
        }
        // A rule that names a path applies to the path of a URL.
        let part = match real.first() {
            Some(b'/') => path_of(url),
            _ => url,
        };
        let Some((start, rest)) = part.split_at_checked(real.len()) else { continue };
        if real.is_empty() || !eq_ignore_case(start, real) {
            continue;
        }
        let mapped = [&**public, rest].concat();
        return Some(match is_url(&mapped) {
            true => mapped,
            false => absolute(&mapped),
        });
    }
    None
}

/// What follows the URL of a member and the path of `real`, which is a balancer's name with a path.
fn behind_member<'a>(balancers: &[Arc<Balancer>], real: &[u8], url: &'a [u8]) -> Option<&'a [u8]> {
    let slash = real.iter().position(|byte| *byte == b'/').unwrap_or(real.len());
    let (name, path) = real.split_at_checked(slash)?;
    let path = if path == b"/" { b"" } else { path };
    let mut balancers = balancers.iter();
    let balancer = balancers.find(|one| eq_ignore_case(one.name.as_bytes(), name))?;
    balancer.members.iter().find_map(|member| {
        let target = &member.worker.target;
        let own = target.url(target.path.trim_end_matches('/').as_bytes());
        let (start, rest) = url.split_at_checked(own.len())?;
        let rest = eq_ignore_case(start, &own).then_some(rest)?.strip_prefix(path)?;
        let is_end = matches!(rest.first(), None | Some(b'/' | b'?'));
        (is_end || !path.is_empty()).then_some(rest)
    })
}

/// The path of a URL with what follows it; all of it if it has no host, or nothing behind that.
fn path_of(url: &[u8]) -> &[u8] {
    let Some(at) = memmem::find(url, b"://") else { return url };
    let behind = url.get(at + 3..).unwrap_or_default();
    let slash = behind.iter().position(|byte| *byte == b'/');
    slash.and_then(|slash| behind.get(slash..)).unwrap_or(url)
}

/// Whether a text begins with a scheme and a host (util.c: `ap_is_url`).
fn is_url(text: &[u8]) -> bool {
    let colon = text.iter().position(|byte| *byte == b':').filter(|at| *at > 0);
    colon.is_some_and(|at| {
        let (scheme, rest) = text.split_at_checked(at).unwrap_or_default();
        let is_in_scheme =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        scheme.iter().all(is_in_scheme) && rest.starts_with(b"://")
    })
}

/// The cookie that a client is told in place of this value of Set-Cookie. `None` if no rule
/// applies.
#[must_use]
pub fn public_cookie(settings: &Directory, cookie: &[u8]) -> Option<Vec<u8>> {
    if settings.cookie_paths.is_empty() && settings.cookie_domains.is_empty() {
        return None;
    }
    let mut has_changed = false;
    let mut mapped = Vec::with_capacity(cookie.len() + 16);
    for (number, attribute) in cookie.split(|byte| *byte == b';').enumerate() {
        if number > 0 {
            mapped.push(b';');
        }
        let changed = match number {
            0 => None,
            _ => public_attribute(settings, attribute),
        };
        has_changed |= changed.is_some();
        mapped.extend_from_slice(changed.as_deref().unwrap_or(attribute));
    }
    has_changed.then_some(mapped)
}

/// An attribute of a cookie in the form for clients, if a rule applies to it. A rule replaces the
/// whole of a path or domain that begins with its own.
fn public_attribute(settings: &Directory, attribute: &[u8]) -> Option<Vec<u8>> {
    let equals = attribute.iter().position(|byte| *byte == b'=')?;
    let (name, value) = attribute.split_at_checked(equals + 1)?;
    let bare = trim(name.get(..equals)?);
    let fits = |rule: &&Arc<Mapping>| value.starts_with(&rule.real);
    let rules = match () {
        () if eq_ignore_case(bare, b"path") => &settings.cookie_paths,
        () if eq_ignore_case(bare, b"domain") => &settings.cookie_domains,
        () => return None,
    };
    let rule = rules.iter().find(fits)?;
    Some([name, &*rule.public].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(real: &str, public: &str) -> Arc<Mapping> {
        Arc::new(Mapping { real: real.as_bytes().into(), public: public.as_bytes().into() })
    }

    #[test]
    fn locations_lead_to_this_server() {
        let reverses = vec![
            mapping("http://app:3000/", "/shop/"),
            mapping("/inner", "/outer"),
            mapping("http://cdn/", "https://static.example/"),
        ];
        let settings = Directory { reverses, ..Directory::default() };
        let absolute = |path: &[u8]| [b"http://front", path].concat();
        let mapped = |url: &str| {
            let mapped = public_location(&settings, &[], url.as_bytes(), absolute);
            mapped.map(|url| String::from_utf8(url).unwrap())
        };
        assert_eq!(mapped("http://app:3000/a?b").as_deref(), Some("http://front/shop/a?b"));
        assert_eq!(mapped("HTTP://APP:3000/").as_deref(), Some("http://front/shop/"));
        assert_eq!(mapped("http://other/inner/x").as_deref(), Some("http://front/outer/x"));
        assert_eq!(mapped("/inner").as_deref(), Some("http://front/outer"));
        assert_eq!(mapped("http://cdn/x").as_deref(), Some("https://static.example/x"));
        assert_eq!(mapped("http://app:30000/"), None);
        assert_eq!(mapped("http://app:3000"), None);
        assert_eq!(mapped("relative"), None);
    }

    #[test]
    fn cookies_are_those_of_this_server() {
        let settings = Directory {
            cookie_paths: vec![mapping("/app", "/shop")],
            cookie_domains: vec![mapping("app.internal", "shop.example")],
            ..Directory::default()
        };
        let mapped = |cookie: &str| {
            let mapped = public_cookie(&settings, cookie.as_bytes());
            mapped.map(|cookie| String::from_utf8(cookie).unwrap())
        };
        assert_eq!(mapped("a=b; Path=/app/x; Secure").as_deref(), Some("a=b; Path=/shop; Secure"));
        assert_eq!(
            mapped("a=b;domain=app.internal;path=/app").as_deref(),
            Some("a=b;domain=shop.example;path=/shop")
        );
        // The value of the cookie is the application's own.
        assert_eq!(mapped("path=/app; Path=/"), None);
        assert_eq!(mapped("a=b"), None);
    }
}
