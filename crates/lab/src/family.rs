//! The processes of one server. A process id, or a port that is listened on, comes in; processor
//! time, memory and numbers of processes and threads of it and of all its descendants come out,
//! as /proc tells them. It reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The unit of processor times in /proc is a hundredth of a second on every Linux (proc(5),
/// USER_HZ), whatever the kernel's own tick.
const TICK_US: u64 = 10_000;

/// A process and its descendants, as they are when asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family(u32);

/// Processor time of a thread, and where it ran last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// User and system time in microseconds.
    pub cpu_us: u64,
    /// The core.
    pub core: usize,
}

impl Family {
    /// The family that begins at a process.
    #[must_use]
    pub fn new(root: u32) -> Self {
        Self(root)
    }

    /// The family that listens on a TCP port: of the processes that have the socket, the one whose
    /// parent has it not. None where nobody does, or where it is not ours to see.
    #[must_use]
    pub fn listening_on(port: u16) -> Option<Self> {
        let inodes: BTreeSet<u64> = ["/proc/net/tcp", "/proc/net/tcp6"]
            .iter()
            .filter_map(|path| fs::read_to_string(path).ok())
            .flat_map(|text| listeners(&text, port).map(|(inode, _)| inode).collect::<Vec<_>>())
            .collect();
        let holders: BTreeSet<u32> = processes().filter(|pid| holds(*pid, &inodes)).collect();
        let is_root = |pid: &&u32| parent(**pid).is_none_or(|parent| !holders.contains(&parent));
        holders.iter().find(is_root).copied().map(Self)
    }

    /// The process that it begins with.
    #[must_use]
    pub fn root(self) -> u32 {
        self.0
    }

    /// Whether that process lives.
    #[must_use]
    pub fn is_alive(self) -> bool {
        stat(self.0, 4).is_some()
    }

    /// The ids of the live members.
    #[must_use]
    pub fn members(self) -> BTreeSet<u32> {
        let all: Vec<(u32, u32)> =
            processes().filter_map(|pid| Some((pid, parent(pid)?))).collect();
        let mut members = BTreeSet::from([self.0]);
        loop {
            let before = members.len();
            members.extend(
                all.iter()
                    .filter(|(_, of)| members.contains(of))
                    .map(|(pid, _)| *pid)
                    .collect::<Vec<_>>(),
            );
            if members.len() == before {
                return members;
            }
        }
    }

    /// User and system time of the live members, and of the dead ones that were waited for, in
    /// microseconds, to a hundredth of a second.
    #[must_use]
    pub fn times_us(self) -> (u64, u64) {
        // utime, stime, cutime and cstime are fields 14 to 17 of proc_pid_stat(5).
        let members = self.members();
        let sum = |fields: [usize; 2]| -> u64 {
            let of = |pid: &u32| -> u64 { fields.iter().filter_map(|it| stat(*pid, *it)).sum() };
            members.iter().map(of).sum::<u64>() * TICK_US
        };
        (sum([14, 16]), sum([15, 17]))
    }

    /// User and system time together, in microseconds. Live threads are counted as the scheduler
    /// counts them, to the nanosecond: of a server with many processes, each of which has done
    /// less than a hundredth of a second, the coarser times would say that it did nothing.
    #[must_use]
    pub fn cpu_us(self) -> u64 {
        let of = |pid: u32| -> u64 {
            let sum = |fields: [usize; 2]| -> u64 {
                fields.iter().filter_map(|number| stat(pid, *number)).sum::<u64>() * TICK_US
            };
            // The process has also the times of its threads that have ended.
            sum([14, 15]).max(scheduled_us(pid)) + sum([16, 17])
        };
        self.members().into_iter().map(of).sum()
    }

