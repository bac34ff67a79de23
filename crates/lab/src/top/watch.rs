//! The watch: the machine's files, the server's processes and its status page are read at a
//! moment, and of two moments a sample goes out. What is not there at the beginning is an error;
//! what goes away later is told in the samples.

use super::family::{Family, Processes, eldest, listeners, members, socket_inode};
use super::machine::{Counters, Machine, Texts};
use super::options::Options;
use super::sample::Sample;
use super::server::{Server, Tally};
use super::status::Page;
use crate::load::{Scheme, Target, Trust, Wishes, fetch};
use evenkeel_monitor::process::ProcessStat;
use evenkeel_sys::clock;
use evenkeel_sys::connect::Remote;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Watches a machine and, where it is told of one, a server.
pub(super) struct Watch {
    pid: Option<i32>,
    status: Option<Status>,
    /// Whether the server's processes are looked for here.
    seeks: bool,
    before: Moment,
    tally: Tally,
}

/// What was read at a moment.
#[derive(Default)]
struct Moment {
    at_ns: u64,
    counters: Counters,
    family: Option<Family>,
    page: Option<(u64, Page)>,
    problems: Vec<String>,
}

impl Watch {
    /// Begins; the first interval begins now.
    pub(super) fn begin(options: &Options) -> Result<Self, String> {
        let status = options.status.as_deref().map(|url| Status::open(url, options)).transpose()?;
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

    /// What has happened since the last call; the next interval begins.
    pub(super) fn sample(&mut self) -> Result<Sample, String> {
        let now = self.look()?;
        let before = std::mem::replace(&mut self.before, now);
        let now = &self.before;
        let seconds = |from_ns: u64, to_ns: u64| to_ns.saturating_sub(from_ns) as f64 / 1e9;
        let interval_s = seconds(before.at_ns, now.at_ns);
        let processes = match (&before.family, &now.family) {
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
        let all = all_processes();
        let gone = self.pid.is_none_or(|pid| !all.iter().any(|stat| stat.pid == pid));
        if self.seeks && gone {
            let page = moment.page.as_ref().map(|(_, page)| page);
            let port = self.status.as_ref().map(|status| status.target.port);
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
        let family = found.into_iter().map(|stat| (stat.clone(), threads(stat.pid)));
        moment.family = Some(Family(family.collect()));
        Ok(moment)
    }
}

/// A server's status page.
struct Status {
    target: Target,
    remotes: Vec<Remote>,
    trust: Option<Trust>,
    most: Duration,
}

/// A page that is slower than this is as good as none; a live screen waits for it.
const MOST_WAIT: Duration = Duration::from_secs(5);
/// Where mod_status is usually put.
const USUAL_PATH: &str = "/server-status";

impl Status {
    /// Finds out in which form the page can be had: ours, or the one of all Apaches.
    fn open(url: &str, options: &Options) -> Result<Self, String> {
        let mut target = Target::parse(url)?;
        let remotes = target.resolve(None)?;
        let wishes = Wishes { verify: !options.insecure, ..Wishes::default() };
        let trust = match target.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(Trust::new(&target.host, &wishes)?),
        };
        if target.path == "/" {
            USUAL_PATH.clone_into(&mut target.path);
        }
        let (path, query) = target.path.split_once('?').unwrap_or((&target.path, ""));
        let given = query.split('&').any(|word| word == "json" || word.contains("auto"));
        let (json, auto) = (format!("{path}?json"), format!("{path}?auto"));
        let mut status = Self { target, remotes, trust, most: MOST_WAIT };
        if !given {
            status.target.path = json;
            if !status.body()?.trim_ascii_start().starts_with(b"{") {
                status.target.path = auto;
            }
        }
        Ok(status)
    }

    fn body(&self) -> Result<Vec<u8>, String> {
        let fetched = fetch(&self.target, &self.remotes, self.trust.as_ref(), self.most)?;
        let hint = match fetched.status {
            200 => return Ok(fetched.body),
            401 | 403 => "; the server shows its page to others (Require)",
            404 => "; no status page there (SetHandler server-status)",
            _ => "",
        };
        Err(format!("{}: status {}{hint}", self.target, fetched.status))
    }

    fn page(&self) -> Result<Page, String> {
        Page::parse(&self.body()?).map_err(|problem| format!("{}: {problem}", self.target))
    }

    fn is_here(&self) -> bool {
        Target::is_loopback(&self.remotes)
    }

    fn url(&self) -> String {
        self.target.to_string()
    }

    fn path(&self) -> &str {
        self.target.path.split('?').next().unwrap_or_default()
    }
}

/// The first process of the server whose page this is: of those that the page names, or of those
/// that listen on its port.
fn first_process(all: &[ProcessStat], page: &Page, port: u16) -> Option<i32> {
    let named: BTreeSet<i32> =
        page.pids.iter().copied().filter(|pid| all.iter().any(|stat| stat.pid == *pid)).collect();
    let pids = if named.is_empty() { listening(all, port) } else { named };
    let mut first = all.iter().find(|stat| Some(stat.pid) == eldest(all, &pids))?;
    // A page names children; their parent has their name.
    while let Some(parent) =
        all.iter().find(|stat| stat.pid == first.parent && stat.name == first.name)
    {
        first = parent;
    }
    Some(first.pid)
}

/// The processes that hold a socket listening on `port`, but for the system's first, which may
/// hold it for others.
fn listening(all: &[ProcessStat], port: u16) -> BTreeSet<i32> {
    let inodes: BTreeSet<u64> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .flat_map(|path| listeners(&fs::read_to_string(path).unwrap_or_default(), port))
        .collect();
    let holds = |pid: i32| {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        let mut sockets = links.filter_map(|link| socket_inode(link.to_str()?));
        sockets.any(|inode| inodes.contains(&inode))
    };
    let pids = all.iter().map(|stat| stat.pid);
    pids.filter(|pid| *pid > 1 && !inodes.is_empty() && holds(*pid)).collect()
}

/// The texts of the machine. Only the first is everywhere: in a container others may be missing.
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

/// Every process that can be seen. One that ends meanwhile is left out.
fn all_processes() -> Vec<ProcessStat> {
    stats(Path::new("/proc")).collect()
}

/// The states of a process's threads.
fn threads(pid: i32) -> Vec<char> {
    stats(Path::new(&format!("/proc/{pid}/task"))).map(|stat| stat.state).collect()
}

/// What the `stat` files of a folder's numbered folders say.
fn stats(folder: &Path) -> impl Iterator<Item = ProcessStat> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let is_number = entry.file_name().to_str()?.bytes().all(|byte| byte.is_ascii_digit());
        let text = is_number.then(|| fs::read_to_string(entry.path().join("stat")).ok())??;
        ProcessStat::parse(&text)
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
        let all = all_processes();
        let mine = all.iter().find(|stat| stat.pid == own).unwrap();
        assert!(mine.threads >= 1 && !threads(own).is_empty());
    }

    #[test]
    fn who_listens_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = std::process::id().cast_signed();
        assert_eq!(listening(&all_processes(), port), [own].into());
        let all = all_processes();
        assert!(first_process(&all, &Page::default(), port).is_some());
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
