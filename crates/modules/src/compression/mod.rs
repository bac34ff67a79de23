//! What mod_deflate and mod_brotli have in common: the codecs, the bounds on bodies in progress,
//! the kept forms of bodies that are compressed again and again, and the compression of a response.
//! A short body is compressed at once; a long one piece by piece, in the blocking pool, while the
//! client receives it.

pub(crate) mod accept;
pub(crate) mod codec;
mod forms;
mod notes;
mod presses;
mod stream;

pub use forms::CompressedForms;
pub use notes::NoteNames;
pub use presses::Presses;

use crate::{Effect, Means};
use accept::{accepts, is_encoded};
use bytes::Bytes;
use codec::{Codec, Encoder};
use evenkeel_message::{
    Answer, Body, Level, Method, Name, Notice, Piece, Request, Response, Status, Validators,
    Verdict, evaluate,
};
use forms::{Made, Origin};
use notes::Notes;
use presses::Press;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use stream::{Keeping, Recoded, Silence, Work};

/// Bodies up to this length in bytes are compressed or unpacked at once, if no more than that comes
/// out: a slow client keeps what it has not received, and holds no credit for it.
pub(crate) const AT_ONCE: usize = 32 << 10;

/// What becomes of the entity tag of a body that changes (DeflateAlterETag, BrotliAlterETag).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlterTag {
    /// `-gzip`, `-gunzip` or `-br` is added to it.
    #[default]
    AddSuffix,
    /// It stays as it is.
    NoChange,
    /// It is removed.
    Remove,
}

impl AlterTag {
    /// The value of the directive.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "nochange" => Some(AlterTag::NoChange),
            "addsuffix" => Some(AlterTag::AddSuffix),
            "remove" => Some(AlterTag::Remove),
            _ => None,
        }
    }
}

/// The settings of the filter that compresses a response.
#[derive(Clone, Copy)]
pub(crate) struct Compressing<'a> {
    pub(crate) encoder: Encoder,
    pub(crate) tag: AlterTag,
    pub(crate) notes: &'a NoteNames,
    /// The module, for the error log.
    pub(crate) module: &'static str,
    /// Whether the client need not accept the coding (`force-gzip`).
    pub(crate) is_forced: bool,
}

/// Compresses the body if the client and the response allow it. A long body for which no press is
/// free is sent as it is: a slow client costs the others bandwidth then, and nothing else.
///
/// # Errors
/// 500 if the encoder fails.
pub(crate) fn compress(
    request: &mut Request,
    means: &Means<'_>,
    compressing: Compressing<'_>,
    response: &mut Response,
) -> Result<Effect, Answer> {
    let Compressing { encoder, tag, module, is_forced, .. } = compressing;
    // mod_deflate leaves a 304 as it is, mod_brotli gives it the tag of the compressed page.
    let is_unchanged = response.status == Status::NOT_MODIFIED;
    if !may_be_compressed(request, response)
        || (is_unchanged && matches!(encoder, Encoder::Gzip { .. }))
    {
        return Ok(Effect::Nothing);
    }
    response.fields.merge(Name::Vary, "Accept-Encoding");
    if !is_forced && !accepts(request.fields(), encoder.name()) {
        return Ok(Effect::Nothing);
    }
    if is_unchanged {
        begin_change(tag, response, encoder.tag_suffix());
        return Ok(Effect::Compressed);
    }
    let Some(way) = Way::find(request, means, encoder, &response.body) else {
        let text = "as many bodies as may be are being compressed: this one is sent as it is";
        request.notify(Notice::own(module, Level::Info, text));
        return Ok(Effect::Nothing);
    };
    match response.fields.first("Content-Encoding").map(<[u8]>::to_vec) {
        Some(encoding) if !encoding.eq_ignore_ascii_case(b"identity") => {
            let both = [&encoding, &b", "[..], encoder.name().as_bytes()].concat();
            response.fields.set("Content-Encoding", both);
        }
        _ => response.fields.set("Content-Encoding", encoder.name()),
    }
    request.resource.content.encoding = None;
    begin_change(tag, response, encoder.tag_suffix());
    if is_known(request, response) {
        response.fields.remove("Content-Encoding");
        return Ok(Effect::Compressed);
    }
    let notes = compressing.notes;
    response.body = match way {
        Way::Kept(made) => {
            write_notes(request, notes, made.counts);
            Body::Bytes(made.bytes)
        }
        Way::AtOnce(bytes, origin) => match encoder.compressed(&bytes) {
            Ok(made) => {
                if let Some(origin) = origin {
                    means.forms.keep(origin, encoder, made.clone());
                }
                made_at_once(request, notes, made)
            }
            Err(fault) => {
                request.notify(fault.notice((0, 0)));
                return Err(Status::INTERNAL_SERVER_ERROR.into());
            }
        },
        Way::InPieces(taker, origin) => {
            let body = std::mem::take(&mut response.body);
            let forms = Rc::clone(means.forms);
            let keeping =
                origin.map(|origin| Keeping { forms, origin, encoder, bytes: Vec::new() });
            stream(request, means, notes, body, taker, || encoder.codec(), (0, 0), keeping)
        }
    };
    Ok(Effect::Compressed)
}

