//! One rule of mod_setenvif: what it looks at, what that must be, and what it sets then. A
//! request goes in, its environment is changed (mod_setenvif.c: match_headers).

use crate::{DirectorySettings, RequestContext, ServerSettings};
use evenkeel_expr::{Captures, Condition, Evaluation, MatchError, Pattern};
use evenkeel_message::{Level, Notice, Request};
use evenkeel_proto::raw_path;
use std::borrow::Cow;

/// A line of SetEnvIf and its kin.
#[derive(Debug)]
pub struct Rule {
    /// What must hold.
    pub(super) test: Test,
    /// What is done then, in order.
    pub(super) changes: Vec<Change>,
}

/// What must hold.
#[derive(Debug)]
pub(super) enum Test {
    /// Something of the request has this text.
    Attribute(Attribute, Wanted),
    /// SetEnvIfExpr.
    Condition(Condition),
}

/// What a rule looks at.
#[derive(Debug)]
pub(super) enum Attribute {
    RemoteAddr,
    RemoteHost,
    ServerAddr,
    RequestUri,
    RequestMethod,
    RequestProtocol,
    /// A header field, or where there is none a variable that was set before.
    Field(Box<str>),
    /// The last header field whose name matches.
    Fields(Box<Pattern>),
}

/// The text that is looked for.
#[derive(Debug)]
pub(super) enum Wanted {
    /// A part of it is this; there are no groups, so that `$1` in a value stays as it is.
    Part { text: Box<[u8]>, ignore_case: bool },
    /// It matches.
    Pattern(Box<Pattern>),
}

/// A change of one variable.
#[derive(Debug)]
pub(super) struct Change {
    pub name: Box<str>,
    /// The value; none takes the variable away.
    pub value: Option<Box<str>>,
}

impl Attribute {
    /// The attribute of a name that is no pattern.
    pub(super) fn of(name: &str) -> Attribute {
        match name.to_ascii_lowercase().as_str() {
            "remote_addr" => Attribute::RemoteAddr,
            "remote_host" => Attribute::RemoteHost,
            "server_addr" => Attribute::ServerAddr,
            "request_uri" => Attribute::RequestUri,
            "request_method" => Attribute::RequestMethod,
            "request_protocol" => Attribute::RequestProtocol,
            _ => Attribute::Field(name.into()),
        }
    }

    /// What the request has; empty where it has nothing, so that `^$` can ask for that. Early,
    /// the path is as the client sent it.
    ///
    /// # Errors
    /// Whether the name of a field matches cannot be decided.
    fn value<'r>(&self, request: &'r Request, is_early: bool) -> Result<Cow<'r, [u8]>, MatchError> {
        Ok(match self {
            Attribute::RemoteAddr => request.peer.client_ip().to_string().into_bytes().into(),
            Attribute::RemoteHost => match client_name(request) {
                Some(name) => name.as_bytes().into(),
                None => request.peer.client_ip().to_string().into_bytes().into(),
            },
            Attribute::ServerAddr => request.peer.local_ip().to_string().into_bytes().into(),
            Attribute::RequestUri if is_early => early_path(request).into(),
            Attribute::RequestUri => request.path[..].into(),
            Attribute::RequestMethod => request.method_name().into(),
            Attribute::RequestProtocol => request.head.version.text().as_bytes().into(),
            Attribute::Field(name) => field(request, name),
            Attribute::Fields(pattern) => last_field(request, pattern)?,
        })
    }
}

/// The last header field whose name matches.
fn last_field<'r>(request: &'r Request, pattern: &Pattern) -> Result<Cow<'r, [u8]>, MatchError> {
    let mut last = None;
    for (name, _) in request.head.fields.iter() {
        if pattern.matches_within(&request.allowance, name)? {
            last = Some(name);
        }
    }
    let value = last.and_then(|name| request.head.fields.joined(name));
    Ok(value.unwrap_or_default().into())
}

/// The path of the request's target before it is decoded (Apache: r->uri in
/// post_read_request). An internal redirect has no other path than the decoded one.
fn early_path(request: &Request) -> &[u8] {
    if request.previous.is_some() { &request.path } else { raw_path(&request.head) }
}

fn client_name(request: &Request) -> Option<&str> {
    request.names.as_deref().and_then(|names| names.client.as_deref())
}

fn field<'r>(request: &'r Request, name: &str) -> Cow<'r, [u8]> {
    match request.head.fields.joined(name.as_bytes()) {
        Some(value) => Cow::Owned(value),
        None => request.env.value(name).unwrap_or_default().into(),
    }
}

impl Rule {
    /// Looks at the request and changes its environment where the rule holds.
    pub(super) fn run(
        &self,
        request: &mut Request,
        server: &ServerSettings,
        plan: &DirectorySettings,
        is_early: bool,
    ) {
        let captures = match self.holds(request, server, plan, is_early) {
            Ok(Some(captures)) => captures,
            Ok(None) => return,
            Err(text) => {
                request.notify(Notice::own("setenvif", Level::Error, text));
                request.undecided = true;
                return;
            }
        };
        for change in &self.changes {
            let Some(value) = &change.value else {
                request.env.unset(change.name.as_bytes());
                continue;
            };
            match &captures {
                Some(captures) => {
                    let mut filled = Vec::new();
                    captures.substitute(value.as_bytes(), &mut filled);
                    request.env.set(change.name.as_bytes(), filled);
                }
                None => request.env.set(change.name.as_bytes(), value.as_bytes()),
            }
        }
    }

    /// Whether the rule holds, with the groups that it gives.
    fn holds(
        &self,
        request: &mut Request,
        server: &ServerSettings,
        plan: &DirectorySettings,
        is_early: bool,
    ) -> Result<Option<Option<Captures>>, String> {
        let told = |error: MatchError| error.to_string();
        match &self.test {
            Test::Attribute(attribute, Wanted::Part { text, ignore_case }) => {
                let value = attribute.value(request, is_early).map_err(told)?;
                Ok(has_part(&value, text, *ignore_case).then_some(None))
            }
            Test::Attribute(attribute, Wanted::Pattern(pattern)) => {
                let value = attribute.value(request, is_early).map_err(told)?;
                // Most rules hold for few requests: groups are taken for those alone.
                let allowance = &request.allowance;
                if !pattern.matches_within(allowance, &value).map_err(told)? {
                    return Ok(None);
                }
                let mut captures = Captures::default();
                pattern.capture_within(allowance, &value, &mut captures).map_err(told)?;
                Ok(Some(Some(captures)))
            }
            Test::Condition(condition) => {
                let context = RequestContext::new(request, server, plan);
                let mut evaluation = Evaluation::new(&context);
                let holds = evaluation.holds(condition);
                let captures = evaluation.captures().clone();
                let vary = evaluation.vary().to_vec();
                for name in vary {
                    request.fields.merge("Vary", name);
                }
                let holds = holds.map_err(|error| error.to_string())?;
                Ok(holds.then_some(Some(captures)))
            }
        }
    }
}

fn has_part(value: &[u8], part: &[u8], ignore_case: bool) -> bool {
    if part.is_empty() {
        return true;
    }
    let same = |window: &[u8]| match ignore_case {
        true => window.eq_ignore_ascii_case(part),
        false => window == part,
    };
    value.windows(part.len()).any(same)
}
