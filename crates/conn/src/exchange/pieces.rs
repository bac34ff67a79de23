//! What is still to be sent of a response: bytes in memory, pieces of files and a stream, in
//! order. A socket takes as much as it will; what is left stays here. Nothing is copied but
//! framing.

use crate::transport::Channel;
use bytes::Buf;
use evenkeel_message::{Body, Fields, Piece, Source};
use evenkeel_proto::{Transfer, encode_chunk, encode_end};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// So much is sent at a time before others get their turn.
const STRETCH: u64 = 1 << 20;

/// How far sending has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All that was there has been sent.
    Sent,
    /// There is more, and others are to have their turn.
    More,
}

/// The unsent rest of a response.
#[derive(Default)]
pub(crate) struct Output {
    /// The head, or the line before a chunk.
    front: Vec<u8>,
    front_at: usize,
    piece: Option<Piece>,
    /// The length of the piece before any of it was sent.
    whole_piece: u64,
    pieces: VecDeque<Piece>,
    /// Whether nobody else holds the bytes of the pieces, though one may share them with another.
    pub(crate) is_own: bool,
    /// What follows the piece: the line end behind a chunk.
    back: &'static [u8],
    flow: Option<Box<Flow>>,
    /// Bytes sent, framing included.
    pub(crate) sent: u64,
    /// Bytes of the body sent.
    pub(crate) body_sent: u64,
}

/// A body that comes piece by piece.
struct Flow {
    source: Pin<Box<dyn Source>>,
    framing: Framing,
    trailers: Fields,
}

#[derive(Clone, Copy)]
enum Framing {
    Chunked,
    /// So many bytes are still promised.
    Exact(u64),
    UntilClose,
}

impl Output {
    /// The response with that head; the body is left out where the client wants none.
    pub(crate) fn new(head: Vec<u8>, body: Body, transfer: Transfer, trailers: &Fields) -> Self {
        let mut output = Self { front: head, ..Self::default() };
        match body {
            Body::Empty => {}
            Body::Bytes(bytes) => output.begin(Piece::Bytes(bytes)),
            Body::File(piece) => output.begin(piece),
            Body::Pieces(pieces) => output.pieces = pieces.into(),
            Body::Stream(source, _) => {
                let framing = match transfer {
                    Transfer::Chunked => Framing::Chunked,
                    Transfer::Exact(length) => Framing::Exact(length),
                    Transfer::Nothing | Transfer::UntilClose => Framing::UntilClose,
                };
                // The log may name them too.
                let trailers = trailers.clone();
                output.flow = Some(Box::new(Flow { source, framing, trailers }));
            }
        }
        output
    }

    /// Whether a stream is behind it, for which has to be waited.
    pub(crate) fn is_stream(&self) -> bool {
        self.flow.is_some()
    }

