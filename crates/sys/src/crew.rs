//! The threads of a process that do what would hold a serving thread up: work that blocks or
//! burns comes in, its result goes out to whoever awaits it. There are never more threads than
//! was said, work is begun in the order in which it came, work that nobody awaits any more is not
//! begun, and nobody waits for what does not stir.

use crate::bulkhead::Bulkhead;
use crate::clock;
use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;

/// A bounded number of threads and the line of work before them. Threads are started as work
/// comes; dropping the crew lets them end after what they are at, and nobody waits for that.
pub struct Crew {
    hall: Arc<Hall>,
    bulkhead: Arc<Bulkhead>,
}

/// What the threads and those who have work share.
struct Hall {
    most_threads: usize,
    tally: Option<Tally>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Where a crew adds up its times, in microseconds.
#[derive(Clone, Copy)]
pub struct Tally {
    /// How long work stood in line.
    pub line_us: &'static AtomicU64,
    /// How long threads were held by work without using a core.
    pub held_us: &'static AtomicU64,
}

#[derive(Default)]
struct State {
    /// What was not begun yet, by its number.
    line: BTreeMap<u64, Job>,
    /// What was begun and has not ended, by its number.
    at_work: BTreeMap<u64, Held>,
    next: u64,
    threads: usize,
    /// How many of the threads wait for work.
    idle: usize,
    /// Whether all threads are held by what does not stir, so that no work is taken.
    is_stuck: bool,
    closed: bool,
}

/// Work in line.
struct Job {
    run: Box<dyn FnOnce() + Send>,
    held: Held,
    /// When it got into line, by the monotonic clock.
    came_us: u64,
}

/// What is known of work while a thread is at it.
struct Held {
    pulse: Arc<Pulse>,
    /// Lets go of whoever awaits the result; none where that has been done.
    let_go: Option<Box<dyn FnOnce() + Send>>,
}

/// Between work and whoever awaits it: the work shows that it stirs, and learns that nobody wants
/// its result any more.
pub struct Pulse {
    what: String,
    /// When it was begun or last stirred, in microseconds of the coarse monotonic clock.
    stirred_us: AtomicU64,
    is_unwanted: AtomicBool,
}

/// Work that was given to a crew, until its result is there. Dropping it leaves the line; work that
/// was begun is told that nobody wants it.
pub struct Labour<T> {
    hall: Arc<Hall>,
    number: u64,
    pulse: Arc<Pulse>,
    result: oneshot::Receiver<Result<T, Box<dyn Any + Send>>>,
    is_detached: bool,
}

impl Pulse {
    /// That of work which `what` names, and which is still wanted.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            stirred_us: AtomicU64::new(0),
            is_unwanted: AtomicBool::new(false),
        }
    }

    /// Tells the work that nobody wants its result: it may end at its next beat.
    pub fn stop(&self) {
        self.is_unwanted.store(true, Relaxed);
    }

    /// Shows that the work stirs; whoever does a long piece of work calls it between its parts.
    /// False where nobody wants the result any more.
    pub fn beat(&self) -> bool {
        self.stirred_us.store(clock::monotonic_coarse_us(), Relaxed);
        !self.is_unwanted.load(Relaxed)
    }

    fn is_still(&self, patience_us: u64) -> bool {
        let stirred_us = self.stirred_us.load(Relaxed);
        clock::monotonic_coarse_us().saturating_sub(stirred_us) >= patience_us
    }
}

impl Crew {
    /// A crew of at most so many threads, at least one.
    #[must_use]
    pub fn new(most_threads: usize) -> Self {
        Self::tallied(most_threads, u32::MAX, None)
    }

