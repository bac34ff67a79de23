//! A compiled RewriteCond: its test string and its test. This file decides tests that need only the
//! test string; `test` decides the others.

use super::arguments::{self, Arguments};
use super::flags::number;
use super::template::Template;
use evenkeel_config::Position;
use evenkeel_expr::{Condition as Expression, Pattern};
use std::cmp::Ordering;

/// A compiled RewriteCond.
#[derive(Debug)]
pub struct Condition {
    /// The test string.
    pub(super) input: Template,
    /// The second argument as written in the configuration, for the log.
    pub(super) shown: Box<str>,
    /// The test of the test string.
    pub(super) test: Test,
    /// Whether the result of the test is negated.
    pub(super) is_negated: bool,
    pub(super) flags: ConditionFlags,
    pub(super) position: Position,
}

/// The flags of a RewriteCond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConditionFlags {
    /// NC: the comparison ignores case.
    pub no_case: bool,
    /// OR: the condition and the next one are alternatives.
    pub or_next: bool,
    /// NV: the condition adds no field to Vary.
    pub no_vary: bool,
}

/// The test of a condition, compiled.
#[derive(Debug)]
pub(super) enum Test {
    Pattern(Box<Pattern>),
    /// The test string is `expr`: an expression.
    Expression(Box<Expression>),
    /// `-f`, `-s`, `-l`, `-d` or `-x`: a test of a file.
    File(FileTest),
    /// `-U`: a subrequest for the URL succeeds.
    Url,
    /// `-F`: a subrequest for the file succeeds.
    AllowedFile,
    /// `<`, `<=`, `=`, `>=` and `>`: a comparison of texts.
    Text(Relation, Box<[u8]>),
    /// `-lt`, `-le`, `-eq`, `-ge` and `-gt`: a comparison of integers.
    Number(Relation, i32),
}

/// The property of a file that a condition tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileTest {
    /// `-f`: a regular file.
    Regular,
    /// `-s`: a regular file that is not empty.
    NotEmpty,
    /// `-l`, `-L`, `-h`: a symbolic link.
    Link,
    /// `-d`: a directory.
    Folder,
    /// `-x`: executable by the owner, the group or others.
    Executable,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

impl Relation {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Relation::Less => order.is_lt(),
            Relation::LessOrEqual => order.is_le(),
            Relation::Equal => order.is_eq(),
            Relation::GreaterOrEqual => order.is_ge(),
            Relation::Greater => order.is_gt(),
        }
    }
}

/// The kind of a test, before its text is compiled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pattern,
    Expression,
    File(FileTest),
    Url,
    AllowedFile,
    Text(Relation),
    Number(Relation),
}

impl Kind {
    /// Whether the test can ignore case (flag NC).
    pub(super) fn takes_no_case(&self) -> bool {
        matches!(self, Kind::Pattern | Kind::Text(_))
    }
}

/// The parts of a RewriteCond line, before they are compiled.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    pub input: &'a str,
    /// The second argument.
    pub shown: &'a str,
    pub kind: Kind,
    /// The pattern or the operand of the test, without its operator.
    pub text: &'a str,
    pub is_negated: bool,
    pub flags: ConditionFlags,
}

impl<'a> Parts<'a> {
    /// Parses a line.
    ///
    /// # Errors
    /// A description of the syntax error.
    pub(super) fn read(line: &'a str) -> Result<Self, String> {
        let Some(Arguments { first, second, third }) = Arguments::split(line) else {
            return Err(format!("bad argument line '{line}'"));
        };
        let flags = third.map(read_flags).transpose()?.unwrap_or_default();
        let (is_negated, text) = match second.strip_prefix('!') {
            Some(text) => (true, text),
            None => (false, second),
        };
        let (kind, text, is_turned) = match first.eq_ignore_ascii_case("expr") {
            true => (Kind::Expression, text, false),
            false => kind_of(text),
        };
        let is_negated = is_negated != is_turned;
        Ok(Self { input: first, shown: second, kind, text, is_negated, flags })
    }
}

fn read_flags(field: &str) -> Result<ConditionFlags, String> {
    let mut flags = ConditionFlags::default();
    for (name, _) in arguments::flags(field)? {
        match name.to_ascii_lowercase().as_str() {
            "nc" | "nocase" => flags.no_case = true,
            "or" | "ornext" => flags.or_next = true,
            "nv" | "novary" => flags.no_vary = true,
            _ => return Err(format!("unknown flag '{name}'")),
        }
    }
    Ok(flags)
}

