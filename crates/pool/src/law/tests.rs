//! The law against a pool whose clients are a fluid: at each tick every worker that is ready works
//! as long as clients are left, the rest of them queue. The simulator of the load lab runs it
//! against single requests. `PROPTEST_CASES=1000000` runs a million loads in place of ten thousand.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// A pool without clients of its own.
struct Pool {
    law: Law,
    limits: Limits,
    children: Vec<Child>,
    now: Duration,
    /// How long a child needs to be ready.
    start: Duration,
    next: u64,
    /// Requests that have ended: none, where clients are a fluid.
    answered: u64,
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
            answered: 0,
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
        let census = Census {
            now,
            generation: 0,
            children: &self.children,
            queue: left,
            answered: self.answered,
        };
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

    /// Lets so many ticks pass. Where nothing stirs any more, those until something may are left
    /// out: the law would see the same in each of them, and do nothing.
    fn run(&mut self, ticks: u32, tick: Duration, clients: usize) {
        let (mut left, mut quiet, mut before) = (ticks, 0, Reading::default());
        while left > 0 {
            let decision = self.pass(tick, clients);
            left -= 1;
            let reading = decision.reading;
            let stirs = decision != Decision { reading: before, ..Decision::default() };
            quiet = if stirs || self.count(Stage::Starting) > 0 { 0 } else { quiet + 1 };
            before = reading;
            if quiet >= QUIET {
                // The last of them passes as any other, and leaves its marks.
                let skipped = self.quiet_ticks(left, tick, reading).saturating_sub(1);
                self.now += tick * skipped;
                left -= skipped;
            }
        }
    }

    fn run_tick_by_tick(&mut self, ticks: u32, tick: Duration, clients: usize) {
        for _ in 0..ticks {
            let _decision = self.pass(tick, clients);
        }
    }

    /// How many of the next ticks see what this one saw, by the clocks of the law.
    fn quiet_ticks(&self, left: u32, tick: Duration, reading: Reading) -> u32 {
        let began = self.law.began.unwrap_or_default();
        let settled = self.now - began >= self.law.window;
        let stirs = |ticks: u32| {
            let now = self.now + tick * ticks;
            let peak = self.law.peak.over(now, self.law.window).max(reading.demand);
            peak != reading.peak
                || now - self.law.window_since >= RELAX_AFTER
                || (!settled && now - began >= self.law.window)
                || self
                    .children
                    .iter()
                    .any(|child| child.stage == Stage::Parked && now - child.since > PARKED_TIMEOUT)
        };
        // Each of these comes once and stays, so that the first tick that stirs is found by halves.
        let (mut quiet, mut stirring) = (0, left + 1);
        while stirring - quiet > 1 {
            let middle = quiet + (stirring - quiet) / 2;
            if stirs(middle) {
                stirring = middle;
            } else {
                quiet = middle;
            }
        }
        quiet
    }
}

/// Requests that come at an even rate, whether or not they are answered, each for the same time.
struct Stream {
    a_second: u64,
    service: Duration,
    began: Duration,
    now: Duration,
    taken: usize,
    serving: usize,
    /// The longest that one has waited for a worker.
    waited: Duration,
    /// How many requests a worker took at which moment.
    begun: VecDeque<(Duration, usize)>,
}

