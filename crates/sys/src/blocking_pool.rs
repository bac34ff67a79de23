//! A pool of threads for work that would hold up a serving thread because it blocks or burns CPU
//! time. Jobs start in the order of their submission, on a bounded number of threads; `spawn`
//! returns a future of the result. A job whose future is dropped before it starts is not run, and a
//! job that makes no progress is given up for those that await it, so that a file system which does
//! not answer delays no request beyond a timeout.

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

/// A bounded pool of threads with a queue of jobs. Threads are started on demand. Dropping the pool
/// lets them finish their current jobs and the queue, without waiting for that.
pub struct BlockingPool {
    shared: Arc<Shared>,
    bulkhead: Arc<Bulkhead>,
}

/// What the pool, its threads and its tasks share.
struct Shared {
    max_threads: usize,
    /// What is added to the nice value of the threads.
    nice: i32,
    times: Option<PoolTimes>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The counters to which a pool adds its times, in microseconds.
#[derive(Clone, Copy)]
pub struct PoolTimes {
    /// How long jobs were queued.
    pub queue_us: &'static AtomicU64,
    /// How long jobs held a thread without using a core.
    pub blocked_us: &'static AtomicU64,
}

#[derive(Default)]
struct State {
    /// Jobs that have not started, by their id.
    queue: BTreeMap<u64, Job>,
    /// Jobs that have started and not ended, by their id.
    running: BTreeMap<u64, RunningJob>,
    next_id: u64,
    threads: usize,
    /// How many of the threads wait for a job.
    idle: usize,
    /// Whether every thread is held by a job that makes no progress, so that new jobs are refused.
    is_stalled: bool,
    closed: bool,
}

/// A job in the queue.
struct Job {
    run: Box<dyn FnOnce() + Send>,
    running: RunningJob,
    /// When it was queued, in microseconds of the monotonic clock.
    queued_us: u64,
}

/// What the pool keeps of a job while a thread runs it.
struct RunningJob {
    progress: Arc<Progress>,
    /// Resolves the job's future to none; taken once that has been done.
    abandon: Option<Box<dyn FnOnce() + Send>>,
}

/// Shared by a job and the task that awaits it: the job reports progress here, and learns whether
/// it has been cancelled.
pub struct Progress {
    name: String,
    /// When the job started or last reported progress, in microseconds of the coarse monotonic
    /// clock.
    reported_us: AtomicU64,
    is_cancelled: AtomicBool,
}

/// The future of a job's result. Dropping it removes the job from the queue, or cancels it if it
/// has started.
pub struct BlockingTask<T> {
    shared: Arc<Shared>,
    id: u64,
    progress: Arc<Progress>,
    result: oneshot::Receiver<Result<T, Box<dyn Any + Send>>>,
    is_detached: bool,
}

impl Progress {
    /// The progress of a job with this name, which has not been cancelled.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            reported_us: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
        }
    }

    /// Cancels the job: it may end at its next report.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Relaxed);
    }

    /// Reports progress; a long job calls this between its steps. False once the job has been
    /// cancelled.
    pub fn report(&self) -> bool {
        self.reported_us.store(clock::monotonic_coarse_us(), Relaxed);
        !self.is_cancelled.load(Relaxed)
    }

    fn is_stalled(&self, timeout_us: u64) -> bool {
        let reported_us = self.reported_us.load(Relaxed);
        clock::monotonic_coarse_us().saturating_sub(reported_us) >= timeout_us
    }
}

impl BlockingPool {
    /// A pool of at most this many threads, and of one at least.
    #[must_use]
    pub fn new(max_threads: usize) -> Self {
        Self::build(max_threads, 0, u32::MAX, None)
    }

    /// A pool whose threads have a lower priority than the process: `nice` is added to their nice
    /// value (nice(2), which Linux applies to the calling thread).
    #[must_use]
    pub fn with_nice(max_threads: usize, nice: i32) -> Self {
        Self::build(max_threads, nice, u32::MAX, None)
    }

    /// The same for a child with this many credits, adding up its times in `times`.
    #[must_use]
    pub fn with_times(max_threads: usize, credits: u32, times: Option<PoolTimes>) -> Self {
        Self::build(max_threads, 0, credits, times)
    }

