//! Auxiliary processes: children of the parent that serve no client, with the identity of the
//! children that do. The parent forks one with [`start`]. It ends when the parent ends it or has
//! ended itself.

use std::io;
use std::os::fd::BorrowedFd;

use evenkeel_sys::identity;
use evenkeel_sys::process::{self, Pid, Side};
use evenkeel_sys::signal::{self, Signal};

use crate::detach;
use crate::oom_score::OomScore;
use crate::settings::Settings;

/// Starts a process with this name, which runs `body` and ends with its result. Of the descriptors
/// of the parent, it keeps the standard ones and those of `kept`. `body` learns whether the process
/// could be prepared. Only a process with one thread may call it; errors are fork(2)'s.
pub fn start(
    settings: &Settings,
    name: &str,
    kept: &[BorrowedFd<'_>],
    body: impl FnOnce(io::Result<()>) -> i32,
) -> io::Result<Pid> {
    let (score, parent) = (OomScore::for_children(), process::own_pid());
    match process::fork()? {
        Side::Parent(pid) => Ok(pid),
        Side::Child => process::run_beside(kept, || {
            score.apply();
            process::name_thread(name);
            body(prepare(settings, parent))
        }),
    }
}

/// Leaves the terminal, the caller's standard input and output and its folder, takes the identity
/// of the children, and has the kernel end this process with its parent.
fn prepare(settings: &Settings, parent: Pid) -> io::Result<()> {
    process::leave_terminal()?;
    detach::leave_caller()?;
    if let Some(folder) = settings.chroot.as_deref() {
        identity::chroot(folder)?;
    }
    match settings.identity.as_ref().filter(|_| identity::is_root()) {
        Some(identity) => identity::drop_privileges(identity, false)?,
        None => identity::give_up_capabilities(false)?,
    }
    process::follow_parent(Signal::Terminate)?;
    signal::unblock_all()?;
    match process::parent_pid() == Some(parent) {
        true => Ok(()),
        // It has ended before it was followed.
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}
