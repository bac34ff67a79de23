//! What is known of the server at one moment, as plain numbers and texts. Every form of the page is
//! written from it. Nothing here reads the system.

use crate::application::Application;
use crate::listener::Listener;
use crate::pool::Pool;
use evenkeel_scoreboard::SlotState;
use serde::{Serialize, Serializer};

/// The maximum number of letters of a scoreboard. Readers have buffers of 64 KiB for its line.
const MOST_LETTERS: usize = 65_000;

/// The server at one moment. Fields that end in `_us` are microseconds; moments are counted since
/// 1970.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// Facts that do not change as long as a configuration lasts.
    pub facts: Facts,
    /// The moment.
    pub now_us: u64,
    /// The time of the server's start.
    pub restart_us: u64,
    /// The number of configurations so far (ParentServerConfigGeneration).
    pub config_generation: u64,
    /// The number of the current generation of children (ParentServerMPMGeneration).
    pub mpm_generation: u64,
    /// The system's load averages over 1, 5 and 15 minutes.
    pub load: [f64; 3],
    /// The requests answered since the start.
    pub accesses: u64,
    /// The bytes sent since the start.
    pub bytes: u64,
    /// The total time of these requests in milliseconds.
    pub duration_ms: u64,
    /// The bytes of compressed forms that the caches of all children hold.
    pub compressed_form_bytes: u64,
    /// The connections that have switched to another protocol (101).
    pub tunnels: u64,
    /// CPU time of the server's processes.
    pub cpu: Cpu,
    /// The slots that no child has, up to the configured limit.
    pub open_slots: usize,
    /// The children, by slot.
    pub children: Vec<Child>,
    /// What the pool did and what limits it. Without it the page is only Apache's.
    #[serde(skip)]
    pub pool: Option<Pool>,
    /// The pools of application processes.
    pub applications: Vec<Application>,
    /// Applications that others start, to whose Unix sockets requests were passed on.
    pub listeners: Vec<Listener>,
}

/// Facts about the server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    /// `Apache/2.4.71 (Evenkeel)`, as far as ServerTokens allows.
    pub version: String,
    /// The process model.
    pub mpm: String,
    /// When the server was built.
    pub built: String,
    /// Whether connections are served asynchronously, as in event.
    pub asynchronous: bool,
    /// ExtendedStatus.
    pub extended: bool,
}

/// CPU time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// The user time of living processes.
    pub user: f64,
    /// The system time of living processes.
    pub system: f64,
    /// The user time of processes that have ended.
    pub children_user: f64,
    /// The system time of processes that have ended.
    pub children_system: f64,
}

impl Cpu {
    /// The total in seconds.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.user + self.system + self.children_user + self.children_system
    }
}

/// A child process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Child {
    /// The number of its slot.
    pub slot: usize,
    /// The process id.
    pub pid: i32,
    /// The number of the configuration that it serves.
    pub generation: u64,
    /// Whether it does not serve yet.
    pub starting: bool,
    /// Whether it completes its work and then ends.
    pub stopping: bool,
    /// Whether it accepts connections at the moment.
    pub accepting: bool,
    /// Its connections.
    pub connections: Connections,
    /// Its workers.
    pub workers: Vec<Worker>,
    /// The number of further idle workers, which were never used.
    pub unused: usize,
}

/// The connections of a child.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Connections {
    /// All connections.
    pub total: u64,
    /// Those that wait for the rest of a request.
    pub waiting: u64,
    /// Those that wait to send.
    pub writing: u64,
    /// Those that wait for the next request.
    pub keep_alive: u64,
    /// Those that are being closed.
    pub closing: u64,
}

/// A worker.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Worker {
    /// The state.
    #[serde(serialize_with = "letter")]
    pub state: SlotState,
    /// The requests on this connection, of this child in this slot, and in this slot in total.
    pub accesses: [u64; 3],
    /// The CPU time of its requests, in seconds.
    pub cpu: f64,
    /// The start of its current or last request; 0 if there was none.
    pub start_us: u64,
    /// The time of its last request in milliseconds.
    pub request_ms: u64,
    /// The total time of its requests in milliseconds.
    pub duration_ms: u64,
    /// The bytes sent on this connection, by this child in this slot, and in this slot in total.
    pub bytes: [u64; 3],
    /// The client's address.
    pub client: String,
    /// The protocol.
    pub protocol: String,
    /// The virtual host with its port.
    pub vhost: String,
    /// The request line, whose text the client chose.
    pub request: String,
}

