//! The state of the balancers of one configuration and of their members, in memory that the parent
//! maps and that all children of the generation share: how many requests a member has, what it was
//! sent, whether it has failed, and what the administrator has changed. Every process may write
//! every word, so that a reader takes each one for a claim: a number is clamped by whoever uses it,
//! and a text has a fixed room. The size follows from the configuration.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize, fence};

use evenkeel_sys::memory::Shared;

/// The words of a line, for numbers and then for texts.
const LINE: usize = NUMBERS + TEXTS * TEXT_WORDS;
const NUMBERS: usize = 32;
const TEXTS: usize = 4;
const TEXT_WORDS: usize = 8;

/// The most bytes of a text, without a terminator (mod_proxy.h: PROXY_WORKER_MAX_ROUTE_SIZE).
pub const MOST_TEXT: usize = 63;

/// The most children whose requests in progress are counted apart, so that they can be taken off
/// when the child dies, and the most words for it. MAP_NORESERVE has a page take memory only when
/// it is used.
const MOST_CHILDREN: usize = 4096;
const MOST_CHILD_WORDS: usize = 4 << 20;

/// How often a reader tries to read a text that is being written. A writer that has died in the
/// middle leaves a mixture of two texts.
const TRIES: usize = 64;

/// The memory of the balancers and members of one configuration.
pub struct Members {
    region: Region,
    lines: usize,
    children: usize,
    /// The index of this child; `usize::MAX` in a process that serves nothing.
    child: AtomicUsize,
}

/// Where the words are.
enum Region {
    Shared(Shared),
    Own(Box<[AtomicU64]>),
}

impl Region {
    fn words(&self) -> &[AtomicU64] {
        match self {
            Region::Shared(region) => region.words(),
            Region::Own(words) => words,
        }
    }
}

/// A number of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Number {
    /// Requests in progress at the member.
    Busy,
    /// How often the member was chosen.
    Elected,
    /// Bytes that were sent to the member.
    Sent,
    /// Bytes of bodies that were received from the member.
    Received,
    /// When the member failed, in microseconds of the monotonic clock; 0 if it has not.
    FailedUs,
    /// The weight that the member has gained and not spent, as an i64.
    Weight,
    /// How often the member was tried again after it had failed.
    Retries,
    /// The letters of `status`, as bits.
    Letters,
    /// The share of the member, in hundredths (`loadfactor`).
    Factor,
    /// `lbset`.
    Set,
    /// When the last failure of a check was, in microseconds since 1970.
    ErrorUs,
    /// The method of the health check.
    CheckMethod,
    /// The interval of the health check in microseconds (`hcinterval`).
    CheckInterval,
    /// The number of good checks after which a member is used again (`hcpasses`).
    Passes,
    /// The good checks that count towards `hcpasses`.
    Passed,
    /// The number of bad checks after which a member is not used (`hcfails`).
    Fails,
    /// The bad checks that count towards `hcfails`.
    Failed,
    /// When the member was last checked, in microseconds of the monotonic clock.
    CheckedUs,
    /// `lbmethod` of a balancer.
    Method,
    /// `maxattempts` of a balancer.
    Attempts,
    /// Whether `nofailover` of a balancer is on.
    NoFailover,
    /// `timeout` of a balancer in seconds.
    Timeout,
    /// Odd while a text is written.
    Version,
}

/// A text of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Text {
    /// The route of the sessions of a member.
    Route,
    /// The route that stands in for that of the member.
    Redirect,
    /// The path of the health check (`hcuri`).
    CheckPath,
    /// The name of the condition of the health check (`hcexpr`).
    CheckCondition,
}

impl Text {
    /// The cookie that holds the route of a session, of a balancer.
    pub const COOKIE: Text = Text::Route;
    /// The parameter that holds the route of a session, of a balancer.
    pub const PARAMETER: Text = Text::Redirect;
}

/// A text as it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShortText {
    bytes: [u8; MOST_TEXT + 1],
    length: usize,
}

impl ShortText {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.as_bytes()), f)
    }
}

/// The line of one balancer or member.
#[derive(Clone)]
pub struct Line {
    members: Arc<Members>,
    at: usize,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("at", &self.at).finish_non_exhaustive()
    }
}

/// Counts a request at a member until it is dropped.
#[derive(Debug)]
pub struct Busy(Line);

