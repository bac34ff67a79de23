//! The accounting of the pool: once a second the parent records an `Account` of what the children
//! did and what resources the machine had left, names the limit that binds, and adds both to the
//! history in the scoreboard. CPU time and run-queue delay come from the kernel. Figures that
//! children report are untrusted claims, and are used as numbers only.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use evenkeel_pool::{Account, Constraint, Figure, Plateau, verdict};
use evenkeel_scoreboard::{ChildLine, Counter, Phase, READING_WORDS, Reading, Scoreboard};
use evenkeel_sys::resources::{self, Groups, Interface, Periods};
use evenkeel_sys::{clock, process};

use crate::children::ChildEntry;
use crate::event::reserve;
use crate::limits::Model;
use crate::memory_sampling::MemorySamples;
use crate::parent::Parent;
use crate::settings::Server;
use crate::sizing::claimed;

/// How often an account is made.
const SECOND_US: u64 = 1_000_000;

/// How often queues and busy workers are sampled between two accounts while there is work. An idle
/// parent takes no such samples.
const SAMPLE_US: u64 = 100_000;

/// How many accounts the limit is determined from.
const WINDOW: usize = 10;

/// For at most this many threads the clocks are read for one account. Beyond that the children take
/// turns: what a child has used since its last reading is reported with the next one, so that no
/// time is counted twice or lost.
const MAX_CLOCKS: usize = 500;

/// How often the number of cores and the quota are read again.
const BOUNDS_US: u64 = 10_000_000;

/// How far the kernel's ticks may lag behind the clocks of the server's children.
const MAX_UNREPORTED_US: u64 = 50_000;

/// The scoreboard has room for exactly the words of an account.
const _: () = assert!(Account::WORDS == READING_WORDS);

/// The counters whose growth an account reports, with its figures.
const COUNTERS: [(Counter, Figure); 5] = [
    (Counter::Completions, Figure::Completions),
    (Counter::Bytes, Figure::Bytes),
    (Counter::DurationUs, Figure::DurationUs),
    (Counter::QueueUs, Figure::QueueUs),
    (Counter::BlockedUs, Figure::BlockedUs),
];

/// What the parent keeps between two accounts.
#[derive(Default)]
pub(crate) struct Accounting {
    /// How many accounts were made.
    number: u64,
    /// When the last account was made; 0 before the first.
    last_us: u64,
    children: BTreeMap<u64, ChildReading>,
    /// The number of the child whose clocks were read last.
    last_read: u64,
    /// The share of children that have ended since the last account.
    ended: EndedChildren,
    samples: Samples,
    refusals: RefusedConnections,
    window: VecDeque<Account>,
    plateau: Plateau,
    memory: MemorySamples,
    machine: Machine,
}

/// The last reading of a child's counters and clocks.
#[derive(Clone, Copy, Default)]
struct ChildReading {
    counted: [u64; COUNTERS.len()],
    cpu_us: Option<u64>,
    run_queue_us: Option<u64>,
}

/// What children that have ended did since the last account.
#[derive(Clone, Copy, Default)]
struct EndedChildren {
    counted: [u64; COUNTERS.len()],
    cpu_us: u64,
}

/// Sums of what rises and falls between two accounts.
#[derive(Default)]
struct Samples {
    last_us: u64,
    /// Whether the last sample saw work. It outlives the account that the sample went into.
    is_busy: bool,
    count: u64,
    queue: u64,
    busy: u64,
    runnable: u64,
    writing: u64,
    /// Only where a connection holds a worker.
    resting: Option<u64>,
}

/// What a sample records besides the lines of the children.
#[derive(Default)]
struct PoolState {
    now_us: u64,
    queue: u64,
    /// Whether each connection holds a worker.
    holds_workers: bool,
}

/// The last readings of the counters that show refused connections.
#[derive(Default)]
struct RefusedConnections {
    /// Segments that our listening sockets have dropped.
    dropped: u64,
    /// Connections that found a queue full, on our sockets or others.
    overflows: Option<u64>,
}

