//! What one phase of the pipeline hands to the next. Each phase consumes one of these types and
//! yields the next, so that none can be left out or run twice.

use crate::{Fields, Request, Response, Status};
use std::sync::Arc;

/// A request whose virtual host is known, with the settings that hold before its path is
/// translated: the server's, with those of `<Location>` over them.
pub struct Received<P> {
    /// The request.
    pub request: Box<Request>,
    /// The settings.
    pub plan: Arc<P>,
}

/// A request whose path has been translated to a file name (Apache: translate_name).
pub struct Translated<P> {
    /// The request.
    pub request: Box<Request>,
    /// The settings that hold so far.
    pub plan: Arc<P>,
}

/// A request with the merged settings of all its sections (Apache: map_to_storage).
pub struct Mapped<P, F> {
    /// The request.
    pub request: Box<Request>,
    /// The merged settings.
    pub plan: Arc<P>,
    /// What was found at its path.
    pub found: F,
}

/// A request that may be answered (Apache: access, check_user_id, auth).
pub struct Admitted<P, F> {
    /// The request.
    pub request: Box<Request>,
    /// The merged settings.
    pub plan: Arc<P>,
    /// What was found at its path.
    pub found: F,
}

/// A request whose content type and handler are known (Apache: type_checker, fixups).
pub struct Prepared<P, F> {
    /// The request.
    pub request: Box<Request>,
    /// The merged settings.
    pub plan: Arc<P>,
    /// What was found at its path.
    pub found: F,
}

/// An early exit: why the phases after this one do not run.
pub struct Stopped<P> {
    /// The request so far.
    pub request: Box<Request>,
    /// The settings that hold so far: they say which ErrorDocument is sent.
    pub plan: Arc<P>,
    /// What to answer.
    pub answer: Answer,
}

/// How a module answers a request before or instead of a handler.
#[derive(Debug)]
pub enum Answer {
    /// A status; its body is the ErrorDocument's or the standard text. The fields are sent
    /// whatever the status (Location, WWW-Authenticate, Allow).
    Status(Status, Fields),
    /// A whole response, sent as it is.
    Response(Box<Response>),
    /// Another path on this server, with its query string (an internal redirect).
    Redirect(Vec<u8>),
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Answer::Status(status, Fields::new())
    }
}
