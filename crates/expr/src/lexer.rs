//! Splits the text of an expression into tokens. The meaning of a byte depends on its place:
//! between operators, in a string, in the name of a variable or in the argument of a function. The
//! rules, and the names of tokens in messages, are those of Apache's server/util_expr_scan.l. Text
//! that no rule accepts becomes one error token, after which the lexer must not be used.

use evenkeel_message::quoted;

/// A comparison of two words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Token {
    End,
    True,
    False,
    Error(String),
    Digits(String),
    Name(String),
    Text(Vec<u8>),
    Regex {
        text: String,
        ignore_case: bool,
    },
    Group(u8),
    Unary(char),
    Binary(String),
    StringBegin,
    StringEnd,
    VariableBegin,
    VariableEnd,
    Integers(Relation),
    Strings(Relation),
    Match,
    Mismatch,
    In,
    Concat,
    Or,
    And,
    Not,
    /// One of `( ) { } , :`.
    Mark(char),
}

impl Token {
    /// The name of the token in messages.
    pub(crate) fn label(&self) -> String {
        let relation = |relation: &Relation| match relation {
            Relation::Equal => "EQ",
            Relation::NotEqual => "NE",
            Relation::Less => "LT",
            Relation::LessOrEqual => "LE",
            Relation::Greater => "GT",
            Relation::GreaterOrEqual => "GE",
        };
        let fixed = match self {
            Token::Integers(kind) => return format!("T_OP_{}", relation(kind)),
            Token::Strings(kind) => return format!("T_OP_STR_{}", relation(kind)),
            Token::Mark(mark) => return format!("'{mark}'"),
            Token::End => "$end",
            Token::True => "T_TRUE",
            Token::False => "T_FALSE",
            Token::Error(_) => "T_ERROR",
            Token::Digits(_) => "T_DIGIT",
            Token::Name(_) => "T_ID",
            Token::Text(_) => "T_STRING",
            Token::Regex { ignore_case: false, .. } => "T_REGEX",
            Token::Regex { ignore_case: true, .. } => "T_REGEX_I",
            Token::Group(_) => "T_REGEX_BACKREF",
            Token::Unary(_) => "T_OP_UNARY",
            Token::Binary(_) => "T_OP_BINARY",
            Token::StringBegin => "T_STR_BEGIN",
            Token::StringEnd => "T_STR_END",
            Token::VariableBegin => "T_VAR_BEGIN",
            Token::VariableEnd => "T_VAR_END",
            Token::Match => "T_OP_REG",
            Token::Mismatch => "T_OP_NRE",
            Token::In => "T_OP_IN",
            Token::Concat => "T_OP_CONCAT",
            Token::Or => "T_OP_OR",
            Token::And => "T_OP_AND",
            Token::Not => "T_OP_NOT",
        };
        fixed.to_owned()
    }
}

/// The place of the lexer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scope {
    /// Between operators.
    Condition,
    /// In a text that ends with the expression.
    Text,
    /// In a string that ends with this quote.
    Quoted(u8),
    /// In the name of a variable or function.
    Name,
    /// In the argument of a function, after the colon.
    Argument,
}

const UNTERMINATED: &str = "Unterminated string or variable";

/// The delimiters of a pattern that follows an `m`.
const DELIMITERS: &[u8] = b"/#$%^|?!'\",;:.-";

/// The operators of a condition that are not names, longest first.
const OPERATORS: &[(&[u8], Token)] = &[
    (b"==", Token::Strings(Relation::Equal)),
    (b"!=", Token::Strings(Relation::NotEqual)),
    (b"<=", Token::Strings(Relation::LessOrEqual)),
    (b">=", Token::Strings(Relation::GreaterOrEqual)),
    (b"=~", Token::Match),
    (b"!~", Token::Mismatch),
    (b"&&", Token::And),
    (b"||", Token::Or),
    (b"=", Token::Strings(Relation::Equal)),
    (b"<", Token::Strings(Relation::Less)),
    (b">", Token::Strings(Relation::Greater)),
    (b"!", Token::Not),
    (b".", Token::Concat),
    (b"(", Token::Mark('(')),
    (b")", Token::Mark(')')),
    (b"{", Token::Mark('{')),
    (b"}", Token::Mark('}')),
    (b",", Token::Mark(',')),
    (b":", Token::Mark(':')),
];

/// The text still to be read, and the enclosing scopes, innermost last.
pub(crate) struct Lexer<'t> {
    rest: &'t [u8],
    scopes: Vec<Scope>,
}

impl<'t> Lexer<'t> {
    /// A lexer for a condition.
    pub(crate) fn condition(text: &'t [u8]) -> Self {
        Self { rest: text, scopes: vec![Scope::Condition] }
    }

    /// A lexer for a text with variables.
    pub(crate) fn text(text: &'t [u8]) -> Self {
        Self { rest: text, scopes: vec![Scope::Text] }
    }

    /// The next token. Once the text is used up, always the end.
    pub(crate) fn next(&mut self) -> Token {
        match self.scopes.last().copied() {
            Some(Scope::Quoted(quote)) => self.string(Some(quote)),
            Some(Scope::Text) => self.string(None),
            Some(Scope::Argument) => self.string(Some(b'}')),
            Some(Scope::Name) => self.name_or_mark(),
            Some(Scope::Condition) | None => self.operator_or_word(),
        }
    }

