//! The law of `MaxRequestWorkers auto`: how many requests may be in progress at once. It is asked
//! once a second, with an account of that second and the bounds that memory and descriptors set.
//! The budget grows while requests wait for a worker and cores have time, and growth that brings no
//! more responses is undone. It shrinks while requests mostly wait for a core. Where seconds differ
//! by chance, several of them are compared. Pure: no clock, no I/O.

use std::collections::VecDeque;

use crate::account::{Account, Figure};
use crate::limit::{Cost, cores_left};

/// The factors by which the budget grows and shrinks.
const GROW: f64 = 1.25;
const SHRINK: f64 = 0.9;

/// If the knee is so many times the budget, it grows by the larger factor.
const FAR: f64 = 4.0;
const GROW_FAR: f64 = 2.0;

/// The budget grows while requests wait for a core for less than this share of the CPU time that
/// they use, or while less than that share of the available cores is used, however long they wait:
/// threads that wake at the same time wait for each other, while the cores are idle before and
/// after. Several seconds together show whether cores are idle.
const LITTLE_WAIT: f64 = 0.25;
const USED: f64 = 0.95;
const IDLE_SECONDS: usize = 3;

/// It shrinks after so many seconds in a row in which requests waited for a core for longer than
/// they used one.
const CONTENDED_SECONDS: u32 = 3;

/// A server that uses less CPU time than this in a second, in microseconds, does not wait for it.
const LEAST_USE: f64 = 50_000.0;

/// Growth is kept if the responses grow by this share of it, and by the least gain in any case.
const GAIN: f64 = 0.12;
const LEAST_GAIN: f64 = 0.03;

/// How many seconds before and after growth are compared at most: as many as it takes for the gain
/// to exceed the noise.
const MAX_SAMPLES: usize = 8;

/// How much the responses of two seconds may differ by chance, before any were seen.
const PRIOR_NOISE: f64 = 0.05;

/// A gain is significant if it exceeds so many standard errors.
const SIGNIFICANCE: f64 = 2.0;

/// A second in which less than this share of the earlier cores was left cannot be compared.
const LEFT: f64 = 0.9;

/// How many seconds the first responses that growth brings are waited for at most.
const MAX_HELD_S: f64 = 60.0;

/// Growth that could not be judged for so many seconds is undone: the load has changed.
const MAX_UNCLEAR: u32 = 10;

/// The cost of a request is measured over so many seconds. A budget that shrinks to the needs of
/// the worst of them would have too few workers in the others.
const COST_SECONDS: usize = 10;

/// Growth that was undone is tried again after so many seconds, then after twice as many, up to the
/// largest.
const RETRY_S: u32 = 30;
const MAX_RETRY_S: u32 = 960;

/// From this share of the budget on, all of it counts as in use.
const FULL: f64 = 0.95;

/// So much waiting for memory stops growth, in hundredths of a per cent of the time.
const PRESSURE: u64 = 1000;

/// The bounds of the budget, whatever the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetBounds {
    /// It never falls below this.
    pub least: usize,
    /// It never exceeds this, because of memory, descriptors or directives.
    pub most: usize,
}

/// The budget, with what is remembered of its changes.
#[derive(Clone, Debug)]
pub struct Auto {
    budget: usize,
    /// The budget without the bound from above: it is restored once the bound is higher, because
    /// the load did not ask for less.
    target: usize,
    trial: Option<Trial>,
    /// The responses of the last seconds with this budget, while all of it was in use.
    rates: Rates,
    /// The last seconds, oldest first.
    past: VecDeque<CpuUse>,
    contended_s: u32,
    /// Seconds until growth is tried again, and how many it will be the next time.
    retry_in_s: u32,
    retry_interval_s: u32,
    growth_refused: bool,
}

/// Growth that is not judged yet.
#[derive(Clone, Debug)]
struct Trial {
    /// The budget before.
    before: usize,
    /// The responses before.
    rates: Rates,
    /// The cores that other processes left then.
    left: f64,
    /// The budget since.
    grown: usize,
    /// How many seconds have begun since, and how many of them were not clear.
    seconds: u32,
    unclear: u32,
}

/// Responses a second, in comparable seconds.
#[derive(Clone, Debug, Default)]
struct Rates(VecDeque<f64>);

/// The CPU time that a second used, in microseconds, and what was available.
#[derive(Clone, Copy, Debug)]
struct CpuUse {
    used: f64,
    /// The time for which workers were held while they waited for something other than a core.
    waited: f64,
    /// The cores that the server may use, and those that other processes left.
    cores: f64,
    left: f64,
}

