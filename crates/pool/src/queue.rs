//! What of the accept queue is demand. A connection that stands in it for a moment while a worker
//! wakes is none; and while children start for a queue, what comes at an even rate is not counted
//! anew at each reading. What comes all at once is, and so is a queue that has stopped growing:
//! clients that wait for their answers come, and stand.

use std::collections::VecDeque;
use std::time::Duration;

/// Readings in a row in which a connection must stand in the queue.
const READINGS: usize = 3;

/// Clients that come all at once come within this. What a queue grows by in such a time, and in
/// that for which a request holds its worker, is counted after children were first started for it:
/// what comes within that time is what an even rate has in progress. Growth that lasts longer,
/// until they are ready, only tells of the same lack of workers once more.
const STEP: Duration = Duration::from_millis(200);

/// So many times what was counted before, within such a time, is another crowd, whenever it comes.
const CROWD: usize = 8;

/// A queue that has not grown in the last part of so many, of the time since it was counted, grows
/// no more, if it is only long because too few serve. What comes at an even rate has grown in it,
/// however long children take to start.
const PART: u32 = 2;

/// And in so much of it at least.
const LEAST: Duration = Duration::from_millis(100);

/// A queue has not grown that is longer by less than one part of so many: this much comes and goes
/// where clients ask again. What comes at an even rate grows by more in each of the parts above.
const TREMBLE: usize = 16;

/// The last readings of the queue, and what children were started for.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    /// The last `READINGS`, and those of a `STEP` and a request's time before them.
    last: VecDeque<(Duration, usize)>,
    answered: Option<Answered>,
}

/// Children are starting for a queue.
#[derive(Debug, Clone, Copy)]
struct Answered {
    /// The length that they were started for: what comes within a step and a request's time.
    length: usize,
    /// The part of it that came within a step. So much counts anew while they become ready, and
    /// the rest once: they take it, and what is left longer was there because they were not.
    step: usize,
    /// When the first of them were, or a crowd came since.
    crowd_at: Duration,
    /// When a census first showed that none of them was starting any more.
    ready: Option<Duration>,
    growth: Growth,
}

/// How a queue grows beyond what was counted at once.
#[derive(Debug, Clone, Copy)]
struct Growth {
    since: Duration,
    /// The workers that served then.
    serving: usize,
    /// The length that it last grew to, and when.
    high: usize,
    high_at: Duration,
    /// The least that stood since.
    low: usize,
}

impl Queue {
    /// Takes a reading; gives what stands in the queue and counts as demand. So many children are
    /// starting and so many workers serve; `service` is how long requests hold them.
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
            // All of them are served; what comes now are others.
            self.answered = None;
        }
        let Some(answered) = &mut self.answered else { return standing };
        if step > answered.step.saturating_mul(CROWD) {
            answered.crowd_at = now;
        }
        let passed = now.saturating_sub(answered.crowd_at);
        if passed <= STEP {
            answered.step = answered.step.max(step);
        }
        if passed <= whole {
            answered.length = answered.length.max(come);
        }
        if let Some(stopped) = answered.growth.ended(now, length, serving) {
            answered.step = answered.step.max(stopped);
        }
        if starting > 0 {
            answered.ready = None;
        } else if answered.ready.is_none_or(|ready| ready == now) {
            // The tick in which they are first seen ready: they had no time to take the queue yet.
            answered.ready = Some(now);
        } else {
            self.answered = None;
            return standing;
        }
        let ready = serving.saturating_sub(answered.growth.serving);
        standing.min(answered.length.saturating_sub(ready).max(answered.step))
    }

    /// Notes a reading, and forgets those that are not of the last `whole` before it stood; gives
    /// what stands.
    fn note(&mut self, now: Duration, length: usize, whole: Duration) -> usize {
        self.last.push_back((now, length));
        let since = self.stands_since().saturating_sub(whole);
        while self.last.len() > READINGS + 1 && self.last.get(1).is_some_and(|one| one.0 <= since) {
            let _old = self.last.pop_front();
        }
        let newest = self.last.iter().rev().take(READINGS);
        match self.last.len() {
            READINGS.. => newest.map(|(_, length)| *length).min().unwrap_or(0),
            _ => 0,
        }
    }

    /// When the oldest was taken of the readings that tell what stands.
    fn stands_since(&self) -> Duration {
        self.last.iter().rev().take(READINGS).next_back().map_or(Duration::ZERO, |one| one.0)
    }

    /// The least that was there within such a time before that, and at its beginning.
    fn before(&self, long: Duration) -> usize {
        let since = self.stands_since().saturating_sub(long);
        let older = || self.last.iter().rev().skip(READINGS);
        let within = older().take_while(|(when, _)| *when > since).count();
        older().take(within + 1).map(|(_, length)| *length).min().unwrap_or(0)
    }

    /// Children were started, and this was the queue's part in the demand.
    pub fn answer(&mut self, now: Duration, length: usize, serving: usize) {
        if self.answered.is_none() && length > 0 {
            let growth = Growth::new(now, length, serving);
            let crowd_at = now;
            self.answered = Some(Answered { length, step: length, crowd_at, ready: None, growth });
        }
    }
}

