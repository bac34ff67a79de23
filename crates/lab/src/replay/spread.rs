//! Computes from the log's times when each request is due. A log is written when requests end and
//! records when they began, so lines are held for some seconds of log time and put in order. If the
//! log has whole seconds only, the requests of each second are spread within it.

use super::log::Stamp;
use super::queue::Entry;
use std::collections::BTreeMap;

/// The seconds of log time for which lines are held.
const WINDOW_S: i64 = 10;
/// The most bytes that are held, whatever the time.
const MOST_BYTES: usize = 8 << 20;
const SECOND_NS: u128 = 1_000_000_000;

/// Sorts entries by their times.
pub(super) struct Spreader {
    speed: f64,
    held: BTreeMap<i64, Vec<(Option<u32>, Entry)>>,
    bytes: usize,
    /// Seconds before this one have been returned.
    from: i64,
    /// The time of the first request, which is the beginning of the run.
    origin_ns: Option<i128>,
    last_due_ns: u64,
    /// The entries that came after later ones had been returned.
    late: u64,
}

impl Spreader {
    /// A spreader that replays `speed` times as fast.
    pub(super) fn new(speed: f64) -> Self {
        Self {
            speed,
            held: BTreeMap::new(),
            bytes: 0,
            from: i64::MIN,
            origin_ns: None,
            last_due_ns: 0,
            late: 0,
        }
    }

    /// The number of entries that came too late to be put in order. They are due at once.
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    /// Takes an entry, and adds those whose time is settled to `out`.
    pub(super) fn add(&mut self, mut entry: Entry, stamp: Stamp, out: &mut Vec<Entry>) {
        if stamp.second < self.from {
            self.late += 1;
            entry.due_ns = Some(self.last_due_ns);
            out.push(entry);
            return;
        }
        self.bytes += entry.bytes();
        self.held.entry(stamp.second).or_default().push((stamp.nanos, entry));
        while let (Some((first, _)), Some((last, _))) =
            (self.held.first_key_value(), self.held.last_key_value())
        {
            let (first, last) = (*first, *last);
            if self.bytes <= MOST_BYTES && last.saturating_sub(first) <= WINDOW_S {
                break;
            }
            // More entries of the newest second may follow.
            self.from = if first < last { first.saturating_add(1) } else { first };
            self.give_first(out);
        }
    }

    /// Returns everything that is held.
    pub(super) fn finish(&mut self, out: &mut Vec<Entry>) {
        while !self.held.is_empty() {
            self.give_first(out);
        }
    }

    /// Returns the first second that is held.
    fn give_first(&mut self, out: &mut Vec<Entry>) {
        let Some((second, mut entries)) = self.held.pop_first() else { return };
        let count = entries.len() as u128;
        for (index, (nanos, _)) in entries.iter_mut().enumerate() {
            let middle = (2 * index as u128 + 1) * SECOND_NS / (2 * count);
            *nanos = nanos.or_else(|| u32::try_from(middle).ok());
        }
        entries.sort_by_key(|(nanos, _)| *nanos);
        for (nanos, mut entry) in entries {
            self.bytes = self.bytes.saturating_sub(entry.bytes());
            let at_ns =
                i128::from(second) * SECOND_NS as i128 + i128::from(nanos.unwrap_or_default());
            let origin_ns = *self.origin_ns.get_or_insert(at_ns);
            // A float that is too large for the type becomes its largest value.
            let due_ns = ((at_ns - origin_ns).max(0) as f64 / self.speed) as u64;
            self.last_due_ns = self.last_due_ns.max(due_ns);
            entry.due_ns = Some(self.last_due_ns);
            out.push(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::Place;
    use super::*;
    use crate::load::Request;
    use std::sync::Arc;

    fn entry(line: u64) -> Entry {
        let (request, place) = (Arc::default(), Place { file: 0, line });
        Entry { request, place, status: None, size: None, due_ns: None }
    }

    /// The lines and due times in milliseconds of the returned entries.
    fn dues(speed: f64, stamps: &[(i64, Option<u32>)]) -> (Vec<(u64, u64)>, u64) {
        let (mut spreader, mut out) = (Spreader::new(speed), Vec::new());
        for (line, (second, nanos)) in (0..).zip(stamps) {
            spreader.add(entry(line), Stamp { second: *second, nanos: *nanos }, &mut out);
        }
        spreader.finish(&mut out);
        let due = |entry: &Entry| (entry.place.line, entry.due_ns.unwrap() / 1_000_000);
        (out.iter().map(due).collect(), spreader.late())
    }

    #[test]
    fn the_requests_of_a_second_are_spread_within_it() {
        let stamps = [(100, None), (100, None), (100, None), (100, None), (101, None)];
        let wanted = [(0, 0), (1, 250), (2, 500), (3, 750), (4, 1375)];
        assert_eq!(dues(1.0, &stamps).0, wanted);
        let wanted = [(0, 0), (1, 25), (2, 50), (3, 75), (4, 137)];
        assert_eq!(dues(10.0, &stamps).0, wanted);
    }

    #[test]
    fn lines_are_put_in_order() {
        let stamps = [(103, None), (101, None), (101, Some(1_000)), (109, None), (100, Some(0))];
        let (found, late) = dues(1.0, &stamps);
        let lines: Vec<u64> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!((lines, late), (vec![4, 2, 1, 0, 3], 0));
        assert_eq!(found[0].1, 0);
        // An entry whose time is long over is due at once, and counted.
        let (found, late) = dues(1.0, &[(100, None), (200, None), (211, None), (100, None)]);
        assert_eq!((found[2], late), ((3, 100_000), 1));
    }

    #[test]
    fn no_more_is_held_than_there_is_room_for() {
        let mut spreader = Spreader::new(1.0);
        let mut out = Vec::new();
        let request = Request { bytes: vec![b'x'; 60_000].into(), ..Request::default() };
        let request = Arc::new(request);
        for line in 0..1000 {
            let stamp = Stamp { second: 5, nanos: None };
            let entry = Entry { request: Arc::clone(&request), ..entry(line) };
            spreader.add(entry, stamp, &mut out);
            assert!(spreader.bytes <= MOST_BYTES);
        }
        spreader.finish(&mut out);
        let in_order = out.windows(2).all(|pair| pair[0].due_ns <= pair[1].due_ns);
        assert!(in_order && out.len() == 1000 && spreader.late() == 0);
    }

    #[test]
    fn times_of_no_sense_do_no_harm() {
        let (found, _) = dues(1e-9, &[(i64::MAX, None), (i64::MIN, None), (0, Some(5))]);
        assert_eq!(found.len(), 3);
    }
}
