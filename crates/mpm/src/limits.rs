//! Computes the bounds of the pool from the directives as written, with the warnings that they
//! deserve. Texts, numbers and order are Apache's (server/mpm/*/, *_check_config), compared with
//! its output.

use evenkeel_message::{Level, Notice};
use std::time::Duration;

/// The process models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Model {
    /// Any number of connections in a process; a request in progress holds a credit.
    #[default]
    Event,
    /// A thread for each connection.
    Worker,
    /// A process for each connection.
    Prefork,
}

impl Model {
    /// The name of the module that implements it in Apache, without `mod_`.
    #[must_use]
    pub fn module(self) -> &'static str {
        match self {
            Self::Event => "mpm_event",
            Self::Worker => "mpm_worker",
            Self::Prefork => "mpm_prefork",
        }
    }

    /// The name on the status page and in `-V`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Worker => "worker",
            Self::Prefork => "prefork",
        }
    }

    fn most_servers(self) -> i64 {
        if self == Self::Prefork { 200_000 } else { 20_000 }
    }

    fn most_threads(self) -> i64 {
        if self == Self::Event { 100_000 } else { 20_000 }
    }

    fn default_servers(self) -> i64 {
        if self == Self::Prefork { 256 } else { 16 }
    }

    /// Apache's number of the first message about the limits. The others follow in the same order
    /// in worker and event.
    fn first_number(self) -> u16 {
        match self {
            Self::Event => 497,
            Self::Worker => 300,
            Self::Prefork => 175,
        }
    }
}

/// With more cores than this there is a bucket for every so many, unless the number is configured.
const MANY_CORES: usize = 16;
const CORES_A_BUCKET: usize = 8;

/// The directives as written; `None` is not configured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Configured {
    /// The process model.
    pub model: Model,
    /// StartServers.
    pub start_servers: Option<i64>,
    /// MinSpareServers (prefork).
    pub min_spare_servers: Option<i64>,
    /// MaxSpareServers (prefork).
    pub max_spare_servers: Option<i64>,
    /// MinSpareThreads (worker, event).
    pub min_spare_threads: Option<i64>,
    /// MaxSpareThreads (worker, event).
    pub max_spare_threads: Option<i64>,
    /// ThreadsPerChild (worker, event).
    pub threads_per_child: Option<i64>,
    /// ThreadLimit (worker, event).
    pub thread_limit: Option<i64>,
    /// ServerLimit.
    pub server_limit: Option<i64>,
    /// MaxRequestWorkers, or MaxClients.
    pub max_request_workers: Option<i64>,
    /// Whether it is `auto`.
    pub auto: bool,
    /// Whether it was spelled MaxClients.
    pub max_clients_spelling: bool,
    /// AsyncRequestWorkerFactor (event).
    pub async_request_worker_factor: Option<f64>,
    /// MaxConnectionsPerChild, or MaxRequestsPerChild; 0 is no bound.
    pub max_connections_per_child: Option<i64>,
    /// OverloadShedding in milliseconds (event).
    pub overload_shedding_ms: Option<u32>,
    /// ListenBacklog.
    pub listen_backlog: Option<i64>,
    /// ListenCoresBucketsRatio: cores for each bucket.
    pub listen_cores_buckets_ratio: Option<i64>,
    /// ListenBuckets, which Apache does not have: their number.
    pub listen_buckets: Option<i64>,
}

/// The limits that hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The process model.
    pub model: Model,
    /// How many children to start; all of them, if their number is fixed.
    pub start_servers: usize,
    /// Whether the number of children never changes: event without directives on its size.
    pub fixed: bool,
    /// Whether the number of requests in progress is adjusted: MaxRequestWorkers auto, and event
    /// without directives on its size. The bound below is then the largest number.
    pub auto: bool,
    /// The least number of idle workers: processes in prefork, otherwise threads.
    pub min_spare: usize,
    /// The most idle workers.
    pub max_spare: usize,
    /// Workers in a child; 1 in prefork.
    pub threads_per_child: usize,
    /// The most that a reload can set for ThreadsPerChild.
    pub thread_limit: usize,
    /// The most children.
    pub server_limit: usize,
    /// The most requests in progress.
    pub max_request_workers: usize,
    /// How many connections a child accepts before it is replaced; `None` is no bound.
    pub max_connections_per_child: Option<u64>,
    /// If configured: connections beyond the idle workers, as a multiple of ThreadsPerChild.
    pub async_request_worker_factor: Option<f64>,
    /// How many buckets of listening sockets there are, each with at least two children.
    pub buckets: usize,
    /// If configured: requests are shed from a queue in which all wait for longer than this.
    pub overload_shedding: Option<Duration>,
}

