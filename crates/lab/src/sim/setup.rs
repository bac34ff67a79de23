//! The parameters of a simulation: the machine, the directives, the work of a request, the clients.

use super::load::Load;
use super::parent::Which;
use crate::load::Think;
use evenkeel_pool::Limits;

/// How connections hold workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// A process for each connection.
    Prefork,
    /// A thread for each connection, including idle ones.
    Worker,
    /// Only requests hold workers.
    Event,
}

impl Model {
    /// The model with that name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "prefork" => Some(Self::Prefork),
            "worker" => Some(Self::Worker),
            "event" => Some(Self::Event),
            _ => None,
        }
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefork => "prefork",
            Self::Worker => "worker",
            Self::Event => "event",
        }
    }
}

/// The directives that a simulation obeys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Directives {
    /// The process model.
    pub model: Model,
    /// StartServers.
    pub start_servers: usize,
    /// MinSpareThreads and so on, for all buckets together.
    pub limits: Limits,
    /// MaxConnectionsPerChild; `None` for no bound.
    pub most_connections: Option<u64>,
    /// The bound of each accept queue.
    pub backlog: usize,
    /// KeepAliveTimeout in seconds.
    pub keep_alive_timeout_s: f64,
}

impl Default for Directives {
    /// The directives in the report of 2002.
    fn default() -> Self {
        Self {
            model: Model::Worker,
            start_servers: 1,
            limits: Limits { threads: 64, min_spare: 64, max_spare: 192, children: 16, slots: 16 },
            most_connections: None,
            backlog: 4096,
            keep_alive_timeout_s: 5.0,
        }
    }
}

/// A fault or a reload during the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mishap {
    /// A graceful reload.
    Reload,
    /// A child is killed, and its requests are lost.
    Kill,
    /// A child stalls: it answers none of its requests and accepts no more.
    Hang,
}

/// Which of several children accepts a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// Any of them, as if all wake up and one is first.
    #[default]
    Any,
    /// The one that worked last, whose caches are warm.
    Warm,
}

/// The costs of accepting if many cores share a queue. By default there are none. The values that
/// reproduce a report are fitted to it, not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accept {
    /// The seconds for which each accept holds the lock of its queue's socket. Accepts of one queue
    /// follow each other, and waiting for the lock uses no CPU time.
    pub lock_s: f64,
    /// The seconds by which that is longer for each further core that shares the queue, because of
    /// the cache lines of the socket.
    pub line_s: f64,
    /// The additional seconds of CPU time of an accepted request for each of these cores, because
    /// of cache misses.
    pub line_cpu_s: f64,
    /// The seconds by which it is longer if a mutex is passed from child to child around poll and
    /// accept, as in Apache with more than one Listen line.
    pub mutex_s: f64,
    /// How many idle children wake for a connection in addition to the one that accepts it.
    pub herd: usize,
    /// The seconds of CPU time that each of these spends to find nothing.
    pub wake_s: f64,
}

/// A pool of application processes, whose workers run a script for each request after the server's
/// own part of it. Its number of workers is fixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Application {
    /// The workers.
    pub workers: usize,
    /// The CPU time of a script, in seconds. The workers use the same cores as the server.
    pub cpu: Think,
    /// The time that a script waits while it holds its worker, in seconds.
    pub wait: Think,
}

/// A whole simulation.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The parent's law.
    pub law: Which,
    /// The directives.
    pub directives: Directives,
    /// The clients.
    pub load: Load,
    /// The pause of each client after an answer, in seconds.
    pub think: Think,
    /// Whether they keep their connections.
    pub keep_alive: bool,
    /// The CPU time of a request, in seconds.
    pub cpu: Think,
    /// The time that a request waits while it holds its worker, in seconds.
    pub wait: Think,
    /// The pool behind the server, if there is one.
    pub application: Option<Application>,
    /// The number of cores, or a part of them as a quota allows.
    pub cores: f64,
    /// The number of accept queues that share the port.
    pub buckets: usize,
    /// The faults and reloads, with their times in seconds.
    pub mishaps: Vec<(f64, Mishap)>,
    /// Which child accepts a connection.
    pub wake: Wake,
    /// The costs of accepting.
    pub accept: Accept,
    /// The share of answers that are read slowly, and the seconds that each takes.
    pub slow: Option<(f64, Think)>,
    /// The seconds until a forked child is ready, without the CPU time.
    pub start_s: f64,
    /// The CPU time of a child's start, in seconds.
    pub start_cpu_s: f64,
    /// The duration in seconds.
    pub seconds: f64,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            law: Which::Evenkeel,
            directives: Directives::default(),
            load: Load::parse("step:390").unwrap_or_else(|_| Load::none()),
            think: Think::None,
            keep_alive: false,
            cpu: Think::Fixed(0.0005),
            wait: Think::Fixed(0.4),
            application: None,
            cores: 2.0,
            buckets: 1,
            mishaps: Vec::new(),
            wake: Wake::Any,
            accept: Accept::default(),
            slow: None,
            start_s: 0.5,
            start_cpu_s: 0.01,
            seconds: 60.0,
            seed: 1,
        }
    }
}
