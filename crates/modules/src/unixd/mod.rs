//! Who the children run as (mod_unixd.c): names and numbers go in, recorded as found in the
//! system's tables. Dropping the rights themselves is `mpm`'s.

pub use crate::{NoSettings as Directory, NoSettings as Server};

use crate::wrapper::{self, found_user, group_of};
use crate::{Active, Directive, DirectiveResult, Module, Scope, argument, global_directive};
use evenkeel_config::{GlobalCall, Shape};

/// Who the children are to be.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// User: number, and name where it has one.
    pub user: Option<(u32, Box<str>)>,
    /// Group's number and text.
    pub group: Option<(u32, Box<str>)>,
    /// ChrootDir.
    pub chroot: Option<Box<str>>,
    /// Suexec.
    pub suexec: Option<bool>,
}

impl Global {
    /// Whether programs run as other users where the configuration says so.
    #[must_use]
    pub fn runs_suexec(&self) -> bool {
        self.suexec.unwrap_or_else(|| wrapper::usable().is_ok())
    }
}

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    global_directive("User", Shape::One, "#-1", "Effective user id for this server", user),
    global_directive("Group", Shape::One, "#-1", "Effective group id for this server", group),
    global_directive("ChrootDir", Shape::One, "", "The directory to chroot(2) into", chroot_dir),
    global_directive("Suexec", Shape::Flag, "", "Enable or disable suEXEC support", suexec),
];

/// mod_unixd.
pub const MODULE: Module = Module {
    file: "mod_unixd.c",
    identifier: "unixd_module",
    active: Active::Always,
    page: "mod_unixd",
    subject: "Who the children of the server are. Root's server does not start without User; with \
              `-X` it serves as nobody then.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

fn user(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let (uid, name) = found_user(argument(call, 0))?;
    if uid == 0 {
        return Err("Error:\tEvenkeel has not been designed to serve pages while\n\trunning as \
                    root.  There are known race conditions that\n\twill allow any local user to \
                    read any file on the system."
            .into());
    }
    scope.global_mut(call).unixd.user = Some((uid, name));
    Ok(())
}

fn group(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let text = argument(call, 0);
    let gid = group_of(text)?;
    scope.global_mut(call).unixd.group = Some((gid, text.into()));
    Ok(())
}

fn chroot_dir(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    let path = argument(call, 0);
    if !std::path::Path::new(path).is_dir() {
        return Err("ChrootDir must be a valid directory".into());
    }
    scope.global_mut(call).unixd.chroot = Some(path.into());
    Ok(())
}

fn suexec(scope: &mut Scope, call: &GlobalCall<'_>) -> DirectiveResult {
    if call.flag {
        wrapper::usable().map_err(|reason| format!("suEXEC isn't supported: {reason}"))?;
    }
    scope.global_mut(call).unixd.suexec = Some(call.flag);
    Ok(())
}
