//! Finds the text that every matching subject must contain when a pattern is compiled. Most
//! subjects do not contain it, so that the pattern itself rarely runs. A pattern that this file
//! does not understand has no such text and always runs.

use crate::anchor::{Walk, has_branches, has_options};
use crate::pattern::SPENT;
use evenkeel_message::Allowance;
use memchr::memmem::Finder;
use std::cell::OnceCell;
use std::fmt;

/// The deepest nesting of groups whose texts are searched for.
const DEPTH: usize = 4;

/// The minimum cost of searching a subject, in steps of the request's allowance.
pub(crate) const LEAST: u64 = 64;

/// A subject for several searches. Its lower-case form is made once for all of them.
#[derive(Debug)]
pub struct Subject<'a> {
    text: &'a [u8],
    lower: OnceCell<Vec<u8>>,
}

impl<'a> Subject<'a> {
    /// A subject with that text.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, lower: OnceCell::new() }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    fn lower(&self) -> &[u8] {
        self.lower.get_or_init(|| self.text.to_ascii_lowercase())
    }
}

/// The request has used up its steps for patterns and expressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent;

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SPENT)
    }
}

/// A text to search for in subjects.
#[derive(Debug)]
pub struct Part {
    /// The search; in lower case if case is ignored.
    finder: Box<Finder<'static>>,
    ignore_case: bool,
}

impl Part {
    /// Prepares the search for `text`.
    #[must_use]
    pub fn new(text: &[u8], ignore_case: bool) -> Self {
        let finder = match ignore_case {
            true => Finder::new(&text.to_ascii_lowercase()).into_owned(),
            false => Finder::new(text).into_owned(),
        };
        Self { finder: Box::new(finder), ignore_case }
    }

    /// The text, in lower case if case is ignored, and whether it is.
    #[must_use]
    pub fn text(&self) -> (&[u8], bool) {
        (self.finder.needle(), self.ignore_case)
    }

    /// Whether a request's subject contains the text. The search takes steps from the request.
    ///
    /// # Errors
    ///
    /// The request has no steps left.
    pub fn is_within(&self, allowance: &Allowance, subject: &Subject<'_>) -> Result<bool, Spent> {
        let text = match self.ignore_case {
            true => subject.lower(),
            false => subject.text,
        };
        if allowance.is_spent() || !allowance.spend(LEAST + text.len() as u64) {
            return Err(Spent);
        }
        Ok(self.finder.find(text).is_some())
    }

    /// Whether the subject contains the text. The time is proportional to the length of the
    /// subject.
    #[must_use]
    pub fn is_in(&self, subject: &[u8]) -> bool {
        if subject.len() < self.finder.needle().len() {
            return false;
        }
        match self.ignore_case {
            true => self.finder.find(&subject.to_ascii_lowercase()).is_some(),
            false => self.finder.find(subject).is_some(),
        }
    }
}

/// The texts that every matching subject contains.
#[derive(Debug)]
pub(crate) struct Literal {
    /// The beginning of the subject; in lower case if case is ignored.
    prefix: Box<[u8]>,
    ignore_case: bool,
    /// A text somewhere in the subject.
    part: Option<Part>,
    /// Whether every subject that contains these texts matches.
    is_all: bool,
}

impl Literal {
    /// The literal texts of a pattern without start items and without the option EXTENDED.
    pub(crate) fn of(pattern: &str, ignore_case: bool) -> Option<Self> {
        let (pattern, ignore_case) = match pattern.strip_prefix("(?i)") {
            Some(rest) => (rest, true),
            None => (pattern.strip_prefix("(?s)").unwrap_or(pattern), ignore_case),
        };
        // Quoting marks and verbs change the meaning of what follows, wherever they stand.
        let is_strange = ["(*", "\\Q", "\\E"].iter().any(|text| pattern.contains(text));
        if is_strange || has_options(pattern) || has_branches(pattern) {
            return None;
        }
        let runs = Runs::read(pattern.strip_prefix('^').unwrap_or(pattern), ignore_case, 0);
        let is_anchored = pattern.starts_with('^');
        let Runs { first, mut longest, is_all } = runs;
        let prefix = match is_anchored {
            true if ignore_case => first.to_ascii_lowercase(),
            true => first,
            false => {
                longest = if first.len() >= longest.len() { first } else { longest };
                Vec::new()
            }
        };
        let part = (!longest.is_empty()).then(|| Part::new(&longest, ignore_case));
        let has_text = !prefix.is_empty() || part.is_some() || is_all;
        has_text.then(|| Self { prefix: prefix.into(), ignore_case, part, is_all })
    }

