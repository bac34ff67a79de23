//! Parses the texts of /proc about processes and the load. Nothing here reads a file.

/// The unit of CPU times in /proc: sysconf(_SC_CLK_TCK), which is 100 on every Linux.
pub const TICKS_A_SECOND: f64 = 100.0;
/// The same unit in microseconds.
pub const TICK_US: u64 = 10_000;

/// A process, or one of its threads, from /proc/PID/stat (proc_pid_stat(5)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessStat {
    /// The process id.
    pub pid: i32,
    /// The name, at most 15 bytes.
    pub name: String,
    /// The state: `R`, `S`, `D`, `Z`, `T` and others.
    pub state: char,
    /// The process id of the parent.
    pub parent: i32,
    /// User time, in ticks.
    pub user_ticks: u64,
    /// System time, in ticks.
    pub system_ticks: u64,
    /// The user time of its children that have ended and were waited for, in ticks.
    pub ended_user_ticks: u64,
    /// The system time of these children, in ticks.
    pub ended_system_ticks: u64,
    /// The number of threads.
    pub threads: u64,
    /// The time of its start, in ticks since the system's start. Together with `pid` it identifies
    /// a process.
    pub start_ticks: u64,
    /// The core that it last ran on.
    pub core: usize,
}

impl ProcessStat {
    /// Parses the text; none if it has another form. Fields are counted from the end of the name,
    /// which may contain anything, even brackets: the last bracket ends it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (front, rest) = text.rsplit_once(')')?;
        let (pid, name) = front.split_once('(')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc_pid_stat(5) numbers fields from 1, and the third is the first one after the name.
        let field = |number: usize| fields.get(number.checked_sub(3)?).copied();
        let ticks = |number| field(number)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.trim().parse().ok()?,
            name: name.to_owned(),
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            user_ticks: ticks(14)?,
            system_ticks: ticks(15)?,
            ended_user_ticks: ticks(16)?,
            ended_system_ticks: ticks(17)?,
            threads: ticks(20)?,
            start_ticks: ticks(22)?,
            core: field(39)?.parse().ok()?,
        })
    }

    /// The CPU time, user and system, in seconds.
    #[must_use]
    pub fn cpu_s(&self) -> (f64, f64) {
        let seconds = |ticks: u64| ticks as f64 / TICKS_A_SECOND;
        (seconds(self.user_ticks), seconds(self.system_ticks))
    }
}

/// The averages over 1, 5 and 15 minutes in /proc/loadavg; zeros if the text has another form.
#[must_use]
pub fn load_averages(text: &str) -> [f64; 3] {
    let mut words = text.split_ascii_whitespace().map(|word| word.parse().unwrap_or_default());
    std::array::from_fn(|_| words.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_proc_are_read() {
        let text = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 2 3 4 250 75 8 9 20 0 12 0 5 6 7 \
                    8 9 10 11 12 13 14 15 16 17 18 19 20 17 3 0 0 0\n";
        let stat = ProcessStat::parse(text).unwrap();
        assert_eq!((stat.pid, stat.name.as_str(), stat.state), (7, "a) b) c", 'S'));
        assert_eq!((stat.parent, stat.threads, stat.start_ticks), (1, 12, 5));
        assert_eq!(stat.cpu_s(), (2.5, 0.75));
        assert_eq!((stat.ended_user_ticks, stat.ended_system_ticks, stat.core), (8, 9, 3));
        for text in ["nonsense", "7 (a) S 1 7", ""] {
            assert_eq!(ProcessStat::parse(text), None);
        }
        assert_eq!(load_averages("4.62 3.45 2.08 1/100 4711\n"), [4.62, 3.45, 2.08]);
        assert_eq!(load_averages(""), [0.0; 3]);
    }
}
