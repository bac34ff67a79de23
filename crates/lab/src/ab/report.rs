//! The report of ab: its text, its HTML table, its CSV and its gnuplot file, in ab's order, units
//! and rounding (support/ab.c: output_results, output_html_results).

use super::options::{Html, Options};
use crate::load::{Agreed, Exchange, Failure, Figures, Scheme};
use evenkeel_proto::response_field;
use std::fmt::Write as _;

/// What a report is made from.
pub(super) struct Facts<'a> {
    pub(super) options: &'a Options,
    pub(super) figures: &'a Figures,
    /// The beginning of the run, in microseconds since 1970.
    pub(super) begun_us: u64,
    /// The number of responses whose body has another length than the first one's.
    pub(super) other_lengths: u64,
    /// The bytes of requests that were sent.
    pub(super) sent_bytes: u64,
}

/// The times of an exchange in microseconds, divided as in ab.
#[derive(Clone, Copy)]
struct Stat {
    start_us: u64,
    connect: u64,
    total: u64,
    wait: u64,
}

impl Stat {
    fn of(exchange: &Exchange, begun_us: u64) -> Self {
        let us = |from: u64, to: u64| to.saturating_sub(from) / 1000;
        Self {
            start_us: begun_us + exchange.start_ns / 1000,
            connect: us(exchange.start_ns, exchange.connected_ns),
            total: us(exchange.start_ns, exchange.end_ns),
            wait: us(exchange.sent_ns, exchange.first_ns),
        }
    }

    fn processing(&self) -> u64 {
        self.total.saturating_sub(self.connect)
    }
}

/// Microseconds as whole milliseconds, rounded as in ab.
fn round_ms(us: u64) -> u64 {
    (us + 500) / 1000
}