impl Members {
    /// Maps zeroed memory for so many balancers and members together.
    ///
    /// # Errors
    /// mmap(2) fails, or there are too many for the address space.
    pub fn new(lines: usize) -> io::Result<Arc<Self>> {
        let lines = lines.max(1);
        let children = (MOST_CHILD_WORDS / lines).min(MOST_CHILDREN);
        let words = lines.checked_mul(LINE + children).ok_or(io::ErrorKind::InvalidInput)?;
        let region = Region::Shared(Shared::new(words)?);
        Ok(Arc::new(Self { region, lines, children, child: AtomicUsize::new(usize::MAX) }))
    }

    /// The line with this number, which is less than the number of lines.
    #[must_use]
    pub fn line(self: &Arc<Self>, at: usize) -> Line {
        Line { members: Arc::clone(self), at }
    }

    /// Says which child this process is. Called once, after the fork.
    pub fn enter(&self, child: usize) {
        self.child.store(child, Relaxed);
    }

    /// Takes the requests off that a child had in progress when it ended. Parent only.
    pub fn release(&self, child: usize) {
        for at in 0..self.lines {
            let Some(own) = self.of_child(child, at) else { return };
            let held = own.swap(0, Relaxed);
            if let Some(total) = self.word(at, Number::Busy as usize).filter(|_| held > 0) {
                take_off(total, held);
            }
        }
    }

    fn word(&self, at: usize, word: usize) -> Option<&AtomicU64> {
        let is_within = at < self.lines && word < LINE;
        self.region.words().get(at * LINE + word).filter(|_| is_within)
    }

    /// Where a child counts its requests in progress at a member.
    fn of_child(&self, child: usize, at: usize) -> Option<&AtomicU64> {
        let is_within = child < self.children && at < self.lines;
        let place = is_within.then(|| self.lines * LINE + child * self.lines + at)?;
        self.region.words().get(place)
    }

    fn held(&self, at: usize) -> Option<&AtomicU64> {
        self.of_child(self.child.load(Relaxed), at)
    }
}

/// Subtracts, but not below 0.
fn take_off(word: &AtomicU64, count: u64) {
    let _always_some =
        word.fetch_update(Relaxed, Relaxed, |before| Some(before.saturating_sub(count)));
}

impl Line {
    /// A line that no other process has: for tests, and where memory cannot be shared.
    #[must_use]
    pub fn alone() -> Self {
        let words = (0..LINE).map(|_| AtomicU64::new(0)).collect();
        let region = Region::Own(words);
        let child = AtomicUsize::new(usize::MAX);
        Line { members: Arc::new(Members { region, lines: 1, children: 0, child }), at: 0 }
    }

    fn word(&self, number: Number) -> &AtomicU64 {
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        self.members.word(self.at, number as usize).unwrap_or(&NOWHERE)
    }

    /// A number.
    #[must_use]
    pub fn number(&self, number: Number) -> u64 {
        self.word(number).load(Relaxed)
    }

    /// Sets a number.
    pub fn set(&self, number: Number, value: u64) {
        self.word(number).store(value, Relaxed);
    }

    /// Adds to a number, with wrap-around, and returns what it was.
    pub fn add(&self, number: Number, value: u64) -> u64 {
        self.word(number).fetch_add(value, Relaxed)
    }

    /// Sets a number if it has the value `before`. Returns whether it had.
    #[must_use]
    pub fn replace(&self, number: Number, before: u64, value: u64) -> bool {
        self.word(number).compare_exchange(before, value, Relaxed, Relaxed).is_ok()
    }

    /// Sets and clears bits of a number.
    pub fn set_bits(&self, number: Number, set: u64, clear: u64) {
        let _always_some = self
            .word(number)
            .fetch_update(Relaxed, Relaxed, |before| Some((before & !clear) | set));
    }

    /// Counts a request at the member.
    #[must_use]
    pub fn begin(&self) -> Busy {
        self.add(Number::Busy, 1);
        if let Some(own) = self.members.held(self.at) {
            own.fetch_add(1, Relaxed);
        }
        Busy(self.clone())
    }

    fn text_words(&self, text: Text) -> impl Iterator<Item = &AtomicU64> {
        let first = NUMBERS + text as usize * TEXT_WORDS;
        (first..first + TEXT_WORDS).filter_map(|word| self.members.word(self.at, word))
    }

