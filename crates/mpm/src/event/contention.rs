//! A full child beside which others wait (AsyncRequestWorkerFactor): whoever keeps a connection
//! must not keep them out. Connections that lie idle are closed, the longest idle first, and the
//! service closes those that have had their turn with their next answer. What rests comes in,
//! tokens of what is to be closed go out.

use super::park::{ahead_ms, now_ms};
use crate::dedicated::IDLE_GRACE_US;
use evenkeel_sys::dispatch::ParkReason;
use evenkeel_sys::idle_table::IdleTable;
use std::collections::HashMap;

/// How often is looked while others wait, in milliseconds.
const LOOK_MS: u32 = 100;

/// How long a connection must have been seen idle before it is closed, in milliseconds: as in
/// prefork and worker, for a request that is on its way then is lost.
const IDLE_MS: u32 = (IDLE_GRACE_US / 1000) as u32;

#[derive(Default)]
pub(super) struct Contention {
    /// When is looked next, while others wait.
    look_ms: Option<u32>,
    /// The kept connections that lay idle at the last look, by token and when their time ends,
    /// with since when they have been seen so: one that was asked since ends later.
    idle: HashMap<(u64, u32), u32>,
    /// Whether others have waited since the look before.
    pub(super) stands: bool,
}

impl Contention {
    /// Notes that so many wait for whom there is no room.
    pub(super) fn note(&mut self, idle_table: &IdleTable, queue: usize) {
        if self.look_ms.is_none() {
            self.see(idle_table, queue);
        }
    }

    /// When is to be looked again, while others wait.
    pub(super) fn next_look_ms(&self) -> Option<u32> {
        self.look_ms
    }

    pub(super) fn is_due(&self) -> bool {
        self.look_ms.is_some_and(|look| ahead_ms(now_ms(), look) <= 0)
    }

    /// Looks for so many who wait still: what has been idle for too long is to be closed.
    pub(super) fn look(&mut self, idle_table: &IdleTable, queue: usize) -> Vec<u64> {
        self.stands = true;
        let now = self.see(idle_table, queue);
        let lies = |since: &u32| now.wrapping_sub(*since) >= IDLE_MS;
        self.idle.iter().filter(|(_, since)| lies(since)).map(|((token, _), _)| *token).collect()
    }

    /// Notes what lies idle at this time, which is given back.
    fn see(&mut self, idle_table: &IdleTable, queue: usize) -> u32 {
        let now = now_ms();
        self.look_ms = Some(now.wrapping_add(LOOK_MS));
        let before = std::mem::take(&mut self.idle);
        let since = |one| (one, before.get(&one).copied().unwrap_or(now));
        self.idle = idle(idle_table, queue).into_iter().map(since).collect();
        now
    }
}

/// So many kept connections that lie idle, the longest idle first.
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
