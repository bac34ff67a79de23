//! The process tree of a server: CPU time, memory and the numbers of processes and threads of a
//! process and its descendants, from /proc. The tree is found by a process id or by a port that is
//! listened on. Nothing is changed.

use evenkeel_monitor::process::{ProcessStat, TICK_US};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::str::SplitWhitespace;

/// A process and its descendants at the time of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family(i32);

/// The CPU time of a thread, and the core where it last ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// The user and system time in microseconds.
    pub cpu_us: u64,
    /// The core.
    pub core: usize,
}

impl Family {
    /// The tree below a process.
    #[must_use]
    pub fn new(root: u32) -> Self {
        Self(root.cast_signed())
    }

    /// The tree that listens on a TCP port: among the processes that have the socket, the one whose
    /// parent does not have it. None if no process listens, or if it is not visible to this user.
    #[must_use]
    pub fn listening_on(port: u16) -> Option<Self> {
        let all = processes();
        eldest(&all, &listening(&all, port)).map(Self)
    }

    /// Whether the first process is alive.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Path::new(&format!("/proc/{}/stat", self.0)).exists()
    }

    /// The live processes, the first one in front.
    #[must_use]
    pub fn members(self) -> Vec<ProcessStat> {
        members(&processes(), self.0).into_iter().cloned().collect()
    }

    /// The processes that descend from the first.
    #[must_use]
    pub fn descendants(self) -> BTreeSet<i32> {
        self.members().iter().map(|member| member.pid).filter(|pid| *pid != self.0).collect()
    }

    /// The user and system time of live processes, and of dead ones that were waited for, in
    /// microseconds with a resolution of a hundredth of a second.
    #[must_use]
    pub fn times_us(self) -> (u64, u64) {
        let add = |(user, system): (u64, u64), it: &ProcessStat| {
            let own = (it.user_ticks, it.system_ticks);
            (user + own.0 + it.ended_user_ticks, system + own.1 + it.ended_system_ticks)
        };
        let (user, system) = self.members().iter().fold((0, 0), add);
        (user * TICK_US, system * TICK_US)
    }

    /// The user and system time together, in microseconds. For live threads these are the
    /// scheduler's figures, with a resolution of nanoseconds: if each of many processes has used
    /// less than a hundredth of a second, the coarser figures would be zero.
    #[must_use]
    pub fn cpu_us(self) -> u64 {
        let of = |it: &ProcessStat| -> u64 {
            let own_us = (it.user_ticks + it.system_ticks) * TICK_US;
            let ended_us = (it.ended_user_ticks + it.ended_system_ticks) * TICK_US;
            // The time of the process includes that of its threads that have ended.
            own_us.max(scheduled_us(it.pid)) + ended_us
        };
        self.members().iter().map(of).sum()
    }

    /// The live threads by their ids.
    #[must_use]
    pub fn threads(self) -> BTreeMap<i32, ThreadTime> {
        let members = self.members();
        let tasks = members.iter().flat_map(|member| threads(member.pid));
        let time = |task: ProcessStat| {
            let cpu_us = (task.user_ticks + task.system_ticks) * TICK_US;
            (task.pid, ThreadTime { cpu_us, core: task.core })
        };
        tasks.map(time).collect()
    }

    /// The memory of the processes in bytes: anonymous pages and shared memory without pages of
    /// files. Each page counts once, however many processes share it (Pss).
    #[must_use]
    pub fn memory_bytes(self) -> u64 {
        let of = |member: ProcessStat| -> u64 {
            let path = format!("/proc/{}/smaps_rollup", member.pid);
            let text = fs::read_to_string(path).unwrap_or_default();
            let wanted = text
                .lines()
                .filter(|line| line.starts_with("Pss_Anon:") || line.starts_with("Pss_Shmem:"));
            wanted.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
        };
        self.members().into_iter().map(of).sum::<u64>() * 1024
    }
}

