//! TRACE (RFC 9110, section 9.3.8): a request comes in, a response goes out that shows it as it
//! came (http_filters.c: ap_send_http_trace). It is answered before any access check, as in
//! Apache, since it tells a client only what the client said.

use crate::body;
use crate::site::Plan;
use bytes::Bytes;
use evenkeel_message::{
    Answer, Body, BodyLength, Chunk, Fields, Level, MayWait, Notice, Request, Response, Source,
    Status, quoted,
};
use evenkeel_modules::core::TraceEnable;
use std::pin::Pin;
use std::task::{Context, Poll};

/// How much of a body an extended TRACE shows, in bytes.
const LONGEST_BODY: usize = 65_536;

/// Whether TraceEnable lets the request be shown.
///
/// # Errors
/// The answer if it does not.
pub(crate) fn check(request: &mut Request, enabled: Option<TraceEnable>) -> Result<(), Answer> {
    let has_body = !matches!(request.head.length, BodyLength::None | BodyLength::Exact(0));
    match enabled.unwrap_or(TraceEnable::On) {
        // Apache lists nothing here, not even what other methods there are.
        TraceEnable::Off => {
            let mut fields = Fields::new();
            fields.add("Allow", "");
            return Err(Answer::with_fields(Status::METHOD_NOT_ALLOWED, fields));
        }
        TraceEnable::On if has_body => {
            let path = quoted(&request.resource.path);
            let text = format!("TRACE with body is not allowed for {path}");
            request.notify(Notice::new("http", Level::Info, 1595, text));
            return Err(Status::CONTENT_TOO_LARGE.into());
        }
        TraceEnable::On | TraceEnable::Extended => {}
    }
    if matches!(request.head.length, BodyLength::Exact(length) if length > LONGEST_BODY as u64) {
        return Err(too_long(request).into());
    }
    Ok(())
}

/// The answer with the head alone.
pub(crate) fn show(request: &Request) -> Response {
    answer(head(request))
}

/// The answer with head and body. It begins when the body is whole, so that one that is malformed
/// or too long is refused.
///
/// # Errors
/// As [`body::read`].
pub(crate) async fn show_whole(
    request: &mut Request,
    plan: &Plan,
    may_wait: &MayWait,
) -> Result<Response, Status> {
    let mut text = head(request);
    let most = text.len() + LONGEST_BODY;
    let mut is_too_long = false;
    body::begin(request, plan, false)?;
    let read = body::read(request, may_wait, |bytes| {
        is_too_long = text.len() + bytes.len() > most;
        text.extend_from_slice(bytes);
        if is_too_long { Err(Status::CONTENT_TOO_LARGE) } else { Ok(()) }
    });
    match read.await {
        Ok(()) => Ok(answer(text)),
        Err(_) if is_too_long => Err(too_long(request)),
        Err(status) => Err(status),
    }
}

fn too_long(request: &mut Request) -> Status {
    request.resource.notes.set("error-notes", "Extended TRACE request bodies cannot exceed 64k\n");
    Status::CONTENT_TOO_LARGE
}

/// The head as it came.
fn head(request: &Request) -> Vec<u8> {
    let mut text = request.head.line.clone();
    text.extend_from_slice(b"\r\n");
    request.fields().write(&mut text);
    text.extend_from_slice(b"\r\n");
    text
}

fn answer(text: Vec<u8>) -> Response {
    let mut response = Response::new(Status::OK);
    response.fields.set("Content-Type", "message/http");
    response.body = Body::Stream(Box::pin(Echo(Some(text.into()))), None);
    response
}

/// A text whose length is not told, as Apache tells none.
struct Echo(Option<Bytes>);

impl Source for Echo {
    fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{Peer, RequestHead};
    use std::io::{self, ErrorKind};
    use std::task::Waker;

    fn request(length: BodyLength) -> Request {
        let end = "127.0.0.1:80".parse().unwrap();
        let mut head = RequestHead { length, ..RequestHead::default() };
        head.line = b"TRACE / HTTP/1.1".to_vec();
        head.fields.add("Host", "a");
        Request::new(head, Peer { client: end, local: end }, 0)
    }

    fn shown(mut response: Response) -> Vec<u8> {
        let Body::Stream(source, None) = &mut response.body else { panic!("no stream") };
        let mut context = Context::from_waker(Waker::noop());
        let mut all = Vec::new();
        while let Poll::Ready(Some(chunk)) = source.as_mut().poll_chunk(&mut context) {
            all.extend_from_slice(&chunk.unwrap());
        }
        all
    }

    struct Pieces(Vec<io::Result<Bytes>>);

    impl Source for Pieces {
        fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
            Poll::Ready((!self.0.is_empty()).then(|| self.0.remove(0)))
        }
    }

    fn whole(pieces: Vec<io::Result<Bytes>>, limit: Option<u64>) -> Result<Vec<u8>, u16> {
        let mut request = request(BodyLength::Chunked);
        request.body = Some(Box::pin(Pieces(pieces)));
        let mut plan = Plan::default();
        plan.core.limit_request_body = limit;
        let may_wait = MayWait::in_task();
        let mut future = Box::pin(show_whole(&mut request, &plan, &may_wait));
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.map(shown).map_err(Status::code),
            Poll::Pending => panic!("the pieces are all there"),
        }
    }

    #[test]
    fn the_request_is_shown_as_it_came() {
        let text = b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(shown(show(&request(BodyLength::None))), text);
        let hi = Ok(Bytes::from_static(b"hi"));
        assert_eq!(whole(vec![hi], None), Ok([&text[..], b"hi"].concat()));
    }

    #[test]
    fn nothing_is_shown_of_a_body_that_is_refused() {
        let piece = |length| Ok(Bytes::from(vec![b'x'; length]));
        let broken = Err(ErrorKind::InvalidData.into());
        assert_eq!(whole(vec![piece(1), broken], None), Err(400));
        assert_eq!(whole(vec![piece(2), piece(2)], Some(3)), Err(413));
        assert_eq!(whole(vec![piece(LONGEST_BODY), piece(1)], None), Err(413));
        assert!(whole(vec![piece(LONGEST_BODY - 1), piece(1)], None).is_ok());
    }

    #[test]
    fn the_directive_and_the_body_decide() {
        let status = |length, enabled| match check(&mut request(length), Some(enabled)) {
            Ok(()) => 200,
            Err(Answer::Status(status, _)) => status.code(),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(status(BodyLength::Exact(0), TraceEnable::On), 200);
        assert_eq!(status(BodyLength::Exact(1), TraceEnable::On), 413);
        assert_eq!(status(BodyLength::None, TraceEnable::Off), 405);
        assert_eq!(status(BodyLength::Exact(65_536), TraceEnable::Extended), 200);
        assert_eq!(status(BodyLength::Exact(65_537), TraceEnable::Extended), 413);
        let mut refused = request(BodyLength::Exact(1));
        assert!(check(&mut refused, Some(TraceEnable::On)).is_err());
        assert_eq!(refused.notices.first().and_then(|notice| notice.number), Some(1595));
    }
}
