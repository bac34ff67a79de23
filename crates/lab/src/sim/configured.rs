//! Reads the pool's directives of an Apache configuration. The server parses the configuration:
//! `evenkeel limits -f FILE` prints one directive in each line.

use super::{Directives, Model};
use crate::peers::Peer;
use evenkeel_pool::Limits;
use std::path::Path;
use std::process::Command;

/// Asks the server for the directives of a file.
///
/// # Errors
///
/// There is no server, or its message about the file.
pub fn directives(file: &Path) -> Result<Directives, String> {
    let program = Peer::Evenkeel.program().ok_or(
        "the program evenkeel, which reads configurations, is neither beside this one nor in PATH",
    )?;
    // The server takes a relative name as relative to ServerRoot.
    let file = std::path::absolute(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let output = Command::new(&program)
        .args(["limits", "-f"])
        .arg(file)
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| format!("{} limits: not understood: {text}", program.display()))
}

fn parse(text: &str) -> Option<Directives> {
    let value = |names: &[&str]| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| names.contains(name)).map(|(_, value)| value)
    };
    let number = |names: &[&str]| value(names)?.parse::<usize>().ok();
    let threads = number(&["ThreadsPerChild"])?;
    let keep_alive_ms: f64 = value(&["KeepAliveTimeout"])?.strip_suffix("ms")?.parse().ok()?;
    Some(Directives {
        model: Model::parse(value(&["MPM"])?)?,
        start_servers: number(&["StartServers"])?,
        limits: Limits {
            threads,
            min_spare: number(&["MinSpareThreads", "MinSpareServers"])?,
            max_spare: number(&["MaxSpareThreads", "MaxSpareServers"])?,
            children: number(&["MaxRequestWorkers"])? / threads.max(1),
            slots: number(&["ServerLimit"])?,
        },
        most_connections: Some(number(&["MaxConnectionsPerChild"])? as u64).filter(|n| *n > 0),
        backlog: number(&["ListenBacklog"])?,
        keep_alive_timeout_s: keep_alive_ms / 1000.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_server_are_understood() {
        let text = "MPM prefork\nStartServers 5\nThreadsPerChild 1\nMinSpareServers 6\n\
                    MaxSpareServers 10\nMaxRequestWorkers 150\nServerLimit 256\n\
                    MaxConnectionsPerChild 0\nListenBacklog 511\nKeepAliveTimeout 1500ms\n";
        let limits = Limits { threads: 1, min_spare: 6, max_spare: 10, children: 150, slots: 256 };
        let wanted = Directives {
            model: Model::Prefork,
            start_servers: 5,
            limits,
            most_connections: None,
            backlog: 511,
            keep_alive_timeout_s: 1.5,
        };
        assert_eq!(parse(text), Some(wanted));
        assert_eq!(parse(&text.replace("Child 0", "Child 9")).unwrap().most_connections, Some(9));
        assert_eq!(parse(&text.replace("ListenBacklog", "Backlog")), None);
    }
}
