//! The room `expr`: the text of an expression (`ap_expr`) comes in, a compiled [`Condition`] or
//! [`Text`] goes out, and an [`Evaluation`] asks it of one request through a [`Context`]. The
//! patterns, wildcards and subnets of the whole server are here too. Nothing here knows what a
//! request is, nothing is unbounded in time, depth or length, and nothing panics.
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

/// Who has written an expression, which decides what it may use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Author {
    /// That of the server's own configuration, who may read what the server reads.
    Server,
    /// That of an .htaccess file, who may not: `file()` and `filesize()` are refused.
    Htaccess,
}

/// An expression that is true or false, as in `<If>` and `Require expr`.
#[derive(Debug)]
pub struct Condition(tree::Test);

impl Condition {
    /// Compiles a condition.
    ///
    /// # Errors
    ///
    /// The configuration is to blame; the message is the one that Apache gives.
    pub fn compile(text: &str, author: Author) -> Result<Self, SyntaxError> {
        Self::compile_with(text, author, PatternOptions::default())
    }

    /// Compiles a condition whose patterns are read by the options of RegexDefaultOptions.
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

    /// Whether the condition holds for the request. Callers that want the captures or the headers
    /// for `Vary` use an [`Evaluation`].
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
    /// Compiles a text with variables in it.
    ///
    /// # Errors
    ///
    /// The configuration is to blame; the message is the one that Apache gives.
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

    /// The value where it is the same for every request, because nothing in it varies.
    #[must_use]
    pub fn constant(&self) -> Option<&[u8]> {
        match &self.0 {
            tree::Word::Literal(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// The text is no expression. Display gives the message without the directive's own words before
/// it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SyntaxError(String);

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SyntaxError {}
