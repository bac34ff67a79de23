//! mod_authz_user: `Require user` with a list of names, and `Require valid-user`.

pub use crate::{NoSettings as Directory, NoSettings as Server, NoSettings as Global};

use crate::{
    Active, Asked, Module, ParsedRequirement, Provided, RequireProvider, Requirement, Scope,
};
use evenkeel_config::words;
use evenkeel_expr::Text;
use evenkeel_message::{Level, Notice, Undecided, quoted, unquoted};
use std::sync::Arc;

/// mod_authz_user.
pub const MODULE: Module = Module {
    file: "mod_authz_user.c",
    identifier: "authz_user_module",
    active: Active::Usually,
    page: "mod_authz_user",
    subject: "Access by the name of the user: `Require user` and `valid-user`.",
    remarks: &[],
    directives: &[],
    provides: &[
        Provided::Require(RequireProvider { name: "user", parse: parse_user }),
        Provided::Require(RequireProvider { name: "valid-user", parse: parse_valid_user }),
    ],
};

/// A compiled Require line of this module.
#[derive(Debug)]
enum UserRule {
    /// `user`: the user name is in this list.
    User(Text),
    /// `valid-user`: any authenticated user.
    ValidUser,
}

fn parse_user(scope: &Scope, arguments: &str) -> ParsedRequirement {
    let text = scope
        .compile_text(arguments)
        .map_err(|error| format!("Cannot parse expression in require line: {error}"))?;
    Ok(Arc::new(UserRule::User(text)))
}

fn parse_valid_user(_: &Scope, _: &str) -> ParsedRequirement {
    Ok(Arc::new(UserRule::ValidUser))
}

impl Requirement for UserRule {
    fn is_met(&self, asked: &Asked<'_>, notices: &mut Vec<Notice>) -> Result<bool, Undecided> {
        let resource = &asked.context.request.resource;
        let Some(user) = resource.user.as_deref() else { return Ok(false) };
        let names = match self {
            UserRule::ValidUser => return Ok(true),
            UserRule::User(names) => names.value(&asked.context),
        };
        let names = match names {
            Ok(names) => names,
            Err(error) => {
                let text = format!(
                    "authz_user authorize: require user: Can't evaluate require expression: {error}"
                );
                notices.push(Notice::new("authz_user", Level::Error, 2594, text));
                return Ok(false);
            }
        };
        // An empty word in quotes ends the list.
        let names = words(&quoted(&names));
        let mut names = names.iter().take_while(|name| !name.is_empty());
        if names.any(|name| *unquoted(name) == *user) {
            return Ok(true);
        }
        let text = format!(
            "access to {} failed, reason: user '{}' does not meet 'require'ments for user to be \
             allowed access",
            quoted(&resource.path),
            quoted(user)
        );
        notices.push(Notice::new("authz_user", Level::Debug, 1663, text));
        Ok(false)
    }

    fn needs_user(&self) -> bool {
        true
    }
}
