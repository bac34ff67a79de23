//! The wrapper of suexec, which runs programs as other users, and the users and groups that the
//! configuration names. [`Identity::apply`] changes the order of a program into one for the
//! wrapper, which checks what it may run and as whom.

use evenkeel_sys::identity::{group_named, user_named, user_numbered};
use evenkeel_sys::spawn::{Order, is_executable_as_root};

/// The wrapper of Debian's packages apache2-suexec-pristine and apache2-suexec-custom.
const WRAPPER: &str = "/usr/lib/apache2/suexec";

/// The user and the group that a program runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether the user is that of a path below `/~user`. The wrapper then runs programs of the
    /// user's home instead of those below its own root.
    pub(crate) is_userdir: bool,
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
    /// wrapper gets the name of the program without its folder, and looks for it in the working
    /// folder.
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

/// The number and the name of a user, who may be given by number (`#33`).
pub(crate) fn found_user(text: &str) -> Result<(u32, Box<str>), String> {
    let found = match text.strip_prefix('#').map(str::parse::<u32>) {
        Some(Ok(uid)) => {
            let known = user_numbered(uid).ok().flatten();
            Some((uid, known.map_or_else(|| text.to_owned(), |user| user.name)))
        }
        Some(Err(_)) => None,
        None => user_named(text).ok().flatten().map(|user| (user.uid, user.name)),
    };
    // The largest number is none: setresuid(2) takes it for "as before", which is root.
    let found = found.filter(|(uid, _)| *uid != u32::MAX);
    let (uid, name) = found.ok_or_else(|| format!("AH00543: bad user name {text}"))?;
    Ok((uid, name.into()))
}

/// The number of a user.
///
/// # Errors
/// There is no such user.
pub(crate) fn uid_of(text: &str) -> Result<u32, String> {
    found_user(text).map(|(uid, _)| uid)
}

/// The number of a group, which may be given by number.
///
/// # Errors
/// There is no such group.
pub(crate) fn group_of(text: &str) -> Result<u32, String> {
    let found = match text.strip_prefix('#') {
        Some(number) => number.parse().ok(),
        None => group_named(text).ok().flatten(),
    };
    let found = found.filter(|gid| *gid != u32::MAX);
    found.ok_or_else(|| format!("AH00544: bad group name {text}"))
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
