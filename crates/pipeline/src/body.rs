//! A request's body that no handler wants: read to its end before the answer is made, so that
//! the next request on the connection begins where it should, and bounded by LimitRequestBody
//! (http_filters.c: ap_discard_request_body, ap_http_filter).

use crate::site::Plan;
use evenkeel_message::{BodyLength, Level, Notice, Request, Status};
use std::future::poll_fn;
use std::io::ErrorKind;

/// LimitRequestBody where nothing is said: 1 GiB, as in Apache since 2.4.54.
const LIMIT_BYTES: u64 = 1 << 30;

/// Reads the body and forgets it.
///
/// # Errors
/// As [`read`].
pub(crate) async fn discard(request: &mut Request, plan: &Plan) -> Result<(), Status> {
    read(request, plan, |_| Ok(())).await
}

/// Reads the body to its end and hands its pieces to `take`.
///
/// # Errors
/// 413 for a body beyond LimitRequestBody, 400 for one that is malformed or ends too soon, 408
/// for one that is too slow, and what `take` refuses it with.
pub(crate) async fn read(
    request: &mut Request,
    plan: &Plan,
    mut take: impl FnMut(&[u8]) -> Result<(), Status>,
) -> Result<(), Status> {
    let limit = check_length(request, plan)?;
    let Some(mut body) = request.body.take() else { return Ok(()) };
    let mut read: u64 = 0;
    while let Some(chunk) = poll_fn(|context| body.as_mut().poll_chunk(context)).await {
        let bytes = match chunk {
            Ok(bytes) => bytes,
            Err(error) => {
                if let Some(detail) = error.get_ref() {
                    request.resource.notes.set("error-notes", detail.to_string());
                }
                return Err(status_of(error.kind()));
            }
        };
        read = read.saturating_add(bytes.len() as u64);
        if read > limit {
            let text = format!(
                "Read content length of {read} is larger than the configured limit of {limit}"
            );
            request.notify(Notice::new("http", Level::Info, 1591, text));
            return Err(Status::CONTENT_TOO_LARGE);
        }
        take(&bytes)?;
    }
    Ok(())
}

/// LimitRequestBody, which the length that the head tells does not exceed.
///
/// # Errors
/// 413 where it does.
pub(crate) fn check_length(request: &mut Request, plan: &Plan) -> Result<u64, Status> {
    let limit = match plan.core.limit_request_body {
        None => LIMIT_BYTES,
        Some(0) => u64::MAX,
        Some(limit) => limit,
    };
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
        let address = "127.0.0.1:1".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        request.body = Some(Box::pin(Pieces(pieces)));
        let mut plan = Plan::default();
        plan.core.limit_request_body = limit;
        let mut future = Box::pin(discard(&mut request, &plan));
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
        let broken = Some(Err(ErrorKind::InvalidData.into()));
        assert_eq!(outcome(vec![piece(), broken], None), Err(Status::BAD_REQUEST));
        let late = Some(Err(ErrorKind::TimedOut.into()));
        assert_eq!(outcome(vec![late], None), Err(Status::REQUEST_TIMEOUT));
    }
}
