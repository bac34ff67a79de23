//! Worker slots: a request in progress takes one, describes itself in it, and returns it. Each slot
//! has one writer; taking it is a compare-and-swap and a few plain stores. The slots are for people
//! to read: no decision depends on them.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use crate::board::Scoreboard;
use crate::state::SlotState;

pub(crate) const HOT_WORDS: usize = 8;
pub(crate) const COLD_WORDS: usize = 32;

/// The description of a request for the status page. Longer texts are cut: the client at 48 bytes,
/// the protocol at 16, the virtual host at 48, the request line at 128.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// The client's address.
    pub client: &'a [u8],
    /// The protocol's name, as `http/1.1`.
    pub protocol: &'a [u8],
    /// The virtual host's name and port.
    pub vhost: &'a [u8],
    /// The request line.
    pub line: &'a [u8],
    /// How many requests this connection has had before.
    pub connection_accesses: u32,
    /// How many bytes were sent on this connection before.
    pub connection_bytes: u64,
}

/// The worker slots of a child. Every serving thread can keep a copy.
#[derive(Clone, Copy)]
pub struct Slots {
    lines: SlotLines,
    // A bit is set if its slot is free. The lowest free slot is taken, so that the same few lines
    // stay in the caches and the status page fills from the left.
    free: &'static [AtomicU64],
    // The slot of a worker that has one of its own.
    own: Option<usize>,
}

/// A slot in use; dropping it returns the slot.
pub struct SlotGuard {
    line: SlotLine,
    free: &'static AtomicU64,
    bit: u64,
    /// The state of the slot after that.
    after: SlotState,
}

/// The lines of a child's slots; every slot has the same number of words of either kind.
#[derive(Clone, Copy)]
pub(crate) struct SlotLines {
    pub(crate) hot: &'static [AtomicU64],
    pub(crate) cold: &'static [AtomicU64],
}

impl SlotLines {
    pub(crate) fn of(&self, slot: usize) -> Option<SlotLine> {
        let hot = self.hot.get(slot.checked_mul(HOT_WORDS)?..)?.get(..HOT_WORDS)?;
        let cold = self.cold.get(slot.checked_mul(COLD_WORDS)?..)?.get(..COLD_WORDS)?;
        Some(SlotLine { hot, cold })
    }
}

#[derive(Clone, Copy)]
pub(crate) struct SlotLine {
    pub(crate) hot: &'static [AtomicU64],
    pub(crate) cold: &'static [AtomicU64],
}

#[derive(Clone, Copy)]
#[repr(usize)]
enum Hot {
    State,
    StartUs,
    // The low half has the last request's microseconds, the high half the connection's count of
    // requests.
    LastAndConnection,
    Accesses,
    Bytes,
    DurationTotalUs,
    CpuUs,
    ConnectionBytes,
}

// The position of each text in a cold line, in words: start and length. Word 0 is the sequence
// number, odd while the line is being written.
const CLIENT: (usize, usize) = (1, 6);
const PROTOCOL: (usize, usize) = (7, 2);
const VHOST: (usize, usize) = (9, 6);
const LINE: (usize, usize) = (15, 16);

impl Slots {
    /// The first `count` slots of a child, all free. It is called once in a child's life; `count`
    /// is cut to the size of the scoreboard.
    #[must_use]
    pub fn new(board: Scoreboard, child: usize, count: usize) -> Self {
        let count = count.min(board.layout().slots_per_child);
        let words: Vec<AtomicU64> = (0..count.div_ceil(64))
            .map(|word| {
                let bits = (count - word * 64).min(64);
                AtomicU64::new(if bits == 64 { u64::MAX } else { (1 << bits) - 1 })
            })
            .collect();
        // A child without a line has no slots.
        let lines = board.slot_lines(child).unwrap_or(SlotLines { hot: &[], cold: &[] });
        for line in (0..count).filter_map(|slot| lines.of(slot)) {
            line.set_state(SlotState::Ready);
        }
        Self { lines, free: Box::leak(words.into_boxed_slice()), own: None }
    }

    /// The same for a worker that has one slot for its life: its requests take that slot and no
    /// other, and between requests the worker sets its state. It is called once for each worker.
    #[must_use]
    pub fn of_worker(&self, slot: usize) -> Self {
        let words: Vec<AtomicU64> = (0..self.free.len())
            .map(|word| AtomicU64::new(if word == slot / 64 { 1 << (slot % 64) } else { 0 }))
            .collect();
        Self { free: Box::leak(words.into_boxed_slice()), own: Some(slot), ..*self }
    }

    /// Whether this is a worker's own slot.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Sets the state of a worker's own slot between requests.
    pub fn show(&self, state: SlotState) {
        let line = self.own.and_then(|slot| self.lines.of(slot));
        if let Some(line) = line {
            line.set_state(state);
        }
    }

