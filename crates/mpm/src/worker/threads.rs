//! The worker threads of a child, and which of them are idle. A new connection goes to the worker
//! that became idle last, since its caches are warm. A worker that has finished a connection
//! accepts the next one itself, and becomes idle only when none waits.

use super::Shared;
use crate::dedicated::contention::Eviction;
use crate::dedicated::listen_set::{Accepted, Connection};
use crate::dedicated::worker::{Worker, WorkerControl};
use crate::service::Service;
use crate::setup::Mode;
use evenkeel_message::Notice;
use evenkeel_scoreboard::{ClientWait, Counter};
use evenkeel_sys::waker::Waker;
use evenkeel_sys::watch::Watch;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;

/// All worker threads of a child.
pub(super) struct WorkerThreads {
    threads: Vec<WorkerThread>,
    /// The numbers of the idle workers, in the order in which they became idle.
    idle: Mutex<Vec<usize>>,
    /// Whether the listener waits until a worker is idle.
    pub(super) listener_waits: AtomicBool,
}

/// What other threads see of a worker.
pub(super) struct WorkerThread {
    assignment: Mutex<Assignment>,
    assigned: Condvar,
    /// Wakes it while it waits for its client.
    waker: Waker,
    /// The number of an [`Eviction`]; 0 is none.
    eviction: AtomicU8,
    pub(super) client_wait: Arc<ClientWait>,
}

enum Assignment {
    /// Nothing: it is busy or idle.
    None,
    Serve(Connection),
    /// A message for the error log, which the listener cannot write.
    Log(Notice),
    /// It ends.
    End,
}

impl WorkerThreads {
    pub(super) fn new(threads: usize) -> io::Result<Self> {
        let thread = |_| {
            Ok(WorkerThread {
                assignment: Mutex::new(Assignment::None),
                assigned: Condvar::new(),
                waker: Waker::new()?,
                eviction: AtomicU8::new(0),
                client_wait: Arc::new(ClientWait::new(None)),
            })
        };
        Ok(Self {
            threads: (0..threads).map(thread).collect::<io::Result<_>>()?,
            idle: Mutex::new(Vec::with_capacity(threads)),
            listener_waits: AtomicBool::new(false),
        })
    }

    pub(super) fn thread(&self, number: usize) -> Option<&WorkerThread> {
        self.threads.get(number)
    }

    pub(super) fn threads(&self) -> &[WorkerThread] {
        &self.threads
    }

    /// How many workers are idle.
    pub(super) fn idle(&self) -> usize {
        lock(&self.idle).len()
    }

    /// Whether no worker serves a connection.
    pub(super) fn all_idle(&self) -> bool {
        self.idle() == self.threads.len()
    }

    /// Takes the worker that became idle last, by its number.
    pub(super) fn take_idle(&self) -> Option<usize> {
        lock(&self.idle).pop()
    }

    /// Removes a worker from the idle ones. Returns false if it is not idle.
    fn take(&self, number: usize) -> bool {
        let mut idle = lock(&self.idle);
        let at = idle.iter().position(|one| *one == number);
        at.is_some_and(|at| idle.remove(at) == number)
    }

    /// Marks a worker as idle.
    pub(super) fn set_idle(&self, number: usize) {
        self.set_idle_and(number, || ());
    }

    /// Marks a worker as idle and calls `then` before it can be taken.
    fn set_idle_and(&self, number: usize, then: impl FnOnce()) {
        let mut idle = lock(&self.idle);
        idle.push(number);
        then();
    }

    /// Assigns a connection to a worker that was taken.
    pub(super) fn assign(&self, number: usize, connection: Connection) {
        if let Some(thread) = self.threads.get(number) {
            *lock(&thread.assignment) = Assignment::Serve(connection);
            thread.assigned.notify_one();
        }
    }

    /// Has a worker that was taken log a message; it is idle again afterwards.
    pub(super) fn assign_log(&self, number: usize, notice: Notice) {
        if let Some(thread) = self.threads.get(number) {
            *lock(&thread.assignment) = Assignment::Log(notice);
            thread.assigned.notify_one();
        }
    }

    /// Has all workers end once they are idle.
    pub(super) fn shut_down(&self) {
        for thread in &self.threads {
            *lock(&thread.assignment) = Assignment::End;
            thread.assigned.notify_one();
        }
    }
}

impl WorkerThread {
    /// Requests the eviction of the worker's client.
    pub(super) fn evict(&self, eviction: Eviction) {
        self.eviction.fetch_max(eviction as u8, SeqCst);
        self.waker.wake();
    }

    /// Has the worker look at the child's mode.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Waits for an assignment; none if there is none within `timeout`.
    fn wait_for_assignment(&self, timeout: Option<Duration>) -> Assignment {
        let mut assignment = lock(&self.assignment);
        loop {
            match std::mem::replace(&mut *assignment, Assignment::None) {
                Assignment::None => {}
                assigned => return assigned,
            }
            match timeout {
                None => {
                    assignment =
                        self.assigned.wait(assignment).unwrap_or_else(PoisonError::into_inner)
                }
                Some(timeout) => {
                    let waited = self.assigned.wait_timeout(assignment, timeout);
                    let (guard, ended) = waited.unwrap_or_else(PoisonError::into_inner);
                    assignment = guard;
                    if ended.timed_out() && matches!(*assignment, Assignment::None) {
                        return Assignment::None;
                    }
                }
            }
        }
    }
}

