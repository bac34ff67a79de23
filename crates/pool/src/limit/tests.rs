//! Staged accounts, each with the limit that it must be given.

use super::*;

/// Ten seconds of a server with two cores and 400 workers: so many requests a second, the CPU time
/// of each in microseconds, and how many workers were busy on the average.
fn staged(rate: u64, cpu_us: u64, busy: u64) -> Account {
    Account::default()
        .with(Figure::SpanUs, 10_000_000)
        .with(Figure::Completions, rate * 10)
        .with(Figure::CpuUs, rate * 10 * cpu_us)
        .with(Figure::RunQueueUs, 0)
        .with(Figure::QueueUs, 0)
        .with(Figure::BlockedUs, 0)
        .with(Figure::OthersUs, 0)
        .with(Figure::ThrottledUs, 0)
        .with(Figure::BusyMilli, busy * 1000)
        .with(Figure::RunnableMilli, 0)
        .with(Figure::WritingMilli, 0)
        .with(Figure::Queue, 0)
        .with(Figure::Workers, 400)
        .with(Figure::CoresMilli, 2000)
        .with(Figure::Connections, 50)
        .with(Figure::Descriptors, 20_000)
        .with(Figure::Backlog, 4096)
        .with(Figure::BlockingThreads, 4)
        .with(Figure::MemoryLimit, 8 << 30)
        .with(Figure::MemoryFree, 4_u64 << 30)
        .with(Figure::MemoryPressure, 0)
        .with(Figure::Constraint, 0)
}

#[test]
fn a_server_at_rest_has_no_limit_and_no_maximum() {
    let at_rest = staged(0, 0, 0);
    assert_eq!(verdict(&at_rest), Verdict::default());
    // Others that use all cores are no limit of a server that has nothing to do.
    assert_eq!(verdict(&at_rest.with(Figure::OthersUs, 20_000_000)).limit, Limit::None);
    assert_eq!(verdict(&Account::default()), Verdict::default());
    // Five requests a second say nothing of what one costs.
    assert_eq!(verdict(&staged(5, 900, 0)).maximum, None);
}

#[test]
fn light_load_has_no_limit_but_a_maximum() {
    let told = verdict(&staged(100, 500, 0));
    assert_eq!(told.limit, Limit::None);
    assert_eq!((told.maximum, told.next), (Some(4000.0), Some((Limit::Cpu, 4000.0))));
}

#[test]
fn cores_at_work_are_the_cpu() {
    // 20 ms of CPU for each of 98 requests a second on two cores.
    let told = verdict(&staged(98, 20_000, 128));
    assert_eq!((told.limit, told.maximum), (Limit::Cpu, Some(100.0)));
    // A quota holds back what uses half of the cores.
    let throttled = staged(50, 20_000, 100).with(Figure::ThrottledUs, 4_000_000);
    assert_eq!(verdict(&throttled).limit, Limit::Cpu);
    // Others have most of the cores: what they leave is full, and what they would give up is more.
    let crowded = staged(20, 20_000, 3)
        .with(Figure::OthersUs, 16_000_000)
        .with(Figure::RunQueueUs, 16_000_000);
    let told = verdict(&crowded);
    assert_eq!((told.limit, told.maximum), (Limit::Cpu, Some(20.0)));
    let preferred = verdict(&crowded.with(Figure::RunQueueUs, 1_000_000));
    assert_eq!(preferred.maximum, Some(80.0));
}

#[test]
fn who_waits_for_something_else_is_not_held_back_by_others_on_the_cores() {
    // Others have what the server does not use, and each wake-up waits a little for a core.
    let crowded = staged(300, 200, 16)
        .with(Figure::Workers, 16)
        .with(Figure::Queue, 30)
        .with(Figure::OthersUs, 19_400_000)
        .with(Figure::RunQueueUs, 600_000);
    let told = verdict(&crowded);
    assert_eq!((told.limit, told.maximum.map(f64::round)), (Limit::Workers, Some(301.0)));
}

#[test]
fn work_in_line_for_a_core_is_no_wait() {
    // 200 requests at a time, of which two burn and the others stand in line for it.
    let burning = staged(98, 20_000, 200).with(Figure::QueueUs, 1_960_000_000);
    let cost = Cost::of(&burning).unwrap();
    assert!(cost.wait < 1_000_000.0 && cost.knee(2.0) < 10.0, "{cost:?}");
}

#[test]
fn requests_that_wait_are_bound_by_workers_once_these_are_taken() {
    // 400 workers, 200 ms each: 2,000 a second.
    let full = staged(2000, 50, 400).with(Figure::Queue, 100);
    let told = verdict(&full);
    assert_eq!((told.limit, told.maximum.map(f64::round)), (Limit::Workers, Some(2000.0)));
    assert_eq!(told.next, Some((Limit::Cpu, 40_000.0)));
    // Workers are free: each client waits for its own request.
    let told = verdict(&staged(500, 50, 100));
    assert_eq!((told.limit, told.maximum.map(f64::round)), (Limit::Wait, Some(2000.0)));
    assert_eq!(told.next.map(|(limit, _)| limit), Some(Limit::Workers));
    // All taken, and nobody stands in line: they are just enough.
    assert_eq!(verdict(&staged(2000, 50, 400)).limit, Limit::Wait);
    let refused = verdict(&full.with(Figure::Constraint, Constraint::NoGain as u64));
    assert_eq!((refused.limit, refused.maximum), (Limit::Application, Some(2000.0)));
}

