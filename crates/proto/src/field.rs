//! One field line of a head or of a trailer section: the line comes in with its line end, and
//! goes into the fields, checked. It never joins fields of the same name.

use crate::line::is_token;
use crate::refusal::{Refusal, excerpt};
use crate::scan::has_control;
use crate::{HttpProtocolOptions, Limits};
use evenkeel_message::{Fields, Level, Status, trim};
use memchr::memchr;

const TOO_LONG: &str = "Size of a request header field exceeds server limit.";
const TOO_MANY: &str = "The number of request header fields exceeds this server's limit.";

/// What a line turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The empty line behind the last field.
    End,
    /// A field whose name has so many bytes.
    Field(usize),
    /// The continuation of the field before.
    Folded,
}

/// Takes one line with its line feed (RFC 9112, section 5; Apache: protocol.c,
/// `ap_get_mime_headers_core`). Strict refuses folded lines, which Apache still joins: RFC 9112,
/// section 5.2 lets a server choose, and two readers that differ on them can be played against
/// each other.
pub(crate) fn take(
    fields: &mut Fields,
    line: &[u8],
    limits: &Limits,
    options: &HttpProtocolOptions,
) -> Result<Line, Refusal> {
    let whole = line.strip_suffix(b"\r\n");
    let content = whole.unwrap_or_else(|| line.strip_suffix(b"\n").unwrap_or(line));
    // The length first: a line that comes in pieces is refused for it before its end is seen.
    if content.len() > limits.field_size.saturating_add(1) {
        return Err(too_long(content));
    }
    if whole.is_none() && options.strict {
        return Err(unreadable());
    }
    if content.is_empty() {
        return Ok(Line::End);
    }
    if matches!(content, [b' ' | b'\t', ..]) {
        return fold(fields, content, limits, options);
    }
    if limits.fields > 0 && fields.len() >= limits.fields {
        let text = "Number of request headers exceeds LimitRequestFields";
        return Err(Refusal::new(Status::BAD_REQUEST, Level::Info, 563, text).with_detail(TOO_MANY));
    }
    let name = if options.strict { strict_name(content)? } else { unsafe_name(content)? };
    let value = content.get(name + 1..).unwrap_or_default();
    check_value(content, value, options.strict)?;
    if whole.is_some() && is_canonical(value) {
        fields.add_line(line, name);
    } else {
        fields.add(content.get(..name).unwrap_or_default(), trim(value));
    }
    Ok(Line::Field(name))
}

/// Whether a value begins with one space and has no other around it, so that the whole line can
/// be stored as it is.
fn is_canonical(value: &[u8]) -> bool {
    match value {
        [b' '] => true,
        [b' ', inner @ ..] => {
            !matches!(inner.first(), Some(b' ' | b'\t'))
                && !matches!(inner.last(), Some(b' ' | b'\t'))
        }
        _ => false,
    }
}

fn strict_name(content: &[u8]) -> Result<usize, Refusal> {
    let end = content.iter().position(|byte| !is_token(*byte)).unwrap_or(content.len());
    if end == 0 || content.get(end) != Some(&b':') {
        let text = format!("Request header field name is malformed: {}", excerpt(content));
        return Err(Refusal::bad(2426, text));
    }
    Ok(end)
}

fn unsafe_name(content: &[u8]) -> Result<usize, Refusal> {
    let Some(end) = memchr(b':', content) else {
        let text = format!("Request header field is missing ':' separator: {}", excerpt(content));
        return Err(Refusal::bad(564, text));
    };
    let name = content.get(..end).unwrap_or_default();
    if name.is_empty() {
        return Err(Refusal::bad(3453, "Request header field name was empty"));
    }
    if name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0x0b || *byte == 0) {
        return Err(Refusal::bad(3452, "Request header field name presented invalid whitespace"));
    }
    Ok(end)
}

/// Strict lets no control byte but the tab into a value (RFC 9110, section 5.5); Unsafe refuses
/// those that could end a line or a string elsewhere.
fn check_value(content: &[u8], value: &[u8], strict: bool) -> Result<(), Refusal> {
    // The name has been looked at; together with it the line is long enough for whole words.
    if !has_control(content) {
        return Ok(());
    }
    if memchr(0, content).is_some() {
        return Err(unreadable());
    }
    if strict {
        let text = format!("Request header value is malformed: {}", excerpt(trim(value)));
        return Err(Refusal::bad(2427, text));
    }
    if value.iter().any(|byte| matches!(byte, b'\r' | 0x0b | 0x0c)) {
        return Err(Refusal::bad(3451, "Request header field value presented bad whitespace"));
    }
    Ok(())
}

