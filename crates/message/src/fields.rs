//! Header fields, in the order in which they were received or will be sent. Names are compared
//! without case. All texts share one buffer, so that copying the fields of a cached file is one
//! copy of memory. This type does not check what values mean; `proto` has checked which bytes they
//! contain.

use crate::name::{Name, Named};
use std::borrow::Cow;
use std::fmt;

/// The place of a name and its value in the text of the fields.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    name: u32,
    value: u32,
    known: Name,
    /// Whether the name or value may contain bytes that are not allowed there: they were found, or
    /// nobody checked.
    suspect: bool,
}

/// A line that holds a field, including its line end: the lengths of the name and of the whole
/// line.
#[derive(Clone, Copy, Debug)]
pub struct FieldLine {
    /// The name.
    pub known: Name,
    /// Its length.
    pub name: usize,
    /// The length of the line.
    pub length: usize,
}

/// A field that must not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed<'a> {
    /// The name contains a byte that a name may not contain.
    Name(&'a [u8]),
    /// The value, which stands second, contains a control byte.
    Value(&'a [u8], &'a [u8]),
}

/// An ordered list of header fields; a name may stand in it more than once.
#[derive(Default)]
pub struct Fields {
    text: Vec<u8>,
    entries: Vec<Entry>,
    /// The bits of the names that are present. The bit for unknown names stays set when such fields
    /// are removed.
    seen: u64,
    /// The bits of the names that were added more than once.
    repeated: u64,
    /// Whether any of the fields is suspect.
    suspect: bool,
}

/// A name for which it is already known whether it is a known one.
#[derive(Clone, Copy)]
struct Spelled<'a>(Name, &'a [u8]);

impl Named for Spelled<'_> {
    fn name(&self) -> Name {
        self.0
    }

    fn text(&self) -> &[u8] {
        self.1
    }
}

/// Texts of fewer bytes than this keep replaced values.
const LONG: usize = 16 << 10;

/// The bytes for which the first field makes room: those of the fields of a usual response.
const USUAL_BYTES: usize = 160;

impl Clone for Fields {
    /// Copies the fields with room for two more: the fields of a cached file get their type
    /// appended.
    fn clone(&self) -> Self {
        if self.entries.is_empty() {
            return Self::new();
        }
        let mut copy = Self::with_capacity(self.entries.len() + 2, self.text.len() + 96);
        copy.clone_from(self);
        copy
    }

    /// Copies the fields of another list into the memory of this one.
    fn clone_from(&mut self, other: &Self) {
        self.clear();
        self.text.extend_from_slice(&other.text);
        self.entries.extend_from_slice(&other.entries);
        (self.seen, self.repeated, self.suspect) = (other.seen, other.repeated, other.suspect);
    }
}

/// Whether two field names or tokens are the same without regard to ASCII case.
#[must_use]
#[inline]
pub fn eq_ignore_case(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.eq_ignore_ascii_case(b)
}

/// The bytes without surrounding spaces and tabs (OWS of RFC 9110, section 5.6.3).
#[must_use]
pub fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

impl Fields {
    /// An empty list. Nothing is allocated until the first field is added.
    #[must_use]
    pub const fn new() -> Self {
        Self { text: Vec::new(), entries: Vec::new(), seen: 0, repeated: 0, suspect: false }
    }

    /// An empty list with room for that many fields and bytes. A usual head has about 12 fields of
    /// 40 bytes.
    #[must_use]
    pub fn with_capacity(fields: usize, bytes: usize) -> Self {
        let (text, entries) = (Vec::with_capacity(bytes), Vec::with_capacity(fields));
        Self { text, entries, seen: 0, repeated: 0, suspect: false }
    }

