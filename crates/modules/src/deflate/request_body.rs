//! The input filter `DEFLATE`: unpacks the body of a request that is encoded with gzip
//! (mod_deflate.c: deflate_in_filter). The serving thread unpacks a piece each time the handler
//! asks for one, and lets others have their turn after [`TURN`] bytes.

use crate::compression::accept::without_gzip_in;
use crate::compression::codec::{Fault, Inflater};
use crate::{InputFilter, Means, RequestBody};
use bytes::{Buf, Bytes};
use evenkeel_message::{Chunk, FilterPosition, Late, Level, Name, Notice, Request, Source};
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Bytes of a piece.
const PIECE: usize = 32 << 10;

/// Bytes after which the source lets others have their turn.
const TURN: usize = 256 << 10;

/// The filter that unpacks the bodies of requests.
pub const INPUT: InputFilter = InputFilter {
    name: "DEFLATE",
    position: FilterPosition::CONTENT_SET,
    act: unpack,
    external: None,
};

/// Wraps a body that is encoded with gzip. Bodies of other requests, of parts (Content-Range), and
/// of requests that were redirected internally are left as they are.
fn unpack(request: &mut Request, means: &Means<'_>, body: RequestBody) -> RequestBody {
    let is_initial = request.resource.depth == 0 && request.previous.is_none();
    if !is_initial || request.fields().contains(Name::ContentRange) {
        return body;
    }
    if !without_gzip_in(request) {
        return body;
    }
    request.fields_mut().remove("Content-Length");
    request.fields_mut().remove("Content-MD5");
    let settings = &means.sections.deflate;
    let limit = match settings.limit_request_body.unwrap_or(0) {
        0 => means.limit_request_body,
        limit => limit,
    };
    let (ratio, burst) = settings.ratio();
    let buffer = means.server.deflate.buffer.unwrap_or(8096);
    let inflater = Inflater::new(ratio, burst, buffer).of_request(limit);
    Box::pin(Unpacked {
        packed: body,
        codec: Box::new(inflater),
        at_hand: Bytes::new(),
        is_fed: false,
        has_ended: false,
        since_turn: 0,
        late: Rc::clone(request.late.get_or_insert_default()),
        limits: (ratio, burst),
    })
}

/// The unpacked body.
struct Unpacked {
    packed: RequestBody,
    codec: Box<Inflater>,
    /// What was received and is not unpacked.
    at_hand: Bytes,
    /// Whether all was received.
    is_fed: bool,
    /// Whether all was unpacked, or a fault has ended the body.
    has_ended: bool,
    /// Bytes that were unpacked without a wait.
    since_turn: usize,
    late: Rc<RefCell<Late>>,
    limits: (u64, u64),
}

impl Unpacked {
    /// Logs a fault and ends the body with it.
    fn fail(&mut self, fault: &Fault) -> io::Error {
        self.has_ended = true;
        let told = match fault {
            Fault::Cut => {
                let text = "Encountered premature end-of-stream while inflating";
                Notice::new("deflate", Level::Error, 2481, text)
            }
            Fault::Checksum => {
                Notice::new("deflate", Level::Warn, 1394, "Zlib: CRC error inflating data")
            }
            Fault::Damaged => {
                let text = "Zlib error -3 inflating data (the compressed body is damaged)";
                Notice::new("deflate", Level::Warn, 1392, text)
            }
            fault => fault.notice(self.limits),
        };
        self.late.borrow_mut().notices.push(told);
        match fault {
            Fault::Limit { .. } => io::ErrorKind::FileTooLarge.into(),
            _ => io::ErrorKind::InvalidData.into(),
        }
    }
}

impl Source for Unpacked {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        let this = self.get_mut();
        if this.since_turn >= TURN {
            this.since_turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut out = Vec::new();
        loop {
            if this.has_ended {
                return Poll::Ready(None);
            }
            if this.at_hand.is_empty() && !this.is_fed {
                match ready!(this.packed.as_mut().poll_chunk(context)).transpose() {
                    Ok(Some(bytes)) => this.at_hand = bytes,
                    Ok(None) => this.is_fed = true,
                    Err(error) => {
                        this.has_ended = true;
                        return Poll::Ready(Some(Err(error)));
                    }
                }
            }
            if this.is_fed && !this.codec.has_begun() {
                this.has_ended = true;
                return Poll::Ready(None);
            }
            out.reserve_exact(PIECE);
            let mut rest = &this.at_hand[..];
            let turned = this.codec.turn(&mut rest, this.is_fed, &mut out);
            let used = this.at_hand.len() - rest.len();
            this.at_hand.advance(used);
            match turned {
                Ok(is_last) => this.has_ended = is_last,
                Err(fault) => return Poll::Ready(Some(Err(this.fail(&fault)))),
            }
            if !out.is_empty() {
                this.since_turn += out.len();
                return Poll::Ready(Some(Ok(out.into())));
            }
        }
    }

    fn held(&self) -> u64 {
        self.at_hand.len() as u64 + self.packed.held()
    }
}
