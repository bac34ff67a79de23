//! What a server does, computed from two of its status pages: numbers a second, the states of its
//! slots, and what keeps it busy. The limit is only what its scoreboard shows.

use crate::status::{Connections, Page, Worker, is_busy};
use serde::Serialize;
use std::collections::BTreeMap;

/// The activity of a server between two pages. Numbers a second are none if the page has no totals
/// (ExtendedStatus Off) or the server was restarted in between.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Server {
    pub(super) url: String,
    pub(super) version: String,
    pub(super) mpm: String,
    pub(super) uptime_s: u64,
    /// The requests a second.
    pub(super) requests: Option<f64>,
    /// The bytes sent a second.
    pub(super) sent_bytes: Option<f64>,
    /// The mean time of the requests that ended between the pages.
    pub(super) latency_ms: Option<f64>,
    /// The age of the oldest request in progress, if the page lists the workers.
    pub(super) oldest_ms: Option<f64>,
    /// The number of busy slots, of idle slots, and of slots without a worker.
    pub(super) busy: usize,
    pub(super) idle: usize,
    pub(super) open: usize,
    /// The number of slots with each letter.
    pub(super) states: BTreeMap<char, usize>,
    pub(super) scoreboard: String,
    pub(super) processes: Option<u64>,
    pub(super) stopping: Option<u64>,
    pub(super) connections: Option<Connections>,
    /// What limits the server.
    pub(super) limit: String,
    /// Whether the page lists the workers, so that the lists below are meaningful.
    pub(super) tells_workers: bool,
    pub(super) vhosts: Vec<Share>,
    pub(super) clients: Vec<Share>,
    pub(super) urls: Vec<Share>,
}

/// A share of the work.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Share {
    pub(super) name: String,
    pub(super) percent: f64,
}

impl Server {
    /// What happened between two pages that are `seconds` apart.
    pub(super) fn between(url: &str, before: &Page, after: &Page, seconds: f64) -> Self {
        let (requests, sent_bytes, latency_ms) = rates(before, after, seconds);
        let mut states = BTreeMap::new();
        for letter in after.letters.chars() {
            *states.entry(letter).or_default() += 1;
        }
        let busy = after.slots(is_busy);
        let count = |letter| states.get(&letter).copied().unwrap_or_default();
        let (idle, open) = (count('_'), count('.'));
        let started = after.workers.iter().filter(|worker| worker.is_busy && worker.start_us > 0);
        let oldest_us = started.map(|worker| after.now_us.saturating_sub(worker.start_us)).max();
        Self {
            url: url.to_owned(),
            version: after.version.clone(),
            mpm: after.mpm.clone(),
            uptime_s: after.uptime_s,
            requests,
            sent_bytes,
            latency_ms,
            oldest_ms: oldest_us.map(|us| us as f64 / 1e3),
            busy,
            idle,
            open,
            limit: after.limit.clone().unwrap_or_else(|| limit(busy, idle, open).to_owned()),
            states,
            scoreboard: after.letters.clone(),
            processes: after.processes,
            stopping: after.stopping,
            connections: after.connections,
            tells_workers: !after.workers.is_empty(),
            ..Self::default()
        }
    }
}

fn rates(before: &Page, after: &Page, seconds: f64) -> (Option<f64>, Option<f64>, Option<f64>) {
    let (Some(then), Some(now)) = (before.totals, after.totals) else { return (None, None, None) };
    let Some(requests) = now.0.checked_sub(then.0) else { return (None, None, None) };
    let rate = |count: u64| count as f64 / seconds.max(1e-6);
    let took_ms = now.2.saturating_sub(then.2) as f64;
    let latency = (requests > 0).then(|| took_ms / requests as f64);
    (Some(rate(requests)), Some(rate(now.1.saturating_sub(then.1))), latency)
}

/// The limit as far as a scoreboard shows it, which is only about workers. The machine's side shows
/// cores and disks.
fn limit(busy: usize, idle: usize, open: usize) -> &'static str {
    match (busy, idle, open) {
        (0, 0, _) => "nothing serves",
        (_, 0, 0) => "workers: every slot is at work (MaxRequestWorkers)",
        (_, 0, _) => "workers: all there are work, more may be started",
        _ => "none that the scoreboard tells: workers are idle",
    }
}

/// What kept the workers busy in the last intervals. The requests of a worker since the previous
/// page are attributed to its current or last request, so this is an estimate: a page shows one
/// request of a worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    accesses: BTreeMap<(i32, usize), u64>,
    vhosts: Weights,
    clients: Weights,
    urls: Weights,
}

/// The share of an interval's weight that is left after the next one.
const FADING: f64 = 0.8;
/// The most names that are kept. Clients choose them.
const MOST_NAMES: usize = 2000;
const SHOWN: usize = 50;

#[derive(Clone, Debug, Default)]
struct Weights(BTreeMap<String, f64>);

