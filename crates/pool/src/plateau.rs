//! Whether more requests in progress still bring more answers. Accounts of each second come in;
//! what goes out is whether twice as many in progress as some while ago are answered hardly faster,
//! while they use no core: what they wait for is at its limit then. No load is made for it: as long
//! as the number in progress stays what it was, nobody can tell.

use std::collections::VecDeque;

use crate::account::{Account, Figure};

/// So many seconds are remembered.
const REACH: usize = 60;

/// In two seconds that belong together the numbers differ by this part at the most.
const STEADY: f64 = 0.2;

/// Fewer answers a second tell nothing.
const LEAST_RATE: f64 = 10.0;

/// Requests that took longer then, in seconds, may not be answered yet.
const SHORT: f64 = 0.5;

/// So many times as many in progress are compared.
const TIMES: f64 = 2.0;

/// Less than this part of what more in progress should bring is hardly anything.
const HARDLY: f64 = 0.25;

/// Requests at work and answers a second.
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
    /// Takes the account of a second, and tells whether requests wait for what is at its limit.
    pub fn take(&mut self, account: &Account) -> bool {
        let now = Point::of(account);
        let before = std::mem::replace(&mut self.last, now);
        let steady = before.zip(now).and_then(|(before, now)| before.joined(now));
        let known = self.steady.iter().flatten();
        let stands = steady.is_some_and(|now| known.clone().any(|then| then.is_all_before(&now)));
        self.steady.push_back(steady);
        if self.steady.len() > REACH {
            let _oldest = self.steady.pop_front();
        }
        stands
    }
}

impl Point {
    /// None where there is too little to tell from, or the work is not mostly waiting.
    fn of(account: &Account) -> Option<Self> {
        let span_us = account.value(Figure::SpanUs).filter(|span| *span > 0.0)?;
        let resting = account.value(Figure::RestingMilli).unwrap_or(0.0);
        let at_work = (account.value(Figure::BusyMilli)? - resting).max(0.0) / 1000.0;
        let rate = account.rate(Figure::Completions).filter(|rate| *rate >= LEAST_RATE)?;
        let here = [Figure::CpuUs, Figure::RunQueueUs, Figure::QueueUs, Figure::BlockedUs];
        let here: f64 = here.iter().filter_map(|figure| account.value(*figure)).sum::<f64>();
        let writing = account.value(Figure::WritingMilli).unwrap_or(0.0) / 1000.0;
        let elsewhere = at_work - here / span_us - writing;
        (elsewhere > 0.5 * at_work).then_some(Self { at_work, rate })
    }

    /// The mean of two seconds that are alike.
    fn joined(self, next: Self) -> Option<Self> {
        let alike = |one: f64, other: f64| (one - other).abs() <= STEADY * one.max(other);
        (alike(self.at_work, next.at_work) && alike(self.rate, next.rate)).then(|| Self {
            at_work: f64::midpoint(self.at_work, next.at_work),
            rate: f64::midpoint(self.rate, next.rate),
        })
    }

    /// Whether this was all that there is to be had, by what came of more.
    fn is_all_before(&self, now: &Self) -> bool {
        let more = now.at_work / self.at_work.max(0.1);
        let gain = now.rate / self.rate - 1.0;
        self.at_work <= SHORT * self.rate && more >= TIMES && gain < HARDLY * (more - 1.0)
            // Answers that become far fewer are answers to something else.
            && gain > -HARDLY
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
        // Four places of 20 ms: 200 a second and no more.
        let all = [(2, 100), (2, 100), (16, 199), (16, 200), (16, 200)];
        assert_eq!(told(&mut Plateau::default(), &all), [false, false, false, true, true]);
    }

    #[test]
    fn more_that_brings_more_is_none() {
        // 200 ms each, from 40 clients to 400; the second of the step is both.
        let all = [(40, 200), (40, 200), (250, 900), (400, 2000), (400, 2000), (400, 1990)];
        assert_eq!(told(&mut Plateau::default(), &all), [false; 6]);
        // They go again.
        let all = [(400, 2000), (400, 2000), (30, 400), (0, 0), (40, 200), (40, 200)];
        assert_eq!(told(&mut Plateau::default(), &all), [false; 6]);
    }

    #[test]
    fn other_requests_and_work_of_our_own_are_none() {
        // Ten times as long: other requests.
        let all = [(20, 1000), (20, 1000), (200, 100), (200, 100)];
        assert_eq!(told(&mut Plateau::default(), &all), [false; 4]);
        // Cores at work: 20 ms of CPU time each.
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