fn letter<S: Serializer>(state: &SlotState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_char(state.letter())
}

/// The number of workers in each condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Working on a request.
    pub busy: usize,
    /// Completing a request in a child that ends.
    pub graceful: usize,
    /// Waiting for work.
    pub idle: usize,
}

impl Child {
    /// Counts its workers by condition (mod_status.c: status_handler).
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for worker in &self.workers {
            match self.shown(worker.state) {
                SlotState::Graceful => counts.graceful += 1,
                SlotState::Ready => counts.idle += 1,
                state if state.is_busy() => counts.busy += 1,
                _ => {}
            }
        }
        if !self.stopping && !self.starting {
            counts.idle = counts.idle.saturating_add(self.unused);
        }
        counts
    }

    /// The state of a worker as the page shows it: in a child that ends, a busy worker is finishing
    /// and an idle one is gone. The workers of a child that starts serve nothing yet.
    #[must_use]
    pub fn shown(&self, state: SlotState) -> SlotState {
        match state {
            state if self.starting && !state.is_busy() => SlotState::Starting,
            state if !self.stopping => state,
            state if state.is_busy() => SlotState::Graceful,
            _ => SlotState::Open,
        }
    }
}

impl Snapshot {
    /// Counts the workers of all children by condition.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.children.iter().map(Child::counts).fold(Counts::default(), |sum, next| Counts {
            busy: sum.busy + next.busy,
            graceful: sum.graceful + next.graceful,
            idle: sum.idle.saturating_add(next.idle),
        })
    }

    /// The connections of all children.
    #[must_use]
    pub fn connections(&self) -> Connections {
        let all = self.children.iter().map(|child| child.connections);
        all.fold(Connections::default(), |sum, next| Connections {
            total: sum.total.saturating_add(next.total),
            waiting: sum.waiting.saturating_add(next.waiting),
            writing: sum.writing.saturating_add(next.writing),
            keep_alive: sum.keep_alive.saturating_add(next.keep_alive),
            closing: sum.closing.saturating_add(next.closing),
        })
    }

    /// The number of children that are ending.
    #[must_use]
    pub fn stopping(&self) -> usize {
        self.children.iter().filter(|child| child.stopping).count()
    }

    /// Seconds since the start.
    #[must_use]
    pub fn uptime_s(&self) -> u64 {
        self.now_us.saturating_sub(self.restart_us) / 1_000_000
    }

    /// Returns a letter for each used worker, then for the other idle workers and the open slots.
    /// The letters agree with [`Snapshot::counts`], and are limited to [`MOST_LETTERS`].
    #[must_use]
    pub fn letters(&self) -> String {
        let serving = self.children.iter().filter(|child| !child.stopping && !child.starting);
        let unused = serving.map(|child| child.unused).fold(0, usize::saturating_add);
        let idle = std::iter::repeat_n(SlotState::Ready.letter(), unused);
        let open = std::iter::repeat_n(SlotState::Open.letter(), self.open_slots);
        self.taken().chain(idle).chain(open).take(MOST_LETTERS).collect()
    }

    /// Returns a letter for each slot: first the slots of the children, then the open slots.
    #[must_use]
    pub fn slot_letters(&self) -> String {
        let open = std::iter::repeat_n(SlotState::Open.letter(), self.open_slots);
        self.taken().chain(open).take(MOST_LETTERS).collect()
    }

    fn taken(&self) -> impl Iterator<Item = char> {
        self.children
            .iter()
            .flat_map(|child| child.workers.iter().map(|worker| child.shown(worker.state).letter()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A server of two children, the second one ending, with a value in every field.
    pub(crate) fn sample() -> Snapshot {
        let worker = |state| Worker { state, ..Worker::default() };
        let serving = Worker {
            state: SlotState::Writing,
            accesses: [1, 3, 5],
            cpu: 0.125,
            start_us: 998_000_000,
            request_ms: 7,
            duration_ms: 70,
            bytes: [2_048, 3_145_728, 6_291_456],
            client: "192.0.2.1".into(),
            protocol: "http/1.1".into(),
            vhost: "example.org:80".into(),
            request: "GET /<b>\"\\x?a&b HTTP/1.1".into(),
        };
        let done =
            Worker { state: SlotState::Ready, request: "GET / HTTP/1.1".into(), ..serving.clone() };
        Snapshot {
            facts: Facts {
                version: "Apache/2.4.71 (Evenkeel)".into(),
                mpm: "event".into(),
                built: "2026-11-12T08:58:41".into(),
                asynchronous: true,
                extended: true,
            },
            now_us: 1_000_000_000,
            restart_us: 900_000_000,
            config_generation: 2,
            mpm_generation: 1,
            load: [4.62, 3.454, 2.0],
            accesses: 1_300,
            bytes: 10_240_000,
            duration_ms: 1_000,
            compressed_form_bytes: 0,
            tunnels: 0,
            cpu: Cpu { user: 0.03, system: 0.5, children_user: 0.0, children_system: 1.0 },
            open_slots: 3,
            children: vec![
                Child {
                    slot: 0,
                    pid: 100,
                    generation: 1,
                    starting: false,
                    stopping: false,
                    accepting: true,
                    connections: Connections {
                        total: 9,
                        waiting: 1,
                        writing: 2,
                        keep_alive: 4,
                        closing: 1,
                    },
                    workers: vec![serving, done, worker(SlotState::Ready)],
                    unused: 0,
                },
                Child {
                    slot: 1,
                    pid: 90,
                    generation: 0,
                    starting: false,
                    stopping: true,
                    accepting: false,
                    connections: Connections { total: 1, ..Connections::default() },
                    workers: vec![worker(SlotState::Reading), worker(SlotState::Ready)],
                    unused: 0,
                },
            ],
            pool: None,
            applications: Vec::new(),
            listeners: Vec::new(),
        }
    }

    #[test]
    fn credits_that_a_child_forged_are_shown_and_summed() {
        let child = Child { unused: usize::MAX, ..sample().children.remove(0) };
        let snapshot = Snapshot { children: vec![child.clone(), child], ..Snapshot::default() };
        assert_eq!(snapshot.counts().idle, usize::MAX);
    }

    #[test]
    fn letters_agree_with_the_counts() {
        let mut snapshot = sample();
        snapshot.children[0].unused = 16_000;
        let of = |state: SlotState| {
            snapshot.letters().chars().filter(|letter| *letter == state.letter()).count()
        };
        let Counts { busy, graceful, idle } = snapshot.counts();
        assert_eq!((of(SlotState::Writing), of(SlotState::Graceful)), (busy, graceful));
        assert_eq!((of(SlotState::Ready), idle), (16_002, 16_002));
        assert_eq!(of(SlotState::Open), 1 + snapshot.open_slots);
        let many = Child { unused: usize::MAX, ..snapshot.children.remove(0) };
        snapshot.children.push(many);
        assert_eq!(snapshot.letters().len(), MOST_LETTERS);
    }

    #[test]
    fn workers_of_a_child_that_starts_are_not_idle() {
        let mut child = sample().children.remove(0);
        (child.starting, child.unused) = (true, 7);
        child.workers.push(Worker::default());
        let snapshot = Snapshot { children: vec![child], ..Snapshot::default() };
        assert_eq!(snapshot.letters(), "WSSS");
        assert_eq!(snapshot.counts(), Counts { busy: 1, graceful: 0, idle: 0 });
    }

    #[test]
    fn workers_of_an_ending_child_are_graceful_or_gone() {
        let snapshot = sample();
        assert_eq!(snapshot.letters(), "W__G....");
        assert_eq!(snapshot.counts(), Counts { busy: 1, graceful: 1, idle: 2 });
        assert_eq!((snapshot.stopping(), snapshot.connections().total), (1, 10));
        assert_eq!(snapshot.uptime_s(), 100);
    }
}
