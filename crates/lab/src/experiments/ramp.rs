//! The experiment `ramp`, after the report of 2002 on the worker model: 15 clients on each of 26
//! machines arrive at once at a pool of one child. They request pages of mixed sizes that wait for
//! a database, with a connection for each request, and a twentieth of them read a long download
//! slowly. The report says how fast the pool adapts, how far it overshoots and what it retires
//! again, for Evenkeel and Apache with the same directives and for three laws in the simulator.

use super::ground::Ground;
use super::paper::{Paper, Plot};
use super::pool_watch::{PoolSeen, PoolWatch};
use super::{Fault, Options};
use crate::load::{Bounds, Figures, Keep, Pace, Plan, Request, Source, Step, Think, Timeouts};
use crate::numbers;
use crate::peers::{Peer, Pool, Server};
use crate::plot::{Axis, Chart, Unit};
use crate::sim::{self, Load, Model, Outcome, Sample, Which};
use crate::slow::{Fate, Manner, Slow};
use bytes::Bytes;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::Exp1;
use std::sync::Arc;
use std::time::Duration;

/// 26 machines with 15 clients each.
const CLIENTS: u32 = 390;
/// One of this many clients downloads.
const DOWNLOADERS: u32 = 20;
/// The bytes a second that a download reads: 10 MiB take six minutes.
const DOWNLOAD_RATE: f64 = 30_000.0;
/// The mean of the waits in seconds, and how many of a hundred requests wait.
const WAIT_S: f64 = 0.4;
const WAITING: u32 = 60;
/// Of a hundred requests, those for 1 KiB and those for 100 KiB; the rest are for 1 MiB.
const SMALL: u32 = 30;
const MEDIUM: u32 = 9;
/// Throughput is full when a second has this share of the steady rate.
const FULL: f64 = 0.95;
/// Longer runs are resolved to a second instead of a tenth, because each exchange takes memory.
const LONG: Duration = Duration::from_secs(1200);
/// The most seconds that the simulation covers.
const SIMULATED_S: f64 = 120.0;
/// How long clients wait, since a queue may last long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of a server.
struct Row {
    peer: Peer,
    figures: Figures,
    pool: PoolSeen,
    downloads: Fate,
    full_s: Option<f64>,
}

/// Runs the experiment.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    let clients = options.one_number_of_clients(CLIENTS);
    let start_delay_ms = u64::try_from(options.start_delay.as_millis()).unwrap_or(u64::MAX);
    let _application = ground.start_backend()?;
    ground.setup.pool = Some(Pool { start_delay_ms, ..Pool::OF_2002 });
    let mut rows = Vec::new();
    for peer in ground.peers.clone() {
        let Some(server) = ground.start(peer)? else { continue };
        ground.tell(&format!("{}: {clients} clients, {:?}", peer.name(), options.turn));
        let row = load(ground, options, peer, &server, clients)?;
        ground.tell(&format!(
            "{}: {} answers/s, {} children at most, {} started, {} ended",
            peer.name(),
            numbers::rate(row.figures.rate()),
            row.pool.most_children(),
            row.pool.started(),
            row.pool.ended().0
        ));
        rows.push(row);
    }
    let model = options.models_or(&[Model::Worker]).first().copied().unwrap_or(Model::Worker);
    let laws = simulate(options, model, clients);
    Ok(report(ground, options, clients, &rows, &laws))
}

fn load(
    ground: &Ground,
    options: &Options,
    peer: Peer,
    server: &Server,
    clients: u32,
) -> Result<Row, Fault> {
    let name = format!("ramp/{}", peer.name());
    let downloaders = clients / DOWNLOADERS;
    let plan = Plan {
        clients: clients - downloaders,
        pace: Pace::Greedy,
        keep: Keep::Once,
        timeouts: Timeouts { connect: PATIENCE, answer: PATIENCE },
        keep_exchanges: options.turn <= LONG,
        ..ground.plan(
            server,
            &super::ground::Asked {
                path: "/".into(),
                clients,
                think: Think::None,
                close: true,
                conditional: false,
            },
            Bounds { time: Some(options.turn), ..Bounds::default() },
        )
    };
    let mut saving = ground.save(&name, server, "the load of 2002")?;
    let watch = PoolWatch::begin(server)?;
    let manner = Manner::Read(DOWNLOAD_RATE);
    let told = |error: std::io::Error| Fault::Told(format!("the system: {error}"));
    let slow = Slow::begin(server.address, manner, "/10m.bin", downloaders as usize, true);
    let slow = slow.map_err(told)?;
    let mut source = |number: u32| -> Box<dyn Source> { Box::new(Mixed::new(number)) };
    let driven = ground.drive(plan, &mut source, Some(&mut saving), &mut |_| Ok(true));
    let (pool, downloads) = (watch.end(), slow.end());
    let figures = driven?;
    saving.finish(&figures)?;
    pool.save(&ground.folder(&name))?;
    let full_s = full_after(&figures);
    Ok(Row { peer, figures, pool, downloads, full_s })
}

