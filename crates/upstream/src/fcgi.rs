//! The exchange with a FastCGI, SCGI or uWSGI application: sends a request, and returns the head
//! and the body of the response. A short body is returned whole. A long one is a stream, which is
//! read ahead while the client does not read.

use crate::connect::{Patience, connect};
use crate::conversation::{Connection, Conversation, Event, Framing, SLOW_AFTER};
use crate::failure::{Failure, FailureKind, program_failure};
use crate::kept::{self, Claim};
use crate::lease::Lease;
use crate::places::Place;
use crate::report::{self, OwnPool, Reports};
use crate::spool::Spool;
use crate::timer::Timer;
use bytes::{Buf, Bytes};
use evenkeel_message::{
    Address, Body, Chunk, Departure, Late, Level, MayWait, Notice, ReadAhead, Scheme, Source,
    Target, Variables, quoted,
};
use evenkeel_proto::fastcgi::{encode_all_params, encode_begin, encode_params};
use evenkeel_proto::script::{
    BadHead, HeadEnd, MOST_HEAD, ScriptHead, parse_script_head, parse_uwsgi_head, parse_worker_head,
};
use evenkeel_proto::{TooLarge, encode_scgi, encode_uwsgi};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::peers;
use evenkeel_sys::watch::WatchedSocket;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The most bytes of a body that is passed on whole, with its length.
const MOST_WHOLE: usize = 64 << 10;

/// How long the pieces of a short response may pause until it is sent as a stream. An application
/// writes its output in pieces of some KiB, php-fpm of 8, and the last of them often follows at
/// once. A whole body is sent with its length, and needs no job of the blocking pool to be
/// compressed.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// The most memory that the messages of a request may take until they are logged at its end.
const MOST_COMPLAINTS: usize = 512 << 10;

/// The maximum length of a logged message in bytes, without the level that a worker puts before it.
const MOST_COMPLAINT: usize = 8 << 10;

/// The length of the level before a message of a worker (`<4>`).
const LEVEL: usize = 3;

/// No body.
static EMPTY: Spool = Spool::empty();

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
    let voice = match (&pool, &lease, target.scheme) {
        (Some(_), ..) => Voice::OwnWorker,
        (None, Some(_), _) => Voice::Program,
        (None, None, Scheme::Scgi) => Voice::Scgi,
        (None, None, Scheme::Uwsgi) => Voice::Uwsgi,
        (None, None, _) => Voice::Other,
    };
    let mut complaints = Complaints::of(voice);
    let mut reports = pool.map(Reports::new);
    let mut body = Some(body);
    let asked = async {
        let mut claimed = claim_worker(reports.as_ref());
        let mut env = Variables::default();
        let mut left_out = Vec::new();
        let plain = voice.plain_head(&variables, body.as_ref().map_or(0, Spool::length))?;
        let (head, first, conversation, claim) = loop {
            let (connection, claim) = match claimed.take() {
                Some((socket, claim)) => (Connection::Kept(socket), Some(claim)),
                None => {
                    let socket = match lease.as_mut().and_then(Lease::connection) {
                        Some(connection) => connection,
                        None => connect(&target.address, patience.connect, blocking_pool).await?,
                    };
                    if let Some(reports) = &reports {
                        reports.pool().claims.note_waiting();
                    }
                    if let (Voice::Other, Address::Unix(path)) = (voice, &target.address) {
                        peers::note(path, &socket);
                    }
                    let is_single =
                        voice == Voice::Other && matches!(target.address, Address::Unix(_));
                    let new = if is_single { Connection::Single } else { Connection::New };
                    (new(socket), None)
                }
            };
            let keeps =
                claim.is_some() || reports.as_ref().map(Reports::pool).is_some_and(has_room);
            let whole = body.as_ref().unwrap_or(&EMPTY);
            let encode = |out: &mut Vec<u8>| match (&plain, voice) {
                (Some(head), _) => out.extend_from_slice(head),
                // A worker of PHP takes its settings from the variables, so none may be missing.
                (None, Voice::OwnWorker) => {
                    encode_begin(out, keeps);
                    encode_all_params(out, &variables);
                }
                (None, _) => {
                    encode_begin(out, keeps);
                    left_out = encode_params(out, &variables);
                }
            };
            let framing = if plain.is_some() { Framing::Plain } else { Framing::Records };
            let begun =
                Conversation::begin(connection, framing, encode, whole, patience, blocking_pool)?;
            let Some(mut conversation) = begun else {
                // The worker has ended, or has closed the connection to have room for another.
                let _taken = claim.map(|claim| claim.withdraw());
                claimed = claim_worker(reports.as_ref());
                continue;
            };
            if claim.is_none() {
                body = None;
            }
            let told = (&mut *notices, &mut env);
            match head(&mut conversation, departure, &mut complaints, told).await {
                Ok((head, first)) => break (head, first, conversation, claim),
                // A worker that died before it took the claim has read nothing of the request.
                Err(FailureKind::Ended(_))
                    if !conversation.has_heard() && claim.as_ref().is_some_and(Claim::withdraw) => {
                }
                Err(kind) => return Err(kind),
            }
        };
        for name in left_out {
            let text = format!("couldn't encode envvar '{}' in 16384 bytes", quoted(name));
            notices.push(Notice::new("proxy_fcgi", Level::Warn, 2536, text));
        }
        if let Some(reports) = &mut reports {
            reports.note_head();
        }
        Ok((head, first, env, (conversation, claim)))
    };
    let (head, first, env, (conversation, claim)) = match asked.await {
        Ok(answered) => answered,
        Err(kind) => {
            complaints.end(notices);
            return Err(Failure { kind, target });
        }
    };
    complaints.move_on(notices, &mut late.borrow_mut().notices);
    let late = Rc::clone(late);
    let stream = Stream {
        open: Some(Open { conversation, lease, claim, _place: place }),
        first: VecDeque::from([first]),
        complaints,
        reports,
        late,
        script,
        target,
    };
    Ok(Answered { head, body: stream.gather().await, env })
}

