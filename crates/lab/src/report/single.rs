//! The page of one run.

use super::charts;
use super::facts::{facts, notes, origin};
use super::page::Page;
use crate::plot::Chart;
use crate::results::Saved;

/// The figures in large type at the top.
const TILES: [&str; 7] = [
    "Requests a second",
    "Answers",
    "Failures",
    "Response time, median",
    "Response time, 99 %",
    "Response time, longest",
    "Clients never served",
];

/// The page.
pub fn page(title: &str, run: &Saved) -> String {
    let mut page = Page::new(title, &origin(run));
    let facts = facts(run);
    let has_load = run.has_load();
    if has_load {
        let tiles = facts.iter().filter(|fact| TILES.contains(&fact.name) && fact.value.is_some());
        page.tiles(tiles.map(|fact| (fact.name, fact.shown.as_str())));
        page.notes(&notes(run));
        page.heading("Over time");
        let mut over_time = charts::throughput(run);
        over_time.push(charts::latency_over_time(run));
        page.plots(drawn(&over_time));
        page.heading("In all");
        let mut plots = drawn(&[charts::percentiles(run)]);
        plots.push(charts::response_histogram(run).inline());
        let outcomes = charts::outcomes(run);
        if !outcomes.rows.is_empty() {
            plots.push(outcomes.inline());
        }
        plots.extend(drawn(&[charts::fairness(run)]));
        page.plots(plots);
    }
    if !has_load {
        page.notes(&notes(run));
    }
    if !run.series.lines.is_empty() {
        page.heading(if has_load { "The server's side" } else { "Over time" });
        page.plots(drawn(&charts::sampled(run)));
    }
    if has_load {
        page.heading("Figures");
        let known = facts.iter().filter(|fact| fact.value.is_some());
        let rows: Vec<Vec<String>> =
            known.map(|fact| vec![fact.name.to_owned(), fact.shown.clone()]).collect();
        page.table(&["".to_owned(), "".to_owned()], &rows);
    }
    asked(&mut page, run);
    page.html()
}

fn drawn(charts: &[Chart]) -> Vec<String> {
    charts.iter().filter(|chart| !chart.is_empty()).map(Chart::inline).collect()
}

fn asked(page: &mut Page, run: &Saved) {
    let about = &run.about;
    page.heading("What was asked");
    let rows: Vec<Vec<String>> =
        about.asked.iter().map(|(name, value)| vec![name.clone(), value.clone()]).collect();
    if !rows.is_empty() {
        page.table(&["".to_owned(), "".to_owned()], &rows);
    }
    if !about.words.is_empty() {
        page.code(&format!("evenkeel {} {}", about.command, about.words.join(" ")));
    }
}
