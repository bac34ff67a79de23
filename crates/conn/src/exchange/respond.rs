//! Waits for the response of a handler: gives it the permit and the credit that it asks for, tells
//! it when its client has disconnected, and guards against panics, which cost only their request a
//! 500.

use super::{Begun, credit::Lease, slot};
use crate::serving::Serving;
use crate::site::ConnectionSite;
use crate::transport::parked::Connection;
use evenkeel_message::{Departure, ReceivedHead, Request, Response, Status};
use evenkeel_message::{Pending, Served};
use evenkeel_scoreboard::SlotGuard;
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, ready};

/// A request that is with its handler.
pub(crate) struct Responding<'a, S, F> {
    pub(crate) serving: &'a Serving<S>,
    pub(crate) connection: &'a Connection,
    pub(crate) lease: &'a Lease,
    /// Whether the client has disconnected; if not, the task is woken when that may change.
    pub(crate) has_left: F,
    /// Sends the heads of interim responses.
    pub(crate) send_interim: &'a dyn Fn(&[u8]),
}

impl<S: ConnectionSite, F: Fn(&mut Context<'_>) -> bool> Responding<'_, S, F> {
    /// Waits for the response. `head` is that of the request, for the page after a panic. While the
    /// handler asks whether its client is still there, the connection is watched.
    pub(crate) async fn wait(
        &self,
        mut pending: Pending,
        head: ReceivedHead,
        begun: &mut Begun,
    ) -> (Box<Request>, Response) {
        let Begun { departure, slot, .. } = begun;
        let polled = poll_fn(|context| {
            loop {
                if departure.wants_permit() {
                    ready!(self.poll_permit(context, departure, slot));
                    departure.give_permit();
                }
                if departure.wants_credit() {
                    ready!(self.lease.poll_hold(context));
                    departure.give_credit();
                }
                let polled = guarded(&mut pending, context);
                let interim = departure.take_interim();
                if !interim.is_empty() {
                    (self.send_interim)(&interim);
                }
                match polled {
                    Ok(Poll::Pending) if departure.wants_permit() || departure.wants_credit() => {
                        continue;
                    }
                    Ok(Poll::Pending) if departure.has_returned_credit() => {
                        self.lease.release();
                        slot::set_aside(&self.serving.thread, slot);
                    }
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(made)) => return Poll::Ready(Ok(made)),
                    Err(panic) => return Poll::Ready(Err(panic)),
                }
                if !departure.is_awaited() || !(self.has_left)(context) {
                    return Poll::Pending;
                }
                departure.tell();
            }
        });
        match polled.await {
            Ok(made) => made,
            Err(panic) => Box::pin(self.page_after_panic(&*panic, head)).await,
        }
    }

    /// Ready once the request may begin expensive work, or its client has gone, of which the work
    /// itself takes account. While it waits, it holds neither credit nor slot.
    fn poll_permit(
        &self,
        context: &mut Context<'_>,
        departure: &Departure,
        slot: &mut Option<SlotGuard>,
    ) -> Poll<()> {
        if !departure.is_told() && self.lease.poll_permit(context).is_pending() {
            slot::set_aside(&self.serving.thread, slot);
            if !(self.has_left)(context) {
                return Poll::Pending;
            }
            departure.tell();
            self.lease.end_work();
        }
        self.lease.poll_hold(context)
    }

    /// The error page of a request whose handler has panicked.
    async fn page_after_panic(
        &self,
        panic: &(dyn Any + Send),
        head: ReceivedHead,
    ) -> (Box<Request>, Response) {
        let mut served = self.serving.after_panic(panic, head, self.connection);
        loop {
            match served {
                Served::Now(request, response) => return (request, response),
                Served::Later(mut page) => {
                    let page = poll_fn(|context| match guarded(&mut page, context) {
                        Ok(poll) => poll.map(Some),
                        Err(_) => Poll::Ready(None),
                    });
                    if let Some(made) = page.await {
                        return made;
                    }
                    let request = self.serving.request(self.connection);
                    let bare = Response::new(Status::INTERNAL_SERVER_ERROR);
                    served = Served::Now(request, bare);
                }
            }
        }
    }
}

fn guarded(
    pending: &mut Pending,
    context: &mut Context<'_>,
) -> std::thread::Result<Poll<(Box<Request>, Response)>> {
    catch_unwind(AssertUnwindSafe(|| pending.as_mut().poll(context)))
}
