//! The body of a request as its handler reads it: `100 Continue` is sent when it is first asked
//! for, and a client that is too slow is found out. The protocol reads the rest of it afterwards. A
//! handler that waits for the client holds no credit meanwhile.

use super::credit::Lease;
use crate::site::{ReadTime, Settings};
use crate::transport::link::waits_for_client;
use bytes::Bytes;
use evenkeel_message::{Chunk, Fields, Notice, Source};
use evenkeel_sys::clock;
use std::cell::RefCell;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Reads the body of a request off its connection, in the framing of a protocol.
pub(crate) trait BodyReader: 'static {
    /// Whether something has arrived that was not taken.
    fn has_arrived(&self) -> bool;

    /// Takes the next of what has arrived.
    fn take(&mut self) -> Taken;

    /// Whether the last byte of the body was taken.
    fn is_complete(&self) -> bool;

    /// Waits until more has arrived; 0 at the end of the connection. `TimedOut` where others wait
    /// for the worker that this client keeps waiting.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Sends `100 Continue`.
    fn send_continue(&mut self);

    /// Bytes that were taken so far, framing included.
    fn received(&self) -> u64;

    /// What is wrong with the body, for its handler, after [`Taken::Broken`].
    fn fault(&self) -> io::Error;

    /// What is wrong with the body, for the error log, once.
    fn take_notices(&mut self) -> Vec<Notice>;

    /// The trailer fields, once the body has been read.
    fn take_trailers(&mut self) -> Fields;
}

/// What a [`BodyReader`] has taken.
pub(crate) enum Taken {
    /// Data of the body.
    Data(Bytes),
    /// Nothing but framing, or nothing at all.
    Nothing,
    /// The body breaks the rules of its framing.
    Broken,
}

/// How far a body has been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reception {
    /// There is more.
    Open,
    /// It was read to its end.
    Complete,
    /// It broke the rules of its framing.
    Broken,
    /// The client disconnected in the middle of it.
    Disconnected,
    /// It came too slowly.
    TimedOut,
}

/// A request's body that is still (partly) to be received.
pub(crate) struct RequestBody<R> {
    lease: Rc<Lease>,
    state: RefCell<State<R>>,
}

struct State<R> {
    reader: R,
    /// `100 Continue` is to be sent before the first read that waits.
    expecting: bool,
    reception: Reception,
    time: Option<ReadTime>,
    timeout_ms: u64,
    began_us: Option<u64>,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<R: BodyReader> RequestBody<R> {
    /// A body that is read with `reader`. `expecting` tells that the client waits for
    /// `100 Continue`.
    pub(crate) fn new(
        reader: R,
        lease: &Rc<Lease>,
        expecting: bool,
        settings: &Settings,
    ) -> Rc<Self> {
        let state = State {
            reader,
            expecting,
            reception: Reception::Open,
            time: settings.body_time,
            timeout_ms: settings.timeout_ms,
            began_us: None,
            alarm: None,
        };
        Rc::new(Self { lease: Rc::clone(lease), state: RefCell::new(state) })
    }

    /// The body as the request carries it.
    pub(crate) fn source(self: &Rc<Self>) -> Pin<Box<dyn Source>> {
        Box::pin(Handle(Rc::clone(self)))
    }

    pub(crate) fn reception(&self) -> Reception {
        self.state.borrow().reception
    }

    /// Whether the client still waits for `100 Continue`, so that the body may never come.
    pub(crate) fn is_expecting(&self) -> bool {
        self.state.borrow().expecting
    }

    /// Bytes that came so far, framing included.
    pub(crate) fn received(&self) -> u64 {
        self.state.borrow().reader.received()
    }

    /// What the error log is to be told of the body, once.
    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        self.state.borrow_mut().reader.take_notices()
    }

    /// The trailer fields, once the body has been read.
    pub(crate) fn take_trailers(&self) -> Fields {
        self.state.borrow_mut().reader.take_trailers()
    }

    /// The next piece; `None` at the end. With `hold`, the reader goes on with a credit only.
    pub(crate) fn poll_chunk(&self, context: &mut Context<'_>, hold: bool) -> Poll<Chunk> {
        let mut state = self.state.borrow_mut();
        loop {
            let waits = state.reception == Reception::Open && !state.reader.has_arrived();
            if hold && !waits {
                ready!(self.lease.poll_hold(context));
            }
            match state.reception {
                Reception::Open => {}
                Reception::Complete => return Poll::Ready(None),
                Reception::Broken => return Poll::Ready(Some(Err(state.reader.fault()))),
                Reception::TimedOut => return Poll::Ready(Some(Err(ErrorKind::TimedOut.into()))),
                Reception::Disconnected => {
                    return Poll::Ready(Some(Err(ErrorKind::UnexpectedEof.into())));
                }
            }
            let taken = state.reader.take();
            if state.reader.is_complete() {
                state.reception = Reception::Complete;
            }
            match taken {
                Taken::Data(bytes) => {
                    // What has begun to come needs no invitation.
                    state.expecting = false;
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Taken::Broken => state.reception = Reception::Broken,
                Taken::Nothing => {}
            }
            if state.reception == Reception::Open && !state.reader.has_arrived() {
                ready!(self.poll_more(&mut state, context));
            }
        }
    }

    /// Waits for more of the body, or finds out that it will not come.
    fn poll_more(&self, state: &mut State<R>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut state.expecting) {
            state.reader.send_continue();
        }
        match state.reader.poll_more(context) {
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::TimedOut => {
                state.reception = Reception::TimedOut;
                Poll::Ready(())
            }
            Poll::Ready(Ok(0) | Err(_)) => {
                state.reception = Reception::Disconnected;
                Poll::Ready(())
            }
            Poll::Ready(Ok(_)) => {
                state.alarm = None;
                Poll::Ready(())
            }
            Poll::Pending if !waits_for_client() => Poll::Pending,
            Poll::Pending => {
                self.lease.release();
                ready!(state.poll_alarm(context));
                state.reception = Reception::TimedOut;
                Poll::Ready(())
            }
        }
    }
}

impl<R: BodyReader> State<R> {
    /// Ready once the client is too slow: no progress for Timeout, or less than RequestReadTimeout
    /// asks for.
    fn poll_alarm(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let now_us = clock::monotonic_us();
        let began_us = *self.began_us.get_or_insert(now_us);
        let received = self.reader.received();
        let alarm = self.alarm.get_or_insert_with(|| {
            let left_ms = self.time.map_or(u64::MAX, |time| {
                let gone_ms = now_us.saturating_sub(began_us) / 1000;
                time.allowed_ms(received).saturating_sub(gone_ms)
            });
            let wait = Duration::from_millis(left_ms.min(self.timeout_ms));
            Box::pin(tokio::time::sleep_until(Instant::now() + wait))
        });
        alarm.as_mut().poll(context)
    }
}

/// The body in the hands of a handler.
struct Handle<R>(Rc<RequestBody<R>>);

impl<R: BodyReader> Source for Handle<R> {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        self.0.poll_chunk(context, true)
    }
}
