//! Makes a snapshot from the records of the scoreboard and the texts of /proc. Numbers of the
//! scoreboard are shown but never trusted.

use crate::listener::listeners;
use crate::pool::Pool;
use crate::process::{ProcessStat, load_averages};
use crate::snapshot::{Child, Connections, Cpu, Facts, Snapshot, Worker};
use crate::view::View;
use evenkeel_scoreboard::{ChildRecord, Counter, MOST_SLOTS, Phase, Scoreboard, WorkerRecord};
use evenkeel_sys::procfs;

/// Makes a snapshot of the server at `now_us` (microseconds since 1970), with as much as `view`
/// shows.
#[must_use]
pub fn collect(board: &Scoreboard, facts: &Facts, view: View, now_us: u64) -> Snapshot {
    let records = board.snapshot();
    let pids = records.children.iter().map(|child| child.pid).chain([records.parent_pid]);
    let pids = pids.filter(|_| !view.pool_alone);
    let living = pids.filter_map(|pid| procfs::read(format!("/proc/{pid}/stat")).ok());
    let cpu = living.filter_map(|text| Some(ProcessStat::parse(&text)?.cpu_s()));
    let cpu = cpu.fold((0.0, 0.0), add);
    let load = load_averages(&procfs::read("/proc/loadavg").unwrap_or_default());
    let pool = Pool::new(&board.readings(view.readings()), now_us);
    let listeners = listeners();
    Snapshot { pool: Some(pool), listeners, ..from_records(&records, facts, now_us, cpu, load) }
}

/// The snapshot from what was read: the CPU seconds (user, system) of the living processes and the
/// load averages.
fn from_records(
    records: &evenkeel_scoreboard::Snapshot,
    facts: &Facts,
    now_us: u64,
    (user, system): (f64, f64),
    load: [f64; 3],
) -> Snapshot {
    let (children_user, children_system) = records.reaped_cpu_us;
    let active = records.children.iter().filter(|child| !child.phase.is_stopping());
    let (taken, slots) = active.fold((0, 1), |(taken, slots): (usize, usize), child| {
        (taken + 1, slots.max(child.workers.len()))
    });
    let sum = |counter| {
        let each = records.children.iter().map(|child| child.counter(counter));
        each.fold(0, u64::saturating_add)
    };
    Snapshot {
        facts: facts.clone(),
        now_us,
        applications: Vec::new(),
        listeners: Vec::new(),
        restart_us: records.restart_us,
        config_generation: u64::from(records.generation) + 1,
        mpm_generation: u64::from(records.generation),
        load,
        accesses: records.totals.accesses,
        bytes: records.totals.bytes,
        duration_ms: records.totals.duration_us / 1_000,
        compressed_form_bytes: sum(Counter::CompressedFormBytes),
        tunnels: sum(Counter::Tunnels),
        cpu: Cpu {
            user,
            system,
            children_user: children_user as f64 / 1e6,
            children_system: children_system as f64 / 1e6,
        },
        open_slots: records.most_children.saturating_sub(taken).saturating_mul(slots),
        children: records.children.iter().map(|record| child(record, facts.extended)).collect(),
        pool: None,
    }
}

fn child(record: &ChildRecord, extended: bool) -> Child {
    let counter = |counter| record.counter(counter);
    Child {
        slot: record.index,
        pid: record.pid,
        generation: u64::from(record.generation),
        starting: record.phase == Phase::Starting,
        stopping: record.phase.is_stopping(),
        accepting: record.phase == Phase::Running && record.idle() > 0,
        connections: Connections {
            total: counter(Counter::Connections),
            waiting: counter(Counter::Waiting),
            writing: counter(Counter::Writing),
            keep_alive: counter(Counter::KeepAlive),
            closing: counter(Counter::Closing),
        },
        workers: record.workers.iter().map(|record| worker(record, extended)).collect(),
        // No child has more, whatever is in the memory that it can write to.
        unused: record.credits.min(MOST_SLOTS).saturating_sub(record.workers.len()),
    }
}

