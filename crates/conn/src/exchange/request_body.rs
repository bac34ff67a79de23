//! The body of a request as its handler reads it: framing off, `100 Continue` sent when it is
//! first asked for, too slow a client found out. The task reads the rest of it afterwards. A
//! handler that waits for the client holds no credit meanwhile.

use crate::site::{ReadTime, Settings};
use crate::transport::link::{Link, waits_for_client};
use bytes::Bytes;
use evenkeel_message::{BodyLength, Chunk, Fields, Level, Notice, Source, Status};
use evenkeel_proto::{CONTINUE, ChunkedDecoder, HttpProtocolOptions, Limits, Refusal, Step};
use evenkeel_sys::clock;
use std::cell::RefCell;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// A request's body that is still (partly) on the wire.
pub(crate) struct Incoming {
    link: Rc<Link>,
    state: RefCell<State>,
}

struct State {
    framing: Framing,
    /// `100 Continue` is to be sent before the first read that waits.
    expecting: bool,
    fate: Fate,
    /// Bytes that came, framing included.
    received: u64,
    trailers: Fields,
    /// Why it is broken.
    refusal: Option<Refusal>,
    /// What is told of a trailer section that is.
    trailer_fault: Option<Notice>,
    limits: Limits,
    options: HttpProtocolOptions,
    time: Option<ReadTime>,
    timeout_ms: u64,
    began_us: Option<u64>,
    alarm: Option<Pin<Box<Sleep>>>,
}

enum Framing {
    Exact(u64),
    Chunked(ChunkedDecoder),
}

/// How far the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// There is more.
    Open,
    /// It was read to its end.
    Read,
    /// It broke the rules of its framing.
    Broken,
    /// The client went away in the middle of it.
    Gone,
    /// It came too slowly.
    Late,
}

impl Incoming {
    /// The body that a head announces; none where it announces none.
    pub(crate) fn new(
        link: &Rc<Link>,
        length: BodyLength,
        expecting: bool,
        settings: &Settings,
    ) -> Option<Rc<Self>> {
        let framing = match length {
            BodyLength::None | BodyLength::Exact(0) => return None,
            BodyLength::Exact(length) => Framing::Exact(length),
            BodyLength::Chunked => Framing::Chunked(ChunkedDecoder::new()),
        };
        let state = State {
            framing,
            expecting,
            fate: Fate::Open,
            received: 0,
            trailers: Fields::new(),
            refusal: None,
            trailer_fault: None,
            limits: settings.limits,
            options: settings.options,
            time: settings.body_time,
            timeout_ms: settings.timeout_ms,
            began_us: None,
            alarm: None,
        };
        Some(Rc::new(Self { link: Rc::clone(link), state: RefCell::new(state) }))
    }

    /// The body as the request carries it.
    pub(crate) fn source(self: &Rc<Self>) -> Pin<Box<dyn Source>> {
        Box::pin(Handle(Rc::clone(self)))
    }

    pub(crate) fn fate(&self) -> Fate {
        self.state.borrow().fate
    }

    /// Whether the client still waits for `100 Continue`, so that the body may never come.
    pub(crate) fn is_expecting(&self) -> bool {
        self.state.borrow().expecting
    }

    /// Bytes that came so far, framing included.
    pub(crate) fn received(&self) -> u64 {
        self.state.borrow().received
    }

    /// What is to be told of its framing, once.
    pub(crate) fn take_faults(&self) -> impl Iterator<Item = Notice> + use<> {
        let mut state = self.state.borrow_mut();
        let refusal = state.refusal.take().map(|refusal| refusal.notice);
        refusal.into_iter().chain(state.trailer_fault.take())
    }

    /// The trailer fields, once the body has been read.
    pub(crate) fn take_trailers(&self) -> Fields {
        std::mem::take(&mut self.state.borrow_mut().trailers)
    }

    /// The next piece; `None` at the end. With `hold`, whoever reads goes on with a credit only.
    pub(crate) fn poll_chunk(&self, context: &mut Context<'_>, hold: bool) -> Poll<Chunk> {
        let mut state = self.state.borrow_mut();
        loop {
            let waits = state.fate == Fate::Open && self.link.inbox.borrow().is_empty();
            if hold && !waits {
                ready!(self.link.lease.poll_hold(context));
            }
            match state.fate {
                Fate::Open => {}
                Fate::Read => return Poll::Ready(None),
                Fate::Broken => return Poll::Ready(Some(Err(state.broken()))),
                Fate::Late => return Poll::Ready(Some(Err(ErrorKind::TimedOut.into()))),
                Fate::Gone => return Poll::Ready(Some(Err(ErrorKind::UnexpectedEof.into()))),
            }
            if let Some(piece) = state.take(&self.link) {
                return Poll::Ready(Some(Ok(piece)));
            }
            if state.fate == Fate::Open && self.link.inbox.borrow().is_empty() {
                ready!(self.poll_wire(&mut state, context));
            }
        }
    }

