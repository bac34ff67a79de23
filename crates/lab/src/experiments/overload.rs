//! The experiment `overload`: requests that wait and requests that burn CPU time, from half of what
//! saturates a server to a hundred times as much. Each client sends its next request as soon as it
//! is answered. Throughput should stay at its peak, every client be served and none be cut off.
//! With `--step` it is one step from no clients to 512, on a pool of one child.

use super::ground::{Asked, Ground, source};
use super::paper::{Paper, Plot};
use super::pool_watch::{PoolSeen, PoolWatch};
use super::ramp::full_after;
use super::{Fault, Options};
use crate::load::{Bounds, Figures, Plan, Think, Timeouts};
use crate::numbers;
use crate::peers::{Peer, Pool, Server};
use crate::plot::{Axis, Chart, Unit};
use crate::sim::Model;
use std::time::Duration;

/// The loads, relative to saturation.
const LEVELS: [f64; 9] = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
/// The workers of the servers that have such a number.
const WORKERS: usize = 128;
/// The share of its peak that throughput should keep beyond saturation.
const STEADY: f64 = 0.95;
/// How often each client can at least be served in a turn.
const ROUNDS: f64 = 2.0;
/// The clients of the step.
const STEP: u32 = 512;
/// How long clients wait: under a hundredfold load each waits long for its turn.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The descriptors needed in addition to those of the clients.
const OTHER_DESCRIPTORS: u64 = 256;

/// What requests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// They wait and hold a worker.
    Wait,
    /// They burn CPU time.
    Burn,
    /// They request a file of 1 KiB.
    File,
}

impl Work {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Burn => "burn",
            Self::File => "file",
        }
    }

    /// The path of a request.
    pub fn path(self, options: &Options) -> String {
        match self {
            Self::Wait => format!("/wait?ms={}", options.wait.as_millis()),
            Self::Burn => format!("/burn?ms={}", options.burn.as_millis()),
            Self::File => "/1k.html".to_owned(),
        }
    }
}

/// The result of one load on one server.
struct Point {
    peer: Peer,
    work: Work,
    level: f64,
    clients: u32,
    figures: Figures,
}

/// Runs the experiment.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    if options.step {
        return step(ground, options);
    }
    let workers = options.workers.unwrap_or(WORKERS);
    let _application = ground.start_backend()?;
    let allowed = evenkeel_sys::process::raise_descriptor_limit();
    let allowed = allowed.saturating_sub(OTHER_DESCRIPTORS);
    let mut points: Vec<Point> = Vec::new();
    let mut notes = Vec::new();
    for peer in ground.peers.clone() {
        ground.setup.pool = Some(fixed(peer, workers));
        // A server without a bound on workers forwards everything at once. The application, which
        // runs in this process too, then has as many connections as there are clients.
        let most_clients = if peer.model().is_some() { allowed } else { allowed / 2 };
        for (work, level, clients) in loads(ground, options, workers) {
            if u64::from(clients) > most_clients {
                let name = peer.name();
                let note =
                    format!("{name}: {clients} clients need too many open files (ulimit -n).");
                notes.extend(Some(note).filter(|note| !notes.contains(note)));
                continue;
            }
            // Each load has a new server, because requests that the clients of the previous load
            // left behind are work.
            let Some(server) = ground.start(peer)? else { continue };
            let each = if work == Work::Wait { options.wait } else { options.burn };
            let long = options.turn.max(each.mul_f64(level * ROUNDS));
            let name = format!("{}-{}/{clients}", peer.name(), work.name());
            let figures = ask(ground, &server, &work.path(options), clients, long, &name)?;
            ground.tell(&format!(
                "{} {} {level}x: {clients} clients, {} answers/s, {} failed, {} never served",
                peer.name(),
                work.name(),
                numbers::rate(figures.rate()),
                figures.failed(),
                figures.fairness().never
            ));
            points.push(Point { peer, work, level, clients, figures });
        }
    }
    Ok(report(ground, options, workers, &points, notes))
}

/// The loads on a server, one after the other: what requests do, the load relative to saturation,
/// and the number of clients. Loads with the same number of clients are merged.
fn loads(ground: &Ground, options: &Options, workers: usize) -> Vec<(Work, f64, u32)> {
    let mut loads: Vec<(Work, f64, u32)> = Vec::new();
    for work in [Work::Wait, Work::Burn] {
        let saturation = if work == Work::Wait { workers } else { ground.server_cores() };
        for level in options.levels.clone().unwrap_or(LEVELS.to_vec()) {
            let clients = (saturation as f64 * level).round().max(1.0) as u32;
            if !loads.iter().any(|load| (load.0, load.2) == (work, clients)) {
                loads.push((work, level, clients));
            }
        }
    }
    loads
}

