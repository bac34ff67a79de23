//! The resources that the machine and the control groups (cgroup v1 and v2) leave to a process:
//! cores, memory, network, throttling. They are read from /proc and /sys/fs/cgroup; a value is none
//! where the kernel does not tell it.

use crate::procfs;
use std::fs;
use std::path::{Path, PathBuf};

/// The control groups of the calling process, as folders from its own up to the outermost. Each of
/// them may set a bound, and the lowest holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    cpu: Vec<PathBuf>,
    memory: Vec<PathBuf>,
}

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The most that the process's groups may use, or the memory of the machine.
    pub limit: u64,
    /// How much of that is available.
    pub free: u64,
}

/// Periods of a CPU quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Periods {
    /// Those in which there was work.
    pub all: u64,
    /// Those in which the group was throttled.
    pub held_back: u64,
}

impl Periods {
    /// Parses `cpu.stat`, which has the same names in both versions.
    fn parse(text: &str) -> Option<Self> {
        Some(Self { all: field(text, "nr_periods")?, held_back: field(text, "nr_throttled")? })
    }

    /// The share of the periods since `before` that were throttled; none if there was no period.
    #[must_use]
    pub fn share_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        Some(self.held_back.saturating_sub(before.held_back).min(all) as f64 / all as f64)
    }
}

impl Groups {
    /// Finds the groups of the calling process; none if no hierarchy is mounted.
    #[must_use]
    pub fn find() -> Self {
        let text = |path| procfs::read(path).unwrap_or_default();
        Self::parse(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"))
    }

    /// Parses /proc/self/cgroup and /proc/self/mountinfo (cgroups(7)).
    fn parse(cgroup: &str, mountinfo: &str) -> Self {
        let folders = |controller: &str| {
            let of_first = folders(cgroup, mountinfo, Some(controller));
            // A controller that version 1 does not have is in version 2.
            if of_first.is_empty() { folders(cgroup, mountinfo, None) } else { of_first }
        };
        Self { cpu: folders("cpu"), memory: folders("memory") }
    }

    /// The quota of the groups, in cores; none without a bound.
    #[must_use]
    pub fn quota_cores(&self) -> Option<f64> {
        let quotas = self.cpu.iter().filter_map(|folder| {
            quota_v2(&read(folder, "cpu.max")).or_else(|| {
                quota_v1(&read(folder, "cpu.cfs_quota_us"), &read(folder, "cpu.cfs_period_us"))
            })
        });
        quotas.min_by(f64::total_cmp)
    }

    /// For each group that counts them, in how many periods of its quota it has had work since its
    /// creation, and in how many of these it was throttled. The times that the kernel counts beside
    /// them are sums over all cores, from which no share of time follows.
    #[must_use]
    pub fn periods(&self) -> Vec<Periods> {
        self.cpu.iter().filter_map(|folder| Periods::parse(&read(folder, "cpu.stat"))).collect()
    }

    /// The available memory: that of the tightest group, or of the machine; none if the kernel
    /// tells neither.
    #[must_use]
    pub fn memory(&self) -> Option<Memory> {
        let machine = machine_memory(&procfs::read("/proc/meminfo").unwrap_or_default())?;
        let groups = self.memory.iter().filter_map(|folder| {
            group_memory(
                &read(folder, "memory.max"),
                &read(folder, "memory.current"),
                &read(folder, "memory.stat"),
            )
            .or_else(|| {
                group_memory(
                    &read(folder, "memory.limit_in_bytes"),
                    &read(folder, "memory.usage_in_bytes"),
                    &read(folder, "memory.stat"),
                )
            })
        });
        // Version 1 expresses "no limit" as a number that no machine has.
        let bounded = groups.filter(|group| group.limit < machine.limit);
        Some(bounded.fold(machine, |least, next| if next.free < least.free { next } else { least }))
    }
}

/// The share of the last 10 seconds in which some process waited for memory, in hundredths of a per
/// cent (/proc/pressure/memory); none if the kernel does not tell.
#[must_use]
pub fn memory_pressure() -> Option<u64> {
    pressure(&procfs::read("/proc/pressure/memory").ok()?)
}

/// How long the given cores were busy since the start of the system, in microseconds; none if the
/// kernel does not tell.
#[must_use]
pub fn cores_busy_us(cores: &[usize]) -> Option<u64> {
    busy_us(&procfs::read("/proc/stat").ok()?, cores)
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Bytes sent since it came up.
    pub sent: u64,
    /// Its speed in bits per second.
    pub bits: u64,
}

/// The network interfaces that report their speed.
#[must_use]
pub fn interfaces() -> Vec<Interface> {
    let Ok(entries) = fs::read_dir("/sys/class/net") else { return Vec::new() };
    let told = entries.flatten().filter_map(|entry| {
        let folder = entry.path();
        let megabits: u64 =
            read(&folder, "speed").trim().parse().ok().filter(|&speed| speed > 0)?;
        let sent = read(&folder.join("statistics"), "tx_bytes").trim().parse().ok()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        Some(Interface { name, sent, bits: megabits.saturating_mul(1_000_000) })
    });
    told.collect()
}

/// How long the threads of a process waited for a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunQueue {
    /// How long its living threads were ready without a core, in microseconds.
    pub delay_us: u64,
    /// How many of them were sampled.
    pub sampled: usize,
}

