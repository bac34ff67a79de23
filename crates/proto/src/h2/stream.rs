//! A stream and its states (RFC 9113, section 5.1), one for each direction.

use super::flow::{ReceiveWindow, SendWindow};
use super::frame::ErrorCode;
use super::priority::Priority;
use std::collections::VecDeque;

/// The state of the client's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// Data and trailers may follow.
    Open,
    /// The client has ended it: half-closed (remote).
    Ended,
}

/// The state of the server's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// The head of the response is still to be sent.
    Head,
    /// Data may follow.
    Body,
    /// Half-closed (local).
    Ended,
}

/// Which side has reset the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetBy {
    Client,
    Us,
}

/// A stream that counts towards H2MaxSessionStreams. It counts until its request has ended in the
/// server, even if it was reset before.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) receiving: Receiving,
    pub(crate) sending: Sending,
    pub(crate) reset: Option<ResetBy>,
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// Received bytes that no handler has read. They count as consumed in the window of the
    /// connection when the stream ends.
    pub(crate) unread: usize,
    /// The rest of Content-Length; none without that field.
    pub(crate) length_left: Option<u64>,
    pub(crate) priority: Priority,
    /// Whether there is data to send.
    pub(crate) is_ready: bool,
    /// The value of [`Engine::turn`](super::Engine) at its last DATA frame. Of incremental streams,
    /// the one with the lowest value sends next.
    pub(crate) turns: u32,
    /// The size of its head.
    pub(crate) head_bytes: usize,
}

impl Stream {
    /// Subtracts received data from Content-Length. False if the body is longer, or ends earlier.
    pub(crate) fn count(&mut self, length: usize, end: bool) -> bool {
        let Some(left) = self.length_left else { return true };
        match left.checked_sub(length as u64) {
            Some(left) => {
                self.length_left = Some(left);
                !end || left == 0
            }
            None => false,
        }
    }
}

/// The streams of a connection in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: VecDeque<Stream>,
    /// The size of the heads of the open streams.
    head_bytes: usize,
    /// Closed streams that the server has reset. Frames that the client sent before it knew are
    /// ignored.
    ignored: Last,
    /// Closed streams.
    ended: Last,
}

/// The numbers of the last 32 streams of a kind.
#[derive(Debug, Default)]
struct Last {
    numbers: [u32; 32],
    next: usize,
}

impl Last {
    fn push(&mut self, id: u32) {
        if let Some(number) = self.numbers.get_mut(self.next) {
            *number = id;
        }
        self.next = (self.next + 1) % 32;
    }
}

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.open.iter_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.open.iter()
    }

    /// The size of the heads of the open streams, as RFC 7541 counts it.
    pub(crate) fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    fn place(&self, id: u32) -> Option<usize> {
        // Most streams are answered in the order of their numbers.
        if self.open.front().is_some_and(|stream| stream.id == id) {
            return Some(0);
        }
        self.open.binary_search_by_key(&id, |stream| stream.id).ok()
    }

    pub(crate) fn find(&self, id: u32) -> Option<&Stream> {
        self.open.get(self.place(id)?)
    }

    pub(crate) fn find_mut(&mut self, id: u32) -> Option<&mut Stream> {
        let place = self.place(id)?;
        self.open.get_mut(place)
    }

    /// Adds a stream with a number above all others.
    pub(crate) fn push(&mut self, stream: Stream) {
        self.head_bytes += stream.head_bytes;
        self.open.push_back(stream);
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Stream> {
        let place = self.place(id)?;
        self.ended.push(id);
        let stream = self.open.remove(place)?;
        self.head_bytes -= stream.head_bytes;
        Some(stream)
    }

    /// Whether a stream is among the last that have ended.
    pub(crate) fn has_ended(&self, id: u32) -> bool {
        self.ended.numbers.contains(&id)
    }

    /// Makes later frames of a stream be ignored.
    pub(crate) fn ignore(&mut self, id: u32) {
        self.ignored.push(id);
    }

    pub(crate) fn is_ignored(&self, id: u32) -> bool {
        self.ignored.numbers.contains(&id)
    }

    /// Frees unused memory.
    pub(crate) fn pack(&mut self) {
        self.open.shrink_to_fit();
    }
}

/// The connection error for a frame on a closed stream (RFC 9113, section 5.1).
pub(crate) fn closed(text: &'static str) -> (ErrorCode, &'static str) {
    (ErrorCode::StreamClosed, text)
}
