//! The state of one exchange on a connection, which determines what happens to the connection next.
//! Reading and writing are separate, because either can end or fail before the other. Nothing here
//! uses a socket or a clock.

use crate::BodyFraming;
use evenkeel_message::{BodyLength, Fields, Name, Status, Version, eq_ignore_case};

/// The directives KeepAlive, KeepAliveTimeout and MaxKeepAliveRequests of the virtual host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// KeepAlive.
    pub on: bool,
    /// KeepAliveTimeout in milliseconds; with 0, no connection is kept.
    pub timeout_ms: u64,
    /// MaxKeepAliveRequests; 0 means no limit.
    pub max: u32,
}

/// What the response tells the client about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// The connection is closed after this response.
    Close,
    /// The connection is kept, which an HTTP/1.1 client need not be told.
    Keep,
    /// The connection is kept, and the client is told for how long, because it asked.
    KeepTold {
        /// KeepAliveTimeout in seconds.
        timeout_s: u64,
        /// How many requests may still follow; none without a limit.
        max: Option<u32>,
    },
}

/// Everything that determines whether a connection is kept.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The fields of the request, as changed by RequestHeader.
    pub fields: &'a Fields,
    /// The length of the request's body.
    pub length: BodyLength,
    /// The version, lowered for a client that claims too much (`downgrade-1.0`).
    pub version: Version,
    /// The status of the response.
    pub status: Status,
    /// How the client finds the end of the response's body.
    pub transfer: BodyFraming,
    /// Whether the server wants to close the connection, because of the response or because the
    /// process retires.
    pub close: bool,
    /// Whether `100 Continue` was requested and not sent, so that the body may or may not follow.
    pub expecting: bool,
    /// Whether the request's environment contains `nokeepalive`.
    pub nokeepalive: bool,
    /// The number of requests answered on this connection before.
    pub keepalives: u32,
    /// The directives.
    pub settings: KeepAlive,
}

/// Decides whether the connection can be kept (RFC 9112, section 9.3; Apache: http_protocol.c,
/// `ap_set_keepalive`, which serves one request more than MaxKeepAliveRequests says).
#[must_use]
pub fn persistence(ask: &Ask<'_>) -> Persistence {
    let Ask { fields, settings, .. } = ask;
    let left = settings.max.saturating_sub(ask.keepalives);
    // The framing of a chunked body from an HTTP/1.0 client is in doubt (RFC 9112, section 6.1).
    let faulty = ask.version < Version::Http11 && ask.length == BodyLength::Chunked;
    let kept = settings.on
        && settings.timeout_ms > 0
        && (settings.max == 0 || left > 0)
        && !ask.close
        && !ask.expecting
        && !faulty
        && ask.transfer != BodyFraming::UntilClose
        && ask.version >= Version::Http10
        && !ask.status.drops_connection()
        && (!ask.nokeepalive || fields.contains(Name::Via));
    if !kept {
        return Persistence::Close;
    }
    let mut told = false;
    for token in fields.tokens(Name::Connection) {
        if eq_ignore_case(token, b"close") {
            return Persistence::Close;
        }
        told |= eq_ignore_case(token, b"keep-alive");
    }
    match (told, ask.version) {
        (true, _) => Persistence::KeepTold {
            timeout_s: settings.timeout_ms / 1000,
            max: (settings.max > 0).then_some(left),
        },
        (false, Version::Http11 | Version::Http2) => Persistence::Keep,
        (false, _) => Persistence::Close,
    }
}

/// The progress of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    /// Nothing of this message yet.
    #[default]
    Idle,
    /// The head is complete, the body is not.
    Body,
    /// The message is complete.
    Done,
    /// The message broke off: the framing was wrong, or the peer was too slow or closed the
    /// connection.
    Broken,
}

/// What happens to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The exchange continues.
    Wait,
    /// Read and discard the rest of the request's body, then ask again.
    Drain,
    /// The next request may follow.
    Reuse,
    /// Close with lingering, so that the client can read the response.
    Linger,
    /// Reset the connection, so that the client sees that the response is incomplete.
    Abort,
}

/// One exchange: a request is read and a response is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifecycle {
    reading: Progress,
    writing: Progress,
    kept: bool,
}

impl Lifecycle {
    /// The state before the request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that the head of the request was read.
    pub fn head_read(&mut self, length: BodyLength) {
        self.reading = match length {
            BodyLength::None | BodyLength::Exact(0) => Progress::Done,
            BodyLength::Exact(_) | BodyLength::Chunked => Progress::Body,
        };
    }

