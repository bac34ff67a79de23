//! `MaxRequestWorkers auto`: how many requests may be in progress at once. An account of each
//! second and the room that memory and descriptors leave come in, the budget goes out. It grows
//! while requests wait for a worker and cores have time, keeps what made more answers and gives
//! back what did not; it shrinks while requests mostly wait for a core. What seconds tell that
//! differ by chance is judged over several of them. Pure: no clock, no I/O.

use std::collections::VecDeque;

use crate::account::{Account, Figure};
use crate::limit::{Cost, cores_left};

/// How much it grows and shrinks at a time.
const GROW: f64 = 1.25;
const SHRINK: f64 = 0.9;

/// Far below the knee it grows faster.
const FAR: f64 = 4.0;
const GROW_FAR: f64 = 2.0;

/// It grows while requests wait for a core less than this part of the CPU time that they use; and
/// however long they wait while less than that part of the cores is used that there is for the
/// server. Threads that wake at the same time wait for each other, and the cores rest before and
/// after. Some seconds together tell whether they rest.
const IDLE: f64 = 0.25;
const USED: f64 = 0.95;
const REST: usize = 3;

/// It shrinks after so many seconds in a row in which requests waited longer for a core than they
/// used one.
const HOT: u32 = 3;

/// A server that uses less than so many microseconds of CPU time in a second does not wait for it.
const LEAST_USE: f64 = 50_000.0;

/// Growth is kept where the answers grew by this part of it, and by so much in any case.
const GAIN: f64 = 0.12;
const LEAST_GAIN: f64 = 0.03;

/// At the most so many seconds before growth are compared with as many after it: as many as it
/// takes until the gain is clear of what seconds differ by chance.
const JUDGED: usize = 8;

/// By so much of its answers a second may differ from the next for all that is known before any
/// was seen.
const CHANCE: f64 = 0.05;

/// A gain is clear by so many standard errors.
const SURE: f64 = 2.0;

/// A second in which less than this part of the cores was left than before is like no other.
const LEFT: f64 = 0.9;

/// For how many seconds the first answers that growth brings are waited for at the most.
const LONGEST: f64 = 60.0;

/// Growth that could not be judged for so many seconds is given back: the load has changed.
const LATE: u32 = 10;

/// What a request takes is told from so many seconds: a budget that shrinks to what the worst of
/// them seems to need would have too few workers in the others.
const COSTED: usize = 10;

/// After growth that was given back, it is tried again after so many seconds, then after twice as
/// many, up to the most.
const PATIENCE: u32 = 30;
const MOST_PATIENCE: u32 = 960;

/// Within this part of the budget all of it is in use.
const FULL: f64 = 0.95;

/// So many hundredths of a per cent of the time waiting for memory freeze growth.
const PRESSURE: u64 = 1000;

/// What bounds the budget, whatever the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// It never falls below this by itself.
    pub least: usize,
    /// It never passes this: memory, descriptors and what the directives leave.
    pub most: usize,
}

/// The budget with what is remembered of how it came about.
#[derive(Clone, Debug)]
pub struct Auto {
    budget: usize,
    /// What it would be with more room: it is that again once there is more, for it was not the
    /// load that asked for less.
    wanted: usize,
    trial: Option<Trial>,
    /// What was answered in the last seconds with this budget, all of it being in use.
    rates: Rates,
    /// The last seconds, oldest first.
    past: VecDeque<Use>,
    hot: u32,
    /// Seconds until growth is tried again, and how many it will be the next time.
    wait: u32,
    patience: u32,
    refused: bool,
}

/// Growth that is not judged yet.
#[derive(Clone, Debug)]
struct Trial {
    /// The budget before.
    before: usize,
    /// What was answered before.
    rates: Rates,
    /// The cores that others left then.
    left: f64,
    /// The budget since.
    grown: usize,
    /// How many seconds have begun since, and how many of them have told nothing clear.
    seconds: u32,
    odd: u32,
}

/// Requests answered a second, in some seconds that are alike.
#[derive(Clone, Debug, Default)]
struct Rates(VecDeque<f64>);

/// What a second used, in microseconds of CPU time, and of what.
#[derive(Clone, Copy, Debug)]
struct Use {
    used: f64,
    /// Holding workers while waiting for something else than a core.
    waited: f64,
    /// The cores that the server may use, and those that others left it.
    cores: f64,
    left: f64,
}

