//! Processes: forking, waiting, signals, leaving the terminal, ending, and the properties of the
//! own process. A process with threads is never forked.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use rustix::process::{Resource, Rlimit, WaitId, WaitIdOptions, WaitOptions};
use rustix::thread::CpuSet;

pub use rustix::process::Pid;

use crate::signal::Signal;

/// The side of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The calling process, with the new one's pid.
    Parent(Pid),
    /// The new process.
    Child,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It exited with this status.
    Exited(i32),
    /// A signal killed it.
    Killed {
        /// The signal's number.
        signal: i32,
        /// Whether the kernel wrote a core file.
        core_dumped: bool,
    },
}

impl End {
    /// Whether this signal killed it.
    #[must_use]
    pub fn is_killed_by(self, by: Signal) -> bool {
        matches!(self, Self::Killed { signal, .. } if signal == by.number())
    }
}

/// Forks the calling process. Refused (`Unsupported`) if it has more than one thread: in the copy
/// the other threads would be gone with their locks held. Other errors are fork(2)'s.
pub fn fork() -> io::Result<Side> {
    if threads()? != 1 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "fork of a process with threads"));
    }
    // SAFETY: the process has only this thread, so the copy is complete.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => Pid::from_raw(pid).map(Side::Parent).ok_or(io::ErrorKind::Other.into()),
    }
}

/// How many threads the calling process has. An error means that /proc is not mounted.
pub fn threads() -> io::Result<u64> {
    // A folder has two links of its own and one for each folder in it, which here is a thread.
    Ok(fs::metadata("/proc/self/task")?.nlink().saturating_sub(2))
}

/// Reaps a child process that has ended, in whatever process group it is; `None` if there is none.
pub fn reap() -> Option<(Pid, End)> {
    loop {
        let (pid, status) = match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(found)) => found,
            Err(rustix::io::Errno::INTR) => continue,
            Ok(None) | Err(_) => return None,
        };
        if let Some(end) = end_of(status) {
            return Some((pid, end));
        }
    }
}

/// Waits for the end of a child process. `NotFound` if `pid` is no child of this process.
pub fn wait(pid: Pid) -> io::Result<End> {
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                if let Some(end) = end_of(status) {
                    return Ok(end);
                }
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return Err(io::ErrorKind::NotFound.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a signal has stopped a child process since the last call, and it is still stopped.
#[must_use]
pub fn has_stopped(pid: Pid) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(Some(_)))
}

fn end_of(status: rustix::process::WaitStatus) -> Option<End> {
    if let Some(code) = status.exit_status() {
        return Some(End::Exited(code));
    }
    let signal = status.terminating_signal()?;
    Some(End::Killed { signal, core_dumped: libc::WCOREDUMP(status.as_raw()) })
}

