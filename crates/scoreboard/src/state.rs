//! The states of a worker slot and the phases of a child, with their letters and words. A word from
//! shared memory that is unknown decodes to the harmless first variant.

/// What a worker slot does. The letters are Apache's (include/scoreboard.h, mod_status).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum SlotState {
    /// No worker: free up to the configured limit.
    #[default]
    Open,
    /// The child is starting.
    Starting,
    /// Waiting for work.
    Ready,
    /// Reading a request.
    Reading,
    /// Generating a response, or sending it.
    Writing,
    /// Waiting for the next request on a kept connection.
    KeepAlive,
    /// Looking up a host name.
    Dns,
    /// Closing a connection.
    Closing,
    /// Writing a log.
    Logging,
    /// Finishing, in a child that drains.
    Graceful,
    /// Being cleaned up because too many are idle.
    IdleCleanup,
}

impl SlotState {
    /// Every state, in the order that Apache counts them.
    pub const ALL: [Self; 11] = [
        Self::Open,
        Self::Starting,
        Self::Ready,
        Self::Reading,
        Self::Writing,
        Self::KeepAlive,
        Self::Dns,
        Self::Closing,
        Self::Logging,
        Self::Graceful,
        Self::IdleCleanup,
    ];

    /// The letter on the status page.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Open => '.',
            Self::Starting => 'S',
            Self::Ready => '_',
            Self::Reading => 'R',
            Self::Writing => 'W',
            Self::KeepAlive => 'K',
            Self::Dns => 'D',
            Self::Closing => 'C',
            Self::Logging => 'L',
            Self::Graceful => 'G',
            Self::IdleCleanup => 'I',
        }
    }

    /// The state in the words of the status page's key.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Open => "Open slot with no current process",
            Self::Starting => "Starting up",
            Self::Ready => "Waiting for Connection",
            Self::Reading => "Reading Request",
            Self::Writing => "Sending Reply",
            Self::KeepAlive => "Keepalive (read)",
            Self::Dns => "DNS Lookup",
            Self::Closing => "Closing connection",
            Self::Logging => "Logging",
            Self::Graceful => "Gracefully finishing",
            Self::IdleCleanup => "Idle cleanup of worker",
        }
    }

    /// Whether a worker in this state counts as busy (mod_status, status_handler).
    #[must_use]
    pub fn is_busy(self) -> bool {
        !matches!(self, Self::Open | Self::Starting | Self::Ready | Self::IdleCleanup)
    }

    pub(crate) fn from_word(word: u64) -> Self {
        usize::try_from(word).ok().and_then(|at| Self::ALL.get(at)).copied().unwrap_or_default()
    }
}

/// The phase of a child's life, as the parent sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Phase {
    /// No child has this line.
    #[default]
    Empty,
    /// Forked, and not serving yet.
    Starting,
    /// Serving.
    Running,
    /// Parked: it finishes what it has and accepts nothing.
    Parked,
    /// Draining: it finishes what it has, then ends.
    Draining,
    /// Told to finish what is in progress and end.
    Exiting,
}

impl Phase {
    const ALL: [Self; 6] =
        [Self::Empty, Self::Starting, Self::Running, Self::Parked, Self::Draining, Self::Exiting];

    /// Whether the child is ending (the "Stopping" column of the status page).
    #[must_use]
    pub fn is_stopping(self) -> bool {
        matches!(self, Self::Draining | Self::Exiting)
    }

    pub(crate) fn from_word(word: u64) -> Self {
        usize::try_from(word).ok().and_then(|at| Self::ALL.get(at)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_the_way_through_a_word() {
        for state in SlotState::ALL {
            assert_eq!(SlotState::from_word(state as u64), state);
        }
        for phase in Phase::ALL {
            assert_eq!(Phase::from_word(phase as u64), phase);
        }
        assert_eq!(SlotState::from_word(u64::MAX), SlotState::Open);
        assert_eq!(Phase::from_word(77), Phase::Empty);
    }

    #[test]
    fn letters_are_apaches_and_differ() {
        let letters: String = SlotState::ALL.into_iter().map(SlotState::letter).collect();
        assert_eq!(letters, ".S_RWKDCLGI");
    }
}
