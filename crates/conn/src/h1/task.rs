//! A connection that must wait, as a task: for the rest of a head, for a body, for a handler or
//! for a client that is slow to read. It goes on, request after request, until nothing more has
//! come, and gives the connection back to rest.

use crate::exchange::pieces::Progress;
use crate::exchange::reply::{Begun, Reply};
use crate::exchange::request_body::{Fate, Incoming};
use crate::exchange::slot::{self, Writing};
use crate::serving::Serving;
use crate::site::{Served, Site};
use crate::transport::Transport;
use crate::transport::linger::linger;
use crate::transport::link::{Inbox, Link, waits_for_client};
use crate::transport::parked::{Connection, Introduction};
use crate::transport::proxy_header::{self, Introduced};
use evenkeel_message::{
    BodyLength, Departure, Level, Notice, Request, Response, Status, Version, eq_ignore_case,
};
use evenkeel_proto::{HeadParser, Next, Parsed};
use evenkeel_scoreboard::{Credit, SlotGuard};
use evenkeel_sys::clock;
use evenkeel_sys::dispatch::{ConnectionTask, Outcome};
use std::any::Any;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::timeout;

/// The most of an unread body that is read away to keep the connection.
const MOST_DRAINED: u64 = 16 << 20;

/// A response that a handler has still to make.
type Pending = Pin<Box<dyn Future<Output = (Box<Request>, Response)>>>;

/// Where a task begins.
pub(crate) enum Begin {
    /// Behind an answered request, with whatever has come of the next.
    Next,
    /// In a request's head.
    Head(Reading),
    /// Before the phases, of a request with a body; with the bytes of its head.
    Request(Box<Request>, Begun, Box<[u8]>),
    /// In a handler; with the bytes of the request's head.
    Pending(Pending, Begun, Box<[u8]>),
    /// In the response.
    Reply(Box<Reply>),
}

/// A head that has partly come.
pub(crate) struct Reading {
    pub(crate) request: Box<Request>,
    pub(crate) parser: HeadParser,
    pub(crate) started_us: u64,
}

impl Begin {
    /// Whether a request is in progress, which holds a credit.
    pub(crate) fn needs_credit(&self) -> bool {
        match self {
            Begin::Next | Begin::Head(_) => false,
            Begin::Request(..) | Begin::Pending(..) => true,
            Begin::Reply(reply) => reply.output.is_stream() || reply.is_heavy(),
        }
    }
}

struct Task<S> {
    inner: Rc<Serving<S>>,
    link: Rc<Link>,
    connection: Connection,
}

/// Goes on with a connection as a task. `inbox` holds what came behind where the task begins.
pub(crate) fn go_on<S: Site>(
    inner: &Rc<Serving<S>>,
    transport: Transport,
    connection: Connection,
    inbox: Inbox,
    more: bool,
    begin: Begin,
    credit: Option<Credit>,
) -> Outcome {
    let link = Link::new(&inner.thread, transport, inbox, more, credit);
    let task = Task { inner: Rc::clone(inner), link, connection };
    match begin {
        Begin::Head(_) => Outcome::HeadTask(work(task, begin)),
        _ => Outcome::Task(work(task, begin)),
    }
}

fn work<S: Site>(task: Task<S>, begin: Begin) -> ConnectionTask {
    Box::pin(whole(task, begin))
}

/// Runs a task to its end. A panic outside of what the phases and handlers guard closes its
/// connection and is logged. What an `async fn` is handed it keeps twice, and thousands of these
/// wait at a time: hence the blocks, here and in [`Task::run`].
#[expect(clippy::manual_async_fn, reason = "it would be half as large again")]
fn whole<S: Site>(mut task: Task<S>, begin: Begin) -> impl Future<Output = Outcome> {
    async move {
        let run = {
            let mut run = pin!(task.run(begin));
            let polled = poll_fn(|context| {
                let polled = catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context)));
                match polled {
                    Ok(polled) => polled.map(Ok),
                    Err(panic) => Poll::Ready(Err(panic)),
                }
            });
            polled.await
        };
        match run {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(next)) => Outcome::Task(work(task, next)),
            Err(panic) => task.inner.close_after_panic(&*panic, &task.connection.peer),
        }
    }
}

