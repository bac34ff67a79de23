//! Watches a server's pool during a load: processes and the accept queue through /proc, workers
//! through the status page, and computes figures from these. The page itself needs a worker: if
//! none is free it comes late, and its time shows that.

use crate::family::{Family, crowd};
use crate::peers::Server;
use crate::results::Sampling;
use crate::status::{Status, is_busy};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval of samples of processes and the queue.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The interval of requests for the page.
const PAGE_EVERY: Duration = Duration::from_millis(250);
/// How long a page may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// A queue that stays empty for this long is considered settled.
const SETTLED_S: f64 = 1.0;
/// A child that is first seen within this time existed before the load.
const BEFORE_S: f64 = 0.05;

/// A watch that continues until [`PoolWatch::end`].
pub struct PoolWatch {
    stops: [Sender<()>; 2],
    looking: JoinHandle<Looks>,
    paging: JoinHandle<Pages>,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct PoolSeen {
    /// The samples of /proc.
    pub looks: Looks,
    /// The status pages.
    pub pages: Pages,
}

/// The samples of processes and the queue.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    /// In the order of time.
    pub rows: Vec<Look>,
    /// The times of the first and last sample of each child, by process id.
    pub lives: BTreeMap<i32, (f64, f64)>,
}

/// One sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// Its time, in seconds.
    pub at_s: f64,
    /// The number of children.
    pub children: usize,
    /// The connections that wait to be accepted.
    pub queue: u64,
    /// These and the open connections that are accepted.
    pub connections: u64,
}

/// The data of the status pages.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// In the order of time.
    pub rows: Vec<PageRow>,
    /// The number of pages that did not come.
    pub missing: usize,
}

/// The data of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PageRow {
    /// The time of its arrival, in seconds.
    pub at_s: f64,
    /// The busy workers.
    pub busy: usize,
    /// The idle workers, including those of children that are starting.
    pub idle: usize,
    /// The connections that waited to be accepted at the time of its arrival.
    pub queue: u64,
}

impl PoolWatch {
    /// Begins to watch a server once it answers. A server whose first children start slowly listens
    /// before it serves.
    ///
    /// # Errors
    ///
    /// Those of the system, or why the server does not answer.
    pub fn begin(server: &Server) -> Result<Self, String> {
        let url = format!("http://{}/server-status", server.address);
        let status = Status::open(&url, false, PATIENCE)?.in_short_form();
        // For peers, any response will do.
        let _first = status.body()?;
        let (family, port, begun) = (server.family, server.address.port(), Instant::now());
        let ([one, other], [first, second]) = {
            let ((a, b), (c, d)) = (channel(), channel());
            ([a, c], [b, d])
        };
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let looking = named("pool-looks").spawn(move || look_on(family, port, begun, &first));
        let paging = named("pool-pages").spawn(move || ask_on(&status, port, begun, &second));
        let told = |error: std::io::Error| error.to_string();
        Ok(Self {
            stops: [one, other],
            looking: looking.map_err(told)?,
            paging: paging.map_err(told)?,
        })
    }

    /// Ends the watch.
    #[must_use]
    pub fn end(self) -> PoolSeen {
        drop(self.stops);
        let looks = self.looking.join().unwrap_or_default();
        PoolSeen { looks, pages: self.paging.join().unwrap_or_default() }
    }
}

fn look_on(family: Family, port: u16, begun: Instant, stopped: &Receiver<()>) -> Looks {
    let mut looks = Looks::default();
    loop {
        let at_s = begun.elapsed().as_secs_f64();
        let children = family.descendants();
        for pid in &children {
            looks.lives.entry(*pid).or_insert((at_s, at_s)).1 = at_s;
        }
        let (queue, connections) = crowd(port);
        looks.rows.push(Look { at_s, children: children.len(), queue, connections });
        if stopped.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
            return looks;
        }
    }
}

fn ask_on(status: &Status, port: u16, begun: Instant, stopped: &Receiver<()>) -> Pages {
    let mut pages = Pages::default();
    loop {
        match status.page() {
            Ok(page) => pages.rows.push(PageRow {
                at_s: begun.elapsed().as_secs_f64(),
                busy: page.slots(is_busy),
                idle: page.slots(|letter| matches!(letter, '_' | 'S')),
                queue: crowd(port).0,
            }),
            Err(_) => pages.missing += 1,
        }
        if stopped.recv_timeout(PAGE_EVERY) != Err(RecvTimeoutError::Timeout) {
            return pages;
        }
    }
}

impl PoolSeen {
    /// The number of children that started during the watch.
    pub fn started(&self) -> usize {
        self.looks.lives.values().filter(|(first, _)| *first > BEFORE_S).count()
    }

    /// The number of children that ended during the watch, and how many of them had started during
    /// it.
    pub fn ended(&self) -> (usize, usize) {
        let last_s = self.looks.rows.last().map_or(0.0, |look| look.at_s);
        let gone = self.looks.lives.values().filter(|(_, last)| *last < last_s);
        let gone: Vec<f64> = gone.map(|(first, _)| *first).collect();
        (gone.len(), gone.iter().filter(|first| **first > BEFORE_S).count())
    }

    /// The most children at once.
    pub fn most_children(&self) -> usize {
        self.looks.rows.iter().map(|look| look.children).max().unwrap_or(0)
    }

    /// The longest accept queue.
    pub fn most_queued(&self) -> u64 {
        self.looks.rows.iter().map(|look| look.queue).max().unwrap_or(0)
    }