    fn build(max_threads: usize, nice: i32, credits: u32, times: Option<PoolTimes>) -> Self {
        let max_threads = max_threads.max(1);
        let permits = Bulkhead::permits(credits, max_threads);
        let shared = Arc::new(Shared {
            max_threads,
            nice,
            times,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        Self { shared, bulkhead: Bulkhead::new(permits, times.map(|times| times.queue_us)) }
    }

    /// The bulkhead that a request passes before it submits jobs here.
    #[must_use]
    pub fn bulkhead(&self) -> &Arc<Bulkhead> {
        &self.bulkhead
    }

    /// Queues a job that takes little time unless the system blocks it. The future resolves to none
    /// if the system denies the first thread, or if the pool gives the job up (see
    /// [`BlockingPool::abandon_stalled`]). A panic of the job continues in the task that awaits it.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> BlockingTask<T> {
        self.spawn_long("a short piece of work", |_| work())
    }

    /// The same for a job that may take long, with the name that the error log gives it.
    pub fn spawn_long<T: Send + 'static>(
        &self,
        name: impl Into<String>,
        work: impl FnOnce(&Progress) -> T + Send + 'static,
    ) -> BlockingTask<T> {
        let (sender, result) = oneshot::channel();
        let sender = Arc::new(Mutex::new(Some(sender)));
        let progress = Arc::new(Progress::new(name));
        let abandon: Box<dyn FnOnce() + Send> = {
            let sender = Arc::clone(&sender);
            Box::new(move || drop(take(&sender)))
        };
        let run: Box<dyn FnOnce() + Send> = {
            let progress = Arc::clone(&progress);
            Box::new(move || {
                let done = catch_unwind(AssertUnwindSafe(|| work(&progress)));
                if let Some(sender) = take(&sender) {
                    // The task that awaits it may have been dropped.
                    let _ = sender.send(done);
                }
            })
        };
        let running = RunningJob { progress: Arc::clone(&progress), abandon: Some(abandon) };
        let queued_us = clock::monotonic_us();
        let id = self.shared.enqueue(Job { run, running, queued_us });
        BlockingTask { shared: Arc::clone(&self.shared), id, progress, result, is_detached: false }
    }

    /// How many jobs are queued and have not started.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.shared.lock().queue.len()
    }

    /// Gives up the jobs that have reported no progress for `timeout`: a file system that does not
    /// answer holds a thread for as long as the kernel likes, and no request should wait for it.
    /// The futures of these jobs resolve to none. If such jobs hold every thread, so do the futures
    /// of all queued jobs, and of those that are spawned until a thread is free. Returns messages
    /// for the error log; each event is reported once.
    pub fn abandon_stalled(&self, timeout: Duration) -> Vec<String> {
        let timeout_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        let mut state = self.shared.lock();
        let State { queue, running, threads, idle, is_stalled, .. } = &mut *state;
        let mut messages = Vec::new();
        let mut stalled = 0;
        for job in running.values_mut().filter(|job| job.progress.is_stalled(timeout_us)) {
            stalled += 1;
            let Some(abandon) = job.abandon.take() else { continue };
            abandon();
            messages.push(format!(
                "{} has not stirred for {} seconds and holds one of the {} threads that do such \
                 work: does its file system answer? Who waited for it is answered without it",
                job.progress.name,
                timeout.as_secs(),
                self.shared.max_threads
            ));
        }
        let was_stalled = *is_stalled;
        *is_stalled = *idle == 0 && stalled >= *threads && *threads >= self.shared.max_threads;
        if *is_stalled && !was_stalled {
            messages.push(format!(
                "no work is taken that would need a thread of its own until one of the {threads} \
                 is free again"
            ));
        }
        let waiting = if *is_stalled { std::mem::take(queue) } else { BTreeMap::new() };
        drop(state);
        // Dropping a job drops its sender, which resolves its task.
        drop(waiting);
        messages
    }
}