    /// Takes the lowest free slot for a request that starts at `now_us` (microseconds since 1970).
    /// `None` if all are in use.
    #[must_use]
    pub fn take(&self, state: SlotState, request: &Request<'_>, now_us: u64) -> Option<SlotGuard> {
        for (at, word) in self.free.iter().enumerate() {
            let mut bits = word.load(Relaxed);
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                match word.compare_exchange_weak(bits, bits & !bit, AcqRel, Relaxed) {
                    Ok(_) => {
                        let slot = at * 64 + bit.trailing_zeros() as usize;
                        let line = self.lines.of(slot)?;
                        line.begin(state, request, now_us);
                        // A worker's own slot goes on reading after a request; a shared slot is
                        // ready for the next one.
                        let after =
                            if self.is_own() { SlotState::Reading } else { SlotState::Ready };
                        return Some(SlotGuard { line, free: word, bit, after });
                    }
                    Err(now) => bits = now,
                }
            }
        }
        None
    }
}

impl SlotGuard {
    /// Sets the state.
    pub fn set_state(&self, state: SlotState) {
        self.line.set_state(state);
    }

    /// Counts the request as answered, with `bytes` of body, after `duration_us`. Once for each
    /// request.
    pub fn finish(&self, bytes: u64, duration_us: u64) {
        let line = self.line;
        line.raise(Hot::Accesses, 1);
        line.raise(Hot::Bytes, bytes);
        line.raise(Hot::DurationTotalUs, duration_us);
        line.raise(Hot::ConnectionBytes, bytes);
        let last = duration_us.min(u64::from(u32::MAX));
        let connection = line.load(Hot::LastAndConnection) & !u64::from(u32::MAX);
        line.store(Hot::LastAndConnection, (connection | last).wrapping_add(1 << 32));
    }

    /// Adds CPU time that was measured for this request, in microseconds.
    pub fn add_cpu(&self, cpu_us: u64) {
        self.line.raise(Hot::CpuUs, cpu_us);
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.line.set_state(self.after);
        self.free.fetch_or(self.bit, Release);
    }
}

impl SlotLine {
    pub(crate) fn state(&self) -> SlotState {
        SlotState::from_word(self.load(Hot::State))
    }

    pub(crate) fn is_untouched(&self) -> bool {
        self.load(Hot::State) == SlotState::Open as u64 && self.load(Hot::StartUs) == 0
    }

    pub(crate) fn start_us(&self) -> u64 {
        self.load(Hot::StartUs)
    }

    pub(crate) fn last_duration_us(&self) -> u64 {
        self.load(Hot::LastAndConnection) & u64::from(u32::MAX)
    }

    pub(crate) fn connection_accesses(&self) -> u64 {
        self.load(Hot::LastAndConnection) >> 32
    }

    pub(crate) fn connection_bytes(&self) -> u64 {
        self.load(Hot::ConnectionBytes)
    }

    pub(crate) fn accesses(&self) -> u64 {
        self.load(Hot::Accesses)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.load(Hot::Bytes)
    }

    pub(crate) fn duration_total_us(&self) -> u64 {
        self.load(Hot::DurationTotalUs)
    }

    pub(crate) fn cpu_us(&self) -> u64 {
        self.load(Hot::CpuUs)
    }

    pub(crate) fn clear(&self) {
        for word in self.hot.iter().chain(self.cold) {
            word.store(0, Relaxed);
        }
    }

    /// The client, protocol, virtual host and request line, as one writer stored them; `None` if
    /// they were being written at every attempt.
    pub(crate) fn texts(&self) -> Option<[Vec<u8>; 4]> {
        let sequence = self.cold.first()?;
        for _ in 0..64 {
            let before = sequence.load(Acquire);
            let texts = [CLIENT, PROTOCOL, VHOST, LINE].map(|place| self.load_text(place));
            fence(Acquire);
            if before.is_multiple_of(2) && sequence.load(Relaxed) == before {
                return Some(texts);
            }
            std::hint::spin_loop();
        }
        None
    }

    fn begin(&self, state: SlotState, request: &Request<'_>, now_us: u64) {
        self.store(Hot::StartUs, now_us);
        self.store(Hot::ConnectionBytes, request.connection_bytes);
        let last = self.load(Hot::LastAndConnection) & u64::from(u32::MAX);
        let connection = u64::from(request.connection_accesses) << 32;
        self.store(Hot::LastAndConnection, connection | last);
        self.store_texts(request);
        self.set_state(state);
    }

    fn store_texts(&self, request: &Request<'_>) {
        let Some(sequence) = self.cold.first() else { return };
        // A sequence lock: an odd number marks the line while it is written. The fence keeps the
        // texts after the mark, and the release store keeps them before its end. A writer that was
        // killed in between leaves an odd number, which the next writer makes even again.
        let odd = sequence.load(Relaxed) | 1;
        sequence.store(odd, Relaxed);
        fence(Release);
        self.store_text(CLIENT, request.client);
        self.store_text(PROTOCOL, request.protocol);
        self.store_text(VHOST, request.vhost);
        self.store_text(LINE, request.line);
        sequence.store(odd.wrapping_add(1), Release);
    }

