//! What the pool did and what limits it, from the history that the parent keeps. What the parent
//! did not measure is unknown here too.

use crate::application::{Application, Bound};
use crate::words;
use evenkeel_pool::{Account, Cost, Figure, Limit, Verdict, verdict};
use evenkeel_scoreboard::Reading;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::borrow::Cow;

/// The number of last readings that describe the present.
pub(crate) const WINDOW: usize = 10;

/// The name of the limit `application`.
const APPLICATION: &str = Limit::Application.name();

/// A history whose last reading is older than this says nothing about the present.
const STALE_US: u64 = 10_000_000;

/// The pool of a server.
#[derive(Clone, Debug, Serialize)]
pub struct Pool {
    /// The name of the limit that binds; `unknown` if no readings are kept.
    pub limit: &'static str,
    /// Why it is this one, as a sentence.
    pub why: String,
    /// What would move it, as a sentence.
    pub remedy: Cow<'static, str>,
    /// The requests answered in a second.
    pub rps: Option<f64>,
    /// The most requests a second while everything stays as it is.
    pub maximum_rps: Option<f64>,
    /// The next limit.
    pub next: Option<Next>,
    /// How the time of a request is spent.
    pub request_us: Option<Split>,
    /// The figures of the last seconds.
    #[serde(serialize_with = "by_name")]
    pub now: Account,
    /// The readings of each second, oldest first.
    #[serde(serialize_with = "by_column")]
    pub history: Vec<(u64, Account)>,
}

/// The limit that would bind after the current one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Next {
    /// Its name.
    pub limit: &'static str,
    /// The requests a second at which it would bind.
    pub rps: f64,
}

/// How the time of a request is spent, averaged over the last seconds, in microseconds. An unknown
/// part is none, and then so is the rest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Split {
    /// From its head to its last byte.
    pub total: f64,
    /// The CPU time of everything that the server did in that time, divided by the number of
    /// requests.
    pub cpu: Option<f64>,
    /// Ready to run, without a core.
    pub run_queue: Option<f64>,
    /// Waiting for a thread of the blocking pool.
    pub line: Option<f64>,
    /// Holding such a thread without using a core, usually because of disks.
    pub blocking: Option<f64>,
    /// Waiting for its client to read.
    pub clients: Option<f64>,
    /// Waiting for what the server cannot see: applications, other servers, the network.
    pub rest: Option<f64>,
}

impl Default for Pool {
    fn default() -> Self {
        Self::new(&[], 0)
    }
}

impl Pool {
    /// The pool from a history, at `now_us` (microseconds since 1970).
    #[must_use]
    pub fn new(readings: &[Reading], now_us: u64) -> Self {
        let history: Vec<(u64, Account)> = readings
            .iter()
            .map(|reading| (reading.when_us, Account::from_words(reading.words)))
            .collect();
        let young = |(when_us, _): &&(u64, Account)| now_us.saturating_sub(*when_us) < STALE_US;
        let last = history.iter().rev().take(WINDOW).filter(young).map(|(_, account)| *account);
        let mut last: Vec<Account> = last.collect();
        last.reverse();
        let now = Account::over(&last);
        let known = !last.is_empty();
        let Verdict { limit, maximum, next } = verdict(&now);
        Self {
            limit: if known { limit.name() } else { words::UNKNOWN },
            why: if known { words::why(limit, &now) } else { words::UNKNOWN_WHY.to_owned() },
            remedy: if known { words::remedy(limit) } else { words::UNKNOWN_REMEDY }.into(),
            rps: now.rate(Figure::Completions),
            maximum_rps: maximum,
            next: next.map(|(limit, rps)| Next { limit: limit.name(), rps }),
            request_us: Split::of(&now),
            now,
            history,
        }
    }

    /// Names the application that limits the server, if one does. The server's own account does not
    /// see why requests wait for it.
    #[must_use]
    pub fn limited_by(mut self, applications: &[Application]) -> Self {
        let bound = |application: &Application| Some((application.bound()?, application.queue));
        let worst = applications.iter().filter_map(|it| Some((it, bound(it)?)));
        let Some((application, (bound, _))) = worst.max_by_key(|(_, (_, queue))| *queue) else {
            return self;
        };
        let names = |limits: &[Limit]| limits.iter().any(|limit| limit.name() == self.limit);
        let is_of_application = match bound {
            Bound::Cores => names(&[Limit::Cpu, Limit::Wait, Limit::None, Limit::Workers]),
            _ => names(&[Limit::Wait, Limit::None, Limit::Workers]),
        };
        if !is_of_application && self.limit != words::UNKNOWN && self.limit != APPLICATION {
            return self;
        }
        self.limit = APPLICATION;
        self.why = format!("{APPLICATION}: {}", application.sentence());
        self.remedy = application.remedy(bound).into();
        self.maximum_rps = application.carried_by(application.workers);
        self.next = None;
        self
    }

    /// The same, with only the readings of the last `seconds` seconds.
    #[must_use]
    pub fn with_last(mut self, seconds: usize) -> Self {
        let first = self.history.len().saturating_sub(seconds);
        self.history.drain(..first);
        self
    }
}

