//! The credit and the permit of a request. A request that waits for its client holds neither, and
//! one that waits for a permit holds no credit.

use crate::thread::Workplace;
use evenkeel_scoreboard::{Credit, Gate, PermitWait, SharedPermit, Waiting, WorkerPermits};
use evenkeel_sys::bulkhead::{self, Bulkhead, Permit};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The credit of a request, given back while it waits for the client, and its permit for expensive
/// work. Nobody waits for a permit with a credit in hand.
pub(crate) struct Lease {
    gate: Arc<Gate>,
    bulkhead: Arc<Bulkhead>,
    /// The permits where a connection holds its thread.
    permits: Option<Arc<WorkerPermits>>,
    credit: RefCell<Option<Credit>>,
    waiting: RefCell<Option<Waiting>>,
    permit: RefCell<Option<HeldPermit>>,
    in_line: RefCell<Option<bulkhead::Acquire>>,
    waiting_for_permit: RefCell<Option<PermitWait>>,
}

/// A permit, held for its drop.
#[expect(dead_code, reason = "held for its drop")]
enum HeldPermit {
    OfChild(Permit),
    OfServer(SharedPermit),
}

impl Lease {
    pub(crate) fn new(place: &Workplace, credit: Option<Credit>) -> Self {
        Self {
            gate: Arc::clone(&place.gate),
            bulkhead: Arc::clone(&place.bulkhead),
            permits: place.permits.clone(),
            credit: RefCell::new(credit),
            waiting: RefCell::default(),
            permit: RefCell::default(),
            in_line: RefCell::default(),
            waiting_for_permit: RefCell::default(),
        }
    }

    /// Gives the credit back, and the permit.
    pub(crate) fn release(&self) {
        self.end_work();
        self.give_back();
    }

    /// Gives the permit back, or leaves the line for it.
    pub(crate) fn end_work(&self) {
        drop(self.permit.take());
        drop(self.in_line.take());
        drop(self.waiting_for_permit.take());
    }

    fn give_back(&self) {
        drop(self.credit.take());
        drop(self.waiting.take());
    }

    /// Ready once the credit is there (again).
    pub(crate) fn poll_hold(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.credit.borrow().is_some() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        let wait = waiting.get_or_insert_with(|| self.gate.wait());
        let credit = ready!(Pin::new(wait).poll(context));
        *waiting = None;
        *self.credit.borrow_mut() = Some(credit);
        Poll::Ready(())
    }

    /// Whether the credit is there.
    pub(crate) fn is_held(&self) -> bool {
        self.credit.borrow().is_some()
    }

    /// Takes the credit out.
    pub(crate) fn take(&self) -> Option<Credit> {
        self.credit.take()
    }

    /// Ready once there is a permit for expensive work. The credit is given back meanwhile.
    pub(crate) fn poll_permit(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.permit.borrow().is_some() {
            return Poll::Ready(());
        }
        let acquired = match &self.permits {
            // The worker polls the request again when a permit may be free.
            Some(permits) => match permits.take(&mut self.waiting_for_permit.borrow_mut()) {
                Some(permit) => Poll::Ready(Some(HeldPermit::OfServer(permit))),
                None => Poll::Pending,
            },
            None => self.poll_own_permit(context).map(|permit| permit.map(HeldPermit::OfChild)),
        };
        match acquired {
            Poll::Ready(permit) => {
                *self.permit.borrow_mut() = permit;
                Poll::Ready(())
            }
            Poll::Pending => {
                self.give_back();
                Poll::Pending
            }
        }
    }

    /// Ready once there is a permit of the child.
    fn poll_own_permit(&self, context: &mut Context<'_>) -> Poll<Option<Permit>> {
        let mut in_line = self.in_line.borrow_mut();
        let wait = in_line.get_or_insert_with(|| self.bulkhead.acquire());
        let permit = ready!(Pin::new(wait).poll(context));
        *in_line = None;
        Poll::Ready(permit)
    }

    /// Ready once there are both.
    pub(crate) fn poll_work(&self, context: &mut Context<'_>) -> Poll<()> {
        ready!(self.poll_permit(context));
        self.poll_hold(context)
    }
}
