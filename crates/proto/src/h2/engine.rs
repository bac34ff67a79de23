//! The engine of a connection: its state, its start and its shutdown. `incoming.rs` processes the
//! client's frames, `outgoing.rs` writes the server's.

use super::budget::{Budget, Flood};
use super::flow::{self, ReceiveWindow, SendWindow};
use super::frame::{self, ErrorCode};
use super::hpack::Decoder;
use super::incoming::Incoming;
use super::priority::Priority;
use super::request::Scratch;
use super::settings::{EngineSettings, PeerSettings};
use super::stream::{Receiving, Sending, Stream, Streams};
use crate::Refusal;
use evenkeel_message::{Fields, RequestHead};

/// How long the server waits for the answer to its first GOAWAY, in milliseconds, before it sends
/// the second one, which names the last stream that it serves.
const ANNOUNCED_MS: u64 = 1_000;

/// The payload of the PING that follows the first GOAWAY.
pub(crate) const LEAVING: &[u8; 8] = b"evenkeel";

/// What the client's frames mean for the caller.
#[derive(Debug)]
pub enum Event<'a> {
    /// A request has begun. Its head is in the [`RequestHead`] that the caller has passed.
    Head {
        /// Its stream.
        stream: u32,
        /// Why it is refused.
        refusal: Option<Box<Refusal>>,
    },
    /// A part of the body of a request.
    Data {
        /// Its stream.
        stream: u32,
        /// The part, which may be empty.
        bytes: &'a [u8],
        /// Whether it is the last one, and no trailers follow.
        end: bool,
    },
    /// The trailers of a request, which end it.
    Trailers {
        /// Its stream.
        stream: u32,
        /// The fields.
        fields: Fields,
    },
    /// The stream was reset: nothing more is received or sent on it. The caller releases it when
    /// the request has ended.
    Reset {
        /// The stream.
        stream: u32,
        /// Why.
        code: ErrorCode,
        /// The text for the error log if the server has reset the stream because of a client error.
        fault: Option<&'static str>,
    },
    /// A malformed request was reset. The caller does not serve it.
    Malformed {
        /// Its stream.
        stream: u32,
        /// The text for the error log.
        fault: &'static str,
    },
    /// The connection has failed. The caller sends what is in the buffer and receives no more.
    Failed(Fault),
}

/// Why a connection has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The code in GOAWAY.
    pub code: ErrorCode,
    /// The text for the error log.
    pub text: &'static str,
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// So many bytes of the preface were received.
    Preface(usize),
    /// The client's first frame must be SETTINGS.
    Settings,
    Open,
    Failed,
}

/// The phase of the graceful shutdown of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Not,
    /// The first GOAWAY, which asks the client to begin no more streams, was sent at this time in
    /// milliseconds.
    Announced(u64),
    /// The second GOAWAY was sent: streams above this number are not served.
    Told(u32),
}

/// A connection of HTTP/2 on the server's side.
#[derive(Debug)]
pub struct Engine {
    pub(super) settings: EngineSettings,
    pub(super) decoder: Decoder,
    pub(super) incoming: Incoming,
    pub(super) streams: Streams,
    /// The highest stream number that the client has used.
    pub(super) last: u32,
    pub(super) send_window: SendWindow,
    pub(super) receive_window: ReceiveWindow,
    pub(super) peer: PeerSettings,
    pub(super) phase: Phase,
    pub(super) ending: Ending,
    pub(super) budget: Budget,
    pub(super) scratch: Scratch,
    /// Priorities of streams that have not begun yet.
    pub(super) early: Vec<(u32, Priority)>,
    /// Whether the client has sent GOAWAY: it begins no more streams.
    pub(super) client_leaves: bool,
    /// The number of DATA frames sent, for the round robin of incremental streams.
    pub(super) turn: u32,
    /// Whether the priority of an open stream has changed since it was last asked for.
    pub(super) is_reprioritised: bool,
}

impl Engine {
    /// The engine of a new connection, at a time in milliseconds. Appends the server's preface.
    #[must_use]
    pub fn new(settings: EngineSettings, now_ms: u64, out: &mut Vec<u8>) -> Self {
        frame::write_settings(out, &settings.told());
        let more = settings.connection_window.saturating_sub(flow::INITIAL);
        if more > 0 {
            frame::write_window_update(out, 0, more);
        }
        Self {
            decoder: Decoder::new(),
            incoming: Incoming::default(),
            streams: Streams::default(),
            last: 0,
            send_window: SendWindow(i64::from(flow::INITIAL)),
            receive_window: ReceiveWindow::new(settings.connection_window.max(flow::INITIAL)),
            peer: PeerSettings::default(),
            phase: Phase::Preface(0),
            ending: Ending::Not,
            budget: Budget::new(now_ms),
            scratch: Scratch::default(),
            early: Vec::new(),
            client_leaves: false,
            turn: 0,
            is_reprioritised: false,
            settings,
        }
    }

