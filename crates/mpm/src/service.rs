//! What a process model is given to run: the serving function, seen as something that takes a
//! socket with the reason why it is its turn, and says what is to become of it. A service
//! belongs to one serving thread. Nothing here knows what the bytes on the socket mean.

use evenkeel_message::Notice;
use evenkeel_scoreboard::{ClientWait, Credit, Gate, Slots};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::dispatch::{Outcome, ParkReason, ReadyEvent};
use evenkeel_sys::idle_table::ParkedState;
use evenkeel_sys::socket::Socket;
use std::sync::Arc;

/// Serves sockets on one thread.
pub trait Service {
    /// Serves a socket as far as that goes without waiting. `hand` is the thread's credit: a
    /// request that must wait takes it along, and one that is answered at once leaves it.
    /// `allowance` is how many requests may still be answered before tasks and timers get their
    /// turn, at least one: each takes one off, and what was sent ahead of more goes on as a task.
    fn serve(
        &mut self,
        socket: Socket,
        event: ReadyEvent,
        hand: &mut Option<Credit>,
        allowance: &mut u32,
    ) -> Outcome;

    /// Serves a socket whose request has waited too long: it is turned away at once, but for one
    /// that tells how the server is. Nothing else may be begun, for there is no credit.
    fn shed(&mut self, socket: Socket, event: ReadyEvent, allowance: &mut u32) -> Outcome;

    /// Closes a socket that has rested, on which no request has come: `late` where its time is
    /// over, else because the child closes what is idle or is short of descriptors. It needs no
    /// credit, and nothing may be begun.
    fn expire(&mut self, socket: Socket, reason: ParkReason, state: ParkedState, late: bool);

    /// Says whether connections are to be closed with the next response: the child drains or is
    /// parked.
    fn retire(&mut self, retiring: bool);

    /// Says whether others wait beside a child that is full: a connection that has had a request
    /// answered and its turn is closed with the next response (event).
    fn set_contended(&mut self, _contended: bool) {}

    /// Comes about once a second, between requests.
    fn tick(&mut self);

    /// Whether something is left that the next [`Service::tick`] is to do, though nothing is served
    /// until then: log lines that could not be written, say.
    fn awaits_tick(&self) -> bool {
        false
    }

    /// Whether a request may be begun now. While a program that logs are piped to does not
    /// read, none may: nothing is accepted and nothing resting is served, so that no line is
    /// lost. Asked before each socket, and again some [`Service::tick`] later.
    fn may_begin(&self) -> bool {
        true
    }

    /// Has something told to the administrator.
    fn notify(&mut self, notice: Notice);
}

/// What the service of a thread is made from, besides what the binary knows.
#[derive(Clone)]
pub struct Seat {
    /// The thread's number in its child, from 0.
    pub thread: usize,
    /// The child's gate, for work that gives its credit back while it waits for the client.
    pub gate: Arc<Gate>,
    /// The threads of the child for work that blocks or burns, shared by its serving threads. A
    /// request that has work there keeps its credit.
    pub blocking_pool: Arc<BlockingPool>,
    /// What a worker has that a connection holds from its beginning to its end; none in event.
    pub held: Option<Held>,
}

/// What belongs to a worker whose connection holds it.
#[derive(Clone)]
pub struct Held {
    /// Its watch over its client.
    pub client_wait: Arc<ClientWait>,
    /// Its own slot on the status page.
    pub slot: Option<Slots>,
}
