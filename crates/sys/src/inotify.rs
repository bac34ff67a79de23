//! Word of changed files without a system call per request. Paths to watch come in, events go
//! out; that there are any is told by a flag of the thread, which the kernel's SIGIO sets. Nothing
//! here knows what a change means, and nothing blocks.

use rustix::fs::inotify::{self as kernel, CreateFlags, ReadFlags, WatchFlags};
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// Whether an event came since the last drain. Set by the handler of SIGIO on this thread; a
    /// constant without destructor, so that touching it in a handler allocates nothing.
    static RAISED: AtomicBool = const { AtomicBool::new(false) };
}

/// What of a watched folder is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breadth {
    /// Names that come and go, and changed permissions: enough for a folder on the way.
    Names,
    /// Contents of the files in it as well.
    Contents,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Something happened to the entry of that name in the watched folder.
    Name(i32, &'a [u8]),
    /// Something happened to the watched file or folder itself.
    Itself(i32),
    /// The watch has ended: what it watched is deleted or unmounted.
    Ended(i32),
    /// The queue ran over: anything may have changed.
    Lost,
}

/// The watches of one thread. It cannot leave the thread, which gets the signals.
#[derive(Debug)]
pub struct Inotify {
    descriptor: OwnedFd,
    of_this_thread: PhantomData<*const ()>,
}

impl Inotify {
    /// Opens an instance whose events raise the flag of the calling thread, and lets SIGIO
    /// through to it. Errors: EMFILE at the user's limit of instances
    /// (fs.inotify.max_user_instances), others of inotify_init1(2), sigaction(2) and fcntl(2).
    pub fn new() -> io::Result<Self> {
        handle_sigio()?;
        let descriptor = kernel::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        send_signals_here(&descriptor)?;
        Ok(Self { descriptor, of_this_thread: PhantomData })
    }

    /// Whether events wait. It costs a load of memory: no change that was made before a request
    /// was sent is missed when this is asked after the recv that completed the request.
    #[must_use]
    pub fn raised() -> bool {
        RAISED.with(|flag| flag.load(Ordering::Relaxed))
    }

    /// Watches a folder, which must not be reached by a symbolic link at its end. The same folder
    /// gives the same number, and the widest breadth holds. Errors: ENOSPC at the user's limit of
    /// watches, EACCES where the folder cannot be read, and others of inotify_add_watch(2).
    pub fn watch_folder(&self, path: &[u8], breadth: Breadth) -> io::Result<i32> {
        let names = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        let mask = match breadth {
            Breadth::Names => names,
            Breadth::Contents => names | WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE,
        };
        let mask = mask | WatchFlags::MASK_ADD | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        Ok(kernel::add_watch(&self.descriptor, path, mask)?)
    }

    /// Watches a file by its inode, for the changes made through its other hard links. Errors as
    /// for [`Inotify::watch_folder`].
    pub fn watch_file(&self, path: &[u8]) -> io::Result<i32> {
        let mask = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::DONT_FOLLOW;
        Ok(kernel::add_watch(&self.descriptor, path, mask)?)
    }

    /// Ends a watch; one that has ended already is no error.
    pub fn unwatch(&self, watch: i32) {
        // EINVAL says that the kernel ended the watch first, which is what is wanted.
        let _ = kernel::remove_watch(&self.descriptor, watch);
    }

    /// Hands over all events that wait, after the flag has been put down: an event that comes
    /// meanwhile raises it again. Errors are those of read(2); then anything may have changed.
    pub fn drain(&self, mut heed: impl FnMut(Event<'_>)) -> io::Result<()> {
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
            heed(if what.contains(ReadFlags::QUEUE_OVERFLOW) {
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
        // SAFETY: a zeroed sigaction is valid, and the handler only stores into a constant-
        // initialised atomic of its thread, which a handler may do.
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
    // The first access is made here and not in the handler.
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

/// Directs the descriptor's SIGIO at the calling thread (fcntl(2), F_SETOWN_EX, O_ASYNC).
fn send_signals_here(descriptor: &OwnedFd) -> io::Result<()> {
    // F_OWNER_TID, F_SETOWN_EX and their structure as in Linux's <fcntl.h>.
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        pid: libc::pid_t,
    }
    const F_SETOWN_EX: libc::c_int = 15;
    const F_OWNER_TID: libc::c_int = 0;
    let fd = descriptor.as_raw_fd();
    let owner = Owner { kind: F_OWNER_TID, pid: rustix::thread::gettid().as_raw_nonzero().get() };
    // SAFETY: the structure is the one that this command reads, and it lives through the call.
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
        let watch = inotify.watch_folder(folder.as_os_str().as_bytes(), Breadth::Contents).unwrap();
        assert!(!Inotify::raised());
        std::fs::write(folder.join("a"), "1").unwrap();
        // The write above returned to user mode through the handler.
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
