//! Evaluates a compiled expression for a request. The evaluation also collects what later steps may
//! need: the groups of the last match, and the request headers that the answer depended on.

use crate::captures::Captures;
use crate::context::{Context, FileError};
use crate::function::{self, Function};
use crate::glob::glob;
use crate::lexer::Relation;
use crate::pattern::{MatchError, Pattern};
use crate::tree::{FileQuestion, Test, Word};
use crate::variable::Variable;
use crate::{Condition, Text};
use evenkeel_message::Allowance;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;

/// The most bytes of a word's value. It is more than any file that `file()` reads; without a bound,
/// nested escapes could grow indefinitely.
const LONGEST: usize = 16 * 1024 * 1024;

/// The steps for a question about a file.
const FILE_STEPS: usize = 1000;

/// The steps for a question that runs another request through the phases.
const LOOK_STEPS: usize = 1_000_000;

/// One evaluation, or several in a row that share their captures.
pub struct Evaluation<'c> {
    context: &'c dyn Context,
    captures: Captures,
    vary: Vec<Vec<u8>>,
}

impl<'c> Evaluation<'c> {
    /// An evaluation without captures.
    #[must_use]
    pub fn new(context: &'c dyn Context) -> Self {
        Self { context, captures: Captures::default(), vary: Vec::new() }
    }

    /// An evaluation with the captures of an earlier match, so that `$1` refers to its groups.
    #[must_use]
    pub fn with_captures(context: &'c dyn Context, captures: Captures) -> Self {
        Self { context, captures, vary: Vec::new() }
    }

    /// Whether the condition holds.
    ///
    /// # Errors
    ///
    /// The condition has no answer for this request. Apache logs that and treats the condition as
    /// false.
    pub fn holds(&mut self, condition: &Condition) -> Result<bool, EvaluationError> {
        self.test(&condition.0)
    }

    /// The bytes that the text stands for.
    ///
    /// # Errors
    ///
    /// The text has no value for this request. Apache logs that and continues without it.
    pub fn text(&mut self, text: &Text) -> Result<Vec<u8>, EvaluationError> {
        self.word(&text.0).map(Cow::into_owned)
    }

    /// The groups of the last match that captured any.
    #[must_use]
    pub fn captures(&self) -> &Captures {
        &self.captures
    }

    /// The request headers that were used, each once, for the response's `Vary`.
    #[must_use]
    pub fn vary(&self) -> &[Vec<u8>] {
        &self.vary
    }

