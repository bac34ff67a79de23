//! Users, groups and privileges: looks them up in the system's databases, and drops privileges for
//! good. What identity a process should have is decided by the caller.

use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;
use std::ptr;

use libc::{c_char, c_int, passwd};
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The login name.
    pub name: String,
    /// The user's id.
    pub uid: u32,
    /// The id of the user's primary group.
    pub gid: u32,
    /// The home folder.
    pub home: String,
}

/// The identity that a process takes with [`drop_privileges`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user's id.
    pub uid: u32,
    /// The id of the primary group.
    pub gid: u32,
    /// All groups, as [`groups_of`] lists them.
    pub groups: Vec<u32>,
}

/// Whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The effective user id.
#[must_use]
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The effective group id.
#[must_use]
pub fn own_gid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// The user with this name; `None` if there is none. Errors are getpwnam_r(3)'s.
pub fn user_named(name: &str) -> io::Result<Option<User>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    // SAFETY: the name is a C string; entry, buffer and result are as `look_up_user` promises.
    look_up_user(|entry, buffer, length, found| unsafe {
        libc::getpwnam_r(name.as_ptr(), entry, buffer, length, found)
    })
}

/// The user with this id; `None` if there is none. Errors are getpwuid_r(3)'s.
pub fn user_numbered(uid: u32) -> io::Result<Option<User>> {
    // SAFETY: entry, buffer and result are as `look_up_user` promises.
    look_up_user(|entry, buffer, length, found| unsafe {
        libc::getpwuid_r(uid, entry, buffer, length, found)
    })
}

/// The id of the group with this name; `None` if there is none. Errors are getgrnam_r(3)'s.
pub fn group_named(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    with_buffer(|buffer, length| {
        let mut entry: libc::group = zeroed_group();
        let mut found = ptr::null_mut();
        // SAFETY: all pointers are valid for the call, the length is the buffer's.
        let error = unsafe {
            libc::getgrnam_r(name.as_ptr(), &raw mut entry, buffer, length, &raw mut found)
        };
        (error, (!found.is_null()).then_some(entry.gr_gid))
    })
}

/// The name of the group with this id; `None` if there is none. Errors are getgrgid_r(3)'s.
pub fn group_numbered(gid: u32) -> io::Result<Option<String>> {
    with_buffer(|buffer, length| {
        let mut entry: libc::group = zeroed_group();
        let mut found = ptr::null_mut();
        // SAFETY: all pointers are valid for the call, the length is the buffer's.
        let error =
            unsafe { libc::getgrgid_r(gid, &raw mut entry, buffer, length, &raw mut found) };
        let name = (!found.is_null()).then(|| {
            // SAFETY: the call succeeded, so the name is a C string in the buffer.
            let name = unsafe { CStr::from_ptr(entry.gr_name) };
            name.to_string_lossy().into_owned()
        });
        (error, name)
    })
}

/// All groups of a user, including the primary one. Errors are getgrouplist(3)'s.
pub fn groups_of(user: &str, gid: u32) -> io::Result<Vec<u32>> {
    let user = CString::new(user).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut groups = vec![0_u32; 64];
    loop {
        let mut count = i32::try_from(groups.len()).map_err(|_| io::ErrorKind::InvalidData)?;
        // SAFETY: the count says how many entries the buffer has; the call writes no more.
        let done =
            unsafe { libc::getgrouplist(user.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        let needed = usize::try_from(count).unwrap_or(0);
        if done >= 0 {
            groups.truncate(needed);
            return Ok(groups);
        }
        groups.resize(needed.max(groups.len() * 2).min(1 << 16), 0);
    }
}

/// Takes `identity` for good: no other group, no capability, none to be gained by executing a
/// program, and no access to the memory for other processes. `dumpable` keeps core files (and
/// debuggers) possible. Only a process with one thread may call it, and it must be root. The text
/// of an error names the step that failed, as Apache's mod_unixd does.
pub fn drop_privileges(identity: &Identity, dumpable: bool) -> io::Result<()> {
    if crate::process::threads()? != 1 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "drop_privileges with threads"));
    }
    // While there is still a right to do so: no executed program gains a capability.
    drop_bounding_set();
    take_identity(identity)?;
    give_up_capabilities(dumpable)
}

/// Takes `identity` for a process that starts programs. Unlike [`drop_privileges`], it leaves
/// set-user-id programs their rights: suexec and the programs that deliver mail need them. The
/// process itself has no capability. Only a process with one thread may call it, as root.
pub fn become_user(identity: &Identity) -> io::Result<()> {
    if crate::process::threads()? != 1 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "become_user with threads"));
    }
    take_identity(identity)?;
    // A change of the user has cleared the capabilities (capabilities(7)); no other process of the
    // user may read or stop this one.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Changes the groups and the user for good.
