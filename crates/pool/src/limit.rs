//! What holds a server back now. An account of the last seconds comes in; the limit that binds, the
//! most requests a second that it leaves, and the limit behind it go out. What the account does not
//! know is not guessed: a server at rest has no limit, and one that answered few requests no
//! maximum.

use crate::account::{Account, Bar, Figure};

/// What can hold a server back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Limit {
    /// Nothing does.
    #[default]
    None,
    /// The cores are at work, or the quota of the cgroup is used up.
    Cpu,
    /// Requests wait for something outside, workers are free: each client waits as long as its
    /// request takes, and more clients would be served as well.
    Wait,
    /// All workers are taken while requests wait for one.
    Workers,
    /// More requests in progress brought no more answers: what they ask is at its limit.
    Application,
    /// The threads for work that blocks are all held, most of all by disks.
    Disk,
    /// Responses wait for clients that read slowly: their bandwidth, or they themselves.
    Clients,
    /// The server's own network interface.
    Network,
    /// Memory.
    Memory,
    /// File descriptors: one for each connection.
    Descriptors,
    /// The kernel's queue of connections that wait to be accepted is full.
    Backlog,
}

/// What can be said of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verdict {
    /// What binds.
    pub limit: Limit,
    /// The most requests a second while everything stays as it is; none where too few requests were
    /// answered to tell, or where nobody can know.
    pub maximum: Option<f64>,
    /// The limit behind it, and the requests a second at which it would bind.
    pub next: Option<(Limit, f64)>,
}

/// So much of a thing is all of it.
const FULL: f64 = 0.95;
/// So much of the cores is all of them: the last of it goes to whoever else is there.
const CPU_FULL: f64 = 0.9;
/// Whom the kernel refuses comes again after so many seconds (TCP's first time-out).
const AGAIN_S: f64 = 1.0;
/// A server that is held back by its quota for this part of the time is held back by it.
const THROTTLED: f64 = 0.05;
/// Memory is short where processes wait for it for so many hundredths of a per cent of the time,
/// or where less than this part of it is left.
const PRESSURE: u64 = 1000;
const LEAST_FREE: f64 = 0.03;
/// Fewer requests than this say nothing of what a request costs.
const ENOUGH: u64 = 100;

impl Limit {
    /// All, by their numbers.
    pub const ALL: [Self; 11] = [
        Self::None,
        Self::Cpu,
        Self::Wait,
        Self::Workers,
        Self::Application,
        Self::Disk,
        Self::Clients,
        Self::Network,
        Self::Memory,
        Self::Descriptors,
        Self::Backlog,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Cpu => "cpu",
            Self::Wait => "wait",
            Self::Workers => "workers",
            Self::Application => "application",
            Self::Disk => "disk",
            Self::Clients => "clients",
            Self::Network => "network",
            Self::Memory => "memory",
            Self::Descriptors => "descriptors",
            Self::Backlog => "backlog",
        }
    }

    /// Its number in a history.
    #[must_use]
    pub const fn number(self) -> u64 {
        self as u64
    }

    /// The limit of a number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// What a request takes, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// CPU time.
    pub cpu: f64,
    /// Waiting for a core, on the kernel's run queue and queued for a thread of the blocking pool.
    pub queued: f64,
    /// Holding a worker while it waits for something else.
    pub wait: f64,
}

impl Cost {
    /// What a request of this account took; none where too few were answered or their CPU time is
    /// unknown. How long a worker is held follows from how many are (Little's law), so that no
    /// request is timed for it.
    #[must_use]
    pub fn of(account: &Account) -> Option<Self> {
        let requests = account.of(Figure::Completions).filter(|count| *count >= ENOUGH)?;
        let cpu = account.each(Figure::CpuUs).filter(|cpu| *cpu > 0.0)?;
        let queued = account.each(Figure::RunQueueUs).unwrap_or(0.0)
            + account.each(Figure::QueueUs).unwrap_or(0.0);
        let resting = account.value(Figure::RestingMilli).unwrap_or(0.0);
        let busy = (account.value(Figure::BusyMilli)? - resting).max(0.0) / 1000.0;
        let held = busy * account.value(Figure::SpanUs)? / requests as f64;
        Some(Self { cpu, queued, wait: (held - cpu - queued).max(0.0) })
    }