    fn test(&mut self, test: &Test) -> Result<bool, EvaluationError> {
        match test {
            Test::Constant(value) => Ok(*value),
            Test::Not(test) => self.test(test).map(|holds| !holds),
            Test::All(tests) => self.until(tests, false),
            Test::Any(tests) => self.until(tests, true),
            Test::Integers(relation, left, right) => {
                let left = integer(&self.word(left)?);
                let right = integer(&self.word(right)?);
                Ok(relates(*relation, left.cmp(&right)))
            }
            Test::Strings(relation, left, right) => {
                let left = self.word(left)?;
                let right = self.word(right)?;
                Ok(relates(*relation, left.cmp(&right)))
            }
            Test::ByLength(relation, left, right) => {
                let left = self.word(left)?;
                let right = self.word(right)?;
                let order = left.len().cmp(&right.len()).then_with(|| left.cmp(&right));
                Ok(relates(*relation, order))
            }
            Test::In(word, list) => {
                let wanted = self.word(word)?;
                for word in list {
                    if self.word(word)? == wanted {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Test::Match { subject, pattern, negated } => {
                let subject = self.word(subject)?;
                self.matches(pattern, &subject).map(|found| found != *negated)
            }
            Test::Glob { subject, pattern, style } => {
                let subject = self.word(subject)?;
                let pattern = self.word(pattern)?;
                self.pay(subject.len().saturating_mul(pattern.len()))?;
                Ok(glob(&pattern, &subject, *style))
            }
            Test::AddressIn(word, subnet) => {
                let address = address(&self.word(word)?);
                Ok(address.is_some_and(|address| subnet.contains(address)))
            }
            Test::ClientIn(subnet) => {
                Ok(self.context.client_address().is_some_and(|client| subnet.contains(client)))
            }
            Test::File(question, word) => {
                let path = self.word(word)?;
                self.pay(FILE_STEPS)?;
                Ok(self.ask_file(*question, &path))
            }
            Test::FileAllowed(word) => {
                let path = self.word(word)?;
                self.pay(LOOK_STEPS)?;
                self.context.file_allowed(&path).ok_or(EvaluationError::Unknown)
            }
            Test::UrlAllowed(word) => {
                let url = self.word(word)?;
                self.pay(LOOK_STEPS)?;
                self.context.url_allowed(&url).ok_or(EvaluationError::Unknown)
            }
            Test::Empty(word) => self.word(word).map(|value| value.is_empty()),
            Test::Filled(word) => self.word(word).map(|value| !value.is_empty()),
            Test::Truthy(word) => self.word(word).map(|value| truthy(&value)),
        }
    }

    /// Evaluates tests until one has the wanted result.
    fn until(&mut self, tests: &[Test], wanted: bool) -> Result<bool, EvaluationError> {
        for test in tests {
            if self.test(test)? == wanted {
                return Ok(wanted);
            }
        }
        Ok(!wanted)
    }

    /// Matches a pattern. A pattern without groups leaves earlier captures as they are; one with
    /// groups that does not match clears them (server/util_expr_eval.c).
    fn matches(&mut self, pattern: &Pattern, subject: &[u8]) -> Result<bool, EvaluationError> {
        let apart = Allowance::default;
        let allowance = self.context.allowance().cloned().unwrap_or_else(apart);
        if pattern.groups() == 0 {
            return Ok(pattern.matches_within(&allowance, subject)?);
        }
        let found = pattern.capture_within(&allowance, subject, &mut self.captures)?;
        if !found {
            self.captures.clear();
        }
        Ok(found)
    }

    fn ask_file(&self, question: FileQuestion, path: &[u8]) -> bool {
        let follow = question != FileQuestion::Symlink;
        let Some(facts) = self.context.metadata(path, follow) else { return false };
        match question {
            FileQuestion::Directory => facts.is_dir(),
            FileQuestion::Exists => true,
            FileQuestion::Regular => facts.is_file(),
            FileQuestion::Filled => facts.is_file() && facts.len() > 0,
            FileQuestion::Symlink => facts.is_symlink(),
            FileQuestion::Executable => facts.mode() & 0o111 != 0,
        }
    }

    /// The value of a word. Its bytes count as steps.
    fn word<'a>(&mut self, word: &'a Word) -> Result<Cow<'a, [u8]>, EvaluationError>
    where
        'c: 'a,
    {
        let value = self.value(word)?;
        self.pay(value.len() + 1)?;
        Ok(value)
    }

    /// Takes steps from the request that the expression is evaluated for.
    fn pay(&self, steps: usize) -> Result<(), EvaluationError> {
        match self.context.allowance() {
            Some(allowance) if !allowance.spend(steps as u64) => Err(EvaluationError::Spent),
            _ => Ok(()),
        }
    }

    fn value<'a>(&mut self, word: &'a Word) -> Result<Cow<'a, [u8]>, EvaluationError>
    where
        'c: 'a,
    {
        match word {
            Word::Literal(bytes) | Word::Digits(bytes) => Ok(Cow::Borrowed(bytes)),
            Word::Variable(variable) => bounded(self.context.variable(*variable)),
            Word::Session(name) => bounded(self.context.session_variable(name).unwrap_or_default()),
            Word::Header(name) => {
                self.depend_on(name.as_bytes())?;
                bounded(self.context.request_header(name.as_bytes()).unwrap_or_default())
            }
            Word::Group(number) => Ok(Cow::Owned(self.captures.group(*number).to_vec())),
            Word::Call(function, argument) => {
                let argument = self.word(argument)?;
                bounded(self.call(*function, argument)?)
            }
            Word::Concat(words) => {
                let mut joined = Vec::new();
                for word in words {
                    joined.extend_from_slice(&self.word(word)?);
                    if joined.len() > LONGEST {
                        return Err(EvaluationError::TooLong);
                    }
                }
                Ok(Cow::Owned(joined))
            }
        }
    }

    /// Calls a function. A look-up that finds nothing returns an empty value.
    fn call(
        &mut self,
        function: Function,
        argument: Cow<'_, [u8]>,
    ) -> Result<Cow<'c, [u8]>, EvaluationError> {
        let context = self.context;
        let computed = match function {
            Function::RequestHeader => {
                self.depend_on(&argument)?;
                return Ok(context.request_header(&argument).unwrap_or_default());
            }
            Function::RequestHeaderWithoutVary => {
                return Ok(context.request_header(&argument).unwrap_or_default());
            }
            Function::ResponseHeader => {
                return Ok(context.response_header(&argument).unwrap_or_default());
            }
            Function::Note => return Ok(context.note(&argument).unwrap_or_default()),
            Function::RequestEnvironment => {
                return Ok(context.request_environment(&argument).unwrap_or_default());
            }
            Function::ProcessEnvironment => {
                return Ok(context.process_environment(&argument).unwrap_or_default());
            }
            Function::AnyEnvironment => {
                let found = context.note(&argument);
                let found = found.or_else(|| context.request_environment(&argument));
                let found = found.or_else(|| context.process_environment(&argument));
                return Ok(found.unwrap_or_default());
            }
            Function::HealthCheck if argument.eq_ignore_ascii_case(b"body") => {
                return Ok(context.variable(Variable::HcBody));
            }
            Function::HealthCheck => Vec::new(),
            Function::ToLower => argument.to_ascii_lowercase(),
            Function::ToUpper => argument.to_ascii_uppercase(),
            Function::Escape => function::escape(&argument),
            Function::Unescape => function::unescape(&argument),
            Function::Base64 => function::base64(&argument),
            Function::Unbase64 => function::unbase64(&argument),
            Function::Md5 => function::md5(&argument),
            Function::Sha1 => function::sha1(&argument),
            Function::Ldap => function::ldap(&argument),
            Function::File => context.file_contents(&argument).map_err(EvaluationError::File)?,
            Function::FileSize => {
                let facts = context.metadata(&argument, true);
                let size = facts.filter(|facts| facts.is_file()).map_or(0, |facts| facts.len());
                size.to_string().into_bytes()
            }
        };
        Ok(Cow::Owned(computed))
    }

