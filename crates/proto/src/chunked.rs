//! Decodes a chunked body (RFC 9112, section 7.1) in the receive buffer: yields stretches of data,
//! and the trailer fields at the end. It copies no data and stores at most one trailer line.

use crate::field::{self, Line};
use crate::refusal::Refusal;
use crate::{HttpProtocolOptions, Limits};
use evenkeel_message::{Fields, Level, Notice, Status};
use memchr::memchr;

/// The most spaces and tabs after the size of a chunk (Apache: `parse_chunk_size`).
const BLANKS: u8 = 10;

/// What is at the front of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `skip` bytes of framing, then `length` bytes of data. The caller removes both from the
    /// buffer before the next step.
    Data {
        /// The number of bytes before the data.
        skip: usize,
        /// The number of bytes of data, at least one.
        length: usize,
    },
    /// All bytes are framing, and the caller removes them; more are needed.
    Partial,
    /// The body ends after this many bytes of framing.
    End(usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// In the digits of a size, or before them.
    #[default]
    Size,
    /// In spaces after the digits.
    Space,
    /// In an extension, after its semicolon.
    Extension,
    /// After the carriage return of the line with the size.
    SizeEnd,
    /// In data; `size` holds how many bytes of the chunk are left.
    Data,
    /// After the data, before its carriage return.
    DataReturn,
    /// After the carriage return of the data.
    DataEnd,
    /// In the trailer section.
    Trailer,
    Done,
}

/// Decodes one body. Each body needs a new decoder.
#[derive(Clone, Debug, Default)]
pub struct ChunkedDecoder {
    state: State,
    /// The size of the chunk as read so far, and then what is left of it.
    size: u64,
    /// The bytes of the line with the size so far, bounded by the limit of a request line.
    line: usize,
    has_digit: bool,
    /// The spaces and tabs after the size so far.
    blanks: u8,
    /// The beginning of a trailer line whose end has not arrived.
    trailer: Vec<u8>,
}

impl ChunkedDecoder {
    /// A decoder before the first chunk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the decoder is in the trailer section.
    #[must_use]
    pub fn is_in_trailer(&self) -> bool {
        self.state == State::Trailer
    }

    /// Continues at the front of `buffer`. Trailer fields are added to `trailers`.
    ///
    /// # Errors
    ///
    /// 400 for broken framing; 413 for a size beyond 2^63 - 1 or a line with a size beyond
    /// LimitRequestLine (Apache: http_filters.c, `parse_chunk_size`).
    pub fn decode(
        &mut self,
        buffer: &[u8],
        trailers: &mut Fields,
        limits: &Limits,
        options: &HttpProtocolOptions,
    ) -> Result<Step, Refusal> {
        let mut at = 0;
        loop {
            match self.state {
                State::Data => {
                    let left = buffer.len() - at;
                    if left == 0 {
                        return Ok(Step::Partial);
                    }
                    let length = usize::try_from(self.size).unwrap_or(usize::MAX).min(left);
                    self.size -= length as u64;
                    if self.size == 0 {
                        self.state = State::DataReturn;
                    }
                    return Ok(Step::Data { skip: at, length });
                }
                State::Trailer => {
                    let rest = buffer.get(at..).unwrap_or_default();
                    return match self.trailer(rest, trailers, limits, options)? {
                        Some(used) => Ok(Step::End(at + used)),
                        None => Ok(Step::Partial),
                    };
                }
                State::Done => return Ok(Step::End(at)),
                _ => {
                    let Some(byte) = buffer.get(at) else { return Ok(Step::Partial) };
                    self.frame(*byte, limits)?;
                    at += 1;
                }
            }
        }
    }

    /// Handles one byte of framing.
    fn frame(&mut self, byte: u8, limits: &Limits) -> Result<(), Refusal> {
        self.line += 1;
        if self.line > limits.line {
            return Err(broken(Status::CONTENT_TOO_LARGE));
        }
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                let size = self.size.checked_mul(16).map(|size| size + u64::from(digit));
                self.size = size
                    .filter(|size| *size <= i64::MAX as u64)
                    .ok_or_else(|| broken(Status::CONTENT_TOO_LARGE))?;
                self.has_digit = true;
                State::Size
            }
            (State::Size | State::Space, b' ' | b'\t')
                if self.has_digit && self.blanks < BLANKS =>
            {
                self.blanks += 1;
                State::Space
            }
            (State::Size | State::Space, b';') if self.has_digit => State::Extension,
            (State::Size | State::Space, b'\r') if self.has_digit => State::SizeEnd,
            (State::Extension, b'\r') => State::SizeEnd,
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => State::Extension,
            (State::SizeEnd, b'\n') => {
                (self.line, self.has_digit, self.blanks) = (0, false, 0);
                if self.size == 0 { State::Trailer } else { State::Data }
            }
            (State::DataReturn, b'\r') => State::DataEnd,
            (State::DataEnd, b'\n') => {
                self.line = 0;
                State::Size
            }
            _ => return Err(broken(Status::BAD_REQUEST)),
        };
        Ok(())
    }

    /// Handles lines of the trailer section. Returns the bytes used once its end has arrived.
    fn trailer(
        &mut self,
        buffer: &[u8],
        trailers: &mut Fields,
        limits: &Limits,
        options: &HttpProtocolOptions,
    ) -> Result<Option<usize>, Refusal> {
        let mut at = 0;
        while let Some(end) = memchr(b'\n', buffer.get(at..).unwrap_or_default()) {
            let rest = buffer.get(at..=at + end).unwrap_or_default();
            at += end + 1;
            let taken = if self.trailer.is_empty() {
                field::take(trailers, rest, limits, options)
            } else {
                self.trailer.extend_from_slice(rest);
                field::take(trailers, &self.trailer, limits, options)
            };
            self.trailer.clear();
            if taken? == Line::End {
                field::check_joined(trailers, limits)?;
                self.state = State::Done;
                return Ok(Some(at));
            }
        }
        self.trailer.extend_from_slice(buffer.get(at..).unwrap_or_default());
        if self.trailer.len() > limits.field_size.saturating_add(3) {
            return Err(field::too_long(&self.trailer));
        }
        Ok(None)
    }
}

