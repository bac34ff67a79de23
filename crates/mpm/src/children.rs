//! The parent's table of its children: pids, channels, phases and deadlines. It is in the parent's
//! own memory and therefore trusted; the scoreboard only shows it. Callers fork and reap. The work
//! in each pass of the parent's loop does not grow with the number of children.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use evenkeel_scoreboard::{Counter, Phase, Scoreboard};
use evenkeel_sys::channel::{Channel, Received};
use evenkeel_sys::clock;
use evenkeel_sys::epoll::{Epoll, Events};
use evenkeel_sys::process::{self, Pid};
use evenkeel_sys::resources;
use evenkeel_sys::signal::Signal;

use crate::child::{Command, Report};
use crate::limits::Model;
use crate::settings::Generation;
use crate::stall_detector::{StallAction, StallDetector};

/// A child.
pub(crate) struct ChildEntry<Site> {
    pub(crate) pid: Pid,
    /// The number of the child among all that were ever forked: the larger, the newer.
    pub(crate) number: u64,
    /// The index of its lines in the scoreboard.
    pub(crate) index: usize,
    /// Its position among the serving children of its generation, which determines its share of the
    /// credits.
    pub(crate) rank: usize,
    /// The bucket of listening sockets from which it accepts.
    pub(crate) bucket: usize,
    pub(crate) generation: Rc<Generation<Site>>,
    pub(crate) phase: Phase,
    /// Since when it is in that phase.
    pub(crate) phase_since_us: u64,
    pub(crate) forked_us: u64,
    /// Whether it has ever served.
    pub(crate) served: bool,
    /// When it is killed if it still lives.
    pub(crate) end_by_us: Option<u64>,
    /// Whether the parent has killed it.
    pub(crate) killed: bool,
    pub(crate) channel: Channel,
    stalls: StallDetector,
    // A command that could not be sent because the child did not read.
    unsent: Option<Command>,
}

/// The place of a new child: see the fields of [`ChildEntry`] with these names.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) rank: usize,
    pub(crate) bucket: usize,
}

/// All children.
pub(crate) struct Children<Site> {
    board: Scoreboard,
    /// The children by number, and the numbers by pid.
    entries: BTreeMap<u64, ChildEntry<Site>>,
    numbers: HashMap<Pid, u64>,
    /// The lines of the scoreboard that no child uses.
    free_lines: BTreeSet<usize>,
    /// How many children were ever forked.
    forked: u64,
    /// How many children may serve, and how many may retire.
    table: usize,
    /// An epoll set of their channels, except those that are closed; none in a process that is not
    /// the parent.
    set: Option<Epoll>,
    events: Events,
    /// When reports are read again.
    next_receive_us: u64,
    /// The children to which a command could not be sent.
    unsent: BTreeSet<u64>,
    /// The earliest deadline, or a time before it; none if there is no deadline.
    earliest_us: Option<u64>,
    /// Whether children have begun to retire since the last check for surplus ones.
    some_retired: bool,
    /// The last counts of each generation, until something changes.
    counts: BTreeMap<u32, Count>,
}

/// How many children of a generation are not ending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Those that serve or are starting.
    pub(crate) active: usize,
    /// Those of them that have served.
    pub(crate) served: usize,
}

/// The children that are stalled.
#[derive(Default)]
pub(crate) struct StalledChildren {
    /// Long enough to be reported.
    pub(crate) reported: Vec<Pid>,
    /// Long enough to be replaced.
    pub(crate) replaced: Vec<Pid>,
    /// Those for which connections wait in their bucket, while no other child accepts them.
    pub(crate) starving: Vec<Pid>,
}

/// What the children have reported.
#[derive(Default)]
pub(crate) struct Reports {
    /// The numbers of children that were sent SIGTERM, or that have accepted all connections that
    /// they may.
    pub(crate) end_requested: BTreeSet<u64>,
    /// Whether a child has run out of credits.
    pub(crate) has_demand: bool,
}

/// How long a child may take to start serving.
pub(crate) const START_US: u64 = 60_000_000;

/// How long no reports are read after some were: a child that reports without end wakes the parent
/// no more often than this.
const RECEIVE_INTERVAL_US: u64 = 10_000;

/// How many children are read at a time, and how many reports of each. A child with more to report
/// is read again after all others.
const MAX_EVENTS: usize = 256;
const MAX_REPORTS: usize = 4;

