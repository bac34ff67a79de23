//! The key of a stored response: the URL of the request, where it was received, and those fields of
//! the request that applications take for parts of the URL.

use evenkeel_message::{Fields, eq_ignore_case, trim};
use std::borrow::Cow;

/// What the configuration says about keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRules {
    /// CacheIgnoreQueryString.
    pub ignores_query: bool,
    /// CacheIgnoreURLSessionIdentifiers.
    pub session_names: Vec<Box<str>>,
    /// CacheKeyBaseURL: scheme, host and port, where it names them.
    pub base: Base,
}

/// The parts of a URL that CacheKeyBaseURL replaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The scheme.
    pub scheme: Option<Box<str>>,
    /// The host.
    pub host: Option<Box<str>>,
    /// The port.
    pub port: Option<Box<str>>,
}

/// A request, as far as its key depends on it.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    /// The host that was asked for.
    pub host: &'a [u8],
    /// Its port.
    pub port: u16,
    /// The path as received.
    pub path: &'a [u8],
    /// The query.
    pub query: Option<&'a [u8]>,
    /// What tells the virtual hosts apart that a host name may mean.
    pub place: &'a str,
    /// The fields of the request.
    pub fields: &'a Fields,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    text: Vec<u8>,
    url_length: usize,
}

/// Fields by which a client may tell an application another URL than the one that it asks for. They
/// are part of the key, so that nobody else gets what the application makes of them.
const REPLACING: [&str; 12] = [
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Port",
    "X-Forwarded-Scheme",
    "X-Forwarded-Prefix",
    "X-Forwarded-Server",
    "X-Host",
    "X-HTTP-Method",
    "X-HTTP-Method-Override",
    "X-Method-Override",
    "X-Original-URL",
    "X-Rewrite-URL",
];

impl Key {
    /// The key of a request.
    #[must_use]
    pub fn of(target: &Target<'_>, rules: &KeyRules) -> Self {
        let KeyRules { ignores_query, session_names, base } = rules;
        let mut path = target.path;
        let mut query = Cow::Borrowed(target.query.unwrap_or_default());
        for name in session_names {
            path = without_parameter(path, name.as_bytes());
            if let Some(rest) = without_variable(&query, name.as_bytes()) {
                query = Cow::Owned(rest);
            }
        }
        let mut text = Vec::with_capacity(64 + path.len() + query.len());
        text.extend_from_slice(base.scheme.as_deref().unwrap_or(target.scheme).as_bytes());
        text.extend_from_slice(b"://");
        match &base.host {
            Some(host) => text.extend_from_slice(host.as_bytes()),
            None if target.host.contains(&b':') => {
                text.extend_from_slice(&[&b"["[..], target.host, b"]"].concat());
            }
            None => text.extend_from_slice(target.host),
        }
        match (&base.port, &base.host) {
            (Some(port), _) => {
                text.push(b':');
                text.extend_from_slice(port.as_bytes());
            }
            (None, Some(_)) => {}
            (None, None) => {
                text.push(b':');
                text.extend_from_slice(itoa::Buffer::new().format(target.port).as_bytes());
            }
        }
        text.extend_from_slice(path);
        text.push(b'?');
        if !ignores_query {
            text.extend_from_slice(&query);
        }
        let url_length = text.len();
        text.push(0);
        text.extend_from_slice(target.place.as_bytes());
        add_replacing(&mut text, target.fields);
        Self { text, url_length }
    }

    /// The key with this text, whose first bytes are the URL.
    #[must_use]
    pub fn stored(text: Vec<u8>, url_length: usize) -> Self {
        let url_length = url_length.min(text.len());
        Self { text, url_length }
    }

    /// All of the key.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> &[u8] {
        self.text.get(..self.url_length).unwrap_or_default()
    }

    /// The same key for another path and query on the same host.
    #[must_use]
    pub fn with_path(&self, path_and_query: &[u8]) -> Self {
        let authority = self.url().windows(3).position(|it| it == b"://").map_or(0, |at| at + 3);
        let rest = self.url().get(authority..).unwrap_or_default();
        let path_start =
            authority + rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let mut text = self.url().get(..path_start).unwrap_or_default().to_vec();
        text.extend_from_slice(path_and_query);
        if !path_and_query.contains(&b'?') {
            text.push(b'?');
        }
        let url_length = text.len();
        text.extend_from_slice(self.text.get(self.url_length..).unwrap_or_default());
        Self { text, url_length }
    }
}

/// Adds the fields that replace parts of the URL.
fn add_replacing(text: &mut Vec<u8>, fields: &Fields) {
    for (name, value) in fields.iter() {
        let is = |other: &str| eq_ignore_case(name, other.as_bytes());
        if !matches!(name.first(), Some(b'X' | b'x' | b'F' | b'f')) {
            continue;
        }
        if is("Forwarded") {
            // Its other parameters name the clients, which are many.
            let parameters = value.split(|byte| matches!(byte, b';' | b',')).map(trim);
            for parameter in parameters {
                let name = parameter.split(|byte| *byte == b'=').next().unwrap_or_default();
                if [&b"host"[..], b"proto"].iter().any(|it| eq_ignore_case(name, it)) {
                    text.push(0);
                    text.extend_from_slice(&parameter.to_ascii_lowercase());
                }
            }
        } else if REPLACING.iter().any(|it| is(it)) {
            text.push(0);
            text.extend_from_slice(&name.to_ascii_lowercase());
            text.push(b':');
            text.extend_from_slice(trim(value));
        }
    }
}

