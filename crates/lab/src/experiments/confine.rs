//! Puts servers under limits for an experiment: control groups (cgroup v1 and v2) and limits of
//! processes. A limit is a line of shell with which a process puts itself under it; a group is
//! removed when it is dropped. If the system does not allow a limit, the experiment says so.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the processes of a group may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// A control group that this program made.
#[derive(Debug)]
pub struct Group(PathBuf);

/// The limit of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The CPU time of this many cores.
    Cores(f64),
    /// This many bytes of memory.
    Memory(u64),
}

/// The period of a quota, in microseconds.
const PERIOD_US: f64 = 100_000.0;

impl Group {
    /// Makes a group with this limit.
    ///
    /// # Errors
    ///
    /// Why the system does not allow it.
    pub fn make(bound: Bound) -> Result<Self, String> {
        let mut why = "no control groups are mounted".to_owned();
        for (hierarchy, files) in homes(bound) {
            if !hierarchy.is_dir() {
                continue;
            }
            let folder = hierarchy.join(format!("evenkeel-lab-{}", std::process::id()));
            let told = |error: io::Error| format!("{}: {error}", folder.display());
            match fs::create_dir(&folder) {
                Ok(()) => {}
                Err(error) => {
                    why = told(error);
                    continue;
                }
            }
            let group = Self(folder.clone());
            let set = files.iter().try_for_each(|(name, value)| write(&folder.join(name), value));
            match set {
                Ok(()) => return Ok(group),
                Err(error) => why = told(error),
            }
        }
        Err(why)
    }

    /// The line of shell with which a process joins the group.
    #[must_use]
    pub fn line(&self) -> String {
        format!("echo $$ > '{}'", self.0.join("cgroup.procs").display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let begun = Instant::now();
        // The last processes in the group end a moment after their server.
        while fs::remove_dir(&self.0).is_err() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Writes to a file of the kernel's, which must exist.
fn write(path: &Path, value: &str) -> io::Result<()> {
    use io::Write as _;
    fs::OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// The folders where such groups may be, and what to write to which of their files.
fn homes(bound: Bound) -> Vec<(PathBuf, Vec<(&'static str, String)>)> {
    let root = Path::new("/sys/fs/cgroup");
    let period = format!("{PERIOD_US:.0}");
    match bound {
        Bound::Cores(cores) => {
            let quota = format!("{:.0}", cores * PERIOD_US);
            let first = vec![("cpu.cfs_period_us", period), ("cpu.cfs_quota_us", quota.clone())];
            let second = vec![("cpu.max", format!("{quota} {PERIOD_US:.0}"))];
            vec![
                (root.join("cpu"), first.clone()),
                (root.join("cpu,cpuacct"), first),
                (root.to_owned(), second),
            ]
        }
        Bound::Memory(bytes) => vec![
            (root.join("memory"), vec![("memory.limit_in_bytes", bytes.to_string())]),
            (root.to_owned(), vec![("memory.max", bytes.to_string())]),
        ],
    }
}

/// The line of shell with which a process limits its descriptors.
#[must_use]
pub fn descriptors(most: u64) -> String {
    format!("ulimit -n {most}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_told_the_same() {
        let homes = homes(Bound::Cores(0.5));
        let of = |at: usize| homes[at].1.iter().map(|(_, value)| value.as_str());
        assert_eq!(of(0).collect::<Vec<_>>(), ["100000", "50000"]);
        assert_eq!(of(2).collect::<Vec<_>>(), ["50000 100000"]);
        assert_eq!(descriptors(9), "ulimit -n 9");
    }

    #[test]
    fn a_group_is_gone_when_it_is_let_go() {
        // If no group is possible here, the reason names the folder or says that there is none.
        match Group::make(Bound::Memory(1 << 30)) {
            Ok(group) => {
                let folder = group.0.clone();
                assert!(folder.is_dir() && group.line().contains("cgroup.procs"));
                drop(group);
                assert!(!folder.exists());
            }
            Err(why) => assert!(why.contains("evenkeel-lab-") || why.contains("mounted"), "{why}"),
        }
    }
}
