//! mod_data: the output filter `DATA`, which turns a body into a data URL (RFC 2397).

pub use crate::{NoSettings as Directory, NoSettings as Global, NoSettings as Server};

use crate::compression::at_once;
use crate::{Active, Effect, Means, Module, OutputFilter, Provided, RequestBody};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use evenkeel_message::{Answer, Body, Chunk, FilterPosition, Name, Request, Response, Source};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// mod_data.
pub const MODULE: Module = Module {
    file: "mod_data.c",
    identifier: "data_module",
    active: Active::WhenNamed,
    page: "mod_data",
    subject: "Bodies as data URLs: the output filter `DATA`.",
    remarks: &[],
    directives: &[],
    provides: &[Provided::OutputFilter(DATA)],
};

/// The filter.
const DATA: OutputFilter = OutputFilter {
    name: "DATA",
    position: FilterPosition::RESOURCE,
    begin: None,
    act,
    external: None,
};

/// Turns the body of a response into a data URL (mod_data.c: data_out_filter).
fn act(
    request: &mut Request,
    means: &Means<'_>,
    response: &mut Response,
) -> Result<Effect, Answer> {
    let is_initial = request.resource.depth == 0 && request.previous.is_none();
    if !is_initial || response.status.is_bodiless() {
        return Ok(Effect::Nothing);
    }
    let begin = beginning(response.fields.first(Name::ContentType).unwrap_or_default());
    response.fields.set(Name::ContentType, "text/plain");
    if matches!(response.body, Body::Empty) {
        response.body = Body::Bytes(begin.into());
        return Ok(Effect::Changed);
    }
    if let Some(bytes) = at_once(&response.body) {
        let encoded = [&*begin, STANDARD.encode(&bytes).as_bytes()].concat();
        response.body = Body::Bytes(encoded.into());
        return Ok(Effect::Changed);
    }
    let length = response.body.length();
    let length = length.map(|length| begin.len() as u64 + length.div_ceil(3) * 4);
    let content = means.subrequests.source_of(std::mem::take(&mut response.body));
    let body = Encoded { content, out: begin, tail: Vec::new(), is_over: false };
    response.body = Body::Stream(Box::pin(body), length);
    Ok(Effect::Changed)
}

/// The beginning of the URL: the type and the parameter behind its first space.
fn beginning(media_type: &[u8]) -> Vec<u8> {
    let mut words = media_type.split(|byte| *byte == b' ');
    let (name, parameter) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    [&b"data:"[..], name, parameter, b";base64,"].concat()
}

/// A body that is encoded as it is sent.
struct Encoded {
    content: RequestBody,
    /// What is sent next.
    out: Vec<u8>,
    /// Bytes that are less than three.
    tail: Vec<u8>,
    is_over: bool,
}

impl Source for Encoded {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        let this = self.get_mut();
        loop {
            if !this.out.is_empty() {
                return Poll::Ready(Some(Ok(Bytes::from(std::mem::take(&mut this.out)))));
            }
            if this.is_over {
                return Poll::Ready(None);
            }
            match ready!(this.content.as_mut().poll_chunk(context)) {
                Some(Ok(bytes)) => {
                    this.tail.extend_from_slice(&bytes);
                    let whole = this.tail.len() - this.tail.len() % 3;
                    let rest = this.tail.split_off(whole);
                    let whole = std::mem::replace(&mut this.tail, rest);
                    this.out = STANDARD.encode(whole).into_bytes();
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    this.out = STANDARD.encode(std::mem::take(&mut this.tail)).into_bytes();
                    this.is_over = true;
                }
            }
        }
    }

    fn held(&self) -> u64 {
        (self.out.len() + self.tail.len()) as u64 + self.content.held()
    }

    fn ends_with_client(&self) -> bool {
        self.content.ends_with_client()
    }

    fn is_expensive(&self) -> bool {
        self.content.is_expensive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    struct Pieces(Vec<&'static [u8]>);

    impl Source for Pieces {
        fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
            let next = (!self.0.is_empty()).then(|| self.0.remove(0));
            Poll::Ready(next.map(|bytes| Ok(Bytes::from_static(bytes))))
        }
    }

    #[test]
    fn a_body_in_pieces_is_encoded_as_a_whole() {
        let content: RequestBody = Box::pin(Pieces(vec![b"a", b"bcd", b"", b"efgh", b"ij"]));
        let out = beginning(b"text/html; charset=utf-8 x");
        let mut encoded = Encoded { content, out, tail: Vec::new(), is_over: false };
        let mut context = Context::from_waker(Waker::noop());
        let mut text = Vec::new();
        while let Poll::Ready(Some(chunk)) = Pin::new(&mut encoded).poll_chunk(&mut context) {
            text.extend_from_slice(&chunk.unwrap());
        }
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "data:text/html;charset=utf-8;base64,YWJjZGVmZ2hpag==");
        assert_eq!(beginning(b""), b"data:;base64,");
    }
}
