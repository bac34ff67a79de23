//! The parent's table of its children: pids, channels, deadlines. The parent's own memory and
//! therefore the truth; the scoreboard only shows it. Forks and reaps are its caller's. What it
//! does at each turn of the parent's does not grow with the number of children.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use evenkeel_scoreboard::{Counter, Phase, Scoreboard};
use evenkeel_sys::bounds;
use evenkeel_sys::channel::{Channel, Received};
use evenkeel_sys::clock;
use evenkeel_sys::epoll::{Epoll, Events};
use evenkeel_sys::process::{self, Pid};
use evenkeel_sys::signal::Signal;

use crate::child::{Command, Report};
use crate::limits::Model;
use crate::settings::Generation;
use crate::stall_detector::{StallAction, StallDetector};

/// One child.
pub(crate) struct Entry<Site> {
    pub(crate) pid: Pid,
    /// Counts all children ever forked: the larger, the newer.
    pub(crate) number: u64,
    /// Its lines in the scoreboard.
    pub(crate) index: usize,
    /// Its share of the budget, among the children of its generation that serve.
    pub(crate) rank: usize,
    /// Which bucket of listening sockets it accepts from.
    pub(crate) bucket: usize,
    pub(crate) generation: Rc<Generation<Site>>,
    pub(crate) phase: Phase,
    /// Since when it is in that phase.
    pub(crate) phase_since_us: u64,
    pub(crate) forked_us: u64,
    /// Whether it ever came to serve.
    pub(crate) served: bool,
    /// When it is killed, should it live until then.
    pub(crate) end_by_us: Option<u64>,
    /// Whether the parent has killed it.
    pub(crate) killed: bool,
    pub(crate) channel: Channel,
    stalls: StallDetector,
    // What could not be said because the child did not read.
    unsaid: Option<Command>,
}

/// Where a child has its place: see the fields of [`Entry`] of these names.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) rank: usize,
    pub(crate) bucket: usize,
}

/// All of them.
pub(crate) struct Children<Site> {
    board: Scoreboard,
    /// By their numbers, and the numbers by pid.
    entries: BTreeMap<u64, Entry<Site>>,
    numbers: HashMap<Pid, u64>,
    /// The lines of the scoreboard that no child has.
    free_lines: BTreeSet<usize>,
    /// How many were ever forked.
    forked: u64,
    /// How many may serve, and how many may retire.
    table: usize,
    /// Their channels, but for those that are closed; none in a process that is not the parent.
    set: Option<Epoll>,
    events: Events,
    /// When they are heard again.
    deaf_until_us: u64,
    /// Who was told something that found no room in its channel.
    unsaid: BTreeSet<u64>,
    /// No deadline is earlier than this; none where there is no deadline.
    earliest_us: Option<u64>,
    /// Whether some have begun to retire since their number was last looked at.
    some_retired: bool,
    /// The last counts of generations, until something changes.
    counts: BTreeMap<u32, Count>,
}

/// How many children of a generation there are that do not end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Those that serve or will.
    pub(crate) active: usize,
    /// Those of them that have come to serve.
    pub(crate) served: usize,
}

/// Which children do not come round.
#[derive(Default)]
pub(crate) struct StalledChildren {
    /// For long enough to be reported.
    pub(crate) reported: Vec<Pid>,
    /// For long enough to be replaced.
    pub(crate) replaced: Vec<Pid>,
    /// Those that do not take what waits in their bucket, where no other takes it.
    pub(crate) starving: Vec<Pid>,
}

/// What the children had to say.
#[derive(Default)]
pub(crate) struct Heard {
    /// The numbers of those that were asked to end by someone else, or have served their share.
    pub(crate) end_requested: BTreeSet<u64>,
    /// Whether one has run out of credits.
    pub(crate) has_demand: bool,
}

/// How long a child may take until it serves.
pub(crate) const START_US: u64 = 60_000_000;

/// For how long nobody is heard after somebody was: a child that talks without end wakes the parent
/// no more often than this.
const DEAF_FOR_US: u64 = 10_000;

