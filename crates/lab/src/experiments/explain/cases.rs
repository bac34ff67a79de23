//! The cases of the experiment `explain`: the resources of the server, its loads below saturation
//! and at it, and what explain should say.

use crate::load::Think;
use crate::peers::Peer;

/// A case.
#[derive(Debug)]
pub struct Case {
    /// The name.
    pub name: &'static str,
    /// What is staged, in words.
    pub words: &'static str,
    /// The server.
    pub peer: Peer,
    /// MaxRequestWorkers; 0 for auto.
    pub workers: usize,
    /// ListenBacklog, if it is not the default.
    pub backlog: Option<u32>,
    /// The resources of the server.
    pub room: Room,
    /// The requests.
    pub what: What,
    /// The loads below saturation, one after the other.
    pub before: &'static [Load],
    /// The load at saturation.
    pub full: Load,
    /// Whether the same server gets both loads.
    pub keeps: bool,
    /// The limit that explain should name below saturation.
    pub named_before: &'static str,
    /// The limit that binds at saturation.
    pub limit: &'static str,
    /// Whether there is a maximum to predict.
    pub has_maximum: bool,
}

/// The resources of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Room {
    /// No limit.
    All,
    /// The CPU time of this many cores.
    Cores(f64),
    /// This many bytes of memory.
    Memory(u64),
    /// This many descriptors in each process.
    Descriptors(u64),
}

/// The requests to a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// None.
    Nothing,
    /// Requests for this path, and whether each has its own connection.
    Asks(&'static str, bool),
    /// Requests for this file, which each client reads at this many bytes a second.
    Reads(&'static str, f64),
}

/// The number of clients, and their pause in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub clients: u32,
    pause_ms: u32,
}

impl Load {
    /// Their pauses.
    pub fn think(&self) -> Think {
        match self.pause_ms {
            0 => Think::None,
            pause_ms => Think::Fixed(f64::from(pause_ms) / 1000.0),
        }
    }
}

const fn load(clients: u32, pause_ms: u32) -> Load {
    Load { clients, pause_ms }
}

/// Requests that burn 4 ms of CPU time, on a server of 64 workers.
const BURN: Case = Case {
    name: "cpu",
    words: "event; requests burn 4 ms of CPU time",
    peer: Peer::Evenkeel,
    workers: 64,
    backlog: None,
    room: Room::All,
    what: What::Asks("/burn?ms=4", false),
    before: &[load(1, 8)],
    full: load(16, 0),
    keeps: false,
    named_before: "none",
    limit: "cpu",
    has_maximum: true,
};

/// Requests that wait for 50 ms, on a server of 16 workers.
const WAIT: Case = Case {
    name: "workers",
    words: "event with 16 workers; requests wait 50 ms",
    workers: 16,
    what: What::Asks("/wait?ms=50", false),
    before: &[load(6, 0)],
    full: load(48, 0),
    named_before: "wait",
    limit: "workers",
    ..BURN
};

/// All cases.
pub const CASES: [Case; 12] = [
    BURN,
    Case {
        name: "cpu-prefork",
        words: "prefork; requests burn 4 ms of CPU time",
        peer: Peer::EvenkeelPrefork,
        workers: 32,
        ..BURN
    },
    Case {
        name: "quota",
        words: "event in a control group that may use 40 % of a core; requests burn 4 ms",
        room: Room::Cores(0.4),
        before: &[load(1, 12)],
        ..BURN
    },
    WAIT,
    Case {
        name: "workers-worker",
        words: "worker with 16 threads; requests wait 50 ms",
        peer: Peer::EvenkeelWorker,
        ..WAIT
    },
    Case {
        name: "workers-prefork",
        words: "prefork with 16 processes; requests wait 50 ms",
        peer: Peer::EvenkeelPrefork,
        ..WAIT
    },
    Case {
        name: "application",
        words: "event, MaxRequestWorkers auto; an application has 4 places, each for 20 ms",
        workers: 0,
        what: What::Asks("/gate?ms=20", false),
        before: &[load(3, 0), load(16, 0), load(16, 0)],
        full: load(64, 0),
        keeps: true,
        named_before: "application",
        limit: "application",
        ..WAIT
    },
    Case {
        name: "clients",
        words: "worker with 32 threads; clients read 1 MiB at 2 MB/s",
        peer: Peer::EvenkeelWorker,
        workers: 32,
        what: What::Reads("/1m.bin", 2e6),
        before: &[load(20, 0)],
        full: load(64, 0),
        named_before: "clients",
        limit: "clients",
        ..WAIT
    },
    Case {
        name: "memory",
        words: "prefork, MaxRequestWorkers auto, in a control group of 96 MiB; they wait 200 ms",
        peer: Peer::EvenkeelPrefork,
        workers: 0,
        room: Room::Memory(96 << 20),
        what: What::Asks("/wait?ms=200", false),
        before: &[load(20, 0)],
        full: load(400, 0),
        limit: "memory",
        ..WAIT
    },
    Case {
        name: "descriptors",
        words: "event with 1,024 workers in two children of 400 descriptors; requests wait 200 ms",
        workers: 1024,
        room: Room::Descriptors(400),
        what: What::Asks("/wait?ms=200", false),
        before: &[load(60, 0)],
        full: load(1200, 0),
        limit: "descriptors",
        ..WAIT
    },
    Case {
        name: "backlog",
        words: "event, ListenBacklog 4; 300 clients come at once, each with a new connection",
        backlog: Some(4),
        what: What::Asks("/1k.html", true),
        before: &[load(1, 10)],
        full: load(300, 300),
        limit: "backlog",
        has_maximum: false,
        ..BURN
    },
    Case {
        name: "idle",
        words: "event; nothing is asked",
        what: What::Nothing,
        limit: "none",
        has_maximum: false,
        ..BURN
    },
];