/// When the limits are checked: Apache words its warnings differently.
#[derive(Debug, Clone, Copy)]
pub enum Moment<'a> {
    /// The first time, on standard error.
    Start,
    /// At a reload, when some values can no longer change.
    Restart(&'a Limits),
}

/// The limits that follow from the directives on a machine with this many cores and this
/// net.core.somaxconn, and the notices about them.
#[must_use]
pub fn check(
    configured: &Configured,
    moment: Moment<'_>,
    cores: usize,
    somaxconn: u32,
) -> (Limits, Vec<Notice>) {
    let mut check = Check { model: configured.model, moment, notices: Vec::new() };
    if configured.max_clients_spelling {
        let text = "MaxClients is deprecated, use MaxRequestWorkers instead.";
        let offset = if configured.model == Model::Prefork { 13 } else { 24 };
        check.note(Level::Info, offset, text.into());
    }
    let configured = &configured.with_room();
    let mut limits = match configured.model {
        Model::Prefork => check.prefork(configured),
        Model::Event | Model::Worker => check.threaded(configured),
    };
    limits.auto = configured.auto;
    if configured.model == Model::Event && (configured.names_no_limit() || configured.auto) {
        limits.max_request_workers = AUTO_MOST;
        limits.start_servers = cores.max(2).min(limits.max_request_workers);
        (limits.fixed, limits.auto) = (true, true);
    }
    check.buckets(configured, cores, &mut limits);
    check.backlog(configured.listen_backlog, somaxconn);
    (limits, check.notices)
}

/// The largest number of requests in progress that event sets by itself. A waiting request costs
/// little more than its memory, and CPU-bound or blocking work has threads of its own.
const AUTO_MOST: usize = 16_384;

/// With `auto` and no ServerLimit, prefork and worker may have so many times the default
/// ServerLimit.
const AUTO_ROOM: i64 = 4;

impl Configured {
    /// The same with the bounds of `auto` in prefork and worker: as many requests as ServerLimit
    /// allows.
    fn with_room(&self) -> Self {
        if !self.auto || self.model == Model::Event {
            return *self;
        }
        let limit = self.server_limit.unwrap_or(self.model.default_servers() * AUTO_ROOM);
        let threads =
            if self.model == Model::Prefork { 1 } else { self.threads_per_child.unwrap_or(25) };
        let workers = limit.max(1).saturating_mul(threads.max(1));
        Self { server_limit: Some(limit), max_request_workers: Some(workers), ..*self }
    }

    /// Whether no directive on the pool's size was configured.
    fn names_no_limit(&self) -> bool {
        let named = [
            self.start_servers,
            self.min_spare_threads,
            self.max_spare_threads,
            self.threads_per_child,
            self.thread_limit,
            self.server_limit,
            self.max_request_workers,
        ];
        named.iter().all(Option::is_none)
    }
}

impl Limits {
    /// How many requests may be in progress at first, if that number is adjusted.
    #[must_use]
    pub fn first_budget(&self) -> usize {
        let usual = match self.model {
            Model::Event => AUTO_MOST,
            Model::Worker => 400,
            Model::Prefork => 256,
        };
        usual.min(self.max_request_workers)
    }

    /// The most children that serve at the same time.
    #[must_use]
    pub fn most_children(&self) -> usize {
        if self.fixed {
            return self.start_servers;
        }
        (self.max_request_workers / self.threads_per_child.max(1)).max(1)
    }