/// The requests of a client. Each is drawn anew.
struct Mixed {
    random: ChaCha8Rng,
}

impl Mixed {
    fn new(number: u32) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(2002);
        random.set_stream(u64::from(number));
        Self { random }
    }

    fn target(&mut self) -> String {
        let drawn = self.random.random_range(0..100);
        if drawn < WAITING {
            let wait_ms = WAIT_S * 1e3 * self.random.sample::<f64, _>(Exp1);
            return format!("/wait?ms={}", wait_ms.min(60_000.0) as u64);
        }
        let file = if drawn < WAITING + SMALL {
            "/1k.html"
        } else if drawn < WAITING + SMALL + MEDIUM {
            "/100k.bin"
        } else {
            "/1m.bin"
        };
        file.to_owned()
    }
}

impl Source for Mixed {
    fn next(&mut self, _now_ns: u64) -> Step {
        let target = self.target();
        let text = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        Step::Send(Arc::new(Request { bytes: Bytes::from(text), ..Request::default() }))
    }
}

/// The seconds until throughput was full: the beginning of the first second with nearly as many
/// answers as an average second of the last half of the run.
pub fn full_after(figures: &Figures) -> Option<f64> {
    let end_ns = figures.elapsed_ns;
    let half_s = end_ns as f64 / 2e9;
    if figures.exchanges.is_empty() {
        let late: Vec<u64> = figures
            .seconds
            .iter()
            .filter(|it| f64::from(it.number) >= half_s)
            .map(|it| it.answered)
            .collect();
        let steady = late.iter().sum::<u64>() as f64 / late.len().max(1) as f64;
        let first = figures.seconds.iter().find(|it| it.answered as f64 >= steady * FULL);
        return first.map(|second| f64::from(second.number));
    }
    let ends: Vec<f64> = figures.exchanges.iter().map(|it| it.end_ns as f64 / 1e9).collect();
    let count = |from: f64, to: f64| {
        ends.partition_point(|at| *at < to) - ends.partition_point(|at| *at < from)
    };
    let steady = count(half_s, half_s * 2.0) as f64 / half_s.max(1e-9);
    let tenths = (0..(half_s * 20.0) as u32).map(|tenth| f64::from(tenth) / 10.0);
    let mut whole = tenths.filter(|from| from + 1.0 <= half_s * 2.0);
    whole.find(|from| count(*from, from + 1.0) as f64 >= steady * FULL)
}

fn simulate(options: &Options, model: Model, clients: u32) -> Vec<(Which, Outcome)> {
    let laws = [Which::Evenkeel, Which::Apache2002, Which::Apache24];
    let of = |law| {
        let mut setup = sim::Setup { law, ..sim::Setup::default() };
        setup.directives.model = model;
        let step = Load::parse(&format!("step:{clients}@1s"));
        setup.load = step.unwrap_or_else(|_| Load::none());
        // The simulated clients always wait, with the same mean as the real ones, of which some do
        // not wait.
        setup.wait = Think::Exponential(WAIT_S * f64::from(WAITING) / 100.0);
        setup.start_s = options.start_delay.as_secs_f64().max(0.05);
        setup.seconds = options.turn.as_secs_f64().min(SIMULATED_S);
        (law, sim::simulate(&setup))
    };
    laws.into_iter().map(of).collect()
}

