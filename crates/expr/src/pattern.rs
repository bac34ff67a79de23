//! Perl-compatible patterns (PCRE2): compiles them, and says whether a subject matches and what its
//! groups are. Every match is bounded in steps and in memory; beyond the bound the answer is an
//! error. Subjects are bytes: nothing here is UTF-8 unless the pattern requests it with `(*UTF)`.

use crate::anchor::{is_anchored, pin_dollars, split_start_items};
use crate::captures::Captures;
use crate::literal::{LEAST, Literal};
use evenkeel_message::{Allowance, Interner, has_quoted, quoted_byte};
use pcre2::bytes::{Regex, RegexBuilder};
use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// The most steps of a match from one position of the subject, for each of three attempts. PCRE2
/// counts from each position anew, and does not count each turn of a loop, so an attempt is only
/// made if everything it may take is bounded. Nearly all matches take a few steps. With a well-made
/// pattern, a path of the length that LimitRequestLine allows takes some thousands.
const STEPS: [u32; 3] = [32, 4096, 500_000];

/// The turns of a loop that one step may stand for.
const TURNS: u64 = 64;

/// The steps of the last attempt.
const MOST_STEPS: u32 = 500_000;

/// The most memory for backtracking in one match, in KiB.
const MEMORY_KIB: u32 = 8192;

/// PCRE2's error number for a match that exceeds its steps.
const STEPS_EXHAUSTED: i32 = -47;

/// PCRE2's error number for a match that needs more stack than the machine code has.
const JIT_STACK_EXHAUSTED: i32 = -46;

/// PCRE2's error numbers for a subject that is no UTF-8.
const UTF8_ERRORS: RangeInclusive<i32> = -23..=-3;

/// The options of a pattern: the flags of a directive and of RegexDefaultOptions.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PatternOptions {
    /// Whether case is ignored.
    pub ignore_case: bool,
    /// Whether white space and comments in the pattern are ignored (EXTENDED).
    pub extended: bool,
    /// Whether a dot also matches a line feed (DOTALL).
    pub dot_all: bool,
    /// Whether a dollar matches only at the end, not before a line feed there (DOLLAR_ENDONLY).
    pub dollar_end_only: bool,
}

impl Default for PatternOptions {
    /// The options that Apache 2.4 sets unless RegexDefaultOptions changes them.
    fn default() -> Self {
        Self { ignore_case: false, extended: false, dot_all: true, dollar_end_only: true }
    }
}

/// A compiled pattern. Threads can share it, and all patterns of the process with the same text and
/// options are one.
#[derive(Clone)]
pub struct Pattern(Arc<Compiled>);

/// The patterns in use, by text and options.
static PATTERNS: Interner<(Box<str>, PatternOptions), Compiled> = Interner::new();

struct Compiled {
    text: Box<str>,
    source: Box<str>,
    options: PatternOptions,
    /// Whether it can only match at the beginning of the subject.
    anchored: bool,
    /// The literal texts that decide most subjects.
    literal: Option<Box<Literal>>,
    /// The number of groups, not counting the whole match.
    groups: usize,
    /// The named groups with their numbers, ordered by number.
    names: Box<[(usize, Box<str>)]>,
    /// The pattern for each attempt. The first one exists from the beginning if there is no literal
    /// text.
    regexes: [OnceLock<Built>; 3],
    /// The last attempt without machine code, for subjects that need more stack than the machine
    /// code has.
    patient: OnceLock<Built>,
}

/// The reason for giving up a match that PCRE2 did not end with an error.
pub(crate) const SPENT: &str = "the request takes too many steps in all";
const TOO_MUCH: &str = "match limit exceeded";

/// Compiled on first use.
type Built = Box<Result<Regex, pcre2::Error>>;

impl Pattern {
    /// Compiles a pattern. Bytes that are not part of UTF-8 are quoted in the text by
    /// `message::quoted`, and mean those bytes.
    ///
    /// # Errors
    ///
    /// The configuration is at fault: the text is not a valid pattern. The error is that of PCRE2.
    pub fn compile(text: &str, options: PatternOptions) -> Result<Self, PatternError> {
        let compile = |_: &_| Compiled::new(text, options);
        PATTERNS.try_value((text.into(), options), compile).map(Self)
    }

    /// A text that every matching subject contains, and whether case is ignored; none if none is
    /// known.
    #[must_use]
    pub fn literal_text(&self) -> Option<(&[u8], bool)> {
        self.0.literal.as_ref()?.text().filter(|(text, _)| !text.is_empty())
    }

