//! Parses the request line, without its line end, into the method, target and version of the
//! request head.

use crate::refusal::{Refusal, excerpt};
use crate::scan::first_space_or_control;
use crate::{HttpProtocolOptions, target};
use evenkeel_message::{Method, RequestHead, Version};

/// Bytes of a token (RFC 9110, section 5.6.2).
pub(crate) static TOKEN: [bool; 256] = token_table();

#[expect(clippy::indexing_slicing, reason = "run by the compiler, which checks the bounds")]
const fn token_table() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_'
            | b'`' | b'|' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z');
        byte += 1;
    }
    table
}

/// Whether a byte may be part of a token.
pub(crate) fn is_token(byte: u8) -> bool {
    TOKEN.get(usize::from(byte)).copied().unwrap_or(false)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r')
}

/// Parses the request line (RFC 9112, section 3; Apache: protocol.c, `read_request_line` and its
/// checks, whose notices these are).
///
/// # Errors
///
/// The line is refused. The head still holds what could be parsed of it.
pub(crate) fn parse(
    head: &mut RequestHead,
    line: &[u8],
    options: &HttpProtocolOptions,
) -> Result<(), Refusal> {
    let read = read(head, line, options);
    if read.is_err() || !options.strict {
        spell(head, line);
    }
    read
}

/// Writes the first three words of a line to the head, separated by single spaces. Logs and
/// conditions show this form of a line with more or other white space (Apache rebuilds
/// `the_request` in the same way).
fn spell(head: &mut RequestHead, line: &[u8]) {
    let mut words = line.split(|byte| is_space(*byte)).filter(|word| !word.is_empty());
    let method = words.next().unwrap_or_default();
    head.method = Method::parse(method);
    head.method_end = method.len();
    head.line.clear();
    head.line.extend_from_slice(method);
    let target = words.next().unwrap_or_default();
    for word in [target, words.next().unwrap_or_default()] {
        if !word.is_empty() {
            head.line.push(b' ');
            head.line.extend_from_slice(word);
        }
    }
    let start = method.len() + 1;
    head.target = if target.is_empty() { (0, 0) } else { (start, start + target.len()) };
}

fn read(head: &mut RequestHead, line: &[u8], options: &HttpProtocolOptions) -> Result<(), Refusal> {
    head.line.clear();
    head.line.extend_from_slice(line);
    let (method, rest) = method(line, options)?;
    head.method_end = method.len();
    head.method = Method::parse(method);
    let (uri, start, protocol) = target_and_protocol(line, rest, options)?;
    head.target = (start, start + uri.len());
    let version = version(protocol, options)?;
    if version == Version::Http09 {
        check_http09(method, options)?;
    }
    target::check(head.method, uri, options.strict)?;
    // Set the version last, so that a refusal is never answered in HTTP/0.9, which has no status.
    head.version = version;
    Ok(())
}

/// The method, and the index after its space.
fn method<'a>(line: &'a [u8], options: &HttpProtocolOptions) -> Result<(&'a [u8], usize), Refusal> {
    let accepts =
        |byte: u8| if options.strict { is_token(byte) } else { byte > b' ' && byte < 0x7f };
    let end = line.iter().position(|byte| !accepts(*byte)).unwrap_or(line.len());
    let method = line.get(..end).unwrap_or_default();
    match line.get(end) {
        Some(b' ') if end > 0 => Ok((method, end + 1)),
        Some(byte) if is_space(*byte) => Err(invalid_whitespace()),
        None if end > 0 => Err(bad_uri(b"")),
        _ => {
            let word = line.split(|byte| is_space(*byte)).next().unwrap_or_default();
            Err(Refusal::bad(
                3445,
                format!("HTTP Request Line; Invalid method token: '{}'", excerpt(word)),
            ))
        }
    }
}