impl Growth {
    fn new(now: Duration, length: usize, serving: usize) -> Self {
        Self { since: now, serving, high: length, high_at: now, low: length }
    }

    /// The length of a queue that has stopped growing. One that others have begun to serve since
    /// stops too, whatever stands in it.
    fn ended(&mut self, now: Duration, length: usize, serving: usize) -> Option<usize> {
        if length > self.high + self.high / TREMBLE {
            (self.high, self.high_at, self.low) = (length, now, length);
        }
        self.low = self.low.min(length);
        let stood = now.saturating_sub(self.high_at);
        let part = now.saturating_sub(self.since) / PART;
        (serving <= self.serving && stood >= part.max(LEAST)).then_some(self.low)
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
    fn answered() -> Queue {
        let mut queue = Queue::default();
        for number in 0..3 {
            let _warm = queue.take(tick(number), 10, (0, 1), Duration::ZERO);
        }
        queue.answer(tick(2), 10, 1);
        queue
    }

    /// What counts of these lengths after it, while a child starts.
    fn while_starting(queue: &mut Queue, lengths: &[usize]) -> Vec<usize> {
        let ticks = lengths.iter().zip(3..);
        ticks
            .map(|(&length, number)| queue.take(tick(number), length, (1, 1), Duration::ZERO))
            .collect()
    }

    #[test]
    fn what_children_start_for_is_not_counted_again_until_a_tick_after_they_are_ready() {
        let mut queue = answered();
        let seen = while_starting(&mut queue, &[13, 16, 19, 22, 25, 28, 31]);
        assert_eq!(seen, [10; 7]);
        let ready = [(10, 34), (11, 37)]
            .map(|(number, length)| queue.take(tick(number), length, (0, 2), Duration::ZERO));
        assert_eq!(ready, [10, 31]);
    }

    #[test]
    fn a_crowd_is_counted_whole_whenever_it_comes() {
        let crowd = [12, 11, 12, 150, 270, 270, 270];
        let seen = while_starting(&mut answered(), &crowd);
        assert_eq!(seen[5..], [139, 258]);
        // Others may have become ready meanwhile.
        let mut queue = answered();
        let late = crowd
            .iter()
            .zip(3..)
            .map(|(&length, number)| queue.take(tick(number), length, (1, 9), Duration::ZERO));
        assert_eq!(late.collect::<Vec<_>>(), [10, 10, 10, 10, 10, 139, 258]);
    }

    #[test]
    fn a_queue_that_has_stopped_growing_is_counted_whole() {
        let grows = [14, 18, 22, 26, 30, 34, 34, 36, 33, 34, 35, 34, 34];
        let seen = while_starting(&mut answered(), &grows);
        assert_eq!(seen, [10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 33, 33]);
    }

    #[test]
    fn what_others_have_begun_to_serve_has_not_stopped_growing() {
        let mut queue = answered();
        let seen: Vec<_> =
            (3..20).map(|number| queue.take(tick(number), 18, (1, 2), Duration::ZERO)).collect();
        assert_eq!(seen, [10; 17]);
    }

    #[test]
    fn a_queue_that_was_empty_is_another_one() {
        let seen = while_starting(&mut answered(), &[3, 0, 3, 40, 41, 42]);
        assert_eq!(seen, [3, 0, 0, 0, 3, 40]);
    }
}
