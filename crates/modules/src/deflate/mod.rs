//! mod_deflate: bodies that are compressed for clients that take gzip (`DEFLATE`), and such as are
//! unpacked again (`INFLATE`). A response comes in; out goes the same with another body, and with
//! fields that tell of it. A short body is done at once, a long one piece by piece, beside the
//! serving thread, as the client takes it.

mod accept;
mod codec;
mod directives;
mod presses;
mod request_body;
mod stream;

pub use crate::NoSettings as Global;
pub use directives::MODULE;
pub use presses::Presses;
pub use request_body::INPUT;

use crate::{Effect, Means, Merge, OutputFilter, Shared};
use accept::{accepts_gzip, is_encoded, without_gzip};
use bytes::Bytes;
use codec::{Codec, Fault, Inflater, ShortBody};
use evenkeel_message::{
    Answer, Body, FilterPosition, Level, Method, Name, Notice, Piece, Request, Response, Status,
    Validators, Variables, Verdict, evaluate,
};
use evenkeel_sys::blocking_pool::BlockingPool;
use presses::Press;
use std::collections::VecDeque;
use std::sync::Arc;
use stream::{Recoded, Silence, Work};

/// The filter that compresses.
pub const DEFLATE: OutputFilter = OutputFilter {
    name: "DEFLATE",
    position: FilterPosition::CONTENT_SET,
    begin: None,
    act: |request, means, response| {
        let is_done = compress(request, Bench::of(means), response)?;
        Ok(if is_done { Effect::Compressed } else { Effect::Nothing })
    },
};

/// The filter that takes compression off. It acts before those that change the content.
pub const INFLATE: OutputFilter = OutputFilter {
    name: "INFLATE",
    position: FilterPosition::RESOURCE.before(),
    begin: None,
    act: |request, means, response| {
        let is_done = inflate(request, Bench::of(means), response)?;
        Ok(if is_done { Effect::Changed } else { Effect::Nothing })
    },
};

/// Bodies up to so many bytes are done at once, if no more than that comes out: a slow client
/// keeps what it has not taken, and holds no credit for it.
const AT_ONCE: usize = 32 << 10;

/// Bodies of fewer bytes are not compressed: the result would hardly be shorter (as Apache).
const SHORTEST: u64 = 69;

/// What becomes of an entity tag whose body changes (DeflateAlterETag).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlterTag {
    /// `-gzip` or `-gunzip` is added to it.
    #[default]
    AddSuffix,
    /// Nothing.
    NoChange,
    /// It is taken out.
    Remove,
}

/// What a server says of compression.
#[derive(Clone, Debug, Default)]
pub struct Compression {
    /// DeflateCompressionLevel, 1 to 9; zlib's own, 6, where none is said.
    pub level: Option<u8>,
    /// DeflateWindowSize: the base 2 logarithm of the window's bytes. Below 9 it is 9, the least
    /// that the format's libraries have.
    pub window: Option<u8>,
    /// DeflateMemLevel, which is accepted and changes nothing: the library chooses its memory.
    pub mem_level: Option<u8>,
    /// DeflateBufferSize, in bytes: how often the ratio of what is unpacked is looked at.
    pub buffer: Option<usize>,
    /// DeflateAlterETag.
    pub tag: Option<AlterTag>,
    /// DeflateFilterNote Input.
    pub note_input: Option<Box<str>>,
    /// DeflateFilterNote Output.
    pub note_output: Option<Box<str>>,
    /// DeflateFilterNote Ratio.
    pub note_ratio: Option<Box<str>>,
}

/// What a server says, which hosts share.
pub type Server = Shared<Compression>;

crate::unsaid!(Compression);

impl Merge for Compression {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(
            base, over; level, window, mem_level, buffer, tag, note_input, note_output, note_ratio
        )
    }
}

/// What a section says of what is unpacked.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// DeflateInflateLimitRequestBody, in bytes.
    pub limit_request_body: Option<u64>,
    /// DeflateInflateRatioLimit.
    pub ratio_limit: Option<u64>,
    /// DeflateInflateRatioBurst.
    pub ratio_burst: Option<u64>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; limit_request_body, ratio_limit, ratio_burst)
    }
}

impl Directory {
    /// The ratio that is too much, and how many times it may be met without a break.
    fn ratio(&self) -> (u64, u64) {
        (self.ratio_limit.unwrap_or(200), self.ratio_burst.unwrap_or(3))
    }
}

