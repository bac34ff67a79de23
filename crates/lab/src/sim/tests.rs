//! Compares the simulation with formulas and with known figures of Apache's laws.

use super::*;
use crate::load::Think;
use evenkeel_pool::Limits;

fn fixed(workers: usize) -> Directives {
    Directives {
        start_servers: 1,
        limits: Limits { threads: workers, min_spare: 1, max_spare: 9999, children: 1, slots: 1 },
        backlog: usize::MAX,
        ..Directives::default()
    }
}

fn mean(histogram: &hdrhistogram::Histogram<u64>) -> f64 {
    histogram.mean() / 1e9
}

fn near(seen: f64, want: f64, share: f64) {
    assert!((seen / want - 1.0).abs() < share, "{seen} is not within {share} of {want}");
}

/// Erlang's C (Kleinrock, Queueing Systems 1, section 3.5): the mean wait for one of c workers.
#[test]
fn an_open_load_waits_as_m_m_c() {
    for (c, rate) in [(1_usize, 7.0), (4, 32.0), (16, 135.0)] {
        let service = 0.1;
        let setup = Setup {
            law: Which::Fixed,
            directives: fixed(c),
            load: Load::parse(&format!("open:{rate}")).unwrap(),
            cpu: Think::None,
            wait: Think::Exponential(service),
            seconds: 3_000_000.0 / rate,
            ..Setup::default()
        };
        let a = rate * service;
        let want = erlang_c(c, a) * service / (c as f64 - a);
        near(mean(&simulate(&setup).waited), want, 0.02);
    }
}

/// Erlang's C: the probability that a request waits for one of c workers with the offered load a.
fn erlang_c(c: usize, a: f64) -> f64 {
    let blocked = (1..=c).fold(1.0, |blocked, n| a * blocked / (n as f64 + a * blocked));
    blocked / (1.0 - a / c as f64 * (1.0 - blocked))
}

/// Two stations in tandem: what leaves an M/M/c queue is a Poisson stream (Burke), so that the pool
/// behind the server is an M/M/c queue of its own (the same book, section 4.8). The server has so
/// many workers that the ones whose requests are in the pool do not lack.
#[test]
fn a_pool_behind_the_server_waits_as_a_queue_of_its_own() {
    for (c, rate) in [(1_usize, 7.0), (4, 32.0), (16, 135.0)] {
        let service = 0.1;
        let (cpu, wait) = (Think::None, Think::Exponential(service));
        let setup = Setup {
            law: Which::Fixed,
            directives: fixed(100_000),
            load: Load::parse(&format!("open:{rate}")).unwrap(),
            cpu: Think::None,
            wait: Think::Exponential(0.05),
            application: Some(Application { workers: c, cpu, wait }),
            seconds: 1_000_000.0 / rate,
            ..Setup::default()
        };
        let seen = simulate(&setup);
        let a = rate * service;
        let waits = erlang_c(c, a) * service / (c as f64 - a);
        near(mean(&seen.queued), waits, 0.04);
        near(mean(&seen.response), 0.05 + waits + service, 0.03);
        near(seen.pool_utilisation, a / c as f64, 0.02);
        assert!(mean(&seen.waited) < 1e-6, "the server has workers enough");
    }
}

/// A closed load of two stations, the pool and the clients' pauses: scripts that wait are bounded
/// by the workers, and scripts that burn by the cores, however many workers there are.
#[test]
fn a_pool_is_bounded_by_workers_or_by_cores() {
    let of = |workers, cpu, wait| {
        let setup = Setup {
            law: Which::Fixed,
            directives: fixed(1000),
            load: Load::parse("64").unwrap(),
            cpu: Think::None,
            wait: Think::None,
            application: Some(Application { workers, cpu, wait }),
            cores: 2.0,
            seconds: 200.0,
            ..Setup::default()
        };
        simulate(&setup).answered as f64 / setup.seconds
    };
    for workers in [8, 32] {
        near(of(workers, Think::None, Think::Fixed(0.2)), workers as f64 / 0.2, 0.02);
        near(of(workers, Think::Fixed(0.02), Think::None), 2.0 / 0.02, 0.02);
    }
}

/// A child that is killed takes its requests out of the pool's queue, and their scripts run on.
#[test]
fn requests_of_a_dead_child_are_not_run_by_the_pool() {
    let (cpu, wait) = (Think::None, Think::Fixed(0.5));
    let setup = Setup {
        directives: Directives { start_servers: 2, ..Directives::default() },
        load: Load::parse("64").unwrap(),
        wait: Think::None,
        cpu: Think::None,
        application: Some(Application { workers: 4, cpu, wait }),
        mishaps: vec![(20.0, Mishap::Kill)],
        seconds: 60.0,
        ..Setup::default()
    };
    let seen = simulate(&setup);
    // Up to four scripts are in vain.
    assert!((468..=480).contains(&seen.answered), "{}", seen.answered);
    assert!((1..=64).contains(&seen.lost), "{}", seen.lost);
    assert!(seen.pool_utilisation > 0.98, "{}", seen.pool_utilisation);
}

