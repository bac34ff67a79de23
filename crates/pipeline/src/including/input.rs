//! Reads the body of a response piece by piece, as the text of a page or as a part of one.

use bytes::{Buf, Bytes};
use evenkeel_message::{Body, Piece, Source};
use evenkeel_modules::include::read_file;
use evenkeel_modules::lab::BlockingPool;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

/// The bytes of a file that are read at a time.
const READ: usize = 64 << 10;

/// A body, and what was read of it and is not used up.
pub(crate) struct Input {
    at_hand: Bytes,
    pieces: VecDeque<Piece>,
    source: Option<Pin<Box<dyn Source>>>,
    blocking_pool: Arc<BlockingPool>,
}

impl Input {
    pub(crate) fn new(body: Body, blocking_pool: Arc<BlockingPool>) -> Self {
        let (pieces, source) = match body {
            Body::Empty => (VecDeque::new(), None),
            Body::Bytes(bytes) => (VecDeque::from([Piece::Bytes(bytes)]), None),
            Body::File(piece) => (VecDeque::from([piece]), None),
            Body::Pieces(pieces) => (pieces.into(), None),
            Body::Stream(source, _) => (VecDeque::new(), Some(source)),
        };
        Self { at_hand: Bytes::new(), pieces, source, blocking_pool }
    }

    /// What was read and is not used up.
    pub(super) fn at_hand(&self) -> &[u8] {
        &self.at_hand
    }

    /// Uses up the first bytes at hand.
    pub(super) fn take(&mut self, length: usize) -> Bytes {
        self.at_hand.split_to(length.min(self.at_hand.len()))
    }

    /// Leaves out the first bytes at hand.
    pub(super) fn skip(&mut self, length: usize) {
        self.at_hand.advance(length.min(self.at_hand.len()));
    }

    /// Reads more. Returns false at the end of the body.
    pub(super) async fn more(&mut self) -> io::Result<bool> {
        let Some(next) = self.next().await? else { return Ok(false) };
        self.at_hand = match self.at_hand.is_empty() {
            true => next,
            false => [&*self.at_hand, &*next].concat().into(),
        };
        Ok(true)
    }

    /// Reads the next piece.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(piece) = self.pieces.pop_front() {
            let (file, offset, length) = match piece {
                piece if piece.is_empty() => continue,
                Piece::Bytes(bytes) => return Ok(Some(bytes)),
                Piece::File { file, offset, length } => (file, offset, length),
            };
            let most = usize::try_from(length).unwrap_or(READ).min(READ);
            let shared = Arc::clone(&file);
            let read = self.blocking_pool.spawn(move || read_file(&shared, offset, most));
            let text = read.await.ok_or_else(|| io::Error::other("no thread reads the file"))??;
            let count = text.len() as u64;
            if count == 0 {
                // The file has become shorter than it was.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (offset, length) = (offset + count, length - count.min(length));
            self.pieces.push_front(Piece::File { file, offset, length });
            return Ok(Some(text.into()));
        }
        let Some(source) = &mut self.source else { return Ok(None) };
        let next = poll_fn(|context| source.as_mut().poll_chunk(context)).await.transpose()?;
        if next.is_none() {
            self.source = None;
        }
        Ok(next)
    }
}