/// The last readings of the machine.
#[derive(Default)]
struct Machine {
    groups: Groups,
    cores: Vec<usize>,
    cores_milli: u64,
    read_us: u64,
    /// How many descriptors a child may use for connections.
    descriptors: u64,
    busy_us: Option<u64>,
    /// CPU time that the server's clocks show and the kernel's ticks do not yet.
    unreported_us: u64,
    periods: Vec<Periods>,
    sent: BTreeMap<String, u64>,
}

impl Accounting {
    /// The memory of a child in bytes; none where it is not measured.
    pub(crate) fn child_bytes(&self) -> Option<u64> {
        self.memory.child_bytes()
    }

    /// When the next sample or account is due.
    pub(crate) fn next_us(&self) -> Option<u64> {
        let account_us = self.last_us.saturating_add(SECOND_US);
        let sample_us = self.samples.last_us.saturating_add(SAMPLE_US);
        let is_busy = self.samples.is_busy;
        (self.last_us > 0).then(|| if is_busy { sample_us.min(account_us) } else { account_us })
    }
}

impl<S: Server> Parent<'_, S> {
    /// Samples the pool, and makes an account of it once a second has passed. Returns the new
    /// account, for decisions on the size of the pool.
    pub(crate) fn update_accounting(&mut self) -> Option<Account> {
        let now_us = clock::monotonic_us();
        if now_us.saturating_sub(self.accounting.samples.last_us) >= SAMPLE_US / 2 {
            let pool = PoolState {
                now_us,
                queue: self.listeners.queue() as u64,
                holds_workers: self.current.limits.model != Model::Event,
            };
            let lines = self.children.all();
            let lines = lines.filter_map(|entry| self.board.child_line(entry.index));
            self.accounting.samples.take(&pool, lines);
        }
        let span_us = now_us.saturating_sub(self.accounting.last_us);
        if span_us < SECOND_US {
            return None;
        }
        let is_first = self.accounting.last_us == 0;
        self.accounting.last_us = now_us;
        let account = Account::default().with(Figure::SpanUs, span_us);
        let account = self.accounting.count(account, self.board, self.children.all(), MAX_CLOCKS);
        let account = self.accounting.samples.add_to(account);
        let dropped = self.listeners.dropped();
        let account =
            self.accounting.refusals.add_to(account, dropped, resources::listen_overflows());
        let account = self.accounting.machine.add_to(account, now_us);
        let account = self.add_pool_figures(account);
        self.sample_memory();
        let is_no_gain = self.accounting.plateau.take(&account) || self.budget.is_growth_refused();
        let constraint = if is_no_gain { Constraint::NoGain } else { self.budget.constraint() };
        let account = account.with(Figure::Constraint, constraint as u64);
        if is_first {
            // The first account has nothing to be compared with, but what the memory allows is
            // known before the first clients come.
            self.move_budget(&account);
            return None;
        }
        self.accounting.window.push_back(account);
        if self.accounting.window.len() > WINDOW {
            let _oldest = self.accounting.window.pop_front();
        }
        let whole = Account::over(self.accounting.window.make_contiguous());
        let account = account.with(Figure::Limit, verdict(&whole).limit.number());
        self.accounting.number += 1;
        let reading = Reading { when_us: clock::realtime_us(), words: *account.words() };
        self.board.note_reading(self.accounting.number, &reading);
        Some(account)
    }

    /// Samples the memory of children where the number of children depends on it. Children that
    /// have answered fewer requests than they have threads are left out: they do not use the memory
    /// yet that they will, and a pool sized by them would be too large.
    fn sample_memory(&mut self) {
        let limits = &self.current.limits;
        if limits.model != Model::Event {
            let running = self.children.all().filter(|entry| entry.phase == Phase::Running);
            let pids = served(running, self.board, limits.threads_per_child as u64);
            self.accounting.memory.sample(&pids);
        }
    }

    /// Adds the size of the pool and its bounds.
    fn add_pool_figures(&self, account: Account) -> Account {
        let limits = &self.current.limits;
        let count = |phases: &[Phase]| {
            self.children.all().filter(|entry| phases.contains(&entry.phase)).count() as u64
        };
        let active = count(&[Phase::Starting, Phase::Running]);
        let credits: u64 = self
            .children
            .all()
            .filter(|entry| matches!(entry.phase, Phase::Starting | Phase::Running))
            .filter_map(|entry| self.board.parent_line(entry.index))
            .map(|line| line.credits() as u64)
            .fold(0, u64::saturating_add);
        let retiring =
            |entry: &&ChildEntry<S::Site>| !matches!(entry.phase, Phase::Starting | Phase::Running);
        let still = self.children.all().filter(retiring);
        let still = still.fold(0, |sum: u64, entry| sum.saturating_add(working(entry, self.board)));
        let all = self.children.all();
        let work = all.fold(0, |sum: u64, entry| sum.saturating_add(working(entry, self.board)));
        let queue = self.listeners.queue() as u64;
        let descriptors = self.accounting.machine.descriptors.saturating_mul(active.max(1));
        let workers = self.budget.most().unwrap_or(limits.max_request_workers);
        let blocking_pool = (limits.model == Model::Event)
            .then(|| active.saturating_mul(process::usable_cores() as u64));
        account
            .with(Figure::Supply, credits.saturating_add(still))
            .with(Figure::Demand, work.saturating_add(queue))
            .with(Figure::Active, active)
            .with(Figure::Parked, count(&[Phase::Parked]))
            .with(Figure::Workers, workers as u64)
            .with(Figure::Connections, total(Counter::Connections, self.board, self.children.all()))
            .with(Figure::Backlog, self.listeners.queue_bound() as u64)
            .with(Figure::Descriptors, descriptors)
            .with(Figure::BlockingThreads, blocking_pool)
    }
}

