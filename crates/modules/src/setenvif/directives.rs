//! mod_setenvif's directives. A pattern without special characters becomes a search for its text.
//! Equal lines of the process share one rule.

use super::Rules;
use super::rule::{Attribute, Change, Rule, Test, Wanted};
use crate::{Active, Directive, DirectiveResult, Module, Place, Scope, Where, directive};
use evenkeel_config::{Call, Shape, next_word};
use evenkeel_expr::{Part, Pattern, PatternOptions};
use evenkeel_message::{FieldName, Interner, unquoted};
use std::sync::Arc;

/// Everything on which a rule depends: the directive, the header name, the other arguments, and the
/// options of patterns.
type Key = (Box<str>, Box<str>, Box<str>, PatternOptions);

/// The rules in use.
static RULES: Interner<Key, Rule> = Interner::new();

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("BrowserMatch", Where::FILE_INFO, Shape::Raw, "", "A browser regex and a list of variables.", browser_match).of_bytes(),
    directive("BrowserMatchNoCase", Where::FILE_INFO, Shape::Raw, "", "A browser regex and a list of variables.", browser_match).of_bytes(),
    directive("SetEnvIf", Where::FILE_INFO, Shape::Raw, "", "A header-name, regex and a list of variables.", set_env_if).of_bytes(),
    directive("SetEnvIfExpr", Where::FILE_INFO, Shape::Raw, "", "an expression and a list of variables.", set_env_if_expr).of_bytes(),
    directive("SetEnvIfNoCase", Where::FILE_INFO, Shape::Raw, "", "a header-name, regex and a list of variables.", set_env_if).of_bytes(),
];

/// mod_setenvif.
pub const MODULE: Module = Module {
    file: "mod_setenvif.c",
    identifier: "setenvif_module",
    active: Active::Usually,
    page: "mod_setenvif",
    subject: "Variables set by what the request says.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn set_env_if(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (name, rest) = next_word(call.raw);
    if name.is_empty() {
        return Err(format!("Missing header-field name for {}", call.name));
    }
    add(scope, call, &name, rest)
}

fn browser_match(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    add(scope, call, "User-Agent", call.raw)
}

fn set_env_if_expr(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (text, rest) = next_word(call.raw);
    if text.is_empty() {
        return Err(format!("Missing expression for {}", call.name));
    }
    let refused = |error| format!("Could not parse expression \"{text}\": {error}");
    let condition = scope.compile_condition(&text).map_err(refused)?;
    let changes = changes(call, rest)?;
    rules(scope).push(Arc::new(Rule { test: Test::Condition(condition), changes }));
    Ok(())
}

/// Adds the rule of a header name, which may be a pattern, and of the arguments behind it.
fn add(scope: &mut Scope, call: &Call<'_>, name: &str, rest: &str) -> DirectiveResult {
    let said = scope.global().core.pattern_options;
    let key = (call.name.into(), name.into(), rest.into(), said);
    let rule = RULES.try_value(key, |_| compile(call, name, rest, said))?;
    rules(scope).push(rule);
    Ok(())
}

/// The name of a header field that a pattern like `^Authorization$` spells out. `None` if it is
/// another pattern.
fn whole_name(pattern: &str) -> Option<&str> {
    let name = pattern.strip_prefix('^')?.strip_suffix('$')?;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (!name.is_empty() && name.bytes().all(is_letter)).then_some(name)
}

fn compile(call: &Call<'_>, name: &str, rest: &str, said: PatternOptions) -> Result<Rule, String> {
    let (text, rest) = next_word(rest);
    if text.is_empty() {
        return Err(format!("Missing regular expression for {}", call.name));
    }
    let ignore_case = call.name.ends_with("NoCase");
    let options = PatternOptions { ignore_case: ignore_case || said.ignore_case, ..said };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let attribute = if name.bytes().all(is_plain) {
        Attribute::of(name)
    } else if let Some(name) = whole_name(name).filter(|_| options.ignore_case) {
        Attribute::Header(FieldName::new(name.as_bytes()))
    } else {
        let refused = |_| format!("{}Header name regex could not be compiled.", call.name);
        Attribute::Fields(Pattern::compile(name, options).map_err(refused)?)
    };
    let wanted = match plain_text(&text) {
        Some(text) => Wanted::Part(Part::new(&text, ignore_case)),
        None => {
            let refused = |_| format!("{} regex could not be compiled.", call.name);
            Wanted::pattern(Pattern::compile(&text, options).map_err(refused)?)
        }
    };
    Ok(Rule { test: Test::Attribute(attribute, wanted), changes: changes(call, rest)? })
}