/// Returns the kind of a test, its operand, and whether the operator negates the test (`-ne`).
fn kind_of(text: &str) -> (Kind, &str, bool) {
    let rest = |length: usize| text.get(length..).unwrap_or_default();
    let plain = (Kind::Pattern, text, false);
    match text.as_bytes() {
        [b'-', letter] => {
            let kind = match letter {
                b'f' => Kind::File(FileTest::Regular),
                b's' => Kind::File(FileTest::NotEmpty),
                b'd' => Kind::File(FileTest::Folder),
                b'x' => Kind::File(FileTest::Executable),
                b'h' | b'l' | b'L' => Kind::File(FileTest::Link),
                b'U' => Kind::Url,
                b'F' => Kind::AllowedFile,
                _ => return plain,
            };
            (kind, text, false)
        }
        [b'-', first, second, _, ..] => {
            let (relation, is_turned) = match [*first, *second] {
                [b'l', b't'] => (Relation::Less, false),
                [b'l', b'e'] => (Relation::LessOrEqual, false),
                [b'e', b'q'] => (Relation::Equal, false),
                [b'g', b'e'] => (Relation::GreaterOrEqual, false),
                [b'g', b't'] => (Relation::Greater, false),
                [b'n', b'e'] => (Relation::Equal, true),
                _ => return plain,
            };
            (Kind::Number(relation), rest(3), is_turned)
        }
        [b'>', b'=', ..] => (Kind::Text(Relation::GreaterOrEqual), rest(2), false),
        [b'>', _, ..] => (Kind::Text(Relation::Greater), rest(1), false),
        [b'<', b'=', ..] => (Kind::Text(Relation::LessOrEqual), rest(2), false),
        [b'<', _, ..] => (Kind::Text(Relation::Less), rest(1), false),
        // Two quotes stand for an empty text.
        [b'=', b'"', b'"'] => (Kind::Text(Relation::Equal), "", false),
        [b'=', _, ..] => (Kind::Text(Relation::Equal), rest(1), false),
        _ => plain,
    }
}

/// Whether `relation` holds between two texts. If case matters, a longer text is greater than a
/// shorter one (mod_rewrite.c: compare_lexicography).
pub(super) fn relates(relation: Relation, input: &[u8], wanted: &[u8], no_case: bool) -> bool {
    let order = match no_case {
        true => input.to_ascii_lowercase().cmp(&wanted.to_ascii_lowercase()),
        false => input.len().cmp(&wanted.len()).then_with(|| input.cmp(wanted)),
    };
    relation.holds(order)
}

/// Whether `relation` holds between the number at the beginning of a text and `wanted`.
pub(super) fn counts(relation: Relation, input: &[u8], wanted: i32) -> bool {
    relation.holds(number(input).cmp(&wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_by_their_signs() {
        let kind = |text: &'static str| {
            let line = format!("x {text}");
            let parts = Parts::read(&line).unwrap();
            (parts.kind, parts.text.to_owned(), parts.is_negated)
        };
        let text = |relation| Kind::Text(relation);
        for (pattern, expected, rest, is_negated) in [
            ("-f", Kind::File(FileTest::Regular), "-f", false),
            ("!-d", Kind::File(FileTest::Folder), "-d", true),
            ("-L", Kind::File(FileTest::Link), "-L", false),
            ("-U", Kind::Url, "-U", false),
            ("-F", Kind::AllowedFile, "-F", false),
            ("-z", Kind::Pattern, "-z", false),
            ("-eq", Kind::Pattern, "-eq", false),
            ("-eq5", Kind::Number(Relation::Equal), "5", false),
            ("-ne5", Kind::Number(Relation::Equal), "5", true),
            ("!-ne5", Kind::Number(Relation::Equal), "5", false),
            ("-lt10", Kind::Number(Relation::Less), "10", false),
            (">=b", text(Relation::GreaterOrEqual), "b", false),
            ("<b", text(Relation::Less), "b", false),
            (">", Kind::Pattern, ">", false),
            ("=\"\"", text(Relation::Equal), "", false),
            ("=a", text(Relation::Equal), "a", false),
            ("^a$", Kind::Pattern, "^a$", false),
        ] {
            assert_eq!(kind(pattern), (expected, rest.to_owned(), is_negated), "{pattern}");
        }
        assert_eq!(Parts::read("expr \"true\"").unwrap().kind, Kind::Expression);
    }

    #[test]
    fn lines_are_refused_in_apaches_words() {
        let refused = |line: &str| Parts::read(line).err().unwrap_or_default();
        assert_eq!(refused("%{X}"), "bad argument line '%{X}'");
        assert_eq!(refused("%{X} y [L]"), "unknown flag 'L'");
        assert_eq!(refused("%{X} y NC"), "bad flag delimiters");
        assert_eq!(refused("%{X} y [NC,ornext,novary]"), "");
    }

    #[test]
    fn the_longer_text_is_the_greater_unless_case_is_ignored() {
        let relates = |relation, input: &str, wanted: &str, no_case| {
            super::relates(relation, input.as_bytes(), wanted.as_bytes(), no_case)
        };
        assert!(relates(Relation::Greater, "aa", "b", false));
        assert!(relates(Relation::Less, "AA", "b", true));
        assert!(relates(Relation::Equal, "Ab", "aB", true));
        assert!(!relates(Relation::Equal, "Ab", "aB", false));
        assert!(relates(Relation::LessOrEqual, "a", "a", false));
        assert!(counts(Relation::GreaterOrEqual, b"12x", 12) && counts(Relation::Less, b"x", 1));
    }
}
