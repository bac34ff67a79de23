//! The directives of mod_ext_filter.

use crate::command_words::command_words;
use crate::external::External;
use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_message::FilterPosition;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("ExtFilterOptions", Where::SECTION, Shape::Iterate, "NoLogStderr", "valid options: LogStderr, NoLogStderr", ext_filter_options),
    directive("ExtFilterDefine", Where::SERVER, Shape::Raw, "", "Define an external filter", ext_filter_define),
];

/// mod_ext_filter.
pub const MODULE: Module = Module {
    file: "mod_ext_filter.c",
    identifier: "ext_filter_module",
    active: Active::WhenNamed,
    page: "mod_ext_filter",
    subject: "Programs that filter the bodies of responses and of requests. The launcher starts \
              them (see mod_cgi), never a shell.",
    remarks: &[
        "A program that ends before it has read everything, or that neither reads nor writes \
         anything for Timeout, is answered with 500, or the connection is aborted if the response \
         has begun. Apache then sends the body without the filter, or the part that was filtered.",
        "A program that exists and cannot be executed (for example because its interpreter is \
         missing) is answered with 500. Apache sends an empty body.",
        "mod_filter may choose an external filter (FilterProvider, AddOutputFilterByType). Apache \
         answers with 500 then, because it looks the program up by another name.",
        "An output of more than 64 KiB is sent in chunks as it comes. Apache keeps all of the \
         output in memory and sends a Content-Length.",
        "The environment has no PATH_TRANSLATED.",
        "LogStderr logs each line of a program's standard error with its filter, at most 1,000 \
         lines for each request. Without it the lines are read and dropped; a program of Apache \
         that writes more than 64 KiB there hangs.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn ext_filter_options(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = call.first();
    let settings = &mut scope.directory.ext_filter;
    match word.to_ascii_lowercase().as_str() {
        "logstderr" => settings.logs_stderr = Some(true),
        "nologstderr" => settings.logs_stderr = Some(false),
        "onfail=remove" => settings.is_removed = Some(true),
        "onfail=abort" => settings.is_removed = Some(false),
        _ => return Err(format!("Invalid ExtFilterOptions option: {word}")),
    }
    Ok(())
}

/// Takes the next word and the white space behind it (util.c: ap_getword_white).
fn take_word<'a>(rest: &mut &'a str) -> &'a str {
    let end = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
    let (word, behind) = rest.split_at_checked(end).unwrap_or_default();
    *rest = behind.trim_ascii_start();
    word
}

fn ext_filter_define(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let mut rest = call.raw.trim_ascii();
    let name = take_word(&mut rest);
    if name.is_empty() {
        return Err("Filter name not found".into());
    }
    let definitions = &mut scope.server.ext_filter;
    if definitions.0.iter().any(|known| known.name.eq_ignore_ascii_case(name)) {
        return Err(format!("ExtFilter {name} is already defined"));
    }
    let mut external = External {
        name: name.into(),
        is_input: false,
        position: FilterPosition::RESOURCE,
        arguments: Vec::new(),
        in_type: None,
        out_type: None,
        enable_env: None,
        disable_env: None,
        preserves_length: false,
        defined: call.position.clone(),
    };
    while !rest.is_empty() {
        parameter(&mut external, &mut rest)?;
    }
    if external.arguments.is_empty() {
        return Err(format!("ExtFilterDefine {name} needs cmd=, the program"));
    }
    definitions.0.push(Arc::new(external));
    Ok(())
}

/// Reads one parameter (mod_ext_filter.c: define_filter).
fn parameter(external: &mut External, rest: &mut &str) -> DirectiveResult {
    const PRESERVES: &str = "preservescontentlength";
    let begins_with = |rest: &str, text: &str| {
        rest.get(..text.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(text))
    };
    if begins_with(rest, PRESERVES) {
        let word = take_word(rest);
        if !word.eq_ignore_ascii_case(PRESERVES) {
            return Err(format!("mangled argument `{word}'"));
        }
        external.preserves_length = true;
        return Ok(());
    }
    if begins_with(rest, "cmd=") {
        *rest = rest.get("cmd=".len()..).unwrap_or_default();
        external.arguments = command(rest)?;
        return Ok(());
    }
    let names = ["mode=", "ftype=", "enableenv=", "disableenv=", "intype=", "outtype="];
    let Some(name) = names.into_iter().find(|name| begins_with(rest, name)) else {
        return Err(format!("Unexpected parameter: `{rest}'"));
    };
    *rest = rest.get(name.len()..).unwrap_or_default();
    let word = take_word(rest);
    match name {
        "mode=" if word.eq_ignore_ascii_case("output") => external.is_input = false,
        "mode=" if word.eq_ignore_ascii_case("input") => external.is_input = true,
        "mode=" => return Err(format!("Invalid mode: `{word}'")),
        "ftype=" => {
            let digits = word.bytes().take_while(u8::is_ascii_digit).count();
            let number = word.get(..digits).unwrap_or_default().parse().unwrap_or(0);
            external.position = FilterPosition::numbered(number);
        }
        "enableenv=" => external.enable_env = Some(word.into()),
        "disableenv=" => external.disable_env = Some(word.into()),
        "intype=" => external.in_type = Some(word.into()),
        _ => external.out_type = Some(word.into()),
    }
    Ok(())
}

