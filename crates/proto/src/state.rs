//! The life of one exchange on a connection: what was read and written comes in as events, what
//! happens to the connection goes out. Reading and writing are apart, since either can end or
//! fail before the other. It knows no socket and no clock.

use crate::Transfer;
use evenkeel_message::{BodyLength, Fields, Name, Status, Version, eq_ignore_case};

/// The directives KeepAlive, KeepAliveTimeout and MaxKeepAliveRequests of the virtual host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// KeepAlive.
    pub on: bool,
    /// KeepAliveTimeout; 0 keeps no connection.
    pub timeout_ms: u64,
    /// MaxKeepAliveRequests; 0 sets no limit.
    pub max: u32,
}

/// What is told to the client about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// It is closed after this response.
    Close,
    /// It is kept, which HTTP/1.1 need not be told.
    Keep,
    /// It is kept, and the client, which asked, is told for how long.
    KeepTold {
        /// Seconds of KeepAliveTimeout.
        timeout_s: u64,
        /// Requests that may still come; none where there is no limit.
        max: Option<u32>,
    },
}

/// All that bears on keeping a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The fields of the request, with what RequestHeader has changed.
    pub fields: &'a Fields,
    /// How long the request's body is.
    pub length: BodyLength,
    /// Its version, as far as the client is trusted with it (`downgrade-1.0`).
    pub version: Version,
    /// The response's status.
    pub status: Status,
    /// How the end of the response's body is told.
    pub transfer: Transfer,
    /// Whether the server wants to close: the response or a process that retires says so.
    pub close: bool,
    /// Whether `100 Continue` was asked for and not sent, so that the body may or may not come.
    pub expecting: bool,
    /// Whether the request's environment holds `nokeepalive`.
    pub nokeepalive: bool,
    /// How many requests were answered on this connection before.
    pub keepalives: u32,
    /// The directives.
    pub settings: KeepAlive,
}

/// Decides whether the connection may be kept (RFC 9112, section 9.3; Apache: http_protocol.c,
/// `ap_set_keepalive`, which serves one request more than MaxKeepAliveRequests says).
#[must_use]
pub fn persistence(ask: &Ask<'_>) -> Persistence {
    let Ask { fields, settings, .. } = ask;
    let left = settings.max.saturating_sub(ask.keepalives);
    // A body in chunks from an HTTP/1.0 client is framed in doubt (RFC 9112, section 6.1).
    let faulty = ask.version < Version::Http11 && ask.length == BodyLength::Chunked;
    let kept = settings.on
        && settings.timeout_ms > 0
        && (settings.max == 0 || left > 0)
        && !ask.close
        && !ask.expecting
        && !faulty
        && ask.transfer != Transfer::UntilClose
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
        (false, Version::Http11) => Persistence::Keep,
        (false, _) => Persistence::Close,
    }
}

/// How far one direction has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    /// Nothing of this message yet.
    #[default]
    Idle,
    /// The head is through, the body is not.
    Body,
    /// The message is through.
    Done,
    /// It broke off: the framing was wrong, the peer too slow or gone.
    Broken,
}

/// What happens to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The exchange is not over.
    Wait,
    /// The rest of the request's body is to be read and thrown away, then ask again.
    Drain,
    /// The next request may come.
    Reuse,
    /// It is closed, with lingering, so that the client reads the response.
    Linger,
    /// It is cut off, so that the client sees that the response is not whole.
    Abort,
}

/// One exchange: a request is read, a response is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    reading: Progress,
    writing: Progress,
    kept: bool,
}

impl Exchange {
    /// Before the request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The request's head was read.
    pub fn head_read(&mut self, length: BodyLength) {
        self.reading = match length {
            BodyLength::None | BodyLength::Exact(0) => Progress::Done,
            BodyLength::Exact(_) | BodyLength::Chunked => Progress::Body,
        };
    }

    /// The request's body was read to its end.
    pub fn body_read(&mut self) {
        if self.reading == Progress::Body {
            self.reading = Progress::Done;
        }
    }

    /// The request broke off; nothing more is read from the connection.
    pub fn read_failed(&mut self) {
        self.reading = Progress::Broken;
    }

    /// The response's head was written.
    pub fn head_written(&mut self, persistence: Persistence) {
        self.kept = persistence != Persistence::Close;
        self.writing = Progress::Body;
    }

    /// The response was written to its end.
    pub fn body_written(&mut self) {
        if self.writing == Progress::Body {
            self.writing = Progress::Done;
        }
    }

    /// The response broke off; nothing more is written to the connection.
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
            transfer: Transfer::Exact(1),
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
            |ask| ask.transfer = Transfer::UntilClose,
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
        let mut exchange = Exchange::new();
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

        let mut closing = Exchange::new();
        closing.head_read(BodyLength::None);
        closing.head_written(Persistence::Close);
        closing.body_written();
        assert_eq!(closing.next(), Next::Linger);
    }
}
