//! The exchange with a FastCGI application: the request goes to it, and the head of its response
//! and a body come back. A short response comes whole; a long one is a stream that is read ahead
//! while the client blocks.

use crate::connect::{Patience, connect};
use crate::conversation::{Conversation, Event};
use crate::failure::{Failure, FailureKind};
use crate::places::Place;
use crate::spool::Spool;
use bytes::Bytes;
use evenkeel_message::Target;
use evenkeel_message::{Body, Chunk, Departure, Late, Level, Notice, ReadAhead, Source, quoted};
use evenkeel_proto::fastcgi::{encode_begin, encode_params};
use evenkeel_proto::script::{BadHead, HeadEnd, MOST_HEAD, ScriptHead, parse_script_head};
use evenkeel_sys::blocking_pool::BlockingPool;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// The most bytes of a response that is passed on whole.
const MOST_WHOLE: usize = 64 << 10;

/// How long an application is waited for before the client is asked whether it is still there.
const ASKED_AFTER: Duration = Duration::from_millis(250);

/// The most texts for the error log, and the most bytes of each.
const MOST_COMPLAINTS: usize = 64;
const MOST_COMPLAINT: usize = 8 << 10;

/// What an application is asked.
pub struct Ask {
    /// The application.
    pub target: Target,
    /// The variables that it is told.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// The body of the request.
    pub body: Spool,
    /// How long it is waited for.
    pub patience: Patience,
    /// What is read of the response while the client does not take it: the name of the script, for
    /// the error log.
    pub script: Vec<u8>,
}

/// The response of an application.
pub struct Answered {
    /// Its head.
    pub head: ScriptHead,
    /// Its body. A stream has no known length.
    pub body: Body,
}

/// Asks an application. Notices of the time until the head is there are added to `notices`, those
/// of later to `late`.
///
/// # Errors
/// Why there is no response.
pub async fn exchange(
    ask: Ask,
    blocking_pool: &Arc<BlockingPool>,
    departure: &Departure,
    notices: &mut Vec<Notice>,
    late: &Rc<RefCell<Late>>,
    place: Place,
) -> Result<Answered, Failure> {
    let Ask { target, variables, body, patience, script } = ask;
    let mut complaints = Complaints::default();
    let asked = async {
        let socket = connect(&target.address, patience.connect, blocking_pool).await?;
        let mut out = Vec::with_capacity(2048);
        encode_begin(&mut out, false);
        let pairs = variables.iter().map(|(name, value)| (&**name, &**value));
        for name in encode_params(&mut out, pairs) {
            let text = format!("couldn't encode envvar '{}' in 16384 bytes", quoted(name));
            notices.push(Notice::new("proxy_fcgi", Level::Warn, 2536, text));
        }
        let body = body.reader(Arc::clone(blocking_pool));
        let mut conversation = Conversation::new(socket, out, body, patience.silence);
        let (head, first) = head(&mut conversation, departure, &mut complaints, notices).await?;
        Ok((head, first, conversation))
    };
    let (head, first, conversation) = match asked.await {
        Ok(answered) => answered,
        Err(kind) => return Err(Failure { kind, target }),
    };
    let late = Rc::clone(late);
    let stream = Stream {
        conversation,
        first: VecDeque::from([first]),
        complaints,
        late,
        script,
        target,
        silent: None,
        is_slow: false,
        _place: place,
    };
    Ok(Answered { head, body: stream.gather().await })
}

/// Waits for the head. Returns it with what has come of the body.
async fn head(
    conversation: &mut Conversation,
    departure: &Departure,
    complaints: &mut Complaints,
    notices: &mut Vec<Notice>,
) -> Result<(ScriptHead, Bytes), FailureKind> {
    let (mut head, mut end) = (Vec::new(), HeadEnd::default());
    let mut until_asked = pin!(sleep(ASKED_AFTER));
    let mut asks = false;
    loop {
        let event = poll_fn(|context| {
            let event = conversation.poll_event(context);
            if event.is_ready() {
                return event;
            }
            asks = asks || until_asked.as_mut().poll(context).is_ready();
            match asks && departure.is_told() {
                true => Poll::Ready(Err(FailureKind::ClientGone)),
                false => Poll::Pending,
            }
        });
        match event.await? {
            Event::Output(mut bytes) => {
                let Some(at) = end.find(&bytes) else {
                    head.extend_from_slice(&bytes);
                    if head.len() > MOST_HEAD {
                        return Err(FailureKind::LargeHead);
                    }
                    continue;
                };
                head.extend_from_slice(&bytes.split_to(at));
                let parsed = parse_script_head(&head).map_err(|bad| match bad {
                    BadHead::NoColon(line) => FailureKind::NoColon(line),
                    BadHead::Nothing | BadHead::Premature => FailureKind::HalfHead(true),
                })?;
                return Ok((parsed, bytes));
            }
            Event::Complaint(bytes) => notices.extend(complaints.notice(&bytes)),
            Event::Unknown(kind) => notices.push(unknown(kind)),
            Event::End => return Err(FailureKind::HalfHead(!head.is_empty())),
        }
    }
}

