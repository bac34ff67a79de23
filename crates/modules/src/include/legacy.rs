//! The expressions of SSILegacyExprParser, which are those of Apache 2.2 (mod_include.c:
//! get_ptoken, parse_expr): strings, comparisons, `&&` and `||` of equal rank, which bind to the
//! right.

use super::parser::is_space;

/// The deepest nesting of parentheses and operators.
const DEEPEST: usize = 100;

/// What an expression asks while it is evaluated.
pub trait Answers {
    /// A string with its variables replaced.
    fn expanded(&mut self, text: &[u8]) -> Vec<u8>;
    /// Whether a string matches a pattern, whose groups are kept. A pattern that cannot be compiled
    /// counts as a match.
    fn matches(&mut self, text: &[u8], pattern: &[u8]) -> bool;
    /// Whether a request for a URL would be allowed (`-A`).
    fn allows(&mut self, url: &[u8]) -> bool;
}

/// What is wrong with an expression: Apache's number and text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid(pub u16, pub &'static str);

const INVALID: Invalid = Invalid(3188, "Invalid expression");
const NO_REGEX_OPERATOR: Invalid = Invalid(3190, "No operator before regex in expr");
const UNMATCHED_OPEN: Invalid = Invalid(3191, "Unmatched '(' in");
const UNMATCHED_CLOSE: Invalid = Invalid(3189, "Unmatched ')' in");

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    String(Vec<u8>),
    Regex(Vec<u8>),
    And,
    Or,
    Not,
    Access,
    Open,
    Close,
    Compare(Comparison),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    AtLeast,
    AtMost,
    Above,
    Below,
}

enum Node {
    String(Vec<u8>),
    Regex(Vec<u8>),
    Not(Option<Box<Node>>),
    Access(Option<Box<Node>>),
    Group(Option<Box<Node>>),
    /// A parenthesis that is never closed.
    Unclosed,
    Compare(Comparison, Vec<u8>, Option<Box<Node>>),
    Both {
        is_and: bool,
        left: Box<Node>,
        right: Option<Box<Node>>,
    },
}

/// A parsed expression.
pub struct Expression {
    root: Option<Node>,
    regexes: usize,
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// It has no meaning.
    pub fn parse(text: &[u8]) -> Result<Self, Invalid> {
        let mut tokens = tokens(text);
        tokens.reverse();
        let is_regex = |token: &&Token| matches!(token, Token::Regex(_));
        let regexes = tokens.iter().filter(is_regex).count();
        let mut parser = Parser { tokens, depth: 0 };
        if parser.tokens.is_empty() {
            return Ok(Self { root: None, regexes });
        }
        let root = parser.chain(false)?;
        match parser.tokens.last() {
            None => Ok(Self { root: Some(root), regexes }),
            Some(Token::Close) => Err(UNMATCHED_CLOSE),
            Some(_) => Err(INVALID),
        }
    }

    /// Evaluates the expression. Without a regular expression left to try, the right side of an
    /// operator is left out where the left side decides.
    ///
    /// # Errors
    /// A part that is evaluated has no meaning.
    pub fn evaluate(&self, answers: &mut dyn Answers) -> Result<bool, Invalid> {
        let Some(root) = &self.root else { return Ok(false) };
        let mut regexes = self.regexes;
        evaluate(root, &mut regexes, answers)
    }
}

struct Parser {
    /// The tokens that are left, the next one last.
    tokens: Vec<Token>,
    depth: usize,
}