/// A pool that has all its workers from the beginning.
pub fn fixed(peer: Peer, workers: usize) -> Pool {
    let is_prefork = peer.model() == Some(Model::Prefork);
    let threads = if is_prefork { 1 } else { workers.clamp(1, 64) };
    Pool {
        start_servers: workers.div_ceil(threads),
        threads,
        min_spare: workers,
        max_spare: workers * 2,
        workers,
        buckets_ratio: None,
        start_delay_ms: 0,
    }
}

/// Has `clients` clients request a path over and over, on kept connections.
pub fn ask(
    ground: &Ground,
    server: &Server,
    path: &str,
    clients: u32,
    long: Duration,
    name: &str,
) -> Result<Figures, Fault> {
    let asked = kept(path, clients);
    let plan = plan(ground, server, &asked, long);
    let mut saving = ground.save(name, server, path)?;
    let mut source = source(&asked, None);
    let figures = ground.drive(plan, &mut source, Some(&mut saving), &mut |_| Ok(true))?;
    saving.finish(&figures)?;
    Ok(figures)
}

fn kept(path: &str, clients: u32) -> Asked {
    let path = path.to_owned().into();
    Asked { path, clients, think: Think::None, close: false, conditional: false }
}

fn plan(ground: &Ground, server: &Server, asked: &Asked, long: Duration) -> Plan {
    let bounds = Bounds { time: Some(long), ..Bounds::default() };
    let timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE };
    Plan { timeouts, ..ground.plan(server, asked, bounds) }
}

fn report(
    ground: &Ground,
    options: &Options,
    workers: usize,
    points: &[Point],
    notes: Vec<String>,
) -> Paper {
    let mut paper = Paper::new("Overload", ground.origin());
    paper.heading("Where Evenkeel does worse");
    let worse = worse(points);
    if worse.is_empty() {
        paper.paragraph(
            "Nowhere: beyond saturation it stays above 95 % of its peak, and all are served.",
        );
    } else {
        paper.list(worse);
    }
    paper.paragraph(&format!(
        "{} Requests wait {} or burn {} of CPU time. {workers} workers saturate by waits, {} \
         core(s) by CPU time; nginx has no bound for waits and is not saturated by them. Each \
         client keeps its connection and asks again as soon as it is answered. Evenkeel waits and \
         burns itself; the others forward to an application that does it on the same cores, with \
         as many threads as there are cores.",
        ground.who(),
        numbers::time(options.wait.as_nanos() as f64),
        numbers::time(options.burn.as_nanos() as f64),
        ground.server_cores(),
    ));
    if !notes.is_empty() {
        paper.list(notes);
    }
    for work in [Work::Wait, Work::Burn] {
        let own: Vec<&Point> = points.iter().filter(|point| point.work == work).collect();
        let what = if work == Work::Wait { "Requests that wait" } else { "Requests that burn" };
        paper.heading(what);
        let name = work.name();
        paper.plots(vec![
            (format!("{name}-rate"), chart(&format!("{what}: answers a second"), &own, rate)),
            (format!("{name}-late"), chart(&format!("{what}: 99 % are answered in"), &own, late)),
        ]);
        paper.table(&HEADING, own.iter().map(|point| cells(point, points)).collect());
    }
    paper.heading("How it was made").code(&ground.words());
    paper
}

const HEADING: [&str; 10] = [
    "server",
    "load",
    "clients",
    "answers/s",
    "of the peak",
    "median",
    "99 %",
    "slowest",
    "failed",
    "never served",
];

fn cells(point: &Point, points: &[Point]) -> Vec<String> {
    let response = &point.figures.times.response;
    let time = |quantile| numbers::time(response.value_at_quantile(quantile) as f64);
    let share = share_of_peak(point, points);
    let flag = if share < STEADY && point.level >= 1.0 { " (!)" } else { "" };
    vec![
        point.peer.name().to_owned(),
        format!("{}×", point.level),
        numbers::count(u64::from(point.clients)),
        numbers::rate(point.figures.rate()),
        format!("{:.0} %{flag}", share * 100.0),
        time(0.5),
        time(0.99),
        numbers::time(response.max() as f64),
        numbers::count(point.figures.failed()),
        numbers::count(point.figures.fairness().never as u64),
    ]
}

