//! mod_authz_owner: `Require file-owner`, which grants access to the user that owns the requested
//! file.

pub use crate::{NoSettings as Directory, NoSettings as Server, NoSettings as Global};

use crate::ownership::{self, failure, owner};
use crate::{
    Active, Asked, Module, ParsedRequirement, Provided, RequireProvider, Requirement, Scope,
};
use evenkeel_message::{Level, Notice, Undecided};
use std::sync::Arc;

/// mod_authz_owner.
pub const MODULE: Module = Module {
    file: "mod_authz_owner.c",
    identifier: "authz_owner_module",
    active: Active::Usually,
    page: "mod_authz_owner",
    subject: "Access by the owner of a file: `Require file-owner`, and `file-group` together with \
              mod_authz_groupfile.",
    remarks: &[],
    directives: &[],
    provides: &[Provided::Require(RequireProvider { name: "file-owner", parse })],
};

#[derive(Debug)]
struct FileOwner;

fn parse(_: &Scope, _: &str) -> ParsedRequirement {
    Ok(Arc::new(FileOwner))
}

impl Requirement for FileOwner {
    fn is_met(&self, asked: &Asked<'_>, notices: &mut Vec<Notice>) -> Result<bool, Undecided> {
        let Some(owner) = owner(asked, &ownership::OWNER, notices)? else { return Ok(false) };
        let user = asked.context.request.resource.user.as_deref();
        if user == Some(owner.as_bytes()) {
            return Ok(true);
        }
        let text = failure(asked, &format!("file owner {owner} does not match."));
        notices.push(Notice::new("authz_owner", Level::Error, 1637, text));
        Ok(false)
    }

    fn needs_user(&self) -> bool {
        true
    }
}
