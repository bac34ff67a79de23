//! Parses and checks one field line of a head or of a trailer section, and adds it to the fields.
//! Fields of the same name are not joined, but checked for their total length.

use crate::line::is_token;
use crate::refusal::{Refusal, excerpt};
use crate::scan::{first_colon_or_control, first_control};
use crate::{HttpProtocolOptions, Limits};
use evenkeel_message::{FieldLine, Fields, Level, Name, Status, trim};
use memchr::memchr;

const TOO_LONG: &str = "Size of a request header field exceeds server limit.";
const TOO_MANY: &str = "The number of request header fields exceeds this server's limit.";

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The empty line after the last field.
    End,
    /// A field with this name.
    Field(Name),
    /// The continuation of the previous field.
    Folded,
}

/// Takes the lines at the front of `bytes` that have the usual form: a known name, a colon, a
/// space, a value without control bytes and without spaces around it, CRLF; none of them too long
/// or too many. Returns their length in bytes, and whether one of them concerns the length of the
/// body. [`take`] handles the rest.
pub(crate) fn take_usual(fields: &mut Fields, bytes: &[u8], limits: &Limits) -> (usize, bool) {
    let most = if limits.fields == 0 { usize::MAX } else { limits.fields };
    let (mut room, mut framed) = (most.saturating_sub(fields.len()), false);
    let used = fields.add_lines(bytes, |rest| {
        room = room.checked_sub(1)?;
        let line = usual_line(rest).filter(|line| line.length <= limits.field_size)?;
        framed |= is_framing(line.known);
        Some(line)
    });
    (used, framed)
}

/// The line at the front of `bytes`, if it has that form.
fn usual_line(bytes: &[u8]) -> Option<FieldLine> {
    // Do not search beyond the end of the line: many lines without a colon may follow.
    let (name, rest) = bytes.split_at_checked(first_colon_or_control(bytes)?)?;
    let known = Name::at(bytes, name.len());
    // The name contains no control byte, so the first one after it is the end of such a line.
    let (value, behind) = rest.split_at_checked(first_control(rest)?)?;
    let is_usual = match value {
        [b':', b' ', inner @ ..] => inner.first() != Some(&b' ') && inner.last() != Some(&b' '),
        _ => false,
    };
    let length = name.len() + value.len() + 2;
    (is_usual && known != Name::Other && behind.starts_with(b"\r\n")).then_some(FieldLine {
        known,
        name: name.len(),
        length,
    })
}

/// Whether fields of that name concern the length of the body.
pub(crate) fn is_framing(name: Name) -> bool {
    matches!(name, Name::ContentLength | Name::TransferEncoding)
}

/// Takes one line with its line feed (RFC 9112, section 5; Apache: protocol.c,
/// `ap_get_mime_headers_core`). A folded line is joined to the previous field by one space, so that
/// no later code sees a fold (RFC 9112, section 5.2).
pub(crate) fn take(
    fields: &mut Fields,
    line: &[u8],
    limits: &Limits,
    options: &HttpProtocolOptions,
) -> Result<Line, Refusal> {
    let whole = line.strip_suffix(b"\r\n");
    let content = whole.unwrap_or_else(|| line.strip_suffix(b"\n").unwrap_or(line));
    // Check the length first: a line that arrives in pieces is refused for its length before its
    // end is seen.
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
    let end = if options.strict { strict_name(content)? } else { unsafe_name(content)? };
    let (text, value) = (content.get(..end), content.get(end + 1..).unwrap_or_default());
    check_value(content, value, options.strict)?;
    let text = text.unwrap_or_default();
    let name = Name::of(text);
    if whole.is_some() && is_canonical(value) {
        fields.add_line(name, line, end);
    } else {
        fields.add(text, trim(value));
    }
    Ok(Line::Field(name))
}

/// Whether a value begins with one space and has no other around it, so that the whole line can be
/// stored as it is.
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