    /// How many children may serve or be parked in a generation, for the life of the server:
    /// ServerLimit, which no reload changes. As many more may retire.
    #[must_use]
    pub fn table(&self) -> usize {
        self.server_limit.max(self.most_children())
    }

    /// The bounds for the pool's law.
    #[must_use]
    pub fn pool(&self) -> evenkeel_pool::Limits {
        evenkeel_pool::Limits {
            threads: self.threads_per_child,
            min_spare: self.min_spare,
            max_spare: self.max_spare,
            children: self.most_children(),
            slots: self.server_limit.max(self.most_children()),
        }
    }

    /// How many requests the child with this rank (0 to `start_servers` - 1) may work on at once.
    /// Together the children have MaxRequestWorkers.
    #[must_use]
    pub fn credits(&self, rank: usize) -> usize {
        if !self.fixed || self.model != Model::Event {
            return self.threads_per_child;
        }
        let children = self.start_servers.max(1);
        let rest = usize::from(rank < self.max_request_workers % children);
        (self.max_request_workers / children + rest).max(1)
    }
}

struct Check<'a> {
    model: Model,
    moment: Moment<'a>,
    notices: Vec<Notice>,
}

impl Check<'_> {
    fn prefork(&mut self, configured: &Configured) -> Limits {
        let server_limit = self.server_limit(configured, "exceeds compile-time limit of");
        let mut workers =
            configured.max_request_workers.unwrap_or_else(|| Model::Prefork.default_servers());
        if workers > server_limit {
            self.warn(
                5,
                format!(
                    "MaxRequestWorkers of {workers} exceeds ServerLimit value of {server_limit} \
                     servers, decreasing MaxRequestWorkers to {server_limit}. To increase, \
                     please see the ServerLimit directive."
                ),
                format!(
                    "MaxRequestWorkers of {workers} exceeds ServerLimit value of {server_limit}, \
                     decreasing to match"
                ),
            );
            workers = server_limit;
        } else if workers < 1 {
            self.at_least_one(7, "MaxRequestWorkers", &mut workers);
        }
        let mut start = configured.start_servers.unwrap_or(5);
        self.at_least_one(9, "StartServers", &mut start);
        let mut min_spare = configured.min_spare_servers.unwrap_or(5);
        self.min_spare(11, "MinSpareServers", &mut min_spare);
        // Apache raises it silently (prefork.c, prefork_run).
        let least = min_spare.saturating_add(1);
        let max_spare = configured.max_spare_servers.unwrap_or(10).max(least);
        self.limits(configured, [start, min_spare, max_spare, 1, 1, server_limit, workers])
    }

    fn threaded(&mut self, configured: &Configured) -> Limits {
        let server_limit = self.server_limit(configured, "exceeds compile-time limit of");
        let thread_limit = self.thread_limit(configured);
        let threads = self.threads_per_child(configured, thread_limit);
        let workers = self.max_request_workers(configured, threads, server_limit);
        let mut start = configured.start_servers.unwrap_or(3);
        self.at_least_one(20, "StartServers", &mut start);
        let mut min_spare = configured.min_spare_threads.unwrap_or(75);
        self.min_spare(22, "MinSpareThreads", &mut min_spare);
        // Apache raises it silently (event.c and worker.c, *_run).
        let least = min_spare.saturating_add(threads).saturating_add(1);
        let max_spare = configured.max_spare_threads.unwrap_or(250).max(least);
        let start = start.min(workers / threads.max(1)).max(1);
        self.limits(
            configured,
            [start, min_spare, max_spare, threads, thread_limit, server_limit, workers],
        )
    }

    fn limits(&self, configured: &Configured, values: [i64; 7]) -> Limits {
        let [start, min, max, threads, thread_limit, server_limit, workers] =
            values.map(|value| usize::try_from(value).unwrap_or(0));
        Limits {
            model: self.model,
            start_servers: start.min(workers),
            fixed: false,
            auto: false,
            min_spare: min,
            max_spare: max,
            threads_per_child: threads,
            thread_limit,
            server_limit,
            max_request_workers: workers,
            max_connections_per_child: configured
                .max_connections_per_child
                .and_then(|most| u64::try_from(most).ok())
                .filter(|&most| most > 0),
            async_request_worker_factor: configured.async_request_worker_factor,
            buckets: 1,
            overload_shedding: configured
                .overload_shedding_ms
                .map(|ms| Duration::from_millis(u64::from(ms))),
        }
    }

    fn server_limit(&mut self, configured: &Configured, exceeds: &str) -> i64 {
        let most = self.model.most_servers();
        let mut limit = configured.server_limit.unwrap_or_else(|| self.model.default_servers());
        if limit > most {
            self.warn(
                0,
                format!("ServerLimit of {limit} {exceeds} {most} servers, decreasing to {most}."),
                format!("ServerLimit of {limit} {exceeds} {most}, decreasing to match"),
            );
            limit = most;
        } else {
            self.at_least_one(2, "ServerLimit", &mut limit);
        }
        let current = |limits: &Limits| limits.server_limit;
        self.unchanged(4, "ServerLimit", limit, current)
    }

    fn thread_limit(&mut self, configured: &Configured) -> i64 {
        let most = self.model.most_threads();
        let mut limit = configured.thread_limit.unwrap_or(64);
        if limit > most {
            let exceeds = "exceeds compile-time limit of";
            self.warn(
                5,
                format!("ThreadLimit of {limit} {exceeds} {most} threads, decreasing to {most}."),
                format!("ThreadLimit of {limit} {exceeds} {most}, decreasing to match"),
            );
            limit = most;
        } else {
            self.at_least_one(7, "ThreadLimit", &mut limit);
        }
        let current = |limits: &Limits| limits.thread_limit;
        self.unchanged(9, "ThreadLimit", limit, current)
    }

    fn threads_per_child(&mut self, configured: &Configured, limit: i64) -> i64 {
        let mut threads = configured.threads_per_child.unwrap_or(25);
        if threads > limit {
            self.warn(
                10,
                format!(
                    "ThreadsPerChild of {threads} exceeds ThreadLimit of {limit} threads, \
                     decreasing to {limit}. To increase, please see the ThreadLimit directive."
                ),
                format!(
                    "ThreadsPerChild of {threads} exceeds ThreadLimit of {limit}, decreasing to \
                     match"
                ),
            );
            threads = limit;
        } else {
            self.at_least_one(12, "ThreadsPerChild", &mut threads);
        }
        threads
    }

    fn max_request_workers(
        &mut self,
        configured: &Configured,
        threads: i64,
        server_limit: i64,
    ) -> i64 {
        let mut workers = configured.max_request_workers.unwrap_or(400);
        if workers < threads {
            self.warn(
                14,
                format!(
                    "MaxRequestWorkers of {workers} is less than ThreadsPerChild of {threads}, \
                     increasing to {threads}. MaxRequestWorkers must be at least as large as the \
                     number of threads in a single server."
                ),
                format!(
                    "MaxRequestWorkers of {workers} is less than ThreadsPerChild of {threads}, \
                     increasing to match"
                ),
            );
            workers = threads;
        }
        let servers = workers / threads.max(1);
        let multiple = servers.saturating_mul(threads);
        if workers != multiple {
            let text = format!(
                "MaxRequestWorkers of {workers} is not an integer multiple of ThreadsPerChild of \
                 {threads}, decreasing to nearest multiple {multiple}"
            );
            let long = format!("{text}, for a maximum of {servers} servers.");
            self.warn(16, long, text);
            workers = multiple;
        }
        if servers > server_limit {
            let most = server_limit.saturating_mul(threads);
            self.warn(
                18,
                format!(
                    "MaxRequestWorkers of {workers} would require {servers} servers and would \
                     exceed ServerLimit of {server_limit}, decreasing to {most}. To increase, \
                     please see the ServerLimit directive."
                ),
                format!(
                    "MaxRequestWorkers of {workers} would require {servers} servers and exceed \
                     ServerLimit of {server_limit}, decreasing to {most}"
                ),
            );
            workers = most;
        }
        workers
    }

    fn min_spare(&mut self, offset: u16, name: &str, value: &mut i64) {
        if *value < 1 {
            let text = format!("{name} of {value} not allowed, increasing to 1");
            let long = format!(
                "{text} to avoid almost certain server failure. Please read the documentation."
            );
            self.warn(offset, long, text);
            *value = 1;
        }
    }

    fn at_least_one(&mut self, offset: u16, name: &str, value: &mut i64) {
        if *value < 1 {
            let text = format!("{name} of {value} not allowed, increasing to 1");
            self.warn(offset, format!("{text}."), text);
            *value = 1;
        }
    }

    /// A value that determines the size of the scoreboard cannot change after the start.
    fn unchanged(
        &mut self,
        offset: u16,
        name: &str,
        value: i64,
        current: impl Fn(&Limits) -> usize,
    ) -> i64 {
        let Moment::Restart(limits) = self.moment else { return value };
        let current = i64::try_from(current(limits)).unwrap_or(i64::MAX);
        if value != current {
            let text = format!(
                "changing {name} to {value} from original value of {current} not allowed during \
                 restart"
            );
            self.note(Level::Warn, offset, text);
        }
        current
    }

    /// The number of buckets. One queue has the better tail latency, several have the better
    /// throughput on many cores. A bucket with one child would stop whenever that does.
    fn buckets(&mut self, configured: &Configured, cores: usize, limits: &mut Limits) {
        let by_ratio = |ratio: i64| cores / usize::try_from(ratio).unwrap_or(1).max(1);
        let written = configured.listen_buckets.and_then(|count| usize::try_from(count).ok());
        let written = written.or(configured.listen_cores_buckets_ratio.map(by_ratio));
        let usual = if cores > MANY_CORES { cores / CORES_A_BUCKET } else { 1 };
        let wanted = written.unwrap_or(usual).max(1);
        let most = if limits.fixed { limits.max_request_workers } else { limits.most_children() };
        limits.buckets = wanted.min(most / 2).max(1);
        if limits.buckets > 1 {
            limits.start_servers = limits.start_servers.max(limits.buckets * 2);
        }
        if written.is_some() && limits.buckets < wanted {
            let text = format!(
                "{wanted} buckets of listening sockets need {} children, and {most} may be: \
                 decreasing to {}",
                wanted.saturating_mul(2),
                limits.buckets
            );
            self.notices.push(Notice::own(self.model.module(), Level::Warn, text));
        }
    }

    fn backlog(&mut self, written: Option<i64>, somaxconn: u32) {
        if let Some(backlog) = written.filter(|&backlog| backlog > i64::from(somaxconn)) {
            let text = format!(
                "ListenBacklog of {backlog} exceeds net.core.somaxconn, {somaxconn} holds. To \
                 increase, please see sysctl net.core.somaxconn."
            );
            self.notices.push(Notice::own(self.model.module(), Level::Warn, text));
        }
    }

    /// Warns with the long text at the start, and at a restart with the short one, which has the
    /// next number.
    fn warn(&mut self, offset: u16, at_start: String, at_restart: String) {
        match self.moment {
            Moment::Start => self.note(Level::Warn, offset, format!("WARNING: {at_start}")),
            Moment::Restart(_) => self.note(Level::Warn, offset + 1, at_restart),
        }
    }

    fn note(&mut self, level: Level, offset: u16, text: String) {
        let number = self.model.first_number() + offset;
        self.notices.push(Notice::new(self.model.module(), level, number, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(configured: &Configured) -> (Limits, Vec<String>) {
        let (limits, notices) = check(configured, Moment::Start, 2, 4096);
        let notices = notices.into_iter().filter(|notice| notice.level <= Level::Warn);
        let line = |notice: Notice| match notice.number {
            Some(number) => format!("AH{number:05}: {}", notice.text),
            None => notice.text.into_owned(),
        };
        (limits, notices.map(line).collect())
    }

    fn event() -> Configured {
        Configured::default()
    }

    fn prefork() -> Configured {
        Configured { model: Model::Prefork, ..Configured::default() }
    }

    /// The texts are what `apache2 -t` prints for the same directives.
    #[test]
    fn too_small_and_too_large_values_are_told_as_apache_does() {
        let (limits, told) = texts(&Configured {
            threads_per_child: Some(100),
            max_request_workers: Some(10),
            start_servers: Some(0),
            min_spare_threads: Some(0),
            server_limit: Some(30_000),
            ..event()
        });
        assert_eq!(
            told,
            [
                "AH00497: WARNING: ServerLimit of 30000 exceeds compile-time limit of 20000 servers, decreasing to 20000.",
                "AH00507: WARNING: ThreadsPerChild of 100 exceeds ThreadLimit of 64 threads, decreasing to 64. To increase, please see the ThreadLimit directive.",
                "AH00511: WARNING: MaxRequestWorkers of 10 is less than ThreadsPerChild of 64, increasing to 64. MaxRequestWorkers must be at least as large as the number of threads in a single server.",
                "AH00517: WARNING: StartServers of 0 not allowed, increasing to 1.",
                "AH00519: WARNING: MinSpareThreads of 0 not allowed, increasing to 1 to avoid almost certain server failure. Please read the documentation.",
            ]
        );
        assert_eq!((limits.start_servers, limits.max_request_workers), (1, 64));
    }

    #[test]
    fn servers_beyond_the_limit_lower_max_request_workers() {
        let (limits, told) = texts(&Configured {
            max_request_workers: Some(1001),
            thread_limit: Some(200_000),
            threads_per_child: Some(0),
            ..event()
        });
        assert_eq!(
            told,
            [
                "AH00502: WARNING: ThreadLimit of 200000 exceeds compile-time limit of 100000 threads, decreasing to 100000.",
                "AH00509: WARNING: ThreadsPerChild of 0 not allowed, increasing to 1.",
                "AH00515: WARNING: MaxRequestWorkers of 1001 would require 1001 servers and would exceed ServerLimit of 16, decreasing to 16. To increase, please see the ServerLimit directive.",
            ]
        );
        assert_eq!(limits.max_request_workers, 16);
    }

    #[test]
    fn worker_tells_the_same_under_its_own_numbers() {
        let (limits, told) =
            texts(&Configured { model: Model::Worker, max_request_workers: Some(401), ..event() });
        assert_eq!(
            told,
            [
                "AH00316: WARNING: MaxRequestWorkers of 401 is not an integer multiple of ThreadsPerChild of 25, decreasing to nearest multiple 400, for a maximum of 16 servers."
            ]
        );
        assert_eq!(limits.max_request_workers, 400);
    }

    #[test]
    fn prefork_tells_of_its_own_limits() {
        let (limits, told) = texts(&Configured {
            server_limit: Some(300_000),
            max_request_workers: Some(200_001),
            min_spare_servers: Some(0),
            max_spare_servers: Some(0),
            start_servers: Some(-1),
            ..prefork()
        });
        assert_eq!(
            told,
            [
                "AH00175: WARNING: ServerLimit of 300000 exceeds compile-time limit of 200000 servers, decreasing to 200000.",
                "AH00180: WARNING: MaxRequestWorkers of 200001 exceeds ServerLimit value of 200000 servers, decreasing MaxRequestWorkers to 200000. To increase, please see the ServerLimit directive.",
                "AH00184: WARNING: StartServers of -1 not allowed, increasing to 1.",
                "AH00186: WARNING: MinSpareServers of 0 not allowed, increasing to 1 to avoid almost certain server failure. Please read the documentation.",
            ]
        );
        assert_eq!((limits.min_spare, limits.max_spare), (1, 2));
    }

    #[test]
    fn the_two_blocks_of_the_reports_hold_as_written() {
        let (limits, told) = texts(&Configured {
            model: Model::Worker,
            start_servers: Some(1),
            threads_per_child: Some(64),
            max_request_workers: Some(1024),
            max_clients_spelling: true,
            min_spare_threads: Some(64),
            max_spare_threads: Some(192),
            max_connections_per_child: Some(500_000),
            ..event()
        });
        assert_eq!(told, [""; 0]);
        assert_eq!((limits.max_request_workers, limits.max_spare), (1024, 192));
        assert_eq!(limits.max_connections_per_child, Some(500_000));
        let (limits, told) = texts(&Configured {
            listen_backlog: Some(105_384),
            server_limit: Some(105_000),
            max_request_workers: Some(1024),
            max_clients_spelling: true,
            max_connections_per_child: Some(0),
            start_servers: Some(64),
            min_spare_servers: Some(8),
            max_spare_servers: Some(16),
            ..prefork()
        });
        assert_eq!(
            told,
            [
                "ListenBacklog of 105384 exceeds net.core.somaxconn, 4096 holds. To increase, please see sysctl net.core.somaxconn."
            ]
        );
        assert_eq!((limits.start_servers, limits.server_limit), (64, 105_000));
        assert_eq!(limits.max_connections_per_child, None);
    }

    #[test]
    fn a_restart_keeps_what_sizes_the_scoreboard() {
        let (current, _) = check(&event(), Moment::Start, 2, 4096);
        let changed = Configured { server_limit: Some(32), start_servers: Some(0), ..event() };
        let (limits, notices) = check(&changed, Moment::Restart(&current), 2, 4096);
        assert_eq!(limits.server_limit, 16);
        let told: Vec<_> = notices.iter().map(|n| (n.number, n.text.as_ref())).collect();
        assert_eq!(
            told,
            [
                (
                    Some(501),
                    "changing ServerLimit to 32 from original value of 16 not allowed during restart"
                ),
                (Some(518), "StartServers of 0 not allowed, increasing to 1"),
            ]
        );
    }

    #[test]
    fn a_fixed_pool_divides_the_budget_without_a_rest() {
        for cores in [1, 2, 7] {
            let (limits, _) = check(&event(), Moment::Start, cores, 4096);
            let sum: usize = (0..limits.start_servers).map(|rank| limits.credits(rank)).sum();
            assert_eq!((limits.fixed, sum), (true, limits.max_request_workers));
        }
        assert_eq!(check(&event(), Moment::Start, 1, 4096).0.start_servers, 2);
        assert_eq!(check(&event(), Moment::Start, 8, 4096).0.most_children(), 8);
    }

    #[test]
    fn the_law_has_what_was_configured() {
        let configured = Configured { max_request_workers: Some(1024), ..event() };
        let (limits, _) = check(&configured, Moment::Start, 2, 4096);
        assert_eq!((limits.fixed, limits.credits(0), limits.start_servers), (false, 25, 3));
        // 1024 is no multiple of 25, and ServerLimit is 16.
        let pool = limits.pool();
        assert_eq!((pool.threads, pool.children, pool.slots), (25, 16, 16));
        assert_eq!((pool.min_spare, pool.max_spare), (75, 250));
    }

    #[test]
    fn buckets_follow_the_cores_and_have_two_children_each() {
        let of = |configured: Configured, cores| {
            let (limits, notices) = check(&configured, Moment::Start, cores, 4096);
            (limits.buckets, limits.start_servers, notices.len())
        };
        assert_eq!([2, 16, 17, 64].map(|cores| of(event(), cores).0), [1, 1, 2, 8]);
        let ratio = |ratio| Configured { listen_cores_buckets_ratio: Some(ratio), ..event() };
        assert_eq!(of(ratio(1), 2), (2, 4, 0));
        assert_eq!(of(ratio(4), 2), (1, 2, 0));
        assert_eq!(of(ratio(4), 64), (16, 64, 0));
        let few = Configured { listen_buckets: Some(4), max_request_workers: Some(3), ..prefork() };
        assert_eq!(of(few, 2), (1, 3, 1));
        let four = Configured { listen_buckets: Some(4), start_servers: Some(1), ..prefork() };
        assert_eq!(of(four, 2), (4, 8, 0));
    }
}
