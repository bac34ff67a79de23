//! A pool of application processes on the status page: its figures, its workers, and a sentence
//! that says whether its requests use CPU time or wait, and what more workers would bring.

use crate::html::{escape, printable};
use evenkeel_scoreboard::{ApplicationLine, Figure, PoolWorker};
use evenkeel_sys::clock;
use serde::Serialize;
use std::fmt::Write;

/// The least gain in throughput, as a factor, for which more workers are recommended. Below it the
/// cores are the limit: every page waits a little, so that more workers always gain something.
const WORTHWHILE: f64 = 1.1;

/// Pages whose waiting time is at least this many times their CPU time count as pages that mostly
/// wait.
const MOSTLY: u64 = 4;

/// The resource that limits how many requests a pool can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The cores: its pages use CPU time, and more workers would not help.
    Cores,
    /// AppMaxWorkers.
    Workers,
    /// Memory.
    Memory,
}

/// A worker of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its process id; 0 until it was born.
    pub pid: u64,
    /// What it does, in Apache's letters: `S`tarting, `_` idle, `W`orking, `G` finishing.
    pub state: char,
    /// Requests that it has ended.
    pub requests: u64,
    /// CPU time of these requests in microseconds.
    pub cpu_us: u64,
    /// Memory of its own in bytes.
    pub memory: u64,
    /// How long the request in progress has run, in microseconds; 0 without one.
    pub runs_us: u64,
    /// Its script; empty without one, and without ExtendedStatus.
    pub script: String,
}

impl Process {
    fn of(worker: &PoolWorker, now_us: u64) -> Self {
        let is_at_work = worker.began_us > 0;
        Self {
            pid: worker.pid,
            state: char::from(worker.state),
            requests: worker.requests,
            cpu_us: worker.cpu_us,
            memory: worker.memory,
            runs_us: if is_at_work { now_us.saturating_sub(worker.began_us) } else { 0 },
            script: String::from_utf8_lossy(&worker.script).into_owned(),
        }
    }
}

/// The figures of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Application {
    /// Its name.
    pub name: String,
    /// Workers that exist or start, and those of them that work.
    pub workers: u64,
    /// See `workers`.
    pub busy: u64,
    /// The most workers that it may have.
    pub most_workers: u64,
    /// Whether memory is the reason for that number.
    pub is_memory_bound: bool,
    /// Requests that wait for a worker.
    pub queue: u64,
    /// Requests that were asked, that workers have ended, and that have failed.
    pub asked: u64,
    /// See `asked`.
    pub answered: u64,
    /// See `asked`.
    pub failed: u64,
    /// Workers that have died in a request or failed to start.
    pub deaths: u64,
    /// Memory of the workers' own in bytes.
    pub memory: u64,
    /// CPU time of a request in microseconds, on average over the last seconds.
    pub cpu_us: u64,
    /// Its time ready to run without a core.
    pub ready_us: u64,
    /// Its time waiting for anything else.
    pub wait_us: u64,
    /// The time in the queue, on average over all requests.
    pub line_us: u64,
    /// Usable cores.
    pub cores: u64,
    /// The workers, up to 512 of them, as the parent saw them last: a tenth of a second ago, or a
    /// second where the pool is idle.
    pub processes: Vec<Process>,
}

impl Application {
    /// Reads the line of a pool. Only an extended status names the scripts.
    #[must_use]
    pub fn read(name: &str, line: &ApplicationLine, cores: usize, is_extended: bool) -> Self {
        let answered = line.read(Figure::Requests);
        let now_us = clock::monotonic_us();
        let process = |worker: &PoolWorker| {
            let process = Process::of(worker, now_us);
            let script = if is_extended { process.script } else { String::new() };
            Process { script, ..process }
        };
        Self {
            name: name.to_owned(),
            workers: line.read(Figure::Supply),
            busy: line.read(Figure::Busy),
            most_workers: line.read(Figure::Most),
            is_memory_bound: line.read(Figure::IsMemoryBound) != 0,
            queue: line.read(Figure::Queue),
            asked: line.read(Figure::Asked),
            answered,
            failed: line.read(Figure::Failed),
            deaths: line.read(Figure::Deaths),
            memory: line.read(Figure::Memory),
            cpu_us: line.read(Figure::EachCpuUs),
            ready_us: line.read(Figure::EachReadyUs),
            wait_us: line.read(Figure::EachWaitUs),
            line_us: line.read(Figure::LineUs).checked_div(answered).unwrap_or(0),
            cores: cores as u64,
            processes: line.workers().iter().map(process).collect(),
        }
    }

