//! The directives of mod_cache.

use super::{Enabled, OfSection, OfServer, Prefix};
use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, argument, directive};
use evenkeel_cache::Base;
use evenkeel_config::{Call, Contexts, Shape};
use std::time::Duration;

/// Where CacheEnable and CacheDisable stand: in the server and in `<Location>` (mod_cache.c:
/// `add_cache_enable`).
const PLACE: Where = Where::CONFIG.with(
    Contexts::NOT_IN_DIRECTORY
        .with(Contexts::NOT_IN_LIMIT)
        .with(Contexts::NOT_IN_FILES)
        .with(Contexts::NOT_IN_IF),
);

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("CacheEnable", PLACE, Shape::OneOrTwo, "", "A cache type and partial URL prefix below which caching is enabled", enable),
    directive("CacheDisable", PLACE, Shape::One, "", "A partial URL prefix below which caching is disabled", disable),
    directive("CacheMaxExpire", Where::CONFIG, Shape::One, "86400 for lifetimes that are estimated", "The maximum time in seconds to cache a document", most),
    directive("CacheMinExpire", Where::CONFIG, Shape::One, "0", "The minimum time in seconds to cache a document", least),
    directive("CacheDefaultExpire", Where::CONFIG, Shape::One, "3600", "The default time in seconds to cache a document", default),
    directive("CacheQuickHandler", Where::SERVER, Shape::Flag, "on", "Run the cache in the quick handler, default on", quick),
    directive("CacheIgnoreNoLastMod", Where::CONFIG, Shape::Flag, "off", "Ignore Responses where there is no Last Modified Header", unvalidated),
    directive("CacheIgnoreCacheControl", Where::SERVER, Shape::Flag, "off", "Ignore requests from the client for uncached content", ignore_requests),
    directive("CacheStoreExpired", Where::CONFIG, Shape::Flag, "off", "Ignore expiration dates when populating cache, resulting in an If-Modified-Since request to the backend on retrieval", expired),
    directive("CacheStorePrivate", Where::CONFIG, Shape::Flag, "off", "Ignore 'Cache-Control: private' and store private content", private),
    directive("CacheStoreNoStore", Where::CONFIG, Shape::Flag, "off", "Ignore 'Cache-Control: no-store' and store sensitive content", no_store),
    directive("CacheIgnoreHeaders", Where::SERVER, Shape::Iterate, "None", "A space separated list of headers that should not be stored by the cache", ignore_field),
    directive("CacheIgnoreQueryString", Where::SERVER, Shape::Flag, "off", "Ignore query-string when caching", ignore_query),
    directive("CacheIgnoreURLSessionIdentifiers", Where::SERVER, Shape::Iterate, "None", "A space separated list of session identifiers that should be ignored for creating the key of the cached entity.", ignore_session),
    directive("CacheLastModifiedFactor", Where::CONFIG, Shape::One, "0.1", "The factor used to estimate Expires date from LastModified date", factor),
    directive("CacheLock", Where::SERVER, Shape::Flag, "off", "Enable or disable the thundering herd lock.", lock),
    directive("CacheLockPath", Where::SERVER, Shape::One, "`.locks` in CacheRoot", "The thundering herd lock path. Defaults to the '/mod_cache-lock' directory in the system temp directory.", lock_path),
    directive("CacheLockMaxAge", Where::SERVER, Shape::One, "5", "Maximum age of any thundering herd lock.", lock_age),
    directive("CacheHeader", Where::CONFIG, Shape::Flag, "off", "Add a X-Cache header to responses. Default is off.", header),
    directive("CacheDetailHeader", Where::CONFIG, Shape::Flag, "off", "Add a X-Cache-Detail header to responses. Default is off.", detail_header),
    directive("CacheKeyBaseURL", Where::SERVER, Shape::One, "", "Override the base URL of reverse proxied cache keys.", base_url),
    directive("CacheStaleOnError", Where::CONFIG, Shape::Flag, "on", "Serve stale content on 5xx errors if present. Defaults to on.", stale_on_error),
    directive("CacheStoreCookies", Where::CONFIG, Shape::Flag, "off", "Store responses with Set-Cookie that are not marked public", cookies),
];

