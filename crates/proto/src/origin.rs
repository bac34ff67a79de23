//! Reads the responses of an HTTP/1 server behind the proxy, and writes the line of a request.
//! [`parse_origin_head`] is stricter than [`crate::parse_response`]: a response whose end two
//! readers could see at different places is refused (RFC 9112, sections 6.3 and 11.2).
//! [`OriginBody`] finds the data and the end of a body.

use crate::chunked::{ChunkedDecoder, Step};
use crate::response::ResponseLength;
use crate::{HttpProtocolOptions, Limits};
use evenkeel_message::{Fields, Version, eq_ignore_case, trim};
use httparse::{Error, Header, ParserConfig, Status as Parsed};
use std::fmt;

/// The most fields of a response.
const MOST_FIELDS: usize = 256;

/// The limits on the head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginLimits {
    /// The bytes of the head.
    pub head: usize,
    /// The bytes of one field, name and value (`responsefieldsize`).
    pub field: usize,
    /// Whether a line that is no field is left out (ProxyBadHeader Ignore).
    pub skips_bad: bool,
}

impl Default for OriginLimits {
    fn default() -> Self {
        Self { head: 128 << 10, field: 128 << 10, skips_bad: false }
    }
}

/// The head of a response.
#[derive(Debug)]
pub struct OriginHead {
    /// The version of the server.
    pub version: Version,
    /// The status code, from 100 to 999.
    pub status: u16,
    /// The reason phrase; empty if there is none or if it is not ASCII.
    pub reason: Box<str>,
    /// All fields, in order.
    pub fields: Fields,
    /// The end of the body.
    pub length: ResponseLength,
    /// Whether the connection stays open for another request.
    pub persistent: bool,
    /// The time in seconds for which the server keeps the connection, if it says so (Keep-Alive).
    pub kept_s: Option<u64>,
    /// The size of the head in bytes, its last empty line included.
    pub size: usize,
}

impl OriginHead {
    /// Whether the final response is still to come (RFC 9110, section 15.2).
    #[must_use]
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }
}

/// The reason for which a response is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginFault {
    /// The first line is not the status line of HTTP/1.0 or HTTP/1.1.
    StatusLine,
    /// A line of the head is not a field.
    Field,
    /// There are too many fields.
    ManyFields,
    /// A field exceeds [`OriginLimits::field`].
    LargeField,
    /// The head exceeds [`OriginLimits::head`].
    LargeHead,
    /// A Content-Length is not a number, or there are two that differ.
    Length,
    /// The Transfer-Encoding is not `chunked` alone, or a response of HTTP/1.0 has one.
    Coding,
    /// There are both Content-Length and Transfer-Encoding.
    TwoFramings,
    /// The chunks of the body are malformed.
    Chunk,
}

impl fmt::Display for OriginFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OriginFault::StatusLine => "the response does not begin with a status line of HTTP/1",
            OriginFault::Field => "a line of the head is not a header field",
            OriginFault::ManyFields => "the head has more than 256 fields",
            OriginFault::LargeField => "a field of the head is larger than responsefieldsize",
            OriginFault::LargeHead => "the head is too large",
            OriginFault::Length => "the Content-Length is invalid, or there are two that differ",
            OriginFault::Coding => "the Transfer-Encoding is not chunked alone",
            OriginFault::TwoFramings => "there are both Content-Length and Transfer-Encoding",
            OriginFault::Chunk => "the chunks of the body are malformed",
        })
    }
}

