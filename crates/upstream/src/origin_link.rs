//! One HTTP request on its connection to a server: sends what is left of the request while it reads
//! the response, since a server may answer before it has read everything.

use crate::conversation::SLOW_AFTER;
use crate::origin_failure::OriginFailureKind;
use crate::origin_stream::OriginStream;
use crate::timer::Timer;
use crate::tunnel::{Flow, OriginTunnel};
use bytes::Bytes;
use evenkeel_message::{Fields, Late, Source, Target};
use evenkeel_proto::{
    OriginBody, OriginHead, OriginLimits, ResponseLength, Step, encode_chunk, encode_end,
    parse_origin_head,
};
use evenkeel_sys::socket::Socket;
use evenkeel_sys::watch::WatchedSocket;
use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The bytes that are received at a time.
const RECEIVED: usize = 32 << 10;

/// The time for which the body of a request waits for `100 Continue` (RFC 9110, section 10.1.1).
const HELD_FOR: Duration = Duration::from_secs(1);

thread_local! {
    /// Its content is processed before the next link uses it, so that a waiting request has no
    /// buffer of its own.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; RECEIVED].into());
}

/// The framing of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadFraming {
    /// Content-Length: this many bytes are still to come.
    Exact(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
}

/// The rest of a request's body, which is sent as it comes.
pub struct Upload {
    /// Where it comes from.
    pub source: Pin<Box<dyn Source>>,
    /// How it is sent.
    pub framing: UploadFraming,
    /// Whether the server is to say `100 Continue` first.
    pub is_held: bool,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({:?})", self.framing)
    }
}

/// The connection of a request.
pub(crate) enum OriginConnection {
    /// A new one in clear text.
    New(Socket),
    /// A new one whose TLS handshake is complete.
    Secured(OriginStream),
    /// One that was kept after another request, and is watched for reading at least.
    Kept(OriginStream),
}

impl OriginConnection {
    /// Watches the socket, for reading alone unless something is left to be written.
    fn watched(self, writes: bool) -> io::Result<OriginStream> {
        let watched = match self {
            OriginConnection::Kept(stream) if writes => return stream.for_writing(),
            OriginConnection::Kept(stream) | OriginConnection::Secured(stream) => {
                return Ok(stream);
            }
            OriginConnection::New(socket) if writes => WatchedSocket::new(socket),
            OriginConnection::New(socket) => WatchedSocket::for_reading(socket),
        };
        watched.map(OriginStream::Plain).map_err(|(_, error)| error)
    }
}

/// A request in progress. Dropping it closes the connection.
pub(crate) struct OriginLink {
    stream: OriginStream,
    /// Bytes to be sent, and how many of them were.
    out: Vec<u8>,
    sent: usize,
    upload: Option<Upload>,
    /// Whether something of `upload` was taken.
    has_taken: bool,
    /// The time at which the body is sent without `100 Continue`.
    hold: Option<Timer>,
    /// Whether the request could not be sent to its end.
    is_cut: bool,
    /// The beginning of a head.
    head: Vec<u8>,
    body: Option<OriginBody>,
    /// The pieces of the body that were received and not returned yet.
    pieces: VecDeque<Bytes>,
    /// The end of the body, or its failure.
    end: Option<Result<(), OriginFailureKind>>,
    has_heard: bool,
    silence: Duration,
    /// Runs while the server is silent: at first until it is slow.
    timer: Option<Timer>,
    is_slow: bool,
}

/// What a link is doing about the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// It was sent, or waits for the server.
    Waits { has_sent: bool },
    /// It waits for the client.
    WaitsForClient,
}