/// The request target with its place in the line, and the protocol; empty for HTTP/0.9.
fn target_and_protocol<'a>(
    line: &'a [u8],
    mut start: usize,
    options: &HttpProtocolOptions,
) -> Result<(&'a [u8], usize, &'a [u8]), Refusal> {
    if !options.strict {
        start += spaces(line, start);
    }
    let rest = line.get(start..).unwrap_or_default();
    let end = first_space_or_control(rest).unwrap_or(rest.len());
    let uri = rest.get(..end).unwrap_or_default();
    let mut protocol = match rest.get(end) {
        None if uri.is_empty() => return Err(bad_uri(b"")),
        None => return Ok((uri, start, b"")),
        Some(b' ') if uri.is_empty() => return Err(excess_whitespace()),
        Some(b' ') => rest.get(end + 1..).unwrap_or_default(),
        Some(byte) if is_space(*byte) => return Err(invalid_whitespace()),
        Some(_) => return Err(bad_uri(rest)),
    };
    if !options.strict {
        while let Some(trimmed) = protocol.strip_suffix(b" ") {
            protocol = trimmed;
        }
        protocol = protocol.get(spaces(protocol, 0)..).unwrap_or_default();
    }
    if let Some(space) = protocol.iter().position(|byte| is_space(*byte)) {
        let text = protocol.get(space + 1..).unwrap_or_default();
        return Err(match protocol.get(space) {
            Some(b' ' | b'\t') if options.strict => excess_whitespace(),
            Some(b' ') => Refusal::bad(
                3449,
                format!(
                    "HTTP Request Line; Extraneous text found '{}' (perhaps whitespace was \
                     injected?)",
                    excerpt(text)
                ),
            ),
            _ => invalid_whitespace(),
        });
    }
    Ok((uri, start, protocol))
}

fn spaces(line: &[u8], start: usize) -> usize {
    line.iter().skip(start).take_while(|byte| **byte == b' ').count()
}

/// As in Apache, a version above 1.1 counts as 1.1, and one below 1.0 is invalid.
fn version(protocol: &[u8], options: &HttpProtocolOptions) -> Result<Version, Refusal> {
    match protocol {
        b"HTTP/1.1" => return Ok(Version::Http11),
        b"HTTP/1.0" => return Ok(Version::Http10),
        b"" => return Ok(Version::Http09),
        _ => {}
    }
    if let Some((name, [major @ b'1'..=b'9', b'.', minor @ b'0'..=b'9'])) =
        protocol.split_at_checked(5)
    {
        let named = name == b"HTTP/" || (!options.strict && name.eq_ignore_ascii_case(b"HTTP/"));
        if named {
            let old = (*major, *minor) == (b'1', b'0');
            return Ok(if old { Version::Http10 } else { Version::Http11 });
        }
    }
    Err(Refusal::bad(
        2418,
        format!(
            "HTTP Request Line; Unrecognized protocol '{}' (perhaps whitespace was injected?)",
            excerpt(protocol)
        ),
    ))
}

fn check_http09(method: &[u8], options: &HttpProtocolOptions) -> Result<(), Refusal> {
    if !options.allow_http09 {
        return Err(Refusal::bad(2401, "HTTP Request Line; Rejected HTTP/0.9 request"));
    }
    if method == b"GET" || !options.strict {
        return Ok(());
    }
    Err(Refusal::bad(
        3444,
        format!(
            "HTTP Request Line; Invalid method token: '{}' (only GET is allowed for HTTP/0.9 \
             requests)",
            excerpt(method)
        ),
    ))
}

fn bad_uri(uri: &[u8]) -> Refusal {
    Refusal::bad(3454, format!("HTTP Request Line; URI incorrectly encoded: '{}'", excerpt(uri)))
}

fn invalid_whitespace() -> Refusal {
    Refusal::bad(3447, "HTTP Request Line; Invalid whitespace")
}

