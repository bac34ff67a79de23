//! The bytes of a connection: in and out, parked and woken, and the end. Nothing here knows the
//! protocol above. A [`Transport`] serves one connection, whether a turn of the event loop uses it
//! or a task that waits; a [`Channel`] is what either reads from and writes to.

pub(crate) mod addresses;
pub(crate) mod linger;
pub(crate) mod link;
pub(crate) mod pace;
pub(crate) mod parked;
pub(crate) mod proxy_header;
pub(crate) mod tls;

use evenkeel_proto::h2::{Engine, ErrorCode};
use evenkeel_sys::dispatch::{Outcome, ParkReason, ParkRequest};
use evenkeel_sys::socket::{self, Parcel, SendProgress, Socket};
use evenkeel_sys::watch::WatchedSocket;
use evenkeel_tls::{Door, Facts, StepDone};
use parked::Connection;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use tls::{Scratch, Tls};

/// The transport of a connection.
pub(crate) struct Transport {
    wire: Wire,
    layer: Layer,
    /// The engine of a connection of HTTP/2 that is parked.
    engine: Option<Box<Engine>>,
}

/// The socket, and whether the runtime watches it.
enum Wire {
    /// Nothing had to be waited for yet.
    Unwatched(Socket),
    Watched(WatchedSocket),
    /// The socket could not be watched and is closed.
    Gone,
}

/// What is between the bytes of the protocol and those of the socket.
enum Layer {
    /// Nothing: they are the same.
    Plain,
    Tls(Box<Tls>, Rc<Scratch>),
}

/// A direction.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Read,
    Write,
}

/// What a read has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// How many bytes; 0 at the end of the stream.
    pub(crate) count: usize,
    /// Whether more may have arrived, so that the connection must be read again before it is
    /// parked.
    pub(crate) more: bool,
}

/// The two directions of a transport for as long as nothing is awaited. Every function says
/// `WouldBlock` where it would have to wait.
pub(crate) struct Channel<'a> {
    socket: &'a Socket,
    layer: &'a mut Layer,
}

impl Channel<'_> {
    /// Reads into `buffer`.
    #[inline]
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        match self.layer {
            Layer::Plain => {
                let count = self.socket.receive(buffer)?;
                // A short read has left nothing behind, but the end of the stream may stand there.
                Ok(Received { count, more: count == buffer.len() || count == 0 })
            }
            Layer::Tls(tls, scratch) => tls.receive(self.socket, scratch, buffer),
        }
    }

    /// Sends the parts in order and says how many of their bytes were taken. `more` promises that
    /// more follows, or [`Channel::flush`].
    #[inline]
    pub(crate) fn send(&mut self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        match self.layer {
            Layer::Plain => self.socket.send(parts, more),
            Layer::Tls(tls, scratch) => tls.send(self.socket, scratch, parts, more),
        }
    }

    /// Sends up to `count` bytes of a file from `offset`; 0 if the file ends there.
    pub(crate) fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> io::Result<usize> {
        match self.layer {
            Layer::Plain => self.socket.send_file(file, offset, count),
            Layer::Tls(tls, scratch) => tls.send_file(self.socket, scratch, file, offset, count),
        }
    }

    /// Sends what was taken and is still kept here.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self.layer {
            Layer::Plain => Ok(()),
            Layer::Tls(tls, scratch) => tls.flush(self.socket, scratch),
        }
    }
}

impl Transport {
    /// The transport of a connection that was parked, or has just been accepted and is in clear
    /// text.
    pub(crate) fn of(mut socket: Socket, scratch: &Rc<Scratch>) -> Self {
        let parcel = socket.detach();
        if parcel.as_ref().is_some_and(Parcel::is::<Engine>) {
            let engine = parcel.and_then(Parcel::open);
            return Self { wire: Wire::Unwatched(socket), layer: Layer::Plain, engine };
        }
        let (layer, engine) = match parcel.and_then(Parcel::open::<Tls>) {
            Some(mut tls) => {
                let engine = tls.engine.take();
                (Layer::Tls(tls, Rc::clone(scratch)), engine)
            }
            None => (Layer::Plain, None),
        };
        Self { wire: Wire::Unwatched(socket), layer, engine }
    }

    /// The transport of a connection that has just been accepted and speaks TLS.
    pub(crate) fn secure(socket: Socket, door: Arc<dyn Door>, scratch: &Rc<Scratch>) -> Self {
        let layer = Layer::Tls(Tls::accept(door), Rc::clone(scratch));
        Self { wire: Wire::Unwatched(socket), layer, engine: None }
    }

    /// Has the engine of a connection of HTTP/2 parked with it.
    pub(crate) fn keep(&mut self, engine: Box<Engine>) {
        self.engine = Some(engine);
    }

    /// The engine that was parked with the connection; none if it speaks HTTP/1.
    pub(crate) fn take_engine(&mut self) -> Option<Box<Engine>> {
        self.engine.take()
    }

    /// The TLS side of the connection; none if it is in clear text.
    pub(crate) fn tls(&mut self) -> Option<&mut Tls> {
        match &mut self.layer {
            Layer::Plain => None,
            Layer::Tls(tls, _) => Some(tls),
        }
    }

    /// What was agreed in the handshake of TLS, once it has ended.
    pub(crate) fn facts(&mut self) -> Option<Arc<Facts>> {
        self.tls()?.session().facts().cloned()
    }

    /// Goes on in clear text.
    pub(crate) fn drop_layer(&mut self) {
        self.layer = Layer::Plain;
    }

