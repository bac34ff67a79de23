//! What a pool of workers did and had over a while, as one row of numbers: the parent takes one a
//! second, the history keeps it as words, the page draws it, and the laws decide from it. What was
//! not measured is unknown and stays so through every sum.

/// A figure of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Figure {
    /// Microseconds that the account covers.
    SpanUs,
    /// Workers (event: credits) there are or will be in a moment, by the law.
    Supply,
    /// Workers that are wanted: for what is served and for what waits.
    Demand,
    /// Connections in the kernel's accept queues.
    Queue,
    /// Children that serve.
    Active,
    /// Children that are parked.
    Parked,
    /// The most requests in progress at once (MaxRequestWorkers).
    Workers,
    /// Thousandths of workers at work, on the average.
    BusyMilli,
    /// Thousandths of requests that wait within a child for a credit, on the average.
    RunnableMilli,
    /// Open connections.
    Connections,
    /// Thousandths of responses that wait for their client to read, on the average.
    WritingMilli,
    /// Requests answered.
    Completions,
    /// Bytes sent as bodies.
    Bytes,
    /// Microseconds that these requests took, in sum.
    DurationUs,
    /// CPU time of the children, in microseconds.
    CpuUs,
    /// Microseconds that the children's threads were ready and had no core.
    RunQueueUs,
    /// Microseconds that work stood in line for a thread that may block or burn.
    QueueUs,
    /// Microseconds that such threads were held without using a core: what blocks, disks first.
    BlockedUs,
    /// Threads that may block or burn.
    BlockingThreads,
    /// Thousandths of cores that the server may use: affinity and quota.
    CoresMilli,
    /// CPU time that others had of what the server may use, in microseconds: where a quota leaves
    /// it less than the cores have, what they had of the rest does not count.
    OthersUs,
    /// Microseconds for which the quota held the server back: that part of the span in which it did
    /// of its periods.
    ThrottledUs,
    /// Bytes of memory that the server may have, by its cgroup or the machine.
    MemoryLimit,
    /// Bytes of these that can still be taken.
    MemoryFree,
    /// Share of the time in which some process waited for memory, in hundredths of a per cent.
    MemoryPressure,
    /// The most connections that the accept queues hold.
    Backlog,
    /// How much of the fastest-used network interface's speed is used, in thousandths.
    NetworkMilli,
    /// Descriptors that the children may have for connections, in sum.
    Descriptors,
    /// Thousandths of workers, on the average, that a connection holds on which nothing is to be
    /// done: it is kept alive, its request is not whole or it is being closed. Unknown where
    /// connections hold no workers.
    RestingMilli,
    /// Connections that an accept queue refused because it was full.
    Refused,
    /// What bars more requests from being worked on at once, as [`Bar`].
    Bar,
    /// The limit that bound, as [`crate::Limit::number`].
    Limit,
}

/// What bars more requests from being worked on at once; numbers of [`Figure::Bar`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Bar {
    /// Nothing, or a directive.
    None = 0,
    /// More in progress brought no more answers.
    Vain = 1,
    /// Memory, where the number of workers follows from what is left of it.
    Memory = 2,
    /// Descriptors, likewise.
    Descriptors = 3,
}

/// How the figures of many accounts become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sum,
    Mean,
    Last,
}

/// What stands for a figure that nobody knows.
const UNKNOWN: u64 = u64::MAX;

impl Figure {
    /// All figures, in the order of the words.
    #[rustfmt::skip]
    pub const ALL: [Self; 32] = [
        Self::SpanUs, Self::Supply, Self::Demand, Self::Queue, Self::Active, Self::Parked,
        Self::Workers, Self::BusyMilli, Self::RunnableMilli, Self::Connections,
        Self::WritingMilli, Self::Completions, Self::Bytes, Self::DurationUs, Self::CpuUs,
        Self::RunQueueUs, Self::QueueUs, Self::BlockedUs, Self::BlockingThreads, Self::CoresMilli,
        Self::OthersUs, Self::ThrottledUs, Self::MemoryLimit, Self::MemoryFree,
        Self::MemoryPressure, Self::Backlog, Self::NetworkMilli, Self::Descriptors,
        Self::RestingMilli, Self::Refused, Self::Bar, Self::Limit,
    ];

    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SpanUs => "span_us",
            Self::Supply => "supply",
            Self::Demand => "demand",
            Self::Queue => "queue",
            Self::Active => "active",
            Self::Parked => "parked",
            Self::Workers => "workers",
            Self::BusyMilli => "busy_milli",
            Self::RunnableMilli => "runnable_milli",
            Self::Connections => "connections",
            Self::WritingMilli => "writing_milli",
            Self::Completions => "completions",
            Self::Bytes => "bytes",
            Self::DurationUs => "duration_us",
            Self::CpuUs => "cpu_us",
            Self::RunQueueUs => "run_queue_us",
            Self::QueueUs => "line_us",
            Self::BlockedUs => "held_us",
            Self::BlockingThreads => "crew_threads",
            Self::CoresMilli => "cores_milli",
            Self::OthersUs => "others_us",
            Self::ThrottledUs => "throttled_us",
            Self::MemoryLimit => "memory_limit",
            Self::MemoryFree => "memory_free",
            Self::MemoryPressure => "memory_pressure",
            Self::Backlog => "backlog",
            Self::NetworkMilli => "network_milli",
            Self::Descriptors => "descriptors",
            Self::RestingMilli => "resting_milli",
            Self::Refused => "refused",
            Self::Bar => "bar",
            Self::Limit => "limit",
        }
    }

    const fn kind(self) -> Kind {
        match self {
            Self::SpanUs
            | Self::Completions
            | Self::Bytes
            | Self::DurationUs
            | Self::CpuUs
            | Self::RunQueueUs
            | Self::QueueUs
            | Self::BlockedUs
            | Self::OthersUs
            | Self::ThrottledUs
            | Self::Refused => Kind::Sum,
            Self::Queue
            | Self::BusyMilli
            | Self::RunnableMilli
            | Self::WritingMilli
            | Self::RestingMilli => Kind::Mean,
            _ => Kind::Last,
        }
    }
}

