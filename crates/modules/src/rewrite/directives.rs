//! The directives of mod_rewrite, which compile rules and conditions. Conditions are collected
//! until the next RewriteRule of the same section.

use super::condition::{Condition, Kind, Parts, Test};
use super::flags::{Flags, number};
use super::map::{Function, Map, ProgramMap, TextFile};
use super::rule::{Query, Rule};
use super::template::Template;
use super::{Host, Options, Section, Switches};
use crate::command_words::command_words;
use crate::{Active, Directive, DirectiveResult, Module, Place, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_expr::{Pattern, PatternError, PatternOptions};
use evenkeel_message::unquoted;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("RewriteBase", Where::FILE_INFO, Shape::One, "", "the base URL of the per-directory context", rewrite_base).of_bytes().or_left_out(touch),
    directive("RewriteCond", Where::FILE_INFO, Shape::Raw, "", "an input string and a to be applied regexp-pattern", rewrite_cond).of_bytes().or_left_out(touch),
    directive("RewriteEngine", Where::FILE_INFO, Shape::Flag, "Off", "On or Off to enable or disable (default) the whole rewriting engine", rewrite_engine).or_left_out(touch),
    directive("RewriteMap", Where::SERVER, Shape::TwoOrThree, "", "a mapname and a filename and options", rewrite_map).of_bytes(),
    directive("RewriteOptions", Where::FILE_INFO, Shape::Iterate, "", "List of option strings to set", rewrite_options).or_left_out(touch),
    directive("RewriteRule", Where::FILE_INFO, Shape::Raw, "", "an URL-applied regexp-pattern and a substitution URL", rewrite_rule).of_bytes().or_left_out(touch),
];