    /// The longest text that every matching subject contains, in lower case if case is ignored, and
    /// whether it is.
    pub(crate) fn text(&self) -> Option<(&[u8], bool)> {
        let part = self.part.as_ref().map(|part| part.text().0).unwrap_or_default();
        let longer = if part.len() > self.prefix.len() { part } else { &*self.prefix };
        Some((longer, self.ignore_case))
    }

    /// Whether the subject matches, if the literal texts decide it.
    pub(crate) fn decide(&self, subject: &[u8]) -> Option<bool> {
        let begins = match (subject.get(..self.prefix.len()), self.ignore_case) {
            (None, _) => false,
            (Some(start), true) => start.eq_ignore_ascii_case(&self.prefix),
            (Some(start), false) => *start == *self.prefix,
        };
        if !begins || self.part.as_ref().is_some_and(|part| !part.is_in(subject)) {
            return Some(false);
        }
        self.is_all.then_some(true)
    }
}

/// The runs of letters that every match contains.
#[derive(Default)]
struct Runs {
    /// The run at the beginning of the pattern; empty if the pattern begins with something else.
    first: Vec<u8>,
    /// The longest of the other runs.
    longest: Vec<u8>,
    /// Whether the pattern consists of the first run only.
    is_all: bool,
}

/// One element of a pattern, with the length of its text.
enum Atom {
    Letter(usize, char),
    /// A class, a group or an assertion.
    Other(usize),
    /// Something after which the rest may mean anything.
    Unknown,
}

/// How often an element occurs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    Once,
    /// At least once.
    Some,
    /// Any number of times, including none.
    Any,
}