fn share_of_peak(point: &Point, points: &[Point]) -> f64 {
    let same = points.iter().filter(|it| (it.peer, it.work) == (point.peer, point.work));
    let peak = same.map(|it| it.figures.rate()).fold(0.0, f64::max);
    point.figures.rate() / peak.max(1e-9)
}

fn rate(point: &Point) -> f64 {
    point.figures.rate()
}

fn late(point: &Point) -> f64 {
    point.figures.times.response.value_at_quantile(0.99) as f64
}

fn chart(title: &str, points: &[&Point], value: fn(&Point) -> f64) -> Plot {
    let unit = if title.ends_with("in") { Unit::Time } else { Unit::Count };
    let y = Axis::new("", unit);
    let y = if unit == Unit::Time { y.by_factors() } else { y };
    let mut chart = Chart::new(title, Axis::new("clients", Unit::Count).by_factors(), y);
    let mut peers: Vec<Peer> = points.iter().map(|point| point.peer).collect();
    peers.dedup();
    for peer in peers {
        let own = points.iter().filter(|point| point.peer == peer);
        let line = own.map(|point| (f64::from(point.clients), value(point))).collect();
        chart = chart.line(peer.name(), line);
    }
    Plot::Chart(chart)
}

fn worse(points: &[Point]) -> Vec<String> {
    let mut sentences = Vec::new();
    for point in points.iter().filter(|point| point.peer.is_own()) {
        let mut parts = Vec::new();
        let share = share_of_peak(point, points);
        if share < STEADY && point.level >= 1.0 {
            parts.push(format!("{:.0} % of its peak", share * 100.0));
        }
        let never = point.figures.fairness().never;
        if never > 0 {
            parts.push(format!("{never} clients never served"));
        }
        if point.figures.failed() > 0 {
            parts.push(format!("{} failed", numbers::count(point.figures.failed())));
        }
        if !parts.is_empty() {
            let (name, work, clients) = (point.peer.name(), point.work.name(), point.clients);
            sentences.push(format!("{name}, {work}, {clients} clients: {}.", parts.join(", ")));
        }
    }
    sentences
}

/// The result of one turn of the step on one server.
struct Climb {
    peer: Peer,
    work: Work,
    figures: Figures,
    pool: PoolSeen,
    full_s: Option<f64>,
}

fn step(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    let clients = options.one_number_of_clients(STEP);
    let rounds = options.rounds.unwrap_or(1);
    let _application = ground.start_backend()?;
    ground.setup.pool = Some(Pool::OF_2002);
    let mut rows = Vec::new();
    for work in [Work::File, Work::Wait] {
        for round in 1..=rounds {
            for peer in ground.peers.clone() {
                // Each has a new server, because a pool that has grown is no longer a pool of one
                // child.
                let Some(server) = ground.start(peer)? else { continue };
                let asked = kept(&work.path(options), clients);
                let plan = plan(ground, &server, &asked, options.turn);
                let plan = Plan { keep_exchanges: true, ..plan };
                let watch = PoolWatch::begin(&server)?;
                let mut source = source(&asked, None);
                let driven = ground.drive(plan, &mut source, None, &mut |_| Ok(true));
                let pool = watch.end();
                let figures = driven?;
                let full_s = full_after(&figures);
                let (name, work_name) = (peer.name(), work.name());
                let rate = numbers::rate(figures.rate());
                ground.tell(&format!(
                    "round {round} {name} {work_name}: {rate} answers/s, full after {full_s:?} s"
                ));
                rows.push(Climb { peer, work, figures, pool, full_s });
            }
        }
    }
    Ok(step_report(ground, options, clients, &rows))
}

