//! The home folders of users, as a thread knows them: looked up in the blocking pool, since the
//! password database may be on the network, and kept for a while.

use evenkeel_message::MayWait;
use evenkeel_sys::blocking_pool::BlockingPool;
use evenkeel_sys::identity;
use std::cell::RefCell;
use std::collections::HashMap;

/// How long an answer counts, in microseconds.
const KEPT_US: u64 = 60_000_000;

/// The most names that are kept: clients may ask for any name.
const MOST: usize = 256;

/// Home folders by the names of their users.
#[derive(Default)]
pub struct Homes(RefCell<HashMap<Box<str>, Known>>);

/// The folder of a user, none where there is no such user, and when that was found out.
struct Known {
    home: Option<Box<[u8]>>,
    at_us: u64,
}

impl Homes {
    /// What is known of a user at that time; none where nothing is.
    #[must_use]
    pub fn known(&self, user: &str, now_us: u64) -> Option<Option<Box<[u8]>>> {
        let homes = self.0.borrow();
        let known = homes.get(user)?;
        (now_us.saturating_sub(known.at_us) < KEPT_US).then(|| known.home.clone())
    }

    /// Looks a user up. Where no thread can be had, the user has no home for now.
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
