//! Parses the head of a script's response (RFC 3875, section 6). [`HeadEnd`] finds the end of the
//! head in the bytes received so far, and [`parse_script_head`] sorts the fields (util_script.c:
//! `ap_scan_script_header_err_core_ex`).

use evenkeel_message::{Fields, eq_ignore_case};
use memchr::{memchr, memchr2};
use std::borrow::Cow;

/// The largest head, in bytes. A longer one is an error.
pub const MOST_HEAD: usize = 64 << 10;

/// The most fields of a head. Apache has no bound.
const MOST_FIELDS: usize = 1000;

/// The longest line without its end, in bytes (util_script.c: `getsfunc_BRIGADE`).
const MOST_LINE: usize = 8189;

/// The head of a script's response.
#[derive(Clone, Debug, Default)]
pub struct ScriptHead {
    /// The number and the whole text of `Status`.
    pub status: Option<(u16, Vec<u8>)>,
    /// The media type, without spaces at its end.
    pub media_type: Option<Vec<u8>>,
    /// The value of Last-Modified.
    pub last_modified: Option<Vec<u8>>,
    /// Location, ETag, Content-Length, Content-Range and Transfer-Encoding, each with its last
    /// value.
    pub fields: Fields,
    /// The other fields. The values of equal names are joined.
    pub always: Fields,
    /// The lines of Set-Cookie.
    pub cookies: Vec<Vec<u8>>,
}

/// An error in a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadHead {
    /// The script wrote nothing.
    Nothing,
    /// The head ends in the middle, or a line, the head or the number of fields is too large.
    Premature,
    /// This line has no colon, or is empty before a NUL.
    NoColon(Vec<u8>),
}

/// Finds the end of a head that comes in pieces (mod_proxy_fcgi.c: `handle_headers`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadEnd(State);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Return,
    ReturnFeed,
    ReturnFeedReturn,
    Feed,
}

impl HeadEnd {
    /// The number of bytes of this piece that end the head, its empty line included; none if the
    /// head continues.
    pub fn find(&mut self, piece: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(rest) = piece.get(at..).filter(|rest| !rest.is_empty()) {
            // Within a line only its end matters.
            let skipped = match self.0 {
                State::Text => memchr2(b'\r', b'\n', rest)?,
                _ => 0,
            };
            self.0 = match (rest.get(skipped), self.0) {
                (Some(b'\n'), State::Feed | State::ReturnFeedReturn) => return Some(at + 1),
                (Some(b'\n'), State::Return) => State::ReturnFeed,
                (Some(b'\n'), _) => State::Feed,
                (Some(b'\r'), State::ReturnFeed) => State::ReturnFeedReturn,
                (Some(b'\r'), _) => State::Return,
                _ => State::Text,
            };
            at += skipped + 1;
        }
        None
    }
}

/// Parses a head whose end was found.
///
/// # Errors
/// The head is malformed.
pub fn parse_script_head(head: &[u8]) -> Result<ScriptHead, BadHead> {
    parse(head, ScriptHead::take)
}

/// Parses the head of a worker of this server (`php/evenkeel-php.c`): the first Status is that of
/// the response, and all fields but it and the media type are in `fields`, as often as they come.
///
/// # Errors
/// The head is malformed.
pub fn parse_worker_head(head: &[u8]) -> Result<ScriptHead, BadHead> {
    parse(head, ScriptHead::take_of_worker)
}

/// Parses the head of a uWSGI application, which begins with a status line of HTTP: all fields but
/// the media type are in `fields`, as often as they come (mod_proxy_uwsgi.c: `uwsgi_response`).
///
/// # Errors
/// The head is malformed.
pub fn parse_uwsgi_head(head: &[u8]) -> Result<ScriptHead, BadHead> {
    let end = memchr(b'\n', head).ok_or(BadHead::Nothing)?;
    let line = without_returns(head.get(..end).unwrap_or_default());
    let no_status = || BadHead::NoColon(line.to_vec());
    let status = line
        .strip_prefix(b"HTTP/")
        .and_then(|rest| match rest {
            [major, b'.', minor, b' ', status @ ..] => {
                (major.is_ascii_digit() && minor.is_ascii_digit()).then_some(status)
            }
            [major, b' ', status @ ..] => major.is_ascii_digit().then_some(status),
            _ => None,
        })
        .ok_or_else(no_status)?;
    let is_number = status.get(..3).is_some_and(|digits| digits.iter().all(u8::is_ascii_digit));
    if !is_number || status.get(3).is_some_and(|byte| *byte != b' ') {
        return Err(no_status());
    }
    let rest = head.get(end + 1..).unwrap_or_default();
    let mut parsed = parse(rest, ScriptHead::take_of_uwsgi)?;
    let is_name = |name: &[u8]| !name.is_empty() && name.iter().all(|byte| is_token(*byte));
    if let Some((name, _)) = parsed.fields.iter().find(|(name, _)| !is_name(name)) {
        return Err(BadHead::NoColon(name.to_vec()));
    }
    parsed.status = Some((number(status), status.to_vec()));
    Ok(parsed)
}

