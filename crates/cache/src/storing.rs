//! Whether a response may be stored, and which of its fields (RFC 9111, section 3; mod_cache.c:
//! `cache_save_filter`). The reasons are those that CacheDetailHeader shows.

use crate::control::CacheControl;
use crate::vary::selecting_names;
use evenkeel_message::{Fields, Name, Status, eq_ignore_case, parse_http_date};
use std::borrow::Cow;

/// What the configuration says about storing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoringRules {
    /// CacheStoreExpired.
    pub expired: bool,
    /// CacheStorePrivate.
    pub private: bool,
    /// CacheStoreNoStore.
    pub no_store: bool,
    /// CacheIgnoreNoLastMod: responses without validators and lifetime are stored.
    pub unvalidated: bool,
    /// CacheIgnoreQueryString: a query needs no explicit lifetime.
    pub any_query: bool,
    /// CacheStoreCookies: responses with Set-Cookie are stored.
    pub cookies: bool,
}

/// A response and its request.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    /// The status.
    pub status: Status,
    /// The fields of the response, without those that are not stored.
    pub fields: &'a Fields,
    /// Its directives.
    pub control: &'a CacheControl,
    /// The fields of the request.
    pub request: &'a Fields,
    /// Whether the URL has a query.
    pub has_query: bool,
    /// Now, in seconds since 1970.
    pub now: i64,
}

