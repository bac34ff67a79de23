//! Buffers of log lines that outlive the process that filled them. A child appends whole lines
//! and empties the buffer when it has written them out; should it die before, the parent takes
//! what is left. The parent bounds every length that it reads here by the buffer's size.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use evenkeel_sys::memory::Shared;

/// The buffers of one child: made by the parent before the fork, kept by both.
#[derive(Clone)]
pub struct LineBuffers {
    region: Arc<Shared>,
    count: usize,
    // Of each buffer: one word of length, then the bytes.
    words: usize,
}

/// The one writer of one buffer.
pub struct LineWriter {
    region: Arc<Shared>,
    start: usize,
    capacity: usize,
    length: usize,
    // The bytes of the last word that is not full.
    partial: u64,
}

impl LineBuffers {
    /// Makes `count` buffers of `bytes` each (rounded up to whole words). Their memory is
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

    /// The writer of one buffer, which starts empty; `None` where there is no such buffer. To
    /// be called once a buffer, in the child: two writers would mix their lines.
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

    /// What a writer that is dead left in a buffer, as it appended it; it stays there.
    #[must_use]
    pub fn leftover(&self, buffer: usize) -> Vec<u8> {
        let words = self.start(buffer).and_then(|at| self.region.words().get(at..at + self.words));
        let Some((length, data)) = words.and_then(<[AtomicU64]>::split_first) else {
            return Vec::new();
        };
        let length = usize::try_from(length.load(Acquire)).unwrap_or(usize::MAX);
        let bytes = data.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
        bytes.take(length.min(data.len() * 8)).collect()
    }

    fn start(&self, buffer: usize) -> Option<usize> {
        (buffer < self.count).then_some(buffer * self.words)
    }
}

impl LineWriter {
    /// Appends whole lines. False, and nothing is appended, where they do not fit: then it is
    /// time to write out and [`clear`](Self::clear).
    pub fn append(&mut self, lines: &[u8]) -> bool {
        if lines.len() > self.capacity - self.length {
            return false;
        }
        let mut at = self.start + 1 + self.length / 8;
        let mut rest = lines;
        let filled = self.length % 8;
        if filled > 0 {
            let (head, tail) = rest.split_at(rest.len().min(8 - filled));
            for (offset, byte) in head.iter().enumerate() {
                self.partial |= u64::from(*byte) << ((filled + offset) * 8);
            }
            self.store(at, self.partial);
            if filled + head.len() == 8 {
                self.partial = 0;
                at += 1;
            }
            rest = tail;
        }
        let (whole, last) = rest.as_chunks::<8>();
        for chunk in whole {
            self.store(at, u64::from_le_bytes(*chunk));
            at += 1;
        }
        if !last.is_empty() {
            let mut bytes = [0_u8; 8];
            bytes.iter_mut().zip(last).for_each(|(to, from)| *to = *from);
            self.partial = u64::from_le_bytes(bytes);
            self.store(at, self.partial);
        }
        self.publish(self.length + lines.len());
        true
    }

    /// Empties the buffer, its lines having been written out.
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

    /// Appends the buffer's bytes to `out`, for who keeps no copy of his own to write out.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.length;
        let data = self.start + 1..self.start + 1 + self.length.div_ceil(8);
        for word in self.region.words().get(data).unwrap_or_default() {
            out.extend_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        out.truncate(end);
    }

    /// Says how much is there only after it is there: a death between leaves whole lines.
    fn publish(&mut self, length: usize) {
        self.length = length;
        if let Some(word) = self.region.words().get(self.start) {
            word.store(length as u64, Release);
        }
    }

    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.region.words().get(at) {
            word.store(value, Relaxed);
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
    fn a_forged_length_is_cut_to_the_buffer() {
        let buffers = LineBuffers::new(2, 64).unwrap();
        buffers.region.words()[0].store(u64::MAX, Relaxed);
        assert_eq!(buffers.leftover(0).len(), 64);
    }
}
