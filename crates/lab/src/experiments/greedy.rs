//! The experiment `greedy`, after the study of 2003: clients without a pause and clients with one,
//! over the number of clients, and then both for minutes. Greedy clients should get as much as
//! paused ones, and a server should be as fast at the end as at the beginning.

use super::ground::{Asked, Ground, source};
use super::paper::{Paper, Plot};
use super::peers_beside::median;
use super::{Fault, Options};
use crate::load::{Bounds, Figures, Think};
use crate::numbers;
use crate::peers::{Peer, Server};
use crate::plot::{Axis, Chart, Unit};
use crate::sweep::{self, Cell, Sweep, pause};
use std::borrow::Cow;

const SMALL: Asked = Asked {
    path: Cow::Borrowed("/1k.html"),
    clients: 64,
    think: Think::None,
    close: false,
    conditional: false,
};
/// The pause of the long run, which is that of the study.
const PAUSE: Think = Think::Fixed(1e-6);
/// A smaller difference may be chance.
const CHANCE: f64 = 0.03;

/// The result of a peer.
struct Row {
    peer: Peer,
    /// For each pair, the round in the middle.
    sweep: Sweep,
    greedy: Figures,
    paused: Figures,
}

/// Runs the experiment.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    let rounds = options.rounds.unwrap_or(3);
    let servers = ground.start_all()?;
    let mut sweeps: Vec<Vec<Sweep>> = vec![Vec::new(); servers.len()];
    for round in 1..=rounds {
        for ((peer, server), sweeps) in servers.iter().zip(&mut sweeps) {
            sweeps.push(sweep_one(ground, options, *peer, server, round)?);
        }
    }
    let mut rows = Vec::new();
    for ((peer, server), sweeps) in servers.iter().zip(&sweeps) {
        let long = |think: Think, name: &str| {
            ground.tell(&format!("{} {name}, {:?}", peer.name(), options.long));
            let asked = Asked { think, ..SMALL };
            let name = format!("{}/long-{name}", peer.name());
            ground.ask(server, &asked, options.long, Some(&name)).map(|turn| turn.figures)
        };
        let (greedy, paused) = (long(Think::None, "greedy")?, long(PAUSE, "paused")?);
        rows.push(Row { peer: *peer, sweep: middle(sweeps), greedy, paused });
    }
    Ok(report(ground, options, rounds, &rows))
}

fn sweep_one(
    ground: &Ground,
    options: &Options,
    peer: Peer,
    server: &Server,
    round: usize,
) -> Result<Sweep, Fault> {
    let bounds = Bounds { time: Some(options.turn), ..Bounds::default() };
    let plan = ground.plan(server, &SMALL, bounds);
    let (folder, about) = ground.saving_of(peer, &format!("{}/round-{round}", peer.name()));
    let mut over = false;
    let mut is_over = || {
        over = over || ground.is_over();
        over
    };
    let mut each = |cell: &Cell| {
        let rate = numbers::rate(cell.figures.rate());
        let (clients, think) = (cell.clients, pause(&cell.think));
        let name = peer.name();
        ground.tell(&format!("round {round} {name}: {clients} clients, pause {think}: {rate}/s"));
    };
    let mut requests = source(&SMALL, None);
    let save = Some((folder.as_path(), &about));
    let sweep = sweep::run(&options.grid, &plan, &mut requests, save, &mut is_over, &mut each)?;
    if over { Err(Fault::Interrupted) } else { Ok(sweep) }
}

/// For each pair, the round with the median throughput.
fn middle(sweeps: &[Sweep]) -> Sweep {
    let mut cells: Vec<Cell> = Vec::new();
    for cell in sweeps.first().map(|sweep| sweep.cells.as_slice()).unwrap_or_default() {
        let same = |other: &&Cell| other.clients == cell.clients && other.think == cell.think;
        let mut rounds: Vec<&Cell> =
            sweeps.iter().filter_map(|sweep| sweep.cells.iter().find(same)).collect();
        rounds.sort_by(|one, other| one.figures.rate().total_cmp(&other.figures.rate()));
        cells.extend(rounds.get(rounds.len() / 2).map(|cell| (*cell).clone()));
    }
    Sweep { cells }
}