impl Auto {
    /// Starts with this budget.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self {
            budget,
            target: budget,
            trial: None,
            rates: Rates(VecDeque::new()),
            past: VecDeque::new(),
            contended_s: 0,
            retry_in_s: 0,
            retry_interval_s: RETRY_S,
            growth_refused: false,
        }
    }

    /// The budget.
    #[must_use]
    pub const fn budget(&self) -> usize {
        self.budget
    }

    /// Whether the last growth was undone because it brought no more responses: what requests wait
    /// for is at its limit, not this server.
    #[must_use]
    pub const fn is_growth_refused(&self) -> bool {
        self.growth_refused
    }

    /// Decides from the account of a second. An unknown figure changes nothing.
    pub fn decide(&mut self, account: &Account, room: &BudgetBounds) -> usize {
        let most = room.most.max(1);
        let least = room.least.clamp(1, most);
        let budget = self.budget;
        self.retry_in_s = self.retry_in_s.saturating_sub(1);
        let load = Load::of(account, budget);
        self.remember(&load);
        self.judge_trial(&load);
        self.contended_s = if load.is_contended { self.contended_s + 1 } else { 0 };
        if self.contended_s >= CONTENDED_SECONDS || load.is_throttled {
            // A budget of more than twice the knee keeps no request from being served.
            let floor = self.knee().map_or(budget, |knee| whole(2.0 * knee)).max(least);
            if self.budget > floor {
                self.target = whole(self.budget as f64 * SHRINK).max(floor);
                self.trial = None;
            }
            self.contended_s = 0;
        } else if load.wants_more
            && load.uses.is_some()
            && (load.waits_little || self.has_idle_cores())
            && self.trial.is_none()
            && self.retry_in_s == 0
            && self.target <= self.budget
        {
            self.grow(most);
        }
        if !load.is_queued {
            self.growth_refused = false;
        }
        self.target = self.target.max(least);
        self.budget = self.target.min(most);
        if self.budget != budget {
            // The second of the change belongs to neither side.
            self.rates = Rates::default();
        }
        self.budget
    }

    fn remember(&mut self, load: &Load) {
        self.past.extend(load.uses);
        if self.past.len() > COST_SECONDS {
            let _oldest = self.past.pop_front();
        }
        if self.trial.is_none() {
            match load.is_full {
                true => self.rates.take(load.rate),
                false => self.rates = Rates::default(),
            }
        }
    }

    /// How many workers keep all cores busy that the server may use, as if other processes were
    /// absent: those that use cores now may be gone in the next second.
    fn knee(&self) -> Option<f64> {
        let cores = self.past.back()?.cores;
        let sum = |of: fn(&CpuUse) -> f64| self.past.iter().map(of).sum::<f64>();
        let (cpu, wait) = (sum(|it| it.used), sum(|it| it.waited));
        Some(Cost { cpu: cpu.max(1.0), queued: 0.0, wait }.knee(cores))
    }

    /// Whether cores that are available to the server are idle.
    fn has_idle_cores(&self) -> bool {
        let used = self.past.iter().rev().take(IDLE_SECONDS).map(|it| it.used).sum::<f64>();
        used < USED * self.left(IDLE_SECONDS) * 1e6
    }

    /// The cores that other processes left in the last seconds, in total.
    fn left(&self, seconds: usize) -> f64 {
        self.past.iter().rev().take(seconds).map(|it| it.left).sum()
    }

    fn grow(&mut self, most: usize) {
        let knee = self.knee();
        let beyond = knee.map_or(0, |knee| whole(2.0 * knee));
        let budget = self.budget as f64;
        let is_far = knee.is_some_and(|knee| knee >= FAR * budget);
        let target = whole(budget * if is_far { GROW_FAR } else { GROW }).max(self.budget + 1);
        let grown = target.min(beyond).min(most);
        if grown > self.budget {
            let (before, rates) = (self.budget, self.rates.clone());
            let left = self.left(rates.0.len()) / rates.0.len().max(1) as f64;
            self.trial = Some(Trial { before, rates, left, grown, seconds: 0, unclear: 0 });
            self.target = grown;
        }
    }

    /// Judges growth by complete seconds that can be compared with those before it. The second of
    /// the change belongs to neither side. A second with fewer busy workers than before, with
    /// starting children, or with fewer cores left says something about these and not about the
    /// growth.
    fn judge_trial(&mut self, load: &Load) {
        let Some(trial) = &mut self.trial else { return };
        trial.seconds += 1;
        // Its effect shows when the first requests that came with it have ended.
        if trial.seconds < 2 + load.held_s() {
            return;
        }
        let is_served = load.busy >= FULL * trial.before as f64;
        let enough = (GAIN * trial.growth()).max(LEAST_GAIN);
        // More responses in spite of fewer cores are due to the growth.
        let is_left = load.uses.is_none_or(|it| it.left >= LEFT * trial.left)
            || load.rate >= trial.rates.mean() * (1.0 + enough);
        if is_served && is_left && (load.is_full || !load.is_queued) {
            self.rates.take(load.rate);
            let (gain, noise) = self.rates.gain_over(&trial.rates);
            // What is kept in error is not undone later, but what is undone is tried again.
            let is_clear = gain - enough >= SIGNIFICANCE * noise || enough - gain >= noise;
            // If the bounds change all the time, no seconds are comparable.
            trial.unclear += 1;
            if !is_clear && self.rates.0.len() < MAX_SAMPLES && trial.unclear < MAX_UNCLEAR {
                return;
            }
            self.growth_refused = gain < enough;
            if self.growth_refused {
                (self.target, self.retry_in_s) = (trial.before, self.retry_interval_s);
                self.retry_interval_s = (self.retry_interval_s * 2).min(MAX_RETRY_S);
            } else if is_clear {
                self.retry_interval_s = RETRY_S;
            }
        } else {
            trial.unclear += 1;
            if trial.unclear < MAX_UNCLEAR {
                return;
            }
            (self.target, self.retry_in_s) = (trial.before, RETRY_S);
        }
        self.trial = None;
    }
}

