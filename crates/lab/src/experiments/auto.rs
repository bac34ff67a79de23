//! The experiment `auto`: compares `MaxRequestWorkers auto` with the best number that a sweep
//! finds, for requests that burn, that wait, and a mix of both, in each process model; and with an
//! application of few places, in front of which auto's number must not keep growing. Each run has
//! one load from beginning to end, whose first seconds do not count. The exit status is 1 if auto
//! answers less than 95 % of what the best number answers or the application lets through, or if
//! its number keeps growing.

use super::ground::{Asked, Ground, mean, source, whole_seconds};
use super::overload::fixed;
use super::paper::{Paper, Plot};
use super::{Fault, Options};
use crate::explain::workers;
use crate::load::{Bounds, Pace, Plan, Request, Same, Source, Step, Think, Timeouts};
use crate::numbers;
use crate::peers::{GATE, Peer, Server, Setup};
use crate::plot::{Axis, Chart, Unit};
use bytes::Bytes;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::time::Duration;

/// The numbers in the sweep.
const WORKERS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// The number of clients. With more clients than the most workers, some always wait in the kernel's
/// queue.
const CLIENTS: u32 = 600;
/// The share of the best number's answers that auto should reach.
const ENOUGH: f64 = 0.95;
/// The first seconds of a load, which do not count, because clients are still arriving.
const WARM: usize = 3;
/// A mix begins with too few requests that burn: these then queue until they hold all workers that
/// do not wait. After this many rounds of requests the difference is below a hundredth.
const ROUNDS: u32 = 6;
/// The least seconds of a turn with a mix or a saturated application. A client's round of a mix
/// takes half of that.
const MIXED: usize = 30;
/// The conditions under which auto has settled: three stretches of STRETCH seconds each differ by
/// at most this part from the stretch before; or the time limit has passed.
const STRETCH: usize = 2;
const SETTLED: f64 = 0.03;
const LONGEST: usize = 40;
/// How long a request stays in its place in the application.
const STAY_MS: usize = 20;
/// Four requests keep an application of four places busy. If the number of workers stays above this
/// multiple of the first number, it keeps growing; a trial that is given back at most doubles it.
const AWAY: f64 = 1.25;
const TRIAL: f64 = 2.0;
/// How long clients wait for a response.
const PATIENCE: Duration = Duration::from_secs(120);

/// What requests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Burn,
    Wait,
    /// One request that burns after nine that wait.
    Mixed,
    /// Requests to an application with few places.
    Gate,
}

/// A number of workers, and the result.
struct Point {
    peer: Peer,
    work: Work,
    workers: usize,
    rate: f64,
}

/// The result of auto.
struct Settled {
    peer: Peer,
    work: Work,
    rate: f64,
    /// The time until it answered as many requests as at the end.
    after: Duration,
    /// The number of workers in each second.
    bound: Vec<(f64, f64)>,
}

impl Work {
    const SWEPT: [Self; 3] = [Self::Burn, Self::Wait, Self::Mixed];
    const ALL: [Self; 4] = [Self::Burn, Self::Wait, Self::Mixed, Self::Gate];

    fn name(self) -> &'static str {
        match self {
            Self::Burn => "burn",
            Self::Wait => "wait",
            Self::Mixed => "mixed",
            Self::Gate => "gate",
        }
    }

    /// Whether the options include it.
    fn is_in(self, options: &Options) -> bool {
        options.only.as_ref().is_none_or(|only| only.iter().any(|name| name == self.name()))
    }

    /// The paths that a client requests in turn.
    fn paths(self, options: &Options) -> Vec<String> {
        let burn = format!("/burn?ms={}", options.burn.as_millis());
        let wait = format!("/wait?ms={}", options.wait.as_millis());
        match self {
            Self::Burn => vec![burn],
            Self::Wait => vec![wait],
            Self::Mixed => std::iter::repeat_n(wait, 9).chain([burn]).collect(),
            Self::Gate => vec![format!("/gate?ms={STAY_MS}")],
        }
    }

    /// The length of a turn in seconds. In a mix, the requests that burn share the cores and end
    /// together, and so do the waits after them, so that the answers in a second vary by chance.
    /// Turns of less than a second are for tests and measure nothing.
    fn turn(self, options: &Options) -> usize {
        let turn = whole_seconds(options.turn);
        // Growth in front of a saturated application is judged when its requests have ended.
        let is_long = matches!(self, Self::Mixed | Self::Gate);
        if is_long && options.turn >= Duration::from_secs(1) { turn.max(MIXED) } else { turn }
    }

    /// The first seconds of a load, which do not count.
    fn warm(self, options: &Options) -> usize {
        match self {
            Self::Mixed => {
                let round = options.wait * 9 + options.burn;
                WARM.max(whole_seconds(round * ROUNDS))
            }
            Self::Burn | Self::Wait | Self::Gate => WARM,
        }
    }

    /// The most answers a second, if the application bounds them.
    fn most(self) -> Option<f64> {
        (self == Self::Gate).then_some(GATE as f64 * 1000.0 / STAY_MS as f64)
    }
}

