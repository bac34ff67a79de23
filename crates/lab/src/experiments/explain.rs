//! The experiment `explain`: a dozen cases with a different limit each. Each server is first loaded
//! below saturation, where `explain` is asked what would bind at how many requests a second. Then
//! it is driven to saturation and asked again. The exit status is 1 if a limit is not named, or if
//! a prediction is off by more than a tenth.

mod cases;

use super::confine::{self, Bound, Group};
use super::ground::{Ground, mean, whole_seconds};
use super::paper::Paper;
use super::{Fault, Options};
use crate::explain::{Told, figures};
use crate::load::{Bounds, Pace, Plan, Timeouts};
use crate::numbers;
use crate::peers::{Peer, Pool, Server, Setup, size_of};
use crate::slow::{Manner, Slow};
use cases::{CASES, Case, Load, Room, What};
use std::time::{Duration, Instant};

/// How far a prediction may be off.
const TENTH: f64 = 0.1;
/// How long clients wait for a response.
const PATIENCE: Duration = Duration::from_secs(30);
/// The seconds of a server's history that are kept with each page.
const KEPT: usize = 60;
/// The wait before the first load. The accounting begins with the server, and its first readings
/// include the start.
const SETTLE: Duration = Duration::from_millis(300);

/// The result of a case.
struct Row {
    case: &'static Case,
    /// The answers of `explain` before saturation and at it.
    before: Told,
    told: Told,
    /// The answers a second at saturation.
    measured: f64,
}

/// Runs the experiment.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    options.check_only(&CASES.each_ref().map(|case| case.name))?;
    let _application = ground.start_backend()?;
    let usual = ground.setup.clone();
    let (mut rows, mut unstaged) = (Vec::new(), Vec::new());
    for case in &CASES {
        if options.only.as_ref().is_some_and(|only| !only.iter().any(|name| name == case.name)) {
            continue;
        }
        ground.heed()?;
        match stage(ground, &usual, case, options.turn) {
            Ok(row) => {
                ground.tell(&cells(&row).join("  "));
                rows.push(row);
            }
            Err(Fault::Told(text)) if case.room != Room::All => {
                ground.tell(&format!("{}: {text}", case.name));
                unstaged.push(format!("{}: not staged here: {text}.", case.name));
            }
            Err(fault) => return Err(fault),
        }
    }
    ground.setup = usual;
    Ok(report(ground, options, &rows, unstaged))
}

/// Loads a server below saturation and at saturation. Each load has a new server, unless the case
/// needs one that has seen both.
fn stage(
    ground: &mut Ground,
    usual: &Setup,
    case: &'static Case,
    turn: Duration,
) -> Result<Row, Fault> {
    let group = match case.room {
        Room::All | Room::Descriptors(_) => None,
        Room::Cores(cores) => Some(Group::make(Bound::Cores(cores))?),
        Room::Memory(bytes) => Some(Group::make(Bound::Memory(bytes))?),
    };
    let through = match case.room {
        Room::Descriptors(most) => Some(confine::descriptors(most)),
        _ => group.as_ref().map(Group::line),
    };
    let pool = (case.workers > 0).then(|| pool(case));
    let auto = case.workers == 0;
    ground.setup = Setup { pool, auto, backlog: case.backlog, through, ..usual.clone() };
    let first = start(ground, case.peer)?;
    for load in case.before {
        let _rate = drive(ground, &first, case, load, turn)?;
    }
    let before = ask(ground, &first, case, "before")?;
    let server = if case.keeps { first } else { again(ground, first, case.peer)? };
    let measured = drive(ground, &server, case, &case.full, turn)?;
    let told = ask(ground, &server, case, "full")?;
    drop(server);
    drop(group);
    Ok(Row { case, before, told, measured })
}

fn again(ground: &mut Ground, first: Server, peer: Peer) -> Result<Server, Fault> {
    drop(first);
    start(ground, peer)
}

