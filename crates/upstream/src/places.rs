//! The places of requests at applications. A serving thread lets each application have only a part
//! of its credits, so that one that hangs leaves credits for files and for other applications.
//! Requests beyond that give their credit back. They go on to an application that has a queue of
//! its own, which all serving threads share, up to a bound. Otherwise they wait here, in the order
//! in which they came.

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

/// The longest wait of a request for a place with a credit at an application that has a queue. Most
/// scripts that only use CPU time answer sooner. A script that waits for a database takes longer,
/// so the wait delays its request little.
const BRIEFLY: Duration = Duration::from_millis(5);

/// The places of one serving thread.
#[derive(Debug)]
pub struct Places {
    each: usize,
    most: usize,
    applications: RefCell<HashMap<Address, Application, RandomState>>,
}

/// The places at an application.
#[derive(Clone, Debug)]
struct Application {
    /// Permits to wait for the application with a credit.
    credits: Arc<Semaphore>,
    /// Permits to be at the application, queued or in progress. Applications without a queue do not
    /// use them.
    queue: Arc<Semaphore>,
}

/// A place at an application. Dropping it frees the place.
#[derive(Default)]
pub struct Place {
    _permit: Option<OwnedSemaphorePermit>,
    /// The permit to keep the credit, at an application with a queue.
    _credit: Option<OwnedSemaphorePermit>,
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
    /// each application, and at least one. As many as `queued` requests may be at an application
    /// that has a queue of its own.
    #[must_use]
    pub fn new(credits: usize, queued: usize) -> Rc<Self> {
        let each = (credits.saturating_mul(3) / 4).max(1);
        Rc::new(Self { each, most: queued.max(each), applications: RefCell::default() })
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
        let Some(Application { credits, .. }) = self.places_of(address) else {
            return Ok(Place::default());
        };
        let permit = acquire(credits, patience, departure).await;
        poll_fn(|_| departure.poll_credit()).await;
        Ok(Place { _permit: Some(permit?), ..Place::default() })
    }

    /// Takes a place at an application that has a queue of its own. If three quarters of the
    /// thread's credits are at the application, the request waits for one of these places for
    /// [`BRIEFLY`]. An application that answers sooner has only as many requests at a time as the
    /// thread has places, so its processes do not displace each other. Thereafter the request goes
    /// to the application without a credit. The caller takes one with [`Departure::poll_credit`]
    /// when the application has answered.
    ///
    /// # Errors
    /// Those of [`Places::enter`]. The request has its credit then.
    pub async fn enter_queue(
        &self,
        _: &MayWait,
        address: &Address,
        patience: Duration,
        departure: &Departure,
    ) -> Result<Place, NoPlace> {
        let Some(Application { credits, queue }) = self.places_of(address) else {
            return Ok(Place::default());
        };
        let entered = match acquire(credits, patience.min(BRIEFLY), departure).await {
            Ok(credit) => Ok((queue.try_acquire_owned().ok(), Some(credit))),
            Err(NoPlace::Late) => {
                let place = acquire(queue, patience, departure).await;
                place.map(|place| (Some(place), None))
            }
            Err(NoPlace::ClientGone) => Err(NoPlace::ClientGone),
        };
        if !matches!(entered, Ok((_, None))) {
            poll_fn(|_| departure.poll_credit()).await;
        }
        let (permit, credit) = entered?;
        Ok(Place { _permit: permit, _credit: credit, _guard: None })
    }

    fn places_of(&self, address: &Address) -> Option<Application> {
        let mut applications = self.applications.borrow_mut();
        if let Some(places) = applications.get(address) {
            return Some(places.clone());
        }
        if applications.len() >= MOST_APPLICATIONS {
            return None;
        }
        let [credits, queue] = [self.each, self.most].map(|count| Arc::new(Semaphore::new(count)));
        let places = Application { credits, queue };
        applications.insert(address.clone(), places.clone());
        Some(places)
    }
}

/// Takes a permit. If there is none, the request gives its credit back and waits. The semaphores
/// are never closed, so there is no other error than that of the wait.
async fn acquire(
    places: Arc<Semaphore>,
    patience: Duration,
    departure: &Departure,
) -> Result<OwnedSemaphorePermit, NoPlace> {
    if let Ok(permit) = Arc::clone(&places).try_acquire_owned() {
        return Ok(permit);
    }
    departure.return_credit();
    let mut waiting = pin!(timeout(patience, places.acquire_owned()));
    let waited = poll_fn(|context| match waiting.as_mut().poll(context) {
        Poll::Pending if departure.is_told() => Poll::Ready(Err(NoPlace::ClientGone)),
        Poll::Pending => Poll::Pending,
        Poll::Ready(Ok(Ok(permit))) => Poll::Ready(Ok(permit)),
        Poll::Ready(Ok(Err(_)) | Err(_)) => Poll::Ready(Err(NoPlace::Late)),
    });
    waited.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    #[test]
    fn requests_beyond_the_places_wait_without_a_credit() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        let (places, hour) = (Places::new(2, 2), Duration::from_secs(3600));
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
    fn requests_beyond_the_credits_go_on_to_a_queue_without_a_credit_up_to_a_bound() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        // One request may wait with a credit (three quarters of 2), and three may be at the
        // application.
        let (places, hour) = (Places::new(2, 3), Duration::from_secs(3600));
        let (address, may_wait) = (Address::Unix("/run/a.sock".into()), MayWait::in_task());
        let departures: [Departure; 5] = Default::default();
        let [first, second, third, fourth, fifth] = &departures;
        let enter = |departure| places.enter_queue(&may_wait, &address, hour, departure);
        let held = [first, second, third].map(|departure| {
            let entered = runtime.block_on(enter(departure));
            entered.unwrap_or_else(|_| panic!("there is a place"))
        });
        let returned = || departures.each_ref().map(Departure::has_returned_credit);
        assert_eq!(returned(), [false, true, true, false, false]);
        // A place with a credit becomes free while the fourth waits for one.
        let [with_credit, without, _another] = held;
        let mut context = Context::from_waker(Waker::noop());
        let _inside = runtime.enter();
        let mut entering = Box::pin(enter(fourth));
        assert!(entering.as_mut().poll(&mut context).is_pending() && fourth.has_returned_credit());
        drop(with_credit);
        assert!(entering.as_mut().poll(&mut context).is_pending() && fourth.wants_credit());
        fourth.give_credit();
        let Poll::Ready(Ok(_place)) = entering.as_mut().poll(&mut context) else {
            panic!("a place is free")
        };
        // Three requests are at the application. The fifth takes the place of one that leaves,
        // without a credit.
        let mut entering = Box::pin(enter(fifth));
        let begun = std::time::Instant::now();
        runtime.block_on(poll_fn(|context| match entering.as_mut().poll(context) {
            Poll::Pending if begun.elapsed() > BRIEFLY => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => panic!("the queue is full"),
        }));
        drop(without);
        assert!(runtime.block_on(entering).is_ok());
        assert_eq!(returned(), [false, true, true, false, true]);
    }

    #[test]
    fn a_client_that_leaves_gives_up_its_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        let (places, hour) = (Places::new(1, 1), Duration::from_secs(3600));
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