impl Auto {
    /// A budget to begin with.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self {
            budget,
            wanted: budget,
            trial: None,
            rates: Rates(VecDeque::new()),
            past: VecDeque::new(),
            hot: 0,
            wait: 0,
            patience: PATIENCE,
            refused: false,
        }
    }

    /// The budget.
    #[must_use]
    pub const fn budget(&self) -> usize {
        self.budget
    }

    /// Whether the last growth was given back because it answered no more requests: what they wait
    /// for is at its limit, not this server.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.refused
    }

    /// Decides from the account of a second. A figure that is unknown moves nothing.
    pub fn decide(&mut self, account: &Account, room: &Room) -> usize {
        let most = room.most.max(1);
        let least = room.least.clamp(1, most);
        let budget = self.budget;
        self.wait = self.wait.saturating_sub(1);
        let load = Load::of(account, budget);
        self.remember(&load);
        self.judge(&load);
        self.hot = if load.is_hot { self.hot + 1 } else { 0 };
        if self.hot >= HOT || load.is_throttled {
            // A budget beyond twice the knee keeps nobody from being served.
            let floor = self.knee().map_or(budget, |knee| whole(2.0 * knee)).max(least);
            if self.budget > floor {
                self.wanted = whole(self.budget as f64 * SHRINK).max(floor);
                self.trial = None;
            }
            self.hot = 0;
        } else if load.wants_more
            && load.uses.is_some()
            && (load.is_idle || self.rests())
            && self.trial.is_none()
            && self.wait == 0
            && self.wanted <= self.budget
        {
            self.grow(most);
        }
        if !load.is_queued {
            self.refused = false;
        }
        self.wanted = self.wanted.max(least);
        self.budget = self.wanted.min(most);
        if self.budget != budget {
            // The second in which it came about belongs to neither side.
            self.rates = Rates::default();
        }
        self.budget
    }

    fn remember(&mut self, load: &Load) {
        self.past.extend(load.uses);
        if self.past.len() > COSTED {
            let _oldest = self.past.pop_front();
        }
        if self.trial.is_none() {
            match load.is_full {
                true => self.rates.take(load.rate),
                false => self.rates = Rates::default(),
            }
        }
    }

    /// How many workers keep the cores at work that the server may use, others being away: those
    /// who have them now may be gone in the next second.
    fn knee(&self) -> Option<f64> {
        let cores = self.past.back()?.cores;
        let sum = |of: fn(&Use) -> f64| self.past.iter().map(of).sum::<f64>();
        let (cpu, wait) = (sum(|it| it.used), sum(|it| it.waited));
        Some(Cost { cpu: cpu.max(1.0), queued: 0.0, wait }.knee(cores))
    }

    /// Whether cores that are left for the server rest.
    fn rests(&self) -> bool {
        let used = self.past.iter().rev().take(REST).map(|it| it.used).sum::<f64>();
        used < USED * self.left(REST) * 1e6
    }

    /// The cores that were left for the server in so many last seconds, in sum.
    fn left(&self, seconds: usize) -> f64 {
        self.past.iter().rev().take(seconds).map(|it| it.left).sum()
    }

    fn grow(&mut self, most: usize) {
        let knee = self.knee();
        let beyond = knee.map_or(0, |knee| whole(2.0 * knee));
        let budget = self.budget as f64;
        let is_far = knee.is_some_and(|knee| knee >= FAR * budget);
        let wanted = whole(budget * if is_far { GROW_FAR } else { GROW }).max(self.budget + 1);
        let grown = wanted.min(beyond).min(most);
        if grown > self.budget {
            let (before, rates) = (self.budget, self.rates.clone());
            let left = self.left(rates.0.len()) / rates.0.len().max(1) as f64;
            self.trial = Some(Trial { before, rates, left, grown, seconds: 0, odd: 0 });
            self.wanted = grown;
        }
    }

    /// Judges growth by the whole seconds that can be compared with those before it: the second in
    /// which it came about belongs to neither side, and one in which fewer were at work than before
    /// it, children were still starting or others took more of the cores, tells of these and not of
    /// the growth.
    fn judge(&mut self, load: &Load) {
        let Some(trial) = &mut self.trial else { return };
        trial.seconds += 1;
        // What it brought is answered when the first requests that came with it have ended.
        if trial.seconds < 2 + load.held_s() {
            return;
        }
        let is_served = load.busy >= FULL * trial.before as f64;
        let enough = (GAIN * trial.growth()).max(LEAST_GAIN);
        // More answers in spite of fewer cores come of the growth.
        let is_left = load.uses.is_none_or(|it| it.left >= LEFT * trial.left)
            || load.rate >= trial.rates.mean() * (1.0 + enough);
        if is_served && is_left && (load.is_full || !load.is_queued) {
            self.rates.take(load.rate);
            let (gain, chance) = self.rates.gain_over(&trial.rates);
            // What is kept in error is not taken back, what is given back is tried again.
            let is_clear = gain - enough >= SURE * chance || enough - gain >= chance;
            // Where the room changes all the time, no seconds are alike.
            trial.odd += 1;
            if !is_clear && self.rates.0.len() < JUDGED && trial.odd < LATE {
                return;
            }
            self.refused = gain < enough;
            if self.refused {
                (self.wanted, self.wait) = (trial.before, self.patience);
                self.patience = (self.patience * 2).min(MOST_PATIENCE);
            } else if is_clear {
                self.patience = PATIENCE;
            }
        } else {
            trial.odd += 1;
            if trial.odd < LATE {
                return;
            }
            (self.wanted, self.wait) = (trial.before, PATIENCE);
        }
        self.trial = None;
    }
}

