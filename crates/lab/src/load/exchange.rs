//! What a client sends and what came of it. A request is ready to be sent as it is; an exchange
//! holds its times; a failure says what kind of grief it came to, and is never mixed with times.

use bytes::Bytes;
use std::io;

/// A request, encoded.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Head and body, as they go over the wire.
    pub bytes: Bytes,
    /// Whether it is HEAD, whose answer has no body.
    pub no_body: bool,
    /// What its source knows it by: the number of a URL, of a line of a log.
    pub label: u64,
}

/// An exchange that came to its end. Times are nanoseconds since the run began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exchange {
    /// Which client made it.
    pub client: u32,
    /// Its request's label.
    pub label: u64,
    /// When it was to begin: in an open loop before `start_ns` where the client was not free.
    pub intended_ns: u64,
    /// When it began: the connection's beginning where it needed one, else the sending.
    pub start_ns: u64,
    /// When the connection stood; `start_ns` where it stood before.
    pub connected_ns: u64,
    /// When the request was sent whole.
    pub sent_ns: u64,
    /// When the first byte of the answer came.
    pub first_ns: u64,
    /// When the last came.
    pub end_ns: u64,
    /// The status.
    pub status: u16,
    /// Bytes of the head.
    pub head_bytes: u32,
    /// Bytes of the body, without the framing of chunks.
    pub body_bytes: u64,
    /// Bytes that were read for it in all.
    pub read_bytes: u64,
    /// Whether it went over a connection that had been used before.
    pub reused: bool,
    /// Whether the server lets the connection stand.
    pub kept: bool,
}

/// What kind of grief an exchange came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Failure {
    /// The server, or its machine, refused the connection.
    Refused,
    /// The connection did not stand within the time for it.
    ConnectTimeout,
    /// The connection could not be made for another reason.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The peer reset the connection.
    Reset,
    /// Nothing came within the time for it.
    Timeout,
    /// The answer ended before its end, or the connection was closed without one.
    Truncated,
    /// What came is no HTTP.
    Malformed,
    /// The system denied a socket, a port or memory: the client's own limit.
    Client,
}

impl Failure {
    /// All kinds, in the order of reports.
    pub const ALL: [Failure; 9] = [
        Failure::Refused,
        Failure::ConnectTimeout,
        Failure::Connect,
        Failure::Tls,
        Failure::Reset,
        Failure::Timeout,
        Failure::Truncated,
        Failure::Malformed,
        Failure::Client,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Failure::Refused => "refused",
            Failure::ConnectTimeout => "connect time-out",
            Failure::Connect => "connect",
            Failure::Tls => "tls",
            Failure::Reset => "reset",
            Failure::Timeout => "time-out",
            Failure::Truncated => "truncated",
            Failure::Malformed => "malformed",
            Failure::Client => "client's limit",
        }
    }

    /// Of an error that connecting gave.
    #[must_use]
    pub fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Failure::Refused,
            io::ErrorKind::TimedOut => Failure::ConnectTimeout,
            io::ErrorKind::ConnectionReset => Failure::Reset,
            io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::OutOfMemory
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::PermissionDenied => Failure::Client,
            _ if matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOBUFS)) => Failure::Client,
            _ => Failure::Connect,
        }
    }

    /// Of an error that reading or writing gave.
    #[must_use]
    pub fn of_transfer(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Failure::Tls,
            io::ErrorKind::UnexpectedEof => Failure::Truncated,
            io::ErrorKind::TimedOut => Failure::Timeout,
            _ => Failure::Reset,
        }
    }
}

const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOBUFS: i32 = 105;