/// What the work is done with.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    /// What the server says.
    pub server: &'a Compression,
    /// What the section says.
    pub directory: &'a Directory,
    /// The threads for work that burns.
    pub blocking_pool: &'a Arc<BlockingPool>,
    /// What it takes to do a body piece by piece.
    pub presses: &'a Arc<Presses>,
}

impl<'a> Bench<'a> {
    fn of(means: &Means<'a>) -> Self {
        Self {
            server: &means.server.deflate,
            directory: &means.sections.deflate,
            blocking_pool: means.blocking_pool,
            presses: means.presses,
        }
    }
}

/// Names of notes, and how a body's two lengths are written under them (DeflateFilterNote).
#[derive(Clone, Debug)]
struct Notes {
    input: Option<Box<str>>,
    output: Option<Box<str>>,
    ratio: Option<Box<str>>,
}

impl Notes {
    /// None where none is wanted.
    fn of(server: &Compression) -> Option<Self> {
        let Compression { note_input: input, note_output: output, note_ratio: ratio, .. } = server;
        let wanted = input.is_some() || output.is_some() || ratio.is_some();
        let (input, output, ratio) = (input.clone(), output.clone(), ratio.clone());
        wanted.then_some(Self { input, output, ratio })
    }

    fn write(&self, (read, written): (u64, u64), notes: &mut Variables) {
        let ratio = written.saturating_mul(100).checked_div(read);
        let ratio = ratio.map_or("-".to_owned(), |ratio| ratio.to_string());
        let values = [
            (&self.input, read.to_string()),
            (&self.output, written.to_string()),
            (&self.ratio, ratio),
        ];
        for (name, value) in values {
            if let Some(name) = name {
                notes.set(name.as_bytes(), value);
            }
        }
    }
}

/// Compresses the body where client and response allow it (mod_deflate.c: deflate_out_filter).
/// Says whether it did. A long body for which no press is free is sent as it is: clients that
/// are slow to take theirs cost the others bandwidth, and nothing else.
///
/// # Errors
/// 500 where the compressor fails, which none has been seen to do.
pub fn compress(
    request: &mut Request,
    bench: Bench<'_>,
    response: &mut Response,
) -> Result<bool, Answer> {
    let is_short = response.body.length().is_some_and(|length| length < SHORTEST);
    if is_short || !may_be_compressed(request, response) {
        return Ok(false);
    }
    response.fields.merge(Name::Vary, "Accept-Encoding");
    let is_forced = request.resource.env.contains("force-gzip");
    if !is_forced && !accepts_gzip(request.fields()) {
        return Ok(false);
    }
    let Some(way) = Way::find(request, bench.presses, &response.body) else {
        let text = "as many bodies as may be are being compressed: this one is sent as it is";
        request.notify(Notice::own("deflate", Level::Info, text));
        return Ok(false);
    };
    match response.fields.first("Content-Encoding").map(<[u8]>::to_vec) {
        Some(encoding) if !encoding.eq_ignore_ascii_case(b"identity") => {
            response.fields.set("Content-Encoding", [&encoding, &b", gzip"[..]].concat());
        }
        _ => response.fields.set("Content-Encoding", "gzip"),
    }
    request.resource.content.encoding = None;
    begin_change(bench.server, response, b"-gzip");
    if is_known(request, response) {
        response.fields.remove("Content-Encoding");
        return Ok(true);
    }
    let (level, window) = (bench.server.level.unwrap_or(6), bench.server.window.unwrap_or(15));
    response.body = match way {
        Way::AtOnce(bytes) => match codec::deflated(level, window, &bytes) {
            Ok(done) => done_at_once(request, bench, done),
            Err(fault) => return Err(failed(request, bench, &fault)),
        },
        Way::InPieces(taker) => {
            let codec = || Codec::deflate(level, window);
            stream(request, bench, std::mem::take(&mut response.body), taker, codec)
        }
    };
    Ok(true)
}

/// Whether nothing but the client's wish decides.
fn may_be_compressed(request: &Request, response: &Response) -> bool {
    let has_body = !matches!(response.status, Status::NO_CONTENT | Status::NOT_MODIFIED);
    let media_type = response.fields.first(Name::ContentType).unwrap_or_default();
    let only_html = request.resource.env.value("gzip-only-text/html") == Some(b"1");
    has_body
        && request.resource.depth == 0
        && !request.resource.env.contains("no-gzip")
        && !response.fields.contains(Name::ContentRange)
        && (!only_html || media_type.starts_with(b"text/html"))
        && !is_encoded(request, response)
}

