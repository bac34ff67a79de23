//! Type maps: the text of a file goes in, the variants that it lists come out
//! (mod_negotiation.c: read_type_map). It looks for no file.

use super::accept::token;
use super::variant::Variant;
use evenkeel_message::{Level, Notice, Piece, quoted};
use evenkeel_sys::open;
use std::io;

/// The largest map that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// Why a map cannot be used: what to log; the answer is 500.
#[derive(Debug)]
pub struct Fault(pub Notice);

/// The text of a map. It is read whole, since a part of it may be what is sent.
///
/// # Errors
/// Those of read(2); FileTooLarge above 1 MiB.
pub fn map_text(piece: &Piece) -> io::Result<Vec<u8>> {
    match piece {
        Piece::Bytes(bytes) => Ok(bytes.to_vec()),
        Piece::File { length, .. } if *length > LARGEST => Err(io::ErrorKind::FileTooLarge.into()),
        Piece::File { file, offset, length } => {
            let mut text = vec![0; usize::try_from(*length).unwrap_or(0)];
            let mut filled = 0;
            while let Some(rest) = text.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                match open::read_at(file, rest, offset + filled as u64)? {
                    0 => break,
                    count => filled += count,
                }
            }
            text.truncate(filled);
            Ok(text)
        }
    }
}

/// The variants of a map. `name` is that of the map itself, `path` what the log calls it. A part
/// that breaks off the map leaves the variants before it, with a notice.
///
/// # Errors
/// A line that is no header.
pub fn read_map(
    text: &[u8],
    name: &[u8],
    path: &str,
) -> Result<(Vec<Variant>, Vec<Notice>), Fault> {
    let mut lines = Lines { text, at: 0 };
    let (mut variants, mut notices) = (Vec::new(), Vec::new());
    let mut variant = Variant::default();
    let mut has_content = false;
    loop {
        let line = match lines.next() {
            Line::Header(line) => line,
            end => {
                let done = std::mem::take(&mut variant);
                if !done.name.is_empty() && has_content {
                    variants.push(done);
                }
                has_content = false;
                if matches!(end, Line::End) {
                    return Ok((variants, notices));
                }
                continue;
            }
        };
        let (header, mut value) = split(&line, path)?;
        blank_comments(&mut value);
        match header.as_slice() {
            b"uri" => variant.name = token(&value, false).0.to_vec(),
            b"content-type" => variant.set_type(&value),
            b"content-language" => variant.set_languages(&value),
            b"content-encoding" => variant.encoding = Some(token(&value, false).0.to_vec()),
            b"description" => {
                variant.description = value.trim_ascii_end().to_vec();
                variant.description.iter_mut().filter(|b| **b == b'\n').for_each(|b| *b = b' ');
            }
            b"content-length" => match number(token(&value, false).0) {
                Some(length) => variant.length = Some(length),
                None => {
                    let said = quoted(token(&value, false).0).into_owned();
                    notices.push(error(
                        684,
                        format!(
                            "Parse error in type map, Content-Length: '{said}' in {path} is \
                             invalid."
                        ),
                    ));
                    return Ok((variants, notices));
                }
            },
            b"body" => match lines.body(value.trim_ascii_end()) {
                Some((start, length)) => {
                    variant.body = Some((start, length));
                    variant.length = Some(length);
                    variant.name = name.to_vec();
                }
                None => {
                    let tag = quoted(value.trim_ascii_end()).into_owned();
                    notices.push(error(
                        685,
                        format!(
                            "Syntax error in type map, no end tag '{tag}'found in {path} for \
                             Body: content."
                        ),
                    ));
                    return Ok((variants, notices));
                }
            },
            _ => {}
        }
        has_content |= header.starts_with(b"content-")
            && matches!(header.get(8..), Some(b"type" | b"length" | b"language" | b"encoding"));
    }
}

fn error(number: u16, text: String) -> Notice {
    Notice::new("negotiation", Level::Error, number, text)
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A header's name in lower case and its value.
fn split(line: &[u8], path: &str) -> Result<(Vec<u8>, Vec<u8>), Fault> {
    let shown = || quoted(line).trim_end().to_owned();
    let Some(colon) = line.iter().position(|byte| *byte == b':') else {
        let text = format!("Syntax error in type map, no ':' in {path} for header {}", shown());
        return Err(Fault(error(681, text)));
    };
    let (name, value) = line.split_at_checked(colon).unwrap_or_default();
    let value = value.get(1..).unwrap_or_default().trim_ascii_start();
    if value.is_empty() {
        let text = format!("Syntax error in type map --- no header body: {path} for {}", shown());
        return Err(Fault(error(682, text)));
    }
    Ok((name.to_ascii_lowercase(), value.to_vec()))
}

/// Puts spaces in place of what stands in round brackets, which do not nest.
fn blank_comments(value: &mut [u8]) {
    let mut inside = false;
    for byte in value {
        inside |= *byte == b'(';
        if inside {
            inside = *byte != b')';
            *byte = b' ';
        }
    }
}

/// What the next lines of a map are.
enum Line {
    /// A header with its continuation lines.
    Header(Vec<u8>),
    /// An empty line, which ends a variant.
    Blank,
    End,
}

struct Lines<'a> {
    text: &'a [u8],
    at: usize,
}

