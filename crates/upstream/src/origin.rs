//! The exchange with an HTTP server: sends a request over a kept or a new connection, and returns
//! the head and the body of the response. A short body that has come with its head is returned
//! whole. A long one is a stream, which is read ahead while the client does not read.

use crate::connect::{Patience, connect};
use crate::conversation::SLOW_AFTER;
use crate::failure::FailureKind;
use crate::idle;
use crate::members::{Line, Number};
use crate::origin_failure::{OriginFailure, OriginFailureKind};
use crate::origin_link::{OriginConnection, OriginLink, Upload};
use crate::origin_stream::{OriginStream, Tls, Wanted};
use crate::places::Place;
use bytes::Bytes;
use evenkeel_message::{
    Body, Chunk, Departure, Late, MayWait, ReadAhead, Source, Switched, Target, eq_ignore_case,
};
use evenkeel_proto::{OriginHead, OriginLimits, ResponseLength};
use evenkeel_sys::blocking_pool::BlockingPool;
use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// The most bytes of a body that is passed on whole and not as a stream.
const MOST_WHOLE: usize = 64 << 10;

/// The most interim responses to a request (mod_proxy_http.c: AP_MAX_INTERIM_RESPONSES).
const MOST_INTERIM: u32 = 10;

/// The time for which an idle connection is kept.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// A request that must not be sent twice takes a connection only if it has rested for less than
/// this time. A server that closes idle connections seldom does so sooner, so that such a request
/// seldom meets a connection that is being closed (RFC 9110, section 9.2.2).
const FRESH: Duration = Duration::from_secs(1);

/// A request to an HTTP server.
pub struct OriginAsk {
    /// The server.
    pub target: Arc<Target>,
    /// The TLS of the connection; none in clear text.
    pub tls: Option<Tls>,
    /// The head of the request, and the beginning of its body.
    pub first: Vec<u8>,
    /// The rest of its body.
    pub upload: Option<Upload>,
    /// Whether the method is HEAD.
    pub is_head: bool,
    /// Whether the request may be sent twice (RFC 9110, section 9.2.2).
    pub is_idempotent: bool,
    /// The protocol that the request asks the server to switch to (Upgrade).
    pub upgrade: Option<Vec<u8>>,
    /// Whether the connection is used again after the response.
    pub keeps: bool,
    /// The time for which an idle connection is kept (`ttl`).
    pub ttl: Option<Duration>,
    /// The limits on the head of the response.
    pub limits: OriginLimits,
    /// The timeouts.
    pub patience: Patience,
    /// The place at the server. It is free again as soon as the server has ended its response.
    pub place: Place,
    /// The path of the request, for the error log.
    pub path: Vec<u8>,
    /// What is dropped at the end of the response, or of the tunnel behind it.
    pub guard: Option<Box<dyn Any>>,
    /// The member of a balancer for which the bytes of the body of the response are counted.
    pub member: Option<Line>,
}

/// The response of a server.
pub struct OriginAnswered {
    /// The head.
    pub head: OriginHead,
    /// The body, with its length if the server has stated it.
    pub body: Body,
    /// The tunnel, if the server has switched to the protocol that was asked for (101).
    pub tunnel: Option<Switched>,
}

/// Sends a request and waits for the head of the final response. The heads of interim responses are
/// handed to `interim`, but not that of `100 Continue`. A failure in the body is logged by `late`.
///
/// # Errors
/// The server cannot be reached, fails before the head is complete, or is silent for too long. The
/// caller logs the failure.
pub async fn ask_origin(
    _: &MayWait,
    ask: OriginAsk,
    blocking_pool: &Arc<BlockingPool>,
    departure: &Departure,
    interim: &mut dyn FnMut(&OriginHead),
    late: &Rc<RefCell<Late>>,
) -> Result<OriginAnswered, OriginFailure> {
    let target = Arc::clone(&ask.target);
    match try_to_ask(ask, blocking_pool, departure, interim, late).await {
        Ok(answered) => Ok(answered),
        Err(Failed { kind, upload }) => Err(OriginFailure { kind, target, upload }),
    }
}

/// A failure, with the rest of the body if nothing of the request was sent.
struct Failed {
    kind: OriginFailureKind,
    upload: Option<Upload>,
}

impl From<OriginFailureKind> for Failed {
    fn from(kind: OriginFailureKind) -> Self {
        Failed { kind, upload: None }
    }
}

