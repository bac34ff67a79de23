//! mod_suexec: CGI programs that run as other users, by Apache's wrapper with the set-user-id bit
//! (`wrapper.rs`).

pub use crate::{NoSettings as Directory, NoSettings as Global};

use crate::wrapper::{Identity, group_of, uid_of, usable};
use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("SuexecUserGroup", Where::SERVER, Shape::Two, "", "User and group for spawned processes", user_group),
];

/// mod_suexec.
pub const MODULE: Module = Module {
    file: "mod_suexec.c",
    identifier: "suexec_module",
    active: Active::WhenNamed,
    page: "mod_suexec",
    subject: "CGI programs that run as other users, by the wrapper `/usr/lib/apache2/suexec` of \
              Debian's packages apache2-suexec-pristine and apache2-suexec-custom. Programs below \
              `/~user` (mod_userdir) run as that user wherever the wrapper is installed, unless \
              Suexec is Off.",
    remarks: &[
        "The server may not signal a program that runs as another user: when its client leaves, \
         such a program ends when it next writes. Apache's programs do the same.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The user and the group of the programs of a virtual host.
#[derive(Clone, Debug, Default)]
pub struct Server(Option<Identity>);

impl Merge for Server {
    fn merge(base: &Self, over: &Self) -> Self {
        Self(over.0.or(base.0))
    }
}

impl Server {
    /// The identity of SuexecUserGroup.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.0
    }
}

fn user_group(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let usable = match scope.switches_suexec_off() {
        true => Err("Suexec directive is Off".into()),
        false => usable(),
    };
    usable.map_err(|reason| {
        format!("SuexecUserGroup configured, but suEXEC is disabled: {reason}")
    })?;
    let uid = uid_of(argument(call, 0))?;
    let gid = group_of(argument(call, 1))?;
    scope.server.suexec.0 = Some(Identity { uid, gid, is_userdir: false });
    Ok(())
}
