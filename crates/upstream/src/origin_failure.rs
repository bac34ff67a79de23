//! The failures of an exchange with an HTTP server, with the status and the log lines of each.

use evenkeel_message::{Address, Level, Notice, Status, Target, quoted};
use evenkeel_proto::OriginFault;
use std::io;
use std::sync::Arc;

/// The kind of a failure.
#[derive(Debug)]
pub enum OriginFailureKind {
    /// The host name has no address.
    Unresolved,
    /// The connection could not be made.
    Unreachable(io::Error),
    /// The body of the request could not be received from the client.
    Body(io::Error),
    /// The server neither sent nor accepted anything in time.
    Silent,
    /// The connection ended before the response did.
    Ended(io::Error),
    /// The response is malformed.
    Malformed(OriginFault),
    /// The server sent too many interim responses.
    ManyInterim,
    /// The server switched to this protocol, which was not asked for (101).
    Switched(String),
    /// The client has disconnected.
    ClientGone,
}

/// A failure of an exchange with a server.
#[derive(Debug)]
pub struct OriginFailure {
    /// The kind.
    pub kind: OriginFailureKind,
    /// The server.
    pub target: Arc<Target>,
}

impl OriginFailure {
    /// The status of the response to the client. A failed body of the request has a status of its
    /// own, which the caller knows.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.kind {
            OriginFailureKind::Silent => Status::GATEWAY_TIMEOUT,
            OriginFailureKind::Unresolved => Status::INTERNAL_SERVER_ERROR,
            OriginFailureKind::Unreachable(_) | OriginFailureKind::ClientGone => {
                Status::SERVICE_UNAVAILABLE
            }
            OriginFailureKind::Body(_) => Status::BAD_REQUEST,
            OriginFailureKind::Ended(_)
            | OriginFailureKind::Malformed(_)
            | OriginFailureKind::ManyInterim
            | OriginFailureKind::Switched(_) => Status::BAD_GATEWAY,
        }
    }

    /// The reason that the error page states (proxy_util.c: `ap_proxyerror`).
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        match &self.kind {
            OriginFailureKind::Unresolved => {
                Some(format!("DNS lookup failure for: {}", self.target.host))
            }
            OriginFailureKind::Silent
            | OriginFailureKind::Ended(_)
            | OriginFailureKind::Malformed(OriginFault::StatusLine) => {
                Some("Error reading from remote server".into())
            }
            OriginFailureKind::ManyInterim => {
                Some("Too many (10) interim responses from origin server".into())
            }
            OriginFailureKind::Switched(protocol) => {
                Some(format!("Unexpected Upgrade: {protocol} (expecting n/a)"))
            }
            OriginFailureKind::Malformed(_)
            | OriginFailureKind::Unreachable(_)
            | OriginFailureKind::Body(_)
            | OriginFailureKind::ClientGone => None,
        }
    }

    /// The lines for the error log. `path` is the path of the request. `is_late` says that the head
    /// of the response had been passed on. Numbers and texts are those of proxy_util.c and
    /// mod_proxy_http.c.
    #[must_use]
    pub fn notices(&self, path: &[u8], is_late: bool) -> Vec<Notice> {
        let error = |number, text: String| Notice::new("proxy_http", Level::Error, number, text);
        let Target { host, port, .. } = &*self.target;
        let cause = match &self.kind {
            OriginFailureKind::ClientGone => {
                let text = format!("the client has disconnected from {}", self.target);
                return vec![Notice::own("proxy_http", Level::Debug, text)];
            }
            OriginFailureKind::Unreachable(cause) => {
                return vec![self.attempt(cause), self.not_made()];
            }
            OriginFailureKind::Unresolved => None,
            OriginFailureKind::Body(cause) => {
                let text =
                    format!("the body of the request for {} could not be received", self.target);
                return vec![Notice::own("proxy_http", Level::Info, text).because(cause)];
            }
            OriginFailureKind::Silent if is_late => Some(error(
                1110,
                format!("Network error reading response from {}: no data in time", self.target),
            )),
            OriginFailureKind::Silent => Some(
                error(1102, format!("error reading status line from remote server {host}:{port}"))
                    .because(&io::ErrorKind::TimedOut.into()),
            ),
            OriginFailureKind::Ended(cause) if is_late => {
                let text = format!("Network error reading response from {}", self.target);
                Some(error(1110, text).because(cause))
            }
            OriginFailureKind::Ended(cause) => Some(
                error(1102, format!("error reading status line from remote server {host}:{port}"))
                    .because(cause),
            ),
            OriginFailureKind::Malformed(fault) => {
                let text = format!("bad response from {}: {fault}", self.target);
                Some(Notice::own("proxy_http", Level::Error, text))
            }
            OriginFailureKind::ManyInterim | OriginFailureKind::Switched(_) => None,
        };
        let reason = self.reason().filter(|_| !is_late).map(|reason| {
            let text = format!("{reason} returned by {}", quoted(path));
            Notice::new("proxy", Level::Error, 898, text)
        });
        cause.into_iter().chain(reason).collect()
    }

    /// The line about a failed connection.
    fn attempt(&self, cause: &io::Error) -> Notice {
        let Target { host, port, .. } = &*self.target;
        let (number, text) = match &self.target.address {
            Address::Unix(path) => (
                2454,
                format!(
                    "HTTP: attempt to connect to Unix domain socket {} ({host}:{port}) failed",
                    path.display()
                ),
            ),
            Address::Internet { host, port } => {
                (957, format!("HTTP: attempt to connect to {host}:{port} ({host}:{port}) failed"))
            }
        };
        Notice::new("proxy", Level::Error, number, text).because(cause)
    }

    fn not_made(&self) -> Notice {
        let text = format!("HTTP: failed to make connection to backend: {}", self.target.host);
        Notice::new("proxy_http", Level::Error, 1114, text)
    }
}
