//! How long a client may keep its worker waiting while others wait for a worker. One that idles
//! makes room first; one that has not shown that it moves is given little where clients like it
//! are a crowd that holds most of the workers, so that a thousand of them do not cost a newcomer
//! more than a second. What workers wait for comes in, times go out.

use super::{IDLE_US, STALL_US};
use evenkeel_scoreboard::WaitReason;

/// How long a client is waited for that has only had its system filled: one that reads 30 kB/s over
/// loopback shows for 2.2 s that it takes nothing.
const FULL_US: u64 = 3_000_000;

/// The least time that a client is given where many are in the way: a packet that comes, and one
/// that was lost and comes again after 200 ms.
const CROWD_US: u64 = 220_000;

/// Within about this time the last who waits is to get his worker, as far as [`CROWD_US`] allows.
const LAST_US: u64 = 300_000;

/// So many clients that keep workers waiting are no crowd.
const FEW: usize = 8;

/// How a worker is asked to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Press {
    /// Others wait.
    Hurry = 1,
    /// The same, and clients like its own are a crowd.
    Crowd,
}

impl Press {
    /// How long who is asked so waits for its client, in microseconds, at the least.
    pub(crate) const fn patience_us(self, wait: WaitReason) -> u64 {
        match (self, wait) {
            (
                Self::Crowd,
                WaitReason::SlowRequest | WaitReason::SmallWindow | WaitReason::LargeWindow,
            ) => CROWD_US,
            _ => patience_us(wait),
        }
    }
}

const fn patience_us(wait: WaitReason) -> u64 {
    match wait {
        WaitReason::Idle => IDLE_US,
        WaitReason::SlowRequest | WaitReason::SmallWindow | WaitReason::SlowReader => STALL_US,
        WaitReason::LargeWindow => FULL_US,
    }
}

/// Who is in the way of those who wait: of each kind so many that it is a crowd, or not.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    kinds: Vec<WaitReason>,
    short_us: u64,
}

impl Crowd {
    /// The crowd among so many workers and what they wait for, each with since when in
    /// microseconds of the monotonic clock, while so many connections wait. `children` have as many
    /// each.
    pub(crate) fn of(
        waits: impl Iterator<Item = (WaitReason, u64)>,
        workers: usize,
        queue: usize,
        children: usize,
        now_us: u64,
    ) -> Self {
        let [mut slow, mut shut, mut full, mut behind] = [0_usize; 4];
        for (wait, _) in waits.filter(|(_, since_us)| *since_us <= now_us) {
            match wait {
                WaitReason::Idle => {}
                WaitReason::SlowRequest => slow += 1,
                WaitReason::SmallWindow => shut += 1,
                WaitReason::LargeWindow => full += 1,
                WaitReason::SlowReader => behind += 1,
            }
        }
        // One kind alone may be few beside many of another, which are then those to press.
        let is_many = |count: &usize| {
            count.saturating_mul(children.max(1)) > FEW && count.saturating_mul(4) >= workers
        };
        if (slow + shut + full + behind).saturating_mul(2) < workers {
            return Self::default();
        }
        let kinds = [
            (slow, WaitReason::SlowRequest),
            (shut, WaitReason::SmallWindow),
            (full, WaitReason::LargeWindow),
        ];
        let kinds = kinds.into_iter().filter(|(count, _)| is_many(count)).map(|(_, wait)| wait);
        let in_all = workers.saturating_add(queue).max(1) as u64;
        let short_us = (LAST_US.saturating_mul(workers as u64) / in_all).max(CROWD_US);
        Self { kinds: kinds.collect(), short_us }
    }

    /// How a worker is asked to make room that waits for this since then; none while it is not.
    pub(crate) fn press(&self, wait: WaitReason, since_us: u64, now_us: u64) -> Option<Press> {
        let is_crowd = self.kinds.contains(&wait);
        let patience_us = if is_crowd { self.short_us } else { patience_us(wait) };
        let press = if is_crowd { Press::Crowd } else { Press::Hurry };
        (now_us.saturating_sub(since_us) >= patience_us).then_some(press)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn crowd(
        counts: &[(usize, WaitReason)],
        workers: usize,
        queue: usize,
        children: usize,
    ) -> Crowd {
        let waits = counts.iter().flat_map(|(count, wait)| vec![(*wait, S); *count]);
        Crowd::of(waits, workers, queue, children, S)
    }

    #[test]
    fn a_thousand_that_stand_still_cost_a_newcomer_less_than_a_second() {
        for (workers, children) in [(256, 1), (25, 16)] {
            let (mut queue, mut waited_us) = (1_000 / children - workers, 0);
            while queue > 0 {
                let crowd = crowd(&[(workers, WaitReason::LargeWindow)], workers, queue, children);
                let patience = (0..)
                    .find(|us| crowd.press(WaitReason::LargeWindow, S, S + us * 1_000).is_some());
                waited_us += patience.unwrap() * 1_000;
                queue = queue.saturating_sub(workers);
            }
            // The rest of the second is for the pool to grow, and for who looks.
            assert!((CROWD_US..=STALL_US * 4 / 5).contains(&waited_us), "{workers}: {waited_us}");
        }
    }

    #[test]
    fn few_slow_clients_or_slow_clients_among_many_workers_are_no_crowd() {
        let kinds = |count, workers, queue| {
            crowd(&[(count, WaitReason::SlowRequest)], workers, queue, 1).kinds
        };
        assert!(kinds(8, 8, 1_000).is_empty() && kinds(100, 256, 1_000).is_empty());
        assert_eq!(kinds(9, 9, 0), [WaitReason::SlowRequest]);
        let ahead = Crowd::of([(WaitReason::SlowReader, 2 * S); 99].into_iter(), 99, 9, 1, S);
        assert!(ahead.kinds.is_empty(), "none of them is behind yet");
    }

    #[test]
    fn a_crowd_of_one_kind_does_not_press_another_and_who_reads_has_his_second() {
        let crowd = crowd(
            &[
                (200, WaitReason::SmallWindow),
                (3, WaitReason::LargeWindow),
                (3, WaitReason::SlowReader),
            ],
            256,
            999,
            1,
        );
        assert_eq!(
            crowd.press(WaitReason::SmallWindow, S, S + CROWD_US + 50_000),
            Some(Press::Crowd)
        );
        for wait in [WaitReason::LargeWindow, WaitReason::SlowRequest, WaitReason::SlowReader] {
            assert_eq!(crowd.press(wait, S, S + 900_000), None);
            assert_eq!(crowd.press(wait, S, S + FULL_US), Some(Press::Hurry));
        }
        assert_eq!(crowd.press(WaitReason::Idle, S, S + IDLE_US), Some(Press::Hurry));
        assert_eq!(Press::Crowd.patience_us(WaitReason::SlowReader), STALL_US);
        assert_eq!(Press::Crowd.patience_us(WaitReason::LargeWindow), CROWD_US);
    }
}
