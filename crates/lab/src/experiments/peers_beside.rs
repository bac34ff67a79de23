//! The experiment `static`: files of several sizes, 304 responses, and a connection for each
//! request. All servers run at the same time and have their turns, round after round.

use super::ground::{Asked, Ground, Turn};
use super::paper::{Paper, Plot};
use super::{Fault, Options};
use crate::load::Think;
use crate::numbers;
use crate::peers::{Peer, size_of};
use crate::plot::{Bar, Bars};
use std::borrow::Cow;
use std::time::Duration;

/// A smaller difference may be chance.
const CHANCE: f64 = 0.03;
/// How long each server is loaded before figures count.
const WARM: Duration = Duration::from_secs(1);

/// A scenario: its name for files, its title, and the requests.
struct Scenario {
    name: &'static str,
    title: &'static str,
    asked: Asked,
}

const SMALL: Asked = Asked {
    path: Cow::Borrowed("/1k.html"),
    clients: 64,
    think: Think::None,
    close: false,
    conditional: false,
};

const SCENARIOS: [Scenario; 6] = [
    Scenario { name: "small", title: "1 KiB, 64 kept connections", asked: SMALL },
    Scenario {
        name: "unchanged",
        title: "304 for a file of 1 KiB, 64 kept connections",
        asked: Asked { conditional: true, ..SMALL },
    },
    Scenario {
        name: "connections",
        title: "1 KiB, a connection for each request, 64 at a time",
        asked: Asked { close: true, ..SMALL },
    },
    Scenario {
        name: "medium",
        title: "100 KiB, 16 kept connections",
        asked: Asked { path: Cow::Borrowed("/100k.bin"), clients: 16, ..SMALL },
    },
    Scenario {
        name: "large",
        title: "1 MiB, 8 kept connections",
        asked: Asked { path: Cow::Borrowed("/1m.bin"), clients: 8, ..SMALL },
    },
    Scenario {
        name: "huge",
        title: "10 MiB, 4 kept connections",
        asked: Asked { path: Cow::Borrowed("/10m.bin"), clients: 4, ..SMALL },
    },
];

/// The medians of a peer's turns.
#[derive(Clone, Debug)]
struct Row {
    peer: Peer,
    rate: f64,
    least: f64,
    most: f64,
    cpu_ns: f64,
    median_ns: f64,
    late_ns: f64,
    failures: u64,
    busiest: f64,
}

impl Row {
    fn of(peer: Peer, turns: &[Turn]) -> Self {
        let rates: Vec<f64> = turns.iter().map(|turn| turn.figures.rate()).collect();
        Self {
            peer,
            rate: median(rates.iter().copied()),
            least: rates.iter().copied().fold(f64::INFINITY, f64::min),
            most: rates.iter().copied().fold(0.0, f64::max),
            cpu_ns: median(turns.iter().map(Turn::cpu_each_ns)),
            median_ns: median(turns.iter().map(|turn| turn.latency_ns(0.5))),
            late_ns: median(turns.iter().map(|turn| turn.latency_ns(0.99))),
            failures: turns.iter().map(|turn| turn.figures.failed()).sum(),
            busiest: median(turns.iter().map(|turn| turn.figures.busiest)),
        }
    }
}

/// Runs the experiment.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    let rounds = options.rounds.unwrap_or(5);
    let servers = ground.start_all()?;
    let mut results: Vec<(&Scenario, Vec<Row>)> = Vec::new();
    for scenario in &SCENARIOS {
        let asked = &scenario.asked;
        let able: Vec<_> = servers
            .iter()
            .filter(|(peer, _)| peer.serves(size_of(&asked.path), asked.conditional))
            .collect();
        for (_, server) in &able {
            ground.ask(server, asked, WARM.min(options.turn), None)?;
        }
        let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); able.len()];
        for round in 1..=rounds {
            for ((peer, server), turns) in able.iter().zip(&mut turns) {
                let name = format!("{}/{}-{round}", scenario.name, peer.name());
                let turn = ground.ask(server, asked, options.turn, Some(&name))?;
                ground.tell(&format!(
                    "{} round {round} {}: {} answers/s, {} of CPU each",
                    scenario.name,
                    peer.name(),
                    numbers::rate(turn.figures.rate()),
                    numbers::time(turn.cpu_each_ns())
                ));
                turns.push(turn);
            }
        }
        let rows = able.iter().zip(&turns).map(|((peer, _), turns)| Row::of(*peer, turns));
        results.push((scenario, rows.collect()));
    }
    Ok(report(ground, options, rounds, &results))
}

