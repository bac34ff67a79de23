//! An axis: maps values to places between 0 and 1, and chooses round numbers to mark.

use crate::numbers;

/// The description of an axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The label.
    pub label: String,
    /// The unit of its numbers.
    pub unit: Unit,
    /// Whether it is logarithmic.
    pub logarithmic: bool,
}

/// The unit of a number, which determines how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count or a rate.
    Count,
    /// A latency, in nanoseconds.
    Time,
    /// A moment in a run, in seconds.
    Moment,
    /// Bytes.
    Bytes,
    /// Percent.
    Share,
    /// One over the share that is above: 100 is the 99th percentile.
    Percentile,
}

impl Axis {
    /// A linear axis.
    #[must_use]
    pub fn new(label: &str, unit: Unit) -> Self {
        Self { label: label.to_owned(), unit, logarithmic: false }
    }

    /// The same axis, logarithmic.
    #[must_use]
    pub fn by_factors(self) -> Self {
        Self { logarithmic: true, ..self }
    }
}

impl Unit {
    /// A number as text.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Count if value.fract().abs() < 1e-9 => numbers::count(value.abs() as u64),
            Unit::Count if value.abs() < 1.0 => {
                // Three significant digits.
                let places = (2.0 - value.abs().log10().floor()).clamp(3.0, 9.0) as usize;
                let text = format!("{value:.places$}");
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
            Unit::Count => numbers::rate(value),
            Unit::Time if value == 0.0 => "0".to_owned(),
            Unit::Time => numbers::time(value).replace(".00 ", " ").replace(".0 ", " "),
            Unit::Moment => format!("{} s", trimmed(value)),
            Unit::Bytes => numbers::bytes(value),
            Unit::Share => format!("{} %", trimmed(value)),
            Unit::Percentile => format!("{} %", trimmed(100.0 - 100.0 / value.max(1.0))),
        }
    }
}

/// A number without trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The range of an axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Range {
    /// A range for all values. A linear axis begins at zero, so that lengths can be compared, or
    /// with the least value if `from_least` says that lengths do not matter.
    pub(super) fn of(values: impl Iterator<Item = f64>, axis: &Axis, from_least: bool) -> Self {
        let logarithmic = axis.logarithmic;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (!logarithmic || *value > 0.0)) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        if logarithmic {
            let high = if high > low { high } else { low * 10.0 };
            return Self { low: low * 0.999, high: high * 1.001, logarithmic };
        }
        if !from_least {
            low = low.min(0.0);
        }
        let high = if high > low { high } else { low + 1.0 };
        let room = if from_least { 0.0 } else { (high - low) * 0.04 };
        Self { low, high: high + room, logarithmic }
    }

    /// The place of a value, from 0 at the lower end to 1 at the upper end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }

    /// Round values to mark, at most about `most`.
    pub(super) fn marks(&self, most: usize) -> Vec<f64> {
        let most = most.max(2);
        if self.logarithmic {
            // On a logarithmic axis: whole decades, with 5 or with 2 and 5 if there is room.
            let all = [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]].map(|steps| self.decades(steps));
            let fits = all.iter().find(|marks| marks.len() <= most && !marks.is_empty());
            return fits.cloned().unwrap_or_else(|| {
                let [.., decades] = all;
                let step = decades.len().div_ceil(most).max(1);
                decades.into_iter().step_by(step).collect()
            });
        }
        let raw = (self.high - self.low) / most as f64;
        let decade = 10_f64.powf(raw.log10().floor());
        let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|it| it * decade >= raw);
        let step = round.unwrap_or(10.0) * decade;
        let first = (self.low / step - 1e-9).ceil() as i64;
        let count = most as i64 + 1;
        let marks = (first..=first + count).map(|number| number as f64 * step);
        marks.filter(|mark| *mark <= self.high + step * 1e-9).collect()
    }

    fn decades(&self, steps: &[f64]) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let marks =
            (first..=last).flat_map(|power| steps.iter().map(move |s| s * 10_f64.powi(power)));
        marks.filter(|mark| *mark >= self.low && *mark <= self.high).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(values: &[f64], logarithmic: bool) -> Range {
        let axis = Axis { logarithmic, ..Axis::new("", Unit::Count) };
        Range::of(values.iter().copied(), &axis, false)
    }

    #[test]
    fn marks_are_round() {
        assert_eq!(range(&[3.0, 96.0], false).marks(5), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(range(&[1.0, 1000.0], true).marks(5), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(range(&[0.5, 3.0], true).marks(5), [0.5, 1.0, 2.0]);
        assert_eq!(range(&[1.0, 1e12], true).marks(5).len(), 5);
        assert!(!range(&[7.0], false).marks(4).is_empty() && !range(&[], true).marks(4).is_empty());
    }

    #[test]
    fn places_are_between_the_ends() {
        let by_factors = range(&[1.0, 100.0], true);
        assert!((by_factors.place(10.0) - 0.5).abs() < 0.01);
        assert!(by_factors.place(0.0) == 0.0 && by_factors.place(1e9) == 1.0);
        assert!((range(&[0.0, 100.0], false).place(52.0) - 0.5).abs() < 0.001);
    }

    #[test]
    fn numbers_have_their_units() {
        assert_eq!(Unit::Percentile.show(1.0), "0 %");
        assert_eq!(Unit::Percentile.show(10_000.0), "99.99 %");
        assert_eq!(Unit::Moment.show(2.5), "2.5 s");
        assert_eq!(Unit::Count.show(12_000.0), "12,000");
    }
}
