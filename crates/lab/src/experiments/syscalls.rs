//! The experiment `syscalls`: the system calls of a request by name, on kept connections and on
//! connections of one request, counted by strace. Tracing slows a server, so that fewer requests
//! share a wait: the counts are upper bounds, in the same way for all servers.

use super::ground::{Asked, Ground};
use super::paper::{Paper, Plot};
use super::{Fault, Options};
use crate::calls::{self, Calls};
use crate::load::Think;
use crate::numbers;
use crate::peers::{Peer, Server};
use crate::plot::{Bar, Bars};
use std::borrow::Cow;
use std::time::Duration;

const KEPT: Asked = Asked {
    path: Cow::Borrowed("/1k.html"),
    clients: 64,
    think: Think::None,
    close: false,
    conditional: false,
};

/// The ways in which a request arrives, with their names for files.
const WAYS: [(&str, &str, bool); 2] =
    [("kept", "on a kept connection", false), ("once", "on a connection of one request", true)];

/// The calls of a peer for each of these ways.
type Row = (Peer, Vec<Calls>);

/// Runs the experiment.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    let rounds = options.rounds.unwrap_or(5);
    let mut rows: Vec<Row> = Vec::new();
    for peer in ground.peers.clone() {
        let Some(server) = ground.start(peer)? else { continue };
        let mut sums = Vec::new();
        for (name, _, close) in WAYS {
            let asked = Asked { close, ..KEPT };
            // By now the server has done what it does once for each connection or file.
            ground.ask(&server, &asked, options.turn.min(Duration::from_secs(1)), None)?;
            let mut sum = Calls::default();
            for _ in 0..rounds {
                sum = sum.plus(&count(ground, &server, &asked, options.turn)?);
            }
            ground.tell(&format!("{} {name}: {:.2} calls", peer.name(), sum.each()));
            sums.push(sum);
        }
        rows.push((peer, sums));
    }
    Ok(report(ground, options, rounds, &rows))
}

fn count(ground: &Ground, server: &Server, asked: &Asked, long: Duration) -> Result<Calls, Fault> {
    let folder = ground.site.path().join("logs");
    let mut fault = None;
    let counted = calls::count(server.family, &folder, || {
        let turn = ground.ask(server, asked, long, None);
        turn.map(|turn| turn.figures.answered()).map_err(|own| {
            fault = Some(own);
            String::new()
        })
    });
    match (counted, fault) {
        (_, Some(fault)) => Err(fault),
        (counted, None) => Ok(counted?),
    }
}

fn report(ground: &Ground, options: &Options, rounds: usize, rows: &[Row]) -> Paper {
    let mut paper = Paper::new("System calls a request", ground.origin());
    paper.heading("Where Evenkeel does worse");
    let worse = worse(rows);
    if worse.is_empty() {
        paper.paragraph("Nowhere: no peer makes fewer calls.");
    } else {
        paper.list(worse);
    }
    paper.paragraph(&format!(
        "{} Counted by strace -c -f over {rounds} samples of {} with 64 connections, for a file \
         of 1 KiB, after a warming. A traced server is slow, so that fewer requests share a wait: \
         without a tracer there are fewer waits for each.",
        ground.who(),
        numbers::time(options.turn.as_nanos() as f64)
    ));
    for (index, (name, title, _)) in WAYS.into_iter().enumerate() {
        paper.heading(&format!("A request {title}"));
        let of = |row: &Row| row.1.get(index).cloned().unwrap_or_default();
        let bar = |row: &Row| Bar {
            name: row.0.name().to_owned(),
            value: of(row).each(),
            shown: format!("{:.2}", of(row).each()),
            colour: if row.0 == Peer::Evenkeel { 0 } else { 7 },
        };
        let title = format!("System calls of a request {title}");
        let bars = Bars { title, rows: rows.iter().map(bar).collect() };
        paper.plots(vec![(format!("calls-{name}"), Plot::Bars(bars))]);
        let cells = |row: &Row| {
            let calls = of(row);
            vec![
                row.0.name().to_owned(),
                numbers::count(calls.requests),
                format!("{:.2}", calls.each()),
                format!("{:.2}", calls.failed()),
                format!("{:.2}", calls.each_of("open")),
                calls.told(),
            ]
        };
        let heading = ["server", "requests", "calls each", "failed", "opens", "by name"];
        paper.table(&heading, rows.iter().map(cells).collect());
    }
    paper.heading("How it was made").code(&ground.words());
    paper
}

fn worse(rows: &[Row]) -> Vec<String> {
    let Some((_, own)) = rows.iter().find(|(peer, _)| *peer == Peer::Evenkeel) else {
        return Vec::new();
    };
    let mut sentences = Vec::new();
    for (peer, calls) in rows {
        for ((calls, own), (_, title, _)) in calls.iter().zip(own).zip(WAYS) {
            // A hundredth of a call is one wait in a hundred requests.
            if calls.each() + 0.01 < own.each() {
                let (peer, own, other) = (peer.name(), own.each(), calls.each());
                sentences
                    .push(format!("{peer} makes {other:.2} calls {title}, Evenkeel {own:.2}."));
            }
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_makes_fewer_calls_is_named() {
        let calls = |count| Calls {
            requests: 100,
            by_name: vec![("read".into(), count, 0)],
            ..Calls::default()
        };
        let rows = [
            (Peer::Evenkeel, vec![calls(210), calls(600)]),
            (Peer::Nginx, vec![calls(400), calls(599)]),
            (Peer::H2o, vec![calls(200), calls(700)]),
        ];
        let wanted = "h2o makes 2.00 calls on a kept connection, Evenkeel 2.10.";
        assert_eq!(worse(&rows), [wanted]);
    }
}
