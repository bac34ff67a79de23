//! What a run is to be: whom its clients ask, how many they are, how fast and for how long. It is
//! made by a command from what was typed, and only read here.

use super::pace::{Pace, Stretch};
pub use super::tls::{Trust, Wishes};
use evenkeel_sys::connect::{Local, Remote};
use std::time::Duration;

/// A load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to connect to; the first is used.
    pub remotes: Vec<Remote>,
    /// What the clients' sockets are like.
    pub local: Local,
    /// TLS, where it is spoken.
    pub trust: Option<Trust>,
    /// Threads to run the clients on.
    pub threads: usize,
    /// Clients; the most at a time where `stretches` has them come and go.
    pub clients: u32,
    /// How many clients there are over time; empty where all are there from the beginning.
    pub stretches: Vec<Stretch>,
    /// When requests begin.
    pub pace: Pace,
    /// Whether connections are kept from one request to the next.
    pub keep: Keep,
    /// When it ends.
    pub bounds: Bounds,
    /// How long a client waits.
    pub timeouts: Timeouts,
    /// From which pauses and arrivals are drawn.
    pub seed: u64,
    /// Whether each exchange is kept for a report: 88 bytes each.
    pub keep_exchanges: bool,
    /// Whether sources hear the bytes that are received.
    pub hear: bool,
}

/// Whether connections are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// As long as the server keeps them.
    #[default]
    Kept,
    /// Each is for one request, and ends when the server ends it, as ab waits.
    Once,
}

/// When a run ends: with whichever comes first. It also ends when every source is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// After so many requests were begun, all of which are finished.
    pub requests: Option<u64>,
    /// After this time; what is in progress then is cut off and counts neither way.
    pub time: Option<Duration>,
    /// With the first failure of a socket, as ab without -r: answers that break off or are no HTTP
    /// do not end it.
    pub at_failure: bool,
}

/// How long a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, handshake included.
    pub connect: Duration,
    /// For the next bytes, from the sending of the request on.
    pub answer: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(30), answer: Duration::from_secs(30) }
    }
}
