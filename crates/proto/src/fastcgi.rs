//! Writes and parses FastCGI 1.0 records without I/O, for both the server and the application.
//! Each connection carries one request, whose id is 1.

use evenkeel_message::Variables;

/// The length of a record's header, and of the bodies of BEGIN_REQUEST and END_REQUEST.
const HEADER: usize = 8;

/// The id of the only request on a connection.
const REQUEST_ID: u16 = 1;

/// The most bytes of name-value pairs in one record (Apache: `send_environment`). Applications read
/// the pairs of each record separately, so a pair never spans two records.
pub const MOST_PAIRS: usize = 16 << 10;

/// The most bytes of a stream in one record.
pub const MOST_CONTENT: usize = 0xffff;

/// The streams of a request. A record without content ends its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The name-value pairs, from the server.
    Params,
    /// The body of the request, from the server.
    Stdin,
    /// The response, from the application.
    Stdout,
    /// Text for the error log, from the application.
    Stderr,
    /// What a request has cost, from a worker of this server (`php/evenkeel-php.c`). The type is
    /// none of the specification's.
    Report,
}

impl Stream {
    /// The type of its records.
    const fn kind(self) -> u8 {
        match self {
            Stream::Params => 4,
            Stream::Stdin => 5,
            Stream::Stdout => 6,
            Stream::Stderr => 7,
            Stream::Report => REPORT,
        }
    }
}

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const REPORT: u8 = 100;
/// The flag of BEGIN_REQUEST that keeps the connection open.
const KEEP_CONNECTION: u8 = 1;
const RESPONDER: u16 = 1;

/// The record, or part of a record, at the front of the buffer. The caller removes `skip` bytes
/// and then the bytes of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Content of a stream.
    Content {
        /// The stream.
        stream: Stream,
        /// The number of bytes before the content.
        skip: usize,
        /// The number of bytes of content, at least one.
        length: usize,
    },
    /// The end of a stream.
    Closed {
        /// The stream.
        stream: Stream,
        /// The number of bytes that announce it.
        skip: usize,
    },
    /// The server begins a request.
    Begin {
        /// Whether the application is to keep the connection open.
        keep: bool,
        /// The number of bytes that announce it.
        skip: usize,
    },
    /// The application has ended the request.
    End {
        /// The status with which the application ended.
        status: u32,
        /// 0 if the request was accepted.
        protocol_status: u8,
        /// The number of bytes that announce it.
        skip: usize,
    },
    /// A record of another type, whose content is skipped.
    Other {
        /// The type.
        kind: u8,
        /// The number of bytes that announce it.
        skip: usize,
    },
    /// All bytes are framing, and more are needed.
    Partial,
}

/// An error in FastCGI records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The version is not 1.
    Version(u8),
    /// The id of the request is not 1.
    RequestId(u16),
}

/// Reads the records of one connection.
#[derive(Clone, Debug, Default)]
pub struct RecordReader {
    /// The bytes of an incomplete header, and then of the body of BEGIN_REQUEST or END_REQUEST.
    fixed: [u8; HEADER],
    /// The number of these bytes that were received.
    filled: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Header,
    /// In the content of a stream.
    Content { stream: Stream, left: usize, padding: usize },
    /// In the body of BEGIN_REQUEST or END_REQUEST; `left` bytes of it are still to be received.
    Fixed { kind: u8, left: usize, padding: usize },
    /// In padding, or in the content of a record that is skipped.
    Skipped { left: usize },
}

impl RecordReader {
    /// A reader at the first record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the next byte begins a record.
    #[must_use]
    pub fn is_between_records(&self) -> bool {
        matches!(self.state, State::Header) && self.filled == 0
    }

    /// Whether the next byte is content of a record whose beginning was read.
    #[must_use]
    pub fn is_in_content(&self) -> bool {
        matches!(self.state, State::Content { .. })
    }