impl Facts<'_> {
    fn stats(&self) -> Vec<Stat> {
        let all = self.figures.exchanges.iter();
        all.map(|exchange| Stat::of(exchange, self.begun_us)).collect()
    }

    fn taken_s(&self) -> f64 {
        self.figures.elapsed_ns as f64 / 1e9
    }

    fn document_length(&self) -> u64 {
        self.figures.sample.as_ref().map_or(0, |sample| sample.body_bytes)
    }

    /// The failures in ab's classes: connect, receive, length, exceptions.
    fn failures(&self) -> [u64; 4] {
        let count = |kinds: &[Failure]| -> u64 {
            kinds.iter().filter_map(|kind| self.figures.failures.get(kind)).sum()
        };
        [
            count(&[
                Failure::Refused,
                Failure::Connect,
                Failure::ConnectTimeout,
                Failure::Client,
                Failure::Tls,
            ]),
            count(&[Failure::Reset, Failure::Timeout]),
            self.other_lengths + count(&[Failure::Truncated]),
            count(&[Failure::Malformed]),
        ]
    }

    /// The requests that are complete, successful or not.
    fn done(&self) -> u64 {
        self.figures.answered() + self.figures.failed()
    }

    fn server_software(&self) -> String {
        let sample = self.figures.sample.as_ref();
        let field = sample.and_then(|sample| response_field(&sample.head, b"Server"));
        // ab shows only the first word.
        let text = String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
        text.split(' ').next().unwrap_or_default().to_owned()
    }

    /// The report for people, and for scripts that parse it.
    pub(super) fn text(&self) -> String {
        let mut out = String::from("\n\n");
        let (options, figures) = (self.options, self.figures);
        let target = &options.target;
        let done = self.done();
        row(&mut out, "Server Software", self.server_software());
        row(&mut out, "Server Hostname", target.host.clone());
        row(&mut out, "Server Port", target.port.to_string());
        if target.scheme == Scheme::Https {
            if let Some(tls) = figures.sample.as_ref().and_then(|sample| sample.tls.as_ref()) {
                let Agreed { version, suite, bits, key_bits, group } = tls;
                row(&mut out, "SSL/TLS Protocol", format!("{version},{suite},{key_bits},{bits}"));
                if let Some(group) = group {
                    row(&mut out, "Server Temp Key", group);
                }
            }
            if let Some(name) = options.server_name() {
                row(&mut out, "TLS Server Name", name);
            }
        }
        out.push('\n');
        row(&mut out, "Document Path", target.path.clone());
        let length = match options.variable_length {
            true => "Variable".to_owned(),
            false => format!("{} bytes", self.document_length()),
        };
        row(&mut out, "Document Length", length);
        out.push('\n');
        row(&mut out, "Concurrency Level", options.concurrency.to_string());
        row(&mut out, "Time taken for tests", format!("{:.3} seconds", self.taken_s()));
        row(&mut out, "Complete requests", done.to_string());
        let failures = self.failures();
        row(&mut out, "Failed requests", failures.iter().sum::<u64>().to_string());
        if failures.iter().any(|count| *count > 0) {
            let [connect, receive, length, exceptions] = failures;
            let _infallible = writeln!(
                out,
                "   (Connect: {connect}, Receive: {receive}, Length: {length}, Exceptions: {exceptions})"
            );
        }
        self.write_totals(&mut out);
        if done > 0 {
            self.write_rates(&mut out, done);
            self.write_times(&mut out);
        }
        out
    }

    fn write_totals(&self, out: &mut String) {
        let figures = self.figures;
        if figures.not_2xx() > 0 {
            row(out, "Non-2xx responses", figures.not_2xx().to_string());
        }
        if self.options.keep_alive {
            row(out, "Keep-Alive requests", figures.kept.to_string());
        }
        row(out, "Total transferred", format!("{} bytes", figures.read_bytes));
        if self.options.body.is_some() {
            row(out, "Total body sent", self.sent_bytes.to_string());
        }
        row(out, "HTML transferred", format!("{} bytes", figures.body_bytes));
    }

    fn write_rates(&self, out: &mut String, done: u64) {
        let (taken_s, done) = (self.taken_s(), done as f64);
        let concurrency = f64::from(self.options.concurrency);
        let each_ms = taken_s * 1e3 / done;
        let rate = |bytes: u64| bytes as f64 / 1024.0 / taken_s;
        let (read, sent) = (rate(self.figures.read_bytes), rate(self.sent_bytes));
        let _infallible = write!(
            out,
            "Requests per second:    {:.2} [#/sec] (mean)\n\
             Time per request:       {:.3} [ms] (mean)\n\
             Time per request:       {each_ms:.3} [ms] (mean, across all concurrent requests)\n\
             Transfer rate:          {read:.2} [Kbytes/sec] received\n",
            done / taken_s,
            concurrency * each_ms,
        );
        if self.options.body.is_some() {
            let indent = " ".repeat(24);
            let _infallible =
                write!(out, "{indent}{sent:.2} kb/s sent\n{indent}{:.2} kb/s total\n", read + sent);
        }
    }

    fn write_times(&self, out: &mut String) {
        let stats = self.stats();
        if stats.is_empty() {
            return;
        }
        let column = |value: fn(&Stat) -> u64| Column::of(stats.iter().map(value).collect());
        let rows = [
            ("Connect:", "the initial connection time", column(|it| it.connect)),
            ("Processing:", "the processing time", column(Stat::processing)),
            ("Waiting:", "the waiting time", column(|it| it.wait)),
            ("Total:", "the total time", column(|it| it.total)),
        ];
        out.push_str("\nConnection Times (ms)\n");
        if self.options.confidence {
            out.push_str("              min  mean[+/-sd] median   max\n");
            for (name, _, column) in &rows {
                column.write_whole(out, name);
            }
            for (_, what, column) in &rows {
                column.warn(out, what);
            }
        } else {
            out.push_str("              min   avg   max\n");
            for (name, _, column) in &rows {
                column.write_short(out, name);
            }
        }
        if self.options.percentiles && stats.len() > 1 {
            self.write_percentages(out, &stats);
        }
    }

    fn write_percentages(&self, out: &mut String, stats: &[Stat]) {
        let totals = sorted(stats.iter().map(|stat| stat.total).collect());
        out.push_str("\nPercentage of the requests served within a certain time (ms)\n");
        for percent in [50, 66, 75, 80, 90, 95, 98, 99] {
            let at = totals.len() * percent / 100;
            let time = round_ms(totals.get(at).copied().unwrap_or_default());
            let _infallible = writeln!(out, "  {percent}%  {time:5}");
        }
        let most = round_ms(totals.last().copied().unwrap_or_default());
        let _infallible = writeln!(out, " 100%  {most:5} (longest request)");
    }

    /// `-e`: for each percentage of the requests, the milliseconds within which they were served.
    pub(super) fn csv(&self) -> String {
        let totals = sorted(self.stats().iter().map(|stat| stat.total).collect());
        let mut out = String::from("Percentage served,Time in ms\n");
        for percent in 0..=100 {
            let at = match percent {
                0 => 0,
                100 => totals.len().saturating_sub(1),
                _ => (0.5 + totals.len() as f64 * f64::from(percent) / 100.0) as usize,
            };
            let last = totals.len().saturating_sub(1);
            let time = totals.get(at.min(last)).copied().unwrap_or_default();
            let _infallible = writeln!(out, "{percent},{:.3}", time as f64 / 1e3);
        }
        out
    }

    /// `-g`: every exchange, fastest first. `clock` formats a time in seconds since 1970.
    pub(super) fn gnuplot(&self, clock: impl Fn(u64) -> String) -> String {
        let mut stats = self.stats();
        stats.sort_by_key(|stat| stat.total);
        let mut out = String::from("starttime\tseconds\tctime\tdtime\tttime\twait\n");
        for stat in &stats {
            let seconds = stat.start_us / 1_000_000;
            let _infallible = writeln!(
                out,
                "{}\t{seconds}\t{}\t{}\t{}\t{}",
                clock(seconds),
                round_ms(stat.connect),
                round_ms(stat.processing()),
                round_ms(stat.total),
                round_ms(stat.wait)
            );
        }
        out
    }

    /// `-w`: the report as a table.
    pub(super) fn html(&self, html: &Html) -> String {
        let Html { table, row, cell } = html;
        let options = self.options;
        let mut out = format!("\n\n<table {table}>\n");
        let mut line = |name: &str, value: String| {
            let cell = if cell.is_empty() { "bgcolor=white" } else { cell };
            let _infallible = writeln!(
                out,
                "<tr {row}><th colspan=2 {cell}>{name}:</th><td colspan=2 {cell}>{value}</td></tr>"
            );
        };
        line("Server Software", self.server_software());
        line("Server Hostname", options.target.host.clone());
        line("Server Port", options.target.port.to_string());
        line("Document Path", options.target.path.clone());
        line(
            "Document Length",
            match options.variable_length {
                true => "Variable".to_owned(),
                false => format!("{} bytes", self.document_length()),
            },
        );
        line("Concurrency Level", options.concurrency.to_string());
        line("Time taken for tests", format!("{:.3} seconds", self.taken_s()));
        line("Complete requests", self.done().to_string());
        let failures = self.failures();
        line("Failed requests", failures.iter().sum::<u64>().to_string());
        if failures.iter().any(|count| *count > 0) {
            let [connect, _, length, exceptions] = failures;
            let _infallible = writeln!(
                out,
                "<tr {row}><td colspan=4 {cell} >   (Connect: {connect}, Length: {length}, Exceptions: {exceptions})</td></tr>"
            );
        }
        self.html_totals(&mut out, html);
        self.html_times(&mut out, html);
        out.push_str("</table>\n");
        out
    }

    fn html_totals(&self, out: &mut String, html: &Html) {
        let Html { row, cell, .. } = html;
        let cell = if cell.is_empty() { "bgcolor=white" } else { cell };
        let mut line = |name: &str, value: String| {
            let _infallible = writeln!(
                out,
                "<tr {row}><th colspan=2 {cell}>{name}:</th><td colspan=2 {cell}>{value}</td></tr>"
            );
        };
        let figures = self.figures;
        if figures.not_2xx() > 0 {
            line("Non-2xx responses", figures.not_2xx().to_string());
        }
        if self.options.keep_alive {
            line("Keep-Alive requests", figures.kept.to_string());
        }
        line("Total transferred", format!("{} bytes", figures.read_bytes));
        if self.options.body.is_some() {
            line("Total body sent", self.sent_bytes.to_string());
        }
        line("HTML transferred", format!("{} bytes", figures.body_bytes));
        let taken_s = self.taken_s();
        if taken_s > 0.0 {
            line("Requests per second", format!("{:.2}", self.done() as f64 / taken_s));
            let rate = figures.read_bytes as f64 / 1024.0 / taken_s;
            line("Transfer rate", format!("{rate:.2} kb/s received"));
        }
    }

    fn html_times(&self, out: &mut String, html: &Html) {
        let Html { row, cell, .. } = html;
        let cell = if cell.is_empty() { "bgcolor=white" } else { cell };
        let stats = self.stats();
        if stats.is_empty() {
            return;
        }
        let _infallible = writeln!(
            out,
            "<tr {row}><th {cell} colspan=4>Connection Times (ms)</th></tr>\n\
             <tr {row}><th {cell}>&nbsp;</th> <th {cell}>min</th>   <th {cell}>avg</th>   \
             <th {cell}>max</th></tr>"
        );
        let column = |value: fn(&Stat) -> u64| Column::of(stats.iter().map(value).collect());
        for (name, column) in [
            ("Connect:", column(|it| it.connect)),
            ("Processing:", column(Stat::processing)),
            ("Total:", column(|it| it.total)),
        ] {
            let (min, mean) = (round_ms(column.min), round_ms(column.mean));
            let max = round_ms(column.max);
            let _infallible = writeln!(
                out,
                "<tr {row}><th {cell}>{name}</th><td {cell}>{min:5}</td>\
                 <td {cell}>{mean:5}</td><td {cell}>{max:5}</td></tr>"
            );
        }
    }
}

