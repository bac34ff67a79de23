//! The table of clients, in memory that all child processes share. It holds the nonce counts that a
//! client has used (AuthDigestNcCheck), or the one nonce that it may use next
//! (AuthDigestNonceLifetime 0). A client has a number, which is the opaque value of its challenge
//! and a part of its nonce. The newest clients are kept; the nonce of a forgotten one is stale.

use evenkeel_sys::memory::Shared;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The words before the slots: the number of the last client, and that of the next nonce for one
/// request.
const COUNTERS: usize = 2;

/// The words of a slot: the number of its client, and the state.
const SLOT: usize = 2;

/// The bit of a state that holds the number of a nonce for one request. Other states hold the
/// highest nonce count in the upper half, and in the lower half one bit for each used count: bit 0
/// for the highest count, bit 1 for the one before it, and so on.
const ONE_TIME: u64 = 1 << 63;

/// The number of counts that a state has a bit for.
const WINDOW: u64 = 32;

/// The table.
pub(super) struct Clients {
    memory: Shared,
    slots: u64,
}

/// The result of using a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use<T> {
    /// This is its first use.
    First(T),
    /// It was used before. The number is the highest nonce count so far.
    Again(u64),
    /// The client is unknown or forgotten.
    Unknown,
}

impl Clients {
    /// Makes a table for this many clients. The memory is allocated when it is touched.
    ///
    /// # Errors
    /// mmap(2) fails.
    pub(super) fn new(slots: usize) -> io::Result<Self> {
        let slots = slots.max(1);
        let words = slots.saturating_mul(SLOT).saturating_add(COUNTERS);
        Ok(Self { memory: Shared::new(words)?, slots: slots as u64 })
    }

    fn counter(&self, index: usize) -> Option<&AtomicU64> {
        self.memory.words().get(index)
    }

    /// The slot of a client: its number and its state.
    fn slot(&self, client: u64) -> Option<(&AtomicU64, &AtomicU64)> {
        let index = usize::try_from(client % self.slots).ok()? * SLOT + COUNTERS;
        match self.memory.words().get(index..index + SLOT) {
            Some([number, state]) => Some((number, state)),
            _ => None,
        }
    }

    /// Adds a client that counts its requests. Returns its number.
    pub(super) fn add_counting(&self) -> u64 {
        self.add(0)
    }

    /// Adds a client whose nonces are valid for one request. Returns its number, and that of its
    /// first nonce.
    pub(super) fn add_one_time(&self) -> (u64, i64) {
        let nonce = self.next_nonce();
        (self.add(ONE_TIME | nonce), nonce.cast_signed())
    }

    fn next_nonce(&self) -> u64 {
        let next = self.counter(1).map(|next| next.fetch_add(1, SeqCst)).unwrap_or_default();
        next & !ONE_TIME
    }

    fn add(&self, new_state: u64) -> u64 {
        let client = self.counter(0).map_or(0, |last| last.fetch_add(1, SeqCst)) + 1;
        if let Some((number, state)) = self.slot(client) {
            // No client has the number 0, so the slot has none until its state is set.
            number.store(0, SeqCst);
            state.store(new_state, SeqCst);
            number.store(client, SeqCst);
        }
        client
    }

    /// Whether the table holds the client.
    pub(super) fn has(&self, client: u64) -> bool {
        client != 0 && self.slot(client).is_some_and(|(number, _)| number.load(SeqCst) == client)
    }

    /// Uses a nonce count of a client. Of several requests with the same count, in whatever
    /// processes, one has the first use.
    pub(super) fn use_count(&self, client: u64, count: u64) -> Use<()> {
        self.change(client, |state| marked(state, count).map(|new| (new, ())))
    }

    /// Uses the nonce of a client that is valid for one request, and replaces it. Returns the
    /// number of the next nonce.
    pub(super) fn use_nonce(&self, client: u64, nonce: i64) -> Use<i64> {
        self.change(client, |state| match state == ONE_TIME | nonce.cast_unsigned() {
            false => None,
            true => {
                let next = self.next_nonce();
                Some((ONE_TIME | next, next.cast_signed()))
            }
        })
    }

    /// Replaces the state of a client with the result of `step`, which refuses with `None`.
    fn change<T>(&self, client: u64, step: impl Fn(u64) -> Option<(u64, T)>) -> Use<T> {
        let Some((number, state)) = self.slot(client).filter(|_| client != 0) else {
            return Use::Unknown;
        };
        loop {
            let old = state.load(SeqCst);
            // The state is that of this client only if the number is its own after the load.
            if number.load(SeqCst) != client {
                return Use::Unknown;
            }
            let Some((new, result)) = step(old) else { return Use::Again(old >> WINDOW) };
            if state.compare_exchange(old, new, SeqCst, SeqCst).is_ok() {
                return Use::First(result);
            }
        }
    }
}

