//! `MaxRequestWorkers auto`: how many requests may be in progress at once. An account of each
//! second and the room that memory and descriptors leave come in, the budget goes out. It grows
//! while requests wait for a worker and cores have time, keeps what made more answers and gives
//! back what did not; it shrinks while requests mostly wait for a core. Pure: no clock, no I/O.

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
/// after.
const IDLE: f64 = 0.25;
const USED: f64 = 0.8;

/// It shrinks after so many seconds in a row in which requests waited longer for a core than they
/// used one.
const HOT: u32 = 3;

/// A server that uses less than so many microseconds of CPU time in a second does not wait for it.
const LEAST_USE: f64 = 50_000.0;

/// Growth is kept where it made this much more of the answers.
const GAIN: f64 = 1.03;

/// Growth that could not be judged for so many seconds is given back: the load has changed.
const LATE: u32 = 10;

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
    hot: u32,
    /// Seconds until growth is tried again, and how many it will be the next time.
    wait: u32,
    patience: u32,
    refused: bool,
}

/// Growth that is not judged yet.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The budget before.
    before: usize,
    /// Requests answered a second before.
    rate: f64,
    /// How many seconds have begun since.
    seconds: u32,
}

impl Auto {
    /// A budget to begin with.
    #[must_use]
    pub const fn new(budget: usize) -> Self {
        Self {
            budget,
            wanted: budget,
            trial: None,
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
        self.wait = self.wait.saturating_sub(1);
        let load = Load::of(account, self.budget);
        self.judge(&load);
        self.hot = if load.is_hot { self.hot + 1 } else { 0 };
        if self.hot >= HOT || load.is_throttled {
            // A budget beyond twice the knee keeps nobody from being served.
            let floor = load.knee.map_or(self.budget, |knee| whole(2.0 * knee)).max(least);
            if self.budget > floor {
                self.wanted = whole(self.budget as f64 * SHRINK).max(floor);
                self.trial = None;
            }
            self.hot = 0;
        } else if load.wants_more
            && self.trial.is_none()
            && self.wait == 0
            && self.wanted <= self.budget
        {
            self.grow(&load, most);
        }
        if !load.is_queued {
            self.refused = false;
        }
        self.wanted = self.wanted.max(least);
        self.budget = self.wanted.min(most);
        self.budget
    }

    fn grow(&mut self, load: &Load, most: usize) {
        let beyond = load.knee.map_or(0, |knee| whole(2.0 * knee));
        let budget = self.budget as f64;
        let is_far = load.knee.is_some_and(|knee| knee >= FAR * budget);
        let wanted = whole(budget * if is_far { GROW_FAR } else { GROW }).max(self.budget + 1);
        let grown = wanted.min(beyond).min(most);
        if grown > self.budget {
            self.trial = Some(Trial { before: self.budget, rate: load.rate, seconds: 0 });
            self.wanted = grown;
        }
    }

    /// Judges growth by the first whole second that can be compared with the one before it: the
    /// second in which it came about belongs to neither side, and one in which fewer were at work
    /// than before it, or children were still starting, tells of the load and not of the growth.
    fn judge(&mut self, load: &Load) {
        let Some(trial) = &mut self.trial else { return };
        trial.seconds += 1;
        let Trial { before, rate, seconds } = *trial;
        let is_alike = load.busy >= FULL * before as f64 && (load.is_full || !load.is_queued);
        if seconds >= 2 && is_alike && load.rate >= rate * GAIN {
            (self.refused, self.patience) = (false, PATIENCE);
        } else if seconds >= 2 && is_alike {
            (self.wanted, self.refused) = (before, true);
            self.wait = self.patience;
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
        } else if seconds > LATE {
            (self.wanted, self.wait) = (before, PATIENCE);
        } else {
            return;
        }
        self.trial = None;
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
    knee: Option<f64>,
    is_queued: bool,
    is_hot: bool,
    is_throttled: bool,
    wants_more: bool,
}

impl Load {
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
            + account.rate(Figure::LineUs).unwrap_or(0.0);
        let waited = used.map(|used| queued_us / used.max(1.0));
        let held_us = busy * 1e6;
        let cores = cores_left(account);
        let knee = used.zip(cores).map(|(used, cores)| {
            let cost = Cost {
                cpu: used.max(1.0),
                queued: 0.0,
                wait: (held_us - used - queued_us).max(0.0),
            };
            cost.knee(cores)
        });
        let is_working = used.is_some_and(|used| used >= LEAST_USE);
        let throttled = account.rate(Figure::ThrottledUs).unwrap_or(0.0);
        let is_throttled = throttled > 50_000.0;
        let is_pressed =
            account.of(Figure::MemoryPressure).is_some_and(|pressure| pressure >= PRESSURE);
        let rests = used.zip(cores).is_some_and(|(used, cores)| used < USED * cores * 1e6);
        let has_time = waited.is_some_and(|waited| waited < IDLE) || rests;
        Self {
            rate: account.rate(Figure::Completions).unwrap_or(0.0),
            busy,
            is_full,
            knee,
            is_queued,
            is_hot: is_working && waited.is_some_and(|waited| waited > 1.0),
            is_throttled,
            wants_more: is_queued && is_full && has_time && !is_throttled && !is_pressed,
        }
    }
}

/// A number of workers: rounded up, so that growth by a part of one is growth.
fn whole(value: f64) -> usize {
    value.ceil().max(0.0) as usize
}

#[cfg(test)]
mod tests;
