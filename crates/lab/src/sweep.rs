//! A sweep: runs the same load over a grid of numbers of clients and pauses. The result has figures
//! for each pair, and from these throughput and latency against the number of clients, and a heat
//! map over both.

use crate::load::{Figures, Pace, Plan, Run, Source, Think};
use crate::numbers;
use crate::plot::{Axis, Chart, Heat, Unit};
use crate::results::{About, Saved, Saving};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The interval between two looks at a run.
const GLANCE: Duration = Duration::from_millis(20);

/// Marks a saved run as a part of a sweep.
const PART: &str = "part of a sweep";

/// The grid: each number of clients with each pause.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The numbers of clients, in ascending order.
    pub clients: Vec<u32>,
    /// The pauses between a response and the next request.
    pub thinks: Vec<Think>,
}

impl Default for Grid {
    fn default() -> Self {
        Self { clients: vec![1, 4, 16, 64, 256], thinks: vec![Think::None] }
    }
}

/// The result of one pair.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The number of clients.
    pub clients: u32,
    /// The requested pause.
    pub think: Think,
    /// The figures.
    pub figures: Figures,
}

/// The results of a grid, row by row of pauses. A sweep that was cut short has fewer.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// The pairs in the order in which they ran.
    pub cells: Vec<Cell>,
}

impl Grid {
    /// Applies an option: `c=1,2,4,8`, `c=1..512` (doubling), or `think=0,1us,1ms`. It replaces
    /// previous values of the same kind.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for the user.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        match text.split_once('=') {
            Some(("c" | "clients", values)) => self.clients = parse_clients(values)?,
            Some(("think", values)) => {
                self.thinks = values.split(',').map(Think::parse).collect::<Result<_, _>>()?;
            }
            _ => {
                return Err(format!("{text}: a sweep is c=1,2,4 (or c=1..512) or think=0,1us,1ms"));
            }
        }
        Ok(())
    }
}

fn parse_clients(values: &str) -> Result<Vec<u32>, String> {
    let number = |text: &str| match text.parse() {
        Ok(number) if (1..=1_000_000).contains(&number) => Ok(number),
        _ => Err(format!("{text}: no number of clients (1 to 1000000)")),
    };
    if let Some((first, last)) = values.split_once("..") {
        let (first, last): (u32, u32) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("{values}: goes backwards"));
        }
        let doubled = std::iter::successors(Some(first), |clients| clients.checked_mul(2));
        return Ok(doubled.take_while(|clients| *clients <= last).collect());
    }
    values.split(',').map(number).collect()
}

/// Runs the plan for every pair of the grid. Its clients and its pause are those of the pair,
/// everything else is the plan's, which must have an end. `source` makes each client's requests.
/// Runs are saved in folders of their own below `save`. `each` is called after each pair, and
/// `is_over` during the runs to ask whether to end; the result is then what was measured until that
/// time.
///
/// # Errors
///
/// Those of the system, or why results cannot be saved.
pub fn run(
    grid: &Grid,
    plan: &Plan,
    source: &mut dyn FnMut(u32) -> Box<dyn Source>,
    save: Option<(&Path, &About)>,
    is_over: &mut dyn FnMut() -> bool,
    each: &mut dyn FnMut(&Cell),
) -> Result<Sweep, String> {
    let mut sweep = Sweep::default();
    for think in &grid.thinks {
        for clients in &grid.clients {
            let pace = if think.is_none() { Pace::Greedy } else { Pace::Think(*think) };
            let plan = Plan { clients: *clients, pace, stretches: Vec::new(), ..plan.clone() };
            let mut saving = match save {
                Some((folder, about)) => Some(begin(folder, about, *clients, think)?),
                None => None,
            };
            let told = |error: io::Error| format!("the system: {error}");
            let run = Run::start(plan, &mut *source).map_err(told)?;
            let live = run.live();
            let mut over = false;
            while live.is_running() {
                over = over || is_over();
                if over {
                    live.stop();
                }
                let news = live.news();
                if let Some(saving) = &mut saving {
                    saving.add(&news)?;
                }
                std::thread::sleep(GLANCE);
            }
            let figures = run.wait().map_err(told)?;
            if let Some(saving) = saving {
                saving.finish(&figures)?;
            }
            if over {
                return Ok(sweep);
            }
            let cell = Cell { clients: *clients, think: *think, figures };
            each(&cell);
            sweep.cells.push(cell);
        }
    }
    Ok(sweep)
}

fn begin(folder: &Path, about: &About, clients: u32, think: &Think) -> Result<Saving, String> {
    let about =
        About { title: format!("{clients} clients, pause {}", pause(think)), ..about.clone() };
    let about = about.with("clients", clients).with("think", think).with(PART, "yes");
    // Names that sort by number, without characters that a file system may not allow.
    let think = think.to_string().replace([':', ','], "-");
    Saving::begin(&folder.join(format!("think-{think}-clients-{clients:06}")), &about)
}

