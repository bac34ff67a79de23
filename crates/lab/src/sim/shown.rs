//! The results of simulations as a table, as JSON and as a page with plots.

use super::{Outcome, Sample, Setup};
use crate::numbers;
use crate::plot::{Axis, Chart, Unit};
use crate::report::page::Page;
use crate::report::text;
use serde_json::{Value, json};

/// The outcome of a law with its setup.
pub type Run = (Setup, Outcome);

const HEADING: [&str; 14] = [
    "law",
    "full after",
    "forks",
    "retired",
    "called back",
    "most children",
    "beyond demand",
    "answers/s",
    "median",
    "99 %",
    "most",
    "deviation",
    "lost",
    "never served",
];

fn rows(runs: &[Run]) -> Vec<Vec<String>> {
    let row = |(setup, seen): &Run| {
        let response = |quantile| numbers::time(seen.response.value_at_quantile(quantile) as f64);
        vec![
            setup.law.name().to_owned(),
            seen.full_s.map_or_else(|| "not".to_owned(), |s| numbers::time(s * 1e9)),
            numbers::count(seen.forks as u64),
            numbers::count(seen.retired as u64),
            numbers::count(seen.called_back as u64),
            numbers::count(seen.most_children as u64),
            seen.most_beyond.to_string(),
            numbers::rate(seen.answered as f64 / setup.seconds),
            response(0.5),
            response(0.99),
            numbers::time(seen.response.max() as f64),
            numbers::time(seen.response.stdev()),
            numbers::count(seen.lost),
            numbers::count(seen.never_served as u64),
        ]
    };
    runs.iter().map(row).collect()
}

/// A description of the simulation in one line.
fn subject(setup: &Setup) -> String {
    let held = &setup.directives;
    format!(
        "{}, StartServers {}, {} workers in {} of {} threads, spare {} to {}; {} cores, a child is \
         ready after {}, seed {}",
        held.model.name(),
        held.start_servers,
        held.limits.children * held.limits.threads,
        if held.limits.children == 1 { "one child" } else { "children" },
        held.limits.threads,
        held.limits.min_spare,
        held.limits.max_spare,
        setup.cores,
        numbers::time(setup.start_s * 1e9),
        setup.seed
    )
}

/// Remarks on what should not be missed.
fn notes(runs: &[Run]) -> Vec<String> {
    let mut notes = Vec::new();
    for (setup, seen) in runs {
        let name = setup.law.name();
        if seen.overflows > 0 {
            notes.push(format!(
                "{name}: {} attempts to connect found the queue full and were made again a second \
                 or more later.",
                numbers::count(seen.overflows)
            ));
        }
        if let Some(pool) = &setup.application {
            notes.push(format!(
                "{name}: {} of the pool's {} workers were busy on average; a request waited {} for \
                 one, and at most {} requests waited.",
                numbers::rate(seen.pool_utilisation * pool.workers as f64),
                numbers::count(pool.workers as u64),
                numbers::time(seen.queued.mean()),
                numbers::count(seen.most_queue as u64)
            ));
        }
        if seen.utilisation > 0.97 {
            notes.push(format!("{name}: the cores were busy all the time."));
        }
    }
    notes
}

/// The results as text.
pub fn as_text(runs: &[Run]) -> String {
    let Some((first, _)) = runs.first() else { return String::new() };
    let heading: Vec<String> = HEADING.iter().map(|&name| name.to_owned()).collect();
    let mut out = format!("{}\n\n{}", subject(first), text::table(&heading, &rows(runs)));
    for note in notes(runs) {
        out.push_str(&format!("\n{note}"));
    }
    out.push_str("\nfull after: from the load's first rise until nobody waited for a worker\n");
    out
}

/// The results as JSON: an object for each law, with its rows over time.
pub fn as_json(runs: &[Run]) -> String {
    let sample = |row: &Sample| {
        json!({
            "second": row.second, "asking": row.asking, "serving": row.serving,
            "starting": row.starting, "leaving": row.leaving, "workers": row.workers,
            "busy": row.busy, "waiting": row.waiting, "answers_per_s": row.rate,
        })
    };
    let run = |(setup, seen): &Run| {
        let response = |quantile| seen.response.value_at_quantile(quantile);
        json!({
            "law": setup.law.name(), "seed": setup.seed, "seconds": setup.seconds,
            "full_s": seen.full_s, "forks": seen.forks, "retired": seen.retired,
            "called_back": seen.called_back, "worn_out": seen.worn_out,
            "most_children": seen.most_children,
            "most_beyond_demand": seen.most_beyond, "answered": seen.answered,
            "overflows": seen.overflows, "never_served": seen.never_served,
            "cpu_share": seen.utilisation, "lost": seen.lost,
            "busiest_child_share": seen.busiest_share,
            "response_ns": {
                "mean": seen.response.mean(), "deviation": seen.response.stdev(), "p50": response(0.5), "p90": response(0.9),
                "p99": response(0.99), "p99.9": response(0.999), "most": seen.response.max(),
            },
            "pool": setup.application.map(|pool| json!({
                "workers": pool.workers, "busy_share": seen.pool_utilisation,
                "most_queue": seen.most_queue,
                "queued_ns": { "mean": seen.queued.mean(), "most": seen.queued.max() },
            })),
            "waited_ns": { "mean": seen.waited.mean(), "most": seen.waited.max() },
            "samples": seen.samples.iter().map(sample).collect::<Vec<_>>(),
        })
    };
    let all: Vec<Value> = runs.iter().map(run).collect();
    format!("{:#}\n", Value::Array(all))
}

/// The results as a page with plots.
pub fn as_page(runs: &[Run]) -> String {
    let Some((first, _)) = runs.first() else { return String::new() };
    let mut page = Page::new("The pool in a simulation", &subject(first));
    let heading: Vec<String> = HEADING.iter().map(|&name| name.to_owned()).collect();
    page.notes(&notes(runs)).table(&heading, &rows(runs));
    page.paragraph("Full after: from the load's first rise until nobody waited for a worker.");
    for (setup, seen) in runs {
        page.heading(setup.law.name());
        page.plots([supply(seen).inline(), children(seen).inline()]);
    }
    let mut rates = Chart::new("Answers a second", moment(), Axis::new("answers/s", Unit::Count));
    for (setup, seen) in runs {
        rates = rates.line(setup.law.name(), points(seen, |row| row.rate));
    }
    page.heading("Beside each other").plots([rates.inline()]);
    page.html()
}

fn moment() -> Axis {
    Axis::new("time", Unit::Moment)
}

fn points(seen: &Outcome, value: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    seen.samples.iter().map(|row| (row.second, value(row))).collect()
}

fn supply(seen: &Outcome) -> Chart {
    Chart::new("Workers", moment(), Axis::new("workers", Unit::Count))
        .line("there", points(seen, |row| row.workers as f64))
        .line("busy", points(seen, |row| row.busy as f64))
        .line("connections waiting", points(seen, |row| row.waiting as f64))
}

fn children(seen: &Outcome) -> Chart {
    Chart::new("Children", moment(), Axis::new("children", Unit::Count))
        .line("serving", points(seen, |row| row.serving as f64))
        .line("starting", points(seen, |row| row.starting as f64))
        .line("parked or ending", points(seen, |row| row.leaving as f64))
}