impl OriginLink {
    /// Sends the beginning of a request. Returns the upload if the server has closed a kept
    /// connection.
    ///
    /// # Errors
    /// The runtime cannot watch the socket.
    pub(crate) fn begin(
        connection: OriginConnection,
        first: &[u8],
        upload: Option<Upload>,
        silence: Duration,
    ) -> Result<Result<Self, Option<Upload>>, OriginFailureKind> {
        let (mut out, mut is_cut) = (Vec::new(), false);
        let is_kept = matches!(connection, OriginConnection::Kept(_));
        let mut connection = connection;
        let sent = match &mut connection {
            OriginConnection::New(socket) => socket.send(&[IoSlice::new(first)], false),
            OriginConnection::Secured(stream) | OriginConnection::Kept(stream) => {
                stream.send_now(first)
            }
        };
        match sent {
            Ok(count) => out.extend_from_slice(first.get(count..).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => out.extend_from_slice(first),
            Err(_) if is_kept => return Ok(Err(upload)),
            // What the server has said before it hung up tells more.
            Err(_) => is_cut = true,
        }
        let writes = !out.is_empty() || upload.is_some();
        let stream = connection.watched(writes).map_err(OriginFailureKind::Unreachable)?;
        Ok(Ok(Self {
            stream,
            out,
            sent: 0,
            upload,
            has_taken: false,
            hold: None,
            is_cut,
            head: Vec::new(),
            body: None,
            pieces: VecDeque::new(),
            end: None,
            has_heard: false,
            silence,
            timer: None,
            is_slow: false,
        }))
    }

    /// Whether the server has sent anything.
    pub(crate) fn has_heard(&self) -> bool {
        self.has_heard
    }

    /// Whether the server has been silent for [`SLOW_AFTER`] by now. The task is woken once it has
    /// been.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// The rest of the request's body, to send the request anew. `None` if something of it was
    /// taken.
    pub(crate) fn into_upload(self) -> Option<Option<Upload>> {
        (!self.has_taken).then_some(self.upload)
    }

    /// Whether the whole request was sent.
    pub(crate) fn is_sent(&self) -> bool {
        let is_taken = self.sent == self.out.len() && self.upload.is_none();
        is_taken && !self.is_cut && !self.stream.has_unsent()
    }

    /// The connection after the end of the response, if nothing is left on it in either direction.
    pub(crate) fn into_idle(self) -> Option<OriginStream> {
        let is_read = self.head.is_empty() && matches!(self.end, Some(Ok(())));
        (self.is_sent() && is_read).then_some(self.stream)
    }

    /// The connection after the head of a response with the status 101, as a tunnel.
    ///
    /// # Errors
    /// The runtime cannot watch the socket.
    pub(crate) fn into_tunnel(
        self,
        path: Vec<u8>,
        target: Arc<Target>,
        late: Rc<RefCell<Late>>,
        guard: Option<Box<dyn Any>>,
    ) -> Result<OriginTunnel, OriginFailureKind> {
        // The socket of a request that was sent at once is watched for reading alone.
        let stream = self.stream.for_writing().map_err(OriginFailureKind::Unreachable)?;
        Ok(OriginTunnel {
            stream,
            to_server: Flow::default(),
            to_client: Flow::new(self.head),
            silence: self.silence,
            timer: None,
            late,
            path,
            target,
            _guard: guard,
        })
    }

    /// Lets the body of the request follow its head.
    pub(crate) fn release_upload(&mut self) {
        if let Some(upload) = &mut self.upload {
            upload.is_held = false;
        }
        self.hold = None;
    }

    /// The next head, which may be that of an interim response.
    pub(crate) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        no_body: bool,
        limits: &OriginLimits,
    ) -> Poll<Result<OriginHead, OriginFailureKind>> {
        let mut is_new = !self.head.is_empty();
        loop {
            if is_new {
                let parsed = parse_origin_head(&self.head, no_body, limits);
                if let Some(head) = parsed.map_err(OriginFailureKind::Malformed)? {
                    self.head.drain(..head.size);
                    return Poll::Ready(Ok(head));
                }
            }
            let received = BUFFER.with_borrow_mut(|buffer| {
                let count = ready!(self.poll_receive(context, buffer))?;
                let bytes = buffer.get(..count).unwrap_or_default();
                self.head.extend_from_slice(bytes);
                // A head that comes byte by byte is parsed once for each line.
                is_new = bytes.contains(&b'\n') || self.head.len() > limits.head;
                Poll::Ready(Ok(count))
            });
            if ready!(received)? == 0 {
                let error = ErrorKind::UnexpectedEof.into();
                return Poll::Ready(Err(match self.head.contains(&b'\n') {
                    true => OriginFailureKind::EndedInHead(error),
                    false => OriginFailureKind::Ended(error),
                }));
            }
        }
    }

    /// Reads what follows the final head as a body.
    pub(crate) fn begin_body(&mut self, length: ResponseLength) {
        self.body = Some(OriginBody::new(length));
        let rest = std::mem::take(&mut self.head);
        self.take_in(&rest);
    }