/// How many reports of a dead child are read at most: its channel holds fewer.
const MAX_LAST_REPORTS: usize = 1024;

/// How long a child may live after its channel was closed, which happens only when it dies; then it
/// is killed.
const NO_CHANNEL_US: u64 = 1_000_000;

impl<Site> Children<Site> {
    /// An empty table; `table` is how many children may serve, and how many may retire. Errors are
    /// the system's, if it denies an epoll set for the channels.
    pub(crate) fn new(board: Scoreboard, table: usize) -> io::Result<Self> {
        Ok(Self {
            board,
            entries: BTreeMap::new(),
            numbers: HashMap::new(),
            free_lines: (0..board.layout().children).collect(),
            forked: 0,
            table,
            set: Some(Epoll::new()?),
            events: Events::with_capacity(MAX_EVENTS),
            next_receive_us: 0,
            unsent: BTreeSet::new(),
            earliest_us: None,
            some_retired: false,
            counts: BTreeMap::new(),
        })
    }

    /// How many children may serve or be parked, and how many may retire.
    pub(crate) fn table(&self) -> usize {
        self.table
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all children, in a process that is not their parent.
    pub(crate) fn forget(&mut self) {
        // The epoll set is dropped as it is, since the parent uses it too.
        self.set = None;
        self.entries.values().for_each(|entry| entry.generation.lines.forget());
        self.entries.clear();
    }

    /// Adds a child that was just forked. On an error, the system has denied a place for its
    /// channel in the epoll set: the parent cannot read its reports, and kills it.
    pub(crate) fn add(
        &mut self,
        pid: Pid,
        place: Place,
        generation: Rc<Generation<Site>>,
        channel: Channel,
        now_us: u64,
    ) -> io::Result<()> {
        let Place { index, rank, bucket } = place;
        if let Some(line) = self.board.parent_line(index) {
            line.set_pid(pid.as_raw_nonzero().get());
        }
        self.forked += 1;
        let number = self.forked;
        let watched = self.set.as_ref().map(|set| set.add_level_triggered(&channel, number));
        let end_by_us = now_us.saturating_add(START_US);
        let entry = ChildEntry {
            pid,
            number,
            index,
            rank,
            bucket,
            generation,
            phase: Phase::Starting,
            phase_since_us: now_us,
            forked_us: now_us,
            served: false,
            end_by_us: Some(end_by_us),
            killed: false,
            channel,
            stalls: StallDetector::default(),
            unsent: None,
        };
        self.entries.insert(number, entry);
        self.numbers.insert(pid, number);
        self.free_lines.remove(&index);
        self.note_deadline(end_by_us);
        self.counts.clear();
        let watched = watched.unwrap_or(Ok(()));
        if watched.is_err() {
            self.kill(|entry| entry.number == number);
        }
        watched
    }

    /// Removes the child with this pid.
    pub(crate) fn remove(&mut self, pid: Pid) -> Option<ChildEntry<Site>> {
        let number = self.numbers.remove(&pid)?;
        let mut entry = self.entries.remove(&number)?;
        entry.receive_last_reports();
        if let Some(set) = &self.set {
            // The channel is out of the set already if its end was seen before.
            let _ = set.remove(&entry.channel);
        }
        self.unsent.remove(&number);
        self.free_lines.insert(entry.index);
        self.counts.clear();
        Some(entry)
    }

    /// The lowest line of the scoreboard that no child uses.
    pub(crate) fn free_line(&self) -> Option<usize> {
        self.free_lines.first().copied()
    }

    /// The ranks of the serving children of a generation.
    pub(crate) fn ranks(&self, generation: u32) -> BTreeSet<usize> {
        self.active(generation).map(|entry| entry.rank).collect()
    }

    /// How many children of a generation are not ending.
    pub(crate) fn count(&mut self, generation: u32) -> Count {
        if let Some(count) = self.counts.get(&generation) {
            return *count;
        }
        let mut count = Count::default();
        for entry in self.active(generation) {
            count.active += 1;
            count.served += usize::from(entry.served);
        }
        self.counts.insert(generation, count);
        count
    }

    fn note_deadline(&mut self, end_by_us: u64) {
        self.earliest_us = Some(self.earliest_us.map_or(end_by_us, |other| other.min(end_by_us)));
    }

    /// The children of a generation that serve or are starting.
    pub(crate) fn active(&self, generation: u32) -> impl Iterator<Item = &ChildEntry<Site>> {
        let is_active = move |entry: &&ChildEntry<Site>| {
            entry.generation.number == generation && !entry.phase.is_stopping()
        };
        self.entries.values().filter(is_active)
    }

    /// Tells every child that `which` selects to drain or to exit. Those that live at `end_by_us`
    /// are killed.
    pub(crate) fn retire(
        &mut self,
        command: Command,
        end_by_us: Option<u64>,
        which: impl Fn(&ChildEntry<Site>) -> bool,
    ) {
        let numbers = self.entries.values().filter(|entry| which(entry));
        let numbers: Vec<u64> = numbers.map(|entry| entry.number).collect();
        self.retire_these(command, end_by_us, &numbers);
    }

    /// The same for the children with these numbers.
    pub(crate) fn retire_these(
        &mut self,
        command: Command,
        end_by_us: Option<u64>,
        numbers: &[u64],
    ) {
        let phase = match command {
            Command::Exit | Command::ExitLast => Phase::Exiting,
            _ => Phase::Draining,
        };
        let now_us = clock::monotonic_us();
        for number in numbers {
            let Some(entry) = self.entries.get_mut(number) else { continue };
            if !entry.phase.is_stopping() {
                entry.phase_since_us = now_us;
            }
            entry.phase = phase;
            if let Some(line) = self.board.parent_line(entry.index) {
                line.set_phase(phase);
            }
            entry.end_by_us = match (entry.end_by_us, end_by_us) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            entry.send(command, &mut self.unsent);
        }
        if let Some(end_by_us) = end_by_us {
            self.note_deadline(end_by_us);
        }
        self.some_retired = true;
        self.counts.clear();
    }

    /// All children.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ChildEntry<Site>> {
        self.entries.values()
    }

