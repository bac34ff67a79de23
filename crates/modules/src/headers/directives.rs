//! mod_headers' directives: a Header or RequestHeader line goes in, an entry of one of the three
//! lists comes out (mod_headers.c: header_cmd, header_inout_cmd).

use super::{Action, Entry, Value, When};
use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, directive};
use evenkeel_config::{Call, Shape, next_word};
use evenkeel_message::unquoted;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("Header", Where::FILE_INFO, Shape::Raw, "", "an optional condition, an action, header and value followed by optional env clause", header).of_bytes(),
    directive("RequestHeader", Where::FILE_INFO, Shape::Raw, "", "an action, header and value followed by optional env clause", request_header).of_bytes(),
];

/// mod_headers.
pub const MODULE: Module = Module {
    file: "mod_headers.c",
    identifier: "headers_module",
    active: Active::Usually,
    page: "mod_headers",
    subject: "Fields of requests and responses: set, added, changed, taken away.",
    remarks: &[
        "A request is answered with 500 where the condition or value of a RequestHeader line asks \
         for a file that cannot be read. Apache carries the line out.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

const ACTIONS: &str = "first argument must be 'add', 'set', 'setifempty', 'append', 'merge', \
                       'unset', 'echo', 'note', 'edit', or 'edit*'.";

fn header(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (first, rest) = next_word(call.raw);
    let (always, arguments) = match first.to_ascii_lowercase().as_str() {
        "always" => (true, rest),
        "onsuccess" => (false, rest),
        _ => (false, call.raw),
    };
    let entry = Arc::new(entry(scope, call, arguments, false)?);
    let headers = &mut scope.directory.headers;
    if always { &mut headers.always } else { &mut headers.success }.push(entry);
    Ok(())
}

fn request_header(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let entry = entry(scope, call, call.raw, true)?;
    scope.directory.headers.request.push(Arc::new(entry));
    Ok(())
}

fn entry(scope: &Scope, call: &Call<'_>, arguments: &str, incoming: bool) -> Result<Entry, String> {
    let mut rest = arguments;
    let mut next = || {
        let (word, behind) = next_word(rest);
        let present = !rest.is_empty();
        rest = behind;
        present.then_some(word)
    };
    let verb = next().unwrap_or_default().to_ascii_lowercase();
    let name = next().unwrap_or_default();
    let (value, third, fourth) = (next(), next(), next());
    if !rest.is_empty() {
        return Err(format!("{} has too many arguments", call.name));
    }
    let name = name.split(':').next().unwrap_or_default();
    let (action, condition) = action(scope, &verb, name, [value, third, fourth], incoming)?;
    let name = unquoted(name).into();
    Ok(Entry { name, action, when: when(scope, condition.as_deref())? })
}

/// The action that a verb and the arguments behind the name ask for, and the condition that is
/// left of them.
fn action(
    scope: &Scope,
    verb: &str,
    name: &str,
    arguments: [Option<String>; 3],
    incoming: bool,
) -> Result<(Action, Option<String>), String> {
    let [value, third, fourth] = arguments;
    if let "edit" | "edit*" = verb {
        let (Some(pattern), Some(replacement)) = (value, third) else {
            return Err("Header edit requires a match and a substitution".into());
        };
        let pattern = scope
            .compile_pattern(&pattern)
            .map_err(|_| "Header edit regex could not be compiled")?;
        let value = Value::parse(scope, &replacement)?;
        return Ok((Action::Edit { pattern, value, all: verb == "edit*" }, fourth));
    }
    let make: fn(Value) -> Action = match verb {
        "set" => Action::Set,
        "setifempty" => Action::SetIfEmpty,
        "add" => Action::Add,
        "append" => Action::Append,
        "merge" => Action::Merge,
        "note" if incoming => {
            return Err("RequestHeader does not support the 'note' action".into());
        }
        "note" => Action::Note,
        "unset" | "echo" => return valueless(scope, verb, name, [value, third, fourth], incoming),
        _ => return Err(ACTIONS.into()),
    };
    if fourth.is_some() {
        return Err("Too many arguments to directive".into());
    }
    let Some(value) = value else { return Err("Header requires three arguments".into()) };
    Ok((make(Value::parse(scope, &value)?), third))
}

/// Unset and echo: behind the name may stand a condition only.
fn valueless(
    scope: &Scope,
    verb: &str,
    name: &str,
    arguments: [Option<String>; 3],
    incoming: bool,
) -> Result<(Action, Option<String>), String> {
    let [condition, third, fourth] = arguments;
    if fourth.is_some() {
        return Err("Too many arguments to directive".into());
    }
    if third.is_some() {
        let subject = if verb == "unset" { "header unset" } else { "Header echo" };
        return Err(format!("{subject} takes two arguments"));
    }
    if verb == "unset" {
        return Ok((Action::Unset, condition));
    }
    if incoming {
        return Err("Header echo only valid on Header directives".into());
    }
    let pattern =
        scope.compile_pattern(name).map_err(|_| "Header echo regex could not be compiled")?;
    Ok((Action::Echo(pattern), condition))
}

fn when(scope: &Scope, condition: Option<&str>) -> Result<When, String> {
    let Some(text) = condition else { return Ok(When::Always) };
    if text.eq_ignore_ascii_case("early") {
        return Ok(When::Early);
    }
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    match key.to_ascii_lowercase().as_str() {
        "env" if text.contains('=') => {
            let unset = value.strip_prefix('!');
            let name = unset.unwrap_or(value);
            if name.is_empty() {
                return Err("error: missing environment variable name. envclause should be in \
                            the form env=envar "
                    .into());
            }
            Ok(When::Env { name: unquoted(name).into(), set: unset.is_none() })
        }
        "expr" if text.contains('=') => scope
            .compile_condition(value)
            .map(When::Expr)
            .map_err(|error| format!("Can't parse envclause/expression: {error}")),
        _ => Err(format!("Unknown parameter: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn lines_go_to_their_lists() {
        let headers =
            apply(MODULE, "Header always set A: b").unwrap().directory.into_settings().headers;
        assert_eq!((headers.always.len(), headers.success.len()), (1, 0));
        assert_eq!(&*headers.always[0].name, b"A");
        assert_eq!(
            apply(MODULE, "Header onsuccess unset A").unwrap().directory.headers.success.len(),
            1
        );
        let headers = apply(MODULE, "RequestHeader add A \"\" early")
            .unwrap()
            .directory
            .into_settings()
            .headers;
        assert!(matches!(headers.request[0].when, When::Early));
    }

    #[test]
    fn faults_are_apaches() {
        let table = [
            ("Header", ACTIONS),
            ("Header foo A b", ACTIONS),
            ("RequestHeader always set A b", ACTIONS),
            ("Header set A", "Header requires three arguments"),
            ("Header set A b c d", "Too many arguments to directive"),
            ("Header set A b c d e", "Header has too many arguments"),
            ("Header set A b c", "Unknown parameter: c"),
            (
                "Header set A b env=!",
                "error: missing environment variable name. envclause should be in the form \
                 env=envar ",
            ),
            ("Header unset A b", "Unknown parameter: b"),
            ("Header unset A b c", "header unset takes two arguments"),
            ("Header echo (", "Header echo regex could not be compiled"),
            ("RequestHeader echo A", "Header echo only valid on Header directives"),
            ("RequestHeader note A b", "RequestHeader does not support the 'note' action"),
            ("Header edit A b", "Header edit requires a match and a substitution"),
            ("Header edit A ( c", "Header edit regex could not be compiled"),
            ("Header edit A b c env=x d", "Header has too many arguments"),
            ("Header set A %q", "Unrecognized header format %q"),
        ];
        for (line, fault) in table {
            assert_eq!(apply(MODULE, line).err().as_deref(), Some(fault), "{line}");
        }
    }
}