/// A pause as text: `0`, `1 us`, or as it was typed.
pub(crate) fn pause(think: &Think) -> String {
    match think {
        Think::Fixed(seconds) => Unit::Time.show(seconds * 1e9),
        other => other.to_string(),
    }
}

/// A latency of a cell; none if no request was answered.
fn latency(figures: &Figures, quantile: f64) -> Option<f64> {
    let times = &figures.times.response;
    (!times.is_empty()).then(|| times.value_at_quantile(quantile).min(times.max()) as f64)
}

impl Sweep {
    /// The sweep that saved these runs; none if they are not the pairs of one.
    #[must_use]
    pub fn of(runs: &[Saved]) -> Option<Self> {
        let cell = |run: &Saved| {
            let asked = |name: &str| run.about.asked.get(name);
            asked(PART)?;
            let clients = asked("clients")?.parse().ok()?;
            let think = Think::parse(asked("think")?).ok()?;
            Some(Cell { clients, think, figures: run.figures.clone() })
        };
        let cells = runs.iter().map(cell).collect::<Option<Vec<Cell>>>()?;
        let same =
            |one: &Cell, other: &Cell| (one.clients, one.think) == (other.clients, other.think);
        let mut rest = cells.as_slice();
        while let Some((first, others)) = rest.split_first() {
            // Two rounds of the same pair are runs to be compared.
            if others.iter().any(|other| same(first, other)) {
                return None;
            }
            rest = others;
        }
        (cells.len() > 1).then_some(Self { cells })
    }

    /// The pauses and the numbers of clients, each once and in order.
    fn axes(&self) -> (Vec<Think>, Vec<u32>) {
        let (mut thinks, mut clients): (Vec<Think>, Vec<u32>) = (Vec::new(), Vec::new());
        for cell in &self.cells {
            if !thinks.contains(&cell.think) {
                thinks.push(cell.think);
            }
            if !clients.contains(&cell.clients) {
                clients.push(cell.clients);
            }
        }
        clients.sort_unstable();
        (thinks, clients)
    }

