//! What is still to be sent of the body of a response: bytes in memory, pieces of files and a
//! stream, in order. A [`ResponseWriter`](crate::exchange::send::ResponseWriter) takes from it what
//! its connection takes. Nothing is copied.

use bytes::Buf;
use evenkeel_message::{Body, Piece, Source};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// How far sending has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All that was there has been sent.
    Sent,
    /// There is more, and others are to have their turn.
    More,
}

/// What was fetched of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// A piece of so many bytes.
    Piece(usize),
    /// The end of the stream.
    End,
}

/// The unsent rest of a body.
#[derive(Default)]
pub(crate) struct Pieces {
    piece: Option<Piece>,
    /// The length of the piece before any of it was sent.
    whole_piece: u64,
    rest: VecDeque<Piece>,
    /// Whether nobody else holds the bytes of the pieces, though one may share them with another.
    pub(crate) is_own: bool,
    stream: Option<Box<Stream>>,
    /// Bytes that were sent.
    pub(crate) sent: u64,
}

/// A body that comes piece by piece.
struct Stream {
    source: Pin<Box<dyn Source>>,
    /// How many bytes are still promised, if their number was told.
    left: Option<u64>,
}

impl Pieces {
    /// The pieces of a body. `length` is how long a stream is, if the client was told; `is_own`
    /// tells that nobody else holds the bytes.
    pub(crate) fn new(body: Body, length: Option<u64>, is_own: bool) -> Self {
        let mut pieces = Self { is_own, ..Self::default() };
        match body {
            Body::Empty => {}
            Body::Bytes(bytes) => pieces.begin(Piece::Bytes(bytes)),
            Body::File(piece) => pieces.begin(piece),
            Body::Pieces(rest) => pieces.rest = rest.into(),
            Body::Stream(source, _) => {
                pieces.stream = Some(Box::new(Stream { source, left: length }));
            }
        }
        pieces
    }

    /// Whether there is nothing to send.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.stream.is_none() && self.current().0.is_none()
    }

    /// Whether a stream is behind it, for which has to be waited.
    pub(crate) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether fetching the next piece of the stream is expensive work.
    pub(crate) fn is_expensive(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.source.is_expensive())
    }

    /// Whether the response is aborted if the client disconnects while its stream has no data.
    pub(crate) fn ends_with_client(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.source.ends_with_client())
    }

    /// Has the stream fetch up to `most` bytes in advance.
    pub(crate) fn poll_ahead(&mut self, context: &mut Context<'_>, most: u64) {
        if let Some(stream) = &mut self.stream {
            stream.source.as_mut().poll_ahead(context, most);
        }
    }

    /// Bytes in memory that this response alone holds. A piece that is partly sent counts whole,
    /// since no part of it is let go before its end. Of a stream that is what its source holds: it
    /// has one piece at a time.
    pub(crate) fn held(&self) -> u64 {
        if let Some(stream) = &self.stream {
            return stream.source.held();
        }
        let held = |piece: &Piece| match piece {
            Piece::Bytes(bytes) if self.is_own => bytes.len() as u64,
            piece => piece.held(),
        };
        let begun = self.piece.as_ref().filter(|piece| held(piece) > 0);
        let rest: u64 = self.rest.iter().map(held).sum();
        begun.map_or(0, |_| self.whole_piece) + rest
    }

    fn begin(&mut self, piece: Piece) {
        self.whole_piece = piece.len();
        self.piece = Some(piece);
    }

    /// The piece to be sent now, and whether others follow it; no piece once all that was there is
    /// sent.
    pub(crate) fn current(&mut self) -> (Option<&Piece>, bool) {
        while self.piece.as_ref().is_none_or(Piece::is_empty) {
            self.piece = None;
            match self.rest.pop_front() {
                Some(next) => self.begin(next),
                None => break,
            }
        }
        (self.piece.as_ref(), !self.rest.is_empty())
    }

    /// Notes that so many bytes of the current piece were sent.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count as u64;
        match &mut self.piece {
            Some(Piece::Bytes(bytes)) => bytes.advance(count),
            Some(Piece::File { offset, length, .. }) => {
                (*offset, *length) = (*offset + count as u64, *length - count as u64);
            }
            None => {}
        }
    }

    /// Fetches more of the stream once all that was there is sent. An error means that the response
    /// cannot be completed.
    pub(crate) fn poll_fetch(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Fetched>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(Fetched::End)) };
        loop {
            let chunk = ready!(stream.source.as_mut().poll_chunk(context)).transpose()?;
            let Some(mut bytes) = chunk else {
                if stream.left.is_some_and(|left| left > 0) {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                self.stream = None;
                return Poll::Ready(Ok(Fetched::End));
            };
            if let Some(left) = &mut stream.left {
                bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= bytes.len() as u64;
            }
            if bytes.is_empty() {
                continue;
            }
            let length = bytes.len();
            self.begin(Piece::Bytes(bytes));
            return Poll::Ready(Ok(Fetched::Piece(length)));
        }
    }
}