/// Runs the experiment.
pub fn run(ground: &mut Ground, options: &Options) -> Result<Paper, Fault> {
    options.check_only(&Work::ALL.map(Work::name))?;
    let _application = ground.start_backend()?;
    let usual = ground.setup.clone();
    let clients = options.one_number_of_clients(CLIENTS);
    let sweep = options.sweep.clone().unwrap_or_else(|| WORKERS.to_vec());
    let (mut points, mut settled) = (Vec::new(), Vec::new());
    for peer in ground.peers.clone() {
        for work in Work::SWEPT.into_iter().filter(|work| work.is_in(options)) {
            for workers in &sweep {
                ground.setup = Setup { pool: Some(fixed(peer, *workers)), ..usual.clone() };
                let server = start(ground, peer)?;
                let rate = measure(ground, &server, work, options, clients)?;
                let told = numbers::rate(rate);
                ground.tell(&format!("{} {} {workers}: {told}/s", peer.name(), work.name()));
                points.push(Point { peer, work, workers: *workers, rate });
            }
        }
        ground.setup = Setup { pool: None, auto: true, ..usual.clone() };
        for work in Work::ALL.into_iter().filter(|work| work.is_in(options)) {
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

/// Loads a server, and returns the answers a second after its first seconds.
fn measure(
    ground: &Ground,
    server: &Server,
    work: Work,
    options: &Options,
    clients: u32,
) -> Result<f64, Fault> {
    let (warm, turn) = (work.warm(options), work.turn(options));
    let mut answered = Vec::new();
    ask(ground, server, work, options, clients, &mut |seconds| {
        answered = seconds.to_vec();
        seconds.len() < warm + turn
    })?;
    Ok(mean(&answered, warm, turn))
}

/// Loads a server that finds its number by itself, until it has found it and for one turn more.
fn settle(
    ground: &mut Ground,
    peer: Peer,
    work: Work,
    options: &Options,
    clients: u32,
) -> Result<Settled, Fault> {
    let server = start(ground, peer)?;
    let (warm, turn) = (work.warm(options), work.turn(options));
    let (mut answered, mut found) = (Vec::new(), None);
    ask(ground, &server, work, options, clients, &mut |seconds| {
        answered = seconds.to_vec();
        found = found.or_else(|| settled(seconds, warm).map(|after| (after, seconds.len())));
        found.is_none_or(|(_, since)| seconds.len() < since + turn)
    })?;
    let (after, since) = found.unwrap_or_default();
    let url = format!("http://{}/server-status", server.address);
    let bound = workers(&url, answered.len())?.into_iter().enumerate();
    let bound = bound.map(|(second, workers)| (second as f64, workers as f64)).collect();
    let rate = mean(&answered, since, turn);
    Ok(Settled { peer, work, rate, after: Duration::from_secs(after as u64), bound })
}

/// The second from which on as many requests were answered as at the end; none if the number may
/// still grow.
fn settled(seconds: &[u64], warm: usize) -> Option<usize> {
    let stretches = seconds.chunks_exact(STRETCH).map(|stretch| mean(stretch, 0, STRETCH));
    let stretches: Vec<f64> = stretches.collect();
    let alike = |one: f64, other: f64| (one - other).abs() <= SETTLED * one.max(other);
    match stretches.as_slice() {
        [.., one, other, last]
            if seconds.len() > warm && alike(*one, *other) && alike(*other, *last) =>
        {
            Some((stretches.len() - 3) * STRETCH)
        }
        _ => (seconds.len() >= LONGEST).then_some(LONGEST),
    }
}

/// Has `clients` clients send the requests of the work, over and over on kept connections, until
/// `look` returns that it has seen enough.
fn ask(
    ground: &Ground,
    server: &Server,
    work: Work,
    options: &Options,
    clients: u32,
    look: &mut dyn FnMut(&[u64]) -> bool,
) -> Result<(), Fault> {
    let asked = |path: String| Asked {
        path: path.into(),
        clients,
        think: Think::None,
        close: false,
        conditional: false,
    };
    let paths = work.paths(options);
    let timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE };
    let plan = ground.plan(server, &asked(String::new()), Bounds::default());
    let plan = Plan { timeouts, pace: Pace::Greedy, ..plan };
    match paths.as_slice() {
        [path] => ground.follow(plan, &mut source(&asked(path.clone()), None), look),
        paths => {
            let all: Vec<Arc<Request>> = paths.iter().map(|path| get(path)).collect();
            let mut turns = |client: u32| -> Box<dyn Source> {
                Box::new(Turns::new(all.clone(), u64::from(client)))
            };
            ground.follow(plan, &mut turns, look)
        }
    }
}

fn get(path: &str) -> Arc<Request> {
    let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    Arc::new(Request { bytes: Bytes::from(text), ..Request::default() })
}

/// Sends each of some requests once in a round, in an order that is drawn for each round. If all
/// clients had the same order they would fall into step, and wait together and burn together.
struct Turns {
    all: Vec<Arc<Request>>,
    next: usize,
    random: ChaCha8Rng,
}

impl Turns {
    /// The order of one client, which begins at some point of a round of its own.
    fn new(mut all: Vec<Arc<Request>>, client: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(client);
        all.shuffle(&mut random);
        let next = random.random_range(0..all.len().max(1));
        Self { all, next, random }
    }
}

impl Source for Turns {
    fn next(&mut self, now_ns: u64) -> Step {
        if self.next >= self.all.len() {
            self.all.shuffle(&mut self.random);
            self.next = 0;
        }
        self.next += 1;
        match self.all.get(self.next - 1) {
            Some(request) => Same(Arc::clone(request)).next(now_ns),
            None => Step::Over,
        }
    }
}

/// The best point of a sweep.
fn best(points: &[Point], peer: Peer, work: Work) -> Option<&Point> {
    let own = points.iter().filter(|point| (point.peer, point.work) == (peer, work));
    own.max_by(|one, other| one.rate.total_cmp(&other.rate))
}

/// The ratio of auto's answers to those of the best number, or to those that the application lets
/// through.
fn share(points: &[Point], it: &Settled) -> Option<f64> {
    let most = it.work.most().or_else(|| best(points, it.peer, it.work).map(|best| best.rate));
    most.map(|most| it.rate / most.max(1e-9))
}

/// Whether the number kept growing although no more requests were answered.
fn runs_away(it: &Settled) -> bool {
    let first = it.bound.first().map_or(0.0, |(_, workers)| *workers);
    let beyond = |times: f64| it.bound.iter().filter(|(_, it)| *it > first * times).count();
    it.work == Work::Gate && (beyond(TRIAL) > 0 || beyond(AWAY) * 2 > it.bound.len())
}

fn worse(points: &[Point], settled: &[Settled]) -> Vec<String> {
    let told = |it: &Settled| {
        let (name, work) = (it.peer.name(), it.work.name());
        let of =
            it.work.most().map_or("the best number's", |_| "what the application lets through");
        let share = share(points, it).filter(|share| *share < ENOUGH);
        let less = share.map(|share| format!("{name}, {work}: {:.0} % of {of}.", share * 100.0));
        let away = runs_away(it).then(|| format!("{name}, {work}: it runs away."));
        [less, away]
    };
    settled.iter().flat_map(told).flatten().collect()
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
         and one that burns, and for an application with {GATE} places, {STAY_MS} ms each. A \
         number of workers has a server of its own and a turn of {} after {WARM} s in which \
         clients come, or, for a mix, {} after {} in which it settles, all workers being there \
         from the beginning. \
         Auto begins as it does by itself; settled is when it answered as much as it does, and \
         its turn comes then.",
        ground.who(),
        options.one_number_of_clients(CLIENTS),
        numbers::time(options.burn.as_nanos() as f64),
        numbers::time(options.wait.as_nanos() as f64),
        numbers::time(options.turn.as_nanos() as f64),
        numbers::time(Work::Mixed.turn(options) as f64 * 1e9),
        numbers::time(Work::Mixed.warm(options) as f64 * 1e9),
    ));
    let heading =
        ["server", "asked", "best number", "its/s", "auto/s", "share", "settled", "its number"];
    paper.table(&heading, settled.iter().map(|it| cells(points, it)).collect());
    for work in Work::SWEPT {
        if !work.is_in(options) {
            continue;
        }
        let name = format!("sweep-{}", work.name());
        paper.plots(vec![(name, Plot::Chart(swept(points, settled, work)))]);
    }
    for work in Work::ALL.into_iter().filter(|work| work.is_in(options)) {
        let name = format!("bound-{}", work.name());
        paper.plots(vec![(name, Plot::Chart(bound(settled, work)))]);
    }
    paper.heading("How it was made").code(&ground.words());
    paper
}

