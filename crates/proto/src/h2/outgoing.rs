//! Writes the frames of responses, and decides which stream sends next (RFC 9218).

use super::engine::Engine;
use super::flow;
use super::frame::{self, END_HEADERS, END_STREAM, ErrorCode, FRAME_HEAD, FrameHead, kind};
use super::hpack::{Encoder, FieldMemo};
use super::response::{Frames, encode_fields, encode_response};
use super::stream::{Receiving, ResetBy, Sending};
use evenkeel_message::{Fields, Name, Response, Status};
use std::cell::RefCell;

impl Engine {
    /// Whether frames may be sent on a stream: it is open and was not reset.
    #[must_use]
    pub fn is_open(&self, stream: u32) -> bool {
        let stream = self.streams.find(stream);
        stream.is_some_and(|stream| stream.reset.is_none() && stream.sending != Sending::Ended)
    }

    /// Appends the head of a response. `end` means that there is no body. False if the stream was
    /// reset.
    pub fn respond(
        &mut self,
        stream: u32,
        response: &Response,
        frames: &Frames<'_>,
        end: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        if !self.is_open(stream) {
            return false;
        }
        if let Some(found) = self.streams.find_mut(stream) {
            found.sending = Sending::Body;
            if let Some(priority) = response.fields.first(Name::Priority) {
                found.priority.read(priority);
            }
        }
        let write = |encoder: &mut Encoder<'_>| encode_response(encoder, response, frames);
        self.write_block(stream, end, out, frames.memo, write);
        true
    }

    /// Appends the head of an interim response (RFC 9110, section 15.2).
    pub fn inform(&mut self, stream: u32, status: Status, fields: &Fields, out: &mut Vec<u8>) {
        if self.streams.find(stream).is_some_and(|found| found.sending == Sending::Head)
            && self.is_open(stream)
        {
            self.write_block(stream, false, out, None, |encoder| {
                encoder.status(status);
                encode_fields(encoder, fields);
            });
        }
    }

    /// Appends the trailers of a response, which end it.
    pub fn trailers(&mut self, stream: u32, fields: &Fields, out: &mut Vec<u8>) {
        if self.is_open(stream) {
            self.write_block(stream, true, out, None, |encoder| encode_fields(encoder, fields));
        }
    }

