//! Files by path: their attributes, the targets of links, and opening them so that no symbolic link
//! can be substituted between a check and its use, and new files without a name. Paths are bytes.
//! No call waits for a pipe or a device.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, RawDirEntry, ResolveFlags};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The attributes of a file (stat(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The number of the device.
    pub device: u64,
    /// The number of the inode on the device.
    pub inode: u64,
    /// Type and permissions (st_mode).
    pub mode: u32,
    /// The number of hard links.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// The last change of the contents, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// The last change of contents, owner, permissions or links, in nanoseconds since 1970.
    pub changed_ns: i64,
}

impl Stat {
    fn new(stat: &rustix::fs::Stat) -> Self {
        let nanoseconds = |s: i64, ns: u64| {
            s.saturating_mul(1_000_000_000).saturating_add(i64::try_from(ns).unwrap_or(0))
        };
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            mode: stat.st_mode,
            #[allow(clippy::useless_conversion, reason = "32 bits on some architectures")]
            links: u64::from(stat.st_nlink),
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    /// Whether it is a folder.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_link(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFLNK
    }
}

/// The attributes of a path; a link at its end is not followed. Errors are lstat(2)'s.
pub fn lstat(path: &[u8]) -> io::Result<Stat> {
    Ok(Stat::new(&rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// The attributes of a name in an open folder; a link is not followed. Errors are fstatat(2)'s.
pub fn lstat_in(folder: &impl AsFd, name: &[u8]) -> io::Result<Stat> {
    Ok(Stat::new(&rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// Opens the folder at a path for calls of [`lstat_in`]; none if it is not the one with these
/// attributes any more.
#[must_use]
pub fn open_folder(path: &[u8], known: &Stat) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let found = fstat(&folder).ok()?;
    ((found.device, found.inode) == (known.device, known.inode)).then_some(folder)
}

/// The attributes of what a path leads to; links are followed. Errors are stat(2)'s.
pub fn stat(path: &[u8]) -> io::Result<Stat> {
    Ok(Stat::new(&rustix::fs::statat(CWD, path, AtFlags::empty())?))
}

/// A folder whose names can be read.
pub struct Names(OwnedFd);

impl Names {
    /// Opens a folder. Errors are open(2)'s.
    pub fn of(folder: &[u8]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(folder, flags, Mode::empty())?))
    }

    /// Calls `act` for each name but `.` and `..`, in the order of the file system, until it
    /// breaks. Errors are getdents64(2)'s.
    pub fn each(&self, mut act: impl FnMut(&Name<'_>) -> ControlFlow<()>) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(NAMES_AT_ONCE);
        let mut entries = RawDir::new(&self.0, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = Name { folder: self.0.as_fd(), entry: &entry };
            if !matches!(name.bytes(), b"." | b"..") && act(&name).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// The bytes of names that are read at once: as many as glibc reads.
const NAMES_AT_ONCE: usize = 32 << 10;

/// A name in a folder.
pub struct Name<'a> {
    folder: BorrowedFd<'a>,
    entry: &'a RawDirEntry<'a>,
}

impl Name<'_> {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.entry.file_name().to_bytes()
    }

    /// The type that the folder records for the name (readdir(3), `d_type`).
    #[must_use]
    pub fn entry_type(&self) -> EntryType {
        match self.entry.file_type() {
            FileType::RegularFile => EntryType::File,
            FileType::Directory => EntryType::Folder,
            FileType::Symlink | FileType::Unknown => EntryType::Unresolved,
            _ => EntryType::Other,
        }
    }

    /// The attributes of what has the name, following links. Errors are fstatat(2)'s.
    pub fn stat(&self) -> io::Result<Stat> {
        let stat = rustix::fs::statat(self.folder, self.entry.file_name(), AtFlags::empty())?;
        Ok(Stat::new(&stat))
    }
}

/// The type of a name in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, or a name for which the file system records no type. [`Name::stat`] tells
    /// what it leads to.
    Unresolved,
    /// A socket, a pipe or a device.
    Other,
}

/// The attributes of an open descriptor. Errors are fstat(2)'s.
pub fn fstat(file: &impl AsFd) -> io::Result<Stat> {
    Ok(Stat::new(&rustix::fs::fstat(file)?))
}

/// Up to `most_bytes` from the beginning of a regular file. A FIFO is not waited for. Errors are
/// those of open(2) and read(2), and `InvalidInput` if it is no regular file.
pub fn read_beginning(path: &[u8], most_bytes: usize) -> io::Result<Vec<u8>> {
    Ok(read_regular(path, most_bytes, OFlags::empty())?.0)
}

/// The same together with the user who owns the file, which may not be a symbolic link (ELOOP).
pub fn read_unlinked(path: &[u8], most_bytes: usize) -> io::Result<(Vec<u8>, u32)> {
    read_regular(path, most_bytes, OFlags::NOFOLLOW)
}

fn read_regular(path: &[u8], most_bytes: usize, more: OFlags) -> io::Result<(Vec<u8>, u32)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let stat = fstat(&file)?;
    if !stat.is_file() {
        let text = "it is no regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut bytes = Vec::new();
    file.take(most_bytes as u64).read_to_end(&mut bytes)?;
    Ok((bytes, stat.uid))
}

/// Opens a file to read it, without waiting for the other end of a pipe.
///
/// # Errors
/// The system's.
pub fn open_to_read(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The target of a symbolic link. Errors are readlink(2)'s.
pub fn read_link(path: &[u8]) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlink(path, Vec::new())?.into_bytes())
}

/// Whether a file system is of a local type for which inotify reports every change (by statfs(2)'s
/// f_type); network file systems, FUSE and unknown types are not. Errors are statfs(2)'s.
pub fn is_local(path: &[u8]) -> io::Result<bool> {
    const LOCAL: [u64; 17] = [
        0xEF53,      // ext2, ext3, ext4
        0x5846_5342, // xfs
        0x9123_683E, // btrfs
        0x0102_1994, // tmpfs
        0x8584_58F6, // ramfs
        0x794C_7630, // overlay
        0xF2F5_2010, // f2fs
        0x2FC1_2FC1, // zfs
        0xCA45_1A4E, // bcachefs
        0x7371_7368, // squashfs
        0xE0F5_E1E2, // erofs
        0x3153_464A, // jfs
        0x5265_4973, // reiserfs
        0x9660,      // iso9660
        0x4D44,      // vfat
        0x2011_BAB0, // exfat
        0x7366_746E, // ntfs3
    ];
    let kind = rustix::fs::statfs(path)?.f_type;
    // The sign of the field differs between architectures; the magic numbers have 32 bits.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast, reason = "see above")]
    let kind = (kind as u64) & 0xFFFF_FFFF;
    Ok(LOCAL.contains(&kind))
}

/// Opens a file for reading. No component of the path, which must be absolute, may be a symbolic
/// link. It never waits for the writer of a pipe. Errors: ELOOP if there is a link, and others of
/// openat2(2).
pub fn open_without_links(path: &[u8]) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(CWD, path, READING, Mode::empty(), resolve) {
        Ok(file) => Ok(file),
        // The kernel, or a container's filter, does not allow the call.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => open_step_by_step(path),
        Err(error) => Err(error.into()),
    }
}

const READING: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// As [`open_without_links`], one component at a time.
fn open_step_by_step(path: &[u8]) -> io::Result<OwnedFd> {
    let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = rustix::fs::open("/", way, Mode::empty())?;
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        let flags = if names.peek().is_some() { way } else { READING };
        folder = match rustix::fs::openat(&folder, name, flags, Mode::empty()) {
            // With O_PATH and O_DIRECTORY a link is reported as ENOTDIR.
            Err(rustix::io::Errno::NOTDIR) if flags == way => {
                return Err(rustix::io::Errno::LOOP.into());
            }
            other => other?,
        };
    }
    Ok(folder)
}

