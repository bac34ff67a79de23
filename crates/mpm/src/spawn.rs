//! The start and the end of a child: forking, dropping every privilege that it does not need,
//! serving, and what the parent does once it has ended. How many children there should be is
//! decided in `sizing`.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_scoreboard::{LineBuffers, Scoreboard, Slots};
use evenkeel_sys::channel::Channel;
use evenkeel_sys::process::{self, End, Side};
use evenkeel_sys::signal::{self, Signal};
use evenkeel_sys::{clock, identity};

use crate::change::{Base, State};
use crate::child::{Child, Command, Control, Report};
use crate::children::{ChildEntry, Place};
use crate::detach;
use crate::limits::Model;
use crate::listeners::Listeners;
use crate::notices::ParentEvent;
use crate::parent::{Parent, Prepared, prepare};
use crate::pidfile::PidFile;
use crate::settings::{Generation, Server, Settings, Start};
use crate::supervisor::Supervisor;

/// The exit status with which a child says that another would fail in the same way
/// (include/ap_mpm.h, APEXIT_CHILDFATAL).
pub(crate) const CHILD_FATAL: i32 = 15;

/// The exit status of a child whose serving function has panicked.
const PANICKED: i32 = 101;

/// A child that dies before this age counts as an early death.
const YOUNG_US: u64 = 1_000_000;

/// Delays the replacement of children that keep dying early, or that are killed as fast as they are
/// started, as the kernel does when memory runs out.
#[derive(Default)]
pub(crate) struct BackOff {
    // The times of early deaths within the last ten seconds.
    young: VecDeque<u64>,
    // The times of forks, and of as many kills from outside, within the same time.
    forked: VecDeque<u64>,
    killed: VecDeque<u64>,
    until_us: Option<u64>,
}

impl BackOff {
    const MEMORY_US: u64 = 10_000_000;
    const FREE_OF_CHARGE: usize = 4;
    const KILLS_FREE_OF_CHARGE: usize = 16;
    const MOMENT_US: u64 = 20_000;
    const FIRST_WAIT_US: u64 = 100_000;
    const LONGEST_WAIT_US: u64 = 5_000_000;

    /// The first few are replaced at once; then the delay doubles with each.
    fn note_young_death(&mut self, now_us: u64) {
        note(&mut self.young, now_us, 1);
        self.wait_for(self.young.len().saturating_sub(Self::FREE_OF_CHARGE), now_us);
    }

    fn note_fork(&mut self, now_us: u64) {
        note(&mut self.forked, now_us, 1);
    }

    /// Counts a child that was killed from outside, if another was forked lately and no kill was
    /// counted at the same moment: a whole pool that is killed at once is replaced at once. True
    /// when the delay begins.
    fn note_kill(&mut self, now_us: u64) -> bool {
        note(&mut self.forked, now_us, 0);
        let last_us = self.killed.back();
        let is_counted = last_us.is_some_and(|at| now_us.saturating_sub(*at) < Self::MOMENT_US);
        if is_counted || self.forked.pop_front().is_none() {
            return false;
        }
        note(&mut self.killed, now_us, 1);
        let beyond = self.killed.len().saturating_sub(Self::KILLS_FREE_OF_CHARGE);
        self.wait_for(beyond, now_us);
        beyond == 1
    }

    /// The first delay, doubled with each death beyond those without a delay.
    fn wait_for(&mut self, beyond: usize, now_us: u64) {
        if beyond > 0 {
            let doublings = u32::try_from(beyond - 1).unwrap_or(u32::MAX).min(16);
            let wait = (Self::FIRST_WAIT_US << doublings).min(Self::LONGEST_WAIT_US);
            self.wait_until(now_us.saturating_add(wait));
        }
    }

    fn wait_a_second(&mut self, now_us: u64) {
        self.wait_until(now_us.saturating_add(1_000_000));
    }

    /// A longer delay for another reason stays.
    fn wait_until(&mut self, us: u64) {
        self.until_us = self.until_us.max(Some(us));
    }

    fn holds(&mut self, now_us: u64) -> bool {
        self.until_us = self.until_us.filter(|&until| until > now_us);
        self.until_us.is_some()
    }

    pub(crate) fn until_us(&self) -> Option<u64> {
        self.until_us
    }
}

/// Adds `count` events at this time, and forgets old ones.
fn note(times: &mut VecDeque<u64>, now_us: u64, count: usize) {
    times.retain(|&when| now_us.saturating_sub(when) < BackOff::MEMORY_US);
    times.extend(std::iter::repeat_n(now_us, count));
    times.truncate(64);
}

