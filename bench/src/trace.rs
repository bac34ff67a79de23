//! System calls. A running server and what it is asked come in; the calls a request comes out,
//! by name, as strace counted them over a short sample.

use crate::Result;
use crate::contender::Server;
use crate::load::Asked;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the tracer may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);

/// The calls of one sample.
pub struct Calls {
    /// Requests answered in it.
    pub requests: u64,
    /// Name, count and how many failed, the most frequent first.
    pub by_name: Vec<(String, u64, u64)>,
}

impl Calls {
    /// Calls a request.
    pub fn each(&self) -> f64 {
        let all: u64 = self.by_name.iter().map(|(_, count, _)| count).sum();
        all as f64 / self.requests.max(1) as f64
    }

    /// Calls a request of those whose name begins so.
    pub fn each_of(&self, begins: &str) -> f64 {
        let named = self.by_name.iter().filter(|(name, ..)| name.starts_with(begins));
        named.map(|(_, count, _)| count).sum::<u64>() as f64 / self.requests.max(1) as f64
    }

    /// Calls a request that failed.
    pub fn failed(&self) -> f64 {
        let all: u64 = self.by_name.iter().map(|(_, _, failed)| failed).sum();
        all as f64 / self.requests.max(1) as f64
    }

    /// The names that count, each with its calls a request.
    pub fn told(&self) -> String {
        let requests = self.requests.max(1) as f64;
        let shown = self.by_name.iter().filter(|(_, count, _)| *count as f64 / requests >= 0.01);
        let shown = shown.map(|(name, count, _)| format!("{name} {:.2}", *count as f64 / requests));
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// Traces all processes of the server for about a second while it is asked.
pub fn count(server: &Server, asked: &Asked, folder: &Path) -> Result<Calls> {
    let told = |error: std::io::Error| format!("strace: {error}");
    let counts = folder.join("logs/strace");
    let said = folder.join("logs/strace.said");
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-o"]).arg(&counts);
    let members = server.family.members();
    for pid in &members {
        command.arg("-p").arg(pid.to_string());
    }
    let output = fs::File::create(&said).map_err(told)?;
    let mut tracer = command.stdout(Stdio::null()).stderr(output).spawn().map_err(told)?;
    let begun = Instant::now();
    let attached = || {
        let text = fs::read_to_string(&said).unwrap_or_default();
        text.matches("attached").count() >= members.len()
    };
    while !attached() {
        if begun.elapsed() > PATIENCE || !matches!(tracer.try_wait(), Ok(None)) {
            let _ = tracer.kill();
            let _ = tracer.wait();
            return Err("strace does not attach".to_owned());
        }
        sleep(Duration::from_millis(10));
    }
    let turn = asked.ask(server, 1);
    if let Some(pid) = i32::try_from(tracer.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::INT);
    }
    tracer.wait().map_err(told)?;
    let text = fs::read_to_string(&counts).map_err(told)?;
    Ok(Calls { requests: turn?.requests, by_name: parse(&text) })
}

/// The rows of `strace -c`: share, seconds, microseconds a call, calls, errors where there were
/// any, name.
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
        let calls = Calls { requests: 100, by_name: parse(text) };
        assert_eq!(calls.by_name.len(), 2);
        assert!((calls.each() - 3.0).abs() < 1e-9);
        assert!((calls.failed() - 0.2).abs() < 1e-9);
        assert_eq!(calls.told(), "sendmsg 2.00, recvfrom 1.00");
    }
}
