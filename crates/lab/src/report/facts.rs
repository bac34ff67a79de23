//! The facts about a run, the same for pages, texts and comparisons, and what a reader should know
//! before believing them.

use crate::numbers;
use crate::plot::Unit;
use crate::results::Saved;
use evenkeel_message::http_date;

/// A fact about a run.
#[derive(Clone, Debug)]
pub struct Fact {
    /// The name.
    pub name: &'static str,
    /// The value; none if the run does not have it.
    pub value: Option<f64>,
    /// The value as text.
    pub shown: String,
}

/// The facts of a run, always the same ones in the same order.
pub fn facts(run: &Saved) -> Vec<Fact> {
    let figures = &run.figures;
    let (response, service) = (&figures.times.response, &figures.times.service);
    let seconds = figures.elapsed_ns as f64 / 1e9;
    // If a run was cut short, only its seconds say how many requests were answered.
    let answered = answered(run) as f64;
    let failed = failed(run) as f64;
    let each_second = |value: f64| (seconds > 0.0).then(|| value / seconds);
    let at = |histogram: &hdrhistogram::Histogram<u64>, quantile: f64| {
        let value = histogram.value_at_quantile(quantile).min(histogram.max());
        (!histogram.is_empty()).then_some(value as f64)
    };
    let fairness = figures.fairness();
    let per_answer = |value: f64| (answered > 0.0 && value > 0.0).then(|| value / answered);
    let fact = |name, value: Option<f64>, unit: Unit| Fact {
        name,
        value,
        shown: value.map_or_else(|| "–".to_owned(), |value| unit.show(value)),
    };
    let known = fairness.clients > 0;
    // A run without a load has no such figures, which is different from zero.
    let load = |value: f64| run.has_load().then_some(value);
    let handshakes = figures.full_handshakes + figures.resumed_handshakes;
    let handshakes = (handshakes > 0).then_some(handshakes as f64);
    let server = |line: &str| run.series.mean(&format!("CPU of the server in %/{line}"));
    vec![
        fact("Requests a second", load(answered).and_then(each_second), Unit::Count),
        fact("Answers", load(answered), Unit::Count),
        fact("Failures", load(failed), Unit::Count),
        fact("Time", (seconds > 0.0).then_some(seconds * 1e9), Unit::Time),
        fact(
            "Bytes received a second",
            load(figures.read_bytes as f64).and_then(each_second),
            Unit::Bytes,
        ),
        fact("Response time, mean", at(response, 0.5).map(|_| response.mean()), Unit::Time),
        fact("Response time, median", at(response, 0.5), Unit::Time),
        fact("Response time, 90 %", at(response, 0.9), Unit::Time),
        fact("Response time, 99 %", at(response, 0.99), Unit::Time),
        fact("Response time, 99.9 %", at(response, 0.999), Unit::Time),
        fact("Response time, longest", at(response, 1.0), Unit::Time),
        fact("Service time, median", at(service, 0.5), Unit::Time),
        fact("Service time, 99 %", at(service, 0.99), Unit::Time),
        fact("Pause that came about, median", at(&figures.times.pause, 0.5), Unit::Time),
        fact("Clients", known.then_some(fairness.clients as f64), Unit::Count),
        fact("Clients never served", known.then_some(fairness.never as f64), Unit::Count),
        fact("Fairness (Jain's index)", known.then_some(fairness.index), Unit::Count),
        fact("Connections", load(figures.connections as f64).filter(|_| run.whole), Unit::Count),
        fact("TLS handshakes", handshakes, Unit::Count),
        fact(
            "TLS handshakes that resumed, %",
            handshakes.map(|all| figures.resumed_handshakes as f64 * 100.0 / all),
            Unit::Count,
        ),
        fact("TLS handshake, median", at(&figures.times.handshake, 0.5), Unit::Time),
        fact("TLS handshake, 99 %", at(&figures.times.handshake, 0.99), Unit::Time),
        fact("Server's CPU, user, %", server("user"), Unit::Count),
        fact("Server's CPU, system, %", server("system"), Unit::Count),
        fact("Client's CPU an answer", per_answer(figures.cpu_us as f64 * 1e3), Unit::Time),
        fact("Client's busiest thread, %", load(figures.busiest * 100.0), Unit::Count),
    ]
}

