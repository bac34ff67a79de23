//! Samples the machine's files, the server's processes and its status page, and computes a sample
//! from two readings. What is missing at the beginning is an error; what disappears later is
//! reported in the samples.

use super::machine::{Counters, Machine, Texts};
use super::options::Options;
use super::processes::{Members, Processes};
use super::sample::Sample;
use super::server::{Server, Tally};
use crate::family::{eldest, listening, members, processes, threads};
use crate::status::{Page, Status};
use evenkeel_monitor::process::ProcessStat;
use evenkeel_sys::clock;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// How long a page may take. A live screen waits for it.
const MOST_WAIT: Duration = Duration::from_secs(5);

/// Watches a machine and, if the options name one, a server.
pub(super) struct Watch {
    pid: Option<i32>,
    status: Option<Status>,
    /// Whether to look for the server's processes on this machine.
    seeks: bool,
    before: Moment,
    tally: Tally,
}

/// What was read at a moment.
#[derive(Default)]
struct Moment {
    at_ns: u64,
    counters: Counters,
    members: Option<Members>,
    page: Option<(u64, Page)>,
    problems: Vec<String>,
}

impl Watch {
    /// Begins to watch. The first interval begins now.
    pub(super) fn begin(options: &Options) -> Result<Self, String> {
        let open = |url: &str| Status::open(url, !options.insecure, MOST_WAIT)?.in_best_form();
        let status = options.status.as_deref().map(open).transpose()?;
        let seeks = options.pid.is_none() && status.as_ref().is_some_and(Status::is_here);
        let mut watch = Self {
            pid: options.pid,
            status,
            seeks,
            before: Moment::default(),
            tally: Tally::default(),
        };
        watch.before = watch.look()?;
        if let Some(problem) = watch.before.problems.first().filter(|_| !watch.seeks) {
            return Err(problem.clone());
        }
        if watch.status.is_some() && watch.before.page.is_none() {
            return Err(watch.before.problems.join("; "));
        }
        if let (Some((_, page)), Some(status)) = (&watch.before.page, &watch.status) {
            watch.tally.take(page, status.path());
        }
        Ok(watch)
    }

    /// What has happened since the last call. The next interval begins.
    pub(super) fn sample(&mut self) -> Result<Sample, String> {
        let now = self.look()?;
        let before = std::mem::replace(&mut self.before, now);
        let now = &self.before;
        let seconds = |from_ns: u64, to_ns: u64| to_ns.saturating_sub(from_ns) as f64 / 1e9;
        let interval_s = seconds(before.at_ns, now.at_ns);
        let processes = match (&before.members, &now.members) {
            (Some(before), Some(after)) => Processes::between(before, after, interval_s),
            _ => None,
        };
        let server = match (&self.status, &before.page, &now.page) {
            (Some(status), Some((then_ns, before)), Some((now_ns, after))) => {
                let seconds = seconds(*then_ns, *now_ns);
                let mut server = Server::between(&status.url(), before, after, seconds);
                self.tally.take(after, status.path());
                self.tally.fill(&mut server);
                Some(server)
            }
            _ => None,
        };
        Ok(Sample {
            time_s: clock::realtime_us() as f64 / 1e6,
            interval_s,
            machine: Machine::between(&before.counters, &now.counters, interval_s),
            processes,
            server,
            problems: now.problems.clone(),
        })
    }

    fn look(&mut self) -> Result<Moment, String> {
        let at_ns = clock::monotonic_ns();
        let counters = Counters::parse(&texts()?);
        let mut moment = Moment { at_ns, counters, ..Moment::default() };
        if let Some(status) = &self.status {
            match status.page() {
                Ok(page) => moment.page = Some((clock::monotonic_ns(), page)),
                Err(problem) => moment.problems.push(problem),
            }
        }
        if self.pid.is_none() && !self.seeks {
            return Ok(moment);
        }
        let all = processes();
        let gone = self.pid.is_none_or(|pid| !all.iter().any(|stat| stat.pid == pid));
        if self.seeks && gone {
            let page = moment.page.as_ref().map(|(_, page)| page);
            let port = self.status.as_ref().map(Status::port);
            self.pid = page.zip(port).and_then(|(page, port)| first_process(&all, page, port));
        }
        let found = self.pid.map(|pid| members(&all, pid)).unwrap_or_default();
        if found.is_empty() {
            moment.problems.push(match self.pid {
                Some(pid) if !self.seeks => format!("{pid}: no such process"),
                _ => "the server's processes are not found; name the first with --pid".to_owned(),
            });
            return Ok(moment);
        }
        let states = |pid| threads(pid).map(|stat| stat.state).collect::<Vec<char>>();
        let each = found.into_iter().map(|stat| (stat.clone(), states(stat.pid)));
        moment.members = Some(Members(each.collect()));
        Ok(moment)
    }
}

/// The first process of the server with this page: among those that the page names, or among those
/// that listen on its port.
fn first_process(all: &[ProcessStat], page: &Page, port: u16) -> Option<i32> {
    let named: BTreeSet<i32> =
        page.pids.iter().copied().filter(|pid| all.iter().any(|stat| stat.pid == *pid)).collect();
    let pids = if named.is_empty() { listening(all, port) } else { named };
    let mut first = all.iter().find(|stat| Some(stat.pid) == eldest(all, &pids))?;
    // A page names children, and their parent has the same name.
    while let Some(parent) =
        all.iter().find(|stat| stat.pid == first.parent && stat.name == first.name)
    {
        first = parent;
    }
    Some(first.pid)
}

/// The texts of the machine. Only the first exists everywhere; in a container others may be
/// missing.
fn texts() -> Result<Texts, String> {
    let stat = "/proc/stat";
    let optional = |path| fs::read_to_string(path).unwrap_or_default();
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let blocks = blocks.filter_map(|entry| entry.file_name().into_string().ok());
    Ok(Texts {
        stat: fs::read_to_string(stat).map_err(|error| format!("{stat}: {error}"))?,
        diskstats: optional("/proc/diskstats"),
        block: blocks.collect::<Vec<_>>().join("\n"),
        net_dev: optional("/proc/net/dev"),
        vmstat: optional("/proc/vmstat"),
        loadavg: optional("/proc/loadavg"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_read() {
        let counters = Counters::parse(&texts().unwrap());
        assert_ne!(counters, Counters::default());
        let own = std::process::id().cast_signed();
        let all = processes();
        let mine = all.iter().find(|stat| stat.pid == own).unwrap();
        assert!(mine.threads >= 1 && threads(own).count() >= 1);
    }

    #[test]
    fn who_listens_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(first_process(&processes(), &Page::default(), port).is_some());
    }

    #[test]
    fn a_page_names_children_and_their_parent_is_the_first() {
        let stat = |pid, parent, name: &str| ProcessStat {
            pid,
            parent,
            name: name.into(),
            ..ProcessStat::default()
        };
        let all = [stat(1, 0, "init"), stat(20, 1, "httpd"), stat(21, 20, "httpd")];
        let page = Page { pids: [21, 99].into(), ..Page::default() };
        assert_eq!(first_process(&all, &page, 0), Some(20));
    }
}
