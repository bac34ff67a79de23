//! The page of several runs: the first run is the base, and the others are shown beside it with
//! ratios.

use super::charts;
use super::facts::{Fact, facts, notes, origin};
use super::page::Page;
use crate::plot::Chart;
use crate::results::Saved;

/// The page.
pub fn page(title: &str, runs: &[Saved]) -> String {
    let first = runs.first().map(origin).unwrap_or_default();
    let mut page = Page::new(title, &first);
    for run in runs {
        let notes: Vec<String> =
            notes(run).iter().map(|note| format!("{}: {note}", run.about.title)).collect();
        page.notes(&notes);
    }
    page.heading("Figures");
    page.paragraph("Ratios are to the first run.");
    let (heading, rows) = table(runs);
    page.table(&heading, &rows);
    page.heading("Plots");
    let plots = charts::beside(runs);
    page.plots(plots.iter().filter(|chart| !chart.is_empty()).map(Chart::inline));
    page.heading("What was asked");
    let about = runs.iter().map(|run| {
        let asked = run.about.asked.iter().map(|(name, value)| format!("{name} {value}"));
        vec![run.about.title.clone(), asked.collect::<Vec<_>>().join(", "), origin(run)]
    });
    let heading = ["run", "asked", "made by"].map(str::to_owned);
    page.table(&heading, &about.collect::<Vec<_>>());
    page.html()
}

/// A row for each fact of any run, a column for each run, and ratios to the first.
pub fn table(runs: &[Saved]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut heading = vec![String::new()];
    for (index, run) in runs.iter().enumerate() {
        heading.push(run.about.title.clone());
        if index > 0 {
            heading.push("×".to_owned());
        }
    }
    let columns: Vec<Vec<Fact>> = runs.iter().map(facts).collect();
    let Some(base) = columns.first() else { return (heading, Vec::new()) };
    let mut rows = Vec::new();
    for (number, fact) in base.iter().enumerate() {
        let cells: Vec<&Fact> = columns.iter().filter_map(|facts| facts.get(number)).collect();
        if cells.iter().all(|cell| cell.value.is_none()) {
            continue;
        }
        let mut row = vec![fact.name.to_owned()];
        for (index, cell) in cells.into_iter().enumerate() {
            row.push(cell.shown.clone());
            if index > 0 {
                row.push(ratio(cell.value, fact.value));
            }
        }
        rows.push(row);
    }
    (heading, rows)
}

fn ratio(value: Option<f64>, base: Option<f64>) -> String {
    match (value, base) {
        (Some(value), Some(base)) if base > 0.0 => format!("{:.2}", value / base),
        _ => "–".to_owned(),
    }
}
