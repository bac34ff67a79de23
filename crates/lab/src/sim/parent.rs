//! The parents that a simulation compares: Evenkeel's, which is the law of the room `pool` itself,
//! and Apache's at three times. Each decides from a census what to start and to end.

use evenkeel_pool::{Census, Decision, Law, Limits, Reading, Stage};
use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// A law by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Evenkeel's.
    Evenkeel,
    /// Apache 2.0 as of 2002: it does not see children that are starting, and children accept
    /// connections for which no worker is free.
    Apache2002,
    /// Apache 2.2: a child accepts connections only for free workers.
    Apache22,
    /// Apache 2.4: starting children count as idle.
    Apache24,
    /// The number of children never changes.
    Fixed,
}

impl Which {
    /// The law with that name on the command line.
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|law| law.name() == name)
    }

    /// All laws, Evenkeel's first.
    pub fn all() -> [Self; 5] {
        [Self::Evenkeel, Self::Apache2002, Self::Apache22, Self::Apache24, Self::Fixed]
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Evenkeel => "evenkeel",
            Self::Apache2002 => "2002",
            Self::Apache22 => "2.2",
            Self::Apache24 => "2.4",
            Self::Fixed => "fixed",
        }
    }

    /// Whether a child accepts a connection only if one of its workers is free.
    pub fn gates(self) -> bool {
        self != Self::Apache2002
    }

    /// Whether kept connections are closed while others wait.
    pub fn is_fair(self) -> bool {
        self == Self::Evenkeel
    }
}

/// The parent of one bucket.
#[derive(Debug)]
pub enum Parent {
    /// Evenkeel's.
    Law(Box<Law>),
    /// Apache's.
    Apache(Apache),
    /// A parent that does nothing.
    Fixed,
}

/// perform_idle_server_maintenance of Apache's worker (server/mpm/worker/worker.c): once a second
/// one child ends if too many workers are idle, and 1, 2, 4 ... 32 start if too few are.
#[derive(Debug)]
pub struct Apache {
    counts_starting: bool,
    rate: usize,
}

/// Apache's MAX_SPAWN_RATE.
const MOST_AT_ONCE: usize = 32;

impl Parent {
    /// The parent for a law.
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

    /// The time between two ticks. Evenkeel's parent looks more often while connections wait.
    pub fn tick(&self, waiting: bool) -> Duration {
        match self {
            Self::Law(_) if waiting => Duration::from_millis(30),
            Self::Law(_) => Duration::from_millis(100),
            Self::Apache(_) | Self::Fixed => Duration::from_secs(1),
        }
    }

    /// How soon after a tick a child without a free worker can wake it.
    pub fn wakes_within(&self) -> Option<Duration> {
        matches!(self, Self::Law(_)).then_some(Duration::from_millis(10))
    }

    /// Decides what to start and to end.
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
            // Whichever child reads the pipe first ends, so it can be any of them.
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
