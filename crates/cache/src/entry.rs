//! The file of a stored response: a head with a checksum, and the body behind it. A URL whose
//! responses differ by fields of the request (Vary) has an index in its place, which names these
//! fields. Everything in a file is a claim: what cannot be read is a miss.

use crate::control::CacheControl;
use crate::freshness::Times;
use crate::key::Key;
use aws_lc_rs::digest::{SHA256, digest};
use evenkeel_message::{Fields, Status};

/// The first bytes of a file. Its last byte is the version of the format.
const MAGIC: &[u8; 8] = b"EVKCACH\x01";

/// The bytes before what is summed: the magic, the length of the head, the place of the body and
/// the checksum.
const PREAMBLE: usize = 32;

/// The bytes of the checksum.
const SUM: usize = 16;

/// The multiple of bytes at which a body begins.
const ALIGNMENT: usize = 512;

/// The most bytes of a head.
pub(crate) const MOST_HEAD: usize = 1 << 20;

/// A stored response without its body.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// The values of the fields that select it; empty if none do.
    pub selecting: Vec<u8>,
    /// The status.
    pub status: Status,
    /// The status line, if it is not the standard one.
    pub status_line: Option<Box<str>>,
    /// The fields.
    pub fields: Fields,
    /// Its directives. They are part of the fields.
    pub control: CacheControl,
    /// Its times.
    pub times: Times,
    /// Whether the configuration checked who may see it, so that it is used after such a check
    /// only.
    pub needs_check: bool,
    /// The length of the body in bytes.
    pub body_length: u64,
}

/// The index of a URL whose responses differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The key of the URL.
    pub key: Key,
    /// The fields that select a response.
    pub names: Vec<Box<str>>,
    /// A number that only the responses of this index have in their key. They cannot be found any
    /// more once the index is gone.
    pub nonce: [u8; 16],
}

/// What a file holds.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a value lives as long as one look-up")]
pub enum Content {
    /// A response, and where its body begins.
    Entry(Entry, u64),
    /// An index.
    Index(Index),
}

const ENTRY: u8 = 1;
const INDEX: u8 = 2;

impl Entry {
    /// The head of the file, as long as the body's place says.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new(ENTRY);
        out.key(&self.key);
        out.bytes(&self.selecting);
        out.number(u64::from(self.status.code()));
        out.bytes(self.status_line.as_deref().unwrap_or_default().as_bytes());
        let Times { received, initial_age, lifetime, is_estimated } = self.times;
        out.number(received.cast_unsigned());
        out.number(initial_age);
        out.number(lifetime);
        out.number(u64::from(is_estimated) | u64::from(self.needs_check) << 1);
        out.number(self.body_length);
        out.number(self.fields.len() as u64);
        for (name, value) in self.fields.iter() {
            out.bytes(name);
            out.bytes(value);
        }
        out.finish()
    }
}

impl Index {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new(INDEX);
        out.key(&self.key);
        out.bytes(&self.nonce);
        out.number(self.names.len() as u64);
        self.names.iter().for_each(|name| out.bytes(name.as_bytes()));
        out.finish()
    }

    /// The text under which the response with these selecting values is stored.
    #[must_use]
    pub fn variant_text(&self, selecting: &[u8]) -> Vec<u8> {
        [self.key.text(), b"\0vary\0", &self.nonce, selecting].concat()
    }
}

/// The length of the head, with the bytes before the body, of the file that begins with `start`.
/// None if it is no file of this cache.
pub(crate) fn head_length(start: &[u8]) -> Option<usize> {
    if start.get(..8)? != MAGIC {
        return None;
    }
    let length = u32::from_le_bytes(start.get(8..12)?.try_into().ok()?) as usize;
    (length <= MOST_HEAD).then_some(PREAMBLE + length)
}

/// Reads the head of a file. None if any of it is damaged.
#[must_use]
pub fn decode(head: &[u8]) -> Option<Content> {
    let head = head.get(..head_length(head)?)?;
    let body = u32::from_le_bytes(head.get(12..16)?.try_into().ok()?);
    let (sum, content) = (head.get(16..PREAMBLE)?, head.get(PREAMBLE..)?);
    if sum != checksum(body, content) {
        return None;
    }
    let mut input = Reader(content);
    match input.byte()? {
        ENTRY => decode_entry(&mut input).map(|entry| Content::Entry(entry, u64::from(body))),
        INDEX => {
            let key = input.key()?;
            let nonce = input.bytes()?.try_into().ok()?;
            let count = input.number()?;
            let name = |_| Some(Box::<str>::from(std::str::from_utf8(input.bytes()?).ok()?));
            let names = (0..count).map(name).collect::<Option<_>>()?;
            Some(Content::Index(Index { key, names, nonce }))
        }
        _ => None,
    }
}