/// Whether the response may be compressed for a client that accepts it.
fn may_be_compressed(request: &Request, response: &Response) -> bool {
    response.status != Status::NO_CONTENT
        && request.resource.depth == 0
        && !response.fields.contains(Name::ContentRange)
        && !is_encoded(request, response)
}

/// How a body is compressed.
enum Way {
    /// It was compressed for an earlier response.
    Kept(Made),
    /// At once, all of it.
    AtOnce(Bytes, Option<Origin>),
    /// Piece by piece.
    InPieces(Taker, Option<Origin>),
}

impl Way {
    /// `None` if the body is long and no press is free.
    fn find(request: &Request, means: &Means<'_>, encoder: Encoder, body: &Body) -> Option<Self> {
        // This is asked before anything else holds the bytes.
        let origin = Origin::of(body);
        let kept = origin.as_ref().and_then(|origin| means.forms.get(origin, encoder));
        if let Some(made) = kept {
            return Some(Way::Kept(made));
        }
        if let Some(bytes) = at_once(body) {
            return Some(Way::AtOnce(bytes, origin));
        }
        let press = || means.presses.take_spare(encoder.presses());
        Taker::of(request, press).map(|taker| Way::InPieces(taker, origin))
    }
}

/// Who receives the pieces of a body.
pub(crate) enum Taker {
    /// The client. A press is held until it has the last piece.
    Client(Press),
    /// Nobody, because the client asked for the head.
    Nobody,
}

impl Taker {
    /// `None` if no press is free.
    pub(crate) fn of(request: &Request, press: impl FnOnce() -> Option<Press>) -> Option<Self> {
        if request.is_head() {
            return Some(Taker::Nobody);
        }
        press().map(Taker::Client)
    }
}

/// A body that was made at once. Its two lengths are noted.
pub(crate) fn made_at_once(request: &mut Request, names: &NoteNames, made: Made) -> Body {
    // A KiB takes about as long as a plain request does.
    let kibibytes = made.counts.0.max(made.counts.1) / 1024;
    request.work = request.work.saturating_add(u32::try_from(kibibytes).unwrap_or(u32::MAX));
    write_notes(request, names, made.counts);
    Body::Bytes(made.bytes)
}

fn write_notes(request: &mut Request, names: &NoteNames, counts: (u64, u64)) {
    if let Some(notes) = names.wanted() {
        notes.write(counts, &mut request.resource.notes);
    }
}

/// Removes the fields that described the body before, and alters its tag.
pub(crate) fn begin_change(alter: AlterTag, response: &mut Response, suffix: &[u8]) {
    response.fields.remove("Content-Length");
    response.fields.remove("Content-MD5");
    match alter {
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

/// Makes the response a 304 if the client has the very body that would be sent, by the altered tag
/// (RFC 9110, section 13.1.2). Apache compares only the tag of the plain body.
pub(crate) fn is_known(request: &Request, response: &mut Response) -> bool {
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

/// The bytes of a body that is short enough for [`AT_ONCE`].
pub(crate) fn at_once(body: &Body) -> Option<Bytes> {
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

/// A body that is changed while it is received. `ratio` is the limit of the ratio and its burst.
#[expect(clippy::too_many_arguments, reason = "each is a part of one body in progress")]
pub(crate) fn stream(
    request: &mut Request,
    means: &Means<'_>,
    names: &NoteNames,
    body: Body,
    taker: Taker,
    codec: impl FnOnce() -> Codec,
    ratio: (u64, u64),
    keeping: Option<Keeping>,
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
    let notes: Option<Notes> = names.wanted();
    let pool = Arc::clone(means.blocking_pool);
    let recoded = Recoded::new(pool, work, source, notes, request, ratio).keeping(keeping);
    Body::Stream(Box::pin(recoded), None)
}
