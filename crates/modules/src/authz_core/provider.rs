//! What a Require line asks: its name and arguments come in, a compiled question goes out, and
//! asking it of a request gives a verdict.

use super::{Inquiry, Verdict};
use crate::{Asked, Merge as _, Requirement, Scope, Sections};
use evenkeel_config::words;
use evenkeel_expr::Condition;
use evenkeel_message::{Level, MethodSet, Notice};
use std::fmt;
use std::sync::Arc;

/// A compiled question.
#[derive(Clone, Debug)]
pub enum Provider {
    /// `all granted`, `all denied`.
    All(bool),
    /// `env`: one of these variables is set.
    Env(Arc<[Box<str>]>),
    /// `method`: the request's is one of these.
    Method(Arc<MethodSet>),
    /// `expr`.
    Expr {
        /// The condition.
        condition: Arc<Condition>,
        /// Whether it names REMOTE_USER, so that knowing the user may change its answer.
        needs_user: bool,
    },
    /// A provider of another module.
    Other(Arc<dyn Requirement>),
    /// A provider under another name, with the settings that go over those of a request
    /// (AuthzProviderAlias).
    Alias(Box<Provider>, SharedSections),
}

/// The settings of an AuthzProviderAlias.
#[derive(Clone)]
pub struct SharedSections(pub Arc<Sections>);

impl fmt::Debug for SharedSections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSections")
    }
}

impl Provider {
    /// Compiles what stands behind Require.
    ///
    /// # Errors
    /// Apache's complaint about the name or the arguments.
    pub fn parse(scope: &Scope, name: &str, arguments: &str) -> Result<Self, String> {
        if let Some(known) = scope.global().authz_core.aliases.get(name) {
            return Ok(known.clone());
        }
        match name {
            "all" if arguments.eq_ignore_ascii_case("granted") => Ok(Provider::All(true)),
            "all" if arguments.eq_ignore_ascii_case("denied") => Ok(Provider::All(false)),
            "all" => Err("Argument for 'Require all' must be 'granted' or 'denied'".into()),
            "env" => Ok(Provider::Env(listed(arguments).map(Into::into).collect())),
            "method" => methods(scope, arguments),
            "expr" => {
                let text = unquoted(arguments);
                let condition = scope
                    .compile_condition(text)
                    .map_err(|error| format!("Cannot parse expression in require line: {error}"))?;
                let needs_user = text.contains("REMOTE_USER");
                Ok(Provider::Expr { condition: Arc::new(condition), needs_user })
            }
            _ => match scope.global().active.require_provider(name) {
                Some(provider) => (provider.parse)(scope, arguments).map(Provider::Other),
                None => Err(format!("Unknown Authz provider: {name}")),
            },
        }
    }

    /// Asks it of the request.
    pub(super) fn check(&self, inquiry: &mut Inquiry<'_>) -> Verdict {
        let request = inquiry.context.request;
        let granted = match self {
            Provider::All(granted) => *granted,
            Provider::Env(names) => {
                names.iter().any(|name| request.resource.env.contains(name.as_bytes()))
            }
            Provider::Method(methods) => {
                methods.contains(request.resource.method, request.head.method_text())
            }
            Provider::Expr { condition, needs_user } => {
                match inquiry.context.holds(condition, &mut inquiry.vary) {
                    Ok(false) if *needs_user => return Verdict::DeniedWithoutUser,
                    Ok(holds) => holds,
                    Err(error) => {
                        let text =
                            format!("Error evaluating expression in 'Require expr': {error}");
                        inquiry.notices.push(Notice::new("authz_core", Level::Error, 2320, text));
                        return Verdict::Failed;
                    }
                }
            }
            Provider::Other(rule) if rule.needs_user() && request.resource.user.is_none() => {
                return Verdict::DeniedWithoutUser;
            }
            Provider::Other(rule) => {
                let asked = Asked { context: inquiry.context, sections: inquiry.sections };
                rule.is_met(&asked, &mut inquiry.notices)
            }
            Provider::Alias(provider, said) => {
                let merged = Sections::merge(inquiry.sections, &said.0);
                return inquiry.within(&merged, |inquiry| provider.check(inquiry));
            }
        };
        if granted { Verdict::Granted } else { Verdict::Denied }
    }
}

/// The words of a list, which ends at an empty one.
fn listed(arguments: &str) -> impl Iterator<Item = String> {
    words(arguments).into_iter().take_while(|word| !word.is_empty())
}

fn methods(scope: &Scope, arguments: &str) -> Result<Provider, String> {
    let mut methods = MethodSet::default();
    for word in listed(arguments) {
        if !scope.global().core.knows_method(&word) {
            return Err(format!("Invalid Method '{word}'"));
        }
        methods.add(word.as_bytes());
    }
    Ok(Provider::Method(Arc::new(methods)))
}

/// An expression may stand in double quotes.
fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}
