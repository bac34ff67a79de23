//! Observes the server's side of a load, found by a process id or by the URL of a status page.
//! During the load a thread samples the server's processes, its accept queue and its scoreboard
//! every second, so that one report can say what the clients saw and why.

use crate::calls::{self, Calls};
use crate::family::{Family, ThreadTime, listening_sockets};
use crate::numbers;
use crate::results::{Sampling, Series};
use crate::status::{LETTERS, Page, Status, is_busy};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval of samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a status page may take, since a server under load is slow.
const PATIENCE: Duration = Duration::from_millis(900);

/// Where the server can be observed.
#[derive(Clone, Debug)]
pub struct Side {
    /// The processes, if they are on this machine.
    pub family: Option<Family>,
    /// The port whose accept queue is sampled.
    port: u16,
    /// The status page.
    status: Option<Status>,
}

/// An observation, until [`Watch::end`].
pub struct Watch {
    // Dropping it ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

/// What was observed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Seen {
    /// The user time of the server's processes, in microseconds.
    pub user_us: u64,
    /// The system time, in microseconds.
    pub system_us: u64,
    /// The CPU time by core, in microseconds, counted for the core where each thread was last seen.
    pub by_core_us: BTreeMap<usize, u64>,
    /// The most processes at once.
    pub most_processes: usize,
    /// The most threads at once.
    pub most_threads: usize,
    /// The most connections that waited to be accepted.
    pub most_queued: Option<u64>,
    /// The samples, by the names of [`Series`].
    #[serde(skip)]
    pub series: Series,
    /// The system calls, if they were counted.
    pub calls: Option<Calls>,
    /// What could not be observed, and why.
    pub faults: Vec<String>,
}

impl Side {
    /// Finds the server: `text` is a process id or the URL of a status page, `port` is the one that
    /// is loaded. The processes behind a status page on this machine are found by that port.
    /// `verify` says whether to check the certificate of the page.
    ///
    /// # Errors
    ///
    /// There is no such process, or what is wrong with the URL or the page.
    pub fn find(text: &str, port: u16, verify: bool) -> Result<Self, String> {
        if let Ok(pid) = text.parse() {
            let family = Family::new(pid);
            if !family.is_alive() {
                return Err(format!("{pid}: no such process"));
            }
            return Ok(Self { family: Some(family), port, status: None });
        }
        let status = Status::open(text, verify, PATIENCE)?.in_short_form();
        let family = if status.is_here() { Family::listening_on(port) } else { None };
        status.page()?;
        Ok(Self { family, port, status: Some(status) })
    }

    /// Counts the system calls of its processes during `load`, which returns the number of answered
    /// requests. `seen` gets the calls, or why they cannot be counted.
    pub fn count_calls(&self, load: impl FnOnce() -> Result<u64, String>, seen: &mut Seen) {
        let Some(family) = self.family else { return };
        let folder = tempfile::tempdir().map_err(|error| error.to_string());
        match folder.and_then(|folder| calls::count(family, folder.path(), load)) {
            Ok(calls) => seen.calls = Some(calls),
            Err(fault) => seen.faults.push(format!("system calls: {fault}")),
        }
    }

    /// Begins to observe. If there is a folder, samples are saved in it as they come.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn watch(self, folder: Option<&Path>) -> Result<Watch, String> {
        let saving = folder.map(Sampling::begin).transpose()?;
        let (stop, stopped) = channel();
        let look_on = move || Looking::new(self, saving).run(&stopped);
        let thread = std::thread::Builder::new().name("server-side".into()).spawn(look_on);
        Ok(Watch { stop, thread: thread.map_err(|error| error.to_string())? })
    }
}

