//! The tree of rules: Require lines and their containers. This file builds and prints the tree;
//! `Inquiry` evaluates it.

use super::Provider;
use crate::Access;
use crate::core::cited;
use evenkeel_config::Position;
use evenkeel_message::{Lists, Request};
use std::fmt;
use std::sync::Arc;

/// The long lists of rules in use.
static LISTS: Lists<Rule> = Lists::new();

/// The fewest rules of a list that is shared with equal ones. For few rules the look-up costs more
/// than their memory.
const LEAST_SHARED: usize = 32;

/// How the verdicts of a group's rules are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logic {
    /// No rule may deny, and at least one must grant.
    All,
    /// At least one rule must grant.
    Any,
}

/// The result of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The rule grants access.
    Granted,
    /// The rule denies access.
    Denied,
    /// The rule denies access because the user is not authenticated yet.
    DeniedWithoutUser,
    /// The rule neither grants nor denies access.
    Neutral,
    /// The rule could not be evaluated, or waits for a look-up.
    Failed,
}

impl Verdict {
    /// The text in the error log (mod_authz_core.c: format_authz_result).
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
        /// Whether the line has `not`.
        negate: bool,
        /// The provider's name, as written in the configuration.
        name: Box<str>,
        /// The provider's arguments, as written in the configuration.
        arguments: Box<str>,
        /// The provider with the compiled arguments.
        provider: Provider,
        /// The enclosing `<Limit>` or `<LimitExcept>`.
        limit: Option<Access>,
        /// The file and the number of the line.
        position: Position,
    },
    /// RequireAll, RequireAny, RequireNone.
    Group {
        /// Whether it is RequireNone.
        negate: bool,
        /// How the verdicts of the rules are combined.
        logic: Logic,
        /// Whether AuthMerging has made the group.
        is_merged: bool,
        /// The rules, in order. Merged sections share them.
        rules: Arc<Vec<Arc<Rule>>>,
    },
    /// Replaces merged groups that are nested too deeply to be evaluated.
    TooDeep,
}

impl Rule {
    /// The empty group for the Require lines outside of all containers.
    #[must_use]
    pub fn any() -> Self {
        Self::group(Logic::Any, false)
    }

    /// An empty group of a container.
    #[must_use]
    pub fn group(logic: Logic, negate: bool) -> Self {
        Rule::Group { negate, logic, is_merged: false, rules: Arc::default() }
    }

    /// Joins the rules of two sections in one group (AuthMerging).
    #[must_use]
    pub fn both(logic: Logic, outer: &Rule, inner: &Rule) -> Self {
        let rules = vec![Arc::new(outer.clone()), Arc::new(inner.clone())];
        Rule::Group { negate: false, logic, is_merged: true, rules: Arc::new(rules) }
    }

    /// Lets a group with many rules share its list with equal ones, once it is complete.
    pub fn share(&mut self) {
        if let Rule::Group { rules, .. } = self
            && rules.len() >= LEAST_SHARED
        {
            LISTS.share(rules);
        }
    }

    /// Adds a rule to a group. If the rule is itself a group of the same logic, its members are
    /// added instead.
    ///
    /// # Errors
    /// The rule is negated and the group needs only one rule that grants, so that the rule would
    /// have no effect.
    pub fn add(&mut self, rule: Arc<Rule>) -> Result<(), HasNoEffect> {
        let Rule::Group { logic: own, rules: members, .. } = self else { return Ok(()) };
        if rule.is_negated() && *own == Logic::Any {
            return Err(HasNoEffect);
        }
        match &*rule {
            Rule::Group { negate: false, logic, rules, .. } if logic == own => {
                Arc::make_mut(members).extend_from_slice(rules);
            }
            _ => Arc::make_mut(members).push(rule),
        }
        Ok(())
    }

    /// Whether [`Rule::add`] adds the members of `rule` instead of `rule`.
    #[must_use]
    pub fn dissolves(&self, rule: &Rule) -> bool {
        match (self, rule) {
            (Rule::Group { logic: own, .. }, Rule::Group { negate: false, logic, .. }) => {
                logic == own
            }
            _ => false,
        }
    }

    /// Whether the rule is `Require not` or RequireNone.
    #[must_use]
    pub const fn is_negated(&self) -> bool {
        match self {
            Rule::Ask { negate, .. } | Rule::Group { negate, .. } => *negate,
            Rule::TooDeep => false,
        }
    }

    /// Whether the rule is a group without members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Rule::Group { rules, .. } if rules.is_empty())
    }

    /// Whether the rule is `Require all granted`, or a group of only that rule.
    #[must_use]
    pub fn grants_all(&self) -> bool {
        match self {
            Rule::Ask { negate, provider: Provider::All(granted), limit, .. } => {
                *granted && !negate && limit.is_none()
            }
            Rule::Group { negate: false, rules, .. } => {
                matches!(&***rules, [rule] if rule.grants_all())
            }
            _ => false,
        }
    }

    /// Whether the rule is a group of negated rules only, which cannot grant a request.
    #[must_use]
    pub fn only_refuses(&self) -> bool {
        match self {
            Rule::Ask { .. } | Rule::TooDeep => false,
            Rule::Group { rules, .. } => rules.iter().all(|rule| rule.is_negated()),
        }
    }

    /// Whether the rule, or any rule of the group, applies to the request's method (`<Limit>`).
    #[must_use]
    pub fn covers(&self, request: &Request) -> bool {
        match self {
            Rule::Ask { limit, .. } => limit.as_ref().is_none_or(|limit| limit.covers(request)),
            Rule::Group { rules, .. } => rules.iter().any(|rule| rule.covers(request)),
            Rule::TooDeep => true,
        }
    }

    /// The Require line with its file and line number. `None` for a group.
    #[must_use]
    pub fn cited(&self) -> Option<String> {
        match self {
            Rule::Ask { position, .. } => Some(cited(&self.to_string(), position)),
            Rule::Group { .. } | Rule::TooDeep => None,
        }
    }

    /// Calls `visit` with each Require line in the tree.
    pub fn lines<'a>(&'a self, visit: &mut dyn FnMut(&'a Rule)) {
        match self {
            Rule::Ask { .. } => visit(self),
            Rule::Group { rules, .. } => rules.iter().for_each(|rule| rule.lines(visit)),
            Rule::TooDeep => {}
        }
    }
}

/// The error about a negated rule that has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HasNoEffect;

impl fmt::Display for Rule {
    /// The directive as in the configuration (mod_authz_core.c: format_authz_command).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Ask { negate, name, arguments, .. } => {
                let not = if *negate { "not " } else { "" };
                write!(f, "Require {not}{name} {arguments}")
            }
            Rule::Group { logic: Logic::All, is_merged: true, .. } => {
                f.write_str("AuthMerging All")
            }
            Rule::Group { logic: Logic::Any, is_merged: true, .. } => {
                f.write_str("AuthMerging Any")
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
