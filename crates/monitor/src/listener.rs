//! Applications behind Unix sockets that this server does not start, such as php-fpm, as far as
//! /proc shows them: the process that listens, its children, how many of them run, and their CPU
//! time. What they do is theirs; whether they run or wait says why requests wait for them.

use crate::process::ProcessStat;
use evenkeel_sys::{clock, peers, procfs};
use serde::Serialize;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// The most children whose state is read at a time, of all applications together.
const MOST_CHILDREN: usize = 512;

/// The most threads of a process that are asked for their children: /proc lists the children of
/// each thread.
const MOST_THREADS: usize = 64;

/// The least time between two readings of /proc, in microseconds.
const AGAIN_US: u64 = 1_000_000;

/// A process that listens at a socket to which requests are passed on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Listener {
    /// The path of the socket.
    pub socket: String,
    /// The process; 0 if it cannot be seen.
    pub pid: u64,
    /// Its name.
    pub name: String,
    /// The number of its children, whichever of its sockets they serve.
    pub children: u64,
    /// The number of children whose state was read: at most 512 of all applications together.
    pub seen: u64,
    /// The number of children read that were running or ready to run.
    pub running: u64,
    /// The CPU time of the children read, in seconds.
    pub cpu_s: f64,
    /// The cores that they have used since the last look, on average; `None` at the first one.
    pub cores: Option<f64>,
}

/// What the last look has found, and when it was.
#[derive(Default)]
struct Seen {
    at_us: u64,
    listeners: Vec<Listener>,
}

/// The applications that requests were passed on to.
#[must_use]
pub(crate) fn listeners() -> Vec<Listener> {
    static SEEN: Mutex<Option<Seen>> = Mutex::new(None);
    let mut guard = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = guard.get_or_insert_default();
    let now_us = clock::monotonic_us();
    if seen.at_us == 0 || now_us.saturating_sub(seen.at_us) >= AGAIN_US {
        let mut left = MOST_CHILDREN;
        let found = peers::list();
        let found = found.iter().map(|peer| {
            let socket = peer.path.display().to_string();
            look(socket, peer.pid, &mut left)
        });
        let found: Vec<Listener> = found.collect();
        let since_s = now_us.saturating_sub(seen.at_us) as f64 / 1e6;
        let found = found.into_iter().map(|it| it.after(&seen.listeners, since_s));
        *seen = Seen { listeners: found.collect(), at_us: now_us };
    }
    seen.listeners.clone()
}

/// Looks at a process and its children.
fn look(socket: String, pid: u32, left: &mut usize) -> Listener {
    let text = |path: String| procfs::read(path).unwrap_or_default();
    // A socket that process 1 listens at (systemd) is served by another process.
    let name = if pid > 1 { text(format!("/proc/{pid}/comm")) } else { String::new() };
    if name.is_empty() {
        return Listener { socket, ..Listener::default() };
    }
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.take(MOST_THREADS).map(|task| procfs::read(task.path().join("children")));
    let children = children.flatten().collect::<String>();
    let all = || children.split_ascii_whitespace();
    let stats = all().take(*left).map(|child| text(format!("/proc/{child}/stat")));
    let stats: Vec<ProcessStat> = stats.filter_map(|text| ProcessStat::parse(&text)).collect();
    *left -= stats.len().min(*left);
    Listener {
        socket,
        pid: pid.into(),
        name: name.trim_end().to_owned(),
        children: all().count() as u64,
        seen: stats.len() as u64,
        running: stats.iter().filter(|stat| stat.state == 'R').count() as u64,
        cpu_s: stats.iter().map(|stat| stat.cpu_s()).map(|(user, system)| user + system).sum(),
        cores: None,
    }
}

impl Listener {
    /// Computes the number of cores in use since an earlier reading, `since_s` seconds ago. The CPU
    /// time is the sum over the children that are alive, so it falls when a child ends.
    fn after(mut self, earlier: &[Self], since_s: f64) -> Self {
        let before = earlier.iter().find(|it| it.socket == self.socket && it.pid == self.pid);
        self.cores = before.map(|before| (self.cpu_s - before.cpu_s).max(0.0) / since_s);
        self
    }

    /// How it stands, in a sentence.
    pub(crate) fn sentence(&self) -> String {
        let Self { socket, pid, name, children, seen, running, cpu_s, cores } = self;
        if *pid == 0 {
            return format!("Application at {socket}: its processes cannot be seen from here.");
        }
        let mut text =
            format!("Application at {socket}: {name} (pid {pid}) has {children} children");
        if seen < children {
            // Writing to a string cannot fail.
            let _ = write!(text, ", of which {seen} were looked at");
        }
        let waiting = seen.saturating_sub(*running);
        let _ = write!(text, ": {running} run, {waiting} wait; they have used {cpu_s:.1} s of CPU");
        if let Some(cores) = cores {
            let _ = write!(text, ", {cores:.2} cores since the last look");
        }
        text.push('.');
        text
    }

    /// The lines of `?auto`.
    pub(crate) fn write_auto(&self, number: usize, page: &mut String) -> std::fmt::Result {
        let socket = self.socket.replace([':', '\n'], "_");
        writeln!(page, "Listener-{number}-Socket: {socket}")?;
        for (key, value) in [
            ("Pid", self.pid),
            ("Children", self.children),
            ("Running", self.running),
            ("Waiting", self.seen.saturating_sub(self.running)),
            ("CpuMs", (self.cpu_s * 1e3) as u64),
        ] {
            writeln!(page, "Listener-{number}-{key}: {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_shown_with_its_children() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = std::process::id();
        let (mut left, mut none) = (8, 0);
        let seen = look("/run/x.sock".into(), pid, &mut left);
        assert!(seen.children >= 1 && seen.seen >= 1 && left < 8, "{seen:?}");
        assert!(seen.sentence().contains(&format!(" (pid {pid}) has ")), "{}", seen.sentence());
        let unseen = look("/run/x.sock".into(), pid, &mut none);
        assert!(unseen.seen == 0 && unseen.sentence().contains("of which 0 were looked at"));
        for hidden in [0, 1] {
            let hidden = look("/run/x.sock".into(), hidden, &mut left);
            assert!(hidden.sentence().ends_with("cannot be seen from here."), "{hidden:?}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_cores_in_use_are_those_since_the_last_look() {
        let at = |pid, cpu_s| Listener { pid, cpu_s, children: 8, seen: 8, ..Listener::default() };
        let busy = Listener { running: 3, ..at(7, 14.0) }.after(&[at(7, 11.0)], 2.0);
        let sentence = busy.sentence();
        assert!(sentence.ends_with(
            "has 8 children: 3 run, 5 wait; they have used 14.0 s of CPU, 1.50 cores since the \
             last look."
        ));
        assert_eq!(at(7, 1.0).after(&[at(7, 11.0)], 2.0).cores, Some(0.0));
        assert_eq!(at(8, 1.0).after(&[at(7, 11.0)], 2.0).cores, None);
        let mut page = String::new();
        busy.write_auto(0, &mut page).unwrap();
        assert!(page.contains("Listener-0-Running: 3\nListener-0-Waiting: 5\n"), "{page}");
    }
}