impl Lines<'_> {
    /// The line at hand with its line end, without going on.
    fn peek(&self) -> Option<&[u8]> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
        rest.get(..end)
    }

    fn next(&mut self) -> Line {
        while self.peek().is_some_and(|line| line.starts_with(b"#")) {
            self.skip();
        }
        let Some(line) = self.peek() else { return Line::End };
        let mut whole = line.to_vec();
        self.skip();
        if whole.trim_ascii().is_empty() {
            return Line::Blank;
        }
        if whole.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"body:")) {
            return Line::Header(whole);
        }
        while let Some(line) = self.peek() {
            let goes_on = line.first().is_some_and(u8::is_ascii_whitespace);
            if goes_on && !line.trim_ascii().is_empty() {
                whole.extend_from_slice(line.trim_ascii_start());
            } else if !line.starts_with(b"#") {
                break;
            }
            self.skip();
        }
        Line::Header(whole)
    }

    fn skip(&mut self) {
        self.at += self.peek().map_or(0, <[u8]>::len);
    }

    /// Where the content up to `tag` stands; what follows the tag on its line is passed over.
    fn body(&mut self, tag: &[u8]) -> Option<(u64, u64)> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.windows(tag.len().max(1)).position(|window| window == tag)?;
        let start = self.at;
        self.at += length + tag.len();
        self.skip();
        Some((start as u64, length as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Variant> {
        read_map(text.as_bytes(), b"m.var", "/m.var").unwrap().0
    }

    #[test]
    fn variants_stand_between_empty_lines() {
        let map = "# a map\nURI: a.en.html (first)\nContent-Type: text/html; charset=UTF-8;\n \
                   qs=0.5;\n# between\n\tlevel=1\nContent-language: EN, de\n\n\
                   uri: only-a-name\n\n\
                   Uri: b.gz\ncontent-encoding: x-gzip\ndescription: it is\n  long\n\
                   content-length: 12\n";
        let list = read(map);
        assert_eq!(list.len(), 2);
        assert_eq!(list[0].name, b"a.en.html");
        assert_eq!((list[0].source_quality, list[0].level), (0.5, 1.0));
        assert_eq!(list[0].charset, b"utf-8");
        assert_eq!(list[0].languages, [b"en".to_vec(), b"de".to_vec()]);
        assert_eq!(list[1].encoding.as_deref(), Some(&b"x-gzip"[..]));
        assert_eq!(
            (list[1].length, list[1].description.as_slice()),
            (Some(12), &b"it is long"[..])
        );
    }

    #[test]
    fn a_body_stands_in_the_map() {
        let map = "Content-type: text/html\nBody:----end\n<p>one\n\ntwo\n----end rest\n\n\
                   Content-type: text/plain\nBody:----end\nplain----end\n";
        let list = read(map);
        let part = |variant: &Variant| {
            let (start, length) = variant.body.unwrap();
            &map[start as usize..(start + length) as usize]
        };
        assert_eq!((part(&list[0]), part(&list[1])), ("<p>one\n\ntwo\n", "plain"));
        assert_eq!(list[0].name, b"m.var");
        let (rest, notices) = read_map(b"Body: x\nno end", b"m", "/m").unwrap();
        assert!(rest.is_empty() && notices[0].text.contains("no end tag 'x'"));
    }

    #[test]
    fn broken_maps_are_told() {
        let fault = |text: &str| read_map(text.as_bytes(), b"m", "/m").unwrap_err().0.text;
        assert!(fault("nothing\n").contains("no ':' in /m for header nothing"));
        assert!(fault("uri:  \n").contains("no header body: /m for uri:"));
        let (list, notices) = read_map(b"uri: a\ncontent-length: -1\n", b"m", "/m").unwrap();
        assert!(list.is_empty() && notices[0].text.contains("'-1' in /m is invalid."));
    }
}
