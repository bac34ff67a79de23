//! Claims of the idle workers of a pool. A serving thread that has kept its connection to a worker
//! may use it only after it has claimed the worker, so that a kept connection does not reserve its
//! worker. The word of a worker says which process it is, what it does, and by which connection it
//! is claimed. The other side is `php/evenkeel-php.c`, which maps the same memory. Each value is an
//! atomic word, and neither side trusts what the other has written.

use crate::memory::SharedFile;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The places of workers: as many as a zygote has seats (php/evenkeel-php.c: MOST_SEATS).
pub const MOST_PLACES: u32 = 4096;

/// The distance between two words, in words: each has a cache line of its own.
const STRIDE: usize = 8;

/// The index of the word that tells whether requests wait at the listening socket. The words of the
/// places follow it.
const WAITING: usize = 0;

/// The states of a worker, in the lowest two bits of its word. The next 30 bits are the number of
/// the connection by which it is claimed, and the upper 32 bits are its process id.
const IDLE: u64 = 1;
const CLAIMED: u64 = 2;
const STATE: u64 = 3;
const NUMBER_SHIFT: u32 = 2;
const MOST_NUMBER: u32 = (1 << 30) - 1;
const PROCESS_SHIFT: u32 = 32;

/// The words of a pool.
pub struct Claims {
    region: SharedFile,
}

/// The identity of a kept connection, which the worker chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    place: u32,
    process: u32,
    number: u32,
}

/// The result of an attempt to claim a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The worker is claimed by this connection.
    Claimed,
    /// The worker is busy, or another connection has claimed it.
    Busy,
    /// The worker has ended.
    Gone,
}

impl Link {
    /// The bytes of a link in a report.
    pub const BYTES: usize = 12;

    /// Reads a link: place, process and number of the connection.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (numbers, _) = bytes.as_chunks::<4>();
        let [place, process, number] = numbers else { return None };
        let [place, process, number] = [place, process, number].map(|it| u32::from_le_bytes(*it));
        let is_sound = place < MOST_PLACES && process > 0 && number <= MOST_NUMBER;
        is_sound.then_some(Self { place, process, number })
    }

    /// Whether both connections lead to the same worker.
    #[must_use]
    pub fn is_to_worker_of(self, other: Self) -> bool {
        (self.place, self.process) == (other.place, other.process)
    }

    fn idle(self) -> u64 {
        of_process(self.process) | IDLE
    }

    fn claimed(self) -> u64 {
        of_process(self.process) | u64::from(self.number) << NUMBER_SHIFT | CLAIMED
    }
}

fn of_process(process: u32) -> u64 {
    u64::from(process) << PROCESS_SHIFT
}

impl Claims {
    /// Words of a pool without workers. Errors are those of [`SharedFile::new`].
    pub fn new() -> io::Result<Arc<Self>> {
        let words = STRIDE * (1 + MOST_PLACES as usize);
        Ok(Arc::new(Self { region: SharedFile::new(words)? }))
    }

    fn word(&self, place: u32) -> Option<&AtomicU64> {
        self.region.words().get(STRIDE * (1 + place as usize))
    }

    /// Claims a worker for a connection.
    #[must_use]
    pub fn claim(&self, link: Link) -> Attempt {
        let Some(word) = self.word(link.place) else { return Attempt::Gone };
        let (to, order) = (link.claimed(), Ordering::AcqRel);
        match word.compare_exchange(link.idle(), to, order, Ordering::Acquire) {
            Ok(_) => Attempt::Claimed,
            Err(found) if found >> PROCESS_SHIFT == u64::from(link.process) => Attempt::Busy,
            Err(_) => Attempt::Gone,
        }
    }

