//! Parses the head of a request from the receive buffer. Call it each time bytes are added to the
//! buffer; each byte is examined once, however the bytes arrive. Bytes after the head are not
//! touched.

use crate::field::{self, Line};
use crate::refusal::Refusal;
use crate::{HttpProtocolOptions, Limits, framing, line};
use evenkeel_message::{BodyLength, Level, RequestHead, Status, Version};
use memchr::memchr;

/// The most empty lines before a request line (RFC 9112, section 2.2 requires one; Apache allows
/// ten).
const EMPTY_LINES: u8 = 10;

/// The result of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The head is complete and took this many bytes from the front of the buffer.
    Complete(usize),
    /// More bytes are needed.
    Partial,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    RequestLine,
    Fields,
}

/// Parses one head. It remembers where it stopped, and continues there when it gets the same buffer
/// with more bytes. After `Complete` it is ready for the next head.
#[derive(Clone, Debug, Default)]
pub struct HeadParser {
    stage: Stage,
    /// The beginning of the line that is not yet complete.
    start: usize,
    /// How far that line was searched for its end.
    searched: usize,
    empty_lines: u8,
    /// Whether one of the fields concerns the length of the body.
    framed: bool,
}

impl HeadParser {
    /// A parser before the first byte.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether anything but empty lines has arrived, so that a request has begun.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.stage == Stage::Fields || self.searched > self.start
    }

    /// Whether the request line is complete, so that there is something to answer.
    #[must_use]
    pub fn has_line(&self) -> bool {
        self.stage == Stage::Fields
    }

    /// Continues parsing. `head` must be cleared before the first call for a request. After an
    /// error it holds what was parsed, for the access log, and how many bytes were received. The
    /// buffer must begin where it began in the previous call.
    ///
    /// # Errors
    ///
    /// The request is refused: it is malformed or exceeds a limit.
    pub fn parse(
        &mut self,
        head: &mut RequestHead,
        buffer: &[u8],
        limits: &Limits,
        options: &HttpProtocolOptions,
    ) -> Result<Parsed, Refusal> {
        let parsed = self.read_on(head, buffer, limits, options);
        if parsed.is_err() {
            head.wire_bytes = self.start;
        }
        parsed
    }

    fn read_on(
        &mut self,
        head: &mut RequestHead,
        buffer: &[u8],
        limits: &Limits,
        options: &HttpProtocolOptions,
    ) -> Result<Parsed, Refusal> {
        if self.stage == Stage::RequestLine && !self.take_line(head, buffer, limits, options)? {
            return Ok(Parsed::Partial);
        }
        if head.version == Version::Http09 {
            return Ok(self.complete(head));
        }
        self.take_usual(head, buffer, limits);
        while let Some(text) = self.next_line(buffer) {
            let end = self.start + text.len();
            let taken = field::take(&mut head.fields, text, limits, options);
            match taken.inspect_err(|refusal| self.pass(end, buffer, refusal))? {
                Line::Field(name) => self.framed |= field::is_framing(name),
                Line::Folded => {}
                Line::End => {
                    (self.start, self.searched) = (end, end);
                    field::check_joined(&head.fields, limits)?;
                    head.length = match self.framed {
                        true => framing::body_length(head)?,
                        false => BodyLength::None,
                    };
                    return Ok(self.complete(head));
                }
            }
            (self.start, self.searched) = (end, end);
            self.take_usual(head, buffer, limits);
        }
        let rest = buffer.get(self.start..).unwrap_or_default();
        // A line one byte above the limit still passes, and its line end has two bytes.
        if rest.len() > limits.field_size.saturating_add(3) {
            let refusal = field::too_long(rest);
            self.start = buffer.len();
            return Err(refusal);
        }
        Ok(Parsed::Partial)
    }

    /// What the end of the connection in the middle of a head means: a refusal if the request line
    /// had arrived (Apache answers 400), otherwise nothing that could be answered.
    #[must_use]
    pub fn end(&self) -> Option<Refusal> {
        self.has_line().then(field::unreadable)
    }

    /// Parses the request line, after skipping empty lines. Returns false while it is incomplete.
    fn take_line(
        &mut self,
        head: &mut RequestHead,
        buffer: &[u8],
        limits: &Limits,
        options: &HttpProtocolOptions,
    ) -> Result<bool, Refusal> {
        while let Some(text) = self.next_line(buffer) {
            let end = self.start + text.len();
            let content = text.strip_suffix(b"\n").unwrap_or(text);
            let whole = content.strip_suffix(b"\r");
            let content = whole.unwrap_or(content);
            (self.start, self.searched) = (end, end);
            if content.len() > limits.line.saturating_add(1) {
                return Err(line_too_long(head, content, limits));
            }
            if whole.is_none() && options.strict {
                head.line.extend_from_slice(content);
                return Err(malformed_line());
            }
            if content.is_empty() && self.empty_lines < EMPTY_LINES {
                self.empty_lines += 1;
                continue;
            }
            line::parse(head, content, options).map_err(|refusal| {
                // No line with NUL passes, and Apache has one notice for all of them.
                if memchr(0, content).is_some() { malformed_line() } else { refusal }
            })?;
            self.stage = Stage::Fields;
            return Ok(true);
        }
        let rest = buffer.get(self.start..).unwrap_or_default();
        if rest.len() > limits.line.saturating_add(3) {
            self.start = buffer.len();
            return Err(line_too_long(head, rest, limits));
        }
        Ok(false)
    }

    /// Records how much was read when the field that ends at `end` was refused. Apache checks a
    /// field after it has read the next line, which might continue it, unless the field is too
    /// long.
    fn pass(&mut self, end: usize, buffer: &[u8], refusal: &Refusal) {
        (self.start, self.searched) = (end, end);
        if !field::is_too_long(refusal)
            && let Some(next) = self.next_line(buffer)
        {
            self.start += next.len();
        }
    }

    /// Takes the next lines of the usual form, except while a line has arrived only in part.
    fn take_usual(&mut self, head: &mut RequestHead, buffer: &[u8], limits: &Limits) {
        if self.searched > self.start {
            return;
        }
        let rest = buffer.get(self.start..).unwrap_or_default();
        let (used, framed) = field::take_usual(&mut head.fields, rest, limits);
        self.start += used;
        self.searched = self.start;
        self.framed |= framed;
    }

    /// The next line with its line feed, if it is complete.
    fn next_line<'a>(&mut self, buffer: &'a [u8]) -> Option<&'a [u8]> {
        match memchr(b'\n', buffer.get(self.searched..)?) {
            Some(at) => buffer.get(self.start..self.searched + at + 1),
            None => {
                self.searched = buffer.len();
                None
            }
        }
    }

    fn complete(&mut self, head: &mut RequestHead) -> Parsed {
        let used = self.start;
        head.wire_bytes = used;
        *self = Self::default();
        Parsed::Complete(used)
    }
}

