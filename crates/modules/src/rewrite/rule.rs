//! A compiled RewriteRule: pattern, conditions, substitution and flags.

use super::condition::Condition;
use super::flags::Flags;
use super::template::Template;
use evenkeel_config::Position;
use evenkeel_expr::Pattern;
use std::sync::Arc;

/// A RewriteRule with the RewriteCond lines before it.
#[derive(Debug)]
pub struct Rule {
    pub(super) pattern: Pattern,
    /// Whether the pattern is negated.
    pub(super) is_negated: bool,
    pub(super) conditions: Vec<Arc<Condition>>,
    /// The substitution.
    pub(super) output: Template,
    /// The substitution as written in the configuration.
    pub(super) written: Box<[u8]>,
    /// Whether the rule leaves the path as it is: the substitution is `-`, or the rule sets the
    /// status of the response.
    pub(super) no_substitution: bool,
    pub(super) query: Query,
    pub(super) flags: Flags,
    pub(super) position: Position,
}

/// How a rule treats the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// Whether the query is discarded, even if a group contains a question mark: the substitution
    /// ends in `?`, or the rule has QSD and a substitution without `?`.
    pub is_none: bool,
    /// Whether the last question mark begins the query (QSL) instead of the first one.
    pub is_after_last: bool,
}

impl Query {
    /// Returns the treatment of the query, and the substitution without a question mark at its end
    /// that discards the query (mod_rewrite.c: cmd_rewriterule).
    pub(super) fn of<'a>(output: &'a str, flags: &Flags) -> (Self, &'a str) {
        let is_after_last = flags.last_question_mark;
        match output.strip_suffix('?') {
            Some(_) if flags.append_query => (Self { is_none: false, is_after_last: true }, output),
            Some(before) => (Self { is_none: true, is_after_last }, before),
            None => {
                let is_none = flags.discard_query && !output.contains('?');
                (Self { is_none, is_after_last }, output)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_mark_at_the_end_leaves_no_query() {
        let query = |output, field| {
            let (query, output) = Query::of(output, &Flags::parse(field).unwrap());
            (query.is_none, query.is_after_last, output)
        };
        assert_eq!(query("/a?", "[L]"), (true, false, "/a"));
        assert_eq!(query("/a?", "[QSA]"), (false, true, "/a?"));
        assert_eq!(query("/a?b", "[QSD]"), (false, false, "/a?b"));
        assert_eq!(query("/a", "[QSD]"), (true, false, "/a"));
        assert_eq!(query("/a", "[QSL]"), (false, true, "/a"));
        assert_eq!(query("", "[L]"), (false, false, ""));
    }
}
