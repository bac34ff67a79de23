//! Detects children that hang, by the heartbeat that each child writes to its line of the
//! scoreboard. The parent calls `observe` once a tick. Time is counted in these ticks, so that a
//! pause of the whole machine does not look like a stall.

/// How long a tick is, in microseconds. A child's heartbeat changes at least once in it.
pub(crate) const TICK_US: u64 = 1_000_000;

/// After how many ticks without a heartbeat a child is reported, and after how many it is replaced.
const REPORT_AFTER: u32 = 10;
const REPLACE_AFTER: u32 = 30;

/// The same if connections wait and no other child accepts them.
const REPLACE_STARVING_AFTER: u32 = 2;

/// The heartbeat of one child, as the parent sees it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StallDetector {
    last_heartbeat_us: u64,
    stalled_ticks: u32,
    /// For how many of the last ticks in a row connections have waited for the child.
    starving_ticks: u32,
}

/// What to do about a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StallAction {
    None,
    Report,
    Replace,
}

impl StallDetector {
    /// Compares the heartbeat in the child's line with the last one; 0 means that none is due.
    /// `starves` is asked about a stalled child: whether connections wait for it although it does
    /// not want a processor. A child that wants one and gets none, on a busy machine, is not hung,
    /// and another in its place would get none either.
    pub(crate) fn observe(
        &mut self,
        heartbeat_us: u64,
        starves: impl FnOnce() -> bool,
    ) -> StallAction {
        if heartbeat_us == 0 || heartbeat_us != self.last_heartbeat_us {
            *self = Self { last_heartbeat_us: heartbeat_us, ..Self::default() };
            return StallAction::None;
        }
        self.stalled_ticks = self.stalled_ticks.saturating_add(1);
        self.starving_ticks = if starves() { self.starving_ticks.saturating_add(1) } else { 0 };
        match self.stalled_ticks {
            REPORT_AFTER => StallAction::Report,
            REPLACE_AFTER => StallAction::Replace,
            _ => StallAction::None,
        }
    }

    /// Whether connections have waited for the stalled child for as long as they may. If all
    /// children that could accept them are stalled so, these children are replaced.
    pub(crate) fn starves_others(&self) -> bool {
        self.starving_ticks >= REPLACE_STARVING_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_child_is_reported_and_then_replaced_once() {
        let mut detector = StallDetector::default();
        for heartbeat_us in 1..100 {
            assert_eq!(detector.observe(heartbeat_us, || true), StallAction::None);
        }
        let judgements: Vec<_> = (0..60).map(|_| detector.observe(99, || true)).collect();
        assert_eq!(judgements[9], StallAction::Report);
        assert_eq!(judgements[29], StallAction::Replace);
        assert_eq!(judgements.iter().filter(|one| **one != StallAction::None).count(), 2);
    }

    #[test]
    fn a_new_heartbeat_ends_a_stall() {
        let mut detector = StallDetector::default();
        (0..9).for_each(|_| assert_eq!(detector.observe(5, || false), StallAction::None));
        assert_eq!(detector.observe(6, || false), StallAction::None);
        (0..9).for_each(|_| assert_eq!(detector.observe(6, || false), StallAction::None));
        (0..90).for_each(|_| assert_eq!(detector.observe(0, || true), StallAction::None));
        assert!(!detector.starves_others());
    }

    #[test]
    fn a_stalled_child_starves_others_once_connections_wait_for_two_ticks_in_a_row() {
        let mut detector = StallDetector::default();
        let mut starves = |heartbeat_us, waits: bool| {
            let _ = detector.observe(heartbeat_us, || waits);
            detector.starves_others()
        };
        for (heartbeat_us, waits) in
            [(1, true), (1, true), (2, true), (2, true), (2, false), (2, true)]
        {
            assert!(!starves(heartbeat_us, waits));
        }
        assert!(starves(2, true));
        assert!(!starves(3, true));
    }
}
