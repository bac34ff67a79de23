//! mod_request: bounds the body of a request that is kept aside (KeptBodySize).

pub use crate::{NoSettings as Global, NoSettings as Server};

use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_message::{BodyLength, Level, Notice, Request, Status, limited};

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("KeptBodySize", Where::SECTION, Shape::One, "0", "Maximum size of request bodies kept aside for use by filters", kept_body_size),
];

/// mod_request.
pub const MODULE: Module = Module {
    file: "mod_request.c",
    identifier: "request_module",
    active: Active::WhenNamed,
    page: "mod_request",
    subject: "Request bodies that are kept aside, which mod_auth_form needs.",
    remarks: &[
        "Where mod_include is active, a body is in memory before its handler runs. What a page \
         includes gets it with the method GET; in Apache with that of the page's request.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The settings of one section.
#[derive(Clone, Copy, Debug, Default)]
pub struct Directory {
    kept_bytes: Option<u64>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; kept_bytes)
    }
}

impl Directory {
    /// Whether bodies are kept.
    #[must_use]
    pub fn keeps_bodies(self) -> bool {
        self.kept_bytes.is_some_and(|most| most > 0)
    }
}

fn kept_body_size(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let size = call.first().trim_start().parse::<i64>().ok().and_then(|it| u64::try_from(it).ok());
    let Some(size) = size else {
        return Err("KeptBodySize must be a valid size in bytes, or zero.".to_owned());
    };
    scope.directory.request.kept_bytes = Some(size);
    Ok(())
}

/// Bounds the body of a request that is kept (mod_request.c: keep_body_filter).
///
/// # Errors
/// 413 if the length of the body is beyond the bound.
pub fn bound(request: &mut Request, settings: Directory) -> Result<(), Status> {
    let Some(most) = settings.kept_bytes.filter(|most| *most > 0) else { return Ok(()) };
    if let BodyLength::Exact(length) = request.head.length
        && length > most
    {
        let text = format!(
            "Requested content-length of {length} is larger than the configured limit of {most}"
        );
        request.notify(Notice::new("request", Level::Error, 1412, text));
        return Err(Status::CONTENT_TOO_LARGE);
    }
    if let Some(body) = request.body.take() {
        request.body = Some(Box::pin(limited(body, most)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::testing::apply_in;
    use evenkeel_message::{Peer, RequestHead};

    #[test]
    fn a_body_beyond_the_bound_is_refused() {
        let bounded = |length, kept_bytes| {
            let address = "127.0.0.1:80".parse().unwrap();
            let head = RequestHead { length: BodyLength::Exact(length), ..RequestHead::default() };
            let mut request = Request::new(head, Peer { client: address, local: address }, 0);
            bound(&mut request, Directory { kept_bytes })
        };
        assert_eq!(bounded(11, Some(10)), Err(Status::CONTENT_TOO_LARGE));
        assert_eq!(bounded(10, Some(10)), Ok(()));
        assert_eq!(bounded(11, Some(0)), Ok(()));
        assert_eq!(bounded(11, None), Ok(()));
    }

    #[test]
    fn a_size_is_a_number() {
        for bad in ["-1", "x", "1k", ""] {
            let line = format!("KeptBodySize {bad}");
            assert!(apply_in(MODULE, Place::Location("/".into()), &line).is_err(), "{bad}");
        }
    }
}
