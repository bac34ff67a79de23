//! Parses a server's status page, that of Evenkeel (`?json`) or of any Apache (`?auto`), into
//! numbers. It also contains what clients chose, so control characters are removed here, before
//! anything reaches a terminal.

use serde::Deserialize;
use std::collections::BTreeSet;

/// The content of a page. What the page does not contain is none or empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Page {
    pub(crate) version: String,
    pub(crate) mpm: String,
    pub(crate) uptime_s: u64,
    /// Requests, bytes sent and milliseconds of work since the start (ExtendedStatus).
    pub(crate) totals: Option<(u64, u64, u64)>,
    pub(crate) processes: Option<u64>,
    pub(crate) stopping: Option<u64>,
    pub(crate) connections: Option<Connections>,
    /// A letter for each slot.
    pub(crate) letters: String,
    /// The workers, if the page lists them.
    pub(crate) workers: Vec<Worker>,
    pub(crate) pids: BTreeSet<i32>,
    pub(crate) now_us: u64,
    /// What limits the server and why, if the page says so.
    pub(crate) limit: Option<String>,
}

/// The connections of an asynchronous server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
pub(crate) struct Connections {
    pub(crate) total: u64,
    pub(crate) waiting: u64,
    pub(crate) writing: u64,
    pub(crate) keep_alive: u64,
    pub(crate) closing: u64,
}

/// A worker and its current or last request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Worker {
    /// The process and the place in it, which identify the same worker on the next page.
    pub(crate) id: (i32, usize),
    pub(crate) is_busy: bool,
    pub(crate) accesses: u64,
    pub(crate) start_us: u64,
    pub(crate) client: String,
    pub(crate) vhost: String,
    pub(crate) url: String,
}

/// The letters of a scoreboard, busiest states first, with their meanings.
pub(crate) const LETTERS: [(char, &str); 11] = [
    ('W', "writing"),
    ('R', "reading"),
    ('D', "looking up a name"),
    ('L', "logging"),
    ('G', "finishing"),
    ('C', "closing"),
    ('K', "keep-alive"),
    ('S', "starting"),
    ('I', "ending"),
    ('_', "idle"),
    ('.', "open"),
];

#[derive(Deserialize)]
struct Json {
    processes: u64,
    stopping: u64,
    connections: Connections,
    scoreboard: String,
    uptime_s: u64,
    snapshot: JsonSnapshot,
    pool: Option<JsonPool>,
}

#[derive(Deserialize)]
struct JsonPool {
    why: String,
}

#[derive(Deserialize)]
struct JsonSnapshot {
    facts: JsonFacts,
    now_us: u64,
    accesses: u64,
    bytes: u64,
    duration_ms: u64,
    children: Vec<JsonChild>,
}

#[derive(Deserialize)]
struct JsonFacts {
    version: String,
    mpm: String,
    asynchronous: bool,
    extended: bool,
}

#[derive(Deserialize)]
struct JsonChild {
    pid: i32,
    workers: Vec<JsonWorker>,
}

#[derive(Deserialize)]
struct JsonWorker {
    state: char,
    /// On its connection, of its child, of its slot.
    accesses: [u64; 3],
    start_us: u64,
    client: String,
    vhost: String,
    request: String,
}

impl Page {
    /// Parses either form.
    ///
    /// # Errors
    ///
    /// What the page lacks.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(body);
        if text.trim_start().starts_with('{') {
            return Self::parse_json(&text);
        }
        Self::parse_auto(&text).ok_or_else(|| "not a status page: no Scoreboard on it".to_owned())
    }

    fn parse_json(text: &str) -> Result<Self, String> {
        let page: Json = serde_json::from_str(text)
            .map_err(|error| format!("not a status page of Evenkeel: {error}"))?;
        let Json { snapshot, pool, .. } = page;
        let JsonFacts { version, mpm, asynchronous, extended } = snapshot.facts;
        let pids = snapshot.children.iter().map(|child| child.pid).collect();
        let workers = snapshot.children.into_iter().flat_map(|child| {
            let numbered = child.workers.into_iter().enumerate();
            numbered.map(move |(place, worker)| worker.told(child.pid, place))
        });
        Ok(Self {
            version: printable(&version),
            mpm: printable(&mpm),
            uptime_s: page.uptime_s,
            totals: extended.then_some((snapshot.accesses, snapshot.bytes, snapshot.duration_ms)),
            processes: Some(page.processes),
            stopping: Some(page.stopping),
            connections: asynchronous.then_some(page.connections),
            letters: printable(&page.scoreboard),
            workers: workers.collect(),
            pids,
            now_us: snapshot.now_us,
            limit: pool.map(|pool| printable(&pool.why)),
        })
    }

    fn parse_auto(text: &str) -> Option<Self> {
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(name, _)| *name == key).map(|(_, value)| value.trim())
        };
        let number = |key: &str| value(key).and_then(|text| text.parse::<u64>().ok());
        let connections = number("ConnsTotal").map(|total| Connections {
            total,
            waiting: number("ConnsAsyncWaitIO").unwrap_or_default(),
            writing: number("ConnsAsyncWriting").unwrap_or_default(),
            keep_alive: number("ConnsAsyncKeepAlive").unwrap_or_default(),
            closing: number("ConnsAsyncClosing").unwrap_or_default(),
        });
        let totals = number("Total Accesses").map(|accesses| {
            let kilobytes = number("Total kBytes").unwrap_or_default();
            let duration_ms = number("Total Duration").unwrap_or_default();
            (accesses, kilobytes.saturating_mul(1024), duration_ms)
        });
        Some(Self {
            version: printable(value("ServerVersion").unwrap_or_default()),
            mpm: printable(value("ServerMPM").unwrap_or_default()),
            uptime_s: number("ServerUptimeSeconds").or_else(|| number("Uptime")).unwrap_or(0),
            totals,
            processes: number("Processes"),
            stopping: number("Stopping"),
            connections,
            letters: printable(value("Scoreboard")?),
            ..Self::default()
        })
    }

    /// The number of slots whose letter passes.
    pub(crate) fn slots(&self, passes: impl Fn(char) -> bool) -> usize {
        self.letters.chars().filter(|letter| passes(*letter)).count()
    }
}

