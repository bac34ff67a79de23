//! How many workers a pool may have: what the configuration says, or what the costs of its
//! requests, the cores and the memory allow.

use super::zygote::{Totals, Zygote};
use evenkeel_sys::application::PageContent;
use evenkeel_sys::process::usable_cores;
use evenkeel_sys::resources::Groups;
use evenkeel_sys::spawn::Limit;
use std::path::PathBuf;
use std::time::Duration;

/// The memory of a worker, in bytes, until some were measured.
const MEMORY_AT_FIRST: u64 = 24 << 20;

/// Workers for each core to begin with, if the number is not configured.
const FOR_EACH_CORE: usize = 4;

/// The weight of what came before in averages, for each second.
const KEPT: f64 = 0.8;

/// The bounds of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// AppMaxWorkers; `None` is `auto`.
    pub most_workers: Option<usize>,
    /// AppMinSpare and AppMaxSpare.
    pub min_spare: usize,
    /// See `min_spare`.
    pub max_spare: usize,
    /// AppMaxRequests: a worker ends after so many requests; 0 is never.
    pub most_requests: u64,
    /// AppMemory: a worker ends after a request that has left it with more bytes; 0 is never.
    pub most_memory: u64,
    /// AppRequestTimeout.
    pub request_timeout: Option<Duration>,
    /// AppIdleTimeout.
    pub idle_timeout: Duration,
    /// AppSlowTimeout, and the file of AppSlowLog.
    pub slow: Option<(Duration, PathBuf)>,
    /// RLIMIT_NPROC of the workers (RLimitNPROC): a script of theirs cannot start a process while
    /// their user has that many.
    pub processes: Option<Limit>,
    /// AppNice: the nice value of the workers; `None` is this process's.
    pub nice: Option<u8>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            most_workers: None,
            min_spare: 1,
            max_spare: 8,
            most_requests: 0,
            most_memory: 0,
            request_timeout: None,
            idle_timeout: Duration::from_secs(300),
            slow: None,
            processes: None,
            nice: None,
        }
    }
}

/// The most workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) workers: usize,
    /// Whether memory keeps the pool from having more.
    pub(super) is_memory: bool,
}

impl Bounds {
    /// The most workers, with `count` workers that have `memory` bytes of their own.
    pub(super) fn most(&self, costs: &Costs, count: usize, memory: u64) -> Most {
        if let Some(workers) = self.most_workers {
            return Most { workers: workers.max(1), is_memory: false };
        }
        let cores = usable_cores();
        let wanted = costs.useful_workers(cores).max(cores * FOR_EACH_CORE);
        let each = match count {
            0 => MEMORY_AT_FIRST,
            _ => (memory / count as u64).max(MEMORY_AT_FIRST / 8),
        };
        // A quarter of the free memory is left for files and for what scripts need at their peak.
        let free = costs.free_memory().map(|free| free / 4 * 3 / each.max(1));
        let fits = free.map_or(usize::MAX, |more| {
            count.saturating_add(usize::try_from(more).unwrap_or(usize::MAX)).max(1)
        });
        Most { workers: wanted.min(fits), is_memory: fits < wanted }
    }
}

/// What requests of a pool cost, on average over the last seconds.
#[derive(Default)]
pub(super) struct Costs {
    /// What workers that have ended have added.
    ended: Totals,
    last: Totals,
    last_us: u64,
    /// CPU time and other time in a second, smoothed, in microseconds.
    cpu: f64,
    wait: f64,
    /// Likewise, time without a core, and the number of requests.
    ready: f64,
    requests: f64,
    groups: Option<Groups>,
}

impl Costs {
    pub(super) fn retire(&mut self, page: &PageContent) {
        self.ended.add(page);
    }

    pub(super) fn totals<'a>(&self, zygotes: impl Iterator<Item = &'a Zygote>) -> Totals {
        let mut totals = self.ended;
        zygotes.flat_map(Zygote::pages).for_each(|page| totals.add(page));
        totals
    }

    /// Compares with the figures of a second ago.
    pub(super) fn note(&mut self, now_us: u64, totals: &Totals) {
        if now_us.saturating_sub(self.last_us) < 1_000_000 {
            return;
        }
        self.last_us = now_us;
        let cpu = totals.cpu_us.saturating_sub(self.last.cpu_us) as f64;
        let wait = totals.wait_us.saturating_sub(self.last.wait_us) as f64;
        let requests = totals.requests.saturating_sub(self.last.requests);
        if requests > 0 {
            let ready = totals.ready_us.saturating_sub(self.last.ready_us) as f64;
            self.ready = self.ready * KEPT + ready;
            self.requests = self.requests * KEPT + requests as f64;
            self.cpu = self.cpu * KEPT + cpu;
            self.wait = self.wait * KEPT + wait;
        }
        self.last = *totals;
        let _found = self.groups.get_or_insert_with(Groups::find);
    }

    /// CPU time, time without a core and time of waiting of a request, in microseconds.
    pub(super) fn each(&self) -> [u64; 3] {
        let requests = self.requests.max(1.0);
        [self.cpu, self.ready, self.wait].map(|sum| (sum / requests) as u64)
    }

    /// More workers than these cannot use the cores better: twice as many as keep all cores busy
    /// while the others wait.
    fn useful_workers(&self, cores: usize) -> usize {
        if self.cpu < 1.0 {
            // Nothing but waiting has been seen, or nothing at all.
            return if self.wait < 1.0 { 0 } else { 512 };
        }
        let each = 1.0 + self.wait / self.cpu;
        ((cores as f64 * 2.0 * each).ceil() as usize).min(4096)
    }

    /// Bytes that the control group and the machine have left.
    fn free_memory(&self) -> Option<u64> {
        let memory = self.groups.as_ref()?.memory()?;
        Some(memory.free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The costs of a second of 100 such requests, times in milliseconds.
    fn costs(cpu: u64, ready: u64, wait: u64) -> Costs {
        let mut costs = Costs::default();
        let us = |milli: u64| milli * 1000 * 100;
        let (cpu_us, ready_us, wait_us) = (us(cpu), us(ready), us(wait));
        costs.note(2_000_000, &Totals { requests: 100, cpu_us, ready_us, wait_us });
        costs
    }

    #[test]
    fn pages_that_burn_need_as_many_workers_as_keep_the_cores_busy_whatever_they_queue_for() {
        assert_eq!(costs(20, 0, 0).useful_workers(2), 4);
        assert_eq!(costs(20, 400, 0).useful_workers(2), 4);
        assert_eq!(costs(20, 60, 20).useful_workers(2), 8);
    }

    #[test]
    fn pages_that_wait_need_more_up_to_a_bound() {
        assert_eq!(costs(1, 0, 199).useful_workers(2), 800);
        assert_eq!(costs(0, 0, 200).useful_workers(2), 512);
        assert_eq!(costs(1, 0, 60_000).useful_workers(2), 4096);
        assert_eq!(Costs::default().useful_workers(2), 0);
    }

    #[test]
    fn a_number_is_obeyed_and_auto_has_some_for_each_core_before_anything_is_known() {
        let auto = Bounds::default();
        let cores = usable_cores();
        let most = auto.most(&Costs::default(), 0, 0);
        assert_eq!(most, Most { workers: cores * FOR_EACH_CORE, is_memory: false });
        let set = Bounds { most_workers: Some(256), ..Bounds::default() };
        assert_eq!(set.most(&costs(20, 400, 0), 0, 0).workers, 256);
    }
}
