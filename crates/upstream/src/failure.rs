//! What can go wrong between this server and an application, with the status that the client gets
//! and what the administrator is told of it.

use evenkeel_message::{Address, Target};
use evenkeel_message::{Level, Notice, Status, quoted};
use evenkeel_proto::fastcgi::Fault;
use std::io;

/// What went wrong.
#[derive(Debug)]
pub enum FailureKind {
    /// The host has no address.
    Unresolved,
    /// No connection was made.
    Unreachable(io::Error),
    /// The request could not be sent.
    Unsent(io::Error),
    /// The application was silent for too long.
    Silent,
    /// The connection ended before the response did.
    Ended(io::Error),
    /// The application sent something else than FastCGI.
    Garbage(Fault),
    /// The application ended the request before the head of its response was complete; whether it
    /// had sent anything.
    HalfHead(bool),
    /// The head of the response has a line without a colon.
    NoColon(Vec<u8>),
    /// The head of the response is larger than it may be.
    LargeHead,
    /// The client has gone.
    ClientGone,
}

/// A failure of an exchange with an application.
#[derive(Debug)]
pub struct Failure {
    /// What went wrong.
    pub kind: FailureKind,
    /// The application.
    pub target: Target,
}

impl Failure {
    /// The status that the client gets.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.kind {
            FailureKind::Silent => Status::GATEWAY_TIMEOUT,
            FailureKind::Unresolved
            | FailureKind::HalfHead(_)
            | FailureKind::NoColon(_)
            | FailureKind::LargeHead => Status::INTERNAL_SERVER_ERROR,
            _ => Status::SERVICE_UNAVAILABLE,
        }
    }

    /// What the administrator is told; `script` is the name of the program. Numbers and texts are
    /// those of proxy_util.c, mod_proxy_fcgi.c and util_script.c.
    #[must_use]
    pub fn notices(&self, script: &[u8]) -> Vec<Notice> {
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
                let Target { host, port, .. } = &self.target;
                let attempt = match &self.target.address {
                    Address::Unix(path) => {
                        let path = path.display();
                        let text = format!(
                            "FCGI: attempt to connect to Unix domain socket {path} ({host}:{port}) \
                             failed"
                        );
                        Notice::new("proxy", Level::Error, 2454, text)
                    }
                    Address::Internet { host, port } => {
                        let text =
                            format!("FCGI: attempt to connect to {host}:{port} ({host}) failed");
                        Notice::new("proxy", Level::Error, 957, text)
                    }
                };
                let made = error(1079, format!("failed to make connection to backend: {host}"));
                vec![attempt.because(cause), made]
            }
            FailureKind::Unsent(cause) => vec![dispatching("(sending stdin)").because(cause)],
            FailureKind::Silent => {
                let text = format!("{script}: no answer in time");
                let told = Notice::own("proxy_fcgi", Level::Error, text);
                vec![dispatching("(polling)"), told]
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
