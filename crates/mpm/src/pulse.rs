//! Whether a child still comes round. The heartbeat that it writes comes in once a tick of the
//! parent's, a judgement goes out. Time is counted in the parent's own ticks: where the whole
//! machine stood still, the parent did too.

/// How long a tick is, in microseconds: a child's heart beats at least once in it.
pub(crate) const TICK_US: u64 = 1_000_000;

/// After how many ticks without a beat a child is reported, and after how many it is replaced.
const REPORT_AFTER: u32 = 10;
const REPLACE_AFTER: u32 = 30;

/// The same where connections wait and no other child takes them.
const REPLACE_STARVING_AFTER: u32 = 2;

/// The heart of one child, as the parent feels it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pulse {
    last_beat: u64,
    still: u32,
    /// For how many of these ticks on end it has starved others.
    starving: u32,
}

/// What is to be done about a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Well,
    Report,
    Replace,
}

impl Pulse {
    /// Takes the beat that the child's line shows; 0 is a child of which none is due. `starves` is
    /// asked of a child whose heart stands still: whether connections wait for it while it wants
    /// no processor time. One that wants some and gets none, on a machine that has too little, is
    /// not hung, and others in its place would get none either.
    pub(crate) fn feel(&mut self, beat: u64, starves: impl FnOnce() -> bool) -> Judgement {
        if beat == 0 || beat != self.last_beat {
            *self = Self { last_beat: beat, ..Self::default() };
            return Judgement::Well;
        }
        self.still = self.still.saturating_add(1);
        self.starving = if starves() { self.starving.saturating_add(1) } else { 0 };
        match self.still {
            REPORT_AFTER => Judgement::Report,
            REPLACE_AFTER => Judgement::Replace,
            _ => Judgement::Well,
        }
    }

    /// Whether it has stood still for as long as connections may wait for a child that does: where
    /// all that could take them do, they are replaced.
    pub(crate) fn starves_others(&self) -> bool {
        self.starving >= REPLACE_STARVING_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heart_that_stands_still_is_reported_and_then_replaced_once() {
        let mut pulse = Pulse::default();
        for beat in 1..100 {
            assert_eq!(pulse.feel(beat, || true), Judgement::Well);
        }
        let judgements: Vec<_> = (0..60).map(|_| pulse.feel(99, || true)).collect();
        assert_eq!(judgements[9], Judgement::Report);
        assert_eq!(judgements[29], Judgement::Replace);
        assert_eq!(judgements.iter().filter(|one| **one != Judgement::Well).count(), 2);
    }

    #[test]
    fn a_heart_that_beats_again_is_well() {
        let mut pulse = Pulse::default();
        (0..9).for_each(|_| assert_eq!(pulse.feel(5, || false), Judgement::Well));
        assert_eq!(pulse.feel(6, || false), Judgement::Well);
        (0..9).for_each(|_| assert_eq!(pulse.feel(6, || false), Judgement::Well));
        (0..90).for_each(|_| assert_eq!(pulse.feel(0, || true), Judgement::Well));
        assert!(!pulse.starves_others());
    }

    #[test]
    fn a_still_heart_starves_others_where_they_have_waited_for_two_ticks_on_end() {
        let mut pulse = Pulse::default();
        let mut starves = |beat, waits: bool| {
            let _ = pulse.feel(beat, || waits);
            pulse.starves_others()
        };
        for (beat, waits) in [(1, true), (1, true), (2, true), (2, true), (2, false), (2, true)] {
            assert!(!starves(beat, waits));
        }
        assert!(starves(2, true));
        assert!(!starves(3, true));
    }
}