fn fold(
    fields: &mut Fields,
    content: &[u8],
    limits: &Limits,
    options: &HttpProtocolOptions,
) -> Result<Line, Refusal> {
    let more = trim(content);
    if more.is_empty() {
        return Err(Refusal::bad(3443, "Empty folded line encountered"));
    }
    let Some((name, value)) = fields.iter().last() else { return Err(malformed(content)) };
    if options.strict {
        return Err(malformed(content));
    }
    // The field's line has a colon, a space and a line end too.
    if name.len() + value.len() + 4 + content.len() > limits.field_size {
        let text = format!(
            "Request header exceeds LimitRequestFieldSize after folding: {}",
            excerpt(name)
        );
        return Err(Refusal::new(Status::BAD_REQUEST, Level::Info, 562, text).with_detail(TOO_LONG));
    }
    check_value(content, content, false)?;
    fields.fold(more);
    Ok(Line::Folded)
}

fn malformed(content: &[u8]) -> Refusal {
    Refusal::bad(2426, format!("Request header field name is malformed: {}", excerpt(content)))
}

/// A field longer than LimitRequestFieldSize, whole or as far as it has come.
pub(crate) fn too_long(content: &[u8]) -> Refusal {
    let name = content.split(|byte| *byte == b':').next().unwrap_or_default();
    let text = format!("Request header exceeds LimitRequestFieldSize: {}", excerpt(name));
    Refusal::new(Status::BAD_REQUEST, Level::Info, 561, text).with_detail(TOO_LONG)
}

/// Whether a refusal is [`too_long`]'s.
pub(crate) fn is_too_long(refusal: &Refusal) -> bool {
    refusal.notice.number == Some(561)
}

/// A line with NUL, without its carriage return, or cut off by the end of the connection.
pub(crate) fn unreadable() -> Refusal {
    Refusal::bad(567, "request failed: error reading the headers")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(lines: &[&[u8]], strict: bool) -> Result<Fields, u16> {
        let options = HttpProtocolOptions { strict, ..HttpProtocolOptions::default() };
        let limits = Limits { line: 60, field_size: 60, fields: 3 };
        let mut fields = Fields::new();
        for line in lines {
            take(&mut fields, line, &limits, &options).map_err(|r| r.notice.number.unwrap())?;
        }
        Ok(fields)
    }

    /// Lines and the notices that Apache 2.4.71 logs for them; folding apart.
    #[test]
    fn bad_fields_get_apaches_notices() {
        let long = [b"A: ".as_slice(), &[b'b'; 59], b"\r\n"].concat();
        let cases: &[(&[u8], Option<u16>, Option<u16>)] = &[
            (b"A: b\r\n", None, None),
            (b"A: b\tc\x80\r\n", None, None),
            (b"A: b\n", Some(567), None),
            (b"A : b\r\n", Some(2426), Some(3452)),
            (b": b\r\n", Some(2426), Some(3453)),
            (b"A: b\0c\r\n", Some(567), Some(567)),
            (b"A: b\x01c\r\n", Some(2427), None),
            (b"A: b\x7fc\r\n", Some(2427), None),
            (b"A: b\rc\r\n", Some(2427), Some(3451)),
            (b"A(: c\r\n", Some(2426), None),
            (b"A\x80: c\r\n", Some(2426), None),
            (b"nocolon\r\n", Some(2426), Some(564)),
            (b" a: b\r\n", Some(2426), Some(2426)),
            (&long, Some(561), Some(561)),
        ];
        for (line, strict, lax) in cases {
            let shown = String::from_utf8_lossy(line);
            assert_eq!(outcome(&[line], true).err(), *strict, "strict {shown}");
            assert_eq!(outcome(&[line], false).err(), *lax, "unsafe {shown}");
        }
    }

    #[test]
    fn values_are_trimmed_and_counted() {
        let fields = outcome(&[b"A:b\r\n", b"B:  c \t\r\n", b"C:\r\n"], true).unwrap();
        let values: Vec<_> = fields.iter().map(|(_, value)| value).collect();
        assert_eq!(values, [&b"b"[..], b"c", b""]);
        let four: &[&[u8]] = &[b"A: b\r\n", b"A: b\r\n", b"A: b\r\n", b"A: b\r\n"];
        assert_eq!(outcome(four, true).err(), Some(563));
        let limit = [b"A: ".as_slice(), &[b'b'; 58], b"\r\n"].concat();
        assert!(outcome(&[&limit], true).is_ok());
    }

    #[test]
    fn folding_is_joined_in_unsafe_only() {
        assert_eq!(outcome(&[b"A: b\r\n", b"\tc\r\n"], true).err(), Some(2426));
        let fields = outcome(&[b"A: b\r\n", b"\tc \r\n"], false).unwrap();
        assert_eq!(fields.first("a"), Some(&b"b c"[..]));
        assert_eq!(outcome(&[b"A: b\r\n", b" \r\n"], false).err(), Some(3443));
        let half = [b"A: ".as_slice(), &[b'b'; 40], b"\r\n"].concat();
        let more = [b" ".as_slice(), &[b'b'; 40], b"\r\n"].concat();
        assert_eq!(outcome(&[&half, &more], false).err(), Some(562));
    }
}