/// Claims a worker of this server's own pool, if the request may.
fn claim_worker(reports: Option<&Reports>) -> Option<(WatchedSocket, Claim)> {
    let pool = reports.map(Reports::pool).filter(|pool| pool.may_claim)?;
    kept::claim(&pool.claims)
}

/// Whether this thread can keep a connection to a worker.
fn has_room(pool: &OwnPool) -> bool {
    kept::has_room(&pool.claims, pool.workers)
}

/// Waits for the head. Returns the head, and the beginning of the body that came with it.
async fn head(
    conversation: &mut Conversation,
    departure: &Departure,
    complaints: &mut Complaints,
    (notices, env): (&mut Vec<Notice>, &mut Variables),
) -> Result<(ScriptHead, Bytes), FailureKind> {
    let (mut head, mut end) = (Vec::new(), HeadEnd::default());
    // When the first event came that did not end the head.
    let (mut begun, mut has_event): (Option<Instant>, _) = (None, false);
    let mut asks = false;
    loop {
        if has_event {
            begun.get_or_insert_with(Instant::now);
        }
        let event = poll_fn(|context| {
            let event = conversation.poll_event(context);
            if event.is_ready() {
                return event;
            }
            // An application that is slow, or whose head comes slowly, has the connection of the
            // client watched too, so that the request ends when the client disconnects.
            asks = asks
                || conversation.is_slow()
                || begun.is_some_and(|begun| begun.elapsed() >= SLOW_AFTER);
            match asks && departure.is_told() {
                true => Poll::Ready(Err(FailureKind::ClientGone)),
                false => Poll::Pending,
            }
        });
        let event = event.await?;
        has_event = true;
        match event {
            Event::Output(mut bytes) => {
                let Some(at) = end.find(&bytes) else {
                    head.extend_from_slice(&bytes);
                    if head.len() > MOST_HEAD {
                        return Err(FailureKind::LargeHead);
                    }
                    continue;
                };
                // The first record usually contains the whole head, which is then parsed in place.
                let part = bytes.get(..at).unwrap_or_default();
                let whole = if head.is_empty() {
                    part
                } else {
                    head.extend_from_slice(part);
                    &head
                };
                let parse = match complaints.voice {
                    Voice::OwnWorker => parse_worker_head,
                    Voice::Uwsgi => parse_uwsgi_head,
                    Voice::Program | Voice::Other | Voice::Scgi => parse_script_head,
                };
                let parsed = parse(whole).map_err(|bad| match bad {
                    BadHead::NoColon(line) => FailureKind::NoColon(line),
                    BadHead::Nothing | BadHead::Premature => FailureKind::HalfHead(true),
                })?;
                bytes.advance(at);
                return Ok((parsed, bytes));
            }
            Event::Complaint(bytes, is_whole) => complaints.add(&bytes, is_whole, notices),
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

/// What an application writes to its standard error. Its messages are bounded, and one line says
/// how many were left out.
struct Complaints {
    voice: Voice,
    /// The part of a worker's message that has arrived.
    part: Vec<u8>,
    /// The memory of the messages so far.
    held: usize,
    left_out: usize,
    /// The index of the notice that says how many were left out.
    told_at: Option<usize>,
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
    /// An application behind mod_proxy_scgi, which has no standard error here.
    Scgi,
    /// An application behind mod_proxy_uwsgi, which has no standard error here.
    Uwsgi,
}

impl Complaints {
    const fn of(voice: Voice) -> Self {
        Self { voice, part: Vec::new(), held: 0, left_out: 0, told_at: None }
    }

    /// Adds a piece of a record. A record of a worker is one message, however it arrives.
    fn add(&mut self, piece: &[u8], is_whole: bool, notices: &mut Vec<Notice>) {
        if self.voice != Voice::OwnWorker {
            return self.add_message(bounded(piece, MOST_COMPLAINT), notices);
        }
        if is_whole && self.part.is_empty() {
            return self.add_message(bounded(piece, LEVEL + MOST_COMPLAINT), notices);
        }
        let room = LEVEL + MOST_COMPLAINT - self.part.len();
        self.part.extend_from_slice(bounded(piece, room));
        if is_whole {
            self.end(notices);
        }
    }

    /// Adds the received part of a message whose end does not come.
    fn end(&mut self, notices: &mut Vec<Notice>) {
        let message = std::mem::take(&mut self.part);
        if !message.is_empty() {
            self.add_message(&message, notices);
        }
    }

    fn add_message(&mut self, text: &[u8], notices: &mut Vec<Notice>) {
        let size = text.len() + size_of::<Notice>();
        if self.left_out == 0 && self.held + size <= MOST_COMPLAINTS {
            self.held += size;
            notices.push(self.notice(text));
            return;
        }
        self.left_out += 1;
        let text = format!("{} more messages of this request are left out", self.left_out);
        match self.told_at.and_then(|at| notices.get_mut(at)) {
            Some(told) => told.text = text.into(),
            None => {
                self.told_at = Some(notices.len());
                notices.push(Notice::own(self.voice.module(), Level::Error, text));
            }
        }
    }

    /// Moves the notice about left out messages to `next`, to which the next messages are added.
    fn move_on(&mut self, notices: &mut Vec<Notice>, next: &mut Vec<Notice>) {
        if let Some(at) = self.told_at.filter(|at| *at < notices.len()) {
            self.told_at = Some(next.len());
            next.push(notices.remove(at));
        }
    }

    fn notice(&self, text: &[u8]) -> Notice {
        let module = self.voice.module();
        match self.voice {
            Voice::OwnWorker => report::message(text),
            Voice::Program => {
                let text = format!("mod_fcgid: stderr: {}", quoted(text.trim_ascii_end()));
                Notice::own(module, Level::Warn, text)
            }
            Voice::Other | Voice::Scgi | Voice::Uwsgi => {
                let text = format!("Got error '{}'", quoted(text));
                Notice::new(module, Level::Error, 1071, text)
            }
        }
    }
}

impl Voice {
    const fn module(self) -> &'static str {
        match self {
            Self::OwnWorker => "php",
            Self::Program => "fcgid",
            Self::Other => "proxy_fcgi",
            Self::Scgi => "proxy_scgi",
            Self::Uwsgi => "proxy_uwsgi",
        }
    }

    /// The head of a request that is not sent in records.
    fn plain_head(
        self,
        variables: &Variables,
        body_length: u64,
    ) -> Result<Option<Vec<u8>>, FailureKind> {
        let mut head = Vec::new();
        match self {
            Self::OwnWorker | Self::Program | Self::Other => return Ok(None),
            Self::Scgi => encode_scgi(&mut head, variables, body_length),
            Self::Uwsgi => encode_uwsgi(&mut head, variables)
                .map_err(|TooLarge(size)| FailureKind::LargeRequest(size))?,
        }
        Ok(Some(head))
    }
}

/// The beginning of a text, up to this many bytes.
fn bounded(text: &[u8], most: usize) -> &[u8] {
    text.get(..most).unwrap_or(text)
}

/// A response that the application has not ended.
struct Open {
    conversation: Conversation,
    lease: Option<Lease>,
    claim: Option<Claim>,
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
    /// Returns the whole body if it is short and ends soon, and a stream otherwise.
    async fn gather(mut self) -> Body {
        let mut length: usize = self.first.iter().map(Bytes::len).sum();
        let mut pause: Option<Timer> = None;
        loop {
            let next = poll_fn(|context| match self.poll_next(context) {
                Poll::Ready(chunk) => Poll::Ready(Some(chunk)),
                Poll::Pending => {
                    let pause = pause.get_or_insert_with(|| Timer::after(LONGEST_PAUSE));
                    pause.poll(context).map(|_| None)
                }
            });
            match next.await {
                Some(Some(Ok(bytes))) => {
                    length += bytes.len();
                    self.first.push_back(bytes);
                    if length > MOST_WHOLE {
                        break;
                    }
                }
                Some(None) => {
                    if self.first.len() == 1 {
                        return Body::Bytes(self.first.pop_front().unwrap_or_default());
                    }
                    let mut whole = Vec::with_capacity(length);
                    self.first.iter().for_each(|bytes| whole.extend_from_slice(bytes));
                    return Body::from(whole);
                }
                Some(Some(Err(error))) => {
                    let body = Broken(self.first, Some(error));
                    return Body::Stream(Box::pin(body), None);
                }
                None => break,
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
                Ok(Event::Complaint(bytes, is_whole)) => {
                    let notices = &mut self.late.borrow_mut().notices;
                    self.complaints.add(&bytes, is_whole, notices);
                }
                Ok(Event::Report(bytes)) => match &mut self.reports {
                    Some(reports) => reports.add(&bytes),
                    None => self.late.borrow_mut().notices.push(unknown(REPORT)),
                },
                Ok(Event::Unknown(kind)) => self.late.borrow_mut().notices.push(unknown(kind)),
                Ok(Event::End) => {
                    let Some(Open { conversation, lease, claim: _claim, _place }) =
                        self.open.take()
                    else {
                        return Poll::Ready(None);
                    };
                    if let Some(lease) = lease {
                        lease.done();
                    }
                    let reports = self.reports.take();
                    let kept = reports.and_then(|it| it.end(&mut self.late.borrow_mut()));
                    if let Some((pool, link)) = kept
                        && let Some(socket) = conversation.into_idle()
                    {
                        kept::keep(&pool.claims, link, socket);
                    }
                    return Poll::Ready(None);
                }
                Err(kind) => {
                    self.open = None;
                    self.complaints.end(&mut self.late.borrow_mut().notices);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_worker_is_one_message_with_one_level_however_it_arrives() {
        let record = [&b"<4>"[..], &b"<0>".repeat(3000)].concat();
        for size in [1, 2, 100, 4096, 20_000] {
            let (mut complaints, mut notices) = (Complaints::of(Voice::OwnWorker), Vec::new());
            let mut pieces = record.chunks(size).peekable();
            while let Some(piece) = pieces.next() {
                complaints.add(piece, pieces.peek().is_none(), &mut notices);
            }
            complaints.add(b"<6>next", true, &mut notices);
            let [first, next] = &*notices else { panic!("{} messages", notices.len()) };
            assert_eq!((first.level, first.text.len()), (Level::Warn, MOST_COMPLAINT));
            assert!(first.text.starts_with("<0><0>"));
            assert_eq!((next.level, &*next.text), (Level::Info, "next"));
        }
    }

    #[test]
    fn the_beginning_of_a_message_whose_end_does_not_come_is_told() {
        let (mut complaints, mut notices) = (Complaints::of(Voice::OwnWorker), Vec::new());
        complaints.add(b"<2>begun", false, &mut notices);
        assert!(notices.is_empty());
        complaints.end(&mut notices);
        complaints.end(&mut notices);
        assert_eq!(notices, [Notice::own("php", Level::Crit, "begun")]);
    }

    #[test]
    fn one_line_says_how_many_messages_were_left_out() {
        let (mut complaints, mut notices) = (Complaints::of(Voice::Program), Vec::new());
        for _ in 0..300 {
            complaints.add(&[b'x'; MOST_COMPLAINT], true, &mut notices);
        }
        let kept = notices.len() - 1;
        assert!(kept >= 60, "{kept} are kept");
        let text = |left: usize| format!("{left} more messages of this request are left out");
        assert_eq!(notices[kept].text, text(300 - kept));
        // The line goes on with the response.
        let mut late = vec![Notice::own("core", Level::Error, "other")];
        complaints.move_on(&mut notices, &mut late);
        complaints.add(b"x", true, &mut late);
        assert_eq!((notices.len(), late.len()), (kept, 2));
        assert_eq!((late[1].module, &*late[1].text), ("fcgid", &*text(301 - kept)));
        let mut short = Complaints::of(Voice::OwnWorker);
        notices.clear();
        (0..3000).for_each(|_| short.add(b"<4>PHP Warning:  Undefined", true, &mut notices));
        assert_eq!((notices.len(), short.left_out), (3000, 0));
    }
}
