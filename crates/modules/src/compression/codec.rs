//! The codecs of content codings: gzip in both directions (RFC 1952), and the compression of brotli
//! (RFC 7932). Bytes go in, as many as there are, and come out into the room that is given. A codec
//! does no I/O and keeps no more than the window of its format.

use super::forms::Made;
use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use evenkeel_message::{Level, Notice, Piece};
use flate2::{Compress, Compression, Crc, Decompress, FlushCompress, FlushDecompress, Status};
use std::cell::RefCell;
use std::io::{self, Write as _};

/// The bytes of gzip around the compressed ones: the head of the format and the sums at its end.
const AROUND: u64 = 18;

/// The bytes that brotli takes of its input at a time.
const BROTLI_STEP: usize = 64 << 10;

/// What is wrong with a body.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The trailer (checksum and length) is missing.
    Cut,
    /// The trailer does not match the data.
    Checksum,
    /// It is not what the format allows.
    Damaged,
    /// The compression ratio exceeds its limit.
    Ratio,
    /// The encoder of brotli refused it.
    Encoder,
    /// It could not be read.
    Unread(io::Error),
    /// The body of a request does not begin as the format does.
    Head,
    /// Bytes follow the end of the body of a request.
    Extra,
    /// The body of a request unpacks to more bytes than it may.
    Limit {
        /// The bytes so far.
        unpacked: u64,
        /// The bytes that may be.
        limit: u64,
    },
}

impl Fault {
    /// The line of the error log, with the number of Apache's. `ratio` is the limit of the ratio
    /// and its burst.
    pub(crate) fn notice(&self, (limit, burst): (u64, u64)) -> Notice {
        let numbered =
            |level, number, text: &str| Notice::new("deflate", level, number, text.to_owned());
        match self {
            Fault::Cut => numbered(Level::Error, 1401, "Zlib: Validation bytes not present"),
            Fault::Checksum => {
                numbered(Level::Error, 1399, "Zlib: Checksum of inflated stream invalid")
            }
            Fault::Ratio => {
                let text = format!(
                    "Inflated content ratio is larger than the configured limit {limit} by \
                     {burst} time(s)"
                );
                numbered(Level::Warn, 2650, &text)
            }
            Fault::Damaged => {
                Notice::own("deflate", Level::Error, "the compressed body is damaged")
            }
            Fault::Encoder => {
                Notice::new("brotli", Level::Error, 3459, "Error while compressing data")
            }
            // Only the bodies of requests have these faults.
            Fault::Head => numbered(Level::Warn, 1387, "Zlib: Invalid header"),
            Fault::Extra => {
                numbered(Level::Error, 2482, "Encountered extra data after compressed data")
            }
            Fault::Limit { unpacked, limit } => {
                let text = format!(
                    "Inflated content length of {unpacked} is larger than the configured limit \
                     of {limit}"
                );
                numbered(Level::Warn, 2648, &text)
            }
            Fault::Unread(error) => {
                Notice::own("deflate", Level::Error, "the body cannot be read").because(error)
            }
        }
    }
}

/// A content coding with the settings of its encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Encoder {
    /// gzip: the level, 1 to 9, and the base 2 logarithm of the window, 9 to 15. A smaller window
    /// is raised to 9.
    Gzip { level: u8, window: u8 },
    /// br: the quality, 0 to 11, and the base 2 logarithms of the window, 10 to 24, and of the
    /// largest input block, 16 to 24. The encoder chooses the block if it is 0.
    Brotli { quality: u8, window: u8, block: u8 },
}

