//! The number of children. A census of the scoreboard and of the accept queues goes to the pool's
//! law for each bucket, and its decision is applied: children are forked, parked or drained.
//! What children report is used as numbers only.

use std::time::Duration;

use evenkeel_pool::{Census, Child, Decision, Law, Limits, Stage};
use evenkeel_scoreboard::{ChildLine, Counter, Phase, Scoreboard};
use evenkeel_sys::clock;

use crate::change::State;
use crate::child::Command;
use crate::children::ChildEntry;
use crate::eviction::QueueHistory;
use crate::limits::Model;
use crate::parent::Parent;
use crate::settings::Server;

/// How often the law decides.
const TICK_US: u64 = 100_000;

/// How often it decides while connections wait to be accepted.
const QUEUE_TICK_US: u64 = 30_000;

/// How often it decides while nothing changes, and after how many decisions without a change that
/// begins. A child that runs out of credits wakes the parent earlier.
const REST_US: u64 = 1_000_000;
const REST_AFTER: u32 = 10;

/// The shortest time between two decisions, however often children ask for one.
const LEAST_TICK_US: u64 = 10_000;

/// The largest claim of a child that is believed.
const MOST_CLAIMED: u64 = 1 << 20;

/// The laws of the pool, one for each bucket, and the time of the next decision.
#[derive(Default)]
pub(crate) struct Sizing {
    buckets: Vec<Bucket>,
    last_us: u64,
    next_us: u64,
    /// How many decisions in a row changed nothing, with no queue and the same demand.
    quiet: u32,
}

#[derive(Default)]
struct Bucket {
    law: Law,
    /// The demand of its last decision, in workers.
    demand: usize,
    history: QueueHistory,
}

impl Sizing {
    /// Has the laws decide as soon as possible.
    pub(crate) fn run_soon(&mut self) {
        self.quiet = 0;
        self.next_us = self.next_us.min(self.last_us.saturating_add(LEAST_TICK_US));
    }

    /// The demand of the last decisions, in workers.
    fn demand(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.demand).sum()
    }

    /// Sets the time of the next decision; `waits` is whether connections wait, and `changes`
    /// whether anything was decided or the demand has changed.
    fn note(&mut self, now_us: u64, waits: bool, changes: bool) {
        self.quiet = if changes || waits { 0 } else { self.quiet.saturating_add(1) };
        self.last_us = now_us;
        self.next_us = now_us.saturating_add(match waits {
            true => QUEUE_TICK_US,
            false if self.quiet >= REST_AFTER => REST_US,
            false => TICK_US,
        });
    }
}

/// Whether children are to be forked, parked, unparked or drained.
fn has_changes(decision: &Decision) -> bool {
    let Decision { unpark, park, drain, fork, .. } = decision;
    *fork > 0 || [unpark, park, drain].iter().any(|children| !children.is_empty())
}

