//! Bodies: what a response sends and what a request brings, as data or as a source that is
//! polled. Nothing here knows a socket; `conn` sends and fetches.

use bytes::Bytes;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// How the length of a request's body is known (RFC 9112, section 6.3), decided once by `proto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// No body.
    None,
    /// Content-Length, in bytes.
    Exact(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
}

/// What a source yields: data, or the end together with the trailer fields that came.
pub type Chunk = Option<io::Result<Bytes>>;

/// A body that comes piece by piece. It lives on one serving thread.
pub trait Source {
    /// The next piece; `None` at the end. An error ends it: `InvalidData` where the sender broke
    /// the framing, `TimedOut` where it was too slow, `UnexpectedEof` where it went away.
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk>;

    /// Bytes in memory that it holds until they are fetched.
    fn held(&self) -> u64 {
        0
    }
}

/// The body of a response.
#[derive(Default)]
pub enum Body {
    /// Nothing.
    #[default]
    Empty,
    /// All of it in memory.
    Bytes(Bytes),
    /// A range of a file, sent without copying it through the server.
    File(Piece),
    /// Several pieces one after another: a multipart range.
    Pieces(Vec<Piece>),
    /// A source; sent in chunks unless its length is known.
    Stream(Pin<Box<dyn Source>>, Option<u64>),
}

/// A run of bytes in memory or in an open file.
#[derive(Clone, Debug)]
pub enum Piece {
    /// In memory.
    Bytes(Bytes),
    /// In a file, `length` bytes from `offset`.
    File {
        /// The open file; shared with the cache that opened it.
        file: Arc<OwnedFd>,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
}

impl Piece {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::File { length, .. } => *length,
        }
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in memory that nobody else holds: a file's in the cache are not counted, nor are those
    /// of the program.
    #[must_use]
    pub fn held(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) if bytes.is_unique() => bytes.len() as u64,
            Piece::Bytes(_) | Piece::File { .. } => 0,
        }
    }

    /// `length` bytes of it from `start`, cut at its end.
    #[must_use]
    pub fn slice(&self, start: u64, length: u64) -> Piece {
        let start = start.min(self.len());
        let length = length.min(self.len() - start);
        match self {
            Piece::Bytes(bytes) => {
                Piece::Bytes(bytes.slice(start as usize..(start + length) as usize))
            }
            Piece::File { file, offset, .. } => {
                Piece::File { file: Arc::clone(file), offset: offset + start, length }
            }
        }
    }
}

impl Body {
    /// Its length in bytes, where it is known before it is sent.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Bytes(bytes) => Some(bytes.len() as u64),
            Body::File(piece) => Some(piece.len()),
            Body::Pieces(pieces) => Some(pieces.iter().map(Piece::len).sum()),
            Body::Stream(_, length) => *length,
        }
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Body::Bytes(Bytes::from(text))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Body::Bytes(Bytes::from(bytes))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Empty => f.write_str("Empty"),
            Body::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Body::File(piece) => write!(f, "File({})", piece.len()),
            Body::Pieces(pieces) => write!(f, "Pieces({})", pieces.len()),
            Body::Stream(_, length) => write!(f, "Stream({length:?})"),
        }
    }
}

/// What moved over the wire for one exchange, for logs and the scoreboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Bytes received: head and body as they came (mod_logio's %I).
    pub received: u64,
    /// Bytes sent: head and body as they went (%O).
    pub sent: u64,
    /// Bytes of the body that were sent, without framing (%B).
    pub body_sent: u64,
    /// Microseconds from the request's arrival to the last byte handed to the kernel (%D).
    pub duration_us: u64,
    /// Microseconds until the first byte of the response was sent (%^FB); none if none was.
    pub first_byte_us: Option<u64>,
    /// Whether the connection was aborted before the response was complete (%X).
    pub aborted: bool,
}
