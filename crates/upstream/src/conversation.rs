//! One request to a FastCGI, SCGI or uWSGI application on its connection: sends what is left of the
//! request while it reads the response, since an application may answer before it has read
//! everything.

use crate::connect::Patience;
use crate::failure::FailureKind;
use crate::spool::{Spool, SpoolReader};
use crate::timer::Timer;
use bytes::Bytes;
use evenkeel_proto::fastcgi::{Record, RecordReader, Stream, encode_content, record_header};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::socket::Socket;
use evenkeel_sys::watch::WatchedSocket;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// The bytes that are received at a time.
const RECEIVED: usize = 32 << 10;

/// An application that is silent for so long is slow.
pub(crate) const SLOW_AFTER: Duration = Duration::from_millis(250);

/// The least time between two checks whether a request is still in the queue of its pool.
const LEAST_LOOK: Duration = Duration::from_secs(1);

/// The most bytes of the buffer for requests that a thread keeps.
const MOST_KEPT: usize = 128 << 10;

/// The buffers of a thread. Their content is processed before the next conversation uses them, so
/// that a waiting request has no buffer of its own.
struct Buffers {
    sent: Vec<u8>,
    received: Box<[u8]>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> =
        RefCell::new(Buffers { sent: Vec::new(), received: vec![0; RECEIVED].into() });

    /// Whether the last response on a connection of its own arrived at once. The next one is then
    /// expected to do so too.
    static ARRIVES_AT_ONCE: Cell<bool> = const { Cell::new(true) };
}

/// What an application says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A piece of its response.
    Output(Bytes),
    /// A piece of text for the error log, and whether its record ends with it.
    Complaint(Bytes, bool),
    /// A piece of the report of a worker of this server.
    Report(Bytes),
    /// A record whose type means nothing here.
    Unknown(u8),
    /// The end.
    End,
}

/// A request in progress. Dropping it closes the connection, which tells the application that
/// nobody waits any more.
pub(crate) struct Conversation {
    socket: WatchedSocket,
    /// Bytes to be sent, and how many of them were.
    out: Vec<u8>,
    sent: usize,
    /// The rest of the request's body. `None` once its end is in `out` or was sent.
    body: Option<SpoolReader>,
    /// The reader of FastCGI records. `None` if the response comes as it is, and ends with the
    /// connection (SCGI, uWSGI).
    reader: Option<RecordReader>,
    /// The events that were received and not returned yet.
    events: VecDeque<Result<Event, FailureKind>>,
    is_output_closed: bool,
    silence: Duration,
    /// Runs while the application is silent: at first until it is slow.
    timer: Option<Timer>,
    is_slow: bool,
    /// The time by which a worker must have read from the request. `None` once a worker has, or if
    /// the wait is not bounded.
    queue_end: Option<Instant>,
    /// The number of bytes of the request that the socket has taken.
    written: usize,
    /// Whether the application has said anything.
    has_heard: bool,
    /// Whether the connection is closed after the response, so that the response may be left
    /// unread.
    is_single: bool,
}

/// How requests and responses are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// In FastCGI records.
    Records,
    /// A block of variables and the body as it is; the response ends with the connection (SCGI,
    /// uWSGI).
    Plain,
}

/// The connection of a request.
pub(crate) enum Connection {
    /// A new one.
    New(Socket),
    /// A new one to a Unix socket, which ends with the request.
    Single(Socket),
    /// One that was kept after another request, and is watched for reading.
    Kept(WatchedSocket),
}

impl Connection {
    pub(crate) fn socket(&self) -> &Socket {
        match self {
            Connection::New(socket) | Connection::Single(socket) => socket,
            Connection::Kept(watched) => watched.socket(),
        }
    }

    /// Watches the socket, for reading alone unless something is left to be written.
    pub(crate) fn watched(self, writes: bool) -> Result<WatchedSocket, FailureKind> {
        let watched = match self {
            Connection::Kept(watched) if !writes => return Ok(watched),
            Connection::Kept(watched) => WatchedSocket::new(watched.into_socket()),
            Connection::New(socket) | Connection::Single(socket) => match writes {
                true => WatchedSocket::new(socket),
                false => WatchedSocket::for_reading(socket),
            },
        };
        watched.map_err(|(_, error)| FailureKind::Unreachable(error))
    }
}