/// Writes a line with a name and a value.
fn row(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _infallible = writeln!(out, "{:<23} {value}", format!("{name}:"));
}

/// A column of times in microseconds.
struct Column {
    min: u64,
    mean: u64,
    deviation: f64,
    median: u64,
    max: u64,
}

fn sorted(mut values: Vec<u64>) -> Vec<u64> {
    values.sort_unstable();
    values
}

impl Column {
    fn of(values: Vec<u64>) -> Self {
        let values = sorted(values);
        let count = values.len();
        let at = |index: usize| values.get(index).copied().unwrap_or_default();
        let mean = values.iter().sum::<u64>() / (count as u64).max(1);
        let squares: f64 = values.iter().map(|it| (*it as f64 - mean as f64).powi(2)).sum();
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        // Like ab, this uses the two middle values if the number is odd.
        let middle = count / 2;
        let median = if count > 1 && count % 2 == 1 {
            (at(middle) + at((middle + 1).min(count - 1))) / 2
        } else {
            at(middle)
        };
        Self { min: at(0), mean, deviation, median, max: at(count.saturating_sub(1)) }
    }

    fn write_whole(&self, out: &mut String, name: &str) {
        let _infallible = writeln!(
            out,
            "{name:<11} {:5} {:4} {:5.1} {:6} {:7}",
            round_ms(self.min),
            round_ms(self.mean),
            self.deviation / 1e3,
            round_ms(self.median),
            round_ms(self.max)
        );
    }

    fn write_short(&self, out: &mut String, name: &str) {
        let (min, mean, max) = (round_ms(self.min), round_ms(self.mean), round_ms(self.max));
        let _infallible = writeln!(out, "{name:<11} {min:5} {mean:5}{max:5}");
    }

    /// Warns if mean and median are so far apart that neither is meaningful.
    fn warn(&self, out: &mut String, what: &str) {
        let apart = self.mean.abs_diff(self.median) as f64;
        let text = if apart > 2.0 * self.deviation {
            format!(
                "ERROR: The median and mean for {what} are more than twice the standard\n       \
                 deviation apart. These results are NOT reliable.\n"
            )
        } else if apart > self.deviation {
            format!(
                "WARNING: The median and mean for {what} are not within a normal deviation\n        \
                 These results are probably not that reliable.\n"
            )
        } else {
            return;
        };
        out.push_str(&text);
    }
}
