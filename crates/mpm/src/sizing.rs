//! How many children there are. A census of the scoreboard and of the kernel's accept queues goes
//! to the law of the pool room; what it decides goes to the children. The claims of children are
//! taken as numbers and nothing else.

use std::time::Duration;

use evenkeel_pool::{Census, Child, Decision, Law, Limits, Stage};
use evenkeel_scoreboard::{Counter, Phase, Scoreboard};
use evenkeel_sys::clock;

use crate::change::State;
use crate::child::Command;
use crate::children::Entry;
use crate::parent::Parent;
use crate::settings::Server;

/// How often the law is asked.
const TICK_US: u64 = 100_000;

/// How often while connections wait to be accepted.
const QUEUE_TICK_US: u64 = 30_000;

/// How often while nothing changes, and after how many ticks without a change that begins: a
/// child that runs out of credits wakes the parent, who rests.
const REST_US: u64 = 1_000_000;
const REST_AFTER: u32 = 10;

/// Two decisions are no nearer to each other than this, however often children ask for one.
const LEAST_TICK_US: u64 = 10_000;

/// More than this no child has, whatever it claims.
const MOST_CLAIMED: u64 = 1 << 20;

/// The law of this server's pool, and when it is asked next.
#[derive(Default)]
pub(crate) struct Sizing {
    law: Law,
    last_us: u64,
    next_us: u64,
    /// How often in a row nothing was decided, with no queue and the same demand.
    quiet: u32,
    /// The demand that it last saw, in workers.
    demand: usize,
}

impl Sizing {
    /// Has the law asked as soon as may be.
    pub(crate) fn hurry(&mut self) {
        self.quiet = 0;
        self.next_us = self.next_us.min(self.last_us.saturating_add(LEAST_TICK_US));
    }

    /// Notes a decision and sets the time of the next.
    fn note(&mut self, now_us: u64, queue: usize, decision: &Decision) {
        let demand = decision.reading.demand;
        let acts =
            [&decision.unpark, &decision.park, &decision.drain].iter().any(|it| !it.is_empty())
                || decision.fork > 0;
        let changes = acts || queue > 0 || demand != self.demand;
        self.quiet = if changes { 0 } else { self.quiet.saturating_add(1) };
        self.demand = demand;
        self.last_us = now_us;
        self.next_us = now_us.saturating_add(match queue {
            0 if self.quiet >= REST_AFTER => REST_US,
            0 => TICK_US,
            _ => QUEUE_TICK_US,
        });
    }
}

impl<S: Server> Parent<'_, S> {
    /// Asks the law, when its time has come, and does what it says.
    pub(crate) fn size_pool(&mut self) {
        let now_us = clock::monotonic_us();
        if !self.is_sized() || now_us < self.sizing.next_us {
            return;
        }
        let generation = u64::from(self.current.number);
        let board = self.board;
        let children: Vec<Child> = self.children.all().map(|entry| counted(entry, board)).collect();
        let census = Census {
            now: Duration::from_micros(now_us),
            generation,
            children: &children,
            queue: self.listeners.queue(),
        };
        let decision = self.sizing.law.decide(&census, &self.bounds());
        self.sizing.note(now_us, census.queue, &decision);
        for (numbers, parked) in [(&decision.unpark, false), (&decision.park, true)] {
            for &number in numbers {
                self.children.park(number, parked, now_us);
            }
        }
        let bound_us = self.bound_us(now_us);
        self.children
            .retire(Command::Drain, bound_us, |entry| decision.drain.contains(&entry.number));
        self.fork(decision.fork);
    }

    /// The bounds of the law: those of the directives, as far as the table of children goes that
    /// was made at the start.
    fn bounds(&self) -> Limits {
        let lines = self.children.table();
        let limits = self.current.limits.pool();
        Limits { children: limits.children.min(lines), slots: limits.slots.min(lines), ..limits }
    }

    /// When the law is asked next; `None` while it is not.
    pub(crate) fn next_sizing_us(&self) -> Option<u64> {
        self.is_sized().then_some(self.sizing.next_us)
    }

    /// A child that died is replaced at once, if it is needed.
    pub(crate) fn size_now(&mut self) {
        (self.sizing.next_us, self.sizing.quiet) = (0, 0);
    }

    /// The law rules while nothing changes; while a new generation starts, it has a number of
    /// children to reach.
    fn is_sized(&self) -> bool {
        let settled = matches!(self.state, State::Serving | State::Checking(..));
        settled && !self.current.limits.fixed
    }

    /// How many children of a new generation serve before the old ones go: as many as the work in
    /// progress needs, with MinSpare beside it.
    pub(crate) fn wanted_at_first(&self) -> usize {
        let limits = &self.current.limits;
        if limits.fixed {
            return limits.start_servers;
        }
        let work = self.sizing.demand.saturating_add(limits.min_spare);
        let needed = work.div_ceil(limits.threads_per_child.max(1));
        needed.max(limits.start_servers).min(self.bounds().children).max(1)
    }
}

/// A child as the law counts it.
fn counted<Site>(entry: &Entry<Site>, board: Scoreboard) -> Child {
    let line = board.child_line(entry.index);
    let claim = |counter| {
        let claimed = line.map_or(0, |line| line.read(counter)).min(MOST_CLAIMED);
        usize::try_from(claimed).unwrap_or(0)
    };
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

    fn decided(demand: usize, fork: usize) -> Decision {
        let reading = evenkeel_pool::Reading { demand, ..Default::default() };
        Decision { reading, fork, ..Decision::default() }
    }

    #[test]
    fn who_sees_no_change_for_a_second_rests_until_somebody_pokes() {
        let mut sizing = Sizing::default();
        let mut now_us = 5_000_000;
        let mut wait = |sizing: &mut Sizing, queue, decision: &Decision| {
            sizing.note(now_us, queue, decision);
            let waits = sizing.next_us - now_us;
            now_us = sizing.next_us;
            waits
        };
        let quiet = decided(3, 0);
        assert_eq!(wait(&mut sizing, 0, &quiet), TICK_US);
        let waits: Vec<u64> = (0..REST_AFTER).map(|_| wait(&mut sizing, 0, &quiet)).collect();
        assert_eq!(waits.iter().filter(|wait| **wait == TICK_US).count(), 9);
        assert_eq!(waits.last(), Some(&REST_US));
        assert_eq!(wait(&mut sizing, 0, &quiet), REST_US);
        // Work that changes, children that are started and a queue each end the rest.
        for (queue, decision, waits) in [
            (0, decided(4, 0), TICK_US),
            (0, decided(4, 1), TICK_US),
            (1, decided(4, 0), QUEUE_TICK_US),
        ] {
            assert_eq!(wait(&mut sizing, queue, &decision), waits);
            for _ in 0..=REST_AFTER {
                wait(&mut sizing, 0, &decided(4, 0));
            }
            assert_eq!(wait(&mut sizing, 0, &decided(4, 0)), REST_US);
        }
        let rests_until = sizing.next_us;
        sizing.hurry();
        assert_eq!(sizing.next_us, sizing.last_us + LEAST_TICK_US);
        assert!(sizing.next_us < rests_until);
        let last_us = sizing.last_us;
        sizing.note(last_us + LEAST_TICK_US, 0, &decided(4, 0));
        assert_eq!(sizing.next_us, sizing.last_us + TICK_US);
    }
}
