//! Determines the host that a request is addressed to: sets host, port and query of the request
//! from its head (RFC 9112, section 3.3; Apache: vhost.c, `fix_hostname` and
//! `ap_update_vhost_from_headers`). It does not choose a virtual host.

use crate::HttpProtocolOptions;
use crate::refusal::{Refusal, excerpt};
use crate::target::{Form, Target};
use evenkeel_message::{Fields, Level, Name, Notice, Request, Version};
use std::cell::RefCell;
use std::net::Ipv6Addr;

/// The longest field Host that is remembered, in bytes.
const MOST_KNOWN: usize = 256;

/// The last field Host that a thread has split into name and port. Most requests to a server have
/// the same one.
#[derive(Debug, Default)]
pub struct KnownHost(RefCell<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The value of the field; empty if none is known.
    field: Vec<u8>,
    is_strict: bool,
    name: Vec<u8>,
    port: Option<u16>,
}

impl KnownHost {
    /// As [`split`].
    fn split(
        &self,
        field: &[u8],
        host: &mut Vec<u8>,
        is_strict: bool,
    ) -> Result<Option<u16>, Refusal> {
        let mut known = self.0.borrow_mut();
        if !field.is_empty() && known.field == field && known.is_strict == is_strict {
            host.extend_from_slice(&known.name);
            return Ok(known.port);
        }
        let port = split(field, host, is_strict)?;
        if field.len() <= MOST_KNOWN {
            known.field.clear();
            known.field.extend_from_slice(field);
            known.name.clone_from(host);
            (known.is_strict, known.port) = (is_strict, port);
        }
        Ok(port)
    }
}

/// The message number of a request of HTTP/1.1 without the field Host.
const MISSING_HOST: u16 = 569;

/// Sets host, port and query of a request whose head is complete. The host of the target wins over
/// the field Host, if the scheme of the target is that of the connection, which is http. The host
/// of another scheme is ignored, because an intermediary may have chosen by the field (Apache:
/// protocol.c, `ap_parse_uri`). Under Strict, the host of the target also replaces the field; under
/// Unsafe, conditions see the field as it came (vhost.c, `ap_update_vhost_from_headers_ex`). A
/// request that is refused has no host, except that a request whose field Host is missing keeps the
/// host of its target.
///
/// # Errors
///
/// 400 for a host that is missing in HTTP/1.1, given twice or malformed.
pub fn address(
    request: &mut Request,
    options: &HttpProtocolOptions,
    known: &KnownHost,
) -> Result<(), Refusal> {
    let filled = fill(request, options, known);
    if filled.as_ref().is_err_and(|refusal| refusal.notice.number != Some(MISSING_HOST)) {
        request.host.clear();
    }
    filled
}

fn fill(
    request: &mut Request,
    options: &HttpProtocolOptions,
    known: &KnownHost,
) -> Result<(), Refusal> {
    let own_scheme = request.scheme().as_bytes();
    let Request { head, host, port, resource, .. } = request;
    let head = head.receive();
    host.clear();
    *port = None;
    if !options.strict {
        join_hosts(&mut head.fields);
    }
    let Some(target) = Target::parse(head.method, head.target()) else {
        return Err(malformed(head.target()));
    };
    resource.query = target.query.map(<[u8]>::to_vec);
    let (field, twice) = host_field(&head.fields);
    let has_scheme = |scheme: &[u8]| target.scheme.eq_ignore_ascii_case(scheme);
    let is_named = match target.form {
        Form::Absolute => has_scheme(own_scheme),
        form => form == Form::Authority,
    };
    if head.version >= Version::Http11 && field.is_none_or(|value| value.is_empty() && !is_named) {
        if is_named {
            *port = split(authority(&target), host, options.strict)?;
        }
        let text = "client sent HTTP/1.1 request without hostname (see RFC2616 section 14.23): ";
        return Err(Refusal::bad(MISSING_HOST, format!("{text}{}", excerpt(target.path))));
    }
    let is_known = has_scheme(b"http") || has_scheme(b"https");
    if target.form == Form::Absolute && !is_known {
        return Err(unknown_scheme(head.target()));
    }
    if is_named {
        let has_field = field.is_some();
        let whole = without_user(&target);
        let authority = authority(&target);
        // An http URI must have a host (RFC 9110, section 4.2.1), though Apache accepts an empty
        // one.
        *port = split(authority, host, options.strict)?;
        if host.is_empty() {
            return Err(malformed(authority));
        }
        if has_field && options.strict {
            let value = host_value(whole);
            head.fields.set("Host", value);
        }
    } else if twice {
        return Err(malformed(&head.fields.joined(b"Host").unwrap_or_default()));
    } else if let Some(field) = field {
        *port = known.split(field, host, options.strict)?;
    }
    Ok(())
}