    /// The rules between operators.
    fn operator_or_word(&mut self) -> Token {
        self.take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n'));
        let Some(head) = self.rest.first().copied() else { return Token::End };
        let second = self.rest.get(1).copied().unwrap_or_default();
        match (head, second) {
            (b'%', b'{') => self.begin(2, Scope::Name, Token::VariableBegin),
            (b'\'' | b'"', _) => self.begin(1, Scope::Quoted(head), Token::StringBegin),
            (b'$', b'0'..=b'9') => self.emit(2, Token::Group(second - b'0')),
            (b'/', _) => self.pattern(1, b'/'),
            (b'm', _) if DELIMITERS.contains(&second) => self.pattern(2, second),
            (b'0'..=b'9', _) | (b'-', b'0'..=b'9') => {
                let sign = if head == b'-' { self.take(1) } else { b"" };
                let digits = self.take_while(|byte| byte.is_ascii_digit());
                Token::Digits(ascii(sign) + &ascii(digits))
            }
            (b'-', _) if second.is_ascii_alphabetic() || second == b'_' => self.dashed(),
            _ if head.is_ascii_alphabetic() => self.word(),
            _ => {
                let known = OPERATORS.iter().find(|(text, _)| self.rest.starts_with(text));
                match known {
                    Some((text, token)) => self.emit(text.len(), token.clone()),
                    None => self.fail(format!("Parse error near '{}'", self.head_as_text())),
                }
            }
        }
    }

    /// A word that begins with a letter: a keyword, whose case matters, or the name of a function.
    fn word(&mut self) -> Token {
        let word = ascii(self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
        match word.as_str() {
            "true" => Token::True,
            "false" => Token::False,
            "and" => Token::And,
            "or" => Token::Or,
            "not" => Token::Not,
            "in" => Token::In,
            other => relation(other).map_or(Token::Name(word), Token::Integers),
        }
    }

    /// An operator that begins with a dash.
    fn dashed(&mut self) -> Token {
        self.take(1);
        let word = ascii(self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
        let mut letters = word.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) => Token::Unary(letter),
            _ if word == "in" => Token::In,
            _ => relation(&word).map_or(Token::Binary(word), Token::Integers),
        }
    }

    /// A pattern up to its delimiter, which cannot be escaped, and its flag.
    fn pattern(&mut self, skip: usize, delimiter: u8) -> Token {
        self.take(skip);
        let text = self.take_while(|byte| byte != delimiter);
        if self.rest.is_empty() {
            return Token::End;
        }
        self.take(1);
        let ignore_case = self.rest.first() == Some(&b'i');
        self.take(usize::from(ignore_case));
        // Delimiters are ASCII, so this text consists of whole characters.
        Token::Regex { text: quoted(text).into_owned(), ignore_case }
    }

    /// The rules between `%{` and the colon or the closing brace.
    fn name_or_mark(&mut self) -> Token {
        match self.rest.first().copied() {
            None => self.fail(UNTERMINATED.to_owned()),
            Some(b'}') => self.end(Token::VariableEnd),
            Some(b':') => {
                self.scopes.pop();
                self.begin(1, Scope::Argument, Token::Mark(':'))
            }
            Some(head) if head.is_ascii_alphabetic() => Token::Name(ascii(
                self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
            )),
            Some(_) => {
                let head = self.head_as_text();
                self.fail(format!("Invalid character in variable name '{head}'"))
            }
        }
    }

    /// The rules in a string: returns a run of text, or what ends the run. A text as a whole ends
    /// with the expression and has no closing byte.
    fn string(&mut self, close: Option<u8>) -> Token {
        let mut run = Vec::new();
        loop {
            let second = self.rest.get(1).copied();
            let stop = match (self.rest.first().copied(), second) {
                (None, _) if close.is_some() => return self.fail(UNTERMINATED.to_owned()),
                (None, _) => true,
                (Some(b'%'), Some(b'{')) | (Some(b'$'), Some(b'0'..=b'9')) => true,
                (Some(head), _) => Some(head) == close,
            };
            if stop {
                break;
            }
            match self.take(1) {
                b"\\" => match self.escape() {
                    Ok(byte) => run.push(byte),
                    Err(message) => return self.fail(message.to_owned()),
                },
                plain => run.extend_from_slice(plain),
            }
        }
        if !run.is_empty() {
            // In Apache a NUL ends a string; no value here may contain one.
            run.truncate(run.iter().position(|byte| *byte == 0).unwrap_or(run.len()));
            return Token::Text(run);
        }
        match (self.rest.first().copied(), self.rest.get(1).copied()) {
            (Some(b'%'), Some(b'{')) => self.begin(2, Scope::Name, Token::VariableBegin),
            (Some(b'$'), Some(digit @ b'0'..=b'9')) => self.emit(2, Token::Group(digit - b'0')),
            (Some(b'}'), _) if close == Some(b'}') => self.end(Token::VariableEnd),
            (Some(_), _) => self.end(Token::StringEnd),
            (None, _) => Token::End,
        }
    }

