//! mod_authn_file: the authentication provider `file`, whose users are in the text file of
//! AuthUserFile.

pub use crate::{NoSettings as Server, NoSettings as Global};

use crate::{
    Active, Asked, AuthnProvider, Credential, Credentials, Directive, DirectiveResult, Merge,
    Module, Provided, Scope, Verdict, Where, argument, directive,
};
use evenkeel_config::{Call, Shape};
use evenkeel_message::{Level, Notice};
use std::path::Path;
use std::sync::Arc;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("AuthUserFile", Where::AUTH_CONFIG, Shape::One, "", "text file containing user IDs and passwords", auth_user_file),
];

/// mod_authn_file.
pub const MODULE: Module = Module {
    file: "mod_authn_file.c",
    identifier: "authn_file_module",
    active: Active::Usually,
    page: "mod_authn_file",
    subject: "Passwords in a text file, as htpasswd and htdigest write it.",
    remarks: &[
        "Except for `{SHA}`, a process hashes one password at a time, outside of its serving \
         threads. At most 256 requests of a process wait for it; further requests get a 503 \
         response.",
        "A right password is cached for five minutes (AuthnCacheTimeout) and a wrong one for ten seconds, under a hash \
         with a random key. A change of the user's entry takes effect at once.",
        "A user cannot log in if the stored hash has an unknown scheme, a bcrypt cost above 17 or \
         more than 20,000,000 rounds of SHA-2. Each time the file has changed, the error log names \
         the lines with such hashes once.",
    ],
    directives: &[DIRECTIVES],
    provides: &[Provided::Authn(AuthnProvider {
        name: "file",
        check,
        check_realm: Some(check_realm),
    })],
};

/// The settings of one section. A field is `None` if the section does not set it.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    file: Option<Arc<Path>>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; file)
    }
}

fn auth_user_file(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let path = scope.server_path(argument(call, 0));
    scope.directory.authn_file.file = Some(path.into());
    Ok(())
}

fn check(asked: &Asked<'_>, _: &Credentials<'_>, notices: &mut Vec<Notice>) -> Credential {
    user_file(asked, 1619, notices)
}

fn check_realm(asked: &Asked<'_>, _: &Credentials<'_>, notices: &mut Vec<Notice>) -> Credential {
    user_file(asked, 1621, notices)
}

/// The file of AuthUserFile. `number` is that of the message if it is not set.
fn user_file(asked: &Asked<'_>, number: u16, notices: &mut Vec<Notice>) -> Credential {
    match &asked.sections.authn_file.file {
        Some(file) => Credential::InFile(Arc::clone(file)),
        None => {
            let text = "AuthUserFile not specified in the configuration";
            notices.push(Notice::new("authn_file", Level::Error, number, text));
            Credential::Decided(Verdict::Failed)
        }
    }
}
