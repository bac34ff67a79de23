//! The connection of a client that has switched to another protocol (101): its bytes pass through a
//! [`Tunnel`](evenkeel_message::Tunnel) to a server. Meanwhile the request holds neither credit nor
//! slot, except that a worker of its own stays its own.

use crate::transport::link::Link;
use evenkeel_message::{Duplex, Passed, Switched};
use evenkeel_scoreboard::{ChildLine, Counter};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

/// Passes bytes until the tunnel ends.
pub(crate) async fn pass(link: &Link, line: ChildLine, Switched(mut tunnel): Switched) -> Passed {
    let _counted = Counted::new(line);
    poll_fn(|context| tunnel.as_mut().poll(context, &mut Client(link))).await
}

/// Counts a tunnel until it is dropped.
struct Counted(ChildLine);

impl Counted {
    fn new(line: ChildLine) -> Self {
        line.add(Counter::Tunnels, 1);
        Self(line)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.subtract(Counter::Tunnels, 1);
    }
}

/// The client's side of a tunnel.
struct Client<'a>(&'a Link);

impl Duplex for Client<'_> {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_tunnel_read(context, buffer)
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let parts = [IoSlice::new(bytes)];
        self.0.poll_tunnel_write(context, |channel| channel.send(&parts, false))
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.has_unsent() {
            true => self.0.poll_tunnel_write(context, |channel| channel.flush()),
            false => Poll::Ready(Ok(())),
        }
    }

    fn end_writing(&mut self) -> io::Result<()> {
        self.0.end_writing()
    }
}