impl Trial {
    /// By what part of it the budget grew.
    fn growth(&self) -> f64 {
        self.grown as f64 / self.before.max(1) as f64 - 1.0
    }
}

impl Rates {
    fn take(&mut self, rate: f64) {
        self.0.push_back(rate);
        if self.0.len() > JUDGED {
            let _oldest = self.0.pop_front();
        }
    }

    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }

    /// How much more was answered than then, in parts of it, and by how much that may be off (its
    /// standard error).
    fn gain_over(&self, then: &Self) -> (f64, f64) {
        let (now, before) = (self.mean().max(1e-9), then.mean().max(1e-9));
        let squares = |rates: &Self, mean: f64| {
            rates.0.iter().map(|rate| (rate / mean - 1.0).powi(2)).sum::<f64>()
        };
        let (here, there) = (self.0.len() as f64, then.0.len() as f64);
        let seen = squares(self, now) + squares(then, before);
        let spread = (seen + CHANCE.powi(2)) / (here + there - 1.0).max(1.0);
        let gain = now / before;
        (gain - 1.0, gain * (spread * (1.0 / here.max(1.0) + 1.0 / there.max(1.0))).sqrt())
    }
}

/// What an account says to this law.
struct Load {
    /// Requests answered in a second.
    rate: f64,
    /// Workers at work, on the average.
    busy: f64,
    /// Whether these are all.
    is_full: bool,
    uses: Option<Use>,
    is_queued: bool,
    is_hot: bool,
    is_throttled: bool,
    /// Whether requests hardly wait for a core.
    is_idle: bool,
    wants_more: bool,
}

impl Load {
    /// For how many whole seconds a request holds its worker (Little's law), up to the longest.
    fn held_s(&self) -> u32 {
        (self.busy / self.rate.max(1e-9)).min(LONGEST) as u32
    }

    fn of(account: &Account, budget: usize) -> Self {
        let value = |figure| account.value(figure).unwrap_or(0.0);
        let queued = value(Figure::Queue) + value(Figure::RunnableMilli) / 1000.0;
        let is_queued = queued >= 1.0;
        let busy = value(Figure::BusyMilli) / 1000.0;
        let is_full = busy >= FULL * budget as f64;
        // Microseconds in a second, of all requests together: no number of answers is needed, so
        // that a few slow requests tell as much as many fast ones.
        let used = account.rate(Figure::CpuUs);
        let queued_us = account.rate(Figure::RunQueueUs).unwrap_or(0.0)
            + account.rate(Figure::QueueUs).unwrap_or(0.0);
        let waited = used.map(|used| queued_us / used.max(1.0));
        let held_us = busy * 1e6;
        let cores = account.value(Figure::CoresMilli).zip(cores_left(account));
        let uses = used.zip(cores).map(|(used, (milli, left))| Use {
            used,
            waited: (held_us - used - queued_us).max(0.0),
            cores: milli / 1000.0,
            left,
        });
        let is_working = used.is_some_and(|used| used >= LEAST_USE);
        let throttled = account.rate(Figure::ThrottledUs).unwrap_or(0.0);
        let is_throttled = throttled > 50_000.0;
        let is_pressed =
            account.of(Figure::MemoryPressure).is_some_and(|pressure| pressure >= PRESSURE);
        Self {
            rate: account.rate(Figure::Completions).unwrap_or(0.0),
            busy,
            is_full,
            uses,
            is_queued,
            is_hot: is_working && waited.is_some_and(|waited| waited > 1.0),
            is_throttled,
            is_idle: waited.is_some_and(|waited| waited < IDLE),
            wants_more: is_queued && is_full && !is_throttled && !is_pressed,
        }
    }
}

/// A number of workers: rounded up, so that growth by a part of one is growth.
fn whole(value: f64) -> usize {
    value.ceil().max(0.0) as usize
}

#[cfg(test)]
mod mixed;
#[cfg(test)]
mod tests;
