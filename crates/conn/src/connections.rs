//! The serving function of one thread: the process model hands it sockets and events, and gets back
//! what to do with each socket next.

use crate::h1::turn::Budget;
use crate::serving::Serving;
use crate::site::ConnectionSite;
use crate::thread::{ThreadState, Workplace};
use crate::transport::Transport;
use crate::transport::parked::Connection;
use evenkeel_message::Peer;
use evenkeel_scoreboard::Credit;
use evenkeel_sys::dispatch::{Outcome, ParkReason, ReadyEvent};
use evenkeel_sys::idle_table::ParkedState;
use evenkeel_sys::socket::Socket;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// Serves the connections of one thread.
pub struct Connections<S>(pub(crate) Rc<Serving<S>>);

impl<S: ConnectionSite> Connections<S> {
    /// A worker for a site at its place in a child.
    #[must_use]
    pub fn new(site: S, place: Workplace) -> Self {
        let thread = Rc::new(ThreadState::new(place));
        Self(Rc::new(Serving::new(thread, site)))
    }

    /// The site that is served.
    #[must_use]
    pub fn site(&self) -> &S {
        &self.0.site
    }

    /// Says whether connections are closed with their next response.
    pub fn retire(&mut self, retiring: bool) {
        self.0.thread.retiring.set(retiring);
    }

    /// Says whether connections that have had their turn are closed with their next response.
    pub fn set_contended(&mut self, contended: bool) {
        self.0.thread.contended.set(contended);
    }

    /// Whether handshakes of TLS that have not ended take nearly all the room that they may.
    #[must_use]
    pub fn is_short_of_room(&self) -> bool {
        self.0.thread.place.handshakes.is_short()
    }

    /// Comes about once a second.
    pub fn tick(&mut self) {
        self.0.thread.set_clock();
        self.0.site.tick();
    }

    /// Whether the next tick has something to do, though nothing is served until then.
    #[must_use]
    pub fn awaits_tick(&self) -> bool {
        self.0.site.awaits_tick()
    }

    /// Whether the site lets a request begin now.
    #[must_use]
    pub fn may_begin(&self) -> bool {
        self.0.site.may_begin()
    }

    /// Serves a socket as far as that goes without waiting. A request that must wait takes
    /// `credit`. Each request subtracts one from `requests_left`, and more if it was much work:
    /// these are the requests that may still be answered before others get their turn. A panic,
    /// wherever it comes from, closes this socket and is logged.
    pub fn serve(
        &mut self,
        socket: Socket,
        event: ReadyEvent,
        credit: &mut Option<Credit>,
        requests_left: &mut u32,
    ) -> Outcome {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut peer = Peer { client: unknown, local: unknown };
        let budget = Budget { credit, requests_left };
        let turned =
            catch_unwind(AssertUnwindSafe(|| self.0.serve_event(socket, event, budget, &mut peer)));
        turned.unwrap_or_else(|panic| self.0.close_after_panic(&*panic, &peer))
    }

    /// Serves a socket as [`Connections::serve`] does, without a credit: its requests are turned
    /// away, but for those that tell how the server is.
    pub fn shed(&mut self, socket: Socket, event: ReadyEvent, requests_left: &mut u32) -> Outcome {
        self.0.shedding.set(true);
        let outcome = self.serve(socket, event, &mut None, requests_left);
        self.0.shedding.set(false);
        outcome
    }

    /// Closes a connection that has rested, on which no request has come; `late` where its time
    /// is over.
    pub fn expire(&mut self, socket: Socket, reason: ParkReason, state: ParkedState, late: bool) {
        let inner = &self.0;
        let mut transport = Transport::of(socket, &inner.thread.scratch);
        let is_handshaking = transport.tls().is_some_and(|tls| tls.session().is_handshaking());
        let engine = transport.take_engine();
        let is_h2 = engine.is_some();
        if let Some(engine) = engine {
            transport.keep(engine);
        }
        transport.announce_end();
        drop(transport);
        let Some(connection) = Connection::from_parked_state(state, &inner.thread.addresses) else {
            return;
        };
        if late && !is_h2 && reason == ParkReason::FirstRequest && !inner.thread.retiring.get() {
            let noted = catch_unwind(AssertUnwindSafe(|| match is_handshaking {
                true => inner.note_handshake_timeout(&connection),
                false => inner.note_expired(&connection),
            }));
            if let Err(panic) = noted {
                inner.close_after_panic(&*panic, &connection.peer);
            }
        }
    }
}
