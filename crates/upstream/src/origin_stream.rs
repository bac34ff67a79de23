//! The connection to an HTTP server, in clear text or in TLS. A kept connection stays what it is;
//! [`Wanted`] says which one a request may take.

use crate::origin_failure::OriginFailureKind;
use evenkeel_message::Address;
use evenkeel_sys::socket::Socket;
use evenkeel_sys::watch::WatchedSocket;
use evenkeel_tls::{Connector, ServerSession};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::timeout;

/// The connection that a request wants: its address, and in TLS also the settings of the client
/// and the host that the server is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) address: Address,
    pub(crate) tls: Option<Tls>,
}

/// The TLS of a connection.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The settings.
    pub connector: Arc<Connector>,
    /// The host that the certificate is to be of.
    pub host: Box<str>,
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.connector, &other.connector) && self.host == other.host
    }
}

impl PartialEq for Wanted {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address && self.tls == other.tls
    }
}

/// A connection. Dropping it closes it.
pub(crate) enum OriginStream {
    Plain(WatchedSocket),
    Secure(WatchedSocket, Box<ServerSession>),
}

/// What a session reads from and writes to.
struct Through<'a>(&'a Socket);

impl Read for Through<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.receive(buffer)
    }
}

impl Write for Through<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(&[IoSlice::new(bytes)], false)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OriginStream {
    /// Performs the TLS handshake on a new connection, and checks the certificate of the server.
    ///
    /// # Errors
    /// The handshake fails or takes too long, or the server is not the one that was wanted.
    pub(crate) async fn secure(
        socket: Socket,
        tls: &Tls,
        patience: Duration,
    ) -> Result<Self, OriginFailureKind> {
        let socket = WatchedSocket::new(socket);
        let socket = socket.map_err(|(_, error)| OriginFailureKind::Unreachable(error))?;
        let session = tls.connector.connect(&tls.host).map_err(OriginFailureKind::Handshake)?;
        let mut session = Box::new(session);
        let shaken = poll_fn(|context| poll_handshake(&socket, &mut session, context));
        let late = || Err(ErrorKind::TimedOut.into());
        let shaken = timeout(patience, shaken).await.unwrap_or_else(|_| late());
        let checked = shaken.map_err(OriginFailureKind::Handshake).and_then(|()| {
            session
                .check_peer()
                .map_err(|fault| OriginFailureKind::Peer(fault, tls.host.to_string()))
        });
        if let Err(kind) = checked {
            session.close();
            // What the server has to know, as far as that goes without waiting.
            let _ = session.flush(&mut Through(socket.socket()));
            return Err(kind);
        }
        Ok(OriginStream::Secure(socket, session))
    }

    /// Receives what has come; 0 at the end of the stream. What waits to be sent goes out first.
    pub(crate) fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let (socket, session) = match self {
            OriginStream::Plain(socket) => return socket.poll_receive(context, buffer),
            OriginStream::Secure(socket, session) => (socket, session),
        };
        loop {
            // What the server has said before it hung up tells more than the error.
            let _ = poll_flush_session(socket, session, context);
            match session.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
            let mut receive = |socket: &Socket| session.receive(&mut Through(socket));
            ready!(socket.poll_read(context, &mut receive))?;
        }
    }

    /// Takes some of the bytes, which are sent at once or while something is received.
    pub(crate) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let (socket, session) = match self {
            OriginStream::Plain(socket) => {
                let parts = [IoSlice::new(bytes)];
                return socket.poll_write(context, |socket| socket.send(&parts, false));
            }
            OriginStream::Secure(socket, session) => (socket, session),
        };
        loop {
            match session.write(bytes)? {
                0 if !bytes.is_empty() => {
                    ready!(poll_flush_session(socket, session, context))?;
                }
                count => {
                    let flushed = poll_flush_session(socket, session, context);
                    return match flushed {
                        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                        _ => Poll::Ready(Ok(count)),
                    };
                }
            }
        }
    }

    /// Sends what was taken.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            OriginStream::Plain(_) => Poll::Ready(Ok(())),
            OriginStream::Secure(socket, session) => poll_flush_session(socket, session, context),
        }
    }

    /// Takes some of the bytes, and sends what can be sent now.
    pub(crate) fn send_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            OriginStream::Plain(socket) => socket.socket().send(&[IoSlice::new(bytes)], false),
            OriginStream::Secure(socket, session) => {
                let count = session.write(bytes)?;
                match session.flush(&mut Through(socket.socket())) {
                    Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
                    _ => Ok(count),
                }
            }
        }
    }

    /// Whether the connection has taken bytes that it has not sent.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(self, OriginStream::Secure(_, session) if session.wants_write())
    }

    /// Ends the direction to the server. Everything was flushed before.
    pub(crate) fn end_writing(&mut self) -> io::Result<()> {
        match self {
            OriginStream::Plain(socket) => socket.socket().shutdown_write(),
            OriginStream::Secure(socket, session) => {
                session.close();
                session.flush(&mut Through(socket.socket()))?;
                socket.socket().shutdown_write()
            }
        }
    }

    /// The connection with its socket watched for writing too.
    ///
    /// # Errors
    /// The runtime cannot watch the socket.
    pub(crate) fn for_writing(self) -> io::Result<Self> {
        match self {
            OriginStream::Plain(socket) => WatchedSocket::new(socket.into_socket())
                .map(OriginStream::Plain)
                .map_err(|(_, error)| error),
            secure @ OriginStream::Secure(..) => Ok(secure),
        }
    }

    /// Whether the server has neither closed the connection nor sent something unasked. In TLS, it
    /// may have sent what belongs to the session alone.
    pub(crate) fn is_sound(&mut self) -> bool {
        let (socket, session) = match self {
            OriginStream::Plain(socket) => {
                let peeked = socket.socket().peek();
                return peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            }
            OriginStream::Secure(socket, session) => (socket, session),
        };
        loop {
            match session.receive(&mut Through(socket.socket())) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) | Ok(false) => return false,
                Ok(true) => {}
            }
            let read = session.read(&mut [0]);
            if !read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                return false;
            }
        }
    }
}

fn poll_flush_session(
    socket: &WatchedSocket,
    session: &mut ServerSession,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    match session.wants_write() {
        true => socket.poll_write(context, |socket| session.flush(&mut Through(socket))),
        false => Poll::Ready(Ok(())),
    }
}

fn poll_handshake(
    socket: &WatchedSocket,
    session: &mut ServerSession,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    loop {
        ready!(poll_flush_session(socket, session, context))?;
        if !session.is_handshaking() {
            return Poll::Ready(Ok(()));
        }
        let mut receive = |socket: &Socket| session.receive(&mut Through(socket));
        if !ready!(socket.poll_read(context, &mut receive))? {
            return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
        }
    }
}
