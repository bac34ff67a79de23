//! The law against a pool whose clients are a fluid: at each tick every worker that is ready works
//! as long as clients are left, the rest of them queue. The simulator of the load lab runs it
//! against single requests. `PROPTEST_CASES=1000000` runs a million loads in place of ten thousand.

use super::*;
use proptest::prelude::*;

/// A pool without clients of its own.
struct Pool {
    law: Law,
    limits: Limits,
    children: Vec<Child>,
    now: Duration,
    /// How long a child needs to be ready.
    start: Duration,
    next: u64,
    forks: usize,
    parks: Vec<u64>,
    most_active: usize,
    most_taken: usize,
    regrets: usize,
}

impl Pool {
    fn new(limits: Limits, start_servers: usize, start: Duration) -> Self {
        let mut pool = Self {
            law: Law::default(),
            limits,
            children: Vec::new(),
            now: Duration::ZERO,
            start,
            next: 0,
            forks: 0,
            parks: Vec::new(),
            most_active: 0,
            most_taken: 0,
            regrets: 0,
        };
        pool.fork(start_servers);
        for child in &mut pool.children {
            child.stage = Stage::Serving;
        }
        pool
    }

    fn fork(&mut self, count: usize) {
        for _ in 0..count {
            self.children.push(Child {
                id: self.next,
                generation: 0,
                stage: Stage::Starting,
                since: self.now,
                working: 0,
                kept: 0,
            });
            self.next += 1;
        }
        self.forks += count;
    }

    fn count(&self, stage: Stage) -> usize {
        self.children.iter().filter(|child| child.stage == stage).count()
    }

    /// Lets `tick` pass with so many clients, all of them asking without a pause.
    fn pass(&mut self, tick: Duration, clients: usize) -> Decision {
        self.now += tick;
        let now = self.now;
        let mut left = clients;
        for child in &mut self.children {
            if child.stage == Stage::Starting && now - child.since >= self.start {
                (child.stage, child.since) = (Stage::Serving, now);
            }
            child.working = match child.stage {
                Stage::Serving => left.min(self.limits.threads),
                Stage::Starting | Stage::Parked | Stage::Draining => 0,
            };
            left -= child.working;
        }
        let census = Census { now, generation: 0, children: &self.children, queue: left };
        let window = self.law.window;
        let decision = self.law.decide(&census, &self.limits);
        self.regrets += usize::from(self.law.window > window);
        self.act(&decision);
        decision
    }

    fn act(&mut self, decision: &Decision) {
        for child in &mut self.children {
            let stage = if decision.unpark.contains(&child.id) {
                Stage::Serving
            } else if decision.park.contains(&child.id) {
                Stage::Parked
            } else if decision.drain.contains(&child.id) {
                Stage::Draining
            } else {
                continue;
            };
            (child.stage, child.since) = (stage, self.now);
        }
        self.children.retain(|child| child.stage != Stage::Draining);
        self.fork(decision.fork);
        self.parks.extend(&decision.park);
        let active = self.count(Stage::Starting) + self.count(Stage::Serving);
        self.most_active = self.most_active.max(active);
        self.most_taken = self.most_taken.max(active + self.count(Stage::Parked));
    }

    fn run(&mut self, ticks: u32, tick: Duration, clients: usize) {
        for _ in 0..ticks {
            let _decision = self.pass(tick, clients);
        }
    }
}

const TICK: Duration = Duration::from_millis(100);
const REST: Duration = Duration::from_secs(1);

fn limits() -> impl Strategy<Value = Limits> {
    (prop_oneof![Just(1_usize), 2..100_usize], 1..100_usize, 0..300_usize, 1..40_usize, 0..9_usize)
        .prop_map(|(threads, min_spare, max_spare, children, more)| Limits {
            threads,
            min_spare,
            max_spare,
            children,
            slots: children + more,
        })
}

