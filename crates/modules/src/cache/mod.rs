//! mod_cache: which responses are cached, for how long, and by which key. `pipeline` looks requests
//! up and stores responses by these settings; the rules themselves are those of the room `cache`.

mod directives;

pub use crate::NoSettings as Global;
pub use directives::MODULE;

use crate::settings::merged;
use crate::{Merge, Shared};
use evenkeel_cache::{Base, KeyRules, LifetimeRules, StoringRules};
use evenkeel_message::{Method, Request, eq_ignore_case};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// CacheLockMaxAge where it is not said (mod_cache.h: DEFAULT_CACHE_LOCKMAXAGE).
const LOCK_AGE: Duration = Duration::from_secs(5);

/// What a server says of caching.
#[derive(Clone, Debug, Default)]
pub struct OfServer {
    /// CacheEnable outside of sections.
    enabled: Vec<Enabled>,
    /// CacheDisable outside of sections.
    disabled: Vec<Prefix>,
    is_quick: Option<bool>,
    ignores_requests: Option<bool>,
    ignores_query: Option<bool>,
    /// The names of CacheIgnoreHeaders; empty after `None`.
    ignored_fields: Option<Vec<Box<str>>>,
    /// The names of CacheIgnoreURLSessionIdentifiers; empty after `None`.
    session_names: Option<Vec<Box<str>>>,
    base: Option<Base>,
    locks: Option<bool>,
    lock_path: Option<Arc<Path>>,
    lock_age: Option<Duration>,
    tells_result: Option<bool>,
    tells_reason: Option<bool>,
    /// The rules of keys, compiled from the above.
    key_rules: KeyRules,
}

/// What a server says, which hosts share.
pub type Server = Shared<OfServer>;

crate::unsaid!(OfServer);

impl Merge for OfServer {
    fn merge(base: &Self, over: &Self) -> Self {
        let mut merged = Self {
            enabled: [&*base.enabled, &over.enabled].concat(),
            disabled: [&*base.disabled, &over.disabled].concat(),
            is_quick: over.is_quick.or(base.is_quick),
            ignores_requests: over.ignores_requests.or(base.ignores_requests),
            ignores_query: over.ignores_query.or(base.ignores_query),
            ignored_fields: Merge::merge(&base.ignored_fields, &over.ignored_fields),
            session_names: Merge::merge(&base.session_names, &over.session_names),
            base: Merge::merge(&base.base, &over.base),
            locks: over.locks.or(base.locks),
            lock_path: Merge::merge(&base.lock_path, &over.lock_path),
            lock_age: over.lock_age.or(base.lock_age),
            tells_result: over.tells_result.or(base.tells_result),
            tells_reason: over.tells_reason.or(base.tells_reason),
            key_rules: KeyRules::default(),
        };
        merged.prepare();
        merged
    }
}

impl OfServer {
    /// Compiles the rules of keys.
    fn prepare(&mut self) {
        self.key_rules = KeyRules {
            ignores_query: self.ignores_query == Some(true),
            session_names: self.session_names.clone().unwrap_or_default(),
            base: self.base.clone().unwrap_or_default(),
        };
    }

    /// Whether a request is looked up before anything is asked of its path, access rules included
    /// (CacheQuickHandler).
    #[must_use]
    pub fn is_quick(&self) -> bool {
        self.is_quick != Some(false)
    }

    /// Whether CacheEnable outside of sections names a store.
    #[must_use]
    pub fn uses(&self, store: &str) -> bool {
        self.enabled.iter().any(|enabled| *enabled.store == *store)
    }

    /// CacheIgnoreCacheControl.
    #[must_use]
    pub fn ignores_requests(&self) -> bool {
        self.ignores_requests == Some(true)
    }

    /// The rules of keys.
    #[must_use]
    pub fn key_rules(&self) -> &KeyRules {
        &self.key_rules
    }

    /// CacheIgnoreHeaders.
    #[must_use]
    pub fn ignored_fields(&self) -> &[Box<str>] {
        self.ignored_fields.as_deref().unwrap_or_default()
    }

    /// CacheLock.
    #[must_use]
    pub fn locks(&self) -> bool {
        self.locks == Some(true)
    }

    /// CacheLockPath, if it was said.
    #[must_use]
    pub fn lock_path(&self) -> Option<&Path> {
        self.lock_path.as_deref()
    }

    /// CacheLockMaxAge.
    #[must_use]
    pub fn lock_age(&self) -> Duration {
        self.lock_age.unwrap_or(LOCK_AGE)
    }
}

/// What a section says of caching.
#[derive(Clone, Debug, Default)]
struct OfSection {
    enabled: Vec<Box<str>>,
    is_disabled: Option<bool>,
    default_s: Option<u64>,
    most_s: Option<u64>,
    least_s: Option<u64>,
    factor: Option<f64>,
    unvalidated: Option<bool>,
    expired: Option<bool>,
    private: Option<bool>,
    no_store: Option<bool>,
    cookies: Option<bool>,
    uses_stale_on_error: Option<bool>,
    tells_result: Option<bool>,
    tells_reason: Option<bool>,
}

