//! Memory that a process shares with the children that it forks. A size comes in, a slice of
//! atomic words goes out. It never hands out a reference to anything that is not atomic, so that
//! no other process can break a promise that the compiler relies on.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

/// A zeroed region shared with every process forked while it exists. Pages cost memory only once
/// they are touched (MAP_NORESERVE), so a region may be sized for the worst case.
pub struct Shared {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the region is reached only as `&[AtomicU64]`, which any thread may use at any time, and
// it is unmapped only by the one owner's drop.
unsafe impl Send for Shared {}
// SAFETY: as above, shared references give out atomics alone.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps `words` words of 8 bytes. An error is the kernel's refusal (mmap(2)), or
    /// `InvalidInput` where the size is zero or passes the address space.
    pub fn new(words: usize) -> io::Result<Self> {
        let bytes = words.checked_mul(size_of::<AtomicU64>()).filter(|&bytes| bytes > 0);
        let Some(bytes) = bytes else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no
        // memory that exists.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, words })
    }

    /// The whole region.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is page-aligned and heads a live mapping of `words` zeroed words, every
        // bit pattern is a valid AtomicU64, and the slice cannot outlive the mapping.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of exactly this size, and no slice of it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
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
    fn an_impossible_size_is_an_error() {
        assert!(Shared::new(0).is_err());
        assert!(Shared::new(usize::MAX / 4).is_err());
    }
}
