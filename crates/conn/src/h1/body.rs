//! Reads the body of a request in the framing of HTTP/1: by its length, or in chunks (RFC 9112,
//! section 6).

use crate::exchange::request_body::{BodyReader, Taken};
use crate::site::Settings;
use crate::transport::link::Link;
use bytes::Bytes;
use evenkeel_message::{BodyLength, Fields, Level, Notice, Status};
use evenkeel_proto::{CONTINUE, ChunkedDecoder, HttpProtocolOptions, Limits, Refusal, Step};
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll};

/// The body of a request on its connection.
pub(crate) struct H1Body {
    link: Rc<Link>,
    framing: Framing,
    is_complete: bool,
    /// Bytes that came, framing included.
    received: u64,
    trailers: Fields,
    /// Why it is broken.
    refusal: Option<Refusal>,
    /// What the error log is told of a trailer section that is.
    trailer_fault: Option<Notice>,
    limits: Limits,
    options: HttpProtocolOptions,
}

enum Framing {
    /// So many bytes are still to come.
    Exact(u64),
    Chunked(ChunkedDecoder),
}

impl H1Body {
    /// The body that a head announces; none where it announces none.
    pub(crate) fn new(link: &Rc<Link>, length: BodyLength, settings: &Settings) -> Option<Self> {
        let framing = match length {
            BodyLength::None | BodyLength::Exact(0) => return None,
            BodyLength::Exact(length) => Framing::Exact(length),
            BodyLength::Chunked => Framing::Chunked(ChunkedDecoder::new()),
        };
        Some(Self {
            link: Rc::clone(link),
            framing,
            is_complete: false,
            received: 0,
            trailers: Fields::new(),
            refusal: None,
            trailer_fault: None,
            limits: settings.limits,
            options: settings.options,
        })
    }

    /// Notes that a trailer section cannot be read (http_filters.c: read_chunked_trailers).
    fn note_trailer(&mut self, refusal: &Refusal) {
        let between = if refusal.detail.is_empty() { "" } else { ": " };
        let (code, detail) = (refusal.status.code(), refusal.detail);
        let text = format!("Error while reading HTTP trailer: {code}{between}{detail}");
        self.trailer_fault = Some(Notice::new("http", Level::Info, 2656, text));
    }
}

impl BodyReader for H1Body {
    fn has_arrived(&self) -> bool {
        !self.link.inbox.borrow().is_empty()
    }

    fn take(&mut self) -> Taken {
        let link = Rc::clone(&self.link);
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
                        self.is_complete = true;
                        (used, 0)
                    }
                    Err(refusal) => {
                        let is_in_trailer = decoder.is_in_trailer();
                        let line = rest.iter().position(|byte| *byte == b'\n');
                        self.received += line.map_or(rest.len(), |at| at + 1) as u64;
                        if is_in_trailer {
                            self.note_trailer(&refusal);
                        }
                        self.refusal = Some(refusal);
                        return Taken::Broken;
                    }
                }
            }
        };
        let piece = rest.get(skip..skip + length).map(Bytes::copy_from_slice);
        inbox.consume(skip + length);
        self.received += (skip + length) as u64;
        self.is_complete |= matches!(self.framing, Framing::Exact(0));
        piece.filter(|piece| !piece.is_empty()).map_or(Taken::Nothing, Taken::Data)
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.link.poll_fill(context)
    }

    fn send_continue(&mut self) {
        // So few bytes always fit: the responses before them have been sent. Should they not, the
        // client sends its body after a while all the same (RFC 9110, 10.1.1).
        let _sent = self.link.send_now(CONTINUE);
    }

    fn received(&self) -> u64 {
        self.received
    }

    /// A chunk can be larger than any limit, and for a field of the trailer section there is a
    /// sentence for the client.
    fn fault(&self) -> io::Error {
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

    fn take_notices(&mut self) -> Vec<Notice> {
        let refusal = self.refusal.take().map(|refusal| refusal.notice);
        refusal.into_iter().chain(self.trailer_fault.take()).collect()
    }

    fn take_trailers(&mut self) -> Fields {
        std::mem::take(&mut self.trailers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::credit::Lease;
    use crate::exchange::request_body::RequestBody;
    use crate::transport::link::Inbox;
    use crate::transport::link::tests::{pair, runtime, thread, use_up_turn};
    use std::future::poll_fn;
    use std::io::Read;

    #[test]
    fn a_body_that_is_read_by_a_task_whose_turn_is_over_is_asked_for_and_keeps_its_credit() {
        let (mut client, socket) = pair();
        let thread = thread();
        let gate = &thread.place.gate;
        let link = Link::new(&thread, socket, Inbox::default(), true);
        let lease = Rc::new(Lease::new(&thread.place, gate.take()));
        let settings = Settings::default();
        let body = H1Body::new(&link, BodyLength::Exact(5), &settings).unwrap();
        let body = RequestBody::new(body, &lease, true, &settings);
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