    /// The same in a child with so many credits, which adds up its times where there is a tally.
    #[must_use]
    pub fn tallied(most_threads: usize, credits: u32, tally: Option<Tally>) -> Self {
        let most_threads = most_threads.max(1);
        let permits = Bulkhead::permits(credits, most_threads);
        let hall = Arc::new(Hall {
            most_threads,
            tally,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        Self { hall, bulkhead: Bulkhead::new(permits, tally.map(|tally| tally.line_us)) }
    }

    /// What a request passes that has work done here.
    #[must_use]
    pub fn bulkhead(&self) -> &Arc<Bulkhead> {
        &self.bulkhead
    }

    /// Puts work in line that is short unless the system holds it. The result is none where the
    /// system denies the first thread, and where the crew does not stir (see [`Crew::relieve`]); a
    /// panic of the work goes on in whoever awaits the result.
    pub fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Labour<T> {
        self.begin_long("a short piece of work", |_| work())
    }

    /// The same for work that may be long, and which has a name for the administrator.
    pub fn begin_long<T: Send + 'static>(
        &self,
        what: impl Into<String>,
        work: impl FnOnce(&Pulse) -> T + Send + 'static,
    ) -> Labour<T> {
        let (sender, result) = oneshot::channel();
        let sender = Arc::new(Mutex::new(Some(sender)));
        let pulse = Arc::new(Pulse::new(what));
        let let_go: Box<dyn FnOnce() + Send> = {
            let sender = Arc::clone(&sender);
            Box::new(move || drop(take(&sender)))
        };
        let run: Box<dyn FnOnce() + Send> = {
            let pulse = Arc::clone(&pulse);
            Box::new(move || {
                let done = catch_unwind(AssertUnwindSafe(|| work(&pulse)));
                if let Some(sender) = take(&sender) {
                    // Whoever wanted it may have gone.
                    let _ = sender.send(done);
                }
            })
        };
        let held = Held { pulse: Arc::clone(&pulse), let_go: Some(let_go) };
        let came_us = clock::monotonic_us();
        let number = self.hall.line_up(Job { run, held, came_us });
        Labour { hall: Arc::clone(&self.hall), number, pulse, result, is_detached: false }
    }

    /// How much work stands in line and was not begun.
    #[must_use]
    pub fn in_line(&self) -> usize {
        self.hall.lock().line.len()
    }

    /// Lets those go who wait for what has not stirred for `patience`: a file system that does not
    /// answer holds a thread for as long as the kernel likes, and nothing else should wait for it.
    /// Work that was begun comes to nothing for whoever awaits it; where such work holds every
    /// thread, all that stands in line does too, and so does what comes until a thread is free.
    /// Gives what the administrator should know, each once.
    pub fn relieve(&self, patience: Duration) -> Vec<String> {
        let patience_us = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
        let mut state = self.hall.lock();
        let State { line, at_work, threads, idle, is_stuck, .. } = &mut *state;
        let mut told = Vec::new();
        let mut still = 0;
        for held in at_work.values_mut().filter(|held| held.pulse.is_still(patience_us)) {
            still += 1;
            let Some(let_go) = held.let_go.take() else { continue };
            let_go();
            told.push(format!(
                "{} has not stirred for {} seconds and holds one of the {} threads that do such \
                 work: does its file system answer? Who waited for it is answered without it",
                held.pulse.what,
                patience.as_secs(),
                self.hall.most_threads
            ));
        }
        let was_stuck = *is_stuck;
        *is_stuck = *idle == 0 && still >= *threads && *threads >= self.hall.most_threads;
        if *is_stuck && !was_stuck {
            told.push(format!(
                "no work is taken that would need a thread of its own until one of the {threads} \
                 is free again"
            ));
        }
        let waiting = if *is_stuck { std::mem::take(line) } else { BTreeMap::new() };
        drop(state);
        // Each takes its sender along, of which its labour learns.
        drop(waiting);
        told
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.hall.lock().closed = true;
        self.hall.changed.notify_all();
    }
}

impl Hall {
    fn line_up(self: &Arc<Self>, job: Job) -> u64 {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        if state.is_stuck {
            return number;
        }
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
            if let Some((number, Job { run, held, came_us })) = state.line.pop_first() {
                held.pulse.beat();
                state.at_work.insert(number, held);
                drop(state);
                match &self.tally {
                    Some(tally) => tally.time(came_us, run),
                    None => run(),
                }
                state = self.lock();
                let ended = state.at_work.remove(&number);
                state.is_stuck = false;
                drop(ended);
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

impl Tally {
    /// Does work that came at `came_us`, and adds up its times.
    fn time(&self, came_us: u64, run: impl FnOnce()) {
        let (began_us, cpu_us) = (clock::monotonic_us(), clock::thread_cpu_us());
        self.line_us.fetch_add(began_us.saturating_sub(came_us), Relaxed);
        run();
        let took_us = clock::monotonic_us().saturating_sub(began_us);
        let used_us = clock::thread_cpu_us().saturating_sub(cpu_us);
        self.held_us.fetch_add(took_us.saturating_sub(used_us), Relaxed);
    }
}

/// Takes out what only one may use.
fn take<T>(of: &Mutex<Option<T>>) -> Option<T> {
    of.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl<T> Labour<T> {
    /// Takes the work out of the line; false where it has been begun.
    pub fn leave(&mut self) -> bool {
        let left = self.hall.lock().line.remove(&self.number);
        left.is_some()
    }

    /// Has the work done though nobody awaits its result.
    pub fn detach(mut self) {
        self.is_detached = true;
    }

    /// As [`Pulse::stop`].
    pub fn stop(&self) {
        self.pulse.stop();
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
        if !self.is_detached {
            self.stop();
            self.leave();
        }
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
    fn the_times_of_work_are_added_up() {
        static LINE_US: AtomicU64 = AtomicU64::new(0);
        static HELD_US: AtomicU64 = AtomicU64::new(0);
        let crew = Crew::tallied(1, 2, Some(Tally { line_us: &LINE_US, held_us: &HELD_US }));
        let (first, free) = held(&crew);
        let second = crew.begin(|| ());
        let began_us = clock::monotonic_us();
        while clock::monotonic_us() - began_us < 5_000 {
            std::hint::spin_loop();
        }
        free.send(()).unwrap();
        wait(first).unwrap();
        wait(second).unwrap();
        // The second stood in line while the first blocked its thread. What the work itself adds
        // last is seen once its thread takes other work.
        wait(crew.begin(|| ())).unwrap();
        assert!(LINE_US.load(Relaxed) >= 5_000);
        // Less what it used of a core.
        assert!(HELD_US.load(Relaxed) >= 2_500);
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
        assert_eq!(crew.hall.lock().threads, 2);
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
    fn nobody_waits_for_what_does_not_stir() {
        let crew = Crew::new(2);
        let (one, free_one) = held(&crew);
        assert_eq!(crew.relieve(Duration::from_secs(3600)).len(), 0);
        let told = crew.relieve(Duration::ZERO);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("a short piece of work has not stirred for 0 seconds"));
        assert_eq!(wait(one), None);
        // The other thread is free.
        assert_eq!(wait(crew.begin(|| 7)), Some(7));
        let (begun, is_begun) = mpsc::channel();
        let (free_two, freed) = mpsc::channel::<()>();
        let two = crew.begin_long("the second", move |_| {
            begun.send(()).unwrap();
            freed.recv().unwrap();
        });
        is_begun.recv().unwrap();
        let three = crew.begin(|| 3);
        let told = crew.relieve(Duration::ZERO);
        assert!(told.len() == 2 && told[0].starts_with("the second has"), "{told:?}");
        assert_eq!((wait(two), wait(three)), (None, None));
        assert_eq!((wait(crew.begin(|| 4)), crew.in_line()), (None, 0));
        assert_eq!(crew.relieve(Duration::ZERO).len(), 0, "each is told once");
        free_two.send(()).unwrap();
        while crew.hall.lock().is_stuck {
            std::thread::yield_now();
        }
        assert_eq!(wait(crew.begin(|| 5)), Some(5));
        free_one.send(()).unwrap();
    }

    #[test]
    fn work_that_stirs_is_waited_for_and_learns_that_it_is_unwanted() {
        let crew = Crew::new(1);
        let (tell, told) = mpsc::channel();
        let labour = crew.begin_long("it", move |pulse| {
            tell.send(()).unwrap();
            while pulse.beat() {
                std::thread::yield_now();
            }
            tell.send(()).unwrap();
        });
        told.recv().unwrap();
        let waiting = crew.begin(|| 1);
        assert_eq!(crew.relieve(Duration::from_secs(3600)).len(), 0);
        drop(labour);
        told.recv().unwrap();
        assert_eq!(wait(waiting), Some(1));
    }

    #[test]
    fn threads_end_with_their_crew() {
        let crew = Crew::new(1);
        let (labour, free) = held(&crew);
        let hall = Arc::downgrade(&crew.hall);
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