/// Whether no process has the file open for writing, which is tried by taking a read lease and
/// returning it at once. Unknown (`None`) if the kernel grants no lease, because the file is not
/// ours or its file system has none.
#[must_use]
pub fn has_no_writer(file: BorrowedFd<'_>) -> Option<bool> {
    // F_SETLEASE of Linux's <fcntl.h>.
    const F_SETLEASE: libc::c_int = 1024;
    // SAFETY: commands with plain numbers on an open descriptor.
    unsafe {
        if libc::fcntl(file.as_raw_fd(), F_SETLEASE, libc::F_RDLCK) == 0 {
            libc::fcntl(file.as_raw_fd(), F_SETLEASE, libc::F_UNLCK);
            return Some(true);
        }
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => Some(false),
        _ => None,
    }
}

/// Fills `buffer` from `offset` on, up to the end of the file. Returns the number of bytes. Errors
/// are pread(2)'s.
pub fn read_at(file: &impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    fill(file, buffer, offset, None)
}

/// As [`read_at`] from the beginning, for a file that had `size` bytes a moment ago: if a call
/// returns exactly these into a longer buffer, the end is reached without another call.
pub fn read_sized(file: &impl AsFd, buffer: &mut [u8], size: usize) -> io::Result<usize> {
    fill(file, buffer, 0, Some(size))
}