fn start(ground: &mut Ground, peer: Peer) -> Result<Server, Fault> {
    let server = ground.start(peer)?.ok_or_else(|| format!("{} did not serve", peer.name()))?;
    std::thread::sleep(SETTLE);
    Ok(server)
}

/// Asks a server what limits it now, and keeps its page beside the report.
fn ask(ground: &Ground, server: &Server, case: &Case, when: &str) -> Result<Told, Fault> {
    let (told, page) = figures(&format!("http://{}/server-status", server.address), KEPT)?;
    let folder = ground.folder(case.name);
    let file = folder.join(format!("{when}.json"));
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&file, page))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(told)
}

/// A pool of that many workers, all present from the beginning, in two children if they are many.
fn pool(case: &Case) -> Pool {
    let fixed = super::overload::fixed(case.peer, case.workers);
    match fixed.threads {
        1 => fixed,
        threads => {
            let threads = threads.max(case.workers.div_ceil(2));
            Pool { threads, start_servers: case.workers.div_ceil(threads), ..fixed }
        }
    }
}

/// Loads a server for a turn, and returns the answers a second once all clients were there.
fn drive(
    ground: &Ground,
    server: &Server,
    case: &Case,
    load: &Load,
    turn: Duration,
) -> Result<f64, Fault> {
    let begun = Instant::now();
    match case.what {
        What::Nothing => {
            while begun.elapsed() < turn {
                ground.heed()?;
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(0.0)
        }
        What::Reads(path, rate) => {
            let clients = load.clients as usize;
            let told = |error: std::io::Error| Fault::Told(format!("the system: {error}"));
            let manner = Manner::Read(rate);
            let slow = Slow::begin(server.address, manner, path, clients, true).map_err(told)?;
            let mut first = None;
            while begun.elapsed() < turn {
                ground.heed()?;
                std::thread::sleep(Duration::from_millis(20));
                if begun.elapsed() >= turn / 4 {
                    first = first.or_else(|| Some((begun.elapsed(), slow.bytes())));
                }
            }
            let (since, before) = first.unwrap_or_default();
            let passed = begun.elapsed().saturating_sub(since);
            let bytes = slow.end().bytes.saturating_sub(before);
            // Count fractions of responses, because whole ones end in batches as large as the
            // number of workers.
            Ok(bytes as f64 / size_of(path).max(1) as f64 / passed.as_secs_f64())
        }
        What::Asks(path, close) => {
            let think = load.think();
            let asked = super::ground::Asked {
                path: path.into(),
                clients: load.clients,
                think,
                close,
                conditional: false,
            };
            let timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE };
            let pace = if think.is_none() { Pace::Greedy } else { Pace::Think(think) };
            let plan = Plan { timeouts, pace, ..ground.plan(server, &asked, Bounds::default()) };
            let mut source = super::ground::source(&asked, None);
            let (turn, mut answered) = (whole_seconds(turn), Vec::new());
            ground.follow(plan, &mut source, &mut |seconds| {
                answered = seconds.to_vec();
                seconds.len() < turn
            })?;
            // The first quarter is for clients and children to arrive.
            Ok(mean(&answered, turn / 4, turn - turn / 4))
        }
    }
}

impl Row {
    /// The prediction: the maximum of the limit that would bind, before it did.
    fn predicted(&self) -> Option<f64> {
        if !self.case.has_maximum {
            return None;
        }
        self.before.maximum_rps
    }

    /// By which part of the measured maximum the prediction is off.
    fn error(&self) -> Option<f64> {
        let measured = self.measured.max(1e-9);
        self.predicted().map(|predicted| (predicted - self.measured) / measured)
    }

    /// What is wrong with it.
    fn faults(&self) -> Vec<String> {
        let (name, limit) = (self.case.name, self.case.limit);
        let mut faults = Vec::new();
        if self.told.limit != limit {
            faults.push(format!("{name}: {limit} bound, and {} was named.", self.told.limit));
        }
        if self.before.limit != self.case.named_before {
            let (named, right) = (&self.before.limit, self.case.named_before);
            faults.push(format!("{name}: below saturation {named} was named, not {right}."));
        }
        match self.error() {
            Some(error) if error.abs() > TENTH => faults.push(format!(
                "{name}: {} a second were predicted and {} came about.",
                number(self.predicted()),
                numbers::rate(self.measured)
            )),
            None if self.case.has_maximum => faults.push(format!("{name}: nothing was predicted.")),
            _ => {}
        }
        faults
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), numbers::rate)
}

