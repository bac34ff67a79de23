//! Reports changed files without a system call for each request: the kernel sends SIGIO to the
//! thread, whose handler sets a flag, and `drain` reads the events. Nothing here blocks.

use rustix::fs::inotify::{self as kernel, CreateFlags, ReadFlags, WatchFlags};
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// Whether an event has come since the last drain. The SIGIO handler of this thread sets it.
    /// The thread-local has a constant initializer and no destructor, so that the handler can
    /// access it without an allocation.
    static RAISED: AtomicBool = const { AtomicBool::new(false) };
}

/// What is reported about a watched folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchScope {
    /// New and removed names, and changed permissions: enough for a folder on the way to a file.
    Names,
    /// The contents of its files too.
    Contents,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Something happened to the entry with this name in the watched folder.
    Name(i32, &'a [u8]),
    /// Something happened to the watched file or folder itself.
    Itself(i32),
    /// The watch has ended, because its target was deleted or unmounted.
    Ended(i32),
    /// The queue has overflowed: anything may have changed.
    Lost,
}

/// The watches of a thread. It cannot leave the thread, which gets the signals.
#[derive(Debug)]
pub struct Inotify {
    descriptor: OwnedFd,
    of_this_thread: PhantomData<*const ()>,
}

/// How many instances the kernel grants to a user (fs.inotify.max_user_instances): the default of
/// the kernel where /proc does not tell.
#[must_use]
pub fn user_instances() -> usize {
    let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(128)
}

impl Inotify {
    /// Opens an instance whose events set the flag of the calling thread, and unblocks SIGIO for
    /// it. Errors: EMFILE at the user's limit of instances (fs.inotify.max_user_instances), others
    /// of inotify_init1(2), sigaction(2) and fcntl(2).
    pub fn new() -> io::Result<Self> {
        handle_sigio()?;
        let descriptor = kernel::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        send_signals_here(&descriptor)?;
        Ok(Self { descriptor, of_this_thread: PhantomData })
    }

    /// Whether events are pending, at the cost of a memory load. If it is called after the recv
    /// that completed a request, it misses no change that was made before the request was sent.
    #[must_use]
    pub fn raised() -> bool {
        RAISED.with(|flag| flag.load(Ordering::Relaxed))
    }

    /// Watches a folder, which must not be a symbolic link. The same folder has the same number,
    /// and the widest scope holds. Errors: ENOSPC at the user's limit of watches, EACCES if the
    /// folder cannot be read, and others of inotify_add_watch(2).
    pub fn watch_folder(&self, path: &[u8], scope: WatchScope) -> io::Result<i32> {
        let names = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        let mask = match scope {
            WatchScope::Names => names,
            WatchScope::Contents => names | WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE,
        };
        let mask = mask | WatchFlags::MASK_ADD | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        Ok(kernel::add_watch(&self.descriptor, path, mask)?)
    }

    /// Watches a file by its inode, for changes through its other hard links. Errors are those of
    /// [`Inotify::watch_folder`].
    pub fn watch_file(&self, path: &[u8]) -> io::Result<i32> {
        let mask = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::DONT_FOLLOW;
        Ok(kernel::add_watch(&self.descriptor, path, mask)?)
    }

    /// Ends a watch. A watch that has ended already is no error.
    pub fn unwatch(&self, watch: i32) {
        // EINVAL means that the kernel has ended the watch already.
        let _ = kernel::remove_watch(&self.descriptor, watch);
    }

    /// Clears the flag and then calls `handle` with all pending events: an event that comes
    /// meanwhile sets the flag again. Errors are read(2)'s; then anything may have changed.
    pub fn drain(&self, mut handle: impl FnMut(Event<'_>)) -> io::Result<()> {
        RAISED.with(|flag| flag.store(false, Ordering::Relaxed));
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; 8192];
        let mut reader = kernel::Reader::new(&self.descriptor, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let what = event.events();
            handle(if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                Event::Lost
            } else if what.intersects(ReadFlags::IGNORED | ReadFlags::UNMOUNT) {
                Event::Ended(event.wd())
            } else if let Some(name) = event.file_name() {
                Event::Name(event.wd(), name.to_bytes())
            } else {
                Event::Itself(event.wd())
            });
        }
    }
}

/// Installs the handler once for the process, and unblocks the signal for this thread.
fn handle_sigio() -> io::Result<()> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    let installed = *INSTALLED.get_or_init(|| {
        let handler: extern "C" fn(libc::c_int) = raise_flag;
        // SAFETY: a zeroed sigaction is valid, and the handler only stores to a
        // constant-initialised atomic of its thread, which is allowed.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGIO, &raw const action, std::ptr::null_mut()) == 0
        }
    });
    if !installed {
        return Err(io::Error::other("no handler for SIGIO could be installed"));
    }
    // The first access happens here and not in the handler.
    RAISED.with(|flag| flag.store(false, Ordering::Relaxed));
    // SAFETY: the set is initialised before use; only this thread's mask changes.
    let failed = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGIO);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}

extern "C" fn raise_flag(_signal: libc::c_int) {
    RAISED.with(|flag| flag.store(true, Ordering::Relaxed));
}

/// Directs the descriptor's SIGIO to the calling thread (fcntl(2), F_SETOWN_EX, O_ASYNC).
fn send_signals_here(descriptor: &OwnedFd) -> io::Result<()> {
    // F_OWNER_TID, F_SETOWN_EX and their structure are as in Linux's <fcntl.h>.
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        pid: libc::pid_t,
    }
    const F_SETOWN_EX: libc::c_int = 15;
    const F_OWNER_TID: libc::c_int = 0;
    let fd = descriptor.as_raw_fd();
    let owner = Owner { kind: F_OWNER_TID, pid: rustix::thread::gettid().as_raw_nonzero().get() };
    // SAFETY: the command reads this structure, which lives through the call.
    if unsafe { libc::fcntl(fd, F_SETOWN_EX, &raw const owner) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: plain flags of a descriptor that we own.
    if unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK | libc::O_ASYNC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_change_is_known_without_asking_the_kernel() {
        let folder = std::env::temp_dir().join(format!("evenkeel-inotify-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let inotify = Inotify::new().unwrap();
        let watch =
            inotify.watch_folder(folder.as_os_str().as_bytes(), WatchScope::Contents).unwrap();
        assert!(!Inotify::raised());
        std::fs::write(folder.join("a"), "1").unwrap();
        // The write above has returned to user mode through the handler.
        assert!(Inotify::raised());
        let mut names = Vec::new();
        inotify
            .drain(|event| match event {
                Event::Name(number, name) => names.push((number, name.to_vec())),
                other => panic!("unexpected {other:?}"),
            })
            .unwrap();
        assert!(names.len() >= 2 && names.iter().all(|one| *one == (watch, b"a".to_vec())));
        assert!(!Inotify::raised());
        std::fs::remove_dir_all(&folder).unwrap();
        let mut ended = false;
        inotify.drain(|event| ended |= event == Event::Ended(watch)).unwrap();
        assert!(ended);
    }
}