impl<S: Server> Parent<'_, S> {
    /// Forks the children that the current configuration lacks: those that it starts with, or all
    /// if their number is fixed.
    pub(crate) fn maintain_children(&mut self) {
        if self.state.is_stopping() {
            return;
        }
        let wanted = match &self.state {
            State::Changing(change) => change.wanted,
            _ if self.current.limits.fixed => self.current.limits.start_servers,
            _ => return,
        };
        let there = self.children.count(self.current.number).active;
        self.fork(wanted.saturating_sub(there), None);
        // The state is not taken out before: this copy would keep old sockets and logs open in a
        // new child.
        let State::Changing(change) = &self.state else { return };
        if let Some((base, wanted)) = change.old() {
            let there = self.children.count(base.generation.number).active;
            self.fork_of(base, wanted.saturating_sub(there), None);
        }
    }

    /// Forks `count` children of the current configuration for this bucket, or each for the bucket
    /// with the fewest, unless replacement is delayed.
    pub(crate) fn fork(&mut self, count: usize, bucket: Option<usize>) {
        if count > 0 {
            let generation = Rc::clone(&self.current);
            let base = Base { generation, listeners: self.listeners.clone() };
            self.fork_of(base, count, bucket);
        }
    }

    /// The same for any configuration.
    fn fork_of(&mut self, mut base: Base<S::Site>, count: usize, bucket: Option<usize>) {
        let now_us = clock::monotonic_us();
        if count == 0 || self.back_off.holds(now_us) {
            return;
        }
        let taken = self.children.ranks(base.generation.number);
        let mut ranks = (0..).filter(|rank| !taken.contains(rank));
        let mut child_counts = self.child_counts(&base);
        for _ in 0..count {
            let Some(index) = self.children.free_line() else {
                // Lines become free once killed children have ended.
                return;
            };
            let emptiest =
                || (0..child_counts.len()).min_by_key(|bucket| child_counts.get(*bucket));
            let bucket = bucket.or_else(emptiest).unwrap_or(0);
            let rank = ranks.next().unwrap_or(0);
            if let Err(error) = self.spawn(&mut base, Place { index, rank, bucket }) {
                self.log_event(&ParentEvent::ForkFailed(&error));
                self.back_off.wait_a_second(now_us);
                return;
            }
            if let Some(count) = child_counts.get_mut(bucket) {
                *count += 1;
            }
        }
    }

    /// How many children of a configuration each bucket has.
    fn child_counts(&self, base: &Base<S::Site>) -> Vec<usize> {
        let mut child_counts = vec![0; base.listeners.buckets()];
        for entry in self.children.active(base.generation.number) {
            if let Some(count) = child_counts.get_mut(entry.bucket) {
                *count += 1;
            }
        }
        child_counts
    }

    fn spawn(&mut self, base: &mut Base<S::Site>, place: Place) -> io::Result<()> {
        let Place { index, rank, bucket } = place;
        let generation = Rc::clone(&base.generation);
        generation.lines.reserve(index)?;
        let (channel, childs_end) = Channel::pair()?;
        let credits = generation.limits.credits(rank);
        let shown = u32::try_from(bucket).unwrap_or(u32::MAX);
        self.board.assign(index, generation.number, shown, credits, clock::realtime_us());
        match process::fork() {
            Ok(Side::Parent(pid)) => {
                let now_us = clock::monotonic_us();
                self.back_off.note_fork(now_us);
                self.children.add(pid, place, generation, channel, now_us)
            }
            Ok(Side::Child) => {
                drop(channel);
                self.current = generation;
                // Taken out, since no other copy may keep a socket open that the child closes.
                self.listeners = std::mem::replace(&mut base.listeners, Listeners::none());
                let status = self.serve_as_child(place, credits, childs_end);
                process::exit_now(status)
            }
            Err(error) => {
                self.board.release(index);
                Err(error)
            }
        }
    }

    /// The life of a child: drops what belongs to the parent, then serves.
    fn serve_as_child(&mut self, place: Place, credits: usize, channel: Channel) -> i32 {
        self.current.oom_score.apply();
        let buffers = self.current.lines.take(place.index);
        let of_children = self.children.all().map(|entry| &entry.generation);
        let earlier = of_children.chain(self.state.generation_before());
        earlier.for_each(|generation| self.server.disown(&generation.site));
        self.children.forget();
        self.state.forget();
        self.signals = None;
        let left =
            self.start_report.take().map_or(Ok(()), |_told_by_the_parent| detach::leave_caller());
        self.predecessor = None;
        self.supervisor = Supervisor::default();
        let listeners = std::mem::replace(&mut self.listeners, Listeners::none());
        let ignored =
            [Signal::Interrupt, Signal::Hangup, Signal::User1, Signal::User2, Signal::WindowChange];
        let wake = Report::EndRequested.byte();
        let prepared = left
            .and_then(|()| {
                signal::serve_signals(&ignored, &[Signal::Terminate], channel.as_fd(), wake)
            })
            .and(buffers)
            .and_then(|buffers| {
                make_child(&self.current, self.board, &listeners, place, credits, buffers, {
                    let line = self.board.child_line(place.index);
                    Control::new(channel, line.ok_or(io::ErrorKind::InvalidInput)?, None)
                })
            })
            .and_then(|child| {
                drop_rights(&self.current.settings)?;
                Ok(child)
            });
        drop(listeners);
        match prepared {
            Ok(child) => serve(self.server, &self.current.site, child),
            Err(error) => {
                let limit = process::descriptor_limit(&error);
                self.log_event(&ParentEvent::Root(&format!(
                    "a child cannot serve: {error}{limit}"
                )));
                CHILD_FATAL
            }
        }
    }

    /// Handles the end of a child that has used `used_us` of CPU time.
    pub(crate) fn record_exit(&mut self, entry: ChildEntry<S::Site>, end: End, used_us: u64) {
        let now_us = clock::monotonic_us();
        let store = &entry.generation.lines;
        let lost = salvage(self.server, &entry.generation.site, store.count(), |buffer| {
            store.leftover(entry.index, buffer)
        });
        store.clear(entry.index);
        if lost > 0 {
            self.log_event(&ParentEvent::LinesLost(entry.pid, lost));
        }
        self.accounting.record_exit(entry.number, self.board.child_line(entry.index), used_us);
        self.board.release(entry.index);
        self.server.child_ended(entry.index);
        let (user_us, system_us) = clock::reaped_children_cpu_us();
        let (inherited_user_us, inherited_system_us) = self.inherited_cpu_us;
        self.board.note_reaped_cpu(
            user_us.saturating_sub(inherited_user_us),
            system_us.saturating_sub(inherited_system_us),
        );
        self.size_now();
        if entry.killed {
            return;
        }
        self.log_event(&ParentEvent::Ended(entry.pid, end));
        if entry.phase.is_stopping() {
            return;
        }
        let is_young = now_us.saturating_sub(entry.forked_us) < YOUNG_US;
        // A child that ends after its last connection causes no delay.
        let is_killed = end.is_killed_by(Signal::Kill);
        let crashed = end != End::Exited(0) && !is_killed;
        if !entry.served || (is_young && crashed) {
            self.back_off.note_young_death(now_us);
        } else if is_killed && self.back_off.note_kill(now_us) {
            self.log_event(&ParentEvent::KilledAgain);
        }
        if !entry.served {
            self.note_failed_start(&entry, end);
        }
    }
}

