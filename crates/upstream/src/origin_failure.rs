//! The failures of an exchange with an HTTP server, with the status and the log lines of each.

use crate::origin_link::Upload;
use evenkeel_message::{Address, Level, Notice, Status, Target, quoted};
use evenkeel_proto::OriginFault;
use evenkeel_tls::PeerFault;
use std::io;
use std::sync::Arc;

/// The kind of a failure.
#[derive(Debug)]
pub enum OriginFailureKind {
    /// The host name has no address.
    Unresolved,
    /// The connection could not be made.
    Unreachable(io::Error),
    /// The handshake of TLS has failed.
    Handshake(io::Error),
    /// The certificate of the server is not that of the host, which is named, or not current.
    Peer(PeerFault, String),
    /// The body of the request could not be received from the client.
    Body(io::Error),
    /// The server neither sent nor accepted anything in time.
    Silent,
    /// The connection ended before the response did.
    Ended(io::Error),
    /// The connection ended in the head of the response, behind its first line.
    EndedInHead(io::Error),
    /// The response is malformed.
    Malformed(OriginFault),
    /// The server sent too many interim responses.
    ManyInterim,
    /// The server switched to the first protocol, while the second was asked for (101). `n/a` is
    /// none.
    Switched(String, String),
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
    /// The rest of the request's body, if nothing of the request was sent.
    pub upload: Option<Upload>,
}

