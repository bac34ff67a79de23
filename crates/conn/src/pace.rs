//! How long a client that takes a response slowly is given while others wait for the worker that it
//! holds. What it takes buys it time: a healthy download over a thin line is never behind, however
//! long it lasts, and one that stands still is behind soon. Counts and times come in, a time goes
//! out.

/// What a client has to take a second, in bytes, so as not to fall behind.
const RATE: u64 = 4096;

/// So far ahead of the clock a client can be that has taken much at once, in microseconds: systems
/// take a response in pieces of 100 kB and more, whatever is behind them reads steadily. More would
/// let a thousand clients that stand still hold the workers for longer.
const MOST_AHEAD_US: u64 = 3_000_000;

/// How a client keeps pace.
#[derive(Default)]
pub(crate) struct Pace {
    taken: u64,
    paid_until_us: u64,
}

impl Pace {
    /// Since when the client is behind that has taken so many bytes by now, in microseconds of the
    /// monotonic clock; a time to come while it is not. `begins` where nobody has waited for it
    /// until now.
    pub(crate) fn behind_since_us(&mut self, taken: u64, begins: bool, now_us: u64) -> u64 {
        let fresh = taken.saturating_sub(self.taken);
        self.taken = self.taken.max(taken);
        if begins {
            self.paid_until_us = self.paid_until_us.max(now_us);
        }
        let bought_us = fresh.saturating_mul(1_000_000) / RATE;
        let most_us = now_us.saturating_add(MOST_AHEAD_US);
        self.paid_until_us = self.paid_until_us.saturating_add(bought_us).min(most_us);
        self.paid_until_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn who_takes_steadily_is_never_behind_however_large_the_pieces() {
        for (rate, every) in [(5_000, 1), (40_000, 3), (16_000, 2), (1_000_000, 1)] {
            let mut pace = Pace::default();
            let first = rate * every;
            assert!(pace.behind_since_us(first, true, 100 * S) >= (100 + every) * S);
            for turn in 1..1000 {
                let now_us = (100 + turn * every) * S;
                let since_us = pace.behind_since_us(first + turn * rate * every, false, now_us);
                assert!(since_us >= now_us && since_us <= now_us + MOST_AHEAD_US);
            }
        }
    }

    #[test]
    fn who_stands_still_or_takes_next_to_nothing_is_behind_soon() {
        let mut pace = Pace::default();
        assert_eq!(pace.behind_since_us(1 << 30, true, 100 * S), 100 * S + MOST_AHEAD_US);
        assert_eq!(pace.behind_since_us(1 << 30, false, 200 * S), 100 * S + MOST_AHEAD_US);
        let mut pace = Pace::default();
        assert_eq!(pace.behind_since_us(0, true, 100 * S), 100 * S);
        for turn in 1..100 {
            let since_us = pace.behind_since_us(turn * 50, false, (100 + turn) * S);
            assert!(since_us < 102 * S);
        }
        // What was made for it took long: it is not to blame.
        assert_eq!(pace.behind_since_us(99 * 50, true, 500 * S), 500 * S);
    }
}
