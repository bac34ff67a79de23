//! An estimate of how long a request holds its worker: by Little's law, from the busy workers and
//! the requests that are answered.

use std::time::Duration;

/// The time constant of the average, in seconds: older readings count a third or less.
const DECAY_S: f64 = 10.0;

/// The decaying sums behind the estimate.
#[derive(Debug, Clone, Default)]
pub struct ServiceTime {
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

impl ServiceTime {
    /// Takes a reading of the busy workers and of all requests answered so far. Returns the least
    /// time that a request holds its worker: requests in progress count as if they ended now. If
    /// none has ended, it is how long they have been in progress.
    pub fn take(&mut self, when: Duration, busy: usize, answered: u64) -> Duration {
        if let Some(last) = self.last {
            let passed_s = when.saturating_sub(last.when).as_secs_f64();
            let kept = (-passed_s / DECAY_S).exp();
            // The weight of a steady stream in this time, when everything before decays.
            let passed_s = DECAY_S * (1.0 - kept);
            self.busy_s = self.busy_s * kept + last.busy.min(busy) as f64 * passed_s;
            let ended = answered.saturating_sub(last.answered);
            self.ended = self.ended * kept + ended as f64;
        }
        self.last = Some(Reading { when, busy, answered });
        let ended = self.ended + busy as f64;
        // A worker that was busy and became idle without a response counts in the time, not in the
        // number.
        let held_s = (self.busy_s / ended.max(1.0)).min(DECAY_S);
        Duration::from_secs_f64(if ended > 0.0 { held_s } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The estimate after `seconds` with so many busy workers and responses a second.
    fn after(
        service_time: &mut ServiceTime,
        from_s: f64,
        seconds: f64,
        busy: usize,
        a_second: f64,
    ) -> f64 {
        let mut said = Duration::ZERO;
        let ticks = (seconds * 10.0) as u32;
        let answered = service_time.last.map_or(0, |last| last.answered);
        for tick in 1..=ticks {
            let passed_s = f64::from(tick) / 10.0;
            let ended = answered + (passed_s * a_second) as u64;
            said = service_time.take(Duration::from_secs_f64(from_s + passed_s), busy, ended);
        }
        said.as_secs_f64()
    }

    #[test]
    fn it_is_littles_law_and_no_more_than_that() {
        for (busy, a_second) in [(10, 50.0), (10, 5000.0), (300, 375.0), (3, 3.0)] {
            let truth = busy as f64 / a_second;
            let said = after(&mut ServiceTime::default(), 0.0, 30.0, busy, a_second);
            assert!(said <= truth * 1.01 && said >= truth * 0.85, "{said} {truth}");
        }
    }

    #[test]
    fn requests_of_which_none_has_ended_take_as_long_as_they_have_taken() {
        let said = after(&mut ServiceTime::default(), 0.0, 1.1, 7, 0.0);
        assert!((0.9..=1.1).contains(&said), "{said}");
        assert_eq!(after(&mut ServiceTime::default(), 0.0, 9.0, 0, 0.0), 0.0);
    }

    #[test]
    fn connections_that_go_without_an_answer_make_no_long_request() {
        let mut service_time = ServiceTime::default();
        let _silent = after(&mut service_time, 0.0, 20.0, 300, 0.0);
        let said = after(&mut service_time, 20.0, 0.1, 1, 0.0);
        assert!(said <= DECAY_S, "{said}");
    }

    #[test]
    fn work_of_another_kind_is_learned_and_a_lower_total_is_no_answer() {
        let mut service_time = ServiceTime::default();
        let _slow = after(&mut service_time, 0.0, 60.0, 10, 10.0);
        let said = after(&mut service_time, 60.0, 20.0, 10, 100.0);
        assert!(said < 0.2, "{said}");
        let before = service_time.ended;
        let _less = service_time.take(Duration::from_secs(80), 10, 0);
        assert_eq!(service_time.ended, before);
    }
}
