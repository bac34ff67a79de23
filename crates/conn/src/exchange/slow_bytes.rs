//! Bounds the memory that all slow clients of a child keep: responses of which they have read a
//! part, and handshakes that have not ended. Such a client holds no credit. Its connection ends if
//! there is no room for what it keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Room for what slow clients keep, in bytes.
pub struct SlowBytes {
    free: AtomicU64,
    total: u64,
}

/// A part of it; dropping it gives it back.
pub(crate) struct Share {
    of: Arc<SlowBytes>,
    bytes: u64,
}

impl SlowBytes {
    /// The room that a child has: 64 MiB.
    pub const USUAL: u64 = 64 << 20;

    /// So many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { free: AtomicU64::new(bytes), total: bytes })
    }

    /// Whether less than an eighth is free.
    pub(crate) fn is_short(&self) -> bool {
        self.free.load(Relaxed) < self.total / 8
    }

    /// Room for so many bytes, if there is.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        self.free.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(bytes)).ok()?;
        Some(Share { of: Arc::clone(self), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.free.fetch_add(self.bytes, Relaxed);
    }
}