    /// Whether the subject matches anywhere.
    ///
    /// # Errors
    ///
    /// The match exceeds its bounds.
    pub fn matches(&self, subject: &[u8]) -> Result<bool, MatchError> {
        self.matches_within(&Allowance::default(), subject)
    }

    /// Like [`Pattern::matches`], at the cost of a request.
    ///
    /// # Errors
    ///
    /// As for [`Pattern::matches`], or the request has too few steps left.
    pub fn matches_within(
        &self,
        allowance: &Allowance,
        subject: &[u8],
    ) -> Result<bool, MatchError> {
        let told = self.0.literal.as_ref().and_then(|literal| literal.decide(subject));
        if let Some(told) = told {
            return self.0.charge(allowance, look_at(subject)).map(|()| told);
        }
        self.0.attempt(allowance, subject.len(), |regex| regex.is_match(subject))
    }

    /// Whether the subject matches. If it does, its groups replace those in `captures`; otherwise
    /// these stay as they are.
    ///
    /// # Errors
    ///
    /// As for [`Pattern::matches`].
    pub fn capture(&self, subject: &[u8], captures: &mut Captures) -> Result<bool, MatchError> {
        self.capture_within(&Allowance::default(), subject, captures)
    }

    /// Like [`Pattern::capture`], at the cost of a request.
    ///
    /// # Errors
    ///
    /// As for [`Pattern::matches_within`].
    pub fn capture_within(
        &self,
        allowance: &Allowance,
        subject: &[u8],
        captures: &mut Captures,
    ) -> Result<bool, MatchError> {
        let told = self.0.literal.as_ref().and_then(|literal| literal.decide(subject));
        if told == Some(false) {
            return self.0.charge(allowance, look_at(subject)).map(|()| false);
        }
        self.0.attempt(allowance, subject.len(), |regex| capture(regex, subject, captures))
    }

    /// Like [`Pattern::matches`], without the decision by literal texts.
    #[cfg(test)]
    pub(crate) fn runs(&self, subject: &[u8]) -> Result<bool, MatchError> {
        self.0.attempt(&Allowance::default(), subject.len(), |regex| regex.is_match(subject))
    }

    /// The number of groups in the pattern, not counting the whole match.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.0.groups
    }

    /// The named groups with their numbers, ordered by number. In sections with patterns, Apache
    /// sets for each of them the variable `MATCH_` followed by the name in capitals.
    pub fn names(&self) -> impl Iterator<Item = (usize, &str)> {
        self.0.names.iter().map(|(number, name)| (*number, &**name))
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }
}

impl Compiled {
    fn new(text: &str, options: PatternOptions) -> Result<Self, PatternError> {
        let spelled = match has_quoted(text) {
            true => spell_bytes(text).map(Cow::Owned)?,
            false => Cow::Borrowed(text),
        };
        let (items, rest) = split_start_items(&spelled);
        let dot_all = options.dot_all && !items.contains("NO_DOTSTAR_ANCHOR");
        let anchored = !options.extended && is_anchored(rest, dot_all);
        // Group names may repeat, as ap_regcomp allows.
        let source: Box<str> = match options.dollar_end_only {
            true => format!("{items}(?J){}", pin_dollars(rest, options.extended)),
            false => format!("{items}(?J){rest}"),
        }
        .into();
        let is_plain = items.is_empty() && !options.extended;
        let literal =
            is_plain.then(|| Literal::of(rest, options.ignore_case)).flatten().map(Box::new);
        // A pattern that its literal texts decide for most subjects is compiled here for its
        // errors and groups only. It gets machine code when a subject needs it.
        let [first, ..] = STEPS;
        let regex = build(&source, options, first, literal.is_none());
        let regex = regex.map_err(|error| PatternError::new(&error))?;
        let names = regex.capture_names();
        let groups = names.len().saturating_sub(1);
        let named = |(number, name): (usize, &Option<String>)| {
            name.as_deref().map(|name| (number, Box::from(name)))
        };
        let names = names.iter().enumerate().filter_map(named).collect();
        let (regexes, patient): ([OnceLock<Built>; 3], _) = Default::default();
        if let (None, [first, ..]) = (&literal, &regexes) {
            first.get_or_init(|| Box::new(Ok(regex)));
        }
        let text = text.into();
        Ok(Self { text, source, options, anchored, literal, groups, names, regexes, patient })
    }

    /// Takes the cost of a match from the steps of the request.
    fn charge(&self, allowance: &Allowance, steps: u64) -> Result<(), MatchError> {
        // Once the steps are used up, every match fails.
        let is_left = !allowance.is_spent() && allowance.spend(steps);
        is_left.then_some(()).ok_or_else(|| self.given_up(SPENT))
    }