    /// Records a request header that the answer depends on. Host is omitted, because it is part of
    /// the URI under which every cache stores a response (util_expr_eval.c: add_vary).
    fn depend_on(&mut self, name: &[u8]) -> Result<(), EvaluationError> {
        if name.eq_ignore_ascii_case(b"Host") {
            return Ok(());
        }
        self.pay(self.vary.len())?;
        if !self.vary.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            self.vary.push(name.to_vec());
        }
        Ok(())
    }
}

fn bounded(value: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, EvaluationError> {
    match value.len() > LONGEST {
        true => Err(EvaluationError::TooLong),
        false => Ok(value),
    }
}

fn relates(relation: Relation, order: Ordering) -> bool {
    match relation {
        Relation::Equal => order.is_eq(),
        Relation::NotEqual => order.is_ne(),
        Relation::Less => order.is_lt(),
        Relation::LessOrEqual => order.is_le(),
        Relation::Greater => order.is_gt(),
        Relation::GreaterOrEqual => order.is_ge(),
    }
}

/// The number at the beginning of a text, as `apr_atoi64` reads it: white space, a sign, decimal
/// digits. 0 if there are no digits; clamped if out of range.
fn integer(text: &[u8]) -> i64 {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len());
    let text = text.get(start..).unwrap_or_default();
    let (negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        Some((b'+', digits)) => (false, digits),
        _ => (false, text),
    };
    let mut value = 0_i64;
    for digit in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        let digit = i64::from(digit - b'0');
        let signed = if negative { -digit } else { digit };
        value = value.saturating_mul(10).saturating_add(signed);
    }
    value
}

fn address(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Whether the text is true: everything except the empty text, 0, off, false and no.
fn truthy(text: &[u8]) -> bool {
    let no: [&[u8]; 5] = [b"", b"0", b"off", b"false", b"no"];
    !no.iter().any(|no| text.eq_ignore_ascii_case(no))
}

/// Why an expression has no answer for a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EvaluationError {
    /// A pattern exceeded its bounds for this subject.
    Match(MatchError),
    /// A value became longer than an expression may hold.
    TooLong,
    /// The request has no steps left.
    Spent,
    /// A file cannot be read.
    File(FileError),
    /// It cannot be known whether another path would be allowed.
    Unknown,
}

impl EvaluationError {
    /// Whether the reason is a file that cannot be read, as it can be in Apache. Otherwise a
    /// resource ran out, or the expression exceeded one of this server's own bounds.
    #[must_use]
    pub fn is_of_file(&self) -> bool {
        matches!(self, Self::File(error) if error.is_of_file)
    }
}

impl From<MatchError> for EvaluationError {
    fn from(error: MatchError) -> Self {
        Self::Match(error)
    }
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Match(error) => error.fmt(f),
            Self::TooLong => write!(f, "a value is longer than {LONGEST} bytes"),
            Self::Spent => f.write_str("the request takes too many steps in all"),
            Self::File(error) => f.write_str(&error.text),
            Self::Unknown => f.write_str(
                "whether another path is allowed cannot be told: it depends on the name of the \
                 client, which is not known yet, or on more such questions than may be asked \
                 within one another",
            ),
        }
    }
}

