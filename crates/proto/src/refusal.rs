//! Why a request is refused: the status for the client, the notice for the administrator, and the
//! sentence that Apache adds to the error page (its note `error-notes`).

use evenkeel_message::{Level, Notice, Status, quoted};
use std::borrow::Cow;

/// The refusal of a malformed request. Nothing after it on the connection can be trusted, unless
/// the status leaves the connection open ([`Status::drops_connection`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the response.
    pub status: Status,
    /// The notice for the error log.
    pub notice: Notice,
    /// A sentence of HTML for the error page; usually empty.
    pub detail: &'static str,
}

impl Refusal {
    /// A 400 with a notice of Apache's core at level debug, the most common kind.
    pub(crate) fn bad(number: u16, text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Status::BAD_REQUEST, Level::Debug, number, text)
    }

    /// A refusal for the error log and, as a status, for the client.
    pub fn new(
        status: Status,
        level: Level,
        number: u16,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, notice: Notice::new("core", level, number, text), detail: "" }
    }

    pub(crate) fn with_detail(mut self, detail: &'static str) -> Self {
        self.detail = detail;
        self
    }
}

/// The part of a client's bytes that a notice quotes: 80 bytes (Apache: `LOG_NAME_MAX_LEN`).
pub(crate) fn excerpt(bytes: &[u8]) -> Cow<'_, str> {
    quoted(bytes.get(..80).unwrap_or(bytes))
}