/// The run-queue delay of a process (/proc/PID/task/TID/schedstat); none if the kernel does not
/// count it. Of more than `most` threads only that many are sampled, the same ones while no thread
/// starts or ends, and stand for all.
#[must_use]
pub fn run_queue(pid: i32, most: usize) -> Option<RunQueue> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let tasks: Vec<_> = tasks.flatten().collect();
    let step = tasks.len().div_ceil(most.max(1)).max(1);
    let mut found: Option<u64> = None;
    let mut sampled = 0_u64;
    for task in tasks.iter().step_by(step) {
        sampled += 1;
        // A thread that has ended meanwhile is left out; without kernel support no thread has this.
        if let Some(delay_us) = run_delay_us(&read(&task.path(), "schedstat")) {
            found = Some(delay_us.saturating_add(found.unwrap_or_default()));
        }
    }
    let for_all = found?.saturating_mul(tasks.len() as u64);
    Some(RunQueue { delay_us: for_all / sampled.max(1), sampled: sampled as usize })
}

/// Whether a thread of a process runs or is ready to run (state R in /proc/PID/task/TID/stat): it
/// waits for nothing but a processor, and is not stopped.
#[must_use]
pub fn wants_processor(pid: i32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let mut tasks = tasks.into_iter().flatten().flatten();
    tasks.any(|task| is_runnable(&read(&task.path(), "stat")))
}

/// Parses a text such as `7 (a name) R 1 ...`; the name may contain anything (proc(5)).
fn is_runnable(stat: &str) -> bool {
    let state = stat.rsplit_once(')').map(|(_, behind)| behind.trim_start());
    state.is_some_and(|state| state.starts_with('R'))
}

/// How many connections found an accept queue full since the start of the system, on all sockets of
/// this network namespace (`ListenOverflows` of /proc/net/netstat); none if the kernel does not
/// tell.
#[must_use]
pub fn listen_overflows() -> Option<u64> {
    overflows(&procfs::read("/proc/net/netstat").ok()?)
}

/// The names are on one line and their values on the next, each after `TcpExt:`.
fn overflows(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next()?.split_whitespace(), lines.next()?.split_whitespace());
    let found = names.zip(values).find(|(name, _)| *name == "ListenOverflows")?;
    found.1.parse().ok()
}

/// The bytes of memory that a process does not share: pages that it has changed, and its page
/// tables (/proc/PID/smaps_rollup and status); none if the kernel does not tell. Unchanged pages of
/// files are not counted: the next process that reads them shares them, and the kernel can drop
/// them.
#[must_use]
pub fn private_bytes(pid: i32) -> Option<u64> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    private(&read(&folder, "smaps_rollup"), &read(&folder, "status"))
}

/// The bytes of memory that the calling process occupies, including shared pages
/// (/proc/self/status); none if the kernel does not tell.
#[must_use]
pub fn own_resident_bytes() -> Option<u64> {
    let status = procfs::read("/proc/self/status").ok()?;
    Some(kib(&status, "VmRSS")?.saturating_mul(1024))
}

fn private(rollup: &str, status: &str) -> Option<u64> {
    let pages = kib(rollup, "Private_Dirty")?;
    Some(pages.saturating_add(kib(status, "VmPTE").unwrap_or(0)).saturating_mul(1024))
}

/// The value of a line `NAME: NUMBER kB`.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

fn read(folder: &Path, name: &str) -> String {
    procfs::read(folder.join(name)).unwrap_or_default()
}

