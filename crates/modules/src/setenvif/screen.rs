//! Rules in a row that look at the same attribute: where each of them waits for a text, one search
//! for all texts tells that none of them holds, which is so for nearly all requests. A list of
//! rules goes in, its groups come out.

use super::rule::{Rule, Test};
use aho_corasick::packed::Searcher;
use evenkeel_message::Request;
use std::ops::Range;
use std::sync::Arc;

/// Rules that follow one another.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Where they stand in the list.
    pub(super) rules: Range<usize>,
    /// Finds the texts of which the value of their attribute must hold one; none where a rule may
    /// hold without any.
    texts: Option<Searcher>,
}

impl Group {
    /// The groups of a list of rules.
    pub(super) fn all(rules: &[Arc<Rule>]) -> Vec<Self> {
        let mut end = 0;
        let runs = rules.chunk_by(|one, next| are_alike(one, next));
        let group = |run: &[Arc<Rule>]| {
            let start = end;
            end += run.len();
            // A rule alone looks for its text itself.
            let texts = (run.len() > 1).then(|| run.iter().map(|rule| rule.text()).collect());
            let texts: Option<Vec<&[u8]>> = texts.flatten();
            Self { rules: start..end, texts: texts.and_then(Searcher::new) }
        };
        runs.map(group).collect()
    }

    /// Whether one of the group's rules may hold for a request that has just come.
    pub(super) fn may_hold(&self, rules: &[Arc<Rule>], request: &Request) -> bool {
        let (Some(texts), Some(first)) = (&self.texts, rules.first()) else { return true };
        let Test::Attribute(attribute, _) = &first.test else { return true };
        attribute.value(request, true).map_or(true, |value| texts.find(&value).is_some())
    }
}

/// Whether two rules look at the same attribute, and both or neither wait for a text.
fn are_alike(one: &Rule, other: &Rule) -> bool {
    match (&one.test, &other.test) {
        (Test::Attribute(one_looks, _), Test::Attribute(other_looks, _)) => {
            one_looks.is_same(other_looks) && one.text().is_some() == other.text().is_some()
        }
        _ => false,
    }
}