#[test]
fn disks_clients_and_the_network_are_told_apart() {
    let held =
        staged(40, 100, 100).with(Figure::BlockedUs, 39_500_000).with(Figure::QueueUs, 900_000_000);
    assert_eq!(verdict(&held).limit, Limit::Disk);
    let slow = staged(40, 100, 1).with(Figure::WritingMilli, 60_000);
    assert_eq!(verdict(&slow).limit, Limit::Clients);
    let loaded = verdict(&staged(1000, 100, 3).with(Figure::NetworkMilli, 960));
    assert_eq!((loaded.limit, loaded.maximum.map(f64::round)), (Limit::Network, Some(1042.0)));
    assert_eq!(loaded.next, Some((Limit::Cpu, 20_000.0)));
}

#[test]
fn slow_readers_that_hold_workers_are_no_lack_of_workers() {
    // Prefork: a worker that sends is busy too, so that it can never send more than are busy.
    let full = staged(1000, 50, 400).with(Figure::Queue, 100);
    let slow = full.with(Figure::WritingMilli, 300_000);
    assert_eq!(verdict(&slow.with(Figure::RestingMilli, 0)).limit, Limit::Clients);
    assert_eq!(verdict(&slow).limit, Limit::Workers);
    let few = full.with(Figure::WritingMilli, 100_000);
    assert_eq!(verdict(&few.with(Figure::RestingMilli, 0)).limit, Limit::Workers);
}

#[test]
fn workers_that_a_kept_connection_holds_wait_for_nothing_of_a_request() {
    let kept = staged(100, 500, 100);
    let cost = Cost::of(&kept.with(Figure::RestingMilli, 99_000)).unwrap();
    assert!((cost.wait - 9_500.0).abs() < 1.0, "{cost:?}");
    assert_eq!(verdict(&kept).limit, Limit::Wait);
    assert_eq!(verdict(&kept.with(Figure::RestingMilli, 99_990)).limit, Limit::None);
}

#[test]
fn what_runs_out_is_named() {
    let light = staged(100, 100, 0);
    assert_eq!(verdict(&light.with(Figure::Connections, 19_500)).limit, Limit::Descriptors);
    assert_eq!(verdict(&light.with(Figure::MemoryPressure, 1500)).limit, Limit::Memory);
    assert_eq!(verdict(&light.with(Figure::MemoryFree, 100 << 20)).limit, Limit::Memory);
    // 200 clients wait for their second try, none is served; but nine do while 40 are.
    assert_eq!(verdict(&light.with(Figure::Refused, 2000)).limit, Limit::Backlog);
    assert_eq!(verdict(&staged(200, 50, 40).with(Figure::Refused, 90)).limit, Limit::Wait);
    assert_eq!(verdict(&light.with(Figure::Refused, 9)).limit, Limit::None);
    // What nobody knows is no limit.
    let unknown = light.with(Figure::Descriptors, None).with(Figure::MemoryPressure, None);
    assert_eq!(verdict(&unknown).limit, Limit::None);
}

#[test]
fn where_workers_follow_from_memory_it_is_the_memory() {
    let full = staged(2000, 50, 400).with(Figure::Queue, 100);
    for (constraint, limit) in
        [(Constraint::Memory, Limit::Memory), (Constraint::Descriptors, Limit::Descriptors)]
    {
        let told = verdict(&full.with(Figure::Constraint, constraint as u64));
        assert_eq!((told.limit, told.maximum.map(f64::round)), (limit, Some(2000.0)));
        let light = verdict(&staged(100, 50, 20).with(Figure::Constraint, constraint as u64));
        assert_eq!((light.limit, light.next.map(|(next, _)| next)), (Limit::Wait, Some(limit)));
    }
}

#[test]
fn descriptors_run_out_by_requests_in_progress() {
    // 60 clients, 100 ms each; 1,000 descriptors are taken by 10,000 requests a second.
    let waiting = staged(600, 10, 60).with(Figure::Workers, 4000);
    let few = waiting.with(Figure::Descriptors, 1000);
    let told = verdict(&few);
    assert_eq!((told.limit, told.next), (Limit::Wait, Some((Limit::Descriptors, 10_000.0))));
    let taken = verdict(&few.with(Figure::Connections, 980));
    assert_eq!((taken.limit, taken.maximum), (Limit::Descriptors, Some(10_000.0)));
    // 60 clients that read for 1.5 s each, beside 25 ms of work that holds a credit: 40 a second.
    let slow = staged(40, 100, 1).with(Figure::WritingMilli, 60_000);
    let told = verdict(&slow.with(Figure::Descriptors, 1000));
    assert_eq!(told.limit, Limit::Clients);
    assert_eq!(told.maximum.map(f64::round), Some(656.0));
    assert_eq!(told.next.map(|(limit, _)| limit), Some(Limit::Descriptors));
    // Where connections hold workers, these run out first.
    let held = verdict(&few.with(Figure::RestingMilli, 0));
    assert_eq!(held.next, Some((Limit::Workers, 40_000.0)));
}

#[test]
fn what_bears_no_more_is_named_while_workers_are_free() {
    let vain = staged(200, 50, 100).with(Figure::Constraint, Constraint::NoGain as u64);
    let told = verdict(&vain);
    assert_eq!((told.limit, told.maximum), (Limit::Application, Some(200.0)));
    // Nothing is known of the application of work that burns.
    let burning = staged(98, 20_000, 128).with(Figure::Constraint, Constraint::NoGain as u64);
    assert_eq!(verdict(&burning).limit, Limit::Cpu);
}

#[test]
fn every_limit_has_a_number_and_a_name_of_its_own() {
    let mut names = std::collections::HashSet::new();
    for limit in Limit::ALL {
        assert_eq!(Limit::from_number(limit.number()), Some(limit));
        assert!(names.insert(limit.name()));
    }
    assert_eq!(Limit::from_number(99), None);
}