/// mod_cache.
pub const MODULE: Module = Module {
    file: "mod_cache.c",
    identifier: "cache_module",
    active: Active::WhenNamed,
    page: "mod_cache",
    subject: "Caching of responses (RFC 9111), whatever made them: a file, a program or another \
              server.",
    remarks: &[
        "With CacheQuickHandler on, a response is used before any access rule is asked. Responses \
         of paths with access rules other than `Require all granted` are therefore not stored, and \
         those stored while it was off are not used. Apache stores and sends them.",
        "A response with Set-Cookie is stored only if it says `Cache-Control: public`, if \
         CacheIgnoreHeaders drops Set-Cookie, or under `CacheStoreCookies on`, a directive of this \
         server.",
        "The key has the URL as received, its virtual host, and the values of X-Forwarded-Host, \
         -Proto, -Port, -Scheme, -Prefix, -Server, Forwarded (host and proto), X-Host, \
         X-Original-URL, X-Rewrite-URL and X-HTTP-Method-Override: a client that sends one gets \
         no response of others, and leaves none for them.",
        "The host in a key is the one that the client asked for, whatever UseCanonicalName says.",
        "A request that is redirected internally is stored under the URL of the client alone. \
         Apache also stores it under the path that it was redirected to, so that all pages that a \
         RewriteRule sends to one script share a response.",
        "CacheMaxExpire bounds lifetimes that a response states too if it is set. In Apache, \
         max-age is not bounded.",
        "`stale-while-revalidate` and `stale-if-error` act (RFC 5861). A request validates a stale \
         response while others get it, as under CacheLock.",
        "Every method that is not safe makes the stored response invalid, and so does its answer \
         of 3xx (RFC 9111, section 4.4). In Apache, only PUT, POST and DELETE with 2xx do.",
        "Other statuses than 200, 203, 300 and 301 are stored if the response states a lifetime \
         or is public. In Apache, any Cache-Control will do. A directive with field names \
         (`private=\"X\"`) acts on the whole response.",
        "A stored response keeps its Date and Server. Apache sends the time of the hit, from which \
         a client subtracts the age a second time.",
        "In `<Location>`, CacheEnable acts with `CacheQuickHandler off` only, as in Apache. The \
         filter CACHE, which names a place in the chain of filters, is not there: responses are \
         stored as they are sent.",
        "Responses to subrequests (mod_include) are not cached on their own.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn server(scope: &mut Scope) -> &mut OfServer {
    &mut scope.server.cache
}

fn section(scope: &mut Scope) -> &mut OfSection {
    scope.directory.cache.said()
}

/// The URL of CacheEnable in a section is that of the section, unless it names one below.
fn enable(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let store = call.first();
    if store.starts_with('/') {
        return Err(format!(
            "provider ({store}) starts with a '/'.  Are url and provider switched?"
        ));
    }
    let own = scope.section_path.clone();
    let url = call.words.get(1).map(String::as_str).or(own.as_deref());
    let Some(url) = url else {
        return Err(format!("CacheEnable provider ({store}) is missing an URL."));
    };
    match own.as_deref() {
        Some(path) if !url.starts_with(path) => Err(
            "When in a Location, CacheEnable must specify a path or an URL below that location."
                .into(),
        ),
        Some(_) => {
            section(scope).enabled.push(store.into());
            Ok(())
        }
        None => {
            let enabled = Enabled { store: store.into(), prefix: Prefix::parse(url) };
            server(scope).enabled.push(enabled);
            Ok(())
        }
    }
}

fn disable(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let url = call.first();
    if scope.section_path.is_some() {
        if !url.eq_ignore_ascii_case("on") {
            return Err("CacheDisable must be followed by the word 'on' when in a Location.".into());
        }
        section(scope).is_disabled = Some(true);
        return Ok(());
    }
    if !url.starts_with('/') && !url.contains(':') {
        return Err("CacheDisable must specify a path or an URL.".into());
    }
    server(scope).disabled.push(Prefix::parse(url));
    Ok(())
}

/// A number of seconds, as atol(3) reads it. A negative one is none.
fn seconds(call: &Call<'_>) -> u64 {
    let text = argument(call, 0).trim_start();
    let digits = text.strip_prefix('+').unwrap_or(text);
    digits.bytes().take_while(u8::is_ascii_digit).fold(0_u64, |number, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    })
}

fn most(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    section(scope).most_s = Some(seconds(call));
    Ok(())
}

fn least(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    section(scope).least_s = Some(seconds(call));
    Ok(())
}

fn default(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    section(scope).default_s = Some(seconds(call));
    Ok(())
}

/// A number with a fraction; what follows it does not count (sscanf(3), `%lg`).
fn factor(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = call.first().trim_start();
    let number = (1..=text.len()).rev().find_map(|end| text.get(..end)?.parse::<f64>().ok());
    match number.filter(|number| number.is_finite()) {
        Some(factor) => {
            section(scope).factor = Some(factor.max(0.0));
            Ok(())
        }
        None => Err("CacheLastModifiedFactor value must be a float".into()),
    }
}

fn quick(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    server(scope).is_quick = Some(call.flag);
    Ok(())
}

fn unvalidated(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    section(scope).unvalidated = Some(call.flag);
    Ok(())
}

fn ignore_requests(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    server(scope).ignores_requests = Some(call.flag);
    Ok(())
}

fn expired(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    section(scope).expired = Some(call.flag);
    Ok(())
}

fn private(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    section(scope).private = Some(call.flag);
    Ok(())
}

fn no_store(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    section(scope).no_store = Some(call.flag);
    Ok(())
}

fn cookies(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    section(scope).cookies = Some(call.flag);
    Ok(())
}

