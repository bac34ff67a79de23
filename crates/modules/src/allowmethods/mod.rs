//! mod_allowmethods: the methods that a section allows. Requests with other methods are answered
//! with 405 before the other access rules are checked.

pub use crate::{NoSettings as Server, NoSettings as Global};

use crate::core::refused_target;
use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_message::{Answer, Fields, Level, MethodSet, Notice, Request, Status, quoted};
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("AllowMethods", Where::SECTION, Shape::Argv, "reset", "only allow specific methods", allow_methods),
];

/// mod_allowmethods.
pub const MODULE: Module = Module {
    file: "mod_allowmethods.c",
    identifier: "allowmethods_module",
    active: Active::Usually,
    page: "mod_allowmethods",
    subject: "The methods that a section lets through.",
    remarks: &[
        "TraceEnable controls TRACE, which is answered before AllowMethods is checked. \
         AllowMethods applies to TRACE requests that are passed on.",
        "The Allow field of a 405 lists the methods that the section lets through (RFC 9110, \
         15.5.6). Apache lists TRACE alone.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The settings of one section (`<Directory>`, .htaccess ...).
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// The allowed methods. An empty set allows all methods (`reset`).
    allowed: Option<Arc<MethodSet>>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; allowed)
    }
}

/// Checks that the section allows the request's method (mod_allowmethods.c: am_check_access).
///
/// # Errors
/// 405.
pub fn check(request: &mut Request, settings: &Directory) -> Result<(), Status> {
    let Some(allowed) = settings.allowed.as_deref().filter(|allowed| !allowed.is_empty()) else {
        return Ok(());
    };
    let method = request.head.method_text();
    if allowed.contains(request.resource.method, method) {
        return Ok(());
    }
    let text = format!(
        "client method denied by server configuration: '{}' to {}",
        quoted(method),
        refused_target(request)
    );
    request.notify(Notice::new("allowmethods", Level::Error, 1623, text));
    Err(Status::METHOD_NOT_ALLOWED)
}

/// The response to a request that [`check`] refuses.
#[must_use]
pub fn refusal(settings: &Directory) -> Answer {
    let mut fields = Fields::new();
    fields.set("Allow", settings.allowed.as_deref().map(MethodSet::list).unwrap_or_default());
    Answer::with_fields(Status::METHOD_NOT_ALLOWED, fields)
}

/// The methods of several lines of one section accumulate.
fn allow_methods(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match call.words {
        [] => return Err("AllowMethods: No method or 'reset' keyword given".into()),
        [word] if word.eq_ignore_ascii_case("reset") => {
            scope.directory.allowmethods.allowed = Some(Arc::default());
            return Ok(());
        }
        _ => {}
    }
    for word in call.words {
        if !scope.global().core.knows_method(word) {
            return Err(format!("AllowMethods: Invalid Method '{word}'"));
        }
        let allowed = scope.directory.allowmethods.allowed.get_or_insert_default();
        Arc::make_mut(allowed).add(word.as_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::{Method, Peer, RequestHead};

    /// Returns the result of `check` for a method, given the methods of a section and of a section
    /// inside of it.
    fn checked(method: &str, outer: &[&str], inner: Option<&[&str]>) -> Result<(), Status> {
        let section = |words: &[&str]| {
            let mut allowed = MethodSet::default();
            words.iter().for_each(|word| allowed.add(word.as_bytes()));
            Directory { allowed: Some(Arc::new(allowed)) }
        };
        let inner = inner.map_or_else(Directory::default, section);
        let settings = Directory::merge(&section(outer), &inner);
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let head = RequestHead {
            line: format!("{method} / HTTP/1.1").into_bytes(),
            method: Method::parse(method.as_bytes()),
            method_end: method.len(),
            ..RequestHead::default()
        };
        let mut request = Request::new(head, peer, 0);
        let result = check(&mut request, &settings);
        assert_eq!(request.notices.len(), usize::from(result.is_err()));
        result
    }

    #[test]
    fn what_is_not_listed_is_refused() {
        let refused = Err(Status::METHOD_NOT_ALLOWED);
        assert_eq!(checked("GET", &["GET"], None), Ok(()));
        assert_eq!(checked("HEAD", &["GET"], None), Ok(()));
        assert_eq!(checked("POST", &["GET"], None), refused);
        assert_eq!(checked("BREW", &["GET"], None), refused);
        assert_eq!(checked("POST", &["GET"], Some(&["POST"])), Ok(()));
        assert_eq!(checked("GET", &["GET"], Some(&["POST"])), refused);
        assert_eq!(checked("BREW", &["GET"], Some(&[])), Ok(()), "reset");
        let mut allowed = MethodSet::default();
        ["BREW", "PUT", "HEAD"].iter().for_each(|word| allowed.add(word.as_bytes()));
        let Answer::Status(_, Some(fields)) = refusal(&Directory { allowed: Some(allowed.into()) })
        else {
            panic!("no fields")
        };
        assert_eq!(fields.first("Allow"), Some(&b"GET,HEAD,PUT,BREW"[..]));
    }
}
