//! Groups of consecutive rules that test an attribute for a text each. One search for all texts in
//! each attribute shows that no rule of a group holds, which is so for nearly all requests.

use super::rule::{Rule, Test};
use aho_corasick::packed::Searcher;
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use evenkeel_message::{Interner, Request};
use std::ops::Range;
use std::sync::Arc;

/// The groups of a list of rules. Equal lists of the process share them.
#[derive(Debug)]
pub(super) struct Groups {
    groups: Vec<Group>,
    /// Keeps the rules alive, so that their addresses identify the list.
    _rules: Box<[Arc<Rule>]>,
}

/// The groups in use, by the addresses of the rules.
static GROUPS: Interner<Box<[usize]>, Groups> = Interner::new();

/// Rules that follow one another.
#[derive(Debug)]
struct Group {
    /// Where they stand in the list.
    rules: Range<usize>,
    /// A rule of each attribute, and the texts that the rules with this attribute test it for.
    /// Empty if a rule may hold without any text.
    texts: Vec<(Arc<Rule>, Texts)>,
}

/// A search for the texts of which the value of the attribute contains one if a rule holds.
#[derive(Debug)]
enum Texts {
    /// Few texts, all of them case-sensitive.
    Few(Searcher),
    /// Any number of texts. Case is ignored if one of the rules ignores it.
    Many(AhoCorasick),
}

impl Groups {
    /// The groups of a list of rules.
    pub(super) fn of(rules: &[Arc<Rule>]) -> Arc<Self> {
        let addresses = rules.iter().map(|rule| Arc::as_ptr(rule) as usize).collect();
        let make = |_: &_| {
            let mut end = 0;
            let runs = rules.chunk_by(|one, next| are_alike(one, next));
            let group = |run: &[Arc<Rule>]| {
                let start = end;
                end += run.len();
                // A rule alone searches for its text itself.
                let texts = if run.len() > 1 { Texts::by_attribute(run) } else { None };
                Group { rules: start..end, texts: texts.unwrap_or_default() }
            };
            let groups = runs.map(group).collect();
            Self { groups, _rules: rules.into() }
        };
        GROUPS.value(addresses, make)
    }

    /// The places of the groups and their searches. A rule that holds may change what the next
    /// groups test, so `may_hold` must be called for one group after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Range<usize>, Screen<'_>)> {
        self.groups.iter().map(|group| (group.rules.clone(), Screen(&group.texts)))
    }
}

/// The searches of one group.
pub(super) struct Screen<'g>(&'g [(Arc<Rule>, Texts)]);

impl Screen<'_> {
    /// Whether one of the group's rules may hold for a request as it is now.
    pub(super) fn may_hold(&self, request: &Request, is_early: bool) -> bool {
        let may_hold = |(rule, texts): &(Arc<Rule>, Texts)| match &rule.test {
            Test::Attribute(attribute, _) => {
                attribute.value(request, is_early).map_or(true, |value| texts.are_in(&value))
            }
            Test::Condition(_) => true,
        };
        self.0.is_empty() || self.0.iter().any(may_hold)
    }
}

impl Texts {
    /// The texts of a group, by attribute. `None` if a rule has no text.
    fn by_attribute(rules: &[Arc<Rule>]) -> Option<Vec<(Arc<Rule>, Self)>> {
        let mut by_attribute: Vec<Vec<Arc<Rule>>> = Vec::new();
        for rule in rules {
            let is_same = |of: &&mut Vec<Arc<Rule>>| of.first().is_some_and(|it| it.tests_as(rule));
            match by_attribute.iter_mut().find(is_same) {
                Some(of) => of.push(Arc::clone(rule)),
                None => by_attribute.push(vec![Arc::clone(rule)]),
            }
        }
        let texts = |rules: &Vec<Arc<Rule>>| Some((Arc::clone(rules.first()?), Self::of(rules)?));
        by_attribute.iter().map(texts).collect()
    }

    /// The texts of rules with one attribute.
    fn of(rules: &[Arc<Rule>]) -> Option<Self> {
        let texts: Option<Vec<_>> = rules.iter().map(|rule| rule.text()).collect();
        let texts = texts?;
        let ignore_case = texts.iter().any(|(_, ignore_case)| *ignore_case);
        let texts = texts.into_iter().map(|(text, _)| text);
        let few = (!ignore_case).then(|| Searcher::new(texts.clone())).flatten();
        few.map(Self::Few).or_else(|| {
            let mut builder = AhoCorasick::builder();
            let builder = builder.ascii_case_insensitive(ignore_case);
            let builder = builder.kind(Some(AhoCorasickKind::ContiguousNFA));
            builder.build(texts).ok().map(Self::Many)
        })
    }

    fn are_in(&self, value: &[u8]) -> bool {
        match self {
            Self::Few(searcher) => searcher.find(value).is_some(),
            Self::Many(automaton) => automaton.is_match(value),
        }
    }
}

/// Whether both or neither of two rules search for a text.
fn are_alike(one: &Rule, other: &Rule) -> bool {
    one.text().is_some() == other.text().is_some()
}