/// The answers a second in the first and in the last tenth of a run, without the incomplete second
/// at its end.
fn tenths(figures: &Figures) -> Option<(f64, f64)> {
    let whole = figures.seconds.len().checked_sub(1).filter(|count| *count >= 2)?;
    let tenth = whole.div_ceil(10);
    let mean = |from: usize| -> f64 {
        let seconds = figures.seconds.iter().skip(from).take(tenth);
        seconds.map(|second| second.answered as f64).sum::<f64>() / tenth as f64
    };
    Some((mean(0), mean(whole - tenth)))
}

/// The greatest throughput with a pause, and without one.
fn best(sweep: &Sweep) -> (Option<f64>, Option<f64>) {
    let most = |paused: bool| {
        let cells = sweep.cells.iter().filter(|cell| cell.think.is_none() != paused);
        cells.map(|cell| cell.figures.rate()).reduce(f64::max)
    };
    (most(true), most(false))
}

fn report(ground: &Ground, options: &Options, rounds: usize, rows: &[Row]) -> Paper {
    let mut paper = Paper::new("Greedy clients and clients that pause", ground.origin());
    paper.heading("Where Evenkeel does worse");
    let worse = worse(rows);
    if worse.is_empty() {
        let share = CHANCE * 100.0;
        paper.paragraph(&format!("Nowhere by more than {share:.0} %, which may be chance."));
    } else {
        paper.list(worse);
    }
    paper.paragraph(&format!(
        "{} A file of 1 KiB on kept connections. The grid has {rounds} rounds of {} for each pair, \
         the servers in turns, and shows of each pair the round in the middle; the long runs have \
         64 clients and last {}.",
        ground.who(),
        numbers::time(options.turn.as_nanos() as f64),
        numbers::time(options.long.as_nanos() as f64)
    ));
    long_runs(&mut paper, rows);
    paper.heading("Throughput over clients and pauses");
    let heat = |row: &Row| {
        let name = row.peer.name();
        (
            format!("surface-{name}"),
            Plot::Heat(row.sweep.heat(&format!("{name}: answers a second"))),
        )
    };
    paper.plots(rows.iter().map(heat).collect());
    paper.plots(vec![("clients".to_owned(), Plot::Chart(against_clients(rows)))]);
    for row in rows {
        paper.heading(row.peer.name());
        let (heading, cells) = row.sweep.table();
        let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
        paper.table(&heading, cells);
    }
    paper.heading("How it was made").code(&ground.words());
    paper
}

fn against_clients(rows: &[Row]) -> Chart {
    let x = Axis::new("clients", Unit::Count).by_factors();
    let y = Axis::new("answers a second", Unit::Count);
    let mut chart = Chart::new("Greedy clients, by their number", x, y);
    for row in rows {
        let cells = row.sweep.cells.iter().filter(|cell| cell.think.is_none());
        let points = cells.map(|cell| (f64::from(cell.clients), cell.figures.rate()));
        chart = chart.line(row.peer.name(), points.collect());
    }
    chart
}

fn long_runs(paper: &mut Paper, rows: &[Row]) {
    paper.heading("Over time");
    let x = || Axis::new("since the beginning", Unit::Moment);
    let y = || Axis::new("answers a second", Unit::Count);
    let mut greedy = Chart::new("Greedy clients over time", x(), y());
    let mut paused =
        Chart::new(&format!("Clients with a pause of {} over time", pause(&PAUSE)), x(), y());
    let points = |figures: &Figures| -> Vec<(f64, f64)> {
        let whole = figures.seconds.len().saturating_sub(1);
        let seconds = figures.seconds.iter().take(whole);
        seconds.map(|second| (f64::from(second.number), second.answered as f64)).collect()
    };
    let mut cells = Vec::new();
    for row in rows {
        greedy = greedy.line(row.peer.name(), points(&row.greedy));
        paused = paused.line(row.peer.name(), points(&row.paused));
        let pauses = &row.paused.times.pause;
        let (first, last) = tenths(&row.greedy).unzip();
        let rate = |value: Option<f64>| value.map_or("–".to_owned(), numbers::rate);
        let ratio = last.zip(first).filter(|(_, first)| *first > 0.0);
        cells.push(vec![
            row.peer.name().to_owned(),
            numbers::rate(row.greedy.rate()),
            numbers::rate(row.paused.rate()),
            format!("{:.2}", row.greedy.rate() / row.paused.rate().max(1e-9)),
            numbers::time(pauses.value_at_quantile(0.5) as f64),
            rate(first),
            rate(last),
            ratio.map_or("–".to_owned(), |(last, first)| format!("{:.2}", last / first)),
        ]);
    }
    paper.plots(vec![
        ("long-greedy".to_owned(), Plot::Chart(greedy)),
        ("long-paused".to_owned(), Plot::Chart(paused)),
    ]);
    let heading = [
        "server",
        "greedy, answers/s",
        "paused, answers/s",
        "greedy / paused",
        "pause that came about",
        "greedy, first tenth",
        "greedy, last tenth",
        "last / first",
    ];
    paper.table(&heading, cells);
}