    /// The number of fields; each occurrence of a repeated name counts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The memory of the list in bytes, used or not.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Removes all fields and keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.entries.clear();
        (self.seen, self.repeated, self.suspect) = (0, 0, false);
    }

    /// Appends a field, whether or not its name is already present.
    pub fn add(&mut self, name: impl Named, value: impl AsRef<[u8]>) {
        let entry = self.store(name, &[value.as_ref()]);
        self.entries.push(entry);
    }

    /// Appends a field that is a complete line of the form `Name: value CRLF`, with one copy of
    /// memory. Its name is `known` and `name` bytes long. The line is not searched for further line
    /// ends.
    pub fn add_line(&mut self, known: Name, line: &[u8], name: usize) {
        self.enter(self.text.len(), FieldLine { known, name, length: line.len() });
        self.text.extend_from_slice(line);
    }

    /// Appends the fields at the front of a text of such lines, with one copy of memory for all of
    /// them. `next` receives what is left of the text and returns the line at its front. Returns
    /// the length of all lines in bytes.
    #[inline]
    pub fn add_lines(
        &mut self,
        text: &[u8],
        mut next: impl FnMut(&[u8]) -> Option<FieldLine>,
    ) -> usize {
        let (start, mut used) = (self.text.len(), 0);
        while let Some(line) = next(text.get(used..).unwrap_or_default()) {
            self.enter(start + used, line);
            used += line.length;
        }
        self.text.extend_from_slice(text.get(..used).unwrap_or_default());
        used
    }

    /// Records a field whose line begins at `start` in the text.
    fn enter(&mut self, start: usize, line: FieldLine) {
        let FieldLine { known, name, length } = line;
        self.note(known, true);
        let (start, value) = (start as u32, length.saturating_sub(name + 4) as u32);
        self.entries.push(Entry { start, name: name as u32, value, known, suspect: true });
    }

    /// Records that a field of that name is added.
    fn note(&mut self, name: Name, suspect: bool) {
        self.repeated |= self.seen & name.bit();
        self.seen |= name.bit();
        self.suspect |= suspect;
    }

    /// Continues the value of the field that was added last, after a space (obs-fold of RFC 9112,
    /// section 5.2).
    pub fn fold(&mut self, more: &[u8]) {
        let Some(last) = self.entries.last_mut() else { return };
        self.text.truncate((last.start + last.name + 2 + last.value) as usize);
        if last.value > 0 {
            self.text.push(b' ');
            last.value += 1;
        }
        self.text.extend_from_slice(more);
        self.text.extend_from_slice(b"\r\n");
        last.suspect |= holds_control(more);
        self.suspect |= last.suspect;
        last.value += more.len() as u32;
    }

    /// Replaces all fields of that name by one, at the place of the first.
    pub fn set(&mut self, name: impl Named, value: impl AsRef<[u8]>) {
        self.set_parts(name, &[value.as_ref()]);
    }

    /// Like [`Fields::set`], with the value in parts that are joined.
    pub fn set_parts(&mut self, name: impl Named, parts: &[&[u8]]) {
        self.make_room(name.text().len() + parts.iter().map(|part| part.len()).sum::<usize>());
        let wanted = Spelled(name.name(), name.text());
        let first = self.place(wanted);
        let entry = self.store(wanted, parts);
        let Some(first) = first else {
            self.entries.push(entry);
            return;
        };
        let (text, mut next) = (&self.text, 0);
        self.entries.retain_mut(|old| {
            let at = next;
            next += 1;
            if at == first {
                *old = entry;
            }
            at <= first || !is_named(text, old, wanted)
        });
    }

    /// Appends the value to the first field of that name after `, ` (RFC 9110, section 5.3), or
    /// adds the field.
    pub fn merge(&mut self, name: impl Named, value: impl AsRef<[u8]>) {
        let (wanted, value) = (Spelled(name.name(), name.text()), value.as_ref());
        let Some(place) = self.place(wanted) else { return self.add(wanted, value) };
        let old = self.entries.get(place).map_or(0, |entry| (entry.name + entry.value) as usize);
        self.make_room(old + value.len());
        let Some(entry) = self.entries.get_mut(place) else { return };
        let length = entry.name + entry.value + 4;
        if (entry.start + length) as usize != self.text.len() {
            // Move the line to the end, so that appending the next value copies only that value.
            let start = self.text.len() as u32;
            let line = entry.start as usize..(entry.start + length) as usize;
            self.text.extend_from_within(line);
            entry.start = start;
        }
        self.text.truncate(self.text.len() - 2);
        self.text.extend_from_slice(b", ");
        self.text.extend_from_slice(value);
        self.text.extend_from_slice(b"\r\n");
        entry.value += 2 + value.len() as u32;
        entry.suspect |= holds_control(value);
        self.suspect |= entry.suspect;
    }

    /// The bytes of all fields, including replaced ones that have not been removed from the buffer.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Compacts a long text before it would have to grow, if more than half of it was replaced.
    /// Each replaced byte thus pays for moving one byte.
    fn make_room(&mut self, more: usize) {
        let length = self.text.len();
        if length < LONG || length.saturating_add(more) <= self.text.capacity() {
            return;
        }
        let live = self.entries.iter().map(|e| (e.name + e.value + 4) as usize).sum::<usize>();
        if live >= length / 2 {
            return;
        }
        let mut text = Vec::with_capacity(2 * live + more);
        for entry in &mut self.entries {
            let start = text.len() as u32;
            let line = slice(&self.text, entry.start, entry.name + entry.value + 4);
            text.extend_from_slice(line);
            entry.start = start;
        }
        self.text = text;
    }

    /// Removes all fields of that name. Returns whether there were any.
    pub fn remove(&mut self, name: impl Named) -> bool {
        let wanted = Spelled(name.name(), name.text());
        if !self.may_have(wanted.0) {
            return false;
        }
        let (text, before) = (&self.text, self.entries.len());
        self.entries.retain(|entry| !is_named(text, entry, wanted));
        if wanted.0 != Name::Other {
            self.seen &= !wanted.0.bit();
            self.repeated &= !wanted.0.bit();
        }
        self.entries.len() != before
    }

    /// The value of the first field of that name.
    #[must_use]
    pub fn first(&self, name: impl Named) -> Option<&[u8]> {
        let place = self.place(Spelled(name.name(), name.text()))?;
        self.entries.get(place).map(|entry| self.value_of(*entry))
    }

    /// Whether there is a field of that name.
    #[must_use]
    pub fn contains(&self, name: impl Named) -> bool {
        match name.name() {
            Name::Other => self.place(Spelled(Name::Other, name.text())).is_some(),
            known => self.may_have(known),
        }
    }

    /// The values of all fields of that name, in order.
    pub fn all<'a>(&'a self, name: impl Named + 'a) -> impl Iterator<Item = &'a [u8]> {
        let known = name.name();
        let first = self.place(Spelled(known, name.text()));
        let entries = match first {
            Some(first) if self.repeated & known.bit() == 0 => self.entries.get(first..=first),
            Some(first) => self.entries.get(first..),
            None => None,
        };
        let entries = entries.unwrap_or_default();
        let is_wanted =
            move |entry: &&Entry| is_named(&self.text, entry, Spelled(known, name.text()));
        entries.iter().filter(is_wanted).map(|entry| self.value_of(*entry))
    }

    /// All values of that name as one list, joined by `, ` (RFC 9110, section 5.3).
    #[must_use]
    pub fn joined(&self, name: impl Named) -> Option<Vec<u8>> {
        self.whole(name).map(Cow::into_owned)
    }

    /// Like [`Fields::joined`], without a copy if there is only one field, which is the usual case.
    #[must_use]
    pub fn whole(&self, name: impl Named) -> Option<Cow<'_, [u8]>> {
        let wanted = Spelled(name.name(), name.text());
        let (first, others) = self.entries.get(self.place(wanted)?..)?.split_first()?;
        let mut list = Cow::Borrowed(self.value_of(*first));
        if self.repeated & wanted.0.bit() == 0 {
            return Some(list);
        }
        for entry in others.iter().filter(|entry| is_named(&self.text, entry, wanted)) {
            let list = list.to_mut();
            list.extend_from_slice(b", ");
            list.extend_from_slice(self.value_of(*entry));
        }
        Some(list)
    }

    /// The elements of a comma-separated list over all fields of that name, trimmed and without
    /// empty ones. Commas in quoted strings separate too, so use it only for lists of tokens.
    pub fn tokens<'a>(&'a self, name: impl Named + 'a) -> impl Iterator<Item = &'a [u8]> {
        self.all(name)
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(trim)
            .filter(|token| !token.is_empty())
    }

    /// The name and value of each field, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|entry| (self.name_of(*entry), self.value_of(*entry)))
    }

    /// Each name once, at the place of its first field, with all its values as one list, joined by
    /// `, `.
    pub fn merged(&self) -> impl Iterator<Item = (Name, &[u8], Cow<'_, [u8]>)> {
        self.entries.iter().enumerate().filter_map(|(number, entry)| {
            let name = self.name_of(*entry);
            if self.repeated & entry.known.bit() == 0 {
                return Some((entry.known, name, Cow::Borrowed(self.value_of(*entry))));
            }
            let wanted = Spelled(entry.known, name);
            let before = self.entries.get(..number).unwrap_or_default();
            if before.iter().any(|other| is_named(&self.text, other, wanted)) {
                return None;
            }
            self.whole(wanted).map(|list| (entry.known, name, list))
        })
    }

    /// Adds every field of another list.
    pub fn extend(&mut self, other: &Fields) {
        for entry in &other.entries {
            self.add(Spelled(entry.known, other.name_of(*entry)), other.value_of(*entry));
        }
    }

    /// Sets every name of another list: its values replace the values here.
    pub fn overlay(&mut self, other: &Fields) {
        if !self.is_empty() {
            for entry in &other.entries {
                self.remove(Spelled(entry.known, other.name_of(*entry)));
            }
        }
        self.extend(other);
    }

    /// Writes every field as a line of a message head, `Name: value CRLF`.
    pub fn write(&self, out: &mut Vec<u8>) {
        for entry in &self.entries {
            // A stored field is already a complete line; see `store`.
            out.extend_from_slice(slice(&self.text, entry.start, entry.name + entry.value + 4));
        }
    }

    /// The first field that must not be sent. A name must be a token (RFC 9110, section 5.6.2) or,
    /// if `lenient`, must not contain spaces and control bytes. A value must not contain control
    /// bytes except the tab (section 5.5).
    #[must_use]
    pub fn malformed(&self, lenient: bool) -> Option<Malformed<'_>> {
        if !self.suspect {
            return None;
        }
        self.entries.iter().filter(|entry| entry.suspect).find_map(|e| self.fault(*e, lenient))
    }

    fn fault(&self, entry: Entry, lenient: bool) -> Option<Malformed<'_>> {
        let (name, value) = (self.name_of(entry), self.value_of(entry));
        let is_named = |byte: &u8| match lenient {
            true => *byte > b' ' && *byte != 0x7f,
            false => is_token(*byte),
        };
        if name.is_empty() || !name.iter().all(is_named) {
            return Some(Malformed::Name(name));
        }
        holds_control(value).then_some(Malformed::Value(name, value))
    }

    /// The name and the complete line (`Name: value CRLF`) of each field, in order. A field that is
    /// malformed even in lenient mode is left out, so that no value can split a message.
    pub fn lines(&self) -> impl Iterator<Item = (Name, &[u8])> {
        self.entries.iter().filter_map(|entry| {
            let line = slice(&self.text, entry.start, entry.name + entry.value + 4);
            let is_sound = !entry.suspect || self.fault(*entry, true).is_none();
            is_sound.then_some((entry.known, line))
        })
    }

    fn name_of(&self, entry: Entry) -> &[u8] {
        slice(&self.text, entry.start, entry.name)
    }

    fn value_of(&self, entry: Entry) -> &[u8] {
        slice(&self.text, entry.start + entry.name + 2, entry.value)
    }

    /// Whether a field of that name is present or, for an unknown name, may be present. Most names
    /// that are looked up are not present.
    fn may_have(&self, name: Name) -> bool {
        self.seen & name.bit() != 0
    }

    /// The index of the first field of that name.
    fn place(&self, wanted: Spelled<'_>) -> Option<usize> {
        if !self.may_have(wanted.0) {
            return None;
        }
        match wanted.0 {
            Name::Other => {
                self.entries.iter().position(|entry| is_named(&self.text, entry, wanted))
            }
            known => self.entries.iter().position(|entry| entry.known == known),
        }
    }

    /// Appends the line of a field to the text, so that writing the field is one copy.
    fn store(&mut self, name: impl Named, parts: &[&[u8]]) -> Entry {
        let (start, known, name) = (self.text.len() as u32, name.name(), name.text());
        if self.text.capacity() == 0 {
            self.text.reserve(USUAL_BYTES);
        }
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(b": ");
        let mut suspect = known == Name::Other && is_odd(name);
        let value = self.text.len();
        for part in parts {
            self.text.extend_from_slice(part);
            suspect |= holds_control(part);
        }
        let value = (self.text.len() - value) as u32;
        self.text.extend_from_slice(b"\r\n");
        self.note(known, suspect);
        Entry { start, name: name.len() as u32, value, known, suspect }
    }
}