impl Parser {
    fn chain(&mut self, is_inside: bool) -> Result<Node, Invalid> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(INVALID);
        }
        let left = self.unit(is_inside)?;
        let is_and = match self.tokens.last() {
            Some(Token::And) => true,
            Some(Token::Or) => false,
            _ => {
                self.depth -= 1;
                return Ok(left);
            }
        };
        self.tokens.pop();
        let right = match self.tokens.last() {
            None => None,
            Some(Token::Close) if is_inside => None,
            Some(_) => Some(Box::new(self.chain(is_inside)?)),
        };
        self.depth -= 1;
        Ok(Node::Both { is_and, left: Box::new(left), right })
    }

    fn unit(&mut self, is_inside: bool) -> Result<Node, Invalid> {
        match self.tokens.pop() {
            Some(Token::String(text)) => self.comparison(text, is_inside),
            Some(Token::Not) => Ok(Node::Not(self.operand(is_inside)?)),
            Some(Token::Access) => Ok(Node::Access(self.operand(is_inside)?)),
            Some(Token::Open) => self.group(),
            Some(Token::Close) => Err(if is_inside { INVALID } else { UNMATCHED_CLOSE }),
            _ => Err(INVALID),
        }
    }

    /// Joins the strings that follow each other.
    fn joined(&mut self, mut text: Vec<u8>) -> Vec<u8> {
        while let Some(Token::String(_)) = self.tokens.last() {
            let Some(Token::String(next)) = self.tokens.pop() else { break };
            if !text.is_empty() {
                text.push(b' ');
            }
            text.extend_from_slice(&next);
        }
        text
    }

    fn comparison(&mut self, text: Vec<u8>, is_inside: bool) -> Result<Node, Invalid> {
        let text = self.joined(text);
        let Some(Token::Compare(comparison)) = self.tokens.last() else {
            return Ok(Node::String(text));
        };
        let comparison = *comparison;
        self.tokens.pop();
        let right = match self.tokens.last() {
            Some(Token::Regex(pattern))
                if matches!(comparison, Comparison::Equal | Comparison::Unequal) =>
            {
                let pattern = pattern.clone();
                self.tokens.pop();
                Some(Box::new(Node::Regex(pattern)))
            }
            _ => self.operand(is_inside)?,
        };
        Ok(Node::Compare(comparison, text, right))
    }

    /// What stands behind an operator of one side: a string is compared with nothing.
    fn operand(&mut self, is_inside: bool) -> Result<Option<Box<Node>>, Invalid> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(INVALID);
        }
        let operand = match self.tokens.last() {
            None => None,
            Some(Token::Close) if is_inside => None,
            Some(Token::String(_)) => {
                let Some(Token::String(text)) = self.tokens.pop() else { return Err(INVALID) };
                Some(Box::new(Node::String(self.joined(text))))
            }
            Some(_) => Some(Box::new(self.unit(is_inside)?)),
        };
        self.depth -= 1;
        Ok(operand)
    }

    fn group(&mut self) -> Result<Node, Invalid> {
        let inner = match self.tokens.last() {
            None | Some(Token::Close) => None,
            Some(_) => Some(Box::new(self.chain(true)?)),
        };
        match self.tokens.last() {
            Some(Token::Close) => {
                self.tokens.pop();
                Ok(Node::Group(inner))
            }
            None => Ok(Node::Unclosed),
            Some(_) => Err(INVALID),
        }
    }
}

fn evaluate(node: &Node, regexes: &mut usize, ask: &mut dyn Answers) -> Result<bool, Invalid> {
    match node {
        Node::String(text) => Ok(!ask.expanded(text).is_empty()),
        Node::Regex(_) => Err(NO_REGEX_OPERATOR),
        Node::Unclosed => Err(UNMATCHED_OPEN),
        Node::Not(None) => Ok(false),
        Node::Group(None) => Ok(true),
        Node::Not(Some(inner)) => Ok(!evaluate(inner, regexes, ask)?),
        Node::Group(Some(inner)) => evaluate(inner, regexes, ask),
        Node::Access(inner) => match inner.as_deref() {
            Some(Node::String(text)) => {
                let url = ask.expanded(text);
                Ok(ask.allows(&url))
            }
            _ => {
                let text = "Token '-A' must be followed by a URI string in expression";
                Err(Invalid(1335, text))
            }
        },
        Node::Compare(comparison, left, right) => {
            compare(*comparison, left, right.as_deref(), regexes, ask)
        }
        Node::Both { right: None, .. } => Err(Invalid(1332, "Invalid expression")),
        Node::Both { is_and, left, right: Some(right) } => {
            let first = evaluate(left, regexes, ask)?;
            if *regexes == 0 && first != *is_and {
                return Ok(first);
            }
            let second = evaluate(right, regexes, ask)?;
            Ok(if *is_and { first && second } else { first || second })
        }
    }
}

fn compare(
    comparison: Comparison,
    left: &[u8],
    right: Option<&Node>,
    regexes: &mut usize,
    ask: &mut dyn Answers,
) -> Result<bool, Invalid> {
    let is_equality = matches!(comparison, Comparison::Equal | Comparison::Unequal);
    let left = ask.expanded(left);
    let order = match right {
        Some(Node::Regex(pattern)) => {
            let pattern = ask.expanded(pattern);
            *regexes = regexes.saturating_sub(1);
            let matches = ask.matches(&left, &pattern);
            return Ok(matches == (comparison == Comparison::Equal));
        }
        Some(Node::String(right)) => left.cmp(&ask.expanded(right)),
        _ => return Err(Invalid(if is_equality { 1333 } else { 1334 }, "Invalid expression")),
    };
    Ok(match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::Unequal => order.is_ne(),
        Comparison::AtLeast => order.is_ge(),
        Comparison::AtMost => order.is_le(),
        Comparison::Above => order.is_gt(),
        Comparison::Below => order.is_lt(),
    })
}

