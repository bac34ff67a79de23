//! Processes the client's frames: checks them and changes the states of streams and connection (RFC
//! 9113, sections 4 to 6).

use super::budget::{Expense, Flood};
use super::engine::{Ending, Engine, Event, LEAVING, Phase};
use super::frame::{
    self, ACK, END_HEADERS, END_STREAM, ErrorCode, FRAME_HEAD, FrameHead, HAS_PRIORITY,
    MOST_PAYLOAD, PADDED, PREFACE, kind, number,
};
use super::priority::Priority;
use super::request::{Flaw, HeadMaker, TrailerMaker};
use super::stream::{Receiving, ResetBy, Sending, closed};
use evenkeel_message::RequestHead;

/// The maximum number of CONTINUATION frames of a header block (CVE-2024-27316).
const MOST_CONTINUATIONS: u8 = 8;

/// The maximum size of the request heads of all open streams, as RFC 7541 counts bytes.
const MOST_HEADS: usize = 256 << 10;

/// The maximum number of priorities of streams that have not begun.
const MOST_EARLY: usize = 8;

/// The incomplete frame or header block at the end of the input.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// The received bytes of an incomplete frame other than DATA.
    partial: Vec<u8>,
    /// An incomplete DATA frame.
    data: Option<DataFrame>,
    /// An incomplete header block: CONTINUATION frames follow.
    block: Option<Block>,
}

/// The rest of a DATA frame.
#[derive(Clone, Copy, Debug)]
struct DataFrame {
    stream: u32,
    /// Whether the byte with the length of the padding was not received yet.
    is_padded: bool,
    left: usize,
    padding: usize,
    /// Whether the frame ends the body, and no event has said so yet.
    end: bool,
    /// Whether the data is discarded, because its stream was reset or is not served.
    is_ignored: bool,
}

/// A header block.
#[derive(Debug)]
struct Block {
    stream: u32,
    end: bool,
    fate: Fate,
    continuations: u8,
    /// The bytes that were received for it, frame heads included.
    wire_bytes: usize,
    bytes: Vec<u8>,
}

/// What a header block is for. Every block is decoded, because it may change the dynamic table.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Request,
    Trailers,
    Ignore,
    /// For nothing: the stream is reset with this code.
    Fault(ErrorCode, &'static str),
}

/// The result of processing a part of the input.
enum Step<'a> {
    /// The input may contain more frames.
    Next,
    /// More bytes are needed.
    Wait,
    Event(Event<'a>),
}

impl Incoming {
    pub(crate) fn has_partial(&self) -> bool {
        !self.partial.is_empty() || self.data.is_some() || self.block.is_some()
    }

    pub(crate) fn pack(&mut self) {
        self.partial.shrink_to_fit();
    }

    pub(crate) fn memory(&self) -> usize {
        self.partial.capacity() + self.block.as_ref().map_or(0, |block| block.bytes.capacity())
    }

    /// Moves bytes from `input` to the partial frame until it has `length` bytes. False if `input`
    /// has too few.
    fn fill(&mut self, input: &mut &[u8], length: usize) -> bool {
        let wanted = length.saturating_sub(self.partial.len()).min(input.len());
        let (now, rest) = input.split_at(wanted);
        self.partial.extend_from_slice(now);
        *input = rest;
        self.partial.len() >= length
    }
}

fn protocol(text: &'static str) -> Flood {
    (ErrorCode::ProtocolError, text)
}

fn frame_size(text: &'static str) -> Flood {
    (ErrorCode::FrameSizeError, text)
}

impl Engine {
    /// Processes `input` up to the next event.
    pub(super) fn advance<'a>(
        &mut self,
        input: &mut &'a [u8],
        head: &mut RequestHead,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Flood> {
        loop {
            let step = match (self.phase, self.incoming.data) {
                (Phase::Preface(taken), _) => self.take_preface(input, taken)?,
                (_, Some(data)) => self.take_data(input, data, out)?,
                (_, None) => self.take_frame(input, head, out)?,
            };
            match step {
                Step::Next => {}
                Step::Wait => return Ok(None),
                Step::Event(event) => return Ok(Some(event)),
            }
        }
    }

