//! The experiment `cpu-wait`: pages that need the CPU and pages that wait, from one client to ten
//! thousand. Throughput is bounded by cores / CPU time for the first and by workers / waiting time
//! for the second. Evenkeel burns and waits itself; for Apache and nginx php-fpm does so, or an
//! application of the lab if php-fpm is not installed.

use super::ground::Ground;
use super::overload::{Work, ask, fixed};
use super::paper::{Paper, Plot};
use super::{Fault, Options};
use crate::load::Figures;
use crate::numbers;
use crate::peers::{Peer, Pool, php};
use crate::plot::{Axis, Chart, Unit};
use crate::sim::Model;
use std::time::Duration;

/// The numbers of clients.
const CLIENTS: [u32; 10] = [1, 2, 8, 32, 128, 256, 512, 1024, 4096, 10_000];
/// The workers of Apache and the children of php-fpm.
const WORKERS: usize = 256;
/// The workers of Evenkeel in event, where waiting requests cost no thread.
const OUR_WORKERS: usize = 10_240;
/// How long a turn may become so that every client is served twice.
const LONGEST: Duration = Duration::from_secs(30);

struct Row {
    peer: Peer,
    work: Work,
    clients: u32,
    figures: Figures,
    /// The share of the servers' cores that was used.
    busy: f64,
}

/// Runs the experiment.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    let workers = options.workers.unwrap_or(WORKERS);
    let clients = if options.has_clients { options.grid.clients.clone() } else { CLIENTS.into() };
    let application = ground.start_backend()?;
    let mut rows = Vec::new();
    let mut by_php = false;
    for peer in ground.peers.clone() {
        ground.setup.pool = Some(if peer.is_own() { ours(peer) } else { fixed(peer, workers) });
        for work in [Work::Burn, Work::Wait] {
            for clients in &clients {
                // Both are started anew, because the clients of the previous turn left work behind.
                let fpm = match peer.is_own() {
                    true => None,
                    false => php(&ground.site, &ground.setup, workers)?,
                };
                by_php |= fpm.is_some();
                ground.setup.php = fpm.as_ref().map(|server| server.address);
                let Some(server) = ground.start(peer)? else { continue };
                let each = if work == Work::Wait { options.wait } else { options.burn };
                let bound = if work == Work::Wait { workers } else { ground.server_cores() };
                let rounds = each.mul_f64(2.0 * f64::from(*clients) / bound as f64);
                let long = options.turn.max(rounds.min(LONGEST));
                let families = || fpm.iter().chain([&server]).map(|it| it.family.cpu_us());
                let spent = || families().sum::<u64>();
                let before_us = spent();
                let name = format!("{}-{}/{clients}", peer.name(), work.name());
                let figures = ask(ground, &server, &work.path(options), *clients, long, &name)?;
                let spent_us = spent().saturating_sub(before_us);
                let cores_us = figures.elapsed_ns as f64 / 1e3 * ground.server_cores() as f64;
                let busy = spent_us as f64 / cores_us.max(1.0);
                let row = Row { peer, work, clients: *clients, figures, busy };
                ground.tell(&cells(&row).join("  "));
                rows.push(row);
            }
        }
    }
    drop(application);
    Ok(report(ground, options, workers, by_php, &rows))
}

/// Evenkeel's pool: many workers in event, where a waiting request costs no thread, and fewer where
/// it costs a thread or a process.
fn ours(peer: Peer) -> Pool {
    if peer.model() != Some(Model::Event) {
        return fixed(peer, WORKERS);
    }
    let threads = OUR_WORKERS / 2;
    Pool { start_servers: 2, threads, min_spare: threads, ..fixed(peer, OUR_WORKERS) }
}

fn report(ground: &Ground, options: &Options, workers: usize, by_php: bool, rows: &[Row]) -> Paper {
    let mut paper = Paper::new("CPU time and waiting", ground.origin());
    let behind = if by_php { "php-fpm" } else { "an application of the lab (no php-fpm here)" };
    paper.paragraph(&format!(
        "{} A page burns {} of CPU time or waits {}. Evenkeel does that itself (lab-burn, \
         lab-wait), in event with room for {OUR_WORKERS} requests at a time; Apache and nginx have \
         {behind} do it, with {workers} children. Cores of the servers: {}. So {} pages a second \
         is all that can be burned, and {} all that {workers} workers can wait for.",
        ground.who(),
        numbers::time(options.burn.as_nanos() as f64),
        numbers::time(options.wait.as_nanos() as f64),
        ground.server_cores(),
        numbers::rate(ground.server_cores() as f64 / options.burn.as_secs_f64()),
        numbers::rate(workers as f64 / options.wait.as_secs_f64()),
    ));
    for work in [Work::Burn, Work::Wait] {
        let title = if work == Work::Burn { "Pages that burn" } else { "Pages that wait" };
        paper.heading(title);
        let own: Vec<&Row> = rows.iter().filter(|row| row.work == work).collect();
        paper.plots(vec![(work.name().to_owned(), Plot::Chart(chart(title, &own)))]);
        let heading = [
            "server",
            "asked",
            "clients",
            "answers/s",
            "median",
            "99 %",
            "CPU of the cores",
            "failed",
            "never served",
        ];
        paper.table(&heading, own.iter().map(|row| cells(row)).collect());
    }
    paper.heading("How it was made").code(&ground.words());
    paper
}

fn chart(title: &str, rows: &[&Row]) -> Chart {
    let x = Axis::new("clients", Unit::Count).by_factors();
    let y = Axis::new("", Unit::Count);
    let mut chart = Chart::new(&format!("{title}: answers a second"), x, y);
    let mut peers: Vec<Peer> = rows.iter().map(|row| row.peer).collect();
    peers.dedup();
    for peer in peers {
        let own = rows.iter().filter(|row| row.peer == peer);
        let points = own.map(|row| (f64::from(row.clients), row.figures.rate())).collect();
        chart = chart.line(peer.name(), points);
    }
    chart
}

fn cells(row: &Row) -> Vec<String> {
    let response = &row.figures.times.response;
    let time = |quantile| numbers::time(response.value_at_quantile(quantile) as f64);
    vec![
        row.peer.name().to_owned(),
        row.work.name().to_owned(),
        numbers::count(u64::from(row.clients)),
        numbers::rate(row.figures.rate()),
        time(0.5),
        time(0.99),
        format!("{:.0} %", row.busy * 100.0),
        numbers::count(row.figures.failed()),
        numbers::count(row.figures.fairness().never as u64),
    ]
}