/// Adds a name to a list. `None` empties the list, which takes no more names then.
fn add_name(list: &mut Option<Vec<Box<str>>>, name: &str) {
    match list {
        _ if name.eq_ignore_ascii_case("none") => *list = Some(Vec::new()),
        Some(names) if names.is_empty() => {}
        names => names.get_or_insert_default().push(name.into()),
    }
}

fn ignore_field(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    add_name(&mut server(scope).ignored_fields, call.first());
    Ok(())
}

fn ignore_query(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let server = server(scope);
    server.ignores_query = Some(call.flag);
    server.prepare();
    Ok(())
}

fn ignore_session(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let server = server(scope);
    add_name(&mut server.session_names, call.first());
    server.prepare();
    Ok(())
}

fn lock(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    server(scope).locks = Some(call.flag);
    Ok(())
}

/// A folder, relative to DefaultRuntimeDir.
fn lock_path(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let runtime = scope.global().core.runtime_dir.as_deref().unwrap_or("/var/run/apache2");
    let path = scope.server_path(runtime).join(call.first());
    server(scope).lock_path = Some(path.into());
    Ok(())
}

fn lock_age(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match seconds(call) {
        0 => Err("CacheLockMaxAge value must be a non-zero positive integer".into()),
        age => {
            server(scope).lock_age = Some(Duration::from_secs(age));
            Ok(())
        }
    }
}

fn header(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match scope.section_path.is_some() {
        true => section(scope).tells_result = Some(call.flag),
        false => server(scope).tells_result = Some(call.flag),
    }
    Ok(())
}

fn detail_header(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match scope.section_path.is_some() {
        true => section(scope).tells_reason = Some(call.flag),
        false => server(scope).tells_reason = Some(call.flag),
    }
    Ok(())
}

fn base_url(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let url = call.first();
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, url.strip_prefix("//").unwrap_or("")),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if port.is_some_and(|port| !port.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(format!("Could not parse '{url}' as an URL."));
    }
    let said = |text: &str| Some(text).filter(|text| !text.is_empty()).map(Into::into);
    let base = Base { scheme: scheme.and_then(said), host: said(host), port: port.and_then(said) };
    if base == Base::default() {
        return Err(format!(
            "URL '{url}' must contain at least one of a scheme, a hostname or a port."
        ));
    }
    let server = server(scope);
    server.base = Some(base);
    server.prepare();
    Ok(())
}

fn stale_on_error(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    section(scope).uses_stale_on_error = Some(call.flag);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn bad_lines_are_refused() {
        for (line, text) in [
            ("CacheEnable /a disk", "Are url and provider switched?"),
            ("CacheEnable disk", "is missing an URL"),
            ("CacheDisable on", "must specify a path or an URL"),
            ("CacheLockMaxAge 0", "non-zero positive integer"),
            ("CacheLastModifiedFactor x", "must be a float"),
            ("CacheKeyBaseURL /x", "must contain at least one"),
        ] {
            let error = apply(MODULE, line).err().unwrap();
            assert!(error.contains(text), "{line}: {error}");
        }
    }

    #[test]
    fn lifetimes_and_what_is_stored_follow_their_lines() {
        let scope = apply(
            MODULE,
            "CacheDefaultExpire 10\nCacheMaxExpire 20\nCacheMinExpire 5x\n\
             CacheLastModifiedFactor 0.5\nCacheStoreExpired on\nCacheStorePrivate on\n\
             CacheStoreNoStore on\nCacheIgnoreNoLastMod on\nCacheIgnoreQueryString on\n\
             CacheStoreCookies on",
        )
        .unwrap();
        let rules = scope.directory.cache.lifetime_rules();
        assert_eq!((rules.default, rules.most, rules.least), (10, Some(20), 5));
        assert!((rules.factor - 0.5).abs() < 1e-9);
        let storing = scope.directory.cache.storing_rules(&scope.server.cache);
        assert!(storing.expired && storing.private && storing.no_store && storing.unvalidated);
        assert!(storing.any_query && storing.cookies);
        assert!(scope.server.cache.key_rules().ignores_query);
    }

    #[test]
    fn none_ends_a_list() {
        let names = |line: &str| apply(MODULE, line).unwrap().server.cache.ignored_fields().len();
        assert_eq!(names("CacheIgnoreHeaders A B"), 2);
        assert_eq!(names("CacheIgnoreHeaders A None B"), 0);
        assert_eq!(names("CacheIgnoreHeaders A\nCacheIgnoreHeaders B"), 2);
    }

    #[test]
    fn a_base_url_may_have_any_of_its_parts() {
        let base = |url: &str| {
            let scope = apply(MODULE, &format!("CacheKeyBaseURL {url}")).unwrap();
            let Base { scheme, host, port } = scope.server.cache.key_rules().base.clone();
            [scheme, host, port].map(|part| part.map(String::from).unwrap_or_default())
        };
        assert_eq!(base("https://www.example.org:8443/x"), ["https", "www.example.org", "8443"]);
        assert_eq!(base("http://www.example.org"), ["http", "www.example.org", ""]);
        assert_eq!(base("//x:80"), ["", "x", "80"]);
    }
}