async fn try_to_ask(
    mut ask: OriginAsk,
    blocking_pool: &Arc<BlockingPool>,
    departure: &Departure,
    interim: &mut dyn FnMut(&OriginHead),
    late: &Rc<RefCell<Late>>,
) -> Result<OriginAnswered, Failed> {
    let rest = if ask.is_idempotent { KEPT_FOR } else { FRESH };
    let wanted = Wanted { address: ask.target.address.clone(), tls: ask.tls.take() };
    let mut kept = match ask.keeps {
        true => idle::take(&wanted, rest),
        false => None,
    };
    loop {
        let is_kept = kept.is_some();
        let connection = match kept.take() {
            Some(stream) => OriginConnection::Kept(stream),
            None => match connect_new(&wanted, ask.patience.connect, blocking_pool).await {
                Ok(connection) => connection,
                Err(kind) => return Err(Failed { kind, upload: ask.upload.take() }),
            },
        };
        let upload = ask.upload.take();
        let begun = OriginLink::begin(connection, &ask.first, upload, ask.patience.silence)?;
        let mut link = match begun {
            Ok(link) => link,
            // The server has closed the connection, and has read nothing of the request.
            Err(upload) => {
                ask.upload = upload;
                continue;
            }
        };
        match final_head(&mut link, &ask, departure, interim).await {
            Ok(head) => return Ok(answer(head, link, (ask, wanted), late).await?),
            // The connection was being closed while it was taken.
            Err(OriginFailureKind::Ended(_))
                if is_kept && ask.is_idempotent && !link.has_heard() =>
            {
                match link.into_upload() {
                    Some(upload) => ask.upload = upload,
                    None => {
                        let error = ErrorKind::UnexpectedEof.into();
                        return Err(OriginFailureKind::Ended(error).into());
                    }
                }
            }
            Err(kind) => return Err(kind.into()),
        }
    }
}

async fn connect_new(
    wanted: &Wanted,
    patience: Duration,
    blocking_pool: &BlockingPool,
) -> Result<OriginConnection, OriginFailureKind> {
    let begin = Instant::now();
    let connected = connect(&wanted.address, patience, blocking_pool).await.map_err(unreachable)?;
    let Some(tls) = &wanted.tls else { return Ok(OriginConnection::New(connected)) };
    let left = patience.saturating_sub(begin.elapsed());
    let secured = Box::pin(OriginStream::secure(connected, tls, left)).await?;
    Ok(OriginConnection::Secured(secured))
}

pub(crate) fn unreachable(kind: FailureKind) -> OriginFailureKind {
    match kind {
        FailureKind::Unresolved => OriginFailureKind::Unresolved,
        FailureKind::Unreachable(error) => OriginFailureKind::Unreachable(error),
        _ => OriginFailureKind::Unreachable(ErrorKind::Other.into()),
    }
}

/// Waits for the head of the final response.
async fn final_head(
    link: &mut OriginLink,
    ask: &OriginAsk,
    departure: &Departure,
    interim: &mut dyn FnMut(&OriginHead),
) -> Result<OriginHead, OriginFailureKind> {
    let (begin, mut asks, mut count) = (Instant::now(), false, 0);
    loop {
        let head = poll_fn(|context| {
            let head = link.poll_head(context, ask.is_head, &ask.limits);
            if head.is_ready() {
                return head;
            }
            // After SLOW_AFTER the connection of the client is watched too, so that the request
            // ends when the client disconnects.
            asks = asks || link.is_slow() || begin.elapsed() >= SLOW_AFTER;
            match asks && departure.is_told() {
                true => Poll::Ready(Err(OriginFailureKind::ClientGone)),
                false => Poll::Pending,
            }
        });
        let head = head.await?;
        if head.status == 101 {
            let protocol = head.fields.joined("Upgrade").unwrap_or_default();
            // The request has asked for one protocol, and has been sent to its end
            // (RFC 9110, section 7.8).
            if ask.upgrade.as_deref().is_some_and(|asked| eq_ignore_case(asked, &protocol))
                && link.is_sent()
            {
                return Ok(head);
            }
            let text = |protocol: &[u8]| match protocol {
                [] => "n/a".to_owned(),
                protocol => String::from_utf8_lossy(protocol).into_owned(),
            };
            let asked = text(ask.upgrade.as_deref().unwrap_or_default());
            return Err(OriginFailureKind::Switched(text(&protocol), asked));
        }
        if !head.is_interim() {
            return Ok(head);
        }
        count += 1;
        if count > MOST_INTERIM {
            return Err(OriginFailureKind::ManyInterim);
        }
        match head.status {
            100 => link.release_upload(),
            _ => interim(&head),
        }
    }
}

/// Takes the body of the response as far as it has come.
///
/// # Errors
/// The body fails before any of its bytes.
async fn answer(
    head: OriginHead,
    mut link: OriginLink,
    (ask, wanted): (OriginAsk, Wanted),
    late: &Rc<RefCell<Late>>,
) -> Result<OriginAnswered, OriginFailureKind> {
    if head.status == 101 {
        let tunnel = link.into_tunnel(ask.path, ask.target, Rc::clone(late), ask.guard)?;
        let tunnel = Some(Switched(Box::pin(tunnel)));
        return Ok(OriginAnswered { head, body: Body::Empty, tunnel });
    }
    let length = match head.length {
        ResponseLength::Exact(length) => Some(length),
        _ => None,
    };
    link.begin_body(head.length);
    let keeps = ask.keeps && head.persistent;
    let said = head.kept_s.map(|seconds| Duration::from_secs(seconds.saturating_sub(1)));
    let rest = ask.ttl.unwrap_or(KEPT_FOR).min(said.unwrap_or(KEPT_FOR));
    let stream = Stream {
        open: Some(Open { link, _place: ask.place, _guard: ask.guard }),
        member: ask.member,
        keeps: keeps.then_some((rest, wanted)),
        first: VecDeque::new(),
        failure: None,
        late: Rc::clone(late),
        path: ask.path,
        target: ask.target,
    };
    let length = if head.length == ResponseLength::None { Some(0) } else { length };
    let body = stream.whole_or_stream(length).await?;
    Ok(OriginAnswered { head, body, tunnel: None })
}

