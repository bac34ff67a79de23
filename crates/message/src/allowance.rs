//! What a request may still spend on patterns and expressions. An .htaccess file may hold
//! thousands of them, each within its own bounds; together they must not hold a serving thread.
//! Nothing here reads a clock.

use std::cell::Cell;
use std::rc::Rc;

/// Steps left to a request; copies share them. A step is about a nanosecond.
#[derive(Clone, Debug)]
pub struct Allowance(Rc<Left>);

#[derive(Debug)]
struct Left {
    steps: Cell<u32>,
    untimed: Cell<u32>,
}

impl Allowance {
    /// Steps that a request may take altogether: about a second. The longest lists of patterns
    /// that sites use, some 10,000, take a hundredth of that.
    pub const STEPS: u32 = 1 << 30;

    /// Steps that matches may take beside that before the time of each is taken, which costs more
    /// than most of them. What a match may take is far more than what it takes.
    const UNTIMED: u32 = 1 << 24;

    /// Takes steps; false where so many are not left, and then none is left for anything else.
    #[must_use]
    pub fn spend(&self, steps: u64) -> bool {
        let before = self.0.steps.get();
        let left = u32::try_from(steps).ok().and_then(|steps| before.checked_sub(steps));
        self.0.steps.set(left.unwrap_or_default());
        left.is_some()
    }

    /// Whether a match that takes so many steps at most may go untimed; if so, these are taken
    /// from what may.
    #[must_use]
    pub fn leaves_untimed(&self, most: u64) -> bool {
        let before = self.0.untimed.get();
        let left = u32::try_from(most).ok().and_then(|most| before.checked_sub(most));
        self.0.untimed.set(left.unwrap_or(before));
        left.is_some()
    }

    /// The steps that are left.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.0.steps.get()
    }

    /// Whether nothing is left: what had to be decided since may not have been.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.0.steps.get() == 0
    }

    /// Begins anew, for another request.
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