    /// A text. It ends at its first byte 0.
    #[must_use]
    pub fn text(&self, text: Text) -> ShortText {
        let version = self.word(Number::Version);
        let mut bytes = [0; MOST_TEXT + 1];
        for _ in 0..TRIES {
            let before = version.load(Acquire);
            for (place, word) in bytes.chunks_exact_mut(8).zip(self.text_words(text)) {
                place.copy_from_slice(&word.load(Relaxed).to_le_bytes());
            }
            fence(Acquire);
            if before & 1 == 0 && version.load(Relaxed) == before {
                break;
            }
            std::thread::yield_now();
        }
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(MOST_TEXT);
        ShortText { bytes, length: length.min(MOST_TEXT) }
    }

    /// Sets a text. What is behind [`MOST_TEXT`] bytes is cut off.
    pub fn set_text(&self, text: Text, value: &[u8]) {
        let version = self.word(Number::Version);
        for _ in 0..TRIES {
            // The writer before this one may have died.
            if version.fetch_or(1, AcqRel) & 1 == 0 {
                break;
            }
            std::thread::yield_now();
        }
        fence(Release);
        let mut bytes = [0; MOST_TEXT + 1];
        for (place, byte) in bytes.iter_mut().zip(value.iter().take(MOST_TEXT)) {
            *place = *byte;
        }
        for (part, word) in bytes.chunks_exact(8).zip(self.text_words(text)) {
            let part = part.try_into().unwrap_or_default();
            word.store(u64::from_le_bytes(part), Relaxed);
        }
        version.fetch_add(1, Release);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Self(line) = self;
        take_off(line.word(Number::Busy), 1);
        if let Some(own) = line.members.held(line.at) {
            take_off(own, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_numbers_and_texts_apart() {
        let members = Members::new(3).unwrap();
        let (first, last) = (members.line(0), members.line(2));
        first.set(Number::Factor, 100);
        last.set(Number::Factor, 200);
        last.set_text(Text::Route, b"a");
        last.set_text(Text::CheckCondition, "z".repeat(100).as_bytes());
        assert_eq!((first.number(Number::Factor), last.number(Number::Factor)), (100, 200));
        assert_eq!(last.text(Text::Route).as_bytes(), b"a");
        assert!(last.text(Text::Redirect).is_empty() && first.text(Text::Route).is_empty());
        assert_eq!(last.text(Text::CheckCondition).as_bytes().len(), MOST_TEXT);
        last.set_text(Text::Route, b"");
        assert!(last.text(Text::Route).is_empty());
        last.set_bits(Number::Letters, 0b101, 0);
        last.set_bits(Number::Letters, 0b10, 0b100);
        assert_eq!(last.number(Number::Letters), 0b11);
        // A number beyond the memory is no line.
        members.line(3).set(Number::Factor, 5);
        assert_eq!(members.line(4).text(Text::Route).as_bytes(), b"");
    }

    #[test]
    fn a_text_whose_writer_has_died_is_read_and_written_again() {
        let line = Members::new(1).unwrap().line(0);
        line.set_text(Text::Route, b"whole");
        line.add(Number::Version, 1);
        assert_eq!(line.text(Text::Route).as_bytes(), b"whole");
        line.set_text(Text::Route, b"next");
        assert_eq!(line.text(Text::Route).as_bytes(), b"next");
        assert_eq!(line.number(Number::Version) & 1, 0);
    }

    #[test]
    fn requests_of_a_dead_child_are_taken_off() {
        let members = Members::new(2).unwrap();
        let line = members.line(1);
        members.enter(7);
        let of_the_dead = [line.begin(), line.begin()];
        members.enter(8);
        let of_another = line.begin();
        assert_eq!(line.number(Number::Busy), 3);
        std::mem::forget(of_the_dead);
        members.release(7);
        assert_eq!(line.number(Number::Busy), 1);
        members.release(7);
        drop(of_another);
        assert_eq!(line.number(Number::Busy), 0);
        // A claim that was never true is not below 0.
        line.set(Number::Busy, 0);
        drop(line.begin());
        members.enter(usize::MAX);
        drop(line.begin());
        assert_eq!(line.number(Number::Busy), 0);
    }
}
