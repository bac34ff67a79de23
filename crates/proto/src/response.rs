//! Parses the head of a response for a client: its status, the length of its body and whether the
//! connection is kept. It copies nothing and stores no fields; use [`response_field`] to read a
//! field from the same bytes.

use evenkeel_message::{Version, eq_ignore_case, trim};
use memchr::memchr;

/// The most bytes of a head. Beyond that, a client considers the response broken.
const MOST: usize = 256 << 10;

/// The end of a response's body (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseLength {
    /// There is no body.
    None,
    /// The body has this many bytes, at least one.
    Exact(u64),
    /// The body ends with the last chunk.
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// What a client needs to know to read a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The version of the server; 1.0 for anything older.
    pub version: Version,
    /// The status code, from 100 to 999.
    pub status: u16,
    /// The end of the body.
    pub length: ResponseLength,
    /// Whether the connection stays open for another request.
    pub persistent: bool,
    /// The size of the head in bytes, its last empty line included.
    pub size: usize,
}

impl ResponseHead {
    /// Whether the final response is still to come (RFC 9110, section 15.2).
    #[must_use]
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }
}

/// Why the bytes of a server are not a valid response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The first line is not a status line.
    StatusLine,
    /// A line of the head is not a field.
    Field,
    /// Content-Length is not a number, or there are two that differ.
    Length,
    /// The head does not end within 256 KiB.
    Size,
}

/// Parses the head at the front of `buffer`. Returns None until its end has arrived. `no_body` says
/// that the request was HEAD, whose response ends with the head.
///
/// # Errors
///
/// What is wrong with the head.
pub fn parse_response(buffer: &[u8], no_body: bool) -> Result<Option<ResponseHead>, Malformed> {
    let Some((line, mut at)) = next_line(buffer, 0) else { return unfinished(buffer) };
    let (version, status) = status_line(line).ok_or(Malformed::StatusLine)?;
    let mut said = Said::default();
    loop {
        let Some((line, next)) = next_line(buffer, at) else { return unfinished(buffer) };
        at = next;
        if line.is_empty() {
            break;
        }
        said.take(line)?;
    }
    let bare = no_body || status < 200 || status == 204 || status == 304;
    let length = match (bare, said.chunked, said.length) {
        (true, ..) | (false, false, Some(0)) => ResponseLength::None,
        (false, true, _) => ResponseLength::Chunked,
        (false, false, Some(length)) => ResponseLength::Exact(length),
        (false, false, None) => ResponseLength::UntilClose,
    };
    let kept = if version == Version::Http11 { !said.close } else { said.keep && !said.close };
    let persistent = kept && length != ResponseLength::UntilClose && status != 101;
    Ok(Some(ResponseHead { version, status, length, persistent, size: at }))
}

/// The first value of a field in a head that [`parse_response`] has parsed.
#[must_use]
pub fn response_field<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (_, mut at) = next_line(head, 0)?;
    loop {
        let (line, next) = next_line(head, at)?;
        at = next;
        let colon = memchr(b':', line)?;
        let (found, value) = line.split_at_checked(colon)?;
        if eq_ignore_case(found, name) {
            return Some(trim(value.get(1..)?));
        }
    }
}

fn unfinished(buffer: &[u8]) -> Result<Option<ResponseHead>, Malformed> {
    // Refuse what cannot become a status line before the line ends.
    let start = buffer.get(..buffer.len().min(5)).unwrap_or_default();
    if !b"HTTP/".starts_with(start) {
        return Err(Malformed::StatusLine);
    }
    if buffer.len() > MOST { Err(Malformed::Size) } else { Ok(None) }
}

/// A line without its end, and the index of the next one. A line feed alone ends a line too (RFC
/// 9112, section 2.2).
fn next_line(buffer: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = buffer.get(at..)?;
    let end = memchr(b'\n', rest)?;
    let line = rest.get(..end)?;
    Some((line.strip_suffix(b"\r").unwrap_or(line), at + end + 1))
}