    /// The next piece of the body, or `None` at its end.
    pub(crate) fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, OriginFailureKind>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Poll::Ready(Ok(Some(piece)));
            }
            match self.end.take() {
                Some(Err(kind)) => return Poll::Ready(Err(kind)),
                Some(Ok(())) => {
                    self.end = Some(Ok(()));
                    return Poll::Ready(Ok(None));
                }
                None => {}
            }
            let received = BUFFER.with_borrow_mut(|buffer| {
                let count = ready!(self.poll_receive(context, buffer))?;
                self.take_in(buffer.get(..count).unwrap_or_default());
                Poll::Ready(Ok(count))
            });
            if ready!(received)? == 0 && self.end.is_none() {
                let is_end = self.body.as_ref().is_some_and(OriginBody::ends_with_connection);
                self.end = Some(match is_end {
                    true => Ok(()),
                    false => Err(OriginFailureKind::Ended(ErrorKind::UnexpectedEof.into())),
                });
            }
        }
    }

    /// Takes received bytes in as a part of the body. Bytes behind the body are kept in `head`, so
    /// that the connection is not used again.
    fn take_in(&mut self, mut rest: &[u8]) {
        let Some(body) = &mut self.body else { return };
        while self.end.is_none() {
            let step = match body.read(rest) {
                Ok(step) => step,
                Err(fault) => {
                    self.end = Some(Err(OriginFailureKind::Malformed(fault)));
                    return;
                }
            };
            match step {
                Step::Partial => return,
                Step::Data { skip, length } => {
                    let end = skip + length;
                    let data = rest.get(skip..end).unwrap_or_default();
                    self.pieces.push_back(Bytes::copy_from_slice(data));
                    rest = rest.get(end..).unwrap_or_default();
                }
                Step::End(used) => {
                    self.head.extend_from_slice(rest.get(used..).unwrap_or_default());
                    self.end = Some(Ok(()));
                }
            }
        }
    }

    /// Receives bytes while the rest of the request is sent; 0 at the end of the connection.
    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, OriginFailureKind>> {
        let sending = self.poll_send(context)?;
        let received = self.stream.poll_receive(context, buffer);
        if received.is_ready() || sending != (Sending::Waits { has_sent: false }) {
            (self.timer, self.is_slow) = (None, false);
        }
        match received {
            Poll::Ready(Ok(count)) => {
                self.has_heard |= count > 0;
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(OriginFailureKind::Ended(error))),
            // The connection of the client bounds how long the client may take.
            Poll::Pending if sending == Sending::WaitsForClient => Poll::Pending,
            Poll::Pending => self.poll_silence(context).map(|()| Err(OriginFailureKind::Silent)),
        }
    }

    /// Ready when the server has been silent for too long.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let first = self.silence.min(SLOW_AFTER);
        loop {
            let timer = self.timer.get_or_insert_with(|| Timer::after(first));
            let now = ready!(timer.poll(context));
            if self.is_slow || self.silence <= first {
                return Poll::Ready(());
            }
            self.is_slow = true;
            timer.reset(now + (self.silence - first));
        }
    }

    /// Sends as much as the connection takes.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<Sending, OriginFailureKind> {
        let mut has_sent = false;
        loop {
            if self.sent == self.out.len() {
                match self.poll_refill(context) {
                    Poll::Ready(Ok(true)) => continue,
                    Poll::Ready(Ok(false)) => return Ok(Sending::Waits { has_sent }),
                    Poll::Ready(Err(error)) => return Err(OriginFailureKind::Body(error)),
                    Poll::Pending => return Ok(Sending::WaitsForClient),
                }
            }
            let rest = self.out.get(self.sent..).unwrap_or_default();
            match self.stream.poll_send(context, rest) {
                Poll::Ready(Ok(count)) => {
                    self.sent += count;
                    has_sent = true;
                }
                // What the server has said before it hung up tells more. The client is told by the
                // response that nothing more is read.
                Poll::Ready(Err(_)) => {
                    (self.upload, self.is_cut) = (None, true);
                    self.out.clear();
                    self.sent = 0;
                    return Ok(Sending::Waits { has_sent });
                }
                Poll::Pending => return Ok(Sending::Waits { has_sent }),
            }
        }
    }

    /// Encodes the next piece of the body. False if nothing is left to be sent, or if it is not
    /// to be sent yet. Pending while the client has none.
    fn poll_refill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Some(upload) = &mut self.upload else { return Poll::Ready(Ok(false)) };
        if upload.is_held {
            let hold = self.hold.get_or_insert_with(|| Timer::after(HELD_FOR));
            if hold.poll(context).is_pending() {
                return Poll::Ready(Ok(false));
            }
            upload.is_held = false;
        }
        let chunk = ready!(upload.source.as_mut().poll_chunk(context)).transpose()?;
        self.has_taken = true;
        self.out.clear();
        self.sent = 0;
        match (&mut upload.framing, chunk) {
            (UploadFraming::Exact(left), Some(bytes)) => {
                // More than was announced would be read as another request.
                *left = left.checked_sub(bytes.len() as u64).ok_or(ErrorKind::InvalidData)?;
                self.out.extend_from_slice(&bytes);
            }
            (UploadFraming::Exact(0), None) => self.upload = None,
            (UploadFraming::Exact(_), None) => {
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
            (UploadFraming::Chunked, Some(bytes)) => encode_data(&mut self.out, &bytes),
            (UploadFraming::Chunked, None) => {
                encode_end(&mut self.out, &Fields::new());
                self.upload = None;
            }
        }
        Poll::Ready(Ok(true))
    }
}

/// Appends a chunk with these bytes. A chunk without bytes would end the body.
pub(crate) fn encode_data(out: &mut Vec<u8>, bytes: &[u8]) {
    if !bytes.is_empty() {
        encode_chunk(out, bytes.len());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}
