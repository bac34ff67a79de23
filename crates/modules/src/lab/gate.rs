//! A gate with few places, as an application has that works on so many requests at once: when a
//! request comes and how long it stays comes in, its turn goes out. The places are shared by all
//! children. Requests have their turns in the order in which they came; one that leaves the line
//! gives its turn back, and who comes next has it.

use evenkeel_sys::clock;
use evenkeel_sys::memory::Shared;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many turns that were given back are kept: as many as may leave the line at once.
const MOST_GIVEN: usize = 4096;

/// A turn that was given back is one word: in the low bits how many whole milliseconds it lasts, of
/// which the lab allows an hour's; above them when it begins, in microseconds since the gate was
/// made.
const STAY_BITS: u32 = 22;
const BEGIN_BITS: u32 = u64::BITS - STAY_BITS;

/// The gate.
#[derive(Clone)]
pub struct Gate {
    /// When each place will be free, in microseconds of the monotonic clock.
    places: Arc<Shared>,
    /// The turns that were given back; 0 where there is none.
    given: Arc<Shared>,
    made_us: u64,
}

/// A place for a while, in microseconds of the monotonic clock. A turn that is let go before it
/// begins is given back; one that has begun lasts, whoever has gone.
#[derive(Debug)]
pub struct Turn {
    gate: Gate,
    /// When it begins.
    pub begins_us: u64,
    /// When it ends.
    pub ends_us: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.gate.give_back(self.begins_us, self.ends_us, clock::monotonic_us());
    }
}

impl Gate {
    /// A gate with this many places, all of them free.
    ///
    /// # Errors
    /// The kernel denies the memory.
    pub fn new(places: usize) -> io::Result<Self> {
        let (places, given) = (Shared::new(places)?, Shared::new(MOST_GIVEN)?);
        let made_us = clock::monotonic_us();
        Ok(Self { places: Arc::new(places), given: Arc::new(given), made_us })
    }

    /// A turn of this length, as early as there is one.
    #[must_use]
    pub fn enter(&self, stay: Duration) -> Turn {
        let (begins_us, ends_us) = self.take(clock::monotonic_us(), stay);
        Turn { gate: self.clone(), begins_us, ends_us }
    }

    /// When a turn begins and ends that is taken now: one that was given back, or the place that is
    /// free first.
    fn take(&self, now_us: u64, stay: Duration) -> (u64, u64) {
        let stay_us = u64::try_from(stay.as_micros()).unwrap_or(u64::MAX);
        loop {
            let places = self.places.words().iter().map(|place| (read(place), place));
            let first = places.min_by_key(|(free_us, _)| *free_us);
            let Some((free_us, place)) = first else { return (now_us, now_us) };
            let behind_us = free_us.max(now_us);
            let given = self.earliest(now_us, stay);
            let given = given.filter(|(given, _)| self.begin_of(*given) < behind_us);
            let begins_us = given.map_or(behind_us, |(given, _)| self.begin_of(given));
            let ends_us = begins_us.saturating_add(stay_us);
            let (word, old, new) = match given {
                Some((given, word)) => (word, given, 0),
                None => (place, free_us, ends_us),
            };
            if word.compare_exchange(old, new, ORDER, ORDER).is_ok() {
                return (begins_us, ends_us);
            }
        }
    }

    /// Gives a turn back that has not begun. Where more of them are kept than may be, it is lost.
    fn give_back(&self, begins_us: u64, ends_us: u64, now_us: u64) {
        let begins = begins_us.saturating_sub(self.made_us);
        let stay_ms = ends_us.saturating_sub(begins_us) / 1000;
        let is_kept = stay_ms > 0 && stay_ms < 1 << STAY_BITS && begins < 1 << BEGIN_BITS;
        if begins_us <= now_us || !is_kept {
            return;
        }
        let given = begins << STAY_BITS | stay_ms;
        let mut words = self.given.words().iter();
        let _kept = words
            .find(|word| read(word) == 0 && word.compare_exchange(0, given, ORDER, ORDER).is_ok());
    }