impl<S: Site> Task<S> {
    /// Serves until the connection rests or is closed; where it began with a head, until that is
    /// whole: the error is what follows.
    #[expect(clippy::manual_async_fn, reason = "it would be half as large again")]
    fn run(&mut self, mut begin: Begin) -> impl Future<Output = Result<Outcome, Begin>> {
        async move {
            // While nothing but a head has come, the task may be dropped.
            let begins_with_head = matches!(begin, Begin::Head(_));
            loop {
                let (reply, incoming) = match begin {
                    Begin::Next => match self.next().await {
                        Ok(next) => {
                            begin = next;
                            continue;
                        }
                        Err(outcome) => return Ok(outcome),
                    },
                    Begin::Head(reading) => match self.read_head(reading).await {
                        Ok(next) if begins_with_head => return Err(next),
                        Ok(next) => {
                            begin = next;
                            continue;
                        }
                        Err(outcome) => return Ok(outcome),
                    },
                    Begin::Request(request, begun, head) => {
                        // Rare here, and large.
                        Box::pin(self.request(request, begun, &head)).await
                    }
                    Begin::Pending(pending, mut begun, head) => {
                        // The page for a head that was refused here began without a credit.
                        poll_fn(|context| self.link.lease.poll_hold(context)).await;
                        let (request, response) = self.pending(pending, &head, &mut begun).await;
                        (self.reply(request, response, begun, None), None)
                    }
                    Begin::Reply(reply) => (reply, None),
                };
                begin = match self.send(reply, incoming).await {
                    Ok(next) => next,
                    Err(outcome) => return Ok(outcome),
                };
            }
        }
    }

    /// Reads until the head is whole, refused or too late.
    async fn read_head(&mut self, reading: Reading) -> Result<Begin, Outcome> {
        let Reading { mut request, mut parser, started_us } = reading;
        request.time_us = self.inner.thread.day_us(started_us);
        loop {
            let is_known = self.is_introduced(&mut request)?;
            let settings = self.inner.site.settings(self.connection.server as usize);
            let parsed = {
                let inbox = self.link.inbox.borrow();
                let rest = if is_known { inbox.rest() } else { &[] };
                parser.parse(request.head.receive(), rest, &settings.limits, &settings.options)
            };
            match parsed {
                Ok(Parsed::Complete(used)) => {
                    return Ok(self.take_request(request, started_us, used));
                }
                Ok(Parsed::Partial) => {}
                Err(refusal) => {
                    let begun = self.inner.begin(&self.connection, &request, started_us);
                    let served = self.inner.refuse(request, &refusal);
                    return Ok(self.served(served, begun, Box::default()));
                }
            }
            let came = self.link.inbox.borrow().rest().len() as u64;
            let now_us = clock::monotonic_us();
            let left_ms = settings.header_time.map_or(u64::MAX, |time| {
                time.allowed_ms(came).saturating_sub(now_us.saturating_sub(started_us) / 1000)
            });
            let wait = Duration::from_millis(left_ms.min(settings.timeout_ms));
            match timeout(wait, poll_fn(|context| self.link.poll_fill(context))).await {
                Ok(Ok(count)) if count > 0 => {}
                Ok(Err(error)) if error.kind() == ErrorKind::TimedOut => {
                    return self.late(request, parser.has_line(), started_us);
                }
                Ok(_) => match parser.end() {
                    Some(refusal) => {
                        request.head.receive().wire_bytes = self.link.inbox.borrow().rest().len();
                        let begun = self.inner.begin(&self.connection, &request, started_us);
                        let served = self.inner.refuse(request, &refusal);
                        return Ok(self.served(served, begun, Box::default()));
                    }
                    None => return Err(self.close(request)),
                },
                Err(_) => return self.late(request, parser.has_line(), started_us),
            }
        }
    }