    /// Takes a claim back. Says whether the worker had not taken it: then it has read nothing from
    /// the connection, and never will.
    pub fn withdraw(&self, link: Link) -> bool {
        let (from, to) = (link.claimed(), link.idle());
        let swap = |word: &AtomicU64| {
            word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        self.word(link.place).is_some_and(swap)
    }

    /// Forgets a process that has ended. A claim that it has not taken stays, so that whoever has
    /// claimed it can take the claim back.
    pub fn forget(&self, place: u32, process: u32) {
        let Some(word) = self.word(place) else { return };
        let is_its = |found: u64| found >> PROCESS_SHIFT == u64::from(process);
        let clear = |found: u64| (is_its(found) && found & STATE != CLAIMED).then_some(0);
        let _other = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, clear);
    }

    /// Lets threads claim the worker of a link, as the worker itself does: for tests.
    pub fn offer(&self, link: Link) {
        if let Some(word) = self.word(link.place) {
            word.store(link.idle(), Ordering::Release);
        }
    }

    /// Notes that a request waits at the listening socket. The next worker that is free accepts it
    /// before anybody can claim that worker.
    pub fn note_waiting(&self) {
        if let Some(word) = self.region.words().get(WAITING) {
            word.store(1, Ordering::Release);
        }
    }
}

impl AsFd for Claims {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.region.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(place: u32, process: u32, number: u32) -> Link {
        let bytes = [place, process, number].map(u32::to_le_bytes);
        Link::read(bytes.as_flattened()).unwrap()
    }

    fn set(claims: &Claims, link: Link, state: u64) {
        claims.word(link.place).unwrap().store(of_process(link.process) | state, Ordering::Relaxed);
    }

    #[test]
    fn an_idle_worker_is_claimed_once_and_a_busy_or_dead_one_never() {
        let claims = Claims::new().unwrap();
        let (first, second) = (link(7, 100, 1), link(7, 100, 2));
        assert_eq!(claims.claim(first), Attempt::Gone);
        set(&claims, first, 0);
        assert_eq!(claims.claim(first), Attempt::Busy);
        claims.offer(first);
        assert_eq!(claims.claim(first), Attempt::Claimed);
        assert_eq!(claims.claim(second), Attempt::Busy);
        assert!(!claims.withdraw(second) && claims.withdraw(first) && !claims.withdraw(first));
        assert_eq!(claims.claim(second), Attempt::Claimed);
        // The worker has taken the claim.
        set(&claims, second, 0);
        assert!(!claims.withdraw(second));
        // Another process has the place now, and is idle.
        claims.offer(link(7, 101, 0));
        assert_eq!(claims.claim(second), Attempt::Gone);
        // Neighbours have words of their own.
        assert_eq!(claims.claim(link(8, 101, 1)), Attempt::Gone);
        assert_eq!(claims.claim(link(7, 101, 1)), Attempt::Claimed);
    }

    #[test]
    fn a_dead_worker_is_forgotten_but_not_its_successor_or_a_claim_that_it_has_not_taken() {
        let claims = Claims::new().unwrap();
        let (dead, next) = (link(0, 100, 1), link(0, 101, 1));
        claims.offer(dead);
        claims.forget(0, 101);
        assert_eq!(claims.claim(dead), Attempt::Claimed);
        claims.forget(0, 100);
        assert!(claims.withdraw(dead));
        claims.forget(0, 100);
        assert_eq!(claims.claim(dead), Attempt::Gone);
        claims.offer(next);
        claims.forget(0, 100);
        assert_eq!(claims.claim(next), Attempt::Claimed);
    }

    #[test]
    fn a_link_is_three_numbers_within_their_bounds() {
        let read = |numbers: [u32; 3]| Link::read(numbers.map(u32::to_le_bytes).as_flattened());
        assert!(read([4095, 1, MOST_NUMBER]).is_some());
        for odd in [[4096, 1, 1], [0, 0, 1], [0, 1, MOST_NUMBER + 1]] {
            assert_eq!(read(odd), None, "{odd:?}");
        }
        assert_eq!(Link::read(&[0; 11]), None);
    }
}
