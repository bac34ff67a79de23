//! The exchange with a FastCGI application: sends a request, and returns the head and the body of
//! the response. A short body is returned whole. A long one is a stream, which is read ahead while
//! the client does not read.

use crate::connect::{Patience, connect};
use crate::conversation::{Conversation, Event, SLOW_AFTER};
use crate::failure::{Failure, FailureKind, program_failure};
use crate::lease::Lease;
use crate::places::Place;
use crate::report::{self, OwnPool, Reports};
use crate::spool::Spool;
use bytes::Bytes;
use evenkeel_message::{
    Address, Body, Chunk, Departure, Late, Level, MayWait, Notice, ReadAhead, Source, Target,
    Variables, quoted,
};
use evenkeel_proto::fastcgi::{encode_begin, encode_params};
use evenkeel_proto::script::{
    BadHead, HeadEnd, MOST_HEAD, ScriptHead, parse_script_head, parse_worker_head,
};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::peers;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// The most bytes of a body that is passed on whole, with its length.
const MOST_WHOLE: usize = 64 << 10;

/// The most records of standard error that are logged for a request.
const MOST_COMPLAINTS: usize = 64;

/// The most bytes of a record of standard error that are logged.
const MOST_COMPLAINT: usize = 8 << 10;

/// The type of the records of reports.
const REPORT: u8 = 100;

/// A request to an application.
pub struct Ask {
    /// The application.
    pub target: Arc<Target>,
    /// The parameters of the request (FastCGI specification, section 6.2).
    pub variables: Variables,
    /// The body of the request.
    pub body: Spool,
    /// The timeouts of the exchange.
    pub patience: Patience,
    /// The name of the script, for the error log.
    pub script: Vec<u8>,
    /// The place at the application. It is free again as soon as the application has ended its
    /// response.
    pub place: Place,
    /// The pool, if the application is one of this server.
    pub pool: Option<OwnPool>,
    /// The process, if the application is a program that the launcher keeps.
    pub lease: Option<Lease>,
}

/// The response of an application.
pub struct Answered {
    /// The head.
    pub head: ScriptHead,
    /// The body. The length of a stream is not known.
    pub body: Body,
    /// The variables that a script of PHP had set by the time of the head.
    pub env: Variables,
}

/// Sends a request to an application and receives the response. Notices about the time before the
/// head is complete are added to `notices`, later ones to `late`, as is a failure in the body.
///
/// # Errors
/// The application cannot be reached, fails before the head is complete, or is silent for too long.
/// The caller logs the failure.
pub async fn exchange(
    _: &MayWait,
    ask: Ask,
    blocking_pool: &Arc<BlockingPool>,
    departure: &Departure,
    notices: &mut Vec<Notice>,
    late: &Rc<RefCell<Late>>,
) -> Result<Answered, Failure> {
    let Ask { target, variables, body, patience, script, place, pool, mut lease } = ask;
    let voice = match (&pool, &lease) {
        (Some(_), _) => Voice::OwnWorker,
        (None, Some(_)) => Voice::Program,
        (None, None) => Voice::Other,
    };
    let mut complaints = Complaints { count: 0, voice };
    let mut reports = pool.map(Reports::new);
    let asked = async {
        let socket = match lease.as_mut().and_then(Lease::connection) {
            Some(connection) => connection,
            None => connect(&target.address, patience.connect, blocking_pool).await?,
        };
        if let (Voice::Other, Address::Unix(path)) = (voice, &target.address) {
            peers::note(path, &socket);
        }
        let encode = |out: &mut Vec<u8>| {
            encode_begin(out, false);
            for name in encode_params(out, variables.joined()) {
                let text = format!("couldn't encode envvar '{}' in 16384 bytes", quoted(name));
                notices.push(Notice::new("proxy_fcgi", Level::Warn, 2536, text));
            }
        };
        let begun = Conversation::begin(socket, encode, body, patience, blocking_pool);
        let mut conversation = begun?;
        let mut env = Variables::default();
        let told = (&mut *notices, &mut env);
        let (head, first) = head(&mut conversation, departure, &mut complaints, told).await?;
        if let Some(reports) = &mut reports {
            reports.note_head();
        }
        Ok((head, first, env, conversation))
    };
    let (head, first, env, conversation) = match asked.await {
        Ok(answered) => answered,
        Err(kind) => return Err(Failure { kind, target }),
    };
    let late = Rc::clone(late);
    let stream = Stream {
        open: Some(Open { conversation, lease, _place: place }),
        first: VecDeque::from([first]),
        complaints,
        reports,
        late,
        script,
        target,
    };
    Ok(Answered { head, body: stream.gather().await, env })
}

