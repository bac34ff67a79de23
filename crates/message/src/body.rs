//! Bodies of requests and responses, as data or as a source that is polled. `conn` sends and
//! receives them; nothing here uses a socket.

use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

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

    /// Fetches up to `most` bytes in advance, while the client does not take what was fetched
    /// before. A source that has a backend behind it frees the backend so.
    fn poll_ahead(self: Pin<&mut Self>, _context: &mut Context<'_>, _most: u64) {}

    /// Whether making a piece is expensive work, for which the serving thread needs a permit.
    fn is_expensive(&self) -> bool {
        false
    }

    /// Whether the response is aborted if the client disconnects while the source has no data.
    /// The connection calls this function after each poll that returns pending. A client that has
    /// closed only its sending side counts as disconnected, so a source returns true only if its
    /// next data may take long.
    fn ends_with_client(&self) -> bool {
        false
    }
}

/// A source that can be read ahead: what comes while the client does not read waits in memory, up
/// to a bound. The source is not read beyond that, so that its sender has to wait too.
pub struct ReadAhead {
    source: Pin<Box<dyn Source>>,
    ahead: VecDeque<Bytes>,
    /// The bytes of `ahead`.
    held: u64,
    /// The end of the source, or its error, behind what is ahead.
    end: Option<Chunk>,
}

impl ReadAhead {
    /// Reads this source ahead.
    #[must_use]
    pub fn new(source: Pin<Box<dyn Source>>) -> Self {
        Self { source, ahead: VecDeque::new(), held: 0, end: None }
    }
}

impl Source for ReadAhead {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        let this = self.get_mut();
        if let Some(bytes) = this.ahead.pop_front() {
            this.held -= bytes.len() as u64;
            return Poll::Ready(Some(Ok(bytes)));
        }
        match this.end.take() {
            Some(end) => Poll::Ready(end),
            None => this.source.as_mut().poll_chunk(context),
        }
    }

    fn held(&self) -> u64 {
        self.held + self.source.held()
    }

    fn poll_ahead(self: Pin<&mut Self>, context: &mut Context<'_>, most: u64) {
        let this = self.get_mut();
        while this.end.is_none() && this.held < most {
            match this.source.as_mut().poll_chunk(context) {
                Poll::Ready(Some(Ok(bytes))) => {
                    this.held += bytes.len() as u64;
                    this.ahead.push_back(bytes);
                }
                Poll::Ready(end) => this.end = Some(end),
                Poll::Pending => return,
            }
        }
    }

    fn is_expensive(&self) -> bool {
        self.source.is_expensive()
    }

    fn ends_with_client(&self) -> bool {
        self.source.ends_with_client()
    }
}

/// A source that has all its bytes in one piece.
pub(crate) struct Whole(pub(crate) Option<Bytes>);

impl Source for Whole {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
        Poll::Ready(self.get_mut().0.take().filter(|bytes| !bytes.is_empty()).map(Ok))
    }
}

/// The error of a [`limited`] source that has more than it may, inside an error of the kind
/// `FileTooLarge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeyondLimit {
    /// The bytes that have come.
    pub received: u64,
    /// The bytes that may come.
    pub limit: u64,
}

impl fmt::Display for BeyondLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { received, limit } = self;
        write!(
            f,
            "Read content length of {received} is larger than the configured limit of {limit}"
        )
    }
}

impl std::error::Error for BeyondLimit {}

/// A source whose chunks pass through a function, each as it is read.
pub struct MappedBody<F> {
    source: Pin<Box<dyn Source>>,
    function: F,
}

impl<F: FnMut(Chunk) -> Chunk + Unpin> MappedBody<F> {
    /// Passes the chunks of this source through this function, the end included.
    #[must_use]
    pub fn new(source: Pin<Box<dyn Source>>, function: F) -> Self {
        Self { source, function }
    }
}

impl<F: FnMut(Chunk) -> Chunk + Unpin> Source for MappedBody<F> {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        let this = self.get_mut();
        let chunk = ready!(this.source.as_mut().poll_chunk(context));
        Poll::Ready((this.function)(chunk))
    }

    fn held(&self) -> u64 {
        self.source.held()
    }

    fn poll_ahead(self: Pin<&mut Self>, context: &mut Context<'_>, most: u64) {
        self.get_mut().source.as_mut().poll_ahead(context, most);
    }

    fn is_expensive(&self) -> bool {
        self.source.is_expensive()
    }

    fn ends_with_client(&self) -> bool {
        self.source.ends_with_client()
    }
}

/// A source that ends with the error [`BeyondLimit`] once more than `limit` bytes have come.
#[must_use]
pub fn limited(source: Pin<Box<dyn Source>>, limit: u64) -> impl Source + Unpin {
    let mut received = 0_u64;
    MappedBody::new(source, move |chunk| {
        let Some(Ok(bytes)) = &chunk else { return chunk };
        received = received.saturating_add(bytes.len() as u64);
        if received <= limit {
            return chunk;
        }
        let beyond = BeyondLimit { received, limit };
        Some(Err(io::Error::new(io::ErrorKind::FileTooLarge, beyond)))
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// Pieces that are there, and then a wait without an end.
    struct Pieces(Vec<Chunk>);

    impl Source for Pieces {
        fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
            match self.0.is_empty() {
                true => Poll::Pending,
                false => Poll::Ready(self.0.remove(0)),
            }
        }
    }

    fn pieces(lengths: &[usize], ends: bool) -> Pin<Box<dyn Source>> {
        let pieces = lengths.iter().map(|length| Some(Ok(Bytes::from(vec![b'x'; *length]))));
        Box::pin(Pieces(pieces.chain(ends.then_some(None)).collect()))
    }

    fn next(source: &mut (impl Source + Unpin)) -> Poll<Option<Result<usize, io::ErrorKind>>> {
        let chunk = Pin::new(source).poll_chunk(&mut Context::from_waker(Waker::noop()));
        chunk.map(|it| it.map(|it| it.map(|it| it.len()).map_err(|error| error.kind())))
    }

    #[test]
    fn no_more_is_read_ahead_than_may_be_and_nothing_is_lost() {
        let mut source = ReadAhead::new(pieces(&[4, 4, 4], true));
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(&mut source).poll_ahead(&mut context, 6);
        assert_eq!(source.held(), 8, "the piece that reaches the bound is kept whole");
        assert_eq!(next(&mut source), Poll::Ready(Some(Ok(4))));
        Pin::new(&mut source).poll_ahead(&mut context, 100);
        assert_eq!(source.held(), 8);
        for expected in [Some(Ok(4)), Some(Ok(4)), None] {
            assert_eq!(next(&mut source), Poll::Ready(expected));
        }
        let mut waiting = ReadAhead::new(pieces(&[1], false));
        Pin::new(&mut waiting).poll_ahead(&mut context, 100);
        assert_eq!(next(&mut waiting), Poll::Ready(Some(Ok(1))));
        assert_eq!(next(&mut waiting), Poll::Pending);
    }

    #[test]
    fn a_limited_source_ends_with_an_error_beyond_its_limit() {
        let mut source = limited(pieces(&[4, 4], true), 8);
        for expected in [Some(Ok(4)), Some(Ok(4)), None] {
            assert_eq!(next(&mut source), Poll::Ready(expected));
        }
        let mut source = limited(pieces(&[4, 4], true), 7);
        assert_eq!(next(&mut source), Poll::Ready(Some(Ok(4))));
        assert_eq!(next(&mut source), Poll::Ready(Some(Err(io::ErrorKind::FileTooLarge))));
    }
}
