//! The system's part of application processes: the listening socket of a pool, the channel to its
//! zygote, and the page in which each worker says what it does. The other side is
//! `php/evenkeel-php.c`. The parent reads pages and messages as numbers and trusts none of them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use rustix::process::{Pid, Signal};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// The length in bytes of the field for the script's name in a page, and its offset.
const SCRIPT: usize = 448;
const SCRIPT_AT: usize = 64;

/// The offset of the only field that the parent writes.
const TRACED_AT: u64 = (SCRIPT_AT + SCRIPT) as u64;

/// A zygote's messages are no longer.
const MOST_MESSAGE: usize = 256;

/// Makes the listening socket of a pool at a path, in place of what is there. Only `owner` (user
/// and group) can connect, and root; this process's user without one. Non-blocking, close-on-exec.
///
/// # Errors
/// The kernel's (bind(2), chown(2)); a path of more than 107 bytes is too long.
pub fn listen_at(path: &Path, backlog: i32, owner: Option<(u32, u32)>) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let _none = std::fs::remove_file(path);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &address)?;
    // Before anybody can connect: the socket does not listen yet.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    if let Some((uid, gid)) = owner {
        chown(path, Some(uid), Some(gid))?;
    }
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Closes all connections that wait at a listening socket. Returns how many there were.
#[must_use]
pub fn refuse_waiting(listener: BorrowedFd<'_>) -> usize {
    let accept = || rustix::net::accept_with(listener, SocketFlags::CLOEXEC);
    std::iter::from_fn(|| accept().ok()).count()
}

/// The parent's end of the channel to a zygote. It never blocks.
#[derive(Debug)]
pub struct ZygoteChannel(OwnedFd);

/// What a zygote says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZygoteSays {
    /// PHP has started; workers can be forked.
    Ready,
    /// The worker of a seat was born, with this process id.
    Born {
        /// The seat.
        seat: u32,
        /// The process.
        pid: i32,
    },
    /// The worker of a seat has ended.
    Died {
        /// The seat.
        seat: u32,
        /// The status of wait(2).
        status: i32,
        /// Its largest resident set in bytes.
        peak: u64,
    },
    /// No worker could be forked for a seat.
    NotBorn(u32),
    /// The start has failed, for this reason.
    Failed(String),
}

/// What was received.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message.
    Said(ZygoteSays),
    /// A message that means nothing.
    Noise,
    /// Nothing has arrived.
    Nothing,
    /// The zygote has closed its end.
    End,
}

impl ZygoteChannel {
    /// A channel, and the zygote's end of it. Errors are the kernel's (socketpair(2)).
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (own, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        rustix::io::ioctl_fionbio(&own, true)?;
        Ok((Self(own), other))
    }

