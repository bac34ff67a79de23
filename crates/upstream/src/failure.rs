//! The failures of an exchange with an application. Each kind has its status and its lines in the
//! error log here: [`Failure`] has those of mod_proxy_fcgi, mod_proxy_scgi and mod_proxy_uwsgi,
//! [`program_failure`] those of mod_fcgid.
//! `report.rs` has the lines of the server's own pools.

use evenkeel_message::{Address, Level, Notice, Scheme, Status, Target, quoted};
use evenkeel_proto::fastcgi::Fault;
use std::io;
use std::sync::Arc;

/// The kind of a failure.
#[derive(Debug)]
pub enum FailureKind {
    /// The host name has no address.
    Unresolved,
    /// The connection to the application failed.
    Unreachable(io::Error),
    /// The request could not be sent.
    Unsent(io::Error),
    /// The application was silent for too long.
    Silent,
    /// No worker accepted the request before the queue timeout (AppQueueTimeout).
    Late,
    /// The connection ended before the response did.
    Ended(io::Error),
    /// The application sent bytes that are no FastCGI records.
    Garbage(Fault),
    /// The application ended the response before its head was complete. The value tells whether
    /// it had sent a part of the head.
    HalfHead(bool),
    /// The head of the response has this line, which has no colon.
    NoColon(Vec<u8>),
    /// The head of the response exceeds [`evenkeel_proto::script::MOST_HEAD`].
    LargeHead,
    /// The variables have so many bytes, more than a request of uWSGI can have.
    LargeRequest(usize),
    /// The client has disconnected.
    ClientGone,
}

/// A failure of an exchange with an application.
#[derive(Debug)]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// The application.
    pub target: Arc<Target>,
}

impl Failure {
    /// The status of the response to the client.
    #[must_use]
    pub fn status(&self) -> Status {
        let is_uwsgi = self.target.scheme == Scheme::Uwsgi;
        match self.kind {
            FailureKind::Silent => Status::GATEWAY_TIMEOUT,
            FailureKind::HalfHead(true) | FailureKind::NoColon(_) if is_uwsgi => {
                Status::BAD_GATEWAY
            }
            FailureKind::Unresolved
            | FailureKind::HalfHead(_)
            | FailureKind::NoColon(_)
            | FailureKind::LargeHead
            | FailureKind::LargeRequest(_) => Status::INTERNAL_SERVER_ERROR,
            _ => Status::SERVICE_UNAVAILABLE,
        }
    }

    /// The lines for the error log. `script` is the name of the script. Numbers and texts are those
    /// of proxy_util.c, mod_proxy_fcgi.c and util_script.c.
    #[must_use]
    pub fn notices(&self, script: &[u8]) -> Vec<Notice> {
        match self.target.scheme {
            Scheme::Scgi => self.gateway_notices("proxy_scgi", "SCGI", 866, script),
            Scheme::Uwsgi => self.gateway_notices("proxy_uwsgi", "uwsgi", 10101, script),
            _ => self.fcgi_notices(script),
        }
    }

    /// The lines of mod_proxy_scgi and mod_proxy_uwsgi. `protocol` is its name in messages of
    /// proxy_util.c, and `unreachable` the number of the module's message about a connection that
    /// failed.
    fn gateway_notices(
        &self,
        module: &'static str,
        protocol: &str,
        unreachable: u16,
        script: &[u8],
    ) -> Vec<Notice> {
        let Target { host, port, .. } = &*self.target;
        let script = quoted(script).into_owned();
        let own = |text: String| Notice::own(module, Level::Error, text);
        let read = || {
            let text = format!("error reading response headers from {host}:{port}");
            (module == "proxy_scgi").then(|| Notice::new(module, Level::Error, 860, text))
        };
        let first = match &self.kind {
            FailureKind::ClientGone => return Vec::new(),
            FailureKind::Unresolved => {
                let text = format!("DNS lookup failure for: {host}");
                return vec![Notice::new("proxy", Level::Error, 898, text)];
            }
            FailureKind::Unreachable(cause) => {
                let text = format!("failed to make connection to backend: {host}:{port}");
                let made = Notice::new(module, Level::Error, unreachable, text);
                return vec![self.attempt(protocol, cause), made];
            }
            FailureKind::LargeRequest(size) => {
                let text =
                    format!("can't send headers to {host}:{port}: packet size too large ({size})");
                return vec![Notice::new(module, Level::Error, 10259, text)];
            }
            FailureKind::Unsent(cause) => {
                own(format!("{script}: the body of the request cannot be read back")).because(cause)
            }
            FailureKind::Silent => return vec![own(format!("{script}: no answer in time"))],
            FailureKind::Ended(cause) => {
                own(format!("{script}: the connection ended before the response did"))
                    .because(cause)
            }
            FailureKind::HalfHead(true) => {
                own(format!("Premature end of script headers: {script}"))
            }
            FailureKind::HalfHead(false) => {
                own(format!("End of script output before headers: {script}"))
            }
            FailureKind::LargeHead => own(format!("head of the response is too large: {script}")),
            FailureKind::NoColon(line) => {
                let line = quoted(line.get(..line.len().min(30)).unwrap_or_default());
                own(format!("malformed header from script '{script}': Bad header: {line}"))
            }
            // Neither protocol has records or a queue.
            FailureKind::Garbage(_) | FailureKind::Late => return Vec::new(),
        };
        std::iter::once(first).chain(read()).collect()
    }