    /// Whether the client is known: the connection has no PROXY header, or it was received.
    ///
    /// # Errors
    /// The connection does not begin with a valid PROXY header.
    fn is_introduced(&mut self, request: &mut Request) -> Result<bool, Outcome> {
        if self.connection.introduction != Introduction::Awaited {
            return Ok(true);
        }
        let mut inbox = self.link.inbox.borrow_mut();
        match proxy_header::make(&self.inner, &mut self.connection, inbox.rest()) {
            Introduced::Known(used) => {
                inbox.consume(used);
                proxy_header::note(request, &self.connection);
                Ok(true)
            }
            Introduced::Partly => Ok(false),
            Introduced::Not => Err(Outcome::Closed),
        }
    }

    /// A head that did not come in time: an answer where its line had come, else only a line in
    /// the log, and not even that on a connection that was answered before (Apache:
    /// `ap_read_request`).
    fn late(
        &mut self,
        mut request: Box<Request>,
        has_line: bool,
        started_us: u64,
    ) -> Result<Begin, Outcome> {
        if has_line {
            request.head.receive().wire_bytes = self.link.inbox.borrow().rest().len();
            let begun = self.inner.begin(&self.connection, &request, started_us);
            let text = "Request header read timeout";
            request.notify(Notice::new("reqtimeout", Level::Info, 1382, text));
            let status = Status::REQUEST_TIMEOUT;
            let served = self.inner.site.refuse(request, status);
            return Ok(self.served(served, begun, Box::default()));
        }
        if self.connection.keepalives == 0 {
            let duration_us = clock::monotonic_us().saturating_sub(started_us);
            self.inner.note_timeout(&self.connection, request, duration_us);
            return Err(Outcome::Closed);
        }
        Err(self.close(request))
    }

    fn close(&mut self, request: Box<Request>) -> Outcome {
        self.inner.give(request);
        Outcome::Closed
    }

    /// Takes a whole head off the inbox.
    fn take_request(&mut self, mut request: Box<Request>, started_us: u64, used: usize) -> Begin {
        let head: Box<[u8]> = {
            let mut inbox = self.link.inbox.borrow_mut();
            let head = inbox.rest().get(..used).unwrap_or_default().into();
            inbox.consume(used);
            head
        };
        let addressed = self.inner.site.address(&mut request);
        let mut begun = self.inner.begin(&self.connection, &request, started_us);
        begun.life.head_read(request.head.length);
        match addressed {
            Ok(()) => Begin::Request(request, begun, head),
            Err(refusal) => {
                let served = self.inner.refuse(request, &refusal);
                self.served(served, begun, head)
            }
        }
    }

    /// Goes on with what was served for a request whose body, if it has one, is not read.
    fn served(&mut self, served: Served, begun: Begun, head: Box<[u8]>) -> Begin {
        match served {
            Served::Now(request, response) => {
                Begin::Reply(self.reply(request, response, begun, None))
            }
            Served::Later(pending) => Begin::Pending(pending, begun, head),
        }
    }

    /// Runs the phases on a request, with a credit.
    async fn request(
        &mut self,
        mut request: Box<Request>,
        mut begun: Begun,
        head: &[u8],
    ) -> (Box<Reply>, Option<Rc<Incoming>>) {
        let settings = self.inner.site.settings(request.server);
        let expecting = request.head.version >= Version::Http11
            && request
                .head
                .fields
                .tokens(b"Expect")
                .any(|token| eq_ignore_case(token, b"100-continue"));
        let incoming = Incoming::new(&self.link, request.head.length, expecting, settings);
        request.body = incoming.as_ref().map(Incoming::source);
        poll_fn(|context| self.link.lease.poll_hold(context)).await;
        let (request, response) = match self.inner.serve(request, || head, &self.connection) {
            Served::Now(request, response) => (request, response),
            Served::Later(pending) => self.pending(pending, head, &mut begun).await,
        };
        (self.reply(request, response, begun, incoming.as_deref()), incoming)
    }