/// A plot of the number of workers, while it settled and after.
fn bound(settled: &[Settled], work: Work) -> Chart {
    let x = Axis::new("seconds", Unit::Count);
    let title = format!("{}: the number of workers", work.name());
    let chart = Chart::new(&title, x, Axis::new("", Unit::Count));
    let own = settled.iter().filter(|it| it.work == work);
    own.fold(chart, |chart, it| chart.line(it.peer.name(), it.bound.clone()))
}

fn swept(points: &[Point], settled: &[Settled], work: Work) -> Chart {
    let x = Axis::new("workers", Unit::Count).by_factors();
    let title = format!("{}: answers a second by MaxRequestWorkers", work.name());
    let mut chart = Chart::new(&title, x, Axis::new("", Unit::Count));
    for it in settled.iter().filter(|it| it.work == work) {
        let own = points.iter().filter(|point| (point.peer, point.work) == (it.peer, work));
        let line: Vec<(f64, f64)> = own.map(|point| (point.workers as f64, point.rate)).collect();
        // Auto is drawn as a horizontal line, because it has no fixed number.
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

    fn came(work: Work, rate: f64, bound: [f64; 2]) -> Settled {
        let bound = bound.into_iter().enumerate().map(|(at, it)| (at as f64, it)).collect();
        Settled { peer: Peer::Evenkeel, work, rate, after: Duration::ZERO, bound }
    }

    #[test]
    fn who_answers_less_or_runs_away_is_told() {
        let point = |workers, rate| Point { peer: Peer::Evenkeel, work: Work::Wait, workers, rate };
        let points = [point(1, 5.0), point(64, 100.0), point(512, 90.0)];
        assert!(worse(&points, &[came(Work::Wait, 96.0, [4.0, 400.0])]).is_empty());
        let told = worse(
            &points,
            &[came(Work::Wait, 94.0, [4.0, 4.0]), came(Work::Gate, 60.0, [64.0, 129.0])],
        );
        assert_eq!(
            told,
            [
                "evenkeel, wait: 94 % of the best number's.",
                "evenkeel, gate: 30 % of what the application lets through.",
                "evenkeel, gate: it runs away."
            ]
        );
        assert!(worse(&points, &[came(Work::Gate, 200.0, [64.0, 128.0])]).is_empty());
        let mut stays = came(Work::Gate, 200.0, [64.0, 128.0]);
        stays.bound.push((2.0, 128.0));
        assert_eq!(worse(&points, &[stays]), ["evenkeel, gate: it runs away."]);
        let cells = cells(&points, &came(Work::Wait, 94.0, [4.0, 4.0]));
        assert_eq!((cells[2].as_str(), cells[5].as_str()), ("64", "94 %"));
    }

    #[test]
    fn it_has_settled_when_the_answers_stand_still() {
        let growing = [100, 100, 125, 125, 156, 156, 195, 195];
        assert_eq!(settled(&growing, 3), None);
        let still = [&growing[..], &[244, 250, 251, 243, 247, 247]].concat();
        assert_eq!((settled(&still[..13], 3), settled(&still, 3)), (None, Some(8)));
        // While clients arrive, the number has not settled; and the wait is bounded.
        assert_eq!(settled(&[0; 12], 12), None);
        let swinging: Vec<u64> =
            (0..LONGEST as u64).map(|second| 100 + second / 2 % 2 * 50).collect();
        assert_eq!(
            (settled(&swinging[..LONGEST - 1], 3), settled(&swinging, 3)),
            (None, Some(LONGEST))
        );
    }

    #[test]
    fn a_mix_is_asked_for_in_rounds_that_differ() {
        let paths = ["/a", "/b", "/c", "/d"];
        let all: Vec<_> = paths.into_iter().map(get).collect();
        let asked = |client: u64| {
            let mut turns = Turns { next: 0, ..Turns::new(all.clone(), client) };
            let mut path = || match turns.next(0) {
                Step::Send(request) => String::from_utf8_lossy(&request.bytes)[4..6].to_owned(),
                other => panic!("{other:?}"),
            };
            (0..32).map(|_| path()).collect::<Vec<String>>()
        };
        let one = asked(1);
        for round in one.chunks(paths.len()) {
            assert!(paths.iter().all(|path| round.contains(&(*path).to_owned())), "{round:?}");
        }
        assert!(one.chunks(4).any(|round| round != &one[..4]), "{one:?}");
        assert_ne!(one, asked(2));
        let begins = |client| Turns::new(all.clone(), client).next;
        assert!((0..100).map(begins).any(|next| next != begins(0)));
    }
}