impl Encoder {
    /// The name of the coding (RFC 9110, section 8.4.1).
    pub(crate) fn name(self) -> &'static str {
        match self {
            Encoder::Gzip { .. } => "gzip",
            Encoder::Brotli { .. } => "br",
        }
    }

    /// What is added to the entity tag.
    pub(crate) fn tag_suffix(self) -> &'static [u8] {
        match self {
            Encoder::Gzip { .. } => b"-gzip",
            Encoder::Brotli { .. } => b"-br",
        }
    }

    /// The presses that a body takes for as long as it is compressed piece by piece. A press stands
    /// for 300 KiB; brotli takes about three times its window.
    pub(crate) fn presses(self) -> usize {
        match self {
            Encoder::Gzip { .. } => 1,
            Encoder::Brotli { window, .. } => 2 + (3usize << window) / (300 << 10),
        }
    }

    pub(crate) fn codec(self) -> Codec {
        match self {
            Encoder::Gzip { level, window } => {
                let level = Compression::new(u32::from(level.clamp(1, 9)));
                Codec::Deflate(Box::new(Compress::new_gzip(level, window.clamp(9, 15))))
            }
            Encoder::Brotli { quality, window, block } => {
                Codec::Brotli(Box::new(Brotli::new(quality, window, block)))
            }
        }
    }

    /// Compresses all of a short body.
    pub(crate) fn compressed(self, input: &[u8]) -> Result<Made, Fault> {
        match self {
            Encoder::Gzip { .. } => deflated(self, input),
            Encoder::Brotli { .. } => whole(&mut self.codec(), input),
        }
    }
}

/// A codec with its state.
pub(crate) enum Codec {
    Deflate(Box<Compress>),
    Brotli(Box<Brotli>),
    Inflate(Box<Inflater>),
}

impl Codec {
    /// Whether it unpacks.
    pub(crate) fn unpacks(&self) -> bool {
        matches!(self, Codec::Inflate(_))
    }

    /// Consumes bytes of `input` and writes output into the spare capacity of `out`. Returns true
    /// once all output is written, and false if it needs more input or more capacity. `is_last`
    /// tells that nothing follows this input.
    pub(crate) fn turn(
        &mut self,
        input: &mut &[u8],
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        let compress = match self {
            Codec::Deflate(compress) => compress,
            Codec::Brotli(brotli) => return brotli.turn(input, is_last, out),
            Codec::Inflate(inflater) => return inflater.turn(input, is_last, out),
        };
        let flush = if is_last { FlushCompress::Finish } else { FlushCompress::None };
        while out.len() < out.capacity() {
            let before = compress.total_in();
            let status = compress.compress_vec(input, out, flush).map_err(|_| Fault::Damaged)?;
            let taken = compress.total_in() - before;
            *input = input.get(usize::try_from(taken).unwrap_or(usize::MAX)..).unwrap_or_default();
            if status == Status::StreamEnd {
                return Ok(true);
            }
            if input.is_empty() && !is_last {
                break;
            }
        }
        Ok(false)
    }

    /// Bytes that went in and that came out, without what the format puts around them.
    pub(crate) fn counts(&self) -> (u64, u64) {
        match self {
            Codec::Deflate(it) => (it.total_in(), it.total_out().saturating_sub(AROUND)),
            Codec::Brotli(it) => it.counts,
            Codec::Inflate(it) => (it.unpack.total_in(), it.unpack.total_out()),
        }
    }
}

/// The encoder of brotli.
pub(crate) struct Brotli {
    /// The encoder, which writes into memory. `None` once the format has ended.
    encoder: Option<CompressorWriter<Vec<u8>>>,
    /// Compressed bytes, of which the first `sent` have come out.
    ready: Vec<u8>,
    sent: usize,
    /// The bytes that went in and that came out.
    counts: (u64, u64),
}

impl Brotli {
    fn new(quality: u8, window: u8, block: u8) -> Self {
        let params = BrotliEncoderParams {
            quality: i32::from(quality),
            lgwin: i32::from(window),
            lgblock: i32::from(block),
            ..BrotliEncoderParams::default()
        };
        let encoder = CompressorWriter::with_params(Vec::new(), 4096, &params);
        Self { encoder: Some(encoder), ready: Vec::new(), sent: 0, counts: (0, 0) }
    }

    fn turn(&mut self, input: &mut &[u8], is_last: bool, out: &mut Vec<u8>) -> Result<bool, Fault> {
        loop {
            let ready = self.ready.get(self.sent..).unwrap_or_default();
            let (now, rest) = ready.split_at(ready.len().min(out.capacity() - out.len()));
            out.extend_from_slice(now);
            self.counts.1 += now.len() as u64;
            self.sent += now.len();
            if !rest.is_empty() {
                return Ok(false);
            }
            self.ready.clear();
            self.sent = 0;
            let Some(encoder) = &mut self.encoder else { return Ok(true) };
            if input.is_empty() && !is_last {
                return Ok(false);
            }
            let (step, rest) = input.split_at(input.len().min(BROTLI_STEP));
            encoder.write_all(step).map_err(|_| Fault::Encoder)?;
            self.counts.0 += step.len() as u64;
            *input = rest;
            match is_last && rest.is_empty() {
                false => std::mem::swap(&mut self.ready, encoder.get_mut()),
                true => {
                    let encoder = self.encoder.take();
                    self.ready = encoder.map(CompressorWriter::into_inner).unwrap_or_default();
                }
            }
        }
    }
}

