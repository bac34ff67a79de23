//! Names with values that modules set for a request (`SetEnv`, notes, the variables of a script).
//! Names are case-sensitive. A short list, which nearly every request has, is searched from front
//! to back. A long list, which an .htaccess file can cause, has an index, so that access does not
//! slow down with its length. The list stores each pair as FastCGI encodes it (specification,
//! section 3.4), because most lists that are long are sent to an application.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

/// Lists of more names than this have an index. The variables of a script for a browser's request
/// are about 40.
const SCANNED: usize = 64;

/// The bytes that replaced values may waste before the text is copied without them.
const MOST_WASTED: usize = 1024;

/// A list that is dropped leaves its text to a later list if the capacity of the text, in bytes, is
/// in this range.
const KEPT: Range<usize> = 1024..16 * 1024;

/// The maximum number of spare texts of a thread.
const MOST_SPARE: usize = 16;

thread_local! {
    /// Spare texts of lists that were dropped. The variables of a request for a script take about
    /// 2 KiB, and the cache that glibc's malloc has for each thread ends at 1 KiB.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An ordered map of byte strings. Each name occurs once.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// The encoded pairs, and those that were replaced or removed.
    text: Vec<u8>,
    /// In the order in which the names were first set. If there is an index, a removed pair leaves
    /// a gap, so that the other pairs stay where the index says.
    pairs: Vec<Option<Pair>>,
    index: Option<Box<Index>>,
    /// The bits of all names ([`Mark::bit`]): a name whose bit is missing is not in the list.
    bits: [u64; 4],
    /// The bytes of `text` that belong to pairs that were replaced or removed.
    wasted: usize,
}

/// A name, and its value behind it, in the text of the list. The positions have 32 bits, so that
/// the pairs of a usual list take less than 1 KiB.
#[derive(Clone, Copy, Debug)]
struct Pair {
    start: u32,
    middle: u32,
    end: u32,
    mark: Mark,
}

/// The length of a name and three of its bytes. Most names have different marks, so that a search
/// rarely compares names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark(u32);

impl Mark {
    #[inline]
    fn of(name: &[u8]) -> Self {
        let length = name.len();
        let byte = |at: usize| name.get(at).copied().unwrap_or_default();
        let bytes = [byte(length / 2), byte(length.wrapping_sub(2)), byte(length.wrapping_sub(1))];
        let [first, second, third] = bytes;
        Self(u32::from_be_bytes([length.to_le_bytes()[0], first, second, third]))
    }

    /// The bit that stands for the mark among the 256 of [`Variables::bits`], chosen by Knuth's
    /// multiplicative hash: its word, and its place there.
    #[inline]
    fn bit(self) -> (usize, u64) {
        let hash = self.0.wrapping_mul(0x9e37_79b1) >> 24;
        ((hash / 64) as usize, 1 << (hash % 64))
    }
}

impl Pair {
    /// A pair at these positions. A name or a value beyond 4 GiB of text reads as empty: no
    /// configuration and no request head that the limits allow is as long.
    #[inline]
    fn at(start: usize, middle: usize, end: usize, mark: Mark) -> Self {
        match u32::try_from(end) {
            // The other positions are not behind the end.
            Ok(end) => Self { start: start as u32, middle: middle as u32, end, mark },
            Err(_) => Self { start: u32::MAX, middle: u32::MAX, end: u32::MAX, mark },
        }
    }

    /// The bytes of the name in the text.
    fn name(self) -> Range<usize> {
        self.start as usize..self.middle as usize
    }

    /// The bytes of the value in the text.
    fn value(self) -> Range<usize> {
        self.middle as usize..self.end as usize
    }

    /// The bytes of the pair in the text, with the lengths in front of the name.
    fn range(self) -> Range<usize> {
        let (name, value) = (self.name(), self.value());
        let lengths = length_bytes(name.len()) + length_bytes(value.len());
        name.start.saturating_sub(lengths)..value.end
    }
}

