//! The parents that a simulation compares: ours, which is the law of the pool room itself, and
//! Apache's of three times. A census comes in, what to start and to end goes out.

use evenkeel_pool::{Census, Decision, Law, Limits, Reading, Stage};
use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// A law by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Ours.
    Evenkeel,
    /// Apache 2.0 as of 2002: starting children are not seen, and children take connections for
    /// which no worker is free.
    Apache2002,
    /// Apache 2.2: a child takes connections only for workers that are free.
    Apache22,
    /// Apache 2.4: starting children count as idle.
    Apache24,
    /// The number of children stays what it is at the start.
    Fixed,
}

impl Which {
    /// By its name on the command line.
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|law| law.name() == name)
    }

    /// All of them, ours first.
    pub fn all() -> [Self; 5] {
        [Self::Evenkeel, Self::Apache2002, Self::Apache22, Self::Apache24, Self::Fixed]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Evenkeel => "evenkeel",
            Self::Apache2002 => "2002",
            Self::Apache22 => "2.2",
            Self::Apache24 => "2.4",
            Self::Fixed => "fixed",
        }
    }

    /// Whether a child takes a connection only when a worker of its own is free.
    pub fn gates(self) -> bool {
        self != Self::Apache2002
    }

    /// Whether kept-alive connections give way to those that wait.
    pub fn is_fair(self) -> bool {
        self == Self::Evenkeel
    }
}

/// One bucket's parent.
#[derive(Debug)]
pub enum Parent {
    /// Ours.
    Law(Box<Law>),
    /// Apache's.
    Apache(Apache),
    /// Does nothing.
    Fixed,
}

/// perform_idle_server_maintenance of Apache's worker (server/mpm/worker/worker.c): once a second
/// one child ends where too many workers are idle, and 1, 2, 4 ... 32 start where too few are.
#[derive(Debug)]
pub struct Apache {
    counts_starting: bool,
    rate: usize,
}

/// MAX_SPAWN_RATE of Apache.
const MOST_AT_ONCE: usize = 32;

impl Parent {
    /// The parent of this name.
    pub fn new(which: Which) -> Self {
        match which {
            Which::Evenkeel => Self::Law(Box::default()),
            Which::Apache2002 | Which::Apache22 => {
                Self::Apache(Apache { counts_starting: false, rate: 1 })
            }
            Which::Apache24 => Self::Apache(Apache { counts_starting: true, rate: 1 }),
            Which::Fixed => Self::Fixed,
        }
    }

    /// How long it sleeps: while connections wait, ours looks more often.
    pub fn tick(&self, waiting: bool) -> Duration {
        match self {
            Self::Law(_) if waiting => Duration::from_millis(30),
            Self::Law(_) => Duration::from_millis(100),
            Self::Apache(_) | Self::Fixed => Duration::from_secs(1),
        }
    }

    /// How soon after a tick it can be woken by a child that has no worker left.
    pub fn wakes_within(&self) -> Option<Duration> {
        matches!(self, Self::Law(_)).then_some(Duration::from_millis(10))
    }

    /// Decides.
    pub fn decide(
        &mut self,
        census: &Census<'_>,
        limits: &Limits,
        random: &mut ChaCha8Rng,
    ) -> Decision {
        match self {
            Self::Law(law) => law.decide(census, limits),
            Self::Apache(apache) => apache.decide(census, limits, random),
            Self::Fixed => Decision::default(),
        }
    }
}

impl Apache {
    fn decide(
        &mut self,
        census: &Census<'_>,
        limits: &Limits,
        random: &mut ChaCha8Rng,
    ) -> Decision {
        let serving = || census.children.iter().filter(|child| child.stage == Stage::Serving);
        let starting =
            census.children.iter().filter(|child| child.stage == Stage::Starting).count();
        let mut idle: usize =
            serving().map(|child| limits.threads.saturating_sub(child.working)).sum();
        let working: usize = census.children.iter().map(|child| child.working).sum();
        if self.counts_starting {
            idle += starting * limits.threads;
        }
        let reading = Reading { supply: working + idle, demand: working, ..Reading::default() };
        let mut decision = Decision { reading, ..Decision::default() };
        let free = limits.children.saturating_sub(census.children.len());
        if idle > limits.max_spare {
            // Whoever reads the pipe first ends: any of them.
            let count = serving().count();
            let unlucky = serving().nth(random.random_range(0..count.max(1)));
            decision.drain.extend(unlucky.map(|child| child.id));
            self.rate = 1;
        } else if idle < limits.min_spare && free > 0 {
            decision.fork = self.rate.min(free);
            self.rate = (self.rate * 2).min(MOST_AT_ONCE);
        } else {
            self.rate = 1;
        }
        decision
    }
}