    /// Continues at the front of `buffer`.
    ///
    /// # Errors
    /// The bytes are not a record of this request.
    pub fn read(&mut self, buffer: &[u8]) -> Result<Record, Fault> {
        let mut at = 0;
        loop {
            let rest = buffer.get(at..).unwrap_or_default();
            match self.state {
                State::Header => {
                    at += self.fill(rest);
                    if self.filled < HEADER {
                        return Ok(Record::Partial);
                    }
                    self.filled = 0;
                    if let Some(record) = self.begin(at)? {
                        return Ok(record);
                    }
                }
                State::Content { stream, left, padding } => {
                    let length = left.min(rest.len());
                    if length == 0 {
                        return Ok(Record::Partial);
                    }
                    self.state = match left - length {
                        0 => skipped(padding),
                        left => State::Content { stream, left, padding },
                    };
                    return Ok(Record::Content { stream, skip: at, length });
                }
                State::Fixed { kind, left, padding } => {
                    let most = left.min(HEADER - self.filled).min(rest.len());
                    at += self.fill(rest.get(..most).unwrap_or_default());
                    let left = left - most;
                    if left == 0 || self.filled == HEADER {
                        self.filled = 0;
                        self.state = skipped(left + padding);
                        return Ok(self.fixed_record(kind, at));
                    }
                    self.state = State::Fixed { kind, left, padding };
                    return Ok(Record::Partial);
                }
                State::Skipped { left } => {
                    let length = left.min(rest.len());
                    at += length;
                    self.state = skipped(left - length);
                    if length < left {
                        return Ok(Record::Partial);
                    }
                }
            }
        }
    }

    /// Copies missing bytes of the fixed part, and returns their number.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        let room = self.fixed.get_mut(self.filled..).unwrap_or_default();
        let length = room.len().min(bytes.len());
        for (to, from) in room.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.filled += length;
        length
    }

    /// Begins the record whose header is complete.
    fn begin(&mut self, skip: usize) -> Result<Option<Record>, Fault> {
        let [version, kind, id_high, id_low, high, low, padding, _] = self.fixed;
        if version != 1 {
            return Err(Fault::Version(version));
        }
        let id = u16::from_be_bytes([id_high, id_low]);
        if id != REQUEST_ID {
            return Err(Fault::RequestId(id));
        }
        let (left, padding) = (usize::from(u16::from_be_bytes([high, low])), usize::from(padding));
        let stream = match kind {
            4 => Stream::Params,
            5 => Stream::Stdin,
            6 => Stream::Stdout,
            7 => Stream::Stderr,
            REPORT => Stream::Report,
            BEGIN_REQUEST | END_REQUEST => {
                self.fixed = [0; HEADER];
                if left > 0 {
                    self.state = State::Fixed { kind, left, padding };
                    return Ok(None);
                }
                self.state = skipped(padding);
                return Ok(Some(self.fixed_record(kind, skip)));
            }
            _ => {
                self.state = skipped(left + padding);
                return Ok(Some(Record::Other { kind, skip }));
            }
        };
        if left == 0 {
            self.state = skipped(padding);
            return Ok(Some(Record::Closed { stream, skip }));
        }
        self.state = State::Content { stream, left, padding };
        Ok(None)
    }

    fn fixed_record(&mut self, kind: u8, skip: usize) -> Record {
        let [a, b, c, d, fifth, ..] = std::mem::take(&mut self.fixed);
        match kind {
            BEGIN_REQUEST => Record::Begin { keep: c & KEEP_CONNECTION != 0, skip },
            _ => Record::End {
                status: u32::from_be_bytes([a, b, c, d]),
                protocol_status: fifth,
                skip,
            },
        }
    }
}

fn skipped(left: usize) -> State {
    if left == 0 { State::Header } else { State::Skipped { left } }
}