/// How many children are heard in a turn, and how many messages of each. Who has more to say is
/// heard the next time, after all others.
const MOST_HEARD: usize = 256;
const MOST_MESSAGES: usize = 4;

/// How many messages of a dead child are looked through: its channel holds fewer.
const MOST_LAST_WORDS: usize = 1024;

/// How long a child may live without a channel before it is killed: it is closed only in death.
const DEAF_US: u64 = 1_000_000;

impl<Site> Children<Site> {
    /// None yet; `table` is how many there may be of those that serve, and of those that retire.
    /// Errors are the system's, who denies a set for their channels.
    pub(crate) fn new(board: Scoreboard, table: usize) -> io::Result<Self> {
        Ok(Self {
            board,
            entries: BTreeMap::new(),
            numbers: HashMap::new(),
            free_lines: (0..board.layout().children).collect(),
            forked: 0,
            table,
            set: Some(Epoll::new()?),
            events: Events::with_capacity(MOST_HEARD),
            deaf_until_us: 0,
            unsaid: BTreeSet::new(),
            earliest_us: None,
            some_retired: false,
            counts: BTreeMap::new(),
        })
    }

    /// How many may serve or be parked, and how many may retire, of a scoreboard with this many
    /// lines.
    pub(crate) fn table(&self) -> usize {
        self.table
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets them all, in a process that is not their parent: their channels and log buffers
    /// are none of its business.
    pub(crate) fn forget(&mut self) {
        // Without a word to the set, which is the parent's too.
        self.set = None;
        self.entries.values().for_each(|entry| entry.generation.lines.forget());
        self.entries.clear();
    }

    /// Notes a child that was just forked. The error is the system's, who denies a place for its
    /// channel in the set: it cannot be heard, and is killed.
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
        let watched = self.set.as_ref().map(|set| set.add_standing(&channel, number));
        let end_by_us = now_us.saturating_add(START_US);
        let entry = Entry {
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
            unsaid: None,
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

    /// Takes out the child of that pid.
    pub(crate) fn remove(&mut self, pid: Pid) -> Option<Entry<Site>> {
        let number = self.numbers.remove(&pid)?;
        let mut entry = self.entries.remove(&number)?;
        entry.hear_last_words();
        if let Some(set) = &self.set {
            // It has left by itself where the child's end was seen before.
            let _ = set.remove(&entry.channel);
        }
        self.unsaid.remove(&number);
        self.free_lines.insert(entry.index);
        self.counts.clear();
        Some(entry)
    }

    /// The lowest line of the scoreboard that no child has.
    pub(crate) fn free_line(&self) -> Option<usize> {
        self.free_lines.first().copied()
    }

    /// The ranks that serving children of that generation have.
    pub(crate) fn ranks(&self, generation: u32) -> BTreeSet<usize> {
        self.active(generation).map(|entry| entry.rank).collect()
    }

    /// How many children of a generation there are that do not end.
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

    /// The children of a generation that serve or will.
    pub(crate) fn active(&self, generation: u32) -> impl Iterator<Item = &Entry<Site>> {
        let is_active = move |entry: &&Entry<Site>| {
            entry.generation.number == generation && !entry.phase.is_stopping()
        };
        self.entries.values().filter(is_active)
    }

    /// Tells every child that `which` names to drain or to exit, and kills those that have not
    /// ended at `end_by_us`.
    pub(crate) fn retire(
        &mut self,
        command: Command,
        end_by_us: Option<u64>,
        which: impl Fn(&Entry<Site>) -> bool,
    ) {
        let numbers = self.entries.values().filter(|entry| which(entry));
        let numbers: Vec<u64> = numbers.map(|entry| entry.number).collect();
        self.retire_these(command, end_by_us, &numbers);
    }

    /// The same for children of these numbers.
    pub(crate) fn retire_these(
        &mut self,
        command: Command,
        end_by_us: Option<u64>,
        numbers: &[u64],
    ) {
        let phase = if command == Command::Exit { Phase::Exiting } else { Phase::Draining };
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
            entry.say(command, &mut self.unsaid);
        }
        if let Some(end_by_us) = end_by_us {
            self.note_deadline(end_by_us);
        }
        self.some_retired = true;
        self.counts.clear();
    }

    /// All of them, for the census.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Entry<Site>> {
        self.entries.values()
    }

