//! Who waits too long: the line of a serving thread as the law of shedding sees it, and what the
//! administrator is told of it. How long the oldest has waited comes in; whether to turn him away
//! goes out.

use super::park::{ahead_ms, now_ms};
use evenkeel_pool::Shedding;
use evenkeel_sys::clock;
use std::time::Duration;

/// An overload is told again after so long.
const SILENCE_MS: i32 = 10_000;

pub(super) struct Overload {
    law: Shedding,
    target: Duration,
    /// How long the oldest had waited when that was last noted.
    oldest: Duration,
    told_ms: Option<u32>,
    next_look_ms: Option<u32>,
}

impl Overload {
    pub(super) fn new(target: Duration) -> Self {
        let law = Shedding::new(target);
        Self { law, target, oldest: Duration::ZERO, told_ms: None, next_look_ms: None }
    }

    /// Notes how long the oldest in line has waited, zero where nobody does. A text for the error
    /// log where an overload has begun.
    pub(super) fn note(&mut self, oldest_ms: u64) -> Option<String> {
        self.oldest = Duration::from_millis(oldest_ms);
        self.law.note(Duration::from_micros(clock::monotonic_coarse_us()), self.oldest);
        let now = now_ms();
        let look = u32::try_from(Shedding::INTERVAL.as_millis()).unwrap_or(u32::MAX);
        self.next_look_ms = (oldest_ms > 0).then(|| now.wrapping_add(look));
        let silent = self.told_ms.is_some_and(|told| ahead_ms(told, now) < SILENCE_MS);
        if !self.law.is_overloaded() || silent {
            return None;
        }
        self.told_ms = Some(now);
        Some(format!(
            "requests wait for {oldest_ms} ms for a worker: those that wait for more than twice \
             {} ms are answered with 503 (OverloadShedding)",
            self.target.as_millis()
        ))
    }

    /// Whether the newest in line comes first.
    pub(super) fn prefers_newest(&self) -> bool {
        self.law.is_overloaded()
    }

    /// Whether the oldest in line is to be turned away.
    pub(super) fn sheds(&self) -> bool {
        self.law.sheds(self.oldest)
    }

    /// When the line is to be looked at again, while somebody stands in it.
    pub(super) fn next_look_ms(&self) -> Option<u32> {
        self.next_look_ms
    }
}