/// The machine repairman (the same book, section 3.8): clients with pauses, and c workers.
#[test]
fn a_closed_load_is_served_as_by_repairmen() {
    let (clients, workers, service, think) = (40_usize, 8_usize, 0.1, 0.4);
    let setup = Setup {
        law: Which::Fixed,
        directives: fixed(workers),
        load: Load::parse(&clients.to_string()).unwrap(),
        think: Think::Exponential(think),
        cpu: Think::None,
        wait: Think::Exponential(service),
        seconds: 8000.0,
        ..Setup::default()
    };
    // The probability of each number of clients at the workers, and from these the rate of answers.
    let mut chance = vec![1.0];
    for n in 1..=clients {
        let coming = (clients - n + 1) as f64 / think;
        let going = n.min(workers) as f64 / service;
        chance.push(chance[n - 1] * coming / going);
    }
    let busy = |(n, p): (usize, &f64)| n.min(workers) as f64 * p;
    let sum: f64 = chance.iter().sum();
    let rate = chance.iter().enumerate().map(busy).sum::<f64>() / sum / service;
    near(simulate(&setup).answered as f64 / setup.seconds, rate, 0.02);
}

/// M/G/1 with processor sharing: the mean depends only on the load (the same book, section 4.4).
#[test]
fn a_core_is_shared_evenly() {
    let setup = Setup {
        law: Which::Fixed,
        directives: fixed(100_000),
        load: Load::parse("open:70").unwrap(),
        cpu: Think::Exponential(0.01),
        wait: Think::None,
        cores: 1.0,
        seconds: 30_000.0,
        ..Setup::default()
    };
    let outcome = simulate(&setup);
    near(mean(&outcome.response), 0.01 / 0.3, 0.03);
    near(outcome.utilisation, 0.7, 0.02);
}

fn of_2002(law: Which, start_s: f64) -> Outcome {
    simulate(&Setup { law, start_s, ..Setup::default() })
}

/// The table in the design: the load of 2002 with the settings of 2002. The difference is up to one
/// second, depending on when the parent looks.
#[test]
fn the_laws_of_apache_do_what_is_known_of_them() {
    let quick = of_2002(Which::Apache2002, 0.5);
    assert_eq!((quick.forks + 1, quick.retired), (8, 0));
    assert!((2.9..5.5).contains(&quick.full_s.unwrap()), "{:?}", quick.full_s);
    let slow = of_2002(Which::Apache2002, 3.0);
    assert_eq!((slow.forks + 1, slow.retired), (16, 7));
    assert!((6.0..8.5).contains(&slow.full_s.unwrap()), "{:?}", slow.full_s);
    let quick = of_2002(Which::Apache24, 0.5);
    assert_eq!((quick.forks + 1, quick.retired), (8, 0));
    let slow = of_2002(Which::Apache24, 3.0);
    assert_eq!((slow.forks + 1, slow.retired), (8, 0));
    assert!((20.0..26.0).contains(&slow.full_s.unwrap()), "{:?}", slow.full_s);
}

#[test]
fn our_law_serves_everybody_as_soon_as_children_can_be_ready() {
    for start_s in [0.5, 3.0] {
        let ours = of_2002(Which::Evenkeel, start_s);
        assert_eq!((ours.forks + 1, ours.retired, ours.never_served), (8, 0, 0));
        // MinSpare and one child, before clients arrive and after that.
        assert!((64..128).contains(&ours.most_beyond), "{}", ours.most_beyond);
        assert!(ours.full_s.unwrap() < start_s + 0.5, "{:?}", ours.full_s);
    }
}

/// Real clients do not all arrive between two readings of the queue.
#[test]
fn clients_that_come_one_after_the_other_are_served_after_one_start() {
    let setup = Setup {
        load: Load::parse("ramp:0..390/400ms").unwrap(),
        wait: Think::Exponential(0.24),
        start_s: 3.0,
        seconds: 20.0,
        ..Setup::default()
    };
    let ours = simulate(&setup);
    assert_eq!((ours.forks + 1, ours.retired), (8, 0));
    assert!(ours.full_s.unwrap() < 4.0, "{:?}", ours.full_s);
}

/// As in the server's own parent: a bucket with only one child would stall with it.
#[test]
fn every_bucket_may_have_two_children() {
    let limits = Limits { threads: 5, min_spare: 5, max_spare: 100, children: 4, slots: 4 };
    let setup = Setup {
        buckets: 4,
        directives: Directives { start_servers: 4, limits, ..Directives::default() },
        load: Load::parse("200").unwrap(),
        wait: Think::Fixed(1.0),
        seconds: 20.0,
        ..Setup::default()
    };
    assert_eq!(simulate(&setup).forks, 4);
}
