//! The places of requests at applications. A serving thread lets each application have only a part
//! of its requests in progress, so that one that hangs leaves credits for files and for other
//! applications. Requests beyond that wait in the order in which they came and hold no credit.

use evenkeel_message::{Address, Departure, MayWait};
use foldhash::fast::RandomState;
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The most applications that have places of their own. The configuration names them, but an
/// .htaccess file may name any number.
const MOST_APPLICATIONS: usize = 1024;

/// The places of one serving thread.
#[derive(Debug)]
pub struct Places {
    each: usize,
    applications: RefCell<HashMap<Address, Arc<Semaphore>, RandomState>>,
}

/// A place at an application. Dropping it frees the place.
pub struct Place {
    _permit: Option<OwnedSemaphorePermit>,
    /// What is dropped with it.
    _guard: Option<Box<dyn Any>>,
}

impl Place {
    /// The place, which drops `guard` when it is free again.
    #[must_use]
    pub fn with(self, guard: impl Any) -> Self {
        Self { _guard: Some(Box::new(guard)), ..self }
    }
}

/// A place that all programs of one client's request share. The output of a program may be a page
/// that includes the output of another program. If each of them took a place, the page could wait
/// for a place that only its own end would free.
#[derive(Default)]
pub struct SharedPlace(OnceCell<Place>);

impl SharedPlace {
    /// Takes the place if no program of the request has taken it.
    ///
    /// # Errors
    /// Those of [`Places::enter`].
    pub async fn enter(
        &self,
        places: &Places,
        may_wait: &MayWait,
        address: &Address,
        patience: Duration,
        departure: &Departure,
    ) -> Result<(), NoPlace> {
        let enter = || places.enter(may_wait, address, patience, departure);
        self.0.get_or_try_init(enter).await.map(|_| ())
    }
}

/// The reason for which a request has got no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// No place became free in time.
    Late,
    /// The client has disconnected.
    ClientGone,
}

impl Places {
    /// Places of a thread that works on `credits` requests at a time: three quarters of them for
    /// each application, and at least one.
    #[must_use]
    pub fn new(credits: usize) -> Rc<Self> {
        let each = (credits.saturating_mul(3) / 4).max(1);
        Rc::new(Self { each, applications: RefCell::default() })
    }

    /// Takes a place at the application with this address. While the request waits for a place, it
    /// holds no credit.
    ///
    /// # Errors
    /// No place became free within `patience`, or the client has disconnected.
    pub async fn enter(
        &self,
        _: &MayWait,
        address: &Address,
        patience: Duration,
        departure: &Departure,
    ) -> Result<Place, NoPlace> {
        let Some(places) = self.places_of(address) else {
            return Ok(Place { _permit: None, _guard: None });
        };
        if let Ok(permit) = Arc::clone(&places).try_acquire_owned() {
            return Ok(Place { _permit: Some(permit), _guard: None });
        }
        departure.return_credit();
        let mut waiting = pin!(timeout(patience, places.acquire_owned()));
        let waited = poll_fn(|context| match waiting.as_mut().poll(context) {
            Poll::Pending if departure.is_told() => Poll::Ready(Err(NoPlace::ClientGone)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(permit)) => {
                Poll::Ready(Ok(Place { _permit: permit.ok(), _guard: None }))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(NoPlace::Late)),
        });
        let waited = waited.await;
        poll_fn(|_| departure.poll_credit()).await;
        waited
    }

    fn places_of(&self, address: &Address) -> Option<Arc<Semaphore>> {
        let mut applications = self.applications.borrow_mut();
        if let Some(places) = applications.get(address) {
            return Some(Arc::clone(places));
        }
        if applications.len() >= MOST_APPLICATIONS {
            return None;
        }
        let places = Arc::new(Semaphore::new(self.each));
        applications.insert(address.clone(), Arc::clone(&places));
        Some(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    #[test]
    fn requests_beyond_the_places_wait_without_a_credit() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        let (places, hour) = (Places::new(2), Duration::from_secs(3600));
        let address = Address::Unix("/run/a.sock".into());
        let (first, second) = (Departure::default(), Departure::default());
        let may_wait = MayWait::in_task();
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(place)) =
            pin!(places.enter(&may_wait, &address, hour, &first)).poll(&mut context)
        else {
            panic!("a place is free")
        };
        let mut waiting = pin!(places.enter(&may_wait, &address, hour, &second));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        assert!(second.has_returned_credit() && !first.has_returned_credit());
        // Another application has places of its own.
        let other = Address::Unix("/run/b.sock".into());
        assert!(pin!(places.enter(&may_wait, &other, hour, &first)).poll(&mut context).is_ready());
        drop(place);
        assert!(waiting.as_mut().poll(&mut context).is_pending() && second.wants_credit());
        second.give_credit();
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_client_that_leaves_gives_up_its_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        let (places, hour) = (Places::new(1), Duration::from_secs(3600));
        let address = Address::Unix("/run/a.sock".into());
        let (departure, may_wait) = (Departure::default(), MayWait::in_task());
        let mut context = Context::from_waker(Waker::noop());
        let held = pin!(places.enter(&may_wait, &address, hour, &departure)).poll(&mut context);
        assert!(matches!(held, Poll::Ready(Ok(_))));
        let mut waiting = pin!(places.enter(&may_wait, &address, hour, &departure));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        departure.tell();
        assert!(waiting.as_mut().poll(&mut context).is_pending() && departure.wants_credit());
        departure.give_credit();
        let Poll::Ready(Err(why)) = waiting.as_mut().poll(&mut context) else { panic!("it left") };
        assert_eq!(why, NoPlace::ClientGone);
    }
}
