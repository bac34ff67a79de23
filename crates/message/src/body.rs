//! Bodies of requests and responses, as data or as a source that is polled. `conn` sends and
//! receives them; nothing here uses a socket.

use bytes::Bytes;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// How the length of a request's body is known (RFC 9112, section 6.3). `proto` decides it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// No body.
    None,
    /// Content-Length, in bytes.
    Exact(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
}

/// What a source returns: data, or `None` at the end, or an error.
pub type Chunk = Option<io::Result<Bytes>>;

/// A body that comes in pieces. It stays on one serving thread.
pub trait Source {
    /// The next piece, or `None` at the end.
    ///
    /// # Errors
    ///
    /// An error ends the body: `InvalidData` if the sender broke the framing, `TimedOut` if it was
    /// too slow, `UnexpectedEof` if it closed the connection.
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk>;

    /// The bytes in memory that the source holds until they are fetched.
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
    /// A range of a file, sent without copying it through user memory.
    File(Piece),
    /// Several pieces one after another: a multipart range.
    Pieces(Vec<Piece>),
    /// A source, with its length in bytes if it is known. It is sent in chunks otherwise.
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

    /// The number of bytes in memory that this piece alone holds. Bytes that the file cache or the
    /// program shares are not counted.
    #[must_use]
    pub fn held(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) if bytes.is_unique() => bytes.len() as u64,
            Piece::Bytes(_) | Piece::File { .. } => 0,
        }
    }

    /// The part of `length` bytes from `start`, cut at the end of this piece.
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
    /// The length in bytes, if it is known before the body is sent.
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

/// The bytes and times of one exchange, for logs and the scoreboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// The bytes received: head and body as they came (mod_logio's %I).
    pub received: u64,
    /// The bytes sent: head and body as they went (%O).
    pub sent: u64,
    /// The bytes of the body that were sent, without framing (%B).
    pub body_sent: u64,
    /// The microseconds from the request's arrival until the kernel had the last byte (%D).
    pub duration_us: u64,
    /// The microseconds until the first byte of the response was sent (%^FB); none if no byte was.
    pub first_byte_us: Option<u64>,
    /// Whether the connection was aborted before the response was complete (%X).
    pub aborted: bool,
}
