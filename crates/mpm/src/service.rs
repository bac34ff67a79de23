//! The interface between a process model and the serving function: the model passes a socket with a
//! `ReadyEvent` to the `Service` of its thread, which returns what to do with the socket next.

use evenkeel_message::Notice;
use evenkeel_scoreboard::{ClientWait, Credit, Gate, Slots, WorkerPermits};
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::dispatch::{Outcome, ParkReason, ReadyEvent};
use evenkeel_sys::idle_table::ParkedState;
use evenkeel_sys::socket::Socket;
use std::sync::Arc;

/// Serves sockets on one thread.
pub trait Service {
    /// Serves a socket as far as possible without waiting. `credit` is the thread's credit: a
    /// request that must wait takes it, and one that is answered at once leaves it. `requests_left`
    /// is how many requests may still be answered before tasks and timers run, at least one: each
    /// request subtracts one, and a connection with more pipelined requests continues as a task.
    fn serve(
        &mut self,
        socket: Socket,
        event: ReadyEvent,
        credit: &mut Option<Credit>,
        requests_left: &mut u32,
    ) -> Outcome;

    /// Serves a socket whose request has waited too long: turns it away at once, unless it asks for
    /// the server's status. No other request may begin, because there is no credit.
    fn shed(&mut self, socket: Socket, event: ReadyEvent, requests_left: &mut u32) -> Outcome;

    /// Closes a parked socket on which no request has arrived: `late` if it has timed out,
    /// otherwise because the child closes idle connections or is short of descriptors. It needs no
    /// credit.
    fn expire(&mut self, socket: Socket, reason: ParkReason, state: ParkedState, late: bool);

    /// Whether to close connections with the next response, because the child drains or is parked.
    fn retire(&mut self, retiring: bool);

    /// Whether others wait while the child is full: a connection that has had its fair share is
    /// then closed with the next response (event).
    fn set_contended(&mut self, _contended: bool) {}

    /// Whether the connections without a request that have waited the longest are to be closed,
    /// because what they keep leaves little room for new ones (event).
    fn is_short_of_room(&self) -> bool {
        false
    }

    /// Called about once a second, between requests.
    fn tick(&mut self);

    /// Whether something is left for the next [`Service::tick`] although nothing is served until
    /// then, such as log lines that could not be written.
    fn awaits_tick(&self) -> bool {
        false
    }

    /// Whether a request may begin now. While a program to which logs are piped does not read, none
    /// may: nothing is accepted and no parked connection is served, so that no log line is lost. It
    /// is asked before each socket, and again after some ticks.
    fn may_begin(&self) -> bool {
        true
    }

    /// Logs a notice.
    fn notify(&mut self, notice: Notice);
}

/// What the service of a thread is made from, besides what the binary provides.
#[derive(Clone)]
pub struct ServiceContext {
    /// The thread's number in its child, from 0.
    pub thread: usize,
    /// The child's gate, for work that returns its credit while it waits for the client.
    pub gate: Arc<Gate>,
    /// The child's blocking pool. A request that waits for a job keeps its credit.
    pub blocking_pool: Arc<BlockingPool>,
    /// The worker that a connection holds from accept to close; none in event.
    pub worker: Option<DedicatedWorker>,
}

/// What belongs to a worker that a connection holds.
#[derive(Clone)]
pub struct DedicatedWorker {
    /// What it waits for at its client.
    pub client_wait: Arc<ClientWait>,
    /// Its slot on the status page.
    pub slot: Option<Slots>,
    /// The permits for expensive work, which all children share. `None` if the worker uses those of
    /// the blocking pool, which are the child's own.
    pub permits: Option<Arc<WorkerPermits>>,
}