    /// Tries to match with few steps, then with more. Matches beyond the untimed steps cost the
    /// request the time that they took, one step for each nanosecond, because nothing else shows
    /// what a match has cost. They never cost more than the attempts could take in total, so that a
    /// thread which lost its core does not pay for that.
    fn attempt(
        &self,
        allowance: &Allowance,
        length: usize,
        mut run: impl FnMut(&Regex) -> Result<bool, pcre2::Error>,
    ) -> Result<bool, MatchError> {
        if allowance.is_spent() {
            return Err(self.given_up(SPENT));
        }
        // As in Apache, a subject that is no UTF-8 does not match a pattern with `(*UTF)`.
        let mut run = |regex: &Regex| match run(regex) {
            Err(error) if UTF8_ERRORS.contains(&error.code()) => Ok(false),
            answer => answer,
        };
        let mut number = 0;
        if allowance.leaves_untimed(self.most(number, length)) {
            let [first, ..] = STEPS;
            match run(self.regex(number, first)?) {
                Err(error) if is_exhausted(&error) => number += 1,
                answer => {
                    self.charge(allowance, LEAST)?;
                    return answer.map_err(|error| self.failed(&error));
                }
            }
        }
        let (begun, mut most) = (Instant::now(), 0);
        let answer = self.attempts(number, length, &mut most, &mut run);
        let taken_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.charge(allowance, taken_ns.min(most).saturating_add(LEAST))?;
        answer
    }

    /// Makes the attempts from that number on, and adds up the steps that they may take.
    fn attempts(
        &self,
        first: usize,
        length: usize,
        all: &mut u64,
        run: &mut impl FnMut(&Regex) -> Result<bool, pcre2::Error>,
    ) -> Result<bool, MatchError> {
        for (number, steps) in STEPS.into_iter().enumerate().skip(first) {
            let most = self.most(number, length);
            if number > 0 && most > u64::from(Allowance::STEPS) {
                return Err(self.given_up(TOO_MUCH));
            }
            *all = all.saturating_add(most);
            match run(self.regex(number, steps)?) {
                Err(error) if error.code() == STEPS_EXHAUSTED && steps < MOST_STEPS => {}
                Err(error) if error.code() == JIT_STACK_EXHAUSTED => break,
                answer => return answer.map_err(|error| self.failed(&error)),
            }
        }
        *all = u64::MAX;
        let patient = self.built(&self.patient, MOST_STEPS, false)?;
        run(patient).map_err(|error| self.failed(&error))
    }

    /// The most steps of an attempt over all positions of a subject of that length.
    fn most(&self, number: usize, length: usize) -> u64 {
        let places = if self.anchored { 1 } else { length as u64 + 1 };
        let turns = TURNS.min(length as u64).max(1);
        let steps = STEPS.get(number).copied().unwrap_or(MOST_STEPS);
        u64::from(steps).saturating_mul(places).saturating_mul(turns)
    }

    /// The compiled pattern for an attempt.
    fn regex(&self, number: usize, steps: u32) -> Result<&Regex, MatchError> {
        let kept = self.regexes.get(number).unwrap_or(&self.patient);
        self.built(kept, steps, true)
    }

    fn built<'a>(
        &self,
        kept: &'a OnceLock<Built>,
        steps: u32,
        machine: bool,
    ) -> Result<&'a Regex, MatchError> {
        let make = || Box::new(build(&self.source, self.options, steps, machine));
        (**kept.get_or_init(make)).as_ref().map_err(|error| self.failed(error))
    }

    fn given_up(&self, cause: &str) -> MatchError {
        MatchError { pattern: self.text.clone(), cause: cause.to_owned() }
    }

    fn failed(&self, error: &pcre2::Error) -> MatchError {
        MatchError { pattern: self.text.clone(), cause: cause(error) }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern")
            .field("text", &self.0.text)
            .field("options", &self.0.options)
            .finish()
    }
}

/// The cost of searching for literal texts.
fn look_at(subject: &[u8]) -> u64 {
    LEAST + subject.len() as u64
}

/// Whether a further attempt may decide what this one did not.
fn is_exhausted(error: &pcre2::Error) -> bool {
    matches!(error.code(), STEPS_EXHAUSTED | JIT_STACK_EXHAUSTED)
}

