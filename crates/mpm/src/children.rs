//! The parent's table of its children: pids, channels, deadlines. The parent's own memory and
//! therefore the truth; the scoreboard only shows it. Forks and reaps are its caller's.

use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use evenkeel_scoreboard::{Counter, LineBuffers, Phase, Scoreboard};
use evenkeel_sys::channel::{Channel, Received};
use evenkeel_sys::clock;
use evenkeel_sys::process::{self, Pid};
use evenkeel_sys::signal::Signal;

use crate::child::{Command, Report};
use crate::pulse::{Judgement, Pulse};
use crate::settings::Generation;

/// One child.
pub(crate) struct Entry<Site> {
    pub(crate) pid: Pid,
    /// Counts all children ever forked: the larger, the newer.
    pub(crate) number: u64,
    /// Its lines in the scoreboard.
    pub(crate) index: usize,
    /// Its share of the budget, among the children of its generation that serve.
    pub(crate) seat: usize,
    /// Which bucket of listening sockets it accepts from.
    pub(crate) bucket: usize,
    pub(crate) generation: Rc<Generation<Site>>,
    pub(crate) buffers: LineBuffers,
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
    pulse: Pulse,
    // The child's end is closed; nothing can be said or heard any more.
    deaf: bool,
    // What could not be said because the child did not read.
    unsaid: Option<Command>,
}

/// Where a child has its place: see the fields of [`Entry`] of these names.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) seat: usize,
    pub(crate) bucket: usize,
}

/// All of them.
pub(crate) struct Children<Site> {
    board: Scoreboard,
    entries: Vec<Entry<Site>>,
    /// How many were ever forked.
    forked: u64,
    /// How many may serve, and how many may retire.
    table: usize,
}

/// What the children had to say.
#[derive(Default)]
pub(crate) struct Heard {
    /// Who was asked to end by someone else, or has served its share.
    pub(crate) asked_to_end: Vec<Pid>,
    /// Whether one has run out of credits.
    pub(crate) poked: bool,
}

/// How long a child may take until it serves.
pub(crate) const START_US: u64 = 60_000_000;

/// How long a child may live without a channel before it is killed: it is closed only in death.
const DEAF_US: u64 = 1_000_000;

impl<Site> Children<Site> {
    /// None yet; `table` is how many there may be of those that serve, and of those that retire.
    pub(crate) fn new(board: Scoreboard, table: usize) -> Self {
        Self { board, entries: Vec::new(), forked: 0, table }
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
        self.entries.clear();
    }

    /// Notes a child that was just forked.
    pub(crate) fn add(
        &mut self,
        pid: Pid,
        place: Place,
        generation: Rc<Generation<Site>>,
        channel: Channel,
        buffers: LineBuffers,
        now_us: u64,
    ) {
        let Place { index, seat, bucket } = place;
        if let Some(line) = self.board.parent_line(index) {
            line.set_pid(pid.as_raw_nonzero().get());
        }
        self.forked += 1;
        self.entries.push(Entry {
            pid,
            number: self.forked,
            index,
            seat,
            bucket,
            generation,
            buffers,
            phase: Phase::Starting,
            phase_since_us: now_us,
            forked_us: now_us,
            served: false,
            end_by_us: Some(now_us.saturating_add(START_US)),
            killed: false,
            channel,
            pulse: Pulse::default(),
            deaf: false,
            unsaid: None,
        });
    }

    /// Takes out the child of that pid.
    pub(crate) fn remove(&mut self, pid: Pid) -> Option<Entry<Site>> {
        let at = self.entries.iter().position(|entry| entry.pid == pid)?;
        Some(self.entries.remove(at))
    }

    /// The lowest line of the scoreboard that no child has.
    pub(crate) fn free_line(&self) -> Option<usize> {
        let is_free = |index: &usize| self.entries.iter().all(|entry| entry.index != *index);
        (0..self.board.layout().children).find(is_free)
    }

    /// The lowest seat that no serving child of that generation has.
    pub(crate) fn free_seat(&self, generation: u32) -> usize {
        let is_free = |seat: &usize| self.active(generation).all(|entry| entry.seat != *seat);
        (0..=self.entries.len()).find(is_free).unwrap_or(0)
    }

    /// The children of a generation that serve or will.
    pub(crate) fn active(&self, generation: u32) -> impl Iterator<Item = &Entry<Site>> {
        let is_active = move |entry: &&Entry<Site>| {
            entry.generation.number == generation && !entry.phase.is_stopping()
        };
        self.entries.iter().filter(is_active)
    }

    /// Tells every child that `which` names to drain or to exit, and kills those that have not
    /// ended at `end_by_us`.
    pub(crate) fn retire(
        &mut self,
        command: Command,
        end_by_us: Option<u64>,
        which: impl Fn(&Entry<Site>) -> bool,
    ) {
        let phase = if command == Command::Exit { Phase::Exiting } else { Phase::Draining };
        let now_us = clock::monotonic_us();
        for entry in self.entries.iter_mut().filter(|entry| which(entry)) {
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
            entry.say(command);
        }
    }

