//! Log buffers that outlive the process that fills them. A child appends complete lines, and
//! empties the buffer once it has written them to the log. If it dies before, the parent takes what
//! is left. The parent bounds every length that it reads here by the size of the buffer.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use evenkeel_sys::memory::{self, Shared};

/// How many children's buffers share a mapping. A mapping for each child would be copied by each
/// fork and unmapped in each child: 500 processes would take twice the CPU time to start.
const TOGETHER: usize = 64;

/// The buffers of all children of a configuration, in the parent. It reserves a child's buffers
/// before the fork, the child keeps its own alone, and the parent reads what the child left.
pub struct LineStore {
    count: usize,
    // For each buffer, and for each child: whole pages.
    words: usize,
    of_child: usize,
    mapped: RefCell<BTreeMap<usize, Shared>>,
}

/// The buffers of one child.
#[derive(Clone)]
pub struct LineBuffers {
    region: Arc<Shared>,
    count: usize,
    // For each buffer: one word of length, then the bytes.
    words: usize,
}

/// The only writer of a buffer.
pub struct LineWriter {
    region: Arc<Shared>,
    start: usize,
    capacity: usize,
    length: usize,
    // The bytes of the last, incomplete word.
    partial: u64,
}

impl LineStore {
    /// For children with `count` buffers of `bytes` each (rounded up to whole words).
    /// `InvalidInput` if they exceed the address space.
    pub fn new(count: usize, bytes: usize) -> io::Result<Self> {
        let words = bytes.div_ceil(8).max(1) + 1;
        let all = count.checked_mul(words).filter(|all| *all < usize::MAX / 16 / TOGETHER);
        let of_child = memory::whole_pages(all.ok_or(io::ErrorKind::InvalidInput)?.max(1));
        Ok(Self { count, words, of_child, mapped: RefCell::default() })
    }

    /// Reserves memory for the buffers of a child, which costs nothing until lines are written.
    /// Errors are mmap(2)'s.
    pub fn reserve(&self, child: usize) -> io::Result<()> {
        let mut mapped = self.mapped.borrow_mut();
        if let std::collections::btree_map::Entry::Vacant(free) = mapped.entry(child / TOGETHER) {
            let _new = free.insert(Shared::new(self.of_child * TOGETHER)?);
        }
        Ok(())
    }

    /// Keeps the buffers that were reserved for a child, in that child, and drops all others.
    /// Errors are those of [`Shared::keep`].
    pub fn take(&self, child: usize) -> io::Result<LineBuffers> {
        let mut mapped = std::mem::take(&mut *self.mapped.borrow_mut());
        let region = mapped.remove(&(child / TOGETHER)).ok_or(io::ErrorKind::NotFound)?;
        let region = Arc::new(region.keep(self.part(child))?);
        Ok(LineBuffers { region, count: self.count, words: self.words })
    }

    /// Drops all buffers, in a process that is not the parent.
    pub fn forget(&self) {
        self.mapped.borrow_mut().clear();
    }

    /// How many buffers each child has.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// What a dead child left in a buffer, as it appended it.
    #[must_use]
    pub fn leftover(&self, child: usize, buffer: usize) -> Vec<u8> {
        let mapped = self.mapped.borrow();
        let words =
            mapped.get(&(child / TOGETHER)).and_then(|all| all.words().get(self.part(child)));
        let at = start(buffer, self.count, self.words);
        let words = words.zip(at).and_then(|(words, at)| words.get(at..at + self.words));
        words.map(leftover).unwrap_or_default()
    }

    /// Empties the buffers of a dead child, and releases their memory.
    pub fn clear(&self, child: usize) {
        let mapped = self.mapped.borrow();
        let Some(all) = mapped.get(&(child / TOGETHER)) else { return };
        let words = all.words().get(self.part(child)).unwrap_or_default();
        for at in (0..self.count).filter_map(|buffer| start(buffer, self.count, self.words)) {
            if let Some(length) = words.get(at) {
                length.store(0, Release);
            }
        }
        all.give_back(self.part(child));
    }

    fn part(&self, child: usize) -> Range<usize> {
        let at = child % TOGETHER * self.of_child;
        at..at + self.of_child
    }
}