/// Writes the quoted bytes of a pattern as `\xHH`, because the library only accepts text.
fn spell_bytes(text: &str) -> Result<String, PatternError> {
    let refuse = |why: &str| Err(PatternError(why.to_owned()));
    if text.starts_with("(*UTF") || text.starts_with("(*UCP)(*UTF") {
        return refuse("the pattern is no UTF-8");
    }
    let mut spelled = String::with_capacity(text.len() + 16);
    let (mut is_literal, mut rest) = (false, text.chars());
    while let Some(head) = rest.next() {
        let next = rest.clone().next();
        match (head, quoted_byte(head)) {
            (_, Some(byte)) if is_literal => spelled.push_str(&format!("\\E\\x{byte:02x}\\Q")),
            (_, Some(byte)) => spelled.push_str(&format!("\\x{byte:02x}")),
            ('\\', None) if is_literal => {
                is_literal = next != Some('E');
                spelled.push(head);
            }
            // A backslash before such a byte has no effect.
            ('\\', None) if next.is_some_and(|next| quoted_byte(next).is_some()) => {}
            ('\\', None) => {
                spelled.push(head);
                is_literal = next == Some('Q');
                spelled.extend(rest.next());
                if next == Some('c') && rest.clone().next().and_then(quoted_byte).is_some() {
                    return refuse("\\c at end of pattern");
                }
            }
            (other, None) => spelled.push(other),
        }
    }
    Ok(spelled)
}

/// Compiles the pattern with limits in front of it. The pattern can lower but not raise them: of
/// several settings, PCRE2 uses the lowest.
fn build(
    source: &str,
    options: PatternOptions,
    steps: u32,
    machine: bool,
) -> Result<Regex, pcre2::Error> {
    let bound = format!(
        "(*LIMIT_MATCH={steps})(*LIMIT_DEPTH={MOST_STEPS})(*LIMIT_HEAP={MEMORY_KIB}){source}"
    );
    RegexBuilder::new()
        .caseless(options.ignore_case)
        .extended(options.extended)
        .dotall(options.dot_all)
        .jit_if_available(machine)
        .build(&bound)
}

fn capture(regex: &Regex, subject: &[u8], captures: &mut Captures) -> Result<bool, pcre2::Error> {
    let mut places = regex.capture_locations();
    if regex.captures_read(&mut places, subject)?.is_none() {
        return Ok(false);
    }
    captures.keep(subject, (0..places.len()).map(|number| places.get(number)));
    Ok(true)
}

/// PCRE2's message for the error, without the two labels that the crate puts before it.
fn cause(error: &pcre2::Error) -> String {
    let text = error.to_string();
    text.splitn(3, ": ").last().unwrap_or_default().to_owned()
}

/// The text is not a valid pattern.
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

