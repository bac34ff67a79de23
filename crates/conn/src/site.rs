//! What a connection serves, as far as it needs to know: settings, the way from a request to a
//! response, and the record of what was done. The pipeline and the logs stand behind it.

use evenkeel_message::{Notice, Peer, Request, Response, Served, Status, Transfer};
use evenkeel_proto::h2::EngineSettings;
use evenkeel_proto::{HttpProtocolOptions, KeepAlive, Limits, Refusal};
use evenkeel_tls::Door;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The settings of a server that bear on its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// KeepAlive, KeepAliveTimeout, MaxKeepAliveRequests.
    pub keep_alive: KeepAlive,
    /// Timeout, in milliseconds: how long a read or write may make no progress.
    pub timeout_ms: u64,
    /// FlushMaxThreshold, in bytes: a response that holds more memory than that has to find room
    /// among what slow clients keep, once its client turns out to be one.
    pub flush_threshold: u64,
    /// How long the handshake of TLS may take, in milliseconds from accept; 60,000 at most.
    pub handshake_ms: u64,
    /// RequestReadTimeout header; none where it is off.
    pub header_time: Option<ReadTime>,
    /// RequestReadTimeout body; none where it is off.
    pub body_time: Option<ReadTime>,
    /// LimitRequestLine, LimitRequestFieldSize, LimitRequestFields.
    pub limits: Limits,
    /// HttpProtocolOptions.
    pub options: HttpProtocolOptions,
    /// Whether the trailers of a request are added to its fields (MergeTrailers).
    pub merges_trailers: bool,
    /// HTTP/2.
    pub http2: Http2,
    /// The Server field's value.
    pub server_field: Box<[u8]>,
    /// Whether the status page shows the end of a long request line (SeeRequestTail).
    pub see_request_tail: bool,
    /// Whether the status page shows requests at all (ExtendedStatus); nothing of them is kept
    /// for it where it does not.
    pub shows_requests: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keep_alive: KeepAlive { on: true, timeout_ms: 5000, max: 100 },
            timeout_ms: 60_000,
            handshake_ms: 20_000,
            flush_threshold: 65_535,
            header_time: Some(ReadTime { initial_ms: 20_000, most_ms: Some(40_000), rate: 500 }),
            body_time: Some(ReadTime { initial_ms: 20_000, most_ms: None, rate: 500 }),
            limits: Limits::default(),
            options: HttpProtocolOptions::default(),
            merges_trailers: false,
            http2: Http2::default(),
            server_field: (*b"Apache").into(),
            see_request_tail: false,
            shows_requests: true,
        }
    }
}

/// What holds for HTTP/2. Which hosts speak it over TLS, their handshake decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Whether connections in clear text may begin with the preface of HTTP/2 (H2Direct).
    pub is_direct: bool,
    /// The same of connections over TLS whose handshake has agreed on no protocol.
    pub is_direct_secure: bool,
    /// Whether a request of HTTP/1.1 in clear text may ask to go on in HTTP/2 (H2Upgrade).
    pub is_upgradable: bool,
    /// How long a stream may make no progress, in milliseconds (H2StreamTimeout).
    pub stream_timeout_ms: u64,
    /// The bounds of a connection.
    pub engine: EngineSettings,
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            is_direct: false,
            is_direct_secure: false,
            is_upgradable: false,
            stream_timeout_ms: 60_000,
            engine: EngineSettings::default(),
        }
    }
}

/// How long a part of a request may take to come (mod_reqtimeout).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTime {
    /// Milliseconds that it may take at first.
    pub initial_ms: u64,
    /// Milliseconds that it may take at most, however much comes.
    pub most_ms: Option<u64>,
    /// Each so many bytes give a second more; 0 gives none.
    pub rate: u64,
}

impl ReadTime {
    /// How many milliseconds a part may take of which `bytes` have come.
    #[must_use]
    pub fn allowed_ms(&self, bytes: u64) -> u64 {
        let earned = (bytes * 1000).checked_div(self.rate).unwrap_or(0);
        let allowed = self.initial_ms.saturating_add(earned);
        self.most_ms.map_or(allowed, |most| allowed.min(most))
    }
}

/// An exchange that is over.
#[derive(Clone, Copy)]
pub struct Done<'a> {
    /// The request, with what the phases found out.
    pub request: &'a Request,
    /// The response, its body taken out.
    pub response: &'a Response,
    /// What moved over the wire.
    pub transfer: &'a Transfer,
    /// How the end of the body was told.
    pub framing: evenkeel_proto::BodyFraming,
    /// What the client was told of the connection.
    pub persistence: evenkeel_proto::Persistence,
    /// Whether the connection stays open for another request.
    pub keep_alive: bool,
}

/// The site as one serving thread sees it.
pub trait ConnectionSite: 'static {
    /// The server of a connection before a request names its host.
    fn server_of(&self, local: SocketAddr) -> usize;

    /// Whether a connection from `client` to `local` begins with a PROXY header.
    fn awaits_proxy_header(&self, _local: SocketAddr, _client: IpAddr) -> bool {
        false
    }

    /// The TLS side of the hosts of a local address; none where connections are in clear text.
    fn door(&self, _local: SocketAddr) -> Option<Arc<dyn Door>> {
        None
    }

    /// The settings of a server.
    fn settings(&self, server: usize) -> &Settings;

    /// The name of a server that the status page shows, with our port behind it.
    fn name(&self, server: usize) -> &[u8];

    /// Finds out whom a request is addressed to: its virtual host and its path.
    ///
    /// # Errors
    /// The request is refused for its address.
    fn address(&self, request: &mut Request) -> Result<(), Refusal>;

    /// Runs the phases.
    fn serve(&self, request: Box<Request>) -> Served;

    /// Makes the answer to a request that is refused.
    fn refuse(&self, request: Box<Request>, status: Status) -> Served;

    /// Records an exchange in the access logs.
    fn record(&self, done: &Done<'_>);

    /// Writes the notices of a request to the error log and takes them out of it.
    fn tell_all(&self, request: &mut Request);

    /// Writes a notice of a connection that has no request to the error log; says whether it was
    /// worth a line.
    fn tell(&self, notice: &Notice, peer: &Peer) -> bool;

    /// Comes about once a second, between requests.
    fn tick(&self);

    /// Whether the next tick has something to do, though nothing is served until then.
    fn awaits_tick(&self) -> bool {
        false
    }

    /// Whether a request may be begun now: not while its log line would find no room.
    fn may_begin(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::ReadTime;

    #[test]
    fn bytes_earn_time_up_to_the_most() {
        let time = ReadTime { initial_ms: 20_000, most_ms: Some(40_000), rate: 500 };
        assert_eq!(time.allowed_ms(0), 20_000);
        assert_eq!(time.allowed_ms(250), 20_500);
        assert_eq!(time.allowed_ms(1 << 30), 40_000);
        assert_eq!(ReadTime { rate: 0, ..time }.allowed_ms(5000), 20_000);
        assert_eq!(ReadTime { most_ms: None, ..time }.allowed_ms(50_000), 120_000);
    }
}
