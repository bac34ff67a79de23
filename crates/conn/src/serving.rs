//! What the connections of a serving thread share beside the thread's own state: the site, and the
//! memory of requests that are over. The steps of an exchange that need both are here: a request is
//! made, shown on the status page, served or refused, and taken back.

use crate::exchange::Begun;
use crate::exchange::slot;
use crate::site::{ConnectionSite, Done};
use crate::thread::ThreadState;
use crate::transport::parked::Connection;
use crate::transport::proxy_header;
use evenkeel_message::Served;
use evenkeel_message::{
    Level, Notice, Peer, ReceivedHead, Request, RequestHead, Response, Status, Transfer,
};
use evenkeel_proto::Refusal;
use evenkeel_scoreboard::SlotGuard;
use evenkeel_sys::clock;
use evenkeel_sys::dispatch::Outcome;
use evenkeel_tls::Facts;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

/// How many requests a thread keeps for their memory: where thousands wait, they begin and end in
/// bursts of hundreds. One that takes more bytes is not kept.
const SPARES: usize = 1024;
const SPARE_BYTES: usize = 8 << 10;

/// What a worker and its tasks share.
pub(crate) struct Serving<S> {
    pub(crate) thread: Rc<ThreadState>,
    pub(crate) site: S,
    /// Requests that are over, for their memory.
    #[expect(clippy::vec_box, reason = "they come and go as boxes")]
    spare: RefCell<Vec<Box<Request>>>,
    /// What the request at hand has taken of the thread's turn beyond its own place in it.
    pub(crate) work: Cell<u32>,
    /// Whether the requests of the connection at hand are turned away.
    pub(crate) shedding: Cell<bool>,
}

impl<S: ConnectionSite> Serving<S> {
    pub(crate) fn new(thread: Rc<ThreadState>, site: S) -> Self {
        let (spare, work, shedding) = (RefCell::default(), Cell::new(0), Cell::new(false));
        Self { thread, site, spare, work, shedding }
    }

    /// A request for the next head, made of the memory of one that is over.
    pub(crate) fn request(&self, connection: &Connection) -> Box<Request> {
        let spare = self.spare.borrow_mut().pop();
        let mut request = spare
            .unwrap_or_else(|| Box::new(Request::new(RequestHead::default(), connection.peer, 0)));
        request.peer = connection.peer;
        proxy_header::note(&mut request, connection);
        request.keepalives = connection.keepalives;
        request.told.connection = connection.is_told;
        request.server = connection.server as usize;
        if let Some(facts) = &connection.secure {
            request.secure = Some(Arc::<Facts>::clone(facts));
        }
        request
    }

    /// Takes a request back for its memory.
    pub(crate) fn give(&self, mut request: Box<Request>) {
        // What it refers to must not outlive the exchange.
        request.renew(request.peer, 0);
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARES && request.memory() <= SPARE_BYTES {
            spare.push(request);
        }
    }

    /// Begins an exchange and shows its request on the status page.
    pub(crate) fn begin(
        &self,
        connection: &Connection,
        request: &Request,
        started_us: u64,
    ) -> Begun {
        let slot = self.show(connection, request);
        let departure = Rc::clone(&request.departure);
        departure.require_permit();
        Begun { started_us, slot, departure }
    }

    /// Shows a request on the status page.
    pub(crate) fn show(&self, connection: &Connection, request: &Request) -> Option<SlotGuard> {
        let of = (self.site.settings(request.server), self.site.name(request.server));
        slot::show(&self.thread, of, connection, request)
    }

    /// Runs the phases. A panic in them costs this request a 500. Returns the head of the request,
    /// too, for the page after a panic in its handler.
    pub(crate) fn serve(
        &self,
        request: Box<Request>,
        connection: &Connection,
    ) -> (Served, ReceivedHead) {
        let head = request.head.clone();
        match catch_unwind(AssertUnwindSafe(|| self.site.serve(request))) {
            Ok(served) => (served, head),
            Err(panic) => {
                let served = self.after_panic(&*panic, head, connection);
                (served, ReceivedHead::default())
            }
        }
    }

