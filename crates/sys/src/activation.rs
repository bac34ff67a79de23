//! Socket activation: takes the listening sockets (sd_listen_fds(3)) and the notification socket
//! (sd_notify(3)) that the starting process passes through the environment, and passes them on to a
//! program that takes over. The environment is cleared of them, so that no program started from
//! here takes them for its own.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::net::sockopt;

use crate::process;

/// The first passed descriptor (SD_LISTEN_FDS_START).
const FIRST: i32 = 3;

/// No more descriptors than this are accepted.
const MAX: i32 = 4096;

const LISTEN_PID: &str = "LISTEN_PID";
const LISTEN_FDS: &str = "LISTEN_FDS";
const LISTEN_FDNAMES: &str = "LISTEN_FDNAMES";
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// What the starting process has passed to this one.
#[derive(Debug, Default)]
pub struct Passed {
    /// The sockets in order, each with its name; close-on-exec from now on.
    pub sockets: Vec<(OwnedFd, String)>,
    /// Where to report the state of the server.
    pub notifier: Option<Notifier>,
    /// The longest interval between two signs of life that the starting process accepts.
    pub watchdog: Option<Duration>,
}

impl Passed {
    /// Takes what was passed to this process out of its environment. It is called once, while there
    /// is one thread. With more threads it takes nothing, since another thread may be reading the
    /// environment.
    #[must_use]
    pub fn take() -> Self {
        if process::threads().ok() != Some(1) {
            return Self::default();
        }
        let own_pid = process::own_pid().as_raw_nonzero().get();
        let is_own = |pid: Option<OsString>| number(pid.as_deref()) == Some(i64::from(own_pid));
        let count = number(std::env::var_os(LISTEN_FDS).as_deref());
        let count = count.filter(|_| is_own(std::env::var_os(LISTEN_PID)));
        let names = std::env::var_os(LISTEN_FDNAMES).unwrap_or_default();
        let names = names.to_string_lossy().into_owned();
        let watched = std::env::var_os(WATCHDOG_PID);
        let watched = watched.is_none() || is_own(watched);
        let watchdog = number(std::env::var_os(WATCHDOG_USEC).as_deref()).filter(|_| watched);
        let notifier = std::env::var_os(NOTIFY_SOCKET).and_then(|path| Notifier::new(&path));
        for name in
            [LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES, NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID]
        {
            // SAFETY: there is no other thread that could read the environment.
            unsafe { std::env::remove_var(name) };
        }
        let count = count.and_then(|count| i32::try_from(count).ok()).unwrap_or(0);
        Self {
            sockets: sockets(count.clamp(0, MAX), &names),
            notifier,
            watchdog: watchdog
                .and_then(|us| u64::try_from(us).ok())
                .filter(|&us| us > 0)
                .map(Duration::from_micros),
        }
    }
}

fn number(text: Option<&OsStr>) -> Option<i64> {
    text?.to_str()?.trim().parse().ok()
}

/// The descriptors from [`FIRST`] on, up to the first that is not open.
fn sockets(count: i32, names: &str) -> Vec<(OwnedFd, String)> {
    let mut names = names.split(':');
    let mut all = Vec::new();
    for number in FIRST..FIRST + count {
        // SAFETY: the descriptor is only tested, and not used further if it is not open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        if rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC).is_err() {
            break;
        }
        // SAFETY: the starting process passed this descriptor to this process, and nothing else in
        // it owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        // If this fails, the first call that would block shows it.
        let _ = rustix::io::ioctl_fionbio(&socket, true);
        all.push((socket, names.next().unwrap_or_default().to_owned()));
    }
    all
}

/// Whether the descriptor is a listening socket.
#[must_use]
pub fn is_listening(socket: impl AsFd) -> bool {
    sockopt::socket_acceptconn(socket).unwrap_or(false)
}

