//! What a worker costs in memory: one child after the other is looked at, and what its pages and
//! page tables take that no other process has too. It is measured where each connection holds a
//! worker, since workers that rest take memory there; in event a worker at rest is a number.

use std::collections::VecDeque;

use evenkeel_sys::bounds;

/// So many looks are kept: children that have served much hold more than those that have not.
const LOOKS: usize = 16;

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
    /// Looks at the next of these processes, which have served.
    pub(crate) fn look(&mut self, pids: &[i32]) {
        self.turn = self.turn.wrapping_add(1);
        let next = self.turn.checked_rem(pids.len()).and_then(|at| pids.get(at));
        let Some(bytes) = next.and_then(|pid| bounds::private_bytes(*pid)) else { return };
        self.looks.push_back(bytes.saturating_add(KERNEL_EACH));
        if self.looks.len() > LOOKS {
            let _oldest = self.looks.pop_front();
        }
    }

    /// What a child takes in bytes: a quarter of those looked at take more, so that neither those
    /// count which have served little nor the few which made an uncommon answer. None before the
    /// first look.
    pub(crate) fn child_bytes(&self) -> Option<u64> {
        let mut looks: Vec<u64> = self.looks.iter().copied().collect();
        looks.sort_unstable();
        looks.get(looks.len() * 3 / 4).copied()
    }
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
        growth.look(&[own]);
        assert!(growth.child_bytes().unwrap() >= before + (30 << 20), "{}", more.len());
        // What is gone is forgotten after a while.
        drop(more);
        (0..LOOKS).for_each(|_| growth.look(&[own]));
        assert!(growth.child_bytes().unwrap() < before + (30 << 20));
    }

    #[test]
    fn neither_small_ones_nor_a_large_one_speak_for_all() {
        let bytes = |looks: &[u64]| {
            let looks = looks.iter().copied().collect();
            Growth { looks, turn: 0 }.child_bytes()
        };
        assert_eq!(bytes(&[350, 290, 290, 350, 340, 9_000, 290, 350, 290]), Some(350));
        assert_eq!((bytes(&[5]), bytes(&[5, 7])), (Some(5), Some(7)));
    }
}
