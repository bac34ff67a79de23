//! The dynamic table of a decoder (RFC 7541, sections 2.3.2 and 4). It is allocated as it fills.

use evenkeel_message::Name;
use std::collections::VecDeque;

/// The maximum size as RFC 7541 counts it (section 4.1): the server's SETTINGS leave the default.
const MOST: usize = 4096;

/// The bytes that an entry counts in addition to its name and its value.
const OVERHEAD: usize = 32;

/// The text is compacted only if removed entries take at least this many bytes.
const SLACK: usize = 1024;

/// A name and its value, which are adjacent in the text.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    /// The lengths.
    name: u16,
    value: u16,
    known: Name,
}

impl Entry {
    fn length(self) -> usize {
        usize::from(self.name) + usize::from(self.value)
    }

    fn size(self) -> usize {
        self.length() + OVERHEAD
    }
}

/// The entries. The newest one is the first.
#[derive(Debug)]
pub(crate) struct Table {
    text: Vec<u8>,
    entries: VecDeque<Entry>,
    size: usize,
    most: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self { text: Vec::new(), entries: VecDeque::new(), size: 0, most: MOST }
    }
}

impl Table {
    /// The entry with that index, counted from 0.
    pub(crate) fn entry(&self, index: usize) -> Option<(Name, &[u8], &[u8])> {
        let entry = self.entries.get(index)?;
        let text = self.text.get(entry.start as usize..)?.get(..entry.length())?;
        let (name, value) = text.split_at_checked(usize::from(entry.name))?;
        Some((entry.known, name, value))
    }

    /// Adds an entry as the first one. An entry that is larger than the table empties the table
    /// (section 4.4).
    /// `known` is the known name for `name`.
    pub(crate) fn insert(&mut self, known: Name, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + OVERHEAD;
        let lengths = (u16::try_from(name.len()), u16::try_from(value.len()));
        let (Some(left), (Ok(name_length), Ok(value_length))) =
            (self.most.checked_sub(size), lengths)
        else {
            return self.shrink_to(0);
        };
        self.shrink_to(left);
        // The text is bounded by the size of the table and what is removed and not compacted.
        let start = self.text.len() as u32;
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        self.size += size;
        self.entries.push_front(Entry { start, name: name_length, value: value_length, known });
    }

    /// Changes the maximum size. False if it exceeds what the server has allowed.
    pub(crate) fn resize(&mut self, most: usize) -> bool {
        if most > MOST {
            return false;
        }
        self.most = most;
        self.shrink_to(most);
        true
    }

    /// Removes the oldest entries until the table takes at most `size`.
    fn shrink_to(&mut self, size: usize) {
        while self.size > size {
            let Some(entry) = self.entries.pop_back() else { break };
            self.size -= entry.size();
        }
        let unused = self.unused();
        if unused >= SLACK && unused * 2 >= self.text.len() {
            self.compact(unused);
        }
    }

    /// The number of bytes at the front of the text that belong to removed entries.
    fn unused(&self) -> usize {
        self.entries.back().map_or(self.text.len(), |oldest| oldest.start as usize)
    }

    /// Removes the first `used` bytes of the text, which belong to no entry.
    fn compact(&mut self, used: usize) {
        self.text.drain(..used);
        for entry in &mut self.entries {
            entry.start -= used as u32;
        }
    }

    /// Frees unused memory.
    pub(crate) fn pack(&mut self) {
        self.compact(self.unused());
        self.text.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    /// The memory of the table in bytes, used or not.
    pub(crate) fn memory(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_entries_make_room_and_their_text_goes() {
        let mut table = Table::default();
        for number in 0..1_000_u32 {
            table.insert(Name::Other, &number.to_be_bytes(), &[b'v'; 100]);
        }
        // 4096 bytes hold 30 entries of 136.
        assert_eq!(table.entries.len(), 30);
        assert_eq!(table.entry(0).unwrap().1, 999_u32.to_be_bytes());
        assert_eq!(table.entry(29).unwrap().1, 970_u32.to_be_bytes());
        assert_eq!(table.entry(30), None);
        assert!(table.text.len() < 2 * (MOST + SLACK), "{}", table.text.len());
        table.pack();
        assert_eq!(table.text.len(), 30 * 104);
        let oldest = (Name::Other, &970_u32.to_be_bytes()[..], &[b'v'; 100][..]);
        assert_eq!(table.entry(29).unwrap(), oldest);
        table.insert(Name::Other, b"", &[0; 4065]);
        assert_eq!((table.entries.len(), table.size), (0, 0));
        table.insert(Name::Age, b"age", &[0; 4061]);
        assert_eq!((table.size, table.entry(0).unwrap().0), (4096, Name::Age));
        assert!(!table.resize(4097) && table.resize(0));
        assert_eq!(table.entry(0), None);
    }
}
