//! A connection that must wait, as a task: for the rest of a head, for a body, for a handler or
//! for a client that is slow to read. It goes on, request after request, until nothing more has
//! come, and gives the connection back to rest.

use crate::exchange::credit::Lease;
use crate::exchange::request_body::{Reception, RequestBody};
use crate::exchange::respond::Responding;
use crate::exchange::send::Sending;
use crate::exchange::{Begun, Exchange, slot};
use crate::h1::body::H1Body;
use crate::h1::head::Reading;
use crate::h1::reply::{After, Reply};
use crate::h1::tunnel;
use crate::serving::Serving;
use crate::site::ConnectionSite;
use crate::transport::Transport;
use crate::transport::linger::linger;
use crate::transport::link::{Inbox, Link};
use crate::transport::parked::{Connection, Introduction};
use crate::transport::proxy_header::{self, Introduced};
use evenkeel_message::{
    BodyLength, Level, Notice, ReceivedHead, Request, Response, Status, Version, eq_ignore_case,
};
use evenkeel_message::{Pending, Served};
use evenkeel_proto::{Lifecycle, Parsed, Refusal};
use evenkeel_scoreboard::Credit;
use evenkeel_sys::clock;
use evenkeel_sys::dispatch::{ConnectionTask, Outcome};
use std::any::Any;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

/// The most of an unread body that is read away to keep the connection.
const MOST_DRAINED: u64 = 16 << 20;

/// Where a task begins.
pub(crate) enum Begin {
    /// Behind an answered request, with whatever has come of the next.
    Next,
    /// In a request's head.
    Head(Reading),
    /// Before the phases, of a request with a body.
    Request(Box<Request>, Begun, Lifecycle),
    /// In a handler; with the head of the request, for the page after a panic.
    Pending(Pending, (Begun, Lifecycle), ReceivedHead),
    /// In the response.
    Reply(Box<Reply>),
}

impl Begin {
    /// Whether a request is in progress, which holds a credit.
    pub(crate) fn needs_credit(&self) -> bool {
        match self {
            Begin::Next | Begin::Head(_) => false,
            Begin::Request(..) | Begin::Pending(..) => true,
            Begin::Reply(reply) => reply.needs_credit(),
        }
    }
}

struct Task<S> {
    inner: Rc<Serving<S>>,
    link: Rc<Link>,
    lease: Rc<Lease>,
    connection: Connection,
}

/// The body of a request in HTTP/1.
type Incoming = RequestBody<H1Body>;

/// Goes on with a connection as a task. `inbox` holds what came behind where the task begins.
pub(crate) fn go_on<S: ConnectionSite>(
    inner: &Rc<Serving<S>>,
    transport: Transport,
    connection: Connection,
    inbox: Inbox,
    more: bool,
    begin: Begin,
    credit: Option<Credit>,
) -> Outcome {
    let link = Link::new(&inner.thread, transport, inbox, more);
    let lease = Rc::new(Lease::new(&inner.thread.place, credit));
    let task = Task { inner: Rc::clone(inner), link, lease, connection };
    match begin {
        Begin::Head(_) => Outcome::HeadTask(work(task, begin)),
        _ => Outcome::Task(work(task, begin)),
    }
}

fn work<S: ConnectionSite>(task: Task<S>, begin: Begin) -> ConnectionTask {
    Box::pin(whole(task, begin))
}

/// Runs a task to its end. A panic outside of what the phases and handlers guard closes its
/// connection and is logged. What an `async fn` is handed it keeps twice, and thousands of these
/// wait at a time: hence the blocks, here and in [`Task::run`].
#[expect(clippy::manual_async_fn, reason = "it would be half as large again")]
fn whole<S: ConnectionSite>(mut task: Task<S>, begin: Begin) -> impl Future<Output = Outcome> {
    async move {
        let run = {
            let mut run = pin!(task.run(begin));
            poll_fn(|context| poll_caught(run.as_mut(), context)).await
        };
        if let Some(notice) = task.link.notice.take() {
            task.inner.site.tell(&notice, &task.connection.peer);
        }
        match run {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(next)) => Outcome::Task(work(task, next)),
            Err(panic) => task.inner.close_after_panic(&*panic, &task.connection.peer),
        }
    }
}

