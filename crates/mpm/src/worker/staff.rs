//! The workers of a child and who of them is idle. The last to have become idle is the first to
//! get a connection, since its caches are warm; a worker that has finished takes what waits to be
//! accepted itself, and stands idle only when nothing does.

use super::Shared;
use crate::dedicated::contention::Eviction;
use crate::dedicated::hold::{Holder, Orders};
use crate::dedicated::listen_set::{Accepted, Connection};
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

/// All workers of a child.
pub(super) struct Staff {
    posts: Vec<Post>,
    /// The numbers of those who are idle, the last to have become so at the end.
    idle: Mutex<Vec<usize>>,
    /// Whether the listener sleeps until somebody is idle.
    pub(super) is_awaited: AtomicBool,
}

/// What others see of one worker.
pub(super) struct Post {
    task: Mutex<Task>,
    came: Condvar,
    /// Rings while it waits for its client.
    waker: Waker,
    /// The number of a [`Eviction`]; 0 is none.
    eviction: AtomicU8,
    pub(super) client_wait: Arc<ClientWait>,
}

enum Task {
    /// None: it works, or is idle.
    None,
    Serve(Connection),
    /// It tells the administrator, for the listener has no log.
    Tell(Notice),
    /// It may go home.
    End,
}

impl Staff {
    pub(super) fn new(threads: usize) -> io::Result<Self> {
        let post = |_| {
            Ok(Post {
                task: Mutex::new(Task::None),
                came: Condvar::new(),
                waker: Waker::new()?,
                eviction: AtomicU8::new(0),
                client_wait: Arc::new(ClientWait::new(None)),
            })
        };
        Ok(Self {
            posts: (0..threads).map(post).collect::<io::Result<_>>()?,
            idle: Mutex::new(Vec::with_capacity(threads)),
            is_awaited: AtomicBool::new(false),
        })
    }

    pub(super) fn post(&self, number: usize) -> Option<&Post> {
        self.posts.get(number)
    }

    pub(super) fn posts(&self) -> &[Post] {
        &self.posts
    }

    /// How many are idle.
    pub(super) fn idle(&self) -> usize {
        lock(&self.idle).len()
    }

    /// Whether nobody serves a connection.
    pub(super) fn is_at_rest(&self) -> bool {
        self.idle() == self.posts.len()
    }

    /// The number of the one who has become idle last, who is so no more.
    pub(super) fn call(&self) -> Option<usize> {
        lock(&self.idle).pop()
    }

    /// One is idle.
    pub(super) fn stand(&self, number: usize) {
        self.stand_and(number, || ());
    }

    /// One is idle. What is done then comes before anything that it is called for.
    fn stand_and(&self, number: usize, then: impl FnOnce()) {
        let mut idle = lock(&self.idle);
        idle.push(number);
        then();
    }

    /// Gives a connection to one who was called.
    pub(super) fn give(&self, number: usize, connection: Connection) {
        if let Some(post) = self.posts.get(number) {
            *lock(&post.task) = Task::Serve(connection);
            post.came.notify_one();
        }
    }

    /// Has one who was called tell the administrator; it stands idle again afterwards.
    pub(super) fn have_told(&self, number: usize, notice: Notice) {
        if let Some(post) = self.posts.get(number) {
            *lock(&post.task) = Task::Tell(notice);
            post.came.notify_one();
        }
    }

    /// Has all of them end once they are idle.
    pub(super) fn dismiss(&self) {
        for post in &self.posts {
            *lock(&post.task) = Task::End;
            post.came.notify_one();
        }
    }
}

impl Post {
    /// Asks the worker to make room.
    pub(super) fn evict(&self, eviction: Eviction) {
        self.eviction.fetch_max(eviction as u8, SeqCst);
        self.waker.wake();
    }

    /// Has the worker look at how the child stands.
    pub(super) fn rouse(&self) {
        self.waker.wake();
    }

    /// What comes, or none where nothing has after so long.
    fn await_task(&self, most: Option<Duration>) -> Task {
        let mut task = lock(&self.task);
        loop {
            match std::mem::replace(&mut *task, Task::None) {
                Task::None => {}
                come => return come,
            }
            match most {
                None => task = self.came.wait(task).unwrap_or_else(PoisonError::into_inner),
                Some(most) => {
                    let waited = self.came.wait_timeout(task, most);
                    let (guard, ended) = waited.unwrap_or_else(PoisonError::into_inner);
                    task = guard;
                    if ended.timed_out() && matches!(*task, Task::None) {
                        return Task::None;
                    }
                }
            }
        }
    }
}

