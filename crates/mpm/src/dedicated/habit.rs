//! Whether the clients of a worker come back at once. While others wait for a worker, it keeps the
//! connection of a client that does, for a turn: new connections would cost more than the worker's
//! rest. It closes the connection of any other client with the response, because a connection that
//! is left to rest would have to be closed later, and a request that is on its way then is lost.

use super::IDLE_GRACE_US;

/// A client that comes back within this time, in microseconds, keeps its worker busy: hundreds of
/// clients without pauses that share a few cores take some milliseconds for a round.
const QUICK_US: u64 = 20_000;

/// After a rest the worker relies on no further one for so many times as long: a sixteenth of its
/// time shows it whether its clients have changed.
const TIMES: u64 = 16;

/// What a worker has seen of its clients.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    /// Until when it takes clients for slow, in microseconds of the monotonic clock.
    slow_until_us: u64,
}

impl Habit {
    /// Notes that a kept connection has rested for so long until something came on it or it was
    /// closed.
    pub(crate) fn note(&mut self, rest_us: u64, now_us: u64) {
        self.slow_until_us = match rest_us {
            ..QUICK_US => 0,
            _ => now_us.saturating_add(rest_us.min(IDLE_GRACE_US) * TIMES),
        };
    }

    /// Whether clients are taken to come back at once.
    pub(crate) const fn is_quick(&self, now_us: u64) -> bool {
        now_us >= self.slow_until_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_relied_on_again_after_sixteen_of_its_kind_or_when_a_client_comes_back_at_once() {
        let mut habit = Habit::default();
        assert!(habit.is_quick(0));
        habit.note(100_000, 5_000_000);
        assert!(!habit.is_quick(6_599_999) && habit.is_quick(6_600_000));
        habit.note(QUICK_US - 1, 5_100_000);
        assert!(habit.is_quick(5_100_000));
        // An hour's rest says no more than one that would have ended beside others.
        habit.note(3_600_000_000, 9_000_000);
        assert!(!habit.is_quick(20_999_999) && habit.is_quick(21_000_000));
    }
}
