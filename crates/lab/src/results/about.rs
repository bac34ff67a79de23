//! What a run was to be, and where it ran: the first file of its folder. Facts of the machine come
//! from /proc; its names and addresses are not among them, nor what was typed as a secret.

use evenkeel_sys::{clock, process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The version of these files' layout.
    pub format: u32,
    /// The command: `bench`, `replay`, `surge`, `top`, `lab greedy`.
    pub command: String,
    /// What a report calls this run: the target, or what makes it different from its neighbours.
    pub title: String,
    /// The URL, or what else was loaded or watched.
    pub target: String,
    /// The words that were typed, without secrets.
    pub words: Vec<String>,
    /// What they came to, as a report shows it: clients, pace, pause, seed.
    pub asked: BTreeMap<String, String>,
    /// When the run began, in microseconds since 1970.
    pub started_us: u64,
    /// This program's version.
    pub version: String,
    /// Where the clients ran.
    pub machine: Machine,
}

/// The machine, without names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Cores that could be used.
    pub cores: usize,
    /// What the processor calls itself.
    pub processor: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's version, `6.12`.
    pub kernel: String,
}

impl About {
    /// The layout that is written now.
    pub const FORMAT: u32 = 1;

    /// A run that begins now. Secrets among `words` are hidden.
    #[must_use]
    pub fn now(command: &str, target: &str, words: &[String]) -> Self {
        Self {
            format: Self::FORMAT,
            command: command.to_owned(),
            title: target.to_owned(),
            target: target.to_owned(),
            words: without_secrets(words),
            asked: BTreeMap::new(),
            started_us: clock::realtime_us(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::here(),
        }
    }

    /// The same with one more thing that was asked for.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.asked.insert(name.to_owned(), value.to_string());
        self
    }
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            cores: process::usable_cores(),
            processor: processor(&text("/proc/cpuinfo")),
            memory_bytes: memory_bytes(&text("/proc/meminfo")),
            kernel: kernel(&text("/proc/sys/kernel/osrelease")),
        }
    }
}

fn processor(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or("", |(_, name)| name.trim()).to_owned()
}

fn memory_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The numbers that a release begins with: what follows may be a name that its builder chose.
fn kernel(release: &str) -> String {
    let numbers = release.trim().split(|c: char| !c.is_ascii_digit() && c != '.').next();
    numbers.unwrap_or_default().trim_end_matches('.').to_owned()
}

/// The words of a command line with `***` in place of names and passwords, cookies, and header
/// fields that carry either, in the spellings of ab and of bench.
#[must_use]
pub fn without_secrets(words: &[String]) -> Vec<String> {
    const HIDDEN: &str = "***";
    const OPTIONS: [&str; 7] = ["-A", "-P", "-a", "-C", "--auth", "--proxy-auth", "--cookie"];
    let mut safe: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        let before = safe.last().map_or("", String::as_str);
        let option = OPTIONS.iter().find(|it| {
            let rest = word.strip_prefix(**it);
            // ab's options may have their value in the same word, long ones after a sign.
            rest.is_some_and(|r| !r.is_empty() && (it.len() == 2 || r.starts_with('=')))
        });
        let hidden = match option {
            _ if OPTIONS.contains(&before) => HIDDEN.to_owned(),
            Some(option) if option.len() == 2 => format!("{option}{HIDDEN}"),
            Some(option) => format!("{option}={HIDDEN}"),
            None => without_secret_field(word),
        };
        safe.push(hidden);
    }
    safe
}

fn without_secret_field(word: &str) -> String {
    const FIELDS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];
    match word.split_once(':') {
        Some((name, value)) if !value.starts_with("//") => {
            let field = name.to_ascii_lowercase();
            let field = field.trim_start_matches("-h").trim_start_matches("--header=");
            let secret =
                FIELDS.contains(&field) || field.contains("token") || field.contains("key");
            if secret { format!("{name}: ***") } else { word.to_owned() }
        }
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_saved() {
        let words = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<_>>();
        let safe = without_secrets(&words("-n|5|-A|me:pw|-Pa:b|-H|Authorization: Basic x|-C|a=b"));
        assert_eq!(safe, words("-n|5|-A|***|-P***|-H|Authorization: ***|-C|***"));
        let safe = without_secrets(&words("--auth=me:pw|-HCookie: a|-H|Accept: b|http://a:80/"));
        assert_eq!(safe, words("--auth=***|-HCookie: ***|-H|Accept: b|http://a:80/"));
    }

    #[test]
    fn the_machine_is_described_without_names() {
        assert_eq!(kernel("6.12.3-someones-own\n"), "6.12.3");
        assert_eq!(processor("processor\t: 0\nmodel name\t: A CPU @ 3\n"), "A CPU @ 3");
        assert_eq!(memory_bytes("MemTotal:  2 kB\nMemFree: 1 kB\n"), 2048);
        let machine = Machine::here();
        assert!(machine.cores > 0 && machine.memory_bytes > 0 && !machine.kernel.is_empty());
    }
}
