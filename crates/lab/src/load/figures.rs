//! The results of a run: histograms of times, counts by status and by failure, what each client
//! got, and every second. Each thread has its own figures, which can be added. How they are
//! displayed is decided elsewhere.

use super::exchange::{Exchange, Failure};
use super::sketch::Sketch;
use super::tls::Agreed;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Histograms of the times of exchanges, in nanoseconds, with three significant digits.
#[derive(Clone, Debug)]
pub struct Times {
    /// From when a request was due to the end of its response: what a user waits. In a closed loop
    /// the same as `service`.
    pub response: Histogram<u64>,
    /// From its beginning to its end.
    pub service: Histogram<u64>,
    /// Establishing a connection, where there was a new one.
    pub connect: Histogram<u64>,
    /// The TLS handshakes, from when the connection was accepted, whether or not a response
    /// followed.
    pub handshake: Histogram<u64>,
    /// From sending the request to the first byte of the response.
    pub wait: Histogram<u64>,
    /// The actual pauses, from the end of a response to the next request.
    pub pause: Histogram<u64>,
}

/// The figures of a run, or of one thread's part of it.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The times of answered exchanges.
    pub times: Times,
    /// The responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// The failed exchanges by kind.
    pub failures: BTreeMap<Failure, u64>,
    /// The connections that were established.
    pub connections: u64,
    /// The TLS handshakes that were completed in full.
    pub full_handshakes: u64,
    /// The TLS handshakes that resumed a session.
    pub resumed_handshakes: u64,
    /// The kept connections that the server closed while no request was in progress, which is not a
    /// failure.
    pub closed_idle: u64,
    /// The bytes of received heads.
    pub head_bytes: u64,
    /// The bytes of received bodies, without the framing of chunks.
    pub body_bytes: u64,
    /// All received bytes.
    pub read_bytes: u64,
    /// All sent bytes.
    pub sent_bytes: u64,
    /// The responses on connections that had been used before.
    pub reused: u64,
    /// The responses after which the server kept the connection open.
    pub kept: u64,
    /// The answered exchanges of each client.
    pub by_client: Vec<u64>,
    /// The most arrivals of an open loop that waited for a client at the same time.
    pub most_waiting: u64,
    /// The arrivals of an open loop that still waited for a client at the end.
    pub left_waiting: u64,
    /// Every second, in order.
    pub seconds: Vec<Second>,
    /// Each exchange, ordered by their ends, if the plan keeps them.
    pub exchanges: Vec<Exchange>,
    /// The head of the first response.
    pub sample: Option<Sample>,
    /// The duration of the run in nanoseconds.
    pub elapsed_ns: u64,
    /// The CPU time of the clients' threads, in microseconds.
    pub cpu_us: u64,
    /// The share of its time that the busiest thread worked. Near 1, the client itself limited the
    /// load.
    pub busiest: f64,
}

/// The first response of a run.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The head as received.
    pub head: Vec<u8>,
    /// The bytes of the body.
    pub body_bytes: u64,
    /// What TLS had agreed on, if it came over TLS.
    pub tls: Option<Agreed>,
}

/// One second of a run.
#[derive(Clone, Debug)]
pub struct Second {
    /// Its number, from 0.
    pub number: u32,
    /// The exchanges that ended in it.
    pub answered: u64,
    /// The exchanges that failed in it.
    pub failed: u64,
    /// The bytes received in it.
    pub read_bytes: u64,
    /// The clients that should be active at its end.
    pub clients: u32,
    /// The arrivals that waited for a client at its end.
    pub waiting: u64,
    /// The responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// The failures by kind.
    pub failures: BTreeMap<Failure, u64>,
    /// The TLS handshakes that were completed in full in it.
    pub full_handshakes: u64,
    /// The TLS handshakes that resumed a session in it.
    pub resumed_handshakes: u64,
    /// The response times of the exchanges that ended in it.
    pub response: Sketch,
}

/// The TLS handshakes of a thread.
pub(super) struct Handshakes {
    full: u64,
    resumed: u64,
    times: Histogram<u64>,
    /// Those in full and resumed that earlier seconds have reported.
    told: (u64, u64),
}

impl Default for Handshakes {
    fn default() -> Self {
        Self { full: 0, resumed: 0, times: histogram(), told: (0, 0) }
    }
}

impl Handshakes {
    /// Counts a complete handshake.
    pub(super) fn count(&mut self, time_ns: u64, resumed: bool) {
        *(if resumed { &mut self.resumed } else { &mut self.full }) += 1;
        self.times.saturating_record(time_ns);
    }

    /// Those in full and resumed since the last call.
    pub(super) fn news(&mut self) -> (u64, u64) {
        let before = std::mem::replace(&mut self.told, (self.full, self.resumed));
        (self.full - before.0, self.resumed - before.1)
    }