fn rules(scope: &mut Scope) -> &mut Rules {
    match scope.place {
        Place::Server => &mut scope.server.setenvif,
        _ => &mut scope.directory.setenvif,
    }
}

fn bytes(text: &str) -> Box<[u8]> {
    unquoted(text).into()
}

/// The changes at the end of a line: `NAME`, `NAME=value`, `!NAME`.
fn changes(call: &Call<'_>, text: &str) -> Result<Vec<Change>, String> {
    let mut changes = Vec::new();
    let mut rest = text;
    loop {
        let (word, behind) = next_word(rest);
        if word.is_empty() {
            break;
        }
        rest = behind;
        let (name, value) = word.split_once('=').unwrap_or((&word, ""));
        changes.push(match (name.strip_prefix('!'), value) {
            (Some(name), "") => Change { name: bytes(name), value: None },
            (_, value) if value.starts_with('!') => Change { name: bytes(name), value: None },
            (_, "") => Change { name: bytes(name), value: Some(bytes("1")) },
            (_, value) => Change { name: bytes(name), value: Some(bytes(value)) },
        });
    }
    if changes.is_empty() {
        return Err(format!("Missing envariable expression for {}", call.name));
    }
    Ok(changes)
}

/// The text that a pattern without groups, wildcards and anchors looks for (mod_setenvif.c:
/// non_regex_pattern).
fn plain_text(pattern: &str) -> Option<Vec<u8>> {
    let is_special = |byte: u8| b"^.$|()[]*+?{}".contains(&byte);
    let mut text = Vec::with_capacity(pattern.len());
    let pattern = unquoted(pattern);
    let mut bytes = pattern.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => text.push(bytes.next().filter(|next| is_special(*next) || *next == b'\\')?),
            special if is_special(special) => return None,
            plain => text.push(plain),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{apply, apply_in};

    #[test]
    fn lines_are_refused_in_apaches_words() {
        for (line, text) in [
            ("SetEnvIf", "Missing header-field name for SetEnvIf"),
            ("SetEnvIf X", "Missing regular expression for SetEnvIf"),
            ("SetEnvIfNoCase X y", "Missing envariable expression for SetEnvIfNoCase"),
            ("SetEnvIf X ( y", "SetEnvIf regex could not be compiled."),
            ("SetEnvIf ^X( x y", "SetEnvIfHeader name regex could not be compiled."),
            ("BrowserMatch", "Missing regular expression for BrowserMatch"),
            ("BrowserMatchNoCase ( y", "BrowserMatchNoCase regex could not be compiled."),
            ("SetEnvIfExpr", "Missing expression for SetEnvIfExpr"),
            (
                "SetEnvIfExpr \"%{FOO} == 1\" x",
                "Could not parse expression \"%{FOO} == 1\": Variable 'FOO' does not exist",
            ),
        ] {
            assert_eq!(apply(MODULE, line).err().as_deref(), Some(text), "{line}");
        }
    }

    #[test]
    fn rules_belong_to_where_they_stand() {
        let scope = apply_in(MODULE, Place::Location("/l".into()), "SetEnvIf A b c").unwrap();
        let (server, directory) = (&scope.server.setenvif, &scope.directory.setenvif);
        assert_eq!((server.list.len(), directory.list.len()), (0, 1));
    }

    #[test]
    fn texts_without_special_signs_are_plain() {
        assert_eq!(plain_text("Robot").as_deref(), Some(&b"Robot"[..]));
        assert_eq!(plain_text(r"a\.b\\").as_deref(), Some(&br"a.b\"[..]));
        for pattern in ["a.b", "^a", r"\d", r"a\"] {
            assert_eq!(plain_text(pattern), None, "{pattern}");
        }
    }
}