/// The settings of a section.
#[derive(Clone, Debug, Default)]
pub struct Directory(Option<Arc<OfSection>>);

impl Merge for OfSection {
    fn merge(base: &Self, over: &Self) -> Self {
        let enabled = match over.enabled.is_empty() {
            true => base.enabled.clone(),
            false => over.enabled.clone(),
        };
        Self {
            enabled,
            is_disabled: over.is_disabled.or(base.is_disabled),
            default_s: over.default_s.or(base.default_s),
            most_s: over.most_s.or(base.most_s),
            least_s: over.least_s.or(base.least_s),
            factor: over.factor.or(base.factor),
            unvalidated: over.unvalidated.or(base.unvalidated),
            expired: over.expired.or(base.expired),
            private: over.private.or(base.private),
            no_store: over.no_store.or(base.no_store),
            cookies: over.cookies.or(base.cookies),
            uses_stale_on_error: over.uses_stale_on_error.or(base.uses_stale_on_error),
            tells_result: over.tells_result.or(base.tells_result),
            tells_reason: over.tells_reason.or(base.tells_reason),
        }
    }
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        match (&mut self.0, &over.0) {
            (_, None) => {}
            (own @ None, Some(over)) => *own = Some(Arc::clone(over)),
            (Some(own), Some(over)) => *own = Arc::new(OfSection::merge(own, over)),
        }
    }
}

impl Directory {
    fn said(&mut self) -> &mut OfSection {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    fn all<T>(&self, of: impl FnOnce(&OfSection) -> Option<T>) -> Option<T> {
        self.0.as_deref().and_then(of)
    }

    /// The lifetimes of responses.
    #[must_use]
    pub fn lifetime_rules(&self) -> LifetimeRules {
        let defaults = LifetimeRules::default();
        LifetimeRules {
            default: self.all(|it| it.default_s).unwrap_or(defaults.default),
            most: self.all(|it| it.most_s),
            least: self.all(|it| it.least_s).unwrap_or(defaults.least),
            factor: self.all(|it| it.factor).unwrap_or(defaults.factor),
        }
    }

    /// Which responses are stored, in this section of a server.
    #[must_use]
    pub fn storing_rules(&self, server: &OfServer) -> StoringRules {
        let says = |of: fn(&OfSection) -> Option<bool>| self.all(of) == Some(true);
        StoringRules {
            expired: says(|it| it.expired),
            private: says(|it| it.private),
            no_store: says(|it| it.no_store),
            unvalidated: says(|it| it.unvalidated),
            any_query: server.ignores_query == Some(true),
            cookies: says(|it| it.cookies),
        }
    }

    /// CacheDisable on.
    #[must_use]
    pub fn is_disabled(&self) -> bool {
        self.all(|it| it.is_disabled) == Some(true)
    }

    /// CacheStaleOnError.
    #[must_use]
    pub fn uses_stale_on_error(&self) -> bool {
        self.all(|it| it.uses_stale_on_error) != Some(false)
    }

    /// CacheHeader.
    #[must_use]
    pub fn tells_result(&self, server: &OfServer) -> bool {
        self.all(|it| it.tells_result).or(server.tells_result) == Some(true)
    }

    /// CacheDetailHeader.
    #[must_use]
    pub fn tells_reason(&self, server: &OfServer) -> bool {
        self.all(|it| it.tells_reason).or(server.tells_reason) == Some(true)
    }
}

/// Whether CacheEnable names a store for a request (cache_util.c: `cache_get_providers`). `path` is
/// the path as received.
#[must_use]
pub fn is_enabled(
    store: &str,
    request: &Request,
    path: &[u8],
    server: &OfServer,
    section: &Directory,
) -> bool {
    let of_section =
        || section.0.iter().flat_map(|said| &said.enabled).any(|enabled| **enabled == *store);
    let of_server = |it: &Enabled| *it.store == *store && it.prefix.covers(request, path);
    let is_disabled = |prefix: &Prefix| {
        prefix.covers(request, path) || prefix.covers(request, &request.resource.path)
    };
    (server.enabled.iter().any(of_server) || of_section())
        && !section.is_disabled()
        && !server.disabled.iter().any(is_disabled)
}

/// Whether a request may be answered from the cache at all: GET and HEAD without a body.
#[must_use]
pub fn is_cacheable(request: &Request) -> bool {
    matches!(request.resource.method, Method::Get | Method::Head) && request.body.is_none()
}

/// Whether a request changes what its URL stands for, so that a success makes the stored response
/// invalid (RFC 9111, section 4.4).
#[must_use]
pub fn is_unsafe(request: &Request) -> bool {
    let safe = [Method::Get, Method::Head, Method::Options, Method::Trace, Method::Propfind];
    !safe.contains(&request.resource.method)
}

/// CacheEnable: a store, and the URLs whose responses it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Enabled {
    store: Box<str>,
    prefix: Prefix,
}