    /// The resource that limits the pool. `None` if no request waits, or if the pool can still
    /// start workers that would help.
    pub(crate) fn bound(&self) -> Option<Bound> {
        let is_full = self.workers > 0 && self.busy >= self.workers && self.queue > 0;
        match is_full {
            true if self.has_enough_workers() => Some(Bound::Cores),
            true if self.workers < self.most_workers => None,
            true if self.is_memory_bound => Some(Bound::Memory),
            true => Some(Bound::Workers),
            false => None,
        }
    }

    /// What raises a bound, as a sentence.
    pub(crate) fn remedy(&self, bound: Bound) -> String {
        let useful = self.useful().unwrap_or_default().ceil();
        let rate = self.carried_by_cores().unwrap_or_default();
        match bound {
            Bound::Cores => "More cores, or pages that take less CPU time; more workers would not \
                             help."
                .to_owned(),
            Bound::Workers if useful > 0.0 => {
                format!("AppMaxWorkers: {useful} workers carry {rate:.0}/s{}.", self.condition())
            }
            Bound::Workers => "AppMaxWorkers.".to_owned(),
            Bound::Memory => "More memory, or pages that keep less of it (AppMemory).".to_owned(),
        }
    }

    /// How many workers keep all cores busy; `None` before anything was measured.
    fn useful(&self) -> Option<f64> {
        Some(self.carried_by_cores()? * (self.cpu_us + self.wait_us) as f64 / 1e6)
    }

