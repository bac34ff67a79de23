//! The experiment `reload`: reloads a server again and again under 32 clients on kept connections.
//! A request is lost if it was sent and got no complete response, because its connection was closed
//! before the first byte or within the response. With `--buckets` the number of listen queues
//! changes at each reload, with `--kill` children are killed, with `--upgrade` the program is
//! replaced; `--slow` is in `slow_peers`.

use super::ground::{Asked, Ground, source};
use super::paper::Paper;
use super::upgrade::Upgrades;
use super::{Fault, Options, slow_peers};
use crate::load::{Bounds, Figures, Think};
use crate::numbers;
use crate::peers::{Peer, Pool, Server};
use evenkeel_sys::process::{self, Pid};
use evenkeel_sys::signal::Signal;
use std::collections::BTreeSet;

/// The reloads of Evenkeel. Peers, which show their losses sooner, have fewer.
const RELOADS: usize = 1000;
const RELOADS_OF_PEERS: usize = 50;
/// The reloads that change the number of queues, and the children that are killed.
const RELOADS_OF_BUCKETS: usize = 18;
const KILLS: usize = 10;
/// The changes of the program.
const UPGRADES: usize = 20;
/// Clients.
const CLIENTS: u32 = 32;
/// The interval of samples of the processes, in seconds.
const LOOK_EVERY_S: f64 = 0.05;
/// A change counts as complete after this many seconds even if its processes have not changed.
const PATIENCE_S: f64 = 3.0;
/// The time between two changes, in seconds.
const PAUSE_S: f64 = 0.1;
/// How long a server may be without children before a change, in seconds.
const CHILDLESS_S: f64 = 60.0;

/// What is done to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Reloads.
    Reload,
    /// Reloads that change the number of listen queues.
    Buckets,
    /// Kills of children.
    Kill,
    /// Changes of the program.
    Upgrade,
    /// Slow clients, without reloads.
    Slow,
}

/// The result of a server.
struct Row {
    peer: Peer,
    figures: Figures,
    /// The duration of each change in seconds, without those that were not complete in time.
    took_s: Vec<f64>,
    changes: usize,
}

/// Runs the experiment.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    if options.part == Part::Slow {
        return slow_peers::run(ground, options);
    }
    if options.part == Part::Buckets {
        // The number of queues depends on the cores: with one core there is one queue, whatever is
        // configured.
        ground.setup.cores.clear();
    }
    let mut rows = Vec::new();
    for peer in ground.peers.clone() {
        if options.part == Part::Upgrade && !peer.is_own() {
            let name = peer.name();
            return Err(format!("{name}: --upgrade changes Evenkeel's program alone").into());
        }
        if signal(peer).is_none() {
            let name = peer.name();
            return Err(format!("{name}: no signal is known by which it reloads").into());
        }
        ground.setup.pool = pool(options.part, peer, 0);
        let Some(server) = ground.start(peer)? else { continue };
        let row = change_under_load(ground, options, peer, &server)?;
        ground.tell(&cells(&row).join("  "));
        rows.push(row);
    }
    Ok(report(ground, options, &rows))
}

fn signal(peer: Peer) -> Option<Signal> {
    match peer {
        Peer::Nginx | Peer::NginxTuned => Some(Signal::Hangup),
        _ => peer.model().map(|_| Signal::User1),
    }
}

/// The pool for the change with this number; none if queues do not change.
fn pool(part: Part, peer: Peer, number: usize) -> Option<Pool> {
    if part != Part::Buckets {
        return None;
    }
    // nginx has this many workers, each with a queue.
    let ratios = if peer.is_own() { [None, Some(1), Some(2)] } else { [Some(1), Some(2), Some(4)] };
    let buckets_ratio = ratios.get(number % ratios.len()).copied().flatten();
    let usual = Pool { workers: 1024, max_spare: 512, ..Pool::OF_2002 };
    Some(Pool { start_servers: 4, buckets_ratio, ..usual })
}

fn changes(options: &Options, peer: Peer) -> usize {
    match options.part {
        Part::Kill => options.reloads.unwrap_or(KILLS),
        Part::Upgrade => options.reloads.unwrap_or(UPGRADES),
        Part::Buckets => options.reloads.unwrap_or(RELOADS_OF_BUCKETS),
        _ if peer.is_own() => options.reloads.unwrap_or(RELOADS),
        _ => options.reloads.unwrap_or(RELOADS_OF_PEERS).min(RELOADS_OF_PEERS),
    }
}