    /// Parks a child of this number, or calls it back.
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
            entry.say(command, &mut self.unsaid);
        }
    }

    /// Tells the children of these numbers to hurry. One that does not read is not told again.
    pub(crate) fn send(&self, numbers: &[u64], command: Command) {
        for entry in numbers.iter().filter_map(|number| self.entries.get(number)) {
            let _ = entry.channel.send(command.byte());
        }
    }

    /// Ends children at once: those that `which` names.
    pub(crate) fn kill(&mut self, which: impl Fn(&Entry<Site>) -> bool) {
        self.some_retired = true;
        self.counts.clear();
        for entry in self.entries.values_mut().filter(|entry| which(entry)) {
            entry.killed = true;
            entry.phase = Phase::Exiting;
            // Not yet reaped, so the pid is still this child's; it may be dead already.
            let _ = process::kill(entry.pid, Signal::Kill);
        }
    }

    /// The pids of those whose time is over; they are killed.
    pub(crate) fn kill_overdue(&mut self, now_us: u64) -> Vec<Pid> {
        if self.earliest_us.is_none_or(|earliest_us| now_us < earliest_us) {
            return Vec::new();
        }
        let is_overdue = |entry: &Entry<Site>| {
            !entry.killed && entry.end_by_us.is_some_and(|end_by| end_by <= now_us)
        };
        let overdue = self.entries.values().filter(|entry| is_overdue(entry));
        let overdue = overdue.map(|entry| entry.pid).collect();
        self.kill(is_overdue);
        let pending = self.entries.values().filter(|entry| !entry.killed);
        self.earliest_us = pending.filter_map(|entry| entry.end_by_us).min();
        overdue
    }

    /// Kills retiring children until there are no more than `most`: the oldest generation as a
    /// whole, but of the present one no more than must be, those that retire longest. The pids.
    pub(crate) fn kill_surplus(&mut self, most: usize, present: u32) -> Vec<Pid> {
        let mut all = Vec::new();
        while std::mem::take(&mut self.some_retired) {
            let is_retiring = |entry: &&Entry<Site>| entry.phase.is_stopping() && !entry.killed;
            let mut retiring: Vec<_> = self.entries.values().filter(is_retiring).collect();
            let surplus = retiring.len().saturating_sub(most);
            if surplus == 0 {
                break;
            }
            // Numbers are compared by how long ago they were given: they wrap in the end.
            let age = |entry: &Entry<Site>| present.wrapping_sub(entry.generation.number);
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

    /// Feels every serving child's pulse, once a tick, while in each bucket connections wait or
    /// none do.
    pub(crate) fn detect_stalls(&mut self, waits: &[bool]) -> StalledChildren {
        let mut stalled = StalledChildren::default();
        let board = self.board;
        let bucket_of = |bucket: usize| bucket.checked_rem(waits.len()).unwrap_or(0);
        let others_wait = |bucket| waits.get(bucket_of(bucket)) == Some(&true);
        for entry in self.entries.values_mut().filter(|entry| entry.served) {
            let others_wait = others_wait(entry.bucket);
            let beat = entry.beat(board, others_wait);
            let pid = entry.pid.as_raw_nonzero().get();
            match entry.stalls.observe(beat, || others_wait && !bounds::wants_processor(pid)) {
                StallAction::None => {}
                StallAction::Report => stalled.reported.push(entry.pid),
                StallAction::Replace => stalled.replaced.push(entry.pid),
            }
        }
        for bucket in 0..waits.len() {
            let serves = |entry: &&Entry<Site>| {
                entry.phase == Phase::Running && bucket_of(entry.bucket) == bucket
            };
            let all = || self.entries.values().filter(serves);
            // One whose workers are all taken takes nothing either.
            if all().all(|entry| entry.stalls.starves_others() || entry.is_full(board)) {
                let starving = all().filter(|entry| entry.stalls.starves_others());
                stalled.starving.extend(starving.map(|entry| entry.pid));
            }
        }
        stalled
    }

    /// Reads what the children have to say, of as many as may be heard in a turn.
    pub(crate) fn hear(&mut self, now_us: u64) -> Heard {
        let mut heard = Heard::default();
        if now_us < self.deaf_until_us {
            return heard;
        }
        self.say_again();
        let Some(set) = &self.set else { return heard };
        if set.poll(&mut self.events).is_err() || self.events.is_empty() {
            return heard;
        }
        self.deaf_until_us = now_us.saturating_add(DEAF_FOR_US);
        for at in 0..self.events.len() {
            let Some(ready) = self.events.at(at) else { break };
            self.hear_one(ready.token, now_us, &mut heard);
        }
        heard
    }

    fn hear_one(&mut self, number: u64, now_us: u64, heard: &mut Heard) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        for _ in 0..MOST_MESSAGES {
            match entry.channel.receive() {
                Received::Byte(byte) => match Report::from_byte(byte) {
                    Some(Report::Ready) => {
                        entry.note_ready(self.board, now_us);
                        self.counts.clear();
                    }
                    Some(Report::EndRequested) => _ = heard.end_requested.insert(number),
                    Some(Report::Demand) => heard.has_demand = true,
                    None => {}
                },
                Received::Empty => return,
                // The child's end is closed; nothing can be said or heard any more.
                Received::Closed => {
                    if let Some(set) = &self.set {
                        // One that cannot leave is heard again every 10 ms until it is dead.
                        let _ = set.remove(&entry.channel);
                    }
                    let end_by_us = now_us.saturating_add(DEAF_US);
                    let end_by_us = *entry.end_by_us.get_or_insert(end_by_us);
                    return self.note_deadline(end_by_us);
                }
            }
        }
    }

    /// Says what found no room before.
    fn say_again(&mut self) {
        for number in std::mem::take(&mut self.unsaid) {
            if let Some(entry) = self.entries.get_mut(&number)
                && let Some(command) = entry.unsaid.take()
            {
                entry.say(command, &mut self.unsaid);
            }
        }
    }

    /// The descriptor that is readable when a child has something to say or is dead; none while
    /// nobody is heard.
    pub(crate) fn descriptor(&self, now_us: u64) -> Option<BorrowedFd<'_>> {
        let set = self.set.as_ref().filter(|_| now_us >= self.deaf_until_us);
        set.map(|set| set.as_fd())
    }

    /// Has them heard the next time, however soon that is.
    pub(crate) fn listen_now(&mut self) {
        self.deaf_until_us = 0;
    }

    /// When they are heard again, if nobody is now.
    pub(crate) fn next_hearing_us(&self, now_us: u64) -> Option<u64> {
        Some(self.deaf_until_us).filter(|until_us| now_us < *until_us)
    }

    /// When the next child's time is over, or earlier.
    pub(crate) fn next_deadline_us(&self) -> Option<u64> {
        self.earliest_us
    }
}