fn report(
    ground: &Ground,
    options: &Options,
    clients: u32,
    rows: &[Row],
    laws: &[(Which, Outcome)],
) -> Paper {
    let mut paper = Paper::new("The load of 2002", ground.origin());
    paper.heading("Where Evenkeel does worse");
    let worse = worse(rows);
    if worse.is_empty() {
        paper.paragraph("Nowhere, and it keeps what it promises.");
    } else {
        paper.list(worse);
    }
    paper.paragraph(&format!(
        "{} StartServers 1, ThreadsPerChild 64, MinSpareThreads 64, MaxSpareThreads 192, \
         MaxRequestWorkers 1024. {clients} clients come at once and ask, for {}, as soon as they \
         are answered, over a connection for each request: {WAITING} of 100 requests wait, {} on \
         the average, the others are for files of 1 KiB to 1 MiB. One client in {DOWNLOADERS} \
         reads 10 MiB in some six minutes. Evenkeel waits itself (lab-wait); Apache forwards to \
         an application of the lab that waits (mod_proxy), which costs it CPU time, and no worker \
         more. A child of Evenkeel takes {} to start.",
        ground.who(),
        numbers::time(options.turn.as_nanos() as f64),
        numbers::time(WAIT_S * 1e9),
        numbers::time(options.start_delay.as_nanos() as f64),
    ));
    table(&mut paper, rows);
    paper.heading("Over time");
    for row in rows {
        plots(&mut paper, row);
    }
    paper.plots(vec![("rate".to_owned(), Plot::Chart(rates(rows)))]);
    paper.heading("The same load on three laws in the simulator");
    paper.paragraph(
        "The simulator has the directives, the clients and the mean of the waits; it has no \
         downloads and no network.",
    );
    let simulated = |title: &str, value: fn(&Sample) -> f64| {
        let mut chart = Chart::new(title, moment(), Axis::new("", Unit::Count));
        for (law, seen) in laws {
            let points = seen.samples.iter().map(|row| (row.second, value(row)));
            chart = chart.line(law.name(), points.collect());
        }
        Plot::Chart(chart)
    };
    paper.plots(vec![
        ("sim-workers".to_owned(), simulated("Workers", |row| row.workers as f64)),
        ("sim-waiting".to_owned(), simulated("Connections that wait", |row| row.waiting as f64)),
        ("sim-rate".to_owned(), simulated("Answers a second", |row| row.rate)),
    ]);
    let cells = |(law, seen): &(Which, Outcome)| {
        vec![
            law.name().to_owned(),
            seen.full_s.map_or("not".to_owned(), |full| numbers::time(full * 1e9)),
            seen.forks.to_string(),
            seen.retired.to_string(),
            seen.most_children.to_string(),
        ]
    };
    let heading = ["law", "nobody waits after", "started", "retired", "children at most"];
    paper.table(&heading, laws.iter().map(cells).collect());
    paper.heading("How it was made").code(&ground.words());
    paper
}

fn table(paper: &mut Paper, rows: &[Row]) {
    let cells = |row: &Row| {
        let (ended, of_step) = row.pool.ended();
        let response = &row.figures.times.response;
        let late = |quantile| numbers::time(response.value_at_quantile(quantile) as f64);
        vec![
            row.peer.name().to_owned(),
            row.full_s.map_or("not".to_owned(), |full| numbers::time(full * 1e9)),
            row.pool.queue_gone_s().map_or("not".to_owned(), |gone| numbers::time(gone * 1e9)),
            numbers::rate(row.figures.rate()),
            late(0.5),
            late(0.99),
            numbers::time(response.max() as f64),
            row.figures.fairness().never.to_string(),
            numbers::count(row.figures.failed()),
            row.pool.most_children().to_string(),
            row.pool.started().to_string(),
            ended.to_string(),
            of_step.to_string(),
            row.pool.most_idle().to_string(),
            format!("{} (bound {})", beyond(row), bound(row.peer)),
            numbers::count(row.pool.most_queued()),
            format!("{} of {}", row.downloads.heard, row.downloads.made - row.downloads.ended),
            row.downloads.ended.to_string(),
        ]
    };
    let heading = [
        "server",
        "full after",
        "nobody waits after",
        "answers/s",
        "median",
        "99 %",
        "slowest",
        "never served",
        "failed",
        "children at most",
        "started",
        "ended",
        "of the step ended",
        "idle at most",
        "beyond demand",
        "queue at most",
        "downloads begun",
        "and ended",
    ];
    paper.table(&heading, rows.iter().map(cells).collect());
}

/// The number of workers beyond the greatest demand.
fn beyond(row: &Row) -> i64 {
    row.pool.most_beyond_demand(row.peer.model() != Some(Model::Event))
}