/// The bytes that encode a length.
fn length_bytes(length: usize) -> usize {
    if length < 0x80 { 1 } else { 4 }
}

/// Appends a length. One of 2 GiB or more cannot be encoded.
fn encode_length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short @ ..0x80) => out.push(short),
        _ => {
            let long = u32::try_from(length).unwrap_or(u32::MAX) | 0x8000_0000;
            out.extend_from_slice(&long.to_be_bytes());
        }
    }
}

/// The position of each name of a long list.
type Index = HashMap<Box<[u8]>, usize>;

impl PartialEq for Variables {
    /// Whether both lists have the same names with the same values in the same order.
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Variables {}

impl Variables {
    /// An empty list, without an allocation.
    #[must_use]
    pub const fn new() -> Self {
        Self { text: Vec::new(), pairs: Vec::new(), index: None, bits: [0; 4], wasted: 0 }
    }

    /// Makes room for so many more names, and for so many bytes of names and values.
    pub fn reserve(&mut self, names: usize, bytes: usize) {
        self.pairs.reserve(names);
        if self.text.capacity() == 0 {
            self.text = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        }
        self.text.reserve(bytes);
    }

    /// Sets or replaces a value.
    #[inline]
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        // The mark of a literal is a constant, because this function is inlined.
        let name = name.as_ref();
        self.set_marked(Mark::of(name), name, value.as_ref());
    }

    fn set_marked(&mut self, mark: Mark, name: &[u8], value: &[u8]) {
        let place = self.place(mark, name);
        let pair = self.append(mark, name, value);
        match place {
            Some(place) => {
                let old = self.pairs.get_mut(place).and_then(|old| old.replace(pair));
                self.waste(old);
            }
            None => self.push(name, pair),
        }
    }

    /// Removes a name.
    pub fn unset(&mut self, name: impl AsRef<[u8]>) {
        let name = name.as_ref();
        let Some(place) = self.place(Mark::of(name), name) else { return };
        let removed = match &mut self.index {
            None => self.pairs.remove(place),
            Some(index) => {
                index.remove(name);
                self.pairs.get_mut(place).and_then(Option::take)
            }
        };
        self.waste(removed);
        // Rebuild the index once half of the list is gaps: each removed name pays for one step.
        if self.index.as_ref().is_some_and(|index| index.len() < self.pairs.len() / 2) {
            self.pairs.retain(Option::is_some);
            self.index = self.new_index();
        }
    }

    /// The value of a name.
    #[must_use]
    pub fn value(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let name = name.as_ref();
        let place = self.place(Mark::of(name), name)?;
        self.pairs.get(place)?.map(|pair| self.value_of(pair))
    }

