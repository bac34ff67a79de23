//! Compiles substitutions and test strings: literal text, `%{VARIABLE}`, `${map:key}`, `$N` and
//! `%N` (mod_rewrite.c: do_expand). The values that replace references are not expanded again.

use super::variable::Variable;
use evenkeel_message::unquoted;

/// A part of a template.
#[derive(Debug)]
pub(super) enum Piece {
    /// Literal text.
    Literal(Box<[u8]>),
    /// `\?`: a literal question mark, which the check for unsafe question marks ignores as in
    /// Apache.
    EscapedQuestionMark,
    /// `%{NAME}`.
    Variable(Variable),
    /// `${map:key|default}`.
    Map(Box<Lookup>),
    /// `$N`: a group of the rule's pattern.
    RuleGroup(usize),
    /// `%N`: a group of the last matched condition.
    ConditionGroup(usize),
}

/// A lookup in a RewriteMap.
#[derive(Debug)]
pub(super) struct Lookup {
    pub map: Box<str>,
    pub key: Template,
    pub default: Template,
}

/// The maximum length of a template in bytes, which bounds the time to compile it.
const LONGEST: usize = 8192;

/// The maximum nesting depth of map lookups.
const DEEPEST: usize = 16;

/// A compiled template.
#[derive(Debug, Default)]
pub(super) struct Template {
    pub pieces: Vec<Piece>,
}

impl Template {
    /// Whether the template consists of literal text only.
    pub(super) fn is_constant(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Literal(_)))
    }

    /// Compiles an argument of the configuration.
    ///
    /// # Errors
    /// The text is too long, or its map lookups are nested too deeply.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("an argument is longer than {LONGEST} bytes"));
        }
        Self::of_bytes(&unquoted(text), DEEPEST)
    }

    fn of_bytes(text: &[u8], depth: usize) -> Result<Self, String> {
        let mut compiler = Compiler { pieces: Vec::new(), literal: Vec::new(), depth };
        compiler.read(text)?;
        compiler.end_literal();
        Ok(Self { pieces: compiler.pieces })
    }
}

struct Compiler {
    pieces: Vec<Piece>,
    literal: Vec<u8>,
    /// The nesting depth that is still allowed for map lookups.
    depth: usize,
}

impl Compiler {
    fn end_literal(&mut self) {
        if !self.literal.is_empty() {
            let text = std::mem::take(&mut self.literal);
            self.pieces.push(Piece::Literal(text.into()));
        }
    }

    fn push(&mut self, piece: Piece) {
        self.end_literal();
        self.pieces.push(piece);
    }

