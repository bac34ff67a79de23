//! mod_authn_anon: the authentication provider `anon`, which accepts certain user names with any
//! password. By convention the password is the user's email address.

pub use crate::{NoSettings as Server, NoSettings as Global};

use crate::{
    Active, Asked, AuthnProvider, Credential, Credentials, Directive, DirectiveResult, Merge,
    Module, Provided, Scope, Verdict, Where, argument, directive,
};
use evenkeel_config::{Call, Shape};
use evenkeel_message::{Level, Notice, quoted, unquoted};
use std::sync::Arc;

const AUTH: Where = Where::AUTH_CONFIG;
const SWITCH: &str = "Limited to 'on' or 'off'";

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("Anonymous", AUTH, Shape::Iterate, "", "a space-separated list of user IDs", anonymous),
    directive("Anonymous_MustGiveEmail", AUTH, Shape::Flag, "On", SWITCH, must_give_email),
    directive("Anonymous_NoUserId", AUTH, Shape::Flag, "Off", SWITCH, no_user_id),
    directive("Anonymous_VerifyEmail", AUTH, Shape::Flag, "Off", SWITCH, verify_email),
    directive("Anonymous_LogEmail", AUTH, Shape::Flag, "On", SWITCH, log_email),
];

/// mod_authn_anon.
pub const MODULE: Module = Module {
    file: "mod_authn_anon.c",
    identifier: "authn_anon_module",
    active: Active::Usually,
    page: "mod_authn_anon",
    subject: "Users that are let in with any password.",
    remarks: &[
        "As in Apache, a section that has a directive of this module inherits no setting of this \
         module from the outer sections.",
    ],
    directives: &[DIRECTIVES],
    provides: &[Provided::Authn(AuthnProvider { name: "anon", check, check_realm: None })],
};

/// The settings of one section. `said` is `None` if the section has no directive of this module;
/// otherwise it replaces the settings of the outer sections as a whole, because Apache's module has
/// no function that merges them.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    said: Option<Arc<Said>>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; said)
    }
}

#[derive(Clone, Debug)]
struct Said {
    users: Vec<Box<[u8]>>,
    any_user: bool,
    no_user_id: bool,
    must_give_email: bool,
    verify_email: bool,
    log_email: bool,
}

impl Default for Said {
    fn default() -> Self {
        Self {
            users: Vec::new(),
            any_user: false,
            no_user_id: false,
            must_give_email: true,
            verify_email: false,
            log_email: true,
        }
    }
}

fn said(scope: &mut Scope) -> &mut Said {
    Arc::make_mut(scope.directory.authn_anon.said.get_or_insert_default())
}

fn anonymous(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let user = argument(call, 0);
    if user.is_empty() {
        return Err("Anonymous string cannot be empty, use Anonymous_NoUserId".into());
    }
    let said = said(scope);
    match user {
        _ if said.any_user => {}
        "*" => said.any_user = true,
        user => said.users.push(unquoted(user).into()),
    }
    Ok(())
}

fn must_give_email(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).must_give_email = call.flag;
    Ok(())
}

fn no_user_id(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).no_user_id = call.flag;
    Ok(())
}

fn verify_email(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).verify_email = call.flag;
    Ok(())
}

fn log_email(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    said(scope).log_email = call.flag;
    Ok(())
}

/// Checks a login (mod_authn_anon.c: check_anonymous).
fn check(asked: &Asked<'_>, sent: &Credentials<'_>, notices: &mut Vec<Notice>) -> Credential {
    let Some(said) = asked.sections.authn_anon.said.as_deref() else {
        return Credential::Decided(Verdict::NotFound);
    };
    let is_first = asked.context.request.resource.depth == 0;
    let verdict = said.verdict(sent);
    if verdict == Verdict::Granted && said.log_email && is_first {
        let text = format!("Anonymous: Passwd <{}> Accepted", quoted(sent.password));
        notices.push(Notice::new("authn_anon", Level::Info, 1672, text));
    }
    Credential::Decided(verdict)
}

impl Said {
    fn verdict(&self, sent: &Credentials<'_>) -> Verdict {
        let Credentials { user, password } = *sent;
        let is_named = || self.users.iter().any(|name| name.eq_ignore_ascii_case(user));
        let is_known = match user {
            _ if self.users.is_empty() && !self.any_user => false,
            b"" => self.no_user_id,
            _ => self.any_user || is_named(),
        };
        if !is_known {
            return Verdict::NotFound;
        }
        let is_address = password.contains(&b'@') && password.contains(&b'.');
        let has_password = !self.must_give_email || !password.is_empty();
        match has_password && (!self.verify_email || is_address) && !password.contains(&0) {
            true => Verdict::Granted,
            false => Verdict::Denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_let_in_with_what_as_in_apache() {
        let anyone = Said { any_user: true, ..Said::default() };
        let named = Said { users: vec![b"guest"[..].into()], ..Said::default() };
        let strict = Said { verify_email: true, ..named.clone() };
        let lax = Said { must_give_email: false, no_user_id: true, ..named.clone() };
        for (said, user, password, verdict) in [
            (&anyone, "x", "y", Verdict::Granted),
            (&anyone, "", "y", Verdict::NotFound),
            (&named, "Guest", "y", Verdict::Granted),
            (&named, "guest", "", Verdict::Denied),
            (&named, "other", "y", Verdict::NotFound),
            (&strict, "guest", "y", Verdict::Denied),
            (&strict, "guest", "a@b.c", Verdict::Granted),
            (&lax, "", "", Verdict::Granted),
            (&lax, "guest", "a\0", Verdict::Denied),
            (&Said::default(), "", "y", Verdict::NotFound),
        ] {
            let sent = Credentials { user: user.as_bytes(), password: password.as_bytes() };
            assert_eq!(said.verdict(&sent), verdict, "{user} {password}");
        }
    }
}
