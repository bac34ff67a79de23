//! mod_auth_basic's directives.

use super::Fake;
use crate::{Active, Directive, DirectiveResult, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};
use std::sync::Arc;

const AUTH: Where = Where::AUTH_CONFIG;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("AuthBasicProvider", AUTH, Shape::Iterate, "file", "specify the auth providers for a directory or location", provider),
    directive("AuthBasicAuthoritative", AUTH, Shape::Flag, "On", "Set to 'Off' to allow access control to be passed along to lower modules if the UserID is not known to this module", authoritative),
    directive("AuthBasicFake", AUTH, Shape::OneOrTwo, "", "Fake basic authentication using the given expressions for username and password, 'off' to disable. Password defaults to 'password' if missing.", fake),
    directive("AuthBasicUseDigestAlgorithm", AUTH, Shape::One, "Off", "Set to 'MD5' to use the auth provider's authentication check for digest auth, using a hash of 'user:realm:pass'", digest),
];

/// mod_auth_basic.
pub const MODULE: Module = Module {
    file: "mod_auth_basic.c",
    identifier: "auth_basic_module",
    active: Active::Usually,
    page: "mod_auth_basic",
    subject: "Logging in with a user and a password.",
    remarks: &[
        "A password that contains a NUL is always rejected. Apache compares only the bytes before \
         the NUL.",
        "The error log line of AuthBasicFake does not contain the password.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn provider(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let name = argument(call, 0);
    let source = scope.global().active.named_authn_source(name)?;
    let providers = &mut scope.directory.auth_basic.providers;
    Arc::make_mut(providers.get_or_insert_default()).push(source);
    Ok(())
}

fn authoritative(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.auth_basic.authoritative = Some(call.flag);
    Ok(())
}

fn fake(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let user = argument(call, 0);
    if user.eq_ignore_ascii_case("off") {
        scope.directory.auth_basic.fake = Some(None);
        return Ok(());
    }
    let password = call.words.get(1).map_or("password", String::as_str);
    let compiled_user = scope
        .compile_text(user)
        .map_err(|error| format!("Could not parse fake username expression '{user}': {error}"))?;
    let compiled_password = scope.compile_text(password).map_err(|error| {
        format!("Could not parse fake password expression associated to user '{user}': {error}")
    })?;
    let fake = Fake { user: compiled_user, password: compiled_password };
    scope.directory.auth_basic.fake = Some(Some(Arc::new(fake)));
    Ok(())
}

fn digest(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = argument(call, 0);
    let is_md5 = word.eq_ignore_ascii_case("MD5");
    if !is_md5 && !word.eq_ignore_ascii_case("Off") {
        return Err(format!("Invalid algorithm in AuthBasicUseDigestAlgorithm: {word}"));
    }
    scope.directory.auth_basic.digest = Some(is_md5);
    Ok(())
}
