//! The tunnel behind a response with the status 101: passes bytes between the client and the server
//! until both have ended, or until neither has sent anything for too long (proxy_util.c:
//! `ap_proxy_tunnel_run`). An idle tunnel has no buffer. A busy one holds, for each direction, what
//! was received and not taken by the other side.

use crate::origin_failure::{OriginFailure, OriginFailureKind};
use crate::origin_stream::OriginStream;
use crate::timer::Timer;
use evenkeel_message::{Duplex, Late, Passed, Target, Tunnel};
use std::any::Any;
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The bytes that are received at a time.
const RECEIVED: usize = 32 << 10;

thread_local! {
    /// Its content is passed on or copied before the next tunnel uses it.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; RECEIVED].into());
}

/// A tunnel to a server.
pub(crate) struct OriginTunnel {
    pub(crate) stream: OriginStream,
    pub(crate) to_server: Flow,
    pub(crate) to_client: Flow,
    pub(crate) silence: Duration,
    pub(crate) timer: Option<Timer>,
    pub(crate) late: Rc<RefCell<Late>>,
    pub(crate) path: Vec<u8>,
    pub(crate) target: Arc<Target>,
    /// What is dropped with the tunnel.
    pub(crate) _guard: Option<Box<dyn Any>>,
}

/// One direction.
#[derive(Default)]
pub(crate) struct Flow {
    /// What was received and not taken, from `at` on.
    held: Vec<u8>,
    at: usize,
    /// Whether something was taken and not flushed.
    is_unflushed: bool,
    has_ended: bool,
    /// Whether the other side knows of the end.
    is_told: bool,
    /// The bytes that were taken.
    passed: u64,
}

/// Receives bytes; 0 at the end.
type Receive<'a> = &'a mut dyn FnMut(&mut Context<'_>, &mut [u8]) -> Poll<io::Result<usize>>;

/// The receiving end of a direction.
trait Sink {
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn end(&mut self) -> io::Result<()>;
}

struct Client<'a>(&'a mut dyn Duplex);

impl Sink for Client<'_> {
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, bytes)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(context)
    }

    fn end(&mut self) -> io::Result<()> {
        self.0.end_writing()
    }
}

struct Server<'a>(&'a mut OriginStream);

impl Sink for Server<'_> {
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_send(context, bytes)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(context)
    }

    fn end(&mut self) -> io::Result<()> {
        self.0.end_writing()
    }
}

impl Flow {
    /// A direction in which these bytes were received already.
    pub(crate) fn new(held: Vec<u8>) -> Self {
        Self { held, ..Self::default() }
    }

    /// Passes on what the source has. Ready when the direction has ended and the sink knows it.
    /// `has_moved` is set if anything has moved.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        sink: &mut dyn Sink,
        receive: Receive<'_>,
        has_moved: &mut bool,
    ) -> Poll<io::Result<()>> {
        loop {
            while self.at < self.held.len() {
                let rest = self.held.get(self.at..).unwrap_or_default();
                let count = ready!(sink.poll_write(context, rest))?;
                self.take(count, has_moved);
                self.at += count;
            }
            if self.is_unflushed {
                ready!(sink.poll_flush(context))?;
                self.is_unflushed = false;
            }
            (self.held, self.at) = (Vec::new(), 0);
            if self.has_ended {
                if !self.is_told {
                    self.is_told = true;
                    sink.end()?;
                }
                return Poll::Ready(Ok(()));
            }
            ready!(BUFFER.with_borrow_mut(|buffer| {
                let count = ready!(receive(context, buffer))?;
                *has_moved = true;
                self.has_ended = count == 0;
                let received = buffer.get(..count).unwrap_or_default();
                let taken = match received {
                    [] => 0,
                    received => match sink.poll_write(context, received) {
                        Poll::Ready(taken) => taken?,
                        Poll::Pending => 0,
                    },
                };
                if taken > 0 {
                    self.take(taken, has_moved);
                }
                self.held.extend_from_slice(received.get(taken..).unwrap_or_default());
                Poll::Ready(io::Result::Ok(()))
            }))?;
        }
    }

    fn take(&mut self, count: usize, has_moved: &mut bool) {
        self.passed += count as u64;
        self.is_unflushed = true;
        *has_moved = true;
    }
}

impl Tunnel for OriginTunnel {
    fn poll(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        client: &mut dyn Duplex,
    ) -> Poll<Passed> {
        let this = self.get_mut();
        let Self { stream, to_server, to_client, .. } = this;
        let mut has_moved = false;
        let up = to_server.poll(
            context,
            &mut Server(stream),
            &mut |context, buffer| client.poll_read(context, buffer),
            &mut has_moved,
        );
        let down = to_client.poll(
            context,
            &mut Client(client),
            &mut |context, buffer| stream.poll_receive(context, buffer),
            &mut has_moved,
        );
        let passed = Passed { received: to_server.passed, sent: to_client.passed };
        match (up, down) {
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(passed),
            (_, Poll::Ready(Err(error))) | (Poll::Ready(Err(error)), _) => {
                this.tell(OriginFailureKind::Ended(error));
                return Poll::Ready(passed);
            }
            (Poll::Pending, _) | (_, Poll::Pending) => {}
        }
        if has_moved {
            this.timer = None;
        }
        let timer = this.timer.get_or_insert_with(|| Timer::after(this.silence));
        ready!(timer.poll(context));
        this.tell(OriginFailureKind::Ended(ErrorKind::TimedOut.into()));
        Poll::Ready(passed)
    }
}

impl OriginTunnel {
    /// Logs why the tunnel has ended before both sides had.
    fn tell(&self, kind: OriginFailureKind) {
        let failure = OriginFailure { kind, target: Arc::clone(&self.target), upload: None };
        self.late.borrow_mut().notices.extend(failure.tunnel_notice(&self.path));
    }
}