impl<Site> Entry<Site> {
    /// Whether all of its workers are taken, as it claims.
    pub(crate) fn is_full(&self, board: Scoreboard) -> bool {
        let line = board.child_line(self.index);
        let claim = |counter| line.map_or(0, |line| line.read(counter));
        let working = claim(Counter::Busy).saturating_add(claim(Counter::Reserved));
        working >= self.generation.limits.threads_per_child as u64
    }

    /// The last beat of its heart; 0 where none is due. A child of prefork is in a connection for
    /// as long as that takes, and asleep while none comes.
    fn beat(&self, board: Scoreboard, others_wait: bool) -> u64 {
        let is_prefork = self.generation.limits.model == Model::Prefork;
        let is_due = !is_prefork || others_wait && !self.is_full(board);
        let line = board.child_line(self.index).filter(|_| is_due);
        line.map_or(0, |line| line.read(Counter::HeartbeatUs))
    }

    /// Says a command, or notes itself among those that must be told again.
    fn say(&mut self, command: Command, unsaid: &mut BTreeSet<u64>) {
        match self.channel.send(command.byte()) {
            // A child that is gone needs no command.
            Ok(true) | Err(_) => {}
            Ok(false) => {
                self.unsaid = Some(command);
                unsaid.insert(self.number);
            }
        }
    }

