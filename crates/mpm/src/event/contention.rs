//! Makes room in a full child while connections wait (AsyncRequestWorkerFactor): kept connections
//! must not keep others out. Connections that are idle for too long are closed, the longest idle
//! first, and the service closes those that have had their fair share with their next response.

use super::context::{ahead_ms, now_ms};
use crate::dedicated::IDLE_GRACE_US;
use evenkeel_sys::dispatch::ParkReason;
use evenkeel_sys::idle_table::IdleTable;
use std::collections::HashMap;

/// How often a full child is checked while others wait, in milliseconds.
const CHECK_MS: u32 = 100;

/// How long a connection must have been idle before it is closed, in milliseconds. As in prefork
/// and worker, since a request that is on its way then is lost.
const IDLE_MS: u32 = (IDLE_GRACE_US / 1000) as u32;

#[derive(Default)]
pub(super) struct Contention {
    /// When the next check is due, while others wait.
    check_ms: Option<u32>,
    /// The kept connections that were idle at the last check, by token and deadline, with since
    /// when they have been seen idle. A connection that has had a request meanwhile has a later
    /// deadline.
    idle: HashMap<(u64, u32), u32>,
    /// Whether others have waited since the last check.
    pub(super) is_contended: bool,
}

impl Contention {
    /// Starts checking, because `queue` connections wait and the child is full.
    pub(super) fn start(&mut self, idle_table: &IdleTable, queue: usize) {
        if self.check_ms.is_none() {
            self.record_idle(idle_table, queue);
        }
    }

    /// When the next check is due, while others wait.
    pub(super) fn next_check_ms(&self) -> Option<u32> {
        self.check_ms
    }

    pub(super) fn is_due(&self) -> bool {
        self.check_ms.is_some_and(|check| ahead_ms(now_ms(), check) <= 0)
    }

    /// Checks again while `queue` connections wait. Returns the tokens of connections that have
    /// been idle for too long.
    pub(super) fn check(&mut self, idle_table: &IdleTable, queue: usize) -> Vec<u64> {
        self.is_contended = true;
        let now = self.record_idle(idle_table, queue);
        let is_over = |since: &u32| now.wrapping_sub(*since) >= IDLE_MS;
        self.idle.iter().filter(|(_, since)| is_over(since)).map(|((token, _), _)| *token).collect()
    }

    /// Records the idle connections, and returns the time of that.
    fn record_idle(&mut self, idle_table: &IdleTable, queue: usize) -> u32 {
        let now = now_ms();
        self.check_ms = Some(now.wrapping_add(CHECK_MS));
        let before = std::mem::take(&mut self.idle);
        let since = |one| (one, before.get(&one).copied().unwrap_or(now));
        self.idle = idle(idle_table, queue).into_iter().map(since).collect();
        now
    }
}

/// Up to `most` kept connections that are idle, the longest idle first.
fn idle(idle_table: &IdleTable, most: usize) -> Vec<(u64, u32)> {
    let now = now_ms();
    let mut idle = Vec::new();
    idle_table.sweep(None, now, |token, reason, left| {
        if ParkReason::from_number(reason) == ParkReason::KeepAlive {
            idle.push((left, token));
        }
    });
    idle.sort_unstable();
    idle.truncate(most);
    idle.into_iter().map(|(left, token)| (token, now.wrapping_add_signed(left))).collect()
}
