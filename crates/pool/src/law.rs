//! The law of a pool: how many children it should have. Children are started as soon as fewer
//! workers than MinSpare are idle beyond the demand, all that are missing at once. They are parked
//! when more than MaxSpare are idle beyond the largest demand of a time window, which grows each
//! time it turns out to have been too short. Connections in the accept queue are part of the
//! demand, so that a pool with only busy workers knows how many it lacks.

use crate::census::{Census, Child, Stage};
use crate::limits::Limits;
use crate::peak::{Peak, REACH};
use crate::queue::Queue;
use crate::service_time::ServiceTime;
use std::cmp::Reverse;
use std::time::Duration;

/// The shortest window for the largest demand.
const LEAST_WINDOW: Duration = Duration::from_secs(30);

/// A child that does not serve after this time is not counted on any more.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A child that has been parked for this time without being needed ends.
const PARKED_TIMEOUT: Duration = Duration::from_secs(60);

/// After this time without a premature retirement, the window is halved.
const RELAX_AFTER: Duration = Duration::from_secs(7200);

/// How many children are started at once, or as many as exist if those are more.
const BATCH: usize = 8;

/// The law, with what it remembers.
#[derive(Debug, Clone)]
pub struct Law {
    queue: Queue,
    service_time: ServiceTime,
    peak: Peak,
    window: Duration,
    /// When the window last changed, or the law started.
    window_since: Duration,
    began: Option<Duration>,
    retirement: Option<Retirement>,
}

/// The last time that children were parked, until that is judged.
#[derive(Debug, Clone, Copy)]
struct Retirement {
    when: Duration,
    /// How many workers were kept.
    kept: usize,
}

/// What is to be done. The numbers are [`Child::id`]s.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Parked children that accept again.
    pub unpark: Vec<u64>,
    /// How many children to fork.
    pub fork: usize,
    /// Children that accept no more connections.
    pub park: Vec<u64>,
    /// Parked children that end.
    pub drain: Vec<u64>,
    /// The figures behind the decision.
    pub reading: Reading,
}

/// The figures of a decision, for the status page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Workers that exist or are starting.
    pub supply: usize,
    /// Workers that are needed, for what is served and what waits.
    pub demand: usize,
    /// The part of the demand that waits in the kernel's queue.
    pub queue: usize,
    /// The largest demand of the window.
    pub peak: usize,
}

impl Default for Law {
    fn default() -> Self {
        Self {
            queue: Queue::default(),
            service_time: ServiceTime::default(),
            peak: Peak::default(),
            window: LEAST_WINDOW,
            window_since: Duration::ZERO,
            began: None,
            retirement: None,
        }
    }
}

impl Law {
    /// Decides at this time. It is called at every tick, and at once when a child has died or has
    /// run out of workers.
    pub fn decide(&mut self, census: &Census<'_>, limits: &Limits) -> Decision {
        let now = census.now;
        let began = *self.began.get_or_insert(now);
        let reading = self.read(census, limits);
        let mut decision = Decision { reading, ..Decision::default() };
        let wanted = reading.demand.saturating_add(limits.min_spare);
        let surplus = reading.supply.saturating_sub(reading.peak);
        if reading.supply < wanted {
            self.grow(census, limits, wanted, &mut decision);
        } else if surplus > limits.high() && now.saturating_sub(began) >= self.window {
            let count = (surplus - limits.high()).div_ceil(limits.threads.max(1));
            decision.park = fewest_busy(census, count);
            let kept = reading.supply - decision.park.len() * limits.threads;
            self.retirement = Some(Retirement { when: now, kept });
        }
        decision.drain = census
            .children
            .iter()
            .filter(|child| child.stage == Stage::Parked)
            .filter(|child| {
                let is_old = child.generation != census.generation;
                is_old || now.saturating_sub(child.since) > PARKED_TIMEOUT
            })
            .map(|child| child.id)
            .filter(|id| !decision.unpark.contains(id))
            .collect();
        self.relax(now);
        decision
    }