    /// Of the turns that were given back and last so long, the one that begins first, with its
    /// word. Those whose time has come are no more.
    fn earliest(&self, now_us: u64, stay: Duration) -> Option<(u64, &AtomicU64)> {
        let all = self.given.words().iter().map(|word| (read(word), word));
        let (past, coming): (Vec<_>, Vec<_>) =
            all.filter(|(given, _)| *given > 0).partition(|it| self.begin_of(it.0) < now_us);
        for (given, word) in past {
            let _another_did = word.compare_exchange(given, 0, ORDER, ORDER);
        }
        let lasts = |given| Duration::from_millis(given & ((1 << STAY_BITS) - 1));
        let long = coming.into_iter().filter(|(given, _)| lasts(*given) >= stay);
        long.min_by_key(|(given, _)| *given)
    }

    fn begin_of(&self, given: u64) -> u64 {
        (given >> STAY_BITS).saturating_add(self.made_us)
    }
}

/// Each word stands for itself.
const ORDER: Ordering = Ordering::Relaxed;

fn read(word: &AtomicU64) -> u64 {
    word.load(ORDER)
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gate({} places)", self.places.words().len())
    }
}

impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.places, &other.places)
    }
}

impl Eq for Gate {}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    /// A gate, and a moment after it was made.
    fn gate(places: usize) -> (Gate, u64) {
        let gate = Gate::new(places).unwrap();
        let now_us = gate.made_us + 5 * MS;
        (gate, now_us)
    }

    #[test]
    fn who_finds_no_place_waits_in_line() {
        let (gate, now_us) = gate(2);
        let stay = Duration::from_micros(100);
        let leaves = |after| gate.take(now_us + after, stay).1 - now_us - after;
        assert_eq!([leaves(0), leaves(0), leaves(0), leaves(10)], [100, 100, 200, 190]);
        // Both are free again.
        assert_eq!([leaves(200), leaves(201), leaves(202)], [100, 100, 198]);
    }

    #[test]
    fn whoever_shares_it_finds_the_same_places() {
        let gate = Gate::new(1).unwrap();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let gate = gate.clone();
                std::thread::spawn(move || {
                    let stay = Duration::from_micros(1);
                    (0..100).map(|_| gate.take(0, stay).1).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut all: Vec<_> = threads.into_iter().flat_map(|it| it.join().unwrap()).collect();
        all.sort_unstable();
        assert!(all.iter().enumerate().all(|(at, end)| *end == at as u64 + 1));
    }

    #[test]
    fn turns_of_those_who_go_are_had_by_those_who_come() {
        let (gate, now_us) = gate(4);
        let stay = Duration::from_millis(20);
        let line: Vec<_> = (0..600).map(|_| gate.take(now_us, stay)).collect();
        assert_eq!(line[599].0, now_us + 149 * 20 * MS);
        // All go after a second, but for the four that are at their places.
        let later_us = now_us + 1000 * MS + 1;
        line.iter().for_each(|(begins, ends)| gate.give_back(*begins, *ends, later_us));
        let next: Vec<_> = (0..600).map(|_| gate.take(later_us, stay)).collect();
        assert!(next.iter().all(|turn| turn.0 >= later_us));
        assert_eq!(next[0].0, now_us + 1020 * MS, "what has begun lasts");
        assert_eq!(next[599].0, next[0].0 + 149 * 20 * MS);
        // None of it is had twice.
        assert!(gate.given.words().iter().all(|word| read(word) == 0));
        assert_eq!(gate.take(later_us, stay).0, next[599].0 + 20 * MS);
    }

    #[test]
    fn a_turn_that_is_too_short_or_past_is_nobodys() {
        let (gate, now_us) = gate(1);
        let (short, long) = (Duration::from_millis(10), Duration::from_millis(30));
        let _first = gate.take(now_us, long);
        let second = gate.take(now_us, short);
        gate.give_back(second.0, second.1, now_us);
        assert_eq!(gate.take(now_us, long).0, now_us + 40 * MS);
        assert_eq!(gate.take(now_us, short), second);
        gate.give_back(second.0, second.1, now_us);
        assert_eq!(gate.take(second.0 + 1, short).0, now_us + 70 * MS);
        assert!(gate.given.words().iter().all(|word| read(word) == 0));
    }

    #[test]
    fn a_turn_that_is_let_go_in_line_is_given_back() {
        let gate = Gate::new(1).unwrap();
        let hour = Duration::from_secs(3600);
        let at_work = gate.enter(hour);
        let in_line = gate.enter(hour);
        let begins_us = in_line.begins_us;
        drop((at_work, in_line));
        let (third, fourth) = (gate.enter(hour), gate.enter(hour));
        assert_eq!(third.begins_us, begins_us);
        assert_eq!(fourth.begins_us, third.ends_us);
    }
}