/// Checks a value. Strict allows no control byte except the tab (RFC 9110, section 5.5); Unsafe
/// refuses those that could end a line or a string elsewhere.
fn check_value(content: &[u8], value: &[u8], strict: bool) -> Result<(), Refusal> {
    let is_bad = |byte: &u8| *byte < b' ' && *byte != b'\t' || *byte == 0x7f;
    if first_control(content).is_none() || !content.iter().any(is_bad) {
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
    let Some((name, value)) = fields.iter().last() else {
        return Err(Refusal::bad(3442, "Line folding encountered before first header line"));
    };
    // The field as one line: the name, a colon, a space, the value, a space and the continuation.
    let joined = name.len() + 2 + value.len() + usize::from(!value.is_empty()) + more.len();
    if joined > limits.field_size.saturating_sub(2) {
        return Err(beyond_limit(562, "folding", name));
    }
    check_value(content, content, options.strict)?;
    fields.fold(more);
    Ok(Line::Folded)
}

/// Checks the values of one name together, with a comma and a space between them, because
/// LimitRequestFieldSize holds for them too (Apache: protocol.c, `table_do_fn_check_lengths`).
pub(crate) fn check_joined(fields: &Fields, limits: &Limits) -> Result<(), Refusal> {
    // Nearly all heads as a whole are shorter than the limit.
    if fields.bytes() <= limits.field_size {
        return Ok(());
    }
    let mut all: Vec<_> = fields.iter().map(|(name, value)| (name, value.len() + 2)).collect();
    // The number of fields is not bounded here; sorting brings those with the same name together.
    all.sort_by(|(a, _), (b, _)| {
        let lower = |name| <[u8]>::iter(name).map(u8::to_ascii_lowercase);
        lower(a).cmp(lower(b))
    });
    for same in all.chunk_by(|(a, _), (b, _)| a.eq_ignore_ascii_case(b)) {
        let joined: usize = same.iter().map(|(_, length)| length).sum();
        if let [(name, _), _, ..] = same
            && joined - 2 > limits.field_size
        {
            return Err(beyond_limit(560, "merging", name));
        }
    }
    Ok(())
}

/// The refusal of a field that exceeds LimitRequestFieldSize when its parts are joined.
fn beyond_limit(number: u16, after: &str, name: &[u8]) -> Refusal {
    let name = excerpt(name);
    let text = format!("Request header exceeds LimitRequestFieldSize after {after}: {name}");
    Refusal::new(Status::BAD_REQUEST, Level::Info, number, text).with_detail(TOO_LONG)
}

/// The refusal of a field that exceeds LimitRequestFieldSize, complete or as far as it has arrived.
pub(crate) fn too_long(content: &[u8]) -> Refusal {
    let name = content.split(|byte| *byte == b':').next().unwrap_or_default();
    let text = format!("Request header exceeds LimitRequestFieldSize: {}", excerpt(name));
    Refusal::new(Status::BAD_REQUEST, Level::Info, 561, text).with_detail(TOO_LONG)
}

/// Whether a refusal is [`too_long`]'s.
pub(crate) fn is_too_long(refusal: &Refusal) -> bool {
    refusal.notice.number == Some(561)
}

/// The refusal of a line that contains NUL, lacks its carriage return, or is cut off by the end of
/// the connection.
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

    /// Lines and the notices that Apache 2.4.71 logs for them, except for folding.
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
            (b" a: b\r\n", Some(3442), Some(3442)),
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

    /// What Apache 2.4.71 makes of folded lines, Strict and Unsafe.
    #[test]
    fn a_folded_line_is_joined_by_one_space() {
        for strict in [true, false] {
            let value = |lines: &[&[u8]]| {
                outcome(lines, strict).map(|fields| fields.iter().last().unwrap().1.to_vec())
            };
            assert_eq!(value(&[b"A: b  \r\n", b"\t c \r\n", b" d\r\n"]), Ok(b"b c d".to_vec()));
            assert_eq!(value(&[b"A:\r\n", b" c\r\n"]), Ok(b"c".to_vec()));
            assert_eq!(value(&[b" a: b\r\n"]), Err(3442));
            assert_eq!(value(&[b"A: b\r\n", b" \r\n"]), Err(3443));
            assert_eq!(value(&[b"A: b\r\n", b" c\0\r\n"]), Err(567));
            let control = if strict { 2427 } else { 3451 };
            assert_eq!(value(&[b"A: b\r\n", b" c\rd\r\n"]), Err(control));
            // 3 bytes for the name and 15 for the first value; with a limit of 60, a value of 58
            // passes.
            for (length, expected) in [(39, None), (40, Some(562))] {
                let more = [b"   ".as_slice(), &vec![b'c'; length], b"  \r\n"].concat();
                let joined = outcome(&[b"A: 123456789012345\r\n", &more], strict);
                assert_eq!(joined.err(), expected, "{length}");
            }
        }
        let fold: [&[u8]; 2] = [b"A: b\r\n", b" c\x01\r\n"];
        assert_eq!(outcome(&fold, true).err(), Some(2427));
        assert!(outcome(&fold, false).is_ok());
    }

    #[test]
    fn fields_of_one_name_are_held_to_the_limit_together() {
        let joined = |values: &[(&str, usize)]| {
            let mut fields = Fields::new();
            for (name, length) in values {
                fields.add(name, vec![b'v'; *length]);
            }
            let limits = Limits { line: 60, field_size: 60, fields: 3 };
            check_joined(&fields, &limits).map_err(|refusal| refusal.notice.text.into_owned())
        };
        let after = "Request header exceeds LimitRequestFieldSize after merging: ";
        assert_eq!(joined(&[("B", 40), ("a", 29), ("C", 50), ("A", 29)]), Ok(()));
        assert_eq!(joined(&[("B", 40), ("a", 29), ("C", 50), ("A", 30)]), Err(format!("{after}a")));
        assert_eq!(joined(&[("a", 20), ("A", 20), ("a", 16)]), Ok(()));
        assert_eq!(joined(&[("a", 20), ("A", 20), ("a", 17)]), Err(format!("{after}a")));
        assert_eq!(joined(&[("a", 50), ("a-", 50), ("b", 50)]), Ok(()));
        // A single field was already checked as a line.
        assert_eq!(joined(&[("a", 61)]), Ok(()));
    }
}