    /// Waits for a handler. A panic in it costs its request a 500. While it asks whether its
    /// client is still there, the connection is watched.
    async fn pending(
        &mut self,
        mut pending: Pending,
        head: &[u8],
        begun: &mut Begun,
    ) -> (Box<Request>, Response) {
        let Begun { departure, slot, .. } = begun;
        let polled = poll_fn(|context| {
            loop {
                if departure.wants_permit() {
                    ready!(self.poll_turn(context, departure, slot));
                    departure.give_permit();
                }
                if departure.wants_credit() {
                    ready!(self.link.lease.poll_hold(context));
                    departure.give_credit();
                }
                match guarded(&mut pending, context) {
                    Ok(Poll::Pending) if departure.wants_permit() || departure.wants_credit() => {
                        continue;
                    }
                    Ok(Poll::Pending) if departure.has_returned_credit() => {
                        self.link.lease.release();
                        slot::set_aside(&self.inner.thread, slot);
                    }
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(made)) => return Poll::Ready(Ok(made)),
                    Err(panic) => return Poll::Ready(Err(panic)),
                }
                if !departure.is_awaited() || !self.link.has_ended(context) {
                    return Poll::Pending;
                }
                departure.tell();
            }
        });
        match polled.await {
            Ok(made) => made,
            Err(panic) => Box::pin(self.page_after_panic(&*panic, head)).await,
        }
    }

    /// The error page of a request whose handler has panicked.
    async fn page_after_panic(
        &self,
        panic: &(dyn Any + Send),
        head: &[u8],
    ) -> (Box<Request>, Response) {
        let mut served = self.inner.after_panic(panic, head, &self.connection);
        loop {
            match served {
                Served::Now(request, response) => return (request, response),
                Served::Later(mut page) => {
                    let page = poll_fn(|context| match guarded(&mut page, context) {
                        Ok(poll) => poll.map(Some),
                        Err(_) => Poll::Ready(None),
                    });
                    if let Some(made) = page.await {
                        return made;
                    }
                    let request = self.inner.request(&self.connection);
                    let bare = Response::new(Status::INTERNAL_SERVER_ERROR);
                    served = Served::Now(request, bare);
                }
            }
        }
    }

    fn reply(
        &mut self,
        mut request: Box<Request>,
        response: Response,
        begun: Begun,
        incoming: Option<&Incoming>,
    ) -> Box<Reply> {
        if incoming.is_some_and(|body| body.fate() == Fate::Late) {
            let text = "Request body read timeout";
            request.notify(Notice::new("reqtimeout", Level::Info, 1382, text));
        }
        for fault in incoming.into_iter().flat_map(Incoming::take_faults) {
            request.notify(fault);
        }
        self.inner.site.tell_all(&mut request);
        let settings = self.inner.site.settings(request.server);
        // A body that nothing reads ends the connection, and the client is told so.
        let is_unread = !matches!(request.head.length, BodyLength::None | BodyLength::Exact(0));
        let expecting = incoming.map_or(is_unread, Incoming::is_expecting);
        let ends = self.connection.is_over(&self.inner.thread);
        let thread = &self.inner.thread;
        Box::new(Reply::new(thread, settings, ends, request, response, begun, expecting))
    }

    /// Ready once the request may have expensive work done: it is its turn, or its client has gone,
    /// of which the work itself takes account. While it waits it holds neither credit nor slot.
    fn poll_turn(
        &self,
        context: &mut Context<'_>,
        departure: &Departure,
        slot: &mut Option<SlotGuard>,
    ) -> Poll<()> {
        let lease = &self.link.lease;
        if !departure.is_told() && lease.poll_permit(context).is_pending() {
            slot::set_aside(&self.inner.thread, slot);
            if !self.link.has_ended(context) {
                return Poll::Pending;
            }
            departure.tell();
            lease.end_work();
        }
        lease.poll_hold(context)
    }

    /// Sends a response to its end, then goes on to the next request or the connection's end.
    async fn send(
        &mut self,
        mut reply: Box<Reply>,
        incoming: Option<Rc<Incoming>>,
    ) -> Result<Begin, Outcome> {
        let timeout_ms = self.inner.site.settings(reply.request.server).timeout_ms;
        let sent = self.send_all(&mut reply, Duration::from_millis(timeout_ms)).await;
        if let Some(body) = &incoming {
            self.end_body(&mut reply, body, sent.is_ok()).await;
        }
        if reply.begun.slot.is_none() {
            // Its slot went to others while the client was slow: it is counted in another.
            reply.begun.slot = self.inner.show(&self.connection, &reply.request);
        }
        let Serving { site, thread, .. } = &*self.inner;
        let next = reply.finish(site, thread, &mut self.connection, sent.is_err());
        let request = reply.into_request();
        self.link.lease.release();
        let ends = Reply::client_ends(&request);
        self.inner.give(request);
        match next {
            Next::Reuse => {}
            Next::Drain => return Err(self.end(false)),
            Next::Linger | Next::Wait => return Err(self.end(ends)),
            Next::Abort => {
                // The client must be able to tell that this was not all.
                if let Some(transport) = self.link.take() {
                    transport.reset_on_close();
                }
                return Err(Outcome::Closed);
            }
        }
        self.next().await
    }

    /// Notes what came of the request's body. What its handler left of it is read away first where
    /// the connection is kept for that, so that the record counts it.
    async fn end_body(&self, reply: &mut Reply, body: &Incoming, is_sent: bool) {
        let is_kept = is_sent && reply.is_kept();
        if is_kept && body.fate() == Fate::Open && !body.is_expecting() {
            // Waiting for the client is no work that a slot would show.
            slot::set_aside(&self.inner.thread, &mut reply.begun.slot);
            self.drain(body).await;
        }
        reply.received = body.received();
        reply.request.trailers = body.take_trailers();
        match body.fate() {
            Fate::Open => {}
            Fate::Read => reply.begun.life.body_read(),
            Fate::Broken | Fate::Gone | Fate::Late => reply.begun.life.read_failed(),
        }
    }

    /// Waits for what it takes to fetch the next piece of a stream: a credit, and a permit if the
    /// piece is expensive work.
    async fn wait_for_fetch(&self, reply: &Reply) {
        let lease = &self.link.lease;
        match reply.output.is_expensive() {
            true => poll_fn(|context| lease.poll_work(context)).await,
            false => {
                lease.end_work();
                poll_fn(|context| lease.poll_hold(context)).await;
            }
        }
    }

    async fn send_all(&self, reply: &mut Reply, patience: Duration) -> io::Result<()> {
        let lease = &self.link.lease;
        if reply.output.is_stream() {
            self.wait_for_fetch(reply).await;
            // What is there at once goes out with the head.
            let first = poll_fn(|context| Poll::Ready(fetch(reply, context))).await;
            if let Poll::Ready(result) = first {
                lease.end_work();
                result?;
            }
        } else {
            lease.end_work();
            if reply.is_heavy() {
                poll_fn(|context| lease.poll_hold(context)).await;
            }
        }
        let (mut writing, mut share) = (None, None);
        loop {
            let before = reply.output.sent;
            let sent = poll_fn(|context| {
                let sent = self.link.poll_send(context, |channel| reply.output.send(channel));
                if sent.is_pending() && waits_for_client() {
                    // The client is slow: its request is no work for the server any more.
                    if reply.is_heavy() && share.is_none() {
                        let room = &self.inner.thread.place.slow_bytes;
                        share = room.take(reply.output.held());
                        if share.is_none() {
                            return Poll::Ready(Err(ErrorKind::QuotaExceeded.into()));
                        }
                    }
                    lease.release();
                    slot::set_aside(&self.inner.thread, &mut reply.begun.slot);
                    writing.get_or_insert_with(|| Writing::new(&self.inner.thread));
                    reply.read_ahead(context);
                    // It took a credit for what it read.
                    lease.release();
                }
                sent
            });
            let progress = match timeout(patience, sent).await {
                Ok(Err(error)) if error.kind() == ErrorKind::QuotaExceeded => {
                    let text = "slow clients keep as much as they may, this one's response ends";
                    reply.request.notify(Notice::own("core", Level::Info, text.to_owned()));
                    return Err(error);
                }
                Ok(progress) => progress?,
                // What the client has taken meanwhile is progress too.
                Err(_) if reply.output.sent > before => Progress::More,
                Err(_) => return Err(ErrorKind::TimedOut.into()),
            };
            reply.note_sent();
            if progress == Progress::More {
                tokio::task::yield_now().await;
                continue;
            }
            if !reply.output.is_stream() {
                return Ok(());
            }
            (writing, share) = (None, None);
            self.wait_for_fetch(reply).await;
            if reply.begun.slot.is_none() {
                reply.begun.slot = self.inner.show(&self.connection, &reply.request);
            }
            let fetched = poll_fn(|context| {
                let fetched = fetch(reply, context);
                let is_left = fetched.is_pending()
                    && reply.output.ends_with_client()
                    && self.link.has_ended(context);
                match is_left {
                    true => Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
                    false => fetched,
                }
            });
            let fetched = fetched.await;
            lease.end_work();
            fetched?;
        }
    }

    /// Reads the rest of a body away, unless that is too much or fails.
    async fn drain(&self, body: &Incoming) {
        while body.received() < MOST_DRAINED {
            match poll_fn(|context| body.poll_chunk(context, false)).await {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    }

    /// Ends the connection; with lingering, unless the client will send nothing more.
    fn end(&mut self, client_ends: bool) -> Outcome {
        let quiet = client_ends && self.link.inbox.borrow().is_empty();
        match self.link.take() {
            Some(transport) if !quiet => linger(transport, self.connection),
            _ => Outcome::Closed,
        }
    }

    /// The next request, if something of it has come; else the connection rests.
    async fn next(&mut self) -> Result<Begin, Outcome> {
        if self.link.more.get() || !self.link.inbox.borrow().is_empty() {
            // Others first: a client that sends ahead must not keep them out.
            tokio::task::yield_now().await;
        }
        loop {
            if !self.link.inbox.borrow().is_empty() {
                let request = self.inner.request(&self.connection);
                match self.begun(request) {
                    Ok(begin) => return Ok(begin),
                    Err(request) => self.inner.give(request),
                }
                let idle = self.link.inbox.borrow().rest().len();
                self.link.inbox.borrow_mut().consume(idle);
            }
            if !self.link.more.get() {
                let transport = self.link.take().ok_or(Outcome::Closed)?;
                return Err(self.inner.rest(transport, &self.connection));
            }
            match self.link.fill_now() {
                Ok(count) if count > 0 => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.link.more.set(false),
                _ => return Err(Outcome::Closed),
            }
        }
    }

    /// The beginning of a request, unless nothing but empty lines has come.
    fn begun(&self, mut request: Box<Request>) -> Result<Begin, Box<Request>> {
        let settings = self.inner.site.settings(self.connection.server as usize);
        let mut parser = HeadParser::new();
        let looked = {
            let inbox = self.link.inbox.borrow();
            parser.parse(request.head.receive(), inbox.rest(), &settings.limits, &settings.options)
        };
        if looked == Ok(Parsed::Partial) && !parser.is_started() {
            return Err(request);
        }
        // Looked at only for whether a request has begun; an error is found again.
        request.head.receive().clear();
        let (parser, started_us) = (HeadParser::new(), clock::monotonic_us());
        Ok(Begin::Head(Reading { request, parser, started_us }))
    }
}

/// Fetches more of a stream; a panic in it breaks the response off.
fn fetch(reply: &mut Reply, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
    catch_unwind(AssertUnwindSafe(|| reply.output.poll_fetch(context)))
        .unwrap_or_else(|_| Poll::Ready(Err(ErrorKind::Other.into())))
}

fn guarded(
    pending: &mut Pending,
    context: &mut Context<'_>,
) -> std::thread::Result<Poll<(Box<Request>, Response)>> {
    catch_unwind(AssertUnwindSafe(|| pending.as_mut().poll(context)))
}