/// Unpacks a body that is encoded with gzip, whatever the client takes (mod_deflate.c:
/// inflate_out_filter). Says whether it did.
///
/// # Errors
/// 500 where the body is damaged, or unpacks to suspiciously much, and that is found out before
/// anything of it is sent; 503 where it is long and no press is free.
pub fn inflate(
    request: &mut Request,
    bench: Bench<'_>,
    response: &mut Response,
) -> Result<bool, Answer> {
    if request.resource.depth > 0 || response.status == Status::NO_CONTENT {
        return Ok(false);
    }
    if !without_gzip(request, response) {
        return Ok(false);
    }
    begin_change(bench.server, response, b"-gunzip");
    if response.status == Status::NOT_MODIFIED || is_known(request, response) {
        return Ok(true);
    }
    if response.body.length() == Some(0) {
        return Ok(true);
    }
    let (limit, burst) = bench.directory.ratio();
    let buffer = bench.server.buffer.unwrap_or(8096);
    let inflater = || Inflater::new(limit, burst, buffer);
    if let Some(bytes) = at_once(&response.body) {
        match codec::inflated(inflater(), &bytes, AT_ONCE) {
            Ok(Some(done)) => {
                response.body = done_at_once(request, bench, done);
                return Ok(true);
            }
            Ok(None) => {}
            Err(fault) => return Err(failed(request, bench, &fault)),
        }
    }
    let Some(taker) = Taker::of(request, || bench.presses.take()) else {
        let text = "as many bodies as may be are being unpacked: this one is refused";
        request.notify(Notice::own("deflate", Level::Warn, text));
        return Err(Status::SERVICE_UNAVAILABLE.into());
    };
    let codec = || Codec::Inflate(Box::new(inflater()));
    response.body = stream(request, bench, std::mem::take(&mut response.body), taker, codec);
    Ok(true)
}

/// How a body is done.
enum Way {
    /// At once, all of it.
    AtOnce(Bytes),
    /// Piece by piece.
    InPieces(Taker),
}

impl Way {
    /// None where it is to be done in pieces and no press is free.
    fn find(request: &Request, presses: &Arc<Presses>, body: &Body) -> Option<Self> {
        match at_once(body) {
            Some(bytes) => Some(Way::AtOnce(bytes)),
            None => Taker::of(request, || presses.take_spare()).map(Way::InPieces),
        }
    }
}

/// Who takes the pieces of a body.
enum Taker {
    /// The client; a press is held until it has the last.
    Client(Press),
    /// Nobody, since it asked for the head.
    Nobody,
}

impl Taker {
    /// None where no press is free.
    fn of(request: &Request, press: impl FnOnce() -> Option<Press>) -> Option<Self> {
        if request.is_head() {
            return Some(Taker::Nobody);
        }
        press().map(Taker::Client)
    }
}

/// A body that is done, whose two lengths are noted.
fn done_at_once(request: &mut Request, bench: Bench<'_>, done: ShortBody) -> Body {
    // A KiB takes about as long as a plain request does.
    let kibibytes = done.counts.0.max(done.counts.1) / 1024;
    request.work = request.work.saturating_add(u32::try_from(kibibytes).unwrap_or(u32::MAX));
    if let Some(notes) = Notes::of(bench.server) {
        notes.write(done.counts, &mut request.resource.notes);
    }
    Body::Bytes(done.bytes)
}

/// The answer to a request whose body cannot be done.
fn failed(request: &mut Request, bench: Bench<'_>, fault: &Fault) -> Answer {
    request.notify(notice(fault, bench.directory.ratio()));
    Status::INTERNAL_SERVER_ERROR.into()
}

fn notice(fault: &Fault, (limit, burst): (u64, u64)) -> Notice {
    let numbered =
        |level, number, text: &str| Notice::new("deflate", level, number, text.to_owned());
    match fault {
        Fault::Cut => numbered(Level::Error, 1401, "Zlib: Validation bytes not present"),
        Fault::Checksum => {
            numbered(Level::Error, 1399, "Zlib: Checksum of inflated stream invalid")
        }
        Fault::Ratio => {
            let text = format!(
                "Inflated content ratio is larger than the configured limit {limit} by {burst} \
                 time(s)"
            );
            numbered(Level::Warn, 2650, &text)
        }
        Fault::Damaged => Notice::own("deflate", Level::Error, "the compressed body is damaged"),
        // Only the bodies of requests have these faults.
        Fault::Head => numbered(Level::Warn, 1387, "Zlib: Invalid header"),
        Fault::Extra => {
            numbered(Level::Error, 2482, "Encountered extra data after compressed data")
        }
        Fault::Limit { unpacked, limit } => {
            let text = format!(
                "Inflated content length of {unpacked} is larger than the configured limit of \
                 {limit}"
            );
            numbered(Level::Warn, 2648, &text)
        }
        Fault::Unread(error) => {
            Notice::own("deflate", Level::Error, "the body cannot be read").because(error)
        }
    }
}