/// The number of answers, also if the run was cut short.
pub fn answered(run: &Saved) -> u64 {
    let seconds = run.figures.seconds.iter().map(|second| second.answered).sum();
    if run.whole { run.figures.answered() } else { seconds }
}

/// The number of failures, also if the run was cut short.
pub fn failed(run: &Saved) -> u64 {
    let seconds = run.figures.seconds.iter().map(|second| second.failed).sum();
    if run.whole { run.figures.failed() } else { seconds }
}

/// Sentences about what the figures do not show, most important first.
pub fn notes(run: &Saved) -> Vec<String> {
    let figures = &run.figures;
    let mut notes = Vec::new();
    if !run.whole {
        notes.push("The run was cut short: what was saved until then is shown.".to_owned());
    }
    if figures.busiest > 0.9 {
        notes.push(format!(
            "The client was the bottleneck: its busiest thread worked {:.0} % of the time. The \
             server may bear more than this.",
            figures.busiest * 100.0
        ));
    }
    let failed = failed(run);
    if failed > 0 {
        let all = failed + answered(run);
        notes.push(format!(
            "{} of {} exchanges failed ({}); they are in no latency.",
            numbers::count(failed),
            numbers::count(all),
            numbers::share(failed, all)
        ));
    }
    let others: u64 =
        figures.statuses.iter().filter(|(status, _)| **status >= 400).map(|(_, count)| count).sum();
    if others > 0 {
        notes.push(format!("{} answers are errors of HTTP (4xx, 5xx).", numbers::count(others)));
    }
    let fairness = figures.fairness();
    if fairness.never > 0 {
        notes
            .push(format!("{} of {} clients were never served.", fairness.never, fairness.clients));
    }
    if figures.left_waiting > 0 {
        notes.push(format!(
            "{} requests that were to begin had not begun at the end: the latencies do not have \
             them yet.",
            numbers::count(figures.left_waiting)
        ));
    }
    let (response, service) = (&figures.times.response, &figures.times.service);
    let late = |quantile| response.value_at_quantile(quantile) as f64;
    if !service.is_empty() && late(0.99) > 1.1 * service.value_at_quantile(0.99) as f64 {
        notes.push(
            "Requests waited for a free client: response times count from when a request was to \
             begin, service times from when it began."
                .to_owned(),
        );
    }
    if let Some(asked) = run.about.asked.get("think").filter(|_| !figures.times.pause.is_empty()) {
        let median = figures.times.pause.value_at_quantile(0.5) as f64;
        notes.push(format!(
            "The pause that was asked for is {asked}; the median of those that came about is {}.",
            numbers::time(median)
        ));
    }
    notes
}

/// When, where and with which program a run was made, in one line.
pub fn origin(run: &Saved) -> String {
    let about = &run.about;
    let machine = &about.machine;
    let mut parts = vec![format!("evenkeel {} {}", about.version, about.command)];
    if about.started_us > 0 {
        let seconds = i64::try_from(about.started_us / 1_000_000).unwrap_or_default();
        parts.push(String::from_utf8_lossy(&http_date(seconds)).into_owned());
    }
    if machine.cores > 0 {
        let cores = if machine.cores == 1 { "core" } else { "cores" };
        parts.push(format!("client on {} {cores}, Linux {}", machine.cores, machine.kernel));
    }
    if !machine.processor.is_empty() {
        parts.push(machine.processor.clone());
    }
    if run.parts > 1 {
        parts.push(format!("sum of {} runs", run.parts));
    }
    parts.join(" · ")
}
