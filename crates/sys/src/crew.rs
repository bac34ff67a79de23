//! The threads of a process that do what would hold a serving thread up: work that blocks or
//! burns comes in, its result goes out to whoever awaits it. There are never more threads than
//! was said, work is begun in the order in which it came, and work that nobody awaits any more
//! is not begun.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// A bounded number of threads and the line of work before them. Threads are started as work
/// comes; dropping the crew lets them end after what they are at, and nobody waits for that.
pub struct Crew(Arc<Hall>);

/// What the threads and those who have work share.
struct Hall {
    most_threads: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What was not begun yet, by its number.
    line: BTreeMap<u64, Job>,
    next: u64,
    threads: usize,
    /// How many of the threads wait for work.
    idle: usize,
    closed: bool,
}

type Job = Box<dyn FnOnce() + Send>;

/// Work that was given to a crew, until its result is there. Dropping it leaves the line; what
/// was begun goes on to its end all the same.
pub struct Labour<T> {
    hall: Arc<Hall>,
    number: u64,
    result: oneshot::Receiver<Result<T, Box<dyn Any + Send>>>,
}

impl Crew {
    /// A crew of at most so many threads, at least one.
    #[must_use]
    pub fn new(most_threads: usize) -> Self {
        Self(Arc::new(Hall {
            most_threads: most_threads.max(1),
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Puts work in line. The result is none where the system denies the first thread; a panic
    /// of the work goes on in whoever awaits the result.
    pub fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Labour<T> {
        let (sender, result) = oneshot::channel();
        let job = move || {
            let done = catch_unwind(AssertUnwindSafe(work));
            // Whoever wanted it may have gone.
            let _ = sender.send(done);
        };
        let number = self.0.line_up(Box::new(job));
        Labour { hall: Arc::clone(&self.0), number, result }
    }

    /// How much work stands in line and was not begun.
    #[must_use]
    pub fn in_line(&self) -> usize {
        self.0.lock().line.len()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl Hall {
    fn line_up(self: &Arc<Self>, job: Job) -> u64 {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.line.insert(number, job);
        if state.line.len() > state.idle && state.threads < self.most_threads {
            let hall = Arc::clone(self);
            let name = format!("work-{}", state.threads);
            match std::thread::Builder::new().name(name).spawn(move || hall.work()) {
                Ok(_) => state.threads += 1,
                // The others will come to it; where there are none, it is not done.
                Err(_) if state.threads > 0 => {}
                Err(_) => drop(state.line.remove(&number)),
            }
        }
        self.changed.notify_one();
        number
    }

    /// The life of a thread: the first in line, time and again.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some((_, job)) = state.line.pop_first() {
                drop(state);
                job();
                state = self.lock();
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    /// A panic leaves nothing half changed here: work runs without the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Labour<T> {
    /// Takes the work out of the line; false where it has been begun.
    pub fn leave(&mut self) -> bool {
        let left = self.hall.lock().line.remove(&self.number);
        left.is_some()
    }
}

impl<T> Future for Labour<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        match ready!(Pin::new(&mut self.result).poll(context)) {
            Ok(Ok(result)) => Poll::Ready(Some(result)),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Poll::Ready(None),
        }
    }
}

impl<T> Drop for Labour<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::Waker;

    fn wait<T>(labour: Labour<T>) -> Option<T> {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(labour)
    }

    /// Work that says when it was begun and goes on until it is let go.
    fn held(crew: &Crew) -> (Labour<()>, mpsc::Sender<()>) {
        let (begun, is_begun) = mpsc::channel();
        let (free, freed) = mpsc::channel();
        let labour = crew.begin(move || {
            begun.send(()).unwrap();
            freed.recv().unwrap();
        });
        is_begun.recv().unwrap();
        (labour, free)
    }

    #[test]
    fn no_more_threads_work_than_were_said_and_the_first_come_is_begun_first() {
        let crew = Crew::new(2);
        let (one, free_one) = held(&crew);
        let (two, free_two) = held(&crew);
        let (say, said) = mpsc::channel();
        let others: Vec<_> = (0..9)
            .map(|number| {
                let say = say.clone();
                crew.begin(move || say.send(number).unwrap())
            })
            .collect();
        assert_eq!(crew.in_line(), 9);
        assert!(said.try_recv().is_err());
        free_one.send(()).unwrap();
        others.into_iter().for_each(|labour| wait(labour).unwrap());
        assert_eq!(said.try_iter().collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
        free_two.send(()).unwrap();
        assert_eq!((wait(one), wait(two)), (Some(()), Some(())));
        assert_eq!(crew.0.lock().threads, 2);
    }

    #[test]
    fn what_nobody_awaits_is_not_begun() {
        let crew = Crew::new(1);
        let (mut first, free) = held(&crew);
        let (say, said) = mpsc::channel();
        let tell = |number: u8| {
            let say = say.clone();
            move || say.send(number).unwrap()
        };
        drop(crew.begin(tell(1)));
        let mut left = crew.begin(tell(2));
        assert!(left.leave() && !left.leave() && !first.leave());
        let last = crew.begin(tell(3));
        assert_eq!(crew.in_line(), 1);
        free.send(()).unwrap();
        wait(last).unwrap();
        assert_eq!(said.try_iter().collect::<Vec<_>>(), [3]);
        assert_eq!(wait(left), None);
    }

    #[test]
    fn a_panic_is_the_askers_and_the_thread_works_on() {
        let crew = Crew::new(1);
        let labour = crew.begin(|| panic!("as asked"));
        let panic = catch_unwind(AssertUnwindSafe(|| wait::<()>(labour))).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"as asked"));
        assert_eq!(wait(crew.begin(|| 7)), Some(7));
    }

    #[test]
    fn threads_end_with_their_crew() {
        let crew = Crew::new(1);
        let (labour, free) = held(&crew);
        let hall = Arc::downgrade(&crew.0);
        drop((crew, labour));
        free.send(()).unwrap();
        while hall.strong_count() > 0 {
            std::thread::yield_now();
        }
        let mut labour = Crew::new(1).begin(|| ());
        // Work that was given to it before is still done.
        while Pin::new(&mut labour).poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            std::thread::yield_now();
        }
    }
}