    /// Checks the client's preface (section 3.4).
    fn take_preface<'a>(&mut self, input: &mut &[u8], taken: usize) -> Result<Step<'a>, Flood> {
        let wanted = PREFACE.get(taken..).unwrap_or_default();
        let count = wanted.len().min(input.len());
        let (now, rest) = input.split_at(count);
        if wanted.get(..count) != Some(now) {
            return Err(protocol("an invalid connection preface"));
        }
        *input = rest;
        if count < wanted.len() {
            self.phase = Phase::Preface(taken + count);
            return Ok(Step::Wait);
        }
        self.phase = Phase::Settings;
        Ok(Step::Next)
    }

    /// Processes a frame once it is complete; of a DATA frame, its head.
    fn take_frame<'a>(
        &mut self,
        input: &mut &'a [u8],
        head: &mut RequestHead,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Flood> {
        let is_whole = self.incoming.partial.is_empty() && input.len() >= FRAME_HEAD;
        if !is_whole && !self.incoming.fill(input, FRAME_HEAD) {
            return Ok(Step::Wait);
        }
        let front = if is_whole { *input } else { &self.incoming.partial };
        let Some(frame) = FrameHead::parse(front) else { return Ok(Step::Wait) };
        self.check(&frame)?;
        if frame.kind == kind::DATA {
            match is_whole {
                true => *input = input.get(FRAME_HEAD..).unwrap_or_default(),
                false => self.incoming.partial.clear(),
            }
            return self.begin_data(&frame, out);
        }
        let length = FRAME_HEAD + frame.length;
        if is_whole && let Some((whole, rest)) = input.split_at_checked(length) {
            *input = rest;
            return self.act(&frame, whole.get(FRAME_HEAD..).unwrap_or_default(), head, out);
        }
        if !self.incoming.fill(input, length) {
            return Ok(Step::Wait);
        }
        let mut whole = std::mem::take(&mut self.incoming.partial);
        let step = self.act(&frame, whole.get(FRAME_HEAD..).unwrap_or_default(), head, out);
        whole.clear();
        self.incoming.partial = whole;
        step
    }

    /// Checks the head of a frame.
    fn check(&self, frame: &FrameHead) -> Result<(), Flood> {
        if frame.length > MOST_PAYLOAD {
            return Err(frame_size("a frame that is too long"));
        }
        if self.phase == Phase::Settings && (frame.kind != kind::SETTINGS || frame.has(ACK)) {
            return Err(protocol("the first frame is not SETTINGS"));
        }
        match &self.incoming.block {
            Some(block) if frame.kind != kind::CONTINUATION || frame.stream != block.stream => {
                return Err(protocol("a header block that is not continued"));
            }
            None if frame.kind == kind::CONTINUATION => {
                return Err(protocol("CONTINUATION without HEADERS"));
            }
            _ => {}
        }
        let is_of_stream = match frame.kind {
            kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM => true,
            kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE => false,
            kind::PUSH_PROMISE => return Err(protocol("PUSH_PROMISE from a client")),
            _ => return Ok(()),
        };
        if is_of_stream != (frame.stream != 0) {
            return Err(protocol("a frame whose type is not allowed on its stream"));
        }
        Ok(())
    }

    /// Processes a complete frame.
    fn act<'a>(
        &mut self,
        frame: &FrameHead,
        payload: &[u8],
        head: &mut RequestHead,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Flood> {
        match frame.kind {
            kind::HEADERS => return self.take_headers(frame, payload, head, out),
            kind::CONTINUATION => return self.take_continuation(frame, payload, head, out),
            kind::RST_STREAM => return self.take_reset(frame, payload, out),
            kind::WINDOW_UPDATE => return self.take_window_update(frame, payload, out),
            kind::SETTINGS => self.take_settings(frame, payload, out)?,
            kind::PING => self.take_ping(frame, payload, out)?,
            kind::GOAWAY => {
                if payload.len() < 8 {
                    return Err(frame_size("a GOAWAY that is too short"));
                }
                self.budget.take(Expense::Ignored)?;
                self.client_leaves = true;
            }
            kind::PRIORITY => {
                self.budget.take(Expense::Priority)?;
                if payload.len() != 5 {
                    return Err(frame_size("a PRIORITY of a wrong length"));
                }
                check_dependency(frame.stream, payload)?;
            }
            kind::PRIORITY_UPDATE => self.take_priority_update(payload)?,
            _ => self.budget.take(Expense::Ignored)?,
        }
        Ok(Step::Next)
    }