impl Stream {
    /// Lets the stream run for so long; gives what queues in the end. The law looks every 100 ms,
    /// every 30 ms while a queue stands, and at once where one begins to stand.
    fn run(&mut self, pool: &mut Pool, long: Duration) -> usize {
        let (end, mut queue) = (self.now + long, 0);
        while self.now < end {
            self.now += Duration::from_millis(10);
            let now = self.now;
            let passed_ms = u64::try_from((now - self.began).as_millis()).unwrap();
            let all_ms = self.a_second * passed_ms;
            let arrived = usize::try_from(all_ms / 1000).unwrap();
            while let Some((_, count)) =
                self.begun.pop_front_if(|(when, _)| now - *when >= self.service)
            {
                self.serving -= count;
                pool.answered += count as u64;
            }
            let ready = |child: &&Child| {
                let started = child.stage == Stage::Starting && now - child.since >= pool.start;
                started || child.stage == Stage::Serving
            };
            let workers = pool.children.iter().filter(ready).count() * pool.limits.threads;
            let begun = (arrived - self.taken).min(workers.saturating_sub(self.serving));
            if begun > 0 {
                let first_ms = (self.taken as u64 + 1) * 1000 / self.a_second;
                let first = self.began + Duration::from_millis(first_ms);
                self.waited = self.waited.max(now.saturating_sub(first));
            }
            self.taken += begun;
            self.serving += begun;
            self.begun.push_back((now, begun));
            let stood = queue > 0;
            queue = arrived - self.taken;
            let pause = if queue > 0 { TICK * 3 / 10 } else { TICK };
            let passed = now - pool.now;
            if passed >= pause || (queue > 0 && !stood) {
                let _decision = pool.pass(passed, self.serving + queue);
            }
        }
        queue
    }
}

/// After so many equal ticks the queue's readings are all the same, and what children were started
/// for is forgotten.
const QUIET: u32 = 5;

/// A queue is noticed within this, with what it may grow by once it was.
const NOTICED_MS: u64 = 400;

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

