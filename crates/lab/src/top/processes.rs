//! What the processes of one server did: their states, and the CPU time that they used between two
//! moments.

use evenkeel_monitor::process::{ProcessStat, TICKS_A_SECOND};
use serde::Serialize;
use std::collections::BTreeMap;

/// A process tree at a moment, topmost process first, each with the states of its threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Members(pub(super) Vec<(ProcessStat, Vec<char>)>);

/// The activity of a process tree between two moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Processes {
    /// The topmost process.
    pub(super) pid: i32,
    /// The number of processes in each state.
    pub(super) processes: BTreeMap<char, usize>,
    /// The number of threads in each state.
    pub(super) threads: BTreeMap<char, usize>,
    /// The percentage of one core, user.
    pub(super) usr: f64,
    /// The percentage of one core, system.
    pub(super) sys: f64,
    /// The processes, busiest first.
    pub(super) each: Vec<Process>,
}

/// The activity of a process between two moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) name: String,
    pub(super) state: char,
    pub(super) threads: u64,
    /// The percentage of one core, user.
    pub(super) usr: f64,
    /// The percentage of one core, system.
    pub(super) sys: f64,
}

impl Processes {
    /// What a process tree did in `seconds`. For new processes, everything that they ever did
    /// counts.
    pub(super) fn between(before: &Members, after: &Members, seconds: f64) -> Option<Self> {
        let (first, _) = after.0.first()?;
        let mut sum = Self { pid: first.pid, ..Self::default() };
        let known: BTreeMap<(i32, u64), &ProcessStat> =
            before.0.iter().map(|(stat, _)| ((stat.pid, stat.start_ticks), stat)).collect();
        let share = |before: u64, after: u64| {
            after.saturating_sub(before) as f64 / TICKS_A_SECOND / seconds.max(1e-6) * 100.0
        };
        for (stat, threads) in &after.0 {
            let earlier = known.get(&(stat.pid, stat.start_ticks));
            let (user, system) =
                earlier.map_or((0, 0), |earlier| (earlier.user_ticks, earlier.system_ticks));
            let process = Process {
                pid: stat.pid,
                name: stat.name.clone(),
                state: stat.state,
                threads: stat.threads,
                usr: share(user, stat.user_ticks),
                sys: share(system, stat.system_ticks),
            };
            *sum.processes.entry(stat.state).or_default() += 1;
            for state in threads {
                *sum.threads.entry(*state).or_default() += 1;
            }
            sum.usr += process.usr;
            sum.sys += process.sys;
            sum.each.push(process);
        }
        let cpu = |process: &Process| process.usr + process.sys;
        sum.each.sort_by(|a, b| cpu(b).total_cmp(&cpu(a)));
        Some(sum)
    }
}

/// States with their numbers as text: `3 S, 1 R`.
pub(super) fn shown(states: &BTreeMap<char, usize>) -> String {
    let each: Vec<String> =
        states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    each.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: i32, parent: i32, user_ticks: u64) -> ProcessStat {
        ProcessStat { pid, parent, user_ticks, state: 'S', threads: 2, ..ProcessStat::default() }
    }

    #[test]
    fn time_is_counted_of_the_same_process_alone() {
        let old = Members(vec![(stat(10, 1, 100), vec!['S', 'R']), (stat(11, 10, 900), vec!['S'])]);
        let other = ProcessStat { start_ticks: 5, state: 'R', ..stat(11, 10, 30) };
        let new = Members(vec![(stat(10, 1, 150), vec!['S', 'R']), (other, vec!['D'])]);
        let processes = Processes::between(&old, &new, 2.0).unwrap();
        assert_eq!((processes.pid, processes.usr, processes.sys), (10, 40.0, 0.0));
        assert_eq!(processes.each[0].pid, 10);
        assert_eq!(shown(&processes.processes), "1 R, 1 S");
        assert_eq!(shown(&processes.threads), "1 D, 1 R, 1 S");
        assert_eq!(Processes::between(&old, &Members::default(), 1.0), None);
    }
}
