//! The experiment `auto`: the best MaxRequestWorkers that a sweep finds beside `MaxRequestWorkers
//! auto`, for requests that burn, that wait, and a mix of both, in each process model; and an
//! application with few places, on which auto must not run away. Where auto answers less than 95 %
//! of what the best number does, or runs away, the status is 1.

use super::ground::{Asked, Ground, source};
use super::overload::fixed;
use super::paper::{Paper, Plot};
use super::{Fault, Options};
use crate::explain::figures;
use crate::load::{Bounds, Figures, Pace, Plan, Request, Same, Source, Step, Think, Timeouts};
use crate::numbers;
use crate::peers::{Peer, Server, Setup};
use crate::plot::{Axis, Chart, Unit};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// The numbers that are swept.
const WORKERS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// Clients: more than the most workers would leave all of them to the kernel's queue.
const CLIENTS: u32 = 600;
/// Auto should answer this share of what the best number does.
const ENOUGH: f64 = 0.95;
/// The stretches of auto's warm-up, and how many of them there are at the most.
const STRETCH: Duration = Duration::from_secs(2);
const STRETCHES: usize = 20;
/// It has settled when two stretches differ by no more than this part.
const SETTLED: f64 = 0.03;
/// An application of four places is kept busy by four requests; so many times as many workers as
/// its clients would have taken are running away.
const AWAY: f64 = 1.25;
/// How long clients wait for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// What requests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Burn,
    Wait,
    /// One that burns after nine that wait.
    Mixed,
    /// They ask an application with few places.
    Gate,
}

/// A number of workers, and what came of it.
struct Point {
    peer: Peer,
    work: Work,
    workers: usize,
    rate: f64,
}

/// What came of auto.
struct Settled {
    peer: Peer,
    work: Work,
    rate: f64,
    /// How long it took until it answered as much as it does.
    after: Duration,
    /// The number of workers at the end of each stretch, by the second.
    bound: Vec<(f64, f64)>,
}

impl Work {
    const SWEPT: [Self; 3] = [Self::Burn, Self::Wait, Self::Mixed];

    fn name(self) -> &'static str {
        match self {
            Self::Burn => "burn",
            Self::Wait => "wait",
            Self::Mixed => "mixed",
            Self::Gate => "gate",
        }
    }

    /// The paths that a client asks for in turn.
    fn paths(self, options: &Options) -> Vec<String> {
        let burn = format!("/burn?ms={}", options.burn.as_millis());
        let wait = format!("/wait?ms={}", options.wait.as_millis());
        match self {
            Self::Burn => vec![burn],
            Self::Wait => vec![wait],
            Self::Mixed => std::iter::repeat_n(wait, 9).chain([burn]).collect(),
            Self::Gate => vec!["/gate?ms=20".to_owned()],
        }
    }
}

/// Runs it.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    let _application = ground.start_backend()?;
    let usual = ground.setup.clone();
    let clients = options.one_number_of_clients(CLIENTS);
    let sweep = options.sweep.clone().unwrap_or_else(|| WORKERS.to_vec());
    let (mut points, mut settled) = (Vec::new(), Vec::new());
    for peer in ground.peers.clone() {
        for work in Work::SWEPT {
            for workers in &sweep {
                ground.setup = Setup { pool: Some(fixed(peer, *workers)), ..usual.clone() };
                let server = start(ground, peer)?;
                let rate = ask(ground, &server, work, options, clients, options.turn)?.rate();
                let told = numbers::rate(rate);
                ground.tell(&format!("{} {} {workers}: {told}/s", peer.name(), work.name()));
                points.push(Point { peer, work, workers: *workers, rate });
            }
        }
        ground.setup = Setup { pool: None, auto: true, ..usual.clone() };
        for work in Work::SWEPT.into_iter().chain([Work::Gate]) {
            let it = settle(ground, peer, work, options, clients)?;
            let (name, rate) = (work.name(), numbers::rate(it.rate));
            ground.tell(&format!("{} {name} auto: {rate}/s", peer.name()));
            settled.push(it);
        }
    }
    ground.setup = usual;
    Ok(report(ground, options, &points, &settled))
}

fn start(ground: &mut Ground, peer: Peer) -> Result<Server, Fault> {
    ground.heed()?;
    Ok(ground.start(peer)?.ok_or_else(|| format!("{} did not serve", peer.name()))?)
}