/// The work of a child: its busy or reserved workers, and the requests that wait for one.
fn working<Site>(entry: &ChildEntry<Site>, board: Scoreboard) -> u64 {
    let Some(line) = board.child_line(entry.index) else { return 0 };
    [Counter::Busy, Counter::Reserved, Counter::Runnable]
        .into_iter()
        .fold(0, |sum: u64, counter| sum.saturating_add(claimed(line, counter)))
}

/// The process ids of those children that have answered at least `least` requests.
fn served<'a, Site: 'a>(
    children: impl Iterator<Item = &'a ChildEntry<Site>>,
    board: Scoreboard,
    least: u64,
) -> Vec<i32> {
    let answered = |entry: &&ChildEntry<Site>| {
        let line = board.child_line(entry.index);
        line.is_some_and(|line| line.read(Counter::Completions) >= least)
    };
    children.filter(answered).map(|entry| entry.pid.as_raw_nonzero().get()).collect()
}

fn total<'a, Site: 'a>(
    counter: Counter,
    board: Scoreboard,
    children: impl Iterator<Item = &'a ChildEntry<Site>>,
) -> u64 {
    let lines = children.filter_map(|entry| board.child_line(entry.index));
    lines.fold(0, |sum: u64, line| sum.saturating_add(claimed(line, counter)))
}

impl Accounting {
    /// Keeps what a child did since the last account, before its line of the scoreboard is reused.
    /// `used_us` is the CPU time of its whole life.
    pub(crate) fn record_exit(&mut self, number: u64, line: Option<ChildLine>, used_us: u64) {
        let before = self.children.remove(&number).unwrap_or_default();
        let cpu_us = used_us.saturating_sub(before.cpu_us.unwrap_or(0));
        self.ended.cpu_us = self.ended.cpu_us.saturating_add(cpu_us);
        add_growth(&mut self.ended.counted, &counted(line), &before.counted);
    }