    /// Moves them to the figures of their thread.
    pub(super) fn conclude(self, figures: &mut Figures) {
        (figures.full_handshakes, figures.resumed_handshakes) = (self.full, self.resumed);
        figures.times.handshake = self.times;
    }
}

/// How evenly the clients were served.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fairness {
    /// The clients that were active.
    pub clients: usize,
    /// The clients that were never answered.
    pub never: usize,
    /// The fewest responses of a client.
    pub least: u64,
    /// The median of the responses of a client.
    pub median: u64,
    /// The most responses of a client.
    pub most: u64,
    /// Jain's index: 1 if all got the same, 1/n if one got everything.
    pub index: f64,
}

/// A histogram of nanoseconds from 1 to an hour, with three significant digits. Longer times count
/// as an hour.
#[expect(clippy::expect_used, reason = "the bounds and digits are constants in range")]
fn histogram() -> Histogram<u64> {
    const HOUR_NS: u64 = 3_600_000_000_000;
    Histogram::new_with_bounds(1, HOUR_NS, 3).expect("constants in range")
}

impl Default for Times {
    fn default() -> Self {
        let new = histogram;
        Self {
            response: new(),
            service: new(),
            connect: new(),
            handshake: new(),
            wait: new(),
            pause: new(),
        }
    }
}

impl Times {
    /// Each histogram with its name.
    #[must_use]
    pub fn named(&self) -> [(&'static str, &Histogram<u64>); 6] {
        [
            ("response", &self.response),
            ("service", &self.service),
            ("connect", &self.connect),
            ("handshake", &self.handshake),
            ("wait", &self.wait),
            ("pause", &self.pause),
        ]
    }

    /// Like [`Times::named`], to be filled.
    pub fn named_mut(&mut self) -> [(&'static str, &mut Histogram<u64>); 6] {
        [
            ("response", &mut self.response),
            ("service", &mut self.service),
            ("connect", &mut self.connect),
            ("handshake", &mut self.handshake),
            ("wait", &mut self.wait),
            ("pause", &mut self.pause),
        ]
    }

    fn add(&mut self, other: &Self) {
        for ((_, own), (_, other)) in self.named_mut().into_iter().zip(other.named()) {
            // All histograms have the same bounds, so that this cannot fail.
            let _same_bounds = own.add(other);
        }
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            times: Times::default(),
            statuses: BTreeMap::new(),
            failures: BTreeMap::new(),
            connections: 0,
            full_handshakes: 0,
            resumed_handshakes: 0,
            closed_idle: 0,
            head_bytes: 0,
            body_bytes: 0,
            read_bytes: 0,
            sent_bytes: 0,
            reused: 0,
            kept: 0,
            by_client: Vec::new(),
            most_waiting: 0,
            left_waiting: 0,
            seconds: Vec::new(),
            exchanges: Vec::new(),
            sample: None,
            elapsed_ns: 0,
            cpu_us: 0,
            busiest: 0.0,
        }
    }
}

impl Second {
    /// A second without events.
    #[must_use]
    pub fn new(number: u32) -> Self {
        Self {
            number,
            answered: 0,
            failed: 0,
            read_bytes: 0,
            clients: 0,
            waiting: 0,
            statuses: BTreeMap::new(),
            failures: BTreeMap::new(),
            full_handshakes: 0,
            resumed_handshakes: 0,
            response: Sketch::default(),
        }
    }

    /// Adds another thread's part of the same second.
    pub fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.read_bytes += other.read_bytes;
        self.clients += other.clients;
        self.waiting += other.waiting;
        add_counts(&mut self.statuses, &other.statuses);
        add_counts(&mut self.failures, &other.failures);
        self.full_handshakes += other.full_handshakes;
        self.resumed_handshakes += other.resumed_handshakes;
        self.response.add(&other.response);
    }
}

/// Adds counts to those of the same kind.
fn add_counts<K: Ord + Copy>(own: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
    for (kind, count) in other {
        *own.entry(*kind).or_default() += count;
    }
}

/// What was added to counts since the last report, which is updated.
pub(super) fn news<K: Ord + Copy>(
    counts: &BTreeMap<K, u64>,
    told: &mut BTreeMap<K, u64>,
) -> BTreeMap<K, u64> {
    let mut news = BTreeMap::new();
    for (kind, count) in counts {
        let before = told.insert(*kind, *count).unwrap_or_default();
        if *count > before {
            news.insert(*kind, count - before);
        }
    }
    news
}

impl Figures {
    /// The number of answered exchanges.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// The number of failed exchanges.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// The number of responses that were not successful (2xx).
    #[must_use]
    pub fn not_2xx(&self) -> u64 {
        let others = self.statuses.iter().filter(|(status, _)| !(200..300).contains(*status));
        others.map(|(_, count)| count).sum()
    }

