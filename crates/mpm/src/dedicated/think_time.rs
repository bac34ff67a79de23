//! Whether the clients of a worker send their next request at once. While others wait for a worker,
//! it keeps the connection of such a client for a fair share of requests, since new connections
//! would cost more than the worker's idle time. It closes the connection of any other client with
//! the response: a connection that is left idle would have to be closed later, and a request on its
//! way would be lost.

use super::IDLE_GRACE_US;

/// A client whose next request arrives within this time, in microseconds, keeps its worker busy:
/// hundreds of such clients on a few cores take some milliseconds for one round.
const SHORT_US: u64 = 20_000;

/// After a pause of t, the worker assumes long pauses for 16 t. It thus spends at most a sixteenth
/// of its time on tests for short pauses.
const FACTOR: u64 = 16;

/// The think time that a worker has seen of its clients.
#[derive(Debug, Default)]
pub(crate) struct ThinkTime {
    /// Until when it assumes long pauses, in microseconds of the monotonic clock.
    long_until_us: u64,
}

impl ThinkTime {
    /// Records how long a kept connection was idle before its next event or its end.
    pub(crate) fn note(&mut self, pause_us: u64, now_us: u64) {
        self.long_until_us = match pause_us {
            ..SHORT_US => 0,
            _ => now_us.saturating_add(pause_us.min(IDLE_GRACE_US) * FACTOR),
        };
    }

    /// Whether clients are assumed to send their next request at once.
    pub(crate) const fn is_short(&self, now_us: u64) -> bool {
        now_us >= self.long_until_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_relied_on_again_after_sixteen_of_its_kind_or_when_a_client_comes_back_at_once() {
        let mut think_time = ThinkTime::default();
        assert!(think_time.is_short(0));
        think_time.note(100_000, 5_000_000);
        assert!(!think_time.is_short(6_599_999) && think_time.is_short(6_600_000));
        think_time.note(SHORT_US - 1, 5_100_000);
        assert!(think_time.is_short(5_100_000));
        // A pause of an hour counts as much as the longest that is possible while others wait.
        think_time.note(3_600_000_000, 9_000_000);
        assert!(!think_time.is_short(20_999_999) && think_time.is_short(21_000_000));
    }
}
