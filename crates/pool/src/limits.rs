//! The bounds of a pool, as the directives give them, and their shares where the listeners are
//! split into buckets.

/// The bounds that a pool keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Workers of a child: ThreadsPerChild, 1 in prefork.
    pub threads: usize,
    /// MinSpareThreads or MinSpareServers: workers that stand ready beyond the demand.
    pub min_spare: usize,
    /// MaxSpareThreads or MaxSpareServers: workers beyond the demand's peak that are put up with.
    pub max_spare: usize,
    /// The most children that serve: MaxRequestWorkers by `threads`.
    pub children: usize,
    /// The most children that serve or are parked: ServerLimit.
    pub slots: usize,
}

impl Limits {
    /// So many idle workers above the peak are too many. Between this and `min_spare` there is room
    /// for two children, so that none is parked that the next request would call back.
    #[must_use]
    pub fn high(&self) -> usize {
        self.max_spare.max(self.min_spare.saturating_add(self.threads.saturating_mul(2)))
    }
}

/// Divides a number among buckets: each has its even share, and what remains goes one by one to the
/// neediest, the first of equals.
#[must_use]
pub fn divide(total: usize, needs: &[usize]) -> Vec<usize> {
    let buckets = needs.len().max(1);
    let mut shares = vec![total / buckets; needs.len()];
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|&bucket| std::cmp::Reverse(needs.get(bucket)));
    for bucket in order.into_iter().take(total % buckets) {
        if let Some(share) = shares.get_mut(bucket) {
            *share += 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_neediest_buckets_have_what_remains() {
        assert_eq!(divide(11, &[0, 5, 3, 5]), [2, 3, 3, 3]);
        assert_eq!(divide(9, &[0, 5, 3, 5]), [2, 3, 2, 2]);
        assert_eq!(divide(2, &[1, 2, 3]), [0, 1, 1]);
        assert_eq!(divide(7, &[]), [0; 0]);
    }

    #[test]
    fn between_starting_and_parking_two_children_fit() {
        let mut limits =
            Limits { threads: 25, min_spare: 75, max_spare: 101, children: 16, slots: 16 };
        assert_eq!(limits.high(), 125);
        limits.max_spare = 250;
        assert_eq!(limits.high(), 250);
    }
}
