//! mod_alias's directives: lines go in, rules in the order in which they are tried come out.

use super::rule::{From, Rule, is_url};
use super::{SectionAlias, SectionRedirect};
use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Contexts, Shape};
use evenkeel_message::unquoted;
use std::sync::Arc;

const ALIAS: &str = "a fakename and a realname, or a realname in a Location";
const ALIAS_MATCH: &str = "a regular expression and a filename";
const REDIRECT_TO: &str = "a document to be redirected, then the destination URL";

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("Alias", Where::CONFIG, Shape::OneOrTwo, "", ALIAS, alias).of_bytes(),
    directive("AliasMatch", Where::SERVER, Shape::Two, "", ALIAS_MATCH, alias_match).of_bytes(),
    directive("AliasPreservePath", Where::FILE_INFO, Shape::Flag, "Off", "Set to ON to map the full path after the fakename to the realname.", alias_preserve_path),
    directive("Redirect", Where::FILE_INFO, Shape::OneTwoOrThree, "", "an optional status, then document to be redirected and destination URL", redirect).of_bytes(),
    directive("RedirectMatch", Where::FILE_INFO, Shape::TwoOrThree, "", "an optional status, then a regular expression and destination URL", redirect_match).of_bytes(),
    directive("RedirectPermanent", Where::FILE_INFO, Shape::Two, "", REDIRECT_TO, redirect_rule).of_bytes(),
    directive("RedirectRelative", Where::FILE_INFO, Shape::Flag, "Off", "Set to ON to allow relative redirect targets to be issued as-is", redirect_relative),
    directive("RedirectTemp", Where::FILE_INFO, Shape::Two, "", REDIRECT_TO, redirect_rule).of_bytes(),
    directive("ScriptAlias", Where::CONFIG, Shape::OneOrTwo, "", ALIAS, alias).of_bytes(),
    directive("ScriptAliasMatch", Where::SERVER, Shape::Two, "", ALIAS_MATCH, alias_match).of_bytes(),
];

/// mod_alias.
pub const MODULE: Module = Module {
    file: "mod_alias.c",
    identifier: "alias_module",
    active: Active::Usually,
    page: "mod_alias",
    subject: "Other places than DocumentRoot for parts of a site, and redirects.",
    remarks: &[
        "An Alias in a section whose expression cannot be evaluated is answered with 500. Apache \
         goes on with an empty path.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn is_script(call: &Call<'_>) -> bool {
    call.name.starts_with("Script")
}

/// Whether the directive stands in a section (Apache: cmd->path).
fn in_section(scope: &Scope) -> bool {
    scope.place != crate::Place::Server
}

fn alias(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let in_section = in_section(scope);
    match call.second() {
        Some(_) => {
            call.check_place(Contexts::NOT_IN_DIR_CONTEXT)?;
            let from = From::Prefix(unquoted(call.first()).into());
            add_alias(scope, call, from);
            Ok(())
        }
        None if in_section => {
            let rules = Contexts::NOT_IN_DIRECTORY.with(Contexts::NOT_IN_FILES);
            call.check_place(rules.with(Contexts::NOT_IN_IF))?;
            let text = call.first();
            let file = scope
                .compile_text(text)
                .map_err(|error| format!("Cannot parse alias expression '{text}': {error}"))?;
            let fake = scope.place.path().map(|path| unquoted(path).into());
            let alias = SectionAlias { file, fake, is_script: is_script(call) };
            scope.directory.alias.alias = Some(Arc::new(alias));
            Ok(())
        }
        None => Err("Alias must have two arguments when used globally".into()),
    }
}

fn alias_match(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let from = pattern(scope, call.first())?;
    add_alias(scope, call, from);
    Ok(())
}

/// Adds an alias, and remarks where an earlier one takes all its paths.
fn add_alias(scope: &mut Scope, call: &Call<'_>, from: From) {
    let aliases = &mut scope.server.alias.aliases;
    let covering = match &from {
        From::Prefix(prefix) => aliases.iter().find(|rule| rule.covers(prefix)),
        From::Pattern(_) => None,
    };
    if let Some(earlier) = covering {
        let text = format!(
            "The {} directive in {} at line {} will probably never match because it overlaps an \
             earlier {}Alias{}.",
            call.name,
            call.position.file,
            call.position.line,
            if earlier.is_script { "Script" } else { "" },
            if earlier.prefix().is_none() { "Match" } else { "" },
        );
        call.warn("alias", 671, text);
    }
    let real = Some(unquoted(argument(call, 1)).into());
    aliases.push(Arc::new(Rule { from, real, status: 0, is_script: is_script(call) }));
}

fn pattern(scope: &Scope, text: &str) -> Result<From, String> {
    let refused = |_| "Regular expression could not be compiled.".to_owned();
    scope.compile_pattern(text).map(From::Pattern).map_err(refused)
}

/// The status that a word means, where it means one.
fn status_word(word: &str) -> Option<u16> {
    match word.to_ascii_lowercase().as_str() {
        "permanent" => Some(301),
        "temp" => Some(302),
        "seeother" => Some(303),
        "gone" => Some(410),
        number => {
            let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
            let digits = number.get(..end).filter(|digits| !digits.is_empty())?;
            Some(digits.parse().unwrap_or(u16::MAX))
        }
    }
}

const fn is_redirect(status: u16) -> bool {
    status >= 300 && status < 400
}

/// The status that the directive's name gives.
fn status_of(call: &Call<'_>) -> u16 {
    if call.name == "RedirectPermanent" { 301 } else { 302 }
}

/// Redirect with a path, or for the section alone (mod_alias.c: add_redirect).
fn redirect(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = status_word(call.first());
    let status = word.unwrap_or(302);
    let target = match (word, call.second(), call.third()) {
        (Some(_), None, None) if !is_redirect(status) => None,
        (None, None, None) if in_section(scope) => Some(call.first()),
        (Some(_), Some(target), None) if in_section(scope) && is_redirect(status) => Some(target),
        _ => return redirect_rule(scope, call),
    };
    let compile = |text: &str| {
        let refused = |error| format!("Cannot parse redirect expression '{text}': {error}");
        scope.compile_text(text).map_err(refused)
    };
    let target = target.map(compile).transpose()?;
    scope.directory.alias.redirect = Some(Arc::new(SectionRedirect { target, status }));
    Ok(())
}

fn redirect_rule(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (status, from, target) = redirect_arguments(call)?;
    if let Some(target) = target
        && !is_url(target.as_bytes())
        && !target.starts_with('/')
    {
        return Err("Redirect to non-URL".into());
    }
    add_redirect(scope, status, From::Prefix(unquoted(from).into()), target);
    Ok(())
}

fn redirect_match(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (from, pattern_first) = (argument(call, 0), status_word(argument(call, 0)).is_none());
    let text = if pattern_first { from } else { argument(call, 1) };
    if pattern_first && call.third().is_some() {
        return Err("Redirect: invalid first argument (of three)".into());
    }
    let from = pattern(scope, text)?;
    let (status, _, target) = redirect_arguments(call)?;
    add_redirect(scope, status, from, target);
    Ok(())
}

/// Status, path and target of a redirect. The target stands last, and only redirects have one.
fn redirect_arguments<'a>(call: &Call<'a>) -> Result<(u16, &'a str, Option<&'a str>), String> {
    let word = status_word(call.first());
    let status = word.unwrap_or_else(|| status_of(call));
    let (from, target) = match word {
        None if call.third().is_some() => {
            return Err("Redirect: invalid first argument (of three)".into());
        }
        None => (call.first(), call.second()),
        Some(_) => (argument(call, 1), call.third()),
    };
    match target {
        None if is_redirect(status) => Err("URL to redirect to is missing".into()),
        Some(_) if !is_redirect(status) => Err("Redirect URL not valid for this status".into()),
        target => Ok((status, from, target)),
    }
}

