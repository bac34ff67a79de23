//! A client's connection: a socket with or without TLS. Bytes are sent and received as with a
//! socket; the handshake is a state that the client waits for.

use super::tls::{self, Agreed, Trust};
use evenkeel_sys::connect::{self, Local, Remote};
use evenkeel_sys::socket::Socket;
use rustls::ClientConnection;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

pub(super) struct Transport {
    socket: Socket,
    session: Option<Box<ClientConnection>>,
}

impl Transport {
    pub(super) fn begin(remote: &Remote, local: &Local, trust: Option<&Trust>) -> io::Result<Self> {
        let socket = connect::begin(remote, local)?;
        let session = trust.map(|trust| trust.begin().map(Box::new)).transpose()?;
        Ok(Self { socket, session })
    }

    /// Whether the connection is established, once the socket is writable.
    pub(super) fn outcome(&self) -> io::Result<()> {
        connect::outcome(&self.socket)
    }

    /// Whether the TLS handshake is complete; always true without TLS.
    pub(super) fn shake(&mut self) -> io::Result<bool> {
        self.session.as_mut().map_or(Ok(true), |session| tls::shake(session, &self.socket))
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.socket.send(&[IoSlice::new(bytes)], false),
            Some(session) => tls::send(session, &self.socket, bytes),
        }
    }

    /// Sends what TLS has buffered because the socket accepted no more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.session {
            None => Ok(()),
            Some(session) => tls::send(session, &self.socket, &[]).map(drop),
        }
    }

    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.socket.receive(buffer),
            Some(session) => tls::receive(session, &self.socket, buffer),
        }
    }

    /// Whether a short read means that nothing more is available. TLS reads by records.
    pub(super) fn reads_short(&self) -> bool {
        self.session.is_none()
    }

    /// What TLS has agreed on; none without TLS.
    pub(super) fn agreed(&self) -> Option<Agreed> {
        self.session.as_deref().map(tls::agreed)
    }

    /// Whether the handshake resumed a session; none without TLS.
    pub(super) fn is_resumed(&self) -> Option<bool> {
        self.session.as_deref().map(tls::is_resumed)
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