/// Loads a server that finds its number by itself, until it has found it and for a turn more.
fn settle(
    ground: &mut Ground,
    peer: Peer,
    work: Work,
    options: &Options,
    clients: u32,
) -> Result<Settled, Fault> {
    let server = start(ground, peer)?;
    let url = format!("http://{}/server-status", server.address);
    let stretch = options.turn.min(STRETCH);
    let mut it = Settled { peer, work, rate: 0.0, after: Duration::ZERO, bound: Vec::new() };
    let mut passed = Duration::ZERO;
    let mut still = 0;
    for _ in 0..STRETCHES {
        let rate = ask(ground, &server, work, options, clients, stretch)?.rate();
        passed += stretch;
        let workers = figures(&url)?.now.workers.unwrap_or(0);
        it.bound.push((passed.as_secs_f64(), workers as f64));
        let is_still = (rate - it.rate).abs() <= SETTLED * rate.max(it.rate);
        still = if is_still { still + 1 } else { 0 };
        it.rate = rate;
        it.after = if is_still { it.after } else { passed };
        if still >= 2 {
            break;
        }
    }
    it.rate = ask(ground, &server, work, options, clients, options.turn)?.rate();
    let workers = figures(&url)?.now.workers.unwrap_or(0);
    it.bound.push(((passed + options.turn).as_secs_f64(), workers as f64));
    Ok(it)
}

/// So many clients ask for what the work says, over and over, on connections that they keep.
fn ask(
    ground: &Ground,
    server: &Server,
    work: Work,
    options: &Options,
    clients: u32,
    long: Duration,
) -> Result<Figures, Fault> {
    let asked = |path: String| Asked {
        path: path.into(),
        clients,
        think: Think::None,
        close: false,
        conditional: false,
    };
    let paths = work.paths(options);
    let bounds = Bounds { time: Some(long), ..Bounds::default() };
    let timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE };
    let plan = ground.plan(server, &asked(String::new()), bounds);
    let plan = Plan { timeouts, pace: Pace::Greedy, ..plan };
    match paths.as_slice() {
        [path] => {
            ground.drive(plan, &mut source(&asked(path.clone()), None), None, &mut |_| Ok(true))
        }
        paths => {
            let all: Vec<Arc<Request>> = paths.iter().map(|path| get(path)).collect();
            // Each begins at another place, so that they do not keep step.
            let mut turns = |client: u32| -> Box<dyn Source> {
                Box::new(Turns { all: all.clone(), next: client as usize })
            };
            ground.drive(plan, &mut turns, None, &mut |_| Ok(true))
        }
    }
}

fn get(path: &str) -> Arc<Request> {
    let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    Arc::new(Request { bytes: Bytes::from(text), ..Request::default() })
}

/// One request after the other, over and over.
struct Turns {
    all: Vec<Arc<Request>>,
    next: usize,
}

impl Source for Turns {
    fn next(&mut self, now_ns: u64) -> Step {
        let at = self.next.checked_rem(self.all.len()).unwrap_or(0);
        self.next = self.next.wrapping_add(1);
        match self.all.get(at) {
            Some(request) => Same(Arc::clone(request)).next(now_ns),
            None => Step::Over,
        }
    }
}

/// The best of a sweep.
fn best(points: &[Point], peer: Peer, work: Work) -> Option<&Point> {
    let own = points.iter().filter(|point| (point.peer, point.work) == (peer, work));
    own.max_by(|one, other| one.rate.total_cmp(&other.rate))
}

/// What part of the best number's answers auto has; none where nothing was swept.
fn share(points: &[Point], it: &Settled) -> Option<f64> {
    best(points, it.peer, it.work).map(|best| it.rate / best.rate.max(1e-9))
}

/// Whether the number went on growing while nothing more was answered.
fn runs_away(it: &Settled) -> bool {
    let first = it.bound.first().map_or(0.0, |(_, workers)| *workers);
    let last = it.bound.last().map_or(0.0, |(_, workers)| *workers);
    it.work == Work::Gate && last > first * AWAY
}

fn worse(points: &[Point], settled: &[Settled]) -> Vec<String> {
    let told = |it: &Settled| {
        let (name, work) = (it.peer.name(), it.work.name());
        match share(points, it) {
            Some(share) if share < ENOUGH => {
                Some(format!("{name}, {work}: {:.0} % of the best number's.", share * 100.0))
            }
            None if runs_away(it) => Some(format!("{name}, {work}: it runs away.")),
            _ => None,
        }
    };
    settled.iter().filter_map(told).collect()
}

