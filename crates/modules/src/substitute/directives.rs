//! The directives of mod_substitute.

use super::SUBSTITUTE;
use super::line::{Find, Rule};
use crate::{Active, Directive, DirectiveResult, Module, Provided, Scope, Where, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_expr::{Pattern, PatternOptions};
use evenkeel_message::unquoted;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("Substitute", Where::FILE_INFO, Shape::One, "", "Pattern to filter the response content (s/foo/bar/[inf])", add_rule),
    directive("SubstituteMaxLineLength", Where::FILE_INFO, Shape::One, "1m", "Maximum line length", max_line),
    directive("SubstituteInheritBefore", Where::FILE_INFO, Shape::Flag, "off", "Apply inherited patterns before those of the current context", inherit_before),
];

/// mod_substitute.
pub const MODULE: Module = Module {
    file: "mod_substitute.c",
    identifier: "substitute_module",
    active: Active::WhenNamed,
    page: "mod_substitute",
    subject: "Texts and patterns that are replaced in bodies of responses: the output filter \
              `SUBSTITUTE`.",
    remarks: &[
        "A short body is sent with its length. Apache sends it in chunks.",
        "A rule that matches nothing at all, such as `s/x*/y/`, fails with AH01328, as in Apache, \
         and here before it has filled a line.",
    ],
    directives: &[DIRECTIVES],
    provides: &[Provided::OutputFilter(SUBSTITUTE)],
};

/// Reads `s/FROM/TO/FLAGS` with any delimiter (mod_substitute.c: set_pattern).
fn add_rule(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let mut rest = call.first().chars();
    if !rest.next().is_some_and(|letter| letter.eq_ignore_ascii_case(&'s')) {
        return Err("Bad Substitute format, must be an s/// pattern".into());
    }
    let incomplete = || "Bad Substitute format, must be a complete s/// pattern".to_owned();
    let delimiter = rest.next().ok_or_else(incomplete)?;
    let (from, behind) = rest.as_str().split_once(delimiter).ok_or_else(incomplete)?;
    let (to, flags) = behind.split_once(delimiter).unwrap_or((behind, ""));
    if from.is_empty() {
        return Err(incomplete());
    }
    let (mut ignore_case, mut is_text, mut is_flat) = (false, false, true);
    for flag in flags.chars() {
        match flag.to_ascii_lowercase() {
            'i' => ignore_case = true,
            'n' => is_text = true,
            'f' => is_flat = true,
            'q' => is_flat = false,
            _ => return Err("Bad Substitute flag, only s///[infq] are supported".into()),
        }
    }
    let find = match is_text {
        true => Find::Text { text: unquoted(from).into(), ignore_case },
        false => {
            // Of RegexDefaultOptions, it heeds DOLLAR_ENDONLY alone.
            let said = scope.global().core.pattern_options;
            let options = PatternOptions {
                ignore_case,
                extended: false,
                dot_all: false,
                dollar_end_only: said.dollar_end_only,
            };
            let refused = |_| "Substitute could not compile regex".to_owned();
            Find::Pattern(Pattern::compile(from, options).map_err(refused)?)
        }
    };
    let rule = Rule { find, replacement: unquoted(to).into(), is_flat };
    Arc::make_mut(&mut scope.directory.substitute.rules).push(rule);
    Ok(())
}

/// A number of bytes, with `b`, `k`, `m` or `g` behind it.
fn max_line(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = call.first();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "k" => Some(1 << 10),
        "m" => Some(1 << 20),
        "g" => Some(1 << 30),
        _ => None,
    };
    let number = if number.is_empty() && unit.is_empty() { "0" } else { number };
    let bytes = number.parse::<usize>().ok().zip(factor);
    let bytes = bytes.and_then(|(number, factor)| number.checked_mul(factor));
    scope.directory.substitute.max_line = Some(bytes.ok_or(
        "SubstituteMaxLineLength must be a non-negative integer optionally suffixed with 'b', \
         'k', 'm' or 'g'.",
    )?);
    Ok(())
}

fn inherit_before(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.substitute.inherit_before = Some(call.flag);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::line::substitute;
    use super::*;
    use crate::testing::apply;

    fn line(directives: &str, line: &str) -> String {
        let settings = apply(MODULE, directives).unwrap().directory.substitute.clone();
        let mut out = Vec::new();
        substitute(&settings.rules, 1000, line.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_and_patterns_are_replaced() {
        for (rule, given, expected) in [
            ("s/a/b/", "aXa", "bXb"),
            ("s|a(.)|$1$0|", "axay", "xaxyay"),
            ("s/a.c/-/n", "abc a.c", "abc -"),
            ("s/ABC/-/i", "xabcAbC", "x--"),
            ("s/ABC/-/ni", "xabcAbC", "x--"),
            ("s/^a/b/", "aab", "bbb"),
            ("s/a/", "aba", "b"),
            ("sxaxbx", "a", "b"),
        ] {
            assert_eq!(line(&format!("Substitute \"{rule}\""), given), expected, "{rule}");
        }
    }

    #[test]
    fn rules_behind_a_quick_one_see_the_parts_of_a_line() {
        let flat = "Substitute s/b/c/n\nSubstitute s/ac/-/n";
        assert_eq!(line(flat, "ab"), "-");
        let quick = "Substitute s/b/c/nq\nSubstitute s/ac/-/n";
        assert_eq!(line(quick, "ab"), "ac");
    }

    #[test]
    fn bad_lines_are_refused() {
        for (directive, text) in [
            ("Substitute x/a/b/", "must be an s/// pattern"),
            ("Substitute s", "must be a complete s/// pattern"),
            ("Substitute s//b/", "must be a complete s/// pattern"),
            ("Substitute s/a", "must be a complete s/// pattern"),
            ("Substitute s/a/b/x", "only s///[infq] are supported"),
            ("Substitute s/(/b/", "could not compile regex"),
            ("SubstituteMaxLineLength 1t", "non-negative integer"),
            ("SubstituteMaxLineLength -1", "non-negative integer"),
        ] {
            let error = apply(MODULE, directive).err().unwrap();
            assert!(error.contains(text), "{directive}: {error}");
        }
    }
}
