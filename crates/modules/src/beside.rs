//! Work that a request has done beside its serving thread: it goes to the crew of the process in
//! its turn, and its result comes back, unless nobody would see the answer any more.

use evenkeel_message::Departure;
use evenkeel_sys::crew::{Crew, Labour, Pulse};
use evenkeel_sys::memory;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Entries of a folder up to which work is done even where the client has ended its side: it may
/// be one that still reads, which a client that has gone cannot be told from.
pub const SMALL: usize = 1000;

/// Has memory given back that large requests took: the allocator would keep what is freed when they
/// have been answered.
#[derive(Debug, Default)]
pub struct Thrift(Cell<u8>);

impl Thrift {
    /// Notes that a request takes much memory. Its page may still be on its way at the next tick,
    /// hence the second.
    pub fn note(&self) {
        self.0.set(2);
    }

    /// Whether a tick is wanted, though nothing is served until then.
    #[must_use]
    pub fn awaits_tick(&self) -> bool {
        self.0.get() > 0
    }

    /// Comes about once a second; what is to be done is not waited for.
    pub fn tick(&self, crew: &Crew) {
        if let Some(left) = self.0.get().checked_sub(1) {
            self.0.set(left);
            crew.begin(memory::give_back_freed).detach();
        }
    }
}

/// Where a request has work done.
pub struct Beside {
    /// The threads.
    pub crew: Arc<Crew>,
    /// Where it is told that the client has gone.
    pub departure: Rc<Departure>,
}

impl Beside {
    /// Has work done that `what` names, once it is the request's turn: so many have such work at a
    /// time as keep the threads busy, and the others hold no credit meanwhile. It gives none where
    /// its pulse says that nobody wants it; none comes of it too where no thread can be had, where
    /// it does not stir, and where the client has gone before its turn while others stood in line
    /// too. A client that has merely ended its side counts as gone, so that a line which ends with
    /// it is waited for.
    pub async fn perform<T: Send + 'static>(
        &self,
        what: String,
        work: impl FnOnce(&Pulse) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        poll_fn(|_| self.departure.poll_permit()).await;
        let mut labour = self.crew.begin_long(what, work);
        let is_left = |labour: &mut Labour<Option<T>>| {
            if !self.departure.is_told() {
                return false;
            }
            labour.stop();
            self.crew.in_line() > 1 && labour.leave()
        };
        let done = poll_fn(|context| match Pin::new(&mut labour).poll(context) {
            Poll::Pending if is_left(&mut labour) => Poll::Ready(None),
            done => done,
        });
        done.await.flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    #[test]
    fn memory_of_large_requests_is_given_back_in_two_ticks_which_it_waits_for() {
        let (thrift, crew) = (Thrift::default(), Crew::new(1));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let tick = || {
            thrift.tick(&crew);
            // One thread does one thing after another.
            runtime.block_on(crew.begin(|| ()));
            evenkeel_sys::bounds::own_resident_bytes().unwrap()
        };
        assert!(!thrift.awaits_tick());
        for _ in 0..2 {
            thrift.note();
            for _ in 0..2 {
                let mut pieces: Vec<_> = (0..4_096).map(|_| vec![1_u8; 16 << 10]).collect();
                // Behind what is freed something stays, as in a server.
                let last = pieces.pop();
                drop(pieces);
                let before = evenkeel_sys::bounds::own_resident_bytes().unwrap();
                assert!(thrift.awaits_tick());
                let now = tick();
                if cfg!(target_env = "gnu") {
                    assert!(now + (16 << 20) < before, "{now} of {before}");
                }
                drop(last);
            }
            assert!(!thrift.awaits_tick());
        }
    }

    #[test]
    fn what_was_begun_learns_that_its_client_has_gone() {
        let beside = Beside { crew: Arc::new(Crew::new(1)), departure: Rc::default() };
        let (begun, is_begun) = mpsc::channel();
        let endless = move |pulse: &Pulse| {
            begun.send(()).unwrap();
            while pulse.beat() {
                std::thread::yield_now();
            }
            None::<()>
        };
        let mut performed = Box::pin(beside.perform("it".into(), endless));
        let mut context = Context::from_waker(Waker::noop());
        assert!(performed.as_mut().poll(&mut context).is_pending());
        is_begun.recv().unwrap();
        assert!(beside.departure.is_awaited());
        beside.departure.tell();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(performed), None);
        assert_eq!(runtime.block_on(beside.crew.begin(|| 1)), Some(1));
    }
}