/// Ten thousand loads, or as many as asked for; of those that last hours one in ten.
fn config(share: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = cases.unwrap_or(10_000) / share;
    ProptestConfig { cases, failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(config(1))]

    /// Clients that wait for their answers: whatever the step, however slowly children start.
    #[test]
    fn no_child_that_a_step_started_is_parked_and_none_is_superfluous(
        limits in limits(),
        before in 0..400_usize,
        after in 0..2000_usize,
        start in 0..5000_u64,
    ) {
        let mut pool = Pool::new(limits, 1, Duration::from_millis(start));
        pool.run(100, TICK, before);
        let (first, forks, parks) = (pool.next, pool.forks, pool.parks.len());
        for _ in 0..200 {
            let decision = pool.pass(TICK, after);
            if decision.fork > 0 {
                let active = pool.count(Stage::Starting) + pool.count(Stage::Serving);
                let supply = active * limits.threads;
                prop_assert!(supply < after + limits.min_spare + limits.threads);
            }
        }
        if after >= before {
            pool.run(200, REST, after);
            prop_assert!(pool.parks.iter().skip(parks).all(|&id| id < first));
            let full = (after + limits.min_spare).div_ceil(limits.threads).min(limits.children);
            let serving = pool.count(Stage::Serving);
            prop_assert!(serving >= full, "{serving} of {full}");
            prop_assert!(pool.forks - forks <= full);
        }
    }

    /// Random loads: a minute at each of several levels.
    #[test]
    fn limits_hold_and_what_is_kept_is_enough(
        limits in limits(),
        start in 0..12_000_u64,
        levels in prop::collection::vec(0..2000_usize, 1..8),
    ) {
        let mut pool = Pool::new(limits, 1, Duration::from_millis(start));
        for level in levels {
            for _ in 0..60 {
                let decision = pool.pass(REST, level);
                if !decision.park.is_empty() {
                    let kept = decision.reading.supply - decision.park.len() * limits.threads;
                    prop_assert!(kept >= decision.reading.peak + limits.min_spare);
                }
                prop_assert!(decision.fork == 0 || decision.park.is_empty());
            }
        }
        prop_assert!(pool.most_active <= limits.children);
        prop_assert!(pool.most_taken <= limits.slots);
    }

}

proptest! {
    #![proptest_config(config(10))]

    /// A load that comes back within an hour teaches the window to be long enough.
    #[test]
    fn a_periodic_load_is_learned(
        limits in limits(),
        start in 0..5000_u64,
        low in 0..200_usize,
        high in 200..2000_usize,
        up in 1..600_u32,
        down in 1..3600_u32,
    ) {
        let mut pool = Pool::new(limits, 1, Duration::from_millis(start));
        let mut passed = 0;
        while passed < 7200 {
            pool.run(up, REST, high);
            pool.run(down, REST, low);
            passed += up + down;
        }
        prop_assert!(pool.regrets <= 7, "{} regrets", pool.regrets);
    }
}

fn reports() -> Limits {
    Limits { threads: 64, min_spare: 64, max_spare: 192, children: 16, slots: 16 }
}

/// The load and the settings of 2002, with children that need three seconds: 390 clients are all
/// served once the first children are ready, and nothing is ever taken back.
#[test]
fn the_spike_of_2002_starts_what_it_needs_once() {
    let mut pool = Pool::new(reports(), 1, Duration::from_secs(3));
    pool.run(20, TICK, 0);
    pool.run(6000, TICK, 390);
    assert_eq!(pool.forks, 8);
    assert_eq!(pool.parks, [0_u64; 0]);
    let mut pool = Pool::new(reports(), 1, Duration::from_secs(3));
    pool.run(20, TICK, 0);
    pool.run(36, TICK, 390);
    assert_eq!(pool.count(Stage::Serving), 8);
}

/// What an hour of calm parks is called back without a fork.
#[test]
fn a_parked_child_is_called_back() {
    let mut pool = Pool::new(reports(), 1, Duration::ZERO);
    pool.run(40, REST, 900);
    pool.run(45, REST, 0);
    let (forks, parked) = (pool.forks, pool.count(Stage::Parked));
    assert!(parked > 5, "{parked}");
    pool.run(5, TICK, 900);
    assert_eq!((pool.forks, pool.count(Stage::Parked)), (forks, 0));
    assert_eq!(pool.regrets, 1);
}