    /// The responses a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.elapsed_ns == 0 {
            0.0
        } else {
            self.answered() as f64 * 1e9 / self.elapsed_ns as f64
        }
    }

    /// How evenly the clients were served.
    #[must_use]
    pub fn fairness(&self) -> Fairness {
        let mut counts = self.by_client.clone();
        counts.sort_unstable();
        let (Some(least), Some(most)) = (counts.first(), counts.last()) else {
            return Fairness::default();
        };
        let sum: f64 = counts.iter().map(|count| *count as f64).sum();
        let squares: f64 = counts.iter().map(|count| (*count as f64).powi(2)).sum();
        Fairness {
            clients: counts.len(),
            never: counts.iter().take_while(|count| **count == 0).count(),
            least: *least,
            median: counts.get(counts.len() / 2).copied().unwrap_or_default(),
            most: *most,
            index: if squares > 0.0 { sum * sum / (squares * counts.len() as f64) } else { 0.0 },
        }
    }

    /// Counts an answered exchange.
    pub(super) fn count(&mut self, exchange: &Exchange) {
        let response_ns = exchange.end_ns.saturating_sub(exchange.intended_ns);
        self.times.response.saturating_record(response_ns);
        let service_ns = exchange.end_ns.saturating_sub(exchange.start_ns);
        self.times.service.saturating_record(service_ns);
        let wait_ns = exchange.first_ns.saturating_sub(exchange.sent_ns);
        self.times.wait.saturating_record(wait_ns);
        if !exchange.reused {
            let connect_ns = exchange.connected_ns.saturating_sub(exchange.start_ns);
            self.times.connect.saturating_record(connect_ns);
        }
        *self.statuses.entry(exchange.status).or_default() += 1;
        self.head_bytes += u64::from(exchange.head_bytes);
        self.body_bytes += exchange.body_bytes;
        self.reused += u64::from(exchange.reused);
        self.kept += u64::from(exchange.kept);
    }

    /// Adds the figures of several threads. Seconds are added one by one, and exchanges are sorted.
    #[must_use]
    pub fn merge(parts: Vec<Self>) -> Self {
        let mut sum = Self::default();
        let mut seconds: BTreeMap<u32, Second> = BTreeMap::new();
        for part in parts {
            sum.times.add(&part.times);
            add_counts(&mut sum.statuses, &part.statuses);
            add_counts(&mut sum.failures, &part.failures);
            sum.connections += part.connections;
            sum.full_handshakes += part.full_handshakes;
            sum.resumed_handshakes += part.resumed_handshakes;
            sum.closed_idle += part.closed_idle;
            sum.head_bytes += part.head_bytes;
            sum.body_bytes += part.body_bytes;
            sum.read_bytes += part.read_bytes;
            sum.sent_bytes += part.sent_bytes;
            sum.reused += part.reused;
            sum.kept += part.kept;
            sum.by_client.extend(part.by_client);
            sum.most_waiting += part.most_waiting;
            sum.left_waiting += part.left_waiting;
            for second in part.seconds {
                match seconds.entry(second.number) {
                    Entry::Occupied(mut own) => own.get_mut().add(&second),
                    Entry::Vacant(place) => _ = place.insert(second),
                }
            }
            sum.exchanges.extend(part.exchanges);
            sum.sample = sum.sample.or(part.sample);
            sum.elapsed_ns = sum.elapsed_ns.max(part.elapsed_ns);
            sum.cpu_us += part.cpu_us;
            sum.busiest = sum.busiest.max(part.busiest);
        }
        sum.seconds = seconds.into_values().collect();
        sum.exchanges.sort_unstable_by_key(|exchange| exchange.end_ns);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_tells_who_was_never_served() {
        let figures =
            |by_client: &[u64]| Figures { by_client: by_client.to_vec(), ..Figures::default() };
        let even = figures(&[5, 5, 5, 5]).fairness();
        assert_eq!((even.never, even.least, even.most, even.index), (0, 5, 5, 1.0));
        let one = figures(&[0, 0, 8, 0]).fairness();
        assert_eq!((one.never, one.median, one.most, one.index), (3, 0, 8, 0.25));
        assert_eq!(figures(&[]).fairness(), Fairness::default());
    }

    #[test]
    fn parts_add_up() {
        let part = |client, number| {
            let mut figures = Figures { by_client: vec![1], elapsed_ns: 5, ..Figures::default() };
            let exchange = Exchange { client, status: 200, end_ns: 1000, ..Exchange::default() };
            figures.count(&exchange);
            figures.seconds.push(Second { answered: 1, ..Second::new(number) });
            figures.exchanges.push(exchange);
            figures
        };
        let sum = Figures::merge(vec![part(0, 1), part(1, 0), part(2, 1)]);
        assert_eq!((sum.answered(), sum.failed(), sum.times.response.len()), (3, 0, 3));
        let seconds: Vec<_> = sum.seconds.iter().map(|it| (it.number, it.answered)).collect();
        assert_eq!(seconds, [(0, 1), (1, 2)]);
        assert_eq!((sum.exchanges.len(), sum.elapsed_ns), (3, 5));
    }
}