impl Tally {
    /// Adds a page. Requests for `own`, the page itself, are left out.
    pub(super) fn take(&mut self, page: &Page, own: &str) {
        for weights in [&mut self.vhosts, &mut self.clients, &mut self.urls] {
            weights.fade();
        }
        let is_first = self.accesses.is_empty();
        let before = std::mem::take(&mut self.accesses);
        for worker in &page.workers {
            let then = before.get(&worker.id).copied();
            self.accesses.insert(worker.id, worker.accesses);
            if worker.url == own || worker.url.is_empty() {
                continue;
            }
            // On the first page, the counts may be of any age.
            let then = then.unwrap_or(if is_first { worker.accesses } else { 0 });
            let weight = worker.accesses.saturating_sub(then) + u64::from(worker.is_busy);
            self.add(worker, weight as f64);
        }
    }

    fn add(&mut self, worker: &Worker, weight: f64) {
        if weight > 0.0 {
            self.vhosts.add(&worker.vhost, weight);
            self.clients.add(&worker.client, weight);
            self.urls.add(&worker.url, weight);
        }
    }

    /// Puts the busiest into the figures of the server.
    pub(super) fn fill(&self, server: &mut Server) {
        server.vhosts = self.vhosts.shares();
        server.clients = self.clients.shares();
        server.urls = self.urls.shares();
    }
}

impl Weights {
    fn fade(&mut self) {
        self.0.retain(|_, weight| {
            *weight *= FADING;
            *weight > 0.01
        });
    }

    fn add(&mut self, name: &str, weight: f64) {
        if let Some(sum) = self.0.get_mut(name) {
            *sum += weight;
        } else if self.0.len() < MOST_NAMES {
            self.0.insert(name.to_owned(), weight);
        }
    }

    fn shares(&self) -> Vec<Share> {
        let sum: f64 = self.0.values().sum();
        let share = |(name, weight): (&String, &f64)| Share {
            name: name.clone(),
            percent: weight * 100.0 / sum.max(1e-9),
        };
        let mut shares: Vec<Share> = self.0.iter().map(share).collect();
        shares.sort_by(|a, b| b.percent.total_cmp(&a.percent));
        shares.truncate(SHOWN);
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(accesses: u64, letters: &str) -> Page {
        let totals = Some((accesses, accesses * 1000, accesses * 2));
        Page { totals, letters: letters.to_owned(), ..Page::default() }
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let server = Server::between("u", &page(100, "__"), &page(300, "W_.."), 2.0);
        assert_eq!((server.requests, server.sent_bytes), (Some(100.0), Some(100_000.0)));
        assert_eq!((server.latency_ms, server.busy, server.idle), (Some(2.0), 1, 1));
        assert_eq!(server.states, [('W', 1), ('_', 1), ('.', 2)].into());
        // After a restart there is nothing to compare with.
        assert_eq!(Server::between("u", &page(9, "_"), &page(3, "_"), 1.0).requests, None);
        assert_eq!(Server::between("u", &page(9, "_"), &page(9, "_"), 1.0).latency_ms, None);
    }

    #[test]
    fn limits_are_those_of_the_scoreboard() {
        let limit =
            |letters: &str| Server::between("u", &page(0, "_"), &page(0, letters), 1.0).limit;
        assert!(limit("WWRK").contains("MaxRequestWorkers"));
        assert!(limit("WWW...").contains("more may be started"));
        assert!(limit("W_").starts_with("none"));
        assert_eq!(limit("...."), "nothing serves");
        let told = Page { limit: Some("cpu: all".into()), ..page(0, "WWRK") };
        assert_eq!(Server::between("u", &page(0, "_"), &told, 1.0).limit, "cpu: all");
    }

    #[test]
    fn the_busiest_come_first_and_the_page_itself_not_at_all() {
        let worker = |place, accesses, url: &str| Worker {
            id: (1, place),
            accesses,
            client: format!("c{place}"),
            vhost: "v".into(),
            url: url.into(),
            ..Worker::default()
        };
        let page = |counts: [u64; 3]| {
            let [a, b, own] = counts;
            let workers = vec![worker(0, a, "/a"), worker(1, b, "/b"), worker(2, own, "/status")];
            Page { workers, ..Page::default() }
        };
        let mut tally = Tally::default();
        tally.take(&page([1000, 5, 3]), "/status");
        tally.take(&page([1010, 35, 99]), "/status");
        let mut server = Server::default();
        tally.fill(&mut server);
        let urls: Vec<(&str, f64)> =
            server.urls.iter().map(|share| (share.name.as_str(), share.percent)).collect();
        assert_eq!(urls, [("/b", 75.0), ("/a", 25.0)]);
        assert_eq!((server.clients[0].name.as_str(), server.vhosts[0].percent), ("c1", 100.0));
        // A worker whose child was replaced starts anew, and what is quiet fades.
        for _ in 0..40 {
            tally.take(&page([1010, 35, 99]), "/status");
        }
        tally.fill(&mut server);
        assert!(server.urls.is_empty());
    }
}