/// The connection and the place of a response whose end has not been received.
struct Open {
    link: OriginLink,
    _place: Place,
    _guard: Option<Box<dyn Any>>,
}

/// The body of a response, as a stream.
struct Stream {
    /// `None` after the end of the response: a client that reads slowly holds neither the
    /// connection to the server nor the place.
    open: Option<Open>,
    /// The time for which the connection is kept afterwards, if it is, and what it is kept as.
    keeps: Option<(Duration, Wanted)>,
    /// The pieces that were received before the stream was polled.
    first: VecDeque<Bytes>,
    /// The failure behind them.
    failure: Option<std::io::Error>,
    /// Where received bytes are counted.
    member: Option<Line>,
    late: Rc<RefCell<Late>>,
    path: Vec<u8>,
    target: Arc<Target>,
}

impl Stream {
    /// Returns the whole body if it is short and has been received, and a stream otherwise.
    ///
    /// # Errors
    /// The body fails before any of its bytes.
    async fn whole_or_stream(mut self, length: Option<u64>) -> Result<Body, OriginFailureKind> {
        let (mut has_yielded, mut held) = (false, 0);
        while held <= MOST_WHOLE {
            match poll_fn(|context| Poll::Ready(self.poll_piece(context))).await {
                Poll::Ready(Ok(Some(bytes))) => {
                    held += bytes.len();
                    self.first.push_back(bytes);
                }
                Poll::Ready(Ok(None)) => {
                    return Ok(match self.first.len() {
                        0 => Body::Empty,
                        1 => Body::Bytes(self.first.pop_front().unwrap_or_default()),
                        _ => {
                            let whole: Vec<u8> = self.first.iter().flatten().copied().collect();
                            Body::from(whole)
                        }
                    });
                }
                Poll::Ready(Err(kind)) if self.first.is_empty() => return Err(kind),
                Poll::Ready(Err(kind)) => {
                    self.failure = Some(self.fail(kind));
                    break;
                }
                // The end of a response often follows at once.
                Poll::Pending if !has_yielded && !self.first.is_empty() => {
                    has_yielded = true;
                    tokio::task::yield_now().await;
                }
                Poll::Pending => break,
            }
        }
        Ok(Body::Stream(Box::pin(ReadAhead::new(Box::pin(self))), length))
    }

    /// Receives the next piece; `None` at the end.
    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, OriginFailureKind>> {
        let Some(open) = &mut self.open else { return Poll::Ready(Ok(None)) };
        match ready!(open.link.poll_data(context)) {
            Ok(Some(bytes)) => {
                if let Some(member) = &self.member {
                    member.add(Number::Received, bytes.len() as u64);
                }
                Poll::Ready(Ok(Some(bytes)))
            }
            Ok(None) => {
                if let Some(Open { link, .. }) = self.open.take()
                    && let Some((rest, wanted)) = self.keeps.take()
                    && let Some(stream) = link.into_idle()
                {
                    idle::keep(wanted, stream, rest);
                }
                Poll::Ready(Ok(None))
            }
            Err(kind) => Poll::Ready(Err(kind)),
        }
    }

    /// Closes the connection after a failure, logs the failure, and returns the error of the body.
    fn fail(&mut self, kind: OriginFailureKind) -> std::io::Error {
        self.open = None;
        let error = match &kind {
            OriginFailureKind::Silent => ErrorKind::TimedOut.into(),
            _ => ErrorKind::UnexpectedEof.into(),
        };
        let failure = OriginFailure { kind, target: Arc::clone(&self.target), upload: None };
        let notices = failure.notices(&self.path, true);
        self.late.borrow_mut().notices.extend(notices);
        error
    }
}

impl Source for Stream {
    fn poll_chunk(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        if let Some(bytes) = self.first.pop_front() {
            return Poll::Ready(Some(Ok(bytes)));
        }
        match self.failure.take() {
            Some(error) => Poll::Ready(Some(Err(error))),
            None => match ready!(self.poll_piece(context)) {
                Ok(piece) => Poll::Ready(piece.map(Ok)),
                Err(kind) => Poll::Ready(Some(Err(self.fail(kind)))),
            },
        }
    }

    fn held(&self) -> u64 {
        self.first.iter().map(|bytes| bytes.len() as u64).sum()
    }

    fn ends_with_client(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.link.is_slow())
    }
}
