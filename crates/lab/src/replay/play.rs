//! Clients that replay: each takes the next entry of its stream's queue and compares the response
//! with the log. The result is the number of differences and the first ones.

use super::log::Sizes;
use super::queue::{Entry, Found, Place, Queue};
use crate::load::{Exchange, Failure, Source, Step};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The time after which a client tries again if its reader has nothing yet.
const AGAIN_NS: u64 = 200_000;
/// The number of differences that are shown.
pub(super) const SHOWN: usize = 10;
/// Sizes with heads differ between servers because the heads differ. A smaller difference than this
/// does not count.
const HEADS: u64 = 512;

/// The responses to some clients, compared with the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// The responses to requests whose status is in the log.
    pub(super) statuses: u64,
    /// The log's status and the response's, where they differ.
    pub(super) other_statuses: BTreeMap<(u16, u16), u64>,
    /// The first of these differences.
    pub(super) first_statuses: Vec<Difference>,
    /// The sizes where the status is the log's, taken as sizes of bodies.
    pub(super) bodies: Compared,
    /// The same, taken as sizes of everything that was sent.
    pub(super) whole: Compared,
    /// How late requests began, in nanoseconds, if the log's times are used.
    pub(super) late: Option<Histogram<u64>>,
    /// How often a client found that its reader had nothing yet.
    pub(super) waits: u64,
}

/// Sizes compared with those of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Compared {
    pub(super) all: u64,
    pub(super) others: u64,
    pub(super) first: Vec<Difference>,
}

/// A response that differs from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) place: Place,
    /// The method and target.
    pub(super) asked: String,
    pub(super) logged: u64,
    pub(super) answered: u64,
}

impl Difference {
    fn new(entry: &Entry, logged: u64, answered: u64) -> Self {
        const MOST: usize = 120;
        let bytes = &entry.request.bytes;
        let line = memchr::memmem::find(bytes, b" HTTP/1.1\r\n").and_then(|end| bytes.get(..end));
        let line = line.unwrap_or_default();
        let asked = match line.get(..MOST) {
            Some(start) => format!("{}...", start.escape_ascii()),
            None => line.escape_ascii().to_string(),
        };
        Self { place: entry.place, asked, logged, answered }
    }
}

/// Adds a difference to the first ones, which are those with the lowest places.
fn keep_first(first: &mut Vec<Difference>, more: impl IntoIterator<Item = Difference>) {
    first.extend(more);
    if first.len() > SHOWN {
        first.sort_by_key(|difference| difference.place);
        first.truncate(SHOWN);
    }
}

