//! The body of a request as its handler gets it: a stream, bounded by LimitRequestBody. The body is
//! read away before a handler that does not want it, so that the next request on the connection
//! begins where it should (http_filters.c: ap_discard_request_body, ap_http_filter).

use crate::site::Plan;
use bytes::BytesMut;
use evenkeel_message::{
    BeyondLimit, BodyLength, Level, MayWait, Notice, Request, Source, Status, limited,
};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;

/// LimitRequestBody where nothing is said: 1 GiB, as in Apache since 2.4.54.
const LIMIT_BYTES: u64 = 1 << 30;

/// Makes the body of a request one of which no more comes than LimitRequestBody lets. Neither the
/// directive nor its default applies to a request that is passed on to an application, which has
/// limits of its own (http_filters.c: ap_http_filter), except one by SCGI or the protocol of uWSGI.
///
/// # Errors
/// 413 where its length, which the head tells, is beyond that.
pub(crate) fn begin(request: &mut Request, plan: &Plan, is_passed_on: bool) -> Result<(), Status> {
    if is_passed_on {
        return Ok(());
    }
    let limit = check_length(request, plan)?;
    let bound = |body| Box::pin(limited(body, limit)) as Pin<Box<dyn Source>>;
    request.body = request.body.take().map(bound);
    Ok(())
}

/// Reads the body and forgets it.
///
/// # Errors
/// As [`read`].
pub(crate) async fn discard(request: &mut Request, may_wait: &MayWait) -> Result<(), Status> {
    read(request, may_wait, |_| Ok(())).await
}

/// Reads the body, which is bounded, and keeps it for its handler and for what a page includes.
///
/// # Errors
/// As [`read`].
pub(crate) async fn keep(request: &mut Request, may_wait: &MayWait) -> Result<(), Status> {
    let mut bytes = BytesMut::new();
    read(request, may_wait, |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })
    .await?;
    request.keep_body(bytes.freeze());
    Ok(())
}

/// Reads the body to its end and hands its pieces to `take`.
///
/// # Errors
/// 413 for a body beyond LimitRequestBody, 400 for one that is malformed or ends too soon, 408
/// for one that is too slow, and what `take` refuses it with.
pub(crate) async fn read(
    request: &mut Request,
    _: &MayWait,
    mut take: impl FnMut(&[u8]) -> Result<(), Status>,
) -> Result<(), Status> {
    let Some(mut body) = request.body.take() else { return Ok(()) };
    while let Some(chunk) = poll_fn(|context| body.as_mut().poll_chunk(context)).await {
        match chunk {
            Ok(bytes) => take(&bytes)?,
            Err(error) => return Err(refuse(request, &error)),
        }
    }
    Ok(())
}

/// What answers a request whose body cannot be read.
pub(crate) fn refuse(request: &mut Request, error: &io::Error) -> Status {
    let detail = error.get_ref();
    match detail.and_then(|detail| detail.downcast_ref::<BeyondLimit>()) {
        Some(beyond) => {
            request.notify(Notice::new("http", Level::Info, 1591, beyond.to_string()));
        }
        None => {
            if let Some(detail) = detail {
                request.resource.notes.set("error-notes", detail.to_string());
            }
        }
    }
    status_of(error.kind())
}

/// LimitRequestBody, in bytes.
pub(crate) fn limit(plan: &Plan) -> u64 {
    match plan.core.limit_request_body {
        None => LIMIT_BYTES,
        Some(0) => u64::MAX,
        Some(limit) => limit,
    }
}

/// Compares the length of the body in the head with LimitRequestBody, and returns the limit. An
/// error document of a connection that closes has no body (http_filters.c:
/// `ap_discard_request_body`).
///
/// # Errors
/// 413 where it does.
pub(crate) fn check_length(request: &mut Request, plan: &Plan) -> Result<u64, Status> {
    let limit = limit(plan);
    if request.resource.status.drops_connection() {
        request.body = None;
        return Ok(limit);
    }
    match request.head.length {
        BodyLength::Exact(length) if length > limit => {
            request.body = None;
            let text = format!(
                "Requested content-length of {length} is larger than the configured limit of \
                 {limit}"
            );
            request.notify(Notice::new("http", Level::Info, 1588, text));
            Err(Status::CONTENT_TOO_LARGE)
        }
        _ => Ok(limit),
    }
}

fn status_of(kind: ErrorKind) -> Status {
    match kind {
        ErrorKind::TimedOut => Status::REQUEST_TIMEOUT,
        ErrorKind::FileTooLarge => Status::CONTENT_TOO_LARGE,
        _ => Status::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use evenkeel_message::{Chunk, Peer, RequestHead, Source};
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    struct Pieces(Vec<Chunk>);

    impl Source for Pieces {
        fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
            let next = if self.0.is_empty() { None } else { self.0.remove(0) };
            Poll::Ready(next)
        }
    }

    fn outcome(pieces: Vec<Chunk>, limit: Option<u64>) -> Result<(), Status> {
        outcome_of(pieces, limit, false)
    }

    fn outcome_of(
        pieces: Vec<Chunk>,
        limit: Option<u64>,
        is_passed_on: bool,
    ) -> Result<(), Status> {
        let address = "127.0.0.1:1".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        request.body = Some(Box::pin(Pieces(pieces)));
        let mut plan = Plan::default();
        plan.core.limit_request_body = limit;
        begin(&mut request, &plan, is_passed_on)?;
        let may_wait = MayWait::in_task();
        let mut future = Box::pin(discard(&mut request, &may_wait));
        let mut context = Context::from_waker(Waker::noop());
        match future.as_mut().poll(&mut context) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("the pieces are all there"),
        }
    }

    #[test]
    fn a_body_is_read_to_its_end_and_bounded() {
        let piece = || Some(Ok(Bytes::from_static(b"12345")));
        assert_eq!(outcome(vec![piece(), piece()], None), Ok(()));
        assert_eq!(outcome(vec![piece(), piece()], Some(10)), Ok(()));
        assert_eq!(outcome(vec![piece(), piece()], Some(9)), Err(Status::CONTENT_TOO_LARGE));
        assert_eq!(outcome(vec![piece(), piece()], Some(0)), Ok(()));
        assert_eq!(outcome_of(vec![piece(), piece()], Some(9), true), Ok(()));
        let broken = Some(Err(ErrorKind::InvalidData.into()));
        assert_eq!(outcome(vec![piece(), broken], None), Err(Status::BAD_REQUEST));
        let late = Some(Err(ErrorKind::TimedOut.into()));
        assert_eq!(outcome(vec![late], None), Err(Status::REQUEST_TIMEOUT));
    }
}