#[test]
fn a_parked_child_that_nobody_calls_ends_after_a_minute() {
    let mut pool = Pool::new(reports(), 1, Duration::ZERO);
    pool.run(40, REST, 900);
    pool.run(45, REST, 0);
    pool.run(61, REST, 0);
    assert_eq!((pool.count(Stage::Parked), pool.count(Stage::Serving)), (0, 3));
}

/// Parked children of an old generation take no place that a new one needs.
#[test]
fn what_is_parked_of_an_old_generation_ends_and_holds_nobody_back() {
    let mut pool = Pool::new(Limits { slots: 8, children: 8, ..reports() }, 8, Duration::ZERO);
    pool.run(3, TICK, 0);
    for child in &mut pool.children {
        (child.stage, child.since) = (Stage::Parked, pool.now);
    }
    let census = Census { now: pool.now, generation: 1, children: &pool.children, queue: 0 };
    let decision = pool.law.decide(&census, &pool.limits);
    assert_eq!((decision.fork, decision.drain.len()), (1, 8));
    assert_eq!(decision.unpark, [0_u64; 0]);
}

/// A child that hangs while it starts is not waited for beyond ten seconds.
#[test]
fn a_child_that_never_becomes_ready_does_not_count() {
    let mut pool = Pool::new(Limits { slots: 40, children: 40, ..reports() }, 1, REST * 3600);
    pool.run(20, TICK, 100);
    let forks = pool.forks;
    pool.run(110, TICK, 100);
    assert!(pool.forks > forks);
}

/// A child that dies is replaced, and its death regrets no retirement.
#[test]
fn a_death_is_no_regret() {
    let mut pool = Pool::new(reports(), 1, Duration::ZERO);
    pool.run(40, REST, 900);
    pool.run(105, REST, 0);
    assert_eq!(pool.count(Stage::Serving), 3);
    pool.children.clear();
    pool.run(1, TICK, 0);
    assert_eq!(pool.count(Stage::Starting), 1);
    assert_eq!(pool.regrets, 0);
}

proptest! {
    #![proptest_config(config(10))]

    /// Children that come to their MaxConnectionsPerChild: what they still have is no more beside
    /// the others than MaxRequestWorkers allows, but for less than one child.
    #[test]
    fn children_that_end_with_work_take_the_place_of_others(
        limits in limits(),
        busy in prop::collection::vec(0..100_usize, 0..40),
        queue in 0..2000_usize,
    ) {
        let mut pool = Pool::new(limits, 0, Duration::ZERO);
        pool.fork(busy.len().min(limits.children));
        for (child, working) in pool.children.iter_mut().zip(&busy) {
            (child.stage, child.working) = (Stage::Draining, *working.min(&limits.threads));
        }
        let left: usize = pool.children.iter().map(|child| child.working).sum();
        let mut forked = 0;
        for tick in 1..20 {
            let now = TICK * tick;
            let census = Census { now, generation: 0, children: &pool.children, queue };
            let fork = pool.law.decide(&census, &limits).fork;
            pool.fork(fork);
            forked += fork;
        }
        prop_assert!(left + forked * limits.threads < (limits.children + 1) * limits.threads);
        let old = Census { now: TICK * 20, generation: 1, children: &pool.children, queue };
        prop_assert_eq!(finishing(&old, limits.threads), 0);
    }
}

/// A child with many threads has its successor beside its last requests, a full one has none where
/// the pool may have no more.
#[test]
fn the_only_child_has_a_successor_unless_it_ends_with_all_its_workers_taken() {
    let limits = Limits { threads: 4, min_spare: 1, max_spare: 4, children: 1, slots: 2 };
    for (working, forks) in [(0, 1), (3, 1), (4, 0), (1 << 20, 0)] {
        let mut pool = Pool::new(limits, 1, Duration::ZERO);
        (pool.children[0].stage, pool.children[0].working) = (Stage::Draining, working);
        let census = Census { now: TICK, generation: 0, children: &pool.children, queue: 5 };
        assert_eq!(pool.law.decide(&census, &limits).fork, forks, "{working}");
    }
}
