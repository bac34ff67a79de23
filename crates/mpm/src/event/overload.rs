//! Load shedding in a serving thread (OverloadShedding): passes the waiting time of the oldest
//! queued request to the pool's `Shedding`, which decides whether to turn it away, and reports
//! overload to the error log.

use super::context::{ahead_ms, now_ms};
use evenkeel_pool::Shedding;
use evenkeel_sys::clock;
use std::time::Duration;

/// How often an overload is logged at most.
const LOG_INTERVAL_MS: i32 = 10_000;

pub(super) struct Overload {
    shedding: Shedding,
    target: Duration,
    /// How long the oldest request had waited when it was last noted.
    oldest: Duration,
    logged_ms: Option<u32>,
    next_check_ms: Option<u32>,
}

impl Overload {
    pub(super) fn new(target: Duration) -> Self {
        let shedding = Shedding::new(target);
        Self { shedding, target, oldest: Duration::ZERO, logged_ms: None, next_check_ms: None }
    }

    /// Records how long the oldest queued request has waited, zero if none does. Returns a text for
    /// the error log when an overload begins.
    pub(super) fn note(&mut self, oldest_ms: u64) -> Option<String> {
        self.oldest = Duration::from_millis(oldest_ms);
        self.shedding.note(Duration::from_micros(clock::monotonic_coarse_us()), self.oldest);
        let now = now_ms();
        let check_ms = u32::try_from(Shedding::INTERVAL.as_millis()).unwrap_or(u32::MAX);
        self.next_check_ms = (oldest_ms > 0).then(|| now.wrapping_add(check_ms));
        let is_recent =
            self.logged_ms.is_some_and(|logged| ahead_ms(logged, now) < LOG_INTERVAL_MS);
        if !self.shedding.is_overloaded() || is_recent {
            return None;
        }
        self.logged_ms = Some(now);
        Some(format!(
            "requests wait for {oldest_ms} ms for a worker: those that wait for more than twice \
             {} ms are answered with 503 (OverloadShedding)",
            self.target.as_millis()
        ))
    }

    /// Whether the newest request is served first.
    pub(super) fn prefers_newest(&self) -> bool {
        self.shedding.is_overloaded()
    }

    /// Whether the oldest request is turned away.
    pub(super) fn sheds(&self) -> bool {
        self.shedding.sheds(self.oldest)
    }

    /// When to check the queue again, while requests wait in it.
    pub(super) fn next_check_ms(&self) -> Option<u32> {
        self.next_check_ms
    }
}
