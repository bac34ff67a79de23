//! Why a session ended before its time: who broke what, for the error log, and what the transport
//! should do about it.

use crate::host::Host;
use evenkeel_message::{Level, Notice};
use rustls::Error;

/// What the transport does after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sends what the buffer has (the alert) and closes.
    Broken,
    /// The client speaks HTTP without TLS: the answer is 400, in clear text. None of the client's
    /// bytes is part of a request.
    PlainHttp,
}

/// The end of a session by a fault.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What to do.
    pub kind: Kind,
    /// The line for the error log.
    pub notice: Notice,
}

impl Failure {
    fn broken(level: Level, number: u16, text: String) -> Self {
        Self { kind: Kind::Broken, notice: Notice::new("ssl", level, number, text) }
    }

    /// The client sends HTTP to a port of TLS (ssl_engine_io.c, ssl_io_filter_error).
    pub(crate) fn plain_http() -> Self {
        let text =
            "SSL handshake failed: HTTP spoken on HTTPS port; trying to send HTML error page";
        Self { kind: Kind::PlainHttp, notice: Notice::new("ssl", Level::Info, 1996, text) }
    }

    pub(crate) fn hello_too_large() -> Self {
        let text = "SSL handshake failed: the ClientHello has more than 65536 bytes".to_owned();
        Self::broken(Level::Info, 2008, text)
    }

    pub(crate) fn no_host(name: Option<&str>) -> Self {
        let text = match name {
            Some(name) => format!("No virtual host takes the server name {name} of a client (SNI)"),
            None => "No virtual host takes a client without a server name (SNI)".to_owned(),
        };
        Self::broken(Level::Info, 2008, text)
    }

    /// Bytes are passed to a session that has ended.
    pub(crate) fn closed() -> Self {
        Self::broken(Level::Debug, 2007, "The TLS session has already ended".to_owned())
    }

    /// The keys of the session have sealed as much as they may.
    pub(crate) fn exhausted() -> Self {
        Self::broken(Level::Info, 1995, "The keys of the TLS session are used up".to_owned())
    }

    /// The fault that rustls has found.
    pub(crate) fn of(error: &Error, host: Option<&Host>) -> Self {
        let server = host.map_or("unknown", |host| host.name.as_str());
        let (level, number, text) = match error {
            Error::AlertReceived(alert) => (
                Level::Info,
                2008,
                format!(
                    "The client ended the TLS session with the alert {alert:?} (server {server})"
                ),
            ),
            Error::InvalidCertificate(reason) => (
                Level::Error,
                2039,
                format!("Certificate Verification: Error: {reason:?} (server {server})"),
            ),
            Error::General(text) => (
                Level::Error,
                2008,
                format!("SSL library error in handshake (server {server}): {text}"),
            ),
            other => (
                Level::Info,
                2008,
                format!("SSL library error in handshake (server {server}): {other}"),
            ),
        };
        Self::broken(level, number, text)
    }
}