/// Up to eight bytes as a word, padded with zeros.
fn first_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    if let Some(place) = word.get_mut(..bytes.len()) {
        place.copy_from_slice(bytes);
    }
    u64::from_le_bytes(word)
}

/// The start of a buffer; none if there is no such buffer.
fn start(buffer: usize, count: usize, words: usize) -> Option<usize> {
    (buffer < count).then_some(buffer * words)
}

/// The lines of a buffer: a word of length, then the bytes.
fn leftover(words: &[AtomicU64]) -> Vec<u8> {
    let Some((length, data)) = words.split_first() else { return Vec::new() };
    let length = usize::try_from(length.load(Acquire)).unwrap_or(usize::MAX);
    let bytes = data.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
    bytes.take(length.min(data.len() * 8)).collect()
}

impl LineBuffers {
    /// Creates `count` buffers of `bytes` each (rounded up to whole words). Their memory is
    /// reserved, and costs nothing until lines are written. Errors are mmap(2)'s.
    pub fn new(count: usize, bytes: usize) -> io::Result<Self> {
        let words = bytes.div_ceil(8).max(1) + 1;
        let all = count.checked_mul(words).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { region: Arc::new(Shared::new(all.max(1))?), count, words })
    }

    /// How many buffers there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The writer of a buffer, which starts empty; `None` if there is no such buffer. It is called
    /// once for each buffer, in the child: two writers would mix their lines.
    #[must_use]
    pub fn writer(&self, buffer: usize) -> Option<LineWriter> {
        let start = self.start(buffer)?;
        let mut writer = LineWriter {
            region: Arc::clone(&self.region),
            start,
            capacity: (self.words - 1) * 8,
            length: 0,
            partial: 0,
        };
        writer.clear();
        Some(writer)
    }

    /// What a dead writer left in a buffer, as it appended it. It stays there.
    #[must_use]
    pub fn leftover(&self, buffer: usize) -> Vec<u8> {
        let at = self.start(buffer);
        let words = at.and_then(|at| self.region.words().get(at..at + self.words));
        words.map(leftover).unwrap_or_default()
    }

    fn start(&self, buffer: usize) -> Option<usize> {
        start(buffer, self.count, self.words)
    }
}

impl LineWriter {
    /// Appends complete lines. False, without appending anything, if they do not fit: then the
    /// caller writes the buffer to the log and calls [`clear`](Self::clear).
    pub fn append(&mut self, lines: &[u8]) -> bool {
        if lines.len() > self.capacity - self.length {
            return false;
        }
        let first = self.start + 1 + self.length / 8;
        let filled = self.length % 8;
        let end = self.start + 1 + self.capacity / 8;
        let words = self.region.words().get(first..end).unwrap_or_default();
        let (whole, last) = lines.as_chunks::<8>();
        for (word, bytes) in words.iter().zip(whole) {
            let bytes = u64::from_le_bytes(*bytes);
            word.store(self.partial | bytes << (filled * 8), Relaxed);
            // The bytes without room begin the next word. If there are none, 64 bits are shifted
            // out in two steps.
            self.partial = bytes >> 1 >> (63 - filled * 8);
        }
        // The rest may reach into a second word.
        let rest = u128::from(first_word(last)) << (filled * 8) | u128::from(self.partial);
        let behind = words.iter().skip(whole.len());
        for (at, word) in behind.take((filled + last.len()).div_ceil(8)).enumerate() {
            word.store((rest >> (at * 64)) as u64, Relaxed);
        }
        let is_full = filled + last.len() >= 8;
        self.partial = if is_full { (rest >> 64) as u64 } else { rest as u64 };
        self.publish(self.length + lines.len());
        true
    }

    /// Empties the buffer, once its lines have been written.
    pub fn clear(&mut self) {
        self.partial = 0;
        self.publish(0);
    }

    /// How many bytes are in the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the buffer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How many bytes the buffer can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends the buffer's bytes to `out`, for a caller without a copy of its own.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.length;
        let data = self.start + 1..self.start + 1 + self.length.div_ceil(8);
        for word in self.region.words().get(data).unwrap_or_default() {
            out.extend_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        out.truncate(end);
    }

