//! The layer of TLS in a transport. It moves bytes between a socket and a [`Session`], and keeps
//! what one side has and the other has not taken. A parked connection keeps no buffers but what has
//! come of a record that is not complete.

use super::Received;
use crate::exchange::slow_bytes::{Share, SlowBytes};
use evenkeel_message::Notice;
use evenkeel_proto::h2::Engine;
use evenkeel_sys::open::read_at;
use evenkeel_sys::socket::Socket;
use evenkeel_tls::{Door, Failure, Kind, Outgoing, Progress, RECORD, Session, Step, StepDone};
use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// So many bytes are sealed before the socket is asked to take them, one record on a connection
/// that has not taken all of the last ones.
const SEALED_AT_ONCE: usize = 4 * RECORD;

/// The first part of a response waits for the next one, to share a record with it, if it is no
/// longer than this.
const LONGEST_WAITING: usize = 4 * 1024;

/// The memory of a handshake that has begun, in bytes, as it is counted.
const HANDSHAKE_BYTES: u64 = 12 * 1024;

/// The buffers of a serving thread for all its TLS connections. Each is empty between two uses.
#[derive(Default)]
pub(crate) struct Scratch {
    plain: Cell<Vec<u8>>,
    /// Where pieces of files are read to: its length stays, so that it is not cleared each time.
    file: Cell<Vec<u8>>,
    sealed: Cell<Outgoing>,
}

/// The TLS side of a connection.
pub(crate) struct Tls {
    session: Session,
    /// Sealed bytes that the socket has not taken.
    unsent: Outgoing,
    /// Bytes that were taken, and wait for others to share a record with them.
    waiting: Vec<u8>,
    /// What the client has said and nobody has read, from `read` on.
    received: Vec<u8>,
    read: usize,
    /// Whether the client has sent `close_notify`.
    has_ended: bool,
    /// Whether the socket has not taken all that was sealed last.
    is_slow: bool,
    failure: Option<Failure>,
    /// The room that the handshake takes.
    room: Option<Share>,
    /// The engine of a connection of HTTP/2 that is parked.
    pub(crate) engine: Option<Box<Engine>>,
}

impl Tls {
    /// The session of a connection that has just been accepted.
    pub(crate) fn accept(door: Arc<dyn Door>) -> Box<Self> {
        Box::new(Self {
            session: Session::accept(door),
            unsent: Outgoing::new(),
            waiting: Vec::new(),
            received: Vec::new(),
            read: 0,
            has_ended: false,
            is_slow: false,
            failure: None,
            room: None,
            engine: None,
        })
    }