/// What a worker is told.
pub(super) struct Orderly<'a> {
    pub(super) shared: &'a Shared,
    pub(super) post: &'a Post,
}

impl Orders for Orderly<'_> {
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        Some(self.post.waker.as_fd())
    }

    fn watch(&self) -> io::Result<Option<Watch>> {
        self.post.waker.watch().map(Some)
    }

    fn runtime(&self) -> Option<Handle> {
        Some(self.shared.runtime.clone())
    }

    fn hear(&mut self) {
        self.post.waker.reset();
    }

    fn mode(&self) -> Mode {
        self.shared.stance.mode()
    }

    fn take_eviction(&mut self) -> Option<Eviction> {
        if self.post.eviction.load(Relaxed) == 0 {
            return None;
        }
        let eviction = self.post.eviction.swap(0, SeqCst);
        Some(if eviction == Eviction::Normal as u8 { Eviction::Normal } else { Eviction::Urgent })
    }

    fn is_contended(&mut self) -> bool {
        self.shared.lookout.stands(|| self.shared.unserved())
    }
}

/// A worker's life: it stands idle, serves what it is given and what waits behind that.
pub(super) fn attend<S: Service>(
    shared: &Shared,
    number: usize,
    post: &Post,
    mut holder: Holder<S, Orderly<'_>>,
) {
    let mut is_busy = false;
    loop {
        // Who may not begin is not idle, nor busy.
        while shared.stance.mode() < Mode::Drain && holder.is_held() {
            if std::mem::take(&mut is_busy) {
                shared.line.subtract(Counter::Busy, 1);
            }
            holder.pause();
        }
        stand_idle(shared, number, std::mem::take(&mut is_busy));
        let connection = loop {
            match post.await_task(holder.tick_left()) {
                Task::Serve(connection) => break connection,
                Task::Tell(notice) => {
                    holder.service.notify(notice);
                    stand_idle(shared, number, false);
                }
                Task::None => holder.tick(),
                Task::End => return holder.tick(),
            }
        };
        let mut next = Some(connection);
        while let Some(connection) = next {
            holder.hold(connection);
            holder.tick_if_due();
            next = if holder.is_held() { None } else { shared.take_next() };
        }
        is_busy = true;
    }
}

/// Stands idle, also after having been busy, and tells the listener if that waits for somebody.
fn stand_idle(shared: &Shared, number: usize, was_busy: bool) {
    // Who sees that it is busy no more finds it idle.
    shared.staff.stand_and(number, || {
        if was_busy {
            shared.line.subtract(Counter::Busy, 1);
        }
    });
    let is_over = shared.stance.mode() >= Mode::Drain && shared.staff.is_at_rest();
    if is_over || shared.staff.is_awaited.load(SeqCst) {
        shared.waker.wake();
    }
}

impl Shared {
    /// The connection that waits longest to be accepted, for a worker that has just finished.
    fn take_next(&self) -> Option<Connection> {
        if !self.may_take() {
            return None;
        }
        // Where the system denies it, the listener finds that out and bears it.
        match self.accept() {
            Accepted::Connection(connection) => Some(connection),
            Accepted::Nothing | Accepted::Denied(_) => None,
        }
    }

    /// Whether the child takes connections that wait: also one that is to go, until it has left.
    pub(super) fn may_take(&self) -> bool {
        match self.stance.mode() {
            Mode::Run => true,
            Mode::Park => false,
            Mode::Drain | Mode::Exit => !self.has_closed.load(SeqCst),
        }
    }

    /// Accepts a connection, if the child may have another; after the last it drains. The share is
    /// claimed before, so that threads which accept at once take no more than there is.
    pub(super) fn accept(&self) -> Accepted {
        let most = if self.most_connections > 0 { self.most_connections } else { u64::MAX };
        let claim = |count: u64| (count < most).then_some(count + 1);
        let Ok(before) = self.accepted.fetch_update(Relaxed, Relaxed, claim) else {
            return Accepted::Nothing;
        };
        let accepted = self.sockets.accept();
        if !matches!(accepted, Accepted::Connection(_)) {
            self.accepted.fetch_sub(1, Relaxed);
        } else if before + 1 == most {
            // Another may still give back a share that it claimed in vain.
            self.is_worn_out.store(true, SeqCst);
            if self.stance.heed(Mode::Drain) {
                self.waker.wake();
            }
        }
        accepted
    }
}

/// A poisoned lock is as good as another: no state is left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