/// The folders of the process's group in the hierarchy of a controller, beginning with its own.
/// Without a controller, the hierarchy is that of version 2.
fn folders(cgroup: &str, mountinfo: &str, controller: Option<&str>) -> Vec<PathBuf> {
    let path = cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = match controller {
            Some(controller) => names.split(',').any(|name| name == controller),
            None => number == "0" && names.is_empty(),
        };
        is_it.then_some(path)
    });
    let mount = mountinfo.lines().find_map(|line| {
        let (front, behind) = line.split_once(" - ")?;
        let mut behind = behind.split(' ');
        let (kind, _source, options) = (behind.next()?, behind.next()?, behind.next()?);
        let is_it = match controller {
            Some(controller) => {
                kind == "cgroup" && options.split(',').any(|name| name == controller)
            }
            None => kind == "cgroup2",
        };
        let mut front = front.split(' ').skip(3);
        is_it.then_some((front.next()?, front.next()?))
    });
    let (Some(path), Some((root, point))) = (path, mount) else { return Vec::new() };
    // In a container the mount shows a part of the hierarchy, in which the process may appear at
    // the top.
    let below = path.strip_prefix(root).unwrap_or(path).trim_start_matches('/');
    let point = Path::new(point);
    let own = point.join(below);
    let own = if own.is_dir() || below.is_empty() { own } else { point.to_owned() };
    own.ancestors().take_while(|folder| folder.starts_with(point)).map(Path::to_owned).collect()
}

/// Parses `cpu.max`: a quota and its period in microseconds, or `max`.
fn quota_v2(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (period > 0.0).then_some(quota / period)
}

/// Parses `cpu.cfs_quota_us` and `cpu.cfs_period_us`; a negative quota means none.
fn quota_v1(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.trim().parse().ok().filter(|quota| *quota > 0.0)?;
    let period: f64 = period.trim().parse().ok().filter(|period| *period > 0.0)?;
    Some(quota / period)
}

/// The value of a line `NAME NUMBER`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        if key == name { value.trim().parse().ok() } else { None }
    })
}

/// The limit and the use of a group. Pages of files that the kernel can drop at once count as
/// available.
fn group_memory(limit: &str, used: &str, stat: &str) -> Option<Memory> {
    let limit: u64 = limit.trim().parse().ok()?;
    let used: u64 = used.trim().parse().ok()?;
    let droppable = field(stat, "total_inactive_file").or_else(|| field(stat, "inactive_file"));
    let used = used.saturating_sub(droppable.unwrap_or(0));
    Some(Memory { limit, free: limit.saturating_sub(used) })
}

/// Parses `MemTotal` and `MemAvailable` of /proc/meminfo, which are in KiB.
fn machine_memory(text: &str) -> Option<Memory> {
    Some(Memory {
        limit: kib(text, "MemTotal")?.saturating_mul(1024),
        free: kib(text, "MemAvailable")?.saturating_mul(1024),
    })
}

/// Parses `some avg10=1.50 avg60=...`: the first value, in hundredths.
fn pressure(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some avg10="))?;
    let (whole, rest) = some.split_once('.')?;
    let hundredths = rest.get(..2)?;
    Some(whole.parse::<u64>().ok()? * 100 + hundredths.parse::<u64>().ok()?)
}

/// Parses the lines `cpuN` of /proc/stat, whose columns are user, nice, system, idle, iowait, irq,
/// softirq and steal in hundredths of a second (proc_stat(5)). Stolen time counts as busy, because
/// it is not available.
fn busy_us(text: &str, cores: &[usize]) -> Option<u64> {
    let busy = text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let core: usize = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
        let at_work = ticks.iter().enumerate().filter(|(column, _)| !matches!(column, 3 | 4));
        cores.contains(&core).then_some(at_work.map(|(_, ticks)| ticks).sum::<u64>())
    });
    let all: Vec<u64> = busy.collect();
    (!all.is_empty()).then(|| all.iter().sum::<u64>().saturating_mul(10_000))
}

