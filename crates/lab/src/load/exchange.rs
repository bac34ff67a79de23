//! What a client sends, and the result. A request is encoded and ready to send. An exchange holds
//! its times. Failures are counted by kind and never mixed with times.

use bytes::Bytes;
use std::io;

/// A request, encoded.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Head and body, in the form in which they are sent.
    pub bytes: Bytes,
    /// Whether it is HEAD, whose response has no body.
    pub no_body: bool,
    /// The identifier that its source uses: the number of a URL, or of a line of a log.
    pub label: u64,
}

/// A completed exchange. Times are nanoseconds since the beginning of the run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exchange {
    /// The number of its client.
    pub client: u32,
    /// The label of its request.
    pub label: u64,
    /// When it was due. In an open loop this is before `start_ns` if no client was free.
    pub intended_ns: u64,
    /// When it began: with the connection if it needed a new one, otherwise with the sending.
    pub start_ns: u64,
    /// When the connection was established; `start_ns` if it existed before.
    pub connected_ns: u64,
    /// The time of the TLS handshake before it, which ended at `connected_ns`; 0 if there was none.
    pub handshake_ns: u64,
    /// When the request was sent completely.
    pub sent_ns: u64,
    /// When the first byte of the response arrived.
    pub first_ns: u64,
    /// When the last byte arrived.
    pub end_ns: u64,
    /// The status.
    pub status: u16,
    /// The bytes of the head.
    pub head_bytes: u32,
    /// The bytes of the body, without the framing of chunks.
    pub body_bytes: u64,
    /// All bytes that were read for it.
    pub read_bytes: u64,
    /// Whether its connection had been used before.
    pub reused: bool,
    /// Whether the server keeps the connection open.
    pub kept: bool,
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Failure {
    /// The server or its machine refused the connection.
    Refused,
    /// The connection was not established in time.
    ConnectTimeout,
    /// The connection could not be made for another reason.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The peer reset the connection.
    Reset,
    /// Nothing arrived in time.
    Timeout,
    /// The response ended early, or the connection was closed without one.
    Truncated,
    /// The received bytes are not HTTP.
    Malformed,
    /// The system denied a socket, a port or memory: a limit of the client.
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

    /// The name in reports.
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

    /// The kind of an error from connecting.
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

    /// The kind of an error from reading or writing.
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
