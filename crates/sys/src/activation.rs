//! What the process that started this one passes on: listening sockets (sd_listen_fds(3)) and a
//! place to tell of the server's state (sd_notify(3)). The environment comes in and is cleared of
//! it, so that nothing started from here takes it for its own; and the same way out, for a program
//! that takes over. It never waits.

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

/// The first descriptor that is passed (SD_LISTEN_FDS_START).
const FIRST: i32 = 3;

/// More than this nobody passes.
const MOST: i32 = 4096;

const LISTEN_PID: &str = "LISTEN_PID";
const LISTEN_FDS: &str = "LISTEN_FDS";
const LISTEN_FDNAMES: &str = "LISTEN_FDNAMES";
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// What was passed to this process.
#[derive(Debug, Default)]
pub struct Passed {
    /// The sockets in their order, each with its name; close-on-exec from now on.
    pub sockets: Vec<(OwnedFd, String)>,
    /// Where to tell of the server's state.
    pub notifier: Option<Notifier>,
    /// How often at least the starter wants to hear that the server is alive.
    pub watchdog: Option<Duration>,
}

impl Passed {
    /// Takes what was passed to this process out of its environment. To be called once, before
    /// there are threads; with threads there is nothing, for who reads the environment meanwhile
    /// would fall over the change.
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
            sockets: sockets(count.clamp(0, MOST), &names),
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
        // SAFETY: the number is only asked about, and is no descriptor of ours if it is not open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        if rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC).is_err() {
            break;
        }
        // SAFETY: the starter passed this descriptor to this process, for nobody else in it.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        // What cannot be set is told by the first call that would block.
        let _ = rustix::io::ioctl_fionbio(&socket, true);
        all.push((socket, names.next().unwrap_or_default().to_owned()));
    }
    all
}

/// Whether it is a socket that listens.
#[must_use]
pub fn is_listening(socket: impl AsFd) -> bool {
    sockopt::socket_acceptconn(socket).unwrap_or(false)
}

/// Becomes the program of `command`, with these sockets passed to it under their names. It returns
/// only if that fails, with the reason; numbers of descriptors mean nothing to the process then,
/// which must end.
pub fn become_program(
    command: &mut Command,
    sockets: &[(BorrowedFd<'_>, &str)],
    notifier: Option<&Notifier>,
    watchdog: Option<Duration>,
) -> io::Error {
    let count = i32::try_from(sockets.len()).unwrap_or(MOST).min(MOST);
    // Out of the way first: they may have each other's numbers.
    let aside: io::Result<Vec<OwnedFd>> = sockets
        .iter()
        .map(|(socket, _)| Ok(rustix::io::fcntl_dupfd_cloexec(socket, FIRST + count)?))
        .collect();
    let aside = match aside {
        Ok(aside) => aside,
        Err(error) => return error,
    };
    for (number, socket) in (FIRST..FIRST + count).zip(&aside) {
        // SAFETY: both are numbers; what the second named before is not used any more, since the
        // process becomes another or ends.
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

/// Where the state of the server is told (sd_notify(3)).
#[derive(Debug)]
pub struct Notifier {
    path: OsString,
    address: SocketAddr,
    socket: UnixDatagram,
}

impl Notifier {
    /// The socket of this path, or of this abstract name behind an `@`; `None` where it is neither.
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

    /// Sends assignments such as `READY=1`, one a line. Errors are the kernel's; who does not
    /// listen is an error, and never waited for.
    pub fn tell(&self, text: &str) -> io::Result<()> {
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
        let heard = [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{name}").into()),
        ];
        for (socket, address) in heard {
            Notifier::new(&address).unwrap().tell("READY=1\n").unwrap();
            let mut text = [0; 64];
            let count = socket.recv(&mut text).unwrap();
            assert_eq!(text.get(..count), Some(b"READY=1\n".as_slice()));
        }
        std::fs::remove_file(&path).unwrap();
        let gone = Notifier::new(path.as_os_str()).unwrap();
        assert!(gone.tell("READY=1").is_err());
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
        // This process has threads and no descriptors from anyone.
        assert!(Passed::take().sockets.is_empty());
        assert_eq!(number(Some(OsStr::new(" 12 "))), Some(12));
        assert_eq!(number(Some(OsStr::new("x"))), None);
    }
}