/// Host and port of a target, without the user.
fn without_user<'a>(target: &Target<'a>) -> &'a [u8] {
    target.authority.rsplit(|b| *b == b'@').next().unwrap_or_default()
}

/// Host and port of a target, without an empty port.
fn authority<'a>(target: &Target<'a>) -> &'a [u8] {
    let whole = without_user(target);
    whole.strip_suffix(b":").unwrap_or(whole)
}

/// Joins several fields to one, as Apache joins the fields of every name. Strict refuses the result
/// because of its comma.
fn join_hosts(fields: &mut Fields) {
    if host_field(fields).1
        && let Some(joined) = fields.joined(b"Host")
    {
        fields.set("Host", joined);
    }
}

/// The field Host, and whether there are several.
fn host_field(fields: &Fields) -> (Option<&[u8]>, bool) {
    let mut hosts = fields.all(Name::Host);
    (hosts.next(), hosts.next().is_some())
}

/// Writes the name in lower case to `host`, without a final dot or the brackets of an IPv6 address.
/// Returns the port.
fn split(text: &[u8], host: &mut Vec<u8>, strict: bool) -> Result<Option<u16>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.iter().all(u8::is_ascii_digit) {
        if strict {
            let text = excerpt(text);
            let text = format!("[strict] purely numeric host names not allowed: {text}");
            return Err(Refusal::bad(2416, text));
        }
        host.extend_from_slice(text);
        return Ok(None);
    }
    let (name, port) = port(text).ok_or_else(|| malformed(text))?;
    host.extend_from_slice(name);
    host.make_ascii_lowercase();
    if let Some(literal) = name.strip_prefix(b"[") {
        let literal = literal.strip_suffix(b"]").and_then(|text| std::str::from_utf8(text).ok());
        if literal.is_none_or(|literal| literal.parse::<Ipv6Addr>().is_err()) {
            return Err(malformed(text));
        }
        host.pop();
        host.remove(0);
        return Ok(port);
    }
    let shape = Shape::of(host);
    if shape.barred {
        return Err(malformed(text));
    }
    if host.last() == Some(&b'.') {
        host.pop();
    }
    if strict && !shape.is_strict_name(host) {
        return Err(malformed(text));
    }
    Ok(port)
}

/// The value of the field Host if the target names the host: the name in the form in which it is
/// compared, with the port as received (Apache: vhost.c, `construct_host_header`).
fn host_value(authority: &[u8]) -> Vec<u8> {
    let bare = authority.strip_suffix(b":").unwrap_or(authority);
    let name = port(bare).map_or(bare, |(name, _)| name);
    let behind = authority.get(name.len()..).unwrap_or_default();
    let name = name.strip_suffix(b".").unwrap_or(name);
    [&name.to_ascii_lowercase(), behind].concat()
}

/// Splits into name and port. The port is split off only if it is a number (APR:
/// `apr_parse_addr_port`).
fn port(text: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = text.split_at_checked(text.len() - digits)?;
    let name = match before.strip_suffix(b":") {
        Some(name) if digits > 0 => name,
        _ => return Some((text, None)),
    };
    let number = number.iter().try_fold(0_u16, |port, digit| {
        port.checked_mul(10)?.checked_add(u16::from(digit.checked_sub(b'0')?))
    })?;
    (number > 0 && !name.is_empty()).then_some((name, Some(number)))
}

/// Classes of bytes in a host name, as bits.
const LETTER: u8 = 1;
const DOT: u8 = 2;
const SLASH: u8 = 4;
const FOREIGN: u8 = 8;

static KINDS: [u8; 256] = kinds();

#[expect(clippy::indexing_slicing, reason = "run by the compiler, which checks the bounds")]
const fn kinds() -> [u8; 256] {
    let mut table = [FOREIGN; 256];
    let mut byte = 0;
    while byte < 256 {
        match byte as u8 {
            b'0'..=b'9' => table[byte] = 0,
            b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' => table[byte] = LETTER,
            b'.' => table[byte] = DOT,
            b'/' | b'\\' => table[byte] = SLASH,
            _ => {}
        }
        byte += 1;
    }
    table
}