/// mod_rewrite.
pub const MODULE: Module = Module {
    file: "mod_rewrite.c",
    identifier: "rewrite_module",
    active: Active::WhenNamed,
    page: "mod_rewrite",
    subject: "Rules that turn paths and queries into others.",
    remarks: &[
        "RewriteMap supports the types txt, rnd, prg and int. A configuration with dbm, dbd or \
         fastdbd is refused.",
        "The launcher of CGI programs starts the program of a map as User when it is first asked. \
         It has Timeout to answer; a program that does not, or that ends, is started again, and \
         the lookup has no value. A program of another user is refused.",
        "A request is answered with 500 if a pattern takes too many steps or a text exceeds 1 MiB; \
         the log names the line of the rule. Apache treats such a pattern as not matching.",
        "If a rule with PT produces a path with a segment `.` or `..`, the request is answered \
         with 403.",
        "A request may run a hundred look-ahead subrequests (`%{LA-U:...}`, `%{LA-F:...}`, `-U`, \
         `-F`).",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// Returns the settings of the current section. Creates them, and those of the server, if they do
/// not exist.
fn section(scope: &mut Scope) -> &mut Section {
    let folder = scope.section_path.as_deref().map(|path| {
        let path = unquoted(path);
        let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
        [&*path, slash].concat().into()
    });
    host(scope);
    let section = Arc::make_mut(scope.directory.rewrite.0.get_or_insert_default());
    section.folder = folder;
    section
}

fn host(scope: &mut Scope) -> &mut Host {
    Arc::make_mut(scope.server.rewrite.said.get_or_insert_default())
}

/// Creates the settings of the section for a directive that is skipped because it is not allowed
/// there, so that sections merge as in Apache.
fn touch(scope: &mut Scope) {
    section(scope);
}

fn is_of_server(scope: &Scope) -> bool {
    scope.place == Place::Server
}

/// Changes the switches of the section. Outside of sections, changes those of the server too.
fn switch(scope: &mut Scope, change: impl Fn(&mut Switches)) {
    change(&mut section(scope).switches);
    if is_of_server(scope) {
        change(&mut host(scope).switches);
    }
}

fn rewrite_engine(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    switch(scope, |switches| switches.engine = Some(call.flag));
    Ok(())
}

fn rewrite_options(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let mut options = Options::default();
    for word in call.first().split_ascii_whitespace() {
        let is_limit = word.get(..13).is_some_and(|it| it.eq_ignore_ascii_case("MaxRedirects="));
        if is_limit {
            let text = "RewriteOptions: MaxRedirects option has been removed in favor of the \
                        global LimitInternalRecursion directive and will be ignored.";
            call.warn("rewrite", 664, text);
            continue;
        }
        let unknown = || format!("RewriteOptions: unknown option '{word}'");
        options.add(Options::parse(word).ok_or_else(unknown)?);
    }
    switch(scope, |switches| switches.options.get_or_insert_default().add(options));
    Ok(())
}

fn rewrite_base(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    if is_of_server(scope) {
        return Err("RewriteBase: only valid in per-directory config files".into());
    }
    let url = call.first();
    if !url.starts_with('/') {
        return Err("RewriteBase: argument is not a valid URL".into());
    }
    let section = section(scope);
    (section.base, section.is_base_set) = (Some(unquoted(url).into()), true);
    Ok(())
}

/// The map types that this server does not support.
const ABSENT_MAPS: [&str; 4] = ["dbm:", "dbm=", "dbd:", "fastdbd:"];

fn rewrite_map(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (name, source) = (argument(call, 0), argument(call, 1));
    let behind = |prefix: &str| {
        let start = source.get(..prefix.len())?;
        start.eq_ignore_ascii_case(prefix).then(|| source.get(prefix.len()..)).flatten()
    };
    if let Some(prefix) = ABSENT_MAPS.iter().find(|prefix| behind(prefix).is_some()) {
        let kind = prefix.trim_end_matches([':', '=']);
        return Err(format!(
            "RewriteMap: this server has no maps of the type '{kind}', only txt, rnd, prg and int"
        ));
    }
    let map = if let Some(command) = behind("prg:") {
        if let Some(user) = call.words.get(2) {
            return Err(format!("RewriteMap: a program runs as User; it cannot run as '{user}'"));
        }
        let arguments: Vec<Vec<u8>> =
            command_words(command).into_iter().map(|word| unquoted(&word).into_owned()).collect();
        let program = arguments.first().map(Vec::as_slice).unwrap_or_default();
        if std::fs::metadata(OsStr::from_bytes(program)).is_err() {
            let path = evenkeel_message::quoted(program);
            return Err(format!("RewriteMap: file for map {name} not found:{path}"));
        }
        Map::Program(ProgramMap { arguments })
    } else if let Some(function) = behind("int:") {
        let unknown = || format!("RewriteMap: internal map not found:{function}");
        Map::Function(Function::named(function).ok_or_else(unknown)?)
    } else {
        let is_choice = behind("rnd:").is_some();
        let file = behind("txt:").or_else(|| behind("rnd:")).unwrap_or(source);
        let path = scope.server_path(file);
        if std::fs::metadata(&path).is_err() {
            let path = evenkeel_message::quoted_path(&path);
            return Err(format!("RewriteMap: file for map {name} not found:{path}"));
        }
        Map::File { table: Box::new(TextFile::new(&path)), is_choice }
    };
    section(scope);
    Arc::make_mut(&mut host(scope).maps).insert(name.into(), Arc::new(map));
    Ok(())
}

fn compile_pattern(scope: &Scope, text: &str, no_case: bool) -> Result<Pattern, PatternError> {
    let said = scope.global().core.pattern_options;
    let ignore_case = no_case || said.ignore_case;
    Pattern::compile(text, PatternOptions { ignore_case, ..said })
}

fn rewrite_cond(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let named = |error: String| format!("RewriteCond: {error}");
    let mut parts = Parts::read(call.raw).map_err(named)?;
    if parts.flags.no_case && !parts.kind.takes_no_case() {
        let text = format!(
            "RewriteCond: NoCase option for non-regex pattern '{}' is not supported and will be \
             ignored. ({})",
            parts.text, call.position
        );
        call.warn("rewrite", 665, text);
        parts.flags.no_case = false;
    }
    let test = compile_test(scope, &parts)?;
    let condition = Condition {
        input: Template::compile(parts.input).map_err(named)?,
        shown: parts.shown.into(),
        test,
        is_negated: parts.is_negated,
        flags: parts.flags,
        position: call.position.clone(),
    };
    let is_of_server = is_of_server(scope);
    let section = section(scope);
    let conditions = match is_of_server {
        false => &mut section.conditions,
        true => &mut host(scope).conditions,
    };
    conditions.push(Arc::new(condition));
    Ok(())
}

fn compile_test(scope: &Scope, parts: &Parts<'_>) -> Result<Test, String> {
    let text = parts.text;
    Ok(match parts.kind {
        Kind::Pattern => {
            let refused = |_| format!("RewriteCond: cannot compile regular expression '{text}'");
            let pattern = compile_pattern(scope, text, parts.flags.no_case).map_err(refused)?;
            Test::Pattern(Box::new(pattern))
        }
        Kind::Expression => {
            let place = if scope.in_htaccess { " in htaccess context" } else { "" };
            let refused =
                |error| format!("RewriteCond: cannot compile expression{place} \"{text}\" {error}");
            Test::Expression(Box::new(scope.compile_condition(text).map_err(refused)?))
        }
        Kind::File(test) => Test::File(test),
        Kind::Url => Test::Url,
        Kind::AllowedFile => Test::AllowedFile,
        Kind::Text(relation) => Test::Text(relation, unquoted(text).into()),
        Kind::Number(relation) => Test::Number(relation, number(text.as_bytes())),
    })
}

fn rewrite_rule(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let named = |error: String| format!("RewriteRule: {error}");
    let Some(arguments) = super::arguments::Arguments::split(call.raw) else {
        return Err(format!("RewriteRule: bad argument line '{}'", call.raw));
    };
    let flags = arguments.third.map(Flags::parse).transpose().map_err(named)?.unwrap_or_default();
    let (is_negated, text) = match arguments.first.strip_prefix('!') {
        Some(text) => (true, text),
        None => (false, arguments.first),
    };
    let refused = |_| format!("RewriteRule: cannot compile regular expression '{text}'");
    let pattern = compile_pattern(scope, text, flags.no_case).map_err(refused)?;
    let no_substitution = flags.answers || arguments.second == "-";
    let (query, output) = Query::of(arguments.second, &flags);
    let mut rule = Rule {
        pattern,
        is_negated,
        conditions: Vec::new(),
        output: Template::compile(output).map_err(named)?,
        written: unquoted(output).into(),
        no_substitution,
        query,
        flags,
        position: call.position.clone(),
    };
    let is_of_server = is_of_server(scope);
    let section = section(scope);
    let (conditions, rules) = match is_of_server {
        false => (&mut section.conditions, &mut section.rules),
        true => {
            let host = host(scope);
            (&mut host.conditions, &mut host.rules)
        }
    };
    rule.conditions = std::mem::take(conditions);
    Arc::make_mut(rules).push(Arc::new(rule));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{apply, apply_in};

    fn refused(text: &str) -> String {
        apply(MODULE, text).err().unwrap_or_default()
    }

    #[test]
    fn lines_are_refused_in_apaches_words() {
        for (line, text) in [
            ("RewriteRule a", "RewriteRule: bad argument line 'a'"),
            ("RewriteRule ( b", "RewriteRule: cannot compile regular expression '('"),
            ("RewriteRule a b [X]", "RewriteRule: unknown flag 'X'"),
            ("RewriteRule a b L", "RewriteRule: bad flag delimiters"),
            ("RewriteCond a", "RewriteCond: bad argument line 'a'"),
            ("RewriteCond a [", "RewriteCond: cannot compile regular expression '['"),
            ("RewriteCond a b [C]", "RewriteCond: unknown flag 'C'"),
            (
                "RewriteCond expr \"%{NO} == 1\"",
                "RewriteCond: cannot compile expression \"%{NO} == 1\" Variable 'NO' does not exist",
            ),
            ("RewriteOptions inherit Foo", "RewriteOptions: unknown option 'Foo'"),
            ("RewriteOptions MaxRedirects=3", ""),
            ("RewriteBase /x", "RewriteBase: only valid in per-directory config files"),
            ("RewriteMap m int:none", "RewriteMap: internal map not found:none"),
            ("RewriteMap m txt:/no/such", "RewriteMap: file for map m not found:/no/such"),
            ("RewriteMap m prg:/no/such", "RewriteMap: file for map m not found:/no/such"),
            (
                "RewriteMap m prg:/bin/cat www:www",
                "RewriteMap: a program runs as User; it cannot run as 'www:www'",
            ),
            (
                "RewriteMap m dbm=sdbm:/x",
                "RewriteMap: this server has no maps of the type 'dbm', only txt, rnd, prg and int",
            ),
        ] {
            assert_eq!(refused(line), text, "{line}");
        }
        let base = |text| apply_in(MODULE, Place::Location("/l".into()), text).err();
        let wrong = "RewriteBase: argument is not a valid URL";
        assert_eq!(base("RewriteBase x").as_deref(), Some(wrong));
    }

    #[test]
    fn conditions_belong_to_the_next_rule() {
        let text = "RewriteCond a b\nRewriteCond c d [OR]\nRewriteRule e f\nRewriteRule g h";
        let scope = apply(MODULE, text).unwrap();
        let host = scope.server.rewrite.said.as_ref().unwrap();
        let counts: Vec<usize> = host.rules.iter().map(|rule| rule.conditions.len()).collect();
        assert_eq!((counts, host.conditions.len()), (vec![2, 0], 0));
        let inner = apply_in(MODULE, Place::Location("/l".into()), text).unwrap();
        let section = inner.directory.rewrite.0.as_ref().unwrap();
        assert_eq!((section.rules.len(), section.folder.as_deref()), (2, Some(&b"/l/"[..])));
    }
}