fn worse(rows: &[Row]) -> Vec<String> {
    let Some(own) = rows.iter().find(|row| row.peer == Peer::Evenkeel) else { return Vec::new() };
    let mut sentences = Vec::new();
    if let (Some(paused), Some(greedy)) = best(&own.sweep)
        && greedy < paused * (1.0 - CHANCE)
    {
        let share = greedy / paused;
        sentences.push(format!("Its greedy clients get {share:.2} of what its paused ones get."));
    }
    if let Some((first, last)) = tenths(&own.greedy)
        && last < first * (1.0 - CHANCE)
    {
        let share = last / first;
        sentences.push(format!("The last tenth of its long run is {share:.2} of the first."));
    }
    for row in rows.iter().filter(|row| row.peer != Peer::Evenkeel) {
        let name = row.peer.name();
        let more = row.greedy.rate() / own.greedy.rate().max(1e-9);
        if more > 1.0 + CHANCE {
            sentences.push(format!("{name} answers {more:.2} times as many in the long run."));
        }
        let ratios = own.sweep.cells.iter().filter_map(|own| {
            let same = |other: &&Cell| other.clients == own.clients && other.think == own.think;
            let other = row.sweep.cells.iter().find(same)?;
            let ratio = other.figures.rate() / own.figures.rate().max(1e-9);
            (ratio > 1.0 + CHANCE).then_some((own, ratio))
        });
        for (cell, ratio) in ratios {
            let (clients, think) = (cell.clients, pause(&cell.think));
            sentences.push(format!(
                "{name} answers {ratio:.2} times as many with {clients} clients and a pause of {think}."
            ));
        }
    }
    let never = median(own.sweep.cells.iter().map(|cell| cell.figures.fairness().never as f64));
    if never > 0.0 {
        sentences.push(format!("{never:.0} of its clients were never served."));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Second;

    fn figures(rates: &[u64]) -> Figures {
        let second = |(number, answered): (usize, &u64)| Second {
            answered: *answered,
            ..Second::new(u32::try_from(number).unwrap())
        };
        Figures {
            statuses: [(200, rates.iter().sum())].into(),
            seconds: rates.iter().enumerate().map(second).collect(),
            elapsed_ns: rates.len() as u64 * 1_000_000_000,
            ..Figures::default()
        }
    }

    fn cell(clients: u32, think: Think, rate: u64) -> Cell {
        Cell { clients, think, figures: figures(&[rate]) }
    }

    #[test]
    fn the_round_in_the_middle_is_shown() {
        let sweep = |rate| Sweep { cells: vec![cell(1, Think::None, rate)] };
        let middle = middle(&[sweep(30), sweep(10), sweep(20)]);
        assert_eq!(middle.cells[0].figures.answered(), 20);
    }

    #[test]
    fn the_last_tenth_is_held_against_the_first() {
        let mut rates = vec![100; 18];
        rates.extend([50, 50, 3]);
        assert_eq!(tenths(&figures(&rates)), Some((100.0, 50.0)));
        assert_eq!(tenths(&figures(&[100, 3])), None);
    }

    #[test]
    fn what_is_worse_is_said() {
        let row = |peer, greedy: u64, paused: u64| Row {
            peer,
            sweep: Sweep { cells: vec![cell(1, Think::None, greedy), cell(1, PAUSE, paused)] },
            greedy: figures(&[greedy; 4]),
            paused: figures(&[paused; 4]),
        };
        let told = worse(&[row(Peer::Evenkeel, 90, 100), row(Peer::Nginx, 99, 100)]);
        assert_eq!(
            told,
            [
                "Its greedy clients get 0.90 of what its paused ones get.",
                "nginx answers 1.10 times as many in the long run.",
                "nginx answers 1.10 times as many with 1 clients and a pause of 0.",
            ]
        );
        assert!(worse(&[row(Peer::Evenkeel, 100, 100), row(Peer::Nginx, 99, 100)]).is_empty());
    }
}
