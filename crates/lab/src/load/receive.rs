//! Parses one response as it is received. It stores only the beginning of a head that arrives in
//! parts.

use super::exchange::Failure;
use evenkeel_message::Fields;
use evenkeel_proto::{
    ChunkedDecoder, HttpProtocolOptions, Limits, ResponseHead, ResponseLength, Step, parse_response,
};

/// A response as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The beginning of a head whose end has not arrived.
    partial: Vec<u8>,
    body: Body,
    no_body: bool,
    pub(super) status: u16,
    pub(super) head_bytes: u32,
    pub(super) body_bytes: u64,
    pub(super) kept: bool,
    /// The head itself, if it is wanted.
    pub(super) sample: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
enum Body {
    /// The head is being read.
    #[default]
    Head,
    /// This many bytes are to follow.
    Exact(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
}

/// How much of a response has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More must follow.
    More,
    /// It is complete.
    Whole,
}

/// What a client accepts is bounded by its buffer and not by the limits of servers.
const LIMITS: Limits = Limits { line: 64 << 10, field_size: 64 << 10, fields: 1000 };

impl Answer {
    /// Nothing has arrived. `sample` keeps the head of the first response.
    pub(super) fn new(sample: bool) -> Self {
        Self { sample: sample.then(Vec::new), ..Self::default() }
    }

    /// Prepares for the response to another request.
    pub(super) fn begin(&mut self, no_body: bool) {
        self.partial.clear();
        self.body = Body::Head;
        self.no_body = no_body;
        (self.status, self.head_bytes, self.body_bytes, self.kept) = (0, 0, 0, false);
    }

    /// Whether nothing of it has arrived.
    pub(super) fn is_untouched(&self) -> bool {
        self.status == 0 && self.partial.is_empty()
    }

    /// Takes received bytes.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<Progress, Failure> {
        loop {
            let Body::Head = self.body else { return self.take_body(bytes) };
            let joined;
            let (head, used) = if self.partial.is_empty() {
                (self.parse(bytes)?, 0)
            } else {
                let before = self.partial.len();
                self.partial.extend_from_slice(bytes);
                joined = std::mem::take(&mut self.partial);
                let head = self.parse(&joined)?;
                if head.is_none() {
                    self.partial = joined;
                    return Ok(Progress::More);
                }
                (head, before)
            };
            let Some(head) = head else {
                self.partial.extend_from_slice(bytes);
                return Ok(Progress::More);
            };
            bytes = bytes.get(head.size - used..).unwrap_or_default();
            self.head_bytes = self.head_bytes.saturating_add(head.size as u32);
            if head.is_interim() {
                continue;
            }
            self.status = head.status;
            self.kept = head.persistent;
            self.body = match head.length {
                ResponseLength::None => Body::Exact(0),
                ResponseLength::Exact(length) => Body::Exact(length),
                ResponseLength::Chunked => Body::Chunked(Box::default()),
                ResponseLength::UntilClose => Body::UntilClose,
            };
        }
    }

    fn parse(&mut self, bytes: &[u8]) -> Result<Option<ResponseHead>, Failure> {
        let head = parse_response(bytes, self.no_body).map_err(|_| Failure::Malformed)?;
        if let (Some(head), Some(sample)) = (&head, &mut self.sample)
            && !head.is_interim()
        {
            *sample = bytes.get(..head.size).unwrap_or_default().to_vec();
        }
        Ok(head)
    }

    fn take_body(&mut self, bytes: &[u8]) -> Result<Progress, Failure> {
        let count = bytes.len() as u64;
        match &mut self.body {
            Body::Head => Ok(Progress::More),
            Body::UntilClose => {
                self.body_bytes += count;
                Ok(Progress::More)
            }
            Body::Exact(left) => {
                // Bytes after a response belong to no request.
                *left = left.checked_sub(count).ok_or(Failure::Malformed)?;
                self.body_bytes += count;
                Ok(if *left == 0 { Progress::Whole } else { Progress::More })
            }
            Body::Chunked(decoder) => {
                let (mut rest, mut trailers) = (bytes, Fields::default());
                let options = HttpProtocolOptions::default();
                loop {
                    let step = decoder.decode(rest, &mut trailers, &LIMITS, &options);
                    match step.map_err(|_| Failure::Malformed)? {
                        Step::Data { skip, length } => {
                            self.body_bytes += length as u64;
                            rest = rest.get(skip + length..).unwrap_or_default();
                        }
                        Step::Partial => return Ok(Progress::More),
                        Step::End(used) if used == rest.len() => return Ok(Progress::Whole),
                        Step::End(_) => return Err(Failure::Malformed),
                    }
                }
            }
        }
    }

    /// Handles the end of the stream.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        match self.body {
            Body::UntilClose => Ok(()),
            _ => Err(Failure::Truncated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response must be parsed in the same way in pieces of every size.
    fn read(text: &[u8], size: usize) -> (Result<Progress, Failure>, u16, u64) {
        let mut answer = Answer::default();
        answer.begin(false);
        let mut last = Ok(Progress::More);
        for piece in text.chunks(size) {
            last = answer.take(piece);
            if last.is_err() {
                break;
            }
        }
        (last, answer.status, answer.body_bytes)
    }

    #[test]
    fn answers_are_whole_however_they_come() {
        let chunked = b"HTTP/1.1 100 Continue\r\n\r\n\
            HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\n";
        let exact = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nabcd";
        for size in 1..chunked.len() + 1 {
            assert_eq!(read(chunked, size), (Ok(Progress::Whole), 200, 5), "{size}");
            assert_eq!(read(exact, size), (Ok(Progress::Whole), 404, 4), "{size}");
        }
    }

    #[test]
    fn too_much_too_little_and_nonsense_are_told_apart() {
        let one = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab";
        assert_eq!(read(one, 100).0, Err(Failure::Malformed));
        assert_eq!(read(b"hello", 5).0, Err(Failure::Malformed));
        let mut answer = Answer::default();
        answer.begin(false);
        assert_eq!(answer.take(&one[..38]), Ok(Progress::More));
        assert_eq!(answer.end(), Err(Failure::Truncated));
        answer.begin(false);
        answer.take(b"HTTP/1.0 200 OK\r\n\r\nabc").unwrap();
        assert_eq!((answer.end(), answer.body_bytes), (Ok(()), 3));
        answer.begin(true);
        let head = answer.take(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
        assert_eq!(head, Ok(Progress::Whole));
    }
}
