//! How long a client may keep its worker waiting while others wait for a worker. One that idles
//! makes room first; one that has not shown that it moves is given little where such clients hold
//! most of the workers, so that a thousand of them do not cost a newcomer more than a second.
//! Counts and times come in, times go out.

use super::{STALL_US, TURN_US};
use evenkeel_scoreboard::Wait;

/// How long a client is waited for that has only had its system filled: one that reads 30 kB/s over
/// loopback shows for 2.2 s that it takes nothing.
const FULL_US: u64 = 3_000_000;

/// The least time that a client is given where many are in the way: a packet that comes, and one
/// that was lost and comes again after 200 ms.
pub(crate) const CROWD_US: u64 = 250_000;

/// So many clients that keep workers waiting are no crowd.
const FEW: usize = 8;

/// How a worker is asked to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Press {
    /// Others wait.
    Hurry = 1,
    /// The same, and most workers are held by clients that keep them waiting.
    Crowd,
}

impl Press {
    /// How long who is asked so waits for its client, in microseconds, at the least.
    pub(crate) const fn patience_us(self, wait: Wait) -> u64 {
        match self {
            Self::Hurry => patience_us(wait, None),
            Self::Crowd => patience_us(wait, Some(CROWD_US)),
        }
    }
}

/// How long a client may keep its worker waiting for this, in microseconds, where `crowd_us` is
/// what [`crowd_us`] says.
pub(crate) const fn patience_us(wait: Wait, crowd_us: Option<u64>) -> u64 {
    match (wait, crowd_us) {
        (Wait::Idle, _) => TURN_US,
        (Wait::Slow | Wait::Full, Some(crowd_us)) => crowd_us,
        (Wait::Slow, None) | (Wait::Behind, _) => STALL_US,
        (Wait::Full, None) => FULL_US,
    }
}

/// How long one of the clients may keep its worker waiting, in microseconds, where `slow` of so
/// many workers are held so, while so many connections wait: such that the last of them gets his
/// worker within about a second. None where they are not most of the workers, or `FEW` at most of
/// all that `children` have together.
pub(crate) fn crowd_us(slow: usize, workers: usize, queue: usize, children: usize) -> Option<u64> {
    let is_crowd = slow.saturating_mul(children.max(1)) > FEW && slow.saturating_mul(2) >= workers;
    is_crowd.then(|| {
        let in_all = workers.saturating_add(queue).max(1) as u64;
        (STALL_US.saturating_mul(workers as u64) / in_all).max(CROWD_US)
    })
}

/// Whether a client is in the way of others that its worker waits for since then.
pub(crate) const fn is_slow(wait: Wait, since_us: u64, now_us: u64) -> bool {
    !matches!(wait, Wait::Idle) && since_us <= now_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_that_stand_still_cost_a_newcomer_little_more_than_a_second() {
        for (workers, children) in [(256, 1), (25, 16)] {
            let (mut queue, mut waited_us) = (1_000 / children - workers, 0);
            while queue > 0 {
                waited_us += crowd_us(workers, workers, queue, children).unwrap();
                queue = queue.saturating_sub(workers);
            }
            assert!((STALL_US / 2..STALL_US * 6 / 5).contains(&waited_us), "{waited_us}");
        }
    }

    #[test]
    fn a_few_slow_clients_or_slow_clients_among_many_are_no_crowd() {
        assert_eq!(crowd_us(8, 8, 1_000, 1), None);
        assert_eq!(crowd_us(100, 256, 1_000, 1), None);
        assert_eq!(crowd_us(9, 9, 0, 1), Some(STALL_US));
        assert_eq!(crowd_us(256, 256, 100_000, 1), Some(CROWD_US));
    }

    #[test]
    fn who_has_shown_that_he_reads_is_waited_for_in_a_crowd_too() {
        let crowd = |wait| Press::Crowd.patience_us(wait);
        assert_eq!([Wait::Slow, Wait::Full].map(crowd), [CROWD_US; 2]);
        assert_eq!(crowd(Wait::Behind), Press::Hurry.patience_us(Wait::Behind));
        assert_eq!(crowd(Wait::Idle), TURN_US);
    }
}