    /// Parks the child with this number, or has it accept again.
    pub(crate) fn park(&mut self, number: u64, parked: bool, now_us: u64) {
        let (from, to, command) = match parked {
            true => (Phase::Running, Phase::Parked, Command::Park),
            false => (Phase::Parked, Phase::Running, Command::Run),
        };
        let entry = self.entries.get_mut(&number).filter(|entry| entry.phase == from);
        if let Some(entry) = entry {
            (entry.phase, entry.phase_since_us) = (to, now_us);
            if let Some(line) = self.board.parent_line(entry.index) {
                line.set_phase(to);
            }
            entry.send(command, &mut self.unsent);
        }
    }

    /// Sends a command to the children with these numbers. It is not repeated to a child that does
    /// not read.
    pub(crate) fn send(&self, numbers: &[u64], command: Command) {
        for entry in numbers.iter().filter_map(|number| self.entries.get(number)) {
            let _ = entry.channel.send(command.byte());
        }
    }

    /// Kills the children that `which` selects.
    pub(crate) fn kill(&mut self, which: impl Fn(&ChildEntry<Site>) -> bool) {
        self.some_retired = true;
        self.counts.clear();
        for entry in self.entries.values_mut().filter(|entry| which(entry)) {
            entry.killed = true;
            entry.phase = Phase::Exiting;
            // The child is not reaped yet, so the pid is still its own; it may be dead already.
            let _ = process::kill(entry.pid, Signal::Kill);
        }
    }

    /// Kills the children whose deadline has passed. Returns their pids.
    pub(crate) fn kill_overdue(&mut self, now_us: u64) -> Vec<Pid> {
        if self.earliest_us.is_none_or(|earliest_us| now_us < earliest_us) {
            return Vec::new();
        }
        let is_overdue = |entry: &ChildEntry<Site>| {
            !entry.killed && entry.end_by_us.is_some_and(|end_by| end_by <= now_us)
        };
        let overdue = self.entries.values().filter(|entry| is_overdue(entry));
        let overdue = overdue.map(|entry| entry.pid).collect();
        self.kill(is_overdue);
        let pending = self.entries.values().filter(|entry| !entry.killed);
        self.earliest_us = pending.filter_map(|entry| entry.end_by_us).min();
        overdue
    }