/// Whether a byte may occur in a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn parse(head: &[u8], take: fn(&mut ScriptHead, &[u8], &[u8])) -> Result<ScriptHead, BadHead> {
    let (mut parsed, mut rest, mut count) = (ScriptHead::default(), head, 0);
    loop {
        let premature = if count == 0 { BadHead::Nothing } else { BadHead::Premature };
        let end = memchr(b'\n', rest).ok_or_else(|| premature.clone())?;
        let mut line = without_returns(rest.get(..end).unwrap_or_default());
        rest = rest.get(end + 1..).unwrap_or_default();
        if line.len() > MOST_LINE || count > MOST_FIELDS {
            return Err(premature);
        }
        if line.is_empty() {
            return Ok(parsed);
        }
        // A line ends at a NUL, as in the C strings of Apache.
        if let Some(nul) = memchr(0, &line) {
            line = line.get(..nul).unwrap_or_default().to_vec().into();
        }
        let Some(colon) = memchr(b':', &line) else {
            return Err(BadHead::NoColon(line.into_owned()));
        };
        let (name, value) = line.split_at_checked(colon).unwrap_or_default();
        let value = value.get(1..).unwrap_or_default();
        take(&mut parsed, name, skip_blanks(value));
        count += 1;
    }
}

/// A line without its carriage returns. Usually there is one, at its end.
fn without_returns(line: &[u8]) -> Cow<'_, [u8]> {
    let bare = line.strip_suffix(b"\r").unwrap_or(line);
    match memchr(b'\r', bare) {
        None => bare.into(),
        Some(_) => bare.iter().copied().filter(|byte| *byte != b'\r').collect(),
    }
}

impl ScriptHead {
    fn take_of_worker(&mut self, name: &[u8], value: &[u8]) {
        if eq_ignore_case(name, b"Content-Type") {
            self.media_type = Some(value.to_vec());
        } else if self.status.is_none() && eq_ignore_case(name, b"Status") {
            self.status = Some((number(value), value.to_vec()));
        } else {
            self.fields.add(name, value);
        }
    }

    fn take_of_uwsgi(&mut self, name: &[u8], value: &[u8]) {
        match eq_ignore_case(name, b"Content-Type") {
            true => self.media_type = Some(without_blanks_behind(value).to_vec()),
            false => self.fields.add(name, without_blanks_behind(value)),
        }
    }

    fn take(&mut self, name: &[u8], value: &[u8]) {
        let is = |other: &str| eq_ignore_case(name, other.as_bytes());
        if is("Content-Type") {
            self.media_type = Some(without_blanks_behind(value).to_vec());
        } else if is("Status") {
            self.status = Some((number(value), value.to_vec()));
        } else if is("Last-Modified") {
            self.last_modified = Some(value.to_vec());
        } else if is("Set-Cookie") {
            self.cookies.push(value.to_vec());
        } else if ["Location", "ETag", "Content-Length", "Content-Range", "Transfer-Encoding"]
            .into_iter()
            .any(is)
        {
            self.fields.set(name, value);
        } else {
            self.always.merge(name, value);
        }
    }
}

/// Parses the number at the front of a status, as atoi(3) does. Returns 0 if there is none.
fn number(text: &[u8]) -> u16 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0_u16, |sum, digit| sum.saturating_mul(10).saturating_add(u16::from(digit - b'0')))
}

fn without_blanks_behind(value: &[u8]) -> &[u8] {
    let end = value.iter().rposition(|byte| !is_blank(*byte)).map_or(0, |last| last + 1);
    value.get(..end).unwrap_or_default()
}

fn skip_blanks(value: &[u8]) -> &[u8] {
    let start = value.iter().position(|byte| !is_blank(*byte)).unwrap_or(value.len());
    value.get(start..).unwrap_or_default()
}