impl Runs {
    fn read(pattern: &str, ignore_case: bool, depth: usize) -> Self {
        let mut runs = Self::default();
        let (mut rest, mut run) = (pattern, Vec::new());
        let (mut is_first, mut is_all) = (true, true);
        while !rest.is_empty() {
            let whole = rest;
            let (length, letter) = match atom(rest, ignore_case) {
                Atom::Letter(length, letter) => (length, Some(letter)),
                Atom::Other(length) => (length, None),
                Atom::Unknown => {
                    is_all = false;
                    break;
                }
            };
            rest = rest.get(length..).unwrap_or_default();
            let (times, length) = quantifier(rest);
            rest = rest.get(length..).unwrap_or_default();
            if let Some(letter) = letter.filter(|_| times != Times::Any) {
                run.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
            if letter.is_none() || times != Times::Once {
                is_all = false;
                runs.end(&mut run, std::mem::take(&mut is_first));
            }
            if letter.is_none() && times != Times::Any {
                let group = whole.get(..whole.len() - rest.len()).unwrap_or_default();
                runs.enter(group, ignore_case, depth);
            }
        }
        runs.end(&mut run, is_first);
        Self { is_all, ..runs }
    }

    /// Adds the runs in a group that every match passes, unless it has branches.
    fn enter(&mut self, element: &str, ignore_case: bool, depth: usize) {
        let inner = element.strip_prefix('(').filter(|_| depth < DEPTH);
        let inner = inner.map(|inner| inner.strip_prefix("?:").unwrap_or(inner));
        let inner = inner.and_then(|inner| inner.get(..inner.rfind(')')?));
        let plain = inner.filter(|inner| !inner.starts_with('?') && !has_branches(inner));
        if let Some(inner) = plain {
            let Self { first, longest, .. } = Self::read(inner, ignore_case, depth + 1);
            for mut run in [first, longest] {
                self.end(&mut run, false);
            }
        }
    }

    fn end(&mut self, run: &mut Vec<u8>, is_first: bool) {
        if is_first {
            self.first.clone_from(run);
        } else if run.len() > self.longest.len() {
            self.longest.clone_from(run);
        }
        run.clear();
    }
}

/// The element at the beginning of a text.
fn atom(text: &str, ignore_case: bool) -> Atom {
    let mut letters = text.chars();
    let (first, second) = (letters.next(), letters.next());
    match (first, second) {
        (Some('\\'), Some(escaped)) if "dDwWsSbBhHvVAzZRX".contains(escaped) => Atom::Other(2),
        (Some('\\'), Some(escaped)) if escaped.is_ascii_punctuation() => Atom::Letter(2, escaped),
        (Some('\\' | '*' | '+' | '?' | ')') | None, _) => Atom::Unknown,
        (Some('{'), _) if quantifier(text).0 != Times::Once => Atom::Unknown,
        (Some('(' | '['), _) => Atom::Other(Walk::new(text).pass_whole()),
        (Some('.' | '^' | '$' | '{'), _) => Atom::Other(1),
        // A quantifier applies to the last of several bytes.
        (Some(other), _) if other.is_ascii() || !ignore_case => {
            Atom::Letter(other.len_utf8(), other)
        }
        (Some(other), _) => Atom::Other(other.len_utf8()),
    }
}

/// How often the element before a text occurs, and the length of the quantifier.
fn quantifier(text: &str) -> (Times, usize) {
    let (times, length) = match text.as_bytes().first() {
        Some(b'*' | b'?') => (Times::Any, 1),
        Some(b'+') => (Times::Some, 1),
        Some(b'{') => match text.find('}') {
            Some(end) if is_count(text.get(1..end).unwrap_or_default()) => (Times::Any, end + 1),
            _ => return (Times::Once, 0),
        },
        _ => return (Times::Once, 0),
    };
    // A lazy or possessive quantifier.
    let more = matches!(text.as_bytes().get(length), Some(b'?' | b'+'));
    (times, length + usize::from(more))
}

/// Whether text in braces may be a quantifier. Mistaking a literal text for one does no harm.
fn is_count(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b' ' | b'\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_look_for_a_part_is_paid_for() {
        let (allowance, subject) = (Allowance::default(), Subject::new(b"Some Browser"));
        let part = |text: &[u8], ignore_case| Part::new(text, ignore_case);
        let before = allowance.left();
        assert_eq!(part(b"browser", true).is_within(&allowance, &subject), Ok(true));
        assert_eq!(part(b"browser", false).is_within(&allowance, &subject), Ok(false));
        let paid = u64::from(before - allowance.left());
        assert_eq!(paid, 2 * (LEAST + subject.text().len() as u64));
        assert!(allowance.spend(u64::from(allowance.left())));
        assert_eq!(part(b"browser", true).is_within(&allowance, &subject), Err(Spent));
    }
    use crate::{Pattern, PatternOptions};
    use proptest::prelude::*;

    /// `^` and the first run, if any; the longest run, if it is another one; `=` if these are
    /// everything.
    fn told(pattern: &str) -> Option<String> {
        let literal = Literal::of(pattern, false)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let part = literal.part.map(|part| text(part.finder.needle())).unwrap_or_default();
        let end = if literal.is_all { "=" } else { "" };
        Some(format!("{}|{part}{end}", text(&literal.prefix)))
    }