impl Trial {
    /// The share by which the budget grew.
    fn growth(&self) -> f64 {
        self.grown as f64 / self.before.max(1) as f64 - 1.0
    }
}

impl Rates {
    fn take(&mut self, rate: f64) {
        self.0.push_back(rate);
        if self.0.len() > MAX_SAMPLES {
            let _oldest = self.0.pop_front();
        }
    }

    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }

    /// By what share responses grew since then, and the standard error of that.
    fn gain_over(&self, then: &Self) -> (f64, f64) {
        let (now, before) = (self.mean().max(1e-9), then.mean().max(1e-9));
        let squares = |rates: &Self, mean: f64| {
            rates.0.iter().map(|rate| (rate / mean - 1.0).powi(2)).sum::<f64>()
        };
        let (here, there) = (self.0.len() as f64, then.0.len() as f64);
        let seen = squares(self, now) + squares(then, before);
        let spread = (seen + PRIOR_NOISE.powi(2)) / (here + there - 1.0).max(1.0);
        let gain = now / before;
        (gain - 1.0, gain * (spread * (1.0 / here.max(1.0) + 1.0 / there.max(1.0))).sqrt())
    }
}

/// What this law reads from an account.
struct Load {
    /// Responses in a second.
    rate: f64,
    /// Busy workers, on average.
    busy: f64,
    /// Whether the whole budget is in use.
    is_full: bool,
    uses: Option<CpuUse>,
    is_queued: bool,
    is_contended: bool,
    is_throttled: bool,
    /// Whether requests hardly wait for a core.
    waits_little: bool,
    wants_more: bool,
}

impl Load {
    /// For how many whole seconds a request holds its worker (Little's law), up to the longest.
    fn held_s(&self) -> u32 {
        (self.busy / self.rate.max(1e-9)).min(MAX_HELD_S) as u32
    }

    fn of(account: &Account, budget: usize) -> Self {
        let value = |figure| account.value(figure).unwrap_or(0.0);
        let queued = value(Figure::Queue) + value(Figure::RunnableMilli) / 1000.0;
        let is_queued = queued >= 1.0;
        let busy = value(Figure::BusyMilli) / 1000.0;
        let is_full = busy >= FULL * budget as f64;
        // Microseconds in a second, of all requests together. No number of responses is needed, so
        // that a few slow requests count as much as many fast ones.
        let used = account.rate(Figure::CpuUs);
        let queued_us = account.rate(Figure::RunQueueUs).unwrap_or(0.0)
            + account.rate(Figure::QueueUs).unwrap_or(0.0);
        let waited = used.map(|used| queued_us / used.max(1.0));
        let held_us = busy * 1e6;
        let cores = account.value(Figure::CoresMilli).zip(cores_left(account));
        let uses = used.zip(cores).map(|(used, (milli, left))| CpuUse {
            used,
            waited: (held_us - used - queued_us).max(0.0),
            cores: milli / 1000.0,
            left,
        });
        let is_working = used.is_some_and(|used| used >= LEAST_USE);
        let throttled = account.rate(Figure::ThrottledUs).unwrap_or(0.0);
        let is_throttled = throttled > 50_000.0;
        let is_memory_short =
            account.of(Figure::MemoryPressure).is_some_and(|pressure| pressure >= PRESSURE);
        Self {
            rate: account.rate(Figure::Completions).unwrap_or(0.0),
            busy,
            is_full,
            uses,
            is_queued,
            is_contended: is_working && waited.is_some_and(|waited| waited > 1.0),
            is_throttled,
            waits_little: waited.is_some_and(|waited| waited < LITTLE_WAIT),
            wants_more: is_queued && is_full && !is_throttled && !is_memory_short,
        }
    }
}

/// A number of workers, rounded up, so that growth by less than one is growth.
fn whole(value: f64) -> usize {
    value.ceil().max(0.0) as usize
}

#[cfg(test)]
mod mixed;
#[cfg(test)]
mod tests;
