//! What a worker costs in memory: some children at a time are looked at, and what their pages and
//! page tables take that no other process has too. It is measured where each connection holds a
//! worker, since workers that rest take memory there; in event a worker at rest is a number.

use std::collections::VecDeque;

use evenkeel_sys::bounds;

/// So many children are looked at each time, from the oldest to the youngest.
const AT_A_TIME: usize = 4;

/// So many looks are kept: children that have served much hold more than those that have not.
const LOOKS: usize = 32;

/// The kernel's own for a process beside its page tables: its stack, its descriptors and sockets.
/// Linux 6.18 charges a control group 62 to 72 KiB for each more of them that serves a connection.
const KERNEL_EACH: u64 = 72 << 10;

/// The memory of the children that were looked at last.
#[derive(Default)]
pub(crate) struct Growth {
    looks: VecDeque<u64>,
    turn: usize,
}

impl Growth {
    /// Looks at the next of these processes, which have served, oldest first.
    pub(crate) fn look(&mut self, pids: &[i32]) {
        for at in chosen(pids.len(), self.turn) {
            let Some(bytes) = pids.get(at).and_then(|pid| bounds::private_bytes(*pid)) else {
                continue;
            };
            self.looks.push_back(bytes.saturating_add(KERNEL_EACH));
        }
        self.turn = self.turn.wrapping_add(1);
        let beyond = self.looks.len().saturating_sub(LOOKS);
        self.looks.drain(..beyond);
    }

    /// What a child takes in bytes: as many of those looked at take more as take less, so that
    /// neither the few count that made an uncommon answer, nor the first ones, which keep pages
    /// that the parent has changed since and the next ones will share. None before the first look.
    pub(crate) fn child_bytes(&self) -> Option<u64> {
        let mut looks: Vec<u64> = self.looks.iter().copied().collect();
        looks.sort_unstable();
        looks.get(looks.len() / 2).copied()
    }
}

/// Which of so many children are looked at: of each age one, and all of them in turn.
fn chosen(count: usize, turn: usize) -> impl Iterator<Item = usize> {
    let parts = AT_A_TIME.min(count);
    (0..parts).filter_map(move |part| {
        let (first, end) = (part * count / parts, (part + 1) * count / parts);
        Some(first + turn.checked_rem(end - first)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_takes_memory_of_its_own() {
        let mut growth = Growth::default();
        growth.look(&[]);
        assert_eq!(growth.child_bytes(), None);
        let own = std::process::id().cast_signed();
        growth.look(&[own]);
        let before = growth.child_bytes().unwrap();
        let more = vec![1_u8; 32 << 20];
        (0..LOOKS).for_each(|_| growth.look(&[own]));
        assert!(growth.child_bytes().unwrap() >= before + (30 << 20), "{}", more.len());
        // What is gone is forgotten after a while.
        drop(more);
        (0..LOOKS).for_each(|_| growth.look(&[own]));
        assert!(growth.child_bytes().unwrap() < before + (30 << 20));
    }

    fn told(looks: impl IntoIterator<Item = u64>) -> Option<u64> {
        Growth { looks: looks.into_iter().collect(), turn: 0 }.child_bytes()
    }

    #[test]
    fn neither_small_ones_nor_a_large_one_speak_for_all() {
        assert_eq!(told([350, 290, 290, 350, 340, 9_000, 290, 350, 350]), Some(350));
        assert_eq!((told([5]), told([5, 7])), (Some(5), Some(7)));
    }

    #[test]
    fn the_first_children_do_not_speak_for_those_to_come() {
        // KiB of 20 children of which the first four were there before the others: 12 looks in
        // their order had the pool told 13 per cent fewer workers than memory bore.
        let children: Vec<u64> = (0..20).map(|age| if age < 4 { 588 } else { 432 }).collect();
        for seconds in 2..30 {
            let looks = (0..seconds).flat_map(|turn| chosen(children.len(), turn));
            assert_eq!(told(looks.map(|at| children[at])), Some(432), "{seconds}");
        }
    }

    #[test]
    fn every_child_is_looked_at_and_none_twice_at_a_time() {
        for count in 0..40_usize {
            let mut seen = std::collections::BTreeSet::new();
            for turn in 0..count.div_ceil(AT_A_TIME) {
                let now: std::collections::BTreeSet<_> = chosen(count, turn).collect();
                assert_eq!(now.len(), AT_A_TIME.min(count));
                seen.extend(now);
            }
            assert_eq!(seen, (0..count).collect(), "{count}");
        }
    }
}