/// Waits for the head. Returns the head, and the beginning of the body that came with it.
async fn head(
    conversation: &mut Conversation,
    departure: &Departure,
    complaints: &mut Complaints,
    (notices, env): (&mut Vec<Notice>, &mut Variables),
) -> Result<(ScriptHead, Bytes), FailureKind> {
    let (mut head, mut end) = (Vec::new(), HeadEnd::default());
    let begin = Instant::now();
    let mut asks = false;
    loop {
        let event = poll_fn(|context| {
            let event = conversation.poll_event(context);
            if event.is_ready() {
                return event;
            }
            // After SLOW_AFTER the connection of the client is watched too, so that the request
            // ends when the client disconnects.
            asks = asks || conversation.is_slow() || begin.elapsed() >= SLOW_AFTER;
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
                let parse = if complaints.voice == Voice::OwnWorker {
                    parse_worker_head
                } else {
                    parse_script_head
                };
                let parsed = parse(&head).map_err(|bad| match bad {
                    BadHead::NoColon(line) => FailureKind::NoColon(line),
                    BadHead::Nothing | BadHead::Premature => FailureKind::HalfHead(true),
                })?;
                return Ok((parsed, bytes));
            }
            Event::Complaint(bytes) => notices.extend(complaints.notice(&bytes)),
            Event::Report(bytes) if complaints.voice == Voice::OwnWorker => {
                report::read_variables(&bytes, env);
            }
            Event::Report(_) => notices.push(unknown(REPORT)),
            Event::Unknown(kind) => notices.push(unknown(kind)),
            Event::End => return Err(FailureKind::HalfHead(!head.is_empty())),
        }
    }
}

fn unknown(kind: u8) -> Notice {
    Notice::new("proxy_fcgi", Level::Error, 1072, format!("Got bogus record {kind}"))
}

/// Counts what an application writes to its standard error, so that it cannot flood the error log.
struct Complaints {
    count: usize,
    voice: Voice,
}

/// Who writes to standard error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Voice {
    /// A worker of this server, whose messages have levels.
    OwnWorker,
    /// A program of mod_fcgid.
    Program,
    /// An application behind mod_proxy_fcgi.
    Other,
}

impl Complaints {
    fn notice(&mut self, text: &[u8]) -> Option<Notice> {
        self.count += 1;
        if self.count > MOST_COMPLAINTS {
            return None;
        }
        let text = text.get(..text.len().min(MOST_COMPLAINT)).unwrap_or_default();
        Some(match self.voice {
            Voice::OwnWorker => report::message(text),
            Voice::Program => {
                let text = format!("mod_fcgid: stderr: {}", quoted(text.trim_ascii_end()));
                Notice::own("fcgid", Level::Warn, text)
            }
            Voice::Other => {
                let text = format!("Got error '{}'", quoted(text));
                Notice::new("proxy_fcgi", Level::Error, 1071, text)
            }
        })
    }
}

/// A response that the application has not ended.
struct Open {
    conversation: Conversation,
    lease: Option<Lease>,
    _place: Place,
}

/// The body of a response, as a stream.
struct Stream {
    /// `None` after the end of the response: a client that reads slowly holds neither the
    /// connection to the application nor the place.
    open: Option<Open>,
    /// The pieces that were received before the stream was polled.
    first: VecDeque<Bytes>,
    complaints: Complaints,
    reports: Option<Reports>,
    late: Rc<RefCell<Late>>,
    script: Vec<u8>,
    target: Arc<Target>,
}

impl Stream {
    /// Returns the whole body if it is short and has been received, and a stream otherwise.
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

    /// Receives the next piece.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Chunk> {
        loop {
            let Some(open) = &mut self.open else { return Poll::Ready(None) };
            match std::task::ready!(open.conversation.poll_event(context)) {
                Ok(Event::Output(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Ok(Event::Complaint(bytes)) => {
                    let notice = self.complaints.notice(&bytes);
                    self.late.borrow_mut().notices.extend(notice);
                }
                Ok(Event::Report(bytes)) => match &mut self.reports {
                    Some(reports) => reports.add(&bytes),
                    None => self.late.borrow_mut().notices.push(unknown(REPORT)),
                },
                Ok(Event::Unknown(kind)) => self.late.borrow_mut().notices.push(unknown(kind)),
                Ok(Event::End) => {
                    let lease = self.open.take().and_then(|open| open.lease);
                    if let Some(lease) = lease {
                        lease.done();
                    }
                    if let Some(reports) = self.reports.take() {
                        reports.end(&mut self.late.borrow_mut());
                    }
                    return Poll::Ready(None);
                }
                Err(kind) => {
                    self.open = None;
                    let error = match &kind {
                        FailureKind::Silent => io::ErrorKind::TimedOut.into(),
                        _ => io::ErrorKind::UnexpectedEof.into(),
                    };
                    let failure = Failure { kind, target: Arc::clone(&self.target) };
                    let notices = match &self.reports {
                        Some(reports) => vec![reports.failed(&failure.kind, &self.script)],
                        None if self.complaints.voice == Voice::Program => {
                            vec![program_failure(&failure.kind, &self.script).0]
                        }
                        None => failure.notices(&self.script),
                    };
                    self.late.borrow_mut().notices.extend(notices);
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
        self.open.as_ref().is_some_and(|open| open.conversation.is_slow())
    }
}

/// The received part of a body whose application has failed, and then the error.
struct Broken(VecDeque<Bytes>, Option<io::Error>);

impl Source for Broken {
    fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
        let next = self.0.pop_front().map(Ok);
        Poll::Ready(next.or_else(|| self.1.take().map(Err)))
    }
}
