//! A stream that waits for the body of its request, for its handler or for its client. It is a
//! future that the session polls, and it has a credit lease of its own.

use super::body::StreamBody;
use super::reply::StreamReply;
use super::session_state::State;
use super::writer::has_left;
use crate::exchange::credit::Lease;
use crate::exchange::request_body::{Reception, RequestBody};
use crate::exchange::respond::Responding;
use crate::exchange::send::Sending;
use crate::exchange::{Begun, Exchange};
use crate::serving::Serving;
use crate::site::ConnectionSite;
use crate::transport::link::Link;
use crate::transport::parked::Connection;
use evenkeel_message::{
    Level, Notice, Pending, ReceivedHead, Request, Response, Served, eq_ignore_case,
};
use evenkeel_proto::h2::ErrorCode;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

/// Where the future of a stream begins.
pub(crate) enum Begin {
    /// Before the phases: the request has a body.
    Request(Box<Request>, Begun),
    /// In a handler. The head of the request is for the error page after a panic.
    Pending(Pending, Begun, ReceivedHead),
    /// In sending the response.
    Reply(Box<StreamReply>),
}

/// A stream.
pub(crate) struct StreamTask<S> {
    pub(crate) serving: Rc<Serving<S>>,
    pub(crate) state: State,
    pub(crate) link: Rc<Link>,
    pub(crate) lease: Rc<Lease>,
    pub(crate) connection: Connection,
    pub(crate) stream: u32,
}

impl<S: ConnectionSite> StreamTask<S> {
    /// Serves the request until it is recorded. Returns the changed state of the connection.
    pub(crate) async fn run(mut self, begin: Begin) -> Connection {
        let (mut reply, body) = match begin {
            Begin::Request(request, begun) => Box::pin(self.request(request, begun)).await,
            Begin::Pending(pending, mut begun, head) => {
                // The error page of a refused request may have begun without a credit.
                poll_fn(|context| self.lease.poll_hold(context)).await;
                let (request, response) = self.pending(pending, head, &mut begun).await;
                (self.reply(request, response, begun, None), None)
            }
            Begin::Reply(reply) => (reply, None),
        };
        reply.writer.send_over(&self.link);
        let settings = self.serving.site.settings(reply.exchange.request.server);
        let sending = Sending {
            serving: &self.serving,
            connection: &self.connection,
            lease: &self.lease,
            timeout: Duration::from_millis(settings.http2.stream_timeout_ms),
        };
        let StreamReply { exchange, writer, .. } = &mut *reply;
        let sent = sending.send(exchange, writer).await;
        if let Err(error) = &sent {
            let code = match error.kind() {
                ErrorKind::TimedOut | ErrorKind::QuotaExceeded => ErrorCode::Cancel,
                _ => ErrorCode::InternalError,
            };
            self.state.borrow_mut().reset(self.stream, code);
        }
        if let Some(body) = body {
            reply.exchange.received = body.received();
            reply.exchange.store_trailers(body.take_trailers());
        }
        let Exchange { request, begun, .. } = &mut reply.exchange;
        if begun.slot.is_none() {
            // The stream has released its status slot while its client was slow. Take a new one.
            begun.slot = self.serving.show(&self.connection, request);
        }
        reply.finish(&self.serving, &mut self.connection, sent.is_err());
        self.lease.release();
        self.connection
    }

    /// Runs the phases on a request with a body, with a credit.
    async fn request(
        &self,
        mut request: Box<Request>,
        mut begun: Begun,
    ) -> (Box<StreamReply>, Option<Rc<RequestBody<StreamBody>>>) {
        let settings = self.serving.site.settings(request.server);
        let mut expectations = request.head.fields.tokens(b"Expect");
        let expecting = expectations.any(|token| eq_ignore_case(token, b"100-continue"));
        drop(expectations);
        let reader = StreamBody::new(&self.state, self.stream);
        let body = RequestBody::new(reader, &self.lease, expecting, settings);
        request.body = Some(body.source());
        poll_fn(|context| self.lease.poll_hold(context)).await;
        let (served, head) = self.serving.serve(request, &self.connection);
        let (request, response) = match served {
            Served::Now(request, response) => (request, response),
            Served::Later(pending) => self.pending(pending, head, &mut begun).await,
        };
        (self.reply(request, response, begun, Some(&body)), Some(body))
    }

    /// Waits for a handler.
    async fn pending(
        &self,
        pending: Pending,
        head: ReceivedHead,
        begun: &mut Begun,
    ) -> (Box<Request>, Response) {
        let Self { serving, state, lease, connection, stream, .. } = self;
        let has_left = |context: &mut std::task::Context<'_>| has_left(state, *stream, context);
        let send_interim = &|heads: &[u8]| state.borrow_mut().inform(*stream, heads);
        let responding = Responding { serving, connection, lease, has_left, send_interim };
        responding.wait(pending, head, begun).await
    }

    fn reply(
        &self,
        mut request: Box<Request>,
        response: Response,
        begun: Begun,
        body: Option<&RequestBody<StreamBody>>,
    ) -> Box<StreamReply> {
        if let Some(body) = body {
            if body.reception() == Reception::TimedOut {
                let text = "Request body read timeout";
                request.notify(Notice::new("reqtimeout", Level::Info, 1382, text));
            }
            for notice in body.take_notices() {
                request.notify(notice);
            }
        }
        self.serving.site.tell_all(&mut request);
        let settings = self.serving.site.settings(request.server);
        let thread = &self.serving.thread;
        let reply = StreamReply::new(thread, settings, &self.state, request, response, begun);
        Box::new(reply)
    }
}
