//! Writes a sample as text, for a terminal without a screen. The screen uses its lines too.

use super::machine::{Machine, Shares};
use super::processes::{Processes, shown};
use super::sample::Sample;
use super::server::{Server, Share};
use crate::numbers::{bytes, count, rate, time};
use crate::status::LETTERS;
use std::fmt::Write as _;

/// The letters in a line of the scoreboard, as in mod_status.
const LETTERS_A_LINE: usize = 64;
const BUSIEST: usize = 5;

/// The whole sample.
pub(super) fn report(sample: &Sample) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(text, "{}", core_heading());
    for line in core_lines(&sample.machine) {
        let _ = writeln!(text, "{line}");
    }
    for line in device_lines(&sample.machine).iter().chain(&system_lines(&sample.machine)) {
        let _ = writeln!(text, "{line}");
    }
    if let Some(processes) = &sample.processes {
        let _ = writeln!(text, "\n{}", processes_lines(processes).join("\n"));
    }
    if let Some(server) = &sample.server {
        write_server(server, &mut text);
    }
    for problem in &sample.problems {
        let _ = writeln!(text, "{problem}");
    }
    text
}

fn write_server(server: &Server, text: &mut String) {
    let _ = writeln!(text);
    for line in server_lines(server) {
        let _ = writeln!(text, "{line}");
    }
    let letters: Vec<char> = server.scoreboard.chars().collect();
    for line in letters.chunks(LETTERS_A_LINE) {
        let _ = writeln!(text, "  {}", line.iter().collect::<String>());
    }
    let lists = [("vhosts", &server.vhosts), ("clients", &server.clients), ("URLs", &server.urls)];
    for (name, shares) in lists.iter().filter(|(_, shares)| !shares.is_empty()) {
        let _ = writeln!(text, "busiest {name}");
        for share in shares.iter().take(BUSIEST) {
            let _ = writeln!(text, "  {}", share_line(share));
        }
    }
}

pub(super) fn core_heading() -> String {
    let names: Vec<String> = Shares::NAMES.iter().map(|name| format!("{name:>6}")).collect();
    format!("{:<5}{}", "core", names.concat())
}

/// All cores together, then each.
pub(super) fn core_lines(machine: &Machine) -> Vec<String> {
    let line = |name: String, shares: &Shares| {
        let values: Vec<String> =
            shares.values().iter().map(|value| format!("{value:>6.1}")).collect();
        format!("{name:<5}{}", values.concat())
    };
    let each = machine.cores.iter().map(|core| line(core.core.to_string(), &core.shares));
    std::iter::once(line("all".to_owned(), &machine.cpu)).chain(each).collect()
}

/// Disks and network interfaces, in numbers a second.
pub(super) fn device_lines(machine: &Machine) -> Vec<String> {
    let disks = machine.disks.iter().map(|disk| {
        format!(
            "{:<8}{:>7} read, {:>7} written, {:>3.0} % busy",
            disk.name,
            bytes(disk.read_bytes),
            bytes(disk.written_bytes),
            disk.busy
        )
    });
    let links = machine.network.iter().map(|link| {
        format!(
            "{:<8}{:>7} in, {:>7} out, {} packets",
            link.name,
            bytes(link.received_bytes),
            bytes(link.sent_bytes),
            rate(link.received_packets + link.sent_packets)
        )
    });
    disks.chain(links).collect()
}

/// Paging, interrupts, context switches and tasks.
pub(super) fn system_lines(machine: &Machine) -> Vec<String> {
    let paging = &machine.paging;
    let [load1, load5, load15] = machine.load;
    let (received, sent) = machine.network_bytes();
    vec![
        format!(
            "swap in {} out {} pages, {} major faults",
            rate(paging.swapped_in),
            rate(paging.swapped_out),
            rate(paging.major_faults)
        ),
        format!(
            "{} interrupts, {} switches, {} forks",
            rate(machine.interrupts),
            rate(machine.context_switches),
            rate(machine.forks)
        ),
        format!(
            "{} running, {} blocked; load {load1:.2} {load5:.2} {load15:.2}",
            machine.running, machine.blocked
        ),
        format!("network without lo: in {}, out {}", bytes(received), bytes(sent)),
    ]
}

/// The process tree, and the number of processes in each state.
pub(super) fn processes_lines(processes: &Processes) -> [String; 2] {
    let sum = |states: &std::collections::BTreeMap<char, usize>| states.values().sum::<usize>();
    let Processes { pid, usr, sys, .. } = processes;
    [
        format!("process {pid} and below: CPU {usr:.1} + {sys:.1} % of a core"),
        format!(
            "{} processes ({}), {} threads ({})",
            sum(&processes.processes),
            shown(&processes.processes),
            sum(&processes.threads),
            shown(&processes.threads)
        ),
    ]
}

/// Each process, busiest first.
pub(super) fn process_lines(processes: &Processes) -> Vec<String> {
    let line = |process: &super::processes::Process| {
        let super::processes::Process { pid, name, state, threads, usr, sys } = process;
        format!("{pid:>7} {state} {threads:>7} {usr:>6.1} {sys:>6.1}  {name}")
    };
    let heading = format!("{:>7} {} {:>7} {:>6} {:>6}  name", "pid", "s", "threads", "usr", "sys");
    std::iter::once(heading).chain(processes.each.iter().map(line)).collect()
}

/// What the server is and does.
pub(super) fn server_lines(server: &Server) -> Vec<String> {
    let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| time(ms * 1e6));
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), rate);
    let sent = server.sent_bytes.map_or_else(|| "-".to_owned(), bytes);
    let mut lines = vec![
        format!("{}  {}  up {} s", server.version, server.mpm, count(server.uptime_s)),
        format!(
            "{} requests/s, {sent}/s, mean {}, oldest {}",
            number(server.requests),
            ms(server.latency_ms),
            ms(server.oldest_ms)
        ),
    ];
    let mut slots =
        format!("slots: {} busy, {} idle, {} open", server.busy, server.idle, server.open);
    if let Some(processes) = server.processes {
        let stopping = server.stopping.unwrap_or_default();
        let _ = write!(slots, "; {processes} children, {stopping} stopping");
    }
    lines.push(slots);
    if let Some(it) = server.connections {
        let kinds = [
            (it.waiting, "waiting"),
            (it.writing, "writing"),
            (it.keep_alive, "keep-alive"),
            (it.closing, "closing"),
        ];
        let kinds = kinds.iter().filter(|(count, _)| *count > 0);
        let kinds: Vec<String> = kinds.map(|(count, name)| format!(", {count} {name}")).collect();
        lines.push(format!("connections: {}{}", it.total, kinds.concat()));
    }
    lines.push(format!("limit: {}", server.limit));
    let states = LETTERS.iter().filter_map(|(letter, meaning)| {
        Some(format!("{letter} {meaning} {}", server.states.get(letter)?))
    });
    lines.push(states.collect::<Vec<_>>().join(", "));
    lines
}

pub(super) fn share_line(share: &Share) -> String {
    let Share { name, percent } = share;
    format!("{percent:>5.1} %  {name}")
}
