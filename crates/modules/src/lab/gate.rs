//! A gate with few places, as an application has that works on so many requests at once: when a
//! request comes and how long it stays comes in, how long it takes until it leaves goes out. The
//! places are shared by all children, and requests leave in the order in which they came.

use evenkeel_sys::memory::Shared;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The gate: for each place when it will be free, in microseconds of the monotonic clock.
#[derive(Clone)]
pub struct Gate(Arc<Shared>);

impl Gate {
    /// A gate with this many places, all of them free.
    ///
    /// # Errors
    /// The kernel denies the memory.
    pub fn new(places: usize) -> io::Result<Self> {
        Ok(Self(Arc::new(Shared::new(places)?)))
    }

    /// Takes the place that is free first for `stay`, and tells how long that is from now, the time
    /// in line included. A client that goes meanwhile has its turn all the same.
    #[must_use]
    pub fn enter(&self, now_us: u64, stay: Duration) -> Duration {
        let stay_us = u64::try_from(stay.as_micros()).unwrap_or(u64::MAX);
        loop {
            let Some(place) = self.0.words().iter().min_by_key(|place| read(place)) else {
                return stay;
            };
            let before_us = read(place);
            let leaves_us = before_us.max(now_us).saturating_add(stay_us);
            let taken =
                place.compare_exchange(before_us, leaves_us, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                return Duration::from_micros(leaves_us.saturating_sub(now_us));
            }
        }
    }
}

fn read(place: &AtomicU64) -> u64 {
    place.load(Ordering::Relaxed)
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gate({} places)", self.0.words().len())
    }
}

impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Gate {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_place_waits_in_line() {
        let gate = Gate::new(2).unwrap();
        let stay = Duration::from_micros(100);
        let leaves = |now_us| gate.enter(now_us, stay).as_micros();
        assert_eq!([leaves(1000), leaves(1000), leaves(1000), leaves(1010)], [100, 100, 200, 190]);
        // Both are free again.
        assert_eq!([leaves(1200), leaves(1201), leaves(1202)], [100, 100, 198]);
    }

    #[test]
    fn whoever_shares_it_finds_the_same_places() {
        let gate = Gate::new(1).unwrap();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let gate = gate.clone();
                std::thread::spawn(move || {
                    (0..100).map(|_| gate.enter(0, Duration::from_micros(1))).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut all: Vec<_> = threads.into_iter().flat_map(|it| it.join().unwrap()).collect();
        all.sort_unstable();
        assert!(all.iter().enumerate().all(|(at, end)| end.as_micros() == at as u128 + 1));
    }
}
