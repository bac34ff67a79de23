//! A response in HTTP/1: its head and framing are decided, and when it is sent (or was not), what
//! happens to the connection.

use crate::exchange::pieces::{Fetched, Pieces, Progress};
use crate::exchange::send::ResponseWriter;
use crate::exchange::{Begun, Ended, Exchange};
use crate::h1::framing::{Framing, length_of};
use crate::serving::Serving;
use crate::site::{ConnectionSite, Settings};
use crate::thread::ThreadState;
use crate::transport::Channel;
use crate::transport::link::Link;
use crate::transport::parked::Connection;
use evenkeel_message::{
    BodyLength, Fields, Name, Passed, Request, Response, Switched, Version, eq_ignore_case,
};
use evenkeel_proto::{
    Ask, Head, Lifecycle, Next, Persistence, body_framing, encode_head, persistence,
};
use std::io;
use std::task::{Context, Poll};

/// A response on its way out.
pub(crate) struct Reply {
    pub(crate) exchange: Exchange,
    framing: Framing,
    lifecycle: Lifecycle,
    transfer: evenkeel_proto::BodyFraming,
    persistence: Persistence,
}

/// What happens to a connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The next request follows.
    Next,
    /// It ends, with lingering unless the client will send nothing more.
    End { client_ends: bool },
    /// It is closed with a reset: the client must be able to tell that this was not all.
    Reset,
}

impl Reply {
    /// Decides on framing and connection, and writes the head. `ends` tells that the connection is
    /// to end with it, `expecting` that the client waits for `100 Continue` and has not been told.
    pub(crate) fn new(
        thread: &ThreadState,
        settings: &Settings,
        ends: bool,
        request: Box<Request>,
        response: Response,
        (begun, mut lifecycle): (Begun, Lifecycle),
        expecting: bool,
    ) -> Self {
        let head = &request.head;
        // Clients that lie about their version (BrowserMatch; http_filters.c:
        // basic_http_header_check).
        let downgraded =
            head.version > Version::Http10 && request.resource.env.contains("downgrade-1.0");
        let version = if downgraded { Version::Http10 } else { head.version };
        let http10 =
            version == Version::Http10 && request.resource.env.contains("force-response-1.0");
        let transfer = body_framing(&response, version, head.is_head());
        // The status 101 says all about the connection.
        let is_switched = response.tunnel.is_some();
        let persistence = persistence(&Ask {
            fields: request.fields(),
            length: head.length,
            version,
            status: response.status,
            transfer,
            close: response.close || ends || http10,
            expecting,
            nokeepalive: request.resource.env.contains("nokeepalive"),
            keepalives: request.keepalives,
            settings: settings.keep_alive,
        });
        let persistence = if is_switched { Persistence::Keep } else { persistence };
        let mut out = thread.take_out();
        if head.version != Version::Http09 {
            let date = thread.date(thread.day_us(begun.started_us));
            encode_head(
                &mut out,
                &response,
                &Head {
                    date: &date,
                    server: &settings.server_field,
                    transfer,
                    persistence,
                    http10,
                    proxied: request.resource.notes.contains("proxied"),
                },
            );
        }
        lifecycle.head_written(persistence);
        let framing = Framing::new(out, transfer);
        let exchange = Exchange::new(settings, request, response, begun, length_of(transfer));
        Self { exchange, framing, lifecycle, transfer, persistence }
    }

    /// Whether the client was told that the connection is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.persistence != Persistence::Close
    }

    /// Whether a request with this response holds a credit.
    pub(crate) fn needs_credit(&self) -> bool {
        self.exchange.pieces.is_stream() || self.exchange.is_heavy()
    }

    /// Whether the response is followed by more than its head and bytes in memory or in files, so
    /// that a task sends it.
    pub(crate) fn needs_task(&self) -> bool {
        self.exchange.pieces.is_stream() || self.exchange.response.tunnel.is_some()
    }

    /// Notes how the request's body has ended.
    pub(crate) fn note_body(&mut self, is_complete: bool) {
        match is_complete {
            true => self.lifecycle.body_read(),
            false => self.lifecycle.read_failed(),
        }
    }

    /// Sends what can be sent now.
    pub(crate) fn send(&mut self, channel: &mut Channel<'_>) -> io::Result<Progress> {
        self.framing.send(channel, &mut self.exchange.pieces)
    }

    /// The exchange, and what sends it in a task.
    pub(crate) fn parts<'a>(&'a mut self, link: &'a Link) -> (&'a mut Exchange, LinkWriter<'a>) {
        let Self { exchange, framing, .. } = self;
        (exchange, LinkWriter { link, framing })
    }

    /// Takes the tunnel out that follows the response, if one does.
    pub(crate) fn take_tunnel(&mut self) -> Option<Switched> {
        self.exchange.response.tunnel.take()
    }

    /// Notes what has passed through the tunnel behind the response. The connection ends with it.
    pub(crate) fn note_tunnel(&mut self, passed: Passed) {
        self.framing.sent += passed.sent;
        self.exchange.received += passed.received;
        self.lifecycle.head_written(Persistence::Close);
    }

    /// Ends the exchange; `aborted` tells that the response is incomplete.
    pub(crate) fn finish<S: ConnectionSite>(
        mut self,
        serving: &Serving<S>,
        connection: &mut Connection,
        aborted: bool,
    ) -> After {
        match aborted {
            true => self.lifecycle.write_failed(),
            false => self.lifecycle.body_written(),
        }
        let next = self.lifecycle.next();
        let ended = Ended {
            sent: self.framing.sent,
            aborted,
            framing: self.transfer,
            persistence: self.persistence,
            keep_alive: matches!(next, Next::Reuse | Next::Drain),
        };
        serving.thread.give_out(self.framing.take_buffer());
        let Serving { site, thread, .. } = serving;
        let request = self.exchange.finish(site, thread, connection, ended);
        let after = match next {
            Next::Reuse => After::Next,
            // What is left of a body that was too much to read.
            Next::Drain => After::End { client_ends: false },
            Next::Linger | Next::Wait => After::End { client_ends: client_ends(&request) },
            Next::Abort => After::Reset,
        };
        serving.give(request);
        after
    }
}

/// Whether the client asked for the connection's end, or knows of no other way: it will send
/// nothing more that would have to be read before closing.
fn client_ends(request: &Request) -> bool {
    let head = &request.head;
    let mut tokens = head.fields.tokens(Name::Connection);
    let ends = match head.version {
        Version::Http11 => tokens.any(|token| eq_ignore_case(token, b"close")),
        _ => !tokens.any(|token| eq_ignore_case(token, b"keep-alive")),
    };
    ends && head.length == BodyLength::None
}

/// Sends a response of a task.
pub(crate) struct LinkWriter<'a> {
    link: &'a Link,
    framing: &'a mut Framing,
}

impl ResponseWriter for LinkWriter<'_> {
    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        pieces: &mut Pieces,
    ) -> Poll<io::Result<Progress>> {
        self.link.poll_send(context, |channel| self.framing.send(channel, pieces))
    }

    fn frame(&mut self, fetched: Fetched, trailers: &Fields) -> bool {
        self.framing.frame(fetched, trailers)
    }

    fn sent(&self) -> u64 {
        self.framing.sent
    }

    fn has_left(&self, context: &mut Context<'_>) -> bool {
        self.link.has_ended(context)
    }
}
