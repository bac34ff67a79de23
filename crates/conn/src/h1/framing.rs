//! The framing of a response in HTTP/1: its head, the lines around chunks, and the trailer section.
//! It sends them with the pieces of the body.

use crate::exchange::pieces::{Fetched, Pieces, Progress};
use crate::transport::Channel;
use evenkeel_message::{Fields, Piece};
use evenkeel_proto::{BodyFraming, encode_chunk, encode_end};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

/// So much is sent at a time before others get their turn.
const STRETCH: u64 = 1 << 20;

/// What is still to be sent around the pieces of a body.
#[derive(Default)]
pub(crate) struct Framing {
    /// The head, or the line before a chunk.
    front: Vec<u8>,
    front_at: usize,
    /// What follows the piece: the line end behind a chunk.
    back: &'static [u8],
    is_chunked: bool,
    /// Bytes sent, framing included.
    pub(crate) sent: u64,
}

/// How long the body of a stream is, if the client was told.
pub(crate) fn length_of(transfer: BodyFraming) -> Option<u64> {
    match transfer {
        BodyFraming::Exact(length) => Some(length),
        BodyFraming::Nothing | BodyFraming::Chunked | BodyFraming::UntilClose => None,
    }
}

impl Framing {
    /// The framing of a response with that head.
    pub(crate) fn new(head: Vec<u8>, transfer: BodyFraming) -> Self {
        Self { front: head, is_chunked: transfer == BodyFraming::Chunked, ..Self::default() }
    }

