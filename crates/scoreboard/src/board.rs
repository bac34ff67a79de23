//! The memory of the scoreboard, and the parent's side of it. It is sized once, at the start.
//! Positions of lines follow from the sizes that each process keeps for itself, never from the
//! shared memory.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use evenkeel_sys::memory::Shared;

use crate::child::{ChildLine, OWN_WORDS};
use crate::history::HISTORY_WORDS;
use crate::slots::{COLD_WORDS, HOT_WORDS, SlotLine, SlotLines};
use crate::state::Phase;

/// The most worker slots that a scoreboard can have.
pub const MOST_SLOTS: usize = 262_144;

const HEADER_WORDS: usize = 16;
const PARENT_WORDS: usize = 8;

/// The sizes of a scoreboard, fixed for the life of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// How many children can have a line at once, including those that retire.
    pub children: usize,
    /// How many worker slots each child has.
    pub slots_per_child: usize,
}

/// The shared memory, as any process sees it. It is never unmapped, so that lines can be passed
/// around as plain copies.
#[derive(Clone, Copy)]
pub struct Scoreboard {
    region: &'static Shared,
    layout: Layout,
}

/// What ended children did in total, and facts about the server as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests answered.
    pub accesses: u64,
    /// Bytes sent as bodies.
    pub bytes: u64,
    /// The total duration of the requests, in microseconds.
    pub duration_us: u64,
}

#[derive(Clone, Copy)]
#[repr(usize)]
enum Header {
    RestartUs,
    Generation,
    LinesUsed,
    MostChildren,
    Accesses,
    Bytes,
    DurationUs,
    ReapedUserUs,
    ReapedSystemUs,
    ParentPid,
}

#[derive(Clone, Copy)]
#[repr(usize)]
enum Field {
    Pid,
    Phase,
    Generation,
    Bucket,
    StartedUs,
    Credits,
}