impl Drop for BlockingPool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn enqueue(self: &Arc<Self>, job: Job) -> u64 {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        if state.is_stalled {
            return id;
        }
        state.queue.insert(id, job);
        if state.queue.len() > state.idle && state.threads < self.max_threads {
            let shared = Arc::clone(self);
            let name = format!("work-{}", state.threads);
            match std::thread::Builder::new().name(name).spawn(move || shared.run_thread()) {
                Ok(_) => state.threads += 1,
                // The other threads will run it. Without any it is dropped, which resolves its
                // task.
                Err(_) if state.threads > 0 => {}
                Err(_) => drop(state.queue.remove(&id)),
            }
        }
        self.changed.notify_one();
        id
    }

    /// The loop of a thread: runs the first job of the queue, or waits for one.
    fn run_thread(&self) {
        if self.nice > 0 {
            // If the system refuses, the thread keeps the priority of the process.
            let _ = rustix::process::nice(self.nice);
        }
        let mut state = self.lock();
        loop {
            if let Some((id, Job { run, running, queued_us })) = state.queue.pop_first() {
                running.progress.report();
                state.running.insert(id, running);
                drop(state);
                match &self.times {
                    Some(times) => times.time(queued_us, run),
                    None => run(),
                }
                state = self.lock();
                let ended = state.running.remove(&id);
                state.is_stalled = false;
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

    /// A poisoned lock is used all the same: jobs run without it, so that no state is half changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolTimes {
    /// Runs a job that was queued at `queued_us`, and adds up its times.
    fn time(&self, queued_us: u64, run: impl FnOnce()) {
        let (began_us, cpu_us) = (clock::monotonic_us(), clock::thread_cpu_us());
        self.queue_us.fetch_add(began_us.saturating_sub(queued_us), Relaxed);
        run();
        let took_us = clock::monotonic_us().saturating_sub(began_us);
        let used_us = clock::thread_cpu_us().saturating_sub(cpu_us);
        self.blocked_us.fetch_add(took_us.saturating_sub(used_us), Relaxed);
    }
}

/// Takes the value out, which only one caller gets.
fn take<T>(of: &Mutex<Option<T>>) -> Option<T> {
    of.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl<T> BlockingTask<T> {
    /// Removes the job from the queue; false if it has started.
    pub fn dequeue(&mut self) -> bool {
        let job = self.shared.lock().queue.remove(&self.id);
        job.is_some()
    }

    /// Lets the job run although nothing awaits its result.
    pub fn detach(mut self) {
        self.is_detached = true;
    }

    /// As [`Progress::cancel`].
    pub fn cancel(&self) {
        self.progress.cancel();
    }
}

impl<T> Future for BlockingTask<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        match ready!(Pin::new(&mut self.result).poll(context)) {
            Ok(Ok(result)) => Poll::Ready(Some(result)),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Poll::Ready(None),
        }
    }
}

impl<T> Drop for BlockingTask<T> {
    fn drop(&mut self) {
        if !self.is_detached {
            self.cancel();
            self.dequeue();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::Waker;

    fn wait<T>(task: BlockingTask<T>) -> Option<T> {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(task)
    }

    /// A job that reports its start and runs until the sender releases it.
    fn blocked(pool: &BlockingPool) -> (BlockingTask<()>, mpsc::Sender<()>) {
        let (begun, is_begun) = mpsc::channel();
        let (free, freed) = mpsc::channel();
        let task = pool.spawn(move || {
            begun.send(()).unwrap();
            freed.recv().unwrap();
        });
        is_begun.recv().unwrap();
        (task, free)
    }

    #[test]
    fn the_times_of_jobs_are_added_up() {
        static QUEUE_US: AtomicU64 = AtomicU64::new(0);
        static BLOCKED_US: AtomicU64 = AtomicU64::new(0);
        let pool = BlockingPool::with_times(
            1,
            2,
            Some(PoolTimes { queue_us: &QUEUE_US, blocked_us: &BLOCKED_US }),
        );
        let (first, free) = blocked(&pool);
        let second = pool.spawn(|| ());
        let began_us = clock::monotonic_us();
        while clock::monotonic_us() - began_us < 5_000 {
            std::hint::spin_loop();
        }
        free.send(()).unwrap();
        wait(first).unwrap();
        wait(second).unwrap();
        // The second was queued while the first blocked its thread. What a job adds last is visible
        // once its thread takes the next job.
        wait(pool.spawn(|| ())).unwrap();
        assert!(QUEUE_US.load(Relaxed) >= 5_000);
        // Less the CPU time that it used.
        assert!(BLOCKED_US.load(Relaxed) >= 2_500);
    }

    #[test]
    fn no_more_threads_run_than_the_bound_and_jobs_start_in_order() {
        let pool = BlockingPool::new(2);
        let (one, free_one) = blocked(&pool);
        let (two, free_two) = blocked(&pool);
        let (say, said) = mpsc::channel();
        let others: Vec<_> = (0..9)
            .map(|number| {
                let say = say.clone();
                pool.spawn(move || say.send(number).unwrap())
            })
            .collect();
        assert_eq!(pool.queued(), 9);
        assert!(said.try_recv().is_err());
        free_one.send(()).unwrap();
        others.into_iter().for_each(|task| wait(task).unwrap());
        assert_eq!(said.try_iter().collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
        free_two.send(()).unwrap();
        assert_eq!((wait(one), wait(two)), (Some(()), Some(())));
        assert_eq!(pool.shared.lock().threads, 2);
    }

    #[test]
    fn a_dropped_job_does_not_start() {
        let pool = BlockingPool::new(1);
        let (mut first, free) = blocked(&pool);
        let (say, said) = mpsc::channel();
        let tell = |number: u8| {
            let say = say.clone();
            move || say.send(number).unwrap()
        };
        drop(pool.spawn(tell(1)));
        let mut queued = pool.spawn(tell(2));
        assert!(queued.dequeue() && !queued.dequeue() && !first.dequeue());
        let last = pool.spawn(tell(3));
        assert_eq!(pool.queued(), 1);
        free.send(()).unwrap();
        wait(last).unwrap();
        assert_eq!(said.try_iter().collect::<Vec<_>>(), [3]);
        assert_eq!(wait(queued), None);
    }

    #[test]
    fn a_panic_reaches_the_awaiting_task_and_the_thread_goes_on() {
        let pool = BlockingPool::new(1);
        let task = pool.spawn(|| panic!("as asked"));
        let panic = catch_unwind(AssertUnwindSafe(|| wait::<()>(task))).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"as asked"));
        assert_eq!(wait(pool.spawn(|| 7)), Some(7));
    }

    #[test]
    fn jobs_without_progress_are_given_up() {
        let pool = BlockingPool::new(2);
        let (one, free_one) = blocked(&pool);
        assert_eq!(pool.abandon_stalled(Duration::from_secs(3600)).len(), 0);
        let messages = pool.abandon_stalled(Duration::ZERO);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].starts_with("a short piece of work has not stirred for 0 seconds"));
        assert_eq!(wait(one), None);
        // The other thread is free.
        assert_eq!(wait(pool.spawn(|| 7)), Some(7));
        let (begun, is_begun) = mpsc::channel();
        let (free_two, freed) = mpsc::channel::<()>();
        let two = pool.spawn_long("the second", move |_| {
            begun.send(()).unwrap();
            freed.recv().unwrap();
        });
        is_begun.recv().unwrap();
        let three = pool.spawn(|| 3);
        let messages = pool.abandon_stalled(Duration::ZERO);
        assert!(messages.len() == 2 && messages[0].starts_with("the second has"), "{messages:?}");
        assert_eq!((wait(two), wait(three)), (None, None));
        assert_eq!((wait(pool.spawn(|| 4)), pool.queued()), (None, 0));
        assert_eq!(pool.abandon_stalled(Duration::ZERO).len(), 0, "each is reported once");
        free_two.send(()).unwrap();
        while pool.shared.lock().is_stalled {
            std::thread::yield_now();
        }
        assert_eq!(wait(pool.spawn(|| 5)), Some(5));
        free_one.send(()).unwrap();
    }

    #[test]
    fn a_job_with_progress_is_awaited_and_learns_that_it_is_cancelled() {
        let pool = BlockingPool::new(1);
        let (tell, told) = mpsc::channel();
        let task = pool.spawn_long("it", move |progress| {
            tell.send(()).unwrap();
            while progress.report() {
                std::thread::yield_now();
            }
            tell.send(()).unwrap();
        });
        told.recv().unwrap();
        let waiting = pool.spawn(|| 1);
        assert_eq!(pool.abandon_stalled(Duration::from_secs(3600)).len(), 0);
        drop(task);
        told.recv().unwrap();
        assert_eq!(wait(waiting), Some(1));
    }

    #[test]
    fn threads_end_with_their_pool() {
        let pool = BlockingPool::new(1);
        let (task, free) = blocked(&pool);
        let shared = Arc::downgrade(&pool.shared);
        drop((pool, task));
        free.send(()).unwrap();
        while shared.strong_count() > 0 {
            std::thread::yield_now();
        }
        let mut task = BlockingPool::new(1).spawn(|| ());
        // A job that was queued before the pool was dropped still runs.
        while Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            std::thread::yield_now();
        }
    }
}
