//! mod_actions: programs for media types, handlers and methods. [`target`] returns the path to
//! which a request is redirected internally.

pub use crate::{NoSettings as Server, NoSettings as Global};

use crate::core::refused_target;
use crate::settings::merged;
use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_message::{Answer, Level, Method, Notice, Request, Status, unquoted};
use evenkeel_proto::escape_uri;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("Action", Where::FILE_INFO, Shape::TwoOrThree, "", "a media type followed by a script name", action).of_bytes(),
    directive("Script", Where::CONFIG, Shape::Two, "", "a method followed by a script name", script).of_bytes(),
];

/// mod_actions.
pub const MODULE: Module = Module {
    file: "mod_actions.c",
    identifier: "actions_module",
    active: Active::WhenNamed,
    page: "mod_actions",
    subject: "Programs that answer for media types, handlers and methods.",
    remarks: &["The Allow field of a 405 does not list the methods of Script."],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// One Action.
#[derive(Debug)]
struct Action {
    script: Box<[u8]>,
    /// Whether the file of the request need not be there (`virtual`).
    is_virtual: bool,
}

/// A method and the script that answers it.
type MethodScript = (Box<[u8]>, Arc<[u8]>);

/// The settings of one section.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Action, by media type or handler, in the order of the configuration.
    actions: Vec<(Box<[u8]>, Arc<Action>)>,
    /// Script, by method, likewise.
    scripts: Vec<MethodScript>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        let Self { actions, scripts } = over;
        self.actions.extend_from_slice(actions);
        self.scripts.extend_from_slice(scripts);
    }
}

fn action(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (name, script) = (argument(call, 0), argument(call, 1));
    let is_virtual = match call.words.get(2) {
        None => false,
        Some(option) if option.eq_ignore_ascii_case("virtual") => true,
        Some(option) => return Err(format!("unrecognized option '{option}'")),
    };
    let action = Action { script: unquoted(script).into(), is_virtual };
    scope.directory.actions.actions.push((unquoted(name).into(), Arc::new(action)));
    Ok(())
}

fn script(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (method, script) = (argument(call, 0), argument(call, 1));
    // HEAD is GET to Apache, whose numbers of methods have none for it.
    let method = if method == "HEAD" { "GET" } else { method };
    if method == "TRACE" {
        return Err("TRACE not allowed for Script".into());
    }
    let script: Vec<u8> = unquoted(script).into();
    scope.directory.actions.scripts.push((unquoted(method).into(), script.into()));
    Ok(())
}

impl Directory {
    /// Whether neither Action nor Script applies to the section.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.scripts.is_empty()
    }

    /// The program of the method of a request. That of GET is for requests with a query.
    fn script_of_method(&self, request: &Request) -> Option<&[u8]> {
        let method: &[u8] = match request.resource.method {
            Method::Get | Method::Head if request.resource.query.is_none() => return None,
            Method::Get | Method::Head => b"GET",
            _ => request.method_name(),
        };
        let found = self.scripts.iter().rev().find(|(name, _)| **name == *method)?;
        Some(&found.1)
    }

    /// The action of a media type or handler. Apache's tables ignore the case of names.
    fn action_of(&self, name: &[u8]) -> Option<&Action> {
        let found =
            self.actions.iter().rev().find(|(other, _)| other.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }
}

/// Returns the path of the program that answers a request, with the path of the request behind it
/// and its query (mod_actions.c: `action_handler`). `has_file` is whether the file of the request
/// is there.
///
/// # Errors
/// 404 if the file is not there and the action is not `virtual`.
pub fn target(
    request: &mut Request,
    settings: &Directory,
    has_file: bool,
) -> Result<Option<Vec<u8>>, Answer> {
    let script = settings.script_of_method(request);
    // A program of a method that is none itself is redirected to again.
    let has_looped = request.previous.as_ref().is_some_and(|before| before.previous.is_some());
    if script.is_some() && has_looped {
        return Ok(None);
    }
    let name = request.resource.content.handler_name().map(<[u8]>::to_vec);
    let action = name.as_deref().and_then(|name| settings.action_of(name));
    let script = match action {
        None => script,
        Some(action) => {
            if !action.is_virtual && !has_file {
                let text = format!("File does not exist: {}", refused_target(request));
                request.notify(Notice::new("actions", Level::Info, 652, text));
                return Err(Status::NOT_FOUND.into());
            }
            request.resource.env.set("HANDLER", name.unwrap_or_default());
            Some(&*action.script)
        }
    };
    let Some(script) = script else { return Ok(None) };
    let mut target = script.to_vec();
    escape_uri(&mut target, &request.resource.path);
    if let Some(query) = &request.resource.query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    Ok(Some(target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn lines_are_read_and_later_ones_win() {
        let text = "Action text/html /one\nAction Text/HTML /two virtual\nScript PUT /put\n\
                    Script HEAD /get";
        let settings = apply(MODULE, text).unwrap().directory.actions.clone();
        let found = settings.action_of(b"text/html").unwrap();
        assert_eq!((&*found.script, found.is_virtual), (&b"/two"[..], true));
        assert!(settings.action_of(b"text/plain").is_none());
        assert_eq!(&*settings.scripts[1].0, b"GET");
        let fault = |line: &str| apply(MODULE, line).err().unwrap();
        assert_eq!(fault("Action a /b real"), "unrecognized option 'real'");
        assert_eq!(fault("Script TRACE /b"), "TRACE not allowed for Script");
    }
}