impl Scoreboard {
    /// Maps the memory, zeroed. It is never unmapped: a server has one scoreboard. Errors:
    /// `InvalidInput` beyond [`MOST_SLOTS`] or for a size of zero, otherwise mmap(2)'s.
    pub fn new(layout: Layout) -> io::Result<Self> {
        let slots = layout.children.saturating_mul(layout.slots_per_child);
        if slots == 0 || slots > MOST_SLOTS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a scoreboard of {slots} slots (1 to {MOST_SLOTS} are possible)"),
            ));
        }
        let words = HEADER_WORDS
            + layout.children * (OWN_WORDS + PARENT_WORDS)
            + slots * (HOT_WORDS + COLD_WORDS)
            + HISTORY_WORDS;
        Ok(Self { region: Box::leak(Box::new(Shared::new(words)?)), layout })
    }

    /// The sizes.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The line that the child with this index writes; `None` if the index is out of range.
    #[must_use]
    pub fn child_line(&self, child: usize) -> Option<ChildLine> {
        let at = self.own_lines() + self.valid(child)? * OWN_WORDS;
        ChildLine::over(self.span(at, OWN_WORDS)?)
    }

    /// The line that the parent writes about the child with this index.
    #[must_use]
    pub fn parent_line(&self, child: usize) -> Option<ParentLine> {
        let at = self.parent_lines() + self.valid(child)? * PARENT_WORDS;
        Some(ParentLine { words: self.span(at, PARENT_WORDS)? })
    }

    /// The line of a worker slot of a child.
    pub(crate) fn slot_line(&self, child: usize, slot: usize) -> Option<SlotLine> {
        self.slot_lines(child)?.of(slot)
    }

    /// The lines of all worker slots of a child.
    pub(crate) fn slot_lines(&self, child: usize) -> Option<SlotLines> {
        let slots = self.layout.slots_per_child;
        let first = self.valid(child)? * slots;
        let hot = self.span(self.hot_lines() + first * HOT_WORDS, slots * HOT_WORDS)?;
        let cold = self.span(self.cold_lines() + first * COLD_WORDS, slots * COLD_WORDS)?;
        Some(SlotLines { hot, cold })
    }

    /// Assigns the line with this index to a child that is about to be forked. Parent only.
    pub fn assign(&self, child: usize, generation: u32, bucket: u32, credits: usize, now_us: u64) {
        let Some(line) = self.parent_line(child) else { return };
        line.set(Field::Generation, u64::from(generation));
        line.set(Field::Bucket, u64::from(bucket));
        line.set(Field::Credits, credits as u64);
        line.set(Field::StartedUs, now_us);
        line.set_phase(Phase::Starting);
        let used = self.header(Header::LinesUsed).load(Relaxed).max(child as u64 + 1);
        self.set_header(Header::LinesUsed, used);
    }

    /// Takes back the line of a child that has ended: its counters move to the totals, and the line
    /// is zeroed. Parent only.
    pub fn release(&self, child: usize) {
        let mut ended = self.totals();
        for slot in 0..self.layout.slots_per_child {
            // A child fills its slots from the first one on, so the first unused slot is the end.
            let Some(line) = self.slot_line(child, slot) else { break };
            if line.is_untouched() {
                break;
            }
            ended.accesses = ended.accesses.wrapping_add(line.accesses());
            ended.bytes = ended.bytes.wrapping_add(line.bytes());
            ended.duration_us = ended.duration_us.wrapping_add(line.duration_total_us());
            line.clear();
        }
        self.set_header(Header::Accesses, ended.accesses);
        self.set_header(Header::Bytes, ended.bytes);
        self.set_header(Header::DurationUs, ended.duration_us);
        if let Some(line) = self.child_line(child) {
            line.clear();
        }
        if let Some(line) = self.parent_line(child) {
            line.words.iter().for_each(|word| word.store(0, Relaxed));
        }
    }

    /// What children that have ended did.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            accesses: self.header(Header::Accesses).load(Relaxed),
            bytes: self.header(Header::Bytes).load(Relaxed),
            duration_us: self.header(Header::DurationUs).load(Relaxed),
        }
    }

    /// Records a start or restart: its time, the number of the configuration, and the parent.
    /// Parent only.
    pub fn note_start(&self, now_us: u64, generation: u32, parent_pid: i32, most_children: usize) {
        self.set_header(Header::RestartUs, now_us);
        self.set_header(Header::Generation, u64::from(generation));
        self.set_header(Header::ParentPid, u64::from(parent_pid.unsigned_abs()));
        self.set_header(Header::MostChildren, most_children as u64);
    }

    /// Records the CPU time of all reaped children, in microseconds. Parent only.
    pub fn note_reaped_cpu(&self, user_us: u64, system_us: u64) {
        self.set_header(Header::ReapedUserUs, user_us);
        self.set_header(Header::ReapedSystemUs, system_us);
    }

    /// When the server last started or restarted, in microseconds since 1970.
    #[must_use]
    pub fn restart_us(&self) -> u64 {
        self.header(Header::RestartUs).load(Relaxed)
    }

    /// The number of the current configuration, 0 for the first.
    #[must_use]
    pub fn generation(&self) -> u32 {
        u32::try_from(self.header(Header::Generation).load(Relaxed)).unwrap_or(u32::MAX)
    }

    /// The parent's pid.
    #[must_use]
    pub fn parent_pid(&self) -> i32 {
        i32::try_from(self.header(Header::ParentPid).load(Relaxed)).unwrap_or(0)
    }

    /// The most children that may serve at the same time, by configuration.
    #[must_use]
    pub fn most_children(&self) -> usize {
        let most = self.header(Header::MostChildren).load(Relaxed);
        usize::try_from(most).unwrap_or(usize::MAX).min(self.layout.children)
    }

    /// User and system CPU time of all reaped children, in microseconds.
    #[must_use]
    pub fn reaped_cpu_us(&self) -> (u64, u64) {
        (
            self.header(Header::ReapedUserUs).load(Relaxed),
            self.header(Header::ReapedSystemUs).load(Relaxed),
        )
    }

    /// How many lines, from the first, were ever used. Reading others would only touch memory, and
    /// so cost it.
    #[must_use]
    pub fn lines_used(&self) -> usize {
        let used = self.header(Header::LinesUsed).load(Relaxed);
        usize::try_from(used).unwrap_or(usize::MAX).min(self.layout.children)
    }

    fn header(&self, field: Header) -> &'static AtomicU64 {
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        self.region.words().get(field as usize).unwrap_or(&NOWHERE)
    }

    fn set_header(&self, field: Header, value: u64) {
        self.header(field).store(value, Relaxed);
    }

    fn valid(&self, child: usize) -> Option<usize> {
        (child < self.layout.children).then_some(child)
    }

    fn span(&self, at: usize, words: usize) -> Option<&'static [AtomicU64]> {
        self.region.words().get(at..at + words)
    }

    fn own_lines(&self) -> usize {
        HEADER_WORDS
    }

    fn parent_lines(&self) -> usize {
        self.own_lines() + self.layout.children * OWN_WORDS
    }

    fn hot_lines(&self) -> usize {
        self.parent_lines() + self.layout.children * PARENT_WORDS
    }

    fn cold_lines(&self) -> usize {
        self.hot_lines() + self.layout.children * self.layout.slots_per_child * HOT_WORDS
    }

    /// The words of the history, which follow all lines.
    pub(crate) fn history(&self) -> Option<&'static [AtomicU64]> {
        let slots = self.layout.children * self.layout.slots_per_child;
        self.span(self.cold_lines() + slots * COLD_WORDS, HISTORY_WORDS)
    }
}

