//! The tree of rules: Require lines and the groups around them. It knows how rules are put
//! together and how they read; `Inquiry` asks them.

use super::Provider;
use crate::Access;
use evenkeel_config::Position;
use evenkeel_message::Request;
use std::fmt;
use std::sync::Arc;

/// How the rules of a group go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logic {
    /// None may refuse and one must grant.
    All,
    /// One must grant.
    Any,
}

/// What a rule answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request may pass.
    Granted,
    /// It may not.
    Denied,
    /// It may not as long as nobody knows who the user is.
    DeniedWithoutUser,
    /// The rule has no objection.
    Neutral,
    /// The rule could not be asked.
    Failed,
}

impl Verdict {
    /// As the log has it (mod_authz_core.c: format_authz_result).
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Verdict::Granted => "granted",
            Verdict::Denied => "denied",
            Verdict::DeniedWithoutUser => "denied (no authenticated user yet)",
            Verdict::Neutral => "neutral",
            Verdict::Failed => "unknown",
        }
    }
}

/// A Require line, or a group of rules.
#[derive(Clone, Debug)]
pub enum Rule {
    /// `Require [not] provider arguments`.
    Ask {
        /// `not`.
        negate: bool,
        /// The provider's name as written.
        name: Box<str>,
        /// Its arguments as written.
        arguments: Box<str>,
        /// What is asked.
        provider: Provider,
        /// `<Limit>` around the line.
        limit: Option<Access>,
        /// Where the line stands.
        position: Position,
    },
    /// RequireAll, RequireAny, RequireNone.
    Group {
        /// RequireNone.
        negate: bool,
        /// How the rules go together.
        logic: Logic,
        /// The rules, in order.
        rules: Vec<Arc<Rule>>,
    },
    /// More merged groups within one another than can be asked.
    TooDeep,
}

impl Rule {
    /// The group that Require lines outside of all groups stand in.
    #[must_use]
    pub const fn any() -> Self {
        Rule::Group { negate: false, logic: Logic::Any, rules: Vec::new() }
    }

    /// The rules of two sections as one.
    #[must_use]
    pub fn both(logic: Logic, outer: &Rule, inner: &Rule) -> Self {
        let rules = vec![Arc::new(outer.clone()), Arc::new(inner.clone())];
        Rule::Group { negate: false, logic, rules }
    }

    /// Adds a rule to a group. A group of the same logic dissolves in it.
    ///
    /// # Errors
    /// Whether a negative rule would never count here.
    pub fn add(&mut self, rule: Rule) -> Result<(), HasNoEffect> {
        let Rule::Group { logic: own, rules: members, .. } = self else { return Ok(()) };
        if rule.is_negated() && *own == Logic::Any {
            return Err(HasNoEffect);
        }
        match rule {
            Rule::Group { negate: false, logic, rules } if logic == *own => members.extend(rules),
            rule => members.push(Arc::new(rule)),
        }
        Ok(())
    }

    /// Whether a group that is added to this one leaves its rules alone behind.
    #[must_use]
    pub fn dissolves(&self, rule: &Rule) -> bool {
        match (self, rule) {
            (Rule::Group { logic: own, .. }, Rule::Group { negate: false, logic, .. }) => {
                logic == own
            }
            _ => false,
        }
    }

    /// Whether it is `Require not` or RequireNone.
    #[must_use]
    pub const fn is_negated(&self) -> bool {
        match self {
            Rule::Ask { negate, .. } | Rule::Group { negate, .. } => *negate,
            Rule::TooDeep => false,
        }
    }

    /// Whether it is a group in which nothing stands.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Rule::Group { rules, .. } if rules.is_empty())
    }

    /// Whether it lets every request pass: `Require all granted` alone.
    #[must_use]
    pub fn grants_all(&self) -> bool {
        match self {
            Rule::Ask { negate, provider: Provider::All(granted), limit, .. } => {
                *granted && !negate && limit.is_none()
            }
            Rule::Group { negate: false, rules, .. } => {
                matches!(&**rules, [rule] if rule.grants_all())
            }
            _ => false,
        }
    }

    /// Whether nothing in the group can ever grant a request.
    #[must_use]
    pub fn only_refuses(&self) -> bool {
        match self {
            Rule::Ask { .. } | Rule::TooDeep => false,
            Rule::Group { rules, .. } => rules.iter().all(|rule| rule.is_negated()),
        }
    }

    /// Whether `<Limit>` leaves the rule, or any in its group, for this request's method.
    #[must_use]
    pub fn covers(&self, request: &Request) -> bool {
        match self {
            Rule::Ask { limit, .. } => limit.as_ref().is_none_or(|limit| limit.covers(request)),
            Rule::Group { rules, .. } => rules.iter().any(|rule| rule.covers(request)),
            Rule::TooDeep => true,
        }
    }

    /// The first Require line in the tree with its place.
    #[must_use]
    pub fn first_line(&self) -> Option<String> {
        match self {
            Rule::Ask { position, .. } => {
                Some(format!("{self} ({}:{})", position.file, position.line))
            }
            Rule::Group { rules, .. } => rules.iter().find_map(|rule| rule.first_line()),
            Rule::TooDeep => None,
        }
    }

    /// Calls `visit` with each provider in the tree.
    pub fn providers<'a>(&'a self, visit: &mut dyn FnMut(&'a Provider)) {
        match self {
            Rule::Ask { provider, .. } => visit(provider),
            Rule::Group { rules, .. } => rules.iter().for_each(|rule| rule.providers(visit)),
            Rule::TooDeep => {}
        }
    }
}

/// A negative rule stands where it can change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HasNoEffect;

impl fmt::Display for Rule {
    /// As the configuration has it (mod_authz_core.c: format_authz_command).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Ask { negate, name, arguments, .. } => {
                let not = if *negate { "not " } else { "" };
                write!(f, "Require {not}{name} {arguments}")
            }
            Rule::Group { negate, logic, .. } => f.write_str(match (logic, negate) {
                (Logic::All, false) => "<RequireAll>",
                (Logic::All, true) => "<RequireNotAll>",
                (Logic::Any, false) => "<RequireAny>",
                (Logic::Any, true) => "<RequireNone>",
            }),
            Rule::TooDeep => f.write_str("AuthMerging"),
        }
    }
}