    /// Publishes the length after the bytes, so that a death in between leaves complete lines.
    fn publish(&mut self, length: usize) {
        self.length = length;
        if let Some(word) = self.region.words().get(self.start) {
            word.store(length as u64, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_any_length_come_out_as_they_went_in() {
        let buffers = LineBuffers::new(3, 4096).unwrap();
        let mut writer = buffers.writer(1).unwrap();
        let mut expected = Vec::new();
        for length in [0_usize, 1, 7, 8, 9, 3, 5, 16, 17, 200, 2, 6, 64] {
            let line: Vec<u8> =
                (0..length).map(|at| b'a' + u8::try_from(at % 26).unwrap()).collect();
            assert!(writer.append(&line));
            expected.extend_from_slice(&line);
            assert_eq!(buffers.leftover(1), expected);
        }
        let mut copy = b"before".to_vec();
        writer.copy_to(&mut copy);
        assert_eq!(copy[6..], expected);
        writer.clear();
        assert!(buffers.leftover(1).is_empty() && writer.is_empty());
        assert!(writer.append(b"again\n"));
        assert_eq!(buffers.leftover(1), b"again\n");
        assert!(buffers.leftover(0).is_empty() && buffers.leftover(2).is_empty());
    }

    #[test]
    fn a_line_of_any_length_follows_one_of_any_other() {
        let buffers = LineBuffers::new(1, 64).unwrap();
        let text: Vec<u8> = (1..=26).collect();
        for (first, second) in (0..26).flat_map(|one| (0..26).map(move |other| (one, other))) {
            let mut writer = buffers.writer(0).unwrap();
            assert!(writer.append(&text[..first]) && writer.append(&text[..second]));
            assert!(writer.append(b"end"));
            let expected = [&text[..first], &text[..second], b"end"].concat();
            assert_eq!(buffers.leftover(0), expected, "{first} {second}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_whole() {
        let buffers = LineBuffers::new(1, 64).unwrap();
        let mut writer = buffers.writer(0).unwrap();
        assert!(writer.append(&[b'x'; 60]));
        assert!(!writer.append(b"12345"));
        assert_eq!(writer.len(), 60);
        assert!(writer.append(b"1234"));
        assert!(buffers.writer(1).is_none());
    }

    #[test]
    fn each_child_has_buffers_of_its_own_that_its_successor_finds_empty() {
        let store = LineStore::new(2, 64).unwrap();
        assert!(LineStore::new(usize::MAX / 8, 64).is_err());
        // What a child takes is a copy of its parent's in another process: here both are one.
        for child in [0, 63, 64, 200] {
            store.reserve(child).unwrap();
        }
        let write = |child: usize, buffer: usize, text: &[u8]| {
            let mapped = store.mapped.borrow();
            let words = &mapped[&(child / TOGETHER)].words()[store.part(child)];
            let at = start(buffer, 2, store.words).unwrap();
            words[at].store(text.len() as u64, Release);
            for (word, byte) in words[at + 1..].iter().zip(text) {
                word.store(u64::from(*byte), Relaxed);
            }
        };
        write(63, 1, b"a");
        write(64, 0, b"b");
        assert_eq!((store.leftover(63, 1)[0], store.leftover(64, 0)[0]), (b'a', b'b'));
        assert!(store.leftover(63, 0).is_empty() && store.leftover(0, 1).is_empty());
        assert!(store.leftover(63, 2).is_empty() && store.leftover(7_000, 0).is_empty());
        store.clear(63);
        assert!(store.leftover(63, 1).is_empty());
        assert_eq!(store.leftover(64, 0).len(), 1);
        let own = store.take(64).unwrap();
        assert_eq!((own.leftover(0), own.count()), (b"b".to_vec(), 2));
        assert!(store.leftover(64, 0).is_empty() && store.take(64).is_err());
    }

    #[test]
    fn a_forged_length_is_cut_to_the_buffer() {
        let buffers = LineBuffers::new(2, 64).unwrap();
        buffers.region.words()[0].store(u64::MAX, Relaxed);
        assert_eq!(buffers.leftover(0).len(), 64);
    }
}