    /// Goes on behind a step of a handshake that took long.
    pub(crate) fn finish_step(&mut self, done: StepDone) -> io::Result<()> {
        match (self.wire.socket(), &mut self.layer) {
            (Some(socket), Layer::Tls(tls, scratch)) => tls.finish_step(socket, scratch, done),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Ready once the client has closed its side or the connection is broken. Nothing is read.
    pub(crate) fn poll_hangup(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.watch().is_err() {
            // It is seen when the connection is read.
            return Poll::Pending;
        }
        match &self.wire {
            Wire::Watched(watched) => watched.poll_hangup(context),
            Wire::Unwatched(_) | Wire::Gone => Poll::Ready(()),
        }
    }

    /// Whether a record of TLS has come in part.
    pub(crate) fn has_partial(&mut self) -> bool {
        self.tls().is_some_and(|tls| tls.session().has_partial())
    }

    /// Whether something is to be sent before the connection may be parked.
    pub(crate) fn has_unsent(&self) -> bool {
        match &self.layer {
            Layer::Plain => false,
            Layer::Tls(tls, _) => tls.has_unsent(),
        }
    }

    /// The directions.
    pub(crate) fn channel(&mut self) -> io::Result<Channel<'_>> {
        let Self { wire, layer, .. } = self;
        match wire.socket() {
            Some(socket) => Ok(Channel { socket, layer }),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Reads into `buffer` what has arrived.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        self.channel()?.receive(buffer)
    }

    /// Acts at once if the socket is not watched yet. If that would block, the runtime watches the
    /// socket, and the task waits for the direction.
    pub(crate) fn poll<R>(
        &mut self,
        context: &mut Context<'_>,
        side: Side,
        mut act: impl FnMut(&mut Channel<'_>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        if matches!(side, Side::Read) && self.tls().is_some_and(|tls| tls.has_received()) {
            // The socket may have nothing more, so that no event would report it.
            return Poll::Ready(self.channel().and_then(|mut channel| act(&mut channel)));
        }
        if let Wire::Unwatched(_) = &self.wire {
            match self.channel().and_then(|mut channel| act(&mut channel)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
            if let Err(error) = self.watch() {
                return Poll::Ready(Err(error));
            }
        }
        let Self { wire, layer, .. } = self;
        let Wire::Watched(watched) = wire else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let act = |socket: &Socket| act(&mut Channel { socket, layer });
        match side {
            Side::Read => watched.poll_read(context, act),
            Side::Write => watched.poll_write(context, act),
        }
    }

    /// Has the runtime watch the socket. If that fails, the socket stays as it is.
    fn watch(&mut self) -> io::Result<()> {
        let (wire, result) = match std::mem::replace(&mut self.wire, Wire::Gone) {
            Wire::Unwatched(socket) => match WatchedSocket::new(socket) {
                Ok(watched) => (Wire::Watched(watched), Ok(())),
                Err((socket, error)) => (Wire::Unwatched(socket), Err(error)),
            },
            wire => (wire, Ok(())),
        };
        self.wire = wire;
        result
    }

    /// Parks the connection: what the layer keeps goes with the socket.
    pub(crate) fn park(
        self,
        reason: ParkReason,
        timeout_ms: u32,
        connection: &Connection,
    ) -> Outcome {
        let socket = match self.wire {
            Wire::Unwatched(socket) => socket,
            Wire::Watched(watched) => watched.into_socket(),
            Wire::Gone => return Outcome::Closed,
        };
        let mut socket = socket;
        match (self.layer, self.engine) {
            (Layer::Tls(mut tls, _), engine) => {
                tls.engine = engine;
                socket.attach(Parcel::new(tls));
            }
            (Layer::Plain, Some(engine)) => socket.attach(Parcel::new(engine)),
            (Layer::Plain, None) => {}
        }
        let state = connection.to_parked_state();
        Outcome::Park(socket, ParkRequest { reason, timeout_ms, state })
    }

    /// Tells the client that nothing more follows, as far as that goes without waiting and if the
    /// layer has a word for it.
    pub(crate) fn announce_end(&mut self) {
        if let Some(mut engine) = self.engine.take() {
            let mut out = Vec::new();
            engine.close(ErrorCode::NoError, &mut out);
            // A connection that rests has nothing unsent, so that so few bytes fit.
            let _ = self.channel().and_then(|mut one| one.send(&[IoSlice::new(&out)], false));
        }
        if let (Some(socket), Layer::Tls(tls, scratch)) = (self.wire.socket(), &mut self.layer) {
            tls.close(socket, scratch);
        }
    }

    /// Ends our side of the stream. What the client sends can still be read from the socket.
    pub(crate) fn shutdown(&mut self) -> io::Result<()> {
        self.announce_end();
        self.layer = Layer::Plain;
        self.wire.socket().map_or(Ok(()), Socket::shutdown_write)
    }

    /// Ends our side of the stream and goes on reading in the same layer.
    pub(crate) fn end_writing(&mut self) -> io::Result<()> {
        self.announce_end();
        self.wire.socket().map_or(Ok(()), Socket::shutdown_write)
    }

    /// Makes closing reset the connection, so that the client does not take an incomplete response
    /// for a complete one.
    pub(crate) fn reset_on_close(&self) {
        if let Some(socket) = self.wire.socket() {
            socket.reset_on_close();
        }
    }

    /// What the client's system has acknowledged; nothing of a socket that is not TCP.
    pub(crate) fn send_progress(&self) -> SendProgress {
        let progress = self.wire.socket().map(socket::send_progress);
        progress.and_then(Result::ok).unwrap_or_default()
    }

    /// The address at the other end of the socket.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        self.wire.socket()?.peer_address().ok()
    }
}

impl Wire {
    fn socket(&self) -> Option<&Socket> {
        match self {
            Wire::Unwatched(socket) => Some(socket),
            Wire::Watched(watched) => Some(watched.socket()),
            Wire::Gone => None,
        }
    }
}
