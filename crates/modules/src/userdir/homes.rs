//! A cache of home directories, one per thread. Lookups run in the blocking pool, because the
//! password database may be on the network.

use evenkeel_message::MayWait;
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::identity;
use std::cell::RefCell;
use std::collections::HashMap;

/// The time for which an entry is cached, in microseconds.
const KEPT_US: u64 = 60_000_000;

/// The maximum number of cached names. Clients choose the names.
const MOST: usize = 256;

/// Home directories by user name.
#[derive(Default)]
pub struct Homes(RefCell<HashMap<Box<str>, Known>>);

/// A cache entry: the home directory, or `None` if the user does not exist, and the time of the
/// lookup.
struct Known {
    home: Option<Box<[u8]>>,
    at_us: u64,
}

impl Homes {
    /// Returns the cached home directory of a user. Returns `None` if the cache has no current
    /// entry, and `Some(None)` if the user does not exist.
    #[must_use]
    pub fn known(&self, user: &str, now_us: u64) -> Option<Option<Box<[u8]>>> {
        let homes = self.0.borrow();
        let known = homes.get(user)?;
        (now_us.saturating_sub(known.at_us) < KEPT_US).then(|| known.home.clone())
    }

    /// Looks a user up and caches the result. Returns `None` without caching it if the lookup fails
    /// or no thread is available.
    pub async fn look_up(
        &self,
        _: &MayWait,
        pool: &BlockingPool,
        user: String,
        now_us: u64,
    ) -> Option<Box<[u8]>> {
        let name = user.clone();
        let found = pool.spawn(move || identity::user_named(&name)).await;
        let home = match found {
            Some(Ok(found)) => found.map(|user| Box::from(user.home.into_bytes())),
            Some(Err(_)) | None => return None,
        };
        self.keep(user.into(), Known { home: home.clone(), at_us: now_us });
        home
    }

    fn keep(&self, user: Box<str>, known: Known) {
        let mut homes = self.0.borrow_mut();
        if homes.len() >= MOST {
            homes.clear();
        }
        homes.insert(user, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_counts_for_a_minute_and_names_are_bounded() {
        let homes = Homes::default();
        let (pool, may_wait) = (BlockingPool::new(1), MayWait::in_task());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let root = runtime.block_on(homes.look_up(&may_wait, &pool, "root".into(), 5)).unwrap();
        assert!(root.starts_with(b"/"));
        assert_eq!(homes.known("root", 5 + KEPT_US - 1), Some(Some(root)));
        assert_eq!(homes.known("root", 5 + KEPT_US), None);
        assert_eq!(
            runtime.block_on(homes.look_up(&may_wait, &pool, "no such user".into(), 5)),
            None
        );
        assert_eq!(homes.known("no such user", 6), Some(None));
        for number in 0..2 * MOST {
            homes.keep(number.to_string().into(), Known { home: None, at_us: 0 });
        }
        assert!(homes.0.borrow().len() <= MOST);
    }
}