    /// The byte that an escape after a backslash stands for.
    fn escape(&mut self) -> Result<u8, &'static str> {
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if !digits.is_empty() {
            let octal = digits.len() <= 3 && digits.iter().all(|digit| *digit < b'8');
            if !octal {
                return Err("Bad escape sequence");
            }
            let value = digits.iter().fold(0_u16, |sum, digit| sum * 8 + u16::from(digit - b'0'));
            return u8::try_from(value).map_err(|_| "Escape sequence out of bound");
        }
        match self.take(1) {
            b"n" => Ok(b'\n'),
            b"r" => Ok(b'\r'),
            b"t" => Ok(b'\t'),
            b"b" => Ok(8),
            b"f" => Ok(12),
            // Apache's own scanner fails on a backslash at the very end and ends the server.
            other => other.first().copied().ok_or(UNTERMINATED),
        }
    }

    fn begin(&mut self, length: usize, scope: Scope, token: Token) -> Token {
        self.scopes.push(scope);
        self.emit(length, token)
    }

    fn end(&mut self, token: Token) -> Token {
        self.scopes.pop();
        self.emit(1, token)
    }

    fn emit(&mut self, length: usize, token: Token) -> Token {
        self.take(length);
        token
    }

    fn fail(&mut self, message: String) -> Token {
        self.rest = b"";
        Token::Error(message)
    }

    fn take(&mut self, length: usize) -> &'t [u8] {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, b""));
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'t [u8] {
        let length = self.rest.iter().position(|byte| !wanted(*byte)).unwrap_or(self.rest.len());
        self.take(length)
    }

    /// The first character of the rest.
    fn head_as_text(&self) -> String {
        let text = quoted(self.rest);
        text.chars().next().map(String::from).unwrap_or_default()
    }
}

fn ascii(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn relation(word: &str) -> Option<Relation> {
    match word {
        "eq" => Some(Relation::Equal),
        "ne" => Some(Relation::NotEqual),
        "lt" => Some(Relation::Less),
        "le" => Some(Relation::LessOrEqual),
        "gt" => Some(Relation::Greater),
        "ge" => Some(Relation::GreaterOrEqual),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(mut lexer: Lexer<'_>) -> String {
        let mut labels = Vec::new();
        loop {
            let token = lexer.next();
            labels.push(token.label());
            if matches!(token, Token::End | Token::Error(_)) {
                return labels.join(" ");
            }
        }
    }

    #[test]
    fn tokens_depend_on_where_they_stand() {
        let table = [
            (
                "-f 'a' && ! true",
                "T_OP_UNARY T_STR_BEGIN T_STRING T_STR_END T_OP_AND T_OP_NOT \
              T_TRUE $end",
            ),
            ("'x'-eq-5", "T_STR_BEGIN T_STRING T_STR_END T_OP_EQ T_DIGIT $end"),
            ("-in -inx inx in", "T_OP_IN T_OP_BINARY T_ID T_OP_IN $end"),
            ("=~ m#a#i /b/x", "T_OP_REG T_REGEX_I T_REGEX T_ID $end"),
            ("m@a@", "T_ID T_ERROR"),
            ("/a", "$end"),
            (
                "%{a:b%{c}d}",
                "T_VAR_BEGIN T_ID ':' T_STRING T_VAR_BEGIN T_ID T_VAR_END T_STRING \
              T_VAR_END $end",
            ),
            (
                "'a$1%{b}'",
                "T_STR_BEGIN T_STRING T_REGEX_BACKREF T_VAR_BEGIN T_ID T_VAR_END \
              T_STR_END $end",
            ),
            ("'it\\'s'", "T_STR_BEGIN T_STRING T_STR_END $end"),
            ("{ 'a', 1 }", "'{' T_STR_BEGIN T_STRING T_STR_END ',' T_DIGIT '}' $end"),
            ("a === b", "T_ID T_OP_STR_EQ T_OP_STR_EQ T_ID $end"),
        ];
        for (text, expected) in table {
            assert_eq!(labels(Lexer::condition(text.as_bytes())), expected, "{text}");
        }
        assert_eq!(
            labels(Lexer::text(b"a' $x %{b} $1")),
            "T_STRING T_VAR_BEGIN T_ID T_VAR_END \
            T_STRING T_REGEX_BACKREF $end"
        );
    }

    #[test]
    fn escapes_stand_for_bytes() {
        let mut lexer = Lexer::text(r"\n\r\t\b\f\101\7\\\%{\$1é".as_bytes());
        assert_eq!(lexer.next(), Token::Text(b"\n\r\t\x08\x0cA\x07\\%{$1\xc3\xa9".to_vec()));
        for (text, message) in [
            (r"\8", "Bad escape sequence"),
            (r"\1234", "Bad escape sequence"),
            (r"\400", "Escape sequence out of bound"),
            ("\\", UNTERMINATED),
        ] {
            assert_eq!(
                Lexer::text(text.as_bytes()).next(),
                Token::Error(message.to_owned()),
                "{text}"
            );
        }
    }
}
