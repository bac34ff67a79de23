//! The compiled form of an expression: tests that are true or false, and words that are bytes. The
//! parser builds it and the evaluation walks it. Names are resolved and patterns are compiled at
//! this point.

use crate::function::Function;
use crate::glob::GlobStyle;
use crate::lexer::Relation;
use crate::pattern::Pattern;
use crate::subnet::Subnet;
use crate::variable::Variable;

/// A test that is true or false for a request.
#[derive(Debug)]
pub(crate) enum Test {
    Constant(bool),
    Not(Box<Test>),
    All(Vec<Test>),
    Any(Vec<Test>),
    Integers(Relation, Word, Word),
    Strings(Relation, Word, Word),
    /// The longer text is the greater one; texts of one length compare as bytes.
    ByLength(Relation, Word, Word),
    In(Word, Vec<Word>),
    Match {
        subject: Word,
        pattern: Box<Pattern>,
        negated: bool,
    },
    Glob {
        subject: Word,
        pattern: Word,
        style: GlobStyle,
    },
    AddressIn(Word, Subnet),
    ClientIn(Subnet),
    File(FileQuestion, Word),
    FileAllowed(Word),
    UrlAllowed(Word),
    Empty(Word),
    Filled(Word),
    Truthy(Word),
}

impl Test {
    /// The same test with the comparisons of SSLRequire's language (util_expr_eval.c,
    /// ssl_expr_eval_comp).
    pub(crate) fn by_length(self) -> Test {
        match self {
            Test::Integers(relation, a, b) | Test::Strings(relation, a, b) => {
                Test::ByLength(relation, a, b)
            }
            Test::Not(test) => Test::Not(Box::new(test.by_length())),
            Test::All(tests) => Test::All(tests.into_iter().map(Test::by_length).collect()),
            Test::Any(tests) => Test::Any(tests.into_iter().map(Test::by_length).collect()),
            other => other,
        }
    }
}

/// A question about a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FileQuestion {
    Directory,
    Exists,
    Regular,
    Filled,
    Symlink,
    Executable,
}

/// An expression for bytes.
#[derive(Debug)]
pub(crate) enum Word {
    Literal(Box<[u8]>),
    /// A number without quotes, which no operator accepts as an address.
    Digits(Box<[u8]>),
    Variable(Variable),
    /// An `SSL_*` variable.
    Session(Box<str>),
    Header(&'static str),
    Group(usize),
    Call(Function, Box<Word>),
    Concat(Vec<Word>),
}

impl Word {
    pub(crate) fn empty() -> Word {
        Word::Literal(Box::default())
    }

    /// Joins words to one. A chain of joins stays flat, so that a long one does not become deep.
    pub(crate) fn join(mut words: Vec<Word>) -> Word {
        match (words.len(), words.pop()) {
            (_, None) => Word::empty(),
            (1, Some(only)) => only,
            (_, Some(last)) => {
                words.push(last);
                Word::Concat(words)
            }
        }
    }
}