    /// Whoever came to serve and ended before it was heard has served all the same.
    fn hear_last_words(&mut self) {
        let words = std::iter::from_fn(|| match self.channel.receive() {
            Received::Byte(byte) => Some(byte),
            Received::Empty | Received::Closed => None,
        });
        let ready = Report::Ready.byte();
        self.served |= words.take(MOST_LAST_WORDS).any(|byte| byte == ready);
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

    /// A table of so many children that are no processes, with their ends of the channels.
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

    /// The pid of nobody: the kernel gives none so large.
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
        assert!(said > MOST_MESSAGES && children.descriptor(now_us).is_some());
        ends[1].send(Report::Demand.byte()).unwrap();
        ends[2].send(Report::EndRequested.byte()).unwrap();
        let heard = children.hear(now_us);
        assert!(heard.has_demand && heard.end_requested == BTreeSet::from([3]));
        // It has more to say, and wakes nobody with it before its time.
        assert!(children.descriptor(now_us + DEAF_FOR_US - 1).is_none());
        assert_eq!(children.next_hearing_us(now_us + 1), Some(now_us + DEAF_FOR_US));
        ends[1].send(Report::Demand.byte()).unwrap();
        assert!(!children.hear(now_us + DEAF_FOR_US - 1).has_demand);
        assert!(children.hear(now_us + DEAF_FOR_US).has_demand);
        let mut left = 0;
        while let Received::Byte(_) = children.entries[&1].channel.receive() {
            left += 1;
        }
        assert_eq!(said - left, 2 * MOST_MESSAGES);
        assert_eq!(children.next_hearing_us(now_us + 2 * DEAF_FOR_US), None);
        assert!(children.descriptor(now_us + 2 * DEAF_FOR_US).is_some());
    }

    #[test]
    fn more_children_than_are_heard_in_a_turn_are_heard_in_the_next() {
        let (mut children, ends) = table(6);
        children.events = Events::with_capacity(4);
        for end in &ends {
            // One that is not done after a turn comes after the others.
            (0..=MOST_MESSAGES).for_each(|_| _ = end.send(Report::EndRequested.byte()).unwrap());
        }
        let first = children.hear(1_000_000).end_requested;
        let second = children.hear(2_000_000).end_requested;
        assert_eq!((first.len(), second.len()), (4, 4));
        assert_eq!(&first | &second, (1..=ends.len() as u64).collect());
    }

    #[test]
    fn a_child_without_a_channel_is_heard_no_more_and_killed() {
        let (mut children, mut ends) = table(2);
        for end in &ends {
            end.send(Report::Ready.byte()).unwrap();
        }
        children.hear(1_000_000);
        assert_eq!(children.count(0), Count { active: 2, served: 2 });
        drop(ends.remove(0));
        children.hear(2_000_000);
        let end_by_us = 2_000_000 + DEAF_US;
        assert!(children.kill_overdue(end_by_us - 1).is_empty());
        children.hear(2_500_000);
        assert_eq!(children.next_hearing_us(2_500_000), None, "there was nothing to hear");
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

    /// Lets so many ticks pass while connections wait, and says whose places others take.
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
            // It comes round, and has no worker for what waits.
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
        // This test's own process runs, and has no heart that beats.
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
        assert_eq!(children.unsaid, BTreeSet::from([1]));
        children.hear(1_000_000);
        assert_eq!(children.unsaid, BTreeSet::from([1]), "there is still no room");
        while ends[0].receive() == Received::Byte(Command::MakeRoom.byte()) {}
        children.hear(2_000_000);
        assert_eq!(ends[0].receive(), Received::Byte(Command::Drain.byte()));
        assert!(children.unsaid.is_empty());
    }
}