    /// The live threads by their ids.
    #[must_use]
    pub fn threads(self) -> BTreeMap<u32, ThreadTime> {
        let mut threads = BTreeMap::new();
        for pid in self.members() {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for task in tasks {
                let name = task.file_name();
                let Some(tid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
                let text = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                let number = |number| field(&text, number).unwrap_or_default();
                let cpu_us = (number(14) + number(15)) * TICK_US;
                let core = usize::try_from(number(39)).unwrap_or_default();
                threads.insert(tid, ThreadTime { cpu_us, core });
            }
        }
        threads
    }

    /// Memory that the members hold for themselves, in bytes: anonymous pages and shared memory,
    /// each page counted once however many have it (Pss), without pages of files.
    #[must_use]
    pub fn memory_bytes(self) -> u64 {
        let of = |pid| -> u64 {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let wanted = text
                .lines()
                .filter(|line| line.starts_with("Pss_Anon:") || line.starts_with("Pss_Shmem:"));
            wanted.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
        };
        self.members().into_iter().map(of).sum::<u64>() * 1024
    }
}

/// The inodes and the accept queues of the sockets that listen on a port, from the text of
/// /proc/net/tcp or tcp6: state 0A is LISTEN, and in that state the receive queue is the number of
/// connections that wait to be accepted (tcp_ipv4.c: get_tcp4_sock).
pub fn listeners(text: &str, port: u16) -> impl Iterator<Item = (u64, u64)> {
    text.lines().skip(1).filter_map(move |line| {
        let mut words = line.split_whitespace();
        let (local, _remote, state) = (words.nth(1)?, words.next()?, words.next()?);
        let (_, own) = local.rsplit_once(':')?;
        if state != "0A" || u16::from_str_radix(own, 16).ok()? != port {
            return None;
        }
        let (_, waiting) = words.next()?.split_once(':')?;
        let inode = words.nth(4)?.parse().ok()?;
        Some((inode, u64::from_str_radix(waiting, 16).ok()?))
    })
}

/// Time that the live threads of a process have run, in microseconds: the first number of
/// /proc/PID/task/TID/schedstat, in nanoseconds. 0 where the kernel does not count it.
fn scheduled_us(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    let times = texts.filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    times.sum::<u64>() / 1000
}

fn holds(pid: u32, inodes: &BTreeSet<u64>) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.any(|link| {
        let name = link.to_str().and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']'));
        name.and_then(|inode| inode.parse().ok()).is_some_and(|inode| inodes.contains(&inode))
    })
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid, 4).and_then(|id| u32::try_from(id).ok())
}

/// A numeric field of /proc/PID/stat, by its number in proc_pid_stat(5), from 4.
fn stat(pid: u32, number: usize) -> Option<u64> {
    field(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, number)
}

fn field(text: &str, number: usize) -> Option<u64> {
    // The name, field 2, may hold anything, even brackets: the last one ends it.
    let (_, rest) = text.rsplit_once(") ")?;
    rest.split(' ').nth(number - 3)?.trim().parse().ok()
}

/// User and system time of this process's children that have ended, in microseconds.
#[must_use]
pub fn cpu_of_ended_us() -> u64 {
    let own = std::process::id();
    (16..=17).filter_map(|number| stat(own, number)).sum::<u64>() * TICK_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_of_the_family_until_it_is_waited_for() {
        let family = Family::new(std::process::id());
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(family.members().contains(&child.id()));
        assert!(family.threads().contains_key(&child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!family.members().contains(&child.id()));
        assert!(!Family::new(child.id()).is_alive() && family.is_alive());
    }

    #[test]
    fn memory_that_is_touched_is_counted() {
        let family = Family::new(std::process::id());
        let before = family.memory_bytes();
        let touched = vec![1_u8; 32 << 20];
        assert!(family.memory_bytes() >= before + (30 << 20));
        drop(touched);
    }

    #[test]
    fn work_of_less_than_a_tick_is_counted() {
        let family = Family::new(std::process::id());
        let before_us = family.cpu_us();
        let (done, wait) = (std::sync::mpsc::channel::<()>(), std::sync::mpsc::channel::<()>());
        let worker = std::thread::spawn(move || {
            while evenkeel_sys::clock::thread_cpu_us() < 3_000 {}
            done.0.send(()).unwrap();
            let _ended = wait.1.recv();
        });
        done.1.recv().unwrap();
        // The scheduler counts when the thread comes to rest, a moment after it has spoken.
        let begun = std::time::Instant::now();
        while family.cpu_us() < before_us + 2_900 {
            assert!(begun.elapsed().as_secs() < 10, "the work is not counted");
            std::thread::yield_now();
        }
        drop(wait.0);
        worker.join().unwrap();
    }

    #[test]
    fn who_listens_is_found_by_the_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(Family::listening_on(port), Some(Family::new(std::process::id())));
        drop(listener);
        assert_eq!(Family::listening_on(port), None);
    }

    #[test]
    fn the_table_of_sockets_is_read() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:0000001B 00:00000000 00000000 0 0 4711 1\n\
            1: 0100007F:1F90 0100007F:0001 01 00000000:00000002 00:00000000 00000000 0 0 4712 1\n\
            2: 0100007F:0050 00000000:0000 0A 00000000:00000001 00:00000000 00000000 0 0 4713 1\n";
        assert_eq!(listeners(text, 8080).collect::<Vec<_>>(), [(4711, 27)]);
    }

    #[test]
    fn fields_are_counted_behind_the_name() {
        let text = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 50 60 70 80 20 0\n";
        assert_eq!(
            (field(text, 4), field(text, 14), field(text, 17)),
            (Some(1), Some(50), Some(80))
        );
    }
}
