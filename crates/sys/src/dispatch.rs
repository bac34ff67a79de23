//! The interface between a process model and the connections that it serves: the model hands over a
//! socket with the event that made it ready, and gets back what to do with the socket next. Nothing
//! here depends on the protocol or on the order in which sockets are served.

use crate::idle_table::ParkedState;
use crate::socket::Socket;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

/// Why a socket is to be served now.
#[derive(Clone, Copy, Debug)]
pub enum ReadyEvent {
    /// It has just been accepted.
    Accepted {
        /// The client's address.
        client: SocketAddr,
        /// The index of the listening socket.
        listener: usize,
    },
    /// It was parked and has become readable.
    Readable {
        /// Why it was parked.
        reason: ParkReason,
        /// The state of the connection.
        state: ParkedState,
        /// The peer has closed its side: reading leads to the end of the stream.
        hangup: bool,
    },
}

/// What to do with a socket that has been served.
pub enum Outcome {
    /// It has been closed.
    Closed,
    /// Park it until it is readable or its timeout has passed. The last read must have been short
    /// or have found nothing, so that no data is left unread.
    Park(Socket, ParkRequest),
    /// Go on serving it in a task, which ends with the next outcome.
    Task(ConnectionTask),
    /// The same while the head of a request arrives: the task may be dropped, which closes the
    /// socket and loses no request. It ends with `Task` once the head is complete.
    HeadTask(ConnectionTask),
}

/// A task that goes on serving a socket.
pub type ConnectionTask = Pin<Box<dyn Future<Output = Outcome>>>;

/// How a socket is parked.
#[derive(Clone, Copy, Debug)]
pub struct ParkRequest {
    /// What it waits for.
    pub reason: ParkReason,
    /// How long it may be parked, in milliseconds.
    pub timeout_ms: u32,
    /// The state of the connection, which is handed back with the next event.
    pub state: ParkedState,
}

/// What a parked socket waits for. The discriminant is the reason's number in the idle table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ParkReason {
    /// The first byte of the connection's first request.
    FirstRequest,
    /// The next request of a kept connection.
    KeepAlive,
    /// The peer's end of stream after ours (lingering close).
    LingeringClose,
}

impl ParkReason {
    /// The reason with this number in the idle table.
    #[must_use]
    pub const fn from_number(number: u8) -> ParkReason {
        match number {
            0 => ParkReason::FirstRequest,
            1 => ParkReason::KeepAlive,
            _ => ParkReason::LingeringClose,
        }
    }
}