/// The header of a record of a stream with at most [`MOST_CONTENT`] bytes of content. A header for
/// no content ends the stream.
#[must_use]
pub fn record_header(stream: Stream, length: u16) -> [u8; HEADER] {
    header(stream.kind(), length)
}

fn header(kind: u8, length: u16) -> [u8; HEADER] {
    let ([id_high, id_low], [high, low]) = (REQUEST_ID.to_be_bytes(), length.to_be_bytes());
    [1, kind, id_high, id_low, high, low, 0, 0]
}

/// Appends BEGIN_REQUEST for a responder.
pub fn encode_begin(out: &mut Vec<u8>, keep: bool) {
    let ([high, low], keep) = (RESPONDER.to_be_bytes(), if keep { KEEP_CONNECTION } else { 0 });
    out.extend_from_slice(&header(BEGIN_REQUEST, 8));
    out.extend_from_slice(&[high, low, keep, 0, 0, 0, 0, 0]);
}

/// Appends content of a stream, in as many records as it takes.
pub fn encode_content(out: &mut Vec<u8>, stream: Stream, content: &[u8]) {
    for piece in content.chunks(MOST_CONTENT) {
        let length = u16::try_from(piece.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&record_header(stream, length));
        out.extend_from_slice(piece);
    }
}

/// Encodes variables as PARAMS records, and appends the empty record that ends the stream. Returns
/// the names of the variables that do not fit in a record; these are not sent.
pub fn encode_params<'a>(out: &mut Vec<u8>, variables: &'a Variables) -> Vec<&'a [u8]> {
    if let Some(text) = variables.encoded_text().filter(|text| text.len() <= MOST_PAIRS) {
        encode_content(out, Stream::Params, text);
        out.extend_from_slice(&record_header(Stream::Params, 0));
        return Vec::new();
    }
    let (mut left_out, mut start) = (Vec::new(), out.len());
    out.extend_from_slice(&[0; HEADER]);
    for (name, pair) in variables.encoded() {
        if pair.len() > MOST_PAIRS {
            left_out.push(name);
            continue;
        }
        if out.len() - start - HEADER + pair.len() > MOST_PAIRS {
            close_params(out, start);
            start = out.len();
            out.extend_from_slice(&[0; HEADER]);
        }
        out.extend_from_slice(pair);
    }
    if out.len() > start + HEADER {
        close_params(out, start);
        out.extend_from_slice(&record_header(Stream::Params, 0));
    } else {
        close_params(out, start);
    }
    left_out
}

/// Encodes all variables as PARAMS records, and appends the empty record that ends the stream. A
/// pair that is longer than a record continues in the next one (specification, section 3.3: PARAMS
/// is a stream). The receiver must be known to read that, as the workers of PHP do.
pub fn encode_all_params(out: &mut Vec<u8>, variables: &Variables) {
    match variables.encoded_text() {
        Some(text) => encode_content(out, Stream::Params, text),
        None => {
            let pairs: Vec<&[u8]> = variables.encoded().map(|(_, pair)| pair).collect();
            encode_content(out, Stream::Params, &pairs.concat());
        }
    }
    out.extend_from_slice(&record_header(Stream::Params, 0));
}

/// Writes the header of the record that began at `start`.
fn close_params(out: &mut [u8], start: usize) {
    let length = u16::try_from(out.len() - start - HEADER).unwrap_or(u16::MAX);
    if let Some(place) = out.get_mut(start..start + HEADER) {
        place.copy_from_slice(&record_header(Stream::Params, length));
    }
}

/// The name-value pairs of the content of a PARAMS stream, in order. A pair that is cut short ends
/// them.
#[must_use]
pub fn pairs(content: &[u8]) -> Pairs<'_> {
    Pairs { rest: content }
}

/// An iterator over name-value pairs.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = decode_length(self.rest)?;
        let (value, rest) = decode_length(rest)?;
        let (name, rest) = rest.split_at_checked(name)?;
        let (value, rest) = rest.split_at_checked(value)?;
        self.rest = rest;
        Some((name, value))
    }
}