    /// Records that the body of the request was read to its end.
    pub fn body_read(&mut self) {
        if self.reading == Progress::Body {
            self.reading = Progress::Done;
        }
    }

    /// Records that the request broke off. Nothing more is read from the connection.
    pub fn read_failed(&mut self) {
        self.reading = Progress::Broken;
    }

    /// Records that the head of the response was written.
    pub fn head_written(&mut self, persistence: Persistence) {
        self.kept = persistence != Persistence::Close;
        self.writing = Progress::Body;
    }

    /// Records that the response was written to its end.
    pub fn body_written(&mut self) {
        if self.writing == Progress::Body {
            self.writing = Progress::Done;
        }
    }

    /// Records that the response broke off. Nothing more is written to the connection.
    pub fn write_failed(&mut self) {
        self.writing = Progress::Broken;
    }

    /// What happens to the connection now.
    #[must_use]
    pub fn next(&self) -> Next {
        match (self.reading, self.writing) {
            (_, Progress::Broken) => Next::Abort,
            (_, Progress::Idle | Progress::Body) => Next::Wait,
            (Progress::Done, Progress::Done) if self.kept => Next::Reuse,
            (Progress::Body, Progress::Done) if self.kept => Next::Drain,
            (_, Progress::Done) => Next::Linger,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(
        version: Version,
        connection: &str,
        change: impl FnOnce(&mut Ask<'_>),
    ) -> Persistence {
        let mut fields = Fields::new();
        fields.add("Connection", connection);
        let mut ask = Ask {
            fields: &fields,
            length: BodyLength::None,
            version,
            status: Status::OK,
            transfer: BodyFraming::Exact(1),
            close: false,
            expecting: false,
            nokeepalive: false,
            keepalives: 0,
            settings: KeepAlive { on: true, timeout_ms: 5000, max: 100 },
        };
        change(&mut ask);
        persistence(&ask)
    }

    #[test]
    fn the_client_is_told_what_it_asked() {
        let told = Persistence::KeepTold { timeout_s: 5, max: Some(100) };
        assert_eq!(decided(Version::Http11, "", |_| ()), Persistence::Keep);
        assert_eq!(decided(Version::Http11, "x, Keep-Alive", |_| ()), told);
        assert_eq!(decided(Version::Http10, "keep-alive", |_| ()), told);
        assert_eq!(decided(Version::Http10, "", |_| ()), Persistence::Close);
        assert_eq!(decided(Version::Http09, "keep-alive", |_| ()), Persistence::Close);
        assert_eq!(decided(Version::Http11, "keep-alive, Close", |_| ()), Persistence::Close);
        assert_eq!(
            decided(Version::Http11, "keep-alive", |ask| ask.settings.max = 0),
            Persistence::KeepTold { timeout_s: 5, max: None }
        );
    }

    #[test]
    fn each_reason_closes() {
        let changes: [fn(&mut Ask<'_>); 9] = [
            |ask| ask.status = Status::BAD_REQUEST,
            |ask| ask.transfer = BodyFraming::UntilClose,
            |ask| ask.close = true,
            |ask| ask.expecting = true,
            |ask| ask.nokeepalive = true,
            |ask| ask.keepalives = 100,
            |ask| ask.settings.on = false,
            |ask| ask.settings.timeout_ms = 0,
            |ask| ask.keepalives = 200,
        ];
        for change in changes {
            assert_eq!(decided(Version::Http11, "", change), Persistence::Close);
        }
        assert_eq!(decided(Version::Http11, "", |ask| ask.keepalives = 99), Persistence::Keep);
    }

    #[test]
    fn the_connection_follows_both_directions() {
        let mut exchange = Lifecycle::new();
        exchange.head_read(BodyLength::Exact(3));
        exchange.head_written(Persistence::Keep);
        assert_eq!(exchange.next(), Next::Wait);
        exchange.body_written();
        assert_eq!(exchange.next(), Next::Drain);
        exchange.body_read();
        assert_eq!(exchange.next(), Next::Reuse);
        exchange.read_failed();
        assert_eq!(exchange.next(), Next::Linger);
        exchange.write_failed();
        assert_eq!(exchange.next(), Next::Abort);

        let mut closing = Lifecycle::new();
        closing.head_read(BodyLength::None);
        closing.head_written(Persistence::Close);
        closing.body_written();
        assert_eq!(closing.next(), Next::Linger);
    }
}