/// Serves in the calling process, without a parent or children. Signals act as commands.
pub(crate) fn serve_alone<S: Server>(
    server: &mut S,
    start: &Start,
    sockets: Vec<(OwnedFd, String)>,
) -> Result<i32, String> {
    let Prepared { mut generation, listeners, board, pid_file, .. } =
        prepare(server, &start.program, sockets, None)?;
    (generation.limits.start_servers, generation.limits.fixed) = (1, true);
    let failed = |error: io::Error| format!("cannot serve in one process: {error}");
    let settings = Arc::clone(&generation.settings);
    let buffers = LineBuffers::new(settings.log_buffers, settings.log_buffer_bytes);
    let buffers = buffers.map_err(failed)?;
    let (channel, other_end) = Channel::pair().map_err(failed)?;
    let ended_by = [Signal::Terminate, Signal::Interrupt, Signal::Hangup];
    let ignored = [Signal::User1, Signal::User2, Signal::WindowChange];
    signal::serve_signals(&ignored, &ended_by, other_end.as_fd(), Command::ExitLast.byte())
        .map_err(failed)?;
    let credits = generation.limits.credits(0);
    let now_us = clock::realtime_us();
    let own_pid = process::own_pid().as_raw_nonzero().get();
    board.note_start(now_us, 0, own_pid, 1);
    board.assign(0, 0, 0, credits, now_us);
    if let Some(line) = board.parent_line(0) {
        line.set_pid(own_pid);
        line.set_phase(evenkeel_scoreboard::Phase::Running);
    }
    let place = Place { index: 0, rank: 0, bucket: 0 };
    let listeners = listeners.into_one();
    let line = board.child_line(0).ok_or("cannot serve in one process: no scoreboard line")?;
    let control = Control::new(channel, line, Some(other_end));
    let child =
        make_child(&generation, board, &listeners, place, credits, buffers.clone(), control);
    let child = child.map_err(failed)?;
    drop(listeners);
    for event in [
        ParentEvent::Resuming(&settings.server_text),
        ParentEvent::CommandLine(&start.command_line),
    ] {
        event.notice(generation.limits.model).iter().for_each(|notice| server.log(notice));
    }
    drop_rights(&settings).map_err(failed)?;
    let status = serve(server, &generation.site, child);
    let lost = salvage(server, &generation.site, buffers.count(), |at| buffers.leftover(at));
    if lost > 0 {
        let event = ParentEvent::LinesLost(process::own_pid(), lost);
        event.notice(generation.limits.model).iter().for_each(|notice| server.log(notice));
    }
    if let Some(file) = pid_file.filter(PidFile::remove) {
        let removed = ParentEvent::RemovedPidFile(file.path()).notice(generation.limits.model);
        removed.iter().for_each(|notice| server.log(notice));
    }
    Ok(status)
}

