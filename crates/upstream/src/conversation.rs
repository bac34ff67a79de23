//! One FastCGI request on its connection: sends what is left of the request while it reads the
//! response, since an application may answer before it has read everything.

use crate::failure::FailureKind;
use crate::spool::SpoolReader;
use bytes::Bytes;
use evenkeel_proto::fastcgi::{Record, RecordReader, Stream, encode_content, record_header};
use evenkeel_sys::watch::WatchedSocket;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// The bytes that are received at a time.
const RECEIVED: usize = 32 << 10;

/// What an application says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A piece of its response.
    Output(Bytes),
    /// A piece of text for the error log.
    Complaint(Bytes),
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
    /// The rest of the request's body; none once its end is in `out`.
    body: Option<SpoolReader>,
    reader: RecordReader,
    received: Box<[u8]>,
    /// The part of `received` that was not read yet.
    unread: std::ops::Range<usize>,
    is_output_closed: bool,
    silence: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Conversation {
    /// Begins with records that were encoded already.
    pub(crate) fn new(
        socket: WatchedSocket,
        out: Vec<u8>,
        body: SpoolReader,
        silence: Duration,
    ) -> Self {
        Self {
            socket,
            out,
            sent: 0,
            body: Some(body),
            reader: RecordReader::new(),
            received: vec![0; RECEIVED].into(),
            unread: 0..0,
            is_output_closed: false,
            silence,
            timer: None,
        }
    }

    /// The next event. After [`Event::End`] and after an error there is none.
    pub(crate) fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Event, FailureKind>> {
        let has_sent = self.poll_send(context)?;
        let heard = self.poll_hear(context);
        if heard.is_ready() || has_sent {
            self.timer = None;
        }
        if heard.is_pending() {
            let silence = self.silence;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(silence)));
            if timer.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(FailureKind::Silent));
            }
        }
        heard
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
                match piece {
                    Some(bytes) => encode_content(&mut self.out, Stream::Stdin, &bytes),
                    None => {
                        self.out.extend_from_slice(&record_header(Stream::Stdin, 0));
                        self.body = None;
                    }
                }
            }
        }
        Ok(true)
    }

    fn poll_hear(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, FailureKind>> {
        loop {
            match self.read_record()? {
                Some(event) => return Poll::Ready(Ok(event)),
                None if self.unread.is_empty() => {}
                None => continue,
            }
            let received = &mut self.received;
            let count =
                std::task::ready!(self.socket.poll_read(context, |it| it.receive(received)));
            match count {
                Ok(0) => return Poll::Ready(self.at_end(ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.unread = 0..count,
                Err(error) => return Poll::Ready(self.at_end(error)),
            }
        }
    }

    /// What the end of the connection means.
    fn at_end(&self, error: io::Error) -> Result<Event, FailureKind> {
        match self.is_output_closed && self.reader.is_between_records() {
            true => Ok(Event::End),
            false => Err(FailureKind::Ended(error)),
        }
    }

    /// Reads a record from what was received.
    fn read_record(&mut self) -> Result<Option<Event>, FailureKind> {
        let rest = self.received.get(self.unread.clone()).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let record = self.reader.read(rest).map_err(FailureKind::Garbage)?;
        let (event, used) = match record {
            Record::Partial => (None, rest.len()),
            Record::Content { stream, skip, length } => {
                let end = skip + length;
                let content = Bytes::copy_from_slice(rest.get(skip..end).unwrap_or_default());
                let event = match stream {
                    Stream::Stdout => Some(Event::Output(content)),
                    Stream::Stderr => Some(Event::Complaint(content)),
                    Stream::Params | Stream::Stdin => None,
                };
                (event, end)
            }
            Record::Closed { stream, skip } => {
                self.is_output_closed |= stream == Stream::Stdout;
                (None, skip)
            }
            Record::End { skip, .. } => (Some(Event::End), skip),
            Record::Other { kind, skip } => (Some(Event::Unknown(kind)), skip),
            Record::Begin { skip, .. } => (Some(Event::Unknown(1)), skip),
        };
        self.unread.start += used;
        Ok(event)
    }
}