/// Takes out what was true of the body before, and alters its tag.
fn begin_change(server: &Compression, response: &mut Response, suffix: &[u8]) {
    response.fields.remove("Content-Length");
    response.fields.remove("Content-MD5");
    match server.tag.unwrap_or_default() {
        AlterTag::NoChange => {}
        AlterTag::Remove => {
            response.fields.remove("ETag");
        }
        AlterTag::AddSuffix => {
            let tag = response.fields.first("ETag").and_then(|tag| tag.strip_suffix(b"\""));
            if let Some(altered) = tag.map(|tag| [tag, suffix, b"\""].concat()) {
                response.fields.set("ETag", altered);
            }
        }
    }
}

/// Whether the client has the very body that would be sent, by the tag as it was altered: then the
/// response becomes a 304 (RFC 9110, section 13.1.2), which Apache does not do.
fn is_known(request: &Request, response: &mut Response) -> bool {
    let asks = request.resource.status == Status::OK
        && response.status == Status::OK
        && matches!(request.resource.method, Method::Get | Method::Head)
        && request.fields().contains(Name::IfNoneMatch);
    if !asks {
        return false;
    }
    let now = i64::try_from(request.time_us / 1_000_000).unwrap_or(i64::MAX);
    let validators = Validators { etag: response.fields.first("ETag"), modified: None };
    let verdict = evaluate(request.resource.method, request.fields(), &validators, now);
    if verdict != Verdict::NotModified {
        return false;
    }
    response.status = Status::NOT_MODIFIED;
    response.fields.remove("Content-Type");
    response.body = Body::Empty;
    true
}

/// The bytes of a body that is short enough to be done at once.
fn at_once(body: &Body) -> Option<Bytes> {
    if body.length().is_none_or(|length| length > AT_ONCE as u64) {
        return None;
    }
    match body {
        Body::Bytes(bytes) | Body::File(Piece::Bytes(bytes)) => Some(bytes.clone()),
        Body::Pieces(pieces) => {
            let mut whole = Vec::new();
            for piece in pieces {
                let Piece::Bytes(bytes) = piece else { return None };
                whole.extend_from_slice(bytes);
            }
            Some(whole.into())
        }
        Body::Empty | Body::File(Piece::File { .. }) | Body::Stream(..) => None,
    }
}

