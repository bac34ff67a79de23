//! The processes of one server: what /proc says of processes and threads comes in, the family of
//! one of them goes out, by state and with its CPU time. It also finds out who listens on a port.

use evenkeel_monitor::process::{ProcessStat, TICKS_A_SECOND};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A family at a moment: its eldest first, each with the states of its threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Family(pub(super) Vec<(ProcessStat, Vec<char>)>);

/// A family between two moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Processes {
    /// The eldest.
    pub(super) pid: i32,
    /// How many processes are in which state.
    pub(super) processes: BTreeMap<char, usize>,
    /// How many threads are.
    pub(super) threads: BTreeMap<char, usize>,
    /// Percent of one core, user.
    pub(super) usr: f64,
    /// Percent of one core, system.
    pub(super) sys: f64,
    /// Each of them, the busiest first.
    pub(super) each: Vec<Process>,
}

/// A process between two moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) name: String,
    pub(super) state: char,
    pub(super) threads: u64,
    /// Percent of one core, user.
    pub(super) usr: f64,
    /// Percent of one core, system.
    pub(super) sys: f64,
}

/// The members of the family of `eldest`, it first; none where it is not there.
pub(super) fn members(all: &[ProcessStat], eldest: i32) -> Vec<&ProcessStat> {
    let mut found: Vec<&ProcessStat> = all.iter().filter(|stat| stat.pid == eldest).collect();
    let mut children: BTreeMap<i32, Vec<&ProcessStat>> = BTreeMap::new();
    for stat in all.iter().filter(|stat| stat.pid != eldest) {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut at = 0;
    // Each list of children is taken once, so that this ends whatever the texts say.
    while let Some(parent) = found.get(at) {
        found.extend(children.remove(&parent.pid).unwrap_or_default());
        at += 1;
    }
    found
}

/// The one of `pids` whose parent is not among them: of a server's processes, the eldest known.
pub(super) fn eldest(all: &[ProcessStat], pids: &BTreeSet<i32>) -> Option<i32> {
    let mut of_them = all.iter().filter(|stat| pids.contains(&stat.pid));
    of_them.find(|stat| !pids.contains(&stat.parent)).map(|stat| stat.pid)
}

/// The inodes of the sockets that listen on a port: of the text of /proc/net/tcp or tcp6.
pub(super) fn listeners(net_tcp: &str, port: u16) -> BTreeSet<u64> {
    let lines = net_tcp.lines().skip(1);
    let inodes = lines.filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local) = words.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(local, 16).ok()? == port && *words.get(3)? == LISTEN;
        if is_it { words.get(9)?.parse().ok() } else { None }
    });
    inodes.collect()
}

/// TCP_LISTEN in the kernel's tcp_states.h.
const LISTEN: &str = "0A";

/// The inode that a link of /proc/PID/fd names, where it is a socket.
pub(super) fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

impl Processes {
    /// What a family did in `seconds`; of members that are new, all that they ever did.
    pub(super) fn between(before: &Family, after: &Family, seconds: f64) -> Option<Self> {
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

/// States with their numbers as a text: `3 S, 1 R`.
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
    fn a_family_is_found_and_nobody_else() {
        let all = [stat(1, 0, 0), stat(12, 11, 0), stat(10, 1, 0), stat(11, 10, 0), stat(9, 1, 0)];
        let pids: Vec<i32> = members(&all, 10).iter().map(|stat| stat.pid).collect();
        assert_eq!(pids, [10, 11, 12]);
        assert!(members(&all, 13).is_empty());
        assert_eq!(eldest(&all, &[11, 12].into()), Some(11));
        assert_eq!(eldest(&all, &[77].into()), None);
        // Two that name each other as parents do not hang it.
        let ring = [stat(5, 6, 0), stat(6, 5, 0)];
        assert_eq!(members(&ring, 5).len(), 2);
    }

    #[test]
    fn time_is_counted_of_the_same_process_alone() {
        let old = Family(vec![(stat(10, 1, 100), vec!['S', 'R']), (stat(11, 10, 900), vec!['S'])]);
        let other = ProcessStat { start_ticks: 5, state: 'R', ..stat(11, 10, 30) };
        let new = Family(vec![(stat(10, 1, 150), vec!['S', 'R']), (other, vec!['D'])]);
        let processes = Processes::between(&old, &new, 2.0).unwrap();
        assert_eq!((processes.pid, processes.usr, processes.sys), (10, 40.0, 0.0));
        assert_eq!(processes.each[0].pid, 10);
        assert_eq!(shown(&processes.processes), "1 R, 1 S");
        assert_eq!(shown(&processes.threads), "1 D, 1 R, 1 S");
        assert_eq!(Processes::between(&old, &Family::default(), 1.0), None);
    }

    #[test]
    fn listeners_are_found_by_port() {
        let text = "sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode\n\
            \x20 0: 0100007F:6F37 00000000:0000 0A 00000000:00000003 00:00000000 0 0 0 90837 1\n\
            \x20 1: 0100007F:6F37 0100007F:A1B2 01 00000000:00000000 00:00000000 0 33 0 90838 1\n";
        assert_eq!(listeners(text, 0x6f37), [90837].into());
        assert!(listeners(text, 80).is_empty());
        assert_eq!(socket_inode("socket:[90837]"), Some(90837));
        assert_eq!(socket_inode("pipe:[90837]"), None);
    }
}
