//! What a run was meant to be, and where it ran: the first file of its folder. Facts about the
//! machine come from /proc, without its names and addresses. Secrets on the command line are
//! hidden.

use evenkeel_sys::{clock, process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;

/// The description of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The version of the layout of these files.
    pub format: u32,
    /// The command: `bench`, `replay`, `surge`, `top`, `lab greedy`.
    pub command: String,
    /// The name of this run in a report: the target, or what distinguishes it from other runs.
    pub title: String,
    /// The URL, or what else was loaded or watched.
    pub target: String,
    /// The words of the command line, without secrets.
    pub words: Vec<String>,
    /// Their meaning, as a report shows it: clients, pace, pause, seed.
    pub asked: BTreeMap<String, String>,
    /// The beginning of the run, in microseconds since 1970.
    pub started_us: u64,
    /// The version of this program.
    pub version: String,
    /// The machine of the clients.
    pub machine: Machine,
}

/// The machine, without names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The cores that could be used.
    pub cores: usize,
    /// The name of the processor.
    pub processor: String,
    /// The memory in bytes.
    pub memory_bytes: u64,
    /// The version of the kernel, `6.12`.
    pub kernel: String,
}

impl About {
    /// The layout that is written now.
    pub const FORMAT: u32 = 1;

    /// A run that begins now. Secrets in `words` are hidden.
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

    /// The same with another option.
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

/// The numbers at the beginning of a release. What follows may be a name that its builder chose.
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
            // In ab, an option may have its value in the same word; in long options it follows a
            // sign.
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