/// The control of a worker thread.
pub(super) struct ThreadControl<'a> {
    pub(super) shared: &'a Shared,
    pub(super) thread: &'a WorkerThread,
}

impl WorkerControl for ThreadControl<'_> {
    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.thread.waker.as_fd())
    }

    fn watch(&self) -> io::Result<Option<Watch>> {
        self.thread.waker.watch().map(Some)
    }

    fn runtime(&self) -> Option<Handle> {
        Some(self.shared.runtime.clone())
    }

    fn receive(&mut self) {
        self.thread.waker.reset();
    }

    fn knows_at_once(&self) -> bool {
        true
    }

    fn mode(&self) -> Mode {
        self.shared.mode.get()
    }

    fn take_eviction(&mut self) -> Option<Eviction> {
        if self.thread.eviction.load(Relaxed) == 0 {
            return None;
        }
        let eviction = self.thread.eviction.swap(0, SeqCst);
        Some(if eviction == Eviction::Normal as u8 { Eviction::Normal } else { Eviction::Urgent })
    }

    fn is_contended(&mut self) -> bool {
        self.shared.queue_monitor.is_contended(|| self.shared.unserved())
    }
}

/// The loop of a worker thread: it waits for a connection, serves it, and then serves those that
/// wait.
pub(super) fn run<S: Service>(
    shared: &Shared,
    number: usize,
    thread: &WorkerThread,
    mut worker: Worker<S, ThreadControl<'_>>,
) {
    let mut is_busy = false;
    loop {
        // A worker that may not begin a request counts neither as idle nor as busy.
        while shared.mode.get() < Mode::Drain && worker.is_paused() {
            if std::mem::take(&mut is_busy) {
                shared.line.subtract(Counter::Busy, 1);
            }
            worker.pause();
        }
        become_idle(shared, number, std::mem::take(&mut is_busy));
        let connection = loop {
            match thread.wait_for_assignment(worker.wait_left()) {
                Assignment::Serve(connection) => break connection,
                Assignment::Log(notice) => {
                    worker.service.notify(notice);
                    become_idle(shared, number, false);
                }
                Assignment::None if worker.may_resume() && shared.threads.take(number) => {
                    shared.line.add(Counter::Busy, 1);
                    worker.resume();
                    become_idle(shared, number, true);
                }
                Assignment::None => {
                    worker.check_lingering();
                    worker.tick_if_due();
                    if shared.mode.get() >= Mode::Drain && shared.is_over() {
                        shared.waker.wake();
                    }
                }
                Assignment::End => return worker.tick(),
            }
        };
        let mut next = Some(connection);
        while let Some(connection) = next {
            worker.serve_connection(connection);
            worker.tick_if_due();
            worker.check_lingering();
            if worker.may_resume() {
                worker.resume();
            }
            next = if worker.is_paused() { None } else { shared.accept_next() };
        }
        is_busy = true;
    }
}

/// Becomes idle, after being busy if `was_busy`, and wakes the listener if it waits for that.
fn become_idle(shared: &Shared, number: usize, was_busy: bool) {
    // A thread that no longer sees it as busy sees it as idle.
    shared.threads.set_idle_and(number, || {
        if was_busy {
            shared.line.subtract(Counter::Busy, 1);
        }
    });
    let is_over = shared.mode.get() >= Mode::Drain && shared.is_over();
    if is_over || shared.threads.listener_waits.load(SeqCst) {
        shared.waker.wake();
    }
}

impl Shared {
    /// Accepts the next connection that waits, for a worker that has just finished one.
    fn accept_next(&self) -> Option<Connection> {
        if !self.may_accept() {
            return None;
        }
        // If the system denies it, the listener finds out and pauses.
        match self.accept() {
            Accepted::Connection(connection) => Some(connection),
            Accepted::Nothing | Accepted::Denied(_) => None,
        }
    }

    /// Whether the child accepts connections that wait: a draining child too, until it has closed
    /// its sockets.
    pub(super) fn may_accept(&self) -> bool {
        match self.mode.get() {
            Mode::Run => true,
            Mode::Park => false,
            Mode::Drain | Mode::Exit => !self.has_closed.load(SeqCst),
        }
    }

    /// Accepts a connection if the child may have another, and drains after the last. It is counted
    /// first, so that threads which accept at the same time do not exceed the bound.
    pub(super) fn accept(&self) -> Accepted {
        let max = if self.most_connections > 0 { self.most_connections } else { u64::MAX };
        let claim = |count: u64| (count < max).then_some(count + 1);
        let Ok(before) = self.accepted.fetch_update(Relaxed, Relaxed, claim) else {
            return Accepted::Nothing;
        };
        let accepted = self.sockets.accept();
        if !matches!(accepted, Accepted::Connection(_)) {
            self.accepted.fetch_sub(1, Relaxed);
        } else if before + 1 == max {
            // Another thread may still undo a count that led to no connection.
            self.is_exhausted.store(true, SeqCst);
            if self.mode.advance(Mode::Drain) {
                self.waker.wake();
            }
        }
        accepted
    }
}

/// A poisoned lock is used all the same: no state is left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