fn malformed_line() -> Refusal {
    Refusal::bad(566, "request failed: malformed request line")
}

fn line_too_long(head: &mut RequestHead, content: &[u8], limits: &Limits) -> Refusal {
    head.line.clear();
    head.line.extend_from_slice(content.get(..=limits.line).unwrap_or(content));
    Refusal::new(
        Status::URI_TOO_LONG,
        Level::Info,
        565,
        format!(
            "request failed: client's request-line exceeds LimitRequestLine (longer than {})",
            limits.line
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(bytes: &[u8]) -> (Result<Parsed, Refusal>, RequestHead) {
        let mut head = RequestHead::default();
        let result = HeadParser::new().parse(
            &mut head,
            bytes,
            &Limits::default(),
            &HttpProtocolOptions::default(),
        );
        (result, head)
    }

    /// Parses the same bytes, with one more byte in each call.
    fn dribbled(bytes: &[u8]) -> (Result<Parsed, Refusal>, RequestHead) {
        let (mut head, mut parser) = (RequestHead::default(), HeadParser::new());
        for end in 0..=bytes.len() {
            let result = parser.parse(
                &mut head,
                &bytes[..end],
                &Limits::default(),
                &HttpProtocolOptions::default(),
            );
            if result != Ok(Parsed::Partial) {
                return (result, head);
            }
        }
        (Ok(Parsed::Partial), head)
    }

    #[test]
    fn a_head_is_read_and_what_follows_is_left() {
        let text = b"\r\nPOST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET";
        let (result, head) = whole(text);
        assert_eq!(result, Ok(Parsed::Complete(text.len() - 6)));
        assert_eq!(head.target(), b"/a");
        assert_eq!(head.length, BodyLength::Exact(3));
        assert_eq!(head.fields.first("host"), Some(&b"x"[..]));
        assert_eq!(head.wire_bytes, text.len() - 6);
    }

    #[test]
    fn http09_ends_with_its_line() {
        let (result, head) = whole(b"GET /\r\nHost: a\r\n\r\n");
        assert_eq!(result, Ok(Parsed::Complete(7)));
        assert!(head.fields.is_empty());
    }

    #[test]
    fn a_refused_head_tells_how_much_of_it_was_read() {
        let long = "a".repeat(9_000);
        for (bytes, read) in [
            ("NONSENSE\r\nmore".to_owned(), 10),
            (format!("GET /{long} HTTP/1.1\r\nA: b\r\n"), 9_016),
            (format!("GET /{long}"), 9_005),
            (format!("GET / HTTP/1.1\r\nA: {long}\r\nB: c\r\n\r\n"), 9_021),
            (format!("GET / HTTP/1.1\r\nA: {long}"), 9_019),
            // The line after it has been read too.
            ("GET / HTTP/1.1\r\nbad\r\nB: c\r\n\r\n".to_owned(), 27),
            ("GET / HTTP/1.1\r\nContent-Length: x\r\n\r\nmore".to_owned(), 37),
        ] {
            let (result, head) = whole(bytes.as_bytes());
            assert!(result.is_err(), "{bytes}");
            assert_eq!(head.wire_bytes, read, "{bytes}");
        }
    }

    #[test]
    fn limits_hold_before_the_line_end_comes() {
        let number = |bytes: &[u8]| whole(bytes).0.unwrap_err().notice.number;
        assert_eq!(number(&[b'a'; 8194]), Some(565));
        let fields = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &[b'a'; 8191]].concat();
        assert_eq!(number(&fields), Some(561));
        let line = [b"GET /".as_slice(), &[b'a'; 8178], b" HTTP/1.1\r\n"].concat();
        assert_eq!(number(&line), Some(565));
        assert_eq!(whole(&line).1.line.len(), 8191);
        assert_eq!(whole(&b"\r\n".repeat(10)).0, Ok(Parsed::Partial));
        assert_eq!(number(&b"\r\n".repeat(11)), Some(3445));
    }

    #[test]
    fn bare_line_feeds_and_nul_are_refused() {
        let number = |bytes: &[u8]| whole(bytes).0.unwrap_err().notice.number;
        assert_eq!(number(b"GET / HTTP/1.1\nHost: a\r\n\r\n"), Some(566));
        assert_eq!(number(b"\nGET / HTTP/1.1\r\n\r\n"), Some(566));
        assert_eq!(number(b"GET /\0 HTTP/1.1\r\n\r\n"), Some(566));
        assert_eq!(number(b"GET / HTTP/1.1\r\nHost: a\n\r\n"), Some(567));
        assert_eq!(number(b"GET / HTTP/1.1\r\nHost: a\r\n\n"), Some(567));
    }

    #[test]
    fn the_end_of_the_connection_is_answered_after_the_line() {
        let mut parser = HeadParser::new();
        let mut head = RequestHead::default();
        let (limits, options) = (Limits::default(), HttpProtocolOptions::default());
        parser.parse(&mut head, b"\r\n", &limits, &options).unwrap();
        assert!(!parser.is_started());
        parser.parse(&mut head, b"\r\nGET", &limits, &options).unwrap();
        assert!(parser.is_started() && parser.end().is_none());
        parser.parse(&mut head, b"\r\nGET / HTTP/1.1\r\nHo", &limits, &options).unwrap();
        assert_eq!(parser.end().map(|refusal| refusal.status), Some(Status::BAD_REQUEST));
    }

    proptest! {
        #[test]
        fn splitting_changes_nothing(bytes in head_text()) {
            let (one, many) = (whole(&bytes), dribbled(&bytes));
            prop_assert_eq!(&one.0, &many.0);
            prop_assert_eq!(one.1.line, many.1.line);
            prop_assert_eq!(format!("{:?}", one.1.fields), format!("{:?}", many.1.fields));
        }
    }

    /// Texts that resemble a head: significant pieces in any order, and some noise.
    fn head_text() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"GET / HTTP/1.1\r\n".to_vec()),
            Just(b"Host: a\r\n".to_vec()),
            Just(b"Content-Length: 5\r\n".to_vec()),
            Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
            Just(b" folded\r\n".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..6),
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }
}
