//! The second station of the simulation: a pool of application processes behind the server. A
//! request keeps its place in the server while it waits for a worker of the pool and while its
//! script runs.

use super::setup::Application;
use super::world::{Event, Job, World};
use std::collections::VecDeque;

/// The state of the pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Station {
    /// The workers with a script.
    busy: usize,
    /// The requests that wait for a worker, each with its turn and when it came.
    queue: VecDeque<(usize, u32, u64)>,
    /// When `busy` last changed, and the integral of `busy` over time up to then.
    since: u64,
    busy_ns: u128,
}

impl Station {
    fn count(&mut self, now: u64) {
        self.busy_ns += u128::from(now - self.since) * self.busy as u128;
        self.since = now;
    }

    /// The share of its workers that had a script, on average from the beginning until `now`.
    pub(super) fn utilisation(&mut self, pool: &Application, now: u64) -> f64 {
        self.count(now);
        let possible = now as f64 * pool.workers as f64;
        if possible > 0.0 { self.busy_ns as f64 / possible } else { 0.0 }
    }
}

impl World<'_> {
    /// The server has done its part of a request; the pool's part follows if there is a pool.
    pub(super) fn pass_on(&mut self, index: usize, turn: u32) {
        let Some(pool) = &self.setup.application else { return self.made(index, turn) };
        if !self.is_turn(index, turn) {
            return;
        }
        self.station.queue.push_back((index, turn, self.now));
        if self.station.busy < pool.workers {
            self.take_script(pool);
        } else {
            let length = self.station.queue.len();
            self.outcome.most_queue = self.outcome.most_queue.max(length);
        }
    }

    /// A worker takes the first request of the queue. It skips requests that were cut off.
    fn take_script(&mut self, pool: &Application) {
        while let Some((index, turn, came)) = self.station.queue.pop_front() {
            if !self.is_turn(index, turn) {
                continue;
            }
            self.station.count(self.now);
            self.station.busy += 1;
            self.outcome.queued.saturating_record((self.now - came).max(1));
            let work = pool.cpu.draw_ns(&mut self.random);
            self.begin_work(work, Job::Script(index, turn));
            return;
        }
    }

    /// A script has used its CPU time and waits for what it needs of others.
    pub(super) fn script_waits(&mut self, index: usize, turn: u32) {
        let Some(pool) = &self.setup.application else { return };
        let wait = pool.wait.draw_ns(&mut self.random);
        self.at(self.now + wait, Event::Script(index, turn));
    }

    /// A script is done, whether or not anybody still waits for it.
    pub(super) fn script_ends(&mut self, index: usize, turn: u32) {
        let Some(pool) = &self.setup.application else { return };
        self.station.count(self.now);
        self.station.busy = self.station.busy.saturating_sub(1);
        self.take_script(pool);
        self.made(index, turn);
    }
}
