//! Functions on URIs: absolute schemes, and the escaping of groups, redirects and queries. They do
//! not depend on a request.

use evenkeel_message::eq_ignore_case;

/// The schemes of absolute URIs, and whether the query is split off such a URI (mod_rewrite.c:
/// is_absolute_uri).
const SCHEMES: &[(&str, bool)] = &[
    ("ajp://", true),
    ("balancer://", true),
    ("ftp://", false),
    ("fcgi://", true),
    ("gopher://", false),
    ("http://", true),
    ("https://", true),
    ("h2://", true),
    ("h2c://", true),
    ("ldap://", false),
    ("mailto:", true),
    ("news:", false),
    ("nntp://", false),
    ("scgi://", true),
    ("ws://", true),
    ("wss://", true),
    ("unix://", true),
    ("unix:", true),
];

/// The minimum length of an absolute URI.
const SHORTEST: usize = 6;

/// The scheme of an absolute URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheme {
    /// The length of the scheme, with the colon and slashes after it.
    pub length: usize,
    /// Whether the query is split off the URI.
    pub takes_query: bool,
}

/// Returns the scheme of a URI, or `None` if the URI is not absolute.
pub(super) fn scheme(uri: &[u8]) -> Option<Scheme> {
    if uri.first() == Some(&b'/') || uri.len() < SHORTEST {
        return None;
    }
    let is_of = |(scheme, _): &&(&str, bool)| {
        uri.get(..scheme.len()).is_some_and(|start| eq_ignore_case(start, scheme.as_bytes()))
    };
    let (scheme, takes_query) = SCHEMES.iter().find(is_of)?;
    Some(Scheme { length: scheme.len(), takes_query: *takes_query })
}

/// Escapes the part of an absolute URI after its host (mod_rewrite.c: escape_absolute_uri).
pub(super) fn escape_absolute(uri: &[u8], scheme: Scheme) -> Vec<u8> {
    let mut start = scheme.length;
    let has_host = start.checked_sub(1).and_then(|last| uri.get(last)) == Some(&b'/');
    if has_host {
        let behind = uri.get(start..).unwrap_or_default();
        match behind.iter().position(|byte| *byte == b'/') {
            Some(slash) if start + slash + 1 < uri.len() => start += slash + 1,
            _ => return uri.to_vec(),
        }
    }
    let (before, rest) = uri.split_at_checked(start).unwrap_or((uri, b""));
    let mut escaped = before.to_vec();
    // Question marks separate the parts of an ldap URI (RFC 4516, section 2).
    let is_ldap = has_host && uri.get(..4).is_some_and(|start| eq_ignore_case(start, b"ldap"));
    let parts = if is_ldap { 5 } else { 1 };
    for (number, part) in rest.splitn(parts, |byte| *byte == b'?').enumerate() {
        if number > 0 {
            escaped.push(b'?');
        }
        evenkeel_proto::escape_uri(&mut escaped, part);
    }
    escaped
}

/// How groups are escaped in a substitution (flags B, BNE, BNP, BCTLS).
#[derive(Debug, Default)]
pub(super) struct Escaping {
    /// The characters to escape; `None` for all except letters, digits and `_`.
    pub only: Option<Box<[u8]>>,
    /// The characters that are not escaped.
    pub except: Option<Box<[u8]>>,
    /// Whether a space becomes `%20` instead of `+`.
    pub no_plus: bool,
    /// Whether only control characters, spaces and the characters of `only` are escaped.
    pub controls: bool,
}

impl Escaping {
    fn covers(&self, byte: u8) -> bool {
        let by_kind = match self.controls {
            true => !is_visible(byte),
            false => self.only.is_none(),
        };
        let is_listed = self.only.as_ref().is_some_and(|only| only.contains(&byte));
        let is_left = self.except.as_ref().is_some_and(|except| except.contains(&byte));
        (by_kind || is_listed) && !is_left
    }

    /// Escapes a group (mod_rewrite.c: escape_backref).
    pub(super) fn escape(&self, text: &[u8]) -> Vec<u8> {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let digit = |value: u8| HEX.get(usize::from(value)).copied().unwrap_or(b'0');
        let mut escaped = Vec::with_capacity(text.len());
        for byte in text {
            match *byte {
                byte if !self.covers(byte) || byte.is_ascii_alphanumeric() || byte == b'_' => {
                    escaped.push(byte);
                }
                b' ' if !self.no_plus => escaped.push(b'+'),
                byte => escaped.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]),
            }
        }
        escaped
    }
}

/// Whether a byte is a visible ASCII character or obs-text (httpd's T_VCHAR_OBSTEXT).
pub(super) fn is_visible(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f
}

