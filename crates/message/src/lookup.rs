//! Look-ups that the access rules of a request wait for: host names, files of groups, the owner of
//! a file. A rule is evaluated without waiting. A rule that lacks a fact leaves a [`Lookup`] open
//! and returns [`Undecided`]; the pipeline performs the look-up, and evaluates the rules again.

use crate::HostNames;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

/// The most look-ups of one evaluation. The names of `Require forward-dns` may come from an
/// expression whose value changes each time, which would have no end.
const MOST: usize = 64;

/// A rule cannot be decided: a look-up is open or has failed. It must not count as met, nor as not
/// met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided;

/// The result of a job. Its type is known to the rule that has left the job open.
pub type Finding = Arc<dyn Any + Send + Sync>;

/// What has to be looked up.
#[derive(Debug)]
pub enum Lookup {
    /// Host names, which become part of the request's [`HostNames`].
    Names(WantedNames),
    /// Work that blocks.
    Job(Job),
}

/// Work that blocks, for the blocking pool.
pub struct Job {
    /// What identifies the result in this evaluation.
    pub key: Box<[u8]>,
    /// What the work is, for the error log.
    pub what: String,
    /// The work.
    pub work: Box<dyn FnOnce() -> Finding + Send>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("what", &self.what).finish_non_exhaustive()
    }
}

/// The host names that must be looked up for a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WantedNames {
    /// The client's name (HostnameLookups On).
    pub client: bool,
    /// Whether the client's name leads back to the client (Require host, Allow from).
    pub verify: bool,
    /// The client's name only if it leads back to the client (HostnameLookups Double).
    pub only_verified: bool,
    /// The addresses of these names.
    pub names: Vec<Box<str>>,
}

impl WantedNames {
    /// Whether there is nothing to look up.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        let Self { client, verify, only_verified, names } = self;
        !(client | verify | only_verified) && names.is_empty()
    }

    /// What of it is not known yet.
    #[must_use]
    pub fn unless_known(mut self, known: &HostNames) -> Self {
        self.client &= !known.has_asked_client;
        self.verify &= !known.has_verified;
        self.only_verified &= !known.has_verified;
        self.names.retain(|name| known.addresses.iter().all(|(other, _)| other != name));
        self
    }
}

/// The look-ups of the evaluation at hand, and the results of its jobs.
#[derive(Debug, Default)]
pub struct Lookups {
    /// The results of jobs; `None` if a job had no result.
    found: Vec<(Box<[u8]>, Option<Finding>)>,
    open: RefCell<Option<Lookup>>,
    /// The number of look-ups that were left open.
    count: Cell<usize>,
}

impl Lookups {
    /// The result of a job that was open.
    ///
    /// # Errors
    /// The job had no result.
    pub fn found(&self, key: &[u8]) -> Result<Option<&Finding>, Undecided> {
        match self.found.iter().find(|(known, _)| **known == *key) {
            None => Ok(None),
            Some((_, found)) => found.as_ref().map(Some).ok_or(Undecided),
        }
    }

    /// Leaves a look-up open, unless there were too many.
    pub fn leave_open(&self, lookup: Lookup) -> Undecided {
        let count = self.count.get().saturating_add(1);
        self.count.set(count);
        if count <= MOST {
            self.open.replace(Some(lookup));
        }
        Undecided
    }

    /// The look-up that was left open last.
    pub fn take_open(&mut self) -> Option<Lookup> {
        self.open.get_mut().take()
    }

    /// Notes the result of a job; `None` if it has none.
    pub fn note(&mut self, key: Box<[u8]>, found: Option<Finding>) {
        self.found.push((key, found));
    }

    /// Whether a look-up had no result, or there were too many.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.count.get() > MOST || self.found.iter().any(|(_, found)| found.is_none())
    }

    /// Forgets all look-ups.
    pub fn clear(&mut self) {
        self.found.clear();
        *self.open.get_mut() = None;
        self.count.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Lookup {
        Lookup::Job(Job { key: b"k"[..].into(), what: "x".into(), work: Box::new(|| Arc::new(1)) })
    }

    #[test]
    fn a_job_is_found_by_its_key_once_it_is_done() {
        let mut lookups = Lookups::default();
        assert!(matches!(lookups.found(b"k"), Ok(None)));
        assert_eq!(lookups.leave_open(job()), Undecided);
        let Some(Lookup::Job(open)) = lookups.take_open() else { panic!("no job") };
        lookups.note(open.key, Some((open.work)()));
        let found = lookups.found(b"k").unwrap().unwrap();
        assert_eq!(found.downcast_ref::<i32>(), Some(&1));
        assert!(lookups.take_open().is_none() && !lookups.has_failed());
        lookups.note(b"l"[..].into(), None);
        assert!(lookups.found(b"l").is_err() && lookups.has_failed());
        lookups.clear();
        assert!(!lookups.has_failed() && matches!(lookups.found(b"k"), Ok(None)));
    }

    #[test]
    fn an_evaluation_ends_that_asks_for_something_new_each_time() {
        let mut lookups = Lookups::default();
        for _ in 0..MOST {
            lookups.leave_open(job());
            assert!(lookups.take_open().is_some());
        }
        lookups.leave_open(job());
        assert!(lookups.take_open().is_none() && lookups.has_failed());
    }

    #[test]
    fn what_is_known_is_not_asked_for_again() {
        let all = || WantedNames {
            client: true,
            verify: true,
            only_verified: true,
            names: vec!["a.test".into(), "b.test".into()],
        };
        assert_eq!(all().unless_known(&HostNames::default()), all());
        let addresses = vec![("a.test".into(), Vec::new())];
        let known = HostNames { has_asked_client: true, addresses, ..HostNames::default() };
        let rest = all().unless_known(&known);
        assert_eq!(rest, WantedNames { client: false, names: vec!["b.test".into()], ..all() });
        // What was asked for in vain is known to be unknown.
        assert_eq!(known.addresses_of("a.test"), None);
        let known = HostNames { has_verified: true, ..known };
        let rest = WantedNames { names: Vec::new(), ..all() }.unless_known(&known);
        assert!(rest.is_nothing());
    }
}
