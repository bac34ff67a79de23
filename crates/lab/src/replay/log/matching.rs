//! Matches lines with a pattern. An item with a form ends where the form ends. Any other item ends
//! where the text after it begins; if that text occurs several times, each occurrence is tried, so
//! that spaces in user names and stray quotes in agents do no harm. The number of attempts is
//! bounded, so that no line can keep a reader busy.

use super::escape::{encode_path, unescape};
use super::format::{Item, Pattern, Piece};
use super::record::{Misfit, Record};
use super::stamp::Parts;
use memchr::memmem::Finder;

/// The most ends of items that are tried for one line.
const MOST_TRIES: u32 = 10_000;

/// The state of matching one line.
struct Matching<'a> {
    line: &'a [u8],
    pieces: &'a [Piece],
    /// The start and end of each piece.
    spans: Vec<(usize, usize)>,
    tries: u32,
    /// The last piece that any attempt reached, and where it first failed to match.
    farthest: (usize, usize),
}

impl Pattern {
    /// Parses a line.
    ///
    /// # Errors
    ///
    /// Where the line differs from the pattern.
    pub(super) fn parse(&self, line: &[u8]) -> Result<Record, Misfit> {
        let spans = vec![(0, 0); self.pieces.len()];
        let pieces = self.pieces.as_slice();
        let mut matching = Matching { line, pieces, spans, tries: 0, farthest: (0, 0) };
        if matching.fits(0, 0, self.goes_on) {
            let spans = matching.spans;
            return Ok(self.record(line, &spans));
        }
        let (at, piece) = matching.farthest;
        let wanted = match self.pieces.get(piece) {
            _ if matching.tries > MOST_TRIES => "an end to so many quotes or spaces".into(),
            Some(Piece::Text(text)) => format!("\"{}\"", text.escape_ascii()),
            Some(Piece::Item(item)) => item.name(),
            None => "the line's end".into(),
        };
        Err(Misfit { column: at + 1, wanted })
    }

    fn record(&self, line: &[u8], spans: &[(usize, usize)]) -> Record {
        let mut record = Record::default();
        let (mut path, mut query, mut port) = (None, None, None);
        let mut parts = Parts::default();
        for (piece, (from, to)) in self.pieces.iter().zip(spans) {
            let Piece::Item(item) = piece else { continue };
            let text = line.get(*from..*to).unwrap_or_default();
            let said = || Some(text).filter(|text| !matches!(*text, b"-" | b"")).map(unescape);
            match item {
                Item::RequestLine => record.line = Some(unescape(text)),
                Item::Method => record.method = said(),
                Item::Path => path = said(),
                Item::Query => query = Some(unescape(text)).filter(|query| query != b"-"),
                Item::PathAndQuery => {
                    let end = memchr::memchr(b'?', text).unwrap_or(text.len());
                    let (before, after) = text.split_at(end);
                    (path, query) = (Some(unescape(before)), Some(unescape(after)));
                }
                Item::Host => record.host = said(),
                Item::Field(name) if name.eq_ignore_ascii_case("host") => record.host = said(),
                Item::Field(name) => {
                    record.fields.extend(said().map(|value| (name.clone(), value)));
                }
                Item::Port => port = number(text),
                Item::Status => record.status = number(text),
                // Apache writes a hyphen for no bytes (%b).
                Item::Size => record.size = if text == b"-" { Some(0) } else { number(text) },
                Item::Time(shape) => _ = shape.take(text, &mut parts),
                Item::Word | Item::End(_) | Item::Protocol | Item::Number => {}
            }
        }
        record.stamp = parts.stamp();
        record.target = path.map(|path| [encode_path(&path), query.unwrap_or_default()].concat());
        if let (Some(host), Some(port)) = (&mut record.host, port)
            && !matches!(port, 80 | 443)
        {
            host.extend_from_slice(format!(":{port}").as_bytes());
        }
        record
    }
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl Matching<'_> {
    /// Whether the pieces from `piece` on match the line from `at` on.
    fn fits(&mut self, piece: usize, at: usize, goes_on: bool) -> bool {
        let rest = self.line.get(at..).unwrap_or_default();
        let Some(found) = self.pieces.get(piece) else {
            let over = rest.is_empty() || goes_on && rest.first() == Some(&b' ');
            return over || self.fails(piece, at);
        };
        let end = match found {
            Piece::Text(text) if rest.starts_with(text) => at + text.len(),
            Piece::Text(_) => return self.fails(piece, at),
            Piece::Item(item) if item.has_form() => match length(item, rest) {
                Some(length) => at + length,
                None => return self.fails(piece, at),
            },
            Piece::Item(_) => return self.fits_some_end(piece, at, goes_on),
        };
        self.put(piece, at, end);
        self.fits(piece + 1, end, goes_on)
    }

    /// Tries each possible end of an item without a form.
    fn fits_some_end(&mut self, piece: usize, from: usize, goes_on: bool) -> bool {
        let pieces = self.pieces;
        let Some(Piece::Text(behind)) = pieces.get(piece + 1) else {
            self.put(piece, from, self.line.len());
            return self.fits(piece + 1, self.line.len(), goes_on);
        };
        let before = piece.checked_sub(1).and_then(|before| pieces.get(before));
        let quoted = behind.starts_with(b"\"")
            && matches!(before, Some(Piece::Text(text)) if text.ends_with(b"\""));
        let finder = Finder::new(behind.as_slice());
        let mut at = from;
        while let Some(found) = self.line.get(at..).and_then(|rest| finder.find(rest)) {
            let end = at + found;
            at = end + 1;
            if quoted && is_escaped(self.line.get(from..end).unwrap_or_default()) {
                continue;
            }
            self.tries += 1;
            if self.tries > MOST_TRIES {
                return false;
            }
            self.put(piece, from, end);
            if self.fits(piece + 1, end, goes_on) {
                return true;
            }
        }
        // The text that ends the item is missing after its beginning.
        self.fails(if quoted { piece + 1 } else { piece }, from)
    }

    fn put(&mut self, piece: usize, from: usize, to: usize) {
        if let Some(span) = self.spans.get_mut(piece) {
            *span = (from, to);
        }
    }

    fn fails(&mut self, piece: usize, at: usize) -> bool {
        if piece > self.farthest.1 {
            self.farthest = (at, piece);
        }
        false
    }
}

/// Whether what follows is escaped by a backslash that is not itself escaped.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The length of an item with a form.
fn length(item: &Item, text: &[u8]) -> Option<usize> {
    if let Item::Time(shape) | Item::End(shape) = item {
        return shape.take(text, &mut Parts::default());
    }
    if text.first() == Some(&b'-') {
        return Some(1);
    }
    if *item == Item::Protocol {
        let digits = text.strip_prefix(b"HTTP/")?;
        let part = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
        return Some(text.len() - digits.len() + digits.iter().take_while(part).count());
    }
    let fraction = |byte: &u8| *item == Item::Number && *byte == b'.';
    let used = text.iter().take_while(|byte| byte.is_ascii_digit() || fraction(byte)).count();
    let most = if *item == Item::Status { 3 } else { 20 };
    (1..=most).contains(&used).then_some(used)
}