    #[test]
    fn required_texts_are_found() {
        for (pattern, expected) in [
            ("^gvfs/1", "gvfs/1|="),
            ("^WebDAVFS/1\\.[012]", "WebDAVFS/1.|"),
            ("MSIE 4\\.0b2;", "|MSIE 4.0b2;="),
            ("ab*cc+de?", "|cc"),
            ("ab+cd", "|ab"),
            ("^a(b|c)def$", "a|def"),
            ("^/x/(.*)\\.php$", "/x/|.php"),
            ("a{2}bc{2,}", "|b"),
            ("a{x}b", "|x}b"),
            ("^", "|="),
            ("", "|="),
            ("x\\dabc\\x41zzzzz", "|abc"),
            ("[a]]b", "|]b"),
            ("(?i)^a", "a|="),
            ("é+a", "|é"),
            ("^(?:x)y*+ab", "|ab"),
            ("^(.*?)(\\b360Spider\\b)(.*)$", "|360Spider"),
            ("x(?:yy(zzz)+)", "|zzz"),
            ("x(yy(zzz)?)+", "|yy"),
            ("x(yy(z|zz))", "|yy"),
            ("x(?=yy)(?!yy)(?<!yy)", "|x"),
            ("x(yy)*", "|x"),
        ] {
            assert_eq!(told(pattern).as_deref(), Some(expected), "{pattern}");
        }
        for pattern in
            ["a|b", "a(?i)b", "\\Qa*\\Eb", "ab\\E*", "(*ACCEPT)a", "(a|b)", ".*", "(?#x)a", "\\Ka"]
        {
            assert_eq!(told(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn case_is_ignored_where_the_pattern_does() {
        let literal = Literal::of("^aB.*Cd", true).unwrap();
        assert_eq!(literal.decide(b"Ab--cD"), None);
        assert_eq!(literal.decide(b"Ab--c"), Some(false));
        assert_eq!(literal.decide(b"-ab--cd"), Some(false));
        assert_eq!(Literal::of("a", true).unwrap().decide(b"-A"), Some(true));
        // Without (*UTF), letters outside ASCII have no case.
        assert_eq!(told("(?i)É"), None);
    }

    /// Texts that resemble patterns: special elements in any order.
    fn pattern_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            6 => prop::sample::select(vec!["a", "b", "A", "ab", "\\.", "é", " "]),
            3 => prop::sample::select(vec!["*", "+", "?", "{2}", "{0,1}", "{,2}", "*?", "++", "{"]),
            3 => prop::sample::select(vec!["^", "$", ".", "|", "(", ")", "(?:", "(?=", "(?!"]),
            3 => prop::sample::select(vec!["[ab]", "[^a]", "[]a]", "\\d", "\\b", "\\Q", "\\E"]),
            1 => prop::sample::select(vec!["(?i)", "(?s)", "(?m)", "\\x61", "\\1", "\\K", "(*F)"]),
        ];
        prop::collection::vec(piece, 0..9).prop_map(|pieces| pieces.concat())
    }

    fn subject_text() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec!["a", "b", "A", "B", ".", "é", "É", " ", "1", "\n"]);
        prop::collection::vec(piece, 0..9).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        #[test]
        fn what_literals_decide_the_pattern_says_too(
            pattern in pattern_text(),
            subject in subject_text(),
            ignore_case: bool,
        ) {
            let options = PatternOptions { ignore_case, ..PatternOptions::default() };
            let Ok(compiled) = Pattern::compile(&pattern, options) else { return Ok(()) };
            let Some(literal) = Literal::of(&pattern, ignore_case) else { return Ok(()) };
            let Some(told) = literal.decide(subject.as_bytes()) else { return Ok(()) };
            prop_assert_eq!(compiled.runs(subject.as_bytes()), Ok(told));
        }

        #[test]
        fn a_part_is_found_where_it_stands(text in "[abA]{0,3}", subject in "[abAB]{0,9}") {
            let (text, lower) = (text.as_str(), text.to_ascii_lowercase());
            let part = |ignore_case| Part::new(text.as_bytes(), ignore_case);
            prop_assert_eq!(part(false).is_in(subject.as_bytes()), subject.contains(text));
            let expected = subject.to_ascii_lowercase().contains(&lower);
            prop_assert_eq!(part(true).is_in(subject.as_bytes()), expected);
        }
    }
}
