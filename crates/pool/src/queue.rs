//! What of the accept queue is demand. A connection that stands in it for a moment while a worker
//! wakes is none; and what children were started for is not counted a second time while they start.

use std::time::Duration;

/// Readings in a row in which a connection must stand in the queue.
const READINGS: usize = 3;

/// For this long after children were started for a queue, it may still grow: clients that come all
/// at once do not come within one reading. After that, and until the children are ready, growth
/// only tells of the same lack of workers once more.
const SETTLE: Duration = Duration::from_millis(200);

/// The last readings of the queue, and what children were started for.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    last: [usize; READINGS],
    next: usize,
    answered: Option<Answered>,
}

/// Children are starting for a queue.
#[derive(Debug, Clone, Copy)]
struct Answered {
    /// The length that they were started for.
    length: usize,
    /// When the first of them were.
    when: Duration,
    /// When a census first showed that none of them was starting any more.
    ready: Option<Duration>,
}

impl Queue {
    /// Takes a reading; gives what stands in the queue and counts as demand. `starting` says
    /// whether a child is still starting.
    pub fn take(&mut self, now: Duration, length: usize, starting: bool) -> usize {
        if let Some(slot) = self.last.get_mut(self.next) {
            *slot = length;
        }
        self.next = (self.next + 1) % READINGS;
        let standing = self.last.iter().copied().min().unwrap_or(0);
        match &mut self.answered {
            None => standing,
            Some(answered) if now.saturating_sub(answered.when) <= SETTLE => standing,
            Some(answered) if starting => {
                answered.ready = None;
                standing.min(answered.length)
            }
            // The tick in which they are first seen ready: they had no time to take the queue yet.
            Some(answered) if answered.ready.is_none_or(|ready| ready == now) => {
                answered.ready = Some(now);
                standing.min(answered.length)
            }
            Some(_) => {
                self.answered = None;
                standing
            }
        }
    }

    /// Children were started, and this was the queue's part in the demand.
    pub fn answer(&mut self, now: Duration, length: usize) {
        match &mut self.answered {
            Some(answered) => answered.length = answered.length.max(length),
            None if length > 0 => {
                self.answered = Some(Answered { length, when: now, ready: None });
            }
            None => {}
        }
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
            .map(|(&length, number)| queue.take(tick(number), length, false))
            .collect();
        assert_eq!(seen, [0, 0, 0, 0, 5, 6, 0]);
    }

    #[test]
    fn what_children_start_for_is_not_counted_again_until_a_tick_after_they_are_ready() {
        let mut queue = Queue::default();
        for number in 0..3 {
            let _warm = queue.take(tick(number), 10, false);
        }
        queue.answer(tick(3), 10);
        let readings =
            [(40, true), (40, true), (40, true), (50, true), (60, true), (70, false), (80, false)];
        let seen: Vec<_> = readings
            .iter()
            .zip(4..)
            .map(|(&(length, starting), number)| queue.take(tick(number), length, starting))
            .collect();
        assert_eq!(seen, [10, 10, 10, 10, 10, 10, 60]);
    }

    #[test]
    fn a_queue_may_grow_for_a_moment_after_the_first_children_were_started() {
        let mut queue = Queue::default();
        for number in 0..3 {
            let _warm = queue.take(tick(number), 10, false);
        }
        queue.answer(tick(2), 10);
        queue.answer(tick(4), 40);
        let seen = (3..8).map(|number| queue.take(tick(number), 70, true)).collect::<Vec<_>>();
        assert_eq!(seen, [10, 10, 40, 40, 40]);
    }
}
