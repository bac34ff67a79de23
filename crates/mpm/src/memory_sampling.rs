//! Measures what a worker costs in memory: samples a few children at a time for the pages and page
//! tables that no other process shares. Only the models whose connections hold a worker need it,
//! since their idle workers take memory; in event an idle worker is only a number.

use std::collections::VecDeque;

use evenkeel_sys::resources;

/// How many children are sampled at a time, from the oldest to the youngest.
const AT_A_TIME: usize = 4;

/// How many samples are kept. Children that have served much take more than those that have not.
const SAMPLES: usize = 32;

/// The kernel's own memory for a process besides its page tables: stack, descriptors and sockets.
/// Linux 6.18 charges a control group 62 to 72 KiB for each further process that serves a
/// connection.
const KERNEL_EACH: u64 = 72 << 10;

/// The last samples, in bytes.
#[derive(Default)]
pub(crate) struct MemorySamples {
    samples: VecDeque<u64>,
    round: usize,
}

impl MemorySamples {
    /// Samples the next of these processes, which have served requests, oldest first.
    pub(crate) fn sample(&mut self, pids: &[i32]) {
        for at in chosen(pids.len(), self.round) {
            let Some(bytes) = pids.get(at).and_then(|pid| resources::private_bytes(*pid)) else {
                continue;
            };
            self.samples.push_back(bytes.saturating_add(KERNEL_EACH));
        }
        self.round = self.round.wrapping_add(1);
        let beyond = self.samples.len().saturating_sub(SAMPLES);
        self.samples.drain(..beyond);
    }

    /// The memory of a child in bytes: the median of the samples. So neither a few children count
    /// that made an unusual response, nor the first ones, which keep pages that the parent has
    /// changed since and that later children share with it. None before the first sample.
    pub(crate) fn child_bytes(&self) -> Option<u64> {
        let mut samples: Vec<u64> = self.samples.iter().copied().collect();
        samples.sort_unstable();
        samples.get(samples.len() / 2).copied()
    }
}

/// The indices of the children to sample in this round: one of each age group, and every child in
/// turn.
fn chosen(count: usize, round: usize) -> impl Iterator<Item = usize> {
    let parts = AT_A_TIME.min(count);
    (0..parts).filter_map(move |part| {
        let (first, end) = (part * count / parts, (part + 1) * count / parts);
        Some(first + round.checked_rem(end - first)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_takes_memory_of_its_own() {
        let mut samples = MemorySamples::default();
        samples.sample(&[]);
        assert_eq!(samples.child_bytes(), None);
        let own = std::process::id().cast_signed();
        samples.sample(&[own]);
        let before = samples.child_bytes().unwrap();
        let more = vec![1_u8; 32 << 20];
        (0..SAMPLES).for_each(|_| samples.sample(&[own]));
        assert!(samples.child_bytes().unwrap() >= before + (30 << 20), "{}", more.len());
        // Memory that is freed is forgotten after a while.
        drop(more);
        (0..SAMPLES).for_each(|_| samples.sample(&[own]));
        assert!(samples.child_bytes().unwrap() < before + (30 << 20));
    }

    fn told(samples: impl IntoIterator<Item = u64>) -> Option<u64> {
        MemorySamples { samples: samples.into_iter().collect(), round: 0 }.child_bytes()
    }

    #[test]
    fn neither_small_ones_nor_a_large_one_speak_for_all() {
        assert_eq!(told([350, 290, 290, 350, 340, 9_000, 290, 350, 350]), Some(350));
        assert_eq!((told([5]), told([5, 7])), (Some(5), Some(7)));
    }

    #[test]
    fn the_first_children_do_not_speak_for_those_to_come() {
        // KiB of 20 children of which the first four were there before the others: 12 samples in
        // their order told the pool 13 per cent fewer workers than the memory allowed.
        let children: Vec<u64> = (0..20).map(|age| if age < 4 { 588 } else { 432 }).collect();
        for seconds in 2..30 {
            let samples = (0..seconds).flat_map(|round| chosen(children.len(), round));
            assert_eq!(told(samples.map(|at| children[at])), Some(432), "{seconds}");
        }
    }

    #[test]
    fn every_child_is_looked_at_and_none_twice_at_a_time() {
        for count in 0..40_usize {
            let mut seen = std::collections::BTreeSet::new();
            for round in 0..count.div_ceil(AT_A_TIME) {
                let now: std::collections::BTreeSet<_> = chosen(count, round).collect();
                assert_eq!(now.len(), AT_A_TIME.min(count));
                seen.extend(now);
            }
            assert_eq!(seen, (0..count).collect(), "{count}");
        }
    }
}
