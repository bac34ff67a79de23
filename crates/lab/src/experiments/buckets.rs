//! The experiment `buckets`: compares one accept queue with several. Evenkeel has one queue, or one
//! for each core of this machine, for small files on connections of one request and for requests
//! that burn CPU time. One queue on many cores is simulated, with costs fitted to a published
//! report.

use super::ground::{Asked, Ground, source};
use super::overload::Work;
use super::paper::{Paper, Plot};
use super::{Fault, Options};
use crate::load::{Bounds, Figures, Think};
use crate::numbers;
use crate::peers::{Peer, Pool};
use crate::plot::{Axis, Chart, Unit};
use crate::sim::{Outcome, Taking, load_many_cores, load_twelve_workers};
use std::time::Duration;

/// The numbers of cores that are simulated, and for how many seconds.
const CORES: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];
const SIMULATED_S: f64 = 1.0;
/// How long the twelve workers are loaded in the simulation, in seconds.
const TWELVE_S: f64 = 120.0;
/// The loads on the real server: what requests do, the number of clients, whether each request has
/// its own connection.
const LOADS: [(Work, u32, bool); 5] = [
    (Work::File, 64, true),
    (Work::File, 64, false),
    (Work::Burn, 2, true),
    (Work::Burn, 4, true),
    (Work::Burn, 8, true),
];

struct Row {
    peer: Peer,
    split: bool,
    load: (Work, u32, bool),
    figures: Figures,
}

/// Runs the experiment.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    let _application = ground.start_backend()?;
    // The number of queues depends on the cores, so the server has all cores and shares them with
    // the clients.
    ground.setup.cores.clear();
    let cores = ground.server_cores();
    let mut rows = Vec::new();
    for peer in ground.peers.clone() {
        for split in [false, true] {
            let usual = Pool { workers: 256, start_servers: 4, max_spare: 256, ..Pool::OF_2002 };
            // The ratio is that of cores to queues. There are never more queues than cores.
            let buckets_ratio = Some(if split { 1 } else { cores });
            ground.setup.pool = Some(Pool { buckets_ratio, ..usual });
            let Some(server) = ground.start(peer)? else { continue };
            for (work, clients, close) in LOADS {
                let path = work.path(options).into();
                let asked = Asked { path, clients, think: Think::None, close, conditional: false };
                let bounds = Bounds { time: Some(options.turn), ..Bounds::default() };
                let plan = ground.plan(&server, &asked, bounds);
                let mut source = source(&asked, None);
                let figures = ground.drive(plan, &mut source, None, &mut |_| Ok(true))?;
                let row = Row { peer, split, load: (work, clients, close), figures };
                ground.tell(&cells(&row).join("  "));
                rows.push(row);
            }
        }
    }
    ground.tell("simulating 2 to 128 cores");
    let simulated: Vec<(usize, [Outcome; 3])> = CORES
        .into_iter()
        .map(|cores| {
            let of = |taking| load_many_cores(cores, taking, SIMULATED_S);
            (cores, [of(Taking::One), of(Taking::Serialised), of(Taking::Split)])
        })
        .collect();
    Ok(report(ground, options, &rows, &simulated))
}

fn report(
    ground: &Ground,
    options: &Options,
    rows: &[Row],
    simulated: &[(usize, [Outcome; 3])],
) -> Paper {
    let mut paper = Paper::new("One accept queue and several", ground.origin());
    paper.paragraph(&format!(
        "{} The server and the clients share all {} cores; several queues are one for each core \
         (ListenCoresBucketsRatio 1). Each turn lasts {}, a request that burns takes {} of CPU \
         time.",
        ground.who(),
        ground.server_cores(),
        numbers::time(options.turn.as_nanos() as f64),
        numbers::time(options.burn.as_nanos() as f64),
    ));
    paper.heading("On this machine");
    let heading =
        ["server", "queues", "asked", "answers/s", "median", "99 %", "deviation", "failed"];
    paper.table(&heading, rows.iter().map(cells).collect());
    paper.heading("Many cores, simulated");
    paper.paragraph(
        "Requests of a millisecond of CPU time, a connection each, four children and clients for \
         each core; a queue for every eight cores where there are several. The costs of accepting \
         (a lock held for 14 microseconds and 0.25 more for each core that shares it, 3 of CPU \
         time for each of these, 27 more for a mutex around it) are fitted to bug 56279 of Apache, \
         not measured: 60 % of the CPU could be used on 64 threads with one Listen line and 70 % \
         on 32 with two; queues of their own gave 20 % at 48 threads and 10 % at 32.",
    );
    let share = |seen: &Outcome| format!("{:.0} %", seen.utilisation * 100.0);
    let cells = |(cores, [one, serial, split]): &(usize, [Outcome; 3])| {
        let gain = split.answered as f64 / one.answered.max(1) as f64 - 1.0;
        vec![
            cores.to_string(),
            share(one),
            share(serial),
            share(split),
            format!("{:+.0} %", gain * 100.0),
        ]
    };
    let heading =
        ["cores", "one queue: CPU used", "with a mutex", "several queues", "answers for several"];
    paper.table(&heading, simulated.iter().map(cells).collect());
    paper.plots(vec![("cores".to_owned(), Plot::Chart(chart(simulated)))]);
    paper.heading("The tail, simulated");
    let deviation = |queues| {
        let seen = load_twelve_workers(queues, TWELVE_S);
        let late = numbers::time(seen.response.value_at_quantile(0.99) as f64);
        vec![queues.to_string(), numbers::time(seen.response.stdev()), late]
    };
    paper.paragraph(
        "Twelve workers on twelve cores, 20 ms of CPU time a request, 400 requests a second \
         (Cloudflare reported a deviation of 1.6 ms with one queue and of 25.3 ms with twelve).",
    );
    paper.table(&["queues", "deviation", "99 %"], vec![deviation(1), deviation(12)]);
    paper.heading("How it was made").code(&ground.words());
    paper
}

fn chart(simulated: &[(usize, [Outcome; 3])]) -> Chart {
    let x = Axis::new("cores", Unit::Count).by_factors();
    let mut chart = Chart::new("Answers a second, simulated", x, Axis::new("", Unit::Count));
    let names = ["one queue", "one queue, mutex", "several queues"];
    for (index, name) in names.into_iter().enumerate() {
        let rate = |seen: &Outcome| seen.answered as f64 / SIMULATED_S;
        let points = simulated
            .iter()
            .filter_map(|(cores, all)| all.get(index).map(|seen| (*cores as f64, rate(seen))));
        chart = chart.line(name, points.collect());
    }
    chart
}

fn cells(row: &Row) -> Vec<String> {
    let (work, clients, close) = row.load;
    let what = if work == Work::File { "1 KiB" } else { "burns" };
    let way = if close { "a connection each" } else { "kept" };
    let response = &row.figures.times.response;
    let time = |ns: u64| numbers::time(Duration::from_nanos(ns).as_nanos() as f64);
    vec![
        row.peer.name().to_owned(),
        if row.split { "one a core" } else { "one" }.to_owned(),
        format!("{what}, {clients} clients, {way}"),
        numbers::rate(row.figures.rate()),
        time(response.value_at_quantile(0.5)),
        time(response.value_at_quantile(0.99)),
        numbers::time(response.stdev()),
        numbers::count(row.figures.failed()),
    ]
}
