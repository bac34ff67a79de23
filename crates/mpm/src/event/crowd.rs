//! A full child beside which others wait (AsyncRequestWorkerFactor): whoever keeps a connection
//! must not keep them out. Connections that lie idle are closed, the longest idle first, and the
//! service closes those that have had their turn with their next answer. What rests comes in,
//! tokens of what is to be closed go out.

use super::park::{ahead_ms, now_ms};
use crate::held::TURN_US;
use evenkeel_sys::shelf::Shelf;
use evenkeel_sys::turn::Class;

/// How long a connection must have been idle at least, and how often is looked.
const TURN_MS: u32 = (TURN_US / 1000) as u32;

#[derive(Default)]
pub(super) struct Crowd {
    /// When is looked next, while others wait.
    look_ms: Option<u32>,
    /// The kept connections that lay idle at the last look, by token, with when their time ends:
    /// one that was asked since ends later.
    idle: Vec<(u64, u32)>,
    /// Whether others have waited since the look before.
    pub(super) stands: bool,
}

impl Crowd {
    /// Notes that so many wait for whom there is no room.
    pub(super) fn note(&mut self, shelf: &Shelf, queue: usize) {
        if self.look_ms.is_none() {
            self.look_ms = Some(now_ms().wrapping_add(TURN_MS));
            self.idle = idle(shelf, queue);
        }
    }

    /// When is to be looked again, while others wait.
    pub(super) fn next_look_ms(&self) -> Option<u32> {
        self.look_ms
    }

    pub(super) fn is_due(&self) -> bool {
        self.look_ms.is_some_and(|look| ahead_ms(now_ms(), look) <= 0)
    }

    /// Looks for so many who wait still: what has been idle for a turn is to be closed.
    pub(super) fn look(&mut self, shelf: &Shelf, queue: usize) -> Vec<u64> {
        self.look_ms = Some(now_ms().wrapping_add(TURN_MS));
        self.stands = true;
        let before = std::mem::replace(&mut self.idle, idle(shelf, queue));
        let lies = |one: &&(u64, u32)| before.contains(one);
        self.idle.iter().filter(lies).map(|(token, _)| *token).collect()
    }
}

/// So many kept connections that lie idle, the longest idle first.
fn idle(shelf: &Shelf, most: usize) -> Vec<(u64, u32)> {
    let now = now_ms();
    let mut idle = Vec::new();
    shelf.sweep(None, now, |token, class, left| {
        if Class::from_number(class) == Class::KeepAlive {
            idle.push((left, token));
        }
    });
    idle.sort_unstable();
    idle.truncate(most);
    idle.into_iter().map(|(left, token)| (token, now.wrapping_add_signed(left))).collect()
}