/// Splits an expression into its tokens.
fn tokens(text: &[u8]) -> Vec<Token> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    loop {
        while let [byte, behind @ ..] = rest
            && is_space(*byte)
        {
            rest = behind;
        }
        let is_path = tokens.last() == Some(&Token::Access);
        let (token, behind) = match rest {
            [] => return tokens,
            [b'(', behind @ ..] => (Token::Open, behind),
            [b')', behind @ ..] => (Token::Close, behind),
            [b'=', b'=', behind @ ..] | [b'=', behind @ ..] => {
                (Token::Compare(Comparison::Equal), behind)
            }
            [b'!', b'=', behind @ ..] => (Token::Compare(Comparison::Unequal), behind),
            [b'!', behind @ ..] => (Token::Not, behind),
            [b'|', b'|', behind @ ..] => (Token::Or, behind),
            [b'&', b'&', behind @ ..] => (Token::And, behind),
            [b'>', b'=', behind @ ..] => (Token::Compare(Comparison::AtLeast), behind),
            [b'>', behind @ ..] => (Token::Compare(Comparison::Above), behind),
            [b'<', b'=', behind @ ..] => (Token::Compare(Comparison::AtMost), behind),
            [b'<', behind @ ..] => (Token::Compare(Comparison::Below), behind),
            [b'-', b'A', behind @ ..] => (Token::Access, behind),
            [b'\'', behind @ ..] => {
                let (text, behind) = quoted(behind, b'\'');
                (Token::String(text), behind)
            }
            [b'/', behind @ ..] if !is_path => {
                let (text, behind) = quoted(behind, b'/');
                (Token::Regex(text), behind)
            }
            rest => {
                let (text, behind) = bare(rest);
                (Token::String(text), behind)
            }
        };
        tokens.push(token);
        rest = behind;
    }
}

/// A text up to its quote, without backslashes; empty if the quote is missing.
fn quoted(text: &[u8], quote: u8) -> (Vec<u8>, &[u8]) {
    let (mut out, mut rest) = (Vec::new(), text);
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match (byte, behind) {
            (byte, _) if *byte == quote => return (out, behind),
            (b'\\', [escaped, after @ ..]) => {
                out.push(*escaped);
                rest = after;
            }
            (b'\\', []) => {}
            (byte, _) => out.push(*byte),
        }
    }
    (Vec::new(), rest)
}

/// A text up to a space or an operator, without backslashes.
fn bare(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let (mut out, mut rest) = (Vec::new(), text);
    while let [byte, behind @ ..] = rest {
        let is_doubled = matches!(byte, b'|' | b'&') && behind.first() == Some(byte);
        match (byte, behind) {
            (byte, _) if is_space(*byte) || is_doubled || b"()=!<>".contains(byte) => break,
            (b'\\', [escaped, after @ ..]) => {
                out.push(*escaped);
                rest = after;
            }
            (byte, behind) => {
                if *byte != b'\\' {
                    out.push(*byte);
                }
                rest = behind;
            }
        }
    }
    (out, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Plain(usize);

    impl Answers for Plain {
        fn expanded(&mut self, text: &[u8]) -> Vec<u8> {
            if text == b"$empty" { Vec::new() } else { text.to_vec() }
        }

        fn matches(&mut self, text: &[u8], pattern: &[u8]) -> bool {
            self.0 += 1;
            text == pattern
        }

        fn allows(&mut self, url: &[u8]) -> bool {
            url == b"/open"
        }
    }

    fn value(text: &str) -> Result<bool, u16> {
        let parsed = Expression::parse(text.as_bytes()).map_err(|invalid| invalid.0)?;
        parsed.evaluate(&mut Plain(0)).map_err(|invalid| invalid.0)
    }

    #[test]
    fn expressions_have_values() {
        for (text, wanted) in [
            ("", false),
            ("a", true),
            ("$empty", false),
            ("!$empty", true),
            ("!!a", true),
            ("a = a", true),
            ("a=b", false),
            ("a b = 'a b'", true),
            ("a != b", true),
            ("a < b && b >= b", true),
            ("b<a||a>b", false),
            ("(a = a)", true),
            ("()", true),
            ("!", false),
            ("a = /a/", true),
            ("a = /b/ || a != /b/", true),
            ("-A /open", true),
            ("-A /shut", false),
            ("!(a = b) && (c || $empty)", true),
            ("a\\=b = 'a=b'", true),
            ("'it\\'s' = it\\'s", true),
            ("$empty && a || a", false),
            ("a || $empty && $empty", true),
            ("''", false),
        ] {
            assert_eq!(value(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn faults_have_the_numbers_of_apache() {
        for (text, number) in [
            ("= a", 3188),
            ("&& a", 3188),
            ("a = b = c", 3188),
            ("! a = b", 3188),
            ("(a) b", 3188),
            ("a !b", 3188),
            ("a)", 3189),
            (")", 3189),
            ("/a/", 3188),
            ("(a", 3191),
            ("a &&", 1332),
            ("a =", 1333),
            ("a <", 1334),
            ("a = !b", 1333),
            ("-A", 1335),
            ("-A (x)", 1335),
            ("a < /b/", 3188),
        ] {
            assert_eq!(value(text), Err(number), "{text}");
        }
        assert_eq!(value(&"(".repeat(1000)), Err(3188));
        assert!(value(&format!("{}a", "!".repeat(90))).is_ok());
    }

    #[test]
    fn a_pattern_is_tried_even_where_the_left_side_decides() {
        let mut plain = Plain(0);
        let parsed = Expression::parse(b"a || a = /b/").unwrap();
        assert_eq!((parsed.evaluate(&mut plain), plain.0), (Ok(true), 1));
    }
}