    fn read(&mut self, text: &[u8]) -> Result<(), String> {
        let mut rest = text;
        while let Some(byte) = rest.first() {
            let taken = match byte {
                b'\\' => self.escape(rest),
                b'$' | b'%' => self.special(rest)?,
                other => {
                    self.literal.push(*other);
                    1
                }
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// A backslash escapes the next byte. A backslash at the end is literal.
    fn escape(&mut self, rest: &[u8]) -> usize {
        match rest.get(1) {
            Some(b'?') => self.push(Piece::EscapedQuestionMark),
            Some(other) => self.literal.push(*other),
            None => self.literal.push(b'\\'),
        }
        2
    }

    fn special(&mut self, rest: &[u8]) -> Result<usize, String> {
        let is_rule = rest.first() == Some(&b'$');
        Ok(match rest.get(1) {
            Some(b'{') => self.braces(rest, is_rule)?,
            Some(digit) if digit.is_ascii_digit() => {
                let number = usize::from(digit - b'0');
                self.push(match is_rule {
                    true => Piece::RuleGroup(number),
                    false => Piece::ConditionGroup(number),
                });
                2
            }
            _ => {
                self.literal.extend(rest.first());
                1
            }
        })
    }

    /// Compiles `%{NAME}` or `${map:key|default}`. Without the closing brace, or in a map lookup
    /// without a colon, the first two characters are literal.
    fn braces(&mut self, rest: &[u8], is_map: bool) -> Result<usize, String> {
        let inner = rest.get(2..).unwrap_or_default();
        let Some(end) = closing(inner) else { return Ok(self.literal_braces(rest)) };
        let inner = inner.get(..end).unwrap_or_default();
        if !is_map {
            self.push(Piece::Variable(Variable::compile(inner)));
            return Ok(end + 3);
        }
        let Some(colon) = outside_braces(inner, b':') else {
            return Ok(self.literal_braces(rest));
        };
        let Some(depth) = self.depth.checked_sub(1) else {
            return Err(format!("more than {DEEPEST} maps within one another"));
        };
        let (map, behind) = split(inner, colon);
        let (key, default) = match outside_braces(behind, b'|') {
            Some(bar) => split(behind, bar),
            None => (behind, &b""[..]),
        };
        let map = String::from_utf8_lossy(map).into();
        let key = Template::of_bytes(key, depth)?;
        let default = Template::of_bytes(default, depth)?;
        self.push(Piece::Map(Box::new(Lookup { map, key, default })));
        Ok(end + 3)
    }

    fn literal_braces(&mut self, rest: &[u8]) -> usize {
        self.literal.extend_from_slice(rest.get(..2).unwrap_or_default());
        2
    }
}

/// Returns the text before and after the byte at `at`.
fn split(text: &[u8], at: usize) -> (&[u8], &[u8]) {
    (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default())
}

/// Returns the position of the closing brace that matches an opening brace before the text.
fn closing(text: &[u8]) -> Option<usize> {
    let mut depth = 1_usize;
    text.iter().position(|byte| {
        match byte {
            b'}' => depth -= 1,
            b'{' => depth += 1,
            _ => {}
        }
        depth == 0
    })
}

/// Returns the position of a byte outside of inner braces.
fn outside_braces(text: &[u8], wanted: u8) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            byte if *byte == wanted && depth == 0 => return Some(at),
            b'}' => depth = depth.checked_sub(1)?,
            b'{' => depth += 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats the pieces of a template.
    fn pieces(text: &str) -> String {
        let template = Template::compile(text).unwrap();
        let short = |piece: &Piece| match piece {
            Piece::Literal(text) => format!("'{}'", String::from_utf8_lossy(text)),
            Piece::EscapedQuestionMark => "?".to_owned(),
            Piece::Variable(variable) => format!("{variable:?}"),
            Piece::Map(lookup) => format!("{}{:?}", lookup.map, lookup.key.pieces.len()),
            Piece::RuleGroup(number) => format!("${number}"),
            Piece::ConditionGroup(number) => format!("%{number}"),
        };
        template.pieces.iter().map(short).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn parts_are_found_as_apache_finds_them() {
        for (text, expected) in [
            ("/a/$1?x=%2", "'/a/' $1 '?x=' %2"),
            (r"\$1\%2\\\?a\", r"'$1%2\' ? 'a\'"),
            ("$a%$%%1", "'$a%$%' %1"),
            ("${lower:%{HTTP_HOST}|x}$10", "lower1 $1 '0'"),
            ("${no-colon}", "'${no-colon}'"),
            ("${open:x", "'${open:x'"),
            ("%{open", "'%{open'"),
            ("${a:${b:c}|d}", "a1"),
            ("", ""),
        ] {
            assert_eq!(pieces(text), expected, "{text}");
        }
    }

    #[test]
    fn keys_and_defaults_are_templates_of_their_own() {
        let template = Template::compile("${m:a%{b|c}d|${n:e|f}}").unwrap();
        let [Piece::Map(lookup)] = template.pieces.as_slice() else { panic!("one map") };
        assert_eq!(lookup.key.pieces.len(), 3);
        let [Piece::Map(inner)] = lookup.default.pieces.as_slice() else { panic!("one map") };
        assert_eq!(&*inner.map, "n");
    }

    #[test]
    fn length_and_depth_are_bounded() {
        let nested = |depth: usize| "${a:".repeat(depth) + &"}".repeat(depth);
        assert!(Template::compile(&nested(DEEPEST)).is_ok());
        assert!(
            Template::compile(&nested(DEEPEST + 1)).unwrap_err().contains("within one another")
        );
        assert!(Template::compile(&"x".repeat(LONGEST + 1)).unwrap_err().contains("longer"));
    }
}