    /// Adds what the children did since the last account. A new child counts from its start, and
    /// one that has ended up to its end, except for its last run-queue delay.
    fn count<'a, Site: 'a>(
        &mut self,
        account: Account,
        board: Scoreboard,
        children: impl Iterator<Item = &'a ChildEntry<Site>>,
        max_clocks: usize,
    ) -> Account {
        let mut now = BTreeMap::new();
        let EndedChildren { counted: mut grown, cpu_us } = std::mem::take(&mut self.ended);
        let (mut cpu_us, mut run_queue_us) = (Some(cpu_us), Some(0_u64));
        let mut pids = Vec::new();
        for entry in children {
            let before = self.children.get(&entry.number).copied().unwrap_or_default();
            let seen = ChildReading { counted: counted(board.child_line(entry.index)), ..before };
            add_growth(&mut grown, &seen.counted, &before.counted);
            now.insert(entry.number, seen);
            pids.push((entry.number, entry.pid.as_raw_nonzero().get()));
        }
        let mut left = max_clocks;
        for (number, pid) in round_robin(&pids, self.last_read) {
            let Some(seen) = now.get_mut(&number).filter(|_| left > 0) else { break };
            let before = *seen;
            left = left.saturating_sub(seen.read_clocks(pid, max_clocks));
            cpu_us = added(cpu_us, seen.cpu_us, before.cpu_us);
            run_queue_us = added(run_queue_us, seen.run_queue_us, before.run_queue_us);
            self.last_read = number;
        }
        self.children = now;
        let account = account.with(Figure::CpuUs, cpu_us).with(Figure::RunQueueUs, run_queue_us);
        COUNTERS
            .iter()
            .zip(grown)
            .fold(account, |account, ((_, figure), value)| account.with(*figure, value))
    }
}

/// The children in the order of their numbers, beginning after number `last` and wrapping around.
fn round_robin(pids: &[(u64, i32)], last: u64) -> impl Iterator<Item = (u64, i32)> {
    let (before, after) = pids.split_at(pids.partition_point(|(number, _)| *number <= last));
    after.iter().chain(before).copied()
}

impl ChildReading {
    /// Reads the clocks of a child, of at most `most` threads. Returns how many threads were read.
    fn read_clocks(&mut self, pid: i32, most: usize) -> usize {
        let before = *self;
        // A child that is dead and not reaped yet has no clock any more.
        self.cpu_us = clock::cpu_us_of(pid).or(before.cpu_us);
        // A child that has used no CPU time since has not waited for a core either.
        if self.cpu_us.is_some() && self.cpu_us == before.cpu_us {
            return 1;
        }
        let found = resources::run_queue(pid, most);
        self.run_queue_us = found.map(|found| found.delay_us);
        found.map_or(1, |found| found.sampled.max(1))
    }
}

/// The values of the counters that an account reports.
fn counted(line: Option<ChildLine>) -> [u64; COUNTERS.len()] {
    COUNTERS.map(|(counter, _)| line.map_or(0, |line| line.read(counter)))
}

/// Adds the growth of each counter.
fn add_growth(
    sums: &mut [u64; COUNTERS.len()],
    now: &[u64; COUNTERS.len()],
    before: &[u64; COUNTERS.len()],
) {
    for ((sum, new), old) in sums.iter_mut().zip(now).zip(before) {
        *sum = sum.saturating_add(new.saturating_sub(*old));
    }
}

/// A sum plus what a clock gained; none once any part is unknown.
fn added(sum: Option<u64>, now: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(sum?.saturating_add(now?.saturating_sub(before.unwrap_or(0))))
}