/// Decodes `%XX` and leaves invalid escapes as they are. The result ends before an escaped NUL, as
/// a C string does (util.c: ap_unescape_url).
pub(super) fn unescape(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    let value = |at: usize| u8::try_from(digit(at + 1)? * 16 + digit(at + 2)?).ok();
    let (mut decoded, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.get(at) {
        let (byte, length) = match (byte, value(at)) {
            (b'%', Some(0)) => break,
            (b'%', Some(value)) => (value, 3),
            (byte, _) => (*byte, 1),
        };
        decoded.push(byte);
        at += length;
    }
    decoded
}

/// Replaces the prefix of a path with `subst`. Returns the path without the prefix, and the new
/// path. Returns `None` if the path does not begin with the prefix (mod_rewrite.c:
/// subst_prefix_path).
pub(super) fn substitute_prefix<'a>(
    path: &'a [u8],
    prefix: &[u8],
    subst: &[u8],
) -> Option<(&'a [u8], Vec<u8>)> {
    let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
    let rest = path.strip_prefix(prefix)?.strip_prefix(b"/")?;
    let slash: &[u8] = if subst.is_empty() || subst.ends_with(b"/") { b"" } else { b"/" };
    Some((rest, [subst, slash, rest].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_make_a_uri_absolute() {
        for (uri, length) in [
            ("http://x", 7),
            ("HTTPS://x/", 8),
            ("unix:/run/x", 5),
            ("unix://run/x", 7),
            ("mailto:a@b", 7),
            ("balancer://x", 11),
            ("/http://x", 0),
            ("news:", 0),
            ("news:x", 5),
            ("httpx://a", 0),
            ("file:///x", 0),
            ("h2://", 0),
        ] {
            let found = scheme(uri.as_bytes()).map_or(0, |scheme| scheme.length);
            assert_eq!(found, length, "{uri}");
        }
        assert!(!scheme(b"ftp://h/").unwrap().takes_query);
    }

    #[test]
    fn hosts_are_not_escaped_and_paths_are() {
        let escaped = |uri: &str| {
            let scheme = scheme(uri.as_bytes()).unwrap();
            String::from_utf8(escape_absolute(uri.as_bytes(), scheme)).unwrap()
        };
        assert_eq!(escaped("http://a b/c d?e"), "http://a b/c%20d%3fe");
        assert_eq!(escaped("http://a b"), "http://a b");
        assert_eq!(escaped("http://a b/"), "http://a b/");
        assert_eq!(escaped("mailto:a b@c"), "mailto:a%20b@c");
        assert_eq!(escaped("ldap://h/o= ?cn? ?x?y?z"), "ldap://h/o=%20?cn?%20?x?y%3fz");
    }

    #[test]
    fn groups_are_escaped_as_the_flags_say() {
        let text = b"a_b c/d?e\x01\xe9-";
        let escaped = |escaping: Escaping| escaping.escape(text);
        assert_eq!(escaped(Escaping::default()), b"a_b+c%2fd%3fe%01%e9%2d");
        let no_plus = Escaping {
            no_plus: true,
            except: Some(b"/".as_slice().into()),
            only: None,
            controls: false,
        };
        assert_eq!(escaped(no_plus), b"a_b%20c/d%3fe%01%e9%2d");
        let only = Escaping { only: Some(b"?".as_slice().into()), ..Escaping::default() };
        assert_eq!(escaped(only), b"a_b c/d%3fe\x01\xe9-");
        let controls = Escaping { controls: true, ..Escaping::default() };
        assert_eq!(escaped(controls), b"a_b+c/d?e%01\xe9-");
    }

    #[test]
    fn escapes_are_decoded_up_to_a_nul() {
        assert_eq!(unescape(b"a%20b%2Fc%zz%4%"), b"a b/c%zz%4%");
        assert_eq!(unescape(b"a%00b"), b"a");
    }

    #[test]
    fn prefixes_are_replaced_as_whole_names() {
        let replaced = |path: &str, prefix: &str, subst: &str| {
            let found = substitute_prefix(path.as_bytes(), prefix.as_bytes(), subst.as_bytes());
            found.map(|(_, path)| String::from_utf8(path).unwrap())
        };
        assert_eq!(replaced("/d/x", "/d/", "/b").as_deref(), Some("/b/x"));
        assert_eq!(replaced("/d/x", "/d", "/b/").as_deref(), Some("/b/x"));
        assert_eq!(replaced("d/x", "d/", "").as_deref(), Some("x"));
        assert_eq!(replaced("/dd/x", "/d/", "/b"), None);
        assert_eq!(replaced("/d", "/d/", "/b"), None);
    }
}
