//! One rule of mod_setenvif: what it looks at, what that must be, and what it sets then. A
//! request goes in, its environment is changed (mod_setenvif.c: match_headers).

use crate::{CoreSettings, RequestContext};
use evenkeel_expr::{Captures, Condition, Evaluation, MatchError, Part, Pattern, Subject};
use evenkeel_message::{Allowance, FieldName, Interner, Level, Named as _, Notice, Request};
use evenkeel_proto::raw_path;
use std::borrow::Cow;
use std::sync::Arc;

/// The names of header fields that rules test.
static NAMES: Interner<Box<str>, FieldName> = Interner::new();

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
    /// A header field, or where there is none a variable that was set before. Rules share it.
    Field(Arc<FieldName>),
    /// A header field alone, whose name a pattern spells out.
    Header(FieldName),
    /// The last header field whose name matches.
    Fields(Pattern),
}

/// The text that is looked for.
#[derive(Debug)]
pub(super) enum Wanted {
    /// A part of it is this; there are no groups, so that `$1` in a value stays as it is.
    Part(Part),
    /// It matches.
    Pattern {
        pattern: Pattern,
        /// Whether the empty text matches, or cannot be told to. Most values are those of fields
        /// that are absent.
        may_be_empty: bool,
    },
}

/// A change of one variable.
#[derive(Debug)]
pub(super) struct Change {
    pub name: Box<[u8]>,
    /// The value; none takes the variable away.
    pub value: Option<Box<[u8]>>,
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
            _ => Attribute::Field(NAMES.value(name.into(), |name| FieldName::new(name.as_bytes()))),
        }
    }

    /// Whether another attribute is known to have the same value, whatever the request.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Field(one), Self::Field(other)) => Arc::ptr_eq(one, other),
            (Self::Field(_) | Self::Header(_) | Self::Fields(_), _) => std::ptr::eq(self, other),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// What the request has; empty where it has nothing, so that `^$` can ask for that. Early,
    /// the path is as the client sent it.
    ///
    /// # Errors
    /// Whether the name of a field matches cannot be decided.
    pub(super) fn value<'r>(
        &'r self,
        request: &'r Request,
        is_early: bool,
    ) -> Result<Cow<'r, [u8]>, MatchError> {
        Ok(match self {
            Attribute::RemoteAddr => request.peer.client_ip().to_string().into_bytes().into(),
            Attribute::RemoteHost => match client_name(request) {
                Some(name) => name.as_bytes().into(),
                None => request.peer.client_ip().to_string().into_bytes().into(),
            },
            Attribute::ServerAddr => request.peer.local_ip().to_string().into_bytes().into(),
            Attribute::RequestUri if is_early => early_path(request).into(),
            Attribute::RequestUri => request.resource.path[..].into(),
            Attribute::RequestMethod => request.method_name().into(),
            Attribute::RequestProtocol => request.head.version.text().as_bytes().into(),
            Attribute::Field(name) => field(request, name),
            Attribute::Header(name) => request.fields().whole(name).unwrap_or_default(),
            Attribute::Fields(pattern) => last_field(request, pattern)?,
        })
    }
}

/// The last header field whose name matches.
fn last_field<'r>(request: &'r Request, pattern: &Pattern) -> Result<Cow<'r, [u8]>, MatchError> {
    let mut last = None;
    for (name, _) in request.fields().iter() {
        if pattern.matches_within(&request.allowance, name)? {
            last = Some(name);
        }
    }
    Ok(last.and_then(|name| request.fields().whole(name)).unwrap_or_default())
}

/// The path of the request's target before it is decoded (Apache: r->uri in
/// post_read_request). An internal redirect has no other path than the decoded one.
fn early_path(request: &Request) -> &[u8] {
    if request.previous.is_some() { &request.resource.path } else { raw_path(&request.head) }
}

fn client_name(request: &Request) -> Option<&str> {
    request.names.as_deref().and_then(|names| names.client.as_deref())
}

fn field<'r>(request: &'r Request, name: &'r FieldName) -> Cow<'r, [u8]> {
    let value = request.fields().whole(name);
    value.unwrap_or_else(|| request.resource.env.value(name.text()).unwrap_or_default().into())
}

/// Runs rules in their order.
pub(super) fn run(
    rules: &[Arc<Rule>],
    request: &mut Request,
    core: CoreSettings<'_>,
    is_early: bool,
) {
    let mut rest = rules;
    while let Some((rule, others)) = rest.split_first() {
        let held;
        (held, rest) = match &rule.test {
            Test::Attribute(attribute, _) => first_that_holds(rest, attribute, request, is_early),
            Test::Condition(condition) => {
                let captures = evaluate(condition, request, core);
                (captures.map(|found| found.map(|captures| (rule, Some(captures)))), others)
            }
        };
        match held {
            Ok(Some((rule, captures))) => rule.change(request, captures.as_ref()),
            Ok(None) => {}
            Err(text) => {
                request.notify(Notice::own("setenvif", Level::Error, text));
                request.undecided = true;
            }
        }
    }
}