fn change_under_load(
    ground: &mut Ground,
    options: &Options,
    peer: Peer,
    server: &Server,
) -> Result<Row, Fault> {
    let changes = changes(options, peer);
    let asked = Asked {
        path: "/1k.html".into(),
        clients: options.one_number_of_clients(CLIENTS),
        think: Think::None,
        close: options.part == Part::Buckets,
        conditional: false,
    };
    // Each change has its own bound. The load has none, because on a busy machine it might end
    // before this process samples whether a change is complete.
    let plan = ground.plan(server, &asked, Bounds::default());
    let part = match options.part {
        Part::Buckets => "buckets",
        Part::Kill => "kill",
        Part::Upgrade => "upgrade",
        _ => "reload",
    };
    let mut saving = ground.save(&format!("{part}/{}", peer.name()), server, part)?;
    let mut source = source(&asked, None);
    let mut steps = Steps { changes, all: options.part != Part::Kill, ..Steps::default() };
    let (root, port) = (ground.site.path().to_owned(), server.address.port());
    let mut setup = ground.setup.clone();
    if options.part == Part::Upgrade {
        let mut upgrades = Upgrades::new(&root, server, changes);
        let mut look = |at_s| upgrades.look(at_s);
        let figures = ground.drive(plan, &mut source, Some(&mut saving), &mut look)?;
        saving.finish(&figures)?;
        let took_s = std::mem::take(&mut upgrades.took_s);
        upgrades.stop();
        return Ok(Row { peer, figures, changes: took_s.len(), took_s });
    }
    let figures = ground.drive(plan, &mut source, Some(&mut saving), &mut |at_s| {
        steps.look(at_s, &|| server.family.descendants(), &mut |number| match options.part {
            Part::Kill => kill_one(server),
            part => {
                setup.pool = pool(part, peer, number);
                let _file = peer.configure(&root, port, &setup)?;
                signal(peer).map_or(Ok(()), |signal| server.signal(signal))
            }
        })
    })?;
    saving.finish(&figures)?;
    Ok(Row { peer, figures, took_s: steps.took_s, changes: steps.done })
}

fn kill_one(server: &Server) -> Result<(), String> {
    let first = server.family.descendants().first().copied().and_then(Pid::from_raw);
    let pid = first.ok_or_else(|| format!("{}: has no children", server.name))?;
    process::kill(pid, Signal::Kill).map_err(|error| format!("{}: {error}", server.name))
}

/// Makes changes one after the other, each when the previous one is complete.
#[derive(Default)]
struct Steps {
    changes: usize,
    /// Whether a change replaces all children.
    all: bool,
    done: usize,
    took_s: Vec<f64>,
    /// When the current change began, and the children at that time.
    under_way: Option<(f64, BTreeSet<i32>)>,
    next_s: f64,
}

impl Steps {
    /// Does what is due. Returns whether there is more to do.
    fn look(
        &mut self,
        at_s: f64,
        children: &dyn Fn() -> BTreeSet<i32>,
        change: &mut dyn FnMut(usize) -> Result<(), String>,
    ) -> Result<bool, Fault> {
        if at_s < self.next_s.max(PAUSE_S) {
            return Ok(true);
        }
        let children = children();
        let Some((began_s, before)) = &self.under_way else {
            if self.done == self.changes {
                return Ok(false);
            }
            // A server listens before it has children. Until then there is nothing to change, and
            // it may ignore signals.
            if children.is_empty() && at_s - self.next_s > CHILDLESS_S {
                return Err(format!("no child has come for change {}", self.done + 1).into());
            }
            if !children.is_empty() {
                self.under_way = Some((at_s, children));
                change(self.done + 1)?;
            }
            return Ok(true);
        };
        let took_s = at_s - began_s;
        if is_over(self.all, before, &children) {
            self.took_s.push(took_s);
        } else if took_s < PATIENCE_S {
            self.next_s = at_s + LOOK_EVERY_S;
            return Ok(true);
        }
        (self.under_way, self.done) = (None, self.done + 1);
        self.next_s = at_s + PAUSE_S;
        Ok(true)
    }
}

/// Whether a change is complete: new children have come, and all previous ones are gone; after a
/// kill, one of them.
fn is_over(all: bool, before: &BTreeSet<i32>, now: &BTreeSet<i32>) -> bool {
    let stayed = before.intersection(now).count();
    let gone = if all { stayed == 0 } else { stayed < before.len() };
    gone && now.difference(before).next().is_some()
}