/// The properties of a host name.
struct Shape {
    /// Whether there are two dots in a row or a slash, which are always refused.
    barred: bool,
    /// Whether there is a byte that no host name contains.
    foreign: bool,
    /// Whether there is a letter, `-` or `_`.
    lettered: bool,
}

impl Shape {
    fn of(name: &[u8]) -> Self {
        let kind = |byte: &u8| KINDS.get(usize::from(*byte)).copied().unwrap_or(FOREIGN);
        let (mut seen, mut previous, mut two_dots) = (0, 0, 0);
        for kind in name.iter().map(kind) {
            seen |= kind;
            two_dots |= previous & kind & DOT;
            previous = kind;
        }
        Self {
            barred: two_dots != 0 || seen & SLASH != 0,
            foreign: seen & FOREIGN != 0,
            lettered: seen & LETTER != 0,
        }
    }

    /// Whether the name is a dotted quad without leading zeros, or consists of letters, digits, `-`
    /// and `_` in labels, the last of which begins with a letter (RFC 1123, section 2.1; Apache:
    /// `strict_hostname_check`).
    fn is_strict_name(&self, name: &[u8]) -> bool {
        if self.foreign || name.is_empty() {
            return false;
        }
        if self.lettered {
            let last_dot = name.iter().rposition(|byte| *byte == b'.');
            let first_of_last = last_dot.and_then(|dot| name.get(dot + 1));
            return last_dot.is_none() || first_of_last.is_some_and(u8::is_ascii_alphabetic);
        }
        let whole = |label: &[u8]| label.len() == 1 || !matches!(label, [] | [b'0', ..]);
        let labels = name.split(|byte| *byte == b'.');
        labels.fold((0, true), |(count, all), label| (count + 1, all && whole(label))) == (4, true)
    }
}

/// The refusal of a target with another scheme. Apache refuses it too, but logs nothing.
fn unknown_scheme(target: &[u8]) -> Refusal {
    let text = format!("client sent a request for another scheme than http: {}", excerpt(target));
    Refusal { notice: Notice::own("core", Level::Debug, text), ..malformed(target) }
}

