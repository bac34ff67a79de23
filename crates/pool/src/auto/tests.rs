//! The budget against a server of a few equations: closed-loop clients, requests that use a core
//! and wait, an application that bears so many requests a second.

use super::*;
use proptest::prelude::*;

/// A server under a load.
#[derive(Clone, Copy, Debug)]
struct World {
    cores: f64,
    /// CPU time and waiting of a request, in microseconds.
    cpu: f64,
    wait: f64,
    clients: usize,
    /// The most requests a second that the application behind it bears.
    application: f64,
    /// Whether its workers are threads, of which those without a core wait for one.
    is_threaded: bool,
}

impl World {
    /// A second with this budget.
    fn second(&self, budget: usize) -> Account {
        let busy = self.clients.min(budget) as f64;
        let queue = self.clients.saturating_sub(budget) as u64;
        let alone = busy * 1e6 / (self.cpu + self.wait);
        let by_cores = self.cores * 1e6 / self.cpu;
        let rate = alone.min(by_cores).min(self.application);
        let queued = if by_cores <= alone.min(self.application) {
            (busy * 1e6 / rate - self.cpu - self.wait).max(0.0)
        } else {
            0.0
        };
        let on_run_queue = if self.is_threaded { queued } else { 0.0 };
        let amount = |each: f64| (rate * each) as u64;
        Account::default()
            .with(Figure::SpanUs, 1_000_000)
            .with(Figure::Completions, rate as u64)
            .with(Figure::CpuUs, amount(self.cpu))
            .with(Figure::RunQueueUs, amount(on_run_queue))
            .with(Figure::QueueUs, amount(queued - on_run_queue))
            .with(Figure::BusyMilli, (busy * 1000.0) as u64)
            .with(Figure::RunnableMilli, 0)
            .with(Figure::Queue, queue)
            .with(Figure::CoresMilli, (self.cores * 1000.0) as u64)
            .with(Figure::OthersUs, 0)
            .with(Figure::ThrottledUs, 0)
            .with(Figure::MemoryPressure, 0)
    }

    /// So many seconds of it; how often the budget changed.
    fn run(&self, auto: &mut Auto, room: &BudgetBounds, seconds: u32) -> u32 {
        (0..seconds)
            .filter(|_| {
                let before = auto.budget();
                auto.decide(&self.second(before), room) != before
            })
            .count() as u32
    }
}

const ROOM: BudgetBounds = BudgetBounds { least: 8, most: 20_000 };

const WAITING: World = World {
    cores: 2.0,
    cpu: 50.0,
    wait: 200_000.0,
    clients: 5_000,
    application: f64::INFINITY,
    is_threaded: true,
};

#[test]
fn requests_that_wait_get_the_workers_that_they_need() {
    let mut auto = Auto::new(400);
    WAITING.run(&mut auto, &ROOM, 60);
    assert!(auto.budget() >= 5_000, "{}", auto.budget());
    assert!(!auto.is_growth_refused());
    let before = auto.budget();
    assert_eq!(WAITING.run(&mut auto, &ROOM, 600), 0, "from {before}");
}

#[test]
fn requests_that_take_long_are_waited_for_before_growth_is_judged() {
    let world = World { wait: 20e6, clients: 2_000, ..WAITING };
    let mut auto = Auto::new(256);
    // What was begun in each of the last twenty seconds' places, and ends now.
    let mut begun = VecDeque::from([256; 20]);
    for _ in 0..1_200 {
        let ended = begun.pop_front().unwrap_or(0) / 20;
        begun.push_back(auto.budget().min(world.clients));
        let account = world.second(auto.budget()).with(Figure::Completions, ended as u64);
        auto.decide(&account, &ROOM);
    }
    assert!(auto.budget() >= 2_000, "{}", auto.budget());
}

#[test]
fn a_saturated_application_does_not_make_it_run_away() {
    let world = World { application: 500.0, ..WAITING };
    let mut auto = Auto::new(400);
    let changes = world.run(&mut auto, &ROOM, 3_600);
    assert!((400..=800).contains(&auto.budget()), "{}", auto.budget());
    assert!(auto.is_growth_refused());
    // It looks again now and then, more and more seldom.
    assert!(changes <= 24, "{changes}");
}

