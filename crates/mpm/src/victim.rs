//! Whom the kernel ends where memory runs out: a child, in whose place the parent starts another.
//! By size alone it would often be the parent, which has the whole configuration in memory, and
//! with the parent ends the server. What the parent occupies goes in, the children's
//! `oom_score_adj` comes out (proc_pid_oom_score_adj(5)): it counts in thousandths of the memory
//! there is.

use evenkeel_sys::bounds::{self, Groups};
use evenkeel_sys::process;

/// The kernel's largest.
const MOST: i32 = 1000;

/// Whom the kernel never ends.
const EXEMPT: i32 = -1000;

/// Children come before what is larger by less than this part of the memory. The kernel counts the
/// same number by all of the memory where the machine runs out and not the server's control group:
/// others that need too much of it should still be found.
const LARGEST_LEAD: u64 = 200;

/// The adjustment of children; none where the kernel does not tell enough.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Victims {
    adjustment: Option<i32>,
}

impl Victims {
    /// To be called in the parent, when it has read a configuration.
    pub(crate) fn of_this_process() -> Self {
        let found = || {
            let memory = Groups::find().memory()?;
            let own = process::memory_killer_adjustment()?;
            Some(adjusted(own, bounds::own_resident_bytes()?, memory.limit))
        };
        Self { adjustment: found() }
    }

    /// To be called in a child, while it sees /proc. Where that cannot be written to, the kernel
    /// chooses by size.
    pub(crate) fn join(self) {
        if let Some(adjustment) = self.adjustment {
            let _ = process::adjust_memory_killer(adjustment);
        }
    }
}

/// Beside a parent with `own` that occupies so much of the memory: twice that, for it grows. Where
/// the administrator exempts the server, its children are.
fn adjusted(own: i32, resident: u64, memory: u64) -> i32 {
    if own <= EXEMPT {
        return own;
    }
    let lead = resident.saturating_mul(2 * 1000).div_ceil(memory.max(1)).clamp(1, LARGEST_LEAD);
    own.saturating_add(i32::try_from(lead).unwrap_or(MOST)).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_comes_before_its_parent_by_what_the_parent_occupies() {
        let mib = |count: u64| count << 20;
        assert_eq!(adjusted(0, mib(7), mib(96)), 146);
        assert_eq!(adjusted(0, mib(7), mib(24 << 10)), 1);
        assert_eq!(adjusted(-900, mib(7), mib(96)), -754);
        assert_eq!(adjusted(990, mib(7), mib(96)), 1000);
        assert_eq!(adjusted(0, mib(90), mib(96)), 200);
        assert_eq!(adjusted(0, mib(7), 0), 200);
        assert_eq!(
            (adjusted(-1000, mib(7), mib(96)), adjusted(-999, mib(7), mib(96))),
            (-1000, -853)
        );
    }
}