/// The state after a nonce count was used. Returns `None` if it was used before, if it is too far
/// behind the highest one, or if it is no count.
fn marked(state: u64, count: u64) -> Option<u64> {
    if state & ONE_TIME != 0 || count == 0 || count >= 1 << (WINDOW - 1) {
        return None;
    }
    let (highest, used) = (state >> WINDOW, state & u64::from(u32::MAX));
    let (highest, used) = match count.checked_sub(highest) {
        None | Some(0) => {
            let behind = highest - count;
            let bit = 1_u64.checked_shl(u32::try_from(behind).ok()?).filter(|_| behind < WINDOW)?;
            if used & bit != 0 {
                return None;
            }
            (highest, used | bit)
        }
        Some(ahead) if ahead < WINDOW => (count, (used << ahead | 1) & u64::from(u32::MAX)),
        Some(_) => (count, 1),
    };
    Some(highest << WINDOW | used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_used_once_and_may_come_out_of_order() {
        let clients = Clients::new(8).unwrap();
        let client = clients.add_counting();
        for (count, is_first) in [
            (0, false),
            (1, true),
            (1, false),
            (3, true),
            (2, true),
            (2, false),
            (3, false),
            (40, true),
            (8, false),
            (9, true),
            (9, false),
            (39, true),
            (40, false),
            (71, true),
            (40, false),
            (41, true),
            (0x7fff_ffff, true),
            (0x7fff_ffff, false),
            (0x8000_0000, false),
            (u64::MAX, false),
            (71, false),
        ] {
            let used = clients.use_count(client, count);
            assert_eq!(used == Use::First(()), is_first, "{count}: {used:?}");
        }
        assert_eq!(clients.use_count(client, 5), Use::Again(0x7fff_ffff));
    }

    /// The reference keeps every count.
    #[test]
    fn the_window_agrees_with_a_list_of_all_counts() {
        let clients = Clients::new(1).unwrap();
        let client = clients.add_counting();
        let (mut used, mut highest) = (std::collections::HashSet::new(), 0_u64);
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let count = (highest + (seed >> 33) % 80).saturating_sub(60);
            let is_new = count > 0 && count + WINDOW > highest && used.insert(count);
            assert_eq!(clients.use_count(client, count) == Use::First(()), is_new, "{count}");
            highest = highest.max(if is_new { count } else { 0 });
        }
    }

    #[test]
    fn a_nonce_for_one_request_is_used_once() {
        let clients = Clients::new(8).unwrap();
        let (client, nonce) = clients.add_one_time();
        let (other, others) = clients.add_one_time();
        assert_ne!(nonce, others);
        assert!(matches!(clients.use_nonce(client, others), Use::Again(_)));
        let Use::First(next) = clients.use_nonce(client, nonce) else { panic!("not accepted") };
        assert!(matches!(clients.use_nonce(client, nonce), Use::Again(_)));
        assert!(matches!(clients.use_count(client, 1), Use::Again(_)));
        assert!(matches!(clients.use_nonce(client, next), Use::First(_)));
        assert!(matches!(clients.use_nonce(other, others), Use::First(_)));
        let counting = clients.add_counting();
        assert!(matches!(clients.use_nonce(counting, 0), Use::Again(_)));
    }

    #[test]
    fn the_newest_clients_are_kept() {
        let clients = Clients::new(4).unwrap();
        let numbers: Vec<u64> = (0..6).map(|_| clients.add_counting()).collect();
        let kept: Vec<bool> = numbers.iter().map(|client| clients.has(*client)).collect();
        assert_eq!(kept, [false, false, true, true, true, true]);
        assert_eq!(clients.use_count(numbers[0], 1), Use::Unknown);
        assert_eq!(clients.use_nonce(numbers[1], 1), Use::Unknown);
        assert_eq!(clients.use_count(numbers[5], 1), Use::First(()));
        for unknown in [0, 7, u64::MAX] {
            assert!(!clients.has(unknown));
            assert_eq!(clients.use_count(unknown, 1), Use::Unknown);
        }
    }

    #[test]
    fn of_many_threads_one_uses_a_count() {
        let clients = Clients::new(8).unwrap();
        let client = clients.add_counting();
        let use_all = || {
            let firsts =
                (1..=500).filter(|count| clients.use_count(client, *count) == Use::First(()));
            firsts.count()
        };
        let total: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(use_all)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        // A thread that is overtaken by more than the window finds its counts used.
        assert!(total <= 500, "{total}");
    }
}
