//! Signals. The parent reads them as messages from a descriptor (`Signals`), and a child's handler
//! writes a byte to its control channel (`serve_signals`). No handler does more than one send(2).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

/// The signals that the server uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: stop.
    Terminate,
    /// SIGINT: stop, from the terminal.
    Interrupt,
    /// SIGHUP: restart.
    Hangup,
    /// SIGUSR1: graceful restart.
    User1,
    /// SIGUSR2: change of the program.
    User2,
    /// SIGWINCH: graceful stop, if a process has sent it.
    WindowChange,
    /// SIGCHLD: a child has ended.
    Child,
    /// SIGCONT: a stopped process continues.
    Continue,
    /// SIGKILL: it cannot be caught, only sent.
    Kill,
}

impl Signal {
    /// The kernel's number.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::Terminate => libc::SIGTERM,
            Self::Interrupt => libc::SIGINT,
            Self::Hangup => libc::SIGHUP,
            Self::User1 => libc::SIGUSR1,
            Self::User2 => libc::SIGUSR2,
            Self::WindowChange => libc::SIGWINCH,
            Self::Child => libc::SIGCHLD,
            Self::Continue => libc::SIGCONT,
            Self::Kill => libc::SIGKILL,
        }
    }

    fn from_number(number: u32) -> Option<Self> {
        const ALL: [Signal; 7] = [
            Signal::Terminate,
            Signal::Interrupt,
            Signal::Hangup,
            Signal::User1,
            Signal::User2,
            Signal::WindowChange,
            Signal::Child,
        ];
        ALL.into_iter().find(|signal| u32::try_from(signal.number()) == Ok(number))
    }
}

/// A signal that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caught {
    /// The signal.
    pub signal: Signal,
    /// Whether a process sent it (kill(2)), and not the kernel: resizing a terminal also raises
    /// SIGWINCH, which must not stop a server in the foreground.
    pub by_process: bool,
}

/// A descriptor that receives blocked signals as messages.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
}