thread_local! {
    /// The compressor of gzip that this thread has used last for short bodies. Making one costs
    /// more than compressing a short body.
    static LAST: RefCell<Option<(Encoder, Codec)>> = const { RefCell::new(None) };
}

/// Compresses all of a short body with gzip.
fn deflated(encoder: Encoder, input: &[u8]) -> Result<Made, Fault> {
    let last = LAST.with(|last| last.borrow_mut().take());
    let mut codec = match last {
        Some((its_encoder, mut codec)) if its_encoder == encoder => {
            if let Codec::Deflate(compress) = &mut codec {
                compress.reset();
            }
            codec
        }
        _ => encoder.codec(),
    };
    let made = whole(&mut codec, input)?;
    LAST.with(|last| *last.borrow_mut() = Some((encoder, codec)));
    Ok(made)
}

/// What becomes of all of a short body.
fn whole(codec: &mut Codec, input: &[u8]) -> Result<Made, Fault> {
    // Bytes that cannot be compressed grow by less than this, as a rule.
    let mut out = Vec::with_capacity(input.len() + input.len() / 8 + 128);
    let mut rest = input;
    while !codec.turn(&mut rest, true, &mut out)? {
        out.reserve(1024);
    }
    out.shrink_to_fit();
    Ok(Made { bytes: out.into(), counts: codec.counts() })
}

/// What a short body unpacks to; none where that is more than `most` bytes.
pub(crate) fn inflated(
    mut inflater: Inflater,
    input: &[u8],
    most: usize,
) -> Result<Option<Made>, Fault> {
    let mut out = Vec::with_capacity(input.len().saturating_mul(4).clamp(1024, most));
    let mut rest = input;
    loop {
        if inflater.turn(&mut rest, true, &mut out)? {
            out.shrink_to_fit();
            let counts = (inflater.unpack.total_in(), inflater.unpack.total_out());
            return Ok(Some(Made { bytes: out.into(), counts }));
        }
        let left = most.saturating_sub(out.len());
        if left == 0 {
            return Ok(None);
        }
        out.reserve_exact(out.len().min(left));
    }
}

/// A gzip decoder that parses the header and the trailer itself. A body without a gzip header
/// passes through unchanged.
pub(crate) struct Inflater {
    unpack: Decompress,
    part: Part,
    sum: Crc,
    scratch: Box<[u8]>,
    ratio_limit: u64,
    ratio_burst: u64,
    /// The number of consecutive checks at which the ratio exceeded its limit.
    ratio_hits: u64,
    /// The most bytes that may come out of the body of a request, which must have the format from
    /// its first byte to its last. None for the body of a response.
    limit: Option<u64>,
}

/// The part of the format that is read next.
enum Part {
    /// The header, with what has come of it.
    Head(Head),
    /// The compressed bytes.
    Packed,
    /// The trailer, with what has come of it.
    Sums(Vec<u8>),
    /// The end. What follows is ignored.
    End,
    /// Bytes that were never compressed.
    Plain,
}

impl Inflater {
    /// The ratio is looked at once for each `buffer` bytes that come out.
    pub(crate) fn new(ratio_limit: u64, ratio_burst: u64, buffer: usize) -> Self {
        Self {
            unpack: Decompress::new(false),
            part: Part::Head(Head::default()),
            sum: Crc::new(),
            scratch: vec![0; buffer.clamp(512, 32 << 10)].into(),
            ratio_limit,
            ratio_burst,
            ratio_hits: 0,
            limit: None,
        }
    }

    /// Unpacks the body of a request, to at most `limit` bytes.
    pub(crate) fn of_request(self, limit: u64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Whether the body has begun. A body of nothing has no head.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(&self.part, Part::Head(head) if head.start.is_empty())
    }

