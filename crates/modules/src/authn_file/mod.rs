//! mod_authn_file: the provider `file`, which finds passwords in the text file of AuthUserFile.

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
        "Passwords are hashed beside the serving threads, one at a time in each process. Of \
         requests that wait for it, 256 do so in each process; others are answered with 503.",
        "A password that was verified is remembered for five minutes, under a hash with a random \
         key, and forgotten at once when the entry of the user changes.",
        "A hash of an unknown scheme, a cost of bcrypt above 17 and more than 20,000,000 rounds \
         of SHA-2 let nobody in. The error log names the line once each time the file changes.",
    ],
    directives: &[DIRECTIVES],
    provides: &[Provided::Authn(AuthnProvider { name: "file", check, has_realms: true })],
};

/// What a section says.
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
    match &asked.sections.authn_file.file {
        Some(file) => Credential::InFile(Arc::clone(file)),
        None => {
            let text = "AuthUserFile not specified in the configuration";
            notices.push(Notice::new("authn_file", Level::Error, 1619, text));
            Credential::Decided(Verdict::Failed)
        }
    }
}
