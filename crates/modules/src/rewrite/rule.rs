//! RewriteRule as it is compiled: pattern, conditions, substitution and flags.

use super::condition::Condition;
use super::flags::Flags;
use super::template::Template;
use evenkeel_config::Position;
use evenkeel_expr::Pattern;
use std::sync::Arc;

/// A RewriteRule with the conditions before it.
#[derive(Debug)]
pub struct Rule {
    pub(super) pattern: Pattern,
    /// Whether the pattern must not match.
    pub(super) is_negated: bool,
    pub(super) conditions: Vec<Arc<Condition>>,
    /// What takes the place of the path.
    pub(super) output: Template,
    /// The same as it was written.
    pub(super) written: Box<[u8]>,
    /// Whether nothing takes its place: the substitution is `-`, or a status is the answer.
    pub(super) no_substitution: bool,
    pub(super) query: Query,
    pub(super) flags: Flags,
    pub(super) position: Position,
}

/// What becomes of the query of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// A question mark that ends the substitution, or QSD without one in it: there is none
    /// afterwards, whatever a group holds.
    pub is_none: bool,
    /// QSL: the last question mark begins it.
    pub is_after_last: bool,
}

impl Query {
    /// What a substitution and its flags say of the query, and the substitution without the
    /// question mark that ends it (mod_rewrite.c: cmd_rewriterule).
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