    fn send(&self, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        if !descriptors.is_empty() && !rights.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let parts = [io::IoSlice::new(message)];
        rustix::net::sendmsg(&self.0, &parts, &mut rights, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The first message: the secret that requests must have. Errors are sendmsg(2)'s, as for all
    /// messages: `WouldBlock` if the zygote does not read.
    pub fn send_secret(&self, secret: &[u8; 16]) -> io::Result<()> {
        self.send(secret, None)
    }

    /// Gives the zygote the words by which workers are claimed ([`crate::claims`]), and the
    /// descriptor by which one worker wakes another, before any worker is forked.
    pub fn send_claims(&self, claims: BorrowedFd<'_>, nudge: BorrowedFd<'_>) -> io::Result<()> {
        self.send(b"C\0\0\0\0\0\0\0", Some(claims))?;
        self.send(b"W\0\0\0\0\0\0\0", Some(nudge))
    }

    /// Has a worker forked for a seat, with this page, and with this place among the words by which
    /// workers are claimed. A worker whose place is none of them cannot be claimed.
    pub fn fork(&self, seat: u32, place: u32, page: BorrowedFd<'_>) -> io::Result<()> {
        let message = [&b"F\0\0\0"[..], &seat.to_le_bytes(), &place.to_le_bytes()].concat();
        self.send(&message, Some(page))
    }

    /// Lets the worker of a seat end after its request.
    pub fn drain(&self, seat: u32) -> io::Result<()> {
        self.send(&[&b"D\0\0\0"[..], &seat.to_le_bytes()].concat(), None)
    }

    /// Has the process group of a worker sent SIGTERM, or SIGKILL.
    pub fn signal(&self, seat: u32, kill: bool) -> io::Result<()> {
        let signal: u32 = if kill { 9 } else { 15 };
        self.send(&[&b"K\0\0\0"[..], &seat.to_le_bytes(), &signal.to_le_bytes()].concat(), None)
    }

    /// Has a worker that uses a core look at its page.
    pub fn trace(&self, seat: u32) -> io::Result<()> {
        self.send(&[&b"T\0\0\0"[..], &seat.to_le_bytes()].concat(), None)
    }

    /// Gives the zygote the file for backtraces, before any worker is forked.
    pub fn send_slow_log(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        self.send(b"L\0\0\0\0\0\0\0", Some(file))
    }

    /// Receives a message, if one has arrived.
    #[must_use]
    pub fn hear(&self) -> Heard {
        let mut bytes = [0; MOST_MESSAGE];
        loop {
            return match rustix::net::recv(&self.0, &mut bytes, RecvFlags::empty()) {
                Ok((0, _)) => Heard::End,
                Ok((count, _)) => {
                    let message = bytes.get(..count).unwrap_or_default();
                    parse(message).map_or(Heard::Noise, Heard::Said)
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => Heard::Nothing,
                Err(_) => Heard::End,
            };
        }
    }
}

impl AsFd for ZygoteChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn parse(message: &[u8]) -> Option<ZygoteSays> {
    let (kind, seat) = (*message.first()?, u32_at(message, 4)?);
    Some(match kind {
        b'R' => ZygoteSays::Ready,
        b'B' => ZygoteSays::Born { seat, pid: i32::try_from(u64_at(message, 8)?).ok()? },
        b'X' => {
            let status = i32::try_from(u64_at(message, 16)?).ok()?;
            ZygoteSays::Died { seat, status, peak: u64_at(message, 24)? }
        }
        b'N' => ZygoteSays::NotBorn(seat),
        b'E' => ZygoteSays::Failed(String::from_utf8_lossy(message.get(8..)?).into_owned()),
        _ => return None,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// A worker's page in memory that the worker writes and the parent reads. The parent writes one
/// field, by which it asks for a backtrace.
#[derive(Debug)]
pub struct Page(OwnedFd);

/// What a worker does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerState {
    /// It has not asked for work yet.
    #[default]
    Starting,
    /// It waits for a request.
    Idle,
    /// It works on a request.
    Busy,
    /// It takes no more requests.
    Draining,
}

/// The content of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageContent {
    /// What the worker does.
    pub state: WorkerState,
    /// When the request in progress was accepted, in microseconds of the monotonic clock.
    pub began_us: u64,
    /// Requests that it has ended.
    pub requests: u64,
    /// CPU time of all of them in microseconds.
    pub cpu_us: u64,
    /// Time in which they were ready to run and had no core.
    pub ready_us: u64,
    /// Time in which they waited for anything else.
    pub wait_us: u64,
    /// Bytes of memory of its own after the last request, if it was measured.
    pub memory: u64,
}

impl Page {
    /// A page of zeros. Errors are memfd_create(2)'s.
    pub fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let page = rustix::fs::memfd_create("worker", flags)?;
        rustix::fs::ftruncate(&page, PAGE as u64)?;
        rustix::fs::fcntl_add_seals(&page, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self(page))
    }

    /// Reads the numbers. A page that cannot be read is that of a worker that starts.
    #[must_use]
    pub fn read(&self) -> PageContent {
        let mut bytes = [0; SCRIPT_AT];
        if rustix::io::pread(&self.0, &mut bytes, 0) != Ok(SCRIPT_AT) {
            return PageContent::default();
        }
        let number = |at| u64_at(&bytes, at).unwrap_or_default();
        PageContent {
            state: match u32_at(&bytes, 0) {
                Some(1) => WorkerState::Idle,
                Some(2) => WorkerState::Busy,
                Some(3) => WorkerState::Draining,
                _ => WorkerState::Starting,
            },
            began_us: number(8),
            requests: number(16),
            cpu_us: number(24),
            ready_us: number(32),
            wait_us: number(40),
            memory: number(48),
        }
    }

    /// Asks for a backtrace of the request that began at this time. Errors are pwrite(2)'s.
    pub fn ask_for_trace(&self, began_us: u64) -> io::Result<()> {
        rustix::io::pwrite(&self.0, &began_us.to_le_bytes(), TRACED_AT)?;
        Ok(())
    }

    /// The script of the request in progress, or of the last one; empty while it changes.
    #[must_use]
    pub fn script(&self) -> Vec<u8> {
        let mut bytes = [0; SCRIPT_AT + SCRIPT];
        for _ in 0..3 {
            let count = rustix::io::pread(&self.0, &mut bytes, 0);
            let mut after = [0; 4];
            let again = rustix::io::pread(&self.0, &mut after, 4);
            let sequence = u32_at(&bytes, 4);
            let is_steady = sequence == u32_at(&after, 0) && sequence.is_some_and(|it| it % 2 == 0);
            if count == Ok(bytes.len()) && again == Ok(4) && is_steady {
                let length = u32_at(&bytes, 56).map_or(0, |length| length as usize).min(SCRIPT);
                return bytes.get(SCRIPT_AT..SCRIPT_AT + length).unwrap_or_default().to_vec();
            }
        }
        Vec::new()
    }
}

impl AsFd for Page {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A value of /proc/PID/status.
fn value_of<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_ascii)
}

/// A process that is no child of this one, by a descriptor: its number may be used again, and the
/// descriptor still means this process.
#[derive(Debug)]
pub struct Grandchild(OwnedFd);

impl Grandchild {
    /// The process with this number, if its parent is `parent`.
    #[must_use]
    pub fn of(pid: i32, parent: Pid) -> Option<Self> {
        let (process, status) = Self::with_status(pid)?;
        let own = value_of(&status, "PPid:")?.parse::<i32>().ok()?;
        (own == parent.as_raw_nonzero().get()).then_some(process)
    }

    /// The process with this number, if it runs as `user` and its name begins with `name`. The
    /// caller uses it when the parent of the process has died. The number may come from a process
    /// that scripts of `user` control, and must not lead to a process of another user.
    #[must_use]
    pub fn of_user(pid: i32, user: u32, name: &str) -> Option<Self> {
        let (process, status) = Self::with_status(pid)?;
        // The real, the effective, the saved and the file system's id.
        let mut ids = value_of(&status, "Uid:")?.split_ascii_whitespace();
        let is_users = ids.all(|id| id.parse() == Ok(user));
        (is_users && value_of(&status, "Name:")?.starts_with(name)).then_some(process)
    }

    /// The process with this number, and its /proc/PID/status.
    fn with_status(pid: i32) -> Option<(Self, String)> {
        let number = Pid::from_raw(pid).filter(|pid| pid.as_raw_nonzero().get() > 1)?;
        let flags = rustix::process::PidfdFlags::empty();
        let process = rustix::process::pidfd_open(number, flags).ok()?;
        // The status is read after the descriptor was opened. If the number was used again in
        // between, the status is that of the new process, which the caller then refuses.
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some((Self(process), status))
    }

    /// Sends the process SIGTERM, or SIGKILL. Errors are those of pidfd_send_signal(2).
    pub fn signal(&self, kill: bool) -> io::Result<()> {
        let signal = if kill { Signal::KILL } else { Signal::TERM };
        Ok(rustix::process::pidfd_send_signal(&self.0, signal)?)
    }

    /// Whether the process has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // The descriptor is readable from then on (pidfd_open(2)).
        let mut set = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut set, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_pool_is_open_to_its_owner_and_can_turn_away_those_who_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.sock");
        let listener = listen_at(&path, 8, None).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut waiting: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        assert_eq!(refuse_waiting(listener.as_fd()), 3);
        assert_eq!(refuse_waiting(listener.as_fd()), 0);
        for stream in &mut waiting {
            assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
        }
        // A path that is in use by a dead server is taken over.
        drop(listener);
        let _listener = listen_at(&path, 8, None).unwrap();
        UnixStream::connect(&path).unwrap();
        assert!(listen_at(&folder.path().join("x".repeat(200)), 8, None).is_err());
    }

    #[test]
    fn messages_are_numbers_and_nothing_else_is_taken_for_one() {
        let (own, other) = ZygoteChannel::pair().unwrap();
        assert_eq!(own.hear(), Heard::Nothing);
        let says = |bytes: &[u8]| {
            rustix::net::send(&other, bytes, SendFlags::NOSIGNAL).unwrap();
            own.hear()
        };
        assert_eq!(says(b"R\0\0\0\0\0\0\0"), Heard::Said(ZygoteSays::Ready));
        let born = [&b"B\0\0\0"[..], &7_u32.to_le_bytes(), &42_u64.to_le_bytes()].concat();
        assert_eq!(says(&born), Heard::Said(ZygoteSays::Born { seat: 7, pid: 42 }));
        for noise in [&b"B\0\0\0\0\0\0\0"[..], b"x", b"?\0\0\0\0\0\0\0", &[0xff; 64]] {
            assert_eq!(says(noise), Heard::Noise);
        }
        drop(other);
        assert_eq!(own.hear(), Heard::End);
        let page = Page::new().unwrap();
        assert_eq!((page.read(), page.script()), (PageContent::default(), Vec::new()));
    }

    #[test]
    fn a_process_is_taken_from_its_parent_or_by_its_user_and_name_alone() {
        use std::process::{Command, Stdio};
        let mut cat = Command::new("cat");
        let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // The name of a process is its program's only after execve(2), which may still be on its
        // way when spawn returns. A process that answers has done it.
        let mut echo = [0];
        child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut echo).unwrap();
        let (pid, own) = (i32::try_from(child.id()).unwrap(), crate::process::own_pid());
        let other = Pid::from_raw(1).unwrap();
        assert!(Grandchild::of(pid, other).is_none() && Grandchild::of(1, own).is_none());
        let user = crate::identity::own_uid();
        assert!(Grandchild::of_user(pid, user, "cat").is_some());
        assert!(Grandchild::of_user(pid, user, "php ").is_none());
        assert!(Grandchild::of_user(pid, user + 1, "cat").is_none());
        assert!([0, 1].iter().all(|pid| Grandchild::of_user(*pid, user, "").is_none()));
        let process = Grandchild::of(pid, own).unwrap();
        assert!(!process.has_ended());
        process.signal(true).unwrap();
        // The wait closes standard input, at whose end cat would leave with success.
        assert!(!child.wait().unwrap().success());
        assert!(process.has_ended() && process.signal(true).is_err());
    }
}
