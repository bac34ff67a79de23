//! The largest demand of a time window of up to an hour, without keeping every reading.

use std::collections::VecDeque;
use std::time::Duration;

/// The longest window.
pub const REACH: Duration = Duration::from_secs(3600);

/// The readings that no later one exceeds, oldest and largest first. Readings of one second share
/// an entry: an hour needs at most 3,600 entries, and a peak counts for up to a second too long.
#[derive(Debug, Clone, Default)]
pub struct Peak {
    largest: VecDeque<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    second: u64,
    demand: usize,
}

impl Peak {
    /// Takes a reading.
    pub fn take(&mut self, now: Duration, demand: usize) {
        let mut entry = Entry { second: now.as_secs(), demand };
        while let Some(last) = self.largest.back() {
            if last.second == entry.second {
                entry.demand = entry.demand.max(last.demand);
            } else if last.demand > entry.demand {
                break;
            }
            let _smaller = self.largest.pop_back();
        }
        self.largest.push_back(entry);
        let oldest = now.saturating_sub(REACH).as_secs();
        while self.largest.front().is_some_and(|entry| entry.second < oldest) {
            let _old = self.largest.pop_front();
        }
    }

    /// The largest reading of the last `window`; 0 if there was none.
    #[must_use]
    pub fn over(&self, now: Duration, window: Duration) -> usize {
        let oldest = now.saturating_sub(window).as_secs();
        let first = self.largest.partition_point(|entry| entry.second < oldest);
        self.largest.get(first).map_or(0, |entry| entry.demand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_peak_lasts_as_long_as_the_window() {
        let mut peak = Peak::default();
        for (when, demand) in [(0.0, 10), (5.0, 90), (10.0, 20), (40.0, 30), (70.0, 5)] {
            peak.take(at(when), demand);
        }
        let over = |window: f64| peak.over(at(70.0), at(window));
        assert_eq!(
            [over(1.0), over(29.0), over(31.0), over(66.0), over(3600.0)],
            [5, 5, 30, 90, 90]
        );
        assert_eq!(Peak::default().over(at(1.0), at(1.0)), 0);
    }

    /// Compared with the simple way, over readings of every shape: never less than the true peak,
    /// and never more than that of a window that is longer by a second.
    #[test]
    fn it_is_the_largest_reading_but_for_a_second() {
        let mut seed = 7_u64;
        let mut peak = Peak::default();
        let mut all = Vec::new();
        for tick in 0..5000_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let demand = (seed >> 33) as usize % (1 + (tick as usize / 100) % 40);
            let now = at(f64::from(tick) * 0.1);
            peak.take(now, demand);
            all.push((now, demand));
            for window in [at(0.5), at(30.0), at(400.0)] {
                let truth = |window: Duration| {
                    let young = all.iter().rev().take_while(|(when, _)| now - *when <= window);
                    young.map(|(_, demand)| *demand).max().unwrap_or(0)
                };
                let said = peak.over(now, window);
                assert!(said >= truth(window), "{said} < {}", truth(window));
                assert!(said <= truth(window + at(1.0)), "{said} > {}", truth(window + at(1.0)));
            }
        }
        assert!(peak.largest.len() < 1000);
    }
}
