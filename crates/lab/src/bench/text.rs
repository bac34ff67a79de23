//! The report of a run as text: the options, the results, times by percentile and as a histogram,
//! statuses, failures, how evenly the clients were served, and what limited the load if that was
//! not the server.

use super::Seen;
use super::options::Options;
use crate::histogram::{bar, rows};
use crate::load::{Figures, Pace, Think};
use crate::numbers::{bytes, count, rate, share, time};
use hdrhistogram::Histogram;
use std::fmt::{self, Write as _};

/// From this share of its time on, the busiest thread counts as the bottleneck.
pub(super) const BUSY: f64 = 0.9;

const PERCENTILES: [f64; 8] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999];
/// The width of the histogram's bars in characters.
const BAR: usize = 40;

/// The report.
pub(super) fn report(options: &Options, threads: usize, seen: &Seen) -> String {
    let mut text = String::with_capacity(4096);
    // Writing to a string cannot fail.
    let _whole = write(&mut text, options, threads, seen);
    text
}

fn write(text: &mut String, options: &Options, threads: usize, seen: &Seen) -> fmt::Result {
    let figures = &seen.figures;
    writeln!(text, "{}", options.url)?;
    writeln!(text, "{}\n", asked(options, threads))?;
    if seen.interrupted {
        writeln!(text, "Interrupted: these are the figures until then.\n")?;
    }
    write_figures(text, figures)?;
    pause(text, options, figures)?;
    limits(text, options, figures)?;
    match &seen.server {
        None => Ok(()),
        Some(server) => write!(text, "\n{}", server.told(figures.answered())),
    }
}

/// The options in one line.
pub(super) fn asked(options: &Options, threads: usize) -> String {
    let of = |count: u64, noun: &str| {
        let end = if count == 1 { "" } else { "s" };
        format!("{} {noun}{end}", self::count(count))
    };
    let clients = of(u64::from(options.clients), "client");
    let clients = if options.shape.is_some() { format!("up to {clients}") } else { clients };
    let threads = of(threads as u64, "thread");
    let keep = if options.keep_alive { "" } else { ", a connection for each request" };
    format!("{clients} on {threads}, {}{keep}", pace(&options.pace))
}

fn pace(pace: &Pace) -> String {
    match pace {
        Pace::Greedy => "closed loop without pauses".to_owned(),
        Pace::Think(think) => format!("closed loop with pauses of {think}"),
        Pace::Open { rate, even } => {
            let law = if *even { "evenly spaced" } else { "Poisson" };
            format!("open loop of {rate} requests a second, {law}")
        }
        Pace::PartlyOpen { rate, requests, think } => {
            let pauses =
                if think.is_none() { String::new() } else { format!(" with pauses of {think}") };
            format!("partly open: {rate} clients a second, {requests} requests each{pauses}")
        }
    }
}

/// The results of a load of any kind: the part of the report that does not depend on the options.
pub(super) fn figures(figures: &Figures) -> String {
    let mut text = String::with_capacity(2048);
    // Writing to a string cannot fail.
    let _whole =
        write_figures(&mut text, figures).and_then(|()| bottleneck(&mut text, figures, false));
    text
}

fn write_figures(text: &mut String, figures: &Figures) -> fmt::Result {
    summary(text, figures)?;
    if figures.answered() > 0 {
        times(text, figures)?;
        shape(text, &figures.times.response)?;
    }
    outcomes(text, figures)?;
    fairness(text, figures)
}

fn summary(text: &mut String, figures: &Figures) -> fmt::Result {
    let seconds = figures.elapsed_ns as f64 / 1e9;
    let per_second = |number: u64| if seconds > 0.0 { number as f64 / seconds } else { 0.0 };
    let mut row =
        |name: &str, value: String, more: String| writeln!(text, "  {name:<12}{value:>12}  {more}");
    let answered = figures.answered();
    row("Took", time(figures.elapsed_ns as f64), String::new())?;
    row("Answered", count(answered), format!("{} a second", rate(figures.rate())))?;
    row("Failed", count(figures.failed()), String::new())?;
    let read = bytes(per_second(figures.read_bytes));
    let bodies = bytes(figures.body_bytes as f64);
    row("Received", bytes(figures.read_bytes as f64), format!("{read} a second; bodies {bodies}"))?;
    row("Sent", bytes(figures.sent_bytes as f64), String::new())?;
    let reused =
        format!("{} of the answers came over one used before", share(figures.reused, answered));
    row("Connections", count(figures.connections), reused)?;
    let handshakes = figures.full_handshakes + figures.resumed_handshakes;
    if handshakes > 0 {
        let times = &figures.times.handshake;
        let at = |quantile| time(times.value_at_quantile(quantile).min(times.max()) as f64);
        let more = format!(
            "{} of them resumed a session; p50 {}, p99 {}",
            share(figures.resumed_handshakes, handshakes),
            at(0.5),
            at(0.99)
        );
        row("Handshakes", count(handshakes), more)?;
    }
    let cpu_s = figures.cpu_us as f64 / 1e6;
    let each = if cpu_s > 0.0 { rate(answered as f64 / cpu_s) } else { "-".to_owned() };
    let busy =
        format!("{each} answers a second of it; busiest thread {:.0} %", figures.busiest * 100.0);
    row("Client's CPU", time(cpu_s * 1e9), busy)?;
    writeln!(text)
}