/// Has the log lines written that a child left in its buffers. Returns how many bytes were lost, in
/// all buffers together.
fn salvage<S: Server>(
    server: &S,
    site: &S::Site,
    count: usize,
    leftover: impl Fn(usize) -> Vec<u8>,
) -> usize {
    let left = (0..count).map(|buffer| (buffer, leftover(buffer)));
    let left = left.filter(|(_, lines)| !lines.is_empty());
    left.map(|(buffer, lines)| server.salvage(site, buffer, &lines)).fold(0, usize::saturating_add)
}

fn make_child<Site>(
    generation: &Generation<Site>,
    board: Scoreboard,
    listeners: &Listeners,
    place: Place,
    credits: usize,
    buffers: LineBuffers,
    control: Control,
) -> io::Result<Child> {
    let nobody_waits = generation.limits.fixed && generation.limits.model == Model::Event;
    let control = if nobody_waits { control.without_demand_signal() } else { control };
    let index = place.index;
    let control = control.with_budget(board.parent_line(index));
    Ok(Child {
        index,
        rank: place.rank,
        generation: generation.number,
        credits,
        listeners: listeners.for_child(place.bucket)?,
        control,
        board,
        line: board.child_line(index).ok_or(io::ErrorKind::InvalidInput)?,
        slots: Slots::new(board, index, credits),
        buffers,
        settings: Arc::clone(&generation.settings),
        limits: generation.limits,
    })
}

/// A panic of the serving function ends this process and never continues in code of the parent.
fn serve<S: Server>(server: &S, site: &S::Site, child: Child) -> i32 {
    catch_unwind(AssertUnwindSafe(|| server.serve(site, child))).unwrap_or(PANICKED)
}

/// Takes the configured identity. No child keeps a capability or can gain one.
fn drop_rights(settings: &Settings) -> io::Result<()> {
    let dumpable = settings.core_dumps.is_some();
    if let Some(folder) = settings.core_dumps.as_deref() {
        std::env::set_current_dir(folder)?;
    }
    if let Some(folder) = settings.chroot.as_deref() {
        identity::chroot(folder)?;
    }
    match settings.identity.as_ref().filter(|_| identity::is_root()) {
        Some(identity) => identity::drop_privileges(identity, dumpable),
        None => identity::give_up_capabilities(dumpable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_early_deaths_are_replaced_at_once_and_more_ever_later() {
        let mut back_off = BackOff::default();
        for death in 0..4 {
            back_off.note_young_death(death);
            assert!(!back_off.holds(death));
        }
        back_off.note_young_death(10);
        assert_eq!(back_off.until_us(), Some(100_010));
        back_off.note_young_death(20);
        assert_eq!(back_off.until_us(), Some(200_020));
        for _ in 0..40 {
            back_off.note_young_death(30);
        }
        assert_eq!(back_off.until_us(), Some(5_000_030));
        assert!(!back_off.holds(5_000_030));
        back_off.note_young_death(60_000_000);
        assert!(!back_off.holds(60_000_000));
    }

    #[test]
    fn children_that_are_killed_as_fast_as_they_start_wait_and_a_pool_killed_at_once_does_not() {
        let mut back_off = BackOff::default();
        // None was forked lately.
        assert!((0..100).all(|now| !back_off.note_kill(now * BackOff::MOMENT_US)));
        // A whole pool at once, which was forked just before.
        (0..64).for_each(|_| back_off.note_fork(9_000_000));
        assert!((0..64).all(|at| !back_off.note_kill(9_000_000 + at)));
        assert!(!back_off.holds(9_000_064));
        let tells: Vec<bool> = (1..20)
            .map(|number| {
                let now_us = 9_000_000 + number * BackOff::MOMENT_US;
                back_off.note_fork(now_us);
                back_off.note_kill(now_us)
            })
            .collect();
        assert_eq!(tells.iter().position(|told| *told), Some(15));
        assert_eq!(tells.iter().filter(|told| **told).count(), 1);
        assert_eq!(back_off.until_us(), Some(9_380_000 + 800_000));
        // A longer delay for another reason stays.
        back_off.wait_a_second(9_400_000);
        back_off.wait_until(9_500_000);
        assert_eq!(back_off.until_us(), Some(10_400_000));
        // Ten seconds later all is forgotten.
        back_off.note_fork(30_000_000);
        assert!(!back_off.note_kill(30_000_000) && !back_off.holds(30_000_000));
    }
}
