//! How long a request holds its worker, as the law can tell it: by Little's law, from the workers
//! that are busy and the requests that are answered. Readings come in, a time goes out.

use std::time::Duration;

/// How long it remembers, in seconds: what was longer ago counts a third, and less.
const MEMORY_S: f64 = 10.0;

/// What is remembered of the last while.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// The time that workers were busy, in seconds.
    busy_s: f64,
    /// Requests that were answered meanwhile.
    ended: f64,
    last: Option<Reading>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    when: Duration,
    busy: usize,
    answered: u64,
}

impl Pace {
    /// Takes a reading: busy workers, and all requests that were answered until now. Gives the
    /// least time that a request seems to hold its worker: those in progress count as if they
    /// ended now. Where none has ended that is how long they have been at it.
    pub fn take(&mut self, when: Duration, busy: usize, answered: u64) -> Duration {
        if let Some(last) = self.last {
            let passed_s = when.saturating_sub(last.when).as_secs_f64();
            let kept = (-passed_s / MEMORY_S).exp();
            // As much as there is of a steady stream in so long, when all before it fades.
            let passed_s = MEMORY_S * (1.0 - kept);
            self.busy_s = self.busy_s * kept + last.busy.min(busy) as f64 * passed_s;
            let ended = answered.saturating_sub(last.answered);
            self.ended = self.ended * kept + ended as f64;
        }
        self.last = Some(Reading { when, busy, answered });
        let ended = self.ended + busy as f64;
        // Who was busy and is gone without an answer is in the time and not in the number.
        let held_s = (self.busy_s / ended.max(1.0)).min(MEMORY_S);
        Duration::from_secs_f64(if ended > 0.0 { held_s } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it says after `seconds` of so many busy workers and answers a second.
    fn after(pace: &mut Pace, from_s: f64, seconds: f64, busy: usize, a_second: f64) -> f64 {
        let mut said = Duration::ZERO;
        let ticks = (seconds * 10.0) as u32;
        let answered = pace.last.map_or(0, |last| last.answered);
        for tick in 1..=ticks {
            let passed_s = f64::from(tick) / 10.0;
            let ended = answered + (passed_s * a_second) as u64;
            said = pace.take(Duration::from_secs_f64(from_s + passed_s), busy, ended);
        }
        said.as_secs_f64()
    }

    #[test]
    fn it_is_littles_law_and_no_more_than_that() {
        for (busy, a_second) in [(10, 50.0), (10, 5000.0), (300, 375.0), (3, 3.0)] {
            let truth = busy as f64 / a_second;
            let said = after(&mut Pace::default(), 0.0, 30.0, busy, a_second);
            assert!(said <= truth * 1.01 && said >= truth * 0.85, "{said} {truth}");
        }
    }

    #[test]
    fn requests_of_which_none_has_ended_take_as_long_as_they_have_taken() {
        let said = after(&mut Pace::default(), 0.0, 1.1, 7, 0.0);
        assert!((0.9..=1.1).contains(&said), "{said}");
        assert_eq!(after(&mut Pace::default(), 0.0, 9.0, 0, 0.0), 0.0);
    }

    #[test]
    fn connections_that_go_without_an_answer_make_no_long_request() {
        let mut pace = Pace::default();
        let _silent = after(&mut pace, 0.0, 20.0, 300, 0.0);
        let said = after(&mut pace, 20.0, 0.1, 1, 0.0);
        assert!(said <= MEMORY_S, "{said}");
    }

    #[test]
    fn work_of_another_kind_is_learned_and_a_lower_total_is_no_answer() {
        let mut pace = Pace::default();
        let _slow = after(&mut pace, 0.0, 60.0, 10, 10.0);
        let said = after(&mut pace, 60.0, 20.0, 10, 100.0);
        assert!(said < 0.2, "{said}");
        let before = pace.ended;
        let _less = pace.take(Duration::from_secs(80), 10, 0);
        assert_eq!(pace.ended, before);
    }
}