fn take_identity(identity: &Identity) -> io::Result<()> {
    // SAFETY: the count is that of the list, and the others take numbers only. With one thread, the
    // kernel's per-thread identities cannot differ.
    unsafe {
        let groups = &identity.groups;
        check(libc::setgroups(groups.len(), groups.as_ptr()), "initgroups: unable to set groups")?;
        let gid = identity.gid;
        check(libc::setresgid(gid, gid, gid), "setgid: unable to set group id")?;
        let uid = identity.uid;
        check(libc::setresuid(uid, uid, uid), "setuid: unable to change to uid")?;
    }
    // -1 would have changed nothing and still have succeeded (setresuid(2)).
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let (euid, egid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let is_done = [uid, euid] == [identity.uid; 2] && [gid, egid] == [identity.gid; 2];
    if !is_done || uid == 0 {
        let text = format!("setuid: the process is user {uid} and group {gid} after all");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

/// Drops what an ordinary user may still have: capabilities, and gaining them by executing a
/// program.
pub fn give_up_capabilities(dumpable: bool) -> io::Result<()> {
    let none = CapabilitySet::empty();
    // A kernel without ambient sets has none to clear.
    let _ = rustix::thread::clear_ambient_capability_set();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)?;
    let behavior =
        if dumpable { DumpableBehavior::Dumpable } else { DumpableBehavior::NotDumpable };
    rustix::process::set_dumpable_behavior(behavior)?;
    Ok(())
}

/// Changes the root folder of the process (chroot(2)); only root may.
pub fn chroot(folder: &Path) -> io::Result<()> {
    std::env::set_current_dir(folder)?;
    rustix::process::chroot(folder)?;
    std::env::set_current_dir("/")
}

fn drop_bounding_set() {
    for capability in 0..64_u32 {
        // SAFETY: PR_CAPBSET_DROP takes one number. It fails beyond the last capability that the
        // kernel knows, and without CAP_SETPCAP; then no_new_privs alone has to do.
        let done = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability)) };
        if done != 0 {
            return;
        }
    }
}

fn check(done: libc::c_int, step: &str) -> io::Result<()> {
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(io::Error::new(error.kind(), format!("{step}: {error}")))
}

/// Calls one of getpw*_r with an entry, a buffer, its length, and a place for the result.
fn look_up_user(
    call: impl Fn(*mut passwd, *mut c_char, usize, *mut *mut passwd) -> c_int,
) -> io::Result<Option<User>> {
    with_buffer(|buffer, length| {
        let mut entry = zeroed_passwd();
        let mut found = ptr::null_mut();
        let error = call(&raw mut entry, buffer, length, &raw mut found);
        if found.is_null() {
            return (error, None);
        }
        // SAFETY: the call succeeded, so these point to C strings within the buffer.
        let user = unsafe {
            User {
                name: text_at(entry.pw_name),
                uid: entry.pw_uid,
                gid: entry.pw_gid,
                home: text_at(entry.pw_dir),
            }
        };
        (error, Some(user))
    })
}

/// Runs a call of the getpw and getgr family, with a buffer that grows until the entry fits.
fn with_buffer<T>(
    call: impl Fn(*mut libc::c_char, usize) -> (libc::c_int, Option<T>),
) -> io::Result<Option<T>> {
    let mut buffer: Vec<libc::c_char> = vec![0; 4096];
    loop {
        match call(buffer.as_mut_ptr(), buffer.len()) {
            (_, Some(found)) => return Ok(Some(found)),
            // These mean "no such entry" in some back ends (getpwnam(3), notes).
            (0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM, None) => return Ok(None),
            (libc::ERANGE, None) if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 4, 0),
            (libc::EINTR, None) => {}
            (error, None) => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// The text of a pointer that is a C string or null.
unsafe fn text_at(text: *const libc::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller promises a C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn zeroed_passwd() -> libc::passwd {
    // SAFETY: numbers and pointers, all of which may be zero.
    unsafe { std::mem::zeroed() }
}

fn zeroed_group() -> libc::group {
    // SAFETY: numbers and pointers, all of which may be zero.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_name_and_number() {
        let root = user_named("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(user_numbered(0).unwrap().unwrap(), root);
        assert_eq!(group_named("root").unwrap(), Some(0));
        assert!(groups_of("root", 0).unwrap().contains(&0));
    }

    #[test]
    fn nobody_of_that_name_is_no_error() {
        assert_eq!(user_named("no-such-user-here").unwrap(), None);
        assert_eq!(user_named("nul\0inside").unwrap(), None);
        assert_eq!(user_numbered(4_000_000_123).unwrap(), None);
        assert_eq!(group_named("no-such-group-here").unwrap(), None);
    }
}