/// One row of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account([u64; Figure::ALL.len()]);

impl Default for Account {
    fn default() -> Self {
        Self([UNKNOWN; Figure::ALL.len()])
    }
}

impl Account {
    /// How many words it has.
    pub const WORDS: usize = Figure::ALL.len();

    /// The same with a figure; none is unknown.
    #[must_use]
    pub fn with(mut self, figure: Figure, value: impl Into<Option<u64>>) -> Self {
        if let Some(word) = self.0.get_mut(figure as usize) {
            *word = value.into().unwrap_or(UNKNOWN);
        }
        self
    }

    /// A figure, if it is known.
    #[must_use]
    pub fn of(&self, figure: Figure) -> Option<u64> {
        self.0.get(figure as usize).copied().filter(|value| *value != UNKNOWN)
    }

    /// A figure as a float, if it is known.
    #[must_use]
    pub fn value(&self, figure: Figure) -> Option<f64> {
        self.of(figure).map(|value| value as f64)
    }

    /// How much of it there was in a second; none where it or the span is unknown.
    #[must_use]
    pub fn rate(&self, figure: Figure) -> Option<f64> {
        let span = self.value(Figure::SpanUs).filter(|span| *span > 0.0)?;
        Some(self.value(figure)? / span * 1e6)
    }

    /// How much of it a request took; none where no request was answered.
    #[must_use]
    pub fn each(&self, figure: Figure) -> Option<f64> {
        let requests = self.value(Figure::Completions).filter(|requests| *requests > 0.0)?;
        Some(self.value(figure)? / requests)
    }

    /// As words, which a history keeps.
    #[must_use]
    pub const fn words(&self) -> &[u64; Self::WORDS] {
        &self.0
    }

    /// Of words, which anybody may have written: they are numbers and nothing else.
    #[must_use]
    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        Self(words)
    }

    /// Many accounts, oldest first, as one over all their time: amounts are summed, what stands and
    /// falls is averaged, of what holds the last counts. One unknown part makes a sum unknown.
    #[must_use]
    pub fn over(accounts: &[Self]) -> Self {
        let mut whole = Self::default();
        let Some(last) = accounts.last() else { return whole };
        for figure in Figure::ALL {
            let mut known = accounts.iter().map(|account| account.of(figure));
            let sum =
                known.try_fold(0_u64, |sum, value| value.map(|value| sum.saturating_add(value)));
            let count = accounts.len() as u64;
            whole = match figure.kind() {
                Kind::Sum => whole.with(figure, sum),
                Kind::Mean => whole.with(figure, sum.map(|sum| sum / count)),
                Kind::Last => whole.with(figure, last.of(figure)),
            };
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_a_word_of_its_own_with_a_name_of_its_own() {
        let mut names = std::collections::HashSet::new();
        for (at, figure) in Figure::ALL.into_iter().enumerate() {
            assert_eq!(figure as usize, at);
            assert!(names.insert(figure.name()));
            let account = Account::default().with(figure, 7);
            assert_eq!(account.of(figure), Some(7));
            assert_eq!(Account::from_words(*account.words()), account);
        }
        assert_eq!(Account::default().of(Figure::CpuUs), None);
    }

    #[test]
    fn readings_become_one_and_the_unknown_stays_unknown() {
        let second = |completions: u64, queue: u64, workers: u64| {
            Account::default()
                .with(Figure::SpanUs, 1_000_000)
                .with(Figure::Completions, completions)
                .with(Figure::Queue, queue)
                .with(Figure::Workers, workers)
                .with(Figure::CpuUs, completions * 100)
        };
        let whole = Account::over(&[second(10, 4, 400), second(30, 0, 500)]);
        assert_eq!(whole.rate(Figure::Completions), Some(20.0));
        assert_eq!(whole.each(Figure::CpuUs), Some(100.0));
        assert_eq!((whole.of(Figure::Queue), whole.of(Figure::Workers)), (Some(2), Some(500)));
        let gap = Account::over(&[second(10, 4, 400).with(Figure::CpuUs, None), second(1, 1, 1)]);
        assert_eq!((gap.of(Figure::CpuUs), gap.of(Figure::Completions)), (None, Some(11)));
        assert_eq!(Account::over(&[]).rate(Figure::Bytes), None);
        assert_eq!(second(0, 0, 0).each(Figure::CpuUs), None);
    }
}
