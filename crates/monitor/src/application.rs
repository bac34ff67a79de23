//! A pool of application processes on the status page: its figures, and a sentence that says
//! whether its requests use CPU time or wait, and what more workers would bring.

use evenkeel_scoreboard::{ApplicationLine, Figure};
use serde::Serialize;
use std::fmt::Write;

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
}

impl Application {
    /// Reads the line of a pool.
    #[must_use]
    pub fn read(name: &str, line: &ApplicationLine, cores: usize) -> Self {
        let answered = line.read(Figure::Requests);
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
        }
    }

    /// The resource that limits the pool. `None` if no request waits, or if the pool can still
    /// start workers that would help.
    pub(crate) fn bound(&self) -> Option<Bound> {
        let is_full = self.workers > 0 && self.busy >= self.workers && self.queue > 0;
        let is_useless = self.useful().is_some_and(|useful| self.workers as f64 >= useful);
        match is_full {
            true if is_useless => Some(Bound::Cores),
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
                format!("AppMaxWorkers: {useful} workers carry {rate:.0}/s.")
            }
            Bound::Workers => "AppMaxWorkers.".to_owned(),
            Bound::Memory => "More memory, or pages that keep less of it (AppMemory).".to_owned(),
        }
    }

    /// How many workers keep all cores busy; `None` before anything was measured.
    fn useful(&self) -> Option<f64> {
        Some(self.carried_by_cores()? * (self.cpu_us + self.wait_us) as f64 / 1e6)
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
        let _ = if *workers as f64 >= useful {
            write!(text, "{} cores carry {cores:.0}/s, more workers do not help.", self.cores)
        } else if workers < most_workers {
            write!(text, "{workers} workers carry {now:.0}/s, and the pool may grow.")
        } else {
            let why = if self.is_memory_bound { "memory" } else { "AppMaxWorkers" };
            let most = useful.ceil();
            write!(
                text,
                "{why} bounds it to {workers} workers ({now:.0}/s); {most} carry {cores:.0}/s."
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
        Ok(())
    }

    /// The paragraph of the page for people. Names come from the server, not from clients.
    pub(crate) fn write_html(&self, page: &mut String) -> std::fmt::Result {
        writeln!(page, "<p>{}</p>", self.sentence())
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
        let want = "AppMaxWorkers bounds it to 8 workers (44/s); 360 carry 2000/s.";
        assert!(text.ends_with(want), "{text}");
        let memory = Application { is_memory_bound: true, ..pool(8, 8, 1_000, 179_000) };
        assert!(memory.sentence().contains("memory bounds it to 8 workers"));
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
        assert_eq!(remedy, "AppMaxWorkers: 360 workers carry 2000/s.");
        let (name, _, remedy, most) = limit(pool(8, 64, 14_000, 6_000));
        assert_eq!((name, most), ("application", Some(143.0)));
        assert!(remedy.starts_with("More cores"), "{remedy}");
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
}
