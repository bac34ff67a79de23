//! Parses the argument lines of RewriteCond and RewriteRule, whose syntax differs from other
//! directives: a backslash before white space keeps it in the argument, and the backslash stays
//! (mod_rewrite.c: parseargline). Flags stand in brackets (cmd_parseflagfield).

/// The arguments of a RewriteCond or RewriteRule line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arguments<'a> {
    /// The pattern of a RewriteRule, or the test string of a RewriteCond.
    pub first: &'a str,
    /// The substitution of a RewriteRule, or the pattern of a RewriteCond.
    pub second: &'a str,
    /// The flags with their brackets.
    pub third: Option<&'a str>,
}

impl<'a> Arguments<'a> {
    /// Splits a line into its arguments. Returns `None` if the line has no second argument.
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

/// Returns the first argument of a line and the rest of the line. The rest is `None` if the line
/// ends with the argument.
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

/// Splits a flag field in brackets into flags and their values. The value is empty if a flag has
/// none.
///
/// # Errors
/// The field has no brackets.
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