    fn read(&mut self, census: &Census<'_>, limits: &Limits) -> Reading {
        let now = census.now;
        let starting =
            census.children.iter().filter(|child| is_starting_in_time(child, now)).count();
        let serving = count(census, Stage::Serving).saturating_mul(limits.threads);
        let working = census.children.iter().map(|child| child.working).sum::<usize>();
        let busy = census.children.iter().map(|child| child.working.min(limits.threads)).sum();
        let service = self.service_time.take(now, busy, census.answered);
        let queue = self.queue.take(now, census.queue, (starting, serving), service);
        let supply = census.children.iter().map(|child| match child.stage {
            Stage::Serving => limits.threads,
            Stage::Starting if is_starting_in_time(child, now) => limits.threads,
            Stage::Starting => 0,
            Stage::Parked | Stage::Draining => child.working,
        });
        let demand = working.saturating_add(queue);
        self.peak.take(now, demand);
        Reading { supply: supply.sum(), demand, queue, peak: self.peak.over(now, self.window) }
    }

    /// Unparks and starts the children that are missing, up to a batch at once.
    fn grow(
        &mut self,
        census: &Census<'_>,
        limits: &Limits,
        wanted: usize,
        decision: &mut Decision,
    ) {
        let serving = count(census, Stage::Serving);
        let active = count(census, Stage::Starting) + serving;
        let missing = (wanted - decision.reading.supply).div_ceil(limits.threads.max(1));
        let taken = active + finishing(census, limits.threads);
        let room = limits.children.saturating_sub(taken).min(active.max(BATCH)).min(missing);
        let mut parked: Vec<&Child> = census
            .children
            .iter()
            .filter(|child| child.stage == Stage::Parked && child.generation == census.generation)
            .collect();
        parked.sort_by_key(|child| Reverse(child.id));
        decision.unpark = parked.iter().take(room).map(|child| child.id).collect();
        // Parked children of an old generation end at once, and do not count.
        let slots_left = limits.slots.saturating_sub(active + parked.len());
        decision.fork = (room - decision.unpark.len()).min(slots_left);
        let started = decision.unpark.len() + decision.fork;
        if started > 0 {
            let workers = serving.saturating_mul(limits.threads);
            self.queue.note_started(census.now, decision.reading.queue, workers);
        }
        self.judge(census.now, wanted);
    }

    /// A retirement that kept fewer workers than are needed now was premature, whatever else has
    /// happened. The death of a child, or its end by MaxConnectionsPerChild, is no proof of that.
    fn judge(&mut self, now: Duration, wanted: usize) {
        let Some(retirement) = self.retirement else { return };
        if now.saturating_sub(retirement.when) <= REACH && wanted > retirement.kept {
            self.retirement = None;
            self.window = (self.window * 2).min(REACH);
            self.window_since = now;
        }
    }

    fn relax(&mut self, now: Duration) {
        if now.saturating_sub(self.window_since) >= RELAX_AFTER {
            self.window = (self.window / 2).max(LEAST_WINDOW);
            self.window_since = now;
        }
    }
}

/// How many children are in this stage.
fn count(census: &Census<'_>, stage: Stage) -> usize {
    census.children.iter().filter(|child| child.stage == stage).count()
}

/// How many children the remaining work of draining children of this generation amounts to. It
/// counts towards what the pool may have at once; otherwise MaxConnectionsPerChild would defeat
/// MaxRequestWorkers. Less than a whole child does not delay a successor: a pool of one child with
/// many threads continues beside its last requests.
fn finishing(census: &Census<'_>, threads: usize) -> usize {
    let ending = census
        .children
        .iter()
        .filter(|child| child.stage == Stage::Draining && child.generation == census.generation);
    ending.map(|child| child.working.min(threads)).sum::<usize>() / threads.max(1)
}

/// Whether a child is starting and can be expected to serve soon.
fn is_starting_in_time(child: &Child, now: Duration) -> bool {
    child.stage == Stage::Starting && now.saturating_sub(child.since) <= START_TIMEOUT
}

/// The children that cost least to end: those of an old generation, then the least busy, then those
/// with the fewest kept connections, then the newest.
fn fewest_busy(census: &Census<'_>, count: usize) -> Vec<u64> {
    let mut serving: Vec<&Child> =
        census.children.iter().filter(|child| child.stage == Stage::Serving).collect();
    serving.sort_by_key(|child| {
        (child.generation == census.generation, child.working, child.kept, Reverse(child.id))
    });
    serving.iter().take(count).map(|child| child.id).collect()
}

#[cfg(test)]
mod tests;