/// A rule that holds, with the groups that it gives, or why it cannot be told whether one does.
type Held<'a> = Result<Option<(&'a Arc<Rule>, Option<Captures>)>, String>;

/// The first rule that holds among those at the beginning that look at this attribute, and the
/// rules behind it. The attribute is found once for all that do not hold: nothing is changed
/// between them.
fn first_that_holds<'a>(
    rules: &'a [Arc<Rule>],
    attribute: &Attribute,
    request: &Request,
    is_early: bool,
) -> (Held<'a>, &'a [Arc<Rule>]) {
    let value = match attribute.value(request, is_early) {
        Ok(value) => value,
        Err(error) => return (Err(error.to_string()), rules.get(1..).unwrap_or_default()),
    };
    let subject = Subject::new(&value);
    let mut rest = rules;
    while let Some((rule, others)) = rest.split_first() {
        let Test::Attribute(own, wanted) = &rule.test else { break };
        if !own.is_same(attribute) {
            break;
        }
        rest = others;
        match wanted.find(&subject, &request.allowance) {
            Ok(None) => {}
            Ok(Some(captures)) => return (Ok(Some((rule, captures))), rest),
            Err(error) => return (Err(error), rest),
        }
    }
    (Ok(None), rest)
}

impl Wanted {
    /// What matches this pattern.
    pub(super) fn pattern(pattern: Pattern) -> Self {
        let may_be_empty = pattern.matches(b"").unwrap_or(true);
        Self::Pattern { pattern, may_be_empty }
    }

    /// Whether the value is what is wanted, with the groups where it has such.
    fn find(
        &self,
        subject: &Subject<'_>,
        allowance: &Allowance,
    ) -> Result<Option<Option<Captures>>, String> {
        let text = |error: MatchError| error.to_string();
        let pattern = match self {
            Self::Part(part) => {
                let is_within = part.is_within(allowance, subject).map_err(|e| e.to_string())?;
                return Ok(is_within.then_some(None));
            }
            Self::Pattern { may_be_empty: false, .. } if subject.text().is_empty() => {
                return Ok(None);
            }
            Self::Pattern { pattern, .. } => pattern,
        };
        // Most rules hold for few requests: groups are taken for those alone.
        if !pattern.matches_within(allowance, subject.text()).map_err(text)? {
            return Ok(None);
        }
        let mut captures = Captures::default();
        pattern.capture_within(allowance, subject.text(), &mut captures).map_err(text)?;
        Ok(Some(Some(captures)))
    }
}

/// The groups of a condition that holds (SetEnvIfExpr). One that asks for a file which cannot be
/// read does not, as in Apache.
fn evaluate(
    condition: &Condition,
    request: &mut Request,
    core: CoreSettings<'_>,
) -> Result<Option<Captures>, String> {
    let context = RequestContext::new(request, core);
    let mut evaluation = Evaluation::new(&context);
    let holds = evaluation.holds(condition);
    let captures = evaluation.captures().clone();
    let vary = evaluation.vary().to_vec();
    for name in vary {
        request.resource.fields.merge("Vary", name);
    }
    match holds {
        Ok(holds) => Ok(holds.then_some(captures)),
        Err(error) if error.is_of_file() => {
            request.notify(Notice::own("setenvif", Level::Error, error.to_string()));
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    }
}

impl Rule {
    /// The text that the value of its attribute contains if the rule holds, and whether case is
    /// ignored. `None` if there is no such text.
    pub(super) fn text(&self) -> Option<(&[u8], bool)> {
        let text = match &self.test {
            Test::Attribute(Attribute::Fields(_), _) | Test::Condition(_) => return None,
            Test::Attribute(_, Wanted::Part(part)) => Some(part.text()),
            Test::Attribute(_, Wanted::Pattern { pattern, .. }) => pattern.literal_text(),
        };
        text.filter(|(text, _)| !text.is_empty())
    }

    /// Whether another rule tests the same attribute.
    pub(super) fn tests_as(&self, other: &Rule) -> bool {
        match (&self.test, &other.test) {
            (Test::Attribute(one, _), Test::Attribute(other, _)) => one.is_same(other),
            _ => false,
        }
    }

    /// Changes the environment of a request that the rule holds for.
    fn change(&self, request: &mut Request, captures: Option<&Captures>) {
        for change in &self.changes {
            let Some(value) = &change.value else {
                request.resource.env.unset(&*change.name);
                continue;
            };
            match captures {
                Some(captures) => {
                    let mut filled = Vec::new();
                    captures.substitute(value, &mut filled);
                    request.resource.env.set(&*change.name, filled);
                }
                None => request.resource.env.set(&*change.name, &**value),
            }
        }
    }
}