    /// Begins stream 1 for a request of HTTP/1.1 that asks for an upgrade to HTTP/2 and has no
    /// body. `payload` is the payload of SETTINGS in its field HTTP2-Settings (RFC 7540, section
    /// 3.2).
    ///
    /// # Errors
    /// The settings are malformed.
    pub fn upgrade(&mut self, head: &RequestHead, payload: &[u8]) -> Result<(), Fault> {
        let has_sixes = payload.len().is_multiple_of(6);
        let fault = |(code, text)| Fault { code, text };
        let odd = fault((ErrorCode::FrameSizeError, "settings of a wrong length"));
        has_sixes.then_some(()).ok_or(odd)?;
        self.peer.read(payload).map_err(fault)?;
        self.last = 1;
        let mut priority = Priority::default();
        priority.read(head.fields.first("Priority").unwrap_or_default());
        self.begin_stream(1, true, None, priority, 0);
        Ok(())
    }

    /// Adds a stream whose request head was received.
    pub(super) fn begin_stream(
        &mut self,
        id: u32,
        end: bool,
        length: Option<u64>,
        priority: Priority,
        head_bytes: usize,
    ) {
        self.streams.push(Stream {
            id,
            receiving: if end { Receiving::Ended } else { Receiving::Open },
            sending: Sending::Head,
            reset: None,
            send_window: SendWindow(i64::from(self.peer.window)),
            receive_window: ReceiveWindow::new(self.settings.window),
            unread: 0,
            length_left: length,
            priority,
            is_ready: false,
            turns: self.turn,
            head_bytes,
        });
    }

    /// Processes `input` up to the next event. `head` receives the head of a request that begins.
    /// The caller repeats the call until it returns no event; all of `input` is processed then.
    /// Frames that answer the client are appended to `out`.
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        now_ms: u64,
        head: &mut RequestHead,
        out: &mut Vec<u8>,
    ) -> Option<Event<'a>> {
        if self.phase == Phase::Failed {
            *input = &[];
            return None;
        }
        self.budget.pass(now_ms);
        match self.advance(input, head, out) {
            Ok(event) => event,
            Err((code, text)) => {
                self.fail((code, text), out);
                Some(Event::Failed(Fault { code, text }))
            }
        }
    }

    /// Ends the connection because of a client error.
    fn fail(&mut self, (code, text): Flood, out: &mut Vec<u8>) {
        frame::write_goaway(out, self.last, code, text);
        self.phase = Phase::Failed;
    }

    /// Ends the connection at once. No further input is read.
    pub fn close(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        if self.phase != Phase::Failed {
            frame::write_goaway(out, self.last, code, "");
            self.phase = Phase::Failed;
        }
    }

    /// Begins a graceful shutdown: asks the client to begin no more streams. The streams that it
    /// has begun are served (RFC 9113, section 6.8).
    pub fn shut_down(&mut self, now_ms: u64, out: &mut Vec<u8>) {
        if self.ending == Ending::Not && self.phase != Phase::Failed {
            frame::write_goaway(out, 0x7fff_ffff, ErrorCode::NoError, "");
            frame::write_ping(out, 0, LEAVING);
            self.ending = Ending::Announced(now_ms);
        }
    }

    /// Sends the second GOAWAY if the client has not answered the first one in time. Returns after
    /// how many milliseconds the caller calls this function again.
    pub fn tick(&mut self, now_ms: u64, out: &mut Vec<u8>) -> Option<u64> {
        let Ending::Announced(since_ms) = self.ending else { return None };
        let left_ms = (since_ms + ANNOUNCED_MS).saturating_sub(now_ms);
        if left_ms > 0 {
            return Some(left_ms);
        }
        self.tell_end(out);
        None
    }

    /// Sends the second GOAWAY: streams after the last one are not served.
    pub(super) fn tell_end(&mut self, out: &mut Vec<u8>) {
        if let Ending::Announced(_) = self.ending {
            frame::write_goaway(out, self.last, ErrorCode::NoError, "");
            self.ending = Ending::Told(self.last);
        }
    }

    /// Whether the connection has ended: it has failed, or no stream is open and none may begin.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let begins_none = self.client_leaves || matches!(self.ending, Ending::Told(_));
        self.phase == Phase::Failed || (begins_none && self.streams.is_empty())
    }

    /// Whether the connection has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.phase == Phase::Failed
    }

    /// Whether no stream is open.
    #[must_use]
    pub fn has_no_streams(&self) -> bool {
        self.streams.is_empty()
    }

    /// The number of streams that are open.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Whether an incomplete frame or header block was received.
    #[must_use]
    pub fn has_partial(&self) -> bool {
        self.incoming.has_partial() || matches!(self.phase, Phase::Preface(1..))
    }

    /// Whether a stream has begun on the connection.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.last > 0
    }

    /// Frees the memory that an idle connection does not need.
    pub fn pack(&mut self) {
        self.decoder.pack();
        self.incoming.pack();
        self.streams.pack();
        self.scratch = Scratch::default();
        self.early.shrink_to_fit();
    }

    /// The memory of the engine in bytes, used or not, without that of its streams.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.decoder.memory() + self.incoming.memory()
    }
}