/// The line that the parent writes about a child, and that every process reads.
#[derive(Clone, Copy)]
pub struct ParentLine {
    words: &'static [AtomicU64],
}

impl ParentLine {
    /// Sets the child's pid. Parent only.
    pub fn set_pid(&self, pid: i32) {
        self.set(Field::Pid, u64::from(pid.unsigned_abs()));
    }

    /// Sets the child's phase. Parent only.
    pub fn set_phase(&self, phase: Phase) {
        self.set(Field::Phase, phase as u64);
    }

    /// Sets how many requests the child may work on at once. Parent only.
    pub fn set_credits(&self, credits: usize) {
        self.set(Field::Credits, credits as u64);
    }

    /// The child's pid; 0 if the line is empty.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.load(Field::Pid)).unwrap_or(0)
    }

    /// The child's phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        Phase::from_word(self.load(Field::Phase))
    }

    /// The number of the configuration that the child serves.
    #[must_use]
    pub fn generation(&self) -> u32 {
        u32::try_from(self.load(Field::Generation)).unwrap_or(u32::MAX)
    }

    /// The bucket of listening sockets from which the child accepts.
    #[must_use]
    pub fn bucket(&self) -> u32 {
        u32::try_from(self.load(Field::Bucket)).unwrap_or(u32::MAX)
    }

    /// When the child was forked, in microseconds since 1970.
    #[must_use]
    pub fn started_us(&self) -> u64 {
        self.load(Field::StartedUs)
    }

    /// How many requests the child may work on at once.
    #[must_use]
    pub fn credits(&self) -> usize {
        usize::try_from(self.load(Field::Credits)).unwrap_or(usize::MAX)
    }

    fn load(&self, field: Field) -> u64 {
        self.words.get(field as usize).map_or(0, |word| word.load(Relaxed))
    }

    fn set(&self, field: Field, value: u64) {
        if let Some(word) = self.words.get(field as usize) {
            word.store(value, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::{Request, Slots};
    use crate::state::SlotState;

    #[test]
    fn lines_do_not_overlap_and_end_within_the_memory() {
        let layout = Layout { children: 3, slots_per_child: 5 };
        let board = Scoreboard::new(layout).unwrap();
        let mut seen = std::collections::HashSet::new();
        let mut note = |words: &'static [AtomicU64]| {
            for word in words {
                assert!(seen.insert(std::ptr::from_ref(word)), "two lines share a word");
            }
        };
        for child in 0..3 {
            note(board.parent_line(child).unwrap().words);
            note(board.child_line(child).unwrap().words());
            for slot in 0..5 {
                let line = board.slot_line(child, slot).unwrap();
                note(line.hot);
                note(line.cold);
                assert_eq!(std::ptr::from_ref(&line.hot[0]).addr() % 64, 0, "a cache line each");
            }
        }
        note(board.history().unwrap());
        assert!(board.parent_line(3).is_none());
        assert!(board.slot_line(0, 5).is_none());
    }

    #[test]
    fn what_a_child_did_outlives_it() {
        let board = Scoreboard::new(Layout { children: 2, slots_per_child: 4 }).unwrap();
        board.assign(1, 3, 0, 4, 17);
        let slots = Slots::new(board, 1, 4);
        let slot = slots.take(SlotState::Writing, &Request::default(), 1_000).unwrap();
        slot.finish(500, 2_000);
        drop(slot);
        board.release(1);
        assert_eq!(board.totals(), Totals { accesses: 1, bytes: 500, duration_us: 2_000 });
        assert_eq!(board.parent_line(1).unwrap().phase(), Phase::Empty);
        board.release(1);
        assert_eq!(board.totals().accesses, 1);
    }

    #[test]
    fn sizes_are_bounded() {
        assert!(Scoreboard::new(Layout { children: 0, slots_per_child: 1 }).is_err());
        assert!(Scoreboard::new(Layout { children: 1024, slots_per_child: 1024 }).is_err());
    }
}
