//! How long a client may keep its worker waiting while others wait for a worker. Idle connections
//! are evicted first. A client that has shown no progress gets a short grace period if clients like
//! it hold most of the workers, so that a thousand of them do not delay a new client by more than a
//! second.

use super::{IDLE_GRACE_US, STALL_GRACE_US};
use evenkeel_scoreboard::WaitReason;

/// The grace period of a client that has received no more than its receive buffer holds. It may not
/// have read anything yet: one that reads 30 kB/s over loopback shows progress after 2.2 s.
const LARGE_WINDOW_GRACE_US: u64 = 3_000_000;

/// The shortest grace period while many clients are stalled: enough for a packet that arrives, and
/// for one that was lost and is sent again after 200 ms.
const URGENT_GRACE_US: u64 = 220_000;

/// The time within which the last client that waits should get a worker, as far as
/// [`URGENT_GRACE_US`] allows.
const TARGET_WAIT_US: u64 = 300_000;

/// Up to this many clients that wait for one reason are few.
const MAX_FEW: usize = 8;

/// How a worker is asked to evict its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Eviction {
    /// Others wait for a worker.
    Normal = 1,
    /// The same, and clients that wait for the same reason hold most of the workers.
    Urgent,
}

impl Eviction {
    /// The shortest time, in microseconds, for which a worker waits for its client under this
    /// eviction.
    pub(crate) const fn grace_us(self, wait: WaitReason) -> u64 {
        match (self, wait) {
            (
                Self::Urgent,
                WaitReason::SlowRequest | WaitReason::SmallWindow | WaitReason::LargeWindow,
            ) => URGENT_GRACE_US,
            _ => grace_us(wait),
        }
    }
}

const fn grace_us(wait: WaitReason) -> u64 {
    match wait {
        WaitReason::Idle => IDLE_GRACE_US,
        WaitReason::SlowRequest | WaitReason::SmallWindow | WaitReason::SlowReader => {
            STALL_GRACE_US
        }
        WaitReason::LargeWindow => LARGE_WINDOW_GRACE_US,
    }
}

/// Which wait reasons hold so many workers that their clients are evicted urgently.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    common: Vec<WaitReason>,
    urgent_grace_us: u64,
}

impl Contention {
    /// The contention among `workers` workers in each of `children` children, while `queue`
    /// connections wait. `waits` is what the workers wait for, each with its start in microseconds
    /// of the monotonic clock.
    pub(crate) fn of(
        waits: impl Iterator<Item = (WaitReason, u64)>,
        workers: usize,
        queue: usize,
        children: usize,
        now_us: u64,
    ) -> Self {
        let [mut requests, mut small, mut large, mut readers] = [0_usize; 4];
        for (wait, _) in waits.filter(|(_, since_us)| *since_us <= now_us) {
            match wait {
                WaitReason::Idle => {}
                WaitReason::SlowRequest => requests += 1,
                WaitReason::SmallWindow => small += 1,
                WaitReason::LargeWindow => large += 1,
                WaitReason::SlowReader => readers += 1,
            }
        }
        // If one wait reason has few clients and another one many, only those of the common reason
        // are evicted urgently.
        let is_many = |count: &usize| {
            count.saturating_mul(children.max(1)) > MAX_FEW && count.saturating_mul(4) >= workers
        };
        if (requests + small + large + readers).saturating_mul(2) < workers {
            return Self::default();
        }
        let counts = [
            (requests, WaitReason::SlowRequest),
            (small, WaitReason::SmallWindow),
            (large, WaitReason::LargeWindow),
        ];
        let common = counts.into_iter().filter(|(count, _)| is_many(count)).map(|(_, wait)| wait);
        let clients = workers.saturating_add(queue).max(1) as u64;
        let urgent_grace_us =
            (TARGET_WAIT_US.saturating_mul(workers as u64) / clients).max(URGENT_GRACE_US);
        Self { common: common.collect(), urgent_grace_us }
    }

    /// How a worker is asked to evict its client, which it has waited for since `since_us`; none
    /// within the grace period.
    pub(crate) fn eviction(
        &self,
        wait: WaitReason,
        since_us: u64,
        now_us: u64,
    ) -> Option<Eviction> {
        let is_common = self.common.contains(&wait);
        let grace_us = if is_common { self.urgent_grace_us } else { grace_us(wait) };
        let eviction = if is_common { Eviction::Urgent } else { Eviction::Normal };
        (now_us.saturating_sub(since_us) >= grace_us).then_some(eviction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn contention(
        counts: &[(usize, WaitReason)],
        workers: usize,
        queue: usize,
        children: usize,
    ) -> Contention {
        let waits = counts.iter().flat_map(|(count, wait)| vec![(*wait, S); *count]);
        Contention::of(waits, workers, queue, children, S)
    }

    #[test]
    fn a_thousand_stalled_clients_cost_a_new_one_less_than_a_second() {
        for (workers, children) in [(256, 1), (25, 16)] {
            let (mut queue, mut waited_us) = (1_000 / children - workers, 0);
            while queue > 0 {
                let contention =
                    contention(&[(workers, WaitReason::LargeWindow)], workers, queue, children);
                let grace = (0..).find(|us| {
                    contention.eviction(WaitReason::LargeWindow, S, S + us * 1_000).is_some()
                });
                waited_us += grace.unwrap() * 1_000;
                queue = queue.saturating_sub(workers);
            }
            // The rest of the second is for the pool to grow, and for the next check.
            assert!(
                (URGENT_GRACE_US..=STALL_GRACE_US * 4 / 5).contains(&waited_us),
                "{workers}: {waited_us}"
            );
        }
    }

    #[test]
    fn few_slow_clients_or_slow_clients_among_many_workers_are_not_evicted_urgently() {
        let common = |count, workers, queue| {
            contention(&[(count, WaitReason::SlowRequest)], workers, queue, 1).common
        };
        assert!(common(8, 8, 1_000).is_empty() && common(100, 256, 1_000).is_empty());
        assert_eq!(common(9, 9, 0), [WaitReason::SlowRequest]);
        let ahead = Contention::of([(WaitReason::SlowReader, 2 * S); 99].into_iter(), 99, 9, 1, S);
        assert!(ahead.common.is_empty(), "none of them has fallen behind yet");
    }

    #[test]
    fn many_waits_for_one_reason_leave_other_reasons_their_grace_period() {
        let contention = contention(
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
            contention.eviction(WaitReason::SmallWindow, S, S + URGENT_GRACE_US + 50_000),
            Some(Eviction::Urgent)
        );
        for wait in [WaitReason::LargeWindow, WaitReason::SlowRequest, WaitReason::SlowReader] {
            assert_eq!(contention.eviction(wait, S, S + 900_000), None);
            assert_eq!(
                contention.eviction(wait, S, S + LARGE_WINDOW_GRACE_US),
                Some(Eviction::Normal)
            );
        }
        assert_eq!(
            contention.eviction(WaitReason::Idle, S, S + IDLE_GRACE_US),
            Some(Eviction::Normal)
        );
        assert_eq!(Eviction::Urgent.grace_us(WaitReason::SlowReader), STALL_GRACE_US);
        assert_eq!(Eviction::Urgent.grace_us(WaitReason::LargeWindow), URGENT_GRACE_US);
    }
}
