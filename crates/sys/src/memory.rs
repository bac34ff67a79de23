//! Memory that a process shares with the children that it forks, as a slice of atomic words. Since
//! all access is atomic, no other process can violate what the compiler relies on. Also functions
//! on the process's heap.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};

/// The number of words rounded up to whole pages.
#[must_use]
pub fn whole_pages(words: usize) -> usize {
    words.next_multiple_of(rustix::param::page_size() / size_of::<AtomicU64>())
}

/// A zeroed region that is shared with every process forked while it exists. Pages take memory only
/// once they are touched (MAP_NORESERVE), so that a region may be sized for the worst case.
pub struct Shared {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the region is accessed only as `&[AtomicU64]`, which any thread may use, and it is
// unmapped only when its owner drops it.
unsafe impl Send for Shared {}
// SAFETY: as above, a shared reference gives access to atomics only.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps `words` words of 8 bytes. Errors are mmap(2)'s, or `InvalidInput` if the size is zero
    /// or exceeds the address space.
    pub fn new(words: usize) -> io::Result<Self> {
        Self::map(words, None)
    }

    /// Maps a file, or anonymous memory without one.
    fn map(words: usize, file: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let bytes = words.checked_mul(size_of::<AtomicU64>()).filter(|&bytes| bytes > 0);
        let Some(bytes) = bytes else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let (kind, file) = match file {
            Some(file) => (0, file.as_raw_fd()),
            None => (libc::MAP_ANONYMOUS, -1),
        };
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory. A
        // file that is mapped has this size and is sealed against shrinking (`SharedFile`).
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | kind | libc::MAP_NORESERVE,
                file,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, words })
    }

    /// Keeps only a part of the region, and unmaps the rest in this process. Errors are
    /// `InvalidInput` if the part does not consist of whole pages, or munmap(2)'s.
    pub fn keep(self, part: Range<usize>) -> io::Result<Self> {
        if !self.is_whole_pages(&part) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let whole = ManuallyDrop::new(self);
        for rest in [0..part.start, part.end..whole.words].into_iter().filter(|it| !it.is_empty()) {
            // SAFETY: the rest belongs to us, starts at a page and ends with one or with the
            // region, and no slice of it is left.
            let done = unsafe {
                let start = whole.start.as_ptr().add(rest.start);
                libc::munmap(start.cast(), rest.len() * size_of::<AtomicU64>())
            };
            if done != 0 {
                // What is still mapped stays mapped, because the extent of the region is unknown
                // now.
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: the part lies within the region.
        let start = unsafe { whole.start.add(part.start) };
        Ok(Self { start, words: part.len() })
    }

    /// Releases the memory of these words if they are whole pages; they are zero afterwards. It
    /// does nothing where the system does not support it (madvise(2), MADV_REMOVE).
    pub fn give_back(&self, part: Range<usize>) {
        if self.is_whole_pages(&part) {
            // SAFETY: the pages belong to us, and shared memory is only read as atomics.
            unsafe {
                let start = self.start.as_ptr().add(part.start);
                libc::madvise(start.cast(), part.len() * size_of::<AtomicU64>(), libc::MADV_REMOVE)
            };
        }
    }

    /// Whether these words are whole pages of the region. The last page counts as whole if the
    /// region ends within it.
    fn is_whole_pages(&self, part: &Range<usize>) -> bool {
        let begins_page = |at: usize| whole_pages(at) == at;
        let ends_page = begins_page(part.end) || part.end == self.words;
        part.start < part.end && part.end <= self.words && begins_page(part.start) && ends_page
    }

    /// The whole region.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is page-aligned and begins a live mapping of `words` zeroed words, every
        // bit pattern is a valid AtomicU64, and the slice cannot outlive the mapping.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to us and has exactly this size, and no slice of it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}

/// A shared region with a descriptor, by which a program that is not forked from this process gets
/// the same memory.
pub struct SharedFile {
    region: Shared,
    file: OwnedFd,
}

impl SharedFile {
    /// The seals: the size stays as it is, so that no access to the mapping can fail.
    const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

    /// Makes a zeroed region of `words` words of 8 bytes. Errors are those of [`Shared::new`] and
    /// of memfd_create(2).
    pub fn new(words: usize) -> io::Result<Self> {
        let bytes = words.checked_mul(size_of::<AtomicU64>());
        let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok());
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("evenkeel", flags)?;
        rustix::fs::ftruncate(&file, bytes)?;
        rustix::fs::fcntl_add_seals(&file, Self::SEALS)?;
        Ok(Self { region: Shared::map(words, Some(file.as_fd()))?, file })
    }

    /// Maps the region of another process. Errors are `InvalidInput` if the descriptor is not a
    /// region of `words` words, and mmap(2)'s.
    pub fn adopt(file: OwnedFd, words: usize) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        let bytes = usize::try_from(rustix::fs::fstat(&file)?.st_size).ok();
        let fits = bytes.is_some() && bytes == words.checked_mul(size_of::<AtomicU64>());
        if !fits || !seals.contains(Self::SEALS) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self { region: Shared::map(words, Some(file.as_fd()))?, file })
    }

    /// The whole region.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.region.words()
    }
}