/// Reads the program and its arguments: in quotes, or a path alone.
fn command(rest: &mut &str) -> Result<Vec<Vec<u8>>, String> {
    let words = match rest.strip_prefix('"') {
        None => vec![take_word(rest).to_owned()],
        Some(text) => {
            let mut is_escaped = false;
            let end = text.find(|c: char| {
                let is_end = c == '"' && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                is_end
            });
            let (text, behind) =
                end.and_then(|end| text.split_at_checked(end)).ok_or("Expected cmd= delimiter")?;
            *rest = behind.get(1..).unwrap_or_default().trim_ascii_start();
            command_words(text)
        }
    };
    match words.first() {
        Some(program) if !program.is_empty() => {
            Ok(words.into_iter().map(String::into_bytes).collect())
        }
        _ => Err("Invalid cmd= parameter".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    fn define(text: &str) -> Result<Arc<External>, String> {
        let scope = apply(MODULE, &format!("ExtFilterDefine {text}"));
        let scope = scope.map_err(|error| error.to_string())?;
        Ok(Arc::clone(&scope.server.ext_filter.0[0]))
    }

    #[test]
    fn a_definition_has_all_parameters() {
        let it = define(
            "up MODE=input ftype=31 intype=a/b outtype=c/d enableenv=E disableenv=D \
             PreservesContentLength cmd=\"/bin/tr 'a b' \\\"c\\\"\"",
        );
        let it = it.unwrap();
        assert!(it.is_input && it.preserves_length && it.position > FilterPosition::PROTOCOL);
        assert_eq!(it.arguments, [&b"/bin/tr"[..], b"a b", b"\"c\""].map(<[u8]>::to_vec));
        let texts = [&it.in_type, &it.out_type, &it.enable_env, &it.disable_env];
        assert_eq!(texts.map(|it| it.as_deref().unwrap()), ["a/b", "c/d", "E", "D"]);
    }

    #[test]
    fn bad_definitions_are_refused() {
        for (text, problem) in [
            ("", "Filter name not found"),
            ("x mode=both cmd=/a", "Invalid mode: `both'"),
            ("x cmd=\"/a", "Expected cmd= delimiter"),
            ("x cmd=", "Invalid cmd= parameter"),
            ("x command=/a", "Unexpected parameter: `command=/a'"),
            ("x PreservesContentLengths cmd=/a", "mangled argument `PreservesContentLengths'"),
            ("x mode=output", "needs cmd="),
            ("x cmd=/a\nExtFilterDefine X cmd=/b", "ExtFilter X is already defined"),
        ] {
            let told = define(text).unwrap_err();
            assert!(told.contains(problem), "{text}: {told}");
        }
        assert!(apply(MODULE, "<Location /a>\nExtFilterOptions Onfail\n</Location>").is_err());
    }

    #[test]
    fn types_and_variables_choose_what_is_filtered() {
        let it = define("x intype=text/plain enableenv=E disableenv=D cmd=/a").unwrap();
        let acts = |media_type: Option<&[u8]>, names: &[&str]| {
            let mut env = evenkeel_message::Variables::default();
            names.iter().for_each(|name| env.set(name, ""));
            it.acts_on(media_type, &env)
        };
        assert!(acts(Some(b"Text/Plain; charset=x"), &["E"]));
        assert!(!acts(Some(b"text/html"), &["E"]) && !acts(None, &["E"]));
        assert!(!acts(Some(b"text/plain"), &[]) && !acts(Some(b"text/plain"), &["E", "D"]));
    }
}
