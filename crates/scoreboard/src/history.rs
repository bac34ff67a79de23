//! The history of the pool: an hour of readings, one a second, in a ring buffer in shared memory.
//! The parent writes it and any process reads it. A reader gets the readings that were not being
//! written while it looked, oldest first, and treats them as claims.

use crate::board::Scoreboard;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// How many readings are kept: an hour.
pub const READINGS: usize = 3600;

/// How many words a reading has at most.
pub const READING_WORDS: usize = 32;

/// A reading with its number and its time.
const ENTRY_WORDS: usize = 2 + READING_WORDS;

pub(crate) const HISTORY_WORDS: usize = READINGS * ENTRY_WORDS;

/// A reading of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When it was taken, in microseconds since 1970.
    pub when_us: u64,
    /// The figures of the reading.
    pub words: [u64; READING_WORDS],
}

impl Scoreboard {
    /// Records a reading; `number` counts them from 1. Parent only.
    pub fn note_reading(&self, number: u64, reading: &Reading) {
        let Some([stamp, when, words @ ..]) = self.entry(number) else { return };
        // A reader that sees the old number before and after has the complete old words; a reader
        // that sees no number skips the entry.
        stamp.store(0, Relaxed);
        fence(Release);
        when.store(reading.when_us, Relaxed);
        for (word, value) in words.iter().zip(reading.words) {
            word.store(value, Relaxed);
        }
        stamp.store(number, Release);
    }

    /// The last readings, at most `most`, oldest first.
    #[must_use]
    pub fn readings(&self, most: usize) -> Vec<Reading> {
        let numbers = (1..=READINGS as u64).filter_map(|place| {
            let Some([stamp, ..]) = self.entry(place) else { return None };
            Some(stamp.load(Acquire)).filter(|number| *number > 0)
        });
        let newest = numbers.max().unwrap_or(0);
        let most = most.min(READINGS) as u64;
        let first = newest.saturating_sub(most).saturating_add(1);
        (first..=newest).filter_map(|number| self.reading(number)).collect()
    }

    /// The reading with this number, unless it is gone or being written.
    fn reading(&self, number: u64) -> Option<Reading> {
        let [stamp, when, words @ ..] = self.entry(number)? else { return None };
        if stamp.load(Acquire) != number {
            return None;
        }
        let when_us = when.load(Relaxed);
        let mut copy = [0; READING_WORDS];
        for (value, word) in copy.iter_mut().zip(words) {
            *value = word.load(Relaxed);
        }
        fence(Acquire);
        (stamp.load(Relaxed) == number).then_some(Reading { when_us, words: copy })
    }

    fn entry(&self, number: u64) -> Option<&'static [AtomicU64]> {
        let place = usize::try_from(number % READINGS as u64).ok()? * ENTRY_WORDS;
        self.history()?.get(place..place + ENTRY_WORDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Layout;

    fn reading(number: u64) -> Reading {
        Reading { when_us: number, words: [number; READING_WORDS] }
    }

    #[test]
    fn an_hour_is_kept_and_the_oldest_goes_first() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        assert!(board.readings(10).is_empty());
        for number in 1..=2 {
            board.note_reading(number, &reading(number));
        }
        assert_eq!(board.readings(10), [reading(1), reading(2)]);
        for number in 3..=READINGS as u64 + 5 {
            board.note_reading(number, &reading(number));
        }
        let kept = board.readings(usize::MAX);
        assert_eq!((kept.len(), kept.first()), (READINGS, Some(&reading(6))));
        let last = READINGS as u64 + 5;
        assert_eq!(board.readings(2), [reading(last - 1), reading(last)]);
    }

    #[test]
    fn a_reader_never_sees_half_a_reading() {
        let board = Scoreboard::new(Layout { children: 1, slots_per_child: 1 }).unwrap();
        std::thread::scope(|scope| {
            // Entries are overwritten while they are read.
            let writer = scope.spawn(move || {
                (1..=40_u64).for_each(|round| {
                    (1..=50).for_each(|place| {
                        let number = round * READINGS as u64 + place;
                        board.note_reading(number, &reading(number));
                    });
                });
            });
            loop {
                let is_over = writer.is_finished();
                for reading in board.readings(60) {
                    assert!(reading.words.iter().all(|word| *word == reading.when_us));
                }
                if is_over {
                    break;
                }
            }
        });
    }
}