    /// How many workers keep so many cores at work: with fewer some cores rest while requests wait,
    /// with more the requests only wait for each other.
    #[must_use]
    pub fn knee(&self, cores: f64) -> f64 {
        cores * (self.cpu + self.wait) / self.cpu
    }
}

/// The cores that the server can have now: those that it may use, less what others have of
/// them. Where all are at work, others give way to a thread that is ready: its share is what it had
/// of the time in which it had or wanted a core.
#[must_use]
pub fn cores_left(account: &Account) -> Option<f64> {
    let cores = account.value(Figure::CoresMilli)? / 1000.0;
    let others = account.rate(Figure::OthersUs).unwrap_or(0.0) / 1e6;
    let own = account.rate(Figure::CpuUs).unwrap_or(0.0) / 1e6;
    let left = (cores - others).max(own);
    let queued = account.rate(Figure::RunQueueUs).map(|rate| rate / 1e6);
    let shared = queued.filter(|_| own > 0.0 && others + own >= CPU_FULL * cores);
    let share = shared.map_or(0.0, |queued| cores * own / (own + queued));
    Some(left.max(share).min(cores).max(0.0))
}

/// What holds the server back, by an account of some seconds.
#[must_use]
pub fn verdict(account: &Account) -> Verdict {
    let limit = binding(account);
    let mut ceilings = ceilings(account);
    ceilings.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let rate = account.rate(Figure::Completions);
    let own = ceilings.iter().find(|(named, _)| *named == limit).map(|(_, ceiling)| *ceiling);
    let maximum = match limit {
        Limit::None | Limit::Wait | Limit::Clients => ceilings.first().map(|(_, least)| *least),
        // Nothing tells how much more these bear: what is answered now is all.
        Limit::Application | Limit::Disk => rate,
        Limit::Backlog => None,
        Limit::Cpu | Limit::Workers | Limit::Network | Limit::Memory | Limit::Descriptors => own,
    };
    let behind = |(named, ceiling): &&(Limit, f64)| match limit {
        Limit::None | Limit::Wait | Limit::Clients => true,
        _ => *named != limit && *ceiling >= maximum.or(rate).unwrap_or(0.0),
    };
    Verdict { limit, maximum, next: ceilings.iter().find(behind).copied() }
}

/// The requests a second at which each limit would bind that a number can be given for.
fn ceilings(account: &Account) -> Vec<(Limit, f64)> {
    let Some(cost) = Cost::of(account) else { return Vec::new() };
    let mut all = Vec::new();
    if let Some(cores) = cores_left(account) {
        all.push((Limit::Cpu, cores * 1e6 / cost.cpu));
    }
    if let Some(workers) = account.value(Figure::Workers) {
        all.push((bar(account), workers * 1e6 / (cost.cpu + cost.wait)));
    }
    // A connection that rests makes room for another, one whose client reads does not; where
    // connections hold workers, these run out first.
    let descriptors = account.value(Figure::Descriptors);
    let holds_workers = account.of(Figure::RestingMilli).is_some();
    if let Some(descriptors) = descriptors.filter(|_| !holds_workers) {
        let open = cost.cpu + cost.wait + writing_us(account);
        all.push((Limit::Descriptors, descriptors * 1e6 / open));
    }
    let used = account.value(Figure::NetworkMilli).filter(|used| *used >= 10.0);
    if let (Some(used), Some(rate)) = (used, account.rate(Figure::Completions)) {
        all.push((Limit::Network, rate * 1000.0 / used));
    }
    all
}

/// For how many microseconds the answer to a request waited for its client (Little's law).
fn writing_us(account: &Account) -> f64 {
    let writing = account.value(Figure::WritingMilli).unwrap_or(0.0) / 1000.0;
    account.each(Figure::SpanUs).unwrap_or(0.0) * writing
}

/// What it is that there are no more workers for.
fn bar(account: &Account) -> Limit {
    match account.of(Figure::Bar) {
        Some(bar) if bar == Bar::Memory as u64 => Limit::Memory,
        Some(bar) if bar == Bar::Descriptors as u64 => Limit::Descriptors,
        _ => Limit::Workers,
    }
}

