//! Replacing what a pattern finds in a field's value, once or everywhere.

use evenkeel_expr::{Captures, MatchError, Pattern};
use evenkeel_message::Allowance;

/// The value with the first match replaced, or all of them. In the replacement `$1` is a group.
/// A match of nothing moves on by one byte.
///
/// # Errors
/// The pattern and the value pass the bounds of a match.
pub fn edited(
    allowance: &Allowance,
    pattern: &Pattern,
    replacement: &[u8],
    all: bool,
    value: &[u8],
) -> Result<Vec<u8>, MatchError> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    let mut captures = Captures::default();
    while pattern.capture_within(allowance, rest, &mut captures)? {
        let (start, end) = captures.span(0).unwrap_or_default();
        out.extend_from_slice(rest.get(..start).unwrap_or_default());
        captures.substitute(replacement, &mut out);
        let found_nothing = start == end;
        rest = rest.get(end..).unwrap_or_default();
        if !all || rest.is_empty() {
            break;
        }
        if found_nothing && let Some((first, behind)) = rest.split_first() {
            out.push(*first);
            rest = behind;
        }
    }
    out.extend_from_slice(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_expr::PatternOptions;

    #[test]
    fn matches_are_replaced_once_or_everywhere() {
        let table: &[(&str, &str, bool, &str, &str)] = &[
            ("-", "+", false, "a-b-c", "a+b-c"),
            ("-", "+", true, "a-b-c", "a+b+c"),
            ("(b)", "[$1$0]", false, "abc", "a[bb]c"),
            ("^(.*)$", "$1; Secure", true, "a=1", "a=1; Secure"),
            ("x", "y", true, "abc", "abc"),
            ("", "-", true, "ab", "-a-b-"),
            ("b", "", false, "ab", "a"),
        ];
        for (pattern, replacement, all, value, expected) in table {
            let compiled = Pattern::compile(pattern, PatternOptions::default()).unwrap();
            let (replacement, value) = (replacement.as_bytes(), value.as_bytes());
            let allowance = Allowance::default();
            let out = edited(&allowance, &compiled, replacement, *all, value).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), *expected, "{pattern} {expected}");
        }
    }
}