fn step_report(ground: &Ground, options: &Options, clients: u32, rows: &[Climb]) -> Paper {
    let mut paper = Paper::new("A step from nothing", ground.origin());
    paper.paragraph(&format!(
        "{} {clients} clients come at once to a pool of one child (the directives of `ramp`) and \
         ask again, for {}, as soon as they are answered, on connections that they keep. The \
         servers take turns, each time with a new pool: {} rounds. Rates and the 99 % are \
         medians, the slowest answer is that of all rounds, and the others are sums.",
        ground.who(),
        numbers::time(options.turn.as_nanos() as f64),
        options.rounds.unwrap_or(1),
    ));
    for work in [Work::File, Work::Wait] {
        paper.heading(match work {
            Work::File => "A file of 1 KiB",
            _ => "Requests that wait",
        });
        let cells = ground.peers.iter().filter_map(|peer| {
            let own = rows.iter().filter(|row| row.work == work && row.peer == *peer);
            let own: Vec<&Climb> = own.collect();
            if own.is_empty() { None } else { Some(step_cells(*peer, &own)) }
        });
        let heading = [
            "server",
            "full after",
            "least to most",
            "answers/s",
            "99 %",
            "slowest",
            "never served",
            "failed",
            "children started",
            "of these ended",
        ];
        paper.table(&heading, cells.collect());
    }
    paper.heading("How it was made").code(&ground.words());
    paper
}

/// The row of a server: its turns of one kind of work.
fn step_cells(peer: Peer, turns: &[&Climb]) -> Vec<String> {
    let sorted = |figure: &dyn Fn(&Climb) -> f64| {
        let mut values: Vec<f64> = turns.iter().map(|turn| figure(turn)).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let median = |values: &[f64]| values.get(values.len() / 2).copied().unwrap_or_default();
    let after = |full_s: f64| match full_s.is_finite() {
        true => numbers::time(full_s * 1e9),
        false => "not".to_owned(),
    };
    // A throughput that was not reached within the turn counts as longer than any time.
    let full = sorted(&|turn| turn.full_s.unwrap_or(f64::INFINITY));
    let most = |values: &[f64]| values.last().copied().unwrap_or_default();
    let time = |turn: &Climb, share| turn.figures.times.response.value_at_quantile(share) as f64;
    let sum = |count: &dyn Fn(&Climb) -> u64| turns.iter().map(|turn| count(turn)).sum::<u64>();
    vec![
        peer.name().to_owned(),
        after(median(&full)),
        format!("{} to {}", after(full.first().copied().unwrap_or_default()), after(most(&full))),
        numbers::rate(median(&sorted(&|turn| turn.figures.rate()))),
        numbers::time(median(&sorted(&|turn| time(turn, 0.99)))),
        numbers::time(most(&sorted(&|turn| time(turn, 1.0)))),
        sum(&|turn| turn.figures.fairness().never as u64).to_string(),
        numbers::count(sum(&|turn| turn.figures.failed())),
        sum(&|turn| turn.pool.started() as u64).to_string(),
        sum(&|turn| turn.pool.ended().1 as u64).to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Failure;

    fn point(peer: Peer, level: f64, rate: u64, by_client: Vec<u64>) -> Point {
        let figures = Figures {
            statuses: [(200, rate)].into(),
            by_client,
            elapsed_ns: 1_000_000_000,
            ..Figures::default()
        };
        Point { peer, work: Work::Burn, level, clients: level as u32, figures }
    }

    #[test]
    fn what_falls_below_the_peak_is_told() {
        let points = [
            point(Peer::Evenkeel, 0.5, 50, vec![50]),
            point(Peer::Evenkeel, 1.0, 100, vec![100]),
            point(Peer::Evenkeel, 100.0, 94, vec![94, 0]),
            point(Peer::Nginx, 100.0, 10, vec![10]),
        ];
        let told = "evenkeel, burn, 100 clients: 94 % of its peak, 1 clients never served.";
        assert_eq!(worse(&points), [told]);
        assert_eq!(cells(&points[2], &points)[4], "94 % (!)");
        // Below saturation there is less to do.
        assert_eq!(cells(&points[0], &points)[4], "50 %");
    }

    #[test]
    fn a_step_has_the_median_of_its_turns_and_their_range() {
        let turn = |full_s, failed| {
            let figures = Figures {
                statuses: [(200, 1000)].into(),
                failures: [(Failure::Reset, failed)].into(),
                elapsed_ns: 1_000_000_000,
                ..Figures::default()
            };
            Climb {
                peer: Peer::Nginx,
                work: Work::File,
                figures,
                pool: PoolSeen::default(),
                full_s,
            }
        };
        let turns = [turn(Some(0.4), 1), turn(None, 2), turn(Some(0.1), 0)];
        let cells = step_cells(Peer::Nginx, &turns.iter().collect::<Vec<_>>());
        assert_eq!(cells[..3], ["nginx", "400 ms", "100 ms to not"]);
        assert_eq!(cells[7], "3");
    }
}
