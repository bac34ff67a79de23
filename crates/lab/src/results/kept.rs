//! Figures and seconds in JSON. In addition to what is needed to read them back there is what
//! follows from it (rate, percentiles, fairness), for tools that want a number without a library.

use crate::load::{Failure, Fairness, Figures, Second};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The percentiles in reports, with their names.
pub const SHOWN_PERCENTILES: [(&str, f64); 8] = [
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("max", 1.0),
];

/// A histogram in a few numbers, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The number of values.
    pub count: u64,
    /// The mean.
    pub mean_ns: f64,
    /// The standard deviation.
    pub deviation_ns: f64,
    /// The least value.
    pub least_ns: u64,
    /// [`SHOWN_PERCENTILES`] by name.
    pub at_ns: BTreeMap<String, u64>,
}

impl Percentiles {
    /// The percentiles of a histogram.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |(name, quantile): (&str, f64)| {
            (name.to_owned(), histogram.value_at_quantile(quantile).min(histogram.max()))
        };
        Self {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            deviation_ns: histogram.stdev(),
            least_ns: histogram.min(),
            at_ns: SHOWN_PERCENTILES.map(at).into(),
        }
    }
}

/// A line of `seconds.jsonl`.
#[derive(Serialize, Deserialize)]
pub struct KeptSecond {
    second: u32,
    answered: u64,
    failed: u64,
    read_bytes: u64,
    clients: u32,
    waiting: u64,
    #[serde(default)]
    full_handshakes: u64,
    #[serde(default)]
    resumed_handshakes: u64,
    #[serde(default)]
    response: Percentiles,
}

impl KeptSecond {
    /// What is stored of a second besides its histogram.
    pub fn of(second: &Second) -> Self {
        Self {
            second: second.number,
            answered: second.answered,
            failed: second.failed,
            read_bytes: second.read_bytes,
            clients: second.clients,
            waiting: second.waiting,
            full_handshakes: second.full_handshakes,
            resumed_handshakes: second.resumed_handshakes,
            response: Percentiles::of(&second.response.histogram()),
        }
    }

    /// The second, still without its histogram.
    pub fn second(&self) -> Second {
        Second {
            answered: self.answered,
            failed: self.failed,
            read_bytes: self.read_bytes,
            clients: self.clients,
            waiting: self.waiting,
            full_handshakes: self.full_handshakes,
            resumed_handshakes: self.resumed_handshakes,
            ..Second::new(self.second)
        }
    }
}

/// `figures.json`.
#[derive(Serialize, Deserialize)]
pub struct KeptFigures {
    elapsed_ns: u64,
    answered: u64,
    failed: u64,
    rate_per_s: f64,
    #[serde(default)]
    response: Percentiles,
    #[serde(default)]
    service: Percentiles,
    #[serde(default)]
    handshake: Percentiles,
    #[serde(default)]
    full_handshakes: u64,
    #[serde(default)]
    resumed_handshakes: u64,
    statuses: BTreeMap<u16, u64>,
    failures: BTreeMap<String, u64>,
    connections: u64,
    closed_idle: u64,
    head_bytes: u64,
    body_bytes: u64,
    read_bytes: u64,
    sent_bytes: u64,
    reused: u64,
    kept: u64,
    most_waiting: u64,
    left_waiting: u64,
    client_cpu_us: u64,
    client_busiest: f64,
    #[serde(default)]
    fairness: KeptFairness,
    by_client: Vec<u64>,
}

#[derive(Default, Serialize, Deserialize)]
struct KeptFairness {
    clients: usize,
    never_served: usize,
    least: u64,
    median: u64,
    most: u64,
    jain_index: f64,
}

impl From<Fairness> for KeptFairness {
    fn from(it: Fairness) -> Self {
        Self {
            clients: it.clients,
            never_served: it.never,
            least: it.least,
            median: it.median,
            most: it.most,
            jain_index: it.index,
        }
    }
}

impl KeptFigures {
    /// What is stored of a run's figures besides histograms and seconds.
    pub fn of(figures: &Figures) -> Self {
        let failures =
            figures.failures.iter().map(|(failure, count)| (failure.name().to_owned(), *count));
        Self {
            elapsed_ns: figures.elapsed_ns,
            answered: figures.answered(),
            failed: figures.failed(),
            rate_per_s: figures.rate(),
            response: Percentiles::of(&figures.times.response),
            service: Percentiles::of(&figures.times.service),
            handshake: Percentiles::of(&figures.times.handshake),
            full_handshakes: figures.full_handshakes,
            resumed_handshakes: figures.resumed_handshakes,
            statuses: figures.statuses.clone(),
            failures: failures.collect(),
            connections: figures.connections,
            closed_idle: figures.closed_idle,
            head_bytes: figures.head_bytes,
            body_bytes: figures.body_bytes,
            read_bytes: figures.read_bytes,
            sent_bytes: figures.sent_bytes,
            reused: figures.reused,
            kept: figures.kept,
            most_waiting: figures.most_waiting,
            left_waiting: figures.left_waiting,
            client_cpu_us: figures.cpu_us,
            client_busiest: figures.busiest,
            fairness: figures.fairness().into(),
            by_client: figures.by_client.clone(),
        }
    }

    /// The figures, still without histograms and seconds.
    ///
    /// # Errors
    ///
    /// An unknown kind of failure.
    pub fn figures(self) -> Result<Figures, String> {
        let mut failures = BTreeMap::new();
        for (name, count) in self.failures {
            let known = Failure::ALL.into_iter().find(|failure| failure.name() == name);
            failures.insert(known.ok_or_else(|| format!("{name}: no kind of failure"))?, count);
        }
        Ok(Figures {
            statuses: self.statuses,
            failures,
            connections: self.connections,
            full_handshakes: self.full_handshakes,
            resumed_handshakes: self.resumed_handshakes,
            closed_idle: self.closed_idle,
            head_bytes: self.head_bytes,
            body_bytes: self.body_bytes,
            read_bytes: self.read_bytes,
            sent_bytes: self.sent_bytes,
            reused: self.reused,
            kept: self.kept,
            by_client: self.by_client,
            most_waiting: self.most_waiting,
            left_waiting: self.left_waiting,
            elapsed_ns: self.elapsed_ns,
            cpu_us: self.client_cpu_us,
            busiest: self.client_busiest,
            ..Figures::default()
        })
    }
}
