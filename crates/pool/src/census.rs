//! The input of the law at each tick: the children one by one, and the accept queue.

use std::time::Duration;

/// The stage of a child's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Forked, and not serving yet.
    Starting,
    /// Accepts connections.
    Serving,
    /// Accepts nothing; finishes what it has, and may accept again.
    Parked,
    /// Accepts nothing, finishes what it has and ends.
    Draining,
}

/// A child, as the scoreboard shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Child {
    /// Grows with each fork: the larger, the newer.
    pub id: u64,
    /// The generation of the configuration that it serves.
    pub generation: u64,
    /// Its stage.
    pub stage: Stage,
    /// Since when it is in that stage.
    pub since: Duration,
    /// Workers that are busy or reserved for a connection about to be accepted, and requests that
    /// wait within the child for a worker.
    pub working: usize,
    /// Idle kept-alive connections.
    pub kept: usize,
}

/// The pool at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Census<'a> {
    /// When it was taken.
    pub now: Duration,
    /// The generation of the configuration that is in force.
    pub generation: u64,
    /// All living children, including those that end.
    pub children: &'a [Child],
    /// Connections in the accept queues.
    pub queue: usize,
    /// Requests that were answered since the pool started, including those of children that have
    /// ended.
    pub answered: u64,
}
