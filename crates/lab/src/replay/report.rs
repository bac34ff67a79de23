//! The report of a replay, as text and as JSON: what was read, what was not replayed and why, what
//! the server answered and how that differs from the log.

use super::Seen;
use super::options::Options;
use super::play::Difference;
use super::queue::Place;
use super::read::Malformed;
use crate::bench::{figures_json, figures_text};
use crate::numbers::{count, share, time};
use serde_json::{Value, json};
use std::fmt::{self, Write as _};
use std::path::PathBuf;

/// The report as text.
pub(super) fn text(options: &Options, seen: &Seen) -> String {
    let mut text = String::with_capacity(4096);
    // Writing to a string cannot fail.
    let _whole = write(&mut text, options, seen);
    text
}

fn write(text: &mut String, options: &Options, seen: &Seen) -> fmt::Result {
    writeln!(text, "{}", options.url)?;
    writeln!(text, "{}\n", asked(options))?;
    if seen.interrupted {
        writeln!(text, "Interrupted: these are the figures until then.\n")?;
    }
    log(text, options, seen)?;
    text.push_str(&figures_text(&seen.figures));
    timing(text, options, seen)?;
    differences(text, options, seen)
}

fn asked(options: &Options) -> String {
    let clients = options.clients;
    let parts = match options.parts {
        1 => format!("{clients} clients"),
        parts => format!("{parts} parts of the log with {clients} clients each"),
    };
    let timing = match options.speed {
        None => "as fast as answers come".to_owned(),
        Some(1.0) => "at the log's own times".to_owned(),
        Some(speed) => format!("at the log's own times, {speed} times as fast"),
    };
    format!("{parts}, {timing}")
}

/// What was read, and which of it was not replayed.
fn log(text: &mut String, options: &Options, seen: &Seen) -> fmt::Result {
    let reading = &seen.reading;
    let mut row = |name: &str, number: u64| writeln!(text, "  {name:<24}{:>12}", count(number));
    row("Lines of the log", reading.lines)?;
    row("  requests", reading.requests)?;
    for (omission, number) in &reading.omitted {
        row(&format!("  {}", omission.name()), *number)?;
    }
    row("  malformed", reading.malformed)?;
    if reading.late > 0 {
        row("  out of order", reading.late)?;
    }
    writeln!(text, "  Format: {}", seen.format.name())?;
    if let Some(failure) = &reading.failure {
        writeln!(text, "  The log could not be read to its end: {failure}")?;
    }
    if !reading.first_malformed.is_empty() {
        writeln!(text, "\n  The first malformed lines")?;
    }
    for Malformed { place, reason, excerpt } in &reading.first_malformed {
        writeln!(text, "  {}: {reason}", shown(*place, &options.logs))?;
        if !excerpt.is_empty() {
            writeln!(text, "    {excerpt}")?;
        }
    }
    writeln!(text)
}

/// How well the log's times were kept, and whether the readers kept up.
fn timing(text: &mut String, options: &Options, seen: &Seen) -> fmt::Result {
    if let Some(late) = &seen.tally.late {
        let at = |quantile| time(late.value_at_quantile(quantile).min(late.max()) as f64);
        writeln!(
            text,
            "  Requests began after their time by {} at the median, p99 {}, at the most {}",
            at(0.5),
            at(0.99),
            at(1.0)
        )?;
    }
    // With a log on standard input, a client may wait because there is no further request yet.
    let waits = seen.tally.waits;
    if waits > 0 && options.logs.iter().all(|path| path.as_os_str() != "-") {
        writeln!(text, "  Clients found the reading of the log behind {} times", count(waits))?;
    }
    Ok(())
}