    /// Kills retiring children until at most `most` are left, and returns their pids: all of the
    /// oldest generation, but of the present one only as many as necessary, those first that have
    /// retired the longest.
    pub(crate) fn kill_surplus(&mut self, most: usize, present: u32) -> Vec<Pid> {
        let mut all = Vec::new();
        while std::mem::take(&mut self.some_retired) {
            let is_retiring =
                |entry: &&ChildEntry<Site>| entry.phase.is_stopping() && !entry.killed;
            let mut retiring: Vec<_> = self.entries.values().filter(is_retiring).collect();
            let surplus = retiring.len().saturating_sub(most);
            if surplus == 0 {
                break;
            }
            // Generations are compared by age, because their numbers wrap.
            let age = |entry: &ChildEntry<Site>| present.wrapping_sub(entry.generation.number);
            retiring.sort_by_key(|entry| (std::cmp::Reverse(age(entry)), entry.phase_since_us));
            let oldest = retiring.first().map_or(0, |entry| age(entry));
            let of_oldest = retiring.iter().take_while(|entry| age(entry) == oldest);
            let count = if oldest == 0 { surplus } else { of_oldest.count() };
            let pids: Vec<Pid> = retiring.iter().take(count).map(|entry| entry.pid).collect();
            self.kill(|entry| pids.contains(&entry.pid));
            all.extend(pids);
        }
        all
    }

    /// Checks the heartbeat of every serving child. It is called once a tick; `waits` tells for
    /// each bucket whether connections wait.
    pub(crate) fn detect_stalls(&mut self, waits: &[bool]) -> StalledChildren {
        let mut stalled = StalledChildren::default();
        let board = self.board;
        let bucket_of = |bucket: usize| bucket.checked_rem(waits.len()).unwrap_or(0);
        let others_wait = |bucket| waits.get(bucket_of(bucket)) == Some(&true);
        for entry in self.entries.values_mut().filter(|entry| entry.served) {
            let others_wait = others_wait(entry.bucket);
            let beat = entry.heartbeat(board, others_wait);
            let pid = entry.pid.as_raw_nonzero().get();
            match entry.stalls.observe(beat, || others_wait && !resources::wants_processor(pid)) {
                StallAction::None => {}
                StallAction::Report => stalled.reported.push(entry.pid),
                StallAction::Replace => stalled.replaced.push(entry.pid),
            }
        }
        for bucket in 0..waits.len() {
            let serves = |entry: &&ChildEntry<Site>| {
                entry.phase == Phase::Running && bucket_of(entry.bucket) == bucket
            };
            let all = || self.entries.values().filter(serves);
            // A child whose workers are all busy accepts nothing either.
            if all().all(|entry| entry.stalls.starves_others() || entry.is_full(board)) {
                let starving = all().filter(|entry| entry.stalls.starves_others());
                stalled.starving.extend(starving.map(|entry| entry.pid));
            }
        }
        stalled
    }

    /// Reads the reports of the children, of as many as are read at a time.
    pub(crate) fn receive(&mut self, now_us: u64) -> Reports {
        let mut reports = Reports::default();
        if now_us < self.next_receive_us {
            return reports;
        }
        self.resend();
        let Some(set) = &self.set else { return reports };
        if set.poll(&mut self.events).is_err() || self.events.is_empty() {
            return reports;
        }
        self.next_receive_us = now_us.saturating_add(RECEIVE_INTERVAL_US);
        for at in 0..self.events.len() {
            let Some(ready) = self.events.at(at) else { break };
            self.receive_from(ready.token, now_us, &mut reports);
        }
        reports
    }