/// The number of workers allowed beyond the greatest demand: MinSpare and one child.
fn bound(peer: Peer) -> i64 {
    let threads = if peer.model() == Some(Model::Prefork) { 1 } else { Pool::OF_2002.threads };
    (Pool::OF_2002.min_spare + threads) as i64
}

fn moment() -> Axis {
    Axis::new("since the clients came", Unit::Moment)
}

fn plots(paper: &mut Paper, row: &Row) {
    let name = row.peer.name();
    let pages = |value: fn(usize, usize) -> usize| -> Vec<(f64, f64)> {
        row.pool.pages.rows.iter().map(|it| (it.at_s, value(it.busy, it.idle) as f64)).collect()
    };
    let looks = &row.pool.looks.rows;
    let workers =
        Chart::new(&format!("{name}: workers"), moment(), Axis::new("workers", Unit::Count))
            .line("there", pages(|busy, idle| busy + idle))
            .line("busy", pages(|busy, _| busy))
            .line("idle", pages(|_, idle| idle))
            .line(
                "accept queue",
                looks.iter().map(|look| (look.at_s, look.queue as f64)).collect(),
            );
    let children =
        Chart::new(&format!("{name}: children"), moment(), Axis::new("children", Unit::Count))
            .line("children", looks.iter().map(|look| (look.at_s, look.children as f64)).collect());
    paper.plots(vec![
        (format!("workers-{name}"), Plot::Chart(workers)),
        (format!("children-{name}"), Plot::Chart(children)),
    ]);
}

fn rates(rows: &[Row]) -> Chart {
    let y = Axis::new("answers a second", Unit::Count);
    let mut chart = Chart::new("Answers a second", moment(), y);
    for row in rows {
        let whole = row.figures.seconds.len().saturating_sub(1);
        let seconds = row.figures.seconds.iter().take(whole);
        let points = seconds.map(|it| (f64::from(it.number), it.answered as f64));
        chart = chart.line(row.peer.name(), points.collect());
    }
    chart
}

fn worse(rows: &[Row]) -> Vec<String> {
    let mut sentences = Vec::new();
    for own in rows.iter().filter(|row| row.peer.is_own()) {
        let name = own.peer.name();
        let never = own.figures.fairness().never;
        if never > 0 {
            sentences.push(format!("{name}: {never} clients were never served."));
        }
        let (_, of_step) = own.pool.ended();
        if of_step > 0 {
            sentences.push(format!("{name}: {of_step} children that the step started have ended."));
        }
        let (beyond, bound) = (beyond(own), bound(own.peer));
        if beyond >= bound {
            sentences.push(format!("{name}: {beyond} workers beyond demand, not below {bound}."));
        }
        let same = |row: &&Row| !row.peer.is_own() && row.peer.model() == own.peer.model();
        for other in rows.iter().filter(same) {
            let full = |row: &Row| row.full_s.unwrap_or(f64::INFINITY);
            // The resolution is a tenth of a second.
            if full(other) + 0.1 < full(own) {
                let name = other.peer.name();
                sentences.push(format!("{name} has its full throughput sooner."));
            }
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Exchange;

    fn figures(ends_ms: impl Iterator<Item = u64>, seconds: u64) -> Figures {
        let exchange = |end_ms: u64| Exchange { end_ns: end_ms * 1_000_000, ..Exchange::default() };
        Figures {
            exchanges: ends_ms.map(exchange).collect(),
            elapsed_ns: seconds * 1_000_000_000,
            ..Figures::default()
        }
    }

    #[test]
    fn full_throughput_begins_where_a_second_has_enough_answers() {
        // One every 100 ms, and from the third second on one every 10 ms.
        let slow = (0..30).map(|n| n * 100);
        let fast = (0..700).map(|n| 3000 + n * 10);
        let full = full_after(&figures(slow.chain(fast), 10)).unwrap();
        assert!((2.9..=3.0).contains(&full), "{full}");
        assert_eq!(full_after(&figures((0..1000).map(|n| n * 10), 10)), Some(0.0));
    }

    #[test]
    fn requests_are_mixed() {
        let mut client = Mixed::new(7);
        let targets: Vec<String> = (0..1000).map(|_| client.target()).collect();
        let waits = targets.iter().filter(|it| it.starts_with("/wait?ms=")).count();
        assert!((550..650).contains(&waits), "{waits}");
        assert!(targets.iter().any(|it| it == "/1m.bin"));
    }
}
