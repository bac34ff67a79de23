//! What the law is told at each of its ticks: the children one by one, and the queue before them.

use std::time::Duration;

/// Where a child is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Forked, and not yet ready to serve.
    Starting,
    /// Takes connections.
    Serving,
    /// Takes none; answers what it has, and can be called back.
    Parked,
    /// Takes none, answers what it has and ends: there is no way back.
    Draining,
}

/// One child, as the scoreboard shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Child {
    /// Grows with each fork: the larger, the newer.
    pub id: u64,
    /// The generation of the configuration that it serves.
    pub generation: u64,
    /// Where it is in its life.
    pub stage: Stage,
    /// Since when it is there.
    pub since: Duration,
    /// Workers that are busy or reserved for a connection about to be accepted, and requests that
    /// wait within the child for a worker.
    pub working: usize,
    /// Idle kept-alive connections.
    pub kept: usize,
}

/// The pool at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Census<'a> {
    /// When it was taken.
    pub now: Duration,
    /// The generation of the configuration that is in force.
    pub generation: u64,
    /// All children that live, those that end included.
    pub children: &'a [Child],
    /// Connections in the kernel's accept queues.
    pub queue: usize,
    /// Requests that were answered since the pool began, by children that are gone too.
    pub answered: u64,
}