    pub(crate) fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Whether the session has failed because the client speaks HTTP in clear text.
    pub(crate) fn is_plain_http(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.kind == Kind::PlainHttp)
    }

    /// What the error log is to be told of a failure, once.
    pub(crate) fn take_notice(&mut self) -> Option<Notice> {
        self.failure.take().map(|failure| failure.notice)
    }

    /// Whether there is something to send before the connection may be parked.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || !self.waiting.is_empty()
    }

    /// Whether a read has something to give without the socket.
    pub(crate) fn has_received(&self) -> bool {
        self.has_ended || self.read < self.received.len()
    }

    /// The next step of the handshake, if it takes long. Nothing is received before it is back.
    pub(crate) fn take_step(&mut self) -> Option<Step> {
        self.session.take_step()
    }

    /// Goes on behind a step: sends what the client gets. An error as of [`Tls::receive`].
    pub(crate) fn finish_step(
        &mut self,
        socket: &Socket,
        scratch: &Scratch,
        done: StepDone,
    ) -> io::Result<()> {
        let mut sealed = scratch.sealed.take();
        let progress = self.session.finish_step(done, &mut self.received, &mut sealed);
        let sent = self.send_sealed(socket, &mut sealed);
        scratch.sealed.set(sealed);
        self.note(progress)?;
        sent
    }

    /// Takes room for the next step of a handshake. False if there is none.
    pub(crate) fn take_room(&mut self, handshakes: &Arc<SlowBytes>) -> bool {
        if self.session.is_handshaking() && self.room.is_none() {
            self.room = handshakes.take(HANDSHAKE_BYTES);
            return self.room.is_some();
        }
        true
    }

    /// Gives the room back if the handshake has ended, or has not begun.
    pub(crate) fn give_room(&mut self) {
        if !self.session.is_handshaking() || !self.session.has_begun() {
            self.room = None;
        }
    }

    /// Reads from the socket and decrypts. Returns `WouldBlock` if the socket has no bytes, or if
    /// the session cannot go on before its next step is done ([`Tls::take_step`]).
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        scratch: &Scratch,
        buffer: &mut [u8],
    ) -> io::Result<Received> {
        if self.read < self.received.len() {
            return Ok(self.take_received(buffer));
        }
        while !self.has_ended {
            let count = socket.receive(buffer)?;
            let Some(bytes) = buffer.get_mut(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            let mut plain = scratch.plain.take();
            plain.clear();
            let mut sealed = scratch.sealed.take();
            let progress = self.session.receive(bytes, &mut plain, &mut sealed);
            let sent = self.send_sealed(socket, &mut sealed);
            scratch.sealed.set(sealed);
            let is_due = progress.as_ref().is_ok_and(|progress| *progress == Progress::Due);
            if let Err(error) = self.note(progress) {
                scratch.plain.set(plain);
                return Err(error);
            }
            sent?;
            if is_due {
                scratch.plain.set(plain);
                return Err(ErrorKind::WouldBlock.into());
            }
            let taken = plain.len().min(buffer.len());
            let (now, rest) = plain.split_at(taken);
            buffer.get_mut(..taken).unwrap_or_default().copy_from_slice(now);
            if !rest.is_empty() {
                self.received = rest.to_vec();
                self.read = 0;
            }
            let more = count == buffer.len() || !rest.is_empty() || self.has_ended;
            scratch.plain.set(plain);
            if taken > 0 {
                return Ok(Received { count: taken, more });
            }
        }
        Ok(Received { count: 0, more: true })
    }

    /// Notes what has become of the session.
    fn note(&mut self, progress: Result<Progress, Failure>) -> io::Result<()> {
        match progress {
            Ok(progress) => {
                self.has_ended = progress == Progress::Closed;
                Ok(())
            }
            Err(failure) => {
                self.failure = Some(failure);
                Err(ErrorKind::InvalidData.into())
            }
        }
    }

    /// Reads what was received before.
    fn take_received(&mut self, buffer: &mut [u8]) -> Received {
        let rest = self.received.get(self.read..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        let now = rest.get(..count).unwrap_or_default();
        buffer.get_mut(..count).unwrap_or_default().copy_from_slice(now);
        self.read += count;
        if self.read == self.received.len() {
            (self.received, self.read) = (Vec::new(), 0);
        }
        // The socket may have more, too: no event has been waited for since.
        Received { count, more: true }
    }

    /// Seals and sends. What the socket does not take is kept, and is all sent before anything else
    /// is taken.
    pub(crate) fn send(
        &mut self,
        socket: &Socket,
        scratch: &Scratch,
        parts: &[IoSlice<'_>],
        more: bool,
    ) -> io::Result<usize> {
        self.send_unsent(socket)?;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if more && self.waiting.len() + total <= LONGEST_WAITING {
            parts.iter().for_each(|part| self.waiting.extend_from_slice(part));
            return Ok(total);
        }
        let mut plain = self.take_waiting(scratch);
        let mut sealed = scratch.sealed.take();
        let (mut taken, mut result) = (0, Ok(()));
        let waited = plain.len();
        for part in parts {
            // The first record has what fits of all parts; the rest of a part needs no copy.
            let of_first = part.len().min(RECORD.saturating_sub(plain.len()));
            let (first, rest) = part.split_at(of_first);
            plain.extend_from_slice(first);
            taken += first.len();
            if rest.is_empty() {
                continue;
            }
            result = self.session.send(&plain, &mut sealed);
            plain.clear();
            let most = rest.len().min(self.most_sealed().saturating_sub(waited + taken));
            if result.is_ok() {
                result = self.session.send(rest.get(..most).unwrap_or_default(), &mut sealed);
            }
            taken += most;
            break;
        }
        if result.is_ok() {
            result = self.session.send(&plain, &mut sealed);
        }
        scratch.plain.set(plain);
        self.sealed(socket, scratch, sealed, result)?;
        Ok(taken)
    }

    pub(crate) fn send_file(
        &mut self,
        socket: &Socket,
        scratch: &Scratch,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> io::Result<usize> {
        self.send_unsent(socket)?;
        let mut plain = scratch.file.take();
        if plain.is_empty() {
            plain.resize(SEALED_AT_ONCE, 0);
        }
        let start = self.waiting.len();
        plain.get_mut(..start).unwrap_or_default().copy_from_slice(&self.waiting);
        self.waiting = Vec::new();
        let end = self.most_sealed().min(start + count);
        let read = read_at(&file, plain.get_mut(start..end).unwrap_or_default(), offset);
        let end = start + read.as_ref().copied().unwrap_or(0);
        let mut sealed = scratch.sealed.take();
        let result = self.session.send(plain.get(..end).unwrap_or_default(), &mut sealed);
        scratch.file.set(plain);
        self.sealed(socket, scratch, sealed, result)?;
        read
    }

    pub(crate) fn flush(&mut self, socket: &Socket, scratch: &Scratch) -> io::Result<()> {
        self.send_unsent(socket)?;
        if self.waiting.is_empty() {
            return Ok(());
        }
        let plain = self.take_waiting(scratch);
        let mut sealed = scratch.sealed.take();
        let result = self.session.send(&plain, &mut sealed);
        scratch.plain.set(plain);
        self.sealed(socket, scratch, sealed, result)?;
        self.send_unsent(socket)
    }

    /// Sends `close_notify`, as far as that goes without waiting.
    pub(crate) fn close(&mut self, socket: &Socket, scratch: &Scratch) {
        if self.flush(socket, scratch).is_ok() {
            let mut sealed = scratch.sealed.take();
            self.session.close(&mut sealed);
            let _ = self.send_sealed(socket, &mut sealed);
            scratch.sealed.set(sealed);
        }
    }

    /// How much is sealed before the socket is asked.
    fn most_sealed(&self) -> usize {
        if self.is_slow { RECORD } else { SEALED_AT_ONCE }
    }

    /// The thread's buffer for plaintext, with what waits for other bytes in front.
    fn take_waiting(&mut self, scratch: &Scratch) -> Vec<u8> {
        let mut plain = scratch.plain.take();
        plain.clear();
        plain.extend_from_slice(&self.waiting);
        self.waiting = Vec::new();
        plain
    }

    /// Sends what was sealed unless that has failed.
    fn sealed(
        &mut self,
        socket: &Socket,
        scratch: &Scratch,
        mut sealed: Outgoing,
        result: Result<(), Failure>,
    ) -> io::Result<()> {
        let sent = match result {
            Ok(()) => self.send_sealed(socket, &mut sealed),
            Err(failure) => {
                self.failure = Some(failure);
                sealed.clear();
                Err(ErrorKind::InvalidData.into())
            }
        };
        scratch.sealed.set(sealed);
        sent
    }

    /// Sends what the thread's buffer holds, behind what is unsent, and keeps the rest.
    fn send_sealed(&mut self, socket: &Socket, sealed: &mut Outgoing) -> io::Result<()> {
        let result = self.send_unsent(socket).and_then(|()| send_all(socket, sealed));
        self.is_slow = result.is_err();
        match result {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                match self.unsent.is_empty() {
                    true => self.unsent = sealed.take_rest(),
                    false => self.unsent.extend(sealed.bytes()),
                }
                sealed.clear();
                Ok(())
            }
            result => {
                sealed.clear();
                result
            }
        }
    }

    fn send_unsent(&mut self, socket: &Socket) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        send_all(socket, &mut self.unsent)?;
        self.unsent = Outgoing::new();
        Ok(())
    }
}

fn send_all(socket: &Socket, outgoing: &mut Outgoing) -> io::Result<()> {
    while !outgoing.is_empty() {
        let count = socket.send(&[IoSlice::new(outgoing.bytes())], false)?;
        outgoing.sent(count);
    }
    Ok(())
}
