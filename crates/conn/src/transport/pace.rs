//! How long a client that takes a response slowly is given while others wait for the worker that it
//! holds. One that has shown that it reads is never behind while it goes on, however thin its line;
//! one that has only had its system filled has shown nothing yet, and one that stands still is
//! behind soon. What its system says and times come in, a time goes out.

use evenkeel_scoreboard::WaitReason;
use evenkeel_sys::socket::SendProgress;

/// What a client has to take a second, in bytes, so as not to fall behind.
const RATE: u64 = 4096;

/// So far ahead of the clock a client can be that has taken much at once, in microseconds: a system
/// tells of room in pieces of 128 KiB where segments are large (loopback), which a client that
/// reads 30 kB/s makes in 4.4 s.
const MOST_AHEAD_US: u64 = 4_000_000;

/// After so long what a client's system keeps for it is full: what is taken later was read.
const FILL_US: u64 = 500_000;

/// A system that has taken less is small, and tells of room in small pieces.
const MUCH: u64 = 64 << 10;

/// How a client keeps pace.
#[derive(Default)]
pub(crate) struct Pace {
    last: SendProgress,
    /// When it was first waited for.
    first_us: Option<u64>,
    /// What its system had taken when that had to be full.
    filled: Option<u64>,
    reads: bool,
    paid_until_us: u64,
}

impl Pace {
    /// How the client is waited for that has taken so much by now, and since when, in microseconds
    /// of the monotonic clock: a time to come where it reads and is not behind. `begins` where
    /// nobody has waited for it until now.
    pub(crate) fn look(
        &mut self,
        progress: SendProgress,
        begins: bool,
        now_us: u64,
    ) -> (WaitReason, u64) {
        let last = std::mem::replace(&mut self.last, progress);
        let fresh = progress.bytes.saturating_sub(last.bytes);
        if begins {
            self.paid_until_us = self.paid_until_us.max(now_us);
        }
        let first_us = *self.first_us.get_or_insert(now_us);
        if !self.reads && now_us.saturating_sub(first_us) >= FILL_US {
            let filled = *self.filled.get_or_insert(progress.bytes);
            if progress.bytes > filled {
                self.reads = true;
                self.paid_until_us = self.paid_until_us.max(now_us);
            }
        }
        if self.reads {
            let bought_us = fresh.saturating_mul(1_000_000) / RATE;
            let most_us = now_us.saturating_add(MOST_AHEAD_US);
            self.paid_until_us = self.paid_until_us.saturating_add(bought_us).min(most_us);
            return (WaitReason::SlowReader, self.paid_until_us);
        }
        if fresh > 0 {
            // What it took it may have taken long ago: its system tells how long it was full since.
            let blocked_us = progress.blocked_us.saturating_sub(last.blocked_us);
            let blocked_us = if progress.is_blocked { blocked_us } else { 0 };
            self.paid_until_us = self.paid_until_us.max(now_us.saturating_sub(blocked_us));
        }
        let is_small = progress.bytes < MUCH;
        (
            if is_small { WaitReason::SmallWindow } else { WaitReason::LargeWindow },
            self.paid_until_us,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn open(bytes: u64) -> SendProgress {
        SendProgress { bytes, ..SendProgress::default() }
    }

    fn shut(bytes: u64, blocked_us: u64) -> SendProgress {
        SendProgress { bytes, is_blocked: true, blocked_us }
    }

    #[test]
    fn who_takes_steadily_is_never_behind_however_large_the_pieces() {
        for (rate, every) in [(5_000, 1), (30_000, 4), (16_000, 2), (1_000_000, 1)] {
            let mut pace = Pace::default();
            let piece = rate * every;
            let first =
                if piece < MUCH { WaitReason::SmallWindow } else { WaitReason::LargeWindow };
            assert_eq!(pace.look(open(piece), true, 100 * S), (first, 100 * S));
            assert_eq!(pace.look(open(piece), false, 101 * S), (first, 100 * S));
            for turn in 1..1000 {
                let now_us = (101 + turn * every) * S;
                let (wait, since_us) = pace.look(open(piece + turn * piece), false, now_us);
                assert_eq!(wait, WaitReason::SlowReader);
                assert!(since_us >= now_us && since_us <= now_us + MOST_AHEAD_US);
            }
        }
    }

    #[test]
    fn who_reads_and_then_stands_still_or_takes_next_to_nothing_is_behind_soon() {
        let mut pace = Pace::default();
        for (at, bytes) in [(100, 0), (101, 0), (102, 1 << 30)] {
            pace.look(open(bytes), at == 100, at * S);
        }
        let until = (WaitReason::SlowReader, 102 * S + MOST_AHEAD_US);
        assert_eq!(pace.look(open(1 << 30), false, 200 * S), until);
        let mut pace = Pace::default();
        for turn in 0..100 {
            let (_, since_us) = pace.look(open(turn * 50), turn == 0, (100 + turn) * S);
            assert!(since_us < 104 * S);
        }
        // What was made for it took long: it is not to blame.
        assert_eq!(pace.look(open(99 * 50), true, 500 * S), (WaitReason::SlowReader, 500 * S));
    }

    #[test]
    fn what_fills_a_system_shows_nothing_and_a_thin_line_keeps_nobody_waiting() {
        let mut still = Pace::default();
        assert_eq!(still.look(open(30_000), true, 100 * S), (WaitReason::SmallWindow, 100 * S));
        let filled = still.look(shut(128_000, 290_000), false, 100 * S + 300_000);
        assert_eq!(filled, (WaitReason::LargeWindow, 100 * S + 10_000));
        assert_eq!(still.look(shut(128_000, 1 << 40), false, 130 * S), filled);
        let mut thin = Pace::default();
        thin.look(open(30_000), true, 100 * S);
        let now_us = 100 * S + 300_000;
        assert_eq!(thin.look(open(40_000), false, now_us), (WaitReason::SmallWindow, now_us));
    }
}