/// Why a response is not stored; none if it is.
#[must_use]
pub fn refusal(candidate: &Candidate<'_>, rules: &StoringRules) -> Option<Cow<'static, str>> {
    let Candidate { status, fields, control, request, has_query, now } = *candidate;
    let expires = fields.first(Name::Expires);
    let expiry = expires.map(|text| parse_http_date(text, now));
    let is_stated = control.max_age.is_some() || control.s_maxage.is_some();
    let modified = fields.first(Name::LastModified).and_then(|text| parse_http_date(text, now));
    let has_validator = modified.is_some() || fields.contains(Name::ETag);
    if status.code() == 206 {
        return Some("cache miss: cache unwilling to store response".into());
    }
    // RFC 9110, section 15.1: what has such a status may be stored without being told to.
    if !matches!(status.code(), 200 | 203 | 300 | 301)
        && (status.is_informational()
            || status == Status::NOT_MODIFIED
            || !(expires.is_some() || is_stated || control.public))
    {
        return Some(format!("Response status {}", status.code()).into());
    }
    if let (Some(None), Some(text)) = (expiry, expires)
        && !is_stated
        && !rules.expired
    {
        let text = String::from_utf8_lossy(text);
        return Some(format!("Broken expires header: {text}").into());
    }
    let is_expired = |expiry: Option<i64>| expiry.is_some_and(|expiry| expiry < now);
    let never_fresh = control.s_maxage.or(control.max_age) == Some(0);
    let reason = match () {
        () if !is_stated && !rules.expired && expiry.is_some_and(is_expired) => {
            "Expires header already expired; not cacheable"
        }
        () if !rules.expired && never_fresh && !has_validator => {
            "s-maxage or max-age zero and no Last-Modified or Etag; not cacheable"
        }
        () if !rules.any_query && has_query && expires.is_none() && !is_stated => {
            "Query string present but no explicit expiration time"
        }
        () if status == Status::OK
            && !has_validator
            && expires.is_none()
            && !is_stated
            && !rules.unvalidated =>
        {
            "No Last-Modified; Etag; Expires; Cache-Control:max-age or Cache-Control:s-maxage \
             headers"
        }
        () if !rules.no_store && control.no_store => "Cache-Control: no-store present",
        () if !rules.private && control.private => "Cache-Control: private present",
        // RFC 9111, section 3.5.
        () if request.contains(Name::Authorization)
            && !(control.s_maxage.is_some() || control.must_revalidate || control.public) =>
        {
            "Authorization required"
        }
        () if selecting_names(fields).is_none() => "Vary header contains '*'",
        () if fields.contains(Name::SetCookie) && !control.public && !rules.cookies => {
            "Set-Cookie present without Cache-Control: public"
        }
        () => return None,
    };
    Some(reason.into())
}

/// Fields that are about one connection, and are never stored (RFC 9111, section 3.1).
const OF_CONNECTION: [&str; 10] = [
    "Connection",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Authentication-Info",
    "Proxy-Authorization",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
];

/// Fields of the server's own that say what the cache has done.
pub const STATUS_FIELDS: [&str; 2] = ["X-Cache", "X-Cache-Detail"];

/// The fields of a response that are stored. `ignored` are those of CacheIgnoreHeaders.
#[must_use]
pub fn storable(fields: &Fields, ignored: &[Box<str>]) -> Fields {
    let named: Vec<Vec<u8>> = fields.tokens(Name::Connection).map(<[u8]>::to_vec).collect();
    let mut kept = Fields::with_capacity(fields.len() + 1, fields.bytes() + 40);
    for (name, value) in fields.iter() {
        let is = |other: &[u8]| eq_ignore_case(name, other);
        let is_dropped = OF_CONNECTION.iter().chain(&STATUS_FIELDS).any(|it| is(it.as_bytes()))
            || ignored.iter().any(|it| is(it.as_bytes()))
            || named.iter().any(|it| is(it))
            || is(b"Content-Length");
        if !is_dropped {
            kept.add(name, value);
        }
    }
    kept
}

/// Fields that describe the body of a response, and that a 304 does not change (RFC 9111, section
/// 3.2).
const OF_CONTENT: [&str; 7] = [
    "Allow",
    "Content-Encoding",
    "Content-Length",
    "Content-MD5",
    "Content-Range",
    "Content-Type",
    "Content-Language",
];

/// The stored fields as a 304 updates them (RFC 9111, sections 3.2 and 4.3.4).
#[must_use]
pub fn updated(stored: &Fields, not_modified: &Fields) -> Fields {
    let mut fields = stored.clone();
    fields.remove("Age");
    fields.remove("Warning");
    let mut seen: Vec<&[u8]> = Vec::new();
    for (name, value) in not_modified.iter() {
        if OF_CONTENT.iter().any(|it| eq_ignore_case(name, it.as_bytes())) {
            continue;
        }
        match seen.iter().any(|it| eq_ignore_case(it, name)) {
            true => fields.add(name, value),
            false => fields.set(name, value),
        }
        seen.push(name);
    }
    fields
}

/// Whether a 304 speaks of another response than the stored one: it has a strong validator that
/// differs (RFC 9111, section 4.3.4).
#[must_use]
pub fn contradicts(stored: &Fields, not_modified: &Fields) -> bool {
    let differs = |name: Name| match (stored.first(name), not_modified.first(name)) {
        (Some(ours), Some(theirs)) => {
            let opaque = |tag: &'_ [u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
            opaque(ours) != opaque(theirs)
        }
        _ => false,
    };
    differs(Name::ETag) || differs(Name::LastModified)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::http_date;

    const NOW: i64 = 1_800_000_000;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.add(*name, value));
        fields
    }

    fn ask(
        code: u16,
        response: &[(&str, &str)],
        request: &[(&str, &str)],
        (has_query, rules): (bool, StoringRules),
    ) -> Option<String> {
        let (response, request) = (fields(response), fields(request));
        let control = CacheControl::of_response(&response);
        let candidate = Candidate {
            status: Status::new(code).unwrap(),
            fields: &response,
            control: &control,
            request: &request,
            has_query,
            now: NOW,
        };
        refusal(&candidate, &rules).map(Cow::into_owned)
    }

    const NONE: (bool, StoringRules) = (
        false,
        StoringRules {
            expired: false,
            private: false,
            no_store: false,
            unvalidated: false,
            any_query: false,
            cookies: false,
        },
    );

    fn is_stored(code: u16, response: &[(&str, &str)]) -> bool {
        ask(code, response, &[], NONE).is_none()
    }

    const TAG: (&str, &str) = ("ETag", "\"1\"");

    #[test]
    fn some_statuses_are_stored_and_others_only_if_the_response_says_so() {
        for code in [200, 203, 300, 301] {
            assert!(is_stored(code, &[TAG]), "{code}");
        }
        for code in [204, 302, 307, 404, 410, 500, 503] {
            assert!(!is_stored(code, &[TAG]), "{code}");
            assert!(is_stored(code, &[("Cache-Control", "max-age=5")]), "{code}");
            assert!(is_stored(code, &[("Cache-Control", "public")]), "{code}");
            assert!(!is_stored(code, &[("Cache-Control", "no-transform")]), "{code}");
        }
        for code in [206, 304] {
            assert!(!is_stored(code, &[TAG, ("Cache-Control", "max-age=5")]), "{code}");
        }
    }

    #[test]
    fn expiry_in_the_past_or_unreadable_keeps_a_response_out() {
        let past = String::from_utf8(http_date(NOW - 9).to_vec()).unwrap();
        assert!(!is_stored(200, &[TAG, ("Expires", &past)]));
        assert!(is_stored(200, &[TAG, ("Expires", &past), ("Cache-Control", "max-age=9")]));
        assert!(!is_stored(200, &[TAG, ("Expires", "-1")]));
        let expired = (false, StoringRules { expired: true, ..StoringRules::default() });
        assert_eq!(ask(200, &[TAG, ("Expires", &past)], &[], expired), None);
    }

    #[test]
    fn what_is_never_fresh_needs_a_validator() {
        assert!(!is_stored(200, &[("Cache-Control", "max-age=0")]));
        assert!(is_stored(200, &[TAG, ("Cache-Control", "max-age=0")]));
        assert!(!is_stored(200, &[("Cache-Control", "max-age=9, s-maxage=0")]));
    }

    #[test]
    fn a_query_needs_a_lifetime() {
        assert!(ask(200, &[TAG], &[], (true, NONE.1)).is_some());
        assert!(ask(200, &[TAG, ("Cache-Control", "max-age=5")], &[], (true, NONE.1)).is_none());
        let any = StoringRules { any_query: true, ..StoringRules::default() };
        assert!(ask(200, &[TAG], &[], (true, any)).is_none());
    }

    #[test]
    fn a_response_without_validator_and_lifetime_is_not_stored() {
        assert!(!is_stored(200, &[]));
        assert!(is_stored(301, &[]));
        let rules = StoringRules { unvalidated: true, ..StoringRules::default() };
        assert_eq!(ask(200, &[], &[], (false, rules)), None);
    }

    #[test]
    fn what_is_for_one_user_is_not_stored() {
        assert!(!is_stored(200, &[TAG, ("Cache-Control", "private")]));
        assert!(!is_stored(200, &[TAG, ("Cache-Control", "no-store, max-age=5")]));
        assert!(!is_stored(200, &[TAG, ("Vary", "Accept, *")]));
        assert!(!is_stored(200, &[TAG, ("Set-Cookie", "a=b")]));
        assert!(is_stored(200, &[TAG, ("Set-Cookie", "a=b"), ("Cache-Control", "public")]));
        let rules = StoringRules {
            private: true,
            no_store: true,
            cookies: true,
            ..StoringRules::default()
        };
        let lines = [TAG, ("Cache-Control", "private, no-store"), ("Set-Cookie", "a=b")];
        assert_eq!(ask(200, &lines, &[], (false, rules)), None);
    }

    #[test]
    fn a_response_to_a_login_is_stored_only_if_it_is_for_everybody() {
        let login = [("Authorization", "Basic eA==")];
        assert!(ask(200, &[TAG, ("Cache-Control", "max-age=5")], &login, NONE).is_some());
        for control in ["public", "s-maxage=5", "must-revalidate"] {
            let lines = [TAG, ("Cache-Control", control)];
            assert_eq!(ask(200, &lines, &login, NONE), None, "{control}");
        }
    }

    #[test]
    fn fields_of_the_connection_and_ignored_ones_are_not_stored() {
        let all = fields(&[
            ("Connection", "close, X-Own"),
            ("X-Own", "1"),
            ("Keep-Alive", "5"),
            ("Set-Cookie", "a=b"),
            ("X-Cache", "HIT"),
            ("Content-Length", "5"),
            ("X-Kept", "1"),
        ]);
        let kept = storable(&all, &["set-cookie".into()]);
        assert_eq!(kept.iter().collect::<Vec<_>>(), [(&b"X-Kept"[..], &b"1"[..])]);
    }

    #[test]
    fn a_304_updates_all_fields_but_those_of_the_content() {
        let stored =
            fields(&[("Content-Type", "a/b"), ("X-A", "1"), ("X-A", "2"), ("Age", "7"), TAG]);
        let new = fields(&[("Content-Type", "c/d"), ("X-A", "3"), ("X-A", "4"), ("Expires", "0")]);
        let merged = updated(&stored, &new);
        assert_eq!(merged.first("Content-Type"), Some(&b"a/b"[..]));
        assert_eq!(merged.joined("X-A"), Some(b"3, 4".to_vec()));
        assert!(merged.contains("Expires") && merged.contains("ETag") && !merged.contains("Age"));
    }

    #[test]
    fn a_304_with_another_validator_is_about_another_response() {
        assert!(contradicts(&fields(&[TAG]), &fields(&[("ETag", "\"2\"")])));
        assert!(!contradicts(&fields(&[TAG]), &fields(&[("ETag", "W/\"1\"")])));
        assert!(!contradicts(&fields(&[TAG]), &fields(&[("Last-Modified", "x")])));
    }
}