#[test]
fn burning_work_shrinks_it_to_what_keeps_the_cores_at_work() {
    let world = World { cpu: 20_000.0, wait: 0.0, clients: 1_000, ..WAITING };
    let mut auto = Auto::new(256);
    world.run(&mut auto, &ROOM, 600);
    assert!(auto.budget() <= 16, "{}", auto.budget());
    // And it never grew into it either.
    let mut small = Auto::new(8);
    assert_eq!(world.run(&mut small, &ROOM, 600), 0);
}

#[test]
fn it_returns_after_a_spike_and_stands_still_at_rest() {
    let burning = World { cpu: 20_000.0, wait: 0.0, clients: 1_000, ..WAITING };
    let mut auto = Auto::new(400);
    burning.run(&mut auto, &ROOM, 300);
    WAITING.run(&mut auto, &ROOM, 300);
    assert!(auto.budget() >= 5_000, "{}", auto.budget());
    let rest = World { clients: 0, ..WAITING };
    assert_eq!(rest.run(&mut auto, &ROOM, 600), 0);
}

#[test]
fn threads_that_wait_for_each_other_while_cores_rest_keep_nobody_out() {
    // They wake by the same clock, and each waits for a core thrice as long as it uses one.
    let mut auto = Auto::new(400);
    for _ in 0..60 {
        let account = WAITING.second(auto.budget());
        let bunched = account.of(Figure::CpuUs).unwrap_or(0) * 3;
        auto.decide(&account.with(Figure::RunQueueUs, bunched), &ROOM);
    }
    assert!(auto.budget() >= 5_000, "{}", auto.budget());
    // Where the cores are at work, more threads would only wait longer.
    let busy = World { cpu: 10_000.0, clients: 1_000, ..WAITING };
    let mut auto = Auto::new(40);
    for _ in 0..60 {
        let account = busy.second(auto.budget());
        let bunched = account.of(Figure::CpuUs).unwrap_or(0) / 2;
        auto.decide(&account.with(Figure::RunQueueUs, bunched), &ROOM);
    }
    assert_eq!(auto.budget(), 40);
}

#[test]
fn a_second_in_which_clients_pause_judges_nothing() {
    let steady = World { clients: 600, ..WAITING };
    let pause = World { clients: 250, ..WAITING };
    for period in 2..7 {
        let mut auto = Auto::new(400);
        for second in 0..60 {
            let world = if second % period == period - 1 { pause } else { steady };
            auto.decide(&world.second(auto.budget()), &ROOM);
            assert!(!auto.is_growth_refused(), "after {second} s of {period}");
        }
        assert!(auto.budget() >= 600, "{} where every {period}th is a pause", auto.budget());
    }
}

#[test]
fn growth_is_judged_once_its_workers_are_there() {
    let mut auto = Auto::new(400);
    let mut budgets = vec![400; 4];
    for second in 0..90 {
        // A child takes four seconds to start.
        budgets.push(auto.budget());
        let there = budgets[second..].iter().copied().min().unwrap_or(400);
        auto.decide(&World { clients: 1_500, ..WAITING }.second(there), &ROOM);
        assert!(!auto.is_growth_refused(), "after {second} s");
    }
    assert!(auto.budget() >= 1_500, "{}", auto.budget());
}

#[test]
fn room_that_was_short_for_a_while_costs_no_trials() {
    let mut auto = Auto::new(400);
    let short = BudgetBounds { most: 30, ..ROOM };
    WAITING.run(&mut auto, &short, 20);
    assert_eq!(auto.budget(), 30);
    // Nor does room that comes back little by little.
    for most in (60..=390).step_by(30) {
        let account = WAITING.second(auto.budget());
        assert_eq!(auto.decide(&account, &BudgetBounds { most, ..ROOM }), most);
    }
    let rest = World { clients: 5, ..WAITING };
    assert_eq!(auto.decide(&rest.second(390), &ROOM), 400);
}