/// Whether a field has that name. The texts of names are compared only if neither name is known.
fn is_named(text: &[u8], entry: &Entry, Spelled(name, spelled): Spelled<'_>) -> bool {
    entry.known == name
        && (name != Name::Other || eq_ignore_case(slice(text, entry.start, entry.name), spelled))
}

/// Whether a value contains a control byte other than the tab. It has no branch for each byte,
/// because values rarely contain one.
fn holds_control(value: &[u8]) -> bool {
    value
        .iter()
        .fold(false, |found, byte| found | ((*byte < b' ') & (*byte != b'\t')) | (*byte == 0x7f))
}

/// Whether a name contains unusual bytes and must be checked byte by byte.
fn is_odd(name: &[u8]) -> bool {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() | (byte == b'-');
    name.iter().fold(name.is_empty(), |found, byte| found | !usual(*byte))
}

/// Whether a byte may be part of a token.
fn is_token(byte: u8) -> bool {
    matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'|' | b'~' | b'^'..=b'z')
        || byte.is_ascii_alphanumeric()
}

fn slice(text: &[u8], start: u32, length: u32) -> &[u8] {
    text.get(start as usize..(start + length) as usize).unwrap_or_default()
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.iter().map(|(n, v)| (String::from_utf8_lossy(n), String::from_utf8_lossy(v))),
            )
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(fields: &Fields) -> String {
        let mut out = Vec::new();
        fields.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_was_taken_out_is_not_there() {
        let mut fields = Fields::new();
        for value in ["a", "b"] {
            fields.add(Name::Host, value);
        }
        assert!(fields.contains(Name::Host) && fields.remove("host"));
        assert!(!fields.contains(Name::Host) && !fields.remove("Host"));
        assert!(!fields.clone().contains("Host") && fields.first("Host").is_none());
        fields.add("HOST", "c");
        assert_eq!(fields.all(Name::Host).collect::<Vec<_>>(), [b"c"]);
        assert!(fields.contains("host") && fields.clone().contains(Name::Host));
    }

    #[test]
    fn merged_fields_have_each_name_once() {
        let mut fields = Fields::new();
        for (name, value) in [
            ("X-A", "1"),
            ("Accept", "a"),
            ("X-B", "2"),
            ("x-a", "3"),
            ("Host", "h"),
            ("ACCEPT", "b"),
        ] {
            fields.add(name, value);
        }
        let merged = fields.merged().map(|(_, name, list)| [name, b"=", &*list].concat());
        let merged = merged.collect::<Vec<_>>().join(&b'|');
        assert_eq!(merged, b"X-A=1, 3|Accept=a, b|X-B=2|Host=h");
    }

    #[test]
    fn lines_of_a_text_are_fields_of_their_own() {
        let text = b"Host: a\r\nAge: 77\r\nrest";
        let mut lines = vec![(Name::Age, 3, 9), (Name::Host, 4, 9)];
        let mut fields = Fields::new();
        fields.add("Date", "d");
        let used = fields.add_lines(text, |rest| {
            let (known, name, length) = lines.pop()?;
            assert!(rest.starts_with(known.text().as_bytes()));
            Some(FieldLine { known, name, length })
        });
        let values = ["date", "host", "age"].map(|name| fields.first(name).unwrap());
        assert_eq!((used, values), (18, [&b"d"[..], b"a", b"77"]));
    }

    #[test]
    fn set_replaces_all_at_the_first_place() {
        let mut fields = Fields::new();
        fields.add("A", "1");
        fields.add("b", "2");
        fields.add("a", "3");
        fields.set("A", "4");
        assert_eq!(written(&fields), "A: 4\r\nb: 2\r\n");
        assert!(fields.remove("B"));
        assert!(!fields.remove("B"));
        assert_eq!(fields.len(), 1);
    }

    #[test]
    fn lines_are_taken_whole_and_folded() {
        let mut fields = Fields::new();
        fields.add_line(Name::Other, b"A: 1\r\n", 1);
        fields.fold(b"2");
        fields.add_line(Name::Other, b"B: 3\r\n", 1);
        assert_eq!(written(&fields), "A: 1 2\r\nB: 3\r\n");
        assert_eq!(fields.first("A"), Some(&b"1 2"[..]));
        assert_eq!(fields.lines().last(), Some((Name::Other, &b"B: 3\r\n"[..])));
    }

    #[test]
    fn a_field_that_holds_a_line_end_is_no_line() {
        let mut fields = Fields::new();
        for (name, value) in [("A", "1"), ("B", "2\r\nX: y"), ("C", "\n"), ("D\r", ""), ("E", "3")]
        {
            fields.add(name, value);
        }
        fields.add_line(Name::Other, b"F: 4\r\n", 1);
        fields.fold(b"5");
        fields.add_line(Name::Other, b"G: \rX\r\n", 1);
        fields.merge("E", "6\n");
        fields.merge("H", "7");
        let mut others = Fields::new();
        others.extend(&fields);
        let expected = [&b"A: 1\r\n"[..], b"F: 4 5\r\n", b"H: 7\r\n"];
        for fields in [&fields, &fields.clone(), &others] {
            assert!(fields.lines().map(|(_, line)| line).eq(expected), "{fields:?}");
        }
    }

    /// What Apache 2.4.71 sends, Strict and Unsafe.
    #[test]
    fn names_and_values_are_held_to_what_may_be_sent() {
        let fault = |name: &str, value: &[u8], lenient| {
            let mut fields = Fields::new();
            fields.add("A", "1");
            fields.add(name, value);
            match fields.malformed(lenient) {
                None => "sent",
                Some(Malformed::Name(_)) => "name",
                Some(Malformed::Value(..)) => "value",
            }
        };
        for value in [&b"a\tb"[..], b"", b" a  ", b"\x80\xff", b"~"] {
            assert_eq!(fault("X", value, false), "sent", "{value:?}");
        }
        for byte in (0..b' ').chain([0x7f]).filter(|byte| *byte != b'\t') {
            for value in [[byte, b'a', b'b'], [b'a', b'b', byte]] {
                assert_eq!(fault("X", &value, false), "value", "{value:?}");
                assert_eq!(fault("X", &value, true), "value", "{value:?}");
            }
        }
        for (name, strict, lenient) in [
            ("!#$%&'*+-.^_`|~az09AZ", "sent", "sent"),
            ("X?Bad", "name", "sent"),
            ("X(Bad)", "name", "sent"),
            ("X\u{80}", "name", "sent"),
            ("X Bad", "name", "name"),
            ("X\u{b}", "name", "name"),
            ("X\u{7f}", "name", "name"),
            ("", "name", "name"),
        ] {
            assert_eq!((fault(name, b"", false), fault(name, b"", true)), (strict, lenient));
        }
        // A field of the request may be sent back with bytes that Unsafe lets through.
        let mut fields = Fields::new();
        fields.add_line(Name::Other, b"A: \x01\r\n", 1);
        assert_eq!(fields.malformed(false), Some(Malformed::Value(b"A", b"\x01")));
        fields.set("A", "1");
        fields.merge("A", "\x01");
        assert!(fields.malformed(true).is_some() && fields.lines().next().is_none());
    }

    #[test]
    fn merge_makes_a_list_and_tokens_take_it_apart() {
        let mut fields = Fields::new();
        fields.merge("Vary", "Accept");
        fields.merge("vary", "Cookie");
        fields.add("Vary", " ,x ");
        assert_eq!(fields.first("VARY"), Some(&b"Accept, Cookie"[..]));
        let tokens: Vec<_> = fields.tokens(b"vary").collect();
        assert_eq!(tokens, [&b"Accept"[..], b"Cookie", b"x"]);
        fields.merge("vary", "y");
        assert_eq!(written(&fields), "Vary: Accept, Cookie, y\r\nVary:  ,x \r\n");
    }

    #[test]
    fn what_is_replaced_takes_no_memory_for_long() {
        let mut fields = Fields::new();
        fields.add("A", "1");
        for number in 0..10_000 {
            fields.merge("List", "value");
            fields.set("B", format!("{number} {}", "x".repeat(100)));
        }
        let live = written(&fields).len();
        assert!(fields.text.capacity() <= 8 * live, "{} for {live}", fields.text.capacity());
        assert_eq!(fields.first("A"), Some(&b"1"[..]));
        assert_eq!(fields.first("List").map(<[u8]>::len), Some(7 * 10_000 - 2));
        assert!(fields.first("B").is_some_and(|value| value.starts_with(b"9999 x")));
        assert_eq!(fields.clone().first("List"), fields.first("List"));
    }

    /// The same list without numbers for names, as the reference.
    fn change_plain(plain: &mut Vec<(String, String)>, verb: u8, name: &str, value: &str) {
        let is_named = |pair: &(String, String)| pair.0.eq_ignore_ascii_case(name);
        match (verb, plain.iter().position(is_named)) {
            (0, _) => plain.retain(|pair| !is_named(pair)),
            (1, Some(first)) => {
                let mut place = 0..;
                plain.retain(|pair| place.next() <= Some(first) || !is_named(pair));
                plain[first] = (name.to_owned(), value.to_owned());
            }
            (2, Some(first)) => plain[first].1 += &format!(", {value}"),
            _ => plain.push((name.to_owned(), value.to_owned())),
        }
    }

    proptest::proptest! {
        #[test]
        fn known_and_other_names_are_found_alike(
            steps in proptest::collection::vec((0_u8..5, 0_usize..8, 0_u8..9), 0..60),
        ) {
            let names = ["Host", "HOST", "Vary", "vary", "X-A", "x-a", "X-B", "Hosts"];
            let (mut fields, mut plain) = (Fields::new(), Vec::new());
            for (verb, name, value) in steps {
                let (name, value) = (names[name], value.to_string());
                change_plain(&mut plain, verb, name, &value);
                let line = format!("{name}: {value}\r\n");
                match verb {
                    0 => drop(fields.remove(name)),
                    1 => fields.set(name, &value),
                    2 => fields.merge(name, &value),
                    3 => fields.add_line(Name::of(name.as_bytes()), line.as_bytes(), name.len()),
                    _ => fields.add(name, &value),
                }
                let lines: String = plain.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
                proptest::prop_assert_eq!(written(&fields), lines);
                for name in names {
                    let values = || plain.iter().filter(|pair| pair.0.eq_ignore_ascii_case(name));
                    let all = values().map(|pair| pair.1.clone()).collect::<Vec<_>>();
                    let found = fields.all(name).map(String::from_utf8_lossy).collect::<Vec<_>>();
                    proptest::prop_assert_eq!(&all, &found);
                    proptest::prop_assert_eq!(fields.contains(name), !all.is_empty());
                    let joined = (!all.is_empty()).then(|| all.join(", ").into_bytes());
                    proptest::prop_assert_eq!(fields.joined(name), joined);
                }
            }
            let (copy, mut over) = (fields.clone(), Fields::new());
            over.overlay(&fields);
            over.overlay(&copy);
            proptest::prop_assert_eq!(written(&over), written(&fields));
            proptest::prop_assert_eq!(copy.contains(Name::Host), fields.contains("host"));
        }
    }
}
