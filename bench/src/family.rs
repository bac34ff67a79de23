//! The processes of one server. A process id comes in; processor time and memory of it and of
//! all its descendants come out, as /proc tells them.

use std::collections::BTreeSet;
use std::fs;

/// A process and its descendants, as they are when asked.
#[derive(Debug, Clone, Copy)]
pub struct Family(u32);

impl Family {
    /// The family that begins at a process.
    pub fn new(root: u32) -> Self {
        Self(root)
    }

    /// The ids of the live members.
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
    /// microseconds, to a tick of the kernel (10 ms).
    pub fn cpu_us(self) -> u64 {
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
        // utime, stime, cutime and cstime are fields 14 to 17 of proc_pid_stat(5).
        let of = |pid| -> u64 { (14..=17).filter_map(|field| stat(pid, field)).sum() };
        self.members().into_iter().map(of).sum::<u64>() * tick_us
    }

    /// Memory that the members hold for themselves, in bytes: anonymous pages and shared memory,
    /// each page counted once however many have it (Pss), without pages of files.
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

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid, 4).and_then(|id| u32::try_from(id).ok())
}

/// A numeric field of /proc/PID/stat, by its number in proc_pid_stat(5), from 4.
fn stat(pid: u32, field: usize) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, field 2, may hold anything, even brackets: the last one ends it.
    let (_, rest) = text.rsplit_once(") ")?;
    rest.split(' ').nth(field - 3)?.parse().ok()
}

/// User and system time of this process's children that have ended, in microseconds.
pub fn cpu_of_ended_us() -> u64 {
    let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let own = std::process::id();
    (16..=17).filter_map(|field| stat(own, field)).sum::<u64>() * tick_us
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
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!family.members().contains(&child.id()));
    }

    #[test]
    fn memory_that_is_touched_is_counted() {
        let family = Family::new(std::process::id());
        let before = family.memory_bytes();
        let touched = vec![1_u8; 32 << 20];
        assert!(family.memory_bytes() >= before + (30 << 20));
        drop(touched);
    }
}
