//! Parses the tokens of an expression into a tree, or returns the message with which Apache refuses
//! the text. The grammar is that of server/util_expr_parse.y. A message lists what its tables list
//! as expected, which is nothing if more than four tokens are possible. An unknown name does not
//! stop the parser: the message is about the last such name, unless there is a syntax error.

use crate::function;
use crate::glob::GlobStyle;
use crate::lexer::{Lexer, Token};
use crate::pattern::{Pattern, PatternOptions};
use crate::subnet::Subnet;
use crate::tree::{FileQuestion, Test, Word};
use crate::variable::{self, Named};
use crate::{Author, SyntaxError};
use evenkeel_message::unquoted;

/// The deepest nesting of parentheses and functions. Real configurations do not come near it, and
/// an .htaccess file must not exhaust the stack.
const DEEPEST: usize = 100;

/// Compiles a condition.
pub(crate) fn condition(
    text: &str,
    author: Author,
    patterns: PatternOptions,
) -> Result<Test, SyntaxError> {
    let bytes = unquoted(text);
    let mut parser = Parser::start(Lexer::condition(&bytes), author);
    parser.patterns = patterns;
    let test = parser.any()?;
    match parser.token {
        Token::End => parser.finish(test),
        _ => Err(parser.unexpected(&["$end"])),
    }
}

/// Compiles a text with variables.
pub(crate) fn text(text: &str, author: Author) -> Result<Word, SyntaxError> {
    let bytes = unquoted(text);
    let mut parser = Parser::start(Lexer::text(&bytes), author);
    let mut words = Vec::new();
    loop {
        match &parser.token {
            Token::End => return parser.finish(Word::join(words)),
            Token::Error(message) if words.is_empty() => return Err(refuse(message)),
            _ => match parser.part()? {
                Some(word) => words.push(word),
                None => return Err(parser.unexpected(&["$end"])),
            },
        }
    }
}

fn refuse(message: impl Into<String>) -> SyntaxError {
    SyntaxError(message.into())
}

/// The tokens still to come. The first of them has been read.
struct Parser<'t> {
    lexer: Lexer<'t>,
    token: Token,
    author: Author,
    patterns: PatternOptions,
    depth: usize,
    /// The message about the last unknown name.
    stranger: Option<String>,
}

impl<'t> Parser<'t> {
    fn start(mut lexer: Lexer<'t>, author: Author) -> Self {
        let token = lexer.next();
        Self { lexer, token, author, patterns: PatternOptions::default(), depth: 0, stranger: None }
    }

    /// Takes the token and reads the next one.
    fn take(&mut self) -> Token {
        let next = self.lexer.next();
        std::mem::replace(&mut self.token, next)
    }

    /// Takes a token that is required here.
    fn expect(&mut self, wanted: &Token, expected: &[&str]) -> Result<(), SyntaxError> {
        if self.token != *wanted {
            return Err(self.unexpected(expected));
        }
        self.take();
        Ok(())
    }

    /// Returns what was parsed, unless there was an unknown name.
    fn finish<T>(self, parsed: T) -> Result<T, SyntaxError> {
        self.stranger.map_or(Ok(parsed), |stranger| Err(SyntaxError(stranger)))
    }

    /// Records an unknown name and returns a replacement with which parsing can continue.
    fn resolve<T>(&mut self, found: Result<T, String>, instead: impl FnOnce() -> T) -> T {
        found.unwrap_or_else(|message| {
            self.stranger = Some(message);
            instead()
        })
    }

    fn unexpected(&self, expected: &[&str]) -> SyntaxError {
        let mut message = format!("syntax error, unexpected {}", self.token.label());
        for (number, name) in expected.iter().enumerate() {
            message.push_str(if number == 0 { ", expecting " } else { " or " });
            message.push_str(name);
        }
        let cause = match &self.token {
            Token::Error(cause) => Some(cause),
            _ => self.stranger.as_ref(),
        };
        self.explain(message, cause)
    }

    fn explain(&self, message: String, cause: Option<&String>) -> SyntaxError {
        SyntaxError(cause.map_or(message.clone(), |cause| format!("{message}: {cause}")))
    }

    fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        if self.depth >= DEEPEST {
            return Err(refuse("Recursion limit reached"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// A disjunction: one or more conjunctions.
    fn any(&mut self) -> Result<Test, SyntaxError> {
        let first = self.all()?;
        let mut tests = vec![first];
        while self.token == Token::Or {
            self.take();
            tests.push(self.all()?);
        }
        Ok(if tests.len() > 1 { Test::Any(tests) } else { single(tests) })
    }

    /// A conjunction: one or more tests.
    fn all(&mut self) -> Result<Test, SyntaxError> {
        let first = self.unit()?;
        let mut tests = vec![first];
        while self.token == Token::And {
            self.take();
            tests.push(self.unit()?);
        }
        Ok(if tests.len() > 1 { Test::All(tests) } else { single(tests) })
    }

    /// One test. Its negations are counted and not nested.
    fn unit(&mut self) -> Result<Test, SyntaxError> {
        let mut negated = false;
        while self.token == Token::Not {
            self.take();
            negated = !negated;
        }
        let test = match &self.token {
            Token::True | Token::False => Test::Constant(self.take() == Token::True),
            Token::Error(message) => return Err(refuse(message)),
            Token::Mark('(') => {
                self.take();
                let test = self.deeper(Self::any)?;
                self.expect(&Token::Mark(')'), &["T_OP_OR", "T_OP_AND", "')'"])?;
                test
            }
            Token::Unary(letter) => {
                let letter = *letter;
                self.take();
                let word = self.word()?;
                let test = unary(letter, word, self.author);
                self.resolve(test, || Test::Constant(false))
            }
            _ => self.comparison()?,
        };
        Ok(if negated { Test::Not(Box::new(test)) } else { test })
    }

    /// A word, an operator and the operator's operand.
    fn comparison(&mut self) -> Result<Test, SyntaxError> {
        let left = self.word()?;
        let operator = match &self.token {
            Token::Integers(_)
            | Token::Strings(_)
            | Token::Match
            | Token::Mismatch
            | Token::In
            | Token::Binary(_) => self.take(),
            _ => return Err(self.unexpected(&[])),
        };
        match operator {
            Token::Integers(relation) => Ok(Test::Integers(relation, left, self.word()?)),
            Token::Strings(relation) => Ok(Test::Strings(relation, left, self.word()?)),
            Token::In => Ok(Test::In(left, self.list()?)),
            Token::Binary(name) => {
                let test = binary(&name, left, self.word()?);
                Ok(self.resolve(test, || Test::Constant(false)))
            }
            other => {
                let pattern = Box::new(self.pattern()?);
                Ok(Test::Match { subject: left, pattern, negated: other == Token::Mismatch })
            }
        }
    }

    fn pattern(&mut self) -> Result<Pattern, SyntaxError> {
        let Token::Regex { text, ignore_case } = &self.token else {
            return Err(self.unexpected(&["T_REGEX", "T_REGEX_I"]));
        };
        let ignore_case = *ignore_case || self.patterns.ignore_case;
        let options = PatternOptions { ignore_case, ..self.patterns };
        let Ok(pattern) = Pattern::compile(text, options) else {
            let message = "Failed to compile regular expression".to_owned();
            return Err(self.explain(message, self.stranger.as_ref()));
        };
        self.take();
        Ok(pattern)
    }

    /// The words in braces. The functions that return lists belong to modules that do not exist
    /// here.
    fn list(&mut self) -> Result<Vec<Word>, SyntaxError> {
        if let Token::Name(name) = &self.token {
            let name = name.clone();
            self.take();
            self.argument()?;
            self.stranger = Some(format!("List-returning function '{name}' does not exist"));
            return Ok(Vec::new());
        }
        self.expect(&Token::Mark('{'), &["T_ID", "'{'"])?;
        let mut words = vec![self.word()?];
        while self.token == Token::Mark(',') {
            self.take();
            words.push(self.word()?);
        }
        self.expect(&Token::Mark('}'), &["'}'", "','"])?;
        Ok(words)
    }

    /// One or more words joined by dots.
    fn word(&mut self) -> Result<Word, SyntaxError> {
        let mut words = vec![self.single_word()?];
        while self.token == Token::Concat {
            self.take();
            words.push(self.single_word()?);
        }
        Ok(Word::join(words))
    }

    fn single_word(&mut self) -> Result<Word, SyntaxError> {
        match &self.token {
            Token::Digits(digits) => {
                let word = Word::Digits(digits.as_bytes().into());
                self.take();
                Ok(word)
            }
            Token::Name(name) => {
                let name = name.clone();
                self.take();
                let argument = self.argument()?;
                Ok(self.call(&name, argument))
            }
            Token::StringBegin => {
                self.take();
                self.string()
            }
            Token::Group(_) | Token::VariableBegin => match self.part()? {
                Some(word) => Ok(word),
                None => Err(self.unexpected(&[])),
            },
            _ => Err(self.unexpected(&[])),
        }
    }

    fn call(&mut self, name: &str, argument: Word) -> Word {
        let function = function::find(name, self.author);
        let call = function.map(|function| Word::Call(function, Box::new(argument)));
        self.resolve(call, Word::empty)
    }

    /// A word in parentheses after the name of a function.
    fn argument(&mut self) -> Result<Word, SyntaxError> {
        self.expect(&Token::Mark('('), &["'('"])?;
        let word = self.deeper(Self::word)?;
        self.expect(&Token::Mark(')'), &["T_OP_CONCAT", "')'"])?;
        Ok(word)
    }

    /// The parts of a string up to its closing quote.
    fn string(&mut self) -> Result<Word, SyntaxError> {
        let mut words = Vec::new();
        loop {
            match &self.token {
                Token::StringEnd => {
                    self.take();
                    return Ok(Word::join(words));
                }
                Token::Error(message) if words.is_empty() => return Err(refuse(message)),
                _ => {}
            }
            match self.part()? {
                Some(word) => words.push(word),
                None if words.is_empty() => return Err(self.unexpected(&[])),
                None => {
                    let expected = ["T_STRING", "T_REGEX_BACKREF", "T_STR_END", "T_VAR_BEGIN"];
                    return Err(self.unexpected(&expected));
                }
            }
        }
    }

    /// One part of a string: text, a group or a variable. None if there is no further part.
    fn part(&mut self) -> Result<Option<Word>, SyntaxError> {
        match &mut self.token {
            Token::Text(text) => {
                let word = Word::Literal(std::mem::take(text).into());
                self.take();
                Ok(Some(word))
            }
            Token::Group(number) => {
                let word = Word::Group(usize::from(*number));
                self.take();
                Ok(Some(word))
            }
            Token::VariableBegin => {
                self.take();
                self.deeper(Self::variable).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The name of a variable, or of a function with its argument, up to the closing brace.
    fn variable(&mut self) -> Result<Word, SyntaxError> {
        let Token::Name(name) = &self.token else { return Err(self.unexpected(&["T_ID"])) };
        let name = name.clone();
        self.take();
        if self.token == Token::VariableEnd {
            self.take();
            let word = match variable::find(&name) {
                Some(Named::Header(header)) => Ok(Word::Header(header)),
                Some(Named::Variable(variable)) => Ok(Word::Variable(variable)),
                None if variable::is_of_session(&name) => Ok(Word::Session(name.as_str().into())),
                None => Err(format!("Variable '{name}' does not exist")),
            };
            return Ok(self.resolve(word, Word::empty));
        }
        self.expect(&Token::Mark(':'), &["T_VAR_END", "':'"])?;
        let mut words = Vec::new();
        loop {
            match &self.token {
                Token::VariableEnd if !words.is_empty() => {
                    self.take();
                    return Ok(self.call(&name, Word::join(words)));
                }
                Token::Error(message) if words.is_empty() => return Err(refuse(message)),
                _ => {}
            }
            match self.part()? {
                Some(word) => words.push(word),
                None => {
                    let first = ["T_ERROR", "T_STRING", "T_REGEX_BACKREF", "T_VAR_BEGIN"];
                    let later = ["T_STRING", "T_REGEX_BACKREF", "T_VAR_BEGIN", "T_VAR_END"];
                    let expected = if words.is_empty() { first } else { later };
                    return Err(self.unexpected(&expected));
                }
            }
        }
    }
}

/// The only test of the list.
fn single(tests: Vec<Test>) -> Test {
    tests.into_iter().next().unwrap_or(Test::Constant(false))
}

/// The test for an operator of one letter. Its case matters. The author of a page may not ask about
/// files: a page may put words of its client into the question (util_expr_eval.c:
/// RESTRICTED_FILE_TEST).
fn unary(letter: char, word: Word, author: Author) -> Result<Test, String> {
    if author == Author::Page && "defsLhx".contains(letter) {
        return Err(format!("-{letter} not available in restricted context"));
    }
    let question = match letter {
        'd' => FileQuestion::Directory,
        'e' => FileQuestion::Exists,
        'f' => FileQuestion::Regular,
        's' => FileQuestion::Filled,
        'L' | 'h' => FileQuestion::Symlink,
        'x' => FileQuestion::Executable,
        'F' => return Ok(Test::FileAllowed(word)),
        'U' | 'A' => return Ok(Test::UrlAllowed(word)),
        'n' => return Ok(Test::Filled(word)),
        'z' => return Ok(Test::Empty(word)),
        'T' => return Ok(Test::Truthy(word)),
        'R' => return Ok(Test::ClientIn(subnet("R", &word)?)),
        _ => return Err(format!("Unary operator '-{letter}' does not exist")),
    };
    Ok(Test::File(question, word))
}

/// The test for a named operator, in any case.
fn binary(name: &str, left: Word, right: Word) -> Result<Test, String> {
    let style = match name.to_ascii_lowercase().as_str() {
        "ipmatch" => return Ok(Test::AddressIn(left, subnet("ipmatch", &right)?)),
        "strmatch" => GlobStyle::default(),
        "strcmatch" => GlobStyle { ignore_case: true, ..GlobStyle::default() },
        "fnmatch" => GlobStyle { path: true, ..GlobStyle::default() },
        _ => return Err(format!("Binary operator '-{name}' does not exist")),
    };
    Ok(Test::Glob { subject: left, pattern: right, style })
}

/// The subnet that a string without variables stands for.
fn subnet(operator: &str, word: &Word) -> Result<Subnet, String> {
    let Word::Literal(text) = word else {
        return Err(format!("-{operator} requires subnet/netmask as constant argument"));
    };
    let subnet = std::str::from_utf8(text).ok().and_then(Subnet::parse);
    subnet.ok_or_else(|| "parsing of subnet/netmask failed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(text: &str, author: Author) -> Result<Test, SyntaxError> {
        super::condition(text, author, PatternOptions::default())
    }

    fn refusal(text: &str) -> String {
        condition(text, Author::Server).unwrap_err().to_string()
    }

    #[test]
    fn depth_is_bounded_and_length_is_not() {
        let nested = |depth: usize| "(".repeat(depth) + "true" + &")".repeat(depth);
        assert!(condition(&nested(DEEPEST), Author::Server).is_ok());
        assert_eq!(refusal(&nested(DEEPEST + 1)), "Recursion limit reached");
        let calls = |depth: usize| "md5(".repeat(depth) + "'a'" + &")".repeat(depth) + " == ''";
        assert!(condition(&calls(DEEPEST), Author::Server).is_ok());
        assert_eq!(refusal(&calls(DEEPEST + 1)), "Recursion limit reached");
        let braces = "%{tolower:".repeat(10_000);
        assert_eq!(text(&braces, Author::Server).unwrap_err().0, "Recursion limit reached");
        let long = "true && ".repeat(10_000) + &"! ".repeat(10_000) + "true";
        assert!(condition(&long, Author::Server).is_ok());
        let joined = "'a' . ".repeat(10_000) + "'a' == 'b'";
        assert!(condition(&joined, Author::Server).is_ok());
    }

    #[test]
    fn htaccess_files_are_refused_what_reads_files() {
        for text in ["file('/etc/passwd') == 'a'", "'%{filesize:/etc/passwd}' -gt 0"] {
            assert!(condition(text, Author::Server).is_ok());
            let error = condition(text, Author::Htaccess).unwrap_err();
            assert!(error.0.ends_with(" not available in restricted context"), "{error}");
        }
        assert!(condition("-f '/etc/passwd'", Author::Htaccess).is_ok());
    }

    #[test]
    fn pages_are_refused_what_asks_about_files() {
        for letter in ["d", "e", "f", "s", "L", "h", "x"] {
            let error = condition(&format!("-{letter} '/etc/passwd'"), Author::Page).unwrap_err();
            assert_eq!(error.0, format!("-{letter} not available in restricted context"));
        }
        for text in ["-n 'a'", "-z 'a'", "-T 'on'", "-R '10.0.0.0/8'", "-U '/a'", "-F '/a'"] {
            assert!(condition(text, Author::Page).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_backslash_at_the_end_is_an_error_like_any_other() {
        assert_eq!(refusal("'a\\"), "Unterminated string or variable");
        assert_eq!(text("a\\", Author::Server).unwrap_err().0, "Unterminated string or variable");
    }
}
