//! One exchange as the logs see it: the request, the response and the bytes transferred. `conn`
//! assembles it from what it has; nothing is copied.

use evenkeel_message::{Previous, Request, Response, Status, Transfer};

/// A finished exchange, borrowed while its lines are written.
#[derive(Clone, Copy)]
pub struct LoggedExchange<'a> {
    /// The request, with everything that the phases found out.
    pub request: &'a Request,
    /// The response. Its body may already be taken out.
    pub response: &'a Response,
    /// The bytes and times of the exchange.
    pub transfer: &'a Transfer,
    /// The virtual host's ServerName (%v).
    pub server_name: &'a [u8],
    /// The name under which the server answers, by UseCanonicalName (%V).
    pub used_name: &'a [u8],
    /// The canonical port of the virtual host (%p).
    pub server_port: u16,
    /// The client's host name if HostnameLookups found one (%h).
    pub remote_host: Option<&'a [u8]>,
    /// The Content-Length that was sent (%{Content-Length}o).
    pub content_length: Option<u64>,
    /// Whether the connection stays open for another request (%X).
    pub keep_alive: bool,
    /// What the client was told about that, if it asked (%{Connection}o, %{Keep-Alive}o).
    pub keep_alive_told: Option<KeepAliveTold>,
    /// Whether the body was sent in chunks (%{Transfer-Encoding}o).
    pub chunked: bool,
    /// Whether LogIOTrackTTFB is on. Without it, %^FB has no value.
    pub track_first_byte: bool,
}

/// What a client was told about a connection that stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAliveTold {
    /// The seconds for which it stays open.
    pub timeout_s: u64,
    /// The number of requests that may follow; none without a limit.
    pub max: Option<u32>,
}

impl LoggedExchange<'_> {
    /// The status that was sent (%>s).
    #[must_use]
    pub fn final_status(&self) -> Status {
        self.response.status
    }

    /// The status of the original request (%s): the one that led to an ErrorDocument, or the final
    /// one without a redirect.
    #[must_use]
    pub fn original_status(&self) -> Status {
        self.first().map_or(self.response.status, |first| first.resource.status)
    }

    /// The path of the original request (%U).
    #[must_use]
    pub fn original_path(&self) -> &[u8] {
        self.first().map_or(&self.request.resource.path, |first| &first.resource.path)
    }

    /// The request that the client made, if internal redirects led away from it.
    pub(crate) fn first(&self) -> Option<&Previous> {
        let newest = self.request.previous.as_deref();
        std::iter::successors(newest, |previous| previous.previous.as_deref()).last()
    }
}