    /// Whether a name is set.
    #[must_use]
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        self.place(Mark::of(name), name).is_some()
    }

    /// Names and values in the order in which they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().flatten().map(|pair| (self.name_of(*pair), self.value_of(*pair)))
    }

    /// The names, each with its pair as FastCGI encodes it, in the same order.
    pub fn encoded(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().flatten().map(|pair| {
            let encoded = self.text.get(pair.range()).unwrap_or_default();
            (self.name_of(*pair), encoded)
        })
    }

    /// All encoded pairs as one text. `None` if pairs were replaced or removed, so that the text
    /// has other bytes too.
    #[must_use]
    pub fn encoded_text(&self) -> Option<&[u8]> {
        (self.wasted == 0).then_some(&self.text)
    }

    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Removes everything and keeps the memory of the list.
    pub fn clear(&mut self) {
        self.text.clear();
        self.pairs.clear();
        self.index = None;
        (self.bits, self.wasted) = ([0; 4], 0);
    }

    fn name_of(&self, pair: Pair) -> &[u8] {
        self.text.get(pair.name()).unwrap_or_default()
    }

    fn value_of(&self, pair: Pair) -> &[u8] {
        self.text.get(pair.value()).unwrap_or_default()
    }

    /// The position of a name.
    #[inline]
    fn place(&self, mark: Mark, name: &[u8]) -> Option<usize> {
        // Usually nothing is set.
        let (word, bit) = mark.bit();
        match self.bits.get(word) {
            Some(bits) if bits & bit != 0 => self.find(mark, name),
            _ => None,
        }
    }

    fn find(&self, mark: Mark, name: &[u8]) -> Option<usize> {
        match &self.index {
            None => self.pairs.iter().position(|pair| self.is_named(pair, mark, name)),
            Some(index) => index.get(name).copied(),
        }
    }

    fn is_named(&self, pair: &Option<Pair>, mark: Mark, name: &[u8]) -> bool {
        #[cfg(test)]
        tests::step(1);
        pair.is_some_and(|pair| pair.mark == mark && self.name_of(pair) == name)
    }

    /// Adds the pair of a name that is not in the list.
    #[inline]
    fn push(&mut self, name: &[u8], pair: Pair) {
        self.pairs.push(Some(pair));
        let (word, bit) = pair.mark.bit();
        if let Some(bits) = self.bits.get_mut(word) {
            *bits |= bit;
        }
        match &mut self.index {
            Some(index) => drop(index.insert(name.into(), self.pairs.len() - 1)),
            None if self.pairs.len() > SCANNED => self.index = self.new_index(),
            None => {}
        }
    }

    /// Encodes a name and its value at the end of the text.
    #[inline]
    fn append(&mut self, mark: Mark, name: &[u8], value: &[u8]) -> Pair {
        if name.len() < 0x80 && value.len() < 0x80 {
            self.text.extend_from_slice(&[name.len() as u8, value.len() as u8]);
        } else {
            encode_length(&mut self.text, name.len());
            encode_length(&mut self.text, value.len());
        }
        let start = self.text.len();
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        Pair::at(start, start + name.len(), self.text.len(), mark)
    }

    /// Counts the bytes of a pair that was replaced or removed. If such pairs are more than half of
    /// the text, the text is copied without them: each wasted byte pays for one that is copied.
    fn waste(&mut self, pair: Option<Pair>) {
        self.wasted += pair.map_or(0, |pair| pair.range().len());
        if self.wasted > (self.text.len() + MOST_WASTED) / 2 {
            self.compact();
        }
    }

    /// Copies the text without what was replaced or removed.
    fn compact(&mut self) {
        let mut text = Vec::with_capacity(self.text.len().saturating_sub(self.wasted));
        for pair in self.pairs.iter_mut().flatten() {
            let range = pair.range();
            let name = pair.name();
            let start = text.len() + (name.start - range.start);
            text.extend_from_slice(self.text.get(range).unwrap_or_default());
            *pair = Pair::at(start, start + name.len(), text.len(), pair.mark);
        }
        (self.text, self.wasted) = (text, 0);
    }

    /// The index of a list without gaps. `None` if the list is short.
    fn new_index(&self) -> Option<Box<Index>> {
        if self.pairs.len() <= SCANNED {
            return None;
        }
        #[cfg(test)]
        tests::step(self.pairs.len());
        let names = self.iter().map(|(name, _)| name.into());
        Some(Box::new(names.zip(0..).collect()))
    }
}