fn unknown(kind: u8) -> Notice {
    Notice::new("proxy_fcgi", Level::Error, 1072, format!("Got bogus record {kind}"))
}

/// Counts the texts for the error log, so that an application cannot flood it.
#[derive(Default)]
struct Complaints(usize);

impl Complaints {
    fn notice(&mut self, text: &[u8]) -> Option<Notice> {
        self.0 += 1;
        if self.0 > MOST_COMPLAINTS {
            return None;
        }
        let text = text.get(..text.len().min(MOST_COMPLAINT)).unwrap_or_default();
        let text = format!("Got error '{}'", quoted(text));
        Some(Notice::new("proxy_fcgi", Level::Error, 1071, text))
    }
}

/// The body of a response as it comes.
struct Stream {
    conversation: Conversation,
    /// What has come of it already.
    first: VecDeque<Bytes>,
    complaints: Complaints,
    late: Rc<RefCell<Late>>,
    script: Vec<u8>,
    target: Target,
    /// Runs while the application is silent.
    silent: Option<Pin<Box<Sleep>>>,
    /// Whether the application has been silent for so long that the client is asked whether it is
    /// still there.
    is_slow: bool,
    /// The place at the application, which the next request gets when the response has ended.
    _place: Place,
}

impl Stream {
    /// The whole body if it is short and there already, a stream otherwise.
    async fn gather(mut self) -> Body {
        let mut has_yielded = false;
        let mut length: usize = self.first.iter().map(Bytes::len).sum();
        loop {
            match poll_fn(|context| Poll::Ready(self.poll_next(context))).await {
                Poll::Ready(Some(Ok(bytes))) => {
                    length += bytes.len();
                    self.first.push_back(bytes);
                    if length > MOST_WHOLE {
                        break;
                    }
                }
                Poll::Ready(None) => {
                    if self.first.len() == 1 {
                        return Body::Bytes(self.first.pop_front().unwrap_or_default());
                    }
                    let whole: Vec<u8> = self.first.iter().flatten().copied().collect();
                    return Body::from(whole);
                }
                Poll::Ready(Some(Err(error))) => {
                    let body = Broken(self.first, Some(error));
                    return Body::Stream(Box::pin(body), None);
                }
                // The end of a response often follows at once.
                Poll::Pending if !has_yielded => {
                    has_yielded = true;
                    tokio::task::yield_now().await;
                }
                Poll::Pending => break,
            }
        }
        Body::Stream(Box::pin(ReadAhead::new(Box::pin(self))), None)
    }

    /// The next piece from the application.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Chunk> {
        let next = self.poll_piece(context);
        if next.is_ready() {
            (self.silent, self.is_slow) = (None, false);
            return next;
        }
        let silent = self.silent.get_or_insert_with(|| Box::pin(sleep(ASKED_AFTER)));
        self.is_slow = self.is_slow || silent.as_mut().poll(context).is_ready();
        Poll::Pending
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Chunk> {
        loop {
            match std::task::ready!(self.conversation.poll_event(context)) {
                Ok(Event::Output(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Ok(Event::Complaint(bytes)) => {
                    let notice = self.complaints.notice(&bytes);
                    self.late.borrow_mut().notices.extend(notice);
                }
                Ok(Event::Unknown(kind)) => self.late.borrow_mut().notices.push(unknown(kind)),
                Ok(Event::End) => return Poll::Ready(None),
                Err(kind) => {
                    let error = match &kind {
                        FailureKind::Silent => io::ErrorKind::TimedOut.into(),
                        _ => io::ErrorKind::UnexpectedEof.into(),
                    };
                    let failure = Failure { kind, target: self.target.clone() };
                    self.late.borrow_mut().notices.extend(failure.notices(&self.script));
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

impl Source for Stream {
    fn poll_chunk(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        match self.first.pop_front() {
            Some(bytes) => Poll::Ready(Some(Ok(bytes))),
            None => self.poll_next(context),
        }
    }

    fn held(&self) -> u64 {
        self.first.iter().map(|bytes| bytes.len() as u64).sum()
    }

    fn ends_with_client(&self) -> bool {
        self.is_slow
    }
}

/// The beginning of a body whose application has failed.
struct Broken(VecDeque<Bytes>, Option<io::Error>);

impl Source for Broken {
    fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
        let next = self.0.pop_front().map(Ok);
        Poll::Ready(next.or_else(|| self.1.take().map(Err)))
    }
}
