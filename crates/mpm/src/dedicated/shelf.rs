//! The shelf of a worker in prefork and worker. It holds requests that wait for a permit for
//! expensive work, so that the worker can serve other connections meanwhile. The worker resumes a
//! shelved request when a permit is free: between two connections, or while the request that it
//! serves waits for its client or an application.

use evenkeel_scoreboard::WorkerPermits;
use evenkeel_sys::clock;
use evenkeel_sys::dispatch::{ConnectionTask, ParkRequest};
use evenkeel_sys::socket::Socket;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How many requests a worker shelves. One more would occupy the worker until it gets a permit.
const MOST_SHELVED: usize = 32;

/// How often a worker with shelved requests checks whether a permit is free.
pub(super) const CHECK: Duration = Duration::from_millis(25);

#[derive(Default)]
pub(super) struct Shelf {
    permits: Option<Arc<WorkerPermits>>,
    /// The requests that wait for a permit. The one that has waited longest is at the front.
    waiting: VecDeque<Shelved>,
    /// A request that was resumed while the worker's own request waited, and that has a permit and
    /// waits for something else now.
    begun: Option<Shelved>,
    /// Connections in lingering close, and idle ones. The worker checks them from time to time and
    /// does not wait for their clients.
    lingering: Vec<Lingering>,
    pub(super) lingering_checked_us: u64,
}

/// A connection in lingering close, or an idle one.
pub(super) struct Lingering {
    pub(super) socket: Socket,
    pub(super) request: ParkRequest,
    /// When the connection is closed even if the client has not closed it, in microseconds of the
    /// monotonic clock.
    pub(super) end_us: u64,
}

/// A shelved request with the worker's state of its connection ([`super::worker::Worker`]).
pub(super) struct Shelved {
    pub(super) task: ConnectionTask,
    /// When the request began to wait for a permit, in microseconds of the monotonic clock.
    pub(super) waits_since_us: u64,
    /// When the connection was accepted, by the same clock.
    pub(super) since_us: u64,
    /// How many events the connection has had.
    pub(super) events: u32,
}

impl Shelf {
    pub(super) fn new(permits: Option<Arc<WorkerPermits>>) -> Self {
        Self { permits, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.has_no_request() && self.lingering.is_empty()
    }

    pub(super) fn has_no_request(&self) -> bool {
        self.waiting.is_empty() && self.begun.is_none()
    }

    /// When the request that was polled last began to wait for a permit. `None` if it does not wait
    /// for one.
    pub(super) fn waits_since_us(&self) -> Option<u64> {
        self.permits.as_ref()?.waits_since_us()
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MOST_SHELVED
    }

    /// Whether a shelved request can be resumed.
    pub(super) fn may_resume(&self) -> bool {
        let permits = || self.waiting.front().zip(self.permits.as_ref());
        let is_free = |(first, permits): (&Shelved, &Arc<WorkerPermits>)| {
            permits.may_take(first.waits_since_us)
        };
        self.begun.is_some() || permits().is_some_and(is_free)
    }

    /// Shelves a request. One that was resumed and found no permit (`again`) returns to the front.
    pub(super) fn put(&mut self, shelved: Shelved, again: bool) {
        match again {
            true => self.waiting.push_front(shelved),
            false => self.waiting.push_back(shelved),
        }
    }

    /// Adds a connection that waits for its client.
    pub(super) fn linger(&mut self, lingering: Lingering) {
        self.lingering.push(lingering);
    }

    /// Removes and returns the connections that wait for their clients if it is time to check them,
    /// which is once every [`CHECK`].
    pub(super) fn take_lingering(&mut self) -> Vec<Lingering> {
        if self.lingering.is_empty() {
            return Vec::new();
        }
        let now_us = clock::monotonic_us();
        let ago = Duration::from_micros(now_us.saturating_sub(self.lingering_checked_us));
        if ago < CHECK {
            return Vec::new();
        }
        self.lingering_checked_us = now_us;
        std::mem::take(&mut self.lingering)
    }

    /// Stores a resumed request that has a permit and waits for something else.
    pub(super) fn keep(&mut self, shelved: Shelved) {
        self.begun = Some(shelved);
    }

    /// Removes the request to resume next.
    pub(super) fn take(&mut self) -> Option<Shelved> {
        self.begun.take().or_else(|| self.waiting.pop_front())
    }
}
