//! The local addresses of connections, numbered, so that a parked connection keeps a number of 16
//! bits. All threads of a child share one list, and each has a copy.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The local addresses of connections by index: one list for the child, a copy for each thread.
pub struct Addresses {
    shared: Arc<Mutex<Vec<SocketAddr>>>,
    known: RefCell<Vec<SocketAddr>>,
}

impl Addresses {
    /// A thread's view of the child's list.
    #[must_use]
    pub fn new(shared: Arc<Mutex<Vec<SocketAddr>>>) -> Self {
        Self { shared, known: RefCell::new(Vec::new()) }
    }

    /// The address of an index.
    pub(crate) fn at(&self, index: u16) -> Option<SocketAddr> {
        let index = usize::from(index);
        if let Some(address) = self.known.borrow().get(index) {
            return Some(*address);
        }
        self.learn();
        self.known.borrow().get(index).copied()
    }

    /// The index of an address; none where there are more than an index can tell apart.
    pub(crate) fn index(&self, address: SocketAddr) -> Option<u16> {
        let find = |list: &[SocketAddr]| list.iter().position(|known| *known == address);
        if let Some(index) = find(&self.known.borrow()) {
            return u16::try_from(index).ok();
        }
        {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            if find(&shared).is_none() && shared.len() <= usize::from(u16::MAX) {
                shared.push(address);
            }
        }
        self.learn();
        find(&self.known.borrow()).and_then(|index| u16::try_from(index).ok())
    }

    fn learn(&self) {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.known.borrow_mut().clone_from(&shared);
    }
}
