//! How many children there are. A census of the scoreboard and of the kernel's accept queues goes
//! to the law of the pool room; what it decides goes to the children. The claims of children are
//! taken as numbers and nothing else.

use std::time::Duration;

use evenkeel_pool::{Census, Child, Law, Limits, Stage};
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

/// More than this no child has, whatever it claims.
const MOST_CLAIMED: u64 = 1 << 20;

/// The law of this server's pool, and when it is asked next.
#[derive(Default)]
pub(crate) struct Sizing {
    law: Law,
    next_us: u64,
    /// The demand that it last saw, in workers.
    demand: usize,
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
        self.sizing.demand = decision.reading.demand;
        self.sizing.next_us =
            now_us.saturating_add(if census.queue > 0 { QUEUE_TICK_US } else { TICK_US });
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

    /// The bounds of the law: those of the directives, as far as the scoreboard has lines. It has
    /// the size of the start, and half of it is for children that retire.
    fn bounds(&self) -> Limits {
        let lines = (self.board.layout().children / 2).max(1);
        let limits = self.current.limits.pool();
        Limits { children: limits.children.min(lines), slots: limits.slots.min(lines), ..limits }
    }

    /// When the law is asked next; `None` while it is not.
    pub(crate) fn next_sizing_us(&self) -> Option<u64> {
        self.is_sized().then_some(self.sizing.next_us)
    }

    /// A child that died is replaced at once, if it is needed.
    pub(crate) fn size_now(&mut self) {
        self.sizing.next_us = 0;
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
