//! Sends the pieces of a response as DATA frames, as far as the client's flow-control windows and
//! the priorities of its streams allow.

use super::session_state::{Shared, State};
use crate::exchange::pieces::{Fetched, Pieces, Progress};
use crate::exchange::send::ResponseWriter;
use crate::transport::link::Link;
use evenkeel_message::{Fields, Piece};
use evenkeel_proto::h2::FRAME_HEAD;
use evenkeel_sys::open::read_at;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll};

/// Which frame carries END_STREAM.
enum End {
    /// The DATA frame with the end of the last piece.
    LastPiece,
    /// Not known before the end of the body's stream.
    Stream,
    /// An empty DATA frame, which is still to be sent.
    Empty,
    /// HEADERS with trailers, which are still to be sent.
    Trailers(Fields),
    /// A frame that was written.
    Told,
}

/// Sends the body of a response on its stream.
pub(crate) struct StreamWriter {
    state: State,
    stream: u32,
    end: End,
    /// The bytes of the frames that were written.
    pub(crate) sent: u64,
    /// The transport, if the session is a task.
    link: Option<Rc<Link>>,
}

impl StreamWriter {
    /// A writer for the body after a head of `sent` bytes. `is_told` means that the head has
    /// carried END_STREAM.
    pub(crate) fn new(
        state: &State,
        stream: u32,
        sent: u64,
        pieces: &Pieces,
        is_told: bool,
    ) -> Self {
        let end = match (is_told, pieces.is_stream()) {
            (true, _) => End::Told,
            (false, true) => End::Stream,
            (false, false) => End::LastPiece,
        };
        Self { state: state.clone(), stream, end, sent, link: None }
    }

    /// Lets the writer send when the unsent frames reach their maximum.
    pub(crate) fn send_over(&mut self, link: &Rc<Link>) {
        self.link = Some(Rc::clone(link));
    }

    /// Writes the frames that may be sent now. `WouldBlock` if the stream has to wait for its
    /// client or for other streams.
    pub(crate) fn write(&mut self, pieces: &mut Pieces) -> io::Result<()> {
        let state = self.state.clone();
        loop {
            let mut shared = state.borrow_mut();
            if let End::Told = self.end {
                return Ok(());
            }
            if shared.is_over(self.stream) {
                return Err(ErrorKind::BrokenPipe.into());
            }
            let is_stream = pieces.is_stream();
            let (Some(piece), more) = pieces.current() else {
                return self.write_end(&mut shared);
            };
            let mut count = shared.writable(self.stream);
            if count == 0 && self.link.as_ref().is_some_and(|link| link.try_send(&mut shared)) {
                count = shared.writable(self.stream);
            }
            if count == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let length = usize::try_from(piece.len()).unwrap_or(usize::MAX).min(count);
            let is_last = !more && !is_stream && length as u64 == piece.len();
            let written = write_frame(&mut shared, self.stream, piece, length, is_last)?;
            if is_last {
                self.end = End::Told;
            }
            self.sent += (FRAME_HEAD + written) as u64;
            pieces.advance(written);
        }
    }

    /// Writes an empty DATA frame that ends the stream, once all pieces of the body are sent. A
    /// frame without data needs no window.
    fn write_end(&mut self, shared: &mut Shared) -> io::Result<()> {
        let Shared { engine, out, .. } = shared;
        let before = out.len();
        match &self.end {
            End::Told => return Ok(()),
            // The caller fetches the next piece.
            End::Stream => {
                engine.set_ready(self.stream, false);
                return Ok(());
            }
            End::LastPiece | End::Empty => engine.data(self.stream, 0, true, out),
            End::Trailers(fields) => engine.trailers(self.stream, fields, out),
        }
        self.sent += (out.len() - before) as u64;
        self.end = End::Told;
        Ok(())
    }
}

/// Appends a DATA frame with the first `length` bytes of a piece. Returns `length`.
fn write_frame(
    shared: &mut Shared,
    stream: u32,
    piece: &Piece,
    length: usize,
    is_last: bool,
) -> io::Result<usize> {
    let Shared { engine, out, .. } = shared;
    match piece {
        Piece::Bytes(bytes) => {
            engine.data(stream, length, is_last, out);
            out.extend_from_slice(bytes.get(..length).unwrap_or_default());
        }
        Piece::File { file, offset, .. } => {
            let start = out.len();
            let end = start + FRAME_HEAD + length;
            out.resize(end, 0);
            let read = read_whole(file, out.get_mut(start + FRAME_HEAD..), *offset);
            if !read {
                out.truncate(start);
                return Err(ErrorKind::UnexpectedEof.into());
            }
            engine.data_at(stream, length, is_last, out, start);
        }
    }
    Ok(length)
}

/// Fills a buffer from a file. False if the file has become shorter.
fn read_whole(file: &impl std::os::fd::AsFd, buffer: Option<&mut [u8]>, mut offset: u64) -> bool {
    let Some(mut rest) = buffer else { return false };
    while !rest.is_empty() {
        match read_at(file, rest, offset) {
            Ok(count) if count > 0 => {
                offset += count as u64;
                rest = rest.get_mut(count..).unwrap_or_default();
            }
            _ => return false,
        }
    }
    true
}

impl ResponseWriter for StreamWriter {
    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        pieces: &mut Pieces,
    ) -> Poll<io::Result<Progress>> {
        match self.write(pieces) {
            Ok(()) => Poll::Ready(Ok(Progress::Sent)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.state.borrow_mut().wait_to_send(self.stream, context);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn frame(&mut self, fetched: Fetched, trailers: &Fields) -> bool {
        match (fetched, &self.end) {
            (Fetched::Piece(_), _) => true,
            (Fetched::End, End::Stream) => {
                self.end = match trailers.is_empty() {
                    true => End::Empty,
                    false => End::Trailers(trailers.clone()),
                };
                true
            }
            (Fetched::End, _) => false,
        }
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn has_left(&self, context: &mut Context<'_>) -> bool {
        has_left(&self.state, self.stream, context)
    }
}

/// Whether the client has reset a stream or has disconnected. If not, registers the task to be
/// woken when that may change.
pub(crate) fn has_left(state: &State, stream: u32, context: &Context<'_>) -> bool {
    let mut shared = state.borrow_mut();
    if shared.is_gone {
        return true;
    }
    match shared.inbox(stream) {
        Some(inbox) if !inbox.is_reset => {
            inbox.wait(context);
            false
        }
        _ => true,
    }
}