fn status_line(line: &[u8]) -> Option<(Version, u16)> {
    let rest = line.strip_prefix(b"HTTP/")?;
    let (version, rest) = rest.split_at_checked(3)?;
    let version = match version {
        [b'1', b'.', b'1'..=b'9'] => Version::Http11,
        [b'0' | b'1', b'.', b'0'..=b'9'] => Version::Http10,
        _ => return None,
    };
    let [b' ', hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9', after @ ..] = rest
    else {
        return None;
    };
    if !matches!(after.first(), None | Some(b' ')) {
        return None;
    }
    let digit = |byte: &u8| u16::from(byte - b'0');
    Some((version, digit(hundreds) * 100 + digit(tens) * 10 + digit(ones)))
}

/// What the fields say about framing.
#[derive(Default)]
struct Said {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep: bool,
}

impl Said {
    fn take(&mut self, line: &[u8]) -> Result<(), Malformed> {
        // The first letter rules out most fields.
        match line.first() {
            Some(b'C' | b'c' | b'T' | b't') => {}
            Some(b' ' | b'\t') => return Ok(()),
            _ => return memchr(b':', line).map(drop).ok_or(Malformed::Field),
        }
        let colon = memchr(b':', line).ok_or(Malformed::Field)?;
        let (name, value) = line.split_at_checked(colon).ok_or(Malformed::Field)?;
        let value = trim(value.get(1..).unwrap_or_default());
        if eq_ignore_case(name, b"Content-Length") {
            let length = number(value).ok_or(Malformed::Length)?;
            if self.length.is_some_and(|before| before != length) {
                return Err(Malformed::Length);
            }
            self.length = Some(length);
        } else if eq_ignore_case(name, b"Transfer-Encoding") {
            let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
            self.chunked = eq_ignore_case(trim(last), b"chunked");
        } else if eq_ignore_case(name, b"Connection") {
            for token in value.split(|byte| *byte == b',') {
                let token = trim(token);
                self.close |= eq_ignore_case(token, b"close");
                self.keep |= eq_ignore_case(token, b"keep-alive");
            }
        }
        Ok(())
    }
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<ResponseHead>, Malformed> {
        parse_response(text.as_bytes(), false)
    }

    #[test]
    fn the_length_follows_rfc_9112() {
        let length = |text: &str| parse(text).unwrap().map(|head| (head.length, head.persistent));
        let with = |fields: &str| length(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"));
        assert_eq!(with("Content-Length: 5\r\n"), Some((ResponseLength::Exact(5), true)));
        assert_eq!(with("content-length:0\r\n"), Some((ResponseLength::None, true)));
        assert_eq!(with("X: y\r\n"), Some((ResponseLength::UntilClose, false)));
        let both = "Content-Length: 5\r\nTransfer-Encoding: gzip, chunked\r\n";
        assert_eq!(with(both), Some((ResponseLength::Chunked, true)));
        let close = "Content-Length: 5\r\nConnection: x, Close\r\n";
        assert_eq!(with(close), Some((ResponseLength::Exact(5), false)));
        assert_eq!(length("HTTP/1.1 304 \r\n\r\n"), Some((ResponseLength::None, true)));
        assert_eq!(length("HTTP/1.0 204 No\n\n"), Some((ResponseLength::None, false)));
        let kept = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n";
        assert_eq!(length(kept), Some((ResponseLength::Exact(1), true)));
        let head = parse_response(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true);
        assert_eq!(head.unwrap().unwrap().length, ResponseLength::None);
    }

    #[test]
    fn the_end_of_the_head_is_waited_for_and_counted() {
        let text = "HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 200";
        for end in 0..31 {
            assert_eq!(parse(&text[..end]), Ok(None), "{end}");
        }
        let head = parse(text).unwrap().unwrap();
        assert!(head.is_interim() && head.size == 31);
    }

    #[test]
    fn what_is_no_response_is_told_apart() {
        assert_eq!(parse("SSH-2.0"), Err(Malformed::StatusLine));
        assert_eq!(parse("HTTP/1.1 20 OK\r\n\r\n"), Err(Malformed::StatusLine));
        assert_eq!(parse("HTTP/2.0 200 OK\r\n\r\n"), Err(Malformed::StatusLine));
        assert_eq!(parse("HTTP/1.1 2000\r\n\r\n"), Err(Malformed::StatusLine));
        assert_eq!(parse("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n"), Err(Malformed::Field));
        assert_eq!(parse("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), Err(Malformed::Length));
        let two = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
        assert_eq!(parse(two), Err(Malformed::Length));
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(MOST));
        assert_eq!(parse(&long), Err(Malformed::Size));
    }

    #[test]
    fn fields_are_read_from_the_same_bytes() {
        let head = b"HTTP/1.1 200 OK\r\nServer: one\r\nserver: two\r\nX:  y \r\n\r\nbody: z\r\n";
        assert_eq!(response_field(head, b"SERVER"), Some(&b"one"[..]));
        assert_eq!(response_field(head, b"x"), Some(&b"y"[..]));
        assert_eq!(response_field(head, b"body"), None);
    }
}
