//! The bounds of a pool, which follow from the directives, and their shares if listeners are
//! divided into buckets.

/// The bounds of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Workers of a child: ThreadsPerChild, 1 in prefork.
    pub threads: usize,
    /// MinSpareThreads or MinSpareServers: idle workers beyond the demand.
    pub min_spare: usize,
    /// MaxSpareThreads or MaxSpareServers: idle workers beyond the peak of the demand that are
    /// kept.
    pub max_spare: usize,
    /// The most children that serve: MaxRequestWorkers divided by `threads`.
    pub children: usize,
    /// The most children that serve or are parked: ServerLimit.
    pub slots: usize,
}

impl Limits {
    /// From so many idle workers above the peak on, children are parked. It is at least two
    /// children more than `min_spare`, so that no child is parked that the next request would need.
    #[must_use]
    pub fn high(&self) -> usize {
        self.max_spare.max(self.min_spare.saturating_add(self.threads.saturating_mul(2)))
    }

    /// A bucket's share of the bounds, if listeners are divided into `needs.len()` buckets; each
    /// need is the last demand there. Every bucket gets an even share, and enough for two children.
    /// The remainder goes to those with the largest need.
    #[must_use]
    pub fn share(&self, needs: &[usize], bucket: usize) -> Self {
        if needs.len() < 2 {
            return *self;
        }
        let of = |total| divide(total, needs).get(bucket).copied().unwrap_or(0);
        Self {
            threads: self.threads,
            min_spare: of(self.min_spare).max(self.threads.saturating_add(1)),
            max_spare: of(self.max_spare),
            children: of(self.children).max(2),
            slots: of(self.slots).max(2),
        }
    }
}

/// Divides a number among buckets: each gets an even share, and the remainder goes one by one to
/// those with the largest need, the first of equals.
fn divide(total: usize, needs: &[usize]) -> Vec<usize> {
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
    fn buckets_share_the_bounds_and_have_two_children_each() {
        let all = Limits { threads: 25, min_spare: 75, max_spare: 250, children: 17, slots: 18 };
        assert_eq!(all.share(&[5], 0), all);
        let needs = [0, 9, 3, 0];
        let shares: Vec<Limits> = (0..4).map(|bucket| all.share(&needs, bucket)).collect();
        assert_eq!(shares.iter().map(|limits| limits.children).collect::<Vec<_>>(), [4, 5, 4, 4]);
        assert_eq!(shares.iter().map(|limits| limits.slots).collect::<Vec<_>>(), [4, 5, 5, 4]);
        assert!(shares.iter().all(|limits| limits.min_spare == 26));
        let few = Limits { threads: 1, min_spare: 1, max_spare: 2, children: 8, slots: 8 };
        let share = few.share(&needs, 0);
        assert_eq!((share.min_spare, share.children, share.high()), (2, 2, 4));
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
