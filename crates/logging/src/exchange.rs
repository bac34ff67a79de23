//! One exchange as the logs see it: the request, what was answered and what moved over the
//! wire. `conn` puts it together from what it holds anyway; nothing is copied.

use evenkeel_message::{Previous, Request, Response, Status, Transfer};

/// A finished exchange, borrowed for the time of writing its lines.
#[derive(Clone, Copy)]
pub struct Exchange<'a> {
    /// The request, with everything that the phases found out.
    pub request: &'a Request,
    /// The response; its body may have been taken out already.
    pub response: &'a Response,
    /// What moved over the wire.
    pub transfer: &'a Transfer,
    /// The virtual host's ServerName (%v).
    pub server_name: &'a [u8],
    /// The name under which the server answers, as UseCanonicalName says (%V).
    pub used_name: &'a [u8],
    /// The canonical port of the virtual host (%p).
    pub server_port: u16,
    /// The client's host name where HostnameLookups found one (%h).
    pub remote_host: Option<&'a [u8]>,
    /// The Content-Length that was sent (%{Content-Length}o).
    pub content_length: Option<u64>,
    /// Whether the connection stays open for another request (%X).
    pub keep_alive: bool,
    /// What the client, which asked, was told of that (%{Connection}o, %{Keep-Alive}o).
    pub keep_alive_told: Option<KeepAliveTold>,
    /// Whether the body went out in chunks (%{Transfer-Encoding}o).
    pub chunked: bool,
    /// Whether LogIOTrackTTFB is on, without which %^FB has nothing to say.
    pub track_first_byte: bool,
}

/// What a client was told of a connection that stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAliveTold {
    /// Seconds for which it stays open.
    pub timeout_s: u64,
    /// Requests that may still come; none where there is no limit.
    pub max: Option<u32>,
}

impl Exchange<'_> {
    /// The status that was sent (%>s).
    #[must_use]
    pub fn final_status(&self) -> Status {
        self.response.status
    }

    /// The status of the request as it first came (%s): that which led to an ErrorDocument, and
    /// the final one where no redirect was made.
    #[must_use]
    pub fn original_status(&self) -> Status {
        self.first().map_or(self.response.status, |first| first.resource.status)
    }

    /// The path of the request as it first came (%U).
    #[must_use]
    pub fn original_path(&self) -> &[u8] {
        self.first().map_or(&self.request.resource.path, |first| &first.resource.path)
    }

    /// The request that the client made, where internal redirects led away from it.
    pub(crate) fn first(&self) -> Option<&Previous> {
        let newest = self.request.previous.as_deref();
        std::iter::successors(newest, |previous| previous.previous.as_deref()).last()
    }
}