    fn receive_from(&mut self, number: u64, now_us: u64, reports: &mut Reports) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        for _ in 0..MAX_REPORTS {
            match entry.channel.receive() {
                Received::Byte(byte) => match Report::from_byte(byte) {
                    Some(Report::Ready) => {
                        entry.note_ready(self.board, now_us);
                        self.counts.clear();
                    }
                    Some(Report::EndRequested) => _ = reports.end_requested.insert(number),
                    Some(Report::Demand) => reports.has_demand = true,
                    None => {}
                },
                Received::Empty => return,
                // The child has closed its end: no more commands or reports.
                Received::Closed => {
                    if let Some(set) = &self.set {
                        // If this fails, the channel is reported again every 10 ms until the child
                        // is dead.
                        let _ = set.remove(&entry.channel);
                    }
                    let end_by_us = now_us.saturating_add(NO_CHANNEL_US);
                    let end_by_us = *entry.end_by_us.get_or_insert(end_by_us);
                    return self.note_deadline(end_by_us);
                }
            }
        }
    }

    /// Sends the commands that could not be sent before.
    fn resend(&mut self) {
        for number in std::mem::take(&mut self.unsent) {
            if let Some(entry) = self.entries.get_mut(&number)
                && let Some(command) = entry.unsent.take()
            {
                entry.send(command, &mut self.unsent);
            }
        }
    }

    /// The descriptor that is readable when a child has reported something or is dead; none while
    /// no reports are read.
    pub(crate) fn descriptor(&self, now_us: u64) -> Option<BorrowedFd<'_>> {
        let set = self.set.as_ref().filter(|_| now_us >= self.next_receive_us);
        set.map(|set| set.as_fd())
    }

    /// Has the next call read reports, however soon it comes.
    pub(crate) fn receive_now(&mut self) {
        self.next_receive_us = 0;
    }

    /// When reports are read again; none if they are read now.
    pub(crate) fn receive_due_us(&self, now_us: u64) -> Option<u64> {
        Some(self.next_receive_us).filter(|until_us| now_us < *until_us)
    }

    /// The next deadline of a child, or a time before it.
    pub(crate) fn next_deadline_us(&self) -> Option<u64> {
        self.earliest_us
    }
}

impl<Site> ChildEntry<Site> {
    /// Whether all of its workers are busy, according to the child.
    pub(crate) fn is_full(&self, board: Scoreboard) -> bool {
        let line = board.child_line(self.index);
        let claim = |counter| line.map_or(0, |line| line.read(counter));
        let working = claim(Counter::Busy).saturating_add(claim(Counter::Reserved));
        working >= self.generation.limits.threads_per_child as u64
    }

    /// The child's last heartbeat; 0 if none is due. A child of prefork has none during a
    /// connection, and sleeps while no connection comes.
    fn heartbeat(&self, board: Scoreboard, others_wait: bool) -> u64 {
        let is_prefork = self.generation.limits.model == Model::Prefork;
        let is_due = !is_prefork || others_wait && !self.is_full(board);
        let line = board.child_line(self.index).filter(|_| is_due);
        line.map_or(0, |line| line.read(Counter::HeartbeatUs))
    }

    /// Sends a command, or keeps it to be sent again.
    fn send(&mut self, command: Command, unsent: &mut BTreeSet<u64>) {
        match self.channel.send(command.byte()) {
            // A child that is gone needs no command.
            Ok(true) | Err(_) => {}
            Ok(false) => {
                self.unsent = Some(command);
                unsent.insert(self.number);
            }
        }
    }

    /// A child that has served and died before its report was read has served all the same.
    fn receive_last_reports(&mut self) {
        let words = std::iter::from_fn(|| match self.channel.receive() {
            Received::Byte(byte) => Some(byte),
            Received::Empty | Received::Closed => None,
        });
        let ready = Report::Ready.byte();
        self.served |= words.take(MAX_LAST_REPORTS).any(|byte| byte == ready);
    }