    /// The condition under which more workers increase the throughput. The pool only sees that
    /// pages wait for a database, and not whether the database can answer more queries at a time.
    fn condition(&self) -> &'static str {
        match self.wait_us >= self.cpu_us.saturating_mul(MOSTLY) {
            true => ", if what pages wait for (a database, another server) answers more at a time",
            false => "",
        }
    }

    /// Whether more workers would not bring more, because those that there are can keep all cores
    /// busy, or nearly.
    fn has_enough_workers(&self) -> bool {
        self.useful().is_some_and(|useful| self.workers as f64 * WORTHWHILE >= useful)
    }

    /// Requests a second that a number of workers carries; `None` before anything was measured.
    pub(crate) fn carried_by(&self, workers: u64) -> Option<f64> {
        let whole_us = (self.cpu_us + self.wait_us) as f64;
        if whole_us < 1.0 {
            return None;
        }
        let by_workers = workers as f64 * 1e6 / whole_us;
        Some(by_workers.min(self.carried_by_cores().unwrap_or(f64::INFINITY)))
    }

    /// Requests a second that the cores carry, whatever the number of workers.
    fn carried_by_cores(&self) -> Option<f64> {
        (self.cpu_us > 0).then(|| self.cores as f64 * 1e6 / self.cpu_us as f64)
    }

    /// How it stands, in a sentence.
    pub(crate) fn sentence(&self) -> String {
        let Self { name, workers, busy, queue, most_workers, .. } = self;
        let mut text =
            format!("Pool {name}: {busy} of {workers} workers busy, {queue} requests wait");
        if *queue > 0
            && let Some(rate) = self.carried_by(*workers).filter(|rate| *rate > 0.0)
        {
            // Little's law. Writing to a string cannot fail.
            let _ = write!(text, " {:.0} ms", *queue as f64 / rate * 1e3);
        }
        let (Some(cores), Some(now)) = (self.carried_by_cores(), self.carried_by(*workers)) else {
            text.push_str("; no request was measured in the last seconds.");
            return text;
        };
        let ms = |us: u64| us as f64 / 1e3;
        let _ = write!(
            text,
            "; a page takes {:.1} ms of CPU and {:.1} ms of waiting, {:.1} ms of it for a core: ",
            ms(self.cpu_us),
            ms(self.wait_us + self.ready_us),
            ms(self.ready_us)
        );
        let useful = self.useful().unwrap_or_default();
        let _ = if self.has_enough_workers() {
            write!(text, "{} cores carry {cores:.0}/s, more workers do not help.", self.cores)
        } else if workers < most_workers {
            write!(text, "{workers} workers carry {now:.0}/s, and the pool may grow.")
        } else {
            let why = if self.is_memory_bound { "memory" } else { "AppMaxWorkers" };
            let most = useful.ceil();
            write!(
                text,
                "{why} bounds it to {workers} workers ({now:.0}/s); {most} carry {cores:.0}/s{}.",
                self.condition()
            )
        };
        text
    }

    /// The lines of `?auto`.
    pub(crate) fn write_auto(&self, page: &mut String) -> std::fmt::Result {
        let name = self.name.replace([':', '\n'], "_");
        for (key, value) in [
            ("Workers", self.workers),
            ("Busy", self.busy),
            ("MaxWorkers", self.most_workers),
            ("Queue", self.queue),
            ("Asked", self.asked),
            ("Answered", self.answered),
            ("Failed", self.failed),
            ("Deaths", self.deaths),
            ("Memory", self.memory),
            ("CpuUsPerReq", self.cpu_us),
            ("ReadyUsPerReq", self.ready_us),
            ("WaitUsPerReq", self.wait_us),
            ("LineUsPerReq", self.line_us),
        ] {
            writeln!(page, "App-{name}-{key}: {value}")?;
        }
        for (number, process) in self.processes.iter().enumerate() {
            let Process { pid, state, requests, cpu_us, memory, runs_us, script } = process;
            let script = printable(script).replace(':', "\\x3a");
            let text = format!("{pid} {state} {requests} {cpu_us} {memory} {runs_us} {script}");
            writeln!(page, "App-{name}-Worker-{number}: {}", text.trim_end())?;
        }
        Ok(())
    }

    /// The paragraph of the page for people, and the table of the workers where the server's own
    /// are listed in full. Names of pools come from the server, not from clients.
    pub(crate) fn write_html(&self, is_extended: bool, page: &mut String) -> std::fmt::Result {
        writeln!(page, "<p>{}</p>", self.sentence())?;
        if !is_extended || self.processes.is_empty() {
            return Ok(());
        }
        writeln!(
            page,
            "<table border=\"0\"><tr><th>PID</th><th>M</th><th>Acc</th><th>CPU</th><th>SS</th>\
             <th>MiB</th><th>Script</th></tr>"
        )?;
        for process in &self.processes {
            let Process { pid, state, requests, script, .. } = process;
            let seconds = |us: u64| us as f64 / 1e6;
            writeln!(
                page,
                "<tr><td>{pid}</td><td>{state}</td><td>{requests}</td><td>{:.2}</td><td>{:.1}</td>\
                 <td>{:.1}</td><td nowrap>{}</td></tr>",
                seconds(process.cpu_us),
                seconds(process.runs_us),
                process.memory as f64 / 1_048_576.0,
                escape(&printable(script)),
            )?;
        }
        writeln!(page, "</table>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    fn pool(workers: u64, most: u64, cpu_us: u64, wait_us: u64) -> Application {
        Application {
            name: "php".into(),
            workers,
            busy: workers,
            most_workers: most,
            queue: 37,
            cpu_us,
            wait_us,
            cores: 2,
            ..Application::default()
        }
    }

    #[test]
    fn a_pool_says_what_would_help_it() {
        let text = pool(8, 64, 14_000, 6_000).sentence();
        assert!(text.contains("8 of 8 workers busy, 37 requests wait 259 ms; "), "{text}");
        assert!(text.ends_with("2 cores carry 143/s, more workers do not help."), "{text}");
        let text = pool(8, 8, 1_000, 179_000).sentence();
        let want = "AppMaxWorkers bounds it to 8 workers (44/s); 360 carry 2000/s, if what pages \
                    wait for (a database, another server) answers more at a time.";
        assert!(text.ends_with(want), "{text}");
        let memory = Application { is_memory_bound: true, ..pool(8, 8, 1_000, 179_000) };
        assert!(memory.sentence().contains("memory bounds it to 8 workers"));
        // As many workers as cores, and pages that wait for a moment.
        let text = pool(2, 2, 20_000, 400).sentence();
        assert!(text.ends_with("2 cores carry 100/s, more workers do not help."), "{text}");
        let text = pool(2, 2, 20_000, 4_000).sentence();
        let want = "AppMaxWorkers bounds it to 2 workers (83/s); 3 carry 100/s.";
        assert!(text.ends_with(want), "{text}");
        let text = pool(8, 64, 1_000, 179_000).sentence();
        assert!(text.ends_with("8 workers carry 44/s, and the pool may grow."), "{text}");
        assert!(pool(1, 8, 0, 0).sentence().ends_with("in the last seconds."));
    }

    #[test]
    fn a_full_pool_is_the_limit_of_the_server_with_what_would_move_it() {
        let limit = |pool: Application| {
            let pool = Pool::default().limited_by(&[Application::default(), pool]);
            (pool.limit, pool.why, pool.remedy.into_owned(), pool.maximum_rps.map(f64::round))
        };
        let (name, why, remedy, most) = limit(pool(8, 8, 1_000, 179_000));
        assert_eq!((name, most), ("application", Some(44.0)));
        assert!(why.starts_with("application: Pool php: 8 of 8 workers busy"), "{why}");
        assert!(remedy.starts_with("AppMaxWorkers: 360 workers carry 2000/s, if "), "{remedy}");
        let (name, _, remedy, most) = limit(pool(8, 64, 14_000, 6_000));
        assert_eq!((name, most), ("application", Some(143.0)));
        assert!(remedy.starts_with("More cores"), "{remedy}");
        let (_, _, remedy, most) = limit(pool(2, 2, 20_000, 400));
        assert!(remedy.starts_with("More cores") && most == Some(98.0), "{remedy} {most:?}");
        let memory = Application { is_memory_bound: true, ..pool(8, 8, 1_000, 179_000) };
        assert!(limit(memory).2.starts_with("More memory"));
        // A pool that grows, and one in which nothing waits, limit nothing.
        let idle = Application { queue: 0, ..pool(8, 8, 1_000, 179_000) };
        for free in [pool(8, 64, 1_000, 179_000), idle] {
            assert_eq!(limit(free).0, "unknown");
        }
    }

    #[test]
    fn lines_for_machines_have_one_colon() {
        let mut page = String::new();
        pool(8, 64, 14_000, 6_000).write_auto(&mut page).unwrap();
        assert!(
            page.contains("App-php-Busy: 8\n") && page.contains("App-php-CpuUsPerReq: 14000\n")
        );
        assert!(page.lines().all(|line| line.matches(':').count() == 1), "{page}");
    }

    #[test]
    fn workers_are_listed_with_their_scripts_in_every_form() {
        let line = ApplicationLine::new().unwrap();
        let worker = |pid, state, began_us, script: &str| PoolWorker {
            pid,
            state,
            requests: 17,
            cpu_us: 2_500_000,
            memory: 3 << 20,
            began_us,
            script: script.into(),
        };
        let script = "/var/www/<b>:\n.php";
        let workers = [worker(41, b'W', 1, script), worker(42, b'_', 0, "")];
        line.publish_workers(workers.into_iter());
        let pool = Application::read("php", &line, 2, true);
        let plain = Application::read("php", &line, 2, false);
        let (busy, idle) = (&pool.processes[0], &pool.processes[1]);
        assert!(busy.runs_us > 0 && idle.runs_us == 0, "{busy:?} {idle:?}");
        let (mut auto, mut html, mut short) = (String::new(), String::new(), String::new());
        pool.write_auto(&mut auto).unwrap();
        pool.write_html(true, &mut html).unwrap();
        pool.write_html(false, &mut short).unwrap();
        assert!(auto.ends_with("App-php-Worker-1: 42 _ 17 2500000 3145728 0\n"), "{auto}");
        let line =
            auto.lines().find(|line| line.starts_with("App-php-Worker-0: 41 W 17 ")).unwrap();
        assert!(line.ends_with(" /var/www/<b>\\x3a\\n.php"), "{line}");
        assert!(auto.lines().all(|line| line.matches(':').count() == 1), "{auto}");
        assert!(html.contains("<tr><td>41</td><td>W</td><td>17</td><td>2.50</td><td>"), "{html}");
        assert!(html.contains("<td>3.0</td><td nowrap>/var/www/&lt;b&gt;:\\n.php</td>"), "{html}");
        assert!(!short.contains("<table"), "{short}");
        let mut auto = String::new();
        plain.write_auto(&mut auto).unwrap();
        assert!(auto.contains("App-php-Worker-0: 41 W 17 "), "{auto}");
        for text in [auto, serde_json::json!(plain).to_string(), plain.sentence()] {
            assert!(!text.contains("/var/www"), "{text}");
        }
        let json = serde_json::json!(pool);
        assert_eq!(
            (&json["processes"][0]["state"], &json["processes"][1]["pid"]),
            (&"W".into(), &42.into())
        );
    }
}