/// Every visible process. One that ends in the meantime is left out.
pub(crate) fn processes() -> Vec<ProcessStat> {
    stats(Path::new("/proc")).collect()
}

/// The threads of a process.
pub(crate) fn threads(pid: i32) -> impl Iterator<Item = ProcessStat> {
    stats(Path::new(&format!("/proc/{pid}/task")))
}

/// The contents of the `stat` files in a folder's numbered folders.
fn stats(folder: &Path) -> impl Iterator<Item = ProcessStat> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let is_number = entry.file_name().to_str()?.bytes().all(|byte| byte.is_ascii_digit());
        let text = is_number.then(|| fs::read_to_string(entry.path().join("stat")).ok())??;
        ProcessStat::parse(&text)
    })
}

/// The processes of the tree below `eldest`, which comes first; none if it does not exist.
pub(crate) fn members(all: &[ProcessStat], eldest: i32) -> Vec<&ProcessStat> {
    let mut found: Vec<&ProcessStat> = all.iter().filter(|stat| stat.pid == eldest).collect();
    let mut children: BTreeMap<i32, Vec<&ProcessStat>> = BTreeMap::new();
    for stat in all.iter().filter(|stat| stat.pid != eldest) {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut at = 0;
    // Each list of children is taken once, so that this ends whatever the texts contain.
    while let Some(parent) = found.get(at) {
        found.extend(children.remove(&parent.pid).unwrap_or_default());
        at += 1;
    }
    found
}

/// The process among `pids` whose parent is not among them: the topmost known process of a server.
pub(crate) fn eldest(all: &[ProcessStat], pids: &BTreeSet<i32>) -> Option<i32> {
    let mut of_them = all.iter().filter(|stat| pids.contains(&stat.pid));
    of_them.find(|stat| !pids.contains(&stat.parent)).map(|stat| stat.pid)
}

/// The processes that hold a socket listening on `port`, except process 1, which may hold it for
/// others.
pub(crate) fn listening(all: &[ProcessStat], port: u16) -> BTreeSet<i32> {
    let sockets = listening_sockets(port);
    if sockets.is_empty() {
        return BTreeSet::new();
    }
    let inodes: BTreeSet<u64> = sockets.into_iter().map(|(inode, _)| inode).collect();
    let pids = all.iter().map(|stat| stat.pid);
    pids.filter(|pid| *pid > 1 && holds(*pid, &inodes)).collect()
}

fn holds(pid: i32, inodes: &BTreeSet<u64>) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let mut sockets = links.filter_map(|link| socket_inode(link.to_str()?));
    sockets.any(|inode| inodes.contains(&inode))
}

/// The inode in a link of /proc/PID/fd, if it is a socket.
fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The inodes and the accept queues of the sockets that listen on a port of this machine.
pub(crate) fn listening_sockets(port: u16) -> Vec<(u64, u64)> {
    tables().iter().flat_map(|text| listeners(text, port)).collect()
}

/// How many connections wait to be accepted at a port of this machine, and how many there are in
/// total with the accepted ones, both from one reading.
pub(crate) fn crowd(port: u16) -> (u64, u64) {
    let texts = tables();
    let waiting = texts.iter().flat_map(|text| listeners(text, port)).map(|(_, waiting)| waiting);
    let open = texts.iter().flat_map(|text| sockets(text, port));
    (waiting.sum(), open.filter(|(state, _)| OPEN.contains(state)).count() as u64)
}

/// The kernel's tables of TCP sockets.
fn tables() -> Vec<String> {
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().flat_map(fs::read_to_string).collect()
}

/// The states of a connection that its server has not closed: ESTABLISHED and CLOSE_WAIT
/// (include/net/tcp_states.h).
const OPEN: [&str; 2] = ["01", "08"];