    fn note_ready(&mut self, board: Scoreboard, now_us: u64) {
        if self.phase == Phase::Starting && !self.served {
            self.end_by_us = None;
            (self.phase, self.phase_since_us) = (Phase::Running, now_us);
            if let Some(line) = board.parent_line(self.index) {
                line.set_phase(Phase::Running);
            }
        }
        self.served = true;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::limits::{self, Moment};
    use crate::settings::Settings;
    use evenkeel_scoreboard::Layout;
    use std::sync::Arc;

    /// A table of `count` children without processes, and the children's ends of their channels.
    pub(crate) fn table(count: usize) -> (Children<()>, Vec<Channel>) {
        let layout = Layout { children: count + 1, slots_per_child: 1 };
        let board = Scoreboard::new(layout).unwrap();
        let mut children = Children::new(board, count).unwrap();
        let ends = (0..count).map(|at| enter(&mut children, at)).collect();
        (children, ends)
    }

    fn enter(children: &mut Children<()>, at: usize) -> Channel {
        let (channel, end) = Channel::pair().unwrap();
        let settings = Arc::new(Settings::default());
        let limits = limits::check(&settings.configured, Moment::Start, 2, 128).0;
        let (site, lines) = (Rc::new(()), settings.line_store().unwrap());
        let oom_score = crate::oom_score::OomScore::default();
        let generation = Generation { number: 0, site, settings, limits, lines, oom_score };
        let index = children.free_line().unwrap();
        let place = Place { index, rank: at, bucket: 0 };
        children.add(pid(at), place, Rc::new(generation), channel, 1_000).unwrap();
        end
    }

    /// A pid that no process has: the kernel assigns none so large.
    fn pid(at: usize) -> Pid {
        Pid::from_raw(0x4000_0000 + i32::try_from(at).unwrap()).unwrap()
    }

    #[test]
    fn a_child_that_talks_without_end_neither_drowns_others_nor_keeps_the_parent_awake() {
        let (mut children, ends) = table(3);
        let mut said = 0;
        while ends[0].send(b'?').unwrap() {
            said += 1;
        }
        let now_us = 5_000_000;
        assert!(said > MAX_REPORTS && children.descriptor(now_us).is_some());
        ends[1].send(Report::Demand.byte()).unwrap();
        ends[2].send(Report::EndRequested.byte()).unwrap();
        let reports = children.receive(now_us);
        assert!(reports.has_demand && reports.end_requested == BTreeSet::from([3]));
        // It has more to report, and does not wake the parent before the interval is over.
        assert!(children.descriptor(now_us + RECEIVE_INTERVAL_US - 1).is_none());
        assert_eq!(children.receive_due_us(now_us + 1), Some(now_us + RECEIVE_INTERVAL_US));
        ends[1].send(Report::Demand.byte()).unwrap();
        assert!(!children.receive(now_us + RECEIVE_INTERVAL_US - 1).has_demand);
        assert!(children.receive(now_us + RECEIVE_INTERVAL_US).has_demand);
        let mut left = 0;
        while let Received::Byte(_) = children.entries[&1].channel.receive() {
            left += 1;
        }
        assert_eq!(said - left, 2 * MAX_REPORTS);
        assert_eq!(children.receive_due_us(now_us + 2 * RECEIVE_INTERVAL_US), None);
        assert!(children.descriptor(now_us + 2 * RECEIVE_INTERVAL_US).is_some());
    }

    #[test]
    fn more_children_than_are_heard_in_a_turn_are_heard_in_the_next() {
        let (mut children, ends) = table(6);
        children.events = Events::with_capacity(4);
        for end in &ends {
            // A child with more reports than are read at a time is read again after the others.
            (0..=MAX_REPORTS).for_each(|_| _ = end.send(Report::EndRequested.byte()).unwrap());
        }
        let first = children.receive(1_000_000).end_requested;
        let second = children.receive(2_000_000).end_requested;
        assert_eq!((first.len(), second.len()), (4, 4));
        assert_eq!(&first | &second, (1..=ends.len() as u64).collect());
    }

    #[test]
    fn a_child_without_a_channel_is_heard_no_more_and_killed() {
        let (mut children, mut ends) = table(2);
        for end in &ends {
            end.send(Report::Ready.byte()).unwrap();
        }
        children.receive(1_000_000);
        assert_eq!(children.count(0), Count { active: 2, served: 2 });
        drop(ends.remove(0));
        children.receive(2_000_000);
        let end_by_us = 2_000_000 + NO_CHANNEL_US;
        assert!(children.kill_overdue(end_by_us - 1).is_empty());
        children.receive(2_500_000);
        assert_eq!(children.receive_due_us(2_500_000), None, "there was nothing to hear");
        assert_eq!(children.kill_overdue(end_by_us), [pid(0)]);
        assert_eq!(children.next_deadline_us(), None);
        assert_eq!(children.count(0).active, 1);
    }

    #[test]
    fn who_came_to_serve_and_ended_unheard_has_served() {
        let (mut children, ends) = table(2);
        ends[0].send(Report::EndRequested.byte()).unwrap();
        ends[0].send(Report::Ready.byte()).unwrap();
        ends[1].send(Report::EndRequested.byte()).unwrap();
        drop(ends);
        assert!(children.remove(pid(0)).unwrap().served);
        assert!(!children.remove(pid(1)).unwrap().served);
    }

    /// Passes so many ticks while connections wait. Returns the children that are replaced.
    fn starving(children: &mut Children<()>, ticks: usize) -> Vec<Pid> {
        (0..ticks).flat_map(|_| children.detect_stalls(&[true]).starving).collect()
    }

    fn serving(model: Model) -> (Children<()>, Vec<Channel>, Scoreboard) {
        let (mut children, ends) = table(2);
        for (entry, beat) in children.entries.values_mut().zip([5, 6]) {
            let generation = Rc::get_mut(&mut entry.generation).unwrap();
            (generation.limits.model, generation.limits.threads_per_child) = (model, 1);
            (entry.phase, entry.served) = (Phase::Running, true);
            let line = children.board.child_line(entry.index).unwrap();
            line.set(Counter::HeartbeatUs, beat);
        }
        let board = children.board;
        (children, ends, board)
    }

    #[test]
    fn a_hung_child_is_replaced_where_no_other_takes_what_waits() {
        for model in [Model::Prefork, Model::Worker, Model::Event] {
            let (mut children, _ends, board) = serving(model);
            let other = board.child_line(children.entries[&2].index).unwrap();
            for beat in 10..20 {
                other.set(Counter::HeartbeatUs, beat);
                assert!(starving(&mut children, 1).is_empty(), "{model:?}: another takes it");
            }
            // It has a heartbeat, and no worker for the connections that wait.
            other.add(Counter::Busy, 1);
            other.set(Counter::HeartbeatUs, 20);
            assert_eq!(starving(&mut children, 1), [pid(0)], "{model:?}");
        }
    }

    #[test]
    fn a_child_of_prefork_may_sleep_while_nobody_waits_and_work_for_as_long_as_it_takes() {
        let (mut children, _ends, board) = serving(Model::Prefork);
        for _ in 0..100 {
            let StalledChildren { reported, replaced, starving } = children.detect_stalls(&[false]);
            assert!(reported.is_empty() && replaced.is_empty() && starving.is_empty());
        }
        let lines: Vec<_> = (0..2).filter_map(|index| board.child_line(index)).collect();
        lines.iter().for_each(|line| line.add(Counter::Busy, 1));
        assert!(starving(&mut children, 100).is_empty());
        lines.iter().for_each(|line| line.subtract(Counter::Busy, 1));
        assert!(starving(&mut children, 2).is_empty());
        assert_eq!(starving(&mut children, 1), [pid(0), pid(1)]);
    }

    #[test]
    fn a_child_that_has_no_processor_is_not_taken_for_hung() {
        let (mut children, _ends, _board) = serving(Model::Event);
        // The test's own process runs, and has no heartbeat.
        children.entries.get_mut(&1).unwrap().pid = process::own_pid();
        assert!(starving(&mut children, 9).is_empty());
        children.entries.get_mut(&1).unwrap().pid = pid(0);
        assert!(starving(&mut children, 1).is_empty());
        assert_eq!(starving(&mut children, 1), [pid(0), pid(1)]);
    }

    #[test]
    fn lines_and_seats_of_those_who_have_gone_are_free_again() {
        let (mut children, _ends) = table(4);
        assert_eq!(children.free_line(), Some(4));
        let gone = children.remove(pid(1)).unwrap();
        assert_eq!((gone.number, children.free_line()), (2, Some(1)));
        assert_eq!(children.ranks(0), BTreeSet::from([0, 2, 3]));
        children.retire_these(Command::Drain, Some(7_000_000), &[1]);
        assert_eq!(children.ranks(0), BTreeSet::from([2, 3]));
        assert_eq!((children.count(0).active, children.count(1).active), (2, 0));
        assert_eq!(children.kill_surplus(0, 0), [pid(0)]);
        assert!(children.kill_surplus(0, 0).is_empty());
        assert!(children.remove(pid(1)).is_none());
    }

    #[test]
    fn what_found_no_room_is_said_once_there_is_some() {
        let (mut children, ends) = table(1);
        while children.entries[&1].channel.send(Command::MakeRoom.byte()).unwrap() {}
        children.retire_these(Command::Drain, None, &[1]);
        assert_eq!(children.unsent, BTreeSet::from([1]));
        children.receive(1_000_000);
        assert_eq!(children.unsent, BTreeSet::from([1]), "there is still no room");
        while ends[0].receive() == Received::Byte(Command::MakeRoom.byte()) {}
        children.receive(2_000_000);
        assert_eq!(ends[0].receive(), Received::Byte(Command::Drain.byte()));
        assert!(children.unsent.is_empty());
    }
}
