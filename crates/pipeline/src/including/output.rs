//! The body of a response that is made in parts while it is sent. What makes it puts its parts into
//! an [`Outbox`], which holds a bounded number of bytes.

use bytes::Bytes;
use evenkeel_message::{Body, Chunk, Source};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The bytes of parts that wait to be sent, beyond which no more are made.
const FULL: usize = 32 << 10;

/// Parts up to this length are sent together with their neighbours.
const SHORT: usize = 4 << 10;

/// The parts that were made and not sent yet.
#[derive(Default)]
pub(super) struct Outbox {
    parts: RefCell<VecDeque<Bytes>>,
    held: Cell<usize>,
    /// Short parts, which are sent together.
    gathered: RefCell<Vec<u8>>,
}

impl Outbox {
    /// Adds a part, when there is room for it.
    pub(super) async fn send(&self, part: Bytes) {
        if part.is_empty() {
            return;
        }
        // Nobody wakes this: the parts are taken by what polls it.
        poll_fn(|_| if self.held.get() < FULL { Poll::Ready(()) } else { Poll::Pending }).await;
        self.held.set(self.held.get() + part.len());
        if part.len() <= SHORT {
            self.gathered.borrow_mut().extend_from_slice(&part);
            return;
        }
        self.gather();
        self.parts.borrow_mut().push_back(part);
    }

    fn gather(&self) {
        let mut gathered = self.gathered.borrow_mut();
        if !gathered.is_empty() {
            self.parts.borrow_mut().push_back(std::mem::take(&mut *gathered).into());
        }
    }

    fn take(&self) -> Option<Bytes> {
        if self.parts.borrow().is_empty() {
            self.gather();
        }
        let part = self.parts.borrow_mut().pop_front()?;
        self.held.set(self.held.get().saturating_sub(part.len()));
        Some(part)
    }

    fn is_full(&self) -> bool {
        self.held.get() >= FULL
    }
}

/// What makes the parts.
type Maker = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// A body that is made in parts.
pub(super) struct Parts {
    /// None once it has ended.
    maker: Option<Maker>,
    failed: Option<io::Error>,
    outbox: Rc<Outbox>,
}

impl Parts {
    pub(super) fn new(maker: Maker, outbox: Rc<Outbox>) -> Self {
        Self { maker: Some(maker), failed: None, outbox }
    }

    /// The body: bytes if all parts can be made at once, and a stream otherwise.
    pub(super) fn into_body(mut self) -> Body {
        self.make(&mut Context::from_waker(Waker::noop()));
        if self.maker.is_some() || self.failed.is_some() || self.outbox.is_full() {
            return Body::Stream(Box::pin(self), None);
        }
        let mut whole = match self.outbox.take() {
            None => return Body::Empty,
            Some(first) => first,
        };
        while let Some(part) = self.outbox.take() {
            whole = [&*whole, &*part].concat().into();
        }
        Body::Bytes(whole)
    }

    /// Makes parts until that has to wait.
    fn make(&mut self, context: &mut Context<'_>) {
        let Some(maker) = &mut self.maker else { return };
        if let Poll::Ready(result) = maker.as_mut().poll(context) {
            self.maker = None;
            self.failed = result.err();
        }
    }
}

impl Source for Parts {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        let this = self.get_mut();
        if !this.outbox.is_full() {
            this.make(context);
        }
        if let Some(part) = this.outbox.take() {
            return Poll::Ready(Some(Ok(part)));
        }
        match (&this.maker, this.failed.take()) {
            (_, Some(error)) => Poll::Ready(Some(Err(error))),
            (None, None) => Poll::Ready(None),
            (Some(_), None) => Poll::Pending,
        }
    }

    fn held(&self) -> u64 {
        self.outbox.held.get() as u64
    }

    /// A page that waits for a part ends when its client disconnects.
    fn ends_with_client(&self) -> bool {
        self.maker.is_some() && self.outbox.held.get() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(source: &mut Parts) -> Poll<Option<usize>> {
        let chunk = Pin::new(source).poll_chunk(&mut Context::from_waker(Waker::noop()));
        chunk.map(|chunk| chunk.map(|chunk| chunk.unwrap().len()))
    }

    fn parts(lengths: &'static [usize]) -> Parts {
        let outbox = Rc::new(Outbox::default());
        let own = Rc::clone(&outbox);
        let maker = async move {
            for length in lengths {
                own.send(vec![b'x'; *length].into()).await;
            }
            Ok(())
        };
        Parts::new(Box::pin(maker), outbox)
    }

    #[test]
    fn short_parts_are_sent_together() {
        let Body::Bytes(bytes) = parts(&[1, 2, 5000, 3]).into_body() else { panic!("a stream") };
        assert_eq!(bytes.len(), 5006);
        assert!(matches!(parts(&[]).into_body(), Body::Empty));
        let mut source = parts(&[1, 2, 5000, 3]);
        for length in [3, 5000, 3] {
            assert_eq!(next(&mut source), Poll::Ready(Some(length)));
        }
        assert_eq!(next(&mut source), Poll::Ready(None));
    }

    #[test]
    fn no_more_is_made_than_there_is_room_for() {
        let mut source = parts(&[20_000, 20_000, 20_000, 20_000]);
        source.make(&mut Context::from_waker(Waker::noop()));
        assert_eq!(source.held(), 40_000);
        let mut sum = 0;
        while let Poll::Ready(Some(length)) = next(&mut source) {
            assert!(source.held() <= 40_000);
            sum += length;
        }
        assert_eq!(sum, 80_000);
    }
}
