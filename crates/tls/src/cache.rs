//! The table of sessions that SSLSessionCache asks for: in memory that all children share, without
//! locks. What it holds is sealed, so that an entry which two children write at once, or which one
//! of them forges, is no session.

use crate::secrets::{Seal, Words};
use aws_lc_rs::digest::{SHA256, digest};
use rustls::server::StoresServerSessions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{SystemTime, UNIX_EPOCH};

/// The words of a slot: 512 bytes. The first has the second of its writing (upper half) and the
/// length of the entry in bytes (lower half), the second a part of the digest of its key.
const SLOT: usize = 64;
const ENTRY: usize = (SLOT - 2) * 8;

/// The table of one server.
#[derive(Debug)]
pub struct Cache {
    memory: Arc<dyn Words>,
}

impl Cache {
    /// A table in `memory`.
    #[must_use]
    pub fn new(memory: Arc<dyn Words>) -> Self {
        Self { memory }
    }

    /// The words for a table of `bytes` bytes, at least one slot.
    #[must_use]
    pub const fn words(bytes: usize) -> usize {
        let slots = bytes / (SLOT * 8);
        (if slots == 0 { 1 } else { slots }) * SLOT
    }

    /// The two slots for a key, and the mark of the key in them.
    fn slots(&self, key: &[u8]) -> Option<([&[AtomicU64]; 2], u64)> {
        let words = self.memory.words();
        let count = u64::try_from(words.len() / SLOT).ok().filter(|count| *count > 0)?;
        let digest = digest(&SHA256, key);
        let mut numbers =
            digest.as_ref().as_chunks::<8>().0.iter().map(|it| u64::from_ne_bytes(*it));
        let mut slot = || {
            let index = usize::try_from(numbers.next()? % count).ok()?;
            words.get(index * SLOT..(index + 1) * SLOT)
        };
        let pair = [slot()?, slot()?];
        Some((pair, numbers.next()?))
    }

    fn put(&self, key: &[u8], entry: &[u8], now_s: u32) -> bool {
        let Some((slots, mark)) = self.slots(key) else { return false };
        if entry.len() > ENTRY {
            return false;
        }
        // The key's own slot is the best, then a free one, then the older one.
        let rank = |slot: &&[AtomicU64]| match slot {
            [_, place, ..] if place.load(Ordering::Relaxed) == mark => 0,
            [head, ..] => (head.load(Ordering::Relaxed) >> 32) + 1,
            [] => u64::MAX,
        };
        let Some([head, place, data @ ..]) = slots.into_iter().min_by_key(rank) else {
            return false;
        };
        head.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        place.store(mark, Ordering::Relaxed);
        for (word, bytes) in data.iter().zip(entry.chunks(8)) {
            let mut whole = [0; 8];
            whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
        let length = u64::try_from(entry.len()).unwrap_or_default();
        head.store(u64::from(now_s) << 32 | length, Ordering::Release);
        true
    }

    fn get(&self, key: &[u8], take: bool) -> Option<Vec<u8>> {
        let (slots, mark) = self.slots(key)?;
        for slot in slots {
            let [head, place, data @ ..] = slot else { continue };
            let before = head.load(Ordering::Acquire);
            if before == 0 || place.load(Ordering::Relaxed) != mark {
                continue;
            }
            let length = usize::try_from(before & 0xffff_ffff).ok()?.min(ENTRY);
            let words = data.iter().take(length.div_ceil(8));
            let mut entry: Vec<u8> =
                words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
            entry.truncate(length);
            fence(Ordering::Acquire);
            let unchanged = if take {
                // Of several children that take the same session, one gets it.
                head.compare_exchange(before, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            } else {
                head.load(Ordering::Relaxed) == before
            };
            if unchanged {
                return Some(entry);
            }
        }
        None
    }
}

/// The table as a host sees it: sealed with the host's key.
#[derive(Debug)]
pub(crate) struct HostCache {
    pub(crate) cache: Arc<Cache>,
    pub(crate) seal: Seal,
}

impl StoresServerSessions for HostCache {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let sealed = self.seal.seal(&value, &key);
        let now_s = u32::try_from(now_s).unwrap_or(u32::MAX);
        sealed.is_some_and(|sealed| self.cache.put(&key, &sealed, now_s))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.seal.open(&self.cache.get(key, false)?, key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.seal.open(&self.cache.get(key, true)?, key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Secrets;
    use crate::testing::Memory;

    fn cache(bytes: usize) -> Arc<Cache> {
        let memory = Memory::new(Cache::words(bytes));
        Arc::new(Cache::new(memory))
    }

    fn host(cache: &Arc<Cache>, name: &[u8]) -> HostCache {
        let secrets = Arc::new(Secrets::Fixed(Box::new([1; 48])));
        HostCache { cache: cache.clone(), seal: Seal::new(secrets, name.to_vec(), 300) }
    }

    #[test]
    fn a_session_is_kept_taken_once_and_its_hosts_alone() {
        let cache = cache(100_000);
        let (one, two) = (host(&cache, b"one"), host(&cache, b"two"));
        assert!(one.put(b"id".to_vec(), b"session".to_vec()));
        assert_eq!(one.get(b"id").as_deref(), Some(&b"session"[..]));
        assert_eq!((two.get(b"id"), one.get(b"di")), (None, None));
        assert!(one.put(b"id".to_vec(), b"newer".to_vec()));
        assert_eq!(one.take(b"id").as_deref(), Some(&b"newer"[..]));
        assert_eq!(one.take(b"id"), None);
        assert!(!one.put(b"id".to_vec(), vec![0; ENTRY]), "larger than a slot");
    }

    #[test]
    fn a_full_table_replaces_its_oldest() {
        let cache = cache(512 * 8);
        for time in 1..=100_u32 {
            assert!(cache.put(&time.to_be_bytes(), b"x", time));
        }
        let kept = (1..=100_u32).filter(|time| cache.get(&time.to_be_bytes(), false).is_some());
        let kept: Vec<_> = kept.collect();
        assert!(kept.len() <= 8 && kept.len() >= 4 && kept.contains(&100), "{kept:?}");
    }

    #[test]
    fn a_forged_entry_is_no_session() {
        let cache = cache(512);
        let host = host(&cache, b"one");
        host.put(b"id".to_vec(), b"session".to_vec());
        let words = cache.memory.words();
        words[5].fetch_xor(1, Ordering::Relaxed);
        assert_eq!(host.get(b"id"), None);
        words[0].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(host.get(b"id"), None);
    }
}