/// The percentiles of each kind of time. Response and service differ only if requests were due at
/// given times.
fn times(text: &mut String, figures: &Figures) -> fmt::Result {
    let times = &figures.times;
    let mut columns: Vec<(&str, &Histogram<u64>)> = vec![("response", &times.response)];
    if times.response != times.service {
        columns.push(("service", &times.service));
    }
    columns.push(("first byte", &times.wait));
    if !times.connect.is_empty() {
        columns.push(("connect", &times.connect));
    }
    if !times.handshake.is_empty() {
        columns.push(("handshake", &times.handshake));
    }
    let heading: String = columns.iter().map(|(name, _)| format!("{name:>12}")).collect();
    writeln!(text, "  {:<12}{heading}", "Times")?;
    let mut row = |name: &str, value: &dyn Fn(&Histogram<u64>) -> f64| {
        let cells: String =
            columns.iter().map(|(_, it)| format!("{:>12}", time(value(it)))).collect();
        writeln!(text, "  {name:<12}{cells}")
    };
    row("least", &|it| it.min() as f64)?;
    row("mean", &Histogram::mean)?;
    row("deviation", &Histogram::stdev)?;
    for percentile in PERCENTILES {
        // A percentile finer than the number of responses is the slowest of them.
        let tail = (1.0 - percentile / 100.0) * times.response.len() as f64;
        if tail >= 0.999 || percentile < 99.0 {
            row(&format!("{percentile} %"), &|it| {
                it.value_at_quantile(percentile / 100.0).min(it.max()) as f64
            })?;
        }
    }
    row("most", &|it| it.max() as f64)?;
    if times.response != times.service {
        writeln!(
            text,
            "  Response counts from when a request was to begin, service from when it did."
        )?;
    }
    writeln!(text)
}

fn shape(text: &mut String, response: &Histogram<u64>) -> fmt::Result {
    let rows = rows(response);
    let most = rows.iter().map(|row| row.count).max().unwrap_or_default();
    writeln!(text, "  Response times")?;
    for row in rows {
        let (until, number) = (time(row.most_ns as f64), count(row.count));
        writeln!(text, "  <= {until:<9}{number:>12}  {}", bar(row.count, most, BAR))?;
    }
    writeln!(text)
}

fn outcomes(text: &mut String, figures: &Figures) -> fmt::Result {
    let all = figures.answered() + figures.failed();
    for (status, number) in &figures.statuses {
        writeln!(text, "  Status {status:<5}{:>12}  {}", count(*number), share(*number, all))?;
    }
    for (failure, number) in &figures.failures {
        let name = failure.name();
        writeln!(text, "  Failed: {name:<17}{:>7}  {}", count(*number), share(*number, all))?;
    }
    if figures.closed_idle > 0 {
        let number = count(figures.closed_idle);
        writeln!(text, "  Kept connections that the server closed while idle: {number}")?;
    }
    Ok(())
}

fn fairness(text: &mut String, figures: &Figures) -> fmt::Result {
    let it = figures.fairness();
    writeln!(
        text,
        "  Fairness: {} to {} answers for a client, median {}; Jain's index {:.3}; {} of {} \
         clients never served",
        count(it.least),
        count(it.most),
        count(it.median),
        it.index,
        count(it.never as u64),
        count(it.clients as u64)
    )
}

/// The pauses, as requested and as they turned out.
fn pause(text: &mut String, options: &Options, figures: &Figures) -> fmt::Result {
    let (Pace::Think(think) | Pace::PartlyOpen { think, .. }) = options.pace else { return Ok(()) };
    let found = &figures.times.pause;
    if found.is_empty() {
        return Ok(());
    }
    let asked = match think {
        Think::Fixed(seconds) => time(seconds * 1e9),
        think => think.to_string(),
    };
    let at = |quantile| time(found.value_at_quantile(quantile) as f64);
    let mean = time(found.mean());
    writeln!(
        text,
        "  Pauses: asked {asked}; came about mean {mean}, p50 {}, p99 {}",
        at(0.5),
        at(0.99)
    )
}

/// What limited the load besides the server.
fn limits(text: &mut String, options: &Options, figures: &Figures) -> fmt::Result {
    if figures.most_waiting > 0 {
        writeln!(
            text,
            "  Arrivals that found no client free: {} at once at the most, {} at the end; more \
             clients (-c) bring them to the server sooner",
            count(figures.most_waiting),
            count(figures.left_waiting)
        )?;
    }
    bottleneck(text, figures, options.threads.is_some())
}

/// Reports that the client itself limited the load. `threads` says whether more threads might help.
fn bottleneck(text: &mut String, figures: &Figures, threads: bool) -> fmt::Result {
    if figures.busiest <= BUSY {
        return Ok(());
    }
    writeln!(
        text,
        "  The client was the bottleneck: its busiest thread worked {:.0} % of the time, so the \
         server can do more than this{}",
        figures.busiest * 100.0,
        if threads { "; try more --threads" } else { "" }
    )
}
