//! Waits for the beginning of a body that a program makes, so that a program that fails at once is
//! answered with an error, and a short output is sent with its length.

use bytes::{Bytes, BytesMut};
use evenkeel_message::{Body, Chunk, Departure, MayWait, Source};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::sleep;

/// The most bytes of an output that are sent whole, with their length.
const MOST_WHOLE: usize = 64 << 10;

/// After this time, an output is sent as far as it has come, and a client may leave.
const ASKED_AFTER: Duration = Duration::from_millis(250);

/// Waits for the first bytes of a body, and then for its end if it comes soon. Returns `None` if
/// the body ends with an error before any of it can be sent, or if the client leaves.
pub async fn gather(_: &MayWait, body: Body, departure: &Departure) -> Option<Body> {
    let (mut source, length) = match body {
        Body::Stream(source, length) => (source, length),
        body => return Some(body),
    };
    let mut first = BytesMut::new();
    let mut asked = pin!(sleep(ASKED_AFTER));
    let mut is_late = false;
    while first.len() <= MOST_WHOLE {
        let next = poll_fn(|context| {
            if let Poll::Ready(chunk) = source.as_mut().poll_chunk(context) {
                return Poll::Ready(Some(chunk));
            }
            is_late = is_late || asked.as_mut().poll(context).is_ready();
            match is_late && (!first.is_empty() || departure.is_told()) {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        });
        match next.await {
            Some(Some(Ok(bytes))) => first.extend_from_slice(&bytes),
            Some(Some(Err(_))) => return None,
            Some(None) => return Some(Body::Bytes(first.freeze())),
            None if first.is_empty() => return None,
            None => break,
        }
    }
    let begun = Begun { first: Some(first.freeze()), source };
    Some(Body::Stream(Box::pin(begun), length))
}

/// A body whose first bytes were received.
struct Begun {
    first: Option<Bytes>,
    source: Pin<Box<dyn Source>>,
}

impl Source for Begun {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        let this = self.get_mut();
        match this.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => this.source.as_mut().poll_chunk(context),
        }
    }

    fn held(&self) -> u64 {
        self.first.as_ref().map_or(0, |first| first.len() as u64) + self.source.held()
    }

    fn poll_ahead(self: Pin<&mut Self>, context: &mut Context<'_>, most: u64) {
        self.get_mut().source.as_mut().poll_ahead(context, most);
    }

    fn is_expensive(&self) -> bool {
        self.source.is_expensive()
    }

    fn ends_with_client(&self) -> bool {
        self.first.is_none() && self.source.ends_with_client()
    }
}