fn malformed(text: &[u8]) -> Refusal {
    Refusal::bad(550, format!("Client sent malformed Host header: {}", excerpt(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeadParser, Limits, Parsed, raw_path};
    use evenkeel_message::{Peer, RequestHead};

    fn addressed(text: &str, strict: bool) -> Result<Request, Option<u16>> {
        let options = HttpProtocolOptions { strict, ..HttpProtocolOptions::default() };
        let mut head = RequestHead::default();
        let parsed =
            HeadParser::new().parse(&mut head, text.as_bytes(), &Limits::default(), &options);
        assert!(matches!(parsed, Ok(Parsed::Complete(_))), "{text}: {parsed:?}");
        let end = "127.0.0.1:80".parse().unwrap();
        let mut request = Request::new(head, Peer { client: end, local: end }, 0);
        // The second request finds the host of the first.
        let known = KnownHost::default();
        let first = address(&mut request, &options, &known);
        let (host, port) = (request.host.clone(), request.port);
        let second = address(&mut request, &options, &known);
        assert_eq!(
            (first.is_ok(), host, port),
            (second.is_ok(), request.host.clone(), request.port)
        );
        second.map_err(|refusal| refusal.notice.number)?;
        Ok(request)
    }

    fn host(value: &str, strict: bool) -> Result<(String, Option<u16>), Option<u16>> {
        let request = addressed(&format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n"), strict)?;
        Ok((String::from_utf8(request.host).unwrap(), request.port))
    }

    /// The results of Apache 2.4.71 under Strict.
    #[test]
    fn strict_host_names() {
        for good in [
            "a",
            "a_b",
            "-a",
            ".a",
            "[::1]",
            "[::ffff:1.2.3.4]",
            "1.2.3.4",
            "1.2.3.4.",
            "256.1.1.1",
            "a1",
            "1a",
            "a.b1",
            "-1",
            "_1",
        ] {
            assert!(host(good, true).is_ok(), "{good}");
        }
        assert_eq!(host("A.B.:080", true), Ok(("a.b".into(), Some(80))));
        assert_eq!(host("[::1]:80", true), Ok(("::1".into(), Some(80))));
        assert_eq!(host("[0:0::A]", true), Ok(("0:0::a".into(), None)));
        for bad in [
            "a:",
            "a:x",
            "a:0",
            "a:65536",
            "a b",
            "a/b",
            "a%20",
            "a..b",
            "[::1]x",
            "::1",
            "[gg]",
            "u@a",
            "a,b",
            "1.2.3",
            "a:-1",
            "[fe80::1%25eth0]",
            "a*",
            "~",
            ".",
            "..",
            "a:80:80",
            "0x7f.1",
            "a.1b",
            "a.-b",
            "80:80",
            ":80",
            ":",
            "1.2.3.04",
            ".1.2.3",
            "[::1",
            "[]",
            "[:]",
            "[1:2]",
            "[::1]:",
            "\u{e4}",
        ] {
            assert_eq!(host(bad, true), Err(Some(550)), "{bad}");
        }
        assert_eq!(host("80", true), Err(Some(2416)));
        assert_eq!(host("", true), Err(Some(569)));
    }

    #[test]
    fn unsafe_host_names() {
        for good in ["a b", "a*", "u@a", "80", "a:", "1.2.3", "a.1b", "."] {
            assert!(host(good, false).is_ok(), "{good}");
        }
        for bad in ["a/b", "a..b", "a:0", "a\\b", "[::1", ":80"] {
            assert_eq!(host(bad, false), Err(Some(550)), "{bad}");
        }
    }

    /// The results of Apache 2.4.71 under Unsafe.
    #[test]
    fn several_hosts_are_one_with_commas_in_unsafe() {
        let hosts = |first: &str, second: &str, strict| {
            let text = format!("GET / HTTP/1.1\r\nHost: {first}\r\nhost: {second}\r\n\r\n");
            let request = addressed(&text, strict)?;
            let field = request.fields().first("host").unwrap().to_vec();
            let name = String::from_utf8(request.host).unwrap();
            Ok((name, request.port, String::from_utf8(field).unwrap()))
        };
        let joined = |name: &str, port, field: &str| Ok((name.into(), port, field.into()));
        assert_eq!(hosts("A", "b:99", false), joined("a, b", Some(99), "A, b:99"));
        assert_eq!(hosts("", "a", false), joined(", a", None, ", a"));
        assert_eq!(hosts("", "", false), joined(", ", None, ", "));
        assert_eq!(hosts("a", "b/", false), Err(Some(550)));
        assert_eq!(hosts("a", "b", true), Err(Some(550)));
    }

    #[test]
    fn the_host_of_a_target_for_another_scheme_does_not_count() {
        let of = |host: &str| addressed(&format!("GET HTTPS://a:1/x HTTP/1.1\r\n{host}\r\n"), true);
        let request = of("Host: b:2\r\n").unwrap();
        assert_eq!((&request.host[..], request.port), (&b"b"[..], Some(2)));
        assert_eq!(request.fields().first("host"), Some(&b"b:2"[..]));
        assert_eq!(of("Host:\r\n").err(), Some(Some(569)));
        assert_eq!(of("").err(), Some(Some(569)));
        assert_eq!(of("Host: a\r\nHost: b\r\n").err(), Some(Some(550)));
        assert_eq!(of("Host: a..b\r\n").err(), Some(Some(550)));
        assert!(addressed("GET https:///x HTTP/1.0\r\n\r\n", true).unwrap().host.is_empty());
    }

    #[test]
    fn the_target_wins_over_the_field() {
        let request =
            addressed("GET http://B:8080/x?q HTTP/1.1\r\nHost: a b\r\n\r\n", true).unwrap();
        assert_eq!((&request.host[..], request.port), (&b"b"[..], Some(8080)));
        assert_eq!(request.fields().first("host"), Some(&b"b:8080"[..]));
        assert_eq!(
            (raw_path(&request.head), request.resource.query.as_deref()),
            (&b"/x"[..], Some(&b"q"[..]))
        );
        assert_eq!(addressed("GET http://a/ HTTP/1.1\r\n\r\n", true).err(), Some(Some(569)));
        assert_eq!(
            addressed("GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n", true).err(),
            Some(Some(550))
        );
        assert_eq!(addressed("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", true).err(), Some(None));
        let without = addressed("GET http://a/ HTTP/1.0\r\n\r\n", true).unwrap();
        assert_eq!((&without.host[..], without.head.fields.first("host")), (&b"a"[..], None));
        assert!(addressed("GET / HTTP/1.0\r\n\r\n", true).unwrap().host.is_empty());
        let two = "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n";
        assert_eq!(addressed(two, true).err(), Some(Some(550)));
    }
}