    /// The head's buffer, for reuse.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.front)
    }

    /// Frames what was fetched of a stream, once all before it is sent. Says whether there is
    /// something to send.
    pub(crate) fn frame(&mut self, fetched: Fetched, trailers: &Fields) -> bool {
        if self.front_at == self.front.len() {
            self.front.clear();
            self.front_at = 0;
        }
        match fetched {
            Fetched::Piece(length) if self.is_chunked => {
                encode_chunk(&mut self.front, length);
                self.back = b"\r\n";
            }
            Fetched::Piece(_) => {}
            Fetched::End if self.is_chunked => encode_end(&mut self.front, trailers),
            Fetched::End => return false,
        }
        true
    }

    /// Sends what is there. `WouldBlock` where the transport takes no more, `UnexpectedEof` where a
    /// file has become shorter than was promised.
    pub(crate) fn send(
        &mut self,
        channel: &mut Channel<'_>,
        pieces: &mut Pieces,
    ) -> io::Result<Progress> {
        let start = self.sent;
        loop {
            let front = self.front.get(self.front_at..).unwrap_or_default();
            let (piece, more) = pieces.current();
            match piece {
                Some(Piece::File { .. }) if !front.is_empty() => {
                    let count = channel.send(&[IoSlice::new(front)], true)?;
                    self.advance(count, pieces, 0);
                }
                Some(Piece::File { file, offset, length }) => {
                    let count = usize::try_from(STRETCH.min(*length)).unwrap_or(usize::MAX);
                    let count = channel.send_file(file.as_fd(), *offset, count)?;
                    if count == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.sent += count as u64;
                    pieces.advance(count);
                }
                piece => {
                    let body: &[u8] = match piece {
                        Some(Piece::Bytes(bytes)) => bytes,
                        _ => &[],
                    };
                    if front.len() + body.len() + self.back.len() == 0 {
                        channel.flush()?;
                        return Ok(Progress::Sent);
                    }
                    let parts = [front, body, self.back].map(IoSlice::new);
                    // An empty part in front is left out: fewer words for the kernel to read.
                    let used = if self.back.is_empty() { 2 } else { 3 };
                    let used = if body.is_empty() && used == 2 { 1 } else { used };
                    let length = body.len();
                    let count = channel.send(parts.get(..used).unwrap_or(&parts), more)?;
                    self.advance(count, pieces, length);
                }
            }
            if self.sent - start >= STRETCH {
                return Ok(Progress::More);
            }
        }
    }

    /// Notes that `count` bytes were sent of the front, of a piece of `length` bytes, and of the
    /// back.
    fn advance(&mut self, count: usize, pieces: &mut Pieces, length: usize) {
        self.sent += count as u64;
        let of_front = count.min(self.front.len() - self.front_at);
        self.front_at += of_front;
        let of_piece = (count - of_front).min(length);
        if of_piece > 0 {
            pieces.advance(of_piece);
        }
        self.back = self.back.get(count - of_front - of_piece..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Transport;
    use bytes::Bytes;
    use evenkeel_message::{Body, Chunk, Source};
    use evenkeel_sys::socket::Socket;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    fn pair() -> (UnixStream, Transport) {
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, Transport::of(Socket::new(server.into()), &Rc::default()))
    }

    fn file(text: &str) -> Arc<std::os::fd::OwnedFd> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Arc::new(file.into())
    }

    /// A response on its way out.
    struct Output {
        framing: Framing,
        pieces: Pieces,
        trailers: Fields,
    }

    impl Output {
        fn new(head: Vec<u8>, body: Body, transfer: BodyFraming, trailers: &Fields) -> Self {
            let pieces = Pieces::new(body, length_of(transfer), false);
            Self { framing: Framing::new(head, transfer), pieces, trailers: trailers.clone() }
        }

        fn send(&mut self, channel: &mut Channel<'_>) -> io::Result<Progress> {
            self.framing.send(channel, &mut self.pieces)
        }

        fn poll_fetch(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
            let fetched = self.pieces.poll_fetch(context);
            fetched.map_ok(|fetched| self.framing.frame(fetched, &self.trailers))
        }
    }

    struct Words(Vec<&'static str>);

    impl Source for Words {
        fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
            let next = (!self.0.is_empty()).then(|| Ok(Bytes::from(self.0.remove(0))));
            Poll::Ready(next)
        }
    }

    fn streamed(transfer: BodyFraming, words: &[&'static str]) -> (String, io::Result<u64>) {
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
                    if !more || !output.pieces.is_stream() {
                        break Ok(output.pieces.sent);
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
        let mut output =
            Output::new(b"HEAD ".to_vec(), body, BodyFraming::Exact(6), &Fields::new());
        assert_eq!(output.send(&mut socket.channel().unwrap()).unwrap(), Progress::Sent);
        assert_eq!((output.framing.sent, output.pieces.sent), (11, 6));
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
            Output::new(b"HEAD".to_vec(), body, BodyFraming::Exact(4 << 20), &Fields::new());
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
        let mut output =
            Output::new(b"H".to_vec(), body, BodyFraming::Exact(length), &Fields::new());
        assert_eq!(output.pieces.held(), (1 << 20) + 500);
        output.pieces.is_own = true;
        assert_eq!(output.pieces.held(), (1 << 20) + 1500);
        output.pieces.is_own = false;
        let blocked = output.send(&mut socket.channel().unwrap()).unwrap_err();
        assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
        assert!(output.framing.sent > 0);
        assert_eq!(output.pieces.held(), (1 << 20) + 500, "none of the first piece can be let go");
        let mut rest = vec![0; 1 + usize::try_from(length).unwrap()];
        let reader = std::thread::spawn(move || client.read_exact(&mut rest).unwrap());
        while output.send(&mut socket.channel().unwrap()).ok() != Some(Progress::Sent) {}
        reader.join().unwrap();
        assert_eq!((output.pieces.held(), shared.len()), (0, 1000));
    }

    #[test]
    fn a_file_that_shrank_is_an_error() {
        let (_client, mut socket) = pair();
        let body = Body::File(Piece::File { file: file("abc"), offset: 0, length: 5 });
        let mut output = Output::new(b"H".to_vec(), body, BodyFraming::Exact(5), &Fields::new());
        assert_eq!(
            output.send(&mut socket.channel().unwrap()).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn streams_are_framed() {
        let (text, sent) = streamed(BodyFraming::Chunked, &["hello", "", "world!"]);
        assert_eq!(text, "HEAD 5\r\nhello\r\n6\r\nworld!\r\n0\r\nT: 1\r\n\r\n");
        assert_eq!(sent.unwrap(), 11);
        let (text, _) = streamed(BodyFraming::UntilClose, &["hello", "world!"]);
        assert_eq!(text, "HEAD helloworld!");
        let (text, _) = streamed(BodyFraming::Exact(7), &["hello", "world!"]);
        assert_eq!(text, "HEAD hellowo");
        let (_, short) = streamed(BodyFraming::Exact(12), &["hello", "world!"]);
        assert_eq!(short.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
