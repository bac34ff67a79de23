//! Load shedding: when work that waits for a worker is turned away (CoDel: Nichols and Jacobson,
//! Controlling Queue Delay, 2012). A queue in which even the shortest wait of an interval is too
//! long absorbs no burst: it is a standing queue, in which all work waits in vain. While that is
//! so, work that has waited for twice the target is turned away, and the newest is served first,
//! since its client is still there.

use std::time::Duration;

/// A queue of waiting work, and what is remembered of it.
#[derive(Debug, Clone)]
pub struct Shedding {
    target: Duration,
    /// When the current interval began.
    since: Option<Duration>,
    /// The shortest wait of the oldest work, in the current interval.
    least: Option<Duration>,
    overloaded: bool,
}

impl Shedding {
    /// A queue in which waits are too long for all of this time is overloaded. It should be checked
    /// as often if nothing else happens.
    pub const INTERVAL: Duration = Duration::from_millis(100);

    /// For a queue in which no work should wait for longer than `target` for long.
    #[must_use]
    pub fn new(target: Duration) -> Self {
        Self { target, since: None, least: None, overloaded: false }
    }

    /// Records how long the oldest work has waited; zero if the queue is empty. It is called
    /// whenever work is queued or taken.
    pub fn note(&mut self, now: Duration, oldest: Duration) {
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) >= Self::INTERVAL {
            self.overloaded = self.least.is_some_and(|least| least > self.target);
            (self.since, self.least) = (Some(now), None);
        }
        if oldest.is_zero() {
            self.overloaded = false;
        }
        self.least = Some(self.least.map_or(oldest, |least| least.min(oldest)));
    }

    /// Whether the newest work is served first.
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        self.overloaded
    }

    /// Whether work that has waited for so long is turned away.
    #[must_use]
    pub fn sheds(&self, waited: Duration) -> bool {
        self.overloaded && waited >= self.target.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_line_that_stands_for_an_interval_is_shed_until_it_is_empty() {
        let mut shedding = Shedding::new(ms(20));
        for now in (0..=90).step_by(10) {
            shedding.note(ms(now), ms(30 + now));
            assert!(!shedding.sheds(ms(1_000)), "at {now} it may still be a burst");
        }
        shedding.note(ms(100), ms(130));
        assert!(shedding.sheds(ms(40)) && !shedding.sheds(ms(39)) && shedding.is_overloaded());
        shedding.note(ms(110), Duration::ZERO);
        assert!(!shedding.sheds(ms(1_000)) && !shedding.is_overloaded());
    }

    #[test]
    fn one_short_wait_in_each_interval_is_a_burst() {
        let mut shedding = Shedding::new(ms(20));
        for now in 0..1_000 {
            shedding.note(ms(now), ms(if now % 90 == 0 { 15 } else { 500 }));
            assert!(!shedding.is_overloaded(), "at {now}");
        }
    }

    /// A server that serves one request each millisecond, and its load. Returns how many were
    /// served, how many were shed, and the longest wait of the served.
    fn run(arrivals: &[u8], target: u64) -> (usize, usize, u64) {
        let mut shedding = Shedding::new(ms(target));
        let mut line: VecDeque<u64> = VecDeque::new();
        let (mut served, mut shed, mut longest) = (0, 0, 0);
        for (now, count) in (1..).zip(arrivals) {
            line.extend((0..*count).map(|_| now));
            let oldest = |line: &VecDeque<u64>| line.front().map_or(0, |since| now - since);
            shedding.note(ms(now), ms(oldest(&line)));
            while !line.is_empty() && shedding.sheds(ms(oldest(&line))) {
                line.pop_front();
                shed += 1;
            }
            let next = if shedding.is_overloaded() { line.pop_back() } else { line.pop_front() };
            if let Some(since) = next {
                (served, longest) = (served + 1, longest.max(now - since));
            }
        }
        (served, shed, longest)
    }

    proptest! {
        /// What could be served in time is served: nothing is shed of a load that the server bears,
        /// and of a larger load as much is served as without shedding.
        #[test]
        fn nothing_is_lost_to_shedding(counts in prop::collection::vec(0..4_u8, 2_000)) {
            let (served, shed, _) = run(&counts, 50);
            let all: usize = counts.iter().map(|count| usize::from(*count)).sum();
            let mut left = 0;
            let mut able = 0;
            let mut deepest = 0;
            for count in &counts {
                left += usize::from(*count);
                deepest = deepest.max(left);
                let takes = usize::from(left > 0);
                (able, left) = (able + takes, left - takes);
            }
            prop_assert!(shed <= all);
            prop_assert!(deepest > 50 || shed == 0);
            prop_assert!(served + 101 >= able, "{served} of {able} were served");
        }
    }

    #[test]
    fn ten_times_the_load_is_served_at_full_speed_and_soon() {
        let (served, shed, longest) = run(&[10; 5_000], 20);
        assert!(served >= 4_990 && shed > 40_000, "{served} served, {shed} shed");
        // Two intervals show that the queue is standing: the first had a moment without a wait.
        assert!(longest <= 240, "{longest} ms");
    }
}