impl Conversation {
    /// Sends a request. `encode` appends its records up to the end of the parameters; a body in
    /// memory follows in the same system call. Returns `None` if the application has closed a kept
    /// connection, which has taken nothing.
    ///
    /// # Errors
    /// The runtime cannot watch the socket.
    pub(crate) fn begin(
        connection: Connection,
        framing: Framing,
        encode: impl FnOnce(&mut Vec<u8>),
        body: &Spool,
        patience: Patience,
        blocking_pool: &Arc<BlockingPool>,
    ) -> Result<Option<Self>, FailureKind> {
        let mut reader = match body.in_memory() {
            Some(_) => None,
            None => Some(body.clone().reader(Arc::clone(blocking_pool))),
        };
        let (mut written, mut is_closed) = (0, false);
        let out = BUFFERS.with_borrow_mut(|buffers| {
            let out = &mut buffers.sent;
            out.clear();
            encode(out);
            match (framing, body.in_memory()) {
                (Framing::Records, Some(bytes)) => encode_body_end(out, bytes),
                (Framing::Plain, Some(bytes)) => out.extend_from_slice(bytes),
                (_, None) => {}
            }
            let left = match connection.socket().send(&[IoSlice::new(out)], false) {
                Ok(count) => {
                    written = count;
                    out.get(count..).unwrap_or_default().to_vec()
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => out.clone(),
                // What the application has said before it hung up tells more.
                Err(_) => {
                    (reader, is_closed) = (None, true);
                    Vec::new()
                }
            };
            out.shrink_to(MOST_KEPT);
            left
        });
        if is_closed && matches!(connection, Connection::Kept(_)) {
            return Ok(None);
        }
        let writes = !out.is_empty() || reader.is_some();
        let is_single = matches!(connection, Connection::Single(_));
        Ok(Some(Self {
            socket: connection.watched(writes)?,
            out,
            sent: 0,
            body: reader,
            reader: (framing == Framing::Records).then(RecordReader::new),
            events: VecDeque::new(),
            is_output_closed: false,
            silence: patience.silence,
            timer: None,
            is_slow: false,
            queue_end: patience.queue.map(|queue| Instant::now() + queue),
            written,
            has_heard: false,
            is_single,
        }))
    }

    /// Whether the application has said anything.
    pub(crate) fn has_heard(&self) -> bool {
        self.has_heard
    }

    /// The connection after the end of the response, if nothing is left on it in either direction.
    /// One that is watched for writing too, because the body of the request is large, is not kept.
    pub(crate) fn into_idle(self) -> Option<WatchedSocket> {
        let is_sent = self.out.is_empty() && self.body.is_none();
        let is_between = self.reader.as_ref().is_some_and(RecordReader::is_between_records);
        let is_read = is_between && self.events.is_empty();
        (is_sent && is_read).then_some(self.socket)
    }

    /// The next event. After [`Event::End`] and after an error there is none.
    pub(crate) fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Event, FailureKind>> {
        let has_sent = self.poll_send(context)?;
        let heard = self.poll_hear(context);
        if heard.is_ready() || has_sent {
            (self.timer, self.is_slow) = (None, false);
        }
        if heard.is_ready() {
            self.queue_end = None;
        }
        if heard.is_pending()
            && let Poll::Ready(why) = self.poll_silence(context)
        {
            return Poll::Ready(Err(why));
        }
        heard
    }

    /// Whether the application has been silent for [`SLOW_AFTER`] by now. The task is woken once
    /// it has been.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Ready when the application has been silent for too long, or when the time in the queue is
    /// over. The time of silence begins when a worker reads the request.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<FailureKind> {
        let first = self.silence.min(SLOW_AFTER);
        loop {
            let timer = self.timer.get_or_insert_with(|| Timer::after(first));
            let now = std::task::ready!(timer.poll(context));
            let queue_end = self.queue_end.take().map(|end| (end, self.is_in_queue()));
            let next = match queue_end {
                Some((end, true)) => {
                    self.queue_end = Some(end);
                    if now >= end {
                        return Poll::Ready(FailureKind::Late);
                    }
                    end.min(now + (self.silence / 8).max(LEAST_LOOK))
                }
                // The worker has begun since the last look, and may be silent from now on.
                Some(_) if self.is_slow => now + self.silence,
                _ if !self.is_slow && self.silence > first => now + (self.silence - first),
                _ => return Poll::Ready(FailureKind::Silent),
            };
            self.is_slow = true;
            let Some(timer) = &mut self.timer else { return Poll::Pending };
            timer.reset(next);
        }
    }

    /// Whether no worker has read from the connection: the kernel still has all that was sent.
    fn is_in_queue(&self) -> bool {
        self.socket.socket().unread().is_ok_and(|unread| unread >= self.written)
    }

