//! The plots of a run, and of several runs beside each other. The caller leaves out those that are
//! empty.

use crate::histogram;
use crate::load::Second;
use crate::numbers;
use crate::plot::{Axis, Bar, Bars, Chart, Unit};
use crate::results::Saved;
use hdrhistogram::Histogram;

fn moments() -> Axis {
    Axis::new("since the beginning", Unit::Moment)
}

fn times(label: &str) -> Axis {
    Axis::new(label, Unit::Time).by_factors()
}

/// The complete seconds. The last one is usually only a part of a second.
fn whole_seconds(run: &Saved) -> &[Second] {
    let seconds = &run.figures.seconds;
    let count = seconds.len();
    if run.whole && count > 2 { seconds.get(..count - 1).unwrap_or_default() } else { seconds }
}

fn over_time(run: &Saved, value: impl Fn(&Second) -> f64) -> Vec<(f64, f64)> {
    let seconds = whole_seconds(run).iter();
    seconds.map(|second| (f64::from(second.number), value(second))).collect()
}

fn quantile(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile).min(histogram.max()) as f64
}

/// Answers and failures by second, with the number of active clients where it changes.
pub fn throughput(run: &Saved) -> Vec<Chart> {
    let y = Axis::new("a second", Unit::Count);
    let mut rate = Chart::new("Throughput", moments(), y)
        .line("answers", over_time(run, |second| second.answered as f64));
    if run.figures.seconds.iter().any(|second| second.failed > 0) {
        rate = rate.line("failures", over_time(run, |second| second.failed as f64));
    }
    let mut charts = vec![rate];
    let clients = |second: &Second| f64::from(second.clients);
    let seconds = whole_seconds(run);
    let changes = seconds.windows(2).any(|pair| matches!(pair, [a, b] if a.clients != b.clients));
    let waits = seconds.iter().any(|second| second.waiting > 0);
    if changes || waits {
        let y = Axis::new("at the second's end", Unit::Count);
        let mut chart = Chart::new("Clients at work and requests that wait", moments(), y)
            .line("clients", over_time(run, clients));
        if waits {
            chart = chart.line("waiting", over_time(run, |second| second.waiting as f64));
        }
        charts.push(chart);
    }
    let resumed = |second: &Second| second.resumed_handshakes as f64;
    let full = |second: &Second| second.full_handshakes as f64;
    if seconds.iter().any(|second| full(second) + resumed(second) > 0.0) {
        let y = Axis::new("a second", Unit::Count);
        let chart = Chart::new("TLS handshakes", moments(), y)
            .line("in full", over_time(run, full))
            .line("resumed", over_time(run, resumed));
        charts.push(chart);
    }
    charts
}

/// Percentiles of the response time by second.
pub fn latency_over_time(run: &Saved) -> Chart {
    let mut chart = Chart::new("Response time by second", moments(), times("response time"));
    for (name, share) in [("longest", 1.0), ("99 %", 0.99), ("90 %", 0.9), ("median", 0.5)] {
        chart = chart.line(name, over_time(run, |second| second.response.at_ns(share) as f64));
    }
    chart
}

/// The response time by percentile, and the service time if it differs.
pub fn percentiles(run: &Saved) -> Chart {
    let times = &run.figures.times;
    let mut chart = percentile_chart().line("response", percentile_points(&times.response));
    if !times.service.is_empty() && times.service != times.response {
        chart = chart.line("service", percentile_points(&times.service));
    }
    if !times.handshake.is_empty() {
        chart = chart.line("TLS handshake", percentile_points(&times.handshake));
    }
    chart
}

fn percentile_chart() -> Chart {
    let x = Axis::new("of the requests took no longer", Unit::Percentile).by_factors();
    Chart::new("Time by percentile", x, times("time"))
}

/// Points at 0 %, 50 %, and so on, where each step halves what is above, down to the last single
/// value.
fn percentile_points(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let count = histogram.len() as f64;
    let mut above = 1.0;
    // Eight points for each halving give a smooth line.
    while above * count >= 1.0 {
        points.push((1.0 / above, quantile(histogram, 1.0 - above)));
        above *= 0.5_f64.powf(0.125);
    }
    if count > 0.0 {
        points.push((count, histogram.max() as f64));
    }
    points
}

/// How many answers took how long.
pub fn response_histogram(run: &Saved) -> Bars {
    let rows = histogram::rows(&run.figures.times.response);
    let all = run.figures.times.response.len();
    let rows = rows.into_iter().map(|row| Bar {
        name: format!("to {}", Unit::Time.show(row.most_ns as f64)),
        value: row.count as f64,
        shown: format!("{} ({})", numbers::count(row.count), numbers::share(row.count, all)),
        colour: 0,
    });
    Bars { title: "Answers by response time".to_owned(), rows: rows.collect() }
}

/// Answers by status and failures by kind.
pub fn outcomes(run: &Saved) -> Bars {
    let figures = &run.figures;
    let all = figures.answered() + figures.failed();
    let shown = |count: u64| format!("{} ({})", numbers::count(count), numbers::share(count, all));
    let status = figures.statuses.iter().map(|(status, count)| {
        let colour = match status / 100 {
            2 => 2,
            3 => 0,
            4 => 4,
            _ => 5,
        };
        let name = status.to_string();
        Bar { name, value: *count as f64, shown: shown(*count), colour }
    });
    let failure = figures.failures.iter().map(|(failure, count)| {
        let name = failure.name().to_owned();
        Bar { name, value: *count as f64, shown: shown(*count), colour: 1 }
    });
    Bars {
        title: "Answers by status, failures by kind".to_owned(),
        rows: status.chain(failure).collect(),
    }
}

/// The number of answers of each client, fewest first.
pub fn fairness(run: &Saved) -> Chart {
    let mut counts = run.figures.by_client.clone();
    counts.sort_unstable();
    let all = counts.len().max(2) - 1;
    let points = counts.iter().enumerate();
    let points = points.map(|(at, count)| (at as f64 * 100.0 / all as f64, *count as f64));
    let x = Axis::new("of the clients, those least served first", Unit::Share);
    let chart = Chart::new("Answers by client", x, Axis::new("answers", Unit::Count));
    if counts.len() < 2 { chart } else { chart.line("answers", points.collect()) }
}

/// What was sampled besides the load.
pub fn sampled(run: &Saved) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (plot, lines) in run.series.plots() {
        let unit = if plot.contains("bytes") { Unit::Bytes } else { Unit::Count };
        let mut chart = Chart::new(plot, moments(), Axis::new("", unit));
        for (name, points) in lines {
            chart = chart.line(name, points.to_vec());
        }
        charts.push(chart);
    }
    charts
}

/// Several runs: throughput by second, the 99th percentile by second, time by percentile.
pub fn beside(runs: &[Saved]) -> Vec<Chart> {
    let y = Axis::new("answers a second", Unit::Count);
    let mut rate = Chart::new("Throughput", moments(), y);
    let title = "Response time of the 99th percentile by second";
    let mut late = Chart::new(title, moments(), times("response time"));
    let mut shape = percentile_chart();
    for run in runs {
        let name = &run.about.title;
        rate = rate.line(name, over_time(run, |second| second.answered as f64));
        late = late.line(name, over_time(run, |second| second.response.at_ns(0.99) as f64));
        shape = shape.line(name, percentile_points(&run.figures.times.response));
    }
    vec![rate, late, shape]
}