/// Parses the head at the front of `buffer`. Returns `None` until its end has arrived. `no_body`
/// says that the request was HEAD, whose response ends with the head.
///
/// # Errors
/// The reason for which the response is refused.
pub fn parse_origin_head(
    buffer: &[u8],
    no_body: bool,
    limits: &OriginLimits,
) -> Result<Option<OriginHead>, OriginFault> {
    // httparse skips all empty lines. One may be left of the response before (mod_proxy_http.c:
    // `ap_proxy_http_process_response`).
    let behind = buffer.strip_prefix(b"\r\n").or_else(|| buffer.strip_prefix(b"\n"));
    if behind.is_some_and(|rest| matches!(rest.first(), Some(b'\r' | b'\n'))) {
        return Err(OriginFault::StatusLine);
    }
    let mut lines = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut lines);
    let mut config = ParserConfig::default();
    config
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .ignore_invalid_headers_in_responses(limits.skips_bad);
    let size = match config.parse_response(&mut response, buffer) {
        Ok(Parsed::Complete(size)) if size > limits.head => return Err(OriginFault::LargeHead),
        Ok(Parsed::Complete(size)) => size,
        Ok(Parsed::Partial) if buffer.len() > limits.head => return Err(OriginFault::LargeHead),
        Ok(Parsed::Partial) => return Ok(None),
        Err(Error::TooManyHeaders) => return Err(OriginFault::ManyFields),
        Err(Error::HeaderName | Error::HeaderValue | Error::NewLine) => {
            return Err(OriginFault::Field);
        }
        Err(_) => return Err(OriginFault::StatusLine),
    };
    let version = match response.version {
        Some(0) => Version::Http10,
        _ => Version::Http11,
    };
    let status = response.code.filter(|code| *code >= 100).ok_or(OriginFault::StatusLine)?;
    let fields = fields_of(response.headers, limits)?;
    let framing = framing(&fields, version)?;
    let bare = no_body || status < 200 || status == 204 || status == 304;
    let length = match framing {
        _ if bare => ResponseLength::None,
        ResponseLength::Exact(0) => ResponseLength::None,
        framing => framing,
    };
    let says = |option: &[u8]| fields.tokens(b"Connection").any(|it| eq_ignore_case(it, option));
    let kept = !says(b"close") && (version == Version::Http11 || says(b"keep-alive"));
    let persistent = kept && length != ResponseLength::UntilClose && status != 101;
    let reason = response.reason.unwrap_or_default().into();
    let kept_s = kept_s(&fields);
    Ok(Some(OriginHead { version, status, reason, fields, length, persistent, kept_s, size }))
}

/// The fields with folded lines joined (RFC 9112, section 5.2).
fn fields_of(lines: &[Header<'_>], limits: &OriginLimits) -> Result<Fields, OriginFault> {
    let bytes = lines.iter().map(|line| line.name.len() + line.value.len() + 4).sum();
    let mut fields = Fields::with_capacity(lines.len(), bytes);
    for line in lines {
        if line.name.len() + line.value.len() > limits.field {
            return Err(OriginFault::LargeField);
        }
        let name = line.name.as_bytes();
        match line.value.contains(&b'\n') {
            false => fields.add(name, trim(line.value)),
            true => {
                let parts = line.value.split(|byte| *byte == b'\n');
                let parts = parts.map(|part| trim(part.strip_suffix(b"\r").unwrap_or(part)));
                let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
                fields.add(name, parts.join(&b' '));
            }
        }
    }
    Ok(fields)
}

/// The end of a body by its fields (RFC 9112, section 6.3).
fn framing(fields: &Fields, version: Version) -> Result<ResponseLength, OriginFault> {
    let mut length = None;
    for value in fields.all(b"Content-Length") {
        for text in value.split(|byte| *byte == b',') {
            let number = number(trim(text)).ok_or(OriginFault::Length)?;
            if length.is_some_and(|before| before != number) {
                return Err(OriginFault::Length);
            }
            length = Some(number);
        }
    }
    let mut codings = fields.all(b"Transfer-Encoding").flat_map(|it| it.split(|b| *b == b','));
    match (codings.next(), codings.next()) {
        (None, _) => Ok(length.map_or(ResponseLength::UntilClose, ResponseLength::Exact)),
        (Some(coding), None) if eq_ignore_case(trim(coding), b"chunked") => match length {
            _ if version != Version::Http11 => Err(OriginFault::Coding),
            Some(_) => Err(OriginFault::TwoFramings),
            None => Ok(ResponseLength::Chunked),
        },
        _ => Err(OriginFault::Coding),
    }
}

/// Parses digits only, up to 2^63 - 1.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let number = text.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    });
    number.filter(|number| *number <= i64::MAX as u64)
}

/// The parameter `timeout` of Keep-Alive.
fn kept_s(fields: &Fields) -> Option<u64> {
    fields.tokens(b"Keep-Alive").find_map(|parameter| {
        let (name, value) = parameter.split_at_checked(b"timeout=".len())?;
        eq_ignore_case(name, b"timeout=").then(|| number(trim(value)))?
    })
}

/// The body of a response on its connection.
#[derive(Debug)]
pub struct OriginBody {
    end: End,
    trailers: Fields,
}

