//! The law: how many children a pool should have. Children are started as soon as fewer workers
//! than MinSpare stand ready beyond the demand, all that are missing at once; they are parked when
//! more than MaxSpare stand ready beyond the largest demand of a while, and that while grows each
//! time it turns out to have been too short. The queue before the workers is part of the demand, so
//! that a pool whose workers are all busy knows how many it lacks.

use crate::census::{Census, Child, Stage};
use crate::limits::Limits;
use crate::pace::Pace;
use crate::peak::{Peak, REACH};
use crate::queue::Queue;
use std::cmp::Reverse;
use std::time::Duration;

/// The shortest while whose largest demand children are kept for.
const LEAST_WINDOW: Duration = Duration::from_secs(30);

/// A child that is not ready after this long counts no more as one that will be.
const LATE: Duration = Duration::from_secs(10);

/// A child that was parked this long and not called back ends.
const PARKED: Duration = Duration::from_secs(60);

/// Without a regret for this long, the window is halved.
const CALM: Duration = Duration::from_secs(7200);

/// Children started at once, where there are fewer than these already; else as many as there are.
const BATCH: usize = 8;

/// The law with what it remembers.
#[derive(Debug, Clone)]
pub struct Law {
    queue: Queue,
    pace: Pace,
    peak: Peak,
    window: Duration,
    /// When the window last changed, or the law began.
    window_since: Duration,
    began: Option<Duration>,
    retired: Option<Retired>,
}

/// The last time that children were parked, until it is judged.
#[derive(Debug, Clone, Copy)]
struct Retired {
    when: Duration,
    /// How many workers were kept.
    kept: usize,
}

/// What is to be done. The numbers are those of [`Child::id`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Parked children to call back.
    pub unpark: Vec<u64>,
    /// How many children to fork.
    pub fork: usize,
    /// Children that shall take no more connections.
    pub park: Vec<u64>,
    /// Parked children that shall end.
    pub drain: Vec<u64>,
    /// What it was decided from.
    pub reading: Reading,
}

/// The figures of a decision, for the status page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Workers there are or will be in a moment.
    pub supply: usize,
    /// Workers that are wanted: for what is served and for what waits.
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
            pace: Pace::default(),
            peak: Peak::default(),
            window: LEAST_WINDOW,
            window_since: Duration::ZERO,
            began: None,
            retired: None,
        }
    }
}

impl Law {
    /// Decides for this moment. Called at every tick, and at once when a child has died or has
    /// no worker left.
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
            self.retired = Some(Retired { when: now, kept });
        }
        decision.drain = census
            .children
            .iter()
            .filter(|child| child.stage == Stage::Parked)
            .filter(|child| {
                let is_old = child.generation != census.generation;
                is_old || now.saturating_sub(child.since) > PARKED
            })
            .map(|child| child.id)
            .filter(|id| !decision.unpark.contains(id))
            .collect();
        self.relax(now);
        decision
    }

    fn read(&mut self, census: &Census<'_>, limits: &Limits) -> Reading {
        let now = census.now;
        let starting = census.children.iter().filter(|child| on_time(child, now)).count();
        let serving = count(census, Stage::Serving).saturating_mul(limits.threads);
        let working = census.children.iter().map(|child| child.working).sum::<usize>();
        let busy = census.children.iter().map(|child| child.working.min(limits.threads)).sum();
        let service = self.pace.take(now, busy, census.answered);
        let queue = self.queue.take(now, census.queue, (starting, serving), service);
        let supply = census.children.iter().map(|child| match child.stage {
            Stage::Serving => limits.threads,
            Stage::Starting if on_time(child, now) => limits.threads,
            Stage::Starting => 0,
            Stage::Parked | Stage::Draining => child.working,
        });
        let demand = working.saturating_add(queue);
        self.peak.take(now, demand);
        Reading { supply: supply.sum(), demand, queue, peak: self.peak.over(now, self.window) }
    }

    /// Calls back and starts what is missing, all at once up to a batch.
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
        // Those of an old generation end at once, and hold no live one back.
        let seats = limits.slots.saturating_sub(active + parked.len());
        decision.fork = (room - decision.unpark.len()).min(seats);
        let started = decision.unpark.len() + decision.fork;
        if started > 0 {
            let workers = serving.saturating_mul(limits.threads);
            self.queue.answer(census.now, decision.reading.queue, workers);
        }
        self.judge(census.now, wanted);
    }

    /// A retirement after which less was kept than is wanted now came too early, whatever else has
    /// happened since; a child that died or came to its MaxConnectionsPerChild proves nothing.
    fn judge(&mut self, now: Duration, wanted: usize) {
        let Some(retired) = self.retired else { return };
        if now.saturating_sub(retired.when) <= REACH && wanted > retired.kept {
            self.retired = None;
            self.window = (self.window * 2).min(REACH);
            self.window_since = now;
        }
    }

    fn relax(&mut self, now: Duration) {
        if now.saturating_sub(self.window_since) >= CALM {
            self.window = (self.window / 2).max(LEAST_WINDOW);
            self.window_since = now;
        }
    }
}

/// How many children there are of this stage.
fn count(census: &Census<'_>, stage: Stage) -> usize {
    census.children.iter().filter(|child| child.stage == stage).count()
}

/// How many whole children the work makes up that ending children of this generation still have:
/// it counts to what the pool may have at once, or MaxConnectionsPerChild would undo
/// MaxRequestWorkers. Less than a child's worth keeps no successor waiting: a pool of one child
/// with many threads goes on beside its last requests.
fn finishing(census: &Census<'_>, threads: usize) -> usize {
    let ending = census
        .children
        .iter()
        .filter(|child| child.stage == Stage::Draining && child.generation == census.generation);
    ending.map(|child| child.working.min(threads)).sum::<usize>() / threads.max(1)
}

/// Whether a child is starting and will be ready in a moment.
fn on_time(child: &Child, now: Duration) -> bool {
    child.stage == Stage::Starting && now.saturating_sub(child.since) <= LATE
}

/// The children whose end costs least: those of an old generation, then the least busy, then those
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