impl Drop for Variables {
    fn drop(&mut self) {
        if KEPT.contains(&self.text.capacity()) {
            let mut text = std::mem::take(&mut self.text);
            text.clear();
            // The spare texts may be freed before this list when a thread ends.
            let _gone = SPARE.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                if spare.len() < MOST_SPARE {
                    spare.push(text);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Counts the names that are examined and put into indexes.
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn step(steps: usize) {
        STEPS.set(STEPS.get() + steps);
    }

    fn name(number: usize) -> String {
        format!("NAME_{number}")
    }

    /// The steps of setting, replacing, looking up and removing that many names.
    fn steps_of(count: usize) -> usize {
        let before = STEPS.get();
        let mut variables = Variables::new();
        for value in ["first", "second"] {
            (0..count).for_each(|number| variables.set(name(number), value));
        }
        assert!((0..count).all(|number| variables.value(name(number)) == Some(b"second")));
        assert!(!variables.contains(name(count)));
        (0..count).for_each(|number| variables.unset(name(number)));
        assert!(variables.is_empty());
        STEPS.get() - before
    }

    /// A replaced value moves to the end of the text, so the order of the pairs is not that of the
    /// text when the text is copied without the old values.
    #[test]
    fn replaced_values_survive_that_the_text_is_compacted() {
        let mut variables = Variables::new();
        variables.set("FIRST", "short");
        variables.set("SECOND", "value");
        for round in 0..8 {
            variables.set("FIRST", [b'a' + round; 3000]);
        }
        variables.set("THIRD", "last");
        assert!(variables.text.len() < 4 * 3000, "the text was not compacted");
        assert_eq!(variables.value("FIRST"), Some(&[b'h'; 3000][..]));
        assert_eq!(variables.value("SECOND"), Some(&b"value"[..]));
        assert_eq!(variables.value("THIRD"), Some(&b"last"[..]));
    }

    #[test]
    fn many_names_cost_no_more_than_their_number() {
        for count in [1000, 2000, 4000, 8000] {
            let steps = steps_of(count);
            // Each name is searched five times while the list is short.
            let most = 4 * count + 5 * SCANNED * SCANNED;
            assert!(steps < most, "{steps} steps for {count} names");
        }
    }

    #[test]
    fn short_and_long_lists_keep_their_order() {
        for count in [SCANNED - 1, SCANNED, SCANNED + 1, 5 * SCANNED] {
            let mut variables = Variables::new();
            (0..count).for_each(|number| variables.set(name(number), "v"));
            (0..count).step_by(3).for_each(|number| variables.unset(name(number)));
            variables.unset("name_1");
            variables.set("NAME_1", "w");
            variables.set("NAME_0", "again");
            let mut left: Vec<String> =
                (0..count).filter(|number| number % 3 > 0).map(name).collect();
            left.push(name(0));
            let names = variables.iter().map(|(name, _)| String::from_utf8_lossy(name));
            assert_eq!(names.collect::<Vec<_>>(), left, "{count}");
            assert_eq!(variables.value("NAME_1"), Some(&b"w"[..]));
            assert_eq!(variables, variables.clone());
            variables.clear();
            assert!(variables.is_empty() && !variables.contains("NAME_1"));
        }
    }

    #[test]
    fn replaced_values_do_not_pile_up() {
        let mut variables = Variables::new();
        for number in 0..10_000 {
            variables.set("NAME", format!("value {number}"));
            variables.set(name(number % 3), "v");
            variables.unset(name(number % 2));
        }
        assert_eq!(variables.value("NAME"), Some(&b"value 9999"[..]));
        assert!(variables.text.capacity() < 8 * MOST_WASTED, "{}", variables.text.capacity());
    }

    /// The same map without an index, as the reference.
    #[derive(Default)]
    struct Plain(Vec<(u8, u8)>);

    impl Plain {
        fn set(&mut self, name: u8, value: u8) {
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, old)) => *old = value,
                None => self.0.push((name, value)),
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn it_does_what_a_plain_list_does(
            steps in proptest::collection::vec((0_u8..4, 0_u8..150, 0_u8..9), 0..900),
        ) {
            let (mut variables, mut plain) = (Variables::new(), Plain::default());
            for (verb, name, value) in steps {
                if verb == 0 {
                    variables.unset([name]);
                    plain.0.retain(|(known, _)| *known != name);
                } else {
                    variables.set([name], [value]);
                    plain.set(name, value);
                }
                let found = variables.iter().map(|(name, value)| (name[0], value[0]));
                proptest::prop_assert!(found.eq(plain.0.iter().copied()));
                let value = plain.0.iter().find(|(known, _)| *known == name);
                let value = value.map(|(_, value)| vec![*value]);
                proptest::prop_assert_eq!(variables.value([name]).map(<[u8]>::to_vec), value);
                proptest::prop_assert_eq!(variables.is_empty(), plain.0.is_empty());
            }
        }
    }
}
