//! What a request may still spend on patterns and expressions. An .htaccess file may hold
//! thousands of them, each within its own bounds; together they must not hold a serving thread.
//! Nothing here reads a clock.

use std::cell::Cell;
use std::rc::Rc;

/// Steps left to a request; copies share them. A step is about a nanosecond.
#[derive(Clone, Debug)]
pub struct Allowance(Rc<Cell<u32>>);

impl Allowance {
    /// Steps that a request may take altogether: about a second. The longest lists of patterns
    /// that sites use, some 10,000, take a hundredth of that.
    pub const STEPS: u32 = 1 << 30;

    /// Takes steps; false where so many are not left, and then none is left for anything else.
    #[must_use]
    pub fn spend(&self, steps: u64) -> bool {
        let left = u32::try_from(steps).ok().and_then(|steps| self.0.get().checked_sub(steps));
        self.0.set(left.unwrap_or_default());
        left.is_some()
    }

    /// The steps that are left.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.0.get()
    }

    /// Whether nothing is left: what had to be decided since may not have been.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.0.get() == 0
    }

    /// Begins anew, for another request.
    pub fn renew(&self) {
        self.0.set(Self::STEPS);
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self(Rc::new(Cell::new(Self::STEPS)))
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
}
