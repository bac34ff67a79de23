//! A histogram of times in a few rows, with the bounds 1, 2, 5, 10, so that fast and slow responses
//! are visible in the same picture.

use hdrhistogram::Histogram;

/// A row: the number of times up to its bound and above the bound of the previous row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) most_ns: u64,
    pub(crate) count: u64,
}

/// The rows from the first to the last that are not empty, including empty ones between them.
pub(crate) fn rows(histogram: &Histogram<u64>) -> Vec<Row> {
    if histogram.is_empty() {
        return Vec::new();
    }
    let mut rows: Vec<Row> = Vec::new();
    let mut most_ns = bounds();
    let Some(mut bound_ns) = most_ns.next() else { return rows };
    let mut count = 0;
    for step in histogram.iter_recorded() {
        // A bucket of the histogram is counted at its middle.
        let middle_ns = histogram.median_equivalent(step.value_iterated_to());
        while middle_ns > bound_ns {
            if count > 0 || !rows.is_empty() {
                rows.push(Row { most_ns: bound_ns, count });
            }
            count = 0;
            match most_ns.next() {
                Some(next_ns) => bound_ns = next_ns,
                None => break,
            }
        }
        count += step.count_at_value();
    }
    rows.push(Row { most_ns: bound_ns, count });
    rows
}

/// 1, 2, 5, 10 microseconds and so on up to hours.
fn bounds() -> impl Iterator<Item = u64> {
    let decades = (0..11).map(|power| 1000 * 10_u64.pow(power));
    decades.flat_map(|decade| [decade, 2 * decade, 5 * decade])
}

/// A bar for `count` of `most` in eighths of a character, at most `width` characters long.
pub(crate) fn bar(count: u64, most: u64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (count as f64 * width as f64 * 8.0 / most.max(1) as f64).round() as usize;
    // A count above zero is always visible.
    let eighths = if count > 0 { eighths.max(1) } else { eighths }.min(width * 8);
    let rest = EIGHTHS.get(eighths % 8).copied().unwrap_or_default();
    format!("{}{rest}", "█".repeat(eighths / 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_everything_once() {
        let mut histogram = Histogram::new(3).unwrap();
        for ns in [1_500, 1_900, 400_000, 3_000_000] {
            histogram.record(ns).unwrap();
        }
        let rows = rows(&histogram);
        assert_eq!(rows[0], Row { most_ns: 2_000, count: 2 });
        assert_eq!(rows.last(), Some(&Row { most_ns: 5_000_000, count: 1 }));
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 4);
        assert!(rows.windows(2).all(|pair| pair[0].most_ns < pair[1].most_ns));
        histogram.clear();
        assert!(super::rows(&histogram).is_empty());
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!([bar(8, 8, 2), bar(4, 8, 2), bar(1, 16, 2)], ["██", "█", "▏"]);
        assert_eq!([bar(0, 8, 2), bar(1, 1_000_000, 2)], ["", "▏"]);
    }
}