impl Signals {
    /// Blocks `signals` for the calling thread, and whatever it starts, and opens a descriptor that
    /// is readable when one is pending. Errors are the kernel's (signalfd(2)).
    pub fn catch(signals: &[Signal]) -> io::Result<Self> {
        let set = set_of(signals);
        // SAFETY: the set is initialised; the call changes this thread's mask only.
        if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } != 0
        {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the set is initialised, and -1 asks for a new descriptor.
        let descriptor =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created this descriptor for us.
        Ok(Self { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// Takes the next pending signal, if any, and then calls `look` to check what it may report. In
    /// the opposite order, something that happens after the check would be lost: pending signals of
    /// one kind are merged.
    pub fn next_then(&self, look: impl FnOnce()) -> Option<Caught> {
        let caught = self.next();
        look();
        caught
    }

    /// The next pending signal, if any.
    #[must_use]
    pub fn next(&self) -> Option<Caught> {
        loop {
            let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
            // SAFETY: the buffer is writable and has the given length.
            let read = unsafe {
                libc::read(
                    self.descriptor.as_raw_fd(),
                    info.as_mut_ptr().cast(),
                    size_of::<libc::signalfd_siginfo>(),
                )
            };
            if usize::try_from(read) != Ok(size_of::<libc::signalfd_siginfo>()) {
                return None;
            }
            // SAFETY: the kernel has filled the whole structure, according to the returned length.
            let info = unsafe { info.assume_init() };
            if let Some(signal) = Signal::from_number(info.ssi_signo) {
                let by_process = matches!(info.ssi_code, libc::SI_USER | libc::SI_QUEUE)
                    || info.ssi_code == libc::SI_TKILL;
                return Some(Caught { signal, by_process });
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

// Where a child's handler writes, and which byte. Both are set before the handler is.
static WAKE_DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
static WAKE_BYTE: AtomicU8 = AtomicU8::new(0);

/// Prepares a serving process: unblocks every signal, ignores `ignored`, and has each of `woken`
/// write `byte` to `wake`, which must stay open until the process ends. Other signals keep their
/// disposition. Errors are the kernel's (sigaction(2)).
pub fn serve_signals(
    ignored: &[Signal],
    woken: &[Signal],
    wake: BorrowedFd<'_>,
    byte: u8,
) -> io::Result<()> {
    WAKE_DESCRIPTOR.store(wake.as_raw_fd(), Ordering::Relaxed);
    WAKE_BYTE.store(byte, Ordering::Relaxed);
    for &signal in ignored {
        act(signal, libc::SIG_IGN)?;
    }
    let handler: extern "C" fn(libc::c_int) = send_wake_byte;
    for &signal in woken {
        act(signal, handler as libc::sighandler_t)?;
    }
    unblock_all()
}

/// Unblocks every signal for the calling thread.
pub fn unblock_all() -> io::Result<()> {
    let none = set_of(&[]);
    // SAFETY: the set is initialised; the call changes this thread's mask only.
    match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn send_wake_byte(_signal: libc::c_int) {
    let byte = WAKE_BYTE.load(Ordering::Relaxed);
    let wake = WAKE_DESCRIPTOR.load(Ordering::Relaxed);
    // SAFETY: the handler only uses send(2) and errno, which is allowed, and restores errno for the
    // interrupted code. A closed descriptor causes an error, not a fault.
    unsafe {
        let errno = *libc::__errno_location();
        libc::send(wake, (&raw const byte).cast(), 1, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        *libc::__errno_location() = errno;
    }
}

fn act(signal: Signal, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: a zeroed sigaction is valid; the handler is SIG_IGN or `send_wake_byte`, which is
    // async-signal-safe.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal.number(), &raw const action, std::ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_of(signals: &[Signal]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set, and sigaddset gets valid numbers.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, signal.number());
        }
        set
    }
}

/// The description of a signal in the words of Apache's error log (apr_signal_description_get).
#[must_use]
pub fn describe(number: i32) -> &'static str {
    match number {
        libc::SIGHUP => "Hangup",
        libc::SIGINT => "Interrupt",
        libc::SIGQUIT => "Quit",
        libc::SIGILL => "Illegal instruction",
        libc::SIGTRAP => "Trace/BPT trap",
        libc::SIGABRT => "Abort",
        libc::SIGBUS => "Bus error",
        libc::SIGFPE => "Arithmetic exception",
        libc::SIGKILL => "Killed",
        libc::SIGSEGV => "Segmentation fault",
        libc::SIGSYS => "Bad system call",
        libc::SIGPIPE => "Broken pipe",
        libc::SIGALRM => "Alarm clock",
        libc::SIGTERM => "Terminated",
        libc::SIGUSR1 => "User defined signal 1",
        libc::SIGUSR2 => "User defined signal 2",
        libc::SIGXCPU => "CPU time limit exceeded",
        libc::SIGXFSZ => "File size limit exceeded",
        _ => "unknown signal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_sent_by_a_process_is_read_with_its_origin() {
        let signals = Signals::catch(&[Signal::WindowChange]).unwrap();
        assert_eq!(signals.next(), None);
        // SAFETY: sent to this thread, where the signal is blocked.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGWINCH) };
        let caught = signals.next().unwrap();
        assert_eq!(caught.signal, Signal::WindowChange);
        assert!(caught.by_process);
        assert_eq!(signals.next(), None);
    }

    #[test]
    fn what_happens_after_the_look_is_told_by_a_signal_of_its_own() {
        let signals = Signals::catch(&[Signal::Child]).unwrap();
        // SAFETY: sent to this thread, where the signal is blocked.
        let dies = || unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGCHLD) };
        dies();
        // Another child ends while the ended ones are reaped.
        let caught = signals.next_then(|| assert_eq!(dies(), 0));
        assert_eq!(caught.map(|caught| caught.signal), Some(Signal::Child));
        assert_eq!(signals.next().map(|caught| caught.signal), Some(Signal::Child));
        assert_eq!(signals.next(), None);
    }
}
