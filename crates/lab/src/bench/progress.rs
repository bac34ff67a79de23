//! The progress of a run: assembles whole seconds and sums from the parts that the threads report.

use crate::load::{Failure, Second};
use crate::numbers::{count, rate, time};
use std::collections::BTreeMap;

/// The number of seconds that are kept for a strip.
const KEPT: usize = 600;

/// The seconds of a run so far.
pub(super) struct Progress {
    threads: usize,
    /// The seconds that some threads have not reported yet, with the number of those that have.
    open: BTreeMap<u32, (usize, Second)>,
    /// The last complete seconds, in order.
    pub(super) seconds: Vec<Second>,
    /// The sum of all complete seconds. Its number is how many there were.
    pub(super) sum: Second,
}

impl Progress {
    /// The progress of a run with that many threads.
    pub(super) fn new(threads: usize) -> Self {
        Self { threads, open: BTreeMap::new(), seconds: Vec::new(), sum: Second::new(0) }
    }

    /// Takes parts of seconds. Returns whether a second is now complete.
    pub(super) fn take(&mut self, news: &[Second]) -> bool {
        for part in news {
            let fresh = || (0, Second::new(part.number));
            let (parts, second) = self.open.entry(part.number).or_insert_with(fresh);
            *parts += 1;
            second.add(part);
        }
        let mut whole = false;
        while let Some(entry) = self.open.first_entry() {
            if entry.get().0 < self.threads {
                break;
            }
            let (_, second) = entry.remove();
            self.sum.number += 1;
            self.sum.add(&second);
            (self.sum.clients, self.sum.waiting) = (second.clients, second.waiting);
            if self.seconds.len() == KEPT {
                self.seconds.remove(0);
            }
            self.seconds.push(second);
            whole = true;
        }
        whole
    }

    /// The last complete second.
    pub(super) fn last(&self) -> Option<&Second> {
        self.seconds.last()
    }

    /// A line about the last second.
    pub(super) fn line(&self) -> String {
        let Some(last) = self.last() else { return String::new() };
        let at = |quantile| time(last.response.at_ns(quantile) as f64);
        let mut line = format!(
            "{:>4} s  {:>9}/s  p50 {:>8}  p99 {:>8}  {} answered",
            self.sum.number,
            rate(last.answered as f64),
            at(0.5),
            at(0.99),
            count(self.sum.answered)
        );
        for (failure, number) in &self.sum.failures {
            line.push_str(&format!("  {} {}", count(*number), Failure::name(*failure)));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u32, answered: u64) -> Second {
        let statuses = [(200, answered)].into();
        let mut part = Second { answered, statuses, ..Second::new(number) };
        part.response.record(1_000_000);
        part
    }

    #[test]
    fn a_second_is_whole_when_every_thread_has_told_of_it() {
        let mut progress = Progress::new(2);
        assert!(!progress.take(&[part(0, 5), part(1, 1)]) && progress.last().is_none());
        assert!(progress.take(&[part(0, 7)]));
        assert_eq!(progress.last().unwrap().answered, 12);
        assert!(progress.take(&[part(1, 1), part(2, 9)]));
        assert_eq!((progress.sum.number, progress.sum.answered), (2, 14));
        assert_eq!(progress.sum.statuses, [(200, 14)].into());
        assert!(progress.line().contains("14 answered"), "{}", progress.line());
        let failed = Second { failures: [(Failure::Reset, 3)].into(), ..Second::new(3) };
        progress.take(&[part(2, 1), failed.clone(), Second::new(3)]);
        assert!(progress.line().ends_with("3 reset"), "{}", progress.line());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut progress = Progress::new(1);
        for number in 0..KEPT as u32 + 5 {
            progress.take(&[part(number, 1)]);
        }
        assert_eq!((progress.seconds.len(), progress.seconds[0].number), (KEPT, 5));
    }
}