fn differences(text: &mut String, options: &Options, seen: &Seen) -> fmt::Result {
    let tally = &seen.tally;
    let others: u64 = tally.other_statuses.values().sum();
    if tally.statuses > 0 {
        let (number, all) = (count(others), count(tally.statuses));
        let share = share(others, tally.statuses);
        writeln!(text, "\n  Statuses other than the log's: {number} of {all} ({share})")?;
        for ((logged, answered), number) in &tally.other_statuses {
            writeln!(text, "    {logged} in the log, {answered} now{:>12}", count(*number))?;
        }
        list(text, &tally.first_statuses, "status", &options.logs)?;
    }
    if let Some((name, sizes)) = tally.sizes(seen.format.sizes())
        && sizes.all > 0
    {
        let (number, all) = (count(sizes.others), count(sizes.all));
        let share = share(sizes.others, sizes.all);
        writeln!(text, "\n  Sizes ({name}) other than the log's: {number} of {all} ({share})")?;
        list(text, &sizes.first, "bytes", &options.logs)?;
    }
    Ok(())
}

fn list(text: &mut String, first: &[Difference], what: &str, logs: &[PathBuf]) -> fmt::Result {
    let mut first: Vec<&Difference> = first.iter().collect();
    first.sort_by_key(|difference| difference.place);
    for Difference { place, asked, logged, answered } in first {
        let place = shown(*place, logs);
        writeln!(text, "    {place}: {what} {answered}, the log has {logged}: {asked}")?;
    }
    Ok(())
}

/// `access.log:17`
fn shown(place: Place, logs: &[PathBuf]) -> String {
    let name = logs.get(place.file).map_or_else(String::new, |path| path.display().to_string());
    format!("{name}:{}", place.line)
}

/// The report as JSON, with a line feed at its end; docs/lab.md lists the keys.
pub(super) fn json(options: &Options, seen: &Seen) -> String {
    let (reading, tally) = (&seen.reading, &seen.tally);
    let omitted: serde_json::Map<String, Value> = reading
        .omitted
        .iter()
        .map(|(omission, number)| (omission.name().to_owned(), json!(number)))
        .collect();
    let malformed = |it: &Malformed| {
        let at = shown(it.place, &options.logs);
        json!({ "at": at, "reason": it.reason, "line": it.excerpt })
    };
    let malformed: Vec<Value> = reading.first_malformed.iter().map(malformed).collect();
    let difference = |it: &Difference| {
        let at = shown(it.place, &options.logs);
        json!({ "at": at, "asked": it.asked, "logged": it.logged, "answered": it.answered })
    };
    let all = |first: &[Difference]| first.iter().map(difference).collect::<Vec<_>>();
    let mut pairs: Vec<Value> = Vec::new();
    for ((logged, answered), number) in &tally.other_statuses {
        pairs.push(json!({ "logged": logged, "answered": answered, "count": number }));
    }
    let sizes = tally.sizes(seen.format.sizes()).map(|(name, sizes)| {
        json!({
            "of": name,
            "compared": sizes.all,
            "different": sizes.others,
            "first": all(&sizes.first),
        })
    });
    let late = tally.late.as_ref().map(|late| {
        let at = |quantile| late.value_at_quantile(quantile).min(late.max());
        json!({ "p50_ns": at(0.5), "p99_ns": at(0.99), "most_ns": late.max() })
    });
    let mut value = figures_json(&seen.figures);
    value.extend([
        ("url".to_owned(), json!(options.url.to_string())),
        ("asked".to_owned(), json!(asked(options))),
        ("interrupted".to_owned(), json!(seen.interrupted)),
        (
            "log".to_owned(),
            json!({
                "format": seen.format.name(),
                "lines": reading.lines,
                "requests": reading.requests,
                "omitted": omitted,
                "malformed": reading.malformed,
                "first_malformed": malformed,
                "out_of_order": reading.late,
                "failure": reading.failure,
            }),
        ),
        ("late".to_owned(), json!(late)),
        ("reader_behind".to_owned(), json!(tally.waits)),
        (
            "statuses_compared".to_owned(),
            json!({
                "compared": tally.statuses,
                "different": tally.other_statuses.values().sum::<u64>(),
                "pairs": pairs,
                "first": all(&tally.first_statuses),
            }),
        ),
        ("sizes_compared".to_owned(), json!(sizes)),
    ]);
    // All keys are texts and all numbers finite, so this cannot fail.
    serde_json::to_string_pretty(&Value::Object(value)).unwrap_or_default() + "\n"
}
