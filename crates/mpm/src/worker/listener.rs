//! The listener of a child: it hears the parent, accepts while a worker is idle, and sees to it
//! that clients which hold workers for nothing do not keep others out.

use super::Shared;
use crate::dedicated::contention::Contention;
use crate::dedicated::listen_set::{Accepted, ListenSet};
use crate::dedicated::{CHECK_US, PAUSE, PAUSE_US};
use crate::setup::{Control, Mode};
use crate::{Command, Poker};
use evenkeel_message::{Level, Notice};
use evenkeel_scoreboard::Counter;
use evenkeel_sys::clock;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// How often the parent sees the listener's heart beat.
const BEAT: Duration = Duration::from_secs(1);

/// How often the queue is looked at while no worker is idle.
const LOOK: Duration = Duration::from_micros(CHECK_US);

/// After how long one idle worker is enough to accept again.
const RETURN_US: u64 = 10_000;

pub(super) struct Listener<'a> {
    shared: &'a Shared,
    listen_set: ListenSet,
    /// None once the parent is dead.
    control: Option<Box<dyn Control + Send>>,
    poker: Option<Poker>,
    most_children: usize,
    /// How many must be idle before it accepts again.
    enough: usize,
    mode: Mode,
    /// When it was told to go, in microseconds of the monotonic clock.
    leave_us: u64,
    /// Since when it accepts nothing because nobody was idle.
    left_us: Option<u64>,
    /// Until when it accepts nothing because the system denies it.
    paused_until_us: u64,
    /// When it last saw to it that room is made.
    looked_us: u64,
}