/// The path without `;name=value` at the end of its last segment.
fn without_parameter<'a>(path: &'a [u8], name: &[u8]) -> &'a [u8] {
    let Some(at) = path.iter().rposition(|byte| *byte == b';') else { return path };
    let (front, parameter) = path.split_at(at);
    let value = parameter.get(1..).and_then(|it| it.strip_prefix(name));
    match value.and_then(|it| it.strip_prefix(b"=")) {
        Some(value) if !value.contains(&b'/') => front,
        _ => path,
    }
}

/// A query without the first variable of that name; none if it has none.
fn without_variable(query: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = query.split(|byte| *byte == b'&').collect();
    let is_wanted =
        |part: &&[u8]| part.strip_prefix(name).is_some_and(|rest| rest.starts_with(b"="));
    parts.remove(parts.iter().position(is_wanted)?);
    Some(parts.join(&b'&'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str, query: Option<&str>, fields: &[(&str, &str)], rules: &KeyRules) -> Key {
        let mut all = Fields::new();
        fields.iter().for_each(|(name, value)| all.add(*name, value));
        let target = Target {
            scheme: "http",
            host: b"www.example.org",
            port: 80,
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
            place: "a.conf:1",
            fields: &all,
        };
        Key::of(&target, rules)
    }

    fn url(path: &str, query: Option<&str>, rules: &KeyRules) -> String {
        String::from_utf8(key(path, query, &[], rules).url().to_vec()).unwrap()
    }

    #[test]
    fn the_url_has_apaches_form() {
        let rules = KeyRules::default();
        assert_eq!(url("/a/b", Some("c=d"), &rules), "http://www.example.org:80/a/b?c=d");
        assert_eq!(url("/", None, &rules), "http://www.example.org:80/?");
        let rules = KeyRules { ignores_query: true, ..rules };
        assert_eq!(url("/a", Some("c=d"), &rules), "http://www.example.org:80/a?");
    }

    #[test]
    fn session_identifiers_are_left_out() {
        let rules = KeyRules { session_names: vec!["sid".into()], ..KeyRules::default() };
        for (path, query, want) in [
            ("/a;sid=1", None, "/a?"),
            ("/a;sid=1/b", None, "/a;sid=1/b?"),
            ("/a", Some("sid=1"), "/a?"),
            ("/a", Some("x=1&sid=2&y=3"), "/a?x=1&y=3"),
            ("/a", Some("xsid=1&y"), "/a?xsid=1&y"),
            ("/a", Some("y=1&sid=2"), "/a?y=1"),
        ] {
            let want = format!("http://www.example.org:80{want}");
            assert_eq!(url(path, query, &rules), want, "{path} {query:?}");
        }
    }

    #[test]
    fn the_base_replaces_what_it_names() {
        let base = |scheme: Option<&str>, host: Option<&str>, port: Option<&str>| KeyRules {
            base: Base {
                scheme: scheme.map(Into::into),
                host: host.map(Into::into),
                port: port.map(Into::into),
            },
            ..KeyRules::default()
        };
        assert_eq!(url("/", None, &base(Some("https"), Some("x"), None)), "https://x/?");
        assert_eq!(url("/", None, &base(None, Some("x"), Some("8"))), "http://x:8/?");
        assert_eq!(url("/", None, &base(None, None, Some("8"))), "http://www.example.org:8/?");
    }

    #[test]
    fn a_field_that_names_another_url_makes_another_key() {
        let rules = KeyRules::default();
        let plain = key("/", None, &[("User-Agent", "x")], &rules);
        assert_eq!(plain, key("/", None, &[("X-Forwarded-For", "192.0.2.1")], &rules));
        for field in [
            ("X-Forwarded-Host", "evil.example"),
            ("x-rewrite-url", "/admin"),
            ("Forwarded", "for=1.2.3.4;HOST=evil.example"),
            ("X-HTTP-Method-Override", "POST"),
        ] {
            let other = key("/", None, &[field], &rules);
            assert_ne!(plain, other, "{field:?}");
            assert_eq!(plain.url(), other.url());
        }
        let of = |client: &str| {
            let value = format!("for={client}; proto=https");
            key("/", None, &[("Forwarded", &value)], &rules)
        };
        assert_eq!(of("192.0.2.1"), of("192.0.2.2"), "clients of one proxy share a response");
    }

    #[test]
    fn another_path_keeps_host_and_place() {
        let key = key("/a/b", Some("c"), &[], &KeyRules::default());
        let other = key.with_path(b"/d");
        assert_eq!(other.url(), b"http://www.example.org:80/d?");
        assert!(other.text().ends_with(b"?\0a.conf:1"));
        assert_eq!(key.with_path(b"/d?e").url(), b"http://www.example.org:80/d?e");
    }
}