    /// Tells of a panic that a connection cannot go on after.
    pub(crate) fn close_after_panic(&self, panic: &(dyn Any + Send), peer: &Peer) -> Outcome {
        let text = format!("serving a connection panicked: {}", said(panic));
        let notice = Notice::own("core", Level::Crit, text);
        // Should the log itself be what panics, the connection is closed all the same.
        let _ = catch_unwind(AssertUnwindSafe(|| self.site.tell(&notice, peer)));
        Outcome::Closed
    }

    /// The answer after a panic.
    pub(crate) fn after_panic(
        &self,
        panic: &(dyn Any + Send),
        head: ReceivedHead,
        connection: &Connection,
    ) -> Served {
        let text = format!("serving a request panicked: {}", said(panic));
        let mut request = self.request(connection);
        request.time_us = self.thread.day_us(clock::monotonic_us());
        request.head = head;
        let _ = self.site.address(&mut request);
        request.notify(Notice::own("core", Level::Crit, text));
        let copy = || Box::new(Request::new(RequestHead::default(), connection.peer, 0));
        let refused = catch_unwind(AssertUnwindSafe(|| {
            self.site.refuse(request, Status::INTERNAL_SERVER_ERROR)
        }));
        refused.unwrap_or_else(|_| {
            // The error page panicked too: the bare status has to do.
            Served::Now(copy(), Response::new(Status::INTERNAL_SERVER_ERROR))
        })
    }

    /// The answer to a request that is refused for its form, and its head.
    pub(crate) fn refuse(
        &self,
        mut request: Box<Request>,
        refusal: &Refusal,
    ) -> (Served, ReceivedHead) {
        request.notify(refusal.notice.clone());
        if !refusal.detail.is_empty() {
            request.resource.notes.set("error-notes", refusal.detail);
        }
        let (peer, head) = (request.peer, request.head.clone());
        let refused = catch_unwind(AssertUnwindSafe(|| self.site.refuse(request, refusal.status)));
        let served = refused.unwrap_or_else(|_| {
            let request = Box::new(Request::new(RequestHead::default(), peer, 0));
            Served::Now(request, Response::new(refusal.status))
        });
        (served, head)
    }

    /// A first request that never came is logged and not answered (Apache: ap_read_request); a
    /// kept connection that is not used any more is nothing to speak of.
    pub(crate) fn note_expired(&self, connection: &Connection) {
        let mut request = self.request(connection);
        request.time_us = self.thread.day_us(clock::monotonic_us());
        self.note_timeout(connection, request, 0);
    }

    /// A handshake of TLS that did not end in time is told to the error log alone (Apache:
    /// mod_reqtimeout.c, reqtimeout_before_log).
    pub(crate) fn note_handshake_timeout(&self, connection: &Connection) {
        let text = "Request handshake read timeout";
        let notice = Notice::new("reqtimeout", Level::Info, 1382, text);
        self.site.tell(&notice, &connection.peer);
    }

    /// Logs a request whose line did not come in time.
    pub(crate) fn note_timeout(
        &self,
        connection: &Connection,
        mut request: Box<Request>,
        duration_us: u64,
    ) {
        let notice = Notice::new("reqtimeout", Level::Info, 1382, "Request header read timeout");
        request.told.connection = self.site.tell(&notice, &connection.peer);
        let response = Response::new(Status::REQUEST_TIMEOUT);
        let transfer = Transfer { duration_us, aborted: true, ..Transfer::default() };
        self.site.record(&Done {
            request: &request,
            response: &response,
            transfer: &transfer,
            framing: evenkeel_proto::BodyFraming::Nothing,
            persistence: evenkeel_proto::Persistence::Close,
            keep_alive: false,
        });
        self.give(request);
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}
