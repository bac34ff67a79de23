//! The report as text, for terminals and for files that are compared line by line.

use super::compare;
use super::facts::{facts, notes, origin};
use crate::histogram::{bar, rows};
use crate::numbers;
use crate::results::Saved;
use crate::sweep::Sweep;
use std::fmt::Write as _;

/// The text of one run, or of several beside each other.
pub fn report(title: &str, runs: &[Saved]) -> String {
    let mut text = format!("{title}\n");
    if let Some(first) = runs.first() {
        let _ = writeln!(text, "{}", origin(first));
    }
    match runs {
        [one] => single(&mut text, one),
        several => {
            if let Some(sweep) = Sweep::of(several) {
                return text + "\n" + &sweep.text();
            }
            for run in several {
                for note in notes(run) {
                    let _ = writeln!(text, "\n{}: {note}", run.about.title);
                }
            }
            let (heading, rows) = compare::table(several);
            text.push('\n');
            text.push_str(&table(&heading, &rows));
        }
    }
    text
}

fn single(text: &mut String, run: &Saved) {
    for note in notes(run) {
        let _ = writeln!(text, "\n{note}");
    }
    let known = facts(run);
    let known = known.iter().filter(|fact| fact.value.is_some());
    let facts: Vec<Vec<String>> =
        known.map(|fact| vec![fact.name.to_owned(), fact.shown.clone()]).collect();
    let _ = write!(text, "\n{}", table(&[], &facts));
    let figures = &run.figures;
    let mut outcomes = Vec::new();
    for (status, count) in &figures.statuses {
        outcomes.push(vec![status.to_string(), numbers::count(*count)]);
    }
    for (failure, count) in &figures.failures {
        outcomes.push(vec![failure.name().to_owned(), numbers::count(*count)]);
    }
    if !outcomes.is_empty() {
        let _ = write!(text, "\nAnswers by status, failures by kind\n{}", table(&[], &outcomes));
    }
    let steps = rows(&figures.times.response);
    let most = steps.iter().map(|row| row.count).max().unwrap_or_default();
    if most > 0 {
        text.push_str("\nAnswers by response time\n");
    }
    for row in &steps {
        let (time, count) = (numbers::time(row.most_ns as f64), numbers::count(row.count));
        let _ = writeln!(text, "to {time:>8}  {count:>12}  {}", bar(row.count, most, 40));
    }
    for (name, points) in &run.series.lines {
        if let (Some(mean), Some((_, last))) = (run.series.mean(name), points.last()) {
            let _ = writeln!(text, "{name}: mean {mean:.2}, last {last:.2}");
        }
    }
}

/// A table with columns as wide as their widest cell; the first is aligned left, the others right.
pub fn table(heading: &[String], rows: &[Vec<String>]) -> String {
    let all = || std::iter::once(heading).chain(rows.iter().map(Vec::as_slice));
    let columns = all().map(<[String]>::len).max().unwrap_or_default();
    let wide = |column: usize| {
        let cells = all().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    let mut text = String::new();
    for row in all().filter(|row| !row.is_empty()) {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match index {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}
