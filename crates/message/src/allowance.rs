//! A bound on what a request may spend on patterns and expressions. An .htaccess file may hold
//! thousands of them, each within its own bounds; together they must not hold a serving thread. The
//! bound counts steps and reads no clock.

use std::cell::Cell;
use std::rc::Rc;

/// The steps that a request has left. Copies share them. A step is about a nanosecond.
#[derive(Clone, Debug)]
pub struct Allowance(Rc<Left>);

#[derive(Debug)]
struct Left {
    steps: Cell<u32>,
    untimed: Cell<u32>,
}

impl Allowance {
    /// The steps that a request may take in total, about a second. The longest lists of patterns
    /// that sites use, some 10,000, take a hundredth of that.
    pub const STEPS: u32 = 1 << 30;

    /// The steps that matches may take in addition before each of them is timed, which costs more
    /// than most matches do. The steps that a match may take are far more than those that it takes.
    const UNTIMED: u32 = 1 << 24;

    /// Takes steps. Returns false if fewer than that are left; then none is left for anything else
    /// either.
    #[must_use]
    pub fn spend(&self, steps: u64) -> bool {
        let before = self.0.steps.get();
        let left = u32::try_from(steps).ok().and_then(|steps| before.checked_sub(steps));
        self.0.steps.set(left.unwrap_or_default());
        left.is_some()
    }

    /// Whether a match of at most `most` steps may go untimed. If so, takes them from the untimed
    /// steps.
    #[must_use]
    pub fn leaves_untimed(&self, most: u64) -> bool {
        let before = self.0.untimed.get();
        let left = u32::try_from(most).ok().and_then(|most| before.checked_sub(most));
        self.0.untimed.set(left.unwrap_or(before));
        left.is_some()
    }

    /// The number of steps that are left.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.0.steps.get()
    }

    /// Whether no steps are left, so that what had to be decided since may not have been.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.0.steps.get() == 0
    }

    /// Restores all steps, for another request.
    pub fn renew(&self) {
        self.0.steps.set(Self::STEPS);
        self.0.untimed.set(Self::UNTIMED);
    }
}

impl Default for Allowance {
    fn default() -> Self {
        let (steps, untimed) = (Cell::new(Self::STEPS), Cell::new(Self::UNTIMED));
        Self(Rc::new(Left { steps, untimed }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_what_is_left_and_too_much_takes_all() {
        let allowance = Allowance::default();
        let copy = allowance.clone();
        assert!(copy.spend(u64::from(Allowance::STEPS) - 1) && !allowance.is_spent());
        assert!(!allowance.spend(2) && copy.is_spent() && !copy.spend(1));
        allowance.renew();
        assert!(!copy.spend(u64::MAX) && copy.is_spent());
    }

    #[test]
    fn what_goes_untimed_is_bounded_and_costs_nothing_else() {
        let allowance = Allowance::default();
        assert!(!allowance.leaves_untimed(u64::MAX));
        assert!(allowance.leaves_untimed(u64::from(Allowance::UNTIMED) - 1));
        assert!(!allowance.leaves_untimed(2) && allowance.clone().leaves_untimed(1));
        assert!(!allowance.leaves_untimed(1) && allowance.left() == Allowance::STEPS);
        allowance.renew();
        assert!(allowance.leaves_untimed(1));
    }
}