    pub(crate) fn turn(
        &mut self,
        input: &mut &[u8],
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        loop {
            match &mut self.part {
                Part::Head(head) => {
                    let Some((byte, rest)) = input.split_first() else { break };
                    *input = rest;
                    match head.take(*byte) {
                        Progress::More => {}
                        Progress::Whole => self.part = Part::Packed,
                        Progress::Other if self.limit.is_some() => return Err(Fault::Head),
                        Progress::Other => {
                            out.extend_from_slice(&head.start);
                            self.part = Part::Plain;
                        }
                    }
                }
                Part::Packed => {
                    if out.capacity() - out.len() == 0 {
                        return Ok(false);
                    }
                    if !self.unpack(input, out)? {
                        break;
                    }
                }
                Part::Sums(sums) => {
                    let wanted = (8 - sums.len()).min(input.len());
                    let (taken, rest) = input.split_at(wanted);
                    sums.extend_from_slice(taken);
                    *input = rest;
                    if sums.len() < 8 {
                        break;
                    }
                    let expected = [self.sum.sum(), self.sum.amount()].map(u32::to_le_bytes);
                    if **sums != *expected.concat() {
                        return Err(Fault::Checksum);
                    }
                    self.part = Part::End;
                }
                Part::End if self.limit.is_some() && !input.is_empty() => {
                    return Err(Fault::Extra);
                }
                Part::End => {
                    *input = &[];
                    return Ok(is_last);
                }
                Part::Plain => {
                    let room = out.capacity() - out.len();
                    let (taken, rest) = input.split_at(room.min(input.len()));
                    out.extend_from_slice(taken);
                    *input = rest;
                    return Ok(is_last && rest.is_empty());
                }
            }
        }
        // All of the input is used up, and the end has not come.
        if is_last { Err(Fault::Cut) } else { Ok(false) }
    }

    /// Unpacks one stretch; false where more input is needed.
    fn unpack(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<bool, Fault> {
        let room = self.scratch.len().min(out.capacity() - out.len());
        let scratch = self.scratch.get_mut(..room).unwrap_or_default();
        let (read, written) = (self.unpack.total_in(), self.unpack.total_out());
        let status = self
            .unpack
            .decompress(input, scratch, FlushDecompress::None)
            .map_err(|_| Fault::Damaged)?;
        let read = usize::try_from(self.unpack.total_in() - read).unwrap_or(usize::MAX);
        let written = usize::try_from(self.unpack.total_out() - written).unwrap_or(usize::MAX);
        *input = input.get(read..).unwrap_or_default();
        let unpacked = scratch.get(..written).unwrap_or_default();
        self.sum.update(unpacked);
        let unpacked_bytes = self.unpack.total_out();
        if let Some(limit) = self.limit.filter(|limit| unpacked_bytes > *limit) {
            return Err(Fault::Limit { unpacked: unpacked_bytes, limit });
        }
        out.extend_from_slice(unpacked);
        if status == Status::StreamEnd {
            self.part = Part::Sums(Vec::with_capacity(8));
            return Ok(true);
        }
        self.watch_ratio()?;
        if read == 0 && written == 0 && !input.is_empty() {
            return Err(Fault::Damaged);
        }
        Ok(read > 0 || written > 0)
    }

    /// A body that unpacks to far more than documents do is an attack (mod_deflate.c:
    /// check_ratio).
    fn watch_ratio(&mut self) -> Result<(), Fault> {
        let ratio = self.unpack.total_out().checked_div(self.unpack.total_in()).unwrap_or(0);
        self.ratio_hits = if ratio < self.ratio_limit { 0 } else { self.ratio_hits + 1 };
        if self.ratio_hits > self.ratio_burst { Err(Fault::Ratio) } else { Ok(()) }
    }
}

/// How far the head has come.
enum Progress {
    More,
    Whole,
    /// It is the beginning of something else.
    Other,
}

/// The head of the format, taken byte by byte; what may be of any length is passed over.
#[derive(Default)]
struct Head {
    /// The part that every head has.
    start: Vec<u8>,
    /// What is left of the parts that this one has.
    left: Vec<Field>,
    /// Bytes of the part at hand.
    taken: u16,
    /// The length of the extra field.
    extra: u16,
}

/// A part that the flags of the head announce (RFC 1952, section 2.3).
#[derive(Clone, Copy)]
enum Field {
    ExtraLength,
    Extra,
    Text,
    Checksum,
}

impl Head {
    /// Bytes that every head has.
    const START: usize = 10;

