//! TRACE (RFC 9110, section 9.3.8): a request comes in, a response goes out that shows it as it
//! came (http_filters.c: ap_send_http_trace). It is answered before any access check, as in
//! Apache, since it tells a client only what the client said.

use crate::body::check_length;
use crate::site::Plan;
use bytes::Bytes;
use evenkeel_message::{
    Answer, Body, BodyLength, Chunk, Fields, Level, Notice, Request, Response, Source, Status,
    quoted,
};
use evenkeel_modules::core::TraceEnable;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// How much of a body an extended TRACE shows, in bytes.
const LONGEST_BODY: u64 = 65_536;

/// The answer under the directives TraceEnable and LimitRequestBody. A body in chunks that turns
/// out to be too long breaks the answer off: its beginning has been sent by then.
pub(crate) fn trace(request: &mut Request, enabled: Option<TraceEnable>, plan: &Plan) -> Answer {
    let has_body = !matches!(request.head.length, BodyLength::None | BodyLength::Exact(0));
    match enabled.unwrap_or(TraceEnable::On) {
        // Apache lists nothing here, not even what other methods there are.
        TraceEnable::Off => {
            let mut fields = Fields::new();
            fields.add("Allow", "");
            return Answer::Status(Status::METHOD_NOT_ALLOWED, fields);
        }
        TraceEnable::On if has_body => {
            let path = quoted(&request.path);
            let text = format!("TRACE with body is not allowed for {path}");
            request.notify(Notice::new("http", Level::Info, 1595, text));
            return Status::CONTENT_TOO_LARGE.into();
        }
        TraceEnable::On | TraceEnable::Extended => {}
    }
    if matches!(request.head.length, BodyLength::Exact(length) if length > LONGEST_BODY) {
        request.notes.set("error-notes", "Extended TRACE request bodies cannot exceed 64k\n");
        return Status::CONTENT_TOO_LARGE.into();
    }
    let limit = match check_length(request, plan) {
        Ok(limit) => limit,
        Err(status) => return status.into(),
    };
    let mut text = request.head.line.clone();
    text.extend_from_slice(b"\r\n");
    request.head.fields.write(&mut text);
    text.extend_from_slice(b"\r\n");
    let body = request.body.take();
    let mut response = Response::new(Status::OK);
    response.fields.set("Content-Type", "message/http");
    let echo = Echo { head: Some(text.into()), body, left: limit.min(LONGEST_BODY) };
    response.body = Body::Stream(Box::pin(echo), None);
    Answer::Response(Box::new(response))
}

/// The head as it came, then the body as it comes.
struct Echo {
    head: Option<Bytes>,
    body: Option<Pin<Box<dyn Source>>>,
    left: u64,
}

impl Source for Echo {
    fn poll_chunk(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Some(Ok(head)));
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let chunk = ready!(body.as_mut().poll_chunk(context));
        if let Some(Ok(bytes)) = &chunk {
            match self.left.checked_sub(bytes.len() as u64) {
                Some(left) => self.left = left,
                None => {
                    self.body = None;
                    let error = io::Error::from(io::ErrorKind::FileTooLarge);
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Ready(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{Peer, RequestHead};
    use std::task::Waker;

    fn request(length: BodyLength) -> Request {
        let end = "127.0.0.1:80".parse().unwrap();
        let mut head = RequestHead { length, ..RequestHead::default() };
        head.line = b"TRACE / HTTP/1.1".to_vec();
        head.fields.add("Host", "a");
        Request::new(head, Peer { client: end, local: end }, 0)
    }

    fn shown(answer: Answer) -> Vec<u8> {
        let Answer::Response(response) = answer else { panic!("{answer:?}") };
        let Body::Stream(mut source, None) = response.body else { panic!("no stream") };
        let mut context = Context::from_waker(Waker::noop());
        let mut all = Vec::new();
        while let Poll::Ready(Some(chunk)) = source.as_mut().poll_chunk(&mut context) {
            all.extend_from_slice(&chunk.unwrap());
        }
        all
    }

    fn status(answer: &Answer) -> u16 {
        match answer {
            Answer::Status(status, _) => status.code(),
            _ => 200,
        }
    }

    #[test]
    fn the_request_is_shown_as_it_came() {
        let answer = trace(&mut request(BodyLength::None), None, &Plan::default());
        assert_eq!(shown(answer), b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n");
        struct Once(Option<Bytes>);
        impl Source for Once {
            fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
                Poll::Ready(self.0.take().map(Ok))
            }
        }
        let mut with_body = request(BodyLength::Exact(2));
        with_body.body = Some(Box::pin(Once(Some(Bytes::from_static(b"hi")))));
        let answer = trace(&mut with_body, Some(TraceEnable::Extended), &Plan::default());
        assert!(shown(answer).ends_with(b"\r\n\r\nhi"));
    }

    #[test]
    fn the_directive_and_the_body_decide() {
        let on = Some(TraceEnable::On);
        assert_eq!(status(&trace(&mut request(BodyLength::Exact(0)), on, &Plan::default())), 200);
        let mut refused = request(BodyLength::Exact(1));
        assert_eq!(status(&trace(&mut refused, on, &Plan::default())), 413);
        assert_eq!(refused.notices.first().and_then(|notice| notice.number), Some(1595));
        assert_eq!(
            status(&trace(
                &mut request(BodyLength::None),
                Some(TraceEnable::Off),
                &Plan::default()
            )),
            405
        );
        let extended = Some(TraceEnable::Extended);
        assert_eq!(
            status(&trace(&mut request(BodyLength::Exact(65_537)), extended, &Plan::default())),
            413
        );
    }

    #[test]
    fn a_body_is_held_to_the_limit_of_bodies_too() {
        let mut plan = Plan::default();
        plan.core.limit_request_body = Some(3);
        let extended = Some(TraceEnable::Extended);
        assert_eq!(status(&trace(&mut request(BodyLength::Exact(3)), extended, &plan)), 200);
        let mut refused = request(BodyLength::Exact(4));
        assert_eq!(status(&trace(&mut refused, extended, &plan)), 413);
        assert_eq!(refused.notices.first().and_then(|notice| notice.number), Some(1588));
    }
}