/// The sockets of a port in the text of /proc/net/tcp or tcp6: the state, and the words after it.
fn sockets(text: &str, port: u16) -> impl Iterator<Item = (&str, SplitWhitespace<'_>)> {
    text.lines().skip(1).filter_map(move |line| {
        let mut words = line.split_whitespace();
        let (local, _remote, state) = (words.nth(1)?, words.next()?, words.next()?);
        let (_, own) = local.rsplit_once(':')?;
        (u16::from_str_radix(own, 16).ok()? == port).then_some((state, words))
    })
}

/// The listening sockets: state 0A is LISTEN, where the receive queue is the number of connections
/// that wait to be accepted (tcp_ipv4.c: get_tcp4_sock).
fn listeners(text: &str, port: u16) -> impl Iterator<Item = (u64, u64)> {
    sockets(text, port).filter(|(state, _)| *state == "0A").filter_map(|(_, mut words)| {
        let (_, waiting) = words.next()?.split_once(':')?;
        let inode = words.nth(4)?.parse().ok()?;
        Some((inode, u64::from_str_radix(waiting, 16).ok()?))
    })
}

/// The time that the live threads of a process have run, in microseconds: the first number of
/// /proc/PID/task/TID/schedstat, which is in nanoseconds. 0 if the kernel does not count it.
fn scheduled_us(pid: i32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    let times = texts.filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    times.sum::<u64>() / 1000
}

/// The user and system time of this process's children that have ended, in microseconds.
#[must_use]
pub fn cpu_of_ended_us() -> u64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let own = ProcessStat::parse(&text).unwrap_or_default();
    (own.ended_user_ticks + own.ended_system_ticks) * TICK_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_of_the_family_until_it_is_waited_for() {
        let family = Family::new(std::process::id());
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id().cast_signed();
        let is_member = || family.members().iter().any(|member| member.pid == pid);
        assert!(is_member() && family.threads().contains_key(&pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!is_member());
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
        // The scheduler updates its count when the thread stops running, a moment after its
        // message.
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
        let clients = [0; 3].map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
        let accepted = listener.accept().unwrap();
        assert_eq!(crowd(port), (2, 3));
        drop((listener, clients, accepted));
        assert_eq!(Family::listening_on(port), None);
    }

    #[test]
    fn the_table_of_sockets_is_read() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:0000001B 00:00000000 00000000 0 0 4711 1\n\
            1: 0100007F:1F90 0100007F:0001 01 00000000:00000002 00:00000000 00000000 0 0 4712 1\n\
            2: 0100007F:0050 00000000:0000 0A 00000000:00000001 00:00000000 00000000 0 0 4713 1\n";
        assert_eq!(listeners(text, 8080).collect::<Vec<_>>(), [(4711, 27)]);
        let states = |port| sockets(text, port).map(|(state, _)| state).collect::<Vec<_>>();
        assert_eq!((states(8080), states(80)), (vec!["0A", "01"], vec!["0A"]));
    }

    fn stat(pid: i32, parent: i32) -> ProcessStat {
        ProcessStat { pid, parent, ..ProcessStat::default() }
    }

    #[test]
    fn a_family_is_found_and_nobody_else() {
        let all = [stat(1, 0), stat(12, 11), stat(10, 1), stat(11, 10), stat(9, 1)];
        let pids: Vec<i32> = members(&all, 10).iter().map(|stat| stat.pid).collect();
        assert_eq!(pids, [10, 11, 12]);
        assert!(members(&all, 13).is_empty());
        assert_eq!(eldest(&all, &[11, 12].into()), Some(11));
        assert_eq!(eldest(&all, &[77].into()), None);
        // Two processes that name each other as parents do not make it hang.
        let ring = [stat(5, 6), stat(6, 5)];
        assert_eq!(members(&ring, 5).len(), 2);
    }

    #[test]
    fn links_of_sockets_are_told_from_others() {
        assert_eq!(socket_inode("socket:[90837]"), Some(90837));
        assert_eq!(socket_inode("pipe:[90837]"), None);
    }
}