    fn take(&mut self, byte: u8) -> Progress {
        if self.start.len() < Self::START {
            self.start.push(byte);
            return if self.start.len() < Self::START { Progress::More } else { self.announce() };
        }
        let Some(field) = self.left.last().copied() else { return Progress::Whole };
        let is_done = match field {
            Field::ExtraLength => {
                self.extra |= u16::from(byte) << (8 * self.taken);
                self.taken == 1
            }
            Field::Extra => self.taken.saturating_add(1) >= self.extra,
            Field::Text => byte == 0,
            Field::Checksum => self.taken == 1,
        };
        self.taken = self.taken.saturating_add(1);
        if is_done {
            self.left.pop();
            self.taken = 0;
            let is_without = matches!(field, Field::ExtraLength) && self.extra == 0;
            if is_without {
                self.left.pop();
            }
        }
        if self.left.is_empty() { Progress::Whole } else { Progress::More }
    }

    /// Reads the flags.
    fn announce(&mut self) -> Progress {
        const EXTRA: u8 = 4;
        const NAME: u8 = 8;
        const COMMENT: u8 = 16;
        const CHECKSUM: u8 = 2;
        let [0x1f, 0x8b, 8, flags, ..] = *self.start.as_slice() else { return Progress::Other };
        let mut announced = |flag, field| {
            if flags & flag != 0 {
                self.left.push(field);
            }
        };
        // The last is taken first.
        announced(CHECKSUM, Field::Checksum);
        announced(COMMENT, Field::Text);
        announced(NAME, Field::Text);
        announced(EXTRA, Field::Extra);
        announced(EXTRA, Field::ExtraLength);
        if self.left.is_empty() { Progress::Whole } else { Progress::More }
    }
}

/// The next bytes of a body that is there in pieces: at most `most` of a file, all of what is in
/// memory. None where there is no more.
pub(crate) fn read(
    pieces: &mut std::collections::VecDeque<Piece>,
    most: usize,
) -> Result<Option<Bytes>, Fault> {
    loop {
        let Some(piece) = pieces.pop_front() else { return Ok(None) };
        match piece {
            piece if piece.is_empty() => {}
            Piece::Bytes(bytes) => return Ok(Some(bytes)),
            Piece::File { file, offset, length } => {
                let mut buffer = vec![0; usize::try_from(length).unwrap_or(most).min(most)];
                let count = evenkeel_sys::open::read_at(&file, &mut buffer, offset)
                    .map_err(Fault::Unread)?;
                if count == 0 {
                    // It has become shorter than was promised.
                    return Err(Fault::Unread(io::ErrorKind::UnexpectedEof.into()));
                }
                buffer.truncate(count);
                let (offset, length) = (offset + count as u64, length - count as u64);
                pieces.push_front(Piece::File { file, offset, length });
                return Ok(Some(buffer.into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GZIP: Encoder = Encoder::Gzip { level: 6, window: 15 };

    fn packed(text: &[u8]) -> Vec<u8> {
        GZIP.compressed(text).unwrap().bytes.to_vec()
    }

    #[test]
    fn brotli_makes_the_same_in_any_pieces_and_another_decoder_unpacks_it() {
        let mut state = 7u32;
        let text: Vec<u8> = (0..300_000u32)
            .map(|at| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if at % 3 == 0 { (state >> 24) as u8 } else { b"evenkeel"[at as usize % 8] }
            })
            .collect();
        for (quality, window, block) in [(0, 10, 0), (5, 18, 0), (5, 24, 16), (11, 16, 0)] {
            let encoder = Encoder::Brotli { quality, window, block };
            let text = &text[..if quality == 11 { 20_000 } else { text.len() }];
            let at_once = encoder.compressed(text).unwrap();
            assert_eq!(at_once.counts, (text.len() as u64, at_once.bytes.len() as u64));
            let mut codec = encoder.codec();
            let (mut packed, mut at) = (Vec::new(), 0);
            loop {
                let next = (at + 70_001).min(text.len());
                let (mut input, mut out) = (&text[at..next], Vec::with_capacity(1000));
                let is_done = codec.turn(&mut input, next == text.len(), &mut out).unwrap();
                assert!(out.len() <= 1000);
                at = next - input.len();
                packed.extend(out);
                if is_done {
                    break;
                }
            }
            for packed in [&packed[..], &at_once.bytes] {
                let mut unpacked = Vec::new();
                brotli::BrotliDecompress(&mut &*packed, &mut unpacked).unwrap();
                assert!(unpacked == text, "{encoder:?}");
            }
        }
        let empty = Encoder::Brotli { quality: 5, window: 18, block: 0 }.compressed(b"").unwrap();
        assert!(!empty.bytes.is_empty());
    }

    fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, Fault> {
        let inflater = Inflater::new(200, 3, 8096);
        inflated(inflater, bytes, 1 << 20).map(|it| it.unwrap().bytes.to_vec())
    }

    /// The same with little room and one byte of input at a time.
    fn unpacked_slowly(bytes: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut inflater = Inflater::new(200, 3, 8096);
        let (mut whole, mut at) = (Vec::new(), 0);
        loop {
            let mut out = Vec::with_capacity(7);
            let next = (at + 1).min(bytes.len());
            let mut input = &bytes[at..next];
            let is_done = inflater.turn(&mut input, next == bytes.len(), &mut out)?;
            at = next - input.len();
            whole.extend(out);
            if is_done {
                return Ok(whole);
            }
        }
    }

    #[test]
    fn what_was_packed_unpacks_to_the_same() {
        let mixed: Vec<u8> = (0..32_768u32).map(|n| ((n * n) >> 7) as u8).collect();
        for text in [&b"a"[..], &b"abc".repeat(100), &mixed] {
            // Twice, since a thread uses its compressor again.
            for bytes in [packed(text), packed(text)] {
                assert_eq!(unpacked(&bytes).unwrap(), text);
                assert_eq!(unpacked_slowly(&bytes).unwrap(), text);
            }
        }
        let smallest = Encoder::Gzip { level: 1, window: 1 };
        assert_eq!(smallest.compressed(b"x").unwrap().counts.0, 1);
    }

    #[test]
    fn parts_of_the_head_are_passed_over() {
        let body = packed(b"text");
        let head = |flags: u8, parts: &[u8]| {
            [&[0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 3], parts, &body[10..]].concat()
        };
        let all = b"\x02\x00abname\0comment\0\x12\x34";
        for bytes in [head(30, all), head(8, b"name\0"), head(4, b"\0\0"), head(4, b"\x01\0x")] {
            assert_eq!(unpacked(&bytes).unwrap(), b"text");
            assert_eq!(unpacked_slowly(&bytes).unwrap(), b"text");
        }
    }

    #[test]
    fn damage_is_told_and_what_was_never_packed_goes_through() {
        let whole = packed(&b"abc".repeat(1000));
        let mut wrong = whole.clone();
        let sums = wrong.len() - 8;
        wrong[sums] ^= 1;
        assert!(matches!(unpacked(&wrong), Err(Fault::Checksum)));
        for cut in [1, 9, 10, 12, whole.len() - 8, whole.len() - 1] {
            assert!(matches!(unpacked(&whole[..cut]), Err(Fault::Cut)), "{cut}");
            assert!(matches!(unpacked_slowly(&whole[..cut]), Err(Fault::Cut)), "{cut}");
        }
        let mut damaged = whole[..10].to_vec();
        damaged.extend([0xff; 20]);
        assert!(matches!(unpacked(&damaged), Err(Fault::Damaged)));
        let plain = b"this is no gzip, whatever it says".repeat(20);
        assert_eq!(unpacked(&plain).unwrap(), plain);
        assert_eq!(unpacked_slowly(&plain).unwrap(), plain);
        let trailing = [&whole[..], b"more"].concat();
        assert_eq!(unpacked(&trailing).unwrap(), b"abc".repeat(1000));
    }

    #[test]
    fn what_unpacks_to_far_too_much_is_stopped() {
        let bomb = packed(&vec![0; 3_000_000]);
        assert!(matches!(unpacked(&bomb), Err(Fault::Ratio)));
        let patient = Inflater::new(2000, 3, 8096);
        assert!(inflated(patient, &bomb, 1 << 16).unwrap().is_none());
    }
}
