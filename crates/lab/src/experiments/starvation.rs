//! The experiment `starvation`: greedy clients on kept connections, twice and sixteen times as many
//! as there are workers, whose requests wait. Where a connection holds its worker, the first
//! clients could keep it. The report says what each client got, how long the slowest waited
//! relative to its fair share, and which were cut off.

use super::ground::Ground;
use super::overload::{Work, ask, fixed};
use super::paper::Paper;
use super::{Fault, Options};
use crate::load::Figures;
use crate::numbers;
use crate::peers::{Peer, Server};
use std::time::Duration;

/// The workers of the servers that have such a number.
const WORKERS: usize = 256;
/// The numbers of clients.
const CLIENTS: [u32; 2] = [512, 4096];
/// No client should wait longer than this multiple of the time of a fair share.
const PATIENCE_SHARES: f64 = 2.0;

/// The interval of samples of whether a server still starts workers, how many equal samples there
/// must be, and the most samples.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: usize = 5;
const MOST_LOOKS: usize = 100;

/// The result of a load.
struct Row {
    peer: Peer,
    clients: u32,
    figures: Figures,
    /// The time in which every client can be served once, in nanoseconds.
    share_ns: f64,
}

/// Runs the experiment.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    let workers = options.workers.unwrap_or(WORKERS);
    let clients = if options.has_clients { options.grid.clients.clone() } else { CLIENTS.into() };
    let _application = ground.start_backend()?;
    let mut rows = Vec::new();
    for peer in ground.peers.clone() {
        ground.setup.pool = Some(fixed(peer, workers));
        for clients in &clients {
            // Each load has a new server, without connections of earlier clients.
            let Some(server) = ground.start(peer)? else { continue };
            await_workers(ground, || threads(&server))?;
            let name = format!("{}/{clients}", peer.name());
            let path = Work::Wait.path(options);
            let figures = ask(ground, &server, &path, *clients, options.turn, &name)?;
            let share_ns =
                options.wait.as_nanos() as f64 * (f64::from(*clients) / workers as f64).max(1.0);
            let row = Row { peer, clients: *clients, figures, share_ns };
            ground.tell(&cells(&row).join("  "));
            rows.push(row);
        }
    }
    Ok(report(ground, options, workers, &rows))
}

/// Waits until a server has started all its threads. This experiment measures how fairly workers
/// are shared, not how fast they start.
fn await_workers(ground: &Ground, mut threads: impl FnMut() -> u64) -> Result<(), Fault> {
    let (mut before, mut same) = (0, 0);
    for _ in 0..MOST_LOOKS {
        ground.heed()?;
        let now = threads();
        same = if now == before { same + 1 } else { 1 };
        before = now;
        if same == LOOKS {
            break;
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn threads(server: &Server) -> u64 {
    server.family.members().iter().map(|member| member.threads).sum()
}

fn report(ground: &Ground, options: &Options, workers: usize, rows: &[Row]) -> Paper {
    let mut paper = Paper::new("Starvation", ground.origin());
    paper.heading("Where Evenkeel does worse");
    let worse = worse(rows);
    if worse.is_empty() {
        paper.paragraph("Nowhere: everybody is served within twice a fair share's time.");
    } else {
        paper.list(worse);
    }
    paper.paragraph(&format!(
        "{} {workers} workers (nginx has no such number), requests that wait {}; each client keeps \
         its connection as long as it may and asks again, for {}, as soon as it is answered. They \
         come when the server has started all that it starts with. A fair share's time is how \
         long it takes to serve everybody once.",
        ground.who(),
        numbers::time(options.wait.as_nanos() as f64),
        numbers::time(options.turn.as_nanos() as f64),
    ));
    let heading = [
        "server",
        "clients",
        "answers/s",
        "least",
        "median",
        "most",
        "Jain's index",
        "never served",
        "fair share's time",
        "slowest",
        "cut off",
    ];
    paper.table(&heading, rows.iter().map(cells).collect());
    paper.heading("How it was made").code(&ground.words());
    paper
}

fn cells(row: &Row) -> Vec<String> {
    let fair = row.figures.fairness();
    vec![
        row.peer.name().to_owned(),
        numbers::count(u64::from(row.clients)),
        numbers::rate(row.figures.rate()),
        numbers::count(fair.least),
        numbers::count(fair.median),
        numbers::count(fair.most),
        format!("{:.3}", fair.index),
        numbers::count(fair.never as u64),
        numbers::time(row.share_ns),
        numbers::time(row.figures.times.response.max() as f64),
        numbers::count(row.figures.failed()),
    ]
}

fn worse(rows: &[Row]) -> Vec<String> {
    let mut sentences = Vec::new();
    for row in rows.iter().filter(|row| row.peer.is_own()) {
        let (name, clients) = (row.peer.name(), row.clients);
        let never = row.figures.fairness().never;
        if never > 0 {
            sentences.push(format!("{name}, {clients} clients: {never} were never served."));
        }
        if row.figures.failed() > 0 {
            let failed = numbers::count(row.figures.failed());
            sentences.push(format!("{name}, {clients} clients: {failed} requests were cut off."));
        }
        let shares = row.figures.times.response.max() as f64 / row.share_ns.max(1.0);
        if shares > PATIENCE_SHARES {
            let told = format!("the slowest waited {shares:.1} times a fair share's time");
            sentences.push(format!("{name}, {clients} clients: {told}."));
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Failure;

    #[test]
    fn who_waits_for_too_long_is_told() {
        let row = |by_client: Vec<u64>, slowest_ns| {
            let mut figures = Figures { by_client, ..Figures::default() };
            figures.times.response.record(slowest_ns).unwrap();
            Row { peer: Peer::EvenkeelWorker, clients: 2, figures, share_ns: 1e6 }
        };
        assert!(worse(&[row(vec![3, 2], 1_900_000)]).is_empty());
        let mut bad = row(vec![3, 0], 3_000_000);
        bad.figures.failures = [(Failure::Reset, 7)].into();
        assert_eq!(
            worse(&[bad]),
            [
                "evenkeel-worker, 2 clients: 1 were never served.",
                "evenkeel-worker, 2 clients: 7 requests were cut off.",
                "evenkeel-worker, 2 clients: the slowest waited 3.0 times a fair share's time.",
            ]
        );
    }
}
