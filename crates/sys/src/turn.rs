//! What a process model and the connections that it serves hand to each other: a socket with the
//! reason why it is its turn goes in, what is to become of it comes out. Nothing here knows what
//! the bytes on the socket mean, nor whose turn is next.

use crate::shelf::Memo;
use crate::socket::Socket;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

/// Why it is a socket's turn.
#[derive(Clone, Copy, Debug)]
pub enum Turn {
    /// It has just been accepted.
    Accepted {
        /// The client's address.
        client: SocketAddr,
        /// The index of the listening socket.
        port: usize,
    },
    /// Something can be read from it.
    Readable {
        /// Why it had been put to rest.
        class: Class,
        /// What it kept.
        memo: Memo,
        /// The peer has ended its side: what is read goes on to the end of the stream.
        hangup: bool,
    },
}

/// What is to become of a socket after its turn.
pub enum Outcome {
    /// It has been closed.
    Closed,
    /// It rests until something can be read or its time is over. Everything that had come must
    /// have been read: the last read was short, or would have blocked.
    Rest(Socket, Pause),
    /// It is served on in a task, whose end gives the next outcome.
    Work(Work),
    /// The same while the head of a request comes: the task may be dropped, which closes the socket
    /// and loses nothing. Its end is work where the head is whole.
    Head(Work),
}

/// A task that serves a socket on.
pub type Work = Pin<Box<dyn Future<Output = Outcome>>>;

/// How a socket rests.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    /// What it waits for.
    pub class: Class,
    /// For how long at most, in milliseconds.
    pub timeout_ms: u32,
    /// What the connection keeps meanwhile.
    pub memo: Memo,
}

/// What a resting socket waits for. The number is its class on the shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// The first byte of its first request.
    Fresh,
    /// Its next request.
    KeepAlive,
    /// The peer's end after our own (lingering close).
    Closing,
}

impl Class {
    /// The class of a number that the shelf gave back.
    #[must_use]
    pub const fn from_number(number: u8) -> Class {
        match number {
            0 => Class::Fresh,
            1 => Class::KeepAlive,
            _ => Class::Closing,
        }
    }
}
