//! mod_suexec: CGI programs that run as other users, by Apache's wrapper with the set-user-id bit.
//! [`Identity::apply`] changes the order of a program into one for the wrapper, which checks what
//! it may run and as whom.

pub use crate::{NoSettings as Directory, NoSettings as Global};

use crate::unixd::{group_of, uid_of};
use crate::{Active, Directive, DirectiveResult, Merge, Module, Scope, Where, argument, directive};
use evenkeel_config::{Call, Shape};
use evenkeel_sys::identity::user_named;
use evenkeel_sys::spawn::{Order, is_executable_as_root};

/// The wrapper of Debian's packages apache2-suexec-pristine and apache2-suexec-custom.
const WRAPPER: &str = "/usr/lib/apache2/suexec";

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

/// The user and the group that a program runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    uid: u32,
    gid: u32,
    /// Whether they are those of a request below `/~user`.
    is_userdir: bool,
}

impl Server {
    /// The identity of SuexecUserGroup.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.0
    }
}

impl Identity {
    /// The identity of a user, for a program below `/~user`. Looks the user up in the system's
    /// table, which may take long.
    #[must_use]
    pub fn of_userdir(name: &str) -> Option<Self> {
        let user = user_named(name).ok().flatten()?;
        Some(Self { uid: user.uid, gid: user.gid, is_userdir: true })
    }

    /// Changes an order into one for the wrapper (unixd.c: ap_unix_create_privileged_process). The
    /// wrapper runs a program of the working folder, which it gets by name.
    pub fn apply(self, order: &mut Order, program: &[u8]) {
        let Self { uid, gid, is_userdir } = self;
        let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let tilde = if is_userdir { "~" } else { "" };
        let mut arguments = vec![
            WRAPPER.into(),
            format!("{tilde}{uid}").into_bytes(),
            gid.to_string().into_bytes(),
            name.to_vec(),
        ];
        arguments.extend(order.arguments.drain(..).skip(1));
        (order.program, order.arguments) = (WRAPPER.into(), arguments);
    }
}

/// Whether the wrapper can be used (mod_unixd.c: unixd_pre_config).
///
/// # Errors
/// Why it cannot.
pub fn usable() -> Result<(), String> {
    match is_executable_as_root(WRAPPER.as_bytes()) {
        None => Err(format!("Missing suexec binary {WRAPPER}")),
        Some(false) => Err(format!("Invalid owner or file mode for {WRAPPER}")),
        Some(true) => Ok(()),
    }
}

fn user_group(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let usable = match scope.global().unixd.suexec {
        Some(false) => Err("Suexec directive is Off".into()),
        _ => usable(),
    };
    usable.map_err(|reason| {
        format!("SuexecUserGroup configured, but suEXEC is disabled: {reason}")
    })?;
    let uid = uid_of(argument(call, 0))?;
    let gid = group_of(argument(call, 1))?;
    scope.server.suexec.0 = Some(Identity { uid, gid, is_userdir: false });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wrapper_gets_user_group_and_name() {
        let order = Order {
            program: b"/var/www/cgi/run".to_vec(),
            arguments: [&b"/var/www/cgi/run"[..], b"a", b"b"].map(<[u8]>::to_vec).to_vec(),
            ..Order::default()
        };
        let mut changed = order.clone();
        Identity { uid: 1000, gid: 100, is_userdir: false }.apply(&mut changed, &order.program);
        let words = ["/usr/lib/apache2/suexec", "1000", "100", "run", "a", "b"];
        assert_eq!(changed.arguments, words.map(|word| word.as_bytes().to_vec()));
        assert_eq!(changed.program, WRAPPER.as_bytes());
        let mut command = order.clone();
        command.arguments.truncate(1);
        Identity { uid: 1000, gid: 100, is_userdir: true }.apply(&mut command, b"date");
        let words = ["/usr/lib/apache2/suexec", "~1000", "100", "date"];
        assert_eq!(command.arguments, words.map(|word| word.as_bytes().to_vec()));
    }
}