/// A match was given up because it exceeded its bounds.
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
    use evenkeel_message::quoted;

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
            ("(*UTF)x", b"x\xb5", false),
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
    fn bytes_that_are_no_utf8_mean_themselves() {
        let table: &[(&[u8], &[u8], bool)] = &[
            (b"^caf\xe9$", b"caf\xe9", true),
            (b"^caf\xe9$", "café".as_bytes(), false),
            (b"^[\xe0-\xef]$", b"\xe9", true),
            (b"^[\xe0-\xef]$", b"\xc9", false),
            (b"^[\xe9]$", "é".as_bytes(), false),
            (b"^\\\xe9$", b"\xe9", true),
            (b"^\\\\\xe9$", b"\\\xe9", true),
            (b"^\\Q.\xe9.\\E.$", b".\xe9.x", true),
            (b"^\\Q.\xe9.\\E.$", b".\xe9xx", false),
            (b"\xe9{2}", b"\xe9\xe9", true),
            (b"\xe9{2}", b"\xe9", false),
            (b"(\xe9)\\1", b"\xe9\xe9", true),
        ];
        for (text, subject, expected) in table {
            let text = quoted(text);
            assert_eq!(compile(&text).matches(subject), Ok(*expected), "{text:?}");
        }
        for text in [&b"(*UTF)\xe9"[..], b"\\c\xe9"] {
            assert!(Pattern::compile(&quoted(text), PatternOptions::default()).is_err());
        }
        // A pattern in UTF-8 matches the bytes of its letters.
        assert_eq!(compile("^[é]$").matches("é".as_bytes()), Ok(false));
        assert_eq!(compile("^[é]{2}$").matches("é".as_bytes()), Ok(true));
        assert_eq!(compile("^é{2}$").matches(b"\xc3\xa9\xa9"), Ok(true));
        assert_eq!(compile(r"\w").matches("é".as_bytes()), Ok(false));
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
        let thorough = pattern.0.regex(2, MOST_STEPS).unwrap();
        let stopped = thorough.is_match(subject.as_bytes()).unwrap_err();
        assert_eq!(stopped.code(), JIT_STACK_EXHAUSTED);
        assert_eq!(pattern.matches(subject.as_bytes()), Ok(true));
        let mut captures = Captures::default();
        assert_eq!(pattern.capture(subject.as_bytes(), &mut captures), Ok(true));
        assert_eq!(captures.group(2), b"b");
        let endless = "ab".repeat(2_000_000);
        assert!(pattern.matches(endless.as_bytes()).is_err());
    }

    #[test]
    fn what_may_take_too_long_at_all_places_is_not_begun() {
        let subject = "x".repeat(1000);
        let text = "x{0,70}x{0,70}x{0,70}[yz]";
        let error = compile(text).matches(subject.as_bytes()).unwrap_err();
        assert!(error.to_string().ends_with(TOO_MUCH), "{error}");
        let anchored = compile(&format!("^{text}"));
        assert_eq!(anchored.matches(subject.as_bytes()), Ok(false));
        let usual = compile("(bot|crawl|spider)[0-9]+");
        assert_eq!(usual.matches(subject.as_bytes()), Ok(false));
    }

    #[test]
    fn a_request_pays_for_its_matches() {
        let (allowance, pattern) = (Allowance::default(), compile("a"));
        assert_eq!(pattern.matches_within(&allowance, b"a"), Ok(true));
        assert!(!allowance.is_spent() && allowance.left() <= Allowance::STEPS - 64);
        assert!(allowance.spend(u64::from(allowance.left()) - 1));
        for _ in 0..2 {
            let error = pattern.matches_within(&allowance, b"a").unwrap_err();
            assert_eq!(error.to_string(), format!("pattern 'a' gave up: {SPENT}"));
            assert!(allowance.is_spent());
        }
    }

    #[test]
    fn a_match_that_literal_texts_decide_does_not_run() {
        // With the groups alone the match would be given up.
        let (pattern, subject) = (compile("^b.*(a+)+(a+)+xa"), "b".to_owned() + &"a".repeat(900));
        assert!(pattern.runs(subject.as_bytes()).is_err());
        let (allowance, mut captures) = (Allowance::default(), Captures::default());
        assert_eq!(pattern.matches_within(&allowance, subject.as_bytes()), Ok(false));
        let most = u64::from(Allowance::STEPS - allowance.left());
        assert_eq!(pattern.capture(subject.as_bytes(), &mut captures), Ok(false));
        assert_eq!(most, look_at(subject.as_bytes()));
        assert!(allowance.spend(u64::from(allowance.left())));
        assert!(pattern.matches_within(&allowance, b"x").is_err());
        assert_eq!(compile("^ab").capture(b"abc", &mut captures), Ok(true));
        assert_eq!(captures.group(0), b"ab");
    }

    #[test]
    fn matches_are_timed_beyond_what_may_go_untimed() {
        let (allowance, pattern) = (Allowance::default(), compile("(a|b)c"));
        while allowance.leaves_untimed(1 << 16) {}
        while allowance.leaves_untimed(1) {}
        let before = allowance.left();
        assert_eq!(pattern.matches_within(&allowance, b"xbc"), Ok(true));
        assert!(u64::from(before - allowance.left()) >= LEAST);
    }

    #[test]
    fn what_takes_more_steps_than_the_first_attempt_is_decided_by_the_next() {
        let subject = "a".repeat(18) + "!";
        let pattern = compile("^(a|aa)+$");
        let stopped =
            pattern.0.regex(0, STEPS[0]).unwrap().is_match(subject.as_bytes()).unwrap_err();
        assert_eq!(stopped.code(), STEPS_EXHAUSTED);
        assert_eq!(pattern.matches(subject.as_bytes()), Ok(false));
    }

    #[test]
    fn equal_patterns_are_one() {
        let one = compile("^(equal)$");
        assert!(Arc::ptr_eq(&one.0, &compile("^(equal)$").0));
        let options = PatternOptions { ignore_case: true, ..PatternOptions::default() };
        let other = Pattern::compile("^(equal)$", options).unwrap();
        assert!(!Arc::ptr_eq(&one.0, &other.0));
        assert_eq!(other.matches(b"EQUAL"), Ok(true));
        assert_eq!(one.matches(b"EQUAL"), Ok(false));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let error = Pattern::compile("(a", PatternOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "missing closing parenthesis");
    }
}