fn report(ground: &Ground, options: &Options, rows: &[Row]) -> Paper {
    let (title, what) = match options.part {
        Part::Buckets => (
            "Reloads that change the number of listen queues",
            "ListenCoresBucketsRatio goes from none to 1 and 2 and back; nginx has 1, 2 and 4 \
             workers with a queue each (reuseport). A connection is for one request.",
        ),
        Part::Upgrade => (
            "Changes of the program",
            "The program is started anew beside itself (USR2) and takes over the sockets.",
        ),
        Part::Kill => ("Children that are killed", "A child is killed (SIGKILL) at a time."),
        _ => (
            "Reloads under load",
            "Each reload begins when the children of the one before are gone.",
        ),
    };
    let mut paper = Paper::new(title, ground.origin());
    paper.heading("Where Evenkeel does worse");
    let lossy = rows.iter().filter(|row| row.peer.is_own() && row.figures.failed() > 0);
    let worse: Vec<String> = lossy
        .map(|row| {
            let lost = numbers::count(row.figures.failed());
            format!("{} lost {lost} requests: {}.", row.peer.name(), kinds(&row.figures))
        })
        .collect();
    if worse.is_empty() {
        paper.paragraph("Nowhere: it lost no request.");
    } else {
        paper.list(worse);
        if options.part == Part::Kill {
            paper.paragraph("The connections of a killed child cannot but be lost.");
        }
    }
    paper.paragraph(&format!(
        "{} {} clients ask for a file of 1 KiB without a pause. {what} A request is lost where it \
         was sent and no whole answer came.",
        ground.who(),
        options.one_number_of_clients(CLIENTS),
    ));
    paper.table(&HEADING, rows.iter().map(cells).collect());
    paper.heading("How it was made").code(&ground.words());
    paper
}

const HEADING: [&str; 9] = [
    "server",
    "changes",
    "answered",
    "lost",
    "lost a change",
    "by kind",
    "slowest answer",
    "a change took (median)",
    "most",
];

fn kinds(figures: &Figures) -> String {
    let kinds = figures.failures.iter();
    let kinds = kinds.map(|(failure, count)| format!("{} {count}", failure.name()));
    kinds.collect::<Vec<_>>().join(", ")
}

fn cells(row: &Row) -> Vec<String> {
    let lost = row.figures.failed();
    let mut took_s = row.took_s.clone();
    took_s.sort_by(f64::total_cmp);
    let took = |at: Option<&f64>| at.map_or("–".to_owned(), |it| numbers::time(it * 1e9));
    let late = row.changes.saturating_sub(took_s.len());
    let more = if late > 0 { format!(" ({late} not within 3 s)") } else { String::new() };
    vec![
        row.peer.name().to_owned(),
        numbers::count(row.changes as u64),
        numbers::count(row.figures.answered()),
        numbers::count(lost),
        format!("{:.1}", lost as f64 / row.changes.max(1) as f64),
        kinds(&row.figures),
        numbers::time(row.figures.times.response.max() as f64),
        took(took_s.get(took_s.len() / 2)),
        format!("{}{more}", took(took_s.last())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_over_when_its_children_are_gone() {
        let over = |all, before: &[i32], now: &[i32]| {
            is_over(all, &before.iter().copied().collect(), &now.iter().copied().collect())
        };
        assert!(!over(true, &[1, 2], &[1, 2]) && !over(true, &[1, 2], &[1, 2, 3, 4]));
        assert!(!over(true, &[1, 2], &[2, 3]) && over(true, &[1, 2], &[3, 4]));
        // One has died, and another has come, or has not come yet.
        assert!(over(false, &[1, 2], &[2, 3]) && !over(false, &[1, 2], &[2]));
    }

    #[test]
    fn a_change_begins_when_there_are_children_and_is_counted_when_they_are_others() {
        let mut steps = Steps { changes: 2, all: true, ..Steps::default() };
        let mut begun = Vec::new();
        let mut look = |steps: &mut Steps, at_s: f64, children: &[i32]| {
            let children = || children.iter().copied().collect();
            let more = steps.look(at_s, &children, &mut |number| {
                begun.push(number);
                Ok(())
            });
            (more.ok(), begun.len(), steps.done)
        };
        // A server that listens and has no children yet.
        assert_eq!(look(&mut steps, 1.0, &[]), (Some(true), 0, 0));
        assert_eq!(look(&mut steps, 1.1, &[1]), (Some(true), 1, 0));
        assert_eq!(look(&mut steps, 1.2, &[1, 2]), (Some(true), 1, 0));
        // However late the sample is taken.
        assert_eq!(look(&mut steps, 50.0, &[2]), (Some(true), 1, 1));
        assert_eq!(look(&mut steps, 51.0, &[]), (Some(true), 1, 1));
        assert_eq!(look(&mut steps, 52.0, &[3]), (Some(true), 2, 1));
        assert_eq!(look(&mut steps, 52.0 + PATIENCE_S, &[3]), (Some(true), 2, 2));
        assert_eq!((steps.took_s.len(), look(&mut steps, 60.0, &[3])), (1, (Some(false), 2, 2)));
        steps.changes = 3;
        assert_eq!(look(&mut steps, 61.0 + CHILDLESS_S, &[]), (None, 2, 2));
    }

    #[test]
    fn queues_change_in_turn() {
        let ratio = |peer, number| pool(Part::Buckets, peer, number).unwrap().buckets_ratio;
        assert_eq!([0, 1, 2, 3].map(|n| ratio(Peer::Evenkeel, n)), [None, Some(1), Some(2), None]);
        assert_eq!(ratio(Peer::Nginx, 2), Some(4));
        assert!(pool(Part::Reload, Peer::Evenkeel, 1).is_none());
    }
}