    /// The line about a connection that failed (proxy_util.c: `ap_proxy_connect_backend`).
    fn attempt(&self, protocol: &str, cause: &io::Error) -> Notice {
        let Target { host, port, .. } = &*self.target;
        let (number, what) = match &self.target.address {
            Address::Unix(path) => (2454, format!("Unix domain socket {}", path.display())),
            Address::Internet { host, port } => (957, format!("{host}:{port}")),
        };
        let text = format!("{protocol}: attempt to connect to {what} ({host}:{port}) failed");
        Notice::new("proxy", Level::Error, number, text).because(cause)
    }

    /// The lines of mod_proxy_fcgi.
    fn fcgi_notices(&self, script: &[u8]) -> Vec<Notice> {
        let error = |number, text: String| Notice::new("proxy_fcgi", Level::Error, number, text);
        let script = quoted(script).into_owned();
        let dispatching = |what: &str| {
            let port = self.target.shown_port();
            error(1075, format!("Error dispatching request to {port}: {what}"))
        };
        match &self.kind {
            FailureKind::ClientGone => Vec::new(),
            FailureKind::Unresolved => {
                let text = format!("DNS lookup failure for: {}", self.target.host);
                vec![Notice::new("proxy", Level::Error, 898, text)]
            }
            FailureKind::Unreachable(cause) => {
                let host = &self.target.host;
                let made = error(1079, format!("failed to make connection to backend: {host}"));
                vec![self.attempt("FCGI", cause), made]
            }
            FailureKind::Unsent(cause) => vec![dispatching("(sending stdin)").because(cause)],
            // Only requests of uWSGI have such a bound.
            FailureKind::LargeRequest(_) => vec![dispatching("")],
            FailureKind::Silent => {
                let text = format!("{script}: no answer in time");
                let told = Notice::own("proxy_fcgi", Level::Error, text);
                vec![dispatching("(polling)"), told]
            }
            FailureKind::Late => {
                vec![Notice::own(
                    "proxy_fcgi",
                    Level::Error,
                    format!("{script}: no worker in time"),
                )]
            }
            FailureKind::Ended(cause) => {
                let read = error(1067, format!("Failed to read FastCGI header of {script}"));
                vec![read.because(cause), dispatching("")]
            }
            FailureKind::Garbage(Fault::Version(version)) => {
                vec![error(1068, format!("Got bogus version {version}")), dispatching("")]
            }
            FailureKind::Garbage(Fault::RequestId(id)) => {
                vec![error(1069, format!("Got bogus rid {id}, expected 1")), dispatching("")]
            }
            FailureKind::HalfHead(has_begun) => {
                let what = match has_begun {
                    true => "Premature end of script headers",
                    false => "End of script output before headers",
                };
                let text = format!("{what}: {script}");
                vec![Notice::own("proxy_fcgi", Level::Error, text)]
            }
            FailureKind::LargeHead => {
                let text = format!("head of the response is too large: {script}");
                vec![Notice::own("proxy_fcgi", Level::Error, text)]
            }
            FailureKind::NoColon(line) => {
                let line = line.get(..line.len().min(30)).unwrap_or_default();
                let line = quoted(line);
                let text = format!("malformed header from script '{script}': Bad header: {line}");
                let parsed = error(1070, "Error parsing script headers".into());
                vec![Notice::own("proxy_fcgi", Level::Error, text), parsed, dispatching("")]
            }
        }
    }
}

/// The line for the error log about a failed exchange with a program of mod_fcgid, and the status
/// with which the request is answered if the failure came before the head of the response
/// (fcgid_bridge.c: `handle_request_ipc`).
#[must_use]
pub fn program_failure(kind: &FailureKind, script: &[u8]) -> (Notice, Status) {
    let text = match kind {
        FailureKind::Silent => "mod_fcgid: read data timeout".into(),
        FailureKind::Ended(_) | FailureKind::HalfHead(false) => {
            "mod_fcgid: error reading data, FastCGI server closed connection".into()
        }
        FailureKind::HalfHead(true) => "Premature end of script headers".into(),
        FailureKind::NoColon(line) => {
            let line = quoted(line.get(..line.len().min(30)).unwrap_or_default()).into_owned();
            format!("malformed header from script: Bad header: {line}")
        }
        FailureKind::LargeHead => "head of the response is too large".into(),
        FailureKind::Garbage(_) => "mod_fcgid: invalid FastCGI record".into(),
        FailureKind::ClientGone => "the client has disconnected".into(),
        FailureKind::Unresolved
        | FailureKind::Unreachable(_)
        | FailureKind::Unsent(_)
        | FailureKind::LargeRequest(_)
        | FailureKind::Late => "mod_fcgid: can't send the request".to_owned(),
    };
    let (level, status) = match kind {
        FailureKind::ClientGone => (Level::Debug, Status::SERVICE_UNAVAILABLE),
        FailureKind::Unresolved
        | FailureKind::Unreachable(_)
        | FailureKind::Unsent(_)
        | FailureKind::Late => (Level::Warn, Status::SERVICE_UNAVAILABLE),
        _ => (Level::Warn, Status::INTERNAL_SERVER_ERROR),
    };
    (Notice::own("fcgid", level, format!("{}: {text}", quoted(script))), status)
}