fn report(ground: &Ground, options: &Options, points: &[Point], settled: &[Settled]) -> Paper {
    let mut paper = Paper::new("MaxRequestWorkers auto", ground.origin());
    paper.heading("Where auto does worse");
    let worse = worse(points, settled);
    if worse.is_empty() {
        paper.paragraph("Nowhere: it answers 95 % of what the best number does, and more.");
    } else {
        paper.fail(&format!("auto does worse in {} cases", worse.len()));
        paper.list(worse);
    }
    paper.paragraph(&format!(
        "{} {} clients ask for what burns {} of CPU time, for what waits {}, for nine that wait \
         and one that burns, and for an application with 4 places, 20 ms each. A number of \
         workers has a server and a turn of {} of its own, all workers being there from the \
         beginning. Auto begins as it does by itself; settled is when it answered as much as it \
         does.",
        ground.who(),
        options.one_number_of_clients(CLIENTS),
        numbers::time(options.burn.as_nanos() as f64),
        numbers::time(options.wait.as_nanos() as f64),
        numbers::time(options.turn.as_nanos() as f64),
    ));
    let heading =
        ["server", "asked", "best number", "its/s", "auto/s", "share", "settled", "its number"];
    paper.table(&heading, settled.iter().map(|it| cells(points, it)).collect());
    for work in Work::SWEPT {
        let name = format!("sweep-{}", work.name());
        paper.plots(vec![(name, Plot::Chart(swept(points, settled, work)))]);
    }
    let x = Axis::new("seconds", Unit::Count);
    let mut bound =
        Chart::new("An application with 4 places: workers", x, Axis::new("", Unit::Count));
    for it in settled.iter().filter(|it| it.work == Work::Gate) {
        bound = bound.line(it.peer.name(), it.bound.clone());
    }
    paper.plots(vec![("bound".to_owned(), Plot::Chart(bound))]);
    paper.heading("How it was made").code(&ground.words());
    paper
}

fn swept(points: &[Point], settled: &[Settled], work: Work) -> Chart {
    let x = Axis::new("workers", Unit::Count).by_factors();
    let title = format!("{}: answers a second by MaxRequestWorkers", work.name());
    let mut chart = Chart::new(&title, x, Axis::new("", Unit::Count));
    for it in settled.iter().filter(|it| it.work == work) {
        let own = points.iter().filter(|point| (point.peer, point.work) == (it.peer, work));
        let line: Vec<(f64, f64)> = own.map(|point| (point.workers as f64, point.rate)).collect();
        // Auto is a level, whatever its number.
        let ends = [line.first(), line.last()].into_iter().flatten();
        let level = ends.map(|(workers, _)| (*workers, it.rate)).collect();
        chart = chart.line(it.peer.name(), line);
        chart = chart.line(&format!("{} auto", it.peer.name()), level);
    }
    chart
}

fn cells(points: &[Point], it: &Settled) -> Vec<String> {
    let best = best(points, it.peer, it.work);
    let dash = || "-".to_owned();
    let last = it.bound.last().map_or(0.0, |(_, workers)| *workers);
    vec![
        it.peer.name().to_owned(),
        it.work.name().to_owned(),
        best.map_or_else(dash, |best| numbers::count(best.workers as u64)),
        best.map_or_else(dash, |best| numbers::rate(best.rate)),
        numbers::rate(it.rate),
        share(points, it).map_or_else(dash, |share| format!("{:.0} %", share * 100.0)),
        numbers::time(it.after.as_nanos() as f64),
        numbers::count(last as u64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(work: Work, rate: f64, bound: [f64; 2]) -> Settled {
        let bound = bound.into_iter().enumerate().map(|(at, it)| (at as f64, it)).collect();
        Settled { peer: Peer::Evenkeel, work, rate, after: Duration::ZERO, bound }
    }

    #[test]
    fn who_answers_less_or_runs_away_is_told() {
        let point = |workers, rate| Point { peer: Peer::Evenkeel, work: Work::Wait, workers, rate };
        let points = [point(1, 5.0), point(64, 100.0), point(512, 90.0)];
        assert!(worse(&points, &[settled(Work::Wait, 96.0, [4.0, 400.0])]).is_empty());
        let told = worse(
            &points,
            &[settled(Work::Wait, 94.0, [4.0, 4.0]), settled(Work::Gate, 200.0, [64.0, 128.0])],
        );
        assert_eq!(
            told,
            ["evenkeel, wait: 94 % of the best number's.", "evenkeel, gate: it runs away."]
        );
        assert!(worse(&points, &[settled(Work::Gate, 200.0, [64.0, 70.0])]).is_empty());
        let cells = cells(&points, &settled(Work::Wait, 94.0, [4.0, 4.0]));
        assert_eq!((cells[2].as_str(), cells[5].as_str()), ("64", "94 %"));
    }

    #[test]
    fn a_mix_is_asked_for_in_turn() {
        let all = vec![get("/a"), get("/b")];
        let mut turns = Turns { all, next: 1 };
        let mut path = || match turns.next(0) {
            Step::Send(request) => String::from_utf8_lossy(&request.bytes).into_owned(),
            other => panic!("{other:?}"),
        };
        assert!(path().starts_with("GET /b ") && path().starts_with("GET /a "));
    }
}