    /// The time in seconds after which, apart from moments, no connection waited to be accepted for
    /// a second.
    pub fn queue_gone_s(&self) -> Option<f64> {
        let rows = &self.looks.rows;
        let came = rows.iter().position(|look| look.queue > 0).unwrap_or(0);
        let mut later = (came..rows.len()).filter_map(|at| rows.get(at..));
        later.find_map(|rest| {
            let Look { at_s: gone_s, queue, .. } = rest.first()?;
            let second = rest.iter().take_while(|look| look.at_s - gone_s <= SETTLED_S);
            let queues: Vec<u64> = second.map(|look| look.queue).collect();
            let stands = queues.windows(2).any(|pair| pair.iter().all(|queue| *queue > 0));
            (*queue == 0 && !stands).then_some(*gone_s)
        })
    }

    /// The most idle workers.
    pub fn most_idle(&self) -> usize {
        self.pages.rows.iter().map(|row| row.idle).max().unwrap_or(0)
    }

    /// By how much the number of workers at most exceeded the greatest demand until then. The busy
    /// workers and the queue of a page belong to the same moment. A page comes late if no worker is
    /// free for it. For that time the samples show the length of the queue and, where each
    /// connection holds a worker (`holds`), all connections that are served or wait.
    pub fn most_beyond_demand(&self, holds: bool) -> i64 {
        let mut looks = self.looks.rows.iter().peekable();
        let (mut busy, mut demand, mut most) = (0, 0, 0);
        for row in &self.pages.rows {
            while let Some(look) = looks.next_if(|look| look.at_s <= row.at_s) {
                let open = if holds { look.connections } else { 0 };
                demand = demand.max(busy + look.queue as i64).max(open as i64);
            }
            busy = row.busy as i64;
            demand = demand.max(busy + row.queue as i64);
            most = most.max((row.busy + row.idle) as i64 - demand);
        }
        most
    }

    /// Writes the samples to the folder of a run, for its report.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn save(&self, folder: &Path) -> Result<(), String> {
        let mut sampling = Sampling::begin(folder)?;
        let named = |pairs: &[(&str, f64)]| -> BTreeMap<String, f64> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        for look in &self.looks.rows {
            let values = [
                ("Children/children", look.children as f64),
                ("Accept queue/connections", look.queue as f64),
                ("Open connections/connections", look.connections as f64),
            ];
            sampling.sample(look.at_s, named(&values))?;
        }
        for row in &self.pages.rows {
            let values = [("Workers/busy", row.busy as f64), ("Workers/idle", row.idle as f64)];
            sampling.sample(row.at_s, named(&values))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_gone_when_it_does_not_stand_again_within_a_second() {
        let of = |queues: &[u64]| {
            let rows = queues.iter().zip(0_u32..).map(|(&queue, tenth)| {
                let at_s = f64::from(tenth) / 10.0;
                Look { at_s, children: 1, queue, ..Look::default() }
            });
            let looks = Looks { rows: rows.collect(), ..Looks::default() };
            PoolSeen { looks, ..PoolSeen::default() }.queue_gone_s()
        };
        assert_eq!(of(&[0, 50, 0, 9, 0, 7, 7, 0, 0, 3, 0]), Some(0.7));
        assert_eq!(of(&[0, 0, 0]), Some(0.0));
        assert_eq!(of(&[0, 50, 50, 50]), None);
    }

    #[test]
    fn what_the_step_started_and_what_ended_is_counted() {
        let lives = [(1, (0.0, 9.0)), (2, (0.0, 3.0)), (3, (1.0, 9.0)), (4, (1.0, 5.0))];
        let look = |at_s, children, queue| Look { at_s, children, queue, ..Look::default() };
        let rows = vec![look(0.0, 2, 0), look(1.0, 4, 7), look(9.0, 2, 0)];
        let page = |busy, idle, queue| PageRow { at_s: 0.0, busy, idle, queue };
        let pages = Pages { rows: vec![page(1, 9, 0), page(5, 9, 2), page(1, 20, 0)], missing: 0 };
        let seen = PoolSeen { looks: Looks { rows, lives: lives.into() }, pages };
        assert_eq!((seen.started(), seen.ended(), seen.most_children()), (2, (2, 1), 4));
        assert_eq!((seen.most_queued(), seen.most_idle()), (7, 20));
        // 21 workers for a demand of 7.
        assert_eq!(seen.most_beyond_demand(true), 14);
        assert_eq!(seen.queue_gone_s(), Some(9.0));
        // A page that had to wait for a worker, and the queue until then.
        let late = Pages { rows: vec![PageRow { at_s: 2.0, ..page(5, 59, 0) }], missing: 0 };
        let looks = Looks { rows: vec![look(0.5, 1, 60)], ..Looks::default() };
        assert_eq!(PoolSeen { looks, pages: late }.most_beyond_demand(true), 4);
    }

    /// Children that take seconds to start: the first page comes when they are ready, and its busy
    /// workers do not include those that were busy before.
    #[test]
    fn who_is_served_while_a_page_waits_is_demand() {
        let looks = [(0.1, 30, 50), (0.2, 300, 390), (3.0, 262, 390)];
        let look = |(at_s, queue, connections)| Look { at_s, children: 8, queue, connections };
        let rows = looks.into_iter().map(look).collect();
        let page = PageRow { at_s: 3.1, busy: 130, idle: 382, queue: 90 };
        let pages = Pages { rows: vec![page], missing: 0 };
        let seen = PoolSeen { looks: Looks { rows, ..Looks::default() }, pages };
        assert_eq!((seen.most_beyond_demand(true), seen.most_beyond_demand(false)), (122, 212));
        // An earlier page, with the queue of its moment.
        let mut seen = seen;
        seen.pages.rows.insert(0, PageRow { at_s: 0.6, busy: 128, idle: 384, queue: 262 });
        assert_eq!(seen.most_beyond_demand(false), 122);
    }
}
