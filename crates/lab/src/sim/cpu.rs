//! Cores that all runnable work shares evenly, like a fair scheduler: with n jobs on c cores, each
//! gets min(1, c/n) of a core. An operation costs the logarithm of the number of jobs: a common
//! clock runs as fast as each job, and a job is done when that clock has advanced by its work.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds of work are counted in this many parts, so that shares are not lost to rounding.
const PARTS: f64 = 1024.0;

/// The cores and the jobs on them.
#[derive(Debug)]
pub struct Cpu<Job> {
    cores: f64,
    now: u64,
    /// The work that each job has had since the beginning.
    clock: f64,
    jobs: BinaryHeap<Reverse<Entry<Job>>>,
    number: u64,
    used: f64,
}

#[derive(Debug)]
struct Entry<Job> {
    done: u64,
    number: u64,
    job: Job,
}

impl<Job> PartialEq for Entry<Job> {
    fn eq(&self, other: &Self) -> bool {
        (self.done, self.number) == (other.done, other.number)
    }
}

impl<Job> Eq for Entry<Job> {}

impl<Job> PartialOrd for Entry<Job> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<Job> Ord for Entry<Job> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.done, self.number).cmp(&(other.done, other.number))
    }
}

impl<Job> Cpu<Job> {
    /// That many cores, or a part of them as a quota allows.
    pub fn new(cores: f64) -> Self {
        Self { cores, now: 0, clock: 0.0, jobs: BinaryHeap::new(), number: 0, used: 0.0 }
    }

    fn share(&self) -> f64 {
        (self.cores / self.jobs.len().max(1) as f64).min(1.0)
    }

    fn advance(&mut self, now: u64) {
        let passed = (now - self.now) as f64;
        if !self.jobs.is_empty() {
            let share = self.share();
            self.clock += passed * share * PARTS;
            self.used += passed * share * self.jobs.len() as f64;
        }
        self.now = now;
    }

    /// Begins a job that needs `work` nanoseconds of a core.
    pub fn begin(&mut self, now: u64, work: u64, job: Job) {
        self.advance(now);
        self.number += 1;
        let done = (self.clock + work as f64 * PARTS) as u64;
        self.jobs.push(Reverse(Entry { done, number: self.number, job }));
    }

    /// When the next job is done, if none begins before that.
    pub fn next(&self) -> Option<u64> {
        let Reverse(first) = self.jobs.peek()?;
        let left = (first.done as f64 - self.clock).max(0.0) / PARTS;
        Some(self.now + (left / self.share()).ceil() as u64)
    }

    /// The next job that is done by now.
    pub fn done(&mut self, now: u64) -> Option<Job> {
        self.advance(now);
        // Rounding to nanoseconds must not leave a job unfinished at its own end.
        let due = self.clock + PARTS;
        if self.jobs.peek().is_none_or(|Reverse(first)| first.done as f64 > due) {
            return None;
        }
        self.jobs.pop().map(|Reverse(entry)| entry.job)
    }

    /// The nanoseconds of CPU time that jobs have had.
    pub fn used(&self) -> f64 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_share_the_cores_evenly() {
        let mut cpu = Cpu::new(2.0);
        cpu.begin(0, 1000, "a");
        cpu.begin(0, 1000, "b");
        assert_eq!(cpu.next(), Some(1000));
        // Four jobs on two cores: each runs at half speed from here on.
        cpu.begin(500, 1000, "c");
        cpu.begin(500, 100, "d");
        assert_eq!(cpu.next(), Some(700));
        assert_eq!(cpu.done(700), Some("d"));
        assert_eq!(cpu.done(700), None);
        // Three jobs on two cores: a and b have 400 left, at two thirds of a core each.
        assert_eq!(cpu.next(), Some(1300));
        assert_eq!((cpu.done(1300), cpu.done(1300)), (Some("a"), Some("b")));
        assert_eq!(cpu.next(), Some(1800));
        assert_eq!(cpu.done(1800), Some("c"));
        assert_eq!(cpu.next(), None);
        assert!((cpu.used() - 3100.0).abs() < 5.0);
    }
}
