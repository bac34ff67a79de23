//! All figures of an interval: the machine, the server's processes and the server. They are printed
//! as JSON, or as names with numbers for CSV and for a recording.

use super::machine::{Machine, Shares};
use super::processes::Processes;
use super::server::Server;
use crate::status::LETTERS;
use serde::Serialize;

/// An interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Sample {
    /// The end, in seconds since 1970.
    pub(super) time_s: f64,
    /// The length in seconds.
    pub(super) interval_s: f64,
    pub(super) machine: Machine,
    /// The server's processes, if they are known.
    pub(super) processes: Option<Processes>,
    /// The server, if its page is available.
    pub(super) server: Option<Server>,
    /// What was not available this time.
    pub(super) problems: Vec<String>,
}

impl Sample {
    /// Names and numbers, always in the same order. A name is `plot/line`, as in [`Series`].
    ///
    /// [`Series`]: crate::results::Series
    pub(super) fn values(&self) -> Vec<(String, f64)> {
        let mut values = Vec::new();
        self.machine.put(&mut |plot, line, value| values.push((format!("{plot}/{line}"), value)));
        let mut put =
            |plot: &str, line: &str, value| values.push((format!("{plot}/{line}"), value));
        if let Some(processes) = &self.processes {
            let count = |states: &std::collections::BTreeMap<char, usize>| {
                states.values().sum::<usize>() as f64
            };
            put("CPU of the server in % of a core", "user", processes.usr);
            put("CPU of the server in % of a core", "system", processes.sys);
            put("server's tasks", "processes", count(&processes.processes));
            put("server's tasks", "threads", count(&processes.threads));
        }
        if let Some(server) = &self.server {
            put("requests a second", "requests", server.requests.unwrap_or(f64::NAN));
            put("latency in ms", "mean", server.latency_ms.unwrap_or(f64::NAN));
            put("sent bytes a second", "sent", server.sent_bytes.unwrap_or(f64::NAN));
            for (letter, meaning) in LETTERS {
                let count = server.states.get(&letter).copied().unwrap_or_default();
                put("scoreboard", meaning, count as f64);
            }
            if let Some(connections) = server.connections {
                put("connections", "all", connections.total as f64);
                put("connections", "keep-alive", connections.keep_alive as f64);
            }
        }
        values
    }
}

impl Machine {
    fn put(&self, put: &mut impl FnMut(&str, &str, f64)) {
        for (name, value) in Shares::NAMES.iter().zip(self.cpu.values()) {
            put("CPU in %", name, value);
        }
        for core in &self.cores {
            for (name, value) in Shares::NAMES.iter().zip(core.shares.values()) {
                put(&format!("core {} in %", core.core), name, value);
            }
        }
        for disk in &self.disks {
            put("disks in bytes a second", &format!("{} read", disk.name), disk.read_bytes);
            put("disks in bytes a second", &format!("{} written", disk.name), disk.written_bytes);
            put("disks busy in %", &disk.name, disk.busy);
        }
        for link in &self.network {
            let plot = "network in bytes a second";
            put(plot, &format!("{} received", link.name), link.received_bytes);
            put(plot, &format!("{} sent", link.name), link.sent_bytes);
        }
        let paging = &self.paging;
        put("paging in pages a second", "from swap", paging.swapped_in);
        put("paging in pages a second", "to swap", paging.swapped_out);
        put("paging in pages a second", "major faults", paging.major_faults);
        put("interrupts a second", "interrupts", self.interrupts);
        put("context switches a second", "switches", self.context_switches);
        put("tasks", "running", self.running as f64);
        put("tasks", "blocked", self.blocked as f64);
    }
}

/// The lines of a CSV file. The columns are those of the first sample: what appears later has no
/// column, and what disappears leaves its column empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Csv {
    columns: Option<Vec<String>>,
}

impl Csv {
    /// The line of a sample, after the heading if it is the first.
    pub(super) fn line(&mut self, sample: &Sample) -> String {
        let values: std::collections::BTreeMap<String, f64> = sample.values().into_iter().collect();
        let mut text = String::new();
        let columns = self.columns.get_or_insert_with(|| {
            let columns: Vec<String> = sample.values().into_iter().map(|(name, _)| name).collect();
            text = format!("time_s,interval_s,{}\n", columns.join(","));
            columns
        });
        text.push_str(&format!("{:.3},{:.3}", sample.time_s, sample.interval_s));
        for column in columns {
            let value = values.get(column).filter(|value| value.is_finite());
            text.push_str(&value.map_or_else(|| ",".to_owned(), |value| format!(",{value:.2}")));
        }
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Disk;
    use super::*;

    #[test]
    fn columns_are_those_of_the_first_line() {
        let disk = |name: &str| Disk { name: name.into(), busy: 2.5, ..Disk::default() };
        let mut sample = Sample { time_s: 7.0, interval_s: 1.0, ..Sample::default() };
        sample.machine.disks = vec![disk("sda")];
        sample.server = Some(Server { requests: Some(3.0), ..Server::default() });
        let mut csv = Csv::default();
        let text = csv.line(&sample);
        let (heading, line) = text.trim_end().split_once('\n').unwrap();
        let column = |name: &str| heading.split(',').position(|it| it == name).unwrap();
        let cell = |line: &str, name: &str| line.split(',').nth(column(name)).unwrap().to_owned();
        assert!(heading.starts_with("time_s,interval_s,CPU in %/usr,CPU in %/sys,"));
        assert_eq!(cell(line, "disks busy in %/sda"), "2.50");
        assert_eq!(cell(line, "latency in ms/mean"), "");
        sample.machine.disks = vec![disk("sdb")];
        let line = csv.line(&sample);
        assert_eq!(line.trim_end().split(',').count(), heading.split(',').count());
        assert_eq!(cell(line.trim_end(), "disks busy in %/sda"), "");
        assert_eq!(cell(line.trim_end(), "requests a second/requests"), "3.00");
    }
}