impl Split {
    fn of(account: &Account) -> Option<Self> {
        let total = account.each(Figure::DurationUs)?;
        // The times of few requests mean nothing. The parts are only shown together with the cost.
        let cost = Cost::of(account);
        let part = |figure| cost.and(account.each(figure));
        let cpu = cost.map(|cost| cost.cpu);
        let (run_queue, line) = (part(Figure::RunQueueUs), part(Figure::QueueUs));
        // A thread that waits for a core is held too, and that part is already counted.
        let blocking =
            part(Figure::BlockedUs).zip(run_queue).map(|(held, queued)| (held - queued).max(0.0));
        let writing = account.value(Figure::WritingMilli).zip(account.value(Figure::SpanUs));
        let requests = account.value(Figure::Completions)?;
        let clients =
            cost.and(writing).map(|(milli, span)| (milli / 1000.0 * span / requests).min(total));
        let known = [cpu, run_queue, line, blocking, clients];
        let told = known.into_iter().try_fold(0.0, |sum, part| Some(sum + part?));
        let rest = told.map(|told| (total - told).max(0.0));
        Some(Self { total, cpu, run_queue, line, blocking, clients, rest })
    }
}

fn by_name<S: Serializer>(account: &Account, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(Figure::ALL.len()))?;
    for figure in Figure::ALL {
        match figure {
            Figure::Limit => map.serialize_entry(figure.name(), &limit_name(account))?,
            figure => map.serialize_entry(figure.name(), &account.of(figure))?,
        }
    }
    map.end()
}

fn limit_name(account: &Account) -> Option<&'static str> {
    Some(Limit::from_number(account.of(Figure::Limit)?)?.name())
}

/// The figures whose history is shown.
const COLUMNS: [Figure; 8] = [
    Figure::Supply,
    Figure::Demand,
    Figure::Queue,
    Figure::Active,
    Figure::Parked,
    Figure::Workers,
    Figure::Completions,
    Figure::CpuUs,
];

/// A list for each figure, which takes a third of the text of a list of objects.
fn by_column<S: Serializer>(history: &[(u64, Account)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(COLUMNS.len() + 2))?;
    let whens: Vec<u64> = history.iter().map(|(when_us, _)| *when_us).collect();
    map.serialize_entry("when_us", &whens)?;
    for figure in COLUMNS {
        let column: Vec<_> = history.iter().map(|(_, account)| account.of(figure)).collect();
        map.serialize_entry(figure.name(), &column)?;
    }
    let limits: Vec<_> = history.iter().map(|(_, account)| limit_name(account)).collect();
    map.serialize_entry("limit", &limits)?;
    map.end()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A second of a busy server.
    pub(crate) fn second(number: u64) -> Reading {
        let account = Account::default()
            .with(Figure::SpanUs, 1_000_000)
            .with(Figure::Completions, 98)
            .with(Figure::CpuUs, 1_960_000)
            .with(Figure::RunQueueUs, 98_000)
            .with(Figure::QueueUs, 980_000)
            .with(Figure::BlockedUs, 100_000)
            .with(Figure::DurationUs, 98 * 50_000)
            .with(Figure::WritingMilli, 98)
            .with(Figure::BusyMilli, 4_000)
            .with(Figure::Workers, 400)
            .with(Figure::Supply, 400)
            .with(Figure::Demand, 4)
            .with(Figure::Queue, number % 7)
            .with(Figure::Active, 2)
            .with(Figure::Parked, 0)
            .with(Figure::CoresMilli, 2_000)
            .with(Figure::OthersUs, 0)
            .with(Figure::Limit, Limit::Cpu.number());
        Reading { when_us: number * 1_000_000, words: *account.words() }
    }

    #[test]
    fn the_last_seconds_tell_the_limit_and_where_the_time_goes() {
        let readings: Vec<Reading> = (1..=20).map(second).collect();
        let pool = Pool::new(&readings, 20_500_000);
        assert_eq!((pool.limit, pool.maximum_rps), ("cpu", Some(100.0)));
        assert_eq!(pool.rps, Some(98.0));
        let split = pool.request_us.clone().unwrap();
        assert_eq!(
            (split.total, split.cpu, split.line),
            (50_000.0, Some(20_000.0), Some(10_000.0))
        );
        assert_eq!((split.clients, split.run_queue), (Some(1_000.0), Some(1_000.0)));
        let sum = 20_000.0 + 10_000.0 + 1_000.0 + 1_000.0 + split.blocking.unwrap();
        assert!((split.rest.unwrap() - (50_000.0 - sum)).abs() < 1e-6);
        let json = serde_json::to_value(pool.with_last(2)).unwrap();
        assert_eq!(json["history"]["queue"], serde_json::json!([5, 6]));
        assert_eq!(json["history"]["limit"][0], "cpu");
        assert_eq!(json["now"]["throttled_us"], serde_json::Value::Null);
        assert_eq!(json["now"]["completions"], 980);
    }

    #[test]
    fn what_is_old_or_missing_is_unknown() {
        for pool in [Pool::default(), Pool::new(&[second(1)], 60_000_000)] {
            assert_eq!((pool.limit, pool.rps, pool.maximum_rps), ("unknown", None, None));
            assert!(pool.request_us.is_none() && pool.next.is_none());
            assert!(pool.why.contains("no account"), "{}", pool.why);
        }
    }
}