    /// Whether fetching the next piece of the stream is expensive work.
    pub(crate) fn is_expensive(&self) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.source.is_expensive())
    }

    /// Whether the response is aborted if the client disconnects while its stream has no data.
    pub(crate) fn ends_with_client(&self) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.source.ends_with_client())
    }

    /// Has the stream fetch up to `most` bytes in advance.
    pub(crate) fn poll_ahead(&mut self, context: &mut Context<'_>, most: u64) {
        if let Some(flow) = &mut self.flow {
            flow.source.as_mut().poll_ahead(context, most);
        }
    }

    /// Bytes in memory that this response alone holds. A piece that is partly sent counts whole,
    /// since no part of it is let go before its end. Of a stream that is what its source holds: it
    /// has one piece at a time.
    pub(crate) fn held(&self) -> u64 {
        if let Some(flow) = &self.flow {
            return flow.source.held();
        }
        let held = |piece: &Piece| match piece {
            Piece::Bytes(bytes) if self.is_own => bytes.len() as u64,
            piece => piece.held(),
        };
        let begun = self.piece.as_ref().filter(|piece| held(piece) > 0);
        let rest: u64 = self.pieces.iter().map(held).sum();
        begun.map_or(0, |_| self.whole_piece) + rest
    }

    fn begin(&mut self, piece: Piece) {
        self.whole_piece = piece.len();
        self.piece = Some(piece);
    }

    /// The head's buffer, for reuse.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.front)
    }

    /// Sends what is there. `WouldBlock` where the socket takes no more, `UnexpectedEof` where a
    /// file has become shorter than was promised.
    pub(crate) fn send(&mut self, channel: &mut Channel<'_>) -> io::Result<Progress> {
        let start = self.sent;
        loop {
            if self.piece.as_ref().is_none_or(Piece::is_empty) {
                self.piece = None;
                if let Some(next) = self.pieces.pop_front() {
                    self.begin(next);
                }
            }
            let front = self.front.get(self.front_at..).unwrap_or_default();
            match &mut self.piece {
                Some(Piece::File { .. }) if !front.is_empty() => {
                    let count = channel.send(&[IoSlice::new(front)], true)?;
                    self.advance(count);
                }
                Some(Piece::File { file, offset, length }) if *length > 0 => {
                    let count = usize::try_from(STRETCH.min(*length)).unwrap_or(usize::MAX);
                    let count = channel.send_file(file.as_fd(), *offset, count)? as u64;
                    if count == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    (*offset, *length) = (*offset + count, *length - count);
                    self.sent += count;
                    self.body_sent += count;
                }
                Some(Piece::File { .. }) => {}
                piece => {
                    let body = piece_bytes(piece.as_ref());
                    let parts = [front, body, self.back].map(IoSlice::new);
                    let more = !self.pieces.is_empty();
                    if front.len() + body.len() + self.back.len() == 0 {
                        if more {
                            continue;
                        }
                        channel.flush()?;
                        return Ok(Progress::Sent);
                    }
                    // An empty part in front is left out: fewer words for the kernel to read.
                    let used = if self.back.is_empty() { 2 } else { 3 };
                    let used = if body.is_empty() && used == 2 { 1 } else { used };
                    let count = channel.send(parts.get(..used).unwrap_or(&parts), more)?;
                    self.advance(count);
                }
            }
            if self.sent - start >= STRETCH {
                return Ok(Progress::More);
            }
        }
    }

    /// Takes `count` bytes that were sent off front, piece and back.
    fn advance(&mut self, count: usize) {
        self.sent += count as u64;
        let of_front = count.min(self.front.len() - self.front_at);
        self.front_at += of_front;
        let mut rest = count - of_front;
        if let Some(Piece::Bytes(bytes)) = &mut self.piece {
            let of_piece = rest.min(bytes.len());
            bytes.advance(of_piece);
            self.body_sent += of_piece as u64;
            rest -= of_piece;
        }
        self.back = self.back.get(rest..).unwrap_or_default();
    }

    /// Fetches more of the stream once all that was there is sent; false at its end. An error
    /// means that the response cannot be completed.
    pub(crate) fn poll_fetch(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Some(flow) = &mut self.flow else { return Poll::Ready(Ok(false)) };
        if self.front_at == self.front.len() {
            self.front.clear();
            self.front_at = 0;
        }
        loop {
            let chunk = ready!(flow.source.as_mut().poll_chunk(context)).transpose()?;
            let Some(mut bytes) = chunk else {
                if matches!(flow.framing, Framing::Exact(left) if left > 0) {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                let ended = matches!(flow.framing, Framing::Chunked);
                if ended {
                    encode_end(&mut self.front, &flow.trailers);
                }
                self.flow = None;
                return Poll::Ready(Ok(ended));
            };
            match &mut flow.framing {
                Framing::Exact(left) => {
                    bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= bytes.len() as u64;
                }
                Framing::Chunked | Framing::UntilClose => {}
            }
            if bytes.is_empty() {
                continue;
            }
            if matches!(flow.framing, Framing::Chunked) {
                encode_chunk(&mut self.front, bytes.len());
                self.back = b"\r\n";
            }
            self.begin(Piece::Bytes(bytes));
            return Poll::Ready(Ok(true));
        }
    }
}