fn add_redirect(scope: &mut Scope, status: u16, from: From, target: Option<&str>) {
    let rule =
        Rule { from, real: target.map(|target| unquoted(target).into()), status, is_script: false };
    if in_section(scope) {
        scope.directory.alias.redirects.push_back(Arc::new(rule));
    } else {
        scope.server.alias.redirects.push(Arc::new(rule));
    }
}

fn redirect_relative(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.alias.relative = Some(call.flag);
    Ok(())
}

fn alias_preserve_path(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.alias.preserve_path = Some(call.flag);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::testing::{apply, apply_in};

    fn refused(text: &str) -> String {
        apply(MODULE, text).err().unwrap_or_default()
    }

    fn refused_in_location(text: &str) -> String {
        apply_in(MODULE, Place::Location("/l".into()), text).err().unwrap_or_default()
    }

    #[test]
    fn redirects_are_refused_in_apaches_words() {
        for (line, text) in [
            ("Redirect /x", "URL to redirect to is missing"),
            ("Redirect 301 /x", "URL to redirect to is missing"),
            ("Redirect foo /x http://a", "Redirect: invalid first argument (of three)"),
            ("Redirect gone /x http://y", "Redirect URL not valid for this status"),
            ("Redirect /x y", "Redirect to non-URL"),
            ("RedirectMatch ( http://y", "Regular expression could not be compiled."),
            ("RedirectMatch 301 a", "URL to redirect to is missing"),
            ("Redirect 3000 /x", ""),
            ("Redirect gone", ""),
            ("RedirectMatch /x y", ""),
            ("RedirectTemp gone /a", ""),
        ] {
            assert_eq!(refused(line), text, "{line}");
        }
        assert_eq!(refused_in_location("Redirect 301"), "URL to redirect to is missing");
        assert_eq!(refused_in_location("Redirect gone http://x"), "");
        let bad = "Cannot parse redirect expression '%{NO}': Variable 'NO' does not exist";
        assert_eq!(refused_in_location("Redirect 301 %{NO}"), bad);
    }

    #[test]
    fn aliases_are_refused_in_apaches_words() {
        assert_eq!(refused("Alias /x"), "Alias must have two arguments when used globally");
        assert_eq!(refused("AliasMatch ( x"), "Regular expression could not be compiled.");
        let bad = "Cannot parse alias expression '%{NO}': Variable 'NO' does not exist";
        assert_eq!(refused_in_location("Alias %{NO}"), bad);
        assert_eq!(refused_in_location("Alias /usr/x"), "");
    }

    #[test]
    fn permanent_and_temporary_redirects_have_their_status() {
        let text = "RedirectPermanent /p http://x\nRedirectTemp /t http://x\n\
                    RedirectRelative On\nAliasPreservePath Off";
        let scope = apply(MODULE, text).unwrap();
        let statuses = scope.server.alias.redirects.iter().map(|rule| rule.status);
        assert_eq!(statuses.collect::<Vec<_>>(), [301, 302]);
        let said = &scope.directory.alias;
        assert_eq!((said.relative, said.preserve_path), (Some(true), Some(false)));
    }

    #[test]
    fn script_aliases_are_scripts() {
        let text = "ScriptAlias /a /b\nScriptAliasMatch ^/c /d";
        let scope = apply(MODULE, text).unwrap();
        assert!(scope.server.alias.aliases.iter().all(|rule| rule.is_script));
    }
}