/// Polls a future; the error is what it panicked with.
pub(crate) fn poll_caught<T>(
    run: Pin<&mut impl Future<Output = T>>,
    context: &mut Context<'_>,
) -> Poll<Result<T, Box<dyn Any + Send>>> {
    match catch_unwind(AssertUnwindSafe(|| run.poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    }
}

impl<S: ConnectionSite> Task<S> {
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
                    Begin::Request(request, begun, lifecycle) => {
                        // Rare here, and large.
                        Box::pin(self.request(request, (begun, lifecycle))).await
                    }
                    Begin::Pending(pending, mut begun, head) => {
                        // The page for a head that was refused here began without a credit.
                        poll_fn(|context| self.lease.poll_hold(context)).await;
                        let (request, response) = self.pending(pending, head, &mut begun.0).await;
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
    async fn read_head(&mut self, mut reading: Reading) -> Result<Begin, Outcome> {
        loop {
            let is_known = self.is_introduced(&mut reading.request)?;
            let parsed = {
                let inbox = self.link.inbox.borrow();
                let rest = if is_known { inbox.rest() } else { &[] };
                reading.parse(&self.inner, &self.connection, rest)
            };
            match parsed {
                Ok(Parsed::Complete(used)) => return Ok(self.take_request(reading, used)),
                Ok(Parsed::Partial) => {}
                Err(refusal) => return Ok(self.refused(reading, &refusal)),
            }
            let settings = self.inner.site.settings(self.connection.server as usize);
            let came = self.link.inbox.borrow().rest().len() as u64;
            let gone_us = clock::monotonic_us().saturating_sub(reading.started_us);
            let left_ms = settings
                .header_time
                .map_or(u64::MAX, |time| time.allowed_ms(came).saturating_sub(gone_us / 1000));
            let wait = Duration::from_millis(left_ms.min(settings.timeout_ms));
            match timeout(wait, poll_fn(|context| self.link.poll_fill(context))).await {
                Ok(Ok(count)) if count > 0 => {}
                Ok(Err(error)) if error.kind() == ErrorKind::TimedOut => return self.late(reading),
                Ok(_) => match reading.parser.end() {
                    Some(refusal) => {
                        let received = self.link.inbox.borrow().rest().len();
                        reading.request.head.receive().wire_bytes = received;
                        return Ok(self.refused(reading, &refusal));
                    }
                    None => return Err(self.close(reading.request)),
                },
                Err(_) => return self.late(reading),
            }
        }
    }

    /// Goes on with a request that is refused for its form.
    fn refused(&mut self, reading: Reading, refusal: &Refusal) -> Begin {
        let Reading { request, started_us, .. } = reading;
        let begun = self.inner.begin(&self.connection, &request, started_us);
        let served = self.inner.refuse(request, refusal);
        self.served(served, (begun, Lifecycle::new()))
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
    fn late(&mut self, reading: Reading) -> Result<Begin, Outcome> {
        let Reading { mut request, parser, started_us, .. } = reading;
        if parser.has_line() {
            request.head.receive().wire_bytes = self.link.inbox.borrow().rest().len();
            let begun = self.inner.begin(&self.connection, &request, started_us);
            let text = "Request header read timeout";
            request.notify(Notice::new("reqtimeout", Level::Info, 1382, text));
            let head = request.head.clone();
            let served = self.inner.site.refuse(request, Status::REQUEST_TIMEOUT);
            return Ok(self.served((served, head), (begun, Lifecycle::new())));
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
    fn take_request(&mut self, reading: Reading, used: usize) -> Begin {
        let Reading { mut request, started_us, .. } = reading;
        self.link.inbox.borrow_mut().consume(used);
        let addressed = self.inner.site.address(&mut request);
        let begun = self.inner.begin(&self.connection, &request, started_us);
        let mut lifecycle = Lifecycle::new();
        lifecycle.head_read(request.head.length);
        match addressed {
            Ok(()) => Begin::Request(request, begun, lifecycle),
            Err(refusal) => {
                let served = self.inner.refuse(request, &refusal);
                self.served(served, (begun, lifecycle))
            }
        }
    }

    /// Goes on with what was served for a request whose body, if it has one, is not read.
    fn served(
        &mut self,
        (served, head): (Served, ReceivedHead),
        begun: (Begun, Lifecycle),
    ) -> Begin {
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
        mut begun: (Begun, Lifecycle),
    ) -> (Box<Reply>, Option<Rc<Incoming>>) {
        let settings = self.inner.site.settings(request.server);
        let expecting = request.head.version >= Version::Http11
            && request
                .head
                .fields
                .tokens(b"Expect")
                .any(|token| eq_ignore_case(token, b"100-continue"));
        let reader = H1Body::new(&self.link, request.head.length, settings);
        let incoming =
            reader.map(|reader| RequestBody::new(reader, &self.lease, expecting, settings));
        request.body = incoming.as_ref().map(Incoming::source);
        poll_fn(|context| self.lease.poll_hold(context)).await;
        let (served, head) = self.inner.serve(request, &self.connection);
        let (request, response) = match served {
            Served::Now(request, response) => (request, response),
            Served::Later(pending) => self.pending(pending, head, &mut begun.0).await,
        };
        (self.reply(request, response, begun, incoming.as_deref()), incoming)
    }

    /// Waits for a handler.
    async fn pending(
        &self,
        pending: Pending,
        head: ReceivedHead,
        begun: &mut Begun,
    ) -> (Box<Request>, Response) {
        let Self { inner: serving, link, lease, connection } = self;
        let has_left = |context: &mut Context<'_>| link.has_ended(context);
        let send_interim = &|heads: &[u8]| link.send_interim(heads);
        let responding = Responding { serving, connection, lease, has_left, send_interim };
        responding.wait(pending, head, begun).await
    }

    fn reply(
        &mut self,
        mut request: Box<Request>,
        response: Response,
        begun: (Begun, Lifecycle),
        incoming: Option<&Incoming>,
    ) -> Box<Reply> {
        if incoming.is_some_and(|body| body.reception() == Reception::TimedOut) {
            let text = "Request body read timeout";
            request.notify(Notice::new("reqtimeout", Level::Info, 1382, text));
        }
        for notice in incoming.into_iter().flat_map(Incoming::take_notices) {
            request.notify(notice);
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

    /// Sends a response to its end, then goes on to the next request or the connection's end.
    async fn send(
        &mut self,
        mut reply: Box<Reply>,
        incoming: Option<Rc<Incoming>>,
    ) -> Result<Begin, Outcome> {
        let settings = self.inner.site.settings(reply.exchange.request.server);
        let sending = Sending {
            serving: &self.inner,
            connection: &self.connection,
            lease: &self.lease,
            timeout: Duration::from_millis(settings.timeout_ms),
        };
        let sent = {
            let (exchange, mut writer) = reply.parts(&self.link);
            sending.send(exchange, &mut writer).await
        };
        if let Some(body) = &incoming {
            self.end_body(&mut reply, body, sent.is_ok()).await;
        }
        if sent.is_ok()
            && let Some(tunnel) = reply.take_tunnel()
        {
            self.lease.release();
            slot::set_aside(&self.inner.thread, &mut reply.exchange.begun.slot);
            let line = self.inner.thread.place.line;
            reply.note_tunnel(tunnel::pass(&self.link, line, tunnel).await);
        }
        let Exchange { request, begun, .. } = &mut reply.exchange;
        if begun.slot.is_none() {
            // Its slot went to others while the client was slow: it is counted in another.
            begun.slot = self.inner.show(&self.connection, request);
        }
        let after = reply.finish(&self.inner, &mut self.connection, sent.is_err());
        self.lease.release();
        match after {
            After::Next => self.next().await,
            After::End { client_ends } => Err(self.end(client_ends)),
            After::Reset => {
                if let Some(transport) = self.link.take() {
                    transport.reset_on_close();
                }
                Err(Outcome::Closed)
            }
        }
    }

    /// Notes what came of the request's body. What its handler left of it is read away first where
    /// the connection is kept for that, so that the record counts it.
    async fn end_body(&self, reply: &mut Reply, body: &Incoming, is_sent: bool) {
        let is_kept = is_sent && reply.is_kept();
        if is_kept && body.reception() == Reception::Open && !body.is_expecting() {
            // Waiting for the client is no work that a slot would show.
            slot::set_aside(&self.inner.thread, &mut reply.exchange.begun.slot);
            self.drain(body).await;
        }
        reply.exchange.received = body.received();
        reply.exchange.store_trailers(body.take_trailers());
        match body.reception() {
            Reception::Open => {}
            Reception::Complete => reply.note_body(true),
            Reception::Broken | Reception::Disconnected | Reception::TimedOut => {
                reply.note_body(false);
            }
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
            Some(transport) if !quiet => linger(transport, self.connection.clone()),
            Some(mut transport) => {
                transport.announce_end();
                Outcome::Closed
            }
            None => Outcome::Closed,
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
                match self.begun() {
                    Ok(begin) => return Ok(begin),
                    Err(request) => self.inner.give(request),
                }
                let idle = self.link.inbox.borrow().rest().len();
                self.link.inbox.borrow_mut().consume(idle);
            }
            if !self.link.more.get() {
                self.flush().await?;
                let transport = self.link.take().ok_or(Outcome::Closed)?;
                return Err(self.inner.rest(transport, self.connection.clone()));
            }
            match self.link.fill_now() {
                Ok(count) if count > 0 => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.link.more.set(false),
                _ => return Err(Outcome::Closed),
            }
        }
    }

    /// Sends what the transport has taken and not sent, so that the connection may be parked.
    async fn flush(&self) -> Result<(), Outcome> {
        if !self.link.has_unsent() {
            return Ok(());
        }
        let settings = self.inner.site.settings(self.connection.server as usize);
        let flushed = poll_fn(|context| self.link.poll_send(context, |channel| channel.flush()));
        match timeout(Duration::from_millis(settings.timeout_ms), flushed).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Outcome::Closed),
        }
    }

    /// The beginning of a request, unless nothing but empty lines has come.
    fn begun(&self) -> Result<Begin, Box<Request>> {
        let mut reading = Reading::begin(&self.inner, &self.connection);
        let parsed = reading.parse(&self.inner, &self.connection, self.link.inbox.borrow().rest());
        if parsed == Ok(Parsed::Partial) && !reading.parser.is_started() {
            return Err(reading.request);
        }
        reading.keep(parsed);
        Ok(Begin::Head(reading))
    }
}
