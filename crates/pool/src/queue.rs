//! How much of the accept queue counts as demand. A connection that waits only until a worker wakes
//! does not. While children start for a queue, connections that come at an even rate are not
//! counted again at each reading. A burst is counted, and so is a queue that has stopped growing:
//! its clients wait for responses.

use std::collections::VecDeque;
use std::time::Duration;

/// How many readings in a row must show a connection.
const READINGS: usize = 3;

/// The time within which a burst arrives. After children were first started for a queue, its growth
/// counts within this time and the time that a request holds its worker, because an even rate has
/// that much in progress. Growth that lasts longer, until the children serve, only shows the same
/// lack of workers again.
const STEP: Duration = Duration::from_millis(200);

/// So many times the earlier growth within such a time is another burst, whenever it comes.
const BURST_FACTOR: usize = 8;

/// A queue that did not grow in the last part of the time since it was counted, one of so many, has
/// stopped growing, if it is only long because too few workers serve. One that grows at an even
/// rate has grown in that part, however long children take to start.
const QUIET_PART: u32 = 2;

/// The shortest such part.
const MIN_QUIET: Duration = Duration::from_millis(100);

/// A queue that is longer by less than one of so many parts has not grown: so much comes and goes
/// as clients send their next requests. An even rate exceeds that in each of the parts above.
const JITTER: usize = 16;

/// The last readings of the queue, and what children were started for.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    /// The last `READINGS`, and those of a `STEP` and a service time before them.
    last: VecDeque<(Duration, usize)>,
    started: Option<Started>,
}

/// Children are starting for a queue.
#[derive(Debug, Clone, Copy)]
struct Started {
    /// The length that they were started for: what comes within a step and a service time.
    length: usize,
    /// The part of it that came within a step. So much counts again while the children begin to
    /// serve, and the rest once: they take it, and what waits longer was there because they did not
    /// serve yet.
    step: usize,
    /// When the first of them were started, or a later burst came.
    burst_at: Duration,
    /// When a census first showed that none of them was starting any more.
    ready: Option<Duration>,
    growth: Growth,
}

/// How a queue grows beyond its first count.
#[derive(Debug, Clone, Copy)]
struct Growth {
    since: Duration,
    /// The workers that served then.
    serving: usize,
    /// The length that it last grew to, and when.
    high: usize,
    high_at: Duration,
    /// The shortest length since.
    low: usize,
}

impl Queue {
    /// Takes a reading. Returns how much of the queue counts as demand. `starting` children are
    /// starting and `serving` workers serve; `service` is how long requests hold them.
    pub fn take(
        &mut self,
        now: Duration,
        length: usize,
        (starting, serving): (usize, usize),
        service: Duration,
    ) -> usize {
        let whole = STEP + service;
        let standing = self.note(now, length, whole);
        let step = standing.saturating_sub(self.before(STEP));
        let come = standing.saturating_sub(self.before(whole));
        if length == 0 {
            // All of them are being served; connections that come now are others.
            self.started = None;
        }
        let Some(started) = &mut self.started else { return standing };
        if step > started.step.saturating_mul(BURST_FACTOR) {
            started.burst_at = now;
        }
        let passed = now.saturating_sub(started.burst_at);
        if passed <= STEP {
            started.step = started.step.max(step);
        }
        if passed <= whole {
            started.length = started.length.max(come);
        }
        if let Some(stopped) = started.growth.ended(now, length, serving) {
            started.step = started.step.max(stopped);
        }
        if starting > 0 {
            started.ready = None;
        } else if started.ready.is_none_or(|ready| ready == now) {
            // At the tick at which they are first seen to serve, they have had no time to accept.
            started.ready = Some(now);
        } else {
            self.started = None;
            return standing;
        }
        let ready = serving.saturating_sub(started.growth.serving);
        standing.min(started.length.saturating_sub(ready).max(started.step))
    }

    /// Records a reading, and forgets those from before the last `whole` ahead of what stands.
    /// Returns what stands.
    fn note(&mut self, now: Duration, length: usize, whole: Duration) -> usize {
        self.last.push_back((now, length));
        let since = self.standing_since().saturating_sub(whole);
        while self.last.len() > READINGS + 1 && self.last.get(1).is_some_and(|one| one.0 <= since) {
            let _old = self.last.pop_front();
        }
        let newest = self.last.iter().rev().take(READINGS);
        match self.last.len() {
            READINGS.. => newest.map(|(_, length)| *length).min().unwrap_or(0),
            _ => 0,
        }
    }

    /// The time of the oldest of the readings that show what stands.
    fn standing_since(&self) -> Duration {
        self.last.iter().rev().take(READINGS).next_back().map_or(Duration::ZERO, |one| one.0)
    }

