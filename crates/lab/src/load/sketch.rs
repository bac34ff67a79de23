//! The times of one second of a run, in compact form for reports: the number of times in each range
//! of two significant digits, without empty ranges, because a run of a day has 86,400 seconds.

use hdrhistogram::Histogram;

/// Times in nanoseconds, with two significant digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// The number of each range and how many times are in it, in order.
    counts: Vec<(u16, u32)>,
    /// The number of times.
    count: u64,
    /// Their sum in nanoseconds.
    sum_ns: u64,
    /// The longest time in nanoseconds.
    most_ns: u64,
}

/// The ranges are those of an HdrHistogram with two digits: each power of two is divided into this
/// many.
const RANGES: u64 = 128;

/// Times with at most this many binary digits have a range each.
const EXACT_DIGITS: u32 = 8;

/// The number of the range that contains a time.
fn range_of(ns: u64) -> u16 {
    let power = (u64::BITS - ns.leading_zeros()).saturating_sub(EXACT_DIGITS);
    // 64 powers of 128 ranges fit into the type.
    (u64::from(power) * RANGES + (ns >> power)) as u16
}

/// The longest time in a range.
fn end_of(range: u16) -> u64 {
    let range = u64::from(range);
    let power = (range / RANGES).saturating_sub(1);
    let within = range - power * RANGES;
    (within << power) | ((1 << power) - 1)
}

impl Sketch {
    /// Adds a time.
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    fn record_many(&mut self, ns: u64, count: u64) {
        let (range, more) = (range_of(ns), u32::try_from(count).unwrap_or(u32::MAX));
        match self.counts.binary_search_by_key(&range, |(own, _)| *own) {
            Ok(at) => {
                if let Some((_, own)) = self.counts.get_mut(at) {
                    *own = own.saturating_add(more);
                }
            }
            Err(at) => self.counts.insert(at, (range, more)),
        }
        self.count += count;
        self.sum_ns = self.sum_ns.saturating_add(ns.saturating_mul(count));
        self.most_ns = self.most_ns.max(ns);
    }

    /// Adds the times of another sketch.
    pub fn add(&mut self, other: &Self) {
        let (sum_ns, most_ns) = (self.sum_ns, self.most_ns.max(other.most_ns));
        for (range, count) in &other.counts {
            self.record_many(end_of(*range), u64::from(*count));
        }
        (self.sum_ns, self.most_ns) = (sum_ns.saturating_add(other.sum_ns), most_ns);
    }

    /// Adds the times of a histogram.
    pub fn add_histogram(&mut self, histogram: &Histogram<u64>) {
        for value in histogram.iter_recorded() {
            self.record_many(value.value_iterated_to(), value.count_at_value());
        }
    }

    /// The number of times.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are no times.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The longest time in nanoseconds; 0 if there are none.
    #[must_use]
    pub fn most_ns(&self) -> u64 {
        self.most_ns
    }

    /// The mean in nanoseconds; 0 if there are no times.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.count.max(1) as f64
    }

    /// The time in nanoseconds that this share of all times does not exceed; 0 if there are none.
    #[must_use]
    pub fn at_ns(&self, share: f64) -> u64 {
        let wanted = ((share * self.count as f64).ceil() as u64).max(1);
        let mut before = 0;
        let found = self.counts.iter().find(|(_, count)| {
            before += u64::from(*count);
            before >= wanted
        });
        found.map_or(0, |(range, _)| end_of(*range).min(self.most_ns))
    }

    /// The same as a histogram with two significant digits, for its file format and for sums.
    #[must_use]
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = empty_histogram();
        for (range, count) in &self.counts {
            // The histogram grows as needed.
            let _in_range = histogram.record_n(end_of(*range).min(self.most_ns), u64::from(*count));
        }
        histogram
    }
}

#[expect(clippy::expect_used, reason = "the number of digits is a constant in range")]
fn empty_histogram() -> Histogram<u64> {
    Histogram::new(2).expect("a constant in range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sketch_says_what_a_histogram_says() {
        let (mut sketch, mut histogram) = (Sketch::default(), empty_histogram());
        let mut ns = 1_u64;
        for number in 0..2000_u64 {
            ns = ns.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
            let time = ns >> (number % 40 + 20);
            sketch.record(time);
            histogram.record(time).unwrap();
        }
        assert_eq!(sketch.histogram(), histogram);
        for share in [0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let wanted = histogram.value_at_quantile(share).min(sketch.most_ns());
            assert_eq!(sketch.at_ns(share), wanted, "{share}");
        }
        let mut twice = sketch.clone();
        twice.add(&sketch);
        assert_eq!((twice.len(), twice.most_ns()), (4000, sketch.most_ns()));
        assert!((twice.mean_ns() - sketch.mean_ns()).abs() < 1.0);
        let mut read = Sketch::default();
        read.add_histogram(&histogram);
        assert_eq!((read.len(), read.histogram()), (2000, histogram));
    }

    #[test]
    fn ranges_hold_their_times() {
        for ns in [0, 1, 127, 128, 255, 256, 257, 511, 512, 1_000_000, u64::MAX / 2, u64::MAX] {
            let end = end_of(range_of(ns));
            assert!(end >= ns && end - ns <= ns / 128, "{ns} {end}");
        }
        assert_eq!(Sketch::default().at_ns(0.5), 0);
    }
}