    /// Appends a header block as HEADERS and CONTINUATION frames.
    fn write_block(
        &mut self,
        stream: u32,
        end: bool,
        out: &mut Vec<u8>,
        memo: Option<&RefCell<FieldMemo>>,
        write: impl FnOnce(&mut Encoder<'_>),
    ) {
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEAD]);
        let mut encoder = Encoder::with_memo(out, memo);
        if std::mem::take(&mut self.peer.owes_table_size) {
            encoder.drop_table();
        }
        write(&mut encoder);
        let block = out.get(start + FRAME_HEAD..).unwrap_or_default();
        let end_stream = if end { END_STREAM } else { 0 };
        if block.len() > self.settings.header_block {
            out.truncate(start);
            return self.reset(stream, ErrorCode::InternalError, out);
        }
        if block.len() <= self.peer.frame_size {
            let flags = END_HEADERS | end_stream;
            let head = FrameHead { length: block.len(), kind: kind::HEADERS, flags, stream };
            head.write_at(out, start);
        } else {
            let block = block.to_vec();
            out.truncate(start);
            let mut parts = block.chunks(self.peer.frame_size).peekable();
            let (mut kind, mut flags) = (kind::HEADERS, end_stream);
            while let Some(part) = parts.next() {
                if parts.peek().is_none() {
                    flags |= END_HEADERS;
                }
                FrameHead { length: part.len(), kind, flags, stream }.write(out);
                out.extend_from_slice(part);
                (kind, flags) = (kind::CONTINUATION, 0);
            }
        }
        if end {
            self.end_sending(stream);
        }
    }

    /// The maximum length of the next DATA frame of a stream.
    #[must_use]
    pub fn writable(&self, stream: u32) -> usize {
        let Some(stream) = self.streams.find(stream).filter(|stream| stream.reset.is_none()) else {
            return 0;
        };
        let windows = stream.send_window.left().min(self.send_window.left());
        windows.min(self.settings.data_frame).min(self.peer.frame_size)
    }

    /// Appends the head of a DATA frame. The caller appends `length` bytes after it, at most
    /// [`Engine::writable`].
    pub fn data(&mut self, stream: u32, length: usize, end: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEAD]);
        self.data_at(stream, length, end, out, start);
    }

    /// Writes the head of a DATA frame over the [`FRAME_HEAD`] bytes that the caller has reserved
    /// at `start`, in front of `length` bytes of data.
    pub fn data_at(&mut self, stream: u32, length: usize, end: bool, out: &mut [u8], start: usize) {
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        if let Some(found) = self.streams.find_mut(stream) {
            found.send_window.take(length);
            found.turns = turn;
        }
        self.send_window.take(length);
        let flags = if end { END_STREAM } else { 0 };
        FrameHead { length, kind: kind::DATA, flags, stream }.write_at(out, start);
        self.budget.note_data_sent();
        if end {
            self.end_sending(stream);
        }
    }

    fn end_sending(&mut self, stream: u32) {
        if let Some(found) = self.streams.find_mut(stream) {
            (found.sending, found.is_ready) = (Sending::Ended, false);
            self.budget.note_response();
        }
    }

    /// Sets whether a stream has data to send.
    pub fn set_ready(&mut self, stream: u32, is_ready: bool) {
        if let Some(found) = self.streams.find_mut(stream) {
            found.is_ready = is_ready && found.reset.is_none();
        }
    }

    /// The stream that sends next, and how many bytes. Within an urgency, each non-incremental
    /// stream sends its whole body before the next one begins; incremental streams follow in round
    /// robin (RFC 9218, section 10).
    #[must_use]
    pub fn next_writer(&self) -> Option<(u32, usize)> {
        if self.send_window.left() == 0 {
            return None;
        }
        let ready = self.streams.iter().filter(|stream| {
            stream.is_ready && stream.reset.is_none() && stream.send_window.left() > 0
        });
        let next = ready.min_by_key(|stream| {
            let priority = stream.priority;
            let turns = if priority.incremental { stream.turns } else { 0 };
            (priority.urgency, priority.incremental, turns, stream.id)
        })?;
        Some((next.id, self.writable(next.id)))
    }

    /// The urgency of a stream, from 0 to 7.
    #[must_use]
    pub fn urgency(&self, stream: u32) -> u8 {
        self.streams.find(stream).map_or(7, |stream| stream.priority.urgency)
    }

    /// Whether the client has changed the priority of an open stream since the last call.
    pub fn take_reprioritised(&mut self) -> bool {
        std::mem::take(&mut self.is_reprioritised)
    }

    /// Resets a stream. Frames that the client sends before it knows are ignored.
    pub fn reset(&mut self, stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
        let Some(found) = self.streams.find_mut(stream).filter(|found| found.reset.is_none())
        else {
            return;
        };
        found.reset = Some(ResetBy::Us);
        found.is_ready = false;
        let unread = std::mem::take(&mut found.unread);
        self.give_back(None, unread, out);
        frame::write_reset(out, stream, code);
    }

    /// Counts bytes of a request body that its handler has read.
    pub fn used(&mut self, stream: u32, length: usize, out: &mut Vec<u8>) {
        if let Some(found) = self.streams.find_mut(stream) {
            let length = length.min(found.unread);
            found.unread -= length;
            self.give_back(Some(stream), length, out);
        }
    }

    /// Counts bytes as consumed in the window of the connection, and in the window of a stream
    /// whose body continues. Appends the WINDOW_UPDATE frames that are due.
    pub(super) fn give_back(&mut self, stream: Option<u32>, length: usize, out: &mut Vec<u8>) {
        if length == 0 {
            return;
        }
        if let Some(increment) = self.receive_window.use_up(length) {
            frame::write_window_update(out, 0, increment);
        }
        let found = stream.and_then(|stream| self.streams.find_mut(stream));
        let is_going_on = |found: &&mut super::stream::Stream| {
            found.reset.is_none() && found.receiving == Receiving::Open
        };
        if let Some(found) = found.filter(is_going_on)
            && let Some(increment) = found.receive_window.use_up(length)
        {
            frame::write_window_update(out, found.id, increment);
        }
    }

    /// Removes a stream whose request has ended. A client that is still sending its body is asked
    /// to stop by RST_STREAM (RFC 9113, section 8.1).
    pub fn release(&mut self, stream: u32, out: &mut Vec<u8>) {
        let Some(found) = self.streams.find(stream) else { return };
        let (has_ended, was_reset) = (found.sending == Sending::Ended, found.reset.is_some());
        if !was_reset && !has_ended {
            self.reset(stream, ErrorCode::InternalError, out);
        } else if !was_reset && found.receiving == Receiving::Open {
            self.reset(stream, ErrorCode::NoError, out);
        }
        let Some(found) = self.streams.remove(stream) else { return };
        self.give_back(None, found.unread, out);
        if found.reset == Some(ResetBy::Us) {
            self.streams.ignore(stream);
        }
    }

    /// Whether streams have data that no window of the client allows to be sent.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.next_writer().is_none() && self.streams.iter().any(|stream| stream.is_ready)
    }

    /// The maximum size of a window, for settings.
    pub const MOST_WINDOW: u32 = flow::MOST as u32;
}