impl AsFd for SharedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Keeps the allocator's bounds for large blocks and for freed memory at 128 KiB. Otherwise each
/// large block that is freed raises them, up to 32 MiB and twice that, and what is freed below them
/// stays with the process (mallopt(3), M_MMAP_THRESHOLD).
pub fn bound_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) has no preconditions. It is called before there are other threads.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 128 << 10);
    }
}

/// Returns freed memory from the allocator to the system. It scans the allocator's whole heap,
/// which takes milliseconds.
pub fn give_back_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes that the process has allocated and not freed, including the allocator's overhead; none if
/// the allocator does not tell.
#[must_use]
pub fn allocated_bytes() -> Option<usize> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallinfo2(3) may be called at any time, by any thread.
        let told = unsafe { libc::mallinfo2() };
        Some(told.uordblks + told.hblkhd)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_region_is_zeroed_and_keeps_what_is_stored() {
        let region = Shared::new(1 << 20).unwrap();
        assert_eq!(region.words().len(), 1 << 20);
        assert_eq!(region.words()[12345].load(Relaxed), 0);
        region.words()[(1 << 20) - 1].store(7, Relaxed);
        assert_eq!(region.words()[(1 << 20) - 1].load(Relaxed), 7);
    }

    #[test]
    fn a_part_is_kept_and_memory_given_back() {
        let page = whole_pages(1);
        assert_eq!((whole_pages(page), whole_pages(page + 1)), (page, 2 * page));
        let region = Shared::new(5 * page).unwrap();
        for at in 0..5 {
            region.words()[at * page + 1].store(at as u64 + 1, Relaxed);
        }
        region.give_back(page..2 * page);
        // A page that is only partly in the range stays as it is.
        region.give_back(2 * page..3 * page - 1);
        region.give_back(3 * page + 1..4 * page);
        let seen = |region: &Shared, at: usize| region.words()[at * page + 1].load(Relaxed);
        assert_eq!([0, 1, 2, 3].map(|at| seen(&region, at)), [1, 0, 3, 4]);
        let part = region.keep(2 * page..4 * page).unwrap();
        assert_eq!((part.words().len(), seen(&part, 0), seen(&part, 1)), (2 * page, 3, 4));
        assert!(Shared::new(3 * page).unwrap().keep(page..page + 1).is_err());
        assert!(Shared::new(3 * page).unwrap().keep(page..4 * page).is_err());
    }

    #[test]
    fn a_region_with_a_descriptor_is_adopted_as_it_is_or_not_at_all() {
        let region = SharedFile::new(100).unwrap();
        region.words()[99].store(7, Relaxed);
        let descriptor = || region.as_fd().try_clone_to_owned().unwrap();
        let again = SharedFile::adopt(descriptor(), 100).unwrap();
        assert_eq!(again.words()[99].load(Relaxed), 7);
        again.words()[0].store(8, Relaxed);
        assert_eq!(region.words()[0].load(Relaxed), 8);
        assert!(SharedFile::adopt(descriptor(), 101).is_err());
        assert!(SharedFile::adopt(descriptor(), 99).is_err());
        assert!(rustix::fs::ftruncate(&region, 8).is_err());
        // A file that its owner could truncate is refused.
        let file = rustix::fs::memfd_create("cut", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, 800).unwrap();
        assert!(SharedFile::adopt(file, 100).is_err());
        let (pipe, _) = std::io::pipe().unwrap();
        assert!(SharedFile::adopt(pipe.into(), 100).is_err());
        assert!(SharedFile::new(0).is_err());
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(Shared::new(0).is_err());
        assert!(Shared::new(usize::MAX / 4).is_err());
    }
}
