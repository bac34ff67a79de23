//! The number of clients over time: parses `--ramp 0..512/1s` and `--steps 10:5s,50:5s` into
//! stretches of a plan.

use crate::load::{Stretch, parse_time};
use std::time::Duration;

/// Clients that come and go.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) stretches: Vec<Stretch>,
    /// Whether the last stretch has no end of its own, so that it lasts as long as the run.
    open_end: bool,
    length: Duration,
}

/// The most clients of a run.
const MOST: u32 = 1_000_000;
/// A day; longer shapes are typing errors.
const LONGEST_S: f64 = 86_400.0;

impl Shape {
    /// The most clients at a time.
    pub(super) fn most(&self) -> u32 {
        self.stretches.iter().map(|stretch| stretch.clients).max().unwrap_or(0).max(1)
    }

    /// When it ends the run: always after steps; after a ramp, unless something else ends the run.
    pub(super) fn ends(&self, bounded: bool) -> Option<Duration> {
        (!(self.open_end && bounded)).then_some(self.length)
    }
}

/// Parses `FROM..TO/TIME`.
pub(super) fn parse_ramp(text: &str) -> Result<Shape, String> {
    let bad = || format!("{text}: a ramp is FROM..TO/TIME, as in 0..512/1s");
    let (counts, time) = text.split_once('/').ok_or_else(bad)?;
    let (from, to) = counts.split_once("..").ok_or_else(bad)?;
    let (from, to) = (clients(from).ok_or_else(bad)?, clients(to).ok_or_else(bad)?);
    let length_s = seconds(time).ok_or_else(bad)?;
    if from == 0 && to == 0 {
        return Err(bad());
    }
    let begin = Stretch { from_s: 0.0, clients: from, ramp: true };
    let stand = Stretch { from_s: length_s, clients: to, ramp: false };
    let length = Duration::from_secs_f64(length_s);
    Ok(Shape { stretches: vec![begin, stand], open_end: true, length })
}

/// Parses `CLIENTS:TIME,CLIENTS:TIME`.
pub(super) fn parse_steps(text: &str) -> Result<Shape, String> {
    let bad = || format!("{text}: steps are CLIENTS:TIME,..., as in 10:5s,50:5s");
    let (mut stretches, mut from_s) = (Vec::new(), 0.0);
    for step in text.split(',') {
        let (count, time) = step.split_once(':').ok_or_else(bad)?;
        let count = clients(count).ok_or_else(bad)?;
        stretches.push(Stretch { from_s, clients: count, ramp: false });
        from_s += seconds(time).ok_or_else(bad)?;
    }
    if from_s > LONGEST_S || stretches.iter().all(|stretch| stretch.clients == 0) {
        return Err(bad());
    }
    Ok(Shape { stretches, open_end: false, length: Duration::from_secs_f64(from_s) })
}

fn clients(text: &str) -> Option<u32> {
    text.trim().parse().ok().filter(|count| *count <= MOST)
}

fn seconds(text: &str) -> Option<f64> {
    parse_time(text.trim()).filter(|time| *time > 0.0 && *time <= LONGEST_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ramps_and_steps_are_read() {
        let ramp = parse_ramp("0..512/1s").unwrap();
        let at = |from_s, clients, ramp| Stretch { from_s, clients, ramp };
        assert_eq!(ramp.stretches, [at(0.0, 0, true), at(1.0, 512, false)]);
        assert_eq!((ramp.most(), ramp.ends(true)), (512, None));
        assert_eq!(ramp.ends(false), Some(Duration::from_secs(1)));
        let steps = parse_steps("10:5s, 50:500ms").unwrap();
        assert_eq!(steps.stretches, [at(0.0, 10, false), at(5.0, 50, false)]);
        assert_eq!((steps.most(), steps.ends(true)), (50, Some(Duration::from_millis(5500))));
    }

    #[test]
    fn what_is_neither_is_told() {
        for text in ["", "0..5", "0..0/1s", "5/1s", "0..5/0s", "a..b/1s", "0..5/x"] {
            assert!(parse_ramp(text).unwrap_err().starts_with(text), "{text}");
        }
        for text in ["", "5", "5:0s", "0:1s", "5:1s,", "5:1s,x:1s", "-1:1s"] {
            assert!(parse_steps(text).unwrap_err().starts_with(text), "{text}");
        }
    }
}
