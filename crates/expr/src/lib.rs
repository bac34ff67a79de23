//! Compiles expressions (`ap_expr`) to a [`Condition`] or a [`Text`]. An [`Evaluation`] evaluates
//! them for one request through a [`Context`]. The patterns, wildcards and subnets of the whole
//! server are here too. Nothing here knows what a request is. Time, depth and length are bounded
//! everywhere.
//!
//! ```
//! use evenkeel_expr::{Condition, Author};
//!
//! let condition = Condition::compile("%{REQUEST_URI} =~ m#^/old/#", Author::Server);
//! assert!(condition.is_ok());
//! let refused = Condition::compile("%{REQUEST_URL} == '/'", Author::Server).unwrap_err();
//! assert_eq!(refused.to_string(), "Variable 'REQUEST_URL' does not exist");
//! ```

mod anchor;
mod captures;
mod context;
mod evaluation;
mod function;
mod glob;
mod lexer;
mod literal;
mod parser;
mod pattern;
mod subnet;
mod tree;
mod variable;

pub use captures::{Captures, GROUPS};
pub use context::{Context, FILE_MOST, FileError};
pub use evaluation::{Evaluation, EvaluationError};
pub use glob::{Glob, GlobStyle, glob, is_glob};
pub use literal::{Part, Spent, Subject};
pub use pattern::{MatchError, Pattern, PatternError, PatternOptions};
pub use subnet::Subnet;
pub use variable::Variable;

use std::fmt;

/// The author of an expression, which determines what it may use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Author {
    /// The author of the server's configuration, who may read what the server can read.
    Server,
    /// The author of an .htaccess file, who may not: `file()` and `filesize()` are refused.
    Htaccess,
    /// The author of a page with server-side includes: the same, the tests of files (`-f` and its
    /// like) are refused too, and the function `v` is the environment of the page.
    Page,
}

/// An expression that is true or false, as in `<If>` and `Require expr`.
#[derive(Debug)]
pub struct Condition(tree::Test);

impl Condition {
    /// Compiles a condition.
    ///
    /// # Errors
    ///
    /// The configuration is at fault. The message is Apache's.
    pub fn compile(text: &str, author: Author) -> Result<Self, SyntaxError> {
        Self::compile_with(text, author, PatternOptions::default())
    }

    /// Compiles a condition. Its patterns have the options of RegexDefaultOptions.
    ///
    /// # Errors
    ///
    /// As for [`Condition::compile`].
    pub fn compile_with(
        text: &str,
        author: Author,
        patterns: PatternOptions,
    ) -> Result<Self, SyntaxError> {
        parser::condition(text, author, patterns).map(Self)
    }

    /// Compiles a condition in the language of SSLRequire, in which the longer of two texts is the
    /// greater one.
    ///
    /// # Errors
    ///
    /// As for [`Condition::compile`].
    pub fn compile_requirement(
        text: &str,
        author: Author,
        patterns: PatternOptions,
    ) -> Result<Self, SyntaxError> {
        parser::condition(text, author, patterns).map(|test| Self(test.by_length()))
    }

    /// Whether the condition holds for the request. Use an [`Evaluation`] to get the captures or
    /// the headers for `Vary` as well.
    ///
    /// # Errors
    ///
    /// The condition has no answer for this request.
    pub fn holds(&self, context: &dyn Context) -> Result<bool, EvaluationError> {
        Evaluation::new(context).holds(self)
    }
}

/// An expression that stands for bytes, as in `Header set NAME expr=...`.
#[derive(Debug)]
pub struct Text(tree::Word);

impl Text {
    /// Compiles a text with variables.
    ///
    /// # Errors
    ///
    /// The configuration is at fault. The message is Apache's.
    pub fn compile(text: &str, author: Author) -> Result<Self, SyntaxError> {
        parser::text(text, author).map(Self)
    }

    /// The bytes that the text stands for in the request.
    ///
    /// # Errors
    ///
    /// The text has no value for this request.
    pub fn value(&self, context: &dyn Context) -> Result<Vec<u8>, EvaluationError> {
        Evaluation::new(context).text(self)
    }

    /// The value, if it is the same for every request because it contains no variables.
    #[must_use]
    pub fn constant(&self) -> Option<&[u8]> {
        match &self.0 {
            tree::Word::Literal(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// The text is not a valid expression. Display prints the message without the words that the
/// directive puts before it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SyntaxError(String);

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SyntaxError {}
