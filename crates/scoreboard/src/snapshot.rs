//! A snapshot of the whole scoreboard as plain records, for the status page and for the parent's
//! census. The numbers are claims of the children that wrote them.

use crate::board::{Scoreboard, Totals};
use crate::child::Counter;
use crate::state::{Phase, SlotState};

/// For a child with more credits than this, only the slots that were ever used are read, and a few
/// more.
const SHOWN: usize = 1024;
const LEAST_SHOWN: usize = 128;

/// A snapshot of the scoreboard.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When the server last started or restarted, in microseconds since 1970.
    pub restart_us: u64,
    /// The number of the current configuration.
    pub generation: u32,
    /// The parent's pid.
    pub parent_pid: i32,
    /// The most children that may serve at the same time.
    pub most_children: usize,
    /// User and system CPU time of children that have been reaped, in microseconds.
    pub reaped_cpu_us: (u64, u64),
    /// What children have answered since the start, including those that have ended.
    pub totals: Totals,
    /// Every child with a line, including those that retire, by index.
    pub children: Vec<ChildRecord>,
}

/// A child.
#[derive(Debug, Clone)]
pub struct ChildRecord {
    /// The index of its line.
    pub index: usize,
    /// Its pid; 0 just after the fork.
    pub pid: i32,
    /// The number of the configuration that it serves.
    pub generation: u32,
    /// Its phase.
    pub phase: Phase,
    /// The bucket of listening sockets from which it accepts.
    pub bucket: u32,
    /// When it was forked, in microseconds since 1970.
    pub started_us: u64,
    /// How many requests it may work on at once.
    pub credits: usize,
    counters: [u64; Counter::ALL.len()],
    /// Its worker slots, as many as it has credits; of very many, only those that were ever used.
    pub workers: Vec<WorkerRecord>,
}

/// A worker slot.
#[derive(Debug, Clone, Default)]
pub struct WorkerRecord {
    /// Its state.
    pub state: SlotState,
    /// When its last request began, in microseconds since 1970; 0 if it had none.
    pub start_us: u64,
    /// How long its last request took, in microseconds.
    pub last_duration_us: u64,
    /// How many requests the connection has had that it served last.
    pub connection_accesses: u64,
    /// Bytes sent on that connection.
    pub connection_bytes: u64,
    /// Requests answered.
    pub accesses: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// The total duration of its requests, in microseconds.
    pub duration_total_us: u64,
    /// CPU microseconds measured for its requests.
    pub cpu_us: u64,
    /// The client's address. This and the next three come from a client and must be escaped.
    pub client: Vec<u8>,
    /// The protocol.
    pub protocol: Vec<u8>,
    /// The virtual host.
    pub vhost: Vec<u8>,
    /// The request line, cut.
    pub line: Vec<u8>,
}

impl ChildRecord {
    /// One of the child's counters.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }

    /// Credits that are neither in use nor reserved.
    #[must_use]
    pub fn idle(&self) -> u64 {
        let used = self.counter(Counter::Busy).saturating_add(self.counter(Counter::Reserved));
        (self.credits as u64).saturating_sub(used)
    }
}

impl Scoreboard {
    /// The children alone, without their worker slots: what the parent reads each tick.
    #[must_use]
    pub fn census(&self) -> Vec<ChildRecord> {
        (0..self.lines_used()).filter_map(|index| self.read_child(index)).collect()
    }

