//! An account: the figures of what a pool did and had in a span of time. The parent makes one a
//! second, the history stores it as words, the status page draws it, and the laws decide from it. A
//! figure that was not measured is unknown, and stays so in every sum.

/// A figure of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Figure {
    /// Microseconds that the account covers.
    SpanUs,
    /// Workers (event: credits) that exist or are starting, by the law.
    Supply,
    /// Workers that are needed, for what is served and what waits.
    Demand,
    /// Connections in the accept queues.
    Queue,
    /// Children that serve.
    Active,
    /// Children that are parked.
    Parked,
    /// The most requests in progress at once (MaxRequestWorkers).
    Workers,
    /// Busy workers on average, in thousandths.
    BusyMilli,
    /// Requests that wait within a child for a credit, on average, in thousandths.
    RunnableMilli,
    /// Open connections.
    Connections,
    /// Responses that wait for their client to read, on average, in thousandths.
    WritingMilli,
    /// Requests answered.
    Completions,
    /// Bytes sent as bodies.
    Bytes,
    /// The total duration of these requests, in microseconds.
    DurationUs,
    /// CPU time of the children, in microseconds.
    CpuUs,
    /// How long the children's threads were ready without a core, in microseconds.
    RunQueueUs,
    /// How long jobs were queued for the blocking pool, in microseconds.
    QueueUs,
    /// How long threads of the blocking pool were held without using a core, in microseconds: by
    /// what blocks, mostly disks.
    BlockedUs,
    /// Threads of the blocking pool.
    BlockingThreads,
    /// Cores that the server may use, by affinity and quota, in thousandths.
    CoresMilli,
    /// CPU time that other processes had of what the server may use, in microseconds. If a quota
    /// leaves less than the cores have, what they had of the rest does not count.
    OthersUs,
    /// How long the quota throttled the server, in microseconds: the share of its periods in which
    /// it did, of the span.
    ThrottledUs,
    /// Bytes of memory that the server may use, by its cgroup or the machine.
    MemoryLimit,
    /// Bytes of these that are available.
    MemoryFree,
    /// The share of the time in which some process waited for memory, in hundredths of a per cent.
    MemoryPressure,
    /// The bound of the accept queues.
    Backlog,
    /// The utilisation of the busiest network interface, in thousandths.
    NetworkMilli,
    /// Descriptors that the children may use for connections, in total.
    Descriptors,
    /// Workers that are held by a connection on which nothing is to be done, on average, in
    /// thousandths: it is idle, its request is incomplete, or it is being closed. Unknown if
    /// connections hold no workers.
    RestingMilli,
    /// Connections that were refused because an accept queue was full.
    Refused,
    /// What keeps more requests from being in progress at once, as [`Constraint`].
    Constraint,
    /// The limit that bound, as [`crate::Limit::number`].
    Limit,
}

/// What keeps more requests from being in progress at once: the values of [`Figure::Constraint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Constraint {
    /// Nothing, or a directive.
    None = 0,
    /// More requests in progress brought no more responses.
    NoGain = 1,
    /// Memory, if the number of workers follows from what is available.
    Memory = 2,
    /// Descriptors, likewise.
    Descriptors = 3,
}

/// How the figures of several accounts are combined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sum,
    Mean,
    Last,
}

/// The value of an unknown figure.
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
        Self::RestingMilli, Self::Refused, Self::Constraint, Self::Limit,
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
            Self::Constraint => "bar",
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

/// An account: a row of figures.
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

    /// The same account with a figure; none makes it unknown.
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

    /// The figure per second; none if it or the span is unknown.
    #[must_use]
    pub fn rate(&self, figure: Figure) -> Option<f64> {
        let span = self.value(Figure::SpanUs).filter(|span| *span > 0.0)?;
        Some(self.value(figure)? / span * 1e6)
    }

    /// The figure per request; none if no request was answered.
    #[must_use]
    pub fn each(&self, figure: Figure) -> Option<f64> {
        let requests = self.value(Figure::Completions).filter(|requests| *requests > 0.0)?;
        Some(self.value(figure)? / requests)
    }

    /// The account as words, for the history.
    #[must_use]
    pub const fn words(&self) -> &[u64; Self::WORDS] {
        &self.0
    }

    /// An account from words, which may come from any process: they are used as numbers only.
    #[must_use]
    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        Self(words)
    }

    /// Combines accounts, oldest first, into one of their whole time: amounts are added, levels are
    /// averaged, and of settings the last counts. If one part of a sum is unknown, the sum is too.
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
