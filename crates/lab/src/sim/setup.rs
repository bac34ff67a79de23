//! What a simulation is of: the machine, the directives, the work that a request is, the clients.

use super::load::Load;
use super::parent::Which;
use crate::load::Think;
use evenkeel_pool::Limits;

/// How a connection is tied to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// A process for each connection.
    Prefork,
    /// A thread for each connection, idle ones included.
    Worker,
    /// Only requests hold workers.
    Event,
}

impl Model {
    /// By its name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "prefork" => Some(Self::Prefork),
            "worker" => Some(Self::Worker),
            "event" => Some(Self::Event),
            _ => None,
        }
    }

    /// Its name.
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
    /// MinSpareThreads and the like, for all buckets together.
    pub limits: Limits,
    /// MaxConnectionsPerChild; `None` is no bound.
    pub most_connections: Option<u64>,
    /// The bound of each accept queue.
    pub backlog: usize,
    /// KeepAliveTimeout in seconds.
    pub keep_alive_timeout_s: f64,
}

impl Default for Directives {
    /// Those of 2002's report.
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

/// What is done to the server while it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mishap {
    /// A graceful reload.
    Reload,
    /// A child is killed: its requests are lost.
    Kill,
    /// A child stands still: it answers nothing that it has, and takes nothing more.
    Hang,
}

/// Which of the children that could takes a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// Any of them, as where all wake and one is first.
    #[default]
    Any,
    /// The one that worked last, whose caches are warm.
    Warm,
}

/// What accepting costs where many cores share a queue. All of it is nothing if nothing is said;
/// the values that reproduce a report are fitted to it, not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accept {
    /// Seconds that each accept holds the lock of its queue's socket: accepts of one queue follow
    /// each other, and who waits for the lock uses no CPU time.
    pub lock_s: f64,
    /// Seconds by which that is longer for each further core that shares the queue, whose caches
    /// have the socket's lines.
    pub line_s: f64,
    /// Seconds of CPU time that an accepted request takes more for each of these cores, whose
    /// lines it misses.
    pub line_cpu_s: f64,
    /// Seconds by which it is longer where a mutex is handed from child to child around poll and
    /// accept: with more than one Listen line, as Apache does it.
    pub mutex_s: f64,
    /// How many idle children wake for a connection beside the one that takes it.
    pub herd: usize,
    /// Seconds of CPU time that each of these takes to find nothing.
    pub wake_s: f64,
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
    /// Seconds that each rests after an answer.
    pub think: Think,
    /// Whether they keep their connections.
    pub keep_alive: bool,
    /// Seconds of CPU time of a request.
    pub cpu: Think,
    /// Seconds that a request waits for others, holding its worker.
    pub wait: Think,
    /// Cores, or such a part of them as a quota allows.
    pub cores: f64,
    /// Accept queues that share the port.
    pub buckets: usize,
    /// What is done to the server, and when, in seconds.
    pub mishaps: Vec<(f64, Mishap)>,
    /// Who takes a connection.
    pub wake: Wake,
    /// What accepting costs.
    pub accept: Accept,
    /// The share of answers that are read slowly, and for how many seconds each.
    pub slow: Option<(f64, Think)>,
    /// Seconds until a child that was forked is ready, not counting the CPU time.
    pub start_s: f64,
    /// Seconds of CPU time that a child's start takes.
    pub start_cpu_s: f64,
    /// How long it goes on, in seconds.
    pub seconds: f64,
    /// What all chance follows from.
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