fn report(
    ground: &Ground,
    options: &Options,
    rounds: usize,
    results: &[(&Scenario, Vec<Row>)],
) -> Paper {
    let mut paper = Paper::new("Static files beside the peers", ground.origin());
    paper.heading("Where Evenkeel does worse");
    let worse: Vec<String> =
        results.iter().flat_map(|(scenario, rows)| worse(scenario.title, rows)).collect();
    if worse.is_empty() {
        let share = CHANCE * 100.0;
        paper.paragraph(&format!("Nowhere by more than {share:.0} %, which may be chance."));
    } else {
        paper.list(worse);
    }
    paper.paragraph(&format!(
        "{} The servers took turns, {rounds} rounds of {} each after a warming; figures are \
         medians. CPU is user and system time of all the server's processes. \
         All serve from disk with their access log on (HAProxy \
         answers from memory, without a log). TLS and HTTP/2 are not part of it.",
        ground.who(),
        numbers::time(options.turn.as_nanos() as f64)
    ));
    for (scenario, rows) in results {
        paper.heading(scenario.title);
        paper.plots(vec![
            bars(scenario, rows, "answers a second", |row| row.rate, numbers::rate),
            bars(scenario, rows, "CPU of the server an answer", |row| row.cpu_ns, numbers::time),
        ]);
        table(&mut paper, rows);
    }
    paper.heading("How it was made").code(&ground.words());
    paper
}

fn worse(title: &str, rows: &[Row]) -> Vec<String> {
    let Some(own) = rows.iter().find(|row| row.peer == Peer::Evenkeel) else { return Vec::new() };
    let mut sentences = Vec::new();
    for row in rows.iter().filter(|row| row.peer != Peer::Evenkeel) {
        let more = row.rate / own.rate.max(1e-9);
        let spent = own.cpu_ns / row.cpu_ns.max(1e-9);
        let later = own.late_ns / row.late_ns.max(1e-9);
        let mut parts = Vec::new();
        if more > 1.0 + CHANCE {
            parts.push(format!("{more:.2} times as many answers a second"));
        }
        if row.cpu_ns > 0.0 && spent > 1.0 + CHANCE {
            parts.push(format!("{:.2} of the CPU time an answer", 1.0 / spent));
        }
        if later > 1.0 + CHANCE {
            parts.push(format!("{:.2} of the response time at 99 %", 1.0 / later));
        }
        if own.failures > row.failures {
            parts.push(format!("{} failures against {}", row.failures, own.failures));
        }
        if !parts.is_empty() {
            sentences.push(format!("{title}: {} has {}.", row.peer.name(), parts.join(", ")));
        }
    }
    sentences
}

fn bars(
    scenario: &Scenario,
    rows: &[Row],
    what: &str,
    value: impl Fn(&Row) -> f64,
    show: impl Fn(f64) -> String,
) -> (String, Plot) {
    let bar = |row: &Row| Bar {
        name: row.peer.name().to_owned(),
        value: value(row),
        shown: show(value(row)),
        // Evenkeel has a colour of its own.
        colour: if row.peer == Peer::Evenkeel { 0 } else { 7 },
    };
    let title = format!("{}: {what}", scenario.title);
    let rows = rows.iter().map(bar).collect();
    let kind = if what.starts_with("CPU") { "cpu" } else { "rate" };
    (format!("{}-{kind}", scenario.name), Plot::Bars(Bars { title, rows }))
}

fn table(paper: &mut Paper, rows: &[Row]) {
    let base = rows.iter().find(|row| row.peer == Peer::Evenkeel);
    let ratio = |value: f64, base: Option<f64>| match base {
        Some(base) if base > 0.0 => format!("{:.2}", value / base),
        _ => "–".to_owned(),
    };
    let cells = |row: &Row| {
        vec![
            row.peer.name().to_owned(),
            numbers::rate(row.rate),
            format!("{} to {}", numbers::rate(row.least), numbers::rate(row.most)),
            ratio(row.rate, base.map(|base| base.rate)),
            numbers::time(row.cpu_ns),
            ratio(row.cpu_ns, base.map(|base| base.cpu_ns)),
            numbers::time(row.median_ns),
            numbers::time(row.late_ns),
            numbers::count(row.failures),
            format!("{:.0} %", row.busiest * 100.0),
        ]
    };
    let heading = [
        "server",
        "answers/s",
        "least to most",
        "× Evenkeel",
        "CPU an answer",
        "× Evenkeel",
        "median",
        "99 %",
        "failures",
        "client's busiest thread",
    ];
    paper.table(&heading, rows.iter().map(cells).collect());
}

/// The median; 0 if there are no values.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    if values.len() % 2 == 1 { at(half) } else { (at(half.saturating_sub(1)) + at(half)) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }

    #[test]
    fn what_is_worse_is_said_and_what_may_be_chance_is_not() {
        let row = |peer, rate, cpu_ns, late_ns| Row {
            peer,
            rate,
            least: rate,
            most: rate,
            cpu_ns,
            median_ns: 1.0,
            late_ns,
            failures: 0,
            busiest: 0.5,
        };
        let own = row(Peer::Evenkeel, 100.0, 10.0, 50.0);
        let rows = [own.clone(), row(Peer::Nginx, 102.0, 9.9, 49.0)];
        assert!(worse("t", &rows).is_empty());
        let rows = [own, row(Peer::Nginx, 110.0, 8.0, 100.0)];
        let told = worse("t", &rows);
        let wanted =
            "t: nginx has 1.10 times as many answers a second, 0.80 of the CPU time an answer.";
        assert_eq!(told, [wanted]);
    }
}