/// Executes the program of `command`, with these sockets passed to it under their names. It returns
/// only on failure, with the reason; the descriptors of the process are then in disorder, and it
/// must end.
pub fn become_program(
    command: &mut Command,
    sockets: &[(BorrowedFd<'_>, &str)],
    notifier: Option<&Notifier>,
    watchdog: Option<Duration>,
) -> io::Error {
    let count = i32::try_from(sockets.len()).unwrap_or(MAX).min(MAX);
    // The sockets are duplicated first, since they may have each other's numbers.
    let duplicates: io::Result<Vec<OwnedFd>> = sockets
        .iter()
        .map(|(socket, _)| Ok(rustix::io::fcntl_dupfd_cloexec(socket, FIRST + count)?))
        .collect();
    let duplicates = match duplicates {
        Ok(duplicates) => duplicates,
        Err(error) => return error,
    };
    for (number, socket) in (FIRST..FIRST + count).zip(&duplicates) {
        // SAFETY: both are numbers. What the second referred to is not used any more, since the
        // process is replaced or ends.
        if unsafe { libc::dup2(socket.as_raw_fd(), number) } < 0 {
            return io::Error::last_os_error();
        }
    }
    let names: Vec<&str> = sockets.iter().map(|(_, name)| *name).collect();
    command
        .env(LISTEN_PID, process::own_pid().as_raw_nonzero().to_string())
        .env(LISTEN_FDS, count.to_string())
        .env(LISTEN_FDNAMES, names.join(":"));
    if let Some(notifier) = notifier {
        command.env(NOTIFY_SOCKET, &notifier.path);
    }
    if let Some(watchdog) = watchdog {
        command.env(WATCHDOG_USEC, watchdog.as_micros().to_string());
    }
    if let Err(error) = crate::signal::unblock_all() {
        return error;
    }
    command.exec()
}

/// The socket for notifications (sd_notify(3)).
#[derive(Debug)]
pub struct Notifier {
    path: OsString,
    address: SocketAddr,
    socket: UnixDatagram,
}

impl Notifier {
    /// The socket with this path, or with this abstract name after an `@`; `None` if it is neither.
    #[must_use]
    pub fn new(path: &OsStr) -> Option<Self> {
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok()?,
            [b'/', ..] => SocketAddr::from_pathname(path).ok()?,
            _ => return None,
        };
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Self { path: path.to_owned(), address, socket })
    }

    /// Sends assignments such as `READY=1`, one on each line. Errors are the kernel's. A receiver
    /// that does not listen is an error, and is never waited for.
    pub fn notify(&self, text: &str) -> io::Result<()> {
        self.socket.send_to_addr(text.as_bytes(), &self.address).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_told_under_a_path_and_under_an_abstract_name() {
        let name = format!("evenkeel-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        let receivers = [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{name}").into()),
        ];
        for (socket, address) in receivers {
            Notifier::new(&address).unwrap().notify("READY=1\n").unwrap();
            let mut text = [0; 64];
            let count = socket.recv(&mut text).unwrap();
            assert_eq!(text.get(..count), Some(b"READY=1\n".as_slice()));
        }
        std::fs::remove_file(&path).unwrap();
        let gone = Notifier::new(path.as_os_str()).unwrap();
        assert!(gone.notify("READY=1").is_err());
        assert!(Notifier::new(OsStr::new("relative")).is_none());
    }

    #[test]
    fn listening_sockets_are_told_from_others() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_listening(&listener));
        assert!(!is_listening(UnixDatagram::unbound().unwrap()));
        assert!(!is_listening(std::io::stderr()));
    }

    #[test]
    fn what_was_meant_for_another_process_is_not_taken() {
        // This process has threads, and no passed descriptors.
        assert!(Passed::take().sockets.is_empty());
        assert_eq!(number(Some(OsStr::new(" 12 "))), Some(12));
        assert_eq!(number(Some(OsStr::new("x"))), None);
    }
}
