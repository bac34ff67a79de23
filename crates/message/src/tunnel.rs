//! A connection that is no longer one of HTTP: after a response with the status 101, the bytes of
//! the client and those of a server behind this one pass in both directions until both have ended
//! (RFC 9110, section 7.8). A protocol of clients meets a tunnel in [`Duplex`].

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Both directions of the connection of a client.
pub trait Duplex {
    /// Reads into `buffer`; 0 at the end of what the client sends.
    ///
    /// # Errors
    /// The connection is broken.
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>>;

    /// Takes some of `bytes`, at least one of them. What was taken reaches the client no later than
    /// with [`Duplex::poll_flush`].
    ///
    /// # Errors
    /// The connection is broken.
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Sends what was taken.
    ///
    /// # Errors
    /// The connection is broken.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends the direction to the client. The client may still send. Everything was flushed before.
    ///
    /// # Errors
    /// The connection is broken.
    fn end_writing(&mut self) -> io::Result<()>;
}

/// What has passed through a tunnel, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// From the client.
    pub received: u64,
    /// To the client.
    pub sent: u64,
}

/// The side of a tunnel that is away from the client.
pub trait Tunnel {
    /// Passes bytes on. Ready when both directions have ended or one of them has failed.
    fn poll(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        client: &mut dyn Duplex,
    ) -> Poll<Passed>;
}

/// The tunnel behind a response with the status 101.
pub struct Switched(pub Pin<Box<dyn Tunnel>>);

impl fmt::Debug for Switched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Switched")
    }
}