    /// Waits for more of the body, or finds out that it will not come.
    fn poll_wire(&self, state: &mut State, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut state.expecting) {
            // So few bytes always fit: the responses before them have been sent. Should they
            // not, the client sends its body after a while all the same (RFC 9110, 10.1.1).
            let _sent = self.link.send_now(CONTINUE);
        }
        match self.link.poll_fill(context) {
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::TimedOut => {
                state.fate = Fate::Late;
                Poll::Ready(())
            }
            Poll::Ready(Ok(0) | Err(_)) => {
                state.fate = Fate::Gone;
                Poll::Ready(())
            }
            Poll::Ready(Ok(_)) => {
                state.alarm = None;
                Poll::Ready(())
            }
            Poll::Pending if !waits_for_client() => Poll::Pending,
            Poll::Pending => {
                self.link.lease.release();
                ready!(state.poll_alarm(context));
                state.fate = Fate::Late;
                Poll::Ready(())
            }
        }
    }
}

impl State {
    /// The fault that its framing has: a chunk can be larger than any limit, and for a field of the
    /// trailer section there is a sentence for the client.
    fn broken(&self) -> io::Error {
        match &self.refusal {
            Some(refusal) if refusal.status == Status::CONTENT_TOO_LARGE => {
                ErrorKind::FileTooLarge.into()
            }
            Some(Refusal { detail, .. }) if !detail.is_empty() => {
                io::Error::new(ErrorKind::InvalidData, *detail)
            }
            _ => ErrorKind::InvalidData.into(),
        }
    }

    /// Notes that a trailer section cannot be read (http_filters.c: read_chunked_trailers).
    fn note_trailer(&mut self, refusal: &Refusal) {
        let between = if refusal.detail.is_empty() { "" } else { ": " };
        let (code, detail) = (refusal.status.code(), refusal.detail);
        let text = format!("Error while reading HTTP trailer: {code}{between}{detail}");
        self.trailer_fault = Some(Notice::new("http", Level::Info, 2656, text));
    }

    /// Takes data off the inbox, framing before it with it.
    fn take(&mut self, link: &Link) -> Option<Bytes> {
        let mut inbox = link.inbox.borrow_mut();
        let rest = inbox.rest();
        let (skip, length) = match &mut self.framing {
            Framing::Exact(left) => {
                let length = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                *left -= length as u64;
                (0, length)
            }
            Framing::Chunked(decoder) => {
                match decoder.decode(rest, &mut self.trailers, &self.limits, &self.options) {
                    Ok(Step::Data { skip, length }) => (skip, length),
                    Ok(Step::Partial) => (rest.len(), 0),
                    Ok(Step::End(used)) => {
                        self.fate = Fate::Read;
                        (used, 0)
                    }
                    Err(refusal) => {
                        self.fate = Fate::Broken;
                        let is_in_trailer = decoder.is_in_trailer();
                        let line = rest.iter().position(|byte| *byte == b'\n');
                        self.received += line.map_or(rest.len(), |at| at + 1) as u64;
                        if is_in_trailer {
                            self.note_trailer(&refusal);
                        }
                        self.refusal = Some(refusal);
                        return None;
                    }
                }
            }
        };
        let piece = rest.get(skip..skip + length).map(Bytes::copy_from_slice);
        inbox.consume(skip + length);
        self.received += (skip + length) as u64;
        if matches!(self.framing, Framing::Exact(0)) {
            self.fate = Fate::Read;
        }
        // What has begun to come needs no invitation.
        self.expecting &= length == 0;
        piece.filter(|piece| !piece.is_empty())
    }

    /// Ready once the client is too slow: no progress for Timeout, or less than
    /// RequestReadTimeout asks for.
    fn poll_alarm(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let now_us = clock::monotonic_us();
        let began_us = *self.began_us.get_or_insert(now_us);
        let alarm = self.alarm.get_or_insert_with(|| {
            let left_ms = self.time.map_or(u64::MAX, |time| {
                let gone_ms = now_us.saturating_sub(began_us) / 1000;
                time.allowed_ms(self.received).saturating_sub(gone_ms)
            });
            let wait = Duration::from_millis(left_ms.min(self.timeout_ms));
            Box::pin(tokio::time::sleep_until(Instant::now() + wait))
        });
        alarm.as_mut().poll(context)
    }
}

/// The body in the hands of a handler.
struct Handle(Rc<Incoming>);

impl Source for Handle {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        self.0.poll_chunk(context, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::link::Inbox;
    use crate::transport::link::tests::{pair, runtime, thread, use_up_turn};
    use std::future::poll_fn;
    use std::io::Read;

    #[test]
    fn a_body_that_is_read_by_a_task_whose_turn_is_over_is_asked_for_and_keeps_its_credit() {
        let (mut client, socket) = pair();
        let thread = thread();
        let gate = &thread.place.gate;
        let link = Link::new(&thread, socket, Inbox::default(), true, gate.take());
        let settings = Settings::default();
        let body = Incoming::new(&link, BodyLength::Exact(5), true, &settings).unwrap();
        let runtime = runtime();
        runtime.block_on(poll_fn(|context| {
            // The runtime watches the socket from here on.
            assert!(link.poll_fill(context).is_pending(), "nothing has come");
            use_up_turn(context);
            assert!(body.poll_chunk(context, true).is_pending());
            let mut asked = [0; 64];
            assert_eq!(client.read(&mut asked).unwrap(), CONTINUE.len());
            assert!(gate.take().is_none(), "whether the client is slow is not known");
            Poll::Ready(())
        }));
        runtime.block_on(poll_fn(|context| {
            assert!(body.poll_chunk(context, true).is_pending());
            assert!(gate.take().is_some(), "the client is slow");
            Poll::Ready(())
        }));
    }
}
