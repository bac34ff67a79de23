//! In comes the text of a Perl-compatible pattern, out goes a compiled one that says whether a
//! subject matches and what its groups are. Every match is bounded in steps and in memory: past
//! the bound the answer is an error, never a hang. Subjects are bytes; nothing here is UTF-8
//! unless the pattern itself asks for it with `(*UTF)`.

use crate::anchor::{pin_dollars, split_start_items};
use crate::captures::Captures;
use pcre2::bytes::{Regex, RegexBuilder};
use std::fmt;
use std::sync::OnceLock;

/// The most steps of a match. A path of the length that LimitRequestLine allows takes some
/// thousands with a pattern that is well made. What a step costs depends on the pattern: as many
/// as these take a few milliseconds as a rule, and some tenths of a second at worst.
const STEPS: u32 = 500_000;

/// The most memory that one match may take for the places to go back to, in KiB.
const MEMORY_KIB: u32 = 8192;

/// PCRE2's number for a match that needs more stack than its machine code has.
const JIT_STACK_EXHAUSTED: i32 = -46;

/// How a pattern is read: the flags of a directive and of RegexDefaultOptions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PatternOptions {
    /// Letters match in either case.
    pub ignore_case: bool,
    /// White space and comments in the pattern mean nothing (EXTENDED).
    pub extended: bool,
    /// A dot matches a line feed too (DOTALL).
    pub dot_all: bool,
    /// A dollar matches at the end alone, not before a line feed there (DOLLAR_ENDONLY).
    pub dollar_end_only: bool,
}

impl Default for PatternOptions {
    /// The options that Apache 2.4 sets where RegexDefaultOptions does not say otherwise.
    fn default() -> Self {
        Self { ignore_case: false, extended: false, dot_all: true, dollar_end_only: true }
    }
}

/// A compiled pattern. Threads may share it.
pub struct Pattern {
    text: Box<str>,
    source: Box<str>,
    options: PatternOptions,
    regex: Regex,
    /// The same pattern without machine code, for the subject that needs more stack than that has.
    patient: OnceLock<Result<Regex, pcre2::Error>>,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// The configuration is to blame: the text is no pattern. The error says what PCRE2 missed.
    pub fn compile(text: &str, options: PatternOptions) -> Result<Self, PatternError> {
        let source = bound(text, options);
        let regex = build(&source, options, true).map_err(|error| PatternError::new(&error))?;
        let (text, source) = (text.into(), source.into());
        Ok(Self { text, source, options, regex, patient: OnceLock::new() })
    }

    /// Whether the subject matches anywhere.
    ///
    /// # Errors
    ///
    /// The pattern and this subject together pass the bounds of a match.
    pub fn matches(&self, subject: &[u8]) -> Result<bool, MatchError> {
        match self.regex.is_match(subject) {
            Err(error) if error.code() == JIT_STACK_EXHAUSTED => {
                self.patient()?.is_match(subject).map_err(|error| self.failed(&error))
            }
            answer => answer.map_err(|error| self.failed(&error)),
        }
    }

    /// Whether the subject matches; if so, its groups replace those in `captures`, which stay as
    /// they are if not.
    ///
    /// # Errors
    ///
    /// As for [`Pattern::matches`].
    pub fn capture(&self, subject: &[u8], captures: &mut Captures) -> Result<bool, MatchError> {
        match capture(&self.regex, subject, captures) {
            Err(error) if error.code() == JIT_STACK_EXHAUSTED => {
                capture(self.patient()?, subject, captures).map_err(|error| self.failed(&error))
            }
            answer => answer.map_err(|error| self.failed(&error)),
        }
    }

    /// How many groups the pattern captures, the whole match not counted.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.regex.capture_names().len().saturating_sub(1)
    }

    /// The named groups with their numbers, in the order of the numbers. Apache makes each of
    /// them the variable `MATCH_` and the name in capitals in sections with patterns.
    pub fn names(&self) -> impl Iterator<Item = (usize, &str)> {
        let names = self.regex.capture_names().iter().enumerate();
        names.filter_map(|(number, name)| Some((number, name.as_deref()?)))
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The pattern as interpreted code, compiled when it is first needed.
    fn patient(&self) -> Result<&Regex, MatchError> {
        let regex = self.patient.get_or_init(|| build(&self.source, self.options, false));
        regex.as_ref().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: &pcre2::Error) -> MatchError {
        MatchError { pattern: self.text.clone(), cause: cause(error) }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern").field("text", &self.text).field("options", &self.options).finish()
    }
}

/// Puts the limits before the pattern. The pattern may lower them and cannot raise them: of
/// several settings PCRE2 takes the lowest. Group names may repeat, as `ap_regcomp` allows.
fn bound(text: &str, options: PatternOptions) -> String {
    let (items, rest) = split_start_items(text);
    let rest = match options.dollar_end_only {
        true => pin_dollars(rest, options.extended),
        false => rest.to_owned(),
    };
    format!(
        "(*LIMIT_MATCH={STEPS})(*LIMIT_DEPTH={STEPS})(*LIMIT_HEAP={MEMORY_KIB}){items}(?J){rest}"
    )
}