#[derive(Debug)]
enum End {
    /// This many bytes are still to come.
    Exact(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
}

impl OriginBody {
    /// A body that ends so.
    #[must_use]
    pub fn new(length: ResponseLength) -> Self {
        let end = match length {
            ResponseLength::None => End::Exact(0),
            ResponseLength::Exact(length) => End::Exact(length),
            ResponseLength::Chunked => End::Chunked(ChunkedDecoder::new()),
            ResponseLength::UntilClose => End::UntilClose,
        };
        Self { end, trailers: Fields::new() }
    }

    /// Continues at the front of `buffer`, of which the caller then removes what the step names.
    ///
    /// # Errors
    /// [`OriginFault::Chunk`].
    pub fn read(&mut self, buffer: &[u8]) -> Result<Step, OriginFault> {
        match &mut self.end {
            End::Exact(0) => Ok(Step::End(0)),
            End::Exact(_) | End::UntilClose if buffer.is_empty() => Ok(Step::Partial),
            End::Exact(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                *left -= length as u64;
                Ok(Step::Data { skip: 0, length })
            }
            End::UntilClose => Ok(Step::Data { skip: 0, length: buffer.len() }),
            End::Chunked(decoder) => {
                let (limits, options) = (Limits::default(), HttpProtocolOptions::default());
                let step = decoder.decode(buffer, &mut self.trailers, &limits, &options);
                step.map_err(|_| OriginFault::Chunk)
            }
        }
    }

    /// Whether the end of the connection is the end of the body.
    #[must_use]
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.end, End::UntilClose)
    }
}