fn excess_whitespace() -> Refusal {
    Refusal::bad(
        3448,
        "HTTP Request Line; Excess whitespace (disallowed by HttpProtocolOptions Strict)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(line: &[u8], options: HttpProtocolOptions) -> Result<RequestHead, u16> {
        let mut head = RequestHead::default();
        parse(&mut head, line, &options).map_err(|r| r.notice.number.unwrap())?;
        Ok(head)
    }

    /// Lines and the notices that Apache 2.4.71 logs for them.
    #[test]
    fn strict_lines_get_apaches_notices() {
        let cases: &[(&[u8], u16)] = &[
            (b"", 3445),
            (b"GET  / HTTP/1.1", 3448),
            (b"GET /  HTTP/1.1", 3448),
            (b"GET\t/ HTTP/1.1", 3447),
            (b" GET / HTTP/1.1", 3447),
            (b"GET / HTTP/1.1 ", 3448),
            (b"GET / HTTP/1.1\t", 3448),
            (b"GET /\x01 HTTP/1.1", 3454),
            (b"GET /\x7f HTTP/1.1", 3454),
            (b"GET /a b HTTP/1.1", 3448),
            (b"GET /# HTTP/1.1", 2421),
            (b"GET / HTTP/0.9", 2418),
            (b"GET / HTTP/1.10", 2418),
            (b"GET / http/1.1", 2418),
            (b"GET / HTTP/1.x", 2418),
            (b"GET / FOO", 2418),
            (b"PRI * HTTP/2.0", 3450),
            (b"GET", 3454),
            (b"GET ", 3454),
            (b"FO(O / HTTP/1.1", 3445),
            (b"\x80 / HTTP/1.1", 3445),
            (b"HEAD /", 3444),
        ];
        for (line, number) in cases {
            let got = outcome(line, HttpProtocolOptions::default()).map(|_| ());
            assert_eq!(got, Err(*number), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn parts_and_versions_are_found() {
        let strict = HttpProtocolOptions::default();
        let head = outcome(b"FOO /a?b HTTP/1.1", strict).unwrap();
        assert_eq!((head.method, head.method_text()), (Method::Other, &b"FOO"[..]));
        assert_eq!((head.target(), head.version), (&b"/a?b"[..], Version::Http11));
        assert_eq!(outcome(b"GET / HTTP/2.0", strict).unwrap().version, Version::Http11);
        assert_eq!(outcome(b"GET / HTTP/1.0", strict).unwrap().version, Version::Http10);
        for old in [&b"GET /"[..], b"GET / "] {
            assert_eq!(outcome(old, strict).unwrap().version, Version::Http09);
        }
    }

    /// What Apache's `%m`, `%U` and `%r` show of lines that it refuses, and of lines that it
    /// accepts only with `HttpProtocolOptions Unsafe`.
    #[test]
    fn what_is_odd_is_told_with_single_spaces() {
        let cases: [[&[u8]; 4]; 7] = [
            [b"\tHEAD / HTTP/1.1", b"HEAD", b"/", b"HEAD / HTTP/1.1"],
            [b" GET  /a HTTP/1.1 ", b"GET", b"/a", b"GET /a HTTP/1.1"],
            [b"HEAD\t/ HTTP/1.1", b"HEAD", b"/", b"HEAD / HTTP/1.1"],
            [b"GET / HTTP/1.1 x", b"GET", b"/", b"GET / HTTP/1.1"],
            [b"HEAD /\tHTTP/1.1", b"HEAD", b"/", b"HEAD / HTTP/1.1"],
            [b"HEAD ", b"HEAD", b"", b"HEAD"],
            [b"\t", b"", b"", b""],
        ];
        for [line, method, target, shown] in cases {
            for strict in [true, false] {
                let mut head = RequestHead::default();
                let options = HttpProtocolOptions { strict, ..HttpProtocolOptions::default() };
                let refused = parse(&mut head, line, &options).is_err();
                assert!(refused || !strict);
                assert_eq!((head.method_text(), head.target()), (method, target));
                assert_eq!(head.line, shown);
                assert_eq!(head.is_head(), method == b"HEAD");
            }
        }
    }

    #[test]
    fn options_loosen_and_tighten() {
        let lax = HttpProtocolOptions { strict: false, ..HttpProtocolOptions::default() };
        let head = outcome(b"GET   /x   http/1.1  ", lax).unwrap();
        assert_eq!((head.target(), head.version), (&b"/x"[..], Version::Http11));
        assert_eq!(outcome(b"FO(O / HTTP/1.1", lax).unwrap().method, Method::Other);
        assert_eq!(outcome(b"GET /a b HTTP/1.1", lax).unwrap_err(), 3449);
        assert_eq!(outcome(b"GET /\tx HTTP/1.1", lax).unwrap_err(), 3447);
        assert_eq!(outcome(b"GET / HTTP/1.1\r", lax).unwrap_err(), 3447);
        assert_eq!(outcome(b"G\x01T / HTTP/1.1", lax).unwrap_err(), 3445);
        let tight =
            HttpProtocolOptions { strict: true, registered_methods: true, allow_http09: false };
        assert_eq!(outcome(b"GET /", tight).unwrap_err(), 2401);
        assert!(outcome(b"PROPFIND / HTTP/1.1", tight).is_ok());
    }
}
