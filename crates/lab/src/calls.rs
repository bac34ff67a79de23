//! Counts the system calls of a server for each request, by name, with `strace -c` during a load.
//! Tracing slows a server considerably, so nothing else is measured at the same time.

use crate::family::Family;
use evenkeel_sys::process::{self, Pid, kill};
use evenkeel_sys::signal::Signal;
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the tracer may take to start.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval between two checks of the tracer.
const GLANCE: Duration = Duration::from_millis(10);

/// The calls of one sample.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Calls {
    /// The tool that counted them.
    pub means: &'static str,
    /// The requests answered during the sample.
    pub requests: u64,
    /// Name, count and number of failures, most frequent first.
    pub by_name: Vec<(String, u64, u64)>,
}

impl Calls {
    /// The sum of this sample and another.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (name, count, failed) in &other.by_name {
            match self.by_name.iter_mut().find(|(own, ..)| own == name) {
                Some(own) => (own.1, own.2) = (own.1 + count, own.2 + failed),
                None => self.by_name.push((name.clone(), *count, *failed)),
            }
        }
        self.by_name.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
        Self { means: other.means, requests: self.requests + other.requests, ..self }
    }

    /// The calls for each request.
    #[must_use]
    pub fn each(&self) -> f64 {
        let all: u64 = self.by_name.iter().map(|(_, count, _)| count).sum();
        all as f64 / self.requests.max(1) as f64
    }

    /// The calls for each request whose name begins with `begins`.
    #[must_use]
    pub fn each_of(&self, begins: &str) -> f64 {
        let named = self.by_name.iter().filter(|(name, ..)| name.starts_with(begins));
        named.map(|(_, count, _)| count).sum::<u64>() as f64 / self.requests.max(1) as f64
    }

    /// The failed calls for each request.
    #[must_use]
    pub fn failed(&self) -> f64 {
        let all: u64 = self.by_name.iter().map(|(_, _, failed)| failed).sum();
        all as f64 / self.requests.max(1) as f64
    }

    /// The most important names, each with its calls for a request.
    #[must_use]
    pub fn told(&self) -> String {
        let requests = self.requests.max(1) as f64;
        let shown = self.by_name.iter().filter(|(_, count, _)| *count as f64 / requests >= 0.01);
        let shown = shown.map(|(name, count, _)| format!("{name} {:.2}", *count as f64 / requests));
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// Traces all processes of a server during a load. `load` runs the load for about a second and
/// returns the number of answered requests. `folder` is for the tracer's files.
///
/// # Errors
///
/// strace is not installed or may not attach, or `load` failed.
pub fn count(
    family: Family,
    folder: &Path,
    load: impl FnOnce() -> Result<u64, String>,
) -> Result<Calls, String> {
    let (counts, said) = (folder.join("strace.counts"), folder.join("strace.said"));
    let mut tracer = attach(family, &counts, &said)?;
    let requests = load();
    let ended = tracer.end();
    let requests = requests?;
    ended.map_err(|error| format!("strace: {error}"))?;
    let text = fs::read_to_string(&counts).map_err(|error| format!("strace: {error}"))?;
    Ok(Calls { means: "strace -c -f", requests, by_name: parse(&text) })
}

/// A tracer that is ended however the load went.
struct Tracer(Child);

impl Tracer {
    fn end(&mut self) -> std::io::Result<()> {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // If it has already ended, the wait below returns at once.
            let _ended = kill(pid, Signal::Interrupt);
        }
        self.0.wait().map(drop)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ended = self.end();
        }
    }
}

fn attach(family: Family, counts: &Path, said: &Path) -> Result<Tracer, String> {
    let told = |error: std::io::Error| format!("strace: {error}");
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-o"]).arg(counts);
    let members = family.members();
    for member in &members {
        command.arg("-p").arg(member.pid.to_string());
    }
    let output = fs::File::create(said).map_err(told)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    let mut tracer = Tracer(process::unblock_signals(&mut command).spawn().map_err(told)?);
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(said).unwrap_or_default();
        if text.matches("attached").count() >= members.len() {
            return Ok(tracer);
        }
        if begun.elapsed() > PATIENCE || !matches!(tracer.0.try_wait(), Ok(None)) {
            return Err(format!("strace does not attach: {}", text.trim()));
        }
        sleep(GLANCE);
    }
}

/// Parses the rows of `strace -c`: share, seconds, microseconds for a call, calls, errors if there
/// were any, name.
fn parse(text: &str) -> Vec<(String, u64, u64)> {
    let mut calls = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let row = match words.as_slice() {
            [_, _, _, count, name] => (name, count.parse(), Ok(0)),
            [_, _, _, count, failed, name] => (name, count.parse(), failed.parse()),
            _ => continue,
        };
        if let (name, Ok(count), Ok(failed)) = row
            && *name != "total"
        {
            calls.push(((*name).to_owned(), count, failed));
        }
    }
    calls.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_strace_is_read() {
        let text = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000100           1       100           recvfrom
 40.00    0.000050           1       200        20 sendmsg
------ ----------- ----------- --------- --------- ----------------
100.00    0.000150           1       300        20 total
";
        let calls = Calls { requests: 100, by_name: parse(text), ..Calls::default() };
        assert_eq!(calls.by_name.len(), 2);
        assert!((calls.each() - 3.0).abs() < 1e-9);
        assert!((calls.failed() - 0.2).abs() < 1e-9);
        assert_eq!(calls.told(), "sendmsg 2.00, recvfrom 1.00");
        let one = Calls { requests: 100, by_name: vec![("recvfrom".into(), 300, 0)], means: "" };
        assert_eq!(calls.plus(&one).told(), "recvfrom 2.00, sendmsg 1.00");
    }
}