fn worker(record: &WorkerRecord, extended: bool) -> Worker {
    // Text from before ExtendedStatus was turned off must not be shown.
    let text = |bytes: &[u8]| -> String {
        bytes.iter().filter(|_| extended).map(|byte| char::from(*byte)).collect()
    };
    Worker {
        state: record.state,
        accesses: [record.connection_accesses, record.accesses, record.accesses],
        cpu: record.cpu_us as f64 / 1e6,
        start_us: record.start_us,
        request_ms: record.last_duration_us / 1_000,
        duration_ms: record.duration_total_us / 1_000,
        bytes: [record.connection_bytes, record.bytes, record.bytes],
        client: text(&record.client),
        protocol: text(&record.protocol),
        vhost: text(&record.vhost),
        request: text(&record.line),
    }
}

fn add(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0 + b.0, a.1 + b.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_scoreboard::{Layout, Request, SlotState, Slots};

    #[test]
    fn the_scoreboards_records_become_a_snapshot() {
        let board = Scoreboard::new(Layout { children: 6, slots_per_child: 4 }).unwrap();
        board.note_start(1_000_000, 2, std::process::id().cast_signed(), 3);
        for (index, phase) in [(0, Phase::Running), (1, Phase::Draining), (2, Phase::Starting)] {
            board.assign(index, 2, 0, 4, 1_000_000);
            let line = board.parent_line(index).unwrap();
            line.set_pid(1_000_000 + index as i32);
            line.set_phase(phase);
        }
        board.child_line(0).unwrap().add(Counter::Connections, 7);
        for (index, bytes) in [(0, 1_000), (1, 500)] {
            board.child_line(index).unwrap().add(Counter::CompressedFormBytes, bytes);
        }
        board.child_line(1).unwrap().add(Counter::Tunnels, 3);
        let slots = Slots::new(board, 0, 4);
        let request = Request { line: b"GET /\xe4 HTTP/1.1", ..Request::default() };
        let slot = slots.take(SlotState::Writing, &request, 3_000_000).unwrap();
        slot.finish(2_048, 5_000);
        let _draining = Slots::new(board, 1, 4);

        let facts = Facts { extended: true, ..Facts::default() };
        let snapshot = collect(&board, &facts, View::default(), 4_000_000);
        assert_eq!((snapshot.accesses, snapshot.bytes, snapshot.duration_ms), (1, 2_048, 5));
        assert_eq!((snapshot.compressed_form_bytes, snapshot.tunnels), (1_500, 3));
        assert_eq!((snapshot.uptime_s(), snapshot.config_generation), (3, 3));
        // Two of three children are active. The idle slots of the draining one are not shown.
        assert_eq!(snapshot.letters(), "W___....SSSS....");
        let first = &snapshot.children[0];
        assert_eq!((first.connections.total, first.accepting), (7, true));
        assert_eq!(first.workers[0].request, "GET /\u{e4} HTTP/1.1");
        assert_eq!(first.workers[0].accesses, [1, 1, 1]);
        let plain = collect(&board, &Facts::default(), View::default(), 4_000_000);
        assert_eq!(plain.children[0].workers[0].request, "");
        // The parent is this process, which may have used no measurable time yet.
        assert!(snapshot.cpu.total() >= 0.0);
    }

    #[test]
    fn no_more_is_read_than_the_view_shows() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        board.note_start(1_000_000, 0, std::process::id().cast_signed(), 1);
        for number in 1..=60 {
            board.note_reading(number, &crate::pool::tests::second(number));
        }
        let pool = |query: &str| {
            let view = View::parse(Some(query.as_bytes()));
            collect(&board, &Facts::default(), view, 60_000_000).pool.unwrap()
        };
        assert_eq!(pool("").history.len(), 60);
        let last = pool("json&pool&last=5");
        // The present is computed from the same number of readings.
        assert_eq!((last.history.len(), last.limit), (10, pool("").limit));
    }
}