fn decode_entry(input: &mut Reader<'_>) -> Option<Entry> {
    let key = input.key()?;
    let selecting = input.bytes()?.to_vec();
    let status = Status::new_final(u16::try_from(input.number()?).ok()?)?;
    let line = std::str::from_utf8(input.bytes()?).ok()?;
    let status_line = (!line.is_empty()).then(|| line.into());
    let received = input.number()?.cast_signed();
    let (initial_age, lifetime, flags) = (input.number()?, input.number()?, input.number()?);
    let times = Times { received, initial_age, lifetime, is_estimated: flags & 1 != 0 };
    let needs_check = flags & 2 != 0;
    let body_length = input.number()?;
    let mut fields = Fields::new();
    for _ in 0..input.number()? {
        let name = input.bytes()?;
        fields.add(name, input.bytes()?);
    }
    let control = CacheControl::of_response(&fields);
    Some(Entry {
        key,
        selecting,
        status,
        status_line,
        fields,
        control,
        times,
        needs_check,
        body_length,
    })
}

fn checksum(body: u32, content: &[u8]) -> [u8; SUM] {
    let mut summed = Vec::with_capacity(content.len() + 4);
    summed.extend_from_slice(&body.to_le_bytes());
    summed.extend_from_slice(content);
    let mut sum = [0; SUM];
    sum.iter_mut().zip(digest(&SHA256, &summed).as_ref()).for_each(|(to, from)| *to = *from);
    sum
}

struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u8) -> Self {
        let mut out = Vec::with_capacity(1024);
        out.resize(PREAMBLE, 0);
        out.push(kind);
        Self(out)
    }

    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn key(&mut self, key: &Key) {
        self.number(key.url().len() as u64);
        self.bytes(key.text());
    }

    fn finish(self) -> Vec<u8> {
        let Self(mut out) = self;
        let length = out.len() - PREAMBLE;
        let body = out.len().next_multiple_of(ALIGNMENT);
        // A head beyond the bound is refused before it is written.
        let body_start = u32::try_from(body).unwrap_or(u32::MAX);
        let sum = checksum(body_start, out.get(PREAMBLE..).unwrap_or_default());
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let preamble =
            [&MAGIC[..], &length.to_le_bytes(), &body_start.to_le_bytes(), &sum].concat();
        out.iter_mut().zip(preamble).for_each(|(to, from)| *to = from);
        out.resize(body, 0);
        out
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    fn key(&mut self) -> Option<Key> {
        let url_length = usize::try_from(self.number()?).ok()?;
        Some(Key::stored(self.bytes()?.to_vec(), url_length))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn entry(url: &str) -> Entry {
        let mut fields = Fields::new();
        fields.add("Content-Type", "text/plain");
        fields.add("Cache-Control", "max-age=60");
        fields.add("X", "");
        Entry {
            key: Key::stored([url.as_bytes(), b"\0place"].concat(), url.len()),
            selecting: b"accept\0".to_vec(),
            status: Status::OK,
            status_line: Some("200 Fine".into()),
            control: CacheControl::of_response(&fields),
            fields,
            times: Times { received: 5, initial_age: 6, lifetime: 60, is_estimated: true },
            needs_check: true,
            body_length: 7,
        }
    }

    #[test]
    fn a_head_is_read_back_as_it_was_written() {
        let entry = entry("http://a:80/?");
        let head = entry.encode();
        assert_eq!(head.len() % ALIGNMENT, 0);
        let Some(Content::Entry(read, body)) = decode(&head) else { panic!("no entry") };
        assert_eq!(body, head.len() as u64);
        assert_eq!(format!("{read:?}"), format!("{entry:?}"));
        assert_eq!(read.control.max_age, Some(60));
    }

    #[test]
    fn an_index_is_read_back_and_its_nonce_tells_its_responses_from_others() {
        let key = Key::stored(b"http://a:80/?\0p".to_vec(), 13);
        let index = Index { key, names: vec!["a".into(), "b".into()], nonce: [7; 16] };
        let Some(Content::Index(read)) = decode(&index.encode()) else { panic!("no index") };
        assert_eq!(read, index);
        let other = Index { nonce: [8; 16], ..index.clone() };
        assert_ne!(index.variant_text(b"x"), other.variant_text(b"x"));
    }

    #[test]
    fn every_damaged_byte_and_every_cut_is_a_miss() {
        let whole = entry("http://a:80/?").encode();
        let length = head_length(&whole).unwrap();
        for at in 0..length {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            assert!(decode(&damaged).is_none(), "byte {at}");
            assert!(decode(&whole[..at]).is_none(), "cut at {at}");
        }
    }
}
