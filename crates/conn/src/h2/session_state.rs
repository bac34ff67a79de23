//! State that the session of an HTTP/2 connection shares with its streams: the engine, the buffer
//! of unsent frames, and an inbox for each stream. The session puts received body data and resets
//! into the inbox, and the stream's future takes them out.

use crate::transport::Channel;
use bytes::Bytes;
use evenkeel_message::{Fields, Status};
use evenkeel_proto::h2::{Engine, ErrorCode};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::task::{Context, Waker};

/// DATA frames are collected up to this many bytes and sent with one system call.
pub(crate) const MOST_UNSENT: usize = 64 << 10;

/// What the session has received for a stream.
#[derive(Default)]
pub(crate) struct StreamInbox {
    stream: u32,
    /// Received parts of the request body that the handler has not read yet.
    pub(crate) data: VecDeque<Bytes>,
    /// Whether the whole body was received.
    pub(crate) has_ended: bool,
    pub(crate) trailers: Fields,
    /// Whether the stream was reset: nothing is received or sent on it any more.
    pub(crate) is_reset: bool,
    /// What is wrong with the body.
    pub(crate) fault: Option<&'static str>,
    /// The task that waits for the body or for a reset.
    reader: Option<Waker>,
    /// The task that waits until the stream may send.
    writer: Option<Waker>,
}

impl StreamInbox {
    /// Registers a task to be woken when something is put into the inbox.
    pub(crate) fn wait(&mut self, context: &Context<'_>) {
        self.reader = Some(context.waker().clone());
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

/// The state of a connection.
pub(crate) struct Shared {
    pub(crate) engine: Box<Engine>,
    /// Frames that wait to be sent, from `sent` on.
    pub(crate) out: Vec<u8>,
    sent: usize,
    inboxes: Vec<StreamInbox>,
    /// Whether the connection is broken, or its client has left.
    pub(crate) is_gone: bool,
    /// The number of bytes of frames that the transport has taken in total.
    pub(crate) total_sent: u64,
}

/// The state that a session and its streams share.
pub(crate) type State = Rc<RefCell<Shared>>;

impl Shared {
    pub(crate) fn new(engine: Box<Engine>, out: Vec<u8>) -> State {
        Rc::new(RefCell::new(Self {
            engine,
            out,
            sent: 0,
            inboxes: Vec::new(),
            is_gone: false,
            total_sent: 0,
        }))
    }

    /// Opens an inbox for a stream, unless it has one. A stream whose request has no body and is
    /// answered at once needs none.
    pub(crate) fn open(&mut self, stream: u32) {
        if self.inbox(stream).is_none() {
            self.inboxes.push(StreamInbox { stream, ..StreamInbox::default() });
        }
    }

    /// The inbox of a stream.
    pub(crate) fn inbox(&mut self, stream: u32) -> Option<&mut StreamInbox> {
        self.inboxes.iter_mut().find(|inbox| inbox.stream == stream)
    }

    /// Puts something into the inbox of a stream and wakes the stream's future.
    pub(crate) fn deliver(&mut self, stream: u32, act: impl FnOnce(&mut StreamInbox)) {
        if let Some(inbox) = self.inbox(stream) {
            act(inbox);
            inbox.wake();
        }
    }

    /// Removes a stream whose request has ended, with its inbox.
    pub(crate) fn close(&mut self, stream: u32) {
        self.inboxes.retain(|inbox| inbox.stream != stream);
        let Self { engine, out, .. } = self;
        engine.release(stream, out);
    }

    /// Resets a stream that cannot be completed.
    pub(crate) fn reset(&mut self, stream: u32, code: ErrorCode) {
        let Self { engine, out, .. } = self;
        engine.reset(stream, code, out);
    }

    /// Appends interim responses. `heads` are their heads in the format of HTTP/1.1.
    pub(crate) fn inform(&mut self, stream: u32, heads: &[u8]) {
        let mut lines = heads.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        while let Some(line) = lines.next() {
            let mut fields = Fields::new();
            for field in lines.by_ref().take_while(|line| !line.is_empty()) {
                let mut parts = field.splitn(2, |byte| *byte == b':');
                if let (Some(name), Some(value)) = (parts.next(), parts.next()) {
                    fields.add(name, value.trim_ascii());
                }
            }
            let code = line.get(9..12).and_then(|code| std::str::from_utf8(code).ok());
            let status = code.and_then(|code| code.parse().ok()).and_then(Status::new);
            if let Some(status) = status.filter(|status| status.is_informational()) {
                let Self { engine, out, .. } = self;
                engine.inform(stream, status, &fields, out);
            }
        }
    }

    /// Marks the connection as broken and wakes all streams.
    pub(crate) fn leave(&mut self) {
        self.is_gone = true;
        self.inboxes.iter_mut().for_each(StreamInbox::wake);
    }

    /// Whether a stream has been reset, or its connection is broken.
    pub(crate) fn is_over(&self, stream: u32) -> bool {
        self.is_gone || !self.engine.is_open(stream)
    }

    /// The number of received and unread body bytes of all streams.
    pub(crate) fn unread(&self) -> u64 {
        self.inboxes.iter().flat_map(|inbox| &inbox.data).map(|bytes| bytes.len() as u64).sum()
    }

    /// The number of bytes in the buffer of unsent frames.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// How many bytes a stream may send in one frame now: 0 while another stream sends first, or
    /// while the buffer of unsent frames is full.
    pub(crate) fn writable(&mut self, stream: u32) -> usize {
        self.engine.set_ready(stream, true);
        match self.engine.next_writer() {
            Some((next, count)) if next == stream && self.unsent() < MOST_UNSENT => count,
            _ => 0,
        }
    }

    /// Registers a task to be woken when the stream may send.
    pub(crate) fn wait_to_send(&mut self, stream: u32, context: &Context<'_>) {
        if let Some(inbox) = self.inbox(stream) {
            inbox.writer = Some(context.waker().clone());
        }
    }

    /// Wakes the stream that sends next, if the buffer of unsent frames has room.
    pub(crate) fn wake_writer(&mut self) {
        if self.unsent() >= MOST_UNSENT {
            return;
        }
        if let Some((next, _)) = self.engine.next_writer()
            && let Some(writer) = self.inbox(next).and_then(|inbox| inbox.writer.take())
        {
            writer.wake();
        }
    }

    /// Sends the unsent frames. `WouldBlock` if the socket buffer is full.
    pub(crate) fn send(&mut self, channel: &mut Channel<'_>) -> io::Result<()> {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let count = channel.send(&[IoSlice::new(rest)], false)?;
            if count == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            self.sent += count;
            self.total_sent += count as u64;
        }
        self.out.clear();
        self.sent = 0;
        channel.flush()
    }
}