#[test]
fn growth_into_a_load_that_has_gone_is_given_back() {
    let mut auto = Auto::new(400);
    assert!(auto.decide(&WAITING.second(400), &ROOM) > 400);
    let rest = World { clients: 100, ..WAITING };
    rest.run(&mut auto, &ROOM, MAX_UNCLEAR);
    assert!(auto.budget() > 400);
    rest.run(&mut auto, &ROOM, 1);
    assert_eq!((auto.budget(), auto.is_growth_refused()), (400, false));
}

#[test]
fn a_budget_beyond_the_need_is_let_be_where_only_others_are_at_work() {
    // Half of the time goes to others, and what is in progress waits: no worker less would help.
    let mut auto = Auto::new(16_384);
    for _ in 0..600 {
        let account = World { clients: 10_000, ..WAITING }.second(auto.budget());
        let hot = account.of(Figure::CpuUs).unwrap_or(0) * 2;
        auto.decide(&account.with(Figure::RunQueueUs, hot), &ROOM);
    }
    assert!(auto.budget() >= 10_000, "{}", auto.budget());
}

#[test]
fn pressure_on_memory_freezes_growth_and_throttling_undoes_it() {
    let mut auto = Auto::new(400);
    for _ in 0..100 {
        let account = WAITING.second(auto.budget());
        auto.decide(&account.with(Figure::MemoryPressure, 2_000), &ROOM);
    }
    assert_eq!(auto.budget(), 400);
    // What nobody knows moves nothing.
    auto.decide(&Account::default(), &ROOM);
    assert_eq!(auto.budget(), 400);
    let without_cpu = Account::default()
        .with(Figure::SpanUs, 1_000_000)
        .with(Figure::Completions, 2_000)
        .with(Figure::BusyMilli, 400_000)
        .with(Figure::Queue, 4_600);
    auto.decide(&without_cpu, &ROOM);
    assert_eq!(auto.budget(), 400);
    let burning = World { cpu: 20_000.0, wait: 0.0, clients: 1_000, ..WAITING };
    (0..4 * COST_SECONDS).for_each(|_| {
        let throttled = burning.second(auto.budget()).with(Figure::ThrottledUs, 300_000);
        auto.decide(&throttled, &ROOM);
    });
    assert!(auto.budget() <= 16, "{}", auto.budget());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn it_keeps_within_its_room_and_settles(
        cores in 1.0..64.0_f64,
        cpu in 10.0..50_000.0_f64,
        wait in 0.0..2e6_f64,
        clients in 0_usize..30_000,
        bears in 10.0..1e6_f64,
        start in 1_usize..30_000,
        least in 1_usize..500,
        most in 1_usize..20_000,
        is_threaded: bool,
    ) {
        let room = BudgetBounds { least, most };
        let world = World { cores, cpu, wait, clients, application: bears, is_threaded };
        let mut auto = Auto::new(start);
        for _ in 0..300 {
            let budget = auto.decide(&world.second(auto.budget()), &room);
            prop_assert!((1..=most).contains(&budget));
        }
        // On a constant load it ends by standing still, but for a look now and then.
        let changes = world.run(&mut auto, &room, 900);
        prop_assert!(changes <= 12, "{} changes, at {}", changes, auto.budget());
    }

    #[test]
    fn the_room_holds_whatever_is_measured(
        figures in proptest::collection::vec(proptest::option::of(any::<u64>()), Figure::ALL.len()),
        start: u32,
        least: u16,
        most in 1_usize..100_000,
    ) {
        let account = Figure::ALL
            .into_iter()
            .zip(figures)
            .fold(Account::default(), |account, (figure, value)| account.with(figure, value));
        let mut auto = Auto::new(start as usize);
        for _ in 0..8 {
            let budget = auto.decide(&account, &BudgetBounds { least: least.into(), most });
            prop_assert!((1..=most).contains(&budget));
        }
    }
}