impl<S: Server> Parent<'_, S> {
    /// Has the laws decide when it is time, and applies their decisions. While a new
    /// generation starts, none decide, but children are asked to make room for connections that
    /// wait.
    pub(crate) fn size_pool(&mut self) {
        let now_us = clock::monotonic_us();
        if !self.is_watched() || now_us < self.sizing.next_us {
            return;
        }
        let is_sized = self.is_sized();
        let count = self.listeners.buckets();
        self.sizing.buckets.resize_with(count, Bucket::default);
        let needs: Vec<usize> = self.sizing.buckets.iter().map(|bucket| bucket.demand).collect();
        let bounds = self.bounds();
        let (mut waits, mut changes) = (false, false);
        for number in 0..count {
            let queue = self.listeners.queue_of(number);
            waits |= queue > 0;
            let limits = bounds.share(&needs, number);
            if is_sized && let Some(decision) = self.decide(number, queue, &limits, now_us) {
                changes |=
                    has_changes(&decision) || needs.get(number) != Some(&decision.reading.demand);
                self.apply(number, &decision, now_us);
            }
            changes |= self.make_room_in_bucket(number, queue, now_us);
        }
        self.sizing.note(now_us, waits, changes);
    }

    /// Asks children of a bucket to make room. True if its queue must be watched.
    fn make_room_in_bucket(&mut self, number: usize, queue: usize, now_us: u64) -> bool {
        let of = |bucket: &mut Bucket| std::mem::take(&mut bucket.history);
        let mut history = self.sizing.buckets.get_mut(number).map(of).unwrap_or_default();
        let watched = self.make_room(number, queue, &mut history, now_us);
        if let Some(bucket) = self.sizing.buckets.get_mut(number) {
            bucket.history = history;
        }
        watched
    }

    /// The law's decision for a bucket.
    fn decide(
        &mut self,
        number: usize,
        queue: usize,
        limits: &Limits,
        now_us: u64,
    ) -> Option<Decision> {
        let (board, count) = (self.board, self.listeners.buckets());
        // Children of earlier configurations may have had more buckets.
        let own = self.children.all().filter(|entry| entry.bucket % count == number);
        let children: Vec<Child> = own.map(|entry| counted(entry, board)).collect();
        let census = Census {
            now: Duration::from_micros(now_us),
            generation: u64::from(self.current.number),
            children: &children,
            queue,
            answered: self.answered() / count as u64,
        };
        let bucket = self.sizing.buckets.get_mut(number)?;
        let decision = bucket.law.decide(&census, limits);
        bucket.demand = decision.reading.demand;
        Some(decision)
    }

    /// The requests that were answered since the start, in all buckets. The sum wraps, so that a
    /// false claim of a child changes it only once.
    fn answered(&self) -> u64 {
        let lines = self.children.all().filter_map(|entry| self.board.child_line(entry.index));
        let living = lines.map(|line| line.read(Counter::Completions));
        living.fold(self.board.totals().accesses, u64::wrapping_add)
    }

    /// Applies a decision.
    fn apply(&mut self, bucket: usize, decision: &Decision, now_us: u64) {
        for (numbers, parked) in [(&decision.unpark, false), (&decision.park, true)] {
            for &number in numbers {
                self.children.park(number, parked, now_us);
            }
        }
        let kill_deadline_us = self.kill_deadline_us(now_us);
        self.children.retire_these(Command::Drain, kill_deadline_us, &decision.drain);
        self.fork(decision.fork, Some(bucket));
    }

    /// The bounds of the pool: those of the directives, within the table of children that was made
    /// at the start.
    fn bounds(&self) -> Limits {
        bounded(self.current.limits.pool(), self.budget.most(), self.children.table())
    }

    /// When the next decision is due; `None` if none is.
    pub(crate) fn next_sizing_us(&self) -> Option<u64> {
        self.is_watched().then_some(self.sizing.next_us)
    }

    /// Whether the queues are watched: if a connection holds its worker, clients may have to be
    /// evicted, even while the number of children does not change.
    fn is_watched(&self) -> bool {
        let holds = self.current.limits.model != Model::Event;
        self.is_sized() || holds && !self.state.is_stopping()
    }

    /// Has a needed child replaced at once after a death.
    pub(crate) fn size_now(&mut self) {
        (self.sizing.next_us, self.sizing.quiet) = (0, 0);
    }

    /// Whether the laws decide. While a new generation starts beside another, it has a
    /// number of children to reach. At the first start clients may wait already, and children that
    /// start slowly must start together, not one after another.
    fn is_sized(&self) -> bool {
        let settled = match &self.state {
            State::Serving | State::Checking(..) | State::Upgrading(_) => true,
            State::Changing(change) => change.is_first(),
            State::Stopping { .. } => false,
        };
        settled && !self.current.limits.fixed
    }

    /// How many children of a new generation serve before the old ones end: as many as the work in
    /// progress needs, plus MinSpare.
    pub(crate) fn wanted_at_first(&self) -> usize {
        let limits = &self.current.limits;
        if limits.fixed {
            return limits.start_servers;
        }
        let work = self.sizing.demand().saturating_add(limits.min_spare);
        let needed = work.div_ceil(limits.threads_per_child.max(1));
        needed.max(limits.start_servers).min(self.bounds().children).max(1)
    }
}

/// The bounds of the pool within a budget of workers, if there is one, and the table of children.
pub(crate) fn bounded(limits: Limits, budget: Option<usize>, table: usize) -> Limits {
    let budget = budget.unwrap_or(usize::MAX) / limits.threads.max(1);
    let children = limits.children.min(budget.max(1)).min(table);
    Limits { children, slots: limits.slots.min(table), ..limits }
}

/// A child's claim of a value that rises and falls, bounded so that the sum of all claims cannot
/// overflow.
pub(crate) fn claimed(line: ChildLine, counter: Counter) -> u64 {
    line.read(counter).min(MOST_CLAIMED)
}

/// A child in the form of the census.
fn counted<Site>(entry: &ChildEntry<Site>, board: Scoreboard) -> Child {
    let line = board.child_line(entry.index);
    let claim =
        |counter| usize::try_from(line.map_or(0, |line| claimed(line, counter))).unwrap_or(0);
    Child {
        id: entry.number,
        generation: u64::from(entry.generation.number),
        stage: match entry.phase {
            Phase::Starting => Stage::Starting,
            Phase::Running => Stage::Serving,
            Phase::Parked => Stage::Parked,
            Phase::Empty | Phase::Draining | Phase::Exiting => Stage::Draining,
        },
        since: Duration::from_micros(entry.phase_since_us),
        working: claim(Counter::Busy) + claim(Counter::Reserved) + claim(Counter::Runnable),
        kept: claim(Counter::KeepAlive),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sees_no_change_for_a_second_rests_until_somebody_pokes() {
        let mut sizing = Sizing::default();
        let mut now_us = 5_000_000;
        let mut wait = |sizing: &mut Sizing, waits, changes| {
            sizing.note(now_us, waits, changes);
            let wait = sizing.next_us - now_us;
            now_us = sizing.next_us;
            wait
        };
        for (waits, changes, first) in
            [(false, true, TICK_US), (true, false, QUEUE_TICK_US), (true, true, QUEUE_TICK_US)]
        {
            assert_eq!(wait(&mut sizing, waits, changes), first);
            for _ in 1..REST_AFTER {
                assert_eq!(wait(&mut sizing, false, false), TICK_US);
            }
            assert_eq!(wait(&mut sizing, false, false), REST_US);
            assert_eq!(wait(&mut sizing, false, false), REST_US);
        }
        sizing.run_soon();
        assert_eq!(sizing.next_us, sizing.last_us + LEAST_TICK_US);
        let now_us = sizing.next_us;
        sizing.note(now_us, false, false);
        assert_eq!(sizing.next_us, now_us + TICK_US);
    }
}