    /// Sends as much as the connection takes. Says whether anything was sent.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<bool, FailureKind> {
        let mut has_sent = false;
        loop {
            if self.sent == self.out.len() && !self.poll_refill(context)? {
                return Ok(has_sent);
            }
            let rest = self.out.get(self.sent..).unwrap_or_default();
            let parts = [IoSlice::new(rest)];
            match self.socket.poll_write(context, |socket| socket.send(&parts, false)) {
                Poll::Ready(Ok(count)) => {
                    self.sent += count;
                    self.written = self.written.saturating_add(count);
                    has_sent = true;
                }
                // What the application has said before it hung up tells more.
                Poll::Ready(Err(_)) => {
                    self.body = None;
                    self.sent = self.out.len();
                    return Ok(has_sent);
                }
                Poll::Pending => return Ok(has_sent),
            }
        }
    }

    /// Encodes the next piece of the body; false while there is none.
    fn poll_refill(&mut self, context: &mut Context<'_>) -> Result<bool, FailureKind> {
        let Some(body) = &mut self.body else { return Ok(false) };
        match body.poll_piece(context).map_err(FailureKind::Unsent)? {
            Poll::Pending => return Ok(false),
            Poll::Ready(piece) => {
                self.out.clear();
                self.sent = 0;
                match (piece, &self.reader) {
                    (Some(bytes), Some(_)) => encode_content(&mut self.out, Stream::Stdin, &bytes),
                    (Some(bytes), None) => self.out.extend_from_slice(&bytes),
                    (None, reader) => {
                        if reader.is_some() {
                            self.out.extend_from_slice(&record_header(Stream::Stdin, 0));
                        }
                        self.body = None;
                    }
                }
            }
        }
        Ok(true)
    }

    /// Receives what the application says. The first bytes on a connection that ends with the
    /// request are only peeked at. An application that has answered waits for the end of the
    /// connection, as php-fpm does, and is woken when bytes leave the socket, since there is room
    /// to write again. A response that ends with its first bytes is left in the socket, so that its
    /// application is woken once, when the connection is closed.
    fn poll_hear(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, FailureKind>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(event);
            }
            let ended = BUFFERS.with_borrow_mut(|buffers| {
                let received = &mut buffers.received;
                let peeks = self.is_single && !self.has_heard && ARRIVES_AT_ONCE.get();
                let count = std::task::ready!(match peeks {
                    true => self.socket.poll_peek(context, received),
                    false => self.socket.poll_receive(context, received),
                });
                match count {
                    Ok(0) => Poll::Ready(Some(ErrorKind::UnexpectedEof.into())),
                    Err(error) => Poll::Ready(Some(error)),
                    Ok(count) => {
                        let is_first = !std::mem::replace(&mut self.has_heard, true);
                        let bytes = received.get_mut(..count).unwrap_or_default();
                        let Some(reader) = &mut self.reader else {
                            let piece = Bytes::copy_from_slice(bytes);
                            self.events.push_back(Ok(Event::Output(piece)));
                            return Poll::Ready(None);
                        };
                        let is_closed = &mut self.is_output_closed;
                        read_records(bytes, reader, is_closed, &mut self.events);
                        if is_first && self.is_single {
                            let is_whole = matches!(self.events.back(), Some(Ok(Event::End)));
                            ARRIVES_AT_ONCE.set(is_whole);
                            if peeks && !is_whole {
                                return Poll::Ready(self.take(bytes).err());
                            }
                        }
                        Poll::Ready(None)
                    }
                }
            });
            if let Some(error) = std::task::ready!(ended) {
                return Poll::Ready(self.at_end(error));
            }
        }
    }

    /// Takes the bytes from the socket that a peek has returned.
    fn take(&self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = self.socket.socket().receive(bytes)?;
            bytes = bytes.get_mut(count.max(1)..).unwrap_or_default();
        }
        Ok(())
    }

    /// What the end of the connection means.
    fn at_end(&self, error: io::Error) -> Result<Event, FailureKind> {
        let is_whole = match &self.reader {
            Some(reader) => self.is_output_closed && reader.is_between_records(),
            None => error.kind() == ErrorKind::UnexpectedEof,
        };
        if is_whole { Ok(Event::End) } else { Err(FailureKind::Ended(error)) }
    }
}

/// Appends a whole body and the end of its stream.
fn encode_body_end(out: &mut Vec<u8>, body: &[u8]) {
    if !body.is_empty() {
        encode_content(out, Stream::Stdin, body);
    }
    out.extend_from_slice(&record_header(Stream::Stdin, 0));
}

/// Appends the events of received bytes, up to the end of the response or the first error.
fn read_records(
    mut rest: &[u8],
    reader: &mut RecordReader,
    is_output_closed: &mut bool,
    events: &mut VecDeque<Result<Event, FailureKind>>,
) {
    while !rest.is_empty() {
        let record = match reader.read(rest) {
            Ok(record) => record,
            Err(fault) => return events.push_back(Err(FailureKind::Garbage(fault))),
        };
        let (event, used) = match record {
            Record::Partial => return,
            Record::Content { stream, skip, length } => {
                let end = skip + length;
                let content = Bytes::copy_from_slice(rest.get(skip..end).unwrap_or_default());
                let event = match stream {
                    Stream::Stdout => Some(Event::Output(content)),
                    Stream::Stderr => Some(Event::Complaint(content, !reader.is_in_content())),
                    Stream::Report => Some(Event::Report(content)),
                    Stream::Params | Stream::Stdin => None,
                };
                (event, end)
            }
            Record::Closed { stream, skip } => {
                *is_output_closed |= stream == Stream::Stdout;
                (None, skip)
            }
            Record::End { .. } => return events.push_back(Ok(Event::End)),
            Record::Other { kind, skip } => (Some(Event::Unknown(kind)), skip),
            Record::Begin { skip, .. } => (Some(Event::Unknown(1)), skip),
        };
        events.extend(event.map(Ok));
        rest = rest.get(used..).unwrap_or_default();
    }
}
