//! Random numbers from a seed. The number of a site and a seed give the same stream on every
//! machine and in every version, so that a report can be repeated.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

/// A stream of random decisions.
#[derive(Debug, Clone)]
pub struct Dice {
    stream: ChaCha8Rng,
}

impl Dice {
    /// The stream with this number for this seed.
    pub fn new(seed: u64, number: u64) -> Dice {
        let mut stream = ChaCha8Rng::seed_from_u64(seed);
        stream.set_stream(number);
        Dice { stream }
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let drawn = self.stream.next_u64();
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(drawn % bound).unwrap_or(0)
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// True with a probability of `percent` %.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of the items; none if the slice is empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = self.below(items.len());
        items.get(index)
    }

    /// One of the texts; empty if there is none.
    pub fn word<'a>(&mut self, words: &[&'a str]) -> &'a str {
        self.pick(words).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64, number: u64) -> Vec<usize> {
        let mut dice = Dice::new(seed, number);
        (0..8).map(|_| dice.below(1_000)).collect()
    }

    #[test]
    fn a_seed_and_a_number_repeat_a_stream() {
        assert_eq!(drawn(7, 3), drawn(7, 3));
        assert_ne!(drawn(7, 3), drawn(7, 4));
        assert_ne!(drawn(7, 3), drawn(8, 3));
    }

    #[test]
    fn bounds_hold() {
        let mut dice = Dice::new(1, 1);
        assert!((0..200).all(|_| (2..=4).contains(&dice.between(2, 4))));
        assert_eq!(dice.below(0), 0);
        assert_eq!(dice.word(&[]), "");
    }
}