/// Whether a slot with this letter is busy: all but open, ready, starting and ending ones
/// (mod_status.c: status_handler).
pub(crate) fn is_busy(letter: char) -> bool {
    matches!(letter, 'R' | 'W' | 'K' | 'L' | 'D' | 'C' | 'G')
}

impl JsonWorker {
    fn told(self, pid: i32, place: usize) -> Worker {
        let [_, accesses, _] = self.accesses;
        // Of `GET /a?b HTTP/1.1`, the target without its query, because sums are by path.
        let target = self.request.split(' ').nth(1).unwrap_or(&self.request);
        let path = target.split('?').next().unwrap_or_default();
        Worker {
            id: (pid, place),
            is_busy: is_busy(self.state),
            accesses,
            start_us: self.start_us,
            client: printable(&self.client),
            vhost: printable(&self.vhost),
            url: printable(path),
        }
    }
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apaches_page_is_read() {
        let page = Page::parse(include_bytes!("../top/samples/apache.auto")).unwrap();
        assert_eq!((page.version.as_str(), page.mpm.as_str()), ("Apache/2.4.71 (Debian)", "event"));
        assert_eq!((page.uptime_s, page.totals), (103, Some((41_877, 12_345 * 1024, 6_021))));
        assert_eq!((page.processes, page.stopping), (Some(3), Some(0)));
        let told = Connections { total: 9, keep_alive: 7, waiting: 0, writing: 1, closing: 1 };
        assert_eq!(page.connections, Some(told));
        assert_eq!((page.slots(is_busy), page.slots(|it| it == '_')), (2, 73));
        assert_eq!(page.letters.len(), 400);
        assert!(page.workers.is_empty() && page.pids.is_empty());
    }

    #[test]
    fn a_page_without_extended_status_has_no_totals() {
        let page =
            Page::parse(b"ServerVersion: Apache\nBusyWorkers: 1\nScoreboard: W_.\n").unwrap();
        assert_eq!((page.totals, page.connections, page.uptime_s), (None, None, 0));
        assert_eq!(page.letters, "W_.");
    }

    #[test]
    fn our_page_is_read_and_cleaned() {
        let page = Page::parse(include_bytes!("../top/samples/evenkeel.json")).unwrap();
        assert_eq!(
            (page.version.as_str(), page.mpm.as_str()),
            ("Apache/2.4.71 (Evenkeel)", "event")
        );
        assert_eq!(page.pids, [4242, 4243].into());
        assert_eq!(page.totals, Some((1300, 10_240_000, 1000)));
        let first = &page.workers[0];
        assert_eq!((first.id, first.is_busy, first.accesses), ((4242, 0), true, 3));
        assert_eq!((first.vhost.as_str(), first.client.as_str()), ("example.org:80", "192.0.2.1"));
        // An escape sequence from a client does not reach the terminal.
        assert_eq!(first.url, "/a?[31mred");
        assert_eq!(page.letters, "W_R_....");
        assert_eq!(page.limit, None);
        let text = String::from_utf8_lossy(include_bytes!("../top/samples/evenkeel.json"));
        let told = text.trim_end().strip_suffix('}').unwrap();
        let pool = format!("{told},\"pool\":{{\"why\":\"cpu: all\\u001b of it.\"}}}}");
        let page = Page::parse(pool.as_bytes()).unwrap();
        assert_eq!(page.limit.as_deref(), Some("cpu: all? of it."));
    }

    #[test]
    fn other_pages_are_refused() {
        let told = |body: &[u8]| Page::parse(body).unwrap_err();
        assert_eq!(told(b"<html>"), "not a status page: no Scoreboard on it");
        assert!(told(b"{\"a\":1}").starts_with("not a status page of Evenkeel: missing field"));
    }
}
