//! `lab reload --slow`: a thousand clients send heads or bodies or read responses slowly, in each
//! process model with Apache's default directives. One more client requests a small file five times
//! a second, on a new connection each time. The server counts as unavailable for the time in which
//! this client is not answered within a second.

use super::ground::Ground;
use super::paper::Paper;
use super::{Fault, Options};
use crate::load::{Target, fetch};
use crate::numbers;
use crate::peers::{Peer, Pool, Server};
use crate::sim::Model;
use crate::slow::{Fate, Manner, Slow};
use std::time::{Duration, Instant};

/// The number of slow clients.
const CLIENTS: u32 = 1000;
/// A client that is not answered within this time counts as not served.
const PATIENCE: Duration = Duration::from_secs(1);
/// The interval of the requests of the client that is not slow.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// The bytes a second that a slow reader reads.
const READ_RATE: f64 = 50.0;

/// The ways of being slow, with their names.
const MANNERS: [(&str, Manner); 3] =
    [("heads", Manner::Head), ("bodies", Manner::Body), ("reading", Manner::Read(READ_RATE))];

struct Row {
    peer: Peer,
    manner: &'static str,
    fate: Fate,
    asked: usize,
    unavailable: Duration,
    slowest: Duration,
}

/// Runs the experiment.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    let clients = options.one_number_of_clients(CLIENTS);
    let mut rows = Vec::new();
    for peer in ground.peers.clone() {
        for (name, manner) in MANNERS {
            ground.setup.pool = peer.model().map(defaults);
            let Some(server) = ground.start(peer)? else { continue };
            let row = attack(ground, options.turn, peer, &server, (name, manner), clients)?;
            ground.tell(&cells(&row).join("  "));
            rows.push(row);
        }
    }
    Ok(report(ground, options, clients, &rows))
}

/// The defaults of Apache 2.4 (include/mpm_default.h of each model).
fn defaults(model: Model) -> Pool {
    let usual = Pool { buckets_ratio: None, start_delay_ms: 0, ..Pool::OF_2002 };
    match model {
        Model::Prefork => Pool {
            start_servers: 5,
            threads: 1,
            min_spare: 5,
            max_spare: 10,
            workers: 256,
            ..usual
        },
        Model::Worker | Model::Event => Pool {
            start_servers: 3,
            threads: 25,
            min_spare: 75,
            max_spare: 250,
            workers: 400,
            ..usual
        },
    }
}

fn attack(
    ground: &Ground,
    long: Duration,
    peer: Peer,
    server: &Server,
    (manner_name, manner): (&'static str, Manner),
    clients: u32,
) -> Result<Row, Fault> {
    let target = Target::parse(&format!("http://{}/1k.html", server.address))?;
    let remotes = target.resolve(None)?;
    let told = |error: std::io::Error| Fault::Told(format!("the system: {error}"));
    let path = if manner == Manner::Body { "/" } else { "/1m.bin" };
    let slow = Slow::begin(server.address, manner, path, clients as usize, false).map_err(told)?;
    let begun = Instant::now();
    let (mut asked, mut unavailable, mut slowest) = (0, Duration::ZERO, Duration::ZERO);
    while begun.elapsed() < long {
        ground.heed()?;
        let asks = Instant::now();
        let answer = fetch(&target, &remotes, None, PATIENCE);
        let took = asks.elapsed();
        asked += 1;
        match answer {
            Ok(answer) if answer.status == 200 => slowest = slowest.max(took),
            // The client tries again after a moment, and the time until then is lost too.
            _ => unavailable += took.max(ASK_EVERY),
        }
        std::thread::sleep(ASK_EVERY.saturating_sub(took));
    }
    let fate = slow.end();
    Ok(Row { peer, manner: manner_name, fate, asked, unavailable, slowest })
}

fn report(ground: &Ground, options: &Options, clients: u32, rows: &[Row]) -> Paper {
    let mut paper = Paper::new("Slow clients", ground.origin());
    paper.heading("Where Evenkeel does worse");
    let shut = rows.iter().filter(|row| row.peer.is_own() && !row.unavailable.is_zero());
    let worse: Vec<String> = shut
        .map(|row| {
            let time = numbers::time(row.unavailable.as_nanos() as f64);
            format!("{}, slow {}: unavailable for {time}.", row.peer.name(), row.manner)
        })
        .collect();
    if worse.is_empty() {
        paper.paragraph("Nowhere: it was never unavailable.");
    } else {
        paper.list(worse);
    }
    paper.paragraph(&format!(
        "{} {clients} slow clients each, for {}. Heads and bodies: a few bytes every ten seconds, \
         with no end; reading: {READ_RATE} bytes a second of 1 MiB. A client that the server has \
         ended does not come again. Directives are Apache's defaults, with RequestReadTimeout as \
         Debian has it.",
        ground.who(),
        numbers::time(options.turn.as_nanos() as f64),
    ));
    let heading = [
        "server",
        "slow",
        "unavailable",
        "slowest answer",
        "asked",
        "slow connections",
        "ended by the server",
    ];
    paper.table(&heading, rows.iter().map(cells).collect());
    paper.heading("How it was made").code(&ground.words());
    paper
}

fn cells(row: &Row) -> Vec<String> {
    vec![
        row.peer.name().to_owned(),
        row.manner.to_owned(),
        numbers::time(row.unavailable.as_nanos() as f64),
        numbers::time(row.slowest.as_nanos() as f64),
        row.asked.to_string(),
        numbers::count(row.fate.made),
        numbers::count(row.fate.ended),
    ]
}
