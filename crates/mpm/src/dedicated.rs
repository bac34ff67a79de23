//! What the models have in common in which a connection holds its worker from accept to close:
//! prefork, whose workers are processes, and worker, whose workers are threads. It contains the
//! worker's loop over a connection, the set of listening sockets, and the rules by which a worker
//! evicts its client while others wait.

pub(crate) mod contention;
pub(crate) mod listen_set;
pub(crate) mod queue_monitor;
mod shelf;
pub(crate) mod think_time;
pub(crate) mod worker;

use std::time::Duration;

/// How often a child without an idle worker checks the accept queue. Connections wait if two checks
/// in a row see some.
pub(crate) const CHECK_US: u64 = 50_000;

/// How long a connection is kept at least although others wait.
pub(crate) const FAIR_SHARE_US: u64 = 100_000;

/// How long a client may keep its worker waiting while others wait for a worker.
pub(crate) const STALL_GRACE_US: u64 = 1_000_000;

/// The same for a kept connection without a request. A lost request is sent again within this time,
/// and a client that waits is answered within a second.
pub(crate) const IDLE_GRACE_US: u64 = 750_000;

/// The interval after which a service that holds back requests is asked again, and after which
/// accepting resumes when the system has denied it.
pub(crate) const PAUSE: Duration = Duration::from_micros(PAUSE_US);
pub(crate) const PAUSE_US: u64 = 50_000;
