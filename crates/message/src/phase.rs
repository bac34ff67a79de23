//! The types that the phases of the pipeline hand on. Each phase consumes one of them and returns
//! the next, so that no phase can be left out or run twice.

use crate::{Fields, Request, Response, Status};
use std::sync::Arc;

/// A request whose virtual host is known, with the settings that hold before its path is
/// translated: the server's settings and those of `<Location>` over them.
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
    /// The settings that hold at this point.
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

/// A request whose access control has passed (Apache: access, check_user_id, auth).
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

/// An early exit: the remaining phases do not run.
pub struct Stopped<P> {
    /// The request at this point.
    pub request: Box<Request>,
    /// The settings that hold at this point. They determine the ErrorDocument.
    pub plan: Arc<P>,
    /// The answer.
    pub answer: Answer,
}

/// A module's answer to a request, before or instead of a handler.
#[derive(Debug)]
pub enum Answer {
    /// A status. The body is the ErrorDocument or the standard text. The fields are sent with any
    /// status (Location, WWW-Authenticate, Allow).
    Status(Status, Option<Box<Fields>>),
    /// A complete response, sent as it is.
    Response(Box<Response>),
    /// Another path on this server, with its query string (an internal redirect).
    Redirect(Vec<u8>),
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Answer::Status(status, None)
    }
}

impl Answer {
    /// A status with fields of its own.
    #[must_use]
    pub fn with_fields(status: Status, fields: Fields) -> Self {
        Answer::Status(status, Some(Box::new(fields)))
    }
}