impl Samples {
    fn take(&mut self, pool: &PoolState, lines: impl Iterator<Item = ChildLine>) {
        self.last_us = pool.now_us;
        self.count += 1;
        self.queue = self.queue.saturating_add(pool.queue);
        self.is_busy = pool.queue > 0;
        let mut resting = 0_u64;
        for line in lines {
            let mut add = |sum: &mut u64, counter| {
                let claim = claimed(line, counter);
                *sum = sum.saturating_add(claim);
                self.is_busy |= claim > 0;
            };
            add(&mut self.busy, Counter::Busy);
            add(&mut self.runnable, Counter::Runnable);
            add(&mut self.writing, Counter::Writing);
            for counter in [Counter::KeepAlive, Counter::Waiting, Counter::Closing] {
                resting = resting.saturating_add(claimed(line, counter));
            }
        }
        self.resting =
            pool.holds_workers.then(|| self.resting.unwrap_or(0).saturating_add(resting));
    }

    /// Adds the averages, and starts the next ones.
    fn add_to(&mut self, account: Account) -> Account {
        let count = self.count.max(1);
        let milli = |sum: u64| sum.saturating_mul(1000) / count;
        let told = account
            .with(Figure::Queue, self.queue / count)
            .with(Figure::BusyMilli, milli(self.busy))
            .with(Figure::RunnableMilli, milli(self.runnable))
            .with(Figure::WritingMilli, milli(self.writing))
            .with(Figure::RestingMilli, self.resting.map(milli));
        *self = Self { last_us: self.last_us, is_busy: self.is_busy, ..Self::default() };
        told
    }
}

impl RefusedConnections {
    /// Adds how many connections our queues refused. Neither counter tells exactly: it is at most
    /// the number of segments that our sockets dropped, and at most the number of connections that
    /// found any queue full. A socket that is closed takes its count with it.
    fn add_to(&mut self, account: Account, dropped: u64, overflows: Option<u64>) -> Account {
        let before = std::mem::replace(&mut self.dropped, dropped);
        let full = overflows.zip(std::mem::replace(&mut self.overflows, overflows));
        let full = full.map(|(now, before)| now.saturating_sub(before));
        account.with(Figure::Refused, full.map(|full| full.min(dropped.saturating_sub(before))))
    }
}

impl Machine {
    /// Adds what the machine had left, and what other processes used of it.
    fn add_to(&mut self, account: Account, now_us: u64) -> Account {
        if self.read_us == 0 || now_us.saturating_sub(self.read_us) >= BOUNDS_US {
            self.read_us = now_us;
            self.groups = Groups::find();
            // A child has about as many descriptors of its own as the parent: logs and listening
            // sockets.
            let bound = process::raise_descriptor_limit();
            let own = reserve(bound).saturating_add(process::open_descriptors());
            self.descriptors = bound.saturating_sub(own);
            let cores = process::allowed_cores();
            if cores != self.cores {
                (self.cores, self.busy_us) = (cores, None);
            }
            let quota = self.groups.quota_cores().unwrap_or(f64::INFINITY);
            self.cores_milli = (quota.min(self.cores.len() as f64) * 1000.0) as u64;
        }
        let busy_us = resources::cores_busy_us(&self.cores);
        let all_us = busy_us.zip(self.busy_us).map(|(now, before)| now.saturating_sub(before));
        let (span_us, own_us) = (account.of(Figure::SpanUs), account.of(Figure::CpuUs));
        self.busy_us = busy_us;
        let others_us = all_us.zip(own_us).map(|(all, own)| self.others_us(all, own));
        // The cores beyond the quota are not ours in any case.
        let beyond_milli = (self.cores.len() as u64 * 1000).saturating_sub(self.cores_milli);
        let beyond_us = beyond_milli.saturating_mul(span_us.unwrap_or(0)) / 1000;
        let memory = self.groups.memory();
        account
            .with(Figure::CoresMilli, self.cores_milli)
            .with(Figure::OthersUs, others_us.map(|others| others.saturating_sub(beyond_us)))
            .with(Figure::ThrottledUs, self.throttled_us(span_us))
            .with(Figure::MemoryLimit, memory.map(|memory| memory.limit))
            .with(Figure::MemoryFree, memory.map(|memory| memory.free))
            .with(Figure::MemoryPressure, resources::memory_pressure())
            .with(Figure::NetworkMilli, self.network_milli(span_us, resources::interfaces()))
    }