fn fill(
    file: &impl AsFd,
    buffer: &mut [u8],
    offset: u64,
    size: Option<usize>,
) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file, rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if size == Some(filled) {
            break;
        }
    }
    Ok(filled)
}

/// The space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The space that an ordinary user may still fill.
    pub free: u64,
    /// All of it.
    pub total: u64,
}

/// The space of the file system of an open file. Errors are fstatvfs(3)'s.
pub fn space_of(file: impl AsFd) -> io::Result<Space> {
    let found = rustix::fs::fstatvfs(file)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(Space { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
}

/// A new file in a folder that has no name and goes away with its last descriptor. Errors are
/// open(2)'s; `NotADirectory` and others also where the file system has no such files.
pub fn nameless(folder: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, folder, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Gives a file without a name this name. Errors are linkat(2)'s: `AlreadyExists` if the name is
/// taken, and `NotFound` also where /proc is not mounted.
pub fn link_nameless(file: impl AsFd, path: &std::path::Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let number = file.as_fd().as_raw_fd();
    let own = format!("/proc/self/fd/{number}");
    Ok(rustix::fs::linkat(CWD, own.as_str(), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_file_of_its_stated_size_is_read_whole_and_one_that_has_grown_further() {
        let path = std::env::temp_dir().join(format!("evenkeel-sized-{}", std::process::id()));
        std::fs::write(&path, "12345").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        for size in [4, 5, 6] {
            let mut buffer = [0; 9];
            assert_eq!(read_sized(&file, &mut buffer, size).unwrap(), 5, "{size}");
            assert_eq!(buffer.get(..5), Some(&b"12345"[..]));
        }
        let mut short = [0; 3];
        assert_eq!(read_sized(&file, &mut short, 2).unwrap(), 3);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn links_are_refused_wherever_they_stand() {
        let base = std::env::temp_dir().join(format!("evenkeel-open-{}", std::process::id()));
        std::fs::create_dir_all(base.join("real")).unwrap();
        std::fs::write(base.join("real/file"), "text").unwrap();
        std::os::unix::fs::symlink("real", base.join("folder")).unwrap();
        std::os::unix::fs::symlink("file", base.join("real/link")).unwrap();
        let base = std::fs::canonicalize(base).unwrap();
        let path = |name: &str| base.join(name).as_os_str().as_bytes().to_vec();
        for open in [open_without_links, open_step_by_step] {
            let mut buffer = [0; 8];
            let file = open(&path("real/file")).unwrap();
            assert_eq!(read_at(&file, &mut buffer, 1).unwrap(), 3);
            assert_eq!(&buffer[..3], b"ext");
            for name in ["folder/file", "real/link"] {
                let error = open(&path(name)).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ELOOP), "{name}");
            }
        }
        assert!(lstat(&path("folder")).unwrap().is_link());
        assert_eq!(read_link(&path("folder")).unwrap(), b"real");
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_writer_is_noticed() {
        let path = std::env::temp_dir().join(format!("evenkeel-lease-{}", std::process::id()));
        std::fs::write(&path, "text").unwrap();
        let file = open_without_links(std::fs::canonicalize(&path).unwrap().as_os_str().as_bytes())
            .unwrap();
        // A test that starts a process meanwhile may inherit the descriptor of `write` for a
        // moment.
        while has_no_writer(file.as_fd()) == Some(false) {
            std::thread::yield_now();
        }
        assert_eq!(has_no_writer(file.as_fd()), Some(true));
        let writer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(has_no_writer(file.as_fd()), Some(false));
        drop(writer);
        std::fs::remove_file(&path).unwrap();
    }
}
