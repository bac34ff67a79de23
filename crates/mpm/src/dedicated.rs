//! The models in which a connection holds its worker from accept to close: prefork, whose workers
//! are processes, and worker, whose workers are threads. What both share is here: how a worker
//! holds a connection, and how the listening sockets are watched. It knows no protocol.

pub(crate) mod contention;
pub(crate) mod doors;
pub(crate) mod habit;
pub(crate) mod hold;
pub(crate) mod lookout;

use std::time::Duration;

/// How often a child looks at the queue while it has no idle worker. What two looks see waits.
pub(crate) const CHECK_US: u64 = 50_000;

/// How old a connection may be and be kept while others wait.
pub(crate) const FAIR_SHARE_US: u64 = 100_000;

/// How long a client may keep its worker waiting while others wait for a worker.
pub(crate) const STALL_GRACE_US: u64 = 1_000_000;

/// The same of one that has a kept connection and asks for nothing. A request that was lost on its
/// way comes again within this time, and who waits instead has an answer within a second.
pub(crate) const IDLE_GRACE_US: u64 = 750_000;

/// After how long a service that let nothing begin is asked again, and accepting goes on where the
/// system has denied it.
pub(crate) const PAUSE: Duration = Duration::from_micros(PAUSE_US);
pub(crate) const PAUSE_US: u64 = 50_000;