/// Appends the line of a request. Returns false, and appends nothing, if the method or the target
/// contains a space or a control byte, which would end it.
#[must_use]
pub fn encode_request_line(
    out: &mut Vec<u8>,
    method: &[u8],
    target: &[u8],
    version: Version,
) -> bool {
    let is_sound =
        |text: &[u8]| !text.is_empty() && text.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    if !is_sound(method) || !is_sound(target) {
        return false;
    }
    out.extend_from_slice(method);
    out.push(b' ');
    out.extend_from_slice(target);
    out.push(b' ');
    out.extend_from_slice(version.text().as_bytes());
    out.extend_from_slice(b"\r\n");
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<OriginHead>, OriginFault> {
        parse_origin_head(text.as_bytes(), false, &OriginLimits::default())
    }

    fn with(fields: &str) -> Result<(ResponseLength, bool), OriginFault> {
        let head = parse(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"))?.unwrap();
        Ok((head.length, head.persistent))
    }

    #[test]
    fn the_end_of_a_body_is_beyond_doubt() {
        use OriginFault::{Coding, Length, TwoFramings};
        use ResponseLength::{Chunked, Exact, None, UntilClose};
        assert_eq!(with("Content-Length: 5\r\n"), Ok((Exact(5), true)));
        assert_eq!(with("Content-Length: 0\r\n"), Ok((None, true)));
        assert_eq!(with("X: y\r\n"), Ok((UntilClose, false)));
        assert_eq!(with("Transfer-Encoding: Chunked\r\n"), Ok((Chunked, true)));
        let closes = "Content-Length: 5\r\nConnection: a, Close\r\n";
        assert_eq!(with(closes), Ok((Exact(5), false)));
        let same = "Content-Length: 5\r\nContent-Length: 5\r\n";
        assert_eq!(with(same), Ok((Exact(5), true)));
        for wrong in
            ["5\r\nContent-Length: 6", "5, 6", "-1", "+1", "", "1 1", "9223372036854775808"]
        {
            assert_eq!(with(&format!("Content-Length: {wrong}\r\n")), Err(Length), "{wrong}");
        }
        for wrong in ["gzip, chunked", "chunked\r\nTransfer-Encoding: chunked", "identity", ""] {
            assert_eq!(with(&format!("Transfer-Encoding: {wrong}\r\n")), Err(Coding), "{wrong}");
        }
        let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(with(both), Err(TwoFramings));
        let old = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(parse(old).err(), Some(Coding));
        let kept = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n";
        let kept = parse(kept).unwrap().unwrap();
        assert_eq!((kept.length, kept.persistent), (Exact(1), true));
        for status in ["204 No Content", "304 Not Modified", "103 Early Hints"] {
            let text = format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\n");
            assert_eq!(parse(&text).unwrap().unwrap().length, None);
        }
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let head = parse_origin_head(text, true, &OriginLimits::default()).unwrap().unwrap();
        assert_eq!((head.length, head.persistent), (None, true));
    }

    #[test]
    fn fields_are_mended_where_rfc_9112_says_so() {
        let text = "HTTP/1.1 200 Fine\r\nA : b\r\nC: d\r\n  e\r\n\tf\r\nEmpty:\r\n\
                    Keep-Alive: x, timeout=7\r\nContent-Length: 0\r\n\r\nmore";
        let head = parse(text).unwrap().unwrap();
        assert_eq!(
            (head.fields.first("a"), head.fields.first("c")),
            (Some(&b"b"[..]), Some(&b"d e f"[..]))
        );
        assert_eq!((&*head.reason, head.kept_s, head.size), ("Fine", Some(7), text.len() - 4));
        assert_eq!(head.fields.first("Empty"), Some(&b""[..]));
        assert_eq!(&*parse("HTTP/1.1 204\r\n\r\n").unwrap().unwrap().reason, "");
    }

    #[test]
    fn what_is_no_response_is_refused() {
        use OriginFault::{Field, LargeField, LargeHead, ManyFields, StatusLine};
        for text in [
            "SSH-2.0",
            "<html>",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 099 X\r\n\r\n",
            "HTTP/1.1 2000\r\n\r\n",
            "HTTP/1.2 200 OK\r\n\r\n",
            "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            "\n\r\n",
        ] {
            assert_eq!(parse(text).err(), Some(StatusLine), "{text}");
        }
        for line in ["nonsense", "a b: c", ": x", "A: b\0c", "A: b\rc"] {
            let text = format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n");
            assert_eq!(parse(&text).err(), Some(Field), "{line:?}");
        }
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(257));
        assert_eq!(parse(&many).err(), Some(ManyFields));
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(129 << 10));
        assert_eq!(parse(&long).err(), Some(LargeHead));
        let limits = OriginLimits { field: 10, skips_bad: true, ..OriginLimits::default() };
        let text = b"HTTP/1.1 200 OK\r\nA: 1234567890\r\n\r\n";
        assert_eq!(parse_origin_head(text, false, &limits).err(), Some(LargeField));
        let text = b"HTTP/1.1 200 OK\r\nnonsense\r\nA: b\r\n\r\n";
        let head = parse_origin_head(text, false, &limits).unwrap().unwrap();
        assert_eq!(head.fields.len(), 1);
    }

    #[test]
    fn bodies_end_where_their_framing_says() {
        let mut exact = OriginBody::new(ResponseLength::Exact(5));
        assert_eq!(exact.read(b""), Ok(Step::Partial));
        assert_eq!(exact.read(b"abc"), Ok(Step::Data { skip: 0, length: 3 }));
        assert_eq!(exact.read(b"deHTTP"), Ok(Step::Data { skip: 0, length: 2 }));
        assert_eq!(exact.read(b"HTTP"), Ok(Step::End(0)));
        let mut chunked = OriginBody::new(ResponseLength::Chunked);
        assert_eq!(chunked.read(b"3 \r\nabc\r\n"), Ok(Step::Data { skip: 4, length: 3 }));
        assert_eq!(chunked.read(b"\r\n0\r\nA: b\r\n\r\nX"), Ok(Step::End(13)));
        assert_eq!(OriginBody::new(ResponseLength::Chunked).read(b"x"), Err(OriginFault::Chunk));
        let mut open = OriginBody::new(ResponseLength::UntilClose);
        assert_eq!(open.read(b"ab"), Ok(Step::Data { skip: 0, length: 2 }));
        assert!(open.ends_with_connection());
    }

    #[test]
    fn no_target_splits_a_request() {
        let mut out = Vec::new();
        assert!(encode_request_line(&mut out, b"GET", b"/a?b", Version::Http11));
        assert_eq!(out, b"GET /a?b HTTP/1.1\r\n");
        for target in [&b""[..], b"/a b", b"/\r\nX: y", b"/\0", b"/\x7f"] {
            assert!(!encode_request_line(&mut out, b"GET", target, Version::Http10));
        }
        assert!(!encode_request_line(&mut out, b"G T", b"/", Version::Http11));
        assert_eq!(out.len(), 19);
    }
}