impl OriginFailure {
    /// The status of the response to the client. A failed body of the request has a status of its
    /// own, which the caller knows.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.kind {
            OriginFailureKind::Silent => Status::GATEWAY_TIMEOUT,
            OriginFailureKind::Unresolved
            | OriginFailureKind::Handshake(_)
            | OriginFailureKind::Peer(..) => Status::INTERNAL_SERVER_ERROR,
            OriginFailureKind::Unreachable(_) | OriginFailureKind::ClientGone => {
                Status::SERVICE_UNAVAILABLE
            }
            OriginFailureKind::Body(_) => Status::BAD_REQUEST,
            OriginFailureKind::Ended(_)
            | OriginFailureKind::EndedInHead(_)
            | OriginFailureKind::Malformed(_)
            | OriginFailureKind::ManyInterim
            | OriginFailureKind::Switched(..) => Status::BAD_GATEWAY,
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
            OriginFailureKind::Handshake(_) | OriginFailureKind::Peer(..) => {
                Some("Error during SSL Handshake with remote server".into())
            }
            OriginFailureKind::ManyInterim => {
                Some("Too many (10) interim responses from origin server".into())
            }
            OriginFailureKind::Switched(protocol, asked) => {
                Some(format!("Unexpected Upgrade: {protocol} (expecting {asked})"))
            }
            OriginFailureKind::Malformed(_)
            | OriginFailureKind::EndedInHead(_)
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
                return vec![self.attempt("HTTP", cause), self.not_made()];
            }
            OriginFailureKind::Unresolved => None,
            OriginFailureKind::Body(cause) => {
                let text =
                    format!("the body of the request for {} could not be received", self.target);
                return vec![Notice::own("proxy_http", Level::Info, text).because(cause)];
            }
            OriginFailureKind::Silent if is_late => Some(error(
                1110,
                format!("error reading response from {}: no data in time", self.target),
            )),
            OriginFailureKind::Silent => Some(
                error(1102, format!("error reading status line from remote server {host}:{port}"))
                    .because(&io::ErrorKind::TimedOut.into()),
            ),
            OriginFailureKind::Ended(cause) if is_late => {
                let text = format!("error reading response from {}", self.target);
                Some(error(1110, text).because(cause))
            }
            OriginFailureKind::Ended(cause) => Some(
                error(1102, format!("error reading status line from remote server {host}:{port}"))
                    .because(cause),
            ),
            OriginFailureKind::EndedInHead(cause) => {
                let text = format!("Error reading headers from backend {}", self.target);
                Some(error(10404, text).because(cause))
            }
            OriginFailureKind::Malformed(fault) => Some(self.malformed(*fault)),
            OriginFailureKind::ManyInterim | OriginFailureKind::Switched(..) => None,
            OriginFailureKind::Handshake(cause) => {
                let text = format!("SSL Proxy connect failed: {}", self.target);
                Some(Notice::new("ssl", Level::Error, 2003, text).because(cause))
            }
            OriginFailureKind::Peer(fault, wanted) => Some(peer_notice(fault, wanted)),
        };
        let reason = self.reason().filter(|_| !is_late).map(|reason| {
            let text = format!("{reason} returned by {}", quoted(path));
            Notice::new("proxy", Level::Error, 898, text)
        });
        cause.into_iter().chain(reason).collect()
    }

    /// The line about a failed check of the server by `function`, which is `HCTCP` or `HCOH`
    /// (mod_proxy_hcheck.c).
    #[must_use]
    pub fn check_notice(&self, function: &str) -> Notice {
        let Target { host, port, .. } = &*self.target;
        let debug = |text| Notice::own("proxy_hcheck", Level::Debug, text);
        let server = &self.target;
        match &self.kind {
            OriginFailureKind::Unreachable(cause) => self.attempt(function, cause),
            OriginFailureKind::Unresolved => {
                let text = format!("DNS lookup failure for: {host}:{port}");
                Notice::new("proxy_hcheck", Level::Debug, 3249, text)
            }
            OriginFailureKind::Handshake(cause) => {
                let text = format!("SSL Proxy connect failed: {server}");
                Notice::new("ssl", Level::Error, 2003, text).because(cause)
            }
            OriginFailureKind::Peer(fault, wanted) => peer_notice(fault, wanted),
            OriginFailureKind::Malformed(fault) => {
                debug(format!("{function}: bad response from {server}: {fault}"))
            }
            OriginFailureKind::Ended(cause) | OriginFailureKind::EndedInHead(cause) => {
                debug(format!("{function}: no response from {server}")).because(cause)
            }
            OriginFailureKind::Silent => debug(format!("{function}: {server} is silent")),
            OriginFailureKind::Body(_)
            | OriginFailureKind::ManyInterim
            | OriginFailureKind::Switched(..)
            | OriginFailureKind::ClientGone => {
                debug(format!("{function}: no response from {server}"))
            }
        }
    }

    /// The line about a tunnel that one side has broken off, or that was silent for too long.
    pub(crate) fn tunnel_notice(&self, path: &[u8]) -> Option<Notice> {
        let OriginFailureKind::Ended(cause) = &self.kind else { return None };
        let text = format!("the tunnel of {} to {} was broken off", quoted(path), self.target);
        Some(Notice::own("proxy_http", Level::Info, text).because(cause))
    }

    /// The line about a malformed response, with the number of Apache's line about it.
    fn malformed(&self, fault: OriginFault) -> Notice {
        let number = match fault {
            OriginFault::LargeField => 10124,
            OriginFault::Field | OriginFault::ManyFields | OriginFault::LargeHead => 1106,
            OriginFault::TwoFramings => 1107,
            OriginFault::Length => 1587,
            OriginFault::Chunk => 1590,
            OriginFault::Coding => 2555,
            OriginFault::StatusLine => 1102,
        };
        let text = format!("bad response from {}: {fault}", self.target);
        Notice::new("proxy_http", Level::Error, number, text)
    }

    /// The line about a failed connection.
    fn attempt(&self, function: &str, cause: &io::Error) -> Notice {
        let Target { host, port, .. } = &*self.target;
        let (number, text) = match &self.target.address {
            Address::Unix(path) => (
                2454,
                format!(
                    "{function}: attempt to connect to Unix domain socket {} ({host}:{port}) failed",
                    path.display()
                ),
            ),
            Address::Internet { host, port } => (
                957,
                format!("{function}: attempt to connect to {host}:{port} ({host}:{port}) failed"),
            ),
        };
        Notice::new("proxy", Level::Error, number, text).because(cause)
    }

    fn not_made(&self) -> Notice {
        let text = format!("HTTP: failed to make connection to backend: {}", self.target.host);
        Notice::new("proxy_http", Level::Error, 1114, text)
    }
}

/// The line about the certificate of a server (ssl_engine_io.c: ssl_io_filter_handshake).
fn peer_notice(fault: &PeerFault, wanted: &str) -> Notice {
    let (number, text) = match fault {
        PeerFault::Expired => (2004, "SSL Proxy: Peer certificate is expired".to_owned()),
        PeerFault::Name => {
            (2411, format!("SSL Proxy: Peer certificate does not match for hostname {wanted}"))
        }
        PeerFault::CommonName(name) => (
            2005,
            format!(
                "SSL Proxy: Peer certificate CN mismatch: Certificate CN: {name} Requested \
                 hostname: {wanted}"
            ),
        ),
    };
    Notice::new("ssl", Level::Error, number, text)
}