impl Compared {
    fn take(&mut self, entry: &Entry, logged: u64, answered: u64, leeway: u64) {
        self.all += 1;
        if logged.abs_diff(answered) > leeway {
            self.others += 1;
            let is_first = self.first.len() < SHOWN
                || self.first.iter().any(|first| first.place > entry.place);
            if is_first {
                keep_first(&mut self.first, [Difference::new(entry, logged, answered)]);
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.all += other.all;
        self.others += other.others;
        keep_first(&mut self.first, other.first);
    }
}

impl Tally {
    /// Adds a response.
    fn take(&mut self, entry: &Entry, exchange: &Exchange) {
        if let Some(due_ns) = entry.due_ns {
            let late = self.late.get_or_insert_with(histogram);
            late.saturating_record(exchange.start_ns.saturating_sub(due_ns));
        }
        let Some(status) = entry.status else { return };
        self.statuses += 1;
        if status != exchange.status {
            *self.other_statuses.entry((status, exchange.status)).or_default() += 1;
            let difference = Difference::new(entry, status.into(), exchange.status.into());
            return keep_first(&mut self.first_statuses, [difference]);
        }
        if let Some(size) = entry.size {
            let whole = u64::from(exchange.head_bytes) + exchange.body_bytes;
            self.bodies.take(entry, size, exchange.body_bytes, 0);
            self.whole.take(entry, size, whole, HEADS);
        }
    }

    /// Adds the counts of another tally.
    pub(super) fn add(&mut self, other: Self) {
        self.statuses += other.statuses;
        for (pair, count) in other.other_statuses {
            *self.other_statuses.entry(pair).or_default() += count;
        }
        keep_first(&mut self.first_statuses, other.first_statuses);
        self.bodies.add(other.bodies);
        self.whole.add(other.whole);
        if let Some(other) = other.late {
            let late = self.late.get_or_insert_with(histogram);
            // Both have the same bounds, so that this cannot fail.
            let _same_bounds = late.add(&other);
        }
        self.waits += other.waits;
    }

    /// The comparison of sizes that applies to the log. If the log does not say which, it is that
    /// of bodies, unless most responses disagree with that and fewer with the other.
    pub(super) fn sizes(&self, sizes: Sizes) -> Option<(&'static str, &Compared)> {
        let bodies = ("bodies", &self.bodies);
        let whole = ("all that was sent", &self.whole);
        // Small bodies are within the tolerance for heads, so only many differences are
        // significant.
        let many = self.bodies.others > self.bodies.all / 2;
        let are_whole = many && self.whole.others < self.bodies.others;
        match sizes {
            Sizes::None => None,
            Sizes::Bodies => Some(bodies),
            Sizes::Whole => Some(whole),
            Sizes::Unknown if are_whole => Some(whole),
            Sizes::Unknown => Some(bodies),
        }
    }
}

/// A histogram of nanoseconds up to an hour, with three significant digits.
#[expect(clippy::expect_used, reason = "the bounds and digits are constants in range")]
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("constants in range")
}

/// A client that replays.
pub(super) struct Player {
    queue: Arc<Queue>,
    tally: Arc<Mutex<Tally>>,
    current: Option<Box<Entry>>,
}

impl Player {
    pub(super) fn new(queue: Arc<Queue>, tally: Arc<Mutex<Tally>>) -> Self {
        Self { queue, tally, current: None }
    }
}

impl Source for Player {
    fn next(&mut self, now_ns: u64) -> Step {
        match self.queue.take() {
            Found::Entry(entry) => {
                let request = Arc::clone(&entry.request);
                let due_ns = entry.due_ns;
                self.current = Some(entry);
                due_ns.map_or_else(
                    || Step::Send(Arc::clone(&request)),
                    |due_ns| Step::SendAt(due_ns, Arc::clone(&request)),
                )
            }
            Found::Nothing => {
                self.tally.lock().unwrap_or_else(PoisonError::into_inner).waits += 1;
                Step::Wait(now_ns + AGAIN_NS)
            }
            Found::End => Step::Over,
        }
    }

    fn heed(&mut self, outcome: Result<&Exchange, Failure>) {
        if let (Some(entry), Ok(exchange)) = (self.current.take(), outcome) {
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.take(&entry, exchange);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Request;
    use bytes::Bytes;

    fn entry(line: u64, status: u16, size: u64) -> Entry {
        let bytes = Bytes::from(format!("GET /{line} HTTP/1.1\r\n\r\n"));
        let request = Arc::new(Request { bytes, ..Request::default() });
        let place = Place { file: 0, line };
        Entry { request, place, status: Some(status), size: Some(size), due_ns: Some(1_000) }
    }

    fn answer(status: u16, body_bytes: u64) -> Exchange {
        let times = Exchange { start_ns: 5_000, ..Exchange::default() };
        Exchange { status, body_bytes, head_bytes: 250, ..times }
    }

    #[test]
    fn differences_are_counted_and_the_first_are_kept() {
        let (mut one, mut other) = (Tally::default(), Tally::default());
        for line in (1..=40).rev() {
            let tally = if line % 2 == 0 { &mut one } else { &mut other };
            tally.take(&entry(line, 200, 5), &answer(404, 9));
        }
        one.take(&entry(50, 200, 5), &answer(200, 5));
        one.take(&entry(51, 200, 5), &answer(200, 6));
        one.add(other);
        assert_eq!((one.statuses, one.other_statuses[&(200, 404)]), (42, 40));
        let lines: Vec<u64> = one.first_statuses.iter().map(|it| it.place.line).collect();
        assert_eq!(lines, (1..=10).collect::<Vec<u64>>());
        let (_, sizes) = one.sizes(Sizes::Bodies).unwrap();
        assert_eq!((sizes.all, sizes.others), (2, 1));
        let only = &sizes.first[0];
        assert_eq!((only.asked.as_str(), only.logged, only.answered), ("GET /51", 5, 6));
        assert!((4_000..4_010).contains(&one.late.unwrap().max()));
    }

    #[test]
    fn answers_tell_what_sizes_count() {
        let mut tally = Tally::default();
        tally.take(&entry(1, 200, 1250), &answer(200, 1000));
        tally.take(&entry(2, 304, 200), &answer(304, 0));
        let (name, sizes) = tally.sizes(Sizes::Unknown).unwrap();
        assert_eq!((name, sizes.others), ("all that was sent", 0));
        assert!(tally.sizes(Sizes::None).is_none());
    }
}
