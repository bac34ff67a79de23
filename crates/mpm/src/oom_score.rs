//! The `oom_score_adj` of children (proc_pid_oom_score_adj(5)), so that the kernel kills a child
//! rather than the parent when memory runs out. By size alone it would often kill the parent, which
//! holds the whole configuration, and with it the server; a child is replaced. The unit is a
//! thousandth of the memory.

use evenkeel_sys::process;
use evenkeel_sys::resources::{self, Groups};

/// The largest adjustment.
const MAX_ADJUSTMENT: i32 = 1000;

/// The adjustment with which the kernel never kills a process.
const EXEMPT: i32 = -1000;

/// Children are preferred to processes that are larger by less than this part of the memory. If the
/// machine runs out of memory rather than the server's control group, the kernel counts the same
/// number in parts of all the memory: other processes that use too much of it should still be
/// found.
const MAX_LEAD: u64 = 200;

/// The adjustment for children; none if the kernel does not tell enough.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OomScore {
    adjustment: Option<i32>,
}

impl OomScore {
    /// Called in the parent, once it has read a configuration.
    pub(crate) fn for_children() -> Self {
        let found = || {
            let memory = Groups::find().memory()?;
            let own = process::oom_score_adjustment()?;
            Some(child_adjustment(own, resources::own_resident_bytes()?, memory.limit))
        };
        Self { adjustment: found() }
    }

    /// Called in a child, while it sees /proc. If the file cannot be written, the kernel goes by
    /// size.
    pub(crate) fn apply(self) {
        if let Some(adjustment) = self.adjustment {
            let _ = process::set_oom_score_adjustment(adjustment);
        }
    }
}

/// The adjustment of a child, for a parent with adjustment `own` and `resident` of `memory` bytes:
/// ahead of twice its parent's size, because the parent grows. If the administrator exempts the
/// server, its children are exempt too.
fn child_adjustment(own: i32, resident: u64, memory: u64) -> i32 {
    if own <= EXEMPT {
        return own;
    }
    let lead = resident.saturating_mul(2 * 1000).div_ceil(memory.max(1)).clamp(1, MAX_LEAD);
    own.saturating_add(i32::try_from(lead).unwrap_or(MAX_ADJUSTMENT)).min(MAX_ADJUSTMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_killed_before_a_parent_of_its_size() {
        let mib = |count: u64| count << 20;
        assert_eq!(child_adjustment(0, mib(7), mib(96)), 146);
        assert_eq!(child_adjustment(0, mib(7), mib(24 << 10)), 1);
        assert_eq!(child_adjustment(-900, mib(7), mib(96)), -754);
        assert_eq!(child_adjustment(990, mib(7), mib(96)), 1000);
        assert_eq!(child_adjustment(0, mib(90), mib(96)), 200);
        assert_eq!(child_adjustment(0, mib(7), 0), 200);
        assert_eq!(
            (child_adjustment(-1000, mib(7), mib(96)), child_adjustment(-999, mib(7), mib(96))),
            (-1000, -853)
        );
    }
}
