//! What a simulation saw: a row for each sample of time, totals, and the distribution of responses.

use hdrhistogram::Histogram;

/// The pool at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds since the beginning.
    pub second: f64,
    /// Clients that wait for an answer, being served or not.
    pub asking: usize,
    /// Children that serve.
    pub serving: usize,
    /// Children that start.
    pub starting: usize,
    /// Children that are parked or end.
    pub leaving: usize,
    /// Workers of the serving children.
    pub workers: usize,
    /// Workers that are busy.
    pub busy: usize,
    /// Connections that wait for a worker, in the kernel or in a child.
    pub waiting: usize,
    /// Answers since the last sample, a second.
    pub rate: f64,
}

/// A simulation's outcome.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Over time.
    pub samples: Vec<Sample>,
    /// Children started, those of the beginning not counted.
    pub forks: usize,
    /// Children that the parent ended or parked.
    pub retired: usize,
    /// Children that were called back.
    pub called_back: usize,
    /// Children that had taken their MaxConnectionsPerChild.
    pub worn_out: usize,
    /// Seconds from the load's first rise until nobody waited for a worker.
    pub full_s: Option<f64>,
    /// Requests answered.
    pub answered: u64,
    /// Connection attempts that found the queue full and were made again a second or more later.
    pub overflows: u64,
    /// Requests that were cut off by a child's death, or that a child has which stands still.
    pub lost: u64,
    /// The share of all connections that the busiest child took.
    pub busiest_share: f64,
    /// Clients that were there for the last ten seconds and never had an answer.
    pub never_served: usize,
    /// Nanoseconds from asking to the answer's end.
    pub response: Histogram<u64>,
    /// Nanoseconds from asking until a worker took it.
    pub waited: Histogram<u64>,
    /// CPU time used, of all there was.
    pub utilisation: f64,
    /// The most children that lived at once.
    pub most_children: usize,
    /// By how much the workers of serving children were at most more than the greatest demand until
    /// then, as the parent's looks show it.
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
            utilisation: 0.0,
            most_children: 0,
            most_beyond: 0,
        }
    }
}

/// Up to ten hours, in three digits.
#[expect(clippy::expect_used, reason = "constants in range")]
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 36_000_000_000_000, 3).expect("constants in range")
}