impl std::error::Error for EvaluationError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Author, PatternOptions, Variable};

    /// A request with one header, `A: aaa...!`.
    struct Request;

    impl Context for Request {
        fn variable(&self, _variable: Variable) -> Cow<'_, [u8]> {
            Cow::Borrowed(b"value")
        }

        fn request_header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
            let value = [b"a".repeat(60), b"!".to_vec()].concat();
            name.eq_ignore_ascii_case(b"A").then_some(Cow::Owned(value))
        }

        fn response_header(&self, _name: &[u8]) -> Option<Cow<'_, [u8]>> {
            None
        }

        fn request_environment(&self, _name: &[u8]) -> Option<Cow<'_, [u8]>> {
            None
        }

        fn note(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
            (name == b"long").then(|| Cow::Owned(vec![b' '; LONGEST / 2]))
        }

        fn client_address(&self) -> Option<IpAddr> {
            None
        }

        fn file_allowed(&self, path: &[u8]) -> Option<bool> {
            (path != b"/unknown").then_some(path == b"/file")
        }

        fn url_allowed(&self, url: &[u8]) -> Option<bool> {
            (url != b"/unknown").then_some(url == b"/url")
        }
    }

    fn condition(text: &str) -> Condition {
        Condition::compile(text, Author::Server).unwrap()
    }

    #[test]
    fn a_question_without_an_answer_is_no_answer() {
        let mut evaluation = Evaluation::new(&Request);
        for text in ["-U '/unknown'", "! (-U '/unknown')", "-F '/unknown' || true"] {
            let answer = evaluation.holds(&condition(text));
            assert!(matches!(answer, Err(EvaluationError::Unknown)), "{text}: {answer:?}");
        }
        assert_eq!(evaluation.holds(&condition("true || -U '/unknown'")), Ok(true));
    }

    #[test]
    fn headers_that_were_asked_for_are_reported_once() {
        let mut evaluation = Evaluation::new(&Request);
        let text = "-n req('b') || %{HTTP:A} == 'x' || http('a') == '' || \
                    req('host') == 'x' || %{HTTP_HOST} == 'x' || \
                    req_novary('C') == 'x' || %{HTTP_USER_AGENT} == '' || %{HTTP:D} == 'x'";
        assert_eq!(evaluation.holds(&condition(text)), Ok(true));
        assert_eq!(evaluation.vary(), [b"b".to_vec(), b"A".to_vec(), b"User-Agent".to_vec()]);
    }

    #[test]
    fn captures_go_in_and_come_out() {
        let mut evaluation = Evaluation::new(&Request);
        assert_eq!(evaluation.holds(&condition("'abc' =~ /(b)(c)/")), Ok(true));
        let text = Text::compile("<$2$1$0>", Author::Server).unwrap();
        assert_eq!(evaluation.text(&text), Ok(b"<cbbc>".to_vec()));
        let captures = evaluation.captures().clone();
        let mut later = Evaluation::with_captures(&Request, captures);
        assert_eq!(later.text(&text), Ok(b"<cbbc>".to_vec()));
        assert_eq!(later.holds(&condition("'abc' =~ /(x)/")), Ok(false));
        assert_eq!(later.text(&text), Ok(b"<>".to_vec()));
    }

    #[test]
    fn patterns_follow_the_default_options() {
        let options = PatternOptions { ignore_case: true, ..PatternOptions::default() };
        let text = "'ABC' =~ /b/";
        let blind = Condition::compile_with(text, Author::Server, options).unwrap();
        assert_eq!(blind.holds(&Request), Ok(true));
        assert_eq!(condition(text).holds(&Request), Ok(false));
    }

    #[test]
    fn what_goes_past_its_bounds_has_no_answer_either_way() {
        for text in ["%{HTTP:A} =~ /^(a+)+$/", "%{HTTP:A} !~ /^(a+)+$/", "! %{HTTP:A} =~ /^(a+)+$/"]
        {
            let answer = condition(text).holds(&Request);
            assert!(matches!(answer, Err(EvaluationError::Match(_))), "{text}: {answer:?}");
        }
        for text in ["%{escape:%{note:long}}", "%{note:long}%{note:long}x"] {
            let text = Text::compile(text, Author::Server).unwrap();
            assert_eq!(text.value(&Request), Err(EvaluationError::TooLong));
        }
    }

    #[test]
    fn the_server_is_asked_what_it_alone_knows() {
        assert_eq!(condition("-F '/file' && -U '/url' && -A '/url'").holds(&Request), Ok(true));
        assert_eq!(condition("-F '/url' || -U '/file' || -R '1'").holds(&Request), Ok(false));
        let text = Text::compile("%{file:/dev/none}", Author::Server).unwrap();
        let error = text.value(&Request).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.is_of_file()),
            ("Cannot open file /dev/none", true)
        );
        assert_eq!(Text::compile("a", Author::Server).unwrap().constant(), Some(&b"a"[..]));
        assert_eq!(text.constant(), None);
    }
}