fn piece_bytes(piece: Option<&Piece>) -> &[u8] {
    match piece {
        Some(Piece::Bytes(bytes)) => bytes,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Transport;
    use bytes::Bytes;
    use evenkeel_sys::socket::Socket;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    fn pair() -> (UnixStream, Transport) {
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, Transport::of(Socket::new(server.into())))
    }

    fn file(text: &str) -> Arc<std::os::fd::OwnedFd> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Arc::new(file.into())
    }

    struct Words(Vec<&'static str>);

    impl Source for Words {
        fn poll_chunk(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<evenkeel_message::Chunk> {
            let next = (!self.0.is_empty()).then(|| Ok(Bytes::from(self.0.remove(0))));
            Poll::Ready(next)
        }
    }

    fn streamed(transfer: Transfer, words: &[&'static str]) -> (String, io::Result<u64>) {
        let (mut client, mut socket) = pair();
        let body = Body::Stream(Box::pin(Words(words.to_vec())), None);
        let mut trailers = Fields::new();
        trailers.add("T", "1");
        let mut output = Output::new(b"HEAD ".to_vec(), body, transfer, &trailers);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let result = loop {
            match output.poll_fetch(&mut context) {
                Poll::Ready(Ok(more)) => {
                    assert_eq!(
                        output.send(&mut socket.channel().unwrap()).unwrap(),
                        Progress::Sent
                    );
                    if !more || !output.is_stream() {
                        break Ok(output.body_sent);
                    }
                }
                Poll::Ready(Err(error)) => break Err(error),
                Poll::Pending => panic!("these words are there"),
            }
        };
        drop(socket);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        (text, result)
    }

    #[test]
    fn head_bytes_and_files_go_out_in_order() {
        let (mut client, mut socket) = pair();
        let file = file("0123456789");
        let pieces = vec![
            Piece::Bytes(Bytes::from_static(b"a")),
            Piece::File { file: Arc::clone(&file), offset: 2, length: 3 },
            Piece::Bytes(Bytes::new()),
            Piece::Bytes(Bytes::from_static(b"b")),
            Piece::File { file, offset: 9, length: 1 },
        ];
        let body = Body::Pieces(pieces);
        let mut output = Output::new(b"HEAD ".to_vec(), body, Transfer::Exact(6), &Fields::new());
        assert_eq!(output.send(&mut socket.channel().unwrap()).unwrap(), Progress::Sent);
        assert_eq!((output.sent, output.body_sent), (11, 6));
        drop(socket);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "HEAD a234b9");
    }

    #[test]
    fn what_the_socket_does_not_take_is_sent_later() {
        let (mut client, mut socket) = pair();
        let big = Bytes::from(vec![b'x'; 4 << 20]);
        let body = Body::Bytes(big);
        let mut output =
            Output::new(b"HEAD".to_vec(), body, Transfer::Exact(4 << 20), &Fields::new());
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            all.len()
        });
        loop {
            match output.send(&mut socket.channel().unwrap()) {
                Ok(Progress::Sent) => break,
                Ok(Progress::More) => {}
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        drop(socket);
        assert_eq!(reader.join().unwrap(), (4 << 20) + 4);
    }

    #[test]
    fn what_it_alone_holds_is_counted_until_it_is_sent() {
        let (mut client, mut socket) = pair();
        let shared = Bytes::from(vec![b's'; 1000]);
        let pieces = vec![
            Piece::Bytes(Bytes::from(vec![b'a'; 1 << 20])),
            Piece::Bytes(shared.clone()),
            Piece::File { file: file("abc"), offset: 0, length: 3 },
            Piece::Bytes(Bytes::from(vec![b'b'; 500])),
        ];
        let length = (1 << 20) + 1503;
        let body = Body::Pieces(pieces);
        let mut output = Output::new(b"H".to_vec(), body, Transfer::Exact(length), &Fields::new());
        assert_eq!(output.held(), (1 << 20) + 500);
        output.is_own = true;
        assert_eq!(output.held(), (1 << 20) + 1500);
        output.is_own = false;
        let blocked = output.send(&mut socket.channel().unwrap()).unwrap_err();
        assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
        assert!(output.sent > 0);
        assert_eq!(output.held(), (1 << 20) + 500, "none of the first piece can be let go");
        let mut rest = vec![0; 1 + usize::try_from(length).unwrap()];
        let reader = std::thread::spawn(move || client.read_exact(&mut rest).unwrap());
        while output.send(&mut socket.channel().unwrap()).ok() != Some(Progress::Sent) {}
        reader.join().unwrap();
        assert_eq!((output.held(), shared.len()), (0, 1000));
    }

    #[test]
    fn a_file_that_shrank_is_an_error() {
        let (_client, mut socket) = pair();
        let body = Body::File(Piece::File { file: file("abc"), offset: 0, length: 5 });
        let mut output = Output::new(b"H".to_vec(), body, Transfer::Exact(5), &Fields::new());
        assert_eq!(
            output.send(&mut socket.channel().unwrap()).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn streams_are_framed() {
        let (text, sent) = streamed(Transfer::Chunked, &["hello", "", "world!"]);
        assert_eq!(text, "HEAD 5\r\nhello\r\n6\r\nworld!\r\n0\r\nT: 1\r\n\r\n");
        assert_eq!(sent.unwrap(), 11);
        let (text, _) = streamed(Transfer::UntilClose, &["hello", "world!"]);
        assert_eq!(text, "HEAD helloworld!");
        let (text, _) = streamed(Transfer::Exact(7), &["hello", "world!"]);
        assert_eq!(text, "HEAD hellowo");
        let (_, short) = streamed(Transfer::Exact(12), &["hello", "world!"]);
        assert_eq!(short.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