/// The second number is the time on a run queue, in nanoseconds.
fn run_delay_us(text: &str) -> Option<u64> {
    Some(text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()? / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /box /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
";

    fn paths(list: &[&str]) -> Vec<PathBuf> {
        list.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn groups_of_both_versions_are_found() {
        let cgroup = "4:memory:/box\n2:cpuacct,cpu:/\n0::/\n";
        let groups = Groups::parse(cgroup, MOUNTS);
        assert_eq!(groups.cpu, paths(&["/sys/fs/cgroup/cpu,cpuacct"]));
        assert_eq!(groups.memory, paths(&["/sys/fs/cgroup/memory"]));
        let unified = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let groups = Groups::parse("0::/\n", unified);
        assert_eq!((groups.cpu.clone(), groups.memory), (paths(&["/sys/fs/cgroup"]), groups.cpu));
        assert_eq!(Groups::parse("", ""), Groups::default());
        assert_eq!(Groups::default().quota_cores(), None);
    }

    #[test]
    fn quotas_and_throttling_are_read() {
        assert_eq!(quota_v2("150000 100000\n"), Some(1.5));
        assert_eq!(quota_v2("max 100000\n"), None);
        assert_eq!(quota_v1("50000\n", "100000\n"), Some(0.5));
        assert_eq!((quota_v1("-1\n", "100000\n"), quota_v1("", "")), (None, None));
        let text = "usage_usec 5\nnr_periods 30\nnr_throttled 20\nthrottled_usec 7100\n";
        let periods = Periods { all: 30, held_back: 20 };
        assert_eq!(Periods::parse(text), Some(periods));
        assert_eq!(Periods::parse("usage_usec 5\n"), None);
        let before = Periods { all: 20, held_back: 19 };
        assert_eq!(periods.share_since(before), Some(0.1));
        assert_eq!((periods.share_since(periods), before.share_since(periods)), (None, None));
    }

    #[test]
    fn memory_and_its_pressure_are_read() {
        let memory = group_memory("1000\n", "900\n", "file 600\ninactive_file 300\n");
        assert_eq!(memory, Some(Memory { limit: 1000, free: 400 }));
        let first = group_memory("1000\n", "900\n", "inactive_file 1\ntotal_inactive_file 50\n");
        assert_eq!(first.map(|memory| memory.free), Some(150));
        assert_eq!(group_memory("max\n", "900\n", ""), None);
        let machine = "MemTotal:        2000 kB\nMemFree:  1 kB\nMemAvailable:    1500 kB\n";
        let memory = Memory { limit: 2000 * 1024, free: 1500 * 1024 };
        assert_eq!(machine_memory(machine), Some(memory));
        assert_eq!(machine_memory("MemTotal: 1 kB\n"), None);
        let text = "some avg10=12.05 avg60=0.13 avg300=1.03 total=115986253\nfull avg10=1.00\n";
        assert_eq!((pressure(text), pressure("full")), (Some(1_205), None));
    }

    #[test]
    fn full_accept_queues_are_counted() {
        let text = "TcpExt: A ListenOverflows B\nTcpExt: 1 22 3\nIpExt: C\nIpExt: 4\n";
        assert_eq!((overflows(text), overflows("TcpExt: A\nTcpExt: 1\n")), (Some(22), None));
        assert!(listen_overflows().is_some());
    }

    #[test]
    fn memory_of_a_process_alone_is_read() {
        let rollup = "Rss:  900 kB\nPrivate_Clean:  20 kB\nPrivate_Dirty:   300 kB\n";
        assert_eq!(private(rollup, "VmPTE:\t  80 kB\n"), Some(380 * 1024));
        assert_eq!((private(rollup, ""), private("", "")), (Some(300 * 1024), None));
        assert!(private_bytes(std::process::id().cast_signed()).is_some_and(|bytes| bytes > 4096));
    }

    #[test]
    fn times_of_cores_and_threads_are_read() {
        let text =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 400 5 6 7 8 50 60\ncpu1 10 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(busy_us(text, &[0]), Some(270_000));
        assert_eq!(busy_us(text, &[0, 1]), Some(370_000));
        assert_eq!((busy_us(text, &[7]), busy_us("", &[0])), (None, None));
        assert_eq!(run_delay_us("169038 2337481 2\n"), Some(2_337));
        assert_eq!(run_delay_us(""), None);
    }

    #[test]
    fn a_process_that_runs_wants_a_processor_and_one_that_waits_or_is_stopped_wants_none() {
        assert!(is_runnable("7 (httpd) R 1 7 7") && is_runnable("7 (a) b) (c) R 1"));
        for text in ["7 (httpd) S 1", "7 (httpd) T 1", "7 (httpd) D 1", "7 (x) R 1) S 1", "", "R"] {
            assert!(!is_runnable(text), "{text}");
        }
        assert!(wants_processor(std::process::id().cast_signed()));
        assert!(!wants_processor(4_194_305));
    }

    #[test]
    fn this_machine_says_what_it_has() {
        let memory = Groups::find().memory().unwrap();
        assert!(memory.limit > 0 && memory.free <= memory.limit);
        let cores = crate::process::allowed_cores();
        assert!(cores_busy_us(&cores).unwrap() > 0);
    }

    #[test]
    fn of_many_threads_some_are_asked_and_stand_for_all() {
        let over = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            (0..7).for_each(|_| _ = scope.spawn(|| over.wait()));
            let own = crate::process::own_pid().as_raw_nonzero().get();
            let sampled = |most| run_queue(own, most).map(|found| found.sampled);
            assert!(sampled(1_000).unwrap() >= 8);
            assert!((1..=3).contains(&sampled(3).unwrap()));
            assert_eq!((sampled(1), sampled(0)), (Some(1), Some(1)));
            over.wait();
        });
        assert_eq!(run_queue(4_194_305, 9), None);
    }
}
