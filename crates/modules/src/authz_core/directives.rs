//! mod_authz_core's directives. Require and its containers add rules to the settings of the
//! enclosing section.

use super::provider::SharedSections;
use super::{Logic, Merging, Provider, Rule};
use crate::{
    Active, Directive, DirectiveResult, Module, Scope, Where, argument, directive, global_section,
    section,
};
use evenkeel_config::{Block, Call, Contexts, Fault, GlobalCall, Position, Shape, next_word};
use evenkeel_message::Interner;
use std::sync::Arc;

/// The Require lines in use whose meaning depends on nothing but their text. Lists of addresses
/// have thousands of them, and each virtual host may include the list.
static LINES: Interner<(Position, Box<str>), Rule> = Interner::new();

const AUTH: Where = Where::AUTH_CONFIG;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    global_section("<AuthzProviderAlias", "container for grouping an authorization provider's directives under a provider alias", provider_alias),
    directive("Require", AUTH, Shape::Raw, "", "specifies authorization directives which one must pass (or not) for a request to succeed", require),
    section("<RequireAll", AUTH, "container for grouping authorization directives of which none must fail and at least one must pass for a request to succeed", group),
    section("<RequireAny", AUTH, "container for grouping authorization directives of which one must pass for a request to succeed", group),
    section("<RequireNone", AUTH, "container for grouping authorization directives of which none must pass for a request to succeed", group),
    directive("AuthMerging", AUTH, Shape::One, "Off", "controls how a <Directory>, <Location>, or similar directive's authorization directives are combined with those of its predecessor", auth_merging),
    directive("AuthzSendForbiddenOnFailure", AUTH, Shape::Flag, "Off", "Controls if an authorization failure should result in a '403 FORBIDDEN' response instead of the HTTP-conforming '401 UNAUTHORIZED'", send_forbidden),
];

/// mod_authz_core.
pub const MODULE: Module = Module {
    file: "mod_authz_core.c",
    identifier: "authz_core_module",
    active: Active::Usually,
    page: "mod_authz_core",
    subject: "Who may see what: Require and its containers. The error log line of a refusal names \
              the Require lines that denied the client, each with its file and line number.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn require(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (mut name, mut arguments) = next_word(call.raw);
    let negate = name.eq_ignore_ascii_case("not");
    if negate {
        (name, arguments) = next_word(arguments);
    }
    let limit = scope.limit.clone();
    let global = scope.global();
    let is_known = match &*name {
        "all" | "env" => true,
        "ip" => global.active.require_provider("ip").is_some(),
        _ => false,
    };
    let is_shared = is_known && limit.is_none() && !global.authz_core.aliases.contains_key(&*name);
    let make = || {
        let provider = Provider::parse(scope, &name, arguments)?;
        let (name, arguments, position) = (name.into(), arguments.into(), call.position.clone());
        Ok::<_, String>(Rule::Ask { negate, name, arguments, provider, limit, position })
    };
    let rule = match is_shared {
        true => LINES.try_value((call.position.clone(), call.raw.into()), |_| make())?,
        false => Arc::new(make()?),
    };
    let open = scope.directory.authz_core.rules.get_or_insert_with(Rule::any);
    open.add(rule)
        .map_err(|_| format!("negative Require directive has no effect in {open} directive"))
}

fn group(scope: &mut Scope, block: &Block<'_, Scope>) -> Result<(), Fault> {
    let name = block.call.name;
    let Some((text, _)) = block.call.raw.rsplit_once('>') else {
        return Err(block.fault(format!("{name}> directive missing closing '>'")));
    };
    if !text.is_empty() {
        return Err(block.fault(format!("{name}> directive doesn't take additional arguments")));
    }
    let (logic, negate) = match name {
        "<RequireAll" => (Logic::All, false),
        "<RequireAny" => (Logic::Any, false),
        _ => (Logic::Any, true),
    };
    let outer = scope.directory.authz_core.rules.replace(Rule::group(logic, negate));
    let walked = block.walk(scope, Contexts::AUTHORIZATION);
    let inner = std::mem::replace(&mut scope.directory.authz_core.rules, outer);
    walked?;
    let Some(mut inner) = inner.filter(|rule| !rule.is_empty()) else {
        return Err(block.fault(format!("{name}> directive contains no authorization directives")));
    };
    // Apache checks this after it has read the configuration, so it never checks .htaccess files.
    // The rules of a group that dissolves are checked as part of the enclosing group.
    let dissolves =
        scope.directory.authz_core.rules.as_ref().is_some_and(|it| it.dissolves(&inner));
    if !scope.in_htaccess && !dissolves && inner.only_refuses() {
        let text = format!("{inner} directive contains only negative authorization directives");
        return Err(block.fault(text));
    }
    inner.share();
    let open = scope.directory.authz_core.rules.get_or_insert_with(Rule::any);
    open.add(Arc::new(inner))
        .map_err(|_| block.fault(format!("{name}> directive has no effect in {open} directive")))
}

fn provider_alias(
    scope: &mut Scope,
    block: &Block<'_, Scope>,
    call: &GlobalCall<'_>,
) -> Result<(), Fault> {
    let text = block.argument()?;
    let (provider, rest) = next_word(text);
    let (alias, rest) = next_word(rest);
    let (arguments, rest) = next_word(rest);
    if provider.is_empty() || alias.is_empty() {
        let text = "<AuthzProviderAlias> directive requires additional arguments";
        return Err(block.fault(text));
    }
    if !rest.is_empty() {
        let text = format!(
            "When several arguments ({arguments} {rest}...) are passed to a <AuthzProviderAlias \
             directive, they must be enclosed in quotation marks.  Otherwise, only the first one \
             is taken into account"
        );
        block.call.warn("authz_core", 10142, text);
    }
    let outer = std::mem::take(&mut scope.directory);
    let walked = block.walk(scope, Contexts::DIRECTORY);
    let said = std::mem::replace(&mut scope.directory, outer);
    walked?;
    let parsed = Provider::parse(scope, &provider, &arguments).map_err(|error| {
        let unknown = error.starts_with("Unknown Authz provider");
        let text = if unknown {
            error
        } else {
            format!("Can't parse 'Require {provider} {arguments}': {error}")
        };
        block.fault(text)
    })?;
    let parsed = match said.is_said() {
        true => {
            let said = SharedSections(Arc::new(said.into_settings()));
            Provider::Alias(Box::new(parsed), said)
        }
        false => parsed,
    };
    let aliases = &mut scope.global_mut(call).authz_core.aliases;
    Arc::make_mut(aliases).insert(alias.into(), parsed);
    Ok(())
}

fn auth_merging(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let merging = match argument(call, 0).to_ascii_lowercase().as_str() {
        "off" => Merging::Off,
        "and" => Merging::And,
        "or" => Merging::Or,
        _ => return Err("AuthMerging must be one of: Off | And | Or".into()),
    };
    scope.directory.authz_core.merging = Some(merging);
    Ok(())
}

fn send_forbidden(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.authz_core.forbid_on_failure = Some(call.flag);
    Ok(())
}