    fn cell(&self, think: Think, clients: u32) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.think == think && cell.clients == clients)
    }

    /// Throughput and latency against the number of clients, with a line for each pause.
    #[must_use]
    pub fn charts(&self) -> Vec<Chart> {
        let x = || Axis::new("clients", Unit::Count).by_factors();
        let y = Axis::new("answers a second", Unit::Count);
        let mut rate = Chart::new("Throughput against concurrency", x(), y);
        let y = || Axis::new("response time", Unit::Time).by_factors();
        let mut median = Chart::new("Median response time against concurrency", x(), y());
        let mut late = Chart::new("Response time of the 99th percentile", x(), y());
        let (thinks, clients) = self.axes();
        for think in thinks {
            let name = format!("pause {}", pause(&think));
            let points = |value: &dyn Fn(&Figures) -> Option<f64>| -> Vec<(f64, f64)> {
                let cells = clients.iter().filter_map(|clients| self.cell(think, *clients));
                cells
                    .filter_map(|cell| Some((f64::from(cell.clients), value(&cell.figures)?)))
                    .collect()
            };
            rate = rate.line(&name, points(&|figures| Some(figures.rate())));
            median = median.line(&name, points(&|figures| latency(figures, 0.5)));
            late = late.line(&name, points(&|figures| latency(figures, 0.99)));
        }
        vec![rate, median, late]
    }

    /// Throughput over clients and pauses as a heat map.
    #[must_use]
    pub fn heat(&self, title: &str) -> Heat {
        let (thinks, clients) = self.axes();
        let row = |think: &Think| -> Vec<Option<f64>> {
            let cells = clients.iter().map(|clients| self.cell(*think, *clients));
            cells.map(|cell| cell.map(|cell| cell.figures.rate().round())).collect()
        };
        Heat {
            title: title.to_owned(),
            values: thinks.iter().map(row).collect(),
            rows: ("pause".to_owned(), thinks.iter().map(pause).collect()),
            columns: ("clients".to_owned(), clients.iter().map(ToString::to_string).collect()),
            unit: Unit::Count,
        }
    }

    /// A row for each cell, with a heading: clients, the requested and the actual pause,
    /// throughput, latencies, failures, clients that were never served, the client's own share.
    #[must_use]
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let heading = [
            "pause",
            "clients",
            "pause that came about",
            "answers/s",
            "median",
            "99 %",
            "longest",
            "failures",
            "never served",
            "client's busiest thread",
        ];
        let time = |value: Option<f64>| value.map_or("–".to_owned(), numbers::time);
        let row = |cell: &Cell| {
            let figures = &cell.figures;
            let pauses = &figures.times.pause;
            let median = (!pauses.is_empty()).then(|| pauses.value_at_quantile(0.5) as f64);
            vec![
                pause(&cell.think),
                cell.clients.to_string(),
                time(median),
                numbers::rate(figures.rate()),
                time(latency(figures, 0.5)),
                time(latency(figures, 0.99)),
                time(latency(figures, 1.0)),
                numbers::count(figures.failed()),
                figures.fairness().never.to_string(),
                format!("{:.0} %", figures.busiest * 100.0),
            ]
        };
        (heading.map(str::to_owned).into(), self.cells.iter().map(row).collect())
    }

    /// The sweep as text.
    #[must_use]
    pub fn text(&self) -> String {
        let (heading, rows) = self.table();
        crate::report::text_table(&heading, &rows)
    }

    /// The sweep as a page.
    #[must_use]
    pub fn html(&self, title: &str, origin: &str) -> String {
        let mut page = crate::report::page::Page::new(title, origin);
        let mut plots: Vec<String> = self.charts().iter().map(Chart::inline).collect();
        plots.push(self.heat("Answers a second").inline());
        page.plots(plots);
        let (heading, rows) = self.table();
        page.heading("Figures").table(&heading, &rows);
        page.html()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Bounds, Keep, Request, Same, Timeouts};
    use crate::results;
    use bytes::Bytes;
    use evenkeel_sys::connect::{Local, Remote};
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::sync::Arc;

    #[test]
    fn what_was_typed_becomes_a_grid() {
        let mut grid = Grid::default();
        grid.set("c=1..9").unwrap();
        grid.set("think=0,1us,1ms").unwrap();
        assert_eq!(grid.clients, [1, 2, 4, 8]);
        assert_eq!(grid.thinks, [Think::None, Think::Fixed(1e-6), Think::Fixed(1e-3)]);
        for bad in ["c=", "c=0", "c=4..1", "c=1,x", "think=x", "d=1", "c"] {
            assert!(grid.set(bad).is_err(), "{bad}");
        }
    }

    /// A server that answers everything.
    fn serve() -> Remote {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = Remote::Internet(listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || {
                    let stream = stream.unwrap();
                    for line in BufReader::new(&stream).lines() {
                        let Ok(line) = line else { return };
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                        if line.is_empty() && (&stream).write_all(answer).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        remote
    }

    fn plan(requests: u64) -> Plan {
        Plan {
            remotes: vec![serve()],
            local: Local::default(),
            trust: None,
            threads: 1,
            clients: 1,
            stretches: Vec::new(),
            pace: Pace::Greedy,
            keep: Keep::Kept,
            bounds: Bounds { requests: Some(requests), ..Bounds::default() },
            timeouts: Timeouts::default(),
            seed: 1,
            keep_exchanges: false,
            hear: false,
        }
    }

    fn source(_: u32) -> Box<dyn Source> {
        let bytes = Bytes::from_static(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        Box::new(Same(Arc::new(Request { bytes, ..Request::default() })))
    }

    #[test]
    fn every_pair_is_run_saved_and_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let mut grid = Grid::default();
        grid.set("c=1,3").unwrap();
        grid.set("think=0,1ms").unwrap();
        let about = About::now("bench", "http://x/", &[]);
        let save = Some((folder.path(), &about));
        let mut told = Vec::new();
        let mut each = |cell: &Cell| told.push((cell.clients, cell.figures.answered()));
        let sweep = run(&grid, &plan(30), &mut source, save, &mut || false, &mut each).unwrap();
        assert_eq!(told, [(1, 30), (3, 30), (1, 30), (3, 30)]);
        let pauses: Vec<u64> = sweep.cells.iter().map(|it| it.figures.times.pause.len()).collect();
        // No pause precedes the first request of a client.
        assert_eq!(pauses, [0, 0, 29, 27]);
        let heat = sweep.heat("t");
        assert_eq!(
            (heat.rows.1, heat.columns.1),
            (vec!["0".into(), "1 ms".into()], vec!["1".into(), "3".into()])
        );
        assert!(sweep.charts().iter().all(|chart| chart.svg().matches("<circle").count() == 4));
        assert_eq!(sweep.text().lines().count(), 5);
        assert!(sweep.html("t", "o").contains("Throughput against concurrency"));
        let found = results::find(folder.path()).unwrap();
        let mut runs: Vec<_> = found.iter().map(|run| results::read(run).unwrap()).collect();
        let again = Sweep::of(&runs).unwrap();
        assert_eq!(again.table().1.len(), 4);
        assert_eq!(again.table().1[0], sweep.table().1[0]);
        assert_eq!(again.heat("t").values, heat.values);
        assert!(crate::report::html("t", &runs).contains("Throughput against concurrency"));
        runs.push(runs[0].clone());
        assert!(Sweep::of(&runs).is_none() && Sweep::of(&runs[..1]).is_none());
    }

    #[test]
    fn a_sweep_that_is_ended_has_what_had_come() {
        let grid = Grid { clients: vec![1, 2, 3], thinks: vec![Think::None] };
        let done = std::cell::Cell::new(0);
        let plan = Plan {
            bounds: Bounds { time: Some(Duration::from_millis(50)), ..Bounds::default() },
            ..plan(0)
        };
        let mut is_over = || done.get() == 2;
        let mut each = |_: &Cell| done.set(done.get() + 1);
        let sweep = run(&grid, &plan, &mut source, None, &mut is_over, &mut each).unwrap();
        assert_eq!(sweep.cells.len(), 2);
    }
}