/// Like Apache, says only that the chunk could not be read.
fn broken(status: Status) -> Refusal {
    let overflow = if status == Status::CONTENT_TOO_LARGE { "(overflow)" } else { "" };
    let text = format!("Error reading/parsing chunk {overflow} ");
    Refusal { status, notice: Notice::new("http", Level::Info, 1590, text), detail: "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The data and what follows the body, read in pieces of `piece` bytes.
    fn decoded(bytes: &[u8], piece: usize) -> Result<(Vec<u8>, Fields, Option<usize>), u16> {
        let (limits, options) = (Limits::default(), HttpProtocolOptions::default());
        let (mut decoder, mut data, mut trailers) =
            (ChunkedDecoder::new(), Vec::new(), Fields::new());
        let mut at = 0;
        for part in bytes.chunks(piece) {
            let mut rest = part;
            loop {
                let step = decoder
                    .decode(rest, &mut trailers, &limits, &options)
                    .map_err(|refusal| refusal.status.code())?;
                match step {
                    Step::Data { skip, length } => {
                        assert!(length > 0);
                        data.extend_from_slice(&rest[skip..skip + length]);
                        rest = &rest[skip + length..];
                        at += skip + length;
                    }
                    Step::Partial => {
                        at += rest.len();
                        break;
                    }
                    Step::End(skip) => return Ok((data, trailers, Some(at + skip))),
                }
            }
        }
        Ok((data, trailers, None))
    }

    #[test]
    fn good_bodies_in_any_pieces() {
        for (text, want) in [
            ("5\r\nhello\r\n0\r\n\r\nNEXT", "hello"),
            ("5 \t\r\nhello\r\n0\r\n\r\nNEXT", "hello"),
            ("00000000000000000005;a=\"b\"\r\nhello\r\n000\r\n\r\nNEXT", "hello"),
            // Ten blanks after each size, and any number after a semicolon.
            ("5          \r\nhello\r\n0 \t \t \t \t \t;             a\r\n\r\nNEXT", "hello"),
            ("A;\u{e4}\r\nhellohello\r\n1\r\n!\r\n0 ; x\r\nB: c\r\n\r\nNEXT", "hellohello!"),
        ] {
            for piece in 1..text.len() {
                let (data, _, end) = decoded(text.as_bytes(), piece).unwrap();
                assert_eq!((&data[..], end), (want.as_bytes(), Some(text.len() - 4)), "{text}");
            }
        }
        let (_, trailers, _) = decoded(b"0\r\nB: c\r\nD:e\r\n\r\n", 3).unwrap();
        assert_eq!((trailers.first("b"), trailers.len()), (Some(&b"c"[..]), 2));
    }

    /// Bodies and the statuses that Apache 2.4.71 answers.
    #[test]
    fn bad_bodies_get_apaches_status() {
        let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(9000));
        for (text, status) in [
            (" 5\r\nhello\r\n0\r\n\r\n", 400),
            ("5;a\nb\r\nhello\r\n0\r\n\r\n", 400),
            ("5\nhello\r\n0\r\n\r\n", 400),
            ("5\r\nhello\n0\r\n\r\n", 400),
            ("5\r\nhello0\r\n\r\n", 400),
            ("5\r\nhelloXX0\r\n\r\n", 400),
            ("0\n\r\n", 400),
            ("0\r\n\n", 400),
            ("0x5\r\nhello\r\n", 400),
            ("-5\r\n", 400),
            ("+5\r\n", 400),
            ("\r\n", 400),
            (";a\r\n", 400),
            ("5\rhello", 400),
            ("5 5\r\n", 400),
            ("5           \r\nhello\r\n0\r\n\r\n", 400),
            ("5           ;a\r\nhello\r\n0\r\n\r\n", 400),
            ("5\r\nhello\r\n0\t\t\t\t\t\t\t\t\t\t\t\r\n\r\n", 400),
            ("5;\u{1}\r\n", 400),
            ("8000000000000000\r\n", 413),
            ("fffffffffffffffff\r\n", 413),
            (&long, 413),
            ("0\r\nA : b\r\n\r\n", 400),
            ("0\r\nnocolon\r\n\r\n", 400),
        ] {
            for piece in [1, 2, 3, 100] {
                assert_eq!(decoded(text.as_bytes(), piece).err(), Some(status), "{text}");
            }
        }
        assert_eq!(decoded(b"7fffffffffffffff\r\nabc", 100).unwrap().0, b"abc");
    }

    proptest! {
        #[test]
        fn splitting_changes_nothing(bytes in noise(), piece in 1_usize..8) {
            let one = decoded(&bytes, bytes.len().max(1));
            let many = decoded(&bytes, piece);
            match (one, many) {
                (Ok(one), Ok(many)) => prop_assert_eq!((one.0, one.2), (many.0, many.2)),
                (one, many) => prop_assert_eq!(one.err(), many.err()),
            }
        }
    }

    fn noise() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"3\r\nabc\r\n".to_vec()),
            Just(b"0\r\n".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"A: b\r\n".to_vec()),
            Just(b"1;x\r\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..4),
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }
}
