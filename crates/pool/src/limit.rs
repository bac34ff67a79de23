//! What limits the server now: the limit that binds, the requests a second that it allows, and the
//! limit behind it, from an account of the last seconds. Unknown figures are not guessed: an idle
//! server has no limit, and one with few responses no maximum.

use crate::account::{Account, Constraint, Figure};

/// What can limit a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Limit {
    /// Nothing.
    #[default]
    None,
    /// The cores are busy, or the quota of the cgroup is used up.
    Cpu,
    /// Requests wait for something outside while workers are idle: each client waits as long as its
    /// request takes, and more clients would be served just as well.
    Wait,
    /// All workers are busy while requests wait for one.
    Workers,
    /// More requests in progress brought no more responses: what they ask for is at its limit.
    Application,
    /// The threads of the blocking pool are all blocked, mostly by disks.
    Disk,
    /// Responses wait for clients that read slowly, because of their bandwidth or themselves.
    Clients,
    /// The server's own network interface.
    Network,
    /// Memory.
    Memory,
    /// File descriptors: one for each connection.
    Descriptors,
    /// The accept queue is full.
    Backlog,
}

/// The verdict on an account.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verdict {
    /// The limit that binds.
    pub limit: Limit,
    /// The most requests a second as things are; none if too few requests were answered to tell, or
    /// if it cannot be known.
    pub maximum: Option<f64>,
    /// The next limit, and the requests a second at which it would bind.
    pub next: Option<(Limit, f64)>,
}

/// From this share on, something is used up.
const FULL: f64 = 0.95;
/// From this share on, the cores are used up: the last of them goes to other processes.
const CPU_FULL: f64 = 0.9;
/// A client that the kernel refuses tries again after so many seconds (TCP's first time-out).
const AGAIN_S: f64 = 1.0;
/// A server that is throttled for this share of the time is limited by its quota.
const THROTTLED: f64 = 0.05;
/// Memory is short if processes wait for it for so many hundredths of a per cent of the time, or if
/// less than this share of it is left.
const PRESSURE: u64 = 1000;
const LEAST_FREE: f64 = 0.03;
/// Fewer requests than this say nothing about the cost of a request.
const ENOUGH: u64 = 100;

impl Limit {
    /// All limits, by number.
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

    /// The limit with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// The cost of a request, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// CPU time.
    pub cpu: f64,
    /// Waiting for a core, on the kernel's run queue or queued for a thread of the blocking pool.
    pub queued: f64,
    /// Holding a worker while waiting for something else.
    pub wait: f64,
}

impl Cost {
    /// The cost of a request in this account; none if too few were answered or their CPU time is
    /// unknown. How long a request holds a worker follows from the number of busy workers (Little's
    /// law), without timing any.
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

    /// How many workers keep `cores` cores busy. With fewer, cores are idle while requests wait;
    /// with more, requests only wait for each other.
    #[must_use]
    pub fn knee(&self, cores: f64) -> f64 {
        cores * (self.cpu + self.wait) / self.cpu
    }
}

/// The cores that the server can get now: those that it may use, less what other processes have. If
/// all are busy, others make room for a thread that is ready: the server's share is what it had of
/// the time in which it had or wanted a core.
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

/// What limits the server, by an account of some seconds.
#[must_use]
pub fn verdict(account: &Account) -> Verdict {
    let limit = binding(account);
    let mut ceilings = ceilings(account);
    ceilings.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let rate = account.rate(Figure::Completions);
    let own = ceilings.iter().find(|(named, _)| *named == limit).map(|(_, ceiling)| *ceiling);
    let maximum = match limit {
        Limit::None | Limit::Wait | Limit::Clients => ceilings.first().map(|(_, least)| *least),
        // How much more these could bear is unknown: the present responses are the maximum.
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

/// The requests a second at which each limit would bind, as far as that can be told.
fn ceilings(account: &Account) -> Vec<(Limit, f64)> {
    let Some(cost) = Cost::of(account) else { return Vec::new() };
    let mut all = Vec::new();
    if let Some(cores) = cores_left(account) {
        all.push((Limit::Cpu, cores * 1e6 / cost.cpu));
    }
    if let Some(workers) = account.value(Figure::Workers) {
        all.push((constraint(account), workers * 1e6 / (cost.cpu + cost.wait)));
    }
    // Idle connections make room for others, and connections whose clients read do not. If
    // connections hold workers, workers run out first.
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

/// How long a response waited for its client, in microseconds (Little's law).
fn writing_us(account: &Account) -> f64 {
    let writing = account.value(Figure::WritingMilli).unwrap_or(0.0) / 1000.0;
    account.each(Figure::SpanUs).unwrap_or(0.0) * writing
}

/// The limit that the number of workers comes from.
fn constraint(account: &Account) -> Limit {
    match account.of(Figure::Constraint) {
        Some(constraint) if constraint == Constraint::Memory as u64 => Limit::Memory,
        Some(constraint) if constraint == Constraint::Descriptors as u64 => Limit::Descriptors,
        _ => Limit::Workers,
    }
}

fn binding(account: &Account) -> Limit {
    let busy = account.value(Figure::BusyMilli).unwrap_or(0.0) / 1000.0;
    let standing = account.value(Figure::Queue).unwrap_or(0.0)
        + account.value(Figure::RunnableMilli).unwrap_or(0.0) / 1000.0;
    let writing = account.value(Figure::WritingMilli).unwrap_or(0.0) / 1000.0;
    let workers = account.value(Figure::Workers).unwrap_or(f64::INFINITY);
    let is_no_gain = account.of(Figure::Constraint) == Some(Constraint::NoGain as u64);
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
    // If connections hold workers, a response that waits for its client delays others.
    let holds_workers = account.of(Figure::RestingMilli).is_some();
    if holds_workers && writing >= 1.0 && writing > 0.5 * busy {
        return Limit::Clients;
    }
    if busy >= FULL * workers && standing >= 1.0 {
        return if is_no_gain { Limit::Application } else { constraint(account) };
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
        return if is_no_gain { Limit::Application } else { Limit::Wait };
    }
    Limit::None
}

/// Whether `part` is at least that share of `of`; false if either is unknown.
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

/// The cores are used up if the server uses what other processes leave, and either uses much of
/// them or its requests wait for them. Other processes alone do not limit a server that is idle or
/// whose requests wait for something else.
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

/// Whether all threads of the blocking pool are held without using a core while jobs are queued.
fn is_blocking_pool_held(account: &Account) -> bool {
    let threads = account.value(Figure::BlockingThreads).filter(|threads| *threads > 0.0);
    let held = account.rate(Figure::BlockedUs).unwrap_or(0.0) / 1e6;
    // Threads that wait for a core are held too, but not by a disk.
    let queued = account.rate(Figure::RunQueueUs).unwrap_or(0.0) / 1e6;
    let line = account.rate(Figure::QueueUs).unwrap_or(0.0) / 1e6;
    threads.is_some_and(|threads| held - queued >= CPU_FULL * threads && line >= 1.0)
}

#[cfg(test)]
mod tests;