/// Sends a signal. Errors are kill(2)'s.
pub fn kill(pid: Pid, signal: Signal) -> io::Result<()> {
    // SAFETY: kill(2) takes two numbers and touches no memory.
    match unsafe { libc::kill(pid.as_raw_nonzero().get(), signal.number()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has a command start with no signal blocked, whatever the calling thread blocks: a program that
/// does not reset its mask could not be stopped otherwise.
pub fn unblock_signals(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only sigemptyset(3) and sigprocmask(2) are called, which is
    // allowed.
    unsafe { command.pre_exec(crate::signal::unblock_all) }
}

/// Whether a process with this pid exists, of any user.
#[must_use]
pub fn exists(pid: Pid) -> bool {
    !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

/// The pid of this process.
#[must_use]
pub fn own_pid() -> Pid {
    rustix::process::getpid()
}

/// The parent's pid; `None` if it is outside of this pid namespace.
#[must_use]
pub fn parent_pid() -> Option<Pid> {
    rustix::process::getppid()
}

/// The calling thread's id, as the error log prints it.
#[must_use]
pub fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Ends the process at once, without destructors or exit handlers of the process that forked it.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit(2) does not return and touches no memory of ours.
    unsafe { libc::_exit(status) }
}

/// Runs `body` in a forked copy of a process and ends the process with its result. Only the
/// standard descriptors and `kept` stay open; `body` gets the latter. A panic ends the process with
/// status 101.
pub fn run_alone(kept: OwnedFd, body: impl FnOnce(OwnedFd) -> i32) -> ! {
    let status = catch_unwind(AssertUnwindSafe(|| {
        let moved = rustix::io::fcntl_dupfd_cloexec(&kept, 3);
        let Ok(moved) = moved else { return 1 };
        std::mem::forget(kept);
        close_others(&[moved.as_fd()]);
        body(moved)
    }));
    exit_now(status.unwrap_or(101))
}

/// Runs `body` in a forked copy of a process, as [`run_alone`] does. The descriptors `kept` stay
/// open under their numbers, for what `body` has borrowed from the process that forked it.
pub fn run_beside(kept: &[BorrowedFd<'_>], body: impl FnOnce() -> i32) -> ! {
    let status = catch_unwind(AssertUnwindSafe(|| {
        close_others(kept);
        body()
    }));
    exit_now(status.unwrap_or(101))
}

/// Closes all descriptors but the standard ones and these. What else owns them is the copy of the
/// memory of the process that forked this one, which does not use them again: the callers do not
/// return.
fn close_others(kept: &[BorrowedFd<'_>]) {
    let mut numbers: Vec<u32> = kept.iter().map(|one| one.as_raw_fd().unsigned_abs()).collect();
    numbers.sort_unstable();
    let mut from = 3;
    for number in numbers {
        if number > from {
            close_range(from, number - 1);
        }
        from = from.max(number + 1);
    }
    close_range(from, libc::c_uint::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: close_range(2) takes numbers.
    unsafe {
        libc::close_range(first, last, 0);
    }
}

/// Leaves the terminal and the process group (setsid(2)).
pub fn leave_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Makes descriptor 0, 1 or 2 a copy of `target`. `InvalidInput` for other numbers, which may have
/// an owner.
pub fn replace_standard(number: i32, target: impl AsFd) -> io::Result<()> {
    if !(0..=2).contains(&number) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the target is open while it is borrowed, and nothing owns the standard descriptors.
    match unsafe { libc::dup2(target.as_fd().as_raw_fd(), number) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Names the calling thread for ps and top (cut at 15 bytes).
pub fn name_thread(name: &str) {
    let name: String = name.chars().filter(|&character| character != '\0').take(15).collect();
    if let Ok(name) = CString::new(name) {
        // The name is for people to read, and nothing depends on it.
        let _ = rustix::thread::set_name(&name);
    }
}

/// Makes waits of the calling thread end as precisely as the kernel can (PR_SET_TIMERSLACK of one
/// nanosecond; the default is 50 microseconds).
pub fn least_timer_slack() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?)
}

/// Raises the limit of open descriptors to the hard limit. Returns the limit that holds.
#[must_use]
pub fn raise_descriptor_limit() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let holds = match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    holds.unwrap_or(u64::MAX)
}

/// How many descriptors this process may have.
#[must_use]
pub fn most_descriptors() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The end of a message about this error: which limit causes the lack of descriptors. Empty for
/// other errors.
#[must_use]
pub fn descriptor_limit(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMFILE) => match rustix::process::getrlimit(Resource::Nofile).current {
            Some(most) => format!("; this process may have {most} (ulimit -n {most})"),
            None => String::new(),
        },
        Some(libc::ENFILE) => "; the machine may have no more (fs.file-max)".into(),
        _ => String::new(),
    }
}

/// How many descriptors this process has open; 0 if /proc does not tell.
#[must_use]
pub fn open_descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
}

/// The adjustment of a process's score for the OOM killer, in thousandths of the memory
/// (proc_pid_oom_score_adj(5)).
const OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

/// The adjustment of this process; none if the kernel does not tell.
#[must_use]
pub fn oom_score_adjustment() -> Option<i32> {
    fs::read_to_string(OOM_SCORE_ADJ).ok()?.trim().parse().ok()
}

/// Sets the adjustment, from -1000 to 1000. Only root can lower it; it fails if /proc is read-only
/// or missing.
pub fn set_oom_score_adjustment(adjustment: i32) -> io::Result<()> {
    fs::write(OOM_SCORE_ADJ, adjustment.to_string())
}

/// Has the kernel send this process `signal` when the thread that forked it ends. It is called
/// after the last change of the user, which resets this (prctl(2)).
pub fn follow_parent(signal: Signal) -> io::Result<()> {
    let signal = libc::c_ulong::from(signal.number().unsigned_abs());
    // SAFETY: PR_SET_PDEATHSIG takes one number.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How many cores this process may use (sched_getaffinity(2) and the cgroup's quota, as the
/// standard library reads them); 1 if that is unknown.
#[must_use]
pub fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The numbers of the cores on which the calling thread may run (sched_getaffinity(2)).
#[must_use]
pub fn allowed_cores() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
        Err(_) => (0..usable_cores()).collect(),
    }
}

/// Restricts the calling thread, and what it starts from now on, to these cores. Errors are
/// sched_setaffinity(2)'s; `InvalidInput` if there is no such core.
pub fn run_on(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        if *core >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(*core);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_forked() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || receiver.recv());
        assert!(threads().unwrap() >= 2);
        assert_eq!(fork().unwrap_err().kind(), io::ErrorKind::Unsupported);
        drop(sender);
        let _ = waiting.join();
    }

    #[test]
    fn the_end_of_a_child_says_how_it_ended() {
        #[expect(clippy::zombie_processes, reason = "our own wait reaps it")]
        let ended = |command: &str| {
            let child = std::process::Command::new("sh").args(["-c", command]).spawn().unwrap();
            wait(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()).unwrap()
        };
        assert_eq!(ended("exit 7"), End::Exited(7));
        assert_eq!(ended("kill -9 $$"), End::Killed { signal: 9, core_dumped: false });
    }

    #[test]
    fn a_command_begins_with_no_signal_blocked() {
        let mask = |command: &mut Command| {
            command.args(["SigBlk", "/proc/self/status"]);
            let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
            u64::from_str_radix(text.split_whitespace().last().unwrap(), 16).unwrap()
        };
        let _held = crate::signal::Signals::catch(&[Signal::Interrupt]).unwrap();
        assert_eq!(mask(&mut Command::new("grep")), 2);
        assert_eq!(mask(unblock_signals(&mut Command::new("grep"))), 0);
    }

    #[test]
    fn pids_that_exist_are_told_from_those_that_do_not() {
        assert!(exists(own_pid()));
        assert!(!exists(Pid::from_raw(i32::MAX).unwrap()));
    }

    #[test]
    fn who_denies_descriptors_is_named() {
        let told = |number| descriptor_limit(&io::Error::from_raw_os_error(number));
        let most = rustix::process::getrlimit(Resource::Nofile).current.unwrap();
        assert_eq!(
            told(libc::EMFILE),
            format!("; this process may have {most} (ulimit -n {most})")
        );
        assert!(told(libc::ENFILE).contains("fs.file-max"));
        assert_eq!(told(libc::ENOMEM), "");
    }

    #[test]
    fn only_standard_descriptors_are_replaced() {
        let null = fs::File::open("/dev/null").unwrap();
        assert!(replace_standard(7, &null).is_err());
    }
}