fn decode_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [short, rest @ ..] if *short < 0x80 => Some((usize::from(*short), rest)),
        [a, b, c, d, rest @ ..] => {
            let length = u32::from_be_bytes([a & 0x7f, *b, *c, *d]);
            Some((usize::try_from(length).ok()?, rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What was read, with the content of neighbouring records of a stream joined.
    #[derive(Clone, Debug, PartialEq)]
    enum Event {
        Content(Stream, Vec<u8>),
        Closed(Stream),
        Begin(bool),
        End(u32, u8),
        Other(u8),
    }

    fn read(pieces: &[&[u8]]) -> Result<Vec<Event>, Fault> {
        let (mut reader, mut events) = (RecordReader::new(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            loop {
                let skip = match reader.read(rest)? {
                    Record::Partial => break,
                    Record::Content { stream, skip, length } => {
                        let content = &rest[skip..skip + length];
                        match events.last_mut() {
                            Some(Event::Content(of, sum)) if *of == stream => {
                                sum.extend_from_slice(content);
                            }
                            _ => events.push(Event::Content(stream, content.to_vec())),
                        }
                        skip + length
                    }
                    Record::Closed { stream, skip } => {
                        events.push(Event::Closed(stream));
                        skip
                    }
                    Record::Begin { keep, skip } => {
                        events.push(Event::Begin(keep));
                        skip
                    }
                    Record::End { status, protocol_status, skip } => {
                        events.push(Event::End(status, protocol_status));
                        skip
                    }
                    Record::Other { kind, skip } => {
                        events.push(Event::Other(kind));
                        skip
                    }
                };
                rest = &rest[skip..];
            }
        }
        Ok(events)
    }

    fn request() -> Vec<u8> {
        let mut out = Vec::new();
        encode_begin(&mut out, true);
        let mut variables = Variables::new();
        variables.set("NAME", "value");
        variables.set("LONG", "v".repeat(200));
        assert!(encode_params(&mut out, &variables).is_empty());
        encode_content(&mut out, Stream::Stdin, b"body");
        out.extend_from_slice(&record_header(Stream::Stdin, 0));
        out
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let events = read(&[&request()]).unwrap();
        assert_eq!(events[0], Event::Begin(true));
        let Event::Content(Stream::Params, params) = &events[1] else { panic!("{events:?}") };
        let read: Vec<_> =
            pairs(params).map(|(name, value)| (name.to_vec(), value.len())).collect();
        assert_eq!(read, [(b"NAME".to_vec(), 5), (b"LONG".to_vec(), 200)]);
        let end = [
            Event::Closed(Stream::Params),
            Event::Content(Stream::Stdin, b"body".to_vec()),
            Event::Closed(Stream::Stdin),
        ];
        assert_eq!(&events[2..], end);
    }

    #[test]
    fn pairs_stay_whole_and_those_that_fit_no_record_are_named() {
        let (mut variables, mut out) = (Variables::new(), Vec::new());
        for (name, length) in [("A", 9_000), ("HUGE", MOST_PAIRS), ("B", 9_000), ("C", 0)] {
            variables.set(name, "x".repeat(length));
        }
        assert_eq!(encode_params(&mut out, &variables), [b"HUGE"]);
        let (mut reader, mut at, mut records) = (RecordReader::new(), 0, Vec::new());
        while let Record::Content { skip, length, .. } = reader.read(&out[at..]).unwrap() {
            records.push(super::pairs(&out[at + skip..at + skip + length]).count());
            at += skip + length;
        }
        assert_eq!(records, [1, 2]);
        let mut none = Vec::new();
        encode_params(&mut none, &Variables::new());
        assert_eq!(none, record_header(Stream::Params, 0));
    }

    #[test]
    fn all_parameters_are_sent_where_pairs_may_span_records() {
        let (mut variables, mut out) = (Variables::new(), Vec::new());
        for (name, length) in [("A", 3), ("HUGE", 2 * MOST_CONTENT), ("B", 5), ("A", 4)] {
            variables.set(name, "x".repeat(length));
        }
        encode_all_params(&mut out, &variables);
        let events = read(&[&out]).unwrap();
        let content: Vec<u8> = events
            .iter()
            .filter_map(|event| match event {
                Event::Content(Stream::Params, content) => Some(content.as_slice()),
                _ => None,
            })
            .flatten()
            .copied()
            .collect();
        let lengths: Vec<_> = pairs(&content).map(|(_, value)| value.len()).collect();
        assert_eq!(lengths, [4, 2 * MOST_CONTENT, 5]);
        assert_eq!(events.last(), Some(&Event::Closed(Stream::Params)));
    }

    #[test]
    fn replaced_and_removed_variables_are_not_sent() {
        let (mut variables, mut out) = (Variables::new(), Vec::new());
        for (name, value) in [("A", "old"), ("B", "removed"), ("C", "kept"), ("A", "new")] {
            variables.set(name, value);
        }
        variables.unset("B");
        encode_params(&mut out, &variables);
        assert_eq!(out, b"\x01\x04\0\x01\0\x0d\0\0\x01\x03Anew\x01\x04Ckept\x01\x04\0\x01\0\0\0\0");
    }

    #[test]
    fn padding_odd_lengths_and_unknown_types_are_skipped() {
        let stdout = [1, 6, 0, 1, 0, 2, 3, 0, b'o', b'k', 0, 0, 0];
        let unknown = [1, 11, 0, 1, 0, 3, 1, 0, 1, 2, 3, 0];
        let short_end = [1, 3, 0, 1, 0, 4, 0, 0, 0, 0, 0, 7];
        let long_end = [1, 3, 0, 1, 0, 10, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 9, 9];
        let events = read(&[&stdout, &unknown, &short_end, &long_end, &[1, 3, 0, 1, 0, 0, 0, 0]]);
        let expected = [
            Event::Content(Stream::Stdout, b"ok".to_vec()),
            Event::Other(11),
            Event::End(7, 0),
            Event::End(256, 2),
            Event::End(0, 0),
        ];
        assert_eq!(events.unwrap(), expected);
    }

    #[test]
    fn other_versions_and_requests_are_faults() {
        assert_eq!(read(&[b"HTTP/1.1"]), Err(Fault::Version(b'H')));
        assert_eq!(read(&[&[1, 6, 0, 2, 0, 0, 0, 0]]), Err(Fault::RequestId(2)));
        assert_eq!(read(&[b"HTT"]), Ok(Vec::new()), "the header is not complete");
    }

    #[test]
    fn pairs_that_are_cut_short_end() {
        for content in [&b"\x01"[..], b"\x01\x05a", b"\x80\x00", b"\xff\xff\xff\xff\x01a"] {
            assert_eq!(pairs(content).next(), None, "{content:?}");
        }
    }

    proptest! {
        #[test]
        fn records_may_be_split_anywhere(
            contents in prop::collection::vec(
                (0_u8..5, prop::collection::vec(any::<u8>(), 0..40)), 0..6,
            ),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut out = Vec::new();
            for (kind, content) in &contents {
                match kind {
                    0 => encode_begin(&mut out, true),
                    1 => {
                        out.extend(header(END_REQUEST, 8));
                        out.extend([0, 0, 0, 3, 0, 0, 0, 0]);
                    }
                    // ABORT_REQUEST, which the reader skips.
                    2 => out.extend(header(2, 0)),
                    3 => encode_content(&mut out, Stream::Stdout, content),
                    _ => encode_content(&mut out, Stream::Stderr, content),
                }
            }
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(out.len() + 1)).collect();
            cuts.extend([0, out.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &out[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[&out]));
        }
    }
}