/// A body that is changed as it is taken.
fn stream(
    request: &mut Request,
    bench: Bench<'_>,
    body: Body,
    taker: Taker,
    codec: impl FnOnce() -> Codec,
) -> Body {
    let Taker::Client(press) = taker else {
        return Body::Stream(Box::pin(Silence), None);
    };
    let (pieces, source) = match body {
        Body::Empty => (VecDeque::new(), None),
        Body::Bytes(bytes) => (VecDeque::from([Piece::Bytes(bytes)]), None),
        Body::File(piece) => (VecDeque::from([piece]), None),
        Body::Pieces(pieces) => (pieces.into(), None),
        Body::Stream(source, _) => (VecDeque::new(), Some(source)),
    };
    let work = Work::new(codec(), pieces, source.is_none(), press);
    let notes = Notes::of(bench.server);
    let (blocking_pool, limits) = (Arc::clone(bench.blocking_pool), bench.directory.ratio());
    Body::Stream(Box::pin(Recoded::new(blocking_pool, work, source, notes, request, limits)), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{Peer, RequestHead};

    /// What a bench is made of.
    struct Shop {
        server: Compression,
        directory: Directory,
        blocking_pool: Arc<BlockingPool>,
        presses: Arc<Presses>,
    }

    impl Shop {
        fn with_presses(count: usize) -> Self {
            Self {
                server: Compression::default(),
                directory: Directory::default(),
                blocking_pool: Arc::new(BlockingPool::new(1)),
                presses: Presses::new(count),
            }
        }

        fn bench(&self) -> Bench<'_> {
            let Shop { server, directory, blocking_pool, presses } = self;
            Bench { server, directory, blocking_pool, presses }
        }

        /// Compresses a body for a request, and says whether that was done.
        fn compress(&self, request: &mut Request, body: Body) -> (bool, Response) {
            let mut response = response(body);
            let is_done = compress(request, self.bench(), &mut response).unwrap();
            assert_eq!(is_done && response.body.length() != Some(0), is_gzip(&response));
            (is_done, response)
        }
    }

    fn request(method: Method) -> Request {
        let address = "127.0.0.1:80".parse().unwrap();
        let head = RequestHead { method, ..RequestHead::default() };
        let mut request = Request::new(head, Peer { client: address, local: address }, 0);
        request.fields_mut().set("Accept-Encoding", "gzip");
        request
    }

    fn response(body: Body) -> Response {
        let mut response = Response::new(Status::OK);
        response.fields.set("ETag", "\"tag\"");
        response.body = body;
        response
    }

    fn is_gzip(response: &Response) -> bool {
        response.fields.first("Content-Encoding") == Some(b"gzip")
    }

    /// Numbers one after another, which gzip makes about a quarter of.
    fn text(length: usize) -> Vec<u8> {
        let numbers: String = (0..length).map(|number| format!("{number} ")).collect();
        numbers.as_bytes()[..length].to_vec()
    }

    fn long() -> Body {
        Body::from(text(AT_ONCE + 1))
    }

    #[test]
    fn a_long_body_without_a_press_is_sent_as_it_is() {
        let shop = Shop::with_presses(1);
        let mut request = request(Method::Get);
        let (_, first) = shop.compress(&mut request, long());
        assert!(is_gzip(&first) && matches!(first.body, Body::Stream(_, None)));
        assert_eq!(first.fields.first("ETag"), Some(&b"\"tag-gzip\""[..]));
        let (is_done, second) = shop.compress(&mut request, long());
        assert!(!is_done && second.body.length() == Some(AT_ONCE as u64 + 1));
        assert_eq!(second.fields.first("ETag"), Some(&b"\"tag\""[..]));
        assert_eq!(second.fields.first("Vary"), Some(&b"Accept-Encoding"[..]));
        assert_eq!(request.notices.len(), 1);
        drop(first);
        assert!(shop.compress(&mut request, long()).0);
    }

    #[test]
    fn clients_of_compression_leave_presses_to_unpack_with() {
        let shop = Shop::with_presses(4);
        let mut get = request(Method::Get);
        let held: Vec<_> = std::iter::repeat_with(|| shop.compress(&mut get, long()))
            .take_while(|(is_done, _)| *is_done)
            .collect();
        let packed = codec::deflated(6, 15, &text(2 * AT_ONCE)).unwrap().bytes;
        let mut unpacked = response(Body::Bytes(packed));
        get.resource.content.encoding = Some(b"gzip"[..].into());
        assert!(inflate(&mut get, shop.bench(), &mut unpacked).unwrap() && held.len() == 3);
    }

    #[test]
    fn what_nobody_reads_and_what_is_short_needs_no_press() {
        let shop = Shop::with_presses(0);
        let (is_done, head) = shop.compress(&mut request(Method::Head), long());
        assert!(is_done && matches!(head.body, Body::Stream(_, None)));
        let short = Body::from(text(AT_ONCE));
        let mut get = request(Method::Get);
        let (is_done, response) = shop.compress(&mut get, short);
        assert!(is_done && matches!(response.body, Body::Bytes(_)));
        assert_eq!(get.work, 32);
        let shortest = Body::from(text(SHORTEST as usize - 1));
        assert!(!shop.compress(&mut request(Method::Get), shortest).0);
    }

    #[test]
    fn a_client_that_has_the_body_is_told_so_and_keeps_no_press() {
        let shop = Shop::with_presses(1);
        let mut request = request(Method::Get);
        request.fields_mut().set("If-None-Match", "\"tag-gzip\"");
        let (_, response) = shop.compress(&mut request, long());
        assert_eq!((response.status, shop.presses.free()), (Status::NOT_MODIFIED, 1));
    }

    #[test]
    fn what_unpacks_to_much_needs_a_press() {
        let packed = codec::deflated(6, 15, &text(2 * AT_ONCE)).unwrap().bytes;
        assert!(packed.len() < AT_ONCE);
        let unpack = |shop: &Shop| {
            let mut request = request(Method::Get);
            request.resource.content.encoding = Some(b"gzip"[..].into());
            let mut response = response(Body::Bytes(packed.clone()));
            inflate(&mut request, shop.bench(), &mut response)?;
            Ok::<_, Answer>(std::mem::take(&mut response.body))
        };
        assert!(matches!(unpack(&Shop::with_presses(1)), Ok(Body::Stream(_, None))));
        let refused = unpack(&Shop::with_presses(0));
        assert!(matches!(refused, Err(Answer::Status(Status::SERVICE_UNAVAILABLE, _))));
    }
}