fn build(source: &str, options: PatternOptions, machine: bool) -> Result<Regex, pcre2::Error> {
    RegexBuilder::new()
        .caseless(options.ignore_case)
        .extended(options.extended)
        .dotall(options.dot_all)
        .jit_if_available(machine)
        .build(source)
}

fn capture(regex: &Regex, subject: &[u8], captures: &mut Captures) -> Result<bool, pcre2::Error> {
    let mut places = regex.capture_locations();
    if regex.captures_read(&mut places, subject)?.is_none() {
        return Ok(false);
    }
    captures.keep(subject, (0..places.len()).map(|number| places.get(number)));
    Ok(true)
}

/// PCRE2's words for the error, without the two labels that the crate puts before them.
fn cause(error: &pcre2::Error) -> String {
    let text = error.to_string();
    text.splitn(3, ": ").last().unwrap_or_default().to_owned()
}

/// The text is no pattern.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PatternError(String);

impl PatternError {
    fn new(error: &pcre2::Error) -> Self {
        Self(cause(error))
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatternError {}

/// A match was given up because it passed its bounds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MatchError {
    pattern: Box<str>,
    cause: String,
}

impl fmt::Display for MatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pattern '{}' gave up: {}", self.pattern, self.cause)
    }
}

impl std::error::Error for MatchError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(text: &str) -> Pattern {
        Pattern::compile(text, PatternOptions::default()).unwrap()
    }

    #[test]
    fn patterns_match_bytes() {
        let table: &[(&str, &[u8], bool)] = &[
            ("^a.c$", b"abc", true),
            ("^a.c$", b"a\nc", true),
            ("c$", b"abc\n", false),
            ("(?m)c$", b"abc\nd", true),
            ("^.$", b"\xff", true),
            ("^..$", "é".as_bytes(), true),
            ("(*UTF)^.$", "é".as_bytes(), true),
            ("", b"", true),
            (r"(?<!x)y", b"xy", false),
            (r"(a)\1", b"aa", true),
            ("(?<n>a)|(?<n>b)", b"b", true),
        ];
        for (text, subject, expected) in table {
            assert_eq!(compile(text).matches(subject), Ok(*expected), "{text}");
        }
        let options = PatternOptions { ignore_case: true, ..PatternOptions::default() };
        assert_eq!(Pattern::compile("ABC", options).unwrap().matches(b"abc"), Ok(true));
        let options = PatternOptions { dollar_end_only: false, ..PatternOptions::default() };
        assert_eq!(Pattern::compile("c$", options).unwrap().matches(b"abc\n"), Ok(true));
    }

    #[test]
    fn groups_are_captured_and_named() {
        let pattern = compile("(?<first>a)(x)?(?<last>c)");
        assert_eq!(pattern.groups(), 3);
        assert_eq!(pattern.names().collect::<Vec<_>>(), [(1, "first"), (3, "last")]);
        let mut captures = Captures::default();
        assert_eq!(pattern.capture(b"-ac-", &mut captures), Ok(true));
        assert_eq!(captures.group(0), b"ac");
        assert_eq!(captures.span(2), None);
        assert_eq!(captures.group(3), b"c");
        assert_eq!(pattern.capture(b"b", &mut captures), Ok(false));
        assert_eq!(captures.group(3), b"c");
    }

    #[test]
    fn more_than_nine_groups_do_no_harm() {
        let pattern = compile(&"(a)".repeat(40));
        let mut captures = Captures::default();
        assert_eq!(pattern.capture("a".repeat(40).as_bytes(), &mut captures), Ok(true));
        assert_eq!(captures.group(9), b"a");
        assert_eq!(captures.group(10), b"");
    }

    #[test]
    fn a_pattern_that_explodes_is_given_up() {
        let subject = "a".repeat(60) + "!";
        for text in ["^(a+)+$", "^(a|a)*$", "(*LIMIT_MATCH=4000000000)^(a|aa)+$"] {
            let error = compile(text).matches(subject.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("match limit exceeded"), "{error}");
        }
    }

    #[test]
    fn deep_matches_fall_back_to_the_interpreter() {
        let subject = "ab".repeat(5_000);
        let pattern = compile("^(?:(a)|(b))*$");
        let stopped = pattern.regex.is_match(subject.as_bytes()).unwrap_err();
        assert_eq!(stopped.code(), JIT_STACK_EXHAUSTED);
        assert_eq!(pattern.matches(subject.as_bytes()), Ok(true));
        let mut captures = Captures::default();
        assert_eq!(pattern.capture(subject.as_bytes(), &mut captures), Ok(true));
        assert_eq!(captures.group(2), b"b");
        let endless = "ab".repeat(2_000_000);
        assert!(pattern.matches(endless.as_bytes()).is_err());
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let error = Pattern::compile("(a", PatternOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "missing closing parenthesis");
    }
}
