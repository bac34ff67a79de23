//! The authorization provider of a Require line. [`Provider::parse`] compiles the provider's name
//! and arguments, and `check` evaluates them for a request.

use super::{Inquiry, Verdict};
use crate::{Asked, Merge as _, Requirement, Scope, Sections};
use evenkeel_config::words;
use evenkeel_expr::Condition;
use evenkeel_message::{Level, MethodSet, Notice, Undecided};
use std::fmt;
use std::sync::Arc;

/// A provider with its compiled arguments.
#[derive(Clone, Debug)]
pub enum Provider {
    /// `all granted`, `all denied`.
    All(bool),
    /// `env`: at least one of these variables is set.
    Env(Arc<[Box<str>]>),
    /// `method`: the method of the request is one of these.
    Method(Arc<MethodSet>),
    /// `expr`: the condition is true.
    Expr {
        /// The condition.
        condition: Arc<Condition>,
        /// Whether the condition contains REMOTE_USER, so that a login may change its result.
        needs_user: bool,
    },
    /// A provider of another module.
    Other(Arc<dyn Requirement>),
    /// An alias, with settings that override those of the request (AuthzProviderAlias).
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
    /// Compiles the provider `name` of a Require line with its arguments.
    ///
    /// # Errors
    /// Apache's message about the name or the arguments.
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
                let needs_user = text.to_ascii_uppercase().contains("%{REMOTE_USER}");
                Ok(Provider::Expr { condition: Arc::new(condition), needs_user })
            }
            _ => match scope.global().active.require_provider(name) {
                Some(provider) => (provider.parse)(scope, arguments).map(Provider::Other),
                None => Err(unknown(name)),
            },
        }
    }

    /// Whether the provider has no result before the client has logged in.
    pub(super) fn needs_user(&self) -> bool {
        match self {
            Provider::All(_) | Provider::Env(_) | Provider::Method(_) => false,
            Provider::Expr { needs_user, .. } => *needs_user,
            Provider::Other(rule) => rule.needs_user(),
            Provider::Alias(provider, _) => provider.needs_user(),
        }
    }

    /// The reason why a request was denied ([`Requirement::explain`]).
    pub(super) fn explain(&self, inquiry: &Inquiry<'_>) -> Option<String> {
        let explain = |provider: &Provider, sections: &Sections| match provider {
            Provider::Other(rule) => rule.explain(&Asked { context: inquiry.context, sections }),
            _ => None,
        };
        match self {
            Provider::Alias(provider, said) => {
                explain(provider, &Sections::merge(inquiry.sections, &said.0))
            }
            provider => explain(provider, inquiry.sections),
        }
    }

    /// Evaluates the provider for a request.
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
                match rule.is_met(&asked, &mut inquiry.notices) {
                    Ok(is_met) => is_met,
                    Err(Undecided) => return Verdict::Failed,
                }
            }
            Provider::Alias(provider, said) => {
                let merged = Sections::merge(inquiry.sections, &said.0);
                return inquiry.within(&merged, |inquiry| provider.check(inquiry));
            }
        };
        if granted { Verdict::Granted } else { Verdict::Denied }
    }
}

/// Apache's message about an unknown provider. For those of mod_authz_dbm and mod_authz_dbd, it
/// also gives the reason.
fn unknown(name: &str) -> String {
    let text = format!("Unknown Authz provider: {name}");
    match name {
        "dbm-group" | "dbm-file-group" | "dbd-group" | "dbd-login" | "dbd-logout" => format!(
            "{text}: this server reads groups of text files alone (AuthGroupFile); it has no \
             database drivers"
        ),
        _ => text,
    }
}

/// The words of a list. An empty word in quotes ends the list.
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

/// Removes the double quotes around an expression, if there are any.
fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}
