//! The description of a run: the server, the number of clients, their pace and the duration.
//! Commands make it from their options; it is only read here.

use super::pace::{Pace, Stretch};
pub use super::tls::{Trust, Wishes};
use evenkeel_sys::connect::{Local, Remote};
use std::time::Duration;

/// A load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The addresses to connect to; the first one is used.
    pub remotes: Vec<Remote>,
    /// The options of the clients' sockets.
    pub local: Local,
    /// TLS, if it is used.
    pub trust: Option<Trust>,
    /// The number of threads.
    pub threads: usize,
    /// The number of clients, or the most at a time if `stretches` makes them come and go.
    pub clients: u32,
    /// The number of clients over time; empty if all are there from the beginning.
    pub stretches: Vec<Stretch>,
    /// When requests begin.
    pub pace: Pace,
    /// Whether connections are kept from one request to the next.
    pub keep: Keep,
    /// The bounds of the run.
    pub bounds: Bounds,
    /// How long a client waits.
    pub timeouts: Timeouts,
    /// The seed of pauses and arrivals.
    pub seed: u64,
    /// Whether each exchange is kept for a report, at 96 bytes each.
    pub keep_exchanges: bool,
    /// Whether sources get the received bytes.
    pub hear: bool,
}

/// Whether connections are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// For as long as the server keeps them.
    #[default]
    Kept,
    /// Each is for one request, and ends when the server closes it, which ab waits for.
    Once,
}

/// The bounds of a run, whichever is reached first. A run also ends when every source is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The run ends after this many requests have begun and all of them are complete.
    pub requests: Option<u64>,
    /// The run ends after this time. What is in progress then is cut off and not counted.
    pub time: Option<Duration>,
    /// The run ends with the first failure of a socket, as in ab without -r. Responses that break
    /// off or are not HTTP do not end it.
    pub at_failure: bool,
}

/// How long a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, including the handshake.
    pub connect: Duration,
    /// For the next bytes, from sending the request on.
    pub answer: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(30), answer: Duration::from_secs(30) }
    }
}