    /// The whole scoreboard.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut children = self.census();
        let mut totals = self.totals();
        for child in &mut children {
            let slots = child.credits.min(self.layout().slots_per_child);
            child.workers = self.read_workers(child.index, slots);
            for worker in &child.workers {
                totals.accesses = totals.accesses.wrapping_add(worker.accesses);
                totals.bytes = totals.bytes.wrapping_add(worker.bytes);
                totals.duration_us = totals.duration_us.wrapping_add(worker.duration_total_us);
            }
        }
        Snapshot {
            restart_us: self.restart_us(),
            generation: self.generation(),
            parent_pid: self.parent_pid(),
            most_children: self.most_children(),
            reaped_cpu_us: self.reaped_cpu_us(),
            totals,
            children,
        }
    }

    fn read_child(&self, index: usize) -> Option<ChildRecord> {
        let about = self.parent_line(index)?;
        let own = self.child_line(index)?;
        (about.phase() != Phase::Empty).then(|| ChildRecord {
            index,
            pid: about.pid(),
            generation: about.generation(),
            phase: about.phase(),
            bucket: about.bucket(),
            started_us: about.started_us(),
            credits: about.credits(),
            counters: Counter::ALL.map(|counter| own.read(counter)),
            workers: Vec::new(),
        })
    }

    /// The lowest free slot is taken first, so that unused slots come last.
    fn read_workers(&self, child: usize, slots: usize) -> Vec<WorkerRecord> {
        let mut workers = Vec::with_capacity(slots.min(SHOWN));
        for slot in 0..slots {
            let worker = self.read_worker(child, slot);
            if slots > SHOWN && slot >= LEAST_SHOWN && slot % 64 == 0 && worker.start_us == 0 {
                break;
            }
            workers.push(worker);
        }
        workers
    }

    fn read_worker(&self, child: usize, slot: usize) -> WorkerRecord {
        let Some(line) = self.slot_line(child, slot) else { return WorkerRecord::default() };
        let mut worker = WorkerRecord {
            state: line.state(),
            start_us: line.start_us(),
            last_duration_us: line.last_duration_us(),
            connection_accesses: line.connection_accesses(),
            connection_bytes: line.connection_bytes(),
            accesses: line.accesses(),
            bytes: line.bytes(),
            duration_total_us: line.duration_total_us(),
            cpu_us: line.cpu_us(),
            ..WorkerRecord::default()
        };
        if worker.start_us != 0
            && let Some([client, protocol, vhost, line]) = line.texts()
        {
            worker = WorkerRecord { client, protocol, vhost, line, ..worker };
        }
        worker
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, Request, Slots};

    #[test]
    fn a_snapshot_shows_requests_in_progress_and_sums_what_was_done() {
        let board = Scoreboard::new(Layout { children: 4, slots_per_child: 8 }).unwrap();
        board.note_start(99, 2, 41, 3);
        board.assign(2, 2, 0, 3, 100);
        board.parent_line(2).unwrap().set_pid(42);
        board.parent_line(2).unwrap().set_phase(Phase::Running);
        board.child_line(2).unwrap().add(Counter::Busy, 1);
        let slots = Slots::new(board, 2, 3);
        let request = Request { line: b"GET /a HTTP/1.1", vhost: b"v:80", ..Request::default() };
        let done = slots.take(SlotState::Writing, &request, 5_000).unwrap();
        done.finish(10, 20);
        drop(done);
        let _open = slots.take(SlotState::Reading, &request, 6_000).unwrap();
        let snapshot = board.snapshot();
        assert_eq!((snapshot.restart_us, snapshot.generation), (99, 2));
        assert_eq!(snapshot.totals, Totals { accesses: 1, bytes: 10, duration_us: 20 });
        let child = &snapshot.children[0];
        assert_eq!((child.index, child.pid, child.phase), (2, 42, Phase::Running));
        assert_eq!((child.counter(Counter::Busy), child.idle()), (1, 2));
        let letters: String = child.workers.iter().map(|w| w.state.letter()).collect();
        assert_eq!(letters, "R__");
        assert_eq!(child.workers[0].line, b"GET /a HTTP/1.1");
        assert_eq!(child.workers[0].last_duration_us, 20);
    }

    #[test]
    fn of_very_many_slots_the_used_ones_are_read() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 4096 }).unwrap();
        board.assign(0, 0, 0, 4096, 1);
        let slots = Slots::new(board, 0, 4096);
        assert_eq!(board.snapshot().children[0].workers.len(), LEAST_SHOWN);
        let take = || slots.take(SlotState::Writing, &Request::default(), 9).unwrap();
        let held: Vec<_> = (0..200).map(|_| take()).collect();
        let workers = board.snapshot().children[0].workers.clone();
        assert_eq!(workers.len(), 256);
        assert!(workers[199].state == SlotState::Writing && workers[200].start_us == 0);
        drop(held);
    }

    #[test]
    fn numbers_that_a_child_could_forge_bound_nothing() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 2 }).unwrap();
        board.assign(0, 0, 0, usize::MAX, 1);
        board.child_line(0).unwrap().set(Counter::Busy, u64::MAX);
        let snapshot = board.snapshot();
        assert_eq!(snapshot.children[0].workers.len(), 2);
    }
}