fn binding(account: &Account) -> Limit {
    let busy = account.value(Figure::BusyMilli).unwrap_or(0.0) / 1000.0;
    let standing = account.value(Figure::Queue).unwrap_or(0.0)
        + account.value(Figure::RunnableMilli).unwrap_or(0.0) / 1000.0;
    let writing = account.value(Figure::WritingMilli).unwrap_or(0.0) / 1000.0;
    let workers = account.value(Figure::Workers).unwrap_or(f64::INFINITY);
    let is_in_vain = account.of(Figure::Bar) == Some(Bar::Vain as u64);
    if at_least(account, Figure::Connections, Figure::Descriptors, FULL) {
        return Limit::Descriptors;
    }
    if is_memory_short(account) {
        return Limit::Memory;
    }
    if is_cpu_full(account) {
        return Limit::Cpu;
    }
    if account.value(Figure::NetworkMilli).is_some_and(|used| used >= CPU_FULL * 1000.0) {
        return Limit::Network;
    }
    if is_blocking_pool_held(account) {
        return Limit::Disk;
    }
    // Where connections hold workers, a response that waits for its client keeps others waiting.
    let holds_workers = account.of(Figure::RestingMilli).is_some();
    if holds_workers && writing >= 1.0 && writing > 0.5 * busy {
        return Limit::Clients;
    }
    if busy >= FULL * workers && standing >= 1.0 {
        return if is_in_vain { Limit::Application } else { bar(account) };
    }
    // More clients wait to try again than are served.
    let refused = account.rate(Figure::Refused).unwrap_or(0.0) * AGAIN_S;
    if refused >= 1.0 && refused > busy {
        return Limit::Backlog;
    }
    if writing >= 1.0 && writing > busy {
        return Limit::Clients;
    }
    let waits = Cost::of(account).is_some_and(|cost| cost.wait > 4.0 * (cost.cpu + cost.queued));
    if busy >= 1.0 && waits {
        return if is_in_vain { Limit::Application } else { Limit::Wait };
    }
    Limit::None
}

/// Whether one figure is that part of another; false where either is unknown.
fn at_least(account: &Account, part: Figure, of: Figure, share: f64) -> bool {
    let of = account.value(of).filter(|of| *of > 0.0);
    of.zip(account.value(part)).is_some_and(|(of, part)| part >= share * of)
}

fn is_memory_short(account: &Account) -> bool {
    let limit = account.value(Figure::MemoryLimit).filter(|limit| *limit > 0.0);
    let free = limit.zip(account.value(Figure::MemoryFree));
    account.of(Figure::MemoryPressure).is_some_and(|pressure| pressure >= PRESSURE)
        || free.is_some_and(|(limit, free)| free < LEAST_FREE * limit)
}

/// The cores are full where the server uses what others leave of them, and either uses much of
/// them or has its requests wait for them; others alone at work are no limit of a server that rests
/// or whose requests wait for something else.
fn is_cpu_full(account: &Account) -> bool {
    let throttled = account.rate(Figure::ThrottledUs).unwrap_or(0.0) / 1e6;
    let used = account.rate(Figure::CpuUs).unwrap_or(0.0) / 1e6;
    let queued = account.rate(Figure::RunQueueUs).unwrap_or(0.0) / 1e6;
    let Some(left) = cores_left(account).filter(|left| *left > 0.0) else { return false };
    let cores = account.value(Figure::CoresMilli).unwrap_or(0.0) / 1000.0;
    let line = account.rate(Figure::QueueUs).unwrap_or(0.0) / 1e6;
    let resting = account.value(Figure::RestingMilli).unwrap_or(0.0);
    let held = account.value(Figure::BusyMilli).map(|busy| (busy - resting).max(0.0) / 1000.0);
    let is_most = held.is_none_or(|held| used + queued + line >= 0.5 * held);
    let waits_for_it = used >= 0.02 * cores && queued > 0.25 * used && is_most;
    let is_much = used >= 0.5 * cores || waits_for_it;
    throttled >= THROTTLED || (used >= CPU_FULL * left && is_much)
}

/// Whether the threads for work that blocks are all held without using a core, and more such work
/// stands in line.
fn is_blocking_pool_held(account: &Account) -> bool {
    let threads = account.value(Figure::BlockingThreads).filter(|threads| *threads > 0.0);
    let held = account.rate(Figure::BlockedUs).unwrap_or(0.0) / 1e6;
    // Threads that wait for a core are held too, and that is no disk.
    let queued = account.rate(Figure::RunQueueUs).unwrap_or(0.0) / 1e6;
    let line = account.rate(Figure::QueueUs).unwrap_or(0.0) / 1e6;
    threads.is_some_and(|threads| held - queued >= CPU_FULL * threads && line >= 1.0)
}

#[cfg(test)]
mod tests;