fn cells(row: &Row) -> Vec<String> {
    let next = row.before.next.as_ref();
    let next = next.map_or_else(|| "-".to_owned(), |next| next.limit.clone());
    let measured = if row.case.has_maximum { numbers::rate(row.measured) } else { "-".to_owned() };
    vec![
        row.case.name.to_owned(),
        row.case.limit.to_owned(),
        row.told.limit.clone(),
        row.before.limit.clone(),
        next,
        number(row.predicted()),
        measured,
        row.error().map_or_else(|| "-".to_owned(), |error| format!("{:+.1} %", error * 100.0)),
    ]
}

const HEADING: [&str; 8] =
    ["case", "expected", "named", "before", "next", "predicted/s", "measured/s", "off by"];

fn report(ground: &Ground, options: &Options, rows: &[Row], unstaged: Vec<String>) -> Paper {
    let mut paper = Paper::new("What explain says", ground.origin());
    let faults: Vec<String> = rows.iter().flat_map(Row::faults).collect();
    paper.heading("What it gets wrong");
    if faults.is_empty() {
        paper.paragraph("Nothing: every limit is named, and every prediction is within a tenth.");
    } else {
        paper.fail(&format!("explain was wrong {} times", faults.len()));
        paper.list(faults);
    }
    paper.paragraph(&format!(
        "{} Each load lasts {}. Below saturation explain is asked what binds now (before), what \
         would bind first (next) and how many requests a second that leaves (predicted); at \
         saturation what binds (named). Measured is what the clients got then, after the \
         first quarter of the load. There is no maximum where none can be told: of a server \
         without work, and where the kernel refuses connections. What an application bears shows \
         once it bears no more: that case is asked there, and driven on.",
        ground.who(),
        numbers::time(options.turn.as_nanos() as f64),
    ));
    paper.table(&HEADING, rows.iter().map(cells).collect());
    let network = "network: not staged: no interface of this machine that the load goes through \
                   says how fast it is.";
    let unstaged = unstaged.into_iter().chain([network.to_owned()]).collect();
    paper.heading("What was not staged").list(unstaged);
    paper.heading("The cases");
    let words = |case: &Case| format!("{}: {}.", case.name, case.words);
    paper.list(rows.iter().map(|row| words(row.case)).collect());
    paper.heading("How it was made").code(&ground.words());
    paper
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(limit: &str, predicted: Option<f64>, measured: f64) -> Row {
        let case = &CASES[0];
        let before =
            Told { limit: case.named_before.to_owned(), maximum_rps: predicted, ..Told::default() };
        let told = Told { limit: limit.to_owned(), ..Told::default() };
        Row { case, before, told, measured }
    }

    #[test]
    fn wrong_names_and_predictions_are_faults() {
        let right = CASES[0].limit;
        assert!(row(right, Some(108.0), 100.0).faults().is_empty());
        assert_eq!(row(right, Some(111.0), 100.0).faults().len(), 1);
        assert_eq!(row("wait", Some(89.0), 100.0).faults().len(), 2);
        assert_eq!(row(right, None, 100.0).faults(), ["cpu: nothing was predicted."]);
        assert_eq!(cells(&row(right, Some(89.0), 100.0))[7], "-11.0 %");
    }

    #[test]
    fn each_case_binds_on_its_own() {
        let names: std::collections::BTreeSet<_> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        assert!(CASES.len() >= 12);
        let two = pool(CASES.iter().find(|case| case.workers > 500).unwrap());
        assert_eq!((two.start_servers, two.start_servers * two.threads), (2, two.workers));
    }
}