/// The beginning of URLs: a path, or scheme, host, port and path of requests in absolute form
/// (cache_util.c: `uri_meets_conditions`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Prefix {
    scheme: Option<Box<str>>,
    /// The host; `*` and `.` at its beginning stand for any beginning of a name.
    host: Box<str>,
    port: Option<Box<str>>,
    path: Box<str>,
}

impl Prefix {
    fn parse(text: &str) -> Self {
        let Some((scheme, rest)) = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme))
        else {
            return Self { scheme: None, host: "".into(), port: None, path: text.into() };
        };
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        Self {
            scheme: Some(scheme.into()),
            host: host.into(),
            port: port.map(Into::into),
            path: path.into(),
        }
    }

    fn covers(&self, request: &Request, path: &[u8]) -> bool {
        let target = request.head.target();
        let is_absolute = !target.starts_with(b"/");
        let is_meant = match &self.scheme {
            None => !is_absolute,
            Some(scheme) => {
                is_absolute
                    && target.get(..scheme.len()).is_some_and(|it| {
                        eq_ignore_case(it, scheme.as_bytes())
                            && target.get(scheme.len()) == Some(&b':')
                    })
                    && self.means_host(&request.host)
                    && self.means_port(request)
            }
        };
        is_meant && path.starts_with(self.path.as_bytes())
    }

    fn means_host(&self, host: &[u8]) -> bool {
        let own = self.host.as_bytes();
        match own.first() {
            None => true,
            Some(b'.') => ends_with(host, own),
            Some(b'*') => ends_with(host, own.get(1..).unwrap_or_default()),
            Some(_) => eq_ignore_case(host, own),
        }
    }

    fn means_port(&self, request: &Request) -> bool {
        let asked = request.port.unwrap_or(request.default_port());
        match self.port.as_deref() {
            None => {
                let is_tls =
                    self.scheme.as_deref().is_some_and(|it| it.eq_ignore_ascii_case("https"));
                asked == if is_tls { 443 } else { 80 }
            }
            Some("") => true,
            Some(port) => port.parse() == Ok(asked),
        }
    }
}

fn ends_with(host: &[u8], end: &[u8]) -> bool {
    host.len() >= end.len()
        && host.get(host.len() - end.len()..).is_some_and(|it| eq_ignore_case(it, end))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{Peer, RequestHead, UriOptions, UrlPath};

    fn request(target: &str, host: &str) -> Request {
        let line = format!("GET {target} HTTP/1.1");
        let head = RequestHead {
            target: (4, 4 + target.len()),
            line: line.into_bytes(),
            ..RequestHead::default()
        };
        let address = "127.0.0.1:80".parse().unwrap();
        let mut request = Request::new(head, Peer { client: address, local: address }, 0);
        request.host = host.into();
        let path = target.strip_prefix("http://www.example.org").unwrap_or(target);
        request.resource.path = UrlPath::parse(path.as_bytes(), UriOptions::default()).unwrap();
        request
    }

    #[test]
    fn a_path_means_requests_in_origin_form_and_a_url_those_in_absolute_form() {
        let covers = |prefix: &str, target: &str| {
            let request = request(target, "www.example.org");
            let path = target.strip_prefix("http://www.example.org").unwrap_or(target);
            Prefix::parse(prefix).covers(&request, path.as_bytes())
        };
        assert!(covers("/", "/a") && covers("/a", "/ab") && !covers("/a/", "/ab"));
        assert!(!covers("http://", "/a") && !covers("/", "http://www.example.org/a"));
        let url = "http://www.example.org/a";
        for prefix in
            ["http://", "HTTP://www.EXAMPLE.org/", "http://.example.org/a", "http://*example.org:/"]
        {
            assert!(covers(prefix, url), "{prefix}");
        }
        for prefix in ["https://", "http://example.org/", "http://www.example.org:81/", "ftp://"] {
            assert!(!covers(prefix, url), "{prefix}");
        }
    }

    #[test]
    fn a_disabled_prefix_holds_for_the_decoded_path_too() {
        let server = OfServer {
            enabled: vec![Enabled { store: "disk".into(), prefix: Prefix::parse("/") }],
            disabled: vec![Prefix::parse("/private")],
            ..OfServer::default()
        };
        let is_enabled = |store: &str, target: &str| {
            let request = request(target, "x");
            is_enabled(store, &request, target.as_bytes(), &server, &Directory::default())
        };
        assert!(is_enabled("disk", "/public") && !is_enabled("socache", "/public"));
        assert!(!is_enabled("disk", "/private/a"));
        assert!(!is_enabled("disk", "/%70rivate/a"));
    }
}