    /// The CPU time of other processes. The kernel counts in ticks, sometimes too much and
    /// sometimes too little. Where it reports less than the server used, the rest is subtracted
    /// from its next report, up to what one second may be off by.
    fn others_us(&mut self, all_us: u64, own_us: u64) -> u64 {
        let own_us = own_us.saturating_add(self.unreported_us);
        self.unreported_us = own_us.saturating_sub(all_us).min(MAX_UNREPORTED_US);
        all_us.saturating_sub(own_us)
    }

    /// How long a quota throttled the server, by the periods in which it did.
    fn throttled_us(&mut self, span_us: Option<u64>) -> Option<u64> {
        let now = self.groups.periods();
        let before = std::mem::replace(&mut self.periods, now);
        if self.periods.is_empty() || before.len() != self.periods.len() {
            return None;
        }
        let shares = self.periods.iter().zip(before).filter_map(|(now, old)| now.share_since(old));
        let most = shares.fold(0.0, f64::max);
        Some((span_us? as f64 * most) as u64)
    }

    /// The utilisation of the interface that is used most. New interfaces are compared from the
    /// next account on.
    fn network_milli(&mut self, span_us: Option<u64>, now: Vec<Interface>) -> Option<u64> {
        let span = Duration::from_micros(span_us?).as_secs_f64();
        let before = std::mem::take(&mut self.sent);
        let mut most = None;
        for Interface { name, sent, bits } in now {
            if let Some(before) = before.get(&name) {
                let share = sent.saturating_sub(*before) as f64 * 8.0 / span / bits as f64;
                most = most.max(Some((share * 1000.0) as u64));
            }
            self.sent.insert(name, sent);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_scoreboard::Layout;

    #[test]
    fn whatever_children_claim_the_parent_goes_on() {
        let board = Scoreboard::new(Layout { children: 2, slots_per_child: 1 }).unwrap();
        let lines = || (0..2).map(|index| board.child_line(index).unwrap());
        for counter in [Counter::Busy, Counter::Runnable, Counter::Writing] {
            lines().for_each(|line| line.set(counter, u64::MAX));
        }
        let mut accounting = Accounting { last_us: 5_000_000, ..Accounting::default() };
        accounting
            .samples
            .take(&PoolState { now_us: 5_000_000, queue: 1, ..PoolState::default() }, lines());
        assert_eq!(accounting.next_us(), Some(5_000_000 + SAMPLE_US));
        let account = accounting.samples.add_to(Account::default());
        assert!(account.of(Figure::BusyMilli).is_some_and(|busy| busy < u64::from(u32::MAX)));
    }

    #[test]
    fn while_there_is_work_there_are_ten_looks_between_accounts() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let lines = || std::iter::once(board.child_line(0).unwrap());
        let mut accounting = Accounting { last_us: 5_000_000, ..Accounting::default() };
        let sample = |accounting: &mut Accounting, now_us, busy| {
            board.child_line(0).unwrap().set(Counter::Busy, busy);
            accounting.samples.take(&PoolState { now_us, ..PoolState::default() }, lines());
        };
        sample(&mut accounting, 5_000_000, 0);
        assert_eq!(accounting.next_us(), Some(6_000_000));
        sample(&mut accounting, 6_000_000, 1);
        // The account takes the samples, and the next sample follows a tenth of a second later.
        let _account = accounting.samples.add_to(Account::default());
        accounting.last_us = 6_000_000;
        assert_eq!(accounting.next_us(), Some(6_100_000));
        sample(&mut accounting, 6_100_000, 0);
        assert_eq!(accounting.next_us(), Some(7_000_000));
    }

    #[test]
    fn connections_that_hold_a_worker_and_rest_are_told_from_work() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0).unwrap();
        let all = [
            (Counter::Busy, 9),
            (Counter::KeepAlive, 4),
            (Counter::Waiting, 2),
            (Counter::Closing, 1),
        ];
        all.iter().for_each(|(counter, value)| line.set(*counter, *value));
        let told = |holds_workers| {
            let mut samples = Samples::default();
            let pool = PoolState { holds_workers, ..PoolState::default() };
            samples.take(&pool, std::iter::once(line));
            samples
                .take(&PoolState { holds_workers, ..PoolState::default() }, std::iter::once(line));
            samples.add_to(Account::default())
        };
        assert_eq!(told(true).of(Figure::RestingMilli), Some(7_000));
        assert_eq!(told(false).of(Figure::RestingMilli), None);
    }

    #[test]
    fn what_a_child_did_last_is_told_after_its_end() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0);
        let mut accounting = Accounting::default();
        let seen =
            ChildReading { counted: [7, 100, 0, 0, 0], cpu_us: Some(300), run_queue_us: None };
        accounting.children.insert(4, seen);
        line.unwrap().set(Counter::Completions, 10);
        line.unwrap().set(Counter::Bytes, 150);
        accounting.record_exit(4, line, 1_000);
        board.release(0);
        // A child without an earlier reading did all of it since the last account.
        line.unwrap().set(Counter::Completions, 5);
        accounting.record_exit(5, line, 20);
        let nobody = || std::iter::empty::<&ChildEntry<()>>();
        let told = accounting.count(Account::default(), board, nobody(), 9);
        let of = |figure| told.of(figure);
        assert_eq!((of(Figure::Completions), of(Figure::Bytes)), (Some(8), Some(50)));
        assert_eq!(of(Figure::CpuUs), Some(720));
        let next = accounting.count(Account::default(), board, nobody(), 9);
        assert_eq!((next.of(Figure::Completions), next.of(Figure::CpuUs)), (Some(0), Some(0)));
    }

    #[test]
    fn children_whose_clocks_are_read_have_their_turns() {
        let pids: Vec<(u64, i32)> = [2, 5, 7, 9].map(|number| (number, 0)).to_vec();
        let order = |last| round_robin(&pids, last).map(|(number, _)| number).collect::<Vec<_>>();
        assert_eq!(order(0), [2, 5, 7, 9]);
        assert_eq!(order(5), [7, 9, 2, 5]);
        // The child that was read last may have ended.
        assert_eq!((order(6), order(9), order(99)), (order(5), order(0), order(0)));
        assert_eq!(round_robin(&[], 5).next(), None);
    }

    #[test]
    fn children_that_have_answered_nothing_are_not_measured() {
        let (children, _ends) = crate::children::tests::table(3);
        let board = Scoreboard::new(Layout { children: 4, slots_per_child: 1 }).unwrap();
        let all: Vec<_> = children.all().collect();
        let set = |at: usize, count| {
            board.child_line(all[at].index).unwrap().set(Counter::Completions, count);
        };
        set(1, 25);
        set(2, 24);
        let pid = |at: usize| all[at].pid.as_raw_nonzero().get();
        assert_eq!(served(children.all(), board, 25), [pid(1)]);
        assert_eq!(served(children.all(), board, 1), [pid(1), pid(2)]);
    }

    #[test]
    fn no_more_clocks_are_read_for_an_account_than_may_be() {
        let (children, _ends) = crate::children::tests::table(6);
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let mut accounting = Accounting::default();
        for last in [4, 2, 6] {
            let _account = accounting.count(Account::default(), board, children.all(), 4);
            assert_eq!((accounting.last_read, accounting.children.len()), (last, 6));
        }
    }

    #[test]
    fn sums_of_clocks_are_unknown_once_a_part_is() {
        assert_eq!(added(Some(5), Some(30), Some(10)), Some(25));
        // A new child counts from its start, and no clock goes back.
        assert_eq!(added(Some(5), Some(30), None), Some(35));
        assert_eq!(added(Some(5), Some(3), Some(10)), Some(5));
        assert_eq!((added(Some(5), None, Some(1)), added(None, Some(1), None)), (None, None));
    }

    #[test]
    fn what_stands_and_falls_is_averaged_between_accounts() {
        let mut samples = Samples { count: 4, queue: 9, busy: 6, ..Samples::default() };
        let account = samples.add_to(Account::default());
        assert_eq!(
            (account.of(Figure::Queue), account.of(Figure::BusyMilli)),
            (Some(2), Some(1500))
        );
        let next = samples.add_to(Account::default());
        assert_eq!((next.of(Figure::Queue), next.of(Figure::WritingMilli)), (Some(0), Some(0)));
    }

    #[test]
    fn ticks_that_are_early_and_late_are_no_work_of_others() {
        let mut machine = Machine::default();
        // The server uses 340 ms of each second and nothing else does, in ticks of 10 ms.
        let ticks = [350_000, 330_000, 340_000, 320_000, 360_000, 340_000, 350_000, 330_000];
        let told: u64 = ticks.map(|all_us| machine.others_us(all_us, 340_000)).iter().sum();
        assert!(told <= 20_000, "{told}");
        // A process that uses 100 ms of each second is reported.
        let told = ticks.map(|all_us| machine.others_us(all_us + 100_000, 340_000));
        assert!((780_000..=800_000).contains(&told.iter().sum::<u64>()), "{told:?}");
        // A clock that was read late does not hide others for long.
        assert_eq!(machine.others_us(0, 9_000_000), 0);
        assert_eq!(machine.others_us(440_000, 340_000), 100_000 - MAX_UNREPORTED_US);
    }

    #[test]
    fn interfaces_come_and_go_and_the_others_are_told_all_the_same() {
        let one = |name: &str, sent| Interface { name: name.into(), sent, bits: 8_000_000 };
        let mut machine = Machine::default();
        let mut tell = |now| machine.network_milli(Some(1_000_000), now);
        assert_eq!(tell(vec![one("a", 0), one("b", 0)]), None);
        assert_eq!(tell(vec![one("c", 0), one("b", 100_000), one("a", 500_000)]), Some(500));
        assert_eq!(tell(vec![one("c", 900_000)]), Some(900));
        // The interface was away, and has sent since.
        assert_eq!(tell(vec![one("a", 900_000)]), None);
    }

    #[test]
    fn segments_thrown_away_are_no_refusals_while_no_queue_is_full() {
        let mut refusals = RefusedConnections::default();
        let first = refusals.add_to(Account::default(), 1_000_000, Some(7));
        assert_eq!(first.of(Figure::Refused), None);
        // The sockets were opened again.
        let second = refusals.add_to(Account::default(), 3, Some(7));
        assert_eq!(second.of(Figure::Refused), Some(0));
        let third = refusals.add_to(Account::default(), 6, Some(12));
        assert_eq!(third.of(Figure::Refused), Some(3));
    }

    #[test]
    fn a_quota_is_told_by_its_periods() {
        let mut machine = Machine::default();
        assert_eq!(machine.throttled_us(Some(1_000_000)), None);
        machine.periods = vec![Periods::default()];
        // The group is gone: there is nothing to compare with.
        assert_eq!(machine.throttled_us(Some(1_000_000)), None);
        assert!(machine.periods.is_empty());
    }

    #[test]
    fn the_machine_is_compared_with_what_it_was() {
        let mut machine = Machine::default();
        let account = Account::default().with(Figure::SpanUs, 1).with(Figure::CpuUs, 0);
        let first = machine.add_to(account, 1);
        assert_eq!(first.of(Figure::OthersUs), None);
        assert!(first.of(Figure::CoresMilli).is_some_and(|cores| cores > 0));
        let second = machine.add_to(account, 2);
        assert!(second.of(Figure::OthersUs).is_some());
        assert!(second.of(Figure::MemoryFree) <= second.of(Figure::MemoryLimit));
    }
}
