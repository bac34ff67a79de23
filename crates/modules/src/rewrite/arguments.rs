//! The argument lines of RewriteCond and RewriteRule. They have rules of their own: a backslash
//! keeps white space in an argument and stays in it (mod_rewrite.c: parseargline), and flags stand
//! in brackets (cmd_parseflagfield).

/// The arguments of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arguments<'a> {
    /// The pattern of a rule, or the text that a condition tests.
    pub first: &'a str,
    /// The substitution of a rule, or the pattern of a condition.
    pub second: &'a str,
    /// The flags with their brackets.
    pub third: Option<&'a str>,
}

impl<'a> Arguments<'a> {
    /// Splits a line; none where it has no second argument.
    pub(super) fn split(line: &'a str) -> Option<Self> {
        let (first, rest) = argument(line);
        let (second, rest) = argument(rest?);
        let third = rest.filter(|rest| !trim_start(rest).is_empty()).map(|rest| argument(rest).0);
        Some(Self { first, second, third })
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn trim_start(text: &str) -> &str {
    text.trim_start_matches(|char: char| u8::try_from(char).is_ok_and(is_space))
}

/// The argument at the beginning of a line and what follows it; none where the line ends with it.
fn argument(line: &str) -> (&str, Option<&str>) {
    let line = trim_start(line);
    let quote = line.bytes().next().filter(|byte| matches!(byte, b'"' | b'\''));
    let line = line.get(usize::from(quote.is_some())..).unwrap_or_default();
    let bytes = line.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let is_end = match quote {
            None => is_space(*byte),
            Some(quote) => *byte == quote,
        };
        if is_end {
            let rest = line.get(at + 1..).unwrap_or_default();
            return (line.get(..at).unwrap_or_default(), Some(rest));
        }
        let is_escape = *byte == b'\\' && bytes.get(at + 1).copied().is_some_and(is_space);
        at += if is_escape { 2 } else { 1 };
    }
    (line, None)
}

/// The flags of a field in brackets, each with its value; without a value that is empty.
///
/// # Errors
/// The field does not stand in brackets.
pub(super) fn flags(field: &str) -> Result<impl Iterator<Item = (&str, &str)>, &'static str> {
    let inner = field.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let inner = inner.ok_or("bad flag delimiters")?;
    Ok(inner.split(',').map(|flag| {
        let flag = flag.trim_matches(|char: char| u8::try_from(char).is_ok_and(is_space));
        flag.split_once('=').unwrap_or((flag, ""))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Option<(&str, &str, Option<&str>)> {
        Arguments::split(line).map(|it| (it.first, it.second, it.third))
    }

    #[test]
    fn arguments_are_split_as_apache_does() {
        for (line, expected) in [
            ("^a b", Some(("^a", "b", None))),
            ("  ^a\t b  [L,R] ", Some(("^a", "b", Some("[L,R]")))),
            ("\"a b\" 'c \"d' \"[E=x:y z]\"", Some(("a b", "c \"d", Some("[E=x:y z]")))),
            (r"a\ b c\ d", Some((r"a\ b", r"c\ d", None))),
            (r#"a\"b "x" [L] more"#, Some((r#"a\"b"#, "x", Some("[L]")))),
            ("\"a\"", Some(("a", "", None))),
            ("a", None),
            ("", None),
            ("\"a b", None),
            (r"a\ ", None),
        ] {
            assert_eq!(split(line), expected, "{line}");
        }
    }

    #[test]
    fn flags_have_brackets_and_values() {
        let all = |field| flags(field).map(|it| it.collect::<Vec<_>>());
        let expected = vec![("L", ""), ("R", "301"), ("E", "a:b=c")];
        assert_eq!(all("[L, R=301 ,E=a:b=c]"), Ok(expected));
        assert_eq!(all("[]"), Ok(vec![("", "")]));
        assert_eq!(all("L"), Err("bad flag delimiters"));
        assert_eq!(all("[L"), Err("bad flag delimiters"));
    }
}
