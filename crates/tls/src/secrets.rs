//! The keys that seal session tickets and cached sessions. The parent makes them and replaces them
//! every 12 hours; all its children, of whatever generation, read them from memory that they share.
//! So a client resumes its session with any child, and after a reload. A program that takes over
//! shares the memory too.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use aws_lc_rs::rand;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// Words that processes share. The owner of the memory is the caller.
pub trait Words: fmt::Debug + Send + Sync {
    /// The memory, zeroed when it was made.
    fn words(&self) -> &[AtomicU64];
}

/// How many words [`Secrets`] needs.
pub const SECRETS_WORDS: usize = 2 + KEYS * KEY_WORDS;

/// How long a key seals, in seconds. It opens for twice as long again.
const PERIOD_S: u64 = 12 * 3600;

/// The previous key, the current one and the next one.
const KEYS: usize = 3;
const CURRENT: usize = 1;

/// The name of a key (16 bytes) and the key (32 bytes).
const KEY_WORDS: usize = 6;
const NAME: usize = 16;

/// A name and a key.
type Raw = [u64; KEY_WORDS];

/// The keys.
#[derive(Debug)]
pub enum Secrets {
    /// In memory that the parent writes: a sequence number, which is odd during a change (as in a
    /// seqlock), the time of the last change, and the keys.
    Shared(Arc<dyn Words>),
    /// From SSLSessionTicketKeyFile: the same key on several machines, which the administrator
    /// replaces.
    Fixed(Box<[u8; NAME + 32]>),
}

