//! The books that the parent keeps of its pool: once a second what the children did and what the
//! machine left them becomes an account, which goes into the history of the scoreboard with the
//! limit that it shows. CPU time and waiting for cores are the kernel's word; what the children
//! count is a claim and only ever a number.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use evenkeel_pool::{Account, Bar, Figure, Plateau, verdict};
use evenkeel_scoreboard::{ChildLine, Counter, Moment, Phase, READING_WORDS, Scoreboard};
use evenkeel_sys::bounds::{self, Groups, Interface, Periods};
use evenkeel_sys::{clock, process};

use crate::children::Entry;
use crate::event::reserve;
use crate::growth::Growth;
use crate::limits::Model;
use crate::parent::Parent;
use crate::settings::Server;
use crate::sizing::claimed;

/// How often an account is made.
const SECOND_US: u64 = 1_000_000;

/// How often what stands and falls is looked at between, while there is work: an idle parent rests.
const SAMPLE_US: u64 = 100_000;

/// How many accounts the limit is told from.
const WINDOW: usize = 10;

/// Of how many threads at most the clocks are read for an account. Children have their turns: what
/// one has used since its last is told with it, so that no time is told twice or never.
const MOST_CLOCKS: usize = 500;

/// How often cores and quota are read anew.
const BOUNDS_US: u64 = 10_000_000;

/// By so much the kernel's ticks may be behind the clocks of the server's children.
const MOST_UNTOLD_US: u64 = 50_000;

/// What the scoreboard has room for is what an account has.
const _: () = assert!(Account::WORDS == READING_WORDS);

/// The counters whose growth an account tells, and the figures that tell it.
const COUNTED: [(Counter, Figure); 5] = [
    (Counter::Completions, Figure::Completions),
    (Counter::Bytes, Figure::Bytes),
    (Counter::DurationUs, Figure::DurationUs),
    (Counter::LineUs, Figure::LineUs),
    (Counter::HeldUs, Figure::HeldUs),
];

/// The parent's books.
#[derive(Default)]
pub(crate) struct Books {
    /// How many accounts were made.
    number: u64,
    /// When the last one was; 0 before the first.
    last_us: u64,
    children: BTreeMap<u64, Seen>,
    /// The number of the child whose clocks were read last.
    turn: u64,
    /// What children did last that have ended since.
    ended: Ended,
    samples: Samples,
    refusals: Refusals,
    window: VecDeque<Account>,
    plateau: Plateau,
    growth: Growth,
    machine: Machine,
}

/// What was last seen of a child.
#[derive(Clone, Copy, Default)]
struct Seen {
    counted: [u64; COUNTED.len()],
    cpu_us: Option<u64>,
    run_queue_us: Option<u64>,
}

/// Work of children that have ended, which the next account tells.
#[derive(Clone, Copy, Default)]
struct Ended {
    counted: [u64; COUNTED.len()],
    cpu_us: u64,
}

/// What stands and falls, added up between two accounts.
#[derive(Default)]
struct Samples {
    last_us: u64,
    /// Whether the last look saw work: it outlives the account that the look went into.
    is_at_work: bool,
    count: u64,
    queue: u64,
    busy: u64,
    runnable: u64,
    writing: u64,
    /// Where connections hold workers.
    resting: Option<u64>,
}

/// What a look sees besides the lines of the children.
#[derive(Default)]
struct Look {
    now_us: u64,
    queue: u64,
    /// Whether each connection holds a worker.
    holds_workers: bool,
}

/// What tells that accept queues were full, as it was when last read.
#[derive(Default)]
struct Refusals {
    /// Segments that our listening sockets threw away.
    dropped: u64,
    /// Connections that found a queue full, ours or another's.
    overflows: Option<u64>,
}

/// What was last read of the machine.
#[derive(Default)]
struct Machine {
    groups: Groups,
    cores: Vec<usize>,
    cores_milli: u64,
    read_us: u64,
    /// How many descriptors a child may have for connections.
    descriptors: u64,
    busy_us: Option<u64>,
    /// CPU time that the kernel's ticks have not told yet though the server's clocks have.
    untold_us: u64,
    periods: Vec<Periods>,
    sent: BTreeMap<String, u64>,
}

impl Books {
    /// How many bytes a child takes, where it is measured.
    pub(crate) fn child_bytes(&self) -> Option<u64> {
        self.growth.child_bytes()
    }