    /// All of them, for the census.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Entry<Site>> {
        self.entries.iter()
    }

    /// Parks a child of this number, or calls it back.
    pub(crate) fn park(&mut self, number: u64, parked: bool, now_us: u64) {
        let (from, to, command) = match parked {
            true => (Phase::Running, Phase::Parked, Command::Park),
            false => (Phase::Parked, Phase::Running, Command::Run),
        };
        let meant = |entry: &&mut Entry<Site>| entry.number == number && entry.phase == from;
        if let Some(entry) = self.entries.iter_mut().find(meant) {
            (entry.phase, entry.phase_since_us) = (to, now_us);
            if let Some(line) = self.board.parent_line(entry.index) {
                line.set_phase(to);
            }
            entry.say(command);
        }
    }

    /// Tells the children of these numbers to hurry. One that does not read is not told again.
    pub(crate) fn hurry(&self, numbers: &[u64]) {
        for entry in self.entries.iter().filter(|entry| numbers.contains(&entry.number)) {
            let _ = entry.channel.send(Command::Hurry.byte());
        }
    }

    /// Ends children at once: those that `which` names.
    pub(crate) fn kill(&mut self, which: impl Fn(&Entry<Site>) -> bool) {
        for entry in self.entries.iter_mut().filter(|entry| which(entry)) {
            entry.killed = true;
            entry.phase = Phase::Exiting;
            // Not yet reaped, so the pid is still this child's; it may be dead already.
            let _ = process::kill(entry.pid, Signal::Kill);
        }
    }

    /// The pids of those whose time is over; they are killed.
    pub(crate) fn kill_overdue(&mut self, now_us: u64) -> Vec<Pid> {
        let is_overdue = |entry: &Entry<Site>| {
            !entry.killed && entry.end_by_us.is_some_and(|end_by| end_by <= now_us)
        };
        let overdue = self.entries.iter().filter(|entry| is_overdue(entry));
        let overdue = overdue.map(|entry| entry.pid).collect();
        self.kill(is_overdue);
        overdue
    }

    /// Kills retiring children until there are no more than `most`: the oldest generation as a
    /// whole, but of the present one no more than must be, those that retire longest. The pids.
    pub(crate) fn kill_surplus(&mut self, most: usize, present: u32) -> Vec<Pid> {
        let mut all = Vec::new();
        loop {
            let is_retiring = |entry: &&Entry<Site>| entry.phase.is_stopping() && !entry.killed;
            let mut retiring: Vec<_> = self.entries.iter().filter(is_retiring).collect();
            let surplus = retiring.len().saturating_sub(most);
            if surplus == 0 {
                return all;
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
    }

    /// Feels every serving child's pulse, once a tick. Who stands still for long, and who for
    /// too long.
    pub(crate) fn feel_pulses(&mut self) -> (Vec<Pid>, Vec<Pid>) {
        let (mut still, mut lost) = (Vec::new(), Vec::new());
        for entry in self.entries.iter_mut().filter(|entry| entry.served) {
            let line = self.board.child_line(entry.index);
            match entry.pulse.feel(line.map_or(0, |line| line.read(Counter::HeartbeatUs))) {
                Judgement::Well => {}
                Judgement::Report => still.push(entry.pid),
                Judgement::Replace => lost.push(entry.pid),
            }
        }
        (still, lost)
    }

    /// Reads what the children have to say.
    pub(crate) fn hear(&mut self, now_us: u64) -> Heard {
        // A child that talks without end gets no more than this a turn.
        const MOST: usize = 16;
        let mut heard = Heard::default();
        for entry in &mut self.entries {
            if let Some(command) = entry.unsaid.take() {
                entry.say(command);
            }
            for _ in 0..MOST {
                match entry.channel.receive() {
                    _ if entry.deaf => break,
                    Received::Byte(byte) => match Report::from_byte(byte) {
                        Some(Report::Ready) => entry.note_ready(self.board, now_us),
                        Some(Report::EndAsked) => heard.asked_to_end.push(entry.pid),
                        Some(Report::Poke) => heard.poked = true,
                        None => {}
                    },
                    Received::Empty => break,
                    Received::Closed => {
                        entry.deaf = true;
                        entry.end_by_us.get_or_insert(now_us.saturating_add(DEAF_US));
                        break;
                    }
                }
            }
        }
        heard
    }

    /// The descriptors that are readable when a child has something to say or is dead.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.entries.iter().filter(|entry| !entry.deaf).map(|entry| entry.channel.as_fd())
    }

    /// When the next child's time is over.
    pub(crate) fn next_deadline_us(&self) -> Option<u64> {
        let pending = self.entries.iter().filter(|entry| !entry.killed);
        pending.filter_map(|entry| entry.end_by_us).min()
    }
}

impl<Site> Entry<Site> {
    fn say(&mut self, command: Command) {
        match self.channel.send(command.byte()) {
            // A child that is gone needs no command.
            Ok(true) | Err(_) => {}
            Ok(false) => self.unsaid = Some(command),
        }
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
