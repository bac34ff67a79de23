//! Whether more requests in progress still bring more responses. It compares seconds: if twice as
//! many requests in progress as a while ago are answered hardly faster, without using cores, what
//! they wait for is at its limit. No load is generated to find out: while the number in progress
//! stays the same, nothing can be told.

use std::collections::VecDeque;

use crate::account::{Account, Figure};

/// How many seconds are remembered.
const REACH: usize = 60;

/// By how much the numbers of two comparable seconds may differ.
const MAX_DIFFERENCE: f64 = 0.2;

/// Fewer responses a second tell nothing.
const MIN_RATE: f64 = 10.0;

/// Requests that took longer than this, in seconds, may not have been answered yet.
const MAX_DURATION_S: f64 = 0.5;

/// How many times as many requests in progress are compared.
const MIN_FACTOR: f64 = 2.0;

/// Less than this share of the expected gain is no gain.
const MIN_GAIN: f64 = 0.25;

/// Requests in progress and responses a second.
#[derive(Clone, Copy, Debug)]
struct Point {
    at_work: f64,
    rate: f64,
}

/// What the last minute showed.
#[derive(Clone, Debug, Default)]
pub struct Plateau {
    last: Option<Point>,
    steady: VecDeque<Option<Point>>,
}

impl Plateau {
    /// Takes the account of a second. True if requests wait for something that is at its limit.
    pub fn take(&mut self, account: &Account) -> bool {
        let now = Point::of(account);
        let before = std::mem::replace(&mut self.last, now);
        let steady = before.zip(now).and_then(|(before, now)| before.mean_if_alike(now));
        let known = self.steady.iter().flatten();
        let stands = steady.is_some_and(|now| known.clone().any(|then| then.is_plateau_of(&now)));
        self.steady.push_back(steady);
        if self.steady.len() > REACH {
            let _oldest = self.steady.pop_front();
        }
        stands
    }
}

impl Point {
    /// None if there is too little to tell from, or if requests do not mostly wait.
    fn of(account: &Account) -> Option<Self> {
        let span_us = account.value(Figure::SpanUs).filter(|span| *span > 0.0)?;
        let resting = account.value(Figure::RestingMilli).unwrap_or(0.0);
        let at_work = (account.value(Figure::BusyMilli)? - resting).max(0.0) / 1000.0;
        let rate = account.rate(Figure::Completions).filter(|rate| *rate >= MIN_RATE)?;
        let here = [Figure::CpuUs, Figure::RunQueueUs, Figure::QueueUs, Figure::BlockedUs];
        let here: f64 = here.iter().filter_map(|figure| account.value(*figure)).sum::<f64>();
        let writing = account.value(Figure::WritingMilli).unwrap_or(0.0) / 1000.0;
        let elsewhere = at_work - here / span_us - writing;
        (elsewhere > 0.5 * at_work).then_some(Self { at_work, rate })
    }

    /// The mean of two seconds that are alike.
    fn mean_if_alike(self, next: Self) -> Option<Self> {
        let alike = |one: f64, other: f64| (one - other).abs() <= MAX_DIFFERENCE * one.max(other);
        (alike(self.at_work, next.at_work) && alike(self.rate, next.rate)).then(|| Self {
            at_work: f64::midpoint(self.at_work, next.at_work),
            rate: f64::midpoint(self.rate, next.rate),
        })
    }

    /// Whether this was the limit already, by what more requests in progress bring.
    fn is_plateau_of(&self, now: &Self) -> bool {
        let more = now.at_work / self.at_work.max(0.1);
        let gain = now.rate / self.rate - 1.0;
        self.at_work <= MAX_DURATION_S * self.rate
            && more >= MIN_FACTOR
            && gain < MIN_GAIN * (more - 1.0)
            // Far fewer responses are responses to other requests.
            && gain > -MIN_GAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at_work: u64, rate: u64) -> Account {
        Account::default()
            .with(Figure::SpanUs, 1_000_000)
            .with(Figure::BusyMilli, at_work * 1000)
            .with(Figure::Completions, rate)
            .with(Figure::CpuUs, rate * 100)
    }

    fn told(plateau: &mut Plateau, accounts: &[(u64, u64)]) -> Vec<bool> {
        accounts.iter().map(|(at_work, rate)| plateau.take(&second(*at_work, *rate))).collect()
    }

    #[test]
    fn more_in_progress_without_more_answers_is_a_plateau() {
        // Four places of 20 ms each: 200 a second and no more.
        let all = [(2, 100), (2, 100), (16, 199), (16, 200), (16, 200)];
        assert_eq!(told(&mut Plateau::default(), &all), [false, false, false, true, true]);
    }

    #[test]
    fn more_that_brings_more_is_none() {
        // 200 ms each, from 40 clients to 400; the second of the change has both.
        let all = [(40, 200), (40, 200), (250, 900), (400, 2000), (400, 2000), (400, 1990)];
        assert_eq!(told(&mut Plateau::default(), &all), [false; 6]);
        // The clients leave again.
        let all = [(400, 2000), (400, 2000), (30, 400), (0, 0), (40, 200), (40, 200)];
        assert_eq!(told(&mut Plateau::default(), &all), [false; 6]);
    }

    #[test]
    fn other_requests_and_work_of_our_own_are_none() {
        // Ten times as long: other requests.
        let all = [(20, 1000), (20, 1000), (200, 100), (200, 100)];
        assert_eq!(told(&mut Plateau::default(), &all), [false; 4]);
        // Busy cores: 20 ms of CPU time each.
        let mut plateau = Plateau::default();
        let burning =
            |at_work, rate| second(at_work, rate).with(Figure::QueueUs, at_work * 900_000);
        let all = [(2, 100), (2, 100), (16, 100), (16, 100)];
        assert!(all.iter().all(|(at_work, rate)| !plateau.take(&burning(*at_work, *rate))));
    }

    #[test]
    fn after_a_minute_it_is_forgotten() {
        let mut plateau = Plateau::default();
        assert_eq!(told(&mut plateau, &[(2, 100), (2, 100)]), [false; 2]);
        let all = told(&mut plateau, &[(16, 200); 80]);
        assert_eq!((all[0], all[1], all[40], all[79]), (false, true, true, false));
    }
}