    /// When the parent looks next.
    pub(crate) fn next_us(&self) -> Option<u64> {
        let account_us = self.last_us.saturating_add(SECOND_US);
        let sample_us = self.samples.last_us.saturating_add(SAMPLE_US);
        let is_at_work = self.samples.is_at_work;
        (self.last_us > 0).then(|| if is_at_work { sample_us.min(account_us) } else { account_us })
    }
}

impl<S: Server> Parent<'_, S> {
    /// Looks at the pool, and makes an account of it where a second has passed. The last of them is
    /// given to whoever decides from it.
    pub(crate) fn keep_books(&mut self) -> Option<Account> {
        let now_us = clock::monotonic_us();
        if now_us.saturating_sub(self.books.samples.last_us) >= SAMPLE_US / 2 {
            let look = Look {
                now_us,
                queue: self.listeners.queue() as u64,
                holds_workers: self.current.limits.model != Model::Event,
            };
            let lines = self.children.all();
            let lines = lines.filter_map(|entry| self.board.child_line(entry.index));
            self.books.samples.take(&look, lines);
        }
        let span_us = now_us.saturating_sub(self.books.last_us);
        if span_us < SECOND_US {
            return None;
        }
        let is_first = self.books.last_us == 0;
        self.books.last_us = now_us;
        let account = Account::default().with(Figure::SpanUs, span_us);
        let account = self.books.count(account, self.board, self.children.all(), MOST_CLOCKS);
        let account = self.books.samples.tell(account);
        let dropped = self.listeners.dropped();
        let account = self.books.refusals.tell(account, dropped, bounds::listen_overflows());
        let account = self.books.machine.tell(account, now_us);
        let account = self.tell_pool(account);
        self.measure_growth();
        let is_in_vain = self.books.plateau.take(&account) || self.budget.is_refused();
        let bar = if is_in_vain { Bar::Vain } else { self.budget.bar() };
        let account = account.with(Figure::Bar, bar as u64);
        if is_first {
            // There was nothing to compare with, but what memory bears is known before the first
            // clients come.
            self.move_budget(&account);
            return None;
        }
        self.books.window.push_back(account);
        if self.books.window.len() > WINDOW {
            let _oldest = self.books.window.pop_front();
        }
        let whole = Account::over(self.books.window.make_contiguous());
        let account = account.with(Figure::Limit, verdict(&whole).limit.number());
        self.books.number += 1;
        let moment = Moment { when_us: clock::realtime_us(), words: *account.words() };
        self.board.note_reading(self.books.number, &moment);
        Some(account)
    }

    /// Measures what a child takes, where the number of children follows from it. One that has not
    /// answered a request for each of its threads has not taken yet what it will: were children
    /// counted by what they take at rest, more would be started than memory bears.
    fn measure_growth(&mut self) {
        let limits = &self.current.limits;
        if limits.model != Model::Event {
            let running = self.children.all().filter(|entry| entry.phase == Phase::Running);
            let pids = served(running, self.board, limits.threads_per_child as u64);
            self.books.growth.look(&pids);
        }
    }

    /// How large the pool is, and what its limits are.
    fn tell_pool(&self, account: Account) -> Account {
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
            |entry: &&Entry<S::Site>| !matches!(entry.phase, Phase::Starting | Phase::Running);
        let still = self.children.all().filter(retiring);
        let still = still.fold(0, |sum: u64, entry| sum.saturating_add(working(entry, self.board)));
        let all = self.children.all();
        let work = all.fold(0, |sum: u64, entry| sum.saturating_add(working(entry, self.board)));
        let queue = self.listeners.queue() as u64;
        let descriptors = self.books.machine.descriptors.saturating_mul(active.max(1));
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

/// Work of a child: busy or reserved workers, and requests that wait within it for one.
fn working<Site>(entry: &Entry<Site>, board: Scoreboard) -> u64 {
    let Some(line) = board.child_line(entry.index) else { return 0 };
    [Counter::Busy, Counter::Reserved, Counter::Runnable]
        .into_iter()
        .fold(0, |sum: u64, counter| sum.saturating_add(claimed(line, counter)))
}

/// Of these children, those that have answered so many requests, by their process ids.
fn served<'a, Site: 'a>(
    children: impl Iterator<Item = &'a Entry<Site>>,
    board: Scoreboard,
    least: u64,
) -> Vec<i32> {
    let answered = |entry: &&Entry<Site>| {
        let line = board.child_line(entry.index);
        line.is_some_and(|line| line.read(Counter::Completions) >= least)
    };
    children.filter(answered).map(|entry| entry.pid.as_raw_nonzero().get()).collect()
}

fn total<'a, Site: 'a>(
    counter: Counter,
    board: Scoreboard,
    children: impl Iterator<Item = &'a Entry<Site>>,
) -> u64 {
    let lines = children.filter_map(|entry| board.child_line(entry.index));
    lines.fold(0, |sum: u64, line| sum.saturating_add(claimed(line, counter)))
}

impl Books {
    /// Keeps what a child did since the last account, before its line is another's. `used_us` is
    /// the CPU time of its whole life.
    pub(crate) fn bury(&mut self, number: u64, line: Option<ChildLine>, used_us: u64) {
        let before = self.children.remove(&number).unwrap_or_default();
        let cpu_us = used_us.saturating_sub(before.cpu_us.unwrap_or(0));
        self.ended.cpu_us = self.ended.cpu_us.saturating_add(cpu_us);
        add_growth(&mut self.ended.counted, &counted(line), &before.counted);
    }

    /// What the children did since the last account. A child that has just come is counted from
    /// its beginning, and one that has ended to its end, but for what it waited for a core last.
    fn count<'a, Site: 'a>(
        &mut self,
        account: Account,
        board: Scoreboard,
        children: impl Iterator<Item = &'a Entry<Site>>,
        most_clocks: usize,
    ) -> Account {
        let mut now = BTreeMap::new();
        let Ended { counted: mut grown, cpu_us } = std::mem::take(&mut self.ended);
        let (mut cpu_us, mut run_queue_us) = (Some(cpu_us), Some(0_u64));
        let mut pids = Vec::new();
        for entry in children {
            let before = self.children.get(&entry.number).copied().unwrap_or_default();
            let seen = Seen { counted: counted(board.child_line(entry.index)), ..before };
            add_growth(&mut grown, &seen.counted, &before.counted);
            now.insert(entry.number, seen);
            pids.push((entry.number, entry.pid.as_raw_nonzero().get()));
        }
        let mut left = most_clocks;
        for (number, pid) in in_turn(&pids, self.turn) {
            let Some(seen) = now.get_mut(&number).filter(|_| left > 0) else { break };
            let before = *seen;
            left = left.saturating_sub(seen.read_clocks(pid, most_clocks));
            cpu_us = added(cpu_us, seen.cpu_us, before.cpu_us);
            run_queue_us = added(run_queue_us, seen.run_queue_us, before.run_queue_us);
            self.turn = number;
        }
        self.children = now;
        let account = account.with(Figure::CpuUs, cpu_us).with(Figure::RunQueueUs, run_queue_us);
        COUNTED
            .iter()
            .zip(grown)
            .fold(account, |account, ((_, figure), value)| account.with(*figure, value))
    }
}

/// Children in the order of their numbers, from the one that comes after number `last` round to it.
fn in_turn(pids: &[(u64, i32)], last: u64) -> impl Iterator<Item = (u64, i32)> {
    let (before, after) = pids.split_at(pids.partition_point(|(number, _)| *number <= last));
    after.iter().chain(before).copied()
}

impl Seen {
    /// Reads the clocks of a child, of so many threads at most; of how many.
    fn read_clocks(&mut self, pid: i32, most: usize) -> usize {
        let before = *self;
        // One that is dead and not buried yet has no clock any more.
        self.cpu_us = clock::cpu_us_of(pid).or(before.cpu_us);
        // A child that used no core since waited for none.
        if self.cpu_us.is_some() && self.cpu_us == before.cpu_us {
            return 1;
        }
        let found = bounds::run_queue(pid, most);
        self.run_queue_us = found.map(|found| found.delay_us);
        found.map_or(1, |found| found.asked.max(1))
    }
}

/// The counters of a child whose growth is told.
fn counted(line: Option<ChildLine>) -> [u64; COUNTED.len()] {
    COUNTED.map(|(counter, _)| line.map_or(0, |line| line.read(counter)))
}

/// Adds by how much each counter has grown.
fn add_growth(
    sums: &mut [u64; COUNTED.len()],
    now: &[u64; COUNTED.len()],
    before: &[u64; COUNTED.len()],
) {
    for ((sum, new), old) in sums.iter_mut().zip(now).zip(before) {
        *sum = sum.saturating_add(new.saturating_sub(*old));
    }
}

/// A sum with what a clock gained; unknown once any part is.
fn added(sum: Option<u64>, now: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(sum?.saturating_add(now?.saturating_sub(before.unwrap_or(0))))
}

impl Samples {
    fn take(&mut self, look: &Look, lines: impl Iterator<Item = ChildLine>) {
        self.last_us = look.now_us;
        self.count += 1;
        self.queue = self.queue.saturating_add(look.queue);
        self.is_at_work = look.queue > 0;
        let mut resting = 0_u64;
        for line in lines {
            let mut add = |sum: &mut u64, counter| {
                let claim = claimed(line, counter);
                *sum = sum.saturating_add(claim);
                self.is_at_work |= claim > 0;
            };
            add(&mut self.busy, Counter::Busy);
            add(&mut self.runnable, Counter::Runnable);
            add(&mut self.writing, Counter::Writing);
            for counter in [Counter::KeepAlive, Counter::Waiting, Counter::Closing] {
                resting = resting.saturating_add(claimed(line, counter));
            }
        }
        self.resting =
            look.holds_workers.then(|| self.resting.unwrap_or(0).saturating_add(resting));
    }

    /// The averages; the next begin anew.
    fn tell(&mut self, account: Account) -> Account {
        let count = self.count.max(1);
        let milli = |sum: u64| sum.saturating_mul(1000) / count;
        let told = account
            .with(Figure::Queue, self.queue / count)
            .with(Figure::BusyMilli, milli(self.busy))
            .with(Figure::RunnableMilli, milli(self.runnable))
            .with(Figure::WritingMilli, milli(self.writing))
            .with(Figure::RestingMilli, self.resting.map(milli));
        *self = Self { last_us: self.last_us, is_at_work: self.is_at_work, ..Self::default() };
        told
    }
}

impl Refusals {
    /// How many connections our queues refused: no more than our sockets threw segments away, and
    /// no more than found any queue full. Sockets that are no more take their counts with them.
    fn tell(&mut self, account: Account, dropped: u64, overflows: Option<u64>) -> Account {
        let before = std::mem::replace(&mut self.dropped, dropped);
        let full = overflows.zip(std::mem::replace(&mut self.overflows, overflows));
        let full = full.map(|(now, before)| now.saturating_sub(before));
        account.with(Figure::Refused, full.map(|full| full.min(dropped.saturating_sub(before))))
    }
}

impl Machine {
    /// What the machine left, and what others had of it.
    fn tell(&mut self, account: Account, now_us: u64) -> Account {
        if self.read_us == 0 || now_us.saturating_sub(self.read_us) >= BOUNDS_US {
            self.read_us = now_us;
            self.groups = Groups::find();
            // A child has about as many of its own as the parent: logs, sockets that listen.
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
        let busy_us = bounds::cores_busy_us(&self.cores);
        let all_us = busy_us.zip(self.busy_us).map(|(now, before)| now.saturating_sub(before));
        let (span_us, own_us) = (account.of(Figure::SpanUs), account.of(Figure::CpuUs));
        self.busy_us = busy_us;
        let others_us = all_us.zip(own_us).map(|(all, own)| self.others_us(all, own));
        // What the cores have beyond the quota is others' in any case.
        let beyond_milli = (self.cores.len() as u64 * 1000).saturating_sub(self.cores_milli);
        let beyond_us = beyond_milli.saturating_mul(span_us.unwrap_or(0)) / 1000;
        let memory = self.groups.memory();
        account
            .with(Figure::CoresMilli, self.cores_milli)
            .with(Figure::OthersUs, others_us.map(|others| others.saturating_sub(beyond_us)))
            .with(Figure::ThrottledUs, self.throttled_us(span_us))
            .with(Figure::MemoryLimit, memory.map(|memory| memory.limit))
            .with(Figure::MemoryFree, memory.map(|memory| memory.free))
            .with(Figure::MemoryPressure, bounds::memory_pressure())
            .with(Figure::NetworkMilli, self.network_milli(span_us, bounds::interfaces()))
    }

    /// What others had of the cores' time. The kernel counts that in ticks, and now too much and
    /// now too little: where it has told less than the server used, the rest comes off what it
    /// tells next, up to what a second may be off by.
    fn others_us(&mut self, all_us: u64, own_us: u64) -> u64 {
        let own_us = own_us.saturating_add(self.untold_us);
        self.untold_us = own_us.saturating_sub(all_us).min(MOST_UNTOLD_US);
        all_us.saturating_sub(own_us)
    }

    /// For how much of the time a quota held the server back, by the periods in which it did.
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

    /// How much of its speed the interface uses that uses most of it.
    /// Those that have just come are compared from the next account on.
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
        let mut books = Books { last_us: 5_000_000, ..Books::default() };
        books.samples.take(&Look { now_us: 5_000_000, queue: 1, ..Look::default() }, lines());
        assert_eq!(books.next_us(), Some(5_000_000 + SAMPLE_US));
        let account = books.samples.tell(Account::default());
        assert!(account.of(Figure::BusyMilli).is_some_and(|busy| busy < u64::from(u32::MAX)));
    }

    #[test]
    fn while_there_is_work_there_are_ten_looks_between_accounts() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let lines = || std::iter::once(board.child_line(0).unwrap());
        let mut books = Books { last_us: 5_000_000, ..Books::default() };
        let look = |books: &mut Books, now_us, busy| {
            board.child_line(0).unwrap().set(Counter::Busy, busy);
            books.samples.take(&Look { now_us, ..Look::default() }, lines());
        };
        look(&mut books, 5_000_000, 0);
        assert_eq!(books.next_us(), Some(6_000_000));
        look(&mut books, 6_000_000, 1);
        // The account takes what was seen, and the next look is a tenth of a second later.
        let _account = books.samples.tell(Account::default());
        books.last_us = 6_000_000;
        assert_eq!(books.next_us(), Some(6_100_000));
        look(&mut books, 6_100_000, 0);
        assert_eq!(books.next_us(), Some(7_000_000));
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
            let look = Look { holds_workers, ..Look::default() };
            samples.take(&look, std::iter::once(line));
            samples.take(&Look { holds_workers, ..Look::default() }, std::iter::once(line));
            samples.tell(Account::default())
        };
        assert_eq!(told(true).of(Figure::RestingMilli), Some(7_000));
        assert_eq!(told(false).of(Figure::RestingMilli), None);
    }

    #[test]
    fn what_a_child_did_last_is_told_after_its_end() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        let line = board.child_line(0);
        let mut books = Books::default();
        let seen = Seen { counted: [7, 100, 0, 0, 0], cpu_us: Some(300), run_queue_us: None };
        books.children.insert(4, seen);
        line.unwrap().set(Counter::Completions, 10);
        line.unwrap().set(Counter::Bytes, 150);
        books.bury(4, line, 1_000);
        board.release(0);
        // One that nobody has seen yet did all of it since the last account.
        line.unwrap().set(Counter::Completions, 5);
        books.bury(5, line, 20);
        let nobody = || std::iter::empty::<&Entry<()>>();
        let told = books.count(Account::default(), board, nobody(), 9);
        let of = |figure| told.of(figure);
        assert_eq!((of(Figure::Completions), of(Figure::Bytes)), (Some(8), Some(50)));
        assert_eq!(of(Figure::CpuUs), Some(720));
        let next = books.count(Account::default(), board, nobody(), 9);
        assert_eq!((next.of(Figure::Completions), next.of(Figure::CpuUs)), (Some(0), Some(0)));
    }

    #[test]
    fn children_whose_clocks_are_read_have_their_turns() {
        let pids: Vec<(u64, i32)> = [2, 5, 7, 9].map(|number| (number, 0)).to_vec();
        let order = |last| in_turn(&pids, last).map(|(number, _)| number).collect::<Vec<_>>();
        assert_eq!(order(0), [2, 5, 7, 9]);
        assert_eq!(order(5), [7, 9, 2, 5]);
        // The last one to have had its turn may have gone.
        assert_eq!((order(6), order(9), order(99)), (order(5), order(0), order(0)));
        assert_eq!(in_turn(&[], 5).next(), None);
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
        let mut books = Books::default();
        for last in [4, 2, 6] {
            let _account = books.count(Account::default(), board, children.all(), 4);
            assert_eq!((books.turn, books.children.len()), (last, 6));
        }
    }

    #[test]
    fn sums_of_clocks_are_unknown_once_a_part_is() {
        assert_eq!(added(Some(5), Some(30), Some(10)), Some(25));
        // A child that has just come counts from its beginning, and no clock goes back.
        assert_eq!(added(Some(5), Some(30), None), Some(35));
        assert_eq!(added(Some(5), Some(3), Some(10)), Some(5));
        assert_eq!((added(Some(5), None, Some(1)), added(None, Some(1), None)), (None, None));
    }

    #[test]
    fn what_stands_and_falls_is_averaged_between_accounts() {
        let mut samples = Samples { count: 4, queue: 9, busy: 6, ..Samples::default() };
        let account = samples.tell(Account::default());
        assert_eq!(
            (account.of(Figure::Queue), account.of(Figure::BusyMilli)),
            (Some(2), Some(1500))
        );
        let next = samples.tell(Account::default());
        assert_eq!((next.of(Figure::Queue), next.of(Figure::WritingMilli)), (Some(0), Some(0)));
    }

    #[test]
    fn ticks_that_are_early_and_late_are_no_work_of_others() {
        let mut machine = Machine::default();
        // 340 ms a second of the server's own and nobody else, in ticks of 10 ms.
        let ticks = [350_000, 330_000, 340_000, 320_000, 360_000, 340_000, 350_000, 330_000];
        let told: u64 = ticks.map(|all_us| machine.others_us(all_us, 340_000)).iter().sum();
        assert!(told <= 20_000, "{told}");
        // Whoever has 100 ms of each second is told.
        let told = ticks.map(|all_us| machine.others_us(all_us + 100_000, 340_000));
        assert!((780_000..=800_000).contains(&told.iter().sum::<u64>()), "{told:?}");
        // A clock that was read late does not hide others for long.
        assert_eq!(machine.others_us(0, 9_000_000), 0);
        assert_eq!(machine.others_us(440_000, 340_000), 100_000 - MOST_UNTOLD_US);
    }

    #[test]
    fn interfaces_come_and_go_and_the_others_are_told_all_the_same() {
        let one = |name: &str, sent| Interface { name: name.into(), sent, bits: 8_000_000 };
        let mut machine = Machine::default();
        let mut tell = |now| machine.network_milli(Some(1_000_000), now);
        assert_eq!(tell(vec![one("a", 0), one("b", 0)]), None);
        assert_eq!(tell(vec![one("c", 0), one("b", 100_000), one("a", 500_000)]), Some(500));
        assert_eq!(tell(vec![one("c", 900_000)]), Some(900));
        // It was away, and has sent since.
        assert_eq!(tell(vec![one("a", 900_000)]), None);
    }

    #[test]
    fn segments_thrown_away_are_no_refusals_while_no_queue_is_full() {
        let mut refusals = Refusals::default();
        let first = refusals.tell(Account::default(), 1_000_000, Some(7));
        assert_eq!(first.of(Figure::Refused), None);
        // Sockets were opened anew.
        let second = refusals.tell(Account::default(), 3, Some(7));
        assert_eq!(second.of(Figure::Refused), Some(0));
        let third = refusals.tell(Account::default(), 6, Some(12));
        assert_eq!(third.of(Figure::Refused), Some(3));
    }

    #[test]
    fn a_quota_is_told_by_its_periods() {
        let mut machine = Machine::default();
        assert_eq!(machine.throttled_us(Some(1_000_000)), None);
        machine.periods = vec![Periods::default()];
        // The group is gone: nothing is compared with nothing.
        assert_eq!(machine.throttled_us(Some(1_000_000)), None);
        assert!(machine.periods.is_empty());
    }

    #[test]
    fn the_machine_is_compared_with_what_it_was() {
        let mut machine = Machine::default();
        let account = Account::default().with(Figure::SpanUs, 1).with(Figure::CpuUs, 0);
        let first = machine.tell(account, 1);
        assert_eq!(first.of(Figure::OthersUs), None);
        assert!(first.of(Figure::CoresMilli).is_some_and(|cores| cores > 0));
        let second = machine.tell(account, 2);
        assert!(second.of(Figure::OthersUs).is_some());
        assert!(second.of(Figure::MemoryFree) <= second.of(Figure::MemoryLimit));
    }
}