impl Secrets {
    /// Whether the keys in memory of a predecessor can be used: it has completed its last change.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.version().is_multiple_of(2)
    }

    /// Makes keys if there are none, and replaces them if they are due. Only the parent calls it;
    /// it costs one comparison when nothing is due.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn roll(&self, now_s: u64) -> Result<(), String> {
        let Self::Shared(memory) = self else { return Ok(()) };
        let words = memory.words();
        let [sequence, changed, keys @ ..] = words else { return Ok(()) };
        if !is_due(changed.load(Ordering::Relaxed), now_s) {
            return Ok(());
        }
        let fresh = fresh_keys()?;
        // While the program changes there are two parents. The one that makes the number odd
        // replaces the keys.
        let before = sequence.load(Ordering::Relaxed);
        let turn = (Ordering::Acquire, Ordering::Relaxed);
        if !before.is_multiple_of(2)
            || sequence.compare_exchange(before, before + 1, turn.0, turn.1).is_err()
        {
            return Ok(());
        }
        fence(Ordering::Release);
        let last_s = changed.load(Ordering::Relaxed);
        if is_due(last_s, now_s) {
            // The keys move up by one for each period that has passed; what is older is erased.
            let passed = if last_s == 0 { KEYS as u64 } else { (now_s - last_s) / PERIOD_S };
            let passed = usize::try_from(passed).unwrap_or(KEYS).min(KEYS);
            let kept = keys.chunks(KEY_WORDS).skip(passed).map(read).collect::<Vec<_>>();
            let renewed = kept.into_iter().chain(fresh).take(KEYS);
            for (slot, key) in keys.chunks(KEY_WORDS).zip(renewed) {
                for (word, value) in slot.iter().zip(key) {
                    word.store(value, Ordering::Relaxed);
                }
            }
            changed.store(now_s, Ordering::Relaxed);
        }
        sequence.store(before + 2, Ordering::Release);
        Ok(())
    }

    /// All keys, the one that seals first. None while the parent changes them for longer than a
    /// moment, which means that it has died within the change.
    fn keys(&self) -> Option<Vec<Raw>> {
        let memory = match self {
            Self::Fixed(bytes) => {
                let mut key = [0; KEY_WORDS];
                for (word, bytes) in key.iter_mut().zip(bytes.as_chunks::<8>().0) {
                    *word = u64::from_ne_bytes(*bytes);
                }
                return Some(vec![key]);
            }
            Self::Shared(memory) => memory,
        };
        let [sequence, changed, keys @ ..] = memory.words() else { return None };
        for _ in 0..10_000 {
            let before = sequence.load(Ordering::Acquire);
            if before % 2 == 0 && changed.load(Ordering::Relaxed) != 0 {
                let mut all: Vec<Raw> = keys.chunks(KEY_WORDS).take(KEYS).map(read).collect();
                fence(Ordering::Acquire);
                if sequence.load(Ordering::Relaxed) == before {
                    all.rotate_left(CURRENT);
                    return Some(all);
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    /// A number that changes with the keys.
    fn version(&self) -> u64 {
        match self {
            Self::Fixed(_) => 0,
            Self::Shared(memory) => {
                memory.words().first().map_or(0, |word| word.load(Ordering::Acquire))
            }
        }
    }
}

/// Whether keys that were made at `last_s`, or never (0), are to be replaced.
const fn is_due(last_s: u64, now_s: u64) -> bool {
    last_s == 0 || now_s >= last_s.saturating_add(PERIOD_S)
}

fn fresh_keys() -> Result<[Raw; KEYS], String> {
    let mut fresh = [[0; KEY_WORDS]; KEYS];
    for word in fresh.as_flattened_mut() {
        let mut bytes = [0; 8];
        rand::fill(&mut bytes).map_err(|_| "no random numbers for ticket keys")?;
        *word = u64::from_ne_bytes(bytes);
    }
    Ok(fresh)
}

fn read(slot: &[AtomicU64]) -> Raw {
    let mut key = [0; KEY_WORDS];
    for (value, word) in key.iter_mut().zip(slot) {
        *value = word.load(Ordering::Relaxed);
    }
    key
}

/// Seals and opens what belongs to one host. The key of each host is derived from the shared one,
/// so that no session of one host continues at another.
pub(crate) struct Seal {
    secrets: Arc<Secrets>,
    purpose: Vec<u8>,
    lifetime_s: u32,
    derived: RwLock<(u64, Vec<Derived>)>,
}

struct Derived {
    name: [u8; NAME],
    key: LessSafeKey,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").field("lifetime_s", &self.lifetime_s).finish()
    }
}

impl Seal {
    /// `purpose` is a digest of the host and of what it asks of clients.
    pub(crate) fn new(secrets: Arc<Secrets>, purpose: Vec<u8>, lifetime_s: u32) -> Self {
        Self { secrets, purpose, lifetime_s, derived: RwLock::new((u64::MAX, Vec::new())) }
    }

    pub(crate) const fn lifetime_s(&self) -> u32 {
        self.lifetime_s
    }

    /// The name of the key, a nonce, and the sealed time and text.
    pub(crate) fn seal(&self, plain: &[u8], bound: &[u8]) -> Option<Vec<u8>> {
        self.with(|keys| {
            let Derived { name, key } = keys.first()?;
            let mut nonce = [0; NONCE_LEN];
            rand::fill(&mut nonce).ok()?;
            let mut text = Vec::with_capacity(plain.len() + 8 + 16);
            text.extend_from_slice(&now_s().to_be_bytes());
            text.extend_from_slice(plain);
            let nonce = Nonce::assume_unique_for_key(nonce);
            let mut sealed = Vec::with_capacity(NAME + NONCE_LEN + text.len() + 16);
            sealed.extend_from_slice(name);
            sealed.extend_from_slice(nonce.as_ref());
            key.seal_in_place_append_tag(nonce, Aad::from(bound), &mut text).ok()?;
            sealed.extend_from_slice(&text);
            Some(sealed)
        })
    }

    /// The text, if it was sealed here within its lifetime.
    pub(crate) fn open(&self, sealed: &[u8], bound: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = sealed.split_at_checked(NAME)?;
        let (nonce, text) = rest.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        self.with(|keys| {
            let Derived { key, .. } = keys.iter().find(|derived| derived.name == name)?;
            let mut text = text.to_vec();
            let plain = key.open_in_place(nonce, Aad::from(bound), &mut text).ok()?;
            let (time, plain) = plain.split_first_chunk::<8>()?;
            let age_s = now_s().checked_sub(u64::from_be_bytes(*time))?;
            (age_s <= u64::from(self.lifetime_s)).then(|| plain.to_vec())
        })
    }

    fn with<T>(&self, act: impl FnOnce(&[Derived]) -> Option<T>) -> Option<T> {
        let version = self.secrets.version();
        {
            let derived = self.derived.read().unwrap_or_else(PoisonError::into_inner);
            if derived.0 == version {
                return act(&derived.1);
            }
        }
        let mut keys = Vec::with_capacity(KEYS);
        for raw in self.secrets.keys()? {
            keys.push(self.derive(&raw)?);
        }
        let mut derived = self.derived.write().unwrap_or_else(PoisonError::into_inner);
        *derived = (version, keys);
        act(&derived.1)
    }

    fn derive(&self, raw: &Raw) -> Option<Derived> {
        let mut bytes = raw.iter().flat_map(|word| word.to_ne_bytes());
        let mut name = [0; NAME];
        name.iter_mut().zip(bytes.by_ref()).for_each(|(to, from)| *to = from);
        let secret: Vec<u8> = bytes.collect();
        let root: Prk = Salt::new(HKDF_SHA256, &[]).extract(&secret);
        let info = [&self.purpose[..]];
        let mut key = [0; 32];
        root.expand(&info, Length).ok()?.fill(&mut key).ok()?;
        Some(Derived { name, key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).ok()?) })
    }
}

struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        32
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Memory;

    fn shared() -> Arc<Secrets> {
        let memory = Memory::new(SECRETS_WORDS);
        Arc::new(Secrets::Shared(memory))
    }

    #[test]
    fn a_ticket_opens_until_its_key_is_replaced_twice() {
        let secrets = shared();
        let seal = Seal::new(secrets.clone(), b"host".to_vec(), 300);
        assert_eq!(seal.seal(b"x", b""), None, "no keys yet");
        secrets.roll(1_000).unwrap();
        let ticket = seal.seal(b"secret", b"id").unwrap();
        assert_eq!(seal.open(&ticket, b"id").as_deref(), Some(&b"secret"[..]));
        assert_eq!(seal.open(&ticket, b"other"), None);
        secrets.roll(1_000 + PERIOD_S - 1).unwrap();
        secrets.roll(1_000 + PERIOD_S).unwrap();
        assert!(seal.open(&ticket, b"id").is_some());
        secrets.roll(1_000 + 2 * PERIOD_S).unwrap();
        assert!(seal.open(&ticket, b"id").is_none());
        // A parent that slept for days replaces them all.
        let ticket = seal.seal(b"secret", b"").unwrap();
        secrets.roll(1_000 + 9 * PERIOD_S).unwrap();
        assert!(seal.open(&ticket, b"").is_none());
    }

    #[test]
    fn the_next_key_opens_and_a_host_opens_only_its_own() {
        let secrets = shared();
        secrets.roll(1).unwrap();
        let seal = Seal::new(secrets.clone(), b"one".to_vec(), 300);
        let other = Seal::new(secrets, b"two".to_vec(), 300);
        let ticket = seal.seal(b"secret", b"").unwrap();
        assert!(other.open(&ticket, b"").is_none());
        for at in 0..ticket.len() {
            let mut damaged = ticket.clone();
            damaged[at] ^= 1;
            assert!(seal.open(&damaged, b"").is_none(), "{at}");
            assert!(seal.open(&ticket[..at], b"").is_none());
        }
    }

    #[test]
    fn two_parents_replace_the_keys_once() {
        let memory: Arc<dyn Words> = Memory::new(SECRETS_WORDS);
        let old = Arc::new(Secrets::Shared(memory.clone()));
        let new = Arc::new(Secrets::Shared(memory.clone()));
        old.roll(1).unwrap();
        assert!(new.is_complete());
        let ticket = Seal::new(old.clone(), b"h".to_vec(), 300).seal(b"secret", b"").unwrap();
        let first = old.keys().unwrap();
        std::thread::scope(|scope| {
            for secrets in [&old, &new].repeat(4) {
                scope.spawn(|| secrets.roll(1 + PERIOD_S).unwrap());
            }
        });
        // One period has passed: the current key opens still, as the previous one.
        let after = new.keys().unwrap();
        assert_eq!((after[0], after[2]), (first[1], first[0]));
        assert!(Seal::new(new.clone(), b"h".to_vec(), 300).open(&ticket, b"").is_some());
        // A parent that died within a change leaves nothing to take over.
        memory.words()[0].fetch_add(1, Ordering::Relaxed);
        assert!(!new.is_complete());
        new.roll(1 + 2 * PERIOD_S).unwrap();
        assert!(!new.is_complete());
    }

    #[test]
    fn a_fixed_key_opens_on_another_machine() {
        let here = Seal::new(Arc::new(Secrets::Fixed(Box::new([7; 48]))), b"h".to_vec(), 300);
        let there = Seal::new(Arc::new(Secrets::Fixed(Box::new([7; 48]))), b"h".to_vec(), 300);
        let ticket = here.seal(b"secret", b"").unwrap();
        assert_eq!(there.open(&ticket, b"").as_deref(), Some(&b"secret"[..]));
    }
}