impl Watch {
    /// Ends the observation and returns the result.
    #[must_use]
    pub fn end(self) -> Seen {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

/// The state of the thread.
struct Looking {
    side: Side,
    saving: Option<Sampling>,
    begun: Instant,
    seen: Seen,
    times_us: (u64, u64),
    threads: BTreeMap<i32, ThreadTime>,
    machine: Vec<u64>,
    last_s: f64,
}

impl Looking {
    fn new(side: Side, saving: Option<Sampling>) -> Self {
        let family = side.family;
        Self {
            times_us: family.map(Family::times_us).unwrap_or_default(),
            threads: family.map(Family::threads).unwrap_or_default(),
            machine: machine_ticks(),
            side,
            saving,
            begun: Instant::now(),
            seen: Seen::default(),
            last_s: 0.0,
        }
    }

    fn run(mut self, stopped: &Receiver<()>) -> Seen {
        loop {
            let due = INTERVAL * u32::try_from(self.rounds() + 1).unwrap_or(u32::MAX);
            let wait = due.saturating_sub(self.begun.elapsed());
            let over = stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
            let at_s = self.begun.elapsed().as_secs_f64();
            // A moment is too short for times that are counted in hundredths of a second.
            if !over || at_s - self.last_s > 0.2 || self.last_s == 0.0 {
                self.look(at_s);
            }
            if over {
                return self.seen;
            }
        }
    }

    fn rounds(&self) -> u64 {
        self.begun.elapsed().as_secs() / INTERVAL.as_secs()
    }

    fn look(&mut self, at_s: f64) {
        let mut values = BTreeMap::new();
        if let Some(family) = self.side.family {
            self.look_at_processes(family, at_s, &mut values);
        }
        if let Some(queued) = accept_queue(self.side.port) {
            values.insert("Accept queue/connections".to_owned(), queued as f64);
            self.seen.most_queued = self.seen.most_queued.max(Some(queued));
        }
        self.look_at_machine(&mut values);
        if let Some(status) = &self.side.status {
            match status.page() {
                Ok(page) => values.extend(sums(&page)),
                Err(fault) if !self.seen.faults.contains(&fault) => self.seen.faults.push(fault),
                Err(_) => {}
            }
        }
        self.last_s = at_s;
        for (name, value) in &values {
            self.seen.series.lines.entry(name.clone()).or_default().push((at_s, *value));
        }
        if let Some(saving) = &mut self.saving
            && let Err(fault) = saving.sample(at_s, values)
        {
            self.seen.faults.push(fault);
            self.saving = None;
        }
    }

    fn look_at_processes(&mut self, family: Family, at_s: f64, values: &mut BTreeMap<String, f64>) {
        let long_us = ((at_s - self.last_s) * 1e6).max(1.0);
        let percent = |spent_us: u64| spent_us as f64 * 100.0 / long_us;
        let (user_us, system_us) = family.times_us();
        let spent =
            (user_us.saturating_sub(self.times_us.0), system_us.saturating_sub(self.times_us.1));
        self.times_us = (user_us.max(self.times_us.0), system_us.max(self.times_us.1));
        self.seen.user_us += spent.0;
        self.seen.system_us += spent.1;
        values.insert("CPU of the server in %/user".to_owned(), percent(spent.0));
        values.insert("CPU of the server in %/system".to_owned(), percent(spent.1));
        let threads = family.threads();
        let mut by_core: BTreeMap<usize, u64> = BTreeMap::new();
        for (tid, now) in &threads {
            let before = self.threads.get(tid).map_or(0, |before| before.cpu_us);
            *by_core.entry(now.core).or_default() += now.cpu_us.saturating_sub(before);
        }
        for (core, spent_us) in by_core {
            *self.seen.by_core_us.entry(core).or_default() += spent_us;
            values.insert(format!("CPU of the server by core in %/core {core}"), percent(spent_us));
        }
        let processes = family.members().len();
        values.insert("Processes and threads/processes".to_owned(), processes as f64);
        values.insert("Processes and threads/threads".to_owned(), threads.len() as f64);
        self.seen.most_processes = self.seen.most_processes.max(processes);
        self.seen.most_threads = self.seen.most_threads.max(threads.len());
        self.threads = threads;
    }

    fn look_at_machine(&mut self, values: &mut BTreeMap<String, f64>) {
        let now = machine_ticks();
        let spent: Vec<u64> = now
            .iter()
            .zip(&self.machine)
            .map(|(now, before)| now.saturating_sub(*before))
            .collect();
        // user and nice, system with interrupts, idle, wait: proc_stat(5).
        if let [user, nice, system, idle, wait, hard, soft, ..] = spent.as_slice() {
            let all: u64 = spent.iter().take(8).sum();
            let share = |ticks: u64| ticks as f64 * 100.0 / all.max(1) as f64;
            let rows = [("user", user + nice), ("system", system + hard + soft)];
            for (name, ticks) in rows.into_iter().chain([("idle", *idle), ("wait", *wait)]) {
                values.insert(format!("Whole machine in %/{name}"), share(ticks));
            }
        }
        self.machine = now;
    }
}

impl Seen {
    /// The result for that many answers, with a line for each thing.
    #[must_use]
    pub fn told(&self, answered: u64) -> String {
        let each = |us: u64| numbers::time(us as f64 * 1e3 / answered.max(1) as f64);
        let mut text = String::new();
        if self.most_processes > 0 {
            let _ = writeln!(
                text,
                "CPU of the server: {} an answer (user {}, system {})",
                each(self.user_us + self.system_us),
                each(self.user_us),
                each(self.system_us)
            );
            let cores = self.by_core_us.iter().filter(|(_, spent_us)| **spent_us > 0);
            let cores = cores.map(|(core, spent_us)| format!("core {core} {}", each(*spent_us)));
            let cores = cores.collect::<Vec<_>>().join(", ");
            if !cores.is_empty() {
                let _ = writeln!(text, "  by core: {cores}");
            }
            let (processes, threads) = (self.most_processes, self.most_threads);
            let _ = writeln!(text, "Processes and threads, at most: {processes} and {threads}");
        }
        if let Some(queued) = self.most_queued {
            let _ = writeln!(text, "Accept queue, at most: {}", numbers::count(queued));
        }
        for line in ["busy", "idle"] {
            if let Some(mean) = self.series.mean(&format!("Workers/{line}")) {
                let _ = writeln!(text, "Workers {line}, on the average: {mean:.1}");
            }
        }
        if let Some(calls) = &self.calls {
            let _ = writeln!(
                text,
                "System calls an answer: {:.2} ({}), counted by {} over {} answers after the run",
                calls.each(),
                calls.told(),
                calls.means,
                numbers::count(calls.requests)
            );
        }
        for fault in &self.faults {
            let _ = writeln!(text, "Not seen: {fault}");
        }
        text
    }
}

/// The number of connections that wait to be accepted at a port; none if nothing listens there.
fn accept_queue(port: u16) -> Option<u64> {
    let sockets = listening_sockets(port);
    (!sockets.is_empty()).then(|| sockets.into_iter().map(|(_, waiting)| waiting).sum())
}

/// The numbers in the first line of /proc/stat.
fn machine_ticks() -> Vec<u64> {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    line.split_whitespace().skip(1).filter_map(|ticks| ticks.parse().ok()).collect()
}

/// The sums of a status page: busy and idle workers, connections, and the count of each letter of
/// the scoreboard.
fn sums(page: &Page) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    let mut put = |plot: &str, line: &str, count: u64| {
        values.insert(format!("{plot}/{line}"), count as f64);
    };
    put("Workers", "busy", page.slots(is_busy) as u64);
    put("Workers", "idle", page.slots(|letter| letter == '_') as u64);
    if let Some(connections) = page.connections {
        let plot = "Connections of the server";
        put(plot, "all", connections.total);
        put(plot, "writing", connections.writing);
        put(plot, "keep-alive", connections.keep_alive);
        put(plot, "closing", connections.closing);
    }
    // Open slots are not workers, and would make the others look small.
    for (letter, meaning) in LETTERS.iter().filter(|(letter, _)| *letter != '.') {
        let count = page.slots(|it| it == *letter) as u64;
        if count > 0 {
            put("Scoreboard", meaning, count);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_sums_of_a_page_have_names() {
        let text = b"ServerVersion: Apache/2.4\nConnsTotal: 7\nScoreboard: __WW_K..\n";
        let values = sums(&Page::parse(text).unwrap());
        assert_eq!((values["Workers/busy"], values["Workers/idle"]), (3.0, 3.0));
        assert_eq!((values["Scoreboard/idle"], values["Scoreboard/writing"]), (3.0, 2.0));
        assert_eq!(values["Connections of the server/all"], 7.0);
        assert!(!values.contains_key("Scoreboard/finishing"));
    }

    #[test]
    fn a_server_is_seen_while_it_works() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _waits = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let pid = std::process::id().to_string();
        let folder = tempfile::tempdir().unwrap();
        let watch = Side::find(&pid, port, true).unwrap().watch(Some(folder.path())).unwrap();
        let seen = watch.end();
        assert!(seen.most_threads >= seen.most_processes && seen.most_processes >= 1);
        assert_eq!(seen.most_queued, Some(1));
        let saved = Series::read(folder.path()).unwrap();
        assert_eq!(
            saved.lines.keys().collect::<Vec<_>>(),
            seen.series.lines.keys().collect::<Vec<_>>()
        );
        assert!(saved.mean("Accept queue/connections") == Some(1.0));
        assert!(seen.told(1).contains("Accept queue, at most: 1"));
    }

    #[test]
    fn what_is_not_there_is_told() {
        assert_eq!(Side::find("4294967295", 1, true).unwrap_err(), "4294967295: no such process");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("http://127.0.0.1:{port}/server-status");
        let told = Side::find(&url, port, true).unwrap_err();
        assert!(told.starts_with(&format!("{url}?auto: ")), "{told}");
    }

    #[test]
    fn the_processes_behind_a_status_page_are_found_by_its_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                let mut stream = stream.unwrap();
                let mut head = [0; 512];
                let count = stream.read(&mut head).unwrap();
                assert!(head[..count].starts_with(b"GET /server-status?auto HTTP/1.1\r\n"));
                stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nScoreboard: WWWWW_\n").unwrap();
            }
        });
        let url = format!("http://127.0.0.1:{port}/server-status");
        let side = Side::find(&url, port, true).unwrap();
        assert_eq!(side.family, Some(Family::new(std::process::id())));
        let seen = side.watch(None).unwrap().end();
        serve.join().unwrap();
        assert_eq!((seen.series.mean("Workers/busy"), seen.faults.len()), (Some(5.0), 0));
    }
}