/// Ten thousand loads; of the dearest one in so many. Where PROPTEST_CASES is set, proptest takes
/// that number of each.
fn config(share: u32) -> ProptestConfig {
    ProptestConfig { cases: 10_000 / share, failure_persistence: None, ..Default::default() }
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

    /// Clients that wait for their answers and come one after the other: as long after the last
    /// as it was since the first, all are counted but a sixteenth at most, and served by children
    /// that start together.
    #[test]
    fn a_crowd_is_served_after_one_start(
        limits in limits(),
        clients in 20..2000_usize,
        start in 1000..5000_u64,
        share in 0..100_u64,
    ) {
        let limits = Limits { children: 40_000, slots: 40_000, ..limits };
        let mut pool = Pool::new(limits, 1, Duration::from_millis(start));
        pool.run(100, TICK, 0);
        let come_ms = share * start / 300;
        for look in 1..=(2 * come_ms + start + 600) / 30 {
            let come = clients * usize::try_from(look * 30).unwrap();
            let come = come.checked_div(usize::try_from(come_ms).unwrap()).unwrap_or(clients);
            let decision = pool.pass(TICK * 3 / 10, come.min(clients));
            let active = pool.count(Stage::Starting) + pool.count(Stage::Serving);
            let most = clients + limits.min_spare + limits.threads;
            prop_assert!(decision.fork == 0 || active * limits.threads < most);
        }
        let served = pool.count(Stage::Serving) * limits.threads;
        prop_assert!(served + clients / 16 >= clients, "{served} of {clients}");
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

proptest! {
    #![proptest_config(config(10))]

    /// A step of requests that come whether or not they are answered: nobody waits longer than
    /// the last children take to start that it needs, and these are started as soon as the queue
    /// is noticed and has grown for a service time. Beyond what the rate and MinSpare need there
    /// are two children, those for what comes within a service time and the 0.4 s in which the
    /// queue is noticed and may grow, and those for MinSpare once more, since what has queued
    /// while children started takes the spare ones too. What is too much is parked, and never
    /// called back.
    #[test]
    fn a_step_of_arrivals_starts_no_more_than_its_bound_and_parks_it_once(
        (threads, a_second) in prop_oneof![Just(1_usize), 2..100_usize]
            .prop_flat_map(|threads| (Just(threads), 10..(50 * threads as u64).min(2000))),
        min_spare in 1..100_usize,
        max_spare in 0..300_usize,
        start in 0..9000_u64,
        service in (2..100_u64).prop_map(|hundredths| hundredths * 10),
    ) {
        let children = 40_000;
        let limits = Limits { threads, min_spare, max_spare, children, slots: children };
        let mut pool = Pool::new(limits, 1, Duration::from_millis(start));
        pool.run(10, TICK, 0);
        let service_time = Duration::from_millis(service);
        let mut stream = Stream {
            a_second,
            service: service_time,
            began: pool.now,
            now: pool.now,
            taken: 0,
            serving: 0,
            waited: Duration::ZERO,
            begun: VecDeque::new(),
        };
        let mut seconds = 0;
        // Until then the requests of an even rate have not all been in progress at once.
        let full = service_time.as_secs() + 2;
        while stream.run(&mut pool, REST) > 0
            || pool.count(Stage::Starting) > 0
            || seconds < full
        {
            seconds += 1;
            prop_assert!(seconds < 300, "the queue is not empty after five minutes");
        }
        let longest = Duration::from_millis(start + service + NOTICED_MS);
        prop_assert!(stream.waited <= longest, "{:?} of {longest:?}", stream.waited);
        let steady = (a_second * service / 1000) as usize;
        let needed = (steady + 1 + min_spare).div_ceil(threads);
        let noticed = (a_second * (NOTICED_MS + service) / 1000) as usize;
        let bound = 2 + (noticed + min_spare) / threads;
        let beyond = pool.most_active.saturating_sub(needed);
        prop_assert!(beyond <= bound, "{beyond} of {bound}");
        let forks = pool.forks;
        pool.run(7200, REST, steady);
        prop_assert_eq!((pool.forks, pool.regrets), (forks, 0));
    }
}

proptest! {
    #![proptest_config(config(200))]

    /// What is left out of a long load would have changed nothing.
    #[test]
    fn quiet_ticks_are_left_out_without_a_difference(
        limits in limits(),
        start in 0..5000_u64,
        levels in prop::collection::vec((0..2000_usize, 1..2000_u32), 1..5),
        tick in prop_oneof![Just(TICK), Just(REST)],
    ) {
        let mut each = Pool::new(limits, 1, Duration::from_millis(start));
        let mut some = Pool::new(limits, 1, Duration::from_millis(start));
        for (level, ticks) in levels {
            each.run_tick_by_tick(ticks, tick, level);
            some.run(ticks, tick, level);
            let seen = |pool: &Pool| {
                let law = &pool.law;
                let memory = (law.window, law.window_since, law.retirement.map(|it| it.when));
                let peaks = [0, 30, 600, 3600].map(|s| law.peak.over(pool.now, REST * s));
                (pool.now, pool.forks, pool.parks.clone(), pool.regrets, memory, peaks)
            };
            prop_assert_eq!(seen(&each), seen(&some));
            prop_assert_eq!(&each.children, &some.children);
        }
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

/// Who waits for the first start is no crowd: that comes when the first child has answered, while
/// its spare ones still start, and is counted whole then.
#[test]
fn a_crowd_that_comes_when_the_first_child_is_ready_is_full_after_one_start_more() {
    let start = Duration::from_secs(3);
    for (threads, children) in [(64, 16), (1, 1024)] {
        let limits = Limits { threads, children, slots: children, ..reports() };
        let mut pool = Pool::new(limits, 0, start);
        pool.fork(1);
        pool.run(31, TICK, 2);
        assert!(pool.count(Stage::Serving) > 0 && pool.count(Stage::Starting) > 0);
        pool.run(36, TICK, 390);
        assert!(pool.count(Stage::Serving) * threads >= 390, "{}", pool.count(Stage::Serving));
    }
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
    let census =
        Census { now: pool.now, generation: 1, children: &pool.children, queue: 0, answered: 0 };
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
    #![proptest_config(config(1))]

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
            let children = &pool.children;
            let census = Census { now, generation: 0, children, queue, answered: 0 };
            let fork = pool.law.decide(&census, &limits).fork;
            pool.fork(fork);
            forked += fork;
        }
        prop_assert!(left + forked * limits.threads < (limits.children + 1) * limits.threads);
        let children = &pool.children;
        let now = TICK * 20;
        let old = Census { now, generation: 1, children, queue, answered: 0 };
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
        let census =
            Census { now: TICK, generation: 0, children: &pool.children, queue: 5, answered: 0 };
        assert_eq!(pool.law.decide(&census, &limits).fork, forks, "{working}");
    }
}