impl<'a> Listener<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        listen_set: ListenSet,
        control: Box<dyn Control + Send>,
        most_children: usize,
    ) -> io::Result<Self> {
        listen_set.add_control(&*control)?;
        listen_set.add_control(&shared.waker)?;
        Ok(Self {
            shared,
            listen_set,
            poker: control.poker(),
            control: Some(control),
            most_children,
            enough: (shared.staff.posts().len() / 16).max(1),
            mode: Mode::Run,
            leave_us: 0,
            left_us: None,
            paused_until_us: 0,
            looked_us: 0,
        })
    }

    /// Lives until the child has nothing more to do.
    pub(super) fn live(mut self) {
        if let Some(control) = &self.control {
            control.ready();
        }
        while let Err(error) = self.go_round() {
            let text = "the listener is in trouble";
            if let Some(number) = self.shared.staff.call() {
                let notice = Notice::own("mpm_worker", Level::Error, text).because(&error);
                self.shared.staff.have_told(number, notice);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Goes round until the end. An error is the system's, who denies a change of the set.
    fn go_round(&mut self) -> io::Result<()> {
        loop {
            self.shared.line.set(Counter::HeartbeatUs, clock::monotonic_coarse_us());
            self.follow();
            if self.mode >= Mode::Drain {
                self.leave();
                if self.has_closed() && self.shared.staff.is_at_rest() {
                    return Ok(());
                }
            }
            let (inside, most) = self.place();
            self.listen_set.set_watched(inside)?;
            let ready = self.listen_set.wait(Some(most))?;
            if ready.control {
                self.shared.waker.reset();
                self.hear();
            }
            // Who was woken by a connection has woken nobody else.
            if ready.connection {
                self.accept();
            }
            self.look();
        }
    }

    /// Hears the parent, until it is dead.
    fn hear(&mut self) {
        while let Some(command) = self.control.as_mut().and_then(|control| control.next()) {
            if let Some(mode) = Mode::of(command) {
                self.shared.stance.heed(mode);
            }
            if matches!(command, Command::MakeRoom | Command::MakeRoomUrgently)
                && self.shared.stance.mode() == Mode::Run
            {
                self.accept();
            }
            if command == Command::Orphaned
                && let Some(control) = self.control.take()
            {
                self.listen_set.remove_control(&*control);
            }
        }
    }

    /// Takes up how the child stands now.
    fn follow(&mut self) {
        let mode = self.shared.stance.mode();
        if mode == self.mode {
            return;
        }
        self.mode = mode;
        if let Some(control) =
            self.control.as_ref().filter(|_| self.shared.is_worn_out.load(SeqCst))
        {
            control.leaving();
        }
        if mode >= Mode::Drain && self.leave_us == 0 {
            self.leave_us = clock::monotonic_us();
        }
        if mode == Mode::Exit {
            self.shared.staff.posts().iter().for_each(|post| post.rouse());
        }
    }

    /// Leaves the ports for good when nothing waits there, or has not been taken in time: this may
    /// be the last child that can take it.
    fn leave(&mut self) {
        if self.has_closed() {
            return;
        }
        self.accept();
        let parting_us = u64::try_from(self.shared.parting.as_micros()).unwrap_or(u64::MAX);
        let is_over = clock::monotonic_us().saturating_sub(self.leave_us) >= parting_us;
        // The set must let go of the sockets before they are others.
        if (is_over || self.listen_set.sockets.queue() == 0)
            && self.listen_set.set_watched(false).is_ok()
        {
            self.shared.has_closed.store(true, SeqCst);
            self.listen_set.sockets.close();
        }
    }

    fn has_closed(&self) -> bool {
        self.shared.has_closed.load(SeqCst)
    }

    /// Whether it stands at the doors, and for how long at most until it thinks again.
    fn place(&mut self) -> (bool, Duration) {
        let staff = &self.shared.staff;
        if self.mode != Mode::Run {
            staff.is_awaited.store(false, SeqCst);
            let leaves = self.mode >= Mode::Drain && !self.has_closed();
            return (false, if leaves { LOOK } else { BEAT });
        }
        let now_us = clock::monotonic_us();
        let paused_us = self.paused_until_us.saturating_sub(now_us);
        if paused_us > 0 {
            return (false, Duration::from_micros(paused_us));
        }
        // Set before the look at who is idle, so that nobody becomes so unheard.
        staff.is_awaited.store(true, SeqCst);
        let idle = staff.idle();
        let Some(left_us) = self.left_us else {
            if idle > 0 {
                staff.is_awaited.store(false, SeqCst);
                return (true, BEAT);
            }
            self.left_us = Some(now_us);
            self.poke();
            return (false, LOOK);
        };
        if idle == 0 {
            return (false, LOOK);
        }
        let wait_us = left_us.saturating_add(RETURN_US).saturating_sub(now_us);
        if idle < self.enough && wait_us > 0 {
            return (false, Duration::from_micros(wait_us));
        }
        self.left_us = None;
        staff.is_awaited.store(false, SeqCst);
        (true, BEAT)
    }

    fn poke(&self) {
        if let Some(poker) = &self.poker {
            poker.poke();
        }
    }

    /// Accepts what waits, as long as somebody is idle.
    fn accept(&mut self) {
        let (staff, line) = (&self.shared.staff, &self.shared.line);
        while let Some(number) = staff.call() {
            line.add(Counter::Reserved, 1);
            let accepted = self.shared.accept();
            if matches!(accepted, Accepted::Connection(_)) {
                line.add(Counter::Busy, 1);
            }
            line.subtract(Counter::Reserved, 1);
            match accepted {
                Accepted::Connection(connection) => {
                    self.shared.denied.store(false, Relaxed);
                    staff.give(number, connection);
                    if !self.shared.may_take() {
                        return;
                    }
                }
                Accepted::Nothing => {
                    self.shared.denied.store(false, Relaxed);
                    return staff.stand(number);
                }
                Accepted::Denied(error) => {
                    self.shared.denied.store(true, Relaxed);
                    self.paused_until_us = clock::monotonic_us().saturating_add(PAUSE_US);
                    match self.listen_set.denial(&error) {
                        Some(notice) => staff.have_told(number, notice),
                        None => staff.stand(number),
                    }
                    return;
                }
            }
        }
    }

    /// Looks whether connections wait that nobody here can take, and makes room for them.
    fn look(&mut self) {
        let denied = self.shared.denied.load(Relaxed);
        if self.mode != Mode::Run || self.shared.staff.idle() > 0 && !denied {
            return self.shared.lookout.clear();
        }
        let now_us = clock::monotonic_us();
        if now_us.saturating_sub(self.looked_us) < CHECK_US {
            return;
        }
        self.looked_us = now_us;
        if self.shared.lookout.stands(|| self.shared.unserved()) {
            let queue = self.listen_set.sockets.queue();
            self.make_room(queue.div_ceil(self.most_children.max(1)));
        }
    }

    /// Presses so many of those whose clients keep them waiting: idle ones first, the longest
    /// waits first.
    fn make_room(&self, count: usize) {
        let now_us = clock::monotonic_us();
        let posts = self.shared.staff.posts();
        let waits = posts.iter().filter_map(|post| post.client_wait.current());
        let contention = Contention::of(waits, posts.len(), count, self.most_children, now_us);
        let evicted = posts.iter().filter_map(|post| {
            let (wait, since_us) = post.client_wait.current()?;
            Some((wait, since_us, contention.eviction(wait, since_us, now_us)?, post))
        });
        let mut evicted: Vec<_> = evicted.collect();
        evicted.sort_unstable_by_key(|(wait, since_us, ..)| (*wait, *since_us));
        evicted.into_iter().take(count).for_each(|(_, _, eviction, post)| post.evict(eviction));
    }
}