/// Whether a byte is white space, as isspace(3) defines it.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<ScriptHead, BadHead> {
        parse_script_head(text.as_bytes())
    }

    #[test]
    fn fields_are_sorted_as_apache_sorts_them() {
        let head = parse(
            "Status:  404 Not here\r\nContent-type: text/html \r\nX-A: 1\nx-a: 2\nSet-Cookie: a\n\
             Set-Cookie: b\nETag: \"e\"\nLocation: /a\nLocation: /b\nLast-Modified: now\n\r\n",
        )
        .unwrap();
        assert_eq!(head.status, Some((404, b"404 Not here".to_vec())));
        assert_eq!(head.media_type.as_deref(), Some(&b"text/html"[..]));
        assert_eq!(head.always.joined(b"X-A").as_deref(), Some(&b"1, 2"[..]));
        assert_eq!(head.cookies, [b"a", b"b"]);
        assert_eq!(head.fields.first(b"Location"), Some(&b"/b"[..]));
        assert_eq!(head.fields.first(b"ETag"), Some(&b"\"e\""[..]));
        assert_eq!(head.last_modified.as_deref(), Some(&b"now"[..]));
        assert!(!head.always.contains(b"Last-Modified"));
    }

    #[test]
    fn odd_heads_are_told_apart() {
        assert_eq!(parse("").unwrap_err(), BadHead::Nothing);
        assert_eq!(parse("A: b").unwrap_err(), BadHead::Nothing);
        assert_eq!(parse("A: b\nC: d").unwrap_err(), BadHead::Premature);
        assert_eq!(parse("A: b\nnonsense\n\n").unwrap_err(), BadHead::NoColon(b"nonsense".into()));
        let long = format!("A: b\nC: {}\n\n", "x".repeat(MOST_LINE - 2));
        assert_eq!(parse(&long).unwrap_err(), BadHead::Premature);
        assert_eq!(parse(&"A: b\n".repeat(MOST_FIELDS + 2)).unwrap_err(), BadHead::Premature);
        assert_eq!(parse(&("A: b\n".repeat(500) + "\n")).unwrap().always.iter().count(), 1);
        assert_eq!(parse("A: b\0c\n\n").unwrap().always.first(b"A"), Some(&b"b"[..]));
        assert_eq!(parse("A\0: b\n\n").unwrap_err(), BadHead::NoColon(b"A".into()));
        assert_eq!(parse("A: b\n\0C: d\n\n").unwrap_err(), BadHead::NoColon(b"".into()));
        assert!(parse("\n").unwrap().status.is_none());
        assert_eq!(parse("Status: soon\n\n").unwrap().status, Some((0, b"soon".to_vec())));
    }

    #[test]
    fn the_head_of_a_uwsgi_application_has_a_status_line() {
        let parse = |text: &str| parse_uwsgi_head(text.as_bytes());
        let head =
            parse("HTTP/1.1 404 Not here\r\nContent-Type: a/b\r\nX: y \r\nX: z\r\n\r\n").unwrap();
        assert_eq!(head.status, Some((404, b"404 Not here".to_vec())));
        assert_eq!(head.media_type.as_deref(), Some(&b"a/b"[..]));
        assert_eq!(head.fields.all(b"X").collect::<Vec<_>>(), [b"y", b"z"]);
        assert_eq!(parse("HTTP/1 200\n\n").unwrap().status, Some((200, b"200".to_vec())));
        for wrong in
            ["Status: 200 OK\n\n", "HTTP/1.1 20 OK\n\n", "HTTP/1.1 2000\n\n", "HTTP/x 200 a\n\n"]
        {
            let line = wrong.trim_end().as_bytes().to_vec();
            assert_eq!(parse(wrong).unwrap_err(), BadHead::NoColon(line), "{wrong}");
        }
        let bad = parse("HTTP/1.1 200 OK\nA b: c\n\n").unwrap_err();
        assert_eq!(bad, BadHead::NoColon(b"A b".to_vec()));
        assert_eq!(parse("HTTP/1.1 200 OK\n").unwrap_err(), BadHead::Nothing);
    }

    #[test]
    fn line_feeds_alone_end_a_head_and_mixed_ends_do_as_in_apache() {
        let end = |text: &str| HeadEnd::default().find(text.as_bytes());
        assert_eq!(end("A: b\r\n\r\nbody"), Some(8));
        assert_eq!(end("A: b\n\nbody"), Some(6));
        assert_eq!(end("A: b\r\n\n"), None);
        assert_eq!(end("A: b\n\r\n"), None);
        assert_eq!(end("A: b\r\n"), None);
    }

    proptest! {
        #[test]
        fn the_end_is_found_wherever_the_head_is_split(
            text in "[ab:\r\n]{0,24}",
            cut in any::<prop::sample::Index>(),
        ) {
            let cut = cut.index(text.len() + 1);
            let whole = HeadEnd::default().find(text.as_bytes());
            let mut state = HeadEnd::default();
            let parts = state
                .find(&text.as_bytes()[..cut])
                .or_else(|| state.find(&text.as_bytes()[cut..]).map(|end| cut + end));
            prop_assert_eq!(whole, parts);
        }
    }
}