    /// The shortest length within such a time before that, and at its beginning.
    fn before(&self, long: Duration) -> usize {
        let since = self.standing_since().saturating_sub(long);
        let older = || self.last.iter().rev().skip(READINGS);
        let within = older().take_while(|(when, _)| *when > since).count();
        older().take(within + 1).map(|(_, length)| *length).min().unwrap_or(0)
    }

    /// Records that children were started, with the queue's part of the demand.
    pub fn note_started(&mut self, now: Duration, length: usize, serving: usize) {
        if self.started.is_none() && length > 0 {
            let growth = Growth::new(now, length, serving);
            let burst_at = now;
            self.started = Some(Started { length, step: length, burst_at, ready: None, growth });
        }
    }
}

impl Growth {
    fn new(now: Duration, length: usize, serving: usize) -> Self {
        Self { since: now, serving, high: length, high_at: now, low: length }
    }

    /// The length of a queue that has stopped growing. A queue that others have begun to serve
    /// stops too, whatever waits in it.
    fn ended(&mut self, now: Duration, length: usize, serving: usize) -> Option<usize> {
        if length > self.high + self.high / JITTER {
            (self.high, self.high_at, self.low) = (length, now, length);
        }
        self.low = self.low.min(length);
        let stood = now.saturating_sub(self.high_at);
        let part = now.saturating_sub(self.since) / QUIET_PART;
        (serving <= self.serving && stood >= part.max(MIN_QUIET)).then_some(self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(number: u32) -> Duration {
        Duration::from_millis(100) * number
    }

    #[test]
    fn only_what_stands_for_three_readings_counts() {
        let mut queue = Queue::default();
        let seen: Vec<_> = [9, 0, 5, 6, 7, 8, 0]
            .iter()
            .zip(0..)
            .map(|(&length, number)| queue.take(tick(number), length, (0, 1), Duration::ZERO))
            .collect();
        assert_eq!(seen, [0, 0, 0, 0, 5, 6, 0]);
    }

    /// A queue of ten, for which children start at the third tick.
    fn started() -> Queue {
        let mut queue = Queue::default();
        for number in 0..3 {
            let _warm = queue.take(tick(number), 10, (0, 1), Duration::ZERO);
        }
        queue.note_started(tick(2), 10, 1);
        queue
    }

    /// What counts of these later lengths, while a child starts.
    fn while_starting(queue: &mut Queue, lengths: &[usize]) -> Vec<usize> {
        let ticks = lengths.iter().zip(3..);
        ticks
            .map(|(&length, number)| queue.take(tick(number), length, (1, 1), Duration::ZERO))
            .collect()
    }

    #[test]
    fn what_children_start_for_is_not_counted_again_until_a_tick_after_they_are_ready() {
        let mut queue = started();
        let seen = while_starting(&mut queue, &[13, 16, 19, 22, 25, 28, 31]);
        assert_eq!(seen, [10; 7]);
        let ready = [(10, 34), (11, 37)]
            .map(|(number, length)| queue.take(tick(number), length, (0, 2), Duration::ZERO));
        assert_eq!(ready, [10, 31]);
    }

    #[test]
    fn a_burst_is_counted_whole_whenever_it_comes() {
        let burst = [12, 11, 12, 150, 270, 270, 270];
        let seen = while_starting(&mut started(), &burst);
        assert_eq!(seen[5..], [139, 258]);
        // Others may have begun to serve meanwhile.
        let mut queue = started();
        let late = burst
            .iter()
            .zip(3..)
            .map(|(&length, number)| queue.take(tick(number), length, (1, 9), Duration::ZERO));
        assert_eq!(late.collect::<Vec<_>>(), [10, 10, 10, 10, 10, 139, 258]);
    }

    #[test]
    fn a_queue_that_has_stopped_growing_is_counted_whole() {
        let grows = [14, 18, 22, 26, 30, 34, 34, 36, 33, 34, 35, 34, 34];
        let seen = while_starting(&mut started(), &grows);
        assert_eq!(seen, [10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 33, 33]);
    }

    #[test]
    fn what_others_have_begun_to_serve_has_not_stopped_growing() {
        let mut queue = started();
        let seen: Vec<_> =
            (3..20).map(|number| queue.take(tick(number), 18, (1, 2), Duration::ZERO)).collect();
        assert_eq!(seen, [10; 17]);
    }

    #[test]
    fn a_queue_that_was_empty_is_another_one() {
        let seen = while_starting(&mut started(), &[3, 0, 3, 40, 41, 42]);
        assert_eq!(seen, [3, 0, 0, 0, 3, 40]);
    }
}