    fn take_settings(
        &mut self,
        frame: &FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Flood> {
        self.budget.take(Expense::Settings)?;
        if frame.has(ACK) {
            return match payload {
                [] => Ok(()),
                _ => Err(frame_size("a SETTINGS ACK with a payload")),
            };
        }
        if !payload.len().is_multiple_of(6) {
            return Err(frame_size("settings of a wrong length"));
        }
        let before = i64::from(self.peer.window);
        self.peer.read(payload)?;
        let change = i64::from(self.peer.window) - before;
        for stream in self.streams.iter_mut() {
            if !stream.send_window.open(change) {
                return Err((ErrorCode::FlowControlError, "a window that is too large"));
            }
        }
        frame::write_settings_ack(out);
        if self.phase == Phase::Settings {
            self.phase = Phase::Open;
        }
        Ok(())
    }

    fn take_ping(
        &mut self,
        frame: &FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Flood> {
        if payload.len() != 8 {
            return Err(frame_size("a PING of a wrong length"));
        }
        self.budget.take(Expense::Ping)?;
        match frame.has(ACK) {
            true if payload == LEAVING => self.tell_end(out),
            true => {}
            false => frame::write_ping(out, ACK, payload),
        }
        Ok(())
    }

    fn take_priority_update(&mut self, payload: &[u8]) -> Result<(), Flood> {
        self.budget.take(Expense::Priority)?;
        let Some((id, field)) = payload.split_first_chunk::<4>() else {
            return Err(frame_size("a PRIORITY_UPDATE that is too short"));
        };
        let id = u32::from_be_bytes(*id) & 0x7fff_ffff;
        if id.is_multiple_of(2) {
            return Err(protocol("PRIORITY_UPDATE for a stream that is not a client's"));
        }
        let mut priority = Priority::default();
        priority.read(field);
        if let Some(stream) = self.streams.find_mut(id) {
            stream.priority = priority;
            self.is_reprioritised = true;
        } else if id > self.last {
            self.early.retain(|(early, _)| *early != id);
            if self.early.len() < MOST_EARLY {
                self.early.push((id, priority));
            }
        }
        Ok(())
    }

    /// The client resets a stream.
    fn take_reset<'a>(
        &mut self,
        frame: &FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Flood> {
        let (Some(code), 4) = (number(payload), payload.len()) else {
            return Err(frame_size("an RST_STREAM of a wrong length"));
        };
        let id = frame.stream;
        if id > self.last || id.is_multiple_of(2) {
            return Err(protocol("an RST_STREAM for a stream that is idle"));
        }
        let Some(stream) = self.streams.find_mut(id).filter(|stream| stream.reset.is_none()) else {
            self.budget.take(Expense::Ignored)?;
            return Ok(Step::Next);
        };
        stream.reset = Some(ResetBy::Client);
        stream.is_ready = false;
        let unread = std::mem::take(&mut stream.unread);
        let is_unfinished = stream.sending != Sending::Ended;
        self.give_back(None, unread, out);
        self.budget.take(if is_unfinished { Expense::Reset } else { Expense::Ignored })?;
        Ok(Step::Event(Event::Reset { stream: id, code: ErrorCode::of(code), fault: None }))
    }

    fn take_window_update<'a>(
        &mut self,
        frame: &FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Flood> {
        let (Some(increment), 4) = (number(payload), payload.len()) else {
            return Err(frame_size("a WINDOW_UPDATE of a wrong length"));
        };
        let increment = i64::from(increment & 0x7fff_ffff);
        self.budget.take(Expense::WindowUpdate)?;
        let id = frame.stream;
        if id == 0 {
            if increment == 0 {
                return Err(protocol("a WINDOW_UPDATE of 0"));
            }
            if !self.send_window.open(increment) {
                return Err((ErrorCode::FlowControlError, "a window that is too large"));
            }
            return Ok(Step::Next);
        }
        if id > self.last || id.is_multiple_of(2) {
            return Err(protocol("a WINDOW_UPDATE for a stream that is idle"));
        }
        let Some(stream) = self.streams.find_mut(id).filter(|stream| stream.reset.is_none()) else {
            return Ok(Step::Next);
        };
        if increment == 0 {
            return self.fault(id, ErrorCode::ProtocolError, "a WINDOW_UPDATE of 0", out);
        }
        if !stream.send_window.open(increment) {
            let text = "a window that is too large";
            return self.fault(id, ErrorCode::FlowControlError, text, out);
        }
        Ok(Step::Next)
    }

    /// Resets an open stream because of a client error.
    fn fault<'a>(
        &mut self,
        id: u32,
        code: ErrorCode,
        text: &'static str,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Flood> {
        self.budget.note_fault(self.settings.max_stream_errors)?;
        self.reset(id, code, out);
        Ok(Step::Event(Event::Reset { stream: id, code, fault: Some(text) }))
    }

    /// Begins a DATA frame.
    fn begin_data<'a>(&mut self, frame: &FrameHead, out: &mut Vec<u8>) -> Result<Step<'a>, Flood> {
        let (id, length) = (frame.stream, frame.length);
        if frame.has(PADDED) && length == 0 {
            return Err(frame_size("padding without its length"));
        }
        if id.is_multiple_of(2) {
            return Err(protocol("DATA for a stream that is idle"));
        }
        let end = frame.has(END_STREAM);
        let is_beyond = matches!(self.ending, Ending::Told(last) if id > last);
        if id > self.last && !is_beyond {
            return Err(protocol("DATA for a stream that is idle"));
        }
        if !self.receive_window.receive(length) {
            return Err((ErrorCode::FlowControlError, "more DATA than the connection may have"));
        }
        let mut data = DataFrame {
            stream: id,
            is_padded: frame.has(PADDED),
            left: length,
            padding: 0,
            end,
            is_ignored: is_beyond,
        };
        let was_reset = self.streams.is_ignored(id);
        match self.streams.find_mut(id) {
            Some(stream) if stream.reset == Some(ResetBy::Client) => {
                return Err(closed("DATA after RST_STREAM"));
            }
            Some(stream) if stream.reset.is_some() => data.is_ignored = true,
            Some(stream) if stream.receiving == Receiving::Ended => {
                data.is_ignored = true;
                self.incoming.data = Some(data);
                return self.fault(id, ErrorCode::StreamClosed, "DATA after END_STREAM", out);
            }
            Some(stream) => {
                if !stream.receive_window.receive(length) {
                    data.is_ignored = true;
                    self.incoming.data = Some(data);
                    let text = "more DATA than the stream may have";
                    return self.fault(id, ErrorCode::FlowControlError, text, out);
                }
                if !end {
                    self.budget.note_data(length)?;
                }
            }
            None if is_beyond => {}
            None if was_reset => data.is_ignored = true,
            None => return Err(closed("DATA for a stream that is closed")),
        }
        if data.is_ignored {
            self.budget.take(Expense::Ignored)?;
        }
        self.incoming.data = Some(data);
        Ok(Step::Next)
    }

    /// Processes the received part of a DATA frame.
    fn take_data<'a>(
        &mut self,
        input: &mut &'a [u8],
        mut data: DataFrame,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Flood> {
        if data.is_padded {
            let Some((padding, rest)) = input.split_first() else { return Ok(Step::Wait) };
            *input = rest;
            let padding = usize::from(*padding);
            let left = data.left.checked_sub(padding + 1);
            let Some(left) = left else { return Err(protocol("more padding than there is DATA")) };
            (data.is_padded, data.left, data.padding) = (false, left, padding);
            // No handler reads the padding, so it counts as consumed at once.
            self.give_back(Some(data.stream), padding + 1, out);
        }
        if data.left > 0 || data.end {
            let count = data.left.min(input.len());
            if count == 0 && data.left > 0 {
                self.incoming.data = Some(data);
                return Ok(Step::Wait);
            }
            let (bytes, rest) = input.split_at(count);
            *input = rest;
            data.left -= count;
            let end = data.end && data.left == 0;
            data.end &= !end;
            self.incoming.data = Some(data);
            return self.deliver(data, bytes, end, out);
        }
        let count = data.padding.min(input.len());
        *input = input.get(count..).unwrap_or_default();
        data.padding -= count;
        self.incoming.data = (data.padding > 0).then_some(data);
        Ok(if data.padding > 0 { Step::Wait } else { Step::Next })
    }

    /// Delivers data to its stream.
    fn deliver<'a>(
        &mut self,
        data: DataFrame,
        bytes: &'a [u8],
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Flood> {
        let id = data.stream;
        let stream = self.streams.find_mut(id).filter(|stream| stream.reset.is_none());
        let Some(stream) = stream.filter(|_| !data.is_ignored) else {
            self.give_back(None, bytes.len(), out);
            return Ok(Step::Next);
        };
        stream.unread += bytes.len();
        let is_right = stream.count(bytes.len(), end);
        if end {
            stream.receiving = Receiving::Ended;
        }
        if !is_right {
            let text = "DATA that does not match content-length";
            return self.fault(id, ErrorCode::ProtocolError, text, out);
        }
        Ok(Step::Event(Event::Data { stream: id, bytes, end }))
    }

    fn take_headers<'a>(
        &mut self,
        frame: &FrameHead,
        payload: &[u8],
        head: &mut RequestHead,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Flood> {
        let id = frame.stream;
        let mut fragment = payload;
        if frame.has(PADDED) {
            let (padding, rest) = fragment.split_first().ok_or(frame_size("no padding length"))?;
            let length = rest.len().checked_sub(usize::from(*padding));
            let length = length.ok_or(protocol("more padding than there are fields"))?;
            fragment = rest.get(..length).unwrap_or_default();
        }
        if frame.has(HAS_PRIORITY) {
            check_dependency(id, fragment)?;
            fragment = fragment.get(5..).ok_or(frame_size("no priority"))?;
        }
        let block = Block {
            stream: id,
            end: frame.has(END_STREAM),
            fate: self.fate(frame)?,
            continuations: 0,
            wire_bytes: FRAME_HEAD + payload.len(),
            bytes: Vec::new(),
        };
        if frame.has(END_HEADERS) {
            return self.end_block(&block, fragment, head, out);
        }
        self.incoming.block = Some(Block { bytes: fragment.to_vec(), ..block });
        Ok(Step::Next)
    }

    /// Decides what a header block is for, by the state of its stream (section 5.1).
    fn fate(&mut self, frame: &FrameHead) -> Result<Fate, Flood> {
        let id = frame.stream;
        if id.is_multiple_of(2) {
            return Err(protocol("a client's stream with an even number"));
        }
        if matches!(self.ending, Ending::Told(last) if id > last) {
            return Ok(Fate::Ignore);
        }
        if id > self.last {
            self.last = id;
            return Ok(Fate::Request);
        }
        match self.streams.find(id) {
            Some(stream) if stream.reset == Some(ResetBy::Client) => {
                Err(closed("HEADERS after RST_STREAM"))
            }
            Some(stream) if stream.reset.is_some() => Ok(Fate::Ignore),
            Some(stream) if stream.receiving == Receiving::Ended => {
                Ok(Fate::Fault(ErrorCode::StreamClosed, "HEADERS after END_STREAM"))
            }
            Some(_) if !frame.has(END_STREAM) => {
                Ok(Fate::Fault(ErrorCode::ProtocolError, "trailers that do not end the request"))
            }
            Some(_) => Ok(Fate::Trailers),
            None if self.streams.is_ignored(id) => Ok(Fate::Ignore),
            None if self.streams.has_ended(id) => {
                Err(closed("HEADERS for a stream that is closed"))
            }
            None => Err(protocol("a stream number that is lower than an earlier one")),
        }
    }

    fn take_continuation<'a>(
        &mut self,
        frame: &FrameHead,
        payload: &[u8],
        head: &mut RequestHead,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Flood> {
        let Some(mut block) = self.incoming.block.take() else {
            return Err(protocol("CONTINUATION without HEADERS"));
        };
        block.continuations += 1;
        block.wire_bytes += FRAME_HEAD + payload.len();
        let is_last = frame.has(END_HEADERS);
        let is_flood = block.continuations > MOST_CONTINUATIONS
            || (payload.is_empty() && !is_last)
            || block.bytes.len() + payload.len() > 2 * self.settings.header_list;
        if is_flood {
            return Err((ErrorCode::EnhanceYourCalm, "too many CONTINUATION frames"));
        }
        block.bytes.extend_from_slice(payload);
        if is_last {
            let bytes = std::mem::take(&mut block.bytes);
            return self.end_block(&block, &bytes, head, out);
        }
        self.incoming.block = Some(block);
        Ok(Step::Next)
    }

    /// Decodes a complete header block.
    fn end_block<'a>(
        &mut self,
        block: &Block,
        bytes: &[u8],
        head: &mut RequestHead,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Flood> {
        match block.fate {
            Fate::Request => self.begin_request(block, bytes, head, out),
            Fate::Trailers => {
                let mut maker = TrailerMaker::new(&self.settings);
                let mut is_bounded = true;
                let decoded = self.decoder.decode_known(bytes, |known, name, value| {
                    is_bounded = maker.take(known, name, value);
                    is_bounded
                });
                decoded.map_err(|_| undecoded(is_bounded))?;
                let fields = maker.finish();
                let Some(stream) = self.streams.find_mut(block.stream) else {
                    return Ok(Step::Next);
                };
                stream.receiving = Receiving::Ended;
                let is_right = stream.count(0, true);
                match fields {
                    Ok(fields) if is_right => {
                        Ok(Step::Event(Event::Trailers { stream: block.stream, fields }))
                    }
                    fields => {
                        let text =
                            fields.err().unwrap_or("DATA that does not match content-length");
                        self.fault(block.stream, ErrorCode::ProtocolError, text, out)
                    }
                }
            }
            Fate::Ignore | Fate::Fault(..) => {
                let (mut size, most) = (0_usize, self.settings.header_list * 4);
                let decoded = self.decoder.decode(bytes, |name, value| {
                    size += name.len() + value.len() + 32;
                    size <= most
                });
                decoded.map_err(|_| undecoded(size <= most))?;
                match block.fate {
                    Fate::Fault(code, text) => self.fault(block.stream, code, text, out),
                    _ => self.budget.take(Expense::Ignored).map(|()| Step::Next),
                }
            }
        }
    }

    fn begin_request<'a>(
        &mut self,
        block: &Block,
        bytes: &[u8],
        head: &mut RequestHead,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Flood> {
        let id = block.stream;
        let mut maker = HeadMaker::new(head, &mut self.scratch, &self.settings);
        let mut is_bounded = true;
        let decoded = self.decoder.decode_known(bytes, |known, name, value| {
            is_bounded = maker.take(known, name, value);
            is_bounded
        });
        decoded.map_err(|_| undecoded(is_bounded))?;
        let made = match maker.finish(block.end) {
            Ok(made) => made,
            Err(flaw) => return self.malformed(id, flaw, out),
        };
        head.wire_bytes = block.wire_bytes;
        let is_full = self.streams.len() >= self.settings.max_streams as usize;
        if is_full || self.streams.head_bytes() + made.size > MOST_HEADS {
            self.budget.take(Expense::Reset)?;
            frame::write_reset(out, id, ErrorCode::RefusedStream);
            self.streams.ignore(id);
            return Ok(Step::Next);
        }
        let mut priority = made.priority;
        if let Some(at) = self.early.iter().position(|(early, _)| *early == id) {
            priority = self.early.swap_remove(at).1;
        }
        self.early.retain(|(early, _)| *early > id);
        self.begin_stream(id, block.end, made.length, priority, made.size);
        let refusal = made.refusal.map(Box::new);
        Ok(Step::Event(Event::Head { stream: id, refusal }))
    }

    /// Resets a stream whose head is malformed.
    fn malformed<'a>(
        &mut self,
        id: u32,
        fault: Flaw,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Flood> {
        self.budget.note_fault(self.settings.max_stream_errors)?;
        frame::write_reset(out, id, ErrorCode::ProtocolError);
        self.streams.ignore(id);
        Ok(Step::Event(Event::Malformed { stream: id, fault }))
    }
}

/// The connection error for a block that was not decoded completely.
fn undecoded(is_bounded: bool) -> Flood {
    match is_bounded {
        true => (ErrorCode::CompressionError, "a header block that cannot be decoded"),
        false => (ErrorCode::EnhanceYourCalm, "a header block that is far too large"),
    }
}

/// Checks that a stream does not depend on itself (RFC 7540, section 5.3.1). Its dependency is
/// otherwise ignored.
fn check_dependency(id: u32, payload: &[u8]) -> Result<(), Flood> {
    match number(payload).map(|dependency| dependency & 0x7fff_ffff) {
        Some(dependency) if dependency == id => Err(protocol("a stream that depends on itself")),
        _ => Ok(()),
    }
}
