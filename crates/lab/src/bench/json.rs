//! The report of a run as JSON: the options, the figures, and every second. Times are in
//! nanoseconds, and their names say so; docs/lab.md lists the keys.

use super::Seen;
use super::options::Options;
use super::text::{BUSY, asked};
use crate::load::{Failure, Figures, Second};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The report, with a line feed at its end.
pub(super) fn report(options: &Options, threads: usize, seen: &Seen) -> String {
    let mut value = figures_json(&seen.figures);
    value.extend([
        ("url".to_owned(), json!(options.url.to_string())),
        ("asked".to_owned(), json!(asked(options, threads))),
        ("seed".to_owned(), json!(options.seed)),
        ("interrupted".to_owned(), json!(seen.interrupted)),
        ("server".to_owned(), json!(seen.server)),
    ]);
    // All keys are texts and all numbers finite, so this cannot fail.
    serde_json::to_string_pretty(&Value::Object(value)).unwrap_or_default() + "\n"
}

/// The figures of a run, for any command.
pub(crate) fn figures_json(figures: &Figures) -> Map<String, Value> {
    let fairness = figures.fairness();
    let value = json!({
        "elapsed_ns": figures.elapsed_ns,
        "answered": figures.answered(),
        "failed": figures.failed(),
        "rate_per_s": figures.rate(),
        "response": percentiles(&figures.times.response),
        "service": percentiles(&figures.times.service),
        "wait": percentiles(&figures.times.wait),
        "connect": percentiles(&figures.times.connect),
        "handshake": percentiles(&figures.times.handshake),
        "pause": percentiles(&figures.times.pause),
        "statuses": statuses(&figures.statuses),
        "failures": failures(&figures.failures),
        "connections": figures.connections,
        "handshakes": {
            "full": figures.full_handshakes,
            "resumed": figures.resumed_handshakes,
        },
        "reused": figures.reused,
        "closed_idle": figures.closed_idle,
        "read_bytes": figures.read_bytes,
        "body_bytes": figures.body_bytes,
        "sent_bytes": figures.sent_bytes,
        "most_waiting": figures.most_waiting,
        "left_waiting": figures.left_waiting,
        "fairness": {
            "clients": fairness.clients,
            "never_served": fairness.never,
            "least": fairness.least,
            "median": fairness.median,
            "most": fairness.most,
            "jain_index": fairness.index,
        },
        "client_cpu_us": figures.cpu_us,
        "client_busiest": figures.busiest,
        "client_was_bottleneck": figures.busiest > BUSY,
        "seconds": seconds(figures),
    });
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn percentiles(histogram: &Histogram<u64>) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    let at = |quantile| histogram.value_at_quantile(quantile).min(histogram.max());
    json!({
        "count": histogram.len(),
        "mean_ns": histogram.mean(),
        "deviation_ns": histogram.stdev(),
        "least_ns": histogram.min(),
        "p50_ns": at(0.5),
        "p75_ns": at(0.75),
        "p90_ns": at(0.9),
        "p95_ns": at(0.95),
        "p99_ns": at(0.99),
        "p99.9_ns": at(0.999),
        "p99.99_ns": at(0.9999),
        "most_ns": histogram.max(),
    })
}

fn statuses(counts: &BTreeMap<u16, u64>) -> Map<String, Value> {
    counts.iter().map(|(status, count)| (status.to_string(), json!(count))).collect()
}

fn failures(counts: &BTreeMap<Failure, u64>) -> Map<String, Value> {
    counts.iter().map(|(kind, count)| (kind.name().to_owned(), json!(count))).collect()
}

fn seconds(figures: &Figures) -> Vec<Value> {
    figures.seconds.iter().map(second).collect()
}

fn second(second: &Second) -> Value {
    json!({
        "second": second.number,
        "answered": second.answered,
        "failed": second.failed,
        "read_bytes": second.read_bytes,
        "clients": second.clients,
        "full_handshakes": second.full_handshakes,
        "resumed_handshakes": second.resumed_handshakes,
        "waiting": second.waiting,
        "statuses": statuses(&second.statuses),
        "failures": failures(&second.failures),
        "p50_ns": second.response.at_ns(0.5),
        "p99_ns": second.response.at_ns(0.99),
        "most_ns": second.response.most_ns(),
    })
}