    /// Stores the text, followed by a word of zeros if the field has room.
    fn store_text(&self, (at, length): (usize, usize), text: &[u8]) {
        let Some(words) = self.cold.get(at..at + length) else { return };
        let (whole, rest) = text.as_chunks::<8>();
        let mut last = [0_u8; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let values = whole.iter().chain(std::iter::once(&last));
        for (word, value) in words.iter().zip(values) {
            word.store(u64::from_ne_bytes(*value), Relaxed);
        }
    }

    fn load_text(&self, (at, length): (usize, usize)) -> Vec<u8> {
        let words = self.cold.get(at..at + length).unwrap_or_default();
        let bytes = words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes());
        bytes.take_while(|&byte| byte != 0).collect()
    }

    fn set_state(&self, state: SlotState) {
        self.store(Hot::State, state as u64);
    }

    /// Adds to a word that only this slot's writer changes, without a locked instruction.
    fn raise(&self, field: Hot, amount: u64) {
        self.store(field, self.load(field).wrapping_add(amount));
    }

    fn load(&self, field: Hot) -> u64 {
        self.hot.get(field as usize).map_or(0, |word| word.load(Relaxed))
    }

    fn store(&self, field: Hot, value: u64) {
        if let Some(word) = self.hot.get(field as usize) {
            word.store(value, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    fn board() -> Scoreboard {
        Scoreboard::new(Layout { children: 1, slots_per_child: 130 }).unwrap()
    }

    #[test]
    fn the_lowest_free_slot_is_taken_and_given_back() {
        let slots = Slots::new(board(), 0, 130);
        let take = || slots.take(SlotState::Writing, &Request::default(), 1);
        let mut held: Vec<SlotGuard> = (0..130).map(|_| take().unwrap()).collect();
        assert!(take().is_none());
        drop(held.remove(3));
        let again = take().unwrap();
        assert_eq!(again.bit, 8);
        assert!(take().is_none());
    }

    #[test]
    fn no_more_slots_are_given_than_the_child_has_credits() {
        let slots = Slots::new(board(), 0, 65);
        let held: Vec<_> =
            std::iter::from_fn(|| slots.take(SlotState::Reading, &Request::default(), 1)).collect();
        assert_eq!(held.len(), 65);
    }

    #[test]
    fn a_worker_has_its_own_slot_and_says_what_it_shows() {
        let slots = Slots::new(board(), 0, 130);
        let own = slots.of_worker(70);
        let state = || slots.lines.of(70).unwrap().state();
        let held = own.take(SlotState::Writing, &Request::default(), 1).unwrap();
        assert!(own.take(SlotState::Writing, &Request::default(), 1).is_none());
        assert_eq!(state(), SlotState::Writing);
        drop(held);
        assert_eq!(state(), SlotState::Reading);
        own.show(SlotState::KeepAlive);
        assert_eq!(state(), SlotState::KeepAlive);
        drop(own.take(SlotState::Writing, &Request::default(), 1).unwrap());
        slots.show(SlotState::Closing);
        assert_eq!(state(), SlotState::Reading, "what is nobody's own is not shown so");
    }

    #[test]
    fn texts_are_cut_and_do_not_show_what_stood_before() {
        let slots = Slots::new(board(), 0, 1);
        let long = [b'x'; 300];
        let request = Request { line: &long, client: b"203.0.113.7", ..Request::default() };
        let slot = slots.take(SlotState::Writing, &request, 1).unwrap();
        let [client, _, _, line] = slot.line.texts().unwrap();
        assert_eq!((client.as_slice(), line.len()), (b"203.0.113.7".as_slice(), 128));
        drop(slot);
        let request = Request { line: b"GET / HTTP/1.1", client: b"::1", ..Request::default() };
        let slot = slots.take(SlotState::Writing, &request, 2).unwrap();
        let [client, _, _, line] = slot.line.texts().unwrap();
        assert_eq!((client.as_slice(), line.as_slice()), (&b"::1"[..], &b"GET / HTTP/1.1"[..]));
    }

    #[test]
    fn a_line_that_its_writer_left_half_written_is_not_shown() {
        let slots = Slots::new(board(), 0, 1);
        let slot = slots.take(SlotState::Writing, &Request::default(), 1).unwrap();
        slot.line.cold[0].store(5, Relaxed);
        assert!(slot.line.texts().is_none());
        drop(slot);
        let slot = slots.take(SlotState::Writing, &Request::default(), 1).unwrap();
        assert!(slot.line.texts().is_some());
    }

    #[test]
    fn readers_never_see_a_mixture() {
        let slots = Slots::new(board(), 0, 1);
        let line = slots.lines.of(0).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000_u32 {
                    let letter = [b'a' + u8::try_from(round % 26).unwrap(); 120];
                    let request = Request { line: &letter, vhost: &letter, ..Request::default() };
                    drop(slots.take(SlotState::Writing, &request, 1).unwrap());
                }
            });
            for _ in 0..20_000 {
                if let Some([_, _, vhost, line]) = line.texts() {
                    let first = line.first().copied();
                    assert!(line.iter().chain(&vhost).all(|byte| Some(*byte) == first));
                }
            }
        });
    }
}
