//! The results of a simulation: a row for each sample, totals, and the distribution of responses.

use hdrhistogram::Histogram;

/// The pool at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// The time in seconds since the beginning.
    pub second: f64,
    /// The clients that wait for an answer, whether being served or not.
    pub asking: usize,
    /// The children that serve.
    pub serving: usize,
    /// The children that are starting.
    pub starting: usize,
    /// The children that are parked or ending.
    pub leaving: usize,
    /// The workers of the serving children.
    pub workers: usize,
    /// The busy workers.
    pub busy: usize,
    /// The connections that wait for a worker, in the kernel or in a child.
    pub waiting: usize,
    /// The answers a second since the last sample.
    pub rate: f64,
}

/// The outcome of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The samples.
    pub samples: Vec<Sample>,
    /// The children started, without those at the beginning.
    pub forks: usize,
    /// The children that the parent ended or parked.
    pub retired: usize,
    /// The children that were called back.
    pub called_back: usize,
    /// The children that reached MaxConnectionsPerChild.
    pub worn_out: usize,
    /// The seconds from the load's first rise until no client waited for a worker.
    pub full_s: Option<f64>,
    /// The answered requests.
    pub answered: u64,
    /// The connection attempts that found the queue full and were repeated a second or more later.
    pub overflows: u64,
    /// The requests that were cut off by a child's death or are held by a stalled child.
    pub lost: u64,
    /// The share of all connections that the busiest child accepted.
    pub busiest_share: f64,
    /// The clients that were there for the last ten seconds and never had an answer.
    pub never_served: usize,
    /// The nanoseconds from sending a request to the end of the answer.
    pub response: Histogram<u64>,
    /// The nanoseconds from sending a request until a worker took it.
    pub waited: Histogram<u64>,
    /// The nanoseconds that a request waited for a worker of the pool of applications.
    pub queued: Histogram<u64>,
    /// The most requests that waited for one at once.
    pub most_queue: usize,
    /// The share of the pool's workers that had a script, on average.
    pub pool_utilisation: f64,
    /// The share of all CPU time that was used.
    pub utilisation: f64,
    /// The most children that were alive at once.
    pub most_children: usize,
    /// By how much the workers of serving children at most exceeded the greatest demand until then,
    /// as seen by the parent.
    pub most_beyond: i64,
}

impl Outcome {
    pub(super) fn new() -> Self {
        Self {
            samples: Vec::new(),
            forks: 0,
            retired: 0,
            called_back: 0,
            worn_out: 0,
            full_s: None,
            answered: 0,
            overflows: 0,
            lost: 0,
            busiest_share: 0.0,
            never_served: 0,
            response: histogram(),
            waited: histogram(),
            queued: histogram(),
            most_queue: 0,
            pool_utilisation: 0.0,
            utilisation: 0.0,
            most_children: 0,
            most_beyond: 0,
        }
    }
}

/// A histogram of up to ten hours, with three digits.
#[expect(clippy::expect_used, reason = "constants in range")]
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 36_000_000_000_000, 3).expect("constants in range")
}
